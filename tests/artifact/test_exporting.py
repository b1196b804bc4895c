"""Exported models: what comes back is what went out, on every device."""

from __future__ import annotations

import io
import json
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from exported_models import PACKED, X, bits, network
from hetero.artifact import verify

Load = Callable[[str], tuple[onnx.ModelProto, dict[str, np.ndarray]]]
DEVICES = (
    "CPU",
    "TEMPLATE",
    "FPGA",
    "HETERO:CPU,TEMPLATE",
    "HETERO:FPGA,CPU",
    "MULTI:CPU,CPU.1",
    "ORT",
    "HETERO:ORT,CPU",
)


@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")
@pytest.mark.parametrize("device", DEVICES)
def test_an_imported_model_gives_the_same_bits(core: hetero.Core, tmp_path: pathlib.Path, device: str) -> None:
    if "ORT" in device:
        pytest.importorskip("onnxruntime")
    compiled = core.compile_model(core.read_model(network(turned=device != "FPGA")), device)
    expected = [bits(compiled(x)) for x in (X, X[:1])]
    compiled.export_model(tmp_path / "m.hetero")
    again = core.import_model(tmp_path / "m.hetero", device)
    assert again.inputs == compiled.inputs
    assert again.outputs == compiled.outputs
    assert [port.declared for port in again.outputs] == [port.declared for port in compiled.outputs]
    assert again.device == compiled.device
    for name in ("NETWORK_NAME", "EXECUTION_DEVICES", "LOADED_FROM_CACHE"):
        assert again.get_property(name) == compiled.get_property(name)
    assert [bits(again(x)) for x in (X, X[:1])] == expected
    assert bits(again(np.ones((3, 48), np.float32))) == bits(compiled(np.ones((3, 48), np.float32)))  # a new shape


@pytest.mark.spread(2)
@pytest.mark.parametrize("device", ["CPU", "HETERO:FPGA,CPU", "HETERO:CPU,TEMPLATE"])
@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")
@pytest.mark.parametrize("name", ["minilm", "light_squeezenet", "silero_vad"])
def test_real_models(core: hetero.Core, real_model: Load, tmp_path: pathlib.Path, name: str, device: str) -> None:
    model, inputs = real_model(name)
    compiled = core.compile_model(core.read_model(model), device)
    expected = bits(compiled(inputs))
    compiled.export_model(tmp_path / "m.hetero")
    verify(tmp_path / "m.hetero")
    assert bits(hetero.load(tmp_path / "m.hetero")(inputs)) == expected


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE", "HETERO:TEMPLATE,CPU"])
def test_scalars_that_are_stored_keep_their_shape(core: hetero.Core, tmp_path: pathlib.Path, device: str) -> None:
    """Constants that are outputs, and a result that was computed during compilation."""
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=2.5),
        helper.make_node("Neg", ["w"], ["b"]),
        helper.make_node("Exp", ["x"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "abwy"]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])
    graph = helper.make_graph(nodes, "g", [x], outputs, [numpy_helper.from_array(np.array(-3, np.float32), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = core.compile_model(core.read_model(model), device)
    compiled.export_model(tmp_path / "m.hetero")
    a, b, w, _ = core.import_model(tmp_path / "m.hetero", device)(np.ones(3, np.float32)).values()
    assert [(array.shape, float(array)) for array in (a, b, w)] == [((), 2.5), ((), 3), ((), -3)]


def test_exporting_again_gives_the_same_file(core: hetero.Core) -> None:
    compiled = core.compile_model(core.read_model(network()), "CPU")
    compiled(X)
    files = []
    for _ in range(2):
        stream = io.BytesIO()
        compiled.export_model(stream)
        files.append(stream.getvalue())
        compiled = core.import_model(stream.getvalue(), "CPU")
    assert files[0] == files[1]


def test_streams(core: hetero.Core, tmp_path: pathlib.Path) -> None:
    compiled = core.compile_model(core.read_model(network()), "CPU")
    stream = io.BytesIO()
    compiled.export_model(stream)
    compiled.export_model(tmp_path / "m.hetero")
    assert (tmp_path / "m.hetero").read_bytes() == stream.getvalue() == compiled.export_model()
    assert bits(core.import_model(compiled.export_model())(X)) == bits(compiled(X))
    stream.seek(0)
    assert bits(core.import_model(stream, "CPU")(X)) == bits(compiled(X))
    with open(tmp_path / "m.hetero", "rb") as file:
        assert bits(core.import_model(file, "CPU.1")(X)) == bits(compiled(X))
    with pytest.raises(TypeError, match="int"):
        compiled.export_model(3)
    with pytest.raises(TypeError, match="int"):
        core.import_model(3, "CPU")


def test_weights_are_mapped_and_packed_ones_are_not_packed_again(core: hetero.Core, tmp_path: pathlib.Path) -> None:
    compiled = core.compile_model(core.read_model(network()), "CPU", PACKED)
    compiled.export_model(tmp_path / "m.hetero")  # without a run before: planned for a guess
    again = core.import_model(tmp_path / "m.hetero", "CPU")
    packed = again._plans.planner.packed
    before = {key: array.ctypes.data for key, (_, array) in packed.items()}
    assert len(before) == 2
    again(X)
    assert {key: array.ctypes.data for key, (_, array) in packed.items()} == before
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    ((begin, end),) = [
        [int(bound, 16) for bound in line.split()[0].split("-")]
        for line in maps
        if line.endswith(str(tmp_path / "m.hetero"))
    ]
    for _, array in packed.values():
        assert begin <= array.ctypes.data < end
        assert array.ctypes.data % 64 == 0
        assert not array.flags.writeable
    assert again._plans.planner.folded == {2}


def test_weights_are_stored_once(core: hetero.Core, tmp_path: pathlib.Path) -> None:
    """Neither packed weights nor large results of folded nodes are stored beside the model's own."""
    model = core.read_model(network())
    compiled = core.compile_model(model, "CPU")
    expected = bits(compiled(X))
    assert compiled._plans.planner.packed
    compiled.export_model(tmp_path / "m.hetero")
    with zipfile.ZipFile(tmp_path / "m.hetero") as archive:
        weights = [info.file_size for info in archive.infolist() if info.filename.startswith("weights/")]
        stored = json.loads(archive.read("submodels/0/cpu.json"))
    assert sorted(weights) == [4 * 32 * 64, 4 * 48 * 64]
    assert stored["folded"] == {"nodes": [], "values": {}}
    assert stored["packed"] == []
    again = core.import_model(tmp_path / "m.hetero", "CPU")
    assert again._plans.planner.folded == {2}
    assert bits(again(X)) == expected


@pytest.mark.parametrize("config", [{}, PACKED])
def test_results_of_folded_nodes_of_any_size(core: hetero.Core, config: dict[str, Any]) -> None:
    """A small result of a large one, a large one of a small one, one that is an output, one without elements, and one
    that another large one reads."""
    random = np.random.default_rng(0)
    constants = {
        "large": random.standard_normal((64, 48)).astype(np.float32),
        "one": np.array(2, np.float32),
        "sizes": np.array([64, 40], np.int64),
        "none": np.zeros((0, 4), np.float32),
    }
    nodes = [
        helper.make_node("Transpose", ["large"], ["turned"], name="turn"),
        helper.make_node("ReduceMax", ["turned"], ["highest"], keepdims=0, name="reduce"),
        helper.make_node("Mul", ["highest", "one"], ["factor"], name="scale"),
        helper.make_node("Expand", ["factor", "sizes"], ["second"], name="expand"),
        helper.make_node("Neg", ["second"], ["negative"], name="negate"),
        helper.make_node("Exp", ["none"], ["empty"], name="nothing"),
        helper.make_node("MatMul", ["x", "turned"], ["a"], name="first product"),
        helper.make_node("MatMul", ["a", "negative"], ["b"], name="second product"),
        helper.make_node("Mul", ["b", "factor"], ["y"], name="last"),
    ]
    value = helper.make_tensor_value_info
    outputs = [value("y", 1, ["n", 40]), value("turned", 1, [48, 64]), value("empty", 1, [0, 4])]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "folds", [value("x", 1, ["n", 48])], outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = core.compile_model(core.read_model(model), "CPU", config)
    assert compiled._plans.planner.folded == {0, 1, 2, 3, 4, 5}
    expected = bits(compiled(X))
    stream = io.BytesIO()
    compiled.export_model(stream)
    with zipfile.ZipFile(stream) as archive:
        folded = json.loads(archive.read("submodels/0/cpu.json"))["folded"]
    if config:
        assert folded["nodes"] == [0, 1, 2, 3, 4, 5]
        assert set(folded["values"]) == {"turned", "negative", "factor", "empty"}
    else:  # the import computes the large ones, from the small ones and from the model's own
        assert folded["nodes"] == [1, 2, 5]
        assert set(folded["values"]) == {"factor", "empty"}
    again = core.import_model(stream.getvalue(), "CPU")
    assert again._plans.planner.folded == {0, 1, 2, 3, 4, 5}
    assert bits(again(X)) == expected
    assert bits(again(X[:1])) == bits(compiled(X[:1]))


def test_packed_weights_of_other_kernels_are_packed_again(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    from hetero.devices.cpu import stored

    compiled = core.compile_model(core.read_model(network()), "CPU", PACKED)
    stream = io.BytesIO()
    compiled.export_model(stream)
    monkeypatch.setattr(stored, "PACKING_VERSION", 999)
    again = core.import_model(stream.getvalue(), "CPU")
    assert not again._plans.planner.packed
    assert bits(again(X)) == bits(compiled(X))


@pytest.mark.parametrize("hint", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("transform", [False, True])
def test_properties_that_shape_results_come_along(core: hetero.Core, hint: str, transform: bool) -> None:
    config = {"INFERENCE_PRECISION_HINT": hint, "DISABLE_TRANSFORMATIONS": not transform}
    compiled = core.compile_model(core.read_model(network()), "CPU", {**PACKED, **config})
    stream = io.BytesIO()
    compiled.export_model(stream)
    again = core.import_model(stream.getvalue(), "CPU")
    for name, value in config.items():
        assert again.get_property(name) == value
    assert bits(again(X)) == bits(compiled(X))
    assert len(again._plans.planner.packed) == 2
    plain = core.import_model(stream.getvalue(), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert bits(plain(X)) == bits(core.compile_model(core.read_model(network()), "CPU")(X))
    timed = core.import_model(stream.getvalue(), "CPU", {"PERF_COUNT": True}).create_infer_request()
    timed.infer(X)
    assert [row.node for row in timed.profiling_info] == ["one", "two", "turn", "three"]


def test_control_flow_and_its_packed_weights(core: hetero.Core) -> None:
    random = np.random.default_rng(0)

    def branch(name: str) -> onnx.GraphProto:
        inner = numpy_helper.from_array(random.standard_normal((48, 48)).astype(np.float32), f"{name}_weight")
        nodes = [
            helper.make_node("MatMul", ["x", f"{name}_weight"], [f"{name}_own"]),
            helper.make_node("MatMul", [f"{name}_own", "shared"], [name]),
        ]
        info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 40])
        return helper.make_graph(nodes, name, [], [info], [inner])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("yes"), else_branch=branch("no"), name="choose")
    graph = helper.make_graph(
        [node],
        "choice",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 48]),
            helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 40])],
        [numpy_helper.from_array(random.standard_normal((48, 40)).astype(np.float32), "shared")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = core.compile_model(core.read_model(model), "CPU", PACKED)
    feeds: list[Mapping[str, np.ndarray]] = [{"x": X, "c": np.array(value)} for value in (True, False)]
    expected = [bits(compiled(feed)) for feed in feeds]
    stream = io.BytesIO()
    compiled.export_model(stream)
    again = core.import_model(stream.getvalue(), "CPU")
    assert len(again._plans.planner.packed) == 3
    assert [bits(again(feed)) for feed in feeds] == expected
    assert len(again._plans.planner.packed) == 3


def test_batch_normalization_folded_into_packed_weights(core: hetero.Core) -> None:
    random = np.random.default_rng(0)
    constants = {
        "w": random.standard_normal((32, 16, 3, 3)),
        "gain": random.uniform(0.5, 2, 32),
        "shift": random.standard_normal(32),
        "mean": random.standard_normal(32),
        "variance": random.uniform(0.5, 2, 32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "gain", "shift", "mean", "variance"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "folded",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 16, 12, 12])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 32, 10, 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = core.compile_model(core.read_model(model), "CPU", PACKED)
    x = random.standard_normal((1, 16, 12, 12)).astype(np.float32)
    expected = bits(compiled(x))
    stream = io.BytesIO()
    compiled.export_model(stream)
    again = core.import_model(stream.getvalue(), "CPU")
    before = len(again._plans.planner.packed)
    assert before
    assert bits(again(x)) == expected
    assert len(again._plans.planner.packed) == before


def test_types_that_were_inferred_are_not_inferred_again(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Split", ["f"], ["y", "z"], num_outputs=2),
        helper.make_node("Relu", ["z"], ["w"]),
    ]
    model = _untyped(nodes)
    compiled = core.compile_model(core.read_model(model), "CPU")
    stream = io.BytesIO()
    compiled.export_model(stream)

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("inferred again")

    monkeypatch.setattr("hetero.model.inference.infer_types", fail)
    again = core.import_model(stream.getvalue(), "CPU")
    x = np.zeros((2, 3), np.float32)
    assert bits(again(x)) == bits(compiled(x))
    assert again.outputs == compiled.outputs


def _untyped(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "untyped",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m"])],
        [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_other_tools_can_read_the_archive(core: hetero.Core, tmp_path: pathlib.Path) -> None:
    core.compile_model(core.read_model(network()), "HETERO:CPU").export_model(tmp_path / "m.hetero")
    with zipfile.ZipFile(tmp_path / "m.hetero") as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        manifest = json.loads(archive.read("manifest.json"))
        assert names == ["manifest.json", *(entry["name"] for entry in manifest["entries"])]
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        model = onnx.ModelProto.FromString(archive.read("submodels/1/model.onnx"))
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Relu", "Transpose", "MatMul"]
    assert manifest["submodels"][0]["device"] == "HETERO:CPU"
    assert manifest["submodels"][1]["plugin"]["name"] == "CPU"


def test_a_device_that_exports_nothing_says_so(core: hetero.Core, tmp_path: pathlib.Path) -> None:
    class Silent(hetero.Plugin):
        name = "SILENT"

        def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> hetero.Support:
            return hetero.Support.from_reasons(model.num_nodes, {})

        def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: Any = None) -> Any:
            return SilentModel(self.name, model.inputs, model.outputs)

    class SilentModel(hetero.CompiledModel):
        def create_runner(self) -> Any:
            raise AssertionError

    core.register_plugin("SILENT", Silent)
    model = core.read_model(network())
    for device in ("SILENT", "HETERO:SILENT"):
        with pytest.raises(hetero.NotSupported, match="SILENT cannot export"):
            core.compile_model(model, device).export_model(tmp_path / "m.hetero")
    assert not list(tmp_path.iterdir())
