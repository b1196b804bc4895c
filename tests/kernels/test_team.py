"""Kernels over a team of threads: the bits that one thread gives, whatever the split; and how teams begin and end."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from hetero import _kernels
from hetero._sizes import ask
from hetero.devices.cpu.operators.fourier import dft_tables
from kernel_arrays import normal
from plain_convolution import naive
from threads import in_threads

pytestmark = pytest.mark.spread(2)

TEAMS = [_kernels.Team(threads) for threads in (2, 3, 7)]


def assert_no_split_matters(name, inputs, outputs, ints=(), floats=(), scratch_bytes=0):
    alone = _kernels.call(name, inputs, outputs, ints, floats, scratch_bytes)
    for team in TEAMS:
        for _ in range(3):
            split = _kernels.call(name, inputs, outputs, ints, floats, scratch_bytes, team=team)
            for one, many in zip(alone, split, strict=True):
                assert np.array_equal(one, many, equal_nan=True)
    return alone


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(
    "shape",
    [(1, 1000, 512), (1, 9000, 200), (1, 20000, 20), (2, 777, 300), (3, 64, 4096), (4, 333, 100),
     (9, 40, 700), (128, 768, 64), (500, 8, 90),
     (1000, 3, 100), (257, 129, 65), (13, 17, 1000), (50, 333, 2048), (2000, 192, 48), (4000, 33, 20)],
)  # fmt: skip
def test_matrix_products(shape, trans_b):
    m, n, k = shape
    a, b, bias = normal(m, k), normal(n, k, seed=1) if trans_b else normal(k, n, seed=1), normal(n, seed=2)
    scratch = 4 * 16 * min(k * -(-n // 16), 6144)
    (y,) = assert_no_split_matters(
        "gemm", [a, b, bias], [((m, n), np.float32)], [m, n, k, 0, trans_b, 0, 0, 1, 0], [1, 1, 0, 0], scratch
    )
    assert np.allclose(y, a.astype(np.float64) @ (b.T if trans_b else b) + bias, atol=1e-5 * k)


def test_batches_of_products_with_addend():
    a, b, addend = normal(3, 1, 50, 40), normal(1, 4, 40, 30), normal(3, 4, 50, 30)
    ints = [50, 30, 40, 0, 0, 0, 0, 0, 0, 2, 3, 4, 50 * 40, 0, 0, 40 * 30]
    (y,) = assert_no_split_matters(
        "matmul", [a, b, None, addend], [((3, 4, 50, 30), np.float32)], ints, [1, 1, 0, 0], 4 * 16 * 40 * 2
    )
    assert np.allclose(y, a @ b + addend, atol=1e-3)


CONVOLUTIONS = [
    # channels, maps, group, size, kernel, stride, pad
    (64, 96, 1, 14, 3, 1, 1),
    (64, 256, 1, 7, 1, 1, 0),
    (256, 64, 1, 28, 1, 2, 0),
    (3, 64, 1, 61, 7, 2, 3),
    (64, 64, 64, 30, 3, 1, 1),
    (160, 160, 160, 7, 5, 1, 2),
    (32, 48, 4, 19, 3, 2, 1),
    (16, 200, 1, 5, 5, 1, 2),
    (8, 3, 1, 100, 3, 1, 1),
    (3, 24, 1, 96, 3, 2, 1),
    (130, 9, 1, 48, 3, 1, 1),
    (384, 200, 1, (3, 80), 1, 1, 0),
    (96, 50, 1, (1, 160), 1, 1, 0),
    (240, 500, 1, 1, 1, 1, 0),
    (48, 1100, 4, 7, 7, 1, 0),
]


@pytest.mark.parametrize("shape", CONVOLUTIONS)
@pytest.mark.parametrize("batch", [1, 3])
def test_convolutions(shape, batch):
    channels, maps, group, size, kernel, stride, pad = shape
    size = size if isinstance(size, tuple) else (size, size)
    out = [(length + 2 * pad - kernel) // stride + 1 for length in size]
    x, w = normal(batch, channels, *size), normal(maps, channels // group, kernel, kernel, seed=1)
    bias, addend = normal(maps, seed=2), normal(batch, maps, *out, seed=3)
    depth = channels // group * kernel * kernel
    scratch = (1 << 20) + 4 * group * -(-maps // group // 16) * 16 * depth
    ints = [group, 0, 0, 1, kernel, kernel, 1, stride, stride, 0, pad, pad, 1, 1, 1]
    assert_no_split_matters("conv", [x, w, bias, addend], [((batch, maps, *out), np.float32)], ints, [0, 0], scratch)


@pytest.mark.parametrize(
    ("heads", "m", "n", "d"), [(3, 197, 197, 64), (6, 50, 33, 32), (1, 1000, 70, 16), (40, 24, 9, 8)]
)
def test_attention(heads, m, n, d):
    q, k, v, addend = (
        normal(heads, m, d),
        normal(heads, n, d, seed=1),
        normal(heads, n, d, seed=2),
        normal(m, n, seed=3),
    )
    ints = [m, n, d, d, 1, 1, d, 1, d, 1, d, 1, d, 0, 0, n, 0, 0, 0, 0, 0, 0, 0, 1, heads]
    ints += [m * d, n * d, n * d, m * d, 0, 0, 0, 0]
    scratch = 4 * (d * -(-n // 16) * 16 + n * -(-d // 16) * 16 + max(24, min(m, 8192 // n)) * n)
    (y,) = assert_no_split_matters(
        "attention", [q, k, v, None, addend, None, None], [((heads, m, d), np.float32)], ints, [0.5, 0, 0], scratch
    )
    scores = np.exp(0.5 * q.astype(np.float64) @ k.transpose(0, 2, 1) + addend)
    assert np.allclose(y, scores / scores.sum(-1, keepdims=True) @ v, atol=1e-4)


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("channels", "maps", "size"), [(64, 64, 30), (200, 40, 14), (24, 130, 61)])
def test_winograd(tile, channels, maps, size):
    x, w, bias = normal(2, channels, size, size), normal(maps, channels, 3, 3, seed=1), normal(maps, seed=2)
    packed_size = -(-maps // 16) * 16 * ((tile + 2) ** 2 * channels + 1)
    (packed,) = _kernels.call("pack_winograd", [w], [((packed_size,), np.float32)], [1, channels, maps, tile])
    ints, plain = [1, tile, 0, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1], w.reshape(-1).view(np.uint8)
    x[0, 5, 3, 4], x[1, 7, 1, 1] = np.inf, 1e7  # outputs that are recomputed
    assert_no_split_matters(
        "conv", [x, packed, bias, None, plain], [((2, maps, size, size), np.float32)], ints, [0, 0], 4 << 20
    )


def test_phases():
    x, ints = normal(5, 7, 40, 50), [3, 2, 14, 26, 1, 2]
    assert_no_split_matters("phases", [x], [((5, 7, 42, 52), np.float32)], [0, *ints])
    assert_no_split_matters("phases", [normal(5, 7, 42, 52)], [((5, 7, 40, 50), np.float32)], [1, *ints])


def test_col2im_with_channels_in_the_lanes():
    columns, ints = normal(2, 3, 9 * 9, 4 * 4, 40), [1, 4, 4, 1, 9, 9, 1, 2, 2, 0, 1, 1, 1, 1, 1, 3]
    scratch = 4 * 16 * 18 * 18
    assert_no_split_matters(
        "col2im_lanes", [columns, normal(120)], [((2, 120, 18, 18), np.float32)], ints, scratch_bytes=scratch
    )


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("channels", "maps", "group", "size"),
    [(96, 96, 1, 26), (96, 50, 1, 24), (128, 17, 1, 21), (64, 256, 1, 8), (90, 70, 2, 17), (33, 300, 1, 9),
     (3, 40, 1, 90)],
)  # fmt: skip
def test_shared_blocks_of_winograd(tile, channels, maps, group, size):
    """From a part of one block to several for each thread; several groups; weights whose outputs are recomputed."""
    x, w = normal(1, group * channels, size, size), normal(group * maps, channels, 3, 3, seed=1)
    bias, addend = normal(group * maps, seed=2), normal(1, group * maps, size, size, seed=3)
    packed_size = group * -(-maps // 16) * 16 * ((tile + 2) ** 2 * channels + 1)
    ints = [group, tile, 0, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    for case in range(3):
        if case == 1:
            x[0, channels // 2, 1, size - 1], x[0, -1, size - 1, size - 1] = np.inf, 1e7
        if case == 2:
            w[maps // 3, 1, 2, 0] = np.inf
        (packed,) = _kernels.call("pack_winograd", [w], [((packed_size,), np.float32)], [group, channels, maps, tile])
        operands = [x, packed, bias, addend, w.reshape(-1).view(np.uint8)]
        (y,) = assert_no_split_matters("conv", operands, [(addend.shape, np.float32)], ints, [0, 0], 4 << 20)
        if case == 0:
            expected = naive(x, w, group, [1, 1], [1, 1], [1, 1], [1, 1]) + bias.reshape(-1, 1, 1) + addend
            assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("max_pool", "float32"), ("average_pool", "float32"), ("max_pool", "float64"), ("max_pool_any", "uint8")],
)
@pytest.mark.parametrize(("planes", "size", "kernel", "stride"), [(64, 33, 3, 2), (5, 101, 2, 2), (1, 300, 3, 1)])
def test_pools(name, dtype, planes, size, kernel, stride):
    out = (size - kernel) // stride + 1
    ints = [1, kernel, kernel, 1, stride, stride, 0, 0, 0, 1, 1, 1]
    ints += {"max_pool": [], "average_pool": [0, 0, 0, 0], "max_pool_any": [0]}[name]
    x, spec = (100 * normal(2, planes, size, size)).astype(dtype), [((2, planes, out, out), dtype)]
    for room in (0, 1 << 23):
        assert_no_split_matters(name, [x], spec, ints, [], room)


@pytest.mark.parametrize(
    ("offset", "counts", "steps"),
    [
        (0, (500, 300), (300, 1)),  # all as one row
        (3, (400, 280), (300, 1)),  # rows
        (0, (300, 500), (1, 300)),  # a transposition
        (7, (3, 120, 400), (40_000, 1, 100)),  # several
        (2, (150_000 // 300 - 1, 100, 3), (300, 3, 1)),  # short rows
        (0, (3, 40_000), (1, 3)),  # colors apart
        (0, (40_000, 3), (1, 40_000)),  # and together
        (0, (200, 250, 2), (2, 400, 1)),  # pairs
        (1, (500, 149), (300, 2)),
        (149_999, (500, 300), (-300, -1)),
        (5, (200_000,), (0,)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_strided_copies(offset, counts, steps, dtype):
    x = np.random.default_rng(0).integers(0, 255, 150_000).astype(dtype)
    ints = [offset, len(counts), *counts, *steps]
    (y,) = assert_no_split_matters("copy_strided", [x], [(counts, dtype)], ints)
    view = np.lib.stride_tricks.as_strided(x[offset:], counts, [step * x.itemsize for step in steps])
    assert np.array_equal(y, view)


@pytest.mark.parametrize("shape", [(1000, 200, 1), (3000, 40, 1), (3, 200, 700), (1, 100, 3000)])
def test_places_of_the_maximum(shape):
    outer, _, inner = shape
    assert_no_split_matters("arg_extreme", [normal(*shape)], [((outer, inner), np.int64)], [*shape, 0, 0])
    assert_no_split_matters("hardmax", [normal(*shape)], [(shape, np.float32)], shape)


@pytest.mark.parametrize("shape", [(100, 1000, 1), (1, 500, 300)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_top_k(shape, dtype):
    outer, n, inner = shape
    specs = [((outer, 30, inner), dtype), ((outer, 30, inner), np.int64)]
    assert_no_split_matters("topk", [normal(*shape).astype(dtype)], specs, [*shape, 30, 1], [], 84 * n + 1984)


@pytest.mark.parametrize(("outer", "axis", "inner"), [(128, 768, 1), (7, 3001, 1), (5, 100, 333)])
def test_rows(outer, axis, inner):
    x = normal(outer, axis, inner)
    assert_no_split_matters("softmax", [x], [(x.shape, np.float32)], [outer, axis, inner, 0])
    if inner == 1:
        operands = [x, normal(axis, seed=1), normal(axis, seed=2)]
        assert_no_split_matters("layer_norm", operands, [(x.shape, np.float32)], [outer, axis], [1e-5])


@pytest.mark.parametrize(("n", "channels", "inner"), [(1, 64, 3001), (2, 48, 1000), (3, 16, 17), (1, 1, 200_000)])
def test_normalizations_of_planes(n, channels, inner):
    x, parameters = normal(n, channels, inner), [normal(channels, seed=seed) for seed in (1, 2, 3)]
    variance = np.abs(normal(channels, seed=4))
    variance[channels // 2] = 0
    spec, ints = [(x.shape, np.float32)], [n, channels, inner]
    assert_no_split_matters("batch_norm", [x, *parameters, variance], spec, ints, [0.0])
    for groups in {1, channels // 8 or 1, channels}:
        for offset in (0, 1000):  # the mean of rows far from 0 is corrected
            assert_no_split_matters(
                "group_norm", [x + np.float32(offset), *parameters[:2]], spec, [*ints, groups], [1e-5]
            )
    for beta in (0.75, 0.6):
        assert_no_split_matters("lrn", [x], spec, [*ints, 5], [1e-4, beta, 1.0])


@pytest.mark.parametrize(
    ("shape", "reduced"),
    [((300, 1001), (0, 1)), ((1001, 300), (1, 0)), ((1, 300_000), (0, 1)), ((300_000,), (0,)), ((300_000,), (1,)),
     ((2, 300, 500), (1, 0, 1)), ((70, 3, 2000), (0, 1, 0)), ((5, 70, 6, 100), (0, 1, 0, 1)), ((0, 300), (1, 0)),
     ((3, 100_000, 1), (1, 0, 1)), ((40, 65, 99), (1, 0, 0)), ((300, 0), (0, 1))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_reductions(shape, reduced, dtype):
    x = (50 * normal(*shape)).astype(dtype)
    if x.dtype.kind == "f" and x.size:
        x.flat[x.size // 3] = np.nan
    kept = tuple(size for size, marked in zip(shape, reduced, strict=True) if not marked)
    operations = {"f": range(9), "i": [0, 2, 3, 4, 5, 6, *([1] if x.size else [])], "u": [2, 3]}[x.dtype.kind]
    for operation in operations:
        (y,) = assert_no_split_matters("reduce", [x], [(kept, dtype)], [operation, x.ndim, *reduced])
        if operation in (2, 3) and x.size:
            axes = tuple(axis for axis, marked in enumerate(reduced) if marked)
            assert np.array_equal(y, (np.max if operation == 2 else np.min)(x, axes), equal_nan=x.dtype.kind == "f")


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((500, 384), 0, 128), ((3, 700, 60), 1, 301), ((40, 50, 90), 2, 300), ((7, 9), 0, 60_000), ((2, 5, 40_000), 1, 1)],
)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
def test_gathered_rows(shape, axis, count, dtype):
    x, indices = (50 * normal(*shape)).astype(dtype), np.random.default_rng(0).integers(0, shape[axis], count)
    indices[::3] -= shape[axis]
    spec = [((*shape[:axis], count, *shape[axis + 1 :]), dtype)]
    (y,) = assert_no_split_matters("gather", [x, indices], spec, [axis])
    assert np.array_equal(y, np.take(x, indices, axis))
    indices[-1] = shape[axis]
    for team in TEAMS:
        with pytest.raises(Exception, match="index"):
            _kernels.call("gather", [x, indices], spec, [axis], team=team)


@pytest.mark.parametrize(
    ("outer", "widths", "inner"),
    [(1, (40_000, 70_001), 1), (300, (7, 0, 501), 3), (9, (64, 1), 1001), (2, (1, 90_000, 5), 1), (50_000, (1, 2), 1)],
)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_concatenations(outer, widths, inner, dtype):
    parts = [(50 * normal(outer, width, inner, seed=width)).astype(dtype) for width in widths]
    (y,) = assert_no_split_matters("concat", parts, [((outer, sum(widths), inner), dtype)], [1])
    assert np.array_equal(y, np.concatenate(parts, 1))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "float16"])
@pytest.mark.parametrize(
    ("condition", "first", "second"),
    [((300_001,), (300_001,), (1,)), ((3, 100_003), (3, 1), (1, 100_003)), ((700, 1), (700, 333), (333,)),
     ((40_000, 5), (5,), (40_000, 1)), ((), (2, 120_000), (120_000,)), ((0, 5), (1, 5), (5,)), ((1,), (1,), (1,))],
)  # fmt: skip
def test_selections(condition, first, second, dtype):
    random = np.random.default_rng(0)
    c = random.integers(0, 2, condition).astype(bool)
    x, y = ((50 * normal(*shape, seed=len(shape))).astype(dtype) for shape in (first, second))
    expected = np.where(c, x, y)
    (z,) = assert_no_split_matters("where", [c, x, y], [(expected.shape, dtype)])
    assert np.array_equal(z, expected)


@pytest.mark.parametrize(("interleaved", "heads_first"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_rotary(interleaved, heads_first):
    x, cosines, sines = normal(2, 60, 60, 70), normal(99, 33, seed=1), normal(99, 33, seed=2)
    rows = np.random.default_rng(0).integers(0, 99, (2, 60))
    ints = [60, 60, 70, 33, interleaved, heads_first]
    assert_no_split_matters("rotary", [x, cosines, sines, rows], [(x.shape, x.dtype)], ints)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [((200_000,), (3,), (5,)), ((3, 100_001), (0, 7), (1, 2)), ((70, 41, 60), (2, -1, 3), (1, 0, -4)),
     ((1,), (1,), (0,)),
     ((5, 1, 90), (40, 11, 30), (3, 17, 80)), ((0, 4), (500, 60), (500, 70)), ((3, 0), (0, 0), (0, 0))],
)  # fmt: skip
def test_pads(shape, before, after, dtype):
    x = (50 * normal(*shape)).astype(dtype)
    out = tuple(size + b + a for size, b, a in zip(shape, before, after, strict=True))
    value = np.full(1, 7, dtype)
    inside = x[tuple(slice(max(0, -b), size + min(0, a)) for size, b, a in zip(shape, before, after, strict=True))]
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    for mode, name in enumerate(["constant", "reflect", "edge", "wrap"]):
        if name != "constant" and inside.size == 0 and np.prod(out) > 0:
            continue
        operands = [x, value] if name == "constant" else [x]
        (y,) = assert_no_split_matters("pad", operands, [(out, dtype)], [mode, *before])
        if np.prod(out) > 0:
            expected = np.pad(inside, widths, name, **({"constant_values": 7} if name == "constant" else {}))
            assert np.array_equal(y, expected)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((500, 384), 0, 128), ((3, 700, 60), 1, 301), ((40, 50, 90), 2, 300), ((7, 70_000), 1, 60_001),
     ((9, 40_003), 0, 2),
     ((1, 100_000), 1, 100_001), ((2, 3), 1, 0), ((1, 1), 0, 1)],
)  # fmt: skip
def test_gathered_elements(shape, axis, count, dtype):
    x = (50 * normal(*shape)).astype(dtype)
    sizes = [count if d == axis else size for d, size in enumerate(shape)]
    indices = np.random.default_rng(0).integers(-shape[axis], shape[axis], sizes)
    (y,) = assert_no_split_matters("gather_elements", [x, indices], [(indices.shape, dtype)], [axis])
    assert np.array_equal(y, np.take_along_axis(x, indices, axis))
    smaller = indices[tuple(slice(max(1, size // 2)) for size in sizes)]
    (y,) = assert_no_split_matters("gather_elements", [x, smaller], [(smaller.shape, dtype)], [axis])
    assert np.array_equal(y, np.take_along_axis(x, indices, axis)[tuple(slice(size) for size in smaller.shape)])
    if indices.size > 1:
        indices[..., -1] = shape[axis]
        for team in TEAMS:
            with pytest.raises(Exception, match="index"):
                _kernels.call("gather_elements", [x, indices], [(indices.shape, dtype)], [axis], team=team)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize(
    ("shape", "batch", "depth", "tuples"),
    [((50, 60, 70), 0, 2, 3001), ((30, 40, 50), 1, 1, 1001), ((6, 9, 4, 5), 2, 2, 3001), ((300, 400), 0, 2, 90_001),
     ((3, 50_000), 0, 1, 7), ((20_000,), 0, 0, 11), ((5, 6), 0, 1, 0), ((4, 0), 0, 1, 30_000)],
)  # fmt: skip
def test_gathered_tuples(shape, batch, depth, tuples, dtype):
    x, random = (50 * normal(*shape)).astype(dtype), np.random.default_rng(0)
    lead = (*shape[:batch], tuples)
    columns = [random.integers(-size, size, lead) for size in shape[batch : batch + depth]]
    indices = np.stack(columns, -1) if columns else np.zeros((*lead, 0), np.int64)
    grids = [np.arange(size).reshape(-1, *(1,) * (batch - d)) for d, size in enumerate(shape[:batch])]
    expected = x[(*grids, *columns)] if columns else np.broadcast_to(x, (*lead, *x.shape))
    (y,) = assert_no_split_matters("gather_nd", [x, indices], [(expected.shape, dtype)], [batch])
    assert np.array_equal(y, expected)
    if columns and tuples > 1:
        indices[..., -1, 0] = -shape[batch] - 1
        for team in TEAMS:
            with pytest.raises(Exception, match="index"):
                _kernels.call("gather_nd", [x, indices], [(expected.shape, dtype)], [batch], team=team)


@pytest.mark.parametrize("reduction", range(5))
@pytest.mark.parametrize(
    ("shape", "axis", "counts"),
    [((500, 333), 0, (900, 333)), ((500, 333), 0, (900, 301)), ((3, 70, 90), 1, (3, 301, 90)),
     ((40, 50, 9), 2, (33, 50, 90)),
     ((1, 9, 3000), 1, (1, 40, 2999)), ((300_000,), 0, (50_000,)), ((2, 5), 0, (0, 5)), ((1, 1), 1, (1, 1)),
     ((90, 1), 0, (60_000, 1))],
)  # fmt: skip
def test_scattered_elements(shape, axis, counts, reduction):
    """Each element gets its updates in order, also floats, whose sums depend on it. Rows with one index throughout, and
    rows with several."""
    x, updates, random = normal(*shape), normal(*counts, seed=1), np.random.default_rng(0)
    rows = random.integers(-shape[axis], shape[axis], (*counts[:-1], 1))
    for indices in (np.broadcast_to(rows, counts).copy(), random.integers(-shape[axis], shape[axis], counts)):
        spec = [(shape, np.float32)]
        (y,) = assert_no_split_matters("scatter_elements", [x, indices, updates], spec, [axis, reduction])
        if indices.size == 0:
            assert np.array_equal(y, x)
            continue
        expected, where = x.copy(), list(np.indices(counts, sparse=True))
        where[axis] = indices
        if reduction == 0:
            expected[tuple(where)] = updates  # the last of several updates counts
        else:
            (None, np.add, np.multiply, np.maximum, np.minimum)[reduction].at(expected, tuple(where), updates)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
        indices[(-1,) * indices.ndim] = shape[axis]
        for team in TEAMS:
            with pytest.raises(Exception, match="index"):
                _kernels.call("scatter_elements", [x, indices, updates], spec, [axis, reduction], team=team)


@pytest.mark.parametrize("reduction", range(5))
@pytest.mark.parametrize(
    ("shape", "depth", "tuples"),
    [((50, 6, 700), 1, 301), ((50, 6, 701), 2, 1001), ((300, 400), 2, 90_001), ((9, 33), 1, 9_000), ((5, 1), 1, 1),
     ((5, 100), 1, 0), ((70_000,), 0, 3)],
)  # fmt: skip
def test_scattered_tuples(shape, depth, tuples, reduction):
    x, updates, random = normal(*shape), normal(tuples, *shape[depth:], seed=1), np.random.default_rng(0)
    columns = [random.integers(-size, size, tuples) for size in shape[:depth]]
    indices = np.stack(columns, -1) if columns else np.zeros((tuples, 0), np.int64)
    (y,) = assert_no_split_matters("scatter_nd", [x, indices, updates], [(shape, np.float32)], [reduction])
    expected, combine = x.copy(), (None, np.add, np.multiply, np.maximum, np.minimum)[reduction]
    if tuples and depth:
        if combine:
            combine.at(expected, tuple(columns), updates)
        else:
            for k in range(tuples):
                expected[tuple(column[k] for column in columns)] = updates[k]
    else:
        for update in updates:
            expected = combine(expected, update) if combine else update
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(300_001,), (3, 70, 501), (1, 90_000, 1), (26_000,), (5,), (1,), (0, 3), ()])
@pytest.mark.parametrize("share", [0, 0.02, 0.5, 1])
def test_places_of_nonzero_elements(shape, share, dtype):
    random = np.random.default_rng(0)
    x = np.asarray(random.random(shape) < share).astype(dtype)
    if x.ndim:
        x[..., : x.shape[-1] // 3] = 0  # some parts find less than others
    rank = max(1, x.ndim)
    spec = [((x.size, rank), np.int64), ((1,), np.int64)]
    places, count = assert_no_split_matters("nonzero", [x], spec)
    expected = np.argwhere(x) if x.ndim else np.zeros((int(x != 0), 1), np.int64)
    assert count[0] == len(expected)
    assert np.array_equal(places[: len(expected)], expected)
    assert not places[len(expected) :].any()


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("batch", "hidden"), [(1, 512), (1, 210), (2, 270), (5, 200), (1, 40)])
@pytest.mark.parametrize(("name", "gates", "functions"), [("lstm", 4, [2, 1, 1]), ("gru", 3, [2, 1]), ("rnn", 1, [1])])
def test_recurrent_layers(name, gates, functions, batch, hidden, directions):
    """What they give, `test_recurrent.py` tells."""
    steps, padded = 6, -(-hidden // 16) * 16
    z, r = normal(steps * batch, directions, gates, hidden), normal(directions * gates, hidden, hidden, seed=1) / hidden
    spec = [((directions * gates * padded * hidden,), np.float32)]
    (packed,) = _kernels.call("pack_b", [r], spec, [directions * gates, hidden, hidden, 1])
    operands = [z, packed, None, None, *([None] * {"lstm": 3, "gru": 1, "rnn": 0}[name])]
    state = ((directions, batch, hidden), np.float32)
    outputs = [((steps, directions, batch, hidden), np.float32), *[state] * (2 if name == "lstm" else 1)]
    ints = [steps, batch, hidden, directions, 0, 0, 0, *functions * directions]
    floats = [np.inf, *[0.0] * (2 * len(functions) * directions)]
    (y, *_) = assert_no_split_matters(name, operands, outputs, ints, floats, 4 * batch * (gates + 2) * padded)
    assert np.isfinite(y).all()
    assert np.abs(y).max() > 0.1


def random_bytes(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1000, 512), (9, 40, 700), (128, 768, 64), (1000, 3, 100), (257, 129, 65)])
def test_integer_products(shape):
    m, n, k = shape
    a, b, zero, zeros = random_bytes(m, k), random_bytes(k, n, seed=1), random_bytes(1), random_bytes(n)
    quads = -(-k // 4)
    spec = [((-(-n // 16) * 64 * (quads + 2),), np.uint8)]
    (packed,) = assert_no_split_matters("pack_quads", [b, zeros], spec, [1, k, n])
    arguments = ([((m, n), np.int32)], [m, n, k, 0], [], 12 * (8 * quads + 136))
    (y,) = assert_no_split_matters("matmul_integer", [a, zero, packed], *arguments)
    assert np.array_equal(y, (a.astype(np.int32) - zero) @ (b.astype(np.int32) - zeros))


@pytest.mark.parametrize(("group", "per_group", "maps", "size"), [(1, 16, 40, 60), (1, 64, 128, 7), (60, 1, 60, 33)])
def test_integer_convolutions(group, per_group, maps, size):
    """3x3, padded. What they give, `test_conv_integer.py` tells."""
    x, w = random_bytes(2, group * per_group, size, size), random_bytes(maps, per_group, 3, 3, seed=1)
    zero = random_bytes(1)
    ints = [group, per_group, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, size, size]
    spec = [((ask("pixel_bytes", 2, *ints),), np.uint8)]
    (pixels,) = assert_no_split_matters("pack_pixels", [x, zero], spec, ints)
    (filters,) = _kernels.call("pack_filters", [w, zero], [((ask("filter_bytes", maps, *ints),), np.uint8)], ints)
    spec = [((2, maps, size, size), np.int32)]
    assert_no_split_matters("conv_integer", [pixels, filters, zero, None], spec, ints, scratch_bytes=None)


@pytest.mark.parametrize(("channels", "size"), [(64, 60), (200, 40), (130, 7)])
def test_depthwise_integer_convolutions(channels, size):
    x, w, zero = random_bytes(2, channels, size, size), random_bytes(channels, 1, 3, 3, seed=1), random_bytes(1)
    ints = [channels, 1, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, size, size]
    spec = [((-(-channels // 64) * 256 * 7,), np.uint8)]
    (filters,) = _kernels.call("pack_depthwise", [w, random_bytes(1, seed=2)], spec, ints)
    spec = [((2, channels, size, size), np.int32)]
    assert_no_split_matters("depthwise_integer", [x, filters, zero, None], spec, ints, [], 1 << 20)


@pytest.mark.parametrize("length", [400, 67])
def test_fourier_transforms(length):
    tables = dft_tables(length, False)
    spec = [((100, length, 3, 2), np.float32)]
    ints = [100, length, 3, 1, length, length, 0, 0]
    assert_no_split_matters("dft", [normal(100, length, 3, 1), *tables], spec, ints, [], 256 * len(tables[0]))


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 100_001, 400_000])
def test_elements(size):
    x, y = normal(size), normal(size, seed=1)
    for operation in range(1, 12):
        assert_no_split_matters("unary", [x], [((size,), np.float32)], [operation], [0.5, 0.25])
    for other in (y, y[:1]):
        assert_no_split_matters("add", [x, other], [((size,), np.float32)])
        assert_no_split_matters("add", [other, x], [((size,), np.float32)])


@pytest.mark.parametrize("size", [0, 1, 1023, 150_001])
def test_elements_of_other_types(size):
    x = 50 * normal(size)
    abs_, neg, sign, clip = (_kernels.constant(f"UNARY_{name}") for name in ("ABS", "NEG", "SIGN", "CLIP"))
    for dtype in ("int8", "int16", "int32", "int64"):
        integers = x.astype(dtype)
        for operation, expected in (
            (abs_, np.abs(integers)), (neg, -integers), (sign, np.sign(integers)), (clip, np.clip(integers, -20, 30)),
        ):  # fmt: skip
            (y,) = assert_no_split_matters("unary", [integers], [((size,), dtype)], [operation], [-20, 30])
            assert np.array_equal(y, expected)
    (y,) = assert_no_split_matters("unary", [x.astype("uint16")], [((size,), "uint16")], [clip], [3, 30])
    assert np.array_equal(y, np.clip(x.astype("uint16"), 3, 30))
    for dtype in ("float32", "float64"):
        x = x.astype(dtype)
        x[::7] = np.nan
        (y,) = assert_no_split_matters("unary", [x], [((size,), bool)], [_kernels.constant("UNARY_ISNAN")], [0, 0])
        assert np.array_equal(y, np.isnan(x))
    assert_no_split_matters("unary", [x], [((size,), "float64")], [_kernels.constant("UNARY_EXP")], [0, 0])
    (y,) = assert_no_split_matters("unary", [y], [((size,), bool)], [_kernels.constant("UNARY_NOT")], [0, 0])
    assert np.array_equal(y, ~np.isnan(x))


@pytest.mark.parametrize(
    ("first", "second"),
    [((72, 3001), (72, 1)), ((300, 700), (700,)), ((5, 1, 300, 70), (1, 9, 300, 1)), ((100_000, 3), (3,)),
     ((2, 150_000), (2, 1)), ((7, 1, 9, 1), (1, 600, 1, 11))],
)  # fmt: skip
def test_broadcast_elements(first, second):
    x, y = normal(*first), normal(*second, seed=1)
    shape = np.broadcast_shapes(first, second)
    for a, b in ((x, y), (y, x)):
        (z,) = assert_no_split_matters("sub", [a, b], [(shape, np.float32)])
        assert np.array_equal(z, a - b)
        assert_no_split_matters("less", [a, b], [(shape, bool)])


def test_errors_of_any_part_are_told():
    x = np.arange(300_000, dtype=np.int32)
    y = np.ones(300_000, np.int32)
    y[299_999] = 0
    for team in TEAMS:
        with pytest.raises(Exception, match="division by zero"):
            _kernels.call("div", [x, y], [((300_000,), np.int32)], team=team)
        with pytest.raises(Exception, match="division by zero"):
            _kernels.call("div", [x.reshape(3, 1, -1), y.reshape(3, -1)], [((3, 3, 100_000), np.int32)], team=team)


def test_a_team_that_is_taken_does_no_harm():
    """One caller has the threads, the others go on alone."""
    a, b = normal(200, 300), normal(300, 400)
    arguments = ("gemm", [a, b], [((200, 400), np.float32)], [200, 400, 300, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0], 1 << 20)
    (expected,) = _kernels.call(*arguments)
    different = []

    def work():
        for _ in range(30):
            (y,) = _kernels.call(*arguments, team=TEAMS[0])
            if not np.array_equal(y, expected):
                different.append(y)

    in_threads(lambda _: work(), range(4))
    assert not different


LIVES = """
import os
from hetero import _kernels
count = lambda: len(os.listdir("/proc/self/task"))
before = count()
for threads in (1, 2, 5):
    team = _kernels.Team(threads)
    assert team.threads == threads
    assert count() == before + threads - 1
    del team
    assert count() == before
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc")
def test_threads_end_with_their_team():
    subprocess.run([sys.executable, "-c", LIVES], check=True, timeout=60)


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_numbers_that_no_team_has(threads):
    with pytest.raises(ValueError, match="threads: expected 1 to 1024"):
        _kernels.Team(threads)


PLACED = """
import os, sys, time, numpy as np
from hetero import _kernels

def threads(): return {int(name) for name in os.listdir("/proc/self/task")}
def processor(thread):
    with open(f"/proc/self/task/{thread}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[36])
def seconds(thread): return time.clock_gettime(~thread << 3 | 6)  # CPU time of another thread
def switches(thread):
    with open(f"/proc/self/task/{thread}/status") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith("voluntary"))
def within(limit, happens):
    end = time.monotonic() + limit
    while not happens():
        assert time.monotonic() < end
def add(size):
    x = np.ones(size, np.float32)
    assert _kernels.call("add", [x, x], [(x.shape, np.float32)], team=team)[0].sum() == 2 * size

before = threads()
team = _kernels.Team(2)
(other,) = threads() - before
"""

LEAVES = """
allowed = os.sched_getaffinity(0)
home = min(allowed)
os.sched_setaffinity(0, {home})
os.sched_setaffinity(other, {home})
add(500_000)
time.sleep(0.1)  # falls asleep
assert processor(other) == home
os.sched_setaffinity(other, allowed)
within(20, lambda: add(500_000) or processor(other) != home)
assert os.sched_getaffinity(other) == allowed
os.sched_setaffinity(other, {home})  # and here it has to stay
for _ in range(20):
    add(500_000)
    time.sleep(0.005)
assert os.sched_getaffinity(other) == {home}
"""

SLEEPS = """
add(5_000_000)
time.sleep(0.3)
slept, used = switches(other), seconds(other)
time.sleep(0.3)
for _ in range(20):
    add(20_000)  # a small region wakes nobody
assert switches(other) == slept
assert seconds(other) - used < 0.002
within(20, lambda: add(500_000) or switches(other) > slept)
x = np.ones((4, 1 << 22), np.float32)
add(500_000)
used = seconds(other)
begin = time.thread_time()
_kernels.call("cumsum", [x], [(x.shape, np.float32)], [1, 0, 0], team=team)  # on one thread
assert seconds(other) - used < (time.thread_time() - begin) / 4
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processors on Linux"
)
def test_a_thread_leaves_the_processor_of_the_caller():
    subprocess.run([sys.executable, "-c", PLACED + LEAVES], check=True, timeout=60)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks at threads in /proc")
def test_threads_that_have_nothing_to_do_sleep():
    subprocess.run([sys.executable, "-c", PLACED + SLEEPS], check=True, timeout=60)


FORKED = """
import os, numpy as np
from hetero import _kernels
team = _kernels.Team(3)
x = np.ones(500_000, np.float32)
def work():
    return _kernels.call("add", [x, x], [(x.shape, np.float32)], team=team)[0].sum()
assert work() == 1_000_000
child = os.fork()
if not child:
    good = work() == 1_000_000
    del team
    os._exit(0 if good else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert work() == 1_000_000
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_on_alone():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=60)
