"""A part of a plan: one program, and what surrounds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ... import _program

__all__ = ["Segment"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of a plan that runs without a stop.

    ``program`` takes the arrays of ``inputs`` (value ids) and gives those of ``outputs``. ``known``: values that need
    no program, as read-only arrays that no caller can write. ``aliases``: values that are another one under a new
    shape. ``needs``: values whose data the rest of the plan waits for; empty for the last segment. ``handed_on``: all
    that the rest may read. ``node_of``: the node of each call of the program. ``next_node``: where planning goes on.
    ``host``: the node, of control flow or of the user's, that runs after the program, -1 for none; ``host_outputs``:
    what of it the rest reads.
    """

    program: _program.Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    known: Mapping[int, NDArray[Any]]
    aliases: Mapping[int, tuple[int, tuple[int, ...]]]
    needs: tuple[int, ...]
    node_of: tuple[int, ...]
    next_node: int
    handed_on: tuple[int, ...]
    host: int = -1
    host_outputs: tuple[int, ...] = ()
    keep_alive: list[Segment] = dataclasses.field(default_factory=list)
