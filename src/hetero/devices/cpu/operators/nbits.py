"""Products with weights of 4 or 8 bits in blocks, which are read as they are (kernels/nbits.h): `MatMulNBits`, and a
`MatMul` or `Gemm` whose right operand is a `DequantizeLinear` of constants of 4 bits. Also `GatherBlockQuantized`.
Constants of 16 bits before a product are dequantized and packed once, and only the packed matrix is kept.

A matrix has n columns of ``k`` numbers in ``blocks`` blocks, each with a scale and a zero point.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import math
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .... import _kernels
from ...._sizes import ask
from ....errors import InferenceError
from ..qdq.schemes import MAX_SCALE, is_plain
from ..registry import F32, INDICES, Contradiction, Node, NodePlan, Operator, stated_shape
from ..values import Context, Value
from .elementwise import _optional, _required, binary, broadcast
from .network import packed_b, products_of
from .onnxruntime import _contrib

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

__all__ = ["rewritten"]

_Array = NDArray[Any]
_F32, _BYTE = np.dtype(np.float32), np.dtype(np.uint8)
_FLOAT = 1  # the attributes' number of float32
_INT8_ACTIVATIONS = 4  # accuracy_level
_COLUMNS = 256  # converted at a time, to need little memory
_MAX_BLOCK, _MAX_BYTES_BLOCK = (_kernels.constant(f"NBITS_MAX_{name}") for name in ("BLOCK", "BYTES_BLOCK"))


# ---- a packed matrix and its products


@dataclasses.dataclass(frozen=True, slots=True)
class _Matrix:
    """The sizes of a matrix, as the kernels take them."""

    k: int
    n: int
    bits: int
    block: int
    has_zeros: bool

    @property
    def ints(self) -> list[int]:
        return [self.n, self.k, self.bits, self.block, int(self.has_zeros)]

    def pack(self, context: Context, levels: _Array, scales: _Array, zeros: _Array | None) -> Value:
        """``levels``, ``zeros``: bytes, as in the inputs B and zero_points of MatMulNBits."""
        operands = [context.constant(levels), context.constant(np.ascontiguousarray(scales, np.float32))]
        zero = None if zeros is None else context.constant(zeros)
        size = ask("nbits_bytes", self.k, self.n, self.bits, self.block, int(self.has_zeros))
        return context.call("pack_nbits", [*operands, zero], (size,), _BYTE, [0, *self.ints], lasting=True)

    def product(self, context: Context, x: Value, packed: Value, bias: Value | None, level: int) -> Value:
        """x times the matrix. ``level``: as accuracy_level of MatMulNBits; at 4, x is rounded to 8 bits per block as by
        onnxruntime. Any other level computes in float32."""
        if not x.rank or x.shape[-1] != self.k:
            raise InferenceError(f"cannot multiply {list(x.shape)} by [{self.k}, {self.n}]")
        in_bytes = level == _INT8_ACTIVATIONS and self.block <= _MAX_BYTES_BLOCK
        kernel = "matmul_nbits_bytes" if in_bytes else "matmul_nbits"
        rows = math.prod(x.shape[:-1])
        if bias is not None and bias.shape != (self.n,):
            raise InferenceError(f"the bias of shape {list(bias.shape)} does not fit {self.n} columns")
        return context.call(kernel, [x, packed, bias], (*x.shape[:-1], self.n), _F32, [rows, *self.ints])


def _digest(*arrays: _Array | None) -> bytes:
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()[:16]


def _in_bytes(levels: _Array, bits: int) -> _Array:
    """The inverse of `_unpacked`, for rows of numbers."""
    if bits == 8:
        return levels
    if levels.shape[-1] % 2:
        levels = np.pad(levels, [(0, 0)] * (levels.ndim - 1) + [(0, 1)])
    packed: _Array = levels[..., ::2] | levels[..., 1::2] << np.uint8(4)
    return packed


# ---- MatMulNBits


def _sizes(attributes: Any) -> tuple[int, int, int, int]:
    k, n, bits, block = (attributes.get(name, default) for name, default in _DEFAULTS.items())
    return k, n, bits, block


_DEFAULTS = {"K": 0, "N": 0, "bits": 4, "block_size": 0}


def _wrong_constant(model: Model, value: int, name: str, size: int) -> str | None:
    """Why a constant input does not have ``size`` elements."""
    if not model.is_constant[value]:
        return f"MatMulNBits whose input {name} is not constant"
    shape = model.constant_type(value).shape
    if shape is None or math.prod(shape) == size:  # type: ignore[arg-type]
        return None
    found = f"input {name} of shape {list(shape)}"
    return Contradiction(f"MatMulNBits whose {found} does not have {size} elements, as K, N, bits and block_size state")


def _nbits_refusal(model: Model, view: NodeView) -> str | None:
    k, n, bits, block = _sizes(view.attributes)
    unsupported = None if bits in (4, 8) else f"MatMulNBits with bits = {bits}; kernels support 4 and 8"
    if unsupported and bits != 2:  # other devices support 2 bits
        return unsupported
    if block < 16 or block & (block - 1):
        return Contradiction(f"MatMulNBits with block_size = {block}; it must be a power of 2 from 16 on")
    if min(k, n) < 1:
        return Contradiction(f"MatMulNBits with K = {k} and N = {n}; both must be positive")
    blocks = -(-k // block)
    sizes = {"B": n * blocks * block * bits // 8, "scales": n * blocks, "zero_points": n * -(-blocks * bits // 8)}
    for value, (name, size) in zip(model.node_inputs[view.index].tolist()[1:4], sizes.items(), strict=False):
        trouble = None if value < 0 else _wrong_constant(model, value, name, size)
        if trouble:
            return trouble
    for value in model.node_inputs[view.index].tolist()[5:6]:
        bias = model.constant_type(value).shape if value >= 0 and model.is_constant[value] else None
        if bias is not None and tuple(bias) != (n,):
            return Contradiction(
                f"MatMulNBits whose input bias of shape {list(bias)} does not have {n} elements, as N states"
            )
    groups = model.node_inputs[view.index].tolist()[4:5]
    trouble = _groups_trouble(model, groups[0], k, block) if groups and groups[0] >= 0 else None
    if isinstance(trouble, Contradiction):
        return trouble
    unsupported = unsupported or trouble
    if unsupported or block > _MAX_BLOCK:
        return unsupported or f"MatMulNBits with block_size = {block}; kernels support at most {_MAX_BLOCK}"
    if not np.isfinite(model.constant(model.node_inputs[view.index].tolist()[2], aligned=False)).all():
        return Contradiction("MatMulNBits whose input scales has a number that is not finite")
    shape = stated_shape(model, int(model.node_inputs[view.index][0]))
    if shape and isinstance(shape[-1], int) and shape[-1] != k:
        return Contradiction(f"MatMulNBits whose input A has {shape[-1]} columns; expected K = {k}")
    return None


def _groups_trouble(model: Model, value: int, k: int, block: int) -> str | None:
    """Why this input g_idx is not supported; None if it is."""
    if not model.is_constant[value]:
        return "MatMulNBits whose input g_idx is not constant"
    groups, last = model.constant(value), -(-k // block) - 1
    if groups.shape != (k,):
        return Contradiction(f"MatMulNBits with g_idx of shape {list(groups.shape)}; expected [{k}], as K states")
    wrong = groups[(groups < 0) | (groups > last)]
    if wrong.size:
        return Contradiction(f"MatMulNBits whose g_idx has the group {wrong[0]}; expected 0 to {last}")
    if not np.array_equal(np.sort(groups), _groups(k, block)):
        return "MatMulNBits whose g_idx has groups of other sizes than block_size"
    return None


def _groups(k: int, block: int) -> _Array:
    """The groups of numbers that are in order, as in the input g_idx."""
    return np.arange(k, dtype=np.int32) // np.int32(block)


def _reordered(levels: _Array, bits: int, order: _Array) -> _Array:
    """The bytes of a matrix whose first numbers of each row are in another order."""
    rows = levels.reshape(len(levels), -1)
    made = np.empty_like(rows)
    for begin in range(0, len(rows), _COLUMNS):
        part = rows[begin : begin + _COLUMNS]
        if bits == 4:
            part = np.stack((part & np.uint8(15), part >> np.uint8(4)), axis=-1).reshape(len(part), -1)
        else:
            part = part.copy()
        part[:, : len(order)] = part[:, order]
        made[begin : begin + _COLUMNS] = _in_bytes(part, bits)
    return made


@_contrib(
    "MatMulNBits",
    dtypes=(F32, ("uint8",), F32, ("uint8",), ("int32",), F32),
    attributes={
        "K": None,
        "N": None,
        "bits": None,
        "block_size": None,
        "accuracy_level": None,
        "weight_prepacked": (0,),
    },
    required=(0, 1, 2),
    check=_nbits_refusal,
)
def _matmul_nbits(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, weights, scales = (_required(value) for value in inputs[:3])
    zeros, groups = _optional(inputs, 3), _optional(inputs, 4)
    k, n, bits, block = _sizes(node.attributes)
    matrix = _Matrix(k, n, bits, block, zeros is not None)
    level = node.get("accuracy_level", 0)
    order: _Array | None = None
    if groups is not None:
        assert groups.data is not None
        if not np.array_equal(groups.data, _groups(k, block)):
            order = np.argsort(groups.data, kind="stable")
            if not x.rank or x.shape[-1] != k:
                raise InferenceError(f"cannot multiply {list(x.shape)} by [{k}, {n}]")
            x = context.call("gather", [x, context.constant(order)], x.shape, _F32, [x.rank - 1])
            level = 0  # as in onnxruntime

    def make() -> Value:
        assert weights.data is not None
        assert scales.data is not None
        levels = weights.data.reshape(n, -1)
        levels = levels if order is None else _reordered(levels, bits, order)
        return matrix.pack(context, levels, scales.data, None if zeros is None else zeros.data)

    if node.prepared is None:  # others may share the weights, but not what is packed with them
        node.prepared = _digest(scales.data, None if zeros is None else zeros.data, order)
    packed = context.packed(weights, ("nbits", *matrix.ints, node.prepared), make)
    return [matrix.product(context, x, packed, _optional(inputs, 5), level)]


# ---- DequantizeLinear before a product


def rewritten(model: Model, nodes: list[NodePlan], outputs: Collection[int]) -> list[NodePlan]:
    """``nodes`` with products that read the operands of a DequantizeLinear instead of its result, if these are
    constants of 4 or 16 bits. A DequantizeLinear without other readers then makes nothing.

    Conditions, else a product reads the dequantized matrix:

    - The product is a MatMul, or a Gemm with alpha and beta of 1 and without transA, and reads the matrix on the right.
    - The matrix has rank 2, is not empty, is float32, and has float32 scales.
    - Of 4 bits: it has one scale, one per column, or one per block along k of a multiple of 8. Their magnitudes are at
      most `MAX_SCALE`: kernels multiply sums by them, so that 0 times an infinity would be left out.
    - Of 16 bits: it has several columns, because a single one is not packed, and the processor has no tiles (AMX), for
      which products take another layout.
    - The DequantizeLinear is not a custom operator of that name.
    """
    makers = {
        plan.outputs[0]: plan
        for plan in nodes
        if plan.node.op_type == "DequantizeLinear"
        and plan.outputs
        and is_plain(plan)
        and _constant_bits(model, plan.inputs[0]) in (4, 16)
    }
    if not makers:
        return nodes
    uses = collections.Counter(value for plan in nodes for value in plan.inputs)
    uses.update(outputs)
    made = []
    for plan in nodes:
        maker = makers.get(plan.inputs[1]) if len(plan.inputs) > 1 and plan.inputs[0] != plan.inputs[1] else None
        new = None if maker is None or plan.inputs[1] in plan.inputs[2:] else _product(model, plan, maker)
        if new is not None:
            uses[plan.inputs[1]] -= 1
        made.append(new or plan)
    unread = {value for value in makers if not uses[value]}
    return [_without_result(plan) if unread.intersection(plan.outputs) else plan for plan in made]


def _constant_bits(model: Model, value: int) -> int:
    """The bits of an element of an integer constant of 4 or 16 bits; 0 for all other values."""
    dtype = model.constant_type(value).dtype if model.is_constant[value] else None
    return 0 if dtype is None else {"int4": 4, "uint4": 4, "int16": 16, "uint16": 16}.get(dtype.name, 0)


def _without_result(plan: NodePlan) -> NodePlan:
    operator = dataclasses.replace(plan.operator, lower=lambda context, node, inputs: [])
    return NodePlan(plan._model, plan.index, operator, plan.node, [], [])


def _product(model: Model, plan: NodePlan, maker: NodePlan) -> NodePlan | None:
    """``plan`` as a product with the operands of ``maker``; None if a condition does not hold."""
    get = plan.node.get
    trans = 0
    if plan.node.op_type == "Gemm":
        trans = get("transB", 0)
        if get("alpha", 1.0) != 1 or get("beta", 1.0) != 1 or get("transA", 0):
            return None
    elif plan.node.op_type != "MatMul":
        return None
    levels, scale, *rest = maker.inputs
    zero = rest[0] if rest else -1
    if not model.is_constant[scale] or (zero >= 0 and not model.is_constant[zero]):
        return None
    if maker.node.get("output_dtype", 0) not in (0, _FLOAT):
        return None
    scale_type, shape = model.constant_type(scale), model.constant_type(levels).shape
    if shape is None or len(shape) != 2 or scale_type.dtype != _F32 or scale_type.shape is None:
        return None
    k, n = (int(size) for size in (shape[::-1] if trans else shape))  # type: ignore[arg-type]
    if not k or not n:
        return None
    if _constant_bits(model, levels) == 16:
        return None if n == 1 or _kernels.has_tiles() else _dequantizing(model, plan, maker, k, n, trans)
    block = _block_of(maker.node, scale_type.shape, k, n, 1 if trans else 0)
    if not block:
        return None
    factors = model.constant(scale, aligned=False)
    if not max(factors.max(), -factors.min()) <= MAX_SCALE:  # also rejects NaN
        return None
    return _reading(model, plan, levels, scale, zero, (k, n, block, trans))


def _block_of(node: Node, scale_shape: Sequence[Any], k: int, n: int, k_axis: int) -> int:
    """The length of blocks along k; 0 if scales are not one for each block of a column."""
    axis, block = node.get("axis", 1) % 2, node.get("block_size", 0)
    whole = -(-k // 8) * 8
    if math.prod(scale_shape) == 1 and not block:
        return whole if whole <= _MAX_BLOCK else 0
    if not block:
        return whole if axis != k_axis and tuple(scale_shape) == (n,) and whole <= _MAX_BLOCK else 0
    blocks = -(-k // block)
    fits = axis == k_axis and tuple(scale_shape) == ((n, blocks) if k_axis else (blocks, n))
    return block if fits and block % 8 == 0 and block <= _MAX_BLOCK else 0


def _reading(
    model: Model, plan: NodePlan, levels: int, scale: int, zero: int, sizes: tuple[int, int, int, int]
) -> NodePlan:
    k, n, block, trans = sizes
    matrix = _Matrix(k, n, 4, block, zero >= 0)
    blocks = -(-k // block)

    def columns(number: int, rows: int) -> _Array:
        """A constant as [n, rows]: a number for all, one per column, or a matrix."""
        array = model.constant(number)
        if array.ndim == 2 and not trans:
            array = array.T
        return np.broadcast_to(array.reshape(-1, 1) if array.ndim < 2 else array, (n, rows))

    def in_bytes(number: int, rows: int, width: int) -> _Array:
        """`columns` of numbers of 4 bits, those of int4 plus 8, in bytes as by `_in_bytes`; 0 after ``rows``."""
        array = columns(number, rows)
        made = np.empty((n, -(-width // 2)), np.uint8)
        for begin in range(0, n, _COLUMNS):
            part = np.zeros((min(_COLUMNS, n - begin), width), np.uint8)
            np.bitwise_and(array[begin : begin + _COLUMNS].view(np.uint8), 15, out=part[:, :rows])
            if array.dtype.name == "int4":
                part[:, :rows] ^= 8
            made[begin : begin + _COLUMNS] = _in_bytes(part, 4)
        return made

    def operands() -> tuple[_Array, _Array, _Array | None]:
        zeros = None if zero < 0 else in_bytes(zero, blocks, blocks)
        return in_bytes(levels, k, blocks * block), np.ascontiguousarray(columns(scale, blocks)), zeros

    # Without zero points, uint4 has 0, but the kernels take 8 as their default.
    dtype = model.constant_type(levels).dtype
    if zero < 0 and dtype is not None and dtype.name == "uint4":
        matrix = dataclasses.replace(matrix, has_zeros=True)
        inner = operands

        def operands() -> tuple[_Array, _Array, _Array | None]:
            made, scales, _ = inner()
            return made, scales, np.zeros((n, -(-blocks // 2)), np.uint8)

    layout: list[Hashable] = []

    def lower(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        x, factors, c = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
        _check_rank(node, x, k, n)
        found = None
        if not layout:
            found = operands()
            layout.append(("nbits", *matrix.ints, _digest(*found)))

        # Keyed by the scales, because the constant of 4 bits is unpacked when it is read.
        packed = context.packed(factors, layout[0], lambda: matrix.pack(context, *(found or operands())))
        joins = c is not None and c.shape == (n,)
        made = matrix.product(context, x, packed, c if joins else None, 0)
        return [made if joins else _plus(context, made, c)]

    operator = Operator(lower, (F32, F32, F32), {}, 1, 10_000, None, 0)
    inputs = [plan.inputs[0], scale, *plan.inputs[2:]]
    return NodePlan(model, plan.index, operator, plan.node, inputs, plan.outputs)


def _check_rank(node: Node, x: Value, k: int, n: int) -> None:
    if node.op_type == "Gemm" and x.rank != 2:
        raise InferenceError(f"cannot multiply {list(x.shape)} by {[k, n]}")


def _plus(context: Context, product: Value, c: Value | None) -> Value:
    """A product plus the C of a Gemm."""
    if c is None:
        return product
    if broadcast(c, product) != product.shape:
        raise InferenceError(f"C of shape {list(c.shape)} does not broadcast to {list(product.shape)}")
    return binary(context, "add", product, c)


def _dequantizing(model: Model, plan: NodePlan, maker: NodePlan, k: int, n: int, trans: int) -> NodePlan:
    """``plan`` with the matrix that ``maker`` computes, which is packed and then dropped."""
    levels, *others = maker.inputs

    def lower(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        x, stored, c = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
        _check_rank(node, x, k, n)
        constants = [None if value < 0 else context.constant(model.constant(value)) for value in others]
        digest = _digest(*(None if value is None else value.data for value in constants))

        def dequantized() -> Value:
            return maker.operator.lower(context, maker.node, [stored, *constants])[0]

        packed = packed_b(context, stored, 1, k, n, bool(trans), made_by=(digest, dequantized))
        p = products_of(x, Value(_F32, (k, n)))
        ints = [p.m, n, k, 0, 0, 1, 0, 0, 0, 0]
        made = context.call("matmul", [x, packed, None, None], p.shape, _F32, ints, [1.0, 0.0, 0.0, 0.0])
        return [_plus(context, made, c)]

    operator = Operator(lower, (F32, ("int16", "uint16"), F32), {}, 1, 10_000, None, 0)
    return NodePlan(model, plan.index, operator, plan.node, [plan.inputs[0], levels, *plan.inputs[2:]], plan.outputs)


# ---- GatherBlockQuantized


def _gather_refusal(model: Model, view: NodeView) -> str | None:
    attributes = view.attributes
    bits, block = attributes.get("bits", 4), attributes.get("block_size", 128)
    if block < 16 or block & (block - 1):
        return Contradiction(f"GatherBlockQuantized with block_size = {block}; it must be a power of 2 from 16 on")
    data, indices, scales, *rest = model.node_inputs[view.index].tolist()
    for name, value in (("data", data), ("scales", scales), ("zero_points", rest[0] if rest else -1)):
        if value >= 0 and not model.is_constant[value]:
            return f"GatherBlockQuantized whose input {name} is not constant"
    kind, factors = model.constant_type(data), model.constant_type(scales)
    if kind.shape is None or len(kind.shape) < 2:
        return Contradiction("GatherBlockQuantized of data of rank below 2")
    unsupported = kind.dtype == _BYTE and bits not in (4, 8)
    if unsupported and bits != 2:  # other devices support 2 bits
        return f"GatherBlockQuantized with bits = {bits}; kernels support 4 and 8"
    rank = len(kind.shape)
    if factors.shape is not None and len(factors.shape) != rank:
        return Contradiction(f"GatherBlockQuantized with scales of shape {list(factors.shape)} for data of rank {rank}")
    rows_axis, axis = attributes.get("gather_axis", 0), attributes.get("quantize_axis", 1)
    for name, number in (("gather_axis", rows_axis), ("quantize_axis", axis)):
        if not -rank <= number < rank:
            return Contradiction(f"GatherBlockQuantized with {name} = {number} of data of rank {rank}")
    per_byte = 8 // bits if kind.dtype == _BYTE else 1
    expected = [int(size) for size in kind.shape]  # type: ignore[arg-type]
    expected[-1] *= per_byte
    size = expected[rows_axis]
    expected[axis] = -(-expected[axis] // block)
    if factors.shape != tuple(expected):
        return Contradiction(
            f"GatherBlockQuantized whose scales do not have shape {expected}, as data, block_size and axes state"
        )
    if model.is_constant[indices]:
        chosen = model.constant(indices)
        wrong = chosen[(chosen < -size) | (chosen >= size)]
        if wrong.size:
            return Contradiction(f"GatherBlockQuantized with index {wrong[0]} in an axis of {size}")
    if unsupported:
        return f"GatherBlockQuantized with bits = {bits}; kernels support 4 and 8"
    if rows_axis not in (0, -rank):
        return f"GatherBlockQuantized with gather_axis = {rows_axis}; kernels support 0"
    if axis not in (rank - 1, -1):
        return f"GatherBlockQuantized with quantize_axis = {axis}; kernels support the last axis"
    if not np.isfinite(model.constant(scales, aligned=False)).all():
        return Contradiction("GatherBlockQuantized whose input scales has a number that is not finite")
    if rest and rest[0] >= 0:
        shape = model.constant_type(rest[0]).shape
        if shape != (*expected[:-1], -(-expected[-1] // per_byte)):
            return Contradiction(
                f"GatherBlockQuantized whose zero_points have shape {shape} for scales of shape {list(factors.shape)}"
            )
    return None


_LEVELS = ("uint8", "int4", "uint4")


@_contrib(
    "GatherBlockQuantized",
    dtypes=(_LEVELS, INDICES, F32, _LEVELS),
    attributes={"gather_axis": None, "quantize_axis": None, "block_size": None, "bits": None},
    required=(0, 1, 2),
    check=_gather_refusal,
    result=2,
)
def _gather_block_quantized(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    data, indices, scales = (_required(value) for value in inputs[:3])
    zeros = _optional(inputs, 3)
    block, bits = node.get("block_size", 128), node.get("bits", 4) if data.dtype == _BYTE else 8

    def levels_of(value: Value) -> Value:
        """int4 and uint4 as bytes, which is how they are kept in memory."""
        if value.dtype == _BYTE:
            return value
        assert value.data is not None
        kind = np.dtype(np.int8 if value.dtype.name == "int4" else np.uint8)
        array = value.data.astype(kind)
        return Value(kind, value.shape, array, shared=value.shared)

    operands = [levels_of(data), indices, scales, None if zeros is None else levels_of(zeros)]
    shape = (*indices.shape, *data.shape[1:-1], data.shape[-1] * 8 // bits)
    ints = [bits, block, 2 ** (bits - 1) if data.dtype == _BYTE else 0]
    return [context.call("gather_nbits", operands, shape, _F32, ints)]
