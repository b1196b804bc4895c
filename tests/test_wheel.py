"""What a wheel contains beside the package."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from hetero.base.version import __version__


def test_list_of_contents() -> None:
    """PEP 770: a list of what is inside the wheel, in .dist-info/sboms."""
    files = importlib.metadata.files("hetero") or []
    found = [file for file in files if "sboms" in file.parts]
    if not found and not any(file.name.startswith("_kernels.") for file in files):
        pytest.skip("an editable installation has no list of contents")
    [path] = found
    assert path.name == "hetero.cdx.json"
    contents = json.loads(path.read_text())
    component = contents["metadata"]["component"]
    assert (contents["bomFormat"], component["name"], component["version"]) == ("CycloneDX", "hetero", __version__)
    [cython] = contents["components"]
    assert cython["purl"] == f"pkg:pypi/cython@{cython['version']}"
    assert cython["version"][0].isdigit()
