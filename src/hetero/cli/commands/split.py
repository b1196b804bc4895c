"""``hetero split``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ..options import WholeRange, force_option, json_option, model_argument, new_command, shape_options
from ..planning import Planning, planning_options

if TYPE_CHECKING:
    from ...compiling.splitting import Manifest

__all__ = ["command"]


@new_command("split model.onnx -d HETERO:FPGA,CPU -o parts")
@model_argument()
@planning_options("Device list to split for.")
@click.option("-o", "--output", "folder", metavar="FOLDER", required=True, type=click.Path(), help="Output folder.")
@click.option(
    "--external-above",
    metavar="BYTES",
    type=WholeRange(min=0),
    help="Store tensors of at least this size in a separate file per ONNX file [default: 1024, if they total 128 MiB].",
)
@shape_options
@force_option
@json_option
def command(
    model: str,
    planning: Planning,
    folder: str,
    external_above: int | None,
    force: bool,
    as_json: bool,
    **sizes: Any,
) -> None:
    """Write an ONNX file per subgraph, for any runtime, with a manifest.

    The folder must be empty or not exist. With --force, it may contain an earlier split, which is replaced when the new
    one is complete.
    """
    import os

    from ...compiling.splitting import split
    from ..inputs import InputChoice
    from ..outfile import check_folder, replacing_folder
    from ..progress import working
    from ..session import Session
    from ..text import print_json

    planning.require()
    check_folder(os.path.dirname(os.path.abspath(folder)), folder)
    session = Session(model, planning)
    session.state_sizes(InputChoice(**sizes))
    with replacing_folder(folder, force, _is_split) as target:
        plan = session.plan(planning, planning.config())
        with working("Writing"):
            manifest = split(session.model, plan, target, external_above=external_above)
    if as_json:
        print_json({"path": folder, "manifest": dataclasses.asdict(manifest)})
        return
    _print(folder, manifest)


def _is_split(folder: str) -> bool:
    """Whether a folder contains files of `hetero.split` and no others."""
    import os

    from ...compiling.splitting import MANIFEST, read_manifest
    from ...errors import HeteroError

    try:
        manifest = read_manifest(folder)
    except HeteroError:
        return False
    named = {MANIFEST, *(part.file for part in manifest.parts), *(part.data or "" for part in manifest.parts)}
    return set(os.listdir(folder)) <= named


def _print(folder: str, manifest: Manifest) -> None:
    from ...base.formatting import counted
    from ..text import print_line, print_table, shorten

    print_table(
        f"{shorten(manifest.model)} in {counted(len(manifest.parts), 'part')}",
        ("file", "device", ">nodes", ">inputs", ">outputs"),
        [
            (
                part.file if part.data is None else f"{part.file} + {part.data}",
                part.device or "any",
                part.num_nodes,
                len(part.inputs),
                len(part.outputs),
            )
            for part in manifest.parts
        ],
    )
    print_line(f"Wrote {folder}; manifest.json lists their connections")
