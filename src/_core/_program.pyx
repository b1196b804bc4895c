"""Programs: kernel calls over an arena. They are checked when created, so that running them needs no checks.

``_workspace`` runs them.
"""

import math

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from hetero._kernels cimport (
    INT4, UINT4, chosen_kernel, data_of, describe_type, in_place_rule, kernel_number, named_code, scratch_of,
)
from kernels_c cimport *

cdef extern from "arena_guard.h" nogil:
    void ht_arena_guard(const ht_call *call, const char *start, int64_t bytes, int threads)

from hetero._kernels import bytewise_operand

# The places of tensors in a program.
ARENA, CONSTANT, INPUT, OUTPUT, LATE = IN_ARENA, IN_CONSTANT, IN_INPUT, IN_OUTPUT, IS_LATE


def arena_layout(const int64_t[::1] first not None, const int64_t[::1] last not None, const int64_t[::1] size not None):
    """Offsets of buffers in one arena, and the arena's size in bytes: (int64[n], int).

    Buffer i of ``size[i]`` bytes lives from call ``first[i]`` to call ``last[i]`` inclusive; ``first`` must ascend.
    Buffers that live at the same time do not overlap; all are aligned to 64 bytes. Raises ValueError for invalid
    arrays.
    """
    cdef int64_t num = first.shape[0], position, total
    if last.shape[0] != num or size.shape[0] != num:
        raise ValueError("expected three arrays of one length")
    for position in range(num):
        if last[position] < first[position] or (position > 0 and first[position] < first[position - 1]):
            raise ValueError(f"buffer {position}: expected first in ascending order and first <= last")
    offsets = np.empty(num, np.int64)
    cdef int64_t[::1] offset = offsets
    if num == 0:
        return offsets, 0
    with nogil:
        total = ht_arena_layout(num, &first[0], &last[0], &size[0], &offset[0])
    if total < 0:
        raise ValueError("the buffers do not fit in memory")
    return offsets, total


cdef int _run_branch(const ht_call *call) noexcept nogil:
    """A call whose ``ints`` are the `ht_branches` of a workspace. If the first operand, a bool, is false, runs the
    first branch's calls, else the second's."""
    cdef ht_branches *branches = <ht_branches *> call.ints
    cdef int taken = (<const char *> call.in_[0].data)[0] != 0
    cdef int64_t position
    cdef int status
    branches.failed = -1
    for position in range(branches.begin[taken], branches.begin[taken + 1]):
        ht_arena_guard(&branches.calls[position], branches.arena_start, branches.arena_size, branches.num_threads)
        status = branches.functions[position](&branches.calls[position])
        if status != HT_OK:
            branches.failed = <int> position
            return status
    return HT_OK


cdef void *_allocate(int64_t count, size_t size) except NULL:
    """Zeroed memory for an array, which may be empty."""
    cdef void *memory = calloc(<size_t> count + 1, size)
    if memory == NULL:
        raise MemoryError("a compiled program")
    return memory


cdef int64_t *_integers(values) except NULL:
    """A new array of these integers."""
    cdef int64_t *made = <int64_t *> _allocate(len(values), sizeof(int64_t))
    cdef int64_t position
    for position in range(len(values)):
        made[position] = values[position]
    return made


@cython.final
cdef class Sizes:
    """How the numbers of a `Program` follow from the sizes of its inputs: the steps of a `SizeTrace`.

    ``steps``: int32[n, 4]. ``constants``: (register, number) each. ``open_axes``: per input, a bool for each axis: whether
    its size is a symbol. ``buffers``: (first call, last call, bytes) of each buffer of the arena, in order of the first.
    ``places``: (tensor, buffer, byte of the buffer at which the tensor begins) of each tensor in the arena. ``outputs``: per
    output, a tensor with its shape. ``tables``: (function, registers of its arguments, tensor) each.
    """

    def __init__(self, steps, int num_registers, constants, open_axes, buffers, places, outputs, tables, int num_tensors,
                 bint reads_elements):
        cdef const int32_t[:, ::1] rows = np.ascontiguousarray(steps, np.int32)
        cdef int64_t position
        self.num_steps, self.num_registers, self.num_buffers = rows.shape[0], num_registers, len(buffers)
        self.steps = <ht_size_step *> _allocate(self.num_steps, sizeof(ht_size_step))
        self.registers = <ht_number *> _allocate(num_registers, sizeof(ht_number))
        self.buffer_of = <int32_t *> _allocate(num_tensors, sizeof(int32_t))
        self.begins = <int64_t *> _allocate(num_tensors, sizeof(int64_t))
        self.output_tensors = <int32_t *> _allocate(len(outputs), sizeof(int32_t))
        self.buffer_first = _integers([first for first, _, _ in buffers])
        self.buffer_last = _integers([last for _, last, _ in buffers])
        self.buffer_bytes = _integers([size for _, _, size in buffers])
        for position in range(self.num_steps):
            self.steps[position] = ht_size_step(rows[position, 0], rows[position, 1], rows[position, 2],
                                                rows[position, 3])
        for register, number in constants:
            if isinstance(number, float):
                self.registers[register].real = number
            else:
                self.registers[register].integer = number
        for position in range(num_tensors):
            self.buffer_of[position] = -1
        for tensor, buffer, begin in places:
            self.buffer_of[tensor], self.begins[tensor] = buffer, begin
        for position in range(len(outputs)):
            self.output_tensors[position] = outputs[position]
        self.open_axes, self.tables = tuple(map(tuple, open_axes)), tuple(tables)
        self.reads_elements = reads_elements

    def __dealloc__(self):
        free(self.steps)
        free(self.registers)
        free(self.buffer_of)
        free(self.begins)
        free(self.output_tensors)
        free(self.buffer_first)
        free(self.buffer_last)
        free(self.buffer_bytes)


cdef object _in_bytes(dtype):
    """The type as which kernels read an input of ``dtype``."""
    return _BYTE if named_code(dtype) in (UINT4, INT4) else dtype


cdef object _BYTE = np.dtype(np.uint8)


@cython.final
cdef class Program:
    """Kernel calls over an arena, planned for one set of input shapes. Immutable; `Workspace` objects can share it.

    ``tensors``: (dtype, shape, place, number) each. place: `ARENA` (number: byte offset, a multiple of 64), `CONSTANT`,
    `INPUT`, `OUTPUT` (number: position) or `LATE`. Tensors may share memory. ``calls``: (kernel name, input
    tensors (-1: absent), output tensors, ints, floats, label) each, in order; str(label), computed only when needed, names
    the node in errors. A call of the kernel ``branch`` has three ints a, b, c: if its first operand, a bool, is false,
    it runs calls a to b - 1, else b to c - 1. Calls from ``end_call`` on run only in this way. ``constants``: arrays, kept alive, not written; aligned, except for `bytewise_operand`. ``inputs``, ``outputs``: (shape, dtype) each.
    ``arena_bytes``: the arena's size.

    ``sizes``: for a program that also runs for other sizes. The shapes, ints, offsets and the arena's size are then those
    of the sizes for which it was planned; a `Workspace` computes them for others. Tensor i is then input i, and late
    tensors are computed for new sizes only, by the calls before ``first_call``. The number of a late tensor names the
    tensor in whose memory it lies.
    """

    def __init__(self, tensors, calls, constants, inputs, outputs, arena_bytes, Sizes sizes=None, int first_call=0,
                 end_call=None):
        cdef int position, code, operand = 0, int_position = 0, float_position = 0
        self.constants = tuple(np.asarray(array, order="C") for array in constants)
        unaligned = set()  # tensors
        self.input_specs = tuple((tuple(shape), np.dtype(dtype)) for shape, dtype in inputs)
        self.output_specs = tuple((tuple(shape), np.dtype(dtype)) for shape, dtype in outputs)
        self.labels = tuple(entry[5] for entry in calls)
        self.num_inputs, self.num_outputs = len(inputs), len(outputs)
        self.num_tensors, self.num_calls = len(tensors), len(calls)
        self.arena_bytes = arena_bytes
        self.sizes, self.first_call = sizes, first_call
        self.end_call = self.num_calls if end_call is None else end_call
        self.num_operands = sum(len(entry[1]) + len(entry[2]) for entry in calls)
        self.num_ints = sum(len(entry[3]) for entry in calls)
        num_floats = sum(len(entry[4]) for entry in calls)
        self.input_tensors = <ht_tensor *> _allocate(self.num_inputs, sizeof(ht_tensor))
        self.tensors = <ht_tensor *> _allocate(self.num_tensors, sizeof(ht_tensor))
        self.places = <int32_t *> _allocate(self.num_tensors, sizeof(int32_t))
        self.numbers = <int64_t *> _allocate(self.num_tensors, sizeof(int64_t))
        self.operands = <int32_t *> _allocate(self.num_operands, sizeof(int32_t))
        self.operand_tensors = <ht_tensor **> _allocate(self.num_operands, sizeof(ht_tensor *))
        self.calls = <ht_call *> _allocate(self.num_calls, sizeof(ht_call))
        self.kernels = <int32_t *> _allocate(self.num_calls, sizeof(int32_t))
        self.functions = <ht_kernel_fn *> _allocate(self.num_calls, sizeof(ht_kernel_fn))
        self.ints = <int64_t *> _allocate(self.num_ints, sizeof(int64_t))
        self.floats = <double *> _allocate(num_floats, sizeof(double))
        limits = (arena_bytes, len(self.constants), len(inputs), len(outputs),
                  0 if sizes is None else len(tensors))
        for position, (shape, dtype) in enumerate(self.input_specs):
            code = named_code(dtype)
            describe_type(&self.input_tensors[position], shape, _in_bytes(dtype))
            if code:
                self.input_tensors[position].dtype = code
        for position, (dtype, shape, place, number) in enumerate(tensors):
            if (not 0 <= place <= 4 or not 0 <= number <= limits[place]
                    or (place != IN_ARENA and number == limits[place])):
                raise ValueError(f"tensor {position}: there is no place {place}, {number}")
            describe_type(&self.tensors[position], shape, _in_bytes(dtype) if place == IN_INPUT else dtype)
            self.places[position], self.numbers[position] = place, number
            if place == IN_CONSTANT:
                if self.constants[number].nbytes != self.tensors[position].size * dtype.itemsize:
                    raise ValueError(f"tensor {position}: constant {number} has another size")
                self.tensors[position].data = data_of(self.constants[number])
                if not self.constants[number].flags.aligned:
                    unaligned.add(position)
        for position, (name, ins, outs, int_values, float_values, *_) in enumerate(calls):
            if name == "branch":
                self.kernels[position] = -1
                self.functions[position] = _run_branch
                if not ins or ins[0] < 0 or tensors[ins[0]][0] != np.bool_ or math.prod(tensors[ins[0]][1]) != 1:
                    raise ValueError(f"call {position}: expected a condition of one bool")
                begin, middle, end = int_values
                if not max(position + 1, self.end_call) <= begin <= middle <= end <= self.num_calls:
                    raise ValueError(f"call {position}: expected branches that are calls behind it")
            else:
                self.kernels[position] = kernel_number(name)
                self.functions[position] = chosen_kernel(name)
            self.calls[position].in_ = <const ht_tensor *const *> (self.operand_tensors + operand)
            self.calls[position].out = <ht_tensor *const *> (self.operand_tensors + operand + len(ins))
            self.calls[position].num_in, self.calls[position].num_out = len(ins), len(outs)
            self.calls[position].num_ints, self.calls[position].num_floats = len(int_values), len(float_values)
            self.calls[position].ints = self.ints + int_position
            self.calls[position].floats = self.floats + float_position
            if unaligned:
                bytewise = bytewise_operand(name)
                for number, tensor in enumerate(ins):
                    if tensor in unaligned and number != bytewise:
                        raise ValueError(f"call {position}: operand {number} is not aligned")
            for tensor in (*ins, *outs):
                if not -1 <= tensor < self.num_tensors:
                    raise ValueError(f"call {position}: no tensor {tensor}")
                self.operands[operand] = tensor
                self.operand_tensors[operand] = NULL if tensor < 0 else &self.tensors[tensor]
                operand += 1
            for value in int_values:
                self.ints[int_position] = value
                int_position += 1
            for value in float_values:
                self.floats[float_position] = value
                float_position += 1
        bytes_of = _integers([math.prod(shape) * dtype.itemsize
                              for shape, dtype in (*self.input_specs, *self.output_specs)])
        try:
            self.check(self.tensors, self.numbers, arena_bytes, bytes_of)
        finally:
            free(bytes_of)
        self.scratch_bytes = self.measure_scratch(self.calls)

    cdef int check(self, const ht_tensor *tensors, const int64_t *numbers, int64_t arena_bytes,
                   const int64_t *bytes_of) except -1 nogil:
        """Raises ValueError unless each tensor lies within its place and no call reads memory that it has overwritten.

        ``numbers``: as ``number`` of each tensor. ``bytes_of``: of each input, then of each output."""
        cdef int position
        cdef int64_t size
        for position in range(self.num_tensors):
            size = tensors[position].size * ht_element_bytes(tensors[position].dtype)
            if self.places[position] == IN_ARENA and (numbers[position] < 0 or numbers[position] + size > arena_bytes):
                with gil:
                    raise ValueError(f"tensor {position} reaches past the arena")
            if self.places[position] == IN_INPUT and bytes_of[numbers[position]] != size:
                with gil:
                    raise ValueError(f"tensor {position}: input {numbers[position]} has another size")
            if self.places[position] == IN_OUTPUT and bytes_of[self.num_inputs + numbers[position]] != size:
                with gil:
                    raise ValueError(f"tensor {position}: output {numbers[position]} has another size")
        for position in range(self.num_calls):
            self.check_overlaps(tensors, numbers, position)
        return 0

    cdef int64_t measure_scratch(self, ht_call *calls) noexcept nogil:
        """Fills in the scratch memory of all calls; returns the most that one needs."""
        cdef int position
        cdef int64_t most = 0
        for position in range(self.num_calls):
            if self.kernels[position] >= 0:
                calls[position].scratch_bytes = scratch_of(self.kernels[position], &calls[position])
                most = max(most, calls[position].scratch_bytes)
        return most

    cdef int check_overlaps(self, const ht_tensor *tensors, const int64_t *numbers, int position) except -1 nogil:
        """Raises ValueError if call ``position`` might read memory that it has overwritten. Its results may overlap
        operands only as `HT_IN_PLACE` allows, and never each other, a constant or an input."""
        cdef const ht_call *call = &self.calls[position]
        cdef const int32_t *ins = self.operands + (<ht_tensor **> call.in_ - self.operand_tensors)
        cdef const int32_t *outs = ins + call.num_in
        cdef int result, other, places = 0, sharing = 0
        cdef ht_in_place rule
        rule.operands = rule.shared = 0
        if self.kernels[position] >= 0:
            rule = in_place_rule(self.kernels[position])
        for result in range(call.num_out):
            if outs[result] < 0:
                continue
            if self.places[outs[result]] == IN_CONSTANT or self.places[outs[result]] == IN_INPUT:
                with gil:
                    raise ValueError(f"call {position}: result {result} is a constant or an input")
            for other in range(result):
                if outs[other] >= 0 and self.overlap(tensors, numbers, outs[result], outs[other]):
                    with gil:
                        raise ValueError(f"call {position}: results {other} and {result} overlap")
            for other in range(call.num_in):
                if ins[other] < 0 or not self.overlap(tensors, numbers, outs[result], ins[other]):
                    continue
                sharing += 1
                places += rule.operands >> other & 1
                if result or not self.same_elements(tensors, numbers, outs[0], ins[other]):
                    with gil:
                        raise ValueError(f"call {position}: result {result} overlaps other elements of operand {other}")
        if sharing and (places == 0 or (sharing > 1 and not rule.shared)):
            with gil:
                raise ValueError(f"call {position}: the kernel does not work in place on these operands")
        return 0

    cdef bint overlap(self, const ht_tensor *tensors, const int64_t *numbers, int a, int b) noexcept nogil:
        """Whether two tensors share a byte."""
        cdef int64_t size_a = tensors[a].size * ht_element_bytes(tensors[a].dtype)
        cdef int64_t size_b = tensors[b].size * ht_element_bytes(tensors[b].dtype)
        if self.places[a] != self.places[b] or size_a == 0 or size_b == 0:
            return False
        if self.places[a] == IN_ARENA:
            return numbers[a] < numbers[b] + size_b and numbers[b] < numbers[a] + size_a
        return numbers[a] == numbers[b]

    cdef bint same_elements(self, const ht_tensor *tensors, const int64_t *numbers, int a, int b) noexcept nogil:
        """Whether element i occupies the same bytes in both tensors, for every i."""
        return (numbers[a] == numbers[b] and tensors[a].size == tensors[b].size
                and ht_element_bytes(tensors[a].dtype) == ht_element_bytes(tensors[b].dtype))

    def __dealloc__(self):
        free(self.input_tensors)
        free(self.tensors)
        free(self.places)
        free(self.numbers)
        free(self.operands)
        free(self.operand_tensors)
        free(self.calls)
        free(self.kernels)
        free(self.functions)
        free(self.ints)
        free(self.floats)
