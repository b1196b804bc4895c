"""Workspaces: the state that one request needs to run programs, and the loops over their calls.

A run binds the addresses of inputs and outputs, then calls one kernel after another without the GIL and without Python.
"""

import math
import threading

import numpy as np

from hetero._hosted import chosen
from hetero.errors import Cancelled, HeteroError, InferenceError, InferenceTooLarge, inference_error

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from hetero._kernels cimport (
    ALIGNED, C_CONTIGUOUS, NATIVE, Team, answer_of, check_status, data_of, describe_type, dtype_code,
    exchange_watch, is_stopping, named_code, scratch_of
)
from hetero._program cimport (
    HT_SIZE_ALLOCATE, HT_SIZE_CALL, HT_SIZE_TABLE, HT_SIZES_DONE, HT_SIZES_FAILED, IN_ARENA, IN_INPUT, IN_OUTPUT,
    Program, Sizes, ht_branches, ht_number, ht_run_sizes, ht_size_step, ht_sizes
)
from kernels_c cimport *

cdef extern from "arena_guard.h" nogil:
    void ht_arena_open(const char *start, int64_t bytes)
    void ht_arena_guard(const ht_call *call, const char *start, int64_t bytes, int threads)

cdef extern from "system.h" nogil:
    int64_t ht_now_ns()
    int64_t ht_thread_cpu_ns()
    int64_t ht_physical_memory()

cdef struct ht_bound_step:   # the program of a step
    ht_tensor *tensors
    const ht_call *calls
    const ht_kernel_fn *functions
    int first_call, end_call
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
    MEASURED_BYTES = 1 << 28    # of the smallest buffer that is compared with the memory of the machine

cdef object np_ascontiguousarray = np.ascontiguousarray
cdef object np_empty = np.empty
cdef object np_int64 = np.int64
cdef object np_ndarray = np.ndarray


def physical_memory():
    """The bytes of memory of this machine; 2**63 - 1 if the system does not say."""
    return ht_physical_memory()


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


cdef int64_t _aligned(int64_t bytes) noexcept nogil:
    return (bytes + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1)


cdef struct ht_append:  # of an output: the input that it grows out of, or -1, and the tensor with as many rows as are new
    int source
    int axis
    int rows_like


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
            ht_free_pages(self.start[0])
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
            ht_free_pages(start)
            return
        while self.num_free == MOST_FREE or self.free_bytes + size > self.most_bytes:
            ht_free_pages(self.start[0])
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
        ht_free_pages(self.start)

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
        ht_free_pages(self.start)

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
        ht_free_pages(self.start)
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
    cdef bint is_described      # whether `output_shapes` and `output_bytes` are
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
        self.is_described = True
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
            if program.kernels[position] >= 0:
                self.calls[position].ints = self.own_ints + (program.calls[position].ints - program.ints)
        self.late = {}
        return 0

    cdef bint compute_tables(self) except -1 nogil:
        """Compute the tables for the inputs at `addresses`, of the sizes of `own_inputs`. Returns False if the program
        does not hold for these sizes. Raises MemoryError."""
        cdef ht_sizes parts
        cdef ht_size_step step
        cdef int64_t at = 0
        cdef int position, tensor, buffer
        parts.registers, parts.tensors, parts.ints = self.registers, self.tensors, self.own_ints
        parts.begins, parts.buffer_bytes, parts.ask = self.own_begins, self.buffer_bytes, answer_of
        self.is_sized = False
        for position in range(self.program.num_inputs):
            self.tensors[position] = self.own_inputs[position]
            self.tensors[position].dtype = self.program.tensors[position].dtype  # 4 bits: bytes
            self.tensors[position].data = self.addresses[position]
        while True:
            at = ht_run_sizes(self.program.sizes.steps, self.program.sizes.num_steps, at, &parts)
            if at == HT_SIZES_FAILED:
                return False
            if at == HT_SIZES_DONE:
                break
            step = self.program.sizes.steps[at]
            at += 1
            with gil:
                if step.step == HT_SIZE_ALLOCATE:
                    self.allocate(step.a)
                elif step.step == HT_SIZE_CALL:
                    if not self.run_late(step.a):
                        return False
                else:
                    assert step.step == HT_SIZE_TABLE
                    self.compute_table(self.program.sizes.tables[step.a])
        self.arena_bytes = ht_arena_layout(self.program.sizes.num_buffers, self.program.sizes.buffer_first,
                                           self.program.sizes.buffer_last, self.buffer_bytes, self.buffer_offsets)
        if self.arena_bytes < 0:
            return False
        for position in range(self.program.num_tensors):
            buffer = self.program.sizes.buffer_of[position]
            if buffer >= 0:
                self.own_numbers[position] = self.buffer_offsets[buffer] + self.own_begins[position]
        for position in range(self.program.num_inputs):
            self.bytes_of[position] = _bytes(&self.tensors[position])
        for position in range(self.program.num_outputs):
            tensor = self.program.sizes.output_tensors[position]
            self.bytes_of[self.program.num_inputs + position] = _bytes(&self.tensors[tensor])
        self.is_described = False
        self.program.check(self.tensors, self.own_numbers, self.arena_bytes, self.bytes_of)
        self.scratch_bytes = self.program.measure_scratch(self.calls)
        self.bound = NULL
        self.is_sized = True
        return True

    cdef int describe_outputs(self) except -1:
        """Fills in the shapes and bytes of outputs for the last sizes."""
        cdef int position
        for position in range(self.program.num_outputs):
            self.output_shapes[position] = self.shape(self.program.sizes.output_tensors[position])
            self.output_bytes[position] = self.bytes_of[self.program.num_inputs + position]
        self.is_described = True
        return 0

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
        if not self.is_described:
            self.describe_outputs()
        return tuple([(shape, dtype)
                      for shape, (_, dtype) in zip(self.output_shapes, self.program.output_specs, strict=True)])

    cdef int add_branches(self) except -1:
        cdef Program program = self.program
        cdef ht_branches *branches
        cdef int position, at
        for position in range(program.num_calls):
            self.num_branches += program.kernels[position] < 0
        self.branches = branches = <ht_branches *> calloc(self.num_branches + 1, sizeof(ht_branches))
        if branches == NULL:
            raise MemoryError("the workspace of a compiled program")
        for position in range(program.num_calls):
            if program.kernels[position] < 0:
                branches.calls, branches.functions, branches.failed = self.calls, program.functions, -1
                for at in range(3):
                    branches.begin[at] = program.calls[position].ints[at]
                self.calls[position].ints = <const int64_t *> branches
                branches += 1
        return 0

    cdef int check(self, int status, int position) except -1:
        """Raises the error of a call that failed; of the call within a branch, if it was one."""
        cdef const ht_branches *branches
        while self.program.kernels[position] < 0:
            branches = <const ht_branches *> self.calls[position].ints
            position = branches.failed
        check_status(status, self.program.labels[position], self.calls[position].scratch)
        return 0

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
        free(self.branches)

    cdef int bind(self) except -1:
        """Points the tensors into the arena, unless they already do."""
        try:
            self.arena.reserve(self.needed_bytes())
        except MemoryError:
            raise self.too_large() from None
        self.place()
        return 0

    cdef bint has_room(self) noexcept nogil:
        """Whether the arena is large enough."""
        return self.arena.start != NULL and self.needed_bytes() <= self.arena.size

    cdef int64_t needed_bytes(self) noexcept nogil:
        """Bytes that a run needs in the arena."""
        self.num_threads = 1 if self.team is None else self.team.most_threads()
        return _aligned(self.arena_bytes) + _aligned(self.scratch_bytes) * self.num_threads

    cdef int place(self) noexcept nogil:
        """`bind` for an arena that is large enough."""
        cdef int position
        if self.bound == self.arena.start:
            return 0
        self.bound = self.arena.start
        for position in range(self.program.num_tensors):
            if self.program.places[position] == IN_ARENA:
                self.tensors[position].data = self.bound + self.numbers[position]
        for position in range(self.program.num_calls):
            self.calls[position].scratch = self.bound + _aligned(self.arena_bytes)
            self.calls[position].scratch_step = _aligned(self.scratch_bytes)
        for position in range(self.num_branches):
            self.branches[position].arena_start, self.branches[position].arena_size = self.bound, self.arena.size
            self.branches[position].num_threads = self.num_threads
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
            if not isinstance(array, np_ndarray):
                return None
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
        if not self.is_described:
            self.describe_outputs()
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
                for position in range(program.first_call, program.end_call):
                    wall, cpu = ht_now_ns(), ht_thread_cpu_ns()
                    ht_arena_guard(&self.calls[position], self.arena.start, self.arena.size, self.num_threads)
                    status = program.functions[position](&self.calls[position])
                    self.times_ns[2 * position] = ht_now_ns() - wall
                    self.times_ns[2 * position + 1] = ht_thread_cpu_ns() - cpu
                    if status != HT_OK or is_stopping():
                        break
            else:
                for position in range(program.first_call, program.end_call):
                    ht_arena_guard(&self.calls[position], self.arena.start, self.arena.size, self.num_threads)
                    status = program.functions[position](&self.calls[position])
                    if status != HT_OK or ht_watch_ended(&self.watch) or (position & 15 == 15 and is_stopping()):
                        break
            if team != NULL:
                self.team.leave(team)
        self.end_watch(before)
        if status != HT_OK:
            self.check(status, position)
        return outputs

    def times(self):
        """(wall, thread CPU) nanoseconds of each call of the last run, from ``first_call`` on; empty unless
        ``timed``."""
        cdef int position
        if not self.timed:
            return []
        return [(self.times_ns[2 * position], self.times_ns[2 * position + 1])
                for position in range(self.program.first_call, self.program.end_call)]


cdef struct ht_result:      # an output of a body that is one program
    int source              # the output of the program, or -1 - the input of the body, whose memory holds it
    bint is_constant        # the memory is `type.data`; the source is -1 - its place in `Iterations.arrays`
    int shape_like          # a tensor of the program with its shape, or -1: the shape of `type` holds for all sizes
    ht_tensor type


cdef struct ht_rows:        # an output that is written to one row per iteration
    char *start             # the row of iteration `first`
    int64_t first, end      # the iterations that have a row
    int64_t bytes           # of a row
    ht_tensor type          # of a row


cdef struct ht_buffer:      # memory for one value
    char *start
    int64_t size
    bint is_used            # in the current iteration


cdef bint _same_shape(const ht_tensor *a, const ht_tensor *b) noexcept nogil:
    cdef int axis
    if a.ndim != b.ndim:
        return False
    for axis in range(a.ndim):
        if a.dims[axis] != b.dims[axis]:
            return False
    return True


@cython.final
cdef class Iterations:
    """The iterations of a Loop or Scan whose body is one program.

    The inputs of the body are the number of the iteration (only in a Loop), ``num_carried`` carried values (in a Loop,
    the condition first), ``num_slices`` arrays that each iteration reads one row of, and captured values. Its outputs
    are the carried values for the next iteration, and values that are written to rows, one per iteration.

    ``reads``: per input of the program, the input of the body. ``results``: per output of the body, (source, shape).
    The source is a constant array, an output of the program, or -1 - an input of the body, in whose memory the output
    lies. The shape is a tuple, a tensor of the program that has this shape, or None if the program's output has it.
    ``dtypes``: of the outputs of the body.

    Carried values stay where they are: an iteration reads them there, and writes new ones to buffers that no value of
    the iteration lies in. So values may change places, and nothing is written to arrays of the caller.
    """

    cdef Workspace workspace
    cdef bint is_loop
    cdef int num_values, num_carried, num_slices, num_results, num_buffers
    cdef int first              # the input of the body that is the first carried value
    cdef int *reads
    cdef bint *is_open          # per input of the program and axis: whether the plan holds for other sizes
    cdef ht_result *results
    cdef int *rows_of           # per output of the program: the result whose row it is written to, or -1: to a buffer
    cdef int *buffer_of         # per output of the program: its buffer in this iteration
    cdef int64_t *output_bytes  # per output of the program
    cdef ht_rows *rows          # per output of the body; only of those that are rows
    cdef ht_tensor *values      # the inputs of the body in this iteration, then the carried values of the next
    cdef int *owners            # of each of `values`: its buffer, or -1 - its place in `arrays`
    cdef ht_buffer *buffers
    cdef list memory            # per buffer: its array
    cdef list arrays            # the inputs of the body in the first iteration, then the constants of `results`
    cdef list constants
    cdef char **slices          # the address of the slices in iteration 0,
    cdef int64_t *slice_steps   # and how far it is to the next
    cdef bint is_changing       # whether the next iteration may have other sizes
    cdef bint proceed
    cdef int64_t total_bytes    # of the buffers of at least REUSED_BYTES
    cdef int status             # of the last call
    cdef object stacks
    cdef tuple dtypes
    cdef readonly int64_t iteration

    def __init__(self, Workspace workspace not None, reads, results, dtypes, bint is_loop, int num_carried,
                 int num_slices, int num_values):
        cdef Program program = workspace.program
        cdef int position, axis, output, num_inputs = program.num_inputs, num_outputs = program.num_outputs
        self.workspace, self.is_loop, self.num_values = workspace, is_loop, num_values
        self.num_carried, self.num_slices, self.num_results = num_carried, num_slices, len(results)
        self.first, self.dtypes = is_loop, tuple(dtypes)
        # At the same time, a buffer is used by each carried value, each output of the program and the iteration number.
        self.num_buffers = 2 * (num_outputs + 1) + num_carried
        self.reads = <int *> calloc(num_inputs + 1, sizeof(int))
        self.is_open = <bint *> calloc(num_inputs * HT_MAX_DIMS + 1, sizeof(bint))
        self.results = <ht_result *> calloc(self.num_results + 1, sizeof(ht_result))
        self.rows_of = <int *> calloc(num_outputs + 1, sizeof(int))
        self.buffer_of = <int *> calloc(num_outputs + 1, sizeof(int))
        self.output_bytes = <int64_t *> calloc(num_outputs + 1, sizeof(int64_t))
        self.rows = <ht_rows *> calloc(self.num_results + 1, sizeof(ht_rows))
        self.values = <ht_tensor *> calloc(num_values + num_carried + 1, sizeof(ht_tensor))
        self.owners = <int *> calloc(num_values + num_carried + 1, sizeof(int))
        self.buffers = <ht_buffer *> calloc(self.num_buffers, sizeof(ht_buffer))
        self.slices = <char **> calloc(num_slices + 1, sizeof(char *))
        self.slice_steps = <int64_t *> calloc(num_slices + 1, sizeof(int64_t))
        if not (self.reads and self.is_open and self.results and self.rows_of and self.buffer_of and self.output_bytes
                and self.rows and self.values and self.owners and self.buffers and self.slices and self.slice_steps):
            raise MemoryError("the iterations of a compiled program")
        if len(reads) != num_inputs or len(dtypes) != self.num_results or not (
                is_loop <= num_carried <= self.num_results and self.first + num_carried + num_slices <= num_values):
            raise ValueError("expected a body's input per input of the program, and as many outputs as carried values")
        for position, value in enumerate(reads):
            if not 0 <= value < num_values:
                raise ValueError(f"the body has no input {value}")
            self.reads[position] = value
            if program.sizes is not None:
                for axis, is_open in enumerate(program.sizes.open_axes[position]):
                    self.is_open[position * HT_MAX_DIMS + axis] = is_open
        for output in range(num_outputs):
            self.rows_of[output] = -1
            self.output_bytes[output] = workspace.output_bytes[output]
        self.constants = []
        taken = set()
        for position, ((source, shape), dtype) in enumerate(zip(results, dtypes)):
            if dtype.hasobject:
                raise ValueError("expected numbers")
            self.results[position].shape_like = -1
            if isinstance(source, np_ndarray):
                source = np.require(source, requirements="CA")
                self.results[position].is_constant = True
                self.results[position].source = -1 - num_values - len(self.constants)
                self.constants.append(source)
                describe_type(&self.results[position].type, source.shape, dtype)
                self.results[position].type.data = data_of(source)
                continue
            if not -num_values <= source < num_outputs or (shape is None and source < 0):
                raise ValueError(f"the program has no output {source}")
            self.results[position].source = source
            if shape is None:
                shape = (program.output_specs[source][0] if program.sizes is None
                         else program.sizes.output_tensors[<int> source])
            if isinstance(shape, tuple):
                describe_type(&self.results[position].type, shape, dtype)
            elif 0 <= shape < program.num_tensors:
                describe_type(&self.results[position].type, (), dtype)
                self.results[position].shape_like = shape
            else:
                raise ValueError(f"the program has no tensor {shape}")
            if source >= 0 and source not in taken:
                taken.add(source)
                if position >= num_carried:
                    self.rows_of[<int> source] = position

    def __dealloc__(self):
        free(self.reads)
        free(self.is_open)
        free(self.results)
        free(self.rows_of)
        free(self.buffer_of)
        free(self.output_bytes)
        free(self.rows)
        free(self.values)
        free(self.owners)
        free(self.buffers)
        free(self.slices)
        free(self.slice_steps)

    def run(self, list values, steps, stacks, int64_t iteration, int64_t stop):
        """Run the iterations from number ``iteration`` (< ``stop``) on; returns whether another one should follow.

        Ends at `stop`, after an iteration whose condition is false, or before one for whose sizes the program does not
        hold. The attribute `iteration` is then the number of the next iteration. If an iteration fails, this raises an
        `InferenceError`, and `iteration` is the number of the failed one.

        ``values``: an array per input of the body; for the number of the iteration, any array of its type. If an
        iteration has run, the carried values are replaced. ``steps``: 1 for each array that is read from its first row
        on, -1 for one that is read from its last. ``stacks``: an object for each output that is written to rows.
        ``room(shape, dtype, iteration)`` returns an array of this dtype, with a row of this shape for this iteration
        and any number of following ones.
        """
        cdef Workspace workspace = self.workspace
        cdef ht_team *team = NULL
        cdef ht_watch *before
        cdef int failed = -1, position
        cdef int64_t begin = iteration
        if (len(values) != self.num_values or len(steps) != self.num_slices or not 0 <= iteration < stop
                or len(stacks) != self.num_results - self.num_carried):
            raise ValueError("expected an array per input, a step per slice, a stack per row, and iterations to run")
        self.iteration = iteration
        self.memory, self.stacks = [None] * self.num_buffers, stacks
        self.arrays = [*values, *self.constants]
        self.proceed = True
        self.total_bytes = 0
        memset(self.buffers, 0, self.num_buffers * sizeof(ht_buffer))
        memset(self.rows, 0, self.num_results * sizeof(ht_rows))
        try:
            for position in range(self.num_values):
                if not self.read_value(position, steps, stop):
                    return True
            if not self.fit():
                return True
            if workspace.team is not None:
                team = workspace.team.enter()
            before = workspace.begin_watch()
            try:
                workspace.use(team)
                with nogil:
                    failed = self.iterate(stop)
            except BaseException:
                exchange_watch(before)
                raise
            finally:
                if team != NULL:
                    workspace.team.leave(team)
            workspace.end_watch(before)
            if failed >= 0:
                workspace.check(self.status, failed)
            if self.iteration > begin:
                for position in range(self.num_carried):
                    values[self.first + position] = self.array_of(self.first + position)
            return self.proceed
        finally:
            self.memory = self.stacks = self.arrays = None

    cdef bint read_value(self, int position, steps, int64_t stop) except -1:
        """Describe an input of the body, as the first iteration reads it. False if kernels cannot read it."""
        cdef const ht_array_interface *view
        cdef ht_tensor *value = &self.values[position]
        cdef int axis, skipped, lane = position - self.first - self.num_carried
        cdef int64_t rows
        array = self.arrays[position]
        if not isinstance(array, np_ndarray):
            return False
        capsule = array.__array_struct__
        view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
        if view.flags & (C_CONTIGUOUS | ALIGNED | NATIVE) != (C_CONTIGUOUS | ALIGNED | NATIVE):
            array = self.arrays[position] = np.require(array, array.dtype.newbyteorder("="), "CA")
            capsule = array.__array_struct__
            view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
        skipped = 0 <= lane < self.num_slices
        if view.nd - skipped > HT_MAX_DIMS or view.nd < skipped:
            return False
        value.dtype = named_code(array.dtype) if view.typekind == c'V' else dtype_code(view.typekind, view.itemsize)
        value.ndim, value.size = view.nd - skipped, 1
        for axis in range(value.ndim):
            value.dims[axis] = view.shape[axis + skipped]
            value.size *= value.dims[axis]
        value.data = ht_array_data(view)
        self.owners[position] = -1 - position
        if skipped:
            rows = view.shape[0]
            if rows < stop:
                raise ValueError(f"expected {stop} rows, found {rows}")
            self.slices[lane], self.slice_steps[lane] = <char *> value.data, value.size * view.itemsize
            if steps[lane] < 0:
                self.slices[lane] += self.slice_steps[lane] * (rows - 1)
                self.slice_steps[lane] = -self.slice_steps[lane]
        return True

    cdef bint fit(self) except -1 nogil:
        """Prepare the program for the types of `values`; returns whether it holds for them."""
        cdef int position, axis, tensor, num_inputs = self.workspace.program.num_inputs
        cdef const ht_tensor *value
        cdef ht_tensor *type
        cdef bint is_sized = self.workspace.registers != NULL  # the program has `Sizes`
        for position in range(num_inputs):
            value = &self.values[self.reads[position]]
            self.workspace.addresses[position] = value.data
            if self.is_loop and self.reads[position] == 0:
                self.workspace.addresses[position] = &self.iteration
            if value.ndim != self.workspace.input_tensors[position].ndim:
                return False
            if value.dtype != self.workspace.input_tensors[position].dtype:
                return False
            for axis in range(value.ndim):
                if value.dims[axis] != self.workspace.input_tensors[position].dims[axis]:
                    if not self.is_open[position * HT_MAX_DIMS + axis]:
                        return False
                    self.workspace.own_inputs[position].dims[axis] = value.dims[axis]
                    self.workspace.is_sized = False
            if is_sized:
                self.workspace.own_inputs[position].size = value.size
        if is_sized:
            if not self.workspace.is_sized or self.workspace.program.sizes.reads_elements:
                if not self.workspace.compute_tables():
                    return False
            for position in range(self.workspace.program.num_outputs):
                self.output_bytes[position] = self.workspace.bytes_of[num_inputs + position]
        self.is_changing = is_sized and self.workspace.program.sizes.reads_elements
        for position in range(self.num_results):
            type, tensor = &self.results[position].type, self.results[position].shape_like
            if tensor >= 0:
                type.ndim, type.size = self.workspace.tensors[tensor].ndim, self.workspace.tensors[tensor].size
                for axis in range(type.ndim):
                    type.dims[axis] = self.workspace.tensors[tensor].dims[axis]
            if self.is_loop and position == 0:
                if type.dtype != HT_BOOL or type.size != 1:
                    return False
            elif position < self.num_carried:
                value = &self.values[self.first + position]
                if type.dtype != value.dtype or not _same_shape(type, value):
                    self.is_changing = True
            elif not _same_shape(type, &self.rows[position].type):
                self.rows[position].end = 0
        if self.workspace.has_room():
            self.workspace.place()
        else:
            with gil:
                self.workspace.bind()
        return True

    cdef int iterate(self, int64_t stop) except -2 nogil:
        """Run iterations as `run` describes. Returns the call that failed, or -1."""
        cdef int position, first_call = self.workspace.program.first_call
        cdef int end_call = self.workspace.program.end_call
        while True:
            self.place()
            for position in range(first_call, end_call):
                ht_arena_guard(&self.workspace.calls[position], self.workspace.arena.start, self.workspace.arena.size,
                               self.workspace.num_threads)
                self.status = self.workspace.program.functions[position](&self.workspace.calls[position])
                if self.status != HT_OK:
                    return position
                if ht_watch_ended(&self.workspace.watch) or (position & 15 == 15 and is_stopping()):
                    break
            # `is_stopping` reads the clock, which costs as much as a small iteration.
            if ht_watch_ended(&self.workspace.watch) or (self.iteration & 3 == 3 and is_stopping()):
                return -1
            self.pass_on()
            self.iteration += 1
            if self.is_loop:
                self.proceed = (<const char *> self.values[self.first].data)[0] != 0
            if not self.proceed or self.iteration >= stop or (self.is_changing and not self.fit()):
                return -1

    cdef int place(self) except -1 nogil:
        """Choose where this iteration writes, and bind the addresses of all values."""
        cdef int position, tensor, number
        cdef ht_rows *rows
        for position in range(self.num_buffers):
            self.buffers[position].is_used = False
        for position in range(self.first, self.first + self.num_carried):
            if self.owners[position] >= 0:
                self.buffers[self.owners[position]].is_used = True
        if self.is_loop:
            self.owners[0] = self.take(self.workspace.program.num_outputs, sizeof(int64_t))
            self.values[0].data = self.buffers[self.owners[0]].start
            (<int64_t *> self.values[0].data)[0] = self.iteration
        for position in range(self.num_slices):
            self.values[self.first + self.num_carried + position].data = (
                self.slices[position] + self.slice_steps[position] * self.iteration)
        for position in range(self.num_carried, self.num_results):
            if self.rows[position].end <= self.iteration:
                with gil:
                    self.make_room(position)
        for position in range(self.workspace.program.num_outputs):
            if self.rows_of[position] < 0:
                self.buffer_of[position] = self.take(position, self.output_bytes[position])
        for position in range(self.workspace.num_outside):
            tensor = self.workspace.outside[position]
            number = self.workspace.program.numbers[tensor]
            if self.workspace.program.places[tensor] == IN_INPUT:
                self.workspace.tensors[tensor].data = self.values[self.reads[number]].data
            else:
                self.workspace.tensors[tensor].data = self.output(number)
        return 0

    cdef char *row(self, int result) noexcept nogil:
        """Where this iteration's row of an output of the body lies."""
        return self.rows[result].start + (self.iteration - self.rows[result].first) * self.rows[result].bytes

    cdef char *output(self, int number) noexcept nogil:
        """Where this iteration writes an output of the program."""
        if self.rows_of[number] >= 0:
            return self.row(self.rows_of[number])
        return self.buffers[self.buffer_of[number]].start

    cdef int pass_on(self) noexcept nogil:
        """Copy rows that the program did not write, and make the outputs of this iteration the carried values of the
        next."""
        cdef int position, source
        cdef ht_result *result
        cdef ht_tensor *value
        for position in range(self.num_results):
            result, source = &self.results[position], self.results[position].source
            if position >= self.num_carried:
                if source < 0 or self.rows_of[source] != position:
                    memcpy(self.row(position), self.data(result), self.rows[position].bytes)
                continue
            value = &self.values[self.num_values + position]
            if self.is_changing:
                value[0] = result.type
            value.data = self.data(result)
            if result.is_constant:
                self.owners[self.num_values + position] = source
            else:
                self.owners[self.num_values + position] = (
                    self.buffer_of[source] if source >= 0 else self.owners[-1 - source])
        for position in range(self.num_carried):
            value = &self.values[self.first + position]
            self.owners[self.first + position] = self.owners[self.num_values + position]
            if self.is_changing and not (self.is_loop and position == 0):
                value[0] = self.values[self.num_values + position]
            else:  # the condition keeps the shape that the body reads
                value.data = self.values[self.num_values + position].data
        return 0

    cdef char *data(self, const ht_result *result) noexcept nogil:
        """Where an output of the body lies after an iteration."""
        if result.is_constant:
            return <char *> result.type.data
        return self.output(result.source) if result.source >= 0 else <char *> self.values[-1 - result.source].data

    cdef int take(self, int pair, int64_t size) except -1 nogil:
        """An unused buffer of at least ``size`` bytes: of a pair that alternates, else one that no pair has."""
        cdef int number = 2 * pair
        if self.buffers[number].is_used:
            number += 1
        if self.buffers[number].is_used:
            number = 2 * (self.workspace.program.num_outputs + 1)
            while self.buffers[number].is_used:
                number += 1
        self.buffers[number].is_used = True
        if self.buffers[number].size < size or self.buffers[number].start == NULL:
            with gil:
                self.allocate(number, size)
        return number

    cdef int allocate(self, int number, int64_t size) except -1:
        """Memory for a buffer; more than ``size`` if it was too small before, because it may have to grow again."""
        cdef ht_buffer *buffer = &self.buffers[number]
        cdef int64_t larger = size + size // 4 if buffer.start != NULL else size
        self.memory[number] = None
        if buffer.size >= REUSED_BYTES:
            self.total_bytes -= _rounded(buffer.size)
        buffer.start, buffer.size = NULL, 0
        try:
            if size >= MEASURED_BYTES and self.total_bytes + size > ht_physical_memory():
                raise MemoryError  # the system may promise more, and end the process later
            try:
                memory = self.empty(larger)
            except MemoryError:
                larger = size
                memory = self.empty(size)
        except MemoryError:
            self.workspace.arena.results.most_bytes = 0  # keep none of the buffers
            raise self.workspace.too_large() from None
        self.memory[number] = memory
        buffer.start, buffer.size = <char *> data_of(memory), larger
        return 0

    cdef object empty(self, int64_t size):
        cdef _Results results = self.workspace.arena.results
        if size < REUSED_BYTES:
            return np_empty(size, np.uint8)
        memory = results.empty((size,), np.uint8, size)
        self.total_bytes += _rounded(size)
        results.most_bytes = max(results.most_bytes, self.total_bytes)
        return memory

    cdef int make_room(self, int result) except -1:
        """Ask the stack of an output for rows from this iteration on."""
        cdef ht_rows *rows = &self.rows[result]
        cdef const ht_tensor *type = &self.results[result].type
        shape = _shape_of(type)
        array = self.stacks[result - self.num_carried].room(shape, self.dtypes[result], self.iteration)
        if (array.shape[1:] != shape or array.dtype != self.dtypes[result] or not array.shape[0]
                or not array.flags.c_contiguous or not array.flags.aligned or not array.flags.writeable):
            raise ValueError("a stack returned rows of another type, or none")
        rows.start, rows.first, rows.bytes = <char *> data_of(array), self.iteration, _bytes(type)
        rows.end = self.iteration + <int64_t> array.shape[0]
        rows.type = type[0]
        return 0

    cdef object array_of(self, int position):
        """A carried value as an array. Its memory is at most twice as large."""
        cdef const ht_tensor *value = &self.values[position]
        cdef int owner = self.owners[position], lane = -1 - owner - self.first - self.num_carried
        cdef int64_t size = _bytes(value)
        shape = _shape_of(value)
        if owner >= 0:
            array = np_ndarray(shape, self.dtypes[position - self.first], self.memory[owner])
            return array if self.buffers[owner].size <= 2 * size else array.copy()
        array = self.arrays[-1 - owner]
        if 0 <= lane < self.num_slices:
            array = array[(<char *> value.data - <char *> data_of(array)) // size if size else 0, ...]
        return array.reshape(shape)


cdef int _run_bound_step(void *context, int32_t number) noexcept nogil:
    """Runs the program of a step. Nonzero if a call fails, or if the run must end."""
    cdef ht_bound_steps *steps = <ht_bound_steps *> context
    cdef ht_bound_step *step = &steps.step[number]
    cdef int64_t begin = ht_now_ns(), taken
    cdef int position, status
    for position in range(step.num_outside):
        step.tensors[step.outside[position]].data = steps.slot[step.slot_of[position]]
    for position in range(step.first_call, step.end_call):
        ht_arena_guard(&step.calls[position], step.arena_start, step.arena_size, 1)
        status = step.functions[position](&step.calls[position])
        if status != HT_OK or (position & 15 == 15 and is_stopping()):
            return 1
    taken = ht_now_ns() - begin
    if step.least_ns < 0 or taken < step.least_ns:
        step.least_ns = taken
    return 0


cdef object _in_shape(array, tuple shape):
    """The elements of an array in another shape, C-contiguous; the array itself if it is already so."""
    cdef int axis
    capsule = array.__array_struct__
    cdef const ht_array_interface *view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
    cdef bint same = view.nd == len(shape)
    for axis in range(view.nd if same else 0):
        same = same and view.shape[axis] == <Py_ssize_t> shape[axis]
    if not view.flags & C_CONTIGUOUS:
        array = np_ascontiguousarray(array)
    return array if same else array.reshape(shape)


def iterate(run, list values not None, bint is_loop, int num_carried, int num_slices, steps, stacks,
            int64_t iteration, int64_t stop, cancellation):
    """Run the iterations of a Loop or Scan from number ``iteration`` on, up to one whose condition is false, or
    ``stop``. For any body: ``run`` takes its inputs and returns its outputs. The other arguments are those of
    `Iterations` and `Iterations.run`; rows are appended to ``stacks``. ``cancellation`` is checked before each
    iteration."""
    cdef int position, first = is_loop
    cdef int64_t row
    cdef bint proceed = True
    cdef list inputs = list(values)
    while proceed and iteration < stop:
        if cancellation.requested:
            cancellation.check()
        if is_loop:  # a new array, because the body may return it
            inputs[0] = np_empty(values[0].shape, np_int64)
            (<int64_t *> data_of(inputs[0]))[0] = iteration
        for position in range(num_slices):
            array = values[first + num_carried + position]
            row = iteration if steps[position] > 0 else <int64_t> len(array) - 1 - iteration
            inputs[first + num_carried + position] = array[row, ...]
        try:
            results = run(inputs)
            if is_loop:
                flag = results[0]
                if not isinstance(flag, np_ndarray) or flag.size != 1:
                    found = f"shape {list(flag.shape)}" if isinstance(flag, np_ndarray) else "nothing"
                    raise InferenceError(f"the condition that its body returns: expected one element, found {found}")
                proceed = bool(flag.item())
                inputs[1] = _in_shape(flag, values[1].shape)
            for position in range(first, num_carried):
                inputs[first + position] = results[position]
            for position in range(len(stacks)):
                stacks[position].append(results[num_carried + position])
        except Cancelled:
            raise
        except HeteroError as error:
            raise inference_error(f"iteration {iteration}: {error}", error) from error
        iteration += 1
    values[first:first + num_carried] = inputs[first:first + num_carried]


@cython.final
cdef class Route:
    """Programs that follow each other in every run in which each holds for the values before it, with what happens between
    them. The values of a run are in slots; those of the inputs come first.

    ``steps``: for each program, its workspace; the slots of its inputs and of its outputs; known arrays, as (slot, array);
    reshaped values, as (slot, source, shape), where a shape that depends on sizes is the number of a tensor of the
    program; a node that runs in Python afterward, or None; and the slots whose values no later step reads. The node is
    given as its number, its operands, as (slot, or -1 and the array, labels that the operand numbers, or None), and the
    slots of its results, or -1. ``outputs``: the slots of the results; None if further programs follow.
    ``cancellation``: is checked before each program.
    """

    cdef tuple steps, outputs
    cdef int num_slots
    cdef object cancellation
    cdef readonly int done      # programs of the last run that held
    cdef public list values     # of the last run, if some programs held, but not all; None otherwise

    def __init__(self, tuple steps not None, int num_slots, tuple outputs, cancellation):
        self.steps, self.num_slots, self.outputs, self.cancellation = steps, num_slots, outputs, cancellation

    def run(self, inputs, host):
        """The results. ``host`` takes the number and the operands of a node and returns its results. None if a program
        does not hold, an input is not exactly a NumPy array, or further programs follow. Then ``done`` programs have
        run, with all that follows each, and ``values`` has their values."""
        cdef Workspace workspace
        cdef int position
        cdef list values
        cdef tuple step
        for array in inputs:
            if type(array) is not np_ndarray:
                self.done = 0
                return None
        self.done, self.values = 0, None
        values = list(inputs)
        values.extend([None] * (self.num_slots - len(values)))
        for step in self.steps:
            if self.cancellation.requested:
                self.cancellation.check()
            workspace = <Workspace> step[0]
            results = workspace.run_checked([values[position] for position in <tuple> step[1]], None)
            if results is None:
                self.values = values if self.done else None
                return None
            for slot, array in zip(<tuple> step[2], results):
                values[slot] = array
            for slot, array in <tuple> step[3]:
                values[slot] = array
            for slot, source, shape in <tuple> step[4]:
                values[slot] = _in_shape(values[source], workspace.shape(shape) if isinstance(shape, int) else shape)
            if step[5] is not None:
                node, sources, fills = step[5]
                operands = []
                for slot, array, labels in sources:
                    if slot >= 0:
                        array = values[slot]
                    operands.append(array if labels is None or array is None else chosen(labels, array))
                for slot, array in zip(fills, host(node, operands)):
                    if slot >= 0:
                        values[slot] = array
            for slot in <tuple> step[6]:
                values[slot] = None
            self.done += 1
        if self.outputs is None:
            self.values = values
            return None
        return [values[position] for position in self.outputs]


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
            step.first_call, step.end_call = program.first_call, program.end_call
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
