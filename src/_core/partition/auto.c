/* Policy `auto`: few subgraphs, then little cut, in near-linear time.
 *
 * 1. Sweep from the sinks (sweep.c): few subgraphs, since it closes each as late as it can. Where it cuts no edge
 *    within a device the result cannot be improved.
 * 2. Refine (refine.c): its boundaries cut less.
 * 3. Recombine: the common refinement with the components of equal depth, which grow from the sources, keeps what both
 *    agree on; contraction (contract.c) of that smaller graph, heavy edges first, decides the rest. Left out where the
 *    sweep lost little and cuts no more than policy `linear`.
 * 4. Refine again; contract until no two adjacent subgraphs can be merged.
 * 5. Small graphs: all of that in the reversed graph as well.
 *
 * All steps are linear but for contraction, whose searches have a budget of WORK_PER_EDGE steps for each node and
 * edge; beyond it the result stays valid but may not be maximal. */
#include <math.h>

#include "coarse.h"

enum { WORK_PER_EDGE = 6 };

/* A merged edge this many times heavier than the mean edge is contracted before the others. */
static const double HEAVY = 8.0;

/* Recombine where the sweep lost more than one edge for so many nodes. */
enum { NODES_PER_LOST_EDGE = 4 };

/* Graphs of at most so many nodes are tried in both directions: time is no matter there, and every subgraph counts. */
enum { SMALL = 4096 };

/* Merges along the quotient: *count and label shrink. */
static int contract(const hg_graph *g, const uint8_t *device, const double *weight, float heavy, int thorough,
                    int32_t *label, int32_t *count, hg_arena *arena, hg_watch *watch)
{
    const hg_mark mark = hg_arena_mark(arena);
    const int32_t before = *count;
    int64_t work = WORK_PER_EDGE * ((int64_t)g->n + g->m);
    hg_coarse coarse;
    int maximal;
    int32_t *merged = HG_TAKE(arena, int32_t, before);
    int status = merged ? hg_coarsen(g, device, weight, label, before, &coarse, arena, watch) : HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_contract(&coarse, heavy, thorough, INT32_MAX, &work, merged, count, &maximal, arena, watch);
    if (status == HG_OK && *count < before)
        for (int32_t v = 0; v < g->n; v++)
            label[v] = merged[label[v]];
    hg_arena_release(arena, mark);
    return status;
}

/* Moves single nodes and drops the labels that became empty. */
static int refine(const hg_graph *g, const uint8_t *device, const double *weight, const double *pred_weight,
                  hg_labels *labels, uint8_t *boundary, int passes, double *gained, hg_arena *arena, hg_watch *watch)
{
    const hg_mark mark = hg_arena_mark(arena);
    int status = hg_refine(g, device, weight, pred_weight, labels->label, labels->count, boundary, passes, gained,
                           arena, watch);
    if (status == HG_OK)
        status = hg_compact(g->n, labels->label, &labels->count, arena);
    hg_arena_release(arena, mark);
    return status;
}

static double mean_weight(const hg_graph *g, const double *weight)
{
    double total = 0;
    for (int64_t j = 0; j < g->m; j++)
        total += weight[j];
    return total / (double)g->m;
}

/* Steps 3 and 4: from the sweep's labels to better ones in `other`. */
static int recombine(const hg_graph *g, const uint8_t *device, const double *weight, const double *pred_weight,
                     const int32_t *depth, const int32_t *by_depth, const hg_labels *sweep, hg_labels *other,
                     uint8_t *boundary, hg_arena *arena, hg_watch *watch)
{
    const float heavy = (float)(HEAVY * (weight ? mean_weight(g, weight) : 1.0));
    double gained;
    const hg_mark mark = hg_arena_mark(arena);
    int status = hg_intersect(g, by_depth, depth, sweep->label, sweep->count, other, arena, watch);
    hg_arena_release(arena, mark);
    if (status == HG_OK)
        status = contract(g, device, weight, heavy, 0, other->label, &other->count, arena, watch);
    if (status == HG_OK) {
        memset(boundary, 1, (size_t)g->n);
        status = refine(g, device, weight, pred_weight, other, boundary, 2, &gained, arena, watch);
    }
    if (status == HG_OK)
        status = contract(g, device, weight, HUGE_VALF, 1, other->label, &other->count, arena, watch);
    return status;
}

/* The weight policy `linear` cuts. */
static double weight_between_depths(const hg_graph *g, const int32_t *depth, const double *weight)
{
    double total = 0;
    for (int32_t v = 0; v < g->n; v++)
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
            total += depth[g->indices[j]] != depth[v] ? weight[j] : 0.0;
    return total;
}

/* Steps 1 to 4. *bound: the weight policy `linear` cuts; *lost: 0 when the result cannot be improved. */
static int improve(const hg_graph *g, const uint8_t *device, const double *weight, const double *pred_weight,
                   hg_labels *result, double *bound, int64_t *lost, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = g->n;
    int64_t foreign, deeper, edges;
    double gained;
    int32_t *depth = HG_TAKE(arena, int32_t, n);
    int32_t *by_depth = HG_TAKE(arena, int32_t, n);
    uint8_t *boundary = HG_TAKE_ZEROED(arena, uint8_t, n);
    if (!depth || !by_depth || !boundary)
        return HG_NO_MEMORY;
    const hg_mark mark = hg_arena_mark(arena);
    int status = hg_depth_order(g, device, depth, by_depth, &foreign, &deeper, arena, watch);
    hg_arena_release(arena, mark);
    if (status == HG_OK)
        status = hg_sweep(g, device, by_depth, result, boundary, lost, arena, watch);
    hg_arena_release(arena, mark);
    if (status != HG_OK || !*lost)
        return status;
    if ((status = refine(g, device, weight, pred_weight, result, boundary, 1, &gained, arena, watch)) != HG_OK)
        return status;

    double cut = (double)(foreign + *lost) - gained;
    *bound = (double)deeper;
    if (weight) {
        *bound = weight_between_depths(g, depth, weight);
        if ((status = hg_cut(g, result->label, weight, &edges, &cut, watch)) != HG_OK)
            return status;
    }
    if (cut > *bound || *lost > n / NODES_PER_LOST_EDGE) {
        hg_labels other = {HG_TAKE(arena, int32_t, n), 0};
        if (!other.label)
            return HG_NO_MEMORY;
        status = recombine(g, device, weight, pred_weight, depth, by_depth, result, &other, boundary, arena, watch);
        if (status != HG_OK)
            return status;
        if (other.count < result->count || cut > *bound) {
            memcpy(result->label, other.label, (size_t)n * sizeof *other.label);
            result->count = other.count;
            return HG_OK;
        }
    }
    return contract(g, device, weight, HUGE_VALF, 1, result->label, &result->count, arena, watch);
}

/* Weights in the order of pred_indices. */
static double *transposed(const hg_graph *g, const double *weight, hg_arena *arena)
{
    double *pred_weight = HG_TAKE(arena, double, g->m);
    int32_t *next = HG_TAKE(arena, int32_t, g->n);
    if (!pred_weight || !next)
        return NULL;
    memcpy(next, g->pred_indptr, (size_t)g->n * sizeof *next);
    for (int32_t v = 0; v < g->n; v++)
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
            pred_weight[next[g->indices[j]]++] = weight[j];
    return pred_weight;
}

/* The same in the reversed graph, and whichever came out better. */
static int improve_reversed(const hg_graph *g, const uint8_t *device, const double *weight, const double *pred_weight,
                            hg_labels *result, double bound, hg_arena *arena, hg_watch *watch)
{
    const int32_t n = g->n;
    int32_t *order = HG_TAKE(arena, int32_t, n);
    hg_labels other = {HG_TAKE(arena, int32_t, n), 0};
    if (!order || !other.label)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < n; i++)
        order[n - 1 - i] = hg_nth(g, i);
    const hg_graph reversed = {n, g->m, g->pred_indptr, g->pred_indices, g->indptr, g->indices, order};
    double ignored, cut, other_cut;
    int64_t lost, edges;
    int status = improve(&reversed, device, pred_weight, weight, &other, &ignored, &lost, arena, watch);
    if (status == HG_OK)
        status = hg_cut(g, result->label, weight, &edges, &cut, watch);
    if (status == HG_OK)
        status = hg_cut(g, other.label, weight, &edges, &other_cut, watch);
    if (status != HG_OK || other.count > result->count || (other.count == result->count && other_cut >= cut) ||
        (other_cut > bound && cut <= bound))
        return status;
    for (int32_t v = 0; v < n; v++)
        result->label[v] = other.count - 1 - other.label[v];
    result->count = other.count;
    return HG_OK;
}

int hg_auto(const hg_graph *g, const uint8_t *device, const double *weight, int32_t *subgraph_of, int32_t *device_of,
            int32_t *count, hg_watch *watch)
{
    hg_arena arena;
    hg_labels result = {subgraph_of, 0};
    /* The sweep's arrays; what later steps need beyond comes in another block. */
    if (!hg_arena_open(&arena, (size_t)g->n * 48 + 4096))
        return HG_NO_MEMORY;
    double *pred_weight = NULL, bound = 0;
    int64_t lost = 0;
    int status = HG_NO_MEMORY;
    if (!weight || (pred_weight = transposed(g, weight, &arena)) != NULL)
        status = improve(g, device, weight, pred_weight, &result, &bound, &lost, &arena, watch);
    if (status == HG_OK && lost && g->n <= SMALL)
        status = improve_reversed(g, device, weight, pred_weight, &result, bound, &arena, watch);
    hg_arena_close(&arena);
    if (status != HG_OK)
        return status;
    *count = result.count;
    for (int32_t v = 0; v < g->n; v++)
        device_of[subgraph_of[v]] = device[v];
    return HG_OK;
}
