"""Which inputs are accepted and which refused: the same on every device, through every way to call it."""

from __future__ import annotations

import array
import collections
import enum
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.plugin.conversion import as_array

FLOAT = np.dtype(np.float32)


class Pandas:
    """As a Series or a DataFrame: no array, but something that gives one."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        found = np.asanyarray(self.values)
        return found if dtype is None else found.astype(dtype)


class Labeled(np.ndarray):
    """A subclass that changes what arithmetic gives."""

    def __add__(self, other: Any) -> Any:
        return self


class Color(enum.IntEnum):
    RED = 3


masked = np.ma.array([1.0, 2.0], np.float32, mask=[False, True])
whole = np.ma.array([1.0, 2.0], np.float32)
recursive: list[Any] = []
recursive.append(recursive)
INTS = ("int64", "int8", "uint8", "uint64")


@pytest.mark.parametrize(
    ("value", "dtypes", "says"),
    [
        (None, ("float32", "int64", "bool", "object"), "found None"),
        ([1.0, None], ("float32",), "NoneType"),
        ([[1, 2], [3, None]], ("int64",), "NoneType"),
        ([1.5, 2.7], INTS, "found a list of float"),
        (1.5, INTS, "found float"),
        ([1, 2.0], INTS, "found a list of float and int"),
        ([2**53 + 1, 1.0], ("int64",), "float and int"),
        (np.float64(1.5), INTS, "found float64"),
        ([np.float32(1)], INTS, "found a list of float"),
        ([float("nan")], INTS, "float"),
        ([float("inf")], INTS, "float"),
        ([1 + 2j], ("float32", "int64", "bool"), "complex"),
        ("1.5", ("float32", "int64", "bool"), "found str"),
        (["1", "2"], ("float32", "int64", "bool"), "found a list of str"),
        ([b"1"], ("float32", "int64"), "bytes"),
        (b"12", ("uint8", "int8"), "found bytes"),
        ([True, False], ("float32", *INTS), "found a list of bool"),
        (True, ("float32", "int64"), "found bool"),
        ([0, 1], ("bool",), "found a list of int"),
        ([300], ("uint8", "int8"), "300, outside the range"),
        ([1, -1], ("uint8", "uint64"), r"-1, outside the range of uint\d+ \(0 to"),
        ([2**63], ("int64", "int8"), "9223372036854775808, outside the range"),
        ([2**64], ("uint64", "int64"), "18446744073709551616, outside the range"),
        ([8], ("int4",), r"8, outside the range of int4 \(-8 to 7\)"),
        ([16], ("uint4",), r"16, outside the range of uint4 \(0 to 15\)"),
        ([1e39], ("float32",), "1e\\+39, outside the range of float32"),
        ([70000], ("float16",), "70000.0, outside the range of float16"),
        ([10**400], ("float32", "float64"), "outside the range of float"),
        ([[1, 2], [3]], ("float32", "int64", "bool"), "list of|rows of different lengths"),
        ([[1.0], 2.0], ("float32",), "list of float"),
        ([["a"], ["b", "c"]], ("object",), "rows of different lengths|list of str"),
        (recursive, ("float32",), "nested more than 64 levels|list"),
        ({"a": 1}, ("float32",), "found dict"),
        ({1.0, 2.0}, ("float32",), "found set"),
        ((x for x in [1.0]), ("float32",), "found generator"),
        (object(), ("float32", "int64", "object"), "found object"),
        (type("Tensor", (), {"data": np.zeros(2)})(), ("float32", "int64"), "found Tensor; pass its array, .data$"),
        (masked, ("float32",), "a masked array with 1 masked element; .*filled"),
        ([masked, masked], ("float32",), "masked"),
        (np.ma.masked, ("float32", "float64"), "masked"),
        ([1.0, np.ma.masked], ("float32",), "masked"),
        (Pandas(masked), ("float32",), "masked|list"),
        (np.array([1.0, None]), ("float32", "int64"), r"Python objects \(None, float\)"),
        (np.array(None), ("float32", "object"), r"Python objects \(None\)"),
        (np.array([1, 2], object), ("int64",), r"Python objects \(int\)"),
        (np.array([1, "a"], object), ("object",), r"Python objects \(int, str\)"),
        (np.array([b"\xff"]), ("object",), "not UTF-8"),
        ([1, 2], ("object",), "found a list of int"),
        (["a", 2], ("object",), "int and str"),
        (np.zeros(2, [("a", "f4"), ("b", "f4")]), ("float32", "complex64"), "ONNX does not have"),
        (np.zeros(2, "m8[s]"), ("int64",), "ONNX does not have"),
        (np.zeros(2, "M8[s]"), ("int64", "float32"), "ONNX does not have"),
        (Pandas(["a", None]), ("float32",), "Python objects"),
        (Pandas([[1], [2, 3]]), ("float32",), "found Pandas, which NumPy cannot convert to an array"),
        (np.array(["1"]), ("float32", "int64"), "dtype <U1|Python objects"),
        (range(300), ("uint8",), "299, outside the range"),
    ],
)
def test_refused(value: Any, dtypes: tuple[str, ...], says: str) -> None:
    for name in dtypes:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        with pytest.raises(hetero.InferenceError) as caught:
            _bound(value, dtype)
        assert re.search(says, str(caught.value)), caught.value
        assert str(caught.value).startswith("input 'x': expected ")


@pytest.mark.parametrize("name", ["float64", "int64", "float16", "bool", "complex64"])
def test_what_has_a_type_keeps_it(name: str) -> None:
    """As with arrays: no element is converted that was given a type on purpose."""
    values = np.ones(2, name)
    for value in (
        values,
        values.view(Labeled),
        np.ma.array(values),
        Pandas(values),
        values.astype(values.dtype.newbyteorder()),
    ):
        with pytest.raises(hetero.InferenceError, match=f"expected float32 .*, found dtype {name}"):
            _bound(value, FLOAT)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        ([1, 2], "float32", [1, 2]),
        ([1, 2.5], "float32", [1, 2.5]),
        ([0.1], "float32", [np.float32(0.1)]),
        ((1, 2), "int64", [1, 2]),
        (3, "int32", 3),
        (2.5, "float16", 2.5),
        ([np.int8(1), 2], "int64", [1, 2]),
        (np.float64(2.5), "float32", 2.5),
        ([np.array(1), np.array(2)], "int64", [1, 2]),
        ([np.float64([1, 2]), np.float32([3, 4])], "float32", [[1, 2], [3, 4]]),
        ([Pandas([1, 2])], "int64", [[1, 2]]),
        ([[], []], "float32", [[], []]),
        ([], "int64", []),
        ([True, False], "bool", [True, False]),
        ([np.True_], "bool", [True]),
        (True, "bool", True),
        ([-(2**63), 2**63 - 1], "int64", [-(2**63), 2**63 - 1]),
        ([2**64 - 1, 1], "uint64", [2**64 - 1, 1]),
        ([2**53 + 1], "int64", [2**53 + 1]),
        ([0, 255], "uint8", [0, 255]),
        ([-8, 7], "int4", [-8, 7]),
        ([15], "uint4", [15]),
        ([Color.RED], "int64", [3]),
        (range(3), "int32", [0, 1, 2]),
        (collections.deque([1, 2]), "float32", [1, 2]),
        ([float("nan"), float("inf"), -float("inf")], "float32", [np.nan, np.inf, -np.inf]),
        ([float("inf")], "bfloat16", [np.inf]),
        ([3.4028235e38], "float32", [3.4028235e38]),
        ([1, 2.5, 1j], "complex64", [1, 2.5, 1j]),
        (np.float32([[1, 2]]).view(np.matrix), "float32", [[1, 2]]),
        (whole, "float32", [1, 2]),
        ([whole], "float32", [[1, 2]]),
        (np.ones(2, np.float32).view(Labeled), "float32", [1, 1]),
        (np.ones(2, ">f4"), "float32", [1, 1]),
        (Pandas(np.ones(2, np.float32)), "float32", [1, 1]),
        (array.array("f", [1, 2]), "float32", [1, 2]),
        (memoryview(b"\1\2"), "uint8", [1, 2]),
        ("é", "object", "é"),
        (["a", b"\xc3\xa9"], "object", ["a", "é"]),
        ([["a"], ["b"]], "object", [["a"], ["b"]]),
        (np.array(["a", "é"]), "object", ["a", "é"]),
        (np.array([b"a", b"\xc3\xa9"]), "object", ["a", "é"]),
        (np.array([b"a", "é"], object), "object", ["a", "é"]),
        (np.array([["a"]], object), "object", [["a"]]),
    ],
)
def test_converted(value: Any, name: str, expected: Any) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    found = _bound(value, dtype)
    assert type(found) is np.ndarray
    assert found.dtype == dtype
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, np.array(expected, dtype))
    if dtype.hasobject:
        assert all(isinstance(item, str) for item in found.flat)


def test_arrays_are_not_copied() -> None:
    plain, text = np.ones((2, 2), np.float32), np.array(["a"], object)
    assert as_array(plain, FLOAT) is plain
    assert as_array(text, np.dtype(object)) is text
    for value in (plain.view(np.matrix), np.ma.array(plain), plain.view(Labeled), Pandas(plain), memoryview(plain)):
        assert np.shares_memory(as_array(value, FLOAT), plain)


def _bound(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    from hetero.model.types import Port
    from hetero.plugin.tensor import bind_inputs

    (found,) = bind_inputs([Port("x", dtype, None)], {"x": value})
    assert isinstance(found, np.ndarray)
    return found


# -- on every device, on every way into it ----------------------------------------------------------------------------

DEVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "CPU": ("CPU", {}),
    "TEMPLATE": ("TEMPLATE", {}),
    "ORT": ("ORT", {}),
    "HETERO": ("HETERO:CPU,TEMPLATE", {}),
    "cut": ("HETERO:TEMPLATE,CPU", {}),
    "MULTI": ("MULTI:CPU,TEMPLATE", {}),
    "worker": ("CPU", {"ISOLATION": "PROCESS"}),
    "stages": ("HETERO:CPU,TEMPLATE", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}),
}
WAYS: dict[str, Callable[[hetero.CompiledModel, Any], Any]] = {
    "call": lambda compiled, value: compiled({"x": value})["y"],
    "alone": lambda compiled, value: compiled(value)["y"],
    "submit": lambda compiled, value: compiled.submit({"x": value}).result()["y"],
    "map": lambda compiled, value: next(compiled.map([{"x": value}]))["y"],
    "request": lambda compiled, value: compiled.create_infer_request().infer({"x": value})["y"],
}


def chain(number: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"], name="first"),
        helper.make_node("Abs", ["a"], ["y"], name="second"),
    ]
    values = [helper.make_tensor_value_info(name, number, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", DEVICES)
def test_every_device_and_way(kind: str) -> None:
    device, config = DEVICES[kind]
    if "ORT" in device:
        pytest.importorskip("onnxruntime")
    core = hetero.Core()
    pins = {"second": "TEMPLATE"} if kind in ("HETERO", "stages") else {"second": "CPU"} if kind == "cut" else None
    floats = core.compile_model(chain(TensorProto.FLOAT), device, config, pins=pins)
    integers = core.compile_model(chain(TensorProto.INT64), device, config, pins=pins)
    refused: list[tuple[hetero.CompiledModel, Any]] = [
        (floats, [1.0, None]),
        (floats, masked),
        (floats, np.array([1.0, 2.0], object)),
        (floats, ["1", "2"]),
        (floats, [True, False]),
        (floats, np.zeros(2, [("a", "f4")])),
        (floats, [1 + 1j, 2]),
        (integers, [1.5, 2.7]),
        (integers, [float("nan"), 1]),
        (integers, [2**63, 1]),
        (integers, [True, False]),
        (integers, np.ones(2)),
    ]
    converted: list[tuple[hetero.CompiledModel, Any, Any]] = [
        (floats, whole, [2, 4]),
        (floats, [1, 2.5], [2, 5]),
        (floats, np.ones(2, np.float32).view(Labeled), [2, 2]),
        (floats, np.ones(2, ">f4"), [2, 2]),
        (floats, Pandas(np.ones(2, np.float32)), [2, 2]),
        (integers, [1, -2], [2, 4]),
        (integers, range(2), [0, 2]),
    ]
    for name, way in WAYS.items():
        for _ in range(2):  # the second time the last run was of such a shape
            for compiled, value in refused:
                if name == "alone" and isinstance(value, dict):
                    continue
                with pytest.raises(hetero.InferenceError, match="input 'x': expected"):
                    way(compiled, value)
                plain = np.ones(2, np.float32 if compiled is floats else np.int64)
                np.testing.assert_array_equal(way(compiled, plain), [2, 2])
            for compiled, value, expected in converted:
                found = way(compiled, value)
                assert type(found) is np.ndarray
                np.testing.assert_array_equal(found, expected)
        for compiled in (floats, integers):
            with pytest.raises(hetero.InferenceError, match="found None"):
                way(compiled, None)


def test_sequences_hold_arrays_of_one_type(core: hetero.Core) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(
        [helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)],
        "joined",
        [helper.make_value_info("s", helper.make_sequence_type_proto(tensor))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for device in ("TEMPLATE", "ORT"):
        if device == "ORT":
            pytest.importorskip("onnxruntime")
        compiled = core.compile_model(proto, device)
        one = np.float32([1])
        np.testing.assert_array_equal(
            compiled({"s": [one, np.float32([[2]]).view(np.matrix).A1, whole]})["y"], [1, 2, 1, 2]
        )
        for wrong, says in (
            ([one, ["1"]], "found in element 1: a list of str"),
            ([one, [1e99]], "found in element 1: .*outside the range of float32"),
            ([one, np.ones(1)], "found in element 1: dtype float64"),
            ([one, masked], "masked"),
            ([one, np.array([None])], "Python objects"),
        ):
            with pytest.raises(hetero.InferenceError, match=says):
                compiled({"s": wrong})
