"""The measuring behind ``hetero bench``."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import hetero as library
from hetero.cli.measuring import Contender, measure, median_interval, percentile


def test_all_run_as_long_and_as_often_as_asked(diamond_path: Path) -> None:
    compiled = library.compile(diamond_path)
    inputs = {"x": np.zeros((1, 4, 5, 6), np.float32)}
    contenders = [Contender(str(n), compiled, inputs, n) for n in (1, 2)]
    told: list[float] = []
    for contender in contenders:
        contender.warm_up(1)
    measure(contenders, 0.05, 40, told.append)
    for contender in contenders:
        assert contender.count >= 40
        assert contender.wall >= 0.05
        assert contender.first > 0
    assert told[-1] == 1.0
    assert told == sorted(told)


def test_percentile_is_numpys() -> None:
    times = sorted(np.random.default_rng(0).random(23).tolist())
    for percent in (0, 50, 90, 99, 100):
        assert percentile(times, percent) == pytest.approx(np.percentile(times, percent))
    assert percentile([3.0], 50) == 3.0


@pytest.mark.parametrize("count", [6, 7, 10, 31, 100, 1001])
def test_the_interval_of_the_median_has_95_percent(count: int) -> None:
    low, high = median_interval(list(range(count))) or (0, 0)
    assert low + high == count - 1
    # The probability that the median of the distribution lies outside: that too few or too many values lie below it.
    outside = 2 * sum(math.comb(count, below) for below in range(int(low) + 1)) / 2**count
    assert 0.01 <= outside <= 0.05


def test_no_interval_for_few_values() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([]) is None
