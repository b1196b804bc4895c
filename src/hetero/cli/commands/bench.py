"""``hetero bench``."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import click

from ..options import FiniteRange, WholeRange, force_option, input_options, json_option, model_argument, new_command
from ..planning import Planning, planning_options
from ..streams import StreamCounts, stream_counts

if TYPE_CHECKING:
    from ..measuring import Contender

__all__ = ["command"]

_SECONDS = 3.0


@new_command("bench model.onnx -d CPU -d ORT")
@model_argument()
@planning_options("Device to run on [default: CPU]. May be repeated, to compare devices.", several=True)
@input_options
@click.option(
    "-t",
    "--time",
    "seconds",
    type=FiniteRange(min=0, min_open=True),
    help=f"Seconds per device [default: {_SECONDS:g}].",
)
@click.option(
    "-niter",
    "--niter",
    "inferences",
    type=WholeRange(min=1),
    help="Inferences per device; with -t, run until both are reached.",
)
@click.option(
    "-nireq",
    "--nireq",
    "in_flight",
    type=WholeRange(min=1),
    help="Requests in flight [default: 1, or NUM_STREAMS].",
)
@click.option(
    "-nstreams",
    "--nstreams",
    "streams",
    metavar="N|DEVICE:N,…",
    callback=stream_counts,
    help="Set NUM_STREAMS, for all devices or per device in a list.",
)
@click.option("-nthreads", "--nthreads", "threads", type=WholeRange(min=1), help="Set INFERENCE_NUM_THREADS.")
@click.option(
    "-hint",
    "--hint",
    type=click.Choice(("latency", "throughput", "none")),
    help="Set PERFORMANCE_HINT; none does not set it.",
)
@click.option("--warmup", type=WholeRange(min=0), default=5, show_default=True, help="Warm-up inferences per request.")
@click.option(
    "-pc", "--counters", "counted", is_flag=True, help="Show the time of each subgraph, from extra inferences."
)
@click.option("--trace", metavar="FILE.json", type=click.Path(), help="Write a trace for Perfetto or Chrome.")
@click.option(
    "--save-costs",
    "costs_path",
    metavar="FILE.json",
    type=click.Path(),
    help="Write measured times of nodes and links, for ASSIGNMENT=COST. Merged into an existing file.",
)
@click.option(
    "--csv", "csv_path", metavar="FILE.csv", type=click.Path(), help="Append the results to a table, a row per device."
)
@click.option(
    "--history",
    "history_path",
    metavar="FILE.jsonl",
    type=click.Path(),
    help="Append the results to a file, and compare them with the last run of the same model and devices.",
)
@force_option
@json_option
def command(
    model: str,
    planning: Planning,
    seconds: float | None,
    inferences: int | None,
    in_flight: int | None,
    streams: StreamCounts | None,
    threads: int | None,
    hint: str | None,
    warmup: int,
    counted: bool,
    trace: str | None,
    costs_path: str | None,
    csv_path: str | None,
    history_path: str | None,
    force: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Measure latency, throughput and CPU time of one or more devices.

    Several devices (and a plan) alternate every 0.1 s, so that other load on the machine affects all of them. Ratios
    to the first device are medians over the rounds, and are reliable even on a busy machine. CPU time includes all
    threads of the process.
    """
    from ..bench_files import append_csv, append_history, compare_with, read_csv, read_history
    from ..inputs import InputChoice
    from ..measuring import Contender, measure
    from ..outfile import check_output
    from ..progress import progress
    from ..results import as_plain, print_changes, print_results
    from ..session import Session
    from ..text import print_json, print_line

    for path in filter(None, (trace, costs_path, csv_path, history_path)):
        check_output(path, force or path in (costs_path, csv_path, history_path))  # which are merged and appended to
    table = [] if csv_path is None or force else read_csv(csv_path)
    history = [] if history_path is None else read_history(history_path)
    session = Session(model, planning)
    chosen = InputChoice(**choice)
    session.state_sizes(chosen)
    if costs_path is not None:
        _ = session.model  # raises for an exported model
    config = planning.config()
    if threads is not None:
        config["INFERENCE_NUM_THREADS"] = threads
    if hint not in (None, "none"):
        config["PERFORMANCE_HINT"] = hint.upper()
    if streams is not None:
        streams.put_into(config)
    targets = _targets(planning)
    compiled_contenders: list[tuple[Contender, float]] = []
    inputs = None
    for target in targets:
        compiled, compile_seconds = session.compile(target, config)
        if inputs is None:
            inputs = chosen.make(session.ports(compiled))
        optimal = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") if streams or hint == "throughput" else 1
        arrays = {entry.name: entry.array for entry in inputs}
        label = target.label or compiled.device
        compiled_contenders.append((Contender(label, compiled, arrays, in_flight or optimal), compile_seconds))
    assert inputs is not None
    contenders = [contender for contender, _ in compiled_contenders]
    with progress("Measuring") as tell:
        for contender in contenders:
            contender.settle()
            contender.warm_up(warmup)
        measure(contenders, seconds or (0.0 if inferences else _SECONDS), inferences or 0, tell)
    results = [_result(contender, contenders[0], compile_seconds) for contender, compile_seconds in compiled_contenders]
    if counted or trace is not None or costs_path is not None:
        from ..counting import count_all

        count_all(session, targets, config, arrays, results if counted else None, trace, costs_path)
    if csv_path is not None:
        append_csv(csv_path, table, model, inputs, results)
    changes = None
    if history_path is not None:
        changes = compare_with(history, model, inputs, results)
        append_history(history_path, history, model, inputs, results)
    if as_json:
        rows = list(map(as_plain, results))
        written = {} if changes is None else {"changes": changes}
        print_json({"model": model, "inputs": [entry.as_json() for entry in inputs], "results": rows, **written})
        return
    print_results(results)
    for result in results:
        if "choice" in result:
            print_line(f"{result['device']} chose {result['choice']}")
    if changes is not None:
        print_changes(changes)
    for path in filter(None, (csv_path, history_path)):
        print_line(f"Wrote {path}")
    if costs_path is not None:
        print_line(f"Wrote {costs_path}: hetero plan --property ASSIGNMENT=COST --property COSTS={costs_path}")
    if trace is not None:
        print_line(f"Wrote {trace}: open it with https://ui.perfetto.dev or chrome://tracing")


def _targets(planning: Planning) -> list[Planning]:
    """The targets to measure: each device, then the plan. Default: the default device. Pins and constraints on
    assignments apply to lists only."""
    targets = [
        planning.on(device) if device.startswith("HETERO") else planning.on(device, pins=(), together=(), least=())
        for device in planning.devices
    ]
    if planning.plan_path is not None:
        targets.append(planning.by_plan())
    if planning.pins and not any(target.pins for target in targets):
        raise click.UsageError("--pin chooses among the devices of a list: give -d HETERO:…")
    return targets or [planning]


def _result(contender: Contender, first: Contender, compile_seconds: float) -> dict[str, Any]:
    from ..measuring import PERCENTILES, median_interval, percentile

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
        "median_interval": _scaled(median_interval(times)),
        "throughput_per_s": contender.count / contender.wall,
        "cpu_ms": 1000 * contender.cpu_per_inference,
        "ratio": {"wall": contender.ratio_to(first, "wall"), "cpu": contender.ratio_to(first, "cpu")},
        "wall_ratio_interval": None if contender is first else contender.ratio_interval(first, "wall"),
        "cpu_ratio_interval": None if contender is first else contender.ratio_interval(first, "cpu"),
        **({} if contender.choice is None else {"choice": contender.choice}),
    }


def _scaled(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """Seconds as milliseconds."""
    return None if interval is None else (1000 * interval[0], 1000 * interval[1])
