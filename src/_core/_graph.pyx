"""Graphs from edge arrays or rows: interface between NumPy and the C code of ``partition/``.

Arrays from callers are copied into private, narrower arrays, and the copies are checked. So C code never uses an
unchecked number, even if another thread modifies the caller's arrays meanwhile. Copies are made in pieces, with a check
for signals in between. Every computation releases the GIL once. The public interface is ``hetero.partition``.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from hetero._graph cimport (
    Csr, PyErr_CheckSignals, device_array, finish, frozen, in32, label_array, new_watch, node_array, out32,
)
from partition_c cimport *

import numpy as np

from hetero.errors import PartitionError, shown

cdef int64_t MAX_COUNT = 2**31 - 1
cdef int64_t PIECE = 1 << 20  # elements copied between two checks for signals: about a millisecond


# ---- errors, checked arrays, signals ----

watches_before = -1


cdef int reraise() except -1:
    return -1


cdef int finish(int status) except -1:
    """Converts a status of the C functions to an exception; for HG_INTERRUPTED one is already set."""
    if status == HG_INTERRUPTED:
        reraise()
    if status == HG_NO_MEMORY:
        raise MemoryError("not enough memory for the graph algorithm's scratch arrays")
    return 0


cdef object frozen(object array):
    array.setflags(write=False)
    return array


cdef object number_array(object values, str name):
    """`values` as a one-dimensional array of int32 or int64 in any layout; an empty list is allowed. Raises
    PartitionError for anything else."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise PartitionError(f"{name} must be a one-dimensional array, found {array.ndim} dimensions")
    if array.dtype.kind != "i" or array.dtype.itemsize < 4:
        if array.size:
            raise PartitionError(f"{name} must be an array of int32 or int64, found dtype {array.dtype}")
        return np.empty(0, np.int32)
    return array


cdef int64_t read_numbers(object array, int64_t limit, int32_t[::1] out) except -1:
    """Copies an array of `number_array`. Returns the position of the first number outside 0..limit-1, or the length.
    Such numbers become -1 in the copy."""
    cdef int64_t count = array.shape[0], begin = 0, length, bad
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef bint is_wide = array.dtype.itemsize == 8
    cdef int64_t first_bad = count
    while begin < count:
        length = min(PIECE, count - begin)
        piece = array if length == count else array[begin:begin + length]
        if is_wide:
            wide = np.ascontiguousarray(piece, np.int64)
            with nogil:
                bad = hg_read_numbers(&wide[0], 1, length, limit, &out[begin])
        else:
            narrow = np.ascontiguousarray(piece, np.int32)
            with nogil:
                bad = hg_read_numbers(&narrow[0], 0, length, limit, &out[begin])
        if bad < length and first_bad == count:
            first_bad = begin + bad
        begin += length
        if begin < count and PyErr_CheckSignals():
            reraise()
    return first_bad


cdef object node_array(object values, int64_t limit, str name):
    """A copy of `values` as int32. PartitionError, naming the first bad value, unless each is within 0..limit-1."""
    array = number_array(values, name)
    result = np.empty(array.shape[0], np.int32)
    cdef int64_t bad = read_numbers(array, limit, result)
    if bad < result.shape[0]:
        raise PartitionError(f"{name}[{bad}] = {array[bad]} is no node: expected 0 to {limit - 1} ({limit} nodes)")
    return result


cdef object label_array(object values, int32_t n):
    """A copy of subgraph ids as int32 [n]; invalid ids become -1. PartitionError for another length or dtype."""
    array = number_array(values, "subgraph_of")
    if array.shape[0] != n:
        raise PartitionError(f"subgraph_of must hold one id per node: expected {n}, found {array.shape[0]}")
    result = np.empty(n, np.int32)
    read_numbers(array, MAX_COUNT, result)
    return result


cdef object device_array(object values, int32_t n):
    """A copy of device numbers, integers 0 to 254 of any dtype, as uint8 [n]; PartitionError for anything else."""
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
    cdef int64_t begin = 0, length, bad
    cdef bint is_narrow = kind == "i" and array.dtype.itemsize == 4
    cdef bint is_unsigned_wide = kind == "u" and array.dtype.itemsize == 8
    while begin < n:
        length = min(PIECE, n - begin)
        piece = array if length == n else array[begin:begin + length]
        if is_narrow:
            narrow = np.ascontiguousarray(piece, np.int32)
            with nogil:
                bad = hg_read_devices(&narrow[0], 0, length, &out[begin])
        else:
            if is_unsigned_wide:
                piece = np.minimum(piece, 255)  # so that it fits int64
            wide = np.ascontiguousarray(piece, np.int64)
            with nogil:
                bad = hg_read_devices(&wide[0], 1, length, &out[begin])
        if bad < length:
            bad += begin
            raise PartitionError(f"device[{bad}] = {array[bad]} is no device number: expected 0 to 254")
        begin += length
        if begin < n and PyErr_CheckSignals():
            reraise()
    return result


# ---- the graph ----

@cython.final
@cython.auto_pickle(False)
cdef class Csr:
    """A directed acyclic graph: checked, immutable rows of successors and predecessors.

    ``indptr``, ``indices``: the successors of node v are ``indices[indptr[v]:indptr[v + 1]]``, int32.
    ``pred_indptr``, ``pred_indices``: the predecessors in the same way. All are read-only.
    """

    @property
    def num_nodes(self):
        """The number of nodes."""
        return self.c.n

    @property
    def num_edges(self):
        """The number of edges. Edges that were passed in several times count once."""
        return self.c.m

    def topological_order(self):
        """A topological order, int32 [num_nodes], read-only: 0, 1, 2, ... if every edge ascends, else Kahn's order."""
        if self._order is None:
            self._order = frozen(np.arange(self.c.n, dtype=np.int32))
        return self._order

    def edge_weights(self, weights):
        """Weights of the edges as passed in, summed into float64 [num_edges] in the order of `indices`."""
        array = np.asarray(weights)
        if array.ndim != 1 or array.shape[0] != self._num_passed:
            raise PartitionError(
                f"edge_weight must hold one number per edge passed to Graph: expected shape ({self._num_passed},), "
                f"found {array.shape}"
            )
        if array.dtype.kind not in "iuf" and array.size:
            raise PartitionError(f"edge_weight must be an array of real numbers, found dtype {array.dtype}")
        cdef const double[::1] values
        cdef const int32_t *slots = NULL
        if self._slot is not None:
            slots = in32(self._slot)
        result = np.zeros(self.c.m, np.float64)
        cdef double[::1] out = result
        cdef int64_t begin = 0, length, bad
        while begin < self._num_passed:
            length = min(PIECE, self._num_passed - begin)
            values = np.ascontiguousarray(array[begin:begin + length], np.float64)
            with nogil:
                if slots != NULL:
                    bad = hg_add_weights(&values[0], length, slots + begin, &out[0])
                else:
                    bad = hg_add_weights(&values[0], length, NULL, &out[begin])
            if bad < length:
                bad += begin
                raise PartitionError(f"edge_weight[{bad}] = {array[bad]}: expected a finite number, zero or more")
            begin += length
            if begin < self._num_passed and PyErr_CheckSignals():
                reraise()
        return result


cdef object cycle_error(object nodes):
    cdef int limit = 30
    names = [str(v) for v in nodes[:limit].tolist()]
    if len(nodes) > limit:
        names.append(f"... ({len(nodes)} nodes)")
    else:
        names.append(names[0])
    return PartitionError(f"the graph has a cycle, so no order to run its nodes in: {' -> '.join(names)}")


cdef Csr finish_csr(object indptr, object indices, object slot, int64_t num_passed):
    """Adds predecessor rows and a topological order to checked successor rows; PartitionError for a cycle."""
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
    cdef int status, ordered = 0
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_is_ordered(n, rows, entries, &ordered, &watch)
    finish(status)
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
    csr._num_passed = num_passed
    csr.c.n = n
    csr.c.m = m
    csr.c.indptr = rows
    csr.c.indices = entries
    csr.c.pred_indptr = pred_rows
    csr.c.pred_indices = pred_entries
    csr.c.order = NULL
    if not ordered:
        csr.c.order = in32(csr._order)
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
        indices.resize(unique, refcheck=False)  # in place: no other code has a reference yet
    return finish_csr(indptr, indices, slot, m)


cdef int32_t node_count(object num_nodes) except -1:
    try:
        count = num_nodes.__index__()
    except AttributeError:
        raise PartitionError(f"num_nodes must be an integer, found {shown(num_nodes)}") from None
    if not 0 <= count < MAX_COUNT:
        raise PartitionError(f"num_nodes must lie within 0 and {MAX_COUNT - 1}, found {shown(count)}")
    return count


cdef int check_edge_count(int64_t m) except -1:
    if m > MAX_COUNT:
        raise PartitionError(f"{m} edges are too many: at most {MAX_COUNT}")
    return 0


def csr_from_edges(src, dst, num_nodes):
    """`Csr` of edges src[i] -> dst[i] over nodes 0..num_nodes-1. PartitionError for invalid arrays or a cycle."""
    cdef int32_t n = node_count(num_nodes)
    src = number_array(src, "src")
    dst = number_array(dst, "dst")
    cdef int64_t m = src.shape[0]
    if dst.shape[0] != m:
        raise PartitionError(f"src and dst must have one entry per edge each, found {m} and {len(dst)}")
    check_edge_count(m)
    sources = node_array(src, n, "src")
    targets = node_array(dst, n, "dst")
    cdef const int32_t *a = in32(sources)
    cdef const int32_t *b = in32(targets)
    cdef int64_t loop
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_first_self_loop(a, b, m, &loop, &watch)
    finish(status)
    if loop < m:
        raise PartitionError(f"edge {loop} is a self-loop: node {a[loop]} reads its own output")
    return build(n, sources, targets)


def csr_from_rows(indptr, indices):
    """`Csr` of rows: the successors of v are indices[indptr[v]:indptr[v + 1]]. PartitionError if invalid or cyclic."""
    row_pointers = number_array(indptr, "indptr")
    if row_pointers.shape[0] == 0:
        raise PartitionError("indptr must have num_nodes + 1 entries, found none")
    cdef int32_t n = node_count(len(row_pointers) - 1)
    indices = number_array(indices, "indices")
    cdef int64_t m = indices.shape[0]
    check_edge_count(m)
    pointers = np.empty(row_pointers.shape[0], np.int32)
    read_numbers(row_pointers, MAX_COUNT + 1, pointers)
    entries = node_array(indices, n, "indices")
    cdef const int32_t *rows = in32(pointers)
    cdef const int32_t *values = in32(entries)
    cdef int64_t bad_pointer = -1
    cdef int32_t loop = n
    cdef int status, ascending = 0
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_check_rows(n, m, rows, values, &bad_pointer, &loop, &ascending, &watch)
    finish(status)
    if bad_pointer >= 0:
        raise PartitionError(
            f"indptr must rise from 0 to the number of edges {m}: indptr[{bad_pointer}] = {row_pointers[bad_pointer]}"
        )
    if loop < n:
        raise PartitionError(f"row {loop} of indices holds a self-loop: node {loop} reads its own output")
    if ascending:
        return finish_csr(pointers, entries, None, m)
    sources = np.empty(m, np.int32)
    cdef int32_t *row_of = out32(sources)
    with nogil:
        status = hg_row_of_entry(n, rows, row_of, &watch)
    finish(status)
    return build(n, sources, entries)


def quotient(Csr csr not None, label, int32_t count):
    """`Csr` of the subgraphs 0..count-1 that `label` (int32 [n]) defines."""
    numbers = node_array(label, count, "subgraph_of")
    if numbers.shape[0] != csr.c.n:
        raise PartitionError(f"subgraph_of must hold one id per node: expected {csr.c.n}, found {numbers.shape[0]}")
    cdef const int32_t *labels = in32(numbers)
    cdef int64_t edges = 0
    cdef double total
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_cut(&csr.c, labels, NULL, &edges, &total, &watch)
    finish(status)
    src = np.empty(edges, np.int32)
    dst = np.empty(edges, np.int32)
    cdef int32_t *sources = out32(src)
    cdef int32_t *targets = out32(dst)
    with nogil:
        status = hg_quotient_edges(&csr.c, labels, sources, targets, &watch)
    finish(status)
    return build(count, src, dst)


def kahn(Csr csr not None):
    """Kahn's order, always computed: int32 [num_nodes]. The reference point of the benchmarks."""
    order_array = np.empty(csr.c.n, np.int32)
    cdef int32_t *order = out32(order_array)
    cdef int32_t done = 0, cycle_length = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_kahn(csr.c.n, csr.c.indptr, csr.c.indices, order, &done, NULL, &cycle_length, &watch)
    finish(status)
    return order_array


def interrupt(int64_t computation, int64_t work=0):
    """For tests: KeyboardInterrupt is raised in one of the next computations, once it has done ``work`` units of work.

    ``computation``: the number of computations before it; -1: none is interrupted. Returns what is left of the number
    that the last call stated; below 0 if that computation has begun."""
    global watches_before, work_before
    cdef int64_t left = watches_before
    watches_before, work_before = computation, work
    return left
