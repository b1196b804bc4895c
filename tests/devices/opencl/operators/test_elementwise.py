"""Elementwise operators of OPENCL, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from opencl import check, model_of, refusals, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node
X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
SPECIAL = np.float32([[np.nan, np.inf, -np.inf, 0.0, -0.0], [1e-38, -1e-38, 100, -100, 0.5], [1.5, 2.5, -0.5, -1.5, 1]])
UNARY = (
    *("Sqrt", "Erf", "Tanh", "Relu", "Sigmoid", "Exp", "Log", "Reciprocal", "Floor", "Ceil", "Round", "Sin", "Cos"),
    *("Softplus", "Softsign", "Elu", "LeakyRelu", "Selu", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Neg", "Abs"),
    *("Sign", "IsNaN", "Identity", "Dropout"),
)


def of_each(operators: Sequence[str], inputs: Sequence[str], **attributes: object) -> list[object]:
    return [node(op, list(inputs), [f"{op}_of_{'_'.join(inputs)}"], **attributes) for op in operators]


def test_unary(core: hetero.Core) -> None:
    nodes = of_each(UNARY, ["x"])
    nodes += [
        node("Elu", ["x"], ["elu"], alpha=0.3),
        node("LeakyRelu", ["x"], ["leaky"], alpha=-0.7),
        node("Selu", ["x"], ["selu"], alpha=2.0, gamma=0.5),
        node("HardSigmoid", ["x"], ["hard"], alpha=0.7, beta=-0.1),
        node("Gelu", ["x"], ["gelu"], approximate="tanh"),
    ]
    check(core, model_of(nodes, {"x": X}), {"x": X}, 2e-6, 1e-6)


@pytest.mark.parametrize(
    "operators", [("Relu", "Sqrt", "Sigmoid", "Floor", "Round", "Sign", "IsNaN", "Abs", "Clip", "Erf", "Tanh", "Gelu")]
)
def test_special_values(core: hetero.Core, operators: Sequence[str]) -> None:
    """NaN, infinities, signed zeros, ties, and numbers near the smallest."""
    nodes = of_each(operators, ["x"]) + of_each(("Max", "Min", "Add", "Div", "Less", "GreaterOrEqual"), ["x", "z"])
    inputs = {"x": SPECIAL, "z": np.ascontiguousarray(SPECIAL[:, ::-1])}
    check(core, model_of(nodes, inputs), inputs, 2e-6, 1e-6, reference="TEMPLATE")


FLOAT_PAIRS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Equal", "Less", "Greater", "PRelu")


@pytest.mark.parametrize(
    ("first", "second"),
    [((3, 5), (3, 5)), ((3, 5), (1,)), ((3, 5), ()), ((2, 1, 5), (3, 1)), ((4, 3, 1), (4, 1, 6)), ((3, 0), (1, 1))],
    ids=str,
)
def test_broadcasts(core: hetero.Core, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    a, b = (np.asarray(rng.uniform(0.5, 2, shape), np.float32) for shape in (first, second))
    operators = [op for op in FLOAT_PAIRS if op != "PRelu" or np.broadcast_shapes(first, second) == first]
    nodes = of_each([*operators, "Pow"], ["a", "b"]) + of_each(["Sub", "Less"], ["b", "a"])
    check(core, model_of(nodes, {"a": a, "b": b}), {"a": a, "b": b})


def test_more_dimensions_than_a_layout_has(core: hetero.Core) -> None:
    shape = (2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2)
    a, b = np.ones(shape, np.float32), np.ones((*shape[1:], 2), np.float32)
    request = core.compile_model(
        core.read_model(model_of([node("Add", ["a", "b"], ["y"])], {"a": a, "b": b})), "OPENCL"
    )
    with pytest.raises(hetero.InferenceError, match="more than 8 dimensions"):
        request({"a": a, "b": b})


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_integers(core: hetero.Core, dtype: type) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a, b = np.array([[5, -3, 0], [high, low, 7]], dtype), np.array([2, -1, 9], dtype)
    pairs = of_each(("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual"), ["a", "b"])
    nodes = [*pairs, *of_each(("Neg", "Abs", "Sign"), ["a"])]
    check(core, model_of(nodes, {"a": a, "b": b}), {"a": a, "b": b}, reference="TEMPLATE")
    assert (
        "divided on the host" in refusals(core, model_of([node("Div", ["a", "b"], ["y"], "d")], {"a": a, "b": b}))["d"]
    )


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_known_integers_are_divided_towards_zero(core: hetero.Core, dtype: type) -> None:
    """The magnitude of the least integer is not representable."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    constants = {
        "a": np.array([low, low, low, low, high, 7, -7, -6, 0], dtype),
        "b": np.array([3, 2, -2, low, low, -2, 2, -3, -5], dtype),
    }
    nodes = [node("Div", ["a", "b"], ["q"]), node("Add", ["q", "x"], ["y"])]
    inputs = {"x": np.zeros(9, dtype)}
    check(core, model_of(nodes, inputs, constants), inputs)


def test_booleans(core: hetero.Core) -> None:
    a, b = np.array([[True, False], [True, True]]), np.array([True, False])
    nodes = of_each(("And", "Or", "Xor", "Equal"), ["a", "b"])
    nodes += [node("Not", ["a"], ["n"]), node("Where", ["a", "x", "z"], ["w"]), node("Where", ["b", "a", "n"], ["v"])]
    x, z = np.float32([[np.nan, 2], [3, 4]]), np.float32([-1])
    check(
        core, model_of(nodes, {"a": a, "b": b, "x": x, "z": z}), {"a": a, "b": b, "x": x, "z": z}, reference="TEMPLATE"
    )


def test_casts(core: hetero.Core) -> None:
    types = ("FLOAT", "FLOAT16", "INT64", "INT32", "INT8", "UINT8", "BOOL")
    inputs = {
        "f": np.float32([[0, 1.5, -0.25], [100.9, 7, 3]]).clip(0),
        "h": np.float16([[0, 1.5, 65504], [100.9, 7, 3]])[:, :2],
        "l": np.array([0, 1, 100], np.int64),
        "i": np.array([0, 1, 100], np.int32),
        "u": np.array([0, 255, 100], np.uint8),
        "b": np.array([True, False]),
    }
    nodes = [node("Cast", [name], [f"{name}_{to}"], to=getattr(TensorProto, to)) for name in inputs for to in types]
    # A cast to float16 rounds, also between operators that are computed together.
    nodes += [
        node("Cast", ["f"], ["rounded"], to=TensorProto.FLOAT16),
        node("Cast", ["rounded"], ["again"], to=TensorProto.FLOAT),
        node("Sub", ["f", "again"], ["error"]),
    ]
    outputs = [f"{name}_{to}" for name in inputs for to in types if (name, to) != ("u", "INT8")] + ["error"]
    check(core, model_of(nodes, inputs, outputs=outputs), inputs)


@pytest.mark.parametrize("limits", [("low", "high"), ("low", ""), ("", "high"), ("high", "low"), ()])
def test_clip(core: hetero.Core, limits: Sequence[str]) -> None:
    constants = {"low": np.array(-0.5, np.float32), "high": np.array(0.75, np.float32)}
    check(core, model_of([node("Clip", ["x", *limits], ["y"])], {"x": X}, constants), {"x": X}, reference="TEMPLATE")
    inputs = {"x": X, **constants}
    check(core, model_of([node("Clip", ["x", *limits], ["y"])], inputs), inputs, reference="TEMPLATE")


def test_clip_of_old_opsets(core: hetero.Core) -> None:
    nodes = [node("Clip", ["x"], ["y"], min=-0.5, max=0.5), node("Clip", ["x"], ["z"], max=0.0)]
    check(core, model_of(nodes, {"x": X}, opset=9), {"x": X})


def test_batch_normalization_is_computed_with_its_readers(core: hetero.Core) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    constants = {name: rng.uniform(0.5, 2, 3).astype(np.float32) for name in ("scale", "bias", "mean", "variance")}
    nodes = [
        node("BatchNormalization", ["x", *constants], ["n"], epsilon=1e-3),
        node("Relu", ["n"], ["r"]),
        node("Mul", ["r", "r"], ["y"]),
    ]
    check(core, model_of(nodes, {"x": x}, constants, outputs=["y"]), {"x": x})
    compiled = core.compile_model(
        core.read_model(model_of(nodes, {"x": x}, constants, outputs=["y"])), "OPENCL", {"PERF_COUNT": True}
    )
    request = compiled.create_infer_request()
    request.infer({"x": x})
    assert [row.status for row in request.profiling_info] == ["OPTIMIZED_OUT", "OPTIMIZED_OUT", "EXECUTED"]


def test_values_that_are_read_twice_and_are_results(core: hetero.Core) -> None:
    nodes = [
        node("Exp", ["x"], ["e"]),  # read twice, and a result
        node("Add", ["e", "x"], ["a"]),
        node("Mul", ["a", "e"], ["m"]),
        node("Sub", ["m", "m"], ["s"]),  # the same operand twice
        node("Add", ["s", "m"], ["y"]),
    ]
    for outputs in (["y"], ["e", "y"], ["m", "y", "s"], ["y", "a"]):
        check(core, model_of(nodes, {"x": X}, outputs=outputs), {"x": X})


def test_long_chains(core: hetero.Core) -> None:
    """More operators, and more inputs, than a generated kernel may have."""
    nodes = [node("Sin", ["x"], ["v0"])]
    nodes += [node("Add", [f"v{i}", f"w{i % 12}"], [f"v{i + 1}"]) for i in range(80)]
    inputs = {"x": X, **{f"w{i}": np.full((1, 5), i, np.float32) for i in range(12)}}
    check(core, model_of(nodes, inputs, outputs=["v80"]), inputs)
    sums = [node("Sum", ["x", *(f"w{i}" for i in range(12))], ["y"])]
    check(core, model_of(sums, inputs), inputs)


def test_float16(core: hetero.Core) -> None:
    x, z = X.astype(np.float16), np.abs(X[:1].astype(np.float16)) + np.float16(0.5)
    operators = ("Relu", "Tanh", "Sqrt", "Exp", "Sigmoid", "Neg", "Abs", "Floor")
    nodes = of_each(operators, ["z"]) + of_each(("Add", "Sub", "Mul", "Div", "Max", "Less"), ["x", "z"])
    nodes += [node("Add", ["x", "z"], ["s"]), node("Mul", ["s", "x"], ["m"]), node("Sub", ["m", "s"], ["y"])]
    check(core, model_of(nodes, {"x": x, "z": z}), {"x": x, "z": z}, 1e-3, 1e-3, reference="TEMPLATE")


def test_refusals(core: hetero.Core) -> None:
    x = {"x": X, "d": X.astype(np.float64), "i": np.array([1, 2])}
    nodes = [
        node("Relu", ["d"], ["a"], "double"),
        node("Cast", ["x"], ["b"], "cast", to=TensorProto.DOUBLE),
        node("Cast", ["i"], ["h"], "small", to=TensorProto.INT16),  # not even on the host
        node("Relu", ["i"], ["c"], "integer"),
        node("Add", ["x", "x"], ["e"], "old", axis=1),
        node("Asinh", ["x"], ["f"], "unknown"),
        node("Dropout", ["x"], ["g", "mask"], "mask"),
    ]
    found = refusals(core, model_of(nodes, x))
    assert found["double"].startswith("float64 in input 1 is not supported; expected float16, float32")
    assert found["cast"].startswith("it supports casts to")
    assert found["small"] == found["cast"]
    assert "int64" in found["integer"]
    assert found["old"] == "its attribute 'axis' is not supported"
    assert found["unknown"] == "the operator Asinh is not supported"
    assert found["mask"] == "its mask is not supported"
    old = refusals(core, model_of([node("Add", ["x", "x"], ["y"], "n")], {"x": X}, opset=6))
    assert old == {"n": "Add of opset 6 is not supported"}
