"""One OpenCL device: its context, its queues, its compiled kernels and its memory."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
import warnings
from collections.abc import Iterable
from importlib import resources
from typing import Any

from ...errors import HeteroError
from . import backend
from .memory import Memory

__all__ = ["Device", "KernelSource", "Stream", "file_kernel", "shared_device"]

_ROW_ITEMS = 128
"""The number of work-items that share a row of a reduction on a GPU: enough for the rows of a transformer, few enough
for every device."""


@dataclasses.dataclass(frozen=True)
class KernelSource:
    """A kernel: the name of its function, and the program that contains it. Programs are compiled once per device.

    ``preamble``: not empty if the program consists of the preamble and this function only. Such kernels are compiled
    together, because a compiler takes about as long for many of them as for one (`Device.build`).
    """

    name: str
    program: str
    preamble: str = ""


@functools.cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath("kernels", name).read_text(encoding="utf-8")


@functools.lru_cache(maxsize=1024)
def file_kernel(
    file: str, name: str, half: bool = False, defines: tuple[tuple[str, str | int], ...] = (), functions: str = ""
) -> KernelSource:
    """A kernel of a file in ``kernels``. ``half``: whether S is half. ``defines``: its macros. ``functions``: what it
    calls. Both are part of the source, so no text of a model may be among them."""
    lines = [f"#define {key} {value}\n" for key, value in (("HALF", 1),) * half + defines]
    return KernelSource(name, "".join((*lines, _file("common.cl"), functions, _file(file))))


class Stream:
    """An in-order queue for kernels, and a queue for copies in each direction. Copies overlap with kernels; events say
    what has to wait for what."""

    def __init__(self, context: Any, timed: bool = False) -> None:
        """``timed``: events have times, which costs time on the device."""
        cl = backend.load()
        properties = cl.command_queue_properties.PROFILING_ENABLE if timed else 0
        self.compute, self.upload, self.download = (cl.CommandQueue(context, properties=properties) for _ in range(3))

    def flush(self) -> None:
        """Start what is queued."""
        self.compute.flush()
        self.download.flush()


class Device:
    """One OpenCL device. Thread-safe."""

    def __init__(self, device: Any, name: str) -> None:
        """``name``: the device name for messages, such as ``OPENCL.0``."""
        cl = backend.load()
        self.cl_device = device
        self.name = name
        self.is_gpu = bool(device.type & cl.device_type.GPU)
        self.row_items = min(_ROW_ITEMS, device.max_work_group_size) if self.is_gpu else 1
        self.group = min(256 if self.is_gpu else 64, device.max_work_group_size)
        """The number of work-items in a work-group of kernels that do not use local memory."""
        self.context = cl.Context([device])
        self.memory = Memory(self.context, device, name, cl.CommandQueue(self.context))
        self._programs: dict[str, Any] = {}
        self._build_lock = threading.Lock()

    @functools.cached_property
    def identity(self) -> str:
        """Text that is equal for devices on which the same kernels are fast."""
        device = self.cl_device
        facts = (device.platform.name, device.vendor, device.name, device.driver_version, device.max_compute_units)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]

    def kernel(self, source: KernelSource) -> Any:
        """A new kernel object, whose arguments the caller sets."""
        self.build([source])
        return backend.load().Kernel(self._programs[source.program], source.name)

    def build(self, sources: Iterable[KernelSource]) -> None:
        """Compile the programs of these kernels, if they are not compiled yet."""
        missing = {source.program: source for source in sources if source.program not in self._programs}
        if not missing:
            return
        with self._build_lock:
            joined: dict[str, list[str]] = {}
            for text, source in missing.items():
                if text not in self._programs:
                    joined.setdefault(source.preamble or text, []).append(text if source.preamble else "")
            for preamble, functions in joined.items():
                program = self._compiled("".join((preamble, *functions)))
                self._programs.update(dict.fromkeys(functions if functions[0] else [preamble], program))

    def _compiled(self, text: str) -> Any:
        cl = backend.load()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pyopencl reports any output of the compiler
                return cl.Program(self.context, text).build(["-w"])
        except cl.Error as error:
            raise HeteroError(
                f"{self.name}: the driver ({self.cl_device.platform.name}, {self.cl_device.driver_version}) cannot "
                f"compile a kernel: {backend.error_text(error)}"
            ) from error


_devices: dict[int, Device] = {}
_devices_lock = threading.Lock()


def shared_device(device: Any, name: str) -> Device:
    """The `Device` of this process for a device of pyopencl: all plugins share its memory and its compiled kernels.
    ``name``: for messages of a new one."""
    with _devices_lock:
        shared = _devices.get(device.int_ptr)
        if shared is None:
            shared = _devices[device.int_ptr] = Device(device, name)
        return shared
