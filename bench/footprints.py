"""The memory that plans predict for a model, beside the memory that it takes.

    python bench/footprints.py                # the real models that are there

"Predicted": `hetero.assign.memory.footprint` of the whole model on one device, with the types that its values have
when it runs. "Unknown": how many values have no known size if only the types of the inputs are stated. "Node by node":
onnxruntime without optimizations, arena and memory plan, in a process of its own: how far its resident memory rises
above the value between inferences (``VmHWM``, reset by ``clear_refs``), plus the inputs, which it had before. "CPU":
the arena of the CPU device's program, which holds all values except inputs and outputs, plus these.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

import hetero
from hetero import Model
from hetero.assign.memory import footprint, values_of
from hetero.base.formatting import byte_size
from real_models import available, load
from table import Table


def resident(what: str) -> int:
    """Bytes, of a line of ``/proc/self/status``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/self/status has no {what}")


def by_onnxruntime(path: str, inputs: dict[str, np.ndarray]) -> int:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = options.enable_mem_reuse = False
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
    rise = 0
    for _ in range(3):
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        session.run(None, inputs)
        rise = resident("VmHWM") - before  # the last run counts: the first also touches weights
    return rise + sum(array.nbytes for array in inputs.values())


def in_a_process(path: Path, inputs: Path) -> int:
    # Each larger block is a mapping of its own, which is returned at once.
    tidy = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
    command = [sys.executable, __file__, "--run", str(path), str(inputs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **tidy})
    return int(done.stdout)


def on_the_cpu(model: Model, inputs: dict[str, np.ndarray]) -> int:
    """The arena of the largest program, inputs and outputs."""
    compiled = hetero.Core().compile_model(model, "CPU")
    outputs = compiled(inputs)
    arena = max(segment.program.arena_bytes for segment in compiled._plans.segments())  # type: ignore[attr-defined]
    return int(arena) + sum(array.nbytes for array in (*inputs.values(), *outputs.values()))


def with_all_types(model: Model, inputs: dict[str, np.ndarray]) -> Model:
    """The model with the types that its values have when it runs on these inputs."""
    import onnxruntime

    names = [
        model.value_name(value)
        for value in range(model.num_values)
        if model.producer[value] >= 0 and model.read_count[value] and model.is_tensor(value)
    ]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.with_outputs(names).to_bytes(), options, ["CPUExecutionProvider"])
    output_names = (port.name for port in session.get_outputs())
    arrays = dict(zip(output_names, session.run(None, inputs), strict=True)) | inputs
    stated = {name: (array.dtype, array.shape) for name, array in arrays.items() if array.dtype.kind not in "OSU"}
    return model.with_types(stated)


def footprints(cases: Sequence[str]) -> Table:
    table = Table("model", "weights", "predicted", "unknown", "node by node", "ratio", "CPU", "ratio")
    for case in cases:
        proto, inputs = load(case)
        with tempfile.TemporaryDirectory() as folder:
            path, arrays = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
            onnx.save(proto, path)
            np.savez(arrays, **inputs)
            model = hetero.Core().read_model(path)
            sized = model.with_types({name: (array.dtype, array.shape) for name, array in inputs.items()})
            unknown = footprint(values_of(sized), np.zeros(model.num_nodes), [0], 1).unknown[0]
            whole = footprint(values_of(with_all_types(model, inputs)), np.zeros(model.num_nodes), [0], 1)
            predicted = int(whole.activations[0])
            measured, fused = in_a_process(path, arrays), on_the_cpu(sized, inputs)
        table.add(
            case,
            byte_size(int(whole.weights[0])),
            byte_size(predicted),
            f"{unknown or ''}",
            *(cell for taken in (measured, fused) for cell in (byte_size(taken), f"{taken / predicted:.2f}")),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a model; default: all models")
    parser.add_argument("--run", nargs=2, metavar=("MODEL", "INPUTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        path, inputs = arguments.run
        with np.load(inputs) as arrays:
            print(by_onnxruntime(path, dict(arrays)))
    else:
        footprints(available(arguments.words)).print()


if __name__ == "__main__":
    main()
