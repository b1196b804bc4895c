"""What the compiled module checks of the arrays of values, before it reads by their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero._assign import Ranges, ValueArrays
from hetero.assign.memory import Values, footprint
from hetero.errors import PartitionError

GOOD: dict[str, Any] = {
    "num_nodes": 2,
    "producer": [-1, 0, 1],
    "size": [8.0, 4.0, 2.0],
    "is_constant": [False] * 3,
    "is_output": [False, False, True],
    "read_value": [0, 1],
    "read_node": [0, 1],
    "own": [0.0, 1.0],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_nodes", -1),
        ("num_nodes", 1),
        ("producer", [-2, 0, 1]),
        ("producer", [-1, 0, 2]),
        ("producer", [-1, 0]),
        ("size", [8.0, 4.0]),
        ("size", [8.0, 4.0, np.inf]),
        ("size", [8.0, -4.0, 2.0]),
        ("size", [8.0, np.nan, 2.0]),
        ("is_constant", [False]),
        ("is_output", [False] * 4),
        ("read_value", [0, 3]),
        ("read_value", [0, -1]),
        ("read_value", [1, 0]),
        ("read_node", [0, 2]),
        ("read_node", [0]),
        ("own", [0.0]),
        ("own", [0.0, np.inf]),
    ],
)
def test_arrays_that_do_not_fit(name: str, value: Any) -> None:
    ValueArrays(*GOOD.values())
    with pytest.raises(PartitionError):
        ValueArrays(*(GOOD | {name: value}).values())


@pytest.mark.parametrize("read_node", [[1, 0], [1, 1]])
def test_reads_of_a_value_ascend_by_node(read_node: list[int]) -> None:
    ValueArrays(*(GOOD | {"read_value": [0, 0]}).values())
    with pytest.raises(PartitionError, match="ascend"):
        ValueArrays(*(GOOD | {"read_value": [0, 0], "read_node": read_node}).values())


def test_ranges() -> None:
    arrays = ValueArrays(*GOOD.values())
    with pytest.raises(PartitionError):
        Ranges(arrays, [0])
    with pytest.raises(PartitionError):
        Ranges(arrays, [0, 2])
    ranges = Ranges(arrays, [0, 1])
    for begin, end in ((-1, 1), (1, 0), (0, 3)):
        with pytest.raises(IndexError):
            ranges.parts_from(begin, end)
        with pytest.raises(IndexError):
            ranges.need(begin, end)
    assert ranges.need(1, 1) == 0
    assert ranges.longest(0, -1.0) == ranges.longest(0, 0.0) == 0
    assert ranges.longest(2, 1.0) == 2
    assert ranges.longest(0, np.inf) == 2
    assert Ranges(ValueArrays(0, [], [], [], [], [], [], []), []).longest(0, 1.0) == 0


def test_footprint() -> None:
    values = Values.from_arrays(2, [-1, 0, 1], [8, 4, 2], [0, 1], [0, 1])
    for subgraph_of, device_of, devices in (([0, 1], [0], 1), ([0, 0], [1], 1), ([0], [0], 1), ([0, -1], [0, 0], 1)):
        with pytest.raises(PartitionError):
            footprint(values, subgraph_of, device_of, devices)
    assert footprint(values, [0, 0], [0], 1).total.tolist() == [14]
