"""Compiled models in ``with``."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hetero

X = np.float32([[1, -2, 3], [-4, 5, 6]])


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:FPGA,CPU", "MULTI:CPU,TEMPLATE", "AUTO:TEMPLATE,CPU"])
def test_with(core: hetero.Core, diamond: hetero.Model, device: str) -> None:
    with core.compile_model(diamond, device) as compiled:
        expected = compiled(X)["y"]
        request = compiled.create_infer_request()
        pooled = weakref.ref(compiled._idle[0])
    gc.collect()
    assert pooled() is None
    for use in (lambda: compiled(X), compiled.create_infer_request, lambda: compiled.submit(X)):
        with pytest.raises(hetero.InferenceError, match="the compiled model is closed"):
            use()
    np.testing.assert_allclose(request.infer(X)["y"], expected, rtol=1e-6)  # made before
    assert compiled.inputs
    assert "; closed" in repr(compiled)
    compiled.close()  # again


def test_running_inferences_continue(core: hetero.Core, diamond: hetero.Model) -> None:
    compiled = core.compile_model(diamond, "CPU")
    expected = compiled(X)["y"]
    futures = [compiled.submit(X) for _ in range(8)]
    compiled.close()
    for future in futures:
        np.testing.assert_array_equal(future.result(30)["y"], expected)
    with pytest.raises(hetero.InferenceError, match="closed"):  # no request came back to the model
        compiled(X)


def test_an_error_passes(core: hetero.Core, diamond: hetero.Model) -> None:
    with pytest.raises(ZeroDivisionError), core.compile_model(diamond, "CPU"):
        raise ZeroDivisionError


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_runs_models_is_not_duplicated(
    core: hetero.Core, diamond: hetero.Model, duplicate: Callable[[Any], object]
) -> None:
    compiled = core.compile_model(diamond, "CPU")
    with pytest.raises(TypeError, match="cannot be copied or pickled: share it between threads, or export it"):
        duplicate(compiled)
    with pytest.raises(TypeError, match=r"cannot be copied or pickled: create another one with compiled\.create_infer"):
        duplicate(compiled.create_infer_request())
    with pytest.raises(TypeError, match="a Core cannot be copied or pickled"):
        duplicate(core)
