"""Cost-aware assignment: interface between NumPy and the C code of ``assign/``.

Arrays from callers are copied and checked as in ``_graph``; every computation releases the GIL once. The public
interface is ``hetero.assign``.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from hetero._graph cimport finish, in32, new_watch, node_array, out32, weights_or_null
from assign_c cimport *
from partition_c cimport HG_OK, hg_watch

import numpy as np

from hetero.errors import PartitionError

cdef int64_t MAX_COUNT = 2**31 - 3


cdef int finish_assign(int status) except -1:
    if status == HG_TOO_LARGE:
        raise PartitionError("the flow network of this assignment needs more than 2,147,483,647 arcs")
    return finish(status)


cdef object cost_array(object values, object shape, str name, bint infinite):
    """A copy as contiguous float64 of this shape. PartitionError unless each entry is zero or more and, unless
    `infinite`, finite."""
    array = np.array(values, np.float64, order="C")
    if array.shape != shape:
        raise PartitionError(f"{name} must have shape {shape}, found {array.shape}")
    with np.errstate(invalid="ignore"):
        bad = ~(array >= 0) if infinite else ~((array >= 0) & (array < np.inf))
    if bad.any():
        at = tuple(int(i[0]) for i in bad.nonzero())
        place = ", ".join(map(str, at))
        wanted = "zero or more" if infinite else "finite, zero or more"
        raise PartitionError(f"{name}[{place}] = {array[at]}: expected a cost, {wanted}")
    return array


cdef object row_pointers(object values, int64_t entries, str name):
    """A copy of row pointers as int32. PartitionError unless they ascend from 0 to `entries`."""
    array = np.asarray(values)
    if array.ndim != 1 or array.shape[0] == 0 or (array.dtype.kind != "i" and array.dtype.kind != "u"):
        raise PartitionError(f"{name} must be a one-dimensional array of integers with at least one entry")
    array = array.astype(np.int64)
    if array[0] != 0 or array[array.shape[0] - 1] != entries or (np.diff(array) < 0).any():
        raise PartitionError(f"{name} must rise from 0 to the number of readers {entries}")
    return array.astype(np.int32)


@cython.final
@cython.auto_pickle(False)
cdef class Costs:
    """Costs of a labeling, checked and copied. `hetero.assign.AssignmentProblem` describes the arrays."""

    def __cinit__(self, work, producer, indptr, readers, size, latency, per_unit):
        shape = np.shape(work)
        if len(shape) != 2 or shape[0] < 1:
            raise PartitionError(f"work must have shape (devices, nodes), found {shape}")
        cdef int64_t k = shape[0], n = shape[1], count = np.shape(readers)[0]
        if n > MAX_COUNT or k > 256 or count > MAX_COUNT:  # 255 devices and the host
            raise PartitionError(f"{n} nodes, {k} devices, {count} readers are too many: at most {MAX_COUNT}, 256, "
                                 f"{MAX_COUNT}")
        self.work = cost_array(work, (k, n), "work", True)
        nobody = np.isinf(self.work).all(axis=0).nonzero()[0]
        if nobody.size:
            raise PartitionError(f"work[:, {nobody[0]}] is infinite: no device takes node {nobody[0]}")
        self.producer = node_array(producer, n, "producer")
        self.indptr = row_pointers(indptr, count, "indptr")
        values = self.indptr.shape[0] - 1
        if self.producer.shape[0] != values:
            raise PartitionError(f"producer must hold one node per value: expected {values}, "
                                 f"found {self.producer.shape[0]}")
        self.readers = node_array(readers, n, "readers")
        self.size = cost_array(size, (values,), "size", False)
        self.latency = cost_array(latency, (k, k), "latency", False)
        self.per_unit = cost_array(per_unit, (k, k), "per_unit", False)
        greatest = self.size.max(initial=0) * self.per_unit.max() + self.latency.max()
        finite = self.work[np.isfinite(self.work)].sum()
        if not finite + greatest * (2.0 * count + values) < 1e300:
            raise PartitionError("costs are too large: their sum must stay below 1e300")
        cdef double[:, ::1] work_rows = self.work
        cdef double[:, ::1] latency_rows = self.latency
        cdef double[:, ::1] per_unit_rows = self.per_unit
        self.c.n, self.c.k, self.c.num_values = <int32_t>n, <int32_t>k, <int32_t>values
        self.c.work = &work_rows[0, 0] if n else NULL
        self.c.producer = in32(self.producer)
        self.c.indptr = in32(self.indptr)
        self.c.readers = in32(self.readers)
        self.c.size = weights_or_null(self.size)
        self.c.latency = &latency_rows[0, 0]
        self.c.per_unit = &per_unit_rows[0, 0]
        for array in (self.work, self.producer, self.indptr, self.readers, self.size, self.latency, self.per_unit):
            array.setflags(write=False)

    def with_costs(self, work, latency, per_unit):
        """The same values and readers with other costs, for a possibly different number of devices."""
        return Costs(work, self.producer, self.indptr, self.readers, self.size, latency, per_unit)

    cdef object labels(self, label):
        """A copy of `label` as int32 [n]; each must be in 0..k-1."""
        numbers = node_array(label, self.c.k, "label")
        if numbers.shape[0] != self.c.n:
            raise PartitionError(f"label must hold one device per node: expected {self.c.n}, found {numbers.shape[0]}")
        return numbers

    def energy(self, label):
        """(work, transfers, number of transfers) of a labeling. Work is infinite if a node is on a device that does not
        support it."""
        numbers = self.labels(label)
        cdef const int32_t *label_of = in32(numbers)
        cdef hg_energy energy
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_energy_of(&self.c, label_of, &energy, &watch)
        finish_assign(status)
        return energy.work, energy.transfers, energy.num_transfers

    def move(self, label, int32_t target):
        """The best labeling int32 [n] in which every node keeps its label or gets `target`, and how many nodes changed.

        Optimal for two devices; otherwise an improvement or no change. AssertionError if the value of the flow differs
        from that of the cut: their equality proves both optimal.
        """
        if not 0 <= target < self.c.k:
            raise PartitionError(f"target {target} is no device: expected 0 to {self.c.k - 1}")
        numbers = self.labels(label)
        cdef int32_t *changed = out32(numbers)
        cdef hg_move_result result
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_move(&self.c, target, changed, &result, &watch)
        finish_assign(status)
        if result.flow != result.cut:
            raise AssertionError(f"maximum flow {result.flow} and minimum cut {result.cut} differ")
        return numbers, result.moved


def min_cut(tail, head, capacity, back, excess, bint reduce=True):
    """A minimum cut of a network, for tests: (flow, sink side bool [n], cut).

    Edge i leads from tail[i] to head[i] with capacity[i], and back with back[i]. excess[v] is the capacity from the
    source to v or, if negative, from v to the sink. All are integers whose sum is at most 2^52. If `reduce` is False,
    the network is not reduced before the maximum flow.
    """
    excesses = np.array(excess, np.float64)
    cdef const double[::1] excess_of = excesses
    cdef int32_t n = <int32_t>excesses.shape[0]
    tail, head = node_array(tail, n, "tail"), node_array(head, n, "head")
    cdef int64_t count = tail.shape[0], i
    if head.shape[0] != count:
        raise PartitionError("tail and head must have one entry per edge each")
    there = cost_array(capacity, (count,), "capacity", True)
    back = cost_array(back, (count,), "back", True)
    cdef const int32_t *a = in32(tail)
    cdef const int32_t *b = in32(head)
    cdef const double *forth_of = weights_or_null(there)
    cdef const double *back_of = weights_or_null(back)
    cdef const double *excess_pointer = weights_or_null(excesses)
    dtype = np.dtype([("a", np.int32), ("b", np.int32), ("forth", np.float64), ("back", np.float64)])
    assert dtype.itemsize == sizeof(hg_edge)
    packed = np.empty(max(count, 1), dtype)
    cdef uint8_t[::1] bytes_of = packed.view(np.uint8)
    cdef hg_edge *edges = <hg_edge *>&bytes_of[0]
    side = np.zeros(max(n, 1), np.uint8)
    cdef uint8_t[::1] on_sink_side = side
    cdef hg_network net
    cdef hg_arena arena
    cdef int64_t flow = 0, cut = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    if not hg_arena_open(&arena, 4096):
        raise MemoryError
    with nogil:
        for i in range(count):
            edges[i].a, edges[i].b, edges[i].forth, edges[i].back = a[i], b[i], forth_of[i], back_of[i]
        if reduce:
            status = hg_min_cut(n, excess_pointer, edges, count, 1, &on_sink_side[0], &flow, &arena, &watch)
        else:
            status = hg_build_network(n, excess_pointer, edges, count, 1, &net, &arena, &watch)
            if status == HG_OK:
                status = hg_max_flow(&net, &on_sink_side[0], &flow, &arena, &watch)
        if status == HG_OK:
            status = hg_cut_capacity(n, excess_pointer, edges, count, 1, &on_sink_side[0], &cut, &watch)
    hg_arena_close(&arena)
    finish_assign(status)
    return flow, side[:n].view(np.bool_), cut


@cython.final
@cython.auto_pickle(False)
cdef class ValueArrays:
    """The arrays of `hetero.assign.memory.Values`, checked and copied."""

    cdef hg_values c
    cdef tuple held

    def __cinit__(self, int32_t num_nodes, producer, size, is_constant, is_output, read_value, read_node, own):
        cdef int64_t count = np.shape(producer)[0], reads = np.shape(read_value)[0]
        if num_nodes < 0 or num_nodes > MAX_COUNT or count > MAX_COUNT or reads > MAX_COUNT:
            raise PartitionError(f"{num_nodes} nodes, {count} values, {reads} reads are too many")
        producers = node_array(np.asarray(producer) + 1, num_nodes + 1, "producer") - np.int32(1)
        values, nodes = node_array(read_value, count, "read_value"), node_array(read_node, num_nodes, "read_node")
        sizes = cost_array(size, (count,), "bytes", False)
        owns = cost_array(own, (num_nodes,), "own", False)
        constants, outputs = np.array(is_constant, np.bool_), np.array(is_output, np.bool_)
        if constants.shape != (count,) or outputs.shape != (count,) or nodes.shape[0] != reads:
            raise PartitionError("arrays that do not belong together")
        # memory.c takes the reads of a value for neighbors; in another order it would count the memory wrongly.
        pairs = values.astype(np.int64) * num_nodes + nodes
        if (np.diff(pairs) <= 0).any():
            raise PartitionError("reads must ascend by value, then by node, without repetition")
        self.held = (producers, sizes, constants, outputs, values, nodes, owns)
        self.c.n, self.c.num_values, self.c.num_reads = num_nodes, <int32_t>count, reads
        self.c.producer, self.c.read_value, self.c.read_node = in32(producers), in32(values), in32(nodes)
        self.c.bytes, self.c.own = weights_or_null(sizes), weights_or_null(owns)
        cdef const uint8_t[::1] constant_bytes = constants.view(np.uint8)
        cdef const uint8_t[::1] output_bytes = outputs.view(np.uint8)
        self.c.is_constant = &constant_bytes[0] if count else NULL
        self.c.is_output = &output_bytes[0] if count else NULL

    def late_order(self):
        """int64 [num_nodes]: see `hetero.assign.memory.order`."""
        order = np.empty(self.c.n, np.int64)
        cdef int64_t[::1] numbers = order
        cdef int64_t *out = &numbers[0] if self.c.n else NULL
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_late_order(&self.c, out, &watch)
        finish(status)
        return order

    def footprint(self, subgraph_of, device_of, latest, int32_t num_devices, bytes_inside, known):
        """(weights, activations, peak_node, unknown, first_unknown) of a partition: see `hetero.assign.memory.Footprint`.

        `latest`: for each subgraph, the last one that begins before it ends. `bytes_inside`: float64 [num_devices,
        num_values] or None. `known`: bool [num_values].
        """
        count = np.shape(device_of)[0]
        subgraphs = node_array(subgraph_of, count, "subgraph_of")
        devices, lasts = node_array(device_of, num_devices, "device_of"), node_array(latest, count, "latest")
        knowns = np.array(known, np.bool_)
        inside = (np.empty((0, 0)) if bytes_inside is None
                  else cost_array(bytes_inside, (num_devices, self.c.num_values), "bytes_inside", False))
        if (subgraphs.shape[0] != self.c.n or lasts.shape[0] != count or knowns.shape != (self.c.num_values,)
                or num_devices < 1):
            raise PartitionError("arrays that do not belong together")
        cdef const uint8_t[::1] known_bytes = knowns.view(np.uint8)
        cdef const double[:, ::1] inside_rows = inside
        weights, peak = np.empty(num_devices), np.empty(num_devices)
        peak_node, first_unknown = np.empty(num_devices, np.int32), np.empty(num_devices, np.int32)
        unknown = np.empty(num_devices, np.int64)
        cdef double[::1] weight = weights
        cdef double[::1] peaks = peak
        cdef int64_t[::1] unknowns = unknown
        cdef hg_partitioned partition
        partition.num_devices, partition.num_subgraphs = num_devices, <int32_t>count
        partition.subgraph, partition.device, partition.latest = in32(subgraphs), in32(devices), in32(lasts)
        partition.bytes_inside = partition.known = NULL
        if inside_rows.shape[1]:
            partition.bytes_inside = &inside_rows[0, 0]
        if self.c.num_values:
            partition.known = &known_bytes[0]
        cdef hg_footprint out
        out.weights, out.peak, out.unknown = &weight[0], &peaks[0], &unknowns[0]
        out.peak_node, out.first_unknown = out32(peak_node), out32(first_unknown)
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_footprint_of(&self.c, &partition, &out, &watch)
        finish(status)
        return weights, peak, peak_node, unknown, first_unknown


@cython.final
@cython.auto_pickle(False)
cdef class Ranges:
    """The memory of ranges of steps: see `hetero.assign.memory.RangeMemory`. `step_of`: the step of each node."""

    cdef hg_ranges c

    def __cinit__(self, ValueArrays values not None, step_of):
        steps = node_array(step_of, values.c.n, "step")
        if steps.shape[0] != values.c.n:
            raise PartitionError("arrays that do not belong together")
        cdef const int32_t *step = in32(steps)
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_ranges_open(&values.c, step, &self.c, &watch)
        finish(status)

    def __dealloc__(self):
        hg_ranges_close(&self.c)

    cdef tuple needs(self, int32_t begin, int32_t end, double limit, double *weights, double *activations):
        """(the end of the longest range that fits, its bytes)."""
        cdef double need
        cdef int status
        cdef hg_watch watch = new_watch()
        if not 0 <= begin <= end <= self.c.n:
            raise IndexError(f"range {begin} .. {end} is not within 0 .. {self.c.n}")
        with nogil:
            status = hg_range_needs(&self.c, begin, &end, limit, weights, activations, &need, &watch)
        finish(status)
        return end, need

    def parts_from(self, int32_t begin, int32_t end):
        """(weights, activations), float64 [end - begin] each."""
        weights, activations = np.empty(max(end - begin, 1)), np.empty(max(end - begin, 1))
        cdef double[::1] weight = weights
        cdef double[::1] activation = activations
        self.needs(begin, end, float("inf"), &weight[0], &activation[0])
        return weights[:end - begin], activations[:end - begin]

    def need(self, int32_t begin, int32_t end):
        """The bytes of one range."""
        return self.needs(begin, end, float("inf"), NULL, NULL)[1]

    def longest(self, int32_t begin, double limit):
        """The end of the longest range from `begin` that fits."""
        return self.needs(begin, self.c.n, limit, NULL, NULL)[0]
