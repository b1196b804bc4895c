"""Products that read a transposed operand where it lies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from hetero import Core
from sessions import onnxruntime_session
from single_node import model

pytestmark = pytest.mark.spread(2)


def check(
    perm: tuple[int, ...], left: tuple[int, ...], source: tuple[int, ...], *, absorbed: bool, dtype: Any = np.float32,
    extra: Any = (), outputs: tuple[str, ...] = ("y",), shape: tuple[int, ...] | None = None,
) -> None:  # fmt: skip
    """a @ transpose(softmax or negative of b), compared with NumPy. ``absorbed``: there is no call for the transpose.
    ``shape``: of a Reshape after the transpose. ``extra``: further nodes."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, size).astype(dtype) for size in (left, source))
    nodes = [
        helper.make_node("Neg", ["b"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"], perm=perm),
        helper.make_node("Identity" if shape is None else "Reshape", ["t"] if shape is None else ["t", "s"], ["r"]),
        helper.make_node("MatMul", ["a", "r"], ["y"]),
        *extra,
    ]
    proto = model(nodes, {"a": a, "b": b}, list(outputs), 17)
    if shape is not None:
        proto.graph.initializer.append(
            helper.make_tensor("s", helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)), [len(shape)], shape)
        )
    compiled = Core().compile_model(Core().read_model(proto), "CPU")
    turned = (-b).transpose(perm)
    turned = turned if shape is None else turned.reshape(shape)
    np.testing.assert_array_equal(compiled({"a": a, "b": b})["y"], a @ turned)  # whole numbers: exact sums
    (segment,) = compiled._plans.segments()  # type: ignore[attr-defined]
    assert int(segment.program.num_calls) == 2 + (not absorbed) + len(extra)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 9, 30])
def test_matrices(rows: int, dtype: Any) -> None:
    check((1, 0), (rows, 65), (33, 65), absorbed=True, dtype=dtype)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_keys_of_a_decoder(rows: int) -> None:
    check((0, 1, 3, 2), (2, 3, rows, 16), (2, 3, 40, 16), absorbed=True)
    check((0, 2, 3, 1), (2, 3, rows, 16), (2, 40, 3, 16), absorbed=False)  # rows of several heads alternate
    check((1, 0, 3, 2), (3, 2, rows, 16), (2, 3, 40, 16), absorbed=True)  # the batch is transposed too


def test_broadcast_batches() -> None:
    check((0, 2, 1), (4, 1, 5, 8), (3, 7, 8), absorbed=True)
    check((0, 1, 3, 2), (2, 3, 5, 8), (1, 1, 7, 8), absorbed=True)
    check((1, 0), (2, 3, 5, 8), (7, 8), absorbed=True)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 8, 1), (1, 1, 8), (5, 1, 8), (5, 8, 1), (0, 8, 3), (4, 0, 3), (4, 8, 0)]
)
def test_sizes_of_one_and_none(sizes: tuple[int, int, int]) -> None:
    """Whether there is a copy at all depends on the sizes; only the results count."""
    rows, k, columns = sizes
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, rows, k), np.float32), rng.standard_normal((2, columns, k), np.float32)
    nodes = [
        helper.make_node("Neg", ["b"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"], perm=(0, 2, 1)),
        helper.make_node("MatMul", ["a", "t"], ["y"]),
    ]
    compiled = Core().compile_model(Core().read_model(model(nodes, {"a": a, "b": b}, ["y"], 17)), "CPU")
    np.testing.assert_allclose(compiled({"a": a, "b": b})["y"], a @ -b.transpose(0, 2, 1), 1e-5, 1e-6)


def test_a_part_of_a_vector() -> None:
    """A copy of one column, which is dense in both orientations, but does not begin where its source does."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (3, 5)).astype(np.float32), rng.integers(-9, 9, (9, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Neg", ["b"], ["n"]),
        helper.make_node("Slice", ["n", "begin", "end"], ["part"]),
        helper.make_node("MatMul", ["a", "part"], ["y"]),
    ]
    proto = model(nodes, {"a": a, "b": b}, ["y"], 17)
    for name, value in (("begin", 4), ("end", 9)):
        proto.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    compiled = Core().compile_model(Core().read_model(proto), "CPU")
    np.testing.assert_array_equal(compiled({"a": a, "b": b})["y"], a @ -b[4:])


def test_other_copies_stay() -> None:
    check((2, 1, 0), (4, 5, 3), (6, 3, 4), absorbed=False)  # neither rows nor columns are dense
    check((1, 0), (5, 6), (8, 3), absorbed=False, shape=(6, 4))  # reshaped into other rows
    more = [helper.make_node("Neg", ["t"], ["z"])]
    check((1, 0), (5, 8), (7, 8), absorbed=False, extra=more, outputs=("y", "z"))  # read by another call
    more = [helper.make_node("MatMul", ["a", "r"], ["w"]), helper.make_node("MatMul", ["w", "r"], ["z"])]
    check((1, 0), (8, 8), (8, 8), absorbed=False, extra=more, outputs=("y", "z"))


def test_sizes_that_change() -> None:
    """The keys grow in each call, and are fewer again."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 2, 1, 8), np.float32)
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["keys"], axis=2),
        helper.make_node("Transpose", ["keys"], ["t"], perm=(0, 1, 3, 2)),
        helper.make_node("MatMul", ["q", "t"], ["y"]),
    ]
    proto = model(nodes, {"q": q, "past": q, "new": q}, ["y", "keys"], 17)
    for port in (proto.graph.input[1], *proto.graph.output):
        port.type.tensor_type.ClearField("shape")
    compiled = Core().compile_model(Core().read_model(proto), "CPU")
    for past in (0, 1, 2, 3, 16, 17, 31, 5, 1, 0):
        x = rng.standard_normal((1, 2, past, 8), np.float32)
        keys = np.concatenate([x, q], 2)
        found = compiled({"q": q, "past": x, "new": q})
        np.testing.assert_array_equal(found["keys"], keys)
        np.testing.assert_allclose(found["y"], q @ keys.transpose(0, 1, 3, 2), 1e-5, 1e-5)
        assert math.prod(found["y"].shape) == 2 * (past + 1)


FACTORS = {
    "after the transpose": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, c)", 0.25, True),
    "factor first": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(c, t)", 0.25, True),
    "before the transpose": ("m = Mul(n, c) s = Transpose<perm = [0, 2, 1]>(m)", 0.25, True),
    "on both sides": ("m = Mul(n, c) t = Transpose<perm = [0, 2, 1]>(m) s = Div(t, c)", 1.0, True),
    "twice": ("t = Transpose<perm = [0, 2, 1]>(n) m = Mul(t, c) s = Mul(m, c)", 0.0625, True),
    "a divisor": ("t = Transpose<perm = [0, 2, 1]>(n) s = Div(t, c)", 4.0, True),
    "divided by the keys": ("t = Transpose<perm = [0, 2, 1]>(n) s = Div(c, t)", None, False),
    "a number per column": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, row)", None, False),
    "a number that adds an axis": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, deep)", None, False),
    "computed": ("t = Transpose<perm = [0, 2, 1]>(n) u = ReduceMax<keepdims = 0>(a) s = Mul(t, u)", None, False),
    "itself": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, t)", None, False),
    "zero": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, zero)", None, False),
    "NaN": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, nan)", None, False),
    "large": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, large)", None, False),
    "small": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, small)", None, False),
    "large together": ("t = Transpose<perm = [0, 2, 1]>(n) m = Mul(t, many) s = Mul(m, many)", None, False),
    "also read elsewhere": ("t = Transpose<perm = [0, 2, 1]>(n) s = Mul(t, c) z = Neg(s)", None, False),
}


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_keys(name: str, rows: int) -> None:
    body, factor, absorbed = FACTORS[name]
    z = ", float z" if "z = " in body else ""
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[2, {rows}, 16] a, float[2, 7, 16] b) => (float y{z})
        <float c = {{0.25}}, float[7] row = {{1, 2, 3, 4, 5, 6, 7}}, float[2, 1, 1, 1] deep = {{2, 3}},
         float zero = {{0}}, float large = {{33554432}}, float small = {{2e-8}}, float many = {{8192}},
         float nan = {{0}}>
        {{ n = Neg(b) {body} y = MatMul(a, s) }}""")
    for port in proto.graph.output:
        port.type.tensor_type.ClearField("shape")
    for entry in proto.graph.initializer:
        if entry.name == "nan":
            entry.CopyFrom(numpy_helper.from_array(np.float32("nan"), "nan"))
    compiled = Core().compile_model(Core().read_model(proto), "CPU")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((2, rows, 16), (2, 7, 16)))
    b[b == 0] = 1
    found = compiled({"a": a, "b": b})["y"]
    session = onnxruntime_session(proto)
    (expected,) = session.run(["y"], {"a": a, "b": b})
    np.testing.assert_allclose(found, expected, 1e-5, 1e-4)
    if factor is not None:
        np.testing.assert_array_equal(found, a @ -b.transpose(0, 2, 1) * np.float32(factor))  # exact
    (segment,) = compiled._plans.segments()  # type: ignore[attr-defined]
    assert (int(segment.program.num_calls) == 2) == absorbed


def test_numbers_that_overflow_without_their_factor() -> None:
    """Two factors that are not moderate stay where they are, although their product is 1."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2] a, float[3, 2] b) => (float[1, 3] y) <float c = {1e30}, float d = {1e-30}>
        { n = Neg(b) t = Transpose(n) s = Mul(t, d) u = Mul(s, c) y = MatMul(a, u) }""")
    b = np.float32([[1e-20, 1], [1, 2], [1e10, 0]])
    found = Core().compile_model(Core().read_model(proto), "CPU")({"a": np.float32([[1, 2]]), "b": b})["y"]
    np.testing.assert_allclose(found, np.float32([[1, 2]]) @ (-b.T * np.float32(1e-30) * np.float32(1e30)), 1e-6)
