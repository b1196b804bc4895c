"""Near misses of the patterns that `CPU` rewrites: fused activations, normalizations, attention, products with what
follows them, runs of elementwise operators, copies of copies.

Each case is one pattern as an exporter writes it, in which any detail may be off: an axis, the shape of a constant,
whether it is constant at all, an operand that is read twice or is another value of the same shape, a step that is an
output or is read elsewhere (also in the body of an If), the element type, the opset, and sizes that change from call to
call. The rate of such errors is drawn per case, so most patterns are either intact or wrong in one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.differential import LOG_SOFTMAX, Case, Known

__all__ = ["case"]

Dim = int | str
EMPTY = (0, 1, 2, 5)
"""Sizes of N in one case of eight."""
SIZES = {"N": (1, 2, 5), "M": (1, 3, 24, 30), "L": (1, 2, 33)}  # of the dimensions that change from call to call
RESHAPES = ([-1], [1, -1], [-1, 1], [0, -1])
LIMITS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 4.0)
ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Clip", "Neg", "Abs", "Exp")


class Net:
    """A pattern as a sequence of nodes, each with one output, with occasional deviations."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.rate = float(rng.choice([0.0, 0.04, 0.12]))
        """How likely each place of the pattern is off."""
        self.leaks = float(rng.choice([0.0, 0.0, 0.06, 0.2]))
        """How likely each step is read elsewhere."""
        self.opset = int(rng.choice([11, 12, 13, 14, 17, 18, 20, 21, 22, 23]))
        self.dtype = np.dtype(rng.choice(["float32"] * 10 + ["float64"]))
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, tuple[np.dtype[Any], tuple[Dim, ...]]] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.defaults: set[str] = set()  # constants that are also inputs, as IR version 3 requires
        self.types: dict[str, np.dtype[Any]] = {}
        self.outputs: list[str] = []
        self.late: list[tuple[str, str]] = []
        self.shares = self.chance(0.2)
        """Whether nodes read each other's constants where these have the same shape."""
        self.extreme = self.chance(0.05)
        """Whether the inputs have infinities and NaN among their elements."""
        self.empties = self.chance(0.125)
        self.fixed: dict[str, np.ndarray] = {}  # inputs with the same array in every call
        self.limits: set[str] = set()  # inputs half of whose elements are `LIMITS`
        self.rank, self.width = 2, 4  # of the pattern's main value, for constants that are off
        self.num_elements = 0  # of the main value, at most; 0: few

    # -- choosing

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def off(self) -> bool:
        return self.chance(self.rate)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def dims(self, *dims: Dim) -> tuple[Dim, ...]:
        """``dims``, some of size 1 instead where something is off."""
        return tuple(1 if self.off() else dim for dim in dims)

    # -- values

    def normal(self, *shape: int) -> np.ndarray:
        return np.asarray(self.rng.standard_normal(shape), self.dtype)

    def input(self, *dims: Dim, dtype: Any = None) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (np.dtype(dtype or self.dtype), dims)
        self.types[name] = self.inputs[name][0]
        return name

    def constant(self, array: np.ndarray, plain: bool = False) -> str:
        """A constant: mostly an initializer; seldom one with a graph input, an input, or computed."""
        if not plain and self.off() and array.dtype.kind == "f":
            match self.pick(["default", "input", "computed"]):
                case "input":
                    return self.input(*array.shape, dtype=array.dtype)
                case "computed":
                    half = self.constant(array * np.asarray(0.5, array.dtype), plain=True)
                    return self.node("Add", half, half)
                case "default":
                    name = self.constant(array, plain=True)
                    self.defaults.add(name)
                    return name
        if self.shares and array.dtype.kind == "f" and self.chance(0.6):
            alike = [
                name
                for name, other in self.constants.items()
                if (other.dtype, other.shape) == (array.dtype, array.shape)
            ]
            if alike:
                return str(self.pick(alike))
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        self.types[name] = array.dtype
        return name

    def number(self, value: float) -> str:
        """One number, of a shape that adds no axes; or something else where it is off."""
        shape: tuple[int, ...] = self.pick([(), (), (1,), (1,) * self.rank])
        array = np.full(shape, value, self.dtype)
        if self.off() and abs(value) < 1e30:
            match self.pick(["rank", "rows", "row", "wrong", "nan", "column"]):
                case "rank":
                    array = np.full((1,) * (self.rank + 1), value, self.dtype)
                case "rows":
                    array = np.full((2,) + (1,) * self.rank, value, self.dtype)
                case "row":
                    array = np.full(self.width, value, self.dtype)
                case "column":
                    array = np.asarray(value * self.rng.uniform(0.5, 2, (self.width, 1)), self.dtype)
                case "wrong":
                    array = array * np.asarray(1.25, self.dtype)
                case "nan":
                    array = np.full(shape, np.nan, self.dtype)
        return self.constant(np.asarray(array, self.dtype))

    def same(self, value: str, ways: Sequence[str] = ("identity", "negated", "reshape", "transpose")) -> str:
        """The value itself; or the same elements by way of another node; or another value."""
        if not self.off():
            return value
        match self.pick(ways):
            case "identity":
                return self.node("Identity", value)
            case "negated":
                return self.node("Neg", value)
            case "reshape":
                # A flat value broadcasts with what it was made from to the square of its size.
                shape = self.pick([[0] * (self.rank - 1) + [-1], *(RESHAPES if self.num_elements < 4000 else ())])
                return self.node("Reshape", value, self.constant(np.array(shape, np.int64)))
            case _:
                return self.node("Transpose", value)

    # -- nodes

    def node(self, op_type: str, *inputs: str, dtype: Any = None, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        first = next((value for value in inputs if self.types[value] != np.bool_), inputs[0])
        self.types[name] = np.dtype(dtype or self.types[first])
        return name

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A step of the pattern, which may be read elsewhere."""
        operands = list(inputs)
        if op_type in ("Add", "Mul") and self.chance(0.5):
            operands.reverse()
        made = self.node(op_type, *operands, **attributes)
        if self.chance(self.leaks):
            self.leak(made, self.pick(["output", "output", "reader", "late reader", "body", "cut"]))
        return made

    def leak(self, value: str, way: str) -> None:
        if way == "output":
            self.outputs.append(value)
        elif way == "late reader":
            self.late.append((value, self.pick(["reader", "body", "cut"])))
        elif way == "reader":
            self.outputs.append(self.node("Not" if self.types[value] == np.bool_ else "Neg", value))
        elif way == "body":
            self.outputs.append(self.branch(value))
        else:  # by a shape that is known when the model runs, so the plan is cut here
            shape = self.input(1, dtype=np.int64)
            self.fixed[shape] = np.array([-1])
            self.outputs.append(self.node("Reshape", value, shape))

    def branch(self, value: str) -> str:
        """An If that reads the value within its branches."""
        condition = self.input(dtype=bool)
        graphs = []
        for name, op_type in (
            ("then_branch", "Identity"),
            ("else_branch", "Not" if self.types[value] == np.bool_ else "Neg"),
        ):
            end = f"{name}{len(self.nodes)}"
            made = helper.make_node(op_type, [value], [end])
            graphs.append(helper.make_graph([made], name, [], [self.port(end, self.types[value])]))
        return self.node("If", condition, dtype=self.types[value], then_branch=graphs[0], else_branch=graphs[1])

    def mean(self, value: str, axes: Sequence[int], keepdims: int = 1) -> str:
        if self.opset < 18:
            return self("ReduceMean", value, axes=list(axes), keepdims=keepdims)
        return self("ReduceMean", value, self.constant(np.array(axes, np.int64)), keepdims=keepdims)

    @staticmethod
    def port(name: str, dtype: np.dtype[Any], dims: Sequence[Dim] | None = None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), dims)

    # -- the case

    def case(self, note: str, end: str, tolerance: float) -> Case:
        for value, way in self.late:
            self.leak(value, way)
        outputs = list(dict.fromkeys([*self.outputs, end]))
        if self.chance(0.3):
            outputs.reverse()
        if self.chance(0.06) and all(self.types[name] == self.dtype for name in outputs):
            self.into_branch(outputs)
        elif self.chance(0.06):
            self.into_loop(outputs)
        elif self.chance(0.06):
            outputs.append(str(self.pick([*self.inputs, *self.constants])))
        ports = [self.port(name, *given) for name, given in self.inputs.items()]
        ports += [
            self.port(name, self.constants[name].dtype, self.constants[name].shape) for name in sorted(self.defaults)
        ]
        graph = helper.make_graph(
            self.nodes,
            "near_miss",
            ports,
            [self.port(name, self.types[name]) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        calls = [self.feeds() for _ in range(int(self.rng.integers(1, 6)))]
        return Case(model, calls, f"{note}, {self.dtype}, opset {self.opset}, rate {self.rate}", tolerance)

    def into_branch(self, outputs: list[str]) -> None:
        """The whole pattern becomes a branch of an If."""
        condition = self.input(dtype=bool)
        inner = [helper.make_node("Identity", [name], [f"{name}_then"]) for name in outputs]
        then = helper.make_graph(
            [*self.nodes, *inner], "then", [], [self.port(f"{name}_then", self.dtype) for name in outputs]
        )
        zero = numpy_helper.from_array(np.zeros((1, 1), self.dtype), "zero")
        others = [helper.make_node("Identity", ["zero"], [f"{name}_else"]) for name in outputs]
        ports = [self.port(f"{name}_else", self.dtype) for name in outputs]
        otherwise = helper.make_graph(others, "else", [], ports, [zero])
        ends = [f"{name}_end" for name in outputs]
        self.nodes = [helper.make_node("If", [condition], ends, then_branch=then, else_branch=otherwise)]
        self.types.update((end, self.dtype) for end in ends)
        outputs[:] = ends

    def into_loop(self, outputs: list[str]) -> None:
        """The whole pattern becomes the body of a Loop, whose trips are all alike."""
        port = self.port
        ports = [port("trip", np.dtype(np.int64), ()), port("go", np.dtype(bool), ())]
        ends = [helper.make_node("Identity", [name], [f"{name}_row"]) for name in ("go", *outputs)]
        rows = [port(f"{name}_row", self.types[name]) for name in outputs]
        body = helper.make_graph([*self.nodes, *ends], "body", ports, [port("go_row", np.dtype(bool), ()), *rows])
        trips = self.constant(np.array(self.pick([1, 2, 3]), np.int64))
        made = [f"{name}_rows" for name in outputs]
        self.nodes = [helper.make_node("Loop", [trips, ""], made, body=body)]
        self.types.update((f"{name}_rows", self.types[name]) for name in outputs)
        outputs[:] = made

    def feeds(self) -> dict[str, np.ndarray]:
        sizes = {name: self.pick(choices) for name, choices in SIZES.items()}
        sizes["N"] = self.pick(EMPTY) if self.empties else sizes["N"]
        made = {}
        for name, (dtype, dims) in self.inputs.items():
            shape = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in dims)
            if name in self.fixed:
                made[name] = self.fixed[name]
            elif dtype == np.bool_:
                made[name] = np.asarray(self.rng.random(shape) < 0.7)
            else:
                made[name] = self.normal(*shape).astype(dtype)
        for name in self.inputs if self.extreme else sorted(self.limits):
            if made[name].dtype.kind == "f":
                at = self.rng.random(made[name].shape) < (0.5 if name in self.limits else 0.05)
                made[name][at] = self.rng.choice(LIMITS, int(at.sum()))
        return made

    def main_input(self) -> str:
        """The value that a pattern begins with, of rank 1 to 4, and its rank and width noted."""
        self.width = int(self.pick([1, 2, 3, 4, 8, 24]))
        lead: list[Dim] = [self.pick([1, 2, 3, self.width, "N", "L"]) for _ in range(int(self.rng.integers(0, 4)))]
        self.rank = len(lead) + 1
        last: Dim = "L" if self.off() else self.width
        self.num_elements = math.prod(dim if isinstance(dim, int) else max(SIZES[dim]) for dim in (*lead, last))
        x = self.input(*lead, last)
        if self.chance(0.3):
            x = self(self.pick(["Sin", "Neg", "Identity"]), x) if self.dtype != np.float16 else self("Neg", x)
        return x


# ---- the patterns: each gives the name of its result -----------------------------------------------------------------


def gelu(net: Net) -> str:
    x = net.main_input()
    if net.chance(0.5):
        root = math.sqrt(2)
        inner = net("Div", x, net.number(root)) if net.chance(0.5) else net("Mul", x, net.number(1 / root))
        gate = net("Erf", inner)
    else:
        if net.chance(0.5):
            cube = net("Pow", net.same(x), net.number(3.0))
        else:
            cube = net("Mul", net("Mul", x, net.same(x)), net.same(x))
        total = net("Add", net.same(x), net("Mul", cube, net.number(0.044715)))
        gate = net("Tanh", net("Mul", total, net.number(math.sqrt(2 / math.pi))))
    gate = net("Add", gate, net.number(1.0))
    if net.chance(0.5):
        return net("Mul", net("Mul", net.same(x), gate), net.number(0.5))
    return net("Mul", net("Mul", net.same(x), net.number(0.5)), gate)


def gated(net: Net) -> str:
    x = net.main_input()
    match net.pick(["silu", "hard", "mish", "clip", "clip"]):
        case "silu":
            gate = net("Sigmoid", net.same(x))
        case "hard":
            gate = net("HardSigmoid", x, **net.pick([{}, {"alpha": 1 / 6, "beta": 0.5}, {"alpha": -1.0, "beta": 2.0}]))
        case "mish":
            gate = net("Tanh", net("Softplus", x))
        case _:
            low, high = (net.constant(np.array(value, net.dtype)) for value in ((0, 6) if not net.off() else (-1, 5)))
            gate = net("Clip", net("Add", net.same(x), net.number(3.0)), low, high)
            sixth = net.pick([("Div", 6.0), ("Mul", 1 / 6)])
            if net.chance(0.5):
                return net("Mul", net.same(x), net(sixth[0], gate, net.number(sixth[1])))
            return net(sixth[0], net("Mul", net.same(x), gate), net.number(sixth[1]))
    return net("Mul", gate if net.off() else net.same(x), gate)


def decomposed_norm(net: Net) -> str:
    x = net.main_input()

    def axes() -> list[int]:
        if not net.off():
            return [net.pick([-1, net.rank - 1])]
        axis = int(net.rng.integers(-net.rank, net.rank))
        return [axis] if net.chance(0.6) or axis in (-1, net.rank - 1) else [axis, -1]

    keep = 0 if net.off() else 1
    centered = x if net.chance(0.3) else net("Sub", net.same(x), net.mean(x, axes(), keep))
    if net.chance(0.5):
        squares = net("Pow", net.same(centered), net.number(2.0))
    else:
        # Not by its own transposition, or a vector by its column: the sums of these are 0 but for rounding.
        squares = net("Mul", centered, net.same(centered, ("identity", "negated")))
    variance = net("Add", net.mean(squares, axes(), keep), net.number(float(net.pick([1e-5, 1e-3, 0.1]))))
    root = net("Sqrt", variance) if net.chance(0.8) else net("Pow", variance, net.number(0.5))
    made = net("Div", net.same(centered), root)
    made = net("Mul", made, row(net))
    return net("Add", made, row(net)) if net.chance(0.7) else made


def row(net: Net) -> str:
    """A scale or bias along the last axis, or of a shape that only resembles one."""
    w = net.width
    shape: tuple[int, ...] = net.pick([(w,), (w,), (1,) * (net.rank - 1) + (w,)])
    if net.off():
        shape = net.pick([(), (1,), (w, 1), (1, w, 1), (w, w), (1,) * net.rank + (w,)])
    return net.constant(net.normal(*shape))


def layer_norm(net: Net) -> str:
    """The operator, with operands that broadcast, after a sum that others may read."""
    net.opset = max(net.opset, 17)
    net.width = int(net.pick([1, 2, 4, 8, 12]))
    lead = [net.pick([1, 2, 3, 4, 12, "N"]) for _ in range(int(net.rng.integers(0, 3)))]
    dims: tuple[Dim, ...] = (*lead, net.width)
    net.rank = len(dims)
    x = net.input(*dims)
    if net.chance(0.6):
        match net.pick(["same", "input", "smaller", "row"]):
            case "same":
                other = net.same(x)
            case "input":
                other = net.input(*dims)
            case "smaller":
                other = net.input(*net.dims(*dims))
            case _:
                other = net.constant(net.normal(net.width))
        x = net("Add", x, other)
    axis = int(net.rng.integers(-net.rank, net.rank)) if net.chance(0.4) else -1

    def operand() -> str:
        if net.off():
            return x
        mine = [1 if net.chance(0.3 + net.rate) else dim for dim in dims]
        mine = mine[int(net.rng.integers(len(mine))) if net.chance(0.5) else 0 :]
        if axis == -1 and net.chance(0.5):
            mine = [net.width]
        if net.chance(0.6) and all(isinstance(dim, int) for dim in mine):
            return net.constant(net.normal(*(int(dim) for dim in mine)))
        return net.input(*mine)

    operands = [x, operand()] + ([operand()] if net.chance(0.7) else [])
    epsilon = float(net.pick([1e-5, 1e-3]))
    if net.opset >= 23 and net.chance(0.5):
        return net("RMSNormalization", *operands[:2], axis=axis, epsilon=epsilon)
    made = net("LayerNormalization", *operands, axis=axis, epsilon=epsilon)
    if net.dtype == np.float32 and net.chance(0.15):
        net.extreme = False  # onnxruntime's mean of a row with an infinity is NaN
        further = [f"{made}_mean", f"{made}_inverse"][: int(net.pick([1, 2]))]
        next(node for node in net.nodes if made in node.output).output.extend(further)
        net.types.update((name, net.dtype) for name in further)
        net.outputs += further
    return made


def attention(net: Net) -> str:
    batch: list[Dim] = [net.pick([1, 2, 3, "N"]) for _ in range(int(net.pick([0, 1, 2, 2])))]
    m, n, d, e = (net.pick(sizes) for sizes in ((24, 25, 32, "M"), (1, 2, 16, 17, "L"), (1, 4, 8), (1, 4, 8)))
    net.rank, net.width = len(batch) + 2, n if isinstance(n, int) else 2

    def operand(rows: Dim, columns: Dim, turned: bool) -> str:
        """[*batch, rows, columns], as it is or by a transposition."""
        mine = list(net.dims(*batch)) if batch else []
        mine = mine[1:] if mine and net.off() else mine
        rank = len(mine) + 2
        if net.chance(0.15):
            return view(mine, rows, columns, turned)
        if rank == 4 and net.chance(0.5):  # [batch, length, heads, width]
            made = net.input(mine[0], columns if turned else rows, mine[1], rows if turned else columns)
            return net("Transpose", scaled(made), perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])
        if turned and net.chance(0.7):
            swap = [*range(rank - 2), rank - 1, rank - 2]
            return net("Transpose", scaled(net.input(*mine, columns, rows)), perm=swap)
        return net.input(*mine, rows, columns)

    def view(mine: list[Dim], rows: Dim, columns: Dim, turned: bool) -> str:
        """A part of something larger: every other row, rows from the end, one of three, rows or columns repeated."""
        if turned:
            rows, columns = columns, rows
        rank = len(mine) + 2
        match net.pick(["steps", "backwards", "one of three", "repeated"]):
            case "one of three":
                axis = int(net.rng.integers(rank))
                sizes = [*mine, rows, columns]
                made = net("Gather", net.input(*sizes[:axis], 3, *sizes[axis:]), ints(1, scalar=True), axis=axis)
            case "repeated":
                axis = int(net.rng.integers(rank))
                sizes = [*mine, rows, columns]
                if not all(isinstance(size, int) for size in sizes):
                    return operand(*((columns, rows) if turned else (rows, columns)), turned)
                made = net("Expand", net.input(*sizes[:axis], 1, *sizes[axis + 1 :]), ints(*map(int, sizes)))
            case way:
                axis = int(net.rng.integers(rank - 2, rank))
                sizes = [*mine, rows, columns]
                size = sizes[axis]
                if not isinstance(size, int):
                    return operand(*((columns, rows) if turned else (rows, columns)), turned)
                wider = net.input(*sizes[:axis], 2 * size + 1, *sizes[axis + 1 :])
                begin, end, step = (1, 2 * size + 1, 2) if way == "steps" else (size - 1, -1000, -1)
                made = net("Slice", wider, ints(begin), ints(end), ints(axis), ints(step))
        return net("Transpose", made, perm=[*range(rank - 2), rank - 1, rank - 2]) if turned else made

    def ints(*numbers: int, scalar: bool = False) -> str:
        return net.constant(np.array(numbers[0] if scalar else numbers, np.int64), plain=True)

    def scaled(value: str, likely: float = 0.2) -> str:
        if not net.chance(likely):
            return value
        factor = net.number(float(net.pick([0.125, 0.5, 2.0, 1e-30 if net.off() else 0.25])))
        if net.off():
            return net("Div", factor, net("Add", net("Abs", value), net.number(1.0)))
        return net(net.pick(["Mul", "Div"]) if net.rate < 0.1 else "Mul", value, factor)

    def regrouped(value: str) -> str:
        """The scores under another shape while something is added to them."""
        first, second = batch
        if net.off():
            second, first = first, second
        made = net("Reshape", value, ints(int(second), int(first), m, n))
        made = net("Add", made, net.input(*(1 if net.chance(0.5) else int(size) for size in (second, first, m, n))))
        return net("Reshape", made, ints(*map(int, batch), m, n))

    def around(dtype: Any = None) -> str:
        """What broadcasts to the scores."""
        mine = [1 if net.chance(0.35) else dim for dim in (*batch, m, n)]
        mine = mine[int(net.rng.integers(len(mine) + 1)) if net.chance(0.3) else 0 :]
        if net.off():
            mine = [1, *mine]
        if net.chance(0.3) and dtype is None and all(isinstance(dim, int) for dim in mine):
            return net.constant(net.normal(*(int(dim) for dim in mine)))
        return net.input(*mine, dtype=dtype)

    def chosen(value: str, other: float) -> str:
        operands = [value, net.number(other)]
        if net.chance(0.5):
            operands.reverse()
        return net("Where", around(bool), *operands)

    if net.chance(0.08):
        m = n = d = 24
        q = k = v = net.input(*batch, m, m)
    else:
        q, k = operand(m, d, False), operand(d, n, True)
        v = operand(n, e, False)
        if net.off() and batch:
            v = net.input(*batch[1:], n, e)
    scores = scaled(net("MatMul", scaled(q), scaled(k)), 0.4)
    for _ in range(int(net.pick([0, 0, 1, 1, 2, 3]))):
        scores = net("Add", scores, around())
    if net.chance(0.1) and len(batch) == 2 and all(isinstance(size, int) for size in (*batch, m, n)):
        scores = regrouped(scores)
    if net.off():
        scores = scaled(scores, 1.0)
    large = False
    if net.chance(0.3):
        number = float(net.pick([-1e4, -3.4e38, -np.inf, 0.5]))
        scores, large = chosen(scores, number), number < -1e30
    if net.off():
        scores = net("Add", scores, around())
    axis = net.pick([-1, net.rank - 1])
    if net.off() or net.chance(0.05):
        axis = int(net.rng.integers(-net.rank, net.rank))
    logarithm = net.off() and not large
    weights = net("LogSoftmax" if logarithm else "Softmax", net.same(scores), axis=axis)
    if net.chance(0.15):
        weights = chosen(weights, 0.0)
    elif net.chance(0.15) and net.opset >= 13:
        test = net("IsNaN", weights, dtype=bool)
        operands = [net.number(0.0), net.same(weights)]
        weights = net("Where", test, *(operands[::-1] if net.chance(0.2) else operands))
    made = net("MatMul", net.same(weights), scaled(v) if net.off() else v)
    if net.off():
        made = net("Mul", made, net.number(2.0))
    if net.rank == 4 and net.chance(0.6):
        made = net("Transpose", made, perm=[0, 2, 1, 3] if not net.off() else [0, 3, 1, 2])
        if net.chance(0.5):
            made = net("Reshape", made, net.constant(np.array([0, 0, -1], np.int64)))
    return made


def product(net: Net) -> str:
    """A product or convolution, then additions and an activation."""
    k, n = int(net.pick([1, 2, 3, 8])), int(net.pick([1, 2, 4, 8, 16, 17]))
    k = n if net.chance(0.2) else k
    net.width = n
    kind = net.pick(["Gemm", "MatMul", "MatMul", "Conv"])
    if kind == "Conv":
        net.extreme = False
        side: Dim = net.pick([1, 3, n, 6, "L"])
        net.rank = int(net.pick([3, 4, 4]))
        space: list[Dim] = [side, n if net.chance(0.2) else 3][: net.rank - 2]
        lead: list[Dim] = [net.pick([1, 2, n, "N"])]
        window = int(net.pick([1, 3]))
        x = net.input(*lead, k, *space)
        group = net.pick([size for size in (1, 1, 2, k) if k % size == n % size == 0])
        operands = [net.constant(net.normal(n, k // group, *[window] * len(space)))]
        if net.chance(0.4):
            operands.append(net.constant(net.normal(n)))
        made = net("Conv", x, *operands, pads=[window // 2] * 2 * len(space), group=group)
        bias, full = (n, *[1] * len(space)), [*lead, n, *space]
    else:
        rank = 2 if kind == "Gemm" else int(net.pick([1, 2, 3, 4]))
        lead = [net.pick([1, 2, n, "N"]) for _ in range(rank - 1)]
        x = net.input(*lead, k)
        vector = kind == "MatMul" and net.off()
        weights = (k,) if vector else (k, n)
        if rank > 2 and net.off() and isinstance(lead[0], int):
            weights = (lead[0], *[1] * (rank - 3), k, n)
        operands = [net.constant(net.normal(*weights))]
        full, bias = [*lead, *([] if vector else [n])], (n,)
        if kind == "Gemm" and net.chance(0.3):
            operands.append(net.constant(net.normal(*net.pick([(n,), (1, n), (1, 1), ()]))))
        attributes = {"alpha": 0.5, "beta": 2.0} if kind == "Gemm" and net.chance(0.3) else {}
        net.rank = max(1, len(full))
        made = net(kind, x, *operands, **attributes)
    early = net("Sin", net.input(*full)) if net.dtype == np.float32 else net.input(*full)
    reshaped = False
    for _ in range(int(net.rng.integers(1, 5))):
        match net.pick(["bias", "bias", "addend", "activation", "activation", "reshape", "twice", "norm"]):
            case "bias":
                alike = [bias, (*[1] * (net.rank - len(bias)), *bias)]
                shape: tuple[int, ...] = net.pick([*alike, (), (1,)] if kind == "Conv" else alike)
                if net.off():
                    shape = net.pick(
                        [(), (n, 1), (1, n, 1), (n,), (1,) * net.rank + bias, (n, 1, 1), (2, *[1] * net.rank)]
                    )
                by = net.normal(*shape)
                if net.off():
                    by.flat[0] = net.pick([0.0, np.inf, np.nan, 1e-30])
                made = net("Mul" if net.chance(0.25) else "Add", made, net.constant(by))
                reshaped |= len(shape) > net.rank  # the channels are another axis then
            case "addend":
                match net.pick(["early", "late", "input", "smaller", "x"]):
                    case "x" if len(full) == len(net.inputs[x][1]) and k == n:
                        other = x  # what the product reads, of its result's shape
                    case "late":
                        other = net("Neg", early)
                    case "input":
                        other = net.input(*full)
                    case "smaller":
                        other = net.input(*net.dims(*full))
                    case _:
                        other = early
                made = net("Add", made, other)
            case "activation":
                made = activation(net, made)
            case "reshape" if net.off() or net.chance(0.2):
                made, reshaped = net("Reshape", made, net.constant(np.array(net.pick(RESHAPES), np.int64))), True
            case "twice" if net.off():
                made = net(net.pick(["Add", "Mul"]), made, made)
            case "norm" if kind == "Conv" and not reshaped:
                made = batch_norm(net, made, n)
    return made


def depthwise(net: Net) -> str:
    """A 1x1 convolution, an activation, and a depthwise convolution of the result."""
    net.extreme = False
    channels, k = int(net.pick([16, 17, 24, 32])), int(net.pick([1, 3, 8, 24]))
    net.width, net.rank = channels, 4
    rows: Dim = net.pick([1, 2, 3, 7, 12, "L"])
    columns: Dim = net.pick([11, 12, 13, 16, 30, "M"])
    x = net.input(net.pick([1, 2, "N"]), k, rows, columns)
    attributes: dict[str, Any] = {}
    if net.off():
        attributes = net.pick([{"strides": [2, 1]}, {"pads": [1, 0, 0, 1]}])
    weights = [net.constant(net.normal(channels, k, 1, 1))] + [net.constant(net.normal(channels))] * net.chance(0.5)
    made = net("Conv", x, *weights, **attributes)
    if net.chance(0.5):
        made = net(net.pick(["Relu", "HardSigmoid", "LeakyRelu", "Tanh"]), made)  # no large numbers, which cancel out
    if net.off():
        made = net("Add", made, net.input(1, channels, 1, 1))
    kernel = [int(net.pick([1, 3, 3, 5])) for _ in range(2)]
    pads = [int(net.rng.integers(0, size)) if net.off() else size // 2 for size in kernel * 2]
    pads = [max(pad, size // 2) for pad, size in zip(pads, kernel * 2, strict=True)]  # some windows fit any image
    groups = channels if not net.off() or channels % 2 else channels // 2
    outputs = channels * (2 if net.off() else 1)
    attributes = {"pads": pads, "strides": [int(net.pick([1, 1, 2, 3])) for _ in range(2)], "group": groups}
    if net.off():
        attributes |= {"dilations": [2, 1], "pads": [2 * pad for pad in pads]}
    weights = [net.constant(net.normal(outputs, channels // groups, *kernel))]
    weights += [net.constant(net.normal(outputs))] * net.chance(0.5)
    made = net("Conv", net.same(made, ("identity", "negated")), *weights, **attributes)
    return activation(net, made) if net.chance(0.5) else net("Add", made, net.number(0.5))


def branches(net: Net) -> str:
    """Convolutions of one input, with batch normalizations, whose results are added."""
    net.extreme = False
    groups, maps = int(net.pick([1, 1, 2, 4])), int(net.pick([1, 2, 3]))
    channels = groups * maps
    outputs = channels if net.chance(0.7) else groups * int(net.pick([1, 2, 5]))
    net.width, net.rank = outputs, int(net.pick([3, 4, 4, 5]))
    space = net.rank - 2
    sizes: list[Dim] = [net.pick([1, 5, 6, "L"]), 5, 4][:space]
    x = net.input("N", channels, *sizes)
    largest, stride = int(net.pick([1, 3, 3, 5])), 1 if net.chance(0.7) else 2
    total = None
    for _ in range(int(net.rng.integers(2, 6))):
        read = net.same(x, ("identity", "negated"))
        if outputs == channels and stride == 1 and net.chance(0.25):
            made = batch_norm(net, read, channels)
        else:
            kernel = largest if net.chance(0.6) else int(net.pick([1, 3]))
            made = _branch(net, read, (groups, maps, outputs), kernel, stride, space)
            if net.chance(0.4):
                made = batch_norm(net, made, outputs)
        if net.chance(0.3):
            column = (outputs, *[1] * space)
            shape: tuple[int, ...] = net.pick([(), (1,), column, (1, *column), *[(outputs,)] * net.off()])
            made = net(net.pick(["Add", "Mul"]), made, net.constant(net.normal(*shape)))
        total = made if total is None else net("Sub" if net.off() else "Add", total, made)
    assert total is not None
    return net("Relu", total)


def padded(net: Net) -> str:
    """A Pad before a convolution, and what follows."""
    net.extreme = False
    space = int(net.pick([1, 2, 2, 2, 3]))
    group = int(net.pick([1, 1, 1, 2, 8]))
    channels, maps = group * int(net.pick([1, 2, 3])), group * int(net.pick([1, 1, 2, 5]))
    net.rank, net.width = space + 2, maps
    sizes: list[Dim] = [net.pick([4, 6, 9, "M"]) for _ in range(space)]
    x = net.input(net.pick([1, 2, "N"]), channels, *sizes)
    if net.chance(0.3):
        x = net("Neg", x)
    pads = [0, 0, *(int(net.pick([0, 1, 1, 2])) for _ in range(space))] * 2
    if net.off():
        pads[int(net.rng.integers(len(pads)))] = int(net.pick([-1, 1, 3]))
    net.opset = max(net.opset, 11)
    given = [x, net.constant(np.array(pads, np.int64))]
    if net.chance(0.6):
        number = net.pick([0.0, -0.0, *[0.5, np.nan] * net.off()])
        given.append(net.constant(np.asarray(np.full((1,) if net.off() else (), number), net.dtype)))
    if net.off() and net.opset >= 18 and len(given) == 3:
        order = [int(axis) for axis in net.rng.permutation(net.rank)]
        given[1] = net.constant(np.array([pads[axis] for axis in order] + [pads[net.rank + axis] for axis in order]))
        given.append(net.constant(np.array(order, np.int64)))
    mode = net.pick(["edge", "reflect"]) if net.off() and max(pads) < 2 and "M" not in sizes else "constant"
    made = net("Pad", *given, mode=mode)
    if net.off():
        made = net.same(made, ("identity", "negated"))
    kernel = [1 if size == "M" else int(net.pick([1, 3, 3])) for size in sizes]  # the window fits any image
    attributes: dict[str, Any] = {"group": group if channels % group == 0 else 1}
    if net.chance(0.4):
        attributes["pads"] = [int(net.pick([0, 1])) for _ in range(2 * space)]
    elif net.chance(0.2):
        attributes["auto_pad"] = net.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    if net.chance(0.3):
        attributes["strides"] = [int(net.pick([1, 2, 3])) for _ in range(space)]
    weights = net.normal(maps, channels // group, *kernel)
    if net.off():
        weights.flat[0] = np.inf
    made = net("Conv", made, net.constant(weights), *[net.constant(net.normal(maps))] * net.chance(0.4), **attributes)
    return activation(net, made) if net.chance(0.5) else made


def _branch(net: Net, x: str, sizes: tuple[int, int, int], kernel: int, stride: int, space: int) -> str:
    """A convolution. ``sizes``: groups, their channels, and all outputs."""
    groups, maps, outputs = sizes
    before = [kernel // 2 - (kernel > 1 and net.off()) for _ in range(space)]
    after = [2 * (kernel // 2) - lead for lead in before]  # the result has the same shape, wherever the kernel lies
    attributes: dict[str, Any] = {"pads": before + after, "strides": [stride] * space, "group": groups}
    if net.off():
        attributes |= {"pads": [kernel // 2 * 2] * 2 * space, "dilations": [2] * space}
    elif net.off():
        attributes["auto_pad"] = net.pick(["SAME_UPPER", "SAME_LOWER"])
        del attributes["pads"]
    weights = net.normal(outputs, maps, *[kernel] * space)
    if net.off():
        weights.flat[0] = net.pick([np.inf, np.nan, 1e30])
    bias = [net.constant(net.normal(outputs))] if net.chance(0.4) else []
    return net("Conv", x, net.constant(weights), *bias, **attributes)


def activation(net: Net, value: str) -> str:
    op_type = net.pick(ACTIVATIONS)
    if op_type == "Clip":
        return net("Clip", value, *(net.constant(np.array(bound, net.dtype)) for bound in (-0.5, 0.75)))
    return net(op_type, value)


def batch_norm(net: Net, value: str, channels: int) -> str:
    gain, shift, mean = (net.normal(channels) for _ in range(3))
    if net.off():
        gain[0] = net.pick([0.0, np.nan, 1e-30 if net.dtype != np.float16 else 0.5])
    statistics = [gain, shift, mean, np.abs(net.normal(channels)) + np.asarray(0.1, net.dtype)]
    return net("BatchNormalization", value, *map(net.constant, statistics), epsilon=float(net.pick([1e-5, 0.1])))


def run(net: Net) -> str:
    """Elementwise operators on results that do not fit the first cache: they become one call."""
    net.dtype = np.dtype(np.float32)
    full: list[Dim] = net.pick(
        [[2, 32, 40], [4096], [64, 33], [1, 4100], ["N", 50, 100], [3, 1, 1000], [8192, 1], [64, 64], [64, 64]]
    )
    net.rank = len(full)
    net.width = 40
    x = net.input(*full)
    pools: dict[str, list[str]] = {"float32": [x, net.input(*full)], "float64": [], "bool": [], "exact": [x]}
    if full == [64, 64]:  # one storage, read along rows and along columns
        row = net.input(64)
        pools["float32"] += [row, net("Reshape", row, net.constant(np.array([-1, 1], np.int64), True))]

    def operand(dtype: str) -> str:
        if pools[dtype] and net.chance(0.7):
            return str(net.pick(pools[dtype][-4:] if net.chance(0.7) else pools[dtype]))
        mine = [1 if net.chance(0.4) else dim for dim in full][
            int(net.rng.integers(net.rank)) if net.chance(0.3) else 0 :
        ]
        return net.input(*mine, dtype=dtype if dtype != "exact" else "float32")

    made = x
    for _ in range(int(net.rng.integers(2, 14))):
        match net.pick(
            [
                "unary",
                "unary",
                "binary",
                "binary",
                "binary",
                "less",
                "where",
                "logic",
                "wide",
                "view",
                "reduce",
                "scalar",
            ]
        ):
            case "unary":
                made = activation(net, operand("float32")) if net.chance(0.6) else net("Sin", operand("float32"))
                pools["float32"].append(
                    net("Clip", made, *(net.constant(np.array(b, np.float32), True) for b in (-9, 9)))
                )
            case "binary":
                dtype = net.pick(["float32", "float32", "float64"])
                first, second = operand(dtype), operand(dtype)
                pools[dtype].append(net(net.pick(["Add", "Sub", "Mul", "Min", "Max"]), first, second))
            case "scalar":
                exponent = net.constant(np.array(net.pick([2, 3, 1]), np.float32))
                pools["float32"].append(net("Tanh", net("Pow", operand("float32"), exponent)))
            case "less":
                pools["bool"].append(
                    net(net.pick(["Less", "Greater", "Equal"]), operand("exact"), operand("exact"), dtype=bool)
                )
            case "logic":
                pools["bool"].append(net(net.pick(["And", "Or", "Xor"]), operand("bool"), operand("bool")))
            case "where":
                pools["float32"].append(net("Where", operand("bool"), operand("float32"), operand("float32")))
            case "wide":
                pools["float64"].append(net("Cast", operand(net.pick(["float32", "bool"])), to=11, dtype="float64"))
            case "view":
                shape = net.constant(np.array(net.pick([[0] * net.rank, [*[0] * (net.rank - 1), -1]]), np.int64), True)
                pools["float32"].append(net("Reshape", pools["float32"][-1], shape))
            case "reduce":
                pools["float32"].append(net.mean(operand("float32"), [net.pick([-1, 0])]))
    ends = [values[-1] for values in pools.values() if values]
    net.outputs += [end for end in ends if end not in net.inputs]
    return net("Neg", pools["float32"][-1])


def copies(net: Net) -> str:
    """Views of views: slices, transpositions, broadcasts, reshapes, one after another."""
    shape = [int(net.pick([1, 2, 3, 4, 6, 8])) for _ in range(int(net.rng.integers(1, 5)))]
    made = net.input(*shape)
    if net.chance(0.3):
        made = net("Neg", made)
    for _ in range(int(net.rng.integers(2, 7))):
        rank = len(shape)
        match net.pick(["slice", "slice", "transpose", "transpose", "reshape", "expand", "unsqueeze", "gather"]):
            case "slice" if rank:
                axis = int(net.rng.integers(rank))
                begin, end = sorted(int(at) for at in net.rng.integers(0, shape[axis] + 1, 2))
                step = int(net.pick([1, 1, 2, 3]))
                if net.chance(0.3):
                    begin, end, step = end - 1, begin - 1, -step
                    end = end if end >= 0 else -1000
                    begin = max(begin, 0)
                numbers = (np.array([number], np.int64) for number in (begin, end, axis, step))
                made = net("Slice", made, *(net.constant(number) for number in numbers))
                shape[axis] = len(range(shape[axis])[slice(begin, None if end == -1000 else end, step)])
            case "transpose":
                order = [int(axis) for axis in net.rng.permutation(rank)]
                made, shape = net("Transpose", made, perm=order), [shape[axis] for axis in order]
            case "reshape" if 0 not in shape:
                cut = int(net.rng.integers(rank + 1))
                shape = net.pick(
                    [
                        [math.prod(shape)],
                        [math.prod(shape[:cut]), math.prod(shape[cut:])],
                        [*shape[:cut], 1, *shape[cut:]],
                    ]
                )
                made = net("Reshape", made, net.constant(np.array(shape, np.int64)))
            case "expand" if math.prod(shape) < 2000:
                shape = [int(net.pick([1, 2])), *shape]
                made = net("Expand", made, net.constant(np.array(shape, np.int64)))
            case "gather" if rank > 1:
                axis = int(net.rng.integers(rank))
                if shape[axis]:
                    index = int(net.rng.integers(-shape[axis], shape[axis]))
                    made = net("Gather", made, net.constant(np.array(index)), axis=axis)
                    del shape[axis]
        if len(shape) > 5:
            break
    return net("Identity" if net.off() else "Abs", made)


def small_rules(net: Net) -> str:
    """Powers, softmax over any axes, pools over the whole plane, products of any ranks."""
    match net.pick(["power", "softmax", "pool", "product"]):
        case "power":
            if net.chance(0.3):  # NumPy takes its square root for this, also of -0 and -inf
                net.extreme = False
                return net("Pow", net("Abs", net.main_input()), net.number(0.5))
            net.rank, net.width = 1, len(LIMITS)
            x = net.input(len(LIMITS))
            net.limits.add(x)
            made = net("Pow", x, net.number(float(net.pick([2.0, 3.0, 1.0, 0.0, -1.0]))))
            return net("Reciprocal", made) if net.chance(0.5) else made
        case "softmax":
            x = net.main_input()
            return net(net.pick(["Softmax", "LogSoftmax"]), x, axis=int(net.rng.integers(-net.rank, net.rank)))
        case "pool":
            net.extreme = False  # onnxruntime passes over NaN in a window
            spatial = [int(net.pick([1, 2, 5])) for _ in range(int(net.rng.integers(1, 3)))]
            kernel = [max(1, size - net.off()) for size in spatial]
            x = net.input("N", int(net.pick([1, 3])), *spatial)
            pads = [int(net.off()) * (size > 1) for size in kernel] * 2
            return net(net.pick(["AveragePool", "MaxPool"]), x, kernel_shape=kernel, pads=pads)
        case _:
            k = int(net.pick([1, 3, 8]))
            left = [net.pick([1, 2, "N"]) for _ in range(int(net.rng.integers(0, 4)))]
            right = [1 if net.chance(0.5) else dim for dim in left[:-1]][int(net.rng.integers(0, 3)) :]
            y: list[Dim] = [*right, k, int(net.pick([1, 2, 16]))] if net.chance(0.8) else [k]
            return net("MatMul", net.input(*left, k), net.input(*y))


RULES: dict[Callable[[Net], str], float] = {
    gelu: 2, gated: 2, decomposed_norm: 3, layer_norm: 3, attention: 5, product: 4, branches: 2, run: 2, copies: 2,
    small_rules: 1.5, depthwise: 2, padded: 1,
}  # fmt: skip
"""How often each is drawn."""
WELL_CONDITIONED = {gated, copies, small_rules}
"""Those whose results in float16 are the same to 1 %, however each step is rounded."""


KNOWN = (
    LOG_SOFTMAX,
    Known(
        "onnxruntime",
        "it refuses normalization of nothing",
        lambda case: _has_empty(case) and case.has("LayerNormalization"),
        lambda case, difference: "only onnxruntime fails" in difference,
    ),
    Known(
        "onnxruntime",
        "the mean of nothing is 0 there",
        lambda case: _has_empty(case) and case.has("ReduceMean"),
        lambda case, difference: " nan and " in difference,
    ),
    Known(
        "TEMPLATE",
        "a convolution of an image without rows or columns is empty there; CPU and onnxruntime refuse it",
        lambda case: case.has("Conv"),
        lambda case, difference: "only CPU fails" in difference and "with a size of 0" in difference,
    ),
)


def _has_empty(case: Case) -> bool:
    return any(array.size == 0 for feeds in case.calls for array in feeds.values())


def case(rng: np.random.Generator) -> Case:
    weights = np.array(list(RULES.values()))
    build = list(RULES)[int(rng.choice(len(RULES), p=weights / weights.sum()))]
    net = Net(rng)
    if build in WELL_CONDITIONED and net.chance(0.1):
        net.dtype = np.dtype(np.float16)
    end = build(net)
    if net.shares and net.chance(0.7):
        net.outputs.append(end)
        end = build(net)
    return net.case(build.__name__, end, 1e-4)
