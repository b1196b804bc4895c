/* Internal to policy `auto`: levels, the form in which it improves a partition.
 *
 * A level is a number per node that never falls along an edge, and rises along each edge between two devices. The
 * connected components of one device and level are a valid partition: between two of one level no edge leads, every
 * other edge leads to a higher level. A node may be moved to any level between those of its predecessors and those of
 * its successors, whatever the rest does: so levels are easy to improve, where subgraphs are not.
 *
 * Scratch memory, and the arrays of hg_coarse, are taken from the arena and left there for the caller to release. */
#ifndef HETERO_PARTITION_LEVELS_H
#define HETERO_PARTITION_LEVELS_H

#include "arena.h"
#include "coarse.h"
#include "graph.h"

/* A graph with weighted edges and device numbers: the one given, or a coarse one. */
typedef struct {
    int32_t n;
    const int32_t *out_start, *out, *in_start, *in;
    const float *out_weight, *in_weight; /* by edge; NULL: 1 each */
    const int32_t *order;                /* a topological order, or NULL: 0..n-1 is one */
    const uint8_t *device;
} hg_dag;

/* A number below `below`, from a state that is not 0 (xorshift). */
static inline uint32_t hg_draw(uint64_t *state, uint32_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(((*state >> 32) * below) >> 32);
}

/* ---- sweep.c: of graphs without weights ---- */

/* depth[v]: most changes of device on a path from a source to v. by_depth: the nodes by depth, ties in topological
 * order. *foreign, *deeper: edges between devices, and between depths (what policy `linear` cuts). */
int hg_depth_order(const hg_dag *g, int32_t *depth, int32_t *by_depth, double *foreign, double *deeper,
                   hg_arena *arena, hg_watch *watch);

/* Levels, 0 and below, of a partition grown from the sinks. *lost: edges that it cuts within devices, at most; *whole:
 * it cuts no edge there. */
int hg_sweep(const hg_dag *g, const int32_t *by_depth, int32_t *level, double *lost, int *whole, hg_arena *arena,
             hg_watch *watch);

/* ---- windows.c ---- */

/* Improves the partition label [n], 0..*count-1 in any order, that cuts *cut: fewer subgraphs, then less cut. Ends when
 * there are only `bound` subgraphs, or after `work` steps. */
int hg_improve_windows(const hg_dag *g, int32_t *label, int32_t *count, double *cut, int32_t bound, int64_t work,
                       hg_arena *arena, hg_watch *watch);

/* ---- levels.c ---- */

/* Moves nodes to a level where they meet more weight of their own device: `passes` passes over the graph in alternating
 * direction, the last from the sources. No subgraph falls apart, so if all weights are positive, there are never more of
 * them. *gained: by how much the cut shrank. */
int hg_move_levels(const hg_dag *g, int32_t *level, int passes, double *gained, hg_arena *arena, hg_watch *watch);

/* Components of one device, level and `other` number (NULL: one for all; else it must not fall along edges): label [n],
 * a topological order of the quotient. */
int hg_level_components(const hg_dag *g, const int32_t *level, const int32_t *other, int32_t *label, int32_t *count,
                        hg_arena *arena, hg_watch *watch);

/* Levels, 0 and below, of a partition with topological labels: the highest at which each subgraph can be. */
int hg_levels_of(const hg_dag *g, const int32_t *label, int32_t count, int32_t *level, hg_arena *arena,
                 hg_watch *watch);

/* Weight of the edges between different labels. */
int hg_weight_between(const hg_dag *g, const int32_t *label, double *cut, hg_watch *watch);

/* ---- memory_order.c ---- */

/* Renumbers the subgraphs of label [n], 0..count-1 in a topological order, to another one with fewer values alive at the
 * same time, if it finds one and the edges between subgraphs are not too many. */
int hg_number_for_memory(const hg_graph *g, int32_t count, int32_t *label, hg_arena *arena, hg_watch *watch);

#endif
