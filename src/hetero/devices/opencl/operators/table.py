"""What the device knows about each operator: which nodes it supports, and how it plans one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InferenceError
from ....model.types import ValueType
from ..builder import Builder
from ..tensors import Tensor

__all__ = [
    "ANY",
    "FLOATS",
    "INDICES",
    "LAYOUT",
    "NUMBERS",
    "OPERATORS",
    "HostFunction",
    "Operator",
    "PlannedNode",
    "StaticNode",
    "add",
    "axis_of",
    "with_attributes",
]

FLOATS = frozenset({"float32", "float16"})
INDICES = frozenset({"int32", "int64"})
NUMBERS = FLOATS | INDICES
BOOLS = frozenset({"bool"})
ANY = NUMBERS | BOOLS | {"int8", "uint8"}
LAYOUT = (21, 23, 24, 25)
"""The versions of operators that move elements in which only more element types were added."""

HostFunction = Callable[[Mapping[str, Any], int, Sequence[NDArray[Any] | None]], NDArray[Any]]
"""Attributes, version and arrays -> the result, for values that depend only on shapes and constants."""


class StaticNode:
    """A node of a model that is queried: the types of its values, as far as they are known.

    ``inputs``: a type for each input, None where it is absent. ``constants``: the value of each input that is a small
    constant, otherwise None. ``num_outputs``: of those that are used, the last one counts.
    """

    __slots__ = ("attributes", "constants", "inputs", "num_outputs", "version")

    def __init__(
        self,
        attributes: Mapping[str, Any],
        version: int,
        inputs: Sequence[ValueType | None],
        constants: Sequence[NDArray[Any] | None],
        num_outputs: int,
    ) -> None:
        self.attributes = attributes
        self.version = version
        self.inputs = inputs
        self.constants = constants
        self.num_outputs = num_outputs

    def rank(self, position: int) -> int | None:
        """The rank of an input, if it is known."""
        kind = self.inputs[position] if position < len(self.inputs) else None
        return None if kind is None or kind.shape is None else len(kind.shape)

    def has(self, position: int) -> bool:
        """Whether an optional input is there."""
        return position < len(self.inputs) and self.inputs[position] is not None


class PlannedNode:
    """A node with the shapes of one plan. ``inputs``: None where one is absent."""

    __slots__ = ("attributes", "builder", "inputs", "num_outputs", "version")

    def __init__(
        self,
        attributes: Mapping[str, Any],
        version: int,
        inputs: Sequence[Tensor | None],
        num_outputs: int,
        builder: Builder,
    ) -> None:
        self.attributes = attributes
        self.version = version
        self.inputs = inputs
        self.num_outputs = num_outputs
        self.builder = builder

    def __getitem__(self, position: int) -> Tensor:
        tensor = self.inputs[position]
        assert tensor is not None
        return tensor

    def optional(self, position: int) -> Tensor | None:
        """An input that may be absent."""
        return self.inputs[position] if position < len(self.inputs) else None

    def array(self, position: int) -> NDArray[Any] | None:
        """The value of an input that `Operator.host` lists; None if it is absent."""
        tensor = self.optional(position)
        if tensor is None:
            return None
        if tensor.array is None:
            raise InferenceError(
                f"its input {position + 1}, which states a size, an axis or a position, depends on data on the device"
            )
        return tensor.array

    def integers(self, position: int) -> list[int] | None:
        """`array` as a list."""
        array = self.array(position)
        return None if array is None else [int(each) for each in array.reshape(-1)]


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator of ONNX.

    ``versions``: those of its schema that were checked. ``attributes``: those that it may have. ``types``: the element
    types of each input; the last entry is for all further inputs. ``host``: positions of inputs that must be known
    before the run. ``plan``: plans a node and returns its results. ``check``: why a node is rejected, or None.
    ``check_on_device``: why the host must compute a node, or None.
    ``on_host``: computes a value that depends only on shapes and constants. ``states_size``: the first of ``host`` is
    the shape of the result, or the shape that it is broadcast to.
    """

    versions: frozenset[int]
    attributes: frozenset[str]
    types: tuple[frozenset[str], ...]
    plan: Callable[[PlannedNode], Sequence[Tensor]] | None
    host: tuple[int, ...] = ()
    check: Callable[[StaticNode], str | None] | None = None
    check_on_device: Callable[[StaticNode], str | None] | None = None
    on_host: HostFunction | None = None
    num_outputs: int = 1
    states_size: bool = False


OPERATORS: dict[str, Operator] = {}
"""Operators of ONNX's own domain."""


def add(
    name: str,
    versions: Sequence[int],
    types: Sequence[frozenset[str]],
    plan: Callable[[PlannedNode], Sequence[Tensor]] | None,
    attributes: Sequence[str] = (),
    **more: Any,
) -> None:
    """Add an operator to the table."""
    OPERATORS[name] = Operator(frozenset(versions), frozenset(attributes), tuple(types), plan, **more)


def axis_of(axis: int, rank: int, *, last: int = 0) -> int:
    """``axis`` counted from the first. ``last``: 1 if the end counts as an axis. Raises `InferenceError`."""
    if not -rank <= axis < rank + last:
        raise InferenceError(f"axis {axis} is outside of a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def with_attributes(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """``function`` with some arguments given."""

    def call(*arguments: Any) -> Any:
        return function(*arguments, **fixed)

    return call


def text(value: Any, default: str = "") -> str:
    """An attribute that is a text."""
    return default if value is None else value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


INT64 = np.dtype(np.int64)
