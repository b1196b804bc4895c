"""Stage 1, read: turns a file, bytes or a ModelProto into a `Model`."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from numpy.typing import NDArray

from ..base.files import map_file
from ..base.warn import warn
from ..errors import ModelError, did_you_mean, raise_out_of_memory, shown
from .external import plain_location
from .file import ModelFile
from .model import Model

if TYPE_CHECKING:
    import onnx

__all__ = ["ModelSource", "as_model", "read_model"]

_MAX_LEVELS = 100  # protobuf's limit of nested messages

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | onnx.ModelProto"
ExternalData: TypeAlias = Mapping[str, "bytes | bytearray | memoryview | NDArray[Any]"]
"""Location, as in the model -> contents."""


def as_model(source: Model | ModelSource) -> Model:
    """Returns a `Model` unchanged, and reads any other source with `read_model`."""
    return source if isinstance(source, Model) else read_model(source)


def read_model(
    source: ModelSource,
    *,
    folder: str | os.PathLike[str] | None = None,
    follow_links: bool = False,
    external_data: ExternalData | None = None,
) -> Model:
    """Read an ONNX model: a path, its bytes, a binary stream (from its position), a ``ModelProto``, or an
    ``ONNXProgram``, which torch.onnx.export returns.

    A file is memory-mapped, so it must not be truncated while the model is in use. ``folder``: the folder of external
    data; defaults to the folder of the path. ``follow_links``: whether to follow symbolic and hard links to external
    data, as in caches of downloaded models. The model can then read any file that a link points to.
    ``external_data``: the contents of files of external data, which are then not read: bytes, or another buffer such
    as a NumPy array. Bytes are not copied; writable buffers are. Warns of a location that the model does not read.

    Checks everything except the attributes of nodes and external data. Raises `ModelError` with the name of the file
    and the error.
    """
    given = _in_memory(external_data)
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        beside = os.path.dirname(os.path.abspath(path)) if folder is None else os.fsdecode(folder)
        file = ModelFile(
            map_file(path, "an ONNX file", ModelError),
            label=path,
            path=path,
            folder=beside,
            follow_links=follow_links,
            external_data=given,
        )
    else:
        data, label = _bytes_of(source)
        beside_bytes = None if folder is None else os.fsdecode(folder)
        file = ModelFile(data, label=label, folder=beside_bytes, follow_links=follow_links, external_data=given)
    model = Model(file)
    for location in given:
        if not re.search(re.escape(os.path.basename(location).encode()), file.data):
            warn(
                f"external_data has {shown(location)}, which {file.label} does not read"
                f"{did_you_mean(location, _locations(model))}"
            )
    return model


def _locations(model: Model) -> set[str]:
    """The locations of external data of the model's constants, without those inside nodes and functions."""
    constants, found = model.constants, set[str]()
    for number in filter(constants.is_external, model.file_constants.tolist()):
        with contextlib.suppress(ModelError):
            found.add(constants.location(number)[0])
    return found


def _in_memory(external_data: ExternalData | None) -> dict[str, memoryview]:
    if external_data is None:
        return {}
    if not isinstance(external_data, Mapping):
        raise TypeError(
            f"external_data: expected a mapping from locations to bytes, got {type(external_data).__name__}"
        )
    given = {}
    for location, contents in external_data.items():
        try:
            given[plain_location(location)] = _fixed(contents)
        except (TypeError, ValueError, AttributeError) as error:  # no path, no buffer, or not of numbers
            raise TypeError(
                f"external_data: expected bytes for a location, got {shown(location)}: {shown(contents)}"
            ) from error
    if len(given) < len(external_data):
        raise ValueError("external_data has a location twice, with and without './'")
    return given


def _fixed(source: Any) -> memoryview:
    """The bytes; of a writable buffer a copy, because they must not change after validation."""
    data = memoryview(source)
    if data.format.lstrip("@=<") not in tuple("?bBcefdhHiIlLqQ"):  # big-endian, records, objects, text
        raise TypeError(f"expected a buffer of little-endian numbers, got format {data.format!r}")
    if not (data.readonly and data.c_contiguous):
        data = memoryview(data.tobytes())
    return data.cast("B") if data.nbytes else memoryview(b"")


def _bytes_of(source: Any) -> tuple[memoryview, str]:
    label = "<bytes>"
    if hasattr(source, "read"):
        is_text = isinstance(source, io.TextIOBase)
        label, read = "<stream>", None if is_text else source.read()
        if not isinstance(read, bytes):
            found = "a text stream: open the file with mode 'rb'" if is_text else f"one of {type(read).__name__}"
            raise TypeError(f"expected a binary stream, got {found}")
        source = read
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = _fixed(source)
        if not data:
            hint = "; streams are read from their position, so call seek(0) first" if label == "<stream>" else ""
            raise ModelError(f"{label}: the data is empty{hint}")
        return data, label
    if type(source).__name__ == "ONNXProgram":  # of torch, which need not be installed
        source = source.model_proto
    if not hasattr(source, "SerializeToString") or not hasattr(source, "graph"):
        is_torch = any(kind.__module__.startswith("torch.nn") for kind in type(source).__mro__)
        hint = ", a module of PyTorch: export it with torch.onnx.export(module, inputs)" if is_torch else ""
        raise TypeError(f"expected a path, bytes, a stream or an onnx.ModelProto, got {type(source).__name__}{hint}")
    try:
        return memoryview(source.SerializeToString()), "<ModelProto>"
    except Exception as error:  # protobuf's EncodeError, or ValueError above 2 GiB
        if not _is_too_deep(source):  # protobuf raises the same error for deep nesting and for lack of memory
            raise_out_of_memory(error)
        raise ModelError(f"<ModelProto>: cannot be encoded: {error}") from error


def _is_too_deep(message: Any) -> bool:
    """Whether messages are nested deeper than protobuf supports."""
    level = [message]
    for _ in range(_MAX_LEVELS):
        level = [
            part
            for parent in level
            for field, value in parent.ListFields()
            if field.message_type is not None
            for part in (value if isinstance(value, Sequence) else (value,))
        ]
        if not level:
            return False
    return True
