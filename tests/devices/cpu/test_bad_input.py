"""Operands and attributes that make no sense: the CPU refuses the node with a reason, or its run is an `InferenceError`
that names the node. Each with the operands as inputs and as constants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from hetero import Core, InferenceError
from opencl import unavailable

pytestmark = pytest.mark.spread(2)

HUGE = 1 << 62
LEAST = {4: -(1 << 31), 8: -(1 << 63)}
F = np.ones((2, 3), np.float32)
F4 = np.ones(4, np.float32)
IMAGE = np.ones((1, 4, 6, 6), np.float32)
BYTES = np.ones((1, 4, 6, 6), np.uint8)
FILTER = np.ones((4, 4, 3, 3), np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scalar(value: Any, dtype: Any) -> np.ndarray:
    return np.array(value, dtype)


Case = tuple[str, Sequence[np.ndarray | None], dict[str, Any]]

CASES: dict[str, Case] = {
    # indices
    "Gather beyond": ("Gather", [F, i64(2)], {}),
    "Gather far below": ("Gather", [F, i64(-3)], {}),
    "Gather huge": ("Gather", [F, i64(HUGE)], {}),
    "Gather least": ("Gather", [F, i64(LEAST[8])], {}),
    "Gather least int32": ("Gather", [F, scalar(LEAST[4], np.int32)], {}),
    "Gather axis": ("Gather", [F, i64(0)], {"axis": 2}),
    "Gather huge axis": ("Gather", [F, i64(0)], {"axis": HUGE}),
    "Gather of nothing": ("Gather", [F[:0], i64(0)], {}),
    "GatherElements beyond": ("GatherElements", [F, np.full((2, 3), 2, np.int64)], {}),
    "GatherElements least": ("GatherElements", [F, np.full((2, 3), LEAST[8], np.int64)], {}),
    "GatherElements longer": ("GatherElements", [F, np.zeros((2, 4), np.int64)], {}),
    "GatherElements rank": ("GatherElements", [F, i64(0)], {}),
    "GatherND beyond": ("GatherND", [F, i64(0, 3)], {}),
    "GatherND least": ("GatherND", [F, i64(0, LEAST[8])], {}),
    "GatherND deep": ("GatherND", [F, i64(0, 0, 0)], {}),
    "GatherND batch": ("GatherND", [F, np.zeros((3, 1), np.int64)], {"batch_dims": 1}),
    "GatherND negative batch": ("GatherND", [F, i64(0, 0)], {"batch_dims": -1}),
    "ScatterElements beyond": ("ScatterElements", [F, np.full((1, 3), 2, np.int64), F[:1]], {}),
    "ScatterElements least": ("ScatterElements", [F, np.full((1, 3), LEAST[8], np.int64), F[:1]], {}),
    "ScatterElements longer": ("ScatterElements", [F[:, :2], np.zeros((2, 3), np.int64), F], {}),
    "ScatterElements axis": ("ScatterElements", [F, np.zeros((2, 3), np.int64), F], {"axis": -3}),
    "ScatterND beyond": ("ScatterND", [F, np.full((1, 1), 2, np.int64), F[:1]], {}),
    "ScatterND least": ("ScatterND", [F, np.full((1, 1), LEAST[8], np.int64), F[:1]], {}),
    "ScatterND deep": ("ScatterND", [F, np.zeros((1, 3), np.int64), np.ones(1, np.float32)], {}),
    "ScatterND updates": ("ScatterND", [F, np.zeros((2, 1), np.int64), F[:1]], {}),
    "OneHot depth": ("OneHot", [i64(0, 1), scalar(-1, np.int64), i64(0, 1)], {}),
    "OneHot huge": ("OneHot", [i64(0, 1), scalar(HUGE, np.int64), i64(0, 1)], {}),
    "Compress axis": ("Compress", [F, np.array([True])], {"axis": 7}),
    # shapes
    "Reshape negative": ("Reshape", [F, i64(-2, 3)], {}),
    "Reshape two unknown": ("Reshape", [F, i64(-1, -1)], {}),
    "Reshape other size": ("Reshape", [F, i64(4, 2)], {}),
    "Reshape overflowing": ("Reshape", [F, i64(HUGE, 4)], {}),
    "Reshape wrapping to six": ("Reshape", [F, i64((1 << 63) - 1, 2, 3)], {}),
    "Reshape unknown of nothing": ("Reshape", [F[:0], i64(0, -1)], {"allowzero": 1}),
    "Expand negative": ("Expand", [F, i64(-2, 3)], {}),
    "Expand overflowing": ("Expand", [F, i64(HUGE, 2, 3)], {}),
    "Expand other size": ("Expand", [F, i64(5, 3)], {}),
    "ConstantOfShape negative": ("ConstantOfShape", [i64(2, -1)], {}),
    "ConstantOfShape overflowing": ("ConstantOfShape", [i64(HUGE, HUGE)], {}),
    "ConstantOfShape empty but overflowing": ("ConstantOfShape", [i64(HUGE, HUGE, 0)], {}),
    "Tile negative": ("Tile", [F, i64(-1, 1)], {}),
    "Tile overflowing": ("Tile", [F, i64(HUGE, 4)], {}),
    "Tile rank": ("Tile", [F, i64(1)], {}),
    "Range without end": ("Range", [scalar(0, np.int64), scalar(5, np.int64), scalar(0, np.int64)], {}),
    "Range huge": ("Range", [scalar(LEAST[8], np.int64), scalar(HUGE, np.int64), scalar(1, np.int64)], {}),
    "Range of no number": ("Range", [scalar(np.nan, np.float32), scalar(5, np.float32), scalar(1, np.float32)], {}),
    "EyeLike rank": ("EyeLike", [IMAGE], {}),
    "Unsqueeze axis": ("Unsqueeze", [F, i64(5)], {}),
    "Unsqueeze twice": ("Unsqueeze", [F, i64(0, 0)], {}),
    "Squeeze of three": ("Squeeze", [F, i64(1)], {}),
    "Squeeze huge axis": ("Squeeze", [F, i64(HUGE)], {}),
    "Transpose twice": ("Transpose", [F], {"perm": [0, 0]}),
    "Flatten axis": ("Flatten", [F], {"axis": 3}),
    "Concat axis": ("Concat", [F, F], {"axis": 2}),
    "Concat sizes": ("Concat", [F, F[:, :2]], {"axis": 0}),
    "Split sizes": ("Split", [F, i64(1, 3)], {"axis": 1}),
    "Split negative": ("Split", [F, i64(-1, 4)], {"axis": 1}),
    "DepthToSpace zero": ("DepthToSpace", [IMAGE], {"blocksize": 0}),
    "DepthToSpace huge": ("DepthToSpace", [IMAGE], {"blocksize": HUGE}),
    "SpaceToDepth negative": ("SpaceToDepth", [IMAGE], {"blocksize": -2}),
    # slices and pads
    "Slice step zero": ("Slice", [F, i64(0), i64(2), i64(0), i64(0)], {}),
    "Slice axis": ("Slice", [F, i64(0), i64(2), i64(2)], {}),
    "Slice twice": ("Slice", [F, i64(0, 0), i64(1, 1), i64(0, 0)], {}),
    "Slice lengths": ("Slice", [F, i64(0, 0), i64(1)], {}),
    "Pad overflowing": ("Pad", [F, i64(HUGE, 0, HUGE, 0)], {}),
    "Pad away more than is there": ("Pad", [F, i64(-2, 0, -1, 0)], {}),
    "Pad least": ("Pad", [F, i64(LEAST[8], 0, 0, 0)], {}),
    "Pad length": ("Pad", [F, i64(1, 1)], {}),
    "Pad reflecting nothing": ("Pad", [F[:0], i64(1, 0, 0, 0)], {"mode": "reflect"}),
    "Pad reflecting all": ("Pad", [F, i64(0, F.shape[1], 0, 0)], {"mode": "reflect"}),
    "Pad reflecting more than is left": ("Pad", [np.arange(6, dtype="f"), i64(-4, 2)], {"mode": "reflect"}),
    "TopK negative": ("TopK", [F, i64(-1)], {}),
    "TopK huge": ("TopK", [F, i64(HUGE)], {}),
    "CumSum axis": ("CumSum", [F, scalar(LEAST[4], np.int32)], {}),
    # arithmetic
    "Div by zero": ("Div", [i64(1, 2), i64(1, 0)], {}),
    "Div by zero int8": ("Div", [np.int8([1, 2]), np.int8([0])], {}),
    "Div by zero uint32": ("Div", [np.uint32([1, 2]), np.uint32([0])], {}),
    "Mod by zero": ("Mod", [i64(1, 2), i64(1, 0)], {}),
    "Mod by zero with fmod": ("Mod", [np.int32([1, 2]), np.int32([1, 0])], {"fmod": 1}),
    "BitShift of other types": ("BitShift", [np.uint8([1]), np.uint16([1])], {"direction": "LEFT"}),
    "Add shapes": ("Add", [F, np.ones(2, np.float32)], {}),
    # windows
    "Conv stride zero": ("Conv", [IMAGE, FILTER], {"strides": [0, 1]}),
    "Conv stride negative": ("Conv", [IMAGE, FILTER], {"strides": [-1, 1]}),
    "Conv dilation zero": ("Conv", [IMAGE, FILTER], {"dilations": [1, 0]}),
    "Conv dilation huge": ("Conv", [IMAGE, FILTER], {"dilations": [HUGE, 1]}),
    "Conv group zero": ("Conv", [IMAGE, FILTER], {"group": 0}),
    "Conv group negative": ("Conv", [IMAGE, FILTER], {"group": -1}),
    "Conv group three": ("Conv", [IMAGE, FILTER], {"group": 3}),
    "Conv pads negative": ("Conv", [IMAGE, FILTER], {"pads": [-1, 0, 0, 0]}),
    "Conv pads huge": ("Conv", [IMAGE, FILTER], {"pads": [HUGE, 0, HUGE, 0]}),
    "Conv kernel_shape": ("Conv", [IMAGE, FILTER], {"kernel_shape": [3, 5]}),
    "Conv window too large": ("Conv", [IMAGE[:, :, :2], FILTER], {}),
    "Conv channels": ("Conv", [IMAGE[:, :3], FILTER], {}),
    "Conv bias": ("Conv", [IMAGE, FILTER, np.ones(3, np.float32)], {}),
    "Conv rank": ("Conv", [IMAGE[0], FILTER], {}),
    "Conv empty kernel": ("Conv", [IMAGE, FILTER[:, :, :0]], {}),
    "ConvInteger stride zero": ("ConvInteger", [BYTES, BYTES[:, :, :3, :3]], {"strides": [0, 1]}),
    "ConvInteger group zero": ("ConvInteger", [BYTES, BYTES[:, :, :3, :3]], {"group": 0}),
    "ConvInteger zero points": ("ConvInteger", [BYTES, BYTES[:, :, :3, :3], np.uint8([1, 2])], {}),
    "ConvInteger zero points of weights": (
        "ConvInteger", [BYTES, BYTES[:, :, :3, :3], scalar(1, np.uint8), np.uint8([1, 2])], {},
    ),
    "ConvTranspose stride zero": ("ConvTranspose", [IMAGE, FILTER], {"strides": [0, 1]}),
    "ConvTranspose group zero": ("ConvTranspose", [IMAGE, FILTER], {"group": 0}),
    "ConvTranspose pads": ("ConvTranspose", [IMAGE, FILTER], {"pads": [100, 0, 100, 0]}),
    "ConvTranspose output_shape": ("ConvTranspose", [IMAGE, FILTER], {"output_shape": [-1, 5]}),
    "MaxPool stride zero": ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [1, 0]}),
    "MaxPool kernel zero": ("MaxPool", [IMAGE], {"kernel_shape": [0, 2]}),
    "MaxPool kernel huge": ("MaxPool", [IMAGE], {"kernel_shape": [HUGE, 2]}),
    "MaxPool pads negative": ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "pads": [0, -1, 0, 0]}),
    "AveragePool rank": ("AveragePool", [F], {"kernel_shape": [2]}),
    "LpPool stride zero": ("LpPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [0, 0]}),
    "LRN size zero": ("LRN", [IMAGE], {"size": 0}),
    "Col2Im stride zero": ("Col2Im", [np.ones((1, 4, 4), np.float32), i64(4, 4), i64(2, 2)], {"strides": [0, 2]}),
    "Col2Im huge": ("Col2Im", [np.ones((1, 4, 4), np.float32), i64(HUGE, 4), i64(2, 2)], {}),
    "GroupNormalization groups": ("GroupNormalization", [IMAGE, F4, F4], {"num_groups": 0}),
    # products
    "MatMul sizes": ("MatMul", [F, F], {}),
    "MatMul of a scalar": ("MatMul", [F, scalar(1, np.float32)], {}),
    "Gemm C": ("Gemm", [F, F.T.copy(), np.ones(3, np.float32)], {}),
    "MatMulInteger sizes": ("MatMulInteger", [BYTES[0, 0], BYTES[0, 0, :3]], {}),
    "MatMulInteger zero points": (
        "MatMulInteger", [BYTES[0, 0], BYTES[0, 0], scalar(1, np.uint8), np.uint8([1, 2])], {},
    ),
    "DequantizeLinear scales": ("DequantizeLinear", [BYTES, np.ones(3, np.float32)], {"axis": 1}),
    "QuantizeLinear axis": ("QuantizeLinear", [IMAGE, np.ones(4, np.float32)], {"axis": 9}),
    # others
    "Resize zero": ("Resize", [IMAGE, None, np.float32([1, 1, 0, 1])], {}),
    "Resize endless": ("Resize", [IMAGE, None, np.float32([1, 1, np.inf, 1])], {}),
    "Resize overflowing": ("Resize", [IMAGE, None, np.float32([1, 1, 1e30, 1])], {}),
    "Resize negative": ("Resize", [IMAGE, None, None, i64(1, 4, -1, 6)], {}),
    "ReduceSum axis": ("ReduceSum", [F, i64(HUGE)], {}),
    "ArgMax of nothing": ("ArgMax", [F[:0]], {"axis": 0}),
    "ReduceMax axis twice": ("ReduceMax", [F, i64(0, 0)], {}),
    "Softmax axis": ("Softmax", [F], {"axis": 2}),
    "NonMaxSuppression ranks": ("NonMaxSuppression", [F, F], {}),
    "LSTM hidden": (
        "LSTM", [np.ones((2, 1, 3), np.float32), *[np.ones((1, 8, 3), np.float32)] * 2], {"hidden_size": 2},
    ),
    "ReverseSequence length": ("ReverseSequence", [F, i64(9, 0, 0)], {"batch_axis": 1, "time_axis": 0}),
}  # fmt: skip

INF, NAN = np.inf, np.nan
MOST, MOST_HALF = float(np.finfo(np.float32).max), 65504.0
SIX = np.arange(6, dtype=np.float32)
POISON = np.float32([[NAN, INF], [1, -INF]])

# What has a defined result, whatever the processor does.
DEFINED: dict[str, tuple[str, Sequence[np.ndarray], dict[str, Any], np.ndarray]] = {
    "Mod least int32": ("Mod", [np.int32([LEAST[4]]), np.int32([-1])], {}, np.int32([0])),
    "Mod least int64": ("Mod", [i64(LEAST[8]), i64(-1)], {"fmod": 1}, i64(0)),
    "Div least int8": ("Div", [np.int8([-128]), np.int8([-1])], {}, np.int8([-128])),
    "Div least int32": ("Div", [np.int32([LEAST[4]]), np.int32([-1])], {}, np.int32([LEAST[4]])),
    "Div least int64": ("Div", [i64(LEAST[8]), i64(-1)], {}, i64(LEAST[8])),
    "Div none by zero": ("Div", [i64(), i64(0)], {}, i64()),
    "Pow negative": ("Pow", [np.int32([2, 1, -1, -1]), np.int32([-1, -2, -3, -2])], {}, np.int32([0, 1, -1, 1])),
    "Pow of a wide exponent": ("Pow", [np.int32([10, 3]), i64(1 << 40, 1 << 32)], {}, np.int32([0, 1])),
    "Pow of a wide base": ("Pow", [np.uint64([4 * HUGE - 1, 5]), i64(-1, -2)], {}, np.uint64([0, 0])),
    "Pow odd": ("Pow", [np.float32([-1]), i64((1 << 24) + 1)], {}, np.float32([-1])),
    "Pow root": ("Pow", [np.float32([-np.inf, -0.0]), np.float32([0.5])], {}, np.float32([np.inf, 0])),
    "BitShift more": ("BitShift", [np.uint8([255]), np.uint8([200])], {"direction": "RIGHT"}, np.uint8([0])),
    # Bounds that are not given are the largest finite numbers; NaN passes, and a bound that is NaN makes all so.
    "Clip max": (
        "Clip", [np.float32([-INF, INF, NAN, -1, 2]), None, scalar(1, "f")], {}, np.float32([-MOST, 1, NAN, -1, 1])
    ),
    "Clip min": ("Clip", [np.float32([-INF, INF, NAN, -3]), scalar(-1, "f")], {}, np.float32([-1, MOST, NAN, -1])),
    "Clip none": ("Clip", [np.float64([-INF, 1, INF])], {}, np.float64([-np.finfo("d").max, 1, np.finfo("d").max])),
    "Clip half": ("Clip", [np.float16([-INF, INF, 5]), None, scalar(1, "e")], {}, np.float16([-MOST_HALF, 1, 1])),
    "Clip to infinity": ("Clip", [np.float32([-INF, 3]), scalar(-INF, "f")], {}, np.float32([-INF, 3])),
    "Clip crossed": ("Clip", [np.float32([-9, 0, 9]), scalar(2, "f"), scalar(-2, "f")], {}, np.float32([-2, -2, -2])),
    "Clip NaN": ("Clip", [np.float32([-9, 9]), scalar(NAN, "f"), scalar(1, "f")], {}, np.float32([NAN, NAN])),
    "Clip int8": ("Clip", [np.int8([-128, 127]), None, scalar(1, "b")], {}, np.int8([-128, 1])),
    "PRelu of 0": ("PRelu", [np.float32([0, NAN, -1]), np.float32([INF, 1, 2])], {}, np.float32([0, NAN, -2])),
    "BatchNormalization without variance": (
        "BatchNormalization", [np.float32([[3, 1], [0, 2]]), *np.float32([[1, 1], [5, 5], [1, 1], [0, 0]])],
        {"epsilon": 0.0}, np.float32([[INF, NAN], [-INF, INF]]),
    ),
    "ScatterElements NaN": (
        "ScatterElements", [np.float32([0, 1]), i64(1, 1), np.float32([NAN, 2])], {"reduction": "min"},
        np.float32([0, NAN]),
    ),
    "GatherElements of less": (
        "GatherElements", [SIX.reshape(2, 3), i64(2, 0, 1, 2).reshape(1, 4)], {"axis": 1}, np.float32([[2, 0, 1, 2]])
    ),
    # What negative pads remove is removed before any mode reads.
    "Pad wrap": ("Pad", [SIX, i64(-1, 2)], {"mode": "wrap"}, np.float32([1, 2, 3, 4, 5, 1, 2])),
    "Pad wrap end": ("Pad", [SIX, i64(3, -2)], {"mode": "wrap"}, np.float32([1, 2, 3, 0, 1, 2, 3])),
    "Pad wrap far": ("Pad", [SIX, i64(-4, 5)], {"mode": "wrap"}, np.float32([4, 5, 4, 5, 4, 5, 4])),
    "Pad reflect": ("Pad", [SIX, i64(2, -3)], {"mode": "reflect"}, np.float32([2, 1, 0, 1, 2])),
    "Pad reflect far": ("Pad", [SIX, i64(-3, 2)], {"mode": "reflect"}, np.float32([3, 4, 5, 4, 3])),
    "Pad edge": ("Pad", [SIX, i64(-2, 2)], {"mode": "edge"}, np.float32([2, 3, 4, 5, 5, 5])),
    "Pad edge end": ("Pad", [SIX, i64(1, -5)], {"mode": "edge"}, np.float32([0, 0])),
    "Pad constant": ("Pad", [SIX, i64(-5, 2), scalar(9, "f")], {}, np.float32([5, 9, 9])),
    "Pad all away": ("Pad", [SIX, i64(-8, 4), scalar(9, "f")], {}, np.float32([9, 9])),
    "Pad to none": ("Pad", [SIX, i64(-2, -4)], {"mode": "edge"}, np.float32([])),
    "Pad axes": (
        "Pad", [SIX.reshape(2, 3), i64(-1, 2, 3, -1), None, i64(-1, 0)], {"mode": "wrap"},
        np.float32([[1, 2, 1, 2, 1]] * 3),
    ),
    # With beta = 0 the operand C is not read; alpha = 0 multiplies the product by 0.
    "Gemm beta 0": ("Gemm", [F[:, :2], F[:, :2], POISON], {"beta": 0.0, "transB": 1}, np.float32([[2, 2], [2, 2]])),
    "Gemm beta 0 float64": (
        "Gemm", [np.ones((2, 2)), np.ones((2, 2)), np.full((2, 1), NAN)], {"beta": 0.0}, np.full((2, 2), 2.0)
    ),
    "Gemm alpha 0": ("Gemm", [POISON, np.eye(2, dtype="f")], {"alpha": 0.0}, np.float32([[NAN, NAN], [NAN, NAN]])),
    "Gemm int64": (
        "Gemm", [i64(1 << 60).reshape(1, 1), i64(3).reshape(1, 1), i64(1)], {}, i64((3 << 60) + 1).reshape(1, 1)
    ),
    # Indices are cast to int64 before they are compared.
    "OneHot fractions": (
        "OneHot", [np.float32([1.5, -0.5, -1.5, 2.9, 3, NAN, INF, -3.9]), i64(3), np.float32([0, 1])], {},
        np.eye(3, dtype="f")[[1, 0, 2, 2, 0, 0, 0, 0]] * np.float32([1, 1, 1, 1, 0, 0, 0, 1])[:, None],
    ),
    "OneHot beyond": (
        "OneHot", [i64(-3, -4, 3, 1 << 32), i64(3), np.float32([-INF, 0])], {},
        np.float32([[0, -INF, -INF], [-INF] * 3, [-INF] * 3, [-INF] * 3]),
    ),
    "OneHot uint64": (
        "OneHot", [np.uint64([4 * HUGE - 1, 2]), i64(3), i64(0, 1)], {}, i64(0, 0, 0, 0, 0, 1).reshape(2, 3)
    ),
    "QuantizeLinear": (
        "QuantizeLinear", [np.float32([1e20, -1e20, INF, -INF, NAN, 2.5, 3.5]), scalar(1, "f"), scalar(1, "b")], {},
        np.int8([127, -128, 127, -128, -128, 3, 5]),
    ),
    "DequantizeLinear": (
        "DequantizeLinear", [np.int32([LEAST[4], (1 << 24) + 1]), scalar(1, "f"), scalar(1, "i")], {},
        np.float32([LEAST[4], 1 << 24]),
    ),
    "Neg least": ("Neg", [np.int32([LEAST[4]])], {}, np.int32([LEAST[4]])),
    "Abs least": ("Abs", [i64(LEAST[8])], {}, i64(LEAST[8])),
    "Mul wraps": ("Mul", [np.int32([1 << 30]), np.int32([4])], {}, np.int32([0])),
    "Slice far": ("Slice", [F, i64(LEAST[8]), i64(HUGE), i64(0)], {}, F),
    "Slice least step": ("Slice", [F, i64(HUGE), i64(LEAST[8]), i64(0), i64(LEAST[8])], {}, F[-1:]),
    "BitShift all": ("BitShift", [np.uint32([1]), np.uint32([32])], {"direction": "LEFT"}, np.uint32([0])),
    "Tile none": ("Tile", [F, i64(0, 2)], {}, np.zeros((0, 6), np.float32)),
}  # fmt: skip


def model_of(
    op: str, arrays: Sequence[np.ndarray | None], attributes: dict[str, Any], constant: bool, opset: int = 21
) -> onnx.ModelProto:
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    given = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    inputs = {} if constant else given
    outputs = {"Split": ["y", "z"], "TopK": ["y", "z"]}.get(op, ["y"])
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, name="the node", **attributes)],
        "bad",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), [f"{name}_{i}" for i in range(array.ndim)]
            )
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in given.items() if name not in inputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(
    op: str, arrays: Sequence[np.ndarray | None], attributes: dict[str, Any], constant: bool, device: str = "CPU"
) -> np.ndarray | str:
    """The first output, or why the node is refused."""
    core = Core()
    model = core.read_model(model_of(op, arrays, attributes, constant))
    support = core.query_model(model, device)
    if not len(support):
        return str(support.reasons["the node"][device])
    compiled = core.compile_model(model, device)
    given = {f"x{i}": array for i, array in enumerate(arrays) if array is not None and not constant}
    return compiled(given)[0]


@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("name", CASES)
def test_nonsense_is_an_error_that_names_the_node(name: str, constant: bool) -> None:
    try:
        found = run(*CASES[name], constant)
    except InferenceError as error:
        trouble = str(error)
        named = "the node"
    else:
        assert isinstance(found, str), f"ran, and gave {found!r}"
        trouble, named = found, CASES[name][0]
    assert named in trouble


INTEGER_DIVISIONS = {
    f"{op} {dtype} {attributes}": (op, [np.array([3, 1], dtype), np.array([1, 0], dtype)], attributes)
    for op, attributes in (("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1}))
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
} | {
    "Pow": ("Pow", [np.int32([2, 0]), np.int32([-1])], {}),
    "Pow int64": ("Pow", [np.uint8([2, 0]), i64(-1)], {}),
    "ReduceMean": ("ReduceMean", [np.zeros((2, 0), np.int32), i64(1)], {}),
}


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:TEMPLATE,CPU"])
@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("name", INTEGER_DIVISIONS)
def test_integers_divided_by_zero_are_an_error_of_every_device(name: str, constant: bool, device: str) -> None:
    """Of the run, not of compiling: constants may be divided in a branch that is not taken."""
    op, arrays, attributes = INTEGER_DIVISIONS[name]
    compiled = Core().compile_model(model_of(op, arrays, attributes, constant), device)
    given = {} if constant else {f"x{i}": array for i, array in enumerate(arrays)}
    with pytest.raises(InferenceError, match=rf"'the node' \({op}\).*division by zero"):
        compiled(given)


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE"])
@pytest.mark.parametrize("trips", [None, 0], ids=["If", "Loop"])
def test_constants_divided_by_zero_where_no_run_comes_are_no_error(trips: int | None, device: str) -> None:
    constants = [numpy_helper.from_array(i64(4, 4), "a"), numpy_helper.from_array(i64(1, 0), "z")]

    def body(op: str, inputs: Sequence[onnx.ValueInfoProto] = (), more: Sequence[str] = ()) -> onnx.GraphProto:
        nodes = [helper.make_node(op, ["a", "z"], [f"{op}_result"])]
        nodes += [helper.make_node("Identity", ["condition"], [name]) for name in more]
        results = [helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, []) for name in more]
        results.append(helper.make_tensor_value_info(f"{op}_result", onnx.TensorProto.INT64, [2]))
        return helper.make_graph(nodes, op, inputs, results)

    if trips is None:
        node = helper.make_node("If", ["c"], ["y"], then_branch=body("Div"), else_branch=body("Add"))
        wanted = i64(5, 4)
    else:
        own = [
            helper.make_tensor_value_info("trip", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", onnx.TensorProto.INT64, [2]),
        ]
        constants.append(numpy_helper.from_array(np.array(trips), "trips"))
        node = helper.make_node("Loop", ["trips", "c", "a"], ["y"], body=body("Div", own, ["proceed"]))
        wanted = i64(4, 4)
    graph = helper.make_graph(
        [node],
        "not reached",
        [helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [2])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = Core().compile_model(model, device)
    assert np.array_equal(compiled({"c": np.array(False)})["y"], wanted)


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("name", DEFINED)
def test_extremes_have_defined_results(name: str, constant: bool, device: str) -> None:
    *case, wanted = DEFINED[name]
    found = run(*case, constant, device)
    assert isinstance(found, np.ndarray), found
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f")


@pytest.mark.spread(3)
@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "OPENCL"])
@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("opset", [5, 6, 10, 11, 12])
def test_default_bounds_of_clip(opset: int, dtype: str, constant: bool, device: str) -> None:
    """The finite limits of the type; from opset 6 to 10 the defaults of the attributes, which are those of float32."""
    if device == "OPENCL" and (dtype == "float64" or opset < 6 or unavailable()):
        pytest.skip(unavailable() or "refused")
    with np.errstate(over="ignore"):
        most = np.array(MOST, dtype) if 6 <= opset <= 10 else np.finfo(dtype).max
    x = np.array([-INF, INF, NAN, -2, np.finfo(dtype).max], dtype)
    one = np.array(1, dtype)
    for bound in ("", "min", "max"):
        attributes = {bound: 1.0} if bound and opset < 11 else {}
        given = {"": [x], "min": [x, one], "max": [x, None, one]}[bound if opset >= 11 else ""]
        model = model_of("Clip", given, attributes, constant, opset)
        feeds = {} if constant else {f"x{i}": array for i, array in enumerate(given) if array is not None}
        found = Core().compile_model(model, device)(feeds)["y"]
        low, high = one if bound == "min" else -most, one if bound == "max" else most
        np.testing.assert_array_equal(found, np.minimum(np.maximum(x, low), high), strict=True)


OUT_OF_MEMORY = """
import resource
import numpy as np, onnx.parser, hetero

text = "g (float[n] x, int64[1] r) => (float[p] y) { a = Exp (x)  b = Tile (a, r)  y = %s (b) }"
pages = int(open("/proc/self/statm").read().split()[0])
limits = resource.getrlimit(resource.RLIMIT_AS)
requests = []
for op_type in ("Neg", "Identity", "ReduceSum"):
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text % op_type)
    requests.append(hetero.compile(model, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request())
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 31), limits[1]))
for request in requests:
    for n in (2, 3, 4):  # the last time, the sizes are those of a plan for many sizes
        x = np.ones(n, np.float32)
        try:
            request.infer({"x": x, "r": np.array([1 << 34])})
        except hetero.InferenceError as error:
            assert isinstance(error, MemoryError), type(error)
            print(error)
        assert request.infer({"x": x, "r": np.array([n])})[0].size in (n * n, 1)
"""


def test_results_that_do_not_fit_in_memory() -> None:
    """The error names the node and the shape, and the request goes on."""
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    for line, n in zip(lines, [2, 3, 4] * 3, strict=True):
        shape = n << 34
        assert f"node 'b' (Tile): not enough memory; its result of shape [{shape}] has {4 * shape} bytes" in line
