"""pack_nbits, matmul_nbits and matmul_nbits_bytes against NumPy, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero import _kernels
from hetero._sizes import ask
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("matmul_nbits", "matmul_nbits_bytes", "pack_nbits")
Array = np.ndarray[Any, Any]
SHAPES = [  # m, n, k, block
    (1, 1, 1, 16),
    (1, 16, 32, 32),
    (1, 40, 96, 32),
    (3, 17, 50, 16),
    (5, 33, 128, 64),
    (4, 16, 300, 256),
    (9, 7, 7, 8),
    (70, 20, 40, 24),
    (7, 100, 264, 32),
    (8, 100, 300, 32),
    (13, 65, 520, 24),
    (65, 49, 257, 256),
    (8, 5, 0, 16),
    (2, 5, 0, 16),
    (0, 5, 16, 16),
]


def packed_bits(levels: Array, bits: int) -> Array:
    """Rows of levels as bytes, the lowest bits of a byte first."""
    if bits == 8:
        return levels
    padded = np.pad(levels, [(0, 0), (0, levels.shape[1] % 2)])
    return padded[:, ::2] | padded[:, 1::2] << 4


class Weights:
    """Random weights [n][k] and their operands."""

    def __init__(self, n: int, k: int, bits: int, block: int, with_zeros: bool, seed: int = 0) -> None:
        random = np.random.default_rng([seed, n, k, bits, block])
        self.n, self.k, self.bits, self.block = n, k, bits, block
        self.blocks = -(-k // block)
        self.levels = random.integers(0, 2**bits, (n, self.blocks * block)).astype(np.uint8)
        self.scales = random.standard_normal((n, self.blocks)).astype(np.float32)
        self.zeros = random.integers(0, 2**bits, (n, self.blocks)).astype(np.uint8) if with_zeros else None
        self.wide_zeros = np.full((n, self.blocks), 2 ** (bits - 1)) if self.zeros is None else self.zeros.astype(int)

    @property
    def ints(self) -> list[int]:
        return [self.n, self.k, self.bits, self.block, int(self.zeros is not None)]

    def packed(self, variant: str) -> Array:
        zeros = None if self.zeros is None else packed_bits(self.zeros, self.bits)
        size = ask("nbits_bytes", self.k, self.n, *self.ints[2:])
        operands = [packed_bits(self.levels, self.bits).reshape(-1), self.scales, zeros]
        return _kernels.call("pack_nbits", operands, [((size,), np.uint8)], [0, *self.ints], variant=variant)[0]

    def matrix(self) -> Array:
        """[k][n] in float64."""
        levels = self.levels.reshape(self.n, self.blocks, self.block).astype(np.float64)
        wide = (levels - self.wide_zeros[:, :, None]) * self.scales[:, :, None]
        return wide.reshape(self.n, -1)[:, : self.k].T


def product(x: Array, weights: Weights, variant: str, kernel: str, bias: Array | None = None, rows: int = 7) -> Array:
    """``rows``: those that matmul_nbits_bytes rounds at a time."""
    spec = [((len(x), weights.n), np.float32)]
    scratch = 0 if kernel == "matmul_nbits" else rows * max(1, weights.blocks * (weights.block + 8))
    operands = [x, weights.packed(variant), bias]
    return _kernels.call(kernel, operands, spec, [len(x), *weights.ints], [], scratch, variant)[0]


def rounded(x: Array, block: int) -> tuple[Array, Array]:
    """Levels [m][blocks][block] and scales [m][blocks] of x."""
    blocks = -(-x.shape[1] // block)
    wide = np.pad(x, [(0, 0), (0, blocks * block - x.shape[1])]).reshape(len(x), blocks, block)
    largest = np.abs(wide).max(axis=2, initial=0)
    with np.errstate(divide="ignore"):
        factors = np.where(largest > 0, np.float32(127) / largest, np.float32(0)).astype(np.float32)
    return np.rint(wide * factors[:, :, None]).astype(int), largest / np.float32(127)


def naive_bytes(x: Array, weights: Weights, bias: Array | None) -> Array:
    """The definition in the header of matmul_nbits_bytes.c, block after block in float32."""
    levels, scales = rounded(x, weights.block)
    columns = weights.levels.reshape(weights.n, weights.blocks, weights.block).astype(int)
    total = np.zeros((len(x), weights.n), np.float32)
    for b in range(weights.blocks):
        exact = levels[:, b] @ (columns[:, b] - weights.wide_zeros[:, b, None]).T
        total += exact.astype(np.float32) * (weights.scales[:, b] * scales[:, b, None])
    return total if bias is None else total + bias


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_products(bits: int, with_zeros: bool, variant: str) -> None:
    for m, n, k, block in SHAPES:
        random = np.random.default_rng(m + n + k)
        x, bias = random.standard_normal((m, k)).astype(np.float32), random.standard_normal(n).astype(np.float32)
        weights = Weights(n, k, bits, block, with_zeros)
        wanted = x.astype(np.float64) @ weights.matrix()
        scale = np.abs(x).astype(np.float64) @ np.abs(weights.matrix()) + 1
        for own in (None, bias):
            exact = wanted if own is None else wanted + own
            found = product(x, weights, variant, "matmul_nbits", own)
            assert np.abs((found - exact) / scale).max(initial=0) < 1e-6
            found = product(x, weights, variant, "matmul_nbits_bytes", own)
            assert np.array_equal(found, naive_bytes(x, weights, own))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block", [8, 16, 24, 32, 64, 96, 128, 256])
@pytest.mark.parametrize("bits", [4, 8])
def test_many_rows_of_bytes(bits: int, block: int, variant: str) -> None:
    """Around the sizes of tiles; as many rows at a time as there are, or some."""
    for m in (7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 81, 150):
        n, k = 1 + m % 40, 2 * block + m % block
        random = np.random.default_rng(m)
        x, bias = random.standard_normal((m, k)).astype(np.float32), random.standard_normal(n).astype(np.float32)
        x[m // 2] = np.where(random.random(k) < 0.5, -1e30, 1e30)
        x[-1] = 0
        weights = Weights(n, k, bits, block, m % 2 == 0)
        wanted = naive_bytes(x, weights, bias)
        for rows in (m, 12, 69):
            assert np.array_equal(product(x, weights, variant, "matmul_nbits_bytes", bias, rows), wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kernel", ["matmul_nbits", "matmul_nbits_bytes"])
def test_rows_do_not_depend_on_other_rows(kernel: str, variant: str) -> None:
    """matmul_nbits has other sums from eight rows on."""
    x = np.random.default_rng(0).standard_normal((67, 72)).astype(np.float32)
    for bits in (4, 8):
        weights = Weights(37, 72, bits, 32, True)
        for rows, step in ((67, 8), (7, 1)):
            together = product(x[:rows], weights, variant, kernel, rows=rows)
            for i in range(0, rows - step + 1, step):
                alone = product(x[i : i + step], weights, variant, kernel)
                assert np.array_equal(together[i : i + step], alone)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_largest_sums_of_bytes_are_exact(variant: str) -> None:
    for bits, top in ((4, 15), (8, 255)):
        for level, zero in ((top, 0), (0, top), (top, top)):
            weights = Weights(18, 512, bits, 256, True)
            weights.levels[:], weights.scales[:] = level, 1
            assert weights.zeros is not None
            weights.zeros[:], weights.wide_zeros[:] = zero, zero
            for sign in (1, -1):
                x = np.full((20, 512), sign, np.float32)
                found = product(x, weights, variant, "matmul_nbits_bytes", rows=20)
                assert np.array_equal(found, naive_bytes(x, weights, None))


@pytest.mark.parametrize("variant", VARIANTS)
def test_special_activations(variant: str) -> None:
    weights = Weights(20, 64, 4, 32, False)
    weights.levels[:, 3] = 8  # zero
    x = np.ones((4, 64), np.float32)
    x[0, 3], x[1, 40] = np.inf, np.nan
    x[2] = 1e-40
    x[3] = 0
    with np.errstate(invalid="ignore"):
        wanted = x @ weights.matrix()
    found = product(x, weights, variant, "matmul_nbits")
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    found = product(np.tile(x, (3, 1)), weights, variant, "matmul_nbits")  # enough rows to dequantize first
    assert np.array_equal(np.isnan(found), np.isnan(np.tile(wanted, (3, 1))))
    found = product(x, weights, variant, "matmul_nbits_bytes")
    assert np.isnan(found[:2]).all()
    assert np.abs(found[2:]).max() < 1e-36
    x[0] = 1
    x[0, 4], weights.levels[:, 4] = np.inf, 0  # -8 times infinity is an infinity, not NaN
    infinite = product(x[:1], weights, variant, "matmul_nbits")
    assert np.array_equal(np.sign(infinite[0]), -np.sign(weights.scales[:, 0]))
    assert np.isinf(infinite).all()


def test_padding_of_the_last_block_has_no_effect() -> None:
    weights = Weights(5, 36, 4, 32, False)
    x = np.ones((1, 36), np.float32)
    for kernel in ("matmul_nbits", "matmul_nbits_bytes"):
        before = product(x, weights, VARIANTS[0], kernel)
        weights.levels[:, 36:] ^= 15
        assert np.array_equal(before, product(x, weights, VARIANTS[0], kernel))


def test_operands_that_do_not_fit_are_errors() -> None:
    weights, x = Weights(5, 32, 4, 16, True), np.ones((2, 32), np.float32)
    packed, spec = weights.packed(VARIANTS[0]), [((2, 5), np.float32)]
    good = [2, *weights.ints]
    for kernel in ("matmul_nbits", "matmul_nbits_bytes"):
        _kernels.call(kernel, [x, packed], spec, good, [], 1000)
        for position, number in ((0, 3), (1, 6), (2, 31), (3, 2), (4, 0), (4, 32), (5, 0), (0, -1), (4, 12)):
            bad = [*good]
            bad[position] = number
            with pytest.raises(InferenceError):
                _kernels.call(kernel, [x, packed], spec, bad, [], 1000)
        with pytest.raises(InferenceError):
            _kernels.call(kernel, [x, packed[1:]], spec, good, [], 1000)
        with pytest.raises(InferenceError):
            _kernels.call(kernel, [x, packed, np.ones(4, np.float32)], spec, good, [], 1000)
    with pytest.raises(InferenceError):
        _kernels.call("matmul_nbits_bytes", [x, packed], spec, good, [], 10)
    size = ask("nbits_bytes", 32, 5, 4, 16, 1)
    operands = [np.zeros(80, np.uint8), np.zeros((5, 2), np.float32), np.zeros(5, np.uint8)]
    _kernels.call("pack_nbits", operands, [((size,), np.uint8)], [0, *weights.ints])
    for i in range(3):
        short = [array[:-1] if i == j else array for j, array in enumerate(operands)]
        with pytest.raises(InferenceError):
            _kernels.call("pack_nbits", short, [((size,), np.uint8)], [0, *weights.ints])
