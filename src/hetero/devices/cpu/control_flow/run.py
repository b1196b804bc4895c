"""Runs If, Loop and Scan between two segments of a plan. Each body has plans of its own.

The semantics are those of ONNX. Where ONNX does not specify them, they are those of onnxruntime: a Loop without an
initial condition still ends when its body returns false, and the scanned outputs of a Loop without iterations have size
0 along dimensions whose size the body does not state. If their rank is unknown, they are vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .... import _workspace
from ....errors import Cancelled, HeteroError, InferenceError, inference_error
from ....plugin.cancellation import Cancellation
from ..registry import Append, NestedGraph, NodePlan
from ..values import MAX_BYTES
from .appends import check_append, joined
from .iterations import Layout

__all__ = ["BodyRunner", "run_nested"]

_Array = NDArray[Any]


class BodyRunner(Protocol):
    """Runs the bodies of one node during one run of the enclosing model. ``own``: arrays for a body's own inputs."""

    def run(self, graph: int, own: Sequence[_Array]) -> Sequence[_Array]:
        """Run the body and return its outputs."""
        ...

    def iterate(
        self,
        layout: Layout,
        own: list[_Array],
        steps: list[int],
        stacks: list[_Stack],
        stop: int,
    ) -> None:
        """Run the iterations of the only body from 0 to ``stop`` - 1, or to one whose condition is false. Replaces the
        carried values in ``own``. ``steps``: see `Iterations.run`."""
        ...


_UNLIMITED = (1 << 63) - 1  # iterations
# The first number of an iteration and the first condition, of rank 0 and 1. They are read-only, so a result that is one
# of them is copied.
_ZERO, _TRUE = ([np.broadcast_to(first, shape) for shape in ((), (1,))] for first in (np.int64(0), np.bool_(True)))
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
                return _loop(plan, operands, bodies)
            case "SequenceMap":
                return _sequence_map(plan, operands, bodies, cancellation)
            case _ if plan.node.opset < 9:
                return _scan_of_opset_8(plan, operands, bodies)
            case _:
                return _scan(plan, operands, bodies)
    except Cancelled:
        raise
    except HeteroError as error:
        raise inference_error(f"{plan}: {error}", error) from error
    except MemoryError as error:
        raise inference_error(f"{plan}: not enough memory for its results", error) from error


def _loop(plan: NodePlan, operands: Sequence[_Array | None], bodies: BodyRunner) -> list[_Array]:
    assert plan.nested is not None
    body, nested = plan.nested.graphs[0], plan.nested
    limit, condition, *initial = [*operands[: nested.num_inputs], None, None][: max(nested.num_inputs, 2)]
    removed = {*nested.kept, *(append.carried for append in nested.appends)}
    places = [at for at in range(len(initial)) if at not in removed]
    carried = [initial[at] for at in places]
    count = None if limit is None else max(_single(limit, "the trip count"), 0)
    proceed = condition is None or bool(_single(condition, "the condition"))
    num_scanned = len(body.outputs) - 1 - len(carried) - len(nested.appends)
    items = [_Items(count, append, initial[append.carried]) for append in nested.appends]
    stacks = [*(_Stack(count) for _ in range(num_scanned)), *items]
    number_rank, flag_rank = body.input_ranks[:2]
    own: list[Any] = [_ZERO[number_rank == 1], _TRUE[flag_rank == 1], *carried]
    if proceed and count != 0:
        bodies.iterate(Layout(True, 1 + len(carried)), own, [], stacks, _UNLIMITED if count is None else count)
    values: list[Any] = list(initial)
    for at, value in zip(places, own[2:], strict=True):
        values[at] = value
    for append, rows in zip(nested.appends, items, strict=True):
        values[append.carried] = joined(append, rows.start, rows.pieces())
    return [*values, *(stacks[at].result(body, 1 + len(carried) + at) for at in range(num_scanned))]


def _scan(
    plan: NodePlan,
    operands: Sequence[_Array | None],
    bodies: BodyRunner,
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
        tracks.append(_moved(value, axis, 0))
    lengths = {len(track) for track in tracks}
    if len(lengths) != 1:
        raise InferenceError(f"the scanned inputs have different lengths: {sorted(lengths)}")
    count = lengths.pop()
    backward = node.get("scan_input_directions", None) or node.get("directions", None) or [0] * scanned
    stacks = [_Stack(count) for _ in range(num_stacks)]
    if count:
        own = [*state, *tracks]
        steps = [-1 if back else 1 for back in backward]
        bodies.iterate(Layout(False, num_states, scanned), own, steps, stacks, count)
        state = own[:num_states]
    outputs = []
    axes = node.get("scan_output_axes", None) or [0] * num_stacks
    directions = node.get("scan_output_directions", None) or [0] * num_stacks
    for at, (stack, axis, back) in enumerate(zip(stacks, axes, directions, strict=True)):
        result = stack.result(body, num_states + at)
        if not -result.ndim <= axis < result.ndim:
            raise InferenceError(f"scan_output_axes has {axis}, its output {at} has {result.ndim} dimensions")
        outputs.append(_moved(result[::-1] if back else result, 0, axis))
    return [*state, *outputs]


def _moved(value: _Array, source: int, target: int) -> _Array:
    """``value`` with an axis at another position, C-contiguous."""
    # np.moveaxis takes microseconds even if it moves nothing.
    return np.ascontiguousarray(value if source == target else np.moveaxis(value, source, target))


def _scan_of_opset_8(plan: NodePlan, operands: Sequence[_Array | None], bodies: BodyRunner) -> list[_Array]:
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
    batch, length = batches.pop(), longest.pop()
    if lengths is not None and (lengths.shape != (batch,) or (lengths < 0).any() or (lengths > length).any()):
        raise InferenceError(f"sequence_lens {lengths.tolist()[:8]} does not fit {batch} rows of {length}")
    rows = []
    for row in range(batch):
        count = length if lengths is None else int(lengths[row])
        own = [value[row, ...] for value in values[:num_states]]
        own += [value[row, :count] for value in values[num_states:]]
        rows.append(_scan(plan, [*own, *captured], bodies, num_inputs=len(own)))
    if not rows:
        raise InferenceError("cannot determine the types of its outputs without a row")
    outputs = []
    for at, parts in enumerate(zip(*rows, strict=True)):
        if at >= num_states:
            parts = tuple(_padded(part, length) for part in parts)
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


def _single(array: _Array | None, what: str) -> int:
    if array is None or array.size != 1:
        shape = "nothing" if array is None else f"shape {list(array.shape)}"
        raise InferenceError(f"{what}: expected one element, found {shape}")
    return int(array.item())


@functools.cache
def _max_bytes() -> int:
    """Bytes of a scanned output, at most: half of the machine's memory, since a copy exists while it grows."""
    return min(MAX_BYTES, _workspace.physical_memory() // 2)


class _Stack:
    """A scanned output: one row per iteration, in memory that doubles. ``limit``: the number of iterations, None if
    unknown."""

    __slots__ = ("_begin", "_limit", "_next", "_rows")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._rows: _Array | None = None
        self._begin = 0  # the iteration of the first row
        self._next = 0  # the first iteration that has no row yet

    def append(self, value: _Array) -> None:
        rows, at = self._rows, self._next - self._begin
        if rows is None or at == len(rows) or value.shape != rows.shape[1:] or value.dtype != rows.dtype:
            rows, at = self.room(value.shape, value.dtype, self._next), 0
        rows[at] = value
        self._next += 1

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any], iteration: int) -> _Array:
        """Rows of this type from ``iteration`` on, at least one. Rows of earlier iterations are kept."""
        self._next = iteration
        rows = self._rows
        if rows is not None and (shape != rows.shape[1:] or dtype != rows.dtype):
            self._change(rows, shape, dtype)
            rows = self._rows
        count = iteration - self._begin
        if rows is None or count == len(rows):
            rows = self._rows = self._larger(shape, dtype, count)
        return rows[count:]

    def finish(self, iteration: int) -> None:
        """All iterations before ``iteration`` have filled their rows."""
        self._next = iteration

    def _change(self, rows: _Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Prepare for rows of another type than before."""
        raise InferenceError(
            f"a scanned output is {dtype}{list(shape)}, after {rows.dtype}{list(rows.shape[1:])} in earlier iterations"
        )

    def _larger(self, shape: tuple[int, ...], dtype: np.dtype[Any], count: int) -> _Array:
        """Memory for more than ``count`` rows, with those that there are."""
        row_bytes = max(math.prod(shape) * dtype.itemsize, 1)
        num_rows = 2 * count or (max(_FIRST_BYTES // row_bytes, 1) if not self._begin else 1)
        if self._limit is not None:
            num_rows = min(num_rows, self._limit - self._begin)
        elif not count:
            num_rows = min(num_rows, 64)
        if num_rows * row_bytes > _max_bytes():
            raise InferenceError(
                f"a scanned output of {num_rows} iterations would need {num_rows * row_bytes} bytes, "
                f"more than half of the memory"
            )
        rows = np.empty((num_rows, *shape), dtype)
        if self._rows is not None:
            rows[:count] = self._rows
        return rows

    def filled(self) -> _Array | None:
        """The rows of all iterations, or of those since the type changed; None before the first."""
        return None if self._rows is None else self._rows[: self._next - self._begin]

    def result(self, body: NestedGraph, output: int) -> _Array:
        filled, rows = self.filled(), self._rows
        if filled is not None and rows is not None:
            return filled if 2 * len(filled) > len(rows) else filled.copy()
        value, (dtype, dims) = body.results[output], body.outputs[output]
        if dtype is None:
            dtype = body.model.type_of(value).dtype
        if dims is None:
            dims = body.model.type_of(value).shape if body.row_shape is None else body.row_shape(value)
        if dtype is None or dims is None:
            name = body.model.value_name(value)
            raise InferenceError(
                f"cannot determine the type of the scanned output {name!r} of its body without an iteration"
            )
        return np.empty((0, *(dim if isinstance(dim, int) else 0 for dim in dims)), dtype)


class _Items(_Stack):
    """The items that a Loop appends to a carried value. Their size along the axis may change between iterations.
    ``start``: the value to which the first is appended."""

    __slots__ = ("_append", "_earlier", "start")

    def __init__(self, limit: int | None, append: Append, start: Any) -> None:
        super().__init__(limit)
        self.start: _Array = start
        self._append = append
        self._earlier: list[_Array] = []  # rows of other sizes

    def _change(self, rows: _Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._earlier.append(rows[: self._next - self._begin])
        self._rows, self._begin = None, self._next

    def _larger(self, shape: tuple[int, ...], dtype: np.dtype[Any], count: int) -> _Array:
        if not count:
            check_append(self._append, self.start, shape, dtype)
        return super()._larger(shape, dtype, count)

    def pieces(self) -> list[_Array]:
        """The items in order: arrays with a row for each of some iterations."""
        filled = self.filled()
        return self._earlier if filled is None else [*self._earlier, filled]
