"""Kernels that add stay within their error bounds on adversarial inputs. `error_bounds.py` takes more of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import error_bounds
import unary_sweep
from error_bounds import KERNELS, Kernel, check
from hetero import _kernels

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize("name", KERNELS)
def test_within_its_bound(name: str, variant: str) -> None:
    used, beyond = check(name, 0, variant)
    assert beyond == []
    assert used > 0.01, "the bound or the inputs are far too lax"


def test_page_states_each_bound() -> None:
    page = PAGE.read_text()
    for name, kernel in KERNELS.items():
        assert f"| {name} | {kernel.text} |" in page
    for name, function in unary_sweep.FUNCTIONS.items():
        absolute = f"{function.absolute:g}" if function.absolute else ""
        assert f"| `{name}` | {function.ulp:g} | {absolute} |" in page


def test_sums_beyond_the_bound_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is summed from its start to its end in float32."""

    def naive(x: error_bounds.Array, operation: int, axis: int, variant: str) -> error_bounds.Array:
        return x.cumsum(axis=axis, dtype=x.dtype).take(-1, axis=axis)

    monkeypatch.setattr(error_bounds, "reduced", naive)
    rows = Kernel("", error_bounds.sums("float32", 1, lambda n: min(n, 270)))
    monkeypatch.setitem(KERNELS, "rows", rows)
    with np.errstate(all="ignore"):
        assert any("equal, 9001, 0" in text for seed in range(5) for text in check("rows", seed, "baseline")[1])
