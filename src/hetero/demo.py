"""The documented case: GoogLeNet v1 over ``HETERO:FPGA,CPU``, the FPGA simulated.

The model comes with the onnx package. It ships without its weights (constant 0.02 wherever a large tensor was), with
which every output saturates, so `reseed` fills them at random with the scale a trained network would have.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .core import Core
from .errors import ModelError
from .plan import Plan
from .report.dot import write_affinity_dot, write_subgraphs_dot
from .runtime.profile import ProfileRow

if TYPE_CHECKING:
    import onnx

__all__ = ["DemoResult", "light_model_path", "reseed", "run_demo"]

_MODEL = "light_inception_v1"
_DEVICE = "HETERO:FPGA,CPU"
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo shows."""

    plan: Plan
    profile: tuple[ProfileRow, ...]
    largest_difference: float
    """max |Δ| against the CPU alone, divided by max |y|."""
    dot_files: tuple[Path, ...]

    @property
    def agrees(self) -> bool:
        return self.largest_difference <= _TOLERANCE


def run_demo(folder: str | os.PathLike[str] = ".", seed: int = 0) -> DemoResult:
    """Plan, run and check the documented case; write both DOT files to ``folder``."""
    import onnx

    core = Core()
    model = core.read_model(reseed(onnx.load(light_model_path(_MODEL)), seed))
    plan = core.plan(model, _DEVICE)
    dot_files = (write_affinity_dot(plan, folder), write_subgraphs_dot(plan, folder))
    over_both = core.compile_model(model, plan, {"PERF_COUNT": True})
    (port,) = model.inputs
    shape = [dim if isinstance(dim, int) else 1 for dim in port.shape or ()]
    image = np.random.default_rng(seed).random(shape, np.float32)
    request = over_both.create_infer_request()
    request.infer({port.name: image})  # the first run plans the program; the second is what the counters show
    found = request.infer({port.name: image})[0]
    expected = core.compile_model(model, "CPU")({port.name: image})[0]
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    return DemoResult(plan, request.profiling_info, difference, dot_files)


def light_model_path(name: str) -> Path:
    """Path of a model that the onnx package carries, e.g. ``light_resnet50``. Raises `ModelError` if it is gone."""
    import onnx

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
    if not path.is_file():
        raise ModelError(f"the installed onnx {onnx.__version__} does not carry {name}.onnx (expected at {path})")
    return path


def reseed(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy of ``model`` with each ``ConstantOfShape`` weight replaced by a random initializer.

    Convolution and matrix weights get zero mean and the variance that keeps activations level (He), normalisation
    statistics stay near one and zero. The same seed gives the same model.
    """
    import onnx
    from onnx import numpy_helper

    reseeded = onnx.ModelProto()
    reseeded.CopyFrom(model)
    graph = reseeded.graph
    rng = np.random.default_rng(seed)
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    reader = {name: (node.op_type, position) for node in graph.node for position, name in enumerate(node.input)}
    kept = []
    weights = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            kept.append(node)
            continue
        shape = tuple(int(size) for size in numpy_helper.to_array(shapes[node.input[0]]))
        weight = _random_weight(rng, shape, *reader.get(node.output[0], ("", 0)))
        weights.append(numpy_helper.from_array(weight, node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(weights)
    read = {name for node in kept for name in node.input}
    used = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(used)
    # Initializers that are also listed as inputs would be overridable; these are weights.
    names = {tensor.name for tensor in shapes.values()} | {tensor.name for tensor in weights}
    inputs = [value for value in graph.input if value.name not in names]
    del graph.input[:]
    graph.input.extend(inputs)
    reseeded.ir_version = max(reseeded.ir_version, 4)
    return reseeded


def _random_weight(
    rng: np.random.Generator, shape: tuple[int, ...], op_type: str, position: int
) -> NDArray[np.float32]:
    if op_type == "BatchNormalization":  # scale, bias, mean, variance
        centre = {1: 1.0, 2: 0.0, 3: 0.0, 4: 1.0}[position]
        return (centre + 0.1 * rng.uniform(-1, 1, shape)).astype(np.float32)
    if len(shape) < 2:
        return (0.05 * rng.standard_normal(shape)).astype(np.float32)
    gain = 2.0 if op_type == "Conv" else 1.0
    return (rng.standard_normal(shape) * math.sqrt(gain / math.prod(shape[1:]))).astype(np.float32)
