"""States that grow in place: results equal those of the same steps with the state in arrays of the caller."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import hetero
from hetero._workspace import Room
from hetero._workspace import claim as claim_rows
from hetero.devices.cpu.appended import ROWS
from hetero.errors import InferenceError

Array = np.ndarray[Any, Any]

# Each reads the state p [b, h, past, d] and new rows x [b, h, n, d]; (body, whether the state grows in place).
BODIES = {
    "keys": ("q = Concat<axis = 2>(p, x) t = Transpose<perm = [0, 1, 3, 2]>(q) y = MatMul(x, t)", True),
    "values": (
        "q = Concat<axis = 2>(p, x) s = MatMul(x, t0) y = MatMul(s, q) t0 = Transpose<perm = [0, 1, 3, 2]>(q)",
        None,
    ),
    "scaled": (
        "q = Concat<axis = -2>(p, x) t = Transpose<perm = [0, 1, 3, 2]>(q) m = MatMul(x, t) y = Softmax(m)",
        True,
    ),
    "scaled keys": (
        "q = Concat<axis = 2>(p, x) t = Transpose<perm = [0, 1, 3, 2]>(q) s = Mul(t, half) y = MatMul(x, s)",
        True,
    ),
    "expanded": (
        "q = Concat<axis = 2>(p, x) u = Unsqueeze(q, two) e = Expand(u, group) y = ReduceSum<keepdims = 0>(e, two)",
        True,
    ),
    "transposed": ("q = Concat<axis = 2>(p, x) y = Transpose<perm = [2, 0, 3, 1]>(q)", True),
    "sliced heads": ("q = Concat<axis = 2>(p, x) y = Slice(q, zero, one, one)", None),
    "last rows": ("q = Concat<axis = 2>(p, x) y = Slice(q, minus, most, two)", None),
    "read by nobody else": ("q = Concat<axis = 2>(p, x) y = Relu(x)", True),
    "shape": ("q = Concat<axis = 2>(p, x) s = Shape(p) y = Cast<to = 1>(s)", True),
    "joined alone": (
        "c = Concat<axis = 2>(p) q = Concat<axis = 2>(c, x) t = Transpose<perm = [0, 1, 3, 2]>(q) y = MatMul(x, t)",
        True,
    ),
    "in front": ("q = Concat<axis = 2>(x, p) t = Transpose<perm = [0, 1, 3, 2]>(q) y = MatMul(x, t)", False),
    "old rows are read": ("q = Concat<axis = 2>(p, x) y = ReduceSum<keepdims = 0>(p, two)", False),
    "twice itself": ("q = Concat<axis = 2>(p, p) y = Relu(x)", False),
    "three operands": ("q = Concat<axis = 2>(p, x, x) t = Transpose<perm = [0, 1, 3, 2]>(q) y = MatMul(x, t)", False),
    "not the Concat": ("c = Concat<axis = 2>(p, x) q = Relu(c) y = Neg(c)", False),
    "reshaped": (
        "c = Concat<axis = 2>(p, x) q = Identity(c) t = Transpose<perm = [0, 1, 3, 2]>(q) y = MatMul(x, t)",
        None,
    ),
    "read flat": ("q = Concat<axis = 2>(p, x) y = Reshape(q, minus)", False),
    "read by Relu": ("q = Concat<axis = 2>(p, x) y = Relu(q)", False),
    "left operand": ("q = Concat<axis = 2>(p, x) t = Transpose<perm = [0, 1, 3, 2]>(x) y = MatMul(q, t)", None),
    "squared": ("q = Concat<axis = 2>(p, x) t = Transpose<perm = [0, 1, 3, 2]>(q) y = MatMul(q, t)", None),
    "outermost": ("q = Concat<axis = 0>(p, x) y = Transpose<perm = [3, 1, 0, 2]>(q)", True),
    "innermost": ("q = Concat<axis = 3>(p, x) y = Transpose<perm = [3, 1, 0, 2]>(q)", True),
    "heads": ("q = Concat<axis = 1>(p, x) t = Transpose<perm = [0, 1, 3, 2]>(q) y = MatMul(q, t)", None),
    "late rows": ("s = Shape(p) f = ConstantOfShape(xs) q = Concat<axis = 2>(p, f) xs = Shape(x) y = Relu(x)", None),
    "integers": ("q = Concat<axis = 2>(p, x) y = Transpose<perm = [2, 0, 3, 1]>(q)", True),
}
AXES = {"outermost": 0, "innermost": 3, "heads": 1}


def model_of(name: str) -> hetero.Model:
    body, _ = BODIES[name]
    axis, kind = AXES.get(name, 2), "int16" if name == "integers" else "float"
    dims = ["b", "h", "n", "d"]
    old = [*dims[:axis], "past", *dims[axis + 1 :]]
    new = [*dims[:axis], "total", *dims[axis + 1 :]]
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g ({kind}[{", ".join(old)}] p, {kind}[{", ".join(dims)}] x) => ({kind}[{", ".join(new)}] q, {kind} y)
        <float half = {{0.5}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}},
         int64[1] minus = {{-1}}, int64[1] most = {{1000000}}, int64[5] group = {{1, 1, 3, 1, 1}}> {{ {body} }}"""
    proto = onnx.parser.parse_model(text)
    del proto.graph.output[1].type.tensor_type.shape.dim[:]
    proto.graph.output[1].type.tensor_type.ClearField("shape")
    nodes = {output: node for node in proto.graph.node for output in node.output}
    ordered: list[onnx.NodeProto] = []

    def visit(node: onnx.NodeProto) -> None:
        for value in node.input:
            if value in nodes and nodes[value] not in ordered:
                visit(nodes[value])
        if node not in ordered:
            ordered.append(node)

    for node in list(proto.graph.node):
        visit(node)
    del proto.graph.node[:]
    proto.graph.node.extend(ordered)
    return hetero.Core().read_model(proto)


def num_appends(request: Any) -> int:
    runner = request._runner
    runner = runner._runners[0] if hasattr(runner, "_runners") else runner
    return sum(len(segment.appends) for segment in runner._plans.segments())


class Twin:
    """A request whose state is in arrays of the caller."""

    def __init__(self, compiled: hetero.CompiledModel, state: Array) -> None:
        self._request = compiled.create_infer_request()
        self.state = state.copy()

    def step(self, x: Array) -> Array:
        outputs = self._request.infer({"p": self.state, "x": x})
        self.state = np.array(outputs["q"])
        return np.array(outputs["y"])


def rows(name: str, random: np.random.Generator, sizes: tuple[int, ...], count: int) -> Array:
    shape = list(sizes)
    shape[AXES.get(name, 2)] = count
    if name == "integers":
        return random.integers(-9, 9, shape, np.int16)
    return random.standard_normal(shape, np.float32)


@pytest.mark.spread(2)
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU"])
@pytest.mark.parametrize("sizes", [(1, 2, 1, 4), (2, 3, 1, 5), (1, 1, 1, 1), (3, 1, 1, 2), (1, 4, 1, 4)])
@pytest.mark.parametrize("name", BODIES)
def test_steps_equal_those_through_arrays(name: str, sizes: tuple[int, ...], device: str) -> None:
    random = np.random.default_rng(sum(sizes))
    compiled = hetero.Core().compile_model(model_of(name), device, {"INFERENCE_NUM_THREADS": 1})
    for begin in (0, 3, ROWS - 2):
        initial = rows(name, random, sizes, begin)
        twin = Twin(compiled, initial)
        bound = compiled.create_stateful_request({"q": "p"}, {"p": initial})
        for count in (1, 1, 2, 1, 0, 1, 5, 1, 1, 30, 1, 1):
            if name == "twice itself" and twin.state.size > 5000:
                break
            x = rows(name, random, sizes, count)
            np.testing.assert_array_equal(bound.infer({"x": x})["y"], twin.step(x))
            np.testing.assert_array_equal(bound.snapshot_state()["p"], twin.state)
        expected = BODIES[name][1]
        if expected is False or (expected and min(sizes[1], sizes[3]) > 1):  # else a Transpose is a reshape
            assert (num_appends(bound) > 0) == expected


def test_forks_snapshots_and_restores_keep_their_own_values() -> None:
    """Random operations on requests that share rooms, beside twins that share nothing."""
    name, sizes = "keys", (1, 2, 1, 4)
    compiled = hetero.Core().compile_model(model_of(name), "CPU", {"INFERENCE_NUM_THREADS": 1})
    for seed in range(8):
        random = np.random.default_rng(seed)
        initial = rows(name, random, sizes, int(random.integers(0, 2 * ROWS)))
        pairs = [(compiled.create_stateful_request({"q": "p"}, {"p": initial}), Twin(compiled, initial))]
        snapshots: list[tuple[Mapping[str, Array], Array]] = []
        for _ in range(150):
            bound, twin = pairs[random.integers(len(pairs))]
            match random.choice(["step"] * 8 + ["out", "wrong", "fork", "snapshot", "restore", "reset", "set"]):
                case "out":
                    x = rows(name, random, sizes, int(random.choice([1, 2])))
                    expected = twin.step(x)
                    out = np.full_like(expected, np.nan)
                    bound.infer({"x": x}, out={"y": out})
                    np.testing.assert_array_equal(out, expected)
                case "wrong":
                    for x in (rows(name, random, (2, 2, 1, 4), 1), rows(name, random, sizes, 1).astype(np.float64)):
                        with pytest.raises(InferenceError):
                            bound.infer({"x": x})
                    with pytest.raises(InferenceError):
                        bound.infer({"x": rows(name, random, sizes, 1)}, out={"y": np.zeros(3, np.float32)})
                case "step":
                    x = rows(name, random, sizes, int(random.choice([0, 1, 1, 1, 2, 9])))
                    np.testing.assert_array_equal(bound.infer({"x": x})["y"], twin.step(x))
                case "fork" if len(pairs) < 5:
                    pairs.append((bound.fork(), Twin(compiled, twin.state)))
                case "snapshot":
                    snapshots.append((bound.snapshot_state(), twin.state.copy()))
                case "restore" if snapshots:
                    snapshot, state = snapshots[random.integers(len(snapshots))]
                    bound.restore_state(snapshot)
                    twin.state = state.copy()
                case "reset":
                    bound.reset_state()
                    twin.state = initial.copy()
                case "set":
                    state = rows(name, random, sizes, 7)
                    bound.restore_state({"p": state})
                    twin.state = state.copy()
                    state[...] = 0
        for bound, twin in pairs:
            np.testing.assert_array_equal(bound.snapshot_state()["p"], twin.state)
        for snapshot, state in snapshots:
            np.testing.assert_array_equal(snapshot["p"], state)


def _failing() -> hetero.Model:
    """Fails if the index is out of range, after the new rows have been written."""
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, past, 4] p, float[1, 2, n, 4] x, int64[1] at) => (float[1, 2, total, 4] q, float[1, 2, n, 1] y) {
            q = Concat<axis = 2>(p, x)
            t = Transpose<perm = [0, 1, 3, 2]>(q)
            m = MatMul(x, t)
            y = Gather<axis = 3>(m, at)
        }"""
    return hetero.Core().read_model(onnx.parser.parse_model(text))


def test_an_inference_that_fails_leaves_the_state() -> None:
    compiled = hetero.Core().compile_model(_failing(), "CPU")
    bound = compiled.create_stateful_request({"q": "p"})
    random = np.random.default_rng(0)
    state = np.zeros((1, 2, 0, 4), np.float32)
    for step in range(40):
        x = random.standard_normal((1, 2, 1, 4), np.float32)
        if step % 5 == 4:
            with pytest.raises(InferenceError):
                bound.infer({"x": x + 1, "at": np.array([10_000])})
            np.testing.assert_array_equal(bound.snapshot_state()["p"], state)
        y = bound.infer({"x": x, "at": np.array([step])})["y"]
        state = np.concatenate([state, x], 2)
        np.testing.assert_allclose(y, x @ state[:, :, [step]].swapaxes(2, 3), 1e-5, 1e-6)
        np.testing.assert_array_equal(bound.snapshot_state()["p"], state)
    assert num_appends(bound)


def masked(symbol: str) -> hetero.Model:
    """With a mask over the old and the new rows, as exported decoders have it."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[b, 2, past, 4] p, float[b, 2, n, 4] x, float[b, {symbol}] m)
            => (float[b, 2, all, 4] q, float[b, 2, n, all] y) {{
            q = Concat<axis = 2>(p, x)
            t = Transpose<perm = [0, 1, 3, 2]>(q)
            s = MatMul(x, t)
            y = Add(s, m)
        }}"""
    return hetero.Core().read_model(onnx.parser.parse_model(text))


@pytest.mark.parametrize("device", ["CPU", "ORT", "HETERO:CPU"])
def test_an_input_that_grows_with_the_state(device: str) -> None:
    """The mask has another length in each step; one of a wrong length, batch or rank is refused and changes nothing."""
    core = hetero.Core()
    if device == "ORT" and not any(name.startswith("ORT") for name in core.available_devices):
        pytest.skip("onnxruntime is not installed")
    bound = core.compile_model(masked("total"), device).create_stateful_request(
        {"q": "p"}, {"p": np.zeros((1, 2, 0, 4), np.float32)}
    )
    random = np.random.default_rng(0)
    state = np.zeros((1, 2, 0, 4), np.float32)
    for step in range(30):
        x = random.standard_normal((1, 2, 1, 4), np.float32)
        mask = random.standard_normal((1, step + 1), np.float32)
        if step % 7 == 6:
            for wrong in (mask[:, :-1], np.concatenate([mask, mask]), mask[0], mask.astype(np.float64)):
                with pytest.raises(InferenceError):
                    bound.infer({"x": x, "m": wrong})
            np.testing.assert_array_equal(bound.snapshot_state()["p"], state)
        state = np.concatenate([state, x], 2)
        np.testing.assert_allclose(bound.infer({"x": x, "m": mask})["y"], x @ state.swapaxes(2, 3) + mask, 1e-4, 1e-5)
    np.testing.assert_array_equal(bound.snapshot_state()["p"], state)


@pytest.mark.parametrize("device", ["CPU", "ORT"])
def test_a_symbol_of_the_state_in_another_input(device: str) -> None:
    """The mask has the length of the state before the step, so it cannot be added to all rows unless it is 1."""
    core = hetero.Core()
    if device == "ORT" and not any(name.startswith("ORT") for name in core.available_devices):
        pytest.skip("onnxruntime is not installed")
    bound = core.compile_model(masked("past"), device).create_stateful_request(
        {"q": "p"}, {"p": np.ones((1, 2, 1, 4), np.float32)}
    )
    x = np.ones((1, 2, 0, 4), np.float32)
    for _ in range(6):
        bound.infer({"x": x, "m": np.ones((1, 1), np.float32)})
    for length in (0, 2, 3):
        with pytest.raises(InferenceError, match="past"):
            bound.infer({"x": x, "m": np.ones((1, length), np.float32)})
    assert bound.snapshot_state()["p"].shape == (1, 2, 1, 4)


def test_out_and_results_of_earlier_steps() -> None:
    """Results belong to the caller: writing to them changes no state, and later steps do not change them."""
    compiled = hetero.Core().compile_model(model_of("transposed"), "CPU")
    bound = compiled.create_stateful_request({"q": "p"}, {"p": np.ones((1, 2, 3, 4), np.float32)})
    kept = []
    for step in range(5):
        out = np.full((4 + step, 1, 4, 2), np.nan, np.float32)
        y = bound.infer({"x": np.full((1, 2, 1, 4), step, np.float32)}, out={"y": out})["y"]
        assert np.shares_memory(y, out)
        kept.append((y, y.copy()))
    for y, before in kept:
        np.testing.assert_array_equal(y, before)
        y[...] = np.nan
    expected = np.concatenate([np.ones((1, 2, 3, 4))] + [np.full((1, 2, 1, 4), step) for step in range(5)], 2)
    np.testing.assert_array_equal(bound.snapshot_state()["p"], expected)


def test_a_snapshot_of_another_device_or_model_continues() -> None:
    """A state that lies in a room is not contiguous; every device takes it."""
    random = np.random.default_rng(1)
    core = hetero.Core()
    begin = core.compile_model(model_of("keys"), "CPU").create_stateful_request({"q": "p"})
    for _ in range(3):
        begin.infer({"x": random.standard_normal((1, 2, 1, 4), np.float32)})
    x = random.standard_normal((1, 2, 1, 4), np.float32)
    for device in ("TEMPLATE", "ORT", "HETERO:CPU", "OPENVINO", "OPENCL"):
        if device in ("ORT", "OPENVINO", "OPENCL") and not any(map(re.compile(device).match, core.available_devices)):
            continue
        other = core.compile_model(model_of("keys"), device).create_stateful_request({"q": "p"})
        other.restore_state(begin.snapshot_state())
        ours = begin.fork()
        np.testing.assert_allclose(other.infer({"x": x})["y"], ours.infer({"x": x})["y"], 1e-5)
        np.testing.assert_allclose(other.snapshot_state()["p"], ours.snapshot_state()["p"], 1e-6)


def test_forks_append_at_the_same_time() -> None:
    compiled = hetero.Core().compile_model(model_of("keys"), "CPU", {"INFERENCE_NUM_THREADS": 1})
    base = compiled.create_stateful_request({"q": "p"}, {"p": np.zeros((1, 2, 5, 4), np.float32)})
    base.infer({"x": np.zeros((1, 2, 1, 4), np.float32)})
    forks = [base.fork() for _ in range(8)]

    def work(number: int) -> Callable[[], None]:
        def steps() -> None:
            for _ in range(60):
                forks[number].infer({"x": np.full((1, 2, 1, 4), number, np.float32)})

        return steps

    threads = [threading.Thread(target=work(number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, fork in enumerate(forks):
        state = fork.snapshot_state()["p"]
        assert state.shape == (1, 2, 66, 4)
        assert (state[:, :, :6] == 0).all()
        assert (state[:, :, 6:] == number).all()


def test_claims() -> None:
    """Rows behind a state are given once; other arrays, and views that only resemble a state, are copied."""

    def claim(past: Array, shape: tuple[int, ...], added: int, dtype: Any = np.float32) -> Array:
        rows = past.shape[1]
        whole = claim_rows(past, 1, shape, np.dtype(dtype), added)
        assert type(whole.base) is Room
        assert whole.base.used == rows + added
        assert (whole.shape, whole.dtype) == (shape, dtype)
        np.testing.assert_array_equal(whole[:, :rows], past.astype(dtype))
        return whole

    state, shape = np.arange(6, dtype=np.float32).reshape(1, 3, 2), (1, ROWS, 2)
    room = claim(state, shape, 1)
    assert not np.shares_memory(room, state)
    first = room[:, :4]
    assert claim(first, shape, 2) is room
    assert claim(first, shape, 2) is not room
    whole = room[:, :6]
    whole[...] = np.arange(12, dtype=np.float32).reshape(1, 6, 2)
    for other in (whole[:, 1:], whole[:, ::-1], whole[:, :, ::-1], whole.copy(), whole[:, :, :1], whole[:, :5]):
        assert claim(other, (1, ROWS, other.shape[2]), 1) is not room
    assert claim(whole, (1, 2 * ROWS, 2), 1) is not room
    assert claim(whole.view(np.int32), shape, 1, np.int32) is not room
    assert claim(whole.view(np.int32), shape, 1) is not room
    assert claim(whole.astype(">f4"), shape, 1) is not room
    assert claim(whole, shape, 0) is room
    assert claim(whole[:][:], shape, 1) is room
    assert claim(room, shape, 0) is not room  # more rows than are in use
