"""`GroupQueryAttention` of com.microsoft: attention of new positions to a cache, in which groups of heads share keys.

The definition is onnxruntime's. ``seqlens_k`` has the last position of each sequence, ``total_sequence_length`` the
largest of these plus one. The new positions are the last ones, except in a prompt (as many new positions as the total),
where they are the first ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....errors import InferenceError
from ..registry import F32, Contradiction, Node
from ..values import Context, Value
from .elementwise import _optional, _required, binary, cast
from .fitting import count_trouble, shapes_trouble
from .movement import strided, strides_of
from .onnxruntime import _contrib, _is_named
from .rotary import rotated

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_F32, _INT32, _INT64 = np.dtype("float32"), np.dtype("int32"), np.dtype("int64")


def _refusal(model: Model, view: NodeView) -> str | None:
    get = view.attributes.get
    heads, groups = get("num_heads", 0), get("kv_num_heads", 0)
    if heads < 1 or groups < 1 or heads % groups:
        return Contradiction(
            f"GroupQueryAttention with num_heads = {heads} and kv_num_heads = {groups}; expected a positive multiple"
        )
    if _is_named(view.inputs, 1) != _is_named(view.inputs, 2):
        return "GroupQueryAttention with only one of key and value"
    if _is_named(view.inputs, 3) != _is_named(view.inputs, 4):
        return "GroupQueryAttention with only one of past_key and past_value"
    if get("do_rotary", 0) and not (_is_named(view.inputs, 7) and _is_named(view.inputs, 8)):
        return "GroupQueryAttention with do_rotary but without cos_cache and sin_cache"
    window = get("local_window_size", -1)
    if window == 0 or window < -1:
        return Contradiction(f"GroupQueryAttention with local_window_size = {window}; expected -1, or 1 or more")
    return _operands_trouble(model, view, heads, groups)


def _operands_trouble(model: Model, view: NodeView, heads: int, groups: int) -> str | None:
    """Why the operands do not fit each other."""
    is_packed = not _is_named(view.inputs, 1)
    width = heads + 2 * groups if is_packed else heads
    sizes: dict[str, int] = {}
    trouble = shapes_trouble(model, view, sizes, query=(0, ("batch", "steps", "columns")))
    columns = sizes.get("columns")
    if trouble or (columns is not None and (columns < 1 or columns % width)):
        return trouble or Contradiction(
            f"GroupQueryAttention with num_heads = {heads}, kv_num_heads = {groups} and a query of {columns} columns"
        )
    if columns is not None:
        sizes |= {"size": columns // width, "key_columns": groups * (columns // width)}
    trouble = shapes_trouble(
        *(model, view, sizes),
        key=(1, ("batch", "steps", "key_columns")),
        value=(2, ("batch", "steps", "key_columns")),
        past_key=(3, ("batch", groups, "past", "size")),
        past_value=(4, ("batch", groups, "past", "size")),
        cos_cache=(7, ("angles", "half")),
        sin_cache=(8, ("angles", "half")),
        position_ids=(9, ("batch", "steps")),
        attention_bias=(10, (None, None, "steps", None)),
        head_sink=(11, (heads,)),
    )
    trouble = trouble or count_trouble(model, view, seqlens_k=(5, sizes.get("batch")), total_sequence_length=(6, 1))
    half, size = sizes.get("half"), sizes.get("size")
    if trouble is None and half is not None and size is not None and 2 * half > size:
        return Contradiction(f"GroupQueryAttention with caches of {half} columns for heads of size {size}")
    return trouble


@_contrib(
    "GroupQueryAttention",
    dtypes=(F32, F32, F32, F32, F32, ("int32",), ("int32",), F32, F32, ("int64",), F32),
    attributes={
        "num_heads": None,
        "kv_num_heads": None,
        "scale": None,
        "softcap": None,
        "local_window_size": None,
        "do_rotary": (0, 1),
        "rotary_interleaved": (0, 1),
        "smooth_softmax": (-1, 0, 1),
        "qk_output": (0,),
        "k_quant_type": (b"NONE",),
        "v_quant_type": (b"NONE",),
        "kv_cache_bit_width": (0,),
    },
    required=(0, 5, 6),
    no_inputs={12: "k_scale", 13: "v_scale", 14: "its input 14", 15: "its input 15"},
    no_outputs={3: "its scores as an output"},
    check=_refusal,
)
def _group_query_attention(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, keys, values, past_key, past_value = (_optional(inputs, i) for i in range(5))
    ends, total, cosines, sines, positions, bias, sinks = (_optional(inputs, i) for i in range(5, 12))
    assert x is not None
    heads, groups = node.get("num_heads", 1), node.get("kv_num_heads", 1)
    width = heads + 2 * groups if keys is None else heads
    if x.rank != 3 or x.shape[2] % width or not x.shape[2]:
        raise InferenceError(f"a query of shape {list(x.shape)} does not fit {heads} heads and {groups} groups")
    batch, steps = x.shape[:2]
    size = x.shape[2] // width
    for value in (keys, values):
        if value is not None and value.shape != (batch, steps, groups * size):
            raise InferenceError(f"keys or values of shape {list(value.shape)} do not fit queries {list(x.shape)}")
    ends = _required(ends)
    if ends.size != batch:
        raise InferenceError(
            f"seqlens_k of shape {list(ends.shape)} does not have one number for each of {batch} sequences"
        )
    ends = context.reshaped(ends, (batch,))
    count = context.known(_required(total)).reshape(-1)
    if len(count) != 1:
        raise InferenceError(f"expected one total_sequence_length, found {len(count)}")
    length: int = count[0] if count.dtype == object else int(count[0])
    capacity = 0
    if past_key is not None:
        if past_key.rank != 4 or (past_key.shape[:2], past_key.shape[3]) != ((batch, groups), size):
            raise InferenceError(f"a past of shape {list(past_key.shape)} does not fit {groups} groups of size {size}")
        if past_value is None or past_value.shape != past_key.shape:
            raise InferenceError("past_key and past_value differ in shape")
        capacity = past_key.shape[2]
    if length < steps:
        raise InferenceError(f"total_sequence_length = {length} is less than the {steps} new positions")
    prompt = int(length == steps)
    keyed, length = length, length if length > capacity else capacity  # the cache may have room for more

    if keys is None:  # queries, keys and values of a position follow each other
        steps_of = strides_of(x.shape)
        parts = [
            strided(context, x, start * size, (batch, steps, many * size), steps_of)
            for start, many in ((0, heads), (heads, groups), (heads + groups, groups))
        ]
    else:
        assert values is not None
        parts = [x, keys, values]
    query, key, value = parts
    if node.get("do_rotary", 0):
        if positions is None:
            positions = _positions(context, ends, batch, steps, prompt)
        interleaved = node.get("rotary_interleaved", 0)
        query, key = (
            rotated(context, each, many, size, positions, _required(cosines), _required(sines), interleaved)
            for each, many in ((query, heads), (key, groups))
        )
    present = []
    for past, new in ((past_key, key), (past_value, value)):
        ints = [batch, steps, groups, capacity, length, size, 0, groups * size, prompt]
        present.append(context.call("append_cache", [past, new, ends], (batch, groups, length, size), _F32, ints))
    strides = [0, 0, 0]
    if bias is not None:
        if bias.rank != 4 or bias.shape[2] != steps or bias.shape[3] < keyed:
            raise InferenceError(f"attention_bias {list(bias.shape)} does not fit {steps} queries and {keyed} keys")
        if bias.shape[0] not in (1, batch) or bias.shape[1] not in (1, heads):
            raise InferenceError(f"attention_bias {list(bias.shape)} does not fit {batch} sequences and {heads} heads")
        own = strides_of(bias.shape)
        strides = [0 if bias.shape[i] == 1 else own[i] for i in range(2)] + [own[2]]
    if sinks is not None and sinks.shape != (heads,):
        raise InferenceError(f"head_sink of shape {list(sinks.shape)} does not fit {heads} heads")
    if sinks is None and node.get("smooth_softmax", 0) == 1:
        sinks = context.constant(np.zeros(heads, np.float32))
    scale = node.get("scale", 0.0) or 1 / math.sqrt(size)
    window = max(node.get("local_window_size", -1), 0)
    ints = [batch, steps, heads, groups, length, size, heads * size, prompt, window, *strides]
    operands = [query, *present, ends, bias, sinks]
    floats = [scale, node.get("softcap", 0.0)]
    made = context.call("grouped_attention", operands, (batch, steps, heads * size), _F32, ints, floats)
    return [made, *present][: node.num_outputs]


def _positions(context: Context, ends: Value, batch: int, steps: int, prompt: int) -> Value:
    """int64 [batch, steps]: the positions of the new steps."""
    counting = context.counting(steps)
    if prompt:
        zeros = context.call("fill", [context.scalar(0, _INT64)], (batch, 1), _INT64)
        return binary(context, "add", context.reshaped(counting, (1, steps)), zeros)
    last = context.reshaped(cast(context, ends, _INT64), (batch, 1))
    back = binary(context, "sub", counting, context.integers([steps - 1], ()))
    return binary(context, "add", last, context.reshaped(back, (1, steps)))
