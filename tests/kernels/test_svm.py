"""Support vector kernels against loops in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

Array = np.ndarray[Any, Any]
F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


def pairs_of(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def naive_scores(kernels: Array, coefficients: Array, starts: Array, rho: Array) -> Array:
    classes = len(starts) - 1
    made = np.zeros((len(kernels), len(rho)))
    for row, scores in zip(kernels.astype(np.float64), made, strict=True):
        for number, (i, j) in enumerate(pairs_of(classes)):
            total = float(rho[number])
            for vector in range(starts[i], starts[i + 1]):
                total += float(coefficients[j - 1, vector]) * row[vector]
            for vector in range(starts[j], starts[j + 1]):
                total += float(coefficients[i, vector]) * row[vector]
            scores[number] = total
    return made


@pytest.mark.parametrize("variant", _kernels.variants("squared_distances", "svm_scores", "svm_votes"))
@given(data=st.data())
def test_squared_distances(variant: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    rows, features, count = (data.draw(st.integers(low, high)) for low, high in ((0, 9), (1, 5), (1, 70)))
    x = rng.normal(size=(rows, features)).astype(F32)
    vectors = rng.normal(size=(features, count)).astype(F32)
    if data.draw(st.booleans()) and rows:
        x[0, 0] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e30]))
    (found,) = _kernels.call("squared_distances", [x, vectors], [((rows, count), F32)], (), (), variant=variant)
    with np.errstate(all="ignore"):
        wanted = np.square(x.astype(np.float64)[:, :, None] - vectors[None]).sum(axis=1).astype(F32)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("variant", _kernels.variants("squared_distances", "svm_scores", "svm_votes"))
@given(data=st.data())
def test_scores_and_votes(variant: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    rows, classes = data.draw(st.integers(0, 9)), data.draw(st.integers(2, 6))
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 20, classes))]).astype(np.int64)
    vectors, num_pairs = int(starts[-1]), classes * (classes - 1) // 2
    kernels = rng.normal(size=(rows, vectors)).astype(F32)
    coefficients = rng.normal(size=(classes - 1, vectors)).astype(F32)
    rho = rng.normal(size=num_pairs).astype(F32)
    (scores,) = _kernels.call("svm_scores", [kernels, coefficients, starts, rho], [((rows, num_pairs), F32)],
                              [classes], (), variant=variant)  # fmt: skip
    np.testing.assert_allclose(scores, naive_scores(kernels, coefficients, starts, rho), rtol=1e-6, atol=1e-6)

    votes = np.zeros((rows, classes), int)
    for number, (i, j) in enumerate(pairs_of(classes)):
        np.add.at(votes, (np.arange(rows), np.where(scores[:, number] > 0, i, j)), 1)
    (places,) = _kernels.call("svm_votes", [scores, None, None], [((rows,), I64)], [classes], (), variant=variant)
    np.testing.assert_array_equal(places, votes.argmax(axis=1))
    a, b = -np.abs(rng.normal(size=num_pairs)).astype(F32), rng.normal(size=num_pairs).astype(F32)
    specs = [((rows,), I64), ((rows, classes), F32)]
    places, odds = _kernels.call("svm_votes", [scores, a, b], specs, [classes], (), variant=variant)
    np.testing.assert_array_equal(places, votes.argmax(axis=1))
    np.testing.assert_allclose(odds.sum(axis=1), 1, atol=1e-5)
    if classes == 2:
        np.testing.assert_allclose(odds[:, 0], 1 / (1 + np.exp(scores[:, 0] * a + b)), atol=0.005)
    for row, found in zip(scores, odds, strict=True):
        np.testing.assert_allclose(found, coupled(row, a, b, classes), atol=0.02)  # the kernel stops early


def coupled(scores: Array, a: Array, b: Array, classes: int) -> Array:
    """The minimum of the sum over i, j of (r_ji p_i - r_ij p_j)^2 with sum p = 1, by linear equations."""
    r = np.zeros((classes, classes))
    for (i, j), score, slope, shift in zip(pairs_of(classes), scores, a, b, strict=True):
        r[i, j] = np.clip(1 / (1 + np.exp(float(score) * slope + shift)), 1e-7, 1 - 1e-7)
        r[j, i] = 1 - r[i, j]
    q = -(r.T * r)
    np.fill_diagonal(q, np.square(r).sum(axis=0))
    system = np.block([[q, np.ones((classes, 1))], [np.ones((1, classes)), np.zeros((1, 1))]])
    return np.linalg.solve(system, np.eye(classes + 1)[-1])[:classes]


@pytest.mark.parametrize("variant", _kernels.variants("squared_distances", "svm_scores", "svm_votes"))
def test_wrong_operands_are_refused(variant: str) -> None:
    kernels, rho = np.zeros((2, 3), F32), np.zeros(1, F32)
    coefficients = np.zeros((1, 3), F32)
    for starts in ([0, 2, 4], [0, 3, 2], [-1, 1, 3], [0, 3]):
        operands = [kernels, coefficients, np.array(starts), rho]
        with pytest.raises((InferenceError, ValueError)):
            _kernels.call("svm_scores", operands, [((2, 1), F32)], [2], (), variant=variant)
    with pytest.raises((InferenceError, ValueError)):
        _kernels.call("svm_votes", [np.zeros((2, 3), F32), None, None], [((2,), I64)], [4], (), variant=variant)
    with pytest.raises((InferenceError, ValueError)):
        _kernels.call("squared_distances", [kernels, np.zeros((2, 4), F32)], [((2, 4), F32)], (), (), variant=variant)
