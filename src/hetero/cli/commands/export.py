"""``hetero export``."""

from __future__ import annotations

from typing import Any

import click

from ..options import force_option, json_option, model_argument, new_command, shape_options
from ..planning import Planning, planning_options

__all__ = ["command"]


@new_command("export model.onnx -d HETERO:FPGA,CPU -o model.hetero")
@model_argument()
@planning_options("Device to compile for [default: CPU].")
@click.option(
    "-o",
    "--output",
    metavar="FILE.hetero",
    type=click.Path(),
    help="[default: the model's name, in the current folder]",
)
@shape_options
@force_option
@json_option
def command(
    model: str,
    planning: Planning,
    output: str | None,
    force: bool,
    as_json: bool,
    **sizes: Any,
) -> None:
    """Compile a model and export it as one file that loads without compiling.

    `hetero run`, `bench` and `inspect` accept the file. In Python, `hetero.load` loads it.
    """
    import os

    from ...base.formatting import byte_size
    from ..inputs import InputChoice
    from ..outfile import check_output
    from ..progress import working
    from ..session import Session
    from ..text import print_json, print_line

    target = output or f"{os.path.basename(model).removesuffix('.onnx') or 'model'}.hetero"
    if target.endswith(".onnx"):
        raise click.UsageError(f"-o {target}: an exported model is not an ONNX file: use a name such as model.hetero")
    check_output(target, force)
    session = Session(model, planning)
    session.state_sizes(InputChoice(**sizes))
    compiled, seconds = session.compile(planning, planning.config())
    with working("Writing"):
        compiled.export_model(target)
    size = os.path.getsize(target)
    source = None if session.is_artifact else session.model.stored_bytes
    if as_json:
        written = {"path": target, "device": compiled.device, "bytes": size, "model_bytes": source}
        print_json({**written, "compile_seconds": seconds})
        return
    beside = "" if source is None else f" ({size / source:.2f} × the model's {byte_size(source)})"
    print_line(f"Wrote {target}: {byte_size(size)}{beside}, compiled for {compiled.device} in {seconds:.2f} s")
