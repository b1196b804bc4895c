/* Maximum flow by push-relabel in waves, with global relabelling and the gap heuristic.
 *
 * A. V. Goldberg and R. E. Tarjan, "A new approach to the maximum-flow problem", J. ACM 35 (1988), with the heuristics of
 * B. V. Cherkassky and A. V. Goldberg, "On implementing the push-relabel method for the maximum flow problem",
 * Algorithmica 19 (1997). The first phase only, which finds a minimum cut:
 * 1. Each vertex has a distance label: at most how far, over residual arcs, the nearest vertex is from which the sink
 *    still takes flow. A wave goes through the vertices that have an excess, those of the greatest label first, and each
 *    pushes its excess along arcs that lead one label down.
 * 2. One without such an arc is relabelled. Where a label is used no more (a gap), nothing above it can reach the sink.
 * 3. What a vertex that was relabelled pushes to where the wave has been already, waits for the next wave.
 * 4. Every so often all labels are made exact by a search from the sink, backwards.
 *
 * Excess that flows together is pushed as one, so long detours cost their length once, and not once for each path as in
 * methods that augment along paths. Without step 3, those who are stuck, which climb, would keep the rest from being
 * pushed at all until labels are exact again: up to ten times as many relabellings on graphs of models.
 * Time O(n^2 m) at worst; on graphs of models, nearly linear. */
#include "assign.h"

enum {
    NONE = -1,
    RELABEL_WORK = 12, /* steps that a relabelling is reckoned at, beside the arcs it looks at */
    SEARCH_WORK = 4,   /* all labels are made exact again after SEARCH_WORK * n + arcs steps */
};

typedef struct {
    const hg_network *net;
    int32_t *label;    /* [n] distance; n: the sink cannot be reached */
    int32_t *current;  /* [n] arc to look at next */
    int32_t *vertices; /* [n + 1] first vertex of each label; all of them are linked both ways */
    int32_t *next, *before;
    int32_t *active; /* [n + 1] by label, first of those that the wave goes to, which are linked */
    int32_t *next_active;
    int32_t *waiting; /* [n] for the next wave */
    int32_t waiting_count;
    int32_t *queue;          /* [n] */
    int32_t top_active, top; /* greatest label in use */
    int64_t work;
    hg_watch *watch;
} flow_state;

static inline void add_vertex(flow_state *s, int32_t v, int32_t label)
{
    const int32_t first = s->vertices[label];
    s->next[v] = first;
    s->before[v] = NONE;
    if (first != NONE)
        s->before[first] = v;
    s->vertices[label] = v;
}

static inline void remove_vertex(flow_state *s, int32_t v, int32_t label)
{
    const int32_t after = s->next[v], before = s->before[v];
    if (before == NONE)
        s->vertices[label] = after;
    else
        s->next[before] = after;
    if (after != NONE)
        s->before[after] = before;
}

static inline void add_active(flow_state *s, int32_t v, int32_t label)
{
    s->next_active[v] = s->active[label];
    s->active[label] = v;
    if (label > s->top_active)
        s->top_active = label;
}

/* Exact labels, by a search backwards from the vertices that the sink takes flow from. */
static int search(flow_state *s)
{
    const hg_network *net = s->net;
    const int32_t n = net->n;
    int32_t begin = 0, end = 0;
    for (int32_t v = 0; v < n; v++) {
        const int takes = net->excess[v] < 0;
        s->label[v] = takes ? 0 : n;
        s->current[v] = net->start[v];
        s->active[v] = s->vertices[v] = NONE;
        if (takes)
            s->queue[end++] = v;
    }
    s->active[n] = s->vertices[n] = NONE;
    if (hg_interrupted(s->watch, 2 * (int64_t)n))
        return HG_INTERRUPTED;
    s->top = s->top_active = s->waiting_count = 0;
    while (begin < end) {
        const int32_t v = s->queue[begin++], label = s->label[v];
        add_vertex(s, v, label);
        if (net->excess[v] > 0)
            add_active(s, v, label);
        s->top = label; /* labels ascend along the queue */
        for (int32_t a = net->start[v]; a < net->start[v + 1]; a++) {
            const int32_t w = net->arc[a].head;
            if (s->label[w] == n && net->arc[net->arc[a].twin].residual > 0) {
                s->label[w] = label + 1;
                s->queue[end++] = w;
            }
        }
        if (hg_interrupted(s->watch, 2 + net->start[v + 1] - net->start[v]))
            return HG_INTERRUPTED;
    }
    s->work = 0;
    return HG_OK;
}

/* Nobody has label `gap` any more: what is above cannot reach the sink. */
static void close_gap(flow_state *s, int32_t gap)
{
    for (int32_t label = gap + 1; label <= s->top; label++) {
        for (int32_t v = s->vertices[label]; v != NONE; v = s->next[v])
            s->label[v] = s->net->n;
        s->work += 1;
        s->vertices[label] = NONE;
    }
    s->top = gap - 1;
}

/* Pushes the excess of v, whose turn it is in the wave, until it has none or cannot reach the sink. */
static void discharge(flow_state *s, int32_t v)
{
    const hg_network *net = s->net;
    const int32_t n = net->n, begin = net->start[v], end = net->start[v + 1], wave = s->label[v];
    int64_t excess = net->excess[v];
    for (;;) {
        const int32_t label = s->label[v];
        int32_t a = s->current[v];
        for (; a < end; a++) {
            const int32_t w = net->arc[a].head;
            if (net->arc[a].residual <= 0 || s->label[w] != label - 1)
                continue;
            const int64_t amount = excess < net->arc[a].residual ? excess : net->arc[a].residual;
            net->arc[a].residual -= amount;
            net->arc[net->arc[a].twin].residual += amount;
            const int64_t before = net->excess[w];
            net->excess[w] = before + amount;
            if (before <= 0 && before + amount > 0) {
                if (label <= wave)
                    add_active(s, w, label - 1);
                else
                    s->waiting[s->waiting_count++] = w;
            }
            excess -= amount;
            if (excess == 0)
                break;
        }
        s->work += a - s->current[v];
        s->current[v] = a;
        if (excess == 0)
            break;
        s->work += RELABEL_WORK + (end - begin);
        remove_vertex(s, v, label);
        s->label[v] = n;
        if (s->vertices[label] == NONE) {
            close_gap(s, label);
            break; /* v was above the others of its label, or the last of it: it is cut off, too */
        }
        int32_t lowest = n;
        for (int32_t b = begin; b < end; b++)
            if (net->arc[b].residual > 0 && s->label[net->arc[b].head] < lowest) {
                lowest = s->label[net->arc[b].head];
                s->current[v] = b;
            }
        if (lowest + 1 >= n)
            break;
        s->label[v] = lowest + 1;
        add_vertex(s, v, lowest + 1);
        if (lowest + 1 > s->top)
            s->top = lowest + 1;
    }
    net->excess[v] = excess;
}

/* The next vertex of the wave, or of the next wave; NONE: no excess can move. */
static int32_t next_in_wave(flow_state *s)
{
    for (;;) {
        while (s->top_active > 0 && s->active[s->top_active] == NONE)
            s->top_active--;
        const int32_t v = s->active[s->top_active];
        if (v != NONE) {
            s->active[s->top_active] = s->next_active[v];
            return v;
        }
        if (!s->waiting_count)
            return NONE;
        while (s->waiting_count) {
            const int32_t w = s->waiting[--s->waiting_count];
            if (s->label[w] < s->net->n) /* else cut off meanwhile */
                add_active(s, w, s->label[w]);
        }
    }
}

int hg_max_flow(hg_network *net, uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = net->n;
    const hg_mark mark = hg_arena_mark(arena);
    flow_state s = {.net = net, .watch = watch};
    s.label = HG_TAKE(arena, int32_t, n);
    s.current = HG_TAKE(arena, int32_t, n);
    s.vertices = HG_TAKE(arena, int32_t, (int64_t)n + 1);
    s.next = HG_TAKE(arena, int32_t, n);
    s.before = HG_TAKE(arena, int32_t, n);
    s.active = HG_TAKE(arena, int32_t, (int64_t)n + 1);
    s.next_active = HG_TAKE(arena, int32_t, n);
    s.waiting = HG_TAKE(arena, int32_t, n);
    s.queue = HG_TAKE(arena, int32_t, n);
    if (!s.label || !s.current || !s.vertices || !s.next || !s.before || !s.active || !s.next_active || !s.waiting ||
        !s.queue)
        return HG_NO_MEMORY;
    int64_t given = 0, left = 0, watched = 0;
    for (int32_t v = 0; v < n; v++)
        given += net->excess[v] > 0 ? net->excess[v] : 0;
    int status = search(&s);
    const int64_t often = SEARCH_WORK * (int64_t)n + net->arcs;
    while (status == HG_OK) {
        const int32_t v = next_in_wave(&s);
        if (v == NONE)
            break;
        const int64_t before = s.work;
        discharge(&s, v);
        if (hg_interrupted_after(watch, &watched, 4 + s.work - before))
            status = HG_INTERRUPTED;
        else if (s.work > often)
            status = search(&s);
    }
    if (status == HG_OK)
        status = search(&s);
    for (int32_t v = 0; v < n && status == HG_OK; v++) {
        on_sink_side[v] = s.label[v] < n;
        left += net->excess[v] > 0 ? net->excess[v] : 0;
    }
    *flow = given - left;
    hg_arena_release(arena, mark);
    return status;
}
