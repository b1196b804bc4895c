"""Conv, MatMul and Gemm of QDQ models: exact sums, rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import hetero
from hetero.devices.cpu.qdq import products

pytestmark = pytest.mark.spread(2)

Array = np.ndarray[Any, Any]


class Net:
    """A product of dequantized operands, as quantization tools write it. ``scales`` has one number per operand, or one
    per column."""

    def __init__(self, opset: int = 21) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, Array] = {}

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> str:
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        made = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [made], **attributes))
        return made

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def given(self, array: Array) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        return name

    def dequantized(self, array: Array | str, scale: Any, zero: Any, axis: int = 0) -> str:
        if np.ndim(scale):
            return self("DequantizeLinear", array, np.float32(scale), zero, axis=axis)
        return self("DequantizeLinear", array, np.float32(scale), zero)

    def model(self, *outputs: str) -> onnx.ModelProto:
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        ends = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", infos, ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def run(net: Net, *outputs: str, transform: bool = True, threads: int = 1) -> tuple[list[Array], set[str]]:
    """The results, and the types of the nodes that ran on their own."""
    core = hetero.Core()
    config = {"DISABLE_TRANSFORMATIONS": not transform, "INFERENCE_NUM_THREADS": threads, "PERF_COUNT": True}
    compiled = core.compile_model(core.read_model(net.model(*outputs).SerializeToString()), "CPU", config)
    request = compiled.create_infer_request()
    results = [np.array(value) for value in request.infer(net.inputs).values()]
    return results, {row.layer_type for row in request.profiling_info if row.status == "EXECUTED"}


def integers(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True))


def rounded(sums: Array, multiplier: Any, zero: int, dtype: Any) -> Array:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(sums * multiplier) + zero, limits.min, limits.max).astype(dtype)


def exact(net: Net, product: str, scale: Any, zero: int, dtype: Any) -> Array:
    """The product by onnx's reference in float64, which is exact for these integers, rounded once."""
    model = net.model(product)
    last = next(i for i, node in enumerate(model.graph.node) if product in node.output)
    del model.graph.node[last + 1 :]
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear":
            node.op_type = "Wide"
            node.domain = "test"
    made: dict[str, Array] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | net.inputs
    for node in list(model.graph.node):
        if node.op_type == "Wide":
            x, s, z = (made[name].astype(np.float64) for name in node.input)
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)] if s.size > 1 else [1] * x.ndim
            made[node.output[0]] = (x - z.reshape(shape)) * s.reshape(shape) if x.ndim else (x - z) * s
            model.graph.node.remove(node)
    inputs = sorted({name for node in model.graph.node for name in node.input})
    del model.graph.input[:], model.graph.initializer[:]
    model.graph.input.extend(helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in inputs)
    (sums,) = ReferenceEvaluator(model).run(None, {n: made[n].astype(np.float64) for n in inputs})
    return rounded(sums, 1 / np.float64(np.float32(scale)), zero, dtype)


def near(found: Array, expected: Array, one_in: int = 1000) -> None:
    """At most one apart, and that rarely."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    apart = np.abs(found.astype(np.int64) - expected)
    assert apart.max(initial=0) <= 1
    assert np.count_nonzero(apart) <= max(1, apart.size // one_in)


TYPES = [("uint8", "int8", "uint8"), ("int8", "int8", "int8"), ("uint8", "uint8", "uint8"), ("int8", "uint8", "uint8")]
LAYOUTS = ["plain", "grouped", "depthwise", "strided", "1d"]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_convolutions(types: tuple[str, str, str], per_channel: bool, layout: str) -> None:
    rng = np.random.default_rng(len(layout))
    net, (left, right, result) = Net(), types
    groups = {"grouped": 2, "depthwise": 6}.get(layout, 1)
    spatial = (9,) if layout == "1d" else (9, 11)
    outputs = 8 if groups < 6 else 6
    x = integers(rng, left, 2, 6, *spatial)
    w = integers(rng, right, outputs, 6 // groups, *(3,) * len(spatial))
    scale = rng.uniform(0.01, 0.02, outputs).astype(np.float32) if per_channel else np.float32(0.013)
    zero = np.zeros(np.shape(scale), right) if right == "int8" else np.full(np.shape(scale), 128, right)
    bias = rng.integers(-3000, 3000, outputs, dtype=np.int32)
    bias_scale = np.float32(0.04) * scale
    product = net(
        "Conv",
        net.dequantized(net.given(x), 0.04, integers(rng, left)),
        net.dequantized(w, scale, zero),
        net.dequantized(bias, bias_scale, np.zeros(np.shape(scale), np.int32)),
        group=groups,
        pads=[1] * (2 * len(spatial)),
        strides=[2 if layout == "strided" else 1] * len(spatial),
    )
    y_zero = integers(rng, result)
    (found,), ran = run(net, net("QuantizeLinear", product, np.float32(0.3), y_zero), threads=2)
    assert ran == {"Conv"}
    near(found, exact(net, product, 0.3, int(y_zero), result))


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "transposed", "attention"])
def test_matrices(types: tuple[str, str, str], per_column: bool, op: str) -> None:
    rng = np.random.default_rng(7)
    net, (left, right, result) = Net(), types
    x, w = integers(rng, left, 5, 37), integers(rng, right, 37, 19)
    if op == "transposed":
        x, w = x.T.copy(), w.T.copy()
    if op == "attention":
        x, w, per_column = integers(rng, left, 2, 3, 5, 37), integers(rng, right, 2, 1, 37, 19), False
    scale = rng.uniform(0.01, 0.02, 19).astype(np.float32) if per_column else np.float32(0.013)
    zero = integers(rng, right, *np.shape(scale))
    operands = [
        net.dequantized(net.given(x), 0.04, integers(rng, left)),
        net.dequantized(net.given(w) if op == "attention" else w, scale, zero, 0 if op == "transposed" else -1),
    ]
    if op in ("Gemm", "transposed"):
        bias = rng.integers(-3000, 3000, 19, dtype=np.int32)
        operands.append(net.dequantized(bias, np.float32(0.04) * scale, np.zeros(np.shape(scale), np.int32)))
        transposes = {"transA": 1, "transB": 1} if op == "transposed" else {}
        product = net("Gemm", *operands, **transposes)
    else:
        product = net("MatMul", *operands)
    y_zero = integers(rng, result)
    (found,), ran = run(net, net("QuantizeLinear", product, np.float32(0.9), y_zero))
    assert ran <= {"MatMul", "Gemm"}
    near(found, exact(net, product, 0.9, int(y_zero), result))


def test_a_product_may_return_floats() -> None:
    rng = np.random.default_rng(3)
    net = Net()
    x, w = integers(rng, "uint8", 3, 64), integers(rng, "int8", 64, 8)
    scale = rng.uniform(0.01, 0.02, 8).astype(np.float32)
    product = net(
        "MatMul",
        net.dequantized(net.given(x), 0.04, np.uint8(7)),
        net.dequantized(w, scale, np.zeros(8, np.int8), -1),
    )
    (found,), _ = run(net, product)
    sums = (x.astype(np.int64) - 7) @ w.astype(np.int64)
    np.testing.assert_allclose(found, sums * (0.04 * scale.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("zero", [0, 100])
def test_limits_after_a_product(activation: str, zero: int) -> None:
    rng = np.random.default_rng(5)
    net = Net()
    product = net(
        "MatMul",
        net.dequantized(net.given(integers(rng, "uint8", 9, 33)), 0.04, np.uint8(120)),
        net.dequantized(integers(rng, "int8", 33, 21), 0.01, np.int8(0)),
    )
    bounds = [] if activation == "Relu" else [np.float32(-2.1), np.float32(7.77)]
    limited = net(activation, product, *bounds)
    (found,), _ = run(net, net("QuantizeLinear", limited, np.float32(0.2), np.uint8(zero)))
    low, high = (0, np.inf) if activation == "Relu" else (-2.1, 7.77)
    lowest, highest = np.clip(np.rint(np.array([low, high]) / 0.2) + zero, 0, 255)
    expected = np.clip(exact(net, product, 0.2, zero, "uint8"), lowest, highest).astype(np.uint8)
    near(found, expected)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Receives whether each product that could run as sums of high and low bytes does so."""
    found: list[bool] = []
    by_halves = products.Product._by_halves

    def recorded(product: products.Product, *args: Any) -> Any:
        made = by_halves(product, *args)
        found.append(made is not None)
        return made

    monkeypatch.setattr(products.Product, "_by_halves", recorded)
    return found


@pytest.mark.parametrize("left", ["int16", "uint16"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("per_output", [False, True])
@pytest.mark.parametrize("op", ["MatMul", "MatMul of batches", "MatMul of a vector", "Gemm", "transposed", "Conv",
                                "grouped Conv", "Conv of a line"])  # fmt: skip
def test_activations_of_16_bits(op: str, per_output: bool, left: str, right: str, halves: list[bool]) -> None:
    rng = np.random.default_rng(len(op))
    net = Net()
    outputs = 96
    scale = rng.uniform(0.01, 0.02, outputs).astype(np.float32) if per_output else np.float32(0.013)
    zero = integers(rng, right, *np.shape(scale))
    if "Conv" in op:
        groups, spatial = 2 if "grouped" in op else 1, (9,) if "line" in op else (6, 7)
        x = integers(rng, left, 2, 80, *spatial)
        w, axis = integers(rng, right, outputs, 80 // groups, *(5 if "line" in op else 3,) * len(spatial)), 0
        attributes: dict[str, Any] = {"group": groups, "pads": [1] * (2 * len(spatial))}
    else:
        x = integers(rng, left, *{"MatMul of batches": (2, 3, 5), "MatMul of a vector": ()}.get(op, (5,)), 400)
        w, axis, attributes = integers(rng, right, 400, outputs), -1, {}
        if op == "transposed":
            x, w, axis, attributes = x.T.copy(), w.T.copy(), 0, {"transA": 1, "transB": 1}
    x_zero, y_zero = integers(rng, left), integers(rng, left)
    operands = [net.dequantized(net.given(x), 1e-3, x_zero), net.dequantized(w, scale, zero, axis)]
    kind = next((each for each in ("Conv", "MatMul") if each in op), "Gemm")
    product = net(kind, *operands, **attributes)
    step = 0.02 if right == "int8" else 0.05
    (found,), _ = run(net, net("QuantizeLinear", product, np.float32(step), y_zero), threads=2)
    assert halves == [True]
    near(found, exact(net, product, step, int(y_zero), left), one_in=20)


@pytest.mark.parametrize("zero", [0, 1, 255, 256, 32767, 32768, 65535])
@pytest.mark.parametrize("left", ["int16", "uint16"])
def test_zero_points_of_16_bits(left: str, zero: int, halves: list[bool]) -> None:
    """Without a QuantizeLinear, the results may be off by three roundings to float32."""
    rng = np.random.default_rng(zero)
    net = Net()
    lowest = np.iinfo(left).min
    x, w = integers(rng, left, 7, 400), integers(rng, "int8", 400, 96)
    x[0], x[1], x[2] = lowest, lowest + zero, np.iinfo(left).max
    operand = net.dequantized(net.given(x), 0.5, np.array(lowest + zero, left))
    (found,), _ = run(net, net("MatMul", operand, net.dequantized(w, 0.25, np.int8(0))))
    assert halves == [True]
    wide = x.astype(np.int64) - (lowest + zero)
    size = np.abs(wide) @ np.abs(w.astype(np.int64))
    assert (np.abs(found - 0.125 * (wide @ w.astype(np.int64))) <= 3 * 2.0**-24 * 0.125 * size).all()
    assert not found[1].any()


@pytest.mark.parametrize("bias", ["integers", "floats", "a row", "another scale", "a zero point"])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
def test_what_follows_a_product_of_16_bits(bias: str, activation: str, halves: list[bool]) -> None:
    rng = np.random.default_rng(17)
    net = Net()
    x, w = integers(rng, "uint16", 9, 400), integers(rng, "int8", 400, 96)
    operands = [net.dequantized(net.given(x), 1e-3, np.uint16(30_000)), net.dequantized(w, 0.01, np.int8(0))]
    floats = rng.normal(0, 50, 96).astype(np.float32)
    if bias in ("floats", "a row"):
        operands.append(net.constant(floats if bias == "floats" else floats[None]))
        added = floats.astype(np.float64)
    else:
        scale, zero = 0.7 if bias == "another scale" else 1e-5, 5 if bias == "a zero point" else 0
        numbers = np.rint(floats / scale).astype(np.int32)
        operands.append(net.dequantized(numbers, scale, np.int32(zero)))
        added = (numbers - zero) * np.float64(np.float32(scale))
    made = net("Gemm", *operands)
    low, high = {"": (-np.inf, np.inf), "Relu": (0, np.inf), "Clip": (-100, 150)}[activation]
    if activation:
        made = net(activation, made, *([np.float32(low), np.float32(high)] if activation == "Clip" else []))
    (found,), _ = run(net, net("QuantizeLinear", made, np.float32(0.02), np.uint16(33_000)))
    assert halves == [True]
    sums = (x.astype(np.int64) - 30_000) @ w.astype(np.int64) * (np.float64(np.float32(1e-3)) * np.float32(0.01))
    near(
        found, rounded(np.clip(sums + added, low, high), 1 / np.float64(np.float32(0.02)), 33_000, np.uint16), one_in=20
    )


@pytest.mark.parametrize("change", ["few weights", "a variable", "16 bits", "overflow", "subnormal", "tiny"])
def test_near_misses_of_16_bits(change: str, halves: list[bool]) -> None:
    """The float32 nodes run: the results have their bits."""
    rng = np.random.default_rng(19)
    net = Net()
    depth, columns = {"few weights": (400, 64), "overflow": (66_400, 1)}.get(change, (400, 96))
    x = np.full((3, depth), 65_535, np.uint16) if change == "overflow" else integers(rng, "uint16", 3, depth)
    w = integers(rng, "int16" if change == "16 bits" else "uint8", depth, columns)
    left, right = {"subnormal": (2.0**-64, 2.0**-64), "tiny": (2.0**-70, 1.0)}.get(change, (0.04, 0.02))
    operand = net.given(w) if change == "a variable" else w
    made = net(
        "MatMul",
        net.dequantized(net.given(x), left, np.uint16(0)),
        net.dequantized(operand, right, np.array(0, w.dtype)),
    )
    for found, expected in zip(run(net, made)[0], run(net, made, transform=False)[0], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not any(halves)


def test_sizes_of_16_bits_that_change(halves: list[bool]) -> None:
    rng = np.random.default_rng(29)
    net = Net()
    w = integers(rng, "int8", 400, 96)
    product = net("MatMul", net.dequantized(net.given(integers(rng, "int16", 4, 400)), 0.5, np.int16(-300)),
                  net.dequantized(w, 0.25, np.int8(0)))  # fmt: skip
    model = net.model(net("QuantizeLinear", product, np.float32(4096), np.int16(7)))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    compiled = hetero.compile(model, "CPU")
    for rows in (4, 1, 0, 9, 4, 130):
        x = integers(rng, "int16", rows, 400)
        (found,) = compiled({"x0": x}).values()
        sums = (x.astype(np.int64) + 300) @ w.astype(np.int64)
        near(np.array(found), rounded(sums, 0.125 / 4096, 7, np.int16), one_in=20)
    assert all(halves)


def near_misses() -> dict[str, Any]:
    """Each changes one thing, after which the product runs in float32 or elsewhere."""
    return {
        "bias_scale": {"bias_scale": 0.001},
        "alpha": {"alpha": 0.5},
        "kept": {"kept": True},
        "two readers": {"twice": True},
        "tiny scale": {"scale": 1e-30},
        "16 bits": {"left": "uint16"},
        "zero of the bias": {"bias_zero": 5},
    }


@pytest.mark.parametrize("name", near_misses())
def test_near_misses(name: str) -> None:
    """The results are those of the float32 nodes, bit for bit: they run."""
    change = near_misses()[name]
    rng = np.random.default_rng(11)
    net = Net()
    left, scale = change.get("left", "uint8"), change.get("scale", 0.04)
    x = integers(rng, left, 6, 33)
    bias_scale = np.float32(change.get("bias_scale", np.float32(scale) * np.float32(0.01)))
    product = net(
        "Gemm",
        net.dequantized(net.given(x), scale, np.array(3, left)),
        net.dequantized(integers(rng, "int8", 33, 21), 0.01, np.int8(0)),
        net.dequantized(
            rng.integers(-99, 99, 21, dtype=np.int32), bias_scale, np.array(change.get("bias_zero", 0), np.int32)
        ),
        alpha=change.get("alpha", 1.0),
    )
    outputs = [net("QuantizeLinear", product, np.float32(scale), np.uint8(9))]
    if change.get("kept"):
        outputs.append(product)
    if change.get("twice"):
        outputs.append(net("Neg", product))
    found, _ = run(net, *outputs)
    expected, _ = run(net, *outputs, transform=False)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("op", ["Conv", "Gemm", "Gemm of a row"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_bias_of_floats(op: str, per_channel: bool) -> None:
    """It is added after the sums are scaled, so it is not rounded to their unit. The product runs in integers."""
    rng = np.random.default_rng(23)
    net = Net()
    outputs = 24
    scale = rng.uniform(0.002, 0.2, outputs) if per_channel else 0.1
    zero = np.zeros(np.shape(scale), np.int8)
    bias = rng.normal(scale=3, size=outputs).astype(np.float32)
    if op == "Conv":
        x, w = integers(rng, "uint8", 2, 7, 13, 11), integers(rng, "int8", outputs, 7, 3, 3)
    else:
        x, w = integers(rng, "uint8", 50, 63), integers(rng, "int8", 63, outputs)
    left = net.dequantized(net.given(x), 0.04, np.uint8(121))
    right = net.dequantized(w, scale, zero, axis=0 if op == "Conv" else 1)
    product = net(op.split()[0], left, right, bias[None] if op == "Gemm of a row" else bias)
    (found,), types = run(net, net("QuantizeLinear", product, np.float32(0.5), np.uint8(99)))
    assert types.isdisjoint({"DequantizeLinear", "QuantizeLinear"})
    near(found, exact(net, product, 0.5, 99, "uint8"))


@pytest.mark.parametrize("weight", [0, 1])
@pytest.mark.parametrize("op", ["Conv", "Gemm", "Gemm of rows"])
def test_a_bias_of_floats_for_outputs_without_weights(op: str, weight: int) -> None:
    """Their scale means nothing: tools write 1 for zeros, and a tiny one for tiny weights."""
    rng = np.random.default_rng(24)
    net = Net()
    scale = np.full(24, 0.01)
    w = integers(rng, "int8", 24, 7, 3, 3) if op == "Conv" else integers(rng, "int8", 24, 24)
    axis = 1 if op == "Gemm" else 0
    dead = [0, 5, 23]
    scale[dead] = 1e-12 if weight else 1.0
    bias = rng.normal(scale=3, size=24).astype(np.float32)
    np.moveaxis(w, axis, 0)[dead] *= weight
    x = integers(rng, "uint8", *((1, 7, 9, 9) if op == "Conv" else (50, 24)))
    left = net.dequantized(net.given(x), 0.04, np.uint8(121))
    right = net.dequantized(w, scale, np.zeros(24, np.int8), axis=axis)
    product = net(op.split()[0], left, right, bias, **({"transB": 1} if op == "Gemm of rows" else {}))
    (found,), types = run(net, net("QuantizeLinear", product, np.float32(0.1), np.uint8(99)))
    assert types.isdisjoint({"DequantizeLinear", "QuantizeLinear"})
    expected = exact(net, product, 0.1, 99, "uint8")
    near(found, expected)
    made = found[:, dead]
    np.testing.assert_array_equal(made, expected[:, dead])
    assert (made == made[:1]).all()


@pytest.mark.parametrize(
    "change", ["plain", "large bias", "NaN", "infinity", "huge", "one number", "column", "float16", "variable", "kept"]
)
def test_near_misses_of_a_bias_of_floats(change: str) -> None:
    rng = np.random.default_rng(25)
    net = Net()
    bias: Any = rng.normal(scale=3, size=21).astype(np.float32)
    scale = 2.0**-9
    if change in ("NaN", "infinity"):
        bias[7] = np.nan if change == "NaN" else -np.inf
    if change in ("large bias", "huge"):
        bias[20] = 1e8 if change == "large bias" else 3e38
    if change == "one number":
        bias = bias[:1]
    if change == "column":
        bias = rng.normal(size=(6, 1)).astype(np.float32)
    if change == "variable":
        bias = net.given(bias)
    x, w = integers(rng, "uint8", 6, 33), integers(rng, "int8", 33, 21)
    operands = [net.dequantized(net.given(x), 1.0, np.uint8(3)), net.dequantized(w, scale, np.int8(0))]
    if change == "float16":  # the types of Gemm must agree
        net.nodes.clear()
        x_scale, w_scale = np.float16(1), np.float16(scale)
        operands = [
            net("DequantizeLinear", *net.inputs, x_scale, np.uint8(3)),
            net("DequantizeLinear", w, w_scale, np.int8(0)),
        ]
        bias = bias.astype(np.float16)
    product = net("Gemm", *operands, bias)
    y_scale = np.float16(1.0) if change == "float16" else np.float32(0.5 if change == "huge" else 1.0)
    outputs = [net("QuantizeLinear", product, y_scale, np.uint8(9)), *([product] if change == "kept" else [])]
    found, _ = run(net, *outputs)
    expected, _ = run(net, *outputs, transform=False)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_sums_that_may_overflow() -> None:
    """40,000 products of up to 255 * 255 do not fit int32, so the product stays in float32."""
    net = Net()
    x, w = np.full((1, 40_000), 255, np.uint8), np.full((40_000, 1), 255, np.uint8)
    product = net("MatMul", net.dequantized(net.given(x), 1.0, np.uint8(0)), net.dequantized(w, 1.0, np.uint8(0)))
    (found,), _ = run(net, net("QuantizeLinear", product, np.float32(2.0**24), np.uint8(0)))
    assert found.item() == round(40_000 * 255 * 255 / 2**24)


@pytest.mark.parametrize(
    ("left", "right", "to"), [(2.0**64, 2.0**64, None), (2.0**64, 2.0**64, 2.0**-64), (2.0**30, 2.0**40, 2.0**-60)]
)
def test_a_factor_of_the_sums_is_finite(left: float, right: float, to: float | None) -> None:
    """An infinite factor would make NaN, and so the smallest integer, of sums that are 0."""
    net = Net()
    x = net.dequantized(net.given(np.array([[0, 0], [3, 0], [3, 3]], np.int8)), left, np.int8(0))
    made = net("MatMul", x, net.dequantized(np.array([[1, 0], [-1, 2]], np.int8), right, np.int8(0)))
    if to is not None:
        made = net("QuantizeLinear", made, np.float32(to), np.uint8(7))
    for found, expected in zip(run(net, made)[0], run(net, made, transform=False)[0], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(0, 33), (1, 33), (4, 0)])
def test_sizes_zero_and_one(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    net = Net()
    x, w = integers(rng, "uint8", *shape), integers(rng, "int8", shape[1], 1)
    product = net("MatMul", net.dequantized(net.given(x), 0.1, np.uint8(3)), net.dequantized(w, 0.1, np.int8(0)))
    (found,), _ = run(net, net("QuantizeLinear", product, np.float32(0.5), np.uint8(7)))
    near(found, exact(net, product, 0.5, 7, "uint8"))


def test_sizes_that_change() -> None:
    """One compiled model, several batch sizes."""
    rng = np.random.default_rng(2)
    net = Net()
    w = integers(rng, "int8", 33, 21)
    product = net("MatMul", net.dequantized(net.given(integers(rng, "uint8", 4, 33)), 0.1, np.uint8(3)),
                  net.dequantized(w, 0.01, np.int8(0)))  # fmt: skip
    result = net("QuantizeLinear", product, np.float32(0.5), np.uint8(7))
    model = net.model(result)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    compiled = hetero.compile(model, "CPU")
    for rows in (4, 1, 0, 9, 4, 130):
        x = integers(rng, "uint8", rows, 33)
        (found,) = compiled({"x0": x}).values()
        sums = (x.astype(np.int64) - 3) @ w.astype(np.int64)
        near(np.array(found), rounded(sums, np.float64(np.float32(0.1)) * np.float32(0.01) / 0.5, 7, np.uint8))


def test_export_and_import(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    net = Net()
    w = net("QuantizeLinear", rng.normal(size=(33, 64)).astype(np.float32), np.float32(0.02), np.int8(0))
    x = net.given(integers(rng, "uint8", 4, 33))
    product = net("MatMul", net.dequantized(x, 0.1, np.uint8(3)), net.dequantized(w, 0.02, np.int8(0)))
    result = net("QuantizeLinear", product, np.float32(0.5), np.uint8(7))
    core = hetero.Core()
    compiled = core.compile_model(net.model(result), "CPU")
    (expected,) = compiled(net.inputs).values()
    for mode in ("OPTIMIZE_SIZE", "OPTIMIZE_SPEED"):
        compiled = core.compile_model(net.model(result), "CPU", {"CACHE_MODE": mode})
        compiled(net.inputs)
        path = tmp_path / f"{mode}.hetero"
        compiled.export_model(path)
        (found,) = core.import_model(path, "CPU")(net.inputs).values()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["Conv", "MatMul", "Gemm"])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_weights_of_4_bits_beside_8_bits(op: str, dtype: str) -> None:
    """A convolution widens them to bytes; others are read by the float32 nodes, or by products of their own."""
    rng = np.random.default_rng(3)
    net = Net()
    shape = (4, 3, 2, 2) if op == "Conv" else (6, 5)
    levels = rng.integers(0, 8, shape).astype(np.int8).astype(np.dtype(getattr(ml_dtypes, dtype)))
    x = net.dequantized(
        net.given(integers(rng, np.uint8, *((1, 3, 5, 5) if op == "Conv" else (3, 6)))), 0.1, np.uint8(99)
    )
    w = net("DequantizeLinear", levels, np.float32(0.25))
    made = net("QuantizeLinear", net(op, x, w, **({"alpha": 0.5} if op == "Gemm" else {})), np.float32(0.3), np.int8(3))
    near(run(net, made)[0][0], run(net, made, transform=False)[0][0])


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("zero", [None, 0, 3])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_convolutions_with_weights_of_4_bits_equal_those_with_8_bits(dtype: str, zero: int | None, each: bool) -> None:
    rng = np.random.default_rng(3)
    x = integers(rng, np.uint8, 2, 6, 9, 9)
    levels = rng.integers(-8, 8, (8, 6, 3, 3)) + (8 if dtype == "uint4" else 0)
    scale = rng.uniform(0.01, 0.02, 8).astype(np.float32) if each else np.float32(0.015)
    results = []
    for kind in (np.dtype(getattr(ml_dtypes, dtype)), np.dtype(dtype.replace("4", "8"))):
        net = Net()
        zeros = () if zero is None else (np.full(np.shape(scale), zero).astype(kind),)
        w = net("DequantizeLinear", levels.astype(np.int8).astype(kind), scale, *zeros, axis=0)
        made = net("Conv", net.dequantized(net.given(x), 0.04, np.uint8(9)), w)
        results.append(run(net, net("QuantizeLinear", made, np.float32(0.1), np.uint8(90))))
    (four, ran), (eight, ran_with_8) = results
    assert np.array_equal(four[0], eight[0])
    assert ran == ran_with_8


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_conversions_of_onnxruntime(dtype: str) -> None:
    """Its quantizers write the conversions in its own domain for opsets below 21."""
    rng = np.random.default_rng(3)
    net, x = Net(), integers(rng, "uint8", 1, 6, 9, 9)
    w = rng.integers(-8, 8, (8, 6, 3, 3)).astype(np.dtype(dtype) if dtype == "int8" else ml_dtypes.int4)
    scales = rng.uniform(0.01, 0.02, 8).astype(np.float32)
    y = net("Conv", net.dequantized(net.given(x), 0.04, np.uint8(9)), net.dequantized(w, scales, np.zeros(8, w.dtype)))
    y = net("Relu", net.dequantized(net("QuantizeLinear", y, np.float32(0.1), np.uint8(3)), 0.1, np.uint8(3)))
    y = net("QuantizeLinear", y, np.float32(0.08), np.uint8(0))
    wanted, ran = run(net, y)
    for node in net.nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = "com.microsoft"
    net.opset = 17
    found, ran_there = run(net, y)
    assert np.array_equal(found[0], wanted[0])
    assert ran == ran_there
