"""Some combinations of parameters for the ordinary run, and all for the exhaustive one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["spread"]


def spread(every: int, *values: Sequence[Any]) -> list[Any]:
    """The product of ``values`` as rows for `pytest.mark.parametrize`. The ordinary run takes one row in ``every``, and
    each value. Two values of different sequences meet in one of these rows if a third sequence has ``every`` values."""
    return [
        pytest.param(
            *(sequence[at] for sequence, at in zip(values, places, strict=True)),
            marks=[pytest.mark.exhaustive] if sum(places) % every else [],
        )
        for places in itertools.product(*(range(len(sequence)) for sequence in values))
    ]
