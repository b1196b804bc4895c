"""What runs a compiled model elsewhere and may be lost there, a process or an actor, and the next one when it is."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..errors import WorkerLost

__all__ = ["Crew", "Losable"]


class Losable(Protocol):
    """A worker, which may end at any time."""

    @property
    def is_lost(self) -> bool:
        """As far as is known. Cheap: it is asked before each inference."""
        ...


Worker = TypeVar("Worker", bound=Losable)
Result = TypeVar("Result")


class Crew(abc.ABC, Generic[Worker]):
    """One worker at a time. Thread-safe; all that use it wait while one is made."""

    def __init__(self, name: str) -> None:
        """``name``: of what they work for."""
        self.name = name
        self._lock = threading.Lock()
        self._held: list[Worker] = []  # one or none; a list, so that a finalizer can know it without the crew

    @abc.abstractmethod
    def start(self) -> Worker:
        """A worker that is ready for inferences. Called by one thread at a time. Raises as compiling does."""

    def worker(self) -> Worker:
        """One that lives, as far as is known: a new one if the last is lost. Raises what `start` does."""
        with self._lock:
            if not self._held or self._held[0].is_lost:
                self._held.clear()
                self._held.append(self.start())
            return self._held[0]

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
            with contextlib.suppress(Exception):  # the next inference tries again, and tells
                self.worker()

        threading.Thread(target=work, name=f"hetero replaces a worker of {self.name}", daemon=True).start()
