"""Nodes that run in Python: operators on strings, sequences, optionals and maps, and random numbers.

Kernels know numbers only. A hosted node (`registry.hosted`) is a function of arrays, lists, dictionaries and None. In
general, it runs between two segments of a plan, like control flow. Most models have such nodes only at their ends:
encoders of strings first, labels and maps last. `Ends` takes these out of the plans, so that the numbers between them
stay one program: nodes that read only inputs and constants run before it, nodes whose results no kernel reads run after
it. Selections and casts of numbers that only hosted nodes read (`FEEDING`) count as hosted too. So does an Identity of
a hosted node's result that no kernel reads: a plan for it alone would take longer than some models.

Labels that are strings are places in a table within plans (`Operator.labels`), and become strings where they leave it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..._hosted import EndNodes, matching
from ...model.constant_nodes import may_fold
from ...plugin.profile import ProfileRow
from ...plugin.request import RepeatingRunner, owned
from .registry import BY_COLUMN, FEEDING, NodePlan
from .runner import CpuRunner, hosted_error, prepared

if TYPE_CHECKING:
    from ...model.model import Model
    from .planner import Planner

__all__ = ["Ends", "HostedRunner"]


@dataclasses.dataclass(frozen=True, slots=True)
class Ends:
    """The hosted nodes at the ends of a model, by index and in order. ``inputs``, ``outputs``: those of the plans
    between them, as value ids. ``feeding``: nodes with a kernel among the first, as hosted nodes."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    feeding: Mapping[int, NodePlan]

    @classmethod
    def of(cls, model: Model, nodes: Sequence[NodePlan]) -> Ends | None:
        """None if no node is hosted, or has strings as labels."""
        if all(plan.operator.host is None and not _has_labels(plan) for plan in nodes):
            return None
        is_constant = model.is_constant
        ready = {int(value) for value in model.input_ids}
        feeding = _feeding(model, nodes)
        first = []
        for i, plan in enumerate(nodes):
            is_hosted = plan.operator.host is not None or i in feeding
            if is_hosted and all(v < 0 or v in ready or is_constant[v] for v in plan.inputs):
                first.append(i)
                ready.update(v for v in plan.outputs if v >= 0)
        early = set(first)
        read_by_kernels: set[int] = set()
        last = []
        for i in range(len(nodes) - 1, -1, -1):
            plan = nodes[i]
            if i in early:
                continue
            if plan.operator.host is not None and not read_by_kernels.intersection(plan.outputs):
                last.append(i)
            else:
                read_by_kernels.update(v for v in plan.inputs if v >= 0)
        last.reverse()
        outside = early.union(last)
        made = {v for i, plan in enumerate(nodes) if i not in outside for v in plan.outputs if v >= 0}
        needed = dict.fromkeys(int(v) for v in model.output_ids)
        needed.update((v, None) for i in last for v in nodes[i].inputs)
        inputs = tuple(sorted(v for v in read_by_kernels if v in ready))
        feeding = {i: plan for i, plan in feeding.items() if i in early}
        return cls(tuple(first), tuple(last), inputs, tuple(v for v in needed if v in made), feeding)

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.first + self.last

    @property
    def parts(self) -> dict[str, Any]:
        """The parameters of the `Planner` of the plans."""
        return {"input_ids": self.inputs, "output_ids": self.outputs, "elsewhere": self.nodes}


def _feeding(model: Model, nodes: Sequence[NodePlan]) -> dict[int, NodePlan]:
    """The nodes with a kernel that count as hosted: those with a form in `FEEDING` whose results only hosted or such
    nodes read, in that form, and each Identity of a result of a hosted node whose result no kernel reads."""
    outputs = {int(value) for value in model.output_ids}
    hosted = {value for plan in nodes if plan.operator.host is not None for value in plan.outputs}
    read_by_kernels: set[int] = set()
    made = {}
    for i in range(len(nodes) - 1, -1, -1):
        plan = nodes[i]
        if plan.operator.host is not None:
            continue
        host = FEEDING.get(plan.node.op_type)
        run = None
        if not plan.operator.custom and not read_by_kernels.intersection(plan.outputs):
            if plan.node.op_type == "Identity" and plan.inputs[0] in hosted:
                run = _same
            elif host is not None and not outputs.intersection(plan.outputs):
                run = host(plan.node)
        if run is None:
            read_by_kernels.update(plan.inputs)
        else:
            made[i] = _as_hosted(model, plan, run)
    return made


def _same(x: Any) -> Sequence[Any]:
    return [x]


def _as_hosted(model: Model, plan: NodePlan, run: Callable[..., Sequence[Any]]) -> NodePlan:
    operator = dataclasses.replace(plan.operator, host=lambda node: run)
    node = dataclasses.replace(plan.node, prepared=run)
    return NodePlan(model, plan.index, operator, node, plan.inputs, plan.outputs)


def _has_labels(plan: NodePlan) -> bool:
    return plan.operator.labels is not None and plan.operator.labels(plan.node.attributes) is not None


class HostedRunner(RepeatingRunner):
    """Runs the nodes of `Ends` around the plans of a model. Within a run, values are numbered: first the inputs, then
    constants and the results of the nodes and plans."""

    def __init__(self, core: CpuRunner, planner: Planner, ends: Ends, timed: bool) -> None:
        self.cancellation = core.cancellation
        self._core = core
        self._ends = ends
        self._nodes = [ends.feeding.get(i, plan) for i, plan in enumerate(planner.nodes)]
        model = planner.model
        numbers: dict[int, int] = {}
        same = {} if timed else self._copies()

        def number(value: int) -> int:
            return numbers.setdefault(same.get(value, value), len(numbers))

        inputs = [number(int(value)) for value in model.input_ids]
        self._steps = [
            (
                i,
                tuple(map(number, self._nodes[i].inputs)),
                tuple(v if v < 0 else number(v) for v in self._nodes[i].outputs),
            )
            for i in ends.nodes
            if not same.keys() & self._nodes[i].outputs
        ]
        self._to_core = tuple(map(number, ends.inputs))
        self._from_core = tuple((number(v), planner.labels.get(v)) for v in ends.outputs)
        self._outputs = tuple(number(int(value)) for value in model.output_ids)
        maps = {
            v for i in ends.last if self._nodes[i].node.op_type == "ai.onnx.ml::ZipMap" for v in self._nodes[i].outputs
        }
        new = maps.union(ends.outputs)  # each run makes new arrays and maps for these
        self._checked = [at for at, value in enumerate(map(int, model.output_ids)) if same.get(value, value) not in new]
        self._all_new = not self._checked and len(set(self._outputs)) == len(self._outputs)
        self._rest: list[Any] = [
            model.constant(value) if value >= 0 and model.is_constant[value] else None for value in numbers
        ][len(inputs) :]
        self._model = model
        self._constant = set() if timed else self._constant_nodes()
        self._end_nodes: EndNodes | None = None  # made in the first run, like `Node.prepared`
        self._run_core_again = core.run_again
        self._timed = timed
        self._times: dict[int, tuple[int, int]] = {}
        self._types: list[tuple[Any, Any]] = []  # of the inputs of the last run
        self._shapes: list[Any] = []  # of the results of hosted nodes in the last run, which `check_outputs` has seen
        self._repeats = not timed and (bool(ends.first) or sorted(self._to_core) == [*range(len(inputs))])

    def _copies(self) -> dict[int, int]:
        """The results of Identity: value -> the value that it is."""
        same: dict[int, int] = {}
        for i in self._ends.nodes:
            plan = self._nodes[i]
            if plan.node.op_type == "Identity" and plan.operator.custom is None and plan.outputs[0] >= 0:
                same[plan.outputs[0]] = same.get(plan.inputs[0], plan.inputs[0])
        return same

    def _constant_nodes(self) -> set[int]:
        """The nodes that have the same results in each run."""
        model = self._model
        found: set[int] = set()
        made: set[int] = set()
        for i in self._ends.first:
            plan = self._nodes[i]
            is_constant = all(v < 0 or model.is_constant[v] or v in made for v in plan.inputs)
            if is_constant and plan.operator.custom is None and may_fold(model, plan.node.op_type):
                found.add(i)
                made.update(plan.outputs)
        return found

    def share_scratch(self, other: HostedRunner) -> None:
        """See `hetero.plugin.request.ScratchRunner`."""
        self._core.share_scratch(other._core)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if self._ends.first and self._repeats:
            self._types = [_type_of(value) for value in inputs]
        self._times.clear()
        outputs = self._run(inputs, self._core.run)
        assert outputs is not None
        self._core.host_times.update(self._times)
        self._shapes = self._shapes_of(outputs)
        return outputs

    def _shapes_of(self, outputs: list[Any]) -> list[Any]:
        return [getattr(outputs[at], "shape", None) for at in self._checked]

    def run_again(self, inputs: Sequence[Any]) -> list[Any] | None:
        """See `hetero.plugin.request.RepeatingRunner`."""
        if not self._repeats:
            return None
        if self._ends.first:
            arrays = matching(inputs, self._types)
            if arrays is None:
                return None
            inputs = arrays
        outputs = self._run(inputs, self._run_core_again)
        if outputs is None:
            if self._ends.first:  # the sizes in the plans depend on data: otherwise, nodes would often run twice
                self._repeats = False
            return None
        if self._checked and self._shapes_of(outputs) != self._shapes:  # strings; their declared sizes are checked
            self._repeats = False
            return None
        return outputs if self._all_new else owned(outputs, inputs)

    def _run(
        self, inputs: Sequence[Any], plans: Callable[[Sequence[Any]], Sequence[NDArray[Any]] | None]
    ) -> list[Any] | None:
        """See `EndNodes.run`."""
        if self._end_nodes is None:
            first, last = self._prepared(self._ends.first), self._prepared(self._ends.last)
            first = self._folded(first, len(inputs))
            self._end_nodes = EndNodes(first, last, self._rest, self._to_core, self._from_core, self._outputs)
        return self._running(self._end_nodes, inputs, plans)

    def _folded(self, steps: tuple[Any, ...], num_inputs: int) -> tuple[Any, ...]:
        """The steps that each run needs. The results of the others become constants."""
        once = tuple(step for step in steps if step[0] in self._constant)
        if not once:
            return steps
        made = tuple(v for *_, made_by in once for v in made_by if v >= 0)
        nodes = EndNodes(once, (), self._rest, (), (), made)
        found = self._running(nodes, [None] * num_inputs, lambda _: [])
        assert found is not None
        folded = {-1}
        for v, result in zip(made, found, strict=True):
            if isinstance(result, np.ndarray):  # a caller may change lists and the arrays in them
                result.flags.writeable = False
                self._rest[v - num_inputs] = result
                folded.add(v)
        return tuple(step for step in steps if step not in once or not folded.issuperset(step[3]))

    def _running(
        self, nodes: EndNodes, inputs: Sequence[Any], plans: Callable[[Sequence[Any]], Sequence[NDArray[Any]] | None]
    ) -> list[Any] | None:
        """`EndNodes.run`, with errors that name the node that failed."""
        try:
            return nodes.run(inputs, plans, self.cancellation)
        except Exception as error:
            if nodes.running is None:
                raise
            failed = self._nodes[nodes.running]
            if isinstance(error, _SelectionFailed):
                failed, error = error.plan, error.error
            raise self._core.named(hosted_error(failed, error)) from error

    def _prepared(self, indices: Sequence[int]) -> tuple[Any, ...]:
        """The functions of these nodes, as `EndNodes` takes them."""
        steps = {i: (self._function(i), taken, made) for i, taken, made in self._steps if i in indices}
        if not self._timed:
            for selector, (reader, column) in self._columns(indices).items():
                function, taken, _ = steps.pop(selector)
                encoder = steps[reader]
                joined = _of_column(encoder[0], column, function, self._nodes[selector])
                steps[reader] = (joined, taken, encoder[2])
        return tuple((i, *step) for i, step in steps.items())

    def _columns(self, indices: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Nodes that select one column, whose number is a constant, and the only node that reads it, which encodes
        strings: selector -> (that node, column)."""
        readers: dict[int, list[int]] = {}
        for i in indices:
            for value in self._nodes[i].inputs:
                readers.setdefault(value, []).append(i)
        kept = {*self._ends.inputs, *map(int, self._model.output_ids)}
        kept.update(v for i in self._ends.nodes if i not in indices for v in self._nodes[i].inputs)
        found = {}
        for i in indices:
            plan = self._nodes[i]
            of = readers.get(plan.outputs[0], []) if plan.outputs else []
            if len(of) != 1 or plan.outputs[0] in kept or self._nodes[of[0]].operator.host not in BY_COLUMN:
                continue
            column = _selected_column(self._model, plan)
            if column is not None:
                found[i] = (of[0], column)
        return found

    def _function(self, i: int) -> Callable[..., Sequence[Any]]:
        function = prepared(self._nodes[i])
        if not self._timed:
            return function

        def timed(*operands: Any) -> Sequence[Any]:
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
            results = function(*operands)
            self._times[i] = (time.perf_counter_ns() - wall, time.thread_time_ns() - cpu)
            return results

        return timed

    def profile(self) -> Sequence[ProfileRow]:
        return self._core.profile()


class _SelectionFailed(Exception):
    """The node before an encoder failed: see `_of_column`."""

    def __init__(self, plan: NodePlan, error: Exception) -> None:
        super().__init__(plan, error)
        self.plan, self.error = plan, error


def _selected_column(model: Model, plan: NodePlan) -> int | None:
    """The column of a matrix that a node selects, if its number is a constant: then its result is a matrix too."""
    name = plan.node.op_type
    if name != "ai.onnx.ml::ArrayFeatureExtractor" and (name != "Gather" or plan.node.get("axis", 0) != 1):
        return None
    if len(plan.inputs) != 2 or plan.operator.custom is not None or not model.is_constant[plan.inputs[1]]:
        return None
    places = model.constant(plan.inputs[1])
    if places.size != 1 or (name == "Gather" and places.shape != (1,)):
        return None
    column = int(places.reshape(-1)[0])
    return column if column >= 0 else None


def _of_column(
    encode: Callable[..., Sequence[Any]], column: int, select: Callable[..., Sequence[Any]], selector: NodePlan
) -> Callable[..., Sequence[Any]]:
    """A function of the operands of ``select`` that returns what ``encode`` returns for its result. For a matrix of
    strings that has the column, it makes no array of the column."""

    def run(x: NDArray[Any], places: NDArray[Any]) -> Sequence[Any]:
        if x.dtype.hasobject:
            try:
                return encode(x, column)
            except IndexError:
                pass
        try:
            (selected,) = select(x, places)
        except Exception as error:
            raise _SelectionFailed(selector, error) from error
        return encode(selected)

    return run


def _type_of(value: Any) -> tuple[Any, Any]:
    """The types that `matching` compares; no value matches the type of a value that is not an array."""
    return (value.dtype, value.shape) if type(value) is np.ndarray else (None, None)
