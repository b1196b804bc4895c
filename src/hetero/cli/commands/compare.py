"""``hetero compare``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..options import FiniteRange, input_options, json_option, model_argument, new_command
from ..planning import Planning, planning_options

if TYPE_CHECKING:
    from ...base.difference import Difference
    from ..divergence import Divergence
    from ..session import Session

__all__ = ["DIFFERS", "command"]

DIFFERS = 3
"""Exit code if results differ."""


@new_command("compare model.onnx -d HETERO:FPGA,CPU -d CPU --boundaries")
@model_argument()
@planning_options("Device to check. A second -d is the reference [default: CPU].", several=True)
@input_options
@click.option("--rtol", type=FiniteRange(min=0), default=1e-3, show_default=True, help="Relative tolerance.")
@click.option("--atol", type=FiniteRange(min=0), default=1e-5, show_default=True, help="Absolute tolerance.")
@click.option("--boundaries", is_flag=True, help="Also compare the values between subgraphs.")
@click.option("--nodes", is_flag=True, help="Compare at every node, and find the first node that diverges.")
@json_option
def command(
    model: str,
    planning: Planning,
    rtol: float,
    atol: float,
    boundaries: bool,
    nodes: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Compare the results of two devices: outputs, or all values between subgraphs.

    A value passes if |difference| ≤ atol + rtol · |reference| for each element. Non-float values must match exactly.
    The worst values come first, each with the smallest tolerance that would pass. The exit code is 3 if a value fails.
    With --nodes, models of more than 2,000 values are bisected if an output differs, and values inside the patterns of
    a device are left out.
    """
    from ..inputs import InputChoice
    from ..session import Session
    from ..text import print_json, print_line

    if boundaries and nodes:
        raise click.UsageError("give --boundaries or --nodes")
    judged, reference = _pair(planning)
    session = Session(model, planning)
    chosen = InputChoice(**choice)
    session.state_sizes(chosen)
    inputs = chosen.make(session.inputs)
    task = (session, judged, reference, planning.config(), inputs)
    divergence, each_node = None, False
    if nodes:
        differences, divergence, each_node = _at_nodes(*task, (rtol, atol))
    else:
        differences = _differences(*task, boundaries, (rtol, atol))
    passed = all(entry.passes for entry in differences)
    if as_json:
        print_json(
            {
                "model": model,
                "device": judged.label,
                "reference": reference,
                "rtol": rtol,
                "atol": atol,
                "passed": passed,
                "least_rtol": max((entry.least_rtol for entry in differences), default=0.0),
                "least_atol": max((entry.least_atol for entry in differences), default=0.0),
                "inputs": [entry.as_json() for entry in inputs],
                "values": [entry.as_json() for entry in differences],
                **({"first_node": None if divergence is None else divergence.as_json()} if nodes else {}),
                **({"each_node": each_node} if nodes else {}),
            }
        )
    else:
        _print(differences, judged.label or "", reference, (rtol, atol))
        if divergence is not None:
            _print_divergence(divergence)
        elif nodes and not each_node:
            print_line("Only the outputs were compared, because the model has too many or too large values")
    if not passed:
        raise SystemExit(DIFFERS)


def _pair(planning: Planning) -> tuple[Planning, str]:
    """The device or plan to check, and the reference device."""
    devices, by_plan = planning.devices, planning.plan_path is not None
    if len(devices) > (1 if by_plan else 2) or (not devices and not by_plan):
        raise click.UsageError(
            "give -d twice: the device to check, then the reference (or --plan, then -d with the reference)"
        )
    if by_plan:
        return dataclasses.replace(planning, devices=()), (*devices, "CPU")[0]
    judged, reference = (*devices, "CPU")[:2]
    if judged == reference:
        raise click.UsageError(f"{judged} cannot be compared with itself: give a second -d with the reference")
    return planning.on(judged), reference


def _at_nodes(
    session: Session,
    judged: Planning,
    reference: str,
    config: dict[str, Any],
    inputs: Sequence[Any],
    tolerances: tuple[float, float],
) -> tuple[list[Difference], Divergence | None, bool]:
    """The values compared, the worst first, the first node that diverges, and whether each node was compared. A model
    with many values is bisected, and so is a model that differs only without extra outputs; then the values are its
    outputs and those of that node."""
    from ...base.device_string import string_of_list
    from ..divergence import Prober, compare_nodes, find_divergence, has_few_values
    from ..progress import progress

    plan = session.plan(judged, config)
    config = {"PARTITION_POLICY": plan.policy, **config} if len(plan.devices) > 1 else config
    devices = string_of_list(plan.devices) if len(plan.devices) > 1 else plan.devices[0]
    model = plan.assignment.model
    if len(plan.devices) > 1:
        model = model.with_affinity(plan.affinity)
    arrays = {entry.name: entry.array for entry in inputs}
    left_out = plan.assignment.values_in_units()
    prober = Prober(session.core, model, devices, reference, config, arrays, tolerances, left_out)
    with progress("Comparing") as tell:
        of_outputs = prober.compare(list(model.output_ids), keep=True)
        outputs = list(of_outputs.values())
        differences, divergence = outputs, None
        each_node = has_few_values(model)
        if each_node:
            tell(0.3)
            differences, divergence = compare_nodes(prober)
            differences += [entry for entry in outputs if not entry.passes and divergence is None]
        if divergence is None and not all(entry.passes for entry in outputs):
            divergence = find_divergence(prober, of_outputs, tell)
            differences = outputs + (list(divergence.differences) if divergence is not None else [])
    unique = {entry.name: entry for entry in reversed(differences)}
    return sorted(unique.values(), key=lambda entry: (entry.passes, -entry.badness)), divergence, each_node


def _differences(
    session: Session,
    judged: Planning,
    reference: str,
    config: dict[str, Any],
    inputs: Sequence[Any],
    boundaries: bool,
    tolerances: tuple[float, float],
) -> list[Difference]:
    """Each value compared, the worst first."""
    from ...base.difference import difference
    from ..progress import progress

    core, model = session.core, session.model
    arrays = {entry.name: entry.array for entry in inputs}
    sources: dict[str, int] = {}
    with progress("Comparing") as tell:
        if boundaries:
            from ..boundaries import with_boundaries

            plan = session.plan(judged, config)
            devices = f"HETERO:{','.join(plan.devices)}"
            config = {"PARTITION_POLICY": plan.policy, **config} if plan.num_subgraphs > 1 else config
            model, sources = with_boundaries(plan)
            compiled = core.compile_model(model.with_affinity(plan.affinity), devices, config)
            tell(0.2)
            beside = core.compile_model(model.with_affinity({}), reference)
        else:
            compiled, _ = session.compile(judged, config)
            tell(0.2)
            beside = session.compile_reference(reference)
        tell(0.4)
        first = compiled(arrays)
        tell(0.6)
        second = beside(arrays)
        tell(0.9)
        differences = [
            difference(name, first[name], value, *tolerances, subgraph=sources.get(name))
            for name, value in second.items()
        ]
    return sorted(differences, key=lambda entry: (entry.passes, -entry.badness))


def _print(differences: Sequence[Difference], judged: str, reference: str, tolerances: tuple[float, float]) -> None:
    from ...base.formatting import shape_text
    from ..text import print_line, print_table, shorten

    with_subgraph = any(entry.subgraph is not None for entry in differences)
    print_table(
        f"{judged} against {reference}, rtol {tolerances[0]:g}, atol {tolerances[1]:g}",
        (
            "value",
            *([">sub-\ngraph"] if with_subgraph else []),
            "shape",
            ">max |Δ|",
            ">of max\n|y|",
            ">elements\noff",
            ">least\nrtol",
            "verdict",
        ),
        [
            (
                shorten(entry.name),
                *(["" if entry.subgraph is None else entry.subgraph] if with_subgraph else []),
                "" if entry.shape is None else shape_text(entry.shape, compact=True),
                f"{entry.largest:.1e}",
                f"{entry.relative:.1e}",
                entry.off,
                f"{entry.least_rtol:.1e}",
                entry.verdict,
            )
            for entry in differences
        ],
    )
    failed = sum(not entry.passes for entry in differences)
    if not failed:
        print_line("The value passes" if len(differences) == 1 else f"All {len(differences):,} values pass")
        return
    rtol, atol = max(entry.least_rtol for entry in differences), max(entry.least_atol for entry in differences)
    advice = f"all pass with --rtol {_rounded_up(rtol)}, or with --atol {_rounded_up(atol)}"
    if not rtol < float("inf"):
        advice = f"all pass with --atol {_rounded_up(atol)}" if atol < float("inf") else "no tolerance lets all pass"
    which = f"{failed:,} of {len(differences):,} values differ" if len(differences) > 1 else "The value differs"
    print_line(f"{which}; {advice}")


def _print_divergence(divergence: Divergence) -> None:
    from ..text import print_line, shorten

    values = ", ".join(shorten(entry.name) for entry in divergence.differences if not entry.passes)
    node = f"{shorten(divergence.node)} ({divergence.op_type})"
    if values:
        print_line(f"First node that differs: {node}, which computes {values}; everything that it reads passes")
    else:
        print_line(f"The first difference is at {node}, but only if the device computes it together with other nodes")


def _rounded_up(tolerance: float) -> str:
    """The tolerance with three digits, never rounded down."""
    text = f"{tolerance:.2e}"
    return text if float(text) >= tolerance else f"{1.005 * tolerance:.2e}"
