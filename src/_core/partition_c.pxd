"""The C functions of ``partition/graph.h`` for the Cython modules."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "partition/graph.h" nogil:
    enum:
        HG_OK
        HG_NO_MEMORY
        HG_INTERRUPTED
        HG_OVER_BUDGET
        HG_POLL_EVERY
        HG_POLL_NS
        HG_VALID
        HG_BAD_ID
        HG_UNUSED_ID
        HG_MIXED_DEVICES
        HG_DISCONNECTED
        HG_NOT_CONVEX
        HG_CYCLIC
        HG_UNORDERED
        HG_NOT_MAXIMAL
        HG_CHECK_ORDERED
        HG_CHECK_MAXIMAL
        HG_ROOT
        HG_MERGE
        HG_FAIL
        HG_ROLLBACK
        HG_CHOOSE
    const int64_t HG_DOCUMENTED_BYTES

    ctypedef struct hg_watch:
        int (*poll)() noexcept nogil
        int64_t left
        int64_t polled

    ctypedef struct hg_graph:
        int32_t n
        int64_t m
        const int32_t *indptr
        const int32_t *indices
        const int32_t *pred_indptr
        const int32_t *pred_indices
        const int32_t *order

    ctypedef struct hg_trace:
        signed char *actions
        int32_t *nodes
        int64_t count

    ctypedef struct hg_closure:
        int32_t n
        int64_t bytes
        int64_t at_least
        int64_t at_most

    ctypedef struct hg_verdict:
        int rule
        int32_t a
        int32_t b
        int32_t length

    int64_t hg_read_numbers(const void *values, int wide, int64_t count, int64_t limit, int32_t *out)
    int64_t hg_read_devices(const void *values, int wide, int64_t count, uint8_t *out)
    int64_t hg_add_weights(const double *given, int64_t count, const int32_t *slot, double *merged)

    int hg_first_self_loop(const int32_t *src, const int32_t *dst, int64_t m, int64_t *first, hg_watch *watch)
    int hg_build(int32_t n, int64_t m, const int32_t *src, const int32_t *dst, int32_t *indptr, int32_t *indices,
                 int32_t *slot, int64_t *unique, hg_watch *watch)
    int hg_transpose(int32_t n, int64_t m, const int32_t *indptr, const int32_t *indices, int32_t *pred_indptr,
                     int32_t *pred_indices, hg_watch *watch)
    int hg_check_rows(int32_t n, int64_t m, const int32_t *indptr, const int32_t *indices, int64_t *bad_pointer,
                      int32_t *self_loop, int *ascending, hg_watch *watch)
    int hg_row_of_entry(int32_t n, const int32_t *indptr, int32_t *src, hg_watch *watch)
    int hg_is_ordered(int32_t n, const int32_t *indptr, const int32_t *indices, int *ordered, hg_watch *watch)
    int hg_kahn(int32_t n, const int32_t *indptr, const int32_t *indices, int32_t *order, int32_t *done,
                int32_t *cycle, int32_t *cycle_length, hg_watch *watch)

    int hg_linear(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of, int32_t *count,
                  int64_t *cut, hg_watch *watch)
    int hg_depth_height(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of,
                        int32_t *count, int64_t *cut, hg_watch *watch)
    int hg_auto(const hg_graph *g, const uint8_t *device, const double *weight, int thorough, int32_t *subgraph_of,
                int32_t *device_of, int32_t *count, int *maximal, hg_watch *watch)
    int hg_lower_bound(const hg_graph *g, const uint8_t *device, int32_t *bound, hg_watch *watch)
    int hg_documented(const hg_graph *g, const uint8_t *device, int32_t *label, int32_t *count, hg_trace *trace,
                      hg_watch *watch)
    void hg_trace_free(hg_trace *trace)
    int hg_limit(const hg_graph *g, const uint8_t *device, const double *weight, int32_t max_nodes, int across,
                 int32_t *label, int32_t *device_of, int32_t *count, hg_watch *watch)

    int hg_fall_back(int32_t n, const int32_t *label, int32_t count, const int64_t *min_nodes, int devices,
                     const uint8_t *allowed, uint8_t *device, int *moved, hg_watch *watch)

    int hg_cut(const hg_graph *g, const int32_t *label, const double *weight, int64_t *edges, double *total,
               hg_watch *watch)
    int hg_number(const hg_graph *g, const uint8_t *device, int32_t count, int32_t *label, int32_t *device_of,
                  hg_watch *watch)
    int hg_members(int32_t n, const int32_t *label, const int32_t *order, int32_t count, int32_t *start,
                   int32_t *member, hg_watch *watch)
    int hg_quotient_edges(const hg_graph *g, const int32_t *label, int32_t *src, int32_t *dst, hg_watch *watch)

    int hg_closure_build(const hg_graph *g, hg_closure *closure, int64_t max_bytes, hg_watch *watch)
    void hg_closure_free(hg_closure *closure)
    int hg_closure_reaches(const hg_closure *closure, int32_t u, int32_t v)
    int hg_closure_between(const hg_closure *closure, int32_t u, int32_t v, int32_t **nodes, int32_t *count,
                           hg_watch *watch)

    int hg_check(const hg_graph *g, const uint8_t *device, const int32_t *label, int flags, hg_verdict *verdict,
                 int32_t *witness, hg_watch *watch)

cdef extern from "partition/path_cache.h" nogil:
    ctypedef struct hg_path_set:
        int32_t count
        const int32_t *nodes

    ctypedef struct hg_path_cache:
        int64_t max_bytes
        int64_t bytes
        int64_t count

    const hg_path_set *hg_path_cache_find(hg_path_cache *cache, int32_t u, int32_t v)
    void hg_path_cache_put(hg_path_cache *cache, int32_t u, int32_t v, const int32_t *nodes, int32_t count)
    void hg_path_cache_close(hg_path_cache *cache)
