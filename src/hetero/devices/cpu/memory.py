"""Memory placement: most storages of a program share one arena, by liveness.

A storage is live from the first call that writes it to the last call that reads it. In the order of the calls, each
storage gets the smallest free block that fits. Two rules avoid copies and put one storage into the memory of another:

- In place: a call may write its result over an operand that no later call reads (`_in_place`, `place_in_arena`).
- Parts: the operands of a concatenation along the outermost axis are computed directly in the result, and a contiguous
  slice is not copied (`join`). If a concatenation begins with the operands of an earlier one, it contains that one's
  result, so a dense block, which appends each layer's result to all earlier ones, copies nothing (`nest`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np

from ... import _kernels, _program
from ..._sizes import are_same, hint, is_symbolic
from .values import Call, Value

__all__ = ["Buffers", "Parts", "assign_buffers", "join", "place_in_arena"]

_ALIGNMENT = _kernels.constant("ALIGNMENT")  # bytes, of every tensor in the arena, so of a part within its whole too

Parts = Mapping[int, tuple[int, int]]
"""Storage -> its whole, and the byte of the whole at which it begins. The whole may itself be a part."""


def join(
    calls: Sequence[Call], taken: Set[int], new_storage: Callable[[], int]
) -> tuple[list[Call], dict[int, tuple[int, int]]]:
    """Remove concatenations and slices by making storages parts of others; returns the remaining calls and the parts.

    ``taken``: storages outside the arena, which are inputs and outputs of the program; for the calls of a branch, also
    storages that other calls use. They are never parts or wholes.

    A slice becomes a part of its source if it is one contiguous, aligned piece (`_begin_of_slice`), the source is
    computed in this program and complete before the slice, and no other call writes the result.
    A concatenation is removed if its operands are contiguous in the result (`_begins`) and at least one operand can be
    computed there: a value that is computed in this program before, fills its storage, is not a part already, and
    begins at an aligned byte. Every other operand is copied into the result by a call of its own.
    """
    if not any(call.kernel in ("concat", "copy_strided") for call in calls):
        return list(calls), {}
    last_maker = {value.storage: position for position, call in enumerate(calls) for value in call.outputs}
    calls = nest(calls, taken, last_maker)
    sizes: dict[int, int] = {}
    for call in calls:
        for value in call.outputs:
            sizes[value.storage] = max(sizes.get(value.storage, 0), _bytes(value))
    parts: dict[int, tuple[int, int]] = {}
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
        operands = [value for value in call.inputs if value is not None]  # none is absent
        own = []  # per operand: whether it is computed directly in the result
        for value, begin in zip(operands, begins, strict=True):
            own.append(
                value.data is None
                and last_maker.get(value.storage, position) < position
                and value.storage not in taken
                and value.storage not in parts
                and are_same(sizes[value.storage], _bytes(value))
                and _is_aligned(begin)
            )
            if own[-1]:
                parts[value.storage] = (whole.storage, begin)
        if not any(own):
            joined.append(call)
            continue
        for value, begin, in_place in zip(operands, begins, own, strict=True):
            if not in_place and value.size:
                copy = Value(value.dtype, value.shape, None, new_storage())
                parts[copy.storage] = (whole.storage, begin)
                joined.append(dataclasses.replace(call, kernel="identity", inputs=(value,), outputs=(copy,), ints=()))
    return joined, parts


@dataclasses.dataclass(slots=True)
class _Prefix:
    """The first operands of some concatenations, as a node of a trie. ``nbytes``: size of the last operand. ``result``:
    the concatenation of exactly these operands, if a call has computed it. ``longer``: storage of the next operand ->
    the list that includes it."""

    nbytes: int
    result: Value | None = None
    longer: dict[int, _Prefix] = dataclasses.field(default_factory=dict)


def nest(calls: Sequence[Call], taken: Set[int], last_maker: Mapping[int, int]) -> list[Call]:
    """Replace the first operands of a concatenation by the result of an earlier concatenation of just these.

    Both concatenate along the outermost axis, so the bytes of the result are those of the operands. The earlier result
    is not in ``taken``, and no call writes it or one of the operands after the earlier concatenation. ``last_maker``:
    storage -> the last call that writes it.
    """
    nested = list(calls)
    root = _Prefix(0)
    for position, call in enumerate(calls):
        if call.kernel != "concat" or len(call.inputs) < 2 or _begins(call) is None:
            continue
        prefix, replaced, replacement = root, 0, None
        for number, value in enumerate(call.inputs, 1):
            assert value is not None
            if value.data is not None or value.late is not None or last_maker.get(value.storage, -1) >= position:
                break
            following = prefix.longer.get(value.storage)
            if following is None:
                following = prefix.longer[value.storage] = _Prefix(_bytes(value))
            elif not are_same(following.nbytes, _bytes(value)):
                break
            prefix = following
            if number == len(call.inputs):
                result = call.outputs[0]
                if result.storage not in taken and last_maker[result.storage] == position and prefix.result is None:
                    prefix.result = result
            elif prefix.result is not None and prefix.result.dtype == value.dtype:
                replaced, replacement = number, prefix.result
        if replacement is not None:
            axis, whole = call.ints[0], call.outputs[0]
            length = sum(value.shape[axis] for value in call.inputs[:replaced] if value is not None)
            shape = (*whole.shape[:axis], length, *whole.shape[axis + 1 :])
            operand = dataclasses.replace(replacement, shape=shape)
            nested[position] = dataclasses.replace(call, inputs=(operand, *call.inputs[replaced:]))
    return nested


def _begins(call: Call) -> list[int] | None:
    """The byte of the result at which each operand of a concatenation begins; None unless they are contiguous there:
    all axes before that of the concatenation must have size 1."""
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
    """The byte of its source at which the result of a strided copy begins, if the result is one contiguous, aligned
    piece of the source: each axis longer than 1 has the step that it has in the dense result."""
    if call.kernel != "copy_strided" or not call.outputs[0].size:
        return None
    rank, begin = call.ints[1], call.ints[0] * call.outputs[0].dtype.itemsize
    expected = 1
    for count, step in zip(reversed(call.ints[2 : 2 + rank]), reversed(call.ints[2 + rank :]), strict=True):
        if count > 1 and step != expected:
            return None
        expected *= count
    return begin if _is_aligned(begin) else None


def _is_aligned(begin: int) -> bool:
    """Whether a part that begins at this byte is aligned for all sizes: no plan is made for some remainders only."""
    rest = begin % _ALIGNMENT
    return not is_symbolic(rest) and rest == 0


def _bytes(value: Value) -> int:
    return value.size * value.dtype.itemsize


def _in_place(call: Call, at: int, shared: bool, root: Callable[[int], tuple[int, int]]) -> bool:
    """Whether the first result of a call may be written over operand ``at``.

    The caller has checked that the kernel allows it for this operand, and that nothing reads the operand later. The
    other conditions, which ``HT_IN_PLACE`` in kernels.h states and every `Program` checks again:

    - The operand has as many elements as the result, of the same size, so element i of both occupies the same bytes.
    - No other operand lies in that memory, unless the kernel allows it (``shared``), the other operand has the same
      storage and it meets the first condition.

    ``root``: the outermost whole of a storage, and the byte of it at which the storage begins.
    """
    operand, result = call.inputs[at], call.outputs[0]
    assert operand is not None

    def is_alike(value: Value) -> bool:
        return are_same(value.size, result.size) and value.dtype.itemsize == result.dtype.itemsize

    if not is_alike(operand):
        return False
    whole, _ = root(operand.storage)
    return all(
        shared and other.storage == operand.storage and is_alike(other)
        for number, other in enumerate(call.inputs)
        if number != at and other is not None and other.data is None and root(other.storage)[0] == whole
    )


_rule = functools.cache(_kernels.in_place)


@dataclasses.dataclass(slots=True)
class Buffers:
    """The memory of storages that share the arena. Buffer i is used from call ``first[i]`` to call ``last[i]`` and has
    ``bytes[i]`` bytes. ``of``: storage -> its buffer, and the byte of the buffer at which it begins."""

    first: list[int]
    last: list[int]
    bytes: list[int]
    of: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def layout(self) -> tuple[list[int], int]:
        """The offset of each buffer in the arena, and the arena's size in bytes; for the sizes of the plan if they are
        symbols."""
        sizes = [hint(size) for size in self.bytes]
        offsets, end = _program.arena_layout(*(np.array(row, np.int64) for row in (self.first, self.last, sizes)))
        return offsets.tolist(), int(end)


def assign_buffers(calls: Sequence[Call], place: dict[int, tuple[int, int]], parts: Parts) -> Buffers:
    """Decide which storages without a place share memory.

    ``calls``: all calls, with those of branches (`in_order`). Memory is assigned as if all of them ran.
    ``place``: storage -> (kind, number), as the planner's header defines them; storages that take over the memory of an
    output are added. ``parts``: see `join`.

    A result takes over the memory of an operand if the kernel works in place (`_in_place`) and:

    - This call is the last to read the operand's storage or a part of it, and the first to write the result's storage.
    - The operand is computed in this program, is not an output, is not a part, and fills its storage.
    - The result is not a part, has not taken over other memory, and its storage has the same size.
    - If the result is an output, no parts lie in the operand's memory, since parts are placed in the arena.
    """
    roots: dict[int, tuple[int, int]] = {}

    def root(storage: int) -> tuple[int, int]:
        """The outermost whole of a storage, which may be the storage itself, and the byte at which it begins."""
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
    outputs = {storage for storage, (kind, _) in place.items() if kind == _program.OUTPUT}
    wholes = {root(part)[0] for part in parts}
    renamed: dict[int, int] = {}  # storage -> the storage whose memory it takes over
    for position, call in enumerate(calls):
        allowed, shared = ((), False) if call.branches else _rule(call.kernel)
        for at in allowed:
            operand, result = call.inputs[at] if at < len(call.inputs) else None, call.outputs[0]
            if operand is None or operand.data is not None or operand.storage not in first:
                continue  # absent, a constant, an input of the program, or a part
            old, new = renamed.get(operand.storage, operand.storage), result.storage
            if (
                last[old] == position
                and new not in parts
                and are_same(size[old], size[new])
                and first[new] == position
                and old not in outputs
                and new not in renamed
                and not (new in outputs and old in wholes)
                and are_same(size[old], _bytes(operand))  # the operand fills its storage
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
    buffers = Buffers(
        [first[storage] for storage in placed],
        [last[storage] for storage in placed],
        [size[storage] for storage in placed],
    )
    for number, storage in enumerate(placed):
        buffers.of[storage] = (number, 0)
    for new, old in renamed.items():
        if old in place:
            place[new] = place[old]
        else:
            buffers.of[new] = buffers.of[old]
    for part in parts:
        whole, begin = root(part)
        number, start = buffers.of[whole]
        buffers.of[part] = (number, start + begin)
    return buffers


def place_in_arena(calls: Sequence[Call], place: dict[int, tuple[int, int]], parts: Parts) -> int:
    """Give every storage without a place an offset in the arena, as (`_program.ARENA`, offset). Returns the
    arena's size in bytes.

    ``place``: storage -> (kind, number), as the planner's header defines them; it is extended. ``parts``: see `join`.
    """
    buffers = assign_buffers(calls, place, parts)
    offsets, end = buffers.layout()
    place.update(
        (storage, (_program.ARENA, offsets[number] + begin)) for storage, (number, begin) in buffers.of.items()
    )
    return end
