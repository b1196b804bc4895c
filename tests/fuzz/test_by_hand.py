"""Near misses by hand that random graphs rarely hit, on `CPU` in several ways against TEMPLATE and onnxruntime.

Each case is a graph in ONNX's text form, with random inputs. It is called with several sizes, through buffers that are
reused and overwritten (differential.py).
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from fuzz.differential import Case, differences

Sizes = Mapping[str, int]
CALLS = 3  # of each size
JUDGES = ("TEMPLATE", "onnxruntime")


def each(**sizes: Sequence[int]) -> list[Sizes]:
    """Every combination, so that each size changes between calls."""
    return [dict(zip(sizes, values, strict=True)) for values in itertools.product(*sizes.values())]


def case(
    text: str,
    sizes: Sequence[Sizes] = ({},),
    *,
    opset: int = 17,
    feeds: Mapping[str, np.ndarray] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    judges: tuple[str, ...] = JUDGES,
) -> Case:
    """``text``: inputs, outputs and nodes. ``feeds``: inputs that are the same in each call. Integers are drawn from
    -2 to 2, so that they may be indices of axes of 3 and more."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (constants or {}).items())
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    calls: list[dict[str, np.ndarray]] = []
    for size in sizes:
        for _ in range(CALLS):
            calls.append({})
            for value in model.graph.input:
                tensor = value.type.tensor_type
                shape = [
                    dim.dim_value if dim.HasField("dim_value") else size[dim.dim_param] for dim in tensor.shape.dim
                ]
                dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                if value.name in (feeds or {}):
                    array = feeds[value.name]  # type: ignore[index]
                elif dtype == np.bool_:
                    array = rng.random(shape) < 0.5
                elif dtype.kind in "iu":
                    array = rng.integers(-2 if dtype.kind == "i" else 0, 3, shape).astype(dtype)
                else:
                    array = rng.standard_normal(shape).astype(dtype)
                calls[-1][value.name] = np.asarray(array, dtype)
    return Case(model, calls, text, judges=judges)


def check(checked: Case) -> None:
    found = differences(checked)
    assert not found, "\n".join([checked.note, *found[:6]])


# ---- operands that are shared, and results that are read more than once

SQUARE = each(N=(1, 40, 0, 33, 64, 2))
SHARED = [
    "(float[N,48] x) => (float[] y) { t = Transpose<perm=[1,0]>(x) y = MatMul(x, t) }",
    "(float[N,48] x) => (float[] y) { t = Transpose<perm=[1,0]>(x) y = MatMul(t, x) }",
    "(float[N,1] x) => (float[] y) { t = Transpose<perm=[1,0]>(x) y = MatMul(x, t) }",
    "(float[N,48] x) => (float[] y) { y = Gemm<transB=1>(x, x) }",
    "(float[N,48] x) => (float[] y) { y = Gemm<transA=1, alpha=0.5>(x, x) }",
    "(float[N,N] x) => (float[] y) { y = Gemm<beta=-1.0>(x, x, x) }",
    "(float[N,N] x) => (float[] y) { a = MatMul(x, x) y = MatMul(a, a) }",
    "(float[N,N] x) => (float[] y, float[] a) { a = MatMul(x, x) b = Add(a, x) y = Relu(b) }",
    "(float[N,N] x) => (float[] y) { a = MatMul(x, x) b = Add(a, a) y = Add(b, x) }",
    "(float[N,48] x) => (float[] y) { t = Transpose(x) a = MatMul(x, t) b = Softmax(a) y = MatMul(b, x) }",
    "(float[2,N,48] x) => (float[] y) { t = Transpose<perm=[0,2,1]>(x) a = MatMul(x, t) y = MatMul(a, x) }",
    "(float[2,N,48] x) => (float[] y, float[] a)"
    " { t = Transpose<perm=[0,2,1]>(x) a = MatMul(x, t) b = Softmax(a) y = MatMul(b, x) }",
    "(float[N,48] x) => (float[] y) { c = Less(x, x) y = Where(c, x, x) }",
    "(float[N,3] x) => (float[] y, float[] z) { y = Concat<axis=0>(x, x, x) z = Concat<axis=1>(y, y) }",
    "(float[N,3] x) => (float[] y) { a = Relu(x) b = Concat<axis=0>(a, a) c = Neg(a) d = Concat<axis=0>(c, a)"
    " y = Add(b, d) }",
    "(float[N,3] x) => (float[] y) { y = Sum(x, x, x) }",
    "(float[N,3] x) => (float[] y) { a = Max(x, x) b = Min(a, x) y = Sub(b, b) }",
    "(float[N,3] x) => (float[] y) { a = Div(x, x) y = Pow(a, a) }",
    "(float[N,3] x) => (float[] y, float[] z, float[] w) { y = Relu(x) z = Identity(y) w = Identity(x) }",
    "(float[N,3] x) => (float[] y, float[] x) { y = Relu(x) }",
    "(float[N,4] x) => (float[] a, float[] b, float[] c) { a = Relu(x) b = Add(a, x) c = Mul(b, a) }",
    "(float[N,4] x) => (float[] a, float[] b, float[] c) { a, b = Split<axis=1>(x) c = Mul(a, b) }",
    "(float[N,4] x) => (float[] c, float[] a) { a, b = Split<axis=1>(x) d = Exp(a) e = Neg(d)"
    " c = Concat<axis=1>(e, a, b) }",
]  # fmt: skip


@pytest.mark.parametrize("text", SHARED)
def test_shared_operands(text: str) -> None:
    check(case(text, SQUARE, opset=13))


# ---- chains in place whose values are read later

LATER = [
    "{ a = Relu(x) b = Add(a, one) c = Exp(b) y = Sub(c, a) }",
    "{ a = Relu(x) b = Neg(a) c = Abs(b) d = Sqrt(c) e = Mul(d, b) y = Add(e, a) }",
    "{ a = Relu(x) r = Reshape(a, flat) b = Neg(r) c = Exp(b) s = Shape(x) d = Reshape(c, s) y = Mul(d, a) }",
    "{ a = Relu(x) t = Transpose(a) b = Neg(t) u = Transpose(b) y = Add(u, a) }",
    "{ a = Relu(x) t = Transpose(a) b = Neg(t) c = Exp(a) u = Transpose(b) y = Add(u, c) }",
    "{ a = Relu(x) p = Slice(a, zero, two, zero) b = Neg(p) y = Concat<axis=0>(b, a) }",
    "{ a = Relu(x) p = Slice(a, zero, two, zero) b = Neg(a) c = Exp(b) y = Concat<axis=0>(c, p) }",
    "{ a = Relu(x) p = Unsqueeze(a, zero) b = Neg(p) q = Squeeze(b, zero) c = Neg(a) y = Add(q, c) }",
    "{ a = Relu(x) b = Identity(a) c = Neg(b) d = Identity(a) e = Exp(d) f = Add(c, e) y = Add(f, b) }",
    "{ a = Relu(x) b = Dropout(a) c = Neg(b) y = Mul(c, a) }",
    "{ a = Relu(x) b = Cast<to=1>(a) c = Neg(b) y = Add(c, a) }",
    "{ a = Relu(x) b = Flatten<axis=0>(a) c = Neg(b) d = ReduceSum<keepdims=1>(c) y = Add(a, d) }",
    "{ a = Relu(x) b = Softmax(a) c = Mul(b, a) d = Softmax(c) y = Sub(d, b) }",
    "{ a = Relu(x) b = LogSoftmax(a) c = Clip(b, mone, one) y = Mul(c, a) }",
    "{ a = Relu(x) b = ScatterElements<axis=0>(a, index, row) y = Sub(b, a) }",
    "{ a = Relu(x) b = ScatterElements<axis=0>(a, index, row)"
    " c = ScatterElements<axis=0>(b, index2, row) y = Add(c, b) }",
    "{ a = Relu(x) b = ScatterND(a, index, wide) c = Neg(b) y = Add(c, a) }",
    "{ a = Relu(x) b = CumSum(a, zero0) c = CumSum<reverse=1>(b, zero0) y = Add(b, c) }",
    "{ a = Relu(x) b = Expand(a, twice) c = Neg(b) y = Add(c, a) }",
    "{ a = Relu(x) b = Gather<axis=0>(a, both) c = Neg(b) d = Neg(a) e = ReduceMax<keepdims=1>(c) y = Mul(d, e) }",
    "{ a = Relu(x) g = Greater(x, one) b = Where(g, a, x) c = Neg(b) y = Where(g, b, c) }",
    "{ a = Relu(x) b = If(yes) <then_branch = t () => (float[] p) { p = Neg(a) },"
    " else_branch = e () => (float[] q) { q = Exp(a) }> y = Add(b, a) }",
    "{ a = Relu(x) b, s = Loop(three, yes, a) <body = l (int64 i, bool k, float[] v) => (bool m, float[] u, float[] w)"
    " { m = Identity(k) u = Add(v, a) w = Neg(v) }> c = ReduceSum<keepdims=0>(s, zero) d = Add(b, c) y = Mul(d, a) }",
]  # fmt: skip
NAMED = {
    "one": np.float32(1), "mone": np.float32(-1), "flat": np.array([-1]), "zero": np.array([0]), "two": np.array([2]),
    "zero0": np.array(0), "index": np.array([[1]]), "index2": np.array([[-1]]), "row": np.full((1, 1), 7, np.float32),
    "wide": np.full((1, 5), 7, np.float32), "twice": np.array([2, 1, 1]), "both": np.array([0, -1, 0]),
    "yes": np.array(True), "three": np.array(3),
}  # fmt: skip


@pytest.mark.parametrize("text", LATER)
def test_values_that_are_read_after_steps_in_place(text: str) -> None:
    constants = {name: np.asarray(array) for name, array in NAMED.items() if name in text}
    sizes = each(N=(2, 3, 40, 5))
    check(case(f"(float[N,5] x) => (float[] y) {text}", sizes, opset=13, constants=constants))


# ---- operands without elements, and with one

TINY = [
    ("x[N,3]", "y = Concat<axis=0>(x, c)", np.zeros((0, 3), np.float32)),
    ("x[N,3]", "y = Concat<axis=1>(c, x)", None),
    ("x[N,3]", "y = MatMul(x, c)", np.zeros((3, 0), np.float32)),
    ("x[N,0]", "y = MatMul(x, c)", np.zeros((0, 4), np.float32)),
    ("x[N,0]", "y = Gemm(x, c, d)", np.zeros((0, 4), np.float32)),
    ("x[N,3]", "y = MatMul(x, c)", np.ones((3, 1), np.float32)),
    ("x[N,3]", "y = MatMul(x, c)", np.ones(3, np.float32)),
    ("x[N,1]", "y = MatMul(x, c)", np.full((1, 1), 3, np.float32)),
    ("x[N,1]", "y = MatMul(x, c)", np.arange(70, dtype=np.float32)[None]),
    ("x[N,3]", "y = Add(x, c)", np.zeros((1, 0, 1, 3), np.float32)),
    ("x[N,3]", "y = Mul(c, x)", np.full((1, 1, 1, 1), 3, np.float32)),
    ("x[N,3]", "y = Gather<axis=0>(x, c)", np.zeros((0,), np.int64)),
    ("x[N,3]", "y = Gather<axis=1>(x, c)", np.zeros((2, 0), np.int64)),
    ("x[N,3]", "y = Gather<axis=1>(x, c)", np.array(-1)),
    ("x[N,3]", "y = Gather<axis=1>(x, c)", np.array([[2]])),
    ("x[N,3]", "y = Reshape(x, c)", np.array([0, 3, 1])),
    ("x[N,0]", "y = Reshape<allowzero=1>(x, c)", np.array([5, 0])),
    ("x[N,3]", "y = Tile(x, c)", np.array([0, 2])),
    ("x[N,3]", "y = Tile(x, c)", np.array([1, 1])),
    ("x[N,3]", "y = Expand(x, c)", np.array([1])),
    ("x[N,3]", "y = Expand(x, c)", np.array([0, 1, 1])),
    ("x[N,3]", "y = ReduceSum(x, c)", np.zeros((0,), np.int64)),
    ("x[N,3]", "y = ReduceSum<noop_with_empty_axes=1>(x, c)", np.zeros((0,), np.int64)),
    ("x[N,3]", "y = Pad(x, c)", np.zeros(4, np.int64)),
    ("x[N,3]", "y = Pad(x, c)", np.array([0, -1, 0, -2])),
    ("x[N,3]", "y = ScatterElements<axis=1>(x, c, d)", np.zeros((0, 1), np.int64)),
    ("x[N,3]", "y = ScatterND(x, c, d)", np.zeros((0, 1), np.int64)),
    ("x[N,3]", "y = GatherND(x, c)", np.zeros((0, 2), np.int64)),
    ("x[N,3]", "y = GatherElements<axis=1>(x, c)", np.zeros((1, 1), np.int64)),
    ("x[N,3]", "a = Relu(x) y, z = Split<axis=1>(a, c)", np.array([0, 3])),
    ("x[N,3]", "y = Unsqueeze(x, c)", np.zeros((0,), np.int64)),
    ("x[N,1]", "y = Squeeze(x, c)", np.array([-1])),
    ("x[N,3]", "y = ReduceMean<axes=[1]>(x)", None),
    ("x[N,3]", "y = Softmax<axis=0>(x)", None),
    ("x[N,3]", "y = CumSum(x, c)", np.array(1, np.int32)),
    ("x[N,3]", "y = Clip(x, c)", np.array(0, np.float32)),
    ("x[N,3]", 'y = Clip(x, "", c)', np.array(0, np.float32)),
    ("x[N,3]", "y = Where(c, x, x)", np.array([[True]])),
    ("x[N,3]", "y = Where(c, x, x)", np.zeros((2, 0, 1), bool)),
    ("x[N,3]", "y = PRelu(x, c)", np.array([0.1], np.float32)),
    ("x[N,3]", "y = Einsum<equation=\"ij,jk->ik\">(x, c)", np.zeros((3, 0), np.float32)),
    ("x[N,3]", "y = OneHot(c, e, f) z = Add(x, x)", np.zeros((0,), np.int64)),
]  # fmt: skip


@pytest.mark.parametrize(("value", "body", "constant"), TINY, ids=[f"{n}-{text[1]}" for n, text in enumerate(TINY)])
def test_operands_without_elements_and_with_one(value: str, body: str, constant: np.ndarray | None) -> None:
    constants = {} if constant is None else {"c": constant}
    more: dict[str, dict[str, np.ndarray]] = {
        "Gemm": {"d": np.ones(1, np.float32)},
        "ScatterElements": {"d": np.zeros((0, 1), np.float32)},
        "ScatterND": {"d": np.zeros((0, 3), np.float32)},
        "OneHot": {"e": np.array(3), "f": np.array([0, 1], np.float32)},
    }
    for op_type in set(more) & set(re.split(r"\W", body)):
        constants |= more[op_type]
    inputs = f"float{value[1:]} x" + ", float[N,0] c" * (body == "y = Concat<axis=1>(c, x)")
    outputs = "float[] y, float[] z" if "z" in body else "float[] y"
    sizes = each(N=(1, 4, 2) if "ND(" in body else (1, 4, 0, 2))
    check(case(f"({inputs}) => ({outputs}) {{ {body} }}", sizes, opset=14, constants=constants))


# ---- products that broadcast batches, at sizes beside those of blocks

BATCHES = [
    ("2,1,M,24", "3,24,7"), ("1,M,24", "5,24,7"), ("24", "2,24,7"), ("2,M,24", "24"), ("24", "24"), ("24", "24,7"),
    ("3,1,M,24", "1,4,24,7"), ("M,24", "3,24,7"), ("2,M,24", "24,33"), ("2,3,M,24", "3,24,1"), ("0,M,24", "1,24,7"),
    ("2,0,M,24", "1,24,7"), ("1,1,M,24", "2,2,24,33"), ("2,M,1", "2,1,33"), ("1,M,24", "1,24,64"),
    ("2,2,M,24", "1,1,24,64"),
]  # fmt: skip


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("dtype", "constant"),
    [("float", ""), ("float", "a"), ("float", "b"), ("double", ""), ("float16", "b"), ("int32", "")],
)
@pytest.mark.parametrize(("a", "b"), BATCHES)
def test_batches_that_broadcast(a: str, b: str, dtype: str, constant: str) -> None:
    sizes = each(M=(3,) if constant == "a" and "M" in a else (1, 33, 0, 5))
    rng = np.random.default_rng(5)
    constants, inputs = {}, [f"{dtype}[{a}] a", f"{dtype}[{b}] b"]
    if constant:
        shape = [int(dim) for dim in (a.replace("M", "3") if constant == "a" else b).split(",")]
        kind = {"float": "float32", "double": "float64"}.get(dtype, dtype)
        constants[constant] = (rng.standard_normal(shape) * 3).astype(kind)
        inputs = [text for text in inputs if not text.endswith(constant)]
    check(case(f"({', '.join(inputs)}) => ({dtype}[] y) {{ y = MatMul(a, b) }}", sizes, constants=constants))


# ---- windows

AUTO = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def windows() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Attributes, and who judges them: onnxruntime refuses dilations with auto_pad, and crops the image where strides
    exceed the kernel."""
    rng = np.random.default_rng(11)
    for pad, kernel, stride, dilation in itertools.product(AUTO, (1, 2, 3, 5), (1, 2, 5), (1, 2, 4)):
        pads = f"pads=[{','.join(map(str, rng.integers(0, 4, 4)))}]" if pad == "NOTSET" else f'auto_pad="{pad}"'
        second = f"{max(1, kernel - 1)}], strides=[{stride},{max(1, stride - 1)}], dilations=[{dilation},1], {pads}"
        is_judged = not pad.startswith("SAME") or (dilation == 1 and stride <= kernel)
        yield f"kernel_shape=[{kernel},{second}", JUDGES if is_judged else ("TEMPLATE",)


FILTERS = [(3, 4, 1), (4, 4, 4), (4, 8, 2), (16, 16, 1)]  # channels, filters, groups


@pytest.mark.spread(4)
@pytest.mark.parametrize("window", list(windows())[::2])
@pytest.mark.parametrize("filters", FILTERS)
def test_convolutions_at_their_limits(window: tuple[str, tuple[str, ...]], filters: tuple[int, int, int]) -> None:
    attributes, judges = window
    channels, outputs, group = filters
    kernel = attributes[len("kernel_shape=[") : attributes.index("]")]
    weights = np.random.default_rng(2).standard_normal((outputs, channels // group, *map(int, kernel.split(","))))
    sizes = [{"H": h, "W": w} for h, w in ((19, 9), (21, 6), (17, 10))]
    text = f"(float[1,{channels},H,W] x) => (float[] y) {{ y = Conv<group={group}, {attributes}>(x, w) }}"
    check(case(text, sizes, constants={"w": weights.astype(np.float32)}, judges=judges))


# ---- forms of operators in old operator sets

OLD = [
    (1, "x[2,3,4]", "y = Softmax(x)"),
    (11, "x[2,3,4]", "y = Softmax(x)"),
    (11, "x[2,3,4]", "y = Softmax<axis=2>(x)"),
    (11, "x[2,3,4]", "y = Softmax<axis=0>(x)"),
    (11, "x[2,3,4]", "y = Softmax<axis=-1>(x)"),
    (13, "x[2,3,4]", "y = Softmax(x)"),
    (11, "x[2,3,4]", "y = LogSoftmax(x)"),
    (11, "x[2,3,4]", "y = Hardmax(x)"),
    (12, "x[2,3,4]", "y = Softmax<axis=-2>(x)"),
    (12, "x[2,3,4]", "y = LogSoftmax<axis=-2>(x)"),
    (11, "x[2,3,4]", "y = ReduceSum<axes=[1]>(x)"),
    (11, "x[2,3,4]", "y = ReduceSum<axes=[-1], keepdims=0>(x)"),
    (7, "x[2,3,4]", "y = ReduceSum(x)"),
    (11, "x[2,3,4]", "y = ReduceMean<axes=[0,2], keepdims=0>(x)"),
    (17, "x[2,3,4]", "y = ReduceMax<axes=[-2]>(x)"),
    (17, "x[2,3,4]", "y = ReduceL2<axes=[-2]>(x)"),
    (11, "x[1,3,1]", "y = Squeeze(x)"),
    (11, "x[1,3,1]", "y = Squeeze<axes=[-1]>(x)"),
    (7, "x[1,3,1]", "y = Squeeze<axes=[2]>(x)"),
    (11, "x[2,3]", "y = Unsqueeze<axes=[0,-1]>(x)"),
    (7, "x[2,3]", "y = Unsqueeze<axes=[1]>(x)"),
    (10, "x[1,2,3,4]", "y = Resize(x, c)"),
    (10, "x[1,2,3,4]", 'y = Resize<mode="linear">(x, c)'),
    (7, "x[1,2,3,4]", "y = Upsample<scales=[1.0,1.0,2.0,3.0]>(x)"),
    (7, "x[1,2,3,4]", 'y = Upsample<mode="linear", scales=[1.0,1.0,2.0,3.0]>(x)'),
    (9, "x[1,2,3,4]", "y = Upsample(x, c)"),
    (9, "x[1,2,3,4]", 'y = Upsample<mode="linear">(x, c)'),
    (9, "x[1,2,3,4]", "y = BatchNormalization(x, s, s, s, s)"),
    (7, "x[1,2,3,4]", "y = BatchNormalization(x, s, s, s, s)"),
    (14, "x[1,2,3,4]", "y = BatchNormalization(x, s, s, s, s)"),
    (15, "x[1,2,3,4]", "y = BatchNormalization<epsilon=0.1>(x, s, s, s, s)"),
    (14, "x[3,2,4]", "y, z, w = BatchNormalization<training_mode=1, momentum=0.7>(x, s, s, s, s)"),
    (7, "x[2,3]", "y = Dropout(x)"),
    (10, "x[2,3]", "y = Dropout<ratio=0.9>(x)"),
    (12, "x[2,3]", "y = Dropout(x)"),
    (13, "x[2,3]", "y = Dropout(x, s0)"),
    (6, "x[2,3]", "y = Clip<min=-0.5>(x)"),
    (6, "x[2,3]", "y = Clip<min=-0.5, max=0.25>(x)"),
    (6, "x[2,3]", "y = Clip(x)"),
    (2, "x[2,3]", "y = Pad<pads=[0,1,2,0], value=3.0>(x)"),
    (10, "x[3,4]", 'y = Pad<mode="reflect", pads=[1,1,2,3]>(x)'),
    (10, "x[3,4]", 'y = Pad<mode="edge", pads=[1,1,2,3]>(x)'),
    (10, "x[3,4]", "y = Pad<pads=[-1,1,0,-2]>(x)"),
    (9, "x[3,4]", "y = Slice<axes=[1], starts=[-2], ends=[100]>(x)"),
    (9, "x[3,4]", "y = Slice<starts=[1,0], ends=[2,-1]>(x)"),
    (9, "x[3,4]", "y, z = TopK<k=2>(x)"),
    (9, "x[3,4]", "y, z = TopK<k=2, axis=0>(x)"),
    (9, "x[2,3]", "y = Gemm(x, m, n)"),
    (7, "x[2,3]", "y = Gemm<transB=1>(x, m2, n)"),
    (11, "x[2,3]", "y = Gemm(x, m)"),
    (6, "x[2,3]", "y = Add<broadcast=1, axis=0>(x, r)"),
    (6, "x[2,3]", "y = Mul<broadcast=1>(x, q)"),
    (6, "x[2,3]", "y = Gemm<broadcast=1>(x, m, n)"),
    (7, "x[2,3]", "y = Add(x, q)"),
    (11, "x[4,6]", "y, z = Split<axis=1>(x)"),
    (2, "x[4,6]", "y, z = Split<axis=1, split=[1,5]>(x)"),
    (8, "x[1,1,5,5]", "y = MaxPool<kernel_shape=[2,2], pads=[1,0,1,0]>(x)"),
    (1, "x[1,1,5,5]", "y = AveragePool<kernel_shape=[3,2], pads=[1,1,1,1]>(x)"),
    (7, "x[1,1,5,5]", "y = AveragePool<kernel_shape=[3,2], pads=[1,1,1,1], count_include_pad=1>(x)"),
    (1, "x[1,1,5,5]", "y = GlobalLpPool(x)"),
    (2, "x[1,1,5,5]", "y = LpPool<kernel_shape=[2,2], p=1>(x)"),
    (4, "x[2,3]", "y = Concat<axis=1>(x, x)"),
    (1, "x[2,3]", "y = Reshape<shape=[3,-1]>(x)"),
    (5, "x[2,3]", "y = Reshape(x, k)"),
    (11, "x[2,3]", "y = ArgMax(x)"),
    (12, "x[2,3]", "y = ArgMax<select_last_index=1>(x)"),
    (1, "x[2,3]", "y = ArgMin<axis=1, keepdims=0>(x)"),
    (9, "x[3,3]", "y = Scatter<axis=1>(x, i, u)"),
    (6, "x[1,2,3,4]", "y = InstanceNormalization(x, s, s)"),
    (7, "x[2,3]", "y = PRelu(x, q)"),
    (6, "x[2,3]", "y = PRelu(x, q1)"),
    (7, "x[2,3]", "y = Pow(x, two)"),
    (12, "x[2,3]", "y = Pow(x, itwo)"),
    (9, "x[2,3]", "y = Cast<to=7>(x)"),
    (6, "x[2,3]", "y = Cast<to=6>(x)"),
    (1, "x[2,3]", "y = Selu(x)"),
    (6, "x[2,3]", "y = HardSigmoid(x)"),
    (8, "x[2,1]", "y = Expand(x, k)"),
    (6, "x[2,3]", "y = Tile(x, k)"),
    (8, "x[2,3]", "y = Sum(x, q)"),
    (6, "x[2,3]", "y = Max(x, x)"),
    (9, "x[2,3]", "y = Flatten<axis=0>(x)"),
    (11, "x[2,3]", "y = Flatten<axis=-1>(x)"),
    (8, "x[2,3]", "y = MeanVarianceNormalization<axes=[1]>(x)"),
    (9, "x[2,2,2,3]", "y = MeanVarianceNormalization(x)"),
    (11, "x[5]", "y = CumSum<exclusive=1, reverse=1>(x, zero)"),
    (9, "x[2,3]", "y = EyeLike<k=1>(x)"),
    (9, "x[2,3]", "y = Shrink<lambd=0.3, bias=0.1>(x)"),
    (1, "x[1,8,2,2]", "y = SpaceToDepth<blocksize=2>(x)"),
    (1, "x[1,8,2,2]", "y = DepthToSpace<blocksize=2>(x)"),
    (11, "x[1,8,2,2]", 'y = DepthToSpace<blocksize=2, mode="CRD">(x)'),
    (11, "x[1,2,3,4]", 'y = Resize<mode="linear">(x, roi, c)'),
    (
        11,
        "x[1,2,3,4]",
        'y = Resize<mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric">(x, roi, c)',
    ),
    (11, "x[1,2,3,4]", 'y = Resize<mode="cubic", coordinate_transformation_mode="align_corners">(x, roi, c)'),
    (11, "x[1,2,3,4]", 'y = Resize<mode="linear", coordinate_transformation_mode="tf_half_pixel_for_nn">(x, roi, c)'),
    (13, "x[1,2,3,4]", 'y = Resize<mode="nearest", nearest_mode="ceil">(x, "", "", k4)'),
    (16, "x[1,2,7,7]", "y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, boxes, bi)"),
    (10, "x[1,2,7,7]", "y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, boxes, bi)"),
    (10, "x[1,2,7,7]", 'y = RoiAlign<mode="max", output_height=2, output_width=3>(x, boxes, bi)'),
]
OLD_CONSTANTS = {
    "c": np.array([1, 1, 2, 1.5], np.float32), "s": np.array([0.5, 2], np.float32), "s0": np.array(0.5, np.float32),
    "m": np.arange(12, dtype=np.float32).reshape(3, 4), "m2": np.arange(12, dtype=np.float32).reshape(4, 3),
    "n": np.arange(4, dtype=np.float32), "r": np.array([1, 2], np.float32), "q": np.array([1, 2, 3], np.float32),
    "q1": np.array([0.5], np.float32), "k": np.array([2, 3]), "i": np.array([[0, 2, 1]]),
    "u": np.ones((1, 3), np.float32), "two": np.array(2, np.float32), "itwo": np.array(2), "zero": np.array(0),
    "roi": np.zeros(0, np.float32), "k4": np.array([1, 2, 7, 5]),
    "boxes": np.array([[0, 0, 3, 4], [1, 1, 7, 2]], np.float32), "bi": np.array([0, 0]),
}  # fmt: skip


@pytest.mark.parametrize(("opset", "value", "body"), OLD, ids=[f"{o}-{b}" for o, _, b in OLD])
def test_old_operator_sets(opset: int, value: str, body: str) -> None:
    words = re.split(r"\W", body)
    constants = {name: array for name, array in OLD_CONSTANTS.items() if name in words}
    integer = "ArgM" in body or "to=7" in body or "to=6" in body
    kind = ("int32" if "to=6" in body else "int64") if integer else "float"
    outputs = [f"{kind}[] y"]
    if " z" in body or ", z" in body:
        outputs += ["int64[] z" if "TopK" in body else "float[] z"]
    if ", w =" in body:
        outputs += ["float[] w"]
    judges = ("onnxruntime",) if "tf_half_pixel_for_nn" in body else JUDGES  # TEMPLATE does not know it
    text = f"(float{value[1:]} x) => ({', '.join(outputs)}) {{ {body} }}"
    check(case(text, opset=opset, constants=constants, judges=judges))


# ---- element types

TYPES = (
    "float16",
    "bfloat16",
    "double",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)
BODIES = [
    "y = Add(x, x)", "a = Mul(x, x) y = Sub(a, x)", "y = MatMul(x, x)", "y = Transpose(x)", "y = Concat<axis=0>(x, x)",
    "y = ReduceSum(x)", "y = ReduceMax(x)", "y = Abs(x)", "y = Neg(x)", "y = Relu(x)", "y = Gemm(x, x, x)",
    "y = Max(x, x)",
    "y = Div(x, one)", "y = Pow(x, one)", "y = CumSum(x, axis)", "y = Where(b, x, x)", "y = Softmax(x)", "y = Exp(x)",
    "y = Sigmoid(x)", "y = LayerNormalization(x, x)", "y = Mod(x, one)", "y = Clip(x, one)", "y = ReduceMean(x)",
    "y = ReduceProd(x)", "y = Gather(x, axis)", "y = Trilu(x)", "y = Min(x, x)", "y = Tile(x, reps)", "y = Sign(x)",
]  # fmt: skip


@pytest.mark.spread(2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("body", BODIES)
def test_element_types(dtype: str, body: str) -> None:
    numpy_type = helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(dtype.upper()))
    constants = {"axis": np.array(0), "b": np.array([True, False, True]), "reps": np.array([2, 1])}
    constants["one"] = np.ones(() if "Clip" in body else 3, numpy_type)
    words = re.split(r"\W", body)
    used = {name: array for name, array in constants.items() if name in words}
    if "Mod(" in body and numpy_type.kind not in "iu":
        body = body.replace("Mod(", "Mod<fmod=1>(")
    judges = ("TEMPLATE",) if dtype == "bfloat16" else JUDGES  # onnxruntime's Python interface has no bfloat16
    text = f"({dtype}[N,3] x) => ({dtype}[] y) {{ {body} }}"
    check(case(text, [{"N": 3}], opset=18, constants=used, judges=judges))
