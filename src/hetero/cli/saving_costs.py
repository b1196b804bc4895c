"""``hetero bench --save-costs``: saves counters and link speeds to a cost file. Later runs are merged into it."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..assign.costs import Costs
from ..measure import measure_launch, measure_link

if TYPE_CHECKING:
    from ..core import Core
    from ..model.model import Model
    from ..plugin.profile import Profile

__all__ = ["save_costs"]


def save_costs(
    core: Core,
    model: Model,
    counted: Sequence[tuple[Sequence[str], Sequence[Profile]]],
    arrays: Mapping[str, Any],
    config: Mapping[str, Any],
    path: str,
) -> Costs:
    """Writes costs, merged into an existing file, and returns them.

    ``counted``: for each measured model, the device of each subgraph and its counters. Measures the links between each
    pair of these devices, in both directions. Raises `CostFileError` if the file is not a cost file, and `WrongModel`
    for costs of another model.
    """
    before = [Costs.load(path)] if os.path.exists(path) else []
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if hasattr(array, "shape")}
    costs = Costs.of_model(model)
    for devices, runs in counted:
        costs = costs.merge(
            Costs.from_profile(model, devices if len(devices) > 1 or _cut(runs) else devices[0], runs, shapes)
        )
    threads = {key: value for key, value in config.items() if key == "INFERENCE_NUM_THREADS"}
    measurements = [
        dataclasses.replace(entry, launch_us=measure_launch(core, entry.device, threads) * 1e6)
        for entry in costs.measurements
    ]
    names = list(dict.fromkeys(entry.device for entry in measurements))
    links = [measure_link(core, source, target, threads) for source, target in itertools.permutations(names, 2)]
    costs = dataclasses.replace(costs, measurements=tuple(measurements), links=tuple(links))
    if before:
        costs = before[0].merge(costs)
    costs.save(path)
    return costs


def _cut(runs: Sequence[Profile]) -> bool:
    return any(row.subgraph > 0 for rows in runs for row in rows)
