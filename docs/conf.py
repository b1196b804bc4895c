"""Sphinx's settings: ``sphinx-build -W docs site`` makes the site from these Markdown pages and the docstrings.

The pages are written for two readers: a code host, which shows them as they are, and this site. So they use plain
Markdown with relative links, and the reference alone (``api/``) has directives in it.
"""

from __future__ import annotations

import re
from typing import Any

import hetero

project = "hetero"
author = "The hetero authors"
version = release = hetero.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
html_theme = "furo"
html_title = f"hetero {version}"
html_show_copyright = False

# As code hosts do it: every heading can be linked to, and a link to a file that is no page downloads it.
myst_heading_anchors = 4
highlight_language = "none"

# Docstrings name things in single backticks; what is none of ours stays code.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
autosummary_generate = False
add_module_names = False


def add_navigation(app: Any, page: str, source: list[str]) -> None:
    """The lists of index.md, section by section, are the site's navigation; pages in none of them come last."""
    if page != "index":
        return
    listed = {page}
    sections = []
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^- \[[^\]]*\]\(([\w/-]+)\.md\)", section, re.MULTILINE)
        sections.append((section.splitlines()[0], pages))
        listed.update(pages)
    sections.append(("More", sorted(app.env.found_docs - listed)))
    for caption, pages in sections:
        if pages:
            source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", add_navigation)
    app.connect("env-get-outdated", lambda *_: ["index"])  # a new page changes the navigation
    return {"parallel_read_safe": True}
