"""Whether OpenCL can be tested here, and the comparison of its results with other devices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

import hetero
from hetero.errors import DeviceUnavailable

if TYPE_CHECKING:
    from hetero.devices.opencl.device import Device


@functools.cache
def unavailable() -> str:
    """Why the device OPENCL is not available; empty if it is."""
    from hetero.devices.opencl import backend

    try:
        backend.find_devices()
    except DeviceUnavailable as error:
        return str(error)
    return ""


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    outputs: Sequence[str] | None = None,
    dynamic: bool = False,
) -> onnx.ModelProto:
    """A model of these nodes. Its outputs are those of all nodes, unless ``outputs`` lists them. ``dynamic``: the sizes
    of its inputs are open."""
    named = [name for node in nodes for name in node.output if name] if outputs is None else outputs
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                [None] * array.ndim if dynamic else list(array.shape),
            )
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in named],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def refusals(core: hetero.Core, model: onnx.ModelProto) -> dict[str, str]:
    """Node -> why OPENCL refuses it."""
    reasons = core.query_model(core.read_model(model), "OPENCL").reasons
    return {key: by_device["OPENCL"] for key, by_device in reasons.items()}


def check(
    core: hetero.Core,
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray],
    rtol: float = 1e-5,
    atol: float = 1e-6,
    reference: str = "ORT",
) -> None:
    """OPENCL runs the whole model, twice, and its results are those of ``reference``."""
    expected = core.compile_model(core.read_model(model), reference)(inputs)
    request = core.compile_model(core.read_model(model), "OPENCL").create_infer_request()
    for _ in range(2):
        found = request.infer(inputs)
        for name, wanted in expected.items():
            assert found[name].dtype == wanted.dtype, name
            assert found[name].shape == wanted.shape, name
            np.testing.assert_allclose(
                found[name].astype(np.float64), wanted.astype(np.float64), rtol, atol, err_msg=name
            )


@contextlib.contextmanager
def shared_by_items(items: int) -> Iterator[None]:
    """Rows are computed by ``items`` work-items each, as on GPUs."""
    device = first_device()
    before, device.row_items = device.row_items, items
    try:
        yield
    finally:
        device.row_items = before


@contextlib.contextmanager
def as_gpu(like_gpu: bool = True) -> Iterator[None]:
    """The first device is used like a GPU with its own memory: tiled products, rows shared by work-items, and copies
    through pinned memory."""
    from hetero.devices.opencl import product

    device, tiles = first_device(), product._known
    before = device.is_gpu, device.row_items, device.memory.is_shared
    if like_gpu:
        device.is_gpu, device.row_items, device.memory.is_shared = True, 64, False
        tiles[device.identity] = (product.TILES[-1],) * 3  # pocl compiles the smallest tile fastest
    try:
        yield
    finally:
        tiles.pop(device.identity, None)
        device.is_gpu, device.row_items, device.memory.is_shared = before


def first_device() -> Device:
    """The device behind the name OPENCL."""
    from hetero.devices.opencl import backend
    from hetero.devices.opencl.device import shared_device

    return shared_device(backend.find_devices()[0], "OPENCL.0")
