"""LSTM, GRU and RNN on the CPU device against onnxruntime: sizes, weights given at run time, activations, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from hetero import Core, InferenceError
from sessions import onnxruntime_session

pytestmark = pytest.mark.spread(2)

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
Array = np.ndarray[Any, Any]


def model_of(
    op: str, feeds: dict[str, Array | None], constants: tuple[str, ...] = (), **attributes: Any
) -> onnx.ModelProto:
    """One node; ``feeds`` by input position, None for one that is left out; those of ``constants`` are initializers."""
    names = ["" if array is None else name for name, array in feeds.items()]
    outputs = ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    given = {name: array for name, array in feeds.items() if array is not None}
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, **attributes)],
        op,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
            if name not in constants
        ],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(given[name], name) for name in constants if name in given],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds_of(op: str, steps: int, batch: int, features: int, hidden: int, dirs: int) -> dict[str, Array | None]:
    rng = np.random.default_rng(hidden)

    def normal(*shape: int) -> Array:
        return (rng.standard_normal(shape) / hidden**0.5).astype(np.float32)

    gates = GATES[op]
    feeds: dict[str, Array | None] = {
        "x": normal(steps, batch, features) * 5,
        "w": normal(dirs, gates * hidden, features),
        "r": normal(dirs, gates * hidden, hidden),
        "b": normal(dirs, 2 * gates * hidden),
        "lengths": rng.integers(1, steps + 1, batch).astype(np.int32),
        "h0": normal(dirs, batch, hidden),
    }
    if op == "LSTM":
        feeds |= {"c0": normal(dirs, batch, hidden), "p": normal(dirs, 3 * hidden)}
    return feeds


def assert_as_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Array | None], constants: tuple[str, ...]) -> None:
    given = {name: array for name, array in feeds.items() if array is not None and name not in constants}
    core = Core()
    read = core.read_model(model)
    assert len(core.query_model(read, "CPU")) == 1
    found = core.compile_model(read, "CPU")(given)
    session = onnxruntime_session(model)
    for position, wanted in enumerate(session.run(None, given)):
        np.testing.assert_allclose(found[position], wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("batch", "hidden"), [(1, 7), (1, 128), (3, 48), (8, 100)])
def test_sizes(op: str, direction: str, batch: int, hidden: int) -> None:
    feeds = feeds_of(op, 5, batch, 10, hidden, DIRECTIONS[direction])
    for constants in (("w", "r", "b", "p"), ()):
        model = model_of(op, feeds, constants, hidden_size=hidden, direction=direction)
        assert_as_onnxruntime(model, feeds, constants)


@pytest.mark.parametrize("op", GATES)
def test_what_is_left_out(op: str) -> None:
    feeds = feeds_of(op, 4, 2, 6, 20, 1)
    for left_out in itertools.product((False, True), repeat=3):
        fewer = {
            name: None if dict(zip(("b", "lengths", "h0"), left_out, strict=True)).get(name) else array
            for name, array in feeds.items()
        }
        assert_as_onnxruntime(model_of(op, fewer, ("w", "r"), hidden_size=20), fewer, ("w", "r"))


def test_alphas_and_betas_go_to_the_activations_that_take_them() -> None:
    feeds = feeds_of("LSTM", 4, 2, 6, 20, 2)
    attributes = {
        "activations": ["HardSigmoid", "Softsign", "ScaledTanh", "Sigmoid", "LeakyRelu", "Elu"],
        "activation_alpha": [0.3, 0.8, 0.05, 0.9],
        "activation_beta": [0.4, 1.1],
    }
    model = model_of("LSTM", feeds, ("w", "r"), hidden_size=20, direction="bidirectional", **attributes)
    assert_as_onnxruntime(model, feeds, ("w", "r"))


@pytest.mark.parametrize("option", [0, 1])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_gru_linear_before_reset(option: int, clip: float | None) -> None:
    feeds = feeds_of("GRU", 4, 2, 6, 20, 2)
    attributes = {"linear_before_reset": option} | ({} if clip is None else {"clip": clip})
    model = model_of("GRU", feeds, ("w", "r", "b"), hidden_size=20, direction="bidirectional", **attributes)
    assert_as_onnxruntime(model, feeds, ("w", "r", "b"))


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"activations": ["Sigmoid", "Tanh", "Cosh"]}, "activation cosh"),
        ({"activations": ["Sigmoid", "Tanh"]}, "2 activations"),
        ({"direction": "sideways"}, "direction = b'sideways'"),
        ({"clip": -1.0}, "clip = -1.0"),
    ],
)
def test_what_is_refused(attributes: dict[str, Any], reason: str) -> None:
    core = Core()
    model = core.read_model(model_of("LSTM", feeds_of("LSTM", 2, 1, 3, 4, 1), hidden_size=4, **attributes))
    support = core.query_model(model, "CPU")
    assert not support
    assert reason in str(support.reasons)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("lengths", np.array([9, 1], np.int32), "an index is outside its axis"),
        ("lengths", np.array([1], np.int32), "sequence_lens"),
        ("h0", np.zeros((1, 2, 5), np.float32), "initial_h"),
        ("r", np.zeros((1, 16, 5), np.float32), "hidden_size"),
        ("w", np.zeros((1, 12, 3), np.float32), "W of shape"),
        ("p", np.zeros((1, 11), np.float32), "P of shape"),
    ],
)
def test_operands_that_do_not_fit_are_named(name: str, array: Array, message: str) -> None:
    feeds = feeds_of("LSTM", 2, 2, 3, 4, 1) | {name: array}
    core = Core()
    compiled = core.compile_model(core.read_model(model_of("LSTM", feeds, hidden_size=4)), "CPU")
    with pytest.raises(InferenceError, match=f"LSTM.*{message}"):
        compiled(feeds)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("hidden", [5, 16])
def test_one_tensor_as_input_and_recurrent_weights(op: str, hidden: int) -> None:
    """The two are packed differently."""
    feeds = feeds_of(op, 3, 2, hidden, hidden, 2)
    feeds = {"x": feeds["x"], "w": feeds["w"]}
    model = model_of(op, feeds, ("w",), hidden_size=hidden, direction="bidirectional")
    model.graph.node[0].input.append("w")
    assert_as_onnxruntime(model, feeds, ("w",))
