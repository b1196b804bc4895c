"""Operators of OPENCL that move elements, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from opencl import check, model_of, refusals, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node
X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_])
def test_element_types(core: hetero.Core, dtype: type) -> None:
    x = X.astype(dtype)
    constants = {"begin": ints(1), "end": ints(3), "axis": ints(2), "index": ints(1, 0, -1)}
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        node("Slice", ["x", "begin", "end", "axis"], ["s"]),
        node("Concat", ["x", "s"], ["c"], axis=2),
        node("Gather", ["x", "index"], ["g"], axis=1),
    ]
    check(core, model_of(nodes, {"x": x}, constants), {"x": x})


def test_transpose(core: hetero.Core) -> None:
    inputs = {"x": X, "y": np.ones((1, 5, 1, 2), np.float32), "e": np.ones((0, 3), np.float32), "s": np.float32(3)}
    inputs = {name: np.asarray(array) for name, array in inputs.items()}
    orders = {"x": [[0, 2, 1], [1, 0, 2], [2, 1, 0]], "y": [[2, 1, 0, 3], [3, 2, 1, 0]], "e": [[1, 0]], "s": [[]]}
    nodes = [
        node("Transpose", [name], [f"{name}{at}"], perm=order)
        for name, each in orders.items()
        for at, order in enumerate(each)
        if order
    ]
    nodes.append(node("Transpose", ["x"], ["plain"]))
    nodes.append(node("Transpose", ["s"], ["scalar"]))
    check(core, model_of(nodes, inputs), inputs)


def test_views(core: hetero.Core) -> None:
    constants = {
        "flat": ints(-1), "rows": ints(0, -1), "same": ints(2, 3, 4), "ones": ints(1, 24, 1), "axes": ints(0, -1),
        "drop": ints(0),
    }  # fmt: skip
    nodes = [
        node("Reshape", ["x", "flat"], ["a"]),
        node("Reshape", ["x", "rows"], ["b"]),
        node("Reshape", ["a", "same"], ["c"]),
        node("Unsqueeze", ["x", "axes"], ["d"]),
        node("Squeeze", ["d", "drop"], ["e"]),
        node("Squeeze", ["d"], ["f"]),
        node("Flatten", ["x"], ["g"], axis=2),
        node("Flatten", ["x"], ["h"], axis=-3),
        node("Identity", ["x"], ["i"]),
        node("Add", ["e", "e"], ["j"]),
        node("Reshape", ["j", "ones"], ["k"]),
    ]
    check(core, model_of(nodes, {"x": X}, constants), {"x": X})


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([0], [2**62], [1], None),
        ([-2], [-1], [-1], None),
        ([1, 0], [2, 100], None, None),
        ([-1], [-(2**62)], [2], [-1]),
        ([100, 0, 1], [-100, 3, 2], [2, 1, 0], [-2, 2, 1]),
        ([2], [1], [1], None),
        ([3], [3], [2], [1]),
        ([5], [9], [0], None),
        ([-9], [9], [1], [3]),
        ([0], [-5], [2], [-1]),
    ],
)
def test_slice(core: hetero.Core, starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    given = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    names = [name if entries is not None else "" for name, entries in given.items()]
    while not names[-1]:
        names.pop()
    constants = {name: ints(*entries) for name, entries in given.items() if entries is not None}
    nodes = [node("Slice", ["x", *names], ["y"])]
    check(core, model_of(nodes, {"x": X}, constants), {"x": X})
    if steps is None and axes is not None:
        old = [node("Slice", ["x"], ["y"], starts=starts, ends=ends, axes=axes)]
        check(core, model_of(old, {"x": X}, opset=9), {"x": X})


def test_concat_and_split(core: hetero.Core) -> None:
    empty = np.zeros((2, 0, 4), np.float32)
    inputs = {"x": X, "e": empty, "z": X[:, :1]}
    constants = {"sizes": ints(1, 0, 2)}
    nodes = [
        node("Concat", ["x", "e", "z", "x"], ["a"], axis=1),
        node("Concat", ["x"], ["b"], axis=-1),
        node("Split", ["x", "sizes"], ["c", "", "d"], axis=1),
        node("Split", ["x"], ["f", "g"], axis=2, num_outputs=2),
        node("Split", ["x"], ["h", "i"], axis=1, num_outputs=2),  # 2 and 1
    ]
    nodes[2].output[1] = "empty"
    check(core, model_of(nodes, inputs, constants), inputs)
    old = [node("Split", ["x"], ["c", "d"], axis=2), node("Split", ["x"], ["f", "g"], axis=1, split=[1, 2])]
    check(core, model_of(old, {"x": X}, opset=11), {"x": X})


@pytest.mark.parametrize(("axis", "shape"), [(0, ()), (1, (2,)), (-1, (2, 2)), (2, (0,))])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gather(core: hetero.Core, axis: int, shape: tuple[int, ...], dtype: type) -> None:
    size = X.shape[axis]
    index = np.random.default_rng(0).integers(-size, size, shape).astype(dtype)
    model = model_of([node("Gather", ["x", "i"], ["y"], axis=axis)], {"x": X, "i": index})
    check(core, model, {"x": X, "i": index})


@pytest.mark.parametrize("wrong", [3, -4, 2**40])
def test_indices_out_of_bounds(core: hetero.Core, wrong: int) -> None:
    nodes = [node("Gather", ["x", "i"], ["y"], "the_gather", axis=1), node("Relu", ["y"], ["z"])]
    inputs = {"x": X, "i": ints(0, wrong)}
    compiled = core.compile_model(core.read_model(model_of(nodes, inputs, outputs=["z"])), "OPENCL")
    request = compiled.create_infer_request()
    with pytest.raises(hetero.InferenceError, match="node 'the_gather' .Gather.: an index is out of bounds"):
        request.infer(inputs)
    np.testing.assert_array_equal(request.infer({"x": X, "i": ints(0, -1)})[0], X[:, [0, -1]])


@pytest.mark.parametrize("wrong", [1, -2, 2**40])
def test_indices_out_of_bounds_of_results_that_stay_on_the_device(core: hetero.Core, wrong: int) -> None:
    """The check waits for the kernel, although nothing else copies its result to the host."""
    x = np.zeros((1, 1 << 18), np.float32)
    nodes = [node("Gather", ["x", "i"], ["y"], "the_gather"), node("Neg", ["y"], ["z"])]
    model = core.read_model(model_of(nodes, {"x": x, "i": ints(0, wrong)}, outputs=["y", "z"]))
    for request in (
        core.compile_model(model, "OPENCL").create_infer_request(),
        core.compile_model(model, "HETERO:OPENCL,CPU", pins={"z": "CPU"}).create_infer_request(),
    ):
        for _ in range(3):
            with pytest.raises(hetero.InferenceError, match="node 'the_gather' .Gather.: an index is out of bounds"):
                request.infer([x, ints(0, wrong)], out=hetero.ON_DEVICE)
            np.testing.assert_array_equal(request.infer([x, ints(0, -1)])["z"], -x[[0, 0]])


def test_expand_and_tile(core: hetero.Core) -> None:
    inputs = {"x": X[:, :1], "s": np.array(2, np.float32)}
    constants = {
        "to": ints(5, 1, 3, 1),
        "less": ints(3, 1),
        "none": ints(0, 1, 1),
        "times": ints(2, 3, 1),
        "no": ints(1, 0, 2),
    }
    nodes = [
        node("Expand", ["x", "to"], ["a"]),
        node("Expand", ["x", "less"], ["b"]),
        node("Expand", ["s", "to"], ["c"]),
        node("Expand", ["s", "none"], ["f"]),
        node("Tile", ["x", "times"], ["d"]),
        node("Tile", ["x", "no"], ["e"]),
    ]
    check(core, model_of(nodes, inputs, constants), inputs)


def test_pad(core: hetero.Core) -> None:
    constants = {
        "pads": ints(0, 1, 2, 1, 0, 3), "crop": ints(0, -1, 1, 0, 0, -2), "value": np.array(-7.5, np.float32),
        "two": ints(1, 2), "axis": ints(-1), "all": ints(0, -2, 0, 0, -1, 0),
    }  # fmt: skip
    nodes = [
        node("Pad", ["x", "pads"], ["a"]),
        node("Pad", ["x", "pads", "value"], ["b"]),
        node("Pad", ["x", "crop", "value"], ["c"]),
        node("Pad", ["x", "two", "", "axis"], ["d"]),
        node("Pad", ["x", "all"], ["e"]),
    ]
    check(core, model_of(nodes, {"x": X}, constants), {"x": X})
    old = [node("Pad", ["x"], ["y"], pads=[0, 1, 2, 1, 0, 3], value=1.5)]
    check(core, model_of(old, {"x": X}, opset=10), {"x": X})


def test_ranges_of_large_integers(core: hetero.Core) -> None:
    """Their bounds are not exact as floating-point numbers."""
    large = 1 << 60
    constants = {
        "begin": np.array(large + 1), "end": np.array(large + 4), "one": np.array(1), "two": np.array(2),
        "minus": np.array(-1),
    }  # fmt: skip
    ranges = {"up": ("begin", "end", "one"), "steps": ("begin", "end", "two"), "down": ("end", "begin", "minus")}
    nodes = [node("Range", list(given), [name]) for name, given in ranges.items()]
    nodes.append(node("Concat", [*ranges, "x"], ["y"], axis=0))
    inputs = {"x": ints(3)}
    check(core, model_of(nodes, inputs, constants, outputs=["y"]), inputs)


def test_shapes_are_computed_on_the_host(core: hetero.Core) -> None:
    """The usual way of exporters to state a shape; sizes are open, and change from run to run."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["rows"]),
        node("Unsqueeze", ["rows", "zero_axis"], ["rows_1"]),
        node("Div", ["rows_1", "two"], ["half"]),
        node("Mul", ["half", "two"], ["again"]),
        node("Concat", ["again", "minus"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
        node("ConstantOfShape", ["shape"], ["ones"], value=numpy_helper.from_array(np.float32([1.5]))),
        node("Add", ["x", "ones"], ["z"]),
        node("Range", ["zero", "rows", "one"], ["count"]),
        node("Cast", ["count"], ["numbers"], to=onnx.TensorProto.FLOAT),
        node("Shape", ["x"], ["last"], start=-1),
        node("Expand", ["one_f", "shape"], ["e"]),
        node("Size", ["x"], ["size"]),
    ]
    constants: dict[str, np.ndarray] = {
        "zero": np.array(0), "one": np.array(1), "zero_axis": ints(0), "two": ints(2), "minus": ints(-1),
        "one_f": np.float32([[1]]),
    }  # fmt: skip
    outputs = ["y", "z", "numbers", "last", "e", "size"]
    rng = np.random.default_rng(0)
    model = model_of(nodes, {"x": X}, constants, outputs=outputs, dynamic=True)
    expected = core.compile_model(core.read_model(model), "ORT")
    request = core.compile_model(core.read_model(model), "OPENCL").create_infer_request()
    for shape in ((2, 3, 4), (4, 1, 2), (2, 3, 4), (6, 5, 1), (2, 0, 3)):
        if 0 in shape:
            continue  # -1 cannot be found
        x = rng.standard_normal(shape).astype(np.float32)
        found, wanted = request.infer(x), expected(x)
        for name in outputs:
            assert found[name].dtype == wanted[name].dtype
            np.testing.assert_array_equal(found[name], wanted[name])


def test_shapes_given_as_inputs(core: hetero.Core) -> None:
    nodes = [node("Reshape", ["x", "shape"], ["y"]), node("Expand", ["s", "shape"], ["z"])]
    inputs = {"x": X, "s": np.float32([2]), "shape": ints(6, 4)}
    request = core.compile_model(core.read_model(model_of(nodes, inputs)), "OPENCL").create_infer_request()
    for shape in ((6, 4), (12, 2), (6, 4), (24, 1)):
        found = request.infer({**inputs, "shape": ints(*shape)})
        np.testing.assert_array_equal(found["y"], X.reshape(shape))
        np.testing.assert_array_equal(found["z"], np.full(shape, 2, np.float32))
    with pytest.raises(hetero.InferenceError, match="cannot have the shape"):
        request.infer({**inputs, "shape": ints(5, 5)})
    with pytest.raises(hetero.HeteroError):
        request.infer({**inputs, "shape": ints(2**40, 2**20)})
    np.testing.assert_array_equal(request.infer(inputs)["y"], X.reshape(6, 4))


def test_refusals(core: hetero.Core) -> None:
    inputs = {"x": X, "i": ints(2, 3)}
    nodes = [
        node("Cast", ["x"], ["cast"], to=onnx.TensorProto.INT64),
        node("ReduceMax", ["cast"], ["shape"], keepdims=0),
        node("Reshape", ["x", "cast"], ["a"], "data"),
        node("Expand", ["x", "shape"], ["d"], "computed"),
        node("Pad", ["x", "i"], ["b"], "reflect", mode="reflect"),
        node("NonZero", ["x"], ["c"], "unknown"),
    ]
    found = refusals(core, model_of(nodes, inputs))
    for key in ("data", "computed"):
        assert found[key] == "its input 2, which states a size, an axis or a position, depends on data"
    assert found["reflect"] == "only its mode 'constant' is supported"
    assert "NonZero" in found["unknown"]


def test_wrong_nodes_are_named(core: hetero.Core) -> None:
    cases: Sequence[tuple[onnx.NodeProto, Mapping[str, np.ndarray]]] = [
        (node("Concat", ["x", "z"], ["y"], "bad", axis=0), {"x": X, "z": X[:, :2]}),
        (node("Transpose", ["x"], ["y"], "bad", perm=[0, 0, 1]), {"x": X}),
        (node("Gather", ["x", "z"], ["y"], "bad", axis=5), {"x": X, "z": ints(0)}),
        (node("MatMul", ["x", "z"], ["y"], "bad"), {"x": X, "z": X}),
    ]
    for each, inputs in cases:
        model = core.read_model(model_of([each], inputs, dynamic=True))
        with pytest.raises(hetero.InferenceError, match="node 'bad'"):
            core.compile_model(model, "OPENCL")(dict(inputs))
