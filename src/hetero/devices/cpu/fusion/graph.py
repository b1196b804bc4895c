"""The calls of a segment, with who makes and who reads each storage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..values import Call, Value

__all__ = ["CallGraph"]


class CallGraph:
    """Calls by position; a position whose call was fused into another is empty. Positions never change, so comparing
    them tells what runs first."""

    def __init__(self, calls: Sequence[Call], kept: Collection[int]) -> None:
        self._calls: list[Call | None] = list(calls)
        self._kept = frozenset(kept)
        self._readers: dict[int, list[int]] = {}  # storage -> position per read
        self._makers: dict[int, list[int]] = {}
        for position, call in enumerate(calls):
            self._note(position, call)

    def _note(self, position: int, call: Call) -> None:
        for value in call.inputs:
            if value is not None and value.data is None:
                self._readers.setdefault(value.storage, []).append(position)
        for value in call.outputs:
            self._makers.setdefault(value.storage, []).append(position)

    def _forget(self, position: int, call: Call) -> None:
        for value in call.inputs:
            if value is not None and value.data is None:
                self._readers[value.storage].remove(position)
        for value in call.outputs:
            self._makers[value.storage].remove(position)

    def __iter__(self) -> Iterator[tuple[int, Call]]:
        """Positions and calls as they are now, in order; calls may be fused on the way."""
        for position in range(len(self._calls)):
            call = self._calls[position]
            if call is not None:
                yield position, call

    def call(self, position: int) -> Call:
        call = self._calls[position]
        assert call is not None
        return call

    def reader_positions(self, value: Value) -> list[int]:
        return list(self._readers.get(value.storage, ()))

    def is_private(self, value: Value, readers: int) -> bool:
        """Whether one call makes all of ``value``, it is read so many times, and by nobody after the segment."""
        return (
            value.data is None
            and value.storage not in self._kept
            and len(self._makers.get(value.storage, ())) == 1
            and len(self._readers.get(value.storage, ())) == readers
        )

    def is_kept(self, value: Value) -> bool:
        """Whether ``value`` is read after the segment."""
        return value.storage in self._kept

    def is_unread(self, value: Value, but_at: int) -> bool:
        """Whether nobody reads ``value`` but the call of one position."""
        return value.storage not in self._kept and set(self._readers.get(value.storage, ())) <= {but_at}

    def only_reader(self, value: Value) -> int | None:
        """The position of the one call that reads ``value``, once, if nothing else will."""
        return self._readers[value.storage][0] if self.is_private(value, 1) else None

    def maker(self, value: Value) -> int | None:
        """The position of the one call that makes ``value``; None if it is given, or known, or made in parts."""
        makers = self._makers.get(value.storage, ())
        return makers[0] if value.data is None and len(makers) == 1 else None

    def is_made_before(self, value: Value, position: int) -> bool:
        """Whether ``value`` is complete when the call of a position runs."""
        return value.data is not None or all(maker < position for maker in self._makers.get(value.storage, ()))

    def replace(self, position: int, call: Call) -> Call:
        self._forget(position, self.call(position))
        self._calls[position] = call
        self._note(position, call)
        return call

    def remove(self, position: int) -> None:
        self._forget(position, self.call(position))
        self._calls[position] = None

    def remove_unread(self, position: int) -> None:
        """Remove the call of a position, if it is there and nobody reads what it makes."""
        call = self._calls[position]
        if call is not None and all(self.is_unread(value, -1) for value in call.outputs):
            self.remove(position)

    def absorb(self, position: int, reader: int, call: Call) -> Call:
        """``call`` stands for the calls of ``position`` and its only reader: it takes the place of the first, for whose
        node it counts, and its output the place of the second's, under its own shape."""
        last = self.call(reader)
        made = Value(last.outputs[0].dtype, call.outputs[0].shape, None, last.outputs[0].storage)
        self.remove(reader)
        return self.replace(position, call.changed(outputs=(made, *call.outputs[1:])))

    def result(self) -> list[Call]:
        return [call for call in self._calls if call is not None]
