"""Shapes that follow from integers that nodes compute: each operator, random programs against execution, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.core import with_shapes

INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT
Node = onnx.NodeProto


def network(nodes: list[Node], constants: dict[str, Any], opset: int = 17, out: str = "y", rank: int = 2) -> bytes:
    """Input x has open dims; ``constants`` are int64 unless they are arrays. Nothing else declares a shape."""
    weights = [
        numpy_helper.from_array(value if isinstance(value, np.ndarray) else np.array(value, np.int64), name)
        for name, value in constants.items()
    ]
    x = helper.make_tensor_value_info("x", FLOAT, [f"d{axis}" for axis in range(rank)])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name=out)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model.SerializeToString()


def inferred(core: hetero.Core, model: bytes, shape: tuple[int, ...], name: str = "y") -> Any:
    typed = with_shapes(core.read_model(model), {"x": shape})
    return typed.type_of(typed.value_id(name)).shape


def made(op: str, inputs: list[str], output: str, **attributes: Any) -> Node:
    return helper.make_node(op, inputs, [output], **attributes)


SIZES = made("Shape", ["x"], "s")
# Nodes between s, the shape [4, 6] of x, and v, a vector; then the elements of v.
VALUES: dict[str, tuple[list[Node], dict[str, Any], int, list[int]]] = {
    "Shape from 1": ([made("Shape", ["x"], "v", start=1)], {}, 17, [6]),
    "Shape to -1": ([made("Shape", ["x"], "v", end=-1)], {}, 17, [4]),
    "Size": ([made("Size", ["x"], "n"), made("Unsqueeze", ["n", "zero"], "v")], {"zero": [0]}, 17, [24]),
    "Gather": ([made("Gather", ["s", "at"], "v")], {"at": [-1, 0, 1]}, 17, [6, 4, 6]),
    "Slice": ([made("Slice", ["s", "b", "e"], "v")], {"b": [-1], "e": [2**63 - 1]}, 11, [6]),
    "Slice back": (
        [made("Slice", ["s", "b", "e", "a", "t"], "v")],
        {"b": [1], "e": [-9], "a": [0], "t": [-1]},
        17,
        [6, 4],
    ),
    "Slice of 9": ([made("Slice", ["s"], "v", starts=[0], ends=[1], axes=[0])], {}, 9, [4]),
    "Concat": ([made("Concat", ["s", "c", "s"], "v", axis=-1)], {"c": [1]}, 17, [4, 6, 1, 4, 6]),
    "Unsqueeze of 11": (
        [made("Gather", ["s", "at"], "n"), made("Unsqueeze", ["n"], "v", axes=[0])],
        {"at": 1},
        11,
        [6],
    ),
    "Squeeze": (
        [made("Slice", ["s", "b", "e"], "p"), made("Squeeze", ["p"], "n"), made("Unsqueeze", ["n", "zero"], "v")],
        {"b": [0], "e": [1], "zero": [0]},
        17,
        [4],
    ),
    "Add": ([made("Add", ["s", "c"], "v")], {"c": 1}, 17, [5, 7]),
    "Sub": ([made("Sub", ["s", "c"], "v")], {"c": [1, 6]}, 17, [3, 0]),
    "Mul": ([made("Mul", ["s", "s"], "v")], {}, 17, [16, 36]),
    "Div rounds to zero": (
        [made("Neg", ["s"], "n"), made("Div", ["n", "c"], "q"), made("Neg", ["q"], "v")],
        {"c": 4},
        17,
        [1, 1],
    ),
    "Mod": (
        [
            made("Neg", ["s"], "n"),
            made("Mod", ["n", "c"], "p"),
            made("Mod", ["n", "c"], "q", fmod=1),
            made("Neg", ["q"], "r"),
            made("Concat", ["p", "r"], "v", axis=0),
        ],
        {"c": 5},
        17,
        [1, 4, 4, 1],
    ),
    "Min, Max": ([made("Min", ["s", "c"], "m"), made("Max", ["m", "d"], "v")], {"c": [5], "d": [2]}, 17, [4, 5]),
    "by float": (
        [
            made("Cast", ["s"], "f", to=FLOAT),
            made("Mul", ["f", "half"], "h"),
            made("Floor", ["h"], "r"),
            made("Cast", ["r"], "v", to=INT),
        ],
        {"half": np.array(0.4, np.float32)},
        17,
        [1, 2],
    ),
    "ReduceProd": ([made("ReduceProd", ["s"], "v", axes=[0])], {}, 17, [24]),
    "Where": (
        [made("Greater", ["s", "c"], "g"), made("Where", ["g", "s", "one"], "v")],
        {"c": [5], "one": [1]},
        17,
        [1, 6],
    ),
    "ones where -1": (
        [
            made("ConstantOfShape", ["two"], "o", value=numpy_helper.from_array(np.array([1], np.int64))),
            made("Mul", ["o", "c"], "m"),
            made("Equal", ["want", "m"], "q"),
            made("Where", ["q", "o", "s"], "v"),
        ],
        {"two": [2], "c": -1, "want": [-1, 3]},
        17,
        [1, 6],
    ),
    "pads of PyTorch": (
        [
            made("ConstantOfShape", ["two"], "o", value=numpy_helper.from_array(np.array([1], np.int64))),
            made("Concat", ["s", "o"], "p", axis=0),
            made("Reshape", ["p", "rows"], "m"),
            made("Slice", ["m", "back", "end", "a", "back"], "r"),
            made("Transpose", ["r"], "t", perm=[1, 0]),
            made("Reshape", ["t", "back"], "v"),
        ],
        {"two": [2], "rows": [-1, 2], "back": [-1], "end": [-(2**63) + 1], "a": [0]},
        17,
        [1, 4, 1, 6],
    ),
    "Transpose of a vector": ([made("Transpose", ["s"], "v")], {}, 17, [4, 6]),
    "Expand": (
        [made("Gather", ["s", "at"], "n"), made("Expand", ["n", "two"], "v")],
        {"at": 0, "two": [2]},
        17,
        [4, 4],
    ),
}


@pytest.mark.parametrize("case", VALUES)
def test_values(core: hetero.Core, case: str) -> None:
    nodes, constants, opset, expected = VALUES[case]
    fill = made("ConstantOfShape", ["v"], "y")
    model = network([SIZES, *nodes, fill], constants, opset)
    assert inferred(core, model, (4, 6)) == tuple(expected)
    assert core.compile_model(model, "TEMPLATE")(np.zeros((4, 6), np.float32))[0].shape == tuple(expected)


def test_values_from_constants_alone(core: hetero.Core) -> None:
    nodes = [made("Identity", ["c"], "v"), made("Reshape", ["x", "v"], "y")]
    assert inferred(core, network(nodes, {"c": [3, -1]}), (4, 6)) == (3, 8)


# The last node, with the vector v = [6, 4], and the shape of y.
SHAPES: dict[str, tuple[Node, dict[str, Any], tuple[int, ...]]] = {
    "Reshape": (made("Reshape", ["x", "v"], "y"), {}, (6, 4)),
    "Expand": (made("Expand", ["one", "v"], "y"), {"one": [[1]]}, (6, 4)),
    "Tile": (made("Tile", ["x", "v"], "y"), {}, (24, 24)),
    "Slice": (made("Slice", ["x", "v", "e", "a", "t"], "y"), {"e": [0, 0], "a": [1, 0], "t": [-2, -1]}, (3, 3)),
    "Range": (made("Range", ["b", "n", "t"], "y"), {"b": 0, "t": 4}, (2,)),
    "Pad": (made("Pad", ["x", "p"], "y"), {}, (14, 16)),
    "Resize": (made("Resize", ["x", "", "", "v"], "y"), {}, (6, 4)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes(core: hetero.Core, case: str) -> None:
    node, constants, expected = SHAPES[case]
    first = [
        SIZES,
        made("Gather", ["s", "swap"], "v"),
        made("Concat", ["v", "s"], "p", axis=0),
        made("ReduceMax", ["s"], "n", keepdims=0) if case != "Range" else made("Gather", ["s", "last"], "n"),
    ]
    model = network([*first, node], {"swap": [1, 0], "last": 1, **constants}, 17)
    assert inferred(core, model, (4, 6)) == expected
    assert core.compile_model(model, "TEMPLATE")(np.zeros((4, 6), np.float32))[0].shape == expected


def test_a_reshape_in_each_of_many_layers(core: hetero.Core) -> None:
    """In opset 11, onnx follows no computed integers, so each layer needs a round of inference."""
    nodes, before = [], "x"
    for layer in range(10):
        nodes += [
            made("Shape", [before], f"s{layer}"),
            made("Slice", [f"s{layer}", "zero", "one"], f"b{layer}"),
            made("Concat", [f"b{layer}", "rest"], f"t{layer}", axis=0),
            made("Reshape", [before, f"t{layer}"], f"r{layer}"),
            made("Transpose", [f"r{layer}"], f"u{layer}", perm=[1, 0]),
        ]
        before = f"u{layer}"
    model = network(nodes, {"zero": [0], "one": [1], "rest": [-1]}, 11, before)
    assert inferred(core, model, (4, 6), before) == (4, 6)
    declared = onnx.load_from_string(model)  # an exporter's names for sizes
    info = helper.make_tensor_value_info("r0", FLOAT, ["d0", "r0_d1"])
    declared.graph.value_info.append(info)
    assert inferred(core, declared.SerializeToString(), (4, 6), "r0") == (4, 6)
    plan = core.plan(model, "HETERO:FPGA,CPU", shapes={"x": (4, 6)})
    assert all(value.bytes is not None for value in plan.values)


@pytest.mark.parametrize(
    "nodes",
    [
        [made("Div", ["s", "zero"], "v")],
        [made("Gather", ["s", "far"], "v")],
        [made("Expand", ["s", "many"], "v")],
        [made("Mul", ["s", "huge"], "w"), made("Mul", ["w", "huge"], "v")],
        [made("Neg", ["s"], "v")],
        [made("Gather", ["s", "i"], "n"), made("Mul", ["n", "most"], "w"), made("Unsqueeze", ["w", "a"], "v")],
        [made("Add", ["s", "single"], "v")],
        [made("Slice", ["s", "b"], "v")],
        [made("Concat", ["s", "missing"], "v", axis=0)],
    ],
    ids=str,
)
def test_what_does_not_follow_stays_unknown(core: hetero.Core, nodes: list[Node]) -> None:
    constants = {
        "b": [-9],
        "e": [-9],
        "a": [0],
        "t": [-1],
        "zero": 0,
        "far": [7],
        "many": [1 << 40, 1],
        "huge": 1 << 39,
        "i": 0,
        "most": 2**63 - 2,
        "single": np.array(1, np.float32),
        "missing": np.array([0.5], np.float32),
    }
    shape = inferred(core, network([SIZES, *nodes, made("ConstantOfShape", ["v"], "y")], constants), (4, 6))
    assert shape is None or not all(isinstance(dim, int) for dim in shape)


@pytest.mark.parametrize(("stated", "expected"), [(("m", 6), (4, 6)), (("m", 5), ("m", 5)), (("m", 2, 3), ("m", 2, 3))])
def test_a_stated_shape_that_contradicts_stays(
    core: hetero.Core, stated: tuple[Any, ...], expected: tuple[Any, ...]
) -> None:
    """It is for the runtime to report."""
    model = onnx.load_from_string(network([SIZES, made("Reshape", ["flat", "s"], "y")], {}))
    model.graph.input.append(helper.make_tensor_value_info("flat", FLOAT, ["k"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, stated))
    assert inferred(core, model.SerializeToString(), (4, 6)) == expected


def test_a_function_of_the_same_name_is_not_taken_for_the_operator(core: hetero.Core) -> None:
    body = helper.make_function(
        "mine", "Reshape", ["a", "b"], ["c"], [made("Identity", ["a"], "c")], [helper.make_opsetid("", 17)]
    )
    node = helper.make_node("Reshape", ["x", "v"], ["y"], domain="mine")
    proto = onnx.load_from_string(network([SIZES, made("Gather", ["s", "swap"], "v"), node], {"swap": [1, 0]}))
    proto.functions.append(body)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    assert inferred(core, proto.SerializeToString(), (4, 6)) in ((4, 6), None)


def random_program(rng: np.random.Generator) -> tuple[list[Node], dict[str, Any]]:
    """Nodes that compute vectors from the shape of x, and a last one whose result depends on one of them."""
    nodes, constants, pool = [SIZES], {"i0": [0], "i1": [1], "im": [-1], "all": [-1]}, ["s"]
    for number in range(int(rng.integers(1, 7))):
        name, one, other = f"v{number}", *(str(rng.choice(pool)) for _ in range(2))
        constants[f"c{number}"] = rng.integers(-3, 4, int(rng.integers(1, 3))).tolist()
        op = str(
            rng.choice(
                ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Gather", "Slice", "Concat", "Where", "Abs", "Neg"]
            )
        )
        if op in ("Gather", "Div", "Mod", "Add", "Mul", "Sub", "Min", "Max"):
            nodes.append(made(op, [one, str(rng.choice([other, f"c{number}"]))], name))
        elif op == "Slice":
            constants |= {f"b{number}": rng.integers(-3, 4, 1).tolist(), f"e{number}": rng.integers(-3, 4, 1).tolist()}
            constants |= {f"t{number}": [int(rng.choice([-2, -1, 1, 2]))]}
            nodes.append(made(op, [one, f"b{number}", f"e{number}", "i0", f"t{number}"], name))
        elif op == "Concat":
            nodes.append(made(op, [one, other, f"c{number}"], name, axis=0))
        elif op == "Where":
            nodes += [made("Less", [one, f"c{number}"], f"l{number}"), made(op, [f"l{number}", one, other], name)]
        else:
            nodes.append(made(op, [one], name))
        pool.append(name)
    last = str(rng.choice(["ConstantOfShape", "Reshape", "Expand", "Tile", "Slice"]))
    if last == "Slice":
        constants |= {"se": rng.integers(-9, 9, 1).tolist(), "st": [int(rng.choice([-2, -1, 1, 3]))]}
        nodes += [made("Gather", [pool[-1], "i0"], "first"), made("Slice", ["x", "first", "se", "i1", "st"], "y")]
    else:
        nodes.append(made(last, [pool[-1]] if last == "ConstantOfShape" else ["x", pool[-1]], "y"))
    return nodes, constants


def test_random_programs(core: hetero.Core) -> None:
    rng, known, ran = np.random.default_rng(7), 0, 0
    for _ in range(150):
        nodes, constants = random_program(rng)
        model = network(nodes, constants)
        x = np.zeros(rng.integers(0, 5, 2), np.float32)
        shape = inferred(core, model, x.shape)
        try:
            result = core.compile_model(model, "TEMPLATE")(x)["y"]
        except hetero.HeteroError:
            continue
        ran += 1
        if shape is not None and all(isinstance(dim, int) for dim in shape):
            known += 1
            assert shape == result.shape, onnx.printer.to_text(onnx.load_from_string(model))
    assert ran > 50
    assert known > 0.9 * ran
