"""Activations, products, convolutions and normalizations. Floats are computed in float64 and rounded once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Array, definition

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _wide(x: Array) -> Array:
    return np.asarray(x, np.float64)


def _activated(name: str, x: Array, parameters: Sequence[float] = ()) -> Array:
    match name:
        case "":
            return x
        case "Relu":
            return np.where(x < 0, 0, x)
        case "Tanh":
            return np.tanh(x)
        case "Sigmoid":
            return 1 / (1 + np.exp(-x))
        case "LeakyRelu":
            return np.where(x < 0, parameters[0] * x, x)
        case "Clip":
            return np.minimum(np.maximum(x, parameters[0]), parameters[1])
        case "HardSigmoid":
            return np.minimum(np.maximum(parameters[0] * x + parameters[1], 0), 1)
        case "ThresholdedRelu":
            return np.where(x > parameters[0], x, 0)
        case "Elu":
            return np.where(x < 0, parameters[0] * np.expm1(x), x)
        case "Selu":
            return parameters[1] * np.where(x < 0, parameters[0] * np.expm1(x), x)
        case "Celu":
            return np.where(x < 0, parameters[0] * np.expm1(x / parameters[0]), x)
        case "Softplus":
            return np.logaddexp(0, x)
        case "Softsign":
            return x / (1 + np.abs(x))
    raise ValueError(f"unknown activation {name!r}")


@definition("Gelu")
def gelu(x: Array) -> Array:
    return (0.5 * _wide(x) * (1 + _erf(_wide(x) / math.sqrt(2)))).astype(x.dtype)


def _fits_columns(name: str, vector: Array | None, x: Array) -> None:
    if vector is not None and vector.shape != x.shape[-1:]:
        raise ValueError(f"{name} of shape {list(vector.shape)} does not fit {list(x.shape)}")


@definition("BiasGelu")
def bias_gelu(x: Array, bias: Array) -> Array:
    _fits_columns("bias", bias, x)
    total = _wide(x) + bias
    return (0.5 * total * (1 + _erf(total / math.sqrt(2)))).astype(x.dtype)


@definition("FastGelu")
def fast_gelu(x: Array, bias: Array | None = None) -> Array:
    _fits_columns("bias", bias, x)
    total = _wide(x) + (0 if bias is None else bias)
    return (0.5 * total * (1 + np.tanh(math.sqrt(2 / math.pi) * (total + 0.044715 * total**3)))).astype(x.dtype)


@definition("QuickGelu")
def quick_gelu(x: Array, *, alpha: float = 1.702) -> Array:
    return (_wide(x) / (1 + np.exp(-alpha * _wide(x)))).astype(x.dtype)


@definition("FusedMatMul")
def fused_matmul(
    a: Array,
    b: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    if (transBatchA or transBatchB) and not 3 <= a.ndim == b.ndim:
        raise ValueError(f"cannot move the rows of batches of shapes {list(a.shape)} and {list(b.shape)}")
    left = np.moveaxis(a, 0, -2) if transBatchA else a
    right = np.moveaxis(b, 0, -2) if transBatchB else b
    left = left.swapaxes(-1, -2) if transA and a.ndim > 1 else left
    right = right.swapaxes(-1, -2) if transB and b.ndim > 1 else right
    return np.asarray(alpha * (_wide(left) @ _wide(right))).astype(a.dtype)


@definition("FusedGemm")
def fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    activation: bytes = b"",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    activation_gamma: float = 0.0,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    made = alpha * (_wide(a.T if transA else a) @ _wide(b.T if transB else b))
    if c is not None and beta:
        made = made + beta * _wide(c)
    name = activation.decode()
    second = activation_gamma if name == "Selu" else activation_beta
    return np.asarray(_activated(name, made, (activation_alpha, second))).astype(a.dtype)


def windows(
    size: Sequence[int], kernel: Sequence[int], strides: Any, pads: Any, dilations: Any, auto_pad: Any, ceil: int = 0
) -> tuple[list[int], list[int], list[int]]:
    """Strides, pads before, and sizes of the output, for spatial axes of ``size``."""
    rank = len(size)
    strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
    pads = list(pads or [0] * 2 * rank)
    before, out = [], []
    for i in range(rank):
        span = dilations[i] * (kernel[i] - 1) + 1
        if auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
            count = -(-size[i] // strides[i])
            total = max((count - 1) * strides[i] + span - size[i], 0)
            before.append(total // 2 if auto_pad == b"SAME_UPPER" else total - total // 2)
            out.append(count)
            continue
        low, high = (0, 0) if auto_pad == b"VALID" else (pads[i], pads[rank + i])
        room = size[i] + low + high - span
        count = room // strides[i] + 1
        if ceil and room % strides[i] and count * strides[i] < size[i] + low:  # a window must begin inside
            count += 1
        before.append(low)
        out.append(count)
    return strides, before, out


@definition("FusedConv")
def fused_conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    z: Array | None = None,
    *,
    activation: bytes = b"",
    activation_params: Sequence[float] = (),
    auto_pad: bytes = b"NOTSET",
    dilations: Sequence[int] = (),
    group: int = 1,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Array:
    kernel, size = w.shape[2:], x.shape[2:]
    dilations = list(dilations or [1] * len(kernel))
    steps, before, out = windows(size, kernel, strides, pads, dilations, auto_pad)
    made: Array = np.zeros((x.shape[0], w.shape[0], *out))
    maps, channels = w.shape[0] // group, w.shape[1]
    for place in itertools.product(*map(range, out)):
        for tap in itertools.product(*map(range, kernel)):
            at = tuple(p * s - b + t * d for p, s, b, t, d in zip(place, steps, before, tap, dilations, strict=True))
            if any(not 0 <= i < n for i, n in zip(at, size, strict=True)):
                continue
            for g in range(group):
                pixel = _wide(x[(slice(None), slice(g * channels, (g + 1) * channels), *at)])
                filters = _wide(w[(slice(g * maps, (g + 1) * maps), slice(None), *tap)])
                made[(slice(None), slice(g * maps, (g + 1) * maps), *place)] += pixel @ filters.T
    if bias is not None:
        made += bias.reshape(-1, *[1] * len(kernel))
    if z is not None:
        made += z
    return _activated(activation.decode(), made, activation_params).astype(x.dtype)


# ---- normalizations


def _normalized(x: Array, scale: Array, shift: Array | None, epsilon: float, *, root: bool) -> tuple[Array, ...]:
    """Over the last axis: the result, the mean and the reciprocal of the deviation."""
    _fits_columns("gamma", scale, x)
    _fits_columns("beta", shift, x)
    mean = np.zeros((*x.shape[:-1], 1)) if root else x.mean(axis=-1, keepdims=True)
    reciprocal = 1 / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + epsilon)
    return (x - mean) * reciprocal * scale + (0 if shift is None else shift), mean, reciprocal


def _skipped(x: Array, skip: Array, bias: Array | None) -> Array:
    fits = skip.shape == x.shape or (x.ndim == 3 and skip.shape in (x.shape[1:], (1, *x.shape[1:])))
    if x.ndim not in (2, 3) or not fits:
        raise ValueError(f"a skip of shape {list(skip.shape)} does not fit {list(x.shape)}")
    _fits_columns("bias", bias, x)
    return _wide(x) + skip + (0 if bias is None else bias)


@definition("SkipLayerNormalization")
def skip_layer_normalization(
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, ...]:
    total = _skipped(x, skip, bias)
    made, mean, reciprocal = _normalized(total, gamma, beta, epsilon, root=False)
    return made.astype(x.dtype), mean.astype(np.float32), reciprocal.astype(np.float32), total.astype(x.dtype)


@definition("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    x: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float = 1e-12
) -> tuple[Array, ...]:
    total = _skipped(x, skip, bias)
    made, mean, reciprocal = _normalized(total, gamma, None, epsilon, root=True)
    return made.astype(x.dtype), mean.astype(np.float32), reciprocal.astype(np.float32), total.astype(x.dtype)


@definition("SimplifiedLayerNormalization", domain="")
def simplified_layer_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array, ...]:
    axes = tuple(range(axis % x.ndim, x.ndim))
    reciprocal = 1 / np.sqrt((_wide(x) ** 2).mean(axis=axes, keepdims=True) + epsilon)
    return (x * reciprocal * scale).astype(scale.dtype), reciprocal.astype(np.float32)


@definition("EmbedLayerNormalization", accepted={"mask_index_type": (0,)})
def embed_layer_normalization(
    ids: Array,
    segments: Array | None,
    words: Array,
    places: Array,
    segment_table: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    positions: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Array, ...]:
    if positions is None:
        positions = np.arange(ids.shape[1])[None]
    for name, given, batches in (
        ("segment_ids", segments, {len(ids)}),
        ("mask", mask, {len(ids)}),
        ("position_ids", positions, {1, len(ids)}),
    ):
        if given is not None and (given.ndim != 2 or len(given) not in batches or given.shape[1:] != ids.shape[1:]):
            raise ValueError(f"{name} of shape {list(given.shape)} does not fit input_ids of shape {list(ids.shape)}")
    rows = [(words, ids, "input_ids"), (places, positions, "position_ids")]
    if segment_table is not None and segments is not None:
        rows.append((segment_table, segments, "segment_ids"))
    total = np.zeros((*ids.shape, words.shape[1]))
    for table, numbers, name in rows:
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < len(table)):
            raise ValueError(f"{name} has a number outside 0 to {len(table) - 1}")
        total = total + table[numbers]
    made, _, _ = _normalized(total, gamma, beta, epsilon, root=False)
    counts = np.zeros(len(ids), np.int32) if mask is None else (mask == 1).sum(axis=1).astype(np.int32)
    return made.astype(words.dtype), counts, total.astype(words.dtype)
