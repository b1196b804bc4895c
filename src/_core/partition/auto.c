/* Policy `auto`: the fewest subgraphs it finds, and of equally few the least cut, in near-linear time.
 *
 * 1. Sweep from the sinks (sweep.c). It closes each subgraph as late as it can, so there are few. If it cuts no edge
 *    within a device, the result cannot be improved.
 * 2. Move nodes between levels (levels.c), which lowers the cut; subgraphs that become adjacent are united.
 * 3. If step 2 gained enough, move whole pieces: coarsen the common refinement with the components of equal depth,
 *    which grow from the sources, and move the vertices of the coarse graph. Step 4 then goes on with that graph.
 * 4. Contract (contract.c) until no two adjacent subgraphs can be merged.
 * 5. If there may be fewer subgraphs (bound.c): other starts, as many as CANDIDATE_WORK allows. These are, for small
 *    graphs, the documented loop; the reversed graph, contraction alone, and the contracted common refinement, in both
 *    directions; then the same from up to ORDERS random topological orders, which change what is found among equals.
 * 6. Windows (windows.c), for WINDOW_WORK steps; fewer if only the cut can be smaller.
 * 7. With weights: windows and moves between levels that lower the weight of the cut and keep the number of subgraphs.
 *    No step before this one looks at weights, so they cannot cost a subgraph.
 * 8. Numbers with which few values are alive at the same time (memory_order.c).
 *
 * Steps 1 to 4, 7 and 8 are linear except contraction. Its searches have a budget of HALVES_PER_EDGE half steps for each
 * node and edge, and LEAST_WORK. If the budget runs out, contraction runs again on the quotient, which is smaller and
 * where paths are found sooner, as long as that gains and until all runs together have taken RUNS budgets; then the
 * result is valid but may not be maximal. Steps 5 and 6 take a fixed time, whatever the size, and none if the graph is
 * too large for one of them. */
#include <math.h>

#include "levels.h"

enum {
    PASSES = 2,           /* over the pieces: more gain little */
    HALVES_PER_EDGE = 3,  /* half steps of a run of contraction for each node and edge: keeps `auto` linear */
    LEAST_WORK = 1 << 18, /* steps, besides: a few milliseconds, in which small graphs are searched to the end */
    RUNS = 2,             /* all runs of one contraction together take so many runs of steps */
};

/* Pieces are moved when moving nodes gained at least this part of the cut. */
static const double WORTHWHILE = 1.0 / 128;

/* Contraction runs again on the quotient if the last run removed at least this part of the subgraphs. */
static const double GAINS = 1.0 / 256;

/* Edges of the coarse graph that are this many times heavier than the mean edge are contracted first. */
static const double HEAVY = 8;

/* Steps 5 and 6 take nodes and edges touched as steps: about 5 ns each, so 10 ms and 5 ms at most. Isolated nodes do not
 * count there, so that they do not affect the others' subgraphs. */
enum {
    CANDIDATE_WORK = 1 << 21,
    CANDIDATE_STEPS = 24, /* of a candidate for each node and edge, as measured */
    ORDERS = 8, /* each takes up to four candidates */
    DOCUMENTED_SIZE = 1 << 11, /* nodes, isolated ones too, and edges for the documented loop: 3 ms at most */
    WINDOW_WORK = 1 << 20,
    WINDOW_PER_EDGE = 1 << 10, /* small graphs are done sooner */
    CUT_PER_EDGE = 1 << 7,     /* where only the cut can be smaller */
    WINDOW_ROUND = 8, /* steps of a round for each node and edge; at least two rounds, or none */
};

typedef struct {
    const hg_graph *g;
    hg_dag dag;
    double linear_cut; /* what policy `linear` cuts */
    int32_t *depth;
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

/* label[i] = merged[label[i]] for each i below n. */
static int relabel(int32_t n, int32_t *label, const int32_t *merged, hg_watch *watch)
{
    int64_t work = 0;
    for (int32_t i = 0; i < n; i++) {
        label[i] = merged[label[i]];
        if (hg_interrupted_after(watch, &work, 2))
            return HG_INTERRUPTED;
    }
    return HG_OK;
}

/* Merges adjacent subgraphs of s->g, or of a quotient of it, while any two can be: count and label shrink. A run of
 * contraction that ends early is followed by another on the quotient while that gains, with the edges still open. The
 * quotients are made of the first one, not of the graph. */
static int contract(improver *s, const hg_graph *g, const uint8_t *device_of, float heavy, labels *result)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    const int64_t work = LEAST_WORK + HALVES_PER_EDGE * ((int64_t)s->g->n + s->g->m) / 2;
    int64_t left = RUNS * work;
    const int32_t k = result->count;
    const int weighted = heavy < HUGE_VALF;
    int32_t before = k;
    hg_coarse first;
    int32_t *merged = HG_TAKE(s->arena, int32_t, k), *again = HG_TAKE(s->arena, int32_t, k);
    uint8_t *device = HG_TAKE(s->arena, uint8_t, k);
    if (s->arena->failed)
        return HG_NO_MEMORY;
    HT_ASSERT(!weighted || g == s->g);
    int status = hg_coarsen(g, device_of, weighted ? s->dag.out_weight : NULL, result->label, k, weighted, 1, &first,
                            s->arena, s->watch);
    hg_open_edges open = {status == HG_OK ? HG_TAKE(s->arena, hg_open_edge, first.edges) : NULL, 0};
    if (status == HG_OK && !open.edge)
        status = HG_NO_MEMORY;
    const hg_mark run = hg_arena_mark(s->arena);
    if (status == HG_OK)
        status = hg_contract(&first, heavy, INT32_MAX, work, &open, merged, &result->count, &result->maximal, s->arena,
                             s->watch);
    const hg_graph quotient = {.n = k, .m = first.edges, .indptr = first.out_start, .indices = first.out};
    for (int32_t x = 0; x < k && status == HG_OK && !result->maximal; x++)
        device[x] = (uint8_t)first.kind[x];
    while (status == HG_OK && !result->maximal && (left -= work) > 0 && before - result->count >= GAINS * before) {
        hg_coarse coarse;
        hg_arena_release(s->arena, run);
        before = result->count;
        status = hg_coarsen(&quotient, device, first.out_weight, merged, before, weighted, 1, &coarse, s->arena, s->watch);
        if (status == HG_OK)
            status = hg_contract(&coarse, heavy, INT32_MAX, left < work ? left : work, &open, again, &result->count,
                                 &result->maximal, s->arena, s->watch);
        if (status == HG_OK)
            status = relabel(k, merged, again, s->watch);
    }
    if (status == HG_OK && result->count < k)
        status = relabel(g->n, result->label, merged, s->watch);
    hg_arena_release(s->arena, mark);
    return status;
}

static int move_nodes(improver *s, double *gained)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    const int status = hg_move_levels(&s->dag, s->level, 1, gained, s->arena, s->watch);
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

/* Steps 3 and 4. */
static int move_pieces(improver *s, labels *result)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    hg_coarse coarse;
    int status = components(s, s->depth, result);
    const int32_t k = result->count;
    if (status == HG_OK)
        status = hg_coarsen(s->g, s->dag.device, s->dag.out_weight, result->label, k, 1, 0, &coarse, s->arena,
                            s->watch);
    if (status != HG_OK)
        return status;
    int32_t *level = HG_TAKE(s->arena, int32_t, k);
    uint8_t *device = HG_TAKE(s->arena, uint8_t, k);
    labels united = {.label = HG_TAKE(s->arena, int32_t, k)};
    if (s->arena->failed)
        return HG_NO_MEMORY;
    for (int32_t x = 0; x < k; x++)
        device[x] = (uint8_t)coarse.kind[x];
    int64_t work = 0;
    for (int32_t v = 0; v < s->g->n; v++) {
        level[result->label[v]] = s->level[v];
        if (hg_interrupted_after(s->watch, &work, 2))
            return HG_INTERRUPTED;
    }
    const hg_graph pieces = {.n = k, .m = coarse.edges, .indptr = coarse.out_start, .indices = coarse.out};
    const hg_dag dag = {k,    coarse.out_start, coarse.out, coarse.in_start, coarse.in, coarse.out_weight, coarse.in_weight,
                        NULL, device};
    double gained;
    status = hg_move_levels(&dag, level, PASSES, &gained, s->arena, s->watch);
    if (status == HG_OK) /* pieces that are adjacent now become one */
        status = hg_level_components(&dag, level, NULL, united.label, &united.count, s->arena, s->watch);
    if (status == HG_OK)
        status = contract(s, &pieces, device, HUGE_VALF, &united);
    for (int32_t v = 0; v < s->g->n && status == HG_OK; v++) {
        const int32_t piece = result->label[v];
        s->level[v] = level[piece];
        result->label[v] = united.label[piece];
        if (hg_interrupted_after(s->watch, &work, 4))
            status = HG_INTERRUPTED;
    }
    result->count = united.count;
    result->maximal = united.maximal;
    hg_arena_release(s->arena, mark);
    return status;
}

/* Steps 2 to 4, from the levels in s->level, which cut so much. */
static int improve(improver *s, double cut, labels *result)
{
    double gained = 0;
    int status = move_nodes(s, &gained);
    cut -= gained;
    if (status == HG_OK && gained > 0 && (cut > s->linear_cut || gained >= WORTHWHILE * cut))
        return move_pieces(s, result);
    if (status == HG_OK)
        status = components(s, NULL, result);
    return status == HG_OK ? contract(s, s->g, s->dag.device, HUGE_VALF, result) : status;
}

/* Steps 1 to 4. *whole: the result cannot be improved. */
static int sweep_and_improve(improver *s, labels *result, int *whole)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    double foreign, lost;
    int32_t *by_depth = result->label; /* until there are labels */
    int status = hg_depth_order(&s->dag, s->depth, by_depth, &foreign, &s->linear_cut, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    if (status == HG_OK)
        status = hg_sweep(&s->dag, by_depth, s->level, &lost, whole, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    result->maximal = *whole; /* no edge within a device is cut */
    if (status == HG_OK && *whole)
        return components(s, NULL, result);
    return status == HG_OK ? improve(s, foreign + lost, result) : status;
}

/* Steps 2 to 4 from a partition. */
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

/* The state of step 5: the remaining CANDIDATE_WORK and the best result so far. */
typedef struct {
    labels *best;
    double cut;
    int32_t bound; /* on the number of subgraphs */
    int64_t work, each;
} contest;

/* Whether another candidate should be made: it may be better, and there is time. Takes the time. */
static int next_candidate(contest *c)
{
    if (c->best->count == c->bound || c->work < c->each)
        return 0;
    c->work -= c->each;
    return 1;
}

/* Keeps `other` if it is better. reversed: its labels are. */
static int keep_better(const improver *s, contest *c, const labels *other, int reversed)
{
    labels *best = c->best;
    double cut = 0;
    const int status = hg_weight_between(&s->dag, other->label, &cut, s->watch);
    if (status != HG_OK || other->count > best->count || (other->count == best->count && cut >= c->cut))
        return status;
    for (int32_t v = 0; v < s->g->n; v++)
        best->label[v] = reversed ? other->count - 1 - other->label[v] : other->label[v];
    best->count = other->count;
    best->maximal = other->maximal;
    c->cut = cut;
    return HG_OK;
}

/* What the levels and equal depths agree on, merged by contraction instead of moved; and what improving that leads to. */
static int recombine(improver *s, labels *result)
{
    int status = components(s, s->depth, result);
    if (status == HG_OK)
        status = contract(s, s->g, s->dag.device, (float)HEAVY, result);
    return status == HG_OK ? levels_and_improve(s, result) : status;
}

/* Candidates in one direction: s->level and s->depth are what the sweep led to. */
static int try_more(improver *s, contest *c, int reversed, labels *other)
{
    int status = HG_OK;
    if (next_candidate(c)) {
        status = recombine(s, other);
        if (status == HG_OK)
            status = keep_better(s, c, other, reversed);
    }
    if (status == HG_OK && next_candidate(c)) {
        for (int32_t i = 0; i < s->g->n; i++)
            other->label[hg_nth(s->g, i)] = i;
        other->count = s->g->n;
        status = contract(s, s->g, s->dag.device, HUGE_VALF, other);
        if (status == HG_OK)
            status = levels_and_improve(s, other);
        if (status == HG_OK)
            status = keep_better(s, c, other, reversed);
        if (status == HG_OK && next_candidate(c)) {
            status = recombine(s, other);
            if (status == HG_OK)
                status = keep_better(s, c, other, reversed);
        }
    }
    return status;
}

/* Writes a random topological order. Nodes without edges are last and take no random numbers. */
static int shuffle(const hg_graph *g, uint64_t *random, int32_t *order, hg_arena *arena, hg_watch *watch)
{
    const hg_mark mark = hg_arena_mark(arena);
    int32_t *waiting = HG_TAKE(arena, int32_t, g->n);
    if (!waiting)
        return HG_NO_MEMORY;
    int32_t ready = 0, last = g->n;
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t v = hg_nth(g, i);
        waiting[v] = g->pred_indptr[v + 1] - g->pred_indptr[v];
        if (waiting[v] == 0 && g->indptr[v] < g->indptr[v + 1])
            order[ready++] = v;
        else if (waiting[v] == 0)
            order[--last] = v;
    }
    for (int32_t i = 0; i < last; i++) {
        const int32_t at = i + (int32_t)hg_draw(random, (uint32_t)(ready - i)), v = order[at];
        order[at] = order[i];
        order[i] = v;
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
            if (--waiting[g->indices[j]] == 0)
                order[ready++] = g->indices[j];
        if (hg_interrupted(watch, 16))
            return HG_INTERRUPTED;
    }
    hg_arena_release(arena, mark);
    return HG_OK;
}

static void reverse(int32_t n, int32_t *order)
{
    for (int32_t i = 0, j = n - 1; i < j; i++, j--) {
        const int32_t v = order[i];
        order[i] = order[j];
        order[j] = v;
    }
}

/* Steps 1 to 4 in one direction. */
static int try_sweep(improver *s, contest *c, int reversed, labels *other)
{
    int whole;
    const int status = sweep_and_improve(s, other, &whole);
    return status == HG_OK ? keep_better(s, c, other, reversed) : status;
}

/* The subgraphs of policy `linear`, merged where any two can be. s->depth is what the first sweep led to. */
static int try_linear(improver *s, contest *c, labels *other)
{
    improver by_depth = *s;
    by_depth.level = s->depth;
    int status = components(&by_depth, NULL, other);
    other->maximal = other->count == c->bound;
    if (status == HG_OK && !other->maximal)
        status = contract(s, s->g, s->dag.device, HUGE_VALF, other);
    return status == HG_OK ? keep_better(s, c, other, 0) : status;
}

/* The subgraphs of policy `documented`, merged where any two can be. */
static int try_documented(improver *s, contest *c, labels *other)
{
    const hg_mark mark = hg_arena_mark(s->arena);
    int32_t *device_of = HG_TAKE(s->arena, int32_t, s->g->n);
    int status = device_of ? hg_documented(s->g, s->dag.device, other->label, &other->count, NULL, s->watch)
                           : HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_number(s->g, s->dag.device, other->count, other->label, device_of, s->watch);
    hg_arena_release(s->arena, mark);
    if (status == HG_OK)
        status = contract(s, s->g, s->dag.device, HUGE_VALF, other);
    return status == HG_OK ? keep_better(s, c, other, 0) : status;
}

/* Step 5, from what the first sweep led to: policies of small cost, and if the number of subgraphs may not be the
 * least, rounds of candidates of the graph and the reversed graph, as they are and then in random topological orders. */
static int try_candidates(improver *s, contest *c)
{
    const int32_t n = s->g->n;
    labels other = {HG_TAKE(s->arena, int32_t, n), n, 0};
    int status = other.label ? try_linear(s, c, &other) : HG_NO_MEMORY;
    if (status == HG_OK && c->best->count > c->bound && (int64_t)n + s->g->m <= DOCUMENTED_SIZE)
        status = try_documented(s, c, &other);
    if (status != HG_OK || !next_candidate(c))
        return status;
    int32_t *order = HG_TAKE(s->arena, int32_t, n), *levels = HG_TAKE(s->arena, int32_t, 2 * (int64_t)n);
    if (s->arena->failed)
        return HG_NO_MEMORY;
    for (int32_t i = 0; i < n; i++)
        order[n - 1 - i] = hg_nth(s->g, i);
    const hg_graph turned = {n,           s->g->m, s->g->pred_indptr, s->g->pred_indices, s->g->indptr, s->g->indices,
                             order};
    improver reversed = *s, forward = *s;
    reversed.g = &turned;
    reversed.dag = (hg_dag){n,    turned.indptr, turned.indices, turned.pred_indptr, turned.pred_indices, NULL,
                            NULL, order,         s->dag.device};
    reversed.level = levels;
    reversed.depth = levels + n;
    hg_graph same = *s->g;
    same.order = order;
    forward.g = &same;
    forward.dag.order = order;
    status = try_sweep(&reversed, c, 1, &other);
    uint64_t random = 0x9E3779B97F4A7C15u;
    for (int round = 0; round < 2 + ORDERS && status == HG_OK; round++) {
        const int is_reversed = round % 2;
        improver *now = is_reversed ? &reversed : round ? &forward : s;
        if (round >= 2) { /* before, the sweeps have been made */
            if (!next_candidate(c))
                break;
            status = shuffle(s->g, &random, order, s->arena, s->watch);
            if (is_reversed)
                reverse(n, order);
            if (status == HG_OK)
                status = try_sweep(now, c, is_reversed, &other);
        }
        if (status == HG_OK)
            status = try_more(now, c, is_reversed, &other);
    }
    return status;
}

/* Step 6, or the first half of step 7; merges what becomes adjacent. */
static int search_windows(improver *s, int64_t size, int64_t per_edge, int32_t bound, double *cut, labels *best)
{
    const int64_t largest = WINDOW_WORK / WINDOW_PER_EDGE; /* graphs that get all they ask for */
    const int64_t work = (size < largest ? size : largest) * per_edge;
    if (work < 2 * WINDOW_ROUND * size)
        return HG_OK;
    const hg_mark mark = hg_arena_mark(s->arena);
    int32_t *device_of = HG_TAKE(s->arena, int32_t, s->g->n);
    int status = device_of ? hg_improve_windows(&s->dag, best->label, &best->count, cut, bound, work, s->arena, s->watch)
                           : HG_NO_MEMORY;
    if (status == HG_OK)
        status = hg_number(s->g, s->dag.device, best->count, best->label, device_of, s->watch);
    hg_arena_release(s->arena, mark);
    return status == HG_OK ? contract(s, s->g, s->dag.device, HUGE_VALF, best) : status;
}

/* Steps 5 and 6, for a graph of so many edges and nodes with edges. */
static int search_further(improver *s, int64_t size, labels *best)
{
    contest c = {.best = best, .work = CANDIDATE_WORK, .each = CANDIDATE_STEPS * size};
    if (c.work < c.each && WINDOW_WORK < 2 * WINDOW_ROUND * size)
        return HG_OK;
    int status = hg_lower_bound(s->g, s->dag.device, &c.bound, s->watch);
    if (status == HG_OK)
        status = hg_weight_between(&s->dag, best->label, &c.cut, s->watch);
    const int is_least = best->count == c.bound;
    const hg_mark mark = hg_arena_mark(s->arena);
    if (status == HG_OK)
        status = try_candidates(s, &c);
    hg_arena_release(s->arena, mark);
    if (status != HG_OK || (best->count == c.bound && !is_least))
        return status;
    return search_windows(s, size, is_least ? CUT_PER_EDGE : WINDOW_PER_EDGE, is_least ? 0 : c.bound, &c.cut, best);
}

/* Weights in the order of pred_indices. */
static float *transposed(const hg_graph *g, const float *weight, hg_arena *arena)
{
    float *pred_weight = HG_TAKE(arena, float, g->m);
    int32_t *next = HG_TAKE(arena, int32_t, g->n);
    if (arena->failed)
        return NULL;
    memcpy(next, g->pred_indptr, (size_t)g->n * sizeof *next);
    for (int32_t v = 0; v < g->n; v++)
        for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
            pred_weight[next[g->indices[j]]++] = weight[j];
    return pred_weight;
}

/* Step 7. */
static int lower_weight(improver *s, const double *weight, int64_t size, labels *best)
{
    const int32_t n = s->g->n;
    float *out_weight = hg_scaled(s->g, weight, s->arena);
    for (int64_t j = 0; j < s->g->m && out_weight; j++)
        out_weight[j] += 1e-6f; /* so that no node leaves its subgraph to be alone for the sake of nothing */
    s->dag.out_weight = out_weight;
    s->dag.in_weight = out_weight ? transposed(s->g, out_weight, s->arena) : NULL;
    labels other = {HG_TAKE(s->arena, int32_t, n), best->count, best->maximal};
    if (s->arena->failed)
        return HG_NO_MEMORY;
    double cut, before, gained;
    int status = hg_weight_between(&s->dag, best->label, &cut, s->watch);
    if (status == HG_OK)
        status = search_windows(s, size, WINDOW_PER_EDGE, 0, &cut, best);
    if (status == HG_OK)
        status = hg_weight_between(&s->dag, best->label, &before, s->watch);
    if (status != HG_OK)
        return status;
    const hg_mark mark = hg_arena_mark(s->arena);
    status = hg_levels_of(&s->dag, best->label, best->count, s->level, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    if (status == HG_OK)
        status = hg_move_levels(&s->dag, s->level, 2, &gained, s->arena, s->watch);
    hg_arena_release(s->arena, mark);
    if (status == HG_OK)
        status = components(s, NULL, &other);
    if (status == HG_OK)
        status = contract(s, s->g, s->dag.device, HUGE_VALF, &other);
    if (status == HG_OK)
        status = hg_weight_between(&s->dag, other.label, &cut, s->watch);
    if (status == HG_OK && (other.count < best->count || (other.count == best->count && cut < before))) {
        memcpy(best->label, other.label, (size_t)n * sizeof *other.label);
        best->count = other.count;
        best->maximal = other.maximal;
    }
    return status;
}

/* Edges, and nodes with edges. */
static int64_t linked_size(const hg_graph *g)
{
    int64_t size = g->m;
    for (int32_t v = 0; v < g->n; v++)
        size += g->indptr[v] < g->indptr[v + 1] || g->pred_indptr[v] < g->pred_indptr[v + 1];
    return size;
}

int hg_auto(const hg_graph *g, const uint8_t *device, const double *weight, int thorough, int32_t *subgraph_of,
            int32_t *device_of, int32_t *count, int *maximal, hg_watch *watch)
{
    hg_arena arena;
    labels result = {.label = subgraph_of};
    /* What the sweep needs; what later steps need beyond comes in another block. */
    if (!hg_arena_open(&arena, (size_t)g->n * 36 + (size_t)g->m * 8 + 4096))
        return HG_NO_MEMORY;
    improver s = {.g = g, .arena = &arena, .watch = watch};
    s.dag = (hg_dag){g->n, g->indptr, g->indices, g->pred_indptr, g->pred_indices, NULL, NULL, g->order, device};
    s.depth = HG_TAKE(&arena, int32_t, g->n);
    s.level = HG_TAKE(&arena, int32_t, g->n);
    int whole = 1;
    int status = arena.failed ? HG_NO_MEMORY : sweep_and_improve(&s, &result, &whole);
    if (!whole) {
        const int64_t size = linked_size(g);
        if (status == HG_OK && thorough)
            status = search_further(&s, size, &result);
        if (status == HG_OK && weight)
            status = lower_weight(&s, weight, size, &result);
    }
    if (status == HG_OK)
        status = hg_number_for_memory(g, result.count, subgraph_of, &arena, watch);
    hg_arena_close(&arena);
    if (status != HG_OK)
        return status;
    *count = result.count;
    *maximal = result.maximal;
    int64_t work = 0;
    for (int32_t v = 0; v < g->n && status == HG_OK; v++) {
        device_of[subgraph_of[v]] = device[v];
        if (hg_interrupted_after(watch, &work, 2))
            status = HG_INTERRUPTED;
    }
    return status;
}
