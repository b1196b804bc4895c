"""A part of a plan: one program and its surroundings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ... import _program
from .appended import Append

__all__ = ["Segment"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of a plan that runs without interruption. Values are given by id.

    ``program``: computes ``outputs`` from ``inputs``.
    ``known``: results that no call computes, as read-only arrays.
    ``aliases``: result -> (an input or output of the program, shape): the same elements in that shape. A shape that
    depends on sizes is given by a tensor of the program that has it.
    ``needs``: the values whose data planning the next segment requires or may use; empty for the last segment.
    ``node_of``: the node of each call of the program.
    ``next_node``: where the next segment begins in the planner's order of nodes; -1 for the last segment.
    ``handed_on``: the values that later segments may read.
    ``host``: the node that Python runs after the program (control flow or a custom operator); -1 for none.
    ``host_outputs``: the outputs of this node that later nodes read.
    ``appends``: outputs that are rooms (see `appended`); a run needs a place for each, with the old rows.
    ``keep_alive``: the previous segment, whose id is part of a cache key.
    ``open_axes``: for each value of ``handed_on``, the axes whose sizes may differ from call to call.
    ``is_whole``: whether the program alone computes the outputs of the model from its inputs: the program reads exactly
    the inputs, in order, and no other segment and no node in Python follows.
    """

    program: _program.Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    known: Mapping[int, NDArray[Any]]
    aliases: Mapping[int, tuple[int, tuple[int, ...] | int]]
    needs: tuple[int, ...]
    node_of: tuple[int, ...]
    next_node: int
    handed_on: tuple[int, ...]
    host: int = -1
    host_outputs: tuple[int, ...] = ()
    open_axes: Mapping[int, tuple[bool, ...]] = dataclasses.field(default_factory=dict)
    appends: tuple[Append, ...] = ()
    keep_alive: list[Segment] = dataclasses.field(default_factory=list)
    is_whole: bool = False
