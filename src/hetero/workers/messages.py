"""What passes between a process and its worker, as msgpack. Tensors are named by where they lie in shared memory."""

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
    "Ready",
    "Request",
    "Room",
    "Run",
    "Settle",
    "TensorRef",
    "TooSmall",
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
    """Bytes in shared memory for a result."""

    offset: int
    size: int


class Compile(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Compile a model: its encoding without the weights, and those. Before: ``path`` is where modules are looked for,
    ``plugins`` (name and target) are registered, and ``ops`` are added."""

    model: TensorRef
    weights: list[tuple[str, TensorRef]]
    device: str
    config: dict[str, Any]
    plugins: list[tuple[str, str]]
    ops: list[OpDescription]
    path: list[str]


class Run(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """One inference, results to be written to ``rooms``."""

    inputs: list[TensorRef]
    rooms: list[Room]


class Settle(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Write the results of the last inference to larger rooms."""

    rooms: list[Room]


class Cancel(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Stop an inference, unless it is over; no answer. ``number``: of its message on the lane."""

    lane: int
    number: int


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The first message of a worker."""


class Compiled(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """``streams``: inferences that keep the worker busy. As many lanes were sent through the mailbox."""

    streams: int


class Done(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The results, where their rooms are."""

    results: list[TensorRef]
    counters: list[tuple[str, str, str, str, float, float, int]]

    def rows(self) -> tuple[ProfileRow, ...]:
        return tuple(ProfileRow(*row) for row in self.counters)


class TooSmall(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """The bytes that each result needs; they are written when `Settle` comes."""

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
    """An error as a message; one that is not hetero's own becomes an `InferenceError`."""
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    if isinstance(error, HeteroError):
        return Failed(type(error).__name__, str(error), notes)
    try:
        errors.raise_out_of_memory(error)
    except MemoryError as short:
        return Failed("MemoryError", str(short), notes)
    return Failed("InferenceError", f"{type(error).__name__}: {error}", notes)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """A name that `TensorRef` understands: also of those of ml_dtypes, which have no letter of their own."""
    return dtype.name if dtype.kind == "V" else dtype.str


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
