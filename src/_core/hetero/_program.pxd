"""What ``_workspace`` runs: programs and branches, as ``_program`` checked them."""

from libc.stdint cimport int32_t, int64_t

from kernels_c cimport ht_call, ht_kernel_fn, ht_tensor

cdef enum:
    IN_ARENA = 0     # number = byte offset
    IN_CONSTANT = 1  # number = position among the constants
    IN_INPUT = 2     # number = position among the inputs
    IN_OUTPUT = 3    # number = position among the outputs


cdef struct ht_copy:    # of an operand of a branch, or a constant, to another operand
    const char *constant
    int source, target  # input number i of the call, or output number -1 - i
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


cdef struct ht_branches:  # what the ``ints`` of a call of the kernel ``branch`` are in a workspace
    ht_branch branch[2]
    int taken


cdef class Branch:
    cdef readonly Program program
    cdef readonly object inputs
    cdef readonly object outputs
    cdef readonly object copies
    cdef object copy_bytes
    cdef int fit(self, bytes_in, bytes_out) except -1


cdef class Program:
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
    cdef int64_t scratch_bytes     # the most that a call needs
    cdef ht_tensor *tensors
    cdef int32_t *places
    cdef int64_t *numbers
    cdef int32_t *operands
    cdef ht_call *calls
    cdef ht_kernel_fn *functions
    cdef int64_t *ints
    cdef double *floats
    cdef int check_overlaps(self, int position, name, int begin) except -1
    cdef bint overlap(self, int a, int b) noexcept
    cdef bint same_elements(self, int a, int b) noexcept
