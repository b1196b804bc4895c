"""Elements of sequences and optional values as inputs: checked and converted as tensors are, on each device alike."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import hetero
from hetero.model.read import read_model
from hetero.model.types import Holder, holder_of

DEVICES = ["TEMPLATE", "ORT", "HETERO:CPU,TEMPLATE", "HETERO:CPU,ORT", "MULTI:TEMPLATE,ORT"]
FLOAT, INT64, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.STRING
A, B = np.array([1.5, 2.5], np.float32), np.array([3.5], np.float32)


def tensor(dtype: int) -> onnx.TypeProto:
    return oh.make_tensor_type_proto(dtype, ["n"])


def model_of(kind: str, dtype: int = FLOAT) -> onnx.ModelProto:
    """The sequence joined, or what the optional holds."""
    sequence = oh.make_sequence_type_proto(tensor(dtype))
    nodes = [oh.make_node("ConcatFromSequence", ["s"], ["y"], "join", axis=0)]
    given = {"sequence": sequence, "optional": tensor(dtype), "optional sequence": sequence}[kind]
    if kind != "sequence":
        given = oh.make_optional_type_proto(given)
        nodes = [oh.make_node("OptionalGetElement", ["x"], ["s"], "get"), *nodes]
    if kind == "optional":
        nodes = [oh.make_node("OptionalGetElement", ["x"], ["y"], "get")]
    name = "s" if kind == "sequence" else "x"
    output = oh.make_tensor_value_info("y", dtype, ["m"])
    graph = oh.make_graph(nodes, "g", [oh.make_value_info(name, given)], [output])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)


def matrix(values: Any) -> np.ndarray:
    with pytest.warns(PendingDeprecationWarning):
        return np.matrix(values, np.float32)


WRONG = [
    ([A.astype(np.float64), B], "found in element 0: dtype float64"),
    ([A, B.astype(np.float64)], "found in element 1: dtype float64"),
    ([A.astype(np.float64), B.astype(np.float64)], "dtype float64"),
    ([A.astype(np.int64)], "found in element 0: dtype int64"),
    ([A, None], "found in element 1: None; pass an array"),
    ([np.ma.masked_array(A, [True, False])], "1 masked element"),
    ([np.array([None, 1.0])], "an array of Python objects"),
    ([["a"]], "found in element 0: a list of str"),
    ([1e99], "outside the range of float32"),
    (A, "found an array; pass a list"),
    (1.5, "found float; pass a list"),
    ({"a": A}, "found dict; pass a list"),
]

RIGHT = [
    [A, B],
    (A, B),
    [[1.5, 2.5], (3.5,)],
    [np.ma.masked_array(A, [False, False]), B],
    [A.astype(">f4"), B],
    [[1.5, np.float64(2.5)], B],
]


@pytest.mark.parametrize("kind", ["sequence", "optional sequence"])
@pytest.mark.parametrize("device", DEVICES)
def test_elements_of_a_sequence(device: str, kind: str, tmp_path: pathlib.Path) -> None:
    core = hetero.Core()
    compiled = core.compile_model(model_of(kind), device)
    models = [compiled]
    if not device.startswith("MULTI"):
        compiled.export_model(tmp_path / "m.hetero")
        models.append(core.import_model(tmp_path / "m.hetero"))
    assert models[-1].inputs == compiled.inputs
    name = compiled.inputs[0].name
    for model in models:
        request = model.create_infer_request()
        for value, message in WRONG:
            with pytest.raises(hetero.InferenceError, match="expected a list of float32 arrays") as raised:
                model({name: value})
            assert message in str(raised.value)
            with pytest.raises(hetero.InferenceError, match="expected a list of float32 arrays"):
                request.infer({name: value})
            with pytest.raises(hetero.InferenceError, match="expected a list of float32 arrays"):
                request.start_async({name: value})
        for value in RIGHT:
            for found in (model({name: value})["y"], model(value)["y"], request.infer({name: value})["y"]):
                assert found.dtype == np.float32
                assert found.tolist() == [1.5, 2.5, 3.5]
            request.start_async({name: value})
            request.wait()
            assert request.outputs["y"].tolist() == [1.5, 2.5, 3.5]
    if kind == "sequence":
        with pytest.raises(hetero.InferenceError, match="expected a list of float32 arrays, found NoneType"):
            compiled({name: None})


@pytest.mark.parametrize("device", DEVICES)
def test_the_element_of_an_optional(device: str) -> None:
    compiled = hetero.Core().compile_model(model_of("optional"), device)
    for value, message in [
        (A.astype(np.float64), "found dtype float64"),
        (A.astype(np.int64), "found dtype int64"),
        (np.ma.masked_array(A, [True, False]), "1 masked element"),
        ([None], "found a list of NoneType"),
        ([A, B], "rows of different lengths"),
        (["a"], "found a list of str"),
    ]:
        with pytest.raises(hetero.InferenceError, match="expected a float32 array or None") as raised:
            compiled({"x": value})
        assert message in str(raised.value)
    for value in (A, [1.5, 2.5], np.ma.masked_array(A), A.astype(">f4")):
        assert compiled({"x": value})["y"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("device", ["TEMPLATE", "ORT"])
def test_whole_numbers_and_strings_in_a_sequence(device: str) -> None:
    core = hetero.Core()
    numbers = core.compile_model(model_of("sequence", INT64), device)
    assert numbers({"s": [[1, 2], np.array([2**60])]})["y"].tolist() == [1, 2, 2**60]
    for value in ([[1.5]], [np.array([1], np.int32)], [[2**63]], [np.array([1.0])]):
        with pytest.raises(hetero.InferenceError, match="expected a list of int64 arrays"):
            numbers({"s": value})
    strings = core.compile_model(model_of("sequence", STRING), device)
    assert strings({"s": [np.array(["a"]), ["b", "c"]]})["y"].tolist() == ["a", "b", "c"]
    with pytest.raises(hetero.InferenceError, match="expected a list of object arrays"):
        strings({"s": [[1]]})


def test_a_matrix_as_an_element_is_a_plain_array() -> None:
    """Whose products are those of arrays."""
    type_ = oh.make_sequence_type_proto(oh.make_tensor_type_proto(FLOAT, [2, 2]))
    nodes = [
        oh.make_node("Constant", [], ["i"], value_int=0),
        oh.make_node("SequenceAt", ["s", "i"], ["a"]),
        oh.make_node("Mul", ["a", "a"], ["y"]),
    ]
    output = oh.make_tensor_value_info("y", FLOAT, [2, 2])
    graph = oh.make_graph(nodes, "g", [oh.make_value_info("s", type_)], [output])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    given = matrix([[1, 2], [3, 4]])
    for device in DEVICES:
        found = hetero.Core().compile_model(model, device)({"s": [given]})["y"]
        assert type(found) is np.ndarray
        assert found.tolist() == [[1, 4], [9, 16]]


def test_what_a_port_knows() -> None:
    for kind, kinds in (
        ("sequence", ("sequence",)),
        ("optional", ("optional",)),
        ("optional sequence", ("optional", "sequence")),
    ):
        port = read_model(model_of(kind)).inputs[0]
        assert not port.is_tensor
        assert port.holder == Holder(kinds, np.dtype(np.float32))
    assert read_model(model_of("sequence")).outputs[0].holder == Holder()
    assert read_model(model_of("sequence")).inputs[0] != read_model(model_of("sequence", INT64)).inputs[0]
    nested = oh.make_sequence_type_proto(oh.make_sequence_type_proto(tensor(INT64)))
    assert holder_of(nested.SerializeToString()) == Holder(("sequence", "sequence"), np.dtype(np.int64))
    for other in (onnx.TypeProto(), tensor(FLOAT), oh.make_sequence_type_proto(onnx.TypeProto())):
        assert holder_of(other.SerializeToString()) == Holder()
    assert holder_of(b"\x22\xff") == Holder()  # longer than the message
    deep = tensor(FLOAT)
    for _ in range(100):
        deep = oh.make_sequence_type_proto(deep)
    assert holder_of(deep.SerializeToString()) == Holder()
