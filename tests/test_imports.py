"""What `import hetero` costs, and that imports run along the stages."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import hetero

PACKAGE = Path(hetero.__file__).parent


def test_import_leaves_heavy_packages_alone() -> None:
    heavy = "('onnx', 'click', 'rich', 'msgspec', 'ml_dtypes', 'pathlib', 'shutil', 'subprocess', 'tempfile')"
    code = f"import hetero, sys; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"


def test_what_is_loaded_late() -> None:
    assert callable(hetero.split)
    assert hetero.split.__module__ == "hetero.compiling.splitting"
    for name in hetero.__all__:
        assert getattr(hetero, name).__name__ == name
        assert name in dir(hetero)
    assert hetero.errors.ModelError is hetero.ModelError
    with pytest.raises(AttributeError, match="no attribute 'slit'"):
        hetero.slit  # noqa: B018


def test_help_does_not_import_the_library() -> None:
    code = (
        "import sys, runpy; sys.argv = ['hetero', '--help']\n"
        "try:\n    from hetero.cli import main; main()\n"
        "except SystemExit:\n    pass\n"
        "print([m for m in ('onnx', 'rich', 'numpy', 'hetero.core') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def imports_of(path: Path) -> set[str]:
    """Modules of the package that a file imports, at once or in its functions (not under TYPE_CHECKING)."""
    relative = path.relative_to(PACKAGE.parent).with_suffix("")
    package = relative.parts if path.name == "__init__.py" else relative.parts[:-1]
    if path.name == "__init__.py":
        package = package[:-1]
    found = set()

    def visit(body: Iterable[ast.AST]) -> None:
        for node in body:
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                visit(node.orelse)
            elif isinstance(node, ast.ImportFrom) and node.level:
                base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
                name = ".".join(part for part in base if part)
                for alias in node.names:
                    member = f"{name}.{alias.name}"
                    found.add(member if is_module(member) else name)
            else:
                visit(ast.iter_child_nodes(node))

    visit(ast.parse(path.read_text()).body)
    return found


def is_module(name: str) -> bool:
    stem = PACKAGE.parent.joinpath(*name.split("."))
    return stem.is_dir() or any(stem.with_suffix(suffix).is_file() for suffix in (".py", ".pyi"))


def test_no_import_circles() -> None:
    modules = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = imports_of(path)
    graph = {name: sorted(target for target in targets if target in modules) for name, targets in modules.items()}
    done: set[str] = set()
    trail: list[str] = []

    def walk(name: str) -> None:
        assert name not in trail, f"import circle: {' -> '.join([*trail[trail.index(name) :], name])}"
        if name in done:
            return
        trail.append(name)
        for target in graph[name]:
            if target != name:
                walk(target)
        trail.pop()
        done.add(name)

    for name in sorted(graph):
        walk(name)
    assert len(graph) > 15


def test_the_partitioner_knows_no_other_stage() -> None:
    for path in (PACKAGE / "partition").rglob("*.py"):
        for name in imports_of(path):
            assert name.startswith(
                ("hetero.partition", "hetero.errors", "hetero._graph", "hetero._partition", "hetero._closure")
            ), f"{path.name}: {name}"
