"""Real models on hetero and onnxruntime: same model, same input, same number of threads, interleaved rounds.

    python bench/compare_models.py                             # the models that are there, on the CPU device
    python bench/compare_models.py det common                  # those with one of these words in their name
    python bench/compare_models.py --device HETERO:FPGA,CPU    # subgraphs, and time on one thread

One thread: median CPU time. Two threads: elapsed time, which needs two idle cores. Each library runs in its own
process; the processes alternate, and the minimum of the rounds' medians is shown. "Ratio in one process": the ratio of
the minimum elapsed times if both are in one process, where onnxruntime's threads spin after each run. Compile: median
CPU time to create a session or a compiled model from the model's bytes. For the CPU device, it includes the planning
for the sizes of the inputs, which is the first inference's time minus the second's; "compile without planning" does
not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import hetero
from alone import alone_times
from hetero.base.formatting import duration
from real_models import Inputs, available, load
from sessions import both, onnxruntime_session
from table import Table
from timing import elapsed_times, medians

ROUNDS = 31


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
        *("model", "onnxruntime", "CPU", "ratio", "2 threads: onnxruntime", "2 threads: CPU", "ratio"),
        *("ratio in one process", "compile: onnxruntime", "compile: CPU", "ratio", "compile without planning"),
    )
    all_ratios = []
    for case in cases:
        model, inputs = load(case)
        one = medians(both(model, inputs), rounds, seconds=60)
        two = alone_times(model, inputs, 2, rounds)
        besides = elapsed_times(both(model, inputs, threads=2), rounds)
        beside = min(besides["CPU"]) / min(besides["onnxruntime"])
        session, compiled, alone = compile_times(model, inputs, max(1, rounds // 3))
        pairs = [(one["onnxruntime"], one["CPU"]), (two["onnxruntime"], two["CPU"]), (session, compiled)]
        ratios = [own / reference for reference, own in pairs]
        cells = [[*map(duration, pair), f"{ratio:.2f}"] for pair, ratio in zip(pairs, ratios, strict=True)]
        table.add(case, *cells[0], *cells[1], f"{beside:.2f}", *cells[2], duration(alone))
        all_ratios.append([*ratios[:2], beside, ratios[2]])
    if all_ratios:
        for name, values in (
            ("geometric mean", np.exp(np.log(all_ratios).mean(0))),
            ("worst", np.max(all_ratios, 0)),
        ):
            one_thread, two_threads, beside, compiling = (f"{value:.2f}" for value in values)
            table.add(name, "", "", one_thread, "", "", two_threads, beside, "", "", compiling, "")
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
