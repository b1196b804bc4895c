"""The kernel `encode`: a dictionary, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero import InferenceError, _kernels

pytestmark = pytest.mark.spread(2)

TYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@pytest.fixture(scope="module")
def team() -> _kernels.Team:
    return _kernels.Team(2)


def keys_of(dtype: str, count: int) -> np.ndarray[Any, Any]:
    """Increasing, with gaps, and with the ends of the type."""
    if dtype.startswith("float"):
        numbers = [-np.inf, np.inf, 0.0, 2.5, 2.0**-149, -2.5, *np.arange(5, 200) * 0.75]
    else:
        limits = np.iinfo(dtype)
        numbers = [limits.max, limits.min, 3, 4, 5, 7, *range(9, 120, 2)]
    return np.unique(np.array(numbers[:count], dtype))


@pytest.mark.parametrize("variant", _kernels.variants("encode"))
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 100])
@pytest.mark.parametrize("dtype", TYPES)
def test_encode(team: _kernels.Team, dtype: str, count: int, variant: str) -> None:
    keys = keys_of(dtype, count)
    x = np.concatenate([keys, keys + np.array(1, dtype), keys - np.array(1, dtype), np.array([0, 1, 6], dtype)])
    if dtype.startswith("float"):
        x = np.concatenate([x, np.nextafter(keys, np.array(np.inf, dtype)), np.array([-0.0, np.nan, -np.nan], dtype)])
    for result in ("int64", "float32", "uint8", "int16"):
        values = np.arange(len(keys) + 2).astype(result) + np.array(3, result)
        table = dict(zip(keys.tolist(), values.tolist(), strict=False))
        wanted = [values[-1 if item != item else -2] if table.get(item) is None else table[item] for item in x.tolist()]
        for some, times in ((x, 1), (x[:1], 1), (x[:0], 1), (x, 5000)):
            for threads in (None, team):
                given = [np.tile(some, times), keys, values]
                (found,) = _kernels.call(
                    "encode", given, [(given[0].shape, np.dtype(result))], variant=variant, team=threads
                )
                assert np.array_equal(found, np.tile(np.array(wanted[: len(some)], result), times))


@pytest.mark.parametrize("values", [np.zeros(4, np.int64), np.zeros(6, np.int64), np.zeros(5, np.float32)])
def test_operands_that_do_not_fit(values: np.ndarray[Any, Any]) -> None:
    operands = [np.zeros(2, np.int64), np.arange(3), values]
    with pytest.raises(InferenceError):
        _kernels.call("encode", operands, [((2,), np.dtype("int64"))])
