"""What NVIDIA's driver knows about the GPUs of this machine, without creating a context on them, and how to wait for
their work.

The driver numbers GPUs as CUDA does, also with ``CUDA_VISIBLE_DEVICES``.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ...plugin.speed import CostSource, DeviceSpeed

__all__ = ["count", "driver", "speed", "total_bytes", "waiting"]

# CUdevice_attribute
_CLOCK_KHZ, _PROCESSORS, _MEMORY_CLOCK_KHZ, _BUS_BITS = 13, 16, 36, 37

# Float32 lanes of a multiprocessor: 128 since the generation Maxwell, except 64 in the data center GPUs P100 to A100.
_LANES = 128

# The link is PCIe 4.0 with 16 lanes; half of the rate is reached from memory that is not pinned. One launch of a
# session, and one copy, wait for the GPU.
_LINK_BYTES_PER_S, _LINK_LATENCY_S, _LAUNCH_S, _NODE_S = 1.2e10, 2e-5, 5e-5, 5e-6

# Without a driver that can be asked: a small GPU.
_FLOPS_PER_S, _BYTES_PER_S = 5e12, 3e11


@functools.cache
def driver() -> Any:
    """The driver's library, initialized; None if there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        return library if library.cuInit(0) == 0 else None
    except (OSError, AttributeError):
        return None


def count() -> int:
    """The number of GPUs; 0 without a driver."""
    library, number = driver(), ctypes.c_int()
    return number.value if library is not None and library.cuDeviceGetCount(ctypes.byref(number)) == 0 else 0


def total_bytes(number: int) -> int | None:
    """The memory of a GPU in B; None if the driver does not know it."""
    library, size = driver(), ctypes.c_size_t()
    if number >= count() or library.cuDeviceTotalMem_v2(ctypes.byref(size), _handle(number)) != 0:
        return None
    return size.value


def speed(number: int) -> DeviceSpeed:
    """An estimate from the clocks and widths of a GPU: half of its peak for operations, 3/4 for bytes."""
    flops, rate = 0.0, 0.0
    if number < count():
        clock, processors, memory_clock, bits = (
            _attribute(number, which) for which in (_CLOCK_KHZ, _PROCESSORS, _MEMORY_CLOCK_KHZ, _BUS_BITS)
        )
        flops = clock * 1e3 * processors * _LANES * 2 * 0.5
        rate = memory_clock * 1e3 * 2 * bits / 8 * 0.75  # two transfers per clock
    return DeviceSpeed(
        flops or _FLOPS_PER_S,
        rate or _BYTES_PER_S,
        _LAUNCH_S,
        _NODE_S,
        _LINK_BYTES_PER_S,
        _LINK_LATENCY_S,
        CostSource.ESTIMATE,
        f"CUDA {number}",
    )


@functools.cache
def waiting(number: int) -> tuple[int, int, int, int] | None:
    """The context of CUDA's runtime on a GPU, and the addresses of the driver's functions that make a context current,
    wait for all its work, and restore the context before it. None without a driver. Creates the context if this
    process has none on the GPU."""
    library, context = driver(), ctypes.c_void_p()
    if number >= count() or library.cuDevicePrimaryCtxRetain(ctypes.byref(context), _handle(number)) != 0:
        return None
    functions = library.cuCtxPushCurrent_v2, library.cuCtxSynchronize, library.cuCtxPopCurrent_v2
    push, synchronize, pop = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return context.value or 0, push, synchronize, pop


def _handle(number: int) -> Any:
    handle = ctypes.c_int()
    driver().cuDeviceGet(ctypes.byref(handle), number)
    return handle


def _attribute(number: int, which: int) -> int:
    value = ctypes.c_int()
    status = driver().cuDeviceGetAttribute(ctypes.byref(value), which, _handle(number))
    return value.value if status == 0 else 0
