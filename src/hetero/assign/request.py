"""`Request`: the devices for which a model is planned and compiled, and the rules. Resolved once per call of `Core`."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.formatting import byte_size, counted
from ..base.log import tell
from ..base.warn import warn
from ..errors import HeteroError, ModelError, PropertyError, raise_out_of_memory
from ..model.functions import may_lack_types
from ..model.types import ValueType
from ..plugin.caller import ConfiguredDevice, find_dtypes, query
from ..plugin.contract import LeastSubgraph, Support

if TYPE_CHECKING:
    from ..model.model import Model
    from ..plugin.speed import DeviceSpeed
    from .costs.measured import Costs

__all__ = ["AssignmentRules", "Objective", "ProcessorUse", "Request", "query_all", "with_device_types"]


class Objective(enum.Enum):
    """The objective of an assignment."""

    PRIORITY = enum.auto()
    """Each node goes to the first device of the list that supports it; the fewest subgraphs."""
    COST = enum.auto()
    """The least predicted time of one inference with subgraphs one after the other; the fewest subgraphs."""
    OVERLAP = enum.auto()
    """The least predicted time of one inference with devices in parallel."""
    OVERLAP_BY_PRIORITY = enum.auto()
    """The same with each node on the first device of the list that supports it."""
    THROUGHPUT = enum.auto()
    """The most inferences per second, with one pipeline stage per device."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessorUse:
    """Which devices of a list compute on processors of this machine.

    ``threads``: of each device, 0 if it uses hardware of its own; empty if no device is known to use processors.
    ``processors``: how many processors there are.
    """

    threads: tuple[int, ...] = ()
    processors: int = 1

    @property
    def is_crowded(self) -> bool:
        """Whether the devices have more threads than there are processors, so that they gain nothing from working at
        the same time."""
        return sum(self.threads) > self.processors and self.sharing > 1

    @property
    def sharing(self) -> int:
        """The number of devices that compute on processors of this machine."""
        return sum(count > 0 for count in self.threads)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AssignmentRules:
    """How nodes are assigned and the graph is cut, as data: a plan keeps it, to answer what would be otherwise.

    ``policy``: of `partition_graph`. ``costs``: measured costs. ``speeds``: the speed of each device; empty for a plan
    from a file. ``processors``: the processors of this machine that the devices use. ``limits``: device -> memory limit
    in bytes. ``least``: device -> minimum size of its subgraphs. ``most``: device -> largest number of its subgraphs.
    ``together``: groups of nodes, as users write them, that go to one device; see `hetero.assign.constraints`.
    ``in_turn``: whether the runtime never overlaps the subgraphs of an inference (``PERFORMANCE_HINT=THROUGHPUT``); it
    changes only the warnings of a plan.
    """

    policy: str = "auto"
    objective: Objective = Objective.PRIORITY
    costs: Costs | None = None
    speeds: Sequence[DeviceSpeed] = ()
    processors: ProcessorUse = ProcessorUse()
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    least: Mapping[str, LeastSubgraph] = dataclasses.field(default_factory=dict)
    most: Mapping[str, int] = dataclasses.field(default_factory=dict)
    together: tuple[tuple[str, ...], ...] = ()
    in_turn: bool = False

    def limit_texts(self) -> dict[str, list[str]]:
        """Device -> its limits on memory, and on the size and number of its subgraphs, each as text."""
        texts: dict[str, list[str]] = {}
        for device, limit in self.limits.items():
            texts.setdefault(device, []).append(f"{byte_size(limit)} of memory")
        for device, most in self.most.items():
            which = "first subgraph" if most == 1 else f"first {most} subgraphs"
            texts.setdefault(device, []).append(f"only the {which} of a model")
        for device, least in self.least.items():
            nodes, flops = counted(least.nodes, "node"), f"{least.flops:.3g} operations"
            sizes = ((least.nodes > 1, nodes), (least.flops > 0, flops))
            texts.setdefault(device, []).extend(f"subgraphs of at least {size}" for applies, size in sizes if applies)
        return texts


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The input of stages 2 to 4, except the model. A single device is a list of one.

    ``whole``: the requested device, named by the device string. ``settings``: all its properties, with defaults.
    ``devices``: the available devices by priority, each with its own part of the configuration; only ``whole`` for a
    single device. ``pins``: as in `Core.plan`. ``skipped``: the other devices of the list -> reason. ``cuts``: whether
    the model is cut into subgraphs for ``devices``.
    """

    whole: ConfiguredDevice
    settings: Mapping[str, Any]
    devices: tuple[ConfiguredDevice, ...]
    rules: AssignmentRules
    pins: Mapping[str, str]
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cuts: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of ``devices``."""
        return tuple(device.name for device in self.devices)

    def supports(self, model: Model) -> list[Support]:
        """The nodes that each device supports."""
        if not self.cuts:
            return [query(device, model) for device in self.devices]
        return query_all(self.whole.plugin.name, self.devices, model, self.settings)


def with_device_types(model: Model, devices: Sequence[ConfiguredDevice]) -> Model:
    """The model with the element types that hetero cannot infer but one of the devices finds, so that it can be cut at
    these values. Returns the same object if there is nothing to add. Raises the errors of `find_dtypes`."""
    if not may_lack_types(model):
        return model
    for device in devices:
        kinds, kind_of = model.type_table()
        untyped = np.isin(kind_of, [number for number, kind in enumerate(kinds) if kind.dtype is None])
        values = np.flatnonzero(untyped & (model.producer >= 0)).tolist()
        names = [model.value_name(value) for value in values if model.is_tensor(value)]
        if not names:
            break
        dtypes = find_dtypes(device, model, names)
        if dtypes:
            model = model.with_types({name: ValueType(dtype, None) for name, dtype in dtypes.items()})
    return model


def query_all(
    name: str, devices: Sequence[ConfiguredDevice], model: Model, settings: Mapping[str, Any]
) -> list[Support]:
    """The nodes that each device of the list of ``name`` supports. If a device fails, it counts as supporting no nodes,
    with a warning that names it; with ``STRICT``, the error is raised."""
    answers = []
    for device in devices:
        try:
            answers.append(query(device, model))
        except (PropertyError, ModelError):
            raise
        except HeteroError as error:
            raise_out_of_memory(error)
            if settings["STRICT"]:
                raise
            tell(settings, name, "WARNING", f"continues without {device.name}: {error}")
            warn(f"{name} continues without {device.name}: {error}")
            answers.append(Support.from_reasons(model.num_nodes, dict.fromkeys(range(model.num_nodes), str(error))))
    return answers
