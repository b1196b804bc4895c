"""Integer products: exactly what NumPy computes, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import random_bytes, requantized

VARIANTS = _kernels.variants("matmul_integer", "pack_quads")
BYTES = [np.int8, np.uint8]
Array = np.ndarray[Any, Any]


def product(
    a: Array,
    b: Array,
    a_zero: Array,
    b_zero: Array,
    variant: str,
    scale: Array | None = None,
    zero: Array | None = None,
) -> Array:
    """Matrices only."""
    (m, k), n = a.shape, b.shape[1]
    quads = -(-k // 4)
    spec = ((-(-n // 16) * 64 * (quads + 2),), np.uint8)
    packed = _kernels.call("pack_quads", [b, b_zero], [spec], [1, k, n], variant=variant)[0]
    operands = [a, a_zero, packed] if zero is None else [a, a_zero, packed, scale, zero]
    made = [((m, n), np.int32 if zero is None else zero.dtype)]
    return _kernels.call("matmul_integer", operands, made, [m, n, k, 0], [], 12 * (8 * quads + 136), variant)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (1, 64, 48), (3, 7, 17), (13, 33, 31), (25, 300, 70), (200, 5, 3), (2, 0, 4)]
)
def test_products(m: int, k: int, n: int, variant: str) -> None:
    rng = np.random.default_rng(m * 1000 + k)
    for a_type in BYTES:
        for b_type in BYTES:
            a, b = random_bytes(rng, a_type, m, k), random_bytes(rng, b_type, k, n)
            a_zero, b_zero = random_bytes(rng, a_type, m, 1), random_bytes(rng, b_type, n)
            wanted = (a.astype(np.int32) - a_zero) @ (b.astype(np.int32) - b_zero)
            assert np.array_equal(product(a, b, a_zero, b_zero, variant), wanted)
            for columns in (1, n):
                scale = rng.uniform(0, 0.01, columns).astype(np.float32)
                zero = random_bytes(rng, a_type)
                found = product(a, b, a_zero, b_zero, variant, scale, zero)
                assert np.array_equal(found, requantized(wanted, scale, zero))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_largest_products_are_exact(variant: str) -> None:
    k = 4097
    a, b = np.full((4, k), 255, np.uint8), np.full((k, 20), -128, np.int8)
    found = product(a, b, np.array(0, np.uint8), np.array(127, np.int8), variant)
    assert (found == -255 * 255 * k).all()


def test_operands_that_do_not_fit_are_errors() -> None:
    a, zero, packed = np.zeros((2, 3), np.int8), np.zeros(1, np.int8), np.zeros(192, np.uint8)
    window = [1, 3, *[1] * 3, *[1] * 3, *[0] * 3, *[1] * 3]
    image = np.zeros((1, 3, 4), np.int8)
    for name, inputs, spec, ints in (
        ("matmul_integer", [a, zero, packed], ((2, 5), np.int32), [2, 5, 4, 0]),
        ("matmul_integer", [a, zero, packed[:191]], ((2, 5), np.int32), [2, 5, 3, 0]),
        ("matmul_integer", [a, zero, packed], ((2, 5), np.int32), [2, 5, 3, 0]),  # no scratch
        ("matmul_integer", [a, np.zeros(3, np.int8), packed], ((2, 5), np.int32), [2, 5, 3, 0]),
        ("pack_quads", [a, zero], ((191,), np.uint8), [1, 2, 3]),
        ("pack_pixels", [image, zero], ((143,), np.uint8), [*window, 1, 1, 4]),
        ("pack_pixels", [image, zero], ((144,), np.uint8), [2, *window[1:], 1, 1, 4]),
        ("pack_filters", [np.zeros((1, 3, 1), np.int8), zero], ((23,), np.uint8), [*window, 1, 1, 4]),
        (
            "conv_integer",
            [np.zeros(144, np.uint8), np.zeros(24, np.uint8), zero, None],
            ((1, 1, 4), np.int32),
            [*window, 1, 1, 4],
        ),  # no scratch
        ("quantize", [np.zeros(3, np.float32), np.zeros(2, np.float32), None], ((3,), np.int8), [1, 3, 1, 0]),
    ):
        with pytest.raises(InferenceError, match="do not fit"):
            _kernels.call(name, inputs, [spec], ints, scratch_bytes=0)
