"""``hetero report``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..options import force_option, input_options, json_option, model_argument, new_command
from ..planning import Planning, planning_options

if TYPE_CHECKING:
    from ...plan import Plan
    from ...plugin.profile import Profile
    from ..session import Session

__all__ = ["command"]


@new_command("report model.onnx -d HETERO:FPGA,CPU --run -o report.html")
@model_argument()
@planning_options("Device list, by priority.")
@click.option("-o", "--output", metavar="FILE.html", type=click.Path(), default="report.html", show_default=True,
              help="Path of the report.")  # fmt: skip
@click.option("--run", "timed", is_flag=True, help="Also run the model, and show times and a timeline.")
@click.option("--overlays", metavar="FOLDER", type=click.Path(), help="Also write overlays for Model Explorer.")
@input_options
@force_option
@json_option
def command(
    model: str,
    planning: Planning,
    output: str,
    timed: bool,
    overlays: str | None,
    force: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Write a plan or a run as one self-contained HTML file.

    The report shows the subgraphs with their nodes and transferred bytes, and a table of all nodes with the reason for
    each device. With --run, it also shows times and a timeline; of a pipeline, with several inferences in flight.
    """
    import os

    from ...base.formatting import byte_size
    from ..inputs import InputChoice
    from ..outfile import check_output, make_folder
    from ..progress import progress
    from ..session import Session
    from ..text import print_json, print_line

    planning.require()
    check_output(output, force, (".html", ".htm"), "a report is an HTML file")
    if overlays is not None:
        make_folder(overlays)
    session = Session(model, planning)
    chosen = InputChoice(**choice)
    session.state_sizes(chosen)
    arrays = session.make_inputs(chosen) if timed else {}
    config = planning.config()
    with progress("Reporting") as tell:
        plan = session.plan(planning, config)
        tell(0.3)
        _check_overlays(plan, overlays, timed, force)
        profiles = _run(session, plan, config, arrays) if timed else []
        tell(0.6)
        from ...report.html import write_report

        write_report(plan, output, profiles)
        written = [output]
        if overlays is not None:
            from ...report.explorer import write_overlays

            written += map(str, write_overlays(plan, profiles[-1] if timed else None, overlays))
    if as_json:
        print_json({"model": model, "paths": written})
        return
    for path in written:
        print_line(f"Wrote {path}: {byte_size(os.path.getsize(path))}")


def _check_overlays(plan: Plan, folder: str | None, timed: bool, force: bool) -> None:
    if folder is None:
        return
    import os

    from ...base.names import file_stem
    from ..outfile import check_output

    for kind in ("device", "latency") if timed else ("device",):
        check_output(os.path.join(folder, f"hetero_{kind}_{file_stem(plan.model_name)}.json"), force)


def _run(session: Session, plan: Plan, config: dict[str, Any], arrays: dict[str, Any]) -> list[Profile]:
    """The counters of an inference, or of a pipeline, of enough inferences in flight to fill it. Other inferences come
    before, because the first ones also plan memory."""
    flight = 1 if plan.pipeline is None else len(plan.pipeline.stages) + 3
    limit = {} if plan.pipeline is None else {"QUEUE_LIMIT": 0}
    compiled = session.core.compile_model(session.model, plan, {**config, **limit, "PERF_COUNT": True})
    requests = [compiled.create_infer_request() for _ in range(flight)]
    if flight == 1:
        requests[0].infer(arrays)
        requests[0].infer(arrays)
    for _ in range(2 if flight > 1 else 0):
        for request in requests:
            request.start_async(arrays)
        for request in requests:
            request.wait()
    return [request.profiling_info for request in requests]
