"""Programs: kernel calls over an arena. They are checked when created, so that running them needs no checks.

``_workspace`` runs them.
"""

import math

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hetero._kernels cimport chosen_kernel, data_of, describe_type, in_place_rule
from kernels_c cimport *


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


cdef void *_operand(const ht_call *call, int number) noexcept nogil:
    """Data of input ``number`` of a call, or of output -1 - ``number``."""
    return call.in_[number].data if number >= 0 else call.out[-1 - number].data


cdef int _run_branch(const ht_call *call) noexcept nogil:
    """A call whose ``ints`` are the `ht_branches` of a workspace. If the first operand, a bool, is false, runs the
    first branch's calls, else the second's."""
    cdef ht_branches *branches = <ht_branches *> call.ints
    cdef ht_branch *branch
    cdef ht_copy *copy
    cdef const void *source
    cdef int position, status
    branches.taken = (<const char *> call.in_[0].data)[0] != 0
    branch = &branches.branch[branches.taken]
    branch.failed = -1
    if branch.num_calls and branch.calls[0].team != call.team:
        for position in range(branch.num_calls):
            branch.calls[position].team = call.team
    for position in range(branch.num_outside):
        branch.tensors[branch.outside[position]].data = _operand(call, branch.operand_of[position])
    for position in range(branch.num_calls):
        status = branch.functions[position](&branch.calls[position])
        if status != HT_OK:
            branch.failed = position
            return status
    for position in range(branch.num_copies):
        copy = &branch.copies[position]
        source = copy.constant
        if source == NULL:
            source = _operand(call, copy.source)
        memcpy(_operand(call, copy.target), source, copy.bytes)
    return HT_OK


@cython.final
cdef class Branch:
    """One of the two branches of a call of the kernel ``branch``.

    ``program``: runs on operands of the call. ``inputs``, ``outputs``: the operand for each of the program's inputs and
    outputs: input number i of the call, or output number -1 - i. ``copies``: pairs (source, target), copied afterwards;
    a source may also be an array.
    """

    def __init__(self, Program program not None, inputs, outputs, copies):
        self.program = program
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.copies = tuple(
            (np.require(source, requirements="CA") if isinstance(source, np.ndarray) else source, target)
            for source, target in copies)
        if len(self.inputs) != program.num_inputs or len(self.outputs) != program.num_outputs:
            raise ValueError("expected an operand per input and output of the program")

    cdef int fit(self, bytes_in, bytes_out) except -1:
        """ValueError unless the operands, of these numbers of bytes, have the sizes that the program expects."""
        for numbers, specs, written in ((self.inputs, self.program.input_specs, False),
                                        (self.outputs, self.program.output_specs, True)):
            for number, (shape, dtype) in zip(numbers, specs, strict=True):
                if _size_of(number, written, bytes_in, bytes_out) != math.prod(shape) * dtype.itemsize:
                    raise ValueError(f"operand {number} of a branch has another size")
        self.copy_bytes = [_size_of(target, True, bytes_in, bytes_out) for _, target in self.copies]
        for (source, target), size in zip(self.copies, self.copy_bytes, strict=True):
            found = source.nbytes if isinstance(source, np.ndarray) else _size_of(source, False, bytes_in, bytes_out)
            if found != size:
                raise ValueError(f"operand {target} of a branch has another size")
        return 0


cdef object _size_of(number, bint written, bytes_in, bytes_out):
    """Bytes of operand ``number`` of a call, numbered as in `_operand`."""
    if not -len(bytes_out) <= number < (0 if written else len(bytes_in)):
        raise ValueError(f"a branch has no operand {number}")
    return bytes_in[number] if number >= 0 else bytes_out[-1 - number]


@cython.final
cdef class Program:
    """Kernel calls over an arena, planned for one set of input shapes. Immutable; `Workspace` objects can share it.

    ``tensors``: (dtype, shape, place, number) each. place: 0 = arena (number: byte offset, a multiple of 64), 1 =
    constant, 2 = input, 3 = output (number: position). Tensors may share memory. ``calls``: (kernel name, input tensors
    (-1: absent), output tensors, ints, floats, scratch bytes, label) each, in order; str(label), computed only when
    needed, names the node in errors. A call of the kernel ``branch``, whose first operand is a bool, has two `Branch`
    objects as an eighth entry. ``constants``: arrays, kept alive, not written. ``num_inputs``, ``arena_bytes``: sizes.
    ``outputs``: (shape, dtype) per output.
    """

    def __init__(self, tensors, calls, constants, inputs, outputs, arena_bytes):
        cdef int position, operand = 0, int_position = 0, float_position = 0
        cdef int64_t size, limit
        self.constants = tuple(np.require(array, requirements="CA") for array in constants)
        self.input_specs = tuple((tuple(shape), np.dtype(dtype)) for shape, dtype in inputs)
        self.output_specs = tuple((tuple(shape), np.dtype(dtype)) for shape, dtype in outputs)
        self.labels = tuple(entry[6] for entry in calls)
        self.branches = tuple(entry[7] if len(entry) > 7 and entry[7] else None for entry in calls)
        self.num_inputs, self.num_outputs = len(inputs), len(outputs)
        self.num_tensors, self.num_calls = len(tensors), len(calls)
        self.arena_bytes = arena_bytes
        self.num_operands = sum(len(entry[1]) + len(entry[2]) for entry in calls)
        num_ints = sum(len(entry[3]) for entry in calls)
        num_floats = sum(len(entry[4]) for entry in calls)
        self.input_tensors = <ht_tensor *> malloc((self.num_inputs + 1) * sizeof(ht_tensor))
        self.tensors = <ht_tensor *> malloc((self.num_tensors + 1) * sizeof(ht_tensor))
        self.places = <int32_t *> malloc((self.num_tensors + 1) * sizeof(int32_t))
        self.numbers = <int64_t *> malloc((self.num_tensors + 1) * sizeof(int64_t))
        self.operands = <int32_t *> malloc((self.num_operands + 1) * sizeof(int32_t))
        self.calls = <ht_call *> malloc((self.num_calls + 1) * sizeof(ht_call))
        self.functions = <ht_kernel_fn *> malloc((self.num_calls + 1) * sizeof(ht_kernel_fn))
        self.ints = <int64_t *> malloc((num_ints + 1) * sizeof(int64_t))
        self.floats = <double *> malloc((num_floats + 1) * sizeof(double))
        if not (self.input_tensors and self.tensors and self.places and self.numbers and self.operands and self.calls
                and self.functions and self.ints and self.floats):
            raise MemoryError("a compiled program")
        limits = (arena_bytes, len(self.constants), len(inputs), len(outputs))
        for position, (shape, dtype) in enumerate(self.input_specs):
            describe_type(&self.input_tensors[position], shape, dtype)
        for position, (dtype, shape, place, number) in enumerate(tensors):
            if (not 0 <= place <= 3 or not 0 <= number <= limits[place]
                    or (place != IN_ARENA and number == limits[place])):
                raise ValueError(f"tensor {position}: there is no place {place}, {number}")
            size = describe_type(&self.tensors[position], shape, dtype)
            self.places[position], self.numbers[position] = place, number
            limit = size * dtype.itemsize
            if place == IN_CONSTANT:
                if self.constants[number].nbytes != limit:
                    raise ValueError(f"tensor {position}: constant {number} has another size")
                self.tensors[position].data = data_of(self.constants[number])
            elif place == IN_ARENA and number + limit > arena_bytes:
                raise ValueError(f"tensor {position} reaches past the arena")
            elif place >= IN_INPUT:
                spec = (self.input_specs if place == IN_INPUT else self.output_specs)[number]
                if math.prod(spec[0]) * spec[1].itemsize != limit:
                    raise ValueError(f"tensor {position}: input or output {number} has another size")
        self.scratch_bytes = 0
        for position, (name, ins, outs, int_values, float_values, scratch, *_) in enumerate(calls):
            if self.branches[position] is None:
                self.functions[position] = chosen_kernel(name)
            else:
                self.functions[position] = _run_branch
                sizes = [[math.prod(tensors[at][1]) * tensors[at][0].itemsize for at in some] for some in (ins, outs)]
                if (len(self.branches[position]) != 2 or not ins or min(*ins, *outs) < 0 or sizes[0][0] != 1
                        or int_values):
                    raise ValueError(f"call {position}: expected two branches, a condition, and no operand left out")
                for branch in self.branches[position]:
                    (<Branch?> branch).fit(sizes[0], sizes[1])
            self.calls[position].num_in, self.calls[position].num_out = len(ins), len(outs)
            self.calls[position].num_ints, self.calls[position].num_floats = len(int_values), len(float_values)
            self.calls[position].ints = self.ints + int_position
            self.calls[position].floats = self.floats + float_position
            self.calls[position].scratch_bytes = scratch
            self.calls[position].team = NULL
            self.calls[position].scratch_step = 0
            self.scratch_bytes = max(self.scratch_bytes, scratch)
            for tensor in (*ins, *outs):
                if not -1 <= tensor < self.num_tensors:
                    raise ValueError(f"call {position}: no tensor {tensor}")
                self.operands[operand] = tensor
                operand += 1
            for value in int_values:
                self.ints[int_position] = value
                int_position += 1
            for value in float_values:
                self.floats[float_position] = value
                float_position += 1
            self.check_overlaps(position, name, operand - len(ins) - len(outs))

    cdef int check_overlaps(self, int position, name, int begin) except -1:
        """Raises ValueError if call ``position`` might read memory that it has overwritten. Its results may overlap
        operands only as `HT_IN_PLACE` allows, and never each other, a constant or an input. ``begin``: index of its
        first operand in ``operands``."""
        cdef const ht_call *call = &self.calls[position]
        cdef const int32_t *ins = self.operands + begin
        cdef const int32_t *outs = ins + call.num_in
        cdef int result, other, places = 0, sharing = 0
        cdef bint has_rule = False
        cdef ht_in_place rule
        for result in range(call.num_out):
            if outs[result] < 0:
                continue
            if self.places[outs[result]] == IN_CONSTANT or self.places[outs[result]] == IN_INPUT:
                raise ValueError(f"call {position}: result {result} is a constant or an input")
            for other in range(result):
                if outs[other] >= 0 and self.overlap(outs[result], outs[other]):
                    raise ValueError(f"call {position}: results {other} and {result} overlap")
            for other in range(call.num_in):
                if ins[other] < 0 or not self.overlap(outs[result], ins[other]):
                    continue
                if not has_rule:
                    if self.branches[position] is None:
                        rule = in_place_rule(name)
                    else:
                        rule.operands = rule.shared = 0
                    has_rule = True
                sharing += 1
                places += rule.operands >> other & 1
                if result or not self.same_elements(outs[0], ins[other]):
                    raise ValueError(f"call {position}: result {result} overlaps other elements of operand {other}")
        if sharing and (places == 0 or (sharing > 1 and not rule.shared)):
            raise ValueError(f"call {position}: the kernel does not work in place on these operands")
        return 0

    cdef bint overlap(self, int a, int b) noexcept:
        """Whether two tensors share a byte."""
        cdef int64_t size_a = self.tensors[a].size * ht_element_bytes(self.tensors[a].dtype)
        cdef int64_t size_b = self.tensors[b].size * ht_element_bytes(self.tensors[b].dtype)
        if self.places[a] != self.places[b] or size_a == 0 or size_b == 0:
            return False
        if self.places[a] == IN_ARENA:
            return self.numbers[a] < self.numbers[b] + size_b and self.numbers[b] < self.numbers[a] + size_a
        return self.numbers[a] == self.numbers[b]

    cdef bint same_elements(self, int a, int b) noexcept:
        """Whether element i occupies the same bytes in both tensors, for every i."""
        return (self.numbers[a] == self.numbers[b] and self.tensors[a].size == self.tensors[b].size
                and ht_element_bytes(self.tensors[a].dtype) == ht_element_bytes(self.tensors[b].dtype))

    def __dealloc__(self):
        free(self.input_tensors)
        free(self.tensors)
        free(self.places)
        free(self.numbers)
        free(self.operands)
        free(self.calls)
        free(self.functions)
        free(self.ints)
        free(self.floats)
