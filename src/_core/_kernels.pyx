"""CPU kernels: names and variants, arrays as operands, thread teams, single calls.

The functions here validate their arguments, then release the GIL and run C. They identify kernels by name and number,
never by ONNX operator. Programs of many calls are in ``_program`` and ``_workspace``.
"""

import math
import os

import numpy as np

from hetero.errors import InferenceError, PropertyError, did_you_mean

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc

cdef enum:
    ALIGNMENT = HT_ALIGNMENT


# ---- Menu -----------------------------------------------------------------------------------------------------------

def kernel_names():
    """Names of all kernels, in the order of their numbers."""
    cdef int kernel
    return tuple([ht_kernel_name(kernel).decode() for kernel in range(ht_num_kernels())])


cdef dict _answers = {}


cdef bint _runs(int number):
    """Whether this machine runs a variant. Asked once, and only if needed: virtual machines answer CPUID in up to
    70 us, and the use of tiles changes the process (registry.c)."""
    if number not in _answers:
        _answers[number] = bool(ht_variant_runs(number))
    return _answers[number]


def variants(*kernels):
    """Instruction-set variants that this machine runs, from the least to the most demanding.

    With names of kernels: only variants that have one of these kernels of their own, not shared with a lesser variant.
    ValueError for an unknown kernel.
    """
    cdef int number, lesser, kernel
    cdef list names = [], runs = [number for number in range(ht_num_variants()) if _runs(number)]
    for number in runs:
        own = not kernels
        for name in kernels:
            kernel = kernel_number(name)
            own = own or all([ht_kernel(lesser, kernel) != ht_kernel(number, kernel) for lesser in runs if lesser < number])
        if own:
            names.append(ht_variant_name(number).decode())
    return tuple(names)


def _variant_number(name, source):
    """Number of the variant ``name``; `PropertyError`, naming ``source``, if this machine does not run it."""
    cdef int number
    for number in range(ht_num_variants()):
        if ht_variant_name(number).decode() == name and _runs(number):
            return number
    compiled = [ht_variant_name(number).decode() for number in range(ht_num_variants())]
    if name in compiled:
        raise PropertyError(f"{source}: this machine does not run {name!r}, only {', '.join(variants())}")
    raise PropertyError(
        f"{source}: no instruction set {name!r}{did_you_mean(name, compiled)}; expected one of {', '.join(compiled)}"
    )


cdef int _chosen = _variant_number(os.environ.get("HETERO_ISA") or list(variants()).pop(),
                                   "environment variable HETERO_ISA")
cdef dict _kernel_numbers = {name: number for number, name in enumerate(kernel_names())}


def variant():
    """The variant in use: the most demanding one that this machine runs, or the one that the environment variable
    HETERO_ISA named when the module was imported."""
    return ht_variant_name(_chosen).decode()


def has_tiles():
    """Whether the variant in use has tile registers (kernels/tiles.h)."""
    return bool(ht_variant_has_tiles(_chosen))


def l1_ways():
    """Lines that a set of the processor's L1 data cache holds, by which kernels choose how they read (kernels/caches.h)."""
    return ht_l1_ways()


def assume_l1_ways(int ways):
    """For tests: use ``ways`` in place of what the processor says; 0: what the processor says."""
    ht_assume_l1_ways(ways)


cdef int kernel_number(name) except -1:
    number = _kernel_numbers.get(name)
    if number is None:
        raise ValueError(f"no kernel {name!r}{did_you_mean(name, _kernel_numbers)}; kernel_names() lists them all")
    return number


cdef ht_kernel_fn chosen_kernel(name) except NULL:
    """The kernel ``name`` of the variant in use; ValueError for an unknown name."""
    return ht_kernel(_chosen, kernel_number(name))


cdef ht_in_place in_place_rule(int kernel) noexcept nogil:
    """The operands that the first result of a kernel may overwrite."""
    return ht_in_place_of(kernel)


cdef int64_t scratch_of(int kernel, const ht_call *call) noexcept nogil:
    """Bytes of scratch memory for a call."""
    return ht_scratch_bytes(kernel, call, ht_variant_has_tiles(_chosen))


def in_place(name):
    """The operands that the first result of kernel ``name`` may overwrite, as (numbers, shared).

    ``shared``: whether several operands may use that memory. ``HT_IN_PLACE`` in kernels.h states the conditions.
    ValueError for an unknown kernel.
    """
    cdef ht_in_place rule = in_place_rule(kernel_number(name))
    return tuple([number for number in range(32) if rule.operands >> number & 1]), bool(rule.shared)


cdef dict _constants = {ht_constant_name(number).decode(): ht_constant_value(number)
                        for number in range(ht_num_constants())}


def constant(name):
    """A number that the kernels define: ``HT_<name>`` of constants.h, or a code as ``UNARY_<name>``, ``REDUCE_<name>``,
    ``RECURRENT_<name>``. ValueError for an unknown name."""
    value = _constants.get(name)
    if value is None:
        raise ValueError(f"no constant {name!r}{did_you_mean(name, _constants)}")
    return value


cdef dict _questions = {ht_question_name(number).decode(): number for number in range(ht_num_questions())}


cdef int question_number(name, int num_arguments) except -1:
    """The number of a question of kernels/questions.h; ValueError for an unknown name or another number of arguments."""
    number = _questions.get(name)
    if number is None:
        raise ValueError(f"no question {name!r}{did_you_mean(name, _questions)}")
    if num_arguments != ht_question_arguments(number):
        raise ValueError(f"{name}: expected {ht_question_arguments(number)} arguments, found {num_arguments}")
    return number


cdef int64_t answer_of(int question, const int64_t *arguments) noexcept nogil:
    return ht_ask(question, arguments)


# The watch of a thread is a variable of this module, which other modules access through these functions.
cdef ht_watch *exchange_watch(ht_watch *watch) noexcept nogil:
    return ht_watch_exchange(watch)


cdef int is_stopping() noexcept nogil:
    return ht_stopping()


# ---- Tensors --------------------------------------------------------------------------------------------------------

cdef dict _dtype_codes = {
    np.dtype(name): dtype_code(ord(np.dtype(name).kind), np.dtype(name).itemsize)
    for name in ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
                 "uint32", "uint64")
}


cdef dict _named_codes = {"bfloat16": HT_BFLOAT16, "uint4": UINT4, "int4": INT4}
cdef frozenset _codes_of_kernels = frozenset([*_dtype_codes.values(), HT_BFLOAT16])


# The operand that a kernel reads at any address. Weights in protobuf files are usually not aligned, and copies of all
# weights would take much memory.
cdef dict _BYTEWISE = {"pack_b": 0, "pack_parts": 0, "pack_winograd": 0, "gather": 0, "gather_nd": 0}


def bytewise_operand(name):
    """The operand of kernel ``name`` whose elements need not be aligned; -1 if there is none."""
    return _BYTEWISE.get(name, -1)


cdef void *data_of(array) except NULL:
    """Address of an array's elements; for an empty array, some valid address."""
    capsule = array.__array_struct__
    return ht_array_data(<const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL))


cdef object np_ndarray = np.ndarray


cdef int _range_of(array, uintptr_t *begin, uintptr_t *end) except -1:
    """`range_of`. Returns the flags of the array."""
    capsule = array.__array_struct__
    cdef const ht_array_interface *view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
    cdef int axis
    begin[0] = <uintptr_t> view.data
    end[0] = begin[0] + <uintptr_t> view.itemsize
    for axis in range(view.nd):
        if view.shape[axis] == 0:
            end[0] = begin[0] = <uintptr_t> view.data
            break
        if view.strides[axis] < 0:
            begin[0] += <uintptr_t> ((view.shape[axis] - 1) * view.strides[axis])
        else:
            end[0] += <uintptr_t> ((view.shape[axis] - 1) * view.strides[axis])
    return view.flags


def range_of(array):
    """The addresses of an array's first byte and after its last one; equal if it has no elements."""
    cdef uintptr_t begin, end
    _range_of(array, &begin, &end)
    return begin, end


cdef enum:
    MOST_RANGES = 8


cdef struct Ranges:
    uintptr_t begins[MOST_RANGES]
    uintptr_t ends[MOST_RANGES]
    int count


cdef bint _adds(Ranges *used, array, bint new) except -1:
    """Whether ``array`` is an array whose memory could be added. ``new``: it must be writable and overlap no other."""
    cdef int flags, other, at = used.count
    if at == MOST_RANGES or not isinstance(array, np_ndarray):
        return False
    flags = _range_of(array, &used.begins[at], &used.ends[at])
    if new:
        if not flags & WRITABLE:
            return False
        for other in range(at):
            if used.begins[at] < used.ends[other] and used.begins[other] < used.ends[at]:
                return False
    used.count += 1
    return True


def apart(results, inputs):
    """``results`` as a list, if each is a writable array that shares no byte with ``inputs``, which are arrays, and with
    the results before it, or a list of such arrays or of dictionaries. Otherwise None, and possibly if there are more
    than 8 arrays together. Lists are copied."""
    cdef Ranges used
    cdef list made = []
    used.count = 0
    for value in inputs:
        if not _adds(&used, value, False):
            return None
    for value in results:
        if type(value) is list:
            for item in <list>value:
                if type(item) is not dict and not _adds(&used, item, True):
                    return None
            value = (<list>value).copy()
        elif not _adds(&used, value, True):
            return None
        made.append(value)
    return made


cdef int _describe_array(ht_tensor *tensor, array, bint anywhere=False) except -1:
    """Fills ``tensor`` from a C-contiguous, native-endian NumPy array. The array must outlive ``tensor`` and be aligned
    unless ``anywhere`` is set."""
    cdef int required = C_CONTIGUOUS | NATIVE | (0 if anywhere else ALIGNED)
    capsule = array.__array_struct__
    cdef const ht_array_interface *view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
    cdef int axis
    if view.nd > HT_MAX_DIMS:
        raise ValueError(f"expected at most {HT_MAX_DIMS} dimensions, found shape {array.shape}")
    tensor.dtype = dtype_code(view.typekind, view.itemsize)
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


cdef int named_code(dtype) except -1:
    """Element type of ml_dtypes; 0 if inputs cannot have it."""
    if dtype.kind != "V":  # NumPy computes the name on every access, in 9 us
        return 0
    cdef int code = _named_codes.get(dtype.name, 0)
    return code


cdef int64_t describe_type(ht_tensor *tensor, tuple shape, dtype) except -1:
    """Fills all of ``tensor`` except its data; returns its size in elements."""
    cdef int code = _dtype_codes.get(dtype, 0), axis
    cdef int64_t size = 1
    if code == 0:
        code = named_code(dtype)
    if code not in _codes_of_kernels:
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


cdef int check_status(int status, what, const void *scratch) except -1:
    """Raises `InferenceError` for a kernel status other than HT_OK. ``what`` names the kernel or node; ``scratch`` is
    the call's scratch memory."""
    cdef ht_index_note note
    if status == HT_OK:
        return 0
    if status == HT_ERR_NOTED_INDEX:
        note = ht_noted_index()
        reason = f"index {note.index} is out of bounds for axis {note.axis} with size {note.size}"
    elif status == HT_ERR_CATEGORY:
        reason = f"{ht_noted_index().index} is not a category, and zeros is 0"
    elif status == HT_ERR_INDEX:
        reason = "an index is outside its axis"
    elif status == HT_ERR_DIVIDE:
        reason = "an integer division by zero"
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
    """``threads`` threads, including the one that runs a program, that kernels split their work over; see
    kernels/team.h. Workspaces can share a team: one run at a time uses it, and others continue without it. With
    ``streams`` there are as many teams of that size, and a run takes a free one.

    ``processors``: per stream, one for each thread. The first is the run's own, which is not pinned; every other thread
    is pinned to its processor. A run takes the team whose first processor it is on, if that team is free.
    """

    def __cinit__(self, int threads, int streams=1, processors=None):
        cdef int i
        cdef int[::1] own
        if not 1 <= threads <= HT_MAX_THREADS:
            raise ValueError(f"threads: expected 1 to {HT_MAX_THREADS}, found {threads}")
        if not 1 <= streams <= HT_MAX_THREADS:
            raise ValueError(f"streams: expected 1 to {HT_MAX_THREADS}, found {streams}")
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
        """The number of threads: as requested, or fewer if the system started fewer."""
        return self.most_threads()

    cdef int most_threads(self) noexcept nogil:
        cdef int i, threads = 1
        for i in range(self.streams):
            threads = max(threads, ht_team_threads(self.teams[i]))
        return threads

    cdef ht_team *enter(self) noexcept nogil:
        """Takes a free team for the caller until it leaves; NULL if none is free."""
        cdef int i
        if self.pinned:
            for i in range(self.streams):
                if ht_team_is_near(self.teams[i]) and ht_team_enter(self.teams[i]):
                    return self.teams[i]
        for i in range(self.streams):
            if ht_team_enter(self.teams[i]):
                return self.teams[i]
        return NULL

    cdef void leave(self, ht_team *team) noexcept nogil:
        ht_team_leave(team)

    cdef int run_steps(self, ht_team *team, const ht_steps *steps) noexcept nogil:
        """Runs steps on a team that the caller has entered: see kernels/steps.h."""
        return ht_run_steps(team, steps)


cdef _prepared(array, bint anywhere):
    """The array, or a copy of it if it is not C-contiguous, or not aligned unless ``anywhere`` is set. NumPy's scalars,
    which have flags too but no memory that lasts, become arrays."""
    if type(array) is np_ndarray:
        flags = array.flags
        if flags.c_contiguous and (anywhere or flags.aligned):  # what np.require looks for too, in ten times as long
            return array
    return np.require(array, requirements="C" if anywhere else "CA")


def _array_in(memory, shape, dtype):
    dtype = np.dtype(dtype)
    return memory(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def call(name, inputs, output_specs, ints=(), floats=(), scratch_bytes=None, variant=None, Team team=None, memory=None):
    """Run one kernel on NumPy arrays and return its outputs as a list of new arrays.

    ``inputs``: arrays; None for an absent optional input. An array is copied if it is not C-contiguous, or not aligned
    (except for `bytewise_operand`). ``output_specs``: a pair (shape, dtype) per output. ``ints``, ``floats``: as
    documented in the kernel's source. ``scratch_bytes``: None = as much as the kernel can use. ``variant``: an
    instruction set of `variants`; None = the one in use. ``team``: threads to use, if free. ``memory``: function from a
    number of bytes to a uint8 array for an output; None = new memory.

    For planning-time evaluation and for tests. Raises ValueError for an unknown kernel or a malformed argument,
    TypeError for an element type without kernels, and `InferenceError` for errors that the kernel reports.
    """
    cdef int kernel = kernel_number(name)
    cdef int number = _chosen if variant is None else _variant_number(variant, "variant")
    cdef int anywhere = _BYTEWISE.get(name, -1)
    arrays = [None if array is None else _prepared(array, position == anywhere)
              for position, array in enumerate(inputs)]
    outputs = [np.empty(shape, dtype) if memory is None else _array_in(memory, shape, dtype)
               for shape, dtype in output_specs]
    cdef int num_in = len(arrays), num_out = len(outputs), num_ints = len(ints), num_floats = len(floats), position
    cdef int threads = 1 if team is None else team.threads
    cdef int64_t scratch, step
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
        if not (tensors and operands and int_values and float_values):
            raise MemoryError(f"kernel {name}")
        for position in range(num_in):
            operands[position] = NULL
            if arrays[position] is not None:
                _describe_array(&tensors[position], arrays[position], position == anywhere)
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
        arguments.num_in = num_in
        arguments.num_out = num_out
        arguments.num_ints = num_ints
        arguments.num_floats = num_floats
        if scratch_bytes is None:
            scratch = ht_scratch_bytes(kernel, &arguments, ht_variant_has_tiles(number))
        else:
            scratch = scratch_bytes
        if scratch < 0 or scratch > (<int64_t> 1 << 46):
            raise ValueError(f"scratch_bytes: expected 0 to 2**46, found {scratch}")
        step = (scratch + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1)
        scratch_memory = malloc(threads * step + ALIGNMENT)
        if not scratch_memory:
            raise MemoryError(f"kernel {name}: {scratch} bytes of scratch memory")
        arguments.scratch = <void *> ((<uintptr_t> scratch_memory + ALIGNMENT - 1) & ~(<uintptr_t> ALIGNMENT - 1))
        arguments.scratch_bytes = scratch
        arguments.team = team.enter() if team is not None else NULL
        arguments.scratch_step = step if arguments.team else 0
        with nogil:
            status = function(&arguments)
        if arguments.team:
            ht_team_leave(arguments.team)
        check_status(status, f"kernel {name}", arguments.scratch)
    finally:
        free(tensors)
        free(operands)
        free(int_values)
        free(float_values)
        free(scratch_memory)
    return outputs
