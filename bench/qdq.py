"""Models quantized by onnxruntime's tools (static QDQ) on CPU beside onnxruntime: one thread, CPU time and peak memory.

    python bench/qdq.py                        # the real models that are there
    python bench/qdq.py model.onnx other.onnx  # float32 models; model.npz has the inputs, otherwise they are random

Each model is quantized three times: U8S8 (activations uint8, weights int8 per channel), S8S8 and U8U8 (per tensor).
"off": the largest difference from onnxruntime without optimizations, relative to the largest result.
"""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import real_models
from memory import peak
from sessions import both
from table import Table
from timing import medians

Inputs = dict[str, Any]
KINDS = {"U8S8": ("QUInt8", "QInt8", True), "S8S8": ("QInt8", "QInt8", False), "U8U8": ("QUInt8", "QUInt8", False)}


def quantized(source: Path, inputs: Inputs, kind: str, to: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [inputs]

        def get_next(self) -> Inputs | None:
            return self.left.pop() if self.left else None

    activation, weight, per_channel = KINDS[kind]
    quantize_static(
        source,
        to,
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=QuantType[activation],
        weight_type=QuantType[weight],
    )


def unoptimized(path: Path, inputs: Inputs) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)


def inputs_of(path: Path) -> Inputs:
    stored = path.with_suffix(".npz")
    if stored.exists():
        return dict(np.load(stored))
    rng = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shapes = {i.name: [n if isinstance(n, int) else 1 for n in i.shape] for i in session.get_inputs()}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def cases(folder: Path) -> Iterator[tuple[str, Path, Inputs]]:
    if len(sys.argv) > 1:
        for name in sys.argv[1:]:
            yield Path(name).stem, Path(name), inputs_of(Path(name))
        return
    for name in real_models.available():
        model, inputs = real_models.load(name)
        onnx.save(model, folder / "source.onnx")
        yield name, folder / "source.onnx", inputs


def off(found: list[Any], expected: list[Any]) -> float:
    """``found`` relative to ``expected``; NaN and infinity count as such."""
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if np.asarray(b).dtype.kind == "f"]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-9)) for a, b in pairs)


def main() -> None:
    logging.disable(logging.WARNING)
    from onnxruntime.quantization.shape_inference import quant_pre_process

    table = Table("model", "kind", "CPU, ms", "onnxruntime, ms", "ratio", "memory", "off", "onnxruntime off")
    ratios, peaks = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case, source, inputs in cases(folder):
            quant_pre_process(source, folder / "prepared.onnx", skip_symbolic_shape=True)
            for kind in KINDS:
                path, stored = folder / "quantized.onnx", folder / "inputs.npz"
                quantized(folder / "prepared.onnx", inputs, kind, path)
                model = onnx.load(path)
                fed = {i.name: inputs[i.name] for i in model.graph.input}
                np.savez(stored, **fed)
                works = both(model, fed)
                times = medians(works, 15)
                expected = unoptimized(path, fed)
                found = [np.asarray(value) for value in works["CPU"]().values()]
                ratios.append(times["CPU"] / times["onnxruntime"])
                peaks.append(peak("CPU", path, stored) / peak("onnxruntime", path, stored))
                differences = (off(found, expected), off(works["onnxruntime"](), expected))
                table.add(
                    case,
                    kind,
                    *(f"{1e3 * times[library]:.2f}" for library in ("CPU", "onnxruntime")),
                    f"{ratios[-1]:.2f}",
                    f"{peaks[-1]:.2f}",
                    *(f"{difference:.3f}" for difference in differences),
                )
    table.print()
    print(f"\ngeometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}; worst {max(ratios):.2f}")
    print(f"geometric mean of the peaks: {statistics.geometric_mean(peaks):.2f}; worst {max(peaks):.2f}")


if __name__ == "__main__":
    main()
