"""Extra inferences of `hetero bench` with counters: for tables, traces and costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .counters import devices_of, mean_rows
from .progress import working

if TYPE_CHECKING:
    from ..plugin.contract import CompiledModel
    from ..plugin.profile import Profile
    from .planning import Planning
    from .session import Session

__all__ = ["count_all"]

_INFERENCES = 20  # maximum per target
_SECONDS = 2.0
_TRACED = 3  # inferences per target


def count_all(
    session: Session,
    targets: Sequence[Planning],
    config: Mapping[str, Any],
    arrays: Mapping[str, Any],
    results: Sequence[dict[str, Any]] | None,
    trace: str | None,
    costs_path: str | None,
) -> None:
    """Compiles each target again with counters, and runs it several times. Adds the mean ``counters`` to ``results``.
    Writes the last inferences to the file ``trace`` and the times of the nodes to the file ``costs_path``."""
    counted: list[tuple[list[str], list[Profile]]] = []
    for target in targets:
        compiled, _ = session.compile(target, {**config, "PERF_COUNT": True})
        with working("Counting"):
            counted.append((devices_of(compiled), _profiles(compiled, arrays)))
    if results is not None:
        for result, (devices, profiles) in zip(results, counted, strict=True):
            result["counters"] = {"rows": mean_rows(profiles), "devices": devices}
    if costs_path is not None:
        from .saving_costs import save_costs

        save_costs(session.core, session.model, counted, arrays, config, costs_path)
    if trace is not None:
        from ..report.trace import write_trace

        write_trace([profile for _, profiles in counted for profile in profiles[-_TRACED:]], trace)


def _profiles(compiled: CompiledModel, arrays: Mapping[str, Any]) -> list[Profile]:
    request = compiled.create_infer_request()
    request.infer(arrays)  # the first inference also plans memory
    profiles: list[Profile] = []
    begin = time.perf_counter()
    while not profiles or (len(profiles) < _INFERENCES and time.perf_counter() - begin < _SECONDS):
        request.infer(arrays)
        profiles.append(request.profiling_info)
    return profiles
