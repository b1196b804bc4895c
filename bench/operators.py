"""Operators in forms and sizes that models rarely have, on the CPU device beside onnxruntime: which are slow?

    python bench/operators.py
    python bench/operators.py Hardmax moves     # cases with one of these words in their name or their family's

Each case is a model of one node. Same model, same inputs, one thread, median CPU time of interleaved rounds. The table
has the geometric mean of the ratios of each family, and the cases with the largest ratios. The cases cover each family
of operators that the CPU device supports; `bench/kernels.py` has the sizes that are frequent in models.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hetero.base.formatting import duration
from sessions import both
from table import Table
from timing import calls_within, medians, repeated

ROUNDS = 101
CALL_SECONDS = 0.0003  # of onnxruntime, in one reading of the clock
ROW_SECONDS = 0.2
NUM_WORST = 25

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


@dataclasses.dataclass(frozen=True)
class Constant:
    """An input that is an initializer."""

    array: Array


Input = Array | Constant | None


@dataclasses.dataclass(frozen=True)
class Case:
    """A node. ``inputs``: None for an absent one. ``opset``: of ONNX's domain."""

    op: str
    inputs: Sequence[Input]
    attributes: dict[str, Any]
    outputs: int
    domain: str
    opset: int

    @property
    def name(self) -> str:
        """The operator, the types and shapes of its inputs, and the attributes in ``SHOWN``."""
        shown = [_input_name(each) for each in self.inputs if each is not None]
        shown += [f"{name} {_value_name(value)}" for name, value in self.attributes.items() if name in SHOWN]
        return f"{self.op} {', '.join(filter(None, shown))}"

    def model(self) -> onnx.ModelProto:
        names = ["" if each is None else f"x{at}" for at, each in enumerate(self.inputs)]
        results = [f"y{at}" for at in range(self.outputs)]
        graph = helper.make_graph(
            [helper.make_node(self.op, names, results, domain=self.domain, **self.attributes)],
            self.op,
            [
                helper.make_tensor_value_info(name, _element_type(each), each.shape)
                for name, each in zip(names, self.inputs, strict=True)
                if isinstance(each, np.ndarray)
            ],
            [onnx.ValueInfoProto(name=name) for name in results],
            [
                numpy_helper.from_array(each.array, name)
                for name, each in zip(names, self.inputs, strict=True)
                if isinstance(each, Constant)
            ],
        )
        opsets = {"": self.opset, "ai.onnx.ml": 3, "com.microsoft": 1}
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid(*each) for each in opsets.items()], ir_version=10
        )

    def feeds(self) -> dict[str, Array]:
        return {f"x{at}": each for at, each in enumerate(self.inputs) if isinstance(each, np.ndarray)}


SHOWN = ("axis", "axes", "to", "perm", "kernel_shape", "strides", "dilations", "group", "mode", "equation", "fmod")


def _element_type(array: Array) -> int:
    return onnx.TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def _input_name(value: Array | Constant) -> str:
    """Empty for constants of less than two dimensions."""
    array = value.array if isinstance(value, Constant) else value
    if array is not value and array.ndim < 2:
        return ""
    name = "x".join(map(str, array.shape)) or "scalar"
    if array.dtype != np.float32:
        name = f"{'string' if array.dtype == object else array.dtype} {name}"
    return name if array is value else f"constant {name}"


def _value_name(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def case(op: str, *inputs: Input, outputs: int = 1, domain: str = "", opset: int = 21, **attributes: Any) -> Case:
    return Case(op, inputs, attributes, outputs, domain, opset)


def contrib(op: str, *inputs: Input, outputs: int = 1, **attributes: Any) -> Case:
    return case(op, *inputs, outputs=outputs, domain="com.microsoft", **attributes)


def classic(op: str, *inputs: Input, outputs: int = 1, **attributes: Any) -> Case:
    return case(op, *inputs, outputs=outputs, domain="ai.onnx.ml", **attributes)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


def below(limit: int, *shape: int, dtype: Any = np.int64) -> Array:
    return RNG.integers(0, limit, shape).astype(dtype)


def numbers(*values: float, dtype: Any = np.int64) -> Constant:
    """A constant of one dimension."""
    return Constant(np.array(values, dtype))


def number(value: float, dtype: Any = np.float32) -> Constant:
    return Constant(np.array(value, dtype))


def some(*shape: int) -> Constant:
    return Constant(normal(*shape))


UNARY = (
    *("Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Reciprocal", "IsNaN", "IsInf"),
    *(
        "Relu",
        "LeakyRelu",
        "ThresholdedRelu",
        "Shrink",
        "Elu",
        "Selu",
        "Celu",
        "Mish",
        "Gelu",
        "Sigmoid",
        "HardSigmoid",
    ),
    *("HardSwish", "Softplus", "Softsign", "Exp", "Erf", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Tanh", "Asinh"),
)


def unary() -> Iterator[Case]:
    x = normal(128, 768)
    for op in UNARY:
        yield case(op, x)
    for op in ("Asin", "Acos", "Atanh"):
        yield case(op, np.tanh(x))
    for op in ("Sqrt", "Log"):
        yield case(op, np.abs(x))
    yield case("Acosh", np.abs(x) + 1)
    yield case("Not", x > 0)
    yield case("BitwiseNot", below(99, 128, 768))
    for dtype in (np.int64, np.int8, np.float64):
        yield case("Abs", x.astype(dtype))
    yield case("Clip", x, number(-1), number(1))
    yield contrib("QuickGelu", x)
    yield contrib("BiasGelu", x, some(768))


def binary() -> Iterator[Case]:
    x, y, row, column = normal(128, 768), normal(128, 768), normal(768), normal(128, 1)
    for op in ("Add", "Div", "Pow", "Max", "PRelu", "Less", "Equal"):
        yield case(op, np.abs(x), y)
        yield case(op, np.abs(x), row)
    for op in ("Sub", "Mul"):
        yield case(op, x, column)
        yield case(op, normal(8400, 4), normal(4))
        yield case(op, normal(1, 100, 1, 64), normal(1, 1, 100, 64))
    yield case("Mul", normal(1, 64, 56, 56), normal(1, 64, 1, 1))
    yield case("Mod", x, y, fmod=1)
    for dtype in (np.int64, np.int32, np.uint8):
        a, b = below(100, 128, 768, dtype=dtype), below(99, 128, 768, dtype=dtype) + dtype(1)
        for op in ("Add", "Mul", "Div", "Mod", "Equal"):
            if (op, dtype) != ("Add", np.uint8):
                yield case(op, a, b)
        yield case("Div", a, number(7, dtype))
    yield case("BitShift", below(99, 128, 768, dtype=np.uint32), below(9, 128, 768, dtype=np.uint32), direction="LEFT")
    yield case("BitwiseAnd", below(99, 128, 768), below(99, 128, 768))
    yield case("And", x > 0, y > 0)
    yield case("Where", x > 0, x, y)
    yield case("Where", column > 0, x, y)
    yield case("Where", normal(1, 1, 128, 128) > 0, normal(1, 12, 128, 128), number(-1e9))
    yield case("Sum", x, y, x)
    yield case("Max", x, y, row)


def casts() -> Iterator[Case]:
    x = np.abs(normal(128, 768)) * 9
    types = (np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_)
    for source in types:
        for target in types:
            if source != target and (np.float32 in (source, target) or (source, target) == (np.int64, np.int32)):
                yield case("Cast", x.astype(source), to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


def reductions() -> Iterator[Case]:
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceProd", "ReduceLogSumExp"):
        opset = 18 if op != "ReduceSum" else 21
        for shape, axes in (((50000, 3), [1]), ((128, 768), [0]), ((16, 64, 196), [1]), ((1, 256, 28, 28), [2, 3])):
            yield case(op, normal(*shape), numbers(*axes), opset=opset)
    for dtype in (np.int64, np.int32):
        yield case("ReduceSum", below(99, 128, 768, dtype=dtype), numbers(1))
        yield case("ReduceMax", below(99, 128, 768, dtype=dtype), numbers(1))
    for shape, axis in (((1, 21, 65, 65), 1), ((4096, 10), 1), ((10, 4096), 0), ((128, 1000), 1)):
        yield case("ArgMax", normal(*shape), axis=axis)
    for shape, axis in (((1, 512), 1), ((512, 16), 0), ((4, 128, 64), 1)):
        yield case("CumSum", normal(*shape), number(axis, np.int64))


def normalizations() -> Iterator[Case]:
    for shape, axis in (((128, 1000), 1), ((10000, 3), 1), ((12, 64, 64), 2), ((1, 21, 64, 64), 1), ((512, 16), 0)):
        for op in ("Softmax", "LogSoftmax", "Hardmax"):
            yield case(op, normal(*shape), axis=axis)
    for shape in ((128, 768), (4096, 16), (100, 33)):
        width = shape[-1]
        yield case("LayerNormalization", normal(*shape), some(width), some(width))
        yield case("RMSNormalization", normal(*shape), some(width), opset=23)
        yield case("LpNormalization", normal(*shape))
    yield contrib("SkipLayerNormalization", normal(1, 128, 768), normal(1, 128, 768), some(768), some(768))
    for shape in ((1, 64, 56, 56), (1, 512, 7, 7)):
        channels = shape[1]
        yield case("InstanceNormalization", normal(*shape), some(channels), some(channels))
        yield case("GroupNormalization", normal(*shape), some(channels), some(channels), num_groups=8)
        yield case("MeanVarianceNormalization", normal(*shape), opset=13)
        yield case(
            "BatchNormalization",
            normal(*shape),
            *[some(channels)] * 3,
            Constant(np.abs(normal(channels))),
        )
    yield case("LRN", normal(1, 64, 55, 55), size=5)


def products() -> Iterator[Case]:
    for m, k, n in ((1, 768, 768), (4, 768, 3072), (128, 100, 10), (3000, 64, 64), (1, 1024, 1), (1000, 64, 1)):
        yield case("MatMul", normal(m, k), some(k, n))
    for a, b in (
        ((1, 768), (768, 768)),
        ((1, 64), (64, 64)),
        ((1, 64), (64, 1000)),
        ((1, 1000), (1000, 10)),
        ((3, 64), (64, 512)),
        ((1, 12, 1, 64), (1, 12, 64, 512)),
        ((1, 12, 1, 512), (1, 12, 512, 64)),
        ((500, 1, 16), (500, 16, 16)),
        ((1000, 3, 3), (1000, 3, 3)),
        ((1000, 3, 3), (1000, 3, 1)),
        ((32, 7, 7), (32, 7, 7)),
        ((64, 49, 32), (64, 32, 49)),
        ((512, 1), (1, 512)),
        ((128, 768), (768,)),
        ((1000, 64), (64, 1)),
    ):
        yield case("MatMul", normal(*a), normal(*b))
    for transposed in (0, 1):
        shape = (1000, 512) if transposed else (512, 1000)
        yield case("Gemm", normal(1, 512), normal(*shape), some(1000), transB=transposed)
    for equation, *shapes in (
        ("bhqd,bhkd->bhqk", (1, 8, 64, 64), (1, 8, 64, 64)),
        ("bchw,ck->bkhw", (1, 64, 28, 28), (64, 64)),
        ("bi,bi->b", (500, 64), (500, 64)),
        ("ii->i", (500, 500)),
    ):
        yield case("Einsum", *[normal(*shape) for shape in shapes], equation=equation)
    yield contrib("FusedMatMul", normal(12, 128, 64), normal(12, 128, 64), transB=1, alpha=0.125)
    for rows in (1, 16):
        packed, scales = Constant(below(256, 768, 24, 16, dtype=np.uint8)), Constant(np.abs(normal(768 * 24)))
        yield contrib("MatMulNBits", normal(1, rows, 768), packed, scales, K=768, N=768, bits=4, block_size=32)
    for dtype in (np.float64, np.int32):
        yield case("MatMul", normal(64, 64).astype(dtype), normal(64, 64).astype(dtype))
    yield case("Det", normal(1000, 3, 3))


def convolutions() -> Iterator[Case]:
    def conv(op: str, shape: tuple[int, ...], weights: tuple[int, ...], pad: int = 0, **attributes: Any) -> Case:
        return case(op, normal(*shape), some(*weights), pads=[pad] * 2 * (len(shape) - 2), **attributes)

    for shape, weights, pad, attributes in (
        ((1, 3, 64, 64), (16, 3, 3, 3), 1, {"strides": [2, 2]}),
        ((1, 64, 14, 14), (64, 64, 3, 3), 1, {}),
        ((1, 64, 28, 28), (1, 64, 1, 1), 0, {}),
        ((1, 96, 28, 28), (96, 1, 3, 3), 1, {"group": 96}),
        ((1, 128, 14, 14), (128, 4, 3, 3), 1, {"group": 32}),
        ((1, 64, 40, 40), (64, 64, 3, 3), 2, {"dilations": [2, 2]}),
        ((1, 80, 300), (128, 80, 3), 1, {}),
        ((1, 1, 2000), (16, 1, 7), 3, {}),
        ((1, 16, 8, 16, 16), (16, 16, 3, 3, 3), 1, {}),
        ((1, 32, 16, 32, 32), (1, 32, 1, 1, 1), 0, {}),
        ((8, 16, 7, 7), (32, 16, 3, 3), 1, {}),
    ):
        yield conv("Conv", shape, weights, pad, **attributes)
    for shape, weights, pad, attributes in (
        ((1, 64, 16, 16), (64, 32, 2, 2), 0, {"strides": [2, 2]}),
        ((1, 128, 14, 14), (128, 64, 3, 3), 1, {"strides": [2, 2]}),
        ((1, 21, 16, 16), (21, 1, 4, 4), 1, {"strides": [2, 2], "group": 21}),
        ((1, 64, 100), (64, 32, 4), 1, {"strides": [2]}),
    ):
        yield conv("ConvTranspose", shape, weights, pad, **attributes)
    for columns, image, kernel, strides, pad in (
        ((1, 64 * 9, 784), 28, 3, 1, 1),
        ((1, 64 * 4, 196), 28, 2, 2, 0),
        ((1, 16 * 49, 196), 56, 7, 4, 2),
        ((1, 64 * 9, 49), 7, 3, 1, 1),
    ):
        attributes = {"strides": [strides] * 2, "pads": [pad] * 4}
        yield case("Col2Im", normal(*columns), numbers(image, image), numbers(kernel, kernel), **attributes)


def pools() -> Iterator[Case]:
    for op in ("MaxPool", "AveragePool"):
        for shape, kernel, strides, pad in (
            ((1, 64, 56, 56), [3, 3], [2, 2], 1),
            ((1, 64, 56, 56), [2, 2], [2, 2], 0),
            ((1, 192, 35, 35), [3, 3], [1, 1], 1),
            ((1, 256, 8, 8), [2, 2], [2, 2], 0),
            ((1, 64, 1000), [3], [1], 1),
            ((1, 16, 16, 32, 32), [2, 2, 2], [2, 2, 2], 0),
        ):
            yield case(op, normal(*shape), kernel_shape=kernel, strides=strides, pads=[pad] * 2 * len(kernel))
    indices = (np.arange(64 * 28 * 28) * 4).reshape(1, 64, 28, 28)
    yield case("MaxPool", normal(1, 64, 56, 56), outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxUnpool", normal(1, 64, 28, 28), indices, kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxPool", below(256, 1, 64, 56, 56, dtype=np.uint8), kernel_shape=[3, 3], strides=[2, 2])
    yield case("LpPool", normal(1, 64, 40, 40), kernel_shape=[3, 3], strides=[2, 2])
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield case(op, normal(1, 512, 7, 7))


def spatial() -> Iterator[Case]:
    def resized(x: Array, scale: float, mode: str, transform: str = "half_pixel", **attributes: Any) -> Case:
        scales = numbers(1, 1, scale, scale, dtype=np.float32)
        return case(
            "Resize", x, None, scales, mode=mode, coordinate_transformation_mode=transform, opset=19, **attributes
        )

    for mode in ("nearest", "linear", "cubic"):
        yield resized(normal(1, 64, 28, 28), 2, mode)
        yield resized(normal(1, 3, 224, 224), 0.5, mode)
        yield resized(normal(1, 21, 33, 33), 4, mode, "align_corners")
    yield resized(below(256, 1, 3, 120, 160, dtype=np.uint8), 0.5, "linear")
    grid = np.tanh(normal(1, 56, 56, 2))
    for mode in ("linear", "nearest", "cubic"):
        yield case("GridSample", normal(1, 64, 56, 56), grid, mode=mode, opset=20)
    yield case("AffineGrid", normal(4, 2, 3), numbers(4, 3, 64, 64), opset=20)
    corner = np.abs(normal(100, 2)) * 10
    rois = np.concatenate([corner, corner + 5], axis=1)
    yield case(
        "RoiAlign", normal(1, 64, 50, 50), rois, below(1, 100), output_height=7, output_width=7, sampling_ratio=2
    )
    yield case("DepthToSpace", normal(1, 256, 32, 32), blocksize=2)
    yield case("SpaceToDepth", normal(1, 12, 128, 128), blocksize=2)


def moves() -> Iterator[Case]:
    x = normal(128, 768)
    for shape, perm in (
        ((128, 768), [1, 0]),
        ((1, 128, 12, 64), [0, 2, 1, 3]),
        ((1, 84, 2100), [0, 2, 1]),
        ((20, 30, 40), [2, 1, 0]),
        ((1, 56, 56, 64), [0, 3, 1, 2]),
        ((4, 16, 64, 3), [0, 2, 1, 3]),
    ):
        yield case("Transpose", normal(*shape), perm=perm)
    yield case("Transpose", x.astype(np.uint8), perm=[1, 0])
    for axis, step in ((0, -1), (1, -1), (1, 2)):
        begin, end = (0, 9999) if step > 0 else (-1, -9999)
        yield case("Slice", x, *[numbers(each) for each in (begin, end, axis, step)], opset=18)
    yield case("Slice", normal(1, 2100, 85), *[numbers(each) for each in (4, 5, 2, 1)])
    for axis, shapes in ((1, [(128, 768)] * 2), (1, [(128, 64), (128, 1)]), (1, [(1000, 1)] * 4), (0, [(64, 768)] * 2)):
        yield case("Concat", *[normal(*shape) for shape in shapes], axis=axis)
    for shape, axis, parts in (((128, 2304), 1, 3), ((1000, 4), 1, 4), ((16, 12, 64), 1, 12)):
        yield case("Split", normal(*shape), outputs=parts, axis=axis, num_outputs=parts)
    for mode in ("constant", "reflect", "edge"):
        yield case("Pad", normal(1, 64, 56, 56), numbers(0, 0, 1, 1, 0, 0, 1, 1), mode=mode)
    yield case("Tile", normal(10, 20), numbers(20, 20))
    yield case("Expand", normal(128, 1), numbers(128, 768))
    yield case("Expand", normal(8, 1, 16, 64), numbers(8, 4, 16, 64))
    yield case("Trilu", normal(8, 128, 128))
    yield case("EyeLike", x)
    for batch_axis in (0, 1):
        lengths = below(100, 8) + 1
        shape = (8, 100, 64) if batch_axis == 0 else (100, 8, 64)
        yield case("ReverseSequence", normal(*shape), lengths, batch_axis=batch_axis, time_axis=1 - batch_axis)
    yield case("ReverseSequence", normal(50, 64), below(50, 64) + 1)
    yield case("Identity", x)


def indexing() -> Iterator[Case]:
    for shape, indices, axis in (
        ((30522, 64), (1, 128), 0),
        ((16, 1000, 64), (100,), 1),
        ((100000, 1), (3000,), 0),
        ((512, 512), (512,), 1),
        ((1, 3, 64, 64), (), 1),
    ):
        yield case("Gather", normal(*shape), below(shape[axis], *indices), axis=axis)
    yield case("Gather", below(9, 5000), below(5000, 3000))
    for axis in (0, 1):
        places = below(128, 128, 768)
        yield case("GatherElements", normal(128, 768), places, axis=axis)
        yield case("ScatterElements", normal(128, 768), places, normal(128, 768), axis=axis)
    yield case("ScatterElements", normal(128, 768), places, normal(128, 768), axis=1, reduction="add")
    for data, indices in (((100, 100), (1000, 2)), ((100, 100, 8), (1000, 2)), ((64, 56, 56), (50, 1))):
        places = below(56, *indices)
        updates = normal(*indices[:-1], *data[indices[-1] :])
        yield case("GatherND", normal(*data), places)
        yield case("ScatterND", normal(*data), places, updates)
    yield case("ScatterND", normal(*data), places, updates, reduction="add")
    yield case("OneHot", below(1000, 128), number(1000, np.int64), numbers(0, 1, dtype=np.float32))
    yield case("OneHot", below(21, 1, 65, 65), number(21, np.int64), numbers(0, 1, dtype=np.float32), axis=1)


def selections() -> Iterator[Case]:
    for shape, axis, k in (
        ((1, 1000), 1, 5),
        ((64, 100), 1, 10),
        ((100, 64), 0, 10),
        ((1, 8400), 1, 300),
        ((9, 4), 1, 1),
    ):
        yield case("TopK", normal(*shape), numbers(k), outputs=2, axis=axis)
    for shape in ((1, 10), (1, 1000), (128, 768)):
        yield case("NonZero", normal(*shape) > 1)
    yield case("NonZero", np.maximum(normal(128, 768), 0))
    yield case("Unique", below(300, 5000), outputs=4)
    yield case("Compress", normal(1000, 64), normal(1000) > 0, axis=0)
    yield case("Range", np.array(0), np.array(1000), np.array(1))
    yield case("ConstantOfShape", np.array([4, 16]))
    for boxes in (10, 1000):
        corner = np.abs(normal(1, boxes, 2)) * 100
        yield case(
            "NonMaxSuppression",
            np.concatenate([corner, corner + 30], axis=2),
            RNG.random((1, 1, boxes), np.float32),
            *[numbers(100), numbers(0.5, dtype=np.float32), numbers(0.3, dtype=np.float32)],
        )


def recurrent() -> Iterator[Case]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, width, hidden in ((20, 1, 64, 64), (1, 1, 128, 128), (100, 1, 1, 16), (10, 16, 32, 32)):
            weights = [
                Constant(normal(*shape) / 8) for shape in ((1, gates * hidden, width), (1, gates * hidden, hidden))
            ]
            yield case(op, normal(steps, batch, width), *weights, some(1, 2 * gates * hidden), hidden_size=hidden)


def attention() -> Iterator[Case]:
    for heads, queries, keys, width in ((8, 64, 64, 32), (12, 1, 128, 64), (6, 50, 50, 64)):
        shapes = (queries, keys, keys)
        flat, split = ([normal(1, n, heads * width) for n in shapes], [normal(1, heads, n, width) for n in shapes])
        yield contrib("MultiHeadAttention", *flat, num_heads=heads)
        yield case("Attention", *split, opset=23)
    for keys in (15, 255):
        yield contrib(
            "GroupQueryAttention",
            *[normal(1, 1, 512), normal(1, 1, 128), normal(1, 1, 128)],
            *[normal(1, 2, keys, 64), normal(1, 2, keys, 64)],
            *[np.array([keys], np.int32), np.array(keys + 1, np.int32)],
            outputs=3,
            num_heads=8,
            kv_num_heads=2,
        )
    tables = some(512, 32), some(512, 32)
    for interleaved in (0, 1):
        x = normal(1, 64, 768)
        yield contrib("RotaryEmbedding", x, np.arange(64)[None], *tables, num_heads=12, interleaved=interleaved)


def quantized() -> Iterator[Case]:
    u8, zero, scale = np.uint8, number(120, np.uint8), number(0.02)
    x = below(256, 128, 768, dtype=u8)
    yield case("QuantizeLinear", normal(128, 768), scale, zero)
    yield case(
        "QuantizeLinear", normal(128, 768), Constant(np.abs(normal(768))), Constant(np.zeros(768, np.int8)), axis=1
    )
    yield case("DequantizeLinear", x, scale, zero)
    yield case("DynamicQuantizeLinear", normal(128, 768), outputs=3)
    for m, k, n in ((1, 768, 768), (16, 384, 384), (64, 64, 64)):
        weights = Constant(below(256, k, n, dtype=np.int8))
        yield case("MatMulInteger", below(256, m, k, dtype=u8), weights, zero)
        yield case(
            "QLinearMatMul",
            *[below(256, m, k, dtype=u8), scale, zero, weights, scale, number(0, np.int8), number(3), zero],
        )
        yield contrib("DynamicQuantizeMatMul", normal(m, k), weights, scale)
    for shape, kernel, attributes in (
        ((1, 16, 28, 28), (32, 16, 3, 3), {}),
        ((1, 64, 14, 14), (64, 64, 1, 1), {}),
        ((1, 96, 28, 28), (96, 1, 3, 3), {"group": 96}),
    ):
        weights, image = Constant(below(256, *kernel, dtype=np.int8)), below(256, *shape, dtype=u8)
        yield case("QLinearConv", image, scale, zero, weights, scale, number(0, np.int8), number(3), zero, **attributes)
        yield case("ConvInteger", image, weights, zero, **attributes)
    for op in ("QLinearAdd", "QLinearMul"):
        yield contrib(op, x, scale, zero, below(256, 128, 768, dtype=u8), scale, zero, number(0.05), zero)
    yield contrib("QLinearSigmoid", x, scale, zero, number(0.004), zero)
    yield contrib("QLinearGlobalAveragePool", below(256, 1, 512, 7, 7, dtype=u8), scale, zero, scale, zero)


def fourier() -> Iterator[Case]:
    yield case("DFT", normal(8, 400, 1), None, number(1, np.int64), onesided=1, opset=20)
    yield case("DFT", normal(8, 509, 2), None, number(1, np.int64), opset=20)
    window, length = Constant(np.hanning(400).astype(np.float32)), number(400, np.int64)
    yield case("STFT", normal(1, 4000, 1), number(160, np.int64), window, length, onesided=1, opset=17)


def classics() -> Iterator[Case]:
    for rows in (1, 200):
        x = normal(rows, 20)
        yield classic("Scaler", x, offset=[0.1] * 20, scale=[2.0] * 20)
        yield classic("Normalizer", x, norm="L2")
        yield classic("Imputer", x, imputed_value_floats=[0.5], replaced_value_float=float("nan"))
        yield classic("Binarizer", x, threshold=0.5)
        yield classic("LinearRegressor", x, coefficients=list(map(float, normal(20))), intercepts=[0.5])
        yield classic(
            "LinearClassifier",
            x,
            outputs=2,
            coefficients=list(map(float, normal(60))),
            intercepts=[0.1, 0.2, 0.3],
            classlabels_ints=[0, 1, 2],
            post_transform="SOFTMAX",
        )
        yield classic("ArrayFeatureExtractor", x, numbers(1, 3, 5))
        yield classic(
            "LabelEncoder", below(9, rows, 1), keys_int64s=list(range(9)), values_floats=[float(i) for i in range(9)]
        )
        words = np.array([["red"], ["green"], ["blue"], ["other"]], object)[below(4, rows)]
        yield classic("OneHotEncoder", words, cats_strings=["red", "green", "blue"])


def strings() -> Iterator[Case]:
    words = np.array(["red", "green", "blue", "other"], object)
    for count in (4, 200):
        x = words[below(4, count)]
        yield case("StringConcat", x, x, opset=20)
        yield case("Equal", x, Constant(np.array(["red"], object)))


FAMILIES = (
    *[unary, binary, casts, reductions, normalizations, products, convolutions, pools, spatial, moves, indexing],
    *[selections, recurrent, attention, quantized, fourier, classics, strings],
)


def ratio(case: Case, rounds: int) -> tuple[float, float]:
    """onnxruntime's seconds of a run, and the CPU device's time relative to it."""
    works = both(case.model(), case.feeds())
    calls = calls_within(works["onnxruntime"], CALL_SECONDS)
    times = medians({device: repeated(work, calls) for device, work in works.items()}, rounds, ROW_SECONDS)
    return times["onnxruntime"] / calls, times["CPU"] / times["onnxruntime"]


def operators(words: Sequence[str] = (), rounds: int = ROUNDS, num_worst: int = NUM_WORST) -> Table:
    table = Table("", "onnxruntime", "CPU")
    rows: list[tuple[float, float, str]] = []
    for family in FAMILIES:
        measured = []
        for each in family():
            if not words or any(word in text for word in words for text in (each.name, family.__name__)):
                measured.append((*ratio(each, rounds)[::-1], each.name))
        if measured:
            mean = statistics.geometric_mean(row[0] for row in measured)
            table.add(f"**{family.__name__}**, geometric mean of {len(measured)}", "", f"{mean:.2f}")
        rows += measured
    for found, seconds, name in sorted(rows, reverse=True)[:num_worst]:
        table.add(name, duration(seconds), f"{found:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a case or its family; default: all cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--worst", type=int, default=NUM_WORST, help=f"cases in the table; default: {NUM_WORST}")
    arguments = parser.parse_args()
    operators(arguments.words, arguments.rounds, arguments.worst).print()


if __name__ == "__main__":
    main()
