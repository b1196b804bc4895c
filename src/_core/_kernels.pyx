"""CPU kernels: the menu, single calls, and compiled programs.

The functions here validate their arguments, then leave the GIL and run C. They know kernels by name and number,
never an ONNX operator.
"""

import os

import numpy as np

from hetero.errors import InferenceError, PropertyError, did_you_mean

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport free, malloc


cdef extern from "kernels/kernel.h" nogil:
    enum:
        HT_MAX_DIMS
    enum:
        HT_FLOAT32, HT_UINT8, HT_INT8, HT_UINT16, HT_INT16, HT_INT32, HT_INT64, HT_BOOL, HT_FLOAT16, HT_FLOAT64
        HT_UINT32, HT_UINT64, HT_BFLOAT16
    enum:
        HT_OK, HT_ERR_INDEX, HT_ERR_DIVIDE, HT_ERR_DTYPE, HT_ERR_OPERAND
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
    ctypedef int (*ht_kernel_fn)(const ht_call *) noexcept nogil

cdef extern from "kernels/registry.h" nogil:
    int ht_num_kernels()
    const char *ht_kernel_name(int kernel)
    int ht_num_variants()
    const char *ht_variant_name(int variant)
    int ht_variant_runs(int variant)
    ht_kernel_fn ht_kernel(int variant, int kernel)

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
    ALIGNMENT = 64  # of arenas and scratch memory: a cache line, and a vector of the widest instruction set


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


cdef int _chosen = _variant_number(os.environ.get("HETERO_ISA") or variants()[-1], "environment variable HETERO_ISA")
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


cdef int _describe_array(ht_tensor *tensor, array) except -1:
    """Fill ``tensor`` from a C-contiguous, aligned, native NumPy array, which must outlive its use."""
    capsule = array.__array_struct__
    cdef const ht_array_interface *view = <const ht_array_interface *> PyCapsule_GetPointer(capsule, NULL)
    cdef int axis
    if view.nd > HT_MAX_DIMS:
        raise ValueError(f"expected at most {HT_MAX_DIMS} dimensions, found shape {array.shape}")
    tensor.dtype = _dtype_code(view.typekind, view.itemsize)
    if tensor.dtype == 0 or (view.typekind == c'V' and array.dtype.name != "bfloat16"):
        raise TypeError(f"no kernel takes elements of type {array.dtype}")
    if view.flags & (C_CONTIGUOUS | ALIGNED | NATIVE) != (C_CONTIGUOUS | ALIGNED | NATIVE):
        raise ValueError("expected a C-contiguous, aligned array in native byte order")
    tensor.data = view.data
    tensor.ndim = view.nd
    tensor.size = 1
    for axis in range(view.nd):
        tensor.dims[axis] = view.shape[axis]
        tensor.size *= view.shape[axis]
    return 0


cdef _check_status(int status, what):
    """Raise `InferenceError` for a kernel's status other than HT_OK; ``what`` names the kernel or node."""
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
    else:
        reason = f"status {status}"
    raise InferenceError(f"{what}: {reason}")


def call(name, inputs, output_specs, ints=(), floats=(), scratch_bytes=0, variant=None):
    """Run one kernel on NumPy arrays and return its outputs as a list of fresh arrays.

    ``inputs``: arrays, copied only where not C-contiguous; None for an absent optional input. ``output_specs``: a pair
    (shape, dtype) per output. ``ints``, ``floats``, ``scratch_bytes``: what the kernel's header documents.
    ``variant``: an instruction set of `variants`; None = the chosen one.

    For planning-time evaluation and for tests. Raises ValueError for an unknown kernel or a malformed argument,
    TypeError for an element type without kernels, `InferenceError` for what the kernel itself reports.
    """
    cdef int kernel = _kernel_number(name)
    cdef int number = _chosen if variant is None else _variant_number(variant, "variant")
    arrays = [None if array is None else np.require(array, requirements="CA") for array in inputs]
    outputs = [np.empty(shape, dtype) for shape, dtype in output_specs]
    cdef int num_in = len(arrays), num_out = len(outputs), num_ints = len(ints), num_floats = len(floats), position
    cdef int64_t scratch = scratch_bytes
    if scratch < 0 or scratch > (<int64_t> 1 << 46):
        raise ValueError(f"scratch_bytes: expected 0 to 2**46, found {scratch_bytes}")
    cdef ht_tensor *tensors = NULL
    cdef ht_tensor **operands = NULL
    cdef int64_t *int_values = NULL
    cdef double *float_values = NULL
    cdef void *memory = NULL
    cdef ht_call arguments
    cdef ht_kernel_fn function = ht_kernel(number, kernel)
    cdef int status
    try:
        tensors = <ht_tensor *> malloc((num_in + num_out + 1) * sizeof(ht_tensor))
        operands = <ht_tensor **> malloc((num_in + num_out + 1) * sizeof(ht_tensor *))
        int_values = <int64_t *> malloc((num_ints + 1) * sizeof(int64_t))
        float_values = <double *> malloc((num_floats + 1) * sizeof(double))
        memory = malloc(scratch + ALIGNMENT)
        if not (tensors and operands and int_values and float_values and memory):
            raise MemoryError(f"kernel {name}: {scratch} bytes of scratch memory")
        for position in range(num_in):
            operands[position] = NULL
            if arrays[position] is not None:
                _describe_array(&tensors[position], arrays[position])
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
        arguments.scratch = <void *> ((<uintptr_t> memory + ALIGNMENT - 1) & ~(<uintptr_t> ALIGNMENT - 1))
        arguments.scratch_bytes = scratch
        arguments.num_in = num_in
        arguments.num_out = num_out
        arguments.num_ints = num_ints
        arguments.num_floats = num_floats
        with nogil:
            status = function(&arguments)
    finally:
        free(tensors)
        free(operands)
        free(int_values)
        free(float_values)
        free(memory)
    _check_status(status, f"kernel {name}")
    return outputs
