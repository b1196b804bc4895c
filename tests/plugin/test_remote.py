"""Contexts, and tensors made in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import hetero
import opencl
from hetero.plugin import CompiledModel, Plugin, RemoteContext, RemoteTensor, Support
from hetero.plugin.remote import DeviceContexts, HostContext, HostTensor
from model_zoo import make_model

X = np.float32([[1, -2, 3], [-4, 5, 6]])


class Memory(RemoteTensor):
    """What a device with a memory of its own would give; here DLPack's CPU, so that it can be looked at."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.handed_out = 0

    def __dlpack__(self, **options: Any) -> Any:
        self.handed_out += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Island(RemoteContext):
    def create_tensor(self, dtype: Any, shape: Sequence[int]) -> Memory:
        return Memory(np.zeros(shape, dtype))


class Remote(Plugin):
    """A device in another memory: Relu; keeps the contexts that it compiles with."""

    name = "REMOTE"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[RemoteContext | None] = []
        self.island = Island()

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        refused = {i: "only Relu" for i in range(model.num_nodes) if model.nodes[i].op_type != "Relu"}
        return Support.from_reasons(model.num_nodes, refused)

    def compile_model(
        self, model: hetero.Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        self.seen.append(context)
        return RemoteModel(self.name, model.inputs, model.outputs)

    def create_context(self, parameters: Mapping[str, Any]) -> RemoteContext:
        return Island()

    def get_default_context(self) -> RemoteContext:
        return self.island


class Plain(Remote):
    """A device without contexts."""

    name = "PLAIN"
    create_context = Plugin.create_context
    get_default_context = Plugin.get_default_context


class RemoteModel(CompiledModel):
    def create_runner(self) -> RemoteModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.maximum(inputs[0], 0) for _ in self.outputs]

    def profile(self) -> tuple[()]:
        return ()


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64, bool, np.float16])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (2, 3, 5)])
def test_tensors_of_the_host(core: hetero.Core, dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = core.create_context("CPU").create_tensor(dtype, shape)
    assert isinstance(tensor, HostTensor)
    assert (tensor.dtype, tensor.shape) == (np.dtype(dtype), shape)
    assert tensor.numpy().ctypes.data % 64 == 0 or tensor.numpy().size == 0
    tensor.numpy()[...] = 1
    shared = np.from_dlpack(tensor)
    np.testing.assert_array_equal(shared, np.ones(shape, dtype))
    assert np.shares_memory(shared, tensor.numpy()) or shared.size == 0


def test_tensors_as_arrays(core: hetero.Core) -> None:
    tensor = core.get_default_context("CPU").create_tensor(np.float32, (2, 3))
    tensor.write(X)
    for view in (np.asarray(tensor), np.asarray(tensor, np.float32)):
        assert np.shares_memory(view, tensor.numpy())
    for copied in (np.array(tensor), np.asarray(tensor, np.float64)):
        assert not np.shares_memory(copied, tensor.numpy())
        np.testing.assert_array_equal(copied, X)
    assert np.add(tensor, 1).tolist() == (X + 1).tolist()
    with pytest.raises(ValueError, match="float32 cannot be viewed as float64"):
        tensor.__array__(np.float64, copy=False)
    np.testing.assert_array_equal(np.asarray(Memory(X)), X)  # of a plugin


def test_tensors_of_other_memory_as_arrays() -> None:
    class Away(Memory):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def numpy(self) -> np.ndarray:
            return self.array.copy()

    tensor = Away(X)
    for array in (np.asarray(tensor), np.array(tensor)):
        np.testing.assert_array_equal(array, X)
    assert np.asarray(tensor, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="Away is in the memory of a device, which NumPy cannot view"):
        tensor.__array__(copy=False)


def test_a_request_reads_the_memory_itself(core: hetero.Core, diamond: hetero.Model) -> None:
    context = core.get_default_context("CPU")
    assert context is core.get_default_context("CPU")
    compiled = core.compile_model(diamond, "CPU", context=context)
    tensor = context.create_tensor(np.float32, (2, 3))
    tensor.write(X)
    for wrong in (X[:1], X.astype(np.float64), HostTensor(X[:, :1]), [1.0]):
        with pytest.raises(hetero.PropertyError, match=r"cannot write .* to a tensor of float32 \[2, 3\]"):
            tensor.write(wrong)  # type: ignore[arg-type]
    np.testing.assert_array_equal(tensor.numpy(), X)
    for factor in (1, 2):
        np.from_dlpack(tensor)  # others may look at it
        assert isinstance(tensor, HostTensor)
        tensor.numpy()[:] = X * factor
        np.testing.assert_array_equal(compiled({"x": tensor})["y"], compiled(X * factor)["y"])


def test_what_cannot_be_is_refused(core: hetero.Core, diamond: hetero.Model) -> None:
    context = core.create_context("CPU")
    for huge in ((2**40, 2**40), (2**40, 2**10)):
        with pytest.raises(hetero.InsufficientMemory, match="CPU: not enough memory") as caught:
            context.create_tensor(np.float64, huge)
        assert caught.value.shortfall == {"CPU": 8 * huge[0] * huge[1]}
    assert context.create_tensor(ml_dtypes.bfloat16, (3,))
    with pytest.raises(hetero.PropertyError, match="no parameters, found 'QUEUE'"):
        core.create_context("CPU", {"QUEUE": 1})
    with pytest.raises(hetero.PropertyError, match="this machine's memory"):
        core.compile_model(diamond, "CPU", context=Island())
    with pytest.raises(hetero.PropertyError, match="contexts of its devices"):
        core.compile_model(diamond, "HETERO:CPU,TEMPLATE", context=context)
    with pytest.raises(hetero.PropertyError, match=r"core.compile_model\(model, 'CPU', context=context\)"):
        core.compile_model(diamond, context)  # type: ignore[arg-type]
    for name in ("AUTO", "HETERO"):
        with pytest.raises(hetero.NotSupported, match=f"{name} has no remote contexts: use the context of one device"):
            core.create_context(name)
    core.register_plugin("PLAIN", Plain)
    with pytest.raises(hetero.NotSupported, match="PLAIN has no remote contexts"):
        core.create_context("PLAIN")
    with pytest.raises(hetero.NotSupported, match="no device of HETERO:PLAIN has"):
        core.get_default_context("HETERO:PLAIN")
    with pytest.raises(hetero.PropertyError, match="at least one"):
        DeviceContexts({})


@pytest.mark.parametrize("device", ["CPU", "CPU.0", "TEMPLATE", "FPGA", "ORT", "ORT.CPU", "OPENVINO", "OPENVINO.CPU"])
def test_contexts_of_devices_that_compute_on_the_host(core: hetero.Core, device: str) -> None:
    name = device.partition(".")[0]
    if name in ("ORT", "OPENVINO"):
        pytest.importorskip("onnxruntime" if name == "ORT" else "openvino")
    context = core.get_default_context(device)
    assert isinstance(context, HostContext)
    assert context is core.get_default_context(device)
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    compiled = core.compile_model(model, device, context=context)
    tensor = core.create_context(device).create_tensor(np.float32, (2, 3))
    assert isinstance(tensor, HostTensor)
    for factor in (1, -1):
        tensor.numpy()[:] = X * factor
        np.testing.assert_array_equal(compiled({"x": tensor})["y"], np.maximum(X * factor, 0))
    with pytest.raises(hetero.PropertyError, match="this machine's memory"):
        core.compile_model(model, device, context=Island())
    with pytest.raises(hetero.PropertyError, match="QUEUE"):
        core.create_context(device, {"QUEUE": 1})


def test_cut_models_get_the_contexts_of_their_devices(core: hetero.Core, diamond: hetero.Model) -> None:
    remote = Remote()
    core.register_plugin("REMOTE", lambda: remote)
    context = core.get_default_context("HETERO:REMOTE,CPU,TEMPLATE")
    assert isinstance(context, DeviceContexts)
    assert list(context.contexts) == ["REMOTE", "CPU", "TEMPLATE"]
    compiled = core.compile_model(diamond, "HETERO:REMOTE,CPU", context=context)
    assert remote.seen
    assert set(map(id, remote.seen)) == {id(remote.island)}
    tensor = context.create_tensor(np.float32, (2, 3))
    assert isinstance(tensor, Memory)
    tensor.array[:] = X
    expected = core.compile_model(diamond, "CPU")(X)["y"]
    np.testing.assert_allclose(compiled({"x": tensor})["y"], expected, rtol=1e-6)
    assert tensor.handed_out == 1
    chosen = core.create_context("HETERO:REMOTE,CPU", {"CPU": {}})
    assert isinstance(chosen, DeviceContexts)
    assert isinstance(chosen.contexts["CPU"], HostContext)


@pytest.mark.parametrize(
    ("dtype", "shape", "says"),
    [
        (np.float32, (-1,), r"cannot create a tensor of float32 \[-1\]"),
        (object, (2,), r"cannot create a tensor of object \[2\]"),
        (None, (2,), "cannot create a tensor of object"),
        ("S3", (2,), r"cannot create a tensor of \|S3"),
        ("M8[s]", (2,), "cannot create a tensor of datetime64"),
        ("V4", (2,), r"cannot create a tensor of \|V4"),
        (">f4", (2,), "cannot create a tensor of >f4"),
        ("nothing", (2,), "expected the dtype of a tensor, such as np.float32, found 'nothing'"),
        (np.float32, 5, "expected the sizes of a tensor, found 5"),
        (np.float32, None, "expected the sizes of a tensor, found None"),
        (np.float32, ("a",), "expected the sizes of a tensor"),
        (np.float32, (1.5, 2), r"expected the sizes of a tensor, found \(1.5, 2\)"),
    ],
)
def test_tensors_that_cannot_be(core: hetero.Core, dtype: Any, shape: Any, says: str) -> None:
    for device in ("CPU", "ORT", *(() if opencl.unavailable() else ("OPENCL",))):
        context = core.get_default_context(device)
        with pytest.raises(hetero.PropertyError, match=says):
            context.create_tensor(dtype, shape)
        if device != "OPENCL":
            with pytest.raises(hetero.PropertyError, match="expected a NumPy array to upload, found 'text'"):
                context.upload("text")  # type: ignore[arg-type]
        assert context.create_tensor(np.float32, np.int64([1, 2])).shape == (1, 2)
