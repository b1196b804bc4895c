"""Tests marked ``spread(n)``: some combinations of their parameters in the ordinary run, all in the exhaustive one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

__all__ = ["choose", "spread"]


def spread(items: Sequence[pytest.Item]) -> None:
    """Mark combinations that the ordinary run leaves out as exhaustive.

    ``pytest.mark.spread(n)`` stands at a test, a class or a file, as `pytestmark`. Of each of its tests with several
    parameters, about one combination in ``n`` remains, see `choose`. Each call of `pytest.mark.parametrize` is one
    parameter, and so is each fixture with ``params``. A test with one parameter keeps all values, and so does a test
    with ``spread(1)`` in a file with another mark."""
    tests = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("spread"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for combinations in tests.values():
        (every,) = combinations[0].get_closest_marker("spread").args
        for item, remains in zip(combinations, choose(places_of(combinations), every), strict=True):
            if not remains:
                item.add_marker(pytest.mark.exhaustive)


def places_of(combinations: Sequence[pytest.Item]) -> list[dict[str, int]]:
    """The parameters of each combination of a test, and the place of each one's value in its list."""
    seen: dict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
    places = []
    for item in combinations:
        # Values are the same objects in all combinations; some can be neither hashed nor compared.
        values = {name: id(value) for name, value in item.callspec.params.items()}  # type: ignore[attr-defined]
        groups = [mark.args[0] for mark in item.iter_markers("parametrize")]
        groups = [names.replace(",", " ").split() if isinstance(names, str) else names for names in groups]
        groups += [[name] for name in values if not any(name in names for names in groups)]
        found = {",".join(names): tuple(values[name] for name in names) for names in groups}
        places.append({names: seen[names].setdefault(value, len(seen[names])) for names, value in found.items()})
    return places


def choose(combinations: Sequence[Mapping[str, int]], every: int) -> list[bool]:
    """Which combinations of places remain: in a product, one in ``every``. Each value remains in some combination. Two
    values of different parameters remain together if a third parameter has ``every`` values.

    A combination remains if ``every`` divides the sum of the digits of its places in base ``every``. Digits, because a
    list may itself be a product: where every second value of a list is of another type, each type still meets each
    value of the other parameters."""
    remain = [sum(digits(place, every) for place in places.values()) % every == 0 for places in combinations]
    seen = {value for places, kept in zip(combinations, remain, strict=True) if kept for value in places.items()}
    for at, places in enumerate(combinations):
        if not places.items() <= seen:
            remain[at] = True
            seen |= places.items()
    return remain


def digits(number: int, base: int) -> int:
    return number % base + digits(number // base, base) if number and base > 1 else 0
