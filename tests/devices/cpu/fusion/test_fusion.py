"""What the CPU device fuses: fewer kernel calls, the same results; and what it leaves alone."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import hetero

RNG = np.random.default_rng(0)


def array(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


class Net:
    """Nodes one after another, each with one output."""

    def __init__(self, shape):
        self.nodes, self.weights, self.outputs = [], {}, []
        self.shape = shape

    def const(self, value):
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(value, np.float32) if not isinstance(value, np.ndarray) else value
        return name

    def __call__(self, op_type, *inputs, **attributes):
        names = [name if isinstance(name, str) else self.const(name) for name in inputs]
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, names, [name], **attributes))
        return name

    def model(self, *outputs):
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def calls(compiled, inputs):
    return compiled._plans.first([inputs["x"]]).program.num_calls


def check(model: onnx.ModelProto, shape, num_calls: int, tolerance=2e-5):
    """The number of kernel calls that remain, and the results with and without fusion beside onnxruntime's."""
    inputs = {"x": array(*shape)}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)
    core = hetero.Core()
    fused = core.compile_model(model, "CPU")
    plain = core.compile_model(model, "CPU", {"DISABLE_TRANSFORMATIONS": True})
    assert calls(fused, inputs) == num_calls
    assert calls(plain, inputs) >= num_calls
    for compiled in (fused, plain):
        for found, want in zip(compiled(inputs).values(), wanted, strict=True):
            assert found.shape == want.shape
            assert np.abs(found - want).max() <= tolerance * max(1, np.abs(want).max())


SHAPE = (2, 5, 24)


def gelu_erf(net, x, form):
    inner = net("Div", x, math.sqrt(2)) if form % 2 else net("Mul", math.sqrt(0.5), x)
    gate = net("Add", net("Erf", inner), 1.0)
    if form // 2 == 0:
        return net("Mul", net("Mul", x, gate), 0.5)
    return net("Mul", net("Mul", 0.5, x), gate)


def gelu_tanh(net, x, form):
    cube = net("Pow", x, 3.0) if form % 2 else net("Mul", net("Mul", x, x), x)
    inner = net("Mul", net("Add", x, net("Mul", cube, 0.044715)), math.sqrt(2 / math.pi))
    gate = net("Add", 1.0, net("Tanh", inner))
    if form // 2 == 0:
        return net("Mul", net("Mul", gate, x), 0.5)
    return net("Mul", gate, net("Mul", x, 0.5))


def silu(net, x, form):
    return net("Mul", x, net("Sigmoid", x)) if form else net("Mul", net("Sigmoid", x), x)


def mish(net, x, form):
    return net("Mul", x, net("Tanh", net("Softplus", x)))


def hard_swish(net, x, form):
    if form == 0:
        return net("Mul", x, net("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    gate = net("Clip", net("Add", x, 3.0), np.array(0, np.float32), np.array(6, np.float32))
    if form == 1:
        return net("Div", net("Mul", x, gate), 6.0)
    return net("Mul", x, net("Div", gate, 6.0))


ACTIVATIONS = [
    (f, i) for f, n in ((gelu_erf, 4), (gelu_tanh, 4), (silu, 2), (mish, 1), (hard_swish, 3)) for i in range(n)
]


@pytest.mark.parametrize(("build", "form"), ACTIVATIONS)
def test_decomposed_activations_are_one_call(build, form):
    net = Net(SHAPE)
    check(net.model(build(net, "x", form)), SHAPE, 1)


@pytest.mark.parametrize(("build", "form"), ACTIVATIONS)
def test_a_part_that_is_read_elsewhere_stays(build, form):
    net = Net(SHAPE)
    end = build(net, "x", form)
    inner = net.nodes[-2].output[0]  # the last but one is an output of the model, too
    check(net.model(end, inner), SHAPE, len(net.nodes))


def test_other_constants_are_another_function():
    net = Net(SHAPE)
    gate = net("Add", net("Erf", net("Div", "x", 1.5)), 1.0)
    check(net.model(net("Mul", net("Mul", "x", gate), 0.5)), SHAPE, 5)


def layer_norm(net, x, square_by_mul=False, bias=True):
    centred = net("Sub", x, net("ReduceMean", x, np.array([-1]), keepdims=1))
    square = net("Mul", centred, centred) if square_by_mul else net("Pow", centred, 2.0)
    root = net("Sqrt", net("Add", net("ReduceMean", square, np.array([-1]), keepdims=1), 1e-5))
    scaled = net("Mul", net("Div", centred, root), array(24))
    return net("Add", scaled, array(24)) if bias else scaled


@pytest.mark.parametrize("square_by_mul", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_decomposed_layer_normalisation_is_one_call(square_by_mul, bias):
    net = Net(SHAPE)
    check(net.model(layer_norm(net, "x", square_by_mul, bias)), SHAPE, 1)


def test_root_mean_square_normalisation_is_one_call():
    net = Net(SHAPE)
    root = net("Sqrt", net("Add", net("ReduceMean", net("Pow", "x", 2.0), np.array([-1]), keepdims=1), 1e-6))
    check(net.model(net("Mul", net("Div", "x", root), array(24))), SHAPE, 1)


def test_a_power_of_a_half_normalises_too():
    net = Net(SHAPE)
    variance = net("Add", net("ReduceMean", net("Mul", "x", "x"), np.array([-1]), keepdims=1), 1e-6)
    check(net.model(net("Mul", net("Div", "x", net("Pow", variance, 0.5)), array(24))), SHAPE, 1)


def test_a_power_of_a_half_is_no_square_root():
    net = Net((4,))
    model = net.model(net("Pow", "x", 0.5))
    found = hetero.Core().compile_model(model, "CPU")({"x": np.array([4, 0.0, -0.0, -np.inf], np.float32)})[0]
    assert found.tolist() == [2, 0, 0, np.inf]
    assert not np.signbit(found).any()


def test_the_mean_of_other_axes_is_another_normalisation():
    net = Net((2, 24, 24))
    centred = net("Sub", "x", net("ReduceMean", "x", np.array([1]), keepdims=1))
    root = net("Sqrt", net("Add", net("ReduceMean", net("Pow", centred, 2.0), np.array([1]), keepdims=1), 1e-5))
    check(net.model(net("Mul", net("Div", centred, root), array(24))), (2, 24, 24), 8)


def test_an_addition_before_layer_normalisation_joins_it():
    net = Net(SHAPE)
    total = net("Add", net("Sin", "x"), "x")
    normal = net("LayerNormalization", total, array(24), array(24))
    check(net.model(normal), SHAPE, 2)
    check(net.model(normal, total), SHAPE, 2)  # the sum is a result of the same call
    after = net("Cos", total)
    check(net.model(normal, after), SHAPE, 3)


def test_a_sum_that_is_read_before_the_normalisation_stays():
    net = Net(SHAPE)
    total = net("Add", net("Sin", "x"), "x")
    early = net("Cos", total)
    normal = net("LayerNormalization", total, array(24), array(24))
    check(net.model(early, normal), SHAPE, 4)


@pytest.mark.parametrize("at", ["scale", "bias", "both"])
def test_a_sum_that_is_its_own_scale_or_bias(at):
    net = Net((24,))
    total = net("Add", net("Sin", "x"), "x")
    scale, bias = (total if at in (name, "both") else array(24) for name in ("scale", "bias"))
    check(net.model(net("LayerNormalization", total, scale, bias)), (24,), 3)


@pytest.mark.parametrize("known", [False, True])
def test_a_value_added_to_itself_before_layer_normalisation(known):
    net = Net(SHAPE)
    total = net("Add", "x", array(*SHAPE) if known else "x")
    check(net.model(net("LayerNormalization", total, array(24), array(24))), SHAPE, 1)


@pytest.mark.parametrize(
    ("shape", "axis", "scale", "bias", "num_calls"),
    [
        ((4, 4), -1, (4, 1), (4,), 3),
        ((4, 4), -1, (4,), (4, 1), 2),
        ((4, 4), 0, (4, 1), (1, 4), 3),
        ((2, 3, 6), -1, (2, 3, 1), (), 3),
        ((3, 2, 6), 1, (3, 2, 6), (2, 1), 3),
        ((12, 3, 4), 1, (12, 1, 1), (4,), 3),
        ((5, 3, 4), 1, (5, 1, 1), (1, 3, 4), 3),
        ((1, 3, 4), -2, (1, 3, 4), (3, 4), 1),
        ((5, 1), -1, (5, 1), (1,), 3),
        ((4, 1, 4), -2, (4,), (1, 4), 1),
    ],
)
def test_scale_and_bias_of_layer_normalisation_broadcast(shape, axis, scale, bias, num_calls):
    """As many elements as a row do not make a row; NumPy's rules do."""
    net = Net(shape)
    check(net.model(net("LayerNormalization", "x", array(*scale), array(*bias), axis=axis)), shape, num_calls)


def test_scale_of_layer_normalisation_for_several_sizes():
    """For 12 rows the scale has as many elements as a row."""
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], axis=1)
    ports = [helper.make_tensor_value_info(name, 1, ["N", *rest]) for name, rest in (("x", (3, 4)), ("scale", (1, 1)))]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", 1, ["N", 3, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled, reference = hetero.Core().compile_model(model, "CPU"), ReferenceEvaluator(model)
    for n in (5, 12, 1, 12, 0):
        inputs = {"x": array(n, 3, 4), "scale": array(n, 1, 1)}
        assert np.allclose(compiled(inputs)[0], reference.run(None, inputs)[0], atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("scale", [(4,), (3, 1), (2, 1, 1)])
@pytest.mark.parametrize("stash", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_mean_and_deviation_of_layer_normalisation(dtype, scale, stash):
    """Far from zero, where the mean of the squares would cancel."""
    offset = 3 if dtype == np.float16 else 1000
    inputs = {"x": (array(2, 3, 4) + offset).astype(dtype), "scale": array(*scale).astype(dtype)}
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean", "inverse"], axis=-1, stash_type=stash)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [helper.make_tensor_value_info(name, element, value.shape) for name, value in inputs.items()]
    types = {"y": element, "mean": stash, "inverse": stash}
    graph = helper.make_graph(
        [node], "g", ports, [helper.make_tensor_value_info(*item, None) for item in types.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    y, mean, inverse = hetero.Core().compile_model(model, "CPU")(inputs).values()
    wide = inputs["x"].astype(np.float64)
    stashed = helper.tensor_dtype_to_np_dtype(stash)
    assert (y.dtype, mean.dtype, inverse.dtype) == (dtype, stashed, stashed)
    wanted = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert np.allclose(mean, wide.mean(-1, keepdims=True), rtol=1e-3 if stashed == np.float16 else 1e-6)
    assert np.allclose(inverse, wanted, rtol=1e-3)
    normal = (wide - wide.mean(-1, keepdims=True)) * wanted * inputs["scale"].astype(np.float64)
    assert np.allclose(y, normal, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(3,), (5, 4), (2, 2, 4), (1, 1, 2, 4)])
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_scales_that_do_not_fit_are_refused(op_type, shape):
    """The scale broadcasts to the input, not the input to the scale."""
    net = Net((2, 4))
    model = net.model(net(op_type, "x", array(*shape)))
    model.opset_import[0].version = 23
    with pytest.raises(hetero.InferenceError, match="do not broadcast|does not fit"):
        hetero.Core().compile_model(model, "CPU")({"x": array(2, 4)})


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh"])
def test_products_take_bias_addend_and_activation(activation):
    net = Net(SHAPE)
    product = net("Add", net("MatMul", "x", array(24, 24, scale=0.2)), array(24))
    check(net.model(net(activation, net("Add", product, "x"))), SHAPE, 1)


def test_only_what_is_there_can_be_added():
    """The second product is made after the first: so the first is the addend of the second."""
    net = Net(SHAPE)
    first, second = (net("MatMul", "x", array(24, 24, scale=0.2)) for _ in range(2))
    check(net.model(net("Add", first, second)), SHAPE, 2)


def test_a_product_added_to_itself():
    net = Net(SHAPE)
    product = net("MatMul", "x", array(24, 24, scale=0.2))
    check(net.model(net("Add", product, product)), SHAPE, 2)


@pytest.mark.parametrize("shape", [(5, 1), (2, 1, 1), (1, 5, 24), (1,), (2, 5, 24)])
def test_operands_that_are_no_bias(shape):
    net = Net(SHAPE)
    summed = net("Add", net("MatMul", "x", array(24, 24, scale=0.2)), array(*shape))
    check(net.model(summed), SHAPE, 1 if shape == SHAPE else 2)


def test_a_product_that_is_broadcast_stays():
    net = Net((1, 24))
    check(net.model(net("Add", net("MatMul", "x", array(24, 24, scale=0.2)), array(7, 24))), (1, 24), 2)


def test_two_addends_of_one_product():
    net = Net(SHAPE)
    product = net("MatMul", "x", array(24, 24, scale=0.2))
    check(net.model(net("Add", net("Add", net("Add", product, "x"), "x"), array(24))), SHAPE, 3)


IMAGE = (2, 6, 9, 9)


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", [None, "Relu", "HardSigmoid", "LeakyRelu"])
def test_convolutions_take_normalisation_addend_and_activation(group, bias, activation):
    net = Net(IMAGE)
    operands = [array(6, 6 // group, 3, 3, scale=0.3), *([array(6)] if bias else [])]
    made = net("Conv", "x", *operands, pads=[1, 1, 1, 1], group=group)
    made = net("BatchNormalization", made, array(6), array(6), array(6), np.abs(array(6)) + 0.1)
    made = net("Add", "x", made)
    if activation:
        made = net(activation, made)
    check(net.model(made), IMAGE, 1, tolerance=1e-4)


def test_a_normalisation_whose_input_is_read_elsewhere_stays():
    net = Net(IMAGE)
    convolution = net("Conv", "x", array(6, 6, 1, 1))
    normal = net("BatchNormalization", convolution, array(6), array(6), array(6), np.abs(array(6)) + 0.1)
    check(net.model(normal, convolution), IMAGE, 2, tolerance=1e-4)


def test_a_normalisation_that_divides_by_nothing_stays():
    net = Net(IMAGE)
    convolution = net("Conv", "x", array(6, 6, 1, 1))
    variance = np.full(6, -1e-5, np.float32)
    model = net.model(net("BatchNormalization", convolution, array(6), array(6), array(6), variance, epsilon=0.0))
    compiled = hetero.Core().compile_model(model, "CPU")
    inputs = {"x": array(*IMAGE)}
    assert calls(compiled, inputs) == 2
    assert np.isnan(compiled(inputs)[0]).all()


def test_a_scale_that_may_overflow_the_weights_stays():
    net = Net(IMAGE)
    convolution = net("Conv", "x", array(6, 6, 1, 1, scale=1e19))
    gain = np.full(6, 1e20, np.float32)
    model = net.model(net("BatchNormalization", convolution, gain, *(np.zeros(6, np.float32),) * 2, gain / gain))
    inputs = {"x": array(*IMAGE, scale=1e-19)}
    compiled = hetero.Core().compile_model(model, "CPU")
    assert calls(compiled, inputs) == 2
    assert np.isfinite(compiled(inputs)[0]).all()


def test_not_a_number_passes_through_fused_activations():
    net = Net(SHAPE)
    model = net.model(net("Relu", net("MatMul", "x", array(24, 24))))
    x = array(*SHAPE)
    x[0, 0, 0] = np.nan
    y = hetero.Core().compile_model(model, "CPU")({"x": x})[0]
    assert np.isnan(y[0, 0]).all()
    assert not np.isnan(y[0, 1:]).any()


def test_counters_name_the_product():
    net = Net(SHAPE)
    net("Relu", net("MatMul", "x", array(24, 24)))
    request = hetero.Core().compile_model(net.model("v1"), "CPU", {"PERF_COUNT": True}).create_infer_request()
    request.infer({"x": array(*SHAPE)})
    rows = [(row.layer_type, row.status) for row in request.profiling_info]
    assert rows == [("MatMul", "EXECUTED"), ("Relu", "OPTIMIZED_OUT")]


ELEMENTWISE = ("Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "HardSigmoid", "Neg", "Abs")


@pytest.mark.parametrize("first", [0, 40])
def test_random_nets_are_the_same_with_and_without(first):
    """Chains and meshes of what the passes look for, with random outputs in between."""
    core = hetero.Core()
    for seed in range(first, first + 40):
        rng = np.random.default_rng(seed)
        net = Net((3, 24))
        values = ["x"]
        for _ in range(int(rng.integers(3, 25))):
            a, b = (values[int(rng.integers(max(0, len(values) - 4), len(values)))] for _ in range(2))
            match int(rng.integers(12)):
                case 0:
                    made = net("MatMul", a, array(24, 24, scale=0.2))
                case 1:
                    made = net("Gemm", a, array(24, 24, scale=0.2), array(24), transB=1)
                case 2 | 3:
                    made = net("Add", a, b)
                case 4:
                    made = net("Mul", a, b)
                case 5:
                    made = net("Add", a, array(24))
                case 6:
                    made = gelu_erf(net, a, seed % 4)
                case 7:
                    made = layer_norm(net, a, bool(seed % 2))
                case 8:
                    made = net("LayerNormalization", a, array(24), array(24))
                case 9:
                    made = silu(net, a, seed % 2)
                case _:
                    made = net(ELEMENTWISE[int(rng.integers(len(ELEMENTWISE)))], a)
            values.append(made)
        outputs = sorted({values[-1], *(v for v in values[1:-1] if rng.random() < 0.15)})
        model, inputs = net.model(*outputs), {"x": array(3, 24)}
        fused, plain = (
            core.compile_model(model, "CPU", {"DISABLE_TRANSFORMATIONS": disabled})(inputs)
            for disabled in (False, True)
        )
        for name in outputs:
            scale = max(1, np.abs(plain[name]).max())
            assert np.abs(fused[name] - plain[name]).max() <= 1e-4 * scale, (seed, name)


@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_what_joins_a_gemm_without_its_bias(beta):
    """With beta = 0 the bias is not read, and later addends are not multiplied by beta."""
    net = Net(["N", 8])
    bias = np.full(6, np.nan, np.float32) if beta == 0 else array(6)
    product = net("Gemm", "x", array(8, 6), bias, beta=beta)
    check(net.model(net("Relu", net("Add", product, array(6)))), (5, 8), 1 if beta == 0 else 3)
