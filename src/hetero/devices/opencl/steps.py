"""The steps of a plan: kernels, and matrix products of CLBlast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import backend
from .tensors import Slot

if TYPE_CHECKING:
    from .blas import Gemm
    from .device import Device, KernelSource, Stream

__all__ = ["KernelStep", "ProductStep", "Step"]


class KernelStep:
    """One launch of a kernel. ``node``: the node that it belongs to."""

    __slots__ = ("_kernel", "_sizes", "arguments", "node", "source")

    def __init__(
        self,
        node: int,
        source: KernelSource,
        arguments: Sequence[Any],
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
    ) -> None:
        """``arguments``: slots and NumPy values."""
        self.node = node
        self.source = source
        self.arguments = arguments
        self._sizes = global_size, local_size
        self._kernel: Any = None

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots among its arguments."""
        return tuple(argument for argument in self.arguments if isinstance(argument, Slot))

    def prepare(self, device: Device) -> None:
        """Create the kernel and set its arguments. Slots that have memory by now are set."""
        self._kernel = device.kernel(self.source)
        for position, argument in enumerate(self.arguments):
            if not isinstance(argument, Slot):
                self._kernel.set_arg(position, argument)
            elif argument.block is not None:
                self.bind(position, argument.block.buffer)

    @property
    def launch(self) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        """The kernel, whose arguments are set, and its sizes."""
        return self._kernel, *self._sizes

    def bind(self, position: int, buffer: Any) -> None:
        """Set the memory of an argument."""
        self._kernel.set_arg(position, buffer)

    def enqueue(self, stream: Stream, waits: Sequence[Any]) -> Any:
        """Start it after the events in ``waits``. Returns its event."""
        return backend.load().enqueue_nd_range_kernel(
            stream.compute, self._kernel, *self._sizes, wait_for=waits or None
        )


class ProductStep:
    """A matrix product of CLBlast. ``slots``: of A, B and C."""

    __slots__ = ("_buffers", "_gemm", "node", "slots")

    def __init__(self, node: int, gemm: Gemm, slots: tuple[Slot, Slot, Slot]) -> None:
        self.node = node
        self.slots = slots
        self._gemm = gemm
        self._buffers: list[Any] = [None, None, None]

    def prepare(self, device: Device) -> None:
        for position, slot in enumerate(self.slots):
            if slot.block is not None:
                self.bind(position, slot.block.buffer)

    def bind(self, position: int, buffer: Any) -> None:
        self._buffers[position] = buffer

    def enqueue(self, stream: Stream, waits: Sequence[Any]) -> Any:
        if waits:
            backend.load().enqueue_barrier(stream.compute, wait_for=waits)
        return self._gemm.enqueue(stream.compute, self._buffers)


Step = KernelStep | ProductStep
