"""`Plan`: the device of each node with the reason, and the partition, before anything is compiled."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.files import read_file, write_atomically
from ..base.formatting import counted
from ..errors import HeteroError, memory_errors
from .record import PlanRecord
from .schema import PlanFile, PlanWarning

if TYPE_CHECKING:
    from .explain import Explanation, MissingOp
    from .what_if import Difference

__all__ = ["Plan"]


class Plan(PlanRecord):
    """Devices, affinities and subgraphs of one model, as data. Immutable.

    `Core.plan` makes plans; `load` reads them from files, which may have been edited. `Core.plan` and
    `Core.compile_model` accept a plan in place of a device string, check it against the model, and apply it.

    ``bound``: the model, affinity and partition of the plan; None for a loaded plan until `Core.plan` binds it.
    ``original``: the model before calls of functions were inlined. Mappings by node key are computed on first access,
    so planning a graph of a million nodes does not create a million strings.

    ``devices``: the usable devices of the list, by priority; ``skipped``: the other devices -> reason. ``policy``: the
    partition policy. ``latency``: the predicted latency, if nodes were assigned by cost. ``pipeline``: the stages of a
    pipeline. ``limits``: device -> memory limit in bytes. ``pins``: as given. ``label``: the plan's name in messages.
    """

    @functools.cached_property
    @memory_errors()
    def warnings(self) -> tuple[PlanWarning, ...]:
        """Possible problems: unused devices, tiny islands, pins that cost subgraphs."""
        if self.bound is None:
            return self._loaded.warnings
        from .warning import plan_warnings

        return plan_warnings(self)

    # ---- questions

    def explain(self, node: str) -> Explanation:
        """Why a node is on its device, why it is cut from its neighbors, and what one more operator would change.

        ``node``: its key. Raises `ModelError` with the nearest key for an unknown key, and `PropertyError` for a loaded
        plan that is not bound: `Core.plan(model, plan)` binds it.
        """
        from .explain import explain

        return explain(self, node)

    def missing_ops(self, limit: int = 10) -> tuple[MissingOp, ...]:
        """The operators that would save the most subgraphs if one more device supported them, the best first.

        For at most ``limit`` operators, those at the most boundaries, the model is partitioned again. Operators that
        would not save a subgraph are left out: another supported operator often adds subgraphs.
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
        """How the plan would differ if devices supported more operators, or with other pins.

        ``device_supports``: device -> further operator types, as in `Model.op_types`. ``pins``: further pins;
        ``without_pins``: pins of the plan to leave out. Nothing is compiled, and devices are not queried again. Nodes
        that were assigned by cost, or moved because of memory limits, are assigned again. Raises `PropertyError` for an
        unknown device, operator or pin, and for a loaded plan that is not bound; `InsufficientMemory` if nothing fits.
        """
        from .what_if import what_if

        supports = {} if device_supports is None else device_supports
        return what_if(self, supports, {} if pins is None else pins, tuple(without_pins))

    # ---- as a file

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, atomically; an existing file is replaced. Equal plans give identical bytes. Raises
        `HeteroError` if the file cannot be written."""
        from .file import encode_lines

        try:
            write_atomically(path, encode_lines(self.to_file()))
        except OSError as error:
            raise HeteroError(f"cannot write plan {os.fsdecode(path)}: {error.strerror or error}") from error

    def to_json(self) -> bytes:
        """The JSON of `save`, on one line."""
        import msgspec

        return msgspec.json.encode(self.to_file())

    def to_file(self) -> PlanFile:
        """The contents, as the types of the file."""
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
        """Read a plan that `save` wrote, edited or not. Raises `HeteroError` with the problem and its position. Checks
        that need the model follow when the plan is used."""
        from .file import decode

        label = f"plan {os.fsdecode(path)}"
        try:
            data = read_file(path)
        except OSError as error:
            raise HeteroError(f"cannot read {label}: {error.strerror or error}") from error
        return cls(file=decode(data, label), label=label)

    @classmethod
    def from_json(cls, data: bytes | memoryview, label: str) -> Plan:
        """Read the output of `to_json`. ``label``: its name in messages."""
        from .file import decode

        return cls(file=decode(bytes(data), label), label=label)

    def settings(self) -> Sequence[Any]:
        """The parts that affect compiling, as JSON types."""
        stages = None if self.pipeline is None else [stage.subgraphs for stage in self.pipeline.stages]
        return [self.devices, self.policy, dict(self.affinity), [part.nodes for part in self.subgraphs], stages]

    def __str__(self) -> str:
        from .table import plan_table

        return plan_table(self, self.warnings)

    def _repr_svg_(self) -> str:
        """A picture for notebooks."""
        from .picture import plan_svg

        return plan_svg(self)

    def __repr__(self) -> str:
        return f"<Plan of {self.model_name!r} on {', '.join(self.devices)}: {counted(self.num_subgraphs, 'subgraph')}>"
