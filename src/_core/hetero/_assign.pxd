"""What ``_schedule`` takes from ``_assign``: the costs of assignments, checked."""

from assign_c cimport hg_costs


cdef class Costs:
    cdef hg_costs c
    cdef readonly object work
    cdef readonly object producer
    cdef readonly object indptr
    cdef readonly object readers
    cdef readonly object size
    cdef readonly object latency
    cdef readonly object per_unit
    cdef object labels(self, label)
