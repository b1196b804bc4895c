"""Element types that a device finds before planning, so that models can be cut where inference finds none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.devices.template.plugin import TemplatePlugin
from hetero.errors import HeteroError, UnsupportedModel
from hetero.model.model import Model

onnxruntime = pytest.importorskip("onnxruntime")

MICROSOFT = "com.microsoft"
node = helper.make_node
# CPU has no kernel for com.microsoft::Trilu.
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def make(
    nodes: Sequence[onnx.NodeProto], functions: Sequence[onnx.FunctionProto] = (), domains: Sequence[str] = ()
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor("yes", TensorProto.BOOL, [], [1])],
    )
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in (MICROSOFT, *domains))]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions))


def choice(result: str) -> onnx.NodeProto:
    """A node whose result has no type, because neither onnx nor hetero knows the operator of its branches. It returns
    its input."""
    branches = [
        helper.make_graph([node("SampleOp", ["x"], [op], domain=MICROSOFT)], op, [], [onnx.ValueInfoProto(name=op)])
        for op in ("p", "q")
    ]
    return node("If", ["yes"], [result], name=result, then_branch=branches[0], else_branch=branches[1])


def function(outputs: Sequence[str]) -> onnx.FunctionProto:
    nodes = [node("Trilu", ["a"], ["b"], domain=MICROSOFT), node("Shape", ["a"], ["c"])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_function("my", "Act", ["a"], list(outputs), nodes[: len(outputs)], imports)


UNTYPED = {
    "branches": make(
        [
            choice("a"),
            node("Neg", ["a"], ["b"], name="b"),
            node("Trilu", ["b"], ["c"], domain=MICROSOFT, name="c"),
            node("Relu", ["c"], ["y"], name="y"),
        ]
    ),
    # "a" passes from a subgraph to another one of the same device, because "s" depends on it and is read beside it.
    "around another device": make(
        [
            choice("a"),
            node("Shape", ["a"], ["s"], name="s"),
            node("Reshape", ["x", "s"], ["b"], name="b"),
            node("Size", ["b"], ["m"], name="m"),
            node("Trilu", ["a", "m"], ["y"], domain=MICROSOFT, name="y", upper=0),
        ]
    ),
    "function": make(
        [
            node("Act", ["x"], ["a"], domain="my", name="a"),
            node("Neg", ["a"], ["b"], name="b"),
            node("Trilu", ["b"], ["y"], domain=MICROSOFT, name="y"),
        ],
        [function(["b"])],
        ["my"],
    ),
    "function of two results": make(
        [
            node("Act", ["x"], ["a", "s"], domain="my", name="a"),
            node("Reshape", ["x", "s"], ["b"], name="b"),
            node("Add", ["a", "b"], ["c"], name="c"),
            node("Trilu", ["c"], ["y"], domain=MICROSOFT, name="y"),
        ],
        [function(["b", "c"])],
        ["my"],
    ),
}


def expected(model: onnx.ModelProto) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {"x": X})[0]
    return result


@pytest.mark.parametrize("device", ["ORT", "HETERO:CPU,ORT", "HETERO:TEMPLATE,ORT", "HETERO:ORT,CPU", "MULTI:ORT"])
@pytest.mark.parametrize("name", UNTYPED)
def test_models_of_unknown_types_run(name: str, device: str) -> None:
    compiled = hetero.compile(UNTYPED[name], device)
    np.testing.assert_allclose(compiled({"x": X})["y"], expected(UNTYPED[name]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", UNTYPED)
def test_the_plan_is_cut_at_the_values_that_had_no_type(name: str) -> None:
    core = hetero.Core()
    model = core.read_model(UNTYPED[name].SerializeToString())
    assert model.type_of(model.value_id("a")).dtype is None
    plan = core.plan(model, "HETERO:CPU,ORT")
    assert plan.num_subgraphs > 1
    planned = plan.assignment.model
    assert all(planned.has_type(value) for value in range(planned.num_values))
    assert core.plan(model, "HETERO:CPU,ORT").original is plan.original
    np.testing.assert_allclose(core.compile_model(model, plan)({"x": X})["y"], expected(UNTYPED[name]), atol=1e-6)


def test_query_and_single_devices_agree() -> None:
    core = hetero.Core()
    assert set(core.query_model(UNTYPED["branches"], "ORT").values()) == {"ORT"}
    supported = core.query_model(UNTYPED["branches"], "HETERO:CPU,ORT")
    assert dict(supported) == {"a": "ORT", "b": "CPU", "c": "ORT", "y": "CPU"}


def test_a_value_without_type_beside_an_operator_of_another_device_is_refused_while_planning() -> None:
    """onnxruntime cannot be asked, because it does not know all operators of the model."""
    op = hetero.CustomOp("Twice", "my", function=lambda x: 2 * x)
    model = make(
        [
            node("Twice", ["x"], ["t"], domain="my", name="t"),
            choice("a"),
            node("Trilu", ["a"], ["b"], domain=MICROSOFT, name="b"),
            node("Add", ["b", "t"], ["y"], name="y"),
        ],
        domains=["my"],
    )
    core = hetero.Core()
    core.add_extension(op)
    with pytest.raises(UnsupportedModel, match="type of its input 'a' is not declared"):
        core.plan(model, "HETERO:TEMPLATE,ORT")


class Finding(TemplatePlugin):
    """Answers with ``answer`` when asked for types, and notes for which values."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Any = {}
        self.asked: list[Sequence[str]] = []

    def find_dtypes(self, model: Model, names: Sequence[str], config: Mapping[str, Any]) -> Mapping[str, np.dtype[Any]]:
        self.asked.append(names)
        return self.answer  # type: ignore[no-any-return]


def finding(answer: Any) -> tuple[hetero.Core, Finding]:
    core, plugin = hetero.Core(), Finding()
    plugin.answer = answer
    core.register_plugin("FINDING", lambda: plugin)
    return core, plugin


def test_a_device_is_asked_for_values_without_type_only() -> None:
    core, plugin = finding({"a": np.dtype(np.float32)})
    plan = core.plan(UNTYPED["branches"], "HETERO:FINDING,CPU,ORT")
    assert plugin.asked == [["a", "b", "c"]]
    model = plan.assignment.model
    assert [model.type_of(model.value_id(name)).dtype for name in "abc"] == [np.dtype(np.float32)] * 3


def test_a_device_is_not_asked_about_known_types() -> None:
    core, plugin = finding({})
    core.plan(make([node("Trilu", ["x"], ["a"], domain=MICROSOFT), node("Neg", ["a"], ["y"])]), "HETERO:FINDING,ORT")
    assert plugin.asked == []


@pytest.mark.parametrize("answer", [None, ["a"], {"other": np.dtype(np.float32)}])
def test_a_wrong_answer_is_reported(answer: Any) -> None:
    core, _ = finding(answer)
    with pytest.raises(HeteroError, match="FINDING returned .* from find_dtypes"):
        core.plan(UNTYPED["branches"], "HETERO:FINDING,CPU,ORT")
