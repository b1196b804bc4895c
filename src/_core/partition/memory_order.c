/* Numbers subgraphs so that few values are alive at the same time when they run in order of their numbers.
 *
 * The fewest values alive is NP-hard to find, so three topological orders compete:
 * 1. the numbers given,
 * 2. of the subgraphs that are ready, the one with the first node: the order in which the model is written,
 * 3. depth first: of the subgraphs that are ready, the one that became ready last. It completes one branch before the
 *    next, which saves most where many branches lie side by side, and costs most where each subgraph has readers all
 *    over the graph.
 * A value is a node with readers in other subgraphs, and is alive until the last of them has run. The order with the
 * fewest at the same time wins; of several, the earlier in this list. O(n + m + subgraphs * log(subgraphs)). */
#include "../heap.h"
#include "arena.h"
#include "levels.h"

typedef struct {
    const hg_graph *g;
    const int32_t *label;
    int32_t count;
    int32_t *start, *member;  /* nodes by subgraph, in topological order */
    int32_t *edges_in;        /* [count]: from other subgraphs */
    int32_t *first;           /* [count]: the place of its first node in topological order */
    int32_t *waiting;         /* [count]: edges from subgraphs that have not run */
    int32_t *readers;         /* [n]: edges to subgraphs that have not run, of nodes that have */
    int32_t *stack;           /* [count] */
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
    const hg_graph *g = o->g;
    int32_t alive = 0, most = 0, done = 0;
    memcpy(o->waiting, o->edges_in, (size_t)o->count * sizeof *o->waiting);
    o->heap.count = 0;
    for (int32_t s = o->count; s-- > 0;) /* the stack ends with the smallest number */
        if (!o->waiting[s])
            add_ready(o, way, s);
    for (; done < o->count && most < *peak; done++) {
        const int32_t s = next_ready(o, way, done), ready = o->heap.count;
        int64_t work = 8;
        sequence[done] = s;
        for (int32_t i = o->start[s]; i < o->start[s + 1]; i++) {
            const int32_t v = o->member[i];
            o->readers[v] = 0;
            for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++) {
                const int32_t t = o->label[g->indices[j]];
                if (t == s)
                    continue;
                o->readers[v]++;
                if (!--o->waiting[t])
                    add_ready(o, way, t);
            }
            alive += o->readers[v] > 0;
            work += 4 + 2 * (int64_t)(g->indptr[v + 1] - g->indptr[v]);
        }
        most = alive > most ? alive : most;
        for (int32_t i = o->start[s]; i < o->start[s + 1]; i++) {
            const int32_t v = o->member[i];
            for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++) {
                const int32_t u = g->pred_indices[j];
                alive -= o->label[u] != s && !--o->readers[u];
            }
            work += 2 + 2 * (int64_t)(g->pred_indptr[v + 1] - g->pred_indptr[v]);
        }
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

int hg_number_for_memory(const hg_graph *g, int32_t count, int32_t *label, hg_arena *arena, hg_watch *watch)
{
    orderer o = {.g = g, .label = label, .count = count, .watch = watch};
    o.start = HG_TAKE(arena, int32_t, (int64_t)count + 1);
    o.member = HG_TAKE(arena, int32_t, g->n);
    o.edges_in = HG_TAKE_ZEROED(arena, int32_t, count);
    o.first = HG_TAKE(arena, int32_t, count);
    o.waiting = HG_TAKE(arena, int32_t, count);
    o.readers = HG_TAKE(arena, int32_t, g->n);
    o.stack = HG_TAKE(arena, int32_t, count);
    o.heap.entry = HG_TAKE(arena, hg_entry, count);
    int32_t *sequence = HG_TAKE(arena, int32_t, count), *number = HG_TAKE(arena, int32_t, count);
    if (!o.start || !o.member || !o.edges_in || !o.first || !o.waiting || !o.readers || !o.stack || !o.heap.entry ||
        !sequence || !number)
        return HG_NO_MEMORY;
    int32_t found;
    if (hg_members(g->n, label, g->order, count, o.start, o.member, watch) != HG_OK ||
        hg_sources(g, label, count, o.edges_in, o.stack, &found, watch) != HG_OK)
        return HG_INTERRUPTED;
    memset(o.first, 0xFF, (size_t)count * sizeof *o.first);
    for (int32_t i = 0; i < g->n; i++) {
        int32_t *first = &o.first[label[hg_nth(g, i)]];
        *first = *first < 0 ? i : *first;
        if (hg_interrupted_at(watch, i, 2))
            return HG_INTERRUPTED;
    }
    int32_t peak = INT32_MAX;
    int status = HG_OK, chosen = AS_NUMBERED;
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
