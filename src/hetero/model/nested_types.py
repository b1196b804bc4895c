"""Types of the results of If, Loop and Scan that onnx's inference leaves open.

onnx does not follow the shape of a value that a Loop carries, because an iteration may change it. Here, it follows by
induction: a type that the initial value has, and that the body keeps, is the type after any number of iterations. If
the body does not keep it, the parts that differ become unknown, until the rest stays.

If the condition of an If follows from known sizes, as in an exported `torch.squeeze`, its results have the types of the
branch that it takes; otherwise, what both branches have in common.

Each nested graph is inferred as a model of its own, so hetero's additions to onnx's inference apply in it too. Shapes
that the bodies of Loop and Scan state are not used: exporters write those of the first iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import raise_out_of_memory
from .computed_shapes import MOST_ELEMENTS, known_conditions
from .function_library import graphs_of
from .isolation import InferenceFailed
from .rows import Rows
from .types import ValueType, onnx_dtype_of
from .views import NodeView
from .wire import encode_tensor_type
from .write import header_of, with_graph

if TYPE_CHECKING:
    import onnx

__all__ = ["NestedTypes"]

_OPERATORS = ("If", "Loop", "Scan")
_ROUNDS = 8  # inferences of a body at most; each takes 1 ms, or 30 ms in a child process
_ROUNDS_BY_SIZE = 4  # after these, a value whose shape still changes gets an unknown rank
_FIRST_SCAN_WITHOUT_BATCHES = 9
_TENSOR_KINDS = ("tensor_type", "sparse_tensor_type")
_HOLDERS = ("sequence_type", "optional_type")

_UNKNOWN = ValueType(None, None)
_NUMBER, _FLAG = ValueType(np.dtype(np.int64), None), ValueType(np.dtype(np.bool_), None)

_Types = Sequence[ValueType]


class _Unknown(Exception):
    """The types cannot be found."""


class NestedTypes:
    """Finds the results of one file's If, Loop and Scan. ``infer``: returns a function from the name of a value to its
    type for an encoded model, or None if inference fails. Without such nodes, does nothing and does not import onnx."""

    def __init__(self, rows: Rows, infer: Callable[[bytes], Callable[[str], ValueType] | None]) -> None:
        self._rows = rows
        self._infer = infer
        file = rows.file
        numbers = [
            number
            for number, (domain, name) in enumerate(zip(file.op_domains, file.op_names, strict=True))
            if domain in ("", "ai.onnx") and name in _OPERATORS and (domain, name) not in file.functions
        ]
        self._nodes: list[int] = np.flatnonzero(np.isin(file.node_op, numbers)).tolist() if numbers else []
        ops = self._rows.file.op_names
        self._ifs = [node for node in self._nodes if ops[file.node_op[node]] == "If"]
        # Node -> the types of what it read when it was last inferred, and the condition of an If.
        self._read: dict[int, tuple[list[ValueType], bool | None]] = {}

    def find(self, type_of: Callable[[int], ValueType], is_tensor: Callable[[int], bool]) -> dict[int, ValueType]:
        """Value -> type, for results of nodes that have a result of unknown rank or size. Skips a node if nothing more
        is known about its inputs than in the last call.

        ``type_of`` returns the type of a value as far as it is known. ``is_tensor``: False for values known to be of
        another kind."""
        if not self._nodes:
            return {}
        symbols = _symbols(type_of(value) for value in self._rows.input_ids)
        conditions = known_conditions(self._rows, type_of, self._ifs)
        found: dict[int, ValueType] = {}
        for node in self._nodes:
            outputs = self._rows.node_outputs[node].tolist()
            made = (type_of(value) for value in outputs if value >= 0 and is_tensor(value))
            if node not in self._read and all(_has_dims(known, symbols) for known in made):
                continue
            values = (*self._rows.node_inputs[node].tolist(), *self._rows.node_captures[node].tolist())
            read = [
                _with_symbols(found.get(value) or type_of(value), symbols) if value >= 0 else _UNKNOWN
                for value in values
            ]
            condition = conditions.get(node)
            if self._read.get(node) == (read, condition):
                continue
            self._read[node] = read, condition
            results = self._types_of(partial(self._results, condition), node, read)
            symbols_read = _symbols(read)
            found |= {
                value: _with_symbols(result, symbols_read)
                for value, result in zip(outputs, results, strict=False)
                if value >= 0 and result.dtype is not None
            }
        return found

    def body_inputs(self, node: int, type_of: Callable[[int], ValueType]) -> _Types:
        """The types of the inputs of the body of a Loop or Scan in any iteration, without symbols. Empty if they are
        unknown."""
        inputs, captures = self._rows.node_inputs[node].tolist(), self._rows.node_captures[node].tolist()
        read = [type_of(value) if value >= 0 else _UNKNOWN for value in (*inputs, *captures)]
        known = self._types_of(lambda view, read: self._iterated(view, read)[0], node, read)
        return [_with_symbols(kind, set()) for kind in known]

    def _types_of(self, infer: Callable[[NodeView, _Types], _Types], node: int, read: _Types) -> _Types:
        """What ``infer`` returns; nothing for malformed nodes, which their device reports."""
        try:
            return infer(NodeView(self._rows, node), read)
        except InferenceFailed:
            raise
        except Exception as error:
            raise_out_of_memory(error)
            return []

    def _results(self, condition: bool | None, view: NodeView, read: _Types) -> _Types:
        if view.op_type == "If":
            captured = dict(zip(view.captures, read[len(view.inputs) :], strict=True))
            names = (
                ("then_branch", "else_branch") if condition is None else (f"{'then' if condition else 'else'}_branch",)
            )
            branches = (
                _Graph(self._rows, view.attributes[name], captured, self._infer, keeps_shapes=True) for name in names
            )
            found = [branch.results([]) for branch in branches]
            return list(map(_joined, found[0], found[-1]))
        inputs, results = self._iterated(view, read)
        if view.op_type == "Scan":
            return _scan_results(view, read, results)
        values = self._rows.node_inputs[view.index].tolist()
        runs = self._is_positive(values[:1]) and self._is_positive(values[1:2])
        carried = len(inputs) - 1  # with the condition
        return [*results[1:carried], *(_stacked(result, 0, None, runs) for result in results[carried:])]

    def _iterated(self, view: NodeView, read: _Types) -> tuple[_Types, _Types]:
        """The types of the inputs and outputs of a body in any iteration. Carried values are the first outputs, after
        the condition of a Loop, and have the types that they have in any number of iterations, from none."""
        count = len(view.inputs)
        given, captured = read[:count], dict(zip(view.captures, read[count:], strict=True))
        body = _Graph(self._rows, view.attributes["body"], captured, self._infer, keeps_shapes=False)
        if view.op_type == "Loop":
            return _stable(body, [_NUMBER, _FLAG], given[2:], [], first=1)
        if view.op_type != "Scan" or view.opset < _FIRST_SCAN_WITHOUT_BATCHES:
            raise _Unknown
        states, scanned, axes = _scan_inputs(view, given)
        slices = [_without_axis(known, axis) for known, axis in zip(scanned, axes, strict=True)]
        return _stable(body, [], states, slices, first=0)

    def _is_positive(self, values: Sequence[int]) -> bool:
        """Whether an optional input is absent, or a constant that is a positive number or true."""
        for value in values:
            if value >= 0:
                number = int(self._rows.file.value_constant[value])
                if number < 0:
                    return False
                elements = self._rows.constants.array(number)
                return elements.size == 1 and bool(elements.reshape(-1)[0] > 0)
        return True


class _Graph:
    """A nested graph. ``captured``: the types of the outer values that it reads. ``keeps_shapes``: whether to use the
    sizes that it states; its symbols are not used, since they may be others than those outside."""

    def __init__(
        self,
        rows: Rows,
        graph: onnx.GraphProto,
        captured: Mapping[str, ValueType],
        infer: Callable[[bytes], Callable[[str], ValueType] | None],
        *,
        keeps_shapes: bool,
    ) -> None:
        import onnx

        self._infer = infer
        self._graph = onnx.GraphProto()
        self._graph.CopyFrom(graph)
        self._header = header_of(rows)
        _clear_shapes(self._graph, keeps_shapes)
        self._outputs = [info.name for info in graph.output]
        stated = {info.name: info for info in self._graph.output}
        del self._graph.output[:]
        self._graph.output.extend(stated.values())  # each once
        self.num_inputs = len(graph.input)
        for name, known in captured.items():
            data = _small_constant(rows, name)
            if data is None:
                _state(self._graph.input.add(name=name), known)
            else:
                self._graph.initializer.append(onnx.numpy_helper.from_array(data, name))

    def results(self, inputs: _Types) -> list[ValueType]:
        """The types of its outputs. Raises `_Unknown`."""
        if len(inputs) != self.num_inputs:
            raise _Unknown
        for info, known in zip(self._graph.input, inputs, strict=False):
            _state(info, known)
        type_of = self._infer(b"".join(with_graph(self._header, [self._graph.SerializeToString()])))
        if type_of is None:
            raise _Unknown
        return [type_of(name) for name in self._outputs]


def _stable(
    body: _Graph, before: _Types, carried: _Types, after: _Types, *, first: int
) -> tuple[list[ValueType], list[ValueType]]:
    """The types of a body's inputs and outputs; the values that it carries, which are the outputs from ``first`` on,
    have the types that they have in any number of iterations, from none. ``carried``: their types before the first
    iteration. ``before`` and ``after``: the types of the other inputs. Raises `_Unknown`."""
    state, last = list(carried), first + len(carried)
    for number in range(_ROUNDS):
        inputs = [*before, *state, *after]
        results = body.results(inputs)
        if len(results) < last:
            raise _Unknown
        following = list(map(_joined, state, results[first:last]))
        if following == state:
            return inputs, [*results[:first], *state, *results[last:]]
        if number >= _ROUNDS_BY_SIZE:
            following = [
                new if new == old else ValueType(new.dtype, None) for old, new in zip(state, following, strict=True)
            ]
        state = following
    raise _Unknown


def _scan_inputs(view: NodeView, given: _Types) -> tuple[_Types, _Types, list[int]]:
    """The types of the states and of the scanned values of a Scan, and the axis of each scanned value."""
    count = int(view.attributes["num_scan_inputs"])
    first = len(given) - count
    return given[:first], given[first:], view.attributes.get("scan_input_axes") or [0] * count


def _scan_results(view: NodeView, given: _Types, results: _Types) -> list[ValueType]:
    """The types of the outputs of a Scan. ``results``: of its body."""
    states, scanned, axes = _scan_inputs(view, given[: len(view.inputs)])
    stacked = results[len(states) :]
    lengths = [known.shape[axis] for known, axis in zip(scanned, axes, strict=True) if known.shape is not None]
    length = next((size for size in lengths if isinstance(size, int)), None)
    out_axes = view.attributes.get("scan_output_axes") or [0] * len(stacked)
    return [
        *results[: len(states)],
        *(_stacked(known, axis, length, bool(length)) for known, axis in zip(stacked, out_axes, strict=True)),
    ]


def _stacked(known: ValueType, axis: int, length: int | None, runs: bool) -> ValueType:
    """The type of a value of each iteration, stacked. ``runs``: whether there is an iteration; without one, runtimes
    return other ranks."""
    if known.shape is None or not runs:
        return ValueType(known.dtype, None)
    rank = len(known.shape) + 1
    if not -rank <= axis < rank:
        raise _Unknown
    at = axis % rank
    return ValueType(known.dtype, (*known.shape[:at], length, *known.shape[at:]))


def _without_axis(known: ValueType, axis: int) -> ValueType:
    if known.shape is None:
        return known
    if not -len(known.shape) <= axis < len(known.shape):
        raise _Unknown
    at = axis % len(known.shape)
    return ValueType(known.dtype, known.shape[:at] + known.shape[at + 1 :])


def _joined(one: ValueType, other: ValueType) -> ValueType:
    """What holds for both."""
    if one.dtype is None or other.dtype is None or one.dtype != other.dtype:
        return ValueType(one.dtype, None) if other.dtype is None else _UNKNOWN
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return ValueType(one.dtype, None)
    same = zip(one.shape, other.shape, strict=True)
    return ValueType(one.dtype, tuple(old if old == new else None for old, new in same))


def _symbols(kinds: Iterable[ValueType]) -> set[str]:
    return {dim for kind in kinds for dim in kind.shape or () if isinstance(dim, str)}


def _has_dims(known: ValueType, symbols: set[str]) -> bool:
    """Whether each dimension is a size or one of these symbols."""
    return known.shape is not None and all(isinstance(dim, int) or dim in symbols for dim in known.shape)


def _with_symbols(known: ValueType, symbols: set[str]) -> ValueType:
    """The type without other symbols, which inference may give to other sizes in each graph."""
    if known.shape is None:
        return known
    return ValueType(known.dtype, tuple(dim if isinstance(dim, int) or dim in symbols else None for dim in known.shape))


def _small_constant(rows: Rows, name: str) -> NDArray[Any] | None:
    """A constant of the outer graph whose elements shapes may follow from; None for other values."""
    number = int(rows.file.value_constant[rows.file.index.value_id(name)])
    if number < 0 or math.prod(rows.constants.dims(number)) > MOST_ELEMENTS:
        return None
    dtype = rows.constants.dtype(number)
    return rows.constants.array(number) if dtype is not None and dtype.kind in "biuf" else None


def _state(info: onnx.ValueInfoProto, known: ValueType) -> None:
    """State a type; if it is unknown, only the element type that the graph states."""
    if known.dtype is not None:
        info.type.Clear()
        info.type.MergeFromString(encode_tensor_type(onnx_dtype_of(known.dtype), known.shape))
    elif info.type.HasField("tensor_type"):
        info.type.tensor_type.ClearField("shape")


def _clear_shapes(graph: onnx.GraphProto, keeps_sizes: bool) -> None:
    """Remove the shapes, or with ``keeps_sizes`` the symbols, that a graph and those nested in it state."""
    graphs = [graph]
    for each in graphs:  # grows
        for info in (*each.input, *each.output, *each.value_info):
            kind = info.type
            while (name := kind.WhichOneof("value")) in _HOLDERS:
                kind = getattr(kind, name).elem_type
            if name not in _TENSOR_KINDS:
                continue
            tensor = getattr(kind, name)
            if not keeps_sizes:
                tensor.ClearField("shape")
            for dim in tensor.shape.dim if tensor.HasField("shape") else ():
                dim.ClearField("dim_param")
        for node in each.node:
            graphs += graphs_of(node)
