"""The error bounds of kernels that add, against float64 or longer, on adversarial inputs:

    python tests/error_bounds.py                    # the table: each bound, and how much of it was ever used
    python tests/error_bounds.py --seeds 100        # more inputs
    python tests/error_bounds.py softmax --variant baseline

`unary_sweep.py` has the bounds of unary functions. tests/kernels/test_error_bounds.py runs a part in every variant,
docs/testing.md has the table.

In the bounds, u is half a unit in the last place of 1 (2⁻²⁴ for float32, 2⁻⁵³ for float64), n the number of terms, and
S the sum of the magnitudes of the terms. A bound holds if no partial sum overflows; results below the smallest normal
number may also be off by that number for each term.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero import _kernels
from hetero.devices.cpu.operators.fourier import dft_tables

Array = np.ndarray[Any, Any]
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}


@dataclass(frozen=True)
class Kernel:
    """``text``: the bound, as in docs/testing.md. ``cases``: what was found, what is exact, and the error allowed."""

    text: str
    cases: Callable[[np.random.Generator, str], Iterator[tuple[str, Array, Array, Array]]]


def inputs(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Iterator[tuple[str, Array]]:
    """Arrays whose sums are hard, with magnitudes whose squares neither overflow nor underflow."""
    n = int(np.prod(shape))
    most = 17 if dtype == "float32" else 140

    def made(name: str, values: Array) -> tuple[str, Array]:
        return name, values.reshape(shape).astype(dtype)

    yield made("normal", rng.standard_normal(n))
    yield made("one sign", rng.uniform(0.09, 0.11, n))
    yield made("equal", np.full(n, rng.uniform(0.05, 0.2)))  # each addition rounds the same way
    half = rng.standard_normal(n // 2) * 10.0 ** rng.integers(-2, 6, n // 2)
    canceled = np.concatenate([half, -half, rng.standard_normal(n - 2 * (n // 2)) * 1e-3])
    yield made("cancellation", rng.permutation(canceled))
    yield made("cancellation in order", canceled)
    yield made("scales", rng.standard_normal(n) * 10.0 ** rng.uniform(-most, most, n))
    yield made("huge", rng.standard_normal(n) * 10.0**most)
    yield made("tiny", rng.standard_normal(n) * 10.0 ** -(most - 1))
    yield made("far from zero", rng.standard_normal(n) + 10.0 ** rng.uniform(1, 5))
    one = np.zeros(n)
    one[rng.integers(0, n)] = 10.0**most
    yield made("one large", one + rng.standard_normal(n))


def longer(x: Array) -> Array:
    """In a type whose rounding does not matter."""
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


# ---- reductions

SUM, MEAN, PRODUCT, SQUARES, MAGNITUDES, ROOT, LOGARITHM = 0, 1, 4, 5, 6, 7, 8


def reduced(x: Array, operation: int, axis: int, variant: str) -> Array:
    shape = tuple(size for i, size in enumerate(x.shape) if i != axis)
    marks = [int(i == axis) for i in range(x.ndim)]
    return _kernels.call("reduce", [x], [(shape, x.dtype)], [operation, x.ndim, *marks], variant=variant)[0]


def sums(
    dtype: str, axis: int, additions: Callable[[int], float]
) -> Callable[[np.random.Generator, str], Iterator[tuple[str, Array, Array, Array]]]:
    def cases(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
        u, tiny = UNIT[dtype], TINY[dtype]
        for n in (1, 2, 7, 33, 1000, 9001):
            for name, x in inputs(rng, (5, n) if axis else (n, 5), dtype):
                exact = longer(x)
                for operation, terms in ((SUM, exact), (SQUARES, exact * exact), (MAGNITUDES, np.abs(exact))):
                    wanted, size = terms.sum(axis=axis), np.abs(terms).sum(axis=axis)
                    allowed = (additions(n) + 2) * u * size + n * tiny
                    yield f"{name}, {n}, {operation}", reduced(x, operation, axis, variant), wanted, allowed
                wanted, size = exact.mean(axis=axis), np.abs(exact).mean(axis=axis)
                yield (
                    f"{name}, {n}, mean",
                    reduced(x, MEAN, axis, variant),
                    wanted,
                    (additions(n) + 2) * u * size + tiny,
                )
                wanted = np.sqrt((exact * exact).sum(axis=axis))
                allowed = (additions(n) / 2 + 2) * u * wanted + np.sqrt(n * tiny)
                yield f"{name}, {n}, root", reduced(x, ROOT, axis, variant), wanted, allowed
                positive = np.abs(x) + x.dtype.type(1)
                wanted = np.log(longer(positive).sum(axis=axis))
                allowed = (additions(n) + 2) * u + 3 * u * np.abs(wanted)
                yield f"{name}, {n}, log", reduced(positive, LOGARITHM, axis, variant), wanted, allowed
            x = (rng.uniform(0.5, 1.5, (5, n) if axis else (n, 5)) ** (20 / n)).astype(dtype)
            wanted = np.prod(longer(x), axis=axis)
            yield f"product of {n}", reduced(x, PRODUCT, axis, variant), wanted, n * u * np.abs(wanted)

    return cases


def running(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    for n in (1, 33, 5000):
        for name, x in inputs(rng, (3, n)):
            found = _kernels.call("cumsum", [x], [(x.shape, x.dtype)], [1, 0, 0], variant=variant)[0]
            size = np.abs(longer(x)).cumsum(axis=1)
            yield f"{name}, {n}", found, longer(x).cumsum(axis=1), n * UNIT["float32"] * size + TINY["float32"]


# ---- softmax


def softmax(logarithm: bool) -> Callable[[np.random.Generator, str], Iterator[tuple[str, Array, Array, Array]]]:
    def cases(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
        u = UNIT["float32"]
        for n in (1, 2, 17, 300, 5001):
            spread = "spread", rng.uniform(-80, 10, (3, n)).astype(np.float32)  # where subtracting the largest rounds
            for name, x in (*inputs(rng, (3, n)), spread):
                for inner in (1, 3):
                    if inner == 3:
                        x = np.ascontiguousarray(x.T)
                    outer = 3 if inner == 1 else 1
                    ints = [outer, n, inner, int(logarithm)]
                    found = _kernels.call("softmax", [x], [(x.shape, x.dtype)], ints, variant=variant)[0]
                    axis = 1 if inner == 1 else 0
                    shifted = longer(x) - longer(x).max(axis=axis, keepdims=True)
                    total = np.exp(shifted).sum(axis=axis, keepdims=True)
                    additions = n / 8 if inner == 1 else n
                    if logarithm:
                        wanted = shifted - np.log(total)
                        allowed = u * ((104 + 8 + additions) + np.abs(shifted) + 2 * np.abs(wanted) + 2 * np.log(total))
                    else:
                        wanted = np.exp(shifted) / total
                        allowed = (2 * 104 + 24 + additions) * u * wanted + TINY["float32"]
                    yield f"{name}, {n}, {inner}", found, wanted, allowed

    return cases


# ---- normalizations


def affine(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32)


def normalized(x: Array, scale: Array, bias: Array, epsilon: float, centered: bool) -> tuple[Array, Array]:
    """Exact results, and the error allowed, of rows of ``x``."""
    u, exact = UNIT["float32"], longer(x)
    mean = exact.mean(axis=-1, keepdims=True) if centered else np.zeros(1)
    size = np.abs(exact).mean(axis=-1, keepdims=True) if centered else np.zeros(1)
    inverse = 1 / np.sqrt(((exact - mean) ** 2).mean(axis=-1, keepdims=True) + epsilon)
    wanted = (exact - mean) * inverse * scale + bias
    allowed = u * np.abs(scale) * inverse * (300 * np.abs(exact - mean) + 300 * size) + 2 * u * np.abs(wanted)
    return wanted, allowed + TINY["float32"]


def layer_norm(centered: bool) -> Callable[[np.random.Generator, str], Iterator[tuple[str, Array, Array, Array]]]:
    def cases(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
        for n in (1, 2, 33, 768, 9001):
            scale, bias = affine(rng, n)
            for name, x in inputs(rng, (3, n)):
                ints, spec = [3, n, int(not centered)], [(x.shape, x.dtype)]
                found = _kernels.call("layer_norm", [x, scale, bias], spec, ints, [1e-5], variant=variant)[0]
                yield f"{name}, {n}", found, *normalized(x, scale, bias, 1e-5, centered)

    return cases


def group_norm(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    for inner in (1, 33, 5000):
        scale, bias = affine(rng, 6)
        for name, x in inputs(rng, (2, 6, inner)):
            found = _kernels.call(
                "group_norm", [x, scale, bias], [(x.shape, x.dtype)], [2, 6, inner, 3], [1e-5], variant=variant
            )[0]
            rows = [np.repeat(one.reshape(3, 2), inner, axis=1) for one in (scale, bias)]
            wanted, allowed = normalized(x.reshape(2, 3, -1), *rows, 1e-5, True)
            yield f"{name}, {inner}", found, wanted.reshape(x.shape), allowed.reshape(x.shape)


def batch_norm(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    u = UNIT["float32"]
    for name, x in inputs(rng, (2, 5, 77)):
        scale, bias = affine(rng, 5)
        mean = x[0, :, 0].copy()  # so that differences cancel
        variance = (rng.random(5) * 10.0 ** rng.uniform(-6, 6, 5)).astype(np.float32)
        operands = [x, scale, bias, mean, variance]
        found = _kernels.call("batch_norm", operands, [(x.shape, x.dtype)], [2, 5, 77], [1e-5], variant=variant)[0]
        factor, column = longer(scale) / np.sqrt(longer(variance) + 1e-5), (slice(None), None)
        wanted = (longer(x) - mean[column]) * factor[column] + bias[column]
        size = np.abs(x * factor[column]) + np.abs(mean * factor)[column] + np.abs(bias)[column]
        yield name, found, wanted, 3 * u * size + TINY["float32"]


def lrn(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    for beta in (0.75, 0.5, 1.0, 0.6):
        for name, x in inputs(rng, (1, 7, 37)):
            found = _kernels.call("lrn", [x], [(x.shape, x.dtype)], [1, 7, 37, 5], [0.5, beta, 2.0], variant=variant)[0]
            squares = longer(x) ** 2
            total = np.stack([squares[:, max(0, c - 2) : c + 3].sum(axis=1) for c in range(7)], axis=1)
            wanted = longer(x) / (2.0 + 0.5 / 5 * total) ** beta
            allowed = (5 + 8 + (200 * beta if beta == 0.6 else 0)) * UNIT["float32"] * np.abs(wanted)
            yield f"{name}, beta {beta}", found, wanted, allowed + TINY["float32"]


# ---- products


def operands(
    rng: np.random.Generator, first: tuple[int, ...], second: tuple[int, ...], dtype: str
) -> Iterator[tuple[str, Array, Array]]:
    """Two operands of products: the second as hard as the first."""
    for (name, a), (_, b) in zip(inputs(rng, first, dtype), inputs(rng, second, dtype), strict=True):
        yield name, a, b


def gemm(dtype: str) -> Callable[[np.random.Generator, str], Iterator[tuple[str, Array, Array, Array]]]:
    def cases(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
        for m, n, k in ((1, 33, 700), (3, 17, 1), (13, 50, 600), (30, 20, 3071)):
            for name, a, b in operands(rng, (m, k), (k, n), dtype):
                ints = [m, n, k, 0, 0, 0, 0, 0, 0]
                scratch = 0 if dtype != "float32" else 64 * min(k * -(-n // 16), 6144)
                found = _kernels.call(
                    "gemm", [a, b, None, None], [((m, n), a.dtype)], ints, [1, 1, 0, 0], scratch, variant
                )[0]
                size = np.abs(longer(a)) @ np.abs(longer(b))
                allowed = (k + 1) * UNIT[dtype] * size + k * TINY[dtype]
                yield f"{name}, {m}x{n}x{k}", found, longer(a) @ longer(b), allowed

    return cases


def tiled(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    """Products that variants with AMX compute by tiles, also with magnitudes beside the limits of their groups,
    2^-40 and 2^20, and with rows that are far smaller than others of their group."""
    for m, n, k in ((64, 96, 64), (97, 80, 300), (40, 530, 33)):
        for name, a, b in operands(rng, (m, k), (k, n), "float32"):
            for power in (0, -40, 20):
                if power:
                    name = f"2^{power} rows"
                    edge = np.float32(2.0**power)
                    a = rng.uniform(-1, 1, (m, k)).astype(np.float32) * edge
                    for group, largest in enumerate((edge, *np.nextafter(edge, np.array([0, 1e9], np.float32)))):
                        a[32 * group : 32 * group + 32][:1, :1] = largest
                    a[1] *= np.float32(10.0 ** rng.integers(-38 - min(power, 0) // 3, 0))
                ints = [m, n, k, 0, 0, 0, 0, 0, 0]
                found = _kernels.call(
                    "gemm", [a, b, None, None], [((m, n), a.dtype)], ints, [1, 1, 0, 0], None, variant
                )[0]
                size = np.abs(longer(a)) @ np.abs(longer(b))
                allowed = (k + 1) * UNIT["float32"] * size + k * 2.0**-104
                yield f"{name}, {m}x{n}x{k}", found, longer(a) @ longer(b), allowed


# ---- other kernels


def power(dtype: str) -> Callable[[np.random.Generator, str], Iterator[tuple[str, Array, Array, Array]]]:
    def cases(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
        n, most = 4000, 80.0 if dtype == "float32" else 700.0  # of the result's logarithm
        bases = {
            "all": np.exp(rng.uniform(-most, most, n)),
            "near 1": 1 + rng.standard_normal(n) * 10.0 ** rng.uniform(-6, -1, n),
            "negative": -np.exp(rng.uniform(-3, 3, n)),
        }
        for name, base in bases.items():
            x = base.astype(dtype)
            logarithm = np.log(np.abs(longer(x)))
            y = (rng.uniform(-most, most, n) / np.where(np.abs(logarithm) < 1e-6, 1, logarithm)).astype(dtype)
            if name == "negative":
                y = np.round(np.clip(y, -20, 20))
            for exponent in (y, np.array([2], dtype), np.array([3], dtype), np.array([0.5], dtype)):
                if name == "negative" and exponent.size == 1 and exponent[0] == 0.5:
                    continue
                found = _kernels.call("pow", [x, exponent], [(x.shape, x.dtype)], variant=variant)[0]
                wanted = longer(x) ** longer(exponent)
                fits = (np.abs(wanted) < np.finfo(dtype).max) & (np.abs(wanted) > TINY[dtype])
                yield f"{name}, {exponent[0]}", found[fits], wanted[fits], 2 * UNIT[dtype] * np.abs(wanted[fits])

    return cases


def average_pool(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    """Windows of several sizes; those of 3 x 3 also with padding, with strides, and in planes of many vectors."""
    plain, wide = (1, 3, 20, 23), (1, 2, 19, 70)
    for shape, kernel, stride, pad in (
        *((plain, kernel, 1, 0) for kernel in (1, 2, 3, 7)),
        *((shape, 3, stride, 1) for shape in (plain, wide) for stride in (1, 2)),
    ):
        edges = [(0, 0), (0, 0), (pad, pad), (pad, pad)]

        def windows(array: Array) -> Array:
            padded = np.pad(array, edges)  # noqa: B023
            every = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))  # noqa: B023
            return np.asarray(every[:, :, ::stride, ::stride])  # noqa: B023

        for name, x in inputs(rng, shape):
            terms, n = windows(longer(x)), windows(np.ones(shape)).sum(axis=(4, 5))
            ints = [1, kernel, kernel, 1, stride, stride, 0, pad, pad, 1, 1, 1, 0, pad, pad, 0]
            spec = [(terms.shape[:4], x.dtype)]
            found = _kernels.call("average_pool", [x], spec, ints, variant=variant)[0]
            size = np.abs(terms).sum(axis=(4, 5)) / n
            yield (
                f"{name}, {shape}, {kernel}, {stride}, {pad}",
                found,
                terms.sum(axis=(4, 5)) / n,
                (n + 1) * UNIT["float32"] * size + TINY["float32"],
            )


def lp_pool(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    for p in (1, 2, 3):
        for name, x in inputs(rng, (1, 3, 20, 23)):
            if p == 3 and name in ("scales", "huge", "tiny", "one large"):
                x = np.cbrt(x)  # so that results are normal numbers
            windows = np.lib.stride_tricks.sliding_window_view(np.abs(longer(x)), (3, 3), (2, 3))
            ints = [1, 3, 3, 1, 1, 1, 0, 0, 0, 1, 1, 1, p]
            found = _kernels.call("lp_pool", [x], [(windows.shape[:4], x.dtype)], ints, variant=variant)[0]
            wanted = (windows.astype(np.longdouble) ** p).sum(axis=(4, 5)) ** (np.longdouble(1) / p)
            yield f"{name}, {p}", found, wanted, 1.001 * UNIT["float32"] * wanted


def resample(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    for taps in (1, 2, 4, 9):
        for inner in (1, 5):
            for name, x in inputs(rng, (3, 40, inner)):
                start = rng.integers(0, 40 - taps + 1, 61).astype(np.int32)
                weight = rng.standard_normal((taps, 61)).astype(np.float32)
                ints, spec = [3, 40, inner, 61, taps], [((3, 61, inner), x.dtype)]
                found = _kernels.call("resample", [x, start, weight], spec, ints, variant=variant)[0]
                terms = np.stack([longer(x)[:, start + t] * weight[t][:, None] for t in range(taps)])
                allowed = taps * UNIT["float32"] * np.abs(terms).sum(axis=0) + taps * TINY["float32"]
                yield f"{name}, {taps}, {inner}", found, terms.sum(axis=0), allowed


def fourier(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    for length in (1, 7, 64, 61, 67, 360, 499):
        steps = np.arange(length)
        turns = (np.outer(steps, steps) % length).astype(np.longdouble) / length
        for inverse in (False, True):
            tables = dft_tables(length, inverse)
            angles = (2 if inverse else -2) * np.longdouble("3.14159265358979323846264338327950288") * turns
            waves = np.cos(angles) + np.clongdouble(1j) * np.sin(angles)
            for name, x in inputs(rng, (2, length, 1, 2)):
                ints = [2, length, 1, 2, length, length, int(inverse), 0]
                spec = [(x.shape, x.dtype)]
                found = _kernels.call("dft", [x, *tables], spec, ints, [], 256 * len(tables[0]), variant)[0]
                numbers = x[:, :, 0, 0] + np.clongdouble(1j) * x[:, :, 0, 1].astype(np.longdouble)
                result = numbers @ waves / (length if inverse else 1)
                wanted = np.stack([result.real, result.imag], -1)[:, :, None]
                size = np.abs(numbers).sum(axis=1)[:, None, None, None] / (length if inverse else 1)
                yield (
                    f"{name}, {length}",
                    found,
                    wanted,
                    UNIT["float32"] * np.abs(wanted) + 2.0**-45 * size + TINY["float32"],
                )


def attention(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    u = UNIT["float32"]
    for heads, m, n, d in ((2, 30, 33, 16), (1, 7, 197, 64), (3, 25, 300, 8)):
        sources = (inputs(rng, (heads, size, d)) for size in (m, n, n))
        for (name, q), (_, k), (_, v) in zip(*sources, strict=True):
            sizes = np.abs(longer(q)) @ np.abs(longer(k)).transpose(0, 2, 1)
            alpha = np.float32(20 / sizes.max())
            if alpha == 0 or not np.isfinite(alpha):
                continue  # outside the numbers of float32
            ints = [m, n, d, d, 1, 1, d, 1, d, 1, d, 1, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, heads]
            ints += [m * d, n * d, n * d, m * d, 0, 0, 0, 0]
            scratch = 4 * (d * -(-n // 16) * 16 + n * -(-d // 16) * 16 + max(24, min(m, 8192 // n)) * n)
            operands, spec = [q, k, v, None, None, None, None], [(q.shape, q.dtype)]
            found = _kernels.call("attention", operands, spec, ints, [alpha, 0, 0], scratch, variant)[0]
            scores = float(alpha) * (longer(q) @ longer(k).transpose(0, 2, 1))
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            off = (2 * (d + 2) * float(alpha) * sizes).max(axis=-1, keepdims=True)  # of scores, in u
            allowed = u * (off + 240 + 2 * n) * (weights @ np.abs(longer(v))) + n * TINY["float32"] * np.abs(v).max()
            yield f"{name}, {m}x{n}x{d}", found, weights @ longer(v), allowed + TINY["float32"]


def rnn(rng: np.random.Generator, variant: str) -> Iterator[tuple[str, Array, Array, Array]]:
    """The error of a state passes through the weights to the next one, where tanh does not enlarge it."""
    u, steps = UNIT["float32"], 12
    for batch, hidden in ((1, 40), (5, 33)):
        panels = -(-hidden // 16)
        for name, r in inputs(rng, (hidden, hidden)):
            r = (r / np.abs(r).sum(axis=1).max()).astype(np.float32)
            z = (rng.standard_normal((steps, batch, hidden)) * 10.0 ** rng.uniform(-3, 1)).astype(np.float32)
            size = panels * 16 * hidden
            packed = _kernels.call("pack_b", [r], [((size,), r.dtype)], [1, hidden, hidden, 1], variant=variant)[0]
            specs = [((steps, 1, batch, hidden), r.dtype), ((1, batch, hidden), r.dtype)]
            ints, scratch = [steps, batch, hidden, 1, 0, 0, 0, 1], 4 * batch * 3 * 16 * panels
            operands = [z.reshape(steps, batch, 1, 1, hidden), packed, None, None]
            found = _kernels.call("rnn", operands, specs, ints, [np.inf, 0, 0], scratch, variant)[0][:, 0]
            state = off = np.zeros((batch, hidden))
            for step in range(steps):
                argument = longer(z[step]) + state @ longer(r).T
                total = np.abs(longer(z[step])) + np.abs(state) @ np.abs(longer(r)).T
                off = off @ np.abs(longer(r)).T + (hidden + 1) * u * total
                state = np.tanh(argument)
                off = off + 4 * u * np.abs(state) + TINY["float32"]
                yield f"{name}, {hidden}, step {step}", found[step], state, off


KERNELS: dict[str, Kernel] = {
    "sums of rows": Kernel(
        "272 u S: 4096 elements at a time in float32, these in float64", sums("float32", 1, lambda n: min(n, 270))
    ),
    "sums of columns": Kernel("(n + 2) u S", sums("float32", 0, lambda n: n)),
    "sums of rows, float64": Kernel("(n / 8 + 9) u S", sums("float64", 1, lambda n: n / 8 + 7)),
    "sums of columns, float64": Kernel("(n + 2) u S", sums("float64", 0, lambda n: n)),
    "running sums": Kernel("n u S", running),
    "softmax": Kernel("(232 + n / 8) u of the result; along other axes than the last, (232 + n) u", softmax(False)),
    "log softmax": Kernel("(112 + n / 8) u + 3 u of the result and of the sum's log; n / 8 as above", softmax(True)),
    "layer norm": Kernel("300 u scale / deviation (distance from the mean + mean magnitude) + 2 u", layer_norm(True)),
    "RMS norm": Kernel("302 u of the result before the bias + 2 u", layer_norm(False)),
    "group norm": Kernel("as layer norm", group_norm),
    "batch norm": Kernel("3 u (x factor + mean factor + bias), factor = scale / deviation", batch_norm),
    "LRN": Kernel("(size + 8) u of the result; + 200 beta u where beta is not 0.5, 0.75 or 1", lrn),
    "products": Kernel("(n + 1) u S", gemm("float32")),
    "products, float64": Kernel("(n + 1) u S", gemm("float64")),
    "products by tiles": Kernel("(n + 1) u S + n 2⁻¹⁰⁴", tiled),
    "Pow": Kernel("2 u of the result", power("float32")),
    "Pow, float64": Kernel("2 u of the result", power("float64")),
    "AveragePool": Kernel("(n + 1) u S / n", average_pool),
    "LpPool": Kernel("1.001 u of the result", lp_pool),
    "Resize, each axis": Kernel("n u S, for the weights in float32", resample),
    "DFT": Kernel("u of the result + 2⁻⁴⁵ S", fourier),
    "attention": Kernel("(2 (d + 2) alpha S of the scores + 240 + 2 n) u S of the weighted values", attention),
    "RNN, each step": Kernel("(n + 1) u S + 4 u of the state, and the error of the state before", rnn),
}  # fmt: skip


def check(name: str, seed: int, variant: str) -> tuple[float, list[str]]:
    """The largest part of its bound that a kernel used, and what is beyond."""
    used, beyond = 0.0, []
    with np.errstate(all="ignore"):
        for case, found, wanted, allowed in KERNELS[name].cases(np.random.default_rng(seed), variant):
            error = np.abs(found.astype(wanted.dtype) - wanted)
            part = np.where(error == 0, 0, error / allowed)
            worst = float(np.where(np.isnan(part), np.inf, part).max(initial=0))
            used = max(used, worst)
            if worst > 1:
                beyond.append(f"{name}, {variant}, seed {seed}: {case}: {worst:.3g} of its bound")
    return used, beyond


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="names as in KERNELS; all without any")
    parser.add_argument("--variant", choices=_kernels.variants(), action="append")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    used: dict[str, float] = defaultdict(float)
    failed = False
    for name in chosen.kernels or KERNELS:
        for variant in chosen.variant or _kernels.variants():
            for seed in range(chosen.seeds):
                most, beyond = check(name, seed, variant)
                used[name] = max(used[name], most)
                failed |= bool(beyond)
                print(*beyond, sep="\n", end="\n" * bool(beyond))
        print(f"| {name} | {KERNELS[name].text} | {used[name]:.2f} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
