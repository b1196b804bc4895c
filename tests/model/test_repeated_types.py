"""Inference of one node of each kind finds what inference of the whole graph finds."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import hetero
from hetero.model import inference, repeated_types

_OPERATORS = {
    "Relu": 1, "Add": 2, "Mul": 2, "Cast": 1, "MatMul": 2, "Concat": 3, "Flatten": 1, "Transpose": 1, "Identity": 1,
    "Conv": 2, "MaxPool": 1, "Softmax": 1, "Sum": 3, "Where": 3, "Dropout": 1, "Clip": 3, "Gemm": 3, "CumSum": 2,
    "ArgMax": 1, "Mine": 1,
}  # fmt: skip
_SHAPES = ([2, 3], [1, 3], ["B", 3], [None, 3], [], ["B", "B"], [-1, 3], None, [300], ["?", 3], [2, 3, 4, 4])


def _random_model(rng: random.Random) -> onnx.ModelProto:
    values, nodes, infos = ["x", "y", "s", "u", "w", "k", "long", "kernel"], [], []
    for number in range(rng.randint(1, 30)):
        op = rng.choice(list(_OPERATORS))
        inputs = [rng.choice(values[-12:]) for _ in range(_OPERATORS[op])]
        if op == "Clip" and rng.random() < 0.5:
            inputs[1] = ""
        outputs = (
            [f"v{number}", f"m{number}"] if op in ("Dropout", "MaxPool") and rng.random() < 0.5 else [f"v{number}"]
        )
        attributes = {
            "Cast": {"to": rng.choice([1, 7, 10])},
            "Concat": {"axis": rng.choice([0, 1])},
            "MaxPool": {"kernel_shape": [2, 2]},
            "ArgMax": {"keepdims": rng.choice([0, 1])},
        }
        domain = "mine" if op == "Mine" else rng.choice(["", "ai.onnx"])
        nodes.append(oh.make_node(op, inputs, outputs, domain=domain, **attributes.get(op, {})))
        if rng.random() < 0.1:
            shape = rng.choice([None, ["B", 3], [2, 3], [None, None], ["Q", 3]])
            infos.append(oh.make_tensor_value_info(f"v{number}", rng.choice([1, 7]), shape))
        values += outputs
    weights = {"w": (1, [2, 3]), "k": (7, [2]), "long": (1, [300]), "kernel": (1, [4, 3, 2, 2])}
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info(name, rng.choice([1, 7]), rng.choice(_SHAPES)) for name in ("x", "y", "s", "u")],
        [oh.make_empty_tensor_value_info(values[-1])],
        [oh.make_tensor(name, kind, dims, [0] * int(np.prod(dims))) for name, (kind, dims) in weights.items()],
        value_info=infos,
    )
    opsets = [oh.make_opsetid("", rng.choice([7, 11, 13, 21])), oh.make_opsetid("mine", 1)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call succeeded, without limits on the size of the graph."""
    succeeded: list[bool] = []
    real = repeated_types.infer_repeated

    def recorded(*arguments: object) -> object:
        found = real(*arguments)
        succeeded.append(found is not None)
        return found

    monkeypatch.setattr(inference, "infer_repeated", recorded)
    monkeypatch.setattr(repeated_types, "_LEAST_NODES", 0)
    monkeypatch.setattr(repeated_types, "_NODES_PER_KIND", 1e-9)
    return succeeded


def _types(model: onnx.ModelProto) -> list[hetero.ValueType]:
    read = hetero.Core().read_model(model)
    kinds, kind_of = read.kinds_of(np.arange(read.num_values, dtype=np.int32))
    types = [read.type_of(value) for value in range(read.num_values)]
    assert types == [kinds[number] for number in kind_of]
    return types


def test_random_models(answers: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    for _ in range(300):
        model = _random_model(rng)
        found = _types(model)
        with monkeypatch.context() as patch:
            patch.setattr(inference, "infer_repeated", lambda *_: None)
            assert found == _types(model)
    assert 30 < sum(answers) < len(answers)


def _chain(ops: list[str], shape: list[int | str | None]) -> onnx.ModelProto:
    nodes = [oh.make_node(op, [f"v{at}"], [f"v{at + 1}"]) for at, op in enumerate(ops)]
    x, y = oh.make_tensor_value_info("v0", 1, shape), oh.make_empty_tensor_value_info(f"v{len(ops)}")
    graph = oh.make_graph(nodes, "g", [x], [y])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(("shape", "succeeds"), [([2, 3], True), (["B", 3], True), ([None, 3], False)])
def test_unknown_sizes_have_a_name_for_each_value(
    shape: list[int | str | None], succeeds: bool, answers: list[bool]
) -> None:
    _types(_chain(["Relu", "Exp"], shape))
    assert answers == [succeeds]


def test_a_kind_is_inferred_once(answers: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = repeated_types.infer_types

    def counted(model: bytes, *, harmless: bool) -> bytes | None:
        calls.append(len(model))
        return real(model, harmless=harmless)

    monkeypatch.setattr(repeated_types, "infer_types", counted)
    _types(_chain(["Relu", "Exp", "Relu"] * 100, [2, 3]))
    assert answers == [True]
    assert len(calls) == 2


@pytest.mark.parametrize(("ops", "succeeds"), [(["Relu"] * 200, True), (["Relu", "Exp", "Neg"] * 66, False)])
def test_graphs_whose_nodes_do_not_repeat(
    ops: list[str], succeeds: bool, answers: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_types, "_NODES_PER_KIND", 100)
    assert _types(_chain(ops, [2, 3]))[-1].shape == (2, 3)
    assert answers == [succeeds]
