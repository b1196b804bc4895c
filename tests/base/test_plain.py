"""Values of other libraries that callers pass where Python values are expected."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.base.plain import stated_value
from hetero.base.properties import PROPERTIES, check_config
from model_zoo import make_model


class Mode(enum.Enum):
    THROUGHPUT = 2
    ACCURACY = 1


class Number:
    def to_integer(self) -> int:
        return 2


class Text:
    def to_string(self) -> str:
        return "f16"


class OVAny:
    def __init__(self, value: object) -> None:
        self.value = value


class NoMember:
    """Has the name of a member, but is none."""

    name = "THROUGHPUT"
    value = 2


class Lying(NoMember):
    __members__ = {"THROUGHPUT": Mode.THROUGHPUT}  # noqa: RUF012


class WrongNumber:
    def to_integer(self) -> str:
        return "2"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PERFORMANCE_HINT", Mode.THROUGHPUT, "THROUGHPUT"),
        ("PERFORMANCE_HINT", OVAny(Mode.THROUGHPUT), "THROUGHPUT"),
        ("EXECUTION_MODE_HINT", Mode.ACCURACY, "ACCURACY"),
        ("INFERENCE_PRECISION_HINT", Text(), "f16"),
        ("NUM_STREAMS", Number(), 2),
        ("NUM_STREAMS", OVAny(Number()), 2),
        ("NUM_STREAMS", OVAny(np.int64(2)), 2),
        ("MODEL_DISTRIBUTION_POLICY", {"PIPELINE_PARALLEL"}, "PIPELINE_PARALLEL"),
        ("MODEL_DISTRIBUTION_POLICY", OVAny({OVAny("PIPELINE_PARALLEL")}), "PIPELINE_PARALLEL"),
        ("MODEL_DISTRIBUTION_POLICY", set(), ""),
        ("PERF_COUNT", OVAny(True), True),
        ("PERF_COUNT", 1, True),
        ("PERF_COUNT", np.int64(0), False),
        ("PERF_COUNT", "1", True),
        ("PERF_COUNT", "on", True),
        ("PERF_COUNT", "OFF", False),
        ("PERF_COUNT", "0", False),
        ("PERF_COUNT", OVAny("YES"), True),
    ],
)
def test_values(name: str, value: object, expected: object) -> None:
    found = PROPERTIES[name].check(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PERFORMANCE_HINT", NoMember()),
        ("PERFORMANCE_HINT", Lying()),
        ("PERFORMANCE_HINT", Mode),
        ("PERFORMANCE_HINT", Mode.ACCURACY),
        ("PERFORMANCE_HINT", 2),
        ("PERFORMANCE_HINT", {"LATENCY", "THROUGHPUT"}),
        ("MODEL_DISTRIBUTION_POLICY", {"TENSOR_PARALLEL"}),
        ("NUM_STREAMS", {2}),
        ("NUM_STREAMS", Mode.THROUGHPUT),  # its value is a number, but it is not meant as one
        ("NUM_STREAMS", WrongNumber()),
        ("NUM_STREAMS", Number),  # the class
        ("NUM_STREAMS", OVAny(True)),
        ("NUM_STREAMS", 2.0),
        ("INFERENCE_PRECISION_HINT", Text),
        ("PERF_COUNT", 2),
        ("PERF_COUNT", 1.0),
        ("PERF_COUNT", Number()),
        ("PERF_COUNT", OVAny(None)),
    ],
)
def test_near_misses(name: str, value: object) -> None:
    with pytest.raises(hetero.PropertyError, match=f"property {name}: expected"):
        PROPERTIES[name].check(value)


@pytest.mark.parametrize("value", [None, 1, "a", (), {"name": 1}, len, Lying()])
def test_other_values_are_unchanged(value: object) -> None:
    assert stated_value(value) is value


@pytest.mark.parametrize("config", [("NUM_STREAMS", 2), [("NUM_STREAMS", 2)], {"NUM_STREAMS": 2}])
def test_pairs(config: Any) -> None:
    assert check_config(config) == {"NUM_STREAMS": 2}
    assert check_config([]) == check_config({}) == {}


@pytest.mark.parametrize(
    "config", [("NUM_STREAMS",), ["AB", "CD"], [["NUM_STREAMS", 2]], (1, 2), "AB", (("NUM_STREAMS", 2),), [("A", 1, 2)]]
)
def test_other_collections_are_rejected(config: Any) -> None:
    with pytest.raises(hetero.PropertyError, match="expected a mapping from properties to values"):
        check_config(config)


def test_a_property_in_two_pairs() -> None:
    with pytest.raises(hetero.PropertyError, match="a property has two values"):
        check_config([("PERF_COUNT", True), ("PERF_COUNT", False)])


def test_values_of_openvino() -> None:
    """What its functions return, for one device and for a list."""
    ov = pytest.importorskip("openvino")
    properties = pytest.importorskip("openvino.properties")
    hints, streams, device = properties.hint, properties.streams, properties.device
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    core = hetero.Core()
    config = {
        hints.performance_mode: hints.PerformanceMode.THROUGHPUT,
        hints.execution_mode: hints.ExecutionMode.ACCURACY,
        hints.inference_precision: ov.Type.f32,
        hints.model_priority: hints.Priority.HIGH,
        streams.num: streams.Num(2),
    }
    for compiled in (
        core.compile_model(model, "CPU", config),
        core.compile_model(model, "CPU", [name(value) for name, value in config.items()]),
        core.compile_model(model, "HETERO:CPU,TEMPLATE", [device.properties({"CPU": config})]).submodels[0],
    ):
        assert compiled.get_property(hints.performance_mode) == "THROUGHPUT"
        assert compiled.get_property("INFERENCE_PRECISION_HINT") == "f32"
        assert compiled.get_property("MODEL_PRIORITY") == "HIGH"
        assert compiled.get_property("NUM_STREAMS") == 2
    core.set_property("CPU", properties.enable_profiling(True))
    assert core.get_property("CPU", properties.enable_profiling) is True
    with pytest.raises(hetero.PropertyError, match="property NUM_STREAMS: found -1, expected 0 to"):
        core.set_property("CPU", streams.num(streams.Num.AUTO))
    with pytest.raises(hetero.PropertyError, match="to use all devices of a list"):
        core.set_property("CPU", hints.performance_mode(hints.PerformanceMode.CUMULATIVE_THROUGHPUT))
