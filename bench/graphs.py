"""Seeded synthetic model graphs.

``make(kind, n, seed)`` gives ``(src, dst, device)``: int32 edge arrays with src < dst, so that 0 .. n-1 is a
topological order, and an int32 device number per node. Block kinds round n down to whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Edges = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
Generator = np.random.Generator

# Producers of each node of a block, relative to the block's first node; -1 is the last node of the block before.
TRANSFORMER = [[-1], [0], [0], [0], [1, 2], [4], [5], [6, 3], [7], [8, -1], [9], [10], [11], [12, 9]]
INCEPTION = [[-1], [0], [0], [2], [0], [4], [5], [0], [7], [1, 3, 6, 8]]
EXPERTS = [[-1], *([0] for _ in range(64)), *([i] for i in range(1, 65)), list(range(65, 129))]


def _blocks(producers: list[list[int]], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    size = len(producers)
    blocks = max(1, n // size)
    dst = np.repeat(np.arange(size), [len(row) for row in producers])
    src = np.concatenate([np.asarray(row) for row in producers])
    base = np.arange(blocks)[:, None] * size
    all_src, all_dst = (base + src).ravel(), (base + dst).ravel()
    return all_src[all_src >= 0], all_dst[all_src >= 0], blocks


def _finish(
    src: NDArray[np.integer], dst: NDArray[np.integer], device: NDArray[np.integer] | NDArray[np.bool_]
) -> Edges:
    return src.astype(np.int32), dst.astype(np.int32), device.astype(np.int32)


def _one_foreign(producers: list[list[int]], foreign: int) -> Callable[[int, Generator], Edges]:
    def make(n: int, rng: Generator) -> Edges:
        src, dst, blocks = _blocks(producers, n)
        device = np.zeros(len(producers), np.int32)
        device[foreign] = 1
        return _finish(src, dst, np.tile(device, blocks))

    return make


def _experts(n: int, rng: Generator) -> Edges:
    """A router, 64 experts of two nodes, a sum; one node in ten on device 1."""
    src, dst, blocks = _blocks(EXPERTS, n)
    return _finish(src, dst, rng.random(blocks * len(EXPERTS)) < 0.1)


def _chain(n: int, rng: Generator) -> Edges:
    """Ten nodes on device 0, ten on device 1, and so on."""
    node = np.arange(1, n)
    return _finish(node - 1, node, np.arange(n) // 10 % 2)


def _window_edges(n: int, rng: Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two producers per node, drawn from the 64 nodes before it."""
    node = np.arange(1, n)
    window = np.minimum(node, 64)
    pairs = [np.stack([node - 1 - (rng.random(n - 1) * window).astype(np.int64), node]) for _ in range(2)]
    src, dst = np.unique(np.concatenate(pairs, axis=1), axis=1)
    return src, dst


def _random(foreign: float) -> Callable[[int, Generator], Edges]:
    def make(n: int, rng: Generator) -> Edges:
        src, dst = _window_edges(n, rng)
        return _finish(src, dst, rng.random(n) < foreign)

    return make


def _three_devices(n: int, rng: Generator) -> Edges:
    src, dst = _window_edges(n, rng)
    return _finish(src, dst, rng.integers(0, 3, n))


def _unet(n: int, rng: Generator) -> Edges:
    """A contracting and an expanding arm; level i of the one feeds level i of the other. One node in ten foreign."""
    node = np.arange(1, n)
    down = np.arange(n // 2 - 1)
    src = np.concatenate([node - 1, down])
    dst = np.concatenate([node, n - 1 - down])
    return _finish(src, dst, rng.random(n) < 0.1)


def _towers(n: int, rng: Generator) -> Edges:
    """Two chains side by side, even and odd nodes; three nodes in ten also read the other tower. Devices at random."""
    node = np.arange(2, n)
    reader = node[rng.random(len(node)) < 0.3]
    src = np.concatenate([node - 2, reader - 1 - 2 * rng.integers(0, 8, len(reader))])
    dst = np.concatenate([node, reader])
    keep = src >= 0
    return _finish(src[keep], dst[keep], rng.random(n) < 0.3)


def _comb(n: int, rng: Generator) -> Edges:
    """Each node reads the one before it and node i // 2; one in ten foreign."""
    node = np.arange(1, n)
    half = node[node // 2 < node - 1]
    return _finish(np.concatenate([node - 1, half // 2]), np.concatenate([node, half]), rng.random(n) < 0.1)


def _loose_comb(n: int, rng: Generator) -> Edges:
    """Each node reads node i // 2 and one of the 64 before it: long edges without a spine; one in ten foreign."""
    node = np.arange(1, n)
    near = node - 1 - (rng.random(n - 1) * np.minimum(node, 64)).astype(np.int64)
    return _finish(np.concatenate([near, node // 2]), np.concatenate([node, node]), rng.random(n) < 0.1)


def _ladder(n: int, rng: Generator) -> Edges:
    """Two rails with a rung at every step, from the even rail to the odd; one node in ten foreign."""
    node = np.arange(2, n)
    rung = np.arange(1, n, 2)
    return _finish(np.concatenate([node - 2, rung - 1]), np.concatenate([node, rung]), rng.random(n) < 0.1)


KINDS: dict[str, Callable[[int, Generator], Edges]] = {
    "transformer": _one_foreign(TRANSFORMER, 6),
    "inception": _one_foreign(INCEPTION, 5),
    "random": _random(0.1),
    "chain": _chain,
    "unet": _unet,
    "towers": _towers,
    "experts": _experts,
    "comb": _comb,
    "loose_comb": _loose_comb,
    "ladder": _ladder,
    "three_devices": _three_devices,
    "half_foreign": _random(0.5),
}


def _joined_trees(n: int, rng: Generator) -> Edges:
    """A tree that forks at every node, and its mirror image, which joins the leaves again."""
    half = n // 2
    node = np.arange(1, half)
    leaf = np.arange((half - 1) // 2 + 1, half)
    parent = (node - 1) // 2
    src = np.concatenate([parent, n - 1 - node, leaf])
    return _finish(src, np.concatenate([node, n - 1 - parent, n - 1 - leaf]), rng.random(n) < 0.1)


def _deep_trees(n: int, rng: Generator) -> Edges:
    """The same of a deep tree: the parent of each node is one of the 64 before it."""
    half = n // 2
    node = np.arange(1, half)
    parent = node - 1 - (rng.random(len(node)) * np.minimum(node, 64)).astype(np.int64)
    leaf = np.setdiff1d(np.arange(half), parent)
    src = np.concatenate([parent, n - 1 - node, leaf])
    return _finish(src, np.concatenate([node, n - 1 - parent, n - 1 - leaf]), rng.random(n) < 0.1)


def _butterfly(bits: int) -> Callable[[int, Generator], Edges]:
    """Stages of a fast Fourier transform of ``2 ** bits`` values."""

    def make(n: int, rng: Generator) -> Edges:
        node = np.arange(1 << bits, n)
        straight = node - (1 << bits)
        crossed = straight ^ (1 << node // (1 << bits) % bits)
        return _finish(np.concatenate([straight, crossed]), np.concatenate([node, node]), rng.random(n) < 0.1)

    return make


def _combs(n: int, rng: Generator) -> Edges:
    """Combs side by side, as many as each is long; neighboring numbers belong to different combs."""
    side = int(n**0.5)
    src, dst, _ = _comb(side, rng)
    first = np.arange(side)[:, None]
    all_src, all_dst = (src * side + first).ravel(), (dst * side + first).ravel()
    return _finish(all_src, all_dst, rng.random(side * side) < 0.1)


def _linked_chains(count: int) -> Callable[[int, Generator], Edges]:
    """``count`` chains side by side; one node in ten also reads a node anywhere before."""

    def make(n: int, rng: Generator) -> Edges:
        node = np.arange(count, n)
        reader = node[rng.random(len(node)) < 0.1]
        anywhere = (rng.random(len(reader)) * (reader // count * count)).astype(np.int64)
        src = np.concatenate([node - count, anywhere])
        return _finish(src, np.concatenate([node, reader]), rng.random(n) < 0.1)

    return make


HARD: dict[str, Callable[[int, Generator], Edges]] = {
    "joined_trees": _joined_trees,
    "deep_trees": _deep_trees,
    "butterfly": _butterfly(10),
    "wide_butterfly": _butterfly(14),
    "combs": _combs,
    "linked_chains": _linked_chains(64),
    "many_linked_chains": _linked_chains(1000),
}
"""Kinds made to be hard for the partitioner; for graphs of 2,000 nodes or more, `wide_butterfly` of 40,000."""

SEEDED = {kind: kind not in ("transformer", "inception", "chain") for kind in KINDS}
"""Whether a seed makes a difference."""


def make(kind: str, n: int, seed: int = 0) -> Edges:
    return (KINDS | HARD)[kind](n, np.random.default_rng(seed))
