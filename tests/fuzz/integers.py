"""Quantized and integer operators: a node with random shapes, attributes, zero points and scales, sometimes two.

Everything is compared exactly, except results of half precision. Operands use their whole range, so that sums and
products wrap. If onnxruntime computes integers in floating point, or ends the process, it is not a judge of the
case. `run.py --isa all` runs the cases in every instruction set.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.differential import SATURATES, Case, Known

__all__ = ["KNOWN", "case"]

Array = np.ndarray[Any, Any]
BYTES = ("uint8", "int8")
SMALL = (*BYTES, "uint16", "int16")
SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
BOTH, TEMPLATE = ("TEMPLATE", "onnxruntime"), ("TEMPLATE",)


def _op(case: Case) -> onnx.NodeProto:
    return case.model.graph.node[0]


def _is(*op_types: str, **attributes: Any) -> Callable[[Case], bool]:
    def applies(case: Case) -> bool:
        found = {a.name: helper.get_attribute_value(a) for a in _op(case).attribute}
        return _op(case).op_type in op_types and all(found.get(name) == value for name, value in attributes.items())

    return applies


def _types(case: Case) -> set[str]:
    """Of the first node's operands and results."""
    graph = case.model.graph
    found = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)}
    found |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    numbers = {found.get(name, 0) for name in (*_op(case).input, *_op(case).output)} - {0}
    return {helper.tensor_dtype_to_np_dtype(number).name for number in numbers}


def _crops(case: Case) -> bool:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in _op(case).attribute}
    is_same = attributes.get("auto_pad", b"").startswith(b"SAME")
    kernel = attributes.get("kernel_shape", ())
    strides = attributes.get("strides", ())
    # By two at least: with one less the pad that is short is halved to none.
    return is_same and any(
        stride - size > 1 for stride, size in zip(strides, kernel or [1] * len(strides), strict=True)
    )


KNOWN = (
    Known(
        "onnxruntime",
        "it computes Mod with fmod = 1 of 64-bit integers in float64",
        lambda case: _is("Mod", fmod=1)(case) and bool(_types(case) & {"int64", "uint64"}),
    ),
    Known(
        "onnxruntime",
        "it converts quotients to int32 before it saturates, to 16 bits and in blocks, so that large ones change sign",
        lambda case: (
            _is("QuantizeLinear")(case)
            and (bool(_types(case) & {"int16", "uint16"}) or any(a.name == "block_size" for a in _op(case).attribute))
            and _has_large(case)
        ),
    ),
    Known(
        "onnxruntime",
        "its convolutions crop the image where auto_pad meets strides beyond the kernel",
        _crops,
    ),
    SATURATES,
)


def _has_large(case: Case) -> bool:
    """Whether a quotient may be 2**31 or more."""
    return any(
        array.dtype == np.float32 and bool((~(np.abs(array) < 1e6)).any())
        for feeds in case.calls
        for array in feeds.values()
    )


@dataclasses.dataclass
class Operand:
    """An input or a constant. ``make`` returns its array for a number of images or rows."""

    name: str
    make: Callable[[int], Array]
    is_constant: bool


class Maker:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.operands: list[Operand] = []
        self.nodes: list[onnx.NodeProto] = []
        self.judges = BOTH
        self.opset = 21
        self.rows = [int(n) for n in rng.choice([0, 1, 1, 2, 3, 5], int(rng.integers(1, 4)))]
        self.outputs: list[str] = []

    # -- choosing

    def pick(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def often(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def sizes(self, rank: int, *sizes: int) -> tuple[int, ...]:
        return tuple(self.pick(*(sizes or (1, 1, 2, 3, 4, 5, 8, 17))) for _ in range(rank))

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        sizes = self.sizes(int(self.rng.integers(least, most + 1)))
        return tuple(0 if self.often(0.02) else size for size in sizes)

    def beside(self, shape: Sequence[int]) -> tuple[int, ...]:
        """One that broadcasts with it."""
        made = [size if self.often(0.7) else 1 for size in shape]
        return tuple(made[int(self.rng.integers(len(made) + 1)) :] if self.often(0.3) else made)

    # -- operands

    def integers(self, dtype: str, shape: Sequence[int], low: int | None = None, high: int | None = None) -> Array:
        """All of the range, its ends more often; or from ``low`` to ``high``."""
        limits = np.iinfo(dtype)
        least, most = limits.min if low is None else max(low, limits.min), limits.max if high is None else high
        most = min(most, limits.max)
        made = self.rng.integers(least, most, tuple(shape), dtype=dtype, endpoint=True)
        if low is None and self.often(0.5):
            ends = np.array([least, most, 0, 1, most // 2], dtype)
            made = np.where(self.rng.random(made.shape) < 0.2, self.rng.choice(ends, made.shape), made).astype(dtype)
        return np.asarray(made)

    def give(self, array: Array | Callable[[int], Array], constant: float = 0.4) -> str:
        """The name of an operand. A function makes a new array for each call."""
        make = array if callable(array) else lambda _: array
        is_constant = self.often(constant)
        value = make(1) if is_constant else None
        self.operands.append(Operand(f"x{len(self.operands)}", make if value is None else lambda _: value, is_constant))
        return self.operands[-1].name

    def numbers(
        self,
        dtype: str,
        shape: Sequence[int],
        low: int | None = None,
        high: int | None = None,
        constant: float = 0.3,
    ) -> str:
        return self.give(lambda _: self.integers(dtype, shape, low, high), constant)

    def fixed(self, *numbers: int, dtype: str = "int64") -> str:
        return self.give(np.array(numbers, dtype), 1.0 if self.often(0.6) else 0.0)

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        self.nodes.append(helper.make_node(op, given, names, **attributes))
        self.outputs += names
        return names

    def scale(self, shape: Sequence[int] = (), about: float = 0.05) -> Array:
        """Powers of two, which make many results halves; or any."""
        if self.often(0.3):
            return np.asarray(np.exp2(np.round(np.log2(about)) + self.rng.integers(-2, 3, tuple(shape))), np.float32)
        return np.asarray(self.rng.uniform(about / 2, about * 2, tuple(shape)), np.float32)

    def zero(self, dtype: str, shape: Sequence[int] = ()) -> Array:
        """Zero points: in the middle, at an end, or any."""
        middle = 0 if dtype.startswith("i") else (np.iinfo(dtype).max + 1) // 2
        if self.often(0.4):
            return np.full(tuple(shape), middle, dtype)
        return self.integers(dtype, shape)


# ---- products and convolutions


def _convolution(m: Maker) -> None:
    rank = m.pick(1, 2, 2, 2, 3)
    group = m.pick(1, 1, 1, 1, 2, 3, 8, 16, 33, 65)
    channels = m.pick(1, 2, 3, 4, 5, 8, 31, 32, 33, 40) if group == 1 else m.pick(1, 1, 1, 2, 3, 4, 5)
    maps = group * (m.pick(1, 2, 3, 5, 16, 32, 33, 40) if group == 1 else m.pick(1, 1, 2, 3))
    kernel = (1,) * rank if m.often(0.3) else m.sizes(rank, 1, 1, 2, 3, 4, 5)
    strides = m.sizes(rank, 1, 1, 2, 3, 4) if m.often(0.5) else (1,) * rank
    dilations = m.sizes(rank, 1, 1, 2, 3, 4) if m.often(0.4) else (1,) * rank
    pads = [m.pick(0, 0, 1, 2, 3, 6) for _ in range(2 * rank)] if m.often(0.7) else [0] * (2 * rank)
    if m.often(0.3):
        pads[:rank] = [0] * rank
    image = list(m.sizes(rank, 1, 2, 3, 4, 5, 7, 8, 9, 17, 20))
    for axis, (k, d) in enumerate(zip(kernel, dilations, strict=True)):
        image[axis] = max(image[axis], (k - 1) * d + 1 - pads[axis] - pads[axis + rank])
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    if m.often(0.15):
        attributes["auto_pad"] = m.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        dilations = attributes["dilations"] = (1,) * rank  # onnxruntime takes no others here
        image = [max(n, (k - 1) * d + 1) for n, k, d in zip(image, kernel, dilations, strict=True)]
    else:
        attributes["pads"] = pads
    if m.often(0.3):
        attributes["kernel_shape"] = kernel
    x_type, w_type = m.pick(*BYTES), m.pick(*BYTES)
    per_map = m.often(0.5)
    is_scaled = m.often(0.6)
    if m.often(0.5) if is_scaled else per_map:
        m.judges = TEMPLATE
    fixed = 1.0 if m.often(0.6) else 0.0  # weights are constants more often than not
    x = m.give(lambda rows: m.integers(x_type, (rows, group * channels, *image)), 0.0)
    w = m.give(lambda _: m.integers(w_type, (maps, channels, *kernel)), fixed)
    x_zero = m.give(lambda _: m.zero(x_type), 0.7)
    if is_scaled and not m.often(0.2):  # onnxruntime takes signed weights whose zero point is not 0 for others
        m.judges = m.judges if w_type == "uint8" and not per_map else TEMPLATE
    w_zero = m.give(lambda _: m.zero(w_type, (maps,) if per_map else ()), fixed)
    if not is_scaled:
        names = [x, w, "" if m.often(0.2) else x_zero, "" if m.often(0.2) else w_zero]
        m.node("ConvInteger", names, **attributes)
        return
    w_shape = (maps,) if per_map or m.often(0.3) else ()
    scales = [m.give(m.scale(shape, about), 0.7) for shape, about in (((), 0.03), (w_shape, 0.03), ((), 2.0))]
    y_type = x_type
    bias = m.numbers("int32", (maps,), -9000, 9000, fixed) if m.often(0.5) else ""
    y_zero = m.give(m.zero(y_type), 0.7)
    m.node("QLinearConv", [x, scales[0], x_zero, w, scales[1], w_zero, scales[2], y_zero, bias], **attributes)


def _product(m: Maker) -> None:
    rows, inner, columns = m.pick(1, 2, 5, 12, 17, 33), m.pick(1, 2, 3, 4, 7, 16, 33, 70), m.pick(1, 2, 15, 16, 17, 40)
    batch = m.shape(0, 2)
    left, right = (*m.beside(batch), rows, inner), (*m.beside(batch), inner, columns)
    if m.often(0.1):
        left = (inner,)
    elif m.often(0.1):
        right = (inner,)
    a_type, b_type = m.pick(*BYTES), m.pick(*BYTES)
    is_scaled = m.often(0.6)
    per_row, per_column = len(left) == len(right) == 2 and m.often(0.2), len(right) == 2 and m.often(0.4)
    if per_row or (is_scaled and m.often(0.5)) or len(left) == 1 or len(right) == 1:
        m.judges = TEMPLATE
    if (is_scaled and (per_column or a_type == "int8")) or 0 in batch:
        m.judges = TEMPLATE
    fixed = 1.0 if m.often(0.6) else 0.0
    a, b = m.numbers(a_type, left, constant=0), m.numbers(b_type, right, constant=fixed)
    rows_shape, columns_shape = (left[-2],) if per_row else (), (right[-1],) if per_column else ()
    a_zero, b_zero = m.give(m.zero(a_type, rows_shape), 0.6), m.give(m.zero(b_type, columns_shape), fixed)
    if not is_scaled:
        m.node("MatMulInteger", [a, b, "" if m.often(0.2) else a_zero, "" if m.often(0.2) else b_zero])
        return
    scales = [
        m.give(m.scale(shape, about), 0.7) for shape, about in ((rows_shape, 0.03), (columns_shape, 0.03), ((), 2.0))
    ]
    m.node("QLinearMatMul", [a, scales[0], a_zero, b, scales[1], b_zero, scales[2], m.give(m.zero(a_type), 0.7)])


def _wide_product(m: Maker) -> None:
    """MatMul and Gemm of integers, which wrap."""
    dtype = m.pick("int32", "int64", "uint32", "uint64")
    rows, inner, columns = m.sizes(3, 1, 2, 3, 5, 8, 17)
    if m.often(0.5):
        batch = tuple(max(size, 1) for size in m.shape(0, 2))
        shapes = (*m.beside(batch), rows, inner), (*m.beside(batch), inner, columns)
        m.node("MatMul", [m.numbers(dtype, shape) for shape in shapes])
        return
    turns = {"transA": m.pick(0, 1), "transB": m.pick(0, 1)}
    left = (inner, rows) if turns["transA"] else (rows, inner)
    right = (columns, inner) if turns["transB"] else (inner, columns)
    bias = m.numbers(dtype, m.beside((rows, columns))) if m.often(0.7) else ""
    factors = {"alpha": float(m.pick(1, 1, 2, 0)), "beta": float(m.pick(1, 1, 0, 3))}
    m.judges = TEMPLATE  # onnxruntime multiplies by floats
    m.node("Gemm", [m.numbers(dtype, left), m.numbers(dtype, right), bias], **turns, **factors)


# ---- between floats and integers


def _floats(m: Maker, shape: Sequence[int], dtype: str = "float32") -> Array:
    numbers = m.rng.normal(size=tuple(shape)) * np.exp2(m.rng.integers(-3, 9, tuple(shape)))
    if m.often(0.3):
        extremes = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30, 3e9, -3e9, 1e-40]
        numbers = np.where(m.rng.random(numbers.shape) < 0.3, m.rng.choice(extremes, numbers.shape), numbers)
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype)


def _granularity(m: Maker, shape: Sequence[int]) -> tuple[tuple[int, ...], dict[str, int]]:
    """The shape of a scale for ``shape``, and its attributes."""
    if not shape or m.often(0.3):
        return m.pick((), (1,)) if shape and shape[0] == 1 else (), {}
    axis = int(m.rng.integers(len(shape)))
    named = {"axis": axis - len(shape) if m.often(0.3) else axis}
    if m.often(0.5):
        return (shape[axis],), named
    block = m.pick(1, 2, 3, 16)
    if math.prod(shape[:axis] + shape[axis + 1 :]) == 1 and shape[axis] <= block:
        return (), {}  # one scale: onnxruntime then takes no blocks
    return (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :]), {**named, "block_size": block}


def _quantize(m: Maker) -> None:
    shape = tuple(max(size, 1) for size in m.shape(0, 4))
    scale_shape, attributes = _granularity(m, shape)
    dtype = m.pick(*SMALL)
    m.judges = m.pick(BOTH, TEMPLATE)
    x = m.give(lambda _: _floats(m, shape), 0.0)
    scale = m.give(m.scale(scale_shape, m.pick(0.01, 1.0, 100.0)), 0.6)
    if m.often(0.8):
        m.node("QuantizeLinear", [x, scale, m.give(m.zero(dtype, scale_shape), 0.6)], **attributes)
    else:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        m.node("QuantizeLinear", [x, scale], output_dtype=number, **attributes)


def _dequantize(m: Maker) -> None:
    shape = tuple(max(size, 1) for size in m.shape(0, 4))
    scale_shape, attributes = _granularity(m, shape)
    dtype = m.pick(*SMALL, "int32")
    m.judges = TEMPLATE if dtype == "int32" else m.judges  # onnxruntime takes no zero point but 0, or wraps
    x = m.numbers(dtype, shape)
    scale = m.give(m.scale(scale_shape), 0.6)
    zero = m.give(m.zero(dtype, scale_shape), 0.6) if m.often(0.7) else ""
    m.node("DequantizeLinear", [x, scale, zero], **attributes)


def _dynamic_quantize(m: Maker) -> None:
    finite = m.often(0.7)
    m.judges = BOTH if finite else TEMPLATE  # onnxruntime's range leaves out NaN
    shape = m.shape()
    m.node("DynamicQuantizeLinear", [m.give(lambda _: _finite(m, shape, finite), 0.1)], 3)


def _finite(m: Maker, shape: Sequence[int], finite: bool) -> Array:
    made = _floats(m, shape)
    return np.where(np.isfinite(made), made, np.float32(1)).astype(np.float32) if finite else made


def _cast(m: Maker) -> None:
    """Integers to anything, wrapping; floats to what holds them."""
    target = m.pick(*INTEGERS, "float32", "float64", "float16", "bool")
    shape = m.shape()
    number = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    if m.often(0.6):
        x = m.numbers(m.pick(*INTEGERS), shape)
    elif m.often(0.3):
        x = m.give(lambda _: np.asarray(m.rng.random(shape) < 0.5))
    else:
        source = m.pick("float32", "float64", "float16")
        limits = np.iinfo(target) if target in INTEGERS else np.iinfo("int16")
        most = min(float(limits.max), 6e4 if source == "float16" else 1e18) / 2
        least = max(float(limits.min), -most)
        x = m.give(lambda _: np.asarray(m.rng.uniform(least, most, shape), source))
    m.node("Cast", [x], to=number)


# ---- element by element


def _arithmetic(m: Maker) -> None:
    op = m.pick("Add", "Sub", "Mul", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
    dtype = m.pick(*INTEGERS)
    shape = m.shape()
    count = m.pick(1, 2, 3) if op in ("Max", "Min") else 2
    shapes = [shape, *(m.beside(shape) for _ in range(count - 1))]
    m.rng.shuffle(shapes)  # type: ignore[arg-type]
    m.node(op, [m.numbers(dtype, one) for one in shapes])


def _division(m: Maker) -> None:
    op, attributes = m.pick(("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1}))
    dtype, shape = m.pick(*INTEGERS), m.shape()
    wraps = m.often(0.2)  # the least integer by -1, where onnxruntime's process ends
    by_zero = m.often(0.1)
    m.judges = TEMPLATE if wraps or (by_zero and 0 in shape) else BOTH  # which fails for no quotients too
    other = m.beside(shape)

    def divisor(_: int) -> Array:
        made = m.integers(dtype, other)
        if not by_zero:
            made = np.where(made == 0, 3, made).astype(dtype)
        return made if wraps or dtype in UNSIGNED else np.where(made == -1, 2, made).astype(dtype)

    m.node(op, [m.numbers(dtype, shape), m.give(divisor)], **attributes)


def _power(m: Maker) -> None:
    base, exponent = m.pick(*INTEGERS), m.pick(*INTEGERS)
    shape = m.shape()
    if m.often(0.5):  # what float64 holds, in which onnxruntime computes
        m.node("Pow", [m.numbers(base, shape, 1, 4), m.numbers(exponent, m.beside(shape), 0, 3)])
        return
    m.judges = TEMPLATE
    m.node("Pow", [m.numbers(base, shape), m.numbers(exponent, m.beside(shape))])


def _shift(m: Maker) -> None:
    dtype, shape = m.pick(*UNSIGNED), m.shape()
    counts = m.numbers(dtype, m.beside(shape), 0, m.pick(7, 70))
    m.node("BitShift", [m.numbers(dtype, shape), counts], direction=m.pick("LEFT", "RIGHT"))


def _compare(m: Maker) -> None:
    op = m.pick("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    dtype, shape = m.pick(*INTEGERS), m.shape()
    narrow = (0, 3) if m.often(0.5) else (None, None)
    m.node(op, [m.numbers(dtype, shape, *narrow), m.numbers(dtype, m.beside(shape), *narrow)])


def _unary(m: Maker) -> None:
    op = m.pick("Abs", "Neg", "Sign", "BitwiseNot", "Relu", "Clip")
    dtype = m.pick(*(SIGNED if op in ("Neg", "Relu") else INTEGERS))
    names = [m.numbers(dtype, m.shape())]
    if op == "Clip":
        names += [m.give(m.integers(dtype, ())) if m.often(0.7) else "" for _ in range(2)]
    m.node(op, names)


def _where(m: Maker) -> None:
    dtype, shape = m.pick(*INTEGERS), m.shape()
    chosen = m.beside(shape)
    condition = m.give(lambda _: np.asarray(m.rng.random(chosen) < 0.5))
    m.node("Where", [condition, m.numbers(dtype, shape), m.numbers(dtype, m.beside(shape))])


# ---- along axes


def _reduction(m: Maker) -> None:
    op = m.pick("Sum", "Prod", "Max", "Min", "Mean", "L1", "SumSquare")
    dtype = m.pick("int32", "int64", *(BYTES if op in ("Max", "Min") else ()))
    shape = tuple(max(size, 1) for size in m.shape(0 if m.often(0.1) else 1))
    axes = [int(a) - (len(shape) if m.often(0.3) else 0) for a in m.rng.permutation(len(shape))[: m.pick(1, 1, 2, 3)]]
    attributes: dict[str, Any] = {"keepdims": m.pick(0, 1)}
    small = m.often(0.5) or op in ("Max", "Min")  # onnxruntime converts some wide sums by way of floats
    m.judges = BOTH if small else TEMPLATE
    x = m.numbers(dtype, shape, *((None, None) if op in ("Max", "Min") or not small else (-3, 3)))
    m.opset = m.pick(13, 18, 20, 21)
    by_input = m.opset >= 18 or op == "Sum"
    if not axes or m.often(0.15):
        if by_input and m.often(0.4):
            attributes["noop_with_empty_axes"] = m.pick(0, 1)
        m.node(f"Reduce{op}", [x], **attributes)
    elif by_input:
        m.node(f"Reduce{op}", [x, m.give(np.array(axes, np.int64), 0.7)], **attributes)
    else:
        m.node(f"Reduce{op}", [x], axes=axes, **attributes)


def _extreme(m: Maker) -> None:
    shape = tuple(max(size, 1) for size in m.shape(1))
    attributes = {"keepdims": m.pick(0, 1), "select_last_index": m.pick(0, 1)}
    axis = int(m.rng.integers(-len(shape), len(shape)))
    narrow = (0, 3) if m.often(0.5) else (None, None)  # many of them are equal
    dtype = m.pick("int32", "int64", *BYTES)
    m.node(m.pick("ArgMax", "ArgMin"), [m.numbers(dtype, shape, *narrow)], axis=axis, **attributes)


def _top_k(m: Maker) -> None:
    shape = tuple(max(size, 1) for size in m.shape(1))
    axis = int(m.rng.integers(-len(shape), len(shape)))
    narrow = (0, 3) if m.often(0.5) else (None, None)
    k = int(m.rng.integers(0, shape[axis] + 1))
    m.node(
        "TopK", [m.numbers(m.pick(*INTEGERS), shape, *narrow), m.fixed(k)], 2, axis=axis, largest=m.pick(0, 1), sorted=1
    )


def _cumulate(m: Maker) -> None:
    shape = tuple(max(size, 1) for size in m.shape(1))
    axis = m.give(np.array(int(m.rng.integers(-len(shape), len(shape))), m.pick("int32", "int64")), 0.7)
    dtype = m.pick("int32", "int64", "uint32", "uint64")
    m.node("CumSum", [m.numbers(dtype, shape), axis], exclusive=m.pick(0, 1), reverse=m.pick(0, 1))


def _pad(m: Maker) -> None:
    shape = m.shape(1)
    mode = m.pick("constant", "constant", "reflect", "edge", "wrap")
    m.opset = 19
    begin = [m.pick(0, 0, 1, 2, 5, -1, -2) for _ in shape]
    end = [m.pick(0, 0, 1, 3, 7, -1, -2) for _ in shape]
    for axis, size in enumerate(shape):
        left = size + min(begin[axis], 0) + min(end[axis], 0)
        if left < 1:
            begin[axis], end[axis] = max(begin[axis], 0), max(end[axis], 0)
            left = size
        if mode == "reflect":  # onnxruntime reflects once
            begin[axis], end[axis] = min(begin[axis], left - 1), min(end[axis], left - 1)
        if mode != "constant" and not size:
            begin[axis] = end[axis] = 0
    m.judges = TEMPLATE if 0 in shape else BOTH  # onnxruntime takes an empty axis for a mistake
    dtype = m.pick("int8", "uint8", "int32", "int64", "uint32", "uint64")
    value = m.give(m.integers(dtype, ()), 0.7) if mode == "constant" and m.often(0.6) else ""
    m.node("Pad", [m.numbers(dtype, shape), m.give(np.array(begin + end, np.int64), 0.7), value], mode=mode)


def _gather(m: Maker) -> None:
    shape = tuple(max(size, 1) for size in m.shape(1))
    axis = int(m.rng.integers(len(shape)))
    size = shape[axis]
    dtype, index = m.pick(*INTEGERS), m.pick("int32", "int64")
    if m.often(0.4):
        m.node("Gather", [m.numbers(dtype, shape), m.numbers(index, m.shape(0, 2), -size, size - 1)], axis=axis)
    elif m.often(0.5):
        places = tuple(max(1, int(m.rng.integers(1, n + 1))) for n in shape)
        places = (*places[:axis], m.pick(1, 2, 7), *places[axis + 1 :])
        m.node("GatherElements", [m.numbers(dtype, shape), m.numbers(index, places, -size, size - 1)], axis=axis)
    else:
        depth = int(m.rng.integers(1, len(shape) + 1))
        lead = m.shape(0, 2)

        def places_of(_: int) -> Array:
            return np.stack([m.integers("int64", lead, -n, n - 1) for n in shape[:depth]], axis=-1)

        m.node("GatherND", [m.numbers(dtype, shape), m.give(places_of)])


def _scatter(m: Maker) -> None:
    shape = tuple(max(size, 1) for size in m.shape(1))
    axis = int(m.rng.integers(len(shape)))
    dtype = m.pick("int32", "int64", "int8", "uint8")
    m.opset = 18
    reduction = m.pick("none", "add", "mul", "max", "min")
    x = m.numbers(dtype, shape, -5, 5)
    if m.often(0.5):
        places = tuple(int(m.rng.integers(1, n + 1)) for n in shape)

        def along(_: int) -> Array:  # each place once
            made = np.argsort(m.rng.random((*places[:axis], shape[axis], *places[axis + 1 :])), axis=axis)
            made = np.take(made, np.arange(places[axis]), axis=axis)
            return np.where(m.rng.random(made.shape) < 0.3, made - shape[axis], made).astype(np.int64)

        m.node("ScatterElements", [x, m.give(along), m.numbers(dtype, places, -3, 3)], axis=axis, reduction=reduction)
        return
    count = min(math.prod(shape[: axis + 1]), m.pick(1, 2, 5))

    def apart(_: int) -> Array:
        flat = m.rng.permutation(math.prod(shape[: axis + 1]))[:count]
        return np.stack(np.unravel_index(flat, shape[: axis + 1]), axis=-1).astype(np.int64)

    updates = m.numbers(dtype, (count, *shape[axis + 1 :]), -3, 3)
    m.node("ScatterND", [x, m.give(apart), updates], reduction=reduction)


def _choose(m: Maker) -> None:
    """Results whose size depends on data, and one-hot vectors."""
    way = m.pick("Unique", "NonZero", "Compress", "OneHot")
    shape = tuple(max(size, 1) for size in m.shape(1, 3))
    if way == "Unique":
        attributes = {"sorted": 1, **({"axis": int(m.rng.integers(len(shape)))} if m.often(0.5) else {})}
        m.node("Unique", [m.numbers(m.pick("int64", "int8"), shape, -2, 2)], 4, **attributes)
    elif way == "NonZero":
        m.node("NonZero", [m.numbers(m.pick("int32", "int64", "uint8"), shape, -1, 1)])
    elif way == "Compress":
        axis = int(m.rng.integers(len(shape)))
        size = int(m.rng.integers(1, shape[axis] + 1))
        condition = m.give(lambda _: np.asarray(m.rng.random(size) < 0.5))
        m.node("Compress", [m.numbers(m.pick(*INTEGERS), shape), condition], axis=axis)
    else:
        values = m.numbers("int64", (2,))
        depth = m.pick(1, 3, 5)
        indices = m.numbers("int64", shape, -depth - 2, depth + 2)
        m.node("OneHot", [indices, m.give(np.array(depth), 0.7), values], axis=int(m.rng.integers(-1, len(shape) + 1)))


def _windows(m: Maker) -> None:
    if m.often(0.5):
        kernel, dtype = m.sizes(2, 1, 2, 3), m.pick(*BYTES)
        image = tuple(max(size, 4) for size in m.sizes(2, 4, 5, 9, 17))
        attributes = {"kernel_shape": kernel, "strides": m.sizes(2, 1, 2, 3), "ceil_mode": m.pick(0, 1)}
        pads = [m.pick(0, k - 1) for k in (*kernel, *kernel)]
        x = m.give(lambda rows: m.integers(dtype, (rows, 5, *image)), 0.0)
        m.node("MaxPool", [x], pads=pads, **attributes)
        return
    scales = np.array([1, 1, m.pick(1, 2, 3), m.pick(1, 2, 4)], np.float32)
    x = m.give(lambda rows: m.integers(m.pick("uint8"), (max(rows, 1), 3, 5, 7)), 0.0)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    m.node("Resize", [x, "", m.give(scales, 1.0)], **attributes)


# ---- what follows


def _follow(m: Maker, made: str, dtype: str) -> None:
    """Another node on what the first made."""
    if dtype == "bool":
        m.node("Not", [made])
    elif dtype in INTEGERS:
        way = m.pick("Add", "Mul", "Cast", "Max", "Identity")
        if way == "Cast":
            m.node("Cast", [made], to=helper.np_dtype_to_tensor_dtype(np.dtype(m.pick("int64", "int8", "float32"))))
        elif way == "Identity":
            m.node("Identity", [made])
        else:
            m.node(way, [made, m.numbers(dtype, (), constant=0.8)])


GENERATORS: tuple[tuple[Callable[[Maker], None], int], ...] = (
    (_convolution, 10),
    (_product, 8),
    (_wide_product, 2),
    (_quantize, 4),
    (_dequantize, 3),
    (_dynamic_quantize, 2),
    (_cast, 3),
    (_arithmetic, 3),
    (_division, 4),
    (_power, 2),
    (_shift, 1),
    (_compare, 1),
    (_unary, 2),
    (_where, 1),
    (_reduction, 3),
    (_extreme, 2),
    (_top_k, 2),
    (_cumulate, 1),
    (_pad, 3),
    (_gather, 2),
    (_scatter, 2),
    (_choose, 2),
    (_windows, 1),
)


def case(rng: np.random.Generator) -> Case:
    weights = np.array([weight for _, weight in GENERATORS], float)
    m = Maker(rng)
    generate = GENERATORS[int(rng.choice(len(GENERATORS), p=weights / weights.sum()))][0]
    generate(m)
    arrays = {operand.name: [operand.make(rows) for rows in m.rows] for operand in m.operands}
    used = set(itertools.chain.from_iterable(node.input for node in m.nodes))
    typed = _model(m, arrays, used)
    outputs = {output.name: output.type.tensor_type.elem_type for output in typed.graph.output}
    if m.often(0.3) and outputs[m.outputs[0]]:
        _follow(m, m.outputs[0], helper.tensor_dtype_to_np_dtype(outputs[m.outputs[0]]).name)
        arrays |= {o.name: [o.make(rows) for rows in m.rows] for o in m.operands if o.name not in arrays}
        used = set(itertools.chain.from_iterable(node.input for node in m.nodes))
        typed = _model(m, arrays, used)
    calls = [
        {o.name: arrays[o.name][call] for o in m.operands if not o.is_constant and o.name in used}
        for call in range(len(m.rows))
    ]
    return Case(typed, calls, f"{m.nodes[0].op_type}", judges=m.judges)


def _model(m: Maker, arrays: dict[str, list[Array]], used: set[str]) -> onnx.ModelProto:
    inputs = []
    for operand in m.operands:
        first = arrays[operand.name][0]
        if operand.is_constant or operand.name not in used:
            continue
        changes = any(array.shape != first.shape for array in arrays[operand.name])
        dims = [f"{operand.name}_{axis}" if changes and axis == 0 else size for axis, size in enumerate(first.shape)]
        inputs.append(helper.make_tensor_value_info(operand.name, helper.np_dtype_to_tensor_dtype(first.dtype), dims))
    constants = [
        numpy_helper.from_array(arrays[o.name][0], o.name) for o in m.operands if o.is_constant and o.name in used
    ]
    graph = helper.make_graph(
        m.nodes, "integers", inputs, [helper.make_empty_tensor_value_info(name) for name in m.outputs], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", m.opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)
