"""Operators of onnxruntime that its optimizers and quantizers write (domain com.microsoft), as calls of the kernels for
ONNX's operators.

Fusions then apply to them as to the nodes they were fused from. Their definitions are onnxruntime's documentation of
contrib operators and, where it is silent, the results of onnxruntime. `SimplifiedLayerNormalization` belongs to
onnxruntime too, although models have it in ONNX's own domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import InferenceError
from ..registry import F32, FLOATS, Contradiction, Lowering, Node, Result, contradicting, operator
from ..values import Context, Value
from .convolution import _conv
from .elementwise import _UNARY, _optional, _required, binary, broadcast, cast, unary, unary_code
from .fitting import (
    axis_trouble,
    broadcast_trouble,
    embedding_trouble,
    epsilon_trouble,
    heads_trouble,
    known_shape,
    product_trouble,
    shapes_trouble,
    vectors_trouble,
    window_trouble,
)
from .movement import axis_of, strided, strides_of, transposed
from .network import WINDOW, _gemm, matrix_product, packed_b, products_of, reduced

if TYPE_CHECKING:
    from ....model.model import Model, NodeView
    from ..registry import ExaminedNode

_GELU_ERF, _GELU_TANH, _SWISH, _RELU, _LEAKY_RELU, _SIGMOID, _TANH, _CLIP, _HARD_SIGMOID, _SQRT, _RECIPROCAL = map(
    unary_code,
    (
        *("GELU_ERF", "GELU_TANH", "SWISH", "RELU", "LEAKY_RELU", "SIGMOID", "TANH", "CLIP", "HARD_SIGMOID"),
        *("SQRT", "RECIPROCAL"),
    ),
)
_F32, _INT32, _INT64, _BOOL = np.dtype("float32"), np.dtype("int32"), np.dtype("int64"), np.dtype("bool")
_IDS = ("int32", "int64")

Check = Callable[["Model", "ExaminedNode"], str | None]


def _contrib(
    *names: str,
    dtypes: Collection[str] | tuple[Collection[str], ...],
    attributes: Mapping[str, Collection[Any] | None] | None = None,
    required: Collection[int] = (0,),
    no_inputs: Mapping[int, str] | None = None,
    no_outputs: Mapping[int, str] | None = None,
    check: Check | None = None,
    result: Result = 0,
) -> Callable[[Lowering], Lowering]:
    """Register the lowering of operators of com.microsoft.

    ``required``: positions of inputs that a node must have. ``no_inputs``, ``no_outputs``: position -> name of optional
    inputs and outputs that are not supported."""

    def refusal(model: Model, view: ExaminedNode) -> str | None:
        for position in required:
            if not _is_named(view.inputs, position):
                return f"{view.op_type} without its input {position}"
        for unsupported, values in ((no_inputs, view.inputs), (no_outputs, view.outputs)):
            for position, name in (unsupported or {}).items():
                if _is_named(values, position):
                    return f"{view.op_type} with {name}"
        return None if check is None else check(model, view)

    return operator(
        *(f"com.microsoft::{name}" for name in names),
        dtypes=dtypes,
        attributes=attributes,
        check=refusal,
        result=result,
    )


def _is_named(values: Sequence[str], position: int) -> bool:
    return position < len(values) and values[position] != ""


def _vector(name: str, value: Value | None, size: int) -> Value | None:
    """An optional operand that must be a vector of ``size``."""
    if value is not None and value.shape != (size,):
        raise InferenceError(f"{name} of shape {list(value.shape)} does not fit {size} columns")
    return value


# ---- activations


@_contrib("Gelu", dtypes=FLOATS)
def _gelu(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [unary(context, _GELU_ERF, _required(inputs[0]))]


@_contrib("QuickGelu", dtypes=FLOATS, attributes={"alpha": None})
def _quick_gelu(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [unary(context, _SWISH, _required(inputs[0]), node.get("alpha", 1.702))]


def _with_bias(context: Context, x: Value, bias: Value | None) -> Value:
    if bias is None:
        return x
    if not x.rank:
        raise InferenceError("expected an input of rank 1 or more")
    _vector("the bias", bias, x.shape[-1])
    return binary(context, "add", x, bias)


@contradicting
def _type_trouble(view: ExaminedNode) -> str | None:
    """Why the first two operands do not have the same element type."""
    first, second = (view.type_of_input(i) if _is_named(view.inputs, i) else None for i in range(2))
    if first is None or second is None or first == second:
        return None
    return f"{view.op_type} with inputs of types {first} and {second}; expected the same"


def _bias_refusal(model: Model, view: ExaminedNode) -> str | None:
    return _type_trouble(view) or vectors_trouble(model, view, 0, bias=1)


@_contrib("BiasGelu", dtypes=FLOATS, required=(0, 1), check=_bias_refusal)
@_contrib("FastGelu", dtypes=FLOATS, check=_bias_refusal)
def _bias_gelu(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    code = _GELU_TANH if node.op_type.endswith("FastGelu") else _GELU_ERF
    return [unary(context, code, _with_bias(context, _required(inputs[0]), _optional(inputs, 1)))]


# ---- products and convolutions


def _fused_matmul_refusal(model: Model, view: ExaminedNode) -> str | None:
    get = view.attributes.get
    trouble = _type_trouble(view)
    if trouble or get("transBatchA", 0) or get("transBatchB", 0):
        return trouble
    return product_trouble(model, view, 0, 1, trans_a=get("transA", 0) == 1, trans_b=get("transB", 0) == 1)


@_contrib(
    "FusedMatMul",
    dtypes=FLOATS,
    attributes={"alpha": None, **dict.fromkeys(("transA", "transB", "transBatchA", "transBatchB"), (0, 1))},
    required=(0, 1),
    check=_fused_matmul_refusal,
)
def _fused_matmul(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """alpha * A B. Vectors are not transposed. transBatchA, transBatchB: the first axis holds the rows of the matrices,
    and the batch follows.

    A constant matrix B is packed as it is. Other transposes are copies and alpha is a separate product, because
    attention is recognized in this form."""
    a, b = _required(inputs[0]), _required(inputs[1])
    alpha = float(node.get("alpha", 1.0))
    if a.dtype != b.dtype:
        raise InferenceError(f"cannot multiply {a.dtype}{list(a.shape)} by {b.dtype}{list(b.shape)}")
    batches = bool(node.get("transBatchA", 0)), bool(node.get("transBatchB", 0))
    if any(batches):
        if a.rank != b.rank or a.rank < 3:
            raise InferenceError(
                f"transBatchA and transBatchB require operands of the same rank of at least 3, found {list(a.shape)} "
                f"and {list(b.shape)}"
            )
        a, b = (_rows_before_last(context, x) if moved else x for x, moved in zip((a, b), batches, strict=True))
    if node.get("transA", 0) and a.rank > 1:
        a = _last_two_swapped(context, a)
    trans_b = bool(node.get("transB", 0)) and b.rank > 1
    if trans_b and b.rank == 2 and b.data is not None and b.dtype == np.float32 and a.data is None:
        p = products_of(a, Value(b.dtype, b.shape[::-1]))
        operand = packed_b(context, b, 1, p.k, p.n, True)
        ints = [p.m, p.n, p.k, 0, 0, 1, 0, 0, 0, len(p.batch), *p.batch, *p.steps(p.m * p.k, 0)]
        return [context.call("matmul", [a, operand, None, None], p.shape, a.dtype, ints, [alpha, 0.0, 0.0, 0.0])]
    product = matrix_product(context, a, _last_two_swapped(context, b) if trans_b else b)
    return [product if alpha == 1.0 else binary(context, "mul", product, context.scalar(alpha, a.dtype))]


def _last_two_swapped(context: Context, x: Value) -> Value:
    return transposed(context, x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _rows_before_last(context: Context, x: Value) -> Value:
    return transposed(context, x, (*range(1, x.rank - 1), 0, x.rank - 1))


_GEMM_ACTIVATIONS = (
    *("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh"),
    "ThresholdedRelu",
)


def _fused_gemm_refusal(model: Model, view: NodeView) -> str | None:
    given = view.attributes.get("activation", b"")
    activation = given.decode(errors="replace") if isinstance(given, bytes) else ""
    if activation not in _GEMM_ACTIVATIONS:
        return Contradiction(f"FusedGemm with activation = {given!r}; expected {', '.join(_GEMM_ACTIVATIONS)}")
    for name, _ in _UNARY[activation][2]:
        if f"activation_{name}" not in view.attributes:
            return f"FusedGemm without the attribute activation_{name} of {activation}"
    return None


@_contrib(
    "FusedGemm",
    dtypes=F32,
    attributes={"alpha": None, "beta": None, "transA": (0, 1), "transB": (0, 1)}
    | dict.fromkeys(("activation", "activation_alpha", "activation_beta", "activation_gamma")),
    required=(0, 1),
    check=_fused_gemm_refusal,
)
def _fused_gemm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    (product,) = _gemm(context, node, inputs)
    code, _, attributes = _UNARY[node.get("activation", b"").decode()]
    return [unary(context, code, product, *(float(node.get(f"activation_{name}", 0.0)) for name, _ in attributes))]


# Activation of FusedConv -> code, and the number of activation_params, which are the kernel's parameters.
_CONV_ACTIVATIONS = {
    b"Relu": (_RELU, 0),
    b"Tanh": (_TANH, 0),
    b"Sigmoid": (_SIGMOID, 0),
    b"LeakyRelu": (_LEAKY_RELU, 1),
    b"Clip": (_CLIP, 2),
    b"HardSigmoid": (_HARD_SIGMOID, 2),
}


def _fused_conv_refusal(model: Model, view: NodeView) -> str | None:
    activation, weights = view.attributes.get("activation", b""), known_shape(model, view, 1)
    maps = weights[0] if weights and isinstance(weights[0], int) else None
    trouble = window_trouble(model, view, 0, 1) or vectors_trouble(model, view, None, width=maps, B=2)
    if trouble or not activation:
        return trouble
    if activation not in _CONV_ACTIVATIONS:
        names = ", ".join(name.decode() for name in _CONV_ACTIVATIONS)
        return Contradiction(f"FusedConv with activation = {activation!r}; expected {names}")
    given, wanted = len(view.attributes.get("activation_params", ())), _CONV_ACTIVATIONS[activation][1]
    if given != wanted:
        return Contradiction(f"FusedConv with {given} activation_params for {activation!r}; expected {wanted}")
    return None


@_contrib(
    "FusedConv",
    dtypes=F32,
    attributes=WINDOW | {"group": None, "activation": None, "activation_params": None},
    required=(0, 1),
    check=_fused_conv_refusal,
)
def _fused_conv(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    (made,) = _conv(context, node, inputs[:3])
    addend, activation = _optional(inputs, 3), node.get("activation", b"")
    if addend is not None:
        if addend.shape != made.shape:
            raise InferenceError(f"a sum of shape {list(addend.shape)} does not fit the result {list(made.shape)}")
        made = binary(context, "add", made, addend)
    if activation:
        made = unary(context, _CONV_ACTIVATIONS[activation][0], made, *node.get("activation_params", ()))
    return [made]


# ---- normalizations


def _normalized(context: Context, x: Value, scale: Value, bias: Value | None, epsilon: float, *, root: bool) -> Value:
    """Layer normalization over the last axis. ``root``: by the root of the mean square, without a mean."""
    if not x.rank:
        raise InferenceError("expected an input of rank 1 or more")
    width = x.shape[-1]
    _vector("gamma", scale, width)
    _vector("beta", bias, width)
    if any(value is not None and value.dtype != x.dtype for value in (scale, bias)):
        raise InferenceError(f"expected gamma and beta of type {x.dtype}")
    ints = [math.prod(x.shape[:-1]), width, int(root)]
    return context.call("layer_norm", [x, scale, bias], x.shape, x.dtype, ints, [epsilon])


def _added(context: Context, x: Value, skip: Value, bias: Value | None) -> Value:
    """x + skip + bias. ``skip`` has the shape of x, which may lack a batch or have one of size 1."""
    if x.rank not in (2, 3) or skip.rank not in (2, 3) or skip.rank > x.rank or skip.shape[-2:] != x.shape[-2:]:
        raise InferenceError(f"a skip of shape {list(skip.shape)} does not fit an input of shape {list(x.shape)}")
    if broadcast(x, skip) != x.shape:
        raise InferenceError(f"a skip of shape {list(skip.shape)} does not fit an input of shape {list(x.shape)}")
    return _with_bias(context, binary(context, "add", x, skip), bias)


def _skip_refusal(model: Model, view: NodeView) -> str | None:
    vectors = {"gamma": 2, "bias": 3} if "Simplified" in view.op_type else {"gamma": 2, "beta": 3, "bias": 4}
    return epsilon_trouble(view) or vectors_trouble(model, view, 0, **vectors) or broadcast_trouble(model, view, 0, 1)


_STATISTICS = {1: "its mean as an output", 2: "its inv_std_var as an output"}


@_contrib(
    "SkipLayerNormalization",
    dtypes=F32,
    attributes={"epsilon": None},
    required=(0, 1, 2),
    no_outputs=_STATISTICS,
    check=_skip_refusal,
)
def _skip_layer_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, skip, gamma = (_required(value) for value in inputs[:3])
    total = _added(context, x, skip, _optional(inputs, 4))
    made = _normalized(context, total, gamma, _optional(inputs, 3), node.get("epsilon", 1e-12), root=False)
    return [made, made, made, total]


@_contrib(
    "SkipSimplifiedLayerNormalization",
    dtypes=F32,
    attributes={"epsilon": None},
    required=(0, 1, 2),
    no_outputs=_STATISTICS,
    check=_skip_refusal,
)
def _skip_simplified_layer_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, skip, gamma = (_required(value) for value in inputs[:3])
    total = _added(context, x, skip, _optional(inputs, 3))
    made = _normalized(context, total, gamma, None, node.get("epsilon", 1e-12), root=True)
    return [made, made, made, total]


def _simplified_refusal(model: Model, view: NodeView) -> str | None:
    if _is_named(view.outputs, 1):
        return "SimplifiedLayerNormalization with its inv_std_var as an output"
    if not all(_is_named(view.inputs, position) for position in (0, 1)):
        return "SimplifiedLayerNormalization without its input or scale"
    axis, x, scale = view.attributes.get("axis", -1), known_shape(model, view, 0), known_shape(model, view, 1)
    trouble = axis_trouble(model, view, axis, 0)
    if trouble or x is None or scale is None:
        return trouble
    pairs = list(zip(reversed(x), reversed(scale), strict=False))
    if len(scale) > len(x) or any(isinstance(a, int) and isinstance(b, int) and b not in (1, a) for a, b in pairs):
        return Contradiction(f"SimplifiedLayerNormalization with scale of shape {list(scale)}; x is {list(x)}")
    if len(scale) != len(x[axis:]) or any(isinstance(a, int) and b == 1 != a for a, b in pairs):
        return f"SimplifiedLayerNormalization with a scale of shape {list(scale)} that is broadcast to {list(x[axis:])}"
    return None


@operator(
    "SimplifiedLayerNormalization",
    dtypes=F32,
    attributes={"axis": None, "epsilon": None, "stash_type": (1,)},
    check=_simplified_refusal,
    result=1,
)
def _simplified_layer_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Over all axes from ``axis`` on. The scale has their shape."""
    x, scale = _required(inputs[0]), _required(inputs[1])
    axis = axis_of(node.get("axis", -1), x.rank)
    if scale.shape != x.shape[axis:]:
        raise InferenceError(f"scale {list(scale.shape)} does not fit axes {axis} on of {list(x.shape)}")
    rows = context.reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    factors = scale if scale.rank == 1 else context.reshaped(scale, (scale.size,))
    made = _normalized(context, rows, factors, None, node.get("epsilon", 1e-5), root=True)
    return [context.reshaped(made, x.shape)]


_EMBEDDINGS = (*F32, "float16")


def embedding_refusal(model: Model, view: NodeView) -> str | None:
    if _is_named(view.inputs, 1) != _is_named(view.inputs, 4):
        return f"{view.op_type} with only one of segment_ids and segment_embedding"
    return epsilon_trouble(view) or embedding_trouble(model, view)


@_contrib(
    "EmbedLayerNormalization",
    dtypes=(("int32",), ("int32",), *(_EMBEDDINGS,) * 5, ("int32",), ("int32",)),
    attributes={"epsilon": None, "mask_index_type": (0,)},
    required=(0, 2, 3, 5, 6),
    check=embedding_refusal,
    result=2,
)
def _embed_layer_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    dtype = _required(inputs[2]).dtype
    made = embedded(context, node, inputs[:8], _optional(inputs, 8), lambda value, _: cast(context, value, _F32))
    return [each if each.dtype == _INT32 else cast(context, each, dtype) for each in made]


def embedded(
    context: Context,
    node: Node,
    inputs: Sequence[Value | None],
    positions: Value | None,
    widen: Callable[[Value, int], Value],
) -> list[Value]:
    """The results of EmbedLayerNormalization in float32. ``widen``: a value of the type of the embeddings as float32;
    it also takes the input's position."""
    ids, segments, words, places, segment_table, gamma, beta, mask = (_optional(inputs, i) for i in range(8))
    assert ids is not None
    assert words is not None
    assert places is not None
    if ids.rank != 2 or words.rank != 2 or places.rank != 2:
        raise InferenceError(f"input_ids {list(ids.shape)} or an embedding is not of rank 2")
    batch, length = ids.shape
    for name, value in (("segment_ids", segments), ("mask", mask)):
        if value is not None and value.shape != ids.shape:
            raise InferenceError(f"{name} {list(value.shape)} do not fit input_ids {list(ids.shape)}")
    for table in (places, segment_table, gamma, beta):
        if table is not None and table.dtype != words.dtype:
            raise InferenceError(f"expected operands of the same type, found {words.dtype} and {table.dtype}")
    width = words.shape[1]
    if places.shape[1] != width or (segment_table is not None and segment_table.shape[1:] != (width,)):
        raise InferenceError(f"embeddings do not all have {width} columns")

    def looked_up(position: int, table: Value, rows: Value) -> Value:
        # As in onnxruntime, negative numbers are errors: the kernel would count them from the end.
        is_negative = binary(context, "less", rows, context.scalar(0, rows.dtype), _BOOL)
        outside = context.scalar(np.iinfo(rows.dtype).max, rows.dtype)
        rows = context.call("where", [is_negative, outside, rows], rows.shape, rows.dtype)
        return widen(context.call("gather", [table, rows], (*rows.shape, width), table.dtype, [0]), position)

    if positions is None:
        positions = context.counting(length)
    elif positions.shape not in ((batch, length), (1, length)):
        raise InferenceError(f"position_ids {list(positions.shape)} do not fit input_ids {list(ids.shape)}")
    total = binary(context, "add", looked_up(2, words, ids), looked_up(3, places, positions))
    if segment_table is not None:
        total = binary(context, "add", total, looked_up(4, segment_table, _required(segments)))
    scale, shift = widen(_required(gamma), 5), None if beta is None else widen(beta, 6)
    made = _normalized(context, total, scale, shift, node.get("epsilon", 1e-12), root=False)
    if node.num_outputs < 2:
        return [made]
    if mask is None:
        counts = context.table(_zeros, (batch,), (batch,))
    else:  # the number of ones in each row
        ones = cast(context, binary(context, "equal", mask, context.scalar(1, _INT32), _BOOL), _INT32)
        counts = reduced(context, ones, "sum", (1,), keep=False)
    return [made, counts, total]


def _zeros(count: int) -> np.ndarray[Any, Any]:
    return np.zeros(count, np.int32)


# ---- attention


def _heads(context: Context, x: Value, count: int, bias: Value | None = None) -> Value:
    """[batch, length, count * size] as [batch, count, length, size], with a bias added before."""
    if x.rank != 3 or count < 1 or x.shape[2] % count:
        raise InferenceError(f"shape {list(x.shape)} does not fit {count} heads")
    batch, length, width = x.shape
    split = context.reshaped(_with_bias(context, x, bias), (batch, length, count, width // count))
    return transposed(context, split, (0, 2, 1, 3))


def _part(context: Context, x: Value, start: int, size: int) -> Value:
    """Columns ``start`` to ``start + size`` of the last axis."""
    return strided(context, x, start, (*x.shape[:-1], size), strides_of(x.shape))


def _sequence(context: Context, past: Value | None, new: Value) -> Value:
    """``past`` and then ``new`` along the axis of positions, of [batch, heads, positions, size]."""
    if past is None:
        return new
    fits = past.rank == 4 and past.dtype == new.dtype
    if not fits or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise InferenceError(f"a past of shape {list(past.shape)} does not fit {list(new.shape)}")
    shape = (*past.shape[:2], past.shape[2] + new.shape[2], past.shape[3])
    return context.call("concat", [past, new], shape, new.dtype, [2])


def _padding(context: Context, mask: Value, batch: int, queries: int, keys: int, filtered: float) -> Value:
    """The addend of a mask of int32: 0 for keys that are attended to, ``filtered`` for the others.

    The mask is [batch], the number of keys; [2 * batch], the ends and then the starts of the keys; [batch, keys]; or
    [batch, queries, keys]. Elements above 0 mark keys that are attended to."""
    if mask.shape == (batch, keys):
        mask = context.reshaped(mask, (batch, 1, 1, keys))
        kept = binary(context, "greater", mask, context.scalar(0, _INT32), _BOOL)
    elif mask.shape == (batch, queries, keys):
        mask = context.reshaped(mask, (batch, 1, queries, keys))
        kept = binary(context, "greater", mask, context.scalar(0, _INT32), _BOOL)
    elif mask.rank == 1 and mask.shape in ((batch,), (2 * batch,)):
        places = cast(context, context.counting(keys), _INT32)
        column = (batch, 1, 1, 1)
        ends = mask if mask.shape == (batch,) else strided(context, mask, 0, (batch,), (1,))
        kept = binary(context, "less", places, context.reshaped(ends, column), _BOOL)
        if mask.shape != (batch,):
            starts = context.reshaped(strided(context, mask, batch, (batch,), (1,)), column)
            kept = binary(context, "and", kept, binary(context, "greater_or_equal", places, starts, _BOOL), _BOOL)
    else:
        raise InferenceError(
            f"a mask of shape {list(mask.shape)} is not supported for {batch} times {queries} queries and {keys} keys"
        )
    operands = [kept, context.scalar(0, _F32), context.scalar(filtered, _F32)]
    return context.call("where", operands, kept.shape, _F32)


def _causal(queries: int, keys: int, past: int) -> np.ndarray[Any, Any]:
    """0 for keys up to each query, -inf after it. The first query is at position ``past``."""
    after = np.arange(keys) > np.arange(queries).reshape(-1, 1) + past
    return np.where(after, np.float32(-np.inf), np.float32(0))


def _attended(
    context: Context,
    node: Node,
    query: Value,
    key: Value,
    value: Value,
    addends: Sequence[Value],
    past: Value | None,
) -> Value:
    """softmax(scale Q K' + addends) V of [batch, heads, positions, size], as [batch, positions, heads * size]."""
    batch, heads, queries, size = query.shape
    keys = key.shape[2]
    if key.shape != (batch, heads, keys, size) or value.shape[:3] != (batch, heads, keys):
        shapes = " and ".join(str(list(operand.shape)) for operand in (query, key, value))
        raise InferenceError(f"queries, keys and values of shapes {shapes} do not fit")
    scale = node.get("scale", 0.0) or (1 / math.sqrt(size) if size else 1.0)
    scores = matrix_product(context, query, transposed(context, key, (0, 1, 3, 2)))
    full = scores.shape
    scores = binary(context, "mul", scores, context.scalar(scale, _F32))
    if node.get("unidirectional", 0):
        before = 0 if past is None else past.shape[-2]
        if keys != before + queries:  # onnxruntime then lets the last query attend to all keys
            raise InferenceError(f"unidirectional attention of {queries} queries at {before} to {keys} keys")
        addends = [*addends, context.table(_causal, (queries, keys, before), (queries, keys))]
    for addend in addends:
        if addend.rank > 4 or broadcast(scores, addend) != full:
            raise InferenceError(f"a bias of shape {list(addend.shape)} does not fit scores of shape {list(full)}")
        scores = binary(context, "add", scores, addend)
    weights = context.call("softmax", [scores], full, _F32, [batch * heads * queries, keys, 1, 0])
    mixed = transposed(context, matrix_product(context, weights, value), (0, 2, 1, 3))
    return context.reshaped(mixed, (batch, queries, heads * value.shape[3]))


def _addends(
    context: Context, node: Node, query: Value, keys: int, mask: Value | None, bias: Value | None
) -> list[Value]:
    batch, _, queries, _ = query.shape
    addends = []
    if mask is not None:
        addends.append(_padding(context, mask, batch, queries, keys, node.get("mask_filter_value", -10000.0)))
    if bias is not None:
        if bias.rank != 4 or bias.shape[2:] != (queries, keys):
            raise InferenceError(f"attention_bias {list(bias.shape)} does not fit {queries} queries and {keys} keys")
        addends.append(bias)
    return addends


def attention_refusal(model: Model, view: NodeView) -> str | None:
    heads = view.attributes.get("num_heads", 0)
    if heads < 1:
        return Contradiction(f"{view.op_type} with num_heads = {heads}; expected 1 or more")
    if view.op_type == "Attention" and len(view.attributes.get("qkv_hidden_sizes", (1, 1, 1))) != 3:
        return "Attention whose qkv_hidden_sizes are not three numbers"
    past = {"Attention": 4, "QAttention": 8}.get(view.op_type, 6)
    if _is_named(view.inputs, past) and not _is_named(view.outputs, 1):
        return f"{view.op_type} with a past but without present outputs"
    if view.op_type == "MultiHeadAttention" and _is_named(view.inputs, 6) != _is_named(view.inputs, 7):
        return "MultiHeadAttention with only one of past_key and past_value"
    if view.op_type == "MultiHeadAttention":
        return heads_trouble(model, view, 0, heads) or _operands_trouble(model, view, heads)
    return _projection_trouble(model, view)


def _operands_trouble(model: Model, view: NodeView, heads: int) -> str | None:
    """Why keys, values, a bias and a past do not fit the queries of MultiHeadAttention."""
    shapes = [known_shape(model, view, position) for position in range(3)]
    sizes: dict[str, int] = {}
    if any(shape is None or len(shape) != 3 for shape in shapes):  # packed, or divided into heads
        return vectors_trouble(model, view, None, bias=3)
    trouble = shapes_trouble(
        *(model, view, sizes),
        query=(0, ("batch", "queries", "columns")),
        key=(1, ("batch", "keys", "columns")),
        value=(2, ("batch", "keys", "value_columns")),
    )
    columns, value_columns = sizes.get("columns"), sizes.get("value_columns")
    if trouble or columns is None or value_columns is None:
        return trouble or vectors_trouble(model, view, None, bias=3)
    if value_columns % heads:
        return Contradiction(f"{view.op_type} with num_heads = {heads} and values of {value_columns} columns")
    return vectors_trouble(model, view, None, width=2 * columns + value_columns, bias=3) or shapes_trouble(
        *(model, view, sizes),
        past_key=(6, ("batch", heads, "past", columns // heads)),
        past_value=(7, ("batch", heads, "past", value_columns // heads)),
    )


@contradicting
def _projection_trouble(model: Model, view: NodeView) -> str | None:
    """Why the weights of Attention do not fit its input, its bias or its heads."""
    trouble = product_trouble(model, view, 0, 1, ranks=(3, 2))
    weights = known_shape(model, view, 1)
    total = weights[1] if weights is not None and len(weights) == 2 else None
    if trouble or not isinstance(total, int):
        return trouble
    heads, sizes = view.attributes["num_heads"], list(view.attributes.get("qkv_hidden_sizes", ()) or (total // 3,) * 3)
    if sum(sizes) != total or sizes[0] != sizes[1] or any(size < 1 or size % heads for size in sizes):
        return f"{view.op_type} with weights of {total} columns, num_heads = {heads} and sizes {sizes}"
    mask, past = (3, 4) if view.op_type == "Attention" else (5, 8)
    keys = None if _is_named(view.inputs, past) else "positions"
    shape = known_shape(model, view, mask) or ()
    axes = {2: ("batch", keys), 3: ("batch", "positions", keys)}.get(len(shape))
    # onnxruntime ignores masks of one column.
    masks = {} if axes is None or (len(shape) == 2 and shape[1] == 1) else {"mask_index": (mask, axes)}
    return vectors_trouble(model, view, None, width=total, bias=2) or shapes_trouble(
        model, view, {}, input=(0, ("batch", "positions", None)), **masks
    )


@_contrib(
    "Attention",
    dtypes=(F32, F32, F32, ("int32",), F32),
    attributes={
        "num_heads": None,
        "unidirectional": (0, 1),
        "scale": None,
        "mask_filter_value": None,
        "qkv_hidden_sizes": None,
        "do_rotary": (0,),
        "rotary_embedding_dim": (0,),
        "past_present_share_buffer": (0,),
    },
    required=(0, 1),
    no_inputs={6: "past_sequence_length"},
    check=attention_refusal,
)
def _attention(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, weights = _required(inputs[0]), _required(inputs[1])
    bias, mask, past, attention_bias = (_optional(inputs, i) for i in range(2, 6))
    if x.rank != 3 or weights.rank != 2:
        raise InferenceError(f"an input of shape {list(x.shape)} does not fit weights of shape {list(weights.shape)}")
    product = _with_bias(context, matrix_product(context, x, weights), bias)
    return attended_product(context, node, product, mask, past, attention_bias)


def attended_product(
    context: Context, node: Node, product: Value, mask: Value | None, past: Value | None, attention_bias: Value | None
) -> list[Value]:
    """The results of Attention. ``product``: queries, keys and values, [batch, positions, their sizes]."""
    total, heads = product.shape[2], node.get("num_heads", 0)
    sizes = list(node.get("qkv_hidden_sizes", ()) or (total // 3,) * 3)
    if sum(sizes) != total or sizes[0] != sizes[1] or any(size < 1 or size % heads for size in sizes):
        raise InferenceError(f"weights of {total} columns do not fit {heads} heads and sizes {sizes}")
    query, key, value = (_heads(context, _part(context, product, sum(sizes[:i]), sizes[i]), heads) for i in range(3))
    present: list[Value] = []
    if past is not None:
        if past.rank != 5 or past.shape[0] != 2:
            raise InferenceError(f"expected a past of [2, batch, heads, positions, size], found {list(past.shape)}")
        steps = strides_of(past.shape)
        old = [strided(context, past, i * steps[0], past.shape[1:], steps[1:]) for i in range(2)]
        key, value = _sequence(context, old[0], key), _sequence(context, old[1], value)
    if node.num_outputs > 1:
        if key.shape != value.shape:
            raise InferenceError(f"keys and values of shapes {list(key.shape)} and {list(value.shape)} do not stack")
        parts = [context.reshaped(each, (1, *each.shape)) for each in (key, value)]
        present = [context.call("concat", parts, (2, *key.shape), _F32, [0])]
    addends = _addends(context, node, query, key.shape[2], mask, attention_bias)
    return [_attended(context, node, query, key, value, addends, past), *present]


@_contrib(
    "MultiHeadAttention",
    dtypes=(F32, F32, F32, F32, ("int32",), F32),
    attributes={"num_heads": None, "unidirectional": (0, 1), "scale": None, "mask_filter_value": None},
    no_inputs={8: "past_sequence_length", 9: "cache_indirection"},
    no_outputs={3: "its scores as an output"},
    check=attention_refusal,
)
def _multi_head_attention(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Keys and values are [batch, positions, heads * size], or [batch, heads, positions, size] of another sequence,
    which include their part of the bias already.
    Packed: keys and values [batch, positions, heads, 2, size], or all three [batch, positions, heads, 3, size]."""
    x, heads = _required(inputs[0]), node.get("num_heads", 0)
    keys, values, bias, mask, attention_bias, past_key, past_value = (_optional(inputs, i) for i in range(1, 8))
    packed = x if keys is None else keys if values is None else None
    if packed is not None and (packed.rank != 5 or packed.shape[2:4] != (heads, 3 if packed is x else 2)):
        raise InferenceError(f"packed keys and values of shape {list(packed.shape)} do not fit {heads} heads")
    if packed is not None and bias is not None:
        raise InferenceError("a bias of packed keys and values is not supported")
    if packed is not None:
        turned = transposed(context, packed, (3, 0, 2, 1, 4))
        steps = strides_of(turned.shape)
        parts = [strided(context, turned, i * steps[0], turned.shape[1:], steps[1:]) for i in range(turned.shape[0])]
        query = parts[0] if packed is x else _heads(context, x, heads)
        key, value = parts[-2:]
    else:
        assert keys is not None
        assert values is not None
        if keys.rank == 4 and past_key is not None:
            raise InferenceError("a past of keys that are already divided into heads is not supported")
        if x.rank != 3 or keys.rank != values.rank:
            shapes = " and ".join(str(list(operand.shape)) for operand in (x, keys, values))
            raise InferenceError(f"queries, keys and values of shapes {shapes} do not fit")
        biases: list[Value | None] = [None, None, None]
        if bias is not None:
            sizes = [x.shape[2], *(each.shape[-1] * (heads if each.rank == 4 else 1) for each in (keys, values))]
            _vector("the bias", bias, sum(sizes))
            biases = [strided(context, bias, sum(sizes[:i]), (sizes[i],), (1,)) for i in range(3)]
        query = _heads(context, x, heads, biases[0])
        key, value = (
            operand if operand.rank == 4 else _heads(context, operand, heads, own)
            for operand, own in zip((keys, values), biases[1:], strict=True)
        )
    key, value = _sequence(context, past_key, key), _sequence(context, past_value, value)
    addends = _addends(context, node, query, key.shape[2], mask, attention_bias)
    return [_attended(context, node, query, key, value, addends, past_key), key, value][: node.num_outputs]
