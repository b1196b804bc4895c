"""Types of values: as the file declares them, else as `onnx.shape_inference` finds them, once per file.

Inference runs over a skeleton of the whole model, in which constants above a kilobyte are typed graph inputs, so its
cost does not depend on the weights. Small constants stay, because shapes are computed from them. Its answer is kept
as bytes and indexed like a file; a type is decoded when first asked for.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from .._onnx import WireError, read_type
from ..errors import ModelError
from .constants import Constants
from .file import ModelFile
from .types import ValueType, dtype_of, onnx_dtype_of
from .wire import encode_tensor_type
from .write import hidden_length, model_parts

if TYPE_CHECKING:
    from .model import Model

__all__ = ["ValueTypes"]

_SKELETON_CONSTANT_BYTES = 1024

# Data propagation, which follows shapes computed by nodes, takes every vector of known length for a shape, and makes
# a dim for each element: gigabytes for a hostile length, time wasted on every bias. So long lengths are hidden.
_SKELETON_VECTOR = 256

# Inference expands every call of a model-local function. Beyond so many nodes (a few seconds' worth) it is not tried,
# since a few hundred bytes of functions calling each other can stand for 2**60 nodes.
_MAX_EXPANDED_NODES = 1_000_000

_UNKNOWN = ValueType(None, None)
_NO_TENSOR = -1  # what read_type gives for sequences, maps and optionals


class ValueTypes:
    """Types of a file's values, by value id of the file. Safe to share between threads."""

    def __init__(self, file: ModelFile, constants: Constants) -> None:
        self._file = file
        self._constants = constants
        self._found: dict[int, ValueType] = {}
        self._inferred: ModelFile | None = None
        self._tried = False
        self._lock = threading.Lock()

    def type_of(self, model: Model, value: int) -> ValueType:
        """The type of a value; what nobody knows of it is None. ``model``: the whole file's."""
        found = self._found.get(value)
        if found is None:
            found = self._found[value] = self._find(model, value)[0]
        return found

    def message_of(self, model: Model, value: int) -> bytes:
        """The type as a TypeProto; empty if nothing is known. Verbatim where possible, so any kind of type survives."""
        known, source, info = self._find(model, value)
        if source is None or (source is not self._file and known.dtype is not None):
            dtype = 0 if known.dtype is None else onnx_dtype_of(known.dtype)
            return encode_tensor_type(dtype, known.shape) if dtype else b""
        return bytes(source.data[int(source.info_type_begin[info]) : int(source.info_type_end[info])])

    def _find(self, model: Model, value: int) -> tuple[ValueType, ModelFile | None, int]:
        """The type, and the file and value info that state it (None: a constant, or nothing states it)."""
        file = self._file
        constant = int(file.value_constant[value])
        if constant >= 0:
            return self._constants.type_of(constant), None, 0
        info = int(file.value_info[value])
        declared, dtype = _stated(file, info)
        stated_by = None if info < 0 else file
        if dtype == _NO_TENSOR or (declared.dtype is not None and declared.shape is not None):
            return declared, stated_by, info
        if file.value_producer[value] < 0:  # a graph input: nothing to infer from
            return declared, stated_by, info
        inferred = self._infer(model)
        other = -1 if inferred is None else inferred.index.value_id(file.index.value_name(value))
        if inferred is None or other < 0:
            return declared, stated_by, info
        inferred_info = int(inferred.value_info[other])
        found, dtype = _stated(inferred, inferred_info)
        knows_more = found.dtype is not None and (declared.dtype is None or found.shape is not None)
        if dtype != _NO_TENSOR and not knows_more:
            return declared, stated_by, info
        if found.shape is not None:
            found = ValueType(found.dtype, tuple(map(hidden_length, found.shape)))
        return found, inferred, inferred_info

    def _infer(self, model: Model) -> ModelFile | None:
        """The skeleton with all types that inference finds; None if it fails."""
        with self._lock:
            if not self._tried:
                try:
                    self._inferred = _run_inference(model) if _expands_within_bounds(self._file) else None
                except Exception:  # whatever onnx stumbles over: the types stay unknown, which is an answer
                    self._inferred = None
                self._tried = True
            return self._inferred


def _stated(file: ModelFile, info: int) -> tuple[ValueType, int]:
    """The type that a value info states, and the number of its element type."""
    if info < 0:
        return _UNKNOWN, 0
    try:
        dtype, shape = read_type(file.data, int(file.info_type_begin[info]), int(file.info_type_end[info]))
    except WireError as error:
        name = file.index.value_name(int(file.info_value[info]))
        raise file.error(f"type of value {name!r}: {error}") from error
    return ValueType(dtype_of(dtype), shape), dtype


def _run_inference(model: Model) -> ModelFile:
    import onnx.shape_inference

    skeleton = b"".join(model_parts(model, _SKELETON_CONSTANT_BYTES, _SKELETON_VECTOR))
    inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True)
    # With bytes given, some versions answer bytes.
    answer = inferred if isinstance(inferred, bytes) else inferred.SerializeToString()
    return ModelFile(memoryview(answer), label="inferred types")


def _expands_within_bounds(file: ModelFile) -> bool:
    """Whether the model has few enough nodes after every function call is expanded, and no function calls itself."""
    if not file.functions:
        return True
    calls = [_called_functions(file, number) for number in range(len(file.functions))]
    known = {name: number for number, name in enumerate(file.functions)}
    size = [0] * len(calls)
    state = [0] * len(calls)  # 0 untouched, 1 being expanded, 2 done
    for root in range(len(calls)):
        stack = [root]
        while stack:
            number = stack[-1]
            callees = [known[name] for name in calls[number] if name in known]
            waiting = [callee for callee in callees if state[callee] != 2]
            if state[number] == 0 and waiting:
                state[number] = 1
                stack += waiting
            elif waiting and state[number] == 1:
                return False  # it waits for itself
            else:
                if state[number] != 2:
                    nested = sum(size[known[name]] * n for name, n in calls[number].items() if name in known)
                    size[number] = min(calls[number].total() + nested, _MAX_EXPANDED_NODES + 1)
                state[number] = 2
                stack.pop()
    # Nodes inside nested graphs of the main graph are not counted, so a function alone may not reach the bound either.
    uses = np.bincount(file.node_op, minlength=len(file.op_types))
    total = max(size)
    for op, (domain, name) in enumerate(zip(file.op_domains, file.op_names, strict=True)):
        if (domain, name) in known:
            total += int(uses[op]) * size[known[domain, name]]
    return total <= _MAX_EXPANDED_NODES


def _called_functions(file: ModelFile, number: int) -> Counter[tuple[str, str]]:
    """How often each (domain, op type) occurs in a function's body, nested graphs included."""
    import onnx

    begin, end = int(file.function_begin[number]), int(file.function_end[number])
    try:
        function = onnx.FunctionProto.FromString(bytes(file.data[begin:end]))
    except Exception as error:
        raise ModelError(f"function {file.functions[number]}: {error}") from error
    calls: Counter[tuple[str, str]] = Counter()
    pending = list(function.node)
    while pending:
        node = pending.pop()
        calls["" if node.domain == "ai.onnx" else node.domain, node.op_type] += 1
        for attribute in node.attribute:
            pending += attribute.g.node
            for graph in attribute.graphs:
                pending += graph.node
    return calls
