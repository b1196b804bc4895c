"""``hetero export``."""

from __future__ import annotations

import click

from .options import (
    device_option,
    force_option,
    json_option,
    model_argument,
    new_command,
    pin_option,
    plan_option,
    properties_of,
    property_options,
)

__all__ = ["command"]


@new_command()
@model_argument()
@device_option(help_text="What to compile for.")
@plan_option
@pin_option
@click.option("-o", "--output", metavar="FILE.hetero", type=click.Path(), help="Default: the model's name, here.")
@force_option
@property_options
@json_option
def command(
    model: str,
    device: str,
    plan_path: str | None,
    pins: tuple[str, ...],
    output: str | None,
    force: bool,
    properties: tuple[str, ...],
    profiles: tuple[str, ...],
    follow_links: bool,
    as_json: bool,
) -> None:
    """Compile a model and write it as one file that loads without compiling.

    `hetero run`, `bench` and `inspect` take that file; in Python, `hetero.load` does.
    """
    import os

    from .outfile import check_output
    from .progress import working
    from .session import Session
    from .text import print_json, print_line, size_text

    target = output or f"{os.path.basename(model).removesuffix('.onnx') or 'model'}.hetero"
    check_output(target, force)
    session = Session(model, profiles, follow_links)
    compiled, seconds = session.compile(device, plan_path, properties_of(properties), pins)
    with working("Writing"):
        compiled.export_model(target)
    size = os.path.getsize(target)
    if as_json:
        print_json({"path": target, "device": compiled.device, "bytes": size, "compile_seconds": seconds})
        return
    print_line(f"Wrote {target}: {size_text(size)}, compiled for {compiled.device} in {seconds:.2f} s")
