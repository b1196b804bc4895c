"""``hetero tune``."""

from __future__ import annotations

import shlex
from typing import Any

import click

from ..group import Failure
from ..options import FiniteRange, force_option, input_options, json_option, model_argument, new_command
from ..planning import Planning, planning_options

__all__ = ["command"]

_SECONDS = 20.0


@new_command("tune model.onnx -d CPU,ORT -o plan.json")
@model_argument()
@planning_options("Devices, such as ORT,CPU. May be repeated.", several=True, plans=False)
@input_options
@click.option(
    "-t",
    "--time",
    "seconds",
    type=FiniteRange(min=0, min_open=True),
    default=_SECONDS,
    show_default=True,
    help="Seconds for everything. A step that has begun is finished.",
)
@click.option(
    "-o", "--output", metavar="PLAN.json", type=click.Path(), default="plan.json", show_default=True,
    help="Where to write the best plan.",
)  # fmt: skip
@click.option("--rtol", type=FiniteRange(min=0), default=1e-3, show_default=True, help="Relative tolerance.")
@click.option("--atol", type=FiniteRange(min=0), default=1e-5, show_default=True, help="Absolute tolerance.")
@force_option
@json_option
def command(
    model: str,
    planning: Planning,
    seconds: float,
    output: str,
    rtol: float,
    atol: float,
    force: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Measure plans for a list of devices, and write the fastest.

    Candidates are each device alone, splits by priority with each device first, a split by measured cost, and one that
    runs devices in parallel. Their results must agree with those of the first candidate that runs, within
    atol + rtol · |reference|.
    """
    from ..inputs import InputChoice
    from ..outfile import check_output
    from ..progress import progress
    from ..session import Session
    from ..text import print_json, print_line
    from ..tuning import Tuning, summary

    devices = _devices(planning)
    check_output(output, force)
    session = Session(model, planning)
    chosen = InputChoice(**choice)
    session.state_sizes(chosen)
    inputs = chosen.make(session.inputs)
    with progress("Tuning") as tell:
        tuning = Tuning(
            session.core,
            session.model,
            devices,
            planning.config(),
            {entry.name: entry.array for entry in inputs},
            seconds=seconds,
            tolerances=(rtol, atol),
            tell=tell,
        )
        best = tuning.run()
    if best is None or best.plan is None:
        lines = "\n".join(f"  {trial.name}: {trial.reason or trial.state}" for trial in tuning.trials)
        raise Failure(f"no candidate can run {model}:\n{lines}")
    best.plan.save(output)
    if as_json:
        print_json(
            {
                "model": model,
                "inputs": [entry.as_json() for entry in inputs],
                "seconds": tuning.elapsed_s,
                "candidates": [trial.as_json() for trial in tuning.trials],
                "not_compared": tuning.unstable,
                "best": best.name,
                "saved": output,
            }
        )
        return
    _print(tuning, best)
    simulated = [device for device in devices if _is_simulated(session.core, device)]
    if simulated:
        print_line(f"Simulated devices: {', '.join(simulated)}. Their times are not those of real hardware.")
    first = next(trial for trial in tuning.trials if trial.contender is not None)
    print_line(summary(best, first, tuning.trials))
    properties = "".join(f" --property {shlex.quote(entry)}" for entry in planning.properties)
    print_line(f"Wrote {output}: hetero run {shlex.quote(model)} --plan {shlex.quote(output)}{properties}")


def _devices(planning: Planning) -> tuple[str, ...]:
    """The devices of all ``-d``: lists with or without ``HETERO:``, and single devices."""
    from ...base.device_string import CONTROL_FLOW, parse_device_list
    from ...errors import PropertyError

    for entry in planning.devices:
        if entry in ("AUTO", "HETERO") or entry.partition(":")[0] == "MULTI":
            raise click.UsageError(f"-d {entry}: give the devices to choose from, such as -d ORT,CPU")
    listed = ",".join(entry.removeprefix("HETERO:").removeprefix("AUTO:") for entry in planning.devices)
    if listed in ("", CONTROL_FLOW):
        raise click.UsageError("give the devices to choose from, such as -d ORT,CPU")
    try:
        return parse_device_list(listed)
    except PropertyError as error:
        raise click.UsageError(str(error)) from error


def _is_simulated(core: Any, device: str) -> bool:
    from ...errors import HeteroError

    try:
        return bool(core.get_property(device, "DEVICE_TYPE") == "simulated")
    except HeteroError:  # unavailable, or it does not say
        return False


def _print(tuning: Any, best: Any) -> None:
    from ..text import print_line, print_table, shorten

    rows = []
    for trial in tuning.trials:
        plan, median = trial.plan, trial.median_s
        nodes = "" if plan is None else ", ".join(f"{total.device} {total.nodes}" for total in plan.totals)
        rows.append(
            (
                f"{trial.name}{' (best)' if trial is best else ''}",
                nodes,
                "" if plan is None else plan.num_subgraphs,
                "" if trial.contender is None else trial.contender.count,
                "" if median is None else f"{1000 * median:.3g}",
                trial.reason or ("" if trial.state == "measured" else trial.state),
            )
        )
    print_table("Candidates", ("plan", "nodes", ">sub-\ngraphs", ">runs", ">median\nms", "note"), rows, max_rows=None)
    if tuning.unstable:
        names = ", ".join(map(shorten, tuning.unstable))
        print_line(f"Not compared, because two runs of one device differ: {names}")
