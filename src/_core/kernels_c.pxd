"""The C code of ``kernels/`` and the memory of programs for the Cython modules."""

from libc.stdint cimport int32_t, int64_t

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
    ctypedef int ht_flag
    ctypedef struct ht_watch:
        ht_flag *stop
        int (*look)(void *) noexcept
        void *context
        ht_flag ended
        int64_t next_look
    int ht_watch_ended(const ht_watch *watch)
    ht_watch *ht_watch_exchange(ht_watch *watch)
    int ht_stopping()
    void ht_flag_set(ht_flag *flag, int value)

cdef extern from "kernels/steps.h" nogil:
    ctypedef struct ht_steps:
        int32_t num_steps, num_devices
        const int32_t *device
        const int32_t *waits_for
        const int32_t *follower_start
        const int32_t *follower
        int (*run)(void *, int32_t) noexcept nogil
        void *context
    int ht_run_steps(ht_team *team, const ht_steps *steps)

cdef extern from "kernels/kernel.h" nogil:
    enum:
        HT_MAX_DIMS
        HT_MAX_THREADS
    enum:
        HT_FLOAT32, HT_UINT8, HT_INT8, HT_UINT16, HT_INT16, HT_INT32, HT_INT64, HT_BOOL, HT_FLOAT16, HT_FLOAT64
        HT_UINT32, HT_UINT64, HT_BFLOAT16
    enum:
        HT_OK, HT_ERR_INDEX, HT_ERR_DIVIDE, HT_ERR_DTYPE, HT_ERR_OPERAND, HT_ERR_CUSTOM
        HT_ERR_NOTED_INDEX, HT_ERR_CATEGORY
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

cdef extern from "kernels/questions.h" nogil:
    enum:
        HT_MAX_ARGUMENTS
    int ht_num_questions()
    const char *ht_question_name(int question)
    int ht_question_arguments(int question)
    int64_t ht_ask(int question, const int64_t *arguments)

cdef extern from "kernels/scratch.h" nogil:
    int64_t ht_scratch_bytes(int kernel, const ht_call *call, int tiles)

cdef extern from "kernels/custom.h" nogil:
    ctypedef struct ht_custom_note:
        int32_t status
        char message[252]

cdef extern from "kernels/registry.h" nogil:
    int ht_num_kernels()
    const char *ht_kernel_name(int kernel)
    ctypedef struct ht_in_place:
        unsigned operands
        int shared
    ht_in_place ht_in_place_of(int kernel)
    int ht_num_constants()
    const char *ht_constant_name(int constant)
    int64_t ht_constant_value(int constant)
    int ht_num_variants()
    const char *ht_variant_name(int variant)
    int ht_variant_runs(int variant)
    int ht_variant_has_tiles(int variant)
    ht_kernel_fn ht_kernel(int variant, int kernel)

cdef extern from "kernels/caches.h" nogil:
    int ht_l1_ways()
    void ht_assume_l1_ways(int ways)

cdef extern from "kernels/indices.h" nogil:
    ctypedef struct ht_index_note:
        int64_t index, size
        int axis
    ht_index_note ht_noted_index()

cdef extern from "kernels/elements.h" nogil:
    int64_t ht_element_bytes(int32_t dtype)

cdef extern from "pages.h" nogil:
    void *ht_allocate_pages(int64_t bytes)
    void ht_free_pages(void *memory)

cdef extern from "kernels/constants.h" nogil:
    enum:
        HT_ALIGNMENT

cdef extern from "arena_layout.h" nogil:
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

    /* Address of an array's elements; of an empty one, of something. */
    static inline void *ht_array_data(const ht_array_interface *array)
    {
        static int64_t nothing;
        return array->data ? array->data : &nothing;
    }
    """
    ctypedef struct ht_array_interface:
        int nd
        char typekind
        int itemsize, flags
        Py_ssize_t *shape
        Py_ssize_t *strides
        void *data
    void *ht_array_data(const ht_array_interface *array) nogil
