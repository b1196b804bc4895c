"""Draws small SVG pictures of plans and profiles for notebooks, with one lane per device.

If there are many boxes, each lane shows columns with the share of time that boxes take, so the picture stays small.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from .names import xml_text
from .palette import device_color, shade, tint

__all__ = ["Box", "lanes_svg"]

_WIDTH, _LANE, _MARGIN, _NAMES = 760.0, 34.0, 12.0, 110.0
_MAX_BOXES = 60  # above this, a picture shows columns instead of boxes
_COLUMN = 2.0  # width of a column in pixels


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """A subgraph in its lane, from ``begin`` to ``end`` in any unit. ``tip``: the text shown on hover."""

    lane: int
    begin: float
    end: float
    label: str
    tip: str


def lanes_svg(
    title: str,
    notes: Sequence[str],
    boxes: Sequence[Box],
    edges: Iterable[tuple[int, int]],
    below: str,
    colors: Sequence[int] | None = None,
) -> str:
    """The picture as SVG. ``notes``: the text to the left of each lane. ``edges``: pairs of box numbers. ``below``: the
    text below the lanes. ``colors``: the color number of each lane, by default the number of the lane."""
    colors = range(len(notes)) if colors is None else colors
    left = _MARGIN + max(_NAMES, *(7.0 * len(note) for note in notes)) if notes else _MARGIN
    width = _WIDTH - _MARGIN - left
    top = 34.0
    height = top + _LANE * len(notes) + (24.0 if below else _MARGIN)
    span = max((box.end for box in boxes), default=1.0) or 1.0
    scale = width / span
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" width="{_WIDTH:g}" '
        f'height="{height:g}" font-family="Helvetica,Arial,sans-serif" font-size="12" role="img" '
        f'aria-label="{xml_text(title)}">',
        f'<rect width="{_WIDTH:g}" height="{height:g}" rx="8" fill="#fff" stroke="#d0d7de"/>',
        f'<text x="{_MARGIN:g}" y="22" font-weight="bold" fill="#1f2328">{xml_text(title)}</text>',
    ]
    for lane, note in enumerate(notes):
        middle = top + _LANE * (lane + 0.5)
        out.append(
            f'<rect x="{left:g}" y="{middle - _LANE / 2 + 2:g}" width="{width:g}" height="{_LANE - 4:g}" rx="4" '
            f'fill="#f6f8fa"/><text x="{_MARGIN:g}" y="{middle + 4:g}" fill="#1f2328">{xml_text(note)}</text>'
        )
    if len(boxes) > _MAX_BOXES:
        out += _columns(boxes, left, width, top, scale, colors)
    else:
        out += _arrows(boxes, edges, left, top, scale)
        out += [_box(box, left, top, scale, colors[box.lane]) for box in boxes]
    if below:
        out.append(f'<text x="{left:g}" y="{height - 9:g}" font-size="11" fill="#59636e">{xml_text(below)}</text>')
    return "\n".join([*out, "</svg>"])


def _box(box: Box, left: float, top: float, scale: float, color: int) -> str:
    fill = device_color(color)
    x, width = left + box.begin * scale, max(1.5, (box.end - box.begin) * scale)
    y = top + _LANE * box.lane + 6
    drawn = (
        f'<g><title>{xml_text(box.tip)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{_LANE - 12:g}" rx="{min(4.0, width / 3):.1f}" fill="{tint(fill, 0.35)}" stroke="{fill}"/>'
    )
    if width > 7 * len(box.label) + 4:
        drawn += (
            f'<text x="{x + width / 2:.1f}" y="{y + 15:.1f}" text-anchor="middle" font-size="11" '
            f'fill="{shade(fill, 0.25)}">{box.label}</text>'
        )
    return drawn + "</g>"


def _arrows(boxes: Sequence[Box], edges: Iterable[tuple[int, int]], left: float, top: float, scale: float) -> list[str]:
    """Curves from the end of a box to the beginning of a box in another lane."""
    paths = []
    for source, target in dict.fromkeys(edges):
        if not (0 <= source < len(boxes) and 0 <= target < len(boxes)):
            continue
        one, other = boxes[source], boxes[target]
        if one.lane == other.lane:
            continue  # the curve would cross the boxes between them
        down = 1 if other.lane > one.lane else -1
        inset = [min(3.0, (box.end - box.begin) * scale / 2) for box in (one, other)]
        x1, x2 = left + one.end * scale - inset[0], left + other.begin * scale + inset[1]
        y1 = top + _LANE * (one.lane + 0.5) + down * (_LANE / 2 - 6)
        y2 = top + _LANE * (other.lane + 0.5) - down * (_LANE / 2 - 6)
        paths.append(
            f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + down * 10:.1f} {x2:.1f} {y2 - down * 10:.1f} {x2:.1f} {y2:.1f}"
        )
    return [f'<path d="{"".join(paths)}" fill="none" stroke="#8c959f"/>'] if paths else []


def _columns(
    boxes: Sequence[Box], left: float, width: float, top: float, scale: float, colors: Sequence[int]
) -> list[str]:
    """Columns per lane. The more of a column the boxes fill, the darker it is."""
    filled: dict[tuple[int, int], float] = {}
    for box in boxes:
        begin, end = box.begin * scale / _COLUMN, box.end * scale / _COLUMN
        for column in range(int(begin), min(int(end), int(width / _COLUMN) - 1) + 1):
            share = max(0.0, min(end, column + 1) - max(begin, column))
            filled[box.lane, column] = filled.get((box.lane, column), 0.0) + share
    out = []
    for lane, entries in itertools.groupby(sorted(filled.items()), key=lambda entry: entry[0][0]):
        fill, y = device_color(colors[lane]), top + _LANE * lane + 6
        paths: dict[str, list[str]] = {}
        for (_, column), share in entries:
            color = tint(fill, 0.15 + 0.85 * min(1.0, round(share, 1)))
            paths.setdefault(color, []).append(f"M{left + column * _COLUMN:.0f} {y:.0f}v{_LANE - 12:.0f}")
        out += [
            f'<path d="{"".join(path)}" stroke="{color}" stroke-width="{_COLUMN:g}"/>' for color, path in paths.items()
        ]
    return out
