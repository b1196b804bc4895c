"""The transitive closure: the border between Python and ``partition/closure.c``."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from hetero._graph cimport Csr, finish, new_watch
from partition_c cimport *

import numpy as np

from hetero.errors import PartitionError


@cython.final
@cython.auto_pickle(False)
cdef class Closure:
    """Bit rows of descendants. PartitionError above `max_bytes`."""
    cdef hg_closure c

    def __cinit__(self, Csr csr not None, int64_t max_bytes):
        cdef int status
        cdef hg_watch watch = new_watch()
        with nogil:
            status = hg_closure_build(&csr.c, &self.c, max_bytes, &watch)
        if status == HG_OVER_BUDGET:
            raise PartitionError(
                f"the transitive closure of {csr.c.n} nodes needs more than max_bytes = {max_bytes}: at most "
                f"{triangle_bytes(csr.c.n)}; raise max_bytes, or use a policy that needs no closure"
            )
        finish(status)

    def __dealloc__(self):
        hg_closure_free(&self.c)

    @property
    def nbytes(self):
        return self.c.bytes

    def reaches(self, int64_t u, int64_t v):
        self.node(u)
        self.node(v)
        return hg_closure_reaches(&self.c, <int32_t>u, <int32_t>v) != 0

    def between(self, int64_t u, int64_t v):
        """Nodes that u reaches and that reach v, ascending int32; -1 for either: any."""
        self.node(u if u >= 0 else 0)
        self.node(v if v >= 0 else 0)
        mask = np.empty(self.c.n, np.uint8)
        cdef uint8_t[::1] out = mask
        with nogil:
            hg_closure_between(&self.c, <int32_t>u, <int32_t>v, &out[0])
        return np.flatnonzero(mask).astype(np.int32)

    cdef int node(self, int64_t v) except -1:
        if not 0 <= v < self.c.n:
            raise IndexError(f"node {v} is outside 0 .. {self.c.n - 1}")
        return 0


def triangle_bytes(int64_t n):
    """The most memory a closure of n nodes can take."""
    cdef int64_t words = n // 64
    return 8 * (n * ((n + 63) // 64) - 32 * words * (words - 1) - n % 64 * words) + 21 * n
