"""OPENVINO: what it takes, types, counters, errors, exports, and HETERO over it, beside onnxruntime.

Needs openvino, which is too large for the extra `test`: pip install 'hetero[openvino]' and pytest
tests/devices/openvino/test_plugin.py. Only the first test runs without it.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.base.machine import usable_processors
from hetero.devices.openvino import backend
from hetero.devices.openvino.plugin import OpenvinoPlugin
from model_zoo import make_model

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="openvino is not installed: pip install 'hetero[openvino]'"
)
node = helper.make_node
HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "openvino":
            raise ModuleNotFoundError("No module named 'openvino'", name="openvino")
        return imported(name, *arguments, **more)

    imported = builtins.__import__
    backend.load.cache_clear()
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    core = hetero.Core()
    try:
        (info,) = [info for info in core.devices() if info.name == "OPENVINO"]
        assert "pip install 'hetero[openvino]'" in info.unavailable
        assert not [name for name in core.available_devices if name.startswith("OPENVINO")]
    finally:
        backend.load.cache_clear()


@needs_openvino
def test_a_part_of_a_model_with_several_operator_sets() -> None:
    """OpenVINO does not recognize models with several of them before the graph, if they are in memory."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17, "other": 1]>
        g (float[2] x) => (float[2] y) { h = Relu (x)  y = Neg (h) }
    """)
    compiled = hetero.Core().compile_model(model, "HETERO:CPU,OPENVINO", pins={"op:Neg": "OPENVINO"})
    np.testing.assert_array_equal(compiled(np.array([1, -2], np.float32))["y"], [-1, 0])


@needs_openvino
def test_all_plugins_share_one_core_that_stays() -> None:
    """Destroying one breaks the handling of signals; see `backend.core`."""
    first, second = OpenvinoPlugin(), OpenvinoPlugin()
    assert first._core is second._core is backend.core()


def on_onnxruntime(proto: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


@needs_openvino
def test_refusals_name_their_reason(core: hetero.Core) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="fine"),
        node("Mystery", ["a"], ["b"], name="strange"),
        node("Relu", ["b"], ["c"], name="after"),
        node("StringNormalizer", ["s"], ["t"], name="words"),
        node("MaxPool", ["x"], ["d"], name="crooked", kernel_shape=[2]),
        node("Relu", ["a"], ["y"], name="fine too"),
    ]
    proto = make_model(nodes, outputs=["c", "d", "y"])
    proto.graph.input.append(helper.make_tensor_value_info("s", TensorProto.STRING, [2]))
    proto.graph.output.append(helper.make_tensor_value_info("t", TensorProto.STRING, [2]))
    reasons = core.query_model(core.read_model(proto), "OPENVINO").reasons
    assert sorted(reasons) == ["after", "crooked", "strange", "words"]
    assert reasons["strange"]["OPENVINO"] == "OpenVINO has no conversion rule for Mystery"
    assert reasons["words"]["OPENVINO"] == "'s' has dtype object, which cannot be passed to OpenVINO"
    assert "unknown" in reasons["after"]["OPENVINO"]
    assert "Expected a 3D, 4D or 5D tensor" in reasons["crooked"]["OPENVINO"]


@needs_openvino
def test_strings_are_refused(core: hetero.Core) -> None:
    """OpenVINO copies some of them byte by byte and frees their memory twice."""
    string = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Identity", ["x"], ["y"], name="same"), node("Shape", ["y"], ["n"], name="sizes")],
        "g",
        [string("x", TensorProto.STRING, [3])],
        [string("y", TensorProto.STRING, [3]), string("n", TensorProto.INT64, [1])],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert sorted(core.query_model(model, "OPENVINO").reasons) == ["same", "sizes"]
    outputs = core.compile_model(model, "HETERO:OPENVINO,CPU")(["a", "b" * 40, ""])
    assert outputs["y"].tolist() == ["a", "b" * 40, ""]


@needs_openvino
def test_ids(core: hetero.Core, diamond: hetero.Model) -> None:
    assert core.get_property("OPENVINO", "AVAILABLE_DEVICES")[0] == "CPU"
    assert core.compile_model(diamond, "OPENVINO.CPU").get_property("EXECUTION_DEVICES") == ("OPENVINO.CPU",)
    with pytest.raises(hetero.DeviceUnavailable, match=r"no device OPENVINO\.TPU; ids here: CPU"):
        core.compile_model(diamond, "OPENVINO.TPU")


@needs_openvino
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int8", "uint8", "bool"])
def test_types(core: hetero.Core, dtype: str) -> None:
    """Through, by an Identity that OpenVINO removes, and copied by a Concat; held results stay."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Identity", ["x"], ["y"]), node("Concat", ["x", "x"], ["z"], axis=0)],
        "types",
        [info("x", number, ["n"])],
        [info("y", number, ["n"]), info("z", number, ["m"])],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    request = core.compile_model(model, "OPENVINO").create_infer_request()
    held = []
    for size in (3, 1, 4):
        x = (np.arange(size) % 2).astype(dtype)
        held.append((x.copy(), request.infer(x)))
    for x, out in held:
        assert out["y"].dtype == x.dtype
        np.testing.assert_array_equal(out["y"], x)
        np.testing.assert_array_equal(out["z"], np.concatenate([x, x]))


@needs_openvino
def test_inputs_that_are_not_read(core: hetero.Core) -> None:
    proto = make_model([node("Relu", ["x"], ["y"])], inputs={"spare": [2], "x": [3]})
    compiled = core.compile_model(core.read_model(proto), "OPENVINO")
    x = np.float32([-1, 0, 1])
    np.testing.assert_array_equal(compiled({"spare": np.zeros(2, np.float32), "x": x})["y"], [0, 0, 1])


@needs_openvino
def test_inputs_that_openvino_renames(core: hetero.Core) -> None:
    """One goes by the name of the result, the other is gone."""
    proto = make_model([node("Dropout", ["x", "ratio"], ["y"])], inputs={"x": [2, 3], "ratio": []})
    compiled = core.compile_model(core.read_model(proto), "OPENVINO")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(compiled({"ratio": np.float32(0.5), "x": x})["y"], x)


@needs_openvino
@pytest.mark.parametrize("is_imported", [False, True])
@pytest.mark.parametrize("rows", ["N", "3"])
def test_results_that_are_inputs(core: hetero.Core, rows: str, is_imported: bool) -> None:
    """OpenVINO removes the Cast, and other nodes that read the input then get elements of earlier runs (2026.4)."""
    model = core.read_model(
        onnx.parser.parse_model(
            f"{HEAD} g (float[{rows},4] x, float[{rows},4] z) => (float[{rows},4] a, float[{rows},4] b, float[] c) {{\n"
            "a = Cast <to = 1> (x)  b = Neg (x)  c = Concat <axis = 0> (x, z) }"
        )
    )
    compiled = core.compile_model(model, "OPENVINO")
    if is_imported:
        file = io.BytesIO()
        compiled.export_model(file)
        compiled = core.import_model(file.getvalue())
    request = compiled.create_infer_request()
    held = []
    for number, size in enumerate([3, 3, 3, 3, 1, 3, 3, 3] if rows == "N" else [3] * 4):
        x = np.full((size, 4), number + 1, np.float32)
        z = x + 100
        expected = [x.copy(), -x, np.concatenate([x, z])]
        results = list(request.infer([x, z]).values())
        x[:] = z[:] = 99
        held.append((results, expected))
    for results, expected in held:
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


BODY = "<body = b (int64 i, bool go, float[2] c) => (bool more, float[2] d, float[2] row) { more = Identity (go) " \
    "d = Add (c, c) row = Identity (d) }>"  # fmt: skip


@needs_openvino
@pytest.mark.parametrize(
    ("text", "is_sure"),
    [
        (f"(int64 n, float[2] x) => (float[2] y, float[k,2] z) {{ y, z = Loop {BODY} (n, , x) }}", False),
        (f"(bool n, float[2] x) => (float[2] y, float[k,2] z) {{ k = Constant <value = int64 {{2}}> () "
         f"y, z = Loop {BODY} (k, n, x) }}", False),
        (f"(float[2] x) => (float[2] y, float[2,2] z) {{ k = Constant <value = int64 {{2}}> () "
         f"y, z = Loop {BODY} (k, , x) }}", True),
        ("(bool n, float[m] x) => (float[] y) { y = If <then_branch = t () => (float[] a) { a = Unique (x) }, "
         "else_branch = e () => (float[] b) { b = Neg (x) }> (n) }", False),
        ("(float[m] x) => (float[] y) { y = Unique (x) }", False),
        ("(float[3] x) => (float[] y) { y = Unique (x) }", True),
    ],
)  # fmt: skip
def test_results_that_may_be_of_an_earlier_run_are_refused(core: hetero.Core, text: str, is_sure: bool) -> None:
    """OpenVINO 2026.4 does not write results of Loops without iterations, or of Unique without elements."""
    model = core.read_model(onnx.parser.parse_model(f"{HEAD} g {text}"))
    supported = core.query_model(model, "OPENVINO")
    assert ("an earlier run" not in str(supported.reasons)) == is_sure
    assert (len(supported) == len(model.nodes)) == is_sure
    if not is_sure:
        with pytest.raises(hetero.UnsupportedModel, match="an earlier run"):
            core.compile_model(model, "OPENVINO")


SCAN = "(float[3] s, float[2,3] x) => (float[3] last, float[2,3] rows) { last, rows = Scan <num_scan_inputs = 1, " \
    "body = b (float[3] a, float[3] r) => "  # fmt: skip
SWAP = "(float[3] s, float[2,3] x) => (float[3] last, float[3] other, float[2,3] rows) { m = Neg (s) " \
    "last, other, rows = Scan <num_scan_inputs = 1, body = b (float[3] a, float[3] c, float[3] r) => "  # fmt: skip
LOOP = "(float[3] s, float[2,3] x) => (float[3] last, float[3] other) { n = Constant <value = int64 {3}> () " \
    "m = Neg (s) last, other = Loop <body = b (int64 i, bool go, float[3] a, float[3] c) => "  # fmt: skip
WHOLE = "zero = Constant <value = int64[1] {0}> () end = Constant <value = int64[1] {9}> () "


@needs_openvino
@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        (SWAP + "(float[3] c, float[3] a, float[3] d) { d = Add (a, r) }> (s, m, x) }", False),
        (SWAP + "(float[3] d, float[3] e, float[3] f) { f = Add (a, r) d = Max (c) e = Cast <to = 1> (a) }> "
         "(s, m, x) }", False),
        (SWAP + "(float[3] d, float[3] e, float[3] f) { f = Add (a, r) d = Relu (c) e = Neg (a) }> (s, m, x) }", True),
        (SCAN + "(float[3] d, float[3] r) { d = Add (a, r) }> (s, x) }", False),
        (SCAN + "(float[3] d, float[3] e) { d = Add (a, r) e = Dropout (r) }> (s, x) }", False),
        (SCAN + "(float[3] e, float[3] d) { d = Add (a, r) e = Identity (r) }> (s, x) }", False),
        (SCAN + f"(float[3] e, float[3] d) {{ {WHOLE} d = Add (a, r) e = Slice (r, zero, end) }}> (s, x) }}", False),
        (SCAN + "(float[3] e, float[3] d) { t = Constant <value = bool {1}> () d = Add (a, r) e = Where (t, r, r) }> "
         "(s, x) }", False),
        (SCAN + "(float[3] e, float[3] d) { d = Add (a, r) e = Relu (r) }> (s, x) }", True),
        (SCAN + "(float[3] a, float[3] d) { d = Add (a, r) }> (s, x) }", True),
        (SCAN + "(float[3] d, float[3] a) { d = Add (a, r) }> (s, x) }", True),
        (SCAN + "(float[3] k, float[3] k) <float[3] k = {1, 2, 3}> { d = Add (a, r) }> (s, x) }", False),
        (LOOP + "(bool go, float[3] c, float[3] a) { d = Add (a, c) }> (n, , s, m) }", False),
        (LOOP + "(bool go, float[3] a, float[3] a) { d = Add (a, c) }> (n, , s, m) }", False),
        (LOOP + "(bool go, float[3] a, float[3] d) { d = Add (a, c) }> (n, , s, m) }", True),
        ("(bool t, float[2,3] x) => (float[2,3] rows) { rows = If (t) <then_branch = p () => (float[2,3] y) { y = Scan "
         "<num_scan_inputs = 1, body = b (float[3] r) => (float[3] r) { d = Neg (r) }> (x) }, "
         "else_branch = e () => (float[2,3] z) { z = Neg (x) }> }", False),
    ],
)  # fmt: skip
def test_bodies_that_pass_values_on(core: hetero.Core, text: str, is_right: bool) -> None:
    """OpenVINO 2026.4 exchanges states wrongly, adds an axis to scanned rows that are returned as they are, and crashes
    if a body returns a value twice."""
    model = core.read_model(onnx.parser.parse_model(f"{HEAD} g {text}"))
    assert (not core.query_model(model, "OPENVINO").reasons) == is_right
    values = {"t": np.array(True), "s": np.float32([9, -8, 7]), "x": np.float32([[1, 2, 3], [4, 5, 6]])}
    inputs = {port.name: values[port.name] for port in model.inputs}
    if not is_right:
        with pytest.raises(hetero.UnsupportedModel, match="OpenVINO may"):
            core.compile_model(model, "OPENVINO")
    expected = core.compile_model(model, "TEMPLATE")(inputs)
    for _ in range(2):
        found = core.compile_model(model, "OPENVINO" if is_right else "HETERO:OPENVINO,CPU")(inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, strict=True)


@needs_openvino
@pytest.mark.parametrize(
    ("op_type", "attributes", "is_refused"),
    [
        ("MaxPool", {"kernel_shape": [2], "strides": [3]}, True),
        ("MaxPool", {"kernel_shape": [2], "strides": [2], "pads": [1, 1]}, True),
        ("MaxPool", {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}, False),
        ("MaxPool", {"kernel_shape": [2], "strides": [3], "dilations": [2]}, False),
        ("AveragePool", {"kernel_shape": [3], "strides": [3], "pads": [1, 0], "count_include_pad": 1}, True),
        ("AveragePool", {"kernel_shape": [2], "strides": [3]}, False),
        ("LpPool", {"kernel_shape": [2], "strides": [2]}, True),
    ],
)
def test_pools_that_round_up(core: hetero.Core, op_type: str, attributes: dict[str, Any], is_refused: bool) -> None:
    """OpenVINO 2026.4 computes some of them in another way."""
    pool = node(op_type, ["x"], ["y"], ceil_mode=1, **attributes)
    for size in range(5, 11):
        proto = make_model([pool], inputs={"x": [1, 2, size]}, opset=18)
        assert (not core.query_model(proto, "OPENVINO")) == is_refused
        if is_refused:
            with pytest.raises(hetero.UnsupportedModel):
                core.compile_model(proto, "OPENVINO")
        else:
            x = np.arange(-7, 2 * size - 7, dtype=np.float32).reshape(1, 2, size)
            found = core.compile_model(proto, "OPENVINO")(x)[0]
            np.testing.assert_allclose(found, on_onnxruntime(proto, {"x": x})[0], 1e-5)


@needs_openvino
@pytest.mark.parametrize(
    ("text", "opset", "is_refused"),
    [
        ("(float[2,3] x) => (float[] y) { y = ReduceLogSumExp <axes = [1]> (x) }", 13, True),
        ("(float[2,3] x) => (float[] y) { y = ReduceL1 <axes = [1], keepdims = 0> (x) }", 17, True),
        ("(float[2,3] x) => (float[] y) { y = ReduceLogSum <axes = [1]> (x) }", 12, False),
        ("(float[2,3] x) => (float[] y) { y = ReduceL2 <axes = [1]> (x) }", 17, False),
        ("(float[2,3] x) => (float[] y) { y = ReduceL1 (x) }", 17, False),
        ("(float[1] x) => (float[] y) <float[0] e = {}> { y = Mul (x, e) }", 17, True),
        ("(float[1] x) => (float[] y) <int64[0] e = {}> { y = Gather (x, e) }", 17, True),
        ("(float[1] x) => (float[] y) <int64[0] e = {}> { y = Reshape (x, e) }", 17, False),
        ("(float[2,3] x) => (float[] y) <int64[0] e = {}> { y = ReduceSum (x, e) }", 17, False),
        ("(float[2,3] x) => (float[] y) <float[0,3] e = {}> { y = Concat <axis = 0> (x, e) }", 17, False),
        ("(float[1,1,4,4] x) => (float[] y, int64[] i) "
         "{ y, i = MaxPool <kernel_shape = [2,2], storage_order = 1> (x) }", 17, True),
    ],
)  # fmt: skip
def test_nodes_that_are_converted_otherwise(core: hetero.Core, text: str, opset: int, is_refused: bool) -> None:
    """OpenVINO 2026.4 accepts all of them."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    assert (not core.query_model(proto, "OPENVINO")) == is_refused
    if is_refused:
        with pytest.raises(hetero.UnsupportedModel, match="OpenVINO"):
            core.compile_model(proto, "OPENVINO")
        return
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    found = core.compile_model(proto, "OPENVINO")(x)[0]
    np.testing.assert_allclose(found, on_onnxruntime(proto, {"x": x})[0], 1e-5, strict=True)


@needs_openvino
def test_counters_are_those_of_the_original_nodes(core: hetero.Core) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "b": np.ones(8, np.float32)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], name=""),
        node("Softmax", ["r"], ["y"], name="softmax", axis=1),
    ]
    proto = make_model(nodes, {"x": [1, 3, 32, 32]}, weights=weights)
    request = core.compile_model(core.read_model(proto), "OPENVINO", {"PERF_COUNT": True}).create_infer_request()
    request.infer(rng.standard_normal((1, 3, 32, 32)).astype(np.float32))
    rows = {row.node: row for row in request.profiling_info}
    assert [(row.node, row.layer_type) for row in rows.values()] == [
        ("conv", "Conv"),
        ("r", "Relu"),
        ("softmax", "Softmax"),
    ]
    assert rows["softmax"].status == "EXECUTED"
    assert max(rows["conv"].real_us, rows["r"].real_us) > 0


@needs_openvino
def test_properties_reach_openvino(core: hetero.Core, diamond: hetero.Model) -> None:
    config = {"NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 2, "OPENVINO_CONFIG": {"PERFORMANCE_HINT": "THROUGHPUT"}}
    compiled = core.compile_model(diamond, "OPENVINO", config)
    assert compiled.compiled.get_property("NUM_STREAMS") == 2  # type: ignore[attr-defined]
    assert str(compiled.compiled.get_property("PERFORMANCE_HINT")).endswith("THROUGHPUT")  # type: ignore[attr-defined]


@needs_openvino
def test_performance_hint(core: hetero.Core, diamond: hetero.Model) -> None:
    """For THROUGHPUT, OpenVINO chooses the number of streams."""
    hint = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": 1}
    limited = {"PERFORMANCE_HINT": "THROUGHPUT", "PERFORMANCE_HINT_NUM_REQUESTS": 1}
    for config, streams in ({}, 1), ({**hint, "NUM_STREAMS": 2}, 2), (hint, 1), (limited, 1):
        compiled = core.compile_model(diamond, "OPENVINO", config)
        for name in ("NUM_STREAMS", "OPTIMAL_NUMBER_OF_INFER_REQUESTS"):
            assert compiled.get_property(name) == streams
    compiled = core.compile_model(diamond, "OPENVINO", {"PERFORMANCE_HINT": "THROUGHPUT"})
    streams = compiled.get_property("NUM_STREAMS")
    assert 1 <= streams <= usable_processors()
    assert compiled.compiled.get_property("NUM_STREAMS") == streams  # type: ignore[attr-defined]
    x = np.float32([[-1, 0, 1], [2, 3, 4]])
    expected = core.compile_model(diamond, "CPU")(x)[0]
    for outputs in compiled.map([x] * 8, in_flight=streams):
        np.testing.assert_allclose(outputs[0], expected, rtol=1e-6)


@needs_openvino
def test_exported_models_are_its_own_blob(core: hetero.Core, diamond: hetero.Model) -> None:
    x = np.float32([[-1, 0, 1], [2, 3, 4]])
    for device in ("OPENVINO", "HETERO:OPENVINO,CPU"):
        pins = {"four": "CPU"} if device.startswith("HETERO") else None
        compiled = core.compile_model(diamond, device, pins=pins)
        stream = io.BytesIO()
        compiled.export_model(stream)
        again = core.import_model(io.BytesIO(stream.getvalue()), device)
        np.testing.assert_array_equal(again(x)[0], compiled(x)[0])


CONTROL_FLOW = {
    "If": """
        g (float[3] x, bool c) => (float[3] y) <float[3] w = {1, 2, 3}> {
            a = Exp (x)
            t = If (c) <then_branch = t () => (float[3] p) { q = Add (x, w)  p = Mul (q, a) },
                        else_branch = e () => (float[3] p) { p = Sub (w, a) }>
            y = Neg (t)
        }""",
    "Loop": """
        g (float[3] x, bool c) => (float[3] y) {
            a = Exp (x)
            n = Constant <value = int64 {4}> ()
            t = Loop (n, , x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] u)
                { more = Identity (go)  u = Add (v, a) }>
            y = Where (c, t, a)
        }""",
    "Scan": """
        g (float[3] x, bool c) => (float[3] y) {
            a = Exp (x)
            one = Constant <value = int64[1] {1}> ()
            rows = Unsqueeze (x, one)
            zero = Constant <value = float[1] {0.0}> ()
            last, sums = Scan (zero, rows) <num_scan_inputs = 1, body = b (float[1] v, float[1] row)
                => (float[1] u, float[1] seen) { u = Add (v, row)  seen = Identity (u) }>
            flat = Squeeze (sums, one)
            y = Where (c, flat, a)
        }""",
}


@needs_openvino
@pytest.mark.parametrize("device", ["HETERO:OPENVINO,CPU", "HETERO:CPU,OPENVINO"])
@pytest.mark.parametrize("case", CONTROL_FLOW)
def test_control_flow(core: hetero.Core, case: str, device: str) -> None:
    """Whole and with every second node on the other device."""
    proto = onnx.parser.parse_model(HEAD + CONTROL_FLOW[case])
    model = core.read_model(proto)
    _, second = device.partition(":")[2].split(",")
    taken = core.query_model(model, second)
    for pins in (None, dict.fromkeys(list(taken)[::2], second)):
        compiled = core.compile_model(model, device, pins=pins)
        for c in (True, False):
            feed = {"x": np.float32([-1, 0.5, 2]), "c": np.array(c)}
            np.testing.assert_allclose(compiled(feed)[0], on_onnxruntime(proto, feed)[0], rtol=1e-5)


@needs_openvino
def test_real_model(
    core: hetero.Core, real_model: Callable[[str], tuple[onnx.ModelProto, dict[str, np.ndarray]]]
) -> None:
    proto, inputs = real_model("minilm")
    compiled = core.compile_model(core.read_model(proto), "HETERO:OPENVINO,CPU")
    assert compiled.get_property("EXECUTION_DEVICES") == ("OPENVINO",)
    for found, wanted in zip(compiled(inputs).arrays(), on_onnxruntime(proto, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@needs_openvino
def test_a_run_can_be_stopped(core: hetero.Core) -> None:
    nodes = [node("MatMul", [f"v{i}", "v0"], [f"v{i + 1}"], f"n{i}") for i in range(1000)]
    model = core.read_model(make_model(nodes, {"v0": [700, 700]}, ["v1000"]))
    runner = core.compile_model(model, "OPENVINO", {"INFERENCE_NUM_THREADS": 1}).create_runner()
    caught: list[BaseException] = []

    def run() -> None:
        try:
            runner.run([np.zeros((700, 700), np.float32)])
        except hetero.HeteroError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    time.sleep(0.5)
    runner.cancellation.request()  # type: ignore[attr-defined]
    thread.join(20)
    assert not thread.is_alive()
    assert type(caught[0]).__name__ == "Cancelled"


@needs_openvino
def test_performance_mode_leaves_the_type_of_weights_to_openvino() -> None:
    core = hetero.Core()
    model = core.read_model(make_model([node("Relu", ["x"], ["y"])]))

    def told(**config: str) -> str:
        """What OpenVINO itself says it was told."""
        compiled: Any = core.compile_model(model, "OPENVINO", config)
        hint = compiled.compiled.get_property("EXECUTION_MODE_HINT")
        assert hint.name == config.get("EXECUTION_MODE_HINT", "ACCURACY")
        return str(compiled.get_property("INFERENCE_PRECISION_HINT"))

    assert told() == "f32"
    assert told(EXECUTION_MODE_HINT="PERFORMANCE") == "dynamic"
    assert told(EXECUTION_MODE_HINT="PERFORMANCE", INFERENCE_PRECISION_HINT="f32") == "f32"
