"""Chains of what moves elements, with a few elementwise operators between, in many element types: views of views,
results computed in place, concatenations that contain their operands or one another, and sizes that change.

Numbers are small integers, and each operator is exact on them in every type, so results must match exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.differential import Case, Known

__all__ = ["KNOWN", "case"]

Array = np.ndarray[Any, Any]
MOST = 3000
"""Elements of a value."""
DTYPES = (
    *("float32",) * 6,
    *("float16", "float16", "bfloat16", "float64", "float64", "bool", "int8", "uint8", "int64", "int64"),
    *("int32", "int16", "uint16", "uint32", "uint64"),
)
SIZES = {"N": (0, 1, 2, 3, 5), "M": (1, 2, 4, 9, 33)}
"""Of the dimensions that change from call to call."""


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclasses.dataclass(frozen=True)
class Value:
    """``shapes``: for each setting of the sizes."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]

    @property
    def rank(self) -> int:
        return len(self.shapes[0])

    def size(self, axis: int) -> int:
        """The axis's size, or -1 if it is not the same in all settings."""
        sizes = {shape[axis] for shape in self.shapes}
        return sizes.pop() if len(sizes) == 1 else -1


class Chain:
    """Draws one case. The methods in `STEPS` add one node to what is passed, or nothing where it does not fit."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.opset = int(rng.choice([13, 14, 17, 18, 20, 21, 23]))
        self.settings = [{name: int(rng.choice(sizes)) for name, sizes in SIZES.items()} for _ in range(4)]
        if self.chance(0.6):
            for setting in self.settings:
                setting["N"] = max(setting["N"], 1)
        self.dtype = str(rng.choice(DTYPES))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: list[tuple[Value, list[int | str]]] = []
        self.values: list[Value] = []
        self.joined: list[tuple[int, list[Value]]] = []

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def input(self, dims: Sequence[int | str], dtype: str = "") -> Value:
        shapes = tuple(tuple(s[d] if isinstance(d, str) else d for d in dims) for s in self.settings)
        made = Value(f"x{len(self.inputs)}", dtype or self.dtype, shapes)
        self.inputs.append((made, list(dims)))
        self.values.append(made)
        return made

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def add(self, op_type: str, inputs: Sequence[str], x: Value, shapes: Any = None, **attributes: Any) -> Value | None:
        """A node with one result, of ``x``'s type and, without ``shapes``, of its shapes."""
        shapes = x.shapes if shapes is None else tuple(tuple(int(size) for size in shape) for shape in shapes)
        if max(int(np.prod(shape)) for shape in shapes) > MOST or len(shapes[0]) > 5:
            return None
        made = Value(f"v{len(self.values)}", x.dtype, shapes)
        self.nodes.append(helper.make_node(op_type, list(inputs), [made.name], **attributes))
        self.values.append(made)
        return made

    def data(self, value: Value, setting: int) -> Array:
        low = 0 if value.dtype[0] in "ub" else -6
        array = self.rng.integers(low, 2 if value.dtype == "bool" else 7, value.shapes[setting])
        return array.astype(dtype_of(value.dtype))

    # ---- moves

    def slice(self, x: Value) -> None:
        if not x.rank:
            return
        axes = sorted(int(a) for a in self.rng.choice(x.rank, int(self.rng.integers(1, min(x.rank, 2) + 1)), False))
        begins, ends, steps, cuts = [], [], [], []
        for _ in axes:
            step = int(self.pick([1, 1, 1, 2, 3, -1, -2]))
            begin, end = int(self.rng.integers(-4, 4)), int(self.pick([1, 2, 3, 1000, 1000, -1, -1000]))
            if step < 0:
                begin, end = self.pick([(-1, -1000), (1000, 0), (2, -1000), (-2, 0)])
            begins.append(begin), ends.append(end), steps.append(step)
            cuts.append(_cut(begin, end, step))
        shapes = [list(shape) for shape in x.shapes]
        for shape in shapes:
            for axis, cut in zip(axes, cuts, strict=True):
                shape[axis] = cut(shape[axis])
        axes = [axis - x.rank if self.chance(0.3) else axis for axis in axes]
        self.add("Slice", [x.name, *(self.ints(*numbers) for numbers in (begins, ends, axes, steps))], x, shapes)

    def transpose(self, x: Value) -> None:
        if not x.rank:
            return
        order = [int(axis) for axis in self.rng.permutation(x.rank)]
        self.add("Transpose", [x.name], x, [[shape[axis] for axis in order] for shape in x.shapes], perm=order)

    def reshape(self, x: Value) -> None:
        """Two neighbors become one axis, or the whole a row or column, or axes of 1 come in."""
        if self.chance(0.3) or x.rank < 2:
            axis = int(self.rng.integers(x.rank + 1))
            shapes = [[*shape[:axis], 1, *shape[axis:]] for shape in x.shapes]
            if x.rank + 1 <= 4 and self.chance(0.5):
                target = [0] * axis + [1] + [x.size(a) for a in range(axis, x.rank)]
                if target.count(-1) <= 1 and (-1 not in target or all(0 not in shape for shape in x.shapes)):
                    if 0 in target[axis + 1 :]:
                        return  # 0 copies the size at its own place
                    self.add("Reshape", [x.name, self.ints(*target)], x, shapes)
                return
            self.add("Unsqueeze", [x.name, self.ints(axis)], x, shapes)
        elif all(0 not in shape for shape in x.shapes):
            axis = int(self.rng.integers(x.rank - 1))
            shapes = [[*s[:axis], s[axis] * s[axis + 1], *s[axis + 2 :]] for s in x.shapes]
            rest = [x.size(a) for a in range(axis + 2, x.rank)]
            if -1 not in rest:
                self.add("Reshape", [x.name, self.ints(*[0] * axis, -1, *rest)], x, shapes)
        else:
            axis = int(self.rng.integers(x.rank + 1))
            shapes = [(np.prod(s[:axis], dtype=int), np.prod(s[axis:], dtype=int)) for s in x.shapes]
            self.add("Flatten", [x.name], x, shapes, axis=axis)

    def squeeze(self, x: Value) -> None:
        ones = [axis for axis in range(x.rank) if x.size(axis) == 1]
        if ones:
            axis = int(self.pick(ones))
            named = axis - x.rank if self.chance(0.5) else axis
            self.add("Squeeze", [x.name, self.ints(named)], x, [[*s[:axis], *s[axis + 1 :]] for s in x.shapes])

    def split(self, x: Value) -> None:
        axes = [axis for axis in range(x.rank) if x.size(axis) >= 1]
        if not axes:
            return
        axis = int(self.pick(axes))
        ends = np.sort(self.rng.integers(0, x.size(axis) + 1, int(self.rng.integers(1, 3))))
        parts = np.diff([0, *ends, x.size(axis)]).tolist()
        names = [f"v{len(self.values) + at}" for at in range(len(parts))]
        named = axis - x.rank if self.chance(0.3) else axis
        self.nodes.append(helper.make_node("Split", [x.name, self.ints(*parts)], names, axis=named))
        for name, part in zip(names, parts, strict=True):
            self.values.append(Value(name, x.dtype, tuple((*s[:axis], part, *s[axis + 1 :]) for s in x.shapes)))

    def concat(self, x: Value) -> None:
        """Joins values whose other axes agree, often one twice, or an earlier concatenation's operands and one more."""
        if self.joined and self.chance(0.5):
            axis, operands = self.pick(self.joined)
            operands = list(operands)
            x = operands[0]
        elif x.rank:
            axis, operands = int(self.rng.integers(x.rank)), [x]
        else:
            return
        fitting = [y for y in self.values if _joins(x, y, axis)]
        operands += [self.pick(fitting[-4:] if self.chance(0.6) else fitting) for _ in range(self.pick([1, 1, 2, 3]))]
        if self.chance(0.15):
            self.rng.shuffle(operands)  # type: ignore[arg-type]
        shapes = []
        for at, shape in enumerate(x.shapes):
            total = sum(operand.shapes[at][axis] for operand in operands)
            shapes.append((*shape[:axis], total, *shape[axis + 1 :]))
        named = axis - x.rank if self.chance(0.3) else axis
        if self.add("Concat", [operand.name for operand in operands], x, shapes, axis=named):
            self.joined.append((axis, operands))

    def expand(self, x: Value) -> None:
        target = [int(self.pick([1, 2, 3])) if size == 1 else 1 for size in map(x.size, range(x.rank))]
        lead = [int(self.pick([1, 2]))] if self.chance(0.4) else []
        shapes = [(*lead, *(max(a, b) if a else 0 for a, b in zip(s, target, strict=True))) for s in x.shapes]
        if lead or target:
            self.add("Expand", [x.name, self.ints(*lead, *target)], x, shapes)

    def gather(self, x: Value) -> None:
        axes = [axis for axis in range(x.rank) if x.size(axis) > 0]
        if not axes:
            return
        axis = int(self.pick(axes))
        size = x.size(axis)
        index = self.pick(
            [np.array(self.rng.integers(-size, size)), self.rng.integers(-size, size, 3), np.arange(size)]
        )
        shapes = [(*s[:axis], *index.shape, *s[axis + 1 :]) for s in x.shapes]
        self.add("Gather", [x.name, self.constant(index.astype(np.int64))], x, shapes, axis=axis)

    def pad(self, x: Value) -> None:
        if not x.rank or x.dtype == "bool":
            return
        before, after = (self.rng.choice([0, 0, 1, 2], x.rank) for _ in range(2))
        shapes = [np.add(shape, before + after) for shape in x.shapes]
        number = [self.constant(np.array(3, dtype_of(x.dtype)))] if self.chance(0.7) else []
        self.add("Pad", [x.name, self.ints(*map(int, (*before, *after))), *number], x, shapes)

    def tile(self, x: Value) -> None:
        if x.rank:
            counts = self.rng.choice([1, 1, 2, 0 if self.chance(0.1) else 1], x.rank)
            self.add("Tile", [x.name, self.ints(*map(int, counts))], x, [np.multiply(s, counts) for s in x.shapes])

    # ---- elementwise

    def unary(self, x: Value) -> None:
        if x.dtype == "bool":
            self.add(self.pick(["Not", "Identity"]), [x.name], x)
        elif x.dtype[0] == "u":
            self.add(self.pick(["Identity", "Abs"]), [x.name], x)
        else:
            self.add(self.pick(["Neg", "Neg", "Abs", "Identity"]), [x.name], x)

    def binary(self, x: Value) -> None:
        """With another of a shape that broadcasts, or with itself, or with a constant."""
        fitting = [(y, shapes) for y in self.values if (shapes := _broadcast(x, y)) is not None]
        y, shapes = self.pick(fitting[-5:])
        names = [x.name, y.name]
        if self.chance(0.2):
            some = self.rng.integers(0, 2, self.pick([(), (1,), (1,) * x.rank])).astype(dtype_of(x.dtype))
            names, shapes = [x.name, self.constant(some)], x.shapes if x.rank or not some.ndim else [(1,)] * 4
        if self.chance(0.5):
            names.reverse()
        if x.dtype == "bool":
            self.add(self.pick(["And", "Or", "Xor"]), names, x, shapes)
        elif x.dtype in ("float16", "bfloat16") or self.opset < 14:  # sums of many steps would be rounded
            self.add(self.pick(["Max", "Min"]), names, x, shapes)
        else:
            made = self.add(self.pick(["Add", "Sub", "Max", "Min"]), names, x, shapes)
            if made is not None and made.dtype in ("float32", "float64") and self.chance(0.5):
                limits = [self.constant(np.array(limit, made.dtype)) for limit in (-50, 50)]
                self.add("Clip", [made.name, *limits], made)

    def where(self, x: Value) -> None:
        fitting = [(y, shapes) for y in self.values if (shapes := _broadcast(x, y)) is not None]
        y, shapes = self.pick(fitting[-5:])
        dims = [self.pick([1, size]) if size >= 0 else 1 for size in map(x.size, range(x.rank))]
        condition = self.constant(self.rng.random(dims) < 0.5)
        if _broadcast(x, dataclasses.replace(x, shapes=(tuple(dims),) * len(x.shapes))) == x.shapes:
            self.add("Where", [condition, x.name, y.name], x, shapes)

    def cast(self, x: Value) -> None:
        """To a type that holds the same numbers, and back."""
        is_float = x.dtype.startswith(("float", "bfloat"))
        other = self.pick(["float32", "float64"]) if is_float else "int64"
        code = helper.np_dtype_to_tensor_dtype(dtype_of(other))
        made = self.add("Cast", [x.name], dataclasses.replace(x, dtype=other), to=code)
        if made is not None:
            self.add("Cast", [made.name], x, to=helper.np_dtype_to_tensor_dtype(dtype_of(x.dtype)))


def _cut(begin: int, end: int, step: int) -> Callable[[int], int]:
    """The length of a Slice of an axis, as a function of its size. ONNX follows Python, except for ends far below 0."""

    def length(size: int) -> int:
        last = None if step < 0 and end == -1000 else end
        return len(range(size)[slice(begin, last, step)])

    return length


def _joins(x: Value, y: Value, axis: int) -> bool:
    if (x.dtype, x.rank) != (y.dtype, y.rank):
        return False
    pairs = zip(x.shapes, y.shapes, strict=True)
    return all((s[:axis], s[axis + 1 :]) == (t[:axis], t[axis + 1 :]) for s, t in pairs)


def _broadcast(x: Value, y: Value) -> tuple[tuple[int, ...], ...] | None:
    if x.dtype != y.dtype:
        return None
    try:
        return tuple(np.broadcast_shapes(s, t) for s, t in zip(x.shapes, y.shapes, strict=True))
    except ValueError:
        return None


MOVES = (
    *(Chain.slice, Chain.slice, Chain.transpose, Chain.transpose, Chain.reshape, Chain.reshape, Chain.squeeze),
    *(Chain.split, Chain.split, Chain.concat, Chain.concat, Chain.concat, Chain.expand, Chain.gather, Chain.pad),
    Chain.tile,
)
STEPS = (*MOVES, *MOVES, *(Chain.unary,) * 6, *(Chain.binary,) * 7, Chain.where, Chain.cast)

KNOWN: tuple[Known, ...] = ()


def case(rng: np.random.Generator) -> Case:
    chain = Chain(rng)
    for _ in range(int(rng.integers(1, 4))):
        dims = [chain.pick([1, 2, 3, 4, 8, "N", "N", "M"]) for _ in range(int(rng.integers(0, 5)))]
        if chain.inputs and chain.chance(0.6):
            dims = chain.inputs[0][1]
        chain.input(dims)
    for _ in range(int(rng.integers(2, 16))):
        chain.pick(STEPS)(chain, chain.pick(chain.values[-4:] if chain.chance(0.7) else chain.values))
    if not chain.nodes:
        chain.unary(chain.values[0])
    made = [value for value in chain.values if value.name.startswith("v")]
    read = {name for node in chain.nodes for name in node.input}
    outputs = [value for value in made if value.name not in read or chain.chance(0.2)]
    outputs += [value for value, _ in chain.inputs if chain.chance(0.05)]
    if chain.chance(0.3):
        outputs.reverse()
    graph = helper.make_graph(
        chain.nodes,
        "moves",
        [_port(value, dims) for value, dims in chain.inputs],
        [_port(value, None) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in chain.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", chain.opset)], ir_version=9)
    calls = []
    for _ in range(int(rng.integers(2, 9))):  # sizes come again
        setting = int(rng.integers(len(chain.settings)))
        calls.append({value.name: chain.data(value, setting) for value, _ in chain.inputs})
    manner = chain.pick(("in turn", "in turn", "in turn", "asynchronous", "threads"))
    judges = ("TEMPLATE",) if chain.dtype == "bfloat16" else ("TEMPLATE", "onnxruntime")  # it takes no such arrays
    return Case(model, calls, f"{chain.dtype}, opset {chain.opset}", 0.0, judges, manner=manner)


def _port(value: Value, dims: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(dtype_of(value.dtype)), dims)
