"""Shapes of results that follow from integers that nodes compute from known shapes, such as
``Reshape(x, Concat(Slice(Shape(x)), [-1]))``.

onnx's inference follows such integers through few operators, and before opset 13 through none. Only vectors and
matrices of up to 256 elements are followed, so the work is bounded by the size of the graph. PyTorch computes the pads
of a Pad as a matrix, whose rows and columns it exchanges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import raise_out_of_memory
from .constants import array_of
from .rows import Rows
from .types import ValueType
from .views import NodeView

__all__ = ["MOST_ELEMENTS", "computed_shapes", "known_conditions"]

MOST_ELEMENTS = 256
"""Of the small values from which shapes may follow."""
_MOST_RANK = 2  # of the same values
_MOST_DIMS = 64  # of NumPy's arrays
_LARGEST = 2**40  # sizes and numbers of elements that could occur; larger results are not followed
_FIRST_BROADCASTING_OPSET = 7  # before, Add and others had the attributes axis and broadcast

_Array = NDArray[Any]
_Inputs = Sequence["_Array | None"]
_DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}  # of Cast


class _Unknown(Exception):
    """The result does not follow from what is known."""


def computed_shapes(rows: Rows, type_of: Callable[[int], ValueType]) -> dict[int, ValueType]:
    """Value -> type, for results with open dims that become known. ``type_of`` returns the type of a value as far as it
    is known."""
    names = _names(rows)
    used = [number for number, name in enumerate(names) if name in _SHAPES]
    opened = {
        node
        for node in np.flatnonzero(np.isin(rows.file.node_op, used)).tolist()
        for output in rows.node_outputs[node][:1].tolist()
        if output >= 0 and not type_of(output).has_sizes
    }
    state = _State(rows, type_of)
    first = {node: 0 if names[rows.file.node_op[node]] in _WITHOUT_DATA else 1 for node in opened}
    _follow(state, names, opened | _computing(rows, names, first), opened)
    return state.found


def known_conditions(rows: Rows, type_of: Callable[[int], ValueType], nodes: Iterable[int]) -> dict[int, bool]:
    """Node -> its condition, for those of these If nodes whose condition follows from constants and known sizes.
    ``type_of`` returns the type of a value as far as it is known."""
    names, state, found = _names(rows), _State(rows, type_of), dict[int, bool]()
    first = dict.fromkeys(nodes, 0)
    _follow(state, names, _computing(rows, names, first), frozenset())
    for node in first:
        try:
            condition = _Node(state, node).value(0)
            if condition.dtype == np.bool_ and condition.size == 1:
                found[node] = bool(condition.item())
        except _Unknown:
            continue
        except Exception as error:  # unreadable constants
            raise_out_of_memory(error)
    return found


def _names(rows: Rows) -> list[str]:
    """The operators of ai.onnx by number; others are empty."""
    return [
        name if domain in ("", "ai.onnx") and (domain, name) not in rows.file.functions else ""
        for domain, name in zip(rows.file.op_domains, rows.file.op_names, strict=True)
    ]


def _follow(state: _State, names: Sequence[str], nodes: Iterable[int], opened: Container[int]) -> None:
    """Adds the small values that ``nodes`` compute, and the shapes of the results of those in ``opened``."""
    rows = state.rows
    for node in sorted(nodes):
        name, output = names[rows.file.node_op[node]], int(rows.node_outputs[node][0])
        try:
            with np.errstate(all="ignore"):  # integers wrap around, as in runtimes
                if node in opened:
                    state.add_shape(output, _SHAPES[name](_Node(state, node)))
                if name in _VALUES:
                    state.add_value(output, _VALUES[name](_Node(state, node)))
        except _Unknown:
            continue
        except Exception as error:  # malformed nodes; their device reports them
            raise_out_of_memory(error)


def _computing(rows: Rows, names: Sequence[str], first: Mapping[int, int]) -> set[int]:
    """The nodes that may compute small values that nodes read. ``first``: node -> its first input that counts."""
    found: set[int] = set()
    left = list(first.items())
    while left:
        node, at = left.pop()
        values = rows.node_inputs[node][at:]
        for producer in rows.producer[values[values >= 0]].tolist():
            name = names[rows.file.node_op[producer]] if producer >= 0 else ""
            if name in _VALUES and producer not in found:
                found.add(producer)
                if name not in ("Shape", "Size"):
                    left.append((producer, 0))
    return found


class _State:
    def __init__(self, rows: Rows, type_of: Callable[[int], ValueType]) -> None:
        self.rows = rows
        self._type_of = type_of
        self._values: dict[int, _Array] = {}
        self.found: dict[int, ValueType] = {}

    def type_of(self, value: int) -> ValueType:
        return self.found.get(value) or self._type_of(value)

    def value(self, value: int) -> _Array:
        known = self._values.get(value)
        if known is None:
            constants, number = self.rows.constants, int(self.rows.file.value_constant[value])
            if number < 0 or math.prod(constants.dims(number)) > MOST_ELEMENTS:
                raise _Unknown
            if constants.type_of(number).dtype not in _DTYPES.values():
                raise _Unknown
            known = self._values[value] = np.asarray(constants.view(number))
        return known

    def add_value(self, value: int, result: _Array) -> None:
        result = np.asarray(result)
        if result.size > MOST_ELEMENTS or result.ndim > _MOST_RANK:
            raise _Unknown
        if result.dtype.kind == "f" and not np.isfinite(result).all():
            raise _Unknown
        if result.dtype.kind in "if" and result.size and not -_LARGEST <= result.min() <= result.max() <= _LARGEST:
            raise _Unknown
        self._values[value] = result

    def add_shape(self, value: int, shape: Sequence[int]) -> None:
        known = self._type_of(value)
        dims = tuple(int(dim) for dim in shape)
        if known.dtype is None or len(dims) > _MOST_DIMS or any(not 0 <= dim <= _LARGEST for dim in dims):
            raise _Unknown
        if known.shape is not None and (
            len(known.shape) != len(dims)
            or any(isinstance(old, int) and old != new for old, new in zip(known.shape, dims, strict=True))
        ):
            raise _Unknown  # a contradiction, which stays for the runtime to report
        self.found[value] = ValueType(known.dtype, dims)


class _Node:
    """A node with what is known of its inputs."""

    def __init__(self, state: _State, node: int) -> None:
        self._state = state
        self._inputs = state.rows.node_inputs[node].tolist()
        view = NodeView(state.rows, node)
        self.opset = view.opset
        self.attributes: Mapping[str, Any] = view.stored_attributes

    def __len__(self) -> int:
        return len(self._inputs)

    def has(self, at: int) -> bool:
        return at < len(self._inputs) and self._inputs[at] >= 0

    def value(self, at: int) -> _Array:
        if not self.has(at):
            raise _Unknown
        return self._state.value(self._inputs[at])

    def values(self) -> list[_Array]:
        if not self._inputs:
            raise _Unknown
        return [self.value(at) for at in range(len(self._inputs))]

    def sizes(self, at: int) -> list[int]:
        """The elements of an integer vector."""
        value = self.value(at)
        if value.dtype.kind != "i" or value.ndim > 1:
            raise _Unknown
        sizes: list[int] = value.reshape(-1).tolist()
        return sizes

    def shape(self, at: int = 0) -> tuple[int, ...]:
        known = self._state.type_of(self._inputs[at]) if self.has(at) else ValueType(None, None)
        if known.shape is None or not known.has_sizes:
            raise _Unknown
        return tuple(dim for dim in known.shape if isinstance(dim, int))

    def numbers(self, name: str, at: int) -> list[int] | None:
        """Integers that are an attribute in early opsets and an input in later ones; None if absent."""
        if name in self.attributes:
            return [int(number) for number in self.attributes[name]]
        return self.sizes(at) if self.has(at) else None


# ---- small values


def _shape_value(node: _Node) -> _Array:
    dims = node.shape()
    return np.array(dims[node.attributes.get("start", 0) : node.attributes.get("end")], np.int64)


def _cast(node: _Node) -> _Array:
    dtype = _DTYPES.get(node.attributes.get("to", 0))
    if dtype is None:
        raise _Unknown
    return node.value(0).astype(dtype)


def _gather(node: _Node) -> _Array:
    data = node.value(0)
    if data.ndim != 1:
        raise _Unknown
    return np.asarray(data[node.value(1)])  # of an index out of range: IndexError


def _sliced(node: _Node, dims: Sequence[int]) -> list[slice]:
    """The slice of each axis."""
    starts, ends = node.numbers("starts", 1), node.numbers("ends", 2)
    if starts is None or ends is None:
        raise _Unknown
    axes = node.numbers("axes", 3) or range(len(starts))
    steps = (node.numbers("steps", 4) if node.has(4) else None) or [1] * len(starts)
    slices = [slice(None)] * len(dims)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step < 0 and start + dims[axis] < 0:  # ONNX begins at element 0, Python has no element
            raise _Unknown
        first, last, step = slice(start, end, step).indices(dims[axis])
        slices[axis] = slice(first, None if last < 0 else last, step)
    return slices


def _slice_value(node: _Node) -> _Array:
    data = node.value(0)
    return data[tuple(_sliced(node, data.shape))]


def _concat(node: _Node) -> _Array:
    values = node.values()
    if any(value.ndim != 1 or value.dtype != values[0].dtype for value in values):
        raise _Unknown
    return np.concatenate(values)


def _unsqueeze(node: _Node) -> _Array:
    axes = node.numbers("axes", 1)
    if axes is None or len(axes) != 1 or axes[0] not in (0, -1) or node.value(0).ndim:
        raise _Unknown
    return node.value(0).reshape(1)


def _squeeze(node: _Node) -> _Array:
    axes = node.numbers("axes", 1)
    if node.value(0).shape != (1,) or axes not in (None, [0], [-1]):
        raise _Unknown
    return node.value(0).reshape(())


def _reshape_value(node: _Node) -> _Array:
    return node.value(0).reshape(_reshape(node))


def _arithmetic(compute: Callable[[_Array, _Array], _Array]) -> Callable[[_Node], _Array]:
    def apply(node: _Node) -> _Array:
        if node.opset < _FIRST_BROADCASTING_OPSET:
            raise _Unknown
        first, *others = node.values()
        for other in others:
            if first.dtype != other.dtype:
                raise _Unknown
            first = compute(first, other)
        return np.asarray(first)

    return apply


def _remainder(node: _Node) -> _Array:
    first, second = node.values()
    if first.dtype != second.dtype or not second.all():
        raise _Unknown
    return np.asarray((np.fmod if node.attributes.get("fmod", 0) else np.mod)(first, second))


def _divide(first: _Array, second: _Array) -> _Array:
    if not second.all():
        raise _Unknown
    if first.dtype.kind == "f":
        return np.asarray(first / second)
    return np.asarray(np.sign(first) * np.sign(second) * (np.abs(first) // np.abs(second)))  # rounds to zero


def _unary(compute: Callable[[_Array], _Array]) -> Callable[[_Node], _Array]:
    return lambda node: np.asarray(compute(node.value(0)))


def _product(node: _Node) -> _Array:
    value = node.value(0)
    axes = node.numbers("axes", 1)
    if value.ndim > 1 or axes not in (None, [0], [-1]) or node.attributes.get("noop_with_empty_axes", 0):
        raise _Unknown
    total = math.prod(value.tolist()) if value.ndim else value.item()
    if abs(total) > _LARGEST:
        raise _Unknown
    keeps = value.ndim and node.attributes.get("keepdims", 1)
    return np.full((1,) if keeps else (), total, value.dtype)


def _where(node: _Node) -> _Array:
    return np.where(node.value(0), node.value(1), node.value(2))


def _filled(node: _Node) -> _Array:
    (count,) = node.sizes(0)
    if count > MOST_ELEMENTS:
        raise _Unknown
    value = array_of(node.attributes["value"]) if "value" in node.attributes else np.zeros(1, np.float32)
    return np.full(count, value.item(), value.dtype)


def _expand_value(node: _Node) -> _Array:
    shape = _expand(node)
    if math.prod(shape) > MOST_ELEMENTS:
        raise _Unknown
    return np.broadcast_to(node.value(0), shape)


_VALUES: Mapping[str, Callable[[_Node], _Array]] = {
    "Shape": _shape_value,
    "Size": lambda node: np.array(math.prod(node.shape()), np.int64),
    "Identity": lambda node: node.value(0),
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice_value,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": lambda node: np.transpose(node.value(0), node.attributes.get("perm")),
    "Reshape": _reshape_value,
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _arithmetic(_divide),
    "Mod": _remainder,
    "Min": _arithmetic(np.minimum),
    "Max": _arithmetic(np.maximum),
    "Equal": _arithmetic(np.equal),
    "Less": _arithmetic(np.less),
    "Greater": _arithmetic(np.greater),
    "And": _arithmetic(np.logical_and),
    "Or": _arithmetic(np.logical_or),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "ReduceProd": _product,
    "Where": _where,
    "ConstantOfShape": _filled,
    "Expand": _expand_value,
}
"""Operator -> the small value that it computes."""


# ---- shapes


def _reshape(node: _Node) -> list[int]:
    if "shape" in node.attributes:  # before opset 5
        raise _Unknown
    sizes = node.sizes(1)
    if 0 in sizes and not node.attributes.get("allowzero", 0):
        dims = node.shape()
        sizes = [dims[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if -1 in sizes:
        axis, total = sizes.index(-1), math.prod(node.shape())
        rest = math.prod(sizes[:axis] + sizes[axis + 1 :])
        if rest <= 0 or total % rest:
            raise _Unknown
        sizes[axis] = total // rest
    return sizes


def _expand(node: _Node) -> tuple[int, ...]:
    return np.broadcast_shapes(node.shape(), tuple(node.sizes(1)))


def _tile(node: _Node) -> list[int]:
    return [dim * count for dim, count in zip(node.shape(), node.sizes(1), strict=True)]


def _slice(node: _Node) -> list[int]:
    dims = node.shape()
    return [len(range(*part.indices(dim))) for part, dim in zip(_sliced(node, dims), dims, strict=True)]


def _range(node: _Node) -> list[int]:
    (start,), (limit,), (delta,) = (node.sizes(at) for at in range(3))
    return [len(range(start, limit, delta))]


def _pad(node: _Node) -> list[int]:
    dims = node.shape()
    if "pads" in node.attributes or node.has(3):
        raise _Unknown
    pads = node.sizes(1)
    return [dim + begin + end for dim, begin, end in zip(dims, pads[: len(dims)], pads[len(dims) :], strict=True)]


def _resize(node: _Node) -> list[int]:
    if not {"axes", "keep_aspect_ratio_policy"}.isdisjoint(node.attributes) or len(node) < 4:
        raise _Unknown
    sizes = node.sizes(3)
    if len(sizes) != len(node.shape()):
        raise _Unknown
    return sizes


_SHAPES: Mapping[str, Callable[[_Node], Sequence[int]]] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": lambda node: node.sizes(0),
    "Tile": _tile,
    "Slice": _slice,
    "Range": _range,
    "Pad": _pad,
    "Resize": _resize,
}
"""Operator -> the shape of its result."""
_WITHOUT_DATA = ("ConstantOfShape", "Range")  # of others, the first input has data, of which only the shape matters
