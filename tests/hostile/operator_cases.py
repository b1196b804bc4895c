"""Operators whose results are huge or whose attributes make no sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hostile.case import Made, case
from hostile.encode import ints, proto

make = helper.make_node
value = helper.make_tensor_value_info
I64 = onnx.TensorProto.INT64

# ---- operators

HUGE = 2**40


def huge(
    op: str,
    *inputs: str,
    init: tuple[onnx.TensorProto, ...] = (),
    outputs: tuple[str, ...] = ("y",),
    **attributes: object,
) -> Callable[[Path], Made]:
    return lambda _: proto([make(op, list(inputs), list(outputs), **attributes)], initializers=init)


for label, model_of in {
    "ConstantOfShape": huge("ConstantOfShape", "s", init=(ints("s", HUGE),)),
    "ConstantOfShape that wraps": huge("ConstantOfShape", "s", init=(ints("s", 2**32, 2**32),)),
    "ConstantOfShape negative": huge("ConstantOfShape", "s", init=(ints("s", -5),)),
    "Expand": huge("Expand", "x", "s", init=(ints("s", HUGE, 2),)),
    "Tile": huge("Tile", "x", "s", init=(ints("s", HUGE),)),
    "Tile that wraps": huge("Tile", "x", "s", init=(ints("s", 2**61 + 1),)),
    "Pad": huge("Pad", "x", "s", init=(ints("s", 0, HUGE),)),
    "Pad 2^63 - 1": huge("Pad", "x", "s", init=(ints("s", -(2**63), 2**63 - 1),)),
    "Range": huge(
        "Range",
        "a",
        "b",
        "c",
        init=tuple(
            numpy_helper.from_array(np.array(n, np.int64), name) for name, n in zip("abc", (0, HUGE, 1), strict=True)
        ),
    ),
    "Range by zero": huge(
        "Range",
        "a",
        "b",
        "c",
        init=tuple(
            numpy_helper.from_array(np.array(n, np.int64), name) for name, n in zip("abc", (0, 5, 0), strict=True)
        ),
    ),
    "Reshape": huge("Reshape", "x", "s", init=(ints("s", HUGE, 2),)),
    "Reshape to -1 twice": huge("Reshape", "x", "s", init=(ints("s", -1, -1),)),
    "Gather": huge("Gather", "x", "s", init=(ints("s", HUGE),)),
    "Unsqueeze": huge("Unsqueeze", "x", "s", init=(ints("s", 2**62),)),
    "Concat": huge("Concat", "x", "x", axis=2**62),
    "Transpose": huge("Transpose", "x", perm=[2**62]),
    "RandomNormal": huge("RandomNormal", shape=[HUGE]),
    "EyeLike of shape": lambda _: proto(
        [make("ConstantOfShape", ["s"], ["e"]), make("EyeLike", ["e"], ["y"])], initializers=[ints("s", 2**20, 2**20)]
    ),
    "Slice by zero": huge("Slice", "x", "s", "s", "s", "s", init=(ints("s", 0),)),
    "Split by zero": huge("Split", "x", "s", init=(ints("s", 0, 0, 0),), outputs=("y", "z", "v")),
}.items():
    case(f"operator: {label}", "any", "", model_of)
case(
    "operator: Split into 10,000",
    "any",
    "",
    lambda _: proto([make("Split", ["x"], [f"o{i}" for i in range(10_000)]), make("Relu", ["o0"], ["y"])]),
)
case(
    "operator: OneHot",
    "any",
    "",
    lambda _: proto(
        [make("OneHot", ["i", "d", "v"], ["y"])],
        initializers=[ints("i", 0), ints("d", HUGE), numpy_helper.from_array(np.float32([0, 1]), "v")],
    ),
)
case(
    "operator: Resize",
    "any",
    "",
    lambda _: proto(
        [make("Resize", ["x", "", "s"], ["y"])], initializers=[numpy_helper.from_array(np.float32([1e12]), "s")]
    ),
)
case(
    "operator: MaxPool by zero",
    "any",
    "",
    lambda _: proto(
        [make("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], strides=[0, 0])], [value("x", 1, [1, 1, 4, 4])]
    ),
)
case(
    "operator: Conv of no groups",
    "any",
    "",
    lambda _: proto([make("Conv", ["x", "x"], ["y"], group=0)], [value("x", 1, [1, 1, 4, 4])]),
)
case(
    "operator: DepthToSpace by zero",
    "any",
    "",
    lambda _: proto([make("DepthToSpace", ["x"], ["y"], blocksize=0)], [value("x", 1, [1, 4, 1, 1])]),
)
case(
    "operator: a shape of 10^7 symbols from a declared length",
    "bounded",
    "",
    lambda _: proto([make("ConstantOfShape", ["x"], ["y"])], [value("x", I64, [10_000_000])]),
)
case(
    "operator: a shape of a shape of a shape",
    "bounded",
    "",
    lambda _: proto(
        [
            make("Shape", ["x"], ["a"]),
            make("ConstantOfShape", ["a"], ["b"]),
            make("Shape", ["b"], ["c"]),
            make("ConstantOfShape", ["c"], ["y"]),
        ],
        [value("x", 1, [2] * 60)],
    ),
)
case(
    "operator: a Loop of 2^62 turns that stops",
    "bounded",
    "",
    lambda _: proto(
        [
            make(
                "Loop",
                ["n", "", "x"],
                ["y"],
                body=helper.make_graph(
                    [
                        make("Identity", ["v"], ["w"]),
                        make("Constant", [], ["go"], value=helper.make_tensor("", 9, [], [False])),
                    ],
                    "b",
                    [value("i", I64, []), value("c", 9, []), value("v", 1, [2])],
                    [value("go", 9, []), value("w", 1, [2])],
                ),
            )
        ],
        initializers=[ints("n", 2**62)],
    ),
)
