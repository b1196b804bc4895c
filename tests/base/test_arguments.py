"""The errors for calls of the public API whose arguments do not fit the parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import hetero
from hetero.base.arguments import explain_arguments

CORE = hetero.Core()


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda: CORE.set_property("CPU", "PERF_COUNT", True), "pass properties as a mapping: {'PERF_COUNT': True}"),
        (lambda: CORE.set_property("CPU", {}, {}), "expected (device, values=None, **more)"),
        (lambda: CORE.set_property(PERF_COUNT=True), "expected (device, values=None, **more)"),
        (lambda: CORE.compile_model("a", "CPU", PERF_COUNT=True), "as a mapping: {'PERF_COUNT': True}"),
        (lambda: CORE.compile_model("a", "CPU", "NUM_STREAMS", 2), "as a mapping: {'NUM_STREAMS': 2}"),
        (lambda: CORE.plan("a", "CPU", NUM_STREAMS=2, PERF_COUNT=True, x=1), "{'NUM_STREAMS': 2, 'PERF_COUNT': True}"),
        (lambda: CORE.plan("a"), "expected (model, device, config=None, *, pins=None, max_memory=None, shapes=None)"),
        (lambda: CORE.query_model("a", "CPU", pins={}), "expected (model, device, config=None, *, shapes=None)"),
        (lambda: CORE.import_model("a", NUM_STREAMS=2), "as a mapping: {'NUM_STREAMS': 2}"),
        (CORE.read_model, "expected (source, *, folder=None, follow_links=False, external_data=None)"),
        (lambda: CORE.get_property("NUM_STREAMS"), "expected (device, name)"),
        (lambda: CORE.create_context("CPU", NUM_STREAMS=2), "expected (device, parameters=None)"),
        (lambda: hetero.compile("a", "CPU", NUM_STREAMS=2), "as a mapping: {'NUM_STREAMS': 2}"),
        (hetero.load, "expected (source, device=None, config=None)"),
        (
            lambda: CORE.query_model(model="a", device_name="CPU"),
            "device_name is device here; expected (model, device, config=None, *, shapes=None)",
        ),
        (
            lambda: CORE.read_model(model="a", weights=b""),
            "model is source here; weights is external_data here; expected (source, *, folder=None, "
            "follow_links=False, external_data=None)",
        ),
        (
            lambda: hetero.load("a", providers=["CPUExecutionProvider"]),
            "providers is device here; expected (source, device=None, config=None)",
        ),
        (lambda: hetero.split("a", "b"), "expected (model, plan, folder, *, external_above=None)"),
    ],
)
def test_advice(call: Callable[[], Any], advice: str) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    begins = advice.startswith(("expected", "pass", "device_name is", "model is", "providers is"))
    assert str(raised.value).endswith(f"; {advice}" if begins else advice)


def test_errors_in_the_function_stay_as_they_are() -> None:
    @explain_arguments
    def function(value: Any, config: object = None) -> int:
        return 1 + value if value != "call" else function()

    assert function(1) == 2
    assert str(inspect.signature(function)) == "(value: 'Any', config: 'object' = None) -> 'int'"
    for value, words in (("text", "unsupported operand"), (None, "unsupported operand")):
        with pytest.raises(TypeError, match=words) as raised:
            function(value)
        assert "expected (" not in str(raised.value)
    with pytest.raises(TypeError) as raised:
        function("call")
    assert str(raised.value).count("expected (") == 1


def test_slips_that_are_named() -> None:
    """Arguments that fit the parameters, but are others."""
    for call, words in (
        (
            lambda: CORE.set_property("PERF_COUNT", True),
            r"device first, .* core.set_property\('CPU', {'PERF_COUNT': Tru",
        ),
        (
            lambda: CORE.set_property("CPU", config={"NUM_STREAMS": 2}),
            r"write core.set_property\('CPU', {'NUM_STREAMS': 2}",
        ),
        (lambda: CORE.get_property("CPU", ["NUM_STREAMS"]), r"the name of a property, found \['NUM_STREAMS'\]"),
        (lambda: CORE.import_model("a", {"NUM_STREAMS": 2}), r"pass properties as config={…}"),
        (lambda: CORE.plan("HETERO:FPGA,CPU", CORE), "a device is named by a string"),
    ):
        with pytest.raises(hetero.PropertyError, match=words):
            call()
