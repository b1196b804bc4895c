"""Random tree ensembles of ai.onnx.ml, and single-node models of that domain against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from hetero import Core

__all__ = ["ML", "ml_model", "on_cpu", "on_onnxruntime", "random_trees"]

ML = "ai.onnx.ml"
Array = np.ndarray[Any, Any]


def ml_model(op: str, x: Array, num_outputs: int = 1, opset: int = 3, **attributes: Any) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(num_outputs)]
    dims: list[Any] = ["n", *x.shape[1:]] if x.ndim > 1 else list(x.shape)
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], names, domain=ML, name="node", **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), dims)],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def with_open_columns(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without the number of columns of x."""
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "columns"
    return model


def on_cpu(model: onnx.ModelProto, *inputs: Array) -> list[list[Array]]:
    """The results for each input, of one compiled model."""
    core = Core()
    compiled = core.compile_model(core.read_model(model), "CPU")
    return [list(compiled({"x": x}).arrays()) for x in inputs]


def on_onnxruntime(model: onnx.ModelProto, *inputs: Array) -> list[list[Array]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the sums are then in the order of the trees
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [list(session.run(None, {"x": x})) for x in inputs]


def random_trees(
    rng: np.random.Generator,
    trees: int,
    depth: int,
    features: int,
    *,
    modes: tuple[str, ...] = ("BRANCH_LEQ",),
    tracks: bool = False,
    full: bool = False,
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Attributes of the nodes, and (tree, node) of each leaf. Thresholds are quarters, so that inputs of quarters meet
    ties. ``full``: every leaf is at ``depth``."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    leaves = []
    for tree in range(trees):
        rows = []
        pending, count = [(0, 0)], 1
        while pending:
            node, level = pending.pop(0)
            is_leaf = level == depth or (not full and rng.random() < 0.25)
            rows.append((node, is_leaf, (0, 0) if is_leaf else (count, count + 1)))
            if not is_leaf:
                pending += [(count, level + 1), (count + 1, level + 1)]
                count += 2
        ids = [0, *(1 + rng.permutation(count - 1)).tolist()]
        for node, is_leaf, kids in rows:
            value = 0.0 if is_leaf else float(rng.integers(-8, 9)) / 4
            row = (tree, ids[node], int(rng.integers(features)), value, "LEAF" if is_leaf else str(rng.choice(modes)),
                   *(ids[kid] for kid in kids))  # fmt: skip
            for name, entry in zip(names, row, strict=True):
                columns[name].append(entry)
            if is_leaf:
                leaves.append((tree, ids[node]))
    attributes = {f"nodes_{name}": values for name, values in columns.items()}
    if tracks:
        attributes["nodes_missing_value_tracks_true"] = rng.integers(0, 2, len(columns["values"])).tolist()
    return attributes, leaves
