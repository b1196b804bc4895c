"""Runs the iterations of a Loop or Scan in C, for bodies that are one program.

If a body's plan is one segment and every carried value keeps its type and shape, an iteration is one run of the program
with other addresses: carried values alternate between two buffers, and scanned inputs and outputs advance by one row.
`Workspace.repeat` runs such iterations without the GIL and returns every 10 ms, to handle signals and cancellation. An
iteration costs about 0.1 µs besides its kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...._workspace import Workspace
from ....plugin.cancellation import Cancellation
from ..segment import Segment

__all__ = ["Carried", "Rows", "StaticBody"]

_Array = NDArray[Any]
_Binding = tuple[_Array, _Array, int, int]
"""The address of a tensor in each iteration: the array of even iterations, that of odd iterations, and the row: first +
step * trip. A step of 0 stands for the whole array."""

_SLICE_SECONDS = 0.01  # longest time in C before signals and cancellation are checked


@dataclasses.dataclass(slots=True)
class Carried:
    """The two buffers of a value that each iteration passes to the next. Even iterations read ``even`` and write
    ``odd``."""

    even: _Array
    odd: _Array

    def after(self, trips: int) -> _Array:
        return self.odd if trips & 1 else self.even

    @property
    def read(self) -> _Binding:
        return (self.even, self.odd, 0, 0)

    @property
    def written(self) -> _Binding:
        return (self.odd, self.even, 0, 0)


@dataclasses.dataclass(slots=True)
class Rows:
    """Rows of an array, one per iteration: iteration t reads or writes row first + step * t."""

    array: _Array
    first: int
    step: int

    @property
    def read(self) -> _Binding:
        return (self.array, self.array, self.first, self.step)

    written = read


class StaticBody:
    """The program of a body for inputs of fixed types. ``input_ids``, ``output_ids``: value ids in the body's model."""

    def __init__(
        self,
        segment: Segment,
        workspace: Workspace,
        input_ids: Sequence[int],
        output_ids: Sequence[int],
    ) -> None:
        self._segment = segment
        self._workspace = workspace
        self._input_ids = input_ids
        self._output_ids = output_ids

    def output_type(self, position: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and element type of an output of the body."""
        value, segment = self._output_ids[position], self._segment
        if value in segment.known:
            return segment.known[value].shape, segment.known[value].dtype
        if value in segment.aliases:
            source, shape = segment.aliases[value]
            if isinstance(shape, int):
                shape = self._workspace.shape(shape)
            return shape, self._program_type(source)[1]
        return self._program_type(value)

    def passes_on(self, output: int, input_: int) -> bool:
        """Whether an output is an input, unchanged except for its shape."""
        source = self._segment.aliases.get(self._output_ids[output])
        return source is not None and source[0] == self._input_ids[input_]

    def repeat(
        self,
        inputs: Sequence[_Array | Carried | Rows],
        outputs: Mapping[int, Carried | Rows],
        counter: NDArray[np.int64],
        flag: int,
        trip: int,
        stop: int,
        cancellation: Cancellation,
    ) -> tuple[int, bool]:
        """Run the iterations from ``trip`` to ``stop`` - 1, or until output number ``flag`` (-1: none) is false.
        Returns the number of the next iteration and whether it should run. ``outputs``: where each output is written;
        others are discarded."""
        segment = self._segment
        place = {
            value: source.read if isinstance(source, (Carried, Rows)) else (source, source, 0, 0)
            for value, source in zip(self._input_ids, inputs, strict=True)
        }
        bindings: list[_Binding | None] = [place[value] for value in segment.inputs]
        number_of = {value: number for number, value in enumerate((*segment.inputs, *segment.outputs))}
        bindings += [None] * len(segment.outputs)
        copies, flag_number = [], -1
        for position, target in outputs.items():
            value = self._output_ids[position]
            if value in segment.known:
                number = len(bindings)
                bindings.append((segment.known[value], segment.known[value], 0, 0))
            else:
                number = number_of[segment.aliases[value][0] if value in segment.aliases else value]
            if bindings[number] is None:
                bindings[number] = target.written
            else:
                copies.append((number, len(bindings)))
                number = len(bindings)
                bindings.append(target.written)
            if position == flag:
                flag_number = number
        whole = [self._scratch(number) if binding is None else binding for number, binding in enumerate(bindings)]
        proceed = True
        while proceed and trip < stop:
            cancellation.check()
            trip, proceed = self._workspace.repeat(whole, copies, counter, flag_number, trip, stop, _SLICE_SECONDS)
        return trip, proceed

    def _scratch(self, number: int) -> _Binding:
        shape, dtype = self._workspace.output_specs[number - self._segment.program.num_inputs]
        array = np.empty(shape, dtype)
        return (array, array, 0, 0)

    def _program_type(self, value: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        segment = self._segment
        if value in segment.outputs:
            return self._workspace.output_specs[segment.outputs.index(value)]
        return self._workspace.input_specs[segment.inputs.index(value)]
