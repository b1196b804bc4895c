/* Cost-aware assignment: the types and every entry point that _assign.pyx calls.
 *
 * Nodes 0..n-1 get labels (devices) 0..k-1. A labelling costs the work of every node on its device, and a transfer for
 * each value and each device, other than its producer's, on which it is read: once, however many nodes read it there.
 * Functions return HG_OK or a negative code; outputs are the caller's arrays, scratch memory lives inside the call. */
#ifndef HETERO_ASSIGN_ASSIGN_H
#define HETERO_ASSIGN_ASSIGN_H

#include <math.h>

#include "../partition/arena.h"
#include "../partition/graph.h"

enum { HG_TOO_LARGE = -16 }; /* more vertices or arcs than int32 numbers */

typedef struct {
    int32_t n, k;
    const double *work;       /* [k * n], of device d and node v at d * n + v; infinite: not possible */
    int32_t num_values;
    const int32_t *producer;  /* [num_values] */
    const int32_t *indptr;    /* [num_values + 1]: where the readers of a value start */
    const int32_t *readers;   /* none twice for one value; a producer may be among them */
    const double *size;       /* [num_values] */
    const double *latency;    /* [k * k], from device a to b at a * k + b */
    const double *per_unit;   /* [k * k]: a transfer costs latency + size * per_unit */
} hg_costs;

static inline double hg_transfer(const hg_costs *c, int32_t value, int from, int to)
{
    const int link = from * c->k + to;
    return from == to ? 0 : c->latency[link] + c->size[value] * c->per_unit[link];
}

/* ---- energy.c ---- */

typedef struct {
    double work, transfers; /* infinite where a node lies on a device that cannot take it */
    int64_t num_transfers;
} hg_energy;

int hg_energy_of(const hg_costs *costs, const int32_t *label, hg_energy *energy, hg_watch *watch);

/* ---- max_flow.c ---- */

/* A network with one arc and its twin, in the other direction, for each edge: those that leave v are start[v] to
 * start[v + 1] - 1. What the source gives a vertex less what the sink takes from it is its excess. Finite capacities
 * and positive excesses add up to 2^60 at most, so that no sum overflows; HG_UNLIMITED is more than all of them. */
#define HG_UNLIMITED ((int64_t)1 << 61)
typedef struct {
    int32_t head, twin; /* where it leads, and the arc back */
    int64_t residual;   /* its capacity; then what is left of it */
} hg_arc;
typedef struct {
    int32_t n, arcs;
    const int32_t *start; /* [n + 1] */
    hg_arc *arc;          /* [arcs] */
    int64_t *excess;      /* [n]; then what did not reach the sink (positive) or is left of the sink's capacity */
} hg_network;

/* A maximum flow, as far as a minimum cut needs it: on_sink_side [n] marks the least of all minimum cuts' sink sides, the
 * same whatever the way to the flow. *flow: its value. */
int hg_max_flow(hg_network *net, uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch);

/* ---- network.c ---- */

/* An edge: capacities from a to b and back, infinite for HG_UNLIMITED. */
typedef struct {
    int32_t a, b;
    double forth, back;
} hg_edge;

/* Capacities are rounded to multiples of 1 / scale. A power of two, so that their sum `total` stays within bounds. */
double hg_scale_for(double total);
static inline int64_t hg_scaled_capacity(double capacity, double scale)
{
    return isinf(capacity) ? HG_UNLIMITED : (int64_t)llrint(capacity * scale);
}

/* The network of edges between n vertices, with these excesses [n]. */
int hg_build_network(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                     hg_network *net, hg_arena *arena, hg_watch *watch);

/* What crosses from the source side to the sink side. */
int hg_cut_capacity(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                    const uint8_t *on_sink_side, int64_t *cut, hg_watch *watch);

/* ---- reduce.c ---- */

/* The side of a vertex that was removed: bit x_a + 2 x_b of `table`, where x is 1 on the sink side; 0 for no vertex,
 * which a or b is when it is -1. */
typedef struct {
    int32_t v, a, b;
    uint8_t table;
} hg_side_rule;
typedef struct {
    hg_side_rule *rule; /* [rules], in the order of removal */
    int32_t rules;
    const int32_t *vertex; /* [core.n]: which vertex each of the core's is */
    int64_t constant;      /* what the cut costs beside the core's cut */
} hg_reduction;

/* The network of these edges as far as it takes a maximum flow to cut it; `found`: the sides of all else. */
int hg_reduce(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale, hg_network *core,
              hg_reduction *found, hg_arena *arena, hg_watch *watch);
void hg_restore_sides(const hg_reduction *found, const hg_network *core, const uint8_t *core_side,
                      uint8_t *on_sink_side);

/* As hg_build_network and hg_max_flow, over the reduction: the same sides, the same flow. */
int hg_min_cut(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
               uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch);

/* ---- move.c ---- */

/* The best of all labellings in which every node keeps its label or gets `target`; among those of equal cost the one that
 * changes the fewest nodes. label [n] is changed. flow and cut: two values that are equal if all is right, in the
 * scaled integers of the computation; *scale: units of them per unit of cost. Exact for two devices; for more where
 * costs of links allow it, else an improvement or nothing: see move.c. */
typedef struct {
    int64_t flow, cut;
    double scale;
    int64_t moved; /* nodes */
} hg_move_result;

int hg_move(const hg_costs *costs, int32_t target, int32_t *label, hg_move_result *result, hg_watch *watch);

#endif
