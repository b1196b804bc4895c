"""Stage 1, read: turns a file, bytes or a ModelProto into a `Model`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base.files import map_file
from ..errors import ModelError, raise_out_of_memory
from .file import ModelFile
from .model import Model

if TYPE_CHECKING:
    import onnx

__all__ = ["ModelSource", "as_model", "read_model"]

_MAX_LEVELS = 100  # protobuf's limit of nested messages

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"


def as_model(source: Model | ModelSource) -> Model:
    """Returns a `Model` unchanged, and reads any other source with `read_model`."""
    return source if isinstance(source, Model) else read_model(source)


def read_model(
    source: ModelSource,
    *,
    folder: str | os.PathLike[str] | None = None,
    follow_links: bool = False,
) -> Model:
    """Read an ONNX model.

    A file is memory-mapped, so it must not be truncated while the model is in use. ``folder``: the folder of external
    data; defaults to the folder of the path. ``follow_links``: whether to follow symbolic and hard links to external
    data, as in caches of downloaded models. The model can then read any file that a link points to.

    Checks everything except the attributes of nodes and external data. Raises `ModelError` with the name of the file
    and the error.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        beside = os.path.dirname(os.path.abspath(path)) if folder is None else os.fsdecode(folder)
        file = ModelFile(
            map_file(path, "an ONNX file", ModelError), label=path, path=path, folder=beside, follow_links=follow_links
        )
    else:
        data, label = _bytes_of(source)
        beside_bytes = None if folder is None else os.fsdecode(folder)
        file = ModelFile(data, label=label, folder=beside_bytes, follow_links=follow_links)
    return Model(file)


def _bytes_of(source: bytes | bytearray | memoryview | onnx.ModelProto) -> tuple[memoryview, str]:
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = memoryview(source)
        if not (data.readonly and data.c_contiguous):
            data = memoryview(data.tobytes())  # a private copy, because the bytes must not change after validation
        if data.nbytes == 0:
            raise ModelError("<bytes>: the data is empty")
        return data.cast("B"), "<bytes>"
    if not hasattr(source, "SerializeToString") or not hasattr(source, "graph"):
        raise TypeError(f"expected a path, bytes or an onnx.ModelProto, got {type(source).__name__}")
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
