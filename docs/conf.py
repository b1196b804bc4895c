"""Sphinx's settings: ``sphinx-build -W docs site`` makes the site from these Markdown pages and the docstrings.

The pages are written for two readers: a code host, which shows them as they are, and this site. So they use plain
Markdown with relative links, and the reference alone (``api/``) has directives in it.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

from sphinx.util.nodes import make_refnode

import hetero
from hetero.plugin import PROPERTIES, Plugin, Property
from hetero.registry import _BUILT_IN

project = "hetero"
author = "The hetero authors"
version = release = hetero.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
html_theme = "furo"
html_title = f"hetero {version}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

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


def plugin_classes() -> dict[str, type[Plugin]]:
    """Device -> class, of all that come with hetero; none is made, so their backends need not be here."""
    found = {}
    for device, place in _BUILT_IN.items():
        module, _, function = place.partition(":")
        home = importlib.import_module(getattr(importlib.import_module(module), function).__module__)
        classes = [one for one in vars(home).values() if isinstance(one, type) and issubclass(one, Plugin)]
        found[device] = next(one for one in classes if getattr(one, "name", None) == device)
    return found


def add_properties(app: Any, page: str, source: list[str]) -> None:
    """The table of all properties, from what devices declare, where properties.md has a comment for it."""
    if page != "properties":
        return
    found: dict[str, Property] = dict(PROPERTIES)
    devices: dict[str, list[str]] = {}
    classes = plugin_classes()
    for device, plugin in classes.items():
        for declared in plugin.properties:
            entry = declared if isinstance(declared, Property) else PROPERTIES[declared]
            found.setdefault(entry.name, entry)
            devices.setdefault(entry.name, []).append(device)
    rows = ["| property | values | default | | devices |", "|---|---|---|---|---|"]
    for name, entry in sorted(found.items(), key=lambda item: (not item[1].writable, item[0])):
        kinds = entry.type if isinstance(entry.type, tuple) else (entry.type,)
        choices = [str(choice) or '""' for choice in entry.choices or ()]
        values = ", ".join(choices or [{"NoneType": "None"}.get(kind.__name__, kind.__name__) for kind in kinds])
        having = devices.get(name, [])
        lacking = [device for device in classes if device not in having]
        where = ", ".join(having) or "compiled models"
        if len(lacking) < 3:
            where = f"all but {' and '.join(lacking)}" if lacking else "all"
        default = f"`{entry.default!r}`" if entry.writable else "read only"
        rows.append(f"| `{name}` | {values} | {default} | {entry.doc} | {where} |")
    source[0] = source[0].replace("<!-- the table -->", "\n".join(rows))


def add_names(app: Any, page: str, source: list[str]) -> None:
    """What each page of the reference describes, one line each, under the heading of index.md that links to it."""
    if page != "api/index":
        return

    def with_names(heading: re.Match[str]) -> str:
        described = Path(app.srcdir, "api", heading[1]).read_text(encoding="utf-8")
        module = ""
        lines = [heading[0], "", "```{eval-rst}", ".. autosummary::", "   :nosignatures:", ""]
        for directive, name in re.findall(r"^\.\. (currentmodule|auto\w+):: (\S+)$", described, re.MULTILINE):
            if directive == "currentmodule":
                module = name
            else:
                lines.append(f"   {module}.{name}")
        return "\n".join([*lines, "```", ""])

    source[0] = re.sub(r"^## \[[^\]]*\]\((\w+\.md)\)$", with_names, source[0], flags=re.MULTILINE)


def find_name(app: Any, env: Any, node: Any, text: Any) -> Any:
    """Docstrings name things as readers know them (`PropertyError`, `Plugin.check_import`), not by their modules."""
    if node.get("refdomain") != "py" or "reftarget" not in node:
        return None
    domain = env.domains["py"]
    name = full_name(domain, ".".join(node["reftarget"].split(".")[-2:]))
    return name and make_refnode(app.builder, node["refdoc"], *domain.objects[name][:2], text, name)


@functools.cache  # Sphinx looks through all names, and asks for most of them often, after it has read all pages
def full_name(domain: Any, short: str) -> str | None:
    names = [name for name, _ in domain.find_obj(domain.env, None, None, short, None, 1)]
    return min(names, key=lambda name: (name.count("."), name), default=None)  # what hetero itself gives goes first


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", add_navigation)
    app.connect("source-read", add_properties)
    app.connect("source-read", add_names)
    app.connect("missing-reference", find_name)
    app.connect("env-get-outdated", lambda *_: ["index", "properties", "api/index"])  # they are made from others
    return {"parallel_read_safe": True}
