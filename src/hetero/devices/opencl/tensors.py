"""Values of a plan: their types, and where they are."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .memory import Block

__all__ = ["CONSTANT", "INPUT", "RESULT", "SCRATCH", "Expression", "PendingProduct", "Scalar", "Slot", "Tensor"]

SCRATCH, INPUT, CONSTANT, RESULT = "scratch", "input", "constant", "result"


class Slot:
    """Memory that launches use. ``uses``: (step, argument) pairs; ``writers``: the steps that write to it.

    ``role``: SCRATCH memory is shared with other slots at other times. The blocks of INPUT and RESULT slots may change
    with each run. Those of CONSTANT slots hold the same contents in all runs.
    """

    __slots__ = ("block", "nbytes", "role", "uses", "writers")

    def __init__(self, nbytes: int, role: str, block: Block | None = None) -> None:
        self.nbytes = nbytes
        self.role = role
        self.block = block
        self.uses: list[tuple[int, int]] = []
        self.writers: list[int] = []


class PendingProduct(Protocol):
    """A product of matrices that was not started yet: `hetero.devices.opencl.product.TiledProduct`."""

    @property
    def m(self) -> int: ...

    @property
    def n(self) -> int: ...

    def launch(self, builder: Any, result: Tensor, epilogue: Any = None) -> None: ...


class Tensor:
    """A value: its type, and at least one of: an array on the host (``array``), memory (``slot``), an expression
    that computes it, and a product that was not started yet (``product``).

    ``array`` is set for constants, and for values that depend only on shapes. ``num_readers``: the number of nodes that
    read it; a value that is also a result of the model has more than one.
    """

    __slots__ = ("array", "dtype", "expression", "num_readers", "product", "shape", "slot")

    def __init__(
        self,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        slot: Slot | None = None,
        array: NDArray[Any] | None = None,
        expression: Expression | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.slot = slot
        self.array = array
        self.expression = expression
        self.product: PendingProduct | None = None
        self.num_readers = 2

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the elements in B."""
        return self.size * self.dtype.itemsize

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def viewed(self, shape: tuple[int, ...]) -> Tensor:
        """The same elements with another shape. It must not have an expression."""
        array = None if self.array is None else self.array.reshape(shape)
        return Tensor(self.dtype, shape, self.slot, array)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Scalar:
    """A number that is an argument of the kernel."""

    value: Any
    dtype: np.dtype[Any]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Expression:
    """``template`` with ``{0}``, ``{1}``, … for its operands. ``size``: the number of expressions in the tree, and of
    its tensors."""

    template: str
    operands: tuple[Tensor | Scalar, ...]
    size: tuple[int, int]
