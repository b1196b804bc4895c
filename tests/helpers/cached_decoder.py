"""A small decoder with a cache, of plain ONNX operators with the names that Optimum's exporter writes, with random
weights, and a generating loop that passes the cache through arrays of the caller.

    python tests/helpers/cached_decoder.py decoder.onnx
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["VOCABULARY", "cached_decoder", "empty_cache", "host_loop"]

Array = np.ndarray[Any, Any]
VOCABULARY = 40


def cached_decoder(
    layers: int = 2, hidden: int = 32, heads: int = 4, vocabulary: int = VOCABULARY, positions: int = 64
) -> onnx.ModelProto:
    """input_ids [batch, steps] and past_key_values.N.key and .value [batch, heads, past, size]; returns logits
    [batch, steps, vocabulary] and present.N.key and .value [batch, heads, past + steps, size]."""
    random = np.random.default_rng(0)
    size = hidden // heads
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {}

    def constant(name: str, array: Any) -> str:
        constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def weight(name: str, *shape: int) -> str:
        return constant(name, (random.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32))

    def add(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def tensor(name: str, kind: int, *shape: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, list(shape))

    caches = [f"{at}.{part}" for at in range(layers) for part in ("key", "value")]
    for name, value in (("zero", 0), ("one", 1), ("two", 2)):
        constant(name, np.int64(value))
    constant("rows", np.array([-1, 1], np.int64))
    constant("split", np.array([0, 0, heads, size], np.int64))
    constant("joined", np.array([0, 0, hidden], np.int64))
    constant("scale", np.float32(size**-0.5))
    constant("low", np.float32(-1e9))
    constant("nothing", np.float32(0))
    add("Shape", ["input_ids"], "ids.shape")
    add("Shape", ["past_key_values.0.key"], "past.shape")
    add("Gather", ["ids.shape", "one"], "steps")
    add("Gather", ["past.shape", "two"], "past")
    add("Add", ["past", "steps"], "total")
    add("Range", ["past", "total", "one"], "position")
    add("Range", ["zero", "total", "one"], "column")
    add("Reshape", ["position", "rows"], "row")
    add("LessOrEqual", ["column", "row"], "sees")
    add("Where", ["sees", "nothing", "low"], "mask")
    add("Gather", [weight("tokens", vocabulary, hidden), "input_ids"], "token")
    add("Gather", [weight("places", positions, hidden), "position"], "place")
    x = add("Add", ["token", "place"], "embedded")
    for at in range(layers):
        p = f"{at}."
        for part in ("query", "key", "value"):
            add("MatMul", [x, weight(f"{p}{part}.w", hidden, hidden)], f"{p}{part}.flat")
            add("Reshape", [f"{p}{part}.flat", "split"], f"{p}{part}.heads")
            add("Transpose", [f"{p}{part}.heads"], f"{p}{part}.new", perm=[0, 2, 1, 3])
        for part in ("key", "value"):
            add("Concat", [f"past_key_values.{p}{part}", f"{p}{part}.new"], f"present.{p}{part}", axis=2)
        add("Transpose", [f"present.{p}key"], f"{p}turned", perm=[0, 1, 3, 2])
        add("MatMul", [f"{p}query.new", f"{p}turned"], f"{p}scores")
        add("Mul", [f"{p}scores", "scale"], f"{p}scaled")
        add("Add", [f"{p}scaled", "mask"], f"{p}masked")
        add("Softmax", [f"{p}masked"], f"{p}shares", axis=-1)
        add("MatMul", [f"{p}shares", f"present.{p}value"], f"{p}mixed")
        add("Transpose", [f"{p}mixed"], f"{p}back", perm=[0, 2, 1, 3])
        add("Reshape", [f"{p}back", "joined"], f"{p}flat")
        add("MatMul", [f"{p}flat", weight(f"{p}out.w", hidden, hidden)], f"{p}out")
        x = add("Add", [x, f"{p}out"], f"{p}attended")
        add("MatMul", [x, weight(f"{p}up.w", hidden, 4 * hidden)], f"{p}up")
        add("Relu", [f"{p}up"], f"{p}inner")
        add("MatMul", [f"{p}inner", weight(f"{p}down.w", 4 * hidden, hidden)], f"{p}down")
        x = add("Add", [x, f"{p}down"], f"{p}done")
    add("MatMul", [x, weight("head", hidden, vocabulary)], "logits")
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            tensor("input_ids", TensorProto.INT64, "batch", "steps"),
            *(tensor(f"past_key_values.{name}", TensorProto.FLOAT, "batch", heads, "past", size) for name in caches),
        ],
        [
            tensor("logits", TensorProto.FLOAT, "batch", "steps", vocabulary),
            *(tensor(f"present.{name}", TensorProto.FLOAT, "batch", heads, "past + steps", size) for name in caches),
        ],
        list(constants.values()),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def empty_cache(model: onnx.ModelProto, batch: int = 1, past: int = 0) -> dict[str, Array]:
    """Input name -> zeros."""
    cache = {}
    for port in model.graph.input[1:]:
        sizes = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        cache[port.name] = np.zeros((batch, sizes[1], past, sizes[3]), np.float32)
    return cache


def host_loop(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]], cache: Mapping[str, Array], tokens: list[Array]
) -> tuple[list[Array], dict[str, Array]]:
    """The logits after each of ``tokens``, and the last cache, which the caller passes on."""
    logits, state = [], dict(cache)
    for ids in tokens:
        outputs = run({"input_ids": ids, **state})
        logits.append(outputs["logits"])
        state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
    return logits, state


if __name__ == "__main__":
    onnx.save(cached_decoder(), sys.argv[1])
