"""The report: a plan, or a plan and a run, as one self-contained HTML file.

Its content security policy allows only the style and the script in the file, by their digests, and no network access.
All names of the model are data: JSON with ``<`` escaped, or compressed, and displayed as text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..base.files import write_file
from ..base.names import shortened, xml_text
from ..base.palette import COLORS
from ..plugin.profile import Profile
from .data import report_data

if TYPE_CHECKING:
    from ..plan import PlanRecord

__all__ = ["report_html", "write_report"]

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("base", "data", "layout", "drawing", "scopes", "scenes", "graph", "table", "timeline", "details", "main")
_COMPRESSED_FROM = 256 << 10  # size of the JSON, in B, from which it is compressed by default


def report_html(
    plan: PlanRecord, profile: Profile | Iterable[Profile] | None = None, *, compress: bool | None = None
) -> str:
    """The report as text. ``profile``: `InferRequest.profiling_info` of a run of the plan, or of several requests, such
    as those in flight in a pipeline.

    ``compress``: compress the data with deflate, which browsers since 2023 can decompress. False stores plain JSON. By
    default, data of 256 KiB or more are compressed.
    """
    data = {"colors": COLORS, **report_data(plan, profile)}
    text = msgspec.json.encode(data)
    if compress is None:
        compress = len(text) >= _COMPRESSED_FROM
    if compress:
        encoded = base64.b64encode(zlib.compress(text, 6)).decode()
        element = f'<script type="application/octet-stream" id="data">{encoded}</script>'
    else:
        escaped = text.decode().replace("<", "\\u003c")
        element = f'<script type="application/json" id="data">{escaped}</script>'
    template, style, script = _parts()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    filled = {
        "policy": policy,
        "title": xml_text(shortened(plan.model_name, 80)),
        "style": style,
        "data": element,
        "script": script,
    }
    pieces = re.split(r"\{\{(\w+)\}\}", template)  # split once, so that inserted text is not searched for placeholders
    return "".join(filled[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def write_report(
    plan: PlanRecord,
    path: str | os.PathLike[str],
    profile: Profile | Iterable[Profile] | None = None,
    *,
    compress: bool | None = None,
) -> None:
    """Write `report_html` to a file atomically. Raises `HeteroError` if the file cannot be written."""
    write_file(path, [report_html(plan, profile, compress=compress).encode()])


@functools.cache
def _parts() -> tuple[str, str, str]:
    """The template, the style and the script."""
    scripts = "\n".join((_PAGE / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    return (
        (_PAGE / "report.html").read_text(encoding="utf-8"),
        (_PAGE / "report.css").read_text(encoding="utf-8"),
        f'(() => {{\n"use strict";\n{scripts}}})();\n',
    )


def _digest(text: str) -> str:
    """The source expression, in the content security policy, of an element with this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
