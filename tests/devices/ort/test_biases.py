"""Biases whose scale onnxruntime ignores: models that have one do not run in integers, all others do."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import hetero

onnxruntime = pytest.importorskip("onnxruntime")

from hetero.devices.ort.biases import has_bias_of_other_scale  # noqa: E402 (needs no onnxruntime, but serves it)

X = np.array([[-10.1, 12.5], [3.2, -7.1]], np.float32)
LEFT, RIGHT = 0.125, 0.0625
BODIES = {
    "Gemm": "y = Gemm(dx, dw, db)",
    "Gemm, quantized": "g = Gemm(dx, dw, db) q = QuantizeLinear(g, one, eighty) y = DequantizeLinear(q, one, eighty)",
    "MatMul, Add": "m = MatMul(dx, dw) y = Add(m, db)",
    "Add, MatMul": "m = MatMul(dx, dw) y = Add(db, m)",
    "moved": "t = Transpose <perm = [1, 0]> (dw) u = Transpose <perm = [1, 0]> (t) y = Gemm(dx, u, db)",
}


def made(body: str, scale: float, *, bias: str = "int32[2] b = {100, -200}", zero: int = 0) -> onnx.ModelProto:
    """A product of operands with the scales LEFT and RIGHT, and a bias with another one."""
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[N, 2] x) => (float[N, 2] y)
        <float xs = {{{LEFT}}}, uint8 xz = {{128}}, int8[2, 2] w = {{-39, -64, -20, 63}}, float ws = {{{RIGHT}}},
         {bias}, float bs = {{{scale}}}, {bias.split("[")[0]} bz = {{{zero}}},
         float one = {{1.0}}, uint8 eighty = {{80}}>
        {{
            qx = QuantizeLinear(x, xs, xz) dx = DequantizeLinear(qx, xs, xz)
            dw = DequantizeLinear(w, ws) db = DequantizeLinear(b, bs, bz) {body}
        }}
    """)


def defined(model: onnx.ModelProto) -> np.ndarray:
    """The result as the specification defines it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


def found(model: onnx.ModelProto) -> bool:
    return has_bias_of_other_scale(model.SerializeToString(), {})


@pytest.mark.spread(2)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("scale", [LEFT * RIGHT, LEFT * RIGHT * 2, RIGHT])
@pytest.mark.parametrize("device", ["ORT", "HETERO:CPU,ORT"])
def test_a_bias_keeps_its_scale(body: str, scale: float, device: str) -> None:
    model = made(body, scale)
    assert found(model) == (scale != LEFT * RIGHT)
    compiled = hetero.compile(model.SerializeToString(), device)
    np.testing.assert_allclose(compiled({"x": X})["y"], defined(model), atol=1e-3)


def test_an_inner_graph_is_looked_at() -> None:
    """Its operands are dequantized outside."""
    model = made("y = Identity(dx)", RIGHT)
    inner = made(BODIES["Gemm"], RIGHT).graph.node[-1]
    branch = onnx.helper.make_graph([inner], "inner", [], [onnx.helper.make_tensor_value_info("y", 1, None)])
    inner.output[0] = branch.output[0].name = "z"
    del model.graph.node[-1]
    yes = numpy_helper.from_array(np.array(True), "yes")
    model.graph.initializer.append(yes)
    model.graph.node.append(onnx.helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch))
    assert found(model)


def test_scales_that_are_close_are_equal() -> None:
    """Quantizers round the product to float32."""
    assert not found(made(BODIES["Gemm"], float(np.float32(LEFT * RIGHT * (1 + 1e-6)))))
    assert found(made(BODIES["Gemm"], LEFT * RIGHT * 1.001))


def test_scales_may_be_one_for_each_column() -> None:
    model = made(BODIES["Gemm"], 1)
    names = [tensor.name for tensor in model.graph.initializer]
    for right, expected in (([0.5, 0.25], False), ([0.5, 0.5], True)):
        for name, scales in (("ws", right), ("bs", [0.0625, 0.03125])):
            tensor = numpy_helper.from_array(np.array(scales, np.float32), name)
            model.graph.initializer[names.index(name)].CopyFrom(tensor)
        assert found(model) == expected
    lent = {"ws": np.array([0.5, 0.25], np.float32)}
    del model.graph.initializer[names.index("ws")]
    assert not has_bias_of_other_scale(model.SerializeToString(), lent)


def test_what_is_not_known_may_differ() -> None:
    """A scale that is computed, and a zero point, which onnxruntime ignores too."""
    model = made(BODIES["Gemm"], LEFT * RIGHT)
    assert not found(model)
    next(node for node in model.graph.node if "db" in node.output).input[1] = "computed"
    model.graph.node.insert(0, onnx.helper.make_node("Identity", ["bs"], ["computed"]))
    assert found(model)
    assert found(made(BODIES["Gemm"], LEFT * RIGHT, zero=3))


@pytest.mark.parametrize(
    "model",
    [
        made(BODIES["Gemm"], RIGHT, bias="int8[2] b = {100, -100}"),
        made("y = Gemm(dx, dw)", RIGHT),
        made("y = Gemm(x, dw, db)", RIGHT),
        made("m = MatMul(dx, dw) r = Relu(m) y = Add(r, db)", RIGHT),
        made("y = Add(dx, db)", RIGHT),
    ],
    ids=["bias of 8 bits", "no bias", "operand of floats", "Relu between", "no product"],
)
def test_other_models_run_in_integers(model: onnx.ModelProto) -> None:
    assert not found(model)
    compiled = hetero.compile(model.SerializeToString(), "ORT")
    np.testing.assert_allclose(compiled({"x": X})["y"], defined(model), atol=0.5)


def test_malformed_nodes_are_for_others_to_report() -> None:
    """Values that depend on themselves, and nodes without inputs that they must have."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[2, 2] x) => (float[2, 2] y)
        { a = Identity(a) y = Gemm(a, a, a) d = DequantizeLinear() z = Gemm(d, d, d) m = MatMul(d) s = Add(d, m)
          u = Add(s) }
    """)
    assert not found(model)
