"""Schedules with devices that work at the same time: interface between NumPy and the C code of ``schedule/``.

Arrays from callers are copied and checked as in ``_graph``; every computation releases the GIL once. The public
interface is ``hetero.assign``.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from hetero._assign cimport Costs
from hetero._graph cimport Csr, finish, in8, in32, new_watch, node_array, out32, weights_or_null
from assign_c cimport hg_arena, hg_arena_close, hg_arena_open
from partition_c cimport HG_OK, hg_watch
from schedule_c cimport *

import numpy as np

from hetero.errors import PartitionError

cdef size_t ARENA_BYTES = 1 << 16, BYTES_PER_NODE = 96  # of list scheduling: one block, so that it gets huge pages


@cython.final
@cython.auto_pickle(False)
cdef class _Work:
    """The scratch memory and the interrupt watch of one computation; the memory is freed with the object."""

    cdef hg_arena arena
    cdef hg_watch watch
    cdef bint is_open

    def __cinit__(self, int64_t nodes=0):
        self.watch = new_watch()
        self.is_open = hg_arena_open(&self.arena, ARENA_BYTES + BYTES_PER_NODE * nodes)
        if not self.is_open:
            raise MemoryError

    def __dealloc__(self):
        if self.is_open:
            hg_arena_close(&self.arena)


cdef double *out64(double[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef int finish_schedule(int status) except -1:
    if status == HG_CYCLE:
        raise PartitionError("some steps wait for each other, so they cannot run")
    return finish(status)


cdef object seconds_array(object values, int64_t count, str name):
    """A copy as float64 [count]. PartitionError unless each entry is finite, and zero or more."""
    array = np.array(values, np.float64, order="C")
    if array.shape != (count,):
        raise PartitionError(f"{name} must have shape ({count},), found {array.shape}")
    with np.errstate(invalid="ignore"):
        if not ((array >= 0) & (array < np.inf)).all():
            raise PartitionError(f"{name} must hold finite costs of 0 or more, found {array!r}")
    return array


cdef object byte_array(object values, int64_t count, str name):
    """A copy as uint8 [count]. PartitionError unless each entry is in 0..255."""
    array = np.asarray(values)
    if array.shape != (count,) or (array.size and not (0 <= array.min() and array.max() <= 255)):
        raise PartitionError(f"{name} must hold {count} numbers from 0 to 255, found {values!r}")
    return array.astype(np.uint8)


@cython.final
@cython.auto_pickle(False)
cdef class Room:
    """The constants that nodes read, and the bytes of each device. `hetero.assign.schedule.Room` describes them."""

    cdef hg_room room
    cdef readonly object own, bytes
    cdef object _arrays

    def __cinit__(self, node, constant, size, own, bytes_of_device):
        cdef int32_t n = <int32_t>np.shape(own)[0]
        cdef int32_t count = <int32_t>np.shape(size)[0]
        nodes, constants = node_array(node, n, "node"), node_array(constant, count, "constant")
        if nodes.shape[0] != constants.shape[0] or (np.diff(nodes) < 0).any():
            raise PartitionError("node and constant must be of one length, and node must ascend")
        start = np.searchsorted(nodes, np.arange(n + 1)).astype(np.int32)
        sizes, owns = seconds_array(size, count, "size"), seconds_array(own, n, "own")
        limits = np.array(bytes_of_device, np.float64)
        if limits.ndim != 1 or np.isnan(limits).any():
            raise PartitionError(f"bytes must be numbers, one for each device, found {bytes_of_device!r}")
        self.own, self.bytes, self._arrays = owns, limits, (start, constants, sizes)
        self.room.constants, self.room.read_start, self.room.read = count, in32(start), in32(constants)
        self.room.size, self.room.own = weights_or_null(sizes), weights_or_null(owns)
        self.room.bytes = weights_or_null(limits)


@cython.final
@cython.auto_pickle(False)
cdef class Machine:
    """A problem and the devices that it runs on. `hetero.assign.schedule.Scheduler` describes the arguments."""

    cdef hg_machine m
    cdef readonly Costs costs
    cdef Csr _csr
    cdef object _arrays

    def __cinit__(self, Csr csr not None, Costs costs not None, launch, lane, shares, double slowdown,
                  double hand_over):
        cdef int32_t n = csr.c.n, all_nodes = costs.c.n
        cdef int64_t k = costs.c.k, values = costs.c.num_values, reads = costs.readers.shape[0]
        if not (0 <= slowdown < np.inf and 0 <= hand_over < np.inf):
            raise PartitionError(f"slowdown {slowdown} and hand_over {hand_over} must be finite, zero or more")
        launches = seconds_array(launch, k, "launch")
        lanes, sharing = byte_array(lane, k, "lane"), byte_array(shares, k, "shares")
        if all_nodes < n:
            raise PartitionError(f"the problem has {all_nodes} nodes, fewer than the {n} nodes of the graph")
        host = np.argmin(costs.work[:, n:], axis=0).astype(np.int32)
        made_start, made = np.empty(all_nodes + 1, np.int32), np.empty(values, np.int32)
        read_start, read = np.empty(all_nodes + 1, np.int32), np.empty(reads, np.int32)
        cdef int32_t *made_at = out32(made_start)
        cdef int32_t *made_of = out32(made)
        cdef int32_t *read_at = out32(read_start)
        cdef int32_t *read_of = out32(read)
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_rows_of(all_nodes, values, costs.c.producer, made_at, made_of, &watch)
            if status == HG_OK:
                status = hg_values_by_reader(&costs.c, read_at, read_of, &watch)
        finish(status)
        self.costs, self._csr = costs, csr
        self._arrays = (launches, lanes, sharing, host, made_start, made, read_start, read)
        self.m.costs, self.m.n, self.m.order = &costs.c, n, csr.c.order
        self.m.host_device = in32(host)
        self.m.made_start, self.m.made, self.m.read_start, self.m.read = made_at, made_of, read_at, read_of
        self.m.launch, self.m.lane, self.m.shares = weights_or_null(launches), in8(lanes), in8(sharing)
        self.m.slowdown, self.m.hand_over = slowdown, hand_over

    cdef object devices(self, device):
        """A copy of `device` as int32 [n]; PartitionError unless each node is on a device that supports it."""
        numbers = node_array(device, self.costs.c.k, "device")
        if numbers.shape[0] != self.m.n:
            raise PartitionError(f"device must hold one device per node: expected {self.m.n}, "
                                 f"found {numbers.shape[0]}")
        bad = np.flatnonzero(np.isinf(self.costs.work[numbers, np.arange(self.m.n)]))
        if bad.size:
            raise PartitionError(f"device {numbers[bad[0]]} does not support node {bad[0]}")
        return numbers

    def run(self, label, device_of, bint renumber):
        """(label int32 [n], device_of int32 [count], begin, end float64 [count], makespan, in_order_begin,
        in_order_end, total): the run of a partition with devices at work at the same time, and one step after the
        other.

        `renumber`: number the subgraphs by their start, if those at the head of the longest paths start first.
        PartitionError for steps that wait for each other.
        """
        cdef int32_t count = <int32_t>np.shape(device_of)[0]
        labels = node_array(label, count, "label")
        devices = node_array(device_of, self.costs.c.k, "device_of")
        if labels.shape[0] != self.m.n:
            raise PartitionError(f"label must hold one subgraph per node: expected {self.m.n}, "
                                 f"found {labels.shape[0]}")
        self.devices(devices[labels])
        begin, end = np.empty(count), np.empty(count)
        begin_alone, end_alone = np.empty(count), np.empty(count)
        sequence, key = np.empty(count, np.int32), np.empty(count)
        cdef int32_t *label_of = out32(labels)
        cdef int32_t *device_at = out32(devices)
        cdef int32_t *order = out32(sequence)
        cdef double *begins = out64(begin)
        cdef double *ends = out64(end)
        cdef double *begins_alone = out64(begin_alone)
        cdef double *ends_alone = out64(end_alone)
        cdef double *keys = out64(key)
        cdef double makespan = 0, total = 0
        cdef hg_steps steps
        cdef int status
        cdef _Work work = _Work()
        if renumber and count:
            with nogil:
                status = hg_partition_steps(&self.m, label_of, device_at, count, &steps, &work.arena, &work.watch)
                if status == HG_OK:
                    status = hg_step_keys(&steps, keys, &work.arena, &work.watch)
                if status == HG_OK:
                    status = hg_simulate(&steps, keys, self.m.slowdown, self.m.hand_over, begins, ends, order,
                                         &makespan, &work.arena, &work.watch)
            finish_schedule(status)
            number = np.empty(count, np.int32)
            number[sequence] = np.arange(count, dtype=np.int32)
            labels, devices = number[labels], devices[sequence]
            label_of, device_at = out32(labels), out32(devices)
            work = _Work()  # frees the memory of the first run
        with nogil:
            status = hg_partition_steps(&self.m, label_of, device_at, count, &steps, &work.arena, &work.watch)
            if status == HG_OK:
                status = hg_simulate(&steps, NULL, self.m.slowdown, self.m.hand_over, begins, ends, NULL, &makespan,
                                     &work.arena, &work.watch)
            if status == HG_OK:
                status = hg_simulate_in_order(&steps, begins_alone, ends_alone, &total, &work.arena, &work.watch)
        finish_schedule(status)
        return labels, devices, begin, end, makespan, begin_alone, end_alone, total

    def runs(self, device):
        """(label int32 [n], count): the cut into runs, in any order."""
        numbers = self.devices(device)
        label = np.empty(self.m.n, np.int32)
        cdef const int32_t *device_of = in32(numbers)
        cdef int32_t *labels = out32(label)
        cdef int32_t count = 0
        cdef int status
        cdef _Work work = _Work(self.m.n)
        with nogil:
            status = hg_runs(&self.m, device_of, labels, &count, &work.arena, &work.watch)
        finish_schedule(status)
        return label, count

    def assign(self, Room room=None):
        """int32 [n]: a device for each node, by list scheduling; within `room`, as far as it goes."""
        device = np.empty(self.m.n, np.int32)
        cdef int32_t *devices = out32(device)
        cdef int status
        cdef const hg_room *limits = NULL
        if room is not None:
            if room.own.shape[0] != self.m.n or room.bytes.shape[0] != self.costs.c.k:
                raise PartitionError(f"room is for {room.own.shape[0]} nodes and {room.bytes.shape[0]} devices, "
                                     f"expected {self.m.n} and {self.costs.c.k}")
            limits = &room.room
        cdef _Work work = _Work(self.m.n)
        with nogil:
            status = hg_assign_nodes(&self.m, limits, devices, &work.arena, &work.watch)
        finish_schedule(status)
        return device

    def bound(self):
        """Seconds; no assignment and partition take less."""
        cdef double bound = 0
        cdef int status
        cdef _Work work = _Work()
        with nogil:
            status = hg_makespan_bound(&self.m, &bound, &work.arena, &work.watch)
        finish_schedule(status)
        return bound


def simulate(seconds, lane, indptr, followers, double hand_over):
    """(begin, end float64 [count], makespan): a run of steps that take so long, each step with the steps that wait for
    it. PartitionError for steps that wait for each other."""
    cdef int32_t count = <int32_t>np.shape(seconds)[0]
    times, lanes = seconds_array(seconds, count, "seconds"), byte_array(lane, count, "lane")
    followed = node_array(followers, count, "followers")
    starts = np.array(indptr, np.int32)
    if starts.shape != (count + 1,) or starts[0] or starts[count] != followed.shape[0] or (np.diff(starts) < 0).any():
        raise PartitionError("indptr must rise from 0 to the number of followers, with one entry more than steps")
    shares, none = np.zeros(max(count, 1), np.uint8), np.zeros(count + 1, np.int32)
    begin, end = np.empty(count), np.empty(count)
    cdef double *begins = out64(begin)
    cdef double *ends = out64(end)
    cdef hg_steps steps
    steps.count, steps.transfers = count, 0
    steps.lane, steps.shares, steps.seconds = in8(lanes), in8(shares), weights_or_null(times)
    steps.next_start, steps.next, steps.fetch_start = in32(starts), in32(followed), in32(none)
    steps.fetch, steps.transfer = NULL, NULL
    cdef double makespan = 0
    cdef int status
    cdef _Work work = _Work()
    with nogil:
        status = hg_simulate(&steps, NULL, 0, hand_over, begins, ends, NULL, &makespan, &work.arena, &work.watch)
    finish_schedule(status)
    return begin, end, makespan
