"""The argument ``shapes``: sizes by input, by position and by symbol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from model_zoo import make_model


@pytest.fixture
def model(core: hetero.Core) -> hetero.Model:
    """y = a + b with a: [n, m], b: [n, 1], and k: [k] beside."""
    nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Relu", ["k"], ["z"])]
    return core.read_model(make_model(nodes, {"a": ["n", "m"], "b": ["n", 1], "k": ["k"]}, ["y", "z"]))


@pytest.mark.parametrize(
    ("shapes", "a", "b", "k"),
    [
        (None, ("n", "m"), ("n", 1), ("k",)),
        ({}, ("n", "m"), ("n", 1), ("k",)),
        ({"n": 2}, (2, "m"), (2, 1), ("k",)),
        ({"n": 2, "m": 3}, (2, 3), (2, 1), ("k",)),
        ({"n": 0}, (0, "m"), (0, 1), ("k",)),
        ({"a": (2, 3)}, (2, 3), (2, 1), ("k",)),
        ({"a": (2, None), "m": 3}, (2, 3), (2, 1), ("k",)),
        ({"a": (2, None), "n": 2}, (2, "m"), (2, 1), ("k",)),
        ({"n": np.int64(2)}, (2, "m"), (2, 1), ("k",)),
        ({"a": np.array([2, 3])}, (2, 3), (2, 1), ("k",)),
        ({"k": 4}, ("n", "m"), ("n", 1), (4,)),  # the name of an input and of a symbol
        ({"k": (4,)}, ("n", "m"), ("n", 1), (4,)),
        ({"k": [4], "n": 5}, (5, "m"), (5, 1), (4,)),
        ([(2, 3), (2, 1), (4,)], (2, 3), (2, 1), (4,)),
        (((2, 3), None, None), (2, 3), (2, 1), ("k",)),
        ([(-1, 3), [-1, 1], ["other"]], ("n", 3), ("n", 1), ("other",)),
        ({0: (2, -1), "k": (np.int64(-1),)}, (2, "m"), (2, 1), ("k",)),
        ({np.int64(2): (4,)}, ("n", "m"), ("n", 1), (4,)),
        ({"a": ("?", 3), "k": ["?"]}, ("n", 3), ("n", 1), ("k",)),
        ({"a": ("p", 3), "b": ("p", 1)}, ("p", 3), ("p", 1), ("k",)),
        ({"a": ("k", 3), "k": 4}, (4, 3), ("n", 1), (4,)),
    ],
)
def test_sizes(core: hetero.Core, model: hetero.Model, shapes: Any, a: Any, b: Any, k: Any) -> None:
    assert [port.shape for port in core.compile_model(model, "CPU", shapes=shapes).inputs] == [a, b, k]
    plan = core.plan(model, "HETERO:TEMPLATE,CPU", shapes=shapes)
    assert [port.shape for port in plan.original.inputs] == [a, b, k]
    assert len(core.query_model(model, "CPU", shapes=shapes)) == 2


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"N": 2}, r"no input 'N' \(did you mean n\?\); its inputs: a, b, k; its symbols: k, m, n"),
        ({"n": -1}, "expected a size of 0 or more for 'n', found -1"),
        ({"n": 2**63}, "expected a size of 0 or more"),
        ({"n": "4"}, "expected a size of 0 or more for 'n', found '4'"),
        ({"n": True}, "expected a size of 0 or more for 'n', found True"),
        ({"n": [4]}, r"expected a size of 0 or more for 'n', found \[4\]"),
        ({"n": 2.0}, "expected a size of 0 or more for 'n', found 2.0"),
        ({"a": 2}, r"expected a sequence of sizes such as \(1, 3, 224, 224\) for 'a', found 2"),
        ({"a": "2,3"}, "expected a sequence of sizes .* for 'a', found '2,3'"),
        *(
            ({"a": (text, 3)}, f"expected a size, None for an open size, or a symbol .* 'a', found '{text}'")
            for text in ("", "2", "-1", "1..4", " n", "None")
        ),
        *(
            ({"b": ("n", dim)}, r"axis 1 of input 'b' is 1 in the model, so it cannot be open, .*; give 1, or export")
            for dim in (None, -1, "?", "p", np.int64(-1))
        ),
        ({"a": ("p", 3), "n": 2}, r"axis 0 of input 'a' is n = 2, found \['p', 3\]"),
        ({"a": ("p", 3), "b": (2, 1)}, r"axis 0 of input 'a' is n = 2, found \['p', 3\]"),
        ({"n": 2, "a": (3, 4)}, "n = 3 in input 'a', and n = 2"),
        ({"a": (2, 3), "b": (3, 1)}, "n = 3 in input 'b', and n = 2 in 'a'"),
        ({"a": (-2, 3)}, r"does not fit input 'a', .*; sizes are from 0 to 2\^63 - 1"),
        ({"a": (2**63, 3)}, r"does not fit input 'a', .*; sizes are from 0 to 2\^63 - 1"),
        ({"a": (-1.0, 3)}, "does not fit input 'a'"),
        ({"a": ([1, 2], 3)}, "does not fit input 'a'"),
        ({3: (2, 3)}, "has no input 3"),
        ({-1: (4,)}, "has no input -1"),
        ({True: (2, 1)}, "has no input True"),
        ({0: (2, 3), "a": (2, 3)}, "two keys name the input 'a'"),
        ([(2, 3), (2, 1)], "expected a shape for each of the inputs a, b, k, found"),
        ((2, 3, 4), "expected a sequence of sizes .* for 'a', found 2"),
        ("abc", "expected a mapping such as .*, found 'abc'"),
        (5, "expected a mapping such as .*, found 5"),
    ],
)
def test_refused(core: hetero.Core, model: hetero.Model, shapes: Any, message: str) -> None:
    with pytest.raises(hetero.PropertyError, match=message):
        core.plan(model, "HETERO:TEMPLATE,CPU", shapes=shapes)


def test_other_sizes_raise(core: hetero.Core, model: hetero.Model) -> None:
    compiled = core.compile_model(model, shapes={"n": 2, "k": 1})
    one = np.ones(1, np.float32)
    assert compiled([np.ones((2, 3), np.float32), np.ones((2, 1), np.float32), one])["y"].shape == (2, 3)
    with pytest.raises(hetero.InferenceError, match=r"expected float32 .2, m., found shape .3, 3."):
        compiled([np.ones((3, 3), np.float32), np.ones((3, 1), np.float32), one])


@pytest.mark.parametrize("shapes", [(2, -1), [2, None], np.array([2, -1]), [(2, -1)], {0: (2, -1)}])
def test_the_shape_of_the_only_input(core: hetero.Core, shapes: Any) -> None:
    one = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", "m"]}))
    assert core.compile_model(one, shapes=shapes).inputs[0].shape == (2, "m")
    for wrong in ((2,), [(2, 3), (2, 3)], [None, None], (2, (3,)), []):
        with pytest.raises(hetero.PropertyError, match="shapes: "):
            core.compile_model(one, shapes=wrong)
