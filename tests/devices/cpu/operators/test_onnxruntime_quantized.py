"""onnxruntime's own quantized operators on the CPU device, beside onnxruntime without optimizations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from contrib_nodes import Array, check, floats, model_of, refusal, run
from hetero import Core, HeteroError, InferenceError
from onnxruntime_models import MODELS, feeds, run_directly

pytestmark = pytest.mark.spread(2)

BYTES = ["uint8", "int8"]
SHAPES = [(2, 3, 5), (1,), (7, 9), (0, 4), (2, 300)]


def numbers(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed + sum(shape)).integers(limits.min, limits.max + 1, shape).astype(dtype)


def weights(dtype: str, *shape: int, seed: int = 0) -> Array:
    """On processors without VNNI, onnxruntime adds two products of uint8 by int8 in int16, which saturates. With int8
    of 7 bits no sum of two can: 2 * 255 * 64 < 2^15."""
    full = numbers(dtype, *shape, seed=seed)
    return full >> 1 if dtype == "int8" else full


def scale(number: float) -> Array:
    return np.array(number, np.float32)


def zero(dtype: str, number: int) -> Array:
    return np.array(number + (128 if dtype == "uint8" else 0), dtype)


def one_operand(x: Array, y_scale: float = 0.02, shift: int = 3) -> dict[str, Array]:
    dtype = x.dtype.name
    return {"x": x, "xs": scale(0.03), "xz": zero(dtype, -5), "ys": scale(y_scale), "yz": zero(dtype, shift)}


@pytest.mark.parametrize("dtype", [*BYTES, "uint16", "int16"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_conversions(dtype: str, axis: int | None) -> None:
    """onnxruntime's quantizers write them for opsets below 21, where ONNX's own take 8 bits only."""
    x, shape = floats(3, 5, 4) * 50, () if axis is None else ((3, 5, 4)[axis],)
    scales = np.random.default_rng(0).uniform(0.1, 0.3, shape).astype(np.float32)
    zeros = numbers(dtype, *shape).reshape(shape)
    attributes = {} if axis is None else {"axis": axis}
    for inputs in ({"x": x, "s": scales, "z": zeros}, {"x": x, "s": scales}):
        check("QuantizeLinear", inputs, atol=0, **attributes)
        check("QuantizeLinear", inputs, atol=0, constants=("s", "z"), **attributes)
    for inputs in (
        {"x": numbers(dtype, 3, 5, 4), "s": scales, "z": zeros},
        {"x": numbers(dtype, 3, 5, 4), "s": scales},
    ):
        check("DequantizeLinear", inputs, rtol=0, atol=0, **attributes)
        check("DequantizeLinear", inputs, rtol=0, atol=0, constants=("x", "s", "z"), **attributes)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_dequantized_constants_of_4_bits(kind: Any) -> None:
    for dtype, low in ((ml_dtypes.int4, -8), (ml_dtypes.uint4, 0)):
        levels = np.random.default_rng(1).integers(low, low + 16, (5, 7)).astype(dtype)
        zeros = np.arange(low, low + 7).astype(dtype)
        inputs = {"x": levels, "s": np.arange(1, 8).astype(kind) / 8, "z": zeros}
        check("DequantizeLinear", inputs, rtol=0, atol=0, constants=("x", "s", "z"))


def test_conversions_that_are_refused() -> None:
    x, s = floats(2, 3), scale(0.5)
    assert "y_scale = nan" in refusal(model_of("QuantizeLinear", {"x": x, "s": scale(np.nan)}, ("s",)))
    assert "y_scale = 0.0" in refusal(model_of("QuantizeLinear", {"x": x, "s": scale(0)}, ("s",)))
    bad = {"x": x, "s": s, "z": np.zeros(2, np.uint8)}
    assert "zero point of shape [2]" in refusal(model_of("QuantizeLinear", bad, ("s", "z")))
    bad = {"x": floats(4, 4), "s": np.ones((4, 2), np.float32), "z": np.zeros((2, 4), np.uint8)}
    reason = refusal(model_of("QuantizeLinear", bad, ("s", "z"), axis=1, block_size=2))
    assert "zero point of shape [2, 4] does not fit a scale of shape [4, 2]" in reason
    bad = {"x": x, "s": s, "z": np.array(0, np.uint8)}
    reason = refusal(model_of("QuantizeLinear", bad, ("s", "z"), output_dtype=3))
    assert "a zero point of type uint8; expected int8, as output_dtype" in reason
    bad = {"x": numbers("int8", 2, 3), "s": s, "z": np.array(0, np.uint8)}
    assert "a zero point of type uint8" in refusal(model_of("DequantizeLinear", bad, ("s", "z")))
    assert "with attribute block_sizes" in refusal(model_of("QuantizeLinear", {"x": x, "s": s}, block_sizes=2))


def parameters(op: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Inputs of a node, with scales "s…" and zero points "z…" of tensors, and its attributes."""
    q, one, z = numbers("uint8", 1, 2, 4, 4), scale(0.1), zero("uint8", 0)
    matrices = {"A": q[0, 0], "sA": one, "zA": z, "B": q[0, 0], "sB": one, "zB": z}
    unary = {"X": q, "sX": one, "zX": z, "sY": one, "zY": z}
    match op:
        case "QLinearAdd" | "QLinearMul":
            return matrices | {"sC": one, "zC": z}, {}
        case "QGemm":
            return matrices | {"-c": q, "sy": one, "zy": z}, {}
        case "QLinearWhere":
            made = {"c": q > 9, "x": q, "sx": one, "zx": z, "y": q, "sy": one, "zy": z, "sz": one, "zz": z}
            return made, {}
        case "QLinearConcat":
            return {"sY": one, "zY": z, "input 2": q, "sinput 2": one, "zinput 2": z}, {"axis": 1}
        case "MatMulIntegerToFloat":
            return {"A": q[0, 0], "B": q[0, 0], "sA": one, "sB": one, "zA": z, "zB": z}, {}
        case "DynamicQuantizeMatMul":
            return {"x": floats(4, 4), "B": q[0, 0], "sB": one, "zB": z}, {}
        case "QLinearSoftmax":
            return unary, {"opset": 13, "axis": -1}
        case "QLinearAveragePool":
            return unary, {"kernel_shape": [2, 2]}
    return unary, {}


OPERATORS = [
    *("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearGlobalAveragePool"),
    *("QLinearWhere", "QLinearAveragePool", "QLinearConcat", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"),
]


@pytest.mark.parametrize("op", OPERATORS)
def test_parameters_that_do_not_fit(op: str) -> None:
    inputs, attributes = parameters(op)
    fixed = tuple(name for name in inputs if name[0] in "sz")
    made = run(model_of(op, inputs, fixed, **attributes), inputs)
    assert np.isfinite(made[0]).all()
    only_nan = op in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul")  # a scale of 0 or below has a meaning there
    for name in fixed:
        tensor = name[1:]
        if name[0] == "s":
            for bad in (np.nan,) if only_nan else (0, -1, np.nan):
                reason = refusal(model_of(op, inputs | {name: scale(bad)}, fixed, **attributes))
                assert f"{tensor}_scale = {scale(bad)}" in reason
            continue
        is_typed = tensor in inputs or (tensor in "YCz" and op.startswith("QLinear"))
        reason = refusal(model_of(op, inputs | {name: np.array(0, np.int8)}, fixed, **attributes))
        assert (f"{tensor}_zero_point of type int8" in reason) == is_typed
    for name in fixed:
        if name[1:] != "B" or op in ("QLinearAdd", "QLinearMul"):
            two = np.stack([inputs[name]] * 2)
            reason = refusal(model_of(op, inputs | {name: two}, fixed, **attributes))
            assert f"{name[1:]}_{'scale' if name[0] == 's' else 'zero_point'} of shape [2]" in reason


@pytest.mark.parametrize("op", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm", "QGemm transposed"])
def test_parameters_of_columns_that_do_not_fit(op: str) -> None:
    """When the model is compiled: also parameters of as many elements in another shape, and a bias of one element."""
    columns = 6
    b = numbers("uint8", 4, columns)
    names = {"sB": np.ones(columns, np.float32), "zB": np.zeros(columns, np.uint8)}
    a, one, z = numbers("uint8", 3, 4), scale(0.1), zero("uint8", 0)
    attributes = {}
    match op.split()[0]:
        case "QGemm":
            attributes = {"transB": 1} if "transposed" in op else {}
            inputs = {"A": a, "sA": one, "zA": z, "B": b.T.copy() if attributes else b, **names}
        case "MatMulIntegerToFloat":
            inputs = {"A": a, "B": b, "sA": one, "sB": names["sB"], "zA": z, "zB": names["zB"]}
            inputs |= {"bias": floats(columns)}
        case _:
            inputs = {"x": floats(3, 4), "B": b, **names, "bias": floats(columns)}
    fixed = tuple(name for name in inputs if name not in ("A", "x"))
    check(op.split()[0], inputs, atol=1e-4, constants=fixed, **attributes)
    for name, shape in [("sB", (5,)), ("zB", (7,)), ("sB", (2, 3)), ("zB", (6, 1)), ("bias", (5,)), ("bias", (1,))]:
        if name in inputs:
            bad = inputs | {name: np.ones(shape, inputs[name].dtype)}
            reason = refusal(model_of(op.split()[0], bad, fixed, **attributes))
            meant = {"sB": "b_scale", "zB": "b_zero_point"}.get(name, name)
            assert f"{meant} of shape {list(shape)}; expected {'' if name == 'bias' else '1 or '}6 elements" in reason


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(op: str, dtype: str) -> None:
    for a, b in (((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((1, 3, 1), (2, 1, 5)), ((1,), (1,)), ((0, 4), (1, 4))):
        inputs = {"a": numbers(dtype, *a), "as": scale(0.03), "az": zero(dtype, -5)}
        inputs |= {"b": numbers(dtype, *b, seed=1), "bs": scale(0.05), "bz": zero(dtype, 9)}
        inputs |= {"cs": scale(0.07), "cz": zero(dtype, 3)}
        check(op, inputs, atol=1)
        check(op, inputs, atol=1, constants=("as", "az", "b", "bs", "bz", "cs", "cz"))


@pytest.mark.parametrize("dtype", BYTES)
def test_where(dtype: str) -> None:
    fixed = ("sx", "zx", "sy", "zy", "sz", "zz")
    for c, a, b in (((3, 4), (3, 4), (3, 4)), ((3, 1), (1, 4), (3, 4)), ((), (2, 3), (3,)), ((1,), (0, 3), (1, 3))):
        inputs = {"c": np.asarray(np.random.default_rng(0).random(c) > 0.5)}
        inputs |= {"x": numbers(dtype, *a), "sx": scale(0.1), "zx": zero(dtype, 3)}
        inputs |= {"y": numbers(dtype, *b, seed=1), "sy": scale(0.05), "zy": zero(dtype, -7)}
        for to, middle in ((0.09, 5), (0.1, 3), (0.05, -7), (1e-3, 0), (np.inf, 1)):
            given = inputs | {"sz": scale(to), "zz": zero(dtype, middle)}
            for constants in ((), fixed, ("y", *fixed)):
                check("QLinearWhere", given, atol=1, constants=constants)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("dtype", BYTES)
def test_attention(dtype: str, per_column: bool) -> None:
    batch, length, hidden = 2, 5, 16
    scales = (np.abs(floats(3 * hidden)) / 100 + 1e-3).astype(np.float32) if per_column else scale(0.011)
    inputs = {"x": numbers("uint8", batch, length, hidden), "w": weights(dtype, hidden, 3 * hidden)}
    inputs |= {"b": floats(3 * hidden), "sx": scale(0.02), "sw": scales, "m": np.array([3, 5], np.int32)}
    inputs |= {"zx": np.array(125, np.uint8), "zw": numbers(dtype, *scales.shape)}
    fixed = ("w", "b", "sx", "sw", "zx", "zw")
    masks = [np.array([3, 5], np.int32), (np.arange(10).reshape(2, 5) % 3 > 0).astype(np.int32)]
    for constants in ((), fixed):
        for mask in masks:
            check("QAttention", inputs | {"m": mask}, num_heads=4, outputs=2, constants=constants)
        unmasked = {("-m" if name == "m" else name): array for name, array in inputs.items()}
        check("QAttention", unmasked, num_heads=2, unidirectional=1, scale=0.3, constants=constants)
    past = {**unmasked, "past": floats(2, batch, 2, 3, 8)}
    check("QAttention", past, num_heads=2, outputs=2, unidirectional=1, constants=fixed)
    reason = refusal(model_of("QAttention", inputs | {"b": floats(3)}, fixed, num_heads=4))
    assert "bias of shape [3]; expected 48 elements" in reason
    reason = refusal(model_of("QAttention", inputs | {"sw": np.ones(5, np.float32)}, fixed, num_heads=4))
    assert "weight_scale of shape [5]; expected 1 or 48 elements" in reason
    assert "input_scale = nan" in refusal(model_of("QAttention", inputs | {"sx": scale(np.nan)}, fixed, num_heads=4))
    assert "num_heads = 0" in refusal(model_of("QAttention", inputs, fixed))
    reason = refusal(model_of("QAttention", past, fixed, num_heads=2))
    assert "a past but without present" in reason
    assert "num_heads = 5" in refusal(model_of("QAttention", inputs, fixed, num_heads=5))


@pytest.mark.parametrize("dtype", BYTES)
def test_embedding(dtype: str) -> None:
    random = np.random.default_rng(0)
    inputs = {"ids": random.integers(0, 9, (2, 5)).astype(np.int32)}
    inputs |= {"segments": random.integers(0, 2, (2, 5)).astype(np.int32)}
    tables = {"w": (9, 8), "p": (6, 8), "t": (2, 8), "g": (8,), "b": (8,)}
    inputs |= {name: numbers(dtype, *shape) for name, shape in tables.items()}
    inputs |= {"m": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)}
    inputs |= {f"s{name}": scale(0.01 * at) for at, name in enumerate(tables, 1)}
    inputs |= {f"z{name}": zero(dtype, at) for at, name in enumerate(tables)}
    fixed = tuple(name for name in inputs if name not in ("ids", "segments", "m"))
    for absent in ((), ("m",), ("segments", "t", "st", "zt")):
        given = {f"-{name}" if name in absent else name: array for name, array in inputs.items()}
        check("QEmbedLayerNormalization", given, outputs=2, constants=fixed, epsilon=1e-5)
    for number in (-1, 9):
        wrong = inputs | {"ids": np.full((2, 5), number, np.int32)}
        for device in ("CPU", "TEMPLATE"):
            with pytest.raises(HeteroError, match="QEmbedLayerNormalization"):
                run(model_of("QEmbedLayerNormalization", wrong, fixed, outputs=2), wrong, device)
    bad = inputs | {"sg": scale(np.inf)}
    assert "gamma_scale = inf" in refusal(model_of("QEmbedLayerNormalization", bad, fixed, outputs=2))
    few = {f"-{name}" if name == "st" else name: array for name, array in inputs.items()}
    assert "segment_embedding and its scale" in refusal(model_of("QEmbedLayerNormalization", few, fixed, outputs=2))


@pytest.mark.parametrize("dtype", BYTES)
def test_halves_as_in_onnxruntime(dtype: str) -> None:
    """Scales that are multiples of each other, as those of x / 2 + 0.5, make many results halves."""
    for factors in ((1, 0.5, 1), (0.5, 1, 2), (3, 1, 2), (0.25, 0.25, 1), (1, 1, 1.7)):
        for a, b in (((3, 70), (3, 70)), ((3, 70), (1,)), ((1,), (3, 70)), ((3, 70), (3, 1)), ((3, 1), (70,))):
            unit = np.float32(0.0078431)
            inputs = {"a": numbers(dtype, *a), "as": np.array(unit * np.float32(factors[0])), "az": zero(dtype, -5)}
            inputs |= {"b": numbers(dtype, *b, seed=1), "bs": np.array(unit * np.float32(factors[1]))}
            inputs |= {"bz": zero(dtype, 9), "cs": np.array(unit * np.float32(factors[2])), "cz": zero(dtype, 3)}
            for op in ("QLinearAdd", "QLinearMul"):
                changes = {"cs": np.array(unit * unit * np.float32(factors[2]))} if op == "QLinearMul" else {}
                model = model_of(op, inputs | changes, tuple(name for name in inputs if len(name) > 1))
                (wanted,) = run_directly(model, {"a": inputs["a"], "b": inputs["b"]})
                differing = run(model, inputs)[0] != wanted
                assert not differing.any(), (op, factors, a, b, int(differing.sum()))


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("shape", SHAPES)
def test_unary(dtype: str, shape: tuple[int, ...]) -> None:
    fixed = ("xs", "xz", "ys", "yz")
    for constants in ((), fixed):
        check("QLinearSigmoid", one_operand(numbers(dtype, *shape), 1 / 256, -100), atol=1, constants=constants)
        inputs = one_operand(numbers(dtype, *shape))
        check("QLinearLeakyRelu", inputs, atol=1, constants=constants)
        check("QLinearLeakyRelu", inputs, atol=1, constants=constants, alpha=0.3)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_a_table_of_results_has_the_bits_of_the_computation(op: str, dtype: str) -> None:
    everything = np.arange(256).astype(np.uint8).view(dtype)
    for y_scale in (1 / 256, 0.02, 5):
        inputs = one_operand(everything, y_scale)
        (computed,) = run(model_of(op, inputs), inputs)
        (looked_up,) = run(model_of(op, inputs, ("xs", "xz", "ys", "yz")), inputs)
        assert np.array_equal(computed, looked_up)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 12), (0, 11)])
def test_softmax(dtype: str, axis: int, opset: int) -> None:
    # The scale states the zero point of onnxruntime's quantizers: 1/256 with the lowest number.
    fixed = ("xs", "xz", "ys", "yz")
    inputs = one_operand(numbers(dtype, 2, 3, 5), 1 / 256, -128)
    check("QLinearSoftmax", inputs, atol=1, constants=fixed, axis=axis, opset=opset)
    empty = one_operand(numbers(dtype, 2, 0, 5), 1 / 256, -128)  # onnxruntime before 1.32 returns None
    for symbolic, device in ((False, "CPU"), (True, "CPU"), (False, "TEMPLATE")):
        model = model_of("QLinearSoftmax", empty, fixed, symbolic=symbolic, axis=axis, opset=opset)
        (found,) = run(model, empty, device)
        assert (found.shape, found.dtype) == ((2, 0, 5), dtype)


@pytest.mark.parametrize("dtype", BYTES)
def test_pools(dtype: str) -> None:
    fixed = ("xs", "xz", "ys", "yz")
    for shape in ((2, 3, 5, 5), (1, 1, 1, 1), (2, 4, 7, 3)):
        check("QLinearGlobalAveragePool", one_operand(numbers(dtype, *shape)), atol=1, constants=fixed, channels_last=0)
        check("QLinearGlobalAveragePool", one_operand(numbers(dtype, *shape)), atol=1, constants=fixed, channels_last=1)
    inputs = one_operand(numbers(dtype, 2, 3, 7, 6))
    for options in (
        {"kernel_shape": [2, 3]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "count_include_pad": 1},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [7, 6]},
    ):
        check("QLinearAveragePool", inputs, atol=1, constants=fixed, **options)
    halves = inputs | {"xs": scale(0.0625), "ys": scale(0.0625)}  # exact: the window has four elements
    check("QLinearAveragePool", halves, atol=0, constants=fixed, kernel_shape=[2, 2])


@pytest.mark.parametrize("dtype", BYTES)
def test_concat(dtype: str) -> None:
    for shapes, axis in ((((2, 3), (2, 5)), 1), (((2, 3), (1, 3), (4, 3)), 0), (((2, 3), (0, 3)), -2)):
        inputs = {"ys": scale(0.05), "yz": zero(dtype, 2)}
        for i, shape in enumerate(shapes):
            inputs |= {f"x{i}": numbers(dtype, *shape, seed=i)}
            inputs |= {f"s{i}": scale(0.05 if i else 0.03), f"z{i}": zero(dtype, 2 if i else -7)}
        fixed = tuple(name for name in inputs if name[0] != "x")
        check("QLinearConcat", inputs, atol=1, constants=fixed, axis=axis)


TYPES = [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("sizes", [(3, 8, 5), (1, 1, 1), (17, 64, 40), (3, 4, 4)])
def test_products(types: tuple[str, str], sizes: tuple[int, int, int]) -> None:
    (a_type, b_type), (m, k, n) = types, sizes
    a, b = numbers(a_type, m, k), weights(b_type, k, n, seed=1)
    for per_column in (False, True):
        scales = np.abs(floats(n)) / 50 + 0.01 if per_column else scale(0.02)
        zeros = numbers(b_type, n) if per_column else zero(b_type, 4)
        inputs = {"a": a, "b": b, "as": scale(0.03), "bs": scales, "az": zero(a_type, -5), "bz": zeros}
        for constants in ((), ("b", "bs", "bz")):
            check("MatMulIntegerToFloat", inputs, constants=constants)
            check("MatMulIntegerToFloat", inputs | {"bias": floats(n)}, constants=constants)
            dynamic = {"x": floats(m, k), "b": b, "bs": scales, "bz": zeros}
            check("DynamicQuantizeMatMul", dynamic, constants=constants, rtol=1e-3, atol=1e-3)
            with_bias = dynamic | {"bias": floats(n)}
            check("DynamicQuantizeMatMul", with_bias, constants=constants, rtol=1e-3, atol=1e-3)
    inputs = {"a": numbers(a_type, 2, m, k), "b": b, "as": scale(0.03), "bs": scale(0.02)}
    check("MatMulIntegerToFloat", inputs)
    inputs["b"] = weights(b_type, 2, k, n)
    check("MatMulIntegerToFloat", inputs)


@pytest.mark.parametrize(("a_type", "b_type"), TYPES)
def test_weights_of_all_8_bits_are_exact(a_type: str, b_type: str) -> None:
    """Also where onnxruntime's sums saturate."""
    for m, k, n in ((3, 8, 5), (17, 64, 40)):
        a, b = numbers(a_type, m, k), numbers(b_type, k, n, seed=1)
        b[:, 0], b[:, 1] = np.iinfo(b_type).min, np.iinfo(b_type).max
        inputs = {"a": a, "b": b, "as": scale(0.03), "bs": scale(0.02), "az": zero(a_type, -5), "bz": zero(b_type, 4)}
        sums = (a.astype(np.int64) - int(inputs["az"])) @ (b.astype(np.int64) - int(inputs["bz"]))
        for constants in ((), ("b", "bs", "bz")):
            (found,) = run(model_of("MatMulIntegerToFloat", inputs, constants), inputs)
            np.testing.assert_allclose(found, sums * (np.float32(0.03) * np.float32(0.02)), 1e-6, 0)
            quantized = inputs | {"ys": scale(1.5), "yz": zero(a_type, 3)}
            order = ("a", "as", "az", "b", "bs", "bz", "-c", "ys", "yz")
            operands = {name: quantized.get(name, a) for name in order}
            (found,) = run(model_of("QGemm", operands, ("as", "az", "bs", "bz", "ys", "yz")), operands)
            limits = np.iinfo(a_type)
            wanted = np.rint(sums * (0.03 * 0.02 / 1.5)) + int(quantized["yz"])
            assert np.abs(found - np.clip(wanted, limits.min, limits.max)).max() <= 1


FLAGS = [{}, {"transB": 1}, {"transA": 1, "alpha": 0.5}, {"transA": 1, "transB": 1}]


@pytest.mark.spread(3)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("sizes", [(3, 8, 5), (1, 1, 1), (4, 4, 4)])
def test_gemm(types: tuple[str, str], flags: dict[str, Any], sizes: tuple[int, int, int]) -> None:
    (a_type, b_type), (m, k, n) = types, sizes
    a = numbers(a_type, *((k, m) if flags.get("transA") else (m, k)))
    b = weights(b_type, *((n, k) if flags.get("transB") else (k, n)), seed=1)
    bias = np.random.default_rng(0).integers(-999, 999, n).astype(np.int32)
    for scales in (scale(0.02), np.abs(floats(n)) / 50 + np.float32(0.01)):
        inputs = {"a": a, "as": scale(0.03), "az": zero(a_type, -5), "b": b, "bs": scales}
        inputs["bz"] = zero(b_type, 4) if scales.ndim == 0 else np.zeros(n, b_type)
        fixed = ("as", "az", "b", "bs", "bz", "ys", "yz")
        rest = {"ys": scale(0.5), "yz": zero(a_type, 3)}
        for more in ({}, {"c": bias}):
            check("QGemm", inputs | more, constants=fixed, **flags)
        for more in ({"-c": bias}, {"c": bias}):
            check("QGemm", inputs | more | rest, atol=1, constants=fixed, **flags)


def test_refusals() -> None:
    x = numbers("uint8", 2, 3)
    inputs = one_operand(x)
    assert "opset = 0" in refusal(model_of("QLinearSoftmax", inputs))
    assert "channels_last = 1" in refusal(model_of("QLinearAveragePool", inputs, channels_last=1))
    assert "QLinearConcat" in refusal(model_of("QLinearConcat", {"ys": scale(1), "yz": zero("uint8", 0)}, axis=0))
    wrong = inputs | {"xs": floats(3)}
    with pytest.raises(InferenceError, match=r"expected one scale, found shape \[3\]"):
        run(model_of("QLinearSigmoid", wrong), wrong)
    wrong = inputs | {"yz": zero("int8", 0)}
    reason = refusal(model_of("QLinearSigmoid", wrong))
    assert "Y_zero_point of type int8; expected uint8, as Y" in reason


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name: str, tmp_path: Path) -> None:
    """Every model of onnxruntime's tools runs whole, for batches that change."""
    model = MODELS[name](tmp_path)
    core = Core()
    support = core.query_model(core.read_model(model), "CPU")
    assert len(support) == len(model.graph.node), support.reasons
    compiled = core.compile_model(model, "CPU")
    for batch in (2, 1, 3):
        inputs = feeds(model, batch)
        (found,) = compiled(inputs).values()
        (wanted,) = run_directly(model, inputs)
        # One step of the output's scale, for quantized models.
        limit = 1e-4 if _is_float(model) else 0.1
        np.testing.assert_allclose(found, wanted, limit, limit)


def _is_float(model: onnx.ModelProto) -> bool:
    return not any("Quantize" in node.op_type or node.op_type.startswith("Q") for node in model.graph.node)
