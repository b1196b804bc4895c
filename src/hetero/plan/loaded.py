"""`LoadedPlan`: a plan read from a file, which may have been edited, before it is bound to a model."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..assign.predictions import PredictedLatency, PredictedPipeline
from ..base.files import read_file
from ..errors import HeteroError, PropertyError, file_error
from .file import decode
from .record import PlanRecord
from .schema import BoundaryValue, DeviceTotals, ModelIdentity, PlanFile, PlannedSubgraph, PlanWarning
from .traffic import Boundary

__all__ = ["LoadedPlan"]


class LoadedPlan(PlanRecord):
    """The contents of a plan file. `Core.plan` and `Core.compile_model` check it against a model and bind it."""

    def __init__(self, file: PlanFile, label: str) -> None:
        self._file = file
        self.label = label
        self.policy = file.policy
        self.pins = file.pins
        self.limits = {one.device: one.limit_bytes for one in file.totals if one.limit_bytes is not None}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LoadedPlan:
        """See `Plan.load`."""
        label = f"plan {os.fsdecode(path)}"
        try:
            data = read_file(path)
        except OSError as error:
            raise file_error(HeteroError, f"cannot read {label}: {error.strerror or error}", error) from error
        return cls(decode(data, label), label)

    @classmethod
    def from_json(cls, data: bytes | memoryview, label: str) -> LoadedPlan:
        """Read the output of `to_json`. ``label``: its name in messages."""
        return cls(decode(bytes(data), label), label)

    @property
    def identity(self) -> ModelIdentity:
        return self._file.model

    @property
    def devices(self) -> tuple[str, ...]:
        return self._file.devices

    @property
    def num_nodes(self) -> int:
        return len(self._file.affinity)

    @property
    def num_subgraphs(self) -> int:
        return len(self._file.subgraphs)

    @property
    def lower_bound(self) -> int | None:
        return self._file.lower_bound

    @property
    def affinity(self) -> Mapping[str, str]:
        return self._file.affinity

    @property
    def subgraphs(self) -> tuple[PlannedSubgraph, ...]:
        return self._file.subgraphs

    @property
    def reasons(self) -> Mapping[str, str]:
        return self._file.reasons

    @property
    def values(self) -> tuple[BoundaryValue, ...]:
        return self._file.values

    @functools.cached_property
    def boundary(self) -> Boundary:
        return Boundary.of(self.values)

    @property
    def subgraph_devices(self) -> Sequence[str]:
        return [part.device for part in self.subgraphs]

    def ends_of(self, subgraph: int) -> tuple[int, str, str]:
        nodes = self.subgraphs[subgraph].nodes
        return len(nodes), nodes[0], nodes[-1]

    @property
    def totals(self) -> tuple[DeviceTotals, ...]:
        return self._file.totals

    @property
    def warnings(self) -> tuple[PlanWarning, ...]:
        return self._file.warnings

    @property
    def latency(self) -> PredictedLatency | None:
        return self._file.latency

    @property
    def pipeline(self) -> PredictedPipeline | None:
        return self._file.pipeline

    def to_file(self) -> PlanFile:
        return self._file

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as a `LoadedPlan`: the model does not travel with its plan."""
        return type(self).from_json, (self.to_json(), self.label)

    def __str__(self) -> str:
        from .table import plan_table

        return plan_table(self)

    def _repr_svg_(self) -> str:
        """A picture for notebooks."""
        from .picture import plan_svg

        return plan_svg(self)

    # ---- questions that need the model

    def explain(self, node: str) -> NoReturn:
        """Raises `PropertyError`: bind the plan first."""
        self._refuse()

    def missing_ops(self, limit: int = 10) -> NoReturn:
        """Raises `PropertyError`: bind the plan first."""
        self._refuse()

    def what_if(self, **changes: Any) -> NoReturn:
        """Raises `PropertyError`: bind the plan first."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PropertyError(f"{self.label} was loaded and has no model; bind it with core.plan(model, plan)")
