"""Elapsed times of models in processes of their own, one for each library.

onnxruntime's threads busy-wait after a run. In a process with both libraries, they take processors from the threads of
the other one. Here, a library that does not run sleeps.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from real_models import Inputs
from sessions import hetero_request, onnxruntime_session

__all__ = ["LIBRARIES", "alone_times", "gains"]

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


def serve_twice(connection: Connection, library: str, model: Any, inputs: Inputs, threads: int) -> None:
    """As `serve`. While it measures, a forked copy, which shares the weights, runs the model too."""
    request = hetero_request(model, library, threads)
    request.infer(inputs)
    busy = mmap.mmap(-1, 1)  # shared with the copy
    (go, wakes), (running, runs) = os.pipe(), os.pipe()
    if (copy := os.fork()) == 0:
        os.close(wakes)
        while os.read(go, 1):
            os.write(runs, b"x")
            while busy[0]:
                request.infer(inputs)
        os._exit(0)
    connection.send(None)
    while (calls := connection.recv()) is not None:
        times = []
        busy[0] = 1
        os.write(wakes, b"x")
        os.read(running, 1)
        request.infer(inputs)
        for _ in range(calls):
            begin = time.perf_counter()
            request.infer(inputs)
            times.append(time.perf_counter() - begin)
        busy[0] = 0
        connection.send(times)
    os.close(wakes)
    os.waitpid(copy, 0)


@contextlib.contextmanager
def process(
    library: str, model: Any, inputs: Inputs, threads: int, serving: Callable[..., None] = serve
) -> Iterator[Connection]:
    """The connection to a new process that runs ``serving``."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=serving, args=(theirs, library, model, inputs, threads), daemon=True)
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
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(process(name, model, inputs, threads)) for name in LIBRARIES}
        return in_turn(processes, calls, rounds, pause)


def in_turn(processes: dict[str, Connection], calls: int, rounds: int, pause: float) -> dict[str, float]:
    least = dict.fromkeys(processes, float("inf"))
    for _ in range(rounds):
        for name, connection in processes.items():
            time.sleep(pause)
            connection.send(calls)
            least[name] = min(least[name], statistics.median(connection.recv()))
    return least


def gains(model: Any, inputs: Inputs, calls: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Least median seconds of the series: each library on one thread and on two, and hetero on one thread ("twice")
    while another process runs the same."""
    series = {f"{name} {threads}": (name, threads, serve) for name in LIBRARIES for threads in (1, 2)}
    series["twice"] = ("CPU", 1, serve_twice)
    with contextlib.ExitStack() as stack:
        processes = {
            label: stack.enter_context(process(name, model, inputs, threads, serving))
            for label, (name, threads, serving) in series.items()
        }
        return in_turn(processes, calls, rounds, PAUSE)
