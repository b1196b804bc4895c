"""Pieces of real models: a few connected nodes with their attributes and constants, in other sizes and element types.

A piece keeps what exporters write, such as the order of nodes, reshapes of heads, folded constants and shared operands,
which random graphs rarely have. All sizes of a piece are changed by one multiplicative function, so that the sizes of
products, reshapes and groups still agree. Some pieces also get other element types, attributes, operator sets, readers
and outputs. onnxruntime decides whether the changed piece is a valid model.

The models are those of `demo` and, if `tools/fetch_models.py` has downloaded them, real ones. HETERO_FUZZ_MODELS names
another folder with models.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from fuzz.differential import Case, Known
from hetero.demo import light_model_path
from model_zoo import LIGHT_MODELS

__all__ = ["KNOWN", "case"]

MOST_ELEMENTS = 1 << 15
"""Of an input or a constant of a piece: TEMPLATE takes seconds for large convolutions."""
MOST_NODES = 12
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
SHAPES = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Resize": 3}
"""Operators with an operand that is a shape, and its position."""
UNARY = ("Relu", "Neg", "Identity", "Sigmoid", "Abs", "Tanh")


@functools.cache
def sources() -> tuple[Path, ...]:
    """Files of models. Weights that their files lack are random."""
    folder = os.environ.get("HETERO_FUZZ_MODELS")
    if folder:
        return tuple(sorted(Path(folder).rglob("*.onnx")))
    return tuple(light_model_path(name) for name in LIGHT_MODELS)


class Source:
    """A model with the type of each value."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path)
        for value in model.graph.input:
            for at, dim in enumerate(value.type.tensor_type.shape.dim):
                if not dim.HasField("dim_value"):
                    dim.dim_value = 1 if at == 0 else 8
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        graph = model.graph
        self.opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=17)
        self.domains = [entry for entry in model.opset_import if entry.domain not in ("", "ai.onnx")]
        self.nodes = [
            node for node in graph.node if not any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)
        ]
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        self.types: dict[str, tuple[int, tuple[int, ...]]] = {}
        for value in (*graph.value_info, *graph.input, *graph.output):
            kind = value.type.tensor_type
            if kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim):
                self.types[value.name] = kind.elem_type, tuple(dim.dim_value for dim in kind.shape.dim)
        self.maker = {name: at for at, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for at, node in enumerate(self.nodes):
            for name in node.input:
                self.readers.setdefault(name, []).append(at)


@functools.cache
def source(number: int) -> Source:
    return Source(sources()[number])


class Piece:
    def __init__(self, rng: np.random.Generator, origin: Source) -> None:
        self.rng = rng
        self.origin = origin
        self.opset = origin.opset
        self.factors = {2: self.pick((1, 2, 2, 2)), 3: self.pick((1, 2, 3, 3, 5)), 5: self.pick((1, 3, 5))}
        self.factors |= {prime: self.pick((1, 2, 3, prime, prime)) for prime in PRIMES[3:]}
        self.keeps = self.chance(0.25)  # the sizes of the model
        self.floats = TensorProto.FLOAT if self.chance(0.75) else self.pick(FLOATS)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def size(self, size: int) -> int:
        """The size that stands for ``size``: multiplicative, so products of sizes remain products."""
        if self.keeps or size < 2:
            return size
        made, rest = 1, size
        for prime, factor in self.factors.items():
            while rest % prime == 0:
                made, rest = made * factor, rest // prime
        return made * (rest if rest == 1 else 1 + rest % 7)

    def element_type(self, code: int) -> int:
        return self.floats if code == TensorProto.FLOAT else code

    def chosen(self) -> list[int]:
        """A few connected nodes."""
        nodes = self.origin.nodes
        start = int(self.rng.integers(len(nodes)))
        chosen, most = {start}, int(self.rng.integers(1, MOST_NODES + 1))
        edge = [start]
        while edge and len(chosen) < most:
            at = edge.pop(int(self.rng.integers(len(edge))) if self.chance(0.3) else 0)
            near = [self.origin.maker[name] for name in nodes[at].input if name in self.origin.maker]
            for name in nodes[at].output:
                near += self.origin.readers.get(name, [])[:4]
            for other in near:
                if other not in chosen and len(chosen) < most and self.chance(0.8):
                    chosen.add(other)
                    edge.append(other)
        return sorted(chosen)

    def constant(self, tensor: onnx.TensorProto, is_shape: bool) -> onnx.TensorProto | None:
        array = numpy_helper.to_array(tensor)
        if is_shape:
            return numpy_helper.from_array(np.array([self.size(int(x)) for x in array.reshape(-1)]), tensor.name)
        shape = tuple(map(self.size, array.shape))
        if array.dtype.kind in "iub" and array.ndim < 2 and array.size < 9:
            shape = array.shape  # axes, bounds and the like
        if np.prod(shape, dtype=float) > MOST_ELEMENTS:
            return None
        flat = array.reshape(-1)
        flat = flat[: int(np.prod(shape))] if flat.size else flat
        made = np.resize(flat, shape).astype(array.dtype)
        if array.dtype == np.float32:
            if not made.any():  # weights that a file lacks
                made = self.rng.standard_normal(shape).astype(np.float32)
            made = made.astype(helper.tensor_dtype_to_np_dtype(self.floats))
        return numpy_helper.from_array(made, tensor.name)

    def node(self, node: onnx.NodeProto) -> onnx.NodeProto:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        for attribute in list(made.attribute):
            if attribute.name == "kernel_shape" and node.op_type in ("Conv", "ConvTranspose", "ConvInteger"):
                made.attribute.remove(attribute)
            elif attribute.name == "group" and not self.keeps:
                attribute.i = max(1, self.size(attribute.i))
            elif attribute.name == "to" and node.op_type == "Cast":
                attribute.i = self.element_type(attribute.i)
            elif attribute.name in ("num_heads", "hidden_size"):
                attribute.i = self.size(attribute.i)
            elif node.op_type == "Constant" and attribute.name == "value":
                changed = self.constant(attribute.t, False)
                if changed is not None:
                    attribute.t.CopyFrom(changed)
        return made

    def mutate(self, nodes: list[onnx.NodeProto]) -> None:
        """Change an attribute, an edge or a node."""
        node, kind = self.pick(nodes), self.pick(("attribute", "attribute", "read", "insert", "replace", "swap"))
        if kind == "attribute" and node.attribute:
            attribute = self.pick(node.attribute)
            if attribute.type == onnx.AttributeProto.INT:
                attribute.i += self.pick((-1, 1))
            elif attribute.type == onnx.AttributeProto.FLOAT:
                attribute.f = self.pick((0.0, 1.0, -attribute.f, 2 * attribute.f, 1e-3))
            elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
                at = int(self.rng.integers(len(attribute.ints)))
                if attribute.name == "perm":
                    other = int(self.rng.integers(len(attribute.ints)))
                    attribute.ints[at], attribute.ints[other] = attribute.ints[other], attribute.ints[at]
                else:
                    attribute.ints[at] = max(0, attribute.ints[at] + self.pick((-1, 1)))
        elif kind == "read":  # a value is read once more
            values = [name for other in nodes for name in (*other.input, *other.output) if name]
            if node.input:
                node.input[int(self.rng.integers(len(node.input)))] = self.pick(values)
        elif kind == "insert" and node.output:
            name = node.output[0]
            node.output[0] = f"{name}_before"
            nodes.insert(nodes.index(node) + 1, helper.make_node(self.pick(UNARY), [f"{name}_before"], [name]))
        elif kind == "replace" and len(node.output) == 1 and node.input and node.input[0]:
            made = helper.make_node(self.pick(UNARY), [node.input[0]], [node.output[0]])
            nodes[nodes.index(node)] = made
        elif kind == "swap" and len(node.input) >= 2:
            node.input[0], node.input[1] = node.input[1], node.input[0]

    def model(self) -> tuple[onnx.ModelProto, dict[str, tuple[int, tuple[int, ...]]]] | None:
        """A model, and the types of its inputs."""
        origin = self.origin
        nodes = [self.node(origin.nodes[at]) for at in self.chosen()]
        shapes = {
            node.input[SHAPES[node.op_type]]
            for node in nodes
            if node.op_type in SHAPES and len(node.input) > SHAPES[node.op_type]
        }
        for _ in range(self.pick((0, 0, 1, 1, 2, 3))):
            self.mutate(nodes)
        if self.chance(0.15):
            self.opset = int(self.rng.integers(11, 22))
        made = {name for node in nodes for name in node.output if name}
        inputs: dict[str, tuple[int, tuple[int, ...]]] = {}
        constants: dict[str, onnx.TensorProto] = {}
        for name in (name for node in nodes for name in node.input):
            if not name or name in made or name in inputs or name in constants:
                continue
            if name in origin.constants and not self.chance(0.04):
                tensor = onnx.TensorProto()
                tensor.CopyFrom(origin.constants[name])
                tensor.name = name
                changed = self.constant(tensor, name in shapes)
                if changed is None:
                    return None
                constants[name] = changed
                continue
            if name in origin.constants:  # a weight that is an input
                array = numpy_helper.to_array(origin.constants[name])
                kind: tuple[int, tuple[int, ...]] | None = origin.constants[name].data_type, array.shape
            else:
                kind = origin.types.get(name)
            if kind is None or kind[0] not in (*FLOATS, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL):
                return None
            shape = tuple(map(self.size, kind[1]))
            if np.prod(shape, dtype=float) > MOST_ELEMENTS:
                return None
            inputs[name] = self.element_type(kind[0]), shape
        read = {name for node in nodes for name in node.input}
        outputs = [name for node in nodes for name in node.output if name and (name not in read or self.chance(0.15))]
        if not outputs or not inputs or any(map(crashes_onnx, nodes)):
            return None
        symbolic = self.chance(0.5)
        ports = []
        for name, (code, shape) in inputs.items():
            dims: list[Any] = list(shape)
            if symbolic:
                dims = [f"{name}_{at}" for at in range(len(shape))]
            ports.append(helper.make_tensor_value_info(name, code, dims))
        graph = helper.make_graph(
            nodes,
            "piece",
            ports,
            [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
            list(constants.values()),
        )
        for port in graph.output:
            port.ClearField("type")
        opsets = [helper.make_opsetid("", self.opset), *self.origin.domains]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        try:
            model = onnx.shape_inference.infer_shapes(model)
            onnx.checker.check_model(model)
        except Exception:
            return None
        for port in model.graph.output:
            if port.type.WhichOneof("value") != "tensor_type":
                return None
            port.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
        return model, inputs

    def feeds(self, inputs: Mapping[str, tuple[int, tuple[int, ...]]], rows: int, grow: int) -> dict[str, np.ndarray]:
        """``rows``: factor of first axes; ``grow``: added to the last two of images."""
        feeds = {}
        for name, (code, shape) in inputs.items():
            if rows > 1 and len(shape) > 1:
                shape = (shape[0] * rows, *shape[1:])
            if len(shape) == 4:
                shape = (*shape[:2], *(max(1, size + grow) for size in shape[2:]))
            dtype = helper.tensor_dtype_to_np_dtype(code)
            if dtype.kind == "f":
                array = self.rng.standard_normal(shape)
                feeds[name] = (array if self.keeps else np.round(array * 8) / 8).astype(dtype)
            elif dtype.kind == "b":
                feeds[name] = self.rng.random(shape) < 0.5
            else:
                feeds[name] = self.rng.integers(0, 3, shape).astype(dtype)
        return feeds


def crashes_onnx(node: onnx.NodeProto) -> bool:
    """Whether shape inference would end the process."""
    counts = [attribute.i for attribute in node.attribute if attribute.name == "num_outputs"]
    return node.op_type == "Split" and counts != [] and counts[0] < len(node.output)


def runs(session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray]) -> bool:
    try:
        results = session.run(None, dict(feeds))
    except Exception:  # onnxruntime raises many classes of exceptions
        return False
    # Results near the limits of a type differ by the order of sums.
    return all(
        not isinstance(result, np.ndarray)
        or (bool(result.size) and (result.dtype.kind != "f" or bool((np.abs(result) < 1e4).all())))
        for result in results
    )


def case(rng: np.random.Generator) -> Case:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    number = int(rng.integers(len(sources())))
    while True:
        piece = Piece(rng, source(number))
        made = piece.model()
        if made is None:
            continue
        model, inputs = made
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception:
            continue
        settings = [(1, 0), (1, 0), (piece.pick((2, 3)), 0), (1, piece.pick((-1, 1, 2))), (2, 1)]
        calls = [piece.feeds(inputs, rows, grow) for rows, grow in settings]
        is_fixed = all(
            dim.HasField("dim_value") for port in model.graph.input for dim in port.type.tensor_type.shape.dim
        )
        calls = [feeds for feeds in (calls[:2] if is_fixed else calls) if runs(session, feeds)]
        if not calls:
            continue
        order = [piece.pick(calls) for _ in range(len(calls) + 1)]
        return Case(
            model,
            order,
            f"{sources()[number].name}, opset {piece.opset}",
            tolerance=1e-4,
            manner=piece.pick(("in turn", "in turn", "asynchronous", "threads")),
        )


def is_after(case: Case, difference: str, made: Iterable[str]) -> bool:
    """Whether the output that differs is computed from one of these values."""
    computed = set(made)
    for node in case.model.graph.node:
        if computed & set(node.input):
            computed |= set(node.output)
    told = re.search(r", output '([^']*)': ", difference)
    return told is not None and told[1] in computed


def to_the_largest(case: Case) -> list[str]:
    """Results of Slices whose end is the largest integer, in an axis with a negative step."""
    found = []
    for node in case.model.graph.node:
        if node.op_type == "Slice" and len(node.input) > 4:
            for ends, steps in zip(*(values_of(case, node.input[at]) for at in (2, 4)), strict=False):
                largest = (ends == np.iinfo(np.int32).max) | (ends == np.iinfo(ends.dtype).max)
                found += list(node.output) if largest.shape == steps.shape and (largest & (steps < 0)).any() else []
    return found


def values_of(case: Case, name: str) -> list[np.ndarray]:
    """A constant or an input, in each call."""
    constants = {tensor.name: tensor for tensor in case.model.graph.initializer}
    constants |= {
        node.output[0]: node.attribute[0].t
        for node in case.model.graph.node
        if node.op_type == "Constant" and node.attribute[0].name == "value"
    }
    if name in constants:
        return [numpy_helper.to_array(constants[name])] * len(case.calls)
    return [np.asarray(feeds[name]) for feeds in case.calls if name in feeds]


def masks(case: Case) -> list[str]:
    return [node.output[1] for node in case.model.graph.node if node.op_type == "Dropout" and len(node.output) > 1]


KNOWN = (
    Known(
        "onnxruntime",
        "its pools accept windows that do not fit, and return no elements",
        lambda case: any(case.has(name) for name in ("AveragePool", "MaxPool", "LpPool")),
        lambda case, difference: "only CPU fails" in difference and "does not fit" in difference,
    ),
    Known(
        "onnxruntime",
        "reductions accept an axis that is given twice, as TEMPLATE does",
        lambda case: case.has("ReduceMean") or case.has("ReduceSum"),
        lambda case, difference: "only CPU fails" in difference and "an axis occurs twice" in difference,
    ),
    Known(
        "onnxruntime",
        "before opset 12, ONNX does not define the mask of Dropout in inference; onnxruntime returns zeros",
        lambda case: bool(masks(case)) and case.model.opset_import[0].version < 12,
        lambda case, difference: is_after(case, difference, masks(case)),
    ),
    Known(
        "onnxruntime",
        "its Slice with a negative step begins at the other end if the end is the largest integer",
        lambda case: bool(to_the_largest(case)),
        lambda case, difference: is_after(case, difference, to_the_largest(case)),
    ),
)
