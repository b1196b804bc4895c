"""`RotaryEmbedding`, ONNX's and onnxruntime's: the kernel `rotary`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....errors import InferenceError
from ..registry import F32, Node, contradicting, operator
from ..values import Context, Value
from .elementwise import _optional, _required, binary
from .fitting import heads_trouble, known_shape, shapes_trouble
from .movement import expanded
from .onnxruntime import _contrib

if TYPE_CHECKING:
    from ....model.model import Model, NodeView


@operator(
    "RotaryEmbedding",
    dtypes=(F32, F32, F32, ("int64",)),
    attributes={"interleaved": (0, 1), "num_heads": None, "rotary_embedding_dim": None},
)
def _rotary_embedding(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Caches [angles, half] with positions, or [batch, length, half] without."""
    x, cosines, sines = (_required(value) for value in inputs[:3])
    positions = _optional(inputs, 3)
    heads, width = node.get("num_heads", 0), node.get("rotary_embedding_dim", 0)
    if x.rank not in (3, 4) or (x.rank == 3 and (heads < 1 or x.shape[2] % heads)):
        raise InferenceError(f"an input of shape {list(x.shape)} does not fit {heads} heads")
    batch, length = (x.shape[0], x.shape[2]) if x.rank == 4 else x.shape[:2]
    count, size = (x.shape[1], x.shape[3]) if x.rank == 4 else (heads, x.shape[2] // heads)
    if cosines.rank != (2 if positions is not None else 3) or sines.shape != cosines.shape:
        raise InferenceError(f"caches of shapes {list(cosines.shape)} and {list(sines.shape)} do not fit")
    half = cosines.shape[-1]
    if (width or size) != 2 * half or 2 * half > size:
        raise InferenceError(f"caches of {half} columns do not fit {width or size} numbers of heads of {size}")
    if positions is not None:
        positions = _rows_of(context, "position_ids", positions, (batch, length))
    else:
        cosines, sines = (
            context.reshaped(_rows_of(context, "a cache", cache, (batch, length, half)), (batch * length, half))
            for cache in (cosines, sines)
        )
    return [turned(context, x, (cosines, sines, positions), length, count, size, node.get("interleaved", 0))]


def _rows_of(context: Context, what: str, value: Value, shape: tuple[int, ...]) -> Value:
    """``value`` broadcast to ``shape``, as in the definition."""
    if value.rank != len(shape) or any(have not in (1, want) for have, want in zip(value.shape, shape, strict=True)):
        raise InferenceError(f"{what} of shape {list(value.shape)} does not fit {list(shape)}")
    return expanded(context, value, shape)


@contradicting
def _rotary_refusal(model: Model, view: NodeView) -> str | None:
    x, positions, heads = known_shape(model, view, 0), known_shape(model, view, 1), view.attributes.get("num_heads", 0)
    if x is not None and len(x) not in (3, 4):
        return f"RotaryEmbedding of an input of shape {list(x)}; expected rank 3 or 4"
    # One position, or a vector whose size is not known, is the first of all.
    is_one = positions is not None and len(positions) == 1 and (positions[0] == 1 or not isinstance(positions[0], int))
    axes = ("batch", None, "length", None) if x is not None and len(x) == 4 else ("batch", "length", None)
    return (
        shapes_trouble(model, view, {}, cos_cache=(2, ("angles", "half")), sin_cache=(3, ("angles", "half")))
        or (heads_trouble(model, view, 0, heads) if heads else None)
        or (None if is_one else shapes_trouble(model, view, {}, x=(0, axes), position_ids=(1, ("batch", "length"))))
    )


@_contrib(
    "RotaryEmbedding",
    dtypes=(F32, ("int64",), F32),
    attributes={
        "interleaved": (0, 1),
        "num_heads": None,
        "rotary_embedding_dim": None,
        "is_packed_batching": (0,),
        "scale": (1.0,),
    },
    required=(0, 1, 2, 3),
    check=_rotary_refusal,
)
def _rotary_of_onnxruntime(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Turns pairs of numbers of each head of [batch, length, heads * size] or [batch, heads, length, size]."""
    x, positions, cosines, sines = (_required(value) for value in inputs)
    heads, width = node.get("num_heads", 0), node.get("rotary_embedding_dim", 0)
    if x.rank not in (3, 4) or cosines.rank != 2 or sines.shape != cosines.shape:
        shapes = " and ".join(str(list(value.shape)) for value in (x, cosines, sines))
        raise InferenceError(f"an input and caches of shapes {shapes} do not fit")
    half = cosines.shape[1]
    if x.rank == 4:
        batch, count, length, size = x.shape
        if heads and count != heads:
            raise InferenceError(f"an input of shape {list(x.shape)} does not have {heads} heads")
    else:
        if width and heads < 1:
            raise InferenceError("rotary_embedding_dim without num_heads")
        batch, length = x.shape[:2]
        size = x.shape[2] // heads if width else 2 * half
        if size < 1 or x.shape[2] % size or (heads and x.shape[2] != heads * size):
            raise InferenceError(f"an input of shape {list(x.shape)} does not fit heads of {size}")
        count = x.shape[2] // size
    if (width or size) != 2 * half or 2 * half > size:
        raise InferenceError(f"caches of {half} columns do not fit {width or size} numbers of heads of {size}")
    if positions.shape == (1,):
        positions = binary(context, "add", context.counting(length), positions)
    elif positions.shape != (batch, length):
        raise InferenceError(f"position_ids {list(positions.shape)} do not fit {[batch, length]}")
    interleaved = node.get("interleaved", 0)
    return [turned(context, x, (cosines, sines, positions), length, count, size, interleaved)]


def rotated(
    context: Context,
    x: Value,
    count: int,
    size: int,
    positions: Value,
    cosines: Value,
    sines: Value,
    interleaved: int,
) -> Value:
    """RotaryEmbedding of ``count`` heads [batch, length, count * size] at ``positions`` [batch, length]."""
    if cosines.rank != 2 or sines.shape != cosines.shape or 2 * cosines.shape[1] > size:
        raise InferenceError(
            f"caches of shapes {list(cosines.shape)} and {list(sines.shape)} do not fit heads of {size}"
        )
    if positions.shape != x.shape[:2]:
        raise InferenceError(f"position_ids {list(positions.shape)} do not fit {list(x.shape[:2])}")
    return turned(context, x, (cosines, sines, positions), x.shape[1], count, size, interleaved)


def turned(
    context: Context,
    x: Value,
    angles: tuple[Value, Value, Value | None],
    length: int,
    count: int,
    size: int,
    interleaved: int,
) -> Value:
    """Turns pairs of numbers of ``count`` heads, [batch, length, count * size] or [batch, count, length, size].
    ``angles``: their cosines and sines, [angles, half], and the positions, [length] or [batch, length], or None."""
    ints = [length, count, size, angles[0].shape[1], interleaved, int(x.rank == 4)]
    return context.call("rotary", [x, *angles], x.shape, x.dtype, ints)
