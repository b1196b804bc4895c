/* A simulator of one inference, as runtime/parallel.py runs it.
 *
 * A lane runs one step at a time; of its ready steps, the one with the smallest key. The calling thread may run steps of
 * every lane; each lane has one more thread. A thread that ends a step goes on with a ready one at once: the calling
 * thread with the first of all lanes, another thread with the first of its lane. Every other step that can start waits
 * `hand_over` for the thread that runs it, and the calling thread waits as long for a last step that it did not run.
 *
 * Steps of sharing devices progress at the rate 1 / (1 + slowdown * (others of them at work)); their ends are kept in
 * a clock of that progress, so that a change of rate changes no entry. O(steps * (log(steps) + lanes at work)). */
#include "../heap.h"
#include "schedule.h"

typedef struct {
    int32_t step;
    uint8_t lane, shares;
    double end; /* on the clock of time, or of progress if it shares */
} running;

typedef struct {
    const hg_steps *steps;
    const double *key;
    hg_heap ready[HG_MOST_LANES];
    running at_work[HG_MOST_LANES];
    int32_t num_at_work, sharing;
    int32_t running_on[HG_MOST_LANES]; /* step of each lane, or -1 */
    int32_t main_lane;                 /* whose step the calling thread runs, or -1 */
    double now, progress, slowdown, hand_over;
    uint8_t *fetched; /* by transfer */
    double *begin, *end;
    int32_t *sequence, started;
} simulation;

static double rate(const simulation *sim) { return 1 / (1 + sim->slowdown * (sim->sharing > 1 ? sim->sharing - 1 : 0)); }

static double fetch(const hg_steps *steps, int32_t step, uint8_t *fetched)
{
    double seconds = 0;
    for (int32_t i = steps->fetch_start[step]; i < steps->fetch_start[step + 1]; i++) {
        const int32_t transfer = steps->fetch[i];
        seconds += fetched[transfer] ? 0 : steps->transfer[transfer];
        fetched[transfer] = 1;
    }
    return seconds;
}

/* Start the first ready step of a lane after `delay`. */
static void start(simulation *sim, int lane, double delay)
{
    const int32_t step = hg_pop(&sim->ready[lane]);
    const double seconds = sim->steps->seconds[step] + fetch(sim->steps, step, sim->fetched);
    const uint8_t shares = sim->steps->shares[step];
    sim->at_work[sim->num_at_work++] = (running){step, (uint8_t)lane, shares,
                                                 (shares ? sim->progress : sim->now) + delay + seconds};
    sim->sharing += shares;
    sim->running_on[lane] = step;
    sim->begin[step] = sim->now + delay;
    if (sim->sequence)
        sim->sequence[sim->started] = step;
    sim->started++;
}

/* Of steps that end at the same time, the one that started first ends first, so that the same steps numbered by their
 * start run in the same way. */
static int started_before(const simulation *sim, int32_t step, int32_t other)
{
    return sim->begin[step] != sim->begin[other] ? sim->begin[step] < sim->begin[other] : step < other;
}

/* The lane, among these, whose first ready step can start and has the smallest key; -1 if no step can start. */
static int first_startable(const simulation *sim, const uint8_t *lanes, int count)
{
    int first = -1;
    for (int i = 0; i < count; i++) {
        const int lane = lanes[i];
        if (sim->running_on[lane] < 0 && sim->ready[lane].count &&
            (first < 0 || hg_before(sim->ready[lane].entry[0], sim->ready[first].entry[0])))
            first = lane;
    }
    return first;
}

/* Start what can start on these lanes; the calling thread is free and starts the first of them after `delay`. */
static void start_all(simulation *sim, const uint8_t *lanes, int count, int main_is_free, double delay)
{
    if (main_is_free) {
        const int first = first_startable(sim, lanes, count);
        sim->main_lane = first;
        if (first >= 0)
            start(sim, first, delay);
    }
    for (int i = 0; i < count; i++)
        if (sim->running_on[lanes[i]] < 0 && sim->ready[lanes[i]].count)
            start(sim, lanes[i], sim->hand_over);
}

int hg_simulate(const hg_steps *steps, const double *key, double slowdown, double hand_over, double *begin,
                double *end, int32_t *sequence, double *makespan, hg_arena *arena, hg_watch *watch)
{
    const int32_t count = steps->count;
    simulation *sim = HG_TAKE_ZEROED(arena, simulation, 1);
    int32_t *waits = HG_TAKE_ZEROED(arena, int32_t, count);
    uint8_t *fetched = HG_TAKE_ZEROED(arena, uint8_t, steps->transfers);
    hg_entry *entries = HG_TAKE(arena, hg_entry, count);
    if (!sim || !waits || !fetched || !entries)
        return HG_NO_MEMORY;
    *sim = (simulation){.steps = steps, .key = key, .main_lane = -1, .slowdown = slowdown, .hand_over = hand_over,
                        .fetched = fetched, .begin = begin, .end = end, .sequence = sequence};
    int32_t of_lane[HG_MOST_LANES + 1] = {0};
    for (int32_t s = 0; s < count; s++)
        of_lane[steps->lane[s] + 1]++;
    uint8_t lanes[HG_MOST_LANES];
    for (int lane = 0; lane < HG_MOST_LANES; lane++) {
        lanes[lane] = (uint8_t)lane;
        of_lane[lane + 1] += of_lane[lane];
        sim->ready[lane].entry = entries + of_lane[lane];
        sim->running_on[lane] = -1;
    }
    const int32_t edges = steps->next_start[count];
    for (int32_t i = 0; i < edges; i++)
        waits[steps->next[i]]++;
    for (int32_t s = 0; s < count; s++)
        if (!waits[s])
            hg_push(&sim->ready[steps->lane[s]], key ? key[s] : s, s);
    if (hg_interrupted(watch, (int64_t)edges + 4 * (int64_t)count))
        return HG_INTERRUPTED;
    start_all(sim, lanes, HG_MOST_LANES, 1, 0);
    int last_in_main = 1;
    while (sim->num_at_work) {
        const double speed = rate(sim);
        int next = 0;
        double at = 0;
        for (int i = 0; i < sim->num_at_work; i++) {
            const running *r = &sim->at_work[i];
            const double ends = r->shares ? sim->now + (r->end - sim->progress) / speed : r->end;
            if (!i || ends < at || (ends == at && started_before(sim, r->step, sim->at_work[next].step))) {
                next = i;
                at = ends;
            }
        }
        const running ended = sim->at_work[next];
        if (at < sim->now) /* by rounding */
            at = sim->now;
        sim->progress = ended.shares ? ended.end : sim->progress + (at - sim->now) * speed;
        sim->now = at;
        sim->at_work[next] = sim->at_work[--sim->num_at_work];
        sim->sharing -= ended.shares;
        sim->running_on[ended.lane] = -1;
        end[ended.step] = at;
        last_in_main = sim->main_lane == ended.lane;

        /* Only lanes that this end made free, or gave a ready step, can start anything. */
        uint8_t touched[HG_MOST_LANES], is_touched[HG_MOST_LANES] = {0};
        int num_touched = 0;
        is_touched[ended.lane] = 1;
        touched[num_touched++] = ended.lane;
        for (int32_t i = steps->next_start[ended.step]; i < steps->next_start[ended.step + 1]; i++) {
            const int32_t s = steps->next[i];
            if (--waits[s])
                continue;
            hg_push(&sim->ready[steps->lane[s]], key ? key[s] : s, s);
            if (!is_touched[steps->lane[s]]) {
                is_touched[steps->lane[s]] = 1;
                touched[num_touched++] = steps->lane[s];
            }
        }
        if (last_in_main)
            start_all(sim, touched, num_touched, 1, 0);
        else {
            if (sim->ready[ended.lane].count)
                start(sim, ended.lane, 0);
            start_all(sim, touched, num_touched, sim->main_lane < 0, hand_over);
        }
        if (hg_interrupted(watch, 16 + sim->num_at_work + steps->next_start[ended.step + 1] - steps->next_start[ended.step]))
            return HG_INTERRUPTED;
    }
    *makespan = sim->now + (last_in_main ? 0 : hand_over);
    return sim->started == count ? HG_OK : HG_CYCLE;
}

int hg_simulate_in_order(const hg_steps *steps, double *begin, double *end, double *total, hg_arena *arena,
                         hg_watch *watch)
{
    uint8_t *fetched = HG_TAKE_ZEROED(arena, uint8_t, steps->transfers);
    if (!fetched)
        return HG_NO_MEMORY;
    double now = 0;
    for (int32_t s = 0; s < steps->count; s++) {
        begin[s] = now;
        now += steps->seconds[s] + fetch(steps, s, fetched);
        end[s] = now;
        if (hg_interrupted_at(watch, s, 4))
            return HG_INTERRUPTED;
    }
    *total = now;
    return HG_OK;
}

int hg_step_keys(const hg_steps *steps, double *key, hg_arena *arena, hg_watch *watch)
{
    const int32_t count = steps->count;
    int32_t *waits = HG_TAKE_ZEROED(arena, int32_t, count);
    int32_t *order = HG_TAKE(arena, int32_t, count);
    if (!waits || !order)
        return HG_NO_MEMORY;
    const int32_t edges = steps->next_start[count];
    int32_t tail = 0;
    for (int32_t i = 0; i < edges; i++)
        waits[steps->next[i]]++;
    for (int32_t s = 0; s < count; s++)
        if (!waits[s])
            order[tail++] = s;
    for (int32_t head = 0; head < tail; head++)
        for (int32_t i = steps->next_start[order[head]]; i < steps->next_start[order[head] + 1]; i++)
            if (!--waits[steps->next[i]])
                order[tail++] = steps->next[i];
    if (hg_interrupted(watch, 4 * (int64_t)edges + 4 * (int64_t)count))
        return HG_INTERRUPTED;
    if (tail < count)
        return HG_CYCLE;
    while (tail) {
        const int32_t s = order[--tail];
        double after = 0;
        for (int32_t i = steps->next_start[s]; i < steps->next_start[s + 1]; i++)
            after = key[steps->next[i]] < after ? key[steps->next[i]] : after;
        key[s] = after - steps->seconds[s];
    }
    return hg_interrupted(watch, 4 * (int64_t)edges + 4 * (int64_t)count) ? HG_INTERRUPTED : HG_OK;
}
