"""A decoder with weights of 4 or 8 bits on CPU beside onnxruntime: CPU time of a step after 64 others, the ratio for a
prompt of 64, one thread, and the peak of resident memory of a process that runs three steps.

python bench/nbits.py [--hidden 1024] [--layers 4]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from hetero import Core
from table import Table
from timing import medians

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/helpers"))
from llama import decoder, decoder_inputs

CASES = [
    ("4 bits, float32 activations", {"bits": 4}),
    ("4 bits, accuracy_level 4", {"bits": 4, "level": 4}),
    ("8 bits, accuracy_level 4", {"bits": 8, "level": 4}),
    ("4 bits, DequantizeLinear", {"dequantized": True}),
]


def peak_mb(runtime: str, path: Path, inputs: Path) -> float:
    command = [sys.executable, str(Path(__file__).with_name("peak.py")), runtime, str(path), str(inputs)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    sizes = parser.parse_args()
    table = Table("weights", "file", "step", "onnxruntime", "ratio", "prompt", "peak", "peak of onnxruntime")
    for name, options in CASES:
        model = decoder(layers=sizes.layers, hidden=sizes.hidden, inner=sizes.hidden * 11 // 4 // 32 * 32,
                        heads=sizes.hidden // 64, groups=sizes.hidden // 256, vocabulary=8000, **options)  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
            path.write_bytes(model.SerializeToString())
            compiled = Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1})
            settings = onnxruntime.SessionOptions()
            settings.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
            times = {}
            for kind, steps, past in (("step", 1, 64), ("prompt", 64, 0)):
                feed = decoder_inputs(model, steps, past)
                works = {"hetero": lambda: compiled(feed), "onnxruntime": lambda: session.run(None, feed)}  # noqa: B023
                times[kind] = medians(works, rounds=41, seconds=8)
            np.savez(inputs, **decoder_inputs(model, 1, 64))
            peaks = [peak_mb(runtime, path, inputs) for runtime in ("CPU", "onnxruntime")]
            size = path.stat().st_size / 1e6
        step, prompt = times["step"], times["prompt"]
        table.add(
            name,
            f"{size:.0f} MB",
            f"{1e3 * step['hetero']:.2f} ms",
            f"{1e3 * step['onnxruntime']:.2f} ms",
            f"{step['hetero'] / step['onnxruntime']:.2f}",
            f"{prompt['hetero'] / prompt['onnxruntime']:.2f}",
            *(f"{peak:.0f} MB" for peak in peaks),
        )
    table.print()


if __name__ == "__main__":
    main()
