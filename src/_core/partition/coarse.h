/* Internal to the policies: quotients of partitions as weighted graphs, and contraction, which merges along them.
 * Scratch memory, and the arrays of hg_coarse, are taken from the arena and left there for the caller to release. */
#ifndef HETERO_PARTITION_COARSE_H
#define HETERO_PARTITION_COARSE_H

#include "arena.h"
#include "graph.h"

/* The quotient of a partition: parallel edges merged, ids a topological order. Rows of predecessors ascend. */
typedef struct {
    int32_t k;
    int64_t edges;
    int32_t *out_start, *out; /* [k + 1], [edges] */
    int32_t *in_start, *in;
    float *out_weight, *in_weight; /* [edges]: weight of the merged edges, or NULL */
    int32_t *kind;                 /* [k]: only nodes of one kind may be merged; the device, to begin with */
    int32_t *size;                 /* [k]: nodes of the graph in each */
} hg_coarse;

/* ---- coarse.c ---- */

/* weight [m] in CSR order, or NULL: 1 each. label: topological ids 0..count-1, none unused. weighted: 0 leaves the
 * weights out. ascending: rows of successors ascend too, as hg_contract expects. */
int hg_coarsen(const hg_graph *g, const uint8_t *device, const float *weight, const int32_t *label, int32_t count,
               int weighted, int ascending, hg_coarse *coarse, hg_arena *arena, hg_watch *watch);

/* Weights in CSR order as fractions of the largest, so that sums of them stay finite; NULL for no memory. */
float *hg_scaled(const hg_graph *g, const double *weight, hg_arena *arena);

/* ---- contract.c ---- */

/* An edge that could not be merged so far. witness: a node on another path between its ends, or one of the ends, or -1:
 * unknown. While it is neither end, the edge cannot be merged. */
typedef struct {
    int32_t source, target, witness;
} hg_open_edge;

typedef struct {
    hg_open_edge *edge; /* room for all edges of the graph */
    int64_t count;
} hg_open_edges;

/* Merges the ends of edges between nodes of one kind while no other path joins them. merged [k]: the new topological
 * label of each coarse node, *count of them. heavy: edges of at least this weight go first (infinity: none do, and
 * the graph needs no weights). Nothing
 * grows beyond max_size nodes of the graph. work: the most steps. If they run out, undecided edges stay unmerged and
 * *finished is 0. open: the edges to try (none: all); afterwards those that may be merged later, between new labels.
 * The rows of predecessors and the sizes are consumed. */
int hg_contract(const hg_coarse *coarse, float heavy, int32_t max_size, int64_t work, hg_open_edges *open,
                int32_t *merged, int32_t *count, int *finished, hg_arena *arena, hg_watch *watch);

#endif
