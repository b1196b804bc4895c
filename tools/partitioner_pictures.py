#!/usr/bin/env python3
"""Draws the pictures of docs/partitioner.md from partitions that hetero makes, into docs/images.

    pip install '.[svg]' && python tools/partitioner_pictures.py

Each picture is a row of panels, which Graphviz lays out. What a panel claims (that a cut is valid, how many subgraphs
there are, that a path blocks a merge) is asked of hetero and checked while it is drawn. A picture holds the digest of
the texts it was drawn from, so that `tests/docs` can tell, without Graphviz, when it is no longer what hetero does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import html
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import hetero
from hetero.base.palette import device_color, tint

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
RED = "#c1121f"
GRAY = "#57606a"
NOWHERE = -1  # nodes of no subgraph

Edge = tuple[int, int]


@dataclasses.dataclass
class Picture:
    """Panels side by side, or one below the other. ``panels``: captions and Graphviz texts."""

    title: str
    panels: list[tuple[str, str]]
    stacked: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.title, self.panels)).encode()).hexdigest()


class Drawn:
    """A graph to draw: names of its nodes, their devices, its edges."""

    def __init__(self, names: Sequence[str], device: Sequence[int], edges: Sequence[Edge]) -> None:
        self.names, self.device, self.edges = names, list(device), list(edges)
        sources, targets = zip(*edges, strict=True)
        self.graph = hetero.Graph.from_edges(list(sources), list(targets), len(names))

    def partition(self, policy: str = "auto", trace: bool = False) -> hetero.Partition:
        found = hetero.partition_graph(self.graph, self.device, policy=policy, trace=trace)
        hetero.check_partition(self.graph, self.device, found.subgraph_of)
        return found

    def refused(self, labels: Sequence[int]) -> str:
        """What `check_partition` says against subgraphs that are none."""
        try:
            hetero.check_partition(self.graph, self.device, list(labels))
        except hetero.PartitionError as error:
            return str(error)
        raise AssertionError(f"expected {labels} to break a rule")

    def path(self, begin: int, end: int, around: Iterable[int] = ()) -> list[Edge]:
        """The edges of the paths from one node to another that avoid ``around``."""
        closure = hetero.TransitiveClosure(self.graph)
        inside = {*closure.path_nodes(begin, end).tolist(), begin, end} - set(around)
        return [(a, b) for a, b in self.edges if a in inside and b in inside and (a, b) != (begin, end)]

    def dot(
        self,
        groups: Sequence[int] | None = None,
        *,
        red: Iterable[Edge] = (),
        cut: bool = True,
        look: Mapping[int, str] | None = None,
        label: Callable[[int], str] | None = None,
    ) -> str:
        """A Graphviz text. ``groups``: the subgraph of each node, drawn around it; edges between them are dashed.
        ``red``: edges to point at. ``look``: more attributes of nodes."""
        lines = [
            "digraph {",
            "  graph [bgcolor=transparent, nodesep=0.25, ranksep=0.32, margin=0.02];",
            '  graph [fontname="Helvetica", fontsize=10];',
            '  node [shape=circle, style=filled, fontname="Helvetica", fontsize=11, width=0.36, fixedsize=true, '
            f'color="{GRAY}"];',
            f'  edge [color="{GRAY}", arrowsize=0.6];',
        ]
        for number in sorted(set(groups or ())):
            members = [node for node, group in enumerate(groups or ()) if group == number]
            if number == NOWHERE:
                continue
            lines += [
                f"  subgraph cluster_{number} {{",
                f'    style="rounded,dashed"; color="{GRAY}"; margin=6; labeljust=l;',
                f'    label="{label(number) if label else ""}";',
                f"    {' '.join(map(str, members))};",
                "  }",
            ]
        for node, name in enumerate(self.names):
            fill = tint(device_color(self.device[node]), 0.45)
            lines.append(f'  {node} [label="{name}", fillcolor="{fill}"{(look or {}).get(node, "")}];')
        pointed = set(red)
        for a, b in self.edges:
            crosses = groups is not None and cut and groups[a] != groups[b]
            style = f'color="{RED}", penwidth=2' if (a, b) in pointed else "style=dashed" if crosses else ""
            lines.append(f"  {a} -> {b} [{style}];")
        return "\n".join([*lines, "}"])


def numbered(partition: hetero.Partition) -> Callable[[int], str]:
    return lambda number: f"{number + 1}"


def waiting() -> Picture:
    """Two subgraphs that wait for each other, though each is connected and convex."""
    drawn = Drawn(
        ["a0", "a1", "a2", "b0", "b1", "b2"], [0, 0, 0, 1, 1, 1], [(0, 1), (0, 2), (3, 4), (3, 5), (1, 4), (5, 2)]
    )
    naive = [0, 0, 0, 1, 1, 1]
    assert "wait for each other" in drawn.refused(naive)
    found = drawn.partition()
    cut = [
        (a, b)
        for a, b in drawn.edges
        if drawn.device[a] == drawn.device[b] and found.subgraph_of[a] != found.subgraph_of[b]
    ]
    assert (found.num_subgraphs, len(cut)) == (3, 1)
    return Picture(
        "Two subgraphs that wait for each other",
        [
            (
                "whatever is joined on a device: each of the two waits for the other",
                drawn.dot(naive, red=[(1, 4), (5, 2)], cut=False),
            ),
            (
                f"auto: {found.num_subgraphs} subgraphs that run in the order of their numbers",
                drawn.dot(found.subgraph_of.tolist(), label=numbered(found)),
            ),
        ],
    )


WORKED = (
    [str(number) for number in range(1, 8)],
    [0, 0, 0, 1, 0, 0, 0],
    [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (5, 6)],
)


def convex() -> Picture:
    """A path that leaves a subgraph and comes back."""
    drawn = Drawn(*WORKED)
    naive = [0, 0, 0, 1, 0, 0, 0]
    assert "not convex" in drawn.refused(naive)
    found = drawn.partition()
    assert found.num_subgraphs == 3
    return Picture(
        "A path that leaves a subgraph and comes back",
        [
            (
                "all of the first device as one: 4 would have to run in the middle of it",
                drawn.dot(naive, red=[(1, 3), (3, 4)], cut=False),
            ),
            (f"auto: {found.num_subgraphs} subgraphs", drawn.dot(found.subgraph_of.tolist(), label=numbered(found))),
        ],
    )


def loop() -> Picture:
    """The documented loop on the worked example."""
    drawn = Drawn(*WORKED)
    found = drawn.partition("documented", trace=True)
    words = {"root": "from", "merge": "merge", "fail": "fail to merge", "rollback": "roll back"}
    panels = []
    told = ""  # since the last panel
    for step, following in itertools.pairwise(found.trace or ()):
        if step.action == "choose":  # the first choice ends the story
            panels.append((f"choose {_names(step.candidate)}, the largest", drawn.dot(_around(step.candidate))))
            break
        run = told.rpartition("; ")[2].startswith(words[step.action])
        told += f", {step.node + 1}" if run else f"{'; ' if told else ''}{words[step.action]} {step.node + 1}"
        ends = following.action in ("root", "choose")
        begins = len(panels) < 2 and step.action in ("merge", "fail") and following.action != step.action
        if ends or begins:
            look = dict.fromkeys(step.rejected, REJECTED) | dict.fromkeys(step.candidate, MERGED)
            why = ": it lies between 2 and 5" if step.action == "fail" else ""
            between = drawn.path(1, 4, around=(2,)) if step.action == "fail" else ()
            panels.append((told.replace(";", ":", 1) + why, drawn.dot(look=look, red=between)))
            told = ""
    assert found.num_subgraphs == 3
    return Picture("The documented loop, step by step", panels)


MERGED = ', penwidth=2.5, color="black"'
REJECTED = f', penwidth=3, color="{RED}", style="filled,dashed"'


def _names(nodes: Iterable[int]) -> str:
    return ", ".join(str(node + 1) for node in nodes)


def _around(members: Sequence[int]) -> list[int]:
    """A subgraph of these nodes, and none of the others."""
    return [0 if node in members else NOWHERE for node in range(len(WORKED[0]))]


def levels() -> Picture:
    """Where linear puts nodes, and where they can go as well."""
    drawn = Drawn(list("abcdefg"), [0, 1, 0, 0, 1, 0, 0], [(0, 1), (1, 2), (3, 2), (2, 4), (4, 5), (6, 5)])
    linear, auto = drawn.partition("linear"), drawn.partition()
    assert (linear.num_subgraphs, auto.num_subgraphs) == (7, 5)
    return Picture(
        "Levels",
        [
            (
                f"linear: each node on its lowest level, {linear.num_subgraphs} subgraphs",
                _in_levels(drawn, linear, _depth(drawn)),
            ),
            (
                f"auto: d moved to the level of c, and g to that of f, {auto.num_subgraphs} subgraphs",
                _in_levels(drawn, auto, _levels(drawn, auto)),
            ),
        ],
        stacked=True,
    )


def _depth(drawn: Drawn) -> list[int]:
    """Changes of device along the longest way to each node."""
    depth = [0] * len(drawn.names)
    for node in drawn.graph.topological_order.tolist():
        for parent in drawn.graph.predecessors(node).tolist():
            depth[node] = max(depth[node], depth[parent] + (drawn.device[parent] != drawn.device[node]))
    return depth


def _levels(drawn: Drawn, partition: hetero.Partition) -> list[int]:
    """The lowest level of each subgraph, as levels of its nodes: they never fall, and rise between subgraphs."""
    quotient = partition.quotient
    level = [0] * partition.num_subgraphs
    for number in quotient.topological_order.tolist():
        for parent in quotient.predecessors(number).tolist():
            level[number] = max(level[number], level[parent] + 1)
    return [level[number] for number in partition.subgraph_of.tolist()]


def _in_levels(drawn: Drawn, partition: hetero.Partition, level: Sequence[int]) -> str:
    """Levels as bands, one below the other, with their subgraphs in them."""
    subgraph = partition.subgraph_of.tolist()
    lines = drawn.dot(cut=False).splitlines()[:-1]
    lines[1] = lines[1].replace("nodesep", "rankdir=LR, nodesep")
    for number in range(max(level) + 1):
        lines.append(
            f'  subgraph cluster_level{number} {{ label="level {number}"; labeljust=r; style=filled; color="#eef1f4";'
        )
        for one in dict.fromkeys(subgraph[node] for node in range(len(level)) if level[node] == number):
            members = [node for node in range(len(level)) if subgraph[node] == one]
            assert {level[node] for node in members} == {number}
            lines.append(
                f'    subgraph cluster_{one} {{ label="{one + 1}"; labeljust=l; style="rounded,dashed"; '
                f'color="{GRAY}"; {"; ".join(map(str, members))}; }}'
            )
        lines.append("  }")
    below = [(a, b) for a in range(len(level)) for b in range(len(level)) if level[b] == level[a] + 1]
    lines += [f"  {a} -> {b} [style=invis];" for a, b in below if (a, b) not in drawn.edges]
    return "\n".join([*lines, "}"])


def contraction() -> Picture:
    """Which edges can be contracted, and that the order matters."""
    drawn = Drawn(list("abcde"), [0, 0, 1, 0, 0], [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (1, 4)])
    assert "not convex" in drawn.refused([0, 0, 1, 0, 0])
    first = [0, 0, 1, 2, 2]
    second = [0, 2, 1, 2, 2]
    for labels in (first, second):
        hetero.check_partition(drawn.graph, drawn.device, labels, maximal=True)
    edges = [sum(labels[a] != labels[b] for a, b in drawn.edges) for labels in (first, second)]
    assert edges == [4, 3]
    return Picture(
        "Contraction",
        [
            ("same color, same device: which of the blue edges may be contracted?", drawn.dot()),
            (
                "a and b, then d and e: b's edges to d and e must stay, since a leads to d over c as well; "
                f"{edges[0]} edges cut",
                drawn.dot(first, red=[(0, 2), (2, 3)]),
            ),
            (
                f"b and d, then e: now a's edge to b must stay; as many subgraphs, {edges[1]} edges cut",
                drawn.dot(second, red=[(0, 2), (2, 3)]),
            ),
        ],
    )


PICTURES: dict[str, Callable[[], Picture]] = {
    "partitioner-waiting": waiting,
    "partitioner-convex": convex,
    "partitioner-loop": loop,
    "partitioner-levels": levels,
    "partitioner-contraction": contraction,
}


def draw(picture: Picture) -> str:
    """The picture as SVG."""
    from hetero.report.svg import render

    parts: list[str] = []
    x = y = total = bottom = 0.0
    inner = [render(text) for _, text in picture.panels]
    tallest = max(_size(one)[1] for one in inner)
    for (caption, _), one in zip(picture.panels, inner, strict=True):
        width, height = _size(one)
        panel = max(width + 8, 104)
        body = re.search(r"<g .*</g>", one, re.DOTALL)
        assert body is not None
        parts.append(
            f'<svg x="{x + (panel - width) / 2:.1f}" y="{y + 4:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'viewBox="0 0 {width:.1f} {height:.1f}">'
            + re.sub(r"<title>.*?</title>\n?|<!--.*?-->\n?", "", body[0], flags=re.DOTALL)
            + "</svg>"
        )
        below = y + (height if picture.stacked else tallest) + 18
        for line in textwrap.wrap(caption, int(panel / 6)):
            parts.append(
                f'<text x="{x + panel / 2:.1f}" y="{below:.1f}" text-anchor="middle" fill="#24292f">'
                f"{html.escape(line)}</text>"
            )
            below += 14
        total, bottom = max(total, x + panel), max(bottom, below)
        x, y = (0.0, below + 4) if picture.stacked else (x + panel + 16, 0.0)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {bottom:.0f}" '
            f'width="{total * 1.25:.0f}" height="{bottom * 1.25:.0f}" font-family="Helvetica,Arial,sans-serif" '
            f'font-size="11" role="img" aria-label="{html.escape(picture.title)}">',
            f"<desc>sha256 of its source: {picture.digest}</desc>",
            f'<rect width="{total:.0f}" height="{bottom:.0f}" fill="white"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _size(text: str) -> tuple[float, float]:
    found = re.search(r'viewBox="[\d.-]+ [\d.-]+ ([\d.]+) ([\d.]+)"', text)
    assert found is not None
    return float(found[1]), float(found[2])


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(make()), encoding="utf-8")
        print(f"docs/images/{name}.svg")


if __name__ == "__main__":
    main()
