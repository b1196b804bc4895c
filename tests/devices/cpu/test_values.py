"""Packed weights that are stored in files: their layouts do not change without `PACKING_VERSION`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from hetero import _kernels
from hetero.devices.cpu.values import PACKING_VERSION

# Of each case below and each layout that it is packed in, for the present PACKING_VERSION.
VERSION = 5
KNOWN = {
    "matmul ('pack_b', 1, 33, 41, 0, None)": "fe3ba1eb06a8fe87",
    "batched ('pack_b', 3, 33, 41, 0, None)": "05f69470d60d7712",
    "gemm ('pack_b', 1, 33, 41, 1, None)": "648adb707eb1d9dd",
    "conv ('pack_b', 1, 180, 24, 1, None)": "0bff15ded69552f6",
    "tiles of 4 ('pack_winograd', 1, 4, None)": "a2cd7ac8dc44b0f5",
    "tiles of 2 ('pack_winograd', 1, 2, None)": "8c5c08a9263b5016",
    "groups ('pack_b', 4, 45, 6, 1, None)": "3be19a851fc46b90",
    "transposed ('by_window', 1)": "b7ba53747306654c",
    "transposed, long rows ('by_output', 1)": "473344475773c36b",
    "quantized ('pack_quads', b'\\x00')": "7a27bc1bbe45d9ac",
    "quantized conv ('pack_filters', b'\\x00')": "df47ab524baad0a9",
    "quantized depthwise ('pack_depthwise', 20, b'\\x00')": "c3783956003aff1c",
    "quantized short ('pack_windows', b'\\x00')": "fce7bfba2e9aeb83",
    "lstm ('pack_b', 1, 20, 64, 1, None)": "12cf798fc6dbadec",
    "lstm ('pack_b', 4, 16, 16, 1, None)": "ba45922ee19ef55f",
}


def numbers(*shape: int) -> np.ndarray:
    """Small whole numbers: packing them, even with factors, rounds nothing, so all instruction sets agree. (Tiles of 4
    round, but in float64 and without fused operations.)"""
    return (np.arange(np.prod(shape)).reshape(shape) * 7 % 61 - 30).astype(np.float32)


def model(nodes: list[onnx.NodeProto], x: list[int], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    kind = (
        onnx.TensorProto.UINT8
        if nodes[0].op_type in ("MatMulInteger", "ConvInteger", "QLinearConv")
        else onnx.TensorProto.FLOAT
    )
    graph = helper.make_graph(
        nodes,
        "packed",
        [helper.make_tensor_value_info("x", kind, x)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "matmul": lambda: model([helper.make_node("MatMul", ["x", "w"], ["y"])], [5, 33], {"w": numbers(33, 41)}),
    "batched": lambda: model([helper.make_node("MatMul", ["x", "w"], ["y"])], [3, 5, 33], {"w": numbers(3, 33, 41)}),
    "gemm": lambda: model([helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], [5, 33], {"w": numbers(41, 33)}),
    "conv": lambda: model([helper.make_node("Conv", ["x", "w"], ["y"])], [1, 20, 9, 9], {"w": numbers(24, 20, 3, 3)}),
    "tiles of 4": lambda: model(
        [helper.make_node("Conv", ["x", "w"], ["y"])], [1, 20, 30, 30], {"w": numbers(24, 20, 3, 3)}
    ),
    "tiles of 2": lambda: model(
        [helper.make_node("Conv", ["x", "w"], ["y"])], [1, 128, 9, 9], {"w": numbers(24, 128, 3, 3)}
    ),
    "groups": lambda: model(
        [helper.make_node("Conv", ["x", "w"], ["y"], group=4)], [1, 20, 9, 9], {"w": numbers(24, 5, 3, 3)}
    ),
    "transposed": lambda: model(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"])], [1, 20, 9, 9], {"w": numbers(20, 24, 3, 3)}
    ),
    "transposed, long rows": lambda: model(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"])], [1, 20, 9, 20], {"w": numbers(20, 24, 3, 3)}
    ),
    "quantized": lambda: model(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], [5, 33], {"w": numbers(33, 41).astype(np.int8)}
    ),
    "quantized conv": lambda: model(
        [helper.make_node("ConvInteger", ["x", "w"], ["y"])],
        [1, 20, 9, 9],
        {"w": numbers(24, 20, 3, 3).astype(np.int8)},
    ),
    "quantized depthwise": lambda: model(
        [helper.make_node("ConvInteger", ["x", "w"], ["y"], group=20)],
        [1, 20, 9, 9],
        {"w": numbers(40, 1, 3, 3).astype(np.int8)},
    ),
    "quantized short": lambda: model(
        [helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "v", "s", "z"], ["y"])],
        [1, 32, 7, 7],
        {
            "w": numbers(32, 32, 3, 3).astype(np.int8),
            "s": np.array(0.5, np.float32),
            "z": np.array(3, np.uint8),
            "v": np.array(0, np.int8),
        },
    ),
    "lstm": lambda: model(
        [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)],
        [3, 1, 20],
        {"w": numbers(1, 64, 20), "r": numbers(1, 64, 16)},
    ),
}


def packed(case: str) -> dict[str, str]:
    """Case and layout -> digest of what is packed."""
    compiled = hetero.compile(hetero.Core().read_model(CASES[case]()), "CPU")
    shape = [dim for dim in compiled.inputs[0].shape or () if isinstance(dim, int)]
    compiled(np.zeros(shape, compiled.inputs[0].dtype))
    made = compiled._plans.planner.packed  # type: ignore[attr-defined]
    return {
        f"{case} {layout}": hashlib.sha256(array.tobytes()).hexdigest()[:16] for (_, layout), (_, array) in made.items()
    }


@pytest.mark.parametrize("case", CASES)
def test_a_layout_changes_with_the_version_alone(case: str) -> None:
    found = packed(case)
    assert found
    changed = {name for name, digest in found.items() if KNOWN.get(name, digest) != digest}
    assert not changed, (
        f"on {_kernels.variant()}: if that is on purpose, raise PACKING_VERSION (devices/cpu/values.py), so that files "
        "with the old layout are packed anew, and put the new digests here"
    )
    assert found.keys() <= KNOWN.keys(), "a new layout: add it here"
    assert VERSION == PACKING_VERSION, "put the digests of the new version here"
