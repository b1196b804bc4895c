"""``hetero bench``."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import click

from .options import (
    devices_option,
    force_option,
    input_options,
    json_option,
    model_argument,
    new_command,
    pin_option,
    plan_option,
    properties_of,
    property_options,
)

if TYPE_CHECKING:
    from ..plugin import CompiledModel
    from ..runtime.profile import Profile
    from .measuring import Contender

__all__ = ["command"]

_SECONDS = 3.0
_COUNTED = 20  # inferences with counters
_COUNTED_SECONDS = 2.0
_TRACED = 3  # inferences of each device


@new_command()
@model_argument()
@devices_option("Where to run [default: CPU]. Given several times, all are measured in turn.")
@plan_option
@pin_option
@input_options
@click.option(
    "-t",
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Seconds for each [default: {_SECONDS:g}].",
)
@click.option(
    "-niter",
    "--niter",
    "inferences",
    type=click.IntRange(min=1),
    help="Inferences of each; with -t: whichever is later.",
)
@click.option(
    "-nireq",
    "--nireq",
    "in_flight",
    type=click.IntRange(min=1),
    help="Requests in flight [default: 1, or NUM_STREAMS].",
)
@click.option("-nstreams", "--nstreams", "streams", type=click.IntRange(min=1), help="Sets NUM_STREAMS.")
@click.option("-nthreads", "--nthreads", "threads", type=click.IntRange(min=1), help="Sets INFERENCE_NUM_THREADS.")
@click.option("-hint", "--hint", type=click.Choice(("latency", "throughput")), help="Sets PERFORMANCE_HINT.")
@click.option(
    "--warmup", type=click.IntRange(min=0), default=5, show_default=True, help="Inferences before, per request."
)
@click.option("-pc", "--counters", "counted", is_flag=True, help="Show what each subgraph took, in extra inferences.")
@click.option("--trace", metavar="FILE.json", type=click.Path(), help="Write when what ran, for Perfetto and Chrome.")
@click.option(
    "--save-costs",
    "costs_path",
    metavar="FILE.json",
    type=click.Path(),
    help="Write what each node took, and links between devices, for ASSIGNMENT=COST; merged into what is there.",
)
@force_option
@property_options
@json_option
def command(
    model: str,
    devices: tuple[str, ...],
    plan_path: str | None,
    pins: tuple[str, ...],
    seconds: float | None,
    inferences: int | None,
    in_flight: int | None,
    streams: int | None,
    threads: int | None,
    hint: str | None,
    warmup: int,
    counted: bool,
    trace: str | None,
    costs_path: str | None,
    force: bool,
    properties: tuple[str, ...],
    profiles: tuple[str, ...],
    follow_links: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Measure latency, throughput and CPU time, of one device or of several in turn.

    With several devices (and a plan), each runs a tenth of a second at a time, round after round, so that what slows
    the machine slows all; ratios to the first are medians over the rounds, and hold on a busy machine. CPU time is of
    all threads of the process.
    """
    from .counters import devices_of, mean_rows
    from .inputs import InputChoice
    from .measuring import Contender, measure
    from .outfile import check_output
    from .results import print_results
    from .session import Session
    from .text import print_json, print_line, progress

    if trace is not None:
        check_output(trace, force)
    session = Session(model, profiles, follow_links)
    config = properties_of(properties)
    given = {"NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": hint and hint.upper()}
    config |= {key: value for key, value in given.items() if value is not None}
    targets: list[tuple[str, str | None, str | None]] = [(device, device, None) for device in devices]
    if plan_path is not None:
        targets.append((plan_path, None, plan_path))
    if not targets:
        targets.append(("", None, None))
    made: list[tuple[Contender, float]] = []
    inputs = None
    for label, device, plan in targets:
        own_pins = pins if plan is None and (device or "").startswith("HETERO") else ()
        compiled, compile_seconds = session.compile(device, plan, config, own_pins)
        if inputs is None:
            inputs = InputChoice(**choice).make(compiled.inputs)
        optimal = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") if streams or hint == "throughput" else 1
        arrays = {entry.name: entry.array for entry in inputs}
        made.append((Contender(label or compiled.device, compiled, arrays, in_flight or optimal), compile_seconds))
    assert inputs is not None
    contenders = [contender for contender, _ in made]
    with progress("Measuring") as tell:
        for contender in contenders:
            contender.warm_up(warmup)
        measure(contenders, seconds or (0.0 if inferences else _SECONDS), inferences or 0, tell)
    results = [_result(contender, contenders[0], compile_seconds) for contender, compile_seconds in made]
    traced: list[Profile] = []
    for_costs: list[tuple[list[str], list[Profile]]] = []
    if counted or trace is not None or costs_path is not None:
        for (_, device, plan), result in zip(targets, results, strict=True):
            own_pins = pins if plan is None and (device or "").startswith("HETERO") else ()
            compiled, _ = session.compile(device, plan, {**config, "PERF_COUNT": True}, own_pins)
            runs = _counted(compiled, {entry.name: entry.array for entry in inputs})
            traced += runs[-_TRACED:]
            for_costs.append((devices_of(compiled), runs))
            if counted:
                result["counters"] = {"rows": mean_rows(runs), "devices": devices_of(compiled)}
    if costs_path is not None:
        from .saving_costs import save_costs

        arrays = {entry.name: entry.array for entry in inputs}
        save_costs(session.core, session.model, for_costs, arrays, config, costs_path)
    if trace is not None:
        from ..report.trace import write_trace

        write_trace(traced, trace)
    if as_json:
        print_json(
            {"model": model, "inputs": [entry.as_json() for entry in inputs], "results": list(map(_plain, results))}
        )
    else:
        print_results(results)
        if costs_path is not None:
            print_line(f"Wrote {costs_path}: hetero plan --property ASSIGNMENT=COST --property COSTS={costs_path}")
        if trace is not None:
            print_line(f"Wrote {trace}: open it with https://ui.perfetto.dev or chrome://tracing")


def _result(contender: Contender, first: Contender, compile_seconds: float) -> dict[str, Any]:
    from .measuring import PERCENTILES, percentile

    times = sorted(contender.latencies)
    latency = {"min": times[0], "mean": statistics.fmean(times), "max": times[-1]}
    latency |= {f"p{percent}": percentile(times, percent) for percent in PERCENTILES}
    return {
        "device": contender.label,
        "inferences": contender.count,
        "seconds": contender.wall,
        "in_flight": contender.in_flight,
        "streams": contender.compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"),
        "compile_ms": 1000 * compile_seconds,
        "first_ms": 1000 * contender.first,
        "latency_ms": {key: 1000 * value for key, value in latency.items()},
        "throughput_per_s": contender.count / contender.wall,
        "cpu_ms": 1000 * contender.cpu_per_inference,
        "ratio": {"wall": contender.ratio_to(first, "wall"), "cpu": contender.ratio_to(first, "cpu")},
    }


def _counted(compiled: CompiledModel, arrays: dict[str, Any]) -> list[Profile]:
    """Counters of some inferences of a model compiled for counting: those that were measured counted nothing."""
    import time

    request = compiled.create_infer_request()
    request.infer(arrays)
    profiles: list[Profile] = []
    begin = time.perf_counter()
    while not profiles or (len(profiles) < _COUNTED and time.perf_counter() - begin < _COUNTED_SECONDS):
        request.infer(arrays)
        profiles.append(request.profiling_info)
    return profiles


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it."""
    from .counters import as_json as counters_as_json

    if "counters" not in result:
        return result
    return {**result, "counters": counters_as_json(result["counters"]["rows"], result["counters"]["devices"])}
