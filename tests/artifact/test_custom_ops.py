"""Exported and cached models with custom operators: whoever loads them must have the same ones."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetero
from custom_operators import DEVICES, callback, core_with, model_of

X = np.linspace(-1, 1, 6, dtype=np.float32)
TEXT = """g (float[6] x, bool c) => (float[6] y)
{
    a = Relu(x)
    b = If (c) <then_branch = t () => (float[6] p) { p = com.acme.Shift(a) },
                else_branch = e () => (float[6] q) { q = com.acme.Shift(x) }>
    y = Neg(b)
}"""
FEEDS = {"x": X, "c": np.array(False)}


def shift(by: float, version: str, **stated: Any) -> hetero.CustomOp:
    return hetero.CustomOp(
        "Shift",
        "com.acme",
        function=lambda x: x + np.float32(by),
        shape_rule=lambda x: x,
        version=version,
        **stated,
    )


def c_shift(by: float, version: str) -> hetero.CustomOp:
    return hetero.CustomOp(
        "Shift",
        "com.acme",
        c_function=callback(lambda x: x + np.float32(by)),
        shape_rule=lambda x: x,
        version=version,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [shift, c_shift])
def test_export_and_import(make: Callable[..., hetero.CustomOp], device: str) -> None:
    core = core_with(make(2, "1"))
    compiled = core.compile_model(core.read_model(model_of(TEXT)), device)
    compiled({"x": X, "c": np.array(True)})
    stream = io.BytesIO()
    compiled.export_model(stream)
    stored = stream.getvalue()
    again = core_with(make(2, "1")).import_model(stored)
    np.testing.assert_array_equal(again(FEEDS)[0], -(X + 2))
    with pytest.raises(hetero.ArtifactError, match=r"requires the custom operator com.acme::Shift, version '1'.*add_"):
        hetero.Core().import_model(stored)
    with pytest.raises(hetero.WrongVersion, match="since 1, version '1', but this Core has it since 1, version '2'"):
        core_with(make(2, "2")).import_model(stored)


def test_of_another_since_version() -> None:
    core = core_with(shift(2, "1"))
    stream = io.BytesIO()
    core.compile_model(core.read_model(model_of(TEXT)), "CPU").export_model(stream)
    with pytest.raises(hetero.ArtifactError, match="exists since version 3"):
        core_with(shift(2, "1", since_version=3)).import_model(stream.getvalue())


def test_what_is_not_used_is_not_asked_for() -> None:
    other = hetero.CustomOp("Other", "com.acme", function=lambda x: x)
    core = core_with(shift(2, "1"), other)
    stream = io.BytesIO()
    core.compile_model(core.read_model(model_of(TEXT)), "CPU").export_model(stream)
    np.testing.assert_array_equal(core_with(shift(2, "1")).import_model(stream.getvalue())(FEEDS)[0], -(X + 2))


@pytest.mark.parametrize("device", DEVICES)
def test_cache(device: str, tmp_path: Path) -> None:
    """Another version of the operator makes another entry, and the first is found again."""
    found = []
    for by, version in ((2, "1"), (3, "2"), (2, "1")):
        core = core_with(shift(by, version))
        compiled = core.compile_model(core.read_model(model_of(TEXT)), device, {"CACHE_DIR": str(tmp_path)})
        found.append(compiled.get_property("LOADED_FROM_CACHE"))
        np.testing.assert_array_equal(compiled(FEEDS)[0], -(X + np.float32(by)))
    assert found == [False, False, True]
    assert len(list(tmp_path.iterdir())) == 2


def test_where_an_operator_is_makes_another_entry(tmp_path: Path) -> None:
    """The same model for the same devices, which now goes to the other one."""
    for device in ("CPU", "TEMPLATE"):
        core = core_with(shift(2, "1"), device=device)
        model = core.read_model(model_of("g (float[6] x) => (float[6] y) { y = com.acme.Shift(x) }"))
        compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", {"CACHE_DIR": str(tmp_path)})
        assert not compiled.get_property("LOADED_FROM_CACHE")
        assert compiled.get_property("EXECUTION_DEVICES") == (device,)


def test_without_a_version_nothing_is_kept(tmp_path: Path) -> None:
    core = core_with(shift(2, ""))
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="cannot store .* custom operator com.acme::Shift has no version"):
            compiled = core.compile_model(core.read_model(model_of(TEXT)), "CPU", {"CACHE_DIR": str(tmp_path)})
        assert not compiled.get_property("LOADED_FROM_CACHE")
    assert list(tmp_path.iterdir()) == []
    plain = model_of("g (float[6] x) => (float[6] y) { y = Neg(x) }", '<ir_version: 8, opset_import: ["": 17]>\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        core.compile_model(core.read_model(plain), "CPU", {"CACHE_DIR": str(tmp_path)})
    assert len(list(tmp_path.iterdir())) == 1
