"""Exported models in a folder on hetero and onnxruntime, such as those of `bench/export_models.py`.

    python bench/exported_models.py models                  # time on one thread
    python bench/exported_models.py models vit mixer        # models with one of these words in their name
    python bench/exported_models.py models --threads 2      # time on two threads, each library in its own process
    python bench/exported_models.py models --compile        # time to compile and run once
    python bench/exported_models.py models --memory         # peak memory of a process

NAME.onnx has its inputs in NAME.npz. One thread: medians of the CPU time in interleaved rounds. Two threads: see
`bench/compare_models.py`. "Off": the largest difference from onnxruntime's results, relative to their largest value.
With ``--reference``, onnxruntime computes these without optimizations, and "onnxruntime off" is the difference of its
own results with them. A model that fails is listed with its error. If the program is interrupted or terminated, it
prints the models measured so far.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from alone import alone_times
from compare_models import compile_times
from hetero.base.formatting import duration
from memory import peak
from sessions import both, largest_difference, unoptimized_results
from table import Table
from timing import calls_within, medians, repeated

SECONDS = 2.0
TOLERANCE = 1e-4
Pair = tuple[float, float]  # onnxruntime's and hetero's


def load(path: Path) -> tuple[onnx.ModelProto, dict[str, Any]]:
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        return onnx.load(path), dict(arrays)


def one_thread(path: Path, device: str, seconds: float, reference: bool) -> tuple[Pair, list[float]]:
    model, inputs = load(path)
    works = both(model, inputs, device)
    own, peer = list(works[device]().values()), works["onnxruntime"]()
    if reference:
        expected = unoptimized_results(model, inputs)
        off = [largest_difference(own, expected), largest_difference(peer, expected)]
    else:
        off = [largest_difference(own, peer)]
    calls = calls_within(works["onnxruntime"], 1e-3)
    times = medians({name: repeated(work, calls) for name, work in works.items()}, rounds=1000, seconds=seconds)
    return (times["onnxruntime"] / calls, times[device] / calls), off


def several_threads(path: Path, threads: int, seconds: float) -> Pair:
    model, inputs = load(path)
    works = both(model, inputs)
    calls = min(calls_within(work, seconds / 8) for work in works.values())
    times = alone_times(model, inputs, threads, max(3, calls))
    return times["onnxruntime"], times["CPU"]


def compile_and_run(path: Path, rounds: int) -> Pair:
    session, compiled, _ = compile_times(*load(path), rounds)
    return session, compiled


def peaks(path: Path) -> Pair:
    onnxruntime, own = (peak(runtime, path, path.with_suffix(".npz")) for runtime in ("onnxruntime", "CPU"))
    return onnxruntime, own


def measured(
    paths: Sequence[Path],
    measure: Callable[[Path], tuple[Pair, list[float]]],
    written: Callable[[float], str],
    titles: Sequence[str],
) -> Table:
    """A row for each model: both values that ``measure`` finds, their ratio, and the differences of the results."""
    table = Table("model", "nodes", *titles, "ratio", "off", "onnxruntime off", "")
    ratios: dict[str, float] = {}
    with contextlib.suppress(KeyboardInterrupt):
        add_models(table, ratios, paths, measure, written)
    if ratios:
        worst = max(ratios, key=ratios.__getitem__)
        mean = statistics.geometric_mean(ratios.values())
        table.add(f"geometric mean of {len(ratios)}", *[""] * 3, f"{mean:.2f}", "", "", "")
        table.add("worst", *[""] * 3, f"{ratios[worst]:.2f}", "", "", worst)
    return table


def add_models(
    table: Table,
    ratios: dict[str, float],
    paths: Sequence[Path],
    measure: Callable[[Path], tuple[Pair, list[float]]],
    written: Callable[[float], str],
) -> None:
    for path in paths:
        try:
            nodes = len(onnx.load(path, load_external_data=False).graph.node)
            (peer, own), off = measure(path)
        except Exception as error:  # whatever it is, the other models are still measured
            reason = (str(error).splitlines() or [""])[0].replace("|", "/")[:160]
            table.add(path.stem, *[""] * 6, f"{type(error).__name__}: {reason}")
            continue
        ratios[path.stem] = own / peer
        cells = [f"{nodes}", written(peer), written(own), f"{own / peer:.2f}", *(f"{value:.1g}" for value in off)]
        note = "DIFFERS" if len(off) == 1 and not off[0] <= TOLERANCE else ""
        table.add(path.stem, *cells, *[""] * (6 - len(cells)), note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", help="in the name of a model; default: all models")
    parser.add_argument("--device", default="CPU", help="the device of hetero, as HETERO:CPU,ORT")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="CPU time to measure a model for")
    parser.add_argument("--reference", action="store_true", help="compare with onnxruntime without optimizations")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--threads", type=int, default=1)
    what.add_argument("--compile", action="store_true")
    what.add_argument("--memory", action="store_true")
    chosen = parser.parse_args()
    if chosen.device != "CPU" and (chosen.threads > 1 or chosen.compile or chosen.memory):
        parser.error("--device is for the time on one thread only")
    paths = [
        path
        for path in sorted(chosen.folder.glob("*.onnx"))
        if path.with_suffix(".npz").exists() and (not chosen.words or any(word in path.stem for word in chosen.words))
    ]
    titles, written = ("onnxruntime", chosen.device), duration

    def measure(path: Path) -> tuple[Pair, list[float]]:
        if chosen.memory:
            return peaks(path), []
        if chosen.compile:
            return compile_and_run(path, rounds=5), []
        if chosen.threads > 1:
            return several_threads(path, chosen.threads, chosen.seconds), []
        return one_thread(path, chosen.device, chosen.seconds, chosen.reference)

    if chosen.memory:
        titles, written = ("onnxruntime, MiB", "CPU, MiB"), "{:.0f}".format
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    measured(paths, measure, written, titles).print()


if __name__ == "__main__":
    main()
