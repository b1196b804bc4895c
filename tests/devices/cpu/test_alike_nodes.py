"""A query checks one of several nodes that are alike: operator, attributes, and element types of the inputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import onnx.parser
import onnx.reference
import pytest

import hetero
import hetero.model.inference
from hetero.devices.cpu import registry


def _model(nodes: list[onnx.NodeProto], infos: dict[str, int] | None = None, opset: int = 18) -> hetero.Model:
    """Of nodes that read x (float32), i (int64), and the constants w (float32) and k (int64)."""
    values = {"x": 1, "i": 7, **(infos or {})}
    last = next(name for name in reversed(nodes[-1].output) if name)
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info(name, kind, [2, 3]) for name, kind in values.items()],
        [oh.make_empty_tensor_value_info(last)],
        [onh.from_array(np.ones((2, 3), np.float32), "w"), onh.from_array(np.ones((2, 3), np.int64), "k")],
    )
    opsets = [oh.make_opsetid("", opset), oh.make_opsetid("mine", 1), oh.make_opsetid("ai.onnx.ml", 3)]
    return hetero.Core().read_model(oh.make_model(graph, opset_imports=opsets, ir_version=8))


def _refused(nodes: list[onnx.NodeProto], infos: dict[str, int] | None = None, opset: int = 18) -> dict[str, str]:
    """Node -> reason."""
    support = hetero.Core().query_model(_model(nodes, infos, opset), "CPU")
    return {key: reasons["CPU"] for key, reasons in support.reasons.items() if "CPU" in reasons and key not in support}


def test_equal_attributes_have_equal_numbers() -> None:
    nodes = [
        oh.make_node("Softmax", ["x"], ["a"], "a", axis=1),
        oh.make_node("Softmax", ["a"], ["b"], "a longer name", axis=1),
        oh.make_node("Softmax", ["b"], ["c"], axis=0),
        oh.make_node("Relu", ["c"], ["d"]),
        oh.make_node("Relu", ["d"], ["e"]),
        oh.make_node("Dropout", ["e"], ["f"], seed=1),
    ]
    graph = oh.make_graph(nodes, "g", [oh.make_tensor_value_info("x", 1, [2])], [oh.make_empty_tensor_value_info("f")])
    model = hetero.Core().read_model(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8))
    groups = model.nodes.attribute_groups.tolist()
    assert groups[0] == groups[1]
    assert groups[3] == groups[4] == 0
    assert len(set(groups)) == 4
    assert model.extract([2, 3, 4]).nodes.attribute_groups.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("nodes", "refused"),
    [
        # the second has another type of input
        ([("Erf", ["x"], "a", {}), ("Erf", ["i"], "b", {})], ["b"]),
        ([("Erf", ["w"], "a", {}), ("Erf", ["k"], "b", {})], ["b"]),
        ([("Add", ["x", "x"], "a", {}), ("Add", ["i", "k"], "b", {}), ("Erf", ["b"], "c", {})], ["c"]),
        # another attribute, which decides the type that the next node reads
        (
            [
                ("Cast", ["x"], "a", {"to": 1}),
                ("Erf", ["a"], "b", {}),
                ("Cast", ["x"], "c", {"to": 7}),
                ("Erf", ["c"], "d", {}),
            ],
            ["d"],
        ),
        # an attribute that the operator does not have
        ([("Relu", ["x"], "a", {}), ("Relu", ["x"], "b", {"strange": 1})], ["b"]),
        # inputs left out, and more of them
        ([("Clip", ["x", "", "w"], "a", {}), ("Clip", ["x", "w"], "b", {}), ("Clip", ["x"], "c", {})], []),
        ([("Concat", ["x", "w"], "a", {"axis": 0}), ("Concat", ["x", "w", "a"], "b", {"axis": 0})], []),
        # an unknown type, which comes from an unknown operator
        ([("Frob", ["x"], "a", {}), ("Erf", ["a"], "b", {}), ("Erf", ["x"], "c", {}), ("Erf", ["i"], "d", {})], "ad"),
    ],
)
def test_near_misses(nodes: list[tuple[str, list[str], str, dict[str, int]]], refused: list[str]) -> None:
    protos = [
        oh.make_node(op, inputs, [output], output, domain="mine" if op == "Frob" else "", **attributes)
        for op, inputs, output, attributes in nodes
    ]
    assert list(_refused(protos)) == list(refused)


def test_a_node_with_more_outputs_is_another() -> None:
    nodes = [oh.make_node("Relu", ["x"], ["a"], "one"), oh.make_node("Relu", ["a"], ["b", "c"], "two")]
    assert list(_refused(nodes)) == ["two"]


class _UnlikeNodes:
    """In place of `AlikeNodes`: no node is like another."""

    def __init__(self, *_: object) -> None:
        pass

    def first_unlike(self, node: int) -> int:
        return node

    def add(self, node: int, results: list[int]) -> None:
        pass


def test_the_answer_is_that_of_every_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        values, nodes = ["x", "i", "w", "k"], []
        for number in range(int(rng.integers(1, 25))):
            op = str(rng.choice(["Relu", "Erf", "Add", "Cast", "Equal", "Where", "Dropout", "Softmax", "Identity"]))
            count = {"Add": 2, "Equal": 2, "Where": 3}.get(op, 1)
            inputs = [str(rng.choice(values)) for _ in range(count)]
            attributes = {"Cast": {"to": int(rng.choice([1, 7, 9, 10]))}, "Softmax": {"axis": int(rng.integers(2))}}
            outputs = ["", f"v{number}"] if op == "Dropout" and rng.integers(2) else [f"v{number}"]
            nodes.append(oh.make_node(op, inputs, outputs, f"n{number}", **attributes.get(op, {})))
            values.append(f"v{number}")
        fast = _refused(nodes)
        with monkeypatch.context() as patch:
            patch.setattr(registry, "AlikeNodes", _UnlikeNodes)
            assert _refused(nodes) == fast


@pytest.fixture
def inferences(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets a number for each call of inference, which then finds nothing."""
    calls: list[int] = []

    def infers_nothing(model: bytes, *, harmless: bool) -> None:
        calls.append(len(model))

    monkeypatch.setattr(hetero.model.inference, "infer_types", infers_nothing)
    return calls


def _refused_by_kernels(model: hetero.Model) -> list[str]:
    return [model.key_of(i) for i in registry.examine(model, lambda *_: None)[1]]


def _classifier(x: str) -> onnx.NodeProto:
    domain, weights = "ai.onnx.ml", {"coefficients": [1.0] * 6, "classlabels_ints": [1, 2]}
    return oh.make_node("LinearClassifier", [x], ["a", "b"], "s", domain=domain, **weights)


@pytest.mark.parametrize(
    ("node", "read", "op", "refused"),
    [
        (oh.make_node("Split", ["x"], ["", "b"], "s", axis=0), "b", "Erf", False),
        (oh.make_node("Split", ["i"], ["a", "b"], "s", axis=0), "b", "Erf", True),
        (oh.make_node("TopK", ["x", "one"], ["a", "b"], "s"), "a", "Erf", False),
        (oh.make_node("TopK", ["x", "one"], ["a", "b"], "s"), "b", "Erf", True),
        (oh.make_node("GRU", ["x", "x", "x"], ["", "b"], "s", hidden_size=2), "b", "Erf", False),
        (oh.make_node("EyeLike", ["x"], ["a"], "s"), "a", "Erf", False),
        (oh.make_node("EyeLike", ["i"], ["a"], "s"), "a", "Erf", True),
        (oh.make_node("EyeLike", ["x"], ["a"], "s", dtype=7), "a", "Erf", True),
        (oh.make_node("RandomUniformLike", ["i"], ["a"], "s", dtype=1), "a", "Erf", False),
        (oh.make_node("RandomNormalLike", ["x"], ["a"], "s"), "a", "Erf", False),
        (oh.make_node("Bernoulli", ["x"], ["a"], "s", dtype=7), "a", "Erf", True),
        (_classifier("i"), "a", "Erf", True),
        (_classifier("i"), "b", "Erf", False),
    ],
)
def test_results_have_types_without_inference(
    node: onnx.NodeProto, read: str, op: str, refused: bool, inferences: list[int]
) -> None:
    second = onnx.NodeProto()
    second.CopyFrom(node)
    second.name, second.output[:] = "s2", [f"{each}2" if each else "" for each in node.output]
    nodes = [node, second, oh.make_node(op, [read], ["y"], "y"), oh.make_node(op, [f"{read}2"], ["z"], "z")]
    nodes.append(oh.make_node("Add", ["y", "z"], ["sum"], "sum"))
    assert ({"y", "z"} <= set(_refused_by_kernels(_model(nodes, {"one": 7})))) == refused
    assert refused or not inferences  # Add asks for the type of a refused node's result


def test_checks_know_types_without_inference(inferences: list[int]) -> None:
    """Checks of Resize and of quantized operators read types that follow from the nodes before them."""

    nodes = [
        oh.make_node("Add", ["x", "x"], ["a"], "a"),
        oh.make_node("Resize", ["a", "", "scales"], ["b"], "b", mode="linear"),
        oh.make_node("Add", ["i", "i"], ["c"], "c"),
        oh.make_node("Resize", ["c", "", "scales"], ["d"], "d", mode="linear"),
        oh.make_node("DynamicQuantizeLinear", ["b"], ["q", "q_scale", "q_zero"], "q"),
        oh.make_node("DequantizeLinear", ["q", "q_scale", "q_zero"], ["e"], "e"),
        oh.make_node("MatMulInteger", ["q", "q", "q_zero", "q_zero"], ["f"], "f"),
        oh.make_node("Mul", ["e", "q_scale"], ["h"], "h"),
        oh.make_node("Erf", ["q_zero"], ["j"], "j"),
        oh.make_node("Erf", ["q_scale"], ["l"], "l"),
        oh.make_node("Erf", ["f"], ["m"], "m"),
        oh.make_node("QuantizeLinear", ["b", "q_scale"], ["n"], "n"),
        oh.make_node("QuantizeLinear", ["b", "q_scale"], ["o"], "o", output_dtype=3),
        oh.make_node("DequantizeLinear", ["n", "q_scale", "q_zero"], ["p"], "p"),
        oh.make_node("DequantizeLinear", ["o", "q_scale"], ["r"], "r"),
        oh.make_node("DequantizeLinear", ["o", "q_scale"], ["s"], "s", output_dtype=10),
        oh.make_node("Add", ["r", "s"], ["t"], "t"),
        oh.make_node("Erf", ["r"], ["u"], "u"),
        oh.make_node("Erf", ["s"], ["v"], "v"),
        oh.make_node("Erf", ["n"], ["w2"], "w2"),
    ]
    assert sorted(_refused_by_kernels(_model(nodes, {"scales": 1}, opset=23))) == ["d", "j", "m", "w2"]
    assert not inferences


def test_results_of_an_if_within_an_if_have_types_without_inference(inferences: list[int]) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = a () => (float[2] p) {
                    q = If (c) <then_branch = b () => (r) { r = Exp (x) }, else_branch = d () => (s) { s = Neg (x) }>
                    p = Erf (q)
                },
                else_branch = e () => (float[2] t) { t = Identity (x) }
            >
        }
    """)
    x = np.array([0.5, -1], np.float32)
    result = hetero.Core().compile_model(model, "CPU")({"c": np.array(True), "x": x})["y"]
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"c": np.array(True), "x": x})[0]
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert not inferences


def test_a_loop_with_iterations_needs_no_inference(inferences: list[int]) -> None:
    """Only a Loop without iterations needs the shape of the rows of a scanned output."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (int64 n, float[2] x) => (float[2] y, float[m, 2] rows) {
            y, rows = Loop (n, , x) <
                body = b (int64 i, bool c, float[2] v) => (bool d, w, r) {
                    d = Identity (c)
                    w = Exp (v)
                    r = Neg (v)
                }
            >
        }
    """)
    compiled = hetero.Core().compile_model(model, "CPU")
    rows = compiled({"n": np.array(2), "x": np.zeros(2, np.float32)})["rows"]
    np.testing.assert_allclose(rows, [[0, 0], [-1, -1]])
    assert not inferences
    assert compiled({"n": np.array(0), "x": np.zeros(2, np.float32)})["rows"].shape[0] == 0
