"""Plan cache and runner: runs a plan's segments in order, and plans the next one from the data of the last."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import _kernels
from ..._workspace import Arena, StopFlag, Workspace
from ...errors import Cancelled, InferenceError, inference_error
from ...plugin.cancellation import Cancellation
from ...plugin.profile import EXECUTED, OPTIMIZED_OUT, ProfileRow
from .control_flow.run import run_nested
from .control_flow.trips import StaticBody
from .planner import Planner
from .registry import NodePlan
from .segment import Segment

__all__ = ["CpuRunner", "PlanCache"]

MAX_PLANS = 64
MAX_BODY_CALLS = 1 << 13  # kernel calls of all plans of a body: more than MAX_PLANS plans are kept if they are small
MAX_WORKSPACES = 8  # per request; a workspace holds tables of tensors, and all share one arena


class PlanCache:
    """The segments of one compiled model. Bounded: the least recently used segment is discarded first.

    Shared by all requests; thread-safe. ``max_calls``: more than `MAX_PLANS` segments are kept if all of them together
    have at most this many kernel calls. This is for bodies of a Loop in which a value grows: every trip is planned for
    another shape, and the next run meets the same shapes.
    """

    def __init__(self, planner: Planner, max_calls: int = 0) -> None:
        self.planner = planner
        self._max_calls = max_calls
        self._num_calls = 0
        self._lock = threading.Lock()
        self._segments: OrderedDict[Hashable, Segment] = OrderedDict()
        self._pending: dict[Hashable, threading.Lock] = {}
        self._children: dict[tuple[int, int], tuple[PlanCache, tuple[int, ...]]] = {}

    def child(self, node: int, graph: int) -> tuple[PlanCache, tuple[int, ...]]:
        """The plans of a body of a control-flow node, and the positions among the node's inputs of the captured values
        that follow the body's own inputs."""
        with self._lock:
            if (node, graph) not in self._children:
                planner, captured = self.planner.child(node, graph)
                self._children[node, graph] = (PlanCache(planner, MAX_BODY_CALLS), captured)
            return self._children[node, graph]

    def first(self, inputs: Sequence[NDArray[Any]]) -> Segment:
        shapes, dtypes = tuple(array.shape for array in inputs), tuple(array.dtype for array in inputs)
        return self._planned((shapes, dtypes), lambda: self.planner.first(shapes, dtypes))

    def following(self, segment: Segment, arrays: Mapping[int, NDArray[Any]]) -> Segment:
        """The segment after ``segment``. ``arrays``: the values that ``segment`` hands on.

        The cache key contains all that planning depends on: the types and data of ``segment.needs``, and the types of
        ``segment.host_outputs``. Everything else follows from ``segment``. Its id is in the key, so the entry keeps it
        alive.
        """
        needed_data = tuple(
            (arrays[value].shape, arrays[value].dtype, arrays[value].tobytes()) for value in segment.needs
        )
        host_types = tuple((arrays[value].shape, arrays[value].dtype) for value in segment.host_outputs)

        def plan() -> Segment:
            # Views of the key's bytes: the arrays themselves belong to the caller, or are written again.
            data = {
                value: np.ndarray(shape, dtype, buffer)
                for value, (shape, dtype, buffer) in zip(segment.needs, needed_data, strict=True)
            }
            planned = self.planner.following(segment, arrays, data)
            planned.keep_alive.append(segment)
            return planned

        return self._planned((id(segment), needed_data, host_types), plan)

    def _planned(self, key: Hashable, plan: Callable[[], Segment]) -> Segment:
        """The segment of a key. The first thread that asks for it plans it; others that ask meanwhile wait."""
        with self._lock:
            segment = self._segments.get(key)
            if segment is not None:
                self._segments.move_to_end(key)
                return segment
            pending = self._pending.setdefault(key, threading.Lock())
        with pending:
            with self._lock:
                segment = self._segments.get(key)
            if segment is None:
                try:
                    segment = plan()
                finally:
                    with self._lock:
                        self._pending.pop(key, None)
                        if segment is not None:
                            self._segments[key] = segment
                            self._num_calls += 1 + segment.program.num_calls
                            while len(self._segments) > MAX_PLANS and self._num_calls > self._max_calls:
                                _, oldest = self._segments.popitem(last=False)
                                self._num_calls -= 1 + oldest.program.num_calls
        return segment


class _Stop(Cancellation):
    """A cancellation that kernels check too."""

    __slots__ = ("flag",)

    def __init__(self) -> None:
        super().__init__()
        self.flag = StopFlag()

    def request(self) -> None:
        super().request()
        self.flag.set()

    def clear(self) -> None:
        super().clear()
        self.flag.clear()


class CpuRunner:
    """Runs the plans of one request: an arena, and workspaces of recent segments. See `hetero.plugin.request.Runner`.

    ``timed``: measure each call. ``device``: named in errors; empty for the runner of a body.
    ``arena``, ``cancellation``: those of the enclosing runner, for a body; the segments of the two never run at the
    same time. A request to cancel, from any thread, ends the run in progress with `Cancelled`.
    """

    def __init__(
        self,
        plans: PlanCache,
        timed: bool,
        team: _kernels.Team | None,
        device: str,
        arena: Arena | None = None,
        cancellation: _Stop | None = None,
    ) -> None:
        self._device = device
        self._plans = plans
        self._timed = timed
        self._team = team
        self.cancellation = _Stop() if cancellation is None else cancellation
        self._arena = Arena() if arena is None else arena
        self._workspaces: OrderedDict[int, tuple[Segment, Workspace]] = OrderedDict()
        self._last: list[tuple[Segment, Workspace]] = []
        self._whole: Workspace | None = None  # of the last plan, if one segment computes all outputs
        self._bodies: dict[tuple[int, int], tuple[CpuRunner, tuple[int, ...]]] = {}
        self._host_times: dict[int, tuple[int, int]] = {}  # control-flow node -> wall and CPU nanoseconds

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        try:
            if self._whole is not None:
                results = self._whole.run(inputs)
                if results is not None:
                    return results
            return self._run_segments(inputs)
        except InferenceError as error:
            raise self._named(error) from error.__cause__

    def run_into(self, inputs: Sequence[NDArray[Any]], places: Sequence[NDArray[np.uint8]]) -> Sequence[NDArray[Any]]:
        """See `hetero.plugin.request.PlacingRunner`."""
        if self._whole is not None:
            try:
                results = self._whole.run(inputs, places)
            except InferenceError as error:
                raise self._named(error) from error.__cause__
            if results is not None:
                return results
        return self.run(inputs)

    def run_again(self, inputs: Sequence[Any]) -> list[NDArray[Any]] | None:
        """See `hetero.plugin.request.RepeatingRunner`."""
        if self._whole is None or self._timed:
            return None
        try:
            return self._whole.run_again(inputs)
        except InferenceError as error:
            raise self._named(error) from error.__cause__

    def _named(self, error: InferenceError) -> InferenceError:
        """``error`` with the device's name, unless the enclosing runner adds it."""
        if not self._device or isinstance(error, Cancelled):
            return error
        return inference_error(f"{self._device}: inference failed: {error}", error)

    def _run_segments(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        planner = self._plans.planner
        output_ids = planner.output_ids
        arrays: dict[int, NDArray[Any]] = dict(zip(planner.input_ids, inputs, strict=True))
        self._last, self._whole = [], None
        self._host_times.clear()
        segment = self._plans.first(inputs)
        while True:
            self.cancellation.check()
            workspace = self._workspace_of(segment)
            results = workspace.run([arrays[value] for value in segment.inputs])
            assert results is not None, "planned for these shapes and dtypes"
            self._last.append((segment, workspace))
            arrays.update(zip(segment.outputs, results, strict=True))
            arrays.update(segment.known)
            for value, (source, shape) in segment.aliases.items():
                arrays[value] = np.ascontiguousarray(arrays[source]).reshape(shape)
            if segment.host >= 0:
                self._run_host(segment.host, arrays)
            if segment.next_node == len(planner.nodes):
                break
            arrays = {value: arrays[value] for value in segment.handed_on}
            segment = self._plans.following(segment, arrays)
        alone = len(self._last) == 1 and segment.host < 0
        if alone and segment.inputs == planner.input_ids and segment.outputs == tuple(output_ids):
            self._whole = workspace
        return [arrays[value] for value in output_ids]

    def _run_host(self, node: int, arrays: dict[int, NDArray[Any]]) -> None:
        """Run a control-flow node or a custom operator in Python; adds its outputs to ``arrays``."""
        planner = self._plans.planner
        plan = planner.nodes[node]
        operands: list[NDArray[Any] | None] = []
        for value in plan.inputs:
            array = arrays.get(value)
            if array is None and value >= 0:
                constant = planner.constant(value)
                array = None if constant is None else constant.data
            operands.append(array)

        if self._timed:
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        if plan.operator.custom is not None:
            results = _run_custom(plan, operands)
        else:
            results = run_nested(plan, operands, _Bodies(self, node, operands), self.cancellation)
        if self._timed:
            self._host_times[node] = (time.perf_counter_ns() - wall, time.thread_time_ns() - cpu)
        arrays.update((v, result) for v, result in zip(plan.outputs, results, strict=False) if v >= 0)

    def body(self, node: int, graph: int) -> tuple[CpuRunner, tuple[int, ...]]:
        """The runner of a body of a control-flow node, and the positions among the node's inputs of the captured values
        that follow the body's own inputs."""
        body = self._bodies.get((node, graph))
        if body is None:
            plans, captured = self._plans.child(node, graph)
            runner = CpuRunner(plans, False, self._team, "", self._arena, self.cancellation)
            body = self._bodies[node, graph] = (runner, captured)
        return body

    def static(self, inputs: Sequence[NDArray[Any]]) -> StaticBody | None:
        """The model as one program for inputs of these types; None if it has several segments or runs a node in
        Python."""
        planner = self._plans.planner
        segment = self._plans.first(inputs)
        if segment.host >= 0 or segment.next_node < len(planner.nodes):
            return None
        return StaticBody(segment, self._workspace_of(segment), planner.input_ids, planner.output_ids)

    def _workspace_of(self, segment: Segment) -> Workspace:
        entry = self._workspaces.get(id(segment))
        if entry is None:
            entry = (segment, Workspace(segment.program, self._timed, self._arena, self._team, self.cancellation.flag))
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
        for node, (wall_ns, cpu_ns) in self._host_times.items():
            real[node], cpu[node], executed[node] = wall_ns / 1000, cpu_ns / 1000, True
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


def _run_custom(plan: NodePlan, operands: Sequence[NDArray[Any] | None]) -> Sequence[NDArray[Any]]:
    assert plan.operator.custom is not None
    try:
        return plan.operator.custom.run(operands)
    except Exception as error:
        cause = error.__cause__ or error
        raise inference_error(f"{plan}: {error}", cause) from cause


class _Bodies:
    """The bodies of one control-flow node during one run of the enclosing runner. See `BodyRunner`."""

    def __init__(self, outer: CpuRunner, node: int, operands: Sequence[NDArray[Any] | None]) -> None:
        self._outer = outer
        self._node = node
        self._operands = operands

    def run(self, graph: int, own: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        runner, captured = self._outer.body(self._node, graph)
        return runner.run([*own, *(self._operand(position) for position in captured)])

    def static(self, graph: int, own: Sequence[NDArray[Any]]) -> StaticBody | None:
        runner, _ = self._outer.body(self._node, graph)
        return runner.static([*own, *self.captured(graph)])

    def captured(self, graph: int) -> Sequence[NDArray[Any]]:
        """The captured values, contiguous and aligned."""
        _, captured = self._outer.body(self._node, graph)
        return [np.require(self._operand(position), requirements=("C", "A")) for position in captured]

    def _operand(self, position: int) -> NDArray[Any]:
        array = self._operands[position]
        assert array is not None, "captures are present"
        return array
