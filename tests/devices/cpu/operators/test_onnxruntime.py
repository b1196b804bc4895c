"""onnxruntime's own operators on the CPU device, beside onnxruntime without optimizations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from contrib_nodes import CONTRIB, Array, check, floats, model_of, refusal, run
from hetero import Core, CustomOp, HeteroError, InferenceError
from onnxruntime_models import run_directly

pytestmark = pytest.mark.spread(2)

SHAPES = [(2, 3, 8), (1, 1, 1), (5, 16), (7,), (0, 4), (2, 0, 4)]

# ---- activations


@pytest.mark.parametrize("shape", SHAPES)
def test_activations(shape: tuple[int, ...]) -> None:
    x = 3 * floats(*shape)
    bias = floats(shape[-1], seed=1)
    check("Gelu", {"x": x})
    check("FastGelu", {"x": x})
    check("FastGelu", {"x": x, "b": bias})
    check("FastGelu", {"x": x, "b": bias}, constants=("b",))
    check("BiasGelu", {"x": x, "b": bias})
    check("QuickGelu", {"x": x})
    check("QuickGelu", {"x": x}, alpha=0.5)
    check("QuickGelu", {"x": x}, alpha=-1.5)


def test_a_bias_must_have_one_number_per_column() -> None:
    for bias in (floats(3), floats(1), floats(2, 4)):
        model = model_of("BiasGelu", {"x": floats(2, 4), "b": bias})
        assert "bias of shape" in refusal(model)
        unknown = model_of("BiasGelu", {"x": floats(2, 4), "b": bias}, symbolic=True)
        if bias.ndim == 1:
            with pytest.raises(InferenceError, match=r"bias of shape .* does not fit 4 columns"):
                run(unknown, {"x": floats(2, 4), "b": bias})


def test_sizes_change_between_calls() -> None:
    model = model_of("FastGelu", {"x": floats(2, 4), "b": floats(4)}, constants=("b",), symbolic=True)
    compiled = Core().compile_model(model, "CPU")
    for rows in (2, 5, 0, 1, 2):
        inputs = {"x": floats(rows, 4)}
        (found,) = compiled(inputs).values()
        np.testing.assert_allclose(found, run_directly(model, inputs)[0], 1e-4, 1e-5)


# ---- products and convolutions


@pytest.mark.parametrize("constants", [(), ("b",), ("a",)])
@pytest.mark.parametrize(
    ("a", "b", "flags"),
    [
        ((3, 4), (4, 5), {}),
        ((4, 3), (4, 5), {"transA": 1}),
        ((3, 4), (5, 4), {"transB": 1, "alpha": 0.25}),
        ((4, 3), (5, 4), {"transA": 1, "transB": 1, "alpha": -2.0}),
        ((2, 3, 4), (2, 5, 4), {"transB": 1}),
        ((2, 4, 3), (5, 4), {"transA": 1, "transB": 1}),
        ((2, 3, 3, 4), (3, 5, 4), {"transB": 1, "alpha": 3.0}),
        ((2, 1, 4, 4), (3, 4, 4), {"transA": 1}),
        ((1, 4), (1, 4), {"transB": 1}),
        ((0, 4), (5, 4), {"transB": 1}),
        ((3, 4), (0, 4), {"transB": 1}),
    ],
)
def test_fused_matmul(a: tuple[int, ...], b: tuple[int, ...], flags: dict[str, Any], constants: Any) -> None:
    check("FusedMatMul", {"a": floats(*a), "b": floats(*b, seed=1)}, constants=constants, **flags)


@pytest.mark.parametrize("constants", [(), ("b",), ("a",)])
@pytest.mark.parametrize(
    ("a", "b", "flags"),
    [
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((2, 3, 4), (4, 2, 5), {"transBatchB": 1, "alpha": 0.5}),
        ((3, 2, 4), (5, 2, 4), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
        ((3, 2, 4), (2, 3, 5), {"transBatchA": 1, "transA": 1}),
        ((3, 2, 6, 4), (4, 2, 6, 5), {"transBatchA": 1, "transBatchB": 1}),
        ((3, 1, 4), (4, 2, 5), {"transBatchA": 1, "transBatchB": 1}),
        ((1, 1, 4), (4, 1, 1), {"transBatchB": 1}),
        ((0, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ],
)
def test_fused_matmul_with_the_rows_before_the_batch(
    a: tuple[int, ...], b: tuple[int, ...], flags: dict[str, Any], constants: Any
) -> None:
    check("FusedMatMul", {"a": floats(*a), "b": floats(*b, seed=1)}, constants=constants, **flags)


@pytest.mark.parametrize(("a", "b"), [((3, 4), (4, 5)), ((4,), (4, 2, 5)), ((2, 3, 2, 4), (4, 2, 5))])
def test_rows_before_the_batch_require_operands_of_one_rank(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    model = model_of("FusedMatMul", {"a": floats(*a), "b": floats(*b)}, transBatchB=1)
    for device in ("CPU", "TEMPLATE"):
        with pytest.raises(HeteroError, match=r"rank|batches"):
            Core().compile_model(model, device)({"a": floats(*a), "b": floats(*b)})


_GEMM_ACTIVATIONS: dict[str, dict[str, float]] = {
    "Relu": {},
    "Sigmoid": {},
    "Tanh": {},
    "Softplus": {},
    "Softsign": {},
    "LeakyRelu": {"activation_alpha": 0.3},
    "Elu": {"activation_alpha": 0.7},
    "Celu": {"activation_alpha": 1.5},
    "ThresholdedRelu": {"activation_alpha": 0.4},
    "Selu": {"activation_alpha": 1.5, "activation_gamma": 0.8, "activation_beta": 7.0},
    "HardSigmoid": {"activation_alpha": 0.25, "activation_beta": 0.4, "activation_gamma": 7.0},
}


@pytest.mark.parametrize("activation", _GEMM_ACTIVATIONS)
def test_fused_gemm(activation: str) -> None:
    named = {"activation": activation} | _GEMM_ACTIVATIONS[activation]
    for constants in ((), ("b",), ("b", "c")):
        check("FusedGemm", {"a": floats(3, 4), "b": floats(4, 5), "c": floats(5)}, constants=constants, **named)
        turned = {"a": floats(4, 3), "b": floats(5, 4), "c": floats(3, 1)}
        check("FusedGemm", turned, constants=constants, transA=1, transB=1, alpha=0.5, beta=-2.0, **named)
    check("FusedGemm", {"a": floats(3, 4), "b": floats(4, 5)}, alpha=2.0, **named)
    check("FusedGemm", {"a": floats(0, 4), "b": floats(4, 5), "c": floats(1)}, beta=0.0, **named)


def test_fused_gemm_refuses() -> None:
    inputs = {"a": floats(3, 4), "b": floats(4, 5)}
    assert "activation = b''" in refusal(model_of("FusedGemm", inputs))
    assert "activation = b'Clip'" in refusal(model_of("FusedGemm", inputs, activation="Clip"))
    missing = refusal(model_of("FusedGemm", inputs, activation="Selu", activation_alpha=1.0))
    assert "activation_gamma of Selu" in missing


@pytest.mark.parametrize("constants", [(), ("w", "b")])
@pytest.mark.parametrize(
    "activation",
    [
        {},
        {"activation": "Relu"},
        {"activation": "Tanh"},
        {"activation": "Sigmoid"},
        {"activation": "LeakyRelu", "activation_params": [0.3]},
        {"activation": "Clip", "activation_params": [-0.5, 0.75]},
        {"activation": "HardSigmoid", "activation_params": [0.25, 0.4]},
    ],
)
def test_fused_conv(activation: dict[str, Any], constants: tuple[str, ...]) -> None:
    x, w, b, z = floats(2, 4, 6, 6), floats(8, 4, 3, 3), floats(8), floats(2, 8, 6, 6)
    check("FusedConv", {"x": x, "w": w, "b": b}, constants=constants, pads=[1, 1, 1, 1], **activation)
    check("FusedConv", {"x": x, "w": w, "b": b, "z": z}, constants=constants, pads=[1, 1, 1, 1], **activation)
    if not constants:
        check("FusedConv", {"x": x, "w": w, "-b": b, "z": z}, pads=[1, 1, 1, 1], **activation)
        check("FusedConv", {"x": x, "w": floats(8, 2, 1, 1)}, group=2, strides=[2, 2], **activation)


def test_fused_conv_refuses() -> None:
    inputs = {"x": floats(1, 1, 3, 3), "w": floats(1, 1, 1, 1)}
    assert "activation" in refusal(model_of("FusedConv", inputs, activation="Elu"))
    assert "1 activation_params" in refusal(model_of("FusedConv", inputs, activation="Clip", activation_params=[0.0]))


# ---- normalizations


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 1, 4), (5, 16), (0, 4), (2, 0, 4), (2, 3, 1)])
def test_skip_normalizations(shape: tuple[int, ...]) -> None:
    x, skip, width = floats(*shape), floats(*shape, seed=1), shape[-1]
    gamma, beta, bias = floats(width), floats(width, seed=2), floats(width, seed=3)
    common = {"x": x, "skip": skip, "gamma": gamma}
    for outputs in (1, ("y", "", "", "total")):
        for op, more in (("SkipLayerNormalization", {"beta": beta}), ("SkipSimplifiedLayerNormalization", {})):
            # Of one column, the variance is 0 and the result depends on rounding: a larger epsilon.
            check(op, common | more, outputs=outputs, epsilon=1e-3)
            check(op, common | more | {"bias": bias}, outputs=outputs, epsilon=1e-3)
            check(op, common | more | {"bias": bias}, outputs=outputs, epsilon=1e-3, constants=("gamma", "bias"))
        check("SkipLayerNormalization", common | {"-beta": beta, "bias": bias}, outputs=outputs, epsilon=1e-3)
    if len(shape) == 3 and shape[0] > 1 and 0 not in shape:
        for shared in (skip[:1], skip[0]):
            check("SkipLayerNormalization", common | {"skip": shared, "beta": beta}, epsilon=1e-3)
    if width > 1:
        check("SkipLayerNormalization", common | {"beta": beta})
        check("SkipSimplifiedLayerNormalization", common)


def test_skip_normalization_refuses() -> None:
    common = {"x": floats(2, 3, 8), "skip": floats(2, 3, 8), "gamma": floats(8)}
    assert "its mean" in refusal(model_of("SkipLayerNormalization", common, outputs=2))
    assert "without its input 2" in refusal(
        model_of("SkipLayerNormalization", {"x": common["x"], "skip": common["skip"]})
    )
    for skip in (floats(1, 8), floats(3, 1), floats(2, 1, 8), floats(8)):
        with pytest.raises(InferenceError, match="skip of shape"):
            run(model_of("SkipLayerNormalization", common | {"skip": skip}), common | {"skip": skip})
    wrong = common | {"gamma": floats(1)}
    assert "gamma of shape [1]; expected 8 elements" in refusal(model_of("SkipLayerNormalization", wrong))
    with pytest.raises(InferenceError, match="gamma of shape"):
        run(model_of("SkipLayerNormalization", wrong, symbolic=True), wrong)
    for epsilon in (-1.0, np.nan):
        assert "epsilon = " in refusal(model_of("SkipLayerNormalization", common, epsilon=epsilon))


def test_simplified_normalization_refuses() -> None:
    def reason(axis: int, *scale: int) -> str:
        inputs = {"x": floats(2, 3, 8), "scale": floats(*scale)}
        return refusal(model_of("SimplifiedLayerNormalization", inputs, domain="", axis=axis))

    assert "axis = 3 of an input of rank 3" in reason(3, 8)
    assert "scale of shape [7]" in reason(-1, 7)
    assert "scale of shape [1, 1, 1, 8]" in reason(-1, 1, 1, 1, 8)
    assert "a scale of shape [8] that is broadcast to [2, 3, 8]" in reason(0, 8)
    assert "a scale of shape [1] that is broadcast to [8]" in reason(-1, 1)


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 1, 1), (5, 16), (7,), (0, 4)])
def test_simplified_normalization(shape: tuple[int, ...]) -> None:
    inputs = {"x": floats(*shape), "scale": floats(shape[-1])}
    for options in ({}, {"epsilon": 1e-2, "axis": -1}, {"constants": ("scale",)}):
        check("SimplifiedLayerNormalization", inputs, domain="", **options)
    if len(shape) == 3:
        inputs["scale"] = floats(*shape[1:])
        check("SimplifiedLayerNormalization", inputs, domain="", axis=1)


@pytest.mark.parametrize(("batch", "length"), [(2, 5), (1, 1), (3, 2)])
def test_embedding(batch: int, length: int) -> None:
    random = np.random.default_rng(0)
    ids = random.integers(0, 10, (batch, length), np.int32)
    tables = {"words": floats(10, 8), "places": floats(6, 8)}
    factors = {"gamma": floats(8), "beta": floats(8, seed=1)}
    segments = {"segments": random.integers(0, 2, (batch, length), np.int32)}
    segment_table = {"table": floats(2, 8)}
    none, no_table = {"-segments": ids}, {"-table": ids}
    mask = random.integers(0, 3, (batch, length), np.int32)
    positions = random.integers(0, 6, (batch, length), np.int32)
    op = "EmbedLayerNormalization"
    fixed = ("words", "places", "table", "gamma", "beta")  # onnxruntime's shape inference wants their sizes
    both = {"ids": ids, **segments, **tables, **segment_table, **factors}
    check(op, both, constants=fixed, outputs=2)
    check(op, both, constants=fixed, outputs=3)
    check(op, both | {"mask": mask}, constants=fixed, outputs=("y", "m", "total"))
    check(op, both | {"-mask": mask, "positions": positions}, constants=fixed, outputs=2, epsilon=1e-3)
    check(op, {"ids": ids, **none, **tables, **no_table, **factors, "mask": mask}, constants=fixed, outputs=2)
    halves = {name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in both.items()}
    check(op, halves, rtol=2e-3, atol=2e-3, constants=fixed, outputs=3)
    mixed = both | {"gamma": halves["gamma"]}
    with pytest.raises(InferenceError, match="operands of the same type, found float32 and float16"):
        run(model_of(op, mixed, fixed, outputs=2), mixed)


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
def test_embedding_refuses_numbers_outside_a_table(device: str) -> None:
    good = {
        "ids": np.zeros((1, 2), np.int32),
        "segments": np.zeros((1, 2), np.int32),
        "words": floats(10, 8),
        "places": floats(6, 8),
        "table": floats(2, 8),
        "gamma": floats(8),
        "beta": floats(8),
    }
    fixed = ("words", "places", "table", "gamma", "beta")
    run(model_of("EmbedLayerNormalization", good, fixed, outputs=2), good, device)
    for name, number in (("ids", -1), ("ids", 10), ("ids", -(2**31)), ("segments", -1), ("segments", 2)):
        wrong = good | {name: np.array([[0, number]], np.int32)}
        with pytest.raises(InferenceError):
            run(model_of("EmbedLayerNormalization", wrong, fixed, outputs=2), wrong, device)


# ---- attention


DIES_WITHOUT_BIAS = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32)
"""onnxruntime before 1.32 reads the bias of Attention through a null pointer where the node has none."""


def attention_inputs(batch: int, length: int, hidden: int = 16) -> dict[str, Array]:
    return {
        "x": floats(batch, length, hidden),
        "w": floats(hidden, 3 * hidden, seed=1) / 4,
        "b": floats(3 * hidden, seed=2),
    }


@pytest.mark.parametrize(("batch", "length"), [(2, 5), (1, 1), (3, 40), (2, 24)])
@pytest.mark.parametrize("more", [{}, {"unidirectional": 1}, {"scale": 0.3, "mask_filter_value": -50.0}])
def test_attention(batch: int, length: int, more: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    inputs = attention_inputs(batch, length)
    options: dict[str, Any] = {"num_heads": 2, "constants": ("w", "b"), **more}
    check("Attention", inputs, **options)
    check("Attention", inputs, **options, outputs=2)
    if not DIES_WITHOUT_BIAS:
        check("Attention", {"x": inputs["x"], "w": inputs["w"]}, num_heads=4)
    masks = [
        random.integers(1, length + 1, batch).astype(np.int32),
        random.integers(0, 2, (batch, length)).astype(np.int32),
        np.ones((batch, length), np.int32),
        random.integers(0, 2, (batch, length, length)).astype(np.int32),
    ]
    for mask in masks:
        check("Attention", inputs | {"m": mask}, **options)
    bias = floats(batch, 2, length, length)
    check("Attention", inputs | {"m": masks[2], "-p": bias, "bias": bias}, **options)
    check("Attention", inputs | {"-m": masks[2], "-p": bias, "bias": bias[:1, :1]}, **options)
    for before in (3, 1):
        past = floats(2, batch, 2, before, 8)
        check("Attention", inputs | {"-m": bias, "past": past}, **options, outputs=2)


def test_attention_of_starts_and_ends_of_keys() -> None:
    inputs = attention_inputs(3, 6) | {"m": np.array([6, 4, 5, 0, 1, 2], np.int32)}
    check("Attention", inputs, num_heads=2, constants=("w", "b"))


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_masks_include_the_past(unidirectional: int) -> None:
    inputs, options = attention_inputs(3, 6), {"num_heads": 2, "outputs": 2, "unidirectional": unidirectional}
    mask = np.random.default_rng(0).integers(0, 2, (3, 8)).astype(np.int32)
    for each in (mask, np.ones((3, 6, 8), np.int32)):
        check("Attention", inputs | {"m": each, "past": floats(2, 3, 2, 2, 8)}, **options)


def test_empty_attention() -> None:
    for batch, length in ((0, 3), (2, 0)):
        inputs = attention_inputs(batch, length)
        (found,) = run(model_of("Attention", inputs, num_heads=2), inputs)
        assert found.shape == (batch, length, 16)


def test_attention_of_other_sizes_of_values() -> None:
    inputs = {"x": floats(2, 5, 8), "w": floats(8, 8 + 8 + 4), "b": floats(20)}
    check("Attention", inputs, constants=("w", "b"), num_heads=2, qkv_hidden_sizes=[8, 8, 4])


@pytest.mark.parametrize(("batch", "length", "keys"), [(2, 5, 7), (1, 1, 1), (2, 40, 40), (3, 24, 30)])
@pytest.mark.parametrize("more", [{}, {"unidirectional": 1}, {"scale": 0.3, "mask_filter_value": -50.0}])
def test_multi_head_attention(batch: int, length: int, keys: int, more: dict[str, Any]) -> None:
    op, options = "MultiHeadAttention", {"num_heads": 2, **more}
    if "unidirectional" in more:
        keys = length
    random = np.random.default_rng(0)
    q, k, v = {"q": floats(batch, length, 16)}, {"k": floats(batch, keys, 16)}, {"v": floats(batch, keys, 16, seed=1)}
    three = q | k | v
    check(op, three, **options)
    check(op, q | k | {"v": floats(batch, keys, 8, seed=1)}, **options)
    check(op, three | {"b": floats(48)}, **options)
    check(op, three | {"b": floats(48)}, **options, constants=("b",))
    mask = random.integers(0, 2, (batch, keys)).astype(np.int32)
    mask[:, 0] = 1  # sums of scores and -10,000, if no other key is left, have no digits to compare
    lengths = random.integers(1, keys + 1, batch).astype(np.int32)
    bias = floats(batch, 2, length, keys)
    for each in (mask, lengths):
        check(op, three | {"-b": bias, "m": each}, **options)
    check(op, three | {"-b": bias, "-m": bias, "bias": bias}, **options)
    check(op, three | {"b": floats(48), "m": mask, "bias": bias[:1]}, **options)
    if "unidirectional" not in options:
        four = {"k": floats(batch, 2, keys, 8), "v": floats(batch, 2, keys, 8, seed=1)}
        check(op, q | four, **options)
        check(op, q | four | {"b": floats(48)}, **options, constants=("b",))
    if keys == length:
        nothing = {"-b": bias, "-m": bias, "-bias": bias}
        past = {"pk": floats(batch, 2, 3, 8), "pv": floats(batch, 2, 3, 8, seed=1)}
        check(op, three | nothing | past, **options, outputs=3)
        check(op, three, **options, outputs=3)


def test_packed_keys_and_values() -> None:
    """onnxruntime's CPU refuses them, so they are compared with the separate operands."""
    parts = [floats(2, 5, 2, 8, seed=i) for i in range(3)]
    separate = {name: part.reshape(2, 5, 16) for name, part in zip("qkv", parts, strict=True)}
    (wanted,) = run(model_of("MultiHeadAttention", separate, num_heads=2), separate)
    for packed in ({"q": np.stack(parts, 3)}, {"q": separate["q"], "k": np.stack(parts[1:], 3)}):
        (found,) = run(model_of("MultiHeadAttention", packed, num_heads=2), packed)
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_attention_refuses() -> None:
    inputs = attention_inputs(2, 5)
    assert "num_heads" in refusal(model_of("Attention", inputs))
    assert "do_rotary = 1" in refusal(model_of("Attention", inputs, num_heads=2, do_rotary=1))
    past = inputs | {"-m": floats(1), "past": floats(2, 2, 2, 3, 8)}
    assert "without present" in refusal(model_of("Attention", past, num_heads=2))
    wrong = inputs | {"m": np.ones((2, 1), np.int32)}
    with pytest.raises(InferenceError, match="a mask of shape"):
        run(model_of("Attention", wrong, num_heads=2), wrong)
    cross = {"q": floats(1, 2, 4), "k": floats(1, 3, 4), "v": floats(1, 3, 4)}
    divided = {"q": floats(1, 2, 4), "k": floats(1, 2, 3, 2), "v": floats(1, 2, 3, 2)}
    past = divided | {"-b": None, "-m": None, "-bias": None, "pk": floats(1, 2, 1, 2), "pv": floats(1, 2, 1, 2)}
    for device in ("CPU", "TEMPLATE"):
        with pytest.raises(InferenceError, match="unidirectional attention of 2 queries at 0 to 3 keys"):
            run(model_of("MultiHeadAttention", cross, num_heads=2, unidirectional=1), cross, device)
        with pytest.raises(InferenceError, match="a past of keys that are already divided into heads"):
            run(model_of("MultiHeadAttention", past, num_heads=2, outputs=3), past, device)
    assert "num_heads = 5" in refusal(model_of("Attention", inputs, num_heads=5))
    with pytest.raises(InferenceError, match="do not fit 5 heads"):
        run(model_of("Attention", inputs, num_heads=5, symbolic=True), inputs)
    assert "B of shape [7, 48]" in refusal(model_of("Attention", inputs | {"w": floats(7, 48)}, num_heads=2))
    assert "num_heads = 3" in refusal(model_of("MultiHeadAttention", cross, num_heads=3))


# ---- beside other parts of the device


def test_a_custom_operator_replaces_a_kernel_of_the_same_name() -> None:
    core = Core()
    core.add_extension(CustomOp("Gelu", CONTRIB, function=lambda x: -x))
    inputs = {"x": floats(2, 3)}
    (found,) = core.compile_model(model_of("Gelu", inputs), "CPU")(inputs).values()
    assert np.array_equal(found, -inputs["x"])


@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "SkipLayerNormalization", "FusedMatMul"])
def test_half_precision_is_rounded_once(op: str) -> None:
    inputs = {"x": floats(2, 8)}
    if op == "BiasGelu":
        inputs["b"] = floats(8)
    if op == "FusedMatMul":
        inputs["b"] = floats(8, 3)
    if op == "SkipLayerNormalization":
        inputs |= {"skip": floats(2, 8, seed=1), "gamma": floats(8), "beta": floats(8, seed=1)}
    halves = {name: array.astype(np.float16) for name, array in inputs.items()}
    wide = {name: array.astype(np.float32) for name, array in halves.items()}
    (found,) = run(model_of(op, halves), halves)
    (wanted,) = run(model_of(op, wide), wide)
    assert np.array_equal(found, wanted.astype(np.float16))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_attention_of_halves_is_rounded_once(op: str, kind: str) -> None:
    """With masks of integers, a bias, and past and present."""
    mask, bias = np.random.default_rng(0).integers(0, 2, (2, 8)).astype(np.int32), floats(2, 2, 5, 8)
    if op == "Attention":
        more = {"m": mask, "past": floats(2, 2, 2, 3, 8), "bias": bias}
        cases = [(attention_inputs(2, 8) | {"m": mask}, 1), (attention_inputs(2, 5) | more, 2)]
    else:
        three = {"q": floats(2, 5, 16), "k": floats(2, 5, 16), "v": floats(2, 5, 16, seed=1), "b": floats(48)}
        past = {"k0": floats(2, 2, 3, 8), "v0": floats(2, 2, 3, 8, seed=1)}
        cases = [(three | {"m": mask[:, :5]}, 1), (three | {"m": mask, "bias": bias} | past, 3)]
    half = ml_dtypes.bfloat16 if kind == "bfloat16" else np.float16
    for inputs, outputs in cases:
        halves = {name: array.astype(half) if array.dtype == np.float32 else array for name, array in inputs.items()}
        wide = {name: array.astype(np.float32) if array.dtype == half else array for name, array in halves.items()}
        for constants in ((), ("w", "b")):
            options = {"num_heads": 2, "outputs": outputs, "constants": tuple(set(constants) & set(inputs))}
            found, wanted = run(model_of(op, halves, **options), halves), run(model_of(op, wide, **options), wide)
            for one, other in zip(found, wanted, strict=True):
                assert one.dtype == half
                assert np.array_equal(one, other.astype(half))


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_of_changing_sizes(threads: int) -> None:
    """One compiled model without stated sizes, across the number of rows from which attention is fused."""
    inputs = attention_inputs(1, 1) | {"m": np.ones((1, 1), np.int32)}
    model = model_of("Attention", inputs, ("w", "b"), symbolic=True, num_heads=2)
    compiled = Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads})
    for batch, length in ((1, 4), (2, 30), (1, 1), (3, 24), (2, 23)):
        mask = np.random.default_rng(length).integers(0, 2, (batch, length)).astype(np.int32)
        feed = {"x": floats(batch, length, 16), "m": mask}
        (found,) = compiled(feed).values()
        np.testing.assert_allclose(found, run_directly(model, feed)[0], 1e-3, 1e-4)
