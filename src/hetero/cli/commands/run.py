"""``hetero run``."""

from __future__ import annotations

from typing import Any

import click

from ..options import force_option, input_options, json_option, model_argument, new_command
from ..planning import Planning, planning_options

__all__ = ["command"]


@new_command("run model.onnx -d HETERO:FPGA,CPU -i x=photo.jpg")
@model_argument()
@planning_options("Device to run on [default: CPU, or the device of an exported model].")
@input_options
@click.option("-o", "--save", metavar="FILE.npz", type=click.Path(), help="Write the outputs, by name.")
@force_option
@click.option("-pc", "--counters", "counted", is_flag=True, help="Show the time of each node and subgraph.")
@click.option("--trace", metavar="FILE.json", type=click.Path(), help="Write a trace for Perfetto or Chrome.")
@json_option
def command(
    model: str,
    planning: Planning,
    save: str | None,
    force: bool,
    counted: bool,
    trace: str | None,
    as_json: bool,
    **choice: Any,
) -> None:
    """Run one inference and summarize the outputs.

    MODEL is an ONNX file or a .hetero file from `hetero export`. Inputs without --input are random; the same seed
    gives the same inputs.
    """
    from ..inputs import InputChoice
    from ..outfile import check_output
    from ..session import Session
    from ..text import print_json

    if save is not None:
        check_output(save, force, (".npz",), "outputs are saved as an .npz file of NumPy", "--save")
    if trace is not None:
        check_output(trace, force)
    session = Session(model, planning)
    chosen = InputChoice(**choice)
    session.state_sizes(chosen)
    config = planning.config()
    timed = counted or trace is not None
    if timed:
        config["PERF_COUNT"] = True
    compiled, _ = session.compile(planning, config)
    inputs = chosen.make(session.ports(compiled))
    arrays = {entry.name: entry.array for entry in inputs}
    request = compiled.create_infer_request()
    if timed:
        request.infer(arrays)  # plans memory; the counters come from the second run
    outputs = request.infer(arrays)
    saved = None
    if save is not None:
        from ..arrays import save_arrays

        saved = save_arrays(save, outputs)
    if trace is not None:
        from ...report.trace import write_trace

        write_trace(request.profiling_info, trace)
    from ..arrays import summary

    result: dict[str, Any] = {
        "model": model,
        "device": compiled.device,
        "inputs": [entry.as_json() for entry in inputs],
        "outputs": [{"name": name, **summary(value)} for name, value in outputs.items()],
        "saved": None if saved is None else {"path": save, "arrays": saved},
        "trace": trace,
    }
    if counted:
        from ..counters import as_json as counters_as_json
        from ..counters import devices_of

        result["counters"] = counters_as_json(request.profiling_info, devices_of(compiled))
    if as_json:
        print_json(result)
        return
    _print(result)
    if counted:
        from ..counters import print_counters

        print_counters(request.profiling_info, devices_of(compiled), "Counters")


def _print(result: dict[str, Any]) -> None:
    from ...base.formatting import counted as count_text
    from ...base.formatting import shape_text
    from ..text import print_line, print_table, shorten

    print_table(
        f"Inputs, on {result['device']}",
        ("input", "dtype", "shape", "from"),
        [
            (shorten(entry["name"]), entry["dtype"], shape_text(entry["shape"], compact=True), entry["source"])
            for entry in result["inputs"]
        ],
    )
    print_table(
        "Outputs",
        ("output", "dtype", "shape", ">min", ">mean", ">max", ">NaN", ">inf"),
        [
            (
                shorten(entry["name"]),
                entry["dtype"] or (entry["kind"] if entry["length"] is None else count_text(entry["length"], "array")),
                "" if entry["shape"] is None else shape_text(entry["shape"], compact=True),
                *("" if entry[key] is None else f"{entry[key]:.6g}" for key in ("min", "mean", "max")),
                *("" if entry[key] is None else entry[key] for key in ("nan", "inf")),
            )
            for entry in result["outputs"]
        ],
    )
    if result["saved"] is not None:
        saved = result["saved"]
        print_line(f"Wrote {saved['path']}")
        for name, key in saved["arrays"].items():
            if name != key:
                print_line(f"  {shorten(name)} is stored as {key}")
    if result["trace"] is not None:
        print_line(f"Wrote {result['trace']}: open it with https://ui.perfetto.dev or chrome://tracing")
