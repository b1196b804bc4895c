"""Writes a planned model as files for other runtimes: one ONNX file per subgraph, and a manifest for running them.

The dataclasses below are the manifest's schema, which msgspec checks on reading. docs/reading.md explains it to authors
of runners. `format` and `version` come first. A reader rejects an unknown version. Fields may be added without a new
version, so a reader ignores unknown fields.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ..base.arguments import explain_arguments
from ..base.decoding import decode_json
from ..base.files import atomic_folder, new_file, path_text, read_file, write_all
from ..errors import HeteroError, file_error
from ..model.data_file import DataFile
from ..model.model import Model
from ..model.read import ModelSource, as_model
from ..model.save import data_threshold
from ..plan import PlanRecord
from ..plan.bind import place_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMAT_VERSION", "MANIFEST", "Manifest", "Part", "PartInput", "Source", "Tensor", "read_manifest", "split"]

FORMAT_VERSION: Literal[1] = 1
MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """The source of an array: output ``index`` of ``Manifest.parts[part]``, or, if ``part`` is None, the model's input
    ``index``. Both count from 0."""

    part: int | None
    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """``dtype``: the name in NumPy or ml_dtypes, "string", or None if the value is not a tensor. ``shape``: sizes,
    symbols, and None for unknown dimensions; None if the rank is unknown."""

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class PartInput(Tensor):
    """An input of a part, or an output of the model, and its source."""

    source: Source


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One ONNX file. ``device``: None if it has no nodes and returns constants that are outputs of the model; it can
    then run on any device. ``data``: the file with its weights, if any, in the same folder. ``subgraph``: its number in
    the plan, from 1, which is also in the file's name; None for those constants and in manifests of earlier
    versions."""

    device: str | None
    file: str
    data: str | None
    num_nodes: int
    inputs: tuple[PartInput, ...]
    outputs: tuple[Tensor, ...]
    subgraph: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """``parts``: in an order in which they can run. ``inputs``, ``outputs``: the model's."""

    format: Literal["hetero-split"]
    version: Literal[1]
    model: str
    devices: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[PartInput, ...]
    parts: tuple[Part, ...]


@explain_arguments
def split(
    model: Model | ModelSource,
    plan: PlanRecord,
    folder: str | os.PathLike[str],
    *,
    external_above: int | None = None,
) -> Manifest:
    """Write a folder with one ONNX file per subgraph of the plan and ``manifest.json``. Any runtime can run them.

    The folder must not exist, or must be empty. It appears completely or not at all. Files are named by number, never
    by names in the model. A subgraph whose results are not read is omitted. Returns the manifest.

    ``model``: a `Model`, or a source that `Core.read_model` accepts. ``external_above``: as in `Model.save`, for each
    file; weights are copied from file to file.

    Raises `ModelError` if the type of a boundary value is unknown (set it with `Model.with_types`) or if data cannot be
    read, `PropertyError` if the plan is for another model, and `HeteroError` if the folder is not empty or cannot be
    written.
    """
    if not isinstance(plan, PlanRecord):
        raise TypeError(f"expected a hetero.Plan, as Core.plan returns, got {type(plan).__name__}")
    placed = place_plan(as_model(model), plan)
    model, partition = placed.model, placed.partition
    device_of = [plan.devices[number] for number in partition.device_of.tolist()]
    subgraphs = [partition.nodes(number) for number in range(partition.num_subgraphs)]
    try:
        target = os.path.abspath(path_text(folder))
        taken = os.path.lexists(target) and (not os.path.isdir(target) or bool(os.listdir(target)))
    except OSError as error:
        raise HeteroError(f"cannot split into {os.fsdecode(folder)}: {error.strerror or error}") from error
    if taken:
        raise HeteroError(f"cannot split into {target}: it exists and is not an empty folder")
    try:
        with atomic_folder(target) as temporary:
            manifest = _write(model, plan.devices, device_of, subgraphs, temporary, external_above)
    except OSError as error:
        raise HeteroError(f"cannot split into {target}: {error.strerror or error}") from error
    return manifest


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """Read and check the manifest in a folder that `split` wrote. Raises `HeteroError` if it is invalid."""
    import msgspec

    path = os.path.join(os.fsdecode(folder), MANIFEST)
    try:
        manifest = decode_json(read_file(path), Manifest)
    except OSError as error:
        raise file_error(HeteroError, f"cannot read {path}: {error.strerror or error}", error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HeteroError(f"{path}: {error}") from error
    for number, part in enumerate(manifest.parts):
        for file in (part.file, part.data):
            if file is None:
                continue
            if file in ("", ".", "..") or "\\" in file or "\0" in file or os.path.basename(file) != file:
                raise HeteroError(f"{path}: part {number}: {file!r} is not the name of a file in the folder")
        for port in part.inputs:
            _check_source(manifest, port, number, f"{path}: part {number}: input {port.name!r}")
    for port in manifest.outputs:
        _check_source(manifest, port, len(manifest.parts), f"{path}: output {port.name!r}")
    return manifest


def _check_source(manifest: Manifest, port: PartInput, before: int, where: str) -> None:
    part, index = port.source.part, port.source.index
    if part is not None and not 0 <= part < before:
        raise HeteroError(f"{where} comes from part {part}, expected one of the {before} earlier parts")
    known = manifest.inputs if part is None else manifest.parts[part].outputs
    if not 0 <= index < len(known):
        whose = "the model's inputs" if part is None else f"part {part}'s outputs"
        raise HeteroError(f"{where} comes from number {index} of {whose}, but there are {len(known)}")


def _write(
    model: Model,
    devices: tuple[str, ...],
    device_of: list[str],
    subgraphs: list[NDArray[np.int32]],
    folder: str,
    external_above: int | None,
) -> Manifest:
    import msgspec

    sources = {value: Source(None, index) for index, value in enumerate(model.input_ids)}
    constants = [value for value in dict.fromkeys(model.output_ids) if model.is_constant[value]]
    width = len(str(len(subgraphs)))
    parts: list[Part] = []
    names = [f"{model.name}_subgraph{number}" for number in range(1, len(subgraphs) + 1)]
    for number, part in enumerate(model.extract_all(subgraphs, names), start=1):  # as profiles and drawings count
        stem = f"subgraph_{number:0{width}}"
        if part.output_ids:  # otherwise its results are unused, and runtimes reject it
            device = device_of[number - 1]
            written = _write_part(model, part, device, folder, stem, external_above, sources, len(parts))
            parts.append(dataclasses.replace(written, subgraph=number))
    if constants:
        part = model.extract_constants(constants, name=f"{model.name}_constants")
        parts.append(_write_part(model, part, None, folder, "constants", external_above, sources, len(parts)))
    manifest = Manifest(
        "hetero-split",
        FORMAT_VERSION,
        model.name,
        devices,
        tuple(_tensor(model, value) for value in model.input_ids),
        tuple(_fed(model, value, sources) for value in model.output_ids),
        tuple(parts),
    )
    encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    with new_file(os.path.join(folder, MANIFEST)) as number:
        write_all(number, memoryview(encoded + b"\n"))
    return manifest


def _write_part(
    model: Model,
    part: Model,
    device: str | None,
    folder: str,
    stem: str,
    external_above: int | None,
    sources: dict[int, Source],
    number: int,
) -> Part:
    """Write one file, and add its outputs to ``sources``."""
    inputs = [model.value_id(part.value_name(value)) for value in part.input_ids]
    outputs = [model.value_id(part.value_name(value)) for value in part.output_ids]
    for value in (*part.input_ids, *part.output_ids):
        if not part.has_type(value):
            part.known_type_of(value)  # raises the error
    fed = tuple(_fed(model, value, sources) for value in inputs)
    for index, value in enumerate(outputs):
        sources[value] = Source(number, index)
    threshold = data_threshold(part, external_above)
    data_file = None if threshold is None else DataFile(f"{stem}.data", threshold)
    part.write(os.path.join(folder, f"{stem}.onnx"), data_file)
    data = data_file.name if data_file is not None and data_file.size else None
    given = tuple(_tensor(model, value) for value in outputs)
    return Part(device, f"{stem}.onnx", data, part.num_nodes, fed, given)


def _tensor(model: Model, value: int) -> Tensor:
    known = model.type_of(value)
    dtype = None if known.dtype is None else "string" if known.dtype.hasobject else known.dtype.name
    return Tensor(model.value_name(value), dtype, known.shape)


def _fed(model: Model, value: int, sources: Mapping[int, Source]) -> PartInput:
    tensor = _tensor(model, value)
    return PartInput(tensor.name, tensor.dtype, tensor.shape, sources[value])
