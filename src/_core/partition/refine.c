/* Refinement: single nodes move to a neighbouring subgraph where that cuts less, or as little.
 *
 * Labels are positions in a topological order of the quotient, which stays fixed: a node may sit anywhere between the
 * last subgraph of its predecessors and the first of its successors, and only those two can hold neighbours of it. So
 * a move is checked in O(degree), but for the connectivity of the subgraph left behind: the node's neighbours there
 * must reach each other without it, looked for among at most SEARCH_LIMIT nodes. Moves that keep the cut are made as
 * well, since they open others; a fixed number of passes, in alternating direction, bounds the work to O(n + m).
 * After: Herrmann, Özkaya, Uçar, Kaya, Catalyurek, "Multilevel algorithms for acyclic partitioning of directed acyclic
 * graphs", SIAM J. Sci. Comput. 41(4), 2019. */
#include "coarse.h"

enum { SEARCH_LIMIT = 64 };

typedef struct {
    const hg_graph *g;
    int32_t *label;
    int32_t *seen; /* [n]: number of the search that saw the node */
    int32_t search;
} connectivity;

/* Do the neighbours of v within its subgraph reach each other without v? `inside` of them. */
static int stays_connected(connectivity *c, int32_t v, int32_t inside)
{
    const hg_graph *g = c->g;
    const int32_t home = c->label[v];
    /* Odd numbers mark neighbours of v not reached yet, even ones what the search has reached. */
    if (c->search > INT32_MAX - 4) { /* numbers of searches used up: start again */
        memset(c->seen, 0, (size_t)g->n * sizeof *c->seen);
        c->search = 0;
    }
    c->search += 2;
    const int32_t reached = c->search, target = c->search + 1;
    int32_t queue[SEARCH_LIMIT], head = 0, tail = 0, start = -1;
    c->seen[v] = reached;
    for (int32_t j = g->pred_indptr[v]; j < g->pred_indptr[v + 1]; j++)
        if (c->label[g->pred_indices[j]] == home)
            c->seen[start = g->pred_indices[j]] = target;
    for (int32_t j = g->indptr[v]; j < g->indptr[v + 1]; j++)
        if (c->label[g->indices[j]] == home)
            c->seen[start = g->indices[j]] = target;
    c->seen[start] = reached;
    queue[tail++] = start;
    int32_t left = inside - 1;
    while (head < tail) {
        const int32_t x = queue[head++];
        for (int side = 0; side < 2; side++) {
            const int32_t *row = side ? g->pred_indices : g->indices;
            const int32_t *start_of = side ? g->pred_indptr : g->indptr;
            for (int32_t j = start_of[x]; j < start_of[x + 1]; j++) {
                const int32_t y = row[j];
                if (c->label[y] != home || c->seen[y] == reached)
                    continue;
                if (c->seen[y] == target && !--left)
                    return 1;
                c->seen[y] = reached;
                if (tail == SEARCH_LIMIT)
                    return 0;
                queue[tail++] = y;
            }
        }
    }
    return 0;
}

/* Of the labels of a row: the extreme one, the weight of the edges to it, their number, and the device there. */
typedef struct {
    int32_t label, edges;
    uint8_t device;
    double weight;
} extreme;

/* The last label among the predecessors (last = 1) or the first among the successors (last = 0). */
static inline extreme extreme_of(const int32_t *row, const double *weight, int32_t begin, int32_t end,
                                 const int32_t *label, const uint8_t *device, int last, int32_t none)
{
    extreme e = {none, 0, 0, 0.0};
    for (int32_t j = begin; j < end; j++) {
        const int32_t u = row[j], l = label[u];
        if (last ? l > e.label : l < e.label)
            e = (extreme){l, 1, device[u], weight ? weight[j] : 0.0};
        else if (l == e.label) {
            e.edges++;
            e.weight += weight ? weight[j] : 0.0;
        }
    }
    if (!weight)
        e.weight = e.edges;
    return e;
}

static inline __attribute__((always_inline)) int refine(const hg_graph *g, const uint8_t *device, const double *weight,
                                                        const double *pred_weight, int32_t *label, int32_t count,
                                                        uint8_t *boundary, int passes, int32_t *size, connectivity *c,
                                                        double *gained, hg_watch *watch)
{
    const int32_t n = g->n;
    double total = 0;
    for (int pass = 0; pass < passes; pass++) {
        for (int32_t i = 0; i < n; i++) {
            const int32_t v = pass & 1 ? n - 1 - i : i;
            if (!(i & 0xFFFF) && hg_interrupted(watch, 1 << 17))
                return HG_INTERRUPTED;
            if (!boundary[v])
                continue;
            const int32_t home = label[v];
            const int32_t in = g->pred_indptr[v], in_end = g->pred_indptr[v + 1];
            const int32_t out = g->indptr[v], out_end = g->indptr[v + 1];
            const extreme before = extreme_of(g->pred_indices, pred_weight, in, in_end, label, device, 1, -1);
            const extreme after = extreme_of(g->indices, weight, out, out_end, label, device, 0, count);
            /* Neighbours inside the home are extreme: no predecessor comes later, no successor earlier. */
            const int can_fall = before.edges && before.label != home && before.device == device[v];
            const int can_rise = after.edges && after.label != home && after.device == device[v];
            if (!can_fall && !can_rise) {
                boundary[v] = 0;
                continue;
            }
            const int32_t inside = (before.label == home ? before.edges : 0) + (after.label == home ? after.edges : 0);
            const double to_home = (before.label == home ? before.weight : 0) + (after.label == home ? after.weight : 0);
            const int rise = can_rise && !(can_fall && before.weight >= after.weight);
            const double gain = (rise ? after.weight : before.weight) - to_home;
            if (size[home] > 1 && (gain < 0 || (inside > 1 && !stays_connected(c, v, inside))))
                continue;
            total += gain;
            size[home]--;
            label[v] = rise ? after.label : before.label;
            size[label[v]]++;
            for (int32_t j = in; j < in_end; j++)
                boundary[g->pred_indices[j]] = 1;
            for (int32_t j = out; j < out_end; j++)
                boundary[g->indices[j]] = 1;
        }
    }
    *gained = total;
    return HG_OK;
}

int hg_refine(const hg_graph *g, const uint8_t *device, const double *weight, const double *pred_weight,
              int32_t *label, int32_t count, uint8_t *boundary, int passes, double *gained, hg_arena *arena,
              hg_watch *watch)
{
    const int32_t n = g->n;
    int32_t *size = HG_TAKE_ZEROED(arena, int32_t, count);
    connectivity c = {g, label, HG_TAKE_ZEROED(arena, int32_t, n), 0};
    if (!size || !c.seen)
        return HG_NO_MEMORY;
    for (int32_t v = 0; v < n; v++)
        size[label[v]]++;
    if (weight)
        return refine(g, device, weight, pred_weight, label, count, boundary, passes, size, &c, gained, watch);
    return refine(g, device, NULL, NULL, label, count, boundary, passes, size, &c, gained, watch);
}
