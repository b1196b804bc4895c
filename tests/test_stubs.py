"""The hand-written stubs match the compiled modules, what they name is documented, and the package type-checks."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import hetero

MODULES = (
    "hetero._onnx",
    "hetero._graph",
    "hetero._partition",
    "hetero._assign",
    "hetero._schedule",
    "hetero._closure",
    "hetero._kernels",
    "hetero._ngrams",
    "hetero._hosted",
    "hetero._program",
    "hetero._workspace",
    "hetero._checksum",
    "hetero._dlpack",
)


@pytest.mark.parametrize("name", [*MODULES, "hetero._sizes"])
def test_help_documents_what_the_stubs_name(name: str) -> None:
    """The docstrings are in the compiled modules, where `help` finds them, and not in the stubs too."""
    module = importlib.import_module(name)
    # Beside the package: in an editable build, compiled modules are in another folder.
    stub = ast.parse((Path(hetero.__file__).parent / f"{name.rpartition('.')[2]}.pyi").read_text())
    missing = []

    def visit(node: ast.Module | ast.ClassDef, owner: object, prefix: str) -> None:
        for item in node.body:
            if not isinstance(item, (ast.FunctionDef, ast.ClassDef)) or item.name.startswith("__"):
                continue
            assert ast.get_docstring(item) is None
            documented = getattr(owner, item.name)
            is_plain_attribute = bool(getattr(item, "decorator_list", [])) and isinstance(item, ast.FunctionDef)
            if not documented.__doc__ and not is_plain_attribute:
                missing.append(prefix + item.name)
            if isinstance(item, ast.ClassDef):
                visit(item, documented, f"{item.name}.")

    visit(stub, module, "")
    assert missing == []


@pytest.mark.slow
def test_stubs_match_the_compiled_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", *MODULES, "--ignore-disjoint-bases"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_package_type_checks(tmp_path: Path) -> None:
    config = Path(__file__).parents[1] / "pyproject.toml"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(tmp_path), "-p", "hetero"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
