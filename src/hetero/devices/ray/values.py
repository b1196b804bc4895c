"""Results that stay on the node where they were made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import WorkerLost

__all__ = ["LeftResults", "LeftValue"]


class LeftResults:
    """The results of one inference of a submodel, by reference; made again if the node that has them is lost.

    ``again``: runs the inference once more and gives its references; None if that is not wanted.
    """

    def __init__(self, references: Sequence[Any], again: Callable[[], Sequence[Any]] | None) -> None:
        self._references = list(references)
        self._again = again
        self._lock = threading.Lock()

    def reference(self, position: int) -> Any:
        with self._lock:
            return self._references[position]

    def make_again(self, position: int, lost: Any) -> None:
        """Have another result in place of the reference ``lost``. Raises `WorkerLost` if that is not wanted."""
        with self._lock:
            if self._references[position] is not lost:
                return  # another reader of it came first
            if self._again is None:
                raise WorkerLost("a value between two submodels went with the node that had it")
            self._references = list(self._again())


class LeftValue:
    """A result in the object store of a node, for another submodel in the same cluster. ``nbytes``: of its array."""

    __slots__ = ("_position", "_results", "nbytes")

    def __init__(self, results: LeftResults, position: int, nbytes: int) -> None:
        self._results = results
        self._position = position
        self.nbytes = nbytes

    @property
    def reference(self) -> Any:
        """Ray's."""
        return self._results.reference(self._position)

    def make_again(self, lost: Any) -> None:
        """See `LeftResults.make_again`."""
        self._results.make_again(self._position, lost)
