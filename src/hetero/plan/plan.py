"""`Plan`: the device of each node with the reason, and the partition, before anything is compiled."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..base.arguments import explain_arguments
from ..errors import memory_errors
from .bound import BoundPlan
from .schema import PlanWarning

if TYPE_CHECKING:
    from .explain import Explanation, MissingOp
    from .loaded import LoadedPlan
    from .what_if import Difference

__all__ = ["Plan"]


class Plan(BoundPlan):
    """Devices, affinities and subgraphs of one model, to be queried, printed, saved and compiled. Immutable.

    `Core.plan` makes plans. `load` reads plans from files; `Core.plan` checks them against a model and binds them.

    ``assignment``: the device of each node, the partition and the predictions. ``rules``: how nodes were assigned.
    ``skipped``: the unusable devices of the list -> reason. Mappings by node key are computed on first access, so
    planning a graph of a million nodes does not create a million strings.
    """

    @functools.cached_property
    @memory_errors()
    def warnings(self) -> tuple[PlanWarning, ...]:
        from .warning import plan_warnings

        return plan_warnings(self)

    # ---- questions

    def explain(self, node: str) -> Explanation:
        """Why a node is on its device, why it is cut from its neighbors, and what one more operator would change.

        ``node``: its key. Raises `ModelError` with the nearest key for an unknown key.
        """
        from .explain import explain

        return explain(self, node)

    def missing_ops(self, limit: int = 10) -> tuple[MissingOp, ...]:
        """The operators that would save the most subgraphs if one more device supported them, the best first.

        For at most ``limit`` operators, those at the most boundaries, the model is partitioned again, without the
        constraints of devices such as a largest number of subgraphs. Only nodes that a device rejects itself count; if
        it supports other nodes of the operator, ``supported_elsewhere`` is True. Operators that would not save a
        subgraph are left out: another supported operator often adds subgraphs.
        """
        from .explain import missing_ops

        return missing_ops(self, limit)

    @explain_arguments
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
        unknown device, operator or pin; `InsufficientMemory` if nothing fits.
        """
        from .what_if import what_if

        supports = {} if device_supports is None else device_supports
        return what_if(self, supports, {} if pins is None else pins, tuple(without_pins))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> LoadedPlan:
        """Read a plan that `save` wrote, edited or not. Raises `HeteroError` with the problem and its position. Checks
        that need the model follow when the plan is used."""
        from .loaded import LoadedPlan

        return LoadedPlan.load(path)

    @staticmethod
    def from_json(data: bytes | memoryview, label: str) -> LoadedPlan:
        """Read the output of `to_json`. ``label``: its name in messages."""
        from .loaded import LoadedPlan

        return LoadedPlan.from_json(data, label)

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
