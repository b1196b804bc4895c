"""Recognizes files that are neither ONNX files nor exported models, to say in an error what they are and what to do.

The first bytes decide, never the file name. Nothing in a file is executed or unpacked.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import struct

__all__ = [
    "MANIFEST_ENTRY",
    "describe_folder",
    "describe_kind",
    "describe_neighbor",
    "expected",
    "is_exported",
    "other_than_text",
]

MANIFEST_ENTRY = "manifest.json"
"""The name of the first entry of an exported model, which is a ZIP archive."""

_ZIP = b"PK\3\4"
_LOCAL_HEADER_SIZE = 30  # B of a ZIP entry before its name
_HEAD = 4096  # B of a text in which its first tag is looked for
_ZIP_TAIL = 1 << 20  # B; holds the directory of an archive of about 10,000 entries
_LONGEST_NAME = 100

_EXPORT_TORCH = "export the model with torch.onnx.export(model, inputs, 'model.onnx')"
_KERAS = "load it with keras.models.load_model, and convert it with model.export('model.onnx', format='onnx')"
_OPENVINO_IR = ("an OpenVINO IR", "use the ONNX file that it was converted from")
_TF2ONNX = "convert it with `python -m tf2onnx.convert {} --output model.onnx`"

# First bytes, what the file is, and what to do. The order does not matter: no entry is the start of another.
_MAGIC = (
    (b"version https://git-lfs", "a Git LFS pointer", "download the file with `git lfs pull`"),
    (b"GGUF", "a GGUF file of llama.cpp (weights without a graph)", "export the original model as ONNX"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, probably of Keras", _KERAS),
    (b"ftrt", "a TensorRT engine", "use the ONNX file that the engine was built from"),
    (b"ptrt", "a TensorRT engine", "use the ONNX file that the engine was built from"),
    (b"\x93NUMPY", "a NumPy array", "pass it as an input, and the ONNX file as the model"),
    (b"\xff\xd8\xff", "a JPEG image", "pass it as an input, and the ONNX file as the model"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image", "pass it as an input, and the ONNX file as the model"),
    (b"%PDF-", "a PDF document", "pass the ONNX file"),
    (b"\x1f\x8b", "data compressed by gzip", "decompress it with gunzip"),
    (b"BZh", "data compressed by bzip2", "decompress it with bunzip2"),
    (b"\xfd7zXZ\0", "data compressed by xz", "decompress it with unxz"),
    (b"\x28\xb5\x2f\xfd", "data compressed by Zstandard", "decompress it with unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it and pass the ONNX file in it"),
)
# The same at byte 4, where FlatBuffers have their file identifier.
_FLATBUFFERS = {
    b"TFL3": ("a TensorFlow Lite model", _TF2ONNX.format("--tflite model.tflite")),
    b"ORTM": ("an onnxruntime model in ORT format", "use the ONNX file that it was made from"),
    b"ET12": ("an ExecuTorch program", _EXPORT_TORCH),
}
_ONNX_HEADS = tuple(bytes((8, version)) for version in range(3, 16))  # ir_version, which exporters write first
_LEGACY_TORCH = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # a pickled integer, torch's magic number
_TENSORFLOW_OP = re.compile(rb"Placeholder|Const(?!ant)|NoOp|VarHandleOp")
_TEXT_MODEL = re.compile(rb"\s*(?:ir_version\s*:|<\s*ir_version\s*:|\{\s*\"irVersion\")")


def describe_folder(path: str, what: str) -> str:
    """Describes a folder that was passed instead of a file, and the remedy. ``what``: the expected kind of file."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(path))
    if "saved_model.pb" in names:
        return f"a TensorFlow SavedModel, expected {what}: {_TF2ONNX.format(f'--saved-model {path}')}"
    inside = [name for name in names if name.endswith((".onnx", ".hetero"))]
    hint = f": pass a file in it, such as {os.path.join(path, inside[0])!r}" if inside else ""
    return f"a folder, expected {what}{hint}"


def is_exported(data: memoryview) -> bool:
    """Whether bytes begin like an exported model. They may still be damaged."""
    name = bytes(data[_LOCAL_HEADER_SIZE : _LOCAL_HEADER_SIZE + len(MANIFEST_ENTRY)])
    return bytes(data[:4]) == _ZIP and name == MANIFEST_ENTRY.encode()


def describe_kind(data: memoryview) -> tuple[str, str] | None:
    """The kind of a file and the remedy, as phrases; None if the file is not recognized.

    Only meaningful for bytes that could not be read as ONNX: an ONNX file may begin with any of these bytes.
    """
    head = bytes(data[:_HEAD])
    if is_exported(data):
        return "a model exported by hetero", "load it with hetero.load or Core.import_model"
    if head.startswith(_ZIP):
        return _zip_kind(data)
    if head[4:8] in _FLATBUFFERS:
        return _FLATBUFFERS[head[4:8]]
    for magic, kind, remedy in _MAGIC:
        if head.startswith(magic):
            return kind, remedy
    return _pickle_kind(data, head) or _text_kind(head) or _other_kind(data, head)


def describe_neighbor(path: str) -> tuple[str, str] | None:
    """The kind of a file that has nothing to recognize it by, and the remedy, from a file beside it; None if there is
    none. The weights of an OpenVINO IR are raw numbers beside its .xml file."""
    stem, end = os.path.splitext(path)
    neighbor = f"{stem}.xml"
    if end.lower() != ".bin" or not os.path.isfile(neighbor):
        return None
    with contextlib.suppress(OSError), open(neighbor, "rb") as stream:
        kind = _text_kind(stream.read(_HEAD))
        if kind == _OPENVINO_IR:
            return f"the weights of {kind[0]}", kind[1]
    return None


def expected(what: str, found: tuple[str, str]) -> str:
    """The message for a file of another kind, from `describe_kind`. ``what``: the expected kind."""
    return f"expected {what}, found {found[0]}: {found[1]}"


def other_than_text(data: bytes) -> str | None:
    """The kind of bytes that are not text, as a phrase; None for text."""
    try:
        if b"\0" not in data[:_HEAD]:
            data.decode()
            return None
    except UnicodeDecodeError:
        pass
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "text in UTF-16, as PowerShell's `>` writes it: save it as UTF-8"
    kind = describe_kind(memoryview(data))
    if kind is not None:
        return kind[0]
    return "an ONNX file" if data.startswith(_ONNX_HEADS) else "a binary file"


def _zip_kind(data: memoryview) -> tuple[str, str]:
    """The kind of a ZIP archive, from the names of its entries."""
    names = _zip_names(data)
    ends = {name.partition("/")[2] for name in names}  # without the folder that torch names after the file
    if any(end.startswith("code/") for end in ends) and {"data.pkl", "constants.pkl"} & ends:
        return "a TorchScript model", "load it with torch.jit.load, and " + _EXPORT_TORCH
    if {"archive_format", "models/model.json"} & ends:
        return "an ExportedProgram of torch.export", "convert it with torch.onnx.export(torch.export.load(path))"
    if "data.pkl" in ends:
        return "a PyTorch checkpoint (weights without a graph)", "load it into its model, and " + _EXPORT_TORCH
    if "model.weights.h5" in names:
        return "a Keras model", _KERAS
    if names and all(name.endswith(".npy") for name in names):
        return "a NumPy .npz file", "pass it as an input, and the ONNX file as the model"
    inside = [name for name in names if name.endswith(".onnx")]
    if inside:
        return f"a ZIP archive that contains {inside[0][:_LONGEST_NAME]!r}", "unpack it and pass that file"
    return "a ZIP archive", "unpack it and pass the ONNX file in it"


def _zip_names(data: memoryview) -> list[str]:
    """The names of the entries, from the directory at the end; empty if it cannot be read."""
    import zipfile

    try:
        # zipfile finds the directory from the end, so the last part of a large file suffices.
        return zipfile.ZipFile(io.BytesIO(data[-_ZIP_TAIL:])).namelist()
    except Exception:  # the file may be damaged in any way, and is not what was expected anyway
        return []


def _pickle_kind(data: memoryview, head: bytes) -> tuple[str, str] | None:
    if _LEGACY_TORCH in head[:32]:
        return "a PyTorch checkpoint", "load it with torch.load, and " + _EXPORT_TORCH
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return "a Python pickle", "load the model where it was written, and export it as ONNX"
    return None


def _text_kind(head: bytes) -> tuple[str, str] | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "an HTML page", "download the file again, from its direct address"
    if text.startswith((b"<?xml", b"<net")) and re.search(rb"<net\s", text):
        return _OPENVINO_IR
    if _TEXT_MODEL.match(head):
        return "an ONNX model in a text format", "convert it with onnx.save(onnx.load(path), 'model.onnx')"
    if text.startswith(b"{") and b'"hetero-plan"' in text:
        return "a plan", "pass it as the device, after Plan.load, and the ONNX file as the model"
    if text.startswith(b"<?xml"):
        return "an XML file", "pass the ONNX file"
    if re.match(rb"[{[]\s*[\"{[\]}]", text):
        return "a JSON file", "pass the ONNX file"
    return None


def _other_kind(data: memoryview, head: bytes) -> tuple[str, str] | None:
    if len(head) > 9 and head[8:9] == b"{" and 2 <= struct.unpack_from("<Q", head)[0] <= len(data) - 8:
        return "a safetensors file (weights without a graph)", "load it into its model, and export that as ONNX"
    if head[257:262] == b"ustar":
        return "a tar archive", "unpack it and pass the ONNX file in it"
    # Both are Protocol Buffers like ONNX: a GraphDef begins with a node, a SavedModel with its version and a graph.
    if head.startswith(b"\x0a") and _TENSORFLOW_OP.search(head):
        return "a frozen TensorFlow graph", _TF2ONNX.format("--graphdef model.pb --inputs … --outputs …")
    if head.startswith(b"\x08\x01\x12") and _TENSORFLOW_OP.search(head):
        return "a TensorFlow SavedModel", _TF2ONNX.format("--saved-model FOLDER")
    return None
