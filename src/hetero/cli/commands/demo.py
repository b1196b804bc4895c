"""``hetero demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..group import Failure
from ..options import WholeRange, force_option, json_option, new_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...demo import DemoResult
    from ...plan import Plan
    from ...plugin.profile import ProfileRow

__all__ = ["command"]


@new_command("demo")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write two Graphviz files to this folder, which is created if it does not exist.",
)
@click.option(
    "--seed", type=WholeRange(min=0), default=0, show_default=True, help="Seed of the random weights and input."
)
@click.option("--per-node", is_flag=True, help="Print the counters of every node.")
@click.option(
    "--save-model", metavar="FILE.onnx", type=click.Path(), help="Write the model, for use with other commands."
)
@force_option
@json_option
def command(output: Path | None, seed: int, per_node: bool, save_model: str | None, force: bool, as_json: bool) -> None:
    """Run GoogLeNet v1 on HETERO:FPGA,CPU, with a simulated FPGA.

    The demo shows the subgraphs and the counters, and compares the result with the CPU. It requires neither a network
    connection nor an FPGA: the model is part of the onnx package, with random weights, and a profile simulates the
    FPGA, which supports all operators of the model except LRN and Softmax.
    """
    from ...demo import run_demo
    from ..outfile import check_output, make_folder
    from ..progress import working
    from ..text import print_line

    if output is not None:
        make_folder(str(output))
    if save_model is not None:
        check_output(save_model, force)
    with working("Running the demo"):
        result = run_demo(output, seed)
        if save_model is not None:
            result.model.save(save_model)
    if as_json:
        _print_json(result)
    else:
        _print(result, per_node)
        if save_model is not None:
            print_line(f"Wrote {save_model}")
    if not result.agrees:
        raise Failure("the result differs from the CPU's by more than rounding")


def _print_json(result: DemoResult) -> None:
    from ..counters import as_json
    from ..text import print_json

    plan = result.plan
    print_json(
        {
            "model": plan.model_name,
            "device": f"HETERO:{','.join(plan.devices)}",
            "subgraphs": [{"device": part.device, "nodes": list(part.nodes)} for part in plan.subgraphs],
            "counters": as_json(result.profile, [part.device for part in plan.subgraphs]),
            "relative_difference": result.largest_difference,
            "agrees": result.agrees,
            "dot_files": list(map(str, result.dot_files)),
        }
    )


def _print(result: DemoResult, per_node: bool) -> None:
    from ...plugin.profile import format_profile, total_us
    from ..text import print_line

    _print_subgraphs(result.plan)
    if per_node:
        print_line(format_profile(result.profile))
    else:
        _print_counters(result.plan, result.profile)
        print_line(f"Total time: {total_us(result.profile):.0f} microseconds (FPGA: simulated on the CPU)")
    verdict = "agrees" if result.agrees else "DOES NOT AGREE"
    print_line(f"The result {verdict} with the CPU alone: max|Δ| = {result.largest_difference:.1e} · max|y|")
    for path in result.dot_files:
        print_line(f"Wrote {path}")


def _print_subgraphs(plan: Plan) -> None:
    from ...base.formatting import counted
    from ..text import print_table, shorten

    rows = [
        (number, part.device, len(part.nodes), shorten(part.nodes[0]), shorten(part.nodes[-1]))
        for number, part in enumerate(plan.subgraphs, start=1)
    ]
    print_table(
        f"{plan.model_name} on HETERO:{','.join(plan.devices)}: {counted(plan.num_subgraphs, 'subgraph')}",
        (">subgraph", "device", ">nodes", "first node", "last node"),
        rows,
    )


def _print_counters(plan: Plan, profile: Sequence[ProfileRow]) -> None:
    from ..counters import subgraph_totals
    from ..text import print_table, shorten

    rows = [
        (
            total.subgraph,
            total.device,
            total.executed,
            f"{total.real_us:.0f}",
            f"{total.cpu_us:.0f}",
            shorten(f"{total.slowest.node} ({total.slowest.layer_type})"),
            f"{total.slowest.real_us:.0f}",
        )
        for total in subgraph_totals(profile, [part.device for part in plan.subgraphs])
    ]
    columns = (">subgraph", "device", ">executed", ">real µs", ">cpu µs", "slowest node", ">its µs")
    print_table("Counters per subgraph", columns, rows)
