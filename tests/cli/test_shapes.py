"""The options --shape and --dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from onnx import helper

from given_inputs import ports
from hetero import Core
from hetero.cli.inputs import InputChoice
from hetero.model.types import Dim, Port
from model_zoo import make_model

Json = Callable[..., dict[str, Any]]
Invoke = Callable[..., Any]
TWO = [Port("x", np.dtype("f4"), ("batch", 3, "max", None)), Port("k", np.dtype("i8"), ("batch", "n"))]


def stated(*shapes: str, dims: Sequence[str] = (), inputs: Sequence[str] = (), of: Sequence[Port] = TWO) -> Any:
    return InputChoice(shapes=shapes, dims=dims, inputs=inputs).stated_shapes(of)


@pytest.mark.parametrize("text", ["2x3", "x=2,3", "x=2x3", "x[2,3]", "[2,3]", "x=[2, 3]", "2, 3", "x=2, 3"])
def test_ways_to_write_a_shape(text: str) -> None:
    assert stated(text, of=ports("batch", "length")) == {"x": (2, 3)}


@pytest.mark.parametrize("text", ["?x3", "?,3", "x=?x3", "x=-1,3", "-1x3", "x[?,3]", "x=[-1, 3]", "batch,3", "batchx3"])
def test_ways_to_leave_a_size_open(text: str) -> None:
    assert stated(text, of=ports("batch", "length")) == {"x": ("batch", 3)}
    assert [made.array.shape for made in InputChoice(shapes=[text]).make(ports("batch", "length"))] == [(1, 3)]


@pytest.mark.parametrize(
    ("shapes", "dims", "expected"),
    [
        (["x=?,3,8,?"], [], {"x": ("batch", 3, 8, None)}),
        (["x=?,3,8,?"], ["batch=2"], {"x": (2, 3, 8, None), "k": (2, "n")}),
        (["x=4,3,8,?"], [], {"x": (4, 3, 8, None), "k": (4, "n")}),
        (["x=batchx3xmaxx8"], [], {"x": ("batch", 3, "max", 8)}),
        (["x=n,3,n,8"], [], {"x": ("n", 3, "n", 8)}),
        (["x=n,3,n,8"], ["n=5"], {"x": (5, 3, 5, 8), "k": ("batch", 5)}),
        (["x=p,3,8,8,k=p,5"], [], {"x": ("p", 3, 8, 8), "k": ("p", 5)}),
        (["x[?,3,8,8],k[?,5]"], [], {"x": ("batch", 3, 8, 8), "k": ("batch", 5)}),
        (["x=1x3x8x8,k=1,5"], [], {"x": (1, 3, 8, 8), "k": (1, 5)}),
        (["k=?,5"], ["max=7"], {"k": ("batch", 5), "x": ("batch", 3, 7, None)}),
    ],
)
def test_several_inputs(shapes: list[str], dims: list[str], expected: dict[str, tuple[Dim, ...]]) -> None:
    assert stated(*shapes, dims=dims) == expected


@pytest.mark.parametrize(("shape", "advice"), [((), "fixed sizes"), ((2, 3), "fixed sizes"), ((2, None), "no symbols")])
def test_a_symbol_of_a_model_without_symbols(shape: tuple[Dim, ...], advice: str) -> None:
    with pytest.raises(click.UsageError, match=rf"no input has a dim 'batch'; the inputs have {advice}"):
        stated(dims=["batch=1"], of=[Port("x", np.dtype("f4"), shape)])


@pytest.mark.parametrize("text", ["a[0]=1,3", "a[0]=1x3", "a[0]=[1,3]"])
def test_brackets_in_names(text: str) -> None:
    assert stated(text, of=[Port("a[0]", np.dtype("f4"), None)]) == {"a[0]": (1, 3)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y=[2,3]", "no input 'y'"),
        ("y=2,3", "no input 'y'"),
        ("x==[2,3]", "no input"),
        ("x=[2,3", "expected NAME=1x3"),
        ("x=two", "expected NAME=1x3"),
        ("x=pxqx", "expected NAME=1x3"),
        ("x=2x3x", "expected NAME=1x3"),
        ("x=2,,3", "found ''"),
        ("x=2,3.5", "found '3.5'"),
        ("x=-2,3", "found '-2'"),
        ("x=2,1..4", "found '1..4'; ranges of sizes are not supported, . leaves a size open"),
        ("x=2,3,x=2,3", "the shape of 'x' is given twice"),
    ],
)
def test_shapes_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        stated(text, of=ports("batch", "length"))


@pytest.mark.parametrize(
    ("shapes", "dims", "words"),
    [
        (["x=?,?,8,8"], [], "axis 1 of 'x' is 3 in the model, so it cannot be open: give 3"),
        (["x=1,channels,8,8"], [], "axis 1 of 'x' is 3 in the model"),
        (["x=1,3,8,8", "k=2,5"], [], "--shape k=2,5 contradicts --shape x=1,3,8,8: axis 0 of 'k' is batch"),
        (["x=1,3,8,8"], ["batch=2"], "--shape x=1,3,8,8 contradicts --dim batch=2"),
        (["x=p,3,8,8"], ["batch=2"], "--shape x=p,3,8,8 contradicts --dim batch=2"),
        ([], ["batch=1", "batch=2"], "--dim batch=2 contradicts --dim batch=1"),
    ],
)
def test_contradictions(shapes: list[str], dims: list[str], words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        stated(*shapes, dims=dims)


def test_arrays_and_shapes(tmp_path: Path) -> None:
    """An array must fit --shape and --dim. It does not set the sizes that --shape leaves open."""
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 8, 8), np.float32))
    given = [f"x={tmp_path / 'x.npy'}"]
    assert stated(inputs=given) == {"x": (2, 3, 8, 8), "k": (2, "n")}
    assert stated("x=?,3,8,8", inputs=given) == {"x": ("batch", 3, 8, 8)}
    assert stated("k=?,5", inputs=given) == {"x": ("batch", 3, 8, 8), "k": ("batch", 5)}
    made = InputChoice(shapes=["x=?,3,8,8"], inputs=given).make(TWO)
    assert [entry.array.shape for entry in made] == [(2, 3, 8, 8), (2, 1)]
    for options in ({"shapes": ["x=1,3,8,8"]}, {"shapes": ["x=1,3,8"]}, {"dims": ["batch=1"]}, {"shapes": ["k=1,5"]}):
        with pytest.raises(
            click.UsageError, match=r"expected the shape .* from --shape or --dim, found \[2, 3, 8, 8\]"
        ):
            InputChoice(inputs=given, **options).make(TWO)


def test_commands_leave_sizes_open(hetero_json: Json, hetero: Invoke, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Abs", ["r"], ["y"])]
    path, shape = tmp_path / "net.onnx", ("--shape", "x=?,3,8,8")
    onnx.save(make_model(nodes, {"x": ["batch", 3, "h", "w"]}), path)
    for command in ("plan", "query"):
        hetero(command, path, "-d", "HETERO:TEMPLATE,CPU", *shape)
    assert hetero_json("run", path, *shape)["inputs"][0]["shape"] == [1, 3, 8, 8]
    hetero("export", path, "-o", "net.hetero", *shape)
    assert hetero_json("inspect", "net.hetero")["inputs"][0]["shape"] == ["batch", 3, 8, 8]
    assert hetero_json("run", "net.hetero", "--shape", "2x3x8x8")["inputs"][0]["shape"] == [2, 3, 8, 8]
    hetero("split", path, "-d", "CPU", *shape, "-o", "parts")
    assert [port.shape for port in Core().read_model("parts/subgraph_1.onnx").inputs] == [("batch", 3, 8, 8)]
