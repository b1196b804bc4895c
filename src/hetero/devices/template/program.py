"""Programs: graphs of ONNX nodes with resolved implementations, which run node by node.

A program gives each value of its graph a slot, which initially contains its constant, and has one `Step` per node: a
callable, the slots that it reads and writes, and the slots that are dead afterwards. Nested graphs and function bodies
are separate programs. A nested graph lists the outer values that it reads (`Program.captures`); its node reads them as
additional inputs. Attributes that a function body takes from its caller are filled in at compile time, so a run looks
up nothing by name.

Compiling takes one pass over the nodes, and a run one pass over the steps. A program is immutable, so several threads
may run it at the same time. Before each step, also in nested programs, a run checks whether it was cancelled
(`stopping_by`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from ...errors import InferenceError, inference_error
from ...extension.custom_op import CustomOp
from ...extension.table import CustomOps
from ...model.external import ExternalFiles
from ...model.functions import fill_references
from ...model.nested import embed, external_attributes
from ...plugin.cancellation import Cancellation

__all__ = [
    "FunctionKey",
    "Library",
    "Program",
    "Refused",
    "Scope",
    "constant_node_value",
    "stopping_by",
    "with_str_objects",
]

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""


class Refused(Exception):
    """The reason why a node cannot run. ``key``: the node's key, set by its program."""

    def __init__(self, reason: str, key: str = "") -> None:
        super().__init__(reason)
        self.key = key

    @property
    def reason(self) -> str:
        """The reason, with the name of the inner node if the error is in a nested graph or function body."""
        return f"its inner node {self.key!r}: {self}" if self.key else str(self)


MAX_CALL_DEPTH = 48
"""The maximum depth of function calls, because each level is a Python call at run time."""

MAX_CALL_NODES = 1_000_000
"""The maximum number of nodes that a function call runs, nested calls included. 26 functions that each call the next
one twice would run 2**26 nodes."""


class _Running(threading.local):
    """The cancellation of this thread's run, shared by nested programs."""

    cancellation = Cancellation()


_running = _Running()


@contextlib.contextmanager
def stopping_by(cancellation: Cancellation) -> Iterator[None]:
    """Within the block, runs in this thread raise `Cancelled` after ``cancellation`` is requested."""
    before, _running.cancellation = _running.cancellation, cancellation
    try:
        yield
    finally:
        _running.cancellation = before


@dataclasses.dataclass(slots=True)
class Step:
    """One node of a program. ``reads``, ``writes`` and ``dead`` are slots; a write is -1 for an unnamed output."""

    key: str
    op_type: str
    call: Callable[..., Sequence[Any]]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    dead: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Scope:
    """The opsets and functions that the nodes of a graph can use."""

    opsets: Mapping[str, int]
    library: Library

    def version_of(self, domain: str) -> int | None:
        """The opset version of ``domain``. "" and "ai.onnx" are the same domain."""
        if domain in ("", "ai.onnx"):
            return self.opsets.get("", self.opsets.get("ai.onnx"))
        return self.opsets.get(domain)

    def graph_program(self, graph: onnx.GraphProto) -> Program:
        """The program of a nested graph."""
        constants = {tensor.name: self.library.tensor(tensor) for tensor in graph.initializer}
        for sparse in graph.sparse_initializer:
            constants[sparse.values.name] = dense(sparse, self.library.tensor)
        return Program(
            [(node_key(node), node) for node in graph.node],
            [value.name for value in graph.input],
            [value.name for value in graph.output],
            constants,
            self,
        )


class Library:
    """The functions of a model, compiled on first use, and its custom operators.

    ``implementation``: returns the callable of a node (see `resolve`) and the outer values that its nested graphs read.
    ``functions``: all functions of the model. ``external``: the model's external data, or None. ``custom_ops``: the
    user's operators; ``used``: those that the model uses.
    """

    def __init__(
        self,
        implementation: Callable[[onnx.NodeProto, Scope], tuple[Callable[..., Sequence[Any]], tuple[str, ...]]],
        functions: Iterable[onnx.FunctionProto] = (),
        external: ExternalFiles | None = None,
        custom_ops: CustomOps | None = None,
    ) -> None:
        self.custom_ops = CustomOps("TEMPLATE") if custom_ops is None else custom_ops
        self.used: dict[CustomOp, None] = {}
        self.implementation = implementation
        self.functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in functions}
        self.external = external
        self._programs: dict[tuple[FunctionKey, bytes], Program] = {}
        self._open: list[FunctionKey] = []
        self._num_nodes: dict[tuple[FunctionKey, bytes], int] = {}  # per program, including nested calls
        self._counts: list[int] = []  # the same for the functions being compiled
        self._lock = threading.RLock()

    def tensor(self, proto: onnx.TensorProto) -> np.ndarray:
        """A tensor of a nested graph, read from its external file if it has one."""
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            loaded = onnx.TensorProto()
            loaded.CopyFrom(proto)
            self._embed(loaded)
            proto = loaded
        array: np.ndarray = with_str_objects(onnx.numpy_helper.to_array(proto))
        return array

    def embedded(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """The node with the external data of its attributes: onnx would read them from the current folder."""
        if next(external_attributes(node), None) is None:
            return node
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for tensor in external_attributes(copy):
            self._embed(tensor)
        return copy

    def _embed(self, tensor: onnx.TensorProto) -> None:
        if self.external is None:
            raise Refused(f"tensor {tensor.name!r} has external data, but the model was not read from a file")
        try:
            embed(tensor, self.external)
        except ValueError as error:
            raise Refused(f"tensor {tensor.name!r}: {error}") from error

    def local_program(self, key: FunctionKey, node: onnx.NodeProto) -> Program:
        """The program of the model-local function ``key`` for the attributes of ``node``."""
        return self.function_program(key, self.functions[key], node)

    def function_program(self, key: FunctionKey, function: onnx.FunctionProto, node: onnx.NodeProto) -> Program:
        """The program of ``function`` with the attributes of the calling ``node``; cached per set of attributes."""
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes.update((attribute.name, attribute) for attribute in node.attribute)
        identity = b"".join(attributes[name].SerializeToString(deterministic=True) for name in sorted(attributes))
        with self._lock:
            if (key, identity) not in self._programs:
                self._counts.append(len(function.node))
                try:
                    self._programs[key, identity] = self._compile(key, function, attributes)
                finally:
                    self._num_nodes[key, identity] = self._counts.pop()
            if self._num_nodes[key, identity] > MAX_CALL_NODES:
                raise Refused(f"a call of function {key[0]}::{key[1]} runs more than {MAX_CALL_NODES:,} nodes")
            if self._counts:
                self._counts[-1] += self._num_nodes[key, identity]
            return self._programs[key, identity]

    def _compile(
        self, key: FunctionKey, function: onnx.FunctionProto, attributes: Mapping[str, onnx.AttributeProto]
    ) -> Program:
        if key in self._open:
            raise Refused(f"function {key[0]}::{key[1]} calls itself; ONNX functions may not recurse")
        if len(self._open) >= MAX_CALL_DEPTH:
            raise Refused(f"function calls are nested more than {MAX_CALL_DEPTH} deep at {key[0]}::{key[1]}")
        self._open.append(key)
        try:
            scope = Scope({entry.domain: entry.version for entry in function.opset_import}, self)
            nodes = [fill_references(inner, attributes) for inner in function.node]
            program = Program([(node_key(inner), inner) for inner in nodes], function.input, function.output, {}, scope)
        finally:
            self._open.pop()
        if program.captures:
            raise Refused(f"function {key[0]}::{key[1]} reads {program.captures[0]!r}, which is not defined")
        return program


class Program:
    """A compiled graph.

    ``nodes``: the key and the proto of each node, in topological order. ``inputs``, ``outputs``: names of values.
    ``constants``: name -> array, not written. Names that are read but not defined become `captures`.

    Raises `Refused` for a node without an implementation, with its key.
    """

    def __init__(
        self,
        nodes: Iterable[tuple[str, onnx.NodeProto]],
        inputs: Iterable[str],
        outputs: Iterable[str],
        constants: Mapping[str, Any],
        scope: Scope,
    ) -> None:
        self.input_names = tuple(inputs)
        self.output_names = tuple(outputs)
        slots: dict[str, int] = {"": 0}
        initial: list[Any] = [None]
        captures: list[str] = []

        def define(name: str, value: Any = None) -> int:
            slots[name] = len(initial)
            initial.append(frozen(value))  # it may be a result, which the caller must not write
            return slots[name]

        def read(name: str) -> int:
            if name not in slots:
                captures.append(name)
                define(name)
            return slots[name]

        for name, value in constants.items():
            define(name, value)
        self._inputs = tuple(define(name) for name in self.input_names)
        steps = []
        for key, node in nodes:
            try:
                node = scope.library.embedded(node)
                if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                    define(node.output[0], constant_node_value(node))
                    continue
                call, inner_captures = scope.library.implementation(node, scope)
            except Refused as refusal:
                raise Refused(f"{node.op_type}: {refusal.reason}", key) from refusal
            reads = tuple(read(name) for name in (*node.input, *inner_captures))
            writes = tuple(define(name) if name else -1 for name in node.output)
            steps.append(Step(key, node.op_type, call, reads, writes))
        self._outputs = tuple(read(name) for name in self.output_names)
        self.captures = tuple(captures)
        self._captures = tuple(slots[name] for name in captures)
        self._initial = initial
        self.steps = tuple(steps)
        self._find_dead_slots()

    def _find_dead_slots(self) -> None:
        """Set the dead slots of each step, so that a run keeps only live values."""
        kept = {0, *self._outputs}
        kept.update(slot for slot, value in enumerate(self._initial) if value is not None)
        for step in reversed(self.steps):
            dead = tuple(dict.fromkeys(slot for slot in (*step.reads, *step.writes) if slot >= 0 and slot not in kept))
            kept.update(dead)
            step.dead = dead

    def run(
        self, inputs: Sequence[Any], captured: Sequence[Any] = (), times: list[tuple[int, int]] | None = None
    ) -> list[Any]:
        """Values of the outputs, in order: arrays, lists of arrays (sequences) or None (empty optionals).

        ``inputs`` and ``captured``: in the order of `input_names` and `captures`; not written. ``times``: if not None,
        receives the real time and the CPU time of each step, in ns. Raises `InferenceError` with the name of the node,
        and `Cancelled`.
        """
        values = self._initial.copy()
        for slot, value in zip(self._inputs, inputs, strict=True):
            values[slot] = value
        for slot, value in zip(self._captures, captured, strict=True):
            values[slot] = value
        real = cpu = 0
        cancellation = _running.cancellation
        cancellation.check()
        for step in self.steps:
            if cancellation.requested:
                cancellation.check()
            arguments = [frozen(values[slot]) for slot in step.reads]
            if times is not None:
                real, cpu = time.perf_counter_ns(), time.thread_time_ns()
            try:
                results = step.call(*arguments)
            except InferenceError:
                raise
            except Exception as error:
                raise inference_error(
                    f"node {step.key!r} ({step.op_type}) on inputs {describe(arguments)}: "
                    f"{type(error).__name__}: {error}",
                    error,
                ) from error
            if times is not None:
                times.append((time.perf_counter_ns() - real, time.thread_time_ns() - cpu))
            if len(results) < len(step.writes):
                raise InferenceError(
                    f"node {step.key!r} ({step.op_type}): expected {len(step.writes)} outputs, "
                    f"but its implementation returned {len(results)}"
                )
            for slot, result in zip(step.writes, results):  # noqa: B905 - trailing outputs may be unnamed
                if slot >= 0:  # NumPy returns scalars instead of arrays of rank 0
                    values[slot] = np.asarray(result) if isinstance(result, np.generic) else with_str_objects(result)
            for slot in step.dead:
                values[slot] = None
        return [values[slot] for slot in self._outputs]


def frozen(value: Any) -> Any:
    """``value`` with arrays as read-only views, so that an implementation that writes its input fails."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def with_str_objects(value: Any) -> Any:
    """Arrays of strings as object arrays of str; other values unchanged."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "USO":
        return value
    if value.dtype == object and not (value.size and isinstance(value.flat[0], bytes)):
        return value
    texts = [item.decode() if isinstance(item, bytes) else str(item) for item in value.flat]
    return np.array(texts, object).reshape(value.shape)


def describe(values: Sequence[Any]) -> str:
    """The types and shapes of a node's arguments, for errors."""
    texts = []
    for value in values:
        if isinstance(value, np.ndarray):
            texts.append(f"{value.dtype}{list(value.shape)}")
        else:
            texts.append("none" if value is None else type(value).__name__)
    return ", ".join(texts) or "none"


def node_key(node: onnx.NodeProto) -> str:
    """The name of a node of a nested graph or function body in errors."""
    return node.name or next((name for name in node.output if name), node.op_type)


def dense(
    sparse: onnx.SparseTensorProto, read: Callable[[onnx.TensorProto], np.ndarray] = onnx.numpy_helper.to_array
) -> np.ndarray:
    """A sparse tensor as a dense array. ``read``: returns the elements of a tensor."""
    values, indices = read(sparse.values), read(sparse.indices)
    array = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        array.reshape(-1)[indices] = values
    else:
        array[tuple(indices.T)] = values
    return array


def constant_node_value(node: onnx.NodeProto) -> np.ndarray:
    """The tensor of a ``Constant`` node."""
    for attribute in node.attribute:
        match attribute.name:
            case "value":
                return np.asarray(with_str_objects(onnx.numpy_helper.to_array(attribute.t)))
            case "sparse_value":
                return dense(attribute.sparse_tensor)
            case "value_float":
                return np.array(attribute.f, np.float32)
            case "value_floats":
                return np.array(attribute.floats, np.float32)
            case "value_int":
                return np.array(attribute.i, np.int64)
            case "value_ints":
                return np.array(attribute.ints, np.int64)
            case "value_string":
                return np.array(attribute.s.decode(), object)
            case "value_strings":
                return np.array([text.decode() for text in attribute.strings], object)
    raise Refused(f"Constant node {node_key(node)!r} has no value")
