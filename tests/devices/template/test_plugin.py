"""TEMPLATE: nested graphs, functions, element types, refusals, errors, counters."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import hetero
from hetero.devices.template import create_plugin
from hetero.errors import InferenceError, UnsupportedModel
from hetero.model.read import read_model
from sessions import onnxruntime_session
from template_runs import difference, run_on_template
from threads import in_threads


def parse(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def agrees_with_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime_session(model)
    wanted = session.run(None, feeds)
    found = run_on_template(model, list(feeds.values()))
    for result, expected in zip(found, wanted, strict=True):
        assert difference(result, expected, 1e-5, 1e-6) is None
    return list(found)


def refusals(model: onnx.ModelProto) -> dict[int, str]:
    return dict(create_plugin().query_model(read_model(model), {}).reasons)


# -- nested graphs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [True, False])
def test_if_reads_outer_values_and_constants(condition: bool) -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}>
        {
            a = Relu(x)
            y = If(c) <
                then_branch = t () => (float[3] r) { s = Add(a, w)  r = Neg(s) },
                else_branch = e () => (float[3] r) { r = If(c) <
                    then_branch = tt () => (float[3] q) { q = Identity(w) },
                    else_branch = ee () => (float[3] q) { q = Mul(x, w) }> }>
        }""")
    agrees_with_onnxruntime(model, {"c": np.array(condition), "x": np.array([-1, 0.5, 2], np.float32)})


def loop(trips: str, condition: str) -> onnx.ModelProto:
    return parse(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (int64 n, bool c, float[2, 2] x) => (float[2, 2] last, float[k, 2, 2] all, int64[k] counted)
        {{
            last, all, counted = Loop({trips}, {condition}, x) <body = b
                (int64 i, bool go, float[2, 2] state) =>
                (bool more, float[2, 2] next, float[2, 2] scanned, int64 number) {{
                    one = Constant<value = float {{1}}>()
                    next = Add(state, one)
                    scanned = Mul(next, x)
                    number = Identity(i)
                    top = ReduceMax<keepdims = 0>(next)
                    limit = Constant<value = float {{3.5}}>()
                    more = Less(top, limit)
                }}>
        }}""")


@pytest.mark.parametrize("opset", [11, 13, 16, 19, 21, 23])
def test_control_flow_in_each_version(opset: int) -> None:
    feeds = {"n": np.array(3), "c": np.array(True), "x": np.array([[0, 1], [-1, 0.5]], np.float32)}
    model = loop("n", "c")
    reduction = model.graph.node[0].attribute[0].g.node[4]
    assert reduction.op_type == "ReduceMax"
    model.opset_import[0].version = opset
    agrees_with_onnxruntime(model, feeds)
    walk = scan("scan_output_axes = [1],")
    walk.opset_import[0].version = opset
    rng = np.random.default_rng(0)
    agrees_with_onnxruntime(
        walk, {"s": rng.random(3, np.float32), "x": rng.random((4, 3), np.float32), "bias": rng.random(3, np.float32)}
    )


@pytest.mark.parametrize(("trips", "condition"), [("n", "c"), ("n", ""), ("", "c"), ("", "")])
@pytest.mark.parametrize(("count", "go"), [(2, True), (0, True), (50, True), (2, False)])
def test_loop(trips: str, condition: str, count: int, go: bool) -> None:
    feeds = {"n": np.array(count), "c": np.array(go), "x": np.array([[0, 1], [-1, 0.5]], np.float32)}
    agrees_with_onnxruntime(loop(trips, condition), feeds)


def scan(attributes: str, carried: str = "float[3]") -> onnx.ModelProto:
    return parse(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g ({carried} s, float[4, 3] x, float[3] bias) => ({carried} last, float[a, b] all)
        {{
            last, all = Scan(s, x) <num_scan_inputs = 1, {attributes} body = b
                ({carried} state, row) => ({carried} next, {carried} out) {{
                    moved = Add(row, bias)
                    next = Add(state, moved)
                    out = Mul(next, bias)
                }}>
        }}""")


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "scan_input_directions = [1],",
        "scan_output_directions = [1],",
        "scan_output_axes = [1],",
        "scan_output_axes = [-1], scan_input_directions = [1],",
    ],
)
def test_scan(attributes: str) -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.random(shape, np.float32) for name, shape in {"s": (3,), "x": (4, 3), "bias": (3,)}.items()}
    agrees_with_onnxruntime(scan(attributes), feeds)


def test_scan_over_another_axis() -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.random(shape, np.float32) for name, shape in {"s": (4,), "x": (4, 3), "bias": (4,)}.items()}
    text = scan("scan_input_axes = [1],", "float[4]")
    text.graph.input[2].type.tensor_type.shape.dim[0].dim_value = 4
    agrees_with_onnxruntime(text, feeds)


def scan_of_opset_8(**attributes: Any) -> onnx.ModelProto:
    body = parse("""
        <ir_version: 3, opset_import: ["": 8]>
        body (float[2] state, float[2] row) => (float[2] next, float[2] out)
        { next = Add(state, row)  out = Identity(next) }""").graph
    node = helper.make_node("Scan", ["n", "s", "x"], ["last", "all"], num_scan_inputs=1, body=body, **attributes)
    ports = {"n": (TensorProto.INT64, [2]), "s": (TensorProto.FLOAT, [2, 2]), "x": (TensorProto.FLOAT, [2, 3, 2])}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in ports.items()],
        [
            helper.make_tensor_value_info("last", TensorProto.FLOAT, [2, 2]),
            helper.make_tensor_value_info("all", TensorProto.FLOAT, [2, 3, 2]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)


BATCH = {"s": np.ones((2, 2), np.float32), "x": np.arange(12, dtype=np.float32).reshape(2, 3, 2)}


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("lengths", [(3, 3), (3, 2), (1, 2), (1, 1)])
def test_scan_of_opset_8_has_a_batch_and_lengths(lengths: tuple[int, int], backward: int) -> None:
    agrees_with_onnxruntime(scan_of_opset_8(directions=[backward]), {"n": np.array(lengths)} | BATCH)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
@pytest.mark.parametrize("lengths", [(4, 1), (-1, 1)])
def test_lengths_outside_of_the_scanned_axis(lengths: tuple[int, int], device: str) -> None:
    compiled = hetero.compile(scan_of_opset_8(), device)
    with pytest.raises(InferenceError, match="sequence_lens"):
        compiled({"n": np.array(lengths)} | BATCH)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU", "HETERO:CPU,TEMPLATE"])
def test_unknown_directions(device: str) -> None:
    with pytest.raises(UnsupportedModel, match="directions"):
        hetero.compile(scan_of_opset_8(directions=[2]), device)


def test_outer_values_of_a_loop_may_share_names_with_its_body() -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (int64 n, float[2] x) => (float[2] y)
        {
            state = Neg(x)
            y = Loop(n, , x) <body = b (int64 i, bool go, float[2] carried) => (bool more, float[2] next)
                { more = Identity(go)  next = Add(carried, state) }>
        }""")
    agrees_with_onnxruntime(model, {"n": np.array(3), "x": np.array([1, 2], np.float32)})


def test_sequences_inside() -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x, int64 at) => (float[k] y, int64 n)
        {
            two = Constant<value = int64 {2}>()
            pieces = SplitToSequence(x, two)
            longer = SequenceInsert(pieces, x, at)
            mapped = SequenceMap(longer) <body = b (float[p] e) => (float[p] f) { f = Neg(e) }>
            y = ConcatFromSequence<axis = 0>(mapped)
            n = SequenceLength(mapped)
        }""")
    for at in (0, 1, 2, -1):
        agrees_with_onnxruntime(model, {"x": np.arange(4, dtype=np.float32), "at": np.array(at)})


def test_inserting_into_an_empty_sequence() -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] x, int64 at) => (float[2] y)
        { none = SequenceEmpty()  one = SequenceInsert(none, x, at)  y = SequenceAt(one, at) }""")
    agrees_with_onnxruntime(model, {"x": np.arange(2, dtype=np.float32), "at": np.array(0)})


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
@pytest.mark.parametrize("parts", [[1, 2], [5], [-1, 5], 0])
def test_parts_that_are_not_all_of_the_axis(parts: Any, device: str) -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x, int64[] parts) => (float[k] y)
        { pieces = SplitToSequence(x, parts)  y = ConcatFromSequence<axis = 0>(pieces) }""")
    model.graph.input[1].type.tensor_type.ClearField("shape")
    compiled = hetero.compile(model, device)
    with pytest.raises(InferenceError, match="split"):
        compiled({"x": np.arange(4, dtype=np.float32), "parts": np.array(parts)})


@pytest.mark.parametrize(("keepdims", "axis"), [(1, 0), (0, 0), (0, -1)])
@pytest.mark.parametrize("parts", [None, 3, [0, 4]])
def test_split_to_sequence(parts: Any, keepdims: int, axis: int) -> None:
    names = ["x"] if parts is None else ["x", "parts"]
    nodes = [
        helper.make_node("SplitToSequence", names, ["pieces"], axis=axis, keepdims=keepdims if parts is None else 1),
        helper.make_node("SequenceAt", ["pieces", "last"], ["y"]),
    ]
    constants = {"last": -1} if parts is None else {"last": -1, "parts": parts}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    agrees_with_onnxruntime(model, {"x": np.arange(16, dtype=np.float32).reshape(4, 4)})


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
@pytest.mark.parametrize(
    "nodes",
    ["s = SequenceConstruct(x, n)", "one = SequenceConstruct(x)  s = SequenceInsert(one, n)"],
)
def test_sequences_have_one_type(nodes: str, device: str) -> None:
    model = parse(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] x, int64[2] n) => (int64 y) {{ {nodes}  y = SequenceLength(s) }}""")
    compiled = hetero.compile(model, device)
    with pytest.raises(InferenceError, match="type|element"):
        compiled({"x": np.ones(2, np.float32), "n": np.ones(2, np.int64)})


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
@pytest.mark.parametrize("attributes", ["pooled_shape = [0, 2]", "pooled_shape = [2]"])
def test_pooled_shapes_of_regions(attributes: str, device: str) -> None:
    model = parse(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1, 4, 4] x, float[1, 5] r) => (float[1, 1, a, b] y)
        {{ y = MaxRoiPool<{attributes}>(x, r) }}""")
    with pytest.raises(UnsupportedModel, match="attribute pooled_shape"):
        hetero.compile(model, device)


# -- functions -----------------------------------------------------------------------------------------------------

FUNCTIONS = """
    <ir_version: 9, opset_import: ["": 17, "local": 1]>
    g (float[3] x) => (float[3] y, float[3] z, float[3] w)
    {
        y = local.Scaled <factor: float = 3.0> (x)
        z = local.Scaled (x)
        w = local.Twice <factor: float = 5.0> (x)
    }
    <domain: "local", opset_import: ["": 17]>
    Scaled <factor: float = 0.5> (a) => (b)
    {
        f = Constant <value_float: float = @factor> ()
        b = Mul (a, f)
    }
    <domain: "local", opset_import: ["": 17, "local": 1]>
    Twice <factor> (a) => (b)
    {
        once = local.Scaled <factor: float = @factor> (a)
        condition = Constant <value_int = 1> ()
        yes = Cast <to = 9> (condition)
        b = If (yes) <
            then_branch = t () => (float[3] r) { r = local.Scaled <factor: float = @factor> (once) },
            else_branch = e () => (float[3] r) { r = Identity (once) }>
    }"""


def test_functions_take_attributes_defaults_and_call_each_other() -> None:
    found = run_on_template(parse(FUNCTIONS), [np.array([1, 2, 4], np.float32)])
    expected = [np.array([1, 2, 4], np.float32) * factor for factor in (3.0, 0.5, 25.0)]
    for result, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_a_function_may_leave_out_inputs() -> None:
    model = parse("""
        <ir_version: 9, opset_import: ["": 17, "local": 1]>
        g (float[3] x) => (float[3] y) { y = local.Limit (x) }
        <domain: "local", opset_import: ["": 17]>
        Limit (a, low, high) => (b) { b = Clip (a, low, high) }""")
    (found,) = run_on_template(model, [np.array([-1, 0, 9], np.float32)])
    np.testing.assert_array_equal(found, [-1, 0, 9])


def test_functions_may_not_recurse() -> None:
    model = parse("""
        <ir_version: 9, opset_import: ["": 17, "local": 1]>
        g (float[3] x) => (float[3] y) { y = local.A (x) }
        <domain: "local", opset_import: ["": 17, "local": 1]>
        A (a) => (b) { b = local.B (a) }
        <domain: "local", opset_import: ["": 17, "local": 1]>
        B (a) => (b) { b = local.A (a) }""")
    assert "calls itself" in refusals(model)[0]


def test_functions_do_not_nest_without_end() -> None:
    model = parse(FUNCTIONS)
    del model.functions[:]
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("F0", ["x"], ["y"], domain="local"))
    del model.graph.output[1:]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for level in range(3000):
        inner = helper.make_node(f"F{level + 1}", ["a"], ["b"], domain="local")
        model.functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], [inner], opsets))
    last = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(helper.make_function("local", "F3000", ["a"], ["b"], last, opsets))
    assert "deep" in refusals(model)[0]


# -- element types -------------------------------------------------------------------------------------------------


def single(op_type: str, inputs: list[np.ndarray], opset: int = 23, **attributes: Any) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, inputs, strict=True)
        ],
        [onnx.ValueInfoProto(name="y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4", "float4_e2m1fn"])
def test_small_types(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.array([0, 1, 2, 3], np.float32)
    target = helper.np_dtype_to_tensor_dtype(dtype)
    (small,) = run_on_template(single("Cast", [x], to=target), [x])
    assert small.dtype == dtype
    (back,) = run_on_template(single("Cast", [small], to=TensorProto.FLOAT), [small])
    np.testing.assert_array_equal(back, x)


def test_bfloat16_arithmetic() -> None:
    x = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    (found,) = run_on_template(single("Add", [x, x]), [x, x])
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found, x + x)


def test_strings_are_object_arrays_whatever_comes_in() -> None:
    model = single("StringConcat", [np.array(["a"], object)] * 2)
    for left in (np.array(["a", "bc"]), np.array(["a", "bc"], object), np.array([b"a", b"bc"])):
        (found,) = run_on_template(model, [left, np.array(["x", "yz"], object)])
        assert found.dtype == object
        assert found.tolist() == ["ax", "bcyz"]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "dtype", "shape"),
    [
        ("RandomNormal", [], {"shape": [2, 3]}, np.float32, (2, 3)),
        ("RandomUniformLike", [np.zeros((2, 3), np.float32)], {"dtype": TensorProto.DOUBLE}, np.float64, (2, 3)),
        ("Bernoulli", [np.full((2, 3), 0.5, np.float32)], {"dtype": TensorProto.INT32}, np.int32, (2, 3)),
        ("Multinomial", [np.zeros((2, 4), np.float32)], {"sample_size": 50}, np.int32, (2, 50)),
    ],
)
def test_random_operators(
    op_type: str, inputs: list[np.ndarray], attributes: dict[str, Any], dtype: Any, shape: tuple[int, ...]
) -> None:
    (found,) = run_on_template(single(op_type, inputs, **attributes), inputs)
    assert found.dtype == dtype
    assert found.shape == shape


def test_multinomial_draws_by_the_odds() -> None:
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))
    (drawn,) = run_on_template(single("Multinomial", [logits], sample_size=20000, seed=1.0), [logits])
    np.testing.assert_allclose(np.bincount(drawn[0], minlength=3) / 20000, [0.1, 0.6, 0.3], atol=0.02)


def test_maps_inside() -> None:
    nodes = [
        helper.make_node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[5, 7]),
        helper.make_node("CategoryMapper", ["k"], ["s"], domain="ai.onnx.ml", cats_int64s=[1], cats_strings=["one"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2]),
            helper.make_tensor_value_info("k", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("s", TensorProto.STRING, [2]), onnx.ValueInfoProto(name="maps")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    texts, maps = run_on_template(model, [np.array([[1, 2], [3, 4]], np.float32), np.array([1, 2])])
    assert texts.tolist() == ["one", "_Unused"]
    assert maps == [{5: 1.0, 7: 2.0}, {5: 3.0, 7: 4.0}]


# -- old versions --------------------------------------------------------------------------------------------------


def test_consumed_inputs_of_the_first_opsets_are_ignored() -> None:
    x = np.array([-1, 2], np.float32)
    (found,) = run_on_template(single("Relu", [x], opset=1, consumed_inputs=[0]), [x])
    np.testing.assert_array_equal(found, [0, 2])


def test_batch_normalization_of_opset_6_in_training() -> None:
    x = np.random.default_rng(0).random((4, 2, 3)).astype(np.float32)
    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    model = single("BatchNormalization", [x, one, zero, zero, one], opset=6, momentum=0.75)
    model.graph.node[0].output.extend(["mean", "var", "saved_mean", "saved_var"])
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("mean", "saved_var"))
    y, mean, saved_var = run_on_template(model, [x, one, zero, zero, one])
    np.testing.assert_allclose(y.mean(axis=(0, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(mean, 0.25 * x.mean(axis=(0, 2)), rtol=1e-5)
    np.testing.assert_allclose(saved_var, x.var(axis=(0, 2)), rtol=1e-5)


def _array(*shape: int, kind: Any = np.float32) -> np.ndarray:
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return values > 0 if kind is bool else values.astype(kind)


RECURRENT = [_array(4, 3, 2), _array(1, 20, 2), _array(1, 20, 5), _array(1, 40)]


@pytest.mark.parametrize(
    ("op_type", "old", "new"),
    [
        *(
            (
                op_type,
                (1, [x, x[0, :, :, 0]], {"broadcast": 1, "axis": 1}),
                (13, [x, x[0, :, :, 0][:, :, None]], {}),
            )
            for op_type, x in {
                "And": _array(2, 3, 4, 5, kind=bool),
                "Or": _array(2, 3, 4, 5, kind=bool),
                "Xor": _array(2, 3, 4, 5, kind=bool),
                "Equal": _array(2, 3, 4, 5, kind=np.int32),
                "Less": _array(2, 3, 4, 5),
                "Greater": _array(2, 3, 4, 5),
                "Sub": _array(2, 3, 4, 5),
            }.items()
        ),
        ("Cast", (1, [_array(3)], {"to": "INT32"}), (13, [_array(3)], {"to": TensorProto.INT32})),
        ("Cast", (1, [np.array([1, 2])], {"to": "STRING"}), (13, [np.array([1, 2])], {"to": TensorProto.STRING})),
        ("Split", (1, [_array(6)], {"split": [2, 4]}), (2, [_array(6)], {"split": [2, 4]})),
        ("Split", (1, [_array(6), np.array([6], np.float32)], {}), (2, [_array(6)], {})),
        (
            "Tile",
            (1, [_array(2, 3), np.array(2, np.float32), np.array(1, np.float32)], {}),
            (6, [_array(2, 3), np.array([1, 2])], {}),
        ),
        ("Pad", (1, [_array(3)], {"paddings": [1, 2], "value": 5.0}), (2, [_array(3)], {"pads": [1, 2], "value": 5.0})),
        ("GlobalLpPool", (1, [_array(1, 2, 3)], {"p": 3.0}), (2, [_array(1, 2, 3)], {"p": 3})),
        (
            "LpPool",
            (1, [_array(1, 2, 3)], {"p": 3.0, "kernel_shape": [2]}),
            (2, [_array(1, 2, 3)], {"p": 3, "kernel_shape": [2]}),
        ),
        (
            "RNN",
            (1, [RECURRENT[0], *(array[:, :5] for array in RECURRENT[1:3]), RECURRENT[3][:, :10]], {"hidden_size": 5}),
            (14, [RECURRENT[0], *(array[:, :5] for array in RECURRENT[1:3]), RECURRENT[3][:, :10]], {"hidden_size": 5}),
        ),
        (
            "GRU",
            (3, [RECURRENT[0], *(array[:, :15] for array in RECURRENT[1:3]), RECURRENT[3][:, :30]], {"hidden_size": 5}),
            (
                14,
                [RECURRENT[0], *(array[:, :15] for array in RECURRENT[1:3]), RECURRENT[3][:, :30]],
                {"hidden_size": 5},
            ),
        ),
        (
            "LSTM",
            (1, RECURRENT, {"hidden_size": 5, "output_sequence": 1}),
            (14, RECURRENT, {"hidden_size": 5}),
        ),
    ],
)
def test_first_versions_agree_with_later_ones(
    op_type: str,
    old: tuple[int, list[np.ndarray], dict[str, Any]],
    new: tuple[int, list[np.ndarray], dict[str, Any]],
) -> None:
    """What no other runtime knows any more is judged by the later version of the same operator."""
    results = []
    for opset, inputs, attributes in (old, new):
        model = single(op_type, inputs, opset=opset, **attributes)
        if op_type == "Split" and "split" in attributes:
            model.graph.node[0].output.append("rest")
            model.graph.output.append(onnx.ValueInfoProto(name="rest"))
        results.append(run_on_template(model, inputs))
    for first, later in zip(*results, strict=True):
        assert difference(first, later, 1e-6, 1e-6) is None


def test_optionals() -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2] x) => (float[2] y, bool full, bool hollow)
        {
            some = Optional(x)
            y = OptionalGetElement(some)
            full = OptionalHasElement(some)
            hollow = OptionalHasElement()
        }""")
    x = np.array([1, 2], np.float32)
    y, full, hollow = run_on_template(model, [x])
    np.testing.assert_array_equal(y, x)
    assert (bool(full), bool(hollow)) == (True, False)


@pytest.mark.parametrize("is_sequence", [False, True])
def test_identity_of_an_optional(is_sequence: bool) -> None:
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [3])
    if is_sequence:
        inner = helper.make_sequence_type_proto(inner)
    ports = [helper.make_value_info(name, helper.make_optional_type_proto(inner)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "graph", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    compiled = hetero.compile(model, "TEMPLATE")
    assert compiled({"x": None})[0] is None
    x = np.ones(3, np.float32)
    given = [x, x] if is_sequence else x
    np.testing.assert_array_equal(compiled({"x": given})[0], given)


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "opset", "reason"),
    [
        (helper.make_node("Reluu", ["x"], ["y"]), 17, "ai.onnx has no operator Reluu (did you mean Relu?)"),
        (helper.make_node("Gelu", ["x"], ["y"]), 17, "Gelu exists since opset 20; the model imports opset 17"),
        (helper.make_node("Upsample", ["x", "x"], ["y"]), 10, "Upsample is deprecated since opset 10"),
        (helper.make_node("Relu", ["x", "x"], ["y"]), 17, "Relu of opset 17 with 2 inputs; expected 1"),
        (helper.make_node("Elu", ["x"], ["y"], alfa=1.0), 17, "does not have (did you mean alpha?)"),
        (helper.make_node("Cast", ["x"], ["y"]), 17, "without its attribute to"),
        (helper.make_node("Thing", ["x"], ["y"], domain="com.example"), 17, "domain 'com.example'"),
        (
            helper.make_node("Gradient", ["x"], ["y"], domain="ai.onnx.preview.training", xs=["x"], y="y"),
            17,
            "Gradient",
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)
def test_reasons(node: onnx.NodeProto, opset: int, reason: str) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["in"], ["x"], name="fine"), node],
        "g",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.example", 1)]
    opsets.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    found = refusals(model)
    assert list(found) == [1]
    assert reason in found[1]
    with pytest.raises(UnsupportedModel, match=r"TEMPLATE cannot compile 'g': node 'y'") as caught:
        create_plugin().compile_model(read_model(model), {})
    assert list(caught.value.unsupported) == ["y"]


def test_a_refusal_inside_a_nested_graph_names_the_inner_node() -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17, "com.example": 1]>
        g (bool c, float[3] x) => (float[3] y)
        {
            y = If(c) <
                then_branch = t () => (float[3] r) { q = com.example.Thing(x)  r = Neg(q) },
                else_branch = e () => (float[3] r) { r = Neg(x) }>
        }""")
    assert refusals(model)[0].startswith("its inner node 'q': Thing: onnx does not know domain 'com.example'")


def test_a_broken_loop_is_refused() -> None:
    model = loop("n", "c")
    del model.graph.node[0].input[2]
    assert "does not match the node's 2 inputs" in refusals(model)[0]


# -- running -------------------------------------------------------------------------------------------------------


def test_a_failing_node_is_named_with_what_it_got() -> None:
    x = np.zeros((2, 3), np.float32)
    model = single("Add", [x, x])
    model.graph.input[1].type.tensor_type.ClearField("shape")
    model.graph.node[0].name = "sum"
    compiled = create_plugin().compile_model(read_model(model), {})
    message = r"TEMPLATE: inference failed: node 'sum' \(Add\) on inputs float32\[2, 3\], float32\[4\]"
    with pytest.raises(InferenceError, match=message) as caught:
        compiled({"x0": x, "x1": np.zeros(4, np.float32)})
    assert caught.value.__cause__ is not None
    assert compiled({"x0": x, "x1": x})["y"].shape == (2, 3)


def test_a_failing_inner_node_is_named() -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (int64 n, float[2] x, int64[k] shape) => (float[2] y)
        {
            y = Loop(n, , x) <body = b (int64 i, bool go, float[2] carried) => (bool more, float[2] next)
                { more = Identity(go)  next = Reshape(carried, shape) }>
        }""")
    with pytest.raises(InferenceError, match=r"node 'next' \(Reshape\)"):
        run_on_template(model, [np.array(1), np.zeros(2, np.float32), np.array([7])])


def test_counters_have_a_row_per_node() -> None:
    model = read_model(loop("n", "c"))
    request = create_plugin().compile_model(model, {"PERF_COUNT": True}).create_infer_request()
    feeds = {"n": np.array(3), "c": np.array(True), "x": np.zeros((2, 2), np.float32)}
    request.infer(feeds)
    (row,) = request.profiling_info
    assert (row.node, row.layer_type, row.status, row.exec_type) == (model.key_of(0), "Loop", "EXECUTED", "reference")
    assert row.real_us > 0


def test_constants_cannot_be_written_and_are_not_copied() -> None:
    weights = np.arange(3, dtype=np.float32)
    model = single("Identity", [weights])
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    model.graph.output.append(onnx.ValueInfoProto(name="w"))
    runner = create_plugin().compile_model(read_model(model), {}).create_runner()
    first, second = (runner.run([weights])[1] for _ in range(2))
    assert not first.flags.writeable
    assert np.shares_memory(first, second)


def test_threads_share_a_compiled_loop() -> None:
    model = read_model(loop("n", "c"))
    compiled = create_plugin().compile_model(model, {})
    failures: list[str] = []

    def work(seed: int) -> None:
        x = np.full((2, 2), seed / 8 - 3, np.float32)
        feeds = {"n": np.array(seed), "c": np.array(True), "x": x}
        wanted = compiled(feeds)["last"]
        for _ in range(20):
            if not np.array_equal(compiled(feeds)["last"], wanted):
                failures.append(f"seed {seed}")

    in_threads(work, range(8))
    assert not failures


def test_external_data_of_a_nested_graph(tmp_path: Path) -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[3] x) => (float[3] y)
        {
            y = If(c) <
                then_branch = t () => (float[3] r) <float[3] w = {1, 2, 3}> { r = Mul(x, w) },
                else_branch = e () => (float[3] r) { r = Neg(x) }>
        }""")
    branch = next(a.g for a in model.graph.node[0].attribute if a.name == "then_branch")
    (tensor,) = branch.initializer
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3]))
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "8", "length": "12"}.items():
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "weights.bin").write_bytes(bytes(8) + values.tobytes())
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    compiled = create_plugin().compile_model(read_model(path), {})
    found = compiled({"c": np.array(True), "x": np.ones(3, np.float32)})["y"]
    np.testing.assert_array_equal(found, [1, 2, 3])


def test_importing_the_device_does_not_import_onnx() -> None:
    code = "import sys, hetero.devices.template, hetero.devices.profile; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_functions_that_double_are_refused() -> None:
    """26 functions, each of which calls the next twice: small to read, 2**26 nodes to run."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("l", 1)]
    functions = []
    for i in range(26):
        callee, domain = (f"f{i + 1}", "l") if i < 25 else ("Relu", "")
        body = [
            helper.make_node(callee, ["a"], ["b"], domain=domain),
            helper.make_node(callee, ["b"], ["c"], domain=domain),
        ]
        functions.append(helper.make_function("l", f"f{i}", ["a"], ["c"], body, opsets))
    value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="l")], "bomb", value[:1], value[1:])
    model = read_model(helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8))
    support = create_plugin().query_model(model, {})
    assert "more than 1,000,000 nodes" in support.reasons[0]


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("shapes", [[(), (), ()], [(1,), (3, 2), (2,)], [(2, 1), (2,)]])
def test_operators_of_many_operands(op: str, shapes: list[tuple[int, ...]]) -> None:
    """Results without dimensions are arrays too, and the first operand broadcasts as well as the others."""
    rng = np.random.default_rng(1)
    feeds = {f"x{i}": np.array(rng.random(shape), np.float32) for i, shape in enumerate(shapes)}
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, a.shape) for name, a in feeds.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, list(feeds), ["y"])], "many", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = create_plugin().compile_model(read_model(model), {})(feeds)["y"]
    expected = onnxruntime_session(model).run(None, feeds)[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("shapes", [((30, 1), (1, 1)), ((3, 4), (4, 1)), ((4,), (4, 2)), ((2, 4), (4,)), ((4,), (4,))])
def test_products_keep_nan_times_zero(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    feeds = {"a": np.full(shapes[0], np.nan, np.float32), "b": np.zeros(shapes[1], np.float32)}
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, a.shape) for name, a in feeds.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "product", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = create_plugin().compile_model(read_model(model), {})(feeds)["y"]
    assert found.shape == np.matmul(feeds["a"], feeds["b"]).shape
    assert np.isnan(found).all()


def test_products_of_nan_do_not_broadcast() -> None:
    inputs = [helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, [f"{x}0", f"{x}1"]) for x in "ab"]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "product", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = create_plugin().compile_model(read_model(model), {})
    with pytest.raises(InferenceError, match="MatMul"):
        compiled({"a": np.full((1, 25), np.nan, np.float32), "b": np.ones((1, 1), np.float32)})


# -- parameters that contradict an operator's definition ---------------------------------------------------------------

BYTES, SIGNED = np.ones((3, 4), np.uint8), np.ones((4, 5), np.int8)
ONE, ZERO = np.float32(0.5), np.uint8(0)
TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "n_targets": 1,
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}
NBITS = {"K": 32, "N": 2, "bits": 4, "block_size": 32}
ROWS = np.ones((3, 4), np.float32)
MASK = np.ones((2, 3), np.int32)
GROUPED = {
    "x": ROWS[None], "k": ROWS[None, :, :2], "v": ROWS[None, :, :2], "pk": None, "pv": None, "ends": np.int32([2]),
    "total": np.int32(3),
}  # fmt: skip
GROUPS = {"num_heads": 2, "kv_num_heads": 1}
MAPS = ("ai.onnx.ml", "ZipMap", {"x": ROWS[:, :2]})
CONTRADICTIONS: dict[str, tuple[tuple[str, str, dict[str, Any]], dict[str, Any], str]] = {
    "scale of 0": (("", "QuantizeLinear", {"x": ROWS, "s": np.float32(0), "z": ZERO}), {}, "y_scale = 0.0"),
    "scale of NaN": (("", "DequantizeLinear", {"x": BYTES, "s": np.float32(np.nan), "z": ZERO}), {}, "x_scale = nan"),
    "negative scale": (
        ("com.microsoft", "QLinearSigmoid", {"x": BYTES, "xs": -ONE, "xz": ZERO, "ys": ONE, "yz": ZERO}),
        {},
        "X_scale = -0.5",
    ),
    "zero point of another type": (
        ("", "MatMulInteger", {"x": BYTES, "b": SIGNED, "az": np.int8(0), "bz": np.int8(0)}),
        {},
        "a_zero_point of type int8",
    ),
    "packed weights too short": (
        ("com.microsoft", "MatMulNBits", {"x": np.ones((1, 32), np.float32), "b": np.ones((2, 1, 15), np.uint8),
                                          "s": np.ones(2, np.float32)}),
        NBITS,
        "input B of shape",
    ),
    "block size": (
        ("com.microsoft", "MatMulNBits", {"x": np.ones((1, 32), np.float32), "b": np.ones((2, 1, 16), np.uint8),
                                          "s": np.ones(2, np.float32)}),
        NBITS | {"block_size": 24},
        "block_size = 24",
    ),
    "missing child": (
        ("ai.onnx.ml", "TreeEnsembleRegressor", {"x": ROWS}), TREE | {"nodes_truenodeids": [7, 0, 0]}, "the child 7"
    ),
    "cycle": (
        ("ai.onnx.ml", "TreeEnsembleRegressor", {"x": ROWS}),
        TREE | {"nodes_truenodeids": [0, 0, 0]},
        "its own descendant",
    ),
    "class counts": (MAPS, {"classlabels_int64s": [1, 2, 3]}, "2 columns with 3 class labels"),
    "not UTF-8": (MAPS, {"classlabels_strings": [b"\xff", b"b"]}, "attribute classlabels_strings has bytes"),
}  # fmt: skip


KEYS = {"keys_int64s": [1, 2], "values_int64s": [3, 4]}
NUMBERS = np.array([1, 2])
WORDS = np.array(["a", "b"], object)
GRAMS = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0],
         "ngram_indexes": [0, 1], "pool_int64s": [1, 2]}  # fmt: skip
TOKENS = {"mark": 0, "mincharnum": 1, "pad_value": "", "separators": [" "]}
BOTH_KINDS = {"imputed_value_floats": [1.0], "imputed_value_int64s": [1]}


def ml(op: str, x: np.ndarray, attributes: dict[str, Any], reason: str) -> tuple[Any, dict[str, Any], str]:
    return ("ai.onnx.ml", op, {"x": x}), attributes, reason


def grams(reason: str, **attributes: Any) -> tuple[Any, dict[str, Any], str]:
    return ("", "TfIdfVectorizer", {"x": NUMBERS}), GRAMS | attributes, reason


def tokenizer(reason: str, **attributes: Any) -> tuple[Any, dict[str, Any], str]:
    return ("com.microsoft", "Tokenizer", {"x": WORDS}), TOKENS | attributes, reason


CONTRADICTIONS |= {
    "keys and values": ml("LabelEncoder", NUMBERS, KEYS | {"values_int64s": [3]}, "2 keys and 1 values"),
    "a key twice": ml("LabelEncoder", NUMBERS, KEYS | {"keys_int64s": [1, 1]}, "a key that is given twice: 1"),
    "two kinds of keys": ml("LabelEncoder", NUMBERS, KEYS | {"keys_floats": [1.0, 2.0]}, "keys, found 2"),
    "keys of another type": ml("LabelEncoder", WORDS, KEYS, "LabelEncoder of object with keys_int64s of int64"),
    "no categories": ml("OneHotEncoder", NUMBERS, {}, "cats_int64s or cats_strings"),
    "two kinds of categories": ml("OneHotEncoder", NUMBERS, {"cats_int64s": [1], "cats_strings": ["a"]}, "cats_int64s"),
    "a category twice": ml("OneHotEncoder", NUMBERS, {"cats_int64s": [1, 1]}, "cats_int64s has 1 twice"),
    "categories and numbers": ml("CategoryMapper", WORDS, {"cats_strings": ["a"]}, "cats_strings has 1 entries"),
    "ZipMap of two kinds": ml(
        "ZipMap", ROWS[:, :1], {"classlabels_int64s": [1], "classlabels_strings": ["a"]}, "classlabels_strings"
    ),
    "column -1": (("ai.onnx.ml", "ArrayFeatureExtractor", {"x": ROWS, "at": np.array([-1])}), {}, "column -1"),
    "no columns": (("ai.onnx.ml", "ArrayFeatureExtractor", {"x": ROWS, "at": NUMBERS[:0]}), {}, "no columns"),
    "negative width": ml("FeatureVectorizer", ROWS, {"inputdimensions": [-1]}, "inputdimensions = [-1]"),
    "Imputer of two kinds": ml("Imputer", ROWS, BOTH_KINDS, "either imputed_value_floats or"),
    "Imputer of another type": ml("Imputer", ROWS, {"imputed_value_int64s": [1]}, "float32 with imputed_value_int64s"),
    "norm": ml("Normalizer", ROWS, {"norm": "BAD"}, "norm = b'BAD'"),
    "post_transform": ml(
        "LinearRegressor", ROWS, {"coefficients": [1.0] * 4, "post_transform": "BAD"}, "post_transform = b'BAD'"
    ),
    "rank": ml("Normalizer", ROWS[None], {"norm": "L2"}, "rank 3; expected 1 or 2"),
    "case": (("", "StringNormalizer", {"x": WORDS}), {"case_change_action": "BAD"}, "case_change_action = b'BAD'"),
    "locale": (("", "StringNormalizer", {"x": WORDS}), {"locale": b"\xff"}, "attribute locale has bytes"),
    "strings in rows": (("", "StringNormalizer", {"x": WORDS.reshape(2, 1)}), {}, "shape [2, 1]"),
    "min_gram_length": grams("min_gram_length 0", min_gram_length=0),
    "max_gram_length": grams("max_gram_length 1099511627776", max_gram_length=1 << 40),
    "max_skip_count": grams("max_skip_count is -1", max_skip_count=-1),
    "ngram_counts": grams("ngram_counts is [0, -1]", ngram_counts=[0, -1]),
    "ngram_indexes": grams("ngram_indexes has 3 entries; expected 2", ngram_indexes=[0, 1, 2]),
    "weights": grams("weights has 1 entries; expected 2", weights=[1.0]),
    "mode": grams("attribute mode is 'BAD'", mode="BAD"),
    "an n-gram twice": grams("an n-gram twice", pool_int64s=[1, 1]),
    "epsilon": (
        ("com.microsoft", "SkipLayerNormalization", {"x": ROWS, "skip": ROWS, "g": ROWS[0]}),
        {"epsilon": -1.0},
        "epsilon = -1.0",
    ),
    "skip": (
        ("com.microsoft", "SkipLayerNormalization", {"x": ROWS, "skip": ROWS[:2], "g": ROWS[0]}),
        {},
        "shapes that do not broadcast: [3, 4], [2, 4]",
    ),
    "gamma": (
        ("com.microsoft", "SkipLayerNormalization", {"x": ROWS, "skip": ROWS, "g": ROWS[0, :3]}),
        {},
        "gamma of shape [3]; expected 4 elements",
    ),
    "bias": (("com.microsoft", "BiasGelu", {"x": ROWS, "b": ROWS}), {}, "bias of shape [3, 4]"),
    "rows of B": (("", "MatMulInteger", {"x": BYTES, "b": SIGNED[:3]}), {}, "B of shape [3, 5]; A has 4 columns"),
    "axis": (("", "SimplifiedLayerNormalization", {"x": ROWS, "s": ROWS[0]}), {"axis": 2}, "axis = 2"),
    "axis of QLinearSoftmax": (
        ("com.microsoft", "QLinearSoftmax", {"x": BYTES, "xs": ONE, "xz": ZERO, "ys": ONE, "yz": ZERO}),
        {"opset": 13, "axis": 2},
        "axis = 2 of an input of rank 2",
    ),
    "pads": (
        ("", "ConvInteger", {"x": BYTES.reshape(1, 1, 3, 4), "w": SIGNED[:2, :2].reshape(1, 1, 2, 2)}),
        {"pads": [1, 1, 1]},
        "3 pads; expected 4",
    ),
    "zero points of rows": (
        ("", "MatMulInteger", {"x": BYTES, "b": SIGNED, "az": np.uint8([0, 0])}),
        {},
        "a_zero_point of shape [2]; expected 1 or 3 elements",
    ),
    "window": (
        ("", "ConvInteger", {"x": BYTES.reshape(1, 1, 3, 4), "w": SIGNED.reshape(1, 1, 4, 5)}),
        {"pads": [1, 0, 0, 0]},
        "a window of 5 along spatial axis 1; the padded x has 4",
    ),
    "dilated window": (
        ("", "ConvInteger", {"x": BYTES.reshape(1, 1, 3, 4), "w": SIGNED[:2, :2].reshape(1, 1, 2, 2)}),
        {"dilations": [3, 1]},
        "a window of 4 along spatial axis 0; the padded x has 3",
    ),
    "pads out of range": (
        ("", "ConvInteger", {"x": BYTES.reshape(1, 1, 3, 4), "w": SIGNED[:2, :2].reshape(1, 1, 2, 2)}),
        {"pads": [1 << 40, 0, 0, 0]},
        "expected at most",
    ),
    "activation": (
        ("com.microsoft", "FusedConv", {"x": ROWS[None, None], "w": ROWS[None, None]}),
        {"activation": "Swishy"},
        "activation = b'Swishy'; expected Relu",
    ),
    "activation_params": (
        ("com.microsoft", "FusedConv", {"x": ROWS[None, None], "w": ROWS[None, None]}),
        {"activation": "Clip", "activation_params": [1.0]},
        "1 activation_params for b'Clip'; expected 2",
    ),
    "a flag": (("com.microsoft", "FusedMatMul", {"x": ROWS, "b": ROWS[:, :3]}), {"transA": 7}, "transA = 7"),
    "types": (
        ("com.microsoft", "BiasGelu", {"x": ROWS, "b": ROWS[0].astype(np.float64)}),
        {},
        "inputs of types float32 and float64",
    ),
    "opset of QLinearSoftmax": (
        ("com.microsoft", "QLinearSoftmax", {"x": BYTES, "xs": ONE, "xz": ZERO, "ys": ONE, "yz": ZERO}),
        {"opset": 0},
        "opset = 0",
    ),
    "mask": (
        ("com.microsoft", "Attention", {"x": ROWS[None], "w": np.ones((4, 12), np.float32), "b": None, "m": MASK}),
        {"num_heads": 2},
        "mask_index of shape [2, 3]; expected [1, 3]",
    ),
    "floats for bytes": (
        ("com.microsoft", "QLinearSigmoid", {"x": ROWS, "xs": ONE, "xz": ZERO, "ys": ONE, "yz": ZERO}),
        {},
        "input 0 of type float32; expected int8, uint8",
    ),
    "segment_ids": (
        (
            "com.microsoft",
            "EmbedLayerNormalization",
            {"x": MASK, "g": MASK[:1], "w": ROWS, "p": ROWS, "s": ROWS, "gamma": ROWS[0], "beta": ROWS[0]},
        ),
        {},
        "segment_ids of shape [1, 3]; expected [2, 3]",
    ),
    "mask of embeddings": (
        (
            "com.microsoft",
            "EmbedLayerNormalization",
            {"x": MASK, "g": None, "w": ROWS, "p": ROWS, "s": None, "gamma": ROWS[0], "beta": ROWS[0], "m": MASK[:1]},
        ),
        {},
        "mask of shape [1, 3]; expected [2, 3]",
    ),
    "sum of other shapes": (
        (
            "com.microsoft",
            "QLinearAdd",
            {"x": BYTES, "xs": ONE, "xz": None, "b": BYTES[:2], "bs": ONE, "bz": None, "ys": ONE},
        ),
        {},
        "shapes that do not broadcast: [3, 4], [2, 4]",
    ),
    "choice of other shapes": (
        (
            "com.microsoft",
            "QLinearWhere",
            {
                "x": BYTES > 1,
                "a": BYTES,
                "as": ONE,
                "az": ZERO,
                "b": BYTES[:, :3],
                "bs": ONE,
                "bz": ZERO,
                "ys": ONE,
                "yz": ZERO,
            },
        ),
        {},
        "shapes that do not broadcast: [3, 4], [3, 4], [3, 3]",
    ),
    "parts of other shapes": (
        (
            "com.microsoft",
            "QLinearConcat",
            {"ys": ONE, "yz": ZERO, "x": BYTES, "xs": ONE, "xz": ZERO, "b": BYTES[:, :3], "bs": ONE, "bz": ZERO},
        ),
        {"axis": 0},
        "along axis 0 of shapes [3, 4], [3, 3]",
    ),
    "parts of other ranks": (
        (
            "com.microsoft",
            "QLinearConcat",
            {"ys": ONE, "yz": ZERO, "x": BYTES, "xs": ONE, "xz": ZERO, "b": BYTES[None], "bs": ONE, "bz": ZERO},
        ),
        {"axis": 0},
        "along axis 0 of shapes [3, 4], [1, 3, 4]",
    ),
    "no heads": (("com.microsoft", "MultiHeadAttention", {"x": ROWS[None]}), {"num_heads": 0}, "num_heads = 0"),
    "bias of heads": (
        ("com.microsoft", "MultiHeadAttention", {"x": ROWS[None], "k": ROWS[None], "v": ROWS[None], "b": ROWS[0]}),
        {"num_heads": 2},
        "bias of shape [4]; expected 12 elements",
    ),
    "keys of other columns": (
        ("com.microsoft", "MultiHeadAttention", {"x": ROWS[None], "k": ROWS[None, :, :2], "v": ROWS[None]}),
        {"num_heads": 2},
        "key of shape [1, 3, 2]; expected [1, keys, 4]",
    ),
    "positions": (
        (
            "com.microsoft",
            "RotaryEmbedding",
            {"x": ROWS[None], "p": np.zeros((1, 2), np.int64), "c": ROWS[:, :2], "s": ROWS[:, :2]},
        ),
        {},
        "position_ids of shape [1, 2]; expected [1, 3]",
    ),
    "groups of heads": (("com.microsoft", "GroupQueryAttention", GROUPED), GROUPS | {"kv_num_heads": 3}, "multiple"),
    "past of groups": (
        (
            "com.microsoft",
            "GroupQueryAttention",
            GROUPED | {"pk": np.zeros((1, 2, 5, 2), np.float32), "pv": np.zeros((1, 1, 5, 2), np.float32)},
        ),
        GROUPS,
        "past_key of shape [1, 2, 5, 2]; expected [1, 1, past, 2]",
    ),
    "seqlens_k": (
        ("com.microsoft", "GroupQueryAttention", GROUPED | {"ends": np.int32([2, 2])}),
        GROUPS,
        "seqlens_k of shape [2]; expected 1 element",
    ),
    "modes": (
        ("ai.onnx.ml", "TreeEnsembleRegressor", {"x": ROWS}),
        TREE | {"nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAFY"]},
        "nodes_modes has 'LEAFY'",
    ),
    "base_values of two classes": (
        ("ai.onnx.ml", "TreeEnsembleClassifier", {"x": ROWS}),
        {name.replace("target_", "class_"): values for name, values in TREE.items() if name != "n_targets"}
        | {"class_ids": [0, 1], "classlabels_int64s": [3, 4], "base_values": [0.5, 0.5, 0.5]},
        "base_values has 3 entries",
    ),
    "gather_axis": (
        (
            "com.microsoft",
            "GatherBlockQuantized",
            {"d": np.ones((6, 16), np.uint8), "x": NUMBERS, "s": np.ones((6, 1), np.float32)},
        ),
        {"block_size": 32, "gather_axis": 3},
        "gather_axis = 3 of data of rank 2",
    ),
    "kernel_shape": (
        (
            "com.microsoft",
            "QLinearAveragePool",
            {"x": BYTES.reshape(1, 1, 3, 4), "xs": ONE, "xz": ZERO, "ys": ONE, "yz": ZERO},
        ),
        {"kernel_shape": [2]},
        "1 kernel_shape; expected 2",
    ),
    "mincharnum": tokenizer("mincharnum is 0", mincharnum=0),
    "separators": tokenizer("separators", separators=["["]),
    "separators that match nothing": tokenizer("matches nothing", separators=["a*"]),
}


def contradictory(node: tuple[str, str, dict[str, Any]], attributes: dict[str, Any]) -> onnx.ModelProto:
    """One node whose first operand is an input and the others are constants."""
    domain, op, operands = node
    x, names = operands["x"], ["" if array is None else name for name, array in operands.items()]
    results = ["y", "scores"] if op.endswith("Classifier") else ["y"]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, name="node", domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(operands[name]), name) for name in names if name not in ("", "x")],
    )
    opsets = [helper.make_opsetid(*each) for each in (("", 17), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.spread(2)
@pytest.mark.parametrize("device", ["TEMPLATE", "HETERO:CPU,TEMPLATE", "ORT", "HETERO:CPU,ORT", "OPENVINO"])
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_refused_when_compiling(name: str, device: str) -> None:
    if device == "OPENVINO":
        pytest.importorskip("openvino")
    node, attributes, reason = CONTRADICTIONS[name]
    with pytest.raises(UnsupportedModel, match="'node'") as caught:
        hetero.compile(contradictory(node, attributes), device)
    assert "TEMPLATE" not in device or reason in caught.value.unsupported["node"]["TEMPLATE"]


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
def test_a_pattern_that_is_not_utf8(device: str) -> None:
    graph = helper.make_graph(
        [helper.make_node("RegexFullMatch", ["x"], ["y"], name="node", pattern=b"\xff")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(UnsupportedModel, match="'node'.*\n*.*attribute pattern has bytes that are not UTF-8"):
        hetero.compile(model, device)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
@pytest.mark.parametrize(
    ("op", "wrong"),
    [
        ("SkipLayerNormalization", {"skip": np.ones((2, 3, 4), np.float32)}),
        ("SkipLayerNormalization", {"skip": np.ones((1, 4), np.float32)}),
        ("SkipLayerNormalization", {"x": ROWS, "skip": ROWS[:1]}),
        ("EmbedLayerNormalization", {"segments": MASK[:1]}),
        ("EmbedLayerNormalization", {"segments": MASK[:, :1]}),
        ("EmbedLayerNormalization", {"mask": MASK[:1]}),
        ("EmbedLayerNormalization", {"mask": MASK[0]}),
        ("EmbedLayerNormalization", {"mask": MASK[:, :2]}),
    ],
)
def test_contradictions_of_shapes_that_are_not_known_before(op: str, wrong: dict[str, Any], device: str) -> None:
    if op == "SkipLayerNormalization":
        operands = {"x": ROWS[None], "skip": ROWS[None], "g": ROWS[0]}
    else:
        tables = {"words": ROWS, "places": ROWS, "kinds": ROWS, "gamma": ROWS[0], "beta": ROWS[0]}
        operands = {"ids": MASK, "segments": MASK, **tables, "mask": MASK}
    graph = helper.make_graph(
        [helper.make_node(op, list(operands), ["y"], domain="com.microsoft")],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), None)
            for name, x in operands.items()
        ],
        [onnx.ValueInfoProto(name="y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    compiled = hetero.compile(model, device)
    compiled(operands)
    with pytest.raises(InferenceError, match="fit|broadcast"):
        compiled(operands | wrong)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
@pytest.mark.parametrize("name", ["QLinearSigmoid", "Binarizer", "DynamicQuantizeLinear"])
def test_more_outputs_than_the_operator_has(name: str, device: str) -> None:
    operands = {"x": BYTES, "xs": ONE, "xz": ZERO, "ys": ONE, "yz": ZERO} if name == "QLinearSigmoid" else {"x": ROWS}
    domain = {"QLinearSigmoid": "com.microsoft", "Binarizer": "ai.onnx.ml"}.get(name, "")
    model = contradictory((domain, name, operands), {})
    model.graph.node[0].output.extend(["b", "c", "d"])
    model.graph.output.append(onnx.ValueInfoProto(name="d"))
    with pytest.raises(UnsupportedModel, match=r"(?s)'node'.*(4 outputs|outputs, found 4)"):
        hetero.compile(model, device)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU"])
@pytest.mark.parametrize("name", ["QuantizeLinear", "Binarizer"])
def test_a_required_input_that_is_left_out(name: str, device: str) -> None:
    operands = {"x": ROWS, "s": None, "z": ZERO} if name == "QuantizeLinear" else {"x": ROWS}
    model = contradictory(("ai.onnx.ml" if name == "Binarizer" else "", name, operands), {})
    if name != "QuantizeLinear":
        model.graph.node[0].input[0] = ""
    with pytest.raises(UnsupportedModel, match="(?s)'node'.*without its input"):
        hetero.compile(model, device)


def test_a_classifier_without_labels_is_refused() -> None:
    model = contradictory(("ai.onnx.ml", "LinearClassifier", {"x": ROWS}), {"coefficients": [1.0] * 8})
    for device in ("TEMPLATE", "CPU"):
        with pytest.raises(UnsupportedModel, match="neither classlabels_strings nor classlabels_ints"):
            hetero.compile(model, device)


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0), (), (2, 1, 1)])
def test_one_hot_encoder_of_any_shape(shape: tuple[int, ...]) -> None:
    model = contradictory(("ai.onnx.ml", "OneHotEncoder", {"x": np.ones(shape, np.int64)}), {"cats_int64s": [3, 1]})
    for device in ("TEMPLATE", "CPU"):
        (y,) = hetero.compile(model, device)({"x": np.ones(shape, np.int64)}).values()
        np.testing.assert_array_equal(y, np.broadcast_to(np.float32([0, 1]), (*shape, 2)))


def test_one_hot_encoder_of_unknown_categories() -> None:
    model = contradictory(("ai.onnx.ml", "OneHotEncoder", {"x": NUMBERS}), {"cats_int64s": [1], "zeros": 0})
    for device in ("TEMPLATE", "CPU"):
        with pytest.raises(InferenceError, match="2.* is not a category"):
            hetero.compile(model, device)({"x": NUMBERS})


@pytest.mark.parametrize("columns", [[-1], [4], []])
def test_columns_that_do_not_exist(columns: list[int]) -> None:
    model = contradictory(("ai.onnx.ml", "ArrayFeatureExtractor", {"x": ROWS, "at": NUMBERS}), {})
    model.graph.initializer.pop()
    model.graph.input.append(helper.make_tensor_value_info("at", onnx.TensorProto.INT64, ["n"]))
    for device in ("TEMPLATE", "CPU"):
        with pytest.raises(InferenceError, match="ArrayFeatureExtractor"):
            hetero.compile(model, device)({"x": ROWS, "at": np.array(columns, np.int64)})


def test_a_vector_of_features_is_one_row() -> None:
    model = contradictory(("ai.onnx.ml", "FeatureVectorizer", {"x": ROWS[0]}), {"inputdimensions": [4]})
    for device in ("TEMPLATE", "CPU"):
        (y,) = hetero.compile(model, device)({"x": ROWS[0]}).values()
        np.testing.assert_array_equal(y, ROWS[:1])


def test_a_custom_operator_may_replace_a_checked_one() -> None:
    node, _, _ = CONTRADICTIONS["negative scale"]
    core = hetero.Core()
    core.add_extension(hetero.CustomOp("QLinearSigmoid", "com.microsoft", function=lambda x, *_: x), "TEMPLATE")
    (y,) = core.compile_model(contradictory(node, {}), "TEMPLATE")({"x": BYTES}).values()
    np.testing.assert_array_equal(y, BYTES)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU", "HETERO:CPU,TEMPLATE", "HETERO:CPU,ORT"])
@pytest.mark.parametrize("move", ["Identity(s)", "Squeeze(s)", "Reshape(s, none)"])
def test_scales_that_are_moved_constants(move: str, device: str) -> None:
    model = parse(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3] x) => (uint8[3] y) <float[1] s = {{-1.0}}, int64[0] none = {{}}>
        {{ scale = {move}  y = QuantizeLinear(x, scale) }}""")
    with pytest.raises(UnsupportedModel, match="y_scale = -1.0"):
        hetero.compile(model, device)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU", "ORT", "HETERO:CPU,TEMPLATE", "HETERO:CPU,ORT"])
def test_contradictions_in_bodies(device: str) -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3] x, bool c) => (uint8[3] y)
        {
            y = If(c) <
                then_branch = t () => (uint8[3] a) <float s = {-1.0}> { a = QuantizeLinear(x, s) },
                else_branch = e () => (uint8[3] b) { b = Cast<to = 2>(x) }
            >
        }""")
    with pytest.raises(UnsupportedModel, match="then_branch.*QuantizeLinear.*y_scale = -1.0"):
        hetero.compile(model, device)


def test_scales_behind_the_most_moves_that_are_followed() -> None:
    names = ["s", *(f"s{number}" for number in range(16))]
    moves = "  ".join(f"{to} = Identity({of})" for of, to in itertools.pairwise(names))
    model = parse(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3] x) => (uint8[3] y) <float[1] s = {{-1.0}}>
        {{ {moves}  y = QuantizeLinear(x, {names[-1]}) }}""")
    with pytest.raises(UnsupportedModel, match="y_scale = -1.0"):
        hetero.compile(model, "TEMPLATE")


@pytest.mark.parametrize("device", ["TEMPLATE", "ORT"])
@pytest.mark.parametrize("inner", ["Quantized", "Nested"])
def test_contradictions_in_functions(inner: str, device: str) -> None:
    model = parse(f"""
        <ir_version: 9, opset_import: ["": 18, "local": 1]>
        g (float[3] x, float one) => (uint8[3] a, uint8[3] y)
        <float zero = {{0.0}}>
        {{
            [first] a = local.Scaled(x, one)
            b = Relu(x)
            [second] y = local.{inner}(b)
        }}
        <opset_import: ["": 18], domain: "local">
        Scaled (x, s) => (y) {{ y = QuantizeLinear(x, s) }}
        <opset_import: ["": 18], domain: "local">
        Quantized (x) => (y)
        {{
            s = Constant<value = float {{0.0}}>()
            [quantize] y = QuantizeLinear(x, s)
        }}
        <opset_import: ["local": 1], domain: "local">
        Nested (x) => (y) {{ [within] y = local.Quantized(x) }}
        """)
    with pytest.raises(UnsupportedModel) as caught:
        hetero.compile(model, device)
    (key,) = caught.value.unsupported
    assert key == ("second/quantize" if inner == "Quantized" else "second/within/quantize")
    assert "y_scale = 0.0" in caught.value.unsupported[key][device]


def test_only_calls_with_contradictory_operands_are_refused() -> None:
    model = parse("""
        <ir_version: 9, opset_import: ["": 18, "local": 1]>
        g (float[3] x) => (uint8[3] a, uint8[3] b)
        <float zero = {0.0}, float one = {1.0}>
        {
            [bad] a = local.Scaled(x, zero)
            [good] b = local.Scaled(x, one)
        }
        <opset_import: ["": 18], domain: "local">
        Scaled (x, s) => (y) { y = QuantizeLinear(x, s) }
        """)
    support = hetero.Core().query_model(model, "TEMPLATE")
    assert set(support) == {"good"}


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU", "ORT", "OPENVINO"])
@pytest.mark.parametrize("count", [1, 3, 0])
@pytest.mark.parametrize("place", ["graph", "body", "function"])
def test_a_split_into_another_number_of_outputs(place: str, count: int, device: str) -> None:
    """With more outputs than num_outputs, onnxruntime ends the process while it loads the model."""
    if device == "OPENVINO":
        pytest.importorskip("openvino")
    split = f"[split] y, z = Split<axis = 0, num_outputs = {count}>(x)"
    graph = {
        "graph": split,
        "body": f"""y, z = If(c) <
            then_branch = t () => (float[k] y, float[l] z) {{ {split} }},
            else_branch = e () => (float[k] v, float[l] w) {{ v = Relu(x) w = Neg(x) }}
        >""",
        "function": f"""[well] v, w = local.Parts<count = 2>(x)
            [call] y, z = local.Parts<count = {count}>(x)""",
    }[place]
    model = parse(f"""
        <ir_version: 9, opset_import: ["": 18, "local": 1]>
        g (float[4] x, bool c) => (float[k] y, float[l] z) {{ {graph} }}
        <opset_import: ["": 18], domain: "local">
        Parts<count> (x) => (y, z) {{ [split] y, z = Split<axis = 0, num_outputs: int = @count>(x) }}
        """)
    with pytest.raises(UnsupportedModel, match=f"Split with 2 outputs and num_outputs = {count}"):
        hetero.compile(model, device)


@pytest.mark.parametrize("device", ["TEMPLATE", "CPU", "ORT"])
def test_a_function_named_split(device: str) -> None:
    """onnxruntime would end the process, unless the call is inlined."""
    model = parse("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[2] x) => (float[k] y, float[l] z) { y, z = Split<num_outputs = 1>(x) }
        <opset_import: ["": 18], domain: "">
        Split<num_outputs> (x) => (y, z) { y = Relu(x) z = Neg(x) }
        """)
    y, z = hetero.compile(model, device)({"x": np.float32([1, -2])}).values()
    np.testing.assert_array_equal(y, [1, 0])
    np.testing.assert_array_equal(z, [-1, 2])


def test_a_split_with_sizes_ignores_the_number_of_outputs() -> None:
    model = parse("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[4] x) => (float[1] y, float[3] z)
        <int64[2] sizes = {1, 3}>
        { y, z = Split<axis = 0, num_outputs = 1>(x, sizes) }
        """)
    x = np.arange(4, dtype=np.float32)
    for device in ("CPU", "TEMPLATE"):
        y, z = hetero.compile(model, device)({"x": x}).values()
        assert y.tolist() == [0]
        assert z.tolist() == [1, 2, 3]
