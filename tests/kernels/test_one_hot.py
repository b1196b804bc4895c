"""The kernel `one_hot`: a comparison with every category, in every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import InferenceError, _kernels

pytestmark = pytest.mark.spread(2)

F32 = np.dtype("float32")
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
CATEGORIES = {
    "one": [5],
    "dense": [2, 0, 1, -1, 3],
    "gaps": [7, -3, 0, 100, 2, 1],
    "two ends": [MOST, LEAST],
    "at the upper end": [MOST, MOST - 1, MOST - 2],
    "at the lower end": [LEAST + 1, LEAST],
    "many": list(range(500, 0, -3)),
}


@pytest.fixture(scope="module")
def team() -> _kernels.Team:
    return _kernels.Team(2)


def operands(x: np.ndarray, categories: list[int]) -> list[np.ndarray]:
    numbers = np.array(categories, np.int64)
    places = np.argsort(numbers)
    return [x, numbers[places], places]


def near(categories: list[int]) -> np.ndarray:
    """Every category, its neighbors, and the ends of int64."""
    close = {number + step for number in categories for step in (-1, 0, 1)} | {LEAST, MOST, 0}
    return np.array(sorted(number for number in close if LEAST <= number <= MOST), np.int64)


@pytest.mark.parametrize("variant", _kernels.variants("one_hot"))
@pytest.mark.parametrize("name", CATEGORIES)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_one_hot(team: _kernels.Team, dtype: str, name: str, variant: str) -> None:
    categories = CATEGORIES[name]
    limits = np.iinfo(dtype)
    x = near(categories)
    x = x[(x >= limits.min) & (x <= limits.max)].astype(dtype)
    for numbers in (x, np.tile(x, 40), x[:0]):
        result = ((len(numbers), len(categories)), F32)
        for threads in (None, team):
            given = operands(numbers, categories)
            (found,) = _kernels.call("one_hot", given, [result], [1], variant=variant, team=threads)
            assert np.array_equal(found, numbers[:, None] == np.array(categories, np.int64))


@pytest.mark.parametrize("variant", _kernels.variants("one_hot"))
@pytest.mark.parametrize("name", CATEGORIES)
def test_the_first_unknown_category_is_named(team: _kernels.Team, name: str, variant: str) -> None:
    categories = CATEGORIES[name]
    known = np.tile(np.array(categories, np.int64), 2000 // len(categories) + 1)
    result = [((len(known), len(categories)), F32)]
    for threads in (None, team):
        given = {"variant": variant, "team": threads}
        (found,) = _kernels.call("one_hot", operands(known, categories), result, [0], **given)
        assert np.array_equal(found, known[:, None] == np.array(categories, np.int64))
        for unknown in set(near(categories).tolist()) - set(categories):
            x = known.copy()
            x[[1, -1]] = unknown, unknown
            with pytest.raises(InferenceError, match=f"one_hot: {unknown} is not a category, and zeros is 0"):
                _kernels.call("one_hot", operands(x, categories), result, [0], **given)


def test_other_operands_are_refused() -> None:
    x, keys, places = operands(np.zeros(2, np.int64), [1, 2])
    for given, shape, dtype, ints in [
        ([x.astype(np.int16), keys, places], (2, 2), "float32", [1]),
        ([x, keys.astype(np.int32), places], (2, 2), "float32", [1]),
        ([x, keys, places[:1]], (2, 2), "float32", [1]),
        ([x, keys[:0], places[:0]], (2, 0), "float32", [1]),
        ([x, keys, places], (2, 1), "float32", [1]),
        ([x, keys, places], (2, 2), "float64", [1]),
        ([x, keys, places], (2, 2), "float32", []),
    ]:
        with pytest.raises(InferenceError, match="one_hot"):
            _kernels.call("one_hot", given, [(shape, np.dtype(dtype))], ints)
