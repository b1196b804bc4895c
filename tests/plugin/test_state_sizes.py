"""The quick comparison of shapes with ports, against the checks of requests."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hetero
from hetero._sizes import RequestStates, StateSizes
from hetero.model.types import Port
from hetero.plugin.tensor import bind_inputs

Dims = tuple[Any, ...] | None
FLOAT = np.dtype(np.float32)


def ports_of(dims: list[Dims]) -> list[Port]:
    return [Port(f"p{at}", FLOAT, each, True) for at, each in enumerate(dims)]


def is_bound(dims: list[Dims], arrays: list[Any], states: int) -> bool:
    """Whether `bind_inputs` accepts the arrays, of which the first are states, without a word on them."""
    ports = ports_of(dims)
    strict = [port.name for port in ports[:states]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about symbols that no state has
        try:
            bind_inputs(ports, {port.name: array for port, array in zip(ports, arrays, strict=True)}, {}, strict)
        except hetero.InferenceError:
            return False
    return True


def test_as_the_checks_of_requests() -> None:
    random = np.random.default_rng(0)
    sizes = {"a": 1, "b": 2, "c": 0}
    agreed = 0
    for _ in range(20_000):
        dims: list[Dims] = []
        for _ in range(int(random.integers(1, 5))):
            rank = int(random.integers(-1, 4))
            each = tuple([0, 1, 2, None, "a", "b", "c"][random.integers(7)] for _ in range(rank))
            dims.append(None if rank < 0 else each)
        states = int(random.integers(0, len(dims) + 1))
        arrays = []
        for each in dims:
            if each is None:
                each = (1,) * int(random.integers(0, 3))
            shape = [sizes.get(dim, 1) if isinstance(dim, str) else 1 if dim is None else dim for dim in each]
            if shape and random.random() < 0.15:
                shape[random.integers(len(shape))] = int(random.integers(0, 3))
            if random.random() < 0.05:
                shape.append(1)
            arrays.append(np.zeros(shape, np.float32))
        known = StateSizes(dims[:states], dims[states:])
        found = known.fit(arrays[:states]) and known.agree_with(arrays[states:])
        assert found == is_bound(dims, arrays, states), (dims, [array.shape for array in arrays], states)
        agreed += found
    assert 2000 < agreed < 18_000


def test_values_that_are_no_arrays() -> None:
    known = StateSizes([("n",), None], [("n",), None])
    state = np.zeros(2)
    assert known.fit([state, state])
    assert known.agree_with([state, "anything"])
    assert known.agree_with([state, None])
    for other in (None, [1, 2], "ab", 3, np.zeros(3), np.float32(2)):
        assert not known.agree_with([other, None])
    assert not known.fit([None, state])
    assert not known.agree_with([state, None]), "the last states did not fit"
    assert known.fit([state, state])

    class Listed:
        def __init__(self) -> None:
            self.shape = [2]

    assert known.fit([Listed(), state])
    assert not known.agree_with([Listed(), None])
    with pytest.raises(TypeError):
        StateSizes([("n",)])  # type: ignore[call-arg]


def test_no_states() -> None:
    known = StateSizes([], [(2, "n")])
    assert known.fit([])
    assert known.agree_with([np.zeros((2, 9))])
    assert not known.agree_with([np.zeros((3, 9))])


def test_the_arrays_of_steps() -> None:
    """Inputs: first state, other, second state. Results: second state, other, first state."""
    values = RequestStates(StateSizes([("n",), ("m", 2)], [("n",)]), [1, 0, 2], [2, 0], [1])
    assert values.current == (None, None)
    three, four, first, second = np.zeros(3), np.zeros(4), np.zeros(3), np.zeros((5, 2))
    assert values.join([three]) == [None] * 3, "the states have no sizes yet"
    values.current = (first, second)
    for _ in range(2):
        assert list(map(id, values.join([three]))) == [id(first), id(three), id(second)]
    assert values.join([four]) == [None] * 3, "n is 3"
    assert values.join([None]) == [None] * 3
    grown, other = np.zeros((6, 2)), object()
    (left,) = values.part([grown, other, four]) or ()
    assert left is other
    assert values.current[0] is four
    assert values.current[1] is grown
    assert values.join([three]) == [None] * 3, "n is 4"
    kept = values.current
    for wrong in ([grown.T, other, four], [grown, other, grown], [grown, other, None]):
        assert values.part(wrong) is None
        assert values.current is kept
        assert values.join([np.ones(4)])[0] is four, "the last states that fit"
    values.current = (first, second)
    assert values.join([four]) == [None] * 3, "restored states count"
    with pytest.raises(IndexError):
        values.part([grown])
    with pytest.raises(TypeError):
        values.current = [first, second]  # type: ignore[assignment]
