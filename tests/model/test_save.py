"""Saving: what is in the files, that old or new is there whole, and that the weights do not pass through memory."""

from __future__ import annotations

import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import onnxruntime as ort
import pytest

from hetero.errors import ModelError
from hetero.model.read import read_model

Make = Callable[..., onnx.ModelProto]


def weights(*sizes: int) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(0)
    return [onh.from_array(rng.standard_normal(size).astype(np.float32), f"w{i}") for i, size in enumerate(sizes)]


def sum_of(make_model: Make, tensors: list[onnx.TensorProto], **more: Any) -> onnx.ModelProto:
    """y = x + w0 + w1 + ..., x a scalar, all of unequal lengths."""
    nodes = [oh.make_node("ReduceSum", [tensor.name], [f"s{i}"], keepdims=0) for i, tensor in enumerate(tensors)]
    nodes.append(oh.make_node("Sum", ["x", *(f"s{i}" for i in range(len(tensors)))], ["y"]))
    ports = [oh.make_tensor_value_info(name, 1, []) for name in "xy"]
    return make_model(nodes, ports[:1], ports[1:], tensors, **more)


def run(path: pathlib.Path) -> float:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return float(session.run(None, {"x": np.zeros((), np.float32)})[0])


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_large_tensors_go_to_a_file_beside(make_model: Make, tmp_path: pathlib.Path) -> None:
    tensors = weights(300_000, 10, 301, 256)
    tensors[2].doc_string = "kept"
    model = read_model(sum_of(make_model, tensors))
    model.save(tmp_path / "m.onnx", external_above=1024)
    assert names(tmp_path) == ["m.onnx", "m.onnx.1.data"]
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    stated = onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
    outside = {t.name: {e.key: e.value for e in t.external_data} for t in stated if t.data_location}
    assert outside == {
        "w0": {"location": "m.onnx.1.data", "offset": "0", "length": "1200000"},
        "w2": {"location": "m.onnx.1.data", "offset": "1200000", "length": "1204"},
        "w3": {"location": "m.onnx.1.data", "offset": "1201216", "length": "1024"},  # aligned to 64
    }
    assert {t.name: t.doc_string for t in stated}["w2"] == "kept"
    again = read_model(tmp_path / "m.onnx")
    for tensor in tensors:
        np.testing.assert_array_equal(again.initializers[tensor.name].numpy(), onh.to_array(tensor))
        assert again.initializers[tensor.name].external_path == (outside.get(tensor.name) or {}).get("location")
    expected = sum(onh.to_array(tensor).sum(dtype=np.float64) for tensor in tensors)
    assert run(tmp_path / "m.onnx") == pytest.approx(expected, abs=1e-2)
    # Only what a part reads comes along, and pages are kept.
    part = again.extract([3, 0])
    part.save(tmp_path / "part.onnx", external_above=1)
    assert (tmp_path / "part.onnx.1.data").stat().st_size == 1_200_000 + 1024
    assert again.extract([1]).to_proto().graph.initializer[0].name == "w1"


def test_everything_stays_inside_by_default(make_model: Make, tmp_path: pathlib.Path) -> None:
    proto = sum_of(make_model, weights(5000))
    read_model(proto).save(tmp_path / "m.onnx", external_above=1)
    read_model(tmp_path / "m.onnx").save(tmp_path / "n.onnx")
    assert onnx.load(tmp_path / "n.onnx") == proto
    read_model(tmp_path / "n.onnx").save(tmp_path / "o.onnx", external_above=1 << 40)
    assert names(tmp_path) == ["m.onnx", "m.onnx.1.data", "n.onnx", "o.onnx"]
    assert (tmp_path / "o.onnx").read_bytes() == (tmp_path / "n.onnx").read_bytes()


def test_empty_tensors_stay_inside(make_model: Make, tmp_path: pathlib.Path) -> None:
    """No data file is written for them alone, so they must not refer to one."""
    empty = oh.make_tensor("e", onnx.TensorProto.FLOAT, [0], b"", raw=True)
    proto = make_model([oh.make_node("Concat", ["x", "e"], ["y"], axis=0)], initializers=[empty])
    read_model(proto).save(tmp_path / "m.onnx", external_above=0)
    assert names(tmp_path) == ["m.onnx"]
    assert read_model(tmp_path / "m.onnx").initializers["e"].numpy().shape == (0,)


def test_all_kinds_of_tensors(make_model: Make, tmp_path: pathlib.Path) -> None:
    import ml_dtypes

    typed = oh.make_tensor("w0", onnx.TensorProto.INT32, [400], list(range(400)))
    packed = oh.make_tensor("w1", onnx.TensorProto.FLOAT, [400], list(range(400)))
    half = onh.from_array(np.arange(400).astype(ml_dtypes.bfloat16), "w2")
    nibbles = onh.from_array((np.arange(4001) % 7).astype(ml_dtypes.int4), "w3")
    values = oh.make_sparse_tensor(oh.make_tensor("w4", 1, [1], [5.0]), oh.make_tensor("", 7, [1], [1]), [2])
    constant = oh.make_node("Constant", [], ["w5"], value=onh.from_array(np.arange(400.0)))
    texts = oh.make_tensor("w6", onnx.TensorProto.STRING, [2], ["a" * 2000, "b"])
    nodes = [constant, oh.make_node("Frob", [f"w{i}" for i in range(7)], ["y"], domain="mine")]
    proto = make_model(nodes, [], None, [typed, packed, half, nibbles, texts], sparse_initializer=[values])
    proto.opset_import.add(domain="mine", version=1)
    model = read_model(proto)
    model.save(tmp_path / "m.onnx", external_above=1024)
    again = read_model(tmp_path / "m.onnx")
    for i in range(7):
        np.testing.assert_array_equal(
            again.constant(again.value_id(f"w{i}")), model.constant(model.value_id(f"w{i}")), strict=True
        )
    outside = {name for name, view in again.initializers.items() if view.external_path}
    assert outside == {"w1", "w3", "w5"}  # bfloat16 takes 800 bytes
    assert again.initializers["w4"].is_sparse


def test_tensors_in_attributes_and_functions_come_along(make_model: Make, tmp_path: pathlib.Path) -> None:
    """Nested graphs' initializers, tensors in attributes and in functions may be external too."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "w.bin").write_bytes(np.arange(600, dtype=np.float32).tobytes())

    def external(name: str, dims: list[int], offset: int) -> onnx.TensorProto:
        tensor = onnx.TensorProto(name=name, data_type=1, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="w.bin")
        tensor.external_data.add(key="offset", value=str(offset))
        return tensor

    value = oh.make_tensor_value_info
    then = oh.make_graph([oh.make_node("Mul", ["x", "k"], ["t"])], "then", [], [value("t", 1, [300])])
    then.initializer.append(external("k", [300], 1200))
    other = oh.make_graph(
        [
            oh.make_node("Constant", [], ["k"], value=external("", [2], 4)),
            oh.make_node("Gather", ["k", "zero"], ["g"]),
            oh.make_node("Mul", ["x", "g"], ["e"]),
        ],
        "else",
        [],
        [value("e", 1, [300])],
    )
    function = oh.make_function(
        "mine",
        "AddFar",
        ["a"],
        ["b"],
        [oh.make_node("Constant", [], ["c"], value=external("", [300], 8)), oh.make_node("Add", ["a", "c"], ["b"])],
        [oh.make_opsetid("", 17)],
    )
    nodes = [
        oh.make_node("If", ["c"], ["i"], name="choose", then_branch=then, else_branch=other),
        oh.make_node("AddFar", ["i"], ["y"], domain="mine", name="far"),
    ]
    ports = [value("x", 1, [300]), value("c", 9, [])]
    proto = make_model(nodes, ports, [value("y", 1, [300])], [onh.from_array(np.array(0), "zero")])
    proto.opset_import.add(domain="mine", version=1)
    proto.functions.append(function)
    onnx.save(proto, source / "m.onnx")
    numbers = np.arange(600, dtype=np.float32)
    x = np.linspace(0, 1, 300, dtype=np.float32)
    model = read_model(source / "m.onnx")
    for threshold, affinity, files in ((1024, {}, 2), (1 << 30, {"choose": "FPGA"}, 1), (1, {"far": "FPGA"}, 2)):
        model.with_affinity(affinity).save(target / "m.onnx", external_above=threshold)
        assert len(names(target)) == files
        session = ort.InferenceSession(str(target / "m.onnx"), providers=["CPUExecutionProvider"])
        for condition, factor in ((True, numbers[300:]), (False, numbers[1])):
            (found,) = session.run(None, {"x": x, "c": np.array(condition)})
            np.testing.assert_allclose(found, x * factor + numbers[2:302])
        assert read_model(target / "m.onnx").affinity == affinity
    assert "w.bin" not in str(model.to_proto())
    (source / "w.bin").unlink()
    model = read_model(source / "m.onnx")
    with pytest.raises(ModelError, match=r"node 'choose' \(If\): tensor 'k': external data 'w.bin' cannot be opened"):
        model.to_bytes()
    assert model.outputs[0].shape == (300,)  # types need no weights


def test_a_model_is_saved_over_its_own_files(make_model: Make, tmp_path: pathlib.Path) -> None:
    tensors = weights(2_000_000, 300)
    expected = [onh.to_array(tensor) for tensor in tensors]
    path = tmp_path / "m.onnx"
    read_model(sum_of(make_model, tensors)).save(path, external_above=1)
    model = read_model(path)  # nothing is read from the data file yet
    for files in (["m.onnx", "m.onnx.2.data"], ["m.onnx", "m.onnx.1.data"], ["m.onnx", "m.onnx.2.data"]):
        part = model.extract([1, 2]) if files[1] == "m.onnx.1.data" else model
        part.save(path, external_above=1)
        assert names(tmp_path) == files
        for name in read_model(path).initializers:
            np.testing.assert_array_equal(
                read_model(path).initializers[name].numpy(), model.initializers[name].numpy(), strict=True
            )
    for i, array in enumerate(expected):
        np.testing.assert_array_equal(model.initializers[f"w{i}"].numpy(), array)
    model.save(path)
    assert names(tmp_path) == ["m.onnx"]
    np.testing.assert_array_equal(read_model(path).initializers["w0"].numpy(), expected[0])


def test_files_of_others_stay(make_model: Make, tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.onnx.1.data").write_bytes(b"somebody's")
    (tmp_path / "m.onnx.data").write_bytes(b"somebody's")
    model = read_model(sum_of(make_model, weights(300)))
    model.save(tmp_path / "m.onnx", external_above=1)
    model.save(tmp_path / "m.onnx", external_above=1)
    assert names(tmp_path) == ["m.onnx", "m.onnx.1.data", "m.onnx.3.data", "m.onnx.data"]
    assert (tmp_path / "m.onnx.1.data").read_bytes() == b"somebody's"
    # A model may even be saved over a file that holds its weights.
    onnx.save_model(
        onnx.load(tmp_path / "m.onnx"),
        tmp_path / "n.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    model = read_model(tmp_path / "n.onnx")
    model.save(tmp_path / "w.bin")
    np.testing.assert_array_equal(model.initializers["w0"].numpy(), onh.to_array(weights(300)[0]))


def test_failure_leaves_everything_as_it_was(make_model: Make, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(
        sum_of(make_model, weights(3000)), path, save_as_external_data=True, location="w.bin", size_threshold=0
    )
    model = read_model(path)
    before = path.read_bytes()
    (tmp_path / "w.bin").write_bytes(b"too short")
    for threshold in (1, 1 << 30):
        with pytest.raises(ModelError, match="'w.bin' has 9 bytes, but the tensor needs bytes 0 to 12000"):
            model.save(path, external_above=threshold)
        assert names(tmp_path) == ["m.onnx", "w.bin"]
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="expected a size in bytes"):
        model.save(path, external_above=-1)
    with pytest.raises(OSError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "m.onnx", external_above=1)


def sparse_file(path: pathlib.Path, size: int) -> None:
    with open(path, "wb") as stream:
        stream.truncate(size)


def large_model(make_model: Make, folder: pathlib.Path, megabytes: int, tensors: int) -> pathlib.Path:
    """A model whose weights are a hole of so many megabytes, each tensor marked by its number at its end."""
    size = (megabytes << 20) // tensors // 4 * 4
    sparse_file(folder / "w.bin", size * tensors)
    listed = []
    with open(folder / "w.bin", "r+b") as stream:
        for i in range(tensors):
            tensor = onnx.TensorProto(name=f"w{i}", data_type=1, dims=[size // 4], data_location=1)
            for key, value in (("location", "w.bin"), ("offset", str(size * i)), ("length", str(size))):
                tensor.external_data.add(key=key, value=value)
            listed.append(tensor)
            stream.seek(size * (i + 1) - 4)
            stream.write(np.float32(i + 1).tobytes())
    onnx.save(sum_of(make_model, listed), folder / "m.onnx")
    return folder / "m.onnx"


def test_more_than_two_gigabytes(make_model: Make, tmp_path: pathlib.Path) -> None:
    path = large_model(make_model, tmp_path, 3000, 10)
    model = read_model(path)
    last = model.initializers["w9"].numpy()
    assert (last[-1], last[0], last.nbytes) == (10, 0, 300 << 20)
    assert not last.flags.owndata
    with pytest.raises(ModelError, match="an ONNX file can have at most 2147483647"):
        model.to_bytes()
    with pytest.raises(ModelError, match="save it with the weights in a separate file"):
        model.save(tmp_path / "n.onnx", external_above=1 << 40)
    (port,) = model.extract([2]).outputs
    assert (port.dtype, port.shape) == (np.float32, ())
    # Weights of which the file system keeps holes cost neither memory nor disk to read; saving writes a part.
    part = model.extract([3, 4])
    part.save(tmp_path / "part.onnx")
    assert names(tmp_path) == ["m.onnx", "part.onnx", "part.onnx.1.data", "w.bin"]
    saved = read_model(tmp_path / "part.onnx").initializers["w3"].numpy()
    assert (saved[-1], saved[-2]) == (4, 0)


_SAVE_AND_REPORT = """
import sys
def peak():  # not ru_maxrss, which a process inherits from the one that started it
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
from hetero.model.read import read_model
model = read_model(sys.argv[1])
model.outputs
before = peak()
model.save(sys.argv[2], external_above=1)
print(peak() - before)
"""


def test_weights_do_not_pass_through_memory(make_model: Make, tmp_path: pathlib.Path) -> None:
    path = large_model(make_model, tmp_path, 512, 4)
    command = [sys.executable, "-c", _SAVE_AND_REPORT, str(path), str(tmp_path / "n.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 16 << 10  # KiB
    again = read_model(tmp_path / "n.onnx")
    assert [again.initializers[f"w{i}"].numpy()[-1] for i in range(4)] == [1, 2, 3, 4]


_SAVE_FOR_EVER = """
import sys
from hetero.model.read import read_model
models = [read_model(path) for path in sys.argv[2:]]
print(flush=True)
while True:
    for model in models:
        model.save(sys.argv[1], external_above=1)
"""


def test_a_kill_leaves_the_old_or_the_new(make_model: Make, tmp_path: pathlib.Path) -> None:
    """Two models, each of one number throughout, are saved over each other until the process is killed."""
    paths = []
    for number in (1, 2):
        array = np.full(2_000_000, number, np.float32)
        paths.append(tmp_path / f"source{number}.onnx")
        proto = sum_of(make_model, [onh.from_array(array, "w0"), onh.from_array(array[:1000], "w1")])
        proto.doc_string = str(number)
        onnx.save(proto, paths[-1])
    (tmp_path / "target").mkdir()
    target = tmp_path / "target" / "m.onnx"
    read_model(paths[0]).save(target, external_above=1)
    rng = np.random.default_rng(0)
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", _SAVE_FOR_EVER, str(target), *map(str, paths)], stdout=subprocess.PIPE
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(float(rng.random()) * 0.2)
            os.kill(process.pid, signal.SIGKILL)
        model = read_model(target)
        number = int(model.doc_string)
        for view in model.initializers.values():
            array = view.numpy()
            assert (array == number).all()
        onnx.checker.check_model(str(target))


def test_a_name_that_a_killed_process_reserved_is_free_again(tmp_path: pathlib.Path, make_model: Make) -> None:
    """An empty, unlocked data file that the model does not name goes; one of a living process stays."""
    model = read_model(sum_of(make_model, weights(3)))
    left, held, other = (tmp_path / name for name in ("m.onnx.1.data", "m.onnx.2.data", "n.onnx.1.data"))
    for path in (left, held, other):
        path.touch()
    with open(held, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        model.save(tmp_path / "m.onnx", external_above=0)
    assert {path.name: path.stat().st_size for path in tmp_path.glob("*.data")} == {
        left.name: 12,
        held.name: 0,
        other.name: 0,
    }
    model.save(tmp_path / "m.onnx", external_above=0)
    assert not held.exists() or held.stat().st_size == 12
    assert other.exists()
