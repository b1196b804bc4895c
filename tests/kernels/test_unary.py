"""The unary kernel against NumPy and SciPy: precision over all float32, special values, other types, in place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

from hetero import _kernels
from hetero.errors import InferenceError
from unary_sweep import FUNCTIONS, faults, part, unary

VARIANTS = _kernels.variants("unary")
Array = np.ndarray[Any, Any]

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
    "gelu_erf",
    "gelu_tanh",
    "swish",
    "mish",
    "celu",
    "selu",
    "sin",
    "tan",
    "asin",
    "atan",
    "sinh",
    "asinh",
    "atanh",
}


def parameters_of(op: str) -> tuple[float, float, Callable[[Array], Array]]:
    return EXACT[op] if op in EXACT else (FUNCTIONS[op].p0, FUNCTIONS[op].p1, FUNCTIONS[op].exact)


@functools.cache
def adversarial() -> tuple[Array, ...]:
    """`part`, made once for all functions and variants."""
    pieces = tuple(part())
    for piece in pieces:
        piece.flags.writeable = False
    return pieces


@functools.cache
def sample(count: int) -> Array:
    """Every exponent and sign, and the usual ranges more densely."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    usual = [rng.uniform(-high, high, count // 2).astype(np.float32) for high in (1.5, 10, 110)]
    made = np.concatenate([bits[np.isfinite(bits)], *usual])
    made.flags.writeable = False
    return made


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_precise_monotone_and_exact_at_limits(variant: str, op: str) -> None:
    """Around limits and breaks of the implementations, and in every binade; ``unary_sweep.py`` takes all inputs."""
    assert [fault for x in adversarial() for fault in faults(op, x, variant)] == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_random_inputs_are_precise(variant: str, op: str) -> None:
    assert faults(op, np.sort(sample(100_000)), variant) == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("alpha", [0.5, 1.702])
def test_swish_of_another_alpha_never_decreases_from_zero_on(variant: str, alpha: float) -> None:
    x = np.sort(np.abs(np.concatenate([sample(100_000), *adversarial()])))
    found = unary(x[np.isfinite(x)], "swish", alpha, variant=variant)
    assert (found[1:] >= found[:-1]).all()


@functools.cache
def shuffled() -> Array:
    return np.random.default_rng(0).permutation(np.concatenate(adversarial()))[:4099]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_bits_do_not_depend_on_the_place(variant: str, op: str) -> None:
    """In whole vectors, in what is left behind them, and beside lanes that take another way."""
    x = shuffled()
    p0, p1 = FUNCTIONS[op].p0, FUNCTIONS[op].p1
    whole = unary(x, op, p0, p1, variant=variant)
    one_by_one = np.concatenate([unary(x[i : i + 1], op, p0, p1, variant=variant) for i in range(600)])
    np.testing.assert_array_equal(one_by_one.view(np.uint32), whole[:600].view(np.uint32))
    for start in (1, 2, 3, 5, 8):
        shifted = unary(x[start:].copy(), op, p0, p1, variant=variant)
        np.testing.assert_array_equal(shifted.view(np.uint32), whole[start:].view(np.uint32))


@pytest.mark.parametrize("variant", VARIANTS)
def test_gate_closes(variant: str) -> None:
    """x * (1 + tanh(x)) is 0 far below zero: tanh is -1 there, not the float next to it."""
    x = -np.array([9.1, 10, 100, 1e6, 1e38], np.float32)
    np.testing.assert_array_equal(x * (1 + unary(x, "tanh", variant=variant)), np.zeros(5, np.float32))


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
    p0, p1, reference = parameters_of(op)
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(x.astype(np.float64)), np.float32)
    found = unary(x, op, p0, p1, variant=variant)
    if op in FUNCTIONS:  # 0 * inf and inf / inf: NaN by the formula, as in onnxruntime and the reference
        expected[np.isin(x, FUNCTIONS[op].formula)] = np.nan
    if op == "thresholded_relu":
        assert found[0] == 0  # NaN is not above the threshold
        found, expected = found[1:], expected[1:]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if op in KEEP_THE_SIGN_OF_ZERO:
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


PRECISE: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "exp": mpmath.exp,
    "log": mpmath.log,
    "elu": lambda v: mpmath.expm1(v) if v < 0 else v,
    "celu": lambda v: 2 * mpmath.expm1(v / 2) if v < 0 else v,
    "selu": lambda v: 1.0625 * (1.625 * mpmath.expm1(v) if v < 0 else v),
    "swish": lambda v: v / (1 + mpmath.exp(-v)),
    "softplus": lambda v: mpmath.log1p(mpmath.exp(v)),
    "softsign": lambda v: v / (1 + abs(v)),
    "mish": lambda v: v * mpmath.tanh(mpmath.log1p(mpmath.exp(v))),
    "gelu_erf": lambda v: v * mpmath.erfc(-v / mpmath.sqrt(2)) / 2,
    "gelu_tanh": lambda v: v / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (v + mpmath.mpf("0.044715") * v**3))),
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh")},
    **{name: getattr(mpmath, name) for name in ("acosh", "atanh")},
}
DOMAIN = {"asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, 1e308), "log": (0, 1e308)}
MOST_ULP_64 = 6
"""Units in the last place of float64 by which a function may be off; Gelu is a sum that cancels, and may be off by two
units of its argument."""


@pytest.mark.parametrize("op", FUNCTIONS)
def test_float64_within_its_bound(op: str) -> None:
    """In every binade that does not overflow, around 0 and 1, and where Gelu and Sigmoid fade."""
    p0, p1, _ = parameters_of(op)
    rng = np.random.default_rng(0)
    low, high = DOMAIN.get(op, (-700, 700))
    x = np.concatenate([rng.uniform(-1, 1, 200) * 2.0 ** rng.integers(-300, 11, 200), rng.uniform(-9, 9, 100)])
    x = np.concatenate([x, 1 + rng.uniform(-1, 1, 50) * 2.0 ** rng.integers(-52, 0, 50)])
    x = x[(x > low) & (x < high)]
    found = unary(x, op, p0, p1)
    with mpmath.workdps(400):
        for number, result in zip(x.tolist(), found.tolist(), strict=True):
            exact = PRECISE[op](mpmath.mpf(number))
            unit = max(np.spacing(abs(float(exact))), 5e-324)
            allowed = 2 * np.spacing(abs(number)) if op.startswith("gelu") else MOST_ULP_64 * unit
            assert abs(mpmath.mpf(result) - exact) <= allowed, (number, result, exact)


def test_parameters() -> None:
    x = np.linspace(-5, 5, 101, dtype=np.float32)
    np.testing.assert_allclose(unary(x, "hard_sigmoid", 0.2, 0.5), np.clip(0.2 * x + 0.5, 0, 1), atol=1e-6)
    np.testing.assert_allclose(unary(x, "hard_swish", 1 / 6, 0.5), x * np.clip(x / 6 + 0.5, 0, 1), atol=1e-6)
    np.testing.assert_allclose(unary(x, "swish", 1.702), x * special.expit(1.702 * x), atol=1e-6)
    shrunk = np.where(x < -1.5, x + 0.25, np.where(x > 1.5, x - 0.25, 0))
    np.testing.assert_allclose(unary(x, "shrink", 0.25, 1.5), shrunk, atol=1e-6)
    np.testing.assert_allclose(unary(x, "clip", 3, 1), np.ones(101), atol=0)  # min > max gives max, as NumPy does


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("op", "p0", "p1", "reference"),
    [
        ("celu", -1, 0, lambda v: np.where(v < 0, -np.expm1(-v), v)),
        (
            "celu",
            -0.3,
            0,
            lambda v: np.where(v < 0, np.float32(-0.3) * np.expm1(v / np.float32(-0.3)).astype(np.float32), v),
        ),
        ("celu", 1e-3, 0, lambda v: np.where(v < 0, np.float32(1e-3) * np.expm1(v / np.float32(1e-3)), v)),
        ("celu", 40, 0, lambda v: np.where(v < 0, 40 * np.expm1(v / 40), v)),
        ("elu", -2, 0, lambda v: np.where(v < 0, -2 * np.expm1(v), v)),
        ("selu", -2, -3, lambda v: -3 * np.where(v < 0, -2 * np.expm1(v), v)),
        ("leaky_relu", -2, 0, lambda v: np.where(v < 0, -2 * v, v)),
        ("swish", -2, 0, lambda v: v * special.expit(-2 * v)),
        ("hard_sigmoid", -0.25, 0.75, lambda v: np.clip(-0.25 * v + 0.75, 0, 1)),
    ],
)
def test_unusual_parameters(variant: str, op: str, p0: float, p1: float, reference: Callable[[Array], Array]) -> None:
    """Also where the power of e is the largest finite number, or just too large."""
    big = np.concatenate([np.linspace(85, 91, 121), [1e3, 1e30, 3e38], np.logspace(-30, 1.9, 80)])
    x = np.concatenate([big, -big, -0.3 * big, 0.3 * big]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64)).astype(np.float32)
    # The error of an argument of exp(v), half a unit of v, is v times as large in the result.
    np.testing.assert_allclose(unary(x, op, p0, p1, variant=variant), expected, rtol=1e-5, atol=1e-30)


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
