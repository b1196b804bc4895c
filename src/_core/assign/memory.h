/* Memory of assignments: the types and functions of memory.c for _assign.pyx. */
#ifndef HETERO_ASSIGN_MEMORY_H
#define HETERO_ASSIGN_MEMORY_H

#include "../partition/graph.h"

/* The values of a graph: see hetero.assign.memory.Values. Nodes are numbered in a topological order. */
typedef struct {
    int32_t n, num_values;
    int64_t num_reads;
    const int32_t *producer; /* [num_values]; -1: none */
    const double *bytes;
    const uint8_t *is_constant, *is_output;
    const int32_t *read_value, *read_node; /* [num_reads], by value, then by node; no pair twice */
    const double *own;                     /* [n]: bytes of constants inside the node */
} hg_values;

#define HG_CONSTANT INT32_MAX
typedef struct {
    double bytes;
    int32_t previous, made; /* steps: of the read of this value before it, or -1; that makes it, -1 or HG_CONSTANT */
} hg_range_read;
typedef struct {
    double bytes;
    int32_t made; /* step that makes the value */
} hg_range_end;

/* Reads, values made, and values read for the last time, in rows by step. Outputs are never read for the last time. */
typedef struct {
    int32_t n;
    int32_t *read_start, *made_start, *end_start; /* [n + 1] */
    hg_range_read *read;
    double *made; /* bytes */
    hg_range_end *end;
    double *own;
} hg_ranges;

/* step_of [n]: the step of each node, a topological order. Close the ranges in any case. */
int hg_ranges_open(const hg_values *values, const int32_t *step_of, hg_ranges *ranges, hg_watch *watch);
void hg_ranges_close(hg_ranges *ranges);

/* The bytes of the ranges of steps begin..e, for each e up to *end: weights and activations [*end - begin], or NULL.
 * Ends early before the first range that needs more than `limit`, and sets *end. *need: bytes of the range begin..*end. */
int hg_range_needs(const hg_ranges *ranges, int32_t begin, int32_t *end, double limit, double *weights,
                   double *activations, double *need, hg_watch *watch);

/* order [n]: by number, but nodes that do not depend on an input of the model just before the first that needs them. */
int hg_late_order(const hg_values *values, int64_t *order, hg_watch *watch);

/* ---- what a partition needs on each device ---- */

typedef struct {
    int32_t num_devices, num_subgraphs;
    const int32_t *subgraph;     /* [n], in the order in which they run */
    const int32_t *device;       /* [num_subgraphs] */
    const int32_t *latest;       /* [num_subgraphs]: the last subgraph that begins before each one ends */
    const double *bytes_inside;  /* [num_devices * num_values], of values that stay in their subgraph; NULL: `bytes` */
    const uint8_t *known;        /* [num_values] */
} hg_partitioned;

/* Each [num_devices]; peak_node and first_unknown: -1 for none. */
typedef struct {
    double *weights, *peak;
    int32_t *peak_node;
    int64_t *unknown;
    int32_t *first_unknown;
} hg_footprint;

int hg_footprint_of(const hg_values *values, const hg_partitioned *partition, hg_footprint *out, hg_watch *watch);

#endif
