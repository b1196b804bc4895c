"""Objects in notebooks: HTML without markup from models, and plain texts without addresses."""

from __future__ import annotations

import itertools
from html.parser import HTMLParser

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.base.notebook import html_table
from model_zoo import make_model

NASTY = "<script>alert('x')</script>\"&\u202e\x1b[31m"


class Reader(HTMLParser):
    """The tags and the texts of a table; fails for a tag that is not closed, and for any attribute but colspan."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"colspan"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    assert reader.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert not any(ord(character) < 32 or character == "\u202e" for character in html)
    return reader


def test_tables() -> None:
    reader = read(html_table(NASTY, [NASTY, "b"], [(NASTY, None), (1, "x" * 10_000)], 2))
    assert any("<script>alert('x')</script>" in text for text in reader.text)
    assert max(map(len, reader.text)) <= 200
    endless = html_table("t", ["n"], ((i,) for i in itertools.count()), 1_000_041)
    assert "… 1,000,001 more" in read(endless).text
    assert "more" not in html_table("t", ["n"], [(1,)], 1)


@pytest.fixture
def nasty(core: hetero.Core) -> hetero.Model:
    nodes = [helper.make_node("Relu", [f"{NASTY}x"], [f"{NASTY}y"], name=f"{NASTY}n")]
    return core.read_model(make_model(nodes, {f"{NASTY}x": [2, 3]}, (f"{NASTY}y",), name=NASTY))


def test_everything_is_escaped(core: hetero.Core, nasty: hetero.Model) -> None:
    for device in ("CPU", "HETERO:FPGA,CPU", "MULTI:CPU,TEMPLATE", "AUTO:CPU"):
        compiled = core.compile_model(nasty, device, {"PERF_COUNT": True})
        request = compiled.create_infer_request()
        outputs = request.infer({f"{NASTY}x": np.ones((2, 3), np.float32)})
        for thing in (nasty, compiled, outputs, request, core, core.devices()[0]):
            assert len(read(thing._repr_html_()).text) > 2, thing
            assert " at 0x" not in repr(thing)


def test_contents(core: hetero.Core) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    model = core.read_model(make_model(nodes))
    assert "Relu × 2" in read(model._repr_html_()).text
    assert "[2, 3]" in read(model._repr_html_()).text
    compiled = core.compile_model(model, "HETERO:FPGA,CPU")
    assert {"runs on", "FPGA"} <= set(read(compiled._repr_html_()).text)
    assert "no inference with PERF_COUNT" in "".join(read(compiled.create_infer_request()._repr_html_()).text)
    outputs = compiled(np.float32([[1, 2, 3], [4, 5, 6]]))
    assert {"y", "float32", "[2, 3]", "1", "3.5", "6"} <= set(read(outputs._repr_html_()).text)
    assert "CPU (0, 1)" in "".join(read(core._repr_html_()).text) or "CPU" in read(core._repr_html_()).text[2]


def test_values_of_other_kinds(core: hetero.Core) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("Cast", ["x"], ["t"], to=TensorProto.STRING),
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("Slice", ["x", "zero", "zero"], ["e"]),
    ]
    model = make_model(nodes, outputs=(), weights={"zero": np.array([0])})
    item = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    model.graph.output.append(helper.make_value_info("s", helper.make_sequence_type_proto(item)))
    kinds = {"t": TensorProto.STRING, "b": TensorProto.BFLOAT16, "e": TensorProto.FLOAT}
    model.graph.output.extend(helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items())
    outputs = core.compile_model(model, "TEMPLATE")(np.ones((2, 3), np.float32))
    text = read(outputs._repr_html_()).text
    assert {"2 arrays", "object", "bfloat16", "[0, 3]"} <= set(text)


def test_no_text_has_an_address(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    compiled = core.compile_model(diamond, plan)
    request = compiled.create_infer_request()
    things = [
        core, diamond, diamond.nodes, diamond.nodes[0], diamond.initializers, diamond.inputs[0], plan,
        compiled, request, request.profiling_info, compiled.get_property("EXECUTION_DEVICES"), *core.devices(),
        hetero.Plan.from_json(plan.to_json(), "p"), plan.subgraphs, plan.values, plan.totals, plan.explain(
            diamond.key_of(0)
        ), plan.what_if(), core.get_default_context("CPU"),
    ]  # fmt: skip
    for thing in things:
        assert " at 0x" not in repr(thing), thing
        assert " at 0x" not in str(thing), thing
