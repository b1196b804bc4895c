"""Checks of operands whose shapes the model states: constants, and inputs of the model.

Each returns why a node contradicts its operator's definition, or None. What depends on other shapes is checked by the
lowering, because inferred shapes follow from what files state about intermediate values, which may be wrong.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .... import _kernels
from ..registry import contradicting, stated_shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....model.model import Model, NodeView

__all__ = [
    "axis_trouble",
    "broadcast_trouble",
    "count_trouble",
    "embedding_trouble",
    "epsilon_trouble",
    "heads_trouble",
    "joining_trouble",
    "known_shape",
    "product_trouble",
    "shapes_trouble",
    "vectors_trouble",
    "window_trouble",
]

Shape = tuple[int | str | None, ...]
_WINDOW = {"kernel_shape": (1, 1), "strides": (1, 1), "dilations": (1, 1), "pads": (2, 0)}
"""Attribute -> entries for each axis, and the least one."""
_MAX_WINDOW = _kernels.constant("MAX_WINDOW")


def known_shape(model: Model, view: NodeView, position: int) -> Shape | None:
    """The shape of an operand, with None or names for sizes that are not known. None if its rank is not known."""
    values = model.node_inputs[view.index].tolist()
    if position >= len(values) or values[position] < 0:
        return None
    value = values[position]
    return model.constant_type(value).shape if model.is_constant[value] else stated_shape(model, value)


def _size(shape: Shape | None, axis: int) -> int | None:
    """A size that is known."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return size if isinstance(size, int) else None


@contradicting
def epsilon_trouble(view: NodeView) -> str | None:
    epsilon = view.attributes.get("epsilon", 0.0)
    return None if epsilon >= 0 else f"{view.op_type} with epsilon = {epsilon}; expected 0 or more"


@contradicting
def axis_trouble(model: Model, view: NodeView, axis: int, *positions: int, last: int = 0) -> str | None:
    """``last``: 1 if the axis may also be the rank."""
    for position in positions:
        shape = known_shape(model, view, position)
        if shape is not None and not -len(shape) <= axis < len(shape) + last:
            return f"{view.op_type} with axis = {axis} of an input of rank {len(shape)}"
    return None


@contradicting
def broadcast_trouble(model: Model, view: NodeView, *positions: int) -> str | None:
    """Operands that cannot be broadcast to one shape."""
    shapes = _known_shapes(model, view, positions)
    for axis in range(-max(map(len, shapes), default=0), 0):
        if len(_sizes(shapes, axis) - {1}) > 1:
            return f"{view.op_type} of shapes that do not broadcast: {_listed(shapes)}"
    return None


@contradicting
def joining_trouble(model: Model, view: NodeView, axis: int, positions: Iterable[int]) -> str | None:
    """Operands that cannot be joined along ``axis``, which each of them has."""
    shapes = _known_shapes(model, view, positions)
    rank = max(map(len, shapes), default=0)
    fits = all(len(shape) == rank for shape in shapes) and all(
        len(_sizes(shapes, other)) < 2 for other in range(rank) if other not in (axis, axis + rank)
    )
    return None if fits else f"{view.op_type} along axis {axis} of shapes {_listed(shapes)}"


def _known_shapes(model: Model, view: NodeView, positions: Iterable[int]) -> list[Shape]:
    return [shape for position in positions if (shape := known_shape(model, view, position)) is not None]


def _sizes(shapes: Iterable[Shape], axis: int) -> set[int]:
    """The sizes along an axis that are known."""
    return {size for shape in shapes if (size := _size(shape, axis)) is not None}


def _listed(shapes: Iterable[Shape]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)


@contradicting
def vectors_trouble(
    model: Model, view: NodeView, x: int | None, *, width: int | None = None, **positions: int
) -> str | None:
    """Operands with one element for each column of the operand ``x``, or for each of ``width`` columns."""
    shape = None if x is None else known_shape(model, view, x)
    if shape == ():
        return f"{view.op_type} of a scalar; expected rank 1 or more"
    width = _size(shape, -1) if width is None else width
    for name, position in positions.items():
        found = known_shape(model, view, position)
        if found is None:
            continue
        size = _size(found, 0)
        if len(found) != 1 or (None not in (size, width) and size != width):
            expected = "one axis" if width is None else f"{width} elements"
            return f"{view.op_type} with {name} of shape {list(found)}; expected {expected}"
        width = size if width is None else width
    return None


@contradicting
def shapes_trouble(
    model: Model, view: NodeView, sizes: dict[str, int], **operands: tuple[int, tuple[str | int | None, ...]]
) -> str | None:
    """Operands that do not have their shapes. ``operands``: name -> its position, and the size of each axis: a number,
    a name that stands for the same size in each operand, or None for any. ``sizes``: those of names; receives more."""
    for name, (position, axes) in operands.items():
        shape = known_shape(model, view, position)
        if shape is None:
            continue
        expected = [sizes.get(axis, axis) if isinstance(axis, str) else axis for axis in axes]
        known = [(have, want) for have, want in zip(shape, expected, strict=False) if isinstance(have, int)]
        if len(shape) != len(axes) or any(isinstance(want, int) and have != want for have, want in known):
            listed = ", ".join("any" if want is None else str(want) for want in expected)
            return f"{view.op_type} with {name} of shape {list(shape)}; expected [{listed}]"
        for axis, have in zip(axes, shape, strict=True):
            if isinstance(axis, str) and isinstance(have, int):
                sizes[axis] = have
    return None


@contradicting
def count_trouble(model: Model, view: NodeView, **operands: tuple[int, int | None]) -> str | None:
    """Operands with another number of elements than expected. ``operands``: name -> its position, and the number."""
    for name, (position, expected) in operands.items():
        shape = known_shape(model, view, position)
        sizes = [size for size in shape or () if isinstance(size, int)]
        if shape is None or len(sizes) < len(shape):
            continue
        if expected is not None and math.prod(sizes) != expected:
            return (
                f"{view.op_type} with {name} of shape {list(shape)}; expected {expected} element{'s' * (expected != 1)}"
            )
    return None


@contradicting
def product_trouble(
    model: Model,
    view: NodeView,
    a: int,
    b: int,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    ranks: tuple[int | None, int | None] = (None, None),
) -> str | None:
    """Matrices that cannot be multiplied. ``ranks``: what the operator requires, None if it takes any from 1 on."""
    left, right = known_shape(model, view, a), known_shape(model, view, b)
    for name, shape, rank in (("A", left, ranks[0]), ("B", right, ranks[1])):
        if shape is not None and (len(shape) != rank if rank is not None else not shape):
            return f"{view.op_type} with {name} of shape {list(shape)}; expected rank {rank or '1 or more'}"
    columns = _size(left, -2 if trans_a and left is not None and len(left) > 1 else -1)
    rows = _size(right, -1 if trans_b or (right is not None and len(right) == 1) else -2)
    if None not in (columns, rows) and columns != rows:
        return f"{view.op_type} with B of shape {list(right or ())}; A has {columns} columns"
    return None


@contradicting
def window_trouble(model: Model, view: NodeView, x: int, w: int | None = None) -> str | None:
    """A pool of the operand ``x``, or its convolution with the weights ``w``."""
    attributes, known = view.attributes, known_shape(model, view, x)
    weights = None if w is None else known_shape(model, view, w)
    if w is None and not attributes.get("kernel_shape"):
        return f"{view.op_type} without its attribute kernel_shape"
    if known is not None and weights is not None and len(known) != len(weights):
        return f"{view.op_type} with w of shape {list(weights)}; expected rank {len(known)}, as x"
    shape = weights if known is None else known
    if shape is not None and len(shape) < 3:
        return f"{view.op_type} of an operand of shape {list(shape)}; expected rank 3 or more"
    rank = None if shape is None else len(shape) - 2
    for name, (each, least) in _WINDOW.items():
        numbers = list(attributes.get(name, None) or ())
        if not numbers:
            continue
        rank = len(numbers) // each if rank is None else rank
        if len(numbers) != rank * each:
            return f"{view.op_type} with {len(numbers)} {name}; expected {rank * each}"
        if min(numbers) < least and (name != "pads" or attributes.get("auto_pad", b"NOTSET") == b"NOTSET"):
            return f"{view.op_type} with {name} = {numbers}; expected {least} or more"
        if max(numbers) > _MAX_WINDOW:
            return f"{view.op_type} with {name} = {numbers}; expected at most {_MAX_WINDOW}"
    trouble = None if weights is None else _channels_trouble(view, known, weights)
    return trouble or _room_trouble(view, known, weights)


def _room_trouble(view: NodeView, x: Shape | None, weights: Shape | None) -> str | None:
    """A window that is larger than the padded operand."""
    get = view.attributes.get
    padding, kernel = get("auto_pad", b"NOTSET"), get("kernel_shape", ()) or (weights or ())[2:]
    if x is None or len(kernel) != len(x) - 2 or padding not in (b"NOTSET", b"VALID"):
        return None
    rank = len(kernel)
    pads = (padding == b"NOTSET" and get("pads", ())) or (0,) * (2 * rank)
    dilations, strides = (get(name, ()) or (1,) * rank for name in ("dilations", "strides"))
    for i, (side, size) in enumerate(zip(kernel, x[2:], strict=True)):
        if isinstance(side, int) and isinstance(size, int):
            span, room = dilations[i] * (side - 1) + 1, size + pads[i] + pads[i + rank]
            most = room + (strides[i] - 1 if get("ceil_mode", 0) else 0)
            if span > most:
                return f"{view.op_type} with a window of {span} along spatial axis {i}; the padded x has {room}"
    return None


def _channels_trouble(view: NodeView, x: Shape | None, weights: Shape) -> str | None:
    kernel, group = view.attributes.get("kernel_shape", None), view.attributes.get("group", 1)
    stated = weights[2:]
    if kernel and any(isinstance(size, int) and size != side for size, side in zip(stated, kernel, strict=True)):
        return f"{view.op_type} with kernel_shape = {list(kernel)}; w has shape {list(weights)}"
    outputs, inputs, channels = _size(weights, 0), _size(weights, 1), _size(x, 1)
    if group < 1 or (outputs is not None and outputs % group):
        return f"{view.op_type} with group = {group} and w of shape {list(weights)}"
    if inputs is not None and channels is not None and inputs * group != channels:
        return f"{view.op_type} with w of shape {list(weights)} and group = {group}; x has {channels} channels"
    return None


@contradicting
def heads_trouble(model: Model, view: NodeView, x: int, heads: int) -> str | None:
    """An operand [batch, positions, heads * size]."""
    shape = known_shape(model, view, x)
    width = _size(shape, 2) if shape is not None and len(shape) == 3 else None
    if heads < 1:
        return f"{view.op_type} with num_heads = {heads}; expected 1 or more"
    if width is not None and width % heads:
        return f"{view.op_type} with num_heads = {heads} and an input of {width} columns"
    return None


@contradicting
def embedding_trouble(model: Model, view: NodeView) -> str | None:
    """Tables of embeddings that do not have the same number of columns, and vectors that do not fit them."""
    width = None
    for name, position in (("word_embedding", 2), ("position_embedding", 3), ("segment_embedding", 4)):
        shape = known_shape(model, view, position)
        if shape is None:
            continue
        size = _size(shape, 1)
        if len(shape) != 2 or (None not in (size, width) and size != width):
            expected = "two axes" if width is None else f"{width} columns"
            return f"{view.op_type} with {name} of shape {list(shape)}; expected {expected}"
        if _size(shape, 0) == 0:
            return f"{view.op_type} with {name} of shape {list(shape)}; expected 1 row or more"
        width = size if width is None else width
    return vectors_trouble(model, view, None, width=width, gamma=5, beta=6) or shapes_trouble(
        *(model, view, {}),
        input_ids=(0, ("batch", "positions")),
        segment_ids=(1, ("batch", "positions")),
        mask=(7, ("batch", "positions")),
    )
