"""The wire format: what is no model at all, varints, tags, lengths, and fields written in other ways."""

from __future__ import annotations

from hostile.case import case
from hostile.encode import (
    ADD,
    DIM,
    END_GROUP,
    FIXED32,
    FIXED64,
    FLOATS,
    GOOD,
    GROUP,
    INPUT,
    LEN,
    OUTPUT,
    RELU,
    VARINT,
    attribute,
    claim,
    info,
    message,
    model,
    node,
    number,
    tag,
    tensor,
    varint,
)

# ---- no models at all

case("control", "fine", "", GOOD)
case("no bytes", "read", "is empty", b"")
case("one zero byte", "read", "field number is out of range", b"\0")
case("four KiB of zeros", "read", "field number is out of range", bytes(4096))
case("four KiB of ones", "read", "cut off or too long", b"\xff" * 4096)
case("ELF", "read", "the model: ", b"\x7fELF\x02\x01\x01" + bytes(57))
case("zip", "read", "found a ZIP archive", b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(100))
case("JSON", "read", "found an ONNX model in a text format", b'{"irVersion": "8", "graph": {}}')
case("text", "read", "found an ONNX model in a text format", b"ir_version: 8\ngraph {\n}\n")
case("gzip", "read", "found data compressed by gzip", b"\x1f\x8b\x08\0" + b"\x55" * 60)
case("UTF-16", "read", "the model: ", "ir_version".encode("utf-16"))
case("header only", "read", "there is no graph", number(1, 8))
case("zeros after the model", "read", "field number is out of range", GOOD + bytes(8))
case("half a model", "read", "reaches past the end", GOOD[: len(GOOD) // 2])
case("two models", "read", "the graph is given twice", GOOD + GOOD)
case("a bare graph", "read", "the model: ", message(1, "x") + RELU + INPUT)

# ---- varints, tags and lengths

ELEVEN = b"\x80" * 10 + b"\0"
TOO_WIDE = b"\xff" * 9 + b"\x02"
for label, text in (("11 bytes", ELEVEN), ("65 bits", TOO_WIDE), ("cut off", b"\x80")):
    case(f"varint of {label}: ir_version", "read", "varint is cut off or has more than 64", tag(1, VARINT) + text)
    case(f"varint of {label}: tag", "read", "field tag is cut off or too long", GOOD + text)
    case(f"varint of {label}: length", "read", "length is cut off or too long", GOOD + tag(20, LEN) + text)
    case(f"varint of {label}: packed dims", "read", "packed varint", model(ADD, tensor(5, message(1, text), FLOATS)))
    packed = attribute("a", 7, message(8, text))
    case(
        f"varint of {label}: packed ints", "read", "packed data of an attribute", model(node("Relu", "x", "y", packed))
    )
    typed = tensor(5, DIM, message(5, b"\1" + text), dtype=6)
    case(f"varint of {label}: int32_data", "read", "packed data of field 5 are malformed", model(ADD, typed))
    case(
        f"varint of {label}: unknown field",
        "read",
        "varint is cut off or has more than 64",
        GOOD + tag(100, VARINT) + text,
    )
case("varints longer than needed", "fine", "", tag(1, VARINT) + b"\x88\x80\x80\0" + GOOD[2:])
case("field 0", "read", "field number is out of range", GOOD + b"\x02\0")
case("field 2^29", "read", "field number is out of range", GOOD + varint(2**32) + b"\0")
case("field 2^29 - 1", "fine", "", GOOD + tag(2**29 - 1, VARINT) + b"\1")
for wire in (GROUP, END_GROUP, 6, 7):
    case(f"wire type {wire} in the model", "read", "group or unknown", GOOD + tag(30, wire))
    case(f"wire type {wire} in the graph", "read", "the graph: wire type is a group", model(ADD, tag(30, wire)))
    case(f"wire type {wire} in a node", "read", "node 0 .*group", model(node("Relu", "x", "y", tag(30, wire))))
    case(f"wire type {wire} in a tensor", "read", "initializer 0 .*group", model(ADD, tensor(5, tag(30, wire))))
    damaged = attribute("a", 2, number(3, 1), tag(30, wire))
    case(f"wire type {wire} in an attribute", "read", "node 0 .*group", model(node("Relu", "x", "y", damaged)))
    named = message(11, message(1, "x"), tag(30, wire))
    case(f"wire type {wire} in an input", "read", "graph input 0 .*group", model(RELU, ports=named + OUTPUT))
    case(
        f"wire type {wire} in an opset", "read", "opset import 1.*group", GOOD + message(8, number(2, 17), tag(3, wire))
    )
    case(
        f"wire type {wire} in a function",
        "read",
        "function 0 .*group",
        GOOD + message(25, message(1, "f"), tag(30, wire)),
    )
    kind = message(2, message(1, number(1, 1), tag(30, wire)))
    case(f"wire type {wire} in a type", "any", "group", model(RELU, ports=message(11, message(1, "x"), kind) + OUTPUT))
for length in (2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1):
    past = "length reaches past the end"
    case(f"length {length:#x} of the graph", "read", past, number(1, 8) + claim(7, length, RELU))
    case(f"length {length:#x} of a node", "read", past, model(claim(1, length, b"\x0a\1x")))
    case(f"length {length:#x} of a name", "read", past, model(message(1, claim(1, length, b"x"))))
    case(f"length {length:#x} of raw_data", "read", past, model(ADD, message(5, DIM, claim(9, length, b"12345678"))))
    case(f"length {length:#x} of packed dims", "read", past, model(ADD, message(5, claim(1, length, b"\2"))))
    case(f"length {length:#x} of an unknown field", "read", past, GOOD + claim(99, length, b"abc"))
case("a name reaching into the next node", "read", past, model(message(1, message(1, "x"), claim(2, 30, b"y")), RELU))
case("a 64-bit value cut off", "read", "64-bit value is cut off", GOOD + tag(30, FIXED64) + b"1234567")
case("a 32-bit value cut off", "read", "32-bit value is cut off", GOOD + tag(30, FIXED32) + b"123")
case(
    "a float attribute cut off",
    "read",
    "32-bit value",
    model(node("Elu", "x", "y", message(5, message(1, "alpha"), tag(2, FIXED32), b"12"))),
)
case(
    "unknown fields everywhere",
    "fine",
    "",
    model(
        node("Add", ("x", "w"), "y", number(99, 1), tag(98, FIXED64), b"12345678"),
        tensor(5, DIM, FLOATS, message(97, "?")),
        message(96, b"\xff\xfe"),
        more=tag(95, FIXED32) + b"1234",
    ),
)
case("a million unknown fields", "fine", "", lambda _: model(ADD, tensor(5, DIM, FLOATS), number(99, 1) * 1_000_000))

# ---- right and wrong ways to write a field

case("dims packed", "fine", "", model(ADD, tensor(5, message(1, b"\2"), FLOATS)))
case(
    "dims packed and not",
    "fine",
    "",
    model(node("Identity", "w"), tensor(5, number(1, 1), message(1, b"\2"), FLOATS), ports=info(12, "y", 1, (1, 2))),
)
case("float_data one by one", "fine", "", model(ADD, tensor(5, DIM, (tag(4, FIXED32) + b"\0\0\0\0") * 2)))
case("float_data in two packs", "fine", "", model(ADD, tensor(5, DIM, message(4, b"\0\0\0\0") * 2)))
case(
    "float_data packed short",
    "read",
    "packed data of field 4",
    model(ADD, tensor(5, DIM, message(4, b"\0\0\0\0\0\0\0"))),
)
case("ints packed", "fine", "", model(node("Transpose", "x", "y", attribute("perm", 7, message(8, b"\0")))))
case("raw_data twice: the last counts", "fine", "", model(ADD, tensor(5, DIM, message(9, b"123"), FLOATS)))
case(
    "floats packed short", "read", "packed data", model(node("Relu", "x", "y", attribute("a", 6, message(7, b"12345"))))
)
for label, bad in {
    "ir_version": tag(1, LEN) + b"\1\x08" + GOOD[2:],
    "graph": number(1, 8) + number(7, 1),
    "opset": GOOD + number(8, 17),
    "function": GOOD + number(25, 1),
    "node": model(number(1, 1)),
    "initializer": model(number(5, 1)),
    "sparse initializer": model(number(15, 1)),
    "input": model(number(11, 1)),
    "output": model(number(12, 1)),
    "value info": model(number(13, 1)),
    "node input": model(message(1, number(1, 1), message(4, "Relu"))),
    "node output": model(message(1, number(2, 1), message(4, "Relu"))),
    "op_type": model(message(1, message(1, "x"), number(4, 1))),
    "node name": model(node("Relu", "x", "y", number(3, 1))),
    "domain": model(node("Relu", "x", "y", number(7, 1))),
    "attribute": model(node("Relu", "x", "y", number(5, 1))),
    "attribute type": model(node("Relu", "x", "y", message(5, message(1, "a"), message(20, "x")))),
    "attribute int": model(node("Relu", "x", "y", message(5, message(1, "a"), message(3, "x")))),
    "attribute graph": model(node("If", "x", "y", message(5, message(1, "a"), number(6, 1)))),
    "tensor dims": model(ADD, tensor(5, tag(1, FIXED64) + b"12345678", FLOATS)),
    "tensor data_type": model(ADD, message(5, message(2, "x"), message(8, "w"), DIM, FLOATS)),
    "tensor raw_data": model(ADD, tensor(5, DIM, number(9, 1))),
    "tensor double_data": model(ADD, tensor(5, DIM, tag(10, FIXED32) + b"1234", dtype=11)),
    "opset version": GOOD + message(8, message(1, "d"), message(2, "x")),
    "metadata": model(node("Relu", "x", "y", number(9, 1))),
}.items():
    case(f"wrong wire type: {label}", "read", r"has wire type \d, expected \d", bad)
case(
    "wrong wire type: element type",
    "any",
    "has wire type",
    model(RELU, ports=message(11, message(1, "x"), message(2, message(1, message(1, "f")))) + OUTPUT),
)
case(
    "wrong wire type: dim",
    "any",
    "has wire type",
    model(
        RELU,
        ports=message(11, message(1, "x"), message(2, message(1, number(1, 1), message(2, number(1, 2))))) + OUTPUT,
    ),
)
