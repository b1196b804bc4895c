"""Real models on hetero beside onnxruntime: same model, same input, same number of threads, interleaved rounds.

    python bench/compare_models.py                             # the models that are there, on the CPU device
    python bench/compare_models.py det common                  # those with one of these words in their name
    python bench/compare_models.py --device HETERO:FPGA,CPU    # subgraphs, and time on one thread

One thread: median CPU time. Two threads: minimum elapsed time, which needs two idle cores. Compile: median CPU time to
make a session or a compiled model from the model's bytes. For the CPU device, it includes the planning for the sizes of
the inputs, which is the first inference's time minus the second's; "alone" does not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import hetero
from hetero.base.formatting import duration
from real_models import Inputs, available, load
from sessions import both, onnxruntime_session
from table import Table
from timing import elapsed_times, medians

ROUNDS = 31
PAUSE = 0.1  # seconds, after which onnxruntime's threads no longer busy-wait


def compile_times(model: Any, inputs: Inputs, rounds: int) -> tuple[float, float, float]:
    """Median CPU seconds of a session, of a compiled model with its planning, and without."""
    sessions, with_planning, alone = [], [], []
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
        with_planning.append(2 * between - begin - time.process_time())
        del request
    # The first round loads modules.
    return statistics.median(sessions[1:]), statistics.median(with_planning[1:]), statistics.median(alone[1:])


def compare(cases: Sequence[str], rounds: int = ROUNDS) -> Table:
    table = Table(
        *("model", "onnxruntime", "CPU", "ratio", "two threads", "CPU", "ratio", "compile", "CPU", "ratio", "alone")
    )
    all_ratios = []
    for case in cases:
        model, inputs = load(case)
        one = medians(both(model, inputs), rounds, seconds=60)
        two = {name: min(times) for name, times in elapsed_times(both(model, inputs, threads=2), rounds, PAUSE).items()}
        session, compiled, alone = compile_times(model, inputs, max(1, rounds // 3))
        pairs = [(one["onnxruntime"], one["CPU"]), (two["onnxruntime"], two["CPU"]), (session, compiled)]
        cells = [cell for pair in pairs for cell in (*map(duration, pair), f"{pair[1] / pair[0]:.2f}")]
        table.add(case, *cells, duration(alone))
        all_ratios.append([own / reference for reference, own in pairs])
    if all_ratios:
        for name, values in (
            ("geometric mean", np.exp(np.log(all_ratios).mean(0))),
            ("worst", np.max(all_ratios, 0)),
        ):
            table.add(name, *(cell for value in values for cell in ("", "", f"{value:.2f}")), "")
    return table


def partitioned(cases: Sequence[str], device: str, rounds: int = ROUNDS) -> Table:
    table = Table("model", "subgraphs", "onnxruntime", device, "ratio")
    for case in cases:
        model, inputs = load(case)
        core = hetero.Core()
        core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
        compiled = core.compile_model(core.read_model(model), device)
        session, request = onnxruntime_session(model), compiled.create_infer_request()
        count = compiled.get_property("HETERO_NUMBER_OF_SUBMODELS")
        times = medians(
            {"session": lambda s=session, x=inputs: s.run(None, x), "request": lambda r=request, x=inputs: r.infer(x)},
            rounds,
            seconds=30,
        )
        own, reference = times["request"], times["session"]
        table.add(case, f"{count}", duration(reference), duration(own), f"{own / reference:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a model; default: all models")
    parser.add_argument("--device", default="CPU", help="a list of devices, as HETERO:FPGA,CPU")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    cases = available(arguments.words)
    if arguments.device == "CPU":
        compare(cases, arguments.rounds).print()
    else:
        partitioned(cases, arguments.device, arguments.rounds).print()


if __name__ == "__main__":
    main()
