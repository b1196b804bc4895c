"""The exceptions of hetero.

All derive from `HeteroError`, with one class per kind of problem. A message states what was found, what was expected
and how to fix it. The exception that caused an error is chained with ``from``.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

__all__ = [
    "ArtifactError",
    "Cancelled",
    "Corrupt",
    "DeviceUnavailable",
    "ExtensionError",
    "HeteroError",
    "InferenceError",
    "InsufficientMemory",
    "ModelError",
    "NotSupported",
    "PartitionError",
    "PluginTimeout",
    "PropertyError",
    "QueueFull",
    "UnknownDevice",
    "UnknownOutput",
    "UnsupportedModel",
    "VersionMismatch",
    "WorkerLost",
    "WrongDevice",
    "WrongVersion",
    "did_you_mean",
    "file_error",
    "inference_error",
    "memory_errors",
    "raise_out_of_memory",
    "shown",
]


_Error = TypeVar("_Error", bound="HeteroError")

# Characters of a word, and of a whole message. Names may come from an untrusted file and be megabytes long.
_LONGEST_WORD = 200
# Levels of containers whose items `shown` replaces; a container that contains itself ends there.
_MOST_NESTED = 4
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONGEST_MESSAGE = 1 << 16


class HeteroError(Exception):
    """Base class of all errors raised by hetero.

    Names in a message may come from an untrusted file. Long words are therefore shortened in the middle, and long
    messages at the end.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_shortened(str(message)))


class ModelError(HeteroError):
    """A model cannot be read or is inconsistent. The message names the file and the node or tensor."""


class ModelTooLarge(ModelError, MemoryError):
    """There is not enough memory for a model or one of its tensors."""


class PropertyError(HeteroError, ValueError):
    """A device string or property does not exist, is read-only, or has a value of the wrong kind."""


class DeviceUnavailable(HeteroError):
    """A device is not known, or its backend cannot be used. The message says what to install."""


class UnknownDevice(DeviceUnavailable):
    """A device name is not registered. The message names the nearest known name."""


class VersionMismatch(DeviceUnavailable):
    """A host has another version of hetero, Python, NumPy or Ray than this process. The message names both versions."""


class UnsupportedModel(HeteroError):
    """No device of the list supports some nodes.

    ``unsupported`` maps each such node's key to ``{device: reason}``; the message lists all of them.
    """

    def __init__(self, message: str, unsupported: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__(message)
        self.unsupported = {key: dict(reasons) for key, reasons in (unsupported or {}).items()}


class InsufficientMemory(UnsupportedModel):
    """A model does not fit into the memory limits of its devices.

    ``shortfall``: device -> bytes that are missing in the best assignment found.
    ``unsupported``: if a single node exceeds the limit of each of its devices, that node.
    """

    def __init__(
        self,
        message: str,
        shortfall: Mapping[str, int] | None = None,
        unsupported: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(message, unsupported)
        self.shortfall = dict(shortfall or {})


class PartitionError(HeteroError, ValueError):
    """Arrays do not describe a graph, or a partition breaks a rule. The message names the rule and an example."""


class ArtifactError(HeteroError):
    """An exported file cannot be used."""


class WrongDevice(ArtifactError):
    """An exported file was made for another device."""


class WrongVersion(ArtifactError):
    """An exported file has another format version."""


class Corrupt(ArtifactError):
    """An exported file is damaged, or the file is not an exported model."""


class ExtensionError(HeteroError, ValueError):
    """An extension is inconsistent, or conflicts with one that was added before."""


class InferenceError(HeteroError):
    """A request failed: an input is invalid, or a node cannot compute its output."""


class InferenceTooLarge(InferenceError, MemoryError):
    """A request failed because there is not enough memory."""


class DeviceMemoryExceeded(InsufficientMemory, InferenceTooLarge):
    """An inference needs more memory than a device has. ``shortfall``: device -> bytes that are missing, as far as the
    device reports them."""


class UnknownOutput(HeteroError, KeyError, IndexError):
    """The model has no output of that name or position. The message lists its outputs."""

    __str__ = Exception.__str__  # KeyError shows the repr of its message


class Cancelled(InferenceError):
    """A run was canceled. The request remains usable."""


class QueueFull(InferenceError):
    """The number of waiting requests has reached ``QUEUE_LIMIT``. The new request was not started."""


class WorkerLost(InferenceError):
    """A worker process or actor ended, or was killed after a timeout. It is replaced automatically."""


class PluginTimeout(HeteroError):
    """A call of a plugin exceeded ``PLUGIN_TIMEOUT_MS``."""


class NotSupported(HeteroError):
    """This plugin, or this version of hetero, does not support an operation."""


def _shortened(message: str) -> str:
    if len(message) > _LONGEST_WORD:
        message = re.sub(r"\S+", _shortened_word, message)
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}… ({len(message) - _LONGEST_MESSAGE} characters more)"
    return message


def _shortened_word(match: re.Match[str]) -> str:
    word = match[0]
    return word if len(word) <= _LONGEST_WORD else f"{word[: _LONGEST_WORD // 2]}…{word[-_LONGEST_WORD // 4 :]}"


# Ends of messages by which libraries report only a failed allocation: C++ libraries; glibc, if it cannot load a
# library; threading, if it cannot allocate a stack.
_NO_MEMORY = re.compile(
    r"(?:std::bad_alloc|bad allocation|Arena alloc failed|Failed to serialize proto"
    r"|allocate memory for requested buffer of size \d+|smaller than requested bytes of \d+"
    r"|[Ff]ailed to map segment from shared object|[Cc]annot allocate memory|can't start new thread)\W*$"
)

# The same for a GPU, as onnxruntime reports it, with the place in its source after it.
_NO_GPU_MEMORY = re.compile(r"CUDA failure 2: out of memory|CUBLAS failure 3: |CUDNN_STATUS_ALLOC_FAILED")

# CPython's message if a C function fails without setting an exception. NumPy 2.4 does this if it does not check an
# allocation, for example when indexing by an array.
_NO_REASON = re.compile(r"(?:NULL|error return) without (?:setting an )?exception")


def raise_out_of_memory(error: BaseException) -> None:
    """Raise `MemoryError` if an exception reports a lack of memory. Each ``except`` that blames a model, a node or a
    plugin calls this first: with more memory, the next attempt may succeed."""
    if isinstance(error, MemoryError):
        raise error
    reason = _lack_of_memory(error)
    if reason is not None:
        raise MemoryError(reason) from error


def _lack_of_memory(error: BaseException) -> str | None:
    """The reason if an exception other than `MemoryError` reports a lack of memory; otherwise None."""
    if isinstance(error, HeteroError):
        return None
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return str(error)
    last = str(error)[-_LONGEST_WORD:]
    if isinstance(error, SystemError) and _NO_REASON.search(last):
        return f"a library failed without a reason, as NumPy does for lack of memory: {last}"
    return last if _NO_MEMORY.search(last) or _NO_GPU_MEMORY.search(str(error)) else None


def file_error(kind: type[_Error], message: str, cause: BaseException) -> _Error:
    """An error of ``kind``. It is also a `FileNotFoundError` or `PermissionError` if ``cause``, or the cause of that,
    is one."""
    for base in (FileNotFoundError, PermissionError):
        for found in (cause, cause.__cause__):
            if isinstance(found, base):
                error: _Error = _with_base(kind, base)(message)  # type: ignore[arg-type]  # mypy takes a class for unhashable
                for name in ("errno", "strerror", "filename"):
                    setattr(error, name, getattr(found, name))
                return error
    return kind(message)


@functools.cache
def _with_base(kind: Any, base: type[OSError]) -> Any:
    """A subclass of ``kind`` with the same name that is also a ``base``."""

    def reduce(self: Any) -> tuple[Any, ...]:  # pickle cannot find this class by its name
        return file_error, (kind, self.args[0], base(self.errno, self.strerror, self.filename))

    members = {"__str__": Exception.__str__, "__reduce__": reduce, "__module__": kind.__module__}
    return type(kind.__name__, (kind, base), members)


def inference_error(message: str, error: BaseException) -> InferenceError:
    """An `InferenceError` with this message. It is also a `MemoryError` if ``error`` reports a lack of memory."""
    short = isinstance(error, MemoryError) or _lack_of_memory(error) is not None
    return InferenceTooLarge(message) if short else InferenceError(message)


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Convert errors of libraries that report a lack of memory to `MemoryError`. A context manager and a decorator."""
    try:
        yield
    except Exception as error:
        raise_out_of_memory(error)
        raise


def shown(value: object) -> str:
    """``repr`` for messages, without addresses of objects. NumPy scalars, paths and subclasses of ``str`` look like the
    plain Python values, also in built-in containers. Also works for values whose repr raises, such as very large
    integers."""
    try:
        return _shown(value)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        if isinstance(value, int):
            return f"an integer of {value.bit_length()} bits"
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def _shown(value: object, depth: int = 0) -> str:
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, str) and type(value) is not str:  # such as np.str_ and members of a StrEnum
        return repr(str.__str__(value))
    if type(value).__module__.partition(".")[0] == "numpy":
        return _shown_numpy(value)
    if depth == _MOST_NESTED:
        return repr(value)
    if type(value) is list:
        return f"[{_shown_items(value, depth)}]"
    if type(value) is tuple:
        return f"({_shown_items(value, depth)}{',' if len(value) == 1 else ''})"
    if type(value) is set and value:
        return f"{{{_shown_items(value, depth)}}}"
    if type(value) is dict:
        return f"{{{', '.join(f'{_shown(key, depth + 1)}: {_shown(item, depth + 1)}' for key, item in value.items())}}}"
    return _ADDRESS.sub("", repr(value))


def _shown_items(values: Iterable[object], depth: int) -> str:
    return ", ".join(_shown(value, depth + 1) for value in values)


def _shown_numpy(value: object) -> str:
    import numpy as np  # late: the value's type shows that it is loaded

    if isinstance(value, np.bytes_):
        return repr(value.item())
    return str(value) if isinstance(value, (np.generic, np.dtype)) else repr(value)


def did_you_mean(word: object, known: Iterable[str], prefix: str = "") -> str:
    """`` (did you mean X?)`` for the nearest of ``known``, ignoring case, or an empty text. ``prefix`` precedes X."""
    import difflib  # late: only errors need it

    # The comparison is quadratic, and names may come from a file.
    if not isinstance(word, str) or len(word) > _LONGEST_WORD:
        return ""
    by_folded = {name.casefold(): name for name in known if len(name) <= _LONGEST_WORD}
    nearest = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.5)
    return f" (did you mean {prefix}{by_folded[nearest[0]]}?)" if nearest else ""
