"""Errors of writers and readers of files that no other quick test reaches; see `tools/branches.sh`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from exported_models import network
from forging import forged
from hetero.artifact import payload, writer
from hetero.artifact.exporting import callbacks_of
from hetero.artifact.layout import comment_of
from hetero.artifact.payload import PayloadReader, PayloadWriter
from hetero.artifact.reader import Artifact, open_artifact
from hetero.artifact.writer import ArtifactWriter
from hetero.devices.template import TemplatePlugin
from hetero.errors import ArtifactError, Corrupt, DeviceUnavailable, HeteroError, PropertyError

DEVICE = "TEMPLATE"


@pytest.fixture(scope="module")
def compiled() -> hetero.CompiledModel:
    return hetero.Core().compile_model(network(), DEVICE)


@pytest.fixture(scope="module")
def exported(compiled: hetero.CompiledModel) -> bytes:
    stream = io.BytesIO()
    compiled.export_model(stream)
    return stream.getvalue()


def test_targets_that_cannot_be_written(
    compiled: hetero.CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot be written: Not a directory"):
        compiled.export_model(tmp_path / "file" / "net.hetero")
    plan = hetero.Core().plan(network(), DEVICE)
    with pytest.raises(HeteroError, match="cannot split into"):
        hetero.split(network(), plan, tmp_path / ("a" * 300))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(HeteroError, match="cannot split into parts: No such file or directory"):
        hetero.split(network(), plan, "parts")
    with pytest.raises(TypeError, match=r"expected a hetero\.Plan, as Core\.plan returns, got int"):
        hetero.split(network(), 1, tmp_path / "parts")  # type: ignore[arg-type]


class _FromPytest(TemplatePlugin):
    """As if the distribution pytest brought this device."""

    def compile_model(self, model: hetero.Model, config: Any, context: Any = None) -> hetero.CompiledModel:
        compiled = super().compile_model(model, config, context)
        compiled.__class__ = type("Compiled", (type(compiled),), {"__module__": "pytest"})
        return compiled


def test_a_file_names_the_distribution_of_a_device_that_is_not_installed() -> None:
    core = hetero.Core()
    core.register_plugin("FOREIGN", _FromPytest)
    stream = io.BytesIO()
    core.compile_model(network(), "FOREIGN").export_model(stream)
    with pytest.raises(DeviceUnavailable, match=r"compiled for FOREIGN, .* install pytest \(pip install pytest\)"):
        hetero.Core().import_model(stream.getvalue())


@pytest.mark.parametrize("value", [1, (bytes,), (bytes, 1)])
def test_encryption_by_what_is_no_function(exported: bytes, value: Any) -> None:
    with pytest.raises(PropertyError, match="CACHE_ENCRYPTION_CALLBACKS"):
        hetero.Core().import_model(exported, DEVICE, {"CACHE_ENCRYPTION_CALLBACKS": value})
    with pytest.raises(PropertyError, match="expected two functions"):
        callbacks_of(value)  # of a plugin that checks no properties


def test_sequences_come_along() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    made = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [])
    graph = helper.make_graph([helper.make_node("SequenceLength", ["s"], ["y"])], "g", [sequence], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    stream = io.BytesIO()
    hetero.Core().compile_model(model, DEVICE).export_model(stream)
    found = hetero.Core().import_model(stream.getvalue())
    assert [port.holder for port in found.inputs] == [port.holder for port in hetero.Core().read_model(model).inputs]
    assert found({"s": [np.ones(2, np.float32)] * 3})[0] == 3


def test_entries_that_lie(exported: bytes) -> None:
    """Each is checked by itself: the digest, the name, what stands between entries, and what comes after the last."""
    artifact = Artifact(memoryview(exported), "it")
    name = artifact.manifest.entries[0].name

    def orphan(manifest: dict[str, Any]) -> None:
        manifest["submodels"].append(manifest["submodels"][0])

    def twice(manifest: dict[str, Any]) -> None:
        manifest["entries"][1]["name"] = name

    def invalid(manifest: dict[str, Any]) -> None:
        manifest["entries"][0]["name"] = "../" + name

    def undigested(manifest: dict[str, Any]) -> None:
        manifest["entries"][0]["sha256"] = "0" * 64

    for change, message in (
        (orphan, "submodel 1 does not belong to any submodel"),
        (twice, "an entry has an invalid or duplicate name"),
        (invalid, "an entry has an invalid or duplicate name"),
        (undigested, "is damaged: its digest differs"),
    ):
        with pytest.raises(Corrupt, match=message):
            open_artifact(forged(exported, change))
    assert artifact._begin[0] > 40
    between = bytearray(exported)
    between[artifact._begin[0] - 1] ^= 1  # in the header of the entry
    with pytest.raises(Corrupt, match="the bytes before entry .* are damaged"):
        open_artifact(bytes(between))
    last = artifact.manifest.entries[-1]
    behind = bytearray(exported)
    behind[artifact._begin[-1] + last.size] ^= 1
    with pytest.raises(Corrupt, match="the archive's directory is damaged"):
        open_artifact(bytes(behind))
    with pytest.raises(Corrupt, match="there is no entry"):
        artifact.entry(len(artifact.manifest.entries))


def test_large_entries_are_compared_by_sha_256_when_verified() -> None:
    """Reading compares their CRC-32, which can be forged."""
    stream = io.BytesIO()
    made = ArtifactWriter()
    made.add("large", [bytes(1 << 17)])
    compiled = hetero.Core().compile_model(network(), DEVICE)
    payload.add_submodel(made, compiled)
    for part in made.parts():
        stream.write(part)

    def change(manifest: dict[str, Any]) -> None:
        manifest["entries"][0]["sha256"] = "0" * 64

    artifact = open_artifact(forged(stream.getvalue(), change))
    with pytest.raises(Corrupt, match="entry 'large' is damaged: its SHA-256 differs"):
        artifact.verify()


def test_an_empty_stream() -> None:
    with pytest.raises(Corrupt, match=r"call seek\(0\) first"):
        open_artifact(io.BytesIO())
    with pytest.raises(TypeError, match="expected a path, bytes or a binary stream, got int"):
        open_artifact(1)
    assert comment_of("0" * 64)


def test_what_plugins_may_not_add(compiled: hetero.CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = ArtifactWriter()
    made = PayloadWriter(artifact, compiled)
    with pytest.raises(TypeError, match="file 'a': expected bytes or memoryviews, got str"):
        made.add("a", "text")  # type: ignore[arg-type]
    made.add("a", b"")
    for name in ("a", "A/../b"):
        with pytest.raises(ArtifactError, match="is not a valid name of an entry, or is already used"):
            made.add(name, b"")
    monkeypatch.setattr(writer, "_MAX_MANIFEST", 100)
    with pytest.raises(ArtifactError, match="the manifest would take"):
        list(artifact.parts())


def test_truth_values_that_are_neither_0_nor_1(compiled: hetero.CompiledModel) -> None:
    artifact = ArtifactWriter()
    made = PayloadWriter(artifact, compiled)
    truth, number = made.add_array(np.array([True, False])), made.add_array(np.array([1, 2], np.uint8))
    made.finish()
    read = PayloadReader(open_artifact(b"".join(artifact.parts())))
    assert read.array(truth).tolist() == [True, False]
    assert read.array(number).tolist() == [1, 2]
    with pytest.raises(Corrupt, match="a truth value is neither 0 nor 1"):
        read.array(msgspec.structs.replace(number, dtype="bool"))


# ---- plan files


def test_plans_whose_fields_are_wrong(tmp_path: Path) -> None:
    plan = hetero.Core().plan(network(), "HETERO:TEMPLATE,CPU")
    text = plan.to_json().decode()
    whole = json.loads(text)
    key = next(iter(whole["affinity"]))
    for changed, message in (
        ({**whole, "affinity": {**whole["affinity"], key: 1}}, f"affinity of {key!r}: expected a string, found 1"),
        ({**whole, "deep": json.loads("[" * 900 + "]" * 900)}, None),
    ):
        (tmp_path / "plan.json").write_text(json.dumps(changed))
        if message is None:
            hetero.Plan.load(tmp_path / "plan.json")
            continue
        with pytest.raises(HeteroError, match=message):
            hetero.Plan.load(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text(text.rstrip()[:-1] + ', "a": 1, "a": 2}')
    with pytest.raises(PropertyError, match="duplicate key 'a', the second time with 2"):
        hetero.Plan.load(tmp_path / "plan.json")
    for nested in (text.rstrip()[:-1] + ', "a": ' + "[" * 200_000 + "]" * 200_000 + "}", '{"affinity": ' * 100_000):
        (tmp_path / "plan.json").write_text(nested)
        with pytest.raises(HeteroError, match="nested too deeply|cut off"):
            hetero.Plan.load(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text(text)
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    assert repr(loaded).startswith("<LoadedPlan of ")
    assert all(str(warning) == warning.message for warning in loaded.warnings)
