"""Every relative link and picture of the Markdown pages leads to a file, and to a heading where it names one."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    wrong = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.is_relative_to(ROOT) or not file.is_file():  # a code host shows folders, the site cannot
            wrong.append(f"{target}: no such file")
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text(encoding="utf-8"))):
            wrong.append(f"{target}: no such heading")
    assert not wrong


def anchors(text: str) -> set[str]:
    """The anchors that code hosts, and the site, make of the headings of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        kept = [sign for sign in shown if sign in " -_" or unicodedata.category(sign)[0] in "LN"]
        slug = "".join(kept).replace(" ", "-")
        number = 0
        while (f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def test_anchors_are_as_code_hosts_make_them() -> None:
    text = "# Why `is` it so?\n## What if?\n```sh\n# no heading\n```\n## What if?\n### [CPU](cpu.md), ids\n"
    assert anchors(text) == {"why-is-it-so", "what-if", "what-if-1", "cpu-ids"}


def test_index_lists_pages_that_are_there_and_each_once() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]*\]\(([\w/-]+\.md)\)", index, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) <= {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
