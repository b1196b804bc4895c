"""The C functions of ``schedule/schedule.h`` for the Cython module."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from assign_c cimport hg_arena, hg_costs
from partition_c cimport hg_watch

cdef extern from "schedule/schedule.h" nogil:
    enum:
        HG_CYCLE

    ctypedef struct hg_machine:
        const hg_costs *costs
        int32_t n
        const int32_t *order
        const int32_t *host_device
        const int32_t *made_start
        const int32_t *made
        const int32_t *read_start
        const int32_t *read
        const double *launch
        const uint8_t *lane
        const uint8_t *shares
        double slowdown
        double hand_over

    ctypedef struct hg_steps:
        int32_t count
        const uint8_t *lane
        const uint8_t *shares
        const double *seconds
        const int32_t *next_start
        const int32_t *next
        const int32_t *fetch_start
        const int32_t *fetch
        int32_t transfers
        const double *transfer

    ctypedef struct hg_room:
        int32_t constants
        const int32_t *read_start
        const int32_t *read
        const double *size
        const double *own
        const double *bytes

    int hg_rows_of(int32_t rows, int64_t count, const int32_t *number, int32_t *start, int32_t *entry, hg_watch *watch)
    int hg_values_by_reader(const hg_costs *costs, int32_t *read_start, int32_t *read, hg_watch *watch)
    int hg_partition_steps(const hg_machine *m, const int32_t *label, const int32_t *device_of, int32_t count,
                           hg_steps *steps, hg_arena *arena, hg_watch *watch)
    int hg_simulate(const hg_steps *steps, const double *key, double slowdown, double hand_over, double *begin,
                    double *end, int32_t *sequence, double *makespan, hg_arena *arena, hg_watch *watch)
    int hg_simulate_in_order(const hg_steps *steps, double *begin, double *end, double *total, hg_arena *arena,
                             hg_watch *watch)
    int hg_step_keys(const hg_steps *steps, double *key, hg_arena *arena, hg_watch *watch)
    int hg_assign_nodes(const hg_machine *m, const hg_room *room, int32_t *device, hg_arena *arena, hg_watch *watch)
    int hg_runs(const hg_machine *m, const int32_t *device, int32_t *label, int32_t *count, hg_arena *arena,
                hg_watch *watch)
    int hg_makespan_bound(const hg_machine *m, double *bound, hg_arena *arena, hg_watch *watch)
