"""Commands that the pages name are there, with the options that the pages give them."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hetero.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
CODE = re.compile(
    r"^(?: {4}|\$ )?(?P<line>(?:[\w./-]+/)?(?:hetero|python3?|pytest)\b.*)$"
    r"|`(?P<inline>(?:hetero|python3?) [^`\n]*)`",
    re.MULTILINE,
)
SCRIPT = re.compile(r"\b(?:bench|tools|tests|examples)/[\w/]+\.(?:py|sh)\b")


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for found in CODE.finditer(page.read_text(encoding="utf-8")):
            line = found["line"] or found["inline"]
            for one in re.split(r"\s#\s|&&|[;|>]", line):
                yield str(page.relative_to(ROOT)), one.strip()


HETERO = sorted({(page, line) for page, line in commands() if re.match(r"(\S*/)?hetero [a-z]", line)})
SCRIPTS = sorted({(page, line) for page, line in commands() if SCRIPT.search(line)})


def test_there_are_some() -> None:
    assert len(HETERO) > 30
    assert len(SCRIPTS) > 20


@pytest.mark.parametrize(("page", "line"), HETERO)
def test_options_of_hetero(page: str, line: str) -> None:
    name = line.split()[1]
    command = main.get_command(click.Context(main), name)
    if command is None:
        assert not re.search(r"\s-", line), f"{page}: {line}"  # prose that begins with the name
        return
    _, _, *arguments = shlex.split(line)
    with contextlib.suppress(click.BadOptionUsage):  # an option without its value, as prose names it
        command.make_parser(click.Context(command, info_name=name)).parse_args(arguments)


@pytest.mark.parametrize(("page", "line"), SCRIPTS)
def test_scripts_and_their_options(page: str, line: str) -> None:
    for script in SCRIPT.findall(line):
        path = ROOT / script
        assert path.is_file(), f"{page}: {line}"
        if "pytest" not in line:
            source = path.read_text(encoding="utf-8")
            for option in re.findall(r"(?<=\s)--[\w-]+", line.partition(script)[2]):
                assert f'"{option}"' in source, f"{page}: {script} has no {option}"


NAMED = re.compile(r"(?<![\w/.-])(?:src|bench|tools|tests|examples|docs)/[\w./-]*\w(?:\.\w+|/)(?![\w-])")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_pages_name(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [name for name in NAMED.findall(text) if not (ROOT / name).exists()] == []


def test_an_option_that_is_not_there_is_found_out() -> None:
    with pytest.raises(click.NoSuchOption):
        test_options_of_hetero("a page", "hetero bench model.onnx --no-such-option")
