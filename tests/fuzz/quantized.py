"""Near misses of QDQ models: float32 operators between QuantizeLinear and DequantizeLinear, in which any detail may be
off, so that `CPU` may not run them in integers, or must run them in another way.

Scales are powers of two, and sums stay below 2^24, so float32 is exact and all implementations return the same bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

from fuzz.differential import SATURATES, Case, Known
from fuzz.fast_paths import Dim, Net

__all__ = ["KNOWN", "case"]

SIZES = {"N": (0, 1, 2, 3), "W": (1, 2, 3, 7, 17), "R": (1, 4, 9)}
UNARY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Relu", {}), ("Abs", {}), ("Neg", {}), ("Floor", {}), ("Ceil", {}), ("Identity", {}), ("Sign", {}),
    ("LeakyRelu", {"alpha": 0.5}), ("LeakyRelu", {"alpha": -2.0}), ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}),
    ("ThresholdedRelu", {"alpha": 0.25}), ("Shrink", {"lambd": 0.5, "bias": 0.25}),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Scheme:
    """``dtype`` of the integers; names of scale and zero point (empty: absent); attributes; and where the numbers
    lie."""

    dtype: str
    scale: str
    zero: str
    attributes: dict[str, Any]
    steps: np.ndarray

    @property
    def step(self) -> float:
        return float(self.steps.flat[0])


class Maker(Net):
    """``off``: whether a detail is off here."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.sizes = [{name: self.pick(*sizes) for name, sizes in SIZES.items()} for _ in range(self.calls)]
        self.rate = self.pick(0.0, 0.04, 0.12)
        self.leaks = self.pick(0.0, 0.0, 0.08)
        self.cuts = self.pick(0.0, 0.0, 0.0, 0.1)
        """How likely control flow runs behind each node."""
        self.opset = self.pick(13, 17, 19, 21, 21, 23)
        self.schemes: list[Scheme] = []
        self.ranks: tuple[int, ...] = (0, 0, 0, 1)  # of single scales

        self.shares = self.often(0.25)
        """Whether nodes read each other's constants where these have the same shape."""

    def off(self) -> bool:
        return self.often(self.rate)

    def constant(self, array: Any, likely: float = 1.0) -> str:
        array = np.asarray(array)
        if self.shares and likely == 1.0 and array.dtype.kind != "V" and self.often(0.5):
            alike = [name for name, other in self.constants.items()
                     if (other.dtype, other.shape) == (array.dtype, array.shape) and other.size]  # fmt: skip
            if alike and array.dtype != np.int64:
                return str(self.pick(*alike))
        return super().constant(array, likely)

    def parameter(self, array: Any) -> str:
        """A constant; or the same numbers as an input, or computed."""
        array = np.asarray(array)
        if self.off() and not str(array.dtype).endswith("int4"):  # onnxruntime has no arrays of 4 bits
            if self.often(0.5):
                return self.constant(array, 0.0)
            return self.node("Identity", self.constant(array), is_output=0.0)
        return self.constant(array)

    def step(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node of the pattern, whose first result may be read elsewhere."""
        made = self.node(op, *inputs, outputs=outputs, is_output=0.0, **attributes)
        self.leak(made)
        return self.cut(made) if self.often(self.cuts) else made

    def cut(self, value: str) -> str:
        """The same value by way of an If that runs in Python, because its other branch has another rank."""
        condition = self.input("bool", (), lambda _: np.asarray(True))
        graphs = []
        for name, op, more in (("then_branch", "Identity", []), ("else_branch", "Reshape", [self.ints(-1)])):
            end = f"{name}{len(self.nodes)}"
            made = helper.make_node(op, [value, *more], [end])
            graphs.append(helper.make_graph([made], name, [], [helper.make_empty_tensor_value_info(end)]))
        self.states_shapes = False
        return self.node("If", condition, is_output=0.0, then_branch=graphs[0], else_branch=graphs[1])

    def leak(self, value: str) -> None:
        if not self.often(self.leaks):
            return
        match self.pick("output", "output", "reader", "body"):
            case "output":
                self.outputs.append(value)
            case "reader":
                self.outputs.append(self.node("Identity", self.node("Identity", value, is_output=0.0), is_output=0.0))
            case _:
                condition = self.input("bool", (), lambda _: np.asarray(self.rng.random() < 0.5))
                graphs = []
                for name in ("then_branch", "else_branch"):
                    end = f"{name}{len(self.nodes)}"
                    made = helper.make_node("Identity", [value], [end])
                    graphs.append(helper.make_graph([made], name, [], [helper.make_empty_tensor_value_info(end)]))
                self.outputs.append(
                    self.node("If", condition, is_output=0.0, then_branch=graphs[0], else_branch=graphs[1])
                )

    def into_loop(self, end: str) -> str:
        """The whole model becomes the body of a Loop, whose trips are all alike; its last result."""
        names = list(dict.fromkeys([*self.outputs, end]))
        empty = helper.make_empty_tensor_value_info
        ports = [helper.make_tensor_value_info("trip", 7, ()), helper.make_tensor_value_info("go", 9, ())]
        rows = [helper.make_node("Identity", [name], [f"{name}_row"]) for name in ("go", *names)]
        body = helper.make_graph([*self.nodes, *rows], "body", ports, [empty(f"{name}_row") for name in ("go", *names)])
        self.nodes = []
        self.states_shapes = False
        made = [f"{name}_rows" for name in names]
        trips = super().constant(np.array(self.pick(1, 2), np.int64))
        self.nodes = [helper.make_node("Loop", [trips, ""], made, body=body)]
        self.outputs = made
        return made[-1]

    # -- schemes

    def kinds(self) -> tuple[str, ...]:
        if self.opset >= 21 and self.off():
            return ("int16", "uint16")
        return ("uint8", "int8")

    def scheme(self, dtype: str = "", about: float = 1 / 16, axis: tuple[int, int] | None = None) -> Scheme:
        """``axis``: number and size of the axis along which there may be several scales."""
        if axis is None and self.schemes and self.often(0.4):
            same = [scheme for scheme in self.schemes if dtype in ("", scheme.dtype)]
            if same:
                return self.pick(*same)
        dtype = dtype or self.pick(*self.kinds())
        shape: tuple[int, ...] = (1,) * self.pick(*self.ranks)
        attributes = {}
        if axis is not None:
            shape = (axis[1],)
            attributes = {"axis": axis[0]}
        step = float(np.exp2(np.round(np.log2(about)) + self.pick(-1, 0, 0, 1)))
        steps = np.full(shape, step, np.float32)
        if axis is not None:
            steps = np.asarray(steps * np.exp2(self.rng.integers(-1, 2, shape)), np.float32)
        limits = np.iinfo(dtype if not dtype.endswith("int4") else "int8")
        low, high = {"int4": (-8, 7), "uint4": (0, 15)}.get(dtype, (limits.min, limits.max))
        middle = (low + high + 1) // 2
        zeros = (
            self.rng.integers(low, high + 1, shape)
            if self.often(0.3)
            else np.full(shape, self.pick(middle, middle, 0, low, high))
        )
        zero = "" if dtype == "uint8" and self.often(0.1) else self.parameter(_typed(zeros, dtype))
        made = Scheme(dtype, self.parameter(steps), zero, attributes, steps)
        if axis is None and not dtype.endswith("int4"):
            self.schemes.append(made)
        return made

    def quantized(self, x: str, scheme: Scheme) -> str:
        given = [x, scheme.scale, *([scheme.zero] if scheme.zero else [])]
        return self.step("QuantizeLinear", *given, **scheme.attributes)

    def dequantized(self, x: str, scheme: Scheme) -> str:
        given = [x, scheme.scale, *([scheme.zero] if scheme.zero else [])]
        return self.step("DequantizeLinear", *given, **scheme.attributes)

    def passed(self, x: str, scheme: Scheme) -> str:
        """``x`` rounded to the scheme."""
        made = self.dequantized(self.quantized(x, scheme), scheme)
        return self.step("Identity", made) if self.off() else made

    def start(self, dims: Sequence[Dim], scheme: Scheme | None = None) -> str:
        """A tensor of numbers of a scheme, which begins as integers or as float32."""
        if scheme is None:
            axes = [(at, dim) for at, dim in enumerate(dims) if isinstance(dim, int) and dim > 1]
            scheme = self.scheme(axis=self.pick(*axes)) if axes and self.off() else self.scheme()
        if self.often(0.4):
            x = self.input(scheme.dtype, dims, lambda shape: self.integers(scheme.dtype, shape))
            return self.dequantized(x, scheme)

        def make(shape: tuple[int, ...]) -> np.ndarray:
            made = self.rng.integers(-600, 600, shape) * scheme.step / 2  # also halves, and beyond the limits
            return np.asarray(made, np.float32)

        return self.passed(self.input("float32", dims, make), scheme)

    def weights(self, shape: tuple[int, ...], axis: int) -> tuple[str, np.ndarray]:
        """Dequantized integers, and their scales."""
        nibbles = self.opset >= 21 and self.often(0.2)
        dtype = self.pick("int4", "uint4") if nibbles else self.pick("int8", "int8", "uint8")
        about = 1 / 16 if nibbles else 1 / 64
        scheme = self.scheme(dtype, about, (axis, shape[axis]) if self.often(0.4) else None)
        low, high = {"int4": (-8, 7), "uint4": (0, 15)}.get(dtype, (-128 if dtype == "int8" else 0, 127))
        array = _typed(self.rng.integers(low, high + 1, shape), dtype)
        name = self.constant(array, 1.0 if nibbles or not self.off() else 0.0)
        return self.dequantized(name, scheme), scheme.steps

    def activation(self, x: str) -> str:
        match self.pick("none", "none", "relu", "clip", "other"):
            case "relu":
                return self.step("Relu", x)
            case "clip":
                low, high = self.pick((0.0, 6.0), (0.0, 1.0), (-1.0, 1.0), (0.25, 0.1875), (-3.0, np.inf))
                bounds = [self.parameter(np.float32(bound)) for bound in (low, high)]
                if self.off():
                    bounds[self.pick(0, 1)] = ""
                return self.step("Clip", x, *bounds)
            case "other" if self.off():
                op, attributes = self.pick(*UNARY)
                return self.step(op, x, **attributes)
        return x

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))


def _typed(array: Any, dtype: str) -> np.ndarray:
    if dtype.endswith("int4"):
        import ml_dtypes

        return np.asarray(array).astype(getattr(ml_dtypes, dtype))
    return np.asarray(array).astype(dtype)


# ---- the patterns: each gives its result, in float32


def convolution(m: Maker) -> str:
    rank = m.pick(1, 2, 2, 2, 3)
    group = m.pick(1, 1, 1, 2, 4)
    channels = m.pick(1, 2, 3, 4, 8) if group == 1 else m.pick(1, 1, 2)
    maps = group * m.pick(1, 2, 3, 17, 33) if group == 1 else group * m.pick(1, 1, 2)
    kernel = [m.pick(1, 1, 2, 3) for _ in range(rank)]
    pads = [m.pick(0, 0, 1, 2) for _ in range(2 * rank)]
    attributes: dict[str, Any] = {"pads": pads, "group": group}
    if m.often(0.3):
        attributes["strides"] = [m.pick(1, 2, 3) for _ in range(rank)]
    if m.off():
        attributes["dilations"] = [m.pick(1, 2) for _ in range(rank)]
    image: list[Dim] = [m.pick(5, 6, 9) for _ in range(rank - 1)] + [m.pick("R", 5, 8)]
    if "R" in image:
        kernel[-1], attributes["dilations"] = 1, [1] * rank
    x = m.start([m.pick(1, 2, "N"), group * channels, *image])
    w, step = m.weights((maps, channels, *kernel), 0 if not m.off() else 1)
    made = m.step("Conv", x, w, *_bias(m, maps, m.schemes[0].step if m.schemes else 1 / 16, step), **attributes)
    return m.activation(made)


def _bias(m: Maker, count: int, left: float, right: np.ndarray) -> list[str]:
    """A bias of a product, whose scale is the product of the others, or seldom another."""
    if m.often(0.5):
        return []
    numbers = m.rng.integers(-3000, 3000, count).astype(np.int32)
    if m.off():
        return [m.constant(numbers.astype(np.float32) * np.float32(left * right.flat[0]))]
    steps = np.asarray(left * right * (1 if not m.off() else 2), np.float32)
    if steps.size != count:
        steps = np.full(() if m.often(0.5) else (1,), steps.flat[0], np.float32)
    zero = [m.constant(np.zeros(steps.shape, np.int32))] if m.often(0.2) else []
    axis = {"axis": 0} if steps.size > 1 else {}
    return [m.step("DequantizeLinear", m.parameter(numbers), m.parameter(steps), *zero, **axis)]


def product(m: Maker) -> str:
    k, n = m.pick(1, 2, 3, 8, 33), m.pick(1, 2, 3, 16, 17)
    op = m.pick("MatMul", "MatMul", "Gemm")
    lead: list[Dim] = (
        [m.pick(1, 2, 3, "N", "W")]
        if op == "Gemm"
        else [m.pick(1, 2, 3, "N", "W") for _ in range(m.pick(0, 1, 1, 2, 3))]
    )
    attributes: dict[str, Any] = {}
    dims, shape, columns = [*lead, k], (k, n), 1
    if op == "Gemm":
        if m.often(0.2):
            attributes["transA"], dims = 1, dims[::-1]
        if m.often(0.4):
            attributes["transB"], shape, columns = 1, (n, k), 0
        if m.off():
            attributes[m.pick("alpha", "beta")] = m.pick(0.5, 2.0, 0.0)
    elif m.off():
        shape = m.pick((k,), (1, k, n), (2, k, n))
        columns = len(shape) - 1
    x = m.start(dims)
    if m.off():
        w, step = m.start([k, n]), np.float32([1 / 16])
        attributes.pop("transB", None)
    elif len(shape) == 1:
        w, step = m.weights(shape, 0)
    else:
        w, step = m.weights(shape, columns if not m.off() else 1 - columns if len(shape) == 2 else 0)
    left = m.schemes[0].step if m.schemes else 1 / 16
    bias = _bias(m, n, left, step) if op == "Gemm" else []
    if op == "MatMul" and m.off():
        x, w = m.start([k, k]), m.start([k, k])
    made = m.step(op, x, w, *bias, **attributes)
    if op == "MatMul" and m.often(0.3):
        made = m.step("Add", made, *(_bias(m, n, left, step) or [made]))
    return m.activation(made)


def nibbles(m: Maker) -> str:
    """A product with a float32 tensor and weights of 4 bits, per column, per block, or with one scale."""
    m.opset = m.pick(21, 23)
    k, n = m.pick(1, 7, 8, 9, 16, 31, 32, 48), m.pick(1, 2, 5, 16, 17)
    trans = m.often(0.4)
    axis = 1 if trans else 0
    shape = (n, k) if trans else (k, n)
    dtype = m.pick("int4", "uint4")
    attributes: dict[str, Any] = {}
    match m.pick("one", "columns", "block", "block"):
        case "one":
            scales: tuple[int, ...] = m.pick((), (1,))
        case "columns":
            scales, attributes = (n,), {"axis": 1 - axis}
            if m.off() and k != n:
                scales, attributes = (k,), {"axis": axis}
        case _:
            block = m.pick(8, 16, 32, 4, 3)
            along = axis if not m.off() else 1 - axis
            length = -(-shape[along] // block)
            scales, attributes = (length, shape[1]) if along == 0 else (shape[0], length), {"axis": along}
            attributes["block_size"] = block
            if math.prod(scales) == 1:
                scales, attributes = (), {}
    if attributes and m.often(0.3):
        attributes["axis"] -= 2
    steps = np.exp2(m.rng.integers(-4, -1, scales)).astype(np.float32)
    if m.often(0.2):
        steps = steps * m.rng.choice([1, -1, 0], scales).astype(np.float32)
    given = [
        m.constant(_typed(m.rng.integers(0, 16, shape) - (8 if dtype == "int4" else 0), dtype)),
        m.parameter(steps),
    ]
    if m.often(0.6):
        low = -8 if dtype == "int4" else 0
        given.append(m.constant(_typed(m.rng.integers(low, low + 16, scales), dtype)))
    w = m.step("DequantizeLinear", *given, **attributes)

    def make(shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(m.rng.integers(-32, 32, shape) / 8, np.float32)

    if trans or m.often(0.3):
        x = m.input("float32", [m.pick(1, 2, "N", "W"), k], make)
        bias = m.pick([], [(n,)], [(1, n)], [()], [(1,)])
        options = {"transB": int(trans)} | ({m.pick("alpha", "beta"): 0.5} if m.off() else {})
        made = m.step("Gemm", x, w, *(m.parameter(make(shape)) for shape in bias), **options)
    elif m.off():
        made = m.step("MatMul", w, m.input("float32", [n, m.pick(1, 3)], make))
    elif m.off() and k == n:
        made = m.step("MatMul", w, w)
    else:
        x = m.input("float32", [*[m.pick(1, 2, "N", "W") for _ in range(m.pick(0, 1, 2))], k], make)
        made = m.step("MatMul", x, w)
        if m.often(0.4):
            made = m.step("Add", made, m.parameter(make(m.pick((n,), (1, n), (), (1,)))))
    if m.off():
        m.outputs.append(m.step("Neg", w))
    return m.activation(made)


def table(m: Maker) -> str:
    """An elementwise function of one tensor, in several nodes."""
    dims: list[Dim] = [m.pick(1, 2, 3, "N", "W") for _ in range(m.pick(0, 1, 2, 3))]
    m.ranks = (0,) if not dims else m.ranks  # else TEMPLATE's result has the rank of the scale
    x = m.start(dims)
    values = [x]
    for _ in range(m.pick(1, 2, 3, 5)):
        value = m.pick(*values[-2:])
        match m.pick("unary", "unary", "scalar", "scalar", "both", "passed", "clip", "power"):
            case "unary":
                op, attributes = m.pick(*UNARY)
                value = m.step(op, value, **attributes)
            case "scalar":
                shape: tuple[int, ...] = m.pick((), (1,), (1,) * len(dims), (1,) * (len(dims) + 1 * m.off()))
                if m.off():
                    shape = (3,)
                    if dims and dims[-1] not in (1, 3):
                        continue
                number = np.full(shape, m.pick(0.5, 2.0, -1.0, 0.0, 0.25), np.float32)
                other = m.parameter(number)
                if m.often(0.2):
                    other = m.passed(m.constant(number), m.scheme())
                pair = [value, other] if m.often(0.5) else [other, value]
                value = m.step(m.pick("Add", "Mul", "Sub", "Max", "Min"), *pair)
            case "both":
                other = m.pick(*values)
                value = m.step(m.pick("Add", "Sub", "Max", "Min"), value, other if not m.off() else m.start(dims))
            case "passed":
                value = m.passed(value, m.scheme())
            case "clip":
                bounds = [m.parameter(np.float32(bound)) for bound in m.pick((0.0, 1.0), (-0.5, 3.0), (1.0, -1.0))]
                value = m.step("Clip", value, *bounds)
            case _:
                value = m.step("Clip", value, m.constant(np.float32(-4)), m.constant(np.float32(4)))
                slope = m.parameter(np.full(m.pick((), (1,)), m.pick(2.0, 0.5, -1.0), np.float32))
                value = m.step("PRelu", value, slope) if dims else m.step("Mul", value, value)
        values.append(value)
    return values[-1]


def move(m: Maker) -> str:
    dims: list[Dim] = [m.pick(1, 2, "N"), m.pick(1, 3, 4), m.pick(2, 4, 6, "W"), m.pick(3, 4, 8)]
    x, rank = m.start(dims), 4
    if m.off():
        x = m.dequantized(m.constant(m.integers("int8", (2, 4, 4, 4))), m.scheme("int8"))
        dims = [2, 4, 4, 4]
    axis = m.pick(*range(-rank, rank))
    match m.pick(
        "Reshape", "Transpose", "Slice", "Gather", "Embedding", "Expand", "Tile", "Pad", "Split", "Where", "Concat",
        "MaxPool", "MaxPool", "Reduce", "Reduce", "Resize", "DepthToSpace", "GatherElements", "Squeeze", "Flatten",
    ):  # fmt: skip
        case "Reshape":
            return m.step("Reshape", x, m.ints(*m.pick((0, -1), (-1,), (0, 0, -1), (0, -1, 1, 1))))
        case "Transpose":
            return m.step("Transpose", x, perm=[int(at) for at in m.rng.permutation(rank)])
        case "Slice":
            begin, end, step = m.pick((0, 2, 1), (-1, -100, -1), (1, 100, 2), (-2, 100, 1))
            return m.step("Slice", x, m.ints(begin), m.ints(end), m.ints(axis), m.ints(step))
        case "Gather":
            indices = np.array(m.pick(0, [0, -1], [[0, 1]], [])).astype(np.int64)
            return m.step("Gather", x, m.constant(indices, m.pick(0.0, 1.0)), axis=m.pick(2, 3, -1))
        case "Embedding":
            dtype = m.pick("int8", "uint8")
            scheme = m.scheme(dtype, 1 / 16, None if not m.off() else (m.pick(0, 1), 7))
            rows = m.dequantized(m.constant(m.integers(dtype, (7, 7))), scheme)
            made = m.step("Gather", rows, m.input("int64", ["N", 2], lambda shape: m.integers("int64", shape, -7, 6)),
                          axis=0 if not m.off() else 1)  # fmt: skip
            return made if m.often(0.5) else m.step("Relu", made)
        case "Expand":
            return m.step("Expand", x, m.ints(*m.pick((2, 1, 1, 1, 1), (1,), (1, 1, 1, 1))))
        case "Tile":
            return m.step("Tile", x, m.ints(*(m.pick(1, 2) for _ in dims)))
        case "Pad":
            pads = [m.pick(0, 0, 1, 2, -1 if m.off() else 0) for _ in range(2 * rank)]
            mode = m.pick("constant", "constant", "edge")
            if mode == "edge":
                pads[0] = pads[4] = pads[2] = pads[6] = 0
            value = [m.parameter(np.full(m.pick((), (1,)), m.pick(0.0, 0.5, -3.0, 100.0, 0.03), np.float32))]
            return m.step("Pad", x, m.ints(*pads), *(value if m.often(0.6) else []), mode=mode)
        case "Split":
            made = (
                m.node("Split", x, m.ints(1, 2), outputs=2, axis=3, is_output=0.0)
                if dims[3] == 3
                else m.node("Split", x, m.ints(1, int(dims[3]) - 1), outputs=2, axis=-1, is_output=0.0)
            )
            other = m.nodes[-1].output[1]
            m.outputs.append(m.quantized(other, m.scheme()) if not m.off() else other)
            return made
        case "Where":
            condition = m.input(
                "bool", m.pick(dims, dims[-1:], []), lambda shape: np.asarray(m.rng.random(shape) < 0.5)
            )
            parts = [x, m.pick(x, m.start(dims), m.start(dims[-1:]))]
            return m.step("Where", condition, *(parts if m.often(0.5) else parts[::-1]))
        case "Concat":
            parts = [x, *(m.pick(x, m.start(dims)) for _ in range(m.pick(0, 1, 2)))]
            m.rng.shuffle(parts)  # type: ignore[arg-type]
            return m.step("Concat", *parts, axis=axis)
        case "MaxPool":
            kernel = [m.pick(1, 2), m.pick(1, 2, 3)]
            attributes: dict[str, Any] = {"kernel_shape": kernel, "ceil_mode": m.pick(0, 1)}
            m.states_shapes &= not attributes["ceil_mode"]  # onnx infers other shapes
            if dims[2] == "W":
                kernel[0] = 1
            if m.often(0.5):
                attributes["strides"] = [m.pick(1, 2, 3), m.pick(1, 2, 3)]
            if m.often(0.5):
                attributes["pads"] = [m.pick(0, size - 1) for size in kernel * 2]
            elif m.often(0.3):
                attributes["auto_pad"] = m.pick("SAME_UPPER", "SAME_LOWER", "VALID")
                attributes["ceil_mode"] = 0
                attributes.pop("strides", None)  # beyond the kernel, onnxruntime's pads are negative
            return m.step("MaxPool", x, outputs=2 if m.off() else 1, **attributes)
        case "Reduce":
            axes = m.pick([-1], [2, 3], [1], [0, 1, 2, 3], [])
            op, keep = m.pick("ReduceMax", "ReduceMin"), m.pick(0, 1) if len(axes) % 4 else 1
            if m.opset < 18:
                return m.step(op, x, axes=axes or [3], keepdims=keep)
            return m.step(op, x, m.ints(*axes), keepdims=keep, noop_with_empty_axes=m.pick(0, 1))
        case "Resize":
            scales = m.constant(np.array([1, 1, m.pick(1, 2, 3), m.pick(1, 2, 0.5)], np.float32))
            how = {"mode": "nearest" if not m.off() else "linear", "nearest_mode": m.pick("floor", "ceil")}
            return m.step("Resize", x, "", scales, coordinate_transformation_mode="asymmetric", **how)
        case "DepthToSpace" if dims[1] == 4:
            return m.step("DepthToSpace", x, blocksize=2, mode=m.pick("DCR", "CRD"))
        case "GatherElements":
            shape = [1, 1, 1, m.pick(1, 2, 3)]
            return m.step("GatherElements", x, m.constant(m.integers("int64", shape, -2, 1)), axis=3)
        case "Squeeze":
            made = m.step("Unsqueeze", x, m.ints(m.pick(0, 2, -1)))
            return m.step("Neg", made)
        case _:
            return m.step("Flatten", x, axis=m.pick(0, 1, 2, -1, 4))


def joined(m: Maker) -> str:
    """Sums and products of two tensors, between convolutions or moves."""
    dims: list[Dim] = [m.pick(1, 2, "N"), m.pick(3, 4), m.pick(1, 64, "W"), m.pick(4, 64)]
    a, b = m.start(dims), m.start(m.pick(dims, dims[-1:], [1, dims[1], 1, 1]))
    if m.off():
        b = a
    made = m.step(m.pick("Add", "Sub", "Mul", "Max", "Min"), a, b)
    made = m.activation(made)
    if m.often(0.3):
        made = m.step("Add", m.passed(made, m.scheme()), a)
    return made


PATTERNS: dict[Callable[[Maker], str], float] = {
    convolution: 3, product: 3, nibbles: 2, table: 3, move: 5, joined: 1
}  # fmt: skip

KNOWN = (
    Known(
        "TEMPLATE",
        "onnx.reference fails for an empty batch",
        lambda case: case.has("MaxPool"),
        lambda case, difference: "only TEMPLATE fails" in difference and "size 0" in difference,
    ),
    SATURATES,
)


def case(rng: np.random.Generator) -> Case:
    m = Maker(rng)
    weights = np.array(list(PATTERNS.values()))
    builds = list(PATTERNS)
    build = builds[int(rng.choice(len(builds), p=weights / weights.sum()))]
    made = build(m)
    if m.shares and m.often(0.7):
        m.outputs.append(made)
        made = build(m)
    if build is not nibbles and m.often(0.9):
        scheme = m.scheme(about=m.pick(1 / 8, 1, 4))
        made = m.quantized(made, scheme)
        if m.often(0.5):
            made = m.dequantized(made, m.scheme(scheme.dtype) if m.off() else scheme)
    if m.often(0.06):
        made = m.into_loop(made)
    return m.case(f"{build.__name__}, opset {m.opset}, rate {m.rate}", made, 0.0)
