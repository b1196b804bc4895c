"""``manifest.json`` of an exported file: what it holds, for whom, and the digest of every entry.

`FORMAT_VERSION` changes when an older reader could not read the file rightly. What a device stores is its own matter
and has a version of its own (`Submodel.version`).
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta

from ..base.decoding import decode_json
from ..errors import Corrupt, WrongVersion
from ..model.types import Holder, Port, dtype_of, onnx_dtype_of

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "MAX_ENTRIES",
    "MAX_SUBMODELS",
    "EntryRecord",
    "Manifest",
    "PluginRecord",
    "PortRecord",
    "ScheduleRecord",
    "StepRecord",
    "Submodel",
    "decode_manifest",
]

FORMAT: Final = "hetero-model"
FORMAT_VERSION: Final = 1
MAX_ENTRIES: Final = 1 << 20
MAX_SUBMODELS: Final = 1 << 18

_Size = Annotated[int, Meta(ge=0, le=2**48)]
_Index = Annotated[int, Meta(ge=0, lt=2**31)]
_Text = Annotated[str, Meta(max_length=1 << 16)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown fields are rejected: an older reader must not ignore them."""


class EntryRecord(_Struct, frozen=True):
    """One file of the archive. The manifest itself, which comes before them, is not listed."""

    name: _Text
    size: _Size
    crc32: Annotated[int, Meta(ge=0, lt=2**32)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class PluginRecord(_Struct, frozen=True):
    """The plugin that made a submodel: its name, and the distribution to install (empty: part of hetero)."""

    name: _Text
    module: _Text
    distribution: _Text = ""


class PortRecord(_Struct, frozen=True, omit_defaults=True):
    """An input or output. ``dtype``: number of an ``onnx.TensorProto.DataType``, 0 if unknown; for a sequence or
    an optional value, the number of its tensors' type. ``holds``: the kinds of such a value, outermost first."""

    name: _Text
    dtype: Annotated[int, Meta(ge=0, lt=256)]
    shape: Annotated[list[Annotated[int, Meta(ge=0, lt=2**62)] | _Text | None], Meta(max_length=64)] | None
    declared: bool
    is_tensor: bool
    holds: Annotated[list[Annotated[str, Meta(pattern="^(sequence|optional)$")]], Meta(max_length=16)] = []

    @classmethod
    def of(cls, port: Port) -> PortRecord:
        stated = port.dtype if port.is_tensor else port.holder.dtype
        dtype = 0 if stated is None else onnx_dtype_of(stated)
        shape = None if port.shape is None else list(port.shape)
        return cls(port.name, dtype, shape, port.declared, port.is_tensor, list(port.holder.kinds))

    def port(self) -> Port:
        shape = None if self.shape is None else tuple(self.shape)
        dtype = dtype_of(self.dtype)
        if self.is_tensor:
            return Port(self.name, dtype, shape, self.declared)
        return Port(self.name, None, None, self.declared, False, holder=Holder(tuple(self.holds), dtype))


class StepRecord(_Struct, frozen=True, omit_defaults=True):
    """A step of a schedule: the part that runs, the slots that it reads and the slots that it fills. ``subgraph``: its
    number in the plan, from 1; 0 if it is the number of the step."""

    part: _Index
    inputs: list[_Index]
    outputs: list[_Index]
    subgraph: _Index = 0


class ScheduleRecord(_Struct, frozen=True):
    """How parts run as one model. The first slots are the model's inputs, then come ``num_constants`` constants."""

    num_slots: _Index
    num_constants: _Index
    steps: list[StepRecord]
    outputs: list[_Index]


class Submodel(_Struct, frozen=True):
    """A compiled model: the whole, which is the first, or a part of another.

    ``version``: what its device needs to find again, key by key. ``files``: name -> entry. ``parts``: numbers of other
    submodels, all greater than its own. ``schedule``: how those run.
    """

    device: _Text
    plugin: PluginRecord
    version: dict[_Text, _Text]
    name: _Text
    inputs: list[PortRecord]
    outputs: list[PortRecord]
    files: dict[_Text, _Index]
    parts: list[_Index] = []
    schedule: ScheduleRecord | None = None


class Manifest(_Struct, frozen=True):
    format: str
    version: int
    library: _Text
    entries: Annotated[list[EntryRecord], Meta(max_length=MAX_ENTRIES)]
    submodels: Annotated[list[Submodel], Meta(min_length=1, max_length=MAX_SUBMODELS)]


class _Head(msgspec.Struct):
    format: str
    version: int
    library: str = "unknown"


def decode_manifest(data: memoryview, label: str) -> Manifest:
    """The manifest, its schema checked. Raises `WrongVersion` or `Corrupt`."""
    try:
        head = decode_json(data, _Head)
        if head.format != FORMAT:
            raise Corrupt(f"{label}: is not an exported model of hetero: its manifest has format {head.format!r}")
        if head.version != FORMAT_VERSION:
            raise WrongVersion(
                f"{label}: has format version {head.version}, written by hetero {head.library}; this hetero reads "
                f"version {FORMAT_VERSION}; compile and export the model again"
            )
        manifest = decode_json(data, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{label}: manifest: {error}") from error
    _check(manifest, label)
    return manifest


def _check(manifest: Manifest, label: str) -> None:
    """Check that every number is in range, and that the parts form a tree."""
    num_entries, num_submodels = len(manifest.entries), len(manifest.submodels)
    owner: list[int] = [-1] * num_submodels
    for number, submodel in enumerate(manifest.submodels):
        if any(entry >= num_entries for entry in submodel.files.values()):
            raise Corrupt(f"{label}: submodel {number} refers to an entry that does not exist")
        for part in submodel.parts:
            if not number < part < num_submodels or owner[part] >= 0:
                raise Corrupt(f"{label}: submodel {number} has part {part}, which cannot be its own")
            owner[part] = number
        if submodel.schedule is not None:
            _check_schedule(submodel, submodel.schedule, f"{label}: submodel {number}")
    if -1 in owner[1:]:
        raise Corrupt(f"{label}: submodel {owner.index(-1, 1)} does not belong to any submodel")


def _check_schedule(submodel: Submodel, schedule: ScheduleRecord, label: str) -> None:
    """Check that each part runs once, and that each slot is filled once before it is read."""
    filled = len(submodel.inputs) + schedule.num_constants
    parts = [step.part for step in schedule.steps]
    total = filled + sum(len(step.outputs) for step in schedule.steps)
    if parts != list(range(len(submodel.parts))) or schedule.num_slots != total:
        raise Corrupt(f"{label}: its schedule does not run each part once, or does not fill each slot")
    for step in schedule.steps:
        if any(slot >= filled for slot in step.inputs):
            raise Corrupt(f"{label}: part {step.part} reads a slot that is not filled yet")
        if step.outputs != list(range(filled, filled + len(step.outputs))):
            raise Corrupt(f"{label}: part {step.part} does not fill the slots that come next")
        filled += len(step.outputs)
    if any(slot >= filled for slot in schedule.outputs) or len(schedule.outputs) != len(submodel.outputs):
        raise Corrupt(f"{label}: its schedule does not fill its outputs")


@functools.cache
def dtype_of_name(name: str) -> np.dtype[Any]:
    """A NumPy dtype of ONNX by its name, as in array references. Raises ValueError for other names."""
    for number in range(1, 32):
        dtype = dtype_of(number)
        if dtype is not None and dtype.name == name and not dtype.hasobject:
            return dtype
    raise ValueError(f"unknown element type {name!r}")
