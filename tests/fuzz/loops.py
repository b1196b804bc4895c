"""Loops and Scans whose values keep, grow, shrink or exchange their sizes, called with several sizes in turn.

Values are small integers, so that every implementation computes the same bits.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser

from fuzz.differential import Case, Known

__all__ = ["KNOWN", "case"]

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
CONSTANTS = {
    "zero": "int64[1] {0}",
    "one": "int64[1] {1}",
    "two": "int64[1] {2}",
    "flat": "int64[1] {-1}",
    "end": "int64[1] {100000}",
    "back": "int64[1] {-100000}",
    "number": "int64 {3}",
    "three": "float[3] {1, -2, 3}",
}
CUTS = (
    ("zero", "one", "one"),
    ("zero", "two", "one"),
    ("one", "end", "one"),
    ("zero", "end", "two"),
    ("flat", "back", "flat"),
    ("zero", "zero", "one"),
    ("zero", "flat", "one"),
)
"""Of slices: begin, end and step, as names of constants."""

KNOWN = (
    Known(
        "onnxruntime",
        "without iterations, a scanned output has sizes that its inference finds, not those that the body states",
        lambda case: case.has("Loop"),
        lambda case, difference: bool(
            re.search(r"rows\d': CPU and onnxruntime: (\w+)\[0(, \d+)+\] and \1\[0(, \d+)+\]", difference)
        ),
    ),
)

PREFIX = {1: "float[{}]", 2: "float[{}, 3]"}


@dataclasses.dataclass(frozen=True)
class Value:
    """A float tensor: a list, or rows of three (``rank`` 2)."""

    name: str
    rank: int


class Maker:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.count = 0
        self.is_odd = False  # whether onnxruntime is known to fail
        self.counters: list[str] = []  # integers that the loops around carry

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def name(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def type(self, rank: int) -> str:
        return PREFIX[rank].format(self.name("d"))

    def step(self, lines: list[str], values: list[Value], number: str, depth: int) -> None:
        """Add a value that a node, or a few, compute from others."""
        v = self.pick(values)
        same = [w for w in values if w.rank == v.rank]
        made = Value(self.name(), v.rank)
        kind = self.pick(
            ["join"] * 5 + ["cut"] * 4 + ["plain"] * 3 + ["sum", "flat", "if", "if", "number", "at", "at", "loop"]
        )
        if kind == "join":
            operands = [self.pick(same).name for _ in range(self.pick((2, 2, 2, 3)))]
            lines.append(f"{made.name} = Concat <axis = {self.pick((0, -v.rank))}> ({', '.join(operands)})")
        elif kind == "cut":
            begin, end, step = self.pick(CUTS)
            lines.append(f"{made.name} = Slice ({v.name}, {begin}, {end}, zero, {step})")
        elif kind == "plain":
            lines.append(f"{made.name} = {self.pick(('Neg', 'Relu', 'Identity', 'Sign'))} ({v.name})")
        elif kind == "sum":
            total = self.name()
            lines.append(f"{total} = ReduceSum <keepdims = 1> ({v.name}, zero)")
            lines.append(f"{made.name} = Sign ({total})")
        elif kind == "flat":
            made = Value(made.name, 1)
            lines.append(f"{made.name} = Reshape ({v.name}, flat)")
        elif kind == "number":
            cast, added = self.name(), self.name()
            lines.append(f"{cast} = Cast <to = 1> ({number})")
            lines.append(f"{added} = {self.pick(('Add', 'Sub', 'Min'))} ({v.name}, {cast})")
            lines.append(f"{made.name} = Sign ({added})")
        elif kind == "at":  # the size depends on the number of the iteration, or on a carried integer
            at, after = self.name(), self.name()
            lines.append(f"{at} = Reshape ({self.pick([number, *self.counters])}, flat)")
            lines.append(f"{after} = Add ({at}, {self.pick(('one', 'two'))})")
            begin, end = self.pick((("zero", at), (at, after), (at, "end")))
            if v.rank == 1 and self.chance(0.3):
                lines.append(f"{made.name} = ConstantOfShape ({self.pick((at, after))})")
            else:
                lines.append(f"{made.name} = Slice ({v.name}, {begin}, {end})")
        elif kind == "if":
            lines.append(self.branches(lines, made, v, values, number, depth))
        elif depth < 1 and self.chance(0.5):
            lines.append(self.loop([made], [v], values, "number", depth + 1))
        else:
            return
        values.append(made)

    def branches(self, lines: list[str], made: Value, v: Value, values: list[Value], number: str, depth: int) -> str:
        """An If that makes ``made``, of the rank of ``v``. In half of the cases, its branches are one node each, whose
        results have the size of ``v``. Its condition depends on the number of the iteration or on data."""
        truth, simple, graphs = self.name(), self.chance(0.5), []
        if self.chance(0.5):
            odd = self.name()
            lines.append(f"{odd} = Mod ({number}, number)")
            lines.append(f"{truth} = Cast <to = 9> ({odd})")
        else:
            total, least = self.name(), self.name()
            lines.append(f"{total} = ReduceSum <keepdims = 0> ({self.pick(values).name})")
            lines.append(f"{least} = Constant <value = float {{{self.pick((-1, 0, 1))}}}> ()")
            lines.append(f"{truth} = Less ({total}, {least})")
        for _ in range(2):
            inside, seen, result = list[str](), list(values), v
            if not simple:
                for _ in range(int(self.rng.integers(1, 4))):
                    self.step(inside, seen, number, depth + 1)
                result = self.pick([value for value in seen if value.rank == v.rank][-2:])
            name = self.name()
            inside.append(f"{name} = {self.pick(('Neg', 'Identity', 'Relu'))} ({result.name})")
            graphs.append(f"g{name} () => ({self.type(v.rank)} {name}) {{ {' '.join(inside)} }}")
        return f"{made.name} = If ({truth}) <then_branch = {graphs[0]}, else_branch = {graphs[1]}>"

    def condition(self, lines: list[str], values: list[Value], number: str, go: str) -> tuple[str, bool]:
        """The name of the condition that a body returns, and whether it ends the iterations."""
        kind = self.pick(["same"] * 3 + ["go", "true", "few", "size", "size", "false"])
        made = self.name("more")
        if kind == "go":
            self.is_odd = True
            return go, False
        if kind == "same":
            lines.append(f"{made} = Identity ({go})")
        elif kind in ("true", "false"):
            lines.append(f"{made} = Constant <value = bool {{{int(kind == 'true')}}}> ()")
        elif kind == "few":
            lines.append(f"{made} = Less ({number}, number)")
        else:
            size, limit = self.name(), self.name()
            lines.append(f"{limit} = Constant <value = int64 {{{self.pick((0, 4, 20))}}}> ()")
            lines.append(f"{size} = Size ({self.pick(values).name})")
            few = self.name()
            lines.append(f"{few} = Less ({size}, {limit})")
            early = self.name()
            lines.append(f"{early} = Less ({number}, number)")
            lines.append(f"{made} = And ({few}, {early})")
        return made, kind in ("few", "size", "false")

    def loop(
        self,
        made: list[Value],
        given: list[Value],
        outer: list[Value],
        count: str,
        depth: int,
        rows: int = 0,
        is_scan: bool = False,
    ) -> str:
        """A Loop that carries ``given`` and makes ``made`` of them, and ``rows`` scanned outputs. Or such a Scan of the
        rows of z, from the first or from the last on."""
        number, go, lines = self.name("i"), self.name("go"), list[str]()
        inside = [Value(self.name("v"), value.rank) for value in given]
        values = [*inside, *(outer if self.chance(0.5) else [])]
        scanned = Value(self.name("v"), 1)  # rows of z
        if is_scan:
            number = "number"
            values.append(scanned)
        counter, after = self.name("c"), self.name("c")
        has_counter = self.chance(0.4)
        self.counters += [counter] * has_counter
        for _ in range(int(self.rng.integers(1, 4 if depth else 7))):
            self.step(lines, values, number, depth)
        if has_counter:
            self.counters.pop()
            operand = self.pick(("one", "one", "two", counter))
            lines.append(f"{after} = {self.pick(('Add', 'Add', 'Sub', 'Max'))} ({counter}, {operand})")
        condition, ends = ("", False) if is_scan else self.condition(lines, values, number, go)
        results = []
        for value in inside:
            fits = [other for other in values if other.rank == value.rank]
            chosen = self.pick(fits[-3:] if self.chance(0.7) else fits)
            if chosen in inside or chosen in outer:
                if chosen in outer or not self.chance(0.2):
                    name = self.name()
                    lines.append(f"{name} = Identity ({chosen.name})")
                    chosen = Value(name, chosen.rank)
                else:
                    self.is_odd = True
            results.append(chosen)
        declared = [f"{self.type(value.rank)} {value.name}" for value in results] + [f"int64[1] {after}"] * has_counter
        self.rows: list[tuple[str, str]] = []
        for _ in range(rows):
            name, v = self.name("row"), self.pick(values)
            kind = self.pick(["sum"] * 3 + ["number", "shape", "empty", "three", "first", "whole"])
            if kind == "sum":
                total = self.name()
                lines.append(f"{total} = ReduceSum <keepdims = 0> ({v.name}, zero)")
                lines.append(f"{name} = Sign ({total})")
                self.rows.append(("float", ", 3" * (v.rank - 1)))
            elif kind == "number":
                lines.append(f"{name} = Add ({number}, number)")
                self.rows.append(("int64", ""))
            elif kind == "shape":
                lines.append(f"{name} = Shape ({v.name})")
                self.rows.append(("int64", f", {v.rank}"))
            elif kind == "empty":
                lines.append(f"{name} = Slice ({v.name}, zero, zero)")
                self.rows.append(("float", ", 0" + ", 3" * (v.rank - 1)))
            elif kind == "three":
                lines.append(f"{name} = Identity (three)")
                self.rows.append(("float", ", 3"))
            elif kind == "first":  # may have any size, but mostly one
                lines.append(f"{name} = Slice ({v.name}, zero, one)")
                self.rows.append(("float", f", {self.name('d')}" + ", 3" * (v.rank - 1)))
            else:
                lines.append(f"{name} = Neg ({v.name})")
                self.rows.append(("float", f", {self.name('d')}" + ", 3" * (v.rank - 1)))
            element, dims = self.rows[-1]
            declared.append(f"{element}{f'[{dims[2:]}]' if dims else ''} {name}")
        arguments = [f"{self.type(value.rank)} {value.name}" for value in inside] + [
            f"int64[1] {counter}"
        ] * has_counter
        initial = [*(value.name for value in given), *[self.pick(("zero", "one", "two"))] * has_counter]
        self.ends = ends
        start = count if not (ends and self.chance(0.3)) else ""
        outputs = [value.name for value in made] + [self.name()] * has_counter + [f"rows{at}" for at in range(rows)]
        body = " ".join(lines)
        if is_scan:
            # onnxruntime requires states of constant size, and rejects some that are inputs of the body.
            self.is_odd = True
            arguments.append(f"float[3] {scanned.name}")
            return (
                f"{', '.join(outputs)} = Scan <num_scan_inputs = 1, scan_input_directions = [{self.pick((0, 1))}], "
                f"body = {self.name('b')} ({', '.join(arguments)}) => ({', '.join(declared)}) {{ {body} }}> "
                f"({', '.join([*initial, 'z'])})"
            )
        return (
            f"{', '.join(outputs)} = Loop ({start}, {self.pick(('', '', 'begin'))}, "
            f"{', '.join(initial)}) <body = {self.name('b')} "
            f"({', '.join([f'int64 {number}', f'bool {go}', *arguments])}) => "
            f"({', '.join([f'bool {condition}', *declared])}) {{ {body} }}>"
        )


def case(rng: np.random.Generator) -> Case:
    make = Maker(rng)
    x, y, z = Value("x", 1), Value("y", 1), Value("z", 2)
    values, lines = [x, y, z], [f"{name} = Constant <value = {value}> ()" for name, value in CONSTANTS.items()]
    if make.chance(0.5):
        lines.append("w = Neg (x)")
        values.append(Value("w", 1))
    given = [make.pick(values) for _ in range(int(rng.integers(1, 4)))]
    made = [Value(f"out{at}", value.rank) for at, value in enumerate(given)]
    rows = int(rng.integers(0, 3))
    lines.append(make.loop(made, given, values, "n", 0, rows, is_scan=make.chance(0.2)))
    outputs = [f"{make.type(value.rank)} {value.name}" for value in made]
    for at, (element, dims) in enumerate(make.rows):
        outputs.append(f"{element}[{make.name('d')}{dims}] rows{at}")
    if make.chance(0.3):
        lines.append(f"last = {make.pick(('Neg', 'Identity'))} ({made[0].name})")
        outputs.append(f"{make.type(made[0].rank)} last")
    text = f"g (int64 n, bool begin, float[a] x, float[b] y, float[c, 3] z) => ({', '.join(outputs)}) {{\n"
    model = onnx.parser.parse_model(HEAD + text + "\n".join(lines) + "\n}")
    calls = []
    for _ in range(5):
        sizes = [make.pick((0, 1, 1, 2, 2, 4)) for _ in range(3)]
        count = make.pick((0, 1, 2, 3, 5) if not make.ends else (0, 2, 5, 2**63 - 1))
        calls.append(
            {
                "n": np.array(count),
                "begin": np.array(make.chance(0.85)),
                "x": rng.integers(-3, 4, sizes[0]).astype(np.float32),
                "y": rng.integers(-3, 4, sizes[1]).astype(np.float32),
                "z": rng.integers(-3, 4, (sizes[2], 3)).astype(np.float32),
            }
        )
    judges = ("TEMPLATE",) if make.is_odd else ("TEMPLATE", "onnxruntime")
    manner = make.pick(("in turn", "in turn", "asynchronous", "threads"))
    return Case(model, calls, judges=judges, manner=manner, tolerance=0.0)
