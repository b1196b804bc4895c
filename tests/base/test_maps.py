"""Lists of maps as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.base.maps import table_of_maps


@given(st.lists(st.integers(), unique=True, max_size=4), st.integers(1, 4), st.data())
def test_tables(keys: list[int], rows: int, data: st.DataObject) -> None:
    maps = [{key: data.draw(st.floats(allow_nan=False)) for key in keys} for _ in range(rows)]
    table = table_of_maps(maps)
    assert table is not None
    assert table[0] == keys
    assert table[1].shape == (rows, len(keys))
    assert [dict(zip(keys, row, strict=True)) for row in table[1].tolist()] == maps


@pytest.mark.parametrize(
    "value", [None, [], {}, {0: 1.0}, [{0: 1.0}, {1: 1.0}], [{0: 1.0}, [1.0]], [{0: "a"}], [np.zeros(2)], np.zeros(2)]
)
def test_other_values(value: Any) -> None:
    assert table_of_maps(value) is None
