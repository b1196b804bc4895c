"""Operators whose results are huge or whose attributes make no sense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hostile.case import Made, case
from hostile.encode import info, ints, message, model, node, number, proto

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
    "inference: a shape of 10^7 symbols from a declared length",
    "bounded",
    "",
    lambda _: proto([make("ConstantOfShape", ["x"], ["y"])], [value("x", I64, [10_000_000])]),
    until="look",
)
case(
    "inference: a shape of a shape of a shape",
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
case(
    "inference: lengths that double 60 times",
    "bounded",
    "",
    lambda _: proto(
        [make("Concat", [f"t{i}" if i else "x"] * 2, [f"t{i + 1}" if i < 59 else "y"], axis=0) for i in range(60)],
        [value("x", I64, [2])],
    ),
    until="look",
)
case(
    "inference: shapes that double 30 times",
    "bounded",
    "",
    lambda _: proto(
        [
            make("Shape", ["x"], ["t0"]),
            *(make("Concat", [f"t{i}"] * 2, [f"t{i + 1}"], axis=0) for i in range(30)),
            make("ConstantOfShape", ["t30"], ["y"]),
        ]
    ),
    until="look",
)

# ---- what shape inference would loop over, or allocate, without end

for length in (10_000_000, 2**40, 2**62):
    long = ints("s", length)
    for label, consumer in (
        ("ConstantOfShape", [make("ConstantOfShape", ["v"], ["y"])]),
        ("Cast", [make("Cast", ["v"], ["y"], to=1)]),
        ("Expand", [make("Expand", ["x", "v"], ["y"])]),
        ("Reshape", [make("Reshape", ["x", "v"], ["y"])]),
        ("Resize", [make("Resize", ["x", "", "", "v"], ["y"])]),
        ("Concat and Gather", [make("Concat", ["v", "v"], ["w"], axis=0), make("Gather", ["w", "v"], ["y"])]),
        ("Slice", [make("Slice", ["v", "s", "s"], ["y"])]),
        ("Unsqueeze", [make("Unsqueeze", ["x", "v"], ["y"])]),
        (
            "Loop",
            [
                make(
                    "Loop",
                    ["s", "", "x"],
                    ["y"],
                    body=helper.make_graph(
                        [make("ConstantOfShape", ["v"], ["w"]), make("Identity", ["c"], ["go"])],
                        "b",
                        [value("i", I64, []), value("c", 9, []), value("u", 1, None)],
                        [value("go", 9, []), value("w", 1, None)],
                    ),
                )
            ],
        ),
    ):
        zero = numpy_helper.from_array(np.zeros(1, np.int64), "zero")
        vector = [make("Expand", ["zero", "s"], ["v"])]
        case(
            f"inference: a vector of {length} for {label}",
            "bounded",
            "",
            lambda _, nodes=vector + consumer, tensors=(long, zero): proto(nodes, initializers=tensors),
            until="look",
        )
case(
    "inference: ranks that double 40 times",
    "bounded",
    "",
    lambda _: proto(
        [make("Gather", [f"t{i}" if i else "x"] * 2, [f"t{i + 1}" if i < 39 else "y"]) for i in range(40)],
        [value("x", I64, [2, 2])],
    ),
)
case(
    "inference: ranks that rise by a hundred a node",
    "bounded",
    "",
    lambda _: proto(
        [make("Unsqueeze", [f"t{i}" if i else "x", "a"], [f"t{i + 1}" if i < 999 else "y"]) for i in range(1000)],
        initializers=[ints("a", *range(100))],
    ),
)
case(
    "inference: a stated rank of 100,000 handed on by 1,000 nodes",
    "any",
    "",
    lambda _: model(
        *(node("Relu", (f"t{i}" if i else "x",), (f"t{i + 1}" if i < 999 else "y",)) for i in range(1000)),
        ports=info(11, "x", 1, [1] * 100_000) + message(12, message(1, "y")),
    ),
    large=True,
)
case(
    "inference: 20 lists of 2,000 results",
    "bounded",
    "",
    lambda _: proto(
        [make("Split", ["x"], [f"o{j}_{i}" if (i or j) else "y" for i in range(2_000)]) for j in range(20)],
        [value("x", 1, [2000])],
    ),
)
case(
    "inference: a shape of a thousand symbols",
    "any",
    "",
    lambda _: model(
        node("Shape"),
        ports=message(
            11,
            message(1, "x"),
            message(
                2, message(1, number(1, 1), message(2, *(message(1, message(2, f"symbol{i}")) for i in range(1000))))
            ),
        )
        + message(12, message(1, "y")),
    ),
)
