"""The calls of a segment, with the makers and readers of each storage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..values import Call, Value

__all__ = ["CallGraph"]


class CallGraph:
    """The calls of a segment by position, which is the order in which they run.

    Positions never change; the position of a removed call stays empty. ``kept``: storages read after the segment."""

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
        """Positions and calls in order. The graph may be changed during the iteration."""
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
        """Whether exactly one call writes ``value`` and it is read ``readers`` times, never after the segment."""
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
        """Whether no call but the one at ``but_at`` (-1: no call at all) reads ``value``, nor anything after the
        segment."""
        return value.storage not in self._kept and set(self._readers.get(value.storage, ())) <= {but_at}

    def only_reader(self, value: Value) -> int | None:
        """The position of the call that reads ``value``, if it is read exactly once and `is_private`."""
        return self._readers[value.storage][0] if self.is_private(value, 1) else None

    def maker(self, value: Value) -> int | None:
        """The position of the call that computes ``value``; None for an input of the segment, a known value, or a
        storage that several calls write."""
        makers = self._makers.get(value.storage, ())
        return makers[0] if value.data is None and len(makers) == 1 else None

    def is_made_before(self, value: Value, position: int) -> bool:
        """Whether ``value`` is complete before the call at ``position`` runs."""
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
        """Remove the call at ``position``, unless it was removed before or its results are read."""
        call = self._calls[position]
        if call is not None and all(self.is_unread(value, -1) for value in call.outputs):
            self.remove(position)

    def absorb(self, position: int, reader: int, call: Call) -> Call:
        """Replace the calls at ``position`` and ``reader``, its only reader, by ``call`` at ``position``.

        The result goes to the storage of the reader's result, in the shape of ``call``'s own output."""
        last = self.call(reader)
        made = Value(last.outputs[0].dtype, call.outputs[0].shape, None, last.outputs[0].storage)
        self.remove(reader)
        return self.replace(position, call.changed(outputs=(made, *call.outputs[1:])))

    def result(self) -> list[Call]:
        return [call for call in self._calls if call is not None]
