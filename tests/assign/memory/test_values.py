"""The sizes of values inside units: of DequantizeLinear in the quantized type, of others nothing."""

import numpy as np
import onnx
import onnx.parser

import hetero
from hetero.assign.memory import footprint, values_of

QDQ = """<ir_version: 8, opset_import: ["" : 17]> g (int8[1,64] x) => (float[1,64] r, int8[1,64] z)
<float s = {{0.1}}, int8 zero = {{0}}> {{
    w = Constant <value = int8[1,64] {{{}}}> ()
    xf = DequantizeLinear(x, s, zero)
    wf = DequantizeLinear(w, s, zero)
    y = Add(xf, wf)
    z = QuantizeLinear(y, s, zero)
    r = Relu(xf)
}}""".format(",".join("1" * 64))
UNIT = [np.array([0, 1, 2, 3], np.int32)]


def qdq_model():
    return hetero.Core().read_model(onnx.parser.parse_model(QDQ))


def sizes(units):
    model = qdq_model()
    values = values_of(model, units=[units, ()])
    on_device, outputs = values.on(0).bytes, model.node_outputs
    first = {name: int(outputs[i][0]) for i, name in enumerate(("xf", "wf", "y", "z", "r"))}
    return {name: float(on_device[value]) for name, value in first.items()}, values


def test_values_inside_a_unit_are_not_stored_and_others_are():
    inside, values = sizes(UNIT)
    assert inside["wf"] == inside["y"] == 0  # a constant that counts already, and a value between fused nodes
    assert inside["xf"] == 256  # Relu reads it too, outside the unit
    assert inside["z"] == 64
    assert np.array_equal(values.on(1).bytes, values.bytes)


def test_a_result_of_dequantizing_counts_in_the_quantized_type():
    inside, _ = sizes([*UNIT, np.array([0, 4], np.int32)])
    assert inside["xf"] == 64  # both readers are in units with its maker


def test_a_value_that_leaves_its_subgraph_counts_in_full():
    _, values = sizes([*UNIT, np.array([0, 4], np.int32)])
    whole = footprint(values, np.zeros(5, int), [0], 2)
    divided = footprint(values, [0, 0, 0, 0, 1], [0, 1], 2)
    other = footprint(values, np.zeros(5, int), [1], 2)
    assert whole.activations[0] < other.activations[1]
    assert divided.activations[0] > whole.activations[0] - 256
    assert divided.activations[1] == 256 + 256  # xf as float32, and the result of Relu


WEIGHTS = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y{more})
<float s = {{0.1}}, int8 zero = {{0}}> {{
    w = Constant <value = float[64,64] {{{data}}}> ()
    q = QuantizeLinear(w, {scale}, zero)
    d = DequantizeLinear(q, s, zero)
    {nodes}
}}"""


def test_float_weights_that_are_only_quantized_count_in_the_quantized_type():
    def bytes_of(nodes="y = MatMul(x, d)", scale="s", more=""):
        data = ",".join(["1"] * 64 * 64)
        text = WEIGHTS.format(nodes=nodes, scale=scale, more=more, data=data)
        model = hetero.Core().read_model(onnx.parser.parse_model(text))
        values = values_of(model)
        return [float(values.bytes[model.value_id(name)]) for name in "wqd"]

    assert bytes_of() == [4096, 0, 16384]
    assert bytes_of("a = MatMul(x, w) y = MatMul(a, d)") == [16384, 4096, 16384]  # the float weights are read as well
    assert bytes_of(more=", int8[64,64] q") == [16384, 4096, 16384]
    assert bytes_of("y = MatMul(x, d) m = ReduceMax<keepdims = 0>(x)", "m") == [16384, 4096, 16384]
