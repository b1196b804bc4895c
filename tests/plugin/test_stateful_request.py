"""Requests with state, compared with loops that pass the states through arrays of the caller."""

from __future__ import annotations

import functools
import re
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from cached_decoder import VOCABULARY, cached_decoder, empty_cache, host_loop
from hetero.plugin.remote import HostTensor, RemoteTensor
from island import DEVICE_TYPE, IslandPlugin, Sea
from model_zoo import make_model

onnxruntime = pytest.importorskip("onnxruntime")

node = helper.make_node
DEVICES = ("CPU", "ORT", "TEMPLATE", "HETERO:CPU,ORT")
TOKENS = [np.array([[1, 2, 3]]), np.array([[7]]), np.array([[11, 5]]), np.array([[9]])]
X = np.float32([[1, -2, 3], [-4, 5, -6]])
ZERO = np.zeros_like(X)


@functools.cache
def decoder() -> onnx.ModelProto:
    return cached_decoder()


@functools.cache
def expected() -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    session = onnxruntime.InferenceSession(decoder().SerializeToString(), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return host_loop(
        lambda feed: dict(zip(names, session.run(None, dict(feed)), strict=True)), empty_cache(decoder()), TOKENS
    )


def compiled_decoder(core: hetero.Core, device: str, **config: Any) -> hetero.CompiledModel:
    model = core.read_model(decoder())
    if not device.startswith("HETERO"):
        return core.compile_model(model, device, config)
    first, second = device.removeprefix("HETERO:").split(",")
    pins = {each.name: second if each.name.startswith("1.") else first for each in model.nodes}
    compiled = core.compile_model(model, device, config, pins=pins)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") >= 2
    return compiled


@pytest.fixture(params=DEVICES)
def compiled(request: pytest.FixtureRequest, core: hetero.Core) -> hetero.CompiledModel:
    return compiled_decoder(core, request.param)


def in_a_loop(compiled: hetero.CompiledModel, tokens: list[np.ndarray] = TOKENS) -> list[np.ndarray]:
    """The logits, with the cache in the caller's arrays, on the same device."""

    def run(feed: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(compiled(dict(feed)).items())

    return host_loop(run, empty_cache(decoder()), tokens)[0]


def accumulator(shape: tuple[Any, ...] = ("n", 3), output: tuple[Any, ...] | None = None) -> onnx.ModelProto:
    """s_out = s_in + x, y = -s_out."""
    nodes = [node("Add", ["s_in", "x"], ["s_out"], name="add"), node("Neg", ["s_out"], ["y"], name="neg")]
    proto = make_model(nodes, {"x": ["n", 3], "s_in": list(shape)}, ["y", "s_out"])
    if output is not None:
        proto.graph.output[1].CopyFrom(helper.make_tensor_value_info("s_out", TensorProto.FLOAT, list(output)))
    return proto


def stateful(core: hetero.Core, proto: onnx.ModelProto, device: str = "CPU", **arguments: Any) -> Any:
    return core.compile_model(core.read_model(proto), device).create_stateful_request(**arguments)


# -- a growing cache --------------------------------------------------------------------------------------------------


def test_a_growing_cache(compiled: hetero.CompiledModel) -> None:
    logits, cache = expected()
    same_device = in_a_loop(compiled)
    request = compiled.create_stateful_request()
    assert request.states["present.1.value"] == "past_key_values.1.value"
    assert len(request.states) == 4
    for _ in range(2):
        for ids, exact, value in zip(TOKENS, same_device, logits, strict=True):
            outputs = request.infer({"input_ids": ids})
            assert list(outputs.keys()) == ["logits"]
            np.testing.assert_array_equal(outputs["logits"], exact)
            np.testing.assert_allclose(outputs[0], value, 1e-4, 1e-5)
        snapshot = request.snapshot_state()
        assert list(snapshot) == list(cache)
        for name, value in cache.items():
            np.testing.assert_allclose(snapshot[name], value, 1e-4, 1e-5)
        request.reset_state()


def test_the_batch_of_the_first_call_sizes_the_states(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_stateful_request()
    batch = [np.concatenate([ids, (ids + 3) % VOCABULARY]) for ids in TOKENS[:2]]
    for ids in batch:
        outputs = request.infer(ids)
    assert request.snapshot_state()["past_key_values.0.key"].shape == (2, 4, 4, 8)
    for row in range(2):
        alone = in_a_loop(compiled, [np.ascontiguousarray(ids[row : row + 1]) for ids in batch])
        np.testing.assert_allclose(outputs[0][row], alone[-1][0], 1e-4, 1e-5)
    with pytest.raises(hetero.InferenceError, match="batch"):
        request.infer(TOKENS[0])  # another batch
    request.reset_state()
    request.infer(TOKENS[0])
    assert request.snapshot_state()["past_key_values.0.key"].shape == (1, 4, 3, 8)


def test_forks_are_independent(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_stateful_request()
    request.infer(TOKENS[0])
    twin = request.fork()
    left = [request.infer(ids)[0] for ids in TOKENS[1:]]
    other = [np.array([[20]]), np.array([[21]])]
    right = [twin.infer(ids)[0] for ids in other]
    third = twin.fork()
    twin.reset_state()
    right.append(third.infer(np.array([[22]]))[0])
    for made, loop in (
        (left, in_a_loop(compiled)),
        (right, in_a_loop(compiled, [TOKENS[0], *other, np.array([[22]])])),
        ([twin.infer(TOKENS[3])[0]], in_a_loop(compiled, [TOKENS[3]])),
    ):
        for value, exact in zip(made, loop[-len(made) :], strict=True):
            np.testing.assert_array_equal(value, exact)


def test_snapshots_do_not_change(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_stateful_request()
    request.infer(TOKENS[0])
    snapshot = request.snapshot_state()
    before = {name: value.copy() for name, value in snapshot.items()}
    first = [request.infer(ids)[0] for ids in TOKENS[1:]]
    for value in snapshot.values():
        value[...] = 7  # a copy
    for name, value in snapshot.items():
        np.testing.assert_array_equal(value, before[name])
    twin = compiled.create_stateful_request()
    by_array = compiled.create_stateful_request(initial=before)
    for value in before.values():
        value[...] = 7  # copied too
    for each, values in ((request, snapshot), (twin, snapshot), (twin, dict(snapshot)), (by_array, None)):
        if values is not None:
            each.restore_state(values)
        for ids, value in zip(TOKENS[1:], first, strict=True):
            np.testing.assert_array_equal(each.infer(ids)[0], value)
    by_array.reset_state()  # to `initial`
    np.testing.assert_array_equal(by_array.infer(TOKENS[1])[0], first[0])


def test_beams_in_one_batch(compiled: hetero.CompiledModel) -> None:
    """Beam search gathers the rows of the states."""
    request = compiled.create_stateful_request()
    request.infer(np.array([[1, 2], [3, 4]]))
    order = np.array([1, 1])
    request.restore_state({name: value[order] for name, value in request.snapshot_state().items()})
    made = request.infer(np.array([[5], [6]]))[0]
    for row, token in enumerate((5, 6)):
        alone = in_a_loop(compiled, [np.array([[3, 4]]), np.array([[token]])])[-1]
        np.testing.assert_allclose(made[row], alone[0], 1e-4, 1e-5)


def test_asynchronous(compiled: hetero.CompiledModel) -> None:
    exact = in_a_loop(compiled)
    request = compiled.create_stateful_request()
    for ids, value in zip(TOKENS, exact, strict=True):
        request.start_async(ids)
        assert request.wait(60_000)
        assert list(request.outputs.keys()) == ["logits"]
        np.testing.assert_array_equal(request.outputs[0], value)
    request.reset_state()
    logits: list[np.ndarray] = []
    done = threading.Event()

    def go_on(error: BaseException | None) -> None:
        assert error is None
        logits.append(request.outputs[0])
        if len(logits) < len(TOKENS):
            request.start_async(TOKENS[len(logits)])
        else:
            done.set()

    request.set_callback(go_on)
    request.start_async(TOKENS[0])
    assert done.wait(60)
    for value, wanted in zip(logits, exact, strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_a_failed_inference_keeps_the_states(compiled: hetero.CompiledModel) -> None:
    exact = in_a_loop(compiled)
    request = compiled.create_stateful_request()
    request.infer(TOKENS[0])
    before = dict(request.snapshot_state())
    wrong = np.array([[VOCABULARY + 1]])  # no such token
    with pytest.raises(hetero.InferenceError):
        request.infer(wrong)
    request.start_async(wrong)
    with pytest.raises(hetero.InferenceError):
        request.wait()
    for name, value in request.snapshot_state().items():
        np.testing.assert_array_equal(value, before[name])
    np.testing.assert_array_equal(request.infer(TOKENS[1])[0], exact[1])


def test_a_failure_in_the_last_subgraph_keeps_the_states(core: hetero.Core) -> None:
    nodes = [
        node("Add", ["s_in", "x"], ["s_out"], name="add"),
        node("Gather", ["s_out", "at"], ["y"], name="gather"),
    ]
    proto = make_model(nodes, {"x": ["n"], "s_in": ["n"], "at": [1]}, ["s_out", "y"])
    proto.graph.input[2].CopyFrom(helper.make_tensor_value_info("at", TensorProto.INT64, [1]))
    model = core.read_model(proto)
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", pins={"add": "CPU", "gather": "TEMPLATE"})
    request = compiled.create_stateful_request()
    x, last = np.ones(3, np.float32), np.array([2])
    request.infer({"x": x, "at": last})
    with pytest.raises(hetero.InferenceError, match="gather"):
        request.infer({"x": x, "at": np.array([3])})
    np.testing.assert_array_equal(request.infer({"x": x, "at": last})["y"], [2])


# -- who may change what ----------------------------------------------------------------------------------------------

ALIASES = {
    "the output is the state": [node("Add", ["s_in", "x"], ["s_out"]), node("Identity", ["s_out"], ["y"])],
    "the output is the previous state": [node("Add", ["s_in", "x"], ["s_out"]), node("Identity", ["s_in"], ["y"])],
    "the state passes through": [node("Identity", ["s_in"], ["s_out"]), node("Add", ["s_in", "x"], ["y"])],
    "the state is the input": [node("Identity", ["x"], ["s_out"]), node("Add", ["s_in", "x"], ["y"])],
    "the state is a constant": [node("Identity", ["c"], ["s_out"]), node("Add", ["s_in", "x"], ["y"])],
    "views": [
        node("Reshape", ["s_in", "flat"], ["f"]),
        node("Reshape", ["f", "back"], ["s_out"]),
        node("Reshape", ["s_out", "flat"], ["y"]),
    ],
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("device", [*DEVICES, "ISLAND"])
@pytest.mark.parametrize("order", [["y", "s_out"], ["s_out", "y"]])
@pytest.mark.parametrize("case", ALIASES)
@pytest.mark.parametrize("given", [False, True])
def test_callers_cannot_change_a_state(
    core: hetero.Core, case: str, order: list[str], device: str, given: bool
) -> None:
    if device == "ISLAND":
        if case == "views":
            pytest.skip("ISLAND has no Reshape")
        core.register_plugin("ISLAND", IslandPlugin)
    weights = {"c": np.float32([[1, 2, 3], [4, 5, 6]]), "flat": np.array([6]), "back": np.array([2, 3])}
    proto = make_model(ALIASES[case], {"x": [2, 3], "s_in": [2, 3]}, order, weights)
    twin = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    request = stateful(core, proto, device, initial={"s_in": X})
    state = X.copy()
    for step in range(4):
        x = X * step + 1
        y, state = twin.run(["y", "s_out"], {"x": x, "s_in": state})
        made = request.infer({"x": x}, out=[np.empty_like(y)] if given else None)["y"]
        np.testing.assert_array_equal(made, y)
        made[...] = x[...] = np.nan
        np.testing.assert_array_equal(request.snapshot_state()["s_in"], state)


def test_states_that_pass_through_are_not_copied(core: hetero.Core) -> None:
    core.register_plugin("ISLAND", IslandPlugin)
    nodes = [node("Identity", ["s_in"], ["s_out"]), node("Add", ["s_in", "x"], ["y"])]
    request = stateful(core, make_model(nodes, {"x": [2, 3], "s_in": [2, 3]}, ["y", "s_out"]), "ISLAND")
    request.infer(X)
    (first,) = request._values.current
    request.infer(X)
    (second,) = request._values.current
    assert second is not first
    assert second.address_range == first.address_range


def test_states_from_tensors_of_other_libraries(core: hetero.Core) -> None:
    """They are read where they are, and copied there: the owner may change them."""

    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array

        def __dlpack_device__(self) -> tuple[int, int]:
            return DEVICE_TYPE, 0

    sea = Sea()
    core.register_plugin("ISLAND", lambda: IslandPlugin(sea))
    nodes = [node("Add", ["s_in", "x"], ["s_out"]), node("Neg", ["s_out"], ["y"])]
    first, second = X.copy(), X * 3
    proto = make_model(nodes, {"x": [2, 3], "s_in": [2, 3]}, ["y", "s_out"])
    request = stateful(core, proto, "ISLAND", initial={"s_in": Foreign(first)})
    first[...] = 0
    np.testing.assert_array_equal(request.infer(X)["y"], -2 * X)
    request.restore_state({"s_in": Foreign(second)})
    second[...] = 0
    sea.uploaded.clear()
    np.testing.assert_array_equal(request.infer(X)["y"], -4 * X)
    assert sea.uploaded == [X.nbytes]  # only x
    request.reset_state()
    np.testing.assert_array_equal(request.snapshot_state()["s_in"], X)


@pytest.mark.parametrize("device", DEVICES)
def test_states_may_change_places(core: hetero.Core, device: str) -> None:
    nodes = [node("Add", ["a", "x"], ["p"]), node("Neg", ["b"], ["q"])]
    proto = make_model(nodes, {"a": [2, 3], "x": [2, 3], "b": [2, 3]}, ["p", "q"])
    request = stateful(core, proto, device, states={"p": "b", "q": "a"}, initial={"b": X})
    a, b = ZERO, X
    for step in range(4):
        assert len(request.infer(X + step)) == 0
        a, b = -b, a + X + step
        np.testing.assert_array_equal(request.snapshot_state()["a"], a)
        np.testing.assert_array_equal(request.snapshot_state()["b"], b)


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), ()])
@pytest.mark.parametrize("device", DEVICES)
def test_empty_states_and_scalars(core: hetero.Core, device: str, shape: tuple[int, ...]) -> None:
    proto = make_model([node("Add", ["s_in", "x"], ["s_out"])], {"x": shape, "s_in": shape}, ["s_out"])
    request = stateful(core, proto, device)
    for _ in range(3):
        request.infer(np.ones(shape, np.float32))
    np.testing.assert_array_equal(request.snapshot_state()["s_in"], np.full(shape, 3, np.float32))


@pytest.mark.parametrize(
    ("device", "config"),
    [
        ("MULTI:CPU,ORT", {}),
        ("AUTO:CPU,ORT", {}),
        ("HETERO:CPU,ORT", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}),
        pytest.param("CPU", {"ISOLATION": "PROCESS"}, marks=pytest.mark.slow),
    ],
)
def test_other_ways_to_run(core: hetero.Core, device: str, config: dict[str, Any]) -> None:
    compiled = core.compile_model(core.read_model(decoder()), device, config)
    requests = [compiled.create_stateful_request() for _ in range(3)]
    sequences = [[(ids + number) % VOCABULARY for ids in TOKENS] for number in range(3)]
    exact = [in_a_loop(compiled, tokens) for tokens in sequences]
    for step in range(len(TOKENS)):
        for request, tokens in zip(requests, sequences, strict=True):
            request.start_async(tokens[step])
        for request, logits in zip(requests, exact, strict=True):
            request.wait()
            np.testing.assert_allclose(request.outputs[0], logits[step], 1e-4, 1e-5)


def test_two_threads_on_one_request(core: hetero.Core) -> None:
    """No inference reads a state that another one replaces meanwhile."""
    request = stateful(core, accumulator())
    one, done = np.ones((4, 3), np.float32), [0, 0]

    def work(number: int) -> None:
        for _ in range(300):
            try:
                request.infer(one)
            except hetero.InferenceError as error:
                assert "busy" in str(error)  # noqa: PT017
            else:
                done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(done) > 0
    np.testing.assert_array_equal(request.snapshot_state()["s_in"], one * sum(done))


def test_a_busy_request_keeps_its_states(core: hetero.Core) -> None:
    request = stateful(core, accumulator())
    request.infer(X)
    inside, go = threading.Event(), threading.Event()
    runner = request._runner
    run = runner.run

    def slow(*arguments: Any) -> Any:
        inside.set()
        assert go.wait(60)
        return run(*arguments)

    runner.run = slow
    request.start_async(X)
    assert inside.wait(60)
    for work in (
        request.reset_state,
        request.snapshot_state,
        request.fork,
        lambda: request.restore_state({"s_in": ZERO}),
        lambda: request.infer(X),
        lambda: request.start_async(X),
    ):
        with pytest.raises(hetero.InferenceError, match="busy"):
            work()
    request.cancel()  # too late to stop the run
    go.set()
    with pytest.raises(hetero.Cancelled):
        request.wait()
    np.testing.assert_array_equal(request.snapshot_state()["s_in"], X)


def test_a_callback_that_fails_does_not_undo_the_inference(core: hetero.Core) -> None:
    request = stateful(core, accumulator())

    def fail(error: BaseException | None) -> None:
        raise ValueError("no")

    request.set_callback(fail)
    request.start_async(X)
    with pytest.raises(hetero.InferenceError, match="callback"):
        request.wait()
    np.testing.assert_array_equal(request.snapshot_state()["s_in"], X)


# -- a device with its own memory -------------------------------------------------------------------------------------


def test_states_stay_on_their_device(core: hetero.Core) -> None:
    sea = Sea()
    core.register_plugin("ISLAND", lambda: IslandPlugin(sea))
    request = stateful(core, accumulator(), "ISLAND", initial={"s_in": X})
    for step in range(1, 4):
        np.testing.assert_array_equal(request.infer(X)["y"], -X * (step + 1))
        # x and y; the initial state only once
        assert (sea.uploaded, sea.downloaded) == ([24, 24] if step == 1 else [24], [24])
        sea.uploaded.clear()
        sea.downloaded.clear()
    twin, snapshot = request.fork(), request.snapshot_state()
    request.reset_state()
    assert (sea.uploaded, sea.downloaded) == ([], [])
    np.testing.assert_array_equal(snapshot["s_in"], 4 * X)
    np.testing.assert_array_equal(twin.infer(X, out=hetero.ON_DEVICE)["y"].numpy(), -5 * X)
    np.testing.assert_array_equal(request.infer(X)["y"], -2 * X)
    elsewhere = stateful(core, accumulator(), "CPU")
    elsewhere.restore_state(snapshot)
    np.testing.assert_array_equal(elsewhere.infer(X)["y"], -5 * X)
    twin.restore_state(elsewhere.snapshot_state())
    np.testing.assert_array_equal(twin.infer(X)["y"], -6 * X)


def test_tensors_of_the_caller_are_copied_on_the_device(core: hetero.Core) -> None:
    sea = Sea()
    core.register_plugin("ISLAND", lambda: IslandPlugin(sea))
    tensor = sea.upload(X)
    sea.uploaded.clear()
    request = stateful(core, accumulator(), "ISLAND", initial={"s_in": tensor})
    tensor.secret[...] = np.nan
    np.testing.assert_array_equal(request.infer(X)["y"], -2 * X)
    assert sea.uploaded == [24]  # x


def test_out_of_device_memory_keeps_the_states(core: hetero.Core) -> None:
    sea = Sea()
    core.register_plugin("ISLAND", lambda: IslandPlugin(sea))
    request = stateful(core, accumulator(), "ISLAND")
    request.infer(X)
    sea.capacity = sea.used() + 24  # for x
    with pytest.raises(hetero.InsufficientMemory):
        request.infer(X)
    sea.capacity = 1 << 40
    np.testing.assert_array_equal(request.infer(X)["y"], -2 * X)


@pytest.mark.parametrize("device", ["CPU", "ISLAND"])
def test_results_in_given_places(core: hetero.Core, device: str) -> None:
    core.register_plugin("ISLAND", IslandPlugin)
    request = stateful(core, accumulator(), device)
    y = np.empty_like(X)
    for step, out in enumerate((y, [y], {"y": y}, {"y": None}, {}, None, hetero.ON_DEVICE, {"y": hetero.ON_DEVICE})):
        made = request.infer(X, out=out)["y"]
        if step < 3:
            assert made is y
        assert isinstance(made, RemoteTensor) == (step > 5)
        np.testing.assert_array_equal(made.numpy() if step > 5 else made, -X * (step + 1))
    for out, message in (
        ({"s_out": y}, "out: 's_out' is a state of this request; snapshot_state() reads it"),
        ({"z": y}, "out: the model has no output 'z'"),
        ([y, y], "or 1 arrays in the order of the outputs that are not states, found 2 arrays"),
    ):
        with pytest.raises(hetero.InferenceError, match=re.escape(message)):
            request.infer(X, out=out)


@pytest.mark.parametrize("named", [True, ("y", "s_out"), ("s_out",)])
def test_outputs_on_device(core: hetero.Core, named: Any) -> None:
    compiled = core.compile_model(core.read_model(accumulator()), "CPU", {"OUTPUTS_ON_DEVICE": named})
    request = compiled.create_stateful_request()
    for _ in range(2):
        y = request.infer(X)["y"]
        assert isinstance(y, HostTensor) == (named != ("s_out",))
    assert type(request.snapshot_state()["s_in"]) is np.ndarray


# -- initial values ---------------------------------------------------------------------------------------------------


def test_zeros_of_the_stated_shape(core: hetero.Core) -> None:
    assert stateful(core, accumulator((2, 3))).snapshot_state()["s_in"].tolist() == ZERO.tolist()
    request = stateful(core, accumulator())  # n is the size of x
    with pytest.raises(hetero.InferenceError, match="the size of the initial value is known at the first inference"):
        request.snapshot_state()["s_in"]
    assert "s_in: not sized yet" in repr(request.snapshot_state())
    unsized = request.snapshot_state()
    request.infer(np.ones((4, 3), np.float32))
    assert "s_in: float32[4, 3]" in repr(request.snapshot_state())
    request.restore_state(unsized)
    np.testing.assert_array_equal(request.infer(X)["y"], -X)


@pytest.mark.parametrize(
    ("shape", "output", "what"),
    [
        (("m", 3), None, "size 'm'"),  # the output states no shape
        (("m", 3), ("m", 3), "size 'm'"),  # it does not grow
        (("m", 3), (2, 3), "size 'm'"),
    ],
)
def test_sizes_that_nothing_states(core: hetero.Core, shape: Any, output: Any, what: str) -> None:
    request = stateful(core, accumulator(shape, output))
    message = f"state 's_in' has no initial value, and {what}: pass one as initial={{'s_in': array}}"
    with pytest.raises(hetero.InferenceError, match=re.escape(message)):
        request.infer(X)
    request.restore_state({"s_in": X})
    np.testing.assert_array_equal(request.infer(X)["y"], -2 * X)


def test_a_huge_initial_value(core: hetero.Core) -> None:
    with pytest.raises(hetero.InferenceError, match="state 's_in': no memory for zeros of float32"):
        stateful(core, accumulator((1 << 60, 3)))


# -- wrong arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"s_on": X}, "the request has no state 's_on' (did you mean s_in?); its states: s_in"),
        ({"x": X}, "the request has no state 'x'"),
        ({"s_in": X.astype(np.float64)}, "input 's_in': expected float32 [n, 3], found dtype float64"),
        ({"s_in": X[:, :2]}, "input 's_in': expected float32 [n, 3], found shape [2, 2]"),
        ({"s_in": None}, "input 's_in'"),
        (X, "expected a mapping from input name to the value of a state"),
    ],
)
def test_wrong_values(core: hetero.Core, values: Any, message: str) -> None:
    with pytest.raises(hetero.InferenceError, match=re.escape(message)):
        stateful(core, accumulator(), initial=values)
    request = stateful(core, accumulator())
    request.infer(X)
    with pytest.raises(hetero.InferenceError, match=re.escape(message)):
        request.restore_state(values)
    np.testing.assert_array_equal(request.infer(X)["y"], -2 * X)


def test_a_snapshot_of_another_model(core: hetero.Core) -> None:
    other = make_model([node("Neg", ["t_in"], ["t_out"])], {"t_in": [2, 3]}, ["t_out"])
    request = stateful(core, accumulator())
    for proto in (other, accumulator((5,), (5,))):
        with pytest.raises(hetero.InferenceError, match=r"no state 't_in'|expected float32 \[n, 3\]"):
            request.restore_state(stateful(core, proto).snapshot_state())


def test_states_cannot_be_passed_as_inputs(core: hetero.Core) -> None:
    request = stateful(core, accumulator())
    message = "input 's_in' is a state of this request and cannot be passed; restore_state() sets its value"
    for work in (request.infer, request.start_async):
        with pytest.raises(hetero.InferenceError, match=re.escape(message)):
            work({"x": X, "s_in": X})
    with pytest.raises(hetero.InferenceError, match="the model has no input 'z'"):
        request.infer({"x": X, "z": X})
    with pytest.raises(hetero.InferenceError, match="input 'x' is missing"):
        request.infer({})
    np.testing.assert_array_equal(request.infer({"x": X})["y"], -X)


def test_a_value_that_does_not_fit_the_input(core: hetero.Core) -> None:
    """The model states no shape of the output, so only the value shows it."""
    nodes = [node("Concat", ["s_in", "x"], ["s_out"], axis=0)]
    proto = make_model(nodes, {"x": ["k", 3], "s_in": [2, 3]}, ["s_out"])
    for device in DEVICES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request = stateful(core, proto, device)
            request.infer(np.zeros((0, 3), np.float32))
            message = "state 's_out' -> 's_in': the new value does not fit: input 's_in': expected float32 [2, 3], "
            with pytest.raises(hetero.InferenceError, match=re.escape(message + "found shape [4, 3]")):
                request.infer(X)
            request.start_async(X)
            with pytest.raises(hetero.InferenceError, match=re.escape(message)):
                request.wait()
        np.testing.assert_array_equal(request.snapshot_state()["s_in"], ZERO)


def test_states_that_disagree(core: hetero.Core) -> None:
    nodes = [node("Concat", ["a_in", "x"], ["a_out"], axis=0), node("Identity", ["b_in"], ["b_out"])]
    proto = make_model(nodes, {"x": ["k", 3], "a_in": ["n", 3], "b_in": ["n", 3]}, ["a_out", "b_out"])
    request = stateful(core, proto, initial={"a_in": X, "b_in": X})
    with pytest.raises(hetero.InferenceError, match="the new value does not fit: input 'b_in'.*with n = 4"):
        request.infer(X)
    np.testing.assert_array_equal(request.snapshot_state()["a_in"], X)


def test_a_closed_model(core: hetero.Core) -> None:
    compiled = core.compile_model(core.read_model(accumulator()), "CPU")
    request = compiled.create_stateful_request()
    compiled.close()
    np.testing.assert_array_equal(request.infer(X)["y"], -X)
    for work in (request.fork, compiled.create_stateful_request):
        with pytest.raises(hetero.InferenceError, match="closed"):
            work()


# -- repeated steps, which skip most checks ---------------------------------------------------------------------------


def recurrent(core: hetero.Core, device: str) -> hetero.CompiledModel:
    """h = 0.5 h + x, also as an output of its own; grown = the rows of all calls; y = the sum of both states."""
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (
            ("x", ["b", 3]), ("h_in", ["b", 3]), ("grown_in", ["n", 3]), ("h_out", ["b", 3]), ("grown_out", ["m", 3]),
            ("copy", ["b", 3]), ("y", None),
        )
    ]  # fmt: skip
    nodes = [
        node("Mul", ["h_in", "half"], ["scaled"]),
        node("Add", ["scaled", "x"], ["h_out"]),
        node("Identity", ["h_out"], ["copy"]),
        node("Concat", ["x", "grown_in"], ["grown_out"], axis=0),
        node("ReduceSum", ["grown_out"], ["s"], keepdims=0),
        node("ReduceSum", ["h_out"], ["t"], keepdims=0),
        node("Add", ["s", "t"], ["y"]),
    ]
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph(nodes, "recurrent", ports[:3], ports[3:], [half])
    return core.compile_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), device
    )


class Recurrent:
    """The same in NumPy."""

    def __init__(self) -> None:
        self.h, self.grown = np.zeros((2, 3), np.float32), np.zeros((0, 3), np.float32)

    def step(self, x: np.ndarray) -> dict[str, np.ndarray]:
        self.h = self.h * np.float32(0.5) + x
        self.grown = np.concatenate([x, self.grown])
        return {"copy": self.h, "y": self.grown.sum(dtype=np.float32) + self.h.sum(dtype=np.float32)}


def check_step(request: hetero.StatefulRequest, twin: Recurrent, x: np.ndarray) -> hetero.Outputs:
    outputs, expected = request.infer({"x": x}), twin.step(x)
    assert list(outputs.keys()) == ["copy", "y"]
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, 1e-5, 1e-5)
    return outputs


@pytest.mark.parametrize("device", DEVICES)
def test_repeated_steps(core: hetero.Core, device: str) -> None:
    compiled = recurrent(core, device)
    request = compiled.create_stateful_request(initial={"grown_in": np.zeros((0, 3), np.float32), "h_in": ZERO})
    twin = Recurrent()
    buffer = X.copy()
    for turn in range(6):
        buffer[:] = X * turn
        outputs = check_step(request, twin, buffer)
        buffer[:] = 99  # what the caller does with its arrays changes no state
        outputs["copy"][:] = 99
    saved, h, grown = request.snapshot_state(), twin.h, twin.grown
    fork = request.fork()
    other = Recurrent()
    other.h, other.grown = h, grown
    for turn in range(3):
        check_step(request, twin, X * turn)
        check_step(fork, other, X - turn)
    np.testing.assert_allclose(saved["h_in"], h, 1e-6)
    np.testing.assert_array_equal(saved["grown_in"], grown)
    request.restore_state(saved)
    twin.h, twin.grown = h, grown
    for _ in range(2):
        check_step(request, twin, X)
    for wrong in (X.astype(np.float64), X[:, :2]):
        with pytest.raises(hetero.InferenceError, match="'x'"):
            request.infer({"x": wrong})
    with pytest.raises(hetero.InferenceError, match="is a state"):
        request.infer({"h_in": X})
    for _ in range(2):  # by position, and as the only input
        np.testing.assert_allclose(request.infer([X])["copy"], twin.step(X)["copy"], 1e-6)
        np.testing.assert_allclose(request.infer(X)["copy"], twin.step(X)["copy"], 1e-6)
    request.reset_state()
    twin = Recurrent()
    for _ in range(3):
        check_step(request, twin, X)


@pytest.mark.parametrize("device", ["CPU", "ORT"])
def test_a_repeated_step_that_does_not_fit_keeps_the_states(core: hetero.Core, device: str) -> None:
    """A row sum changes the width of the state that the next step would read."""
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["b", "w"]), ("h_in", ["b", 3]), ("h_out", ["b", "v"]), ("y", ["b", "v"]))
    ]
    nodes = [node("ReduceMean", ["h_in"], ["m"], axes=[1]), node("Add", ["x", "m"], ["h_out"]),
             node("Neg", ["h_out"], ["y"])]  # fmt: skip
    graph = helper.make_graph(nodes, "widths", ports[:2], ports[2:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    request = core.compile_model(proto, device).create_stateful_request({"h_out": "h_in"}, {"h_in": ZERO})
    for _ in range(3):
        request.infer({"x": X})
    before = request.snapshot_state()["h_in"]
    for _ in range(2):
        with pytest.raises(hetero.InferenceError, match="does not fit"):
            request.infer({"x": X[:, :2]})
        np.testing.assert_array_equal(request.snapshot_state()["h_in"], before)
    np.testing.assert_allclose(request.infer({"x": X})["y"], -(X + before.mean(1, keepdims=True)), 1e-6)


@pytest.mark.parametrize("device", ["CPU", "ORT", "HETERO:CPU,ORT"])
@pytest.mark.parametrize("steps", [0, 3])
def test_symbols_of_states_agree_with_other_inputs_in_each_step(core: hetero.Core, device: str, steps: int) -> None:
    """No node compares the sizes of the state and of x."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 3]) for name in ("x", "h_in", "h_out", "y")]
    nodes = [node("Neg", ["h_in"], ["h_out"]), node("Exp", ["x"], ["y"], name="other")]
    graph = helper.make_graph(nodes, "apart", ports[:2], ports[2:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    pins = {"other": "ORT"} if device.startswith("HETERO") else None
    request = core.compile_model(proto, device, pins=pins).create_stateful_request({"h_out": "h_in"}, {"h_in": X})
    for _ in range(steps):
        request.infer({"x": X})
    before = request.snapshot_state()["h_in"]
    for x in (X[:1], np.concatenate([X, X]), X[:0]):
        with pytest.raises(hetero.InferenceError, match="with b = "):
            request.infer({"x": x})
    np.testing.assert_array_equal(request.snapshot_state()["h_in"], before)
    np.testing.assert_allclose(request.infer({"x": X})["y"], np.exp(X), 1e-6)
