"""Operators of neural networks: products, windows, pooling, normalizations, reductions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .... import _kernels
from ...._sizes import ask, is_symbolic
from ....errors import InferenceError
from ....model.types import dtype_of
from ..registry import F32, FLOATS, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required, binary, broadcast, cast, unary, unary_code
from .movement import axes_of, axis_of, integers, lines_of, strided, strides_of

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_CLIP, _EXP, _LOG, _SQRT, _RECIPROCAL = map(unary_code, ("CLIP", "EXP", "LOG", "SQRT", "RECIPROCAL"))
_PANEL = _kernels.constant("PANEL")
_ROWS_AT_ONCE = 32  # of a panel, at most, that NumPy multiplies as one row: from there on, longer rows are no faster
_PRODUCTS = (*FLOATS, "int32", "int64", "uint32", "uint64")


# ---- matrix products


def packed_b(
    context: Context,
    b: Value,
    batch: int,
    k: int,
    n: int,
    trans: bool,
    *,
    as_float32: bool = False,
    made_by: tuple[bytes, Callable[[], Value]] | None = None,
) -> Value:
    """A constant right operand in panels of columns, multiplied by its scale (batch * n factors) if it has one. It is
    kept in the type of INFERENCE_PRECISION_HINT, or in float32 with ``as_float32``. ``trans``: ``b`` is [n, k].
    ``made_by``: computes the float32 operand from the constant ``b``, and a digest of all else that it depends on."""
    floats = ask("panel_floats", k, n)
    ints = [batch, k, n, int(trans)]
    lasting = as_float32 or not context.halves

    def make() -> Value:
        source = b if made_by is None else made_by[1]()
        packed = context.call("pack_b", [source], (batch * floats,), source.dtype, ints, lasting=lasting)
        if b.scale is not None:
            _scale_columns(packed, batch, k, n, b.scale)
        return packed

    keep = context.packed if as_float32 else context.stored
    # The key contains all parameters, because convolutions of different groups and a Gemm may share one tensor.
    return keep(b, ("pack_b", *ints, b.scale_key if made_by is None else made_by[0]), make)


def parts_of(context: Context, w: Value, batch: int, k: int, n: int, *, trans: bool, are_rows: bool) -> Value | None:
    """Constant float32 operands, [k, n] each or [n, k] with ``trans``, converted once for products of tiles
    (kernels/tiled_product.c) and multiplied by their scale. None if some number is too small or too large for that."""
    ints = [batch, k, n, int(trans), int(are_rows)]

    def make() -> Value:
        scale = None if w.scale is None else context.constant(w.scale)
        results = [((batch * ask("parts_floats", k, n),), w.dtype), ((1,), np.dtype(np.bool_))]
        made, fits = context.call_many("pack_parts", [w, scale], results, ints, lasting=True)
        assert fits.data is not None, "made of constants"
        return made if fits.data[0] else Value(w.dtype, (0,), np.empty(0, w.dtype))

    made = context.packed(w, ("pack_parts", *ints, w.scale_key), make)
    return made if made.size else None


def _is_packed(context: Context, a: Value, b: Value, n: int) -> bool:
    """Whether B is a constant of `_right_operand`. A single column that is neither scaled nor rounded is multiplied as
    it is."""
    as_it_is = n == 1 and b.scale is None and not context.halves
    return b.data is not None and b.dtype == np.float32 and a.data is None and not as_it_is


def _right_operand(context: Context, b: Value, batch: int, m: int, k: int, n: int, trans: bool) -> tuple[int, Value]:
    """How the kernels gemm and matmul should get a constant float32 B for products with ``m`` rows: the code of its
    layout, and the operand. Where sizes may change, the layout is the one that suits every number of rows."""
    fixed = context.has_fixed_sizes and not context.halves
    if fixed and _kernels.has_tiles() and ask("gemm_parts", m, n, k):
        parts = parts_of(context, b, batch, k, n, trans=trans, are_rows=False)
        if parts is not None:
            return 2, parts
    return 1, packed_b(context, b, batch, k, n, trans)


def _scale_columns(packed: Value, batch: int, k: int, n: int, scale: NDArray[np.float32]) -> None:
    """Multiply the columns of matrices in panels, which no call has read yet, by ``scale``: batch * n factors."""
    assert packed.data is not None, "made of constants"
    columns = ask("panel_floats", 1, n)
    factors = np.zeros((batch, columns), np.float32)
    factors[:, :n] = scale.reshape(batch, n)
    rows = next(rows for rows in range(_ROWS_AT_ONCE, 0, -1) if k % rows == 0)
    packed.data.flags.writeable = True
    panels = packed.data.reshape(batch * columns // _PANEL, k // rows, rows * _PANEL)
    with np.errstate(over="ignore", invalid="ignore"):
        panels *= np.tile(factors.reshape(-1, 1, _PANEL), (1, 1, rows))
    packed.data.flags.writeable = False


@operator(
    "Gemm",
    dtypes=_PRODUCTS,
    attributes={"alpha": None, "beta": None, "transA": (0, 1), "transB": (0, 1), "broadcast": (0, 1)},
)
def _gemm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    a, b, c = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    trans_a, trans_b = bool(node.get("transA", 0)), bool(node.get("transB", 0))
    if a.rank != 2 or b.rank != 2 or a.dtype != b.dtype:
        raise InferenceError(f"cannot multiply {a.dtype}{list(a.shape)} by {b.dtype}{list(b.shape)}")
    m, k = a.shape[::-1] if trans_a else a.shape
    k_b, n = b.shape[::-1] if trans_b else b.shape
    if k != k_b:
        raise InferenceError(f"cannot multiply {list(a.shape)} by {list(b.shape)}")
    k = k_b if is_symbolic(k) else k
    row = col = 0
    if c is not None:
        if broadcast(c, Value(c.dtype, (m, n))) != (m, n) or c.dtype != a.dtype:
            raise InferenceError(f"C of shape {list(c.shape)} does not broadcast to {[m, n]}")
        rows, cols = ([1] * (2 - c.rank) + list(c.shape))[-2:]
        row, col = (0 if rows == 1 else cols), (0 if cols == 1 else 1)
    alpha, beta = float(node.get("alpha", 1.0)), float(node.get("beta", 1.0))
    if a.dtype.kind != "f" and (alpha != int(alpha) or beta != int(beta)):
        raise InferenceError(f"Gemm of integers requires whole alpha and beta, found {alpha} and {beta}")
    if beta == 0:  # C is then not read, so NaN and infinities in it have no effect
        c, row, col = None, 0, 0
    packed = _is_packed(context, a, b, n)
    layout, right = _right_operand(context, b, 1, m, k, n, trans_b) if packed else (0, b)
    ints = [m, n, k, int(trans_a), int(trans_b and not packed), layout, row, col, 0]
    return [context.call("gemm", [a, right, c, None], (m, n), a.dtype, ints, [alpha, beta, 0.0, 0.0])]


@operator("MatMul", dtypes=_PRODUCTS)
def _matmul(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [matrix_product(context, _required(inputs[0]), _required(inputs[1]))]


def matrix_product(context: Context, a: Value, b: Value) -> Value:
    """As `numpy.matmul`."""
    if a.dtype != b.dtype:
        raise InferenceError(f"cannot multiply {a.dtype}{list(a.shape)} by {b.dtype}{list(b.shape)}")
    p = products_of(a, b)
    packed = _is_packed(context, a, b, p.n)
    layout, operand = _right_operand(context, b, math.prod(p.right), p.m, p.k, p.n, False) if packed else (0, b)
    right_matrix = ask("parts_floats" if layout == 2 else "panel_floats", p.k, p.n) if packed else p.k * p.n
    steps = p.steps(p.m * p.k, right_matrix)
    ints = [p.m, p.n, p.k, 0, 0, layout, 0, 0, 0, len(p.batch), *p.batch, *steps]
    floats = [1.0, 0.0, 0.0, 0.0]
    return context.call("matmul", [a, operand, None, None], p.shape, a.dtype, ints, floats)


@dataclasses.dataclass(frozen=True, slots=True)
class Products:
    """A batch of products [m, k] x [k, n]. ``left``, ``right``: the operands' own batch axes; ``batch``: broadcast.
    ``shape``: the result's."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    shape: tuple[int, ...]

    def steps(self, left_matrix: int, right_matrix: int) -> list[int]:
        """The stride of each batch axis in elements, 0 if broadcast: of the left operand, then of the right one.
        ``left_matrix``, ``right_matrix``: elements of one matrix."""
        return batch_steps(self.left, self.batch, left_matrix) + batch_steps(self.right, self.batch, right_matrix)


def products_of(a: Value, b: Value) -> Products:
    """MatMul of operands of rank 1 or more as a batch of products. Raises `InferenceError` if the shapes do not fit.

    If the right operand is one matrix and the left one is not broadcast, its batch is folded into the rows."""
    if not a.rank or not b.rank:
        raise InferenceError(f"cannot multiply {a.dtype}{list(a.shape)} by {b.dtype}{list(b.shape)}")
    left = a.shape if a.rank > 1 else (1, *a.shape)
    right = b.shape if b.rank > 1 else (*b.shape, 1)
    (m, k), (k_b, n) = left[-2:], right[-2:]
    if k != k_b:
        raise InferenceError(f"cannot multiply {list(a.shape)} by {list(b.shape)}")
    k = k_b if is_symbolic(k) else k  # constants are packed by a plain number
    batch = broadcast(Value(a.dtype, left[:-2]), Value(b.dtype, right[:-2]))
    shape = (*batch, *((m,) if a.rank > 1 else ()), *((n,) if b.rank > 1 else ()))
    if math.prod(right[:-2]) == 1 and math.prod(batch) == math.prod(left[:-2]):
        return Products(m * math.prod(batch), n, k, (), (), (), shape)
    return Products(m, n, k, batch, left[:-2], right[:-2], shape)


def batch_steps(own: Sequence[int], batch: Sequence[int], matrix: int) -> list[int]:
    padded = [1] * (len(batch) - len(own)) + list(own)
    return [0 if size == 1 else step * matrix for size, step in zip(padded, strides_of(padded), strict=True)]


# ---- windows over spatial axes


MAX_WINDOW = _kernels.constant("MAX_WINDOW")
"""The largest kernel size, stride, dilation and pad."""


def three(values: Sequence[int], filler: int) -> list[int]:
    """Per-axis parameters for three axes, as the kernels require; ``filler`` for the missing outer ones."""
    return [filler] * (3 - len(values)) + list(values)


WINDOW = {
    "kernel_shape": None,
    "strides": None,
    "pads": None,
    "dilations": None,
    "auto_pad": (b"NOTSET", b"VALID", b"SAME_UPPER", b"SAME_LOWER"),
}


def window_of(
    node: Node, x: Value, kernel: Sequence[int]
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Strides, dilations, pads before, pads after, and output sizes without ceil_mode. Raises `InferenceError`.

    With ceil_mode, a window may be larger than the padded axis, by less than a stride. Its size counts as 0 here."""
    rank = x.rank - 2
    if not 1 <= rank <= 3 or len(kernel) != rank:
        raise InferenceError(f"a kernel of shape {list(kernel)} does not fit an input of shape {list(x.shape)}")
    strides = list(node.get("strides", None) or [1] * rank)
    dilations = list(node.get("dilations", None) or [1] * rank)
    pads = list(node.get("pads", None) or [0] * (2 * rank))
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise InferenceError(f"strides {strides}, dilations {dilations} and pads {pads} do not fit rank {x.rank}")
    if min(*strides, *dilations, *kernel) < 1 or max(*strides, *dilations, *kernel, *map(abs, pads)) > MAX_WINDOW:
        raise InferenceError(f"kernel {list(kernel)}, strides {strides} or dilations {dilations} is out of range")
    before, after, sizes = pads[:rank], pads[rank:], []
    auto_pad = node.get("auto_pad", b"NOTSET")
    for i in range(rank):
        span, size = dilations[i] * (kernel[i] - 1) + 1, x.shape[2 + i]
        if auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
            num_windows = -(-size // strides[i])
            total = max((num_windows - 1) * strides[i] + span - size, 0)
            small, large = total // 2, total - total // 2
            before[i], after[i] = (small, large) if auto_pad == b"SAME_UPPER" else (large, small)
        elif auto_pad == b"VALID":
            before[i] = after[i] = 0
        if min(before[i], after[i]) < 0:
            raise InferenceError(f"negative pads {pads}")
        room = size + before[i] + after[i] - span
        if room < 0 and not (node.get("ceil_mode", 0) and room > -strides[i]):
            padded = f"{size} and pads of {before[i]} and {after[i]}" if before[i] or after[i] else str(size)
            raise InferenceError(f"a window of {span} does not fit spatial axis {i} with a size of {padded}")
        sizes.append(room // strides[i] + 1)
    return strides, dilations, before, after, sizes


def convolution_of(node: Node, x: Value, weights: Value, bias: Value | None) -> tuple[int, list[int], tuple[int, ...]]:
    """The parameters of a convolution: its group; kernel, strides, pads before and dilations, three numbers each; the
    result's shape. Raises `InferenceError` if the operands do not fit."""
    kernel, group = weights.shape[2:], node.get("group", 1)
    if x.rank != weights.rank or list(node.get("kernel_shape", kernel)) != list(kernel):
        raise InferenceError(f"weights {list(weights.shape)} do not fit the input {list(x.shape)} or kernel_shape")
    strides, dilations, before, _, sizes = window_of(node, x, kernel)
    channels, outputs = x.shape[1], weights.shape[0]
    if group < 1 or channels % group or outputs % group or weights.shape[1] != channels // group:
        raise InferenceError(f"weights {list(weights.shape)}, group {group} do not fit {channels} channels")
    if bias is not None and bias.shape != (outputs,):
        raise InferenceError(f"a bias of shape {list(bias.shape)} does not fit {outputs} channels")
    window = [*three(kernel, 1), *three(strides, 1), *three(before, 0), *three(dilations, 1)]
    return group, window, (x.shape[0], outputs, *sizes)


def pool_sizes(
    node: Node,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    sizes: Sequence[int],
) -> list[int]:
    """The result's sizes with ceil_mode. ``sizes``: those without."""
    result_sizes = list(sizes)
    if node.get("ceil_mode", 0):
        for i, stride in enumerate(strides):
            span, size = dilations[i] * (kernel[i] - 1) + 1, x.shape[2 + i]
            result_sizes[i] = -(-(size + before[i] + after[i] - span) // stride) + 1
            if (result_sizes[i] - 1) * stride >= size + before[i]:
                result_sizes[i] -= 1  # a window that would start after the input is dropped
    return result_sizes


@operator("AveragePool", dtypes=FLOATS, attributes=WINDOW | {"ceil_mode": (0, 1), "count_include_pad": (0, 1)})
@operator("MaxPool", dtypes=(*FLOATS, "int8", "uint8"), attributes=WINDOW | {
    "ceil_mode": (0, 1), "storage_order": (0, 1),
})  # fmt: skip
def _pool(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    kernel = list(node.get("kernel_shape", ()))
    strides, dilations, before, after, sizes = window_of(node, x, kernel)
    sizes = pool_sizes(node, x, kernel, strides, dilations, before, after, sizes)
    ints = [*three(kernel, 1), *three(strides, 1), *three(before, 0), *three(dilations, 1)]
    shape = (*x.shape[:2], *sizes)
    plain = x.dtype.kind == "f" and node.num_outputs == 1 and not any(before + after)
    if plain and list(x.shape[2:]) == kernel and set(sizes) == set(dilations) == {1}:  # one window: the whole plane
        operation = "max" if node.op_type == "MaxPool" else "mean"
        return [reduced(context, x, operation, range(2, x.rank), keep=True)]
    if node.op_type == "AveragePool":
        ints += [*three(after, 0), node.get("count_include_pad", 0)]
        return [context.call("average_pool", [x], shape, x.dtype, ints)]
    if node.num_outputs == 1 and x.dtype.kind == "f":
        return [context.call("max_pool", [x], shape, x.dtype, ints)]
    specs = [(shape, x.dtype), (shape, np.dtype(np.int64))][: node.num_outputs]
    return context.call_many("max_pool_any", [x], specs, [*ints, node.get("storage_order", 0)])


@operator("GlobalAveragePool", "GlobalMaxPool", dtypes=FLOATS)
def _global_pool(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if x.rank < 3:
        raise InferenceError(f"expected an input of rank 3 or more, found shape {list(x.shape)}")
    operation = "max" if node.op_type == "GlobalMaxPool" else "mean"
    return [reduced(context, x, operation, range(2, x.rank), keep=True)]


# ---- normalizations


def _batch_norm_refusal(model: Model, view: NodeView) -> str | None:
    if len([output for output in view.outputs if output]) > 1 and not view.attributes.get("training_mode", 0):
        return "BatchNormalization with training outputs"
    if model.opsets.get("", 0) < 7 and not view.attributes.get("is_test", 0):
        return "BatchNormalization by the statistics of the batch (is_test = 0)"
    return None


@operator(
    "BatchNormalization",
    dtypes=F32,
    attributes={
        "epsilon": None,
        "momentum": None,
        "spatial": (1,),
        "is_test": None,
        "training_mode": (0, 1),
        "consumed_inputs": None,
    },
    check=_batch_norm_refusal,
)
def _batch_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """With constant statistics, a product and a sum per channel, which join chains.

    Then factors are finite float32, and offsets at most 2^64: beside a product that overflows, such an offset is lost.
    """
    x, *statistics = (_required(value) for value in inputs)
    is_training = bool(node.get("training_mode", 0))
    channels = x.shape[1] if x.rank > 1 else 1  # by ONNX, an input of rank 1 has one channel
    if any(value.shape != (channels,) for value in statistics) or x.rank < 1 + is_training:
        raise InferenceError(f"expected statistics of {channels} channels for an input of shape {list(x.shape)}")
    epsilon = node.get("epsilon", 1e-5)
    if is_training:
        return _batch_norm_of_batch(context, node, x, *statistics)
    known = [value.data for value in statistics if value.data is not None]
    if len(known) == 4:
        gain, shift, mean, variance = (array.astype(np.float64) for array in known)
        with np.errstate(all="ignore"):
            factor = gain / np.sqrt(variance + epsilon)
            pair = [array.astype(np.float32) for array in (factor, shift - mean * factor)]
        if np.isfinite(pair[0]).all() and (np.abs(pair[1]) <= 2.0**64).all():
            column = (channels, *[1] * (x.rank - 2))
            by, plus = (context.constant(array.reshape(column)) for array in pair)
            return [binary(context, "add", binary(context, "mul", x, by), plus)]
    ints = [x.shape[0], channels, math.prod(x.shape[2:])]
    return [context.call("batch_norm", [x, *statistics], x.shape, x.dtype, ints, [epsilon])]


def _batch_norm_of_batch(
    context: Context, node: Node, x: Value, scale: Value, bias: Value, running_mean: Value, running_variance: Value
) -> list[Value]:
    """Training mode: normalized by the mean and the biased variance of the batch, which the running statistics
    approach by 1 - momentum."""
    axes = [axis for axis in range(x.rank) if axis != 1]
    column = (x.shape[1], *[1] * (x.rank - 2))
    mean = reduced(context, x, "mean", axes, keep=True)
    centered = binary(context, "sub", x, mean)
    variance = reduced(context, binary(context, "mul", centered, centered), "mean", axes, keep=True)
    inverse = unary(context, _RECIPROCAL, _root_of(context, variance, node.get("epsilon", 1e-5)))
    normalized = binary(context, "mul", centered, inverse)
    scaled = binary(context, "mul", normalized, context.reshaped(scale, column))
    results = [binary(context, "add", scaled, context.reshaped(bias, column))]
    momentum = node.get("momentum", 0.9)
    for running, current in [(running_mean, mean), (running_variance, variance)][: node.num_outputs - 1]:
        kept = binary(context, "mul", running, context.scalar(momentum, x.dtype))
        new = binary(context, "mul", context.reshaped(current, running.shape), context.scalar(1 - momentum, x.dtype))
        results.append(binary(context, "add", kept, new))
    return results


@operator("InstanceNormalization", dtypes=F32, attributes={"epsilon": None, "consumed_inputs": None})
def _instance_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, scale, bias = (_required(value) for value in inputs)
    if x.rank < 3 or scale.shape != (x.shape[1],) or bias.shape != (x.shape[1],):
        raise InferenceError(f"scale {list(scale.shape)} or bias {list(bias.shape)} does not fit {list(x.shape)}")
    channels = x.shape[1]
    ints = [x.shape[0], channels, math.prod(x.shape[2:]), channels or 1]  # each channel is a group
    return [context.call("group_norm", [x, scale, bias], x.shape, x.dtype, ints, [node.get("epsilon", 1e-5)])]


@operator("GroupNormalization", dtypes=F32, attributes={"epsilon": None, "num_groups": None, "stash_type": (1,)})
def _group_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """``scale`` and ``bias``: before opset 21 one per group, since then one per channel."""
    x, *factors = (_required(value) for value in inputs)
    groups, channels = node.get("num_groups", 0), x.shape[1] if x.rank > 1 else 0
    if x.rank < 3 or groups < 1 or channels % groups:
        raise InferenceError(f"{groups} groups do not fit an input of shape {list(x.shape)}")
    count = groups if node.opset < 21 else channels
    if any(value.shape != (count,) for value in factors):
        shapes = " and ".join(str(list(value.shape)) for value in factors)
        raise InferenceError(f"scale and bias of shapes {shapes} do not fit {channels} channels in {groups} groups")
    if count != channels:
        factors = [strided(context, value, 0, (groups, channels // groups), (1, 0)) for value in factors]
    ints = [x.shape[0], channels, math.prod(x.shape[2:]), groups]
    return [context.call("group_norm", [x, *factors], x.shape, x.dtype, ints, [node.get("epsilon", 1e-5)])]


@operator(
    "LayerNormalization",
    dtypes=(*FLOATS, "float16", "bfloat16"),
    attributes={"axis": None, "epsilon": None, "stash_type": (1, 10, 11, 16)},
)
def _layer_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Computes in float64 if x or the stash type is float64, else in float32, and rounds once. Mean and InvStdDev have
    the stash type."""
    x, scale, bias = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    for name, value in (("scale", scale), ("bias", bias)):
        if value is not None and (value.dtype != x.dtype or broadcast(x, value) != x.shape):
            raise InferenceError(f"{name} {value.dtype}{list(value.shape)} does not fit {x.dtype}{list(x.shape)}")
    axis, epsilon = axis_of(node.get("axis", -1), x.rank), node.get("epsilon", 1e-5)
    stash = dtype_of(node.get("stash_type", 1))
    assert stash is not None
    wide = np.dtype(np.float64) if np.float64 in (x.dtype, stash) else np.dtype(np.float32)
    wide_x, wide_scale = cast(context, x, wide), _widened(context, scale, wide)
    wide_bias = None if bias is None else _widened(context, bias, wide)
    if node.num_outputs == 1 and wide == np.float32:
        result = _normalized_rows(context, wide_x, wide_scale, wide_bias, axis, epsilon)
        return [cast(context, result, x.dtype)]
    mean = reduced(context, wide_x, "mean", range(axis, x.rank), keep=True)
    centered = binary(context, "sub", wide_x, mean)
    variance = reduced(context, binary(context, "mul", centered, centered), "mean", range(axis, x.rank), keep=True)
    inverse = unary(context, _RECIPROCAL, _root_of(context, variance, epsilon))
    result = binary(context, "mul", binary(context, "mul", centered, inverse), wide_scale)
    if wide_bias is not None:
        result = binary(context, "add", result, wide_bias)
    return [cast(context, result, x.dtype), cast(context, mean, stash), cast(context, inverse, stash)]


def _normalized_rows(context: Context, x: Value, scale: Value, bias: Value | None, axis: int, epsilon: float) -> Value:
    """Layer normalization of float32 by the kernel `layer_norm`, which applies scale and bias along each row.

    The kernel gets scale or bias only if its shape, padded with leading 1s to the rank of ``x``, is 1 before ``axis``
    and equal to that of ``x`` from ``axis`` on. Otherwise separate calls apply it.
    """
    rows, width = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    row = (*[1] * axis, *x.shape[axis:])

    def is_row(value: Value) -> bool:
        return (*[1] * (x.rank - value.rank), *value.shape) == row

    factor = scale if is_row(scale) else context.constant(np.ones(width, np.float32))
    addend = bias if factor is scale and bias is not None and is_row(bias) else None
    result = context.call("layer_norm", [x, factor, addend], x.shape, x.dtype, [rows, width], [epsilon])
    if factor is not scale:
        result = binary(context, "mul", result, scale)
    return result if bias is None or bias is addend else binary(context, "add", result, bias)


def _widened(context: Context, value: Value, dtype: np.dtype[Any]) -> Value:
    """A value in a wider type. A constant is converted once per compiled model."""
    return context.packed(value, dtype.name, lambda: cast(context, value, dtype)) if value.dtype != dtype else value


def _root_of(context: Context, variance: Value, epsilon: float) -> Value:
    return unary(context, _SQRT, binary(context, "add", variance, context.scalar(epsilon, variance.dtype)))


@operator("LRN", dtypes=F32, attributes={"alpha": None, "beta": None, "bias": None, "size": None})
def _lrn(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if x.rank < 2:
        raise InferenceError(f"expected an input of rank 2 or more, found shape {list(x.shape)}")
    ints = [x.shape[0], x.shape[1], math.prod(x.shape[2:]), node.get("size", 0)]
    floats = [node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)]
    return [context.call("lrn", [x], x.shape, x.dtype, ints, floats)]


@operator("Softmax", "LogSoftmax", dtypes=FLOATS, attributes={"axis": None})
def _softmax(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    outer, size, inner = lines_of(node, x)
    return [context.call("softmax", [x], x.shape, x.dtype, [outer, size, inner, int(node.op_type == "LogSoftmax")])]


@operator("LpNormalization", dtypes=FLOATS, attributes={"axis": None, "p": (1, 2)})
def _lp_normalization(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axis = axis_of(node.get("axis", -1), x.rank)
    norm = reduced(context, x, "magnitudes" if node.get("p", 2) == 1 else "root", [axis], keep=True)
    zero = binary(context, "equal", norm, context.scalar(0, x.dtype), np.dtype(np.bool_))
    norm = context.call("where", [zero, context.scalar(1, x.dtype), norm], norm.shape, x.dtype)
    return [binary(context, "div", x, norm)]


@operator("RMSNormalization", dtypes=FLOATS, attributes={"axis": None, "epsilon": None, "stash_type": (1,)})
def _rms_normalization(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, scale = _required(inputs[0]), _required(inputs[1])
    if broadcast(x, scale) != x.shape:
        raise InferenceError(f"scale {list(scale.shape)} does not fit {list(x.shape)}")
    axis = axis_of(node.get("axis", -1), x.rank)
    squares = binary(context, "mul", x, x)
    mean = reduced(context, squares, "mean", range(axis, x.rank), keep=True)
    root = _root_of(context, mean, node.get("epsilon", 1e-5))
    return [binary(context, "mul", binary(context, "div", x, root), scale)]


# ---- reductions

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "product",
    "ReduceSumSquare": "squares",
    "ReduceL1": "magnitudes",
    "ReduceL2": "root",
    "ReduceLogSum": "logarithm",
}
_REDUCTION_CODES = {name: _kernels.constant(f"REDUCE_{name.upper()}") for name in _REDUCTIONS.values()}


def reduced(context: Context, x: Value, operation: str, axes: Sequence[int], keep: bool) -> Value:
    """A reduction over non-negative ``axes``. ``keep``: they stay with size 1."""
    marks = [int(axis in axes) for axis in range(x.rank)]
    shape = [1 if mark else size for mark, size in zip(marks, x.shape, strict=True)]
    if not keep:
        shape = [size for mark, size in zip(marks, shape, strict=True) if not mark]
    return context.call("reduce", [x], shape, x.dtype, [_REDUCTION_CODES[operation], x.rank, *marks])


def _reduction_axes(context: Context, node: Node, inputs: Sequence[Value | None], x: Value) -> list[int] | None:
    """The axes to reduce; None if the operator returns its operand element by element."""
    axes = integers(context, node, inputs, 1, "axes")
    if axes:
        return axes_of(axes, x.rank)
    return None if node.get("noop_with_empty_axes", 0) else list(range(x.rank))


_REDUCTION_ATTRIBUTES = {"axes": None, "keepdims": (0, 1), "noop_with_empty_axes": (0, 1)}


@operator(
    "ReduceSum", "ReduceMean", "ReduceProd", "ReduceSumSquare", "ReduceL1",
    dtypes=((*FLOATS, "int32", "int64"), ("int64",)),
    attributes=_REDUCTION_ATTRIBUTES,
)  # fmt: skip
@operator("ReduceL2", "ReduceLogSum", dtypes=(FLOATS, ("int64",)), attributes=_REDUCTION_ATTRIBUTES)
@operator(
    "ReduceMax", "ReduceMin",
    dtypes=((*FLOATS, "int32", "int64", "int8", "uint8", "bool"), ("int64",)),
    attributes=_REDUCTION_ATTRIBUTES,
)  # fmt: skip
def _reduce(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if x.dtype == np.bool_:
        (result,) = _reduce(context, node, [cast(context, x, np.dtype(np.uint8)), *inputs[1:]])
        return [cast(context, result, x.dtype)]
    axes = _reduction_axes(context, node, inputs, x)
    if axes is None:
        return (
            [x]
            if node.op_type not in ("ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum")
            else [reduced(context, x, _REDUCTIONS[node.op_type], (), keep=True)]
        )
    return [reduced(context, x, _REDUCTIONS[node.op_type], axes, bool(node.get("keepdims", 1)))]


@operator("ReduceLogSumExp", dtypes=(FLOATS, ("int64",)), attributes=_REDUCTION_ATTRIBUTES)
def _reduce_log_sum_exp(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axes = _reduction_axes(context, node, inputs, x)
    if axes is None:
        return [x]
    # The maximum is subtracted first, so that exp cannot overflow. It is clipped, because -inf - -inf is NaN.
    top = reduced(context, x, "max", axes, keep=True)
    finite = np.finfo(x.dtype)
    top = unary(context, _CLIP, top, float(finite.min), float(finite.max))
    total = reduced(context, unary(context, _EXP, binary(context, "sub", x, top)), "sum", axes, keep=True)
    result = binary(context, "add", unary(context, _LOG, total), top)
    if not node.get("keepdims", 1):
        result = context.reshaped(result, [size for axis, size in enumerate(x.shape) if axis not in axes])
    return [result]


@operator(
    "ArgMax", "ArgMin",
    dtypes=(*FLOATS, "int32", "int64", "int8", "uint8"),
    attributes={"axis": None, "keepdims": (0, 1), "select_last_index": (0, 1)},
    result="int64",
)  # fmt: skip
def _arg_extreme(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axis = axis_of(node.get("axis", 0), x.rank)
    outer, size, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    if size == 0:
        raise InferenceError(f"axis {axis} of shape {list(x.shape)} is empty")
    shape = (*x.shape[:axis], *((1,) if node.get("keepdims", 1) else ()), *x.shape[axis + 1 :])
    ints = [outer, size, inner, int(node.op_type == "ArgMin"), int(node.get("select_last_index", 0))]
    return [context.call("arg_extreme", [x], shape, np.dtype(np.int64), ints)]
