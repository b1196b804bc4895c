"""Strided copies of strided copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from hetero import Core
from hetero.devices.cpu.fusion.views import compose
from single_node import model

Ints = tuple[int, ...]


def apply(x: np.ndarray, ints: Ints) -> np.ndarray:
    """What copy_strided does, index by index."""
    rank = ints[1]
    at = np.array(ints[0])
    for count, step in zip(ints[2 : 2 + rank], ints[2 + rank :], strict=True):
        at = at[..., None] + np.arange(count) * step
    return x.reshape(-1)[at]


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> Ints:
    """A transpose, slice and repetition of a dense array."""
    offset, counts, steps = 0, [], []
    for axis in draw(st.permutations(range(len(shape)))):
        begin, step = draw(st.integers(0, shape[axis] - 1)), draw(st.sampled_from([1, 1, 2, -1, -2]))
        room = shape[axis] - 1 - begin if step > 0 else begin
        counts.append(draw(st.integers(1, room // abs(step) + 1)))
        offset += begin * math.prod(shape[axis + 1 :])
        steps.append(step * math.prod(shape[axis + 1 :]))
    if draw(st.booleans()):
        counts.append(2)
        steps.append(0)
    return (offset, len(counts), *counts, *steps)


@given(data=st.data())
def test_compositions(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    first = data.draw(views(shape))
    between = first[2 : 2 + first[1]]
    if data.draw(st.booleans()):  # reshaped
        between = (math.prod(between[:2]), *between[2:])
    second = data.draw(views(between))
    x = np.arange(math.prod(shape))
    composed = compose(first, second)
    if composed is not None:
        np.testing.assert_array_equal(apply(x, composed), apply(apply(x, first), second))


def test_what_is_no_one_view() -> None:
    evens = (0, 2, 3, 2, 4, 2)  # x[:, ::2] of 3 x 4
    assert compose(evens, (1, 1, 4, 1)) is None  # goes from one row into the next
    assert compose(evens, (1, 1, 2, 1)) is None  # by a single element
    assert compose(evens, (2, 1, 2, -1)) is None
    assert compose(evens, (2, 1, 2, 1)) == (4, 1, 2, 2)
    assert compose((0, 1, 0, 1), (0, 1, 0, 1)) is None


def calls_of(nodes: list[Any], x: np.ndarray, outputs: list[str]) -> int:
    """How many calls a model takes; its results are checked against those without transformations."""
    proto = model(nodes, {"x": x}, outputs, 17)
    compiled = Core().compile_model(Core().read_model(proto), "CPU")
    plain = Core().compile_model(Core().read_model(proto), "CPU", {"DISABLE_TRANSFORMATIONS": True})
    for found, expected in zip(compiled({"x": x}).arrays(), plain({"x": x}).arrays(), strict=True):
        np.testing.assert_array_equal(found, expected)
    (segment,) = compiled._plans.segments()  # type: ignore[attr-defined]
    return int(segment.program.num_calls)


def node(op: str, read: str, made: str, **attributes: Any) -> Any:
    return helper.make_node(op, [read], [made], **attributes)


@pytest.mark.parametrize(
    ("perm", "back", "calls"), [((0, 2, 1), (0, 2, 1), 2), ((1, 2, 0), (1, 2, 0), 3), ((1, 2, 0), (2, 0, 1), 2)]
)
def test_transposes(perm: tuple[int, ...], back: tuple[int, ...], calls: int) -> None:
    """Two that undo each other are none, others are one."""
    nodes = [
        node("Softmax", "x", "a"),
        node("Transpose", "a", "b", perm=perm),
        node("Transpose", "b", "c", perm=back),
        node("Softmax", "c", "y"),
    ]
    x = np.random.default_rng(0).standard_normal((4, 8, 16), np.float32)
    assert calls_of(nodes, x, ["y"]) == calls


def test_what_others_read_stays() -> None:
    nodes = [
        node("Softmax", "x", "a"),
        node("Transpose", "a", "b", perm=(1, 0)),
        node("Transpose", "b", "c", perm=(1, 0)),
        node("Softmax", "c", "y"),
    ]
    x = np.random.default_rng(0).standard_normal((4, 16), np.float32)
    assert calls_of(nodes, x, ["y", "b"]) == 3
    assert calls_of(nodes[:3], x, ["c"]) == 2  # a copy for the caller
