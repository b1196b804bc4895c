"""A plan as a JSON file: a line per node, value and reason, so that it can be read, edited and compared by lines."""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..base.decoding import decode_json, place_in
from ..base.file_kinds import other_than_text
from ..errors import HeteroError, PropertyError, did_you_mean
from ..partition import POLICIES
from .schema import FORMAT_VERSION, PlanFile, PlannedSubgraph

__all__ = ["decode", "encode_lines"]

_WITHOUT_FORMAT = "Object missing required field `format`"  # of msgspec
_NOT_AN_OBJECT = "Expected `object`, got `"  # of msgspec, without " - at `$...`" for the whole file
_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}
_EXPECTED = "expected a plan in JSON, as Plan.save and `hetero plan --save` write it"
_INLINE = ("devices",)  # lists short enough for one line


def encode_lines(file: PlanFile) -> Iterator[bytes]:
    """The file in pieces, one for each field. The same plan gives the same bytes."""
    encode = msgspec.json.Encoder().encode
    names = list(PlanFile.__dataclass_fields__)
    yield b"{\n"
    for name in names:
        value = getattr(file, name)
        if name == "subgraphs":
            text = _block(b"[]", _subgraphs(value))
        elif isinstance(value, Mapping):
            text = _block(b"{}", list(map(b"%b: %b".__mod__, zip(_lines(value), _lines(value.values()), strict=True))))
        elif isinstance(value, tuple) and name not in _INLINE:
            text = _block(b"[]", _lines(value))
        else:
            text = encode(value)
        yield b' "%b": %b%b' % (name.encode(), text, b"\n" if name == names[-1] else b",\n")
    yield b"}\n"


def _lines(values: Iterable[Any]) -> list[bytes]:
    """The JSON of each value."""
    return msgspec.json.Encoder().encode_lines(list(values)).splitlines()


def _block(brackets: bytes, lines: Sequence[bytes]) -> bytes:
    opening, closing = brackets[:1], brackets[1:]
    return b"%b\n  %b\n %b" % (opening, b",\n  ".join(lines), closing) if lines else brackets


def _subgraphs(parts: Sequence[PlannedSubgraph]) -> list[bytes]:
    nodes = iter(_lines(itertools.chain.from_iterable(part.nodes for part in parts)))
    devices = _lines(part.device for part in parts)
    return [
        b'{"device": %b, "nodes": [\n    %b]}' % (device, b",\n    ".join(itertools.islice(nodes, len(part.nodes))))
        for device, part in zip(devices, parts, strict=True)
    ]


def decode(data: bytes, label: str) -> PlanFile:
    """Read and check a file. ``label``: its name in messages. Raises `HeteroError` with the position for an invalid
    file, and `PropertyError` for an inconsistent plan."""
    data = data.removeprefix(codecs.BOM_UTF8)  # which some editors write
    try:
        file = decode_json(data, PlanFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        other = other_than_text(data)
        trouble = _trouble(data, error) if other is None else f"{_EXPECTED}; found {other}"
        raise HeteroError(f"{label}: {trouble}") from error
    if file.version != FORMAT_VERSION:
        raise HeteroError(
            f"{label}: format version {file.version}, this version of hetero reads version {FORMAT_VERSION}: "
            + ("update hetero" if file.version > FORMAT_VERSION else "plan the model again")
        )
    _check(data, file, label)
    return file


def _check(data: bytes, file: PlanFile, label: str) -> None:
    """Check what the types do not express."""
    if not file.devices:
        raise PropertyError(f"{label}: the list of devices is empty")
    if file.policy not in POLICIES:
        raise PropertyError(
            f"{label}: unknown policy {file.policy!r}{did_you_mean(file.policy, POLICIES)}; expected one of "
            f"{', '.join(POLICIES)}"
        )
    for i, device in enumerate(file.devices):
        if device in file.devices[:i]:
            raise PropertyError(f"{label}: device {device!r} is listed twice")
    known = set(file.devices)
    placed = [(f"node {key!r}", device) for key, device in file.affinity.items() if device not in known]
    placed += [(f"subgraph {i + 1}", part.device) for i, part in enumerate(file.subgraphs) if part.device not in known]
    for what, device in placed:
        raise PropertyError(
            f"{label}: {what} is on {device!r}, which is not in the plan's devices: "
            f"{', '.join(file.devices)}{did_you_mean(device, file.devices)}"
        )
    for i, part in enumerate(file.subgraphs):
        if not part.nodes:
            raise PropertyError(f"{label}: subgraph {i + 1} has no nodes")
    try:
        json.loads(data, object_pairs_hook=lambda pairs: _distinct(pairs, label), parse_int=_check_integer)
    except HeteroError:
        raise
    except (RecursionError, ValueError) as error:  # in fields that msgspec ignores
        raise HeteroError(f"{label}: {_trouble(data, error)}") from error


def _distinct(pairs: list[tuple[str, Any]], label: str) -> None:
    """Reject duplicate keys in an object: JSON readers would use the last."""
    seen = set()
    for key, value in pairs:
        if key in seen:
            raise PropertyError(f"{label}: duplicate key {key!r}, the second time with {value!r}")
        seen.add(key)


def _check_integer(text: str) -> int:
    """Reject a number that no size or count can have. Some of them do not fit a float."""
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"the number {text[:30]} is out of range; expected one of 64 bits")
    return int(text)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid in JSON")


def _trouble(data: bytes, error: Exception) -> str:
    """The error in the file, with line and column if it is not valid JSON."""
    if not data.strip():
        return f"the file is empty; {_EXPECTED}"
    deep = "it is nested too deeply for a plan"
    if isinstance(error, RecursionError):
        return deep
    try:
        whole = json.loads(data, parse_constant=_reject_constant)
    except json.JSONDecodeError as found:
        is_cut = found.pos >= len(found.doc.rstrip()) or found.msg.startswith("Unterminated string")
        what = found.msg.removesuffix(" starting at")
        place = f"line {found.lineno}, column {found.colno}: {what}{' (is the file cut off?)' if is_cut else ''}"
        return place if data.lstrip().startswith(b"{") else f"{_EXPECTED}; {place}"
    except RecursionError:
        return deep
    except ValueError as found:
        byte = re.search(r"\(byte (\d+)\)$", str(error))  # Python's decoder does not say where a constant is
        return f"{place_in(data, int(byte[1]))}: {found}" if byte else str(found)
    for name in ("affinity", "pins", "reasons"):
        if f"$.{name}[...]" in str(error):  # this message does not name the key
            for key, value in whole[name].items():
                if not isinstance(value, str):
                    return f"{name} of {key!r}: expected a string, found {value!r}"
    if str(error) == _WITHOUT_FORMAT:
        return f"{_EXPECTED}; the field `format` is missing"
    if str(error).startswith(_NOT_AN_OBJECT) and " - at " not in str(error):
        return f"{_EXPECTED}; found {_KINDS[type(whole)]}"
    if str(error).endswith(" - at `$.format`"):
        return f"{_EXPECTED}; its `format` is {whole['format']!r}"
    return str(error)
