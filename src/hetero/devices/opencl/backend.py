"""Access to pyopencl: loading it, the devices of this machine, and the contents of its errors."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import DeviceUnavailable, raise_out_of_memory

__all__ = ["error_text", "find_devices", "is_out_of_memory", "load"]

_REMEDY = (
    "install the driver of your GPU, which includes OpenCL; without a GPU, Debian's package pocl-opencl-icd runs "
    "OpenCL on the processor"
)


@functools.cache
def load() -> Any:
    """The package. If it cannot be imported, raises `DeviceUnavailable` with the package to install."""
    try:
        import pyopencl
    except ModuleNotFoundError as error:
        if error.name != "pyopencl":
            raise DeviceUnavailable(f"OPENCL: pyopencl is installed but cannot be imported: {error}") from error
        raise DeviceUnavailable(
            "OPENCL requires pyopencl, which is not installed: pip install 'hetero[opencl]'"
        ) from error
    except Exception as error:
        raise_out_of_memory(error)
        raise DeviceUnavailable(f"OPENCL: pyopencl is installed but cannot be imported: {error}") from error
    return pyopencl


def find_devices() -> list[Any]:
    """The OpenCL devices of this machine: GPUs, then accelerators, then processors; the driver's order within each
    kind. Raises `DeviceUnavailable` if there are none."""
    cl = load()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceUnavailable(f"OPENCL: this machine has no OpenCL platform; {_REMEDY}") from error
    found: list[tuple[int, Any]] = []
    problems = []
    for platform in platforms:
        try:
            for device in platform.get_devices():
                if device.available and device.compiler_available and device.endian_little:
                    found.append((_rank(cl, device), device))
        except cl.Error as error:
            problems.append(f"{platform.name}: {error_text(error)}")
    if not found:
        told = f" ({'; '.join(problems)})" if problems else ""
        raise DeviceUnavailable(f"OPENCL: this machine's OpenCL platforms have no device{told}; {_REMEDY}")
    return [device for _, device in sorted(found, key=lambda entry: entry[0])]


def _rank(cl: Any, device: Any) -> int:
    kinds = (cl.device_type.GPU, cl.device_type.ACCELERATOR)
    return next((at for at, kind in enumerate(kinds) if device.type & kind), len(kinds))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of pyopencl reports a lack of device memory."""
    cl = load()
    codes = cl.status_code
    lacks = (codes.MEM_OBJECT_ALLOCATION_FAILURE, codes.OUT_OF_RESOURCES, codes.INVALID_BUFFER_SIZE)
    return isinstance(error, cl.MemoryError) or (isinstance(error, cl.Error) and getattr(error, "code", 0) in lacks)


def error_text(error: BaseException) -> str:
    """The message of an error on one line, shortened: a failed build lists the whole kernel."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 500 else f"{text[:500]} ..."
