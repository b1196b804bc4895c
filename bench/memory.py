"""Peak memory of running real models, as a Markdown table: hetero's CPU device beside onnxruntime.

    python bench/memory.py                # all models of real_models.py that are there

Each model runs in a process of its own that does nothing else: reads its file, compiles it, and runs it some times on
one thread. "Peak": the most memory the process ever had resident (``VmHWM``; ``ru_maxrss`` begins with what the parent
had), libraries and pages of the mapped file included. "Own": the peak above that of a process that only imports the
library and runs a model of one node.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RUNS = 3


def run_onnxruntime(path: str, inputs: dict[str, np.ndarray]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
    for _ in range(RUNS):
        session.run(None, inputs)


def run_hetero(path: str, inputs: dict[str, np.ndarray]) -> None:
    import hetero

    core = hetero.Core()
    request = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
    for _ in range(RUNS):
        request.infer(inputs)


RUNTIMES = {"onnxruntime": run_onnxruntime, "CPU": run_hetero}


def peak(runtime: str, path: Path, inputs: Path) -> float:
    """MiB of a process that runs the model."""
    command = [sys.executable, __file__, "--run", runtime, str(path), str(inputs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs=3, metavar=("RUNTIME", "MODEL", "INPUTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        runtime, path, inputs = arguments.run
        with np.load(inputs) as arrays:
            RUNTIMES[runtime](path, dict(arrays))
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        print(line.split()[1])
        return

    import onnx
    import pytest
    from onnx import TensorProto, helper

    import real_models

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    tiny = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"

        def peaks(model: onnx.ModelProto, arrays: real_models.Inputs) -> dict[str, float]:
            onnx.save(model, path)
            np.savez(inputs, **arrays)
            return {runtime: peak(runtime, path, inputs) for runtime in RUNTIMES}

        least = peaks(tiny, {"x": np.zeros(4, np.float32)})
        print("| model | onnxruntime, peak (own) | CPU, peak (own) | ratio of peaks (own) |\n|---|---|---|---|")
        for case in real_models.MODELS:
            try:
                found = peaks(*real_models.load(case))
            except pytest.skip.Exception as why:
                print(f"| {case} | {why} | | |")
                continue
            own = {runtime: found[runtime] - least[runtime] for runtime in RUNTIMES}
            cells = [f"{found[runtime]:.0f} MiB ({own[runtime]:.0f})" for runtime in RUNTIMES]
            ratios = f"{found['CPU'] / found['onnxruntime']:.2f} ({own['CPU'] / own['onnxruntime']:.2f})"
            print(f"| {case} | {' | '.join(cells)} | {ratios} |", flush=True)
        print(f"\none node: {', '.join(f'{runtime} {mib:.0f} MiB' for runtime, mib in least.items())}")


if __name__ == "__main__":
    main()
