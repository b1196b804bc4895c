"""Inputs with a default, which may be given or left out (IR version 4 and later)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero

X = np.float32([[1, -2, 3], [-4, 5, -6]])
DEVICES = ("CPU", "TEMPLATE", "HETERO:FPGA,CPU", "MULTI:CPU,TEMPLATE")


def proto(ir_version: int = 8, rows: int | str = 2) -> onnx.ModelProto:
    """Relu(x * w) + b, reshaped to ``size``: all but x have defaults."""
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "w"], ["a"], "mul"),
            helper.make_node("Relu", ["a"], ["r"], "relu"),
            helper.make_node("Add", ["r", "b"], ["c"], "add"),
            helper.make_node("Reshape", ["c", "size"], ["y"], "reshape"),
        ],
        "defaults",
        [
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3]),
            helper.make_tensor_value_info("size", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["p", "q"])],
        [
            numpy_helper.from_array(np.float32([1, 2, 3]), "w"),
            numpy_helper.from_array(np.float32([10]), "b"),
            numpy_helper.from_array(np.int64([3, 2]), "size"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)


def expected(x: Any = X, w: Any = (1, 2, 3), b: Any = 10, size: Any = (3, 2)) -> np.ndarray:
    return (np.maximum(x * np.float32(w), 0) + np.float32(b)).reshape(size)


CALLS: tuple[dict[str, Any], ...] = (
    {},
    {"w": np.float32([3, -1, 0])},
    {"b": np.float32([-1])},
    {"size": np.int64([1, 6])},
    {"w": np.float32([1, 1, 1]), "b": np.float32([0]), "size": np.int64([6, 1])},
    {},
)


@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")  # the size of y depends on data
@pytest.mark.parametrize("device", DEVICES)
def test_given_or_left_out(core: hetero.Core, device: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(proto().SerializeToString(), providers=["CPUExecutionProvider"])
    model = core.read_model(proto())
    assert model.default_inputs == ("w", "size", "b")
    assert [port.name for port in model.inputs] == ["x"]
    compiled = core.compile_model(model.with_inputs(["size", "w", "b"]), device)
    assert [port.name for port in compiled.inputs] == ["w", "x", "size", "b"]
    request = compiled.create_infer_request()
    for given in (*CALLS, *reversed(CALLS)):
        for run in (compiled, request.infer):
            (found,) = run({"x": X, **given})
            np.testing.assert_array_equal(found, expected(**given))
            np.testing.assert_array_equal(found, session.run(None, {"x": X, **given})[0])


@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")  # the size of y depends on data
@pytest.mark.parametrize("device", DEVICES)
def test_some_of_them(core: hetero.Core, device: str) -> None:
    """The others stay constants."""
    model = core.read_model(proto()).with_inputs(["w"])
    assert model.default_inputs == ("size", "b")
    assert [port.name for port in model.inputs] == ["w", "x"]
    compiled = core.compile_model(model, device)
    w = np.float32([2, 2, 2])
    np.testing.assert_array_equal(compiled({"x": X, "w": w})[0], expected(w=w))
    np.testing.assert_array_equal(compiled({"x": X})[0], expected())
    with pytest.raises(hetero.InferenceError, match=r"no input 'b'"):
        compiled({"x": X, "b": np.float32([1])})
    with pytest.raises(hetero.InferenceError, match=r"no input 'foo'.*its inputs: w, x"):
        compiled({"x": X, "foo": w})  # as many inputs as the model has
    with pytest.raises(hetero.InferenceError, match=r"input 'x' is missing"):
        compiled({"w": w})
    with pytest.raises(hetero.InferenceError, match=r"input 'w': expected float32 \[3\]"):
        compiled({"x": X, "w": np.float32([1])})
    again = model.with_inputs(["b"])
    assert [port.name for port in again.inputs if port.default is not None] == ["w", "b"]
    found = core.compile_model(again, device)({"x": X, "b": np.float32([1])})[0]
    np.testing.assert_array_equal(found, expected(b=1))


def test_without_it_they_are_constants(core: hetero.Core) -> None:
    compiled = core.compile_model(proto(), "CPU")
    np.testing.assert_array_equal(compiled(X)[0], expected())
    with pytest.raises(hetero.InferenceError, match=r"the model has no input 'w'"):
        compiled({"x": X, "w": np.float32([1, 1, 1])})


def test_shapes_do_not_come_from_a_default(core: hetero.Core) -> None:
    """The size of y follows from the constant ``size``, but not from an input of that name."""
    model = core.read_model(proto())
    assert model.type_of(model.value_id("c")).shape == (2, 3)
    opened = model.with_inputs(["size"])
    compiled = core.compile_model(opened, "CPU")
    for size in ([6, 1], [3, 2], [1, 6]):
        assert compiled({"x": X, "size": np.int64(size)})[0].shape == tuple(size)
    assert core.compile_model(opened, "CPU")({"x": X})[0].shape == (3, 2)
    without = proto()
    without.graph.output[0].type.tensor_type.ClearField("shape")
    for one in (core.read_model(without), core.read_model(proto(rows="n")).with_types({"x": (None, (2, 3))})):
        assert one.outputs[0].shape == (3, 2)
        opened = one.with_inputs(["size"])
        assert opened.outputs[0].shape != (3, 2)
        assert core.compile_model(opened, "CPU")({"x": X, "size": np.int64([6, 1])})[0].shape == (6, 1)


def test_older_files_have_none(core: hetero.Core) -> None:
    model = core.read_model(proto(ir_version=3))
    assert model.default_inputs == ()
    with pytest.raises(hetero.ModelError, match=r"no input 'w' with a default; inputs with a default: none"):
        model.with_inputs(["w"])
    with pytest.raises(hetero.ModelError, match=r"no input 'W' with a default \(did you mean w\?\); .*: w, size, b"):
        core.read_model(proto()).with_inputs(["W"])
    with pytest.raises(hetero.ModelError, match=r"with_inputs: expected a list of names, found 'w'; write \['w'\]"):
        core.read_model(proto()).with_inputs("w")
    assert core.read_model(proto()).with_inputs([]).inputs == core.read_model(proto()).inputs


def test_with_shapes_parts_and_affinities(core: hetero.Core) -> None:
    model = core.read_model(proto(rows="n")).with_affinity({"add": "TEMPLATE"}).with_inputs(["w", "b"])
    assert dict(model.affinity) == {"add": "TEMPLATE"}
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", shapes={"x": (2, 3)})
    assert set(compiled.get_property("EXECUTION_DEVICES")) == {"CPU", "TEMPLATE"}
    for given in ({}, {"b": np.float32([5])}, {"w": np.float32([0, 1, 0])}):
        np.testing.assert_array_equal(compiled({"x": X, **given})[0], expected(**given))
    only = model.with_outputs(["a"], keep=False)
    assert [port.name for port in only.inputs] == ["w", "x", "b"]
    np.testing.assert_array_equal(core.compile_model(only, "CPU")({"x": X})[0], X * np.float32([1, 2, 3]))


def test_cached_and_exported_models(core: hetero.Core, tmp_path: Path) -> None:
    """A cached model keeps its defaults; an exported one requires the inputs."""
    model = core.read_model(proto())
    config = {"CACHE_DIR": str(tmp_path / "cache")}
    for opened in (model, model.with_inputs(["w"]), model, model.with_inputs(["w"])):
        compiled = core.compile_model(opened, "CPU", config)
        np.testing.assert_array_equal(compiled({"x": X})[0], expected())
    core.compile_model(model.with_inputs(["w"]), "CPU").export_model(tmp_path / "m.hetero")
    imported = core.import_model(tmp_path / "m.hetero")
    w = np.float32([1, 1, 2])
    np.testing.assert_array_equal(imported({"x": X, "w": w})[0], expected(w=w))
    with pytest.raises(hetero.InferenceError, match="input 'w' is missing"):
        imported({"x": X})


def test_large_defaults_and_external_data(core: hetero.Core, tmp_path: Path) -> None:
    big = np.arange(5000, dtype=np.float32)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5000]) for name in ("x", "w", "y")]
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Mul", ["s", "k"], ["y"])]
    weights = [numpy_helper.from_array(big, "w"), numpy_helper.from_array(2 * big, "k")]
    graph = helper.make_graph(nodes, "g", ports[:2], ports[2:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "in.onnx")
    onnx.save(model, tmp_path / "out.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    x = np.ones(5000, np.float32)
    for name in ("in.onnx", "out.onnx"):
        compiled = core.compile_model(core.read_model(tmp_path / name).with_inputs(["w"]), "CPU")
        np.testing.assert_array_equal(compiled({"x": x})[0], (x + big) * 2 * big)
        np.testing.assert_array_equal(compiled({"x": x, "w": x})[0], 2 * x * 2 * big)
