"""Results that stay on the node that computed them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import WorkerLost

__all__ = ["ResidentResults", "ResidentValue"]


class ResidentResults:
    """References to the results of one inference of a submodel. They are recomputed if their node is lost.

    ``again``: runs the inference again and returns the new references; None if inferences are not retried.
    """

    def __init__(self, references: Sequence[Any], again: Callable[[], Sequence[Any]] | None) -> None:
        self._references = list(references)
        self._again = again
        self._lock = threading.Lock()

    def reference(self, position: int) -> Any:
        with self._lock:
            return self._references[position]

    def recompute(self, position: int, lost: Any) -> None:
        """Replace the lost reference. Raises `WorkerLost` if inferences are not retried."""
        with self._lock:
            if self._references[position] is not lost:
                return  # another reader has already replaced it
            if self._again is None:
                raise WorkerLost("a value between two submodels was lost with its node")
            self._references = list(self._again())


class ResidentValue:
    """A result in the object store of a node, for a submodel in the same cluster. ``nbytes``: the size of its array."""

    __slots__ = ("_position", "_results", "nbytes")

    def __init__(self, results: ResidentResults, position: int, nbytes: int) -> None:
        self._results = results
        self._position = position
        self.nbytes = nbytes

    @property
    def reference(self) -> Any:
        """The reference for Ray."""
        return self._results.reference(self._position)

    def recompute(self, lost: Any) -> None:
        """See `ResidentResults.recompute`."""
        self._results.recompute(self._position, lost)
