"""Every float32 elementary function of the CPU device against float64, over all inputs or an adversarial part of them:

    python tests/unary_sweep.py                       # all 2^32 inputs, every function, the variant in use: 30 minutes
    python tests/unary_sweep.py tanh erf --variant baseline
    python tests/unary_sweep.py --every 64            # one of 64 pieces of neighboring inputs: half a minute
    python tests/unary_sweep.py --part                # what tests/kernels/test_unary.py runs: seconds

Inputs go in ascending order, so that neighbors in the array are neighbors among the floats. `faults` states what holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from hetero import _kernels

Array = np.ndarray[Any, Any]
HEADER = Path(__file__).parents[1] / "src" / "_core" / "kernels" / "unary_codes.h"
CODES = {name.lower(): int(code) for name, code in re.findall(r"X\((\w+), (\d+)\)", HEADER.read_text())}
INFINITY = 0x7F800000
"""Bits of infinity: inputs are numbered from -INFINITY - 1 (-inf) over -1 (-0) and 0 to INFINITY (inf)."""
CHUNK = 1 << 15


@dataclasses.dataclass(frozen=True)
class Function:
    """A function, its error bound, and what its graph looks like.

    ``ulp``, ``absolute``: |found - exact| <= max(ulp * spacing(exact), absolute). ``rising``: [from, to], where the
    function never falls; ``falling``: where it never rises. ``limits``: values that the function nears; where it is
    within an eighth of a unit in the last place of one, the result is that one. ``odd``: f(-x) is -f(x), bit for bit,
    zeros included. ``formula``: inputs whose result is NaN by ONNX's formula though the function has a limit there.
    """

    p0: float
    p1: float
    exact: Callable[[Array], Array]
    ulp: float
    absolute: float = 0
    rising: tuple[float, float] | None = None
    falling: tuple[float, float] | None = None
    limits: tuple[float, ...] = ()
    odd: bool = False
    formula: tuple[float, ...] = ()


INF = float("inf")
LINE = (-INF, INF)
HALF_PI = float(np.float32(np.pi / 2))


def gelu_erf(x: Array) -> Array:
    return 0.5 * x * special.erfc(-x / np.sqrt(2))


def gelu_tanh(x: Array) -> Array:
    return x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def selu(x: Array) -> Array:
    return 1.0625 * np.where(x < 0, 1.625 * np.expm1(x), x)


FUNCTIONS: dict[str, Function] = {
    "sigmoid": Function(0, 0, special.expit, 2.5, 1e-38, rising=LINE, limits=(0, 1)),
    "tanh": Function(0, 0, np.tanh, 1.8, rising=LINE, limits=(-1, 1), odd=True),
    "erf": Function(0, 0, special.erf, 2, 1e-44, rising=LINE, limits=(-1, 1), odd=True),
    "exp": Function(0, 0, np.exp, 1.1, 2e-45, rising=LINE, limits=(0,)),
    "log": Function(0, 0, np.log, 1, rising=(0, INF)),
    "elu": Function(1, 0, lambda x: np.where(x < 0, np.expm1(x), x), 1.1, 1e-44, rising=LINE, limits=(-1,)),
    "celu": Function(2, 0, lambda x: np.where(x < 0, 2 * np.expm1(x / 2), x), 1.1, 1e-44, rising=LINE, limits=(-2,)),
    "selu": Function(1.625, 1.0625, selu, 3, 1e-44, rising=LINE, limits=(-1.625 * 1.0625,)),
    "swish": Function(
        1,
        0,
        lambda x: x * special.expit(x),
        2.1,
        3e-45,
        rising=(-1.2784645, INF),
        falling=(-INF, -1.2784645),
        limits=(0,),
        formula=(-INF,),
    ),
    "softplus": Function(0, 0, lambda x: np.logaddexp(0, x), 2.5, 1e-44, rising=LINE, limits=(0,)),
    "softsign": Function(0, 0, lambda x: x / (1 + np.abs(x)), 0.51, rising=LINE, odd=True, formula=(-INF, INF)),
    "mish": Function(
        0,
        0,
        lambda x: x * np.tanh(np.logaddexp(0, x)),
        2.1,
        3e-45,
        rising=(-1.1924311, INF),
        falling=(-INF, -1.1924311),
        limits=(0,),
        formula=(-INF,),
    ),
    "gelu_erf": Function(
        0, 0, gelu_erf, 2, 5e-9, rising=(-0.7517915, INF), falling=(-INF, -0.7517915), limits=(0,), formula=(-INF,)
    ),
    "gelu_tanh": Function(
        0, 0, gelu_tanh, 2, 5e-9, rising=(-0.7524614, INF), falling=(-INF, -0.7524614), limits=(0,), formula=(-INF,)
    ),
    "sin": Function(0, 0, np.sin, 2, 1.2e-7, rising=(-HALF_PI, HALF_PI), falling=(HALF_PI, 3 * HALF_PI), odd=True),
    "cos": Function(0, 0, np.cos, 2, 1.2e-7, rising=(-2 * HALF_PI, 0), falling=(0, 2 * HALF_PI)),
    "tan": Function(0, 0, np.tan, 2, rising=(-1.57, 1.57), odd=True),
    "asin": Function(0, 0, np.arcsin, 2, rising=(-1, 1), odd=True),
    "acos": Function(0, 0, np.arccos, 2, falling=(-1, 1)),
    "atan": Function(0, 0, np.arctan, 2, rising=LINE, odd=True),
    "sinh": Function(0, 0, np.sinh, 3, rising=LINE, odd=True),
    "cosh": Function(0, 0, np.cosh, 3),  # of the C library: next to 0.187, glibc's falls by one unit
    "asinh": Function(0, 0, np.arcsinh, 3, rising=LINE, odd=True),
    "acosh": Function(0, 0, np.arccosh, 3, rising=(1, INF)),
    "atanh": Function(0, 0, np.arctanh, 3, rising=(-1, 1), odd=True),
}


def unary(
    x: Array, op: str, p0: float = 0, p1: float = 0, *, variant: str | None = None, dtype: type | None = None
) -> Array:
    spec = [(x.shape, dtype or x.dtype)]
    found: Array = _kernels.call("unary", [x], spec, [CODES[op]], [p0, p1], variant=variant)[0]
    return found


def numbered(numbers: Array) -> Array:
    """Float32 numbers from their places in ascending order."""
    return np.where(numbers >= 0, numbers, 0x7FFFFFFF - numbers).astype(np.uint32).view(np.float32)


def everything(every: int = 1) -> Iterator[Array]:
    """All floats in ascending order, in pieces that share an end, or one of ``every`` pieces; then the same of NaN."""
    for start in range(-INFINITY - 1, INFINITY, every * CHUNK):
        yield numbered(np.arange(start, min(start + CHUNK, INFINITY) + 1, dtype=np.int64))
    for sign in (0, 1 << 31):
        for start in range(INFINITY + 1, 1 << 31, every * CHUNK):
            yield np.arange(sign + start, sign + min(start + CHUNK, 1 << 31), dtype=np.uint32).view(np.float32)


BREAKS = [0, 1e-38, 1.17549435e-38, 0.28, 0.3, 0.3465736, 0.45, 0.5, 0.55, 0.6, 1, 1.5708, 2.25, 3.92, 3.95, 5.7275649]
BREAKS += [3.5142686e-4, 1.5417147, 3.6028154]  # where Mish, Sin and Gelu once fell
BREAKS += [0.7517915, 0.7524614, *(0.375 + 0.75 * n for n in range(7)), 5.875, 6.25]  # minima and seams of Gelu
BREAKS += [1.2784645, 1.1924311, *(0.68 * n for n in (1, 2, 3, 4, 6, 8, 10)), 8, 110]  # those of Swish and Mish
BREAKS += [9.01, 9.02, 10.4, 16.6, 17.33, 20, 30, 87.3, 88, 88.722839, 89, 103.972, 104, 8192, 2.0**24, 1e38]
BREAKS += [*((n + 0.5) / 7 for n in range(7)), *(7 / (n + 0.5) for n in range(7))]  # seams of Atan
"""Where an implementation changes its way, or a function its nature."""


def part() -> Iterator[Array]:
    """Runs of neighbors around all breaks and limits, at the start of and at random places in every binade, and NaNs of
    many payloads: some 200,000 numbers."""
    rng = np.random.default_rng(0)
    binades = np.arange(0, INFINITY + 1, 1 << 23)
    starts = [binades - 16, *(binades + rng.integers(0, 1 << 23, binades.size) for _ in range(6))]
    runs = [(start, 32) for start in np.concatenate(starts)]
    runs += [(number - 1000, 2000) for number in np.array(BREAKS, np.float32).view(np.int32).astype(np.int64)]
    runs += [(INFINITY - 100, 101)]
    positive = np.concatenate([np.arange(start, start + count) for start, count in runs])
    positive = positive[(positive >= 0) & (positive <= INFINITY)]
    yield numbered(np.unique(np.concatenate([positive, -1 - positive])))
    payloads = [1, 2, 3, 0x100, 0x1FF, 0x3FFFFF, 0x400000, 0x400001, 0x4000FF, 0x4001FF, 0x7FFFFF]
    yield (np.array(payloads, np.uint32) + INFINITY).view(np.float32)
    yield (np.array(payloads, np.uint32) + (INFINITY | 1 << 31)).view(np.float32)


def faults(op: str, x: Array, variant: str | None = None) -> list[str]:
    """What is wrong with the function's values at ``x``, which ascends or is all NaN."""
    with np.errstate(all="ignore"):
        return list(_faults(op, x, variant))


def _faults(op: str, x: Array, variant: str | None) -> Iterator[str]:
    f = FUNCTIONS[op]
    found = unary(x, op, f.p0, f.p1, variant=variant)
    exact = np.asarray(f.exact(x.astype(np.float64)))
    # Most are right beyond doubt: within their bound whatever the spacing, or rounded correctly.
    right = np.abs(found - exact) <= np.abs(exact) * (f.ulp * 2.0**-24)
    right |= found == exact.astype(np.float32)
    for limit in f.limits:
        right &= (found == np.float32(limit)) | (np.abs(exact - limit) > 2.0**-20)
    if not right.all():
        wrong = ~right
        yield from _point_faults(op, x[wrong], found[wrong], exact[wrong])
    if f.odd:
        mirrored = unary(-x, op, f.p0, f.p1, variant=variant)
        same = mirrored.view(np.uint32) ^ np.uint32(1 << 31) == found.view(np.uint32)
        if not same.all():
            yield from _told(op, x, found, exact, ~same & ~np.isnan(found), "not odd")
    for ends, sign in ((f.rising, 1), (f.falling, -1)):
        if ends is not None:
            wrong = (found[1:] < found[:-1]) if sign > 0 else (found[1:] > found[:-1])
            if wrong.any():
                wrong &= (x[:-1] >= ends[0]) & (x[1:] <= ends[1])
                yield from _told(op, x, found, exact, np.append(wrong, False), "not monotone")


def _told(op: str, x: Array, found: Array, exact: Array, wrong: Array, what: str) -> Iterator[str]:
    if wrong.any():
        i = int(wrong.argmax())
        yield f"{op}({x[i]!r}) = {found[i]!r}, {what}; exactly {exact[i]!r}; {int(wrong.sum())} such"


def _point_faults(op: str, x: Array, found: Array, exact: Array) -> Iterator[str]:
    """Faults that show in a value alone."""
    f = FUNCTIONS[op]
    undefined = np.isnan(exact)
    for number in f.formula:
        undefined |= x == number
    none = np.isnan(found)
    if undefined.all() and none.all():
        return
    yield from _told(op, x, found, exact, none & ~undefined, "NaN")
    yield from _told(op, x, found, exact, ~none & undefined, "not NaN")
    judged = ~none & ~undefined
    x, found, exact = x[judged], found[judged], exact[judged]
    top = float(np.finfo(np.float32).max)
    expected = np.clip(exact, -top, top)
    bound = np.maximum(f.ulp * np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64), f.absolute)
    error = np.abs(np.clip(found.astype(np.float64), -top, top) - expected)
    yield from _told(op, x, found, exact, error > bound, "beyond its bound")
    yield from _told(op, x, found, exact, np.isinf(found) & (np.abs(exact) < top), "infinite")
    yield from _told(op, x, found, exact, np.isinf(exact) & np.isinf(x) & (found != exact), "not infinite")
    for limit in f.limits:
        near = np.abs(exact - limit) <= (abs(limit) * 2.0**-27 if limit else 2.0**-152)
        yield from _told(op, x, found, exact, near & (found != np.float32(limit)), f"not {limit}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", help="names as in FUNCTIONS; all without any")
    parser.add_argument("--variant", choices=_kernels.variants())
    parser.add_argument("--part", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="test one of this many pieces of 32,768 neighbors")
    options = parser.parse_args(arguments)
    wrong = 0
    for op in options.functions or FUNCTIONS:
        began = time.perf_counter()
        found = [
            fault
            for x in (part() if options.part else everything(options.every))
            for fault in faults(op, x, options.variant)
        ]
        wrong += bool(found)
        print(
            f"{op}: {len(found) or 'no'} faults in {time.perf_counter() - began:.0f} s",
            *found[:8],
            sep="\n  ",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
