"""The CPU's plans: shapes met again, plans cut where shapes depend on data, memory reuse, threads, errors."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetero import Cancelled, Core, InferenceError
from hetero.devices.cpu import runner
from hetero.devices.cpu.plugin import CpuModel, CpuPlugin
from hetero.devices.cpu.runner import MAX_PLANS
from sessions import onnxruntime_session
from single_node import model
from threads import in_threads

OPSET = 17


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[str, list[Any]]],
    outputs: dict[str, str],
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model; inputs: name -> (dtype, dims), outputs: name -> dtype."""

    def number(dtype: str) -> int:
        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, number(dtype), dims) for name, (dtype, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, number(dtype), None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def compiled(proto: onnx.ModelProto, config: dict[str, Any] | None = None) -> CpuModel:
    core = Core()
    result = CpuPlugin().compile_model(core.read_model(proto), config or {})
    assert isinstance(result, CpuModel)
    return result


def assert_as_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], cm: CpuModel) -> None:
    session = onnxruntime_session(proto)
    for found, wanted in zip(cm(feeds).arrays(), session.run(None, feeds), strict=True):
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_every_shape_gets_its_plan_and_is_met_again() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    cm = compiled(model_of([node], {"x": ("float32", ["n"])}, {"y": "float32"}))
    request = cm.create_infer_request()
    for _ in range(2):
        for n in (3, 0, 7, 3, 1):
            x = np.linspace(-1, 1, n, dtype=np.float32)
            np.testing.assert_array_equal(request.infer({"x": x})[0], np.maximum(x, 0))
    plans = len(cm._plans.segments())
    assert plans <= 4
    for n in range(2 * MAX_PLANS):
        assert request.infer({"x": np.full(n, -1, np.float32)})[0].tolist() == [0] * n
    assert len(cm._plans.segments()) == plans, "the plan with a symbol holds for all sizes"


def test_an_input_of_an_undeclared_type_gets_a_plan_for_each_type() -> None:
    proto = model_of([helper.make_node("Add", ["x", "x"], ["y"])], {"x": ("float32", ["n"])}, {"y": "float32"})
    for port in (*proto.graph.input, *proto.graph.output):
        port.type.tensor_type.elem_type = TensorProto.UNDEFINED
    request = compiled(proto).create_infer_request()
    for dtype in ("float32", "int32", "float64", "uint32", "float32"):
        for values in ([1, 2, 3], [1, 2], [1, 2, 3]):
            found = request.infer({"x": np.array(values, dtype)})["y"]
            np.testing.assert_array_equal(found, np.array(values, dtype) * np.array(2, dtype), strict=True)


def test_an_input_of_more_dimensions_than_kernels_support_is_named() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    request = compiled(proto).create_infer_request()
    for _ in range(2):
        with pytest.raises(InferenceError, match="'x' has 9 dimensions; CPU supports at most 8"):
            request.infer({"x": np.ones((1,) * 9, np.float32)})
        assert request.infer({"x": np.full((1,) * 8, -1, np.float32)})[0].shape == (1,) * 8


def test_inputs_of_any_layout() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    request = compiled(model_of([node], {"x": ("float32", [4, 6])}, {"y": "float32"})).create_infer_request()
    base = np.arange(24, dtype=np.float32)
    for x in (
        base.reshape(4, 6),
        base.reshape(6, 4).T,
        np.repeat(base, 2)[::2].reshape(4, 6),
        base.reshape(4, 6)[::-1, ::-1],
        np.broadcast_to(base[:6], (4, 6)),
        base.astype(">f4").reshape(4, 6),
        np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6),  # unaligned
    ):
        before = x.copy()
        np.testing.assert_array_equal(request.infer({"x": x})[0], -x)
        np.testing.assert_array_equal(x, before)


def test_results_are_fresh_and_independent() -> None:
    """Also where an output is an input, a constant, another output, or a reshape of one."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Flatten", ["x"], ["flat"], axis=0),
        helper.make_node("Identity", ["c"], ["constant"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Flatten", ["y"], ["y_flat"], axis=0),
    ]
    names = ["same", "flat", "constant", "y", "y_flat"]
    proto = model_of(nodes, {"x": ("float32", [2, 3])}, dict.fromkeys(names, "float32"), {"c": np.ones(2, np.float32)})
    cm = compiled(proto)
    request = cm.create_infer_request()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_as_onnxruntime(proto, {"x": x}, cm)
    kept = request.infer({"x": x})
    first = [array.copy() for array in kept.arrays()]
    request.infer({"x": x + 10})
    for array, copy in zip(kept.arrays(), first, strict=True):
        np.testing.assert_array_equal(array, copy)
        assert not np.shares_memory(array, x)


def reshape_by_data() -> onnx.ModelProto:
    """y = relu(x) reshaped to the sum of two inputs; then once more, to what the first gave."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Add", ["s", "t"], ["shape"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Shape", ["b"], ["dims"]),
        helper.make_node("Mul", ["dims", "dims"], ["squares"]),
        helper.make_node("Exp", ["b"], ["e"]),
        helper.make_node("ReduceMax", ["e"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["count"], to=TensorProto.INT64),
        helper.make_node("Range", ["zero", "count", "one"], ["r"]),
    ]
    return model_of(
        nodes,
        {"x": ("float32", ["n"]), "s": ("int64", ["r"]), "t": ("int64", ["r"])},
        {"b": "float32", "squares": "int64", "r": "int64", "a": "float32"},
        {"zero": np.array(0), "one": np.array(1)},
    )


def test_plans_are_cut_where_a_shape_depends_on_data() -> None:
    proto = reshape_by_data()
    cm = compiled(proto, {"PERF_COUNT": True})
    x = np.linspace(-3, 3, 12, dtype=np.float32)
    for s, t in (([1, 2], [2, 2]), ([3, 3], [0, 1]), ([10], [2]), ([2, 1, 1], [0, 1, 2]), ([1, 2], [2, 2])):
        assert_as_onnxruntime(proto, {"x": x, "s": np.array(s), "t": np.array(t)}, cm)
    request = cm.create_infer_request()
    request.infer({"x": x, "s": np.array([1, 2]), "t": np.array([2, 2])})
    rows = {row.layer_type: row.status for row in request.profiling_info}
    assert rows["Relu"] == rows["Exp"] == rows["Add"] == "EXECUTED"
    assert rows["Reshape"] == rows["Shape"] == "OPTIMIZED_OUT"


def tile_by_data() -> onnx.ModelProto:
    """z = x repeated l times, y = l + i. l is known once the shape of z is known."""
    nodes = [
        helper.make_node("Tile", ["x", "l"], ["z"]),
        helper.make_node("Add", ["l", "i"], ["y"]),
        helper.make_node("Identity", ["l"], ["same"]),
        helper.make_node("Reshape", ["l", "column"], ["bent"]),
        helper.make_node("Shape", ["z"], ["dims"]),
    ]
    inputs = {"x": ("float32", ["a", "b"]), "l": ("int64", [2]), "i": ("int64", [2])}
    outputs = {"z": "float32", "y": "int64", "same": "int64", "bent": "int64", "dims": "int64"}
    return model_of(nodes, inputs, outputs, {"column": np.array([2, 1])})


def test_the_caller_may_write_what_a_plan_depends_on() -> None:
    """Both the arrays that were given and those that were returned."""
    request = compiled(tile_by_data()).create_infer_request()
    x, i = np.ones((1, 1), np.float32), np.array([0, 1])
    raw = np.zeros(2 * 8 + 1, np.uint8)
    layouts = [
        np.empty(2, np.int64),
        np.empty(4, np.int64)[::2],
        np.empty(2, np.int64)[::-1],
        np.empty(2, ">i8"),
        np.ndarray((2,), np.int64, raw, 1),  # unaligned
    ]
    for number in range(40):
        lengths = layouts[number % len(layouts)]
        wanted = np.array([[2, 3], [1, 4], [3, 2]][number % 3])
        lengths[...] = wanted
        found = request.infer({"x": x, "l": lengths, "i": i})
        assert found["z"].shape == tuple(wanted)
        for name, expected in (("y", wanted + i), ("same", wanted), ("bent", wanted[:, None]), ("dims", wanted)):
            np.testing.assert_array_equal(found[name], expected, f"call {number}, {name}")
        for array in (lengths, *found.values()):
            array[...] = 1


def test_plans_are_kept_by_the_bits_of_what_they_depend_on() -> None:
    nodes = [
        helper.make_node("Range", ["start", "limit", "delta"], ["r"]),
        helper.make_node("Identity", ["start"], ["first"]),
    ]
    scalars = {name: ("float32", []) for name in ("start", "limit", "delta")}
    request = compiled(model_of(nodes, scalars, {"r": "float32", "first": "float32"})).create_infer_request()
    for start in (0.0, -0.0, 0.0, -0.0):
        found = request.infer({"start": np.float32(start), "limit": np.float32(2), "delta": np.float32(1)})
        assert np.signbit(found["first"]) == np.signbit(start)
        assert found["r"].tolist() == [0, 1]


@pytest.mark.parametrize("symbolic", [0, runner.MAX_SYMBOLIC])
def test_sizes_that_follow_from_data_get_plans_of_their_own(symbolic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if plans are for single sizes: what follows the node depends on no other data."""
    monkeypatch.setattr(runner, "MAX_SYMBOLIC", symbolic)
    x = np.arange(8, dtype=np.float32)
    trip = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Gather", ["x", "i"], ["item"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("item", TensorProto.FLOAT, []),
        ],
    )
    nodes = [helper.make_node("Loop", ["n", ""], ["some"], body=trip), helper.make_node("Exp", ["some"], ["y"])]
    compiled = Core().compile_model(model(nodes, {"x": x, "n": np.array(3)}, ["y"], 17), "CPU")
    for count in (3, 5, 1, 3, 8, 5):
        np.testing.assert_allclose(compiled({"x": x, "n": np.array(count)})[0], np.exp(x[:count]), rtol=1e-6)


def test_a_reshape_to_an_input_reads_it_every_time() -> None:
    """The last segment takes x alone, as if it were the whole model: the shape still counts."""
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    proto = model_of(nodes, {"x": ("float32", [6]), "s": ("int64", [2])}, {"z": "float32"})
    request = compiled(proto).create_infer_request()
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [6, 1], [2, 3]):
        assert request.infer({"x": x, "s": np.array(shape)})[0].shape == tuple(shape)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
LOOP = """Loop (n, , x) <body = body (int64 i, bool go, float[c] v) => (bool more, float[d] w)
    { more = Identity (go)  w = Concat <axis = 0> (v, v) }>"""
SEVERAL_SEGMENTS = {
    "a size": ("float[b] y", "s = NonZero (x)  t = Cast <to = 1> (s)  f = Constant <value = int64[1] {-1}> ()"
               "  y = Reshape (t, f)"),
    "outputs that are none of its own": (
        "float[a] y, float[a] z, float[2] k, float[b] again",
        "s = NonZero (x)  t = Cast <to = 1> (s)  f = Constant <value = int64[1] {-1}> ()  again = Reshape (t, f)"
        "  y = Identity (x)  z = Identity (y)  k = Constant <value = float[2] {5, 6}> ()",
    ),
    "an input that decides a shape": ("float[b] y", "f = Constant <value = int64[1] {-1}> ()  m = Reshape (n, f)"
                                      "  y = Tile (x, m)"),
    "a loop that may return its input": ("float[b] y", f"y = {LOOP}"),
    "a loop and more": ("float[b] z", f"y = {LOOP}  z = Neg (y)"),
    "an If of two sizes": (
        "float[b] z",
        "zero = Constant <value = int64 {0}> ()  c = Greater (n, zero)  y = If (c) <"
        "then_branch = t () => (float[d] p) { p = Concat <axis = 0> (x, x) },"
        "else_branch = e () => (float[d] q) { q = Identity (x) }>  z = Identity (y)",
    ),
    "a reshaped result": ("float[1, a] y", "s = Constant <value = int64[2] {1, -1}> ()  r = Neg (x)"
                          "  y = Reshape (r, s)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL_SEGMENTS)
def test_a_run_that_repeats_the_last_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several segments, or of results that are not the outputs themselves: right for any data and sizes, and all
    results are new arrays. The request checks inputs of other types, and is usable after an error."""
    outputs, nodes = SEVERAL_SEGMENTS[name]
    proto = onnx.parser.parse_model(f"{HEAD} g (int64 n, float[a] x) => ({outputs}) {{ {nodes} }}")
    session = onnxruntime_session(proto)
    request = compiled(proto).create_infer_request()
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for n, x in ((2, [1, 0, 3]), (2, [1, 0, 3]), (1, [0, 2, 0]), (0, [4, 5, 6]), (1, [7, 8]), (2, []), (2, [1, 0, 3])):
        feeds = {"n": np.array(n), "x": np.array(x, np.float32)}
        for out in (None, [np.empty_like(value) for value in session.run(None, feeds)], None):
            found = list(request.infer(feeds, out=out))
            for at, (array, wanted) in enumerate(zip(found, session.run(None, feeds), strict=True)):
                assert (array.dtype, array.shape, array.tolist()) == (wanted.dtype, wanted.shape, wanted.tolist())
                assert array.flags.writeable
                assert not any(np.shares_memory(array, other) for other in (*feeds.values(), *found[:at]))
            for array, before in kept:
                np.testing.assert_array_equal(array, before)
            kept += [(array, array.copy()) for array in found]
        with pytest.raises(InferenceError, match="'x'"):
            request.infer({**feeds, "x": np.zeros(3)})
    request.infer(feeds)
    monkeypatch.setattr(request, "_checked", None)  # repeated runs need no checks
    request.infer(feeds)
    request.infer({"n": np.array(2), "x": np.array([0, 9, 8], np.float32)})


def test_a_repeated_run_goes_on_where_a_program_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node in Python runs once in each inference, also if sizes after it change. A known run needs no planning, and a
    request to cancel ends it before its next program."""
    proto = onnx.parser.parse_model(f"""{HEAD} g (int64 n, float[a] x) => (float[b] z, int64[1, c] t) {{
        y = {LOOP}  z = Neg (y)  s = NonZero (z)  t = Add (s, s)
    }}""")
    session = onnxruntime_session(proto)
    own = compiled(proto).create_runner()
    assert isinstance(own, runner.CpuRunner)
    calls, cancels = [], False
    run_nested = runner.run_nested

    def noting(*arguments: Any) -> Any:
        calls.append(1)
        results = run_nested(*arguments)
        if cancels:
            own.cancellation.request()
        return results

    monkeypatch.setattr(runner, "run_nested", noting)
    for n, x in ((2, [1, 0, 3]), (2, [1, 0, 3]), (1, [1, 0]), (1, [0, 2]), (0, []), (3, [1, 2, 0]), (0, [2]), (2, [0])):
        inputs = [np.array(n), np.array(x, np.float32)]
        calls.clear()
        found = own.run(inputs)
        assert len(calls) == 1
        for array, wanted in zip(found, session.run(None, dict(zip("nx", inputs, strict=True))), strict=True):
            assert (array.dtype, array.shape, array.tolist()) == (wanted.dtype, wanted.shape, wanted.tolist())
    own.run(inputs)
    with monkeypatch.context() as patch:
        patch.setattr(own, "_run_segments", None)
        assert own.run_again(inputs) is not None
        cancels = True
        with pytest.raises(Cancelled):
            own.run_again(inputs)
    cancels = False
    own.cancellation.clear()
    assert [array.tolist() for array in own.run(inputs)] == [array.tolist() for array in found]


def test_a_run_that_fails_in_a_later_segment_leaves_the_request_usable() -> None:
    nodes = "s = NonZero (x)  f = Constant <value = int64[1] {-1}> ()  i = Reshape (s, f)  y = Gather (v, i)"
    text = f"{HEAD} g (float[a] x, float[3] v) => (float[b] y) {{ {nodes} }}"
    request = compiled(onnx.parser.parse_model(text)).create_infer_request()
    v = np.array([5, 6, 7], np.float32)
    for x, wanted in (
        ([1, 0], [5]),
        ([0, 1], [6]),
        ([0, 0, 0, 1], None),
        ([1, 1], [5, 6]),
        ([0, 0], []),
        ([1, 0], [5]),
    ):
        feeds = {"x": np.array(x, np.float32), "v": v}
        if wanted is None:
            with pytest.raises(InferenceError, match="index 3"):
                request.infer(feeds)
        else:
            assert request.infer(feeds)["y"].tolist() == wanted


@pytest.mark.parametrize("shape", [[5], [-1, -1], [-2, 6], [2**40, 2**40], [0, 7], [1] * 9])
def test_impossible_shapes_name_the_node_and_leave_the_request_usable(shape: list[int]) -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"], name="bend")
    proto = model_of([node], {"x": ("float32", [6]), "s": ("int64", ["r"])}, {"y": "float32"})
    request = compiled(proto).create_infer_request()
    x = np.zeros(6, np.float32)
    with pytest.raises(InferenceError, match="bend"):
        request.infer({"x": x, "s": np.array(shape)})
    assert request.infer({"x": x, "s": np.array([3, 2])})[0].shape == (3, 2)


def test_an_index_outside_its_axis_names_the_node() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="pick")
    cm = compiled(model_of([node], {"x": ("float32", [3]), "i": ("int64", [1])}, {"y": "float32"}))
    request = cm.create_infer_request()
    x = np.arange(3, dtype=np.float32)
    for index in (3, -4, 2**62):
        with pytest.raises(
            InferenceError, match=rf"'pick' \(Gather\): index {index} is out of bounds for axis 0 with size 3"
        ):
            request.infer({"x": x, "i": np.array([index])})
    assert request.infer({"x": x, "i": np.array([-1])})[0].tolist() == [2]


@given(data=st.data())
def test_memory_is_reused_and_never_too_early(data: st.DataObject) -> None:
    """Random graphs of elementwise nodes and reshapes over a few values, against onnxruntime."""
    n = data.draw(st.integers(1, 25))
    names = ["x", "c"]
    nodes = []
    for i in range(n):
        op = data.draw(st.sampled_from(["Add", "Mul", "Max", "Relu", "Neg", "Transpose", "Flatten", "Identity"]))
        arity = 2 if op in ("Add", "Mul", "Max") else 1
        read = [data.draw(st.sampled_from(names[-6:] + names[:1])) for _ in range(arity)]
        nodes.append(helper.make_node(op, read, [f"v{i}"]))
        names.append(f"v{i}")
    outputs = data.draw(st.lists(st.sampled_from(names[2:]), min_size=1, max_size=3, unique=True))
    c = np.random.default_rng(0).uniform(-1, 1, (4, 4)).astype(np.float32)
    proto = model_of(nodes, {"x": ("float32", ["a", "b"])}, dict.fromkeys(outputs, "float32"), {"c": c})
    x = np.random.default_rng(1).uniform(-1, 1, (4, 4)).astype(np.float32)
    assert_as_onnxruntime(proto, {"x": x}, compiled(proto))


@given(data=st.data())
def test_parts_share_memory_with_the_whole(data: st.DataObject) -> None:
    """Random graphs with slices and concatenations, of each other, of inputs, constants and the same value twice."""
    operators = ["Relu", "Neg", "Add", "Softmax", "Gather", "Slice", "Slice", "Concat", "Concat"]
    rows = {"x": 2, "c": 1}
    nodes = []
    constants = {"c": np.random.default_rng(0).uniform(-1, 1, (1, 16)).astype(np.float32)}
    for i in range(data.draw(st.integers(2, 20))):
        name, names = f"v{i}", [*list(rows)[-6:], "x", "c"]
        read = data.draw(st.sampled_from(names))
        match data.draw(st.sampled_from(operators)):
            case "Slice":
                begin = data.draw(st.integers(0, rows[read] - 1))
                step = data.draw(st.sampled_from([1, 1, 2]))
                for part, value in (("b", begin), ("e", rows[read]), ("a", 0), ("s", step)):
                    constants[f"{part}{i}"] = np.array([value])
                nodes.append(helper.make_node("Slice", [read, f"b{i}", f"e{i}", f"a{i}", f"s{i}"], [name]))
                rows[name] = len(range(begin, rows[read], step))
            case "Concat":
                read = [read, *data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))]
                nodes.append(helper.make_node("Concat", read, [name], axis=0))
                rows[name] = sum(rows[value] for value in read)
            case "Gather":
                nodes.append(helper.make_node("Gather", [read, f"i{i}"], [name], axis=0))
                constants[f"i{i}"] = np.arange(min(2, rows[read]))[::-1].copy()
                rows[name] = min(2, rows[read])
            case "Add":
                other = data.draw(st.sampled_from([value for value in names if rows[value] in (1, rows[read])]))
                nodes.append(helper.make_node("Add", [read, other], [name]))
                rows[name] = rows[read]
            case op:
                nodes.append(helper.make_node(op, [read], [name]))
                rows[name] = rows[read]
    names = [name for name in rows if name not in ("x", "c")]
    outputs = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    read_anywhere = {name for node in nodes for name in node.input}
    constants = {name: array for name, array in constants.items() if name in read_anywhere}
    proto = model_of(nodes, {"x": ("float32", ["a", 16])}, dict.fromkeys(outputs, "float32"), constants)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 16)).astype(np.float32)
    assert_as_onnxruntime(proto, {"x": x}, compiled(proto))


def test_concatenations_that_cost_nothing() -> None:
    """A dense net's block: each layer reads all before it, and nothing is copied but the input."""
    nodes = [helper.make_node("Concat", ["x", "v0"], ["c0"], axis=1)]
    for i in range(1, 4):
        nodes.append(helper.make_node("Conv", [f"c{i - 1}", f"w{i}"], [f"v{i}"]))
        nodes.append(helper.make_node("Concat", [f"c{i - 1}", f"v{i}"], [f"c{i}"], axis=1))
    nodes = [helper.make_node("Conv", ["x", "w0"], ["v0"]), *nodes, helper.make_node("Neg", ["c3"], ["y"])]
    weights = {f"w{i}": np.ones((4, 4 * max(1, i + 1), 1, 1), np.float32) for i in range(1, 4)}
    weights["w0"] = np.ones((4, 4, 1, 1), np.float32)
    proto = model_of(nodes, {"x": ("float32", [1, 4, 8, 2])}, {"y": "float32"}, weights)
    x = np.random.default_rng(0).standard_normal((1, 4, 8, 2), np.float32)
    cm = compiled(proto)
    assert_as_onnxruntime(proto, {"x": x}, cm)
    (segment,) = cm._plans.segments()
    assert segment.program.num_calls == 6  # four convolutions, one copy, Neg
    assert segment.program.arena_bytes == 5 * x.nbytes


def test_splits_and_concatenations_that_cost_nothing() -> None:
    """As in YOLOv8: halves of the channels, one of them convolved, put together again."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h"]),
        helper.make_node("Split", ["h"], ["a", "b"], axis=1),
        helper.make_node("Conv", ["b", "w1"], ["c"]),
        helper.make_node("Conv", ["c", "w1"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=1),
        helper.make_node("Conv", ["e", "w0"], ["f"]),
        helper.make_node("Add", ["f", "a1"], ["y"]),
        helper.make_node("Slice", ["h", "begin", "end", "axis"], ["a1"]),
    ]
    nodes[6], nodes[7] = nodes[7], nodes[6]
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.uniform(-0.3, 0.3, (n, n, 1, 1)).astype(np.float32) for i, n in enumerate((8, 4))}
    weights |= {"begin": np.array([0]), "end": np.array([1]), "axis": np.array([1])}
    proto = model_of(nodes, {"x": ("float32", [1, 8, 4, 4])}, {"y": "float32", "a": "float32"}, weights)
    cm = compiled(proto)
    assert_as_onnxruntime(proto, {"x": rng.standard_normal((1, 8, 4, 4), np.float32)}, cm)
    (segment,) = cm._plans.segments()
    assert segment.program.num_calls <= 6  # four convolutions, the copy of `a` for the caller, the addition


def test_a_long_chain_needs_little_memory() -> None:
    nodes = [helper.make_node("Sigmoid", [f"v{i}"], [f"v{i + 1}"]) for i in range(100)]
    cm = compiled(model_of(nodes, {"v0": ("float32", [1000])}, {"v100": "float32"}))
    request = cm.create_infer_request()
    request.infer(np.zeros(1000, np.float32))
    (segment,) = cm._plans.segments()
    assert segment.program.arena_bytes <= 2 * 4032
    assert segment.program.num_calls == 100


def test_requests_of_one_model_run_in_many_threads() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    cm = compiled(model_of(nodes, {"x": ("float32", ["n", 64])}, {"y": "float32"}, {"w": weights}))
    inputs = [np.random.default_rng(i).standard_normal((1 + i % 5, 64)).astype(np.float32) for i in range(8)]
    expected = [cm(x)[0] for x in inputs]
    wrong: list[str] = []

    def work(position: int) -> None:
        request = cm.create_infer_request()
        for step in range(60):
            at = (position + step) % len(inputs)
            if not np.array_equal(request.infer(inputs[at])[0], expected[at]):
                wrong.append(f"thread {position}, step {step}")

    in_threads(work, range(8))
    assert not wrong


def test_constants_are_folded_once_and_packed_once() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["dims"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        helper.make_node("Mul", ["ones", "scale"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    constants = {"dims": np.array([8, 8]), "scale": np.array(0.5, np.float32)}
    cm = compiled(model_of(nodes, {"x": ("float32", ["n", 8])}, {"y": "float32"}, constants))
    for n in (1, 2, 3):
        np.testing.assert_allclose(cm(np.ones((n, 8), np.float32))[0], np.full((n, 8), 4.0))
    programs = [segment.program for segment in cm._plans.segments()]
    assert [program.num_calls for program in programs] == [1, 1]
    assert len({id(constant) for program in programs for constant in program.constants}) == 1


def test_weights_in_another_layout_are_not_kept_besides(tmp_path: pathlib.Path) -> None:
    """Of weights that are packed, only the packed form takes memory, wherever protobuf put them in the file."""
    weights = {f"w{i}": np.full((256, 256), i / 256, np.float32) for i in range(8)}
    names = [f"{'v' * (i + 1)}" for i in range(8)]  # lengths that differ, so that addresses do
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [names[i]]) for i in range(8)]
    nodes.append(helper.make_node("Sum", names, ["y"]))
    nodes.append(helper.make_node("Gather", ["w3", "i"], ["rows"]))
    proto = model_of(
        nodes, {"x": ("float32", ["n", 256]), "i": ("int64", ["k"])}, {"y": "float32", "rows": "float32"}, weights
    )
    onnx.save(proto, tmp_path / "m.onnx")
    cm = CpuPlugin().compile_model(Core().read_model(tmp_path / "m.onnx"), {})
    assert isinstance(cm, CpuModel)
    for n in (2, 3):
        assert_as_onnxruntime(proto, {"x": np.ones((n, 256), np.float32), "i": np.arange(n)}, cm)
    planner = cm._plans.planner
    owned = {i for i in range(8) if planner._constants[planner.model.value_id(f"w{i}")].data.flags.owndata}  # type: ignore[union-attr]
    assert not owned
    copies = [array for (_, layout), (_, array) in planner._packed.items() if layout == "aligned"]
    assert len(copies) <= 1  # of w3, which is also read as it is, if its address is odd


def test_weights_for_one_input_channel_are_packed_once() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[4])
    weights = np.random.default_rng(0).standard_normal((40, 1, 9)).astype(np.float32)
    proto = model_of([node], {"x": ("float32", ["n", 1, "length"])}, {"y": "float32"}, {"w": weights})
    cm = compiled(proto)
    for n, length in ((1, 9), (3, 50)):
        x = np.random.default_rng(n).standard_normal((n, 1, length)).astype(np.float32)
        assert_as_onnxruntime(proto, {"x": x}, cm)
    constants = [constant for segment in cm._plans.segments() for constant in segment.program.constants]
    assert len({id(constant) for constant in constants}) == 1
    assert constants[0].size == 48 * 9  # panels of 16 channels


def test_scatter_of_a_value_into_itself() -> None:
    """The data may be written in place only where the updates are another value."""
    nodes = [
        helper.make_node("Neg", ["x"], ["d"]),
        helper.make_node("ScatterElements", ["d", "i", "d"], ["y"]),
        helper.make_node("ScatterElements", ["y", "i", "x"], ["z"]),
    ]
    indices = np.array([[3, 2, 1, 0]] * 2).T.copy()
    proto = model_of(nodes, {"x": ("float32", [4, 2])}, {"z": "float32"}, {"i": indices})
    proto_y = model_of(nodes[:2], {"x": ("float32", [4, 2])}, {"y": "float32"}, {"i": indices})
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert_as_onnxruntime(proto, {"x": x}, compiled(proto))
    assert_as_onnxruntime(proto_y, {"x": x}, compiled(proto_y))


def test_what_is_not_taken_is_refused_with_a_reason() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="fine"),
        helper.make_node("NoSuchOp", ["a"], ["b"], name="unknown"),
        helper.make_node("Gelu", ["b"], ["c"], name="foreign", domain="com.example"),
        helper.make_node("Sin", ["s"], ["d"], name="type"),
        helper.make_node("LRN", ["c"], ["e"], name="attribute", size=3, nonsense=1),
        helper.make_node("Add", ["c", "d"], ["f"], name="untyped"),
    ]
    proto = model_of(nodes, {"x": ("float32", [1]), "s": ("int32", [1])}, {"f": "float32"})
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    support = CpuPlugin().query_model(Core().read_model(proto), {})
    assert support.mask.tolist() == [True, False, False, False, False, True]
    assert support.reasons == {
        1: "no kernel for NoSuchOp",
        2: "no kernel for com.example::Gelu; no custom operator com.example::Gelu was added (Core.add_extension)",
        3: "input 's' is int32; kernels support float32, float64, float16, bfloat16",
        4: "LRN of opset 17 with attribute 'nonsense', which it does not have",
    }
