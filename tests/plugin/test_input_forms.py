"""The forms in which callers may pass inputs and arrays for results: by name, position and port, and as lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from model_zoo import make_model

A = np.float32([[1, 2, 3]])
B = np.float32([[10, 20, 30]])


@pytest.fixture(params=["CPU", "HETERO:TEMPLATE,CPU", "MULTI:CPU,TEMPLATE"])
def compiled(request: pytest.FixtureRequest, core: hetero.Core) -> hetero.CompiledModel:
    """d = a - b, r = relu(d) with a: [n, 3], b: [n, 3]."""
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Relu", ["d"], ["r"])]
    return core.compile_model(make_model(nodes, {"a": ["n", 3], "b": ["n", 3]}, ["d", "r"]), request.param)


@pytest.fixture
def relu(core: hetero.Core) -> hetero.CompiledModel:
    return core.compile_model(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 3]}), "CPU")


def test_names_positions_ports_and_lists(compiled: hetero.CompiledModel) -> None:
    a, b = compiled.inputs
    request = compiled.create_infer_request()
    for inputs in (
        {"a": A, "b": B},
        {"b": B, "a": A},
        {0: A, 1: B},
        {np.int64(1): B, np.int32(0): A},
        {a: A, b: B},
        {b: B, 0: A},
        {"a": A, 1: B},
        [A, B],
        (A, B),
        [A.tolist(), B],
    ):
        for results in (compiled(inputs), request.infer(inputs)):  # twice: the second call may skip checks
            np.testing.assert_array_equal(results["d"], A - B)
        request.start_async(inputs)
        request.wait()
        np.testing.assert_array_equal(request.outputs["d"], A - B)
    assert next(compiled.map([[A, B]]))["d"][0, 0] == -9


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE", "MULTI:CPU", "AUTO:CPU"])
def test_a_model_without_inputs_needs_none(core: hetero.Core, device: str) -> None:
    compiled = core.compile_model(make_model([helper.make_node("Constant", [], ["y"], value_float=2.0)], {}), device)
    request = compiled.create_infer_request()
    request.start_async()
    request.wait()
    for outputs in (compiled(), compiled(), request.infer(), request.infer(), compiled.submit().result(), compiled({})):
        assert outputs["y"] == 2


def test_inputs_that_are_left_out_are_missing(relu: hetero.CompiledModel) -> None:
    request = relu.create_infer_request()
    for call in (relu, request.infer, request.start_async, lambda: relu.submit().result()):
        with pytest.raises(hetero.InferenceError, match="input 'x' is missing"):
            call()


@pytest.mark.parametrize("device", ["CPU", "ORT", "HETERO:CPU,TEMPLATE", "HETERO:ORT,CPU", "MULTI:CPU,ORT"])
def test_after_calls_that_skip_checks(core: hetero.Core, device: str) -> None:
    """A request that repeats a run checks inputs of another form."""
    if "ORT" in device:
        pytest.importorskip("onnxruntime")
    model = make_model([helper.make_node("Sub", ["a", "b"], ["d"])], {"a": ["n", 3], "b": ["n", 3]}, ["d"])
    request = core.compile_model(model, device).create_infer_request()
    for inputs in ([A, B], (A, B), {0: A, 1: B}, {"a": A, 1: B}):
        for form in ({"a": A, "b": B}, {"a": A, "b": B}, inputs, inputs, {"a": A, "b": B}):
            np.testing.assert_array_equal(request.infer(form)["d"], A - B)
    for wrong in (A, [A], [], [A, B, A], {"a": A}, {0: A}):
        request.infer({"a": A, "b": B})
        with pytest.raises(hetero.InferenceError, match="is missing|expected a mapping|one for each input"):
            request.infer(wrong)


def test_results_by_port(compiled: hetero.CompiledModel) -> None:
    outputs = compiled([A, B])
    d, r = compiled.outputs
    assert outputs[d] is outputs["d"] is outputs[0]
    assert outputs[r] is outputs["r"]
    with pytest.raises(hetero.UnknownOutput, match="no output 'a'"):
        outputs[compiled.inputs[0]]


def test_arrays_for_results(compiled: hetero.CompiledModel) -> None:
    d = compiled.outputs[0]
    for out in ({0: np.empty_like(A)}, {d: np.empty_like(A)}, {"d": np.empty_like(A)}, [np.empty_like(A), None]):
        given = out[0] if isinstance(out, list) else next(iter(out.values()))
        assert compiled([A, B], out)["d"] is given
        np.testing.assert_array_equal(given, A - B)
    with pytest.raises(hetero.InferenceError, match="output 'd' has two values"):
        compiled([A, B], {0: np.empty_like(A), "d": np.empty_like(A)})
    with pytest.raises(hetero.InferenceError, match="no output 7"):
        compiled([A, B], {7: np.empty_like(A)})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({0: A, "a": A, 1: B}, "input 'a' has two values"),
        ({0: A, 2: B}, "input 'b' is missing|no input 2"),
        ({0: A, -1: B}, "no input -1"),
        ({0: A, True: B}, "no input True"),
        ({0: A, 1.0: B}, "no input 1.0"),
        ([A], "input 'b' is missing"),
        ([], "input 'a' is missing"),
        ([A, B, A], "expected up to 2 arrays, one for each input, found 3"),
        (np.stack([A, B]), "expected a mapping from input name to array .inputs: a, b., found one array"),
    ],
)
def test_refused(compiled: hetero.CompiledModel, inputs: Any, message: str) -> None:
    with pytest.raises(hetero.InferenceError, match=message):
        compiled(inputs)


def test_inputs_as_keywords_are_refused(compiled: hetero.CompiledModel) -> None:
    """`out` is a keyword of the call, so an input of this name would be ambiguous."""
    with pytest.raises(hetero.InferenceError, match=r"write compiled\({'a': …}\)"):
        compiled(a=A, b=B)  # type: ignore[arg-type]


class ArrayLike:
    ndim = 2

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


def test_keywords_that_are_not_inputs(compiled: hetero.CompiledModel) -> None:
    with pytest.raises(hetero.InferenceError, match="accepts no argument 'share_inputs', and the model has no input"):
        compiled({"a": A, "b": B}, share_inputs=True)  # type: ignore[arg-type]


def test_data_for_a_callback(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    with pytest.raises(TypeError, match=r"write set_callback\(functools\.partial\(callback, data\)\)"):
        request.set_callback(print, 3)  # type: ignore[arg-type]


def test_one_input(relu: hetero.CompiledModel) -> None:
    """A list is the value of the only input, unless it holds one array of the rank of the input."""
    for inputs in (A, {0: A}, [A], (A,), [ArrayLike(A)], A.tolist(), [A[0]], tuple(A.tolist())):
        np.testing.assert_array_equal(relu(inputs)["y"], A)
    np.testing.assert_array_equal(relu([A[0], B[0]])["y"], np.concatenate([A, B]))
    np.testing.assert_array_equal(relu([A[0][:0].reshape(0, 3)])["y"], np.empty((0, 3), np.float32))
    for wrong in ([A, B], [A[None]], [[A]]):
        with pytest.raises(hetero.InferenceError, match="expected float32 .n, 3., found shape"):
            relu(wrong)


def test_one_input_of_unknown_rank(core: hetero.Core) -> None:
    """A list can only be the value."""
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, None))
    assert core.compile_model(model, "CPU")([A])["y"].shape == (1, 1, 3)


def test_one_scalar(core: hetero.Core) -> None:
    compiled = core.compile_model(make_model([helper.make_node("Neg", ["x"], ["y"])], {"x": []}), "CPU")
    for inputs in (2.0, 2, np.float32(2), np.array(2, np.float32), [np.float32(2)], {0: 2}):
        assert compiled(inputs)["y"] == -2


def test_a_sequence_of_tensors(core: hetero.Core) -> None:
    """A list is the value of an input that is a sequence."""
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)],
        "g",
        [sequence],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    compiled = core.compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "TEMPLATE")
    for arrays in ([A], [A, B]):
        np.testing.assert_array_equal(compiled(arrays)["y"], np.concatenate(arrays))
        np.testing.assert_array_equal(compiled({0: arrays})["y"], np.concatenate(arrays))


def test_default_inputs_may_be_left_out_of_a_list(core: hetero.Core) -> None:
    model = core.read_model(
        make_model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": [3], "b": [3]}, weights={"b": B[0]})
    )
    compiled = core.compile_model(model.with_inputs(["b"]), "CPU")
    np.testing.assert_array_equal(compiled([A[0], A[0]])["y"], 2 * A[0])
    for inputs in ([A[0]], {0: A[0]}):
        np.testing.assert_array_equal(compiled(inputs)["y"], A[0] + B[0])


def test_stateful_requests(core: hetero.Core) -> None:
    """Positions count the inputs and outputs that are no states."""
    nodes = [helper.make_node("Add", ["s_in", "x"], ["s_out"]), helper.make_node("Mul", ["s_out", "f"], ["y"])]
    model = make_model(nodes, {"s_in": [3], "x": [3], "f": [3]}, ["s_out", "y"])
    compiled = core.compile_model(model, "CPU")
    x, two = A[0], np.full(3, 2, np.float32)
    request = compiled.create_stateful_request()
    out = np.empty_like(x)
    for number, inputs in enumerate(([x, two], {0: x, 1: two}, {"x": x, compiled.inputs[2]: two}), 1):
        np.testing.assert_array_equal(request.infer(inputs, {0: out})["y"], 2 * number * x)
    with pytest.raises(hetero.InferenceError, match="'s_in' is a state"):
        request.infer({compiled.inputs[0]: x, "x": x, "f": two})


def test_latency(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    assert request.latency_ms is None
    seen: list[float | None] = []
    request.set_callback(lambda error: seen.append(request.latency_ms))
    request.start_async([A, B])
    request.wait()
    assert request.latency_ms is not None
    assert 0 < request.latency_ms < 60_000
    assert seen == [request.latency_ms]


@pytest.mark.parametrize("names", [None, [], ["y"], ("y",)])
def test_the_arguments_of_an_onnxruntime_session(core: hetero.Core, names: Any) -> None:
    compiled = core.compile_model(make_model([helper.make_node("Relu", ["x"], ["y"])]))
    with pytest.raises(hetero.InferenceError, match=r"write compiled\(\{'x': …\}\); the result has all outputs"):
        compiled(names, {"x": np.ones((2, 3), np.float32)})
    with pytest.raises(hetero.InferenceError, match="expected float32"):
        compiled(names, {"y": np.ones((2, 3), np.float32)})
