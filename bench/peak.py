"""Run a model in this process, and print the peak of its resident memory in kB; `bench/memory.py` starts it.

    python bench/peak.py onnxruntime model.onnx inputs.npz

It imports nothing that the runtime does not need, because that would count.
"""

from __future__ import annotations

import sys
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


def main() -> None:
    runtime, path, inputs = sys.argv[1:]
    with np.load(inputs) as arrays:
        RUNTIMES[runtime](path, dict(arrays))
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(line.split()[1])


if __name__ == "__main__":
    main()
