"""The model-local functions of a file, and the size of their calls after inlining.

`FunctionLibrary.check` adds up nodes, bytes and levels over the call graph. It visits each function once, depth first
and without recursion. Exponential expansion is therefore found in time linear in the file.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..errors import raise_out_of_memory
from .file import ModelFile

if TYPE_CHECKING:
    import onnx

__all__ = [
    "MAX_CALL_DEPTH",
    "MAX_INLINED_BYTES",
    "MAX_INLINED_NODES",
    "Function",
    "FunctionKey",
    "FunctionLibrary",
    "all_nodes",
    "graphs_in",
    "graphs_of",
    "plain_domain",
]

FunctionKey = tuple[str, str, str]
"""Domain ("" for ONNX's own), name and overload of a model-local function."""

MAX_INLINED_NODES = 1_000_000
"""The maximum number of nodes after inlining, nested calls included. 26 functions that each call the next one twice
expand to 2**26 nodes."""

MAX_INLINED_BYTES = 1 << 28
"""The maximum size of the encoded nodes in B, because a function may contain large tensors and be called often."""

MAX_CALL_DEPTH = 64
"""The maximum depth of calls. Each level adds a part to the names of nodes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A parsed function. ``ops``: the number of nodes per operator, (domain, op type), nested graphs included.
    ``calls``: the number of calls per function of the model."""

    key: FunctionKey
    proto: onnx.FunctionProto
    ops: Counter[tuple[str, str]]
    calls: Counter[FunctionKey]

    def __str__(self) -> str:
        return _name_of(self.key)


class FunctionLibrary:
    """The functions of a file, parsed on first use. Threads may not share an object."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._number: dict[FunctionKey, int] = {}
        spans = file.index.arrays["function_overload"]
        for number, (domain, name) in enumerate(file.functions):
            self._number[plain_domain(domain), name, file.index.text(int(spans[number]))] = number
        self.names = frozenset((domain, name) for domain, name, _ in self._number)
        self.keys = tuple(self._number)
        self._parsed: dict[FunctionKey, Function] = {}
        self._sizes: dict[FunctionKey, tuple[int, int, int]] = {}

    def key_of_call(self, node: onnx.NodeProto) -> FunctionKey | None:
        """The function that a node calls, None if the node is not a call."""
        key = (plain_domain(node.domain), node.op_type, getattr(node, "overload", ""))
        return key if key in self._number else None

    def function(self, key: FunctionKey) -> Function:
        function = self._parsed.get(key)
        if function is None:
            function = self._parsed[key] = self._parse(key)
        return function

    def check(self, calls: Mapping[FunctionKey, int], *, deepest: float = math.inf) -> None:
        """Raise `ModelError` if inlining these calls would exceed a limit, or if a function calls itself. The error
        names the function and the limit. ``calls``: the number of calls per function.

        ``deepest``: if calls are nested more deeply, the error is raised without looking for a cycle among them."""
        nodes = size = 0
        for key, count in calls.items():
            nodes_per_call, bytes_per_call, depth = self._size(key, deepest)
            nodes += count * nodes_per_call
            size += count * bytes_per_call
            for total, limit, unit, name in (
                (depth, MAX_CALL_DEPTH, "levels of calls", "MAX_CALL_DEPTH"),
                (nodes, MAX_INLINED_NODES, "nodes", "MAX_INLINED_NODES"),
                (size, MAX_INLINED_BYTES, "bytes", "MAX_INLINED_BYTES"),
            ):
                if total > limit:
                    raise self._file.error(
                        f"function {_name_of(key)}: inlining {'its call' if count == 1 else f'its {count} calls'} "
                        f"would exceed {limit:,} {unit} ({name}); use a device that supports the call as one node"
                    )

    def _size(self, root: FunctionKey, deepest: float) -> tuple[int, int, int]:
        """The nodes, bytes and depth of one call after inlining, each capped at its limit plus one."""
        opened: dict[FunctionKey, None] = {}
        stack = [root]
        while stack:
            key = stack[-1]
            if key in self._sizes:
                stack.pop()
                continue
            function = self.function(key)
            waiting = [callee for callee in function.calls if callee not in self._sizes]
            if not waiting:
                self._sizes[key] = self._added_up(function)
                opened.pop(key, None)
                stack.pop()
                continue
            if key in opened:  # seen before, so a callee that is still waiting waits for this function
                raise self._file.error(f"function {_name_of(key)} calls itself; ONNX functions may not recurse")
            opened[key] = None
            if len(opened) > deepest:
                raise self._file.error(f"function {_name_of(root)}: more than {deepest} levels of calls")
            for callee in waiting:
                if callee in opened:
                    raise self._file.error(f"function {_name_of(callee)} calls itself; ONNX functions may not recurse")
            stack += waiting
        return self._sizes[root]

    def _added_up(self, function: Function) -> tuple[int, int, int]:
        nodes = function.ops.total() - function.calls.total()
        size = function.proto.ByteSize()
        depth = 0
        for callee, count in function.calls.items():
            callee_nodes, callee_bytes, callee_depth = self._sizes[callee]
            nodes += count * callee_nodes
            size += count * callee_bytes
            depth = max(depth, callee_depth)
        # Inlining an empty body takes time too, so it counts as one node.
        nodes, size = max(nodes, 1), max(size, 1)
        return min(nodes, MAX_INLINED_NODES + 1), min(size, MAX_INLINED_BYTES + 1), min(depth, MAX_CALL_DEPTH) + 1

    def _parse(self, key: FunctionKey) -> Function:
        import onnx

        file, number = self._file, self._number[key]
        begin, end = int(file.function_begin[number]), int(file.function_end[number])
        try:
            proto = onnx.FunctionProto.FromString(bytes(file.data[begin:end]))
        except Exception as error:  # protobuf's DecodeError
            raise_out_of_memory(error)
            raise file.error(f"function {_name_of(key)} cannot be parsed: {error}") from error
        ops: Counter[tuple[str, str]] = Counter()
        calls: Counter[FunctionKey] = Counter()
        for node in all_nodes(proto.node):
            ops[plain_domain(node.domain), node.op_type] += 1
            callee = self.key_of_call(node)
            if callee is not None:
                calls[callee] += 1
        return Function(key, proto, ops, calls)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """These nodes and those of their nested graphs, at any depth."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        for graph in graphs_of(node):
            pending += graph.node


def graphs_in(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from graphs_in(attribute)


def plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _name_of(key: FunctionKey) -> str:
    domain, name, overload = key
    return f"{domain}::{name}" + (f":{overload}" if overload else "")
