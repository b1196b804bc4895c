"""Runs If, Loop and Scan between two segments of a plan. Each body has plans of its own.

The semantics are those of ONNX. Where ONNX does not specify them, they are those of onnxruntime: a Loop without an
initial condition still ends when its body returns false, and the scanned outputs of a Loop without iterations have size
0 along dimensions whose size the body does not state.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....errors import Cancelled, HeteroError, InferenceError, inference_error
from ....plugin.cancellation import Cancellation
from ..registry import Append, NestedGraph, NodePlan
from ..values import MAX_BYTES
from .appends import check_append, joined
from .trips import Carried, Rows, StaticBody

__all__ = ["BodyRunner", "run_nested"]

_Array = NDArray[Any]


class BodyRunner(Protocol):
    """Runs the bodies of one node during one run of the enclosing model. ``own``: arrays for a body's own inputs."""

    def run(self, graph: int, own: Sequence[_Array]) -> Sequence[_Array]:
        """Run the body and return its outputs."""
        ...

    def static(self, graph: int, own: Sequence[_Array]) -> StaticBody | None:
        """The body as one program for inputs of these types; None if it is not a single program."""
        ...

    def captured(self, graph: int) -> Sequence[_Array]:
        """The captured values, which follow the body's own inputs."""
        ...


_UNLIMITED_TRIPS = (1 << 63) - 1
_FIRST_BYTES = 1 << 26  # initial size of a scanned output, at most; it then doubles


def run_nested(
    plan: NodePlan, operands: Sequence[_Array | None], bodies: BodyRunner, cancellation: Cancellation
) -> Sequence[_Array]:
    """Run a control-flow node and return its outputs. ``operands``: its inputs, then its captures."""
    try:
        match plan.node.op_type:
            case "If":
                return bodies.run(_single(operands[0], "the condition") != 0, ())
            case "Loop":
                return _loop(plan, operands, bodies, cancellation)
            case "SequenceMap":
                return _sequence_map(plan, operands, bodies, cancellation)
            case _ if plan.node.opset < 9:
                return _scan_of_opset_8(plan, operands, bodies, cancellation)
            case _:
                return _scan(plan, operands, bodies, cancellation)
    except Cancelled:
        raise
    except HeteroError as error:
        raise inference_error(f"{plan}: {error}", error) from error
    except MemoryError as error:
        raise inference_error(f"{plan}: not enough memory for its results", error) from error


def _loop(
    plan: NodePlan, operands: Sequence[_Array | None], bodies: BodyRunner, cancellation: Cancellation
) -> list[_Array]:
    assert plan.nested is not None
    body, appends = plan.nested.graphs[0], plan.nested.appends
    num_carried = len(body.inputs) - 2 + len(appends)
    limit, condition, *initial = [*operands[: plan.nested.num_inputs], None, None][: 2 + num_carried]
    starts: list[Any] = [initial[append.carried] for append in appends]
    carried = [value for at, value in enumerate(initial) if all(at != append.carried for append in appends)]
    trips = None if limit is None else max(_single(limit, "the trip count"), 0)
    proceed = condition is None or bool(_single(condition, "the condition"))
    shapes = [(1,) if rank == 1 else () for rank in body.input_ranks[:2]]
    first_stack, first_append = 1 + len(carried), len(body.outputs) - len(appends)
    stacks = [_Stack(trips) for _ in body.outputs[first_stack:]]
    state: list[Any] = list(carried)
    flag = np.full(shapes[1], proceed)
    pieces: list[_Array | Sequence[_Array]] = []
    done = None
    if proceed and trips != 0:
        own = (np.zeros(shapes[0], np.int64), flag, *state)
        done = _static_loop(bodies, body, own, trips, stacks, cancellation, list(zip(appends, starts, strict=True)))
    if done is not None:
        state = done
        pieces = [stack.rows for stack in stacks[first_append - first_stack :]]
    else:
        appended: list[list[_Array]] = [[] for _ in appends]
        pieces += appended
        for trip in itertools.count() if trips is None else range(trips):
            if not proceed:
                break
            cancellation.check()
            try:
                results = bodies.run(0, (np.array([trip] if shapes[0] else trip, np.int64), flag, *state))
                flag = results[0]
                proceed = bool(_single(flag, "the condition that its body returns"))
                state = [*results[1:first_stack]]
                for at in range(first_stack, first_append):
                    stacks[at - first_stack].append(results[at])
                for at, append in enumerate(appends):
                    value = results[first_append + at]
                    check_append(append, starts[at], value.shape, value.dtype)
                    appended[at].append(value)
            except Cancelled:
                raise
            except HeteroError as error:
                raise inference_error(f"iteration {trip}: {error}", error) from error
            if flag.shape != shapes[1]:
                flag = flag.reshape(shapes[1])
    for append, start, rows in zip(appends, starts, pieces, strict=True):
        state.insert(append.carried, joined(append, start, rows))
    return [*state, *(stacks[at - first_stack].result(body, at) for at in range(first_stack, first_append))]


def _static_loop(
    bodies: BodyRunner,
    body: NestedGraph,
    own: Sequence[_Array],
    trips: int | None,
    stacks: Sequence[_Stack],
    cancellation: Cancellation,
    appends: Sequence[tuple[Append, _Array]],
) -> list[_Array] | None:
    """Run all iterations in C; returns the carried values and fills ``stacks``. ``appends``: each append and the
    initial value to which it appends; the last stacks belong to them.

    None, before anything runs, unless the body is one program, its condition is one bool, and each carried value has
    the same type and shape after an iteration as before."""
    static = bodies.static(0, own)
    if static is None:
        return None
    counter, flag, *initial = own
    shape, dtype = static.output_type(0)
    if dtype != np.bool_ or math.prod(shape) != 1:
        return None
    if any(static.output_type(1 + at) != (value.shape, value.dtype) for at, value in enumerate(initial)):
        return None
    for at, (append, start) in enumerate(appends, len(body.outputs) - len(appends)):
        check_append(append, start, *static.output_type(at))
    outputs: dict[int, Carried | Rows] = {}
    carried = [_carried(static, 1 + at, 2 + at, value, outputs) for at, value in enumerate(initial)]
    condition = _carried(static, 0, 1, flag, outputs)
    limit = _UNLIMITED_TRIPS if trips is None else trips
    trip, proceed = 0, True
    while proceed and trip < limit:
        stop = limit
        for at, stack in enumerate(stacks, 1 + len(carried)):
            rows = stack.room(*static.output_type(at), trip)
            outputs[at] = Rows(rows, 0, 1)
            stop = min(stop, len(rows))
        trip, proceed = static.repeat(
            [counter, condition, *carried, *bodies.captured(0)],
            outputs,
            counter,
            0 if 0 in outputs else -1,
            trip,
            stop,
            cancellation,
        )
        for stack in stacks:
            stack.count = trip
    return [value.after(trip) for value in carried]


def _carried(
    static: StaticBody, output: int, input_: int, value: _Array, outputs: dict[int, Carried | Rows]
) -> Carried:
    """The buffers of a carried value. If the body passes it on unchanged, one buffer is enough and nothing is written;
    otherwise the value is added to ``outputs``."""
    if static.passes_on(output, input_):
        array = np.ascontiguousarray(value).reshape(value.shape)
        return Carried(array, array)
    outputs[output] = buffers = Carried(np.array(value, order="C"), np.empty(value.shape, value.dtype))
    return buffers


def _scan(
    plan: NodePlan,
    operands: Sequence[_Array | None],
    bodies: BodyRunner,
    cancellation: Cancellation,
    *,
    num_inputs: int | None = None,
) -> list[_Array]:
    """``num_inputs``: how many operands are not captures, if not as many as the node has."""
    assert plan.nested is not None
    body, node = plan.nested.graphs[0], plan.node
    scanned = int(node.get("num_scan_inputs", 0))
    state: list[Any] = list(operands[: (num_inputs or plan.nested.num_inputs) - scanned])
    num_states, num_stacks = len(state), len(body.outputs) - len(state)
    tracks = []
    for position, axis in enumerate(node.get("scan_input_axes", None) or [0] * scanned):
        value = operands[num_states + position]
        assert value is not None, "checked when the model was examined"
        if not -value.ndim <= axis < value.ndim:
            raise InferenceError(f"scan_input_axes has {axis}, its input {position} has shape {list(value.shape)}")
        tracks.append(np.require(np.moveaxis(value, axis, 0), requirements=("C", "A")))
    lengths = {len(track) for track in tracks}
    if len(lengths) != 1:
        raise InferenceError(f"the scanned inputs have different lengths: {sorted(lengths)}")
    trips = lengths.pop()
    backward = node.get("scan_input_directions", None) or node.get("directions", None) or [0] * scanned
    stacks = [_Stack(trips) for _ in range(num_stacks)]
    done = _static_scan(bodies, state, tracks, backward, stacks, cancellation) if trips else None
    if done is not None:
        state = done
    for trip in range(0 if done is not None else trips):
        cancellation.check()
        slices = [track[trips - 1 - trip if back else trip, ...] for track, back in zip(tracks, backward, strict=True)]
        try:
            results = bodies.run(0, (*state, *slices))
            for stack, result in zip(stacks, results[num_states:], strict=True):
                stack.append(result)
        except Cancelled:
            raise
        except HeteroError as error:
            raise inference_error(f"iteration {trip}: {error}", error) from error
        state = list(results[:num_states])
    outputs = []
    axes = node.get("scan_output_axes", None) or [0] * num_stacks
    directions = node.get("scan_output_directions", None) or [0] * num_stacks
    for at, (stack, axis, back) in enumerate(zip(stacks, axes, directions, strict=True)):
        result = stack.result(body, num_states + at)
        if not -result.ndim <= axis < result.ndim:
            raise InferenceError(f"scan_output_axes has {axis}, its output {at} has {result.ndim} dimensions")
        outputs.append(np.ascontiguousarray(np.moveaxis(result[::-1] if back else result, 0, axis)))
    return [*state, *outputs]


def _scan_of_opset_8(
    plan: NodePlan, operands: Sequence[_Array | None], bodies: BodyRunner, cancellation: Cancellation
) -> list[_Array]:
    """A scan for each row of a batch, the first axis of all operands. The first operand, which may be absent, has their
    lengths. Shorter rows of scanned outputs end with zeros, or empty strings."""
    assert plan.nested is not None
    lengths, *rest = operands[: plan.nested.num_inputs]
    captured = operands[plan.nested.num_inputs :]
    num_states = len(rest) - int(plan.node.get("num_scan_inputs", 0))
    values = [value for value in rest if value is not None]
    if len(values) != len(rest) or any(value.ndim < 1 + (at >= num_states) for at, value in enumerate(values)):
        raise InferenceError("expected operands with a batch axis and, to be scanned, an axis after it")
    batches = {len(value) for value in values}
    longest = {value.shape[1] for value in values[num_states:]}
    if len(batches) != 1 or len(longest) != 1:
        raise InferenceError(f"the operands have different batches {sorted(batches)} or lengths {sorted(longest)}")
    batch, trips = batches.pop(), longest.pop()
    if lengths is not None and (lengths.shape != (batch,) or (lengths < 0).any() or (lengths > trips).any()):
        raise InferenceError(f"sequence_lens {lengths.tolist()[:8]} does not fit {batch} rows of {trips}")
    rows = []
    for row in range(batch):
        count = trips if lengths is None else int(lengths[row])
        own = [value[row, ...] for value in values[:num_states]]
        own += [value[row, :count] for value in values[num_states:]]
        rows.append(_scan(plan, [*own, *captured], bodies, cancellation, num_inputs=len(own)))
    if not rows:
        raise InferenceError("cannot determine the types of its outputs without a row")
    outputs = []
    for at, parts in enumerate(zip(*rows, strict=True)):
        if at >= num_states:
            parts = tuple(_padded(part, trips) for part in parts)
        if len({part.shape for part in parts}) != 1:
            raise InferenceError(f"output {at} has different shapes in the rows of the batch")
        outputs.append(np.stack(parts))
    return outputs


def _padded(rows: _Array, count: int) -> _Array:
    filler = np.full((count - len(rows), *rows.shape[1:]), "" if rows.dtype == object else 0, rows.dtype)
    return np.concatenate([rows, filler]) if len(filler) else rows


def _sequence_map(plan: NodePlan, operands: Sequence[Any], bodies: BodyRunner, cancellation: Cancellation) -> list[Any]:
    """Runs the body once for each element of the first operand, a list. Other lists are of the same length."""
    assert plan.nested is not None
    first, *others = operands[: plan.nested.num_inputs]
    if any(isinstance(other, list) and len(other) != len(first) for other in others):
        raise InferenceError(f"expected sequences of {len(first)} elements, as the first")
    results: list[list[_Array]] = [[] for _ in plan.nested.graphs[0].outputs]
    for at, item in enumerate(first):
        cancellation.check()
        own = [item, *(other[at] if isinstance(other, list) else other for other in others)]
        for collected, value in zip(results, bodies.run(0, own), strict=True):
            collected.append(value)
    return results


def _static_scan(
    bodies: BodyRunner,
    initial: Sequence[_Array],
    tracks: Sequence[_Array],
    backward: Sequence[int],
    stacks: Sequence[_Stack],
    cancellation: Cancellation,
) -> list[_Array] | None:
    """Run all iterations in C; returns the states and fills ``stacks``. None, before anything runs, unless the body is
    one program and each state has the same type and shape after an iteration as before."""
    trips = len(tracks[0])
    static = bodies.static(0, (*initial, *(track[0, ...] for track in tracks)))
    if static is None:
        return None
    if any(static.output_type(at) != (value.shape, value.dtype) for at, value in enumerate(initial)):
        return None
    outputs: dict[int, Carried | Rows] = {}
    carried = [_carried(static, at, at, value, outputs) for at, value in enumerate(initial)]
    slices = [Rows(t, trips - 1, -1) if back else Rows(t, 0, 1) for t, back in zip(tracks, backward, strict=True)]
    trip = 0
    while trip < trips:
        stop = trips
        for at, stack in enumerate(stacks, len(carried)):
            rows = stack.room(*static.output_type(at), trip)
            outputs[at] = Rows(rows, 0, 1)
            stop = min(stop, len(rows))
        trip, _ = static.repeat(
            [*carried, *slices, *bodies.captured(0)], outputs, np.zeros(1, np.int64), -1, trip, stop, cancellation
        )
        for stack in stacks:
            stack.count = trip
    return [value.after(trips) for value in carried]


def _single(array: _Array | None, what: str) -> int:
    if array is None or array.size != 1:
        shape = "nothing" if array is None else f"shape {list(array.shape)}"
        raise InferenceError(f"{what}: expected one element, found {shape}")
    return int(array.item())


@functools.cache
def _max_bytes() -> int:
    """Bytes of a scanned output, at most: half of the machine's memory, since a copy exists while it grows."""
    return min(MAX_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


class _Stack:
    """A scanned output: one row per iteration, in memory that doubles. ``trips``: their number, None if unknown."""

    __slots__ = ("_rows", "_trips", "count")

    def __init__(self, trips: int | None) -> None:
        self._trips = trips
        self._rows: _Array | None = None
        self.count = 0

    def append(self, value: _Array) -> None:
        rows = self._rows
        if rows is None or self.count == len(rows):
            rows = self.room(value.shape, value.dtype, self.count)
        if value.shape != rows.shape[1:] or value.dtype != rows.dtype:
            raise InferenceError(
                f"a scanned output is {value.dtype}{list(value.shape)}, "
                f"after {rows.dtype}{list(rows.shape[1:])} in earlier iterations"
            )
        rows[self.count] = value
        self.count += 1

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any], trip: int) -> _Array:
        """An array that has a row for ``trip``. Rows of earlier iterations are kept."""
        if self._rows is None or trip == len(self._rows):
            self._rows = self._larger(shape, dtype)
        return self._rows

    def _larger(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
        row_bytes = max(math.prod(shape) * dtype.itemsize, 1)
        num_rows = 2 * self.count or max(_FIRST_BYTES // row_bytes, 1)
        if self._trips is not None:
            num_rows = min(num_rows, self._trips)
        elif not self.count:
            num_rows = min(num_rows, 64)
        if num_rows * row_bytes > _max_bytes():
            raise InferenceError(
                f"a scanned output of {num_rows} iterations would need {num_rows * row_bytes} bytes, "
                f"more than half of the memory"
            )
        rows = np.empty((num_rows, *shape), dtype)
        if self._rows is not None:
            rows[: self.count] = self._rows
        return rows

    @property
    def rows(self) -> _Array:
        """The rows of all iterations; there was at least one."""
        assert self._rows is not None
        return self._rows[: self.count]

    def result(self, body: NestedGraph, output: int) -> _Array:
        rows = self._rows
        if rows is not None:
            return rows[: self.count] if 2 * self.count > len(rows) else rows[: self.count].copy()
        dtype, dims = body.outputs[output]
        if dtype is None or dims is None:
            model_type = body.model.type_of(body.results[output])
            dtype, dims = dtype or model_type.dtype, model_type.shape if dims is None else dims
        if dtype is None or dims is None:
            name = body.model.value_name(body.results[output])
            raise InferenceError(
                f"cannot determine the type of the scanned output {name!r} of its body without an iteration"
            )
        return np.empty((0, *(dim if isinstance(dim, int) else 0 for dim in dims)), dtype)
