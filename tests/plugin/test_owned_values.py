"""Random models, devices and calls: a call changes none of the arrays that the caller holds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
import opencl
from hetero.devices.ort import OrtPlugin
from hetero.devices.ort.memory import OrtMemory, memory_at
from hetero.plugin import RemoteTensor
from island import IslandPlugin

pytest.importorskip("onnxruntime")

node = helper.make_node
CONSTANT = np.arange(12, dtype=np.float32).reshape(3, 4)
POOLS = ["CPU", "ORT", "OWN", "TEMPLATE", "OWN,ORT", "ORT,CPU", "ISLAND,OWN,CPU"]
POOLS += [] if opencl.unavailable() else ["OPENCL", "OPENCL,CPU", "OPENCL,OWN,CPU"]


class OwnMemory(OrtPlugin):
    """onnxruntime's CPU, whose memory hetero moves values into and out of."""

    name = "OWN"

    def _memory(self, target: Any, options: Any) -> OrtMemory:
        return memory_at("cpu", 0)


def random_model(rng: random.Random) -> tuple[onnx.ModelProto, list[onnx.NodeProto]]:
    """Inputs and a constant pass through views, also to outputs, and some outputs are inputs or the constant."""
    nodes, values = [], ["x", "z", "c"]
    for at in range(rng.randint(2, 8)):
        kind, name = rng.choice(["Identity", "Reshape", "Neg", "Relu", "Add", "Add"]), f"v{at}"
        inputs = [rng.choice(values), *({"Add": [rng.choice(values)], "Reshape": ["shape"]}.get(kind, ()))]
        nodes.append(node(kind, inputs, [name], name=name))
        values.append(name)
    outputs = rng.sample(values, rng.randint(1, len(values) - 1))
    infos = [[helper.make_tensor_value_info(name, 1, [3, 4]) for name in names] for names in (("x", "z"), outputs)]
    constants = [numpy_helper.from_array(CONSTANT, "c"), numpy_helper.from_array(np.array([3, 4]), "shape")]
    graph = helper.make_graph(nodes, "g", *infos, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), nodes


def expected_results(nodes: list[onnx.NodeProto], x: np.ndarray, z: np.ndarray) -> dict[str, np.ndarray]:
    values = {"x": x, "z": z, "c": CONSTANT}
    for each in nodes:
        first = values[each.input[0]]
        match each.op_type:
            case "Neg":
                first = -first
            case "Relu":
                first = np.maximum(first, np.float32(0))
            case "Add":
                first = first + values[each.input[1]]
        values[each.output[0]] = first
    return {name: value.copy() for name, value in values.items()}


def content(value: Any) -> Any:
    return value.numpy() if isinstance(value, RemoteTensor) else value


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("models", [3, pytest.param(12, marks=pytest.mark.exhaustive)])
def test_what_callers_hold_is_theirs(core: hetero.Core, pool: str, models: int) -> None:
    core.register_plugin("OWN", OwnMemory)
    core.register_plugin("ISLAND", IslandPlugin)
    for seed in range(models):
        rng = random.Random(f"{pool} {seed}")
        proto, nodes = random_model(rng)
        model, device, pins = core.read_model(proto), pool, None
        if "," in pool or rng.random() < 0.5:
            device = f"HETERO:{pool},CPU" if pool in ("OPENCL", "CPU,ORT") else f"HETERO:{pool}"
            takes = {name: core.query_model(model, name) for name in pool.split(",")}
            pins = {each.name: rng.choice([name for name in takes if each.name in takes[name]]) for each in nodes}
        config = {"PERF_COUNT": True} if rng.random() < 0.2 and pool != "TEMPLATE" else {}
        request = core.compile_model(model, device, config, pins=pins).create_infer_request()
        held: list[list[Any]] = []  # value, expected content
        for _ in range(8):
            feed: dict[str, Any] = {}
            for name in ("x", "z"):
                if held and rng.random() < 0.4:
                    feed[name] = rng.choice(held)[0]
                else:
                    feed[name] = np.float32([[rng.randint(-9, 9) for _ in range(4)] for _ in range(3)])
                    feed[name] = rng.choice([np.asarray, np.asfortranarray, lambda array: array[::-1]])(feed[name])
                    held.append([feed[name], feed[name].copy()])
            wanted = expected_results(nodes, *(content(feed[name]).copy() for name in ("x", "z")))
            out = {
                name: rng.choice([None, hetero.ON_DEVICE, np.empty((3, 4), np.float32)]) for name in request._positions
            }
            fed = set(map(id, feed.values()))
            tensors = [entry for entry in held if isinstance(entry[0], RemoteTensor) and id(entry[0]) not in fed]
            if tensors and rng.random() < 0.5:
                entry = rng.choice(tensors)
                held = [other for other in held if other[0] is not entry[0]]
                out[rng.choice(list(out))] = entry[0]
            outputs = request.infer(feed, out=rng.choice([out, out, hetero.ON_DEVICE, None]))
            held += [[value, wanted[name]] for name, value in outputs.items()]
            changed = rng.choice(held)
            if isinstance(changed[0], RemoteTensor):
                changed[0].write(CONSTANT * -50)
            else:
                changed[0][...] = CONSTANT * -50
            for entry in held:
                if entry[0] is changed[0]:
                    entry[1] = CONSTANT * -50
            for value, kept in held:
                np.testing.assert_array_equal(content(value), kept, err_msg=f"{device} {seed}")
