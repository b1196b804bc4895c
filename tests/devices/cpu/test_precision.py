"""INFERENCE_PRECISION_HINT on the CPU device: packed weights in 16 bits, everything else in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from hetero.errors import PropertyError
from sessions import onnxruntime_session

Array = np.ndarray[Any, Any]
TYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}

# Of the largest output. Weights are off by at most half a unit of 8 (bf16) or 11 (f16) bits, as in any network they
# are summed over thousands of terms with either sign.
TOLERANCE = {"f32": 1e-4, "bf16": 2e-2, "f16": 4e-3}


def model_of(op: str, x: Array, w: Array, more: Sequence[Array] = (), **attributes: Any) -> onnx.ModelProto:
    constants = {"w": w} | {f"w{i}": array for i, array in enumerate(more)}
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *constants], ["y"], **attributes)],
        op,
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(model: onnx.ModelProto, hint: str) -> hetero.CompiledModel:
    core = hetero.Core()
    return core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": hint})


def packed_bytes(model: Any) -> int:
    """Of the constants that a compiled model keeps in the layouts of its kernels."""
    return sum(array.nbytes for _, array in model._plans.planner._packed.values())


@pytest.mark.spread(2)
@pytest.mark.parametrize("hint", TYPES)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 40])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (300, 70), (513, 600)])
def test_products_are_those_of_rounded_weights(rows: int, k: int, n: int, hint: str) -> None:
    """Bit for bit: each weight is rounded once, to nearest even, and computed with as float32. The number of rows is
    open, because float32 weights are converted for a known number of rows if the processor has AMX."""
    rng = np.random.default_rng(k)
    x, w = rng.standard_normal((rows, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    rounded = w.astype(TYPES[hint]).astype(np.float32)
    for op, weights, attributes in (
        ("MatMul", (w, rounded), {}),
        ("Gemm", (w.T.copy(), rounded.T.copy()), {"transB": 1}),
    ):
        given, exact = (model_of(op, x, array, **attributes) for array in weights)
        sums = np.abs(x) @ np.abs(rounded)
        known = compiled(given, hint)(x)[0]
        assert (np.abs(known - compiled(exact, "f32")(x)[0]) <= 1e-6 * sums).all()
        for model in (given, exact):
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
        found = compiled(given, hint)(x)[0]
        wanted = compiled(exact, "f32")(x)[0]
        assert np.array_equal(found, wanted)
        assert np.array_equal(found, known)
        if k > 1:
            plain = compiled(given, "f32")(x)[0]
            assert not np.array_equal(found, plain), "the hint has no effect"


@pytest.mark.parametrize("hint", TYPES)
@pytest.mark.parametrize("group", [1, 3])
def test_convolutions_are_those_of_rounded_weights(group: int, hint: str) -> None:
    """By the same sums: a 3x3 kernel is no example, as that of float32 goes by Winograd's filtering."""
    rng = np.random.default_rng(group)
    x = rng.standard_normal((2, 12, 20, 17)).astype(np.float32)
    w = rng.standard_normal((30, 12 // group, 3, 2)).astype(np.float32)
    rounded = w.astype(TYPES[hint]).astype(np.float32)
    found = compiled(model_of("Conv", x, w, group=group), hint)(x)[0]
    assert np.array_equal(found, compiled(model_of("Conv", x, rounded, group=group), "f32")(x)[0])


@pytest.mark.parametrize("hint", TYPES)
def test_recurrent_layers_round_the_weights_of_their_inputs(hint: str) -> None:
    rng = np.random.default_rng(1)
    x, r = rng.standard_normal((5, 1, 30)).astype(np.float32), rng.standard_normal((1, 80, 20)).astype(np.float32)
    w = rng.standard_normal((1, 80, 30)).astype(np.float32)
    found, wanted = (
        compiled(model_of("LSTM", x, weights, more=[r], hidden_size=20), name)(x)[0]
        for weights, name in ((w, hint), (w.astype(TYPES[hint]).astype(np.float32), "f32"))
    )
    assert np.array_equal(found, wanted)


def test_weights_that_float16_cannot_hold_stay_float32() -> None:
    x, w = np.ones((4, 8), np.float32), np.full((8, 20), 1e5, np.float32)
    assert (compiled(model_of("MatMul", x, w), "f16")(x)[0] == 8e5).all()
    small = compiled(model_of("MatMul", x, w * np.float32(1e-13)), "f16")(x)[0]
    np.testing.assert_allclose(small, 8e-8, rtol=1e-5)


@pytest.mark.parametrize("hint", TYPES)
def test_packed_weights_take_half_the_memory(hint: str) -> None:
    x, w = np.ones((1, 768), np.float32), np.ones((768, 3072), np.float32)
    sizes = []
    for name in ("f32", hint):
        model = compiled(model_of("MatMul", x, w), name)
        model(x)
        sizes.append(packed_bytes(model))
    assert sizes == [w.nbytes, w.nbytes // 2]


def test_unknown_precisions_are_refused() -> None:
    x = np.ones((4, 8), np.float32)
    with pytest.raises(PropertyError, match="INFERENCE_PRECISION_HINT: expected one of f32, bf16, f16, found 'f64'"):
        compiled(model_of("MatMul", x, np.ones((8, 3), np.float32)), "f64")
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
    assert core.get_property("CPU", "INFERENCE_PRECISION_HINT") == "bf16"


@pytest.mark.spread(2)
@pytest.mark.slow
@pytest.mark.parametrize("hint", TOLERANCE)
@pytest.mark.parametrize("name", ["light_resnet50", "minilm"])
def test_real_models(
    name: str, hint: str, real_model: Callable[[str], tuple[onnx.ModelProto, dict[str, Array]]]
) -> None:
    model, inputs = real_model(name)
    session = onnxruntime_session(model)
    expected = session.run(None, dict(inputs))
    for found, wanted in zip(compiled(model, hint)(inputs).values(), expected, strict=True):
        assert np.abs(found - wanted).max() <= TOLERANCE[hint] * np.abs(wanted).max()


def test_performance_mode_chooses_bfloat16_unless_a_type_is_set() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 300)).astype(np.float32), rng.standard_normal((300, 64)).astype(np.float32)
    core = hetero.Core()
    model = core.read_model(model_of("MatMul", x, w))
    plain = {hint: core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": hint})(x)[0] for hint in TOLERANCE}

    def found(**config: str) -> str:
        """The type whose results a compilation gives."""
        compiled = core.compile_model(model, "CPU", config)
        results = compiled(x)[0]
        (same,) = (hint for hint, expected in plain.items() if np.array_equal(results, expected))
        assert compiled.get_property("INFERENCE_PRECISION_HINT") == same
        return same

    assert found() == "f32"
    assert found(EXECUTION_MODE_HINT="PERFORMANCE") == "bf16"
    assert found(EXECUTION_MODE_HINT="PERFORMANCE", INFERENCE_PRECISION_HINT="f32") == "f32"
    core.set_property("CPU", {"EXECUTION_MODE_HINT": "PERFORMANCE"})
    assert found() == "bf16"
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f16"})
    assert found() == "f16"
