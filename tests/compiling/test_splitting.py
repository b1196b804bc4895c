"""A model in files: run by onnxruntime alone, it computes what the whole computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.compiling.splitting import Manifest, Part, PartInput, Source, Tensor, read_manifest, split
from model_zoo import light, make_model, minilm
from sessions import onnxruntime_session

EXAMPLE = Path(__file__).parents[2] / "examples" / "run_split.py"


def plan_of(model: hetero.Model, devices: dict[str, str]) -> hetero.Plan:
    """All on ALPHA but for the nodes given by a pattern of their keys; both are stand-ins that take everything."""
    core = hetero.Core()
    for name in ("ALPHA", "BETA"):
        core.register_plugin(name, TakesAll)
    return core.plan(model, "HETERO:ALPHA,BETA", pins=devices)


class TakesAll(hetero.Plugin):
    name = "ANY"

    def query_model(self, model: hetero.Model, config: Any) -> hetero.Support:
        return hetero.Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: Any, context: Any = None) -> hetero.CompiledModel:
        raise NotImplementedError


def whole(model: bytes | str, feeds: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    session = onnxruntime_session(model)
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def run_example(folder: Path, feeds: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The example in an interpreter that has no hetero."""
    np.savez(folder.parent / "inputs.npz", **feeds)
    script = (
        "import sys, runpy\n"
        "class NoHetero:\n"
        "    def find_spec(self, name, *rest):\n"
        "        assert name.partition('.')[0] not in ('hetero', 'onnx'), name\n"
        "sys.meta_path.insert(0, NoHetero())\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    command = ["--inputs", str(folder.parent / "inputs.npz"), "--outputs", str(folder.parent / "outputs.npz")]
    code = f"import sys; sys.argv = {[str(EXAMPLE), str(folder), *command]!r}\n{script}"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder.parent / "outputs.npz"))


def check_folder(folder: Path, manifest: Manifest) -> None:
    """The folder holds what the manifest lists, and every file passes onnx's checker."""
    assert read_manifest(folder) == manifest
    listed = {"manifest.json"} | {file for part in manifest.parts for file in (part.file, part.data) if file}
    assert {path.name for path in folder.iterdir()} == listed
    for part in manifest.parts:
        onnx.checker.check_model(str(folder / part.file))
        model = hetero.Core().read_model(folder / part.file)
        assert [port.name for port in model.inputs] == [port.name for port in part.inputs]
        assert [port.name for port in model.outputs] == [port.name for port in part.outputs]
        assert model.num_nodes == part.num_nodes


@pytest.mark.parametrize("external_above", [None, 4096])
def test_a_convolutional_network(tmp_path: Path, external_above: int | None) -> None:
    proto, feeds = light("light_squeezenet")
    model = hetero.Core().read_model(proto)
    convolutions = [key for key in model.keys if model.nodes[model.index_of(key)].op_type == "Concat"]
    plan = plan_of(model, dict.fromkeys(convolutions, "BETA"))
    manifest = split(model, plan, tmp_path / "parts", external_above=external_above)
    assert [part.device for part in manifest.parts] == [subgraph.device for subgraph in plan.subgraphs]
    assert [part.num_nodes for part in manifest.parts] == [len(subgraph.nodes) for subgraph in plan.subgraphs]
    assert any(part.data for part in manifest.parts) == (external_above is not None)
    check_folder(tmp_path / "parts", manifest)
    found = run_example(tmp_path / "parts", feeds)
    for name, array in whole(proto.SerializeToString(), feeds).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-6)


def test_a_transformer_with_external_data(tmp_path: Path) -> None:
    proto, feeds = minilm()
    encoded = proto.SerializeToString()
    onnx.save_model(proto, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=1024)
    model = hetero.Core().read_model(tmp_path / "m.onnx")
    plan = plan_of(model, {".*LayerNorm.*": "BETA"})
    plan.save(tmp_path / "plan.json")
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    manifest = split(model, plan, tmp_path / "parts", external_above=1024)
    assert split(model, loaded, tmp_path / "again", external_above=1024) == manifest
    for path in (tmp_path / "parts").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    check_folder(tmp_path / "parts", manifest)
    (tmp_path / "weights.bin").unlink()
    found = run_example(tmp_path / "parts", feeds)
    for name, array in whole(encoded, feeds).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def ports(*names: str, dtype: int = TensorProto.FLOAT) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, dtype, [2, "n"]) for name in names]


def test_the_manifest_says_what_feeds_what(tmp_path: Path) -> None:
    """Inputs that are outputs, constants that are outputs, outputs listed twice, names that are no file's."""
    hostile = "../../etc/passwd\n"
    nodes = [
        helper.make_node("Neg", ["x"], [hostile], name=hostile),
        helper.make_node("Add", [hostile, "w"], ["b"], name="add"),
        helper.make_node("Mul", [hostile, "b"], ["y"], name="mul"),
        helper.make_node("Constant", [], ["k"], value_floats=[1.0, 2.0]),
    ]
    weight = numpy_helper.from_array(np.ones((2, 1), np.float32), "w")
    outputs = [*ports("y", hostile, "unused"), *ports("w"), helper.make_tensor_value_info("k", 1, [2])]
    graph = helper.make_graph(nodes, "../name", ports("x", "unused"), outputs, [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = hetero.Core().read_model(proto)
    manifest = hetero.split(model, plan_of(model, {"add": "BETA"}), tmp_path / "parts")
    check_folder(tmp_path / "parts", manifest)

    def tensor(name: str) -> Tensor:
        return Tensor(name, "float32", (2, "n"))

    def fed(name: str, part: int | None, index: int, shape: tuple[int | str, ...] = (2, "n")) -> PartInput:
        return PartInput(name, "float32", shape, Source(part, index))

    constants = (Tensor("w", "float32", (2, 1)), Tensor("k", "float32", (2,)))
    assert manifest == Manifest(
        "hetero-split",
        1,
        "../name",
        ("ALPHA", "BETA"),
        (tensor("x"), tensor("unused")),
        (
            fed("y", 2, 0),
            fed(hostile, 0, 0),
            fed("unused", None, 1),
            fed("w", 3, 0, (2, 1)),
            fed("k", 3, 1, (2,)),
        ),
        (
            Part("ALPHA", "subgraph_1.onnx", None, 1, (fed("x", None, 0),), (tensor(hostile),), 1),
            Part("BETA", "subgraph_2.onnx", None, 1, (fed(hostile, 0, 0),), (tensor("b"),), 2),
            Part("ALPHA", "subgraph_3.onnx", None, 1, (fed(hostile, 0, 0), fed("b", 1, 0)), (tensor("y"),), 3),
            Part(None, "constants.onnx", None, 0, (), constants),
        ),
    )
    feeds = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(("x", "unused"))}
    expected = whole(proto.SerializeToString(), feeds)
    sys.path.insert(0, str(EXAMPLE.parent))
    try:
        from run_split import SplitModel
    finally:
        del sys.path[0]
    found = SplitModel(tmp_path / "parts")(feeds)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_functions_are_carried_or_inlined(tmp_path: Path) -> None:
    """One call is split over devices, the other stays whole."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    body = [helper.make_node("Neg", ["a"], ["b"], name="neg"), helper.make_node("Exp", ["b"], ["c"], name="exp")]
    function = helper.make_function("mine", "NegExp", ["a"], ["c"], body, opsets[:1])
    nodes = [
        helper.make_node("NegExp", ["x"], ["h"], domain="mine", name="first"),
        helper.make_node("NegExp", ["h"], ["y"], domain="mine", name="second"),
    ]
    graph = helper.make_graph(nodes, "calls", ports("x"), ports("y"))
    proto = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    model = hetero.Core().read_model(proto)
    plan = plan_of(model, {"first/exp": "BETA"})
    assert [subgraph.nodes for subgraph in plan.subgraphs] == [("first/neg",), ("first/exp",), ("second",)]
    plan.save(tmp_path / "plan.json")
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    manifest = split(model, plan, tmp_path / "parts")
    assert split(model, loaded, tmp_path / "again") == manifest
    feeds = {"x": np.array([[1, 2], [3, 4]], np.float32)}
    found = run_example(tmp_path / "again", feeds)
    np.testing.assert_allclose(found["y"], whole(proto.SerializeToString(), feeds)["y"], rtol=1e-6)


def test_a_folder_is_complete_or_not_there(tmp_path: Path) -> None:
    model = hetero.Core().read_model(make_model([helper.make_node("Relu", ["x"], ["y"], name="r")]))
    plan = plan_of(model, {})
    (tmp_path / "empty").mkdir()
    split(model, plan, tmp_path / "empty")
    for taken in (tmp_path / "empty", EXAMPLE):
        with pytest.raises(hetero.HeteroError, match="it exists and is not an empty folder"):
            split(model, plan, taken)
    with pytest.raises(hetero.HeteroError, match="nowhere"):
        split(model, plan, tmp_path / "nowhere" / "parts")
    external = TensorProto(name="w", data_type=1, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    external.external_data.add(key="location", value="missing.bin")
    proto = make_model([helper.make_node("Add", ["x", "w"], ["y"])])
    proto.graph.initializer.append(external)
    model = hetero.Core().read_model(proto.SerializeToString())
    with pytest.raises(hetero.ModelError, match="initializer 'w'"):
        split(model, plan_of(model, {}), tmp_path / "failed")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_what_nobody_reads_is_left_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["unread"], name="n"), helper.make_node("Relu", ["x"], ["y"], name="r")]
    model = hetero.Core().read_model(make_model(nodes))
    plan = plan_of(model, {"r": "BETA"})
    assert plan.num_subgraphs == 2
    manifest = split(model, plan, tmp_path / "parts")
    check_folder(tmp_path / "parts", manifest)
    assert [(part.device, part.file, part.subgraph) for part in manifest.parts] == [("BETA", "subgraph_2.onnx", 2)]
    feeds = {"x": np.full((2, 3), -1, np.float32)}
    assert run_example(tmp_path / "parts", feeds)["y"].tolist() == np.zeros((2, 3)).tolist()


def test_a_boundary_value_without_type_is_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frob", ["x"], ["a"], domain="mine", name="frob"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    proto = make_model(nodes)
    proto.opset_import.add(domain="mine", version=1)
    model = hetero.Core().read_model(proto)
    with pytest.raises(hetero.ModelError, match=r"element type of value 'a', which node 'frob'.*model\.with_types"):
        split(model, plan_of(model, {"relu": "BETA"}), tmp_path / "parts")
    typed = model.with_types({"a": (np.float32, (2, 3))})
    manifest = split(typed, plan_of(typed, {"relu": "BETA"}), tmp_path / "parts")
    assert manifest.parts[1].inputs[0].shape == (2, 3)


def test_plans_for_other_models_are_refused(tmp_path: Path) -> None:
    core = hetero.Core()
    one = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"], name="one")]))
    two = core.read_model(
        make_model([helper.make_node("Relu", ["x"], ["a"], name="one"), helper.make_node("Relu", ["a"], ["y"])])
    )
    with pytest.raises(hetero.PropertyError, match="the plan has no device for node 'y' of model 'graph'"):
        split(two, plan_of(one, {}), tmp_path / "parts")
    with pytest.raises(hetero.PropertyError, match="the plan places node 'y', which model 'graph' does not have"):
        split(one, plan_of(two, {}), tmp_path / "parts")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "'other'.*format"),
        ({"version": 2}, r"version"),
        ({"parts": [{}]}, r"parts\[0\]"),
        ({"inputs": []}, "number 0 of the model's inputs, but there are 0"),
        ("file", r"'\.\./x' is not the name of a file in the folder"),
        ("source", "input 'x' comes from part 0, expected one of the 0 earlier parts"),
        ("index", "output 'y' comes from number 7 of part 0's outputs, but there are 1"),
        ("text", "truncated"),
        ("missing", "cannot read"),
    ],
)
def test_manifests_refused(tmp_path: Path, change: Any, message: str) -> None:
    model = hetero.Core().read_model(make_model([helper.make_node("Relu", ["x"], ["y"], name="r")]))
    split(model, plan_of(model, {}), tmp_path / "parts")
    path = tmp_path / "parts" / "manifest.json"
    content = json.loads(path.read_text())
    if change == "file":
        content["parts"][0]["file"] = "../x"
    elif change == "source":
        content["parts"][0]["inputs"][0]["source"]["part"] = 0
    elif change == "index":
        content["outputs"][0]["source"]["index"] = 7
    elif isinstance(change, dict):
        content.update(change)
    path.write_text("{" if change == "text" else json.dumps(content))
    if change == "missing":
        path.unlink()
    with pytest.raises(hetero.HeteroError, match=message):
        read_manifest(tmp_path / "parts")
