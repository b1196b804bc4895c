"""Chains of submodels that are repeated in one loop: results, and every way in which a chain must not be used."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.compiling.hetero_model import schedule_of
from hetero.devices.ort import OrtPlugin
from hetero.devices.ort.binding import HostBinding
from hetero.plugin.executor import DeviceExecutors
from hetero.runtime.schedule import ScheduleRunner

onnxruntime = pytest.importorskip("onnxruntime")

node = helper.make_node
Array = np.ndarray[Any, Any]


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> onnx.ModelProto:
    """``inputs``, ``outputs``: name -> shape; one name that begins with i is int64."""
    ports = [
        [
            helper.make_tensor_value_info(name, TensorProto.INT64 if name[0] == "i" else TensorProto.FLOAT, shape)
            for name, shape in each.items()
        ]
        for each in (inputs, outputs)
    ]
    for at, each in enumerate(nodes):
        each.name = f"n{at}"
    graph = helper.make_graph(nodes, "g", *ports)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cut(proto: onnx.ModelProto, timed: bool = False) -> ScheduleRunner:
    """The runner of a model with one session for each node."""
    plugin, model = OrtPlugin(), hetero.Core().read_model(proto)
    parts = [np.int32([at]) for at in range(model.num_nodes)]
    models = model.extract_all(parts, [f"part{at}" for at in range(len(parts))])
    compiled = [plugin.compile_model(part, {"INFERENCE_NUM_THREADS": 1}) for part in models]
    schedule = schedule_of(model, list(zip(models, compiled, strict=True)), DeviceExecutors(plugin.executors))
    return ScheduleRunner(schedule, timed)


def line() -> onnx.ModelProto:
    """``b`` is an output that a later node reads too."""
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Neg", ["a"], ["b"]),
        node("Abs", ["b"], ["c"]),
        node("Add", ["c", "a"], ["d"]),
        node("Sqrt", ["d"], ["y"]),
    ]
    return model_of(nodes, {"x": ["n", "m"]}, {"y": ["n", "m"], "b": ["n", "m"]})


def expected(x: Array) -> list[Array]:
    return [np.sqrt(2 * np.exp(x)), -np.exp(x)]


def check(runner: ScheduleRunner, x: Array) -> list[Array]:
    results = list(runner.run([x]))
    for found, value in zip(results, expected(x), strict=True):
        np.testing.assert_allclose(found, value, 1e-6)
    return results


def chained(runner: ScheduleRunner) -> int:
    """The number of tasks in chains."""
    return sum(chain.num_tasks for chain in runner._chains.values())


def warm(runner: ScheduleRunner, x: Array) -> None:
    for _ in range(8):
        check(runner, x)


X = np.float32([[1, 2, 3], [-4, 5, -6]])


def test_a_chain_gives_the_same_results() -> None:
    runner = cut(line())
    kept = []
    for turn in range(30):
        x = X * np.float32(turn / 10)
        results = check(runner, x)
        kept.append((results, [result.copy() for result in results]))
    assert chained(runner) == 5
    for results, before in kept:  # each result is the caller's own
        for result, value in zip(results, before, strict=True):
            np.testing.assert_array_equal(result, value)
            result[...] = np.nan
    check(runner, X)


def test_the_caller_writes_to_its_input() -> None:
    runner = cut(line())
    warm(runner, X)
    x = X.copy()
    for turn in range(5):
        x[...] = turn
        check(runner, x)
        x[...] = np.nan
    assert runner._num_broken == 0


@pytest.mark.parametrize(
    "other",
    [X[:, :2], X[:0], X.T, X[::-1], np.asfortranarray(X), np.broadcast_to(np.float32(2), (2, 3)), X.reshape(1, 6)],
    ids=["narrower", "empty", "transposed", "reversed", "by columns", "broadcast", "of the same size"],
)
def test_inputs_of_another_layout(other: Array) -> None:
    runner = cut(line())
    warm(runner, X)
    for x in (other, X, other, X):
        check(runner, x)
    warm(runner, X)
    assert chained(runner) == 5


def test_an_input_of_another_type_is_not_copied_into_a_chain() -> None:
    runner = cut(line())
    warm(runner, X)
    assert chained(runner) == 5
    with pytest.raises(hetero.HeteroError, match="float64|double"):
        runner.run([X.astype(np.float64)])
    warm(runner, X)


def test_sizes_that_change_often_end_the_search() -> None:
    runner = cut(line())
    for turn in range(200):
        x = np.full((1 + turn // 20 % 2, 3), turn / 100, np.float32)
        check(runner, x)
    assert not runner._chains
    assert not runner._may_chain


def test_large_values_are_not_in_a_chain() -> None:
    """Arrays that are not copied are bound again in each run."""
    runner = cut(line())
    x = np.random.default_rng(0).standard_normal((300, 300), np.float32)
    for _ in range(12):
        check(runner, x)
    begin = min(runner._chains, default=-1)
    assert begin != 0
    check(runner, X)
    check(runner, x)


def test_a_result_whose_size_depends_on_data() -> None:
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Abs", ["a"], ["b"]),
        node("NonZero", ["b"], ["i"]),
        node("Abs", ["i"], ["i2"]),
        node("Neg", ["i2"], ["i3"]),
    ]
    runner = cut(model_of(nodes, {"x": ["n"]}, {"i3": [1, "k"]}))
    random = np.random.default_rng(0)
    for turn in range(60):
        x = np.float32(random.integers(0, 2 if turn % 10 > 6 else 1, 5) + (turn % 10 < 5))
        np.testing.assert_array_equal(runner.run([x])[0], -np.array(np.nonzero(x)))


def test_an_error_in_a_chain_names_its_subgraph_and_the_next_run_is_right() -> None:
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Neg", ["a"], ["b"]),
        node("Gather", ["b", "i"], ["c"]),
        node("Neg", ["c"], ["y"]),
    ]
    runner = cut(model_of(nodes, {"x": ["n"], "i": ["k"]}, {"y": ["k"]}))
    x = np.float32([1, 2, 3])
    for turn in range(40):
        index = np.array([turn % 3, 0])
        np.testing.assert_array_equal(runner.run([x, index])[0], x[index])
        if turn == 17:
            assert chained(runner) == 4
        if turn % 10 == 9:
            with pytest.raises(hetero.InferenceError) as caught:
                runner.run([x, np.array([7, 0])])
            assert "in subgraph 3 on ORT" in "".join(caught.value.__notes__)
            assert len(caught.value.__notes__) == 1


def places(runner: ScheduleRunner) -> list[tuple[int, int]]:
    """The address ranges of the results that share memory."""
    ranges = []
    for each in runner._runners:
        if each._binding is not None:
            for value in each._binding._reused.values():
                if value.memory is not None:
                    ranges.append((value.value.data_ptr(), value.value.data_ptr() + value.nbytes))
    return ranges


def long_line(count: int) -> onnx.ModelProto:
    """x + 1 is read again at the end."""
    values = ["a", *(f"v{at}" for at in range(count))]
    nodes = [node("Sub", ["x", "minus"], ["a"])]
    nodes += [node("Neg", [values[at]], [values[at + 1]]) for at in range(count)]
    nodes.append(node("Add", [values[-1], "a"], ["y"]))
    proto = model_of(nodes, {"x": ["n"]}, {"y": ["n"]})
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([-1]), "minus"))
    return proto


def test_results_share_memory() -> None:
    runner = cut(long_line(10))
    for turn in range(12):
        x = np.full(100, turn, np.float32)
        np.testing.assert_array_equal(runner.run([x])[0], 2 * (x + 1))
    assert chained(runner) == 12
    ranges = places(runner)
    assert len(ranges) == 11
    assert max(end for _, end in ranges) - min(begin for begin, _ in ranges) == 2 * 448 + 400
    x = np.arange(7, dtype=np.float32)
    for _ in range(16):
        np.testing.assert_array_equal(runner.run([x])[0], 2 * (x + 1))
    assert chained(runner) == 12
    assert len(set(places(runner))) == 3


def test_results_that_onnxruntime_writes_elsewhere_do_not_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = HostBinding.place_results

    def ignoring(self: HostBinding, places: Any) -> None:
        bind(self, places)
        for position in places:
            self._binding.bind_output(self._outputs[position], self._host)

    monkeypatch.setattr(HostBinding, "place_results", ignoring)
    runner = cut(long_line(10))
    for turn in range(12):
        x = np.full(100, turn, np.float32)
        np.testing.assert_array_equal(runner.run([x])[0], 2 * (x + 1))
    assert chained(runner) == 12
    assert not places(runner)


def random_model(random: np.random.Generator) -> tuple[onnx.ModelProto, int]:
    """A model of nodes that read any of the values before them, some of them for the last time long after. Returns also
    its number of inputs."""
    num_inputs = int(random.integers(1, 4))
    values = [f"x{at}" for at in range(num_inputs)]
    nodes = []
    for at in range(int(random.integers(2, 16))):
        recent = values[-3:] if random.random() < 0.7 else values
        op, count = [("Neg", 1), ("Abs", 1), ("Add", 2), ("Mul", 2), ("Max", 3), ("Concat", 2)][random.integers(6)]
        reads = [str(name) for name in random.choice(recent, count)]
        made = f"v{at}"
        if op == "Concat":  # of another size than all other values, which a mean makes one row again
            nodes.append(node("Concat", reads, [f"{made}_both"], axis=0))
            nodes.append(node("ReduceMax", [f"{made}_both"], [made], axes=[0], keepdims=1))
        else:
            nodes.append(node(op, reads, [made]))
        values.append(made)
    outputs = {values[-1], *(str(name) for name in random.choice(values[num_inputs:], 2))}
    shapes = {name: [None, "n"] for name in outputs}
    return model_of(nodes, {name: [1, "n"] for name in values[:num_inputs]}, shapes), num_inputs


@pytest.mark.parametrize("seed", range(8))
def test_random_models(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(2):
        proto, num_inputs = random_model(random)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        whole = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        runner = cut(proto)
        kept = []
        for size in (8, 300, 8, 0, 1):
            for _ in range(9):
                inputs = [random.standard_normal((1, size)).astype(np.float32) for _ in range(num_inputs)]
                feed = {f"x{at}": x.copy() for at, x in enumerate(inputs)}
                kept.append((runner.run(inputs), whole.run(None, feed)))
                for x in inputs:
                    x[...] = np.nan
        for found, value in kept:
            for one, other in zip(found, value, strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_broken_chain_is_not_used_after_results_in_given_memory() -> None:
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Neg", ["a"], ["b"]),
        node("Gather", ["b", "i"], ["c"]),
        node("Neg", ["c"], ["y"]),
    ]
    runner = cut(model_of(nodes, {"x": ["n"], "i": ["k"]}, {"y": ["k"], "b": ["n"]}))
    for turn in range(40):
        x = np.full(3, turn, np.float32)
        place = np.zeros(8, np.uint8)
        results = runner.run_into([x, np.array([turn % 3, 0])], [place, place[:0]]) if turn % 10 == 0 else None
        for _ in range(2):
            results = runner.run([x, np.array([turn % 3, 0])]) if results is None else results
            np.testing.assert_array_equal(results[0], [turn, turn])
            results = None
        if turn % 10 == 9:
            assert runner._chains
            with pytest.raises(hetero.InferenceError):
                runner.run([x, np.array([7, 0])])


def test_results_in_given_memory() -> None:
    runner = cut(line())
    warm(runner, X)
    for turn in range(6):
        x = X + np.float32(turn)
        results = runner.run_into([x], [np.empty(24, np.uint8), np.empty(0, np.uint8)])
        for found, value in zip(results, expected(x), strict=True):
            np.testing.assert_allclose(found, value, 1e-6)
        check(runner, X[:1])
        check(runner, X)


def test_counters_and_parallel_steps_use_no_chains() -> None:
    timed = cut(line(), timed=True)
    warm(timed, X)
    assert not timed._chains
    assert {span.subgraph for span in timed.profile().spans} == {1, 2, 3, 4, 5}


def test_cancelled_in_a_chain() -> None:
    runner = cut(line())
    warm(runner, X)
    assert chained(runner) == 5
    runner.cancellation.request()
    with pytest.raises(hetero.errors.Cancelled):
        runner.run([X])
    runner.cancellation.clear()
    warm(runner, X)
    assert chained(runner) == 5


def test_two_runners_of_one_schedule_at_the_same_time() -> None:
    schedule = cut(line())._schedule
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            runner = ScheduleRunner(schedule)
            for turn in range(50):
                check(runner, X * np.float32(number + turn / 50))
            assert chained(runner) == 5
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
