"""Models from streams, and external data from memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from model_zoo import make_model

X = np.float32([[1, -2, 3], [-4, 5, 6]])
W = np.arange(3, dtype=np.float32)


def external(name: str, location: str, offset: int = 0, size: int = 3) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=1, dims=[size], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(4 * size))):
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.fixture
def model() -> onnx.ModelProto:
    """y = x * w + v, with w and v in two files."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "v"], ["y"])]
    model = make_model(nodes)
    model.graph.initializer.extend([external("w", "./w.bin", 4), external("v", "sub/v.bin")])
    return model


FILES = {"w.bin": b"\0\0\0\0" + W.tobytes(), "sub/./v.bin": (W + 1).tobytes()}
DEVICES = ("CPU", "TEMPLATE", "HETERO:TEMPLATE,CPU", "ORT", "OPENVINO")


def test_a_stream(core: hetero.Core, tmp_path: Path) -> None:
    data = make_model([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with path.open("rb") as file:
        for source in (io.BytesIO(data), file):
            model = core.read_model(source)
            np.testing.assert_array_equal(core.compile_model(model, "CPU")(X)["y"], np.maximum(X, 0))
            with pytest.raises(hetero.ModelError, match=r"<stream>: the data is empty.*seek\(0\)"):
                core.read_model(source)
            source.seek(0)
            assert hetero.compile(source)(X)["y"].shape == (2, 3)
    behind = io.BytesIO(b"skip" + data)
    behind.seek(4)
    assert core.read_model(behind).num_nodes == 1
    with pytest.raises(TypeError, match="expected a binary stream, got a text stream: open the file with mode 'rb'"):
        core.read_model(io.StringIO("text"))  # type: ignore[arg-type]
    text = tmp_path / "text"
    text.write_bytes(b"\xff")
    with text.open() as stream, pytest.raises(TypeError, match="got a text stream"):
        core.read_model(stream)  # type: ignore[arg-type]


def test_a_program_of_torch(core: hetero.Core) -> None:
    class ONNXProgram:
        model_proto = make_model([helper.make_node("Relu", ["x"], ["y"])])

    assert core.read_model(ONNXProgram()).num_nodes == 1  # type: ignore[arg-type]
    linear = type("Linear", (), {"__module__": "torch.nn.modules.linear"})
    with pytest.raises(TypeError, match=r"got Linear, a module of PyTorch: export it with torch\.onnx\.export"):
        core.read_model(linear())


def test_an_exported_model_from_a_stream(core: hetero.Core) -> None:
    compiled = core.compile_model(make_model([helper.make_node("Relu", ["x"], ["y"])]), "CPU")
    stream = io.BytesIO()
    compiled.export_model(stream)
    with pytest.raises(hetero.Corrupt, match=r"the data is empty.*seek\(0\)"):
        core.import_model(stream)
    stream.seek(0)
    np.testing.assert_array_equal(core.import_model(stream)(X)["y"], np.maximum(X, 0))


@pytest.mark.parametrize("device", DEVICES)
def test_external_data_in_memory(core: hetero.Core, model: onnx.ModelProto, device: str, tmp_path: Path) -> None:
    if device in ("ORT", "OPENVINO"):
        pytest.importorskip("onnxruntime" if device == "ORT" else "openvino")
    expected = X * W + (W + 1)
    kinds: tuple[Callable[[bytes], object], ...] = (bytes, bytearray, memoryview, array_of)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    (tmp_path / "w.bin").write_bytes(bytes(16))  # memory goes before files
    for kind in kinds:
        files = {name: kind(data) for name, data in FILES.items()}
        for source in (model, model.SerializeToString(), path):
            read = core.read_model(source, external_data=files)  # type: ignore[arg-type]
            compiled = core.compile_model(read, device)
            np.testing.assert_array_equal(compiled(X)["y"], expected)
    stream = io.BytesIO()
    compiled.export_model(stream)
    np.testing.assert_array_equal(core.import_model(stream.getvalue())(X)["y"], expected)


def array_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.float32)


@pytest.mark.parametrize("array", [np.zeros(3, ">f4"), np.zeros(3, object), np.array(["a"]), np.zeros(1, "i4,i4")])
def test_arrays_that_are_not_plain_numbers(core: hetero.Core, model: onnx.ModelProto, array: np.ndarray) -> None:
    with pytest.raises(TypeError, match="external_data: expected bytes for a location, got 'w.bin'"):
        core.read_model(model, external_data={**FILES, "w.bin": array})


def test_a_warning_of_a_location_that_the_model_does_not_read(core: hetero.Core, model: onnx.ModelProto) -> None:
    with pytest.warns(RuntimeWarning, match=r"external_data has 'w\.bim', which <ModelProto> does not.*mean w\.bin\?"):
        core.read_model(model, external_data={"w.bim": b"", "sub/v.bin": b""})


def test_derived_and_saved_models(core: hetero.Core, model: onnx.ModelProto, tmp_path: Path) -> None:
    read = core.read_model(model, external_data=FILES)
    expected = X * W + (W + 1)
    for derived in (read.with_affinity({}), read.with_outputs(["m", "y"]), core.read_model(read.to_bytes())):
        np.testing.assert_array_equal(core.compile_model(derived, "CPU")(X)["y"], expected)
    for above in (0, 1 << 20):
        read.save(tmp_path / "saved.onnx", external_above=above)
        np.testing.assert_array_equal(core.compile_model(tmp_path / "saved.onnx", "CPU")(X)["y"], expected)
    for device in ("CPU", "HETERO:FPGA,CPU"):
        isolated = core.compile_model(read, "CPU", {"ISOLATION": "PROCESS"}) if device == "CPU" else None
        if isolated is not None:
            np.testing.assert_array_equal(isolated(X)["y"], expected)
        core.compile_model(read, device, {"CACHE_DIR": str(tmp_path / "cache")})
        again = core.compile_model(read, device, {"CACHE_DIR": str(tmp_path / "cache")})
        assert again.get_property("LOADED_FROM_CACHE")
        np.testing.assert_array_equal(again(X)["y"], expected)
    other = {**FILES, "w.bin": bytes(16)}
    changed = core.compile_model(
        core.read_model(model, external_data=other), "CPU", {"CACHE_DIR": str(tmp_path / "cache")}
    )
    np.testing.assert_array_equal(changed(X)["y"], np.broadcast_to(W + 1, (2, 3)))


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "ORT"])
def test_external_data_of_nested_graphs(core: hetero.Core, device: str, tmp_path: Path) -> None:
    if device == "ORT":
        pytest.importorskip("onnxruntime")
    branch = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", 1, [2, 3])],
        [external("w", "w.bin", 4)],
    )
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    model = make_model(nodes, weights={"c": np.array(True)})
    (tmp_path / "w.bin").write_bytes(bytes(16))
    for folder in (None, tmp_path):
        read = core.read_model(model, folder=folder, external_data={"w.bin": FILES["w.bin"]})
        np.testing.assert_array_equal(core.compile_model(read, device)(X)["y"], X * W)
    read = core.read_model(model, folder=tmp_path)
    assert not core.compile_model(read, device)(X)["y"].any()


def test_refused(core: hetero.Core, model: onnx.ModelProto) -> None:
    def run(files: dict[str, bytes]) -> None:
        core.compile_model(core.read_model(model, external_data=files), "CPU")(X)

    with pytest.raises(hetero.ModelError, match=r"'sub/v\.bin': the model's folder is unknown .*external_data="):
        run({"w.bin": FILES["w.bin"]})
    with pytest.raises(hetero.ModelError, match=r"'w\.bin' has 15 bytes, but the tensor needs bytes 4 to 16"):
        run({**FILES, "w.bin": bytes(15)})
    with pytest.raises(hetero.ModelError, match=r"'w\.bin' has 0 bytes"):
        run({**FILES, "w.bin": b""})
    with pytest.raises(ValueError, match="a location twice"):
        run({**FILES, "./w.bin": b""})
    for wrong in ([("w.bin", b"")], "w.bin", {"w.bin": "text"}, {0: b""}):
        with pytest.raises(TypeError, match="external_data: expected"):
            core.read_model(model, external_data=wrong)  # type: ignore[arg-type]


def test_writable_buffers_are_copied(core: hetero.Core, model: onnx.ModelProto) -> None:
    buffer = bytearray(FILES["w.bin"])
    read = core.read_model(model, external_data={**FILES, "w.bin": buffer})
    buffer[:] = bytes(16)
    np.testing.assert_array_equal(core.compile_model(read, "CPU")(X)["y"], X * W + (W + 1))
