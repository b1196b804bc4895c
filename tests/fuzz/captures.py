"""If, Loop and Scan whose bodies read values of the graphs around them.

Several bodies capture the same value; a captured value is also an output, a constant, a view, or a value that a later
node could overwrite in place. Bodies are nested two deep, run without iterations, and see other sizes in each call.
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

DEEPEST = 3
"""The depth of the innermost bodies: two bodies are around them."""
TYPES = {"float": np.float32, "double": np.float64, "int64": np.int64, "int32": np.int32}
CONSTANTS = {
    "zero": "int64[1] {0}",
    "one": "int64[1] {1}",
    "flat": "int64[1] {-1}",
    "last": "int64[1] {100000}",
    "k0": "TYPE {2}",
    "k1": "TYPE[1] {-1}",
    "k3": "TYPE[3] {1, 0, -2}",
    "k33": "TYPE[3, 3] {1, 0, -1, 2, 1, 0, 0, -1, 1}",
}

KNOWN = (
    Known(
        "onnxruntime",
        "without iterations, a scanned output has sizes that its inference finds, not those that the body states",
        lambda case: case.has("Loop"),
        lambda case, difference: bool(
            re.search(r"rows\d+': CPU and onnxruntime: (\w+)\[0(, \d+)+\] and \1\[0(, \d+)+\]", difference)
        ),
    ),
    Known(
        "onnxruntime",
        "its Scan fails if there is nothing to scan",
        lambda case: any(feeds["z"].size == 0 for feeds in case.calls if "z" in feeds),
        lambda case, difference: "only onnxruntime fails" in difference and "Invalid dim0_offset of 0" in difference,
    ),
)


@dataclasses.dataclass(frozen=True)
class Value:
    """``dims``: numbers, or names. Values with equal dims have equal sizes in each call."""

    name: str
    dims: tuple[int | str, ...]


class Maker:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.element = self.pick(("float", "float", "float", "double", "int64", "int32"))
        self.counts = [0] * (DEEPEST + 2)
        self.count = 0  # of names that every graph sees
        self.reuses = self.chance(0.4)  # whether bodies beside each other use the same names
        self.most = self.pick((2, 3, 5))  # nodes between bodies
        self.rows: list[tuple[str, Value]] = []
        """Scanned outputs of Loops. No node reads them: without iterations, they have other sizes in onnxruntime."""

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def name(self, depth: int) -> str:
        """A name for a value of a graph with so many graphs around it."""
        self.counts[depth] += 1
        return f"{'tuvwx'[depth]}{self.counts[depth]}"

    def unique(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def dim(self) -> str:
        return self.unique("d")

    def declared(self, value: Value) -> str:
        dims = ", ".join(str(size) if isinstance(size, int) else self.dim() for size in value.dims)
        return f"{self.element}{f'[{dims}]' if dims else ''} {value.name}"

    def plain(self, lines: list[str], values: list[Value], depth: int) -> None:
        """Add a value that a node, or a few, compute from others."""
        v, made = self.pick(values[-4:] if self.chance(0.4) else values), self.name(depth)
        kind = self.pick(
            ["unary"] * 3 + ["binary"] * 4 + ["constant", "identity", "sum", "view", "view", "join", "cut"]
        )
        dims = v.dims
        if kind == "unary":
            lines.append(f"{made} = {self.pick(('Neg', 'Abs', 'Sign'))} ({v.name})")
        elif kind == "identity":
            lines.append(f"{made} = Identity ({v.name})")
        elif kind == "binary":
            w = self.pick([other for other in values if other.dims in (v.dims, ())])
            pair = [v.name, w.name][:: self.pick((1, -1))]
            lines.append(f"{made} = {self.pick(('Add', 'Sub', 'Max'))} ({', '.join(pair)})")
        elif kind == "constant":
            wide = dims[-1:] == (3,)
            if wide and len(dims) == 2 and self.chance(0.4):
                product = self.name(depth)
                lines.append(f"{product} = MatMul ({v.name}, k33)")
                lines.append(f"{made} = Sign ({product})")
            else:
                constant = self.pick((["k3"] if wide else []) + (["k1"] if dims else []) + ["k0"])
                lines.append(f"{made} = {self.pick(('Add', 'Mul', 'Sub'))} ({v.name}, {constant})")
        elif kind == "sum":
            sign, total = self.name(depth), self.name(depth)
            lines += [f"{sign} = Sign ({v.name})", f"{total} = ReduceSum <keepdims = 0> ({sign})"]
            lines.append(f"{made} = Sign ({total})")
            dims = ()
        elif kind == "view":
            form = self.pick(("flat", "transposed", "wider"))
            if form == "flat" or not dims:
                lines.append(f"{made} = Reshape ({v.name}, flat)")
                dims = (dims if len(dims) == 1 else (self.dim(),)) if dims else (1,)
            elif form == "transposed":
                lines.append(f"{made} = Transpose ({v.name})")
                dims = dims[::-1]
            elif len(dims) < 3:
                lines.append(f"{made} = Unsqueeze ({v.name}, zero)")
                dims = (1, *dims)
            else:
                lines.append(f"{made} = Identity ({v.name})")
        elif not dims:
            lines.append(f"{made} = Neg ({v.name})")
        elif kind == "join":
            same = [other.name for other in values if other.dims == dims]
            lines.append(f"{made} = Concat <axis = 0> ({', '.join(self.pick(same) for _ in range(2))})")
            dims = (self.dim(), *dims[1:])
        else:
            begin, end = self.pick((("zero", "one"), ("one", "last"), ("zero", "zero"), ("zero", "last")))
            lines.append(f"{made} = Slice ({v.name}, {begin}, {end}, zero)")
            dims = (self.dim(), *dims[1:])
        values.append(Value(made, dims))

    def steps(self, lines: list[str], values: list[Value], depth: int) -> None:
        for _ in range(int(self.rng.integers(0, self.most + 1))):
            self.plain(lines, values, depth)
            if 0 < depth < DEEPEST and self.chance(0.3):
                values += self.body_node(lines, values, depth)

    def result(self, lines: list[str], value: Value, depth: int, *, is_new: bool) -> Value:
        """The value as a result of a body: by its own name only if the body's nodes make it."""
        if is_new and self.chance(0.6):
            return value
        made = self.name(depth)
        lines.append(f"{made} = {self.pick(('Identity', 'Identity', 'Neg'))} ({value.name})")
        return Value(made, value.dims)

    def enter(self, depth: int) -> None:
        if self.reuses:
            self.counts[depth] = 0

    def body_node(self, lines: list[str], values: list[Value], depth: int) -> list[Value]:
        """An If, Loop or Scan in a graph at that depth; its results."""
        kind = self.pick(("If", "If", "Loop", "Loop", "Scan"))
        return {"If": self.branch, "Loop": self.loop, "Scan": self.scan}[kind](lines, values, depth)

    def condition(self, lines: list[str], values: list[Value], depth: int) -> str:
        if self.chance(0.5):
            return "p"
        size, made = self.name(depth), self.name(depth)
        lines.append(f"{size} = Size ({self.pick(values).name})")
        lines.append(f"{made} = Less ({size}, {self.pick(('n', 'four'))})")
        return made

    def branch(self, lines: list[str], values: list[Value], depth: int) -> list[Value]:
        condition = self.condition(lines, values, depth)
        wanted = [self.pick(values) for _ in range(self.pick((1, 1, 2)))]
        graphs, results = [], []
        for _ in range(2):
            self.enter(depth + 1)
            inside, seen, made = list[str](), list(values), list[Value]()
            self.steps(inside, seen, depth + 1)
            new = seen[len(values) :]
            for want in wanted:
                fits = [v for v in seen if v.dims == want.dims]
                if self.chance(0.3):
                    fits = [v for v in seen if len(v.dims) == len(want.dims)]
                chosen = self.pick(fits[-2:] if self.chance(0.6) else fits)
                made.append(self.result(inside, chosen, depth + 1, is_new=chosen in new and chosen not in made))
            graphs.append(f"{self.unique('g')} () => ({', '.join(map(self.declared, made))}) {{ {' '.join(inside)} }}")
            results.append(made)
        names = [self.name(depth) for _ in wanted]
        lines.append(f"{', '.join(names)} = If ({condition}) <then_branch = {graphs[0]}, else_branch = {graphs[1]}>")
        found = []
        for name, one, two in zip(names, *results, strict=True):
            dims = tuple(a if a == b else self.dim() for a, b in zip(one.dims, two.dims, strict=True))
            found.append(Value(name, dims))
        return found

    def loop(self, lines: list[str], values: list[Value], depth: int) -> list[Value]:
        given = [self.pick(values) for _ in range(self.pick((0, 1, 1, 2) if depth == 0 else (1, 1, 2)))]
        begins = self.pick(("p", "yes", "") if given else ("p", "yes"))
        count = self.pick(("n", "n", "two", ""))
        self.enter(depth + 1)
        number, go, more = self.unique("i"), self.unique("go"), self.name(depth + 1)
        inside, states, made = list[str](), [Value(self.name(depth + 1), v.dims) for v in given], list[Value]()
        seen = [*values, *states]
        self.steps(inside, seen, depth + 1)
        new = seen[len(values) + len(states) :]
        for state in states:
            fits = [v for v in seen if v.dims == state.dims]
            chosen = self.pick(fits[-2:] if self.chance(0.6) else fits)
            made.append(self.result(inside, chosen, depth + 1, is_new=chosen in new and chosen not in made))
        rows = []
        if depth == 0 and (not given or self.chance(0.4)):
            rows.append(self.result(inside, self.pick(seen), depth + 1, is_new=False))
        if count and self.chance(0.6):
            inside.append(f"{more} = Identity ({go})")
        else:
            inside.append(f"{more} = Less ({number}, {self.pick(('two', 'n'))})")
        names = [self.name(depth) for _ in made]
        outputs = [*names, *(f"rows{self.unique('')}" for _ in rows)]
        self.rows += [(output, row) for output, row in zip(outputs[len(names) :], rows, strict=True)]
        arguments = [f"int64 {number}", f"bool {go}", *map(self.declared, states)]
        declared = [f"bool {more}", *map(self.declared, [*made, *rows])]
        lines.append(
            f"{', '.join(outputs)} = Loop ({count}, {begins}"
            f"{''.join(', ' + v.name for v in given)}) <body = {self.unique('g')} ({', '.join(arguments)}) => "
            f"({', '.join(declared)}) {{ {' '.join(inside)} }}>"
        )
        return [Value(name, v.dims) for name, v in zip(names, given, strict=True)]

    def scan(self, lines: list[str], values: list[Value], depth: int) -> list[Value]:
        """Of rows: onnxruntime requires states of constant size."""
        three = [v for v in values if v.dims == (3,)]
        scanned = self.pick([v for v in values if v.dims in (("c", 3), (3, 3))])
        given = [self.pick(three)] if three and self.chance(0.7) else []
        self.enter(depth + 1)
        inside = list[str]()
        states = [Value(self.name(depth + 1), (3,)) for _ in given]
        row = Value(self.name(depth + 1), (3,))
        seen = [*values, *states, row]
        self.steps(inside, seen, depth + 1)
        new = seen[len(values) + len(states) + 1 :]
        made = list[Value]()
        for _ in range(len(states) + 1):  # the states, then the row
            fits = [v for v in seen if v.dims == (3,)]
            chosen = self.pick(fits[-2:] if self.chance(0.6) else fits)
            made.append(self.result(inside, chosen, depth + 1, is_new=chosen in new and chosen not in made))
        names = [self.name(depth) for _ in made]
        lines.append(
            f"{', '.join(names)} = Scan <num_scan_inputs = 1, scan_input_directions = [{self.pick((0, 0, 1))}], "
            f"body = {self.unique('g')} ({', '.join(map(self.declared, [*states, row]))}) => "
            f"({', '.join(map(self.declared, made))}) {{ {' '.join(inside)} }}> "
            f"({', '.join(v.name for v in [*given, scanned])})"
        )
        return [*(Value(name, (3,)) for name in names[:-1]), Value(names[-1], scanned.dims)]


def case(rng: np.random.Generator) -> Case:
    make = Maker(rng)
    values = [Value("x", ("a",)), Value("y", ("a",)), Value("z", ("c", 3)), Value("q", (3,)), Value("s", ())]
    values += [Value("k3", (3,)), Value("k33", (3, 3))] if make.chance(0.6) else []
    lines, results = list[str](), list[Value]()
    for _ in range(make.pick((1, 2, 2, 3))):
        make.steps(lines, values, 0)
        found = make.body_node(lines, values, 0)
        values += found
        results += found
    make.steps(lines, values, 0)
    inner = {"x", "y", "z", "q", "s", "k3", "k33"}
    made = [v for v in values if v.name not in inner]
    chosen = [v for v in made if v in results or v in made[-1:] or make.chance(0.25)]
    kept = [v for v in values if v.name in inner and make.chance(0.15)]  # inputs and constants that are also outputs
    for v in kept:
        name = make.name(0)
        lines.append(f"{name} = Identity ({v.name})")
        chosen.append(Value(name, v.dims))
    outputs = [make.declared(v) for v in chosen]
    for name, row in make.rows:
        outputs.append(make.declared(Value(name, (make.dim(), *row.dims))))
    constants = {**CONSTANTS, "two": "int64 {2}", "four": "int64 {4}", "yes": "bool {1}"}
    is_node = make.chance(0.5)  # whether constants are nodes
    texts = {name: text.replace("TYPE", make.element) for name, text in constants.items()}
    held = "" if is_node else "<" + ", ".join(text.replace(" {", f" {name} = {{") for name, text in texts.items()) + ">"
    if is_node:
        lines = [f"{name} = Constant <value = {text}> ()" for name, text in texts.items()] + lines
    head = ", ".join(
        f"{make.element}{dims} {name}"
        for name, dims in (("x", "[a]"), ("y", "[a]"), ("z", "[c, 3]"), ("q", "[3]"), ("s", ""))
    )
    text = f"g (int64 n, bool p, {head}) => ({', '.join(outputs)}) {held} {{\n" + "\n".join(lines) + "\n}"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>\n' + text)
    calls = []
    dtype = TYPES[make.element]
    least = 0 if make.chance(0.3) else 1
    for _ in range(4):
        a, c = (max(least, make.pick((0, 1, 2, 2, 3, 5))) for _ in range(2))
        shapes = {"x": a, "y": a, "z": (c, 3), "q": 3, "s": ()}
        calls.append(
            {
                "n": np.array(make.pick((0, 0, 1, 2, 3))),
                "p": np.array(make.chance(0.7)),
                **{name: rng.integers(-3, 4, shape).astype(dtype) for name, shape in shapes.items()},
            }
        )
    manner = make.pick(("in turn", "in turn", "asynchronous", "threads"))
    return Case(model, calls, manner=manner, tolerance=0.0)
