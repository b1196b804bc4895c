"""What a cut costs beside a GPU: a chain of products, cut into subgraphs, on onnxruntime's provider for CUDA.

    python bench/gpu.py [--provider CUDA]

Requires a GPU and onnxruntime-gpu. By the wall, medians. Every row is one size of the value that crosses:

- *one subgraph*: the whole chain on the GPU, with hetero, and with a plain session, whose inputs and results lie on the
  GPU in the column *bound* (IO binding).
- *per cut*: the additional time of each cut if neighbors are on the GPU (two device names of one GPU), or on the GPU
  and on hetero's CPU in turn; then for plain sessions that exchange NumPy arrays, and that leave values on the GPU.
  Cuts to the CPU include that the CPU computes half of the products.

The second table is MiniLM over the GPU and hetero's CPU, which computes all nodes of one operator: *kept*, where values
of the GPU stay there until the CPU reads them, and *arrays*, the same plan with a device that receives and returns
arrays in each subgraph. *GPU alone* is the whole model there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.base.formatting import duration
from hetero.devices.ort import OrtPlugin
from real_models import load
from timing import median_elapsed

SIZES = ((1, 256), (64, 256), (256, 1024), (512, 2048))  # rows, columns
NODES = 16
EXACT = {"use_tf32": 0}


MINILM = ((1, 16), (8, 128), (32, 256))  # batch, tokens
ON_CPU = ("Softmax", "LayerNormalization", "Erf")


class Arrays(OrtPlugin):
    """The same devices without memory of their own: every subgraph receives and returns arrays."""

    name = "ARRAYS"

    def _memory(self, target: Any, options: Any) -> None:
        return None


class Second(OrtPlugin):
    """The same device under another name, so that neighbors on one GPU are not merged."""

    name = "SECOND"


def chain(rows: int, columns: int, first: int = 0, last: int = NODES) -> onnx.ModelProto:
    """The nodes from ``first`` to ``last`` of a chain of products."""
    weights, nodes = [], []
    for i in range(first, last):
        array = np.random.default_rng(i).standard_normal((columns, columns), np.float32) / np.float32(columns**0.5)
        weights.append(numpy_helper.from_array(array, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"], f"n{i}"))
    ports = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [rows, columns]) for i in (first, last)]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def in_turn(sessions: Sequence[Any], x: np.ndarray) -> Callable[[], np.ndarray]:
    """Plain sessions, one after the other, that exchange arrays."""

    def run() -> np.ndarray:
        value = x
        for session in sessions:
            (value,) = session.run(None, {session.get_inputs()[0].name: value})
        return value

    return run


def bound(sessions: Sequence[Any], x: np.ndarray) -> Callable[[], Any]:
    """The same with values that stay on the GPU, bound for each run."""
    names = [(session.get_inputs()[0].name, session.get_outputs()[0].name) for session in sessions]
    bindings = [session.io_binding() for session in sessions]
    first = onnxruntime.OrtValue.ortvalue_from_numpy(x, "cuda", 0)

    def run() -> Any:
        value = first
        for session, binding, (given, made) in zip(sessions, bindings, names, strict=True):
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
            binding.bind_ortvalue_input(given, value)
            binding.bind_output(made, "cuda", 0)
            session.run_with_iobinding(binding)
            (value,) = binding.get_outputs()
        return value

    return run


def rows_of(rows: int, columns: int, gpu: str, second: str, provider: str, seconds: float) -> list[str]:
    core = hetero.Core()
    core.register_plugin("SECOND", Second)
    options = {"ORT_PROVIDER_OPTIONS": EXACT}
    several = {"DEVICE_PROPERTIES": {gpu: options, second: options}}
    x = np.random.default_rng(NODES).standard_normal((rows, columns), np.float32)
    model = core.read_model(chain(rows, columns))
    whole = core.compile_model(model, gpu, options)
    expected = whole(x)[0]

    def sessions(parts: int) -> list[Any]:
        size = NODES // parts
        providers = [(f"{provider}ExecutionProvider", EXACT), "CPUExecutionProvider"]
        encoded = [chain(rows, columns, i, i + size).SerializeToString() for i in range(0, NODES, size)]
        return [onnxruntime.InferenceSession(each, providers=providers) for each in encoded]

    one = sessions(1)
    base = [median_elapsed(work, seconds) for work in (lambda: whole(x), in_turn(one, x), bound(one, x))]
    lines = []
    for parts in (2, 4, 8, 16):
        pieces = sessions(parts)
        works: list[Callable[[], Any]] = []
        for other, config in ((second, several), ("CPU", {"DEVICE_PROPERTIES": {gpu: options}})):
            pins = {f"n{i}": (gpu, other)[i * parts // NODES % 2] for i in range(NODES)}
            compiled = core.compile_model(model, f"HETERO:{gpu},{other}", config, pins=pins)
            assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == parts
            np.testing.assert_allclose(compiled(x)[0], expected, 1e-3, 1e-4)
            works.append(lambda compiled=compiled: compiled(x))
        works += [in_turn(pieces, x), bound(pieces, x)]
        np.testing.assert_allclose(works[3]().numpy(), expected, 1e-3, 1e-4)
        totals = [median_elapsed(work, seconds) for work in works]
        cuts = [(total - before) / (parts - 1) for total, before in zip(totals, [base[0], *base], strict=True)]
        cells = [f"{x.nbytes:,} B", str(parts), *map(duration, base)]
        cells += [duration(cut) if cut >= 0 else f"-{duration(-cut)}" for cut in cuts]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def minilm(id_: str, seconds: float) -> None:
    proto, _ = load("MiniLM-L3, sequence 16")
    core = hetero.Core()
    core.register_plugin("ARRAYS", Arrays)
    model = core.read_model(proto)
    print("\n| MiniLM | on CPU | subgraphs | kept | arrays | ratio | GPU alone |")
    print(f"|{'---|' * 7}")
    for batch, length in MINILM:
        ids = np.random.default_rng(0).integers(1000, 20000, (batch, length))
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        alone = core.compile_model(model, f"ORT.{id_}", {"ORT_PROVIDER_OPTIONS": EXACT} if id_ != "CPU" else {})
        expected, base = alone(feed), median_elapsed(partial(alone, feed), seconds)
        for operator in ON_CPU:
            times, parts = [], set()
            for plugin in ("ORT", "ARRAYS"):
                gpu = f"{plugin}.{id_}"
                config = {"DEVICE_PROPERTIES": {gpu: {"ORT_PROVIDER_OPTIONS": EXACT}}} if id_ != "CPU" else {}
                pins = {node.key: "CPU" if node.op_type == operator else gpu for node in model.nodes}
                compiled = core.compile_model(model, f"HETERO:{gpu},CPU", config, pins=pins)
                parts.add(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))
                for found, wanted in zip(compiled(feed), expected, strict=True):
                    np.testing.assert_allclose(found, wanted, 1e-3, 1e-3)
                times.append(median_elapsed(partial(compiled, feed), seconds))
            assert len(parts) == 1
            cells = [f"{batch} x {length}", operator, str(*parts), *map(duration, times)]
            cells += [f"{times[0] / times[1]:.2f}", duration(base)]
            print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--provider", default="CUDA")
    parser.add_argument("--seconds", type=float, default=0.5, help="per figure")
    arguments = parser.parse_args()
    gpu, second = f"ORT.{arguments.provider.upper()}", f"SECOND.{arguments.provider.upper()}"
    print("| crosses | subgraphs | one subgraph | plain | bound | GPU to GPU | GPU and CPU | plain | bound |")
    print(f"|{'---|' * 9}")
    for rows, columns in SIZES:
        for line in rows_of(rows, columns, gpu, second, arguments.provider, arguments.seconds):
            print(line, flush=True)
    minilm(arguments.provider.upper(), arguments.seconds)


if __name__ == "__main__":
    main()
