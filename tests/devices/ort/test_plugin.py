"""ORT: what it takes, what it runs, counters, errors, and HETERO over it, beside onnxruntime itself."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.base.machine import usable_processors
from hetero.devices.ort import backend, support
from hetero.devices.ort.session import SessionSource
from hetero.model import inference
from model_zoo import make_model
from posing import Posing
from template_runs import difference, node_tests, telling, value_of

onnxruntime = pytest.importorskip("onnxruntime")

node = helper.make_node


def run_directly(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def typed_model(nodes: list[onnx.NodeProto], inputs: dict[str, int], outputs: dict[str, int]) -> onnx.ModelProto:
    def infos(types: dict[str, int]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, type_, ["n"]) for name, type_ in types.items()]

    graph = helper.make_graph(nodes, "typed", infos(inputs), infos(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("shape", "axis", "is_right"),
    [
        ([4], 0, True),
        ([4, 1], 0, True),
        ([2, 3], 1, True),
        ([2, 3], -1, True),
        ([4, 2], 0, False),
        ([2, 2, 2], 1, False),
        ([4, "n"], 0, False),
        ([2, 2, 2], -2, False),
    ],
)
def test_slices_of_strings_are_gathered_or_refused(
    core: hetero.Core, shape: list[int | str], axis: int, is_right: bool
) -> None:
    """onnxruntime 1.32 copies the first string of each slice only."""
    ports = [
        helper.make_tensor_value_info(name, TensorProto.STRING, dims) for name, dims in (("x", shape), ("y", None))
    ]
    index = numpy_helper.from_array(np.array([1, 0, 1]), "index")
    gather = node("Gather", ["x", "index"], ["y"], axis=axis)
    graph = helper.make_graph([gather], "strings", ports[:1], ports[1:], [index])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    sizes = [size if isinstance(size, int) else 3 for size in shape]
    x = np.arange(np.prod(sizes)).astype(str).astype(object).reshape(sizes)
    expected = np.take(x, [1, 0, 1], axis)
    compiled = core.compile_model(model, "HETERO:ORT,CPU")
    np.testing.assert_array_equal(compiled(x)[0], expected)
    if is_right:
        assert compiled.get_property("EXECUTION_DEVICES") == ("ORT",)
    elif not np.array_equal(run_directly(model, {"x": x})[0], expected):
        assert "first string" in core.query_model(model, "ORT").reasons["y"]["ORT"]
        with pytest.raises(hetero.UnsupportedModel, match="first string"):
            core.compile_model(model, "ORT")


def test_bernoulli_draws_with_the_given_probability_or_is_refused(core: hetero.Core) -> None:
    """onnxruntime 1.32 draws 1 with the probability of 0."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [500]) for name in "xy"]
    graph = helper.make_graph([node("Bernoulli", ["x"], ["y"], seed=1.0)], "draws", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.full(500, 0.1, np.float32)
    assert core.compile_model(model, "HETERO:ORT,CPU")(x)[0].mean() < 0.3
    if run_directly(model, {"x": x})[0].mean() > 0.5:
        with pytest.raises(hetero.UnsupportedModel, match="probability of 0"):
            core.compile_model(model, "ORT")
        branch = helper.make_graph(graph.node, "branch", [], [helper.make_empty_tensor_value_info("y")])
        choice = helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)
        ports = [*ports[:1], helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
        graph = helper.make_graph([choice], "g", ports, [helper.make_tensor_value_info("z", TensorProto.FLOAT, [500])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        assert not core.query_model(model, "ORT")


@pytest.mark.parametrize(
    ("x", "scale", "bias", "axis", "is_refused"),
    [
        (["b", "s", 384], [384], [384], -1, False),
        (["b", "s", "h"], [384], [384], -1, False),
        (None, [5], None, -1, False),
        (["b", 4, 5], [4, 5], [4, 5], 1, False),
        (["b", 4, 5], [4, 5], [4, 5], -2, False),
        ([2, 3, 1], [1], [1], -1, False),
        ([2, 0], [0], None, -1, False),
        (["b", "s", 384], [1], None, -1, True),
        (["b", "s", "h"], ["h"], None, -1, True),
        (["b", "s", 384], None, None, -1, True),
        ([3, 8], [3, 8], None, 1, True),
        ([3, 8], [8], [1, 8], 1, True),
        ([3, 1, 12], [1, 1, 1], None, 0, True),
        (["b", "n", 5], [4, 5], [1, 5], -2, True),
        ([2, 3], [3], [], -1, True),
        (None, [4, 5], None, 1, True),
    ],
)
def test_cuda_gets_no_scale_to_broadcast(
    core: hetero.Core, x: Any, scale: Any, bias: Any, axis: int, is_refused: bool
) -> None:
    """CUDA's LayerNormalization of onnxruntime 1.31 reads beyond the end of such a scale."""
    ports = {"x": x, "scale": scale, "bias": bias}
    if bias is None:
        del ports["bias"]
    graph = helper.make_graph(
        [node("LayerNormalization", list(ports), ["y"], axis=axis)],
        "normalized",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = core.read_model(proto)
    assert list(support.wrong_results(model, "CUDAExecutionProvider")) == [0] * is_refused
    assert not support.wrong_results(model, "CPUExecutionProvider")


SCAN = "(float[3] s, float[2,3] x) => (float[3] last, float[2,3] rows) { last, rows = Scan <num_scan_inputs = 1, " \
    "body = b (float[3] a, float[3] r) => "  # fmt: skip
SWAP = "(float[3] s, float[2,3] x) => (float[3] last, float[3] other, float[2,3] rows) { m = Neg (s) " \
    "last, other, rows = Scan <num_scan_inputs = 1, body = b (float[3] a, float[3] c, float[3] r) => "  # fmt: skip
LOOP = "(float[3] s, float[2,3] x) => (float[3] last, int64[] rows) { n = Constant <value = int64 {3}> () " \
    "t = Constant <value = bool {1}> () last, rows = Loop <body = b (int64 i, bool go, float[3] a"  # fmt: skip
BRANCH = "(float[3] s, float[2,3] x) => (float[3] p, float[3] q) { m = ReduceMax <keepdims = 0> (x) " \
    "go = Cast <to = 9> (m) p, q = If (go) <then_branch = t () => "  # fmt: skip
ELSE = "else_branch = e () => (float[3] e, float[3] f) { e = Neg (s) f = Relu (s) }"
FUNCTION = '<ir_version: 8, opset_import: ["": 17, "f": 1]> g (float[3] s, float[2,3] x) => (float[2,3] rows) ' \
    '{ rows = f.same (x) } <domain: "f", opset_import: ["": 17]> same (x) => (rows) '  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        (SCAN + "(float[3] d, float[3] r) { d = Add (a, r) }> (s, x) }", False),
        (SCAN + "(float[3] d, float[3] a) { d = Add (a, r) }> (s, x) }", False),
        (SCAN + "(float[3] a, float[3] d) { d = Add (a, r) }> (s, x) }", False),
        (SCAN + "(float[3] r, float[3] d) { d = Add (a, r) }> (s, x) }", False),
        (SCAN + "(float[3] d, float[3] d) { d = Add (a, r) }> (s, x) }", False),
        (SCAN + "(float[3] d, float[3] e) { d = Add (a, r) e = Identity (r) }> (s, x) }", True),
        (SCAN + "(float[3] d, float[3] k) <float[3] k = {1, 2, 3}> { d = Add (a, r) }> (s, x) }", True),
        (SWAP + "(float[3] c, float[3] a, float[3] d) { d = Add (a, r) }> (s, m, x) }", False),
        (SWAP + "(float[3] p, float[3] q, float[3] d) { d = Add (a, r) p = Identity (c) q = Identity (a) }> "
         "(s, m, x) }", True),
        (LOOP + ") => (bool go, float[3] d, int64 i) { d = Neg (a) }> (n, t, s) }", False),
        (LOOP + ") => (bool go, float[3] d, int64 j) { d = Neg (a) j = Identity (i) }> (n, t, s) }", True),
        (LOOP + ", int64 j) => (bool go, float[3] d, int64 i) { d = Neg (a) }> (n, t, s, n) }", False),
        (LOOP + ", int64 j) => (bool go, float[3] a, int64 j) { d = Neg (a) }> (n, t, s, n) }", True),
        (BRANCH + f"(float[3] c, float[3] c) {{ c = Abs (s) }}, {ELSE}> }}", False),
        (BRANCH + f"(float[3] c, float[3] d) {{ c = Abs (s) d = Abs (s) }}, {ELSE}> }}", True),
        (FUNCTION + "{ rows = Scan <num_scan_inputs = 1, body = b (float[3] r) => (float[3] r) { d = Neg (r) }> (x) }",
         False),
        (FUNCTION + "{ rows = Scan <num_scan_inputs = 1, body = b (float[3] r) => (float[3] d) { d = Neg (r) }> (x) }",
         True),
    ],
)  # fmt: skip
def test_control_flow_whose_results_it_does_not_write(core: hetero.Core, text: str, is_right: bool) -> None:
    """onnxruntime 1.32 returns uninitialized memory, or the number of iterations, for some results of bodies that no
    node computes, or that are listed twice."""
    if not text.startswith("<"):
        text = f'<ir_version: 8, opset_import: ["": 17]> g {text}'
    model = core.read_model(onnx.parser.parse_model(text))
    assert (not support.wrong_results(model, "CPUExecutionProvider")) == is_right
    inputs = {"s": np.float32([9, -8, 7]), "x": np.float32([[1, 2, 3], [4, 5, 6]])}
    expected = core.compile_model(model, "TEMPLATE")(inputs)
    for device in ("ORT", "HETERO:ORT,CPU"):
        if device == "ORT" and not is_right:
            with pytest.raises(hetero.UnsupportedModel, match="onnxruntime returns"):
                core.compile_model(model, device)
            continue
        found = core.compile_model(model, device)(inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, strict=True)


# -- what it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_what_it_takes_compiles_and_is_right(core: hetero.Core, every: bool) -> None:
    """ONNX's node tests: those it takes compile and give what the suite, or else onnxruntime itself, gives; those it
    refuses do not compile."""
    plugin = core._registry.plugin("ORT")
    wrong, taken = {}, 0
    for case in node_tests() if every else telling(node_tests()):
        try:
            model = core.read_model(case.model)
        except hetero.ModelError:
            continue
        refused = plugin.query_model(model, {}).reasons
        if refused:
            with pytest.raises(hetero.UnsupportedModel):
                plugin.compile_model(model, {})
            continue
        taken += 1
        compiled = plugin.compile_model(model, {})
        for given, wanted in case.data_sets:
            inputs = dict(zip([port.name for port in compiled.inputs], map(value_of, given), strict=False))
            try:
                outputs = compiled(inputs).arrays()
            except hetero.InferenceError as error:
                if not re.match("ORT: inference failed at node '.+'", str(error)):
                    wrong[case.name] = str(error)
                with pytest.raises(Exception, match=r"ONNXRuntimeError"):
                    run_directly(case.model, inputs)
                continue
            for found, want in zip(outputs, wanted, strict=True):
                if difference(found, want, max(case.rtol, 1e-2), max(case.atol, 1e-5)):
                    if "dropout" in case.name:  # random
                        continue
                    own = run_directly(case.model, inputs)[outputs.index(found) if isinstance(found, list) else 0]
                    if difference(found, own, 0, 0) and len(outputs) == 1:
                        wrong[case.name] = "not what onnxruntime gives"
    assert not wrong
    assert taken > (1000 if every else 400)


def test_refusals_name_their_reason(core: hetero.Core) -> None:
    model = core.read_model(
        make_model(
            [
                node("Relu", ["x"], ["a"], name="fine"),
                node("Mystery", ["a"], ["b"], name="strange"),
                node("Relu", ["b"], ["c"], name="after"),
                node("MaxPool", ["x"], ["d"], name="crooked", kernel_shape=[2], dilations=[0]),
                node("Relu", ["a"], ["y"], name="fine too"),
            ],
            outputs=["c", "d", "y"],
        )
    )
    reasons = core.query_model(model, "ORT").reasons
    if "crooked" not in reasons:
        pytest.skip("this onnxruntime takes it")
    assert sorted(reasons) == ["after", "crooked", "strange"]
    assert "No Op registered for Mystery" in reasons["strange"]["ORT"]
    assert "type of its input 'b' is not declared" in reasons["after"]["ORT"]
    assert reasons["crooked"]["ORT"].endswith("All dilation values must be positive, got: 0")
    assert "/" not in reasons["crooked"]["ORT"]


def test_refusals_are_by_type(core: hetero.Core) -> None:
    nodes = [node("Max", ["x", "x"], ["y"], name="max"), node("Identity", ["x"], ["z"], name="same")]
    for type_, refused in ((TensorProto.FLOAT, []), (TensorProto.INT16, ["max"])):
        model = core.read_model(typed_model(nodes, {"x": type_}, {"y": type_, "z": type_}))
        assert sorted(core.query_model(model, "ORT").reasons) == refused


def test_many_refusals_are_found_at_once(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes of which every third is refused: some dozens of sessions the first time, one after that."""
    nodes = []
    for i in range(1000):
        op = ("Relu", "Mystery", "Max")[i % 3]
        inputs = ["b", "b"] if op == "Max" else ["x"]
        nodes.append(node(op, inputs, [f"y{i}"], name=f"n{i}"))
    graph = helper.make_graph(
        nodes,
        "many",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("b", TensorProto.INT16, [3]),
        ],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(1000)],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    sessions = []
    monkeypatch.setattr(support, "_known_reasons", {})
    made = support._session_error
    monkeypatch.setattr(support, "_session_error", lambda *given: sessions.append(1) or made(*given))
    refused = core.query_model(model, "ORT").reasons
    assert len(refused) == 666
    assert len(sessions) < 40
    sessions.clear()
    assert core.query_model(model, "ORT").reasons == refused
    assert len(sessions) == 1


def test_a_version_of_onnx_that_is_too_new(core: hetero.Core) -> None:
    proto = make_model([node("Relu", ["x"], ["y"], name="relu")])
    proto.ir_version = onnx.IR_VERSION
    try:
        run_directly(proto, {"x": np.zeros((2, 3), np.float32)})
        pytest.skip("this onnxruntime knows all that this onnx knows")
    except Exception:
        pass
    (reason,) = core.query_model(core.read_model(proto), "ORT").reasons["relu"].values()
    assert "IR version" in reason


def test_functions_and_custom_domains(core: hetero.Core) -> None:
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    twice = helper.make_function("mine", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], opset[:1])
    proto = make_model([node("Twice", ["x"], ["y"], name="call", domain="mine")])
    del proto.opset_import[:]
    proto.opset_import.extend(opset)
    proto.functions.append(twice)
    model = core.read_model(proto)
    assert core.query_model(model, "ORT") == {"call": "ORT"}
    np.testing.assert_array_equal(core.compile_model(model, "ORT")(np.ones((2, 3), np.float32))[0], 2)
    contrib = make_model(
        [node("BiasGelu", ["x", "w"], ["y"], domain="com.microsoft")], weights={"w": np.float32([1, 2, 3])}
    )
    contrib.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert not core.query_model(core.read_model(contrib), "ORT").reasons


def test_another_execution_provider_is_asked(core: hetero.Core, diamond: hetero.Model) -> None:
    """The one for Azure, which comes with every build, takes no operator of ONNX."""
    if "AZURE" not in core.get_property("ORT", "AVAILABLE_DEVICES"):
        pytest.skip("this build of onnxruntime has the provider for the CPU alone")
    if not hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info"):
        with pytest.raises(hetero.DeviceUnavailable, match="requires a newer onnxruntime"):
            core.query_model(diamond, "ORT.AZURE")
        return
    reasons = core.query_model(diamond, "ORT.AZURE").reasons
    assert len(reasons) == diamond.num_nodes
    assert "AzureExecutionProvider leaves Relu to another execution provider" in reasons["one"]["ORT.AZURE"]
    with pytest.raises(hetero.UnsupportedModel, match=r"ORT\.AZURE.*leaves Relu to another execution provider"):
        core.compile_model(diamond, "ORT.AZURE")
    plan = core.plan(diamond, "HETERO:ORT.AZURE,ORT.CPU")
    assert [part.device for part in plan.subgraphs] == ["ORT.CPU"]


def test_a_provider_is_asked_about_what_the_cpu_lacks(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    posing = Posing()
    monkeypatch.setattr(backend, "load", lambda: posing)
    monkeypatch.setattr(support, "_known_reasons", {})
    nodes = [
        node("Max", ["x", "x"], ["a"], name="max"),
        node("Neg", ["a"], ["b"], name="neg"),
        node("Abs", ["b"], ["y"], name="abs"),
    ]
    model = core.read_model(typed_model(nodes, {"x": TensorProto.INT16}, {"y": TensorProto.INT16}))
    assert (
        set(core.query_model(model, "ORT").reasons) == {"max", "neg"} or "max" in core.query_model(model, "ORT").reasons
    )
    for _ in range(2):
        reasons = core.query_model(model, "ORT.POSING").reasons
        assert set(reasons) == {"abs"}
        assert reasons["abs"]["ORT.POSING"] == "PosingExecutionProvider leaves Abs to another execution provider"
        assert "max" in core.query_model(model, "ORT").reasons  # each provider has its own kernels
    compiled = core.compile_model(model, "HETERO:ORT.POSING,TEMPLATE")
    x = np.int16([-3, 4])
    np.testing.assert_array_equal(compiled(x)[0], [3, 4])
    assert "ORT.POSING" in compiled.get_property("EXECUTION_DEVICES")
    # A node that neither provider supports is refused, with the reason of the provider asked last.
    nodes[1] = node("Mystery", ["a"], ["b"], name="neg")
    model = core.read_model(typed_model(nodes[:2], {"x": TensorProto.INT16}, {"b": TensorProto.INT16}))
    reasons = core.query_model(model, "ORT.POSING").reasons
    assert set(reasons) == {"neg"}
    assert "Mystery" in reasons["neg"]["ORT.POSING"]


def group_norm() -> onnx.ModelProto:
    """onnxruntime has this operator for GPUs only."""
    options: dict[str, Any] = {"domain": "com.microsoft", "activation": 0, "groups": 1, "channels_last": 1}
    nodes = [
        node("GroupNorm", ["x", "w", "w"], ["a"], name="norm", **options),
        node("Relu", ["a"], ["y"], name="relu"),
    ]
    model = make_model(nodes, {"x": [1, 2, 2, 3]}, weights={"w": np.float32([1, 1, 1])})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def test_nodes_after_one_that_only_another_provider_has(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "load", Posing)
    monkeypatch.setattr(support, "_known_reasons", {})
    assert set(core.query_model(core.read_model(group_norm()), "ORT").reasons) == {"norm"}
    assert not core.query_model(core.read_model(group_norm()), "ORT.POSING").reasons


def test_nodes_that_a_provider_leaves_to_the_cpu(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it takes by themselves count as supported."""
    monkeypatch.setattr(backend, "load", lambda: Posing(("Neg", "Abs")))
    monkeypatch.setattr(support, "_known_reasons", {})
    monkeypatch.setattr(support, "_runs_alone", {})
    nodes = [node("Neg", ["x"], ["a"], name="neg"), node("Abs", ["a"], ["y"], name="abs")]
    assert set(core.query_model(core.read_model(make_model(nodes)), "ORT.POSING").reasons) == {"abs"}


def test_reasons_name_no_probe(core: hetero.Core) -> None:
    half = TensorProto.FLOAT16
    nodes = [node("NhwcConv", ["x", "w"], ["y"], name="conv", domain="com.microsoft")]
    model = typed_model(nodes, {"x": half, "w": half}, {"y": half})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    reason = core.query_model(core.read_model(model), "ORT").reasons["conv"]["ORT"]
    assert "'conv'" in reason
    assert "probe" not in reason


def test_wrong_provider_options(core: hetero.Core, diamond: hetero.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Posing):
        def InferenceSession(self, encoded: bytes, options: Any, providers: list[Any], **more: Any) -> Any:
            if isinstance(providers[0], tuple):
                raise RuntimeError(
                    "/src/cuda_execution_provider_info.cc:63 static Info Info::FromProviderOptions(const Options&) "
                    '[ONNXRuntimeError] : 1 : FAIL : provider_options_utils.h:182 Parse Unknown provider option: "x".\n'
                )
            return super().InferenceSession(encoded, options, providers, **more)

    monkeypatch.setattr(backend, "load", Refusing)
    config = {"ORT_PROVIDER_OPTIONS": {"x": 1}}
    with pytest.raises(hetero.PropertyError, match=r'^ORT_PROVIDER_OPTIONS: wrong provider option: "x"\.\n'):
        core.compile_model(diamond, "ORT.POSING", config)
    with pytest.raises(hetero.PropertyError, match="wrong provider option"):
        core.query_model(core.read_model(group_norm()), "ORT.POSING", config)


def test_libraries_of_cuda_that_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def preload_dlls() -> None:
        print("Failed to load libcublas.so.13: not found\nPlease follow https://onnxruntime.ai")

    monkeypatch.setattr(backend, "load", lambda: types.SimpleNamespace(preload_dlls=preload_dlls))
    assert backend.preload.__wrapped__() == "Failed to load libcublas.so.13: not found"
    assert not capsys.readouterr().out


def test_errors_without_the_functions_that_raised_them() -> None:
    call = (
        "/src/cuda_call.cc:{} std::conditional_t<T, void> CudaCall(T, int) [with T = X; std::conditional_t<T> = void] "
    )
    text = f"[ONNXRuntimeError] : 1 : FAIL : Exception: {call.format(154)}{call.format(146)}CUBLAS failure 3: the rest"
    assert backend.error_text(RuntimeError(text)) == "Exception: CUBLAS failure 3: the rest"


def test_ids(core: hetero.Core, diamond: hetero.Model) -> None:
    assert core.get_property("ORT", "AVAILABLE_DEVICES")[0] == "CPU"
    compiled = core.compile_model(diamond, "ORT.CPU")
    assert compiled.device == "ORT.CPU"
    assert compiled.get_property("EXECUTION_DEVICES") == ("ORT.CPU",)
    with pytest.raises(hetero.DeviceUnavailable, match=r"no device ORT\.TPU; ids here: CPU"):
        core.compile_model(diamond, "ORT.TPU")


# -- what goes in and out ---------------------------------------------------------------------------------------------

SMALL_TYPES = ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


@pytest.mark.parametrize("name", SMALL_TYPES)
@pytest.mark.parametrize("size", [0, 1, 5, 8])
def test_small_types(core: hetero.Core, name: str, size: int) -> None:
    dtype = np.dtype(name if name == "float16" else getattr(ml_dtypes, name))
    number = helper.np_dtype_to_tensor_dtype(dtype)
    nodes = [node("Cast", ["x"], ["a"], to=TensorProto.FLOAT), node("Cast", ["a"], ["y"], to=number)]
    model = core.read_model(typed_model(nodes, {"x": number}, {"y": number, "a": TensorProto.FLOAT}))
    if core.query_model(model, "ORT").reasons:
        pytest.skip("this onnxruntime has no kernels for it")
    request = core.compile_model(model, "ORT").create_infer_request()
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 7, size).astype(np.float32).astype(dtype)
        out = request.infer(x)
        assert out["y"].dtype == dtype
        np.testing.assert_array_equal(out["a"], x.astype(np.float32))
        np.testing.assert_array_equal(out["y"].astype(np.float32), x.astype(np.float32))


def test_results_of_small_types_outlive_everything(core: hetero.Core) -> None:
    nodes = [node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)]
    model = core.read_model(typed_model(nodes, {"x": TensorProto.FLOAT}, {"y": TensorProto.BFLOAT16}))
    compiled = core.compile_model(model, "ORT")
    held = [compiled(np.full(1000, i, np.float32))[0] for i in range(20)]
    del compiled
    assert [float(array[0]) for array in held] == list(map(float, range(20)))
    held[0][:] = 7  # it is the caller's
    assert float(held[1][0]) == 1


def test_a_subgraph_that_nobody_reads(core: hetero.Core) -> None:
    """onnxruntime fails to create a session from which it has removed all nodes."""
    nodes = [node("Relu", ["x"], ["y"]), node("Identity", ["c"], ["b"], name="unread")]
    proto = typed_model(nodes, {"x": TensorProto.FLOAT}, {"y": TensorProto.FLOAT})
    proto.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "c"))
    pins = {"unread": "ORT", "y": "TEMPLATE"}
    compiled = core.compile_model(core.read_model(proto), "HETERO:ORT,TEMPLATE", {"STRICT": True}, pins=pins)
    assert compiled(np.float32([-1, 1]))[0].tolist() == [0, 1]


def test_a_small_type_that_is_passed_on(core: hetero.Core) -> None:
    """onnxruntime reads a copy of an array that is not contiguous, which nothing keeps alive after the run."""
    nodes = [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    types = {"y": TensorProto.FLOAT, "x": TensorProto.BFLOAT16}
    request = core.compile_model(
        core.read_model(typed_model(nodes, {"x": TensorProto.BFLOAT16}, types)), "ORT"
    ).create_infer_request()
    for seed in range(10):
        x = np.arange(seed, seed + 4000).astype(ml_dtypes.bfloat16)[::2]
        passed = request.infer(x)["x"]
        junk = [np.full(2000, 7, np.uint16) for _ in range(8)]
        np.testing.assert_array_equal(passed, x)
        del junk


def test_strings(core: hetero.Core) -> None:
    nodes = [node("StringConcat", ["x", "x"], ["y"])]
    model = core.read_model(typed_model(nodes, {"x": TensorProto.STRING}, {"y": TensorProto.STRING}))
    compiled = core.compile_model(model, "HETERO:ORT,TEMPLATE")
    assert compiled(np.array(["a", "é"], object))[0].tolist() == ["aa", "éé"]
    assert compiled(np.array(["a", "é"]))[0].tolist() == ["aa", "éé"]


def test_sequences_and_optionals(core: hetero.Core) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    sequence = helper.make_sequence_type_proto(tensor)
    graph = helper.make_graph(
        [
            node("SequenceInsert", ["s", "x"], ["t"], name="insert"),
            node("Relu", ["x"], ["r"], name="between"),
            node("SequenceInsert", ["t", "r"], ["u"], name="again"),
        ],
        "sequences",
        [helper.make_value_info("s", sequence), helper.make_value_info("x", tensor)],
        [helper.make_value_info("u", sequence)],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    x = np.float32([-1, 2])
    for device, pins in (("ORT", None), ("HETERO:ORT,TEMPLATE", {"between": "TEMPLATE", "again": "TEMPLATE"})):
        compiled = core.compile_model(model, device, pins=pins)
        found = compiled({"s": [np.float32([5])], "x": x})["u"]
        assert [item.tolist() for item in found] == [[5], [-1, 2], [0, 2]]


def test_scalars_empty_arrays_and_views(core: hetero.Core) -> None:
    model = core.read_model(
        typed_model([node("Neg", ["x"], ["y"])], {"x": TensorProto.FLOAT}, {"y": TensorProto.FLOAT})
    )
    compiled = core.compile_model(model, "ORT")
    for x in (np.zeros(0, np.float32), np.arange(6, dtype=np.float32)[::-2], np.arange(4, dtype=">f4")):
        np.testing.assert_array_equal(compiled(x)[0], -x)


def test_weights_are_shared_with_the_file(core: hetero.Core, tmp_path: Path) -> None:
    """Weights of every place and type: at odd addresses in the file, beside it, in typed fields, small, of bfloat16."""
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((64, 64)).astype(np.float32)
    weights = [
        numpy_helper.from_array(wide, "raw"),
        helper.make_tensor("typed", TensorProto.FLOAT, [64, 64], wide.ravel().tolist()),
        numpy_helper.from_array(wide.astype(ml_dtypes.bfloat16), "half"),
        numpy_helper.from_array(np.float32([3]), "small"),
    ]
    graph = helper.make_graph(
        [
            node("MatMul", ["x", "raw"], ["a"]),
            node("MatMul", ["a", "typed"], ["b"]),
            node("Cast", ["half"], ["w"], to=TensorProto.FLOAT),
            node("MatMul", ["b", "w"], ["c"]),
            node("Mul", ["c", "small"], ["y"]),
        ],
        "weights",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    (wanted,) = run_directly(proto, {"x": x})
    onnx.save(proto, tmp_path / "in.onnx")
    core.read_model(tmp_path / "in.onnx").save(tmp_path / "out.onnx", external_above=100)
    for source in (proto.SerializeToString(), tmp_path / "in.onnx", tmp_path / "out.onnx"):
        model = core.read_model(source)
        compiled = core.compile_model(model, "ORT")
        encoded, lent = model.to_bytes_lending(4096)
        assert len(encoded) < 25_000
        assert "raw" in lent
        del model
        np.testing.assert_array_equal(compiled(x)[0], wanted)


TABLE = """
import gc, sys
import numpy as np
import hetero

def resident():
    with open("/proc/self/smaps_rollup") as lines:
        sizes = {line.split()[0]: int(line.split()[1]) for line in list(lines)[1:]}
    return sizes["Private_Dirty:"] / 1024

core = hetero.Core()
model = core.read_model(sys.argv[1])
small = core.compile_model(sys.argv[2], "ORT")
small(np.zeros(5, np.int64))
before = resident()
compiled = core.compile_model(model, "ORT", {"INFERENCE_NUM_THREADS": 1, "PERF_COUNT": sys.argv[3] == "counted"})
del model
gc.collect()
found = compiled(np.array([0, 77, 262143]))[0]
gc.collect()
print(resident() - before)
np.save(sys.argv[4], found)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
@pytest.mark.spread(2)
@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("counted", [False, True])
def test_a_table_takes_no_memory_of_its_own(tmp_path: Path, offset: int, counted: bool) -> None:
    """64 MiB that only a Gather reads, at addresses that are aligned, odd and even."""
    table = np.arange(1 << 24, dtype=np.float32).reshape(1 << 18, 64)
    proto = gathering(table)
    proto.doc_string = "x"
    begin = proto.SerializeToString().find(table.tobytes()[:256])
    proto.doc_string = "x" * (1 + (offset - begin) % 64)
    data = proto.SerializeToString()
    assert data.find(table.tobytes()[:256]) % 64 == offset
    (tmp_path / "table.onnx").write_bytes(data)
    (tmp_path / "small.onnx").write_bytes(gathering(table[:9]).SerializeToString())
    files = [str(tmp_path / name) for name in ("table.onnx", "small.onnx")]
    arguments = [*files, "counted" if counted else "", str(tmp_path / "found.npy")]
    done = subprocess.run([sys.executable, "-c", TABLE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), table[[0, 77, 262143]])
    assert float(done.stdout.split()[-1]) < 24  # MiB; 65 for a copy


def gathering(table: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node("Gather", ["table", "i"], ["y"])],
        "gathering",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "reader", ["Add", "Mul", "Concat", "Where", "Gather data", "Gather axis 1", "folded", "captured"]
)
def test_shared_tables_are_not_taken_for_what_became_of_them(core: hetero.Core, reader: str) -> None:
    """onnxruntime transposes constants in place, under their names, when it moves a Transpose through a node."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((64, 64)).astype(np.float32)
    there, back = node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Transpose", ["u"], ["v"], perm=[1, 0])
    gather = node("Gather", ["w", "i"], ["g"])
    middle = {
        "Add": [node("Add", ["t", "w"], ["u"])],
        "Mul": [node("Mul", ["w", "t"], ["u"])],
        "Concat": [node("Concat", ["t", "w"], ["u"], axis=0)],
        "Where": [node("Less", ["t", "w"], ["l"]), node("Where", ["l", "t", "w"], ["u"])],
        "Gather data": [node("Gather", ["w", "i"], ["k"]), node("Add", ["t", "k"], ["u"])],
        "Gather axis 1": [node("Gather", ["w", "i"], ["k"], axis=1), node("Add", ["t", "k"], ["u"])],
        "folded": [node("Gather", ["w", "c"], ["k"]), node("Add", ["t", "k"], ["u"])],
    }
    if reader == "captured":
        branch = helper.make_graph(
            [
                node("Transpose", ["x"], ["p"], perm=[1, 0]),
                node("Add", ["p", "w"], ["q"]),
                node("Transpose", ["q"], ["r"]),
            ],
            "branch",
            [],
            [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        )
        nodes = [gather, node("If", ["b"], ["v"], then_branch=branch, else_branch=branch)]
    else:
        nodes = [there, *middle[reader], back, gather]
    graph = helper.make_graph(
        nodes,
        "shared",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [64]),
            helper.make_tensor_value_info("b", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("v", "g")],
        [numpy_helper.from_array(table, "w"), numpy_helper.from_array(rng.permutation(64), "c")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = {"x": rng.standard_normal((64, 64)).astype(np.float32), "i": rng.permutation(64), "b": np.array(True)}
    expected = core.compile_model(proto, "TEMPLATE")(given)
    assert SessionSource(core.read_model(proto))._tables == (
        ["w"] if reader in ("Gather data", "Gather axis 1", "folded") else []
    )
    for found, wanted in zip(core.compile_model(proto, "ORT")(given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-6)


# -- properties -------------------------------------------------------------------------------------------------------


def test_threads_and_options(core: hetero.Core, diamond: hetero.Model) -> None:
    def options(**config: Any) -> Any:
        return core.compile_model(diamond, "ORT", config)._session.get_session_options()  # type: ignore[attr-defined]

    def entry(chosen: Any, name: str) -> str:
        try:
            return str(chosen.get_session_config_entry(f"session.{name}"))
        except RuntimeError:  # not set
            return ""

    assert options(INFERENCE_NUM_THREADS=3).intra_op_num_threads == 3
    assert options(INFERENCE_NUM_THREADS=4, NUM_STREAMS=2).intra_op_num_threads == 3  # and a stream's own thread
    assert options(INFERENCE_NUM_THREADS=2, NUM_STREAMS=8).intra_op_num_threads == 1
    assert entry(options(), "force_spinning_stop") == "1"
    assert entry(options(), "intra_op.allow_spinning") == ""
    assert entry(options(), "intra_op.spin_duration_us") == "1000"
    many = usable_processors() + 1
    assert entry(options(INFERENCE_NUM_THREADS=many), "intra_op.allow_spinning") == "0"
    always = options(INFERENCE_NUM_THREADS=many, ORT_ALLOW_SPINNING=True)
    for name in ("force_spinning_stop", "intra_op.spin_duration_us", "intra_op.allow_spinning"):
        assert entry(always, name) == ""
    never = options(ORT_SESSION_CONFIG={"session.intra_op.allow_spinning": "0"})
    assert entry(never, "intra_op.allow_spinning") == "0"
    level = options(DISABLE_TRANSFORMATIONS=True).graph_optimization_level
    assert level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    chosen = options(ORT_SESSION_CONFIG={"session.set_denormal_as_zero": 1})
    assert chosen.get_session_config_entry("session.set_denormal_as_zero") == "1"
    compiled = core.compile_model(diamond, "ORT", {"NUM_STREAMS": 2})
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 2


def test_performance_hint(core: hetero.Core, diamond: hetero.Model) -> None:
    """For THROUGHPUT, one stream for each thread, but not more than the expected requests."""
    hint = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": 3}
    cases = (
        ({}, 1, usable_processors()),
        (hint, 3, 1),
        ({**hint, "NUM_STREAMS": 2}, 2, 2),
        ({**hint, "PERFORMANCE_HINT_NUM_REQUESTS": 2}, 2, 2),
    )
    x = np.float32([[-1, 0, 1], [2, 3, 4]])
    expected = core.compile_model(diamond, "CPU")(x)[0]
    for config, streams, pool in cases:
        compiled = core.compile_model(diamond, "ORT", config)
        for name in ("NUM_STREAMS", "OPTIMAL_NUMBER_OF_INFER_REQUESTS"):
            assert compiled.get_property(name) == streams
        options = compiled._session.get_session_options()  # type: ignore[attr-defined]
        assert options.intra_op_num_threads == pool
        for outputs in compiled.map([x] * 8, in_flight=streams):
            np.testing.assert_allclose(outputs[0], expected, rtol=1e-6)
    core.set_property("ORT", hint)
    assert core.get_property("ORT", "OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 3


@pytest.mark.parametrize("device", ["ORT", "HETERO:CPU,ORT"])
def test_threads_sleep_after_a_run(core: hetero.Core, device: str) -> None:
    """They leave the processors to other devices. With onnxruntime's default, they would spin all the time."""
    w = numpy_helper.from_array(np.eye(256, dtype=np.float32), "w")
    nodes = [node("MatMul", ["x", "w"], ["y"], name="product"), node("Relu", ["y"], ["z"], name="last")]
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 256]) for name in "xz"]
    graph = helper.make_graph(nodes, "spin", types[:1], types[1:], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    core.set_property("ORT", {"INFERENCE_NUM_THREADS": 4})
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
    pins = {"product": "ORT"} if device != "ORT" else None
    request = core.compile_model(model, device, pins=pins).create_infer_request()
    x = np.ones((256, 256), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(request.infer(x)[0], x)
    for _ in range(20):  # what other tests have left may still run for a moment
        begin = time.process_time()
        time.sleep(0.05)
        took = time.process_time() - begin
        if took < 0.02:
            break
    assert took < 0.02


def test_nothing_is_printed(core: hetero.Core, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever fails: errors are exceptions here, and onnxruntime's log is off unless asked for."""
    graph = helper.make_graph(
        [node("Reshape", ["x", "s"], ["y"], name="shape")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [None]),
            helper.make_tensor_value_info("s", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    with pytest.raises(hetero.InferenceError, match="ORT: inference failed at node 'shape': .*Reshape"):
        core.compile_model(model, "ORT")({"x": np.zeros(4, np.float32), "s": np.array([3])})
    assert capfd.readouterr() == ("", "")


# -- counters ---------------------------------------------------------------------------------------------------------


def test_counters_are_those_of_the_original_nodes(core: hetero.Core) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
        "s": np.float32([2]),
    }
    proto = make_model(
        [
            node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"], name="relu"),
            node("Mul", ["s", "s"], ["t"], name="folded"),
            node("Mul", ["r", "t"], ["m"], name=""),
            node("Softmax", ["m"], ["y"], name="softmax", axis=1),
        ],
        {"x": [1, 3, 32, 32]},
        weights=weights,
    )
    model = core.read_model(proto)
    x = rng.standard_normal((1, 3, 32, 32)).astype(np.float32)
    rows_of = {}
    for plain in (False, True):
        config = {"PERF_COUNT": True, "DISABLE_TRANSFORMATIONS": plain, "INFERENCE_NUM_THREADS": 1}
        request = core.compile_model(model, "ORT", config).create_infer_request()
        out = request.infer(x)
        np.testing.assert_allclose(out[0], run_directly(proto, {"x": x})[0], rtol=1e-4)
        rows = {row.node: row for row in request.profiling_info}
        assert [row.layer_type for row in request.profiling_info] == ["Conv", "Relu", "Mul", "Mul", "Softmax"]
        assert list(rows) == ["conv", "relu", "folded", "m", "softmax"]
        assert request.infer(x)[0].shape == (1, 8, 32, 32)
        assert len(request.profiling_info) == 5
        rows_of[plain] = rows
    assert all(row.status == "EXECUTED" for row in rows_of[True].values())
    assert rows_of[True]["conv"].exec_type == "CPU_Conv"
    fused = rows_of[False]
    assert fused["folded"].status == "OPTIMIZED_OUT"
    assert fused["softmax"].status == "EXECUTED"
    assert "OPTIMIZED_OUT" in (fused["conv"].status, fused["relu"].status)  # one kernel for both
    assert max(fused["conv"].real_us, fused["relu"].real_us) > 0


# -- errors, cancelling, threads --------------------------------------------------------------------------------------


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "onnxruntime":
            raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")
        return imported(name, *arguments, **more)

    imported = builtins.__import__
    backend.load.cache_clear()
    monkeypatch.delitem(sys.modules, "onnxruntime")
    monkeypatch.setattr(builtins, "__import__", without)
    core = hetero.Core()
    try:
        with pytest.raises(hetero.DeviceUnavailable, match=r"pip install 'hetero\[onnxruntime\]'"):
            core.get_property("ORT", "FULL_DEVICE_NAME")
        assert not [name for name in core.available_devices if name.startswith("ORT")]
    finally:
        backend.load.cache_clear()


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [("1.28.0", True), ("0.9", True), ("1.29.0", False), ("2.0.0.dev1", False), ("local", False)],
)
def test_versions(monkeypatch: pytest.MonkeyPatch, version: str, is_refused: bool) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", version)
    backend.load.cache_clear()
    core = hetero.Core()
    try:
        if is_refused:
            with pytest.raises(
                hetero.DeviceUnavailable, match=rf"onnxruntime 1\.29 or later, found {version}: pip inst"
            ):
                core.get_property("ORT", "FULL_DEVICE_NAME")
            assert not [name for name in core.available_devices if name.startswith("ORT")]
        else:
            assert version in core.get_property("ORT", "FULL_DEVICE_NAME")
    finally:
        backend.load.cache_clear()


def endless_loop(core: hetero.Core) -> hetero.Model:
    body = helper.make_graph(
        [node("Identity", ["cond"], ["again"]), node("Add", ["v", "v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
        ],
    )
    graph = helper.make_graph(
        [node("Loop", ["", "go", "x"], ["y"], name="loop", body=body)],
        "endless",
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    return core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_a_run_can_be_stopped(core: hetero.Core) -> None:
    runner = core.compile_model(endless_loop(core), "ORT").create_runner()
    x = np.ones(1, np.float32)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            runner.run([np.array(True), x])
        except hetero.HeteroError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.1)
    runner.cancellation.request()  # type: ignore[attr-defined]
    thread.join(20)
    assert not thread.is_alive()
    assert type(caught[0]).__name__ == "Cancelled"
    runner.cancellation.clear()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(runner.run([np.array(False), x])[0], x)


def test_sequences_lie_apart(core: hetero.Core) -> None:
    """onnxruntime lets two sequences share their tensors."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[3] x, float[3] y) => (seq(float[3]) s, seq(float[3]) t)
        { s = SequenceConstruct (x, y)  t = SequenceInsert (s, x) }""")
    request = core.compile_model(core.read_model(model), "ORT").create_infer_request()
    for call in range(3):
        x = np.full(3, call, np.float32)
        found = request.infer({"x": x, "y": x + 1})
        for item, wanted in zip([*found["s"], *found["t"]], [x, x + 1, x, x + 1, x], strict=True):
            np.testing.assert_array_equal(item, wanted)
            item[...] = -1


def test_what_it_takes_one_by_one_but_not_together(core: hetero.Core) -> None:
    """Shapes that cannot be: onnxruntime names the node, and so do we."""
    proto = make_model([node("Add", ["x", "w"], ["y"], name="wrong")], weights={"w": np.ones(7, np.float32)})
    model = core.read_model(proto)
    with pytest.raises(hetero.HeteroError, match=r"ORT (cannot|failed to) compile .*'wrong'"):
        core.compile_model(model, "ORT")


# -- HETERO over it ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")
def test_real_model(
    core: hetero.Core, real_model: Callable[[str], tuple[onnx.ModelProto, dict[str, np.ndarray]]]
) -> None:
    proto, inputs = real_model("minilm")
    model = core.read_model(proto)
    wanted = run_directly(proto, inputs)
    config = {"DEVICE_PROPERTIES": {"ORT": {"INFERENCE_NUM_THREADS": 1}}}
    for device, exact in (("HETERO:ORT", True), ("HETERO:FPGA,ORT", False)):
        outputs = core.compile_model(model, device, config)(inputs)
        for found, want in zip(outputs.arrays(), wanted, strict=True):
            if exact:
                np.testing.assert_array_equal(found, want)
            np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", ["ORT", "HETERO:CPU,ORT"])
@pytest.mark.parametrize(("name", "shape"), [("B", (4, 2, 7)), ("scales", (4, 1))])
def test_operands_that_contradict_attributes_are_named(
    core: hetero.Core, device: str, name: str, shape: tuple[int, ...]
) -> None:
    """onnxruntime only says "Fail" for weights that are too short."""
    operands = {"B": np.zeros((4, 2, 8), np.uint8), "scales": np.ones((4, 2), np.float32)}
    operands[name] = np.resize(operands[name], shape)
    product = helper.make_node("MatMulNBits", ["x", "B", "scales"], ["y"], name="product", domain="com.microsoft", K=32,
                               N=4, bits=4, block_size=16)  # fmt: skip
    model = make_model([product], {"x": [2, 32]}, ["y"], weights=operands)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(hetero.UnsupportedModel, match=rf"(?s)'product'.*ORT[^\n]*input {name} of shape"):
        core.compile_model(core.read_model(model), device)


def test_branches_are_checked_without_shape_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take a process for each branch, seconds for silero-vad."""
    inferred = []
    monkeypatch.setattr(inference, "infer_types", lambda model, harmless: inferred.append(model))
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[n] x) => (float[n] y) {
            shape = Shape(x)
            h = Reshape(x, shape)
            y = If(c) <then_branch = t () => (a) { a = Elu <NAME = 1.0> (h) }, else_branch = e () => (b) { b = Neg(h) }>
        }"""
    x = np.float32([-1, 2])
    model = onnx.parser.parse_model(text.replace("NAME", "alpha"))
    compiled = hetero.Core().compile_model(model.SerializeToString(), "ORT")
    np.testing.assert_array_equal(compiled({"c": np.array(False), "x": x})["y"], -x)
    assert not inferred
    model = onnx.parser.parse_model(text.replace("NAME", "alfa"))
    with pytest.raises(hetero.UnsupportedModel, match="its then_branch: node 'y/a'.*attribute 'alfa'"):
        hetero.Core().compile_model(model.SerializeToString(), "ORT")
