/* Policy `auto`: few subgraphs, then little cut, in near-linear time.
 *
 * 1. Sweep from the sinks (sweep.c). It closes each subgraph as late as it can, so there are few. If it cuts no edge
 *    within a device, the result cannot be improved.
 * 2. Move nodes between levels (levels.c), which lowers the cut; subgraphs that become adjacent are united.
 * 3. If step 2 gained enough, move whole pieces: coarsen the common refinement with the components of equal depth,
 *    which grow from the sources, and move the vertices of the coarse graph; then move nodes again.
 * 4. If the cut is greater than that of policy `linear`, also move nodes whose subgraph falls apart without them: a
 *    few more subgraphs for a much smaller cut.
 * 5. Contract (contract.c) until no two adjacent subgraphs can be merged.
 * 6. Small graphs: run 2 to 5 also from the result of contraction alone, and from the contracted common refinement;
 *    and all of this in the reversed graph as well.
 *
 * All steps are linear except contraction. Its searches have a budget of WORK_PER_EDGE steps for each node and edge,
 * at least LEAST_WORK. If the budget runs out, the result is valid but may not be maximal. */
#include <math.h>

#include "levels.h"

enum {
    WORK_PER_EDGE = 3,    /* steps of contraction's searches for each node and edge: keeps `auto` linear */
    LEAST_WORK = 1 << 18, /* steps, besides: a few milliseconds, in which small graphs are searched to the end */
};

/* Pieces are moved when moving nodes gained at least this part of the cut. */
static const double WORTHWHILE = 1.0 / 128;

/* In step 4, a node may leave two parts behind if that saves at least this many edges of mean weight. */
static const double SPLIT_GAIN = 4;

/* If the cut is within this factor of that of policy `linear`, SPLIT_GAIN is halved, and halved again. */
static const double NEARLY = 1.02;

/* Edges of the coarse graph that are this many times heavier than the mean edge are contracted first. */
static const double HEAVY = 8;

/* Graphs of at most this many nodes get step 6: time hardly matters there, and every subgraph counts. */
enum { SMALL = 1 << 13 };

typedef struct {
    const hg_graph *g;
    hg_dag dag;
    double mean_weight, bound; /* of an edge; what policy `linear` cuts */
    int32_t contracted; /* subgraphs that contraction alone leaves; small graphs only */
    int32_t *depth, *by_depth;
    int32_t *level; /* of the partition being improved */
    hg_arena *arena;
    hg_watch *watch;
} improver;

/* A partition: labels whose numbers are a topological order of the quotient. */
typedef struct {
    int32_t *label; /* [n] */
    int32_t count;
    int maximal; /* 1 if known to be: the last contraction finished within its steps */
} labels;

/* Merges adjacent subgraphs while any two can be: count and label shrink. */
static int contract(improver *s, float heavy, labels *result)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    const int32_t before = result->count;
    const int64_t work = LEAST_WORK + WORK_PER_EDGE * ((int64_t)s->g->n + s->g->m);
    hg_coarse coarse;
    int32_t *merged = HG_TAKE(s->arena, int32_t, before);
    int status = merged ? hg_coarsen(s->g, s->dag.device, s->dag.out_weight, result->label, before, &coarse, s->arena,
                                     s->watch)
                        : HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_contract(&coarse, heavy, INT32_MAX, work, merged, &result->count, &result->maximal, s->arena,
                             s->watch);
    if (status == HG_OK && result->count < before)
        for (int32_t v = 0; v < s->g->n && status == HG_OK; v++) {
            result->label[v] = merged[result->label[v]];
            if (hg_interrupted(s->watch, 2))
                status = HG_INTERRUPTED;
        }
    hg_arena_release(s->arena, mark);
    return status;
}

static int move_nodes(improver *s, double split_gain, double *gained)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    const int status = hg_move_levels(&s->dag, s->level, 1, split_gain, gained, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    return status;
}

static int components(improver *s, const int32_t *other, labels *result)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    const int status =
        hg_level_components(&s->dag, s->level, other, result->label, &result->count, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    return status;
}

/* Moves the components of one level and depth as wholes; piece [n] is scratch. */
static int move_pieces(improver *s, double split_gain, int32_t *piece, double *gained)
{
    const int32_t n = s->g->n;
    const hg_mark mark = hg_arena_mark(s->arena);
    labels pieces = {.label = piece};
    hg_coarse coarse;
    int status = components(s, s->depth, &pieces);
    if (status == HG_OK)
        status = hg_coarsen(s->g, s->dag.device, s->dag.out_weight, piece, pieces.count, &coarse, s->arena, s->watch);
    if (status != HG_OK)
        return status;
    int32_t *level = HG_TAKE(s->arena, int32_t, pieces.count);
    uint8_t *device = HG_TAKE(s->arena, uint8_t, pieces.count);
    if (!level || !device)
        return HG_NO_MEMORY;
    for (int32_t x = 0; x < pieces.count; x++)
        device[x] = (uint8_t)coarse.kind[x];
    for (int32_t v = 0; v < n; v++) {
        level[piece[v]] = s->level[v];
        if (hg_interrupted(s->watch, 2))
            return HG_INTERRUPTED;
    }
    const hg_dag dag = {coarse.k,          coarse.out_start, coarse.out, coarse.in_start, coarse.in, coarse.out_weight,
                        coarse.in_weight, NULL,             device};
    status = hg_move_levels(&dag, level, 2, split_gain, gained, s->arena, s->watch);
    for (int32_t v = 0; v < n && status == HG_OK; v++) {
        s->level[v] = level[piece[v]];
        if (hg_interrupted(s->watch, 2))
            status = HG_INTERRUPTED;
    }
    hg_arena_release(s->arena, mark);
    return status;
}

/* Steps 2 to 5, from the levels in s->level, which cut so much. */
static int improve(improver *s, double cut, labels *result)
{
    double gained = 0;
    int status = move_nodes(s, INFINITY, &gained);
    cut -= gained;
    const int worthwhile = gained > 0 && (cut > s->bound || gained >= WORTHWHILE * cut);
    double split_gain = cut > s->bound ? SPLIT_GAIN * s->mean_weight : INFINITY;
    for (int again = worthwhile; again && status == HG_OK;) {
        status = move_pieces(s, split_gain, result->label, &gained);
        cut -= gained;
        if (status == HG_OK)
            status = move_nodes(s, split_gain, &gained);
        cut -= gained;
        split_gain /= 2;
        again = cut > s->bound && cut < NEARLY * s->bound && split_gain >= s->mean_weight;
    }
    if (status == HG_OK)
        status = components(s, NULL, result);
    return status == HG_OK ? contract(s, HUGE_VALF, result) : status;
}

/* Steps 1 to 5. *whole: the result cannot be improved. */
static int sweep_and_improve(improver *s, labels *result, int *whole)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    double foreign, lost;
    int status = hg_depth_order(&s->dag, s->depth, s->by_depth, &foreign, &s->bound, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    if (status == HG_OK)
        status = hg_sweep(&s->dag, s->by_depth, s->level, &lost, whole, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    result->maximal = *whole; /* no edge within a device is cut */
    if (status == HG_OK && *whole)
        return components(s, NULL, result);
    return status == HG_OK ? improve(s, foreign + lost, result) : status;
}

/* Steps 2 to 5 from a partition. */
static int levels_and_improve(improver *s, labels *result)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    double cut = 0;
    int status = hg_levels_of(&s->dag, result->label, result->count, s->level, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    if (status == HG_OK)
        status = hg_weight_between(&s->dag, s->level, &cut, s->watch);
    return status == HG_OK ? improve(s, cut, result) : status;
}

/* Weights in the order of pred_indices. */
static float *transposed(const hg_graph *g, const float *weight, hg_arena *arena)
{
    float *pred_weight = HG_TAKE(arena, float, g->m);
    int32_t *next = HG_TAKE(arena, int32_t, g->n);
    if (!pred_weight || !next)
        return NULL;
    memcpy(next, g->pred_indptr, (size_t)g->n * sizeof *next);
    for (int32_t v = 0; v < g->n; v++)
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
            pred_weight[next[g->indices[j]]++] = weight[j];
    return pred_weight;
}

/* Is (count, cut) better? Fewer subgraphs first, then less cut; but what keeps within contraction's count and within
 * `linear`'s cut goes before what does not. */
static int is_better(const improver *s, int32_t count, double cut, int32_t than_count, double than_cut)
{
    const int within = count <= s->contracted && cut <= s->bound;
    const int than_within = than_count <= s->contracted && than_cut <= s->bound;
    if (within != than_within)
        return within;
    return count < than_count || (count == than_count && cut < than_cut);
}

/* Keeps `other` in `best` when it is better. reversed: its labels are. */
static int keep_better(const improver *s, labels *best, double *cut, const labels *other, int reversed)
{
    double other_cut = 0;
    const int status = hg_weight_between(&s->dag, other->label, &other_cut, s->watch);
    if (status != HG_OK || !is_better(s, other->count, other_cut, best->count, *cut))
        return status;
    for (int32_t v = 0; v < s->g->n; v++)
        best->label[v] = reversed ? other->count - 1 - other->label[v] : other->label[v];
    best->count = other->count;
    best->maximal = other->maximal;
    *cut = other_cut;
    return HG_OK;
}

/* What the levels and equal depths agree on, merged by contraction instead of moved; and what improving that leads to. */
static int recombine(improver *s, labels *result)
{
    int status = components(s, s->depth, result);
    if (status == HG_OK)
        status = contract(s, (float)(HEAVY * s->mean_weight), result);
    return status == HG_OK ? levels_and_improve(s, result) : status;
}

/* Step 6, in one direction: s->level and s->depth are what the sweep led to. */
static int try_more(improver *s, const improver *judge, int reversed, labels *best, double *cut)
{
    labels alone = {HG_TAKE(s->arena, int32_t, s->g->n), s->g->n, 0};
    labels other = {HG_TAKE(s->arena, int32_t, s->g->n), 0, 0};
    if (!alone.label || !other.label)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < s->g->n; i++)
        alone.label[hg_nth(s->g, i)] = i;
    int status = recombine(s, &other);
    if (status == HG_OK)
        status = keep_better(judge, best, cut, &other, reversed);
    if (status == HG_OK)
        status = contract(s, HUGE_VALF, &alone);
    if (status == HG_OK)
        status = levels_and_improve(s, &alone);
    if (status == HG_OK)
        status = keep_better(judge, best, cut, &alone, reversed);
    if (status == HG_OK)
        status = recombine(s, &other);
    return status == HG_OK ? keep_better(judge, best, cut, &other, reversed) : status;
}

/* Step 6. */
static int try_every_way(improver *s, labels *best)
{
    const int32_t n = s->g->n;
    int32_t *order = HG_TAKE(s->arena, int32_t, n);
    labels other = {HG_TAKE(s->arena, int32_t, n), n, 0};
    if (!order || !other.label)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        order[n - 1 - i] = hg_nth(s->g, i);
        other.label[hg_nth(s->g, i)] = i;
    }
    const hg_graph turned = {n,           s->g->m, s->g->pred_indptr, s->g->pred_indices, s->g->indptr, s->g->indices,
                             order};
    improver reversed = *s;
    reversed.g = &turned;
    reversed.dag = (hg_dag){n,         turned.indptr,     turned.indices,     turned.pred_indptr,
                            turned.pred_indices, s->dag.in_weight, s->dag.out_weight, order, s->dag.device};
    int whole;
    double cut;
    int status = hg_weight_between(&s->dag, best->label, &cut, s->watch);
    if (status == HG_OK)
        status = contract(s, HUGE_VALF, &other);
    s->contracted = other.count;
    if (status == HG_OK)
        status = try_more(s, s, 0, best, &cut);
    if (status == HG_OK)
        status = sweep_and_improve(&reversed, &other, &whole);
    if (status == HG_OK)
        status = keep_better(s, best, &cut, &other, 1);
    if (status == HG_OK)
        status = try_more(&reversed, s, 1, best, &cut);
    return status;
}

int hg_auto(const hg_graph *g, const uint8_t *device, const double *weight, int32_t *subgraph_of, int32_t *device_of,
            int32_t *count, int *maximal, hg_watch *watch)
{
    hg_arena arena;
    labels result = {.label = subgraph_of};
    /* What the sweep needs; what later steps need beyond comes in another block. */
    if (!hg_arena_open(&arena, (size_t)g->n * 48 + 4096))
        return HG_NO_MEMORY;
    improver s = {.g = g, .mean_weight = 1, .arena = &arena, .watch = watch};
    s.dag = (hg_dag){g->n, g->indptr, g->indices, g->pred_indptr, g->pred_indices, NULL, NULL, g->order, device};
    s.depth = HG_TAKE(&arena, int32_t, g->n);
    s.by_depth = HG_TAKE(&arena, int32_t, g->n);
    s.level = HG_TAKE(&arena, int32_t, g->n);
    int status = s.depth && s.by_depth && s.level ? HG_OK : HG_NO_MEMORY;
    if (status == HG_OK && weight) {
        s.dag.out_weight = hg_scaled(g, weight, &arena);
        s.dag.in_weight = s.dag.out_weight ? transposed(g, s.dag.out_weight, &arena) : NULL;
        status = s.dag.in_weight ? HG_OK : HG_NO_MEMORY;
        double total = 0;
        for (int64_t j = 0; j < g->m && status == HG_OK; j++)
            total += s.dag.out_weight[j];
        s.mean_weight = total / (double)g->m;
    }
    int whole = 1;
    if (status == HG_OK)
        status = sweep_and_improve(&s, &result, &whole);
    if (status == HG_OK && !whole && g->n <= SMALL)
        status = try_every_way(&s, &result);
    hg_arena_close(&arena);
    if (status != HG_OK)
        return status;
    *count = result.count;
    *maximal = result.maximal;
    for (int32_t v = 0; v < g->n && status == HG_OK; v++) {
        device_of[subgraph_of[v]] = device[v];
        if (hg_interrupted(watch, 2))
            status = HG_INTERRUPTED;
    }
    return status;
}
