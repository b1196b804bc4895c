"""Encodes the few protobuf messages that hetero writes itself. All others are copied from the file."""

from __future__ import annotations

import functools

from .types import Dim

__all__ = ["encode_field", "encode_number", "encode_string_entry", "encode_tensor_type", "encode_value_info", "varint"]


_SMALL = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """A non-negative number, with 7 bits per byte, low bits first."""
    if number <= 0x7F:
        return _SMALL[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_number(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def encode_field(field: int, payload: bytes) -> bytes:
    """A length-delimited field: a string, bytes or a message."""
    return varint(field << 3 | 2) + varint(len(payload)) + payload


@functools.lru_cache(maxsize=1024)  # large models have few types
def encode_tensor_type(onnx_dtype: int, shape: tuple[Dim, ...] | None) -> bytes:
    """A TypeProto of a tensor. ``shape``: None if the rank is unknown."""
    tensor = encode_number(1, onnx_dtype)
    if shape is not None:
        dims = b""
        for dim in shape:
            if dim is None:
                dims += encode_field(1, b"")
            elif isinstance(dim, str):
                dims += encode_field(1, encode_field(2, dim.encode()))
            else:
                dims += encode_field(1, encode_number(1, dim))
        tensor += encode_field(2, dims)
    return encode_field(1, tensor)


def encode_value_info(name: str, type_message: bytes) -> bytes:
    """A ValueInfoProto, without a type if ``type_message`` is empty."""
    return encode_field(1, name.encode()) + (encode_field(2, type_message) if type_message else b"")


def encode_string_entry(key: str, value: str) -> bytes:
    """A StringStringEntryProto."""
    return encode_field(1, key.encode()) + encode_field(2, value.encode())
