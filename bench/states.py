"""A step of a decoder with bound states, beside the same step with its cache in arrays of the caller.

    python bench/states.py [--layers 12] [--hidden 768] [--past 512]

CPU time on one thread, medians of interleaved rounds. Each step starts at the same number of past tokens: the states are
restored from a snapshot, which copies nothing.

- *CPU*, *ORT*: they compute in this machine's memory, where neither way copies the cache; the model's own Concat does.
- *own memory*: onnxruntime's CPU provider behind an I/O binding, with its memory treated as that of a device. Each move
  is a copy in this machine's memory, which is faster than a copy to and from a GPU. *half on CPU*: the other half of the
  layers runs on hetero's CPU, so that half of the cache is in this machine's memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import hetero
from hetero.base.formatting import duration
from hetero.devices.ort import OrtPlugin
from hetero.devices.ort.memory import OrtMemory, memory_at
from table import Table
from timing import medians

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from cached_decoder import cached_decoder, empty_cache


class OwnMemory(OrtPlugin):
    """onnxruntime's CPU, whose memory hetero moves values into and out of."""

    name = "OWN"

    def _memory(self, target: Any, options: Any) -> OrtMemory:
        return memory_at("cpu", 0)


def steps(
    core: hetero.Core, model: hetero.Model, device: str, pins: dict[str, str], cache: dict[str, Any], expected: Any
) -> dict[str, Callable[[], Any]]:
    ids = np.array([[1]])
    compiled = core.compile_model(model, device, {"INFERENCE_NUM_THREADS": 1}, pins=pins or None)
    request = compiled.create_infer_request()
    feed = {"input_ids": ids, **cache}
    bound = compiled.create_stateful_request(initial=cache)
    bound.infer(ids)
    # One step puts the cache into the memory of the device, and another row of it is cut off by nothing: the step
    # that is timed has one more past token than the loop.
    after_one = bound.snapshot_state()
    first = request.infer(feed)
    feed.update({name: first[name.replace("past_key_values", "present")] for name in cache})

    def with_states() -> Any:
        bound.restore_state(after_one)
        return bound.infer(ids)["logits"]

    def through_arrays() -> Any:
        return request.infer(feed)["logits"]

    for work in (with_states, through_arrays):
        np.testing.assert_allclose(work(), expected, 1e-3, 1e-4)
    return {"states": with_states, "arrays": through_arrays}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time per row")
    arguments = parser.parse_args()
    layers, past = arguments.layers, arguments.past
    proto = cached_decoder(layers, arguments.hidden, 12, 2000, past + 2)
    random = np.random.default_rng(0)
    cache = {
        name: random.standard_normal(value.shape, np.float32)
        for name, value in empty_cache(proto, past=past - 1).items()
    }
    plain = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [port.name for port in plain.get_outputs()]
    ids = np.array([[1]])
    first = dict(zip(names, plain.run(None, {"input_ids": ids, **cache}), strict=True))
    full = {name: first[name.replace("past_key_values", "present")] for name in cache}
    (expected,) = plain.run(["logits"], {"input_ids": ids, **full})
    del plain
    core = hetero.Core()
    core.register_plugin("OWN", OwnMemory)
    model = core.read_model(proto)
    half = {
        node.name: "CPU" if node.name.split(".")[0].isdecimal() and int(node.name.split(".")[0]) < layers // 2 else "OWN"
        for node in model.nodes
    }
    table = Table(f"{layers} layers of {arguments.hidden}, {past} past tokens", "bound states", "arrays", "ratio")
    for title, device, pins in (
        ("CPU", "CPU", {}),
        ("ORT", "ORT", {}),
        ("own memory", "OWN", {}),
        ("own memory, half on CPU", "HETERO:OWN,CPU", half),
    ):
        times = medians(steps(core, model, device, pins, cache, expected), 51, arguments.seconds)
        spent, base = times["states"], times["arrays"]
        table.add(title, duration(spent), duration(base), f"{spent / base:.2f}")
    table.print()


if __name__ == "__main__":
    main()
