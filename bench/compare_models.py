"""The real models on the CPU device beside onnxruntime, as a Markdown table: runs in turn, so that what slows one slows
both.

    python bench/compare_models.py               # all models that are there; minutes
    python bench/compare_models.py det common    # those with one of these words in their name

1 thread: median CPU time. 2 threads: the least time by the clock, which means something where two processors have
nothing else to do. Compile: median CPU time of making a session or a compiled model from the model's bytes, for the CPU
device with planning for the sizes of the inputs: the first inference's time less the second's. "Alone": without.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hetero
from bench_models import hetero_request, onnxruntime_session
from hetero.base.formatting import duration
from real_models import MODELS, Inputs, load

Clock = Callable[[], float]
Works = tuple[Callable[[], Any], Callable[[], Any]]


def in_turn(works: Works, clock: Clock, rounds: int, pause: float = 0.0) -> list[list[float]]:
    """Times of each work. ``pause``: seconds between, in which threads that wait actively fall asleep."""
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for work, found in zip(works, times, strict=True):
            time.sleep(pause)
            begin = clock()
            work()
            found.append(clock() - begin)
    return times


def runs(model: Any, inputs: Inputs, threads: int) -> Works:
    session, request = onnxruntime_session(model, threads), hetero_request(model, "CPU", threads)
    works = (lambda: session.run(None, inputs), lambda: request.infer(inputs))
    for work in works:
        work()
    return works


def compile_times(model: Any, inputs: Inputs, rounds: int) -> tuple[float, float, float]:
    sessions, ours, alone = [], [], []
    data = model.SerializeToString()
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
    for _ in range(1 + rounds):
        begin = time.process_time()
        session = onnxruntime_session(data)
        sessions.append(time.process_time() - begin)
        del session
        begin = time.process_time()
        request = core.compile_model(core.read_model(data), "CPU").create_infer_request()
        compiled = time.process_time()
        request.infer(inputs)
        between = time.process_time()
        request.infer(inputs)
        alone.append(compiled - begin)
        ours.append(2 * between - begin - time.process_time())
        del request
    # The first loads modules.
    return statistics.median(sessions[1:]), statistics.median(ours[1:]), statistics.median(alone[1:])


def compare(case: str) -> tuple[list[str], list[float]]:
    """The cells of a row after the model's name, and the three ratios."""
    model, inputs = load(case)
    one = [statistics.median(found) for found in in_turn(runs(model, inputs, 1), time.process_time, 31)]
    two = [min(found) for found in in_turn(runs(model, inputs, 2), time.perf_counter, 31, 0.1)]
    session, compiled, alone = compile_times(model, inputs, 11)
    cells, ratios = [], []
    for theirs, ours in (one, two, (session, compiled)):
        ratios.append(ours / theirs)
        cells += [duration(theirs), duration(ours), f"{ratios[-1]:.2f}"]
    return [*cells, duration(alone)], ratios


def main(words: list[str]) -> None:
    print("| model | onnxruntime, 1 thread | CPU | ratio | 2 threads | CPU | ratio | compile | CPU | ratio | alone |")
    print("|---|" + "---|" * 10)
    all_ratios = []
    for case in MODELS:
        if words and not any(word in case for word in words):
            continue
        try:
            cells, ratios = compare(case)
        except pytest.skip.Exception as why:
            print(f"| {case} | {why} |")
            continue
        all_ratios.append(ratios)
        print(f"| {case} | {' | '.join(cells)} |", flush=True)
    means, worst = np.exp(np.log(all_ratios).mean(0)), np.max(all_ratios, 0)
    for name, values in (("geometric mean", means), ("worst", worst)):
        print(f"| {name} | | | {values[0]:.2f} | | | {values[1]:.2f} | | | {values[2]:.2f} | |")


if __name__ == "__main__":
    main(sys.argv[1:])
