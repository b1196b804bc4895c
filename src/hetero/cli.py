"""The ``hetero`` command. Imports of the library and of rich happen inside the commands: ``--help`` stays quick."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from .plan import Plan
    from .runtime.profile import ProfileRow

__all__ = ["main"]


class _Commands(click.Group):
    """Shows errors of the library as one line and exit code 1, without a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        from .errors import HeteroError

        try:
            return super().invoke(ctx)
        except HeteroError as error:
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hetero")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def main(debug: bool) -> None:
    """Run one ONNX model over several devices."""


@main.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default="this folder",
    help="Where the two DOT files go.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random weights and of the input.")
@click.option("--per-node", is_flag=True, help="Print the counters of every node.")
def demo(output: Path, seed: int, per_node: bool) -> None:
    """GoogLeNet v1 on HETERO:FPGA,CPU, the FPGA simulated: plan, run, counters, check.

    Needs no network and no FPGA: the model comes with the onnx package, its weights are random, and the profile that
    stands in for the FPGA takes every operator of the model but LRN and Softmax.
    """
    from rich.console import Console

    from .demo import run_demo
    from .runtime.profile import format_profile, total_us

    console = Console()
    output.mkdir(parents=True, exist_ok=True)
    result = run_demo(output, seed)
    _print_subgraphs(console, result.plan)
    if per_node:
        console.print(format_profile(result.profile), markup=False, highlight=False)
    else:
        _print_counters(console, result.plan, result.profile)
        console.print(f"Total time: {total_us(result.profile):.0f} microseconds (FPGA: simulated on the CPU)")
    verdict = "agrees" if result.agrees else "DOES NOT AGREE"
    console.print(f"The result {verdict} with the CPU alone: max|Δ| = {result.largest_difference:.1e} · max|y|")
    for path in result.dot_files:
        console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)
    if not result.agrees:
        raise SystemExit(1)


def _print_subgraphs(console: Console, plan: Plan) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{escape(plan.model_name)} on HETERO:{','.join(plan.devices)}: {plan.num_subgraphs} subgraphs")
    for heading in ("subgraph", "device", "nodes", "first node", "last node"):
        table.add_column(heading, justify="right" if heading in ("subgraph", "nodes") else "left")
    for i, part in enumerate(plan.subgraphs, start=1):
        table.add_row(str(i), part.device, str(len(part.nodes)), escape(part.nodes[0]), escape(part.nodes[-1]))
    console.print(table)


def _print_counters(console: Console, plan: Plan, profile: Sequence[ProfileRow]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from .runtime.profile import EXECUTED

    table = Table(title="Counters per subgraph")
    for heading in ("subgraph", "device", "executed", "real µs", "cpu µs", "slowest node", "its µs"):
        table.add_column(heading, justify="left" if heading in ("device", "slowest node") else "right")
    for i, part in enumerate(plan.subgraphs, start=1):
        rows = [row for row in profile if row.subgraph == i]
        slowest = max(rows, key=lambda row: row.real_us)
        table.add_row(
            str(i),
            part.device,
            str(sum(row.status == EXECUTED for row in rows)),
            f"{sum(row.real_us for row in rows):.0f}",
            f"{sum(row.cpu_us for row in rows):.0f}",
            escape(f"{slowest.node} ({slowest.layer_type})"),
            f"{slowest.real_us:.0f}",
        )
    console.print(table)
