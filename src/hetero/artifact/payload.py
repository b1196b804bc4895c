"""The interface of devices to an exported file: a writer and a reader of the device's own part."""

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

from ..base.decoding import decode_json
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
    """The position of an array: the entry of the file, and the offset in bytes. ``entry`` -1: the payload's small
    arrays."""

    entry: int
    offset: int
    dtype: str
    shape: list[int]


class Exportable(Protocol):
    """The members of a compiled model that export needs; see `hetero.plugin.CompiledModel`."""

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
    """Receives the data from which a compiled model can be recreated; see `hetero.plugin.CompiledModel.export_payload`.

    ``version``: the plugin stores strings here that must be equal when the file is read; `Plugin.check_import` gets
    them.
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
        """Add a file with the concatenated bytes of ``parts``, which are not copied before they are written. ``name``:
        lower case letters, digits, dots and underscores."""
        for part in parts:
            if not isinstance(part, (bytes, memoryview)):
                raise TypeError(f"file {name!r}: expected bytes or memoryviews, got {type(part).__name__}")
        self._files[name] = self._artifact.add(f"submodels/{self._number}/{name}", parts)

    def add_json(self, name: str, value: Any) -> None:
        """Add a JSON file; ``value`` is anything that msgspec encodes, such as a ``msgspec.Struct``."""
        self.add(name, msgspec.json.encode(value))

    def add_array(self, array: NDArray[Any]) -> ArrayRef:
        """Add an array of numbers, which is mapped when the file is read. An array that is added several times, also by
        other payloads of the file, is stored once. Returns the reference for `PayloadReader.array`, to store as
        JSON."""
        array = np.asarray(array, order="C")  # unlike ascontiguousarray, leaves a scalar without an axis
        data = array.reshape(-1).view(np.uint8)
        shape = list(array.shape)
        if data.size >= _SMALL_BYTES:
            return ArrayRef(self._artifact.add_array(data), 0, array.dtype.name, shape)
        offset = self._pool_size
        self._pool += [data.data, bytes(-data.size % ALIGNMENT)]
        self._pool_size += -(-data.size // ALIGNMENT) * ALIGNMENT
        return ArrayRef(-1, offset, array.dtype.name, shape)

    def add_part(self, compiled: Exportable) -> None:
        """Add a submodel of this compiled model, from any device; see `PayloadReader.parts`."""
        self._parts.append(add_submodel(self._artifact, compiled))

    def set_schedule(self, schedule: ScheduleRecord) -> None:
        """Set how the parts run; see `ScheduleRecord`."""
        self._schedule = schedule

    def finish(self) -> int:
        """Pass everything to the file. Returns the number of the submodel there."""
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
    """Add a compiled model with all its parts to a file. Returns its number there. Raises the errors of its
    `export_payload`, such as `NotSupported`."""
    payload = PayloadWriter(artifact, compiled)
    call = functools.partial(compiled.export_payload, payload)
    # A device with a device list exports through those devices, each with its own timeout.
    timeout_ms = 0 if ":" in compiled.device else compiled.timeout_ms
    guarded(compiled.device, "export_payload", compiled.subject, call, timeout_ms, ArtifactError)
    return payload.finish()


def _plugin_of(compiled: Exportable) -> PluginRecord:
    """The plugin of a compiled model's class."""
    name = compiled.device.partition(":")[0].partition(".")[0]
    module = type(compiled).__module__
    package = module.partition(".")[0]
    if package == __name__.partition(".")[0] or package in sys.stdlib_module_names:
        return PluginRecord(name, module)
    return PluginRecord(name, module, ", ".join(importlib.metadata.packages_distributions().get(package, ())))


class PayloadReader:
    """Reads the data that a `PayloadWriter` received. Digests have been checked, so the bytes are undamaged, but their
    contents are untrusted."""

    def __init__(self, artifact: Artifact, number: int = 0) -> None:
        """``number``: the number of the submodel; 0 is the whole model."""
        self._artifact = artifact
        self._submodel = artifact.manifest.submodels[number]

    @property
    def label(self) -> str:
        """The name of the file in messages."""
        return self._artifact.label

    @property
    def device(self) -> str:
        """The device string that the model was compiled for."""
        return self._submodel.device

    @property
    def plugin(self) -> PluginRecord:
        """The plugin that wrote the payload: its module and distribution."""
        return self._submodel.plugin

    @property
    def version(self) -> Mapping[str, str]:
        """The versions that the writer stored (`PayloadWriter.version`)."""
        return self._submodel.version

    @property
    def name(self) -> str:
        """The model's name."""
        return self._submodel.name

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of the exported model."""
        return tuple(port.port() for port in self._submodel.inputs)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs of the exported model."""
        return tuple(port.port() for port in self._submodel.outputs)

    @property
    def schedule(self) -> ScheduleRecord | None:
        """How the parts run. Slots and parts are in range, and slots are filled before they are read."""
        return self._submodel.schedule

    @property
    def parts(self) -> Sequence[PayloadReader]:
        """Readers of the payloads of its submodels, in the order of writing."""
        return [PayloadReader(self._artifact, number) for number in self._submodel.parts]

    def require_version(self, key: str, expected: str) -> None:
        """Raise `WrongVersion` unless ``version[key]`` is ``expected``."""
        found = self.version.get(key)
        if found != expected:
            raise WrongVersion(
                f"{self.label}: the data of {self.device} has version {key} = {found!r}, but this version of "
                f"{self.device} reads {expected!r}; compile and export the model again"
            )

    def read(self, name: str) -> memoryview:
        """The bytes of a file, mapped. Raises `Corrupt` if the file does not exist."""
        if name not in self._submodel.files:
            raise Corrupt(f"{self.label}: the payload for {self.device} has no file {name!r}")
        return self._artifact.entry(self._submodel.files[name])

    def read_json(self, name: str, type: type[_T]) -> _T:
        """A JSON file, checked against ``type``. Raises `Corrupt` if it does not match."""
        try:
            return decode_json(self.read(name), type)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Corrupt(f"{self.label}: {name} of the payload for {self.device}: {error}") from error

    def array(self, ref: ArrayRef) -> NDArray[Any]:
        """An array as a read-only view of the mapped file. Raises `Corrupt` for an invalid reference."""
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
