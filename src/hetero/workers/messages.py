"""Messages between a process and its worker, in msgpack. They refer to tensors by their offsets in shared memory."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .. import errors
from ..errors import HeteroError
from ..extension.elsewhere import OpDescription
from ..plugin.profile import ProfileRow
from .shared_memory import SharedMemory

__all__ = [
    "Answer",
    "Cancel",
    "Compile",
    "Compiled",
    "Done",
    "Failed",
    "FileRef",
    "Ready",
    "Request",
    "Room",
    "Run",
    "Settle",
    "TensorRef",
    "TooSmall",
    "WeightRef",
    "answer_decoder",
    "dtype_name",
    "encode",
    "failure",
    "request_decoder",
]


class TensorRef(msgspec.Struct, array_like=True, frozen=True):
    """An array in shared memory."""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    def array(self, memory: SharedMemory) -> NDArray[Any]:
        return memory.array(self.offset, self.shape, self.numpy_dtype)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return _dtype(self.dtype)


class Room(msgspec.Struct, array_like=True, frozen=True):
    """Space in shared memory for a result."""

    offset: int
    size: int


class WeightRef(msgspec.Struct, array_like=True, frozen=True):
    """A constant of a model. ``file``: the number of the mapped file that ``data`` lies in; -1 for shared memory."""

    name: str
    file: int
    data: TensorRef


class FileRef(msgspec.Struct, array_like=True, frozen=True):
    """A file to map, whose descriptor comes with the message: its size in B, and when it was last changed."""

    size: int
    mtime_ns: int


class Compile(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Compile a model. ``model``: its encoding without the weights. The worker first sets ``sys.path`` to ``path``,
    registers ``plugins`` (names and targets), and adds ``ops``."""

    model: TensorRef
    weights: list[WeightRef]
    files: list[FileRef]
    device: str
    config: dict[str, Any]
    plugins: list[tuple[str, str]]
    ops: list[OpDescription]
    path: list[str]


class Run(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Run one inference, and write its results to ``rooms``."""

    inputs: list[TensorRef]
    rooms: list[Room]


class Settle(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Write the results of the last inference to larger rooms."""

    rooms: list[Room]


class Cancel(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Stop an inference if it is still running. There is no answer. ``number``: the number of its message."""

    lane: int
    number: int


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The first message of a worker."""


class Compiled(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """``streams``: the number of inferences that keep the worker busy. The mailbox receives as many lanes."""

    streams: int


class Done(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The results, which are in their rooms."""

    results: list[TensorRef]
    counters: list[tuple[str, str, str, str, float, float, int]]

    def rows(self) -> tuple[ProfileRow, ...]:
        return tuple(ProfileRow(*row) for row in self.counters)


class TooSmall(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The size of each result in B. The worker writes the results after `Settle`."""

    sizes: list[int]


class Failed(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """An error of hetero."""

    kind: str
    text: str
    notes: list[str]

    def error(self) -> HeteroError | MemoryError:
        if self.kind == "MemoryError":
            return MemoryError(self.text)
        kind = getattr(errors, self.kind, None)
        known = isinstance(kind, type) and issubclass(kind, HeteroError)
        error: HeteroError = kind(self.text) if known and kind is not None else HeteroError(self.text)
        for note in self.notes:
            error.add_note(note)
        return error


Request = Compile | Run | Settle | Cancel
Answer = Ready | Compiled | Done | TooSmall | Failed

encode = msgspec.msgpack.Encoder().encode
request_decoder = msgspec.msgpack.Decoder(Request)
answer_decoder = msgspec.msgpack.Decoder(Answer)


def failure(error: BaseException) -> Failed:
    """An error as a message. Errors of other libraries become an `InferenceError`."""
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    if isinstance(error, HeteroError):
        return Failed(type(error).__name__, str(error), notes)
    try:
        errors.raise_out_of_memory(error)
    except MemoryError as short:
        return Failed("MemoryError", str(short), notes)
    return Failed("InferenceError", f"{type(error).__name__}: {error}", notes)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """A name for `TensorRef`. Types of ml_dtypes have no type letter, so they use their full name."""
    return dtype.name if dtype.kind == "V" else dtype.str


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
