"""Constants that pass between subgraphs are computed once, when the model is compiled."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.compiling import folding
from hetero.devices.template.plugin import TemplatePlugin
from hetero.errors import InferenceError
from hetero.model.model import Model

node = helper.make_node
X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
W = np.arange(16, dtype=np.float32).reshape(4, 4) / 8


class Noting(TemplatePlugin):
    """TEMPLATE, which notes the models that it compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled: list[Model] = []

    def compile_model(self, model: Model, *rest: Any) -> hetero.CompiledModel:
        self.compiled.append(model)
        return super().compile_model(model, *rest)


@pytest.fixture
def plugins() -> dict[str, Noting]:
    return {"A": Noting(), "B": Noting()}


@pytest.fixture
def core(plugins: dict[str, Noting]) -> hetero.Core:
    core = hetero.Core()
    core.register_plugin("A", lambda: plugins["A"])
    core.register_plugin("B", lambda: plugins["B"])
    return core


def make(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    packed: Iterable[onnx.TensorProto] = (),
    opset: int = 21,
) -> onnx.ModelProto:
    """A model of x, float32 [n, 4], and constants. Nodes are named by their first outputs."""
    for one in nodes:
        one.name = one.output[0]
    constants = {"w": W, **(weights or {})}
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [*(numpy_helper.from_array(array, name) for name, array in constants.items()), *packed],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def check(
    core: hetero.Core,
    plugins: dict[str, Noting],
    model: onnx.ModelProto,
    pins: dict[str, str],
    folded: Iterable[str],
) -> hetero.CompiledModel:
    """Compile for A and B; ``folded``: the nodes that no inference runs. Results are those of TEMPLATE alone."""
    for plugin in plugins.values():
        plugin.compiled.clear()
    compiled = core.compile_model(model, "HETERO:A,B", pins=pins)
    ran = {
        key
        for plugin in plugins.values()
        for part in plugin.compiled
        if "_subgraph" in part.name or part.name == "graph"
        for key in part.keys
    }
    assert ran == {one.name for one in model.graph.node} - set(folded)
    expected = hetero.compile(model, "TEMPLATE")
    for x in (X, X[:1], X[:0], X + 1):
        results, references = compiled({"x": x}), expected({"x": x})
        assert list(results.keys()) == list(references.keys())
        for one, other in zip(results.values(), references.values(), strict=True):
            np.testing.assert_array_equal(one, other)
            if isinstance(one, np.ndarray):
                assert one.dtype == other.dtype
    return compiled


Both = tuple[hetero.Core, dict[str, Noting]]


@pytest.fixture
def both(core: hetero.Core, plugins: dict[str, Noting]) -> Both:
    return core, plugins


def test_a_constant_of_another_device(both: Both) -> None:
    model = make([node("Neg", ["w"], ["c"]), node("MatMul", ["x", "c"], ["y"])])
    compiled = check(*both, model, {"c": "B"}, ["c"])
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 1
    assert compiled.get_property("EXECUTION_DEVICES") == ("A",)
    assert compiled.plan.num_subgraphs == 2  # the plan shows the nodes as they were assigned


def test_a_constant_of_the_same_subgraph_is_left_to_the_device(both: Both) -> None:
    nodes = [node("Neg", ["w"], ["c"]), node("MatMul", ["x", "c"], ["m"]), node("Relu", ["m"], ["y"])]
    check(*both, make(nodes), {"y": "B"}, [])


def test_a_chain_over_both_devices(both: Both) -> None:
    nodes = [
        node("Neg", ["w"], ["a"]),
        node("Transpose", ["a"], ["b"]),
        node("Add", ["b", "w"], ["c"]),
        node("MatMul", ["x", "c"], ["m"]),
        node("Relu", ["m"], ["y"]),
    ]
    # "c" is constant and beside its reader, so the device folds it.
    check(*both, make(nodes), {"b": "B", "y": "B"}, ["a", "b"])
    check(*both, make(nodes), {"a": "A", "b": "A", "c": "A", "m": "B"}, ["a", "b", "c"])
    # Without pins, constant nodes go where they are read.
    check(*both, make(nodes), {"m": "B"}, [])


def test_a_constant_that_is_also_read_beside_its_node(both: Both) -> None:
    nodes = [
        node("Neg", ["w"], ["c"]),
        node("MatMul", ["x", "c"], ["m"]),
        node("Add", ["x", "m"], ["a"]),
        node("MatMul", ["a", "c"], ["y"]),
    ]
    check(*both, make(nodes), {"y": "B"}, ["c"])


def test_constants_among_the_outputs(both: Both) -> None:
    nodes = [node("Neg", ["w"], ["c"]), node("Abs", ["c"], ["d"]), node("MatMul", ["x", "d"], ["y"])]
    check(*both, make(nodes, outputs=["d", "y", "c"]), {"y": "B"}, ["c", "d"])
    check(*both, make(nodes, outputs=["y", "d", "d"][:2]), {"d": "B"}, ["c", "d"])


def test_all_of_a_model(both: Both) -> None:
    nodes = [node("Neg", ["w"], ["c"]), node("Abs", ["c"], ["y"])]
    check(*both, make(nodes), {"c": "A", "y": "B"}, ["c"])


def test_some_results_of_a_node(both: Both) -> None:
    nodes = [
        node("Split", ["w"], ["p", "q"], axis=0, num_outputs=2),
        node("Concat", ["p", "p"], ["c"], axis=0),
        node("MatMul", ["x", "c"], ["m"]),
        node("Add", ["m", "q"], ["n"]),
        node("ReduceSum", ["n"], ["y"]),
    ]
    model = make(nodes)
    core, _ = both
    compiled = core.compile_model(model, "HETERO:A,B", pins={"p": "B", "m": "B"})
    x = X[:2]
    np.testing.assert_array_equal(compiled({"x": x})["y"], hetero.compile(model, "TEMPLATE")({"x": x})["y"])


def test_near_misses_are_not_folded(both: Both) -> None:
    """Nodes that are not constant: one reads the model's input, one is random, one reads a random value, one has a
    nested graph that reads the input."""
    branch = helper.make_graph([node("Mul", ["x", "w"], ["n"])], "b", [], [onnx.ValueInfoProto(name="n")])
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("RandomNormalLike", ["w"], ["r"]),
        node("Mul", ["r", "zero"], ["z"]),
        node("If", ["yes"], ["i"], then_branch=branch, else_branch=branch),
        node("Add", ["x", "z"], ["a"]),
        node("Reshape", ["a", "s"], ["b"]),
        node("Add", ["b", "i"], ["y"]),
    ]
    model = make(nodes, {"zero": np.zeros((), np.float32), "yes": np.array(True), "w": W[:1]})
    check(*both, model, {"s": "B", "r": "B", "z": "B", "i": "B"}, [])


def test_a_captured_constant(both: Both) -> None:
    branch = helper.make_graph([node("MatMul", ["x", "c"], ["n"])], "b", [], [onnx.ValueInfoProto(name="n")])
    nodes = [node("Neg", ["w"], ["c"]), node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)]
    check(*both, make(nodes, {"yes": np.array(True)}), {"c": "B"}, ["c"])


def test_functions_and_foreign_operators_are_not_folded(both: Both) -> None:
    core, _ = both
    calls: list[int] = []

    def count(array: np.ndarray) -> np.ndarray:
        calls.append(1)
        return array

    core.add_extension(hetero.CustomOp("Count", "my", function=count))
    model = make([node("Count", ["w"], ["c"], domain="my"), node("MatMul", ["x", "c"], ["y"])])
    model.opset_import.append(helper.make_opsetid("my", 1))
    compiled = core.compile_model(model, "HETERO:A,B", pins={"c": "B"})
    for _ in range(3):
        compiled({"x": X})
    assert len(calls) == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "bool", "int8", "uint64", "float64"])
def test_element_types(both: Both, dtype: str) -> None:
    numbers = {one.name: number for number in range(1, 20) if (one := hetero.model.types.dtype_of(number)) is not None}
    nodes = [
        node("Cast", ["w"], ["c"], to=numbers[dtype]),
        node("Cast", ["c"], ["d"], to=TensorProto.FLOAT),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    check(*both, make(nodes), {"c": "B"}, ["c"])


@pytest.mark.parametrize("dtype", [TensorProto.STRING, TensorProto.INT4])
def test_types_that_have_another_layout_stay(both: Both, dtype: int) -> None:
    nodes = [
        node("Cast", ["w"], ["c"], to=dtype),
        node("Cast", ["c"], ["d"], to=TensorProto.FLOAT),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    check(*both, make(nodes), {"c": "B"}, [])


def test_sequences_stay(both: Both) -> None:
    nodes = [
        node("SplitToSequence", ["w"], ["c"], axis=0),
        node("SequenceAt", ["c", "zero"], ["d"]),
        node("Mul", ["x", "d"], ["y"]),
    ]
    check(*both, make(nodes, {"zero": np.int64(0)}), {"c": "B"}, [])


@pytest.mark.parametrize("shape", [(0, 4), (), (1,), (1, 1, 1)])
def test_small_shapes(both: Both, shape: tuple[int, ...]) -> None:
    nodes = [node("Neg", ["v"], ["c"]), node("Concat", ["x", "e"], ["k"], axis=0), node("Mul", ["k", "c"], ["y"])]
    if 0 in shape:
        nodes[2] = node("Concat", ["k", "c"], ["y"], axis=0)
    model = make(nodes, {"v": np.full(shape, 3, np.float32), "e": np.zeros((0, 4), np.float32)})
    check(*both, model, {"c": "B"}, ["c"])


def test_a_result_that_is_too_large_stays(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_SMALL_BYTES", 100)
    nodes = [node("Expand", ["one", "size"], ["c"]), node("Add", ["x", "c"], ["y"])]
    weights = {"one": np.ones((1, 1), np.float32), "size": np.array([1, 4])}
    check(*both, make(nodes, weights), {"c": "B"}, ["c"])
    nodes = [
        node("Expand", ["one", "size"], ["c"]),
        node("Gather", ["c", "zero"], ["d"]),
        node("Add", ["x", "d"], ["y"]),
    ]
    weights = {"one": np.ones((1, 1), np.float32), "size": np.array([1000, 4]), "zero": np.array([0])}
    check(*both, make(nodes, weights), {"c": "B"}, [])


def test_a_node_that_fails_does_so_in_the_inference(both: Both) -> None:
    nodes = [node("Gather", ["w", "far"], ["c"]), node("MatMul", ["x", "c"], ["y"])]
    compiled = both[0].compile_model(make(nodes, {"far": np.array([100])}), "HETERO:A,B", pins={"c": "B"})
    with pytest.raises(InferenceError, match="subgraph 1 on B|B: inference failed"):
        compiled({"x": X})


def test_numbers_of_subgraphs_are_those_of_the_plan(both: Both) -> None:
    nodes = [node("Neg", ["w"], ["c"]), node("MatMul", ["x", "c"], ["m"]), node("Gather", ["m", "at"], ["y"])]
    model = make(nodes, {"at": np.array([1])})
    compiled = check_free(both, model, {"c": "B", "y": "B"})
    number = next(i for i, part in enumerate(compiled.plan.subgraphs, 1) if part.nodes == ("y",))
    with pytest.raises(InferenceError) as caught:
        compiled({"x": X[:1]})
    assert any(f"subgraph {number} on B" in note for note in caught.value.__notes__)
    timed = both[0].compile_model(model, "HETERO:A,B", {"PERF_COUNT": True}, pins={"c": "B", "y": "B"})
    request = timed.create_infer_request()
    request.infer({"x": X})
    assert {span.subgraph for span in request.profiling_info.spans} == {
        i for i, part in enumerate(compiled.plan.subgraphs, 1) if "c" not in part.nodes
    }


def test_an_imported_model_keeps_the_numbers(tmp_path: Any) -> None:
    core = hetero.Core()
    nodes = [node("Neg", ["w"], ["c"]), node("MatMul", ["x", "c"], ["m"]), node("Gather", ["m", "at"], ["y"])]
    pins = {"c": "TEMPLATE", "y": "TEMPLATE"}
    compiled = core.compile_model(make(nodes, {"at": np.array([1])}), "HETERO:CPU,TEMPLATE", pins=pins)
    number = next(i for i, part in enumerate(compiled.plan.subgraphs, 1) if part.nodes == ("y",))
    assert number == len(compiled.submodels) + 1
    compiled.export_model(tmp_path / "model.hetero")
    with pytest.raises(InferenceError) as caught:
        core.import_model(tmp_path / "model.hetero")({"x": X[:1]})
    assert any(f"subgraph {number} on TEMPLATE" in note for note in caught.value.__notes__)


def check_free(both: Both, model: onnx.ModelProto, pins: dict[str, str]) -> hetero.CompiledModel:
    compiled = both[0].compile_model(model, "HETERO:A,B", pins=pins)
    np.testing.assert_array_equal(compiled({"x": X})["y"], hetero.compile(model, "TEMPLATE")({"x": X})["y"])
    return compiled


def test_types_and_shapes_that_the_user_states(both: Both) -> None:
    core, _ = both
    nodes = [node("Neg", ["w"], ["b"]), node("Abs", ["b"], ["c"]), node("MatMul", ["x", "c"], ["y"])]
    model = core.read_model(make(nodes).SerializeToString())
    model = model.with_types(dict.fromkeys("bc", (np.float32, (4, 4))))
    compiled = core.compile_model(model, "HETERO:A,B", pins={"y": "B"}, shapes={"x": (2, 4)})
    assert len(compiled.submodels) == 1
    assert compiled.submodels[0].inputs[0].shape == (2, 4)
    np.testing.assert_array_equal(compiled({"x": X})["y"], X @ W)


def test_nodes_without_unique_names(both: Both) -> None:
    nodes = [node("Neg", ["w"], ["c"]), node("MatMul", ["x", "c"], ["m"]), node("Relu", ["m"], ["y"])]
    model = make(nodes)
    for one in model.graph.node:
        one.name = "same"
    compiled = both[0].compile_model(model, "HETERO:A,B", pins={"c": "B", "y": "B"})
    np.testing.assert_array_equal(compiled({"x": X})["y"], np.maximum(X @ -W, 0))
    assert len(compiled.submodels) == 2


OPS = {"Add": 0.3, "Sub": 0.2, "Neg": 0.2, "Abs": 0.1, "Max": 0.15, "RandomNormalLike": 0.05}


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(both: Both, seed: int) -> None:
    """Graphs of constant and other nodes on random devices; some results are outputs or used twice."""
    core, _ = both
    random = np.random.default_rng(seed)
    values, nodes = ["x", "w1", "w2"], []
    for i in range(14):
        op = str(random.choice(list(OPS), p=list(OPS.values())))
        pool = values if random.random() < 0.4 else [name for name in values if name != "x"]
        read = [str(name) for name in random.choice(pool, 1 if op in ("Neg", "Abs", "RandomNormalLike") else 2)]
        nodes.append(node(op, read, [f"v{i}"]))
        if op != "RandomNormalLike":  # its results differ, so nothing reads them
            values.append(f"v{i}")
    computed = values[3:]
    outputs = [str(name) for name in random.choice(computed, 3, replace=False)]
    nodes.append(node("Add", ["x", computed[-1]], ["last"]))
    weights = {name: random.integers(-4, 4, shape).astype(np.float32) for name, shape in (("w1", (4,)), ("w2", (1, 4)))}
    model = make(nodes, weights, [*outputs, "last"])
    pins = {one.name: str(random.choice(["A", "B"])) for one in nodes}
    policy = str(random.choice(["auto", "linear", "documented"]))
    compiled = core.compile_model(model, "HETERO:A,B", {"PARTITION_POLICY": policy}, pins=pins)
    expected = hetero.compile(model, "TEMPLATE")
    for x in (X, X[:1]):
        for one, other in zip(compiled({"x": x}).values(), expected({"x": x}).values(), strict=True):
            np.testing.assert_array_equal(one, other)
    constant = set(weights)
    for one in nodes:
        if one.op_type != "RandomNormalLike" and set(one.input) <= constant:
            constant.add(one.output[0])
    passed = {port.name for submodel in compiled.submodels for port in submodel.inputs}
    assert not passed & constant


def test_a_plan_and_an_exported_model(both: Both, tmp_path: Any) -> None:
    core, _ = both
    model = core.read_model(make([node("Neg", ["w"], ["c"]), node("MatMul", ["x", "c"], ["y"])]).SerializeToString())
    plan = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"c": "TEMPLATE"})
    plan.save(tmp_path / "plan.json")
    compiled = core.compile_model(model, hetero.Plan.load(tmp_path / "plan.json"))
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)
    compiled.export_model(tmp_path / "model.hetero")
    again = core.import_model(tmp_path / "model.hetero")
    np.testing.assert_allclose(again({"x": X})["y"], X @ -W, rtol=1e-6)


def test_isolated_and_pipelined_models(both: Both) -> None:
    nodes = [node("Neg", ["w"], ["c"]), node("MatMul", ["x", "c"], ["m"]), node("Relu", ["m"], ["y"])]
    model = make(nodes)
    core, _ = both
    config = {"ISOLATION": "PROCESS"}
    isolated = core.compile_model(model, "HETERO:CPU,TEMPLATE", config, pins={"c": "TEMPLATE"})
    np.testing.assert_allclose(isolated({"x": X})["y"], np.maximum(X @ -W, 0), rtol=1e-6)
    policy = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
    pipelined = core.compile_model(model, "HETERO:CPU,TEMPLATE", policy)
    np.testing.assert_allclose(pipelined({"x": X})["y"], np.maximum(X @ -W, 0), rtol=1e-6)


def test_a_product_with_4_bit_weights_over_onnxruntime() -> None:
    """The CPU may leave the DequantizeLinear to onnxruntime; no inference runs it."""
    pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    numbers = random.integers(-8, 8, (64, 48))
    flat = numbers.reshape(-1) & 15
    packed = (flat[::2] | flat[1::2] << 4).astype(np.uint8)
    weight = onnx.TensorProto(name="q", data_type=TensorProto.INT4, dims=numbers.shape, raw_data=packed.tobytes())
    scale = random.random((2, 48)).astype(np.float32)
    nodes = [
        node("DequantizeLinear", ["q", "s"], ["d"], axis=0, block_size=32),
        node("MatMul", ["x", "d"], ["m"]),
        node("Relu", ["m"], ["y"]),
    ]
    model = make(nodes, {"s": scale}, packed=[weight])
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64]))
    x = random.standard_normal((3, 64)).astype(np.float32)
    expected = np.maximum(x @ (numbers * np.repeat(scale, 32, 0)).astype(np.float32), 0)
    for pins in ({}, {"d": "ORT"}, {"d": "ORT", "y": "ORT"}):
        compiled = hetero.Core().compile_model(model, "HETERO:CPU,ORT", pins=pins)
        np.testing.assert_allclose(compiled({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
        inputs = [port.name for submodel in compiled.submodels for port in submodel.inputs]
        assert "d" not in inputs


def test_nodes_that_a_profile_lists_only_because_they_are_constant(tmp_path: Any) -> None:
    """P runs Exp and Sqrt when it compiles. They make outputs of submodels, and Sqrt reads an input of one."""
    path = tmp_path / "p.toml"
    path.write_text('name = "P"\nruns_on = "TEMPLATE"\n[ops]\nAdd = {}\n')
    core = hetero.Core()
    core.register_plugin("P", path)
    nodes = [
        node("Exp", ["w"], ["e"]),
        node("Add", ["x", "e"], ["a"]),
        node("Softmax", ["a"], ["b"]),
        node("Sqrt", ["e"], ["s"]),
        node("Add", ["b", "s"], ["c"]),
        node("Softmax", ["c"], ["d"]),
        node("Add", ["d", "s"], ["y"]),
    ]
    model = make(nodes)
    plan = core.plan(model, "HETERO:P,CPU")
    assert [plan.devices[i] for i in plan.assignment.partition.device_of] == ["P", "CPU", "P", "CPU", "P"]
    assert {plan.affinity[name] for name in "es"} == {"P"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = core.compile_model(model, plan)
    x = np.ones((4, 4), np.float32)
    np.testing.assert_allclose(compiled({"x": x})["y"], hetero.compile(model, "TEMPLATE")({"x": x})["y"], rtol=1e-6)
    with pytest.raises(hetero.UnsupportedModel, match="does not list Exp"):
        core.compile_model(make([node("Exp", ["w"], ["y"])]), "P")
