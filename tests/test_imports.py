"""The cost of `import hetero`, and that imports and calls follow the order of the packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from onnx import helper

import hetero
from hetero.assign.assignment import Assignment
from hetero.assign.request import Request
from hetero.model.model import Model
from hetero.plan import PlanRecord
from model_zoo import make_model

PACKAGE = Path(hetero.__file__).parent

PACKAGES = (
    "errors",
    "base",
    "partition",
    "model",
    "artifact",
    "extension",
    "plugin",
    "assign",
    "plan",
    "runtime",
    "report",
    "workers",
    "compiling",
    "devices",
    "registry",
    "core",
    "measure",
    "demo",
    "testing",
    "cli",
)
"""The folders and modules of the package: a file imports from its own package and from earlier ones, imports for type
checking and imports in functions included. The compiled modules (`hetero._graph`, ...) may be imported anywhere."""

ENTRY_POINTS = {
    "workers.process": ("core", "devices.cpu"),
    "devices.ray.stage": ("core",),
    "devices.ray.host": ("",),
}
"""Files that run in another process, as its program, and what they import from later packages ("": the package)."""

MOST_TOP_MODULES = 8


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


def module_name(path: Path) -> str:
    """``model.read``; empty for the package itself."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__main__.py"}
COMPILED = {path.stem for path in PACKAGE.glob("_*.pyi")}


def imports_of(module: str) -> set[str]:
    """The modules of the package that a module imports: at once, in functions, and for type checking."""
    path = SOURCES[module]
    package = ["hetero", *(module.split(".") if module else [])]
    if path.name != "__init__.py":
        package.pop()
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parts, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                member = f"{base}.{alias.name}".removeprefix("hetero").removeprefix(".")
                found.add(f"hetero.{member}" if member in SOURCES or member in COMPILED else base)
    inside = {name.removeprefix("hetero").removeprefix(".") for name in found if name.partition(".")[0] == "hetero"}
    return inside - COMPILED - {module}


def test_every_file_has_a_package() -> None:
    assert {module.partition(".")[0] for module in SOURCES} == {"", *PACKAGES}
    top = [module for module in SOURCES if "." not in module and SOURCES[module].name != "__init__.py"]
    assert len(top) <= MOST_TOP_MODULES, top


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_follow_the_order_of_packages(package: str) -> None:
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    for module in SOURCES:
        if module.partition(".")[0] == package:
            later = {target for target in imports_of(module) if target.partition(".")[0] not in allowed}
            assert later == set(ENTRY_POINTS.get(module, ())), module


def test_no_import_circles() -> None:
    """Of any kind: modules that import each other only for type checking count."""
    graph = {module: sorted(imports_of(module) & SOURCES.keys()) for module in SOURCES if module not in ENTRY_POINTS}
    done: set[str] = set()
    trail: list[str] = []

    def walk(module: str) -> None:
        assert module not in trail, f"import circle: {' -> '.join([*trail[trail.index(module) :], module])}"
        if module in done:
            return
        trail.append(module)
        for target in graph.get(module, ()):
            walk(target)
        trail.pop()
        done.add(module)

    for module in graph:
        walk(module)
    assert len(graph) > 200


MOST_CALLS = 15
CARRIED = (Model, PlanRecord, Assignment, Request)
CONTRACT = {"request", "query_model", "compile_model"}
"""The methods of plugins through which the library hands a model to a device."""


def package(code: CodeType) -> str | None:
    if not code.co_filename.startswith(f"{PACKAGE}/"):
        return None
    return code.co_filename[len(str(PACKAGE)) + 1 :].partition("/")[0].removesuffix(".py")


def passes(compile_model: Any) -> list[tuple[str, str, str]]:
    """Distinct calls from one package to another that pass a model, a request, an assignment or a plan: (caller's
    package, package, function)."""
    found: dict[tuple[str, str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        here = package(frame.f_code)
        if event != "call" or here in (None, "model", "base"):
            return
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        own = names[:1] if names[:1] == ("self",) else ()
        if not any(isinstance(frame.f_locals.get(name), CARRIED) for name in names if name not in own):
            return
        caller = frame.f_back
        while caller is not None and package(caller.f_code) in (None, "base"):  # `guarded` calls on behalf of others
            caller = caller.f_back
        if caller is not None and (before := package(caller.f_code)) is not None and before != here:
            found[before, here, frame.f_code.co_qualname] = None

    sys.setprofile(note)
    try:
        compile_model()
    finally:
        sys.setprofile(None)
    return list(found)


def test_calls_that_pass_a_model_lead_to_earlier_packages() -> None:
    core = hetero.Core()
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i, op in enumerate(["Relu", "Exp", "Neg"])]
    model = core.read_model(make_model(nodes, inputs={"v0": [2, 3]}, outputs=("v3",)))
    given = passes(lambda: core.compile_model(model, "HETERO:CPU,TEMPLATE", pins={"n1": "TEMPLATE"}))
    to_devices = {function for _, here, function in given if here == "devices"}
    assert {name.partition(".")[2] for name in to_devices} <= CONTRACT
    among_packages = [entry for entry in given if "devices" not in entry[:2]]
    assert 5 <= len(among_packages) + len(to_devices) <= MOST_CALLS, given
    order = {name: position for position, name in enumerate(PACKAGES)}
    assert all(order[here] < order[before] for before, here, _ in among_packages), given
