"""cast against NumPy, between all types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hetero import _kernels
from kernel_arrays import FLOATS, NUMERIC, random_array

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("cast")


@pytest.mark.parametrize("source", [*NUMERIC, "bool", "float16", "bfloat16"])
def test_casts_agree_with_numpy(source: str) -> None:
    rng = np.random.default_rng(3)
    source_dtype = np.dtype(ml_dtypes.bfloat16 if source == "bfloat16" else source)
    if source_dtype.kind in "fV":
        x = (rng.standard_normal(999) * 100).astype(source_dtype)
    else:
        x = random_array(rng, (999,), source)
    for target in [*NUMERIC, "bool", "float16", "bfloat16"]:
        target_dtype = np.dtype(ml_dtypes.bfloat16 if target == "bfloat16" else target)
        with np.errstate(all="ignore"):
            through = x.astype(np.float32) if {source, target} & {"float16", "bfloat16"} else x
            if through.dtype.kind == "f" and target_dtype.kind in "iu":
                expected = through.astype(np.int64).astype(target_dtype)  # direct conversion is undefined out of range
            else:
                expected = through.astype(target_dtype)
        results = [_kernels.call("cast", [x], [(x.shape, target_dtype)], variant=v)[0] for v in VARIANTS]
        for result in results:
            np.testing.assert_array_equal(result, expected, err_msg=f"{source} to {target}")


@pytest.mark.parametrize("source", FLOATS)
def test_floats_beyond_an_integers_range_give_the_least(source: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, 2.0**63, 2.0**64], source)
    assert set(_kernels.call("cast", [x[:6]], [((6,), "int32")])[0].tolist()) == {-(2**31)}
    assert set(_kernels.call("cast", [x[[0, 1, 2, 3, 4, 6]]], [((6,), "int64")])[0].tolist()) == {-(2**63)}
    assert _kernels.call("cast", [x[6:7]], [((1,), "uint64")])[0].tolist() == [2**63]


def test_every_half_survives_the_way_through_float() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        half = bits.view(dtype)
        wide = _kernels.call("cast", [half], [(half.shape, "float32")])[0]
        with np.errstate(invalid="ignore"):  # NumPy on ARM warns of signaling NaN
            expected = half.astype(np.float32)
        np.testing.assert_array_equal(wide, expected)
        back = _kernels.call("cast", [wide], [(half.shape, dtype)])[0]
        number = ~np.isnan(wide)
        np.testing.assert_array_equal(back.view(np.uint16)[number], bits[number])
    x = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(_kernels.call("cast", [x], [(x.shape, "float16")])[0], x.astype(np.float16))
