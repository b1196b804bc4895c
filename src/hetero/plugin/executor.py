"""Threads for asynchronous work: a stream executor is some threads and the queue of work that they take from.

A device's executor has as many threads, called streams, as the device runs requests at one time. Threads are started
when there is work that no idle one takes, and end with their executor.

What happens when it is over:

- the executor is closed, or nobody holds it any longer: work that has begun is finished, then its threads end;
- the interpreter exits: work that has not begun is abandoned, what runs is asked to stop and waited for, for at most
  `EXIT_SECONDS`;
- the process forks: a child has none of the threads. There, all work of that moment is abandoned, and the executor
  starts anew.
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
"""Of models that take turns (``MODEL_PRIORITY``)."""


class Work(Protocol):
    """What an executor runs: one of the two is called, once."""

    def run(self) -> None:
        """In a thread of the executor. Raises nothing."""
        ...

    def abandon(self, why: str) -> None:
        """It will not be run, or the thread that ran it is no more. May come in any thread, also during `run`."""
        ...

    def interrupt(self) -> None:
        """Asks `run`, in another thread, to end soon."""
        ...


class StreamExecutor:
    """``streams`` threads at most. ``processors``: per stream those that its thread may run on; None: any."""

    def __init__(self, name: str, streams: int, processors: Sequence[Sequence[int]] | None = None) -> None:
        if streams < 1:
            raise ValueError(f"an executor needs at least one stream, got {streams}")
        self.name = name
        self.streams = streams
        self._queue = _Queue(name, streams, processors)
        _alive.add(self._queue)
        self._finalizer = weakref.finalize(self, self._queue.close)
        self._finalizer.atexit = False  # `_at_exit` does more

    def submit(self, work: Work, priority: int = 0) -> None:
        """Have ``work`` run after what was submitted before with this or a higher priority. RuntimeError once the
        executor is closed."""
        self._queue.put(work, priority)

    def withdraw(self, work: Work) -> bool:
        """Take back work that has not begun; False if it has."""
        return self._queue.remove(work)

    def serves_here(self) -> bool:
        """Whether the calling thread is one of its own, which works for it just now."""
        return self._queue.serves_here()

    def close(self) -> None:
        """Take no more work. What was submitted is still done."""
        self._finalizer()


class PrioritizedExecutor:
    """An executor that several models share, for the work of one of them."""

    def __init__(self, executor: StreamExecutor, priority: int) -> None:
        self.executor = executor
        self.withdraw = executor.withdraw
        self.serves_here = executor.serves_here
        self.priority = priority

    def submit(self, work: Work) -> None:
        self.executor.submit(work, self.priority)


class ExecutorManager:
    """The executors of one plugin, by name and configuration. Thread-safe, without locks: finalizers call it.

    A model leases an executor, so that requests of several models do not wait for each other; it comes back when the
    model goes, and the next model of that configuration gets it. With the manager all of them are closed.
    """

    def __init__(self) -> None:
        self._idle: dict[Hashable, collections.deque[StreamExecutor]] = {}
        self._shared: weakref.WeakValueDictionary[str, StreamExecutor] = weakref.WeakValueDictionary()
        self._closed = False

    def lease(
        self, owner: object, name: str, streams: int, processors: Sequence[Sequence[int]] | None = None
    ) -> StreamExecutor:
        """An executor that nobody else has for as long as ``owner`` lives."""
        idle = self._idle.setdefault((name, streams, repr(processors)), collections.deque())
        try:
            executor = idle.pop()
        except IndexError:
            executor = StreamExecutor(name, streams, processors)
        # Not a method, lest the executors' owners keep the manager.
        weakref.finalize(owner, _give_back, weakref.ref(self), idle, executor).atexit = False
        return executor

    def shared(self, name: str) -> StreamExecutor:
        """The executor of one stream that all exclusive requests of a device take turns on."""
        executor = self._shared.get(name)
        if executor is None:
            executor = self._shared.setdefault(name, StreamExecutor(name, 1))
        return executor

    def clear(self) -> None:
        """Close the executors that nobody leases, and from now on each that comes back."""
        self._closed = True
        for idle in list(self._idle.values()):
            while idle:
                idle.pop().close()


class ExecutorLease:
    """The executor of one compiled model, leased when it is first asked for, and given back when this object goes."""

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
        """``exclusive``: on the executor that models of one name share; ``priority``: among those, of `PRIORITIES`."""
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
    """An executor of one stream for each device that a cut model runs on, leased when it is first asked for."""

    def __init__(self, manager: ExecutorManager) -> None:
        self._manager = manager
        self._of: dict[str, StreamExecutor] = {}
        self._lock = threading.Lock()

    def __call__(self, device: str) -> StreamExecutor:
        with self._lock:
            if device not in self._of:
                self._of[device] = self._manager.lease(self, f"{device} beside others", 1)
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
    """What the threads of an executor hold, so that they do not hold the executor."""

    def __init__(self, name: str, streams: int, processors: Sequence[Sequence[int]] | None) -> None:
        self.name = name
        self.streams = streams
        self.processors = processors
        self._reset()

    def _reset(self) -> None:
        self.lock = threading.RLock()  # a finalizer may close an executor in the middle of any of the below
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
            except RuntimeError:  # the system gives no more threads
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
            with contextlib.suppress(OSError):  # they may not be ours any longer
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
            del work  # not to be kept while waiting for more

    def abandon(self, why: str) -> list[threading.Thread]:
        """Nothing more is begun, and what runs is asked to stop. Gives the threads that still run something."""
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
        # Without locks: whoever held them is not here.
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
