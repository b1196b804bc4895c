"""Quantized operators on the CPU device: exactly what the ONNX reference gives, and onnxruntime up to ties."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from hetero import Core, InferenceError, UnsupportedModel, _kernels
from onnxruntime_models import run_directly
from sessions import onnxruntime_session

pytestmark = pytest.mark.spread(2)

Array = np.ndarray[Any, Any]


def model_of(
    op: str,
    feeds: dict[str, Array],
    constants: tuple[str, ...] = (),
    opset: int = 21,
    outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node. An input whose name begins with "-" is left out."""
    names = ["" if name.startswith("-") else name for name in feeds]
    given = {name: array for name, array in feeds.items() if not name.startswith("-")}
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attributes)],
        op,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
            if name not in constants
        ],
        [onnx.ValueInfoProto(name=name) for name in made],
        [numpy_helper.from_array(given[name], name) for name in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    core = Core()
    read = core.read_model(model)
    support = core.query_model(read, "CPU")
    assert len(support) == len(model.graph.node), support.reasons
    compiled = core.compile_model(read, "CPU")
    wanted = {port.name for port in compiled.inputs}
    return list(compiled({n: a for n, a in feeds.items() if n in wanted}).values())


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    wanted = {value.name for value in model.graph.input}
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, {n: a for n, a in feeds.items() if n in wanted}))


def assert_as_reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    for found, wanted in zip(run(model, feeds), reference(model, feeds), strict=True):
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)


def onnxruntime_gives(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    wanted = {value.name for value in model.graph.input}
    session = onnxruntime_session(model)
    return list(session.run(None, {n: a for n, a in feeds.items() if n in wanted}))


def random_bytes(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


# ---- QuantizeLinear, DequantizeLinear


@pytest.mark.parametrize("float_type", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int4", "uint4"])
@pytest.mark.parametrize(("axis", "block"), [(None, 0), (0, 0), (1, 0), (-1, 0), (1, 2), (2, 3), (0, 5)])
def test_quantize_and_back(float_type: str, dtype: str, axis: int | None, block: int) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((4, 6, 7)) * 30).astype(np.dtype(getattr(ml_dtypes, float_type, float_type)))
    shape: tuple[int, ...] = ()
    attributes: dict[str, Any] = {}
    if axis is not None:
        attributes["axis"] = axis
        shape = (x.shape[axis],)
        if block:
            attributes["block_size"] = block
            shape = tuple(-(-size // block) if i == axis else size for i, size in enumerate(x.shape))
    scale = rng.uniform(0.1, 1, shape).astype(x.dtype)
    low, high = {"int4": (-8, 7), "uint4": (0, 15)}.get(dtype, (0, 29))
    zero = rng.integers(low, high, shape, endpoint=True).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    feeds = {"x": x, "scale": scale, "zero": zero}
    model = model_of("QuantizeLinear", feeds, **attributes)
    (found,) = run(model, feeds)
    assert found.tobytes() == reference(model, feeds)[0].tobytes()
    feeds = {"x": found, "scale": scale, "zero": zero}
    assert_as_reference(model_of("DequantizeLinear", feeds, **attributes), feeds)


@pytest.mark.parametrize(("precision", "name"), [(1, "float32"), (10, "float16"), (16, "bfloat16")])
@pytest.mark.parametrize("float_type", ["float32", "float16"])
def test_precision_of_the_quotient(precision: int, name: str, float_type: str) -> None:
    x = (np.random.default_rng(4).standard_normal(500) * 100).astype(float_type)
    feeds = {"x": x, "scale": np.array(0.7, float_type), "zero": np.array(5, np.int16)}
    assert_as_reference(model_of("QuantizeLinear", feeds, opset=23, precision=precision), feeds)


def test_output_types() -> None:
    x = np.linspace(-5, 300, 50, dtype=np.float32)
    feeds = {"x": x, "scale": np.array(1.5, np.float32)}
    assert_as_reference(model_of("QuantizeLinear", feeds), feeds)
    assert_as_reference(model_of("QuantizeLinear", feeds, output_dtype=onnx.TensorProto.INT16), feeds)
    feeds = {"x": np.arange(-5, 5, dtype=np.int8), "scale": np.array(1.5, np.float32)}
    assert_as_reference(model_of("DequantizeLinear", feeds, opset=23, output_dtype=onnx.TensorProto.FLOAT16), feeds)
    feeds = {"x": np.array([2**31 - 1, -(2**31), 7], np.int32), "scale": np.array(0.3, np.float32)}
    assert_as_reference(model_of("DequantizeLinear", feeds), feeds)


@pytest.mark.parametrize("made_by", ["CPU", "TEMPLATE"])
@pytest.mark.parametrize(("dtype", "zero"), [(ml_dtypes.int4, -3), (ml_dtypes.uint4, 5)])
def test_elements_of_4_bits_pass_between_devices(dtype: Any, zero: int, made_by: str) -> None:
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("rows", 7))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("rows", 7))],
        [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.array(zero, dtype), "z")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for pins in ({"q": made_by, "y": "CPU"}, {"q": "CPU", "y": made_by}):
        core = Core()
        compiled = core.compile_model(core.read_model(model), "HETERO:CPU,TEMPLATE", pins=pins)
        for rows in (3, 1, 0, 5):
            x = (rng.standard_normal((rows, 7)) * 4).astype(np.float32)
            for _ in range(2):
                assert np.array_equal(compiled(x)[0], reference(model, {"x": x})[0])


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("stored", ["raw", "numbers", "made"])
def test_constants_of_4_bits(stored: str, dtype: Any) -> None:
    """As the file stores them, or as another node makes them, which leaves the high bits of their bytes open."""
    w = np.arange(-8 if dtype is ml_dtypes.int4 else 0, 8 if dtype is ml_dtypes.int4 else 16, dtype=np.int8)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    if stored == "made":
        nodes.insert(0, helper.make_node("QuantizeLinear", ["floats", "one", "zero"], ["w"]))
        weights = numpy_helper.from_array(w.astype(np.float32).reshape(4, 4), "floats")
    else:
        raw = numpy_helper.from_array(w.astype(dtype).reshape(4, 4), "w")
        weights = raw if stored == "raw" else helper.make_tensor("w", element, [4, 4], w.tolist())
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3, 4))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (3, 4))],
        [
            weights, numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.float32(1), "one"),
            numpy_helper.from_array(np.array(0, dtype), "zero"),
        ],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.eye(3, 4, dtype=np.float32)
    for device in ("CPU", "TEMPLATE"):
        compiled = Core().compile_model(model.SerializeToString(), device)
        np.testing.assert_array_equal(compiled({"x": x})[0], w.reshape(4, 4)[:3] * np.float32(0.5))


def test_int32_is_quantized_in_float32() -> None:
    feeds = {"x": np.array([1, 3, -7, 1000], np.int32), "scale": np.array(2, np.float32), "zero": np.array(9, np.int8)}
    assert run(model_of("QuantizeLinear", feeds, opset=13), feeds)[0].tolist() == [9, 11, 5, 127]


@pytest.mark.parametrize("values", [[-1.0, 2.0], [0.0], [3.0, 4.0], [-3.0, -4.0], [1e-3, 255.0]])
def test_dynamic_quantize_as_onnxruntime(values: list[float]) -> None:
    feeds = {"x": np.array(values, np.float32)}
    model = model_of("DynamicQuantizeLinear", feeds, outputs=3)
    for found, wanted in zip(run(model, feeds), onnxruntime_gives(model, feeds), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize(
    ("values", "scale", "zero", "wanted"),
    [
        ([1e-45, 2e-45], 0, 255, [255, 255]),  # the scale is rounded to 0, and 0 / 0 is the zero point
        ([-1e-45, 0], 0, 255, [0, 0]),
        ([-0.0, 0.0], 1, 0, [0, 0]),
        ([], 1, 0, []),
        ([np.nan, 1, 2], np.nan, 255, [0, 0, 0]),
        ([1, 2] * 40 + [np.nan], np.nan, 255, [0] * 81),
        ([1, np.inf], np.inf, 0, [0, 0]),
        ([-np.inf, 1], np.inf, 255, [0, 255]),
        ([3e38, -3e38], np.inf, 0, [0, 0]),
    ],
)
def test_dynamic_quantize_at_its_limits(
    values: list[float], scale: float, zero: int, wanted: list[int], variant: str
) -> None:
    feeds = {"x": np.array(values, np.float32)}
    specs = [(feeds["x"].shape, np.uint8), ((), np.float32), ((), np.uint8)]
    by_kernel = _kernels.call("dynamic_quantize", [feeds["x"]], specs, variant=variant)
    by_template = Core().compile_model(model_of("DynamicQuantizeLinear", feeds, outputs=3), "TEMPLATE")(feeds).arrays()
    for found in (by_kernel, by_template):
        assert found[0].tolist() == wanted
        assert np.array_equal(found[1], np.float32(scale), equal_nan=True)
        assert found[2] == zero


# ---- products


def product_feeds(
    rng: np.random.Generator, a_shape: tuple[int, ...], b_shape: tuple[int, ...], a_type: str, b_type: str
) -> dict[str, Array]:
    return {
        "a": random_bytes(rng, a_type, *a_shape),
        "a_scale": np.array(0.02, np.float32),
        "a_zero": random_bytes(rng, a_type),
        "b": random_bytes(rng, b_type, *b_shape),
        "b_scale": np.array(0.03, np.float32),
        "b_zero": random_bytes(rng, b_type),
        "y_scale": np.array(1.7, np.float32),
        "y_zero": random_bytes(rng, a_type),
    }


SHAPES = [
    ((5, 7), (7, 4)),
    ((2, 3, 5), (5, 4)),
    ((2, 1, 3, 5), (4, 5, 6)),
    ((6,), (6, 3)),
    ((3, 6), (6,)),
    ((1, 64), (64, 40)),
]


@pytest.mark.parametrize("a_type", ["int8", "uint8"])
@pytest.mark.parametrize("b_type", ["int8", "uint8"])
@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
@pytest.mark.parametrize("constants", [(), ("b",), ("b", "b_zero", "b_scale")])
def test_products(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], a_type: str, b_type: str, constants: tuple[str, ...]
) -> None:
    feeds = product_feeds(np.random.default_rng(5), a_shape, b_shape, a_type, b_type)
    assert_as_reference(model_of("QLinearMatMul", feeds, constants), feeds)
    plain = {name: feeds[name] for name in ("a", "b", "a_zero", "b_zero")}
    kept = tuple(name for name in constants if name in plain)
    assert_as_reference(model_of("MatMulInteger", plain, kept), plain)
    bare = {name: feeds[name] for name in ("a", "b")}
    assert_as_reference(model_of("MatMulInteger", bare, tuple(n for n in kept if n in bare)), bare)


@pytest.mark.parametrize("float_type", ["float16", "bfloat16"])
def test_scales_of_half_precision(float_type: str) -> None:
    feeds = product_feeds(np.random.default_rng(6), (20, 30), (30, 40), "int8", "int8")
    kind = np.dtype(getattr(ml_dtypes, float_type, float_type))
    feeds = {name: array.astype(kind) if name.endswith("scale") else array for name, array in feeds.items()}
    assert_as_reference(model_of("QLinearMatMul", feeds), feeds)


def test_parameters_per_row_and_column() -> None:
    rng = np.random.default_rng(7)
    feeds = product_feeds(rng, (3, 5), (5, 4), "uint8", "int8")
    feeds |= {"a_scale": rng.uniform(0.01, 0.1, 3).astype(np.float32), "a_zero": random_bytes(rng, "uint8", 3)}
    feeds |= {"b_scale": rng.uniform(0.01, 0.1, 4).astype(np.float32), "b_zero": random_bytes(rng, "int8", 4)}
    sums = (feeds["a"].astype(int) - feeds["a_zero"][:, None]) @ (feeds["b"].astype(int) - feeds["b_zero"])
    scale = feeds["a_scale"][:, None] * feeds["b_scale"] / feeds["y_scale"]
    wanted = np.clip(np.rint(sums.astype(np.float32) * scale) + feeds["y_zero"], 0, 255)
    assert np.array_equal(run(model_of("QLinearMatMul", feeds), feeds)[0], wanted)
    # A vector on the right: the result has no columns.
    single = {"b": feeds["b"][:, 0], "b_scale": feeds["b_scale"][0], "b_zero": feeds["b_zero"][0]}
    assert np.array_equal(run(model_of("QLinearMatMul", feeds | single), feeds | single)[0], wanted[:, 0])
    square = feeds | single | {name: np.concatenate([feeds[name]] * 2)[:5] for name in ("a", "a_scale", "a_zero")}
    expected = np.concatenate([wanted[:, 0]] * 2)[:5]
    assert np.array_equal(run(model_of("QLinearMatMul", square), square)[0], expected)
    # In higher ranks they are given in a shape that broadcasts.
    stacked = feeds | {
        "a": feeds["a"][None],
        "a_scale": feeds["a_scale"][None, :, None],
        "a_zero": feeds["a_zero"][None, :, None],
    }
    assert np.array_equal(run(model_of("QLinearMatMul", stacked), stacked)[0], wanted[None])


# ---- convolutions


@pytest.mark.parametrize("types", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 2, 0, 1], "strides": [2, 1]},
        {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
        {"group": 2, "auto_pad": "SAME_UPPER"},
        {"group": 4, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ],
)
@pytest.mark.parametrize("constants", [(), ("w", "w_zero", "w_scale")])
def test_convolutions(types: tuple[str, str], attributes: dict[str, Any], constants: tuple[str, ...]) -> None:
    rng = np.random.default_rng(8)
    group = attributes.get("group", 1)
    maps = 4 * 2
    feeds = {
        "x": random_bytes(rng, types[0], 2, 4, 9, 11),
        "x_scale": np.array(0.02, np.float32),
        "x_zero": random_bytes(rng, types[0]),
        "w": random_bytes(rng, types[1], maps, 4 // group, 3, 3),
        "w_scale": rng.uniform(0.01, 0.1, maps).astype(np.float32),
        "w_zero": random_bytes(rng, types[1]),
        "y_scale": np.array(0.9, np.float32),
        "y_zero": random_bytes(rng, types[0]),
        "bias": rng.integers(-3000, 3000, maps).astype(np.int32),
    }
    (found,) = run(model_of("QLinearConv", feeds, constants, **attributes), feeds)
    plain = {"x": feeds["x"], "w": feeds["w"], "x_zero": feeds["x_zero"], "w_zero": feeds["w_zero"]}
    kept = tuple(name for name in constants if name in plain)
    (sums,) = run(model_of("ConvInteger", plain, kept, **attributes), plain)
    # onnxruntime has no signed-by-unsigned ConvInteger: floats hold these sums exactly.
    wide = {
        "x": feeds["x"].astype(np.float32) - np.float32(feeds["x_zero"]),
        "w": feeds["w"].astype(np.float32) - np.float32(feeds["w_zero"]),
    }
    (wanted,) = onnxruntime_gives(model_of("Conv", wide, **attributes), wide)
    assert np.array_equal(sums, wanted)
    scale = feeds["x_scale"] * feeds["w_scale"] / feeds["y_scale"]
    scaled = (sums + feeds["bias"][:, None, None]).astype(np.float32) * scale[:, None, None]
    limits = np.iinfo(types[0])
    assert np.array_equal(found, np.clip(np.rint(scaled) + feeds["y_zero"], limits.min, limits.max))


@pytest.mark.parametrize(
    ("shape", "filters", "attributes"),
    [
        ((1, 8, 6, 7), (8, 8, 3, 3), {"dilations": [9, 9], "pads": [9, 9, 9, 9]}),  # only the tap in the middle
        ((1, 40, 6, 7), (40, 40, 3, 3), {"dilations": [6, 7], "pads": [6, 7, 6, 7]}),
        ((1, 40, 6, 7), (40, 40, 3, 3), {"dilations": [5, 6], "pads": [5, 6, 5, 6]}),  # the last that read the image
        ((2, 40, 6, 7), (40, 40, 3, 3), {"dilations": [9, 9], "pads": [18, 0, 0, 18]}),
        ((1, 8, 6, 7), (8, 8, 3, 2), {"dilations": [9, 8], "pads": [10, 3, 20, 11], "strides": [2, 3]}),
        ((1, 4, 5), (8, 4, 3), {"dilations": [5], "pads": [3, 7]}),  # no first tap: its pads would become negative
        ((1, 4, 2, 2), (8, 2, 4, 4), {"pads": [3, 3, 3, 3], "group": 2}),
        ((1, 4, 3), (4, 4, 2), {"pads": [9, 9], "strides": [20]}),  # no window reads the image
        ((1, 8, 3, 3), (8, 1, 3, 3), {"dilations": [4, 4], "pads": [4, 4, 4, 4], "group": 8}),
        ((1, 4, 3, 3, 4), (4, 4, 3, 1, 3), {"dilations": [4, 1, 2], "pads": [4, 0, 2, 4, 0, 2]}),
        ((0, 4, 3, 3), (4, 4, 3, 3), {"dilations": [4, 4], "pads": [4, 4, 4, 4]}),
    ],
)
def test_filters_larger_than_the_image(
    shape: tuple[int, ...], filters: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    rng = np.random.default_rng(11)
    feeds = {
        "x": random_bytes(rng, "uint8", *shape),
        "w": random_bytes(rng, "int8", *filters),
        "x_zero": np.array(77, np.uint8),
        "w_zero": np.array(-5, np.int8),
    }
    wide = {
        "x": feeds["x"].astype(np.float32) - np.float32(feeds["x_zero"]),
        "w": feeds["w"].astype(np.float32) - np.float32(feeds["w_zero"]),
    }
    (wanted,) = onnxruntime_gives(model_of("Conv", wide, **attributes), wide)
    for constants in [(), ("w", "w_zero")]:
        (sums,) = run(model_of("ConvInteger", feeds, constants, **attributes), feeds)
        assert np.array_equal(sums, wanted)
    scales = {name: np.array(1, np.float32) for name in ("x_scale", "w_scale", "y_scale")}
    order = ("x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero")
    linear = {name: (feeds | scales | {"y_zero": np.array(100, np.uint8)})[name] for name in order}
    (found,) = run(model_of("QLinearConv", linear, ("w", "w_zero", "w_scale"), **attributes), linear)
    assert np.array_equal(found, np.clip(wanted + 100, 0, 255))


def test_filters_larger_than_images_of_changing_sizes() -> None:
    rng = np.random.default_rng(12)
    w, zero = random_bytes(rng, "int8", 8, 8, 3, 3), np.array(9, np.uint8)
    node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], dilations=[6, 6], pads=[6, 6, 6, 6])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 8, "h", "w"])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(zero, "zero")]
    graph = helper.make_graph([node], "g", [x], [y], constants)
    compiled = Core().compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "CPU")
    for sizes in [(1, 20, 20), (1, 5, 5), (2, 5, 20), (1, 6, 7), (1, 7, 6), (1, 1, 1), (1, 20, 20), (0, 5, 5)]:
        image = random_bytes(rng, "uint8", sizes[0], 8, *sizes[1:])
        floats = {"x": image.astype(np.float32) - 9, "w": w.astype(np.float32)}
        (wanted,) = onnxruntime_gives(model_of("Conv", floats, dilations=[6, 6], pads=[6, 6, 6, 6]), floats)
        assert np.array_equal(compiled({"x": image})["y"], wanted), sizes


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize(
    ("shape", "maps", "kernel", "attributes"),
    [
        ((1, 40, 12, 13), 40, (3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 24, 9, 30), 48, (5, 3), {"pads": [3, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ((1, 70, 1, 50), 70, (1, 7), {"auto_pad": "SAME_UPPER"}),
        ((3, 16, 50), 16, (4,), {"strides": [3]}),
        ((1, 8, 4, 5, 6), 8, (2, 2, 2), {}),
        ((0, 8, 5, 5), 8, (3, 3), {}),
    ],
)
def test_depthwise_convolutions(
    types: tuple[str, str], shape: tuple[int, ...], maps: int, kernel: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """With constant weights whose zero point is in the middle, and with others."""
    rng = np.random.default_rng(10)
    attributes = {**attributes, "group": shape[1]}
    for w_zero in (128 if types[1] == "uint8" else 0, 3):
        feeds = {
            "x": random_bytes(rng, types[0], *shape),
            "x_zero": random_bytes(rng, types[0]),
            "w": random_bytes(rng, types[1], maps, 1, *kernel),
            "w_zero": np.array(w_zero, types[1]),
        }
        plain = [feeds[name] for name in ("x", "w", "x_zero", "w_zero")]
        named = dict(zip(("x", "w", "x_zero", "w_zero"), plain, strict=True))
        (sums,) = run(model_of("ConvInteger", named, ("w", "w_zero"), **attributes), named)
        wide = {
            "x": feeds["x"].astype(np.float32) - np.float32(feeds["x_zero"]),
            "w": feeds["w"].astype(np.float32) - np.float32(w_zero),
        }
        if shape[0]:
            (wanted,) = onnxruntime_gives(model_of("Conv", wide, **attributes), wide)
            assert np.array_equal(sums, wanted)
        else:
            assert sums.shape[0] == 0


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("shape", "maps", "kernel", "attributes"),
    [
        ((1, 40, 7, 7), 35, (3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 32, 7, 5), 64, (1, 1), {}),
        ((1, 32, 5, 5), 33, (1, 1), {"pads": [0, 0, 1, 1]}),
        ((1, 32, 5, 5), 33, (1, 1), {"pads": [0, 0, 1, 0]}),
        ((1, 40, 6, 1), 32, (1, 1), {"pads": [0, 0, 0, 3]}),
        ((1, 40, 6, 1), 32, (1, 1), {"pads": [0, 1, 0, 0]}),
        ((1, 32, 1, 1), 32, (1, 1), {"pads": [0, 0, 5, 0], "strides": [2, 1]}),
        ((1, 33, 13, 9), 32, (5, 2), {"pads": [3, 0, 0, 2], "strides": [2, 3], "dilations": [1, 2]}),
        ((1, 32, 9, 9), 48, (1, 1), {"strides": [2, 2]}),
        ((1, 32, 3, 3), 32, (3, 3), {}),
    ],
)
def test_convolutions_of_short_rows(
    types: tuple[str, str],
    bias: bool,
    shape: tuple[int, ...],
    maps: int,
    kernel: tuple[int, int],
    attributes: dict[str, Any],
) -> None:
    """As products: exactly what ONNX's reference gives."""
    rng = np.random.default_rng(11)
    feeds = {
        "x": random_bytes(rng, types[0], *shape),
        "x_scale": np.array(0.02, np.float32),
        "x_zero": random_bytes(rng, types[0]),
        "w": random_bytes(rng, types[1], maps, shape[1], *kernel),
        "w_scale": rng.uniform(0.01, 0.1, maps).astype(np.float32),
        "w_zero": random_bytes(rng, types[1], maps),
        "y_scale": np.array(3.9, np.float32),
        "y_zero": random_bytes(rng, types[0]),
    }
    if bias:
        feeds["bias"] = rng.integers(-9000, 9000, maps).astype(np.int32)
    constants = ("w", "w_scale", "w_zero")
    (found,) = run(model_of("QLinearConv", feeds, constants, **attributes), feeds)
    wide = {
        "x": feeds["x"].astype(np.float32) - np.float32(feeds["x_zero"]),
        "w": feeds["w"].astype(np.float32) - feeds["w_zero"].astype(np.float32)[:, None, None, None],
    }
    (sums,) = onnxruntime_gives(model_of("Conv", wide, **attributes), wide)
    if bias:
        sums = sums + feeds["bias"][:, None, None]
    scale = feeds["x_scale"] * feeds["w_scale"] / feeds["y_scale"]
    scaled = sums.astype(np.float32) * scale[:, None, None]
    limits = np.iinfo(types[0])
    assert np.array_equal(found, np.clip(np.rint(scaled) + feeds["y_zero"], limits.min, limits.max))


@pytest.mark.parametrize("pads", [[0, 0, 1, 1], [0, 0, 0, 2], [0, 0, 2, 0], [1, 0, 0, 0], [0, 1, 0, 0], [2, 1, 0, 3]])
@pytest.mark.parametrize(("channels", "maps", "group"), [(3, 5, 1), (4, 4, 4), (32, 33, 1), (16, 16, 16), (6, 4, 2)])
@pytest.mark.parametrize("size", [(5, 5), (1, 1), (3, 20)])
def test_one_tap_with_pads_at_either_end(
    pads: list[int], channels: int, maps: int, group: int, size: tuple[int, int]
) -> None:
    """The border holds the zero point, whichever end it lies at."""
    rng = np.random.default_rng(12)
    feeds = {
        "x": random_bytes(rng, "uint8", 1, channels, *size),
        "w": random_bytes(rng, "int8", maps, channels // group, 1, 1),
        "x_zero": random_bytes(rng, "uint8"),
        "w_zero": random_bytes(rng, "int8"),
    }
    wide = {name: feeds[name].astype(np.float32) - np.float32(feeds[f"{name}_zero"]) for name in ("x", "w")}
    (wanted,) = onnxruntime_gives(model_of("Conv", wide, pads=pads, group=group), wide)
    (found,) = run(model_of("ConvInteger", feeds, ("w", "w_zero"), pads=pads, group=group), feeds)
    assert np.array_equal(found, wanted)


def test_filters_that_two_convolutions_of_different_groups_share() -> None:
    """The packed form of a constant depends on the groups, so each convolution packs it separately."""
    rng = np.random.default_rng(13)
    weights = random_bytes(rng, "int8", 16, 1, 3, 3)
    feeds = {f"x{group}": random_bytes(rng, "uint8", 1, group, 7, 7) for group in (16, 8, 1)}
    nodes = [
        onnx.helper.make_node("ConvInteger", [name, "w"], [f"y{name}"], group=array.shape[1])
        for name, array in feeds.items()
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "shared",
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None) for name in feeds],
        [onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.INT32, None) for node in nodes],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    for (name, array), found in zip(feeds.items(), run(model, feeds), strict=True):
        wide = {"x": array.astype(np.float32), "w": weights.astype(np.float32)}
        (wanted,) = onnxruntime_gives(model_of("Conv", wide, group=array.shape[1]), wide)
        assert np.array_equal(found, wanted), name


@pytest.mark.parametrize("zero", [0, 1, 7, 128, 255])
@pytest.mark.parametrize("op", ["QLinearMatMul", "QLinearConv", "QLinearConv of one channel each"])
@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
def test_halves_are_rounded_before_the_zero_point_is_added(op: str, zero: int, device: str) -> None:
    """As the specification says, and onnxruntime does: 0.5 with an odd zero point goes down."""
    rng = np.random.default_rng(14)
    x_scale, y_scale, y_zero = np.float32(0.25), np.float32(2), np.uint8(zero)
    if op == "QLinearMatMul":
        operands = [rng.integers(0, 9, (30, 40)).astype(np.uint8), rng.integers(-9, 9, (40, 50)).astype(np.int8)]
        attributes = {}
    else:
        group = 1 if op == "QLinearConv" else 16
        operands = [rng.integers(0, 9, (1, 16, 9, 9)).astype(np.uint8)]
        operands.append(rng.integers(-9, 9, (16, 16 // group, 3, 3)).astype(np.int8))
        attributes = {"group": group}
    parts = [operands[0], x_scale, np.uint8(0), operands[1], np.float32(1), np.int8(0), y_scale, y_zero]
    feeds = {f"i{number}": np.asarray(part) for number, part in enumerate(parts)}
    model = model_of(op.split()[0], feeds, ("i3", "i4", "i5"), **attributes)
    given = {name: feeds[name] for name in ("i0", "i1", "i2", "i6", "i7")}
    assert np.array_equal(Core().compile_model(model, device)(given)[0], onnxruntime_gives(model, feeds)[0])


def test_a_whole_quantized_chain_as_onnxruntime() -> None:
    rng = np.random.default_rng(9)
    feeds = product_feeds(rng, (50, 60), (60, 70), "uint8", "uint8")
    model = model_of("QLinearMatMul", feeds, ("b", "b_zero"))
    found, wanted = run(model, feeds)[0].astype(int), onnxruntime_gives(model, feeds)[0].astype(int)
    assert np.abs(found - wanted).max() <= 1  # it multiplies in float32: ties fall differently
    assert (found != wanted).mean() < 0.01


# ---- refusals and errors


@pytest.mark.parametrize(
    ("op", "feeds", "attributes", "reason"),
    [
        (
            "QuantizeLinear",
            {"x": np.zeros(2, np.float32), "s": np.ones((), np.float32)},
            {"output_dtype": 17},
            "float8",
        ),
        ("QuantizeLinear", {"x": np.zeros(2, np.float64), "s": np.ones((), np.float32)}, {}, "float64"),
        (
            "QuantizeLinear",
            {"x": np.zeros(2, np.float32), "s": np.ones((), np.float32)},
            {"block_size": -1},
            "block_size",
        ),
        ("DequantizeLinear", {"x": np.zeros(2, np.int64), "s": np.ones((), np.float32)}, {}, "int64"),
        ("MatMulInteger", {"a": np.zeros((2, 2), np.int16), "b": np.zeros((2, 2), np.int8)}, {}, "int16"),
    ],
)
def test_what_is_refused(op: str, feeds: dict[str, Array], attributes: dict[str, Any], reason: str) -> None:
    core = Core()
    support = core.query_model(core.read_model(model_of(op, feeds, **attributes)), "CPU")
    assert not support
    assert reason in str(support.reasons)


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        ("QLinearMatMul", {"a_zero": np.zeros(4, np.uint8)}, "do not broadcast"),
        ("QLinearMatMul", {"b_scale": np.ones(3, np.float32)}, "do not fit|do not broadcast"),
    ],
)
def test_operands_that_do_not_fit_are_named(op: str, change: dict[str, Array], message: str) -> None:
    feeds = product_feeds(np.random.default_rng(0), (3, 5), (5, 4), "uint8", "int8") | change
    with pytest.raises(InferenceError, match=f"{op}.*({message})"):
        run(model_of(op, feeds), feeds)


def test_a_scale_that_does_not_fit_its_axis_is_an_error() -> None:
    feeds = {"x": np.zeros((3, 4), np.float32), "scale": np.ones(3, np.float32)}
    with pytest.raises(InferenceError, match="a scale of shape"):
        run(model_of("QuantizeLinear", feeds), feeds)
    with pytest.raises(InferenceError, match="a scale of shape"):
        run(model_of("QuantizeLinear", feeds, axis=1, block_size=2), feeds)
    with pytest.raises(InferenceError, match="axis 5"):
        run(model_of("QuantizeLinear", feeds, axis=5), feeds)


@pytest.mark.parametrize("scale", [0.0, -0.5, np.nan, np.inf])
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear", "QLinearMatMul"])
def test_bad_scales_are_refused(op: str, scale: float) -> None:
    """When the model is compiled, by the names of the node and of the operand."""
    if op == "QLinearMatMul":
        feeds, name = product_feeds(np.random.default_rng(1), (2, 3), (3, 4), "uint8", "int8"), "b_scale"
    else:
        name = "y_scale" if op == "QuantizeLinear" else "x_scale"
        feeds = {"x": np.ones(3, np.float32 if op == "QuantizeLinear" else np.uint8), name: np.ones((), np.float32)}
    feeds[name] = np.array(scale, np.float32)
    if op == "QuantizeLinear" and scale == np.inf:
        assert np.array_equal(run(model_of(op, feeds, (name,)), feeds)[0], np.zeros(3, np.uint8))
        return
    if op == "DequantizeLinear" and not np.isnan(scale):  # it multiplies, so that any number is meaningful
        assert np.array_equal(run(model_of(op, feeds, (name,)), feeds)[0], np.full(3, scale, np.float32))
        return
    with pytest.raises(UnsupportedModel, match=f"{op} with {name} = {scale}"):
        Core().compile_model(model_of(op, feeds, (name,)), "CPU")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16"])
@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Softmax", "Identity"])
def test_infinite_scales_as_onnxruntime(op: str, dtype: str) -> None:
    """Quantizers write them for masks of the least float32."""
    x = np.array([[[-3.4e38, 3.4e38, 0, 1, -np.inf, 7]]], np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node(op, ["d"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "t", "u"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "t", "u"], ["y"]),
    ]
    for scales, zeros in (((np.inf, 0.1), (0, 0)), ((0.1, np.inf), (3, 5)), ((np.inf, np.inf), (3, 3))):
        constants = {"s": np.float32(scales[0]), "t": np.float32(scales[1])}
        constants |= {"z": np.array(zeros[0], dtype), "u": np.array(zeros[1], dtype)}
        outputs = [onnx.ValueInfoProto(name=name) for name in ("q", "r", "y")]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", 1, x.shape)],
            outputs,
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        for found, wanted in zip(run(model, {"x": x}), run_directly(model, {"x": x}), strict=True):
            assert np.array_equal(found, wanted, equal_nan=True)


_Q = np.zeros((4, 6), np.uint8)


@pytest.mark.parametrize(
    ("op", "feeds", "attributes", "reason"),
    [
        ("DequantizeLinear", {"x": _Q, "s": np.ones(5, np.float32)}, {}, r"a scale of shape \[6\], found \[5\]"),
        ("DequantizeLinear", {"x": _Q, "s": np.ones(6, np.float32)}, {"axis": 2}, "axis 2"),
        (
            "DequantizeLinear",
            {"x": _Q, "s": np.ones((4, 3), np.float32)},
            {"axis": 1, "block_size": 4},
            r"a scale of shape \[4, 2\], found \[4, 3\]",
        ),
        (
            "DequantizeLinear",
            {"x": _Q, "s": np.ones(6, np.float32), "z": np.zeros(5, np.uint8)},
            {},
            r"a zero point of shape \[5\]",
        ),
        (
            "DequantizeLinear",
            {"x": _Q, "s": np.ones((), np.float32), "z": np.zeros((), np.int8)},
            {},
            "a zero point of type int8; expected uint8",
        ),
        (
            "QuantizeLinear",
            {"-x": _Q.astype(np.float32), "s": np.ones(2, np.float32), "z": np.zeros(3, np.uint8)},
            {},
            r"a zero point of shape \[3\]",
        ),
    ],
)
def test_constant_schemes_that_do_not_fit_are_refused(
    op: str, feeds: dict[str, Array], attributes: dict[str, Any], reason: str
) -> None:
    """When the model is compiled, also if x is an input and only the scale and the zero point are constants."""
    feeds = {name.removeprefix("-"): array for name, array in feeds.items()}
    constants = tuple(feeds) if op == "DequantizeLinear" else ("s", "z")
    with pytest.raises(UnsupportedModel, match=f"{op}.*{reason}"):
        Core().compile_model(model_of(op, feeds, constants, **attributes), "CPU")


def _convolution_feeds() -> dict[str, Array]:
    one, zero = np.ones((), np.float32), np.zeros((), np.uint8)
    return {
        "x": np.ones((1, 3, 4, 4), np.uint8), "x_scale": one, "x_zero_point": zero,
        "w": np.ones((2, 3, 1, 1), np.uint8), "w_scale": one, "w_zero_point": zero,
        "y_scale": one, "y_zero_point": zero, "B": np.ones(2, np.int32),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("w_scale", np.ones(3, np.float32), "expected 2 elements"),
        ("w_zero_point", np.zeros(3, np.uint8), "expected 2 elements"),
        ("w_zero_point", np.zeros((), np.int8), "expected uint8"),
        ("B", np.ones(3, np.int32), "expected 2 elements"),
        ("B", np.ones(1, np.int32), "expected 2 elements"),
        ("x_scale", np.ones(2, np.float32), "expected 1 element"),
        ("y_zero_point", np.zeros(2, np.uint8), "expected 1 element"),
    ],
)
def test_constants_that_do_not_fit_a_quantized_convolution_are_refused(name: str, value: Array, expected: str) -> None:
    feeds = _convolution_feeds()
    constants = tuple(feeds)[1:]
    assert run(model_of("QLinearConv", feeds, constants), feeds)[0].shape == (1, 2, 4, 4)
    with pytest.raises(UnsupportedModel, match=f"QLinearConv with {name} of .*{expected}"):
        Core().compile_model(model_of("QLinearConv", feeds | {name: value}, constants), "CPU")


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
def test_quantized_operators_without_their_last_inputs_are_refused(device: str) -> None:
    product = product_feeds(np.random.default_rng(0), (3, 5), (5, 4), "uint8", "int8")
    for op, feeds in (("QLinearMatMul", product), ("QLinearConv", _convolution_feeds())):
        for count in range(1, 8):
            model = model_of(op, dict(list(feeds.items())[:count]))
            with pytest.raises(UnsupportedModel, match=rf"{op} of opset \d+ without its input {count} "):
                Core().compile_model(model, device)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("b_scale", np.ones(3, np.float32), "expected 1 or 4 elements"),
        ("b_zero", np.zeros(5, np.int8), "expected 1 or 4 elements"),
        ("b_zero", np.zeros(4, np.uint8), "expected int8"),
        ("a_zero", np.zeros((), np.int8), "expected uint8"),
        ("scales of types float32 and float16", np.float16(0.5), "expected one type"),
    ],
)
def test_constants_that_do_not_fit_a_quantized_product_are_refused(name: str, value: Array, expected: str) -> None:
    feeds = product_feeds(np.random.default_rng(0), (3, 5), (5, 4), "uint8", "int8")
    constants = tuple(feeds)[1:]
    assert run(model_of("QLinearMatMul", feeds, constants), feeds)[0].shape == (3, 4)
    changed = feeds | {name if name in feeds else "y_scale": value}
    with pytest.raises(UnsupportedModel, match=f"QLinearMatMul with {name}.*{expected}"):
        Core().compile_model(model_of("QLinearMatMul", changed, constants), "CPU")


@pytest.mark.parametrize(
    ("op", "zeros", "reason"),
    [
        ("MatMulInteger", {"az": np.zeros((), np.int8)}, "a_zero_point of type int8; expected uint8"),
        ("MatMulInteger", {"-az": _Q, "bz": np.zeros(4, np.uint8)}, "b_zero_point of type uint8; expected int8"),
        ("MatMulInteger", {"-az": _Q, "bz": np.zeros(3, np.int8)}, r"b_zero_point of shape \[3\]; expected 1 or 4"),
        ("ConvInteger", {"az": np.zeros((), np.int8)}, "x_zero_point of type int8; expected uint8"),
        ("ConvInteger", {"az": np.zeros(2, np.uint8)}, r"x_zero_point of shape \[2\]; expected 1 element"),
        ("ConvInteger", {"-az": _Q, "bz": np.zeros(1, np.uint8)}, "w_zero_point of type uint8; expected int8"),
    ],
)
def test_zero_points_of_sums_that_do_not_fit_are_refused(op: str, zeros: dict[str, Array], reason: str) -> None:
    shapes = ((3, 5), (5, 4)) if op == "MatMulInteger" else ((1, 5, 3, 3), (2, 5, 1, 1))
    feeds = {"a": np.ones(shapes[0], np.uint8), "b": np.ones(shapes[1], np.int8)} | zeros
    constants = tuple(name for name in feeds if name in ("b", "az", "bz"))
    with pytest.raises(UnsupportedModel, match=f"{op} with {reason}"):
        Core().compile_model(model_of(op, feeds, constants), "CPU")


@pytest.mark.parametrize(("op", "inputs", "attributes", "reason"), [
    ("QuantizeLinear", {"x": np.ones((4, 10), np.float32), "s": np.ones(4, np.float32)}, {"axis": 2}, "axis"),
    ("QuantizeLinear", {"x": np.ones((4, 10), np.float32), "s": np.ones(5, np.float32)}, {"axis": 0},
     r"expected a scale of shape \[4\], found \[5\]"),
    ("QuantizeLinear", {"x": np.ones((4, 10), np.float32), "s": np.ones((4, 3), np.float32)},
     {"axis": 1, "block_size": 3}, r"expected a scale of shape \[4, 4\], found \[4, 3\]"),
    ("DequantizeLinear", {"x": np.ones((4, 4), np.uint8), "s": np.ones(4, np.float32)}, {"axis": -9}, "axis"),
    ("ConvInteger", {"x": np.ones((1, 4, 6, 6), np.uint8), "w_": np.ones((4, 4, 3, 3), np.uint8), "z1": np.uint8(0),
                     "z2": np.zeros(3, np.uint8)}, {}, r"w_zero_point of shape \[3\]; expected 4"),
    ("QLinearMatMul", {"x": np.ones((4, 4), np.uint8), "s1": np.float32(1), "z1": np.zeros(2, np.uint8),
                       "w_": np.ones((4, 4), np.uint8), "s2": np.float32(1), "z2": np.uint8(0), "s3": np.float32(1),
                       "z3": np.uint8(0)}, {}, r"a_zero_point of shape \[2\]; expected 1 or 4"),
])  # fmt: skip
def test_parameters_that_do_not_fit_a_stated_shape(
    op: str, inputs: dict[str, Any], attributes: dict[str, Any], reason: str
) -> None:
    constants = [onnx.numpy_helper.from_array(np.array(value), name) for name, value in inputs.items() if name != "x"]
    x = inputs["x"]
    info = onnx.helper.make_tensor_value_info("x", onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    node = onnx.helper.make_node(op, list(inputs), ["y"], name="node", **attributes)
    graph = onnx.helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    core = Core()
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        core.compile_model(core.read_model(model), "CPU")
    assert "'node'" in str(caught.value)
