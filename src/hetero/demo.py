"""The demo: GoogLeNet v1 over ``HETERO:FPGA,CPU``, with a simulated FPGA.

The onnx package includes the model without its weights: every large tensor is the constant 0.02, so every output
saturates. `reseed` therefore fills the weights at random, with the scale of a trained network.
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
from .model.model import Model
from .plan import Plan
from .plugin.profile import ProfileRow
from .report.dot import write_affinity_dot, write_subgraphs_dot

if TYPE_CHECKING:
    import onnx

__all__ = ["DemoResult", "light_model_path", "reseed", "run_demo"]

_MODEL = "light_inception_v1"
_DEVICE = "HETERO:FPGA,CPU"
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True, slots=True)
class DemoResult:
    """The results of the demo. ``model``: the model that it planned and ran."""

    model: Model
    plan: Plan
    profile: tuple[ProfileRow, ...]
    largest_difference: float
    """The maximum difference from the result of the CPU alone, divided by the maximum absolute output."""
    dot_files: tuple[Path, ...] = ()

    @property
    def agrees(self) -> bool:
        return self.largest_difference <= _TOLERANCE


def run_demo(folder: str | os.PathLike[str] | None = None, seed: int = 0) -> DemoResult:
    """Plan, run and check the demo. Writes both DOT files to ``folder``, unless it is None."""
    import onnx

    core = Core()
    model = core.read_model(reseed(onnx.load(light_model_path(_MODEL)), seed))
    plan = core.plan(model, _DEVICE)
    dot_files = () if folder is None else (write_affinity_dot(plan, folder), write_subgraphs_dot(plan, folder))
    over_both = core.compile_model(model, plan, {"PERF_COUNT": True})
    (port,) = model.inputs
    shape = [dim if isinstance(dim, int) else 1 for dim in port.shape or ()]
    image = np.random.default_rng(seed).random(shape, np.float32)
    request = over_both.create_infer_request()
    request.infer({port.name: image})  # the first run plans the program; the counters are of the second run
    found = request.infer({port.name: image})[0]
    expected = core.compile_model(model, "CPU")({port.name: image})[0]
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    return DemoResult(model, plan, request.profiling_info, difference, dot_files)


def light_model_path(name: str) -> Path:
    """The path of a model in the onnx package, such as ``light_resnet50``. Raises `ModelError` if it is missing."""
    import onnx

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
    if not path.is_file():
        raise ModelError(f"the installed onnx {onnx.__version__} does not contain {name}.onnx (expected at {path})")
    return path


def reseed(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy of ``model`` with random values for each ``ConstantOfShape`` weight and all statistics of normalizations.

    Weights of convolutions and matrix products have zero mean and the variance that keeps activations level (He).
    Normalizations are near the identity, and half as large on a residual branch, so that sums do not grow from block to
    block. The same seed gives the same model.
    """
    import onnx
    from onnx import numpy_helper

    reseeded = onnx.ModelProto()
    reseeded.CopyFrom(model)
    graph = reseeded.graph
    rng = np.random.default_rng(seed)
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    readers = {name: (node, position) for node in graph.node for position, name in enumerate(node.input)}

    def replaced(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
        node, position = readers.get(name, (onnx.NodeProto(), 0))
        follower = readers[node.output[0]][0].op_type if node.output and node.output[0] in readers else ""
        weight = _random_weight(rng, shape, node.op_type, position, residual=follower in ("Sum", "Add"))
        return numpy_helper.from_array(weight, name)

    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in tensors:
            shape = numpy_helper.to_array(tensors[node.input[0]])
            tensors[node.output[0]] = replaced(node.output[0], tuple(int(size) for size in shape))
            continue
        nodes.append(node)
        if node.op_type == "BatchNormalization":
            for name in node.input[1:]:
                if name in tensors:
                    tensors[name] = replaced(name, tuple(tensors[name].dims))
    read = {name for node in nodes for name in node.input}
    # These initializers are weights, so the caller should not override them as inputs.
    inputs = [value for value in graph.input if value.name not in tensors]
    del graph.node[:], graph.initializer[:], graph.input[:]
    graph.node.extend(nodes)
    graph.initializer.extend(tensor for name, tensor in tensors.items() if name in read)
    graph.input.extend(inputs)
    reseeded.ir_version = max(reseeded.ir_version, 4)
    return reseeded


def _random_weight(
    rng: np.random.Generator, shape: tuple[int, ...], op_type: str, position: int, residual: bool
) -> NDArray[np.float32]:
    if op_type == "BatchNormalization":  # scale, bias, mean, variance
        center = {1: 0.5 if residual else 1.0, 2: 0.0, 3: 0.0, 4: 1.0}[position]
        return (center + 0.1 * rng.uniform(-1, 1, shape)).astype(np.float32)
    if len(shape) < 2:
        return (0.05 * rng.standard_normal(shape)).astype(np.float32)
    gain = 2.0 if op_type == "Conv" else 1.0
    return (rng.standard_normal(shape) * math.sqrt(gain / math.prod(shape[1:]))).astype(np.float32)
