"""Elapsed times of models in processes of their own, one for each library.

onnxruntime's threads busy-wait after a run. In a process with both libraries, they take processors from the threads of
the other one. Here, a library that does not run sleeps.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from real_models import Inputs
from sessions import hetero_request, onnxruntime_session

__all__ = ["LIBRARIES", "alone_times"]

LIBRARIES = ("onnxruntime", "CPU")
ROUNDS = 4
PAUSE = 0.1  # seconds between rounds, after which onnxruntime's threads no longer busy-wait


def serve(connection: Connection, library: str, model: Any, inputs: Inputs, threads: int) -> None:
    """Sends the elapsed seconds of each of as many inferences as it receives, until it receives None."""
    if library == "onnxruntime":
        session = onnxruntime_session(model, threads)

        def work() -> None:
            session.run(None, inputs)
    else:
        request = hetero_request(model, library, threads)

        def work() -> None:
            request.infer(inputs)

    work()
    connection.send(None)
    while (calls := connection.recv()) is not None:
        times = []
        work()  # wakes the threads
        for _ in range(calls):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        connection.send(times)


@contextlib.contextmanager
def process(library: str, model: Any, inputs: Inputs, threads: int) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=serve, args=(theirs, library, model, inputs, threads), daemon=True)
    child.start()
    theirs.close()
    try:
        ours.recv()
        yield ours
        ours.send(None)
        child.join()
    except EOFError:
        child.join()
        raise RuntimeError(f"the process of {library} ended with exit status {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
        ours.close()


def alone_times(
    model: Any, inputs: Inputs, threads: int, calls: int, rounds: int = ROUNDS, pause: float = PAUSE
) -> dict[str, float]:
    """The least of the rounds' median seconds, for each library. The libraries take turns."""
    least = dict.fromkeys(LIBRARIES, float("inf"))
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(process(name, model, inputs, threads)) for name in LIBRARIES}
        for _ in range(rounds):
            for name, connection in processes.items():
                time.sleep(pause)
                connection.send(calls)
                least[name] = min(least[name], statistics.median(connection.recv()))
    return least
