"""CPU kernels: the menu, single calls, and compiled programs.

The functions here validate their arguments, then leave the GIL and run C. They know kernels by name and number,
never an ONNX operator.
"""

import math
import os

import numpy as np

from hetero.errors import InferenceError, PropertyError, did_you_mean

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset


cdef extern from "kernels/team.h" nogil:
    ctypedef struct ht_team:
        pass
    ht_team *ht_team_open(int threads)
    void ht_team_close(ht_team *team)
    int ht_team_threads(const ht_team *team)
    int ht_team_pin(ht_team *team, const int *processors)
    int ht_team_is_near(const ht_team *team)
    int ht_team_enter(ht_team *team)
    void ht_team_leave(ht_team *team)

cdef extern from "kernels/kernel.h" nogil:
    enum:
        HT_MAX_DIMS
    enum:
        HT_FLOAT32, HT_UINT8, HT_INT8, HT_UINT16, HT_INT16, HT_INT32, HT_INT64, HT_BOOL, HT_FLOAT16, HT_FLOAT64
        HT_UINT32, HT_UINT64, HT_BFLOAT16
    enum:
        HT_OK, HT_ERR_INDEX, HT_ERR_DIVIDE, HT_ERR_DTYPE, HT_ERR_OPERAND, HT_ERR_CUSTOM
    ctypedef struct ht_tensor:
        void *data
        int64_t size
        int64_t dims[8]
        int32_t ndim
        int32_t dtype
    ctypedef struct ht_call:
        const ht_tensor *const *in_ "in"
        ht_tensor *const *out
        const int64_t *ints
        const double *floats
        void *scratch
        int64_t scratch_bytes
        int32_t num_in, num_out, num_ints, num_floats
        ht_team *team
        int64_t scratch_step
    ctypedef int (*ht_kernel_fn)(const ht_call *) noexcept nogil

cdef extern from "kernels/custom.h" nogil:
    ctypedef struct ht_custom_note:
        int32_t status
        char message[252]

cdef extern from "kernels/registry.h" nogil:
    int ht_num_kernels()
    const char *ht_kernel_name(int kernel)
    int ht_num_variants()
    const char *ht_variant_name(int variant)
    int ht_variant_runs(int variant)
    ht_kernel_fn ht_kernel(int variant, int kernel)

cdef extern from "pages.h" nogil:
    void *ht_allocate_pages(int64_t bytes)

cdef extern from "arena_layout.h" nogil:
    enum:
        HT_ALIGNMENT
    int64_t ht_arena_layout(int64_t num, const int64_t *first, const int64_t *last, const int64_t *bytes,
                            int64_t *offset)

# NumPy's documented C view of an array, valid while the capsule lives:
# https://numpy.org/doc/stable/reference/arrays.interface.html#c-struct-access
cdef extern from *:
    """
    typedef struct {
        int two, nd;
        char typekind;
        int itemsize, flags;
        Py_ssize_t *shape, *strides;
        void *data;
        PyObject *descr;
    } ht_array_interface;
    """
    ctypedef struct ht_array_interface:
        int nd
        char typekind
        int itemsize, flags
        Py_ssize_t *shape
        Py_ssize_t *strides
        void *data

cdef enum:
    C_CONTIGUOUS = 0x1
    ALIGNED = 0x100
    NATIVE = 0x200
    ALIGNMENT = HT_ALIGNMENT


# ---- Menu -----------------------------------------------------------------------------------------------------------

def kernel_names():
    """Names of all kernels, in the order of their numbers."""
    cdef int kernel
    return tuple([ht_kernel_name(kernel).decode() for kernel in range(ht_num_kernels())])


def variants():
    """Instruction-set variants that this machine runs, from the least to the most demanding."""
    cdef int number
    return tuple([ht_variant_name(number).decode() for number in range(ht_num_variants()) if ht_variant_runs(number)])


def _variant_number(name, source):
    """Number of the variant ``name``; `PropertyError`, naming ``source``, if this machine does not run it."""
    cdef int number
    for number in range(ht_num_variants()):
        if ht_variant_name(number).decode() == name and ht_variant_runs(number):
            return number
    compiled = [ht_variant_name(number).decode() for number in range(ht_num_variants())]
    if name in compiled:
        raise PropertyError(f"{source}: this machine does not run {name!r}, only {', '.join(variants())}")
    raise PropertyError(
        f"{source}: no instruction set {name!r}{did_you_mean(name, compiled)}; expected one of {', '.join(compiled)}"
    )


cdef int _chosen = _variant_number(os.environ.get("HETERO_ISA") or list(variants()).pop(), "environment variable HETERO_ISA")
cdef dict _kernel_numbers = {name: number for number, name in enumerate(kernel_names())}


def variant():
    """The variant in use: the most demanding one that runs here, or what the environment variable HETERO_ISA named
    when the module was imported."""
    return ht_variant_name(_chosen).decode()


cdef int _kernel_number(name) except -1:
    number = _kernel_numbers.get(name)
    if number is None:
        raise ValueError(f"no kernel {name!r}{did_you_mean(name, _kernel_numbers)}; kernel_names() lists them all")
    return number


# ---- Tensors --------------------------------------------------------------------------------------------------------

cdef int _dtype_code(char kind, int itemsize) noexcept nogil:
    """Element type (HT_*) of a NumPy type kind and size; 0 if kernels know none. 'V2' is ml_dtypes' bfloat16."""
    if kind == c'f':
        return HT_FLOAT32 if itemsize == 4 else HT_FLOAT64 if itemsize == 8 else HT_FLOAT16 if itemsize == 2 else 0
    if kind == c'i':
        return (HT_INT64 if itemsize == 8 else HT_INT32 if itemsize == 4 else HT_INT8 if itemsize == 1
                else HT_INT16 if itemsize == 2 else 0)
    if kind == c'u':
        return (HT_UINT64 if itemsize == 8 else HT_UINT32 if itemsize == 4 else HT_UINT8 if itemsize == 1
                else HT_UINT16 if itemsize == 2 else 0)
    if kind == c'b':
        return HT_BOOL
    if kind == c'V' and itemsize == 2:
        return HT_BFLOAT16
    return 0


cdef dict _dtype_codes = {
    np.dtype(name): _dtype_code(ord(np.dtype(name).kind), np.dtype(name).itemsize)
    for name in ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                 "uint64")
}


# Kernels that read weights as they lie in a file, at any address: what they save is a copy of all weights.
cdef object _TAKE_ANY_ADDRESS = frozenset(["pack_b", "pack_winograd"])


cdef int _describe_array(ht_tensor *tensor, array, bint anywhere=False) except -1:
    """Fill ``tensor`` from a C-contiguous, native NumPy array, which must outlive its use and be aligned unless it may lie
    ``anywhere``."""
    cdef int required = C_CONTIGUOUS | NATIVE | (0 if anywhere else ALIGNED)
    capsule = array.__array_struct__
    cdef const ht_array_interface *view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
    cdef int axis
    if view.nd > HT_MAX_DIMS:
        raise ValueError(f"expected at most {HT_MAX_DIMS} dimensions, found shape {array.shape}")
    tensor.dtype = _dtype_code(view.typekind, view.itemsize)
    if tensor.dtype == 0 or (view.typekind == c'V' and array.dtype.name != "bfloat16"):
        raise TypeError(f"no kernel takes elements of type {array.dtype}")
    if view.flags & required != required:
        raise ValueError("expected a C-contiguous, aligned array in native byte order")
    tensor.data = view.data
    tensor.ndim = view.nd
    tensor.size = 1
    for axis in range(view.nd):
        tensor.dims[axis] = view.shape[axis]
        tensor.size *= view.shape[axis]
    return 0


cdef int64_t _describe_type(ht_tensor *tensor, tuple shape, dtype) except -1:
    """Fill all of ``tensor`` but its data; returns its size in elements."""
    cdef int code = _dtype_codes.get(dtype, 0), axis
    cdef int64_t size = 1
    if code == 0:
        code = HT_BFLOAT16 if dtype.name == "bfloat16" else 0
    if code == 0:
        raise TypeError(f"no kernel takes elements of type {dtype}")
    if len(shape) > HT_MAX_DIMS:
        raise ValueError(f"expected at most {HT_MAX_DIMS} dimensions, found shape {shape}")
    tensor.dtype = code
    tensor.ndim = len(shape)
    for axis in range(tensor.ndim):
        tensor.dims[axis] = shape[axis]
        if tensor.dims[axis] < 0:
            raise ValueError(f"expected no negative dimension, found shape {shape}")
        size *= tensor.dims[axis]
    tensor.size = size
    tensor.data = NULL
    return size


cdef _check_status(int status, what, const void *scratch):
    """Raise `InferenceError` for a kernel's status other than HT_OK; ``what`` names the kernel or node. ``scratch``: the
    call's."""
    if status == HT_OK:
        return
    if status == HT_ERR_INDEX:
        reason = "an index is outside its axis"
    elif status == HT_ERR_DIVIDE:
        reason = "an integer division by zero or overflow"
    elif status == HT_ERR_DTYPE:
        reason = "no code for these element types"
    elif status == HT_ERR_OPERAND:
        reason = "operand count, shapes or parameters do not fit"
    elif status == HT_ERR_CUSTOM:
        text = (<const ht_custom_note *> scratch).message.decode(errors="replace")
        reason = f"its C function returned {(<const ht_custom_note *> scratch).status}{': ' if text else ''}{text}"
    else:
        reason = f"status {status}"
    raise InferenceError(f"{what}: {reason}")


@cython.final
cdef class Team:
    """``threads`` threads, the one that runs a program among them, that kernels split their work over; see
    kernels/team.h. Share it between workspaces: one run at a time has it, others go on alone. With ``streams`` there
    are as many teams of that size, and a run takes one that is free.

    ``processors``: per stream, one for each thread: the first is the run's own, which is not touched, each other thread
    stays on its. A run takes the team whose first processor it is on, if that is free."""

    cdef ht_team **teams
    cdef readonly int streams
    cdef bint pinned
    cdef object __weakref__

    def __cinit__(self, int threads, int streams=1, processors=None):
        cdef int i
        cdef int[::1] own
        if not 1 <= threads <= 1024:
            raise ValueError(f"threads: expected 1 to 1024, found {threads}")
        if not 1 <= streams <= 1024:
            raise ValueError(f"streams: expected 1 to 1024, found {streams}")
        self.teams = <ht_team **> calloc(streams, sizeof(ht_team *))
        if self.teams == NULL:
            raise MemoryError("a team of threads")
        self.streams = streams
        for i in range(streams):
            with nogil:
                self.teams[i] = ht_team_open(threads)
            if self.teams[i] == NULL:
                raise MemoryError("a team of threads")
        self.pinned = processors is not None
        if self.pinned:
            table = np.ascontiguousarray(processors, np.intc)
            if table.shape != (streams, threads) or (table < 0).any():
                raise ValueError(f"processors: expected {threads} numbers for each of {streams} streams")
            for i in range(streams):
                own = table[i]
                if not ht_team_pin(self.teams[i], &own[0]):
                    raise MemoryError("a team of threads")

    def __dealloc__(self):
        cdef int i
        if self.teams != NULL:
            with nogil:
                for i in range(self.streams):
                    ht_team_close(self.teams[i])
            free(self.teams)

    @property
    def threads(self):
        """How many there are: as many as asked for, or as the system gave."""
        return self.most_threads()

    cdef int most_threads(self) noexcept nogil:
        cdef int i, most = 1
        for i in range(self.streams):
            most = max(most, ht_team_threads(self.teams[i]))
        return most

    cdef ht_team *enter(self) noexcept nogil:
        """A team that is free, the caller's until it leaves it; NULL if there is none."""
        cdef int i
        if self.pinned:
            for i in range(self.streams):
                if ht_team_is_near(self.teams[i]) and ht_team_enter(self.teams[i]):
                    return self.teams[i]
        for i in range(self.streams):
            if ht_team_enter(self.teams[i]):
                return self.teams[i]
        return NULL


def _array_in(memory, shape, dtype):
    dtype = np.dtype(dtype)
    return memory(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def call(name, inputs, output_specs, ints=(), floats=(), scratch_bytes=0, variant=None, Team team=None, memory=None):
    """Run one kernel on NumPy arrays and return its outputs as a list of fresh arrays.

    ``inputs``: arrays, copied only where not C-contiguous or, but for kernels that pack weights, not aligned; None for an absent optional input. ``output_specs``: a pair
    (shape, dtype) per output. ``ints``, ``floats``, ``scratch_bytes``: what the kernel's header documents.
    ``variant``: an instruction set of `variants`; None = the chosen one. ``team``: threads to use, if it is free.
    ``memory``: called with a number of bytes, gives the memory of an output as an array of uint8; None = a fresh one.

    For planning-time evaluation and for tests. Raises ValueError for an unknown kernel or a malformed argument,
    TypeError for an element type without kernels, `InferenceError` for what the kernel itself reports.
    """
    cdef int kernel = _kernel_number(name)
    cdef int number = _chosen if variant is None else _variant_number(variant, "variant")
    cdef bint anywhere = name in _TAKE_ANY_ADDRESS
    arrays = [None if array is None else np.require(array, requirements="C" if anywhere else "CA") for array in inputs]
    outputs = [np.empty(shape, dtype) if memory is None else _array_in(memory, shape, dtype) for shape, dtype in output_specs]
    cdef int num_in = len(arrays), num_out = len(outputs), num_ints = len(ints), num_floats = len(floats), position
    cdef int threads = 1 if team is None else team.threads
    cdef int64_t scratch = scratch_bytes
    if scratch < 0 or scratch > (<int64_t> 1 << 46):
        raise ValueError(f"scratch_bytes: expected 0 to 2**46, found {scratch_bytes}")
    scratch = (scratch + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1)
    cdef ht_tensor *tensors = NULL
    cdef ht_tensor **operands = NULL
    cdef int64_t *int_values = NULL
    cdef double *float_values = NULL
    cdef void *scratch_memory = NULL
    cdef ht_call arguments
    cdef ht_kernel_fn function = ht_kernel(number, kernel)
    cdef int status
    try:
        tensors = <ht_tensor *> malloc((num_in + num_out + 1) * sizeof(ht_tensor))
        operands = <ht_tensor **> malloc((num_in + num_out + 1) * sizeof(ht_tensor *))
        int_values = <int64_t *> malloc((num_ints + 1) * sizeof(int64_t))
        float_values = <double *> malloc((num_floats + 1) * sizeof(double))
        scratch_memory = malloc(threads * scratch + ALIGNMENT)
        if not (tensors and operands and int_values and float_values and scratch_memory):
            raise MemoryError(f"kernel {name}: {scratch} bytes of scratch memory")
        for position in range(num_in):
            operands[position] = NULL
            if arrays[position] is not None:
                _describe_array(&tensors[position], arrays[position], anywhere)
                operands[position] = &tensors[position]
        for position in range(num_out):
            _describe_array(&tensors[num_in + position], outputs[position])
            operands[num_in + position] = &tensors[num_in + position]
        for position in range(num_ints):
            int_values[position] = ints[position]
        for position in range(num_floats):
            float_values[position] = floats[position]
        arguments.in_ = <const ht_tensor *const *> operands
        arguments.out = <ht_tensor *const *> (operands + num_in)
        arguments.ints = int_values
        arguments.floats = float_values
        arguments.scratch = <void *> ((<uintptr_t> scratch_memory + ALIGNMENT - 1) & ~(<uintptr_t> ALIGNMENT - 1))
        arguments.scratch_bytes = scratch_bytes
        arguments.num_in = num_in
        arguments.num_out = num_out
        arguments.num_ints = num_ints
        arguments.num_floats = num_floats
        arguments.team = team.enter() if team is not None else NULL
        arguments.scratch_step = scratch if arguments.team else 0
        with nogil:
            status = function(&arguments)
        if arguments.team:
            ht_team_leave(arguments.team)
        _check_status(status, f"kernel {name}", arguments.scratch)
    finally:
        free(tensors)
        free(operands)
        free(int_values)
        free(float_values)
        free(scratch_memory)
    return outputs


# ---- Programs -------------------------------------------------------------------------------------------------------

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *time)
    enum:
        CLOCK_MONOTONIC
        CLOCK_THREAD_CPUTIME_ID

def arena_layout(const int64_t[::1] first not None, const int64_t[::1] last not None, const int64_t[::1] size not None):
    """Offsets of buffers in one arena, and the arena's bytes: (int64[n], int).

    Buffer i of ``size[i]`` bytes lives from call ``first[i]`` to call ``last[i]`` inclusive; ``first`` ascends. Buffers
    that live at the same time do not overlap; all are aligned to 64 bytes. Raises ValueError for other arrays.
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


cdef enum:
    IN_ARENA = 0     # number = byte offset
    IN_CONSTANT = 1  # number = position among the constants
    IN_INPUT = 2     # number = position among the inputs
    IN_OUTPUT = 3    # number = position among the outputs


cdef struct ht_slot:    # where an operand of a repeated program is: in trip t at (t odd ? odd : even) + t * step
    char *even
    char *odd
    int64_t step
    int64_t bytes


cdef char *_at(const ht_slot *slot, int64_t trip) noexcept nogil:
    return (slot.odd if trip & 1 else slot.even) + trip * slot.step


cdef int _describe_slot(ht_slot *slot, binding, int64_t trip, int64_t stop, bint written) except -1:
    """Fill ``slot`` for the trips from ``trip`` to ``stop`` - 1; see `Workspace.repeat`."""
    even, odd, first, step = binding
    cdef int64_t rows, row, row_bytes
    for array in (even, odd):
        if not (array.flags.c_contiguous and array.flags.aligned) or (written and not array.flags.writeable):
            raise ValueError("expected C-contiguous, aligned arrays, writeable where they are written")
    if even.nbytes != odd.nbytes:
        raise ValueError("expected two arrays of one size")
    slot.even, slot.odd = <char *> _data_of(even), <char *> _data_of(odd)
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


cdef struct ht_copy:    # of an operand of a branch, or a constant, to another operand
    const char *constant
    int source, target  # as `_operand` takes them
    int64_t bytes


cdef struct ht_branch:
    ht_tensor *tensors
    ht_call *calls
    ht_kernel_fn *functions
    int num_calls, num_outside, num_copies
    const int32_t *outside  # tensors that are operands of the call
    int32_t *operand_of     # which of them
    ht_copy *copies
    int failed              # the call that failed last, or -1


cdef struct ht_branches:
    ht_branch branch[2]
    int taken


cdef void *_operand(const ht_call *call, int number) noexcept nogil:
    """Data of input ``number`` of a call, or of output -1 - ``number``."""
    return call.in_[number].data if number >= 0 else call.out[-1 - number].data


cdef int _run_branch(const ht_call *call) noexcept nogil:
    """A call whose ``ints`` are the `ht_branches` of a workspace: runs the first one's calls if the first operand, a bool,
    is false, else the second's."""
    cdef ht_branches *branches = <ht_branches *> call.ints
    cdef ht_branch *branch
    cdef ht_copy *copy
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
        memcpy(_operand(call, copy.target), copy.constant if copy.constant != NULL else _operand(call, copy.source), copy.bytes)
    return HT_OK


cdef int64_t _now(int clock) noexcept nogil:
    cdef timespec time
    clock_gettime(clock, &time)
    return <int64_t> time.tv_sec * 1000000000 + time.tv_nsec


@cython.final
cdef class Branch:
    """What a call of the kernel ``branch`` does where its condition has one of its two values.

    ``program``: runs on operands of the call. ``inputs``, ``outputs``: which, per input and output of it: input number i
    of the call, or output number -1 - i. ``copies``: (source, target), made after it; a source may be an array instead.
    """

    cdef readonly Program program
    cdef readonly object inputs
    cdef readonly object outputs
    cdef readonly object copies
    cdef object copy_bytes

    def __init__(self, Program program not None, inputs, outputs, copies):
        self.program = program
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.copies = tuple(
            (np.require(source, requirements="CA") if isinstance(source, np_ndarray) else source, target)
            for source, target in copies)
        if len(self.inputs) != program.num_inputs or len(self.outputs) != program.num_outputs:
            raise ValueError("expected an operand per input and output of the program")

    cdef int fit(self, bytes_in, bytes_out) except -1:
        """ValueError unless it stays within operands of so many bytes."""
        for numbers, specs, written in ((self.inputs, self.program.input_specs, False),
                                        (self.outputs, self.program.output_specs, True)):
            for number, (shape, dtype) in zip(numbers, specs, strict=True):
                if _size_of(number, written, bytes_in, bytes_out) != math.prod(shape) * dtype.itemsize:
                    raise ValueError(f"operand {number} of a branch has another size")
        self.copy_bytes = [_size_of(target, True, bytes_in, bytes_out) for _, target in self.copies]
        for (source, target), size in zip(self.copies, self.copy_bytes, strict=True):
            found = source.nbytes if isinstance(source, np_ndarray) else _size_of(source, False, bytes_in, bytes_out)
            if found != size:
                raise ValueError(f"operand {target} of a branch has another size")
        return 0


cdef object _size_of(number, bint written, bytes_in, bytes_out):
    """Bytes of operand ``number`` of a call, as `_operand` takes it."""
    if not -len(bytes_out) <= number < (0 if written else len(bytes_in)):
        raise ValueError(f"a branch has no operand {number}")
    return bytes_in[number] if number >= 0 else bytes_out[-1 - number]


@cython.final
cdef class Program:
    """Kernel calls over an arena, planned for one set of input shapes. Immutable; share it between `Workspace`s.

    ``tensors``: (dtype, shape, place, number) each; place 0 = arena (number: byte offset, a multiple of 64), 1 =
    constant, 2 = input, 3 = output (number: position). Tensors may share memory. ``calls``: (kernel name, input
    tensors (-1: absent), output tensors, ints, floats, scratch bytes, label) each, in order; the text of a label, made
    when needed, names the node in errors. A call of the kernel ``branch``, whose first operand is a bool, has two `Branch`
    as an eighth entry. ``constants``: arrays, kept alive, not written. ``num_inputs``, ``arena_bytes``: sizes. ``outputs``:
    (shape, dtype) per output.
    """

    cdef readonly object constants
    cdef readonly object labels
    cdef readonly object branches  # per call, None or two `Branch`
    cdef readonly int num_inputs
    cdef readonly int num_outputs
    cdef readonly int num_calls
    cdef readonly int64_t arena_bytes
    cdef readonly object output_specs
    cdef readonly object input_specs
    cdef ht_tensor *input_tensors  # dtype and dims only
    cdef int num_tensors, num_operands
    cdef int64_t scratch_bytes
    cdef ht_tensor *tensors
    cdef int32_t *places
    cdef int64_t *numbers
    cdef int32_t *operands
    cdef ht_call *calls
    cdef ht_kernel_fn *functions
    cdef int64_t *ints
    cdef double *floats

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
        if not (self.input_tensors and self.tensors and self.places and self.numbers and self.operands and self.calls and self.functions
                and self.ints and self.floats):
            raise MemoryError("a compiled program")
        limits = (arena_bytes, len(self.constants), len(inputs), len(outputs))
        for position, (shape, dtype) in enumerate(self.input_specs):
            _describe_type(&self.input_tensors[position], shape, dtype)
        for position, (dtype, shape, place, number) in enumerate(tensors):
            if not 0 <= place <= 3 or not 0 <= number <= limits[place] or (place != IN_ARENA and number == limits[place]):
                raise ValueError(f"tensor {position}: there is no place {place}, {number}")
            size = _describe_type(&self.tensors[position], shape, dtype)
            self.places[position], self.numbers[position] = place, number
            limit = size * dtype.itemsize
            if place == IN_CONSTANT:
                if self.constants[number].nbytes != limit:
                    raise ValueError(f"tensor {position}: constant {number} has another size")
                self.tensors[position].data = _data_of(self.constants[number])
            elif place == IN_ARENA and number + limit > arena_bytes:
                raise ValueError(f"tensor {position} reaches past the arena")
            elif place >= IN_INPUT:
                spec = (self.input_specs if place == IN_INPUT else self.output_specs)[number]
                if math.prod(spec[0]) * spec[1].itemsize != limit:
                    raise ValueError(f"tensor {position}: input or output {number} has another size")
        self.scratch_bytes = 0
        for position, (name, ins, outs, int_values, float_values, scratch, *_) in enumerate(calls):
            if self.branches[position] is None:
                self.functions[position] = ht_kernel(_chosen, _kernel_number(name))
            else:
                self.functions[position] = _run_branch
                sizes = [[math.prod(tensors[at][1]) * tensors[at][0].itemsize for at in some] for some in (ins, outs)]
                if len(self.branches[position]) != 2 or not ins or min(*ins, *outs) < 0 or sizes[0][0] != 1 or int_values:
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


cdef void *_data_of(array) except NULL:
    """Address of an array's elements (of an empty one, of something)."""
    capsule = array.__array_struct__
    cdef const ht_array_interface *view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
    return view.data if view.data != NULL else <void *> &_nothing

cdef int64_t _nothing = 0
cdef object np_empty = np.empty
cdef object np_ndarray = np.ndarray


@cython.final
cdef class Arena:
    """Memory that the workspaces of one request share: they run one after another. Grows, never shrinks."""

    cdef char *start     # aligned; NULL while nothing is reserved
    cdef int64_t size

    def __dealloc__(self):
        free(self.start)

    cdef int reserve(self, int64_t size) except -1:
        """Make it at least ``size`` bytes; what was in it is lost if it grows."""
        if size <= self.size and self.start != NULL:
            return 0
        cdef char *start = <char *> ht_allocate_pages(size)
        if start == NULL:
            raise MemoryError(f"an arena of {size} bytes")
        free(self.start)
        self.start = start
        self.size = size
        return 0


@cython.final
cdef class Workspace:
    """One run of a `Program` at a time: a table of tensors bound to the addresses of an `Arena`, a fresh one if none
    is given.

    ``timed``: measure each call; `times` then gives the last run's. ``team``: threads for kernels to use whenever it is
    free.
    """

    cdef Program program
    cdef Arena arena
    cdef Team team
    cdef char *bound            # the arena's start that the tensors point into
    cdef bint timed
    cdef ht_tensor *tensors
    cdef ht_tensor **operands
    cdef ht_call *calls
    cdef int64_t *times_ns      # wall and CPU per call; NULL unless timed
    cdef int32_t *outside       # the tensors that are bound anew for each run: those of inputs and outputs
    cdef int num_outside
    cdef void **addresses       # per input, then per output, of this run
    cdef ht_branches *branches  # of the calls that have some, in order
    cdef int num_branches
    cdef list inner             # the workspaces of branches, two for each of `branches`

    def __init__(self, Program program not None, timed=False, Arena arena=None, Team team=None):
        cdef int position, operand = 0
        cdef int num_calls = program.num_calls
        self.program = program
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
            if program.places[position] >= IN_INPUT:
                self.outside[self.num_outside] = position
                self.num_outside += 1
        for position in range(num_calls):
            self.calls[position].in_ = <const ht_tensor *const *> (self.operands + operand)
            self.calls[position].out = <ht_tensor *const *> (self.operands + operand + self.calls[position].num_in)
            operand += self.calls[position].num_in + self.calls[position].num_out
        for position in range(program.num_operands):
            operand = program.operands[position]
            self.operands[position] = NULL if operand < 0 else &self.tensors[operand]
        self.inner = []
        if any(program.branches):
            self.add_branches()

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
                branch.copies[branch.num_copies].constant = <const char *> _data_of(source)
            else:
                branch.copies[branch.num_copies].source = source
            branch.copies[branch.num_copies].target = target
            branch.copies[branch.num_copies].bytes = size
            branch.num_copies += 1
        return 0

    cdef object failure(self, int position):
        """The label of a call that failed; of one within a branch, with that call's."""
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

    cdef void *failure_scratch(self, int position) except? NULL:
        """The scratch memory of a call that failed; of one within a branch, that call's."""
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
        cdef int position
        for position in range(2 * self.num_branches):
            free(self.branches[position // 2].branch[position % 2].operand_of)
            free(self.branches[position // 2].branch[position % 2].copies)
        free(self.branches)

    cdef int bind(self) except -1:
        """Point the tensors into the arena, where they do not yet."""
        cdef Program program = self.program
        cdef int64_t scratch = (program.arena_bytes + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1)
        cdef int64_t step = (program.scratch_bytes + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1)
        cdef int position
        self.arena.reserve(scratch + step * (1 if self.team is None else self.team.most_threads()))
        cdef Workspace inner
        if self.num_branches:
            for inner in self.inner:
                inner.bind()
        if self.bound == self.arena.start:
            return 0
        self.bound = self.arena.start
        for position in range(program.num_tensors):
            if program.places[position] == IN_ARENA:
                self.tensors[position].data = self.bound + program.numbers[position]
        for position in range(program.num_calls):
            self.calls[position].scratch = self.bound + scratch
            self.calls[position].scratch_step = step
        return 0

    cdef int use(self, ht_team *team) noexcept nogil:
        """Hand a team, or NULL, to all calls."""
        cdef int position
        if self.program.num_calls and self.calls[0].team != team:
            for position in range(self.program.num_calls):
                self.calls[position].team = team
        return 0

    def run_again(self, inputs):
        """`run` for a caller that has not looked at the inputs: also None if one is no NumPy array, exactly."""
        for array in inputs:
            if type(array) is not np_ndarray:
                return None
        return self.run_checked(inputs)

    def run(self, inputs):
        """Run the program; returns fresh arrays, one per output, or None where the inputs have other shapes or dtypes
        than planned.

        Inputs that are not C-contiguous are copied. Not for two threads at once, nor for two workspaces of one arena.
        Raises `InferenceError` naming the label of the call that failed.
        """
        return self.run_checked(inputs)

    cdef list run_checked(self, inputs):
        cdef Program program = self.program
        cdef int position, tensor, axis, status = HT_OK
        cdef int64_t wall, cpu
        cdef const ht_array_interface *view
        cdef const ht_tensor *spec
        if len(inputs) != program.num_inputs:
            return None
        held = []  # copies made here live as long as the run
        for position in range(program.num_inputs):
            spec = &program.input_tensors[position]
            array = inputs[position]
            capsule = array.__array_struct__
            view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
            if view.nd != spec.ndim or _dtype_code(view.typekind, view.itemsize) != spec.dtype:
                return None
            if view.typekind == c'V' and array.dtype.name != "bfloat16":
                return None
            for axis in range(spec.ndim):
                if view.shape[axis] != spec.dims[axis]:
                    return None
            if view.flags & (C_CONTIGUOUS | ALIGNED | NATIVE) != (C_CONTIGUOUS | ALIGNED | NATIVE):
                array = np.require(array, array.dtype.newbyteorder("="), "CA")
                held.append(array)
                self.addresses[position] = _data_of(array)
            else:
                self.addresses[position] = view.data if view.data != NULL else <void *> &_nothing
        outputs = []
        for position in range(program.num_outputs):
            shape, dtype = program.output_specs[position]
            array = np_empty(shape, dtype)
            self.addresses[program.num_inputs + position] = _data_of(array)
            outputs.append(array)
        self.bind()
        cdef ht_team *team = NULL
        if self.team is not None:
            team = self.team.enter()
        with nogil:
            self.use(team)
            for position in range(self.num_outside):
                tensor = self.outside[position]
                self.tensors[tensor].data = self.addresses[
                    program.numbers[tensor] + (program.num_inputs if program.places[tensor] == IN_OUTPUT else 0)]
            if self.timed:
                for position in range(program.num_calls):
                    wall, cpu = _now(CLOCK_MONOTONIC), _now(CLOCK_THREAD_CPUTIME_ID)
                    status = program.functions[position](&self.calls[position])
                    self.times_ns[2 * position] = _now(CLOCK_MONOTONIC) - wall
                    self.times_ns[2 * position + 1] = _now(CLOCK_THREAD_CPUTIME_ID) - cpu
                    if status != HT_OK:
                        break
            else:
                for position in range(program.num_calls):
                    status = program.functions[position](&self.calls[position])
                    if status != HT_OK:
                        break
            if team != NULL:
                ht_team_leave(team)
        if status != HT_OK:
            _check_status(status, self.failure(position), self.failure_scratch(position))
        return outputs

    def repeat(self, bindings, copies, counter, int flag, int64_t trip, int64_t stop, double seconds):
        """Run the program once per trip, from number ``trip`` (< ``stop``) on; returns the next trip's number, and
        whether it is to be made: (int, bool). Stops at ``stop``, after about ``seconds``, or as the flag says.

        ``bindings``: (even, odd, first, step) per input, per output, then for copies alone. In an even trip the
        operand is the array ``even``, in an odd one ``odd``; with a ``step`` of 1 or -1 it is row first + step * trip
        of it. ``copies``: (from, to), numbers of bindings, made after each trip. ``counter``: int64 of one element,
        holds the number of the trip. ``flag``: the binding of a bool that ends the trips when it is false, or -1.

        Arrays that are written must not be read otherwise while this runs. Raises ValueError for bindings that do not
        fit, `InferenceError` naming the trip and the label of the call that failed.
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
        operands = program.num_inputs + program.num_outputs
        if num < operands or not 0 <= trip < stop or not -1 <= flag < num:
            raise ValueError("expected a binding per input and output, and trips to make")
        if counter.dtype != np.int64 or counter.size != 1 or not counter.flags.c_contiguous or not counter.flags.writeable:
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
            for position, (shape, dtype) in enumerate((*program.input_specs, *program.output_specs)):
                if slots[position].bytes != math.prod(shape) * dtype.itemsize:
                    raise ValueError(f"binding {position} has another size than planned")
            for position, (source, target) in enumerate(copies):
                if not (0 <= source < num and 0 <= target < num) or slots[source].bytes != slots[target].bytes:
                    raise ValueError(f"copy {position} is between bindings of two sizes")
                pairs[2 * position], pairs[2 * position + 1] = source, target
            if flag >= 0 and slots[flag].bytes != 1:
                raise ValueError("expected a flag of one byte")
            count = <int64_t *> _data_of(counter)
            self.bind()
            if self.team is not None:
                team = self.team.enter()
            with nogil:
                self.use(team)
                end = _now(CLOCK_MONOTONIC) + <int64_t> (seconds * 1e9)
                while True:
                    count[0] = trip
                    for position in range(self.num_outside):
                        tensor = self.outside[position]
                        self.tensors[tensor].data = _at(&slots[
                            program.numbers[tensor] + (program.num_inputs if program.places[tensor] == IN_OUTPUT else 0)],
                            trip)
                    for position in range(program.num_calls):
                        status = program.functions[position](&self.calls[position])
                        if status != HT_OK:
                            failed = position
                            break
                    if failed >= 0:
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
                    ht_team_leave(team)
        finally:
            free(slots)
            free(pairs)
        if failed >= 0:
            _check_status(status, f"trip {trip}: {self.failure(failed)}", self.failure_scratch(failed))
        return trip, proceed

    def times(self):
        """(wall, thread CPU) nanoseconds of each call of the last run; empty unless ``timed``."""
        cdef int position
        if not self.timed:
            return []
        return [(self.times_ns[2 * position], self.times_ns[2 * position + 1])
                for position in range(self.program.num_calls)]
