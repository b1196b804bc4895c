"""The report in a headless Chromium: clicked through, searched, sorted, hovered, by keys, with hostile names."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from browser import Browser, Page
from graphs import EXPERTS, TRANSFORMER
from hetero.base.palette import COLORS
from hetero.plugin.profile import Profile
from hetero.report.html import write_report
from model_zoo import make_model
from report_cases import HOSTILE_NAMES, blocks, chain

Run = Callable[[hetero.Model, str | hetero.Plan], Profile]
Open = Callable[..., Page]
DEVICES = "HETERO:FPGA,CPU"

pytestmark = pytest.mark.skipif(
    Browser.find() is None,
    reason="no Chromium: on Debian apt-get install chromium-headless-shell, or name one in HETERO_CHROMIUM",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser(Browser.find() or "")
    yield browser
    browser.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """A plan, and a run of it or none -> its report, shown. Whatever a page complains of fails the test."""
    with contextlib.ExitStack() as pages:

        def open_(plan: hetero.Plan, profile: Profile | Sequence[Profile] | None = None, **options: int | bool) -> Page:
            compress = options.pop("compress", None)
            write_report(plan, tmp_path / "report.html", profile, compress=compress)
            page = browser.page(**options)
            pages.callback(page.close)
            page.go((tmp_path / "report.html").as_uri())
            page.until("globalThis.heteroReport && heteroReport.graph.view.width > 0")
            opened_pages.append(page)
            return page

        opened_pages: list[Page] = []
        yield open_
        for page in opened_pages:
            assert page.problems() == []
            requests = [event["params"]["request"]["url"] for event in page.events("Network.requestWillBeSent")]
            assert all(url.startswith("file:") for url in requests), requests


@pytest.fixture
def transformer(core: hetero.Core) -> hetero.Model:
    return core.read_model(blocks(TRANSFORMER, 6, refused=[5]).SerializeToString())


def box(page: Page, number: int) -> list[float]:
    """Where a box of the graph is on the page."""
    return page.evaluate(f"heteroReport.graph.positionOf({number})")


def details(page: Page) -> str:
    return page.evaluate("document.getElementById('details').innerText")


def place(page: Page, selector: str) -> list[float]:
    """The left, top and bottom of an element on the page."""
    box = f"document.querySelector('{selector}').getBoundingClientRect()"
    return page.evaluate(f"(({{ left, top, bottom }}) => [left, top, bottom])({box})")


def timed(page: Page, statement: str) -> float:
    """Milliseconds that a statement takes."""
    return page.evaluate(f"(() => {{ const t = performance.now(); {statement}; return performance.now() - t; }})()")


def rows(page: Page, pane: str) -> list[list[str]]:
    """The cells of the rows of a table that are in the page."""
    page.click(f"[data-pane='{pane}']")
    seen = "document.querySelector('.pane:not([hidden])')"
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    assert page.evaluate(f"{seen}.querySelector('.body .row, .none:not([hidden])') !== null")
    return page.evaluate(
        f"[...{seen}.querySelectorAll('.body .row')].map(row => [...row.children].map(cell => cell.textContent))"
    )


def test_clicking_through(
    core: hetero.Core, transformer: hetero.Model, profile_of: Run, opened: Open, browser: Browser
) -> None:
    plan = core.plan(transformer, DEVICES)
    page = opened(plan, profile_of(transformer, plan))
    assert "13 subgraphs · 84 nodes" in page.evaluate("document.querySelector('header').innerText")
    assert page.evaluate("document.getElementById('legend').children.length") == 2

    page.click_at(*box(page, 1))  # a subgraph
    assert "Subgraph 2 on CPU" in details(page)
    assert "does not list Exp" in details(page)
    assert "float32[1, 64], 256 B" in details(page)

    page.click_at(*box(page, 2), clicks=2)  # its nodes, on demand
    page.until("heteroReport.drawn === 2")
    assert "Subgraph 3 on FPGA" in page.evaluate("document.getElementById('trail').innerText")
    place = page.evaluate("heteroReport.graph.scene.place(heteroReport.data.firstNode[2])")
    page.click_at(*box(page, place))
    first = plan.subgraphs[2].nodes[0]
    assert first in details(page)
    assert "FPGA is the first device of the list that supports it" in details(page)
    page.click("#details .actions .link")  # its subgraph
    assert "Subgraph 3 on FPGA" in details(page)
    page.click("#back")
    page.until("heteroReport.drawn === -1")

    page.click_at(5, 400)  # nothing
    assert "Boundary values" in details(page)


def test_a_neighbor_of_the_nodes_that_are_drawn(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, DEVICES))
    page.evaluate("heteroReport.open(2)")
    page.until("heteroReport.drawn === 2")
    page.click_at(*box(page, 0))
    assert "Subgraph 1 on FPGA" in details(page)
    page.click_at(*box(page, 0), clicks=2)
    page.until("heteroReport.drawn === 0")


def test_tables_are_sorted(core: hetero.Core, transformer: hetero.Model, profile_of: Run, opened: Open) -> None:
    plan = core.plan(transformer, DEVICES)
    profile = profile_of(transformer, plan)
    page = opened(plan, profile)
    shown = rows(page, "Nodes")
    assert [row[0] for row in shown[:3]] == list(plan.subgraphs[0].nodes[:3])
    heads = page.evaluate("[...document.querySelectorAll('.pane:not([hidden]) .head button')].map(b => b.textContent)")
    assert heads == ["Node", "Operator", "Device", "Subgraph", "Time", "CPU time", "Ran as", "Reason"]

    def sort(column: str) -> list[list[str]]:
        number = next(i for i, head in enumerate(heads) if head == column) + 1
        page.click(f".pane:not([hidden]) .head button:nth-child({number})")
        return rows(page, "Nodes")

    slowest = max(profile, key=lambda row: round(1000 * row.real_us))
    assert sort("Time")[0][0] == slowest.node
    assert sort("Time")[-1][4] != sort("Time")[0][4]  # the other way round, then as it was
    assert rows(page, "Nodes") == shown
    operators = [row[1] for row in sort("Operator")]
    assert operators == sorted(operators)
    assert page.evaluate("document.querySelector('[aria-sort=ascending]').textContent") == "Operator ▴"
    page.click(".pane:not([hidden]) .body .row:nth-child(2)")
    assert sort("Operator")[0][1] == "Relu"  # descending
    assert page.evaluate("heteroReport.node") >= 0


def test_search(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, DEVICES))
    page.press("/")
    page.type("LAYER.3/PART")
    page.until("document.getElementById('found').textContent.includes('14 nodes found')")
    assert {row[0].split("/")[1] for row in rows(page, "Nodes")} == {"layer.3"}
    page.click("#search")
    page.press("Enter", 2)
    assert page.evaluate("heteroReport.data.keys[heteroReport.node]").startswith("/layer.3/")
    page.press("Escape")
    page.until("document.getElementById('found').textContent === ''")
    page.press("/")
    page.type("does not list")  # reasons
    page.until("document.getElementById('found').textContent.includes('6 nodes found in 6 subgraphs')")
    page.evaluate("heteroReport.find('no such thing')")
    assert rows(page, "Nodes") == []
    page.evaluate("heteroReport.find('')")
    page.click("#legend button:nth-child(2)")  # what is on the second device
    assert {row[2] for row in rows(page, "Nodes")} == {"CPU"}
    page.click("#legend button:nth-child(2)")
    page.evaluate("heteroReport.chooseSubgraph(2)")
    page.click("#list")
    assert {row[3] for row in rows(page, "Nodes")} == {"3"}
    page.click("#clear")
    assert len({row[3] for row in rows(page, "Nodes")}) > 1


def test_the_timeline(core: hetero.Core, transformer: hetero.Model, profile_of: Run, opened: Open) -> None:
    plan = core.plan(transformer, DEVICES)
    page = opened(plan, profile_of(transformer, plan), width=1600)
    at = page.evaluate("heteroReport.timeline.positionOf(4)")
    page.mouse(*at, "mouseMoved")
    page.until("!document.getElementById('tip').hidden")
    tip = page.evaluate("document.getElementById('tip').innerText")
    assert tip.startswith("subgraph 5 on FPGA: ")
    assert "MainThread" in tip
    page.click_at(*at)
    assert "Subgraph 5 on FPGA" in details(page)
    page.press("ArrowRight")
    assert "Subgraph 6 on CPU" in details(page)
    before = page.evaluate("heteroReport.timeline.view.scale")
    page.mouse(*at, "mouseWheel", deltaX=0, deltaY=-500)
    page.until(f"heteroReport.timeline.view.scale > {1.5 * before}")
    page.press("0")
    page.until(f"Math.abs(heteroReport.timeline.view.scale - {before}) < 1e-9")


def test_a_timeline_of_many_threads(
    core: hetero.Core, transformer: hetero.Model, profile_of: Run, opened: Open
) -> None:
    plan = core.plan(transformer, DEVICES)
    profile = profile_of(transformer, plan)
    spans = [dataclasses.replace(span, thread=f"stream {i:02}") for i, span in enumerate(profile.spans)]
    page = opened(plan, Profile(profile, spans, profile.transfers), height=600)
    lane, height, pane = page.evaluate(
        "[heteroReport.timeline.lane, ...['#timeline', '.lanes'].map(e => document.querySelector(e).clientHeight)]"
    )
    assert lane >= 28
    assert height >= lane * len(spans) > pane
    page.evaluate("document.querySelector('.lanes').scrollTop = 10000")
    page.click_at(*page.evaluate("heteroReport.timeline.positionOf(heteroReport.data.run.spans.lane.indexOf(12))"))
    assert page.evaluate("heteroReport.data.run.spans.lane[heteroReport.data.spanOf.get(heteroReport.subgraph)]") == 12


def test_by_keys_alone(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, DEVICES))
    page.evaluate("document.getElementById('drawing').focus()")
    page.press("Home")
    assert page.evaluate("heteroReport.subgraph") == 0
    page.press("ArrowDown")
    assert page.evaluate("heteroReport.subgraph") == 1
    assert "Subgraph 2 on CPU" in page.evaluate("document.getElementById('said').textContent")
    page.press("ArrowUp")
    page.press("Enter")
    assert page.evaluate("heteroReport.drawn") == 0
    assert page.evaluate("document.getElementById('said').textContent") == "Graph of: Subgraph 1 on FPGA"
    page.press("ArrowDown", 2)
    assert page.evaluate("heteroReport.node") == 1
    page.press("Escape")
    assert page.evaluate("[heteroReport.drawn, heteroReport.subgraph]") == [-1, 0]
    assert page.evaluate("document.getElementById('said').textContent") == "Graph of: 13 subgraphs"
    page.press("Escape")
    assert page.evaluate("heteroReport.subgraph") == -1
    for _ in range(40):  # by Tab to the table
        page.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "grid":
            break
    page.press("Home")
    page.press("ArrowDown", 2)
    page.press("Enter")
    assert page.evaluate("heteroReport.node") == 2
    page.press("Home")
    page.press(" ")
    assert page.evaluate("heteroReport.node") == 0
    page.press("?")
    assert page.evaluate("[document.getElementById('keys').hidden, document.activeElement.id]") == [False, "keys"]
    page.press("Escape")
    assert page.evaluate("[document.getElementById('keys').hidden, document.activeElement.id]") == [True, "help"]
    page.evaluate("document.getElementById('drawing').focus()")
    page.press("Home")
    page.press(" ")
    assert page.evaluate("heteroReport.drawn") == 0


def test_every_control_is_reached_by_tab_with_a_visible_focus(
    core: hetero.Core, transformer: hetero.Model, profile_of: Run, opened: Open
) -> None:
    plan = core.plan(transformer, DEVICES)
    page = opened(plan, profile_of(transformer, plan))
    reached = []
    for _ in range(80):
        page.press("Tab")
        reached.append(
            page.evaluate(
                "(({id, textContent}) => id || textContent)(document.activeElement) + ' '"
                " + getComputedStyle(document.activeElement).outlineStyle"
            )
        )
    cycle = reached[: reached.index(reached[0], 1)]
    controls = ("search", "theme", "help", "by-subgraph", "by-name", "zoom-in", "zoom-out", "zoom-fit")
    controls += ("drawing", "details", "splitter", "tab-0", "timeline")
    assert {f"{control} solid" for control in controls} <= set(cycle)
    assert [one for one in cycle if not one.endswith(" solid")] in ([], [cycle[-1]])  # the page itself, after the last


def test_the_keys_close_without_a_keyboard(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, DEVICES), width=390, height=844)
    page.click("#help")
    assert page.evaluate("document.getElementById('keys').hidden") is False
    _, top, _ = place(page, "#keys")
    assert top > place(page, "#help")[2]  # it does not cover the button
    page.click("#search")
    assert page.evaluate("document.getElementById('keys').hidden") is True
    page.click("#help")
    page.click("#help")
    assert page.evaluate("document.getElementById('keys').hidden") is True


@pytest.mark.parametrize("compress", [False, True])
def test_hostile_names(
    core: hetero.Core, hostile_plan: hetero.Plan, profile_of: Run, opened: Open, compress: bool
) -> None:
    model = hostile_plan.assignment.model
    page = opened(hostile_plan, profile_of(model, hostile_plan), compress=compress, width=2200)
    for subgraph in range(hostile_plan.num_subgraphs):
        page.evaluate(f"heteroReport.open({subgraph})")
        page.mouse(*box(page, 1), "mouseMoved")
        page.click_at(*box(page, 1))
    shown = [row[0] for row in rows(page, "Nodes")]
    assert "</script><script>window.hacked=1</script>" in shown
    assert len(shown) == len(HOSTILE_NAMES)
    rows(page, "Boundary values")
    page.evaluate("heteroReport.find('<img')")
    assert len(rows(page, "Nodes")) == 1
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('img, iframe, a, script:not(body > script)').length") == 0


def node_page(core: hetero.Core, opened: Open) -> Page:
    """A convolution with hostile names, and a loop."""
    weights = {"<b>w": np.ones((2, 1, 3, 3), np.float32), "n": np.array(3)}
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (
        ("i", onnx.TensorProto.INT64, []), ("go", onnx.TensorProto.BOOL, []), ("c", onnx.TensorProto.FLOAT, None),
        ("gone", onnx.TensorProto.BOOL, []), ("d", onnx.TensorProto.FLOAT, None),
    )]  # fmt: skip
    body = helper.make_graph(
        [helper.make_node("Add", ["c", "r"], ["d"]), helper.make_node("Identity", ["go"], ["gone"])],
        "body", ports[:3], ports[3:],
    )  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "<b>w"], ["r"], name="conv", pads=[0, 1, 2, 3], auto_pad="</script><b>\u202e"),
        helper.make_node("Loop", ["n", "", "r"], ["y"], name="loop", body=body),
    ]
    proto = make_model(nodes, {"x": [1, 1, 5, 5]}, ["y", "r"], weights)
    return opened(core.plan(core.read_model(proto), "HETERO:TEMPLATE,CPU"))


def test_details_of_a_node(core: hetero.Core, opened: Open) -> None:
    page = node_page(core, opened)
    assert page.evaluate("[heteroReport.drawn, heteroReport.graph.scene.count]") == [0, 2]  # a lone subgraph is open
    page.evaluate("heteroReport.chooseNode(0)")
    shown = details(page)
    assert "Conv (ai.onnx " in shown
    for expected in ("pads\n[0, 1, 2, 3]", "auto_pad\n</script><b>\ufffd", "X: x\n", "input of the model", "W: <b>w\n",
                     "float32[2, 1, 3, 3], 72 B\nconstant", "Y: r", "to Loop loop", "output of the model"):  # fmt: skip
        assert expected in shown, expected
    page.click("#details li button.link")  # the loop that reads it
    shown = details(page)
    assert "body\ngraph of 2 nodes: Add 1, Identity 1" in shown
    assert "M: n\nint64[] = 3, 8 B\nconstant" in shown
    assert "CAPTURED BY NESTED GRAPHS (1)\nr\n" in shown
    assert page.evaluate("document.querySelectorAll('#details b').length") == 0


def test_groups_by_name(core: hetero.Core, opened: Open) -> None:
    """1,400 nodes of 100 layers: groups of layers, then of parts, then nodes; edges between groups stay acyclic."""
    model = core.read_model(blocks(TRANSFORMER, 100, refused=[5]).SerializeToString())
    plan = core.plan(model, DEVICES)
    page = opened(plan)
    page.click("#by-name")
    scene = "heteroReport.graph.scene"
    assert page.evaluate(f"{scene}.count") == 100
    names = page.evaluate(f"{scene}.boxes.map((_, i) => {scene}.lines(i))")
    assert names[0] == ["layer.0", "14 nodes"]
    assert page.evaluate(f"{scene}.bars(0).map(([, share]) => Math.round(100 * share))") == [93, 7]
    assert page.evaluate(f"{scene}.edges.filter((edge) => edge.back).length") == 0
    assert sorted(page.evaluate(f"{scene}.boxes.flatMap((box) => Array.from(box.nodes))")) == list(range(1400))
    page.click_at(*box(page, 1))
    assert "layer.1\nNodes\n14\nSubgraphs\n3\nFPGA\n13 nodes\nCPU\n1 node" in details(page)
    page.click("#open")
    kinds = page.evaluate(f"{scene}.boxes.map((box) => box.kind + (box.isNear ? ' near' : ''))")
    assert kinds == ["group near", *["node"] * 14, "group near"]
    page.click_at(*box(page, 0), clicks=2)  # what is before
    page.until("String(heteroReport.path) === 'names,0'")
    page.press("Escape")
    assert page.evaluate("[String(heteroReport.path), heteroReport.graph.chosen]") == ["names", 0]


def test_names_that_are_hard_to_group(core: hetero.Core, opened: Open) -> None:
    """Flat names in runs, names of many parts, and a cycle between groups."""
    flat = [f"Relu_{i}" for i in range(500)]
    deep = ["/".join(["a"] * 3000) + f"/{i}" for i in range(500)]
    cyclic = [f"{'ab'[i % 2]}/{i}" for i in range(500)]
    counts, brief = [], []
    for names in (flat, deep, cyclic):
        page = opened(core.plan(core.read_model(chain(names, every=1000)), "HETERO:CPU,TEMPLATE"))
        counts.append(page.evaluate("[heteroReport.graph.scene.count, heteroReport.graph.scene.lines(0)[0]]"))
        brief.append(page.evaluate("heteroReport.graph.scene.brief(0)"))
    assert (brief[0], brief[2]) == (["0…4", "0…"], ["a"])
    assert counts[0] == [100, "Relu_0 … 4"]
    assert counts[1][0] == 100
    assert counts[2][0] == 2
    edges = page.evaluate("heteroReport.graph.scene.edges.map((edge) => [edge.from, edge.to, Boolean(edge.back)])")
    assert sorted(edges) == [[0, 1, False], [0, 1, True]]


def test_ranges_of_numbered_scopes(core: hetero.Core, opened: Open) -> None:
    """A number is never cut in two, and a narrow box shows the numbers."""
    names = [f"/block{i // 4 + 97}/node_{i}" for i in range(1600)]
    page = opened(core.plan(core.read_model(chain(names, every=1000)), "HETERO:CPU,TEMPLATE"))
    scene = "heteroReport.graph.scene"
    shown = page.evaluate(f"{scene}.boxes.map((_, i) => [{scene}.lines(i)[0], {scene}.brief(i)])")
    assert ["block97 … 101", ["97…101", "97…"]] in shown
    assert ["block102 … 106", ["102…106", "102…06", "102…"]] in shown


def test_a_numbered_scope_keeps_its_name_where_it_has_room(core: hetero.Core, opened: Open) -> None:
    names = [f"/layer.{i // 100}/block.{i // 20 % 5}/node_{i}" for i in range(1600)]
    page = opened(core.plan(core.read_model(chain(names, every=1000)), "HETERO:CPU,TEMPLATE"))
    scene = "heteroReport.graph.scene"
    shown = page.evaluate(f"{scene}.boxes.map((_, i) => [{scene}.lines(i)[0], {scene}.brief(i)])")
    assert ["layer.1/block.3", ["block.3", "3"]] in shown


def test_a_scope_with_nearly_all_nodes_is_open(core: hetero.Core, opened: Open) -> None:
    names = [f"/encoder/layer.{i // 4}/node_{i}" for i in range(2000)] + ["/head/node_0", "/head/node_1"]
    page = opened(core.plan(core.read_model(chain(names, every=1000)), "HETERO:CPU,TEMPLATE"))
    scene = "heteroReport.graph.scene"
    page.evaluate("heteroReport.open(['names'])")
    shown = page.evaluate(f"{scene}.boxes.map((_, i) => {scene}.lines(i))")
    assert shown[:2] == [["encoder/layer.0 … 4", "20 nodes"], ["encoder/layer.5 … 9", "20 nodes"]]
    assert shown[-1] == ["head", "2 nodes"]
    assert len(shown) == 101


def test_ranges_keep_their_ends_in_narrow_windows(core: hetero.Core, opened: Open) -> None:
    """A number that has the digits of the first one in front is written without them."""
    plan = core.plan(core.read_model(chain([f"Relu_{i}" for i in range(3000)], every=1000)), "HETERO:CPU,TEMPLATE")
    for width in (390, 768):
        page = opened(plan, width=width)
        page.evaluate("globalThis.drawn = [], globalThis.draw = CanvasRenderingContext2D.prototype.fillText, 0")
        page.evaluate(
            "CanvasRenderingContext2D.prototype.fillText = function (text, ...place)"
            " { globalThis.drawn.push(text); return globalThis.draw.call(this, text, ...place); }, 0"
        )
        page.click("#by-name")
        page.until("drawn.includes('2950…99')")
        assert {"0…49", "950…999", "1000…49"} <= set(page.evaluate("drawn"))
        assert not [text for text in page.evaluate("drawn") if text.endswith("…")]


def test_ranges_of_five_digits_keep_their_ends(core: hetero.Core, opened: Open) -> None:
    names = [f"node_{i}" for i in range(40_000)]
    page = opened(core.plan(core.read_model(chain(names, every=100_000)), "HETERO:CPU,TEMPLATE"), width=390)
    page.evaluate("globalThis.drawn = [], globalThis.draw = CanvasRenderingContext2D.prototype.fillText, 0")
    page.evaluate(
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...place)"
        " { globalThis.drawn.push(text); return globalThis.draw.call(this, text, ...place); }, 0"
    )
    page.click("#by-name")
    page.until("drawn.includes('39500…999')")
    assert not [text for text in page.evaluate("drawn") if text.endswith("…")]


def test_links(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, DEVICES))
    assert page.evaluate("location.hash") in ("", "#")
    page.evaluate("heteroReport.open(2)")
    page.click_at(*box(page, 2))
    page.evaluate("heteroReport.find('Add')")
    key = page.evaluate("heteroReport.data.keys[heteroReport.node]")
    link = page.evaluate("location.href")
    other = opened(core.plan(transformer, DEVICES))
    other.evaluate(f"location.href = {json.dumps(link)}")
    other.until("heteroReport.node >= 0")
    assert other.evaluate("[heteroReport.drawn, heteroReport.data.keys[heteroReport.node]]") == [2, key]
    assert key in details(other)
    assert other.evaluate("heteroReport.found") is None  # the field was not typed into
    page.evaluate("history.back()")
    page.until("heteroReport.drawn === -1")
    for hostile in (
        "view=9999",
        "view=names.7.7",
        "view=-1",
        "view=1.5.%00",
        "subgraph=0",
        "subgraph=x",
        "node=%",
        "device=no",
    ):
        page.evaluate(f"location.hash = {json.dumps(hostile)}")
        page.evaluate("new Promise((done) => setTimeout(() => done(1), 30))")
        assert page.evaluate("[heteroReport.drawn, heteroReport.node, heteroReport.subgraph]") == [-1, -1, -1], hostile


def test_tips_go_away(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, DEVICES))
    hidden = "document.getElementById('tip').hidden"

    def show() -> None:
        page.mouse(5, 5, "mouseMoved")
        page.mouse(*box(page, 1), "mouseMoved")
        page.until(f"!{hidden}")

    show()
    page.evaluate("heteroReport.chooseSubgraph(1)")
    page.press("Escape")
    assert page.evaluate(hidden)
    assert page.evaluate("heteroReport.subgraph") == 1  # Escape did nothing else
    show()
    page.mouse(5, 5, "mouseMoved")
    page.until(hidden)
    show()
    page.click_at(*box(page, 1))
    assert page.evaluate(hidden)
    at = dict(zip("xy", box(page, 2), strict=True))
    page.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    page.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at]})
    page.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.until("heteroReport.subgraph === 2")
    assert page.evaluate(hidden)


def test_two_fingers_zoom(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, DEVICES), width=390, height=844)
    before = page.evaluate("heteroReport.graph.view.scale")
    x, y = page.evaluate(
        "(() => { const b = heteroReport.graph.canvas.getBoundingClientRect(); return [b.x + 190, b.y + 100]; })()"
    )
    page.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
    for kind, apart in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80)):
        points = [{"x": x + side * apart, "y": y, "id": i} for i, side in enumerate((-1, 1))]
        page.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert 3 < page.evaluate("heteroReport.graph.view.scale") / before < 5
    assert page.evaluate("heteroReport.subgraph") == -1


@pytest.mark.parametrize("measured", [False, True])
def test_the_timeline_of_a_pipeline(core: hetero.Core, transformer: hetero.Model, opened: Open, measured: bool) -> None:
    plan = core.plan(transformer, "HETERO:CPU.0,CPU.1", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"})
    requests = []
    if measured:
        compiled = core.compile_model(transformer, plan, {"PERF_COUNT": True})
        requests = [compiled.create_infer_request() for _ in range(4)]
        for request in requests:
            request.start_async({"x": np.ones((1, 64), np.float32)})
        for request in requests:
            request.wait()
    page = opened(plan, [request.profiling_info for request in requests])
    count = 4 if measured else 5
    spans = page.evaluate("heteroReport.data.run.spans")
    assert len(spans["begin"]) == 2 * count
    assert sorted(spans["request"]) == sorted([*range(count)] * 2)
    by_request = {
        (r, s): (b, e) for r, s, b, e in zip(*(spans[k] for k in ("request", "subgraph", "begin", "end")), strict=True)
    }
    first, second = sorted(set(spans["subgraph"]))
    for request in range(count):
        assert by_request[request, first][1] <= by_request[request, second][0]
        for stage in (first, second):
            assert request == 0 or by_request[request - 1, stage][1] <= by_request[request, stage][0]
    page.mouse(*page.evaluate("heteroReport.timeline.positionOf(3)"), "mouseMoved")
    page.until("!document.getElementById('tip').hidden")
    assert "inference 2, stage 2 on CPU.1" in page.evaluate("document.getElementById('tip').innerText")


def test_narrow_windows(core: hetero.Core, transformer: hetero.Model, profile_of: Run, opened: Open) -> None:
    plan = core.plan(transformer, DEVICES)
    page = opened(plan, profile_of(transformer, plan), width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.click_at(*box(page, 1))
    widths = page.evaluate("[...document.querySelectorAll('#details dd')].map((cell) => cell.clientWidth)")
    assert min(widths) > 200
    parts = [place(page, part) for part in ("#graph", "#details", "#tables")]
    assert all(bottom <= top for (_, _, bottom), (_, top, _) in itertools.pairwise(parts))
    for pane in ("Nodes", "Subgraphs", "Boundary values"):
        rows(page, pane)
        lefts = page.evaluate(
            "['.head', '.row'].map((part) => [...document.querySelector(`.pane:not([hidden]) ${part}`).children]"
            ".map((cell) => Math.round(cell.getBoundingClientRect().left)))"
        )
        assert lefts[0] == lefts[1]


def test_names_are_legible_at_first(core: hetero.Core, opened: Open) -> None:
    """A graph that is too large for the window starts at its beginning, and Fit shows all of it."""
    model = core.read_model(blocks(EXPERTS, 2).SerializeToString())
    plan = core.plan(model, "HETERO:CPU,TEMPLATE")
    graph = "heteroReport.graph"
    inside = (
        f"Array.from({{length: {graph}.scene.count}}, (_, i) => {graph}.positionOf(i)).filter(([x, y]) =>"
        f" {graph}.canvas === document.elementFromPoint(x, y)).length"
    )
    for width, height in ((390, 844), (768, 1024)):
        page = opened(plan, width=width, height=height)
        assert page.evaluate(f"{graph}.view.scale") >= 0.28
        x, y = box(page, 0)
        assert page.evaluate(f"document.elementFromPoint({x}, {y}) === {graph}.canvas")
        assert 0 < page.evaluate(inside) < model.num_nodes
        trail = "document.getElementById('trail')"
        assert page.evaluate(f"{trail}.scrollWidth <= {trail}.clientWidth")
        page.click("#zoom-fit")
        assert page.evaluate(inside) == model.num_nodes
        page.resize(width, height - 100)  # it stays as a whole
        page.until(f"{inside} === {model.num_nodes}")


def test_names_of_devices_are_not_cut(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(transformer, "HETERO:GPU_FP16,CPU", pins={"op:Exp": "CPU"}), width=1024)
    for pane in ("Nodes", "Subgraphs", "Boundary values"):
        assert any("GPU_FP16" in cell for row in rows(page, pane) for cell in row)
        cut = page.evaluate(
            "[...document.querySelectorAll('.pane:not([hidden]) .row > *')]"
            ".filter((cell) => cell.textContent.endsWith('GPU_FP16') && cell.scrollWidth > cell.clientWidth)"
            ".map((cell) => `${cell.textContent}: ${cell.scrollWidth} > ${cell.clientWidth}`)"
        )
        assert cut == []


def test_warnings_end_at_a_line(core: hetero.Core, transformer: hetero.Model, opened: Open) -> None:
    """However many there are, no line is cut in half."""
    page = opened(core.plan(transformer, DEVICES))
    page.evaluate(
        "heteroReport, document.getElementById('notices').hidden = false, document.getElementById('notices')"
        ".replaceChildren(...Array.from({length: 40}, () => Object.assign(document.createElement('p'),"
        " {textContent: 'a warning'})))"
    )
    height, padding, line = page.evaluate(
        "(() => { const box = document.getElementById('notices'), style = getComputedStyle(box);"
        " return [box.clientHeight, parseFloat(style.paddingTop) + parseFloat(style.paddingBottom),"
        " box.firstChild.getBoundingClientRect().height]; })()"
    )
    assert abs((height - padding) / line - 6) < 0.1


def test_tables_are_no_higher_than_their_rows(core: hetero.Core, diamond: hetero.Model, opened: Open) -> None:
    page = opened(core.plan(diamond, DEVICES), height=1200)
    page.click("[data-pane='Subgraphs']")
    assert page.evaluate("document.getElementById('tables').clientHeight") < 40 + 30 + 5 * 26


def test_screen_readers(core: hetero.Core, transformer: hetero.Model, profile_of: Run, opened: Open) -> None:
    """Everything that can be focused has a role and a name; what is chosen is announced."""
    plan = core.plan(transformer, DEVICES)
    page = opened(plan, profile_of(transformer, plan))
    page.click_at(*box(page, 1))
    page.send("Accessibility.enable")
    tree = [node for node in page.send("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    for node in tree:
        if any(one["name"] == "focusable" and one["value"]["value"] for one in node.get("properties", ())):
            assert node["name"]["value"].strip(), node
            assert node["role"]["value"] != "generic", node
    roles = {node["role"]["value"] for node in tree}
    assert {"banner", "main", "complementary", "navigation", "searchbox", "tablist", "tabpanel", "separator"} <= roles
    names = {node["name"]["value"] for node in tree if node["role"]["value"] == "region"}
    assert {"Graph", "Tables"} <= names
    headings = [node for node in tree if node["role"]["value"] == "heading"]
    levels = [next(one["value"]["value"] for one in node["properties"] if one["name"] == "level") for node in headings]
    assert levels[0] == 1
    assert all(level <= before + 1 for before, level in itertools.pairwise(levels)), levels
    (drawing,) = [node for node in tree if node["name"]["value"].startswith("The graph.")]
    assert drawing["description"]["value"].startswith("13 subgraphs · 84 nodes")


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(core: hetero.Core, transformer: hetero.Model, opened: Open, dark: bool) -> None:
    """WCAG AA, 4.5 to 1, of texts on the page and of texts on boxes and bars in the color of any device."""
    page = opened(core.plan(transformer, DEVICES), dark=dark)
    base = (Path(hetero.__file__).parent / "report" / "page" / "base.js").read_text()
    script = """
      const parts = (color) => color[0] === "#"
        ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
        : color.match(/[0-9]+/g).map(Number);
      const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      const light = (color) => parts(color).reduce(
        (sum, part, i) => sum + linear(part / 255) * [0.2126, 0.7152, 0.0722][i], 0.05);
      const style = getComputedStyle(document.documentElement), low = [];
      const theme = (name) => style.getPropertyValue(`--${name}`).trim();
      const check = (text, ground, where) => {
        const [less, more] = [light(text), light(ground)].sort((a, b) => a - b);
        if (more / less < 4.5) low.push([where, text, ground, more / less]);
      };
      for (const ground of ["ground", "raised"]) {
        for (const text of ["text", "faint", "accent"]) check(theme(text), theme(ground), `${text} on ${ground}`);
      }
      for (const ground of ["warn", "chosen"]) check(theme("text"), theme(ground), ground);
      for (const color of COLORS) {
        check(theme("text"), mixed(color, theme("ground"), 0.26), "box");
        for (const share of [0.3, 0.55, 0.6, 0.75, 0.85]) {
          const ground = mixed(color, theme("ground"), share);
          check(readable(ground), ground, "bar");
        }
      }
      return low;"""
    low = page.evaluate(f"(() => {{ const COLORS = {json.dumps(COLORS)};\n{base}\n{script} }})()")
    assert low == []


@pytest.mark.slow
def test_many_nodes(core: hetero.Core, opened: Open) -> None:
    """50,000 nodes: few elements in the page, and the layouts take seconds at most."""
    model = core.read_model(blocks(TRANSFORMER, 50_000 // 14, refused=[5]).SerializeToString())
    page = opened(core.plan(model, DEVICES))
    assert page.evaluate("heteroReport.data.numSubgraphs") > 5000
    assert page.evaluate("document.getElementsByTagName('*').length") < 600
    rows(page, "Nodes")
    page.evaluate("document.querySelector('.pane:not([hidden]) .scroller').scrollTop = 600000")
    page.until("document.querySelector('.pane:not([hidden]) .row').getAttribute('aria-rowindex') > 20000")
    page.evaluate("heteroReport.find('layer.3000/')")
    page.until("document.getElementById('found').textContent.startsWith('14 nodes')")
    page.evaluate("heteroReport.nextFound(1)")
    assert "layer.3000" in details(page)
    x, y = box(page, page.evaluate("heteroReport.graph.chosen"))
    page.click_at(x, y, clicks=2)
    page.until("heteroReport.path.length === 2")
    assert timed(page, "heteroReport.open([])") < 15_000  # it takes a second
    assert page.evaluate("heteroReport.graph.scene.count > 5000")
    page.evaluate("heteroReport.open(7)")
    assert page.evaluate("document.getElementsByTagName('*').length") < 800
    page.evaluate("heteroReport.find('')")
    assert timed(page, "heteroReport.nodes.sortBy(0)") < 5000


@pytest.mark.slow
def test_one_subgraph_of_many_nodes(core: hetero.Core, opened: Open) -> None:
    model = core.read_model(blocks(TRANSFORMER, 50_000 // 14).SerializeToString())
    page = opened(core.plan(model, "HETERO:CPU,TEMPLATE"))
    assert timed(page, "heteroReport.open(['names'])") < 15_000  # it takes half a second
    assert page.evaluate("heteroReport.graph.scene.placeOf.size") == model.num_nodes
    assert page.evaluate("heteroReport.graph.scene.count") <= 120
    x, y = page.evaluate("heteroReport.graph.positionOf(17)")
    page.click_at(x, y, clicks=2)
    page.until("heteroReport.path.length === 2 && heteroReport.graph.scene.count > 40")


def apart() -> onnx.ModelProto:
    """Chains of one to seven nodes that have nothing to do with each other."""
    nodes = []
    for chained in range(1, 8):
        values = ["x", *(f"c{chained}.{i}" for i in range(chained))]
        ops = ("Relu", "Exp")
        nodes += [helper.make_node(ops[i % 2], [values[i]], [values[i + 1]]) for i in range(chained)]
    return make_model(nodes, outputs=[f"c{chained}.{chained - 1}" for chained in range(1, 8)])


@pytest.mark.parametrize("kind", ["chain", "experts", "transformer", "apart"])
def test_boxes_do_not_overlap(core: hetero.Core, opened: Open, kind: str) -> None:
    proto = {
        "chain": lambda: chain([f"n{i}" for i in range(200)], every=2),
        "experts": lambda: blocks(EXPERTS, 3, refused=[5, 20, 70]),
        "transformer": lambda: blocks(TRANSFORMER, 30, refused=[5]),
        "apart": apart,
    }[kind]()
    page = opened(core.plan(core.read_model(proto.SerializeToString()), DEVICES))
    overlaps = """(() => {
      const { layout, boxWidth, boxHeight, count } = heteroReport.graph.scene;
      let found = 0;
      const { x, y, width, height } = layout;
      for (let i = 0; i < count; i++) {
        for (let j = 0; j < i; j++) {
          if (Math.abs(x[i] - x[j]) < boxWidth + 4 && Math.abs(y[i] - y[j]) < boxHeight + 4) found++;
        }
      }
      const across = (i) => x[i] >= boxWidth / 2 - 1 && x[i] <= width - boxWidth / 2 + 1;
      const down = (i) => y[i] >= boxHeight / 2 - 1 && y[i] <= height - boxHeight / 2 + 1;
      const outside = Array.from(x.keys()).filter((i) => !across(i) || !down(i)).length;
      return [count, found, outside];
    })()"""
    count, found, outside = page.evaluate(overlaps)
    assert count == page.evaluate("heteroReport.data.numSubgraphs")
    assert (found, outside) == (0, 0)
    if kind == "apart":
        assert page.evaluate("heteroReport.graph.scene.layout.width") < 8 * 220  # seven abreast, no gaps
    page.evaluate("heteroReport.open(0)")
    assert page.evaluate(overlaps)[1:] == [0, 0]


def test_loaded_plans_list_their_nodes(core: hetero.Core, diamond: hetero.Model, opened: Open) -> None:
    plan = hetero.Plan.from_json(core.plan(diamond, DEVICES).to_json(), "plan")
    page = opened(plan)
    page.evaluate("heteroReport.open(2)")
    assert [row[0] for row in rows(page, "Nodes")] == list(plan.subgraphs[2].nodes)


@pytest.mark.parametrize(("width", "height", "dark"), [(1400, 900, False), (700, 500, True)])
def test_light_and_dark(
    core: hetero.Core, diamond: hetero.Model, opened: Open, width: int, height: int, dark: bool
) -> None:
    page = opened(core.plan(diamond, DEVICES), width=width, height=height, dark=dark)
    assert page.evaluate("document.documentElement.classList.contains('dark')") == dark
    page.click("#theme")
    assert page.evaluate("document.documentElement.classList.contains('dark')") != dark
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.getElementById('drawing').clientHeight") > 80


def test_an_empty_model(core: hetero.Core, opened: Open) -> None:
    page = opened(core.plan(core.read_model(make_model([], outputs=["x"])), DEVICES))
    assert rows(page, "Nodes") == []


def test_data_that_cannot_be_read(browser: Browser, core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(core.plan(diamond, DEVICES), path, compress=False)
    path.write_text(path.read_text().replace('{"colors"', '["colors"', 1))
    page = browser.page()
    page.go(path.as_uri())
    page.until("document.getElementById('notices').textContent.includes('cannot be shown')")
    assert json.dumps(page.problems())
    page.close()


def test_sizes_that_are_not_known_are_not_zero(core: hetero.Core, opened: Open) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["k"], ["b"], name="second"),
        helper.make_node("Softmax", ["a"], ["y"], name="third"),
        helper.make_node("Softmax", ["b"], ["z"], name="fourth"),
    ]
    model = make_model(nodes, {"x": ["n", 3], "k": [2, 3]}, ["y", "z"])
    plan = core.plan(model, DEVICES)
    page = opened(plan)
    assert "2, 24 B + 1 unknown" in details(page)
    assert "Size unknown" in details(page)
    page.evaluate("heteroReport.chooseSubgraph(0)")
    assert "1 value, size unknown" in details(page)
    compiled = core.compile_model(model, plan, {"PERF_COUNT": True})
    request = compiled.create_infer_request()
    request.infer({"x": np.ones((4, 3), np.float32), "k": np.ones((2, 3), np.float32)})
    page = opened(plan, request.profiling_info)  # the sizes that the run measured
    assert "2, 72 B" in details(page)
    assert "Receives\n72 B\nSends\n0 B\nTime" in details(page)
    assert "unknown" not in details(page)
    page = opened(core.plan(model, DEVICES, shapes={"x": (2, 3)}))
    assert "2, 48 B" in details(page)
    assert "unknown" not in details(page)
