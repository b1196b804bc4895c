"""Decoders like Llama with weights of 4 or 8 bits, as onnxruntime's model builder writes them, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["decoder", "decoder_inputs"]

Array = np.ndarray[Any, Any]
CONTRIB = "com.microsoft"


def decoder(
    layers: int = 2,
    hidden: int = 64,
    inner: int = 96,
    heads: int = 4,
    groups: int = 2,
    vocabulary: int = 50,
    positions: int = 256,
    bits: int = 4,
    level: int | None = None,
    block: int = 32,
    dequantized: bool = False,
) -> onnx.ModelProto:
    """input_ids [1, steps], attention_mask [1, past + steps], and a cache per layer; returns logits and new caches.

    ``level``: accuracy_level; None: not stated. ``dequantized``: DequantizeLinear and MatMul replace MatMulNBits."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {}
    size = hidden // heads

    def constant(name: str, array: Array) -> str:
        constants[name] = numpy_helper.from_array(array, name)
        return name

    def add(op: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], domain=domain, **attributes))
        return output

    def product(x: str, name: str, rows: int, columns: int) -> str:
        blocks = -(-rows // block)
        scales = (random.uniform(0.5, 1, (columns, blocks)) * rows**-0.5 / 2 ** (bits - 2)).astype(np.float32)
        if dequantized:
            levels = random.integers(0, 256, rows * columns // 2, np.uint8).tobytes()
            constants[f"{name}.w"] = helper.make_tensor(
                f"{name}.w", TensorProto.INT4, (rows, columns), levels, raw=True
            )
            constant(f"{name}.s", np.ascontiguousarray(scales.T))
            add("DequantizeLinear", [f"{name}.w", f"{name}.s"], f"{name}.d", axis=0, block_size=block)
            return add("MatMul", [x, f"{name}.d"], f"{name}.y")
        constant(f"{name}.w", random.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8))
        constant(f"{name}.s", scales)
        accuracy = {} if level is None else {"accuracy_level": level}
        return add("MatMulNBits", [x, f"{name}.w", f"{name}.s"], f"{name}.y", CONTRIB, K=rows, N=columns, bits=bits,
                   block_size=block, **accuracy)  # fmt: skip

    angles = np.arange(positions)[:, None] / 10000.0 ** (np.arange(size // 2) * 2 / size)
    constant("cos", np.cos(angles).astype(np.float32))
    constant("sin", np.sin(angles).astype(np.float32))
    constant("one", np.array([1], np.int64))
    constant("axis", np.array([1], np.int64))
    constant("embedding", random.standard_normal((vocabulary, hidden)).astype(np.float32))
    add("ReduceSum", ["attention_mask", "axis"], "count", keepdims=0)
    add("Sub", ["count", "one"], "last")
    add("Cast", ["last"], "ends", to=TensorProto.INT32)
    add("Shape", ["attention_mask"], "shape")
    add("Gather", ["shape", "one"], "length")
    add("Cast", ["length"], "total", to=TensorProto.INT32)
    x = add("Gather", ["embedding", "input_ids"], "embedded")
    y = ""
    infos, results = [], []
    for i in range(layers):
        norm, after = (constant(f"{i}.{name}", np.ones(hidden, np.float32)) for name in ("norm", "after"))
        if i == 0:
            nodes.append(helper.make_node("SimplifiedLayerNormalization", [x, norm], ["0.x"], axis=-1, epsilon=1e-5))
        else:
            nodes.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, y, norm],
                                          [f"{i}.x", "", "", f"{i}.sum"], domain=CONTRIB, epsilon=1e-5))  # fmt: skip
            x = f"{i}.sum"
        parts = [
            product(f"{i}.x", f"{i}.{name}", hidden, width)
            for name, width in (("q", hidden), ("k", groups * size), ("v", groups * size))
        ]
        caches = [f"past.{i}.key", f"past.{i}.value"]
        made = [f"present.{i}.key", f"present.{i}.value"]
        nodes.append(helper.make_node("GroupQueryAttention", [*parts, *caches, "ends", "total", "cos", "sin"],
                                      [f"{i}.attended", *made], domain=CONTRIB, num_heads=heads, kv_num_heads=groups,
                                      do_rotary=1))  # fmt: skip
        infos += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, groups, "past", size]) for name in caches]
        results += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, groups, "total", size]) for name in made]
        y = product(f"{i}.attended", f"{i}.o", hidden, hidden)
        nodes.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, y, after],
                                      [f"{i}.z", "", "", f"{i}.rest"], domain=CONTRIB, epsilon=1e-5))  # fmt: skip
        x = f"{i}.rest"
        gate, up = (product(f"{i}.z", f"{i}.{name}", hidden, inner) for name in ("gate", "up"))
        add("Sigmoid", [gate], f"{i}.sigmoid")
        add("Mul", [gate, f"{i}.sigmoid"], f"{i}.swish")
        add("Mul", [f"{i}.swish", up], f"{i}.inner")
        y = product(f"{i}.inner", f"{i}.down", inner, hidden)
    constant("norm", np.ones(hidden, np.float32))
    nodes.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, y, "norm"], ["last_hidden"], domain=CONTRIB,
                                  epsilon=1e-5))  # fmt: skip
    nodes[-1].output[0] = "last_hidden"
    logits = product("last_hidden", "head", hidden, vocabulary)
    results.insert(0, helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, "steps", vocabulary]))
    infos.insert(0, helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "steps"]))
    infos.insert(1, helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [1, "total"]))
    graph = helper.make_graph(nodes, "decoder", infos, results, list(constants.values()))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def decoder_inputs(model: onnx.ModelProto, steps: int, past: int) -> dict[str, Array]:
    random = np.random.default_rng(steps + past)
    sizes = {"steps": steps, "past": past, "total": steps + past}
    inputs: dict[str, Array] = {}
    for info in model.graph.input:
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in info.type.tensor_type.shape.dim]
        inputs[info.name] = random.standard_normal(shape).astype(np.float32)
    inputs["input_ids"] = random.integers(0, 50, (1, steps))
    inputs["attention_mask"] = np.ones((1, steps + past), np.int64)
    return inputs
