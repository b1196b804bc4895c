"""Stage 5, run: the submodels of a cut model, in order, over one table of values.

A schedule is made once at compile: every boundary value has a slot, each step names the slots it reads and fills and
those nobody reads after it. Running one inference is then a loop over steps in the calling thread, with no look-up by
name and no copy between steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import HeteroError, InferenceError
from .profile import ProfileRow
from .request import Runner

if TYPE_CHECKING:
    from ..plugin import CompiledModel

__all__ = ["Schedule", "ScheduleRunner", "Step"]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One submodel: what runs it, the slots it reads and fills, and the slots free after it."""

    compiled: CompiledModel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    last_read: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in an order in which they can run. Slots 0, 1, … hold the model's inputs, the next ones ``constants``."""

    num_slots: int
    constants: tuple[np.ndarray, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


class ScheduleRunner:
    """Runs one inference at a time through a schedule; see `hetero.runtime.request.Runner`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._runners: list[Runner] = [step.compiled.create_runner() for step in schedule.steps]

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        schedule = self._schedule
        slots: list[Any] = [*inputs, *schedule.constants]
        slots += [None] * (schedule.num_slots - len(slots))
        for position, (step, runner) in enumerate(zip(schedule.steps, self._runners, strict=True)):
            try:
                results = runner.run([slots[slot] for slot in step.inputs])
            except HeteroError as error:
                error.add_note(f"in subgraph {position + 1} on {step.compiled.device}")
                raise
            except Exception as error:
                raise InferenceError(
                    f"{step.compiled.device} failed in subgraph {position + 1}: {type(error).__name__}: {error}"
                ) from error
            if len(results) != len(step.outputs):
                raise InferenceError(
                    f"{step.compiled.device} gave {len(results)} results for subgraph {position + 1}, "
                    f"expected {len(step.outputs)}"
                )
            for slot, result in zip(step.outputs, results, strict=True):
                slots[slot] = result
            for slot in step.last_read:
                slots[slot] = None
        return [slots[slot] for slot in schedule.outputs]

    def profile(self) -> Sequence[ProfileRow]:
        return [
            dataclasses.replace(row, subgraph=position + 1)
            for position, runner in enumerate(self._runners)
            for row in runner.profile()
        ]
