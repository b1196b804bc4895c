"""Peak memory of running real models: hetero's CPU device beside onnxruntime.

    python bench/memory.py                # the models that are there
    python bench/memory.py det common     # those with one of these words in their name

A process of its own reads, compiles and runs each model, with one thread. The table shows the process's peak resident
memory (``VmHWM``; ``ru_maxrss`` starts at the parent's), with libraries and pages of the mapped file. "Own": the
difference from a process with a model of one node.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import real_models
from table import Table

RUNTIMES = ("onnxruntime", "CPU")


def peak(runtime: str, path: Path, inputs: Path) -> float:
    """MiB of a process that runs the model."""
    command = [sys.executable, str(Path(__file__).with_name("peak.py")), runtime, str(path), str(inputs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def memory(cases: Sequence[str]) -> Table:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    tiny = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    table = Table("model", "onnxruntime, MiB", "own", "CPU, MiB", "own", "ratio of peaks")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"

        def peaks(model: onnx.ModelProto, arrays: real_models.Inputs) -> dict[str, float]:
            onnx.save(model, path)
            np.savez(inputs, **arrays)
            return {runtime: peak(runtime, path, inputs) for runtime in RUNTIMES}

        base = peaks(tiny, {"x": np.zeros(4, np.float32)})
        for case in ("one node", *cases):
            taken = base if case == "one node" else peaks(*real_models.load(case))
            cells = [f"{mib:.0f}" for runtime in RUNTIMES for mib in (taken[runtime], taken[runtime] - base[runtime])]
            ratio = taken["CPU"] / taken["onnxruntime"]
            table.add(case, *cells, f"{ratio:.2f}")
            if case != "one node":
                ratios.append(ratio)
    if ratios:
        for name, value in (("geometric mean", statistics.geometric_mean(ratios)), ("worst", max(ratios))):
            table.add(name, "", "", "", "", f"{value:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a model; default: all models")
    arguments = parser.parse_args()
    memory(real_models.available(arguments.words)).print()


if __name__ == "__main__":
    main()
