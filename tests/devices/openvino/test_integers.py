"""OPENVINO: integers that it truncates, rounds or saturates are rejected, or found when they arrive.

Needs openvino, as test_plugin.py does.
"""

from __future__ import annotations

import importlib.util
import io

import numpy as np
import onnx.parser
import pytest

import hetero

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="openvino is not installed: pip install 'hetero[openvino]'"
)


def model(text: str, opset: int = 18) -> hetero.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    return hetero.Core().read_model(proto)


def constant(name: str, value: int, dtype: str = "int64") -> str:
    return f"{name} = Constant <value = {dtype}[1] {{{value}}}> () "


INT64 = "(int64[3] x, int64[3] z) => (int64[n] y) { "
BOOL = "(int64[3] x, int64[3] z) => (bool[n] y) { "


@needs_openvino
@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        # constants
        (INT64 + constant("c", 2**31 - 1) + "y = Concat <axis = 0> (x, c) }", False),
        (INT64 + constant("c", 1 - 2**31) + "y = Concat <axis = 0> (x, c) }", False),
        (INT64 + constant("c", 2**31) + "y = Concat <axis = 0> (x, c) }", True),
        (INT64 + constant("c", -(2**31)) + "y = Concat <axis = 0> (x, c) }", True),
        (INT64 + constant("b", 1) + constant("e", 2**63 - 1) + "y = Slice (x, b, e) }", False),
        (INT64 + constant("c", 2**63 - 1) + constant("e", 1) + "w = Add (z, c) y = Slice (w, e, e) }", True),
        (BOOL + constant("c", 2**23) + "y = Equal (x, c) }", False),
        (BOOL + constant("c", 2**23 + 1) + "y = Equal (x, c) }", True),
        ("(float[3] x) => (int64[3] y) { s = Shape (x) y = ConstantOfShape <value = int64[1] {2147483648}> (s) }",
         True),
        # results of 64 bits
        (INT64 + "y = Add (x, z) }", False),
        (INT64 + "y = Mul (x, z) }", True),
        (INT64 + constant("c", 255) + "y = Mul (x, c) }", False),
        (INT64 + constant("c", 256) + "y = Mul (x, c) }", True),
        (INT64 + "a = Add (x, z) b = Add (a, a) c = Add (b, b) d = Add (c, c) e = Add (d, d) f = Add (e, e) "
         "y = Add (f, f) }", False),
        (INT64 + "a = Add (x, z) b = Add (a, a) c = Add (b, b) d = Add (c, c) e = Add (d, d) f = Add (e, e) "
         "h = Add (f, f) y = Add (h, h) }", True),
        (INT64 + "c = Constant <value = int64 {0}> () y = CumSum (x, c) }", False),
        ("(int64[300] x) => (int64[300] y) { c = Constant <value = int64 {0}> () y = CumSum (x, c) }", True),
        ("(bool[n] x) => (int64[n] y) { c = Constant <value = int64 {0}> () w = Cast <to = 7> (x) y = CumSum (w, c) }",
         False),
        ("(float[3] x) => (int64[3] y) { y = Cast <to = 7> (x) }", True),
        ("(float[3] x) => (int32[3] y) { y = Cast <to = 6> (x) }", False),
        ("(int32[3] x) => (int64[3] y) { w = Mul (x, x) y = Cast <to = 7> (w) }", False),
        ("(int64[2] x, int64[2] i, int64[2] u) => (int64[2] y) { y = ScatterElements (x, i, u) }", False),
        ("(int64[2] x, int64[2] i, int64[2] u) => (int64[2] y) { y = ScatterElements <reduction = \"add\"> (x, i, u) }",
         True),
        # sizes
        ("(float[n,m] x) => (int64[2] y) { s = Shape (x) t = Mul (s, s) y = Mul (t, s) }", False),
        ("(float[n,m] x, int64[2] z) => (int64[2] y) { s = Shape (x) t = Mul (s, z) y = Mul (t, s) }", True),
        ("(float[n,m] x) => (int64[2] y) { s = Shape (x) f = Cast <to = 1> (s) r = Sqrt (f) y = Cast <to = 7> (r) }",
         False),
        ("(float[n,m] x) => (int64[2] y) { " + constant("c", 2**23 + 1) + "s = Shape (x) y = Mul (s, c) }", True),
        # float32
        (BOOL + "y = Less (x, z) }", False),
        (BOOL + "w = Add (x, x) y = Less (w, z) }", True),
        ("(int32[3] x) => (bool[3] y) { w = Add (x, x) y = Equal (w, x) }", True),
        ("(int32[3] x) => (int32[3] y) { y = Add (x, x) }", False),
        ("(uint8[3,4] x, uint8[4,3] w) => (bool[3,3] y) { r = MatMulInteger (x, w) y = Cast <to = 9> (r) }", True),
        ("(int32[2,2] x) => (int32[2,2] y) { y = MatMul (x, x) }", True),
        ("(float[2,2] x) => (float[2,2] y) { y = MatMul (x, x) }", False),
        ("(int32[2] x, int32[2] z) => (int32[2] y) { y = Pow (x, z) }", True),
        ("(float[2] x, int32[2] z) => (float[2] y) { y = Pow (x, z) }", False),
        ("(float[2,3] x, int64[1] a) => (float[] y) { y = ReduceSum (x, a) }", False),
        ("(int64[2,3] x) => (int64[] y) { y = ReduceMax (x) }", False),
        ("(int64[2,3] x) => (int64[] y) { y = ReduceSum (x) }", True),
        # 8 and 16 bits
        ("(int8[3] x) => (int8[3] y) { y = Add (x, x) }", True),
        ("(uint8[3] x) => (uint8[3] y) { y = Sub (x, x) }", True),
        ("(int8[3] x) => (int8[3] y) { y = Abs (x) }", True),
        ("(int8[3] x) => (int8[3] y) { y = Max (x, x) }", False),
        # types
        ("(double[3] x) => (double[3] y) { y = Identity (x) }", True),
        ("(float[3] x) => (double[3] y) { y = Cast <to = 11> (x) }", True),
        ("(uint32[3] x) => (uint32[3] y) { y = Identity (x) }", True),
        ("(uint64[3] x) => (float[3] y) { y = Cast <to = 1> (x) }", True),
        # bodies
        ("(float[3] x) => (float[3] y) { n = Constant <value = int64 {9223372036854775807}> () y = Loop <body = b "
         "(int64 i, bool go, float[3] v) => (bool more, float[3] w) { c = Constant <value = int64 {3}> () "
         "more = Less (i, c) w = Add (v, v) }> (n, , x) }", False),
        ("(float[3] x, int64 k) => (int64 y) { n = Constant <value = int64 {3}> () y = Loop <body = b "
         "(int64 i, bool go, int64 v) => (bool go, int64 w) { w = Add (v, v) }> (n, , k) }", True),
        ("(float[3] x, double[3] d) => (double[3] y) { n = Constant <value = int64 {3}> () y = Loop <body = b "
         "(int64 i, bool go, double[3] v) => (bool go, double[3] w) { w = Neg (v) }> (n, , d) }", True),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, is_refused: bool) -> None:
    core, read = hetero.Core(), model(text)
    reasons = core.query_model(read, "OPENVINO").reasons
    assert bool(reasons) == is_refused, reasons
    if not is_refused:
        core.compile_model(read, "OPENVINO")


@needs_openvino
def test_a_model_on_openvino_alone_is_refused() -> None:
    with pytest.raises(hetero.UnsupportedModel, match="computes float64 in float32: 'x'"):
        hetero.Core().compile_model(model("(double[3] x) => (double[3] y) { y = Neg (x) }"), "OPENVINO")


@needs_openvino
@pytest.mark.parametrize("is_imported", [False, True])
@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("(int64[n] x) => (int64[n] y) { y = Identity (x) }", 2**31 - 1),
        ("(int64[n] x) => (int64[n,1] y) { o = Constant <value = int64[1] {1}> () y = Unsqueeze (x, o) }", 2**31 - 1),
        ("(int64[n] x) => (float[n] y) { y = Cast <to = 1> (x) }", 2**31 - 1),
        ("(int64[n] x) => (int64[n] y) { y = Add (x, x) }", 2**23),
        ("(int64[n] x) => (bool[n] y) { w = Neg (x) y = Less (w, x) }", 2**23),
        ("(int32[n] x) => (bool[n] y) { w = Cast <to = 7> (x) y = Less (w, w) }", 2**23),
        ("(int32[n] x) => (int32[n] y) { y = Relu (x) }", 2**23),
        ("(int32[n] x) => (int32[n] y) { y = Add (x, x) }", None),
    ],
)
def test_integers_that_arrive(text: str, limit: int | None, is_imported: bool) -> None:
    core, read = hetero.Core(), model(text)
    compiled, cpu = core.compile_model(read, "OPENVINO"), core.compile_model(read, "CPU")
    if is_imported:
        file = io.BytesIO()
        compiled.export_model(file)
        compiled = core.import_model(file.getvalue())
    dtype = read.inputs[0].dtype
    assert dtype is not None
    largest = 2**31 - 1 if limit is None else limit
    x = np.array([largest, 0, 1, -largest], dtype)
    np.testing.assert_array_equal(compiled(x)[0], cpu(x)[0])
    np.testing.assert_array_equal(compiled(x[:0])[0], cpu(x[:0])[0])
    for wrong in (largest + 1, -largest - 1):
        if limit is None or not np.iinfo(dtype).min <= wrong <= np.iinfo(dtype).max:
            continue
        with pytest.raises(hetero.InferenceError, match=f"OPENVINO: input 'x' contains {wrong}"):
            compiled(np.array([0, wrong], dtype))
    np.testing.assert_array_equal(compiled(x)[0], cpu(x)[0])


@needs_openvino
def test_sizes_from_another_device() -> None:
    """A part of a model does not know that an input is a size, so it accepts only small ones."""
    text = "(float[n,m] x) => (int64[2] y) { s = Shape (x) t = Mul (s, s) y = Mul (t, s) }"
    pins = {"op:Shape": "CPU"}
    compiled = hetero.Core().compile_model(model(text), "HETERO:OPENVINO,CPU", pins=pins)
    np.testing.assert_array_equal(compiled(np.zeros((5, 1000), np.float32))[0], [125, 10**9])
    with pytest.raises(hetero.InferenceError, match="contains 1025"):
        compiled(np.zeros((5, 1025), np.float32))


@needs_openvino
def test_nodes_that_are_refused_run_on_the_cpu() -> None:
    text = "(int64[n] x, double[n] z) => (int64[n] y, double[n] d, float[n] f) { y = Mul (x, x) d = Neg (z) " \
        "w = Cast <to = 1> (z) f = Exp (w) }"  # fmt: skip
    core, read = hetero.Core(), model(text)
    compiled = core.compile_model(read, "HETERO:OPENVINO,CPU")
    inputs = {"x": np.array([2**31, -(2**24) - 1]), "z": np.array([0.1, np.inf])}
    found = compiled(inputs)
    np.testing.assert_array_equal(found["y"], inputs["x"] ** 2)
    np.testing.assert_array_equal(found["d"], -inputs["z"])
    assert list(core.query_model(read, "OPENVINO")) == ["f"]


@needs_openvino
def test_a_malformed_tensor_is_the_reason_of_its_node() -> None:
    """The other nodes still run on the device."""
    node = "(int64[2] x) => (int64[n] y) { z = Neg (x) y = ConstantOfShape (z) }"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g {node}')
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.INT64, dims=[1], raw_data=b"123")
    proto.graph.node[1].attribute.append(onnx.helper.make_attribute("value", tensor))
    reasons = hetero.Core().query_model(hetero.Core().read_model(proto), "OPENVINO").reasons
    assert list(reasons) == ["y"]
    assert "buffer size" in reasons["y"]["OPENVINO"]
