"""What the report says about operators, tensors and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.report.data import report_data
from hetero.report.model_columns import model_columns, type_text
from model_zoo import make_model
from report_cases import HOSTILE_NAMES


def columns(proto: onnx.ModelProto) -> dict[str, Any]:
    model = hetero.Core().read_model(proto.SerializeToString())
    return model_columns(model, np.arange(model.num_nodes, dtype=np.int32))


def test_types_of_values() -> None:
    assert type_text("float32", (1, None, "n", "unk__12")) == "float32[1, ?, n, ?]"
    assert type_text("float32", ()) == "float32[]"
    assert type_text("int64", None) == "int64 of unknown rank"
    assert type_text(None, (1,)) == "type unknown"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.1, "0.1"),
        (float("nan"), "nan"),
        ("SAME_UPPER", "SAME_UPPER"),
        ("</script>\u202e\n", "</script>\ufffd\u240a"),
        (b"\xff", "\ufffd"),
        ("a" * 10**6, "a" * 99 + "…" + "a" * 100),
        ([1, -2], "[1, -2]"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7, … (100 in all)]"),
        (["a", "b"], "[a, b]"),
        (helper.make_tensor("t", TensorProto.INT64, [2], [4, 5]), "int64[2] = [4, 5]"),
        (helper.make_tensor("t", TensorProto.FLOAT, [], [0.5]), "float32[] = 0.5"),
        (helper.make_tensor("t", TensorProto.STRING, [1], [b"<b>"]), "string[1] = [<b>]"),
        (helper.make_tensor("t", TensorProto.FLOAT, [9], [0] * 9), "float32[9]"),
        (TensorProto(data_type=1, dims=[2], raw_data=b"123"), "float32[2]"),  # too few bytes
        (TensorProto(data_type=99, dims=[20]), "type unknown"),
        (TensorProto(data_type=99, dims=[1]), "type unknown"),
        (helper.make_graph([helper.make_node("Add", [], [])] * 3, "g", [], []), "graph of 3 nodes: Add 3"),
        (helper.make_graph([], "g", [], []), "graph of 0 nodes"),
        (helper.make_tensor_type_proto(1, [2]), "tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } }"),
    ],
)
def test_attributes(value: Any, text: str) -> None:
    node = helper.make_node("Custom", ["x"], ["y"], domain="example")
    node.attribute.append(helper.make_attribute("a", value))
    proto = make_model([node])
    proto.opset_import.append(helper.make_opsetid("example", 1))
    found = columns(proto)
    assert found["attributes"] == [("a", text)]
    assert found["attributes_of"] == [0]
    assert found["ops"] == [{"name": "Custom", "domain": "example", "version": 1, "reads": [], "writes": []}]


def test_a_tensor_whose_file_is_not_named_is_unreadable() -> None:
    node = helper.make_node("Custom", ["x"], ["y"], domain="example")
    node.attribute.append(helper.make_attribute("a", TensorProto(data_type=1, dims=[1], data_location=1)))
    proto = make_model([node])
    proto.opset_import.append(helper.make_opsetid("example", 1))
    [(name, text)] = columns(proto)["attributes"]
    assert name == "unreadable"
    assert text.endswith("external_data has no location")


def test_equal_sets_of_attributes_are_stored_once() -> None:
    nodes = [helper.make_node("Softmax", ["x"], [name], axis=axis) for name, axis in (("a", 0), ("b", 1), ("y", 0))]
    found = columns(make_model([*nodes, helper.make_node("Relu", ["x"], ["z"])], outputs=["a", "b", "y", "z"]))
    assert found["attributes"] == [("axis", "0"), ("axis", "1")]
    assert found["attributes_of"] == [0, 1, 0, -1]


def test_tensors() -> None:
    weights = {
        "scale": np.array([2.0, 0.5], np.float16),
        "large": np.ones((3, 3), np.float32),
        "none": np.zeros((0,), np.int64),
        "lo": np.array(-1, np.float32),
    }
    nodes = [
        helper.make_node("Clip", ["x", "", "lo"], ["c"]),
        helper.make_node("Add", ["c", "large"], ["y"]),
        helper.make_node("Cast", ["scale"], ["s"], to=TensorProto.FLOAT),
        helper.make_node("SequenceConstruct", ["y", "c"], ["q"]),
        helper.make_node("SequenceLength", ["q"], ["l"]),
        helper.make_node("Identity", ["none"], ["i"]),
    ]
    found = columns(make_model(nodes, {"x": ["n", 3]}, ["y", "s", "i"], weights))
    tensors = found["tensors"]
    types = {name: found["types"][kind] for name, kind in zip(tensors["name"], tensors["type"], strict=True)}
    assert types["x"] == ("float32[n, 3]", -1)
    assert types["large"] == ("float32[3, 3]", 36)
    assert types["scale"] == ("float16[2]", 4)
    assert types["none"] == ("int64[0]", 0)
    assert types["q"] == ("sequence of float32", -1)
    constants = [tensors["name"][tensor] for tensor in tensors["constant"]]
    assert dict(zip(constants, tensors["contents"], strict=True)) == {
        "lo": "-1", "large": "", "scale": "[2, 0.5]", "none": "[]",
    }  # fmt: skip
    assert {tensors["name"][tensor] for tensor in tensors["outputs"]} == {"y", "s", "i"}
    assert found["reads"]["count"] == [3, 2, 1, 2, 1, 1]
    assert found["reads"]["tensor"][1] is None


def test_weights_that_are_missing_are_shown_by_type(tmp_path: Any) -> None:
    proto = make_model([helper.make_node("Mul", ["x", "w"], ["y"])], weights={"w": np.array([2.0], np.float32)})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="gone.bin")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    model = hetero.Core().read_model(tmp_path / "m.onnx")
    found = model_columns(model, np.arange(1, dtype=np.int32))
    assert found["tensors"]["contents"] == [""]


def test_names_are_cleaned(hostile_plan: hetero.Plan) -> None:
    nodes = [helper.make_node("Relu", ["x"], [name]) for name in HOSTILE_NAMES]
    names = columns(make_model(nodes, outputs=HOSTILE_NAMES))["tensors"]["name"]
    assert len(names) == len(HOSTILE_NAMES) + 1
    for name in [*names, *(op["name"] for op in report_data(hostile_plan)["ops"])]:
        assert not any(ord(letter) < 32 or letter in "\u202e\u2028" for letter in name)
