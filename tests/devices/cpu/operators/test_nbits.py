"""Weights of 4, 8 and 16 bits on the CPU device, beside onnxruntime without optimizations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from contrib_nodes import Array, check, floats, model_of, refusal, run
from hetero import Core, UnsupportedModel, _kernels
from onnxruntime_models import run_directly

pytestmark = pytest.mark.spread(2)

# ---- MatMulNBits


SIZES = [(32, 8, 16), (64, 5, 32), (40, 3, 16), (48, 1, 32), (1, 1, 16), (512, 33, 256), (300, 20, 128)]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("level", [None, 1, 4])
def test_matmul_nbits(bits: int, sizes: tuple[int, int, int], level: int | None) -> None:
    k, n, block = sizes
    random = np.random.default_rng(0)
    blocks = -(-k // block)
    weights = random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = (floats(n, blocks) / 50).astype(np.float32)
    zeros = random.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    options: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block, "constants": ("b", "s", "z", "bias")}
    if level is not None:
        options["accuracy_level"] = level
    # At level 4, onnxruntime rounds x differently for some sizes, or not at all.
    close = {"rtol": 1e-3, "atol": 1e-3 * k**0.5 * (30 if level == 4 else 1) * (16 if bits == 8 else 1)}
    forms: tuple[dict[str, Array], ...] = ({}, {"z": zeros}, {"z": zeros, "-g": zeros, "bias": floats(n)})
    for shape, rest in (((3, k), forms), ((1, k), forms), ((2, 3, k), forms[2:]), ((0, k), forms[2:])):
        for form in rest:
            inputs = {"x": floats(*shape), "b": weights, "s": scales} | form
            check("MatMulNBits", inputs, **options, **close)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("k", "n", "block"), [(64, 5, 16), (40, 3, 16), (300, 257, 128)])
def test_groups_in_any_order(bits: int, k: int, n: int, block: int, level: int) -> None:
    """g_idx gives the block of each number, by which weights are quantized in the order of activations (GPTQ)."""
    random = np.random.default_rng(0)
    blocks = -(-k // block)
    inputs = {
        "x": floats(3, k),
        "b": random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "s": (floats(n, blocks) / 50).astype(np.float32),
        "z": random.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8),
    }
    options = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    fixed = ("b", "s", "z", "g")
    in_order = (np.arange(k) // block).astype(np.int32)
    for order in (random.permutation(in_order), in_order[::-1].copy()):
        without_zeros = {"x": inputs["x"], "b": inputs["b"], "s": inputs["s"], "-z": in_order, "g": order}
        if bits == 4:  # onnxruntime 1.32 has g_idx for 4 bits only, and then ignores zero points
            check("MatMulNBits", without_zeros, constants=fixed, **options, rtol=1e-3, atol=1e-3 * k**0.5)
        for form in (inputs | {"g": order}, without_zeros):
            model = model_of("MatMulNBits", form, fixed, **options)
            np.testing.assert_allclose(run(model, form)[0], run(model, form, "TEMPLATE")[0], 1e-3, 1e-3 * k**0.5)
    same = run(model_of("MatMulNBits", inputs | {"g": in_order}, fixed, **options), inputs)
    np.testing.assert_array_equal(same[0], run(model_of("MatMulNBits", inputs, fixed, **options), inputs)[0])


def test_onnxruntime_does_not_run_groups_with_zero_points() -> None:
    inputs = {
        "x": np.eye(32, dtype=np.float32),
        "b": np.zeros((1, 2, 8), np.uint8),
        "s": np.ones((1, 2), np.float32),
        "z": np.array([0x21], np.uint8),
        "g": np.repeat(np.arange(2, dtype=np.int32), 16),
    }
    model = model_of("MatMulNBits", inputs, ("b", "s", "z", "g"), K=32, N=1, bits=4, block_size=16)
    for device in ("CPU", "TEMPLATE"):
        np.testing.assert_array_equal(run(model, inputs, device)[0][:, 0], -1.0 - inputs["g"])
    assert "onnxruntime ignores zero_points beside g_idx" in refusal(model, "ORT")
    for name in ("z", "g"):
        form = {f"-{key}" if key == name else key: array for key, array in inputs.items()}
        assert (
            refusal(model_of("MatMulNBits", form, ("b", "s", "z", "g"), K=32, N=1, bits=4, block_size=16), "ORT") == ""
        )


def test_bad_groups_are_refused_before_compiling() -> None:
    inputs = {"x": floats(2, 32), "b": np.zeros((4, 2, 8), np.uint8), "s": floats(4, 2), "-z": floats(1)}
    options = {"K": 32, "N": 4, "bits": 4, "block_size": 16}
    groups = np.repeat(np.arange(2, dtype=np.int32), 16)
    beyond, below, uneven = groups.copy(), groups.copy(), groups.copy()
    beyond[3], below[5], uneven[0] = 2, -1, 1
    assert refusal(model_of("MatMulNBits", inputs | {"g": groups}, ("b", "s", "g"), **options)) == ""
    assert "input g_idx is not constant" in refusal(
        model_of("MatMulNBits", inputs | {"g": groups}, ("b", "s"), **options)
    )
    for wrong, why in (
        (groups[:31], "g_idx of shape [31]; expected [32], as K states"),
        (beyond, "g_idx has the group 2; expected 0 to 1"),
        (below, "g_idx has the group -1; expected 0 to 1"),
    ):
        model = model_of("MatMulNBits", inputs | {"g": wrong}, ("b", "s", "g"), **options)
        assert why in refusal(model)
        assert why in refusal(model, "TEMPLATE")
        with pytest.raises(Exception, match="group_index"):  # onnxruntime's
            run_directly(model, {"x": inputs["x"]})
    model = model_of("MatMulNBits", inputs | {"g": uneven}, ("b", "s", "g"), **options)
    assert "g_idx has groups of other sizes than block_size" in refusal(model)
    np.testing.assert_allclose(
        run(model, inputs, "TEMPLATE")[0], run_directly(model, {"x": inputs["x"]})[0], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_halves_are_rounded_as_in_onnxruntime(bits: int) -> None:
    """Activations that were dequantized lie halfway between two levels where the largest is an even one."""
    random = np.random.default_rng(bits)
    k, n, block = 64, 24, 32
    for largest in (254, 762, 1270):
        for unit in (0.0078431, 0.037, 1.7e-5):
            levels = random.integers(-largest, largest + 1, (9, k))
            levels[:, ::block] = largest
            inputs = {
                "x": (levels * np.float32(unit)).astype(np.float32),
                "b": random.integers(0, 256, (n, k // block, block * bits // 8)).astype(np.uint8),
                "s": (random.random(n * k // block) / 100 + 1e-3).astype(np.float32),
            }
            options = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 4}
            model = model_of("MatMulNBits", inputs, ("b", "s"), **options)
            (wanted,) = run_directly(model, {"x": inputs["x"]})
            np.testing.assert_allclose(run(model, inputs)[0], wanted, 1e-5, 1e-5 * np.abs(wanted).max())


def test_bad_weights_are_refused_before_compiling() -> None:
    inputs = {"x": floats(2, 32), "b": np.zeros((4, 2, 8), np.uint8), "s": floats(4, 2)}
    good = {"K": 32, "N": 4, "bits": 4, "block_size": 16}
    fixed = ("b", "s", "z")
    assert refusal(model_of("MatMulNBits", inputs, fixed, **good)) == ""
    assert "input B is not constant" in refusal(model_of("MatMulNBits", inputs, **good))
    for name, number, why in (
        ("bits", 2, "B of shape [4, 2, 8] does not have 32 elements"),
        ("bits", 3, "bits = 3"),
        ("block_size", 24, "block_size = 24"),
        ("block_size", 8, "block_size = 8"),
        ("block_size", 0, "block_size = 0"),
        ("block_size", -16, "block_size = -16"),
        ("block_size", 1 << 40, "does not have 2199023255552 elements"),
        ("block_size", 32, "scales of shape [4, 2] does not have 4 elements"),
        ("N", 5, "B of shape [4, 2, 8] does not have 80 elements"),
        ("K", 48, "B of shape [4, 2, 8] does not have 96 elements"),
        ("N", 0, "N = 0"),
        ("K", -1, "K = -1"),
        ("N", 1 << 60, "does not have"),
    ):
        assert why in refusal(model_of("MatMulNBits", inputs, fixed, **good | {name: number}))
    two = inputs | {"b": np.zeros((4, 2, 4), np.uint8)}
    assert "bits = 2; kernels support 4 and 8" in refusal(model_of("MatMulNBits", two, fixed, **good | {"bits": 2}))
    short = inputs | {"z": np.zeros(3, np.uint8)}
    assert "zero_points of shape [3] does not have 4 elements" in refusal(model_of("MatMulNBits", short, fixed, **good))
    biased = inputs | {"-z": inputs["b"], "-g": inputs["b"], "bias": floats(3)}
    assert "bias of shape [3] does not have 4 elements" in refusal(
        model_of("MatMulNBits", biased, (*fixed, "bias"), **good)
    )
    narrow = inputs | {"x": floats(2, 31)}
    assert "input A has 31 columns; expected K = 32" in refusal(model_of("MatMulNBits", narrow, fixed, **good))
    with pytest.raises(UnsupportedModel, match=r"'y0' .*MatMulNBits with block_size = 24"):
        Core().compile_model(model_of("MatMulNBits", inputs, fixed, **good | {"block_size": 24}), "CPU")
    for number in (np.nan, np.inf):
        broken = inputs | {"s": np.full((4, 2), number, np.float32)}
        assert "scales has a number that is not finite" in refusal(model_of("MatMulNBits", broken, fixed, **good))


def test_packed_weights_are_exported(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    inputs = {"x": floats(2, 32), "b": random.integers(0, 256, (4, 2, 8)).astype(np.uint8), "s": floats(4, 2)}
    models = [model_of("MatMulNBits", inputs, ("b", "s"), K=32, N=4, bits=4, block_size=16), dequantized(32, 20, 16)]
    for i, model in enumerate(models):
        core = Core()
        compiled = core.compile_model(model, "CPU", {"CACHE_MODE": "OPTIMIZE_SPEED"})
        (wanted,) = compiled({"x": inputs["x"]}).values()
        compiled.export_model(tmp_path / f"{i}.hetero")
        (found,) = core.import_model(tmp_path / f"{i}.hetero")({"x": inputs["x"]}).values()
        assert np.array_equal(found, wanted)


def test_weights_that_two_nodes_share_with_other_scales() -> None:
    weights = np.random.default_rng(0).integers(0, 256, (4, 2, 8)).astype(np.uint8)
    model = model_of("MatMulNBits", {"x": floats(2, 32), "b": weights, "s": floats(4, 2)}, ("b", "s"), K=32, N=4,
                     bits=4, block_size=16)  # fmt: skip
    other = helper.make_node("MatMulNBits", ["x", "b", "s2"], ["other"], domain="com.microsoft", K=32, N=4, bits=4,
                             block_size=16)  # fmt: skip
    model.graph.node.append(other)
    model.graph.initializer.append(numpy_helper.from_array(2 * floats(4, 2), "s2"))
    model.graph.output.append(onnx.ValueInfoProto(name="other"))
    first, second = run(model, {"x": floats(2, 32)})
    assert np.array_equal(2 * first, second)


# ---- DequantizeLinear before a product


def dequantized(
    k: int,
    n: int,
    block: int,
    dtype: str = "int4",
    with_zeros: bool = True,
    product: str = "MatMul",
    trans: int = 0,
    also_output: bool = False,
    bias: tuple[int, ...] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """x [rows, k] times weights [k, n] of 4 or 16 bits. ``block``: 0: a scale per column; -1: one scale."""
    random = np.random.default_rng(k + n)
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype.endswith("4") else dtype)
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int16": (-300, 300), "uint16": (65000, 65536)}[dtype]
    shape = (n, k) if trans else (k, n)
    axis = 1 if trans else 0
    blocks = tuple(-(-size // block) if i == axis else size for i, size in enumerate(shape)) if block > 0 else ()
    scales = blocks if block > 0 else (n,) if block == 0 else ()

    def levels(*sizes: int) -> Array:
        return random.integers(low, high, sizes).astype(np.int32).astype(kind)

    constants: dict[str, Array] = {
        "w": levels(*shape),
        "s": np.asarray(random.standard_normal(scales), np.float32),
        "z": levels(*scales),
    }
    inputs = ["w", "s", "z"] if with_zeros else ["w", "s"]
    where: dict[str, int] = {} if block < 0 else {"axis": axis, "block_size": block} if block else {"axis": 1 - axis}
    factors = ["x", "d"]
    if bias is not None:
        factors.append("c")
        constants["c"] = floats(*bias)
    if product == "Gemm":
        attributes = {"transB": trans, **attributes}
    nodes = [
        helper.make_node("DequantizeLinear", inputs, ["d"], **where),
        helper.make_node(product, factors, ["y"], **attributes),
    ]
    if also_output:
        nodes.append(helper.make_node("Identity", ["d"], ["also"]))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", k])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in (["y", "also"] if also_output else ["y"])
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def kernels_of(model: onnx.ModelProto, feed: dict[str, Array], **config: Any) -> tuple[list[Array], set[str]]:
    """The results, and the kernels of the plan."""
    compiled = Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, **config})
    found = list(compiled(feed).values())
    planner = compiled._plans.planner  # type: ignore[attr-defined]
    return found, {type(plan.operator.lower).__name__ + plan.operator.lower.__qualname__ for plan in planner.nodes}


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"k": 32, "n": 20, "block": 16},
        {"k": 40, "n": 5, "block": 16},
        {"k": 33, "n": 7, "block": 8},
        {"k": 32, "n": 20, "block": 32, "product": "Gemm", "trans": 1},
        {"k": 50, "n": 3, "block": 24, "product": "Gemm", "bias": (3,)},
        {"k": 48, "n": 3, "block": 16, "product": "Gemm", "trans": 1, "bias": (4, 1)},
        {"k": 32, "n": 6, "block": 16, "product": "Gemm", "bias": ()},
        {"k": 21, "n": 17, "block": 0},
        {"k": 32, "n": 17, "block": 0, "product": "Gemm", "trans": 1},
        {"k": 21, "n": 17, "block": -1},
        {"k": 32, "n": 20, "block": 16, "also_output": True},
    ],
)
def test_products_with_dequantized_weights(options: dict[str, Any], with_zeros: bool, dtype: str) -> None:
    model = dequantized(dtype=dtype, with_zeros=with_zeros, **options)
    x = floats(4, options["k"])
    found, lowerings = kernels_of(model, {"x": x})
    assert any("_reading" in name for name in lowerings)
    for mine, theirs in zip(found, run_directly(model, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-3, 1e-3)
    plain, lowerings = kernels_of(model, {"x": x}, DISABLE_TRANSFORMATIONS=True)
    assert not any("_reading" in name for name in lowerings)
    for mine, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"block": 12},
        {"block": 16, "product": "Gemm", "alpha": 2.0},
        {"block": 16, "product": "Gemm", "bias": (20,), "beta": 0.5},
    ],
)
def test_near_misses_read_the_dequantized_matrix(options: dict[str, Any]) -> None:
    model = dequantized(32, 20, **options)
    x = floats(4, 32)
    found, lowerings = kernels_of(model, {"x": x})
    assert not any("_reading" in name for name in lowerings)
    np.testing.assert_allclose(found[0], run_directly(model, {"x": x})[0], 1e-3, 1e-3)


def test_a_matrix_on_the_left_or_on_both_sides_is_dequantized() -> None:
    for factors in (["d", "x"], ["d", "d"]):
        model = dequantized(16, 16, 16)
        del model.graph.node[1].input[:]
        model.graph.node[1].input.extend(factors)
        x = floats(16, 16)
        found, lowerings = kernels_of(model, {"x": x})
        assert not any("_reading" in name for name in lowerings)
        np.testing.assert_allclose(found[0], run_directly(model, {"x": x})[0], 1e-3, 1e-3)


@pytest.mark.parametrize("scale", [np.inf, -np.inf, 1e38])
def test_a_matrix_with_infinities_is_dequantized(scale: float) -> None:
    """0 times an infinity is NaN, also if a sum of levels is multiplied by it."""
    model = dequantized(16, 4, 16)
    scales = next(tensor for tensor in model.graph.initializer if tensor.name == "s")
    factors = numpy_helper.to_array(scales).copy()
    factors[0, 1] = scale
    scales.CopyFrom(numpy_helper.from_array(factors, "s"))
    x = np.full((3, 16), 1e-30, np.float32)
    found, lowerings = kernels_of(model, {"x": x})
    assert not any("_reading" in name for name in lowerings)
    np.testing.assert_allclose(found[0], run_directly(model, {"x": x})[0], 1e-3)


def test_a_matrix_of_another_type_is_dequantized() -> None:
    """output_dtype makes float16 of weights whose scales are float32."""
    model = dequantized(16, 4, 16)
    model.opset_import[0].version = 23
    model.graph.node[0].attribute.append(helper.make_attribute("output_dtype", TensorProto.FLOAT16))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    for output in model.graph.output:
        output.type.tensor_type.elem_type = TensorProto.FLOAT16
    x = floats(3, 16).astype(np.float16)
    found, lowerings = kernels_of(model, {"x": x})
    assert not any("_reading" in name for name in lowerings)
    np.testing.assert_allclose(found[0], run_directly(model, {"x": x})[0], 1e-2, 1e-2)


# ---- weights of 16 bits


def assert_only_packed(model: onnx.ModelProto, *sizes: tuple[int, ...], close: float = 1e-5) -> None:
    """Products of 16-bit weights are computed as without rewriting, bit for bit, and as onnxruntime computes them."""
    compiled = Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1})
    plain = Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "DISABLE_TRANSFORMATIONS": True})
    lowerings = {plan.operator.lower.__qualname__ for plan in compiled._plans.planner.nodes}  # type: ignore[attr-defined]
    assert any("_dequantizing" in name for name in lowerings) != _kernels.has_tiles()
    for size in sizes:
        feed = {"x": floats(*size)}
        wanted = run_directly(model, feed)
        for mine, same, theirs in zip(compiled(feed).values(), plain(feed).values(), wanted, strict=True):
            np.testing.assert_array_equal(mine, same)
            np.testing.assert_allclose(mine, theirs, close, close * np.abs(theirs).max(initial=0))


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"k": 32, "n": 20, "block": -1},
        {"k": 40, "n": 5, "block": 0},
        {"k": 33, "n": 7, "block": 3},
        {"k": 70, "n": 2, "block": 0, "product": "Gemm", "trans": 1},
        {"k": 1, "n": 40, "block": 0},
        {"k": 32, "n": 20, "block": 32, "product": "Gemm", "trans": 1},
        {"k": 50, "n": 3, "block": 24, "product": "Gemm", "bias": (3,)},
        {"k": 48, "n": 3, "block": 16, "product": "Gemm", "trans": 1, "bias": (1, 3)},
        {"k": 32, "n": 6, "block": 16, "product": "Gemm", "bias": ()},
        {"k": 32, "n": 20, "block": 16, "also_output": True},
    ],
)
def test_products_with_weights_of_16_bits(options: dict[str, Any], with_zeros: bool, dtype: str) -> None:
    k = options["k"]
    assert_only_packed(dequantized(dtype=dtype, with_zeros=with_zeros, **options), (4, k), (1, k), (0, k), (65, k))


@pytest.mark.parametrize("shape", [(24,), (2, 3, 24), (2, 1, 0, 24)])
def test_ranks_of_what_weights_of_16_bits_multiply(shape: tuple[int, ...]) -> None:
    model = dequantized(24, 20, 0, "int16")
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    for size in shape:
        model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = size
    assert_only_packed(model, shape)


@pytest.mark.parametrize(
    "options", [{"product": "Gemm", "alpha": 2.0}, {"product": "Gemm", "bias": (20,), "beta": 0.5}, {"n": 1}]
)
def test_other_products_dequantize_weights_of_16_bits(options: dict[str, Any]) -> None:
    model, x = dequantized(**{"k": 32, "n": 20, "block": 0, "dtype": "int16", **options}), floats(4, 32)
    found, lowerings = kernels_of(model, {"x": x})
    assert not any("_dequantizing" in name for name in lowerings)
    wanted = run_directly(model, {"x": x})[0]
    np.testing.assert_allclose(found[0], wanted, 1e-4, 1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("shared", ["s", "w", "z", "s z", "w s z"])
def test_weights_of_16_bits_that_share_operands(shared: str) -> None:
    """The second product has weights, scales or zero points of its own, or reads the same matrix."""
    model = dequantized(24, 20, 0, "int16")
    for name in {"w", "s", "z"} - set(shared.split()):
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
        other = numpy_helper.to_array(tensor)[::-1].copy()
        model.graph.initializer.append(numpy_helper.from_array(other, f"{name}2"))
    names = [name if name in shared else f"{name}2" for name in "wsz"]
    model.graph.node.append(helper.make_node("DequantizeLinear", names, ["d2"], axis=1))
    model.graph.node.append(helper.make_node("MatMul", ["x", "d2"], ["y2"]))
    model.graph.node.append(helper.make_node("MatMul", ["x", "d"], ["y3"]))
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y2", "y3"))
    assert_only_packed(model, (4, 24), (1, 24))


@pytest.mark.parametrize("scale", [np.inf, np.nan, 0.0, -1.0, 1e38])
def test_scales_of_weights_of_16_bits(scale: float) -> None:
    model = dequantized(8, 4, 0, "int16", with_zeros=False)
    next(t for t in model.graph.initializer if t.name == "s").CopyFrom(
        numpy_helper.from_array(np.full(4, scale, np.float32), "s")
    )
    results = []
    for transform in (False, True):
        try:
            compiled = Core().compile_model(model, "CPU", {"DISABLE_TRANSFORMATIONS": not transform})
        except UnsupportedModel as error:
            results.append(str(error))
        else:
            results.append(compiled(np.ones((2, 8), np.float32))[0].tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("hint", ["f16", "bf16"])
def test_weights_of_16_bits_are_kept_as_halves(hint: str) -> None:
    model, x = dequantized(24, 20, 0, "int16"), floats(4, 24)
    config = {"INFERENCE_PRECISION_HINT": hint}
    found, _ = kernels_of(model, {"x": x}, **config)
    plain, _ = kernels_of(model, {"x": x}, DISABLE_TRANSFORMATIONS=True, **config)
    np.testing.assert_array_equal(found[0], plain[0])


def test_weights_of_16_bits_are_exported(tmp_path: Path) -> None:
    model, x = dequantized(32, 20, 0, "uint16", product="Gemm", trans=1, bias=(20,)), floats(3, 32)
    core = Core()
    compiled = core.compile_model(model, "CPU", {"CACHE_MODE": "OPTIMIZE_SPEED"})
    compiled.export_model(tmp_path / "before.hetero")
    wanted = compiled(x)[0]
    compiled.export_model(tmp_path / "after.hetero")
    for name in ("before", "after"):
        np.testing.assert_array_equal(core.import_model(tmp_path / f"{name}.hetero")(x)[0], wanted)


def test_a_dequantized_matrix_of_16_bits_is_not_kept() -> None:
    model = dequantized(256, 300, 0, "int16")
    compiled = Core().compile_model(model, "CPU")
    compiled(floats(2, 256))
    kept = compiled._plans.planner.stored_constants().values()  # type: ignore[attr-defined]
    is_kept = any(value.dtype == np.float32 and value.size == 256 * 300 for value in kept)
    assert is_kept == _kernels.has_tiles()


# ---- GatherBlockQuantized


@pytest.mark.parametrize("dtype", ["int4", "uint4", "uint8"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("indices", [(), (3,), (2, 3), (0,)])
def test_gather_block_quantized(dtype: str, bits: int, indices: tuple[int, ...]) -> None:
    if dtype != "uint8" and bits == 8:
        return
    random = np.random.default_rng(0)
    per_byte = 8 // bits if dtype == "uint8" else 1
    numpy_type = np.dtype(np.uint8) if dtype == "uint8" else np.dtype(getattr(ml_dtypes, dtype))
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "uint8": (0, 256)}[dtype]

    def levels(*shape: int) -> Array:
        return random.integers(low, high, shape).astype(np.int16).astype(numpy_type)

    for width, block in ((48, 16), (64, 32)):
        blocks = -(-width // block)
        numbers = random.integers(-10, 10, indices)
        inputs = {
            "d": levels(10, width // per_byte),
            "i": numbers,
            "s": floats(10, blocks),
            "z": levels(10, -(-blocks // per_byte)),
        }
        options: dict[str, Any] = {"block_size": block, "quantize_axis": 1, "constants": ("d", "s", "z")}
        if dtype == "uint8":
            options["bits"] = bits
        check("GatherBlockQuantized", inputs, **options)
        del inputs["z"]
        check("GatherBlockQuantized", inputs, **options)


def test_gather_block_quantized_refuses() -> None:
    inputs = {"d": np.zeros((10, 16), np.uint8), "i": np.zeros(2, np.int64), "s": floats(10, 2)}
    fixed, good = ("d", "s", "z"), {"block_size": 16, "quantize_axis": 1, "bits": 4}
    assert refusal(model_of("GatherBlockQuantized", inputs, fixed, **good)) == ""
    for name, number, why in (
        ("block_size", 12, "block_size = 12"),
        ("block_size", 32, "scales do not have shape [10, 1]"),
        ("quantize_axis", 0, "scales do not have shape [1, 32]"),
        ("gather_axis", 1, "gather_axis = 1"),
        ("bits", 2, "scales do not have shape [10, 4]"),
        ("bits", 5, "bits = 5"),
    ):
        assert why in refusal(model_of("GatherBlockQuantized", inputs, fixed, **good | {name: number}))
    for name, number, shape in (("quantize_axis", 0, (1, 32)), ("bits", 2, (10, 4))):
        fitting = inputs | {"s": floats(*shape)}
        model = model_of("GatherBlockQuantized", fitting, fixed, **good | {name: number})
        assert f"{name} = {number}; kernels support" in refusal(model)
    assert "data is not constant" in refusal(model_of("GatherBlockQuantized", inputs, **good))
    assert "zero_points" in refusal(
        model_of("GatherBlockQuantized", inputs | {"z": np.zeros((10, 2), np.uint8)}, fixed, **good)
    )
    for index, is_wrong in ((9, False), (-10, False), (10, True), (-11, True)):
        chosen = inputs | {"i": np.array([[0, index]], np.int64)}
        model = model_of("GatherBlockQuantized", chosen, ("d", "i", "s"), **good)
        for device in ("CPU", "TEMPLATE"):
            why = f"GatherBlockQuantized with index {index} in an axis of 10" if is_wrong else ""
            assert refusal(model, device) == why
