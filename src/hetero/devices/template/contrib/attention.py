"""Attention and rotary embeddings. Floats are computed in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .table import Array, definition


def _softmax(x: Array, sink: Any = None) -> Array:
    """Over the last axis; ``sink``: one more score, whose weight is dropped."""
    top = x.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink)
    powers = np.exp(x - top)
    return powers / (powers.sum(axis=-1, keepdims=True) + (0 if sink is None else np.exp(sink - top)))


def _heads(x: Array, count: int) -> Array:
    """[batch, length, count * size] as [batch, count, length, size]."""
    return np.asarray(x, np.float64).reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _joined(x: Array) -> Array:
    """The inverse of `_heads`."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def _is_kept(mask: Array, batch: int, queries: int, keys: int) -> Array:
    """bool [batch, 1, queries or 1, keys]: the keys that are attended to."""
    if mask.shape == (batch, keys):
        return mask[:, None, None, :] > 0
    if mask.shape == (batch, queries, keys):
        return mask[:, None] > 0
    places = np.arange(keys)
    kept = places[None] < mask[:batch, None]
    if mask.shape == (2 * batch,):
        kept &= places[None] >= mask[batch:, None]
    elif mask.shape != (batch,):
        raise ValueError(
            f"a mask of shape {list(mask.shape)} does not fit {batch} times {queries} queries and {keys} keys"
        )
    return kept[:, None, None, :]


def _attended(
    query: Array,
    key: Array,
    value: Array,
    scale: float,
    mask: Array | None,
    filtered: float,
    bias: Array | None,
    unidirectional: int,
) -> Array:
    """softmax(scores) values of [batch, heads, length, size]; the first query is after keys - queries others."""
    scores = (scale or 1 / math.sqrt(query.shape[-1])) * (query @ key.swapaxes(-1, -2))
    batch, _, queries, keys = scores.shape
    if mask is not None:
        # In float32, because a row whose keys are all masked depends on how large numbers are rounded.
        addend = np.where(_is_kept(mask, batch, queries, keys), np.float32(0), np.float32(filtered))
        scores = (scores.astype(np.float32) + addend).astype(np.float64)
    if bias is not None:
        scores = scores + bias
    if unidirectional:
        is_later = np.arange(keys)[None] > np.arange(queries)[:, None] + keys - queries
        scores = np.where(is_later, -np.inf, scores)
    return _joined(_softmax(scores) @ value)


@definition("Attention", accepted={"do_rotary": (0,), "rotary_embedding_dim": (0,), "past_present_share_buffer": (0,)})
def attention(
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    qkv_hidden_sizes: Sequence[int] = (),
    do_rotary: int = 0,
    rotary_embedding_dim: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Array, ...]:
    product = np.asarray(x, np.float64) @ weights + (0 if bias is None else bias)
    sizes = list(qkv_hidden_sizes) or [weights.shape[1] // 3] * 3
    query, key, value = (_heads(part, num_heads) for part in np.split(product, np.cumsum(sizes)[:2], axis=-1))
    if past is not None:
        key, value = (np.concatenate([old, new], axis=2) for old, new in zip(past, (key, value), strict=True))
    made = _attended(query, key, value, scale, mask, mask_filter_value, attention_bias, unidirectional)
    if key.shape != value.shape:
        return (made.astype(x.dtype),)
    return made.astype(x.dtype), np.stack([key, value]).astype(x.dtype)


@definition("MultiHeadAttention")
def multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
) -> tuple[Array, ...]:
    if key is None:
        if query.ndim != 5:
            raise ValueError(f"a query of shape {list(query.shape)} without keys; expected packed queries of rank 5")
        q, k, v = (np.asarray(query[:, :, :, i], np.float64).swapaxes(1, 2) for i in range(3))
    elif value is None:
        q = _heads(query, num_heads)
        k, v = (np.asarray(key[:, :, :, i], np.float64).swapaxes(1, 2) for i in range(2))
    elif key.ndim == 4:  # of another sequence; they include their part of the bias
        if past_key is not None:
            raise ValueError("a past of keys that are already divided into heads is not supported")
        q = _heads(query if bias is None else query + np.asarray(bias, np.float64)[: query.shape[2]], num_heads)
        k, v = np.asarray(key, np.float64), np.asarray(value, np.float64)
    else:
        ends = np.cumsum([query.shape[2], key.shape[2]])
        parts: Sequence[Any] = (0, 0, 0) if bias is None else np.split(np.asarray(bias, np.float64), ends)
        q, k, v = (_heads(x + part, num_heads) for x, part in zip((query, key, value), parts, strict=True))
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([past_key, k], axis=2), np.concatenate([past_value, v], axis=2)
    before = 0 if past_key is None else past_key.shape[2]
    if unidirectional and k.shape[2] != before + q.shape[2]:
        raise ValueError(f"unidirectional attention of {q.shape[2]} queries at {before} to {k.shape[2]} keys")
    made = _attended(q, k, v, scale, mask, mask_filter_value, attention_bias, unidirectional)
    return tuple(each.astype(query.dtype) for each in (made, k, v))


# ---- rotary embeddings


def _rotated(x: Array, positions: Array, cosines: Array, sines: Array, interleaved: int) -> Array:
    """Heads [batch, length, heads, size]: pairs of the first numbers turned by the angles at ``positions``, [batch,
    length]."""
    half = cosines.shape[1]
    made = np.asarray(x, np.float64).copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    cosine, sine = (np.asarray(cache, np.float64)[positions][:, :, None] for cache in (cosines, sines))
    real, imaginary = made[..., first].copy(), made[..., second].copy()
    made[..., first] = real * cosine - imaginary * sine
    made[..., second] = imaginary * cosine + real * sine
    return made


@definition("RotaryEmbedding", accepted={"is_packed_batching": (0,), "scale": (1.0,)})
def rotary_embedding(
    x: Array,
    positions: Array,
    cosines: Array,
    sines: Array,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Array:
    size = x.shape[-1] // num_heads if rotary_embedding_dim and x.ndim == 3 else 2 * cosines.shape[1]
    heads = x.swapaxes(1, 2) if x.ndim == 4 else x.reshape(*x.shape[:2], -1, size)
    if positions.shape == (1,):
        positions = np.broadcast_to(positions + np.arange(heads.shape[1]), heads.shape[:2])
    if positions.shape != heads.shape[:2]:
        raise ValueError(f"position_ids {list(positions.shape)} do not fit {list(heads.shape[:2])}")
    if positions.size and not (positions.min() >= 0 and positions.max() < len(cosines)):
        raise ValueError(f"position_ids has a number outside 0 to {len(cosines) - 1}")
    made = _rotated(heads, positions, cosines, sines, interleaved)
    return (made.swapaxes(1, 2) if x.ndim == 4 else made.reshape(x.shape)).astype(x.dtype)


@definition(
    "GroupQueryAttention",
    accepted={"qk_output": (0,), "k_quant_type": (b"NONE",), "v_quant_type": (b"NONE",), "kv_cache_bit_width": (0,)},
)
def group_query_attention(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    ends: Array,
    total: Array,
    cosines: Array | None = None,
    sines: Array | None = None,
    positions: Array | None = None,
    bias: Array | None = None,
    sinks: Array | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    local_window_size: int = -1,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    smooth_softmax: int = 0,
    qk_output: int = 0,
    k_quant_type: bytes = b"NONE",
    v_quant_type: bytes = b"NONE",
    kv_cache_bit_width: int = 0,
) -> tuple[Array, ...]:
    """Sequence by sequence. ``ends``: the last position of each; in a prompt, new positions are the first ones."""
    batch, steps = query.shape[:2]
    if ends.size != batch:
        raise ValueError(f"seqlens_k has {ends.size} elements; expected {batch}, the sequences")
    if key is None or value is None:
        size = query.shape[2] // (num_heads + 2 * kv_num_heads)
        at = np.cumsum([num_heads * size, kv_num_heads * size])
        q, k, v = np.split(query, at, axis=2)
    else:
        q, k, v = query, key, value
    q, k, v = (
        x.reshape(batch, steps, many, -1) for x, many in zip((q, k, v), (num_heads, *[kv_num_heads] * 2), strict=True)
    )
    size = q.shape[3]
    count = int(total.reshape(()))
    starts = np.zeros(batch, np.int64) if count == steps else ends.reshape(batch).astype(np.int64) + 1 - steps
    if (starts < 0).any() or (starts + steps > max(count, 0 if past_key is None else past_key.shape[2])).any():
        raise ValueError(f"seqlens_k {ends.tolist()} does not fit {steps} new positions of {count}")
    if do_rotary:
        if cosines is None or sines is None:
            raise ValueError("do_rotary without cos_cache and sin_cache")
        places = starts[:, None] + np.arange(steps) if positions is None else positions
        q, k = (_rotated(x, places, cosines, sines, rotary_interleaved) for x in (q, k))
    length = count if past_key is None else max(count, past_key.shape[2])
    present = np.zeros((2, batch, kv_num_heads, length, size))
    made = np.zeros((batch, steps, num_heads, size))
    for b, start in enumerate(starts):
        for cache, past, new in zip(present, (past_key, past_value), (k, v), strict=True):
            if past is not None:
                cache[b, :, :start] = past[b, :, :start]
            cache[b, :, start : start + steps] = new[b].swapaxes(0, 1)
        for s in range(steps):
            until = start + s + 1
            since = max(0, until - local_window_size) if local_window_size > 0 else 0
            for h in range(num_heads):
                keys, values = present[:, b, h * kv_num_heads // num_heads, since:until]
                scores = (scale or 1 / math.sqrt(size)) * (keys @ np.asarray(q[b, s, h], np.float64))
                if softcap:
                    scores = softcap * np.tanh(scores / softcap)
                if bias is not None:
                    scores = scores + bias[b % len(bias), h % bias.shape[1], s, since:until]
                sink = sinks[h] if sinks is not None else 0.0 if smooth_softmax == 1 else None
                made[b, s, h] = _softmax(scores, sink) @ values
    return tuple(each.astype(query.dtype) for each in (made.reshape(batch, steps, -1), *present))
