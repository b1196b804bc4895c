"""Every field of a message damaged in every way, with the lengths around it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# Which fields of which messages are messages that the reader looks into.
NODE: dict[int, Any] = {}
GRAPH: dict[int, Any] = {}
DIM: dict[int, Any] = {}
TENSOR: dict[int, Any] = {13: {}, 16: {}}
SPARSE: dict[int, Any] = {1: TENSOR, 2: TENSOR}
TYPE: dict[int, Any] = {1: {2: {1: DIM}}}
INFO: dict[int, Any] = {2: TYPE}
ATTRIBUTE: dict[int, Any] = {5: TENSOR, 6: GRAPH, 10: TENSOR, 11: GRAPH, 14: TYPE, 22: SPARSE}
NODE.update({5: ATTRIBUTE, 9: {}})
GRAPH.update({1: NODE, 5: TENSOR, 11: INFO, 12: INFO, 13: INFO, 15: SPARSE, 16: {}})
MODEL: dict[int, Any] = {7: GRAPH, 8: {}, 14: {}, 25: {7: NODE}}


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


Field = tuple[int, int, Any]  # number, wire type, value: int, bytes, or list of fields
SIZES = {1: 8, 5: 4}


def parse(data: bytes, schema: dict[int, Any]) -> list[Field]:
    fields: list[Field] = []
    at = 0
    while at < len(data):
        tag, at = decode_varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, at = decode_varint(data, at)
        else:
            size, at = decode_varint(data, at) if wire == 2 else (SIZES[wire], at)
            value, at = data[at : at + size], at + size
            if wire == 2 and number in schema:
                value = parse(value, schema[number])
        fields.append((number, wire, value))
    return fields


def encode_field(field: Field) -> bytes:
    number, wire, value = field
    if wire == 0:
        return varint(number << 3) + varint(value)
    payload = encode(value) if isinstance(value, list) else value
    return varint(number << 3 | wire) + (varint(len(payload)) if wire == 2 else b"") + payload


def encode(fields: list[Field]) -> bytes:
    return b"".join(field if isinstance(field, bytes) else encode_field(field) for field in fields)


def damaged(number: int, wire: int, value: Any) -> Iterator[list[Any]]:
    """What may stand in place of a field."""
    field = (number, wire, value)
    yield []  # missing
    yield [field, field]  # twice
    yield [field, b"\x0a\xff"]  # followed by one cut off
    yield [varint(number << 3 | 3) + varint(number << 3 | 4)]  # a group
    yield [varint(number << 3 | 6)]  # no wire type
    yield [field, b"\x00"]  # field number 0
    yield [field, varint((1 << 29) << 3) + b"\x00"]  # field number beyond 2**29
    yield [field, varint(1000 << 3 | 2) + b"\x03abc", varint(1001 << 3 | 1) + b"12345678"]  # unknown, to be skipped
    for other in (0, 1, 2, 5):
        if other != wire:
            yield [(number, other, {0: 1, 1: b"12345678", 2: b"\x01", 5: b"1234"}[other])]
    if wire == 0:
        for odd in (0, 1, 2, 64, 127, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1):
            yield [(number, 0, odd)]
        yield [varint(number << 3) + b"\xff" * 9 + b"\x02"]  # 65 bits
        yield [varint(number << 3) + b"\x80" * 10 + b"\x00"]  # 11 bytes
        yield [varint(number << 3) + b"\x81\x00"]  # longer than needed, but right
    if wire == 2:
        payload = encode(value) if isinstance(value, list) else value
        for size in (len(payload) + 1, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1):
            yield [varint(number << 3 | 2) + varint(size) + payload]
        for odd in (b"", b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x80" * 20, b"a\0b\n", b"x" * 300):
            yield [(number, 2, odd)]
        yield [(number, 2, payload[:-1])]
        yield [(number, 2, payload + payload)]


def mutants(fields: list[Field], wrap: Callable[[list[Any]], bytes]) -> Iterator[bytes]:
    for i, (number, wire, value) in enumerate(fields):
        for instead in damaged(number, wire, value):
            yield wrap([*fields[:i], *instead, *fields[i + 1 :]])
        if isinstance(value, list):

            def deeper(inner: list[Any], i: int = i, number: int = number) -> bytes:
                return wrap([*fields[:i], (number, 2, inner), *fields[i + 1 :]])

            yield from mutants(value, deeper)
