"""``hetero plan``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..completing import complete_support
from ..options import force_option, json_option, model_argument, new_command, shape_options
from ..planning import Planning, planning_options

if TYPE_CHECKING:
    from ...plan import Plan

__all__ = ["command"]

_POLICIES = ("auto", "linear", "documented")


@new_command("plan model.onnx -d HETERO:FPGA,CPU --pin op:Softmax=CPU")
@model_argument()
@planning_options("Device list, by priority.")
@click.option("--policy", type=click.Choice(_POLICIES), help="Partitioning policy [default: auto].")
@click.option("--explain", metavar="NODE", multiple=True, help="Explain the device of a node, and the cuts around it.")
@click.option(
    "--what-if",
    metavar="DEVICE=OP,OP",
    multiple=True,
    shell_complete=complete_support,
    help="Show what would change if a device also supported these operators.",
)
@click.option("--missing-ops", is_flag=True, help="Show which missing operators cause the most subgraphs.")
@click.option(
    "-o", "--save", metavar="PLAN.json", type=click.Path(), help="Write the plan, for --plan. It can be edited."
)
@click.option(
    "--dot",
    metavar="FOLDER",
    type=click.Path(),
    help="Write two Graphviz files, nodes by device and by subgraph, to this folder.",
)
@click.option("--svg", metavar="FILE.svg", type=click.Path(), help="Draw the plan; requires Graphviz or hetero[svg].")
@shape_options
@force_option
@json_option
def command(
    model: str,
    planning: Planning,
    policy: str | None,
    explain: tuple[str, ...],
    what_if: tuple[str, ...],
    missing_ops: bool,
    save: str | None,
    dot: str | None,
    svg: str | None,
    force: bool,
    as_json: bool,
    **sizes: Any,
) -> None:
    """Show the device of each node with the reason, and the subgraphs, without compiling.

    With --plan, check a saved or edited plan against the model. --json prints the plan in the format of --save; with
    --explain, --what-if or --missing-ops, it prints their answers.
    """
    from ..inputs import InputChoice
    from ..outfile import check_output, make_folder
    from ..session import Session
    from ..text import print_line

    planning.require()
    for path in filter(None, (save, svg)):
        check_output(path, force)
    if dot is not None:
        make_folder(dot)
    config = planning.config()
    if policy is not None:
        config["PARTITION_POLICY"] = policy
    session = Session(model, planning)
    session.state_sizes(InputChoice(**sizes))
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always", RuntimeWarning)
        plan = session.plan(planning, config)
    answers = _answers(plan, explain, what_if, missing_ops)
    shown = {warning.message for warning in plan.warnings} if not (as_json or answers) else set()
    for one in issued:
        if str(one.message) not in shown:  # the plan's text has the others
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if as_json:
        click.echo(json.dumps(_as_json(answers), indent=1) if answers else _file_of(plan))
    elif answers:
        print_line("\n\n".join(text for _, _, text in answers))
    else:
        print_line(str(plan))
    written = _write(plan, save, dot, svg, force)
    if not as_json:
        for path in written:
            print_line(f"Wrote {path}")


_Answer = tuple[str, Any, str]
"""The key and the value in JSON, and the text."""


def _answers(plan: Plan, explain: Sequence[str], what_if: Sequence[str], missing_ops: bool) -> list[_Answer]:
    answers: list[_Answer] = []
    for node in explain:
        explanation = plan.explain(node)
        answers.append(("explain", json.loads(explanation.to_json()), str(explanation)))
    if what_if:
        more: dict[str, list[str]] = {}
        for entry in what_if:
            device, equals, names = entry.partition("=")
            if not equals or not names:
                raise click.UsageError(f"--what-if {entry}: expected DEVICE=OP,OP")
            more.setdefault(device, []).extend(names.split(","))
        difference = plan.what_if(device_supports=more)
        changes = "; ".join(f"{device} supported {', '.join(names)}" for device, names in more.items())
        data = {"device_supports": more, **json.loads(difference.to_json())}
        answers.append(("what_if", data, f"if {changes}:\n{difference}"))
    if missing_ops:
        import dataclasses

        operators = plan.missing_ops()
        lines = [str(missing) for missing in operators] or ["no operator would reduce the number of subgraphs"]
        answers.append(("missing_ops", [dataclasses.asdict(missing) for missing in operators], "\n".join(lines)))
    return answers


def _as_json(answers: Sequence[_Answer]) -> dict[str, Any]:
    """The answers by kind; ``explain`` is a list."""
    by_kind: dict[str, Any] = {}
    for key, value, _ in answers:
        if key == "explain":
            by_kind.setdefault(key, []).append(value)
        else:
            by_kind[key] = value
    return by_kind


def _file_of(plan: Plan) -> str:
    """The text that `Plan.save` writes."""
    from ...plan.file import encode_lines

    return b"".join(encode_lines(plan.to_file())).decode().rstrip("\n")


def _write(plan: Plan, save: str | None, dot: str | None, svg: str | None, force: bool) -> list[str]:
    """Writes the requested files and returns their paths."""
    import os

    from ..outfile import check_output, writing

    drawn = ""
    if svg is not None:  # first, because Graphviz may be missing
        from ...report.svg import render

        drawn = render(plan)
    written = []
    if save is not None:
        plan.save(save)
        written.append(save)
    if dot is not None:
        from ...base.names import file_stem
        from ...report.dot import write_affinity_dot, write_subgraphs_dot

        for kind, write in (("affinity", write_affinity_dot), ("subgraphs", write_subgraphs_dot)):
            check_output(os.path.join(dot, f"hetero_{kind}_{file_stem(plan.model_name)}.dot"), force)
            written.append(str(write(plan, dot)))
    if svg is not None:
        from ...base.files import write_atomically

        with writing(svg):
            write_atomically(svg, [drawn.encode()])
        written.append(svg)
    return written
