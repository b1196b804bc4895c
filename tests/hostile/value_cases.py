"""Numbers out of range, bytes that are no text, odd names, and too many of everything."""

from __future__ import annotations

from hostile.case import case
from hostile.encode import (
    ADD,
    DIM,
    FLOATS,
    GOOD,
    INPUT,
    OUTPUT,
    RELU,
    attribute,
    info,
    message,
    model,
    node,
    number,
    tensor,
)

# ---- numbers out of range

for version in (0, -1, 2**31, 2**62, 2**63):
    case(f"ir_version {version}", "read", "ir_version", model(RELU, ir=version))
for version in (-1, 2**31, 2**62, 2**63, 1000):
    case(f"opset {version}", "read", "opset .* is not supported", model(RELU, opset=version))
case(
    "opset 2^31 of another domain",
    "read",
    "expected 1 to 2147483647",
    GOOD + message(8, message(1, "d"), number(2, 2**31)),
)
case("no opset", "read", "does not import an opset", model(RELU, opset=0))
case("opset in two versions", "read", "imported in versions 17 and 16", GOOD + message(8, number(2, 16)))
case("opset twice", "fine", "", GOOD + message(8, number(2, 17)))
case(
    "opset under both names of ONNX",
    "read",
    "imported in versions",
    GOOD + message(8, message(1, "ai.onnx"), number(2, 9)),
)
for dtype in (0, 29, 255, 2**31, 2**32 + 1, 2**63, -1):
    case(f"data_type {dtype}", "read", "data_type", model(ADD, tensor(5, DIM, FLOATS, dtype=dtype)))
    case(
        f"element type {dtype} of an input",
        "any" if dtype else "bounded",
        "element type|",
        model(RELU, ports=info(11, "x", dtype) + OUTPUT),
    )
for kind in (15, 99, 2**31, 2**32 + 1, -1):
    case(
        f"attribute type {kind}",
        "read",
        "unknown type",
        model(node("Relu", "x", "y", attribute("a", kind, number(3, 1)))),
    )
case("data_location 7", "read", "data_location 7 is unknown", model(ADD, tensor(5, DIM, FLOATS, number(14, 7))))
case("an input of dims 2^62", "bounded", "", model(RELU, ports=info(11, "x", 1, (2**62, 2**62)) + OUTPUT))
case("an input of negative dims", "bounded", "", model(RELU, ports=info(11, "x", 1, (-1, -5)) + OUTPUT))
case("an input of rank 65", "any", "rank is above 64", model(RELU, ports=info(11, "x", 1, [1] * 65) + OUTPUT))
case(
    "an input of rank 500,000",
    "any",
    "rank is above 64",
    lambda _: model(RELU, ports=info(11, "x", 1, [1] * 500_000) + OUTPUT),
    large=True,
)

# ---- UTF-8

for label, text in {
    "a lone byte": b"\xff",
    "overlong": b"\xc0\x80",
    "a surrogate": b"\xed\xa0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "cut off": b"a\xe2\x82",
}.items():
    case(f"UTF-8, {label}: value", "read", "name is not UTF-8", model(message(1, message(1, text), message(4, "Relu"))))
    case(f"UTF-8, {label}: node name", "read", "not UTF-8", model(node("Relu", "x", "y", message(3, text))))
    case(f"UTF-8, {label}: op_type", "read", "not UTF-8", model(message(1, message(1, "x"), message(4, text))))
    case(f"UTF-8, {label}: domain", "read", "not UTF-8", model(node("Relu", "x", "y", message(7, text))))
    case(f"UTF-8, {label}: graph", "read", "not UTF-8", model(RELU, message(2, text)))
    case(
        f"UTF-8, {label}: initializer",
        "read",
        "not UTF-8",
        model(ADD, message(5, number(2, 1), message(8, text), DIM, FLOATS)),
    )
    case(f"UTF-8, {label}: opset", "read", "not UTF-8", GOOD + message(8, message(1, text), number(2, 1)))
    case(f"UTF-8, {label}: function", "read", "not UTF-8", GOOD + message(25, message(1, text)))
    case(
        f"UTF-8, {label}: affinity",
        "read",
        "not UTF-8",
        model(node("Relu", "x", "y", message(9, message(1, "affinity"), message(2, text)))),
    )
    symbol = message(2, message(1, number(1, 1), message(2, message(1, message(2, text)))))
    case(f"UTF-8, {label}: dim", "any", "not UTF-8", model(RELU, ports=message(11, message(1, "x"), symbol) + OUTPUT))
    strings = tensor(5, number(1, 1), message(6, text), dtype=8)
    case(
        f"UTF-8, {label}: string tensor",
        "look",
        "not UTF-8",
        model(node("Identity", "w", "y"), strings, ports=info(12, "y", 8, (1,))),
    )
    case(
        f"UTF-8, {label}: attribute name",
        "read",
        "not UTF-8",
        model(node("Relu", "x", "y", message(5, message(1, text), number(3, 1), number(20, 2)))),
    )
    inside = message(6, node("Relu", [], []) + message(1, message(1, text), message(2, "o"), message(4, "Relu")))
    case(
        f"UTF-8, {label}: nested graph",
        "read",
        "not UTF-8",
        model(node("If", "x", "y", message(5, message(1, "then_branch"), inside, number(20, 5)))),
    )

# ---- names

for label, name in {
    "NUL": "a\0b",
    "newline": "a\nb\r",
    "injection": '"];evil[label=<<b>>];//{}%s%n',
    "path": "../../../../etc/x",
    "absolute path": "/etc/passwd",
    "right to left": "\u202egpj.exe",
    "spaces": "   ",
    "a dot": ".",
    "number": "0",
    "a million bytes": "n" * 1_000_000,
    "ten million bytes": "n" * 10_000_000,
}.items():
    case(
        f"a name: {label}",
        "fine",
        "",
        lambda _, name=name: model(
            node("Add", ("x", "w"), (name,), message(3, name)), node("Relu", (name,), ("y",)), tensor(5, DIM, FLOATS)
        ),
    )
case(
    "a name of 16 MiB",
    "read",
    "more than 16777215 bytes",
    lambda _: model(node("Relu", "x", "y", message(3, "n" * 2**24))),
)
case("a value of 16 MiB", "read", "more than 16777215 bytes", lambda _: model(node("Relu", ("n" * 2**24,), "y")))
case("a graph named by a path", "fine", "", model(ADD, tensor(5, DIM, FLOATS), message(2, "../../x\0y")))
case(
    "a domain of 1 MB",
    "read",
    "does not import an opset",
    lambda _: model(node("Relu", "x", "y", message(7, "d" * 1_000_000))),
)
case("an op of 1 MB", "compile", "", lambda _: model(node("R" * 1_000_000)))
case("an unknown op in ONNX's domain", "compile", "Frob", model(node("Frob")))
case(
    "affinity of 1 MB",
    "compile",
    "",
    lambda _: model(node("Relu", "x", "y", message(9, message(1, "affinity"), message(2, "D" * 1_000_000)))),
)
case(
    "affinity twice",
    "bounded",
    "",
    model(node("Relu", "x", "y", *(message(9, message(1, "affinity"), message(2, d)) for d in ("CPU", "NPU")))),
)

# ---- counts

case("a million empty nodes", "read", "node 0: the node has no op_type", lambda _: model(message(1) * 1_000_000))
case("half a million inputs left out", "bounded", "", lambda _: model(node("Relu", [""] * 500_000)), large=True)
case(
    "half a million outputs left out",
    "bounded",
    "",
    lambda _: model(node("Relu", "x", ["y"] + [""] * 500_000)),
    large=True,
)
case(
    "a hundred thousand readers of one input", "bounded", "", lambda _: model(node("Sum", ["x"] * 100_000)), large=True
)
case(
    "a million ints",
    "any",
    "",
    lambda _: model(node("Transpose", "x", "y", attribute("perm", 7, message(8, b"\0" * 1_000_000)))),
)
case(
    "a hundred thousand attributes",
    "any",
    "given twice|",
    lambda _: model(node("Relu", "x", "y", attribute("a", 2, number(3, 1)) * 100_000)),
)
case(
    "attributes without names",
    "read",
    "an attribute has no name",
    lambda _: model(node("Relu", "x", "y", message(5) * 100_000)),
)
case("four thousand times one opset", "fine", "", lambda _: GOOD + message(8, message(1, "d"), number(2, 1)) * 4000)
case(
    "sixty thousand functions of one name",
    "read",
    "function d::f is defined twice",
    lambda _: GOOD + message(25, message(1, "f"), message(10, "d")) * 60_000,
)
case(
    "five hundred thousand dims",
    "read",
    "rank above 64",
    lambda _: model(ADD, tensor(5, number(1, 1) * 500_000, FLOATS)),
)
case(
    "dims packed: five hundred thousand",
    "read",
    "rank above 64",
    lambda _: model(ADD, tensor(5, message(1, b"\1" * 500_000), FLOATS)),
)
case(
    "a hundred thousand outputs of one name",
    "read",
    "listed twice",
    lambda _: model(RELU, ports=INPUT + OUTPUT * 100_000),
)
case(
    "a hundred thousand inputs of one name",
    "read",
    "defined twice",
    lambda _: model(RELU, ports=INPUT * 100_000 + OUTPUT),
)
case("a hundred thousand value infos of one name", "fine", "", lambda _: model(RELU, info(13, "x") * 100_000))
case(
    "a hundred thousand value infos of nothing", "fine", "", lambda _: model(RELU, info(13, "z", 1, (2**62,)) * 100_000)
)
case(
    "a chain of twenty thousand backwards",
    "bounded",
    "",
    lambda _: model(
        *(
            node("Relu", (f"t{i}" if i else "x",), (f"t{i + 1}" if i < 19_999 else "y",))
            for i in reversed(range(20_000))
        )
    ),
    large=True,
)
case(
    "a cycle of a hundred thousand",
    "read",
    "cycle",
    lambda _: model(*(node("Relu", (f"t{i}",), (f"t{(i + 1) % 100_000}",)) for i in range(100_000)), ports=b""),
    large=True,
)
case(
    "keys that push each other aside",
    "bounded",
    "",
    lambda _: model(
        *(node("Relu", ("x",), (f"v{i + 1}",), message(3, f"v{i}") if i else b"") for i in range(5_000)), ports=INPUT
    ),
)
