"""Threads for asynchronous work: a stream executor has some threads and the work queue they share.

A device's executor has one thread, called a stream, for each request that the device runs in parallel. The
executor starts a thread if there is work and no thread is idle. Threads end with their executor:

- If the executor is closed or garbage collected, all submitted work finishes, and then its threads end.
- If the interpreter exits, queued work is abandoned. Running work is asked to stop, and the interpreter waits for it
  for at most `EXIT_SECONDS`.
- If the process forks, the child has no threads. In the child, all work is abandoned, and the executor starts again.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Hashable, Sequence
from typing import Protocol

__all__ = [
    "EXIT_SECONDS",
    "PRIORITIES",
    "DeviceExecutors",
    "ExecutorLease",
    "ExecutorManager",
    "PrioritizedExecutor",
    "StreamExecutor",
    "Work",
]

EXIT_SECONDS = 5.0

PRIORITIES = {"LOW": -1, "MEDIUM": 0, "HIGH": 1}
"""Priorities of models that share an executor (``MODEL_PRIORITY``)."""


class Work(Protocol):
    """A unit of work for an executor, which calls either `run` or `abandon`."""

    def run(self) -> None:
        """Do the work, in a thread of the executor. Must not raise."""
        ...

    def abandon(self, why: str) -> None:
        """The work will not run, or its thread no longer exists. May be called in any thread, even during `run`."""
        ...

    def interrupt(self) -> None:
        """Ask `run`, in another thread, to end soon."""
        ...


class StreamExecutor:
    """At most ``streams`` threads. ``processors``: for each stream, the processors its thread may use; None for all."""

    def __init__(self, name: str, streams: int, processors: Sequence[Sequence[int]] | None = None) -> None:
        if streams < 1:
            raise ValueError(f"an executor needs at least one stream, got {streams}")
        self.name = name
        self.streams = streams
        self._queue = _Queue(name, streams, processors)
        _alive.add(self._queue)
        self._finalizer = weakref.finalize(self, self._queue.close)
        self._finalizer.atexit = False  # `_at_exit` handles the exit of the interpreter

    def submit(self, work: Work, priority: int = 0) -> None:
        """Queue ``work`` after all earlier work of the same or a higher priority. Raises `RuntimeError` if the executor
        is closed."""
        self._queue.put(work, priority)

    def withdraw(self, work: Work) -> bool:
        """Remove work that has not started. Returns False if it has started."""
        return self._queue.remove(work)

    def serves_here(self) -> bool:
        """Whether the calling thread is a thread of this executor that is running work."""
        return self._queue.serves_here()

    def close(self) -> None:
        """Accept no more work. Work submitted before still runs."""
        self._finalizer()


class PrioritizedExecutor:
    """One model's view of an executor that several models share."""

    def __init__(self, executor: StreamExecutor, priority: int) -> None:
        self.executor = executor
        self.withdraw = executor.withdraw
        self.serves_here = executor.serves_here
        self.priority = priority

    def submit(self, work: Work) -> None:
        self.executor.submit(work, self.priority)


class ExecutorManager:
    """The executors of one plugin, by name and configuration. Thread-safe without locks, because finalizers call it.

    Each model leases its own executor, so that requests of several models do not wait for each other. When the model is
    garbage collected, the executor returns to the manager, and the next model of that configuration uses it.
    """

    def __init__(self) -> None:
        self._idle: dict[Hashable, collections.deque[StreamExecutor]] = {}
        self._shared: weakref.WeakValueDictionary[str, StreamExecutor] = weakref.WeakValueDictionary()
        self._closed = False

    def lease(
        self, owner: object, name: str, streams: int, processors: Sequence[Sequence[int]] | None = None
    ) -> StreamExecutor:
        """An executor for the exclusive use of ``owner``, until ``owner`` is garbage collected."""
        idle = self._idle.setdefault((name, streams, repr(processors)), collections.deque())
        try:
            executor = idle.pop()
        except IndexError:
            executor = StreamExecutor(name, streams, processors)
        # A function instead of a method, so that the owners do not keep the manager alive.
        weakref.finalize(owner, _give_back, weakref.ref(self), idle, executor).atexit = False
        return executor

    def shared(self, name: str) -> StreamExecutor:
        """The executor, with one stream, that all exclusive requests of a device share."""
        executor = self._shared.get(name)
        if executor is None:
            executor = self._shared.setdefault(name, StreamExecutor(name, 1))
        return executor

    def clear(self) -> None:
        """Close all idle executors, and from now on each executor that is returned."""
        self._closed = True
        for idle in list(self._idle.values()):
            while idle:
                idle.pop().close()


class ExecutorLease:
    """The executor of one compiled model. It is leased on first use, and returned when this object is collected."""

    def __init__(self, name: str, streams: int) -> None:
        self.name = name
        self.streams = streams
        self.exclusive = False
        self.priority = 0
        self.processors: Sequence[Sequence[int]] | None = None
        self.manager: ExecutorManager | None = None
        self._executor: StreamExecutor | PrioritizedExecutor | None = None
        self._lock = threading.Lock()

    def take_turns(self, exclusive: bool, priority: str) -> None:
        """``exclusive``: use the executor that models of this device name share. ``priority``: a key of `PRIORITIES`,
        for the order among these models."""
        self.exclusive = exclusive
        self.priority = PRIORITIES[priority]

    def __call__(self) -> StreamExecutor | PrioritizedExecutor:
        with self._lock:
            if self._executor is None:
                manager = self.manager or ExecutorManager()
                if self.exclusive:
                    self._executor = PrioritizedExecutor(manager.shared(self.name), self.priority)
                else:
                    self._executor = manager.lease(self, self.name, self.streams, self.processors)
            return self._executor


class DeviceExecutors:
    """An executor with one stream for each device of a partitioned model, leased on first use."""

    def __init__(self, manager: ExecutorManager) -> None:
        self._manager = manager
        self._of: dict[str, StreamExecutor] = {}
        self._lock = threading.Lock()

    def __call__(self, device: str) -> StreamExecutor:
        with self._lock:
            if device not in self._of:
                self._of[device] = self._manager.lease(self, f"{device} parallel steps", 1)
            return self._of[device]


def _give_back(
    manager: weakref.ref[ExecutorManager], idle: collections.deque[StreamExecutor], executor: StreamExecutor
) -> None:
    there = manager()
    if there is None or there._closed:
        executor.close()
    else:
        idle.append(executor)


class _Queue:
    """The state that the threads of an executor share. They do not reference the executor, so it can be collected."""

    def __init__(self, name: str, streams: int, processors: Sequence[Sequence[int]] | None) -> None:
        self.name = name
        self.streams = streams
        self.processors = processors
        self._reset()

    def _reset(self) -> None:
        self.lock = threading.RLock()  # reentrant: a finalizer may close the executor during any method below
        self.filled = threading.Condition(self.lock)
        self.waiting: collections.deque[tuple[int, Work]] = collections.deque()  # higher priorities first
        self.running: dict[threading.Thread, Work] = {}
        self.threads: list[threading.Thread] = []
        self.sleeping = 0
        self.closed = False

    def serves_here(self) -> bool:
        with self.lock:
            return threading.current_thread() in self.running

    def put(self, work: Work, priority: int) -> None:
        with self.lock:
            if self.closed:
                raise RuntimeError(f"the executor of {self.name} is closed")
            behind = len(self.waiting)
            while behind and self.waiting[behind - 1][0] < priority:
                behind -= 1
            self.waiting.insert(behind, (priority, work))
            if len(self.waiting) <= self.sleeping or len(self.threads) == self.streams:
                self.filled.notify()
                return
            number = len(self.threads)
            thread = threading.Thread(
                target=self._serve, args=(number,), name=f"hetero {self.name} stream {number}", daemon=True
            )
            self.threads.append(thread)
            try:
                thread.start()
            except RuntimeError:  # the system cannot start more threads
                self.threads.pop()
                if not self.threads:
                    del self.waiting[behind]
                    raise

    def remove(self, work: Work) -> bool:
        with self.lock:
            for position, (_, waiting) in enumerate(self.waiting):
                if waiting is work:
                    del self.waiting[position]
                    return True
            return False

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.filled.notify_all()

    def _serve(self, number: int) -> None:
        if self.processors is not None and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # the processors may no longer be available to this process
                os.sched_setaffinity(0, self.processors[number])
        me = threading.current_thread()
        while True:
            with self.lock:
                self.running.pop(me, None)
                while not self.waiting:
                    if self.closed:
                        self.threads.remove(me)
                        return
                    self.sleeping += 1
                    self.filled.wait()
                    self.sleeping -= 1
                _, work = self.waiting.popleft()
                self.running[me] = work
            work.run()
            del work  # releases its memory while the thread waits

    def abandon(self, why: str) -> list[threading.Thread]:
        """Drop queued work and ask running work to stop. Returns the threads that still run work."""
        with self.lock:
            self.closed = True
            waiting, running = [work for _, work in self.waiting], dict(self.running)
            self.waiting.clear()
            self.filled.notify_all()
        for work in waiting:
            work.abandon(why)
        for work in running.values():
            work.interrupt()
        return list(running)

    def after_fork(self) -> None:
        # Without locks: the threads that held them do not exist in the child.
        lost = [*self.running.values(), *(work for _, work in self.waiting)]
        self._reset()
        for work in lost:
            work.abandon("the process forked while it was under way")


_alive: weakref.WeakSet[_Queue] = weakref.WeakSet()


def _at_exit() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    threads = [thread for queue in list(_alive) for thread in queue.abandon("the interpreter is shutting down")]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _after_fork_in_child() -> None:
    for queue in list(_alive):
        queue.after_fork()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
