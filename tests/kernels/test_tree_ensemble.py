"""tree_ensemble against a walk from node to node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

EQUAL, NAN_FIRST = _kernels.constant("TREE_EQUAL"), _kernels.constant("TREE_NAN_FIRST")
SUM, AVERAGE, MIN, MAX = (_kernels.constant(f"TREE_{name}") for name in ("SUM", "AVERAGE", "MIN", "MAX"))
Array = np.ndarray[Any, Any]


def node_type(dtype: str) -> np.dtype[Any]:
    return np.dtype({"names": ["value", "feature", "child"], "formats": [dtype, np.uint32, np.int32],
                     "offsets": [0, 8, 12], "itemsize": 16})  # fmt: skip


def random_nodes(rng: np.random.Generator, trees: int, depth: int, features: int, dtype: str, kind: int) -> Any:
    """Nodes and depths: the roots first, then pairs of children."""
    nodes: list[tuple[float, int, int]] = [(0.0, 0, 0)] * trees
    depths = []
    for tree in range(trees):
        pending, deepest = [(tree, 0)], 0
        while pending:
            slot, level = pending.pop()
            deepest = max(deepest, level)
            if level == depth or rng.random() < 0.2:
                nodes[slot] = (np.nan, 0, slot - 1)
                continue
            flags = int(rng.choice([0, EQUAL])) if kind == 2 else 0
            flags |= int(rng.choice([0, NAN_FIRST])) if kind else 0
            nodes[slot] = (float(rng.integers(-3, 4)), int(rng.integers(features)) | flags, len(nodes))
            pending += [(len(nodes), level + 1), (len(nodes) + 1, level + 1)]
            nodes += [(0.0, 0, 0)] * 2
        depths.append(deepest)
    return np.array(nodes, node_type(dtype)), np.array(depths, np.int32)


def naive(x: Array, nodes: Any, trees: int, starts: Array, ids: Array, weights: Array, base: Array | None,
          targets: int, aggregate: int) -> Array:  # fmt: skip
    out = np.zeros((len(x), targets), x.dtype)
    for row, scores in zip(x, out, strict=True):
        found: list[list[Any]] = [[] for _ in range(targets)]
        for tree in range(trees):
            slot = tree
            while nodes[slot]["child"] != slot - 1:
                flags = int(nodes[slot]["feature"])
                v, t = row[flags & (EQUAL - 1)], nodes[slot]["value"]
                test = v == t if flags & EQUAL else v <= t
                if np.isnan(v):
                    test = bool(flags & NAN_FIRST)
                slot = int(nodes[slot]["child"]) + (0 if test else 1)
            for entry in range(starts[slot], starts[slot + 1]):
                found[ids[entry]].append(weights[entry])
        for target, values in enumerate(found):
            total = x.dtype.type(0)
            for value in values:
                total += value
            if aggregate == AVERAGE:
                total /= x.dtype.type(trees)
            if aggregate in (MIN, MAX):
                total = (min if aggregate == MIN else max)(values) if values else x.dtype.type(0)
            scores[target] = total if base is None else total + base[target]
    return out


@pytest.mark.parametrize("variant", _kernels.variants("tree_ensemble"))
@given(data=st.data())
def test_tree_ensemble(variant: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    rows, trees, features = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 20)), data.draw(st.integers(1, 4))
    targets, aggregate = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([SUM, AVERAGE, MIN, MAX]))
    kind, has_base = data.draw(st.integers(0, 2)), data.draw(st.booleans())
    nodes, depths = random_nodes(rng, trees, data.draw(st.integers(0, 9)), features, dtype, kind)
    slots = np.arange(len(nodes))
    leaf = nodes["child"] == slots - 1
    counts = np.where(leaf, rng.integers(0, targets + 1, len(nodes)), 0)
    dense = targets == 1 and aggregate in (SUM, AVERAGE) and data.draw(st.booleans())
    counts = leaf.astype(int) if dense else counts
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    ids = np.concatenate([rng.permutation(targets)[:count] for count in counts]).astype(np.int32)
    weights = rng.normal(size=len(ids)).astype(dtype)
    base = rng.normal(size=targets).astype(dtype) if has_base else None
    x = rng.choice([-np.inf, -3, -2, -1, 0, 1, 2, 3, np.inf, np.nan], (rows, features)).astype(dtype)
    if data.draw(st.booleans()):
        x = np.nan_to_num(x, posinf=np.inf, neginf=-np.inf)
    expected = naive(x, nodes, trees, starts, ids, weights, base, targets, aggregate)
    roots = np.arange(trees, dtype=np.int32)
    if dense:
        by_slot = np.zeros(len(nodes), dtype)
        by_slot[leaf] = weights
        starts, ids, weights = starts[:0], ids[:0], by_slot
    operands = [x, nodes.view(np.int64).reshape(-1, 2), roots, depths, starts, ids, weights, base]
    ints = [aggregate, kind, int(dense)]
    (found,) = _kernels.call("tree_ensemble", operands, [((rows, targets), dtype)], ints, variant=variant)
    np.testing.assert_array_equal(found, expected)


def test_operands_that_do_not_fit_are_refused() -> None:
    nodes = np.zeros((1, 2), np.int64)
    one = np.zeros(1, np.int32)
    x, weights = np.zeros((2, 1), np.float32), np.zeros(1, np.float32)
    for operands, ints in [
        ([x, nodes, one, one, one, one, weights.astype("float64"), None], [SUM, 0, 1]),
        ([x, nodes, one, one, one, one, weights, None], [SUM, 0, 0]),  # starts is too short
        ([x, nodes, one, one, one, one, weights, None], [MIN, 0, 1]),
        ([x, nodes, one, one, one, one, weights, np.zeros(2, np.float32)], [SUM, 0, 1]),
        ([x[:, :0], nodes, one, one, one, one, weights, None], [SUM, 0, 1]),
    ]:
        with pytest.raises(InferenceError, match="tree_ensemble"):
            _kernels.call("tree_ensemble", operands, [((2, 1), "float32")], ints)
