/* List scheduling of single nodes by upward rank, the longest time from the start of a node to the end of the last.
 *
 * On given devices: events. A lane that is free starts its ready node of highest rank. With devices to choose:
 * H. Topcuoglu, S. Hariri and M.-Y. Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
 * computing", IEEE TPDS 13(3), 2002 (HEFT), without insertion into gaps: in order of mean rank, which is a topological
 * order, each node goes to the device on which it ends first. With limits of memory, to the first of those that have room
 * for its constants. Constants are held twice only as long as the devices together have room for all others.
 *
 * A node pays for the transfers of values that no node of its device has fetched, and, if it reads a value of a node on
 * another device, for a launch, because a subgraph has to begin there.
 *
 * Nodes are first sorted by rank, and all that is known of them moves to their places in that order: nodes that run one
 * after the other are then neighbors in memory, and a set of ready nodes is a set of bits. O(nodes + readers), with
 * devices to choose O(nodes + readers * devices). */
#include "ready.h"
#include "schedule.h"

/* What the schedule needs of a node, while nodes are numbered as in the graph. */
typedef struct {
    double work, seconds;
    int32_t waits, readers; /* values of other nodes that it reads; readings of its values by other nodes */
    uint8_t device, is_foreign; /* is_foreign: it reads a value of a node on another device */
} timed_node;

static int node_times(const hg_machine *m, const int32_t *device, timed_node *node, hg_arena *arena, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    int32_t *seen = HG_TAKE_ZEROED(arena, int32_t, costs->k); /* by device: the last value, plus one, fetched there */
    if (!seen)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < m->n; v++) {
        node[v] = (timed_node){.work = costs->work[(int64_t)device[v] * costs->n + v], .device = (uint8_t)device[v]};
        if (hg_interrupted_at(watch, v, 4))
            return HG_INTERRUPTED;
    }
    for (int32_t value = 0; value < costs->num_values; value++) {
        const int32_t producer = costs->producer[value], is_node = producer < m->n;
        const int32_t from = is_node ? device[producer] : m->host_device[producer - m->n];
        int32_t result_on = -1, readers = 0;
        for (int32_t i = costs->indptr[value]; i < costs->indptr[value + 1]; i++) {
            const int32_t reader = costs->readers[i];
            if (reader >= m->n) {
                result_on = m->host_device[reader - m->n];
                continue;
            }
            timed_node *to = &node[reader];
            to->waits += is_node && reader != producer;
            readers += reader != producer;
            if (to->device == from)
                continue;
            to->is_foreign |= (uint8_t)is_node;
            if (seen[to->device] != value + 1) {
                seen[to->device] = value + 1;
                to->work += hg_transfer(costs, value, from, to->device);
            }
        }
        if (is_node) {
            node[producer].readers += readers;
            if (result_on >= 0 && result_on != from && seen[result_on] != value + 1)
                node[producer].work += hg_transfer(costs, value, from, result_on);
        }
        if (hg_interrupted(watch, 2 + costs->indptr[value + 1] - costs->indptr[value]))
            return HG_INTERRUPTED;
    }
    for (int32_t v = 0; v < m->n; v++) {
        node[v].seconds = node[v].work + (node[v].is_foreign ? m->launch[node[v].device] : 0);
        if (hg_interrupted_at(watch, v, 2))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* key [n]: minus the rank. seconds: of node v at v * stride. crossing [values]: added between a producer and its
 * readers, or NULL. */
static int node_keys(const hg_machine *m, const double *seconds, size_t stride, const double *crossing, double *key,
                     hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    int64_t work = 0;
    for (int32_t i = m->n - 1; i >= 0; i--) {
        const int32_t v = hg_node_at(m, i);
        double after = 0;
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            const int32_t value = m->made[j];
            const double extra = crossing ? crossing[value] : 0;
            for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
                const int32_t reader = costs->readers[r];
                if (reader < m->n && reader != v && key[reader] - extra < after)
                    after = key[reader] - extra;
            }
            work += 2 + costs->indptr[value + 1] - costs->indptr[value];
        }
        key[v] = after - seconds[(size_t)v * stride];
        if (hg_interrupted_after(watch, &work, 4))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* order [n]: the nodes by lane, and in a lane by key; of equal keys, the smallest number first. of_lane: where each lane
 * starts in it. */
static int order_by_lane(const hg_machine *m, const int32_t *device, const double *key, int32_t *order,
                         int32_t *of_lane, hg_arena *arena, hg_watch *watch)
{
    int32_t at[HG_MOST_LANES];
    memset(of_lane, 0, (HG_MOST_LANES + 1) * sizeof *of_lane);
    for (int32_t v = 0; v < m->n; v++)
        of_lane[m->lane[device[v]] + 1]++;
    for (int lane = 0; lane < HG_MOST_LANES; lane++) {
        at[lane] = of_lane[lane];
        of_lane[lane + 1] += of_lane[lane];
    }
    for (int32_t v = 0; v < m->n; v++)
        order[at[m->lane[device[v]]]++] = v;
    if (hg_interrupted(watch, 4 * (int64_t)m->n))
        return HG_INTERRUPTED;
    int status = HG_OK;
    for (int lane = 0; lane < HG_MOST_LANES && status == HG_OK; lane++)
        status = hg_sort_by_key(key, order + of_lane[lane], of_lane[lane + 1] - of_lane[lane], arena, watch);
    return status;
}

/* The rows of readers. Nodes are visited in the order of their numbers, in which neighbors in the graph are usually
 * close: one write for each reader is all that goes far. */
static int rows_by_place(const hg_machine *m, hg_node_schedule *s, const int32_t *device, const int32_t *place,
                         hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    int64_t units = 0;
    for (int32_t v = 0; v < m->n; v++) {
        uint32_t *next = s->next + s->next_start[place[v]], *const first = next;
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            const int32_t value = m->made[j];
            for (int32_t r = costs->indptr[value]; r < costs->indptr[value + 1]; r++) {
                const int32_t reader = costs->readers[r];
                if (reader < m->n && reader != v)
                    *next++ = 2 * (uint32_t)place[reader] + (device[reader] != device[v]);
            }
        }
        if (hg_interrupted_after(watch, &units, 8 + 2 * (next - first)))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* All of the schedule but sequence, end and makespan. waits [n]: how many entries of the rows name each place. */
static int nodes_by_place(const hg_machine *m, const int32_t *device, hg_node_schedule *s, int32_t *waits,
                          int32_t *of_lane, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = m->n;
    timed_node *node = HG_TAKE(arena, timed_node, n);
    double *key = HG_TAKE_ZEROED(arena, double, n);
    int32_t *place = HG_TAKE(arena, int32_t, n);
    if (!node || !key || !place)
        return HG_NO_MEMORY;
    int status = node_times(m, device, node, arena, watch);
    if (status == HG_OK)
        status = node_keys(m, &node->seconds, sizeof *node / sizeof(double), NULL, key, watch);
    if (status == HG_OK)
        status = order_by_lane(m, device, key, s->node, of_lane, arena, watch);
    if (status != HG_OK)
        return status;
    int32_t readings = 0;
    for (int32_t p = 0; p < n; p++) {
        const timed_node *from = &node[s->node[p]];
        place[s->node[p]] = p;
        s->work[p] = from->work;
        s->seconds[p] = from->seconds;
        s->device[p] = from->device;
        waits[p] = from->waits;
        s->next_start[p] = readings;
        readings += from->readers;
        if (hg_interrupted_at(watch, p, 8))
            return HG_INTERRUPTED;
    }
    s->next_start[n] = readings;
    return rows_by_place(m, s, device, place, watch);
}

int hg_schedule_nodes(const hg_machine *m, const int32_t *device, hg_node_schedule *schedule, hg_arena *arena,
                      hg_watch *watch)
{
    const int32_t n = m->n;
    hg_node_schedule s = {.node = HG_TAKE(arena, int32_t, n), .device = HG_TAKE(arena, uint8_t, n)};
    s.work = HG_TAKE(arena, double, n);
    s.seconds = HG_TAKE(arena, double, n);
    s.end = HG_TAKE(arena, double, n);
    s.sequence = HG_TAKE(arena, int32_t, n);
    s.next_start = HG_TAKE(arena, int32_t, (int64_t)n + 1);
    s.next = HG_TAKE(arena, uint32_t, m->costs->indptr[m->costs->num_values]);
    if (!s.node || !s.device || !s.work || !s.seconds || !s.end || !s.sequence || !s.next_start || !s.next)
        return HG_NO_MEMORY;
    const hg_mark mark = hg_arena_mark(arena);
    int32_t *waits = HG_TAKE(arena, int32_t, n), of_lane[HG_MOST_LANES + 1];
    hg_ready *ready = HG_TAKE(arena, hg_ready, HG_MOST_LANES);
    if (!waits || !ready)
        return HG_NO_MEMORY;
    const hg_mark scratch = hg_arena_mark(arena);
    const int status = nodes_by_place(m, device, &s, waits, of_lane, arena, watch);
    if (status != HG_OK)
        return status;
    hg_arena_release(arena, scratch);
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        if (!hg_ready_open(&ready[lane], of_lane[lane], of_lane[lane + 1] - of_lane[lane], arena))
            return HG_NO_MEMORY;
    for (int32_t p = 0; p < n; p++) {
        if (!waits[p])
            hg_ready_add(&ready[m->lane[s.device[p]]], p);
        if (hg_interrupted_at(watch, p, 2))
            return HG_INTERRUPTED;
    }
    uint8_t is_busy[HG_MOST_LANES] = {0}, is_touched[HG_MOST_LANES] = {0}, touched[HG_MOST_LANES];
    int num_touched = 0;
    for (int lane = 0; lane < HG_MOST_LANES; lane++)
        touched[num_touched++] = (uint8_t)lane;
    int32_t at_work[HG_MOST_LANES], num_at_work = 0, started = 0;
    double now = 0;
    int64_t units = 0;
    for (;;) {
        for (int i = 0; i < num_touched; i++) {
            const int lane = touched[i];
            is_touched[lane] = 0;
            if (is_busy[lane] || hg_ready_none(&ready[lane]))
                continue;
            const int32_t p = hg_ready_first(&ready[lane]);
            is_busy[lane] = 1;
            s.end[p] = now + s.seconds[p];
            at_work[num_at_work++] = p;
            s.sequence[started++] = p;
            for (int32_t j = s.next_start[p]; j < s.next_start[p + 1]; j++) /* mutant: only hints */
                HG_PREFETCH(&waits[s.next[j] >> 1]); /* for the end of p */
        }
        if (!num_at_work)
            break;
        int next = 0;
        for (int i = 1; i < num_at_work; i++)
            if (s.end[at_work[i]] < s.end[at_work[next]])
                next = i;
        const int32_t p = at_work[next];
        at_work[next] = at_work[--num_at_work];
        now = s.end[p];
        num_touched = 0;
        const int own = m->lane[s.device[p]];
        is_busy[own] = 0;
        is_touched[own] = 1;
        touched[num_touched++] = (uint8_t)own;
        for (int32_t j = s.next_start[p]; j < s.next_start[p + 1]; j++) {
            const int32_t reader = (int32_t)(s.next[j] >> 1);
            if (--waits[reader])
                continue;
            const int lane = m->lane[s.device[reader]];
            hg_ready_add(&ready[lane], reader);
            if (!is_touched[lane]) {
                is_touched[lane] = 1;
                touched[num_touched++] = (uint8_t)lane;
            }
        }
        units += s.next_start[p + 1] - s.next_start[p];
        if (hg_interrupted_after(watch, &units, 16 + num_at_work))
            return HG_INTERRUPTED;
    }
    if (started < n)
        return HG_CYCLE;
    s.makespan = now;
    *schedule = s;
    hg_arena_release(arena, mark);
    return HG_OK;
}

/* mean [n]: of the work over the devices that support each node; crossing [values]: of transfer and launch over pairs
 * of the devices, times the chance that two random devices differ. */
static int mean_times(const hg_machine *m, double *mean, double *crossing, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    const int k = costs->k;
    uint8_t is_used[HG_MOST_LANES] = {0};
    int64_t units = 0;
    for (int32_t v = 0; v < m->n; v++) {
        double sum = 0;
        int count = 0;
        for (int d = 0; d < k; d++) {
            const double w = costs->work[(int64_t)d * costs->n + v];
            if (isfinite(w)) {
                sum += w;
                count++;
                is_used[d] = 1;
            }
        }
        mean[v] = sum / count;
        if (hg_interrupted_after(watch, &units, 2 + k))
            return HG_INTERRUPTED;
    }
    double latency = 0, per_unit = 0, launch = 0;
    int used = 0, pairs = 0;
    for (int a = 0; a < k; a++) {
        used += is_used[a];
        launch += is_used[a] ? m->launch[a] : 0;
        for (int b = 0; b < k; b++)
            if (a != b && is_used[a] && is_used[b]) {
                latency += costs->latency[a * k + b];
                per_unit += costs->per_unit[a * k + b];
                pairs++;
            }
    }
    const double chance = used > 1 ? 1 - 1.0 / used : 0;
    for (int32_t value = 0; value < costs->num_values; value++) {
        const double transfer = pairs ? (latency + per_unit * costs->size[value]) / pairs : 0;
        crossing[value] = chance * (transfer + (used ? launch / used : 0) + m->hand_over);
        if (hg_interrupted_at(watch, value, 2))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* A value while devices are chosen. Those that nodes make are numbered by place, then come those of the host. */
typedef struct {
    double end, size; /* end of its producer */
    int32_t device;   /* of its producer */
} made_value;

/* Nodes by place, in order of mean rank. */
typedef struct {
    int32_t *node;                     /* [n]: the node of each place */
    double *work;                      /* [n * k], of device d and place p at p * k + d */
    int32_t *made_start;               /* [n + 1]: the first value of each place; then come those of the host */
    int32_t *read_start, *read;        /* the values of others that each place reads */
    made_value *value;                 /* [values] */
} ranked;

/* By mean rank; a node has a place behind those whose values it reads, or else HG_CYCLE. */
static int nodes_by_mean_rank(const hg_machine *m, ranked *s, hg_arena *arena, hg_watch *watch)
{
    const hg_costs *costs = m->costs;
    const int32_t n = m->n;
    const int k = costs->k;
    double *mean = HG_TAKE(arena, double, n), *key = HG_TAKE_ZEROED(arena, double, n);
    double *crossing = HG_TAKE(arena, double, costs->num_values);
    int32_t *number = HG_TAKE(arena, int32_t, costs->num_values); /* of each value */
    if (!mean || !key || !crossing || !number)
        return HG_NO_MEMORY;
    int status = mean_times(m, mean, crossing, watch);
    if (status == HG_OK)
        status = node_keys(m, mean, 1, crossing, key, watch);
    for (int32_t i = 0; i < n; i++)
        s->node[i] = hg_node_at(m, i); /* equal keys keep this order, which is topological, too */
    if (status == HG_OK)
        status = hg_sort_by_key(key, s->node, n, arena, watch);
    if (status != HG_OK)
        return status;
    int32_t values = 0, reads = 0;
    int64_t units = 0;
    for (int32_t p = 0; p < n; p++) {
        const int32_t v = s->node[p];
        s->made_start[p] = values;
        for (int32_t j = m->made_start[v]; j < m->made_start[v + 1]; j++) {
            s->value[values].size = costs->size[m->made[j]];
            number[m->made[j]] = values++;
        }
        for (int d = 0; d < k; d++)
            s->work[(int64_t)p * k + d] = costs->work[(int64_t)d * costs->n + v];
        if (hg_interrupted_after(watch, &units, 8 + 2 * k))
            return HG_INTERRUPTED;
    }
    s->made_start[n] = values;
    for (int32_t host = n; host < costs->n; host++)
        for (int32_t j = m->made_start[host]; j < m->made_start[host + 1]; j++) {
            s->value[values] = (made_value){0, costs->size[m->made[j]], m->host_device[host - n]};
            number[m->made[j]] = values++;
        }
    for (int32_t p = 0; p < n; p++) {
        const int32_t v = s->node[p];
        s->read_start[p] = reads;
        for (int32_t i = m->read_start[v]; i < m->read_start[v + 1]; i++) {
            const int32_t value = number[m->read[i]];
            if (value < s->made_start[p] || value >= s->made_start[n])
                s->read[reads++] = value;
            else if (value >= s->made_start[p + 1])
                return HG_CYCLE;
        }
        if (hg_interrupted_after(watch, &units, 8 + 2 * (int64_t)(m->read_start[v + 1] - m->read_start[v])))
            return HG_INTERRUPTED;
    }
    s->read_start[n] = reads;
    return HG_OK;
}

/* When place p ends on device d, from its lane's time; INFINITY if the device does not support it, or unless it ends before
 * `before`. fetched: bits of devices for each value, in so many words. */
static double end_on(const hg_machine *m, const ranked *s, const uint64_t *fetched, int words, double free_at, int32_t p,
                     int d, double before)
{
    const hg_costs *costs = m->costs;
    const int32_t of_nodes = s->made_start[m->n];
    double seconds = s->work[(int64_t)p * costs->k + d], begin = free_at;
    if (!isfinite(seconds) || begin + seconds >= before)
        return INFINITY;
    int is_foreign = 0;
    for (int32_t i = s->read_start[p]; i < s->read_start[p + 1]; i++) {
        const int32_t number = s->read[i];
        const made_value *value = &s->value[number];
        const int is_node = number < of_nodes;
        double at = value->end;
        if (value->device != d) {
            if (!(fetched[(int64_t)number * words + d / 64] >> (d % 64) & 1)) {
                const int link = value->device * costs->k + d;
                seconds += costs->latency[link] + value->size * costs->per_unit[link];
            }
            is_foreign |= is_node;
            at += is_node ? m->hand_over : 0;
        }
        begin = at > begin ? at : begin;
    }
    seconds += is_foreign ? m->launch[d] : 0;
    return begin + seconds < before ? begin + seconds : INFINITY;
}

/* The memory that is left while devices are chosen. */
typedef struct {
    const hg_room *room;
    int words;
    uint64_t *held; /* [constants * words]: bits of the devices that hold each constant */
    double left[HG_MOST_LANES], added[HG_MOST_LANES]; /* by device; added: by the node at hand */
    double fresh;  /* bytes of the node at hand that no device holds */
    double spare;  /* what is left of all devices once each constant is on one of them */
} hg_memory;

static int open_memory(const hg_machine *m, const hg_room *room, hg_memory *memory, hg_arena *arena)
{
    const int k = m->costs->k;
    *memory = (hg_memory){.room = room, .words = (k + 63) / 64};
    memory->held = HG_TAKE_ZEROED(arena, uint64_t, (int64_t)room->constants * memory->words);
    if (!memory->held)
        return HG_NO_MEMORY;
    for (int d = 0; d < k; d++)
        memory->spare += memory->left[d] = room->bytes[d];
    for (int32_t c = 0; c < room->constants; c++)
        memory->spare -= room->size[c];
    for (int32_t v = 0; v < m->n; v++)
        memory->spare -= room->own[v];
    return HG_OK;
}

/* Bytes that node v adds to each device. */
static void weigh(hg_memory *memory, int k, int32_t v)
{
    const hg_room *room = memory->room;
    memory->fresh = room->own[v];
    for (int d = 0; d < k; d++)
        memory->added[d] = room->own[v];
    for (int32_t i = room->read_start[v]; i < room->read_start[v + 1]; i++) {
        const int32_t c = room->read[i];
        const uint64_t *held = &memory->held[(int64_t)c * memory->words];
        uint64_t any = 0;
        for (int word = 0; word < memory->words; word++)
            any |= held[word];
        memory->fresh += any ? 0 : room->size[c];
        for (int d = 0; d < k; d++)
            if (!(held[d / 64] >> (d % 64) & 1))
                memory->added[d] += room->size[c];
    }
}

/* Whether device d has room for the node at hand, and the devices together for the constants that are held twice. */
static int has_room(const hg_memory *memory, int d)
{
    const double added = memory->added[d], again = added - memory->fresh;
    return added <= 0 || (added <= memory->left[d] && (again <= 0 || again <= memory->spare));
}

static void take_room(hg_memory *memory, int32_t v, int d)
{
    const hg_room *room = memory->room;
    memory->left[d] -= memory->added[d];
    memory->spare -= memory->added[d] - memory->fresh;
    for (int32_t i = room->read_start[v]; i < room->read_start[v + 1]; i++)
        memory->held[(int64_t)room->read[i] * memory->words + d / 64] |= (uint64_t)1 << (d % 64);
}

int hg_assign_nodes(const hg_machine *m, const hg_room *room, int32_t *device, hg_arena *arena, hg_watch *watch)
{
    enum { AHEAD = 8 }; /* places for which values are fetched from memory early */
    const hg_costs *costs = m->costs;
    const int32_t n = m->n;
    const int k = costs->k, words = (k + 63) / 64;
    ranked s = {.node = HG_TAKE(arena, int32_t, n), .work = HG_TAKE(arena, double, (int64_t)n * k)};
    s.made_start = HG_TAKE(arena, int32_t, (int64_t)n + 1);
    s.read_start = HG_TAKE(arena, int32_t, (int64_t)n + 1);
    s.read = HG_TAKE(arena, int32_t, costs->indptr[costs->num_values]);
    s.value = HG_TAKE(arena, made_value, costs->num_values);
    uint64_t *fetched = HG_TAKE_ZEROED(arena, uint64_t, (int64_t)costs->num_values * words); /* bits of devices */
    if (!s.node || !s.work || !s.made_start || !s.read_start || !s.read || !s.value || !fetched)
        return HG_NO_MEMORY;
    hg_memory memory;
    if (room && open_memory(m, room, &memory, arena) != HG_OK)
        return HG_NO_MEMORY;
    const hg_mark mark = hg_arena_mark(arena);
    const int status = nodes_by_mean_rank(m, &s, arena, watch);
    if (status != HG_OK)
        return status;
    hg_arena_release(arena, mark);
    double free_at[HG_MOST_LANES] = {0};
    int64_t units = 0;
    for (int32_t p = 0; p < n; p++) {
        const int32_t first = s.read_start[p], last = s.read_start[p + 1], v = s.node[p];
        if (n - p > AHEAD)
            for (int32_t i = s.read_start[p + AHEAD]; i < s.read_start[p + AHEAD + 1]; i++) {
                HG_PREFETCH(&s.value[s.read[i]]);
                HG_PREFETCH(&fetched[(int64_t)s.read[i] * words]);
            }
        if (room) {
            weigh(&memory, k, v);
            units += (int64_t)k * (1 + room->read_start[v + 1] - room->read_start[v]);
        }
        double best_end = INFINITY;
        int best = -1;
        for (int d = 0; d < k; d++) {
            if (room && !has_room(&memory, d))
                continue;
            const double end = end_on(m, &s, fetched, words, free_at[m->lane[d]], p, d, best_end);
            if (end < best_end) {
                best_end = end;
                best = d;
            }
        }
        if (best < 0) { /* no device has room: where least is missing */
            for (int d = 0; d < k; d++)
                if (isfinite(s.work[(int64_t)p * k + d]) &&
                    (best < 0 || memory.left[d] - memory.added[d] > memory.left[best] - memory.added[best]))
                    best = d;
            HT_ASSERT(room && best >= 0); /* some device supports each node, and times are finite */
            best_end = end_on(m, &s, fetched, words, free_at[m->lane[best]], p, best, INFINITY);
        }
        if (room)
            take_room(&memory, v, best);
        device[v] = best;
        free_at[m->lane[best]] = best_end;
        for (int32_t value = s.made_start[p]; value < s.made_start[p + 1]; value++) {
            s.value[value].end = best_end;
            s.value[value].device = best;
        }
        for (int32_t i = first; i < last; i++)
            fetched[(int64_t)s.read[i] * words + best / 64] |= (uint64_t)1 << (best % 64);
        if (hg_interrupted_after(watch, &units, 8 + (int64_t)k * (1 + last - first)))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}
