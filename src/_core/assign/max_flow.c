/* Maximum flow by push-relabel in waves, with global relabeling and the gap heuristic.
 *
 * A. V. Goldberg and R. E. Tarjan, "A new approach to the maximum-flow problem", J. ACM 35 (1988), with the heuristics
 * of B. V. Cherkassky and A. V. Goldberg, "On implementing the push-relabel method for the maximum flow problem",
 * Algorithmica 19 (1997). Only the first phase runs, which finds a minimum cut:
 * 1. Each vertex has a distance label, a lower bound on its distance, over residual arcs, to the nearest vertex with
 *    residual capacity to the sink. A wave visits the vertices with excess, those with the greatest label first. Each
 *    pushes its excess along arcs that lead to a label lower by one (discharge).
 * 2. A vertex without such an arc is relabeled. If no vertex has a certain label any more (a gap), the vertices above
 *    it cannot reach the sink (close_gap).
 * 3. If a relabeled vertex pushes excess to a vertex that the wave has passed already, that vertex waits for the next
 *    wave. Otherwise vertices that are stuck, and climb, would keep the others from being discharged until the next
 *    global relabeling: up to ten times as many relabelings on graphs of models.
 * 4. After a fixed amount of work, a backward search from the sink makes all labels exact (global relabeling,
 *    search). If the waves have moved less than half of the excess since the last time, excess is first sent down the
 *    trees of a forward search (flow_down_trees). This brings it far in one step, where waves would push it to the
 *    nearest vertex with capacity to the sink, back again, and to the next.
 *
 * Excess that flows together is pushed together, so a long detour costs its length once, and not once for each path as
 * with augmenting paths. O(n^2 m) at worst; nearly linear on graphs of models. */
#include "assign.h"

enum {
    NONE = -1,
    RELABEL_WORK = 12, /* steps that a relabeling counts, in addition to the arcs that it scans */
    SEARCH_WORK = 4,   /* global relabeling after SEARCH_WORK * n + arcs steps */
};

typedef struct {
    const hg_network *net;
    int32_t *label;    /* [n] distance label; n: the sink cannot be reached */
    int32_t *current;  /* [n] current arc: no arc before it can be pushed along */
    int32_t *vertices; /* [n + 1] by label, the first of a doubly linked list of its vertices (next, before) */
    int32_t *next, *before;
    int32_t *active; /* [n + 1] by label, the first of a list of vertices that the wave has to visit (next_active) */
    int32_t *next_active;
    int32_t active_count;
    int32_t *waiting; /* [n] for the next wave */
    int32_t waiting_count;
    int32_t *queue;          /* [n] */
    int64_t *demand;         /* [n] */
    int64_t left;            /* excess that could still move at the last global relabeling */
    int trees;               /* number of calls of flow_down_trees */
    int32_t top_active, top; /* greatest label of an active vertex, and of any; upper bounds */
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
    s->active_count++;
    if (label > s->top_active)
        s->top_active = label;
}

/* Makes all labels exact, by a breadth-first search backwards from the vertices with residual capacity to the sink. */
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
    s->top = s->top_active = s->active_count = s->waiting_count = 0;
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

/* Grows trees over residual arcs by a breadth-first search from the vertices that have excess and can reach the sink.
 * one = 0: from all of them at once, so each tree covers what is near. one = 1: from the one with the greatest excess,
 * then from each that was not reached, so a tree also covers what lies beyond other vertices with excess.
 * s->queue: the vertices reached, in order. arc_to [n]: the arc from the parent, NONE for a root. Returns the number of
 * vertices reached, or a negative code. */
static int32_t grow_trees(flow_state *s, int32_t *arc_to, int one)
{
    const hg_network *net = s->net;
    const int32_t n = net->n, unreached = net->arcs;
    int32_t begin = 0, end = 0, greatest = NONE;
    for (int32_t v = 0; v < n; v++) {
        const int has_excess = net->excess[v] > 0 && s->label[v] < n;
        arc_to[v] = unreached;
        if (has_excess && !one) {
            arc_to[v] = NONE;
            s->queue[end++] = v;
        } else if (has_excess && (greatest == NONE || net->excess[v] > net->excess[greatest])) {
            greatest = v;
        }
    }
    if (greatest != NONE) {
        arc_to[greatest] = NONE;
        s->queue[end++] = greatest;
    }
    for (int32_t next = 0;;) {
        while (begin < end) {
            const int32_t v = s->queue[begin++];
            for (int32_t a = net->start[v]; a < net->start[v + 1]; a++) {
                const int32_t w = net->arc[a].head;
                if (net->arc[a].residual > 0 && arc_to[w] == unreached && s->label[w] < n) {
                    arc_to[w] = a;
                    s->queue[end++] = w;
                }
            }
            if (hg_interrupted(s->watch, 2 + net->start[v + 1] - net->start[v]))
                return HG_INTERRUPTED;
        }
        while (next < n && !(net->excess[next] > 0 && s->label[next] < n && arc_to[next] == unreached))
            next++;
        if (next == n)
            return end;
        arc_to[next] = NONE;
        s->queue[end++] = next;
    }
}

/* Sends excess down the trees of grow_trees. From the leaves up, each vertex demands its capacity to the sink plus its
 * children's demands, less its own excess, at most the residual capacity of the arc to it. From the roots down, the
 * demands are met. Labels must be made exact afterwards. O(n + arcs), for any distance. */
static int flow_down_trees(flow_state *s, int one)
{
    const hg_network *net = s->net;
    int64_t *demand = s->demand;
    int32_t *arc_to = s->before;
    const int32_t reached = grow_trees(s, arc_to, one);
    if (reached < 0)
        return reached;
    for (int32_t i = 0; i < reached; i++)
        demand[s->queue[i]] = -net->excess[s->queue[i]];
    for (int32_t i = reached; i-- > 0;) {
        const int32_t v = s->queue[i], a = arc_to[v];
        if (a == NONE)
            continue;
        if (demand[v] < 0)
            demand[v] = 0;
        if (demand[v] > net->arc[a].residual)
            demand[v] = net->arc[a].residual;
        demand[net->arc[net->arc[a].twin].head] += demand[v];
    }
    for (int32_t i = 0; i < reached; i++) { /* once a vertex is visited, its demand holds what it can give */
        const int32_t v = s->queue[i], a = arc_to[v];
        int64_t amount = 0;
        if (a != NONE) {
            const int32_t twin = net->arc[a].twin, parent = net->arc[twin].head;
            amount = demand[v] < demand[parent] ? demand[v] : demand[parent];
            demand[parent] -= amount;
            net->arc[a].residual -= amount;
            net->arc[twin].residual += amount;
        }
        demand[v] = amount;
        if (net->excess[v] > 0) {
            demand[v] += net->excess[v];
        } else {
            const int64_t taken = amount < -net->excess[v] ? amount : -net->excess[v];
            net->excess[v] += taken;
            demand[v] -= taken;
        }
    }
    for (int32_t i = 0; i < reached; i++)
        if (net->excess[s->queue[i]] > 0)
            net->excess[s->queue[i]] = demand[s->queue[i]];
    return hg_interrupted(s->watch, 8 * (int64_t)reached) ? HG_INTERRUPTED : HG_OK;
}

/* No vertex has label `gap` any more, so the vertices with greater labels cannot reach the sink. */
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

/* Pushes the excess of v, whose turn it is in the wave, until it has none left or cannot reach the sink. */
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
            break; /* v's old label is the gap, so v is cut off as well */
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

/* The next vertex of this wave, or the first of the next wave; NONE if no excess can move. */
static int32_t next_in_wave(flow_state *s)
{
    if (!s->active_count) {
        s->top_active = 0;
        while (s->waiting_count) {
            const int32_t w = s->waiting[--s->waiting_count];
            if (s->label[w] < s->net->n) /* else cut off meanwhile */
                add_active(s, w, s->label[w]);
        }
        if (!s->active_count)
            return NONE;
    }
    const int32_t from = s->top_active;
    while (s->active[s->top_active] == NONE)
        s->top_active--;
    s->work += (from - s->top_active) / 8;
    const int32_t v = s->active[s->top_active];
    s->active[s->top_active] = s->next_active[v];
    s->active_count--;
    return v;
}

/* Global relabeling. If more than half of the excess of the last time is left, flow_down_trees comes first. */
static int start_again(flow_state *s)
{
    const int64_t before = s->left;
    s->left = 0;
    for (int32_t v = 0; v < s->net->n; v++)
        if (s->net->excess[v] > 0 && s->label[v] < s->net->n)
            s->left += s->net->excess[v];
    int status = HG_OK;
    if (s->left > before / 2)
        status = flow_down_trees(s, s->trees++ & 1);
    return status == HG_OK ? search(s) : status;
}

int hg_max_flow(hg_network *net, uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = net->n;
    HT_ASSERT(hg_rises(n, net->start, net->arcs));
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
    s.demand = HG_TAKE(arena, int64_t, n);
    if (!s.label || !s.current || !s.vertices || !s.next || !s.before || !s.active || !s.next_active || !s.waiting ||
        !s.queue || !s.demand)
        return HG_NO_MEMORY;
    int64_t given = 0, left = 0, watched = 0;
    for (int32_t v = 0; v < n; v++)
        given += net->excess[v] > 0 ? net->excess[v] : 0;
    s.left = given;
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
            status = start_again(&s);
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
