"""How far two results are apart."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.base.difference import difference


def test_difference_of_floats() -> None:
    expected = np.array([100.0, 1.0, 0.0, np.nan, np.inf])
    same = difference("v", expected.copy(), expected, 0, 0)
    assert same.passes
    assert same.verdict == "equal"
    found = difference("v", expected + np.array([1, 0.001, 0, 0, 0]), expected, 1e-3, 0)
    assert found.off == 1
    assert found.largest == pytest.approx(1)
    assert found.relative == pytest.approx(0.01)
    assert found.least_rtol == pytest.approx(0.01)
    assert found.least_atol == pytest.approx(0.9)
    assert difference("v", np.array([1e-9]), np.array([0.0]), 1, 0).least_rtol == np.inf
    assert difference("v", np.array([np.nan]), np.array([0.0]), 1, 1).least_atol == np.inf
    assert difference("v", np.array([-np.inf]), np.array([np.inf]), 1, 1).off == 1


def test_difference_of_other_types() -> None:
    assert not difference("v", np.array([1, 2]), np.array([1, 3]), 1, 1).passes
    assert difference("v", np.array(["a"], object), np.array(["a"], object), 0, 0).passes
    assert not difference("v", np.array([True]), np.array([False]), 1, 1).passes
    shapes = difference("v", np.zeros(2), np.zeros(3), 1, 1)
    assert "expected float64 [3]" in shapes.verdict
    assert not shapes.passes
    assert not difference("v", np.zeros(2, np.float32), np.zeros(2), 1, 1).passes
    assert difference("v", [np.zeros(2)], [np.zeros(2)], 0, 0).passes
    assert not difference("v", [np.zeros(2)], [], 1, 1).passes
    assert difference("v", None, None, 0, 0).passes
    assert difference("v", np.zeros((0, 2)), np.zeros((0, 2)), 0, 0).passes


def test_lists_of_maps() -> None:
    """As ZipMap returns them."""
    rows = [{0: 0.25, 1: 0.75}, {0: 0.5, 1: 0.5}]
    single = [{key: np.float32(value) for key, value in row.items()} for row in rows]
    assert difference("v", rows, single, 0, 0).passes
    moved = difference("v", [{0: 0.25, 1: 0.75}, {0: 0.5, 1: 0.6}], rows, 1e-3, 0)
    assert moved.off == 1
    assert moved.largest == pytest.approx(0.1)
    assert moved.shape == (2, 2)
    assert not difference("v", rows[:1], rows, 1, 1).passes
    assert not difference("v", [], rows, 1, 1).passes
    others = difference("v", [{"a": 0.25, "b": 0.75}] * 2, rows, 1, 1)
    assert not others.passes
    assert "expected" in others.verdict
    assert difference("v", [{0: "a"}], [{0: "a"}], 0, 0).passes  # not numbers
    assert not difference("v", [{0: "a"}], [{0: "b"}], 1, 1).passes
    assert not difference("v", [{0: 1.0}, {1: 1.0}], [{0: 1.0}, {1: 2.0}], 1, 1).passes
    for other in (None, np.zeros(2), [np.zeros(2)], {0: 2.0}):
        assert not difference("v", {0: 1.0}, other, 1, 1).passes
