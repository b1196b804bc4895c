"""Binary elementwise kernels against NumPy, over random shapes, types and instruction sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import FLOATS, INTEGERS, NUMERIC, SIGNED, broadcastable, random_array

VARIANTS = _kernels.variants("add", "and")


def run(name: str, a: np.ndarray, b: np.ndarray, dtype: np.dtype, variant: str) -> np.ndarray:
    return _kernels.call(name, [a, b], [(np.broadcast_shapes(a.shape, b.shape), dtype)], variant=variant)[0]


BINARY: dict[str, tuple[Callable[..., np.ndarray], list[str]]] = {
    "add": (np.add, NUMERIC),
    "sub": (np.subtract, NUMERIC),
    "mul": (np.multiply, NUMERIC),
    "min": (np.minimum, NUMERIC),
    "max": (np.maximum, NUMERIC),
    "equal": (np.equal, [*NUMERIC, "bool"]),
    "less": (np.less, NUMERIC),
    "less_or_equal": (np.less_equal, NUMERIC),
    "greater": (np.greater, NUMERIC),
    "greater_or_equal": (np.greater_equal, NUMERIC),
    "and": (np.logical_and, ["bool"]),
    "or": (np.logical_or, ["bool"]),
    "xor": (np.logical_xor, ["bool"]),
    "bitwise_and": (np.bitwise_and, INTEGERS),
    "bitwise_or": (np.bitwise_or, INTEGERS),
    "bitwise_xor": (np.bitwise_xor, INTEGERS),
    "prelu": (lambda x, y: np.where(x < 0, x * y, x), FLOATS + SIGNED),
}


@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_binary_broadcasts_as_numpy(name: str, data: st.DataObject) -> None:
    function, dtypes = BINARY[name]
    dtype = data.draw(st.sampled_from(dtypes))
    shapes = data.draw(st.composite(broadcastable)(2))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, b = (random_array(rng, shape, dtype) for shape in shapes)
    with np.errstate(over="ignore"):
        expected = function(a, b)
    found = run(name, a, b, expected.dtype, data.draw(st.sampled_from(VARIANTS)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shapes", [((1000,), (1000,)), ((7, 129), (1,)), ((1,), (7, 129)), ((2, 3, 50), (3, 1))])
def test_long_rows_take_the_vector_loops(variant: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    for name, (function, dtypes) in BINARY.items():
        for dtype in dtypes:
            a, b = (random_array(rng, shape, dtype) for shape in shapes)
            with np.errstate(over="ignore"):
                expected = function(a, b)
            np.testing.assert_array_equal(run(name, a, b, expected.dtype, variant), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_truncates_and_mod_follows_the_divisor(dtype: str, variant: str) -> None:
    rng = np.random.default_rng(1)
    a, b = random_array(rng, (500,), dtype), random_array(rng, (500,), dtype)
    b[b == 0] = 3
    exact_a, exact_b = a.astype(object), b.astype(object)
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(exact_a, exact_b, strict=True)]
    quotient = np.array(quotients, object).astype(dtype)
    np.testing.assert_array_equal(run("div", a, b, a.dtype, variant), quotient)
    np.testing.assert_array_equal(run("mod", a, b, a.dtype, variant), np.mod(a, b))
    np.testing.assert_array_equal(run("fmod", a, b, a.dtype, variant), np.fmod(a, b))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_near_multiples_and_limits(dtype: str, variant: str) -> None:
    """Pairs of rows, and each number as one element beside a row."""
    info = np.iinfo(dtype)
    numbers = {
        k * 2**n + d for n in (0, 1, 7, 8, 15, 16, 29, 30, 31, 32, 53, 62, 63) for k in (-3, -1, 1) for d in (-1, 0, 1)
    }
    numbers |= {info.min + d for d in (0, 1)} | {info.max - d for d in (0, 1)} | {7, 10, 1000003}
    values = sorted(n for n in numbers if info.min <= n <= info.max)
    divisors = [n for n in values if n]
    pairs = [
        (x, y) for y in divisors for x in {*values, *(y * q + d for q in (3, 46341, 2**20 - 1) for d in (-1, 0, 1))}
    ]
    pairs = [(x, y) for x, y in pairs if info.min <= x <= info.max]
    a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    expected = {
        "div": [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs],
        "mod": [x % y for x, y in pairs],
        "fmod": [abs(x) % abs(y) * (-1 if x < 0 else 1) for x, y in pairs],
    }
    for name, results in expected.items():
        wanted = np.array([result - 2**info.bits if result > info.max else result for result in results], dtype)
        np.testing.assert_array_equal(run(name, a, b, a.dtype, variant), wanted)
        for k in range(0, len(pairs), 97):
            rows = np.tile(a, 3)
            by_one = run(name, rows, b[k : k + 1], a.dtype, variant)
            np.testing.assert_array_equal(by_one, run(name, rows, np.full_like(rows, b[k]), a.dtype, variant))
            one_by = run(name, a[k : k + 1], b, a.dtype, variant)
            np.testing.assert_array_equal(one_by, run(name, np.full_like(b, a[k]), b, a.dtype, variant))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_one_zero_among_divisors(dtype: str, variant: str) -> None:
    for size in (1, 7, 128, 129, 1000):
        for place in {0, size // 2, size - 1}:
            b = np.ones(size, dtype)
            b[place] = 0
            for name in ("div", "mod", "fmod"):
                for a in (np.ones(size, dtype), np.ones(1, dtype)):
                    with pytest.raises(InferenceError, match=f"kernel {name}: an integer division by zero"):
                        run(name, a, b, a.dtype, variant)
    for name in ("div", "mod", "fmod"):
        assert run(name, np.ones(0, dtype), np.zeros(1, dtype), np.dtype(dtype), variant).shape == (0,)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_that_has_no_result_is_an_error(dtype: str) -> None:
    zero, one = np.zeros(3, dtype), np.ones(3, dtype)
    for name in ("div", "mod", "fmod"):
        with pytest.raises(InferenceError, match=f"kernel {name}: an integer division by zero"):
            _kernels.call(name, [one, zero], [((3,), dtype)])
    if dtype in SIGNED:
        least = np.full(3, np.iinfo(dtype).min, dtype)
        np.testing.assert_array_equal(_kernels.call("div", [least, -one], [((3,), dtype)])[0], least)
        np.testing.assert_array_equal(_kernels.call("mod", [least, -one], [((3,), dtype)])[0], zero)
        with pytest.raises(InferenceError, match="division by zero"):
            _kernels.call("pow", [zero, -one], [((3,), dtype)])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_specials(dtype: str, variant: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0, 3.0], dtype)
    a, b = special[:, None], special[None, :]
    with np.errstate(all="ignore"):
        for name, function in {
            "div": np.divide,
            "fmod": np.fmod,
            "pow": np.power,
            "min": np.minimum,
            "max": np.maximum,
        }.items():
            np.testing.assert_allclose(run(name, a, b, a.dtype, variant), function(a, b), rtol=2e-7, err_msg=name)
        for exponent in (2.0, 3.0, 0.5, -1.0):
            y = np.array(exponent, dtype)
            np.testing.assert_allclose(
                run("pow", special, y, a.dtype, variant), np.power(special, np.full_like(special, y)), rtol=1e-6
            )
            assert not np.signbit(run("pow", special[4:5], np.array(0.5, dtype), a.dtype, variant))[0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers_wrap(dtype: str) -> None:
    base = np.arange(-3 if dtype in SIGNED else 0, 12).astype(dtype)[:, None]
    exponent = np.arange(0, 30).astype(dtype)
    np.testing.assert_array_equal(run("pow", base, exponent, base.dtype, _kernels.variant()), base**exponent)
    if dtype in SIGNED:
        x, y = np.array([1, -1, -1, 2, -7], dtype), np.array([-3, -3, -2, -1, -1], dtype)
        assert run("pow", x, y, x.dtype, _kernels.variant()).tolist() == [1, -1, 1, 0, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: str) -> None:
    bits = np.dtype(dtype).itemsize * 8
    x = random_array(np.random.default_rng(2), (50, 1), dtype)
    y = np.arange(0, bits + 3).astype(dtype)
    left, right = (run(name, x, y, x.dtype, _kernels.variant()) for name in ("shift_left", "shift_right"))
    exact = x.astype(object)
    wrapped = [[(int(v[0]) << int(s)) % (1 << bits) for s in y] for v in exact]
    np.testing.assert_array_equal(left.astype(f"uint{bits}"), np.array(wrapped, object).astype(f"uint{bits}"))
    np.testing.assert_array_equal(right, np.array([[int(v[0]) >> int(s) for s in y] for v in exact], dtype))
    if dtype in SIGNED:  # a negative count shifts out everything but the sign
        y = np.array([-1, np.iinfo(dtype).min], dtype)
        left, right = (run(name, x, y, x.dtype, _kernels.variant()) for name in ("shift_left", "shift_right"))
        assert not left.any()
        np.testing.assert_array_equal(right, np.broadcast_to(np.where(x < 0, -1, 0), right.shape))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("largest", [4, 1 << 12, 1 << 24])
def test_remainders_of_floats_are_exact(largest: int, variant: str) -> None:
    """Dividends next to multiples of the divisor, whose rounded quotient can be too large, and numbers of any size."""
    rng = np.random.default_rng(largest)
    divisors = np.concatenate([rng.standard_normal(2000), rng.standard_normal(200) * 1e-42]).astype(np.float32)
    dividends = (divisors * rng.integers(0, largest, len(divisors))).astype(np.float32)
    special = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 1e-38, 16777216, 8388608.5, -3], np.float32)
    grid = np.meshgrid(special, special)
    a = np.concatenate([np.nextafter(dividends, np.float32(end)) for end in (-np.inf, 0, np.inf)] + [grid[0].ravel()])
    b = np.concatenate([divisors] * 3 + [grid[1].ravel()])
    order = rng.permutation(len(a))
    for x, y in ((a, b), (-a, b), (a[order], b[order]), (a, np.float32([0.3])), (np.float32([-7.5]), b)):
        with np.errstate(all="ignore"):
            expected = np.fmod(x, y)
        found = run("fmod", x, y, np.dtype(np.float32), variant)
        np.testing.assert_array_equal(found, expected)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])
    for x, y in zip(grid[0].ravel(), grid[1].ravel(), strict=True):
        with np.errstate(all="ignore"):
            expected = np.fmod(x, y)
        np.testing.assert_array_equal(
            run("fmod", np.array([x]), np.array([y]), np.dtype(np.float32), variant), [expected]
        )
