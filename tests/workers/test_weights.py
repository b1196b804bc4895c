"""The weights of workers: mapped files, one copy of everything else, and files that change."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from hetero.base.descriptor import Descriptor
from hetero.base.files import MappedFile, map_file, mapping_of
from hetero.workers.isolated import IsolatedModel
from hetero.workers.messages import Compile
from hetero.workers.shared_memory import SharedPool
from hetero.workers.weights import SharedWeights, attach_weights, share_weights
from worker_cases import children_of, parent_of, until

PROCESS = {"ISOLATION": "PROCESS", "WORKER_RETRIES": 2}
WIDTH = 600  # weights of 1.4 MB: smaller external files are read instead of mapped
X = np.random.default_rng(1).standard_normal((3, WIDTH)).astype(np.float32)


def model(padding: int = 0) -> onnx.ModelProto:
    """A product whose weight is also an output, a product whose weight is also added, a gathered table, constants that
    are small, of another type, and without elements. ``padding`` shifts the data in the file."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.standard_normal((WIDTH, WIDTH)).astype(np.float32),
        "v": random.standard_normal((WIDTH, WIDTH)).astype(np.float32),
        "table": random.integers(-9, 9, (5000, 80)),
        "small": random.standard_normal(WIDTH).astype(np.float32),
        "none": np.zeros((0, WIDTH), np.float32),
        "mask": random.random((WIDTH, WIDTH)) < 0.5,
        "three": np.array([3, 4999, 3], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], doc_string="*" * padding),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("Where", ["mask", "v", "small"], ["c"]),
        helper.make_node("Add", ["b", "small"], ["y"]),
        helper.make_node("ReduceSum", ["c"], ["s"], keepdims=0),
        helper.make_node("Gather", ["table", "three"], ["rows"]),
        helper.make_node("Concat", ["none", "y"], ["z"], axis=0),
        helper.make_node("Identity", ["w"], ["w_out"]),
    ]
    value = helper.make_tensor_value_info
    float_, int_ = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    outputs = [
        value("z", float_, ["n", WIDTH]),
        value("s", float_, []),
        value("rows", int_, [3, 80]),
        value("w_out", float_, [WIDTH, WIDTH]),
        value("table", int_, [5000, 80]),
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "weights", [value("x", float_, ["n", WIDTH])], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def read(source: str, folder: Path, padding: int = 0) -> hetero.Model:
    core, path = hetero.Core(), folder / "m.onnx"
    proto = model(padding)
    if source == "bytes":
        return core.read_model(proto.SerializeToString())
    if source == "proto":
        return core.read_model(proto)
    if source == "external":
        core.read_model(proto).save(path, external_above=1024)
    else:
        onnx.save(proto, path)
    return core.read_model(path)


def maps_of(process: int, name: str) -> int:
    """How often a process maps a file of this name."""
    return sum(line.rstrip().endswith(name) for line in Path(f"/proc/{process}/maps").read_text().splitlines())


def attached(weights: SharedWeights, pool: SharedPool) -> dict[str, np.ndarray]:
    request = Compile(weights.model, weights.refs, weights.file_refs, "", {}, [], [], [])
    return attach_weights(request, [Descriptor(os.dup(file.number)) for file in weights.files], pool)


@pytest.mark.spread(2)
@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "ORT", "HETERO:CPU.0,CPU.1"])
@pytest.mark.parametrize("source", ["file", "external", "bytes", "proto"])
def test_results_are_those_of_this_process(core: hetero.Core, tmp_path: Path, source: str, device: str) -> None:
    if device == "ORT":
        pytest.importorskip("onnxruntime")
    read_model = read(source, tmp_path)
    pins = {read_model.key_of(1): "CPU.1"} if "." in device else None
    expected = core.compile_model(read_model, device, pins=pins)(X)
    compiled = core.compile_model(read_model, device, PROCESS, pins=pins)
    del read_model
    gc.collect()
    for found, right in zip(compiled(X).arrays(), expected.arrays(), strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("padding", [1, 2])
def test_unaligned_data(core: hetero.Core, tmp_path: Path, padding: int) -> None:
    read_model = read("file", tmp_path, 200 + padding)
    for device in ("CPU", "TEMPLATE"):
        expected = core.compile_model(read_model, device)(X)
        for found, right in zip(
            core.compile_model(read_model, device, PROCESS)(X).arrays(), expected.arrays(), strict=True
        ):
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(("source", "name"), [("file", "m.onnx"), ("external", "m.onnx.1.data")])
def test_a_worker_maps_the_file(core: hetero.Core, tmp_path: Path, source: str, name: str) -> None:
    read_model = read(source, tmp_path)
    compiled = core.compile_model(read_model, "CPU", PROCESS)
    assert isinstance(compiled, IsolatedModel)
    weights = compiled._supervisor._weights
    assert len(weights.files) == 1
    assert sum(array.nbytes for array in weights.kept) < 100_000  # nodes and small constants
    assert maps_of(compiled.process, str(tmp_path / name)) == 1
    expected = core.compile_model(read_model, "CPU")(X)[0]
    del read_model
    for file in tmp_path.iterdir():  # a worker that replaces this one still gets the same file
        file.rename(file.with_suffix(".moved"))
    os.kill(compiled.process, signal.SIGKILL)
    np.testing.assert_array_equal(compiled(X)[0], expected)


@pytest.mark.parametrize("change", ["removed", "replaced", "touched"])
def test_a_file_that_is_not_the_same_is_copied(core: hetero.Core, tmp_path: Path, change: str) -> None:
    read_model = read("file", tmp_path)
    expected = core.compile_model(read_model, "CPU")(X)[0]
    path = tmp_path / "m.onnx"
    if change == "touched":
        os.utime(path, (1, 1))
    else:
        path.unlink()
    if change == "replaced":
        other = model()
        other.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((WIDTH, WIDTH), np.float32), "w"))
        onnx.save(other, path)
    compiled = core.compile_model(read_model, "CPU", PROCESS)
    assert isinstance(compiled, IsolatedModel)
    assert not compiled._supervisor._weights.files
    np.testing.assert_array_equal(compiled(X)[0], expected)


@pytest.mark.parametrize("source", ["file", "external"])
def test_a_file_that_is_shortened_harms_no_application(core: hetero.Core, tmp_path: Path, source: str) -> None:
    read_model = read(source, tmp_path)
    compiled = core.compile_model(read_model, "CPU", PROCESS)
    compiled(X)
    path = tmp_path / ("m.onnx" if source == "file" else "m.onnx.1.data")
    os.truncate(path, 4096)
    os.kill(compiled.process, signal.SIGKILL)
    with pytest.raises(hetero.ModelError, match=r"was changed after it was read"):
        compiled(X)
    with pytest.raises(hetero.ModelError, match=r"was shortened from \d+ B to 4096 B|has 4096 bytes"):
        core.compile_model(read_model, "CPU", PROCESS)


def test_a_file_that_is_written_again_is_not_used(core: hetero.Core, tmp_path: Path) -> None:
    compiled = core.compile_model(read("file", tmp_path), "CPU", PROCESS)
    path = tmp_path / "m.onnx"
    path.write_bytes(bytes(path.stat().st_size))
    os.utime(path, (1, 1))
    os.kill(compiled.process, signal.SIGKILL)
    with pytest.raises(hetero.ModelError, match=r"was changed after it was read"):
        compiled(X)


def test_weights_in_memory_are_copied_once(core: hetero.Core, tmp_path: Path) -> None:
    """For several compiled models, for the submodels of one, and for workers that replace others."""
    read_model = read("bytes", tmp_path)
    first = core.compile_model(read_model, "CPU", PROCESS)
    second = core.compile_model(read_model, "TEMPLATE", PROCESS)
    assert isinstance(first, IsolatedModel)
    assert isinstance(second, IsolatedModel)

    def places(compiled: IsolatedModel) -> dict[str, int]:
        return {ref.name: ref.data.offset for ref in compiled._supervisor._request.weights}

    assert set(places(first)) == {"w", "v", "table", "mask"}
    assert places(first) == places(second)
    copy = next(array for array in first._supervisor._weights.kept if array.shape == (5000, 80))
    offset = first._supervisor.pool.offset_of(copy)
    assert places(first)["table"] == offset
    expected = second(X)[2]
    del first, copy
    gc.collect()
    third = core.compile_model(read_model, "CPU", PROCESS)
    assert isinstance(third, IsolatedModel)
    assert places(third) == places(second)
    np.testing.assert_array_equal(third(X)[2], expected)
    other = core.compile_model(read("bytes", tmp_path), "CPU", PROCESS)
    assert isinstance(other, IsolatedModel)
    assert not set(places(other).values()) & set(places(second).values())


def test_the_copies_of_dropped_models_are_freed(core: hetero.Core, tmp_path: Path) -> None:
    read_model = read("bytes", tmp_path)
    pool = SharedPool()
    weights = share_weights(read_model, pool)
    assert len(pool._in_use) == 5
    np.testing.assert_array_equal(attached(weights, pool)["w"], read_model.constant(read_model.value_id("w")))
    del weights
    gc.collect()
    assert not pool._in_use


def test_more_files_than_a_worker_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetero.workers.weights._MAX_FILES", 2)
    sizes = (300_000, 600_000, 400_000, 500_000)
    arrays = {f"w{i}": np.arange(size, dtype=np.float32) + i for i, size in enumerate(sizes)}
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in arrays]
    outputs = [helper.make_tensor_value_info(f"{name}_out", 1, array.shape) for name, array in arrays.items()]
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "files", [], outputs, initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    pool = SharedPool()
    weights = share_weights(hetero.Core().read_model(tmp_path / "m.onnx"), pool)
    assert {ref.name: ref.file for ref in weights.refs} == {"w0": -1, "w1": 0, "w2": -1, "w3": 1}
    for name, array in attached(weights, pool).items():
        np.testing.assert_array_equal(array, arrays[name])
        assert not array.flags.writeable


def test_nothing_is_left_open(core: hetero.Core, tmp_path: Path) -> None:
    read_model = read("file", tmp_path)
    core.compile_model(read_model, "CPU", PROCESS)(X)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    compiled = core.compile_model(read_model, "CPU", PROCESS)
    fork_server = parent_of(compiled.process)
    here = len(os.listdir(f"/proc/{fork_server}/fd"))
    for _ in range(3):
        core.compile_model(read_model, "CPU", PROCESS)(X)
    gc.collect()
    assert until(lambda: len(os.listdir(f"/proc/{fork_server}/fd")) == here)
    del compiled
    gc.collect()
    assert until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert until(lambda: not children_of(fork_server))


def test_the_map_of_an_array(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 64)
    data = map_file(str(path), "a file", hetero.ModelError)
    mapped = mapping_of(data)
    assert isinstance(mapped, MappedFile)
    array = np.frombuffer(data[100:], np.uint8)[3:].view(np.uint8)[1:99]
    assert mapping_of(array) is mapped
    assert mapping_of(np.frombuffer(array[:50].data, np.uint8)) is mapped
    assert mapping_of(np.arange(3)) is None
    assert mapping_of(np.frombuffer(b"abcd", np.uint8)) is None
    opened = mapped.reopen()
    assert opened is not None
    assert os.pread(opened.number, 4, 254) == b"\xfe\xff\x00\x01"
    assert mapped.is_whole
    os.truncate(path, 100)
    assert not mapped.is_whole
    assert mapped.reopen() is None
