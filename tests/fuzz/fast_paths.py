"""Near misses of kernels and plans of `CPU` that apply to some sizes only: strided 1x1 convolutions, pools by rows,
depthwise convolutions of integers, requantization, dense blocks, NonMaxSuppression, products with matrices that a
Gather selects, and products and convolutions that are large enough for tiles.

Sizes lie at and beside the widths of vectors and blocks, elements that must not matter are NaN or extreme, sums lie on
halves, boxes overlap by exactly the threshold, and each condition of a rewrite is sometimes broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.differential import SATURATES, Case, Known

__all__ = ["KNOWN", "case"]

Array = np.ndarray[Any, Any]
Dim = int | str
EDGES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 34, 63, 64, 65, 66)
"""Sizes at and beside those of vectors and blocks."""
SIDES = (31, 32, 33, 47, 64, 65, 97, 128, 160, 193, 224, 330)
"""Sizes around multiples of a group of tiles (tiled_product.c). Only some products of these sizes run on tiles."""
SIZES = {"N": (0, 1, 2, 3, 9), "W": EDGES, "R": SIDES}  # of the dimensions that change from call to call


class Net:
    """A model of a few nodes, and the inputs of its calls."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.calls = int(rng.integers(1, 5))
        self.sizes = [{name: self.pick(*sizes) for name, sizes in SIZES.items()} for _ in range(self.calls)]
        self.feeds: list[dict[str, Array]] = [{} for _ in range(self.calls)]
        self.ports: list[onnx.ValueInfoProto] = []
        self.constants: dict[str, Array] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.outputs: list[str] = []
        self.judges: tuple[str, ...] = ("TEMPLATE", "onnxruntime")
        self.opset = 21
        self.states_shapes = True

    def often(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def normal(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def integers(self, dtype: str, shape: Sequence[int], low: int | None = None, high: int | None = None) -> Array:
        limits = np.iinfo(dtype)
        low, high = limits.min if low is None else low, limits.max if high is None else high
        return self.rng.integers(low, high, tuple(shape), dtype, endpoint=True)

    def input(self, dtype: Any, dims: Sequence[Dim], make: Callable[[tuple[int, ...]], Array]) -> str:
        """An input; ``make`` makes the array of a call from its shape."""
        name = f"x{len(self.ports)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.ports.append(helper.make_tensor_value_info(name, kind, list(dims)))
        for sizes, feeds in zip(self.sizes, self.feeds, strict=True):
            feeds[name] = make(tuple(sizes[dim] if isinstance(dim, str) else dim for dim in dims)).astype(dtype)
        return name

    def constant(self, array: Any, likely: float = 1.0) -> str:
        """A constant, or an input that has this array in every call."""
        array = np.asarray(array)
        if not self.often(likely):
            return self.input(array.dtype, array.shape, lambda _: array.copy())
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, is_output: float = 0.15, **attributes: Any) -> str:
        """A node, whose first result may be an output of the model."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        if self.often(is_output):
            self.outputs.append(names[0])
        return names[0]

    def case(self, note: str, end: str, tolerance: float, properties: dict[str, Any] | None = None) -> Case:
        outputs = list(dict.fromkeys([*self.outputs, end]))
        if self.often(0.3):
            outputs.reverse()
        graph = helper.make_graph(
            self.nodes,
            "fast_path",
            self.ports,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        model = onnx.shape_inference.infer_shapes(model)
        if not self.states_shapes:
            for output in model.graph.output:
                output.type.tensor_type.ClearField("shape")
        manner = self.pick("in turn", "in turn", "asynchronous", "threads")
        return Case(model, self.feeds, note, tolerance, self.judges, properties or {}, manner)


# ---- kernels


def strided_convolution(net: Net) -> Case:
    """A convolution of one tap whose strides leave out elements; these are NaN or infinite."""
    rank = net.pick(1, 2, 2, 2, 3)
    channels, maps = net.pick(1, 2, 3, 16, 33, 130), net.pick(1, 3, 8, 16, 17, 80)
    strides = [net.pick(1, 2, 2, 3, 4, 23) for _ in range(rank)]
    kernel = [1] * rank
    if net.often(0.1):
        kernel[net.pick(*range(rank))] = 2
    pads = [0] * (2 * rank)
    if net.often(0.2):
        pads[net.pick(*range(2 * rank))] = net.pick(1, 2)
    image: list[Dim] = [net.pick(1, 2, 3, 5) for _ in range(rank - 1)] + [net.pick("W", *EDGES)]
    image = [dim if isinstance(dim, str) else max(dim, size) for dim, size in zip(image, kernel, strict=True)]
    if kernel[-1] == 2:
        image[-1] = net.pick(*EDGES[2:])

    def make(shape: tuple[int, ...]) -> Array:
        x = net.normal(*shape)
        if sum(pads) == 0 and max(kernel) == 1:
            read = np.zeros(shape[2:], bool)
            read[tuple(slice(None, None, stride) for stride in strides)] = True
            x[:, :, ~read] = net.pick(np.nan, np.inf, -1e38)
        return x

    x = net.input("float32", [net.pick(1, 2, "N"), channels, *image], make)
    group = channels if net.often(0.05) and maps % channels == 0 else 1
    operands = [x, net.constant(net.normal(maps, channels // group, *kernel), 0.9)]
    if net.often(0.5):
        operands.append(net.constant(net.normal(maps), 0.9))
    made = net.node("Conv", *operands, strides=strides, pads=pads, group=group)
    if net.often(0.3):
        made = net.node("Add", made, net.constant(net.normal(maps, *[1] * rank)))
    if net.often(0.5):
        made = net.node(net.pick("Relu", "Sigmoid", "HardSwish"), made)
    return net.case(f"strided 1x1, strides {strides}", made, 1e-4)


def pool(net: Net) -> Case:
    """Pools whose rows have about two vectors."""
    rank = net.pick(1, 2, 2, 2, 3)
    op = net.pick("MaxPool", "AveragePool")
    kernel = [net.pick(1, 2, 3) for _ in range(rank - 1)] + [net.pick(2, 2, 3, 3, 4)]
    strides = [net.pick(1, 2, 3) for _ in range(rank - 1)] + [net.pick(1, 2, 2, 3)]
    pads = [net.pick(0, 0, min(1, k - 1), k - 1) for k in kernel * 2]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if net.often(0.1):
        attributes["dilations"] = [1] * (rank - 1) + [2]
    if net.often(0.2):
        attributes["ceil_mode"] = 1
        net.states_shapes = False  # inference counts a last window that begins in the padding
        attributes["pads"] = pads = [0] * (2 * rank)
        net.judges = ("TEMPLATE",) if op == "AveragePool" else net.judges
    if op == "AveragePool" and net.often(0.5):
        attributes["count_include_pad"] = 1
    spans = [2 * k for k in kernel]
    image: list[Dim] = [max(net.pick(1, 2, 3, 5), span) for span in spans[:-1]]
    image.append(max(spans[-1], net.pick(*EDGES) * strides[-1] + net.pick(-1, 0, 1, 2)))
    limits = net.pick((), (), (), (np.inf, -np.inf), (np.nan,)) if op == "MaxPool" else net.pick((), (), (np.inf,))
    if any(map(np.isnan, limits)):
        net.judges = ("TEMPLATE",)

    def make(shape: tuple[int, ...]) -> Array:
        x = net.normal(*shape)
        if limits:
            at = net.rng.random(shape) < 0.05
            x[at] = net.rng.choice(np.array(limits, np.float32), int(at.sum()))
        return x

    dtype = net.pick("float32", "float32", "float32", "float64")
    x = net.input(dtype, [net.pick(1, 2, "N"), net.pick(1, 3, 7, 8, 9, 16, 17, 33), *image], make)
    return net.case(f"{op} {kernel} strides {strides}", net.node(op, x, **attributes), 1e-5)


def _byte_convolution(net: Net, group: int, per_group: int, maps: int, kernel: list[int], image: list[int]) -> Case:
    rank = len(kernel)
    strides = [net.pick(1, 1, 2, 3) for _ in range(rank)]
    dilations = [net.pick(1, 1, 1, 2) for _ in range(rank)]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [net.pick(0, 0, 1, span - 1, span) for span in spans * 2]
    # ``image`` is the size of the result.
    sizes = [
        max(1, (out - 1) * stride + span - pads[axis] - pads[axis + rank])
        for axis, (out, stride, span) in enumerate(zip(image, strides, spans, strict=True))
    ]
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": group}
    x_type, w_type = net.pick("int8", "uint8"), net.pick("int8", "uint8", "uint8")
    is_small = net.often(0.4)  # sums are small, so many lie on halves
    x_zero = net.integers(x_type, ()) if net.often(0.5) else np.array(0, x_type)
    w_zero = net.integers(w_type, ()) if w_type == "uint8" else np.array(0, w_type)
    limits = (0, 2) if is_small else (None, None)
    shape = [net.pick(1, 2, "N"), group * per_group, *sizes]
    x = net.input(x_type, shape, lambda shape: net.integers(x_type, shape, *limits))
    w = net.constant(net.integers(w_type, (maps, per_group, *kernel), *limits), 0.85)
    if is_small and net.often(0.5):
        x_zero, w_zero = np.array(1, x_type), np.array(w_type == "uint8", w_type)
    zeros = [net.constant(x_zero), net.constant(w_zero)]
    note = f"{group} groups of {per_group}, {maps} maps, kernel {kernel}, out {image}"
    if net.often(0.3):
        return net.case(f"ConvInteger, {note}", net.node("ConvInteger", x, w, *zeros, **attributes), 0.0)
    scales = [net.constant(np.float32(2.0) ** net.pick(*exponents)) for exponents in ((-3, -1, 0), (-3, -1), (0, 1))]
    if net.often(0.3):
        scales[1] = net.constant(np.exp2(net.rng.integers(-4, 0, maps)).astype(np.float32))
        net.judges = ("TEMPLATE",)
    if net.often(0.06):
        scales[2] = net.constant(np.float32(net.pick(1e-38, 1e38, 1e-30)))
        net.judges = ("TEMPLATE",)
    y_zero = net.constant(net.integers(x_type, ()) if net.often(0.7) else np.array(np.iinfo(x_type).max, x_type))
    operands = [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], y_zero]
    if net.often(0.5):
        operands.append(net.constant(net.integers("int32", (maps,), -500, 500)))
    return net.case(f"QLinearConv, {note}", net.node("QLinearConv", *operands, **attributes), 0.0)


def depthwise_integer(net: Net) -> Case:
    """Depthwise convolutions of integers, with few channels and few outputs in a row."""
    channels = net.pick(1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 97, 129)
    rank = net.pick(1, 2, 2, 2)
    kernel = [net.pick(1, 2, 3, 5) for _ in range(rank)]
    image = [net.pick(1, 2, 3, 4, 5, 9) for _ in range(rank - 1)] + [net.pick(1, 2, 3, 4, 5, 7, 23, 24, 25)]
    per_group = 1 if net.often(0.95) else 2
    return _byte_convolution(net, channels, per_group, channels * net.pick(1, 1, 1, 2, 3), kernel, image)


def requantized(net: Net) -> Case:
    """Integer convolutions and products whose results are bytes, in rows of about one or two blocks."""
    if net.often(0.5):
        rank = net.pick(1, 2)
        kernel = [1] * rank if net.often(0.6) else [net.pick(1, 3) for _ in range(rank)]
        group = net.pick(1, 1, 1, 2)
        image = [net.pick(1, 2, 3) for _ in range(rank - 1)] + [net.pick(*EDGES)]
        return _byte_convolution(
            net, group, net.pick(1, 3, 4, 8, 33), group * net.pick(1, 4, 15, 16, 17, 33), kernel, image
        )
    rows, inner, columns = net.pick("N", 1, 2, 5, 17), net.pick(1, 2, 4, 5, 33), net.pick(*EDGES)
    a_type, b_type = net.pick("int8", "uint8"), net.pick("int8", "uint8")
    if (a_type, b_type) == ("int8", "uint8"):
        net.judges = ("TEMPLATE",)
    limits = (0, 2) if net.often(0.4) else (None, None)
    a = net.input(a_type, [rows, inner], lambda shape: net.integers(a_type, shape, *limits))
    b = net.constant(net.integers(b_type, (inner, columns), *limits), 0.8)
    scales = [net.constant(np.float32(2.0) ** net.pick(*exponents)) for exponents in ((-3, -1, 0), (-3, -1), (0, 1))]
    zeros = [net.constant(net.integers(kind, ())) for kind in (a_type, b_type, a_type)]
    operands = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
    return net.case("QLinearMatMul", net.node("QLinearMatMul", *operands), 0.0)


# ---- plans


def dense_block(net: Net) -> Case:
    """Layers that each append their result to all earlier ones, by concatenations that begin alike, or nearly."""
    dtype = net.pick("float32", "float32", "int64", "uint8")
    axis = net.pick(0, 0, 1, 1, 1, 2)
    width: Dim = net.pick("W", "N", 1, 4, 16, 17)
    lead: list[Dim] = [1] * axis
    if axis and net.often(0.15):
        lead[net.pick(*range(axis))] = net.pick(2, "N")
    tail: list[Dim] = [width] if net.often(0.7) else [net.pick(1, 3), width]

    def make(shape: tuple[int, ...]) -> Array:
        return net.normal(*shape) if dtype == "float32" else net.integers(dtype, shape, 0, 9)

    def fresh() -> str:
        return net.input(dtype, [*lead, net.pick(1, 2, 16), *tail], make)

    def layer(value: str) -> str:
        way = net.pick("unary", "unary", "binary", "slice", "reduce", "identity")
        if way == "unary":
            return net.node(
                {"float32": net.pick("Relu", "Sin", "Neg"), "int64": net.pick("Neg", "Abs")}.get(dtype, "Abs"), value
            )
        if way == "binary":
            return net.node("Add", value, net.pick(value, net.constant(np.array(3, dtype))))
        if way == "slice":
            begin = net.pick(0, 0, 1, -1)
            ends = net.constant(np.array([2**40]))
            return net.node("Slice", value, net.constant(np.array([begin])), ends, net.constant(np.array([axis])))
        if way == "reduce":
            return net.node("ReduceMax", value, net.constant(np.array([axis])), keepdims=1)
        return net.node("Identity", value)

    values = [net.node(net.pick("Abs", "Identity"), fresh()) if net.often(0.8) else fresh()]
    joined = values[0]
    for _ in range(int(net.rng.integers(2, 6))):
        values.append(layer(joined if net.often(0.8) else net.pick(*values)))
        operands = list(values)
        if net.often(0.25):
            match net.pick("swap", "again", "constant", "joined", "some", "input"):
                case "swap":
                    net.rng.shuffle(operands)
                case "again":
                    operands.insert(net.pick(*range(len(operands))), net.pick(*operands))
                case "joined":
                    operands = [joined, values[-1]]
                case "some":
                    operands = operands[: net.pick(1, 2, 3)]
                case "input":
                    operands.append(fresh())
                case "constant" if not any(isinstance(dim, str) for dim in (*lead, *tail)):
                    sizes = [int(dim) for dim in (*lead, 2, *tail)]
                    operands.insert(net.pick(*range(len(operands) + 1)), net.constant(make(tuple(sizes)).astype(dtype)))
        joined = net.node("Concat", *operands, axis=axis)
        if net.often(0.2):
            values[net.pick(*range(len(values)))] = net.node("Neg" if dtype != "uint8" else "Abs", net.pick(*values))
    return net.case(f"dense block, {dtype}, axis {axis}", layer(joined) if net.often(0.5) else joined, 1e-5)


def boxes(net: Net) -> Case:
    """Boxes with integer corners, which overlap by exactly the threshold, and equal scores."""
    count: Dim = net.pick(0, 1, 2, 4, 5, 8, 9, 16, 17, 33, 40, "W")
    batches, classes = net.pick(1, 1, 2, "N"), net.pick(1, 1, 3)
    center = net.pick(0, 0, 1)

    def corners(shape: tuple[int, ...]) -> Array:
        made = net.rng.integers(0, 5, shape).astype(np.float32)
        if center:
            made[..., 2:] = net.rng.integers(net.pick(0, 1), 5, (*shape[:-1], 2))
        return made * np.float32(net.pick(1, 1, 0.5, -1))

    x = net.input("float32", [batches, count, 4], corners)
    scores = net.input(
        "float32", [batches, classes, count], lambda shape: net.rng.integers(0, net.pick(2, 20, 1000), shape)
    )
    operands = [x, scores, net.constant(np.array([net.pick(0, 1, 3, 100, 2**40)]), 0.7)]
    thresholds = (0.0, 0.5, np.float32(1 / 3), 0.25, 1.0, np.float32(1 / 7), 0.2)
    if net.often(0.85):
        operands.append(net.constant(np.array([net.pick(*thresholds)], np.float32), 0.7))
        if net.often(0.5):
            operands.append(net.constant(np.array([net.pick(-1.0, 0.0, 1.0, 5.0, np.inf, -np.inf)], np.float32), 0.7))
    made = net.node("NonMaxSuppression", *operands, center_point_box=center)
    if net.often(0.3):
        made = net.node("Gather", made, net.constant(np.array([2])), axis=1)
    return net.case("NonMaxSuppression", made, 0.0)


def experts(net: Net) -> Case:
    """A product with matrices that a Gather selects, in which a condition may be broken."""
    dtype = "float64" if net.often(0.05) else "float32"
    count, inner, columns = net.pick(1, 2, 5, 9), net.pick(1, 2, 8, 33), net.pick(1, 1, 2, 15, 16, 17, 40)
    is_turned = net.often(0.4)
    shape = (count, columns, inner) if is_turned else (count, inner, columns)
    axis = 0 if net.often(0.93) else 1
    weights = net.constant(net.normal(*shape).astype(dtype), 0.93)
    dims: list[Dim] = net.pick([], [1], [2], ["N"], [2, 3], [1, "N"], ["N", 2])
    beyond = net.often(0.1)  # an index that is out of range, which fails

    def select(shape: tuple[int, ...]) -> Array:
        made = net.integers("int64", shape, -count if axis == 0 else 0, count - 1 if axis == 0 else 0)
        if beyond and made.size and net.often(0.5):
            made.flat[net.pick(*range(made.size))] = net.pick(count, -count - 1, 2**40)
        return made

    indices = (
        net.input(net.pick("int64", "int64", "int32"), dims, select) if not beyond else net.input("int64", dims, select)
    )
    gathered = net.node("Gather", weights, indices, axis=axis, is_output=0.04)
    rank = len(dims) + 2
    if is_turned and axis == 0:
        order = [*range(rank - 2), rank - 1, rank - 2]
        if net.often(0.05) and rank > 2:
            order = [1, 0, *range(2, rank)] if rank > 3 else list(range(rank))
        gathered = net.node("Transpose", gathered, perm=order, is_output=0.04)
    if net.often(0.1) and rank > 2:
        gathered = net.node("Unsqueeze", gathered, net.constant(np.array([0])), is_output=0.04)
    lead: list[Dim] = list(dims) if net.often(0.6) else net.pick([], [1])
    if net.often(0.3):  # a vector on the right
        vector: list[Dim] = net.pick([columns], [columns, 1], [*lead, columns, 1])
        x = net.input(dtype, vector, lambda shape: net.normal(*shape))
        made = net.node("MatMul", gathered, x)
    else:
        rows = net.pick(1, 1, 2, 5, "N")
        x = net.input(dtype, net.pick([*lead, rows, inner], [rows, inner], [inner]), lambda shape: net.normal(*shape))
        made = net.node("MatMul", x, gathered)
    if net.often(0.1):
        made = net.node("Mul", made, net.node("ReduceSum", gathered, keepdims=0))
    if net.often(0.3):
        made = net.node("Relu", made)
    if net.often(0.3):
        made = net.node("Add", made, net.constant(net.normal(1).astype(dtype)))
    return net.case(f"experts, {shape}, indices {dims}", made, 1e-4)


def tiled(net: Net) -> Case:
    """Products and convolutions of many terms, beside numbers that the parts of bfloat16 cannot hold: in single
    elements, or because the whole operand is tiny or huge and the other one makes up for it."""
    kind = net.pick("MatMul", "MatMul", "Gemm", "Conv", "Conv")
    scale = 2.0 ** net.pick(0, 0, 0, -39, -41, -60, -110, 49, 51)
    specials = (np.nan, np.inf, -np.inf, 2.0**51, -(2.0**60), 1e-42)

    def make(factor: float, special: float) -> Callable[[tuple[int, ...]], Array]:
        def array(shape: tuple[int, ...]) -> Array:
            x = net.normal(*shape) * np.float32(factor)
            if x.size and net.often(special):
                x.flat[net.rng.integers(0, x.size, net.pick(1, 1, 3))] = net.pick(*specials)
            return x

        return array

    left, right = make(scale, 0.4), make(min(1 / scale, 2.0**60), 0.25 if kind != "Conv" else 0)
    terms, columns = net.pick(*SIDES, 257, 1000), net.pick(*SIDES, 530)
    if kind == "Conv":
        size, stride, pad = net.pick((1, 1, 0), (1, 2, 0), (3, 2, 1), (5, 1, 2), (3, 1, 1))
        terms = max(1, terms // size**2)
        x = net.input("float32", [net.pick(1, 2), terms, net.pick(9, 17), net.pick(20, 33, 47)], left)
        operands = [x, net.constant(right((columns, terms, size, size)), 0.9)]
        if net.often(0.4):
            operands.append(net.constant(net.normal(columns), 0.9))
        made = net.node("Conv", *operands, strides=[stride] * 2, pads=[pad] * 4)
        bias: tuple[int, ...] = (columns, 1, 1)
    elif kind == "Gemm":
        turned = net.pick(0, 1), net.pick(0, 1)
        x = net.input("float32", [terms, net.pick(*SIDES)] if turned[0] else ["R", terms], left)
        w = net.constant(right((columns, terms) if turned[1] else (terms, columns)), 0.7)
        added = [net.constant(net.normal(columns), 0.7)] if net.often(0.5) else []
        alpha, beta = net.pick(1.0, 1.0, 0.5), net.pick(1.0, 1.0, -2.0)
        made = net.node("Gemm", x, w, *added, transA=turned[0], transB=turned[1], alpha=alpha, beta=beta)
        bias = (columns,)
    else:
        lead: list[Dim] = net.pick([], [], [1], [3])
        x = net.input("float32", [*lead, "R", terms], left)
        batch = net.pick((), (), tuple(lead))
        w = net.constant(right((*batch, terms, columns)), 0.7)
        made = net.node("MatMul", x, w)
        bias = (columns,)
    if net.often(0.3):
        made = net.node("Add", made, net.constant(net.normal(*bias)))
    if net.often(0.3):
        made = net.node("Add", made, net.node("Tanh", made, is_output=0.05))
    if net.often(0.4):
        made = net.node(net.pick("Relu", "LeakyRelu"), made)
    return net.case(f"tiled {kind}, {terms} terms, {columns} columns, scale {scale:g}", made, 1e-4)


RULES: dict[Callable[[Net], Case], float] = {
    strided_convolution: 3, pool: 3, depthwise_integer: 3, requantized: 3, dense_block: 3, boxes: 2, experts: 3,
    tiled: 4,
}  # fmt: skip
"""How often each is drawn."""

KNOWN = (
    Known(
        "onnxruntime",
        "its MaxPool of windows that hold only -inf is the lowest finite number",
        lambda case: case.has("MaxPool") and case.is_extreme,
    ),
    SATURATES,
)


def case(rng: np.random.Generator) -> Case:
    weights = np.array(list(RULES.values()))
    return list(RULES)[int(rng.choice(len(RULES), p=weights / weights.sum()))](Net(rng))
