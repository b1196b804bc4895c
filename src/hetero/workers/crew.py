"""The worker that a compiled model has, whatever it is, and the next one when it is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..errors import HeteroError, WorkerLost

__all__ = ["Crew", "Mortal"]


class Mortal(Protocol):
    """A worker, which may end at any time."""

    @property
    def has_ended(self) -> bool:
        """As far as is known. Cheap: it is asked before each inference."""
        ...


Worker = TypeVar("Worker", bound=Mortal)
Result = TypeVar("Result")


class Crew(Generic[Worker]):
    """One worker at a time. Thread-safe; all that use it wait while one is made."""

    def __init__(self, name: str, start: Callable[[], Worker]) -> None:
        """Makes the first. ``name``: of what they work for. ``start``: gives a worker that is ready for inferences, or
        raises, as compiling does."""
        self.name = name
        self._start = start
        self._lock = threading.Lock()
        self._worker: Worker | None = start()

    def worker(self) -> Worker:
        """One that lives, as far as is known: a new one if the last is lost. Raises what ``start`` does."""
        with self._lock:
            if self._worker is None or self._worker.has_ended:
                self._worker = None
                self._worker = self._start()
            return self._worker

    def run(self, work: Callable[[Worker], Result], retries: int) -> Result:
        """``work(worker)``; again with the next worker, up to ``retries`` times, if that raises `WorkerLost`."""
        attempt = 0
        while True:
            try:
                return work(self.worker())
            except WorkerLost as error:
                attempt += 1
                if attempt <= retries:
                    continue
                self._replace()
                if retries:
                    error.add_note(f"after {attempt} attempts (WORKER_RETRIES)")
                raise

    def _replace(self) -> None:
        """Make the next worker already, in a thread of its own: nobody waits for it."""

        def work() -> None:
            with contextlib.suppress(HeteroError):  # the next inference tries again, and tells
                self.worker()

        threading.Thread(target=work, name=f"hetero replaces a worker of {self.name}", daemon=True).start()
