"""Runs planned segments: one after the other, with the data in between where a plan was cut."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import _kernels
from ...runtime.profile import EXECUTED, OPTIMIZED_OUT, ProfileRow
from .planner import Planner, Segment

__all__ = ["CpuRunner", "PlanCache"]

MAX_PLANS = 64
MAX_WORKSPACES = 8  # per request: tables of tensors; the arena is shared


class PlanCache:
    """The segments of one compiled model, by what they were planned for. Bounded, least recently used first out.

    Shared by all requests; thread-safe.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self._lock = threading.Lock()
        self._segments: OrderedDict[Hashable, Segment] = OrderedDict()

    def first(self, inputs: Sequence[NDArray[Any]]) -> Segment:
        shapes = tuple(array.shape for array in inputs)
        segment = self._get(shapes)
        if segment is None:
            with self._lock:
                segment = self.planner.first(shapes, [array.dtype for array in inputs])
                self._put(shapes, segment)
        return segment

    def following(self, segment: Segment, arrays: Mapping[int, NDArray[Any]]) -> Segment:
        """The segment after ``segment``, given the data that it waits for and the shapes of the rest."""
        waited = tuple((arrays[value].shape, arrays[value].tobytes()) for value in segment.needs)
        key = (id(segment), waited)
        found = self._get(key)
        if found is None:
            with self._lock:
                found = self.planner.following(segment, arrays)
                found.keep_alive.append(segment)  # its id stands in the key
                self._put(key, found)
        return found

    def _get(self, key: Hashable) -> Segment | None:
        with self._lock:
            segment = self._segments.get(key)
            if segment is not None:
                self._segments.move_to_end(key)
            return segment

    def _put(self, key: Hashable, segment: Segment) -> None:
        self._segments[key] = segment
        while len(self._segments) > MAX_PLANS:
            self._segments.popitem(last=False)


class CpuRunner:
    """One request's memory: an arena, and a workspace per segment it met last. See `hetero.runtime.request.Runner`."""

    def __init__(self, plans: PlanCache, timed: bool, team: _kernels.Team | None) -> None:
        self._plans = plans
        self._timed = timed
        self._team = team
        self._arena = _kernels.Arena()
        self._workspaces: OrderedDict[int, tuple[Segment, _kernels.Workspace]] = OrderedDict()
        self._last: list[tuple[Segment, _kernels.Workspace]] = []
        self._whole: _kernels.Workspace | None = None  # of the last plan, if it is one segment that makes all outputs

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        if self._whole is not None:
            results = self._whole.run(inputs)
            if results is not None:
                return results
        return self._run_segments(inputs)

    def _run_segments(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        model = self._plans.planner.model
        arrays: dict[int, NDArray[Any]] = dict(zip(model.input_ids, inputs, strict=True))
        self._last, self._whole = [], None
        segment = self._plans.first(inputs)
        while True:
            workspace = self._workspace(segment)
            results = workspace.run([arrays[value] for value in segment.inputs])
            assert results is not None, "planned for these shapes and dtypes"
            self._last.append((segment, workspace))
            arrays.update(zip(segment.outputs, results, strict=True))
            arrays.update(segment.known)
            for value, (source, shape) in segment.aliases.items():
                arrays[value] = np.ascontiguousarray(arrays[source]).reshape(shape)
            if not segment.needs:
                break
            arrays = {value: arrays[value] for value in segment.handed_on}
            segment = self._plans.following(segment, arrays)
        alone = len(self._last) == 1
        if alone and segment.inputs == tuple(model.input_ids) and segment.outputs == tuple(model.output_ids):
            self._whole = workspace
        return [arrays[value] for value in model.output_ids]

    def _workspace(self, segment: Segment) -> _kernels.Workspace:
        entry = self._workspaces.get(id(segment))
        if entry is None:
            entry = (segment, _kernels.Workspace(segment.program, self._timed, self._arena, self._team))
            self._workspaces[id(segment)] = entry
            while len(self._workspaces) > MAX_WORKSPACES + len(self._last):
                self._workspaces.popitem(last=False)
        self._workspaces.move_to_end(id(segment))
        return entry[1]

    def profile(self) -> Sequence[ProfileRow]:
        if not self._timed:
            return ()
        nodes = self._plans.planner.nodes
        real, cpu = [0.0] * len(nodes), [0.0] * len(nodes)
        executed = [False] * len(nodes)
        for segment, workspace in self._last:
            for node, (wall_ns, cpu_ns) in zip(segment.node_of, workspace.times(), strict=True):
                real[node] += wall_ns / 1000
                cpu[node] += cpu_ns / 1000
                executed[node] = True
        kind = f"{_kernels.variant()}_f32"
        model, folded = self._plans.planner.model, self._plans.planner.folded
        return [
            ProfileRow(
                model.key_of(i),
                EXECUTED if executed[i] else OPTIMIZED_OUT,
                plan.node.op_type,
                kind if executed[i] else "folded" if i in folded else "fused",
                real[i],
                cpu[i],
            )
            for i, plan in enumerate(nodes)
        ]
