"""Where the values of a program lie: most of them in one arena, shared by what does not live at the same time.

Every storage lives from the first call that fills it to the last that reads it; in the order of the calls, each takes
the smallest free block that holds it. Two things save copies and memory:

- a call whose kernel works in place may write its result over an operand that no later call reads (`_in_place`);
- the operands of a concatenation along the outermost axis are computed in their places in the result, and a slice
  along that axis is not copied (`join`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np

from ... import _kernels, _program
from .values import Call, Value

__all__ = ["Parts", "join", "place_in_arena"]

_ALIGNMENT = 64  # of a part within the whole: vectors that straddle cache lines cost more than the copy saves

Parts = Mapping[int, tuple[int, int]]
"""Storage -> the storage of which it is a part, and at which byte of that it begins. That may be a part in turn."""


def join(calls: Sequence[Call], taken: Set[int]) -> tuple[list[Call], dict[int, tuple[int, int]]]:
    """The calls with fewer concatenations and slices, and which storages are parts of others instead.

    ``taken``: storages that lie outside the arena. What cannot be made in place (an input, a constant, a value that is
    in another whole already) is copied to its place in the whole by a call of its own.
    """
    if not any(call.kernel in ("concat", "copy_strided") for call in calls):
        return list(calls), {}
    last_maker = {value.storage: position for position, call in enumerate(calls) for value in call.outputs}
    sizes: dict[int, int] = {}
    for call in calls:
        for value in call.outputs:
            sizes[value.storage] = max(sizes.get(value.storage, 0), _bytes(value))
    parts: dict[int, tuple[int, int]] = {}
    new_storage = max((*last_maker, *taken), default=0) + 1
    joined: list[Call] = []
    for position, call in enumerate(calls):
        begin = _begin_of_slice(call)
        if begin is not None:
            source, result = call.inputs[0], call.outputs[0]
            assert source is not None
            made = last_maker.get(source.storage, position) < position
            if made and last_maker[result.storage] == position and not {source.storage, result.storage} & taken:
                parts[result.storage] = (source.storage, begin)
                continue
        whole = call.outputs[0]
        begins = _begins(call) if call.kernel == "concat" and whole.storage not in taken else None
        if begins is None:
            joined.append(call)
            continue
        operands = [value for value in call.inputs if value is not None]  # all of them
        own = []  # is it made in its place?
        for value, begin in zip(operands, begins, strict=True):
            own.append(
                value.data is None
                and last_maker.get(value.storage, position) < position
                and value.storage not in taken
                and value.storage not in parts
                and sizes[value.storage] == _bytes(value)
                and begin % _ALIGNMENT == 0
            )
            if own[-1]:
                parts[value.storage] = (whole.storage, begin)
        if not any(own):
            joined.append(call)
            continue
        for value, begin, in_place in zip(operands, begins, own, strict=True):
            if not in_place and value.size:
                parts[new_storage] = (whole.storage, begin)
                copy = Value(value.dtype, value.shape, None, new_storage)
                joined.append(dataclasses.replace(call, kernel="identity", inputs=(value,), outputs=(copy,), ints=()))
                new_storage += 1
    return joined, parts


def _begins(call: Call) -> list[int] | None:
    """At which byte of the result the operands of a concatenation begin; None if one is not contiguous there."""
    whole, axis = call.outputs[0], call.ints[0]
    if math.prod(whole.shape[:axis]) != 1:
        return None
    begins, end = [], 0
    for value in call.inputs:
        assert value is not None
        begins.append(end)
        end += _bytes(value)
    return begins


def _begin_of_slice(call: Call) -> int | None:
    """At which byte of its operand the result of a strided copy begins, if that is one piece of it, and aligned."""
    if call.kernel != "copy_strided" or not call.outputs[0].size:
        return None
    rank, begin = call.ints[1], call.ints[0] * call.outputs[0].dtype.itemsize
    expected = 1
    for count, step in zip(reversed(call.ints[2 : 2 + rank]), reversed(call.ints[2 + rank :]), strict=True):
        if count > 1 and step != expected:
            return None
        expected *= count
    return begin if begin % _ALIGNMENT == 0 else None


def _bytes(value: Value) -> int:
    return value.size * value.dtype.itemsize


def _in_place(call: Call, at: int, shared: bool, root: Callable[[int], tuple[int, int]]) -> bool:
    """Whether the first result of a call may be the memory of operand ``at``, if nothing reads that later.

    The caller has checked that the kernel allows it for this operand. The other conditions, which ``HT_IN_PLACE`` in
    kernels.h states and every `Program` checks: the operand has as many elements as the result, of the same size, so
    that element i of both occupies the same bytes; and no other operand lies in that memory, unless the kernel allows
    it (``shared``) and that operand meets the same condition. ``root``: the storage that a storage lies in, and where.
    """
    operand, result = call.inputs[at], call.outputs[0]
    assert operand is not None

    def is_alike(value: Value) -> bool:
        return value.size == result.size and value.dtype.itemsize == result.dtype.itemsize

    if not is_alike(operand):
        return False
    whole, _ = root(operand.storage)
    return all(
        shared and other.storage == operand.storage and is_alike(other)
        for number, other in enumerate(call.inputs)
        if number != at and other is not None and other.data is None and root(other.storage)[0] == whole
    )


_rule = functools.cache(_kernels.in_place)


def place_in_arena(calls: Sequence[Call], place: dict[int, tuple[int, int]], parts: Parts) -> int:
    """Give every storage that has no place yet an offset, as (0, offset); returns the arena's size in bytes.

    ``place``: storage -> (kind of place, number); kind 3 is an output of the program.
    A call that may work in place, on an operand nobody reads afterwards, gets that operand's memory for its result.
    """
    roots: dict[int, tuple[int, int]] = {}

    def root(storage: int) -> tuple[int, int]:
        """The whole that a storage lies in, which may be itself, and at which byte."""
        if storage not in parts:
            return storage, 0
        path, begin = [], 0
        while storage in parts and storage not in roots:
            path.append(storage)
            storage = parts[storage][0]
        storage, begin = roots.get(storage, (storage, 0))
        for step in reversed(path):
            begin += parts[step][1]
            roots[step] = (storage, begin)
        return storage, begin

    first: dict[int, int] = {}
    last: dict[int, int] = {}
    size: dict[int, int] = {}
    for position, call in enumerate(calls):
        for value in call.outputs:
            whole, begin = root(value.storage)
            first.setdefault(whole, position)
            last[whole] = position
            end = begin + _bytes(value)
            if end > size.get(whole, -1):
                size[whole] = end
        for operand in call.inputs:
            if operand is not None and operand.data is None:
                last[root(operand.storage)[0]] = position
    outputs = {storage for storage, (kind, _) in place.items() if kind == 3}
    wholes = {root(part)[0] for part in parts}
    renamed: dict[int, int] = {}  # storage -> the one whose memory it continues
    for position, call in enumerate(calls):
        allowed, shared = _rule(call.kernel) if not call.branches else ((), False)
        for at in allowed:
            operand, result = call.inputs[at] if at < len(call.inputs) else None, call.outputs[0]
            if operand is None or operand.data is not None or operand.storage not in first:
                continue  # a constant, an input of the program, or a part of something
            old, new = renamed.get(operand.storage, operand.storage), result.storage
            if (
                last[old] == position
                and new not in parts
                and size[old] == size[new]
                and first[new] == position
                and old not in outputs
                and new not in renamed
                and not (new in outputs and old in wholes)
                and size[old] == _bytes(operand)  # the operand is all of its storage
                and _in_place(call, at, shared, root)
            ):
                if new in outputs:  # the operand moves into the output's memory
                    outputs.add(old)
                    place[old] = place[new]
                renamed[new] = old
                if new in wholes:
                    wholes.add(old)
                last[old] = last[new]
                break
    placed = [storage for storage in first if storage not in place and storage not in renamed]
    offsets, end = _program.arena_layout(
        np.array([first[storage] for storage in placed], np.int64),
        np.array([last[storage] for storage in placed], np.int64),
        np.array([size[storage] for storage in placed], np.int64),
    )
    place.update(zip(placed, ((0, offset) for offset in offsets.tolist()), strict=True))
    for new, old in renamed.items():
        place[new] = place[old]
    for part in parts:
        whole, begin = root(part)
        place[part] = (0, place[whole][1] + begin)
    return end
