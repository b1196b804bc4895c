"""Single convolutions and matrix products on the CPU device beside onnxruntime.

    python bench/convolutions.py                      # all shapes, one thread, CPU time
    python bench/convolutions.py --threads 2          # elapsed time
    python bench/convolutions.py resnet50 products    # some groups of shapes

Each shape is a model of one node with constant weights. Times are medians of interleaved rounds. GFLOP/s count the
multiplications and additions of the definition, so an algorithm that needs fewer (Winograd) can exceed the machine's
peak.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hetero.base.formatting import duration
from sessions import both
from table import Table
from timing import elapsed_times, medians, repeated

Array = np.ndarray[Any, Any]
ROUNDS = 31
ROW_SECONDS = 3.0  # after which no round starts


@dataclasses.dataclass(frozen=True)
class Convolution:
    """Batch 1. ``kernel``, ``stride``, ``dilation``: of every axis, if one number. Padded so that stride 1 keeps the
    size, unless ``pad`` says otherwise."""

    channels: int
    maps: int
    kernel: int | tuple[int, ...]
    size: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    pad: int | None = None
    dilation: int | tuple[int, ...] = 1
    group: int = 1

    @property
    def _kernel(self) -> tuple[int, ...]:
        return self.kernel if isinstance(self.kernel, tuple) else (self.kernel,) * len(self.size)

    @property
    def _dilations(self) -> tuple[int, ...]:
        return self.dilation if isinstance(self.dilation, tuple) else (self.dilation,) * len(self.size)

    @property
    def name(self) -> str:
        kernel, size = "x".join(map(str, self._kernel)), "x".join(map(str, self.size))
        text = f"{self.channels} to {self.maps}, {kernel} at {size}"
        text += f", stride {self.stride}" if self.stride != 1 else ""
        text += f", dilation {'x'.join(map(str, self._dilations))}" if self.dilation != 1 else ""
        if self.group == self.channels == self.maps:
            return text + ", depthwise"
        return text + (f", {self.group} groups" if self.group > 1 else "")

    def model(self) -> tuple[onnx.ModelProto, Array, float]:
        """The model, an input, and how many operations it takes."""
        rng = np.random.default_rng(0)
        kernel, rank = self._kernel, len(self.size)
        strides = self.stride if isinstance(self.stride, tuple) else (self.stride,) * rank
        pads = [k // 2 * d if self.pad is None else self.pad for k, d in zip(kernel, self._dilations, strict=True)]
        depth = self.channels // self.group * int(np.prod(kernel))
        weights = rng.standard_normal((self.maps, self.channels // self.group, *kernel), np.float32) / depth**0.5
        arrays = {"w": weights.astype(np.float32), "b": rng.standard_normal(self.maps, np.float32)}
        x = rng.standard_normal((1, self.channels, *self.size), np.float32)
        node = helper.make_node(
            "Conv", ["x", "w", "b"], ["y"],
            strides=strides, pads=pads * 2, dilations=self._dilations, group=self.group,
        )  # fmt: skip
        out = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, k, s, d in zip(self.size, pads, kernel, strides, self._dilations, strict=True)
        ]
        return model_of(node, x, arrays), x, 2.0 * self.maps * depth * float(np.prod(out))


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix by a constant one."""

    m: int
    k: int
    n: int

    @property
    def name(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"

    def model(self) -> tuple[onnx.ModelProto, Array, float]:
        rng = np.random.default_rng(0)
        x, w = rng.standard_normal((self.m, self.k), np.float32), rng.standard_normal((self.k, self.n), np.float32)
        return model_of(helper.make_node("MatMul", ["x", "w"], ["y"]), x, {"w": w}), x, 2.0 * self.m * self.k * self.n


def model_of(node: onnx.NodeProto, x: Array, arrays: dict[str, Array]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        node.op_type,
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def square(size: int) -> tuple[int, int]:
    return size, size


def depthwise(
    channels: int, kernel: int | tuple[int, ...], size: tuple[int, ...], stride: int | tuple[int, ...] = 1
) -> Convolution:
    return Convolution(channels, channels, kernel, size, stride, group=channels)


GROUPS: dict[str, list[Convolution | Product]] = {
    "resnet50": [
        Convolution(3, 64, 7, square(224), 2),
        Convolution(64, 64, 1, square(56)),
        Convolution(64, 64, 3, square(56)),
        Convolution(64, 256, 1, square(56)),
        Convolution(256, 128, 1, square(56)),
        Convolution(128, 128, 3, square(56), 2),
        Convolution(128, 128, 3, square(28)),
        Convolution(256, 512, 1, square(56), 2),
        Convolution(512, 256, 1, square(28)),
        Convolution(256, 256, 3, square(14)),
        Convolution(256, 1024, 1, square(14)),
        Convolution(512, 512, 3, square(7)),
        Convolution(512, 1024, 1, square(28), 2),
        Convolution(1024, 2048, 1, square(14), 2),
        Convolution(2048, 512, 1, square(7)),
    ],
    "squeezenet": [
        Convolution(3, 64, 3, square(224), 2, 0),
        Convolution(128, 16, 1, square(55)),
        Convolution(16, 64, 1, square(55)),
        Convolution(16, 64, 3, square(55)),
        Convolution(32, 128, 3, square(27)),
        Convolution(48, 192, 3, square(13)),
        Convolution(512, 1000, 1, square(13)),
    ],
    "inception": [
        Convolution(64, 192, 3, square(56)),
        Convolution(96, 128, 3, square(28)),
        Convolution(16, 32, 5, square(28)),
        Convolution(32, 96, 5, square(28)),
        Convolution(480, 192, 1, square(14)),
        Convolution(112, 224, 3, square(14)),
        Convolution(192, 384, 3, square(7)),
        Convolution(128, 128, (1, 7), square(17)),
        Convolution(128, 128, (7, 1), square(17)),
        Convolution(192, 224, (1, 7), square(12)),
        Convolution(384, 384, 3, square(25), 2),
        Convolution(256, 16, 1, square(14), 2),
    ],
    "mobile": [
        Convolution(3, 32, 3, square(224), 2),
        depthwise(32, 3, square(112)),
        depthwise(64, 3, square(112), 2),
        depthwise(128, 3, square(56)),
        depthwise(256, 3, square(28)),
        depthwise(512, 3, square(14)),
        depthwise(512, 3, square(14), 2),
        depthwise(1024, 3, square(7)),
        depthwise(72, 5, square(56), 2),
        depthwise(120, 5, square(28)),
        depthwise(480, 5, square(14)),
        depthwise(960, 5, square(7)),
        Convolution(32, 64, 1, square(112)),
        Convolution(96, 24, 1, square(56)),
        Convolution(960, 160, 1, square(7)),
        Convolution(1280, 1000, 1, square(1)),
    ],
    "text": [
        Convolution(3, 24, 3, square(320), 2),
        Convolution(3, 48, 3, (48, 320), 2),
        Convolution(48, 24, 3, square(160), 2),
        Convolution(24, 12, 2, square(160), pad=0),
        Convolution(24, 24, 3, square(80)),
        Convolution(96, 24, 3, square(80)),
        Convolution(48, 96, 1, square(80)),
        Convolution(12, 24, 3, square(208)),
        Convolution(24, 48, 3, square(208), 2),
        Convolution(96, 96, 3, square(52)),
        Convolution(192, 384, 1, (6, 80)),
        depthwise(96, 7, square(80)),
        depthwise(64, 5, (12, 160), (2, 1)),
        depthwise(96, 9, square(20)),
    ],
    "columns": [
        Convolution(12, 12, (7, 1), (128, 62), dilation=(17, 1)),
        Convolution(12, 12, (3, 1), (128, 62), dilation=(48, 1)),
        Convolution(32, 32, (7, 1), (128, 62), dilation=(17, 1)),
        Convolution(256, 512, (5, 1), (512, 1), pad=0),
        Convolution(64, 64, (9, 1), (1000, 1)),
        Convolution(64, 64, (3, 1), (500, 1), group=4),
        Convolution(64, 64, (3, 1), square(56)),
        depthwise(64, (5, 1), (1000, 1)),
        depthwise(64, (11, 1), square(56)),
        depthwise(192, (7, 1), square(28)),
    ],
    "other": [
        Convolution(16, 32, 3, (2000,)),
        depthwise(128, 31, (400,)),
        Convolution(1, 128, 256, (1536,), 64, 0),
        Convolution(768, 768, 1, (1500,)),
        Convolution(128, 256, 1, square(64)),
        Convolution(512, 512, 3, square(4), 2),
        Convolution(320, 160, 5, square(7), pad=0),
        Convolution(8, 16, 3, (16, 32, 32)),
        Convolution(128, 128, 3, square(28), group=32),
        Convolution(128, 128, 3, square(56), group=4),
        Convolution(256, 256, 3, square(56), group=32),
        Convolution(384, 384, 3, square(7), group=24),
        Convolution(64, 64, 3, square(56), dilation=2),
        Convolution(16, 16, 3, square(64), dilation=24),
        Convolution(16, 32, 3, square(100), dilation=18),
        Convolution(256, 256, 3, square(28), dilation=2),
        Convolution(256, 256, 3, square(28), dilation=4),
        Convolution(320, 320, 3, square(32)),
        Convolution(64, 3, 9, square(64)),
    ],
    "products": [
        Product(128, 768, 768),
        Product(80, 256, 40478),
        Product(128, 768, 3072),
        Product(128, 3072, 768),
        Product(49, 512, 2048),
        Product(1, 768, 3072),
        Product(2, 768, 3072),
        Product(4, 768, 3072),
        Product(16, 384, 1536),
        Product(40, 120, 360),
        Product(256, 256, 256),
        Product(1024, 1024, 1024),
    ],
}


def compare(shape: Convolution | Product, threads: int, rounds: int) -> tuple[float, float, float]:
    """Median seconds of onnxruntime and of the CPU device, and the number of operations."""
    model, x, operations = shape.model()
    calls = max(1, min(100, int(1.5e8 / operations)))
    works = {name: repeated(work, calls) for name, work in both(model, {"x": x}, threads=threads).items()}
    if threads == 1:
        times = medians(works, rounds, ROW_SECONDS)
    else:
        times = {name: statistics.median(runs) for name, runs in elapsed_times(works, rounds).items()}
    return times["onnxruntime"] / calls, times["CPU"] / calls, operations


def convolutions(groups: Sequence[str] = (), threads: int = 1, rounds: int = ROUNDS) -> Table:
    table = Table("", "shape", "onnxruntime", "CPU", "GFLOP/s", "ratio")
    ratios = []
    for group in groups or GROUPS:
        for number, shape in enumerate(GROUPS[group]):
            reference, own, operations = compare(shape, threads, rounds)
            ratios.append(own / reference)
            cells = [duration(reference), duration(own), f"{operations / own / 1e9:.0f}", f"{own / reference:.2f}"]
            table.add("" if number else group, shape.name, *cells)
    for name, value in (("geometric mean", statistics.geometric_mean(ratios)), ("worst", max(ratios))):
        table.add(name, "", "", "", "", f"{value:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    convolutions(arguments.groups, arguments.threads, arguments.rounds).print()


if __name__ == "__main__":
    main()
