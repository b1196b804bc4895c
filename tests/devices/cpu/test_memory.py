"""Where the values of a CPU plan lie, and when their memory may be overwritten."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from fuzz import graphs
from hetero import Core, _kernels, _program, _workspace
from hetero.devices.cpu import assembly, memory
from hetero.devices.cpu.values import Call, Value
from sessions import onnxruntime_session


def model_of(nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], **constants: np.ndarray) -> onnx.ModelProto:
    """The last node's output is ``y``, of unknown type."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assert_exact(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """The CPU's outputs equal the outputs of onnxruntime and TEMPLATE, element for element."""
    session = onnxruntime_session(proto)
    expected = session.run(None, feeds)
    core = Core()
    for device in ("CPU", "TEMPLATE"):
        for found, wanted in zip(core.compile_model(proto, device)(feeds).arrays(), expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted, err_msg=device)


COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")


@pytest.mark.parametrize("dtype", ["int64", "float64", "int32", "float32"])
@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_bool_result_as_large_as_an_operand_that_broadcasts(op: str, dtype: str, swapped: bool) -> None:
    """n elements of n bytes occupy as many bytes as n * n elements of one byte."""
    size = np.dtype(dtype).itemsize
    p = np.random.default_rng(1).permutation(size).astype(dtype)
    operands = ["c", "q"] if swapped else ["q", "c"]
    nodes = [
        helper.make_node("Add", ["p", "zero"], ["q"]),
        helper.make_node("Reshape", ["q", "column"], ["c"]),
        helper.make_node(op, operands, ["y"]),
    ]
    proto = model_of(nodes, {"p": p}, zero=np.zeros(1, p.dtype), column=np.array([-1, 1]))
    assert_exact(proto, {"p": p})


def test_a_comparison_of_a_made_row_with_a_column() -> None:
    x, k = np.float32([[1, 0, 2]]), np.float32([[0], [1], [2], [3]])
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Less", ["k", "r"], ["y"])]
    for _ in range(3):
        assert_exact(model_of(nodes, {"x": x, "k": k}), {"x": x, "k": k})


@pytest.mark.parametrize("size", [1, 4, 8, 16])
def test_hardmax(size: int) -> None:
    x = np.random.default_rng(2).random((3, size), np.float32)
    assert_exact(model_of([helper.make_node("Hardmax", ["x"], ["y"])], {"x": x}), {"x": x})


@pytest.mark.parametrize("size", [4, 8])
def test_a_causal_mask(size: int) -> None:
    """Positions from a Range, compared with themselves as a column, as exporters write it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Squeeze", ["shape"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["constant"]),
        helper.make_node("Add", ["constant", "start"], ["position"]),
        helper.make_node("Unsqueeze", ["position", "axis"], ["column"]),
        helper.make_node("LessOrEqual", ["position", "column"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "axis": np.array([1])}
    feeds = {"x": np.zeros(size, np.float32), "start": np.arange(1)}
    assert_exact(model_of(nodes, feeds, **constants), feeds)


def test_where_of_bools_that_are_its_condition() -> None:
    x = np.random.default_rng(3).random(16) < 0.5
    nodes = [
        helper.make_node("Not", ["x"], ["c"]),
        helper.make_node("Reshape", ["c", "square"], ["d"]),
        helper.make_node("Where", ["c", "c", "x"], ["e"]),
        helper.make_node("Reshape", ["e", "square"], ["f"]),
        helper.make_node("Where", ["f", "d", "f"], ["y"]),
    ]
    proto = model_of(nodes, {"x": x}, square=np.array([4, 4]))  # onnxruntime takes no Where of bools
    c = ~x
    d = c.reshape(4, 4)
    f = np.where(c, c, x).reshape(4, 4)
    np.testing.assert_array_equal(Core().compile_model(proto, "CPU")({"x": x})["y"], np.where(f, d, f))


# ---- every call of a program is checked


def program_of(kernel: str, result: tuple[Any, ...], *operands: tuple[Any, ...]) -> _program.Program:
    """One call; tensors are (dtype, shape, offset in the arena)."""
    tensors = [(np.dtype(dtype), shape, 0, offset) for dtype, shape, offset in (*operands, result)]
    call = (kernel, list(range(len(operands))), [len(operands)], (), (), "call")
    return _program.Program(tensors, [call], [], [], [], 4096)


def test_programs_refuse_calls_that_overwrite_what_they_still_read() -> None:
    f32, i64 = "float32", "int64"
    program_of("add", (f32, (8,), 0), (f32, (8,), 0), (f32, (8,), 64))
    program_of("add", (f32, (8,), 0), (f32, (8,), 0), (f32, (2, 4), 0))
    program_of("less", ("bool", (8, 8), 64), (i64, (8, 1), 0), (i64, (8,), 128))
    program_of("scatter_nd", (f32, (8,), 0), (f32, (8,), 0), (i64, (1, 1), 64), (f32, (1,), 128))
    program_of("add", (f32, (0,), 0), (f32, (1,), 0), (f32, (0,), 0))  # nothing is written
    vector, elsewhere = (f32, (1, 8), 0), (f32, (8,), 64)
    program_of("layer_norm", vector, vector, elsewhere, elsewhere)
    program_of("layer_norm", vector, (f32, (1, 8), 128), elsewhere, elsewhere, vector)
    refused = [
        ("less", ("bool", (8, 8), 0), (i64, (8, 1), 0), (i64, (8,), 128)),  # as many bytes, fewer elements
        ("equal", ("bool", (64,), 0), (i64, (64,), 0), (i64, (64,), 1024)),  # as many elements, of other sizes
        ("add", (f32, (2, 8), 0), (f32, (2, 8), 0), (f32, (8,), 0)),  # the other operand is part of it
        ("add", (f32, (32,), 64), (f32, (32,), 0), (f32, (32,), 1024)),  # shifted
        ("scatter_nd", (f32, (8,), 0), (f32, (8,), 0), (i64, (8, 1), 64), (f32, (8,), 0)),  # updates are data
        ("where", ("bool", (8,), 0), ("bool", (8,), 0), ("bool", (8,), 64), ("bool", (8,), 128)),  # in the condition
        ("copy_strided", (f32, (8,), 0), (f32, (8,), 0)),  # never in place
        ("layer_norm", vector, (f32, (1, 8), 128), (f32, (8,), 0), elsewhere),  # in the scale of a single row
        ("layer_norm", vector, vector, (f32, (8,), 0), elsewhere),  # the scale is also x
        ("layer_norm", vector, vector, elsewhere, elsewhere, vector),  # x + x
    ]
    for kernel, result, *operands in refused:
        with pytest.raises(ValueError, match="overlaps|in place"):
            program_of(kernel, result, *operands)


def test_programs_refuse_results_that_overlap_or_are_constants() -> None:
    f32 = np.dtype("float32")
    tensors = [(f32, (8,), 0, 0), (f32, (8,), 0, 64), (f32, (8,), 0, 64), (f32, (8,), 1, 0)]
    with pytest.raises(ValueError, match="results 0 and 1 overlap"):
        _program.Program(tensors, [("topk", [0], [1, 2], (), (), "")], [np.zeros(8, f32)], [], [], 4096)
    with pytest.raises(ValueError, match="constant"):
        _program.Program(tensors, [("unary", [0], [3], (), (), "")], [np.zeros(8, f32)], [], [], 4096)


def test_kernels_say_where_they_work_in_place() -> None:
    assert _kernels.in_place("where") == ((1, 2), True)
    assert _kernels.in_place("scatter_nd") == ((0,), False)
    assert _kernels.in_place("gemm") == ((), False)
    with pytest.raises(ValueError, match="no kernel"):
        _kernels.in_place("ad")


def test_results_are_not_made_where_inputs_or_other_results_lie() -> None:
    f32 = np.dtype("float32")
    tensors = [(f32, (8,), 2, 0), (f32, (8,), 3, 0), (f32, (8,), 3, 1)]
    calls = [("identity", [0], [1], (), (), ""), ("identity", [0], [2], (), (), "")]
    workspace = _workspace.Workspace(_program.Program(tensors, calls, [], [((8,), f32)], [((8,), f32)] * 2, 0))
    memory_of_all = np.zeros(256, np.uint8)
    x = memory_of_all[:32].view(f32)
    first, second = workspace.run([x], [memory_of_all[64:96], memory_of_all[96:128]])
    assert np.shares_memory(first, memory_of_all)
    assert np.shares_memory(second, memory_of_all)
    with pytest.raises(ValueError, match="place of output 0 overlaps input 0"):
        workspace.run([x], [memory_of_all[16:48], memory_of_all[96:128]])
    with pytest.raises(ValueError, match="place of output 1 overlaps output 0"):
        workspace.run([x], [memory_of_all[64:96], memory_of_all[80:128]])


# ---- across calls: a naive twin


def replay(
    calls: Sequence[Call],
    place: dict[int, tuple[int, int]],
    parts: memory.Parts,
    arena_bytes: int,
    outputs: Collection[int] = (),
) -> None:
    """Simulate a plan on memory whose bytes name the value that they hold. Every operand, and at the end every storage
    of ``outputs``, must still hold its value."""

    def root(storage: int, at: int = 0) -> tuple[int, int]:
        while storage in parts:
            storage, begin = parts[storage]
            at += begin
        return storage, at

    def label(value: Value) -> np.ndarray:
        storage, at = root(value.storage)
        return ((storage + 1) << 32) + at + np.arange(value.size * value.dtype.itemsize)

    memories: dict[tuple[int, int], np.ndarray] = {(0, 0): np.zeros(arena_bytes, np.int64)}

    def view(value: Value) -> np.ndarray:
        kind, number = place[value.storage]
        size = value.size * value.dtype.itemsize
        if kind == 0:
            return memories[0, 0][number : number + size]
        return memories.setdefault((kind, number), label(value) if kind == 2 else np.zeros(size, np.int64))

    for call in calls:
        for operand in call.inputs:
            if operand is not None and operand.data is None:
                assert (view(operand) == label(operand)).all(), f"{call.kernel} reads what was overwritten"
        for result in call.outputs:
            view(result)[...] = label(result)
    for value in (value for call in calls for value in call.outputs):
        if value.storage in outputs:
            assert (view(value) == label(value)).all(), "an output was overwritten"


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every plan is replayed; gives their numbers of calls."""
    sizes: list[int] = []

    def checked(calls: Sequence[Call], place: dict[int, tuple[int, int]], parts: memory.Parts) -> int:
        outputs = {storage for storage, (kind, _) in place.items() if kind == 3}
        arena_bytes = memory.place_in_arena(calls, place, parts)
        replay(calls, place, parts, arena_bytes, outputs)
        sizes.append(len(calls))
        return arena_bytes

    monkeypatch.setattr(assembly, "place_in_arena", checked)
    return sizes


@pytest.mark.parametrize("transformed", [True, False])
def test_no_plan_overwrites_what_is_read_later(replayed: list[int], transformed: bool) -> None:
    core = Core()
    for number in range(150):
        case = graphs.case(np.random.default_rng([5, number]))
        compiled = core.compile_model(case.model, "HETERO:CPU,TEMPLATE", {"DISABLE_TRANSFORMATIONS": not transformed})
        for feeds in case.calls:
            compiled(feeds)
    assert len(replayed) > 150
    assert sum(replayed) > 600


def dense_block(rng: np.random.Generator) -> onnx.ModelProto:
    """Concatenations that begin, or almost begin, with the operands of earlier ones. The height of x can change."""
    batch, channels = int(rng.choice([1, 1, 1, 2])), int(rng.choice([1, 3, 16]))
    names, widths, outputs = ["x"], {"x": channels}, []
    nodes: list[onnx.NodeProto] = []

    def node(op: str, inputs: list[str], width: int, **attributes: Any) -> str:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        widths[name] = width
        if rng.random() < 0.1:
            outputs.append(name)
        return name

    if rng.random() < 0.7:
        names = [node("Relu", ["x"], channels)]
    for _ in range(rng.integers(2, 7)):
        parts = list(names)
        match rng.integers(8):
            case 0:
                parts.insert(0, parts.pop())
            case 1:
                parts.append(parts[0])
            case 2:
                parts = parts[: rng.integers(1, len(parts) + 1)]
        joined = node("Concat", parts, sum(widths[part] for part in parts), axis=1)
        step = node(str(rng.choice(["Relu", "Neg", "Sigmoid"])), [joined], widths[joined])
        if rng.random() < 0.3:
            step = node("Add", [step, joined], widths[joined])
        names.append(node("ReduceSum", [step, "axis"], 1, keepdims=1) if rng.random() < 0.4 else step)
    nodes.append(helper.make_node("Concat", names, ["y"], axis=1))
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", 1, [batch, channels, "height", 16])],
        [onnx.ValueInfoProto(name=name) for name in dict.fromkeys([*outputs, "y"])],
        [numpy_helper.from_array(np.array([1]), "axis")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("transformed", [True, False])
def test_concatenations_within_others(replayed: list[int], transformed: bool) -> None:
    core = Core()
    for number in range(60):
        rng = np.random.default_rng([9, number])
        proto = dense_block(rng)
        session = onnxruntime_session(proto)
        compiled = core.compile_model(proto, "CPU", {"DISABLE_TRANSFORMATIONS": not transformed})
        shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
        for height in (2, 3, 5, 2, 0):
            x = rng.standard_normal((shape[0], shape[1], height, 16), np.float32)
            for found, wanted in zip(compiled(x).arrays(), session.run(None, {"x": x}), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(replayed) >= 60


def test_a_whole_with_parts_stays_out_of_an_output() -> None:
    """The parts of a concatenation lie in the arena, so the operator that reads it does not work in place if its result
    is an output."""
    x, y = (np.random.default_rng(at).integers(-9, 9, (16 * at, 4)).astype(np.float32) for at in (1, 2))
    nodes = [
        helper.make_node("Neg", ["a"], ["p"]),
        helper.make_node("Sign", ["b"], ["q"]),
        helper.make_node("Concat", ["p", "q"], ["c"], axis=0),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    feeds = {"a": x, "b": y}
    assert_exact(model_of(nodes, feeds), feeds)


def test_a_dense_block_copies_nothing() -> None:
    f32 = np.dtype("float32")

    def value(storage: int, channels: int) -> Value:
        return Value(f32, (1, channels, 4, 4), None, storage)

    x, a, b, first, second = (value(i, n) for i, n in enumerate((1, 2, 3, 3, 6)))
    calls = [
        Call("unary", (x,), (a,), (), (), 0),
        Call("concat", (x, a), (first,), (1,), (), 1),
        Call("unary", (first,), (b,), (), (), 2),
        Call("concat", (x, a, b), (second,), (1,), (), 3),
    ]
    made = [Call("fill", (), (x,), (), (), 0), *calls]
    joined, parts = memory.join(made, set(), iter(range(5, 9)).__next__)
    assert [call.kernel for call in joined] == ["fill", "unary", "unary"]
    assert parts == {0: (3, 0), 1: (3, 64), 3: (4, 0), 2: (4, 192)}
    # An output of the program is not a part of another value.
    joined, parts = memory.join(made, {3}, iter(range(5, 9)).__next__)
    assert [call.kernel for call in joined] == ["fill", "unary", "concat", "unary"]
    assert parts == {0: (4, 0), 1: (4, 64), 2: (4, 192)}


@pytest.mark.parametrize(
    ("changed", "is_nested"),
    [("nothing", True), ("output", False), ("result", False), ("operand", False), ("type", False), ("size", False)],
)
def test_what_keeps_a_concatenation_out_of_another(changed: str, is_nested: bool) -> None:
    """Each condition of `memory.nest`, broken alone. The planner writes each storage once and never reads one with
    several types or sizes, so no model breaks the last four."""
    f32, i32 = np.dtype("float32"), np.dtype("int32")

    def value(storage: int, channels: int, dtype: np.dtype[Any] = f32) -> Value:
        return Value(dtype, (1, channels, 4, 4), None, storage)

    x, a, b, first = (value(i, n) for i, n in enumerate((1, 2, 3, 3)))
    again = value(1, 3) if changed == "size" else a
    kind = i32 if changed == "type" else f32
    calls = [
        Call("fill", (), (x,), (), (), 0),
        Call("unary", (x,), (a,), (), (), 1),
        Call("concat", (x, a), (first,), (1,), (), 2),
        Call("unary", (first,), (b,), (), (), 3),
        *([Call("unary", (b,), (first,), (), (), 4)] if changed == "result" else []),
        *([Call("unary", (b,), (a,), (), (), 4)] if changed == "operand" else []),
        Call("concat", (value(0, 1, kind), again, value(2, 3, kind)), (value(4, 7, kind),), (1,), (), 5),
    ]
    if changed == "type":
        calls[-1] = Call("concat", (x, value(1, 2, i32), value(2, 3, i32)), (value(4, 6, i32),), (1,), (), 5)
    last_maker = {made.storage: position for position, call in enumerate(calls) for made in call.outputs}
    nested = memory.nest(calls, {3} if changed == "output" else set(), last_maker)[-1]
    assert ([read.storage for read in nested.inputs if read] == [3, 2]) == is_nested


def test_the_twin_sees_what_is_overwritten() -> None:
    """The twin itself fails on a plan that gives two living values the same memory."""
    f32 = np.dtype("float32")
    a, b, c = (Value(f32, (8,), None, storage) for storage in range(3))
    calls = [
        Call("unary", (a,), (b,), (), (), 0),
        Call("unary", (a,), (c,), (), (), 1),
        Call("add", (b, c), (a,), (), (), 2),
    ]
    replay(calls, {0: (2, 0), 1: (0, 0), 2: (0, 64)}, {}, 128)
    with pytest.raises(AssertionError, match="overwritten"):
        replay(calls, {0: (2, 0), 1: (0, 0), 2: (0, 0)}, {}, 128)
