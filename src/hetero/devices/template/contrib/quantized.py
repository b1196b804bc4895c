"""Quantized operators: integers are widened, computed on, and rounded to integers again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .attention import attention
from .network import embed_layer_normalization, windows
from .table import Array, definition


def _dequantized(x: Array, scale: Array, zero: Array | None, dtype: Any = np.float32) -> Array:
    """By one scale, computed in ``dtype``."""
    middle = 0 if zero is None else zero.reshape(()).astype(np.int32)
    made: Array = (x.astype(np.int32) - middle).astype(dtype) * scale.reshape(()).astype(dtype)
    return made


def _quantized(x: Array, scale: Array, zero: Array | None, dtype: Any) -> Array:
    limits = np.iinfo(dtype)
    middle = 0 if zero is None else int(zero.reshape(()))
    levels = np.rint(np.asarray(x, np.float32) / scale.reshape(()).astype(np.float32)).astype(np.float64) + middle
    made: Array = np.clip(np.nan_to_num(levels, nan=limits.min), limits.min, limits.max).astype(dtype)
    return made


def _shifted_and_rounded(x: Array, scale: Array, zero: Array | None, dtype: Any) -> Array:
    """As `_quantized`, but onnxruntime adds the zero point before it rounds, which differs for halves."""
    shifted = x / scale.reshape(()).astype(x.dtype)
    shifted = shifted if zero is None else shifted + zero.reshape(()).astype(x.dtype)
    limits = np.iinfo(dtype)
    levels = np.nan_to_num(np.rint(shifted).astype(np.float64), nan=limits.min)
    made: Array = np.clip(levels, limits.min, limits.max).astype(dtype)
    return made


def _along(operand: Array, x: Array, axis: int) -> Array:
    """A scale or zero point, or a vector of them along ``axis``, in a shape that broadcasts to ``x``."""
    made: Array = operand.reshape(() if operand.size == 1 else (-1, *(1,) * (x.ndim - 1 - axis % x.ndim)))
    return made


@definition("QuantizeLinear")
def quantize_linear(x: Array, scale: Array, zero: Array | None = None, *, axis: int = 1) -> Array:
    zero = np.uint8(0) if zero is None else zero
    limits: Any = ml_dtypes.iinfo(zero.dtype)  # type: ignore[no-untyped-call]
    levels = np.rint((x / _along(scale, x, axis)).astype(np.float64)) + _along(zero, x, axis).astype(np.float64)
    made: Array = np.clip(np.nan_to_num(levels, nan=limits.min), limits.min, limits.max).astype(np.int32)
    return made.astype(zero.dtype)


@definition("DequantizeLinear")
def dequantize_linear(x: Array, scale: Array, zero: Array | None = None, *, axis: int = 1) -> Array:
    middle = np.int64(0) if zero is None else _along(zero, x, axis).astype(np.int64)
    wide: Array = (x.astype(np.int64) - middle).astype(np.float32) * _along(scale, x, axis).astype(np.float32)
    return wide.astype(scale.dtype)


def _binary(operation: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def combined(
        a: Array,
        a_scale: Array,
        a_zero: Array | None,
        b: Array,
        b_scale: Array,
        b_zero: Array | None,
        scale: Array,
        zero: Array | None = None,
    ) -> Array:
        # In float64, because quotients and products of scales may be outside the range of float32.
        wide = operation(_dequantized(a, a_scale, a_zero, np.float64), _dequantized(b, b_scale, b_zero, np.float64))
        return _shifted_and_rounded(wide, scale, zero, a.dtype)

    return combined


definition("QLinearAdd")(_binary(np.add))
definition("QLinearMul")(_binary(np.multiply))


@definition("QLinearSigmoid")
def qlinear_sigmoid(x: Array, x_scale: Array, x_zero: Array | None, scale: Array, zero: Array | None = None) -> Array:
    return _quantized(1 / (1 + np.exp(-_dequantized(x, x_scale, x_zero))), scale, zero, x.dtype)


@definition("QLinearLeakyRelu")
def qlinear_leaky_relu(
    x: Array, x_scale: Array, x_zero: Array | None, scale: Array, zero: Array | None = None, *, alpha: float = 0.01
) -> Array:
    wide = _dequantized(x, x_scale, x_zero)
    return _quantized(np.where(wide < 0, np.float32(alpha) * wide, wide), scale, zero, x.dtype)


@definition("QLinearSoftmax")
def qlinear_softmax(
    x: Array, x_scale: Array, x_zero: Array | None, scale: Array, zero: Array, *, axis: int = -1, opset: int
) -> Array:
    wide = _dequantized(x, x_scale, x_zero)
    first = axis % x.ndim
    lines = wide if opset >= 13 else wide.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:]))
    along = axis if opset >= 13 else 1
    powers = np.exp(lines - lines.max(axis=along, keepdims=True, initial=-np.inf))
    made = powers / powers.sum(axis=along, keepdims=True)
    return _quantized(made.reshape(x.shape), scale, zero, x.dtype)


@definition("QLinearConcat")
def qlinear_concat(scale: Array, zero: Array, *parts: Array, axis: int) -> Array:
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    made = [_quantized(_dequantized(*triple), scale, zero, zero.dtype) for triple in triples]
    return np.concatenate(made, axis=axis)


@definition("QLinearWhere")
def qlinear_where(
    condition: Array,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y: Array,
    y_scale: Array,
    y_zero: Array,
    scale: Array,
    zero: Array,
) -> Array:
    parts = _dequantized(x, x_scale, x_zero), _dequantized(y, y_scale, y_zero)
    return _quantized(np.where(condition, *parts), scale, zero, x.dtype)


@definition("QEmbedLayerNormalization")
def qembed_layer_normalization(
    ids: Array,
    segments: Array | None,
    words: Array,
    places: Array,
    segment_table: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None,
    word_scale: Array,
    place_scale: Array,
    segment_scale: Array | None,
    gamma_scale: Array,
    beta_scale: Array,
    word_zero: Array,
    place_zero: Array,
    segment_zero: Array | None,
    gamma_zero: Array,
    beta_zero: Array,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, ...]:
    tables = [
        None if table is None or scale is None else _dequantized(table, scale, zero)
        for table, scale, zero in (
            (words, word_scale, word_zero),
            (places, place_scale, place_zero),
            (segment_table, segment_scale, segment_zero),
            (gamma, gamma_scale, gamma_zero),
            (beta, beta_scale, beta_zero),
        )
    ]
    made, counts, _ = embed_layer_normalization(ids, segments, *tables, mask, epsilon=epsilon)
    return made, counts


@definition("QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    x: Array, x_scale: Array, x_zero: Array, scale: Array, zero: Array, *, channels_last: int = 0
) -> Array:
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return _quantized(_dequantized(x, x_scale, x_zero).mean(axis=axes, keepdims=True), scale, zero, x.dtype)


@definition("QLinearAveragePool", accepted={"channels_last": (0,)})
def qlinear_average_pool(
    x: Array,
    x_scale: Array,
    x_zero: Array | None,
    scale: Array,
    zero: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    auto_pad: bytes = b"NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Array:
    wide, size, rank = _dequantized(x, x_scale, x_zero), x.shape[2:], x.ndim - 2
    steps, before, out = windows(size, kernel_shape, strides, pads, None, auto_pad, ceil_mode)
    after = list(pads)[rank:] if pads and auto_pad == b"NOTSET" else [0] * rank
    made: Array = np.zeros((*x.shape[:2], *out), np.float32)
    for place in itertools.product(*map(range, out)):
        starts = [p * s - b for p, s, b in zip(place, steps, before, strict=True)]
        ends = [start + k for start, k in zip(starts, kernel_shape, strict=True)]
        inside = tuple(slice(max(a, 0), min(e, n)) for a, e, n in zip(starts, ends, size, strict=True))
        total = wide[(slice(None), slice(None), *inside)].sum(axis=tuple(range(2, x.ndim)))
        if count_include_pad:
            # Windows that ceil_mode adds reach beyond the padding, which does not count.
            whole = [min(e, n + more) - a for a, e, n, more in zip(starts, ends, size, after, strict=True)]
            count = np.prod(kernel_shape if auto_pad in (b"SAME_UPPER", b"SAME_LOWER") else whole)
        else:
            count = np.prod([each.stop - each.start for each in inside])
        made[(slice(None), slice(None), *place)] = total / np.float32(count)
    return _shifted_and_rounded(made, scale, zero, x.dtype)


# ---- products


def _integers(a: Array, zero: Array | None) -> Array:
    return a.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))


@definition("MatMulIntegerToFloat")
def matmul_integer_to_float(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero: Array | None = None,
    b_zero: Array | None = None,
    bias: Array | None = None,
) -> Array:
    made = (_integers(a, a_zero) @ _integers(b, b_zero)).astype(np.float32) * (a_scale.reshape(()) * b_scale)
    return np.asarray(made + (np.float32(0) if bias is None else bias), np.float32)


@definition("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    x: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None
) -> Array:
    """x is rounded as by DynamicQuantizeLinear."""
    low, high = (np.float32(f(x, initial=0)) for f in (np.min, np.max))
    scale = (high - low) / np.float32(255) or np.float32(1)
    zero = np.rint(np.clip(-low / scale, 0, 255)).astype(np.uint8)
    levels = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    made: Array = matmul_integer_to_float(levels, b, np.asarray(scale), b_scale, zero, b_zero, bias)
    return made


@definition("QAttention", accepted={"do_rotary": (0,), "past_present_share_buffer": (0,)})
def qattention(
    x: Array,
    weights: Array,
    bias: Array,
    x_scale: Array,
    w_scale: Array,
    mask: Array | None = None,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    past: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Array, ...]:
    wide = _integers(x, x_zero) * x_scale.reshape(()).astype(np.float64)
    columns = _integers(weights, w_zero) * w_scale.astype(np.float64)
    options: dict[str, Any] = {"unidirectional": unidirectional, "scale": scale, "mask_filter_value": mask_filter_value}
    made = attention(wide, columns, bias, mask, past, num_heads=num_heads, **options)
    return tuple(each.astype(np.float32) for each in made)


@definition("QGemm")
def qgemm(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    c: Array | None = None,
    scale: Array | None = None,
    zero: Array | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    left, right = a.T if transA else a, b.T if transB else b
    sums = _integers(left, a_zero) @ _integers(right, b_zero) + (0 if c is None else c)
    wide = sums.astype(np.float32) * (np.float32(alpha) * a_scale.reshape(()) * b_scale)
    return wide if scale is None else _quantized(wide, scale, zero, a.dtype if zero is None else zero.dtype)


# ---- weights of a few bits


def _unpacked(data: Array, bits: int) -> Array:
    """The numbers of ``bits`` bits in the last axis of bytes; the lowest bits of a byte come first."""
    each = [(data >> np.uint8(start)) & np.uint8(2**bits - 1) for start in range(0, 8, bits)]
    return np.stack(each, axis=-1).reshape(*data.shape[:-1], -1)


@definition("MatMulNBits", accepted={"bits": (2, 4, 8), "weight_prepacked": (0,)})
def matmul_nbits(
    x: Array,
    b: Array,
    scales: Array,
    zeros: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Array:
    """In float64 for every accuracy_level."""
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block_size = {block_size}; expected a power of 2 from 16 on")
    blocks = -(-K // block_size)
    sizes = {"B": (b, N * blocks * block_size * bits // 8), "scales": (scales, N * blocks)}
    for name, (array, size) in sizes.items():
        if array.size != size:
            raise ValueError(
                f"{name} of shape {list(array.shape)} does not have {size} elements, as K, N and bits state"
            )
    levels = _unpacked(b.reshape(N, -1), bits).reshape(N, blocks, block_size).astype(np.float64)
    middle: Any = 2.0 ** (bits - 1)
    if zeros is not None:
        wide = _unpacked(zeros.reshape(N, -1), bits)[:, :blocks] if zeros.dtype == np.uint8 else zeros.reshape(N, -1)
        middle = wide.astype(np.float64)
    groups = np.arange(K) // block_size
    if g_idx is not None:
        if g_idx.shape != (K,) or not ((g_idx >= 0) & (g_idx < blocks)).all():
            raise ValueError(f"g_idx does not have {K} numbers from 0 to {blocks - 1}")
        groups = g_idx
    factors = scales.reshape(N, blocks)[:, groups]
    matrix = (levels.reshape(N, -1)[:, :K] - (middle[:, groups] if zeros is not None else middle)) * factors
    return np.asarray(x.astype(np.float64) @ matrix.T + (0 if bias is None else bias)).astype(x.dtype)


@definition("GatherBlockQuantized", accepted={"bits": (2, 4, 8)})
def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zeros: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block_size = {block_size}; expected a power of 2 from 16 on")
    middle: Any = 0
    if data.dtype == np.uint8:  # packed along the last axis
        middle = 2 ** (bits - 1)
        data = _unpacked(data, bits)
        zeros = None if zeros is None else _unpacked(zeros, bits)
    axis = quantize_axis % data.ndim
    numbers = np.arange(data.shape[axis]) // block_size
    if zeros is not None:
        middle = np.take(zeros.astype(np.int32), numbers, axis=axis)
    wide = (data.astype(np.int32) - middle) * np.take(scales.astype(np.float64), numbers, axis=axis)
    return np.take(wide, indices, axis=gather_axis).astype(scales.dtype)


# ---- recurrence


@definition("DynamicQuantizeLSTM", accepted={"input_forget": (0,)})
def dynamic_quantize_lstm(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None,
    lengths: Array | None,
    initial_h: Array | None,
    initial_c: Array | None,
    peepholes: Array | None,
    w_scale: Array,
    w_zero: Array,
    r_scale: Array,
    r_zero: Array,
    *,
    hidden_size: int = 0,
    direction: bytes = b"forward",
    clip: float = 0.0,
    input_forget: int = 0,
    activations: Sequence[bytes] = (b"Sigmoid", b"Tanh", b"Tanh"),
) -> tuple[Array, ...]:
    """LSTM with the widened weights W [directions, input, 4 * hidden] and R [directions, hidden, 4 * hidden].

    X is rounded to 8 bits as by DynamicQuantizeLinear, and so are the states of all sequences in each step."""
    steps, batch, _ = x.shape
    directions, hidden = r.shape[:2]
    if [name.lower() for name in activations] != [b"sigmoid", b"tanh", b"tanh"] * (len(activations) // 3):
        raise ValueError(f"activations {list(activations)} are not supported")

    def widened(levels: Array, scale: Array, zero: Array) -> Array:
        per = [each.astype(np.float64).reshape(directions, 1, -1) for each in (scale, zero)]
        return np.asarray((levels.astype(np.float64) - per[1]) * per[0])

    def clipped(x: Array) -> Array:
        return np.clip(x, -clip, clip) if clip else x

    def rounded(x: Array) -> Array:
        low, high = min(x.min(initial=0), np.float32(0)), max(x.max(initial=0), np.float32(0))
        scale = (high - low) / np.float32(255) if high > low else np.float32(1)
        zero = np.clip(np.rint(-low / scale), 0, 255)
        return np.asarray((np.clip(np.rint(x / scale) + zero, 0, 255) - zero).astype(np.float64) * scale)

    w, r = widened(w, w_scale, w_zero), widened(r, r_scale, r_zero)
    x_rounded = rounded(x)
    made = np.zeros((steps, directions, batch, hidden))
    last_h, last_c = (
        np.zeros((directions, batch, hidden)) if state is None else state.astype(np.float64)
        for state in (initial_h, initial_c)
    )
    for d in range(directions):
        both = np.zeros(4 * hidden) if bias is None else bias[d].astype(np.float64).reshape(2, -1).sum(axis=0)
        holes = np.zeros((3, hidden)) if peepholes is None else peepholes[d].astype(np.float64).reshape(3, -1)
        for step in range(steps):
            state = rounded(last_h[d].astype(np.float32))
            for b in range(batch):
                count = steps if lengths is None else int(lengths[b])
                if step >= count:
                    continue
                t = count - 1 - step if direction == b"reverse" or d == 1 else step
                c = last_c[d, b]
                i, o, f, g = (x_rounded[t, b] @ w[d] + state[b] @ r[d] + both).reshape(4, hidden)
                i, f = (1 / (1 + np.exp(-clipped(gate + hole * c))) for gate, hole in ((i, holes[0]), (f, holes[2])))
                c = f * c + i * np.tanh(clipped(g))
                made[t, d, b] = last_h[d, b] = np.tanh(c) / (1 + np.exp(-clipped(o + holes[1] * c)))
                last_c[d, b] = c
    return tuple(each.astype(x.dtype) for each in (made, last_h, last_c))
