"""The kernel `gather_nbits`: NumPy's indexing of a dequantized table, in every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("gather_nbits")
F32 = np.dtype(np.float32)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["int8", "uint8", "halves"])
@pytest.mark.parametrize("shape", [(7, 40), (5, 3, 66), (4, 300), (3, 2)])
@pytest.mark.parametrize("block", [2, 16, 128])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_rows_are_dequantized(variant: str, kind: str, shape: tuple[int, ...], block: int, has_zeros: bool) -> None:
    rng = np.random.default_rng(0)
    blocks = -(-shape[-1] // block)
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "halves": (0, 16)}[kind]
    levels, zeros = (rng.integers(low, high, (*shape[:-1], size)) for size in (shape[-1], blocks))
    scales = rng.standard_normal((*shape[:-1], blocks), np.float32)
    scales.flat[:2] = np.nan, -np.inf
    indices = rng.integers(-shape[0], shape[0], (2, 5)).astype(rng.choice(["int32", "int64"]))
    default = 0 if kind == "int8" else 3

    def widened(array: np.ndarray) -> np.ndarray:
        return np.repeat(array, block, -1)[..., : shape[-1]]

    with np.errstate(invalid="ignore"):
        table = (levels - widened(zeros if has_zeros else np.full_like(zeros, default))).astype(F32) * widened(scales)

    def stored(array: np.ndarray) -> np.ndarray:
        if kind != "halves":
            return array.astype(kind)
        even = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, array.shape[-1] % 2)])
        return (even[..., ::2] | even[..., 1::2] << 4).astype(np.uint8)

    operands = [stored(levels), indices, scales, stored(zeros) if has_zeros else None]
    ints, result = [4 if kind == "halves" else 8, block, default], ((2, 5, *shape[1:]), F32)
    for team in (None, _kernels.Team(3)):
        (found,) = _kernels.call("gather_nbits", operands, [result], ints, variant=variant, team=team)
        np.testing.assert_array_equal(found, table[indices])


@pytest.mark.parametrize("indices", [[3], [0, -4], [2**40]])
def test_indices_outside_the_table_are_reported(indices: list[int]) -> None:
    operands = [np.zeros((3, 16), np.uint8), np.array(indices), np.zeros((3, 1), F32), None]
    with pytest.raises(InferenceError, match=r"index .* axis 0"):
        _kernels.call("gather_nbits", operands, [((len(indices), 32), F32)], [4, 32, 8])


def test_operands_that_do_not_fit() -> None:
    data, index, scale = np.zeros((3, 16), np.uint8), np.zeros(2, np.int64), np.zeros((3, 1), F32)
    good = [data, index, scale, None], [((2, 32), F32)], [4, 32, 8]
    _kernels.call("gather_nbits", *good)
    for operands, results, ints in (
        ([data, index, np.zeros((3, 2), F32), None], *good[1:]),
        ([data, index, scale, np.zeros((3, 2), np.uint8)], *good[1:]),
        ([data.astype(np.int8), index, scale, None], *good[1:]),
        ([data[0], index, scale, None], *good[1:]),
        (good[0], [((2, 16), F32)], good[2]),
        (*good[:2], [4, 31, 8]),
        (*good[:2], [5, 32, 8]),
        (*good[:2], [4, 32, 256]),
    ):
        with pytest.raises(Exception, match="gather_nbits"):
            _kernels.call("gather_nbits", operands, results, ints)
