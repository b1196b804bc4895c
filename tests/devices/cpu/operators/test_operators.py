"""Operators of the CPU over attributes, types and all opsets, against TEMPLATE (which is held against onnxruntime)."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest
from onnx import helper

import hetero
from hetero import Core, HeteroError
from operator_cases import Case, models
from template_runs import difference, run_on_template

NEWEST_OPSET = 23

# ONNX casts OneHot's indices to int64, cutting fractions off; its reference compares them as they are.
REFERENCE_IS_WRONG = {"OneHot(float32[3],float32[],int64[2]) "}

# Relative and absolute: some units in the last place of operands, as the reference rounds after each step.
TOLERANCE = {"float16": (2e-3, 1e-2), "bfloat16": (1.6e-2, 8e-2)}

# From opset 21 on there is a scale per channel, not per group.
INVALID = {("GroupNormalization(float32[2, 4, 3, 3],float32[2],float32[2]) num_groups=2", 21)}


def outcome_of(core: Core, case: Case, version: int) -> str:
    proto = case.model(version)
    if len(core.query_model(core.read_model(proto), "CPU")) < len(proto.graph.node):
        return "refused"
    arrays = [np.asarray(value) for value in case.feeds().values()]
    wanted = run_on_template(proto, arrays)
    for position, array in enumerate(wanted):
        # Stated, so that compiling needs no shape inference.
        name, dtype = proto.graph.output[position].name, helper.np_dtype_to_tensor_dtype(array.dtype)
        proto.graph.output[position].CopyFrom(helper.make_tensor_value_info(name, dtype, array.shape))
    try:
        # The runner itself: a request holds results against the types stated.
        found = core.compile_model(core.read_model(proto), "CPU").create_runner().run(arrays)
    except HeteroError as error:
        # Shapes that only planning sees: onnxruntime refuses these as well.
        is_refusal = case.op_type in ("FeatureVectorizer", "Split") and "does not fit" in str(error)
        return "refused" if is_refusal else f"error: {error}"
    for position, expected in enumerate(wanted):
        text = difference(found[position], expected, *TOLERANCE.get(str(expected.dtype), (1e-4, 1e-5)))
        if text:
            return f"output {position}: {text}"
    return "same"


PARTS = 8  # of all cases, which take longer together than a test may


@pytest.mark.slow
@pytest.mark.parametrize("part", [None, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(PARTS))])
def test_operators_agree_with_the_reference(part: int | None) -> None:
    """The cases that tests/devices/template/test_against_onnxruntime.py holds TEMPLATE to."""
    core = Core()
    outcomes: dict[tuple[str, int], str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference divides by zero and overflows where the cases ask for it
        chosen = models(NEWEST_OPSET, part is not None)
        for case, version in chosen if part is None else itertools.islice(chosen, part, None, PARTS):
            if str(case) in REFERENCE_IS_WRONG or (str(case), version) in INVALID:
                continue
            if case.op_type == "LinearClassifier" and case.attributes.get("post_transform") == "PROBIT":
                continue  # TEMPLATE compares scores after PROBIT, which are NaN; onnxruntime those before
            outcomes[str(case), version] = outcome_of(core, case, version)
    assert not {key: text for key, text in outcomes.items() if text not in ("same", "refused")}
    assert Counter(outcomes.values())["same"] > (800 if part is None else 6500 / PARTS)


@pytest.mark.parametrize("opset", [6, 7, 16])
@pytest.mark.parametrize("width", [3, 4])
def test_slopes_are_per_channel_up_to_opset_6_alone(opset: int, width: int) -> None:
    """A vector as long as there are channels, whether or not the last axis is as long too."""
    x, slope = -np.ones((1, 3, 2, width), np.float32), np.float32([1, 2, 3])
    feeds = {"x": x, "slope": slope}
    inputs = [onnx.helper.make_tensor_value_info(name, 1, array.shape) for name, array in feeds.items()]
    output = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("PRelu", list(feeds), ["y"])], "slopes", inputs, [output])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    for device in ("CPU", "TEMPLATE"):
        if opset > 6 and width != 3:
            with pytest.raises(hetero.HeteroError):
                hetero.compile(proto, device)(feeds)
            continue
        found = hetero.compile(proto, device)(feeds)["y"]
        expected = x * (slope[:, None, None] if opset == 6 else slope)
        np.testing.assert_array_equal(found, expected, err_msg=device)


@pytest.mark.parametrize(("opset", "attributes", "taken"), [(6, {}, False), (6, {"is_test": 1}, True), (7, {}, True)])
def test_statistics_of_the_batch_are_left_to_others(opset: int, attributes: dict[str, int], taken: bool) -> None:
    """Up to opset 6 a BatchNormalization normalizes by the batch unless it says that it does not."""
    x = np.random.default_rng(1).random((2, 3, 4), np.float32)
    feeds = {"x": x, **{name: np.float32([1, 2, 3]) for name in ("scale", "bias", "mean", "var")}}
    inputs = [onnx.helper.make_tensor_value_info(name, 1, array.shape) for name, array in feeds.items()]
    output = onnx.helper.make_tensor_value_info("y", 1, x.shape)
    node = onnx.helper.make_node("BatchNormalization", list(feeds), ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "norm", inputs, [output])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    core = Core()
    assert bool(core.query_model(core.read_model(proto), "CPU")) == taken
    found, expected = (hetero.compile(proto, device)(feeds)["y"] for device in ("HETERO:CPU,TEMPLATE", "TEMPLATE"))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def _batch_norm(shape: tuple[int, ...], statistics: dict[str, np.ndarray], **attributes: float) -> onnx.ModelProto:
    """A BatchNormalization of opset 15 whose statistics are constants, with running statistics in training mode."""
    outputs = ["y", "m", "v"] if attributes.get("training_mode") else ["y"]
    node = onnx.helper.make_node("BatchNormalization", ["x", *statistics], outputs, **attributes)
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in statistics.items()]
    graph = onnx.helper.make_graph(
        [node],
        "norm",
        [onnx.helper.make_tensor_value_info("x", 1, shape)],
        [onnx.helper.make_tensor_value_info(name, 1, None) for name in outputs],
        initializers,
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize(
    "shape", [(7, 5), (1, 5), (0, 5), (2, 5, 1), (300, 5, 33), (2, 5, 40, 41), (1, 5, 0, 2), (1, 5, 1, 3, 9)]
)
def test_batch_norm_with_constant_statistics(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    names = ("scale", "bias", "mean", "var")
    statistics = {name: (rng.random(5, np.float32) + (0.1 if name == "var" else -0.5)).astype("f") for name in names}
    x = rng.standard_normal(shape, np.float32)
    proto = _batch_norm(shape, statistics, epsilon=0.01)
    column = (5, *[1] * (len(shape) - 2))
    gain, shift, mean, variance = (array.astype(np.float64).reshape(column) for array in statistics.values())
    expected = (x - mean) / np.sqrt(variance + 0.01) * gain + shift
    np.testing.assert_allclose(hetero.compile(proto, "CPU")({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("copies", [1, 300])
@pytest.mark.parametrize(
    ("name", "extreme"),
    [("var", 0.0), ("scale", np.inf), ("mean", 3e38), ("mean", 1e30), ("bias", np.nan), ("var", -1)],
)
def test_batch_norm_with_extreme_statistics(name: str, extreme: float, copies: int) -> None:
    """No sum overflows whose result is finite."""
    statistics = {key: np.float32([1, 2, 3]) for key in ("scale", "bias", "mean", "var")}
    statistics[name] = np.float32([1, extreme, 2])
    x = np.tile(np.float32([[1, 2, 3], [np.inf, 3e38, -np.inf], [np.nan, -2, 0], [0, 3.4e38, 1]]), (copies, 1))
    proto = _batch_norm(x.shape, statistics, epsilon=0.0)
    with np.errstate(all="ignore"):
        gain, shift, mean, variance = (array.astype(np.float64) for array in statistics.values())
        expected = ((x - mean) * (gain / np.sqrt(variance)) + shift).astype(np.float32)
    np.testing.assert_allclose(hetero.compile(proto, "CPU")({"x": x})["y"], expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 3), (1, 3, 10), (2, 3, 5, 7)])
@pytest.mark.parametrize("momentum", [0.9, 1.0, 0.0])
def test_batch_norm_by_the_batch(shape: tuple[int, ...], momentum: float) -> None:
    rng = np.random.default_rng(4)
    statistics = {name: rng.random(3, np.float32) for name in ("scale", "bias", "mean", "var")}
    x = rng.standard_normal(shape, np.float32) * 3 + 1
    proto = _batch_norm(shape, statistics, training_mode=1, momentum=momentum)
    expected = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})
    found = hetero.compile(proto, "CPU")({"x": x})
    for name, array in zip(("y", "m", "v"), expected, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("batch", [1, 2, 17])
def test_a_cache_is_written_from_its_start_without_indices(mode: str, batch: int) -> None:
    """Each batch is written at 0, not only the first one."""
    cache = np.arange(batch * 5 * 3, dtype=np.float32).reshape(batch, 5, 3)
    update = -np.ones((batch, 2, 3), np.float32)
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("cache", "update")]
    node = helper.make_node("TensorScatter", ["cache", "update"], ["y"], axis=1, mode=mode)
    graph = helper.make_graph(
        [node], "cache", ports, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    expected = cache.copy()
    expected[:, :2] = -1
    core = Core()
    found = core.compile_model(core.read_model(proto), "CPU")({"cache": cache, "update": update})["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("size", [1, 5, 40])
def test_batch_norm_of_one_axis_has_one_channel(size: int, constant: bool) -> None:
    x = np.random.default_rng(0).standard_normal(size, np.float32)
    statistics = {name: np.array([value], np.float32) for name, value in zip("sbmv", (2, 1, 0.5, 4), strict=True)}
    ports = "float[N] x" + ("" if constant else ", float[1] s, float[1] b, float[1] m, float[1] v")
    known = "<float[1] s = {2}, float[1] b = {1}, float[1] m = {0.5}, float[1] v = {4}>" if constant else ""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 15]>
        g ({ports}) => (float[N] y) {known} {{ y = BatchNormalization (x, s, b, m, v) }}"""
    )
    feeds = {"x": x} if constant else {"x": x, **statistics}
    expected = (x - 0.5) / np.sqrt(np.float32(4 + 1e-5)) * 2 + 1
    for device in ("CPU", "TEMPLATE"):
        np.testing.assert_allclose(Core().compile_model(proto, device)(feeds)["y"], expected, atol=1e-6)
