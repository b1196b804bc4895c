"""Model-local functions on models made at random: inlined == whole == onnxruntime, however nodes are placed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime
from hypothesis import given
from hypothesis import strategies as st

import hetero
from hetero.model.functions import FunctionLibrary, inline_calls
from hetero.model.model import Model
from hetero.model.read import read_model
from sessions import onnxruntime_session

_NAMES = "abcd"  # few, so that functions, nested graphs and the model use the same ones for different things
_UNARY = ("Neg", "Abs", "Sigmoid", "Tanh", "Softsign", "Relu")
_BINARY = ("Add", "Sub", "Mul", "Max")


class _Maker:
    """A model of functions 0..n-1, in which each calls only later ones; all values are float[3]."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.functions: list[onnx.FunctionProto] = []
        self.signatures: list[tuple[int, int]] = []

    def model(self) -> onnx.ModelProto:
        rng = self.rng
        opsets = [oh.make_opsetid("", 18), oh.make_opsetid("f", 1)]
        for number in range(rng.randint(1, 4)):
            num_inputs, num_outputs = rng.randint(1, 3), rng.randint(1, 2)
            inputs = [f"{_NAMES[i]}_in" for i in range(num_inputs)]
            nodes, values = self.nodes(inputs, rng.randint(1, 4), has_attribute=True)
            made = [value for value in values if value not in inputs]
            outputs = rng.sample(made, min(num_outputs, len(made)))
            imports = [oh.make_opsetid("", rng.choice([17, 18])), opsets[1]]
            function = oh.make_function("f", f"F{number}", inputs, outputs, nodes, imports)
            if rng.random() < 0.5:
                function.attribute.append("slope")
            else:
                function.attribute_proto.append(oh.make_attribute("slope", rng.choice([0.125, 0.5])))
            self.functions.insert(0, function)
            self.signatures.insert(0, (num_inputs, len(outputs)))
        nodes, values = self.nodes(["a", "b"], rng.randint(2, 6), has_attribute=False)
        inputs = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "ab"]
        inputs.append(oh.make_tensor_value_info("yes", onnx.TensorProto.BOOL, []))
        made = values[2:]
        chosen = rng.sample(made, rng.randint(1, len(made)))
        outputs = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in chosen]
        graph = oh.make_graph(nodes, "random", inputs, outputs)
        return oh.make_model(graph, functions=self.functions, opset_imports=opsets, ir_version=9)

    def nodes(
        self, known: list[str], count: int, *, has_attribute: bool, depth: int = 0
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """Nodes over the values ``known``, and all values there are afterwards."""
        rng = self.rng
        values, made = list(known), []
        for position in range(count):
            name = rng.choice(["", f"n{position}", "same"]) if depth else rng.choice(["", f"n{position}"])
            fresh = [f"{_NAMES[position % 4]}{depth}{position}{letter}" for letter in "xy"]
            kind = rng.choice(["unary", "binary", "leaky", "call", "call", "if", "constant"])
            if kind == "call" and self.functions:
                number = rng.randrange(len(self.functions))
                num_inputs, num_outputs = self.signatures[number]
                outputs = fresh[: 1 if rng.random() < 0.2 else num_outputs]
                node = oh.make_node(
                    self.functions[number].name,
                    [rng.choice(values) for _ in range(num_inputs)],
                    outputs,
                    name,
                    domain="f",
                    **({"slope": 0.75} if rng.random() < 0.5 else {}),
                )
                if has_attribute and rng.random() < 0.3:
                    del node.attribute[:]
                    node.attribute.append(self.reference("slope"))
                made.append(node)
                values += outputs
                continue
            if kind == "if" and depth < 2:
                made.append(self.choice(values, fresh[0], name, has_attribute, depth))
            elif kind == "leaky":
                node = oh.make_node("LeakyRelu", [rng.choice(values)], fresh[:1], name)
                if has_attribute:
                    node.attribute.append(self.reference("alpha"))
                made.append(node)
            elif kind == "constant":
                made.append(oh.make_node("Constant", [], fresh[:1], name, value_floats=[0.5, -1.0, 2.0]))
            elif kind == "binary":
                made.append(oh.make_node(rng.choice(_BINARY), [rng.choice(values) for _ in "ab"], fresh[:1], name))
            else:
                made.append(oh.make_node(rng.choice(_UNARY), [rng.choice(values)], fresh[:1], name))
            values.append(fresh[0])
        return made, values

    def choice(self, values: list[str], output: str, name: str, has_attribute: bool, depth: int) -> onnx.NodeProto:
        branches = []
        for number in range(2):
            inner, after = self.nodes(values, self.rng.randint(1, 3), has_attribute=has_attribute, depth=depth + 1)
            info = oh.make_tensor_value_info(after[-1], onnx.TensorProto.FLOAT, [3])
            branches.append(oh.make_graph(inner, f"branch{number}", [], [info]))
        # There is no bool at hand in a function: the condition is computed. The Loop runs once.
        v = {name: f"{output}_{name}" for name in ("sum", "zero", "less", "result", "i", "go", "old", "more")}
        inner = [
            oh.make_node("ReduceSum", [values[0]], [v["sum"]], keepdims=0),
            oh.make_node("Constant", [], [v["zero"]], value_float=0.0),
            oh.make_node("Less", [v["sum"], v["zero"]], [v["less"]]),
            oh.make_node("If", [v["less"]], [v["result"]], then_branch=branches[0], else_branch=branches[1]),
            oh.make_node("Not", [v["go"]], [v["more"]]),
        ]
        body = oh.make_graph(
            inner,
            "body",
            [
                oh.make_tensor_value_info(v["i"], onnx.TensorProto.INT64, []),
                oh.make_tensor_value_info(v["go"], onnx.TensorProto.BOOL, []),
                oh.make_tensor_value_info(v["old"], onnx.TensorProto.FLOAT, [3]),
            ],
            [
                oh.make_tensor_value_info(v["more"], onnx.TensorProto.BOOL, []),
                oh.make_tensor_value_info(v["result"], onnx.TensorProto.FLOAT, [3]),
            ],
        )
        return oh.make_node("Loop", ["", "", values[-1]], [output], name, body=body)

    def reference(self, name: str) -> onnx.AttributeProto:
        return onnx.AttributeProto(name=name, ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)


def _inlined(model: Model) -> Model:
    library = FunctionLibrary(model.file)
    while True:
        inlined = inline_calls(model, range(model.num_nodes), library)
        assert not inlined.kept_whole
        if inlined.model is model:
            return model
        model = inlined.model


def _feeds(model: Model) -> dict[str, Any]:
    values = {"a": np.array([-2, 0.5, 3], np.float32), "b": np.array([1, -0.25, 0.125], np.float32)}
    return {"yes": np.array(True), **values}


def _expected(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """What onnxruntime gives; where it fails (on calls that leave outputs out, on nodes of one name), what TEMPLATE
    gives, which compiles functions by themselves."""
    try:
        session = onnxruntime_session(proto)
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        return list(hetero.Core().compile_model(read_model(proto), "TEMPLATE")(feeds).values())
    return list(session.run(None, feeds))


@given(st.randoms(use_true_random=False))
def test_inlined_equals_whole(rng: random.Random) -> None:
    proto = _Maker(rng).model()
    onnx.checker.check_model(proto)
    core = hetero.Core()
    model = core.read_model(proto)
    feeds = _feeds(model)
    expected = _expected(proto, feeds)
    flat = _inlined(model)
    onnx.checker.check_model(flat.to_proto())
    assert len(set(flat.keys)) == flat.num_nodes
    pins = {node.key: rng.choice(["CPU", "TEMPLATE"]) for node in flat.nodes if rng.random() < 0.3}
    support = core.query_model(flat, "CPU")
    pins = {key: device for key, device in pins.items() if device == "TEMPLATE" or key in support}
    for asked, device, placed in (
        (model, "TEMPLATE", {}),
        (flat, "TEMPLATE", {}),
        (model, "HETERO:CPU,TEMPLATE", {}),
        (model, "HETERO:CPU,TEMPLATE", pins),
        (model, "HETERO:TEMPLATE,CPU", pins),
    ):
        compiled = core.compile_model(asked, device, pins=placed or None)
        found = compiled(feeds)
        for result, wanted in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=1e-6)
        if placed:
            affinity = compiled.plan.affinity
            assert {key: affinity[key] for key in placed} == placed


def test_the_maker_makes_calls() -> None:
    """The property above is about something."""
    calls = [sum(node.domain == "f" for node in _Maker(random.Random(i)).model().graph.node) for i in range(20)]
    assert sum(map(bool, calls)) > 10
