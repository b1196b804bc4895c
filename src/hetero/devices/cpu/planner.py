"""From a model and the shapes of its inputs to a `Program`.

Nodes are lowered in order. What is known is computed at once: constants once per compiled model, shapes and what
follows from them once per plan. The rest becomes kernel calls. Where the shape of a result depends on data (a Reshape
to a computed shape), the plan is cut: a `Segment` ends there, and the rest is planned when the data are known.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import _program
from ...errors import HeteroError, InferenceError, inference_error
from .control_flow import nested  # noqa: F401  they register their operators
from .control_flow.branches import branched
from .fusion import fuse
from .memory import Parts, join, place_in_arena
from .operators import batch_norm
from .registry import NodePlan, dtype_trouble
from .segment import Segment
from .values import Call, Context, NeedsData, NeedsHost, Packed, Value

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["Planner", "Segment"]


# Constants up to this size are copied, so that runs do not touch the model's file: the system may map megabytes of it
# for one number. Most larger ones are copied into another layout, and then need no memory of their own.
_SMALL_BYTES = 1 << 16


class Planner:
    """Plans one model for any shapes. Holds what all plans share: parsed nodes, folded and packed constants.

    ``transform``: fuse calls (see `fusion`).

    ``constants``: values that are known besides the model's own constants. ``packed``: those of the planner around it.
    ``folded``: nodes whose results are among ``constants``, as far as others read them.

    Threads may plan at once: what they share is only added to, and what two of them add is the same.
    """

    def __init__(
        self,
        model: Model,
        nodes: list[NodePlan],
        transform: bool = True,
        *,
        input_ids: Sequence[int] | None = None,
        output_ids: Sequence[int] | None = None,
        constants: Mapping[int, Value] | None = None,
        packed: Packed | None = None,
        folded: Collection[int] = (),
    ) -> None:
        self.model = model
        self.nodes = nodes
        self.input_ids = tuple(model.input_ids if input_ids is None else input_ids)
        self.output_ids = tuple(model.output_ids if output_ids is None else output_ids)
        self._transform = transform
        self._packed = Packed() if packed is None else packed
        self._constants: dict[int, Value] = dict(constants or {})
        self._children: dict[tuple[int, int], tuple[Planner, tuple[int, ...]]] = {}
        self._children_lock = threading.RLock()
        self.folded = self._fold(frozenset(folded))
        self._operands: dict[int, tuple[Value, Value]] = {}  # of convolutions: other weights and bias
        self._passing: frozenset[int] = frozenset()  # nodes that pass their first input on
        if transform:
            self._operands, self._passing = batch_norm.fold(nodes, self.output_ids, self.constant)

    def _fold(self, known: frozenset[int]) -> frozenset[int]:
        """Compute the nodes that depend on constants alone, once, but for those whose results are known. The indices of
        all. A node that fails stays, and fails in the run that reaches it: a branch that is not taken may divide by
        zero."""
        folded = set(known)
        is_constant = self.model.is_constant.data  # gives plain bools, faster than the array gives scalars
        for i, plan in enumerate(self.nodes):
            if i in known or plan.operator.custom is not None:  # what the user's code does is not known to be constant
                continue
            if any(v >= 0 and v not in self._constants and not is_constant[v] for v in plan.inputs):
                continue  # without reading the others
            inputs = [self.constant(value) if value >= 0 else None for value in plan.inputs]
            if any(value >= 0 and operand is None for value, operand in zip(plan.inputs, inputs, strict=True)):
                continue
            try:
                results = self._lower(Context(self._packed), i, inputs)
            except (NeedsHost, InferenceError):  # a Loop, which may run forever, is not for compiling
                continue
            for value, result in zip(plan.outputs, results, strict=False):
                if value >= 0:
                    assert result.data is not None, "all operands are known"
                    self._constants[value] = Value(result.dtype, result.shape, _read_only(result.data), shared=True)
            folded.add(i)
        return frozenset(folded)

    def constant(self, value: int) -> Value | None:
        """A value that does not depend on the inputs; None for others."""
        if value not in self._constants and self.model.is_constant[value]:
            array = self.model.constant(value, aligned=False)
            if array.nbytes <= _SMALL_BYTES:
                array = array.copy()
                array.flags.writeable = False
            self._constants[value] = Value(array.dtype, array.shape, array, shared=True)
        return self._constants.get(value)

    def _lower(self, context: Context, i: int, inputs: Sequence[Value | None]) -> Sequence[Value]:
        plan = self.nodes[i]
        trouble = dtype_trouble(plan.operator, inputs)
        if trouble:
            raise InferenceError(f"{plan}: {trouble}")
        context.node = i
        try:
            if plan.nested is not None:
                return self._lower_nested(context, i, inputs)
            return plan.operator.lower(context, plan.node, inputs)
        except (NeedsData, NeedsHost):
            raise
        except HeteroError as error:
            raise inference_error(f"{plan}: {error}", error) from error
        except Exception as error:
            shapes = ", ".join("absent" if v is None else f"{v.dtype}{list(v.shape)}" for v in inputs)
            text = f"{plan}: cannot be planned for inputs {shapes}: {error}"
            raise inference_error(text, error) from error

    def _lower_nested(self, context: Context, i: int, inputs: Sequence[Value | None]) -> Sequence[Value]:
        """An If whose condition is known stands for the nodes of its branch, a small one may be a call; all else runs
        between two segments."""
        condition = inputs[0]
        if self.nodes[i].node.op_type != "If":
            raise NeedsHost
        if condition is None or condition.data is None or condition.size != 1:
            made = branched(self, context, i, inputs)
            if made is None:
                raise NeedsHost
            return made
        branch, captured = self.child(i, int(condition.data.reshape(-1)[0]))
        return branch._inline(context, [inputs[position] for position in captured], self.nodes[i])

    def _inline(self, context: Context, inputs: Sequence[Value | None], around: NodePlan) -> Sequence[Value]:
        """Lower all nodes as a part of ``around``, a node of another planner. `NeedsHost` where a plan is cut."""
        values: dict[int, Value] = {}
        for number, value in zip(self.input_ids, inputs, strict=True):
            assert value is not None, "captures are there"
            values[number] = value
        begin, outer, stages, context.stages = len(context.calls), context.node, context.stages, {}
        try:
            for i in range(len(self.nodes)):
                if i not in self.folded:
                    values.update(self._results(context, i, values))
        except (NeedsData, NeedsHost):
            del context.calls[begin:]
            raise NeedsHost from None
        finally:
            context.stages, context.node = stages, outer
        for call in context.calls[begin:]:
            call.label = _Within(call.label or self.nodes[call.node], around)
            call.node = outer
        results = [values.get(number) or self.constant(number) for number in self.output_ids]
        return [value for value in results if value is not None]

    def child(self, i: int, graph: int) -> tuple[Planner, tuple[int, ...]]:
        """The planner of a body of node ``i``, and where among the node's inputs are what follows the body's own."""
        with self._children_lock:
            if (i, graph) not in self._children:
                plan = self.nodes[i]
                assert plan.nested is not None
                body = plan.nested.graphs[graph]
                constants, passed = {}, []
                for number, position in body.captures:
                    constant = self.constant(plan.inputs[position])
                    if constant is None:
                        passed.append((number, position))
                    else:
                        constants[number] = constant
                planner = Planner(
                    body.model,
                    body.nodes,
                    self._transform,
                    input_ids=(*body.inputs, *(number for number, _ in passed)),
                    output_ids=body.results,
                    constants=constants,
                    packed=self._packed,
                )
                self._children[i, graph] = (planner, tuple(position for _, position in passed))
            return self._children[i, graph]

    @property
    def packed(self) -> Packed:
        """Constants in the layouts of kernels, of this planner and those of all bodies."""
        return self._packed

    def stored_constants(self) -> Mapping[int, Value]:
        """The values that are known so far, the model's own constants among them."""
        return self._constants

    def descendants(self) -> Iterator[tuple[tuple[tuple[int, int], ...], Planner]]:
        """This planner and those of bodies that were planned, with the way there: node and graph, level by level."""
        yield (), self
        with self._children_lock:
            children = list(self._children.items())
        for step, (child, _) in children:
            for way, planner in child.descendants():
                yield (step, *way), planner

    def first(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype[Any]]) -> Segment:
        """The first segment for these inputs."""
        given = {value: Value(dtype, shape) for value, shape, dtype in zip(self.input_ids, shapes, dtypes, strict=True)}
        return self._segment(0, given)

    def whole(self, given: dict[int, Value]) -> Segment | None:
        """All as one program, for such values of the inputs; None if it is not that."""
        segment = self._segment(0, given)
        return segment if segment.host < 0 and segment.next_node == len(self.nodes) else None

    def following(
        self, segment: Segment, arrays: Mapping[int, NDArray[Any]], waited: Mapping[int, NDArray[Any]]
    ) -> Segment:
        """The segment after ``segment``, which waits for data. ``arrays``: all values computed or known so far; only
        their dtypes and shapes are read. ``waited``: the data of ``segment.needs``. The plan keeps these arrays, so
        they must not be written later."""
        given = {}
        for value, array in arrays.items():
            data = waited[value] if value in waited else segment.known.get(value)
            given[value] = Value(array.dtype, array.shape, data)
        return self._segment(segment.next_node, given)

    def _segment(self, start: int, given: dict[int, Value]) -> Segment:
        context = Context(self._packed)
        values: dict[int, Value] = dict(given)
        for value in given.values():
            if value.data is None:
                value.storage = context.new_storage()
        staged = [number for number in sorted(values) if number >= self.model.num_values]  # all are of node ``start``
        if staged:
            context.stages[start] = [values.pop(number) for number in staged]
        needs: tuple[int, ...] = ()
        stop, host = len(self.nodes), -1
        for i in range(start, len(self.nodes)):
            if i in self.folded:
                continue
            plan = self.nodes[i]
            num_calls = len(context.calls)
            try:
                values.update(self._results(context, i, values))
            except NeedsHost:
                del context.calls[num_calls:]
                stop, host = i + 1, i
                break
            except NeedsData as need:
                stage = context.stages.get(i, [])
                if any(value is need.value for value in stage):
                    # The node's own values get ids after the model's and are handed on to its next lowering. No two
                    # nodes share an id, since a value that an earlier node staged may be an output.
                    numbers = [self.model.num_values + i + position * len(self.nodes) for position in range(len(stage))]
                    values.update(zip(numbers, stage, strict=True))
                    needs = tuple(n for n, value in zip(numbers, stage, strict=True) if value is need.value)
                else:
                    del context.calls[num_calls:]
                    needs = tuple(dict.fromkeys(v for v in plan.inputs if v >= 0 and values.get(v) is need.value))
                    if not needs:
                        raise InferenceError(
                            f"{plan}: waits for a value that is neither its input nor staged"
                        ) from need
                stop = i
                break
        return self._finish(context, values, given, needs, stop, host)

    def _results(self, context: Context, i: int, values: Mapping[int, Value]) -> dict[int, Value]:
        """Lower one node: its outputs, by value id."""
        plan = self.nodes[i]
        inputs = [(values.get(value) or self.constant(value)) if value >= 0 else None for value in plan.inputs]
        if i in self._passing:
            assert inputs[0] is not None
            return {plan.outputs[0]: inputs[0]}
        if i in self._operands:
            inputs[1:] = self._operands[i]
        results = self._lower(context, i, inputs)
        return {number: result for number, result in zip(plan.outputs, results, strict=False) if number >= 0}

    def _finish(
        self,
        context: Context,
        values: dict[int, Value],
        given: dict[int, Value],
        needs: tuple[int, ...],
        stop: int,
        host: int,
    ) -> Segment:
        """Choose what the segment hands on, and lay out its memory."""
        read_later = {value for plan in self.nodes[stop:] for value in plan.inputs} | set(self.output_ids)
        host_inputs = set(self.nodes[host].inputs) if host >= 0 else set()
        host_outputs = tuple(v for v in self.nodes[host].outputs if v in read_later) if host >= 0 else ()
        if stop == len(self.nodes):
            wanted = [v for v in dict.fromkeys(self.output_ids) if v not in host_outputs]
            wanted += [v for v in values if v in host_inputs and v not in wanted]
            handed_on: list[int] = []
        else:
            handed_on = [value for value in values if value in read_later or value >= self.model.num_values]
            wanted = handed_on + [v for v in values if v in host_inputs and v not in read_later]
            handed_on += host_outputs
        known, outputs, aliases = {}, [], {}
        storage_output: dict[int, int] = {}
        given_storage = {value.storage: number for number, value in given.items() if value.data is None}
        for number in wanted:
            value = values.get(number) or self.constant(number)
            assert value is not None, "checked when the model was read"
            if value.data is not None:
                known[number] = _read_only(value.data)
            elif value.storage in given_storage:
                aliases[number] = (given_storage[value.storage], value.shape)
            elif value.storage in storage_output:
                aliases[number] = (storage_output[value.storage], value.shape)
            else:
                storage_output[value.storage] = number
                outputs.append(number)
        inputs = [number for number, value in given.items() if value.data is None]
        calls: Sequence[Call] = context.calls
        parts: Parts = {}
        if self._transform:
            calls = fuse(calls, storage_output)
            calls, parts = join(calls, storage_output.keys() | given_storage.keys())
        program, node_of = _assemble(
            calls,
            parts,
            [given[n] for n in inputs],
            [values[n] for n in outputs],
            [call.label or self.nodes[call.node] for call in calls],
            self._packed,
        )
        return Segment(
            program,
            tuple(inputs),
            tuple(outputs),
            known,
            aliases,
            needs,
            node_of,
            stop,
            tuple(handed_on),
            host,
            host_outputs,
        )


def _read_only(data: NDArray[Any]) -> NDArray[Any]:
    """A view of ``data`` that cannot be written: callers get it from a plan, and later runs read it."""
    if data.flags.writeable:
        data = data.view()
        data.flags.writeable = False
    return data


class _Within:
    """Names a call of an inlined body in errors."""

    def __init__(self, inner: object, around: NodePlan) -> None:
        self._inner = inner
        self._around = around

    def __str__(self) -> str:
        return f"{self._inner}, in {self._around}"


def _aligned(value: Value, packed: Packed) -> NDArray[Any]:
    """The data of a constant, where kernels can read them; copied once per compiled model."""
    data = value.data
    assert data is not None
    if data.flags.aligned:
        return data
    if not value.shared:
        return data.copy()
    return packed.setdefault((id(data), "aligned"), (data, data.copy()))[1]


def _assemble(
    calls: Sequence[Call],
    parts: Parts,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    labels: Sequence[object],
    packed: Packed,
) -> tuple[_program.Program, tuple[int, ...]]:
    """Lay out memory and number the tensors of a program."""
    place: dict[int, tuple[int, int]] = {}  # storage -> (kind of place, number)
    for position, value in enumerate(inputs):
        place[value.storage] = (2, position)
    for position, value in enumerate(outputs):
        place[value.storage] = (3, position)
    arena_bytes = place_in_arena(calls, place, parts)

    constants: list[NDArray[Any]] = []
    constant_number: dict[int, int] = {}
    tensors: list[tuple[Any, ...]] = []
    tensor_number: dict[int, int] = {}

    def number_of(value: Value | None) -> int:
        if value is None:
            return -1
        if id(value) not in tensor_number:
            if value.data is not None:
                if id(value.data) not in constant_number:
                    constant_number[id(value.data)] = len(constants)
                    constants.append(_aligned(value, packed))
                where = (1, constant_number[id(value.data)])
            else:
                where = place[value.storage]
            tensor_number[id(value)] = len(tensors)
            tensors.append((value.dtype, value.shape, *where))
        return tensor_number[id(value)]

    entries = [
        (
            call.kernel,
            [number_of(value) for value in call.inputs],
            [number_of(value) for value in call.outputs],
            call.ints,
            call.floats,
            call.scratch_bytes,
            label,
            call.branches,
        )
        for call, label in zip(calls, labels, strict=True)
    ]
    program = _program.Program(
        tensors,
        entries,
        constants,
        [(value.shape, value.dtype) for value in inputs],
        [(value.shape, value.dtype) for value in outputs],
        arena_bytes,
    )
    return program, tuple(call.node for call in calls)
