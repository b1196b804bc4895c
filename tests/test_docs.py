"""Pages whose snippets are run as they stand: blocks of Python in order, each followed by what it prints, if it does.

With ``HETERO_WRITE_DOCS=1`` in the environment, what is printed is put into the page instead of compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import onnx
import pytest

from model_zoo import light_model_path

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", ["plan.md"])
def test_snippets_do_what_the_page_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx.load(light_model_path("light_inception_v1")), tmp_path / "googlenet.onnx")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text()
    names: dict[str, object] = {}
    printed, parts, end = "", [], 0
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        parts.append(text[end : block.start(2)])
        end = block.end(2)
        if kind == "python":
            assert not printed, f"nothing tells what is printed before: {body}"
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(body, f"{page}: {body.splitlines()[0]}", "exec"), names)
            printed = stream.getvalue()
            parts.append(body)
        else:
            parts.append(printed)
            if not os.environ.get("HETERO_WRITE_DOCS"):
                assert body == printed
            printed = ""
    assert not printed
    if os.environ.get("HETERO_WRITE_DOCS"):
        (DOCS / page).write_text("".join(parts) + text[end:])
