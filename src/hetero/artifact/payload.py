"""What a device sees of an exported file: a writer and a reader of its own part of it."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..base.guard import guarded
from ..errors import ArtifactError, Corrupt, WrongVersion
from ..model.types import Port
from .layout import ALIGNMENT
from .manifest import PluginRecord, PortRecord, ScheduleRecord, Submodel, dtype_of_name
from .reader import Artifact
from .writer import ArtifactWriter

__all__ = ["ArrayRef", "Exportable", "PayloadReader", "PayloadWriter", "add_submodel"]

_SMALL_BYTES = 4096  # arrays below this share one entry
_MOST_BYTES = 1 << 48
_POOL = "arrays"

_T = TypeVar("_T")


class ArrayRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an array lies: in which entry of the file, from which byte of it on. ``entry`` -1: the payload's small
    arrays."""

    entry: int
    offset: int
    dtype: str
    shape: list[int]


class Exportable(Protocol):
    """What a file needs of the compiled model that it stores; `hetero.plugin.CompiledModel` has it."""

    @property
    def subject(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def inputs(self) -> tuple[Port, ...]: ...
    @property
    def outputs(self) -> tuple[Port, ...]: ...
    @property
    def timeout_ms(self) -> int: ...
    def get_property(self, name: str) -> Any: ...
    def export_payload(self, writer: PayloadWriter) -> None: ...


class PayloadWriter:
    """Takes what a compiled model needs to be made again; see `hetero.plugin.CompiledModel.export_payload`.

    ``version``: to be filled with what must be the same when it is read, as text; `Plugin.check_import` gets it.
    """

    def __init__(self, artifact: ArtifactWriter, compiled: Exportable) -> None:
        self.version: dict[str, str] = {}
        self._artifact = artifact
        self._compiled = compiled
        self._number = artifact.new_submodel()
        self._files: dict[str, int] = {}
        self._parts: list[int] = []
        self._schedule: ScheduleRecord | None = None
        self._pool: list[memoryview | bytes] = []
        self._pool_size = 0

    def add(self, name: str, *parts: bytes | memoryview) -> None:
        """A file of this payload, of the bytes of ``parts`` one after the other, which are not copied before they are
        written. ``name``: lower case, digits, dots and underscores."""
        for part in parts:
            if not isinstance(part, (bytes, memoryview)):
                raise TypeError(f"the file {name!r} is made of bytes or memoryviews, got {type(part).__name__}")
        self._files[name] = self._artifact.add(f"submodels/{self._number}/{name}", parts)

    def add_json(self, name: str, value: Any) -> None:
        """A file with JSON; ``value`` is anything that msgspec encodes, such as a ``msgspec.Struct``."""
        self.add(name, msgspec.json.encode(value))

    def add_array(self, array: NDArray[Any]) -> ArrayRef:
        """An array of numbers, to be mapped when the file is read. An array that is given again, by this or another
        payload of the file, is stored once. Gives what `PayloadReader.array` takes, for a file with JSON."""
        array = np.ascontiguousarray(array)
        data = array.reshape(-1).view(np.uint8)
        shape = list(array.shape)
        if data.size >= _SMALL_BYTES:
            return ArrayRef(self._artifact.add_array(data), 0, array.dtype.name, shape)
        offset = self._pool_size
        self._pool += [data.data, bytes(-data.size % ALIGNMENT)]
        self._pool_size += -(-data.size // ALIGNMENT) * ALIGNMENT
        return ArrayRef(-1, offset, array.dtype.name, shape)

    def add_part(self, compiled: Exportable) -> None:
        """A compiled model that this one is made of, of any device; see `PayloadReader.parts`."""
        self._parts.append(add_submodel(self._artifact, compiled))

    def set_schedule(self, schedule: ScheduleRecord) -> None:
        """How the parts run; see `ScheduleRecord`."""
        self._schedule = schedule

    def finish(self) -> int:
        """Hand everything to the file; the number of the submodel there."""
        if self._pool:
            self.add(_POOL, *self._pool)
        compiled = self._compiled
        self._artifact.set_submodel(
            self._number,
            Submodel(
                compiled.device,
                _plugin_of(compiled),
                self.version,
                str(compiled.get_property("NETWORK_NAME")),
                [PortRecord.of(port) for port in compiled.inputs],
                [PortRecord.of(port) for port in compiled.outputs],
                self._files,
                self._parts,
                self._schedule,
            ),
        )
        return self._number


def add_submodel(artifact: ArtifactWriter, compiled: Exportable) -> int:
    """Add a compiled model with all its parts to a file; its number there. Raises what its `export_payload` raises,
    above all `NotSupported`."""
    payload = PayloadWriter(artifact, compiled)
    call = functools.partial(compiled.export_payload, payload)
    # A device that runs over others asks those in turn, each of which has its own time.
    timeout_ms = 0 if ":" in compiled.device else compiled.timeout_ms
    guarded(compiled.device, "export_payload", compiled.subject, call, timeout_ms, ArtifactError)
    return payload.finish()


def _plugin_of(compiled: Exportable) -> PluginRecord:
    """Whose class a compiled model is."""
    name = compiled.device.partition(":")[0].partition(".")[0]
    module = type(compiled).__module__
    package = module.partition(".")[0]
    if package == __name__.partition(".")[0] or package in sys.stdlib_module_names:
        return PluginRecord(name, module)
    return PluginRecord(name, module, ", ".join(importlib.metadata.packages_distributions().get(package, ())))


class PayloadReader:
    """Gives what a `PayloadWriter` was given. The bytes are those that were written (their digests are checked); what
    they say is not to be trusted."""

    def __init__(self, artifact: Artifact, number: int = 0) -> None:
        """``number``: of the submodel; 0 is the whole model."""
        self._artifact = artifact
        self._submodel = artifact.manifest.submodels[number]

    @property
    def label(self) -> str:
        """How messages call the file."""
        return self._artifact.label

    @property
    def device(self) -> str:
        """The device string that the model was compiled for."""
        return self._submodel.device

    @property
    def plugin(self) -> PluginRecord:
        """The plugin that wrote it: its module and distribution."""
        return self._submodel.plugin

    @property
    def version(self) -> Mapping[str, str]:
        """What the writer stated of its version (`PayloadWriter.version`)."""
        return self._submodel.version

    @property
    def name(self) -> str:
        """The model's name."""
        return self._submodel.name

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of the model that it was."""
        return tuple(port.port() for port in self._submodel.inputs)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs of the model that it was."""
        return tuple(port.port() for port in self._submodel.outputs)

    @property
    def schedule(self) -> ScheduleRecord | None:
        """How the parts run; slots and parts are in range, and filled before they are read."""
        return self._submodel.schedule

    @property
    def parts(self) -> Sequence[PayloadReader]:
        """Readers of the payloads of the models that it is made of, in the order of writing."""
        return [PayloadReader(self._artifact, number) for number in self._submodel.parts]

    def require_version(self, key: str, expected: str) -> None:
        """Raise `WrongVersion` unless ``version[key]`` is ``expected``."""
        found = self.version.get(key)
        if found != expected:
            raise WrongVersion(
                f"{self.label}: what {self.device} stored is of version {key} = {found!r}, and this version of it "
                f"reads {expected!r}: compile and export the model again"
            )

    def read(self, name: str) -> memoryview:
        """The bytes of a file, mapped. `Corrupt` if there is none of that name."""
        if name not in self._submodel.files:
            raise Corrupt(f"{self.label}: the payload for {self.device} has no file {name!r}")
        return self._artifact.entry(self._submodel.files[name])

    def read_json(self, name: str, type: type[_T]) -> _T:
        """A file with JSON, checked against ``type``; `Corrupt` if it does not fit."""
        try:
            return msgspec.json.decode(self.read(name), type=type)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Corrupt(f"{self.label}: {name} of the payload for {self.device}: {error}") from error

    def array(self, ref: ArrayRef) -> NDArray[Any]:
        """An array, read-only, a view of the mapped file. `Corrupt` if it does not lie where ``ref`` says."""
        try:
            dtype = dtype_of_name(ref.dtype)
            size = math.prod(ref.shape) * dtype.itemsize
            if len(ref.shape) > 64 or any(dim < 0 for dim in ref.shape) or not 0 <= size <= _MOST_BYTES:
                raise ValueError(f"shape {ref.shape}")
            data = self.read(_POOL) if ref.entry == -1 else self._artifact.entry(ref.entry)
            if ref.offset < 0 or ref.offset % ALIGNMENT or ref.offset + size > len(data):
                raise ValueError(f"{size} bytes from {ref.offset} on, of an entry of {len(data)}")
            flat = np.frombuffer(data, np.uint8, size, ref.offset) if size else np.empty(0, np.uint8)
            if dtype == np.bool_ and flat.size and flat.max() > 1:
                raise ValueError("a truth value is neither 0 nor 1")
            array = flat.view(dtype).reshape(ref.shape)
        except ValueError as error:
            raise Corrupt(f"{self.label}: an array of the payload for {self.device}: {error}") from error
        array.flags.writeable = False
        return array
