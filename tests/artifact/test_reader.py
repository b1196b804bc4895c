"""Files that are not what was written, that lie, or that are for somebody else."""

from __future__ import annotations

import io
import json
import pathlib
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from exported_models import PACKED, X, bits, network
from forging import entries_of, forged
from hetero import errors
from hetero._checksum import crc32
from hetero.artifact.layout import MANIFEST, Entry, Layout, comment_of
from hetero.artifact.reader import Artifact


@pytest.fixture(scope="module")
def small() -> bytes:
    """An exported model of some 14 KB with two devices, a weight of its own, and packed ones."""
    random_ = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="one"),
        helper.make_node("Erf", ["a"], ["y"], name="two"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 32])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 32])],
        [numpy_helper.from_array(random_.standard_normal((32, 32)).astype(np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    core = hetero.Core()
    cut = core.read_model(model).with_affinity({"two": "TEMPLATE"})
    compiled = core.compile_model(cut, "HETERO:CPU,TEMPLATE", PACKED)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 2
    stream = io.BytesIO()
    compiled.export_model(stream)
    data = stream.getvalue()
    assert {"weights/0", "weights/1"} <= set(entries_of(data))  # smaller arrays would be elsewhere
    return data


def refused(data: bytes) -> bool:
    try:
        Artifact(memoryview(data), "it")
    except errors.Corrupt:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_every_flipped_bit_is_refused(small: bytes, step: int) -> None:
    """Every ``step``-th bit of the file: with 3, two or three of each byte, and each bit of three bytes."""
    Artifact(memoryview(small), "it")
    data = bytearray(small)
    missed = []
    for position in range(len(data)):
        for bit in range(-8 * position % step, 8, step):
            data[position] ^= 1 << bit
            if not refused(data):
                missed.append((position, bit))
            data[position] ^= 1 << bit
    assert not missed


def test_every_truncation_is_refused(small: bytes) -> None:
    assert all(refused(small[:length]) for length in range(len(small)))


def test_what_is_added_is_refused(small: bytes) -> None:
    for more in (b"\0", b"PK\5\6", small[-22:], small):
        assert refused(small + more)
        assert refused(more + small)
    assert refused(small[:64] + b"\0" * 64 + small[64:])


def test_a_flipped_bit_in_a_large_weight_is_refused(core: hetero.Core) -> None:
    weight = np.random.default_rng(0).standard_normal((48, 64)).astype(np.float32)
    large = np.zeros((48, 20_000), np.float32)
    large[:, :64] = weight
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "large",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 48])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 20_000])],
        [numpy_helper.from_array(large, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    stream = io.BytesIO()
    core.compile_model(core.read_model(model), "CPU").export_model(stream)
    data = bytearray(stream.getvalue())
    positions = random.Random(0)
    for _ in range(100):
        position, bit = positions.randrange(len(data)), positions.randrange(8)
        data[position] ^= 1 << bit
        assert refused(data), (position, bit)
        data[position] ^= 1 << bit
    Artifact(memoryview(data), "it").verify()


def test_bytes_of_other_kinds_are_refused(core: hetero.Core, tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for source, words in (
        (b"", "not an exported model"),
        (network().SerializeToString(), "expected an exported model, found an ONNX model: compile it with"),
        (b"PK\3\4" + bytes(1000), "expected an exported model, found a ZIP archive"),
        (tmp_path / "empty", "is empty"),
    ):
        with pytest.raises(errors.Corrupt, match=words):
            core.import_model(source, "CPU")
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "none", "No such file"), ("a\0b", "opened")):
        with pytest.raises(errors.ArtifactError, match=words):
            core.import_model(path, "CPU")


# ---- files with right digests


def exported(core: hetero.Core, device: str = "CPU") -> bytes:
    stream = io.BytesIO()
    config = PACKED if "CPU" in device else None
    core.compile_model(core.read_model(network()), device, config).export_model(stream)
    return stream.getvalue()


def test_a_forged_file_that_says_the_truth_is_read(core: hetero.Core) -> None:
    data = exported(core)
    assert bits(core.import_model(forged(data), "CPU")(X)) == bits(core.import_model(data, "CPU")(X))


def set_key(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(manifest: dict[str, Any]) -> None:
        *way, last = key.split(".")
        place: Any = manifest
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        place[int(last) if last.isdigit() else last] = value

    return change


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (set_key("version", 2), errors.WrongVersion, "format version 2.*reads version 1"),
        (set_key("version", 0), errors.WrongVersion, "format version 0"),
        (set_key("format", "other"), errors.Corrupt, "'other'"),
        (set_key("submodels.0.version.payload", "77"), errors.WrongVersion, "payload = '77'.*reads '1'"),
        (set_key("submodels.0.version", {}), errors.WrongVersion, "payload = None"),
        (set_key("submodels.0.device", "NPU"), errors.WrongDevice, "compiled for NPU.*imported for CPU"),
        (set_key("submodels.0.device", "not a device"), errors.Corrupt, "not a device"),
        (set_key("submodels.0.files", {}), errors.Corrupt, "no file"),
        (set_key("submodels.0.files", {"cpu.json": 10**6}), errors.Corrupt, "does not exist"),
        (set_key("submodels.0.parts", [0]), errors.Corrupt, "part 0"),
        (set_key("submodels.0.inputs.0.name", "z"), errors.Corrupt, "ports"),
        (set_key("submodels", []), errors.Corrupt, "length"),
        (set_key("surplus", 1), errors.Corrupt, "surplus"),
        (set_key("library", 1), errors.Corrupt, "library"),
    ],
)
def test_manifests_that_do_not_fit(core: hetero.Core, change: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        core.import_model(forged(exported(core), change), "CPU")


@pytest.mark.parametrize(
    "change",
    [
        set_key("submodels.0.schedule.num_slots", 10**9),
        set_key("submodels.0.schedule.steps.0.inputs", [2]),
        set_key("submodels.0.schedule.steps.0.outputs", [0]),
        set_key("submodels.0.schedule.steps.0.part", 1),
        set_key("submodels.0.schedule.outputs", [9]),
        set_key("submodels.0.schedule.outputs", []),
        set_key("submodels.0.schedule.num_constants", 1),
        set_key("submodels.0.schedule", None),
        set_key("submodels.0.parts", [1, 1]),
        set_key("submodels.0.parts", []),
        set_key("submodels.1.device", "HETERO:CPU"),
    ],
)
def test_schedules_that_do_not_fit(core: hetero.Core, small: bytes, change: Any) -> None:
    with pytest.raises(errors.Corrupt):
        core.import_model(forged(small, change), "HETERO")


def test_versions_and_devices_of_parts_are_checked_before_any_is_parsed(core: hetero.Core, small: bytes) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["submodels"][2]["version"]["payload"] = "77"

    def spoil(entries: dict[str, bytes]) -> None:
        entries["submodels/1/model.onnx"] = b"nonsense"

    with pytest.raises(errors.WrongVersion, match="data of TEMPLATE has version payload = '77'"):
        core.import_model(forged(small, change, spoil), "HETERO")
    with pytest.raises(errors.Corrupt, match=r"model\.onnx"):
        core.import_model(forged(small, entries=spoil), "HETERO")


def test_another_device(core: hetero.Core, small: bytes) -> None:
    data = exported(core)
    for device in ("TEMPLATE", "HETERO:CPU", "FPGA"):
        with pytest.raises(errors.WrongDevice, match=f"compiled for CPU.*imported for {device}"):
            core.import_model(data, device)
    with pytest.raises(errors.WrongDevice, match="compiled for HETERO:CPU,TEMPLATE"):
        core.import_model(small, "HETERO:TEMPLATE,CPU")
    assert core.import_model(small, "HETERO").device == "HETERO:CPU,TEMPLATE"


def test_a_missing_plugin_says_what_to_install(core: hetero.Core, small: bytes) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["submodels"][2]["device"] = "NPU"
        manifest["submodels"][2]["plugin"] = {"name": "NPU", "module": "npu.plugin", "distribution": "hetero-npu"}

    with pytest.raises(errors.DeviceUnavailable, match="NPU.*pip install hetero-npu"):
        core.import_model(forged(small, change), "HETERO")
    alone = forged(exported(core), set_key("submodels.0.device", "NPU"))
    with pytest.raises(errors.DeviceUnavailable, match="compiled for NPU.*register it"):
        hetero.load(alone)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (b'"shape":[48,64]', b'"shape":[64,48]'),
        (b'"shape":[48,64]', b'"shape":[48,-4]'),
        (b'"shape":[48,64]', b'"shape":[4611686018427387904,4]'),
        (b'"offset":0', b'"offset":8'),
        (b'"offset":0', b'"offset":1048576'),
        (b'"entry":', b'"entry":9'),
        (b'"dtype":"float32"', b'"dtype":"object"'),
        (b'"dtype":"float32"', b'"dtype":"float64"'),
        (b'"first":', b'"third":'),
    ],
)
def test_weights_that_do_not_fit(core: hetero.Core, pattern: bytes, replacement: bytes) -> None:
    def change(entries: dict[str, bytes]) -> None:
        assert pattern in entries["submodels/0/weights.json"]
        entries["submodels/0/weights.json"] = entries["submodels/0/weights.json"].replace(pattern, replacement)

    with pytest.raises(errors.Corrupt):
        core.import_model(forged(exported(core), entries=change), "CPU")


def forged_cpu(core: hetero.Core, change: Callable[[dict[str, Any]], Any]) -> bytes:
    def edit(entries: dict[str, bytes]) -> None:
        stored = json.loads(entries["submodels/0/cpu.json"])
        change(stored)
        entries["submodels/0/cpu.json"] = json.dumps(stored).encode()

    return forged(exported(core), entries=edit)


@pytest.mark.parametrize(
    "change",
    [
        set_key("folded.nodes", [7]),
        set_key("folded.nodes", [-1]),
        set_key("folded.nodes", []),
        set_key("folded.nodes", [0, 2]),
        set_key("folded.values", {}),
        set_key("packed.0.source", {"name": "x"}),
        set_key("packed.0.source", {"name": "nobody"}),
        set_key("packed.0.source", {"packed": 5}),
        set_key("packed.0.source", {"way": [[0, 0]], "name": "x"}),
        set_key("packed.0.layout", {"a": 1}),
        set_key("packed.0.layout", 1.5),
        set_key("settings", {"INFERENCE_PRECISION_HINT": 3}),
    ],
)
def test_payloads_that_do_not_fit(core: hetero.Core, change: Any) -> None:
    with pytest.raises((errors.Corrupt, errors.PropertyError)):
        core.import_model(forged_cpu(core, change), "CPU")


@pytest.mark.parametrize("shape", [[0], [1], [48 * 63]])
def test_packed_weights_that_are_too_short_are_refused_by_the_kernel(core: hetero.Core, shape: list[int]) -> None:
    compiled = core.import_model(forged_cpu(core, set_key("packed.0.array.shape", shape)), "CPU")
    with pytest.raises(errors.HeteroError):
        compiled(X)


def test_random_changes_of_what_is_stored_are_errors_or_harmless(core: hetero.Core) -> None:
    """Digests made right again: nothing but errors of hetero's own comes out of import and a run."""
    data = exported(core)
    choose = random.Random(0)
    names = [name for name in entries_of(data) if name.startswith("submodels/")]

    def change(entries: dict[str, bytes]) -> None:
        name = choose.choice(names)
        body = bytearray(entries[name])
        for _ in range(choose.randint(1, 4)):
            body[choose.randrange(len(body))] = choose.choice([0, 1, 0x7F, 0xFF, choose.randrange(256)])
        entries[name] = bytes(body)

    for _ in range(300):
        try:
            core.import_model(forged(data, entries=change), "CPU")(X)
        except errors.HeteroError:
            continue


def test_crc32_is_zlibs() -> None:
    choose = random.Random(0)
    for size in [*range(300), 1000, 4095, 4096, 70_001]:
        data, start = choose.randbytes(size), choose.getrandbits(32)
        assert crc32(data) == zlib.crc32(data)
        assert crc32(memoryview(data)[size // 3 :], start) == zlib.crc32(data[size // 3 :], start)


def test_the_layout_of_large_files_is_zip64(tmp_path: pathlib.Path) -> None:
    """Sizes beyond 4 GiB, in a file with holes that Python's zipfile lists."""
    import zipfile

    entries = [Entry(MANIFEST, 5, 1), Entry("weights/0", 5 << 30, 2), Entry("weights/1", 7, 3)]
    layout = Layout(entries, comment_of("0" * 64))
    with open(tmp_path / "large.zip", "wb") as file:
        for entry, header, offset in zip(entries, layout.headers, layout.offsets, strict=True):
            assert offset % 64 == 0
            file.seek(offset - len(header))
            file.write(header)
            file.seek(offset + entry.size)
        file.write(layout.tail)
        assert file.tell() == layout.size
    with zipfile.ZipFile(tmp_path / "large.zip") as archive:
        found = [(info.filename, info.file_size, info.CRC) for info in archive.infolist()]
        starts = [info.header_offset for info in archive.infolist()]
    assert found == [(entry.name, entry.size, entry.crc32) for entry in entries]
    assert starts == [o - len(h) for o, h in zip(layout.offsets, layout.headers, strict=True)]
    assert struct.unpack("<I", layout.tail[:4])[0] == 0x02014B50
