"""Protobuf messages by hand: what `onnx` itself would refuse to write."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import helper, numpy_helper

VARINT, FIXED64, LEN, GROUP, END_GROUP, FIXED32 = range(6)


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = []
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


@functools.cache
def tag(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


@functools.lru_cache(1 << 12)  # the cases have millions of fields, most of them alike
def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value)


@functools.lru_cache(1 << 12)
def head_of(field: int, length: int) -> bytes:
    return tag(field, LEN) + varint(length)


def message(field: int, *parts: bytes | str) -> bytes:
    """A length-delimited field: a message, a string or bytes."""
    payload = b"".join([part.encode() if isinstance(part, str) else part for part in parts])
    return head_of(field, len(payload)) + payload


def claim(field: int, length: int, payload: bytes = b"") -> bytes:
    """A field whose length says what it likes."""
    return head_of(field, length) + payload


# Messages of onnx.proto, by the fields that the cases need.


def attribute(name: str, kind: int, *data: bytes) -> bytes:
    return message(5, message(1, name), *data, number(20, kind))


def node(op: str, inputs: Iterable[str] = ("x",), outputs: Iterable[str] = ("y",), *more: bytes) -> bytes:
    names = [message(1, name) for name in inputs] + [message(2, name) for name in outputs]
    return message(1, *names, message(4, op), *more)


def info(section: int, name: str, dtype: int = 1, shape: Iterable[int] = (2,)) -> bytes:
    dims = [message(1, number(1, dim)) for dim in shape]
    return message(section, message(1, name), message(2, message(1, number(1, dtype), message(2, *dims))))


def tensor(field: int, *parts: bytes, dtype: int = 1, name: str = "w") -> bytes:
    """A TensorProto; dims and data are parts."""
    return message(field, number(2, dtype), message(8, name), *parts)


INPUT, OUTPUT = info(11, "x"), info(12, "y")
RELU = node("Relu")
ADD = node("Add", ("x", "w"))


def model(*graph: bytes, ir: int = 8, opset: int = 17, more: bytes = b"", ports: bytes = INPUT + OUTPUT) -> bytes:
    """A ModelProto around the fields of its graph; ``more`` follows the graph."""
    opsets = message(8, number(2, opset)) if opset else b""
    return number(1, ir) + message(7, *graph, message(2, "g"), ports) + opsets + more


def proto(
    nodes: Iterable[onnx.NodeProto],
    inputs: Iterable[onnx.ValueInfoProto] | None = None,
    outputs: Iterable[onnx.ValueInfoProto] | None = None,
    *,
    initializers: Iterable[onnx.TensorProto] = (),
    functions: Iterable[onnx.FunctionProto] = (),
    domains: Iterable[str] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    """A ModelProto by way of onnx, from x: float[2] to y: float of any shape unless told otherwise."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "g",
        [value("x", 1, [2])] if inputs is None else list(inputs),
        [value("y", 1, None)] if outputs is None else list(outputs),
        list(initializers),
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


def wrapped(core: bytes, layers: Iterable[tuple[bytes, bytes, int]]) -> bytes:
    """``core`` inside messages, the innermost first: each (bytes before, bytes after, field number of the message).
    Linear in the depth, where joining from the inside would be quadratic."""
    before: list[bytes] = []
    after: list[bytes] = []
    size = len(core)
    for head, tail, field in layers:
        size += len(head) + len(tail)
        prefix = head_of(field, size)
        before += [head, prefix]
        after.append(tail)
        size += len(prefix)
    return b"".join(before[::-1]) + core + b"".join(after)


FLOATS = message(9, struct.pack("<2f", 1, 2))
DIM = number(1, 2)
GOOD = model(ADD, tensor(5, DIM, FLOATS))


def ints(name: str, *numbers: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)
