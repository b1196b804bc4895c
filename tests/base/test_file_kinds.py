"""Files that are not ONNX files are called by their names, with what to do."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.base.file_kinds import describe_kind
from hetero.demo import light_model_path


def archive(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(name, b"contents")
    return stream.getvalue()


def saved(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def arrays() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.zeros(2))
    return stream.getvalue()


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


def tar() -> bytes:
    return b"model.onnx".ljust(257, b"\0") + b"ustar\x0000".ljust(255, b"\0")


LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."  # the start of torch.save before 1.6

KINDS = {
    "ts.pt": (archive("ts/data.pkl", "ts/code/__torch__.py", "ts/constants.pkl"), "a TorchScript model", "torch.onnx"),
    "sd.pt": (archive("sd/data.pkl", "sd/data/0", "sd/version"), "a PyTorch checkpoint", "torch.onnx.export"),
    "e.pt2": (archive("e/models/model.json", "e/archive_format"), "an ExportedProgram", "torch.export.load"),
    "old.pt": (LEGACY_TORCH, "a PyTorch checkpoint", "torch.load"),
    "p.pkl": (pickle.dumps({"a": 1}), "a Python pickle", "export it as ONNX"),
    "m.tflite": (b"\x1c\0\0\0TFL3" + bytes(64), "a TensorFlow Lite model", "tf2onnx.convert --tflite"),
    "m.ort": (b"\x1c\0\0\0ORTM" + bytes(64), "an onnxruntime model in ORT format", "ONNX file"),
    "m.pte": (b"\x1c\0\0\0ET12" + bytes(64), "an ExecuTorch program", "torch.onnx.export"),
    "ir.xml": (b'<?xml version="1.0"?>\n<net name="x" version="11"/>', "an OpenVINO IR", "converted from"),
    "bare.xml": (b'\n<net name="x" version="11"/>', "an OpenVINO IR", "converted from"),
    "other.xml": (b"<?xml version='1.0'?><a/>", "an XML file", "ONNX file"),
    "other.json": (b'{"a": 1}', "a JSON file", "ONNX file"),
    "list.json": (b"[\n  {}]", "a JSON file", "ONNX file"),
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\n", "a Git LFS pointer", "git lfs pull"),
    "page.onnx": (b"\n<!DOCTYPE html><html></html>", "an HTML page", "download"),
    "page2.onnx": (b"<HTML><body>404</body></HTML>", "an HTML page", "download"),
    "m.safetensors": (safetensors(), "a safetensors file", "ONNX"),
    "m.gguf": (b"GGUF\3\0\0\0" + bytes(64), "a GGUF file", "ONNX"),
    "m.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file, probably of Keras", "format='onnx'"),
    "m.keras": (archive("metadata.json", "config.json", "model.weights.h5"), "a Keras model", "format='onnx'"),
    "m.engine": (b"ftrt" + bytes(64), "a TensorRT engine", "ONNX file"),
    "photo.jpg": (b"\xff\xd8\xff\xe0" + bytes(64), "a JPEG image", "as an input"),
    "photo.png": (b"\x89PNG\r\n\x1a\n" + bytes(64), "a PNG image", "as an input"),
    "m.pdf": (b"%PDF-1.7\n", "a PDF document", "ONNX file"),
    "a.npy": (saved(np.zeros(2)), "a NumPy array", "as an input"),
    "a.npz": (arrays(), "a NumPy .npz file", "as an input"),
    "m.onnx.gz": (gzip.compress(b"model"), "data compressed by gzip", "gunzip"),
    "m.zip": (archive("readme", "some/model.onnx"), "a ZIP archive that contains 'some/model.onnx'", "unpack"),
    "x.zip": (archive("readme"), "a ZIP archive", "unpack"),
    "cut.zip": (archive("readme")[:40], "a ZIP archive", "unpack"),
    "m.nemo": (tar(), "a tar archive", "unpack"),
    "frozen.pb": (b"\x0a\x1b\x0a\x05input\x12\x0bPlaceholder", "a frozen TensorFlow graph", "--graphdef"),
    "saved_model.pb": (b"\x08\x01\x12\x10\x0a\x0e\x12\x0cPlaceholder", "a TensorFlow SavedModel", "--saved-model"),
    "m.json": (b'{"irVersion": "8", "graph": {}}', "an ONNX model in a text format", "onnx.save"),
    "m.textproto": (b"ir_version: 8\ngraph {\n}\n", "an ONNX model in a text format", "onnx.save"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_another_kind(name: str, tmp_path: Path) -> None:
    data, kind, remedy = KINDS[name]
    path = tmp_path / name
    path.write_bytes(data)
    for use in (hetero.Core().read_model, hetero.compile):
        for source in (path, data):
            with pytest.raises(hetero.ModelError) as caught:
                use(source)
            label = "<bytes>" if isinstance(source, bytes) else path
            assert str(caught.value).startswith(f"{label}: expected an ONNX file, found {kind}")
            assert remedy in str(caught.value)
    with pytest.raises(hetero.Corrupt, match=f"expected an exported model, found {kind}"):
        hetero.load(path)


def test_weights_of_openvino(tmp_path: Path) -> None:
    """They are raw numbers; the file beside them says what they are."""
    weights, graph = tmp_path / "m.bin", tmp_path / "m.xml"
    weights.write_bytes(np.arange(100, dtype=np.float32).tobytes())
    with pytest.raises(hetero.ModelError) as alone:
        hetero.Core().read_model(weights)
    assert "OpenVINO" not in str(alone.value)
    graph.write_bytes(b"<?xml version='1.0'?><html/>")
    with pytest.raises(hetero.ModelError) as other:
        hetero.Core().read_model(weights)
    assert str(other.value) == str(alone.value)
    graph.write_bytes(b'<?xml version="1.0"?><net name="x" version="11"/>')
    with pytest.raises(hetero.ModelError, match="found the weights of an OpenVINO IR: use the ONNX file that it was"):
        hetero.Core().read_model(weights)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_torch_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Twice(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x + x

    x = torch.zeros(3)
    torch.jit.save(torch.jit.trace(Twice(), x), tmp_path / "ts.pt")
    torch.save({"x": x}, tmp_path / "new.pt")
    torch.save({"x": x}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.export.save(torch.export.export(Twice(), (x,)), tmp_path / "e.pt2")
    for name, kind in (
        ("ts.pt", "a TorchScript model"),
        ("new.pt", "a PyTorch checkpoint"),
        ("old.pt", "a PyTorch checkpoint"),
        ("e.pt2", "an ExportedProgram of torch.export"),
    ):
        with pytest.raises(hetero.ModelError, match=f"found {kind}"):
            hetero.Core().read_model(tmp_path / name)


def test_onnx_and_exported_models_point_to_each_other(tmp_path: Path) -> None:
    source, exported = light_model_path("light_squeezenet"), tmp_path / "m.hetero"
    hetero.compile(source).export_model(exported)
    with pytest.raises(hetero.ModelError, match=r"found a model exported by hetero: load it with hetero\.load"):
        hetero.compile(exported)
    with pytest.raises(hetero.Corrupt, match=r"found an ONNX model: compile it with hetero\.compile"):
        hetero.load(source)
    exported.write_bytes(exported.read_bytes()[:-10])
    with pytest.raises(hetero.Corrupt, match="is truncated or encrypted"):
        hetero.load(exported)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(hetero.ModelError, match=r"is a folder, expected an ONNX file$"):
        hetero.Core().read_model(tmp_path)
    (tmp_path / "model.onnx").touch()
    with pytest.raises(hetero.ModelError, match=r"is a folder, expected an ONNX file: pass a file in it, .*onnx'$"):
        hetero.Core().read_model(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(hetero.ModelError, match=r"is a TensorFlow SavedModel, .*tf2onnx.convert --saved-model /"):
        hetero.Core().read_model(tmp_path)


def test_names_do_not_decide(tmp_path: Path) -> None:
    """An ONNX file is one under any name, and its strings may look like other files."""
    value = helper.make_tensor_value_info("x", 1, [2])
    out = helper.make_tensor_value_info("y", 1, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "TFL3 GGUF Placeholder")], "g", [value], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.tflite"
    path.write_bytes(model.SerializeToString())
    assert hetero.Core().read_model(path).num_nodes == 1


@pytest.mark.parametrize("data", [b"", b"\0", b"P", b"PK", b"PK\3\4", b"\x80", b"<", b"{", bytes(300), b"\xff" * 5000])
def test_bytes_that_are_nothing(data: bytes) -> None:
    kind = describe_kind(memoryview(data))
    assert kind is None or kind[0] == "a ZIP archive"
    if data:
        with pytest.raises(hetero.ModelError):
            hetero.Core().read_model(data)


def test_other_protocol_buffers_are_not_taken_for_tensorflow() -> None:
    """A GraphProto of ONNX begins like a GraphDef of TensorFlow."""
    node = helper.make_node("Constant", [], ["c"], "c", value_float=1.0)
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("c", 1, [])])
    with pytest.raises(hetero.ModelError) as caught:
        hetero.Core().read_model(graph.SerializeToString())
    assert "TensorFlow" not in str(caught.value)
