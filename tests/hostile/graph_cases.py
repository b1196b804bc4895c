"""Nested messages, graphs that contradict themselves, and function bombs."""

from __future__ import annotations

import onnx
from onnx import helper

from hostile.case import case
from hostile.encode import (
    ADD,
    DIM,
    FIXED32,
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
    proto,
    tag,
    tensor,
    wrapped,
)

make = helper.make_node
value = helper.make_tensor_value_info

# ---- nesting

IF_TAIL = message(12, message(1, "o"))


def nested_if(depth: int) -> bytes:
    """A graph that is the branch of an If, which is in the branch of an If, ..."""
    leaf = message(1, message(1, "x"), message(2, "o"), message(4, "Relu")) + IF_TAIL
    layers = [
        (b"", b"", 6),
        (message(1, "then_branch"), number(20, 5), 5),
        (message(2, "o") + message(4, "If"), b"", 1),
        (b"", IF_TAIL, 0),
    ]
    # field 0 stands for "no message around it": only the graph's other fields are added
    return _nested(leaf, layers * depth)


def _nested(core: bytes, layers: list[tuple[bytes, bytes, int]]) -> bytes:
    merged: list[tuple[bytes, bytes, int]] = []
    tail = b""
    for head, after, field in layers:
        if field == 0:
            tail += after
            continue
        merged.append((head, tail + after, field))
        tail = b""
    return wrapped(core, merged) + tail


def nested_types(depth: int, field: int) -> bytes:
    """A TypeProto: sequence (4), map (5) or optional (9) of such a type, ..."""
    element = 2 if field == 5 else 1
    head = number(1, 7) if field == 5 else b""
    return wrapped(message(1, number(1, 1)), [(head, b"", element), (b"", b"", field)] * depth)


for depth in (32, 1000, 100_000):
    case(
        f"If in If, {depth} deep",
        "read",
        "nested more than 31 deep",
        lambda _, depth=depth: model(nested_if(depth), ports=INPUT + message(12, message(1, "o"))),
        large=depth > 1000,
    )
    for label, field in (("sequences", 4), ("maps", 5), ("optionals", 9)):
        case(
            f"{label}, {depth} deep",
            "bounded",
            "",
            lambda _, depth=depth, field=field: model(
                RELU, ports=message(11, message(1, "x"), message(2, nested_types(depth, field))) + OUTPUT
            ),
            large=depth > 1000,
        )
    case(
        f"unknown messages, {depth} deep",
        "fine",
        "",
        lambda _, depth=depth: model(ADD, tensor(5, DIM, FLOATS), wrapped(b"", [(b"", b"", 99)] * depth)),
        large=depth > 1000,
    )
    case(
        f"If in If in a function, {depth} deep",
        "bounded",
        "",
        lambda _, depth=depth: model(
            node("F", "x", "y", message(7, "d")),
            more=message(8, message(1, "d"), number(2, 1))
            + message(25, message(1, "F"), message(10, "d"), message(4, "x"), message(5, "o"), nested_if_nodes(depth)),
        ),
        large=depth > 1000,
    )
    case(
        f"type attributes, {depth} deep",
        "any" if depth > 32 else "bounded",
        "",
        lambda _, depth=depth: model(
            node("Optional", "x", "y", attribute("type", 13, message(14, nested_types(depth, 4))))
        ),
        large=depth > 1000,
    )
    case(
        f"value infos of sequences, {depth} deep",
        "bounded",
        "",
        lambda _, depth=depth: model(
            RELU,
            message(13, message(1, "y"), message(2, nested_types(depth, 4))),
            ports=INPUT + message(12, message(1, "y")),
        ),
        large=depth > 1000,
    )
case(
    "training graphs, 100,000 deep",
    "fine",
    "",
    lambda _: GOOD + message(20, message(1, nested_if(100_000))),
    large=True,
)
case(
    "metadata, 100,000 deep",
    "fine",
    "",
    lambda _: GOOD + message(14, wrapped(b"", [(b"", b"", 99)] * 100_000)),
    large=True,
)


def nested_if_nodes(depth: int) -> bytes:
    """The same as field 7 (nodes) of a function."""
    inside = nested_if(depth - 1)
    branch = attribute("then_branch", 5, message(6, inside))
    return message(7, message(1, "x"), message(2, "o"), message(4, "If"), branch)


# ---- graphs that contradict themselves

CONSTANT_VALUE = attribute("value", 4, message(5, number(2, 1), DIM, FLOATS))
for label, pattern, bad in (
    ("a value made twice", "defined twice", model(RELU, RELU)),
    ("a node that makes its output twice", "defined twice", model(node("Split", "x", "yy"))),
    ("an output that is an input", "defined twice", model(node("Relu", "x", "x"))),
    ("an initializer that a node makes", "defined twice", model(node("Relu", "x", "w"), tensor(5, DIM, FLOATS))),
    ("an initializer twice", "defined twice", model(ADD, tensor(5, DIM, FLOATS) * 2)),
    ("a graph input twice", "defined twice", model(RELU, ports=INPUT * 2 + OUTPUT)),
    ("a graph output twice", "listed twice", model(RELU, ports=INPUT + OUTPUT * 2)),
    ("nothing makes an output", "nothing produces a graph output", model(node("Relu", "x", "z"))),
    ("nothing makes an input", "nothing produces a value", model(node("Relu", ["z"], "y"))),
    ("a node that reads itself", "cycle", model(node("Add", "xy", "y"))),
    (
        "a cycle of three",
        "cycle",
        model(node("Relu", "a", "b"), node("Relu", "b", "c"), node("Relu", "c", "a"), ports=b""),
    ),
    ("no op_type", "no op_type", model(message(1, message(1, "x"), message(2, "y")))),
    ("neither name nor output", "neither a name nor an output", model(node("Relu", "x", []), ports=INPUT)),
    ("an initializer without a name", "initializer has no name", model(ADD, tensor(5, DIM, FLOATS, name=""))),
    ("an input without a name", "the value has no name", model(RELU, ports=message(11) + OUTPUT)),
    ("an output without a name", "the value has no name", model(RELU, ports=INPUT + message(12))),
    ("a value info without a name", "the value has no name", model(RELU, message(13))),
    ("a type twice", "type is given twice", model(RELU, ports=message(11, message(1, "x"), message(2) * 2) + OUTPUT)),
    ("a function without a name", "function has no name", GOOD + message(25, message(10, "d"))),
    (
        "an attribute of a function outside of one",
        "stands outside of functions",
        model(node("Relu", "x", "y", message(5, message(1, "a"), message(21, "b")))),
    ),
    (
        "an attribute of two kinds",
        "another type than it states",
        model(node("Relu", "x", "y", attribute("a", 2, number(3, 1), tag(2, FIXED32) + b"1234"))),
    ),
    (
        "a tensor under type INT",
        "another type than it states",
        model(node("Relu", "x", "y", attribute("a", 2, message(5, number(2, 1))))),
    ),
    (
        "a tensor attribute twice",
        "field 5 of an attribute is given twice",
        model(node("Constant", [], "y", attribute("value", 4, message(5, number(2, 1)) * 2)), ports=OUTPUT),
    ),
    ("a Constant with an input", "needs no input, one output", model(node("Constant", "x", "y", CONSTANT_VALUE))),
    (
        "a Constant without an output",
        "needs no input, one output",
        model(node("Constant", [], [], CONSTANT_VALUE), ports=b""),
    ),
    ("a Constant with two outputs", "needs no input, one output", model(node("Constant", [], "yz", CONSTANT_VALUE))),
    ("a Constant without a value", "and one attribute", model(node("Constant", [], "y"), ports=OUTPUT)),
    (
        "a Constant with two values",
        "and one attribute",
        model(node("Constant", [], "y", CONSTANT_VALUE * 2), ports=OUTPUT),
    ),
    (
        "a Constant with an unknown attribute",
        "unknown or of the wrong type: 'v'",
        model(node("Constant", [], "y", attribute("v", 2, number(3, 1))), ports=OUTPUT),
    ),
    (
        "a Constant whose value is an int",
        "unknown or of the wrong type",
        model(node("Constant", [], "y", attribute("value", 2, number(3, 1))), ports=OUTPUT),
    ),
    (
        "a Constant whose value is missing",
        "unknown or of the wrong type",
        model(node("Constant", [], "y", attribute("value", 4)), ports=OUTPUT),
    ),
    (
        "a Constant of raw data too short",
        "raw_data has 4 bytes",
        model(
            node("Constant", [], "y", attribute("value", 4, message(5, number(2, 1), DIM, message(9, "abcd")))),
            ports=OUTPUT,
        ),
    ),
    (
        "nested: a name made twice",
        "defined twice in a nested graph",
        model(node("If", "x", "y", attribute("then_branch", 5, message(6, RELU, RELU)))),
    ),
    (
        "nested: nothing makes a value",
        "nothing produces a value that is read: 'z'",
        model(node("If", "x", "y", attribute("then_branch", 5, message(6, node("Relu", "z", "o"))))),
    ),
    (
        "nested: reads its own result",
        "cycle",
        model(node("If", "x", "y", attribute("then_branch", 5, message(6, node("Relu", "y", "o"))))),
    ),
    (
        "nested: an attribute of a function",
        "stands outside of functions",
        model(
            node(
                "If",
                "x",
                "y",
                attribute(
                    "then_branch", 5, message(6, node("Relu", "x", "o", message(5, message(1, "a"), message(21, "b"))))
                ),
            )
        ),
    ),
    ("nested: a graph twice", "given twice", model(node("If", "x", "y", attribute("then_branch", 5, message(6) * 2)))),
):
    case(label, "read", pattern, bad)
case(
    "an attribute twice",
    "look",
    "attribute 'alpha' is given twice",
    model(node("Elu", "x", "y", attribute("alpha", 1, tag(2, FIXED32) + b"\0\0\0\0") * 2)),
)
case("a required attribute missing", "any", "", model(node("Concat", "xx", "y")))
case(
    "two nodes of one name",
    "fine",
    "",
    model(node("Relu", "x", "a", message(3, "n")), node("Neg", "a", "y", message(3, "n"))),
)
case("an output that is an initializer", "fine", "", model(tensor(5, DIM, FLOATS, name="y"), ports=OUTPUT))
case("an output that is an input of the graph", "bounded", "", model(ports=INPUT + info(12, "x")))
case("no nodes and no outputs", "bounded", "", model(ports=b""))
case(
    "a node that reads nothing and makes nothing known",
    "any",
    "",
    model(node("Relu", [], [], message(3, "n")), ports=b""),
)

# ---- functions


def calls(count: int, wide: int = 2, last: str = "Relu") -> onnx.ModelProto:
    """Functions f0..f<count - 1>, each of which calls the next ``wide`` times; the last calls ``last``."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    functions = []
    for i in range(count):
        called, domain = (f"f{i + 1}", "d") if i < count - 1 else (last, "d" if last.startswith("f") else "")
        names = ["a", *(f"b{j}" for j in range(wide))]
        body = [make(called, [names[j]], [names[j + 1]], domain=domain) for j in range(wide)]
        functions.append(helper.make_function("d", f"f{i}", ["a"], [names[-1]], body, opsets))
    return proto([make("f0", ["x"], ["y"], domain="d")], functions=functions, domains=["d"])


def function_of(*body: onnx.NodeProto, outputs: tuple[str, ...] = ("b",), **more: object) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    return helper.make_function("d", "f", ["a"], list(outputs), list(body), opsets, **more)


CALL = make("f", ["x"], ["y"], domain="d")
case(
    "functions: seventy thousand",
    "read",
    "more than 65536 functions",
    lambda _: model(RELU, more=b"".join(message(25, message(1, str(i))) for i in range(70_000))),
    large=True,
)
case(
    "opset imports: five thousand",
    "read",
    "more than 4096 opset imports",
    lambda _: model(RELU, more=b"".join(message(8, message(1, f"d{i}"), number(2, 1)) for i in range(5000))),
)
case("functions: 2^20 calls", "compile", "MAX_INLINED_NODES", lambda _: calls(20))
case("functions: 2^60 calls", "compile", "MAX_INLINED_NODES", lambda _: calls(60))
case("functions: 100^50 calls", "compile", "MAX_INLINED_NODES", lambda _: calls(50, 100))
case("functions: a chain of a thousand", "compile", "MAX_CALL_DEPTH", lambda _: calls(1000, 1))
case("functions: a chain of ten thousand", "compile", "MAX_CALL_DEPTH", lambda _: calls(10_000, 1), large=True)
case("functions: one that calls itself", "compile", "calls itself", lambda _: calls(1, 1, "f0"))
case("functions: one that calls itself twice", "compile", "calls itself", lambda _: calls(1, 2, "f0"))
case("functions: two that call each other", "compile", "calls itself", lambda _: calls(2, 1, "f0"))
case("functions: a ring of a thousand", "compile", "calls itself", lambda _: calls(1000, 1, "f0"))
case(
    "functions: a result that nothing makes",
    "compile",
    "no node computes its output 'b'",
    lambda _: proto([CALL], functions=[function_of(make("Relu", ["a"], ["c"]))], domains=["d"]),
)
case(
    "functions: a value that nothing makes",
    "compile",
    "is read before it is computed",
    lambda _: proto([CALL], functions=[function_of(make("Relu", ["z"], ["b"]))], domains=["d"]),
)
case(
    "functions: a value made twice",
    "compile",
    "value 'b' is defined twice",
    lambda _: proto(
        [CALL], functions=[function_of(make("Relu", ["a"], ["b"]), make("Neg", ["a"], ["b"]))], domains=["d"]
    ),
)
case(
    "functions: a cycle",
    "compile",
    "is read before it is computed",
    lambda _: proto(
        [CALL], functions=[function_of(make("Add", ["a", "b"], ["c"]), make("Relu", ["c"], ["b"]))], domains=["d"]
    ),
)
case(
    "functions: a call to nothing",
    "compile",
    "not supported by any device",
    lambda _: proto(
        [make("g", ["x"], ["y"], domain="d")], functions=[function_of(make("Relu", ["a"], ["b"]))], domains=["d"]
    ),
)
case(
    "functions: too many arguments",
    "compile",
    "with 2 inputs, but the function has 1",
    lambda _: proto(
        [make("f", ["x", "x"], ["y"], domain="d")], functions=[function_of(make("Relu", ["a"], ["b"]))], domains=["d"]
    ),
)
case(
    "functions: too many results",
    "compile",
    "with 2 outputs, but the function has 1",
    lambda _: proto(
        [make("f", ["x"], ["y", "z"], domain="d")], functions=[function_of(make("Relu", ["a"], ["b"]))], domains=["d"]
    ),
)
case(
    "functions: a body that is no message",
    "compile",
    "Error parsing message",
    model(
        node("f", "x", "y", message(7, "d")),
        more=message(8, message(1, "d"), number(2, 1))
        + message(25, message(1, "f"), message(10, "d"), message(7, b"\xff\xff")),
    ),
)
case(
    "functions: unused and broken",
    "bounded",
    "",
    GOOD + message(25, message(1, "f"), message(10, "d"), message(7, b"\xff\xff")),
)
case(
    "functions: calls through If",
    "compile",
    "calls itself",
    lambda _: proto(
        [CALL],
        functions=[
            function_of(
                make(
                    "If",
                    ["a"],
                    ["b"],
                    then_branch=helper.make_graph(
                        [make("f", ["a"], ["o"], domain="d")], "t", [], [value("o", 1, None)]
                    ),
                )
            )
        ],
        domains=["d"],
    ),
)
case(
    "functions: the name of an ONNX operator",
    "bounded",
    "",
    lambda _: proto(
        [make("Relu", ["x"], ["y"])],
        functions=[
            helper.make_function("", "Relu", ["a"], ["b"], [make("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)])
        ],
    ),
)
