"""Runs the iterations of a Loop or Scan in C, for bodies that are one program.

`_workspace.Iterations` runs them without the GIL: it evaluates the sizes of an iteration if they differ from those of
the one before, lets the program write to buffers and rows, and passes the carried values on. This file describes a
body to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...._workspace import Iterations, Workspace
from ..registry import ANY, name_of
from ..segment import Segment

if TYPE_CHECKING:
    from ..planner import Planner

__all__ = ["Layout", "Stack", "iterations_of"]


class Layout(NamedTuple):
    """The inputs and outputs of a body. Inputs: in a Loop, the number of the iteration; ``num_carried`` values, in a
    Loop the condition first; ``num_slices`` rows of scanned inputs; captured values. Outputs: the carried values for
    the next iteration, then the rows of scanned outputs."""

    is_loop: bool
    num_carried: int
    num_slices: int = 0


class Stack(Protocol):
    """Takes the rows of a scanned output."""

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any], iteration: int) -> NDArray[Any]:
        """Rows of this type from ``iteration`` on, at least one."""
        ...

    def finish(self, iteration: int) -> None:
        """All iterations before ``iteration`` have filled their rows."""
        ...


def iterations_of(planner: Planner, segment: Segment, workspace: Workspace, layout: Layout) -> Iterations | None:
    """The iterations of the body that ``segment`` is a plan of; None unless the plan is one program, its outputs are
    numbers, and carried values keep their element type."""
    if not segment.is_whole:
        return None
    program = segment.program
    input_of = {value: number for number, value in enumerate(planner.input_ids)}
    reads = [input_of[value] for value in segment.inputs]
    results: list[tuple[NDArray[Any] | int, tuple[int, ...] | int | None]] = []
    dtypes: list[np.dtype[Any]] = []
    for value in planner.output_ids:
        source, shape = segment.aliases.get(value, (value, None))
        if value in segment.known:
            results.append((segment.known[value], None))
            dtypes.append(segment.known[value].dtype)
        elif source in segment.outputs:
            output = segment.outputs.index(source)
            results.append((output, shape))
            dtypes.append(program.output_specs[output][1])
        else:
            results.append((-1 - input_of[source], shape))
            dtypes.append(program.input_specs[segment.inputs.index(source)][1])
    read_as = {value: dtype for value, (_, dtype) in zip(reads, program.input_specs, strict=True)}
    first = int(layout.is_loop)
    if any(dtypes[at] != read_as[first + at] for at in range(layout.num_carried)):
        return None
    if any(name_of(dtype) not in ANY for dtype in dtypes):
        return None
    return Iterations(
        workspace, reads, results, dtypes, layout.is_loop, layout.num_carried, layout.num_slices, len(input_of)
    )
