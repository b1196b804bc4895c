"""The cost of choosing devices: the time to the first result, with AUTO and with the CPU alone, and of ``hetero tune``.

    python bench/choosing.py                             # GoogLeNet v1 of the demo
    python bench/choosing.py -d CPU,OPENVINO model.onnx

"First": elapsed time from ``compile_model`` to the first result, in a process of its own; "compile" is its first part.
Processes for the CPU alone and for AUTO alternate, so that other load affects both. "Ratio" is the median ratio of two
consecutive processes; the limit is 1.2. "tune": elapsed time of the command with its defaults; the limit is 30 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from table import Table

PROCESSES = 15  # of each


def measure(path: str, inputs_path: str, device: str) -> None:
    """Print the seconds of compiling, and until the first result."""
    import hetero

    with np.load(inputs_path) as arrays:
        inputs = dict(arrays)
    core = hetero.Core()
    model = core.read_model(path)
    begin = time.perf_counter()
    compiled = core.compile_model(model, device)
    compiling = time.perf_counter() - begin
    compiled(inputs)
    print(compiling, time.perf_counter() - begin)


def in_process(path: str, inputs: str, device: str) -> tuple[float, ...]:
    """What `measure` prints."""
    command = [sys.executable, __file__, "--run", path, inputs, device]
    return tuple(map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))


def first_results(path: str, inputs: str, devices: str) -> Table:
    from hetero.base.formatting import duration

    auto = f"AUTO:{devices}"
    runs = [(in_process(path, inputs, "CPU"), in_process(path, inputs, auto)) for _ in range(PROCESSES)]
    table = Table("elapsed", "CPU", auto, "ratio", "lowest", "highest")
    for name, at in (("compile", 0), ("first", 1)):
        ratios = [other[at] / own[at] for own, other in runs]
        medians = [statistics.median(pair[which][at] for pair in runs) for which in (0, 1)]
        spread = (statistics.median(ratios), min(ratios), max(ratios))
        table.add(name, *map(duration, medians), *(f"{ratio:.2f}" for ratio in spread))
    return table


def tuning(path: str, inputs: str, devices: str) -> Table:
    plan = str(Path(path).with_name("plan.json"))
    command = [sys.executable, "-m", "hetero", "tune", path, "-i", inputs, "-d", devices, "-o", plan]
    begin = time.perf_counter()
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    elapsed = time.perf_counter() - begin
    (result,) = (line for line in told.splitlines() if line.startswith("The "))
    table = Table("hetero tune", "elapsed", "result")
    table.add(devices, f"{elapsed:.1f} s", result)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="light_inception_v1", help="a model of real_models.py, or a file")
    parser.add_argument("-d", "--devices", default="CPU,ORT")
    parser.add_argument("--run", nargs=3, metavar=("MODEL", "INPUTS", "DEVICE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        measure(*options.run)
        return
    import onnx

    from real_models import load
    from threads import load_file

    model, arrays = load_file(options.case) if options.case.endswith(".onnx") else load(options.case)
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = str(Path(folder, "model.onnx")), str(Path(folder, "inputs.npz"))
        onnx.save(model, path)
        np.savez(inputs, **arrays)
        for made in (first_results, tuning):
            made(path, inputs, options.devices).print()


if __name__ == "__main__":
    main()
