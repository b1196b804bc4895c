"""Random changes of JSON documents, ONNX models and arrays that keep their structure: wrong numbers, types and names in
the right places."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (
    *(0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 127, 128, 255, 256, 4095, 4096, 65_535, 65_536, 10**6),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**47, 2**62, 2**63 - 1, 2**63, 2**64, 10**30),
)
FLOATS = (0.5, 1e308, 5e-324, -0.0, 1e-30, 3.4e38)
TEXTS = (
    *("", " ", ".", "..", "/", "../../etc/passwd", "\0", "a\nb", "\x1b[31m", "\u202eabc", "\xe9" * 40, "x" * 70_000),
    *("CPU", "CPU.7", "TEMPLATE", "HETERO:CPU", "HETERO:HETERO:CPU", "CONTROL_FLOW", "NOBODY", "op:Conv", "op:["),
    *("float32", "float64", "int64", "int4", "bool", "object", "bfloat16", "string", "uint8", "float8_e4m3fn", "lent"),
)

Place = tuple[Any, Any]
"""A container and a key or position in it."""


def places_of(document: Any) -> Iterator[Place]:
    """Every place of a JSON document but the root."""
    open_ = [document]
    while open_:
        here = open_.pop()
        for key in list(here) if isinstance(here, dict) else range(len(here)):
            yield here, key
            if isinstance(here[key], dict | list):
                open_.append(here[key])


def change_json(choose: random.Random, document: Any) -> str:
    """Change one place of a document. Returns what was changed."""
    places = list(places_of(document))
    if not places:
        return "nothing"
    # Names are chosen before places, because there are many more numbers in lists than anything else.
    names = sorted({key if isinstance(key, str) else "[]" for _, key in places})
    name = choose.choice(names)
    here, key = choose.choice([place for place in places if (place[1] if isinstance(place[1], str) else "[]") == name])
    old = here[key]
    match choose.randrange(10):
        case 0 if isinstance(here, dict):
            del here[key]
        case 0:
            here.pop(key)
        case 1 if isinstance(here, list):
            here.insert(key, copy.deepcopy(old))
        case 1:
            here[choose.choice(TEXTS)] = copy.deepcopy(old)
        case 2 | 3:  # by another value of this document
            other, at = choose.choice(places)
            here[key] = copy.deepcopy(other[at])
        case 4:  # by the value of the same name elsewhere
            same = [place for place in places if place[1] == key and type(place[0][place[1]]) is type(old)]
            other, at = choose.choice(same)
            here[key], other[at] = other[at], here[key]
        case 5:
            here[key] = _wrong_type(choose, old)
        case _:
            here[key] = _near(choose, old)
    return f"{name}: {_shown(old)} -> {_shown(here[key] if _has(here, key) else 'removed')}"


def _has(here: Any, key: Any) -> bool:
    return key in here if isinstance(here, dict) else key < len(here)


def _shown(value: Any) -> str:
    return repr(value)[:60]


def _wrong_type(choose: random.Random, old: Any) -> Any:
    deep: Any = old
    for _ in range(choose.choice((1, 70, 400))):
        deep = [deep]
    return choose.choice((None, True, False, [], {}, "0", 1.5, -1, [old], {"a": old}, [old] * 1000, deep, 10**400))


def _near(choose: random.Random, old: Any) -> Any:
    """Another value of the same type."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return choose.choice((old + 1, old - 1, -old, old * 2, old // 2, old ^ 1, old + 64, old - 64, _number(choose)))
    if isinstance(old, float):
        return choose.choice((-old, old * 1e9, 0.0, *FLOATS))
    if isinstance(old, str):
        return choose.choice((old + "x", old[:-1], old.upper(), old * 2, choose.choice(TEXTS)))
    if isinstance(old, list):
        changed = list(old)
        match choose.randrange(4):
            case 0:
                choose.shuffle(changed)
            case 1:
                changed = changed[: choose.randint(0, len(changed))]
            case 2:
                changed = changed * 2
            case _:
                changed = [*changed, changed[-1] if changed else 0]
        return changed
    if isinstance(old, dict):
        keys, values = list(old), list(old.values())
        choose.shuffle(values)
        return dict(zip(keys, values, strict=True))
    return choose.choice((0, "", [], {}))


def _number(choose: random.Random) -> int:
    return choose.choice((1, -1)) * choose.choice(NUMBERS)


# ---- protobuf


def change_message(choose: random.Random, message: Message) -> str:
    """Change one field of a message or of a message in it. Returns what was changed."""
    here = message
    fields: list[FieldDescriptor] = []
    texts = _texts_of(message)
    for _ in range(12):
        fields = [field for field, _ in here.ListFields()]
        if not fields:
            return "nothing"
        field = choose.choice(fields)
        if field.message_type is None or choose.random() < 0.1:
            break
        inner = getattr(here, field.name)
        here = choose.choice(inner) if _is_repeated(inner) else inner
    else:
        return "nothing"
    old = getattr(here, field.name)
    if _is_repeated(old):
        return f"{field.full_name}: {_change_repeated(choose, old, field, texts)}"
    if field.message_type is not None:
        here.ClearField(field.name)
        return f"{field.full_name}: removed"
    new = _scalar(choose, field, old, texts)
    setattr(here, field.name, new)
    return f"{field.full_name}: {_shown(old)} -> {_shown(new)}"


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)


def _change_repeated(choose: random.Random, values: Any, field: FieldDescriptor, texts: Sequence[Any]) -> str:
    at = choose.randrange(len(values))
    how = choose.choice(("remove", "duplicate", "swap", "change", "change", "append"))
    if how == "remove":
        del values[at]
    elif how == "swap":
        other = choose.randrange(len(values))
        if field.message_type is None:
            values[at], values[other] = values[other], values[at]
        else:
            one, two = copy.deepcopy(values[at]), copy.deepcopy(values[other])
            values[at].CopyFrom(two)
            values[other].CopyFrom(one)
    elif field.message_type is not None:
        values.append(copy.deepcopy(values[at]))
    elif how == "change":
        values[at] = _scalar(choose, field, values[at], texts)
    else:
        values.append(_scalar(choose, field, values[at], texts) if how == "append" else values[at])
    return how


def _texts_of(message: Message) -> list[Any]:
    """All strings of a message."""
    found: list[Any] = []
    open_ = [message]
    while open_:
        for field, value in open_.pop().ListFields():
            inner = value if _is_repeated(value) else [value]
            if field.message_type is not None:
                open_.extend(inner)
            elif field.type == field.TYPE_STRING:
                found += inner
    return found


def _scalar(choose: random.Random, field: FieldDescriptor, old: Any, texts: Sequence[Any]) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_STRING if field.type == field.TYPE_BYTES:
            return change_bytes(choose, old)
        case field.CPPTYPE_STRING:
            return choose.choice((choose.choice(texts or [""]), choose.choice(texts or [""]), choose.choice(TEXTS)))
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return choose.choice((-old, old * 2, 0.0, float("inf"), float("nan"), 3e38))
        case field.CPPTYPE_INT64:
            low, high = -(2**63), 2**63 - 1
        case field.CPPTYPE_UINT64:
            low, high = 0, 2**64 - 1
        case _:
            low, high = -(2**31), 2**31 - 1
    if field.enum_type is not None:
        return choose.choice(field.enum_type.values).number
    number = choose.choice((old + 1, old - 1, -old, old * 2, old // 2, choose.randrange(30), _number(choose)))
    return min(max(int(number), low), high)


def change_bytes(choose: random.Random, data: bytes) -> bytes:
    """The same or another number of bytes, with other contents: noise, extreme numbers, parts that are cut or twice."""
    if not data:
        return bytes(choose.choice((1, 8, 64)))
    body = bytearray(data)
    at = choose.randrange(len(body))
    size = min(choose.choice((1, 4, 8, 64, len(body))), len(body) - at)
    changes: Sequence[Callable[[], bytes]] = (
        lambda: choose.randbytes(size),
        lambda: b"\xff" * size,
        lambda: b"\x7f" * size,
        lambda: bytes(size),
        lambda: (choose.choice(NUMBERS) % 2**64).to_bytes(8, "little") * (size // 8 + 1),
        lambda: b"",
        lambda: bytes(body[at : at + size]) * 2,
    )
    which = choose.randrange(len(changes))
    made = changes[which]()
    body[at : at + size] = made[:size] if which < 5 else made
    return bytes(body)
