"""The transitive closure and its cache of path sets: interface to ``partition/closure.c`` and ``path_cache.c``."""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hetero._graph cimport Csr, finish, frozen, new_watch, out32
from partition_c cimport *

import numpy as np

from hetero.errors import PartitionError

cdef extern from "Python.h" nogil:
    # Locks that can be acquired without the GIL.
    ctypedef void *PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait)
    void PyThread_release_lock(PyThread_type_lock lock)


@cython.final
@cython.auto_pickle(False)
cdef class Closure:
    """Bit rows of descendants, and a cache of path sets. PartitionError if it needs more than `max_bytes`."""
    cdef hg_closure c
    cdef hg_path_cache cache
    cdef PyThread_type_lock lock  # of the cache

    def __cinit__(self, Csr csr not None, int64_t max_bytes, int64_t cache_bytes):
        cdef int status
        cdef hg_watch watch = new_watch()
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no lock for the cache of path sets")
        self.cache.max_bytes = cache_bytes
        with nogil:
            status = hg_closure_build(&csr.c, &self.c, max_bytes, &watch)
        if status == HG_OVER_BUDGET:
            raise PartitionError(
                f"the transitive closure of {csr.c.n} nodes needs more than max_bytes = {max_bytes}: an estimated "
                f"{self.c.at_least} to {self.c.at_most} bytes; raise max_bytes, or use a policy that needs no closure"
            )
        finish(status)

    def __dealloc__(self):
        hg_closure_free(&self.c)
        hg_path_cache_close(&self.cache)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    @property
    def nbytes(self):
        """Bytes of the bit rows."""
        return self.c.bytes

    @property
    def cached_bytes(self):
        """Bytes of the path sets in the cache."""
        return self.cache.bytes

    def reaches(self, int64_t u, int64_t v):
        """Whether v is reachable from u. IndexError for a node that the graph does not have."""
        self.check_node(u)
        self.check_node(v)
        return hg_closure_reaches(&self.c, <int32_t>u, <int32_t>v) != 0

    def descendants(self, int64_t v):
        """Nodes reachable from v, ascending int32."""
        self.check_node(v)
        return self.between(<int32_t>v, -1)

    def ancestors(self, int64_t v):
        """Nodes from which v is reachable, ascending int32."""
        self.check_node(v)
        return self.between(-1, <int32_t>v)

    def path_nodes(self, int64_t u, int64_t v):
        """Nodes reachable from u from which v is reachable, ascending int32, read-only; cached if possible."""
        self.check_node(u)
        self.check_node(v)
        cdef int32_t from_node = <int32_t>u, to_node = <int32_t>v
        cdef const hg_path_set *found
        cdef int32_t *nodes = NULL
        cdef int32_t count = -1
        cdef bint no_memory = False
        with nogil:
            PyThread_acquire_lock(self.lock, 1)
            found = hg_path_cache_find(&self.cache, from_node, to_node)
            if found != NULL:
                count = found.count
                nodes = <int32_t *>malloc(4 * <size_t>count + 1)
                if nodes != NULL:
                    memcpy(nodes, found.nodes, 4 * <size_t>count)
                else:
                    no_memory = True
            PyThread_release_lock(self.lock)
        if no_memory:
            raise MemoryError("not enough memory for a set of path nodes")
        if count >= 0:
            return frozen(as_array(nodes, count))
        result = frozen(self.between(from_node, to_node))
        cdef const int32_t[::1] view = result
        count = <int32_t>view.shape[0]
        with nogil:
            PyThread_acquire_lock(self.lock, 1)
            hg_path_cache_put(&self.cache, from_node, to_node, &view[0] if count else NULL, count)
            PyThread_release_lock(self.lock)
        return result

    cdef object between(self, int32_t u, int32_t v):
        cdef int32_t *nodes = NULL
        cdef int32_t count = 0
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_closure_between(&self.c, u, v, &nodes, &count, &watch)
        finish(status)
        return as_array(nodes, count)

    cdef int check_node(self, int64_t v) except -1:
        if not 0 <= v < self.c.n:
            raise IndexError(f"node {v} is outside 0 .. {self.c.n - 1}")
        return 0


cdef object as_array(int32_t *nodes, int32_t count):
    """A NumPy copy of an array of nodes, which is freed."""
    try:
        result = np.empty(count, np.int32)
        if count:
            memcpy(out32(result), nodes, 4 * <size_t>count)
        return result
    finally:
        free(nodes)


def triangle_bytes(int64_t n):
    """The maximum memory of a closure of n nodes, in bytes."""
    cdef int64_t words = n // 64
    return 8 * (n * ((n + 63) // 64) - 32 * words * (words - 1) - n % 64 * words) + 25 * n
