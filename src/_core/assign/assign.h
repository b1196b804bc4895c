/* Assignment by cost: the types, and every function that _assign.pyx calls.
 *
 * A labeling gives each node 0..n-1 a label (device) 0..k-1. It costs the work of each node on its device, and for
 * each value one transfer to each device, other than its producer's, where nodes read it, however many do. Functions
 * return HG_OK or a negative code; outputs are the caller's arrays, scratch memory lives inside the call. */
#ifndef HETERO_ASSIGN_ASSIGN_H
#define HETERO_ASSIGN_ASSIGN_H

#include <math.h>

#include "../partition/arena.h"
#include "../partition/graph.h"

enum { HG_TOO_LARGE = -16 }; /* more vertices or arcs than int32 numbers */

typedef struct {
    int32_t n, k;
    const double *work;       /* [k * n], of device d and node v at d * n + v; infinite: not supported */
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
    double work, transfers; /* work is infinite if a node is on a device that does not support it */
    int64_t num_transfers;
} hg_energy;

int hg_energy_of(const hg_costs *costs, const int32_t *label, hg_energy *energy, hg_watch *watch);

/* ---- max_flow.c ---- */

/* A flow network in compressed rows. Each edge is an arc and its twin in the other direction; the arcs that leave v
 * are arc[start[v]] to arc[start[v + 1] - 1]. The source and the sink are implicit: excess[v] is the capacity from the
 * source to v if positive, the capacity from v to the sink if negative. Finite capacities and positive excesses add up
 * to 2^60 at most, so no sum overflows; HG_UNLIMITED is more than all of them. */
#define HG_UNLIMITED ((int64_t)1 << 61)
typedef struct {
    int32_t head, twin; /* the vertex that it leads to, and the arc back */
    int64_t residual;   /* capacity; after hg_max_flow the residual capacity */
} hg_arc;
typedef struct {
    int32_t n, arcs;
    const int32_t *start; /* [n + 1] */
    hg_arc *arc;          /* [arcs] */
    int64_t *excess;      /* [n]; after hg_max_flow: flow left at the vertex, or (negative) residual to the sink */
} hg_network;

/* A maximum preflow, which is enough for a minimum cut. on_sink_side [n]: marks the smallest sink side of all minimum
 * cuts, which does not depend on the flow found. *flow: the value of the flow. */
int hg_max_flow(hg_network *net, uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch);

/* ---- network.c ---- */

/* An edge: capacities from a to b and back, infinite for HG_UNLIMITED. */
typedef struct {
    int32_t a, b;
    double forth, back;
} hg_edge;

/* The scale that makes capacities integers: a power of two, such that the scaled sum `total` of all finite capacities
 * stays within the bound of hg_network. Capacities are rounded to multiples of 1 / scale. */
double hg_scale_for(double total);
static inline int64_t hg_scaled_capacity(double capacity, double scale)
{
    return isinf(capacity) ? HG_UNLIMITED : (int64_t)llrint(capacity * scale);
}

/* The network of edges between n vertices, with these excesses [n]. */
int hg_build_network(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                     hg_network *net, hg_arena *arena, hg_watch *watch);

/* *cut: the scaled capacity from the source side to the sink side. */
int hg_cut_capacity(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                    const uint8_t *on_sink_side, int64_t *cut, hg_watch *watch);

/* ---- reduce.c ---- */

/* The side of a removed vertex v by the sides of vertices a and b: x_v is bit x_a + 2 x_b of `table`, where x is 1 on
 * the sink side. a or b is -1 for no vertex, whose x is 0. */
typedef struct {
    int32_t v, a, b;
    uint8_t table;
} hg_side_rule;
typedef struct {
    hg_side_rule *rule; /* [rules], in the order of removal */
    int32_t rules;
    const int32_t *vertex; /* [core.n]: the vertex of the given network that each vertex of the core is */
    int64_t constant;      /* cut of the given network = cut of the core + constant */
} hg_reduction;

/* Reduces the network of these edges to *core, which a maximum flow has to cut; *found: the sides of the removed
 * vertices, in terms of the core's. */
int hg_reduce(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale, hg_network *core,
              hg_reduction *found, hg_arena *arena, hg_watch *watch);
void hg_restore_sides(const hg_reduction *found, const hg_network *core, const uint8_t *core_side,
                      uint8_t *on_sink_side);

/* The same sides and the same flow as hg_build_network and hg_max_flow, by way of the reduction. */
int hg_min_cut(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
               uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch);

/* ---- move.c ---- */

/* Changes label [n] to the cheapest labeling in which every node keeps its label or gets `target`; among equally
 * cheap ones, to the one that changes the fewest nodes. Exact for two devices. For more, exact if the costs of the
 * links allow it (see move.c); otherwise the result never costs more than before. result: flow and cut are the values
 * of the maximum flow and of the minimum cut, in scaled integers, equal unless there is a bug; scale is their units
 * per unit of cost. */
typedef struct {
    int64_t flow, cut;
    double scale;
    int64_t moved; /* nodes */
} hg_move_result;

int hg_move(const hg_costs *costs, int32_t target, int32_t *label, hg_move_result *result, hg_watch *watch);

#endif
