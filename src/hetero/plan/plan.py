"""`Plan`: which node goes where and why, and how the model is cut, before anything is compiled."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.files import read_file, write_atomically
from ..errors import HeteroError, memory_errors
from .record import PlanRecord
from .schema import PlanFile, PlanWarning

if TYPE_CHECKING:
    from .explain import Explanation, MissingOp
    from .what_if import Difference

__all__ = ["Plan"]


class Plan(PlanRecord):
    """Devices, affinities and subgraphs of one model, as data. Immutable.

    Made by `Core.plan`, or by `load` from a file, which may have been edited: `Core.plan` and `Core.compile_model`
    take it in place of a device string, check it against the model, and honour it. ``bound`` is what a plan was made
    from, and None for a loaded one, which `Core.plan` binds to a model; ``original`` the model it was made for, which
    is not the bound one if calls of functions were inlined. What follows from it by node key is worked out when asked
    for: a graph of a million nodes is planned without a million strings.

    ``devices``: the device list, by priority, without those that cannot be used here; ``skipped`` says why not.
    ``policy``: how the model is cut. ``latency``: what an inference is predicted to take, where nodes were assigned by
    cost. ``pipeline``: the stages, where the model is run as a pipeline. ``limits``: device -> bytes that it may take,
    for those that have a limit. ``pins``: as they were given. ``label``: what messages call the plan.
    """

    @functools.cached_property
    @memory_errors()
    def warnings(self) -> tuple[PlanWarning, ...]:
        """What the plan's owner may not want: devices that are not used, tiny islands, pins that cost subgraphs."""
        if self.bound is None:
            return self._loaded.warnings
        from .warning import plan_warnings

        return plan_warnings(self)

    # ---- questions

    def explain(self, node: str) -> Explanation:
        """Why a node is where it is, why it is cut from its neighbours, and what one more operator would change.

        ``node``: its key. Raises `ModelError`, with the nearest key, if there is none, and `PropertyError` for a
        loaded plan that is not bound: `Core.plan(model, plan)` binds it.
        """
        from .explain import explain

        return explain(self, node)

    def missing_ops(self, limit: int = 10) -> tuple[MissingOp, ...]:
        """The operators that would save the most subgraphs if one more device took them, the best first.

        Those that stand at most boundaries are tried, by cutting the model again for each; at most ``limit`` of them.
        Those that would save none are left out: one more operator often makes more subgraphs, not fewer.
        Raises `PropertyError` for a loaded plan that is not bound.
        """
        from .explain import missing_ops

        return missing_ops(self, limit)

    def what_if(
        self,
        *,
        device_supports: Mapping[str, Iterable[str]] | None = None,
        pins: Mapping[str, str] | None = None,
        without_pins: Iterable[str] = (),
    ) -> Difference:
        """How the plan would differ if devices took more operators, or with other pins.

        ``device_supports``: device -> operator types, as in `Model.op_types`, that it then takes. ``pins``: more pins;
        ``without_pins``: those of the plan to leave out. Nothing is compiled or asked again. Raises `PropertyError` for
        a device, operator or pin that there is none of, and for a loaded plan that is not bound. What was assigned by
        cost, or moved for want of memory, is assigned again: `InsufficientMemory` where nothing then fits.
        """
        from .what_if import what_if

        supports = {} if device_supports is None else device_supports
        return what_if(self, supports, {} if pins is None else pins, tuple(without_pins))

    # ---- as a file

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all; a file of that name is replaced. The same plan gives the same
        bytes. Raises `HeteroError` if it cannot be written."""
        from .file import encode_lines

        try:
            write_atomically(path, encode_lines(self.to_file()))
        except OSError as error:
            raise HeteroError(f"cannot write plan {os.fsdecode(path)}: {error.strerror or error}") from error

    def to_json(self) -> bytes:
        """What `save` writes, on one line."""
        import msgspec

        return msgspec.json.encode(self.to_file())

    def to_file(self) -> PlanFile:
        """All that it says, as the types that the file is made of."""
        if self._file is not None:
            return self._file
        return PlanFile(
            format="hetero-plan",
            version=1,
            model=self.identity,
            devices=self.devices,
            affinity=self.affinity,
            policy=self.policy,
            pins=self.pins,
            subgraphs=self.subgraphs,
            totals=self.totals,
            warnings=self.warnings,
            values=self.values,
            latency=self.latency,
            pipeline=self.pipeline,
            reasons=self.reasons,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, edited or not. Raises `HeteroError` saying what is wrong with the file, and
        where; what can only be told from the model is checked when it is put to use."""
        from .file import decode

        label = f"plan {os.fsdecode(path)}"
        try:
            data = read_file(path)
        except OSError as error:
            raise HeteroError(f"cannot read {label}: {error.strerror or error}") from error
        return cls(file=decode(data, label), label=label)

    @classmethod
    def from_json(cls, data: bytes | memoryview, label: str) -> Plan:
        """What `to_json` gave. ``label``: how messages call it."""
        from .file import decode

        return cls(file=decode(bytes(data), label), label=label)

    def settings(self) -> Sequence[Any]:
        """What of it matters to compiling, as JSON can hold it."""
        stages = None if self.pipeline is None else [stage.subgraphs for stage in self.pipeline.stages]
        return [self.devices, self.policy, dict(self.affinity), [part.nodes for part in self.subgraphs], stages]

    def __str__(self) -> str:
        from .table import plan_table

        return plan_table(self, self.warnings)

    def _repr_svg_(self) -> str:
        """A picture of it, for notebooks."""
        from .picture import plan_svg

        return plan_svg(self)

    def __repr__(self) -> str:
        return f"<Plan of {self.model_name!r} on {', '.join(self.devices)}: {self.num_subgraphs} subgraphs>"
