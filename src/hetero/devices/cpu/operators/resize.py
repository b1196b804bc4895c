"""Resize and Upsample: one axis after the other, each by a table of positions and weights.

The position in the input of each element of the result depends only on shapes, so the tables are computed during
planning, or once for new sizes (kernels/resize_tables.c), and the kernels that apply them know no modes. Axes are
processed in the order of the lowest cost.

Linear and cubic modes compute in float32, or in float64 for float64 and integers of 32 bits (`_COMPUTED_IN`). Results
that are integers are rounded, halves to even, and saturated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .... import _kernels
from ...._sizes import is_symbolic, single, single_bits, whole
from ....errors import InferenceError
from ..registry import ANY, F32, FLOATS, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required, binary, cast, unary, unary_code
from .movement import axes_of

if TYPE_CHECKING:
    from ....model.model import Model
    from ..registry import ExaminedNode

_MAX_LENGTH = 1 << 30  # elements of an axis: positions are int32
_MAX_TAPS = 1 << 28  # of all outputs along an axis
_GATHER_COST = 4  # cost of an output along the innermost axis, relative to other axes
_ROUND = unary_code("ROUND")
_I32 = np.dtype(np.int32)
_BOOL = np.dtype(np.bool_)

_COMPUTED_IN = dict.fromkeys(("float16", "bfloat16", "int8", "uint8", "int16", "uint16"), np.dtype(np.float32)) | (
    dict.fromkeys(("int32", "uint32"), np.dtype(np.float64))
)
"""Type of x -> the type in which linear and cubic modes compute, if it is another one, which holds every value of x."""

_COORDINATES = {
    name: _kernels.constant(f"RESIZE_{constant}")
    for name, constant in (
        (b"half_pixel", "HALF_PIXEL"),
        (b"half_pixel_symmetric", "HALF_PIXEL_SYMMETRIC"),
        (b"pytorch_half_pixel", "PYTORCH_HALF_PIXEL"),
        (b"align_corners", "ALIGN_CORNERS"),
        (b"asymmetric", "ASYMMETRIC"),
        (b"tf_half_pixel_for_nn", "TF_HALF_PIXEL"),
        (b"tf_crop_and_resize", "TF_CROP"),
    )
}
_ROUNDINGS = {
    name: _kernels.constant(f"RESIZE_{constant}")
    for name, constant in (
        (b"round_prefer_floor", "PREFER_FLOOR"),
        (b"round_prefer_ceil", "PREFER_CEIL"),
        (b"floor", "FLOOR"),
        (b"ceil", "CEIL"),
    )
}


def _interpolates(node: Node) -> bool:
    return bool(node.get("mode", b"nearest") != b"nearest")


def _refusal(model: Model, view: ExaminedNode) -> str | None:
    attributes = view.attributes
    mode = attributes.get("mode", b"nearest")
    if mode != b"nearest":
        dtype = view.type_of_input(0)
        if dtype is None or dtype not in (*FLOATS, *_COMPUTED_IN):
            supported = ", ".join((*FLOATS, *_COMPUTED_IN))
            return f"{view.op_type} with mode {mode.decode()} of {dtype or 'an unknown type'}; supported: {supported}"
    elif attributes.get("antialias", 0):
        return f"{view.op_type} with antialias and mode nearest"
    if view.op_type == "Resize" and view.opset > 10 and not any(view.inputs[2:]):
        return "Resize without scales and sizes"
    return None


@operator("Upsample", dtypes=ANY, attributes={
    "mode": (b"nearest", b"bilinear", b"linear"), "height_scale": None, "width_scale": None,
}, until=6, check=_refusal)  # fmt: skip
def _upsample_last_two(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if x.rank != 4:
        raise InferenceError(f"expected an input of rank 4, found shape {list(x.shape)}")
    return _by_scales(context, node, x, [1.0, 1.0, node.get("height_scale", 1.0), node.get("width_scale", 1.0)])


@operator("Upsample", dtypes=ANY, attributes={"mode": (b"nearest", b"linear", b"bilinear"), "scales": None},
          since=7, until=8, check=_refusal)  # fmt: skip
def _upsample_by_attribute(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return _by_scales(context, node, _required(inputs[0]), node.get("scales", ()))


@operator(
    "Upsample",
    dtypes=(ANY, F32),
    attributes={"mode": (b"nearest", b"linear", b"bilinear")},
    since=9,
    until=9,
    check=_refusal,
)
@operator(
    "Resize",
    dtypes=(ANY, F32),
    attributes={"mode": (b"nearest", b"linear", b"bilinear")},
    since=10,
    until=10,
    check=_refusal,
)
def _by_input(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return _by_scales(context, node, _required(inputs[0]), context.known(_required(inputs[1])).reshape(-1).tolist())


def _by_scales(context: Context, node: Node, x: Value, given_scales: Sequence[float]) -> list[Value]:
    """Resize as before opset 11: asymmetric; nearest rounds down when enlarging and up when shrinking."""
    dtype, x = x.dtype, _widened(context, node, x)
    scales = _checked_scales(given_scales, x.rank)
    tables = []
    for axis, scale in enumerate(scales):
        size, length = x.shape[axis], _scaled(x.shape[axis], scale)
        if length != size or scale != 1:
            rounding = b"ceil" if scale < 1 else b"floor"
            tables.append(_table(context, node, x, axis, length, scale, b"asymmetric", rounding))
    return [_rounded(context, _apply(context, x, tables), dtype)]


@operator("Resize", dtypes=(ANY, (*FLOATS, "float16"), F32, ("int64",)), since=11, check=_refusal, attributes={
    "mode": (b"nearest", b"linear", b"cubic"),
    "coordinate_transformation_mode": tuple(_COORDINATES),
    "nearest_mode": tuple(_ROUNDINGS),
    "cubic_coeff_a": None,
    "exclude_outside": (0, 1),
    "extrapolation_value": None,
    "antialias": (0, 1),
    "axes": None,
    "keep_aspect_ratio_policy": (b"stretch", b"not_larger", b"not_smaller"),
})  # fmt: skip
def _resize(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    dtype, x = _required(inputs[0]).dtype, _widened(context, node, _required(inputs[0]))
    axes_attribute = node.get("axes", None)
    axes = list(range(x.rank)) if axes_attribute is None else axes_of(axes_attribute, x.rank)
    scales, lengths = _target(context, node, x, axes, inputs)
    coordinates = node.get("coordinate_transformation_mode", b"half_pixel")
    cropped = coordinates == b"tf_crop_and_resize"
    region = _region(context, inputs, len(axes)) if cropped else []
    tables: list[_Table] = []
    outside: Value | None = None
    for position, axis in enumerate(axes):
        size, length, scale = x.shape[axis], lengths[position], scales[position]
        bounds = (region[position], region[position + len(axes)]) if cropped else (0.0, 1.0)
        if length == size and (scale is None or -1e-9 < scale - 1 < 1e-9) and bounds == (0.0, 1.0):
            continue
        rounding = node.get("nearest_mode", b"round_prefer_floor")
        tables.append(_table(context, node, x, axis, length, scale, coordinates, rounding, bounds))
        if cropped:
            ints = [size, _bits(scale), _COORDINATES[coordinates], int(_interpolates(node))]
            beyond = context.call("resize_outside", [], (length,), _BOOL, ints, bounds)
            beyond = context.reshaped(beyond, (length, *[1] * (x.rank - axis - 1)))
            outside = beyond if outside is None else binary(context, "or", outside, beyond)
    result = _apply(context, x, tables)
    if outside is not None and (outside.data is None or outside.data.any()):
        filler = context.scalar(_filler(node.get("extrapolation_value", 0.0), x.dtype), x.dtype)
        result = context.call("where", [outside, filler, result], result.shape, x.dtype)
    return [_rounded(context, result, dtype)]


def _filler(value: float, dtype: np.dtype[Any]) -> float:
    """The value beyond the region: without its fraction and saturated in an integer type."""
    if dtype.kind not in "iu":
        return value
    limits = np.iinfo(dtype)
    return min(max(int(np.nan_to_num(value)), limits.min), limits.max)


def _widened(context: Context, node: Node, x: Value) -> Value:
    """``x`` in the type in which the node computes."""
    return cast(context, x, _COMPUTED_IN.get(x.dtype.name, x.dtype)) if _interpolates(node) else x


def _rounded(context: Context, x: Value, dtype: np.dtype[Any]) -> Value:
    """A result in the type of the operand. ``x``: float32 or float64 if its type differs."""
    if x.dtype == dtype or dtype.kind not in "iu":
        return cast(context, x, dtype)
    if dtype.itemsize <= 2:
        operands = [x, context.scalar(1, x.dtype), context.scalar(0, dtype)]
        return context.call("quantize", operands, x.shape, dtype)
    limits = np.iinfo(dtype)
    x = unary(context, _ROUND, x)
    for kernel, bound in (("max", limits.min), ("min", limits.max)):
        x = binary(context, kernel, x, context.scalar(bound, x.dtype))
    return cast(context, x, dtype)


# ---- how large, and from where


def _scaled(size: int, scale: float) -> int:
    """The length of an axis by a scale, in float32."""
    if is_symbolic(size) and not is_symbolic(scale) and (scale == int(scale) or 1 / scale in (2, 4, 8, 16, 32)):
        length = size * int(scale) if scale >= 1 else size // int(1 / scale)
        if max(size, length) < 1 << 24:  # float32 holds both
            return length
    length = math.floor(single(single(size) * single(scale)))
    if length > _MAX_LENGTH:
        raise InferenceError(f"an axis of {size} elements and a scale of {scale} give more than 2**30")
    return length


def _checked_scales(scales: Sequence[float], count: int) -> list[float]:
    if len(scales) != count:
        raise InferenceError(f"{len(scales)} scales for {count} axes")
    if not all(0 < scale < math.inf for scale in scales):
        raise InferenceError(f"scales {list(scales)}: expected positive numbers")
    return [single(scale) for scale in scales]


def _target(
    context: Context, node: Node, x: Value, axes: Sequence[int], inputs: Sequence[Value | None]
) -> tuple[Sequence[float | None], list[int]]:
    """The scale and the length of the result along each of ``axes``. A scale of None is the ratio of the lengths."""
    by_scale, by_size = _optional(inputs, 2), _optional(inputs, 3)
    sizes = [x.shape[axis] for axis in axes]
    if by_size is None or by_size.size == 0:
        if by_scale is None:
            raise InferenceError("expected scales or sizes, found neither")
        scales = _checked_scales(context.known(by_scale).reshape(-1).tolist(), len(axes))
        return scales, [_scaled(size, scale) for size, scale in zip(sizes, scales, strict=True)]
    lengths = [whole(length) for length in context.known(by_size).reshape(-1)]
    if len(lengths) != len(axes) or any(length < 0 or length > _MAX_LENGTH for length in lengths):
        raise InferenceError(f"sizes {lengths} do not fit {len(axes)} axes of shape {list(x.shape)}")
    policy = node.get("keep_aspect_ratio_policy", b"stretch")
    if any(size == 0 and (length or policy != b"stretch") for size, length in zip(sizes, lengths, strict=True)):
        raise InferenceError(f"cannot resize an empty axis of shape {list(x.shape)}")
    if policy == b"stretch" or not sizes:
        return [None] * len(axes), lengths
    # The lengths are exact, because float32 puts halves, which round up, on either side.
    length, size = lengths[0], sizes[0]
    for other_length, other_size in zip(lengths[1:], sizes[1:], strict=True):
        if (other_length * size < length * other_size) == (policy == b"not_larger"):
            length, size = other_length, other_size
    results = [(2 * length * own + size) // (2 * size) for own in sizes]
    if any(result > _MAX_LENGTH for result in results):
        raise InferenceError(f"sizes {lengths} and {policy.decode()} make an axis of shape {list(x.shape)} too long")
    return [single(length / size)] * len(axes), results


def _bits(scale: float | None) -> int:
    """A scale for the kernels of resize_tables.c."""
    return 0 if scale is None else single_bits(scale)


def _region(context: Context, inputs: Sequence[Value | None], count: int) -> list[float]:
    region = _optional(inputs, 1)
    if region is None or region.size != 2 * count:
        raise InferenceError(f"tf_crop_and_resize requires a roi of {2 * count} numbers")
    numbers = [float(entry) for entry in context.known(region).reshape(-1)]
    if not all(math.isfinite(entry) and abs(entry) < 1e6 for entry in numbers):
        raise InferenceError(f"roi {numbers} is out of range")
    return numbers


# ---- tables


class _Table(NamedTuple):
    """Which elements a Resize reads along an axis. ``length``: of the result. ``starts``: the first position read for
    each element of the result. ``weights``: from that position on, [taps, length]; None if one element is picked."""

    axis: int
    length: int
    starts: Value
    weights: Value | None


def _table(
    context: Context,
    node: Node,
    x: Value,
    axis: int,
    length: int,
    scale: float | None,
    coordinates: bytes,
    rounding: bytes,
    region: tuple[float, float] = (0.0, 1.0),
) -> _Table:
    size = x.shape[axis]
    if size == 0 and length:
        raise InferenceError("cannot resize an empty axis")
    bits, kind = _bits(scale), _COORDINATES[coordinates]
    if not _interpolates(node):
        ints = [size, bits, kind, _ROUNDINGS[rounding]]
        return _Table(axis, length, context.call("resize_nearest", [], (length,), _I32, ints, region), None)
    cubic, antialias = node.get("mode", b"") == b"cubic", node.get("antialias", 0)
    taps = 4 if cubic else 2
    if antialias and length:
        ratio = length / size if scale is None else scale
        if ratio < 1:
            taps = 2 * math.ceil((2 if cubic else 1) / ratio)
            if taps * length > _MAX_TAPS:
                raise InferenceError(f"{length} outputs with antialias would take windows of {taps} elements each")
    ints = [size, bits, kind, int(cubic), antialias, node.get("exclude_outside", 0), taps]
    specs = [((length,), _I32), ((max(min(taps, size), 1), length), x.dtype)]
    filters = context.call_many("resize_filter", [], specs, ints, (*region, node.get("cubic_coeff_a", -0.75)))
    return _Table(axis, length, *filters)


# ---- calls


def _apply(context: Context, x: Value, tables: Sequence[_Table]) -> Value:
    """Apply the tables to ``x`` in the order of the lowest cost. With more than four tables, the order stays as it is.

    Nearest modes handle the last two axes in one call.
    """
    if not tables:
        return context.reshaped(x, x.shape)
    if all(table.weights is None for table in tables):
        return _pick(context, x, {table.axis: table for table in tables})
    orders = itertools.permutations(tables) if len(tables) <= 4 else (tables,)
    for axis, length, starts, weights in min(orders, key=lambda order: _cost(x.shape, order)):
        outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        assert weights is not None, "tables are of one kind"
        ints = [outer, x.shape[axis], inner, length, weights.shape[0]]
        x = context.call("resample", [x, starts, weights], shape, x.dtype, ints)
    return x


def _pick(context: Context, x: Value, tables: dict[int, _Table]) -> Value:
    """Pick elements along the axes of ``tables``. Outer axes come last, so that they copy rows that already have their
    final length."""
    last = x.rank - 1
    columns = tables.pop(last, None)
    if columns is not None:
        rows = tables.pop(last - 1, None)
        height = x.shape[last - 1] if last else 1
        count = height if rows is None else rows.length
        places = cast(context, context.counting(height), np.dtype(np.int32)) if rows is None else rows.starts
        shape = (*x.shape[: last - 1], count, columns.length) if last else (columns.length,)
        ints = [math.prod(x.shape[: max(last - 1, 0)]), height, x.shape[last], count]
        x = context.call("pick", [x, places, columns.starts], shape, x.dtype, ints)
    for axis in sorted(tables, reverse=True):
        length = tables[axis].length
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        ints = [math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]), length]
        x = context.call("pick", [x, tables[axis].starts], shape, x.dtype, ints)
    return x


def _cost(shape: Sequence[int], order: Sequence[_Table]) -> int:
    sizes, total = list(shape), 0
    for axis, length, _, weights in order:
        sizes[axis] = length
        steps = weights.shape[0] if weights is not None else 1
        total += math.prod(sizes) * steps * (_GATHER_COST if math.prod(sizes[axis + 1 :]) == 1 else 1)
    return total
