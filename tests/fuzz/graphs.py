"""Random graphs of mixed element types, with broadcasting, views of one value in several shapes, and casts.

Results are well-defined: floating-point values stay exact (small dyadic numbers) up to an inexact function, and no node
compares, counts or casts an inexact value. Magnitudes are tracked so that nothing overflows. Some graphs have NaN and
infinities; no node of them depends on an order among these.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.differential import LOG_SOFTMAX, Case, Known

__all__ = ["case"]

Dim = int | str

TYPES = {"float32": 30, "int64": 20, "int32": 14, "bool": 10, "float64": 8, "uint8": 6, "int8": 4, "float16": 3}
TYPES |= {"uint64": 2, "uint32": 2, "int16": 2, "uint16": 1}
LARGEST = {
    "float32": 1 << 20,
    "float64": 1 << 20,
    "float16": 1 << 9,
    "int64": 1 << 40,
    "uint64": 1 << 40,
    "int32": 1 << 28,
}
LARGEST |= {"uint32": 1 << 28, "int16": 1 << 14, "uint16": 1 << 14, "int8": 120, "uint8": 240, "bool": 1}
SIZES = (1, 1, 2, 3, 4, 4, 5, 8, 8, 16, 17)


@dataclasses.dataclass(frozen=True)
class Value:
    """``bound``: no element is larger in magnitude. ``exact``: the same bits in every implementation."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    exact: bool
    bound: float

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")


class Maker:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.opset = int(rng.choice([13, 14, 16, 17, 18, 20, 21]))
        self.may_be_empty = rng.random() < 0.1
        self.is_special = not self.may_be_empty and rng.random() < 0.12  # some inputs are NaN or infinite
        self.nodes: list[onnx.NodeProto] = []
        self.values: list[Value] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[Value] = []

    # -- choosing

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def value(self, accepts: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """One of the values, a recent one more often than not."""
        values = [value for value in self.values if accepts(value)]
        if not values:
            return None
        recent = values[-4:] if self.rng.random() < 0.6 else values
        return self.pick(recent)

    def dtype(self) -> str:
        weights = np.array(list(TYPES.values()), float)
        return str(self.rng.choice(list(TYPES), p=weights / weights.sum()))

    def shape(self) -> tuple[Dim, ...]:
        rank = int(self.rng.choice([0, 1, 2, 2, 3, 3, 4], p=[0.05, 0.2, 0.2, 0.2, 0.15, 0.1, 0.1]))
        sizes: list[Dim] = [self.pick(SIZES) for _ in range(rank)]
        return tuple(self.pick(("N", "M")) if self.rng.random() < 0.25 else size for size in sizes)

    def beside(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """A shape that broadcasts with ``shape``: some dimensions are 1, leading ones are left out or added."""
        made = [size if self.rng.random() < 0.6 else 1 for size in shape]
        way = self.rng.random()
        if way < 0.3:
            made = made[int(self.rng.integers(len(made) + 1)) :]
        elif way < 0.45 and len(made) < 4:
            made = [self.pick(SIZES), *made]
        return tuple(made)

    # -- adding

    def array(self, dtype: str, shape: tuple[int, ...], bound: int = 8) -> np.ndarray:
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        least = 0 if dtype.startswith("u") else -bound
        numbers = self.rng.integers(least, bound, shape, endpoint=True)
        if dtype.startswith("float"):
            return np.asarray(numbers / self.pick((1, 2, 4)), dtype)
        return np.asarray(numbers, dtype)

    def add_input(self, dtype: str, shape: tuple[Dim, ...]) -> Value:
        made = Value(f"x{len(self.inputs)}", dtype, shape, True, 1 if dtype == "bool" else 8)
        self.inputs.append(made)
        self.values.append(made)
        return made

    def add_constant(self, dtype: str, shape: tuple[Dim, ...]) -> Value:
        sizes = tuple(size if isinstance(size, int) else 1 for size in shape)
        return self.constant(self.array(dtype, sizes))

    def constant(self, array: np.ndarray) -> Value:
        made = Value(
            f"c{len(self.constants)}", str(array.dtype), array.shape, True, float(np.abs(array).max(initial=0))
        )
        self.constants[made.name] = array
        return made

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64)).name

    def node(self, op: str, inputs: Sequence[str], result: Value, **attributes: Any) -> Value:
        made = dataclasses.replace(result, name=f"v{len(self.values)}")
        self.nodes.append(helper.make_node(op, list(inputs), [made.name], **attributes))
        self.values.append(made)
        return made

    def operand(self, like: Value) -> Value:
        """A second operand of the same type: an older value that broadcasts, a view, a constant, a new input."""
        way = self.rng.random()
        if way < 0.1:
            return like
        if way < 0.6:
            other = self.value(lambda v: v.dtype == like.dtype and broadcast(v.shape, like.shape) is not None)
            if other is not None:
                return other
        if way < 0.8 and like.shape:
            return self.view(like)
        if way < 0.9 or len(self.inputs) >= 5:
            return self.add_constant(like.dtype, self.beside(like.shape))
        return self.add_input(like.dtype, self.beside(like.shape))

    # -- operators

    def view(self, value: Value) -> Value:
        """The same elements under another shape; most share memory with the value."""
        way = int(self.rng.integers(7))
        many = "*".join(map(str, value.shape)) if any(isinstance(s, str) for s in value.shape) else None
        count: Dim = int(np.prod(value.shape, dtype=np.int64)) if many is None else many
        if len(value.shape) == 1:
            count = value.shape[0]
        if way == 0:
            return self.node("Reshape", [value.name, self.ints(-1)], dataclasses.replace(value, shape=(count,)))
        if way == 1:
            return self.node("Reshape", [value.name, self.ints(-1, 1)], dataclasses.replace(value, shape=(count, 1)))
        if way == 2:
            return self.node("Reshape", [value.name, self.ints(1, -1)], dataclasses.replace(value, shape=(1, count)))
        if way == 3 and len(value.shape) < 5:
            axis = int(self.rng.integers(len(value.shape) + 1))
            shape = (*value.shape[:axis], 1, *value.shape[axis:])
            return self.node("Unsqueeze", [value.name, self.ints(axis)], dataclasses.replace(value, shape=shape))
        if way == 4 and 1 in value.shape:
            axis = value.shape.index(1)
            shape = (*value.shape[:axis], *value.shape[axis + 1 :])
            return self.node("Squeeze", [value.name, self.ints(axis)], dataclasses.replace(value, shape=shape))
        if way == 5 and len(value.shape) > 1:
            order = [int(axis) for axis in self.rng.permutation(len(value.shape))]
            shape = tuple(value.shape[axis] for axis in order)
            return self.node("Transpose", [value.name], dataclasses.replace(value, shape=shape), perm=order)
        return self.node("Identity", [value.name], value)

    def unary(self, value: Value) -> None:
        if value.dtype == "bool":
            self.node("Not", [value.name], value)
        elif value.is_float and self.rng.random() < 0.3:
            if value.bound <= 16:
                op = self.pick(("Exp", "Tanh", "Sigmoid", "Erf", "Softplus", "Sin"))
                bound = float(np.exp(value.bound)) + 1 if op == "Exp" else value.bound + 1
                self.node(op, [value.name], dataclasses.replace(value, exact=False, bound=bound))
        elif value.is_float:
            op = self.pick(
                (
                    "Neg",
                    "Abs",
                    "Relu",
                    "Floor",
                    "Ceil",
                    "Sign",
                    "LeakyRelu",
                    "Clip",
                    "Round",
                    "IsNaN",
                    "HardSwish",
                    "Elu",
                )
            )
            if op in ("Floor", "Ceil", "Sign", "Round") and not value.exact:
                return
            if op == "IsNaN" and value.dtype in ("float32", "float64", "float16"):
                self.node(op, [value.name], Value("", "bool", value.shape, True, 1))
                return
            if op in ("HardSwish", "Elu"):
                if value.bound <= 64 and (op == "Elu" or self.opset >= 14):
                    self.node(op, [value.name], dataclasses.replace(value, exact=False, bound=2 * value.bound + 4))
                return
            extra = [self.constant(np.array(x, value.dtype)).name for x in (-2, 3)] if op == "Clip" else []
            attributes = {"alpha": 0.5} if op == "LeakyRelu" else {}
            self.node(op, [value.name, *extra], dataclasses.replace(value, bound=value.bound + 1), **attributes)
        elif value.dtype.startswith("u"):
            if self.opset >= 18:
                self.node("BitwiseNot", [value.name], dataclasses.replace(value, bound=2.0**70))
        else:
            self.node(self.pick(("Neg", "Abs", "Sign")), [value.name], value)

    def binary(self, a: Value) -> None:
        b = self.operand(a)
        if self.rng.random() < 0.5:
            a, b = b, a
        shape = broadcast(a.shape, b.shape)
        if shape is None:
            return
        exact = a.exact and b.exact
        if a.dtype == "bool":
            ops = ["And", "Or", "Xor", "Equal"]
        elif not exact:
            ops = ["Add", "Sub", "Mul", "Min", "Max"]
        else:
            ops = ["Add", "Sub", "Mul", "Min", "Max", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
            ops += ["Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
            if not a.is_float and self.opset >= 18:
                ops += ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]
        if a.dtype in ("int16", "uint16", "int8", "uint8") and self.opset < 14:
            ops = [op for op in ops if op not in ("Add", "Sub", "Mul")]
        if a.dtype in ("int16", "uint16") and self.opset < 16:
            ops = [op for op in ops if op not in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")]
        if a.dtype in ("uint8", "uint16", "uint32", "uint64"):
            ops = [op for op in ops if op != "Sub"]
        if not ops:
            return
        op = self.pick(ops)
        bound = {"Add": a.bound + b.bound, "Sub": a.bound + b.bound, "Mul": a.bound * b.bound}.get(
            op, max(a.bound, b.bound)
        )
        if op.startswith("Bitwise"):
            bound = 2 * bound + 1
        dtype = a.dtype
        if op in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"):
            dtype, exact, bound = "bool", True, 1
        if bound > LARGEST[dtype]:
            return
        names = [a.name, b.name]
        if op in ("Min", "Max") and self.rng.random() < 0.3:
            names.append(self.pick(names))
        self.node(op, names, Value("", dtype, shape, exact, bound))

    def division(self, a: Value) -> None:
        """Division, remainder, power and shift by constants for which they are defined."""
        if a.dtype not in ("int32", "int64", "float32", "float64", "uint8", "uint32", "uint64", "int8"):
            return
        shape = tuple(size if isinstance(size, int) else 1 for size in self.beside(a.shape))
        divisor = self.rng.choice([1, 2, 3, 4, 7], shape)
        if a.is_float:
            if self.rng.random() < 0.3 and a.bound <= 32:
                two = self.constant(np.array(self.pick((1, 2, 3)), a.dtype))
                bound = (a.bound + 1) ** 3
                self.node("Pow", [a.name, two.name], dataclasses.replace(a, bound=bound, exact=False))
                return
            made = np.asarray(2.0 ** self.rng.integers(-1, 3, shape), a.dtype)  # the quotient stays exact
            op = "Div"
        elif a.dtype.startswith("u"):
            op = self.pick(("Div", "Mod", "BitShift"))
            made = np.asarray(self.rng.integers(0, 8, shape) if op == "BitShift" else divisor, a.dtype)
        else:
            op = self.pick(("Div", "Mod", "Mod"))
            made = np.asarray(divisor * self.pick((1, -1)), a.dtype)
        if a.dtype in ("uint8", "int8") and op == "Div" and self.opset < 14:
            return
        other = self.constant(made)
        result = broadcast(a.shape, other.shape)
        if result is None:
            return
        bound = 2 * a.bound + 8 if a.is_float else a.bound + 8
        attributes: dict[str, Any] = {}
        if op == "Mod":
            attributes["fmod"] = int(self.rng.random() < 0.5)
        elif op == "BitShift":
            attributes["direction"] = "RIGHT"
        if bound <= LARGEST[a.dtype]:
            self.node(op, [a.name, other.name], dataclasses.replace(a, shape=result, bound=bound), **attributes)

    def variadic(self, a: Value) -> None:
        if a.dtype not in ("float32", "float64"):
            return
        parts = [a, *(self.operand(a) for _ in range(int(self.rng.integers(1, 3))))]
        shape: tuple[Dim, ...] | None = a.shape
        for part in parts:
            shape = broadcast(shape, part.shape)
        bound = sum(part.bound for part in parts)
        if shape is not None and bound <= LARGEST[a.dtype]:
            exact = all(part.exact for part in parts)
            op = self.pick(("Sum", "Mean", "Max"))
            self.node(op, [p.name for p in parts], Value("", a.dtype, shape, exact and op != "Mean", bound))

    def sorting(self, value: Value) -> None:
        """TopK, Trilu, Pad, OneHot: results of other shapes or types."""
        if not value.shape or value.dtype not in ("float32", "int64", "int32"):
            return
        op = self.pick(("TopK", "Trilu", "Pad", "OneHot"))
        size = value.shape[-1]
        if op == "TopK" and isinstance(size, int) and size and value.exact and not self.is_special:
            k = int(self.rng.integers(1, size + 1))
            result = dataclasses.replace(value, shape=(*value.shape[:-1], k))
            made = self.node("TopK", [value.name, self.ints(k)], result, largest=int(self.rng.random() < 0.5))
            self.nodes[-1].output.append(f"{made.name}_indices")
        elif op == "Trilu" and len(value.shape) >= 2 and self.opset >= 14:
            self.node("Trilu", [value.name], value, upper=int(self.rng.random() < 0.5))
        elif op == "Pad" and all(isinstance(s, int) for s in value.shape):
            pads = [int(n) for n in self.rng.integers(0, 3, 2 * len(value.shape))]
            rank = len(value.shape)
            shape = tuple(int(s) + pads[i] + pads[rank + i] for i, s in enumerate(value.shape))
            if math.prod(shape) <= 1 << 13:
                self.node("Pad", [value.name, self.ints(*pads)], dataclasses.replace(value, shape=shape))
        elif op == "OneHot" and value.dtype == "int64" and value.bound <= 1 << 20 and len(value.shape) <= 3:
            off_on = self.constant(np.array([-1, 3], self.pick(("float32", "int64"))))
            result = Value("", off_on.dtype, (*value.shape, 4), True, 3)
            self.node("OneHot", [value.name, self.constant(np.array(4)).name, off_on.name], result)

    def where(self, a: Value) -> None:
        condition = self.value(lambda v: v.dtype == "bool" and broadcast(v.shape, a.shape) is not None)
        if condition is None:
            return
        b = self.operand(a)
        outer = broadcast(condition.shape, a.shape)
        shape = broadcast(outer, b.shape) if outer is not None else None
        if shape is not None:
            result = Value("", a.dtype, shape, a.exact and b.exact, max(a.bound, b.bound))
            self.node("Where", [condition.name, a.name, b.name], result)

    def cast(self, value: Value) -> None:
        if not value.exact:
            return
        target = self.dtype()
        if value.is_float and self.is_special and not target.startswith("float"):
            return
        if value.is_float and not target.startswith(("float", "bool")):
            floor = self.node("Floor", [value.name], dataclasses.replace(value, bound=value.bound + 1))
            value = floor
        if target.startswith("u") and not value.dtype.startswith("u") and value.dtype != "bool":
            if value.dtype in ("int8", "int16"):
                return
            value = self.node("Abs", [value.name], value)
        bound = 1 if target == "bool" else value.bound
        if bound <= LARGEST[target]:
            code = helper.np_dtype_to_tensor_dtype(np.dtype(target))
            self.node("Cast", [value.name], dataclasses.replace(value, dtype=target, bound=bound), to=code)

    def reduction(self, value: Value) -> None:
        if not value.shape or self.may_be_empty or value.dtype not in ("float32", "float64", "int32", "int64"):
            return
        axis = int(self.rng.integers(len(value.shape)))
        negative = axis - len(value.shape) if self.rng.random() < 0.5 else axis
        keep = int(self.rng.random() < 0.6)
        kept: tuple[Dim, ...] = (1,) if keep else ()
        shape = (*value.shape[:axis], *kept, *value.shape[axis + 1 :])
        op = self.pick(
            (
                "ReduceSum",
                "ReduceMax",
                "ReduceMin",
                "ReduceMean",
                "ArgMax",
                "CumSum",
                "Hardmax",
                "Softmax",
                "LogSoftmax",
            )
        )
        if op in ("ArgMax", "ArgMin", "Hardmax") and (not value.exact or self.is_special):
            return
        if op in ("ReduceMax", "ReduceMin") and self.is_special:
            return  # implementations differ in what they make of NaN
        if op in ("ReduceMean", "Softmax", "LogSoftmax", "Hardmax") and not value.is_float:
            return
        if op in ("Hardmax", "Softmax", "LogSoftmax"):
            bound = 2 * value.bound + 10 if op == "LogSoftmax" else 1
            self.node(op, [value.name], dataclasses.replace(value, exact=op == "Hardmax", bound=bound), axis=negative)
        elif op in ("ArgMax", "ArgMin"):
            result = Value("", "int64", shape, True, 64)
            self.node(op, [value.name], result, axis=negative, keepdims=keep)
        elif op == "CumSum":
            if value.bound * 400 < LARGEST[value.dtype]:
                result = dataclasses.replace(value, bound=value.bound * 400)
                self.node(
                    op, [value.name, self.constant(np.array(axis)).name], result, exclusive=int(self.rng.random() < 0.5)
                )
        else:
            exact = value.exact and op != "ReduceMean"
            bound = value.bound * (400 if op in ("ReduceSum", "ReduceL1") else 1)
            if op == "ReduceSumSquare":
                bound = value.bound**2 * 400
            if bound > LARGEST[value.dtype]:
                return
            result = dataclasses.replace(value, shape=shape, exact=exact, bound=bound)
            if op == "ReduceSum" or self.opset >= 18:
                self.node(op, [value.name, self.ints(negative)], result, keepdims=keep)
            else:
                self.node(op, [value.name], result, axes=[negative], keepdims=keep)

    def joining(self, value: Value) -> None:
        """Concat, Split, Slice, Gather, Expand: what may be made in place of a whole, or stays where it is."""
        if not value.shape:
            return
        axis = int(self.rng.integers(len(value.shape))) if self.rng.random() < 0.5 else 0
        size = value.shape[axis]
        op = self.pick(("Concat", "Slice", "Gather", "Expand", "Tile", "Split", "GatherElements"))
        if op == "Concat":
            others = [v for v in self.values if v.dtype == value.dtype and v.shape == value.shape]
            parts = [value, *(self.pick(others) for _ in range(int(self.rng.integers(1, 3))))]
            total: Dim = len(parts) * size if isinstance(size, int) else f"{len(parts)}*{size}"
            shape = (*value.shape[:axis], total, *value.shape[axis + 1 :])
            bound = max(part.bound for part in parts)
            result = Value("", value.dtype, shape, all(part.exact for part in parts), bound)
            self.node("Concat", [part.name for part in parts], result, axis=axis)
        elif op == "Expand":
            shape = (self.pick(SIZES), *value.shape)
            if len(shape) < 6 and all(isinstance(s, int) for s in shape):
                self.node("Expand", [value.name, self.ints(*map(int, shape))], dataclasses.replace(value, shape=shape))
        elif not isinstance(size, int):
            return
        elif op == "Slice" and size > 1:
            begin = int(self.rng.integers(size))
            end = int(self.rng.integers(begin, size)) + 1
            shape = (*value.shape[:axis], end - begin, *value.shape[axis + 1 :])
            names = [value.name, self.ints(begin), self.ints(end), self.ints(axis)]
            self.node("Slice", names, dataclasses.replace(value, shape=shape))
        elif op == "Gather":
            indices = self.rng.integers(-size, size, int(self.rng.integers(1, 5)))
            shape = (*value.shape[:axis], len(indices), *value.shape[axis + 1 :])
            result = dataclasses.replace(value, shape=shape)
            self.node("Gather", [value.name, self.constant(indices).name], result, axis=axis)
        elif op == "Split" and size > 1:
            first = int(self.rng.integers(1, size))
            lengths = [first, size - first]
            made = []
            for length in lengths:
                shape = (*value.shape[:axis], length, *value.shape[axis + 1 :])
                made.append(dataclasses.replace(value, name=f"v{len(self.values)}", shape=shape))
                self.values.append(made[-1])
            names = [value.name, self.ints(*lengths)]
            self.nodes.append(helper.make_node("Split", names, [part.name for part in made], axis=axis))
            if self.rng.random() < 0.5:  # joined again, in another order
                parts = made[::-1] if self.rng.random() < 0.5 else made
                self.node("Concat", [part.name for part in parts], value, axis=axis)
        elif op == "GatherElements" and size and all(isinstance(s, int) for s in value.shape):
            shape = tuple(map(int, value.shape))
            indices = self.constant(self.rng.integers(-size, size, shape))
            self.node("GatherElements", [value.name, indices.name], value, axis=axis)
        elif op == "Tile":
            times = [int(self.rng.integers(1, 3)) if isinstance(s, int) else 1 for s in value.shape]
            shape = tuple(s * t if isinstance(s, int) else s for s, t in zip(value.shape, times, strict=True))
            self.node("Tile", [value.name, self.ints(*times)], dataclasses.replace(value, shape=shape))

    def scatter(self, value: Value) -> None:
        if len(value.shape) < 1 or not all(isinstance(s, int) and s for s in value.shape):
            return
        if value.dtype not in ("float32", "int64", "int32", "float64", "bool"):
            return
        shape = tuple(map(int, value.shape))
        if self.rng.random() < 0.5:
            rows = self.rng.permutation(shape[0])[: int(self.rng.integers(1, shape[0] + 1))].reshape(-1, 1)
            updates = self.updates(value, (len(rows), *shape[1:]))
            self.node("ScatterND", [value.name, self.constant(rows).name, updates.name], joined(value, updates))
        else:
            indices = np.argsort(self.rng.random(shape), axis=0)
            updates = self.updates(value, shape)
            names = [value.name, self.constant(indices).name, updates.name]
            self.node("ScatterElements", names, joined(value, updates), axis=0)

    def updates(self, value: Value, shape: tuple[int, ...]) -> Value:
        fitting = self.value(lambda v: v.dtype == value.dtype and v.shape == shape)
        return self.add_constant(value.dtype, shape) if fitting is None else fitting

    def product(self, value: Value) -> None:
        if value.dtype not in ("float32", "float64") or len(value.shape) < 2 or value.bound > 1 << 10:
            return
        inner = value.shape[-1]
        other = self.value(lambda v: v.dtype == value.dtype and len(v.shape) == 2 and v.shape[0] == inner)
        if other is None or other.bound > 64:
            if not isinstance(inner, int):
                return
            other = self.add_constant(value.dtype, (inner, self.pick(SIZES)))
        exact = value.exact and other.exact
        result = Value("", value.dtype, (*value.shape[:-1], other.shape[-1]), exact, value.bound * other.bound * 64)
        if result.bound < LARGEST[value.dtype]:
            self.node("MatMul", [value.name, other.name], result)

    def model(self) -> onnx.ModelProto:
        for _ in range(int(self.rng.integers(1, 4))):
            shape = self.beside(self.inputs[0].shape) if self.inputs and self.rng.random() < 0.6 else self.shape()
            self.add_input(self.dtype(), shape)
        makers = [self.unary] * 4 + [self.binary] * 8 + [self.where] * 2 + [self.cast] * 4
        makers += [self.reduction] * 2 + [self.joining] * 3 + [self.scatter, self.product]
        makers += [self.division] * 2 + [self.variadic, self.sorting]
        for _ in range(int(self.rng.integers(2, 16))):
            value = self.value()
            assert value is not None
            if self.rng.random() < 0.2:
                self.view(value)
            else:
                self.pick(makers)(value)
        if not self.nodes:
            self.view(self.values[0])
        made = [value for value in self.values if value.name.startswith("v")]
        read = {name for node in self.nodes for name in node.input}
        ends = [value for value in made if value.name not in read] or made[-1:]
        outputs = list(ends)
        while self.rng.random() < 0.3:
            outputs.append(self.pick(made))
        outputs = list({value.name: value for value in outputs}.values())
        if self.rng.random() < 0.5:
            outputs = [outputs[int(i)] for i in self.rng.permutation(len(outputs))[: int(self.rng.integers(1, 4))]]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [_port(value, value.shape) for value in self.inputs],
            [_port(value, None) for value in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def feeds(self) -> dict[str, np.ndarray]:
        sizes = (0, 1, 2, 4) if self.may_be_empty else SIZES
        size_of = {"N": self.pick(sizes), "M": self.pick(sizes)}

        def size(dim: Dim) -> int:
            return (
                dim
                if isinstance(dim, int)
                else math.prod(size_of[part] if part in size_of else int(part) for part in dim.split("*"))
            )

        feeds = {value.name: self.array(value.dtype, tuple(map(size, value.shape))) for value in self.inputs}
        if self.is_special:
            for array in feeds.values():
                if array.dtype.kind == "f" and array.size:
                    flat = array.reshape(-1)
                    for at in self.rng.integers(array.size, size=int(self.rng.integers(0, 3))):
                        flat[at] = self.pick((np.nan, np.inf, -np.inf))
        return feeds


def joined(value: Value, other: Value) -> Value:
    return dataclasses.replace(value, exact=value.exact and other.exact, bound=max(value.bound, other.bound))


def broadcast(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """The common shape, None if there is none for all sizes of the symbols or it becomes large."""
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    made: list[Dim] = []
    for one, two in zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True):
        if one != two and 1 not in (one, two):
            return None
        made.append(two if one == 1 else one)
    large = np.prod([size if isinstance(size, int) else 17 ** (1 + size.count("*")) for size in made], dtype=np.float64)
    return tuple(made) if rank <= 6 and large <= 1 << 14 else None


def _port(value: Value, shape: tuple[Dim, ...] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), shape)


KNOWN = (
    LOG_SOFTMAX,
    Known("onnxruntime", "its Sign of a NaN of float16 is 0", lambda case: case.is_extreme and case.has("Sign")),
)


def case(rng: np.random.Generator) -> Case:
    maker = Maker(rng)
    model = maker.model()
    return Case(model, [maker.feeds() for _ in range(int(rng.integers(1, 4)))], f"opset {maker.opset}")
