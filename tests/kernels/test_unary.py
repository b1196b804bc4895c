"""The unary kernel against NumPy and SciPy: precision over all float32, special values, other types, in place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from hetero import _kernels
from hetero.errors import InferenceError

VARIANTS = _kernels.variants()
Array = np.ndarray[Any, Any]
HEADER = Path(__file__).parents[2] / "src" / "_core" / "kernels" / "unary.h"
CODES = {name.lower(): int(code) for name, code in re.findall(r"HT_UNARY_(\w+) = (\d+)", HEADER.read_text())}


def unary(
    x: Array, op: str, p0: float = 0, p1: float = 0, *, variant: str | None = None, dtype: type | None = None
) -> Array:
    spec = [(x.shape, dtype or x.dtype)]
    return _kernels.call("unary", [x], spec, [CODES[op]], [p0, p1], variant=variant)[0]


def gelu_erf(x: Array) -> Array:
    return 0.5 * x * special.erfc(-x / np.sqrt(2))


def gelu_tanh(x: Array) -> Array:
    return x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def selu(x: Array) -> Array:
    return 1.0625 * np.where(x < 0, 1.625 * np.expm1(x), x)


# op -> (p0, p1, reference in float64, ulp, absolute): |found - exact| <= max(ulp * spacing(exact), absolute)
FUNCTIONS: dict[str, tuple[float, float, Callable[[Array], Array], float, float]] = {
    "sigmoid": (0, 0, special.expit, 2.5, 1e-38),
    "tanh": (0, 0, np.tanh, 6.5, 0),
    "erf": (0, 0, special.erf, 7, 1e-44),
    "exp": (0, 0, np.exp, 1.1, 2e-45),
    "log": (0, 0, np.log, 1, 0),
    "elu": (1, 0, lambda x: np.where(x < 0, np.expm1(x), x), 1.1, 1e-44),
    "celu": (2, 0, lambda x: np.where(x < 0, 2 * np.expm1(x / 2), x), 1.1, 1e-44),
    "selu": (1.625, 1.0625, selu, 3, 1e-44),
    "swish": (1, 0, lambda x: x * special.expit(x), 3, 1e-36),
    "softplus": (0, 0, lambda x: np.logaddexp(0, x), 2.5, 1e-44),
    "mish": (0, 0, lambda x: x * np.tanh(np.logaddexp(0, x)), 4, 1e-42),
    "gelu_erf": (0, 0, gelu_erf, 4, 1.3e-6),
    "gelu_tanh": (0, 0, gelu_tanh, 4, 2e-6),
    "sin": (0, 0, np.sin, 2, 1.2e-7),
    "cos": (0, 0, np.cos, 2, 1.2e-7),
    "tan": (0, 0, np.tan, 2, 0),
    "asin": (0, 0, np.arcsin, 2, 0),
    "acos": (0, 0, np.arccos, 2, 0),
    "atan": (0, 0, np.arctan, 2, 0),
    "sinh": (0, 0, np.sinh, 3, 0),
    "cosh": (0, 0, np.cosh, 3, 0),
    "asinh": (0, 0, np.arcsinh, 3, 0),
    "acosh": (0, 0, np.arccosh, 3, 0),
    "atanh": (0, 0, np.arctanh, 3, 0),
}

EXACT: dict[str, tuple[float, float, Callable[[Array], Array]]] = {
    "none": (0, 0, np.positive),
    "relu": (0, 0, lambda x: np.maximum(x, 0)),
    "clip": (-1, 2, lambda x: np.clip(x, -1, 2)),
    "leaky_relu": (0.5, 0, lambda x: np.where(x < 0, x * 0.5, x)),
    "thresholded_relu": (1, 0, lambda x: np.where(x > 1, x, x.dtype.type(0))),
    "sqrt": (0, 0, np.sqrt),
    "reciprocal": (0, 0, np.reciprocal),
    "abs": (0, 0, np.abs),
    "neg": (0, 0, np.negative),
    "floor": (0, 0, np.floor),
    "ceil": (0, 0, np.ceil),
    "round": (0, 0, np.rint),
    "sign": (0, 0, np.sign),
    "softsign": (0, 0, lambda x: x / (1 + np.abs(x))),
}


KEEP_THE_SIGN_OF_ZERO = {
    "none",
    "leaky_relu",
    "elu",
    "sqrt",
    "neg",
    "floor",
    "ceil",
    "round",
    "tanh",
    "erf",
    "softsign",
}


def sample(count: int) -> Array:
    """Every exponent and sign, and the usual ranges more densely."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    usual = [rng.uniform(-high, high, count // 2).astype(np.float32) for high in (1.5, 10, 110)]
    return np.concatenate([bits[np.isfinite(bits)], *usual])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_precision(variant: str, op: str) -> None:
    p0, p1, reference, ulp, absolute = FUNCTIONS[op]
    x = sample(100_000)
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(x.astype(np.float64)))
        expected = exact.astype(np.float32)
        found = unary(x, op, p0, p1, variant=variant)
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        finite = np.isfinite(expected)
        overflow = ~finite & ~np.isnan(expected)
        np.testing.assert_array_equal(found[overflow], expected[overflow])
        bound = np.maximum(ulp * np.spacing(np.abs(expected[finite])).astype(np.float64), absolute)
        # The GELUs lose their tail to cancellation; the loss is relative to x.
        if op.startswith("gelu"):
            bound = np.maximum(bound, 1e-7 * np.abs(np.clip(x[finite], -6, 6)))
        excess = np.abs(found[finite].astype(np.float64) - exact[finite]) / bound
    assert excess.max() <= 1, f"x = {x[finite][excess.argmax()]!r}: {excess.max() * ulp} ulp"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact(variant: str, op: str, dtype: type) -> None:
    p0, p1, reference = EXACT[op]
    halves = np.arange(-9, 10) / 2
    special_values = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**23 - 0.5, -(2.0**23) + 0.5, 2.0**24, 1e30, -1e30, 1e-40]
    x = np.concatenate([halves, special_values, sample(2000)]).astype(dtype)
    with np.errstate(all="ignore"):
        expected = reference(x)
        found = unary(x, op, p0, p1, variant=variant)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33])
def test_tails_touch_nothing_else(variant: str, size: int) -> None:
    x = np.linspace(-2, 2, size, dtype=np.float32)
    np.testing.assert_allclose(unary(x, "tanh", variant=variant), np.tanh(x), rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", sorted({**FUNCTIONS, **EXACT}))
def test_special_values(variant: str, op: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    p0, p1, reference = (FUNCTIONS[op][:3]) if op in FUNCTIONS else EXACT[op]
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(x.astype(np.float64)), np.float32)
    found = unary(x, op, p0, p1, variant=variant)
    if op in {"swish", "mish", "gelu_erf", "gelu_tanh", "softsign", "thresholded_relu"}:
        # 0 * inf and inf / inf: as the formula falls; the finite lanes and NaN are what counts
        found, expected = found[[0, 3, 4]], expected[[0, 3, 4]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if op in KEEP_THE_SIGN_OF_ZERO:
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("op", FUNCTIONS)
def test_float64(op: str) -> None:
    p0, p1, reference, _, _ = FUNCTIONS[op]
    x = np.random.default_rng(0).uniform(-5, 5, 1000)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(unary(x, op, p0, p1), reference(x), rtol=1e-12, atol=1e-15)


def test_parameters() -> None:
    x = np.linspace(-5, 5, 101, dtype=np.float32)
    np.testing.assert_allclose(unary(x, "hard_sigmoid", 0.2, 0.5), np.clip(0.2 * x + 0.5, 0, 1), atol=1e-6)
    np.testing.assert_allclose(unary(x, "hard_swish", 1 / 6, 0.5), x * np.clip(x / 6 + 0.5, 0, 1), atol=1e-6)
    np.testing.assert_allclose(unary(x, "swish", 1.702), x * special.expit(1.702 * x), atol=1e-6)
    shrunk = np.where(x < -1.5, x + 0.25, np.where(x > 1.5, x - 0.25, 0))
    np.testing.assert_allclose(unary(x, "shrink", 0.25, 1.5), shrunk, atol=1e-6)
    np.testing.assert_allclose(unary(x, "clip", 3, 1), np.ones(101), atol=0)  # min > max gives max, as NumPy does


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers(variant: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.min + 1, 0, 1, 5, info.max - 1, info.max] * 5, dtype)
    np.testing.assert_array_equal(unary(x, "relu", variant=variant), np.maximum(x, 0))
    np.testing.assert_array_equal(unary(x, "abs", variant=variant), np.abs(x))
    np.testing.assert_array_equal(unary(x, "sign", variant=variant), np.sign(x))
    np.testing.assert_array_equal(unary(x, "bitwise_not", variant=variant), ~x)
    np.testing.assert_array_equal(unary(x, "clip", 1, 4, variant=variant), np.clip(x, 1, 4))
    np.testing.assert_array_equal(unary(x, "clip", -1e30, 1e30, variant=variant), x)
    if info.min < 0:
        np.testing.assert_array_equal(unary(x, "neg", variant=variant), -x)
    else:
        with pytest.raises(InferenceError):
            unary(x, "neg", variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_classification(variant: str, dtype: type) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0, 1] * 7, dtype)
    np.testing.assert_array_equal(unary(x, "isnan", dtype=np.bool_, variant=variant), np.isnan(x))
    np.testing.assert_array_equal(unary(x, "isinf", 1, 1, dtype=np.bool_, variant=variant), np.isinf(x))
    np.testing.assert_array_equal(unary(x, "isinf", 1, 0, dtype=np.bool_, variant=variant), np.isneginf(x))
    np.testing.assert_array_equal(unary(x, "isinf", 0, 1, dtype=np.bool_, variant=variant), np.isposinf(x))


def test_not() -> None:
    x = np.array([True, False, True])
    np.testing.assert_array_equal(unary(x, "not"), ~x)


def test_refused() -> None:
    for x, op in [
        (np.ones(3, np.int32), "exp"),
        (np.ones(3, np.float16), "relu"),
        (np.ones(3, np.float32), "not"),
        (np.ones(3, np.float32), "isnan"),
        (np.ones(3, bool), "abs"),
    ]:
        with pytest.raises(InferenceError):
            unary(x, op)
