"""Models with states, called through a stateful request and with the same values as ordinary inputs.

States are appended to, in front or behind, cut to a window, exchanged, passed on unchanged, shared by two outputs, and
read by products and copies. Values are small integers, so that every implementation computes the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser

from fuzz.differential import Case, Known
from sessions import onnxruntime_session

__all__ = ["KNOWN", "case"]

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
CONSTANTS = {
    "zero": "int64[1] {0}",
    "one": "int64[1] {1}",
    "two": "int64[1] {2}",
    "last": "int64[1] {-1}",
    "four": "int64[1] {-4}",
    "end": "int64[1] {100000}",
    "square": "float[2, 2] {1, -1, 0, 1}",
}


MOST_ELEMENTS = 1 << 16
"""Of all values of a call."""


class Maker:
    def __init__(self, rng: np.random.Generator, rank: int) -> None:
        self.rng = rng
        self.rank = rank  # of all values: [..., tokens, 2] or [..., 2, tokens]
        self.axis = int(rng.integers(rank))  # of the tokens
        self.lines: list[str] = [f"{name} = Constant <value = {value}> ()" for name, value in CONSTANTS.items()]
        self.count = 0

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def add(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"t{self.count} = {text}")
        return f"t{self.count}"

    def type(self, symbol: str) -> str:
        dims = ["2"] * self.rank
        dims[self.axis] = symbol
        return f"float[{', '.join(dims)}]"

    def at_axis(self) -> int:
        return self.axis - self.rank if self.chance(0.5) else self.axis

    def new_rows(self, made: Sequence[str]) -> str:
        """Rows that a state gets: the input, or a value computed from it."""
        x = self.pick(("x", *made)) if made else "x"
        if self.chance(0.4):
            return x
        return self.add(f"{self.pick(('Neg', 'Relu', 'Identity', 'Sign'))} ({x})")

    def appended(self, past: str, others: Sequence[str]) -> str:
        new, axis = self.new_rows([]), self.at_axis()
        kind = self.pick(["behind"] * 8 + ["front", "both", "other", "twice", "twice", "window", "fresh", "fresh"])
        if kind == "fresh":
            return self.add(f"Identity ({new})") if new == "x" else new
        if kind == "front":
            return self.add(f"Concat <axis = {axis}> ({new}, {past})")
        if kind == "both":
            return self.add(f"Concat <axis = {axis}> ({new}, {past}, {new})")
        if kind == "twice":
            made = self.add(f"Concat <axis = {axis}> ({past}, {past})")
            return self.window(made) if self.chance(0.3) else made
        if kind == "other":
            made = self.add(f"Concat <axis = {axis}> ({past}, {self.pick(others)})")
            return self.window(made)
        made = self.add(f"Concat <axis = {axis}> ({past}, {new})")
        return self.window(made) if kind == "window" else made

    def window(self, value: str) -> str:
        """The last four tokens."""
        self.count += 1
        self.lines.append(f"axis{self.count} = Constant <value = int64[1] {{{self.at_axis()}}}> ()")
        return self.add(f"Slice ({value}, four, end, axis{self.count})")

    def updated(self, past: str) -> str:
        """A state of constant size."""
        kind = self.pick(("same", "same", "plain", "twice", "identity"))
        if kind == "same":
            return past
        if kind == "identity":
            return self.add(f"Identity ({past})")
        if kind == "plain":
            return self.add(f"{self.pick(('Neg', 'Sign', 'Relu'))} ({past})")
        return self.add(f"Sub ({past}, {past})") if self.chance(0.2) else self.add(f"Neg ({past})")

    def reader(self, value: str, other: str) -> str:
        """A result that reads a state."""
        kind = self.pick(("sum", "product", "copy", "transpose", "shape", "slice", "plain", "itself"))
        if kind == "sum":
            total = self.add(f"ReduceSum <keepdims = 0> ({value})")
            return self.add(f"Sign ({total})")
        if kind == "product" and self.rank >= 2 and self.axis == self.rank - 2:
            order = [*range(self.rank - 2), self.rank - 1, self.rank - 2]
            turned = self.add(f"Transpose <perm = {order}> ({value})")
            q = self.add("MatMul (x, square)")
            return self.add(f"MatMul ({q}, {turned})")
        if kind == "product" and self.rank >= 2 and self.axis == self.rank - 1:
            return self.add(f"MatMul (square, {value})")
        if kind == "copy" and self.rank < 4:
            inner = self.add(f"Unsqueeze ({value}, {self.pick(('zero', 'one'))})")
            repeats = ", ".join(str(self.pick((1, 2))) for _ in range(self.rank + 1))
            self.lines.append(f"tiles{self.count} = Constant <value = int64[{self.rank + 1}] {{{repeats}}}> ()")
            return self.add(f"Tile ({inner}, tiles{self.count})")
        if kind == "transpose":
            order = [int(i) for i in self.rng.permutation(self.rank)]
            return self.add(f"Transpose <perm = {order}> ({value})")
        if kind == "shape":
            shape = self.add(f"Shape ({value})")
            return self.add(f"Cast <to = 1> ({shape})")
        if kind == "slice":
            return self.window(value)
        if kind == "itself":
            return value
        return self.add(f"{self.pick(('Neg', 'Relu'))} ({value})")


def case(rng: np.random.Generator) -> Case:
    make = Maker(rng, int(rng.integers(1, 5)))
    count = int(rng.integers(1, 4))
    pasts = [f"past{at}" for at in range(count)]
    presents: list[str] = []
    for past in pasts:
        grows = make.chance(0.75)
        presents.append(make.appended(past, [*pasts, *presents]) if grows else make.updated(past))
    if count > 1 and make.chance(0.2):  # exchanged
        presents = presents[1:] + presents[:1]
    if count > 1 and make.chance(0.1):
        presents[0] = presents[1]
    free = [make.reader(make.pick((*presents, *presents, *pasts)), "x") for _ in range(int(rng.integers(1, 4)))]
    outputs, lines = [], []
    for at, present in enumerate(presents):
        # An output of its own: also if two states have the same value, or a state is passed on.
        same = present in pasts or present in presents[:at]
        if same or not present.startswith("t"):
            lines.append(f"present{at} = Identity ({present})")
            outputs.append((f"present{at}", make.type(f"P{at}")))
        else:
            outputs.append((present, make.type(f"P{at}")))
    seen = {name for name, _ in outputs}
    for value in free:
        if value in seen or not value.startswith("t"):
            value = make.add(f"Identity ({value})")
        if value not in seen:
            outputs.append((value, ""))
            seen.add(value)
    states = {outputs[at][0]: past for at, past in enumerate(pasts)}
    inputs = [f"{make.type('new')} x", *(f"{make.type(f'p{at}')} {past}" for at, past in enumerate(pasts))]
    order = rng.permutation(len(outputs))
    listed = [outputs[int(at)] for at in order]
    ports = ", ".join(f"{kind or 'float'} {name}" for name, kind in listed)
    text = f"g ({', '.join(inputs)}) => ({ports}) {{\n"
    model = onnx.parser.parse_model(HEAD + text + "\n".join([*make.lines, *lines]) + "\n}")
    for port in model.graph.output:
        if port.name not in states:
            port.type.tensor_type.ClearField("shape")
    return Case(model, _calls(rng, make, model, states), tolerance=0.0, states=states, note=f"rank {make.rank}")


def _calls(
    rng: np.random.Generator, make: Maker, model: onnx.ModelProto, states: dict[str, str]
) -> list[dict[str, np.ndarray]]:
    """Calls whose states are the results of the call before, as onnxruntime computes them."""
    session = onnxruntime_session(model)
    names = [port.name for port in model.graph.output]

    def shape(length: int) -> tuple[int, ...]:
        dims = [2] * make.rank
        dims[make.axis] = length
        return tuple(dims)

    first = int(rng.choice((0, 0, 1, 3, 255)))
    values = {past: rng.integers(-3, 4, shape(first)).astype(np.float32) for past in states.values()}
    calls = []
    for _ in range(int(rng.integers(3, 9))):
        length = int(rng.choice((1, 1, 1, 1, 2, 0, 3, 254)) if make.chance(0.5) else 1)
        feeds = {"x": rng.integers(-3, 4, shape(length)).astype(np.float32), **values}
        try:
            results = dict(zip(names, session.run(None, feeds), strict=True))
        except Exception:  # such as values whose sizes no longer fit
            break
        if sum(array.size for array in (*feeds.values(), *results.values())) > MOST_ELEMENTS:
            break
        calls.append(feeds)
        values = {past: results[present] for present, past in states.items()}
    return calls


KNOWN: tuple[Known, ...] = ()
