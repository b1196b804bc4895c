"""What the modules of programs take from ``_kernels``: kernels by name, arrays as tensors, teams, errors."""

from libc.stdint cimport int64_t

from kernels_c cimport *

cdef enum:  # flags of `ht_array_interface`
    C_CONTIGUOUS = 0x1
    ALIGNED = 0x100
    NATIVE = 0x200
    WRITABLE = 0x400


cdef inline int dtype_code(char kind, int itemsize) noexcept nogil:
    """Element type (HT_*) of a NumPy type kind and size; 0 if kernels know none. 'V2' is ml_dtypes' bfloat16, for which
    callers check the name (`named_code`)."""
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


cdef enum:  # element types of inputs whose elements kernels read as bytes, as numbered in onnx.TensorProto.DataType
    UINT4 = 21
    INT4 = 22


cdef int named_code(dtype) except -1
cdef int kernel_number(name) except -1
cdef ht_kernel_fn chosen_kernel(name) except NULL
cdef ht_in_place in_place_rule(int kernel) noexcept nogil
cdef int64_t scratch_of(int kernel, const ht_call *call) noexcept nogil
cdef int question_number(name, int num_arguments) except -1
cdef int64_t answer_of(int question, const int64_t *arguments) noexcept nogil
cdef ht_watch *exchange_watch(ht_watch *watch) noexcept nogil
cdef int is_stopping() noexcept nogil
cdef void *data_of(array) except NULL
cdef int64_t describe_type(ht_tensor *tensor, tuple shape, dtype) except -1
cdef int check_status(int status, what, const void *scratch) except -1


cdef class Team:
    cdef ht_team **teams
    cdef readonly int streams
    cdef bint pinned
    cdef object __weakref__
    cdef int most_threads(self) noexcept nogil
    cdef ht_team *enter(self) noexcept nogil
    cdef void leave(self, ht_team *team) noexcept nogil
    cdef int run_steps(self, ht_team *team, const ht_steps *steps) noexcept nogil
