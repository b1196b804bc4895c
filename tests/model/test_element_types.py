"""Element types of results: those of onnxruntime's schemas, and of its sessions."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hetero.errors import ModelError
from hetero.model import element_types, inference
from hetero.model.element_types import dtype_named
from hetero.model.model import Model
from hetero.model.read import read_model

onnxruntime = pytest.importorskip("onnxruntime")

MICROSOFT, CLASSIC = "com.microsoft", "ai.onnx.ml"
node = helper.make_node

F, U8, I8, I16, I32, I64, TEXT, DOUBLE, HALF = (
    TensorProto.FLOAT,
    TensorProto.UINT8,
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.STRING,
    TensorProto.DOUBLE,
    TensorProto.FLOAT16,
)


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, int],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 21,
    imports: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """A model that states no types except those of its inputs, whose shapes are unknown."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, number, None) for name, number in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    versions = {"": opset, MICROSOFT: 1, CLASSIC: 3} if imports is None else imports
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*one) for one in versions.items()], ir_version=10
    )


def dtypes_of(model: Model, names: Sequence[str]) -> list[np.dtype[Any] | None]:
    return [model.type_of(model.value_id(name)).dtype for name in names]


def session_dtypes(model: onnx.ModelProto) -> list[np.dtype[Any] | None]:
    """The element types of the outputs in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [dtype_named(port.type) for port in session.get_outputs()]


def test_the_table_has_the_types_of_onnxruntimes_schemas() -> None:
    """For each operator: wherever the schema determines the type of a result, so does the table, and equally."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    candidates = [np.dtype(name) for name in ("float32", "float16", "int8", "uint8", "int32", "int64")]
    compared = 0
    table = element_types._table()
    for schema in get_all_operator_schema():
        signature = table.get((schema.domain, schema.name))
        if signature is None or schema.name == "QLinearConcat":  # its inputs differ in type
            continue
        allowed = {one.type_param_str: list(one.allowed_type_strs) for one in schema.type_constraints}
        parameters = sorted({one.typeStr for one in schema.inputs})
        for shift in range(2):
            dtype_of = {
                name: candidates[(at + shift) % len(candidates)]
                if len(allowed.get(name, [name])) > 1
                else dtype_named(allowed.get(name, [name])[0])
                for at, name in enumerate(parameters)
            }
            for absent in [None, *range(len(schema.inputs))]:
                known = [None if at == absent else dtype_of[one.typeStr] for at, one in enumerate(schema.inputs)]
                found = signature(None, known)  # type: ignore[arg-type]
                for at, output in enumerate(schema.outputs):
                    name = output.typeStr
                    if len(allowed.get(name, [name])) == 1:
                        expected = dtype_named(allowed.get(name, [name])[0])
                    else:
                        given = [one for one, i in zip(known, schema.inputs, strict=True) if i.typeStr == name]
                        expected = next((one for one in given if one is not None), None)
                    assert (found[at] if at < len(found) else None) == expected, (schema.name, output.name, known)
                    compared += expected is not None
    assert compared > 1000


SINGLE: dict[str, tuple[onnx.NodeProto, dict[str, int]]] = {
    "BiasGelu, from the constant": (node("BiasGelu", ["x", "b"], ["y"], domain=MICROSOFT), {"x": F, "b": F}),
    "GroupQueryAttention without past": (
        node(
            "GroupQueryAttention", ["q", "k", "v", "", "", "s", "t"], ["y", "pk", "pv"], domain=MICROSOFT, num_heads=2
        ),
        {"q": F, "k": F, "v": F, "s": I32, "t": I32},
    ),
    "LinearAttention without past": (
        node(
            "LinearAttention",
            ["q", "k", "v"],
            ["y", "p"],
            domain=MICROSOFT,
            q_num_heads=2,
            kv_num_heads=2,
            update_rule="linear",
        ),
        {"q": F, "k": F, "v": F},
    ),
    "QGemm with zero point": (
        node("QGemm", ["a", "as", "az", "b", "bs", "bz", "", "ys", "yz"], ["y"], domain=MICROSOFT),
        {"a": U8, "as": F, "az": U8, "b": U8, "bs": F, "bz": U8, "ys": F, "yz": U8},
    ),
    "QGemm without zero point": (
        node("QGemm", ["a", "as", "az", "b", "bs", "bz"], ["y"], domain=MICROSOFT),
        {"a": U8, "as": F, "az": U8, "b": U8, "bs": F, "bz": U8},
    ),
    "QGemm with an empty zero point": (
        node("QGemm", ["a", "as", "az", "b", "bs", "bz", "", "", ""], ["y"], domain=MICROSOFT),
        {"a": U8, "as": F, "az": U8, "b": U8, "bs": F, "bz": U8},
    ),
    "QuantizeLinear without zero point": (
        node("QuantizeLinear", ["x", "s"], ["y"], domain=MICROSOFT),
        {"x": F, "s": F},
    ),
    "QuantizeLinear with zero point": (
        node("QuantizeLinear", ["x", "s", "z"], ["y"], domain=MICROSOFT),
        {"x": F, "s": F, "z": I8},
    ),
    "QuantizeLinear with an attribute": (node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=I8), {"x": F, "s": F}),
    "QuantizeLinear of ONNX": (node("QuantizeLinear", ["x", "s"], ["y"]), {"x": F, "s": F}),
    "DequantizeLinear": (
        node("DequantizeLinear", ["x", "s", "z"], ["y"], domain=MICROSOFT),
        {"x": I8, "s": F, "z": I8},
    ),
    "GridSample": (node("GridSample", ["x", "g"], ["y"], domain=MICROSOFT), {"x": F, "g": F}),
    "MatMulInteger16": (node("MatMulInteger16", ["x", "w"], ["y"], domain=MICROSOFT), {"x": I16, "w": I16}),
    "MurmurHash3": (node("MurmurHash3", ["x"], ["y"], domain=MICROSOFT), {"x": I32}),
    "MurmurHash3, signed": (node("MurmurHash3", ["x"], ["y"], domain=MICROSOFT, positive=0), {"x": I32}),
    "SkipLayerNormalization": (
        node("SkipLayerNormalization", ["x", "s", "g"], ["y", "", "", "sum"], domain=MICROSOFT),
        {"x": F, "s": F, "g": F},
    ),
    "EmbedLayerNormalization": (
        node("EmbedLayerNormalization", ["i", "", "w", "p", "", "g", "b"], ["y", "m", "sum"], domain=MICROSOFT),
        {"i": I32, "w": F, "p": F, "g": F, "b": F},
    ),
    "DynamicQuantizeMatMul": (
        node("DynamicQuantizeMatMul", ["x", "w", "s"], ["y"], domain=MICROSOFT),
        {"x": F, "w": I8, "s": F},
    ),
    "MatMulIntegerToFloat": (
        node("MatMulIntegerToFloat", ["x", "w", "s", "t"], ["y"], domain=MICROSOFT),
        {"x": U8, "w": I8, "s": F, "t": F},
    ),
    "SimplifiedLayerNormalization": (node("SimplifiedLayerNormalization", ["x", "g"], ["y"]), {"x": F, "g": HALF}),
    "Scaler": (node("Scaler", ["x"], ["y"], domain=CLASSIC, offset=[0.0], scale=[1.0]), {"x": DOUBLE}),
    "Normalizer": (node("Normalizer", ["x"], ["y"], domain=CLASSIC), {"x": I64}),
    "Imputer": (node("Imputer", ["x"], ["y"], domain=CLASSIC, imputed_value_int64s=[1]), {"x": I64}),
    "LinearRegressor": (node("LinearRegressor", ["x"], ["y"], domain=CLASSIC, coefficients=[1.0]), {"x": F}),
    "FeatureVectorizer": (node("FeatureVectorizer", ["x"], ["y"], domain=CLASSIC, inputdimensions=[1]), {"x": I64}),
    "LinearClassifier of text": (
        node(
            "LinearClassifier",
            ["x"],
            ["y", "z"],
            domain=CLASSIC,
            coefficients=[1.0, 2.0],
            intercepts=[0.0, 0.0],
            classlabels_strings=["a", "b"],
        ),
        {"x": F},
    ),
    "LabelEncoder": (
        node("LabelEncoder", ["x"], ["y"], domain=CLASSIC, keys_strings=["a"], values_floats=[1.0]),
        {"x": TEXT},
    ),
}


@pytest.mark.parametrize("name", SINGLE)
def test_types_are_those_of_onnxruntime(name: str) -> None:
    single, inputs = SINGLE[name]
    outputs = [output for output in single.output if output]
    model = make([single], inputs, outputs, opset=21)
    if single.op_type == "GroupQueryAttention":
        single.attribute.append(helper.make_attribute("kv_num_heads", 2))
        model = make([single], inputs, outputs, opset=21)
    expected = session_dtypes(model)
    assert None not in expected
    assert dtypes_of(read_model(model), outputs) == expected


def chain(count: int) -> onnx.ModelProto:
    """x -> Gelu -> Transpose -> Gelu -> Transpose ..., where each type depends on the one before."""
    names = ["x", *(f"v{i}" for i in range(2 * count))]
    nodes = []
    for source, target in itertools.pairwise(names):
        gelu = len(nodes) % 2 == 0
        nodes.append(node("Gelu" if gelu else "Transpose", [source], [target], domain=MICROSOFT if gelu else ""))
    return make(nodes, {"x": F}, [names[-1]])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A list that each later type inference adds its skeleton to."""
    skeletons: list[bytes] = []
    infer = inference.infer_types

    def counting(model: bytes, *, harmless: bool) -> bytes | None:
        skeletons.append(model)
        return infer(model, harmless=harmless)

    monkeypatch.setattr(inference, "infer_types", counting)
    return skeletons


def test_one_inference_types_a_long_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = counted(monkeypatch)
    model = read_model(chain(40))
    assert {model.type_of(value).dtype for value in range(model.num_values)} == {np.dtype(np.float32)}
    assert len(runs) == 1


def test_nodes_out_of_order() -> None:
    model = chain(5)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    read = read_model(model)
    assert all(read.has_type(value) for value in range(read.num_values))


def test_a_result_that_only_inference_finds_types_the_rest() -> None:
    """The types of RandomNormalLike and If follow from no signature, so they take another round."""
    branch = helper.make_graph([node("Neg", ["a"], ["n"])], "b", [], [onnx.ValueInfoProto(name="n")])
    nodes = [
        node("Gelu", ["x"], ["a"], domain=MICROSOFT),
        node("If", ["c"], ["b"], then_branch=branch, else_branch=branch),
        node("QuickGelu", ["b"], ["d"], domain=MICROSOFT),
        node("RandomNormalLike", ["d"], ["e"]),
        node("FastGelu", ["e"], ["y"], domain=MICROSOFT),
    ]
    model = read_model(make(nodes, {"x": F, "c": TensorProto.BOOL}, ["y"]))
    assert dtypes_of(model, list("abdey")) == [np.dtype(np.float32)] * 5


def test_the_other_name_of_the_onnx_domain() -> None:
    nodes = [
        node("Gelu", ["x"], ["a"], domain=MICROSOFT),
        node("Relu", ["a"], ["b"], domain="ai.onnx"),
        node("Gelu", ["b"], ["c"], domain=MICROSOFT),
        node("Shape", ["c"], ["y"], domain="ai.onnx"),
    ]
    for alias in ("", "ai.onnx"):
        model = read_model(make(nodes, {"x": DOUBLE}, ["y"], imports={alias: 17, MICROSOFT: 1}))
        assert dtypes_of(model, list("abcy")) == [np.dtype(np.float64)] * 3 + [np.dtype(np.int64)]


def test_shapes_of_onnx_operators_under_the_other_name() -> None:
    model = make([node("Relu", ["x"], ["a"], domain="ai.onnx"), node("Neg", ["a"], ["y"])], {}, ["y"], opset=17)
    model.graph.input.append(helper.make_tensor_value_info("x", F, [2, "n"]))
    read = read_model(model)
    assert read.type_of(read.value_id("a")).shape == (2, "n")


def test_the_import_of_onnxruntimes_domain_may_be_missing() -> None:
    nodes = [node("Gelu", ["x"], ["a"], domain=MICROSOFT), node("Neg", ["a"], ["y"])]
    model = read_model(make(nodes, {"x": DOUBLE}, ["y"], imports={"": 17}))
    assert model.opsets[MICROSOFT] == 1
    assert dtypes_of(model, ["a", "y"]) == [np.dtype(np.float64)] * 2
    with pytest.raises(ModelError, match="does not import an opset of domain 'my'"):
        read_model(make([node("Gelu", ["x"], ["y"], domain="my")], {"x": DOUBLE}, ["y"], imports={"": 17}))


def test_a_stated_type_is_kept() -> None:
    model = chain(2)
    model.graph.value_info.append(helper.make_tensor_value_info("v1", F, [3, "k"]))
    model.graph.value_info.append(helper.make_tensor_value_info("v0", 0, [2]))
    model.graph.value_info[-1].type.tensor_type.ClearField("elem_type")
    read = read_model(model)
    assert read.type_of(read.value_id("v1")).shape == (3, "k")
    assert read.type_of(read.value_id("v0")) == inference.ValueType(np.dtype(np.float32), (2,))


def test_types_from_the_user_reach_later_results() -> None:
    nodes = [node("Unheard", ["x"], ["a"], domain="my"), node("Gelu", ["a"], ["y"], domain=MICROSOFT)]
    model = read_model(make(nodes, {"x": F}, ["y"], imports={"": 17, MICROSOFT: 1, "my": 1}))
    assert dtypes_of(model, ["a", "y"]) == [None, None]
    typed = model.with_types({"a": (np.float16, None)})
    assert dtypes_of(typed, ["a", "y"]) == [np.dtype(np.float16)] * 2


def test_a_function_of_the_same_name_has_its_own_types() -> None:
    body = helper.make_function(
        MICROSOFT, "Gelu", ["a"], ["b"], [node("Cast", ["a"], ["b"], to=I64)], [helper.make_opsetid("", 17)]
    )
    model = make([node("Gelu", ["x"], ["y"], domain=MICROSOFT)], {"x": F}, ["y"], opset=17)
    model.functions.append(body)
    assert dtypes_of(read_model(model), ["y"]) == [np.dtype(np.int64)]


@pytest.mark.parametrize("fails", [1, 2])
def test_a_failed_round_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """Round 1 has the types of the rules and round 2 has those that depend on its answer; without round 1, the types
    of ONNX's operators are still found."""
    nodes = [
        node("Neg", ["x"], ["n"]),
        node("Inverse", ["x"], ["a"], domain=MICROSOFT),
        node("RandomNormalLike", ["a"], ["b"]),
        node("Inverse", ["b"], ["y"], domain=MICROSOFT),
    ]
    calls = itertools.count(1)
    infer = inference.infer_types

    def failing(model: bytes, *, harmless: bool) -> bytes | None:
        number = next(calls)
        if number == fails:
            raise RuntimeError("broken")
        return infer(model, harmless=harmless)

    monkeypatch.setattr(inference, "infer_types", failing)
    model = read_model(make(nodes, {"x": F}, ["y"]))
    assert dtypes_of(model, ["n"]) == [np.dtype(np.float32)]
    if fails == 2:
        assert dtypes_of(model, ["a", "b", "y"]) == [np.dtype(np.float32), np.dtype(np.float32), None]


def test_malformed_attributes_leave_a_type_unknown() -> None:
    twice = node("Cast", ["a"], ["b"], to=F)
    twice.attribute.append(helper.make_attribute("to", I64))
    nodes = [node("Gelu", ["x"], ["a"], domain=MICROSOFT), twice, node("Gelu", ["x"], ["y"], domain=MICROSOFT)]
    model = read_model(make(nodes, {"x": F}, ["b", "y"]))
    assert dtypes_of(model, ["a", "y"]) == [np.dtype(np.float32)] * 2


def test_other_models_take_one_inference_and_no_rules(
    monkeypatch: pytest.MonkeyPatch, make_model: Callable[..., onnx.ModelProto]
) -> None:
    runs = counted(monkeypatch)

    def refuse(*_: object) -> None:
        raise AssertionError("asked for a rule")

    monkeypatch.setattr(inference, "rule_of", refuse)
    model = read_model(make([node("Neg", ["x"], ["a"]), node("Unheard", ["a"], ["b"], domain="my")], {"x": F}, ["b"],
                            imports={"": 17, "my": 1}))  # fmt: skip
    assert dtypes_of(model, ["a", "b"]) == [np.dtype(np.float32), None]
    assert len(runs) == 1


def test_importing_the_rules_does_not_import_onnx() -> None:
    code = "import hetero, sys; import hetero.model.element_types; assert 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
