"""Nodes that compute sizes."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from hetero.model.constant_nodes import constant_nodes
from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.model.size_nodes import size_nodes


def model_of(nodes: str, x: str = "1,8,4,4") -> Model:
    text = f"""<ir_version: 8, opset_import: ["": 17, "mine": 1]>
        g (float[{x}] x, int64[1] i) => (y) <int64[1] one = {{1}}, int64[1] two = {{2}}> {{ {nodes} }}"""
    return read_model(onnx.parser.parse_model(text))


def found(model: Model) -> list[str]:
    constant = constant_nodes(model)
    nodes = size_nodes(model, np.zeros(model.num_nodes, np.bool_) if constant is None else constant)
    return [model.key_of(node) for node in np.flatnonzero(nodes).tolist()]


HALF = "s = Shape(x) c = Gather(s, one) h = Div(c, two) y = Slice(x, one, h, one)"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = Relu(x)", []),
        (HALF, ["s", "c", "h"]),
        ("r = Relu(x) s = Size(r) t = Cast<to=7>(s) b = Equal(t, s) y = Where(b, x, x)", ["s", "t", "b"]),
        ("n = Neg(one) s = Shape(x) y = Gather(s, n)", ["s", "y"]),  # n depends on constants only
        ("s = Shape(x) a = Gather(s, i) y = Add(a, two)", ["s"]),  # i is an input
        ("s = Shape(x) f = Cast<to=1>(s) g = Floor(f) y = Cast<to=7>(g)", ["s"]),  # f is a float
        ("s = Shape(x) e = Unsqueeze(s, one) y = Squeeze(e)", ["s"]),  # e has rank 2
        ("p = NonZero(x) s = Shape(p) y = Add(s, one)", []),  # of a size that the data determine
        ("m = mine.Frob(x) s = Shape(m) y = Add(s, one)", []),
        ("s = Shape(x) m = mine.Frob(s) y = Add(m, one)", ["s"]),
        ("s = Shape(x) y, l = Split<axis = 0, num_outputs = 2>(s)", ["s", "y"]),
        ("s = Shape(x) b = Cast<to=9>(s) y = If(b) <then_branch = t () => (o) { o = Identity(s) }, "
         "else_branch = e () => (q) { q = Identity(s) }>", ["s", "b"]),
    ],
)  # fmt: skip
def test_nodes(nodes: str, expected: list[str]) -> None:
    model = model_of(nodes)
    assert found(model) == expected


def test_sizes_must_be_known() -> None:
    assert found(model_of(HALF, "1,n,4,4")) == []
    stated = model_of(HALF, "1,n,4,4").with_types({"x": (None, (1, 8, 4, 4))})
    assert found(stated) == ["s", "c", "h"]


def test_sizes_may_follow_from_computed_sizes() -> None:
    nodes = f"{HALF.replace('y =', 'half =')} t = Shape(half) d = Gather(t, one) y = Sub(d, one)"
    model = model_of(nodes)
    proto = model.to_proto()
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("half", 1, ["unk__0", "unk__1", 4, 4]))
    assert found(model) == found(read_model(proto)) == ["s", "c", "h", "t", "d", "y"]
