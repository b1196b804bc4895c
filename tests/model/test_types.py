"""Types of values that the user supplies, and what is said where a type is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import pytest

from hetero.errors import ModelError
from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.model.types import Holder, Port, ValueType
from model.random_models import make_random_model

Make = Callable[..., onnx.ModelProto]
FLOAT = np.dtype(np.float32)


@pytest.fixture
def model(make_model: Make) -> Model:
    """x -> Frob (unknown) -> a -> Relu -> b -> MatMul with w -> y, of which only x has a type; c has a shape."""
    nodes = [
        oh.make_node("Frob", ["x"], ["a", "c"], domain="mine", name="frob"),
        oh.make_node("Relu", ["a"], ["b"]),
        oh.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    weight = onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    info = oh.make_tensor_value_info("c", 1, ["n", None, 7])
    proto = make_model(nodes, None, [oh.make_empty_tensor_value_info("y")], [weight], value_info=[info])
    proto.opset_import.add(domain="mine", version=1)
    return read_model(proto)


def types_of(model: Model, names: str) -> list[ValueType]:
    return [model.type_of(model.value_id(name)) for name in names]


def test_inference_goes_on_from_supplied_types(model: Model) -> None:
    unknown = ValueType(None, None)
    assert types_of(model, "aby")[:2] == [unknown, unknown]
    typed = model.with_types({"a": (np.float32, ("batch", 3))})
    assert types_of(typed, "aby") == [
        ValueType(FLOAT, ("batch", 3)),
        ValueType(FLOAT, ("batch", 3)),
        ValueType(FLOAT, ("batch", 4)),
    ]
    assert types_of(model, "a") == [unknown]  # the first is as it was
    assert typed.outputs[0].shape == ("batch", 4)
    assert (model.outputs[0].shape, model.extract([2]).inputs[0].dtype) == (None, None)
    # With sizes where there were symbols; what was said before still holds.
    fixed = typed.with_types({"a": ValueType(None, (2, None))})
    assert types_of(fixed, "ab") == [ValueType(FLOAT, (2, 3))] * 2
    assert fixed.extract([1, 2]).inputs[0].shape == (2, 3)
    assert fixed.with_affinity({"frob": "FPGA"}).extract([2]).inputs[0].shape == (2, 3)


@pytest.mark.parametrize("in_parts", [False, True])
def test_supplied_types_are_saved(model: Model, in_parts: bool) -> None:
    typed = model.with_types({"a": ("float16", ("n", 3)), "c": (None, (1, 5, 7)), "x": (None, [2]), "y": (FLOAT, None)})
    if in_parts:
        typed = typed.extract([0, 1, 2])
    again = read_model(typed.to_bytes())
    assert types_of(again, "acx") == [
        ValueType(np.dtype(np.float16), ("n", 3)),
        ValueType(FLOAT, (1, 5, 7)),
        ValueType(FLOAT, (2,)),
    ]
    names = [info.name for info in typed.to_proto().graph.value_info]
    assert sorted(names) == ["a", "c"] if in_parts else ["a", "c"]
    assert read_model(model.with_types({}).to_bytes()).to_bytes() == model.to_bytes()


def test_a_shape_may_be_supplied_alone(make_model: Make) -> None:
    """The element type comes from inference then."""
    nodes = [oh.make_node("NonZero", ["x"], ["i"]), oh.make_node("Neg", ["i"], ["y"])]
    model = read_model(make_model(nodes, None, [oh.make_empty_tensor_value_info("y")]))
    typed = model.with_types({"i": (None, (1, "found"))})
    assert types_of(typed, "i") == [ValueType(np.dtype(np.int64), (1, "found"))]


@pytest.mark.parametrize(
    ("name", "stated", "message"),
    [
        ("q", (np.float32, ()), "no value 'q'"),
        ("x", (np.float64, (2,)), "'x' is .*float32.* contradicts the supplied type .*float64"),
        ("x", (None, (3,)), "value 'x' is .* contradicts"),
        ("x", (None, (2, 1)), "value 'x' is .* contradicts"),
        ("c", (None, (1, 2, 8)), "value 'c' is .* contradicts"),
        ("w", (np.float32, (4, 3)), "value 'w' is .* contradicts"),
        ("a", (np.float32, (-1,)), "shape \\[-1\\] has a negative dim"),
        ("a", ("datetime64[s]", ()), "ONNX has no dtype datetime64"),
        ("a", ("frob", ()), "expected a dtype and a shape"),
        ("a", (np.float32, (1.5,)), "expected a dtype and a shape"),
        ("a", np.float32, "expected a dtype and a shape"),
    ],
)
def test_contradictions_and_nonsense_are_refused(model: Model, name: str, stated: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model.with_types({name: stated})


def test_agreement_is_no_contradiction(model: Model) -> None:
    same = model.with_types({"w": (np.float32, (3, "anything")), "x": (np.float32, (None,))})
    assert types_of(same, "wx") == types_of(model, "wx")
    assert types_of(model.with_types({"a": ("bfloat16", ())}), "a") == [ValueType(np.dtype(ml_dtypes.bfloat16), ())]


def test_a_type_that_nobody_knows_is_named(model: Model) -> None:
    with pytest.raises(ModelError, match=r"type of value 'a', which node 'frob' \(mine::Frob\) computes.*with_types"):
        model.known_type_of(model.value_id("a"))
    typed = model.with_types({"a": (np.float32, None)})
    assert typed.known_type_of(typed.value_id("a")).dtype == FLOAT
    with pytest.raises(ModelError, match="rank of value 'a', which node 'frob'"):
        typed.known_type_of(typed.value_id("a"), shape=True)
    part = model.extract([1])
    with pytest.raises(ModelError, match="value 'a', which is an input of the model"):
        part.known_type_of(part.value_id("a"))


def symbolic(make_model: Make) -> Model:
    """x [batch, n] -> Relu -> a [batch, n] -> Concat with itself -> b [batch, 2*n] -> Relu -> y."""
    nodes = [
        oh.make_node("Relu", ["x"], ["a"]),
        oh.make_node("Concat", ["a", "a"], ["b"], axis=1),
        oh.make_node("Relu", ["b"], ["y"]),
    ]
    infos = [oh.make_tensor_value_info("a", 1, ["batch", "n"]), oh.make_tensor_value_info("b", 1, ["batch", "2*n"])]
    inputs = [oh.make_tensor_value_info("x", 1, ["batch", "n"])]
    return read_model(make_model(nodes, inputs, [oh.make_tensor_value_info("y", 1, ["batch", "m"])], value_info=infos))


def test_sizes_of_inputs_are_those_of_their_symbols_everywhere(make_model: Make) -> None:
    model = symbolic(make_model)
    assert types_of(model, "ab") == [ValueType(FLOAT, ("batch", "n")), ValueType(FLOAT, ("batch", "2*n"))]
    sized = model.with_types({"x": (np.float32, (3, 5))})
    expected = [ValueType(FLOAT, (3, 5)), ValueType(FLOAT, (3, 10)), ValueType(FLOAT, (3, 10))]
    assert types_of(sized, "aby") == expected  # what no input has follows
    assert types_of(sized.with_types({"y": (None, (3, 10))}), "aby") == expected
    half = model.with_types({"x": (np.float32, (3, "n"))})
    assert types_of(half, "ab")[0] == ValueType(FLOAT, (3, "n"))
    assert types_of(half, "ab")[1].shape == (3, "2*n")
    assert not sized.outputs[0].declared
    assert model.outputs[0].declared
    empty = model.with_types({"x": (np.float32, (0, 5))})
    assert types_of(empty, "ab") == [ValueType(FLOAT, (0, 5)), ValueType(FLOAT, (0, 10))]


def test_sizes_of_inputs_reach_values_that_are_declared_with_open_dims(make_model: Make) -> None:
    """onnxruntime's optimizer and quantizer declare inner values with symbols of their own, or without sizes."""

    def model_of(*infos: onnx.ValueInfoProto) -> Model:
        nodes = [
            oh.make_node("Relu", ["x"], ["a"]),
            oh.make_node("Concat", ["a", "a"], ["b"], axis=1),
            oh.make_node("Relu", ["b"], ["y"]),
        ]
        inputs = [oh.make_tensor_value_info("x", 1, [None, "?"])]
        return read_model(make_model(nodes, inputs, [oh.make_tensor_value_info("y", 1, [-1, None])], value_info=infos))

    a, b = ("a", 1, ["unk__0", "unk__1"]), ("b", 1, [None, None])
    model = model_of(oh.make_tensor_value_info(*a), oh.make_tensor_value_info(*b))
    assert [kind.shape for kind in types_of(model, "aby")] == [("unk__0", "unk__1"), (None, None), (None, None)]
    sized = model.with_types({"x": (None, (3, 5))})
    assert [kind.shape for kind in types_of(sized, "aby")] == [(3, 5), (3, 10), (3, 10)]
    assert not sized.outputs[0].declared
    again = read_model(sized.with_inferred_types().to_bytes())
    assert [kind.shape for kind in types_of(again, "aby")] == [(3, 5), (3, 10), (3, 10)]
    half = model.with_types({"x": (None, (3, None))})
    assert [kind.shape for kind in types_of(half, "a")] == [(3, "unk__1")]
    wrong = model_of(oh.make_tensor_value_info("a", 1, [7, "unk__1"])).with_types({"x": (None, (3, 5))})
    assert [kind.shape for kind in types_of(wrong, "a")] == [(7, "unk__1")]  # as declared, where inference fails


def test_inner_sizes_follow_from_inputs_for_planning(make_model: Make) -> None:
    """onnxruntime's quantizer declares the result of a Slice with computed bounds as "unk__0" and so on."""
    nodes = [
        oh.make_node("Shape", ["x"], ["shape"]),
        oh.make_node("Gather", ["shape", "one"], ["columns"]),
        oh.make_node("Div", ["columns", "two"], ["half"]),
        oh.make_node("Slice", ["x", "zero", "half", "one"], ["left"]),
        oh.make_node("NonZero", ["left"], ["places"]),
        oh.make_node("Relu", ["left"], ["y"]),
    ]
    numbers = [onnx.numpy_helper.from_array(np.int64([i]), name) for i, name in enumerate(["zero", "one", "two"])]

    def model_of(rows: int | str, inner: list[Any]) -> Model:
        inputs = [oh.make_tensor_value_info("x", 1, [rows, 10])]
        infos = [oh.make_tensor_value_info("left", 1, inner), oh.make_tensor_value_info("places", 7, [2, "found"])]
        outputs = [oh.make_tensor_value_info("y", 1, inner)]
        return read_model(make_model(nodes, inputs, outputs, numbers, value_info=infos))

    names = ["left", "y", "places"]
    for inner in (["unk__0", "unk__1"], [None, None], [3, "unk__1"]):
        model = model_of(3, inner)
        before = model.to_bytes()
        sized = model.with_inner_sizes()
        assert [known.shape for known in types_of(sized, names)] == [(3, 5), (3, 5), (2, "found")]
        kinds, kind_of = sized.kinds_of(np.array([model.value_id(name) for name in names], np.int32))
        assert [kinds[kind].shape for kind in kind_of] == [(3, 5), (3, 5), (2, "found")]
        assert [known.shape for known in types_of(model, names)] == [tuple(inner), tuple(inner), (2, "found")]
        assert model.to_bytes() == model.with_inferred_types().to_bytes() == before
        assert model.outputs[0].declared
    half = symbolic(make_model).with_inner_sizes()
    assert [known.shape for known in types_of(half, "by")] == [("batch", "2*n"), ("batch", "m")]  # n is not known
    ports = [[oh.make_tensor_value_info(name, 1, ["n"])] for name in ("left", "y")]
    closed = read_model(make_model(nodes[-1:], *ports))
    assert closed.with_inner_sizes() is closed
    stated = model_of("n", ["n", "unk__1"]).with_types({"x": (None, (4, 10))})
    assert types_of(stated, ["left"])[0].shape == (4, 5)
    assert stated.with_inner_sizes() is stated  # inferred from the supplied sizes
    wrong = model_of(3, [7, "unk__1"]).with_inner_sizes()
    assert types_of(wrong, ["left"])[0].shape == (7, "unk__1")  # as declared, where inference fails


def test_symbols_that_inputs_contradict_stay(make_model: Make) -> None:
    inputs = [oh.make_tensor_value_info("x", 1, ["n", 2]), oh.make_tensor_value_info("z", 1, ["n"])]
    infos = [oh.make_tensor_value_info("a", 1, ["n", 2])]
    nodes = [oh.make_node("Frob", ["x", "z"], ["a"], domain="mine"), oh.make_node("Relu", ["a"], ["y"])]
    proto = make_model(nodes, inputs, [oh.make_empty_tensor_value_info("y")], value_info=infos)
    proto.opset_import.add(domain="mine", version=1)
    model = read_model(proto)
    assert types_of(model.with_types({"x": (None, (3, 2))}), "a") == [ValueType(FLOAT, (3, 2))]
    assert types_of(model.with_types({"x": (None, (3, 2)), "z": (None, (4,))}), "a") == [ValueType(FLOAT, ("n", 2))]


@pytest.mark.parametrize(
    ("port", "text"),
    [
        (Port("x", np.dtype("f4"), (1, "n", None)), "Port('x', float32 [1, n, ?])"),
        (Port("x", np.dtype("i8"), ()), "Port('x', int64 [])"),
        (Port("a'b", None, None), 'Port("a\'b", any dtype any shape)'),
        (Port("x", np.dtype("O"), (2,), declared=False), "Port('x', object [2], inferred)"),
        (
            Port("s", None, None, is_tensor=False, holder=Holder(("optional", "sequence"), np.dtype("f4"))),
            "Port('s', optional of sequence of float32)",
        ),
        (Port("m", None, None, is_tensor=False), "Port('m', no tensor)"),
    ],
)
def test_ports_are_shown(port: Port, text: str) -> None:
    assert repr(port) == text


@pytest.mark.parametrize("seed", range(40))
def test_types_of_many_values_are_those_of_each(seed: int) -> None:
    proto = make_random_model(random.Random(seed))
    whole = read_model(proto)
    models = [whole, whole.extract(range(whole.num_nodes // 2, whole.num_nodes))] if whole.num_nodes else [whole]
    sized = {port.name: tuple(2 if dim is None or isinstance(dim, str) else dim for dim in port.shape)
             for port in whole.inputs if port.shape is not None}  # fmt: skip
    if sized:
        models.append(whole.with_types({name: (None, shape) for name, shape in sized.items()}))
    for model in models:
        again = read_model(proto) if model is whole else model
        values = np.array(sorted(range(model.num_values), key=lambda value: (value * 7 + seed) % 11), np.int32)
        kinds, kind_of = model.kinds_of(values)
        assert [kinds[kind] for kind in kind_of.tolist()] == [again.type_of(value) for value in values.tolist()]
        assert len(set(kinds)) == len(kinds)
        assert list(dict.fromkeys(kind_of.tolist())) == list(range(len(kinds)))
        table, row = model.type_table()
        assert [table[kind] for kind in row.tolist()] == [model.type_of(value) for value in range(model.num_values)]


def test_types_of_no_values(branching_model: onnx.ModelProto) -> None:
    kinds, kind_of = read_model(branching_model).kinds_of(np.empty(0, np.int32))
    assert kinds == ()
    assert kind_of.tolist() == []


def test_stated_types_need_no_inference(make_model: Make) -> None:
    """`Model.kinds_of` infers if `type_of` would, and only then."""
    x = oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    model = read_model(make_model([oh.make_node("Relu", ["x"], ["y"]), oh.make_node("Relu", ["y"], ["z"])], [x], [
        oh.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [2])]))  # fmt: skip
    model.kinds_of(np.array([model.value_id("x"), model.value_id("z")], np.int32))
    assert not model._types.has_inferred
    kinds, _ = model.kinds_of(np.array([model.value_id("y")], np.int32))
    assert model._types.has_inferred
    assert kinds[0].shape == (2,)
