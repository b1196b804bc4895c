"""Plan cache and runner: runs a plan's segments in order, and plans the next one from the data of the last."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import _kernels
from ..._hosted import chosen
from ..._workspace import Arena, Iterations, Route, StopFlag, Workspace, iterate
from ...errors import Cancelled, HeteroError, InferenceError, inference_error, raise_out_of_memory
from ...plugin.cancellation import Cancellation
from ...plugin.profile import EXECUTED, OPTIMIZED_OUT, ProfileRow
from ...plugin.request import owned
from .control_flow.iterations import Layout, Stack, iterations_of
from .control_flow.run import run_nested
from .planner import Planner
from .registry import NodePlan
from .segment import Segment
from .tracing import is_readable
from .values import MAX_DIMS, type_of

__all__ = ["CpuRunner", "PlanCache", "hosted_error", "prepared", "run_hosted"]

MAX_PLANS = 64
MAX_CALLS = 1 << 16  # kernel calls of all plans: more than MAX_PLANS plans are kept if they are small
MAX_SYMBOLIC = 12  # plans for many sizes from one point; if they do not suffice, plans are made for single sizes
MAX_FAILURES = 3  # attempts to plan for many sizes from one point
MAX_WORKSPACES = 2 * MAX_SYMBOLIC  # per request; a workspace holds tables of tensors, and all share one arena


_NO_PLACE = np.empty(0, np.uint8)


class _Alternatives:
    """The plans from one point of a model for inputs of the same types and ranks: for single sizes, by key, and for
    many sizes, the last used first. ``seen``: the shapes of the inputs when a plan was made last. ``axes``: for each
    input, the axes whose sizes have changed. ``failures``: attempts at plans for many sizes that gave none."""

    __slots__ = ("axes", "failures", "seen", "single", "symbolic")

    def __init__(self) -> None:
        self.single: dict[Hashable, Segment] = {}
        self.symbolic: list[Segment] = []
        self.seen: tuple[tuple[int, ...], ...] | None = None
        self.axes: tuple[tuple[bool, ...], ...] | None = None
        self.failures = 0


class PlanCache:
    """The segments of one compiled model. Bounded: the least recently used segment is discarded first.

    A model is first planned for the sizes at hand. If a size changes, it is planned with a symbol for each size that
    has changed so far, and that plan is used for all sizes for which it holds. Segments that follow from data are
    planned with symbols at once. Shared by all requests; thread-safe: the first thread that needs a plan makes it,
    others wait.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self._num_calls = 0
        self._lock = threading.RLock()
        self._planning = threading.RLock()
        self._points: dict[Hashable, _Alternatives] = {}
        self._order: OrderedDict[int, tuple[Segment, Hashable, Hashable]] = OrderedDict()  # by id of the segment
        self._children: dict[tuple[int, int], tuple[PlanCache, tuple[int, ...]]] = {}
        self._with_states: dict[tuple[tuple[int, int], ...], PlanCache] = {}
        self._reading: dict[Hashable, list[Segment]] = {}  # see `reading`
        self._num_not_reading = 0  # attempts that gave none

    def child(self, node: int, graph: int) -> tuple[PlanCache, tuple[int, ...]]:
        """The plans of a body of a control-flow node, and the positions among the node's inputs of the captured values
        that follow the body's own inputs."""
        with self._lock:
            if (node, graph) not in self._children:
                planner, captured = self.planner.child(node, graph)
                self._children[node, graph] = (PlanCache(planner), captured)
            return self._children[node, graph]

    def with_states(self, states: tuple[tuple[int, int], ...]) -> PlanCache:
        """The plans that append to states in place: see `Planner.with_states`."""
        with self._lock:
            if states not in self._with_states:
                self._with_states[states] = PlanCache(self.planner.with_states(states))
            return self._with_states[states]

    def segments(self) -> list[Segment]:
        """All segments, the least recently used first."""
        with self._lock:
            return [segment for segment, _, _ in self._order.values()]

    def first(self, inputs: Sequence[NDArray[Any]], fits: Fits | None = None) -> Segment:
        """The first segment for these inputs. ``fits``: whether a segment holds for them; None considers only segments
        for single sizes."""
        types = [type_of(array) for array in inputs]
        shapes, dtypes = tuple(shape for _, shape in types), tuple(dtype for dtype, _ in types)
        point = (dtypes, tuple(map(len, shapes)))

        def plan(alternatives: _Alternatives, symbolic: bool) -> Segment:
            axes = _changed(alternatives, shapes) if symbolic else None
            return self.planner.first(shapes, dtypes, axes)

        return self._planned(point, shapes, plan, fits)

    def reading(self, inputs: Sequence[NDArray[Any]], choices: Sequence[Sequence[int]], fits: Fits) -> Segment | None:
        """A plan of a body in which sizes depend on elements of some inputs, as one program. ``choices``: positions of
        these inputs; the first choice that suffices is used. None if the body cannot be planned with symbols for them
        and all sizes."""
        types = [type_of(array) for array in inputs]
        point = tuple((dtype, len(shape)) for dtype, shape in types)
        with self._planning:
            plans = self._reading.setdefault(point, [])
            segment = next(filter(fits, plans), None)
            if segment is not None or len(plans) >= MAX_SYMBOLIC or self._num_not_reading >= MAX_FAILURES:
                return segment
            shapes, axes = [shape for _, shape in types], [(True,) * len(shape) for _, shape in types]
            for choice in choices:
                data = {self.planner.input_ids[at]: inputs[at].copy() for at in choice}
                try:
                    made = self.planner.first(shapes, [dtype for dtype, _ in types], axes, data)
                except HeteroError:  # the iteration then fails too, or does not need what failed
                    continue
                if made.is_whole and made.program.sizes is not None and fits(made):
                    plans.insert(0, made)
                    return made
            self._num_not_reading += 1
            return None

    def following(self, segment: Segment, arrays: Mapping[int, NDArray[Any]], fits: Fits) -> Segment:
        """The segment after ``segment``. ``arrays``: the values that ``segment`` hands on. ``fits``: whether a segment
        holds for them.

        The keys contain all that planning for single sizes depends on: the types and data of ``segment.needs``, and the
        shapes that ``segment`` leaves open. Everything else follows from ``segment``.
        """
        needed = tuple((arrays[value].shape, arrays[value].dtype, arrays[value].tobytes()) for value in segment.needs)
        open_types = tuple(type_of(arrays[value]) for value in segment.open_axes)
        point = (
            id(segment),
            tuple((arrays[value].shape, arrays[value].dtype) for value in segment.needs),
            tuple((len(shape), dtype) for dtype, shape in open_types),
        )

        def plan(alternatives: _Alternatives, symbolic: bool) -> Segment:
            # Views of the key's bytes: the arrays themselves belong to the caller, or are written again.
            data = {
                value: np.ndarray(shape, dtype, buffer)
                for value, (shape, dtype, buffer) in zip(segment.needs, needed, strict=True)
            }
            symbolic = symbolic and (bool(needed) or any(map(any, segment.open_axes.values())))
            symbolic = symbolic and all(map(is_readable, data.values()))
            planned = self.planner.following(segment, arrays, data, symbolic)
            planned.keep_alive.append(segment)
            return planned

        return self._planned(point, (needed, open_types), plan, fits)

    def _planned(
        self, point: Hashable, key: Hashable, plan: Callable[[_Alternatives, bool], Segment], fits: Fits | None
    ) -> Segment:
        segment = self._found(point, key, fits)
        if segment is not None:
            return segment
        with self._planning:
            segment = self._found(point, key, fits)  # another thread may have planned it
            if segment is not None:
                return segment
            with self._lock:
                alternatives = self._points.setdefault(point, _Alternatives())
            asked = fits is not None and len(alternatives.symbolic) < MAX_SYMBOLIC
            before = self.planner.num_unfit
            segment = plan(alternatives, asked and alternatives.failures < MAX_FAILURES)
            alternatives.failures += self.planner.num_unfit - before
            is_symbolic = segment.program.sizes is not None
            if is_symbolic and fits is not None and not fits(segment):  # such as for numbers beyond 64 bits
                segment, is_symbolic = plan(alternatives, False), False
                alternatives.failures += 1
            with self._lock:
                if is_symbolic:
                    alternatives.symbolic.insert(0, segment)
                else:
                    alternatives.single[key] = segment
                self._order[id(segment)] = (segment, point, None if is_symbolic else key)
                self._num_calls += 1 + segment.program.num_calls
                self._discard()
        return segment

    def _found(self, point: Hashable, key: Hashable, fits: Fits | None) -> Segment | None:
        with self._lock:
            alternatives = self._points.get(point)
            if alternatives is None:
                return None
            segment = alternatives.single.get(key)
            candidates = list(alternatives.symbolic) if segment is None else []
        if segment is None and fits is not None:
            segment = next(filter(fits, candidates), None)
        if segment is not None:
            with self._lock:
                if id(segment) in self._order:
                    self._order.move_to_end(id(segment))
                if segment in alternatives.symbolic[1:]:
                    alternatives.symbolic.remove(segment)
                    alternatives.symbolic.insert(0, segment)
        return segment

    def _discard(self) -> None:
        while len(self._order) > MAX_PLANS and self._num_calls > MAX_CALLS:
            _, (oldest, point, key) = self._order.popitem(last=False)
            self._num_calls -= 1 + oldest.program.num_calls
            alternatives = self._points[point]
            if key is None:
                alternatives.symbolic.remove(oldest)
            else:
                del alternatives.single[key]
            if not alternatives.symbolic and not alternatives.single:
                del self._points[point]


Fits = Callable[[Segment], bool]


def _changed(alternatives: _Alternatives, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[bool, ...], ...] | None:
    """The axes whose sizes have changed so far; None if none has."""
    before, alternatives.seen = alternatives.seen, shapes
    if before is None:
        return None
    axes = tuple(tuple(a != b for a, b in zip(old, new, strict=True)) for old, new in zip(before, shapes, strict=True))
    if alternatives.axes is not None:
        axes = tuple(
            tuple(a or b for a, b in zip(old, new, strict=True))
            for old, new in zip(alternatives.axes, axes, strict=True)
        )
    alternatives.axes = axes
    return axes


class _Step(NamedTuple):
    """A segment of a run, with its workspace. ``is_repeated``: whether it follows the segment before in every run in
    which its program accepts the values that were handed on."""

    segment: Segment
    workspace: Workspace
    is_repeated: bool


def _follows_again(before: Segment | None, segment: Segment) -> bool:
    """`_Step.is_repeated` for a segment that has followed ``before``, or begun a run.

    The sizes of a first segment, and of others with symbols, are checked by their programs; the data of other segments
    are part of their key. Programs check numbers only. Whether a value is a number or, for example, an optional is
    decided by a node in Python, so a segment that follows one must read all of its results."""
    if before is None:
        return True
    return segment.program.sizes is not None and all(value in segment.inputs for value in before.host_outputs)


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
        self._path: list[_Step] = []  # the last run
        self._most_segments = 0  # of a run
        self._single: Workspace | None = None  # if one program computed all outputs of the last run
        self._whole: Workspace | None = None  # the same, if its results are the outputs as they are
        self._results: Sequence[_Result] = ()  # otherwise, how the outputs follow from its results
        self._route: Route | None = None  # the first segments of the last run, as far as they may repeat
        self._slots: dict[int, int] = {}  # value -> its slot in the route
        self._dtypes: Sequence[np.dtype[Any]] | None = None  # of the last run's outputs, if it can be repeated
        self._iterations: Iterations | None = None  # the last ones, if this runner runs a Loop's or Scan's body
        self._not_iterated: list[Segment] = []  # see `_new_iterations`
        self._repeated: dict[int, Iterations | None] = {}  # id of a segment of `_workspaces` -> its iterations
        self._bodies: dict[tuple[int, int], tuple[CpuRunner, tuple[int, ...]]] = {}
        self.host_times: dict[int, tuple[int, int]] = {}  # control-flow node -> wall and CPU nanoseconds

    def share_scratch(self, other: CpuRunner) -> None:
        """See `hetero.plugin.request.ScratchRunner`."""
        self._arena = other._arena

    def append_to_states(self, states: Sequence[tuple[int, int]]) -> None:
        """See `hetero.plugin.request.AppendingRunner`."""
        planner = self._plans.planner
        ids = tuple((planner.input_ids[source], planner.output_ids[result]) for source, result in states)
        self._plans = self._plans.with_states(ids)

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        try:
            if self._single is not None:
                results = self._single.run(inputs)
                if results is not None:
                    return results if self._whole is not None else self._outputs(inputs, results)
            outputs = None if self._route is None else self._follow(self._route, inputs)
            return self._run_segments(inputs) if outputs is None else outputs
        except InferenceError as error:
            raise self.named(error) from error.__cause__

    def run_into(self, inputs: Sequence[NDArray[Any]], places: Sequence[NDArray[np.uint8]]) -> Sequence[NDArray[Any]]:
        """See `hetero.plugin.request.PlacingRunner`."""
        if self._single is not None:
            try:
                if self._whole is not None:
                    results = self._whole.run(inputs, places)
                    if results is not None:
                        return results
                else:
                    results = self._single.run(inputs, self._program_places(places))
                    if results is not None:
                        return self._outputs(inputs, results)
            except InferenceError as error:
                raise self.named(error) from error.__cause__
        return self.run(inputs)

    def _program_places(self, places: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        """The places for the results of the program: outputs may be reshaped results."""
        assert self._single is not None
        chosen = [_NO_PLACE] * len(self._single.output_specs)
        for result, place in zip(self._results, places, strict=True):
            if result.output >= 0 and not chosen[result.output].nbytes:
                chosen[result.output] = place
        return chosen

    def run_again(self, inputs: Sequence[Any]) -> list[NDArray[Any]] | None:
        """See `hetero.plugin.request.RepeatingRunner`."""
        if self._dtypes is None or self._timed:
            return None
        try:
            if self._whole is not None:
                return self._whole.run_again(inputs)
            outputs: Sequence[Any] | None
            if self._single is not None:
                results = self._single.run_again(inputs)
                outputs = None if results is None else self._outputs(inputs, results)
            else:
                outputs = None if self._route is None else self._follow(self._route, inputs)
            if outputs is None:
                return None
        except InferenceError as error:
            raise self.named(error) from error.__cause__
        if [getattr(output, "dtype", None) for output in outputs] != self._dtypes:  # a node in Python decides on them
            self._dtypes = self._route = None
            return None
        return owned(outputs, inputs)

    def program(self) -> Workspace | None:
        """See `hetero.runtime.parallel.ProgramRunner`."""
        return self._whole

    def named(self, error: InferenceError) -> InferenceError:
        """``error`` with the device's name, unless the enclosing runner adds it."""
        if not self._device or isinstance(error, Cancelled):
            return error
        return inference_error(f"{self._device}: inference failed: {error}", error)

    def _follow(self, route: Route, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The outputs of a run that repeats the segments of the route, and plans again from the first one on that does
        not hold. None if nothing has run."""
        self.host_times.clear()
        outputs = route.run(inputs, self._host_results)  # a route that referred to its runner would keep it alive
        if outputs is None and route.values is not None:
            place, values, route.values = route.done, route.values, None
            arrays = {value: values[self._slots[value]] for value in self._path[place - 1].segment.handed_on}
            return self._run_segments(inputs, arrays, place)
        return outputs

    def _run_segments(
        self, inputs: Sequence[NDArray[Any]], arrays: dict[int, NDArray[Any]] | None = None, place: int = 0
    ) -> Sequence[NDArray[Any]]:
        """``arrays``: what the last of the first ``place`` segments of the last run has handed on, if they have run
        for these inputs."""
        planner, path = self._plans.planner, self._path
        segment: Segment | None
        if arrays is None:
            arrays, segment = dict(zip(planner.input_ids, inputs, strict=True)), None
            self.host_times.clear()
        else:
            segment = path[place - 1].segment
        while True:
            self.cancellation.check()
            before, results = segment, None
            if place < len(path) and path[place].is_repeated:  # most often it holds again
                step = path[place]
                results = step.workspace.run([arrays[value] for value in step.segment.inputs])
            if results is None:
                fits = functools.partial(self._fits, arrays)
                segment = (
                    self._plans.first(inputs, fits) if before is None else self._plans.following(before, arrays, fits)
                )
                if place == len(path) or path[place].segment is not segment:
                    path[place:] = [_Step(segment, self._workspace_of(segment), _follows_again(before, segment))]
                    self._single = self._whole = self._dtypes = self._route = None
                results = path[place].workspace.run([arrays[value] for value in segment.inputs])
            assert results is not None, "planned for these shapes and dtypes"
            segment, workspace, _ = path[place]
            arrays.update(zip(segment.outputs, results, strict=True))
            arrays.update(segment.known)
            for value, (source, shape) in segment.aliases.items():
                if isinstance(shape, int):
                    shape = workspace.shape(shape)
                arrays[value] = np.ascontiguousarray(arrays[source]).reshape(shape)
            if segment.host >= 0:
                self._run_host(segment.host, arrays)
            place += 1
            if segment.next_node < 0:
                break
            arrays = {value: arrays[value] for value in segment.handed_on}
        del path[place:]
        self._most_segments = max(self._most_segments, place)
        outputs = [arrays[value] for value in planner.output_ids]
        if self._dtypes is None and self._route is None:
            self._note(outputs)
        return outputs

    def _note(self, outputs: Sequence[NDArray[Any]]) -> None:
        """Note how the run that gave ``outputs`` can be repeated."""
        planner, last = self._plans.planner, self._path[-1]
        # The first program compares the types of all inputs if it reads them all; it cannot read strings, for example.
        reads_inputs = self._path[0].segment.inputs == planner.input_ids
        if reads_inputs and not any(type_of(output)[0].hasobject for output in outputs):
            self._dtypes = [output.dtype for output in outputs]
        if last.segment.is_whole and self._begins_with_last():
            self._single = last.workspace
            if last.segment.outputs == planner.output_ids:
                self._whole = last.workspace
            else:
                self._results = [_Result.of(last.segment, value) for value in planner.output_ids]
        else:
            self._route = self._route_of_path()

    def _route_of_path(self) -> Route | None:
        """The first segments of the last run, up to one that may not follow again."""
        planner = self._plans.planner
        slots = self._slots = {value: slot for slot, value in enumerate(planner.input_ids)}
        live, steps = set(slots), []
        for segment, workspace, is_repeated in self._path:
            if not is_repeated:
                break
            reads = tuple(slots[value] for value in segment.inputs)
            outputs = [*segment.outputs, *segment.known, *segment.aliases]
            host = None
            if segment.host >= 0:
                plan = planner.nodes[segment.host]
                sources = [self._host_source(value, live.union(outputs)) for value in plan.inputs]
                outputs += [value for value in plan.outputs if value >= 0]
            for value in outputs:
                slots.setdefault(value, len(slots))
            if segment.host >= 0:
                host = (
                    segment.host,
                    [(slots.get(value, -1), constant, labels) for value, constant, labels in sources],
                    [slots.get(value, -1) for value in plan.outputs],
                )
            live.update(outputs)
            dropped = live.difference(segment.handed_on if segment.next_node >= 0 else live)
            live -= dropped
            # Inputs that are handed on as they are stay where they are: the program has compared their shapes.
            aliases = [
                (slots[value], slots[source], shape)
                for value, (source, shape) in segment.aliases.items()
                if value != source
            ]
            steps.append(
                (
                    workspace,
                    reads,
                    tuple(slots[value] for value in segment.outputs),
                    tuple((slots[value], array) for value, array in segment.known.items()),
                    tuple(aliases),
                    host,
                    tuple(slots[value] for value in dropped),
                )
            )
        if not steps:
            return None
        is_whole = len(steps) == len(self._path)
        results = tuple(slots[value] for value in planner.output_ids) if is_whole else None
        return Route(tuple(steps), len(slots), results, self.cancellation)

    def _begins_with_last(self) -> bool:
        """Whether the last segment can run without the segments before it: they compute nothing and hand on only the
        inputs, because the plan needed data of an input, which the program of the last segment reads."""
        *before, last = [step.segment for step in self._path]
        return not before or (
            last.program.sizes is not None
            and all(
                not segment.program.num_calls and segment.host < 0 and set(segment.handed_on) <= set(last.inputs)
                for segment in before
            )
        )

    def _outputs(self, inputs: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """The outputs of a plan of one segment, from the results of its program."""
        assert self._single is not None
        outputs = []
        for result in self._results:
            array = result.known
            if array is None:
                array = results[result.output] if result.output >= 0 else np.ascontiguousarray(inputs[result.input])
                if result.shape is not None:
                    array = array.reshape(
                        self._single.shape(result.shape) if isinstance(result.shape, int) else result.shape
                    )
            outputs.append(array)
        return outputs

    def _fits(self, arrays: Mapping[int, NDArray[Any]], segment: Segment) -> bool:
        """Whether a segment holds for the sizes of these values."""
        return self._workspace_of(segment).fits([arrays[value] for value in segment.inputs])

    def _host_source(self, value: int, known: Collection[int]) -> tuple[int, NDArray[Any] | None, NDArray[Any] | None]:
        """Where a node in Python finds an operand: a value that is ``known``, or -1 and a constant or None; and the
        strings that it numbers, or None."""
        planner = self._plans.planner
        if value in known:
            return value, None, planner.labels.get(value)
        constant = planner.constant(value) if value >= 0 else None
        return -1, None if constant is None else constant.data, None

    def _run_host(self, node: int, arrays: dict[int, NDArray[Any]]) -> None:
        """Run a control-flow node or a custom operator in Python; adds its outputs to ``arrays``."""
        plan = self._plans.planner.nodes[node]
        sources = [self._host_source(value, arrays) for value in plan.inputs]
        results = self._host_results(node, [_operand(arrays, *source) for source in sources])
        arrays.update((v, result) for v, result in zip(plan.outputs, results, strict=False) if v >= 0)

    def _host_results(self, node: int, operands: Sequence[NDArray[Any] | None]) -> Sequence[NDArray[Any]]:
        plan = self._plans.planner.nodes[node]
        if self._timed:
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        if plan.operator.custom is not None:
            results = _run_custom(plan, operands)
        elif plan.operator.host is not None:
            results = run_hosted(plan, operands)
        else:
            results = run_nested(plan, operands, _Bodies(self, node, operands), self.cancellation)
        if self._timed:
            self.host_times[node] = (time.perf_counter_ns() - wall, time.thread_time_ns() - cpu)
        return results

    def body(self, node: int, graph: int) -> tuple[CpuRunner, tuple[int, ...]]:
        """The runner of a body of a control-flow node, and the positions among the node's inputs of the captured values
        that follow the body's own inputs."""
        body = self._bodies.get((node, graph))
        if body is None:
            plans, captured = self._plans.child(node, graph)
            runner = CpuRunner(plans, False, self._team, "", self._arena, self.cancellation)
            body = self._bodies[node, graph] = (runner, captured)
        return body

    def iterate(
        self, layout: Layout, values: list[NDArray[Any]], steps: list[int], stacks: Sequence[Stack], stop: int
    ) -> None:
        """As `BodyRunner.iterate`, for the body that this runner runs: in C, as far as the body is one program."""
        proceed, iteration, iterations = True, 0, self._iterations
        while proceed and iteration < stop:
            self.cancellation.check()
            begin = iteration
            for is_known in (True, False):  # most often, the last plan holds
                try:
                    if not is_known:
                        iterations = self._iterations = self._new_iterations(layout, values, iteration)
                    if iterations is not None:
                        proceed = iterations.run(values, steps, stacks, iteration, stop)
                        iteration = iterations.iteration
                except Cancelled:
                    raise
                except HeteroError as error:
                    failed = iteration if iterations is None else iterations.iteration
                    raise inference_error(f"iteration {failed}: {error}", error) from error
                if iteration > begin:
                    break
            else:
                break
        for stack in stacks:
            stack.finish(iteration)
        if proceed and iteration < stop:
            iterate(self.run, values, *layout, steps, stacks, iteration, stop, self.cancellation)

    def _new_iterations(self, layout: Layout, values: Sequence[NDArray[Any]], iteration: int) -> Iterations | None:
        """As `_planned_iterations`, but None after several attempts that gave none, as long as all runs begin with the
        same segment: the body is cut then."""
        first = self._path[0].segment if self._path else None
        if any(segment is not first for segment in self._not_iterated):
            self._not_iterated.clear()
        if len(self._not_iterated) >= MAX_FAILURES:
            return None
        iterations = self._planned_iterations(layout, values, iteration)
        if iterations is not None:
            self._not_iterated.clear()
        elif first is not None:
            self._not_iterated.append(first)
        return iterations

    def _planned_iterations(self, layout: Layout, values: Sequence[NDArray[Any]], iteration: int) -> Iterations | None:
        """A plan of the body for an iteration that reads these values; None if it is not one program."""
        first = layout.is_loop + layout.num_carried
        lanes = range(first, first + layout.num_slices)
        inputs = [value[0, ...] if at in lanes else value for at, value in enumerate(values)]
        if any(type_of(value)[0].hasobject for value in inputs):
            return None
        planner = self._plans.planner
        arrays = dict(zip(planner.input_ids, inputs, strict=True))
        fits = functools.partial(self._fits, arrays)
        segment: Segment | None = self._plans.first(inputs, fits)
        assert segment is not None
        if segment.host < 0 and segment.next_node >= 0:  # sizes depend on data
            if layout.is_loop:
                inputs[0] = arrays[planner.input_ids[0]] = np.full_like(inputs[0], iteration)
            few = [at for at, value in enumerate(inputs) if at not in lanes and _may_be_sizes(value)]
            segment = self._plans.reading(inputs, [[0], few] if layout.is_loop else [few], fits)
            if segment is None:
                return None
        workspace = self._workspace_of(segment)
        if id(segment) not in self._repeated:
            self._repeated[id(segment)] = iterations_of(planner, segment, workspace, layout)
        return self._repeated[id(segment)]

    def _workspace_of(self, segment: Segment) -> Workspace:
        entry = self._workspaces.get(id(segment))
        if entry is None:
            flag = self.cancellation.flag
            workspace = Workspace(segment.program, self._timed, self._arena, self._team, flag, segment.appends)
            entry = (segment, workspace)
            self._workspaces[id(segment)] = entry
            while len(self._workspaces) > MAX_WORKSPACES + max(len(self._path), self._most_segments):
                self._repeated.pop(self._workspaces.popitem(last=False)[0], None)
        self._workspaces.move_to_end(id(segment))
        return entry[1]

    def profile(self) -> Sequence[ProfileRow]:
        if not self._timed:
            return ()
        nodes = self._plans.planner.nodes
        real, cpu = [0.0] * len(nodes), [0.0] * len(nodes)
        executed = [False] * len(nodes)
        for segment, workspace, _ in self._path:
            for node, (wall_ns, cpu_ns) in zip(segment.node_of, workspace.times(), strict=True):
                real[node] += wall_ns / 1000
                cpu[node] += cpu_ns / 1000
                executed[node] = True
        for node, (wall_ns, cpu_ns) in self.host_times.items():
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


def _may_be_sizes(value: NDArray[Any]) -> bool:
    """Whether a value is a few integers, such as a counter, or the bounds of a Slice."""
    return value.size <= MAX_DIMS and value.dtype in (np.int64, np.int32)


@dataclasses.dataclass(frozen=True, slots=True)
class _Result:
    """An output of a plan of one segment: a known array, or an input or output of its program (the other number is -1)
    in another shape, or None for the same shape. A shape that depends on sizes is given by a tensor of the program."""

    known: NDArray[Any] | None
    input: int
    output: int
    shape: tuple[int, ...] | int | None

    @classmethod
    def of(cls, segment: Segment, value: int) -> _Result:
        if value in segment.known:
            return cls(segment.known[value], -1, -1, None)
        source, shape = segment.aliases.get(value, (value, None))
        if source in segment.outputs:
            return cls(None, -1, segment.outputs.index(source), shape)
        return cls(None, segment.inputs.index(source), -1, shape)


def _operand(values: Any, at: int, constant: NDArray[Any] | None, labels: NDArray[Any] | None) -> NDArray[Any] | None:
    value: NDArray[Any] | None = constant if at < 0 else values[at]
    return value if labels is None or value is None else chosen(labels, value)


def _run_custom(plan: NodePlan, operands: Sequence[NDArray[Any] | None]) -> Sequence[NDArray[Any]]:
    assert plan.operator.custom is not None
    try:
        return plan.operator.custom.run(operands)
    except Exception as error:
        cause = error.__cause__ or error
        raise inference_error(f"{plan}: {error}", cause) from cause


def run_hosted(plan: NodePlan, operands: Sequence[Any]) -> Sequence[Any]:
    """The outputs of a hosted node. Strings are object arrays of str."""
    try:
        return prepared(plan)(*operands)
    except Exception as error:
        raise hosted_error(plan, error) from error


def prepared(plan: NodePlan) -> Callable[..., Sequence[Any]]:
    """The function that runs a hosted node."""
    if plan.node.prepared is None:
        assert plan.operator.host is not None
        plan.node.prepared = plan.operator.host(plan.node)
    return plan.node.prepared  # type: ignore[no-any-return]


def hosted_error(plan: NodePlan, error: Exception) -> InferenceError:
    """The error to raise if a hosted node fails. If ``error`` says that memory is short, raises that instead."""
    raise_out_of_memory(error)
    return inference_error(f"{plan}: {error}", error)


class _Bodies:
    """The bodies of one control-flow node during one run of the enclosing runner. See `BodyRunner`."""

    def __init__(self, outer: CpuRunner, node: int, operands: Sequence[Any]) -> None:
        self._outer = outer
        self._node = node
        self._operands = operands

    def run(self, graph: int, own: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        runner, captured = self._outer.body(self._node, graph)
        return runner.run([*own, *[self._operands[position] for position in captured]])

    def iterate(
        self, layout: Layout, own: list[NDArray[Any]], steps: list[int], stacks: Sequence[Stack], stop: int
    ) -> None:
        runner, captured = self._outer.body(self._node, 0)
        values = [*own, *[self._operands[position] for position in captured]]
        runner.iterate(layout, values, steps, stacks, stop)
        own[:] = values[: len(own)]
