/* Numbers subgraphs so that few values are alive at the same time when they run in order of their numbers.
 *
 * The fewest values alive is NP-hard to find, so three topological orders compete:
 * 1. the numbers given,
 * 2. of the subgraphs that are ready, the one with the first node: the order in which the model is written,
 * 3. depth first: of the subgraphs that are ready, the one that became ready last. It completes one branch before the
 *    next, which saves most where many branches lie side by side, and costs most where each subgraph has readers all
 *    over the graph.
 * A value is a node with readers in other subgraphs, and is alive until the last of them has run. The order with the
 * fewest at the same time wins; of several, the earlier in this list.
 *
 * One pass over the graph collects the edges between subgraphs; the orders need only these. With more than MOST edges
 * or subgraphs the numbers stay as they are. O(n + m), and O(MOST * log(MOST)) for the orders. */
#include "../heap.h"
#include "arena.h"
#include "levels.h"

enum { MOST = 1 << 15 }; /* about 1 ms for each order */

/* Values are numbered in topological order of their nodes. */
typedef struct {
    int32_t count;                    /* of subgraphs */
    int32_t num_values, num_edges;    /* an edge from a value to each of its readers */
    int32_t *first;                   /* [count]: the place of the subgraph's first node in topological order */
    int32_t *maker;                   /* [num_values]: subgraphs */
    int32_t *edge_start, *reader;     /* edges by value: subgraphs that read it */
    int32_t *value_start, *value;     /* values by maker */
    int32_t *input_start, *input;     /* edges by reader: the values */
    int32_t *waiting;                 /* [count]: edges from subgraphs that have not run */
    int32_t *unread;                  /* [num_values]: edges to subgraphs that have not run, of values that exist */
    int32_t *stack;                   /* [count] */
    hg_heap heap;
    hg_watch *watch;
} orderer;

enum { AS_NUMBERED, FIRST_NODE_FIRST, DEPTH_FIRST };

static inline void add_ready(orderer *o, int way, int32_t s)
{
    if (way == FIRST_NODE_FIRST)
        hg_push(&o->heap, o->first[s], s);
    else if (way == DEPTH_FIRST)
        o->stack[o->heap.count++] = s;
}

static inline int32_t next_ready(orderer *o, int way, int32_t done)
{
    return way == AS_NUMBERED ? done : way == FIRST_NODE_FIRST ? hg_pop(&o->heap) : o->stack[--o->heap.count];
}

/* sequence [count]: the subgraphs in order; *peak: the most values alive. Stops early when *peak is reached; *better: 0. */
static int arrange(orderer *o, int way, int32_t *sequence, int32_t *peak, int *better)
{
    int32_t alive = 0, most = 0, done = 0;
    o->heap.count = 0;
    for (int32_t s = o->count; s-- > 0;) { /* the stack ends with the smallest number */
        o->waiting[s] = o->input_start[s + 1] - o->input_start[s];
        if (!o->waiting[s])
            add_ready(o, way, s);
    }
    for (; done < o->count && most < *peak; done++) {
        const int32_t s = next_ready(o, way, done), ready = o->heap.count;
        int64_t work = 8;
        sequence[done] = s;
        for (int32_t i = o->value_start[s]; i < o->value_start[s + 1]; i++) {
            const int32_t x = o->value[i];
            o->unread[x] = o->edge_start[x + 1] - o->edge_start[x];
            for (int32_t j = o->edge_start[x]; j < o->edge_start[x + 1]; j++)
                if (!--o->waiting[o->reader[j]])
                    add_ready(o, way, o->reader[j]);
            work += 4 + 2 * (int64_t)o->unread[x];
        }
        alive += o->value_start[s + 1] - o->value_start[s];
        most = alive > most ? alive : most;
        for (int32_t j = o->input_start[s]; j < o->input_start[s + 1]; j++)
            alive -= !--o->unread[o->input[j]];
        work += 2 * (int64_t)(o->input_start[s + 1] - o->input_start[s]);
        if (way == DEPTH_FIRST) /* the reader met first runs first */
            for (int32_t low = ready, high = o->heap.count - 1; low < high; low++, high--) {
                const int32_t swapped = o->stack[low];
                o->stack[low] = o->stack[high];
                o->stack[high] = swapped;
            }
        if (hg_interrupted(o->watch, work))
            return HG_INTERRUPTED;
    }
    *better = most < *peak;
    *peak = *better ? most : *peak;
    return HG_OK;
}

/* Values and edges by value, and in value_of the value of each edge. *fits: there are at most `room` edges. */
static int collect(orderer *o, const hg_graph *g, const int32_t *label, int32_t room, int32_t *value_of, int *fits)
{
    int32_t values = 0, edges = 0;
    int64_t work = 0;
    memset(o->first, 0xFF, (size_t)o->count * sizeof *o->first);
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t v = hg_nth(g, i), s = label[v], start = edges;
        o->first[s] = o->first[s] < 0 ? i : o->first[s];
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
            const int32_t t = label[g->indices[j]];
            if (t == s)
                continue;
            if (edges == room) {
                *fits = 0;
                return HG_OK;
            }
            o->reader[edges] = t;
            value_of[edges++] = values;
        }
        if (edges > start) {
            o->maker[values] = s;
            o->edge_start[values++] = start;
        }
        if (hg_interrupted_after(o->watch, &work, 4 + g->indptr[v + 1] - g->indptr[v]))
            return HG_INTERRUPTED;
    }
    o->edge_start[values] = edges;
    o->num_values = values;
    o->num_edges = edges;
    *fits = 1;
    return HG_OK;
}

int hg_number_for_memory(const hg_graph *g, int32_t count, int32_t *label, hg_arena *arena, hg_watch *watch)
{
    orderer o = {.count = count, .watch = watch};
    const int32_t room = g->m < MOST ? (int32_t)g->m : MOST;
    if (count > MOST)
        return HG_OK;
    o.first = HG_TAKE(arena, int32_t, count);
    o.maker = HG_TAKE(arena, int32_t, room);
    o.edge_start = HG_TAKE(arena, int32_t, (int64_t)room + 1);
    o.reader = HG_TAKE(arena, int32_t, room);
    int32_t *value_of = HG_TAKE(arena, int32_t, room);
    if (arena->failed)
        return HG_NO_MEMORY;
    int fits;
    int status = collect(&o, g, label, room, value_of, &fits);
    if (status != HG_OK || !fits)
        return status;
    o.value_start = HG_TAKE(arena, int32_t, (int64_t)count + 1);
    o.value = HG_TAKE(arena, int32_t, o.num_values);
    o.input_start = HG_TAKE(arena, int32_t, (int64_t)count + 1);
    o.input = HG_TAKE(arena, int32_t, o.num_edges);
    o.waiting = HG_TAKE(arena, int32_t, count);
    o.unread = HG_TAKE(arena, int32_t, o.num_values);
    o.stack = HG_TAKE(arena, int32_t, count);
    o.heap.entry = HG_TAKE(arena, hg_entry, count);
    int32_t *sequence = HG_TAKE(arena, int32_t, count), *number = HG_TAKE(arena, int32_t, count);
    if (arena->failed)
        return HG_NO_MEMORY;
    if (hg_members(o.num_values, o.maker, NULL, count, o.value_start, o.value, watch) != HG_OK ||
        hg_members(o.num_edges, o.reader, NULL, count, o.input_start, o.input, watch) != HG_OK)
        return HG_INTERRUPTED;
    for (int32_t j = 0; j < o.num_edges; j++)
        o.input[j] = value_of[o.input[j]];
    int32_t peak = INT32_MAX;
    int chosen = AS_NUMBERED;
    for (int way = AS_NUMBERED; way <= DEPTH_FIRST && status == HG_OK; way++) {
        int better;
        status = arrange(&o, way, sequence, &peak, &better);
        if (status != HG_OK || !better || way == AS_NUMBERED)
            continue;
        chosen = way;
        for (int32_t i = 0; i < count; i++)
            number[sequence[i]] = i;
    }
    for (int32_t v = 0; v < g->n && chosen != AS_NUMBERED && status == HG_OK; v++) {
        label[v] = number[label[v]];
        if (hg_interrupted_at(watch, v, 2))
            status = HG_INTERRUPTED;
    }
    return status;
}
