"""Quantize float32 models by onnxruntime's tools, for `bench/exported_models.py` to run beside onnxruntime.

    python bench/quantize_models.py --to quantized                           # the real models that are there
    python bench/quantize_models.py --to quantized models/resnet18.onnx      # model files; resnet18.npz has the inputs
    python bench/quantize_models.py --to quantized --kinds U8S8 dynamic models/*.onnx
    python bench/exported_models.py quantized --reference                    # time and differences
    python bench/exported_models.py quantized --memory

Static kinds are calibrated with the model's inputs. On x86 processors without VNNI, onnxruntime's 16-bit sums saturate
with weights of 8 bits; ``--reduce-range`` gives them 7.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter

import real_models

Inputs = dict[str, Any]
STATIC = {
    "U8S8": ("QDQ", "QUInt8", "QInt8", True),
    "S8S8": ("QDQ", "QInt8", "QInt8", False),
    "U8U8": ("QDQ", "QUInt8", "QUInt8", False),
    "U8S4": ("QDQ", "QUInt8", "QInt4", True),
    "U16S8": ("QDQ", "QUInt16", "QInt8", True),
    "QOperator-U8S8": ("QOperator", "QUInt8", "QInt8", True),
    "QOperator-U8U8": ("QOperator", "QUInt8", "QUInt8", False),
}
"""Kind -> format, types of activations and of weights, whether each channel has its own scale."""

# onnxruntime has no ConvInteger with signed weights.
DYNAMIC = {
    "dynamic": {"weight": "QUInt8", "per_channel": False, "op_types_to_quantize": None},
    "dynamic-S8": {"weight": "QInt8", "per_channel": True, "op_types_to_quantize": ["MatMul", "Gemm", "Attention"]},
}


def quantize(source: Path, inputs: Inputs, kind: str, to: Path, reduce_range: bool = False) -> None:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [inputs]

        def get_next(self) -> Inputs | None:
            return self.left.pop() if self.left else None

    if kind in DYNAMIC:
        options = dict(DYNAMIC[kind])
        quantize_dynamic(source, to, weight_type=QuantType[options.pop("weight")], reduce_range=reduce_range, **options)
        return
    form, activation, weight, per_channel = STATIC[kind]
    quantize_static(
        source,
        to,
        Reader(),
        quant_format=QuantFormat[form],
        per_channel=per_channel,
        activation_type=QuantType[activation],
        weight_type=QuantType[weight],
        reduce_range=reduce_range,
    )


def with_scales_per_channel(path: Path) -> None:
    """Converts a model of an opset below 13, whose DequantizeLinear has no axis, to opset 13."""
    model = onnx.load(path)
    if max(entry.version for entry in model.opset_import if not entry.domain) < 13:
        onnx.save(onnx.version_converter.convert_version(model, 13), path)


def sources(paths: Sequence[Path], folder: Path) -> Iterator[tuple[str, Path, Inputs]]:
    for path in paths:
        with np.load(path.with_suffix(".npz")) as arrays:
            yield path.stem, path, dict(arrays)
    for name in [] if paths else real_models.available():
        model, inputs = real_models.load(name)
        onnx.save(model, folder / "source.onnx")
        yield name, folder / "source.onnx", inputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", help="default: the real models that are there")
    parser.add_argument("--to", type=Path, required=True, help="folder for NAME-KIND.onnx and NAME-KIND.npz")
    parser.add_argument("--kinds", nargs="+", choices=[*STATIC, *DYNAMIC], default=[*STATIC, *DYNAMIC])
    parser.add_argument("--reduce-range", action="store_true", help="weights of 7 bits")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    from onnxruntime.quantization.shape_inference import quant_pre_process

    chosen.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case, source, inputs in sources(chosen.models, folder):
            quant_pre_process(source, folder / "prepared.onnx", skip_symbolic_shape=True)
            with_scales_per_channel(folder / "prepared.onnx")
            for kind in chosen.kinds:
                path = chosen.to / f"{case}-{kind}.onnx"
                quantize(folder / "prepared.onnx", inputs, kind, path, chosen.reduce_range)
                kept = {i.name for i in onnx.load(path).graph.input}
                np.savez(path.with_suffix(".npz"), **{key: value for key, value in inputs.items() if key in kept})
                print(path, flush=True)


if __name__ == "__main__":
    main()
