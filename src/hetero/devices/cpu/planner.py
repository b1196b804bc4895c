"""Plans a model for given input shapes: lowers its nodes to kernel calls and assembles them into `Program`s.

Nodes are lowered in order. Results whose operands are known are computed immediately: those of constants once per
compiled model (`Planner._fold`), those of shapes once per plan, or for each set of sizes if the plan has symbols for
them (`tracing.py`). The rest becomes kernel calls, and `assembly.py` makes a program of them. If the shape of a result
depends on data (a Reshape to a computed shape), the plan is cut: a `Segment` ends there, and the next segment is
planned when the data are known.

One tensor of the model appears in six forms, in this order:

1. A *value id* (int): its number in the model, as in `NodePlan.inputs`, `Planner.output_ids` and the fields of
   `Segment`; -1 for an absent input. Ids from ``model.num_values`` on are staged values: results of a node that was
   interrupted by a cut and will be lowered again (`Context.staged`).
2. A `Value`: its type, its shape, and its data if they are known during planning. Otherwise a call or the segment's
   caller provides the data at run time.
3. A *storage* (``Value.storage``, an int): the memory of a value whose data are not known. Reshapes share a storage.
4. A *place*, a pair (kind, number): where a storage lies in a program. The kinds are those of
   `_program`: ``ARENA`` (an offset in bytes, which `memory.py` assigns), ``CONSTANT``, ``INPUT``, ``OUTPUT``, ``LATE``.
5. A *tensor number*: its index in the tensor table of a `Program`, whose entries are dtype, shape and place.
6. An *array*: the data at run time (`CpuRunner`).

Each value that a segment must return is one of: known (`Segment.known`), an output of the program
(`Segment.outputs`), or a reshape of an input or of such an output (`Segment.aliases`). `Planner._finish` decides.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..._sizes import is_symbolic
from ...errors import HeteroError, InferenceError, inference_error
from .appended import Append, Appended, append_in_place
from .assembly import assemble
from .control_flow import nested  # noqa: F401  they register their operators
from .control_flow.branches import branched
from .fusion import fuse
from .memory import Parts, join
from .operators import convolution_folding
from .operators.convolution_folding import Folded
from .order import late_order
from .registry import NodePlan, dtype_trouble
from .segment import Segment
from .tracing import Tracing, is_readable
from .values import MAX_DIMS, Call, Context, NeedsData, NeedsHost, Packed, Value, in_order, is_opaque, type_of

if TYPE_CHECKING:
    from ...model.model import Model
    from ...model.types import Port

__all__ = ["Planner", "Segment"]


_MAX_RANK = 64  # of a NumPy array

_SMALL_BYTES = 1 << 16
"""Constants up to this size are copied, so that runs do not touch the model's file: the system may map megabytes of it
for one number. Most larger constants are packed, and are then not read in the file either."""


class Planner:
    """Plans one model for any shapes. Holds what all its plans share: parsed nodes, folded and packed constants.

    ``transform``: whether calls are fused (see `fusion`).
    ``input_ids``, ``output_ids``: those of a body, if they differ from the model's.
    ``constants``: values that are known in addition to the model's own constants.
    ``packed``: the packed constants of the enclosing planner, to share them.
    ``folded``: nodes whose results are in ``constants``, as far as other nodes read them.
    ``elsewhere``: nodes that are not part of plans (see `hosted`).

    Thread-safe: threads only add to the shared dictionaries, and two threads add equal entries.
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
        elsewhere: Collection[int] = (),
    ) -> None:
        self.model = model
        self.input_ids = tuple(model.input_ids if input_ids is None else input_ids)
        self.output_ids = tuple(model.output_ids if output_ids is None else output_ids)
        self._transform = transform
        self._has_fixed_sizes = input_ids is None and all(map(_has_fixed_sizes, model.inputs))
        self._packed = Packed() if packed is None else packed
        self._constants: dict[int, Value] = dict(constants or {})
        self._children: dict[tuple[int, int], tuple[Planner, tuple[int, ...]]] = {}
        self._children_lock = threading.RLock()
        self._states: tuple[tuple[int, int], ...] = ()
        self.unfit: deque[str] = deque(maxlen=16)  # why the last plans for symbols failed
        self.num_unfit = 0
        self.nodes, self.replaced = nodes, frozenset[int]()  # nodes whose results other nodes compute
        if transform and any(plan.node.op_type in ("QuantizeLinear", "DequantizeLinear") for plan in nodes):
            from .operators import nbits  # few models need these modules
            from .qdq import rewrite

            nodes = nbits.rewritten(model, nodes, self.output_ids)
            self.nodes, self.replaced = rewrite(nodes, self.output_ids, self.constant, self._is_constant)
        self._unread = self.replaced | frozenset(elsewhere)
        self.labels = {
            plan.outputs[0]: table
            for plan in self.nodes
            if plan.operator.labels is not None and (table := plan.operator.labels(plan.node.attributes)) is not None
        }  # values that are places in a table of strings
        self.folded = self._fold(frozenset(folded))
        self._convolutions = Folded({}, {}, frozenset())
        if transform:
            self._convolutions = convolution_folding.fold(
                self.nodes, self.output_ids, self.constant, self._packed.pages.take
            )
            self._unread |= self._convolutions.unread
        self._order = late_order(self.nodes, self._unread)

    def _fold(self, known: frozenset[int]) -> frozenset[int]:
        """Compute the nodes that depend only on constants, except ``known``, whose results are stored; returns the
        indices of all of them. A large result is dropped when all nodes that read it are folded.

        A node that fails is not folded. It fails in the run that reaches it, because a branch that is never taken may
        divide by zero."""
        folded = set(known)
        is_constant = self.model.is_constant.data  # gives plain bools, faster than the array gives scalars
        readers = Counter(value for plan in self.nodes for value in plan.inputs)
        readers.update(self.output_ids)
        made: set[int] = set()
        for i, plan in enumerate(self.nodes):
            if i in known or i in self._unread or not plan.outputs:  # `nbits.rewritten` empties nodes
                continue
            if plan.operator.custom is not None or plan.operator.host is not None:
                continue  # user code, and random numbers, may give another result in each run
            if plan.outputs[0] in self.labels:
                continue
            if any(v >= 0 and v not in self._constants and not is_constant[v] for v in plan.inputs):
                continue  # checked before any constant is read from the file
            inputs = [self.constant(value) if value >= 0 else None for value in plan.inputs]
            if any(value >= 0 and operand is None for value, operand in zip(plan.inputs, inputs, strict=True)):
                continue
            try:
                results = self._lower(Context(self._packed), i, inputs)
            except (NeedsHost, InferenceError):  # control flow does not run during compilation: a Loop may never end
                continue
            for value, result in zip(plan.outputs, results, strict=False):
                if value >= 0:
                    assert result.data is not None, "all operands are known"
                    self._constants[value] = Value(result.dtype, result.shape, _read_only(result.data), shared=True)
                    made.add(value)
            folded.add(i)
            readers.subtract(plan.inputs)
            for value in made.intersection(plan.inputs):
                if readers[value] == 0 and _num_bytes(self._constants.get(value)) > _SMALL_BYTES:
                    del self._constants[value]
        return frozenset(folded)

    def _is_constant(self, value: int) -> bool:
        return value in self._constants or bool(self.model.is_constant[value])

    def constant(self, value: int) -> Value | None:
        """The constant or folded value of this id; None for all others."""
        if value not in self._constants and self.model.is_constant[value]:
            array = self.model.constant(value, aligned=False)
            if array.nbytes <= _SMALL_BYTES:
                array = array.copy()
                array.flags.writeable = False
            self._constants[value] = Value(array.dtype, array.shape, array, shared=True)
        return self._constants.get(value)

    def _lower(self, context: Context, i: int, inputs: Sequence[Value | None]) -> Sequence[Value]:
        plan = self.nodes[i]
        own = inputs if plan.nested is None else inputs[: plan.nested.num_inputs]  # captures may be of any type
        trouble = None if plan.operator.host is not None else dtype_trouble(plan.operator, own)
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
        """An If whose condition is known is replaced by the nodes of its branch: if the condition depends on sizes, the
        plan holds for the sizes that give the same answer. A small If becomes one call (`branched`). All other control
        flow raises `NeedsHost`."""
        condition = inputs[0]
        if self.nodes[i].node.op_type != "If" or any(
            value in self.labels or (operand is not None and is_opaque(operand))
            for value, operand in zip(self.nodes[i].inputs, inputs, strict=True)
        ):
            raise NeedsHost
        if condition is None or condition.size != 1 or not context.is_known(condition):
            made = branched(self, context, i, inputs)
            if made is None:
                raise NeedsHost
            return made
        branch, captured = self.child(i, int(bool(context.known(condition).reshape(()).item())))
        return branch.inline(context, [inputs[position] for position in captured], self.nodes[i])

    def inline(self, context: Context, inputs: Sequence[Value | None], around: NodePlan) -> Sequence[Value]:
        """Lower all nodes of this body as a part of ``around``, a node of the enclosing planner; returns the body's
        outputs. Raises `NeedsHost` if the plan would have to be cut inside."""
        values: dict[int, Value] = {}
        for number, value in zip(self.input_ids, inputs, strict=True):
            assert value is not None, "captures are present"
            values[number] = value
        begin, outer, stages, context.stages = len(context.calls), context.node, context.stages, {}
        try:
            for i in range(len(self.nodes)):
                if i not in self.folded and i not in self._unread:
                    values.update(self._results(context, i, values))
        except (NeedsData, NeedsHost):
            del context.calls[begin:]
            raise NeedsHost from None
        finally:
            context.stages, context.node = stages, outer
        for call in in_order(context.calls[begin:]):
            call.label = _Within(call.label or self.nodes[call.node], around)
            call.node = outer
        results = [values.get(number) or self.constant(number) for number in self.output_ids]
        return [value for value in results if value is not None]

    def child(self, i: int, graph: int) -> tuple[Planner, tuple[int, ...]]:
        """The planner of body ``graph`` of node ``i``, and the positions, among the node's inputs, of the captured
        values that follow the body's own inputs. Captured constants are constants of the body instead."""
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

    def with_states(self, states: Sequence[tuple[int, int]]) -> Planner:
        """A planner of the same model whose plans may append to states in place (see `appended`). ``states``: input and
        output of each, by id. The two share constants."""
        twin = copy.copy(self)
        twin._states = tuple(states)
        return twin

    @property
    def packed(self) -> Packed:
        """The packed constants of this planner and of the planners of all bodies."""
        return self._packed

    def stored_constants(self) -> Mapping[int, Value]:
        """By value id: folded values, except those that `_fold` dropped, and constants that were read so far."""
        return self._constants

    def descendants(self) -> Iterator[tuple[tuple[tuple[int, int], ...], Planner]]:
        """This planner and the planners of bodies that were planned. Each comes with its path: (node, graph) for every
        level."""
        yield (), self
        with self._children_lock:
            children = list(self._children.items())
        for step, (child, _) in children:
            for way, planner in child.descendants():
                yield (step, *way), planner

    def first(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[np.dtype[Any]],
        symbolic: Sequence[Sequence[bool]] | None = None,
        waited: Mapping[int, NDArray[Any]] | None = None,
    ) -> Segment:
        """The first segment for inputs of these shapes and dtypes. ``symbolic``: per input, the axes whose sizes become
        symbols, so that the segment also holds for other sizes. ``waited``: see `following`."""
        types = {value: (dtype, shape) for value, shape, dtype in zip(self.input_ids, shapes, dtypes, strict=True)}
        axes = None if symbolic is None else dict(zip(self.input_ids, symbolic, strict=True))
        return self._planned(0, types, {}, axes, waited)

    def following(
        self, segment: Segment, arrays: Mapping[int, NDArray[Any]], waited: Mapping[int, NDArray[Any]], symbolic: bool
    ) -> Segment:
        """The segment after ``segment``. ``arrays``: the values that ``segment`` hands on; only their dtypes and shapes
        are read. ``waited``: the data of ``segment.needs``. The plan keeps these arrays, so they must not be written
        later. ``symbolic``: whether the segment should also hold for other data, and for the other sizes that
        ``segment`` may hand on."""
        types = {value: type_of(array) for value, array in arrays.items()}
        known = {value: segment.known[value] for value in arrays if value in segment.known}
        if not symbolic:
            return self._planned(segment.next_node, types, {**known, **waited}, None)
        none = (False,) * _MAX_RANK
        axes = {value: segment.open_axes.get(value, none)[: len(shape)] for value, (_, shape) in types.items()}
        return self._planned(segment.next_node, types, known, axes, waited)

    def _planned(
        self,
        start: int,
        types: Mapping[int, tuple[np.dtype[Any], tuple[int, ...]]],
        known: Mapping[int, NDArray[Any]],
        axes: Mapping[int, Sequence[bool]] | None,
        waited: Mapping[int, NDArray[Any]] | None = None,
    ) -> Segment:
        """The segment that begins at place ``start`` of the order. ``types``, ``known``: types and data of its inputs.
        ``axes``: for each value, the axes whose sizes become symbols; None plans for these sizes only. ``waited``: data
        whose elements become symbols."""

        def incoming(data: Mapping[int, NDArray[Any]]) -> dict[int, Value]:
            return {value: Value(dtype, shape, data.get(value)) for value, (dtype, shape) in types.items()}

        if axes is not None:
            tracing, values = Tracing(self._packed), incoming(known)
            for number, value in values.items():
                if value.data is None and not is_opaque(value):
                    tracing.add_input(value, axes[number], (waited or {}).get(number))
            try:
                return self._segment(start, values, tracing)
            except MemoryError:
                raise
            except Exception as error:  # what cannot be planned for symbols is planned for these sizes
                self.unfit.append(f"{type(error).__name__}: {error}")
                self.num_unfit += 1
        context = Context(self._packed, self._has_fixed_sizes and start == 0)
        return self._segment(start, incoming({**known, **(waited or {})}), context)

    def _segment(self, start: int, incoming: dict[int, Value], context: Context) -> Segment:
        values: dict[int, Value] = dict(incoming)
        for number, value in incoming.items():
            if value.data is None and not is_opaque(value):
                if value.rank > MAX_DIMS:
                    name = self.model.value_name(number)
                    raise InferenceError(f"{name!r} has {value.rank} dimensions; CPU supports at most {MAX_DIMS}")
                value.storage = context.new_storage()
        staged = [
            number for number in sorted(values) if number >= self.model.num_values
        ]  # all belong to the first node
        if staged:
            context.stages[self._order[start]] = [values.pop(number) for number in staged]
        needs: tuple[int, ...] = ()
        stop, host = len(self.nodes), -1
        for place in range(start, len(self.nodes)):
            i = self._order[place]
            if i in self.folded or i in self._unread:
                continue
            plan = self.nodes[i]
            num_calls = len(context.calls)
            try:
                values.update(self._results(context, i, values))
            except NeedsHost:
                del context.calls[num_calls:]
                stop, host = place + 1, i
                break
            except NeedsData as need:
                stage = context.stages.get(i, [])
                if any(value is need.value for value in stage):
                    # Staged values get ids after the model's and are handed on to the node's next lowering. Ids
                    # differ between nodes, because the staged values of an earlier node may still be outputs.
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
                stop = place
                break
        return self._finish(context, values, incoming, needs, stop, host)

    def _results(self, context: Context, i: int, values: Mapping[int, Value]) -> dict[int, Value]:
        """Lower one node; returns its outputs by value id."""
        plan = self.nodes[i]
        if i in self._convolutions.passing:
            return {plan.outputs[0]: values[self._convolutions.passing[i]]}
        inputs = [(values.get(value) or self.constant(value)) if value >= 0 else None for value in plan.inputs]
        if i in self._convolutions.operands:
            inputs[1:] = self._convolutions.operands[i]
        results = self._lower(context, i, inputs)
        return {number: result for number, result in zip(plan.outputs, results, strict=False) if number >= 0}

    def _finish(
        self,
        context: Context,
        values: dict[int, Value],
        incoming: dict[int, Value],
        needs: tuple[int, ...],
        stop: int,
        host: int,
    ) -> Segment:
        """Choose the values that the segment returns, fuse its calls, and assemble its program.

        ``stop``: where the next segment begins in the order. ``host``: the node that runs after this segment, or -1."""
        read_later = {value for i in self._order[stop:] for value in self.nodes[i].inputs} | set(self.output_ids)
        read_later.discard(-1)  # an absent input is not the absent output of another node
        host_inputs = set(self.nodes[host].inputs) if host >= 0 else set()
        host_outputs = tuple(v for v in self.nodes[host].outputs if v in read_later) if host >= 0 else ()
        if stop == len(self.nodes):
            returned = [v for v in dict.fromkeys(self.output_ids) if v not in host_outputs]
            returned += [v for v in values if v in host_inputs and v not in returned]
            handed_on: list[int] = []
        else:
            handed_on = [value for value in values if value in read_later or value >= self.model.num_values]
            returned = handed_on + [v for v in values if v in host_inputs and v not in read_later]
            handed_on += host_outputs
        # Late values stay readable: otherwise two segments could wait for each other's values forever.
        late = (n for n in handed_on if n in values and (of := values[n].late) is not None and is_readable(of.seen))
        needs = tuple(dict.fromkeys((*needs, *late)))
        known, outputs, aliases = {}, [], dict[int, tuple[int, Any]]()
        copies: dict[int, Value] = {}  # of late values, which the caller gets
        output_of_storage: dict[int, int] = {}
        read = {number: value for number, value in incoming.items() if value.data is None and not is_opaque(value)}
        input_of_storage = {value.storage: number for number, value in read.items()}
        for number in returned:
            value = values.get(number) or self.constant(number)
            assert value is not None, "checked when the model was read"
            if is_opaque(value):
                continue  # the runner has it
            if value.late is not None and value.storage not in input_of_storage:
                if value.storage not in copies:
                    copy = Value(value.dtype, value.shape, storage=context.new_storage())
                    context.calls.append(Call("identity", (value,), (copy,), (), (), context.node))
                    copies[value.storage] = copy
                value = values[number] = Value(value.dtype, value.shape, storage=copies[value.storage].storage)
            if value.data is not None:
                known[number] = _read_only(value.data)
            elif value.storage in input_of_storage:
                aliases[number] = (input_of_storage[value.storage], value.shape)
            elif value.storage in output_of_storage:
                aliases[number] = (output_of_storage[value.storage], value.shape)
            else:
                output_of_storage[value.storage] = number
                outputs.append(number)
        inputs = list(read)
        calls: Sequence[Call] = context.calls
        parts: Parts = {}
        if self._transform:
            taken = output_of_storage.keys() | input_of_storage.keys()
            calls, parts = _transformed(context, calls, output_of_storage.keys(), taken)
        appended: dict[int, Appended] = {}
        is_whole = stop == len(self.nodes) and host < 0 and tuple(inputs) == self.input_ids
        if is_whole:
            sources = {source for source, _ in aliases.values()}
            for past, present in self._states:
                if past in read and present in outputs and not sources & {past, present}:
                    changed = append_in_place(calls, read[past], values[present])
                    if changed is not None:
                        calls, appended[present] = changed
        for number, entry in appended.items():
            values[number] = entry.room
        program, node_of, tensor_of = assemble(
            calls,
            parts,
            [incoming[n] for n in inputs],
            [values[n] for n in outputs],
            [values[n] for n in aliases],
            self.nodes,
            self._packed,
            context if isinstance(context, Tracing) else None,
        )
        for number, (source, _) in aliases.items():
            value = values[number]
            if any(map(is_symbolic, value.shape)):
                aliases[number] = (source, tensor_of[id(value)])
        open_axes = {number: tuple(map(is_symbolic, values[number].shape)) for number in handed_on if number in values}
        for number in host_outputs:
            open_axes[number] = (True,) * _MAX_RANK
        return Segment(
            program,
            tuple(inputs),
            tuple(outputs),
            known,
            aliases,
            needs,
            node_of,
            -1 if stop == len(self.nodes) else stop,
            tuple(handed_on),
            host,
            host_outputs,
            open_axes,
            tuple(
                Append(
                    inputs.index(past),
                    outputs.index(present),
                    appended[present].axis,
                    tensor_of[id(appended[present].new)],
                )
                for past, present in self._states
                if present in appended
            ),
            is_whole=is_whole,
        )


def _transformed(
    context: Context, calls: Sequence[Call], kept: Set[int], taken: Set[int]
) -> tuple[list[Call], dict[int, tuple[int, int]]]:
    """The calls after fusion and `join`, and the parts. Those of each branch are transformed apart from all others."""
    changed, parts = join(fuse(context, calls, kept), taken, context.new_storage)
    for call in changed:
        outside = {value.storage for value in (*call.inputs, *call.outputs) if value is not None}
        for branch in call.branches:
            branch[:], within = _transformed(context, branch, outside, outside)
            parts.update(within)
    return changed, parts


def _has_fixed_sizes(port: Port) -> bool:
    """Whether every size of an input is known. Sizes that the model does not state are inferred: a subgraph's are
    stated once it is exported, and it then has to give the same bits."""
    return port.shape is not None and all(isinstance(size, int) for size in port.shape)


def _num_bytes(value: Value | None) -> int:
    """The bytes of a known value; 0 if there is none."""
    return 0 if value is None or value.data is None else value.data.nbytes


def _read_only(data: NDArray[Any]) -> NDArray[Any]:
    """A read-only view of ``data``: callers get it, and later runs of the plan read it again."""
    if data.flags.writeable:
        data = data.view()
        data.flags.writeable = False
    return data


class _Within:
    """The label, in errors, of a call of an inlined body."""

    def __init__(self, inner: object, around: NodePlan) -> None:
        self._inner = inner
        self._around = around

    def __str__(self) -> str:
        return f"{self._inner}, in {self._around}"
