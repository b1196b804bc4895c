"""What a model costs until its first result: CPU time and peak memory of a process of its own, beside onnxruntime.

    python bench/first_run.py                        # the models that are there
    python bench/first_run.py det model.onnx         # those with this word in their name, and a file

One thread. "First": CPU time from the path to the first result, after the library was imported; the least of the
processes. hetero loads the CPU device's modules on first use, and that time is included. "Run": a later inference.
"Peak": the most resident memory of the process, with libraries and pages of the mapped file.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from table import Table

RUNS = 3
PROCESSES = 3


def prepare_onnxruntime() -> Callable[[str, dict[str, np.ndarray]], Callable[[], object]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3

    def load(path: str, inputs: dict[str, np.ndarray]) -> Callable[[], object]:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, inputs)

    return load


def prepare_hetero() -> Callable[[str, dict[str, np.ndarray]], Callable[[], object]]:
    import hetero

    core = hetero.Core()

    def load(path: str, inputs: dict[str, np.ndarray]) -> Callable[[], object]:
        compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_NUM_THREADS": 1})
        request = compiled.create_infer_request()
        return lambda: request.infer(inputs)

    return load


LIBRARIES = {"onnxruntime": prepare_onnxruntime, "CPU": prepare_hetero}


def measure(library: str, path: str, inputs_path: str) -> None:
    """Print the seconds of the first result and of a later one, and the peak in MiB."""
    load = LIBRARIES[library]()
    with np.load(inputs_path) as arrays:
        inputs = dict(arrays)
    begin = time.process_time()
    infer = load(path, inputs)
    infer()
    first, later = time.process_time() - begin, []
    for _ in range(RUNS):
        begin = time.process_time()
        infer()
        later.append(time.process_time() - begin)
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(first, min(later), int(line.split()[1]) / 1024)


def in_processes(library: str, path: str, inputs: str) -> list[float]:
    """The least of each number over the processes."""
    command = [sys.executable, __file__, "--run", library, path, inputs]
    outputs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(PROCESSES)]
    return [min(numbers) for numbers in zip(*(map(float, output.split()) for output in outputs), strict=True)]


def first_runs(cases: Sequence[str]) -> Table:
    import onnx

    from hetero.base.formatting import duration
    from real_models import load
    from threads import load_file

    table = Table(
        *("model", "onnxruntime, first", "CPU", "ratio", "onnxruntime, run", "CPU", "ratio"),
        *("onnxruntime, peak", "CPU", "ratio"),
    )
    all_ratios = []
    for case in cases:
        model, inputs = load_file(case) if case.endswith(".onnx") else load(case)
        with tempfile.TemporaryDirectory() as folder:
            path, arrays = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
            onnx.save(model, path)
            np.savez(arrays, **inputs)
            theirs, ours = (in_processes(library, str(path), str(arrays)) for library in LIBRARIES)
        ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
        cells = []
        for at, ratio in enumerate(ratios):
            pair = (theirs[at], ours[at])
            cells += [f"{mib:.0f} MiB" for mib in pair] if at == 2 else map(duration, pair)
            cells.append(f"{ratio:.2f}")
        table.add(Path(case).name, *cells)
        all_ratios.append(ratios)
    if all_ratios:
        columns = list(zip(*all_ratios, strict=True))
        for name, summary in (("geometric mean", statistics.geometric_mean), ("worst", max)):
            cells = [cell for column in columns for cell in ("", "", f"{summary(column):.2f}")]
            table.add(name, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="words in the name of a model, and files; default: all models")
    parser.add_argument("--run", nargs=3, metavar=("LIBRARY", "MODEL", "INPUTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        measure(*arguments.run)
        return
    from real_models import available

    files = [case for case in arguments.cases if case.endswith(".onnx")]
    words = [case for case in arguments.cases if case not in files]
    first_runs([*(available(words) if words or not files else []), *files]).print()


if __name__ == "__main__":
    main()
