"""The site of docs/: built without a warning, with every page in its navigation and every public name in it."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import hetero

DOCS = Path(__file__).parents[2] / "docs"
# Most objects are nodes of documents, which live to the end: searching them takes a sixth of the time.
SPHINX = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
REFERENCE = {  # modules all of whose public names are in the reference
    "hetero": "hetero",
    "hetero.plugin": "hetero",
    "hetero.assign.costs": "hetero.assign.costs",
    "hetero.assign": "hetero.assign",
    "hetero.assign.memory": "hetero.assign.memory",
    "hetero.assign.pipeline": "hetero.assign.pipeline",
    "hetero.measure": "hetero.measure",
    "hetero.testing": "hetero.testing",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed, reason="the site is built with `pip install '.[docs]'`")
    folder = tmp_path_factory.mktemp("site")
    source = Path(hetero.__file__).parents[1]  # wherever hetero was imported from, the site is to describe that
    done = subprocess.run(
        [sys.executable, "-c", SPHINX, "-W", "--keep-going", "-q", str(DOCS), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def described(site: Path) -> set[str]:
    """The Python names that the site describes: those that others can link to."""
    return set(described_names(site / "objects.inv"))


def described_names(inventory: Path) -> Iterator[str]:
    with inventory.open("rb") as stream:
        for _ in range(4):  # a header, then compressed lines: name, kind, ...
            stream.readline()
        for line in zlib.decompress(stream.read()).decode().splitlines():
            name, kind, *_ = line.split(" ")
            if kind.startswith("py:"):
                yield name


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    navigation = front[front.index("sidebar-tree") : front.index("</aside>")]
    for page in DOCS.glob("**/*.md"):
        name = page.relative_to(DOCS).with_suffix(".html")
        assert (site / name).is_file()
        assert name.name == "index.html" or f'href="{name}"' in navigation, name


@pytest.mark.slow
@pytest.mark.parametrize("module", REFERENCE)
def test_reference_has_every_public_name(described: set[str], module: str) -> None:
    there = importlib.import_module(module)
    for name in there.__all__:
        places = {
            f"{module}.{name}",
            f"{REFERENCE[module]}.{name}",
            f"{getattr(getattr(there, name), '__module__', module)}.{name}",
        }
        assert places & described, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Core", "Model", "Plan", "CompiledModel", "InferRequest", "Graph", "Partition"])
def test_reference_has_every_public_member(described: set[str], name: str) -> None:
    kind = getattr(hetero, name)
    members = [
        member
        for member, value in inspect.getmembers(kind)
        if not member.startswith("_") and (callable(value) or isinstance(value, property))
    ]
    assert members
    assert [member for member in members if f"hetero.{name}.{member}" not in described] == []
