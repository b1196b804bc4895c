"""Steps of a decoder with bound states, beside the same steps with the cache in arrays of the caller.

    python bench/states.py [--layers 12] [--hidden 768] [--past 512]
    python bench/states.py --gpu ORT.CUDA       # by the wall; requires a GPU and onnxruntime-gpu

CPU time per step outside the operating system, on one thread, medians of interleaved rounds. (Page faults depend on how
the allocator's memory lies, and differ between runs of the same work.) A round is 32 steps, which begin at the same
cache; to restore a snapshot of it copies nothing.

- *CPU* appends to the bound cache in place; with arrays, the Concat of the model copies it. The first step after a
  restored snapshot copies it too.
- *ORT* computes in this machine's memory, where hetero copies the cache in neither way. The Concat of the model does.
- *own memory*: onnxruntime's CPU provider behind an I/O binding, with its memory treated as that of a device: each move
  is a copy in this machine's memory, in place of one to or from a GPU. The product with the vocabulary runs on CPU.
  *half on CPU*: half of the layers run on CPU too.
- *a recurrent step*: a cell of 32 numbers, whose state keeps its size. *a decoder of 2 layers of 48*: a growing cache.
  Calls of these small models cost as much as their kernels.
- *ORT.CUDA*: the whole decoder on a GPU, and with the product with the vocabulary on CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import hetero
from hetero.base.formatting import duration
from hetero.devices.ort import OrtPlugin
from hetero.devices.ort.memory import OrtMemory, memory_at
from table import Table
from timing import medians_by_clock, user_time

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from cached_decoder import cached_decoder, empty_cache, host_loop

STEPS = 32  # timed together
SMALL_STEPS = 64  # of small models, timed together
IDS = np.array([[1]])


class OwnMemory(OrtPlugin):
    """onnxruntime's CPU, whose memory hetero moves values into and out of."""

    name = "OWN"

    def _memory(self, target: Any, options: Any) -> OrtMemory:
        return memory_at("cpu", 0)


def steps(
    core: hetero.Core,
    model: hetero.Model,
    device: str,
    config: dict[str, Any],
    pins: dict[str, str],
    cache: dict[str, Any],
    expected: Any,
) -> dict[str, Callable[[], Any]]:
    """``cache``: the initial states. ``expected``: the logits after `STEPS` steps."""
    compiled = core.compile_model(model, device, {"INFERENCE_NUM_THREADS": 1, **config}, pins=pins or None)
    plain, bound = compiled.create_infer_request(), compiled.create_stateful_request(initial=cache)
    past_of = {name.replace("past_key_values", "present"): name for name in cache}
    # Two more steps: in the first, the cache reaches the memory of its device.
    bound.infer(IDS)
    begin = bound.snapshot_state()
    outputs = plain.infer({"input_ids": IDS, **cache})
    cache = {past: outputs[present] for present, past in past_of.items()}

    def with_states() -> Any:
        bound.restore_state(begin)
        for _ in range(STEPS):
            logits = bound.infer({"input_ids": IDS})["logits"]
        return logits

    def through_arrays() -> Any:
        feed = cache
        for _ in range(STEPS):
            outputs = plain.infer({"input_ids": IDS, **feed})
            feed = {past: outputs[present] for present, past in past_of.items()}
        return outputs["logits"]

    for work in (with_states, through_arrays):
        np.testing.assert_allclose(work(), expected, 1e-3, 1e-4)
    return {"states": with_states, "arrays": through_arrays}


def recurrent(width: int = 32) -> onnx.ModelProto:
    """h_out = tanh(x w + h_in u)."""
    random = np.random.default_rng(0)
    node, port = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    weights = [
        onnx.numpy_helper.from_array(random.standard_normal((width, width), np.float32) / width, name) for name in "wu"
    ]
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["h_in", "u"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Tanh", ["c"], ["h_out"]),
        node("Neg", ["h_out"], ["y"]),
    ]
    ports = [port(name, onnx.TensorProto.FLOAT, ["n", width]) for name in ("x", "h_in", "y", "h_out")]
    graph = onnx.helper.make_graph(nodes, "recurrent", ports[:2], ports[2:], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def small_models(core: hetero.Core, seconds: float) -> Table:
    """Models whose kernels take no longer than a call."""
    table = Table("small models", "bound states", "arrays", "ratio")
    x = np.ones((1, 32), np.float32)
    decoder = cached_decoder(2, 48, 12, 2000, 600)
    cases: list[tuple[str, onnx.ModelProto, dict[str, Any], dict[str, Any]]] = [
        ("a recurrent step", recurrent(), {"x": x}, {"h_in": np.zeros_like(x)})
    ]
    for past in (16, 512):
        title = f"a decoder of 2 layers of 48, {past} past tokens"
        cases.append((title, decoder, {"input_ids": IDS}, empty_cache(decoder, past=past)))
    for title, proto, feed, states in cases:
        for device in ("CPU", "ORT"):
            compiled = core.compile_model(core.read_model(proto), device, {"INFERENCE_NUM_THREADS": 1})
            works = small_steps(compiled, feed, states)
            (times,) = medians_by_clock(works, (user_time,), 2001, seconds)
            spent, base = times["states"] / SMALL_STEPS, times["arrays"] / SMALL_STEPS
            table.add(f"{title}, {device}", duration(spent), duration(base), f"{spent / base:.2f}")
    return table


def small_steps(
    compiled: hetero.CompiledModel, feed: dict[str, Any], states: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    plain, bound = compiled.create_infer_request(), compiled.create_stateful_request(initial=states)
    output_of = {state: output for output, state in bound.states.items()}

    def with_states() -> Any:
        bound.reset_state()
        for _ in range(SMALL_STEPS):
            bound.infer(feed)
        return bound.snapshot_state()

    def through_arrays() -> Any:
        values = states
        for _ in range(SMALL_STEPS):
            outputs = plain.infer({**feed, **values})
            values = {state: outputs[output] for state, output in output_of.items()}
        return values

    found, wanted = with_states(), through_arrays()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, 1e-3, 1e-4)
    return {"states": with_states, "arrays": through_arrays}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=10.0, help="per row")
    parser.add_argument("--gpu", default="", help="the device to measure instead of those of this machine's memory")
    arguments = parser.parse_args()
    layers, past = arguments.layers, arguments.past
    proto = cached_decoder(layers, arguments.hidden, 12, 2000, past + STEPS)
    random = np.random.default_rng(0)
    cache = {
        name: random.standard_normal(value.shape, np.float32)
        for name, value in empty_cache(proto, past=past - 1).items()
    }
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    logits, _ = host_loop(
        lambda feed: dict(zip(names, session.run(None, dict(feed)), strict=True)), cache, [IDS] * (STEPS + 1)
    )
    core = hetero.Core()
    core.register_plugin("OWN", OwnMemory)
    model = core.read_model(proto)
    most = {node.name: "CPU" if node.name == "logits" else "OWN" for node in model.nodes}
    lower = tuple(f"{layer}." for layer in range(layers // 2))
    half = {name: "CPU" if name.startswith(lower) else device for name, device in most.items()}
    table = Table(f"{layers} layers of {arguments.hidden}, {past} past tokens", "bound states", "arrays", "ratio")
    rows: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
        ("CPU", "CPU", {}, {}),
        ("ORT", "ORT", {}, {}),
        ("own memory", "HETERO:OWN,CPU", {}, most),
        ("own memory, half on CPU", "HETERO:OWN,CPU", {}, half),
    ]
    if gpu := arguments.gpu:
        exact = {"ORT_PROVIDER_OPTIONS": {"use_tf32": 0}}
        by_device = {"DEVICE_PROPERTIES": {gpu: exact}}
        rows = [(gpu, gpu, exact, {}), ("vocabulary on CPU", f"HETERO:{gpu},CPU", by_device, {"logits": "CPU"})]
    for title, device, config, pins in rows:
        works = steps(core, model, device, config, pins, cache, logits[-1])
        clock = time.perf_counter if gpu else user_time
        (times,) = medians_by_clock(works, (clock,), 51, arguments.seconds)
        spent, base = times["states"] / STEPS, times["arrays"] / STEPS
        table.add(title, duration(spent), duration(base), f"{spent / base:.2f}")
    table.print()
    if not arguments.gpu:
        small_models(core, arguments.seconds).print()


if __name__ == "__main__":
    main()
