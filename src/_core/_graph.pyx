"""Graph algorithms over CSR arrays: the border between NumPy and the C of ``partition/``.

Every function here checks its arguments, allocates its outputs, and leaves the GIL once for the whole computation.
``hetero.partition`` is the public face.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

from hetero.errors import PartitionError

cdef extern from "Python.h":
    # Declared without "except": the exception stays set while the C functions unwind.
    int PyErr_CheckSignals() noexcept

cdef extern from "partition/graph.h" nogil:
    enum:
        HG_OK
        HG_NO_MEMORY
        HG_INTERRUPTED
        HG_OVER_BUDGET
        HG_POLL_EVERY
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

    ctypedef struct hg_trace:
        signed char *actions
        int32_t *nodes
        int64_t count

    ctypedef struct hg_watch:
        int (*poll)() noexcept nogil
        int64_t left

    ctypedef struct hg_graph:
        int32_t n
        int64_t m
        const int32_t *indptr
        const int32_t *indices
        const int32_t *pred_indptr
        const int32_t *pred_indices
        const int32_t *order

    ctypedef struct hg_verdict:
        int rule
        int32_t a
        int32_t b
        int32_t length

    int64_t hg_first_outside32(const int32_t *values, int64_t count, int64_t limit)
    int64_t hg_narrow64(const int64_t *values, int64_t count, int64_t limit, int32_t *narrow)
    int64_t hg_devices32(const int32_t *values, int64_t count, uint8_t *narrow)
    int64_t hg_devices64(const int64_t *values, int64_t count, uint8_t *narrow)
    int64_t hg_sum_weights(const double *given, int64_t count, const int32_t *slot, double *merged)
    int64_t hg_first_self_loop(const int32_t *src, const int32_t *dst, int64_t m)
    int hg_build(int32_t n, int64_t m, const int32_t *src, const int32_t *dst, int32_t *indptr, int32_t *indices,
                 int32_t *slot, int64_t *unique, hg_watch *watch)
    int hg_transpose(int32_t n, int64_t m, const int32_t *indptr, const int32_t *indices, int32_t *pred_indptr,
                     int32_t *pred_indices, hg_watch *watch)
    int hg_indptr_valid(int32_t n, int64_t m, const int32_t *indptr, int64_t *where)
    int32_t hg_first_self_row(int32_t n, const int32_t *indptr, const int32_t *indices)
    int hg_rows_ascend(int32_t n, const int32_t *indptr, const int32_t *indices)
    void hg_row_of_entry(int32_t n, const int32_t *indptr, int32_t *src)
    int hg_is_ordered(int32_t n, const int32_t *indptr, const int32_t *indices)
    int hg_kahn(int32_t n, const int32_t *indptr, const int32_t *indices, int32_t *order, int32_t *done,
                int32_t *cycle, int32_t *cycle_length, hg_watch *watch)
    int hg_linear(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of, int32_t *count,
                  hg_watch *watch)
    int hg_auto(const hg_graph *g, const uint8_t *device, const double *weight, int32_t *subgraph_of,
                int32_t *device_of, int32_t *count, hg_watch *watch)
    int hg_documented(const hg_graph *g, const uint8_t *device, int32_t *label, int32_t *count, hg_trace *trace,
                      hg_watch *watch)
    int hg_greedy(const hg_graph *g, const uint8_t *device, int32_t *label, int32_t *count, hg_watch *watch)
    void hg_trace_free(hg_trace *trace)
    int hg_limit(const hg_graph *g, const uint8_t *device, const double *weight, int32_t max_nodes, int across,
                 int32_t *label, int32_t *device_of, int32_t *count, hg_watch *watch)
    int hg_cut(const hg_graph *g, const int32_t *label, const double *weight, int64_t *edges, double *total,
               hg_watch *watch)
    int hg_number(const hg_graph *g, const uint8_t *device, int32_t count, int32_t *label, int32_t *device_of,
                  hg_watch *watch)
    int hg_members(int32_t n, const int32_t *label, const int32_t *order, int32_t count, int32_t *start,
                   int32_t *member, hg_watch *watch)
    void hg_quotient_edges(const hg_graph *g, const int32_t *label, int32_t *src, int32_t *dst)
    ctypedef struct hg_closure:
        int32_t n
        int64_t bytes

    int hg_closure_build(const hg_graph *g, hg_closure *closure, int64_t max_bytes, hg_watch *watch)
    void hg_closure_free(hg_closure *closure)
    int hg_closure_reaches(const hg_closure *closure, int32_t u, int32_t v)
    void hg_closure_between(const hg_closure *closure, int32_t u, int32_t v, uint8_t *mask)
    int hg_check(const hg_graph *g, const uint8_t *device, const int32_t *label, int flags, hg_verdict *verdict,
                 int32_t *witness, hg_watch *watch)


# ---- signals, errors, buffers ----

cdef int poll_signals() noexcept with gil:
    """Non-zero when a signal handler raised; the exception stays set for `finish` to let out."""
    return PyErr_CheckSignals()


cdef inline hg_watch new_watch() noexcept nogil:
    cdef hg_watch watch
    watch.poll = poll_signals
    watch.left = HG_POLL_EVERY
    return watch


cdef int reraise() except -1:
    return -1


cdef int finish(int status) except -1:
    """Turns a status of the C functions into an exception; HG_INTERRUPTED has one set already."""
    if status == HG_INTERRUPTED:
        reraise()
    if status == HG_NO_MEMORY:
        raise MemoryError("not enough memory for the graph algorithm's scratch arrays")
    return 0


cdef int32_t *out32(int32_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef const int32_t *in32(const int32_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef object frozen(object array):
    array.setflags(write=False)
    return array


cdef object index_array(object values, str name):
    """A contiguous int32 or int64 array, or PartitionError for another dtype or rank. An empty list is fine."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise PartitionError(f"{name} must be a one-dimensional array, found {array.ndim} dimensions")
    if array.dtype.num != np_int32 and array.dtype.num != np_int64 or not array.dtype.isnative:
        if array.size:
            raise PartitionError(f"{name} must be an array of int32 or int64, found dtype {array.dtype}")
        return np.empty(0, np.int32)
    return np.ascontiguousarray(array)


cdef int np_int32 = np.dtype(np.int32).num
cdef int np_int64 = np.dtype(np.int64).num


cdef object vertices(object values, int64_t limit, str name):
    """`values` as a contiguous int32 array, each within 0..limit-1, else PartitionError naming the first that is not."""
    array = index_array(values, name)
    cdef int64_t count = array.shape[0]
    cdef int64_t bad
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef int32_t[::1] out
    if count == 0:
        return np.empty(0, np.int32)
    if array.dtype.itemsize == 4:
        narrow = array
        with nogil:
            bad = hg_first_outside32(&narrow[0], count, limit)
        result = array
    else:
        wide = array
        result = np.empty(count, np.int32)
        out = result
        with nogil:
            bad = hg_narrow64(&wide[0], count, limit, &out[0])
    if bad < count:
        raise PartitionError(f"{name}[{bad}] = {array[bad]} is no node: expected 0 to {limit - 1} ({limit} nodes)")
    return result


cdef object devices(object values, int32_t n):
    """Device numbers as uint8 [n], or PartitionError."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise PartitionError(f"device must be a one-dimensional array, found {array.ndim} dimensions")
    if array.shape[0] != n:
        raise PartitionError(f"device must hold one number per node: expected {n}, found {array.shape[0]}")
    result = np.empty(n, np.uint8)
    if n == 0:
        return result
    cdef str kind = array.dtype.kind
    if kind != "i" and kind != "u":
        raise PartitionError(f"device must be an array of integers, found dtype {array.dtype}")
    cdef uint8_t[::1] out = result
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef int64_t bad
    cdef int num = array.dtype.num
    if num == np_int32 and array.dtype.isnative:
        narrow = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        bad = hg_devices32(&narrow[0], n, &out[0])
    else:
        if kind == "u" and array.dtype.itemsize == 8:
            array = np.minimum(array, 255)
        wide = np.ascontiguousarray(array, np.int64)
        bad = hg_devices64(&wide[0], n, &out[0])
    if bad < n:
        raise PartitionError(f"device[{bad}] = {array[bad]} is no device number: expected 0 to 254")
    return result


# ---- the graph ----

@cython.final
@cython.auto_pickle(False)
cdef class Csr:
    """A directed acyclic graph: successor and predecessor rows, checked, immutable."""
    cdef hg_graph c
    cdef readonly object indptr
    cdef readonly object indices
    cdef readonly object pred_indptr
    cdef readonly object pred_indices
    cdef object _order  # None: 0..n-1
    cdef object _slot  # position in indices of each edge as given; None: the same
    cdef int64_t _given  # number of edges as given

    @property
    def num_nodes(self):
        return self.c.n

    @property
    def num_edges(self):
        return self.c.m

    def topological_order(self):
        """int32 [num_nodes], read-only. The numbers themselves when every edge ascends, else Kahn's order."""
        if self._order is None:
            self._order = frozen(np.arange(self.c.n, dtype=np.int32))
        return self._order

    def edge_weights(self, given):
        """Weights of the edges as given, summed into float64 [num_edges] in the order of `indices`."""
        array = np.asarray(given)
        if array.ndim != 1 or array.shape[0] != self._given:
            raise PartitionError(
                f"edge_weight must hold one number per edge as given to Graph: expected shape ({self._given},), "
                f"found {array.shape}"
            )
        if array.dtype.kind not in "iuf" and array.size:
            raise PartitionError(f"edge_weight must be an array of real numbers, found dtype {array.dtype}")
        cdef const double[::1] values = np.ascontiguousarray(array, np.float64)
        cdef const int32_t[::1] slot
        cdef const int32_t *slots = NULL
        result = np.zeros(self.c.m, np.float64)
        cdef double[::1] out = result
        cdef int64_t bad
        if self._given == 0:
            return result
        if self._slot is not None:
            slot = self._slot
            slots = &slot[0]
        with nogil:
            bad = hg_sum_weights(&values[0], self._given, slots, &out[0])
        if bad < self._given:
            raise PartitionError(f"edge_weight[{bad}] = {array[bad]}: expected a finite number, zero or more")
        return result


cdef object cycle_error(object nodes):
    cdef int limit = 30
    names = [str(v) for v in nodes[:limit].tolist()]
    if len(nodes) > limit:
        names.append(f"... ({len(nodes)} nodes)")
    else:
        names.append(names[0])
    return PartitionError(f"the graph has a cycle, so no order to run its nodes in: {' -> '.join(names)}")


cdef Csr finish_csr(object indptr, object indices, object slot, int64_t given):
    """Predecessor rows and topological order over checked successor rows; PartitionError for a cycle."""
    cdef Csr csr = Csr.__new__(Csr)
    cdef int32_t n = <int32_t>(indptr.shape[0] - 1)
    cdef int64_t m = indices.shape[0]
    pred_indptr = np.empty(n + 1, np.int32)
    pred_indices = np.empty(m, np.int32)
    cdef const int32_t *rows = in32(indptr)
    cdef const int32_t *entries = in32(indices)
    cdef int32_t *pred_rows = out32(pred_indptr)
    cdef int32_t *pred_entries = out32(pred_indices)
    cdef int32_t *order
    cdef int32_t *cycle
    cdef int32_t done = n, cycle_length = 0
    cdef int status, ordered
    cdef hg_watch watch = new_watch()
    with nogil:
        ordered = hg_is_ordered(n, rows, entries)
    if not ordered:
        order_array = np.empty(n, np.int32)
        cycle_array = np.empty(n, np.int32)
        order = out32(order_array)
        cycle = out32(cycle_array)
        with nogil:
            status = hg_kahn(n, rows, entries, order, &done, cycle, &cycle_length, &watch)
        finish(status)
        if done < n:
            raise cycle_error(cycle_array[:cycle_length])
        csr._order = frozen(order_array)
    with nogil:
        status = hg_transpose(n, m, rows, entries, pred_rows, pred_entries, &watch)
    finish(status)
    csr.indptr = frozen(indptr)
    csr.indices = frozen(indices)
    csr.pred_indptr = frozen(pred_indptr)
    csr.pred_indices = frozen(pred_indices)
    csr._slot = slot
    csr._given = given
    csr.c.n = n
    csr.c.m = m
    csr.c.indptr = rows
    csr.c.indices = entries
    csr.c.pred_indptr = pred_rows
    csr.c.pred_indices = pred_entries
    csr.c.order = NULL if ordered else in32(csr._order)
    return csr


cdef Csr build(int32_t n, object src, object dst):
    cdef int64_t m = src.shape[0]
    cdef const int32_t *sources = in32(src)
    cdef const int32_t *targets = in32(dst)
    indptr = np.empty(n + 1, np.int32)
    indices = np.empty(m, np.int32)
    slot = np.empty(m, np.int32)
    cdef int32_t *rows = out32(indptr)
    cdef int32_t *entries = out32(indices)
    cdef int32_t *slots = out32(slot)
    cdef int64_t unique = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_build(n, m, sources, targets, rows, entries, slots, &unique, &watch)
    finish(status)
    if unique < m:
        indices = indices[:unique].copy()
    return finish_csr(indptr, indices, slot, m)


def csr_from_edges(src, dst, num_nodes):
    """`Csr` of edges src[i] -> dst[i] over nodes 0..num_nodes-1; PartitionError for anything else."""
    cdef object limit = node_count(num_nodes)
    if np.ndim(src) == 1 and np.ndim(dst) == 1 and len(src) != len(dst):
        raise PartitionError(f"src and dst must have one entry per edge each, found {len(src)} and {len(dst)}")
    sources = vertices(src, limit, "src")
    targets = vertices(dst, limit, "dst")
    cdef const int32_t[::1] a = sources
    cdef const int32_t[::1] b = targets
    cdef int64_t m = a.shape[0]
    cdef int64_t loop = m
    if m > MAX_COUNT:
        raise PartitionError(f"{m} edges are too many: at most {MAX_COUNT}")
    if m:
        with nogil:
            loop = hg_first_self_loop(&a[0], &b[0], m)
    if loop < m:
        raise PartitionError(f"edge {loop} is a self-loop: node {a[loop]} reads its own output")
    return build(limit, sources, targets)


def csr_from_rows(indptr, indices):
    """`Csr` of rows: v's successors are indices[indptr[v]:indptr[v + 1]]; PartitionError for anything else."""
    pointers = index_array(indptr, "indptr")
    if pointers.shape[0] == 0:
        raise PartitionError("indptr must have num_nodes + 1 entries, found none")
    cdef int64_t n = pointers.shape[0] - 1
    node_count(n)
    cdef int64_t m = np.shape(indices)[0] if np.ndim(indices) == 1 else 0
    if m > MAX_COUNT:
        raise PartitionError(f"{m} edges are too many: at most {MAX_COUNT}")
    entries = vertices(indices, n, "indices")
    if pointers.dtype.itemsize == 8:
        pointers = np.clip(pointers, -1, MAX_COUNT).astype(np.int32)
    cdef const int32_t *rows = in32(pointers)
    cdef const int32_t *values = in32(entries)
    cdef int32_t count = <int32_t>n
    cdef int64_t where = 0
    cdef int32_t loop
    cdef int ascend
    if not hg_indptr_valid(count, m, rows, &where):
        raise PartitionError(
            f"indptr must rise from 0 to the number of edges {m}: indptr[{where}] = {np.asarray(indptr)[where]}"
        )
    with nogil:
        loop = hg_first_self_row(count, rows, values)
        ascend = hg_rows_ascend(count, rows, values)
    if loop < count:
        raise PartitionError(f"row {loop} of indices holds a self-loop: node {loop} reads its own output")
    if ascend:
        return finish_csr(pointers.copy(), entries.copy(), None, m)
    sources = np.empty(m, np.int32)
    cdef int32_t *row_of = out32(sources)
    with nogil:
        hg_row_of_entry(count, rows, row_of)
    return build(count, sources, entries)


cdef int64_t MAX_COUNT = 2**31 - 1


cdef object node_count(object num_nodes):
    try:
        count = num_nodes.__index__()
    except AttributeError:
        raise PartitionError(f"num_nodes must be an integer, found {num_nodes!r}") from None
    if not 0 <= count < MAX_COUNT:
        raise PartitionError(f"num_nodes must lie within 0 and {MAX_COUNT - 1}, found {count}")
    return count


def kahn(Csr csr not None):
    """Kahn's order, always computed: int32 [num_nodes]. The yardstick of the benchmarks."""
    order_array = np.empty(csr.c.n, np.int32)
    cdef int32_t *order = out32(order_array)
    cdef int32_t done = 0, cycle_length = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_kahn(csr.c.n, csr.c.indptr, csr.c.indices, order, &done, NULL, &cycle_length, &watch)
    finish(status)
    return order_array


# ---- policies ----

def check_devices(Csr csr not None, device):
    """PartitionError unless `device` holds a device number, 0 to 254, for each node."""
    devices(device, csr.c.n)



def partition(Csr csr not None, str policy, device, weight):
    """(subgraph_of int32 [n], device_of int32 [k], cut edges, cut weight) of a policy.

    `weight`: None, or what `Csr.edge_weights` returned.
    """
    cdef const uint8_t[::1] device_number = devices(device, csr.c.n)
    subgraph_of = np.empty(csr.c.n, np.int32)
    device_of = np.empty(csr.c.n, np.int32)
    cdef const uint8_t *d = &device_number[0] if csr.c.n else NULL
    cdef int32_t *labels = out32(subgraph_of)
    cdef int32_t *label_device = out32(device_of)
    cdef const double[::1] weights
    cdef const double *w = NULL
    if weight is not None and csr.c.m:
        weights = weight
        w = &weights[0]
    cdef int which = POLICY_NUMBER[policy]
    cdef int32_t count = 0
    cdef int64_t cut = 0
    cdef double total = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        if which == 0:
            status = hg_auto(&csr.c, d, w, labels, label_device, &count, &watch)
        elif which == 1:
            status = hg_linear(&csr.c, d, labels, label_device, &count, &watch)
        else:
            if which == 2:
                status = hg_greedy(&csr.c, d, labels, &count, &watch)
            else:
                status = hg_documented(&csr.c, d, labels, &count, NULL, &watch)
            if status == HG_OK:
                status = hg_number(&csr.c, d, count, labels, label_device, &watch)
        if status == HG_OK:
            status = hg_cut(&csr.c, labels, w, &cut, &total, &watch)
    finish(status)
    return subgraph_of, device_of[:count].copy(), cut, total


POLICY_NUMBER = {"auto": 0, "linear": 1, "greedy": 2, "documented": 3}


ACTIONS = {HG_ROOT: "root", HG_MERGE: "merge", HG_FAIL: "fail", HG_ROLLBACK: "rollback", HG_CHOOSE: "choose"}


def documented_steps(Csr csr not None, device):
    """The steps of policy `documented`: a list of (action, node)."""
    cdef const uint8_t[::1] device_number = devices(device, csr.c.n)
    label = np.empty(csr.c.n, np.int32)
    cdef const uint8_t *d = &device_number[0] if csr.c.n else NULL
    cdef int32_t *labels = out32(label)
    cdef int32_t count = 0
    cdef hg_trace steps
    cdef int status
    cdef int64_t i
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_documented(&csr.c, d, labels, &count, &steps, &watch)
    finish(status)
    try:
        return [(ACTIONS[steps.actions[i]], steps.nodes[i]) for i in range(steps.count)]
    finally:
        hg_trace_free(&steps)


def number_subgraphs(Csr csr not None, device, label):
    """Canonical ids for labels 0..k-1 of a valid partition: (subgraph_of, device_of), as `partition_linear`.

    Ids ascend by the longest path from a source of the quotient, then by first node in topological order.
    """
    cdef const uint8_t[::1] device_number = devices(device, csr.c.n)
    subgraph_of = labels_array(label, csr.c.n).copy()
    cdef int32_t count = <int32_t>(subgraph_of.max() + 1) if csr.c.n else 0
    device_of = np.empty(count, np.int32)
    cdef const uint8_t *d = &device_number[0] if csr.c.n else NULL
    cdef int32_t *labels = out32(subgraph_of)
    cdef int32_t *label_device = out32(device_of)
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_number(&csr.c, d, count, labels, label_device, &watch)
    finish(status)
    return subgraph_of, device_of


def limit(Csr csr not None, device, weight, label, int32_t max_nodes, bint across):
    """Topological ids `label` with every subgraph above max_nodes cut up: (subgraph_of, device_of)."""
    cdef const uint8_t[::1] device_number = devices(device, csr.c.n)
    subgraph_of = labels_array(label, csr.c.n).copy()
    device_of = np.empty(csr.c.n, np.int32)
    cdef int32_t count = <int32_t>(subgraph_of.max() + 1) if csr.c.n else 0
    cdef const uint8_t *d = &device_number[0] if csr.c.n else NULL
    cdef int32_t *labels = out32(subgraph_of)
    cdef int32_t *label_device = out32(device_of)
    cdef const double[::1] weights
    cdef const double *w = NULL
    if weight is not None and csr.c.m:
        weights = weight
        w = &weights[0]
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_limit(&csr.c, d, w, max_nodes, across, labels, label_device, &count, &watch)
    finish(status)
    return subgraph_of, device_of[:count].copy()


def cut(Csr csr not None, label, weight):
    """(edges between subgraphs, their weight) of labels int32 [n]."""
    labels_given = labels_array(label, csr.c.n)
    cdef const int32_t *labels = in32(labels_given)
    cdef const double[::1] weights
    cdef const double *w = NULL
    if weight is not None and csr.c.m:
        weights = weight
        w = &weights[0]
    cdef int64_t edges = 0
    cdef double total = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_cut(&csr.c, labels, w, &edges, &total, &watch)
    finish(status)
    return edges, total


def quotient(Csr csr not None, label, int32_t count):
    """`Csr` of the subgraphs 0..count-1 that `label` (int32 [n]) tells."""
    labels_given = vertices(label, count, "subgraph_of")
    cdef int64_t edges = cut(csr, labels_given, None)[0]
    cdef const int32_t *labels = in32(labels_given)
    src = np.empty(edges, np.int32)
    dst = np.empty(edges, np.int32)
    cdef int32_t *sources = out32(src)
    cdef int32_t *targets = out32(dst)
    with nogil:
        hg_quotient_edges(&csr.c, labels, sources, targets)
    return build(count, src, dst)


def members(label, int32_t count):
    """(start [count + 1], nodes [n]): nodes of subgraph i, ascending, at start[i] to start[i + 1]; read-only int32."""
    labels_given = vertices(label, count, "subgraph_of")
    cdef const int32_t *labels = in32(labels_given)
    cdef int32_t n = <int32_t>labels_given.shape[0]
    start = np.empty(<int64_t>count + 1, np.int32)
    member = np.empty(n, np.int32)
    cdef int32_t *starts = out32(start)
    cdef int32_t *nodes = out32(member)
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_members(n, labels, NULL, count, starts, nodes, &watch)
    finish(status)
    return frozen(start), frozen(member)


# ---- reachability ----

@cython.final
@cython.auto_pickle(False)
cdef class Closure:
    """Bit rows of descendants. MemoryError above `max_bytes`."""
    cdef hg_closure c

    def __cinit__(self, Csr csr not None, int64_t max_bytes):
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_closure_build(&csr.c, &self.c, max_bytes, &watch)
        if status == HG_OVER_BUDGET:
            raise PartitionError(
                f"the transitive closure of {csr.c.n} nodes needs more than max_bytes = {max_bytes}: at most "
                f"{triangle_bytes(csr.c.n)}; raise max_bytes, or use a policy that needs no closure"
            )
        finish(status)

    def __dealloc__(self):
        hg_closure_free(&self.c)

    @property
    def nbytes(self):
        return self.c.bytes

    def reaches(self, int64_t u, int64_t v):
        self.node(u)
        self.node(v)
        return hg_closure_reaches(&self.c, <int32_t>u, <int32_t>v) != 0

    def between(self, int64_t u, int64_t v):
        """Nodes that u reaches and that reach v, ascending int32; -1 for either: any."""
        self.node(u if u >= 0 else 0)
        self.node(v if v >= 0 else 0)
        mask = np.empty(self.c.n, np.uint8)
        cdef uint8_t[::1] out = mask
        with nogil:
            hg_closure_between(&self.c, <int32_t>u, <int32_t>v, &out[0])
        return np.flatnonzero(mask).astype(np.int32)

    cdef int node(self, int64_t v) except -1:
        if not 0 <= v < self.c.n:
            raise IndexError(f"node {v} is outside 0 .. {self.c.n - 1}")
        return 0


def triangle_bytes(int64_t n):
    """The most memory a closure of n nodes can take."""
    cdef int64_t words = n // 64
    return 8 * (n * ((n + 63) // 64) - 32 * words * (words - 1) - n % 64 * words) + 21 * n


# ---- the verifier ----

cdef object labels_array(object label, int32_t n):
    array = index_array(label, "subgraph_of")
    if array.shape[0] != n:
        raise PartitionError(f"subgraph_of must hold one id per node: expected {n}, found {array.shape[0]}")
    if array.dtype.itemsize == 8:
        array = np.clip(array, -1, MAX_COUNT).astype(np.int32)
    return array


def check(Csr csr not None, device, label, bint maximal, bint ordered):
    """None for a valid partition, else (rule, a, b, witness list): see `hetero.partition.check`."""
    cdef const uint8_t[::1] device_number = devices(device, csr.c.n)
    labels_given = labels_array(label, csr.c.n)
    cdef const uint8_t *d = &device_number[0] if csr.c.n else NULL
    cdef const int32_t *labels = in32(labels_given)
    witness = np.empty(2 * <int64_t>csr.c.n + 2, np.int32)
    cdef int32_t *nodes = out32(witness)
    cdef hg_verdict verdict
    cdef int flags = (HG_CHECK_MAXIMAL if maximal else 0) | (HG_CHECK_ORDERED if ordered else 0)
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_check(&csr.c, d, labels, flags, &verdict, nodes, &watch)
    finish(status)
    if verdict.rule == HG_VALID:
        return None
    return RULES[verdict.rule], verdict.a, verdict.b, witness[:verdict.length].tolist()


RULES = {
    HG_BAD_ID: "id",
    HG_UNUSED_ID: "unused id",
    HG_MIXED_DEVICES: "one device",
    HG_DISCONNECTED: "connected",
    HG_NOT_CONVEX: "convex",
    HG_CYCLIC: "acyclic",
    HG_UNORDERED: "ordered",
    HG_NOT_MAXIMAL: "maximal",
}
