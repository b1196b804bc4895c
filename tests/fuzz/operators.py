"""Every operator that `CPU` has: one node, or one with others around it, over the types that it claims.

`DRAWS` has for each operator how its inputs and attributes are drawn, `ELSEWHERE` names the operators that another
generator draws, or tests hold; `test_operators.py` checks that each claimed operator is in one of the two.

Dimensions may be 0, 1 or change from call to call; any operand may be a constant; operators are drawn in several
opsets; inputs may hold NaN, infinities, denormal and huge numbers where the result does not depend on the order of
sums. Operators that compute one element from one element are compared element by element.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

import hetero.devices.cpu.plugin  # noqa: F401  registers the operators
from fuzz.differential import LOG_SOFTMAX, Case, Known
from hetero.devices.cpu.registry import OPERATORS, find
from hetero.devices.template.corrections import resizing

__all__ = ["DRAWS", "ELSEWHERE", "FUNCTIONS", "KNOWN", "case"]

Array = np.ndarray[Any, Any]
Dim = int | str
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
FREQUENCY = np.array([1, 3, 4, 4, 3, 2, 2, 2, 1, 1, 1, 1], float) / 25
LONG = (65, 129, 257, 513, 1025, 1100)
"""Sizes of one axis beside short ones: kernels check and compute long rows in blocks."""
EXTREME = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    -1e-40,
    1e-30,
    1e30,
    -1e38,
    3e38,
    88.8,
    -104.0,
)
NOT_FINITE = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name)) if name in ("bfloat16", "int4", "uint4") else np.dtype(name)


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


@dataclasses.dataclass
class Operand:
    name: str
    arrays: list[Array]  # one for each call
    dims: tuple[Dim, ...]
    is_constant: bool


class Maker:
    """Draws one case."""

    def __init__(self, rng: np.random.Generator, op: str) -> None:
        self.rng = rng
        self.op = op
        self.domain, _, self.op_type = op.rpartition("::")
        self.opset = int(rng.choice([7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24]))
        if self.domain:
            self.opset = 21
        if self.domain == "ai.onnx.ml":
            self.version = int(rng.choice([1, 2, 3, 4, 5]))
        elif self.domain:
            self.version = 1
        else:
            self.version = self.opset
        self.calls: list[dict[str, int]] = [
            {"N": self.size(), "M": self.size(), "ONE": 1} for _ in range(int(rng.integers(1, 4)))
        ]
        self.style = self.pick("plain", "plain", "ties", "extreme", "huge")
        self.constants = self.pick(0.0, 0.3, 1.0)
        """How likely an operand is a constant."""
        self.operands: dict[str, Operand] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.outputs: list[str] = []
        self.judges: tuple[str, ...] = ("TEMPLATE", "onnxruntime")
        self.elementwise = False
        self.tolerance = 2e-5

    # -- choosing

    def pick(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def size(self) -> int:
        return int(self.rng.choice(SIZES, p=FREQUENCY))

    def dims(self, rank: int | None = None, least: int = 0) -> tuple[Dim, ...]:
        """Dimensions; some change from call to call."""
        rank = int(self.rng.integers(least, 5)) if rank is None else rank
        made: list[Dim] = []
        for _ in range(rank):
            made.append(self.pick("N", "M") if self.chance(0.15) else self.size())
        if made and self.chance(0.05):
            made = [dim if isinstance(dim, str) else min(dim, 3) for dim in made]
            made[int(self.rng.integers(rank))] = self.pick(*LONG)
        return tuple(made)

    def fixed(self, rank: int, low: int = 1, high: int = 6) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.integers(low, high, rank))

    def shape(self, dims: Sequence[Dim], call: int) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else self.calls[call][dim] for dim in dims)

    def lower(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Dimensions that broadcast to ``dims``."""
        kept = dims[int(self.rng.integers(len(dims) + 1)) if self.chance(0.3) else 0 :]
        return tuple(1 if self.chance(0.25) else dim for dim in kept)

    def axis(self, rank: int) -> int:
        return int(self.rng.integers(-rank, rank)) if self.opset >= 11 or self.domain else int(self.rng.integers(rank))

    def axes(self, rank: int) -> list[int]:
        chosen = self.rng.permutation(rank)[: int(self.rng.integers(rank + 1))]
        return [int(a) - (rank if self.chance(0.4) and self.opset >= 11 else 0) for a in chosen]

    def dtype(self, *among: str, at: int = 0) -> np.dtype[Any]:
        """A type that the operator takes at this position."""
        entry = find(self.op, self.version)
        if entry is None:
            raise Undefined
        accepted = sorted(entry.dtypes[min(at, len(entry.dtypes) - 1)])
        names = [name for name in accepted if name not in ("object", "not a tensor") and (not among or name in among)]
        if not names:
            raise Undefined
        return dtype_of("float32" if "float32" in names and self.chance(0.4) else self.pick(*names))

    # -- values

    def numbers(self, dtype: np.dtype[Any], shape: Sequence[int], style: str = "") -> Array:
        style = style or self.style
        if dtype == np.bool_:
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtype.kind in "iu" or dtype.name in ("int4", "uint4"):
            info = ml_dtypes.iinfo(dtype)
            if style in ("extreme", "huge"):
                some = [info.min, info.max, 0, 1, info.max // 2, info.min // 2, max(info.min, -1), info.max - 1]
                full = self.rng.integers(
                    int(info.min), int(info.max), shape, np.uint64 if info.min == 0 else np.int64, endpoint=True
                )
                at = self.rng.random(shape) < 0.4
                made = np.where(at, np.asarray(some, full.dtype)[self.rng.integers(len(some), size=shape)], full)
                return np.asarray(made).astype(dtype)
            return np.asarray(self.rng.integers(max(int(info.min), -4), 6, shape)).astype(dtype)
        if style == "ties":
            return np.asarray(self.rng.integers(-5, 6, shape) / 2).astype(dtype)
        made = np.asarray(self.rng.standard_normal(shape))
        if style == "extreme":
            at = self.rng.random(shape) < self.pick(0.05, 0.3, 1.0)
            made = np.where(at, self.rng.choice(EXTREME if self.elementwise else NOT_FINITE, shape), made)
        elif style == "huge" and self.elementwise:
            made = made * 10.0 ** self.rng.uniform(-40, 38, shape)
        with np.errstate(over="ignore", under="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(made).astype(dtype)

    def put(self, make: Callable[[int], Array], dims: Sequence[Dim], constant: bool | None = None) -> str:
        """An operand whose array of each call ``make`` returns."""
        arrays = [np.asarray(make(call)) for call in range(len(self.calls))]
        moves = any(isinstance(dim, str) for dim in dims)
        is_constant = not moves and (self.chance(self.constants) if constant is None else constant)
        if is_constant:
            arrays = [arrays[0]] * len(arrays)
        name = f"x{len(self.operands)}"
        self.operands[name] = Operand(name, arrays, tuple(dims), is_constant)
        return name

    def x(self, dtype: Any, dims: Sequence[Dim], style: str = "", constant: bool | None = None) -> str:
        """An operand of random numbers."""
        dtype = np.dtype(dtype)
        return self.put(lambda call: self.numbers(dtype, self.shape(dims, call), style), dims, constant)

    def within(self, low: float, high: float, dtype: Any, dims: Sequence[Dim], constant: bool | None = None) -> str:
        return self.put(
            lambda call: np.asarray(self.rng.uniform(low, high, self.shape(dims, call))).astype(dtype), dims, constant
        )

    def whole(self, low: int, high: int, dtype: Any, dims: Sequence[Dim], constant: bool | None = None) -> str:
        """Integers from ``low`` below ``high``."""
        return self.put(
            lambda call: np.asarray(self.rng.integers(low, max(high, low + 1), self.shape(dims, call))).astype(dtype),
            dims,
            constant,
        )

    def this(self, value: Any, dtype: Any = np.int64, constant: bool | None = None) -> str:
        """An operand with this value in each call; without transformations of it, mostly a constant."""
        array = np.asarray(value, dtype)
        return self.put(lambda _: array, array.shape, self.chance(0.7) if constant is None else constant)

    # -- nodes

    def node(self, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> None:
        """The node under test. Attributes that the version does not have, and None, are omitted, and seldom another one
        that is optional."""
        if onnx.defs.has(self.op_type, self.domain):
            try:
                schema = onnx.defs.get_schema(self.op_type, self.version, self.domain)
            except Exception as error:
                raise Undefined from error
            attributes = {name: value for name, value in attributes.items() if name in schema.attributes}
            if len(inputs) > schema.max_input or len(inputs) < schema.min_input or schema.deprecated:
                raise Undefined
            outputs = min(outputs, schema.max_output)
            bound = {*BOUND, "axis"} if self.op == "Split" or "broadcast" in attributes else set(BOUND)
            optional = [name for name in attributes if not schema.attributes[name].required and name not in bound]
            if optional and self.chance(0.08):
                del attributes[self.pick(*optional)]
        attributes = {name: value for name, value in attributes.items() if value is not None}
        self.outputs = [f"y{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(self.op_type, inputs, self.outputs, domain=self.domain, **attributes))

    def keep(self, at: int, make: Callable[[int], Array], dims: Sequence[Dim]) -> None:
        """Compare output ``at`` only where this mask of each call holds; elsewhere the operator defines no result."""
        name = f"kept{at}"
        self.nodes.append(
            helper.make_node("Where", [self.put(make, dims, False), self.outputs[at], self.this(0, np.float32)], [name])
        )
        self.outputs[at] = name

    def nearly(self) -> None:
        """Accept bytes that differ by one: results near one half are rounded either way."""
        self.nodes += [
            helper.make_node("Cast", self.outputs, ["wide"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Add", ["wide", self.this(256, np.float32, True)], ["shifted"]),
        ]
        self.outputs = ["shifted"]
        self.tolerance = 1.2 / 256

    def sometimes(self, **attributes: Any) -> dict[str, Any]:
        return {name: value for name, value in attributes.items() if self.chance(0.6)}


BOUND = (
    "direction",
    "layout",
    "strides",
    "dilations",
    "activation_alpha",
    "activation_beta",
    "activation_gamma",
    "fmod",
    "split",
    "broadcast",
    "time_axis",
    "batch_axis",
)
"""Attributes that other attributes, shapes or types depend on."""


class Undefined(Exception):
    """What was drawn does not exist in the version that was drawn."""


Draw = Callable[[Maker], None]
DRAWS: dict[str, Draw] = {}


def draws(*names: str) -> Callable[[Draw], Draw]:
    def add(draw: Draw) -> Draw:
        DRAWS.update(dict.fromkeys(names, draw))
        return draw

    return add


# ---- element by element ----------------------------------------------------------------------------------------------

ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Elu": ("alpha",), "Celu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",),
    "Selu": ("alpha", "gamma"), "Shrink": ("bias", "lambd"), "Swish": ("alpha",), "ThresholdedRelu": ("alpha",),
}  # fmt: skip


@draws(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp",
    "Floor", "HardSwish", "Identity", "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid",
    "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "com.microsoft::Gelu",
    *ACTIVATIONS,
)  # fmt: skip
def _unary(m: Maker) -> None:
    m.elementwise = True
    names = ACTIVATIONS.get(m.op, ())
    values = {name: float(m.pick(0.0, 1.0, -1.0, 0.3, 2.5, 1e3)) for name in names}
    if m.op == "Shrink":
        values["lambd"] = abs(values["lambd"])  # else both conditions hold
    elif m.op == "Celu":
        values["alpha"] = values["alpha"] or 0.5  # it divides
    m.node([m.x(m.dtype(), m.dims())], **m.sometimes(**values))


@draws("Gelu")
def _gelu(m: Maker) -> None:
    m.elementwise = True
    m.node([m.x(m.dtype(), m.dims())], approximate=m.pick("none", "tanh", None))


@draws("com.microsoft::QuickGelu")
def _quick_gelu(m: Maker) -> None:
    m.elementwise = True
    m.node([m.x(m.dtype(), m.dims())], **m.sometimes(alpha=m.pick(1.0, 1.702, -1.0, 0.0)))


@draws("com.microsoft::FastGelu", "com.microsoft::BiasGelu")
def _bias_gelu(m: Maker) -> None:
    dtype, dims = m.dtype(), m.dims(least=1)
    bias = [m.x(dtype, dims[-1:])] if m.op_type == "BiasGelu" or m.chance(0.5) else []
    m.node([m.x(dtype, dims), *bias])


@draws("IsInf")
def _is_inf(m: Maker) -> None:
    m.style = "extreme"
    m.elementwise = True
    m.node([m.x(m.dtype(), m.dims())], **m.sometimes(detect_negative=m.pick(0, 1), detect_positive=m.pick(0, 1)))


@draws(
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Mul", "Or", "Sub", "Xor",
)  # fmt: skip
def _binary(m: Maker) -> None:
    m.elementwise = True
    dtype, dims = m.dtype(), m.dims()
    if m.chance(0.1) and not m.op.endswith("OrEqual") and not m.op.startswith("Bitwise"):
        m.version = m.opset = 6
        start = int(m.rng.integers(len(dims) + 1))
        end = int(m.rng.integers(start, len(dims) + 1))
        other = tuple(1 if m.chance(0.1) else dim for dim in dims[start:end])
        m.node([m.x(dtype, dims), _divisor(m, dtype, other)], broadcast=1, axis=start)
        return
    inputs = [m.x(dtype, m.lower(dims) if m.chance(0.3) else dims), ""]
    inputs[1] = inputs[0] if m.chance(0.05) and m.op != "Div" else _divisor(m, dtype, m.lower(dims))
    if m.chance(0.5) and m.op != "Div":
        inputs.reverse()
    m.node(inputs)


def _divisor(m: Maker, dtype: np.dtype[Any], dims: Sequence[Dim]) -> str:
    """Another operand; if it divides integers, never 0 nor -1, for which C defines no result."""
    if m.op not in ("Div", "Mod") or is_float(dtype):
        return m.x(dtype, dims)

    def make(call: int) -> Array:
        made = m.numbers(dtype, m.shape(dims, call))
        return np.where((made == 0) | (made == np.array(-1).astype(dtype)), np.array(3, dtype), made).astype(dtype)

    return m.put(make, dims)


@draws("Mod")
def _mod(m: Maker) -> None:
    m.elementwise = True
    dtype, dims = m.dtype(), m.dims()
    fmod = 1 if is_float(dtype) else m.pick(0, 1)
    m.node([m.x(dtype, dims), _divisor(m, dtype, m.lower(dims))], fmod=fmod)


@draws("Pow")
def _pow(m: Maker) -> None:
    m.elementwise = True
    dtype = m.dtype()
    other = m.dtype(at=1) if m.opset >= 12 and m.chance(0.5) else dtype
    dims = m.dims()
    if m.chance(0.5):
        exponent = m.this(
            np.full(m.pick((), (1,)), m.pick(2, 0, 1, 3, 0.5, -1, -0.5, -2) if is_float(other) else m.pick(0, 1, 2, 3)),
            other,
        )
    else:
        exponent = m.x(other, m.lower(dims))
    if dtype.kind in "iu" and is_float(other):  # C defines no cast of what int cannot hold
        m.node([m.whole(0, 4, dtype, dims), m.this(m.pick(0.5, 1, 2, 3), other)])
        return
    m.node([m.x(dtype, dims), exponent])


@draws("BitShift")
def _shift(m: Maker) -> None:
    dtype, dims = m.dtype("uint8", "uint16", "uint32", "uint64"), m.dims()
    m.node(
        [m.x(dtype, dims, "extreme"), m.whole(0, 8 * dtype.itemsize, dtype, m.lower(dims))],
        direction=m.pick("LEFT", "RIGHT"),
    )


@draws("PRelu")
def _prelu(m: Maker) -> None:
    m.elementwise = True
    dtype, dims = m.dtype(), m.dims()
    m.node([m.x(dtype, dims), m.x(dtype, m.lower(dims))])


@draws("Sum", "Max", "Min", "Mean")
def _variadic(m: Maker) -> None:
    m.elementwise = m.op in ("Max", "Min")
    if m.version < 8:  # Max, Min, Mean and Sum broadcast from 8 on
        raise Undefined
    dtype, dims = m.dtype(*(("float32", "float64", "float16", "bfloat16") if m.op == "Mean" else ())), m.dims()
    m.node([m.x(dtype, dims if n == 0 else m.lower(dims)) for n in range(int(m.rng.integers(1, 5)))])


@draws("Where")
def _where(m: Maker) -> None:
    dtype, dims = m.dtype(at=1), m.dims()
    m.node([m.x(np.bool_, m.lower(dims)), m.x(dtype, m.lower(dims)), m.x(dtype, dims)])


@draws("Clip")
def _clip(m: Maker) -> None:
    m.elementwise = True
    dtype, dims = m.dtype(), m.dims()
    if m.version < 11:
        if dtype.name == "bfloat16":  # not of these versions, whose default limits it does not have
            raise Undefined
        m.node([m.x(dtype, dims)], **m.sometimes(min=m.pick(-1.0, 0.0, 2.0), max=m.pick(1.0, 6.0, -2.0)))
        return
    low = m.x(dtype, ()) if m.chance(0.7) else ""
    high = m.x(dtype, ()) if m.chance(0.7) else ""
    m.node([m.x(dtype, dims), low, high])


@draws("Cast", "CastLike")
def _cast(m: Maker) -> None:
    m.elementwise = True
    source, to = m.dtype(), m.dtype()
    dims = m.dims()
    if to.kind in "iu" and is_float(source):
        x = m.put(lambda call: _fitting(m, source, to, m.shape(dims, call)), dims)
    else:
        x = m.x(source, dims)
    if to.name == "bfloat16":
        m.judges = ("TEMPLATE",)
    if m.op == "CastLike":
        m.node([x, m.x(to, (1,))])
    else:
        m.node([x], to=helper.np_dtype_to_tensor_dtype(to))


def _fitting(m: Maker, source: np.dtype[Any], to: np.dtype[Any], shape: Sequence[int]) -> Array:
    """Floating-point numbers whose whole part the integer type holds; C defines no cast of others."""
    low, high = int(np.iinfo(to).min), int(np.iinfo(to).max)
    bound = m.pick(100, 2**70)
    made = m.rng.uniform(max(low, -bound), min(high, bound), shape)
    limits = (low, low - 0.75, high, high + 0.75, high - 1, high // 2 + 1, 0.5, -0.5, 1.5, 0.0, -0.0)
    made = np.where(
        m.rng.random(shape) < 0.4, np.asarray(limits, np.float64)[m.rng.integers(len(limits), size=shape)], made
    )
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rounded = np.asarray(made).astype(source).astype(np.float64)
    # 2**31 - 1 and 2**63 - 1 round to a power of two, which does not fit.
    fits = (rounded > low - 1.0 if low > -(2**53) else rounded >= low) & (rounded < float(high + 1))
    return np.where(fits, rounded, 7).astype(source)


@draws("BitCast")
def _bit_cast(m: Maker) -> None:
    m.opset = m.version = 26
    source = m.dtype()
    same = [
        name
        for name in sorted(OPERATORS["BitCast"][0].dtypes[0])
        if dtype_of(name).itemsize == source.itemsize and name != "bool"
    ]
    if source == np.bool_:
        raise Undefined
    m.node([m.x(source, m.dims())], to=helper.np_dtype_to_tensor_dtype(dtype_of(m.pick(*same))))


# ---- reductions ------------------------------------------------------------------------------------------------------


@draws(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def _reduce(m: Maker) -> None:
    dims = m.dims()
    m.tolerance = 1e-3  # sums of either sign cancel
    axes = m.axes(len(dims)) if m.chance(0.8) else None
    keep = m.pick(0, 1, None)
    noop = m.pick(0, 1, None)
    if m.op == "ReduceLogSum":
        x = m.within(0.1, 3, m.dtype(), dims)
    else:
        x = m.x(m.dtype(), dims)
    if m.opset >= (13 if m.op == "ReduceSum" else 18):
        m.node([x] if axes is None else [x, m.this(axes)], keepdims=keep, noop_with_empty_axes=noop)
    else:
        m.node([x], axes=axes or None, keepdims=keep)


@draws("ArgMax", "ArgMin")
def _arg(m: Maker) -> None:
    dims = m.dims(least=1)
    if m.style == "extreme":  # onnx says nothing about NaN
        m.style = "ties"
    m.node(
        [m.x(m.dtype(), dims)],
        **m.sometimes(axis=m.axis(len(dims)), keepdims=m.pick(0, 1), select_last_index=m.pick(0, 1)),
    )


@draws("Softmax", "LogSoftmax", "Hardmax")
def _softmax(m: Maker) -> None:
    dims = m.dims(least=1 if m.version >= 13 else 2)
    if m.style == "extreme" and m.op == "Hardmax":
        m.style = "ties"
    m.node([m.x(m.dtype(), dims)], **m.sometimes(axis=m.axis(len(dims))))


@draws("LpNormalization")
def _lp(m: Maker) -> None:
    dims = m.dims(least=1)
    m.node([m.x(m.dtype(), dims)], **m.sometimes(axis=m.axis(len(dims)), p=m.pick(1, 2)))


@draws("CumSum", "CumProd")
def _cumulate(m: Maker) -> None:
    if m.op == "CumProd":
        m.opset = m.version = 26
    dims = m.dims(least=1)
    axis = m.this(m.axis(len(dims)), m.pick(np.int32, np.int64))
    m.node([m.x(m.dtype(), dims), axis], **m.sometimes(exclusive=m.pick(0, 1), reverse=m.pick(0, 1)))


@draws("TopK")
def _top_k(m: Maker) -> None:
    dims = m.dims(least=1)
    axis = m.axis(len(dims))
    low = min(m.shape(dims, call)[axis] for call in range(len(m.calls)))
    k = int(m.rng.integers(low + 1))
    if m.style == "extreme":
        m.style = "huge"
    options = m.sometimes(axis=axis, largest=m.pick(0, 1))
    if "axis" not in options:
        k = min(k, *(m.shape(dims, call)[-1] for call in range(len(m.calls))), 100)
    if m.version < 10:
        if not k:
            raise Undefined
        m.node([m.x(m.dtype(), dims)], 2, k=k, **options)
    else:
        m.node([m.x(m.dtype(), dims), m.this([k])], 2, **options)


# ---- movement --------------------------------------------------------------------------------------------------------


@draws("Transpose")
def _transpose(m: Maker) -> None:
    dims = m.dims(rank=int(m.rng.integers(0, 6)))
    m.node(
        [m.x(m.dtype(), dims)], perm=[int(a) for a in m.rng.permutation(len(dims))] if m.chance(0.8) and dims else None
    )


@draws("Reshape")
def _reshape(m: Maker) -> None:
    dims = m.dims(rank=int(m.rng.integers(1, 5)))
    x = m.x(m.dtype(), dims)

    def make(call: int) -> Array:
        shape = m.shape(dims, call)
        order = list(shape)
        match kind:
            case "flat":
                order = [-1] if 0 not in shape else [0] if len(shape) == 1 else [math.prod(shape)]
            case "ones":
                order = [1, *order, 1]
            case "merge" if len(shape) > 1:
                order = [shape[0] * shape[1], *shape[2:]]
            case "zero" if 0 not in shape:
                order = [0, *shape[1:]]
            case "rest" if 0 not in shape:
                order = [*shape[:-1], -1]
        return np.array(order, np.int64)

    kind = m.pick("flat", "ones", "merge", "zero", "rest")
    moves = any(isinstance(dim, str) for dim in dims)
    allow = 1 if any(0 in m.shape(dims, call) for call in range(len(m.calls))) else m.pick(None, 0)
    if allow and (kind == "zero" or m.opset < 14):
        raise Undefined
    m.node([x, m.put(make, (int(make(0).size),), False if moves else None)], allowzero=allow)


@draws("Flatten")
def _flatten(m: Maker) -> None:
    dims = m.dims(least=1)
    low = -len(dims) if m.opset >= 11 else 0
    m.node([m.x(m.dtype(), dims)], **m.sometimes(axis=int(m.rng.integers(low, len(dims) + 1))))


@draws("Squeeze", "Unsqueeze")
def _squeeze(m: Maker) -> None:
    dims = list(m.dims(rank=int(m.rng.integers(0, 4))))
    axes = sorted(int(a) for a in m.rng.permutation(len(dims) + 2)[:2])
    if m.op == "Squeeze":
        for axis in axes:
            dims.insert(axis, 1)
        rank = len(dims)
    else:
        rank = len(dims) + 2
    axes = [a - rank if m.chance(0.3) and m.opset >= 11 else a for a in axes]
    x = m.x(m.dtype(), dims)
    if m.opset >= 13:
        m.node([x, m.this(axes)])
    else:
        m.node([x], axes=axes)


@draws("Expand")
def _expand(m: Maker) -> None:
    dims = m.dims()
    x = m.x(m.dtype(), m.lower(dims))
    moves = any(isinstance(dim, str) for dim in dims)
    lowered = m.lower(dims)
    m.node(
        [x, m.put(lambda call: np.array(m.shape(lowered, call), np.int64), (len(lowered),), False if moves else None)]
    )


@draws("Tile")
def _tile(m: Maker) -> None:
    dims = m.dims()
    m.node([m.x(m.dtype(), dims), m.whole(0, 4, np.int64, (len(dims),))])


@draws("Concat")
def _concat(m: Maker) -> None:
    dtype, dims = m.dtype(), m.dims(least=1)
    axis = m.axis(len(dims))
    inputs = []
    for _ in range(int(m.rng.integers(1, 5))):
        own = list(dims)
        own[axis] = m.pick("N", m.size())
        inputs.append(m.x(dtype, own) if not inputs or m.chance(0.9) else inputs[0])
    m.node(inputs, axis=axis)


@draws("Split")
def _split(m: Maker) -> None:
    dims = list(m.dims(least=1))
    axis = m.axis(len(dims))
    parts = [m.size() for _ in range(int(m.rng.integers(1, 5)))]
    if m.chance(0.4):
        parts = [max(parts[0], 1)] * len(parts)
        dims[axis] = sum(parts)
        m.node([m.x(m.dtype(), dims)], len(parts), axis=axis, num_outputs=len(parts))
        return
    dims[axis] = sum(parts)
    x = m.x(m.dtype(), dims)
    if m.opset >= 13:
        m.node([x, m.this(parts)], len(parts), axis=axis)
    else:
        m.node([x], len(parts), axis=axis, split=parts)


@draws("Slice")
def _slice(m: Maker) -> None:
    dims = m.dims(least=1)
    axes = [int(a) for a in m.rng.permutation(len(dims))[: int(m.rng.integers(1, len(dims) + 1))]]
    ends = (-(2**63), -9, -3, -2, -1, 0, 1, 2, 3, 5, 9, 2**63 - 1)
    starts, stops = ([int(m.pick(*ends)) for _ in axes] for _ in range(2))
    if m.opset < 10:
        m.node(
            [m.x(m.dtype(), dims)],
            starts=starts,
            ends=stops,
            axes=axes if m.chance(0.8) or len(axes) < len(dims) else None,
        )
        return
    steps = [int(m.pick(1, 1, 2, 3, -1, -2, 7, -99)) for _ in axes]
    axes = [a - len(dims) if m.chance(0.3) and m.opset >= 11 else a for a in axes]
    dtype = m.pick(np.int32, np.int64)
    if dtype == np.int32:
        starts, stops = ([int(np.clip(n, -(2**31), 2**31 - 1)) for n in each] for each in (starts, stops))
    m.node(
        [m.x(m.dtype(), dims), m.this(starts, dtype), m.this(stops, dtype), m.this(axes, dtype), m.this(steps, dtype)]
    )


@draws("Pad")
def _pad(m: Maker) -> None:
    dtype = m.dtype()
    rank = int(m.rng.integers(1, 5))
    dims = [dim if dim != 0 or m.chance(0.3) else 2 for dim in m.dims(rank=rank)]
    mode = m.pick("constant", "constant", "edge", "reflect", "wrap")
    if mode != "constant" and any(0 in m.shape(dims, call) for call in range(len(m.calls))):
        raise Undefined
    if mode == "wrap" and m.opset < 19:
        raise Undefined
    axes = list(range(rank))
    if m.opset >= 18 and m.chance(0.5):
        axes = [int(a) for a in m.rng.permutation(rank)[: int(m.rng.integers(1, rank + 1))]]
    least = [min(m.shape(dims, call)[a] for call in range(len(m.calls))) for a in axes]
    cuts = m.chance(0.3) and mode in ("constant", "edge")
    pads = []
    for size in least * 2:
        high = {"constant": 3, "edge": 3, "reflect": size - 1, "wrap": size}[mode]
        pads.append(int(m.rng.integers(-((size - 1) // 2) if cuts and size > 2 else 0, max(high, 0) + 1)))
        if mode != "reflect" and m.chance(0.05):
            pads[-1] = size + 2 if mode != "wrap" else size
    if m.opset < 11:
        m.node([m.x(dtype, dims)], pads=pads, mode=mode)
        return
    inputs = [m.x(dtype, dims), m.this(pads)]
    if axes != list(range(rank)) or (m.opset >= 18 and m.chance(0.2)):
        value = m.x(dtype, ()) if m.chance(0.6) else ""
        kind = m.pick(np.int32, np.int64)
        inputs += [value, m.this([a - rank if m.chance(0.4) else a for a in axes], kind)]
    elif m.chance(0.5):
        inputs.append(m.x(dtype, ()))
    m.node(inputs, mode=mode)


def _indices(m: Maker, size: int, dims: Sequence[Dim], dtype: Any = None) -> str:
    if size == 0:
        raise Undefined
    low = -size if m.opset >= 11 else 0
    return m.whole(low, size, dtype or m.pick(np.int32, np.int64), dims)


def _size(m: Maker, dims: Sequence[Dim], axis: int) -> int:
    """The smallest size that the dimension has in any call."""
    return min(m.shape(dims, call)[axis] for call in range(len(m.calls)))


@draws("Gather")
def _gather(m: Maker) -> None:
    dims = m.dims(least=1)
    axis = m.axis(len(dims))
    m.node([m.x(m.dtype(), dims), _indices(m, _size(m, dims, axis), m.dims(rank=m.pick(0, 1, 1, 2)))], axis=axis)


@draws("GatherElements")
def _gather_elements(m: Maker) -> None:
    dims = m.dims(least=1)
    axis = m.axis(len(dims))
    own = [m.pick(dim, 1) if dim != 0 else 0 for dim in dims]
    own[axis] = m.size()
    m.node([m.x(m.dtype(), dims), _indices(m, _size(m, dims, axis), own)], axis=axis)


@draws("GatherND")
def _gather_nd(m: Maker) -> None:
    dims = m.dims(least=1)
    batch = int(m.rng.integers(0, len(dims))) if m.opset >= 12 else 0
    depth = int(m.rng.integers(1, len(dims) - batch + 1))
    sizes = [_size(m, dims, batch + n) for n in range(depth)]
    if 0 in sizes:
        raise Undefined
    own = [*dims[:batch], *m.dims(rank=m.pick(0, 1, 2))]

    def make(call: int) -> Array:
        shape = m.shape(own, call)
        return np.stack([m.rng.integers(-size if m.opset >= 11 else 0, size, shape) for size in sizes], -1)

    m.node([m.x(m.dtype(), dims), m.put(make, [*own, depth])], batch_dims=batch)


@draws("Scatter", "ScatterElements")
def _scatter(m: Maker) -> None:
    dims = m.dims(least=1)
    if m.op == "Scatter":
        m.opset = m.version = m.pick(9, 10)
    dtype, axis = m.dtype(), m.axis(len(dims))
    size = _size(m, dims, axis)
    own = [dim if isinstance(dim, str) else int(m.rng.integers(0, dim + 1)) for dim in dims]
    own[axis] = int(m.rng.integers(0, size + 1))
    if size == 0:
        raise Undefined
    reduction = m.pick(None, "none", "add", "mul", "max", "min")
    if dtype == np.bool_ and reduction not in (None, "none"):
        raise Undefined

    def distinct(call: int) -> Array:
        order = np.argsort(
            m.rng.random(
                [*m.shape([*own], call)[: axis % len(dims)], size, *m.shape(own, call)[axis % len(dims) + 1 :]]
            ),
            axis % len(dims),
        )
        return np.take(order, range(own[axis]), axis).astype(np.int64)

    repeated = reduction not in (None, "none") and m.version >= 16 and m.chance(0.5)
    m.node(
        [m.x(dtype, dims), _indices(m, size, own, np.int64) if repeated else m.put(distinct, own), m.x(dtype, own)],
        axis=axis, reduction=reduction,
    )  # fmt: skip


@draws("ScatterND")
def _scatter_nd(m: Maker) -> None:
    dims = m.dims(least=1)
    dtype = m.dtype()
    depth = int(m.rng.integers(1, len(dims) + 1))
    sizes = [_size(m, dims, n) for n in range(depth)]
    total = math.prod(sizes)
    if total == 0:
        raise Undefined
    count = int(m.rng.integers(0, min(total, 9) + 1))
    reduction = m.pick(None, "none", "add", "mul", "max", "min")
    repeated = reduction not in (None, "none") and m.version >= 16

    def make(_: int) -> Array:
        flat = m.rng.integers(0, total, count) if repeated else m.rng.permutation(total)[:count]
        return np.stack(np.unravel_index(flat, sizes), -1).astype(np.int64)

    m.node([m.x(dtype, dims), m.put(make, (count, depth)), m.x(dtype, [count, *dims[depth:]])], reduction=reduction)


@draws("Compress")
def _compress(m: Maker) -> None:
    dims = m.dims(least=1)
    axis = m.axis(len(dims)) if m.chance(0.7) else None
    size = math.prod(m.shape(dims, 0)) if axis is None else _size(m, dims, axis)
    if axis is None and len(m.calls) > 1:
        size = min(math.prod(m.shape(dims, call)) for call in range(len(m.calls)))
    m.node([m.x(m.dtype(), dims), m.x(np.bool_, (int(m.rng.integers(0, size + 1)),))], axis=axis)


@draws("NonZero")
def _non_zero(m: Maker) -> None:
    m.node([m.x(m.dtype(), m.dims(least=1))])


@draws("Size")
def _shape_of(m: Maker) -> None:
    m.node([m.x(m.dtype(), m.dims())])


@draws("Shape")
def _shape(m: Maker) -> None:
    m.node([m.x(m.dtype(), m.dims())], **m.sometimes(start=int(m.rng.integers(-6, 6)), end=int(m.rng.integers(-6, 6))))


@draws("OneHot")
def _one_hot(m: Maker) -> None:
    dims = m.dims(rank=int(m.rng.integers(1, 4)))
    depth = int(m.rng.integers(1, 6))
    values = m.dtype(at=2)
    m.node(
        [
            m.whole(-depth - 1, depth + 2, m.dtype("int32", "int64", "float32"), dims),
            m.this(m.pick(depth, [depth]), m.pick(np.int64, np.float32)),
            m.x(values, (2,)),
        ],
        **m.sometimes(axis=int(m.rng.integers(-len(dims) - 1, len(dims) + 1))),
    )


@draws("ReverseSequence")
def _reverse(m: Maker) -> None:
    dims = m.dims(rank=int(m.rng.integers(2, 5)))
    batch = m.pick(0, 1)
    m.node(
        [m.x(m.dtype(), dims), m.whole(1, _size(m, dims, 1 - batch) + 1, np.int64, (dims[batch],))],
        batch_axis=batch,
        time_axis=1 - batch,
    )
    if _size(m, dims, 1 - batch) == 0:
        raise Undefined


@draws("Trilu")
def _trilu(m: Maker) -> None:
    k = [m.this(m.pick(-20, -3, -1, 0, 1, 2, 30, 2**62, -(2**62)))] if m.chance(0.7) else []
    m.node([m.x(m.dtype(), m.dims(least=2)), *k], **m.sometimes(upper=m.pick(0, 1)))


@draws("EyeLike")
def _eye(m: Maker) -> None:
    m.node(
        [m.x(m.dtype(), m.dims(rank=2))], **m.sometimes(k=m.pick(-20, -1, 0, 1, 3, 2**40), dtype=m.pick(1, 7, 11, 6, 9))
    )


@draws("ConstantOfShape")
def _constant_of_shape(m: Maker) -> None:
    dtype = m.pick(np.float32, np.int64, np.bool_, np.float64, np.int8, np.uint16, np.float16)
    value = numpy_helper.from_array(m.numbers(np.dtype(dtype), (1,))) if m.chance(0.8) else None
    m.node([m.whole(0, 4, np.int64, (int(m.rng.integers(0, 4)),))], value=value)


@draws("Range")
def _range(m: Maker) -> None:
    dtype = m.dtype()
    start, step = m.pick(-3, 0, 1, 7), m.pick(1, 2, 3, -1, -2, 5)
    limit = start + step * m.pick(-1, 0, 1, 4, 9) + m.pick(0, 1)
    scale = m.pick(1, 0.25, 0.1) if is_float(dtype) else 1
    m.node([m.this(start * scale, dtype), m.this(limit * scale, dtype), m.this(step * scale, dtype)])


@draws("DepthToSpace", "SpaceToDepth")
def _depth(m: Maker) -> None:
    block = m.pick(1, 2, 3)
    n, c, h, w = m.pick("N", 1, 2), m.pick(1, 2, 3), m.pick(1, 2, 3), m.pick(1, 2, 4)
    dims = (n, c * block * block, h, w) if m.op == "DepthToSpace" else (n, c, h * block, w * block)
    mode = m.pick(None, "DCR", "CRD") if m.op == "DepthToSpace" else None
    m.node([m.x(m.dtype(), dims)], blocksize=block, mode=mode)


@draws("Unique")
def _unique(m: Maker) -> None:
    dims = m.dims(least=1)
    m.style = "ties"
    attributes = m.sometimes(axis=m.axis(len(dims)), sorted=m.pick(0, 1))
    if "axis" in attributes:
        m.judges = ("TEMPLATE",)  # onnxruntime ends the process if the slices are empty
    m.node([m.x(m.dtype(), dims)], m.pick(1, 2, 3, 4), **attributes)


@draws("TensorScatter")
def _tensor_scatter(m: Maker) -> None:
    m.opset = m.version = 24
    rank = int(m.rng.integers(2, 5))
    dims = [dim if dim != 0 else 2 for dim in m.dims(rank=rank)]
    axis = int(m.rng.integers(1, rank))
    size = _size(m, dims, axis)
    dims[axis] = max(size, 1)
    count = int(m.rng.integers(1, dims[axis] + 1))
    update = [*dims]
    update[axis] = count
    mode = m.pick("linear", "circular", None)
    high = dims[axis] if mode == "circular" else dims[axis] - count + 1
    dtype = m.dtype()
    where = [m.whole(0, high, np.int64, (dims[0],))] if m.chance(0.8) else []
    m.node([m.x(dtype, dims), m.x(dtype, update), *where], axis=m.pick(axis, axis - rank), mode=mode)


# ---- products --------------------------------------------------------------------------------------------------------


@draws("MatMul", "MatMulInteger", "com.microsoft::FusedMatMul")
def _matmul(m: Maker) -> None:
    k = m.size()
    lead = m.dims(rank=m.pick(0, 0, 1, 2))
    one = [*m.lower(lead), m.size(), k]
    two = [*m.lower(lead), k, m.size()]
    attributes: dict[str, Any] = {}
    if m.op == "com.microsoft::FusedMatMul":
        attributes = m.sometimes(alpha=m.pick(1.0, 0.0, -0.5, 3.0), transA=m.pick(0, 1), transB=m.pick(0, 1))
        if attributes.get("transA"):
            one[-2:] = one[:-3:-1]
        if attributes.get("transB"):
            two[-2:] = two[:-3:-1]
        if len(one) == len(two) >= 3:  # the batch may follow the rows
            for name, dims in (("transBatchA", one), ("transBatchB", two)):
                if m.chance(0.3):
                    attributes[name] = 1
                    dims.insert(0, dims.pop(-2))
    elif m.chance(0.2):
        one = one[-1:]
    elif m.chance(0.2):
        two = two[-2:-1]
    dtype = m.dtype()
    inputs = [m.x(dtype, one), m.x(dtype if m.op != "MatMulInteger" else m.dtype(at=1), two)]
    if m.op == "MatMulInteger" and m.chance(0.6):
        kinds = [m.operands[name].arrays[0].dtype for name in inputs]
        inputs += [m.x(kinds[0], ()), *([m.x(kinds[1], ())] if m.chance(0.7) else [])]
    if m.chance(0.05) and one == two and dtype == m.dtype():
        inputs[1] = inputs[0]
    m.node(inputs, **attributes)


_GEMM_ACTIVATIONS = (
    "Celu", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh",
)  # fmt: skip


@draws("Gemm", "com.microsoft::FusedGemm")
def _gemm(m: Maker) -> None:
    rows, k, columns = m.pick("N", m.size()), m.size(), m.size()
    a, b = m.pick(0, 1), m.pick(0, 1)
    dtype = m.dtype()
    inputs = [m.x(dtype, (k, rows) if a else (rows, k)), m.x(dtype, (columns, k) if b else (k, columns))]
    if m.opset < 11 or m.chance(0.7):
        inputs.append(m.x(dtype, m.lower((rows, columns))))
    scale = (1.0, 0.0, -1.0, 2.0) if dtype.kind in "iu" else (1.0, 0.0, -0.5, 2.5)
    attributes = m.sometimes(alpha=m.pick(*scale), beta=m.pick(*scale))
    if m.op_type == "FusedGemm":
        attributes["activation"] = m.pick(*_GEMM_ACTIVATIONS)
        attributes |= {f"activation_{name}": m.pick(0.3, 1.0, 1.5) for name in ("alpha", "beta", "gamma")}
    m.node(inputs, transA=a, transB=b, **attributes)


@draws("Einsum")
def _einsum(m: Maker) -> None:
    equation = m.pick(
        "ij,jk->ik", "ij,jk", "ii->i", "ii", "ij->ji", "bij,bjk->bik", "...ij,...jk->...ik", "i,j->ij", "ij->",
        "ij,ij->j", "bhid,bhjd->bhij", "i,i->", "ijk->kij", "...i->...", "ij,kj->ik", "ij,ik,il->jkl",
    )  # fmt: skip
    sizes = {letter: m.size() for letter in "ijkbhdl"}
    if not all(sizes[letter] for letter in equation if letter.isalpha()):
        m.judges = ("TEMPLATE",)  # onnxruntime may divide by 0, which ends the process
    dtype = m.dtype()
    inputs = []
    for term in equation.split("->")[0].split(","):
        dims = [sizes[letter] for letter in term.replace("...", "")]
        inputs.append(m.x(dtype, [*([2, 3] if "..." in term else []), *dims]))
    m.node(inputs, equation=equation)


@draws("Det")
def _det(m: Maker) -> None:
    size = m.pick(1, 2, 3, 5)
    m.tolerance = 1e-3
    m.node([m.x(m.dtype("float32", "float64"), [*m.dims(rank=m.pick(0, 1, 2)), size, size], "plain")])


# ---- windows ---------------------------------------------------------------------------------------------------------


def _window(m: Maker, n: int, least: int = 1) -> tuple[list[int], dict[str, Any], list[int]]:
    """A kernel, the attributes of the window, and a size of the image that holds it."""
    kernel = [int(m.rng.integers(least, 5)) for _ in range(n)]
    strides, dilations = [int(m.rng.integers(1, 4)) for _ in range(n)], [m.pick(1, 1, 2, 3) for _ in range(n)]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    attributes |= m.sometimes(strides=strides, dilations=dilations)
    if m.chance(0.3):
        attributes["auto_pad"] = m.pick("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    else:
        attributes |= m.sometimes(pads=[int(m.rng.integers(0, k)) for k in kernel * 2])
    used = attributes.get("dilations", [1] * n)
    image = [(k - 1) * d + 1 + int(m.rng.integers(0, 12)) for k, d in zip(kernel, used, strict=True)]
    return kernel, attributes, image


@draws("Conv", "ConvInteger", "com.microsoft::FusedConv")
def _conv(m: Maker) -> None:
    n = m.pick(1, 2, 2, 2, 3)
    kernel, attributes, image = _window(m, n)
    if m.chance(0.2):
        kernel[:] = [1] * n
        attributes.pop("pads", None)
    group, inner, outer = m.pick(1, 1, 2, 3, 5), m.pick(1, 1, 2, 3, 8), m.pick(1, 1, 2, 4, 9)
    dtype = m.dtype()
    inputs = [m.x(dtype, ["N" if m.chance(0.3) else 1, group * inner, *image]), ""]
    weights = "plain" if m.op != "ConvInteger" else m.style  # an infinite weight times the padding is NaN, or skipped
    inputs[1] = m.x(dtype if m.op != "ConvInteger" else m.dtype(at=1), [group * outer, inner, *kernel], weights)
    attributes["group"] = group
    if m.op == "ConvInteger":
        if m.chance(0.6):
            inputs.append(m.x(dtype, ()))
    elif m.chance(0.6):
        inputs.append(m.x(dtype, (group * outer,)))
    if m.op_type == "FusedConv":
        attributes["activation"] = m.pick("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
        values = {"LeakyRelu": [0.3], "Clip": [-0.5, 0.7], "HardSigmoid": [0.3, 0.6]}.get(attributes["activation"])
        attributes["activation_params"] = values
    m.node(inputs, **attributes)


@draws("ConvTranspose")
def _conv_transpose(m: Maker) -> None:
    n = m.pick(1, 2, 2, 3)
    kernel, attributes, image = _window(m, n)
    image = [int(m.rng.integers(1, 9)) for _ in range(n)] if m.chance(0.7) else image
    group, inner, outer = m.pick(1, 1, 2, 3), m.pick(1, 2, 3), m.pick(1, 2, 4, 16)
    dtype = m.dtype()
    ones = [1] * n
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    extra = [0] * n
    if m.chance(0.3):
        extra = attributes["output_padding"] = [int(m.rng.integers(0, s)) for s in strides]
    full = [
        (size - 1) * s + o + (k - 1) * d + 1
        for size, s, o, k, d in zip(image, strides, extra, kernel, dilations, strict=True)
    ]
    if m.chance(0.35):
        attributes.pop("pads", None)  # computed from the shape
        attributes["output_shape"] = [max(1, size - m.pick(0, 1, 2, 3)) for size in full]
    elif "pads" in attributes and any(
        size <= a + b for size, a, b in zip(full, attributes["pads"], attributes["pads"][n:], strict=False)
    ):
        raise Undefined  # no result
    bias = [m.x(dtype, (group * outer,))] if m.chance(0.5) else []
    m.node(
        [
            m.x(dtype, [m.pick("N", 1), group * inner, *image]),
            m.x(dtype, [group * inner, outer, *kernel], "plain"),
            *bias,
        ],
        group=group,
        **attributes,
    )


@draws("AveragePool", "MaxPool", "LpPool")
def _pool(m: Maker) -> None:
    n = m.pick(1, 2, 2, 3)
    _, attributes, image = _window(m, n)
    attributes |= m.sometimes(ceil_mode=m.pick(0, 1))
    outputs = 1
    if m.op == "AveragePool":
        attributes |= m.sometimes(count_include_pad=m.pick(0, 1))
    elif m.op == "LpPool":
        attributes |= m.sometimes(p=m.pick(1, 2, 3))
    else:
        outputs = m.pick(1, 2)
        attributes |= m.sometimes(storage_order=m.pick(0, 1)) if outputs == 2 else {}
        if m.style == "extreme":
            m.style = "huge"
    m.node([m.x(m.dtype(), [m.pick("N", 1, 2), m.pick(1, 2, 9), *image])], outputs, **attributes)


@draws("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global(m: Maker) -> None:
    if m.style == "extreme" and m.op == "GlobalMaxPool":
        m.style = "huge"
    dims = [m.pick("N", 1), m.pick(1, 3), *m.fixed(m.pick(1, 2, 3))]
    m.node([m.x(m.dtype(), dims)], **(m.sometimes(p=m.pick(1, 2, 3)) if m.op == "GlobalLpPool" else {}))


@draws("LRN")
def _lrn(m: Maker) -> None:
    dims = [m.pick("N", 1), m.pick(1, 3, 8), *m.fixed(m.pick(1, 2, 2))]
    if len(dims) != 4:
        m.judges = ("TEMPLATE",)  # onnxruntime takes four dimensions only
    m.node(
        [m.x(m.dtype(), dims)],
        size=m.pick(1, 3, 5, 2, 4),
        **m.sometimes(alpha=0.3, beta=m.pick(0.5, 0.75, 1.0, 0.3), bias=2.0),
    )


@draws("InstanceNormalization", "BatchNormalization", "GroupNormalization")
def _norm(m: Maker) -> None:
    groups = m.pick(1, 2, 3)
    channels = groups * m.pick(1, 2, 3)
    dtype = m.dtype()
    rank = m.pick(1, 2, 3) if m.op != "BatchNormalization" else m.pick(0, 1, 2, 3)
    x = m.x(dtype, [m.pick("N", 1, 2), channels, *m.fixed(rank)], "plain")
    length = groups if m.op == "GroupNormalization" and m.opset < 21 else channels
    inputs = [x, m.x(dtype, (length,), "plain"), m.x(dtype, (length,), "plain")]
    if m.op == "BatchNormalization":
        inputs += [m.x(dtype, (channels,), "plain"), m.within(0.1, 2, dtype, (channels,))]
    m.node(inputs, num_groups=groups, **m.sometimes(epsilon=m.pick(1e-5, 1e-2, 0.1)))


@draws("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _layer_norm(m: Maker) -> None:
    if m.op == "RMSNormalization":
        m.opset = m.version = 23
    dims = m.dims(least=1)
    axis = m.axis(len(dims)) if m.op != "SimplifiedLayerNormalization" else -1
    own = dims[axis:]
    dtype = m.dtype()
    inputs = [m.x(dtype, dims), m.x(dtype, own)]
    if m.op == "LayerNormalization" and m.chance(0.6):
        inputs.append(m.x(dtype, own))
    outputs = m.pick(1, 1, 2, 3) if m.op == "LayerNormalization" else 1
    m.node(inputs, outputs, axis=axis, **m.sometimes(epsilon=m.pick(1e-5, 1e-2, 0.1)))


@draws("com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization")
def _skip_norm(m: Maker) -> None:
    dtype, width = m.dtype("float32"), m.pick(1, 4, 8, 17)
    dims = [m.pick("N", 2), m.pick("M", 3), width]
    inputs = [m.x(dtype, dims, "plain"), m.x(dtype, dims, "plain"), m.x(dtype, (width,))]
    if m.op.endswith("SkipLayerNormalization"):
        inputs.append(m.x(dtype, (width,)))
    if m.chance(0.5):
        inputs.append(m.x(dtype, (width,)))
    m.node(inputs, **m.sometimes(epsilon=m.pick(1e-5, 1e-2)))


@draws("Col2Im")
def _col2im(m: Maker) -> None:
    kernel, attributes, image = _window(m, m.pick(1, 2, 2))
    attributes = {name: value for name, value in attributes.items() if name in ("strides", "pads", "dilations")}
    n = len(kernel)
    pads, dilations = attributes.get("pads", [0] * 2 * n), attributes.get("dilations", [1] * n)
    strides = attributes.get("strides", [1] * n)
    places = math.prod(
        (image[a] + pads[a] + pads[a + n] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1 for a in range(n)
    )
    dims = [m.pick("N", 1), m.pick(1, 3) * math.prod(kernel), places]
    m.node([m.x(m.dtype(), dims), m.this(image), m.this(kernel)], **attributes)


@draws("Resize")
def _resize(m: Maker) -> None:
    if m.opset < 11:
        raise Undefined
    m.style = "plain"  # a weight of 0 may be left out
    mode = m.pick("nearest", "nearest", "linear", "cubic")
    rank = m.pick(2, 4, 4) if mode == "cubic" else m.pick(1, 2, 3, 4, 4, 5)
    dims = [int(size) for size in m.rng.integers(1, 9, rank)]
    places = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"]
    places += ["half_pixel_symmetric"] * (m.opset >= 19) + ["tf_half_pixel_for_nn"] * (m.opset < 13)
    place = m.pick(*places)
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": place}
    if mode == "nearest":
        attributes |= m.sometimes(nearest_mode=m.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    elif mode == "cubic":
        attributes |= m.sometimes(cubic_coeff_a=m.pick(-0.75, -0.5), exclude_outside=m.pick(0, 1))
    if mode != "nearest" and m.opset >= 18:
        attributes |= m.sometimes(antialias=m.pick(0, 1))
    axes = list(range(rank))
    if m.opset >= 18 and m.chance(0.4):
        axes = [int(a) for a in m.rng.permutation(rank)[: int(m.rng.integers(1, rank + 1))]]
        attributes["axes"] = [a - rank if m.chance(0.3) else a for a in axes]
    count = len(axes)
    live = {int(at) for at in m.rng.permutation(count)[: m.pick(1, 2, 2, 2 if mode == "cubic" else 3)]}
    none = m.this([], np.float32, True) if m.opset < 13 else ""
    roi = none
    if place == "tf_half_pixel_for_nn":
        m.judges = ("onnxruntime",)  # onnx.reference does not have it
    if place == "tf_crop_and_resize":
        attributes["extrapolation_value"] = m.pick(0.0, 1.0, -2.0)
        ends = [m.pick(0, 0.1, -0.2, 0.5) for _ in axes] + [m.pick(1, 0.9, 1.3, 0.6) for _ in axes]
        roi = m.this([end if at % count in live else at // count for at, end in enumerate(ends)], np.float32)
    kinds = ("float32", "uint8", "int8", "int32", "float64", "float16") if mode == "nearest" else ("float32",)
    x = m.x(m.dtype(*kinds), dims)
    scales = [m.pick(0.34, 0.5, 0.6, 1.5, 2.0, 2.7, 3.0) if at in live else 1.0 for at in range(count)]
    if m.chance(0.5):
        if any(int(dims[a] * scale) < 1 for a, scale in zip(axes, scales, strict=True)):
            raise Undefined
        m.node([x, roi, m.this(scales, np.float32)], **attributes)
    else:
        sizes = [m.pick(1, 2, 3, 5, 7, 9, 12) if at in live else dims[a] for at, a in enumerate(axes)]
        if m.opset >= 18 and m.chance(0.4):
            attributes["keep_aspect_ratio_policy"] = m.pick("stretch", "not_larger", "not_smaller")
        m.node([x, roi, none, m.this(sizes)], **attributes)


@draws("Upsample")
def _upsample(m: Maker) -> None:
    m.opset = m.version = m.pick(7, 8, 9)
    m.style = "plain"  # a weight of 0 may be left out
    mode = m.pick("nearest", "linear")
    scales = [1.0, 1.0, m.pick(1.0, 1.5, 2.0, 3.0), m.pick(1.0, 2.0, 2.5)]
    x = m.x(m.dtype("float32"), [1, 2, *m.fixed(2)])
    if m.version == 9:
        m.node([x, m.this(scales, np.float32)], mode=mode)
    else:
        m.node([x], mode=mode, scales=scales)


@draws("GridSample")
def _grid_sample(m: Maker) -> None:
    n = m.pick("N", 1, 2)
    spatial = 3 if m.opset >= 20 and m.chance(0.3) else 2
    dtype = m.dtype("float32", "float64")
    names = ("linear", "nearest", "cubic") if m.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = m.pick(*names[: 2 if spatial == 3 else 3])
    grid = m.within(-1.6, 1.6, dtype, [n, *m.fixed(spatial), spatial])
    m.node(
        [m.x(dtype, [n, m.pick(1, 3), *m.fixed(spatial, 2, 7)], "plain"), grid],
        mode=mode, padding_mode=m.pick("zeros", "border", "reflection", None), align_corners=m.pick(0, 1, None),
    )  # fmt: skip


@draws("AffineGrid")
def _affine_grid(m: Maker) -> None:
    spatial = m.pick(2, 3)
    n = m.pick(1, 2)
    m.node(
        [m.x(m.dtype(), [n, spatial, spatial + 1], "plain"), m.this([n, 3, *m.fixed(spatial)])],
        align_corners=m.pick(0, 1, None),
    )


@draws("RoiAlign")
def _roi_align(m: Maker) -> None:
    dtype, count, n = m.dtype("float32", "float64"), m.size(), m.pick(1, 2)
    rois = m.put(
        lambda _: np.concatenate(
            [c := m.rng.uniform(0, 5, (count, 2)), c + m.rng.uniform(0.1, 5, (count, 2))], 1
        ).astype(dtype),
        (count, 4),
    )
    m.node(
        [m.x(dtype, [n, m.pick(1, 3), *m.fixed(2, 4, 9)], "plain"), rois, m.whole(0, n, np.int64, (count,))],
        **m.sometimes(mode=m.pick("avg", "avg", "max"), output_height=m.pick(1, 2, 3), output_width=m.pick(1, 2, 4),
                      sampling_ratio=m.pick(0, 1, 2, 3), spatial_scale=m.pick(1.0, 0.5),
                      coordinate_transformation_mode=m.pick("half_pixel", "output_half_pixel")),
    )  # fmt: skip


@draws("NonMaxSuppression")
def _nms(m: Maker) -> None:
    n, boxes, classes = m.pick(1, 2), m.pick(1, 5, 12), m.pick(1, 3)

    def make(_: int) -> Array:
        low = m.rng.integers(0, 8, (n, boxes, 2))
        return np.concatenate([low, low + m.rng.integers(1, 8, (n, boxes, 2))], 2).astype(np.float32)

    scores = m.put(
        lambda _: m.rng.permutation(n * classes * boxes).reshape(n, classes, boxes).astype(np.float32) / 100,
        (n, classes, boxes),
    )
    m.node(
        [
            m.put(make, (n, boxes, 4)),
            scores,
            m.this(m.pick(0, 1, 3, 100)),
            m.this(m.pick(0.0, 0.3, 0.7, 1.0), np.float32),
            m.this(m.pick(0.0, 0.1, 0.5), np.float32),
        ],
        **m.sometimes(center_point_box=m.pick(0, 1)),
    )


@draws("MaxUnpool")
def _unpool(m: Maker) -> None:
    h, w = m.fixed(2, 1, 5)
    indices = m.put(lambda _: m.rng.permutation(4 * h * w)[: h * w].reshape(1, 1, h, w).astype(np.int64), (1, 1, h, w))
    m.node([m.x(m.dtype(), (1, 1, h, w)), indices], kernel_shape=[2, 2], strides=[2, 2])


# ---- recurrence and transforms ---------------------------------------------------------------------------------------


_GATE_ACTIVATIONS: dict[str, int] = {
    "Tanh": 0, "Sigmoid": 0, "Softsign": 0, "HardSigmoid": 2, "Affine": 2, "LeakyRelu": 1, "ThresholdedRelu": 1,
    "ScaledTanh": 2, "Elu": 1, "Softplus": 0, "Relu": 0,
}  # fmt: skip
"""With how many of alpha and beta they have."""


@draws("RNN", "GRU", "LSTM")
def _recurrent(m: Maker) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[m.op]
    direction = m.pick("forward", "reverse", "bidirectional")
    d, hidden, width = 2 if direction == "bidirectional" else 1, m.pick(1, 3, 8, 16, 17), m.pick(1, 4, 7)
    names = [m.pick(*_GATE_ACTIVATIONS) for _ in range({"RNN": 1, "GRU": 2, "LSTM": 3}[m.op] * d)]
    own = m.chance(0.4)
    time, batch = m.pick(1, 3) if own else m.pick("N", 1, 4), m.pick("M", 1, 3)  # states may grow from step to step
    if min(_size(m, (time, batch), 0), _size(m, (time, batch), 1)) == 0:
        raise Undefined
    dtype = m.dtype("float32")
    m.style = "plain"
    layout = m.opset >= 14 and m.chance(0.2)
    state = (batch, d, hidden) if layout else (d, batch, hidden)
    inputs = [
        m.x(dtype, (batch, time, width) if layout else (time, batch, width)),
        m.within(-0.5, 0.5, dtype, (d, gates * hidden, width)),
        m.within(-0.5 / math.sqrt(hidden), 0.5 / math.sqrt(hidden), dtype, (d, gates * hidden, hidden)),
    ]
    inputs.append(m.x(dtype, (d, 2 * gates * hidden)) if m.chance(0.7) else "")
    shortest = m.pick(0, 1, 1, 1 << 20)

    def lengths(call: int) -> Array:
        longest = m.shape((time,), call)[0]
        return m.rng.integers(min(shortest, longest), longest + 1, m.shape((batch,), call)).astype(np.int32)

    inputs.append(m.put(lengths, (batch,)) if m.chance(0.3) else "")
    inputs.append(m.x(dtype, state) if m.chance(0.5) else "")
    if m.op == "LSTM":
        inputs.append(m.x(dtype, state) if m.chance(0.5) else "")
        inputs.append(m.x(dtype, (d, 3 * hidden)) if m.chance(0.3) else "")
    while not inputs[-1]:
        inputs.pop()
    options: dict[str, Any] = m.sometimes(clip=m.pick(0.5, 2.0)) if m.chance(0.2) else {}
    if m.op == "GRU":
        options |= m.sometimes(linear_before_reset=m.pick(0, 1))
    if m.op == "LSTM" and m.chance(0.15):
        options |= {"input_forget": m.pick(0, 1)}
        m.judges = ("onnxruntime",)
    if own:
        options["activations"] = [m.pick(name, name, name.lower()) for name in names]
        counts = [_GATE_ACTIVATIONS[name] for name in names]
        for key, least in (("activation_alpha", 1), ("activation_beta", 2)):
            if numbers := [m.pick(0.3, 0.5, 0.9) for count in counts if count >= least]:
                options[key] = numbers
        m.judges = ("onnxruntime",)
    if layout:
        options["layout"] = 1
        m.judges = ("TEMPLATE",) if "TEMPLATE" in m.judges else ()  # onnxruntime refuses it
    m.node(inputs, m.pick(1, 2, 3 if m.op == "LSTM" else 2), hidden_size=hidden, direction=direction, **options)


@draws("DFT")
def _dft(m: Maker) -> None:
    if m.opset < 17:
        raise Undefined
    dims = [*m.fixed(m.pick(2, 3), 1, 9), m.pick(1, 2)]
    dtype = m.dtype("float32")
    axis = int(m.rng.integers(0, len(dims) - 1))
    inverse = m.pick(0, 1)
    onesided = m.pick(0, 1) if not inverse and dims[-1] == 1 else 0
    length = m.this(m.pick(dims[axis], dims[axis] + 2, max(1, dims[axis] - 1))) if m.chance(0.4) else ""
    inputs = [m.x(dtype, dims, "plain"), length, *([m.this(axis)] if m.opset >= 20 else [])]
    m.node(inputs, inverse=inverse, onesided=onesided, **({"axis": axis} if m.opset < 20 else {}))


# ---- quantized -------------------------------------------------------------------------------------------------------


def _scale(m: Maker, dims: Sequence[Dim] = (), dtype: Any = np.float32) -> str:
    return m.within(0.01, 0.3, dtype, dims)


@draws("com.microsoft::QLinearAdd", "com.microsoft::QLinearMul")
def _qlinear(m: Maker) -> None:
    dtype, dims = m.dtype(), m.dims()
    inputs = []
    for own in (dims, m.lower(dims)):
        inputs += [m.x(dtype, own, "extreme"), _scale(m), m.x(dtype, (), "extreme")]
    m.node([*inputs, _scale(m), m.x(dtype, (), "extreme")])


@draws("com.microsoft::QLinearSigmoid", "com.microsoft::QLinearLeakyRelu")
def _qlinear_unary(m: Maker) -> None:
    dtype = m.dtype()
    alpha = m.pick(0.1, 0.01, 1.5) if m.op_type == "QLinearLeakyRelu" else None
    constant = True  # onnxruntime takes constant parameters only
    inputs = [
        m.x(dtype, m.dims(), "extreme", False),
        m.within(0.01, 0.3, np.float32, (), constant),
        m.x(dtype, (), "extreme", constant),
    ]
    m.node([*inputs, m.within(0.01, 0.3, np.float32, (), constant), m.x(dtype, (), "extreme", constant)], alpha=alpha)


def _power(m: Maker, dims: Sequence[Dim] = (), constant: bool | None = None) -> str:
    """A scale that is a power of two, so that no product by it is rounded."""
    return m.put(lambda call: np.exp2(m.rng.integers(-6, 1, m.shape(dims, call))).astype(np.float32), dims, constant)


@draws("com.microsoft::QLinearWhere")
def _qlinear_where(m: Maker) -> None:
    dtype, dims = m.dtype(at=1), m.dims()
    inputs = [m.x(np.bool_, m.lower(dims))]
    for own in (m.lower(dims), dims):  # onnxruntime takes constant parameters only
        inputs += [m.x(dtype, own, "extreme"), _power(m, (), True), m.x(dtype, (), "extreme", True)]
    m.node([*inputs, _power(m, (), True), m.x(dtype, (), "extreme", True)])


@draws("com.microsoft::QLinearConcat")
def _qlinear_concat(m: Maker) -> None:
    dtype, dims = dtype_of(m.pick("int8", "uint8")), m.dims(least=1)
    axis = m.axis(len(dims))
    inputs = [_power(m, (), True), m.x(dtype, (), "extreme", True)]
    for _ in range(m.pick(1, 2, 3)):
        own = list(dims)
        own[axis] = m.size()
        inputs += [m.x(dtype, own, "extreme"), _power(m, (), True), m.x(dtype, (), "extreme", True)]
    m.node(inputs, axis=axis)


@draws("com.microsoft::QLinearSoftmax")
def _qlinear_softmax(m: Maker) -> None:
    dtype, dims = m.dtype(), m.dims(least=1)
    constants = [_scale(m), m.x(dtype, (), "extreme", True)]
    m.node(
        [
            m.x(dtype, dims, "extreme", False),
            *constants,
            m.this(1 / 256, np.float32, True),
            m.x(dtype, (), "plain", True),
        ],
        axis=m.axis(len(dims)),
        opset=m.pick(11, 13),
    )
    m.nearly()


@draws("com.microsoft::QLinearAveragePool")
def _qlinear_pool(m: Maker) -> None:
    _, attributes, image = _window(m, m.pick(1, 2, 2, 3))
    attributes.pop("dilations", None)
    attributes |= m.sometimes(ceil_mode=m.pick(0, 1), count_include_pad=m.pick(0, 1))
    dtype = m.dtype()
    parameters = [_scale(m), m.x(dtype, (), "extreme")]
    m.node(
        [m.x(dtype, [m.pick("N", 1, 2), m.pick(1, 2, 9), *image], "extreme"), *parameters, _scale(m), m.x(dtype, ())],
        **attributes,
    )
    m.nearly()


@draws("com.microsoft::QLinearGlobalAveragePool")
def _qlinear_global(m: Maker) -> None:
    dtype = m.dtype()
    last = m.pick(0, 1)
    channels, image = m.pick(1, 3, 17), m.fixed(m.pick(1, 2, 3))
    dims = [m.pick("N", 1), *image, channels] if last else [m.pick("N", 1), channels, *image]
    parameters = [_scale(m), m.x(dtype, (), "extreme")]
    m.node([m.x(dtype, dims, "extreme"), *parameters, _scale(m), m.x(dtype, ())], channels_last=last)
    m.nearly()


@draws("com.microsoft::QGemm")
def _qgemm(m: Maker) -> None:
    rows, k, columns = m.pick("N", 1, 5), m.pick(1, 4, 9, 33), m.pick(1, 3, 8, 17)
    a, b = m.pick(0, 1), m.pick(0, 1)
    left = m.dtype()
    right = m.dtype(at=3)
    own = (columns,) if m.chance(0.3) else ()
    inputs = [m.x(left, (k, rows) if a else (rows, k), "extreme"), _power(m), m.x(left, (), "extreme")]
    inputs += [m.x(right, (columns, k) if b else (k, columns), "extreme"), _power(m, own), m.x(right, own, "extreme")]
    alpha = m.pick(None, 1.0, 0.5)
    inputs.append(m.whole(-9999, 9999, np.int32, m.pick((columns,), (1, columns), (1, 1))) if m.chance(0.6) else "")
    if m.chance(0.6):  # else the result is float32
        inputs += [m.this(m.pick(1.0, 16.0, 1024.0), np.float32), m.x(left, (), "extreme")]
    while not inputs[-1]:
        inputs.pop()
    m.node(inputs, transA=a, transB=b, alpha=alpha)


@draws("com.microsoft::DynamicQuantizeMatMul", "com.microsoft::MatMulIntegerToFloat")
def _float_products(m: Maker) -> None:
    k, columns = m.pick(1, 4, 9, 33), m.pick(1, 3, 8, 17)
    weights = dtype_of(m.pick("int8", "uint8"))
    lead = [m.pick("N", 1, 2), m.pick(1, 5)]
    dynamic = m.op_type == "DynamicQuantizeMatMul"
    data = np.dtype(np.float32) if dynamic else dtype_of("uint8")
    own = (columns,) if m.chance(0.3) else ()
    inputs = [m.x(data, [*lead, k], "plain" if dynamic else "extreme"), m.x(weights, (k, columns), "extreme")]
    inputs += [] if dynamic else [_scale(m)]
    inputs.append(_scale(m, own))
    inputs += [] if dynamic else [m.x(data, (), "extreme") if m.chance(0.5) else ""]
    inputs.append(m.x(weights, own, "extreme") if m.chance(0.5) else "")
    inputs.append(m.x(np.float32, (columns,), "plain") if m.chance(0.5) else "")
    while not inputs[-1]:
        inputs.pop()
    m.tolerance = 1e-2 if dynamic else 2e-5  # onnxruntime rounds ties of the quantized input otherwise
    m.node(inputs)


# ---- machine learning ------------------------------------------------------------------------------------------------


def _rows(m: Maker) -> tuple[tuple[Dim, ...], int]:
    width = int(m.rng.integers(1, 6))
    return (m.pick("N", 1, 3), width), width


@draws("ai.onnx.ml::Binarizer")
def _binarizer(m: Maker) -> None:
    m.node([m.x(m.dtype(), m.dims(rank=2))], threshold=m.pick(0.0, 0.5, -1.0, None))


@draws("ai.onnx.ml::Normalizer")
def _normalizer(m: Maker) -> None:
    m.node([m.x(m.dtype(), m.dims(rank=m.pick(1, 2)), "ties")], norm=m.pick("MAX", "L1", "L2", None))


@draws("ai.onnx.ml::Scaler")
def _scaler(m: Maker) -> None:
    dims, width = _rows(m)
    make = lambda: [float(v) for v in m.rng.normal(size=m.pick(1, width))]  # noqa: E731
    m.node([m.x(m.dtype(), dims, "plain")], offset=make(), scale=make())


@draws("ai.onnx.ml::Imputer")
def _imputer(m: Maker) -> None:
    dims, width = _rows(m)
    dtype = m.dtype("float32", "int64")
    count = m.pick(1, width)
    if dtype == np.float32:
        options: dict[str, Any] = {
            "imputed_value_floats": [float(n) for n in range(count)],
            "replaced_value_float": m.pick(math.nan, 0.5, 0.0),
        }
        m.style = "extreme"
    else:
        options = {"imputed_value_int64s": list(range(count)), "replaced_value_int64": m.pick(0, -1, 2)}
    m.node([m.x(dtype, dims)], **options)


@draws("ai.onnx.ml::FeatureVectorizer")
def _feature_vectorizer(m: Maker) -> None:
    widths = [int(m.rng.integers(1, 5)) for _ in range(m.pick(1, 2, 3))]
    dtype = m.dtype()
    m.judges = ("TEMPLATE",)  # onnxruntime may end the process
    m.node([m.x(dtype, ("N", width), "plain") for width in widths], inputdimensions=widths)


@draws("ai.onnx.ml::ArrayFeatureExtractor")
def _extractor(m: Maker) -> None:
    dims, width = _rows(m)
    m.node([m.x(m.dtype("float32", "float64", "int32", "int64"), dims), m.whole(0, width, np.int64, (1, m.pick(1, 3)))])


POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@draws("ai.onnx.ml::LinearRegressor")
def _linear_regressor(m: Maker) -> None:
    dims, width = _rows(m)
    targets = m.pick(1, 3)
    make = lambda count: [float(v) for v in m.rng.normal(size=count)]  # noqa: E731
    m.node(
        [m.x(m.dtype(), dims, "plain")],
        coefficients=make(targets * width), targets=targets, intercepts=make(targets) if m.chance(0.7) else None,
        post_transform=m.pick(*POST[:1] * 3),
    )  # fmt: skip


@draws("ai.onnx.ml::LinearClassifier")
def _linear_classifier(m: Maker) -> None:
    dims, width = _rows(m)
    classes = m.pick(2, 3, 4)
    rows = classes if classes > 2 or m.chance(0.5) else 1
    make = lambda count: [float(v) for v in m.rng.normal(size=count)]  # noqa: E731
    m.node(
        [m.x(m.dtype(), dims, "plain")], 2, coefficients=make(rows * width), intercepts=make(rows),
        classlabels_ints=[int(n) for n in m.rng.permutation(classes) + 3], post_transform=m.pick(*POST[:4]),
        multi_class=m.pick(0, 1),
    )  # fmt: skip


@draws("ai.onnx.ml::TreeEnsembleRegressor")
def _trees(m: Maker) -> None:
    m.version = m.pick(1, 3)
    dims, width = _rows(m)
    columns: dict[str, list[Any]] = {
        key: []
        for key in (
            "treeids",
            "nodeids",
            "featureids",
            "modes",
            "values",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
    }
    targets: dict[str, list[Any]] = {key: [] for key in ("treeids", "nodeids", "ids", "weights")}
    n_targets = m.pick(1, 2, 3)
    modes = m.pick(
        ("BRANCH_LEQ",),
        ("BRANCH_LEQ",),
        ("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_LEQ"),
    )
    tracks = m.chance(0.3)
    for tree in range(m.pick(1, 2, 5, 20)):
        depth = m.pick(0, 1, 2, 3, 6)
        count = 2 ** (depth + 1) - 1
        for node in range(count):
            leaf = 2 * node + 1 >= count
            row = (tree, node, 0 if leaf else int(m.rng.integers(width)), "LEAF" if leaf else m.pick(*modes),
                   0.0 if leaf else float(m.pick(0.0, 0.5, -1.0, 1.5)), 0 if leaf else 2 * node + 1,
                   0 if leaf else 2 * node + 2, int(tracks and m.chance(0.5)))  # fmt: skip
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            if leaf:
                for column, value in zip(
                    targets.values(), (tree, node, int(m.rng.integers(n_targets)), float(m.rng.normal())), strict=True
                ):
                    column.append(value)
    options = {f"nodes_{key}": value for key, value in columns.items()} | {
        f"target_{key}": value for key, value in targets.items()
    }
    if not tracks:
        del options["nodes_missing_value_tracks_true"]
    m.style = m.pick("ties", "extreme")
    m.node([m.x(m.dtype(), dims)], n_targets=n_targets, aggregate_function=m.pick("SUM", "AVERAGE", "MIN", "MAX", None),
           base_values=[0.5] * n_targets if m.chance(0.3) else None, post_transform="NONE", **options)  # fmt: skip


@draws("ai.onnx.ml::TreeEnsemble")
def _tree_ensemble(m: Maker) -> None:
    m.version = 5
    dims, width = _rows(m)
    dtype, targets = m.dtype(), m.pick(1, 2)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("featureids", "modes", "splits", "truenodeids", "falsenodeids", "trueleafs", "falseleafs",
                              "missing_value_tracks_true")
    }  # fmt: skip
    leaves: dict[str, list[Any]] = {"targetids": [], "weights": []}
    sets: dict[int, list[float]] = {}

    def add(depth: int) -> int:
        at = len(columns["modes"])
        mode = m.pick(0, 0, 1, 2, 3, 4, 5, 6)
        split = m.pick(-2, -1, -0.5, 0, 0.5, 1, 1.5, 2)
        row = (int(m.rng.integers(width)), mode, 0.0 if mode == 6 else split, 0, 0, 0, 0, m.pick(0, 1))
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        if mode == 6:
            sets[at] = [float(number) for number in m.rng.integers(-2, 3, m.pick(1, 2, 3))]
        for side in ("true", "false"):
            is_leaf = not depth or m.chance(0.3)
            columns[f"{side}leafs"][at] = int(is_leaf)
            columns[f"{side}nodeids"][at] = len(leaves["weights"]) if is_leaf else add(depth - 1)
            if is_leaf:
                leaves["targetids"].append(int(m.rng.integers(targets)))
                leaves["weights"].append(float(m.rng.normal()))
        return at

    roots = [add(m.pick(0, 1, 2, 4)) for _ in range(m.pick(1, 2, 3, 20))]
    tensor = lambda values, kind: numpy_helper.from_array(np.array(values, kind))  # noqa: E731
    members = [number for at in sorted(sets) for number in (*sets[at], math.nan)]
    tracks = columns.pop("missing_value_tracks_true")
    options: dict[str, Any] = {f"nodes_{name}": values for name, values in columns.items()}
    options["nodes_modes"] = tensor(columns["modes"], np.uint8)
    options["nodes_splits"] = tensor(columns["splits"], dtype)
    m.style = m.pick("ties", "extreme")
    m.node(
        [m.x(dtype, dims)], n_targets=targets, tree_roots=roots, aggregate_function=m.pick(0, 1, 2, 3),
        post_transform=m.pick(0, 0, 0, 1, 2, 3) if targets > 1 else 0,
        membership_values=tensor(members, dtype) if members else None,
        nodes_missing_value_tracks_true=tracks if m.chance(0.4) else None, leaf_targetids=leaves["targetids"],
        leaf_weights=tensor(leaves["weights"], dtype), **options,
    )  # fmt: skip


# ---- attention -------------------------------------------------------------------------------------------------------


@draws("com.microsoft::MultiHeadAttention")
def _mha(m: Maker) -> None:
    heads, size, b, s = m.pick(1, 2, 3), m.pick(2, 4, 8), m.pick(1, 2), m.pick(1, 3, 26)
    k, past, wide = m.pick(s, 4, 30), m.pick(0, 0, 2), size + m.pick(0, 0, 1)
    x = lambda *dims: m.x(np.float32, dims, "plain", False)  # noqa: E731
    # onnxruntime has no packed keys and values, and values of another size only without a past and in this form.
    if m.chance(0.3):
        past, wide = 0, size
        parts = [x(b, heads, k, size), x(b, heads, k, size)]
    else:
        wide = size if past else wide
        parts = [x(b, k, heads * size), x(b, k, heads * wide)]
    inputs = [x(b, s, heads * size), *parts, *[""] * 5]
    if m.chance(0.4):
        inputs[3] = m.x(np.float32, (heads * (2 * size + wide),), "plain")
    inputs[4:6] = _masks(m, b, heads, s, k + past, ("lengths", "keys", "all"))
    if past:
        inputs[6:8] = [x(b, heads, past, size), x(b, heads, past, wide)]
    m.tolerance = 1e-4
    m.judges = ("onnxruntime",)
    while not inputs[-1]:
        inputs.pop()
    options = _mask_options(m)
    if k != s:
        options.pop("unidirectional", None)
    m.node(inputs, 3 if past or m.chance(0.3) else 1, num_heads=heads, **options)


def _masks(m: Maker, b: int, heads: int, queries: int, keys: int, kinds: Sequence[str]) -> list[str]:
    """A mask of integers and a bias of the scores, or neither."""

    def mask(_: int) -> Array:
        if kind == "lengths":
            return m.rng.integers(1, keys + 1, b).astype(np.int32)
        if kind == "ends and starts":
            low = m.rng.integers(0, min(2, keys), b)
            return np.concatenate([low + m.rng.integers(1, keys + 1 - low.max(), b), low]).astype(np.int32)
        made = m.rng.integers(0, 2, (b, keys) if kind == "keys" else (b, queries, keys)).astype(np.int32)
        made[..., 0] = 1
        return made

    kind = m.pick(*kinds)
    dims = {"lengths": (b,), "ends and starts": (2 * b,), "keys": (b, keys), "all": (b, queries, keys)}[kind]
    return [
        m.put(mask, dims) if m.chance(0.4) else "",
        m.x(np.float32, (m.pick(1, b), m.pick(1, heads), queries, keys), "plain") if m.chance(0.4) else "",
    ]


def _mask_options(m: Maker) -> dict[str, Any]:
    options = {"unidirectional": 1, "scale": m.pick(0.3, 1.0), "mask_filter_value": m.pick(-1e4, -1.0, -3e38)}
    return {name: value for name, value in options.items() if m.chance(0.3)}


@draws("com.microsoft::Attention")
def _attention_of_weights(m: Maker) -> None:
    b, s, heads, size, width = m.pick(1, 2), m.pick(1, 3, 26), m.pick(1, 2, 3), m.pick(2, 4), m.pick(5, 8)
    past = m.pick(0, 0, 2)
    wide = heads * (size + (0 if past else m.pick(0, 0, 1)))
    total = 2 * heads * size + wide
    inputs = [m.x(np.float32, (b, s, width), "plain", False), m.x(np.float32, (width, total), "plain")]
    inputs += [m.x(np.float32, (total,), "plain"), ""]
    mask, bias = _masks(m, b, heads, s, s + past, ("lengths", "ends and starts", "keys", "all"))
    inputs[3:] = [mask, m.x(np.float32, (2, b, heads, past, size), "plain") if past else "", "" if past else bias]
    sizes = [heads * size, heads * size, wide] if wide != heads * size or m.chance(0.2) else None
    m.tolerance = 1e-4
    m.judges = ("onnxruntime",)
    while not inputs[-1]:
        inputs.pop()
    outputs = 2 if past or (wide == heads * size and m.chance(0.3)) else 1
    m.node(inputs, outputs, num_heads=heads, qkv_hidden_sizes=sizes, **_mask_options(m))


@draws("com.microsoft::GroupQueryAttention")
def _gqa(m: Maker) -> None:
    b, groups, size, capacity = m.pick(1, 2, 3), m.pick(1, 2), m.pick(8, 16, 32), m.pick(0, 4, 8)
    heads = groups * m.pick(1, 2, 3)
    prompt = not capacity or m.chance(0.3)
    steps = m.pick(1, 3, capacity or 7) if prompt else 1 if b > 1 else m.pick(1, 2)
    total = steps if prompt else m.pick(capacity + steps, int(m.rng.integers(steps + 1, capacity + 1)))

    def last(_: int) -> Array:
        made = m.rng.integers(0 if prompt else steps, total, b)
        made[int(m.rng.integers(b))] = total - 1
        return made.astype(np.int32)

    ends = m.put(last, (b,))
    x = lambda *dims: m.x(np.float32, dims, "plain", False)  # noqa: E731
    inputs = [""] * 12
    if m.chance(0.3):
        inputs[0] = x(b, steps, (heads + 2 * groups) * size)
    else:
        inputs[:3] = [x(b, steps, heads * size), x(b, steps, groups * size), x(b, steps, groups * size)]
    if capacity:
        inputs[3:5] = [x(b, groups, capacity, size) for _ in range(2)]
    inputs[5:7] = [ends, m.this(m.pick(total, [total]), np.int32)]
    options: dict[str, Any] = {}
    if size > 8 and m.chance(0.6):
        half = m.pick(8, size // 2)
        options |= {"do_rotary": 1, "rotary_interleaved": m.pick(0, 1)}
        inputs[7:9] = [m.x(np.float32, (64, half), "plain") for _ in range(2)]
    length = max(total, capacity)
    if m.chance(0.25):
        inputs[10] = m.x(np.float32, (m.pick(1, b), m.pick(1, heads), steps, total), "plain")
    if m.chance(0.2):
        inputs[11] = m.x(np.float32, (heads,), "plain")
    choices = {"scale": 0.3, "softcap": m.pick(1.0, 5.0), "local_window_size": m.pick(1, 2, 4), "smooth_softmax": 1}
    options |= {name: value for name, value in choices.items() if m.chance(0.25)}
    while not inputs[-1]:
        inputs.pop()
    m.tolerance = 1e-4
    m.judges = ("onnxruntime",)
    m.node(inputs, 3, num_heads=heads, kv_num_heads=groups, **options)
    given = m.operands[ends].arrays
    if prompt:
        m.keep(0, lambda call: np.arange(steps)[:, None] <= given[call][:, None, None], (b, steps, 1))
    for at in (1, 2):
        m.keep(at, lambda call: np.arange(length)[:, None] <= given[call][:, None, None, None], (b, 1, length, 1))


@draws("Attention")
def _attention(m: Maker) -> None:
    m.opset = m.version = m.pick(23, 24)
    groups, size, b, queries = m.pick(1, 2), m.pick(2, 4, 8), m.pick(1, 2), m.pick(1, 3, 26)
    heads, keys, past = groups * m.pick(1, 1, 2, 3), m.pick(queries, 4, 30), m.pick(0, 0, 2)
    wide = size + m.pick(0, 0, 1)
    x = lambda *dims: m.x(np.float32, dims, "plain", False)  # noqa: E731
    options: dict[str, Any] = {}
    if m.chance(0.5):
        inputs = [x(b, heads, queries, size), x(b, groups, keys, size), x(b, groups, keys, wide)]
    else:
        inputs = [x(b, queries, heads * size), x(b, keys, groups * size), x(b, keys, groups * wide)]
        options |= {"q_num_heads": heads, "kv_num_heads": groups}
    total = keys + past
    inputs += ["", "", ""]
    if m.chance(0.5):
        dims = m.pick((queries, total), (m.pick(1, heads), queries, total), (b, m.pick(1, heads), queries, total))
        kind = m.pick("bool", "bias", "infinite")

        def mask(_: int) -> Array:
            allowed = m.rng.random(dims) < 0.6
            allowed[..., 0] = True
            if kind == "bool":
                return allowed
            bias = m.rng.standard_normal(dims)
            return np.where(allowed | (kind == "bias"), bias, -np.inf).astype(np.float32)

        inputs[3] = m.put(mask, dims)
    if past:
        inputs[4:6] = [x(b, groups, past, size), x(b, groups, past, wide)]
    elif m.opset >= 24 and m.chance(0.2):
        inputs.append(m.whole(1, keys + 1, np.int64, (b,)))
    choices = {"is_causal": 1, "scale": m.pick(0.3, 1.0), "softcap": m.pick(1.0, 5.0)}
    options |= {name: value for name, value in choices.items() if m.chance(0.3)}
    outputs = 4 if m.chance(0.3) else 3 if past else 1
    if outputs == 4:
        options["qk_matmul_output_mode"] = m.pick(0, 1, 2, 3)
    m.tolerance = 1e-4
    while not inputs[-1]:
        inputs.pop()
    m.node(inputs, outputs, **options)


@draws("com.microsoft::RotaryEmbedding")
def _rotary(m: Maker) -> None:
    heads, half = m.pick(1, 2), m.pick(1, 2, 4)
    b, s, longest = m.pick(1, 2), m.pick(1, 3), 9
    ids = m.whole(0, longest - s, np.int64, (1,)) if m.chance(0.5) else m.whole(0, longest, np.int64, (b, s))
    caches = [m.x(np.float32, (longest, half), "plain") for _ in range(2)]
    m.node([m.x(np.float32, (b, s, heads * 2 * half), "plain"), ids, *caches], interleaved=m.pick(0, 1, None))


@draws("RotaryEmbedding")
def _rotary_of_onnx(m: Maker) -> None:
    m.opset = m.version = m.pick(23, 24)
    heads, half, b, s, longest = m.pick(1, 2), m.pick(1, 2, 4), m.pick(1, 2), m.pick(1, 3), 9
    size = 2 * half + m.pick(0, 0, 2)
    partial = {"rotary_embedding_dim": 2 * half} if size > 2 * half else {}
    if m.chance(0.5):
        x = m.x(np.float32, (b, heads, s, size), "plain")
    else:
        x = m.x(np.float32, (b, s, heads * size), "plain")
        partial["num_heads"] = heads
    by_id = m.chance(0.6)
    caches = [m.x(np.float32, (longest, half) if by_id else (b, s, half), "plain") for _ in range(2)]
    ids = [m.whole(0, longest, np.int64, (b, s))] if by_id else []
    m.node([x, *caches, *ids], interleaved=m.pick(0, 1, None), **partial)


ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        (
            "QuantizeLinear",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
            "QLinearConv",
            "QLinearMatMul",
        ),
        "drawn by integers.py",
    ),
    **dict.fromkeys(
        (
            "If",
            "Loop",
            "Scan",
        ),
        "drawn by graphs.py",
    ),
    **dict.fromkeys(
        (
            "Bernoulli",
            "Multinomial",
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
            "Dropout",
        ),
        "random numbers; tests/devices/cpu/test_hosted.py",
    ),
    **dict.fromkeys(
        (
            "ConcatFromSequence",
            "SequenceAt",
            "SequenceErase",
            "SequenceInsert",
            "SequenceLength",
            "SplitToSequence",
            "ai.onnx.ml::ZipMap",
        ),
        "sequences and maps; tests/devices/cpu/test_hosted.py",
    ),
    **dict.fromkeys(
        (
            "Optional",
            "OptionalGetElement",
            "OptionalHasElement",
            "SequenceConstruct",
            "SequenceEmpty",
            "SequenceMap",
            "StringConcat",
            "ai.onnx.ml::CastMap",
            "ai.onnx.ml::DictVectorizer",
        ),
        "ONNX's node tests, tests/devices/cpu/test_backend.py, as far as ONNX has some",
    ),
    **dict.fromkeys(
        (
            "RegexFullMatch",
            "StringNormalizer",
            "StringSplit",
            "TfIdfVectorizer",
            "com.microsoft::Tokenizer",
            "ai.onnx.ml::CategoryMapper",
            "ai.onnx.ml::LabelEncoder",
            "ai.onnx.ml::OneHotEncoder",
        ),
        "strings; tests/devices/cpu/operators/test_strings.py",
    ),
    **dict.fromkeys(
        (
            "DeformConv",
            "MaxRoiPool",
        ),
        "tests/helpers/operator_cases.py",
    ),
    **dict.fromkeys(
        (
            "ai.onnx.ml::SVMClassifier",
            "ai.onnx.ml::SVMRegressor",
        ),
        "tests/devices/cpu/operators/test_svm.py",
    ),
    **dict.fromkeys(
        ("com.microsoft::EmbedLayerNormalization",),
        "tests/devices/cpu/operators/test_onnxruntime.py",
    ),
    **dict.fromkeys(
        (
            "com.microsoft::GatherBlockQuantized",
            "com.microsoft::MatMulNBits",
        ),
        "tests/devices/cpu/operators/test_nbits.py",
    ),
    **dict.fromkeys(
        (
            "com.microsoft::QAttention",
            "com.microsoft::QEmbedLayerNormalization",
        ),
        "tests/devices/cpu/operators/test_onnxruntime_quantized.py",
    ),
    "ai.onnx.ml::TreeEnsembleClassifier": "tests/devices/cpu/operators/test_trees.py",
    "com.microsoft::DynamicQuantizeLSTM": "tests/devices/cpu/operators/test_dynamic_quantize_lstm.py",
    "STFT": "tests/devices/cpu/operators/test_fourier.py",
}
"""Operators that this generator does not draw, and where they are tested."""

FUNCTIONS = {"Attention"}
"""Drawn operators that `CPU` does not have: it runs the nodes of their definition in ONNX."""


def _types(case: Case) -> set[str]:
    """Of the operands."""
    graph = case.model.graph
    numbers = {value.type.tensor_type.elem_type for value in graph.input} | {t.data_type for t in graph.initializer}
    return {helper.tensor_dtype_to_np_dtype(number).name for number in numbers}


def _is(*op_types: str) -> Callable[[Case], bool]:
    return lambda case: case.model.graph.node[0].op_type in op_types


def _constants_extreme(case: Case) -> bool:
    given = [array for feeds in case.calls for array in feeds.values()]
    constants = map(numpy_helper.to_array, case.model.graph.initializer)
    return any(is_float(a.dtype) and not np.isfinite(a.astype(np.float64)).all() for a in (*given, *constants))


def _attributes(case: Case) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in case.model.graph.node[0].attribute}


def _keeps_ratio(case: Case) -> bool:
    return _attributes(case).get("keep_aspect_ratio_policy", b"stretch") != b"stretch"


def _skips(case: Case) -> bool:
    """Whether a pool with auto_pad skips elements, which makes padding negative."""
    values = {a.name: helper.get_attribute_value(a) for a in case.model.graph.node[0].attribute}
    kernel = values.get("kernel_shape", [])
    strides = values.get("strides", [1] * len(kernel))
    return (
        _is("MaxPool", "AveragePool", "LpPool")(case)
        and values.get("auto_pad", b"").startswith(b"SAME")
        and any(stride > size for stride, size in zip(strides, kernel, strict=True))
    )


def _pads_result(case: Case) -> bool:
    """Whether a transposed convolution with auto_pad SAME has strides beyond its kernel: negative padding."""
    values = {a.name: helper.get_attribute_value(a) for a in case.model.graph.node[0].attribute}
    if not _is("ConvTranspose")(case) or not values.get("auto_pad", b"").startswith(b"SAME"):
        return False
    kernel = values.get("kernel_shape") or _operands(case, 1)[0].shape[2:]
    ones = [1] * len(kernel)
    strides, dilations = values.get("strides", ones), values.get("dilations", ones)
    return any(s > (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations, strict=True))


def _is_empty(case: Case) -> bool:
    return any(not array.size for feeds in case.calls for array in feeds.values()) or any(
        0 in tensor.dims for tensor in case.model.graph.initializer
    )


def _operands(case: Case, place: int) -> list[np.ndarray]:
    """What the node reads at this place: a constant, or an input of each call."""
    names = case.model.graph.node[0].input
    if len(names) <= place:
        return []
    constants = [numpy_helper.to_array(one) for one in case.model.graph.initializer if one.name == names[place]]
    return constants or [call[names[place]] for call in case.calls if names[place] in call]


def _scatters_by(case: Case, *reductions: bytes) -> bool:
    attributes = case.model.graph.node[0].attribute
    return _is("ScatterND", "ScatterElements")(case) and any(
        a.name == "reduction" and a.s in reductions for a in attributes
    )


def _differing(difference: str) -> list[float]:
    """The two numbers that a difference shows."""
    match = re.search(r" at \[.*\] (\S+) and (\S+)$", difference)
    return [float(number) for number in match.groups()] if match else [np.inf]


def _has_other_class(difference: str) -> bool:
    """Whether one number is NaN or an infinity and the other is not the same, or both are booleans."""
    match = re.search(r" at \[.*\] (\S+) and (\S+)$", difference)
    return match is not None and not {"nan", "inf", "-inf", "True", "False"}.isdisjoint(match.groups())


def _slices_back_from_the_largest(case: Case) -> bool:
    largest = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)
    return (
        _is("Slice")(case)
        and any((steps < 0).any() for steps in _operands(case, 4))
        and any(np.isin(ends, largest).any() for ends in _operands(case, 2))
    )


def _divides_by_zero(case: Case) -> bool:
    bases, exponents = _operands(case, 0), _operands(case, 1)
    return (
        _is("Pow")(case)
        and any(array.dtype.kind == "i" and (array == 0).any() for array in bases)
        and any((array < 0).any() for array in exponents)
    )


def _large_powers(case: Case) -> set[float]:
    """The powers, as integers wrap around, that float64 or the type cannot hold."""
    found = set()
    for base, exponent in zip(itertools.cycle(_operands(case, 0)), _operands(case, 1) * len(case.calls), strict=False):
        bits = 8 * base.dtype.itemsize
        for one, two in np.broadcast(base, exponent):
            if abs(int(one)) > 1 and two > 0 and int(two) * math.log2(abs(int(one))) >= min(bits - 1, 53):
                wrapped = pow(int(one), int(two), 1 << bits)
                found.add(float(wrapped - (wrapped >> bits - 1 << bits)))
    return found


def _rounding_of_instance_norm(case: Case) -> float:
    """A bound on the rounding of x * factor + (bias - mean * factor) in float32, factor = scale / deviation: a few
    units in the last place of the largest product."""
    epsilon, largest = _attributes(case).get("epsilon", 1e-5), 0.0
    scale, bias = (_operands(case, at)[0].astype(np.float64) for at in (1, 2))
    for x in _operands(case, 0):
        if not x.size:
            continue
        rows = x.astype(np.float64).reshape(*x.shape[:2], -1)
        mean = rows.mean(axis=2, keepdims=True)
        factor = np.abs(scale[:, None]) / np.sqrt(rows.var(axis=2, keepdims=True) + epsilon)
        terms = factor * (np.abs(rows) + np.abs(mean)) + np.abs(bias[:, None])
        largest = max(largest, float(terms.max()))
    return 4 * 2.0**-24 * largest


def _resizes(case: Case, coordinates: bytes) -> bool:
    return _is("Resize")(case) and _attributes(case).get("coordinate_transformation_mode") == coordinates


def _target(case: Case) -> tuple[Sequence[int], list[float], list[int]]:
    """The axes that Resize names, their scales, and their lengths in the result."""
    x, attributes = _operands(case, 0)[0], _attributes(case)
    axes = [axis % x.ndim for axis in attributes.get("axes", range(x.ndim))]
    scales, sizes = ([array for array in _operands(case, place) if array.size] for place in (2, 3))
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch").decode()
    return axes, *resizing.target(x, axes, scales[0] if scales else None, sizes[0] if sizes else None, policy)


def _crops_without_scaling(case: Case) -> bool:
    """Whether Resize takes a region of an axis whose length it keeps."""
    if not _resizes(case, b"tf_crop_and_resize"):
        return False
    region = _operands(case, 1)[0].reshape(2, -1).T
    axes, _, lengths = _target(case)
    return any(
        length == _operands(case, 0)[0].shape[axis] and tuple(bounds) != (0, 1)
        for axis, length, bounds in zip(axes, lengths, region, strict=True)
    )


def _resizes_ties(case: Case) -> bool:
    """Whether a coordinate of Resize lies, up to rounding, between two nearest elements or on an end of the axis."""
    attributes = _attributes(case)
    mode = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    nearest, crops = attributes.get("mode", b"nearest") == b"nearest", mode == "tf_crop_and_resize"
    if not _is("Resize")(case) or not (nearest or crops) or mode == "tf_half_pixel_for_nn":
        return False
    shift = 0.5 if nearest and attributes.get("nearest_mode", b"round_prefer").startswith(b"round") else 0.0
    axes, scales, lengths = _target(case)
    region = _operands(case, 1)[0].reshape(2, -1).T if crops else [None] * len(axes)
    for axis, scale, length, bounds in zip(axes, scales, lengths, region, strict=True):
        size = _operands(case, 0)[0].shape[axis]
        places = resizing.coordinates(mode, size, length, scale, bounds, np.float64)
        distance = np.abs(places + shift - np.rint(places + shift)) if nearest else np.ones(length)
        if crops:
            distance = np.minimum(distance, np.minimum(np.abs(places), np.abs(places - (size - 1))))
        is_rounded = float(np.float32(scale)) != scale
        if ((distance < 1e-5) & (is_rounded | (distance > 0))).any():
            return True
    return False


KNOWN: tuple[Known, ...] = (
    Known(
        "OPENVINO",
        "it raises an error for integers beyond the numbers that it computes exactly",
        lambda case: bool(_types(case) & {"int32", "int64"}),
        lambda case, difference: "OpenVINO computes its integers exactly only from" in difference,
    ),
    Known(
        "OPENVINO",
        "its results of NaN and infinities differ",
        _constants_extreme,
        lambda case, difference: _has_other_class(difference),
    ),
    Known(
        "OPENVINO",
        "it computes no tensors without elements whose sizes are not known before",
        lambda case: _is_empty(case) or (_is("TopK")(case) and any((k == 0).any() for k in _operands(case, 1))),
        lambda case, difference: "only OPENVINO fails" in difference or "[" in difference.rpartition(" and ")[2],
    ),
    Known("onnxruntime", LOG_SOFTMAX.reason, lambda case: _is("LogSoftmax")(case) and _constants_extreme(case)),
    Known(
        "onnxruntime",
        "its ReduceLogSumExp of NaN and an infinity is infinite; by the formula it is NaN",
        lambda case: _is("ReduceLogSumExp")(case) and _constants_extreme(case),
    ),
    Known(
        "onnxruntime",
        "by ONNX's text, the result of auto_pad SAME has the size of the input times the strides, also where strides "
        "exceed the kernel",
        _pads_result,
    ),
    Known(
        "TEMPLATE",
        "onnx.reference rounds each step of Gelu to a half type, so that its tail loses digits",
        lambda case: (
            _is("Gelu")(case)
            and bool(_types(case) & {"bfloat16", "float16"})
            and any((x < -1).any() for x in _operands(case, 0))
        ),
        lambda case, difference: all(-0.2 < number <= 0 for number in _differing(difference)),
    ),
    Known(
        "onnxruntime",
        "its Slice with a negative step takes the largest integer for the begin of the axis; by ONNX, it is clamped to "
        "the last element",
        _slices_back_from_the_largest,
    ),
    Known(
        "onnxruntime",
        "its Sign of a NaN of float16 is 0",
        lambda case: _is("Sign")(case) and "float16" in _types(case),
    ),
    Known(
        "onnxruntime",
        "its Pow of an integer 0 with a negative exponent gives a number; CPU and TEMPLATE raise an error",
        _divides_by_zero,
    ),
    Known(
        "onnxruntime",
        "its products of uint8 with int8 saturate 16-bit sums of two on processors without VNNI",
        lambda case: (
            _is("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "ConvInteger", "QGemm")(case)
            and bool(_types(case) & {"int8"})
        ),
    ),
    Known(
        "onnxruntime",
        "it reduces integers in floating point",
        lambda case: case.model.graph.node[0].op_type.startswith("Reduce") and bool(_types(case) & {"int32", "int64"}),
    ),
    Known(
        "onnxruntime",
        "its maxima and minima of NaN depend on the place of NaN",
        lambda case: (
            (_is("ReduceMax", "ReduceMin", "Max", "Min")(case) or _scatters_by(case, b"max", b"min"))
            and _constants_extreme(case)
        ),
    ),
    Known(
        "onnxruntime",
        "it subtracts 1 from an exponential, so that it rounds small arguments to 0",
        _is("Selu", "Elu", "Celu"),
    ),
    Known(
        "onnxruntime",
        "it adds no base value to targets that no leaf of the row adds to; by ONNX, base values join every prediction",
        lambda case: (
            _is("TreeEnsembleRegressor")(case)
            and any(a.name == "base_values" for a in case.model.graph.node[0].attribute)
        ),
    ),
    Known(
        "onnxruntime",
        "its align_corners rounds lengths of scales before it maps corners; ONNX's node tests do not",
        lambda case: (
            _is("Resize")(case)
            and any(a.s == b"align_corners" for a in case.model.graph.node[0].attribute)
            and (not case.model.graph.node[0].input[3:] or _keeps_ratio(case))
        ),
    ),
    Known(
        "onnxruntime",
        "its tf_crop_and_resize ignores the region of an axis that keeps its length; ONNX's text and onnx.reference do "
        "not",
        _crops_without_scaling,
    ),
    Known(
        "onnxruntime",
        "its cubic tf_crop_and_resize of images whose last axis is the channels extrapolates at the wrong elements",
        lambda case: (
            _resizes(case, b"tf_crop_and_resize")
            and _attributes(case)["mode"] == b"cubic"
            and _operands(case, 0)[0].ndim == 4
            and any(axis == 1 and scale != 1 for axis, scale in zip(*_target(case)[:2], strict=True))
        ),
    ),
    Known(
        "onnxruntime",
        "it converts a negative extrapolation_value to an unsigned type as C does, which is undefined there",
        lambda case: (
            _resizes(case, b"tf_crop_and_resize")
            and "uint8" in _types(case)
            and _attributes(case).get("extrapolation_value", 0) < 0
        ),
    ),
    Known(
        "onnxruntime",
        "its coordinates have other rounding errors, which decide which of two elements is the nearest",
        _resizes_ties,
    ),
    Known(
        "onnxruntime",
        "its InstanceNormalization adds products that cancel, so that elements near the mean lose digits",
        _is("InstanceNormalization"),
        lambda case, difference: abs(np.subtract(*_differing(difference))) <= _rounding_of_instance_norm(case),
    ),
    Known(
        "onnxruntime",
        "its LayerNormalization makes the mean of infinities NaN; by the formula it is infinite",
        lambda case: _is("LayerNormalization")(case) and _constants_extreme(case),
        lambda case, difference: "output 'y1'" in difference,
    ),
    Known(
        "onnxruntime",
        "it refuses the largest and smallest of no booleans",
        lambda case: _is("ReduceMax", "ReduceMin")(case) and _is_empty(case),
        lambda case, difference: "not defined for empty set with bool" in difference,
    ),
    Known(
        "onnxruntime",
        "it computes Pow of integers in float64, which rounds from 2**53 on, and converts what the type cannot hold",
        lambda case: _is("Pow")(case) and bool(_types(case) & {"int32", "int64"}),
        lambda case, difference: _differing(difference)[0] in _large_powers(case),
    ),
    Known(
        "onnxruntime",
        "it has no MatMul of unsigned integers without elements",
        lambda case: _is("MatMul")(case) and _is_empty(case) and bool(_types(case) & {"uint32", "uint64"}),
    ),
    Known("onnxruntime", "it refuses auto_pad where strides exceed the kernel of a pool", _skips),
    Known(
        "TEMPLATE",
        "onnx.reference divides an axis into parts of different sizes also before opset 18, which introduced them",
        lambda case: _is("Split")(case) and case.model.opset_import[0].version < 18,
        lambda case, difference: "only CPU fails" in difference and "equal parts" in difference,
    ),
    Known(
        "onnxruntime",
        "its Clip of many elements ignores a limit that is NaN; the maximum or minimum of NaN is NaN",
        lambda case: (
            _is("Clip")(case)
            and any(np.isnan(x).any() for at in (1, 2) for x in _operands(case, at) if is_float(x.dtype))
        ),
    ),
    Known(
        "onnxruntime",
        "its Resize with keep_aspect_ratio_policy ignores negative axes",
        lambda case: _is("Resize")(case) and _keeps_ratio(case) and min(_attributes(case).get("axes", [0])) < 0,
    ),
    Known(
        "onnxruntime",
        "its causal Attention after a past aligns the last query with the last key; by ONNX, the first query follows "
        "the past, also where keys and queries differ in number",
        lambda case: (
            _is("Attention")(case)
            and _attributes(case).get("is_causal") == 1
            and any(x.size for x in _operands(case, 4))
            and _operands(case, 0)[0].shape[-2] != _operands(case, 1)[0].shape[-2]
        ),
    ),
    Known(
        "onnxruntime",
        "its masked scores of Attention are the least float32 instead of -inf",
        lambda case: _is("Attention")(case) and _attributes(case).get("qk_matmul_output_mode") == 2,
        lambda case, difference: "output 'y3'" in difference and min(_differing(difference)) == -math.inf,
    ),
    Known(
        "onnxruntime",
        "its TreeEnsemble looks for members by the whole part of a number",
        lambda case: (
            _is("TreeEnsemble")(case)
            and (numpy_helper.to_array(_attributes(case)["nodes_modes"]) == 6).any()
            and any((x != np.trunc(x)).any() or not np.isfinite(x).all() for x in _operands(case, 0))
        ),
    ),
    Known(
        "onnxruntime",
        "its TreeEnsemble confuses the codes of SOFTMAX and LOGISTIC",
        lambda case: _is("TreeEnsemble")(case) and _attributes(case).get("post_transform") in (1, 2),
    ),
    Known(
        "onnxruntime",
        "it resizes some axes only in linear and cubic mode, and refuses others when it runs",
        lambda case: _is("Resize")(case) and _attributes(case)["mode"] != b"nearest",
        lambda case, difference: "ScalesValidation" in difference,
    ),
    Known(
        "onnxruntime",
        "its QLinearAveragePool with ceil_mode divides by elements beyond the padding",
        lambda case: _is("QLinearAveragePool")(case) and _attributes(case).get("ceil_mode") == 1,
    ),
    Known(
        "onnxruntime",
        "ONNX defines no last state of a sequence of length 0; there it is 0 instead of the initial state",
        lambda case: _is("RNN", "GRU", "LSTM")(case) and any((n == 0).any() for n in _operands(case, 4)),
    ),
    Known(
        "onnxruntime",
        "it does not write sums of no products of integers",
        lambda case: _is("MatMulInteger")(case) and _is_empty(case),
    ),
    Known(
        "onnxruntime",
        "its Softplus in recurrent operators overflows in the exponential",
        lambda case: (
            _is("RNN", "GRU", "LSTM")(case)
            and b"softplus" in [name.lower() for name in _attributes(case).get("activations", ())]
        ),
        lambda case, difference: difference.endswith(("inf", "nan")),
    ),
    Known(
        "onnxruntime",
        "its Softplus of float16 overflows in the exponential",
        lambda case: _is("Softplus")(case) and "float16" in _types(case),
    ),
    Known("onnxruntime", "it refuses NaN", lambda case: _is("Binarizer")(case) and _constants_extreme(case)),
    Known(
        "onnxruntime",
        "it refuses normalization of nothing",
        lambda case: (
            _is("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")(case) and _is_empty(case)
        ),
    ),
    Known(
        "onnxruntime",
        "it computes Einsum of integers in floating point",
        lambda case: _is("Einsum")(case) and bool(_types(case) & {"int32", "int64"}),
    ),
    Known(
        "onnxruntime",
        "it refuses dilations with auto_pad, or ignores them",
        lambda case: {"auto_pad", "dilations"} <= {attribute.name for attribute in case.model.graph.node[0].attribute},
    ),
    Known(
        "onnxruntime",
        "it refuses reductions of half precision when it runs",
        lambda case: _scatters_by(case, b"add", b"mul", b"max", b"min") and "float16" in _types(case),
        lambda case, difference: "only onnxruntime fails" in difference,
    ),
    Known(
        "onnxruntime",
        "its running sum of LRN carries NaN to channels beyond the window",
        lambda case: _is("LRN")(case) and _constants_extreme(case),
    ),
    Known("onnxruntime", "its Col2Im of one dimension ignores dilations", _is("Col2Im")),
    Known(
        "TEMPLATE",
        "onnx.reference fills dilated kernels with zeros, so NaN and infinities reach elements between the taps",
        lambda case: (
            _is("Conv", "FusedConv")(case)
            and any(a.name == "dilations" for a in case.model.graph.node[0].attribute)
            and _constants_extreme(case)
        ),
    ),
    Known(
        "TEMPLATE",
        "onnx.reference fails for NaN in trees",
        lambda case: _is("TreeEnsembleRegressor")(case) and _constants_extreme(case),
    ),
    *(
        Known(
            judge,
            "the function of GroupNormalization reshapes to size 0, which fails for an empty batch",
            lambda case: _is("GroupNormalization")(case) and any(len(x) == 0 for x in _operands(case, 0)),
            lambda case, difference, judge=judge: f"only {judge} fails" in difference,
        )
        for judge in ("TEMPLATE", "onnxruntime")
    ),
    Known(
        "onnxruntime",
        "its ArgMax and ArgMin along an axis of size 0 are empty where another axis is empty; NumPy refuses",
        lambda case: _is("ArgMax", "ArgMin")(case) and any(x.shape.count(0) > 1 for x in _operands(case, 0)),
        lambda case, difference: "only CPU fails" in difference,
    ),
    Known("onnxruntime", "the mean of nothing is 0 there", lambda case: _is("ReduceMean")(case) and _is_empty(case)),
    Known(
        "TEMPLATE",
        "onnx.reference fails for an empty batch",
        lambda case: (
            _is("MaxPool", "GridSample", "GatherND", "Col2Im", "GlobalAveragePool", "Normalizer")(case)
            and _is_empty(case)
        ),
    ),
)


def case(rng: np.random.Generator) -> Case:
    names = sorted(DRAWS)
    while True:
        m = Maker(rng, names[int(rng.integers(len(names)))])
        try:
            DRAWS[m.op](m)
        except Undefined:
            continue
        return _finish(m)


def _makes_bfloat16(m: Maker) -> bool:
    return any(attribute.i == onnx.TensorProto.BFLOAT16 for attribute in m.nodes[0].attribute)


def _finish(m: Maker) -> Case:
    inputs, constants = [], []
    read = {name for node in m.nodes for name in node.input}
    for operand in m.operands.values():
        if operand.name not in read:
            continue
        if operand.is_constant:
            constants.append(numpy_helper.from_array(operand.arrays[0], operand.name))
            continue
        first = operand.arrays[0]
        dims = [
            size if all(array.shape[axis] == size for array in operand.arrays) else f"{operand.name}_{axis}"
            for axis, size in enumerate(first.shape)
        ]
        inputs.append(helper.make_tensor_value_info(operand.name, helper.np_dtype_to_tensor_dtype(first.dtype), dims))
    outputs = [helper.make_empty_tensor_value_info(name) for name in m.outputs]
    graph = helper.make_graph(m.nodes, "operators", inputs, outputs, constants)
    imports = [helper.make_opsetid("", m.opset)]
    if m.domain:
        imports.append(helper.make_opsetid(m.domain, m.version))
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports, ir_version=10))
    variable = [operand for operand in m.operands.values() if operand.name in read and not operand.is_constant]
    calls = [{operand.name: operand.arrays[call] for operand in variable} for call in range(len(m.calls))]
    if any(operand.arrays[0].dtype.name == "bfloat16" for operand in m.operands.values()):
        m.judges = ("TEMPLATE",)  # onnxruntime has no arrays of this type
    if m.op == "BitCast" and _makes_bfloat16(m):
        m.judges = ("TEMPLATE",)
    if any(operand.arrays[0].dtype.name in ("bfloat16", "float16") for operand in m.operands.values()):
        m.elementwise = False  # TEMPLATE rounds each step
    return Case(model, calls, f"{m.op}, opset {m.version}, {m.style}", m.tolerance, m.judges, elementwise=m.elementwise)
