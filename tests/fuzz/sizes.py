"""Models whose sizes depend on data, called repeatedly with new and with earlier sizes.

The sizes come from inputs, from shapes, from counts (NonZero, Unique), and from results of a Loop. Nodes of the model
reduce numbers that become sizes modulo a small number, so that every call is valid. Floating-point values are small
integers, so that every implementation computes the same bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzz.differential import Case, Feeds, Known

__all__ = ["KNOWN", "case"]

MOST = 400  # elements of a value
LARGEST = 1 << 18  # magnitude: sums and products of a few such stay exact in float32
OPSETS = (16, 17, 18, 20, 21)
CODES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL, "int32": TensorProto.INT32}


@dataclasses.dataclass(frozen=True)
class Value:
    """``count``: the most elements. ``bound``: their largest magnitude. ``filled``: never empty."""

    name: str
    dtype: str
    rank: int
    count: int
    bound: float
    filled: bool = False

    @property
    def is_number(self) -> bool:
        return self.dtype != "bool"


class Maker:
    """The nodes of one graph. For a body, ``outer`` makes the graph around it."""

    def __init__(self, rng: np.random.Generator, opset: int, outer: Maker | None = None) -> None:
        self.rng = rng
        self.opset = opset
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.names: list[int] = [0] if outer is None else outer.names  # the number of names given in all graphs
        self.nodes: list[onnx.NodeProto] = []
        self.values: list[Value] = []
        self.numbers: list[Value] = []  # int64 scalars that are not negative
        self.constants: dict[str, np.ndarray] = {}

    # ---- choosing

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def some(self, accepts: Callable[[Value], bool]) -> Value | None:
        found = [value for value in self.values if accepts(value)]
        if not found:
            return None
        return self.pick(found[-5:] if self.chance(0.6) else found)

    # ---- adding

    def new_name(self, prefix: str = "v") -> str:
        self.names[0] += 1
        return f"{prefix}{self.names[0]}"

    def constant(self, array: np.ndarray) -> str:
        name = self.new_name("c")
        self.constants[name] = array
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def raw(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node with one output, which the operators below do not choose as an operand."""
        made = self.new_name()
        self.nodes.append(helper.make_node(op, list(inputs), [made], **attributes))
        return made

    def add(self, op: str, inputs: Sequence[str], like: Value, **attributes: Any) -> Value:
        made = dataclasses.replace(like, name=self.raw(op, inputs, **attributes))
        self.values.append(made)
        return made

    # ---- numbers

    def number(self, most: int, least: int = 0, *, as_list: bool = False) -> str:
        """An int64 from ``least`` to ``most``, a scalar or a list of one, that the model computes."""
        source = self.pick(["number"] * 4 + ["size"] * 2 + ["sum", "count", "two numbers"])
        value = self.some(lambda v: v.rank > 0)
        bound = math.inf
        if source == "number" and self.numbers:
            known = self.pick(self.numbers)
            name, bound = known.name, known.bound
        elif source == "two numbers" and self.numbers:
            op = self.pick(("Add", "Mul", "Max"))
            name = self.raw(op, [self.pick(self.numbers).name, self.pick(self.numbers).name])
        elif value is not None and source == "sum" and value.dtype == "int64":
            name = self.raw("ReduceSum", [value.name], keepdims=0)
        elif value is not None and source == "count":
            places = self.raw("NonZero", [value.name])
            name = self.raw("Gather", [self.raw("Shape", [places]), self.constant(np.array(1))])
        elif value is not None:
            axis = int(self.rng.integers(value.rank))
            name = self.raw("Gather", [self.raw("Shape", [value.name]), self.constant(np.array(axis))])
        else:
            name = self.constant(np.array(int(self.rng.integers(most + 1))))
        if bound > most - least:
            name = self.raw("Mod", [name, self.constant(np.array(most - least + 1))])
        if least:
            name = self.raw("Add", [name, self.constant(np.array(least))])
        if self.chance(0.3):
            self.numbers.append(Value(name, "int64", 0, 1, most, True))
        return self.raw("Unsqueeze", [name, self.ints(0)]) if as_list else name

    def numbers_list(self, ranges: Sequence[tuple[int, int]]) -> str:
        """A list of numbers, one from each range."""
        given = [self.number(most, least, as_list=True) for least, most in ranges]
        return self.raw("Concat", given, axis=0) if len(given) > 1 else given[0]

    # ---- operators; each adds what it makes, or nothing where it does not fit

    def range(self, _: Value) -> None:
        step = self.pick((1, 1, 2, -1))
        begin, end = self.number(3), self.number(7)
        self.add("Range", [begin, end, self.constant(np.array(step))], Value("", "int64", 1, 7, 7))

    def tile(self, x: Value) -> None:
        if x.rank and x.count * 3**x.rank <= MOST:
            least = int(self.chance(0.8))
            times = self.numbers_list([(least, 3)] * x.rank)
            self.add(
                "Tile",
                [x.name, times],
                dataclasses.replace(x, count=x.count * 3**x.rank, filled=x.filled and least > 0),
            )

    def flat(self, x: Value) -> Value:
        if x.rank == 1:
            return x
        return self.add("Reshape", [x.name, self.ints(-1)], dataclasses.replace(x, rank=1))

    def reshape(self, x: Value) -> None:
        if x.count * 3 > MOST or self.chance(0.3):
            self.flat(x)
            return
        flat = self.flat(x)
        rows = self.number(3, 1, as_list=True)
        tiled = self.add("Tile", [flat.name, rows], dataclasses.replace(flat, count=3 * x.count))
        columns = self.raw("Shape", [flat.name])
        order = [rows, columns] if self.chance(0.5) else [columns, rows]
        shape = self.raw("Concat", order, axis=0)
        self.add("Reshape", [tiled.name, shape], dataclasses.replace(tiled, rank=2), allowzero=1)

    def slice(self, x: Value) -> None:
        if not x.rank:
            return
        axes = sorted({int(self.rng.integers(x.rank)) for _ in range(2)})
        begins, ends = (self.numbers_list([(0, 6)] * len(axes)) for _ in range(2))
        if self.chance(0.3):
            begins = self.raw("Neg", [begins])
        if self.chance(0.3):
            ends = self.raw("Neg", [ends])
        inputs = [x.name, begins, ends, self.ints(*axes)]
        if self.chance(0.4):
            inputs.append(self.ints(*(self.pick((1, 2, -1, -2)) for _ in axes)))
        self.add("Slice", inputs, dataclasses.replace(x, filled=False))

    def nonzero(self, x: Value) -> None:
        if not x.rank or x.count * x.rank > MOST:
            return
        places = self.add("NonZero", [x.name], Value("", "int64", 2, x.count * x.rank, MOST))
        if self.chance(0.5):
            rows = self.add("Transpose", [places.name], places)
            self.add("GatherND", [x.name, rows.name], dataclasses.replace(x, rank=1, filled=False))

    def unique(self, x: Value) -> None:
        if x.dtype not in ("float32", "int64") or not x.rank:
            return
        axis = {"axis": int(self.rng.integers(x.rank))} if x.filled and self.chance(0.4) else {}
        if not axis:
            x = dataclasses.replace(x, rank=1)
        names = [self.new_name() for _ in range(4)]
        # onnxruntime gives places as those of a list without an axis, too.
        self.nodes.append(helper.make_node("Unique", [x.name], names, sorted=1, **axis))
        places = Value("", "int64", 1, x.count, x.count, x.filled)
        kinds = [x, places, places, places]
        self.values += [dataclasses.replace(kind, name=name) for kind, name in zip(kinds, names, strict=True)]

    def compress(self, x: Value) -> None:
        if x.rank and x.is_number:
            flat = self.raw("Reshape", [x.name, self.ints(-1)])
            chosen = self.raw("Greater", [flat, self.constant(np.array(int(self.rng.integers(-3, 3)), x.dtype))])
            self.add("Compress", [x.name, chosen], dataclasses.replace(x, rank=1, filled=False))

    def top_k(self, x: Value) -> None:
        if x.dtype not in ("float32", "int64") or not x.rank:
            return
        length = self.raw("Slice", [self.raw("Shape", [x.name]), self.ints(-1), self.ints(99)])
        k = self.raw("Min", [length, self.number(5, as_list=True)])
        names = [self.new_name(), self.new_name()]
        self.nodes.append(helper.make_node("TopK", [x.name, k], names, axis=-1, largest=int(self.chance(0.5))))
        self.values.append(dataclasses.replace(x, name=names[0], filled=False))
        self.values.append(Value(names[1], "int64", x.rank, x.count, x.count))

    def expand(self, x: Value) -> None:
        if x.rank < 3 and x.count * 3 <= MOST:
            shape = self.number(3, int(self.chance(0.8)), as_list=True)
            if x.rank:
                shape = self.raw("Concat", [shape, self.raw("Shape", [x.name])], axis=0)
            self.add(
                "Expand", [x.name, shape], dataclasses.replace(x, rank=x.rank + 1, count=x.count * 3, filled=False)
            )

    def constant_of_shape(self, _: Value) -> None:
        rank = int(self.rng.integers(1, 3))
        dtype = self.pick(("float32", "int64", "bool"))
        value = helper.make_tensor(
            "value", CODES[dtype], [1], [1 if dtype == "bool" else int(self.rng.integers(-3, 4))]
        )
        self.add(
            "ConstantOfShape", [self.numbers_list([(0, 4)] * rank)], Value("", dtype, rank, 4**rank, 4), value=value
        )

    def one_hot(self, x: Value) -> None:
        if x.dtype == "int64" and 0 < x.rank < 3 and x.count * 6 <= MOST:
            values = self.constant(np.array([self.pick((0, -1)), 2], self.pick(("float32", "int64"))))
            kind = Value("", str(self.constants[values].dtype), x.rank + 1, 6 * x.count, 2, x.filled)
            depth = self.number(6, 1, as_list=self.chance(0.5))
            self.add("OneHot", [x.name, depth, values], kind, axis=self.pick((-1, 0)))

    def resize(self, x: Value) -> None:
        if x.dtype == "float32" and x.rank in (1, 2) and x.filled and x.count * 9 <= MOST:
            times = self.numbers_list([(1, 3)] * x.rank)
            sizes = self.raw("Mul", [self.raw("Shape", [x.name]), times])
            how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
            self.add("Resize", [x.name, "", "", sizes], dataclasses.replace(x, count=9 * x.count), **how)

    def pad(self, x: Value) -> None:
        if x.is_number and x.rank == 1 and x.count < MOST // 2:
            pads = self.numbers_list([(0, 3), (0, 3)])
            self.add(
                "Pad", [x.name, pads, self.constant(np.array(1, x.dtype))], dataclasses.replace(x, count=x.count + 6)
            )

    def concat(self, x: Value) -> None:
        other = self.some(lambda v: v.dtype == x.dtype and v.count + x.count <= MOST)
        if other is not None and x.rank:
            parts = [self.flat(x), self.flat(other) if other.rank else self.filled(other)]
            made = dataclasses.replace(x, rank=1, count=x.count + other.count, bound=max(x.bound, other.bound))
            made = dataclasses.replace(made, filled=x.filled or other.filled)
            self.add("Concat", [part.name for part in parts], made, axis=0)

    def filled(self, x: Value) -> Value:
        """``x`` as a list of at least one element."""
        if x.filled:
            return self.flat(x)
        more = self.constant(np.ones(1, x.dtype))
        made = dataclasses.replace(x, rank=1, count=x.count + 1, bound=max(x.bound, 1), filled=True)
        return self.add("Concat", [self.flat(x).name, more], made, axis=0)

    def split(self, x: Value) -> None:
        if x.rank == 1:
            length = self.raw("Shape", [x.name])
            first = self.raw("Min", [length, self.number(4, as_list=True)])
            sizes = self.raw("Concat", [first, self.raw("Sub", [length, first])], axis=0)
            names = [self.new_name(), self.new_name()]
            self.nodes.append(helper.make_node("Split", [x.name, sizes], names, axis=0))
            self.values += [dataclasses.replace(x, name=name, filled=False) for name in names]

    def gather(self, x: Value) -> None:
        places = self.some(lambda v: v.dtype == "int64" and v.rank == 1)
        if x.rank == 1 and places is not None and x.count < MOST:
            whole = self.filled(x)
            inside = self.raw("Mod", [places.name, self.raw("Shape", [whole.name])])
            self.add(
                "Gather", [whole.name, inside], dataclasses.replace(whole, count=places.count, filled=places.filled)
            )

    def trilu(self, x: Value) -> None:
        if x.rank == 2 and x.dtype in ("float32", "int64"):
            k = self.raw("Sub", [self.number(4), self.constant(np.array(2))])
            self.add("Trilu", [x.name, k], x, upper=int(self.chance(0.5)))

    def unary(self, x: Value) -> None:
        if x.dtype == "bool":
            self.add(self.pick(("Not", "Identity")), [x.name], x)
        else:
            ops = ["Neg", "Abs", "Identity", "Sign", "Relu"] if x.dtype == "float32" else ["Neg", "Abs", "Identity"]
            self.add(self.pick(ops), [x.name], x)

    def binary(self, x: Value) -> None:
        """With a number, with itself, or with a list of one element."""
        if x.dtype == "bool":
            return
        other = x.name
        bound = x.bound
        if self.chance(0.8):
            other, bound = self.number(5, as_list=x.rank > 0 and self.chance(0.5)), 5
            if x.dtype != "int64":
                other = self.raw("Cast", [other], to=CODES[x.dtype])
        op = self.pick(("Add", "Sub", "Mul", "Less", "GreaterOrEqual", "Equal", "Min", "Max"))
        made = dataclasses.replace(x, bound=x.bound * bound if op == "Mul" else x.bound + bound)
        if op in ("Less", "GreaterOrEqual", "Equal"):
            made = dataclasses.replace(x, dtype="bool", bound=1)
        if made.bound <= LARGEST:
            self.add(op, [x.name, other] if self.chance(0.5) else [other, x.name], made)

    def cast(self, x: Value) -> None:
        target = self.pick(("float32", "float32", "int64", "int64", "bool"))
        self.add(
            "Cast",
            [x.name],
            dataclasses.replace(x, dtype=target, bound=1 if target == "bool" else x.bound),
            to=CODES[target],
        )

    def where(self, x: Value) -> None:
        if x.dtype in ("float32", "int64"):
            condition = self.raw("Greater", [x.name, self.constant(np.array(0, x.dtype))])
            other = self.number(5)
            if x.dtype != "int64":
                other = self.raw("Cast", [other], to=CODES[x.dtype])
            self.add("Where", [condition, x.name, other], dataclasses.replace(x, bound=max(x.bound, 5)))

    def reduce(self, x: Value) -> None:
        if x.dtype in ("float32", "int64") and x.rank and x.bound * x.count <= LARGEST:
            axis, keep = int(self.rng.integers(x.rank)), int(self.chance(0.5))
            made = dataclasses.replace(x, rank=x.rank - 1 + keep, bound=x.bound * x.count, filled=False)
            if x.rank == 1:
                made = dataclasses.replace(made, count=1, filled=True)
            self.add("ReduceSum", [x.name, self.ints(axis)], made, keepdims=keep)

    def cumulate(self, x: Value) -> None:
        if x.dtype in ("float32", "int64") and x.rank and x.bound * x.count <= LARGEST:
            self.add("CumSum", [x.name, self.constant(np.array(0))], dataclasses.replace(x, bound=x.bound * x.count))

    def transpose(self, x: Value) -> None:
        if x.rank > 1:
            order = [int(axis) for axis in self.rng.permutation(x.rank)]
            self.add("Transpose", [x.name], x, perm=order)
        elif x.rank == 1:
            self.add("Unsqueeze", [x.name, self.ints(self.pick((0, 1)))], dataclasses.replace(x, rank=2))

    def product(self, x: Value) -> None:
        if x.dtype == "float32" and x.count**2 <= MOST and x.bound**2 <= LARGEST:
            flat = self.flat(x) if x.rank else self.filled(x)
            column, row = (self.raw("Unsqueeze", [flat.name, self.ints(axis)]) for axis in (1, 0))
            made = dataclasses.replace(flat, rank=2, count=x.count**2, bound=x.bound**2)
            self.add("MatMul", [column, row], made)

    def size(self, x: Value) -> None:
        if x.rank:
            self.add("Shape", [x.name], Value("", "int64", 1, x.rank, MOST, True))

    def boxes(self, _: Value) -> None:
        """NonMaxSuppression, which stages as NonZero and Unique do."""
        corners = np.sort(self.rng.integers(0, 50, (1, 6, 2, 2)), 2).reshape(1, 6, 4).astype(np.float32)
        scores = self.rng.permutation(12).reshape(1, 2, 6).astype(np.float32)
        inputs = [self.constant(corners), self.constant(scores), self.number(5, as_list=True)]
        inputs += [self.constant(np.float32([0.43])), self.constant(np.float32([2.5]))]
        self.add("NonMaxSuppression", inputs, Value("", "int64", 2, 36, 6))

    # ---- control flow

    def inner(self, inputs: Sequence[Value] = ()) -> Maker:
        """A maker of a body that sees some of the values of this graph."""
        made = Maker(self.rng, self.opset, self)
        count = min(len(self.values), 4)
        made.values = [*(self.values[int(at)] for at in self.rng.choice(len(self.values), count, False)), *inputs]
        made.numbers = list(self.numbers)
        return made

    def fitted(self, x: Value, dtype: str, rank: int) -> Value:
        """``x`` as a value of this type and rank 0 or 1, of at most 12 elements of magnitude 8."""
        if x.dtype != dtype:
            x = self.add("Cast", [x.name], dataclasses.replace(x, dtype=dtype), to=CODES[dtype])
        if rank == 0:
            x = self.add(
                "ReduceSum", [x.name], dataclasses.replace(x, rank=0, count=1, bound=x.bound * x.count), keepdims=0
            )
        elif x.rank != 1:
            x = self.flat(x)
        if x.bound > 8:
            limits = [self.constant(np.array(limit, dtype)) for limit in (-8, 8)]
            x = self.add("Clip", [x.name, *limits], dataclasses.replace(x, bound=8))
        if x.count > 12:
            x = self.add("Slice", [x.name, self.ints(0), self.ints(12)], dataclasses.replace(x, count=12, filled=False))
        return x

    def work(self, least: int, most: int, makers: Sequence[Callable[[Maker, Value], None]]) -> None:
        for _ in range(int(self.rng.integers(least, most + 1))):
            self.pick(makers)(self, self.pick(self.values[-5:] if self.chance(0.6) else self.values))

    def graph(
        self, name: str, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[tuple[str, str, int]]
    ) -> onnx.GraphProto:
        """A body. ``outputs``: name, element type and rank."""
        return helper.make_graph(
            self.nodes,
            name,
            list(inputs),
            [port(made, dtype, [None] * rank) for made, dtype, rank in outputs],
            [numpy_helper.from_array(array, key) for key, array in self.constants.items()],
        )

    def condition(self) -> str:
        way = self.pick(("number", "sum", "constant"))
        if way == "constant" and self.chance(0.3):
            return self.constant(np.array(self.chance(0.5)))
        value = self.some(lambda v: v.dtype == "bool")
        if way == "sum" and value is not None:
            ones = self.raw("Cast", [value.name], to=TensorProto.INT64)
            return self.raw("Greater", [self.raw("ReduceSum", [ones], keepdims=0), self.constant(np.array(1))])
        return self.raw("Less", [self.number(5), self.constant(np.array(3))])

    def if_(self, _: Value) -> None:
        kinds = [(self.pick(("float32", "int64")), self.pick((0, 1, 1))) for _ in range(self.pick((1, 1, 2)))]
        branches = []
        for name in ("then", "else"):
            body = self.inner()
            body.work(0, 4, BODY if self.depth < 1 else SIMPLE)
            made = []
            for dtype, rank in kinds:
                value = body.fitted(body.pick(body.values), dtype, rank)
                same = body.raw("Identity", [value.name])  # an output may not be a value of the graph around it
                made.append((same, dtype, rank))
            if len(kinds) == 2 and kinds[0] == kinds[1] and self.chance(0.3):
                made[1] = (body.raw("Identity", [made[0][0]]), *kinds[0])
            branches.append(body.graph(name, (), made))
        names = [self.new_name() for _ in kinds]
        condition = self.condition()
        self.nodes.append(helper.make_node("If", [condition], names, then_branch=branches[0], else_branch=branches[1]))
        self.values += [Value(name, dtype, rank, 12, 8) for name, (dtype, rank) in zip(names, kinds, strict=True)]

    def loop(self, _: Value) -> None:
        kinds = [(self.pick(("float32", "int64")), self.pick((0, 1, 1))) for _ in range(int(self.rng.integers(1, 4)))]
        starts = [self.fitted(self.pick(self.values), *kind) for kind in kinds]
        if len(kinds) > 1 and self.chance(0.3):
            kinds[1], starts[1] = kinds[0], starts[0]
        trip, proceed = self.new_name("i"), self.new_name("g")
        carried = [Value(self.new_name("a"), dtype, rank, 12, 8) for dtype, rank in kinds]
        body = self.inner(carried)
        body.numbers.append(Value(trip, "int64", 0, 1, 5, True))
        results: list[str] = []
        if self.chance(0.35):  # of one type: such iterations may be made in C
            for value in carried:
                step = body.add("Neg", [value.name], value)
                more = body.constant(np.array(1, value.dtype))
                limits = [body.constant(np.array(limit, value.dtype)) for limit in (-8, 8)]
                results.append(body.raw("Clip", [body.raw("Sub", [step.name, more]), *limits]))
        else:
            body.work(0, 4, BODY if self.depth < 1 else SIMPLE)
            results += [body.fitted(body.pick(body.values), *kind).name for kind in kinds]
        for at, (value, kind) in enumerate(zip(carried, kinds, strict=True)):
            way = self.rng.random()
            if way < 0.15:
                results[at] = value.name  # passed on
            elif way < 0.3:
                other = body.some(lambda v, kind=kind: (v.dtype, v.rank) == kind and v.bound <= 8 and v.count <= 12)
                if other is not None:
                    results[at] = body.raw("Identity", [other.name])  # a capture, or another one of the carried
            elif way < 0.45 and kind[1] == 1:
                item = body.fitted(body.pick(body.values), *kind)
                both = [value.name, item.name] if self.chance(0.5) else [item.name, value.name]
                grown = body.raw("Concat", both, axis=0)
                results[at] = grown if self.chance(0.6) else body.raw("Slice", [grown, body.ints(0), body.ints(12)])
        made = list(zip(results, *zip(*kinds, strict=True), strict=True))
        stacked = 0
        if self.chance(0.5):  # of iterations that give one size alone
            value = body.pick(body.values)
            dtype = value.dtype if value.is_number else "int64"
            made.append((body.fitted(value, dtype, 0).name, dtype, 0))
            stacked = 1
        if self.chance(0.5):
            go = body.raw("Identity", [proceed])
        else:
            go = body.raw("Less", [trip, body.constant(np.array(int(self.rng.integers(4))))])
        inputs = [port(trip, "int64", []), port(proceed, "bool", [])]
        inputs += [port(value.name, value.dtype, [None] * value.rank) for value in carried]
        # onnxruntime mistakes an input of a body that is its output for what lay in its memory.
        made = body.renamed(made)
        graph = body.graph("body", inputs, [(go, "bool", 0), *made])
        names = [self.new_name() for _ in made]
        first = [self.number(4), self.condition() if self.chance(0.3) else ""]
        self.nodes.append(helper.make_node("Loop", [*first, *(start.name for start in starts)], names, body=graph))
        for name, (dtype, rank) in zip(names, kinds, strict=False):
            self.values.append(Value(name, dtype, rank, 60, 8))
        if stacked:
            self.values.append(Value(names[-1], made[-1][1], 1, 4, 8))

    def renamed(self, made: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
        """Outputs of a body, which must be made in it."""
        own = {name for node in self.nodes for name in node.output}
        return [
            (name if name in own and self.chance(0.5) else self.raw("Identity", [name]), dtype, rank)
            for name, dtype, rank in made
        ]

    def scan(self, x: Value) -> None:
        if x.dtype not in ("float32", "int64") or x.rank != 1 or x.count * 3 > MOST or x.bound * 8 > LARGEST:
            return
        rows = self.raw("Concat", [self.number(3, 1, as_list=True), self.raw("Shape", [x.name])], axis=0)
        table = self.add("Expand", [x.name, rows], dataclasses.replace(x, rank=2, count=3 * x.count, filled=False))
        start = self.add("ReduceSum", [table.name, self.ints(0)], dataclasses.replace(x, bound=3 * x.bound), keepdims=0)
        state, row = self.new_name("s"), self.new_name("r")
        body = self.inner([dataclasses.replace(x, name=row)])
        following = body.raw("Add", [state, row])
        out = body.raw(self.pick(("Neg", "Abs")), [self.pick((state, row))])
        count = body.raw("Cast", [body.raw("Shape", [body.raw("NonZero", [row])])], to=CODES[x.dtype])
        inputs = [port(name, x.dtype, [None]) for name in (state, row)]
        graph = body.graph("body", inputs, [(name, x.dtype, 1) for name in (following, out, count)])
        names = [self.new_name() for _ in range(3)]
        directions = {
            "scan_input_directions": [int(self.chance(0.3))],
            "scan_output_directions": [int(self.chance(0.3)), 0],
        }
        self.nodes.append(
            helper.make_node("Scan", [start.name, table.name], names, body=graph, num_scan_inputs=1, **directions)
        )
        self.values.append(dataclasses.replace(x, name=names[0], bound=8 * x.bound))
        self.values.append(dataclasses.replace(table, name=names[1], bound=3 * x.bound))
        self.values.append(Value(names[2], x.dtype, 2, 6, x.count))


SIMPLE = (Maker.unary, Maker.binary, Maker.cast, Maker.slice, Maker.concat, Maker.where, Maker.reduce, Maker.transpose)
SIZED = (
    *(Maker.range, Maker.tile, Maker.reshape, Maker.nonzero, Maker.unique, Maker.compress, Maker.top_k, Maker.expand),
    *(Maker.constant_of_shape, Maker.one_hot, Maker.pad, Maker.split, Maker.gather, Maker.trilu, Maker.slice),
)
BODY = (*SIMPLE, *SIZED, Maker.if_)
FLOW = (Maker.if_, Maker.loop, Maker.scan)
ALL = (
    *(*SIMPLE, *SIZED, *SIZED, *FLOW, *FLOW, Maker.unique, Maker.nonzero),
    *(Maker.resize, Maker.cumulate, Maker.product, Maker.size, Maker.boxes),
)


def port(name: str, dtype: str, dims: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, CODES[dtype], dims)


def case(rng: np.random.Generator) -> Case:
    """A model, and calls of a few settings of its sizes, in random order."""
    maker = Maker(rng, int(rng.choice(OPSETS)))
    inputs: list[tuple[str, str, list[str]]] = [("x", "float32", ["N"])]
    for name, dtype, dims in (
        ("z", "float32", ["A", "B"]),
        ("i", "int64", ["M"]),
        ("y", "float32", ["N"]),
        ("q", "bool", ["K"]),
    ):
        if maker.chance(0.45):
            inputs.append((name, dtype, dims))
    maker.values = [
        Value(name, dtype, len(dims), 7 ** len(dims), 1 if dtype == "bool" else 6) for name, dtype, dims in inputs
    ]
    numbers = ["k", "l", "m"][: int(rng.integers(1, 4))]
    maker.numbers = [Value(name, "int64", 0, 1, 5, True) for name in numbers]
    reshaped = maker.chance(0.3)
    if reshaped:  # to a shape that the caller gives
        made = maker.raw("Reshape", ["w", "dims"])
        maker.values += [Value(made, "float32", 2, 36, 6), Value("dims", "int64", 1, 2, 6, True)]
    maker.work(3, 14, ALL)
    made_by_node = [value for value in (*maker.values, *maker.numbers) if value.name.startswith("v")]
    everything = list({value.name: value for value in made_by_node}.values())
    read = {name for node in maker.nodes for name in node.input}
    outputs = [value for value in everything if value.name not in read or maker.chance(0.3)]
    outputs += [value for value in maker.values if value.name in ("x", "z", "i", "dims") and maker.chance(0.05)]
    outputs = outputs or everything or [maker.add("Identity", ["x"], maker.values[0])]
    ports = [port(name, dtype, list(dims)) for name, dtype, dims in inputs] + [
        port(name, "int64", []) for name in numbers
    ]
    if reshaped:
        ports += [port("w", "float32", ["W"]), port("dims", "int64", [2])]
    graph = helper.make_graph(
        maker.nodes,
        "sizes",
        ports,
        [port(value.name, value.dtype, None) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in maker.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", maker.opset)], ir_version=8)
    calls = _calls(rng, inputs, numbers, reshaped)
    properties = {"ISOLATION": "PROCESS"} if maker.chance(0.03) else {}
    return Case(
        model,
        calls,
        properties=properties,
        manner=maker.pick(("in turn", "in turn", "in turn", "asynchronous", "threads")),
    )


def _calls(
    rng: np.random.Generator, inputs: Sequence[tuple[str, str, list[str]]], numbers: Sequence[str], reshaped: bool
) -> list[Feeds]:
    """Settings come again, with the same data or with others."""
    sizes = (0, 1, 2, 3, 5, 7) if rng.random() < 0.3 else (1, 2, 3, 5, 7)
    settings: list[dict[str, np.ndarray]] = []
    many = rng.random() < 0.02  # more plans than are kept
    for _ in range(int(rng.integers(20, 50) if many else rng.integers(2, 8))):
        size_of = {name: int(rng.choice(sizes)) for name in "NABMK"}
        feeds = {name: _data(rng, dtype, [size_of[dim] for dim in dims]) for name, dtype, dims in inputs}
        feeds |= {name: np.array(rng.integers(0, 6)) for name in numbers}
        if reshaped:
            dims = rng.integers(1, 7, 2)
            feeds |= {"w": _data(rng, "float32", [int(dims.prod())]), "dims": dims}
        settings.append(feeds)
    calls: list[Feeds] = []
    for _ in range(150 if many else int(rng.choice([4, 8, 12, 30], p=[0.3, 0.4, 0.25, 0.05]))):
        feeds = settings[int(rng.integers(len(settings)))]
        if rng.random() < 0.5:
            feeds = {
                name: array if name in (*numbers, "dims") else _data(rng, str(array.dtype), array.shape)
                for name, array in feeds.items()
            }
        calls.append(feeds)
    return calls


def _data(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    return np.asarray(rng.integers(-4, 6, shape), dtype)


KNOWN: tuple[Known, ...] = ()
