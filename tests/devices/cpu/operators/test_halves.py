"""float16 and bfloat16 on the CPU device: the result of float32, rounded once."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from hetero import Core, HeteroError
from hetero.devices.cpu.operators.halves import _OPERATORS
from operator_cases import Case, cases, models
from unary_sweep import FUNCTIONS

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
Array = np.ndarray[Any, Any]

# These have no cases here: test_onnxruntime.py compares them with onnxruntime, most of them also in float16.
_OF_ONNXRUNTIME = {
    "SimplifiedLayerNormalization",
    *(f"com.microsoft::{name}" for name in ("BiasGelu", "FastGelu", "FusedMatMul", "Gelu", "QuickGelu")),
    *(
        f"com.microsoft::{name}"
        for name in ("Attention", "GroupQueryAttention", "MultiHeadAttention", "RotaryEmbedding")
    ),
    *(f"com.microsoft::{name}" for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")),
}


def run(core: Core, case: Case) -> list[Array]:
    model = core.read_model(case.model(max(case.versions(22))))
    return list(core.compile_model(model, "CPU").create_runner().run(list(case.feeds().values())))


def in_type(case: Case, old: np.dtype[Any], new: np.dtype[Any]) -> Case:
    """The case with its operands of type ``old`` in type ``new``."""
    inputs = tuple(x.astype(new) if x is not None and x.dtype == old else x for x in case.inputs)
    return dataclasses.replace(case, inputs=inputs)


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", TYPES)
def test_operators_round_the_result_of_float32_once(name: str, every: bool) -> None:
    core, half = Core(), TYPES[name]
    chosen = {str(case) for case, _ in models(22, every)}
    compared: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow and divide by zero on purpose
        for case in cases():
            if str(case) not in chosen or case.op_type not in _OPERATORS:
                continue
            if case.inputs[0] is None or case.inputs[0].dtype != np.float32:
                continue
            # With more outputs it runs as ONNX's function, which rounds the normalized values on their way.
            if not case.versions(22) or (case.op_type == "LayerNormalization" and case.outputs > 1):
                continue
            rounded = in_type(case, np.dtype(np.float32), half)
            try:
                wanted = run(core, in_type(rounded, half, np.dtype(np.float32)))
            except HeteroError:
                continue  # refused in float32 too
            for found, expected in zip(run(core, rounded), wanted, strict=True):
                if expected.dtype == np.float32:
                    expected = expected.astype(half)
                assert found.dtype == expected.dtype, str(case)
                as_floats = [array.astype(np.float64) for array in (found, expected)]
                assert np.array_equal(*as_floats, equal_nan=True), str(case)
            compared[case.op_type] += 1
    missing = set(_OPERATORS) - set(compared)
    assert missing <= {"CumProd", "RMSNormalization", "RotaryEmbedding", "Scatter", "Swish", *_OF_ONNXRUNTIME}, missing


def test_constants_are_widened_once_for_all_plans() -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((20, 30)).astype(np.float16)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, ["n", 20])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    core = Core()
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    compiled = core.compile_model(model, "CPU")
    for rows in (1, 5, 1, 9):
        x = rng.standard_normal((rows, 20)).astype(np.float16)
        wanted = (x.astype(np.float64) @ weights.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(compiled({"x": x})[0].astype(np.float32), wanted, rtol=1e-3, atol=1e-3)
    kept = compiled._plans.planner._packed  # type: ignore[attr-defined]
    assert len(kept) == 2  # wide, and packed


def test_two_kinds_of_halves_in_one_operator_are_an_error() -> None:
    case = Case("Add", (np.ones(3, np.float16), np.ones(3, ml_dtypes.bfloat16)), {})
    with pytest.raises(HeteroError):
        run(Core(), case)


@pytest.mark.parametrize("names", [("float16", "bfloat16"), ("bfloat16", "float16")])
@pytest.mark.parametrize(
    ("op_type", "shapes", "of_other_type", "attributes"),
    [
        ("Pow", [(2, 3), (3,)], 1, {}),
        ("BatchNormalization", [(2, 3, 4), (3,), (3,), (3,), (3,)], 3, {}),
        ("GridSample", [(1, 2, 3, 3), (1, 2, 2, 2)], 1, {"padding_mode": "border"}),
    ],
)
def test_two_kinds_of_halves_where_onnx_allows_them(
    op_type: str, shapes: list[tuple[int, ...]], of_other_type: int, attributes: dict[str, Any], names: tuple[str, str]
) -> None:
    """The operands from ``of_other_type`` on are of the second type; the result is of the first."""
    rng, core = np.random.default_rng(1), Core()
    types = [TYPES[names[number >= of_other_type]] for number in range(len(shapes))]
    inputs = tuple(rng.uniform(0.5, 1.5, shape).astype(dtype) for shape, dtype in zip(shapes, types, strict=True))
    wide = tuple(array.astype(np.float32) for array in inputs)
    (found,), (exact,) = run(core, Case(op_type, inputs, attributes)), run(core, Case(op_type, wide, attributes))
    assert found.dtype == types[0]
    np.testing.assert_array_equal(found, exact.astype(types[0]))


# Attributes, ONNX's operator and the name in unary_sweep; the domains of some are narrower than their types.
_UNARY: dict[str, tuple[str, dict[str, Any]]] = {
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "erf": ("Erf", {}),
    "exp": ("Exp", {}),
    "log": ("Log", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "selu": ("Selu", {"alpha": 1.625, "gamma": 1.0625}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
    "mish": ("Mish", {}),
    "gelu_erf": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    **{name: (name.capitalize(), {}) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{name: (name.capitalize(), {}) for name in ("asinh", "acosh", "atanh")},
}
_MOST_ULP = 0.501
"""Units in the last place of the half type by which a result may be off: half a unit, and what float32 adds to it. An
absolute bound of float32 comes on top."""


@pytest.mark.parametrize("name", TYPES)
def test_every_half_of_every_unary_function(name: str) -> None:
    """All 65,536 of a type. Beyond 0.5 units only where the exact result lies next to the middle of two halves."""
    half = TYPES[name]
    x = np.arange(1 << 16, dtype=np.uint16).view(half)
    kind = helper.np_dtype_to_tensor_dtype(half)
    nodes = [helper.make_node(op, ["x"], [key], **attributes) for key, (op, attributes) in _UNARY.items()]
    graph = helper.make_graph(
        nodes,
        "unary",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(key, kind, x.shape) for key in _UNARY],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    results = Core().compile_model(model, "CPU")(x)
    top = np.asarray(ml_dtypes.finfo(half).max, half)
    with np.errstate(all="ignore"):
        for key in _UNARY:
            exact = np.asarray(FUNCTIONS[key].exact(x.astype(np.float64)))
            found = results[key].astype(np.float64)
            for number in FUNCTIONS[key].formula:
                exact = np.where(x == half.type(number), np.nan, exact)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(exact), key)
            size = np.abs(exact)
            unit = np.spacing(np.minimum(size, np.nextafter(top, half.type(0)).astype(np.float64)).astype(half))
            unit = unit.astype(np.float64)
            beyond = size > top.astype(np.float64) + unit / 2
            np.testing.assert_array_equal(found[beyond], np.copysign(np.inf, exact[beyond]), key)
            inside = ~beyond & ~np.isnan(exact)
            error = np.abs(found - exact)[inside]
            assert (error <= _MOST_ULP * unit[inside] + FUNCTIONS[key].absolute).all(), key
