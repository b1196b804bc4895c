/* Schedules with devices that work at the same time: the types, and every function that _schedule.pyx calls.
 *
 * A partition runs as steps, one per subgraph, of devices that each belong to a lane; a lane runs one step at a time.
 * Nodes are those of a graph, then the nodes of the costs that stand for the host, which take no time. Functions return
 * HG_OK or a negative code; outputs are the caller's arrays; scratch memory is taken from the arena and left there. */
#ifndef HETERO_SCHEDULE_SCHEDULE_H
#define HETERO_SCHEDULE_SCHEDULE_H

#include "../assign/assign.h"

enum { HG_CYCLE = -32, HG_MOST_LANES = 256 }; /* HG_CYCLE: steps that wait for each other */

typedef struct {
    const hg_costs *costs;
    int32_t n;                              /* nodes of the graph; the nodes of the costs from n on are the host */
    const int32_t *order;                   /* a topological order of the n nodes, or NULL: 0..n-1 is one */
    const int32_t *host_device;             /* [costs->n - n] */
    const int32_t *made_start, *made;       /* values by producer: [costs->n + 1], [num_values] */
    const int32_t *read_start, *read;       /* values by reader: [costs->n + 1], [readers] */
    const double *launch;                   /* [k]: seconds for each step of a device */
    const uint8_t *lane;                    /* [k] */
    const uint8_t *shares;                  /* [k]: whether its work slows the other devices that share */
    double slowdown;                        /* of a sharing device for each other one at work, as a share of its time */
    double hand_over;                       /* seconds until another thread starts a step */
} hg_machine;

static inline int32_t hg_node_at(const hg_machine *m, int32_t i) { return m->order ? m->order[i] : i; }

/* ---- transpose.c ---- */

/* Rows of entries by the number each holds: entry i belongs to row number[i]. start [rows + 1], entry [count]. */
int hg_rows_of(int32_t rows, int64_t count, const int32_t *number, int32_t *start, int32_t *entry, hg_watch *watch);

/* The value of each entry of readers, by reader. */
int hg_values_by_reader(const hg_costs *costs, int32_t *read_start, int32_t *read, hg_watch *watch);

/* ---- steps.c ---- */

/* Steps 0..count-1 with their dependencies. A step also fetches values: the first step of a device that fetches a value
 * pays for its transfer. */
typedef struct {
    int32_t count;
    const uint8_t *lane, *shares;            /* [count] */
    const double *seconds;                   /* [count] */
    const int32_t *next_start, *next;        /* [count + 1]: the steps that wait for each step, with duplicates */
    const int32_t *fetch_start, *fetch;      /* [count + 1]: the numbers of the transfers that each step needs */
    int32_t transfers;
    const double *transfer;                  /* [transfers] */
} hg_steps;

/* The steps of a partition: label [n] in 0..count-1, device_of [count]. */
int hg_partition_steps(const hg_machine *m, const int32_t *label, const int32_t *device_of, int32_t count,
                       hg_steps *steps, hg_arena *arena, hg_watch *watch);

/* ---- simulate.c ---- */

/* A run of the steps as runtime/parallel.py runs them. key [count]: of the ready steps of a lane, the one with the
 * smallest key starts first; NULL: the one with the smallest number. begin, end [count]; sequence [count]: the steps in
 * the order in which they start, or NULL. HG_CYCLE if not all can run. */
int hg_simulate(const hg_steps *steps, const double *key, double slowdown, double hand_over, double *begin,
                double *end, int32_t *sequence, double *makespan, hg_arena *arena, hg_watch *watch);

/* The same one step after the other in the order of their numbers, which must be topological. */
int hg_simulate_in_order(const hg_steps *steps, double *begin, double *end, double *total, hg_arena *arena,
                         hg_watch *watch);

/* key [count]: minus the longest time from the start of a step to the end of the last. */
int hg_step_keys(const hg_steps *steps, double *key, hg_arena *arena, hg_watch *watch);

/* ---- sort.c ---- */

/* Sorts nodes by key, the smallest first; equal keys keep their order. Keys are 0 or below. */
int hg_sort_by_key(const double *key, int32_t *node, int32_t count, hg_arena *arena, hg_watch *watch);

/* ---- list.c ---- */

/* A schedule of single nodes on the devices that they have. Its arrays are by place: nodes of one lane have places next
 * to each other, those of higher rank first. */
typedef struct {
    int32_t *node;       /* [n]: the node of each place */
    uint8_t *device;     /* [n] */
    double *work;        /* [n]: seconds with transfers */
    double *seconds;     /* [n]: the same with a launch, if the node reads a value of another device */
    int32_t *next_start; /* [n + 1] */
    uint32_t *next;      /* the readers of each place: 2 * place, + 1 if on another device; one entry for each value */
    int32_t *sequence;   /* [n]: the places in the order in which they start */
    double *end;         /* [n] */
    double makespan;
} hg_node_schedule;

int hg_schedule_nodes(const hg_machine *m, const int32_t *device, hg_node_schedule *schedule, hg_arena *arena,
                      hg_watch *watch);

/* The constants of nodes, and the bytes that each device has for them. */
typedef struct {
    int32_t constants;
    const int32_t *read_start, *read; /* the constants that each node reads, each once: [n + 1], [reads] */
    const double *size;               /* [constants] */
    const double *own;                /* [n]: bytes of constants that only the node has */
    const double *bytes;              /* [k], may be infinite */
} hg_room;

/* device [n]: by list scheduling, to the device on which each node finishes first; room: of those that have room for its
 * constants, if any has. NULL: without limits. */
int hg_assign_nodes(const hg_machine *m, const hg_room *room, int32_t *device, hg_arena *arena, hg_watch *watch);

/* ---- runs.c ---- */

/* label [n]: the components of runs of the node schedule, in any order; *count of them. */
int hg_runs(const hg_machine *m, const int32_t *device, int32_t *label, int32_t *count, hg_arena *arena,
            hg_watch *watch);

/* ---- bound.c ---- */

/* Seconds; no assignment and partition take less. */
int hg_makespan_bound(const hg_machine *m, double *bound, hg_arena *arena, hg_watch *watch);

#endif
