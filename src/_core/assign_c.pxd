"""The C functions of ``assign/assign.h`` for the Cython module."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from partition_c cimport hg_watch

cdef extern from "assign/assign.h" nogil:
    enum:
        HG_TOO_LARGE

    ctypedef struct hg_arena:
        pass
    int hg_arena_open(hg_arena *arena, size_t size)
    void hg_arena_close(hg_arena *arena)

    ctypedef struct hg_costs:
        int32_t n
        int32_t k
        const double *work
        int32_t num_values
        const int32_t *producer
        const int32_t *indptr
        const int32_t *readers
        const double *size
        const double *latency
        const double *per_unit

    ctypedef struct hg_energy:
        double work
        double transfers
        int64_t num_transfers
    int hg_energy_of(const hg_costs *costs, const int32_t *label, hg_energy *energy, hg_watch *watch)

    ctypedef struct hg_edge:
        int32_t a
        int32_t b
        double forth
        double back
    ctypedef struct hg_network:
        int32_t n
    int hg_build_network(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                         hg_network *net, hg_arena *arena, hg_watch *watch)
    int hg_cut_capacity(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                        const uint8_t *on_sink_side, int64_t *cut, hg_watch *watch)
    int hg_min_cut(int32_t n, const double *excess, const hg_edge *edges, int64_t count, double scale,
                   uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch)
    int hg_max_flow(hg_network *net, uint8_t *on_sink_side, int64_t *flow, hg_arena *arena, hg_watch *watch)

    ctypedef struct hg_move_result:
        int64_t flow
        int64_t cut
        double scale
        int64_t moved
    int hg_move(const hg_costs *costs, int32_t target, int32_t *label, hg_move_result *result, hg_watch *watch)

cdef extern from "assign/memory.h" nogil:
    ctypedef struct hg_values:
        int32_t n
        int32_t num_values
        int64_t num_reads
        const int32_t *producer
        const double *bytes
        const uint8_t *is_constant
        const uint8_t *is_output
        const int32_t *read_value
        const int32_t *read_node
        const double *own
    ctypedef struct hg_ranges:
        int32_t n
    int hg_ranges_open(const hg_values *values, const int32_t *step_of, hg_ranges *ranges, hg_watch *watch)
    void hg_ranges_close(hg_ranges *ranges)
    int hg_range_needs(const hg_ranges *ranges, int32_t begin, int32_t *end, double limit, double *weights,
                       double *activations, double *need, hg_watch *watch)
    int hg_late_order(const hg_values *values, int64_t *order, hg_watch *watch)
    ctypedef struct hg_partitioned:
        int32_t num_devices
        int32_t num_subgraphs
        const int32_t *subgraph
        const int32_t *device
        const int32_t *latest
        const double *bytes_inside
        const uint8_t *known
    ctypedef struct hg_footprint:
        double *weights
        double *peak
        int32_t *peak_node
        int64_t *unknown
        int32_t *first_unknown
    int hg_footprint_of(const hg_values *values, const hg_partitioned *partition, hg_footprint *out, hg_watch *watch)
