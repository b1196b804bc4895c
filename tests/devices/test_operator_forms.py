"""Nodes with inputs, outputs or attributes that their operator lacks, or without those that it requires. onnxruntime
judges: it refuses a model with such a node when it loads the file."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hetero import Core, UnsupportedModel
from hetero.devices.operator_forms import TABLE, malformed_nodes
from sessions import onnxruntime_session

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TOOL = Path(__file__).parents[2] / "tools" / "operator_forms.py"
WEIGHT = np.ones((3, 4, 1, 1), np.float32)

# operator, inputs, outputs, attributes, opset -> what the error names; "" if the node is correct
Case = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any], int, str]
CASES: dict[str, Case] = {
    "one input": ("Add", ["x"], ["y"], {}, 17, "Add of opset 17 without its input 1 (B)"),
    "three inputs": ("Add", ["x", "x", "x"], ["y"], {}, 17, "Add of opset 17 with 3 inputs; expected 2"),
    "no input": ("Relu", [], ["y"], {}, 17, "without its input 0 (X)"),
    "an absent input more": ("Relu", ["x", ""], ["y"], {}, 17, "with 2 inputs; expected 1"),
    "an absent required input": ("Conv", ["x", "", "b"], ["y"], {}, 17, "Conv of opset 17 without its input 1 (W)"),
    "an absent optional input": ("Conv", ["x", "w", ""], ["y"], {}, 17, ""),
    "absent bounds": ("Clip", ["x", "", ""], ["y"], {}, 17, ""),
    "an input that became an attribute": ("Clip", ["x", "b"], ["y"], {}, 6, "with 2 inputs; expected 1"),
    "any number of inputs": ("Max", ["x"] * 9, ["y"], {}, 17, ""),
    "not one input of many": ("Max", [], ["y"], {}, 17, "with 0 inputs; expected at least 1"),
    "two outputs": ("Relu", ["x"], ["y", "more"], {}, 17, "with 2 outputs; expected 1"),
    "an absent output more": ("Relu", ["x"], ["y", ""], {}, 17, "with 2 outputs; expected 1"),
    "one output of two": ("TopK", ["x", "k"], ["y"], {}, 17, "TopK of opset 17 with 1 output; expected 2"),
    "an absent optional output": ("MaxPool", ["x"], ["y", ""], {"kernel_shape": [1, 1]}, 17, ""),
    "an attribute that became an input": (
        *("ReduceSum", ["x"], ["y"], {"axes": [1]}, 13),
        "ReduceSum of opset 13 with attribute 'axes', which it does not have since opset 13",
    ),
    "that attribute before": ("ReduceSum", ["x"], ["y"], {"axes": [1]}, 11, ""),
    "pads of an opset before": ("Pad", ["x", "p"], ["y"], {"pads": [0] * 8}, 11, "does not have since opset 11"),
    "an attribute of a later opset": (
        *("DepthToSpace", ["x"], ["y"], {"blocksize": 2, "mode": "CRD"}, 10),
        "with attribute 'mode', which it does not have before opset 11",
    ),
    "a misspelt attribute": (
        *("Conv", ["x", "w"], ["y"], {"dilation": [1, 1]}, 17),
        "with attribute 'dilation', which it does not have (did you mean dilations?)",
    ),
    "an internal attribute": ("Relu", ["x"], ["y"], {"__hidden": 1}, 17, ""),
    "an attribute that onnxruntime ignores": ("LayerNormalization", ["x", "s"], ["y"], {"extra": 1}, 17, ""),
    "an attribute of another type": (
        *("Softmax", ["x"], ["y"], {"axis": 1.0}, 17),
        "Softmax of opset 17 with attribute axis of type FLOAT; expected INT",
    ),
    "a list for a number": ("Softmax", ["x"], ["y"], {"axis": [1]}, 17, "of type INTS; expected INT"),
    "a missing attribute": ("Concat", ["x", "x"], ["y"], {}, 17, "Concat of opset 17 without its attribute axis"),
    "classic": ("ai.onnx.ml::Scaler", ["x"], ["y"], {"scales": [1.0]}, 3, "with attribute 'scales', which"),
    "classic, correct": ("ai.onnx.ml::Scaler", ["x"], ["y"], {"scale": [1.0], "offset": [0.0]}, 3, ""),
}


def model_of(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any], opset: int, _: str = ""
) -> onnx.ModelProto:
    domain, _, name = op_type.rpartition("::")
    node = helper.make_node(name, inputs, outputs, name="the_node", domain=domain, **attributes)
    x = helper.make_tensor_value_info("x", FLOAT, [2, 4] if domain else [1, 4, 2, 2])
    y = helper.make_tensor_value_info("y", FLOAT, None)
    weights = {"w": WEIGHT, "b": np.ones((), np.float32), "s": np.ones(2, np.float32), "p": np.zeros(8, np.int64)}
    weights["k"] = np.ones(1, np.int64)
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items() if name in inputs]
    opsets = [helper.make_opsetid("", 17 if domain else opset), *[helper.make_opsetid(domain, opset)] * bool(domain)]
    return helper.make_model(
        helper.make_graph([node], "graph", [x], [y], initializers), opset_imports=opsets, ir_version=8
    )


def inside_an_if(node: onnx.NodeProto) -> onnx.ModelProto:
    """A model whose only node is an If with ``node``, which computes "y" of "x", in one branch."""
    y = helper.make_tensor_value_info("y", FLOAT, [1, 4, 2, 2])
    branches = {
        "then_branch": helper.make_graph([node], "then", [], [y]),
        "else_branch": helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "else", [], [y]),
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["z"], name="the_if", **branches)],
        "graph",
        [helper.make_tensor_value_info("c", BOOL, []), helper.make_tensor_value_info("x", FLOAT, [1, 4, 2, 2])],
        [helper.make_tensor_value_info("z", FLOAT, [1, 4, 2, 2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def refused_by_onnxruntime(model: onnx.ModelProto) -> bool:
    try:
        onnxruntime_session(model)
    except Exception as error:  # it has no common base class
        return "NOT_IMPLEMENTED" not in str(error)
    return False


@pytest.mark.parametrize("name", CASES)
def test_nodes_are_refused_if_onnxruntime_refuses_them(core: Core, name: str) -> None:
    *_, expected = case = CASES[name]
    proto = model_of(*case)
    assert refused_by_onnxruntime(proto) == bool(expected)
    found = malformed_nodes(core.read_model(proto))
    assert (expected in found[0]) if expected else not found
    if not expected:
        if name in ("an internal attribute", "absent bounds"):
            x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 4, 2, 2)
            want = onnxruntime_session(proto).run(None, {"x": x})[0]
            for device in ("CPU", "TEMPLATE"):
                assert np.array_equal(core.compile_model(proto, device)({"x": x})[0], want)
        return
    for device in ("CPU", "TEMPLATE"):
        with pytest.raises(UnsupportedModel) as caught:
            core.compile_model(proto, device)
        assert "'the_node'" in str(caught.value)
        assert expected in str(caught.value)


def test_nodes_of_bodies(core: Core) -> None:
    right, wrong = (
        inside_an_if(helper.make_node("Relu", ["x"], ["y"])),
        inside_an_if(helper.make_node("Relu", ["x"], ["y"], name="inner", alpha=0.5)),
    )
    assert [refused_by_onnxruntime(model) for model in (right, wrong)] == [False, True]
    for device in ("CPU", "TEMPLATE"):
        core.compile_model(right, device)
        with pytest.raises(UnsupportedModel) as caught:
            core.compile_model(wrong, device)
        message = str(caught.value)
        assert "'the_if'" in message
        assert "'inner'" in message
        assert "Relu of opset 17 with attribute 'alpha', which it does not have" in message


def test_a_result_that_nothing_reads_may_lack_a_name(core: Core) -> None:
    """onnxruntime refuses it."""
    proto = model_of("TopK", ["x", "k"], ["y", ""], {}, 17)
    assert refused_by_onnxruntime(proto)
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
    for device in ("CPU", "TEMPLATE"):
        assert np.array_equal(core.compile_model(proto, device)({"x": x})[0], x[..., 1:])


def test_one_malformed_node_among_equal_ones(core: Core) -> None:
    """The CPU examines one of the nodes that are alike."""
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"x{i + 1}"], name=f"n{i}") for i in range(20)]
    nodes[7].attribute.append(helper.make_attribute("alpha", 1.0))
    nodes[13].input.append("x0")
    ends = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x0", "x20")]
    proto = helper.make_model(
        helper.make_graph(nodes, "graph", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    model = core.read_model(proto)
    assert list(malformed_nodes(model)) == [7, 13]
    for device in ("CPU", "TEMPLATE"):
        support = core.query_model(model, device)
        assert sorted({f"n{i}" for i in range(20)} - set(support)) == ["n13", "n7"]
    part = model.extract([5, 6, 7, 8])
    assert list(malformed_nodes(part)) == [2]


def test_operators_that_onnx_does_not_define_are_not_checked(core: Core) -> None:
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], domain="local"),
        helper.make_node("Gelu", ["t"], ["g"], domain="com.microsoft", unknown=1),
        helper.make_node("Unknown", ["g", "g"], ["y", "z"], any=1),
    ]
    ends = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", "y")]
    opsets = [
        helper.make_opsetid(domain, version) for domain, version in (("", 17), ("local", 1), ("com.microsoft", 1))
    ]
    proto = helper.make_model(
        helper.make_graph(nodes, "graph", ends[:1], ends[1:]),
        opset_imports=opsets,
        functions=[function],
        ir_version=8,
    )
    assert not malformed_nodes(core.read_model(proto))


def test_the_table_has_what_onnx_says() -> None:
    spec = importlib.util.spec_from_file_location("operator_forms_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    lines = TABLE.read_text().splitlines()
    newest = {
        name.removesuffix("::"): int(version) for name, version, *_ in map(str.split, lines) if name.endswith("::")
    }
    assert newest[""] >= 28
    for line in tool.text().splitlines():  # of an onnx that may be newer than the table
        name, version, *_ = line.split(" ", 2)
        assert line in lines or int(version) > newest.get(name.rpartition("::")[0], 0), line
