"""Values that pass from one session to another stay ``OrtValue`` objects, and small ones keep their memory."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.compiling.hetero_model import schedule_of
from hetero.devices.ort import OrtPlugin, backend, binding
from hetero.devices.ort.binding import OrtHostValue
from hetero.plugin.executor import DeviceExecutors
from hetero.runtime.schedule import ScheduleRunner

onnxruntime = pytest.importorskip("onnxruntime")

node = helper.make_node


def cut(proto: onnx.ModelProto, parts: list[list[int]], config: dict[str, Any] | None = None) -> ScheduleRunner:
    """The runner of a model in subgraphs with these nodes, each a session."""
    plugin = OrtPlugin()
    model = hetero.Core().read_model(proto)
    models = model.extract_all([np.int32(part) for part in parts], [f"part{at}" for at in range(len(parts))])
    compiled = [plugin.compile_model(part, {"INFERENCE_NUM_THREADS": 1, **(config or {})}) for part in models]
    pairs = list(zip(models, compiled, strict=True))
    return ScheduleRunner(schedule_of(model, pairs, DeviceExecutors(plugin.executors)))


def whole(proto: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([port.name for port in session.get_inputs()], inputs, strict=True)))  # type: ignore[no-any-return]


def small(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> onnx.ModelProto:
    """``inputs``, ``outputs``: name -> element type and shape."""
    ports = [
        [helper.make_tensor_value_info(name, *type_) for name, type_ in each.items()] for each in (inputs, outputs)
    ]
    for at, each in enumerate(nodes):
        each.name = f"n{at}"
    graph = helper.make_graph(nodes, "g", *ports)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers() -> onnx.ModelProto:
    """A value is read twice, one is also an output, and one is a constant of its subgraph."""
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Add", ["a", "one"], ["b"]),
        node("Shape", ["b"], ["s"]),
        node("Mul", ["b", "a"], ["c"]),
        node("Reshape", ["c", "s"], ["y"]),
        node("Neg", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m"]) for name in ("z", "b")],
        [onnx.numpy_helper.from_array(np.float32([1]), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


PARTS = [[0], [1], [2, 3], [4], [5]]
AT_THE_LIMIT = ((256, 256), (256, 256), (256, 257), (256, 257), (256, 256), (256, 256))  # 256 KiB is copied


def test_results_are_those_of_one_session_and_the_callers_own() -> None:
    runner = cut(layers(), PARTS)
    random = np.random.default_rng(0)
    earlier = []
    for shape in ((2, 3), (2, 3), (2, 3), (4, 1), (0, 3), (2, 3), (600, 700), (600, 700), (1, 1), *AT_THE_LIMIT):
        x = random.standard_normal(shape).astype(np.float32)
        results = list(runner.run([x]))
        expected = whole(layers(), [x])
        earlier.append((results, expected, x, x.copy()))
        for results, expected, x, before in earlier:
            np.testing.assert_array_equal(x, before)
            for result, value in zip(results, expected, strict=True):
                np.testing.assert_allclose(result, value, 1e-6)
                assert result.dtype == value.dtype


def test_values_between_sessions_keep_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = cut(layers(), PARTS)
    bound: list[Any] = []
    taken = binding.HostBinding._bind
    monkeypatch.setattr(binding.HostBinding, "_bind", lambda self, inputs: bound.append(inputs) or taken(self, inputs))
    x = np.ones((2, 3), np.float32)
    first = runner.run([x])
    assert len(bound) == len(PARTS)
    assert any(isinstance(value, OrtHostValue) for value in bound[2])
    runner.run([x])
    bound.clear()
    runner.run([x])
    assert not bound
    np.testing.assert_allclose(first[0], whole(layers(), [x])[0], 1e-6)
    x = np.ones((256, 257), np.float32)
    runner.run([x])
    runner.run([x])
    bound.clear()
    results = runner.run([x])
    # Left to bind: the steps that read a large array (x, and b, which the caller gets) or give one to the caller.
    assert 0 < len(bound) < len(PARTS)
    for result, value in zip(results, whole(layers(), [x]), strict=True):
        np.testing.assert_allclose(result, value, 1e-6)


@pytest.mark.parametrize("shape", [(2, 3), (300, 300)])
def test_callers_may_change_what_they_gave_and_got(shape: tuple[int, int]) -> None:
    runner = cut(layers(), PARTS)
    random = np.random.default_rng(0)
    held: list[tuple[np.ndarray, np.ndarray]] = []
    x = np.empty(shape, np.float32)
    for number in range(8):
        x[...] = random.standard_normal(shape)  # the same array, also not contiguous
        value = x if number % 2 else np.asfortranarray(x)
        expected = whole(layers(), [x])
        held += zip(runner.run([value]), expected, strict=True)
        held[0][0][...] = held[0][1][...] = number
        for result, wanted in held:
            np.testing.assert_allclose(result, wanted, 1e-6)


def test_views_and_other_strides() -> None:
    runner = cut(layers(), PARTS)
    wide = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    for x in (wide[::2, ::-1], wide.T, np.broadcast_to(wide[:1, :1], (3, 4)), wide):
        for result, value in zip(runner.run([x]), whole(layers(), [np.ascontiguousarray(x)]), strict=True):
            np.testing.assert_allclose(result, value, 1e-6)


def test_sizes_that_depend_on_data() -> None:
    """The shapes of the inputs are the same, those of the values between the sessions are not."""
    nodes = [node("NonZero", ["x"], ["at"]), node("Neg", ["at"], ["n"]), node("Neg", ["n"], ["y"])]
    proto = small(nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.INT64, [1, None])})
    runner = cut(proto, [[0], [1], [2]])
    for x in ([1, 0, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 1]):
        (y,) = runner.run([np.float32(x)])
        np.testing.assert_array_equal(y, np.nonzero(x))


def test_types_without_arrays_in_numpy() -> None:
    """bfloat16, between sessions and at the model's ports."""
    nodes = [
        node("Cast", ["x"], ["a"], to=TensorProto.BFLOAT16),
        node("Identity", ["a"], ["b"]),
        node("Cast", ["b"], ["c"], to=TensorProto.FLOAT),
        node("Neg", ["c"], ["y"]),
    ]
    proto = small(nodes, inputs={"x": (TensorProto.FLOAT, ["n"])}, outputs={"y": (TensorProto.FLOAT, ["n"])})
    runner = cut(proto, [[0], [1], [2], [3]])
    for x in (np.float32([1, -2.5]), np.float32([4, 8]), np.float32([0.5])):
        np.testing.assert_array_equal(runner.run([x])[0], -x)


def test_an_error_leaves_the_runner_usable() -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Reshape", ["a", "s"], ["b"]), node("Neg", ["b"], ["y"])]
    proto = small(
        nodes,
        inputs={"x": (TensorProto.FLOAT, ["n"]), "s": (TensorProto.INT64, [2])},
        outputs={"y": (TensorProto.FLOAT, [None, None])},
    )
    runner = cut(proto, [[0], [1], [2]])
    x = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (2, 3), (3, 2), (6, 1)):
        np.testing.assert_array_equal(runner.run([x, np.int64(shape)])[0], x.reshape(shape))
        with pytest.raises(hetero.InferenceError, match="node 'n1'|Reshape|reshape"):
            runner.run([x, np.int64([4, 4])])


def test_subgraphs_without_results() -> None:
    """A node that nobody reads is a subgraph of its own."""
    nodes = [node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Abs", ["a"], ["y"])]
    type_ = (TensorProto.FLOAT, ["n"])
    runner = cut(small(nodes, {"x": type_}, {"y": type_}), [[0], [1], [2]])
    for x in (np.float32([1, -2]), np.float32([1, -2]), np.float32([3])):
        np.testing.assert_array_equal(runner.run([x])[0], np.abs(x))


def test_counted_models_exchange_arrays() -> None:
    runner = cut(layers(), PARTS, {"PERF_COUNT": True})
    assert all(not positions for positions in runner._schedule.placement.kept)


class Public:
    """onnxruntime whose sessions hide their C++ parts."""

    def __getattr__(self, name: str) -> Any:
        return getattr(onnxruntime, name)

    def InferenceSession(self, *arguments: Any, **options: Any) -> Any:
        session = onnxruntime.InferenceSession(*arguments, **options)
        names = ("run", "run_with_ort_values", "get_inputs", "get_outputs", "get_providers", "end_profiling")
        return types.SimpleNamespace(**{name: getattr(session, name) for name in names})


def test_a_version_that_hides_its_inner_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Public()
    monkeypatch.setattr(backend, "load", lambda: shown)
    runner = cut(layers(), PARTS)
    assert all(not positions for positions in runner._schedule.placement.kept)
    x = np.ones((2, 3), np.float32)
    for _ in range(2):
        for result, value in zip(runner.run([x]), whole(layers(), [x]), strict=True):
            np.testing.assert_allclose(result, value, 1e-6)
    proto = small(
        [node("Identity", ["x"], ["y"])],
        inputs={"x": (TensorProto.BFLOAT16, ["n"])},
        outputs={"y": (TensorProto.BFLOAT16, ["n"])},
    )
    import ml_dtypes

    x = np.array([1, 2.5], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(cut(proto, [[0]]).run([x])[0], x)
