/* Internal to policy `auto`: partitions as labels, their coarse graphs, and the steps that improve them.
 * Scratch memory, and the arrays of hg_coarse, are taken from the arena and left there for the caller to release. */
#ifndef HETERO_PARTITION_COARSE_H
#define HETERO_PARTITION_COARSE_H

#include "arena.h"
#include "graph.h"

/* A partition under construction: labels whose numbers are a topological order of the quotient. */
typedef struct {
    int32_t *label; /* [n] */
    int32_t count;
} hg_labels;

/* The quotient of a partition: parallel edges merged, rows ascending, ids a topological order. */
typedef struct {
    int32_t k;
    int64_t edges;
    int32_t *out_start, *out; /* [k + 1], [edges] */
    int32_t *in_start, *in;
    float *out_weight; /* [edges]: weight of the merged edges */
    int32_t *kind;     /* [k]: only nodes of one kind may be merged; the device, to begin with */
    int32_t *size;     /* [k]: nodes of the graph in each */
} hg_coarse;

/* ---- sweep.c ---- */

/* depth[v]: most changes of device on a path from a source to v. by_depth: the nodes by depth, ties in topological
 * order. *foreign, *deeper: edges between devices, and between depths (what policy `linear` cuts). */
int hg_depth_order(const hg_graph *g, const uint8_t *device, int32_t *depth, int32_t *by_depth, int64_t *foreign,
                   int64_t *deeper, hg_arena *arena, hg_watch *watch);

/* A partition grown from the sinks. boundary: set to 1 at the ends of the *lost same-device edges it cuts. */
int hg_sweep(const hg_graph *g, const uint8_t *device, const int32_t *by_depth, hg_labels *result, uint8_t *boundary,
             int64_t *lost, hg_arena *arena, hg_watch *watch);

/* ---- refine.c ---- */

/* Moves single nodes between adjacent subgraphs where that does not increase the cut. labels must be
 * topological; some may become empty. boundary: nodes worth looking at; updated. *gained: by how much the cut shrank. */
int hg_refine(const hg_graph *g, const uint8_t *device, const double *weight, const double *pred_weight,
              int32_t *label, int32_t count, uint8_t *boundary, int passes, double *gained, hg_arena *arena, hg_watch *watch);

/* ---- coarse.c ---- */

int hg_coarsen(const hg_graph *g, const uint8_t *device, const double *weight, const int32_t *label, int32_t count,
               hg_coarse *coarse, hg_arena *arena, hg_watch *watch);

/* Common refinement of a partition (label, topological) and of the components of equal (device, depth): new labels,
 * topological as well. */
int hg_intersect(const hg_graph *g, const int32_t *by_depth, const int32_t *depth,
                 const int32_t *label, int32_t count, hg_labels *result, hg_arena *arena, hg_watch *watch);

/* Drops unused labels, keeping the order. */
int hg_compact(int32_t n, int32_t *label, int32_t *count, hg_arena *arena);

/* ---- contract.c ---- */

/* Merges the ends of same-device edges while no other path joins them. merged [k]: the new topological label of each
 * coarse node. heavy: edges of at least this weight go first (infinity: none do). thorough: until nothing changes,
 * otherwise each edge is tried once. Nothing grows beyond max_size nodes of
 * the graph. *work: steps left; when they run out the rest stays unmerged. *maximal: nothing
 * is left to merge for certain. The coarse graph is consumed. */
int hg_contract(hg_coarse *coarse, float heavy, int thorough, int32_t max_size, int64_t *work, int32_t *merged,
                int32_t *count, int *maximal, hg_arena *arena, hg_watch *watch);

#endif
