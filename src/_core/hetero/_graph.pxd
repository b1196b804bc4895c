"""What the other modules of the partitioner take from ``_graph``: the graph, checked arrays, signals and errors."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from partition_c cimport HG_POLL_EVERY, HG_POLL_NS, hg_graph, hg_watch

cdef extern from "Python.h":
    # Declared without "except": the exception stays set while the C functions unwind.
    int PyErr_CheckSignals() noexcept
    void PyErr_SetNone(PyObject *type) noexcept
    PyObject *PyExc_KeyboardInterrupt

# Set by `_graph.interrupt`, for tests: the computations before the one to interrupt, or -1, and its work until then.
cdef int64_t watches_before, work_before


cdef inline int poll_signals() noexcept with gil:
    """Non-zero when a signal handler raised; the exception stays set for `finish` to let out."""
    return PyErr_CheckSignals()


cdef inline int poll_interrupt() noexcept with gil:
    PyErr_SetNone(PyExc_KeyboardInterrupt)
    return 1


cdef inline hg_watch new_watch() noexcept nogil:
    global watches_before
    cdef hg_watch watch
    watch.poll = poll_signals
    watch.left = HG_POLL_EVERY
    watch.polled = 0
    if watches_before >= 0:
        if watches_before == 0:
            watch.poll = poll_interrupt
            watch.left = work_before
            watch.polled = -HG_POLL_NS  # so that the first look at the clock finds that it is time
        watches_before -= 1
    return watch


cdef inline int32_t *out32(int32_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef inline const int32_t *in32(const int32_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef inline const uint8_t *in8(const uint8_t[::1] array) noexcept:
    return &array[0] if array.shape[0] else NULL


cdef inline const double *weights_or_null(const double[::1] array) noexcept:
    return &array[0] if array is not None and array.shape[0] else NULL


cdef int finish(int status) except -1
cdef object frozen(object array)
cdef object node_array(object values, int64_t limit, str name)
cdef object label_array(object values, int32_t n)
cdef object device_array(object values, int32_t n)


cdef class Csr:
    cdef hg_graph c
    cdef readonly object indptr
    cdef readonly object indices
    cdef readonly object pred_indptr
    cdef readonly object pred_indices
    cdef object _order  # None: 0..n-1
    cdef object _slot  # position in indices of each edge as given; None: the same
    cdef int64_t _num_passed  # number of edges as passed in
