"""What ``_workspace`` runs: programs, as ``_program`` checked them."""

from libc.stdint cimport int32_t, int64_t

from kernels_c cimport ht_call, ht_kernel_fn, ht_tensor

cdef extern from "sizes.h" nogil:
    ctypedef struct ht_size_step:
        int32_t step, out, a, b
    ctypedef union ht_number:
        int64_t integer
        double real
    ctypedef struct ht_sizes:
        ht_number *registers
        ht_tensor *tensors
        int64_t *ints
        int64_t *begins
        int64_t *buffer_bytes
        int64_t (*ask)(int question, const int64_t *arguments) noexcept nogil
    enum:
        HT_SIZES_DONE
        HT_SIZES_FAILED
        HT_SIZE_ALLOCATE
        HT_SIZE_CALL
        HT_SIZE_TABLE
    int64_t ht_run_sizes(const ht_size_step *steps, int64_t count, int64_t position, const ht_sizes *sizes)

cdef enum:
    IN_ARENA = 0     # number = byte offset
    IN_CONSTANT = 1  # number = position among the constants
    IN_INPUT = 2     # number = position among the inputs
    IN_OUTPUT = 3    # number = position among the outputs
    IS_LATE = 4      # computed for new sizes; number = the tensor whose memory it is


cdef struct ht_branches:  # what the ``ints`` of a call of the kernel ``branch`` are in a workspace
    const ht_call *calls    # of the program
    const ht_kernel_fn *functions
    int64_t begin[3]        # the calls of branch i are those from begin[i] to begin[i + 1] - 1
    int failed              # the call that failed last, or -1
    const char *arena_start
    int64_t arena_size
    int num_threads


cdef class Program:
    cdef readonly object constants
    cdef readonly object labels
    cdef readonly int num_inputs
    cdef readonly int num_outputs
    cdef readonly int num_calls
    cdef readonly int end_call     # the calls from it on run within branches
    cdef readonly int64_t arena_bytes
    cdef readonly object output_specs
    cdef readonly object input_specs
    cdef ht_tensor *input_tensors  # dtype and dims only
    cdef int num_tensors, num_operands, num_ints
    cdef int64_t scratch_bytes     # the most that a call needs
    cdef ht_tensor *tensors
    cdef int32_t *places
    cdef int64_t *numbers
    cdef int32_t *operands
    cdef ht_tensor **operand_tensors  # the operands of `calls`
    cdef ht_call *calls
    cdef int32_t *kernels          # of the calls; -1: a branch
    cdef ht_kernel_fn *functions
    cdef int64_t *ints
    cdef double *floats
    # Only of a program for many sizes; see `Sizes`.
    cdef readonly Sizes sizes
    cdef readonly int first_call   # the calls before it run for new sizes only
    cdef int check(self, const ht_tensor *tensors, const int64_t *numbers, int64_t arena_bytes,
                   const int64_t *bytes_of) except -1 nogil
    cdef int check_overlaps(self, const ht_tensor *tensors, const int64_t *numbers, int position) except -1 nogil
    cdef bint overlap(self, const ht_tensor *tensors, const int64_t *numbers, int a, int b) noexcept nogil
    cdef bint same_elements(self, const ht_tensor *tensors, const int64_t *numbers, int a, int b) noexcept nogil
    cdef int64_t measure_scratch(self, ht_call *calls) noexcept nogil


cdef class Sizes:
    cdef ht_size_step *steps
    cdef int64_t num_steps
    cdef int num_registers, num_buffers
    cdef ht_number *registers      # with the constants
    cdef int64_t *buffer_first
    cdef int64_t *buffer_last
    cdef int64_t *buffer_bytes     # for the sizes for which the program was planned
    cdef int32_t *buffer_of        # per tensor: its buffer in the arena, or -1
    cdef int64_t *begins           # per tensor, in its buffer
    cdef int32_t *output_tensors
    cdef readonly object open_axes      # per input, the axes whose size is a symbol
    cdef readonly object tables
    cdef readonly bint reads_elements   # of inputs
