"""Supervises a worker (a process or an actor) that runs a compiled model, and replaces it if it is lost."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..errors import WorkerLost

__all__ = ["Losable", "WorkerSupervisor"]


class Losable(Protocol):
    """A worker that may end at any time."""

    @property
    def is_lost(self) -> bool:
        """Whether the worker is known to have ended. Must be fast, because it is read before each inference."""
        ...


Worker = TypeVar("Worker", bound=Losable)
Result = TypeVar("Result")


class WorkerSupervisor(abc.ABC, Generic[Worker]):
    """Holds one worker at a time. Thread-safe: all users wait while a worker starts."""

    def __init__(self, name: str) -> None:
        """``name``: the device that the workers run, for errors."""
        self.name = name
        self._lock = threading.Lock()
        self._held: list[Worker] = []  # at most one; a list, so that a finalizer can reference it without this object

    @abc.abstractmethod
    def start(self) -> Worker:
        """A worker that is ready for inferences. Called by one thread at a time. Raises the errors of compiling."""

    def worker(self) -> Worker:
        """The current worker, or a new one if it is lost. Raises the errors of `start`."""
        with self._lock:
            if not self._held or self._held[0].is_lost:
                self._held.clear()
                self._held.append(self.start())
            return self._held[0]

    def run(self, work: Callable[[Worker], Result], retries: int) -> Result:
        """Return ``work(worker)``. If it raises `WorkerLost`, retry with a new worker, up to ``retries`` times."""
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
        """Start the next worker in a background thread."""

        def work() -> None:
            with contextlib.suppress(Exception):  # the next inference tries again and raises the error
                self.worker()

        threading.Thread(target=work, name=f"hetero replaces a worker of {self.name}", daemon=True).start()
