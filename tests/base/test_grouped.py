"""The minimum and the maximum of each group, against `ufunc.at`."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.base.grouped import group_max, group_min


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("count", "groups"), [(0, 0), (0, 3), (1, 1), (7, 3), (50, 8), (200, 1000), (500, 5)])
def test_as_ufunc_at(dtype: type, count: int, groups: int) -> None:
    random = np.random.default_rng(count + groups)
    numbers = random.integers(-9, 99, count).astype(dtype)
    group = random.integers(0, max(1, groups), count).astype(dtype)
    for function, at, none in ((group_min, np.minimum.at, 100), (group_max, np.maximum.at, -10)):
        expected = np.full(groups, none)
        at(expected, group, numbers)
        found = function(numbers, group, groups, none)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)


def test_none_stands_only_for_groups_without_numbers() -> None:
    numbers, group = np.array([5, 3]), np.array([2, 2])
    assert group_min(numbers, group, 4, -1).tolist() == [-1, -1, 3, -1]
    assert group_max(numbers, group, 4, 9).tolist() == [9, 9, 5, 9]
