"""DLPack tensors in the memory of a GPU that is given back when the GPU's work has ended.

A consumer of DLPack may drop a tensor while work that it has queued still reads it. The allocator that gets the memory
back does not know that work, and would let the next computation overwrite what it reads.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc

# As in DLPack's header, before its version 1.
cdef struct DLDevice:
    int32_t device_type
    int32_t device_id

cdef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

cdef struct DLTensor:
    void *data
    DLDevice device
    int32_t ndim
    DLDataType dtype
    int64_t *shape
    int64_t *strides
    uint64_t byte_offset

cdef struct DLManagedTensor:
    DLTensor tensor
    void *manager
    void (*deleter)(DLManagedTensor *) noexcept nogil

# cuCtxPushCurrent, cuCtxSynchronize and cuCtxPopCurrent of CUDA's driver
ctypedef int (*ht_push)(void *) noexcept nogil
ctypedef int (*ht_synchronize)() noexcept nogil
ctypedef int (*ht_pop)(void **) noexcept nogil

cdef struct Held:
    DLManagedTensor outer
    DLManagedTensor *inner
    ht_push push
    ht_synchronize synchronize
    ht_pop pop
    void *context

cdef const char *UNUSED = "dltensor"
cdef const char *USED = "used_dltensor"


cdef void _release(DLManagedTensor *tensor) noexcept nogil:
    """May run in any thread, also without Python."""
    cdef Held *held = <Held *> tensor.manager
    cdef void *popped
    if held.push(held.context) == 0:  # it fails when the process ends
        held.synchronize()
        held.pop(&popped)
    if held.inner.deleter is not NULL:
        held.inner.deleter(held.inner)
    free(held)


cdef void _forget(object capsule) noexcept:
    """The destructor of a capsule: releases the tensor unless a consumer has taken it."""
    cdef DLManagedTensor *tensor
    if PyCapsule_IsValid(capsule, UNUSED):
        tensor = <DLManagedTensor *> PyCapsule_GetPointer(capsule, UNUSED)
        tensor.deleter(tensor)


def released_after_work(capsule, uintptr_t context, uintptr_t push, uintptr_t synchronize, uintptr_t pop):
    """A capsule for the same tensor. Its memory is given back when all work of the GPU has ended, for which whoever
    drops the tensor waits. ``capsule``: it counts as consumed. ``context``: a context of CUDA's driver that lives as
    long as the process; then the addresses of the driver's functions that make it current, wait for it, and restore
    the one before it."""
    cdef DLManagedTensor *inner = <DLManagedTensor *> PyCapsule_GetPointer(capsule, UNUSED)
    cdef Held *held = <Held *> malloc(sizeof(Held))
    if held is NULL:
        raise MemoryError
    held.outer = inner[0]
    held.outer.manager = held
    held.outer.deleter = _release
    held.inner = inner
    held.push = <ht_push> push
    held.synchronize = <ht_synchronize> synchronize
    held.pop = <ht_pop> pop
    held.context = <void *> context
    try:
        made = PyCapsule_New(held, UNUSED, _forget)
    except BaseException:
        free(held)
        raise
    PyCapsule_SetName(capsule, USED)
    return made
