"""Workspaces: the state that one request needs to run programs, and the loops over their calls.

A run binds the addresses of inputs and outputs, then calls one kernel after another without the GIL and without Python.
"""

import math
import threading

import numpy as np

from hetero.errors import Cancelled, InferenceTooLarge

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from hetero._kernels cimport (
    ALIGNED, C_CONTIGUOUS, NATIVE, Team, answer_of, check_status, data_of, dtype_code, exchange_watch, is_stopping,
    named_code, scratch_of
)
from hetero._program cimport (
    HT_SIZE_ALLOCATE, HT_SIZE_CALL, HT_SIZE_TABLE, HT_SIZES_DONE, HT_SIZES_FAILED, IN_ARENA, IN_INPUT, IN_OUTPUT,
    Branch, Program, Sizes, ht_branch, ht_branches, ht_copy, ht_number, ht_run_sizes, ht_size_step, ht_sizes
)
from kernels_c cimport *

cdef extern from "arena_guard.h" nogil:
    void ht_arena_open(const char *start, int64_t bytes)
    void ht_arena_guard(const ht_call *call, const char *start, int64_t bytes, int threads)

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *time)
    enum:
        CLOCK_MONOTONIC
        CLOCK_THREAD_CPUTIME_ID

cdef struct ht_bound_step:   # the program of a step
    ht_tensor *tensors
    const ht_call *calls
    const ht_kernel_fn *functions
    int first_call, num_calls
    int num_outside             # tensors of inputs and outputs: their numbers, and the slots that they are in
    const int32_t *outside
    int32_t *slot_of
    const char *arena_start
    int64_t arena_size
    int64_t least_ns            # the shortest run since it was asked for; -1: none

cdef struct ht_bound_steps:
    ht_bound_step *step
    void **slot                 # the address of each value

cdef enum:
    ALIGNMENT = HT_ALIGNMENT
    REUSED_BYTES = 1 << 14      # of the smallest results that get memory that was used before
    MOST_FREE = 256             # blocks that are free at a time

cdef object np_empty = np.empty
cdef object np_ndarray = np.ndarray


cdef object _array_in(place, shape, dtype):
    """An array over ``place``, or a new one if ``place`` is unsuitable."""
    if place.nbytes >= math.prod(shape) * dtype.itemsize:
        array = np_ndarray(shape, dtype, place)
        if array.flags.aligned and array.flags.writeable:
            return array
    return np_empty(shape, dtype)


cdef tuple _shape_of(const ht_tensor *tensor):
    return tuple([tensor.dims[axis] for axis in range(tensor.ndim)])


cdef int64_t _bytes(const ht_tensor *tensor) noexcept nogil:
    return tensor.size * ht_element_bytes(tensor.dtype)


cdef int64_t _now(int clock) noexcept nogil:
    cdef timespec time
    clock_gettime(clock, &time)
    return <int64_t> time.tv_sec * 1000000000 + time.tv_nsec


cdef struct ht_slot:    # address of an operand of a repeated program: in iteration t at (t odd ? odd : even) + t * step
    char *even
    char *odd
    int64_t step
    int64_t bytes


cdef struct ht_append:  # of an output: the input that it grows out of, or -1, and the tensor with as many rows as are new
    int source
    int axis
    int rows_like


cdef char *_at(const ht_slot *slot, int64_t trip) noexcept nogil:
    return (slot.odd if trip & 1 else slot.even) + trip * slot.step


cdef int _describe_slot(ht_slot *slot, binding, int64_t trip, int64_t stop, bint written) except -1:
    """Fills ``slot`` for the iterations from ``trip`` to ``stop`` - 1; see `Workspace.repeat`."""
    even, odd, first, step = binding
    cdef int64_t rows, row, row_bytes
    for array in (even, odd):
        if not (array.flags.c_contiguous and array.flags.aligned) or (written and not array.flags.writeable):
            raise ValueError("expected C-contiguous, aligned arrays, writeable where they are written")
    if even.nbytes != odd.nbytes:
        raise ValueError("expected two arrays of one size")
    slot.even, slot.odd = <char *> data_of(even), <char *> data_of(odd)
    if step == 0:
        slot.step, slot.bytes = 0, even.nbytes
        return 0
    rows = even.shape[0]
    for row in (first + step * trip, first + step * (stop - 1)):
        if not 0 <= row < rows:
            raise ValueError(f"a trip would need row {row} of {rows}")
    row_bytes = even.nbytes // rows
    slot.bytes, slot.step = row_bytes, row_bytes * <int64_t> step
    slot.even += row_bytes * <int64_t> first
    slot.odd += row_bytes * <int64_t> first
    return 0


@cython.final
cdef class _Results:
    """Memory of results that have been dropped, for the next results of the same request.

    malloc would return the memory of large results to the system, and every run would pay for new pages. As many bytes
    are kept as the largest run had in results. The functions need the GIL.
    """

    cdef char *start[MOST_FREE]     # the blocks that are free, in the order in which they became free
    cdef int64_t size[MOST_FREE]
    cdef int num_free
    cdef int64_t free_bytes
    cdef int64_t most_bytes

    def __dealloc__(self):
        self.clear()

    cdef void clear(self) noexcept:
        """Returns the free blocks to the system."""
        while self.num_free:
            free(self.start[0])
            self.remove(0)

    cdef object empty(self, shape, dtype, int64_t needed):
        """A new array of ``needed`` bytes, with undefined contents."""
        cdef int position
        cdef _Block block = _Block.__new__(_Block)  # which may collect garbage, and so give back blocks
        for position in range(self.num_free - 1, -1, -1):
            if needed <= self.size[position] <= needed + needed // 4:
                block.start, block.size = self.start[position], self.size[position]
                self.remove(position)
                break
        else:
            block.size = _rounded(needed)
            block.start = <char *> ht_allocate_pages(block.size)
            if block.start == NULL:
                self.clear()
                block.size = needed
                block.start = <char *> ht_allocate_pages(needed)
            if block.start == NULL:
                raise MemoryError(f"a result of {needed} bytes")
        block.owner = self
        return np_ndarray(shape, dtype, block)

    cdef void give_back(self, char *start, int64_t size) noexcept:
        if size > self.most_bytes:
            free(start)
            return
        while self.num_free == MOST_FREE or self.free_bytes + size > self.most_bytes:
            free(self.start[0])
            self.remove(0)
        self.start[self.num_free], self.size[self.num_free] = start, size
        self.num_free += 1
        self.free_bytes += size

    cdef void remove(self, int position) noexcept:
        self.free_bytes -= self.size[position]
        self.num_free -= 1
        memmove(&self.start[position], &self.start[position + 1], (self.num_free - position) * sizeof(char *))
        memmove(&self.size[position], &self.size[position + 1], (self.num_free - position) * sizeof(int64_t))


@cython.final
@cython.no_gc  # no cycle goes through it, and it needs its owner until its end
cdef class _Block:
    """The memory of one result: the base of its array, and so of all views of it."""

    cdef char *start
    cdef int64_t size
    cdef _Results owner

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, 0, flags)

    def __dealloc__(self):
        if self.start != NULL:
            self.owner.give_back(self.start, self.size)


@cython.final
@cython.no_gc
cdef class Room:
    """Memory of a state that grows along one axis; see `hetero.devices.cpu.appended`. Longer than the state, which is
    an array over its first rows."""

    cdef char *start
    cdef int64_t size
    cdef readonly tuple shape
    cdef readonly object dtype
    cdef tuple steps            # the strides of its arrays
    cdef readonly int64_t used
    """The number of rows that states hold, or that an inference has begun to write. It only grows."""

    def __init__(self, tuple shape not None, dtype not None):
        cdef int64_t step = dtype.itemsize
        self.shape, self.dtype = shape, dtype
        steps = []
        for length in reversed(shape):
            steps.append(step)
            step *= length
        self.steps = tuple(reversed(steps))
        self.size = step
        self.start = <char *> ht_allocate_pages(max(step, 1))
        if self.start == NULL:
            raise MemoryError(f"a state of {step} bytes")

    def __dealloc__(self):
        free(self.start)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, 0, flags)

    cdef object whole(self):
        """An array over all of this memory. (The room must not keep it: they would hold each other.)"""
        return np_ndarray(self.shape, self.dtype, self)

    cdef bint begins_with(self, state, int axis):
        """Whether ``state`` is an array over the first rows along ``axis``."""
        cdef int position
        capsule = state.__array_struct__
        cdef const ht_array_interface *view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
        if <char *> view.data != self.start or view.nd != len(self.shape) or state.dtype != self.dtype:
            return False
        for position in range(view.nd):
            if view.strides[position] != <Py_ssize_t> self.steps[position]:
                return False
            if position != axis and view.shape[position] != <Py_ssize_t> self.shape[position]:
                return False
        return True


cdef object _first_rows(int axis, int64_t count):
    """The index of the first ``count`` rows along ``axis``."""
    return (*[slice(None)] * axis, slice(count))


cpdef object claim(past, int axis, tuple shape, dtype, int64_t added):
    """An array of ``shape`` over a `Room`, which holds the rows of ``past``, and has ``added`` rows behind them for the
    caller alone.

    It is the array that ``past`` is a view of, if the rows behind are unused. The comparison and the claim are one
    step, because the GIL is held and no Python code runs between them.
    """
    cdef Room room
    cdef int64_t rows = past.shape[axis]
    whole = past.base
    if type(whole) is np_ndarray and type(whole.base) is Room:
        room = <Room> whole.base
        if room.dtype == dtype and room.shape == shape and whole.shape == shape and room.begins_with(past, axis):
            if room.used == rows and added <= <int64_t> shape[axis] - rows:
                room.used = rows + added
                return whole
    room = Room(shape, dtype)
    whole = room.whole()
    whole[_first_rows(axis, rows)] = past
    room.used = rows + added
    return whole


cdef int64_t _rounded(int64_t needed) noexcept:
    """So that results whose sizes vary a little use the same memory: at most an eighth more."""
    cdef int64_t step = 4096
    while step < needed // 16:
        step *= 2
    return (needed + step - 1) // step * step


@cython.final
cdef class Arena:
    """Memory shared by the workspaces of one request, which run one after another. It grows and never shrinks."""

    cdef char *start     # aligned; NULL while nothing is reserved
    cdef int64_t size
    cdef _Results results

    def __cinit__(self):
        self.results = _Results.__new__(_Results)

    def __dealloc__(self):
        ht_arena_open(self.start, self.size)
        free(self.start)

    cdef int reserve(self, int64_t size) except -1:
        """Ensures a size of at least ``size`` bytes. Growing loses the contents."""
        if size <= self.size and self.start != NULL:
            return 0
        cdef int64_t larger = max(size, self.size + self.size // 4)  # otherwise a growing cache needs new pages each time
        cdef char *start = <char *> ht_allocate_pages(larger)
        if start == NULL:
            self.results.clear()
            larger = size
            start = <char *> ht_allocate_pages(size)
        if start == NULL:
            raise MemoryError(f"an arena of {size} bytes")
        ht_arena_open(self.start, self.size)
        free(self.start)
        self.start = start
        self.size = larger
        return 0


@cython.final
cdef class StopFlag:
    """A request to end the run of a `Workspace` in another thread. Kernels check it while they run."""

    cdef ht_flag flag

    def set(self):
        """Request that the run ends."""
        ht_flag_set(&self.flag, 1)

    def set_after(self, int questions):
        """Set the flag when kernels check it for the ``questions``-th time from now (1: at the next check). Lets tests
        verify, independently of the machine's speed, that kernels check it."""
        ht_flag_set(&self.flag, -questions)

    def clear(self):
        """Withdraw the request, before the next run."""
        ht_flag_set(&self.flag, 0)


cdef int _look(void *workspace) noexcept nogil:
    """Handles pending signals during a run, on its thread. Returns 1 if a handler raised."""
    with gil:
        return (<Workspace> workspace).interrupted()


@cython.final
cdef class Workspace:
    """One run of a `Program` at a time: a table of tensors bound to the addresses of an `Arena` (by default a new one).

    ``timed``: measure each call; `times` then returns the last run's. ``team``: threads for kernels to use whenever it
    is free. ``stop``: once it is set, the run raises `Cancelled`, between two calls or within a kernel that checks it.
    In the main thread, a signal handler that raises, such as the one for Ctrl-C, also ends a run.

    ``appends``: (input, output, axis, tensor) of each output that grows out of an input, a state. The output is a
    `Room`; the program reads of the input the shape only, and writes as many rows behind its own as the tensor has. The
    result is an array over the rows of both.
    """

    cdef Program program
    cdef Arena arena
    cdef Team team
    cdef int num_threads        # that may run a call at the same time
    cdef char *bound            # the arena's start that the tensors point into
    cdef bint timed
    cdef ht_tensor *tensors
    cdef ht_tensor **operands
    cdef ht_call *calls
    cdef int64_t *times_ns      # wall and CPU per call; NULL unless timed
    cdef int32_t *outside       # the tensors that are bound again for each run: those of inputs and outputs
    cdef int num_outside
    cdef void **addresses       # per input, then per output, of this run
    cdef ht_branches *branches  # of the calls that have some, in order
    cdef int num_branches
    cdef list inner             # the workspaces of branches, two for each of `branches`
    # What follows from the sizes of the inputs: the program's own tables, unless it has `Sizes`.
    cdef const ht_tensor *input_tensors
    cdef const int64_t *numbers
    cdef int64_t arena_bytes, scratch_bytes
    cdef list output_shapes
    cdef list output_bytes
    cdef ht_tensor *own_inputs  # the tables of this workspace
    cdef int64_t *own_numbers
    cdef int64_t *own_ints
    cdef int64_t *own_begins
    cdef int64_t *buffer_bytes
    cdef int64_t *buffer_offsets
    cdef int64_t *bytes_of      # per input, then per output
    cdef ht_number *registers
    cdef dict late              # tensor -> array that holds its data
    cdef bint is_sized          # whether the tables are those of some sizes
    cdef StopFlag stop
    cdef ht_watch watch         # of the current run
    cdef object raised          # by a signal handler during this run
    cdef ht_append *append_of   # per output; NULL without appends
    cdef bint *is_grown         # per input, whether an output grows out of it; NULL without appends
    cdef object first_rows      # the last index of the rows of a state, for `grown_rows` rows along `grown_axis`
    cdef int grown_axis
    cdef int64_t grown_rows

    def __init__(self, Program program not None, timed=False, Arena arena=None, Team team=None, StopFlag stop=None,
                 appends=()):
        cdef int position, operand = 0
        cdef int num_calls = program.num_calls
        self.program = program
        self.stop = stop
        self.timed = timed
        self.team = team
        self.arena = Arena() if arena is None else arena
        self.tensors = <ht_tensor *> malloc((program.num_tensors + 1) * sizeof(ht_tensor))
        self.operands = <ht_tensor **> malloc((program.num_operands + 1) * sizeof(ht_tensor *))
        self.calls = <ht_call *> malloc((num_calls + 1) * sizeof(ht_call))
        self.outside = <int32_t *> malloc((program.num_tensors + 1) * sizeof(int32_t))
        self.addresses = <void **> malloc((program.num_inputs + program.num_outputs + 1) * sizeof(void *))
        if timed:
            self.times_ns = <int64_t *> malloc((2 * num_calls + 1) * sizeof(int64_t))
        if not (self.tensors and self.operands and self.calls and self.outside and self.addresses
                and (self.times_ns or not timed)):
            raise MemoryError("the workspace of a compiled program")
        if timed:
            memset(self.times_ns, 0, (2 * num_calls + 1) * sizeof(int64_t))
        memcpy(self.tensors, program.tensors, program.num_tensors * sizeof(ht_tensor))
        memcpy(self.calls, program.calls, num_calls * sizeof(ht_call))
        for position in range(program.num_tensors):
            if program.places[position] == IN_INPUT or program.places[position] == IN_OUTPUT:
                self.outside[self.num_outside] = position
                self.num_outside += 1
        for position in range(num_calls):
            self.calls[position].in_ = <const ht_tensor *const *> (self.operands + operand)
            self.calls[position].out = <ht_tensor *const *> (self.operands + operand + self.calls[position].num_in)
            operand += self.calls[position].num_in + self.calls[position].num_out
        for position in range(program.num_operands):
            operand = program.operands[position]
            self.operands[position] = NULL if operand < 0 else &self.tensors[operand]
        self.input_tensors, self.numbers = program.input_tensors, program.numbers
        self.arena_bytes, self.scratch_bytes = program.arena_bytes, program.scratch_bytes
        self.output_shapes = [shape for shape, _ in program.output_specs]
        self.output_bytes = [math.prod(shape) * dtype.itemsize for shape, dtype in program.output_specs]
        if appends:
            self.append_of = <ht_append *> malloc((program.num_outputs + 1) * sizeof(ht_append))
            self.grown_axis = -1
            self.is_grown = <bint *> calloc(program.num_inputs + 1, sizeof(bint))
            if not (self.append_of and self.is_grown):
                raise MemoryError("the workspace of a compiled program")
            for position in range(program.num_outputs):
                self.append_of[position].source = -1
            for source, result, axis, rows_like in appends:
                self.append_of[<int> result].source = source
                self.append_of[<int> result].axis = axis
                self.append_of[<int> result].rows_like = rows_like
                self.is_grown[<int> source] = True
        self.inner = []
        if any(program.branches):
            self.add_branches()
        if program.sizes is not None:
            self.add_tables()

    cdef int add_tables(self) except -1:
        """Tables of its own for a program with `Sizes`."""
        cdef Program program = self.program
        cdef Sizes sizes = program.sizes
        cdef int position
        self.own_inputs = <ht_tensor *> malloc((program.num_inputs + 1) * sizeof(ht_tensor))
        self.own_numbers = <int64_t *> malloc((program.num_tensors + 1) * sizeof(int64_t))
        self.own_ints = <int64_t *> malloc((program.num_ints + 1) * sizeof(int64_t))
        self.own_begins = <int64_t *> malloc((program.num_tensors + 1) * sizeof(int64_t))
        self.buffer_bytes = <int64_t *> malloc((sizes.num_buffers + 1) * sizeof(int64_t))
        self.buffer_offsets = <int64_t *> malloc((sizes.num_buffers + 1) * sizeof(int64_t))
        self.bytes_of = <int64_t *> malloc((program.num_inputs + program.num_outputs + 1) * sizeof(int64_t))
        self.registers = <ht_number *> malloc((sizes.num_registers + 1) * sizeof(ht_number))
        if not (self.own_inputs and self.own_numbers and self.own_ints and self.own_begins and self.buffer_bytes
                and self.buffer_offsets and self.bytes_of and self.registers):
            raise MemoryError("the workspace of a compiled program")
        memcpy(self.own_inputs, program.input_tensors, program.num_inputs * sizeof(ht_tensor))
        memcpy(self.own_numbers, program.numbers, program.num_tensors * sizeof(int64_t))
        memcpy(self.own_ints, program.ints, program.num_ints * sizeof(int64_t))
        memcpy(self.own_begins, sizes.begins, program.num_tensors * sizeof(int64_t))
        memcpy(self.buffer_bytes, sizes.buffer_bytes, sizes.num_buffers * sizeof(int64_t))
        memcpy(self.registers, sizes.registers, sizes.num_registers * sizeof(ht_number))
        self.input_tensors, self.numbers = self.own_inputs, self.own_numbers
        for position in range(program.num_calls):
            if program.branches[position] is None:
                self.calls[position].ints = self.own_ints + (program.calls[position].ints - program.ints)
        self.late = {}
        return 0

    cdef bint compute_tables(self) except -1:
        """Compute the tables for the inputs at `addresses`, of the sizes of `own_inputs`. Returns False if the program
        does not hold for these sizes. Raises MemoryError."""
        cdef Program program = self.program
        cdef Sizes sizes = program.sizes
        cdef ht_sizes parts
        cdef ht_size_step step
        cdef int64_t at = 0
        cdef int position, tensor
        parts.registers, parts.tensors, parts.ints = self.registers, self.tensors, self.own_ints
        parts.begins, parts.buffer_bytes, parts.ask = self.own_begins, self.buffer_bytes, answer_of
        self.is_sized = False
        for position in range(program.num_inputs):
            self.tensors[position] = self.own_inputs[position]
            self.tensors[position].dtype = program.tensors[position].dtype  # 4 bits: bytes
            self.tensors[position].data = self.addresses[position]
        while True:
            at = ht_run_sizes(sizes.steps, sizes.num_steps, at, &parts)
            if at == HT_SIZES_FAILED:
                return False
            if at == HT_SIZES_DONE:
                break
            step = sizes.steps[at]
            at += 1
            if step.step == HT_SIZE_ALLOCATE:
                self.allocate(step.a)
            elif step.step == HT_SIZE_CALL:
                if not self.run_late(step.a):
                    return False
            else:
                assert step.step == HT_SIZE_TABLE
                self.compute_table(sizes.tables[step.a])
        self.arena_bytes = ht_arena_layout(sizes.num_buffers, sizes.buffer_first, sizes.buffer_last, self.buffer_bytes,
                                           self.buffer_offsets)
        if self.arena_bytes < 0:
            return False
        for position in range(program.num_tensors):
            if sizes.buffer_of[position] >= 0:
                self.own_numbers[position] = self.buffer_offsets[sizes.buffer_of[position]] + self.own_begins[position]
        for position in range(program.num_inputs):
            self.bytes_of[position] = _bytes(&self.tensors[position])
        for position in range(program.num_outputs):
            tensor = sizes.output_tensors[position]
            self.output_shapes[position] = self.shape(tensor)
            self.bytes_of[program.num_inputs + position] = self.output_bytes[position] = _bytes(&self.tensors[tensor])
        program.check(self.tensors, self.own_numbers, self.arena_bytes, self.bytes_of)
        self.scratch_bytes = program.measure_scratch(self.calls)
        self.bound = NULL
        self.is_sized = True
        return True

    cdef int allocate(self, int tensor) except -1:
        """Memory for a late tensor."""
        cdef int64_t size = _bytes(&self.tensors[tensor])
        array = self.late.get(tensor)
        if array is None or array.nbytes < size or array.nbytes > 2 * size + ALIGNMENT:
            array = self.late[tensor] = np_empty(size // 8 + 1, np.int64)
        self.tensors[tensor].data = data_of(array)
        return 0

    cdef bint run_late(self, int position) except -1:
        """Run a call that computes late tensors. Returns False if it fails: planning then finds the error and its
        node."""
        cdef Program program = self.program
        cdef ht_call call = self.calls[position]
        cdef int status
        cdef void *memory = NULL
        call.scratch_bytes = scratch_of(program.kernels[position], &call)
        if call.scratch_bytes:
            memory = malloc(call.scratch_bytes + ALIGNMENT)
            if memory == NULL:
                raise MemoryError("scratch memory of a compiled program")
            call.scratch = <void *> ((<uintptr_t> memory + ALIGNMENT - 1) & ~(<uintptr_t> ALIGNMENT - 1))
        call.team = NULL
        with nogil:
            status = program.functions[position](&call)
        free(memory)
        return status == HT_OK

    cdef int compute_table(self, table) except -1:
        """Compute a late tensor by Python."""
        function, registers, number = table
        cdef int tensor = number
        array = np.require(function(*[self.registers[<int> register].integer for register in registers]),
                           requirements="CA")
        if array.nbytes != _bytes(&self.tensors[tensor]):
            raise ValueError(f"a table has {array.nbytes} bytes, expected {_bytes(&self.tensors[tensor])}")
        self.late[tensor] = array
        self.tensors[tensor].data = data_of(array)
        return 0

    def shape(self, int tensor):
        """The shape of a tensor of the program, for the sizes of the last run."""
        if not 0 <= tensor < self.program.num_tensors:
            raise ValueError(f"the program has no tensor {tensor}")
        return _shape_of(&self.tensors[tensor])

    def fits(self, inputs):
        """Whether the program holds for these inputs. If so, `input_specs` and `output_specs` are those of their
        sizes."""
        return self.bind_inputs(inputs, []) is not None

    @property
    def input_specs(self):
        """(shape, dtype) of each input, for the sizes of the last run."""
        cdef int position
        return tuple([(_shape_of(&self.input_tensors[position]), self.program.input_specs[position][1])
                      for position in range(self.program.num_inputs)])

    @property
    def output_specs(self):
        """(shape, dtype) of each output, for the sizes of the last run."""
        return tuple([(shape, dtype)
                      for shape, (_, dtype) in zip(self.output_shapes, self.program.output_specs, strict=True)])

    cdef int add_branches(self) except -1:
        cdef Program program = self.program
        cdef int position, which
        self.branches = <ht_branches *> calloc(program.num_calls, sizeof(ht_branches))
        if self.branches == NULL:
            raise MemoryError("the workspace of a compiled program")
        for position in range(program.num_calls):
            if program.branches[position] is None:
                continue
            self.calls[position].ints = <const int64_t *> &self.branches[self.num_branches]
            self.num_branches += 1
            for which in range(2):
                self.add_branch(&self.branches[self.num_branches - 1].branch[which], program.branches[position][which])
        return 0

    cdef int add_branch(self, ht_branch *branch, Branch description) except -1:
        cdef Workspace inner = Workspace(description.program, False, None, self.team)
        cdef Program program = description.program
        cdef int position, tensor
        self.inner.append(inner)
        branch.tensors, branch.calls, branch.functions = inner.tensors, inner.calls, program.functions
        branch.num_calls, branch.num_outside, branch.outside = program.num_calls, inner.num_outside, inner.outside
        branch.failed = -1
        branch.operand_of = <int32_t *> malloc((inner.num_outside + 1) * sizeof(int32_t))
        branch.copies = <ht_copy *> calloc(len(description.copies) + 1, sizeof(ht_copy))
        if not (branch.operand_of and branch.copies):
            raise MemoryError("the workspace of a compiled program")
        for position in range(inner.num_outside):
            tensor = inner.outside[position]
            numbers = description.inputs if program.places[tensor] == IN_INPUT else description.outputs
            branch.operand_of[position] = numbers[program.numbers[tensor]]
        for (source, target), size in zip(description.copies, description.copy_bytes, strict=True):
            if isinstance(source, np_ndarray):
                branch.copies[branch.num_copies].constant = <const char *> data_of(source)
            else:
                branch.copies[branch.num_copies].source = source
            branch.copies[branch.num_copies].target = target
            branch.copies[branch.num_copies].bytes = size
            branch.num_copies += 1
        return 0

    cdef object failure(self, int position):
        """The label of a call that failed; for a call within a branch, combined with that call's label."""
        cdef Program program = self.program
        cdef ht_branches *branches
        cdef Workspace inner
        label = program.labels[position]
        if program.branches[position] is None:
            return label
        branches = <ht_branches *> self.calls[position].ints
        number = 2 * (branches - self.branches) + branches.taken
        inner = self.inner[number]
        if branches.branch[branches.taken].failed < 0:
            return label
        return f"{label}: {inner.failure(branches.branch[branches.taken].failed)}"

    cdef object too_large(self):
        """The error for results that do not fit in memory. It names the call with the largest result."""
        cdef Program program = self.program
        cdef const ht_tensor *result
        cdef const ht_tensor *largest = NULL
        cdef int position, number
        label = "an empty program"
        for position in range(program.first_call, program.num_calls):
            for number in range(self.calls[position].num_out):
                result = self.calls[position].out[number]
                if result != NULL and (largest == NULL or _bytes(result) > _bytes(largest)):
                    largest, label = result, program.labels[position]
        if largest == NULL:
            return InferenceTooLarge("not enough memory")
        return InferenceTooLarge(
            f"{label}: not enough memory; its result of shape {list(_shape_of(largest))} has {_bytes(largest)} bytes")

    cdef void *failure_scratch(self, int position) except? NULL:
        """The scratch memory of a call that failed; for a call within a branch, that call's."""
        cdef ht_branches *branches
        cdef Workspace inner
        if self.program.branches[position] is not None:
            branches = <ht_branches *> self.calls[position].ints
            if branches.branch[branches.taken].failed >= 0:
                inner = self.inner[2 * (branches - self.branches) + branches.taken]
                return inner.failure_scratch(branches.branch[branches.taken].failed)
        return self.calls[position].scratch

    def __dealloc__(self):
        free(self.tensors)
        free(self.operands)
        free(self.calls)
        free(self.outside)
        free(self.addresses)
        free(self.times_ns)
        free(self.own_inputs)
        free(self.own_numbers)
        free(self.own_ints)
        free(self.own_begins)
        free(self.buffer_bytes)
        free(self.buffer_offsets)
        free(self.bytes_of)
        free(self.registers)
        free(self.append_of)
        free(self.is_grown)
        cdef int position
        for position in range(2 * self.num_branches):
            free(self.branches[position // 2].branch[position % 2].operand_of)
            free(self.branches[position // 2].branch[position % 2].copies)
        free(self.branches)

    cdef int bind(self) except -1:
        """Points the tensors into the arena, unless they already do."""
        cdef Program program = self.program
        cdef int64_t scratch = (self.arena_bytes + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1)
        cdef int64_t step = (self.scratch_bytes + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1)
        cdef int position
        self.num_threads = 1 if self.team is None else self.team.most_threads()
        try:
            self.arena.reserve(scratch + step * self.num_threads)
        except MemoryError:
            raise self.too_large() from None
        cdef Workspace inner
        if self.num_branches:
            for inner in self.inner:
                inner.bind()
        if self.bound == self.arena.start:
            return 0
        self.bound = self.arena.start
        for position in range(program.num_tensors):
            if program.places[position] == IN_ARENA:
                self.tensors[position].data = self.bound + self.numbers[position]
        for position in range(program.num_calls):
            self.calls[position].scratch = self.bound + scratch
            self.calls[position].scratch_step = step
        return 0

    cdef int use(self, ht_team *team) noexcept nogil:
        """Passes a team, or NULL, to all calls."""
        cdef int position
        if self.program.num_calls and self.calls[0].team != team:
            for position in range(self.program.num_calls):
                self.calls[position].team = team
        return 0

    cdef ht_watch *begin_watch(self) noexcept:
        """Starts to watch the calling thread's run. Returns the thread's previous watch, for `end_watch`."""
        self.watch.stop = NULL if self.stop is None else &self.stop.flag
        self.watch.look = _look
        self.watch.context = <void *> self
        ht_flag_set(&self.watch.ended, 0)
        self.watch.next_look = 0
        return exchange_watch(&self.watch)

    cdef int end_watch(self, ht_watch *before) except -1:
        """Restores the previous watch. Raises the exception that ended the run early, if any."""
        exchange_watch(before)
        if not ht_watch_ended(&self.watch):
            return 0
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised
        raise Cancelled("the run was cancelled")

    cdef int interrupted(self) noexcept:
        """Handles pending signals. Returns 1 if a handler raised; `end_watch` raises that exception."""
        try:  # encloses everything, because Python may call a handler at any point
            if threading.current_thread() is not threading.main_thread():
                self.watch.look = NULL  # no other thread handles signals
                return 0
            PyErr_CheckSignals()
        except BaseException as error:
            self.raised = error
            return 1
        return 0

    def run_again(self, inputs):
        """As `run` for unchecked inputs: also returns None if one is not exactly a NumPy array."""
        for array in inputs:
            if type(array) is not np_ndarray:
                return None
        return self.run_checked(inputs, None)

    def run(self, inputs, places=None):
        """Run the program; returns new arrays, one per output, or None if the inputs have other shapes or dtypes than
        planned.

        ``places``: per output the memory to write it to, C-contiguous and writable. An output gets new memory if its
        place is too small, or not aligned for its dtype. ValueError if a place overlaps an input or another output.
        Inputs that are not C-contiguous are copied. Not thread-safe; workspaces that share an arena must not run
        concurrently. Raises `InferenceError` naming the label of the call that failed.
        """
        if places is not None and len(places) != self.program.num_outputs:
            raise ValueError(f"expected {self.program.num_outputs} places, found {len(places)}")
        return self.run_checked(inputs, places)

    cdef object grown(self, int output, inputs, shape, dtype):
        """The array for an output that grows out of an input, with the old rows; binds the address of its room."""
        cdef const ht_append *append = &self.append_of[output]
        cdef int64_t added = self.tensors[append.rows_like].dims[append.axis]
        cdef int64_t rows = self.input_tensors[append.source].dims[append.axis]
        whole = claim(inputs[append.source], append.axis, shape, dtype, added)
        self.addresses[self.program.num_inputs + output] = (<Room> whole.base).start
        if self.grown_axis != append.axis or self.grown_rows != rows + added:
            self.first_rows = _first_rows(append.axis, rows + added)
            self.grown_axis, self.grown_rows = append.axis, rows + added
        return whole[self.first_rows]

    cdef int check_places(self, inputs, outputs, places) except -1:
        """Raises ValueError if an output overlaps an input or another output, because writing it would destroy data
        still to be read. Outputs without a place have new memory, or that of a room, which only states have."""
        cdef int position, other, first = self.program.num_inputs
        cdef const char *start
        cdef const char *beside
        for position in range(len(outputs)):
            if not places[position].nbytes or (self.append_of != NULL and self.append_of[position].source >= 0):
                continue
            start = <const char *> self.addresses[first + position]
            for other in range(first + position):
                array = inputs[other] if other < first else outputs[other - first]
                beside = <const char *> self.addresses[other]
                if (array.nbytes and outputs[position].nbytes and start < beside + <int64_t> array.nbytes
                        and beside < start + <int64_t> outputs[position].nbytes):
                    what = f"input {other}" if other < first else f"output {other - first}"
                    raise ValueError(f"the place of output {position} overlaps {what}")
        return 0

    cdef object bind_inputs(self, inputs, list held):
        """Stores the addresses of the inputs, and computes the tables if their sizes are new; returns None if the
        program does not hold for them. ``held``: receives the copies made here, which must live as long as the run."""
        cdef Program program = self.program
        cdef int position, axis, code
        cdef const ht_array_interface *view
        cdef const ht_tensor *spec
        cdef bint is_new = program.sizes is not None and (not self.is_sized or program.sizes.reads_elements)
        if len(inputs) != program.num_inputs:
            return None
        for position in range(program.num_inputs):
            spec = &self.input_tensors[position]
            array = inputs[position]
            capsule = array.__array_struct__
            view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
            code = named_code(array.dtype) if view.typekind == c'V' else dtype_code(view.typekind, view.itemsize)
            if view.nd != spec.ndim or code != spec.dtype:
                return None
            for axis in range(spec.ndim):
                if view.shape[axis] != spec.dims[axis]:
                    if program.sizes is None or not program.sizes.open_axes[position][axis]:
                        return None
                    self.own_inputs[position].dims[axis] = view.shape[axis]
                    is_new = True
                    self.is_sized = False
            if (view.flags & (C_CONTIGUOUS | ALIGNED | NATIVE) != (C_CONTIGUOUS | ALIGNED | NATIVE)
                    and not (self.is_grown != NULL and self.is_grown[position])):  # whose elements are not read
                array = np.require(array, array.dtype.newbyteorder("="), "CA")
                held.append(array)
                self.addresses[position] = data_of(array)
            else:
                self.addresses[position] = ht_array_data(view)
            if is_new:
                self.own_inputs[position].size = array.size
        if is_new and not self.compute_tables():
            return None
        return self

    cdef list run_checked(self, inputs, places):
        cdef Program program = self.program
        cdef int position, tensor, status = HT_OK
        cdef int64_t wall, cpu
        held = []
        if self.bind_inputs(inputs, held) is None:
            return None
        outputs = []
        cdef int64_t size, total = 0
        cdef _Results results = self.arena.results
        for position in range(program.num_outputs):
            shape, dtype, size = (
                self.output_shapes[position], program.output_specs[position][1], self.output_bytes[position])
            try:
                if self.append_of != NULL and self.append_of[position].source >= 0:
                    outputs.append(self.grown(position, inputs, shape, dtype))
                    continue
                if places is not None:
                    array = _array_in(places[position], shape, dtype)
                elif size < REUSED_BYTES:
                    array = np_empty(shape, dtype)
                else:
                    array = results.empty(shape, dtype, size)
                    total += _rounded(size)
            except MemoryError:
                raise self.too_large() from None
            self.addresses[program.num_inputs + position] = data_of(array)
            outputs.append(array)
        results.most_bytes = max(results.most_bytes, total)
        if places is not None:
            self.check_places(inputs, outputs, places)
        self.bind()
        cdef ht_team *team = NULL
        if self.team is not None:
            team = self.team.enter()
        cdef ht_watch *before = self.begin_watch()
        with nogil:
            self.use(team)
            for position in range(self.num_outside):
                tensor = self.outside[position]
                self.tensors[tensor].data = self.addresses[
                    program.numbers[tensor] + (program.num_inputs if program.places[tensor] == IN_OUTPUT else 0)]
            if self.timed:
                for position in range(program.first_call, program.num_calls):
                    wall, cpu = _now(CLOCK_MONOTONIC), _now(CLOCK_THREAD_CPUTIME_ID)
                    ht_arena_guard(&self.calls[position], self.arena.start, self.arena.size, self.num_threads)
                    status = program.functions[position](&self.calls[position])
                    self.times_ns[2 * position] = _now(CLOCK_MONOTONIC) - wall
                    self.times_ns[2 * position + 1] = _now(CLOCK_THREAD_CPUTIME_ID) - cpu
                    if status != HT_OK or is_stopping():
                        break
            else:
                for position in range(program.first_call, program.num_calls):
                    ht_arena_guard(&self.calls[position], self.arena.start, self.arena.size, self.num_threads)
                    status = program.functions[position](&self.calls[position])
                    if status != HT_OK or ht_watch_ended(&self.watch) or (position & 15 == 15 and is_stopping()):
                        break
            if team != NULL:
                self.team.leave(team)
        self.end_watch(before)
        if status != HT_OK:
            check_status(status, self.failure(position), self.failure_scratch(position))
        return outputs

    def repeat(self, bindings, copies, counter, int flag, int64_t trip, int64_t stop, double seconds):
        """Run the program once per iteration, from number ``trip`` (< ``stop``) on. Ends at ``stop``, after about
        ``seconds``, or when the flag is false. Returns the next iteration's number and whether to run it: (int, bool).

        ``bindings``: (even, odd, first, step) per input, per output, then for operands of copies only. The operand is
        the array ``even`` in even iterations and ``odd`` in odd iterations; with a ``step`` of 1 or -1 it is row first
        + step * trip of that array. ``copies``: (from, to), numbers of bindings, copied after each iteration.
        ``counter``: int64 of one element that holds the number of the iteration. ``flag``: the binding of a bool that
        ends the iterations when it is false, or -1.

        While this runs, the arrays that it writes must not be read elsewhere. Raises ValueError for bindings that do
        not fit, and `InferenceError` naming the iteration and the label of the call that failed.
        """
        cdef Program program = self.program
        cdef int num = len(bindings), num_copies = len(copies), position, tensor, source, target, failed = -1
        cdef int status = HT_OK
        cdef bint proceed = True
        cdef int64_t end
        cdef int64_t *count
        cdef ht_slot *slots = NULL
        cdef int *pairs = NULL
        cdef ht_team *team = NULL
        cdef ht_watch *before
        operands = program.num_inputs + program.num_outputs
        if num < operands or not 0 <= trip < stop or not -1 <= flag < num:
            raise ValueError("expected a binding per input and output, and trips to make")
        if (counter.dtype != np.int64 or counter.size != 1 or not counter.flags.c_contiguous
                or not counter.flags.writeable):
            raise ValueError("expected a counter of one int64")
        targets = {pair[1] for pair in copies}
        slots = <ht_slot *> malloc((num + 1) * sizeof(ht_slot))
        pairs = <int *> malloc((2 * num_copies + 1) * sizeof(int))
        try:
            if not (slots and pairs):
                raise MemoryError("the bindings of a repeated program")
            for position in range(num):
                written = position in targets or program.num_inputs <= position < operands
                _describe_slot(&slots[position], bindings[position], trip, stop, written)
            for position, (shape, dtype) in enumerate((*self.input_specs, *self.output_specs)):
                if slots[position].bytes != math.prod(shape) * dtype.itemsize:
                    raise ValueError(f"binding {position} has another size than planned")
            for position, (source, target) in enumerate(copies):
                if not (0 <= source < num and 0 <= target < num) or slots[source].bytes != slots[target].bytes:
                    raise ValueError(f"copy {position} is between bindings of two sizes")
                pairs[2 * position], pairs[2 * position + 1] = source, target
            if flag >= 0 and slots[flag].bytes != 1:
                raise ValueError("expected a flag of one byte")
            count = <int64_t *> data_of(counter)
            self.bind()
            if self.team is not None:
                team = self.team.enter()
            before = self.begin_watch()
            with nogil:
                self.use(team)
                end = _now(CLOCK_MONOTONIC) + <int64_t> (seconds * 1e9)
                while True:
                    count[0] = trip
                    for position in range(self.num_outside):
                        tensor = self.outside[position]
                        self.tensors[tensor].data = _at(&slots[
                            program.numbers[tensor]
                            + (program.num_inputs if program.places[tensor] == IN_OUTPUT else 0)], trip)
                    for position in range(program.first_call, program.num_calls):
                        ht_arena_guard(&self.calls[position], self.arena.start, self.arena.size, self.num_threads)
                        status = program.functions[position](&self.calls[position])
                        if status != HT_OK:
                            failed = position
                            break
                        if ht_watch_ended(&self.watch) or (position & 15 == 15 and is_stopping()):
                            break
                    if failed >= 0 or ht_watch_ended(&self.watch):
                        break
                    for position in range(num_copies):
                        memcpy(_at(&slots[pairs[2 * position + 1]], trip), _at(&slots[pairs[2 * position]], trip),
                               slots[pairs[2 * position]].bytes)
                    if flag >= 0:
                        proceed = _at(&slots[flag], trip)[0] != 0
                    trip += 1
                    if not proceed or trip >= stop or _now(CLOCK_MONOTONIC) >= end:
                        break
                if team != NULL:
                    self.team.leave(team)
            self.end_watch(before)
        finally:
            free(slots)
            free(pairs)
        if failed >= 0:
            check_status(status, f"iteration {trip}: {self.failure(failed)}", self.failure_scratch(failed))
        return trip, proceed

    def times(self):
        """(wall, thread CPU) nanoseconds of each call of the last run, from ``first_call`` on; empty unless
        ``timed``."""
        cdef int position
        if not self.timed:
            return []
        return [(self.times_ns[2 * position], self.times_ns[2 * position + 1])
                for position in range(self.program.first_call, self.program.num_calls)]


cdef int _run_bound_step(void *context, int32_t number) noexcept nogil:
    """Runs the program of a step. Nonzero if a call fails, or if the run must end."""
    cdef ht_bound_steps *steps = <ht_bound_steps *> context
    cdef ht_bound_step *step = &steps.step[number]
    cdef int64_t begin = _now(CLOCK_MONOTONIC), taken
    cdef int position, status
    for position in range(step.num_outside):
        step.tensors[step.outside[position]].data = steps.slot[step.slot_of[position]]
    for position in range(step.first_call, step.num_calls):
        ht_arena_guard(&step.calls[position], step.arena_start, step.arena_size, 1)
        status = step.functions[position](&step.calls[position])
        if status != HT_OK or (position & 15 == 15 and is_stopping()):
            return 1
    taken = _now(CLOCK_MONOTONIC) - begin
    if step.least_ns < 0 or taken < step.least_ns:
        step.least_ns = taken
    return 0


@cython.final
cdef class BoundSteps:
    """Steps of an inference, each the program of a workspace, which run without Python: those of different devices at
    the same time, each in one thread (kernels/steps.h).

    ``workspaces``: of each step, after a run with the sizes in question. ``devices``: the number of each step's device.
    Workspaces of a device may share an arena; those of two devices must not. ``reads``, ``fills``: for each step, the
    slot of each input and output. ``waits_for``: for how many steps each step waits. ``followers``: for each step, the
    steps that wait for it. ``outputs``: the slots of the results, all filled by steps. Slots that no step fills are
    inputs. ``values``: slot -> the array that other values are computed in. ``team``: with a thread for each device.

    Raises ValueError for steps that cannot run in this way: workspaces that
    measure times, use a team of several threads, append to states, or have symbols for sizes; and values of other types
    than a step expects.
    """

    cdef tuple workspaces, outputs
    cdef object values
    cdef dict entering          # slot -> (shape, dtype)
    cdef list leaving           # (slot, shape, dtype, bytes, workspace) of each result that a step makes
    cdef Team team
    cdef ht_bound_steps bound
    cdef ht_steps steps
    cdef int32_t *numbers       # the arrays of `steps`

    def __init__(self, workspaces, devices, reads, fills, waits_for, followers, outputs, values, Team team not None):
        cdef Workspace workspace
        cdef Program program
        cdef ht_bound_step *step
        cdef int number, position, tensor, n = len(workspaces), num_edges = sum(map(len, followers))
        cdef int num_slots = 1 + max([slot for slots in (*reads, *fills, outputs) for slot in slots], default=-1)
        self.workspaces, self.outputs, self.team = tuple(workspaces), tuple(outputs), team
        self.values, self.entering, self.leaving = values, {}, []
        self.bound.step = <ht_bound_step *> calloc(n + 1, sizeof(ht_bound_step))
        self.bound.slot = <void **> calloc(num_slots + 1, sizeof(void *))
        self.numbers = <int32_t *> malloc((3 * n + 1 + num_edges) * sizeof(int32_t))
        if not (self.bound.step and self.bound.slot and self.numbers):
            raise MemoryError("the steps of a model")
        self.steps = ht_steps(n, 1 + max(devices, default=0), self.numbers, self.numbers + n, self.numbers + 2 * n,
                              self.numbers + 3 * n + 1, _run_bound_step, <void *> &self.bound)
        position = 3 * n + 1
        for number in range(n):
            self.numbers[number], self.numbers[n + number] = devices[number], waits_for[number]
            self.numbers[2 * n + number] = position - 3 * n - 1
            for follower in followers[number]:
                self.numbers[position] = follower
                position += 1
        self.numbers[3 * n] = num_edges
        made = {}
        for number, workspace in enumerate(workspaces):
            program = workspace.program
            if (workspace.timed or program.sizes is not None or workspace.append_of != NULL
                    or (workspace.team is not None and workspace.team.most_threads() > 1)
                    or len(reads[number]) != program.num_inputs or len(fills[number]) != program.num_outputs):
                raise ValueError("a step that cannot run without Python")
            for slot, spec in zip(reads[number], workspace.input_specs, strict=True):
                if (made[slot] if slot in made else self.entering.setdefault(slot, spec)) != spec:
                    raise ValueError(f"value {slot} has two types")
            for slot, (shape, dtype) in zip(fills[number], workspace.output_specs, strict=True):
                made[slot] = (shape, dtype)
                if slot in outputs:
                    self.leaving.append((slot, shape, dtype, math.prod(shape) * dtype.itemsize, workspace))
                elif _spec_of(values[slot]) == made[slot]:
                    self.bound.slot[<int> slot] = data_of(values[slot])
                else:
                    raise ValueError(f"value {slot} has another type than its array")
            step = &self.bound.step[number]
            step.tensors, step.calls, step.functions = workspace.tensors, workspace.calls, program.functions
            step.first_call, step.num_calls = program.first_call, program.num_calls
            step.num_outside, step.outside, step.least_ns = workspace.num_outside, workspace.outside, -1
            step.slot_of = <int32_t *> malloc((workspace.num_outside + 1) * sizeof(int32_t))
            if step.slot_of == NULL:
                raise MemoryError("the steps of a model")
            for position in range(workspace.num_outside):
                tensor = workspace.outside[position]
                slots = reads[number] if program.places[tensor] == IN_INPUT else fills[number]
                step.slot_of[position] = slots[program.numbers[tensor]]
        if not set(outputs) <= {slot for slot, *_ in self.leaving}:
            raise ValueError("a result that no step makes")

    def __dealloc__(self):
        cdef int number
        if self.bound.step != NULL:
            for number in range(self.steps.num_steps):
                free(self.bound.step[number].slot_of)
        free(self.bound.step)
        free(self.bound.slot)
        free(self.numbers)

    def run(self, slots):
        """Run the steps. Returns new arrays for the results. ``slots``: a value for each slot; only those of inputs are
        read. Returns None, without effect on the results of a later run, if an input is not an array of the type
        that its steps expect, or if a step fails; an empty list if the team is taken."""
        cdef ht_team *team = self.team.enter()
        if team == NULL:
            return []
        try:
            return self.run_on(team, slots)
        finally:
            self.team.leave(team)

    cdef object run_on(self, ht_team *team, slots):
        cdef Workspace workspace, first
        cdef int number, done
        cdef int64_t size, total = 0
        cdef _Results results
        for slot, spec in self.entering.items():
            array = slots[slot]
            if type(array) is not np_ndarray or _spec_of(array) != spec:
                return None
            self.bound.slot[<int> slot] = data_of(array)
        made = {}
        for slot, shape, dtype, size, workspace in self.leaving:
            if size < REUSED_BYTES:
                array = np_empty(shape, dtype)
            else:
                results = workspace.arena.results
                array = results.empty(shape, dtype, size)
                total += _rounded(size)
                results.most_bytes = max(results.most_bytes, total)
            made[slot] = array
            self.bound.slot[<int> slot] = data_of(array)
        for workspace in self.workspaces:
            workspace.bind()
        for number, workspace in enumerate(self.workspaces):  # after all arenas have grown
            workspace.bind()
            workspace.use(NULL)
            self.bound.step[number].arena_start = workspace.arena.start
            self.bound.step[number].arena_size = workspace.arena.size
        first = self.workspaces[0]
        cdef ht_watch *before = first.begin_watch()
        with nogil:
            done = self.team.run_steps(team, &self.steps)
        first.end_watch(before)
        return [made[slot] for slot in self.outputs] if done else None

    def least_seconds(self):
        """The shortest time of each step since the last call, in seconds; infinite for a step that has not run."""
        cdef int number
        seconds = []
        for number in range(self.steps.num_steps):
            seconds.append(self.bound.step[number].least_ns * 1e-9 if self.bound.step[number].least_ns >= 0 else math.inf)
            self.bound.step[number].least_ns = -1
        return seconds


cdef object _spec_of(array):
    """(shape, dtype) of an array that kernels can read as it is; None for another."""
    flags = array.flags
    return (array.shape, array.dtype) if flags.c_contiguous and flags.aligned else None
