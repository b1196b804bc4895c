"""External data as models in the wild have it: many files, shared caches, files above 2 GiB, tensors that overlap."""

from __future__ import annotations

import gc
import os
import pathlib
import resource
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from hetero.core import Core
from hetero.errors import HeteroError, ModelError
from hetero.model.read import read_model

Make = Callable[..., onnx.ModelProto]


def external(name: str, location: str, dims: list[int], offset: int = 0, length: int | None = None) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=1, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)} | ({} if length is None else {"length": str(length)})
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def save(make_model: Make, folder: pathlib.Path, tensors: list[onnx.TensorProto]) -> pathlib.Path:
    nodes = [oh.make_node("Concat", [tensor.name for tensor in tensors], ["y"], axis=0)]
    onnx.save(make_model(nodes, [], [oh.make_tensor_value_info("y", 1, ["n"])], tensors), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(160, before[0]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_descriptors")
@pytest.mark.parametrize("size", [400, 1 << 19])
def test_a_file_per_tensor(make_model: Make, tmp_path: pathlib.Path, size: int) -> None:
    """Small files are read, large ones mapped for as long as somebody uses them."""
    count = 300
    for i in range(count):
        with open(tmp_path / f"w{i}.bin", "wb") as stream:
            stream.write(np.float32(i).tobytes())
            stream.truncate(size * 4)
    model = read_model(save(make_model, tmp_path, [external(f"w{i}", f"w{i}.bin", [size]) for i in range(count)]))
    for _ in range(2):
        assert [view.numpy()[0] for view in model.initializers.values()] == list(range(count))
    held = [view.numpy() for view in list(model.initializers.values())[:20]]
    assert sum(view.numpy()[0] for view in model.initializers.values()) == sum(range(count))
    assert [array[0] for array in held] == list(range(20))
    (tmp_path / "saved").mkdir()
    model.save(tmp_path / "saved" / "m.onnx", external_above=1)
    again = read_model(tmp_path / "saved" / "m.onnx")
    assert [view.numpy()[0] for view in again.initializers.values()] == list(range(count))
    if size > 400:  # all at once is more than the process may open
        with pytest.raises(ModelError, match=r"initializer 'w\d+': external data .*Too many open files"):
            held += [view.numpy() for view in model.initializers.values()]
        del held
        gc.collect()
        assert model.initializers["w299"].numpy()[0] == 299


def test_shared_caches_need_the_opt_in(make_model: Make, tmp_path: pathlib.Path) -> None:
    """As caches of downloaded models are laid out: snapshots of links to blobs that are named by content."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1234"
    blobs.mkdir()
    (snapshot / "onnx").mkdir(parents=True)
    (blobs / "abcd").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (snapshot / "onnx" / "w.bin").symlink_to("../../../blobs/abcd")
    (snapshot / "onnx" / "hard.bin").hardlink_to(blobs / "abcd")
    path = save(make_model, blobs, [external("w", "w.bin", [4]), external("h", "hard.bin", [4])])
    path.rename(blobs / "ef01")
    (snapshot / "onnx" / "m.onnx").symlink_to("../../../blobs/ef01")
    core = Core()
    strict = core.read_model(snapshot / "onnx" / "m.onnx")  # the user named this one: it may be a link
    for name, reason in (("w", "links are not followed"), ("h", "has 2 hard links")):
        with pytest.raises(ModelError, match=f"initializer '{name}': .*{reason}"):
            strict.initializers[name].numpy()
    with pytest.raises(ModelError, match="initializer 'w': .*links are not followed"):
        strict.save(tmp_path / "n.onnx")
    trusted = core.read_model(snapshot / "onnx" / "m.onnx", follow_links=True)
    assert trusted.initializers["w"].numpy().tolist() == trusted.initializers["h"].numpy().tolist() == [0, 1, 2, 3]
    trusted.save(tmp_path / "n.onnx", external_above=1)
    assert read_model(tmp_path / "n.onnx").initializers["w"].numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("offset", "length", "dims", "message"),
    [
        ((3 << 30) - 4, None, [2], "has 3221225472 bytes, but the tensor needs bytes 3221225468 to 3221225476"),
        ((3 << 30) + 1, 0, [0], "has 3221225472 bytes"),
        (10**18 - 1, None, [2], "has 3221225472 bytes"),
        (10**18, None, [2], "expected a number of bytes"),
        (2**64 - 4, None, [2], "expected a number of bytes"),
        (0, 2**63, [2], "expected a number of bytes"),
        (0, None, [2**60], "the tensor needs bytes 0 to 4611686018427387904"),
        (8, 4, [2], "length is 4, but dims and data_type require 8"),
    ],
)
def test_ranges_that_do_not_fit(
    make_model: Make, tmp_path: pathlib.Path, offset: int, length: int | None, dims: list[int], message: str
) -> None:
    with open(tmp_path / "w.bin", "wb") as stream:
        stream.truncate(3 << 30)  # a hole: takes no disk
    good = external("good", "w.bin", [2], (3 << 30) - 8, 8)
    model = read_model(save(make_model, tmp_path, [good, external("w", "w.bin", dims, offset, length)]))
    assert model.initializers["good"].numpy().tolist() == [0, 0]
    with pytest.raises(ModelError, match=f"initializer 'w': .*{message}"):
        model.initializers["w"].numpy()
    with pytest.raises(ModelError, match=message):
        model.save(tmp_path / "n.onnx", external_above=1)
    assert not (tmp_path / "n.onnx").exists()


def test_a_mapped_file_that_is_shortened(make_model: Make, tmp_path: pathlib.Path) -> None:
    """Reading beyond its end would end the process."""
    data = tmp_path / "w.bin"
    data.write_bytes(bytes(3 << 20))
    tensors = [external("first", "w.bin", [8]), external("last", "w.bin", [8], (3 << 20) - 32)]
    model = read_model(save(make_model, tmp_path, tensors))
    held = model.initializers["first"].numpy()
    os.truncate(data, 1 << 20)
    assert held.tolist() == [0] * 8
    with pytest.raises(ModelError, match="initializer 'last': external data 'w.bin' has 1048576 bytes"):
        model.initializers["last"].numpy()
    os.truncate(data, 4 << 20)  # the map does not grow with it
    assert model.initializers["last"].numpy().tolist() == [0] * 8


@pytest.mark.parametrize("in_place", [False, True])
def test_a_file_that_changes_after_its_first_use(make_model: Make, tmp_path: pathlib.Path, in_place: bool) -> None:
    """A model never uses some weights of the old file and some of the new one."""
    data = tmp_path / "w.bin"
    data.write_bytes(bytes(64))
    model = read_model(save(make_model, tmp_path, [external("w", "w.bin", [16])]))
    assert not model.initializers["w"].numpy().any()
    new = data if in_place else tmp_path / "new"
    new.write_bytes(b"\1" * 64)
    os.utime(new, ns=(0, 7))
    new.replace(data)
    with pytest.raises(ModelError, match="external data 'w.bin' has changed since this model first read it"):
        model.save(tmp_path / "n.onnx", external_above=1)
    assert not (tmp_path / "n.onnx").exists()
    read_model(tmp_path / "m.onnx").save(tmp_path / "n.onnx", external_above=1)
    assert (tmp_path / "n.onnx.1.data").read_bytes() == b"\1" * 64


def test_tensors_that_share_their_data_still_do(make_model: Make, tmp_path: pathlib.Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(1000, dtype=np.float32).tobytes())
    tied = [external("a", "w.bin", [900]), external("b", "./w.bin", [900]), external("c", "w.bin", [900], 40)]
    save(make_model, tmp_path, tied)
    model = read_model(tmp_path / "m.onnx")
    model.save(tmp_path / "n.onnx", external_above=1)
    assert (tmp_path / "n.onnx.1.data").stat().st_size == 3648 + 3600
    again = read_model(tmp_path / "n.onnx")
    for name in "abc":
        np.testing.assert_array_equal(again.initializers[name].numpy(), model.initializers[name].numpy())


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:CONTROL_FLOW,CPU"])
@pytest.mark.parametrize("place", ["graph", "branch", "function"])
def test_attributes_are_read_from_the_models_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: str, device: str
) -> None:
    """Not from a file of the same name in the current folder."""
    (tmp_path / "other").mkdir()
    np.array([5, 6], np.float32).tofile(tmp_path / "w.bin")
    np.array([1, 2], np.float32).tofile(tmp_path / "other" / "w.bin")
    monkeypatch.chdir(tmp_path / "other")

    def fill(output: str) -> onnx.NodeProto:
        return oh.make_node("ConstantOfShape", ["shape"], [output], value=external("value", "w.bin", [1], 4, 4))

    nodes, functions = [fill("y")], []
    if place == "branch":
        branches = {
            name: oh.make_graph([fill(name)], name, [], [oh.make_tensor_value_info(name, 1, None)])
            for name in ("then_branch", "else_branch")
        }
        nodes = [oh.make_node("If", ["condition"], ["y"], **branches)]
    elif place == "function":
        nodes = [oh.make_node("Fill", ["shape"], ["y"], domain="own")]
        functions = [oh.make_function("own", "Fill", ["shape"], ["y"], [fill("y")], [oh.make_opsetid("", 18)])]
    inputs = [oh.make_tensor_value_info("shape", 7, [1]), oh.make_tensor_value_info("condition", 9, [])]
    graph = oh.make_graph(nodes, "g", inputs, [oh.make_tensor_value_info("y", 1, ["n"])])
    opsets = [oh.make_opsetid("", 18), oh.make_opsetid("own", 1)]
    model = oh.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    feeds = {"shape": np.array([3]), "condition": np.array(True)}
    np.testing.assert_array_equal(Core().compile_model(tmp_path / "m.onnx", device)(feeds)["y"], [6, 6, 6])
    with pytest.raises(HeteroError, match="the model's folder is unknown"):
        Core().compile_model(model.SerializeToString(), device)
