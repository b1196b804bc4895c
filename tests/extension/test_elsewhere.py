"""Custom operators in worker processes: those whose code another process can find."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetero
from custom_operators import build, callback, core_with, model_of, peak, peak_shapes, scale, scale_shape
from hetero.extension.elsewhere import OpDescription, describe, made

PROCESS = {"ISOLATION": "PROCESS"}
PEAK = "g (float[3, 5] x) => (float[3] y, int64[3] at) { n = Neg(x) y, at = com.acme.Peak(n) }"
SCALE = "g (float[n] x) => (float[n] y) { s = com.acme.Scale<factor = 3.0>(x) y = Neg(s) }"


def peak_op(**functions: Any) -> hetero.CustomOp:
    return hetero.CustomOp(
        "Peak",
        "com.acme",
        **{"shape_rule": peak_shapes, **functions},
        output_dtypes=(0, np.int64),
        num_inputs=(1, 2),
        input_dtypes=("float32", None),
        version="1",
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    found = build(tmp_path_factory.mktemp("library"))
    if found is None:
        pytest.skip("there is no C compiler")
    return found


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE"])
def test_python_functions_are_found_by_name(device: str) -> None:
    core = core_with(peak_op(function=peak))
    model = core.read_model(model_of(PEAK))
    pins = {"n": "TEMPLATE"} if device.startswith("HETERO") else None
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    here, there = core.compile_model(model, device, pins=pins), core.compile_model(model, device, PROCESS, pins=pins)
    for name, expected in here(x).items():
        np.testing.assert_array_equal(there(x)[name], expected)


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
def test_c_functions_are_found_in_their_library(library: ctypes.CDLL, device: str) -> None:
    core = core_with(hetero.CustomOp("Scale", "com.acme", c_function=library.scale, shape_rule=scale_shape))
    compiled = core.compile_model(core.read_model(model_of(SCALE)), device, {**PROCESS, "WORKER_RETRIES": 1})
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(compiled(x)[0], -3 * x)
    os.kill(compiled.process, signal.SIGKILL)
    np.testing.assert_array_equal(compiled(x)[0], -3 * x)


def test_what_is_code_of_this_process_is_refused(library: ctypes.CDLL) -> None:
    text = "g (float[n] x) => (float[n] y) { y = com.acme.Scale(x) }"
    for functions, why in (
        ({"function": lambda x: x}, "its function .*lambda.* exists only in this process"),
        ({"function": functools.partial(scale, factor=2.0)}, "its function .* exists only in this process"),
        ({"function": scale, "shape_rule": lambda x: x}, "its shape_rule .*lambda"),
        ({"function": scale, "output_dtypes": (lambda: np.float32,)}, "its output_dtypes .*lambda"),
        ({"c_function": callback(scale), "shape_rule": scale_shape}, "its c_function is an address in this process"),
        ({"c_function": library.scale, "shape_rule": scale_shape, "user_data": 8}, "its user_data is an address"),
    ):
        core = core_with(hetero.CustomOp("Scale", "com.acme", **functions))
        with pytest.raises(
            hetero.NotSupported, match=f"com.acme::Scale cannot be used in another process: {why}"
        ) as caught:
            core.compile_model(core.read_model(model_of(text)), "CPU", PROCESS)
        assert "without ISOLATION=PROCESS" in str(caught.value)


def test_a_module_that_workers_cannot_import_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("nobody_has_this")
    exec("def same(x, factor):\n    return x", module.__dict__)
    monkeypatch.setitem(sys.modules, "nobody_has_this", module)
    core = core_with(hetero.CustomOp("Scale", "com.acme", function=module.same))
    with pytest.raises(hetero.NotSupported, match="another process cannot import it: No module named 'nobody_has_th"):
        core.compile_model(core.read_model(model_of(SCALE)), "CPU", PROCESS)


def test_modules_that_are_found_since_the_first_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_with()
    core.compile_model(core.read_model(model_of("g (float[n] x) => (float[n] y) { y = Neg(x) }")), "CPU", PROCESS)
    (tmp_path / "late_operators.py").write_text("def twice(x, factor):\n    return x * 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    import late_operators  # type: ignore[import-not-found]

    core = core_with(hetero.CustomOp("Scale", "com.acme", function=late_operators.twice))
    compiled = core.compile_model(core.read_model(model_of(SCALE)), "CPU", PROCESS)
    np.testing.assert_array_equal(compiled(np.ones(2, np.float32))[0], [-2, -2])


def test_operators_that_a_model_does_not_need_do_not_matter() -> None:
    core = core_with(
        peak_op(function=peak),
        hetero.CustomOp("Other", "com.acme", function=lambda x: x),
        hetero.CustomOp("Other", "org.other", function=lambda x: x),
    )
    compiled = core.compile_model(core.read_model(model_of(PEAK)), "CPU", PROCESS)
    assert compiled(-np.eye(3, 5, dtype=np.float32))["at"].tolist() == [0, 1, 2]


def test_a_description_makes_the_same_operator() -> None:
    import msgspec

    op = peak_op(function=peak)
    again = made(msgspec.msgpack.decode(msgspec.msgpack.encode(describe(op)), type=OpDescription))
    for name in hetero.CustomOp.__slots__:
        assert getattr(again, name) == getattr(op, name), name
