"""Every exception hetero raises on purpose.

One root, one class per kind of trouble. A message names what was expected, what was found and what to do; the
exception that caused it is chained with ``from``.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable, Iterator, Mapping

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
    "inference_error",
    "memory_errors",
    "raise_out_of_memory",
    "shown",
]


_LONGEST_WORD = 200
_LONGEST_MESSAGE = 1 << 16


class HeteroError(Exception):
    """Root of all errors raised by hetero.

    A name in a message may come from a file, and have megabytes: long words are shortened in the middle, and a long
    message at its end.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_shortened(str(message)))


class ModelError(HeteroError):
    """A model that cannot be read, or that contradicts itself. Names the file and the node or tensor."""


class ModelTooLarge(ModelError, MemoryError):
    """There is not enough memory for a model or one of its tensors."""


class PropertyError(HeteroError, ValueError):
    """A device string or property that does not exist, is read-only, or has a value of the wrong kind."""


class DeviceUnavailable(HeteroError):
    """A device that is not known here, or whose backend cannot be used. Says what to install."""


class UnknownDevice(DeviceUnavailable):
    """A device name that nobody registered. Says which known name is nearest."""


class VersionMismatch(DeviceUnavailable):
    """A host whose hetero, Python, NumPy or Ray is not that of this process. Says what it has."""


class UnsupportedModel(HeteroError):
    """Nodes that no device of the list takes.

    ``unsupported`` maps each such node's key to ``{device: reason}``; the message lists all of them.
    """

    def __init__(self, message: str, unsupported: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__(message)
        self.unsupported = {key: dict(reasons) for key, reasons in (unsupported or {}).items()}


class InsufficientMemory(UnsupportedModel):
    """A model that does not fit into the memory that its devices may have.

    ``shortfall``: device -> bytes that it would need above its limit, in the best assignment that was found.
    ``unsupported`` names a node that fits on none of its devices even alone, if there is one.
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
    """Arrays that are no graph, or a partition that breaks a rule. Names the rule and a witness."""


class ArtifactError(HeteroError):
    """An exported file that cannot be used."""


class WrongDevice(ArtifactError):
    """An exported file made for another device."""


class WrongVersion(ArtifactError):
    """An exported file of another format version."""


class Corrupt(ArtifactError):
    """An exported file whose bytes are not what was written."""


class ExtensionError(HeteroError, ValueError):
    """An extension that contradicts itself, or another that was added before."""


class InferenceError(HeteroError):
    """A request that failed: a bad input, or a node that cannot compute its output."""


class InferenceTooLarge(InferenceError, MemoryError):
    """A request that failed for lack of memory."""


class UnknownOutput(HeteroError, KeyError, IndexError):
    """The model has no output of that name or position. The message lists its outputs."""

    __str__ = Exception.__str__  # KeyError shows the repr of its message


class Cancelled(InferenceError):
    """A run that somebody asked to stop. The request stays usable."""


class QueueFull(InferenceError):
    """As many requests wait as ``QUEUE_LIMIT`` allows. Nothing was started."""


class WorkerLost(InferenceError):
    """A worker process or actor that ended, or did not answer in time and was killed. It is replaced by itself."""


class PluginTimeout(HeteroError):
    """A plugin that was not done within ``PLUGIN_TIMEOUT_MS``."""


class NotSupported(HeteroError):
    """An operation that this plugin, or this version of hetero, does not offer."""


def _shortened(message: str) -> str:
    if len(message) > _LONGEST_WORD:
        message = re.sub(r"\S+", _shortened_word, message)
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}… ({len(message) - _LONGEST_MESSAGE} characters more)"
    return message


def _shortened_word(found: re.Match[str]) -> str:
    word = found[0]
    return word if len(word) <= _LONGEST_WORD else f"{word[: _LONGEST_WORD // 2]}…{word[-_LONGEST_WORD // 4 :]}"


# Ends of messages by which libraries report a failed allocation, and nothing else: C++ libraries; glibc, which cannot
# load a library; and threading, which has no memory for a stack.
_NO_MEMORY = re.compile(
    r"(?:std::bad_alloc|bad allocation|Arena alloc failed|Failed to serialize proto"
    r"|allocate memory for requested buffer of size \d+"
    r"|[Ff]ailed to map segment from shared object|[Cc]annot allocate memory|can't start new thread)\W*$"
)

# What CPython says of a C function that fails without a reason. NumPy does that where it does not check an allocation,
# as when it indexes by an array (2.4).
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
    """What an exception that is no `MemoryError` says of a lack of memory; None if it is about something else."""
    if isinstance(error, HeteroError):
        return None
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return str(error)
    last = str(error)[-_LONGEST_WORD:]
    if isinstance(error, SystemError) and _NO_REASON.search(last):
        return f"a library failed without a reason, as NumPy does for lack of memory: {last}"
    return last if _NO_MEMORY.search(last) else None


def inference_error(message: str, error: BaseException) -> InferenceError:
    """An `InferenceError` of that message because of ``error``; also a `MemoryError` if ``error`` is about that."""
    short = isinstance(error, MemoryError) or _lack_of_memory(error) is not None
    return InferenceTooLarge(message) if short else InferenceError(message)


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """While the block runs, what libraries raise for lack of memory comes out as `MemoryError`. Also a decorator."""
    try:
        yield
    except Exception as error:
        raise_out_of_memory(error)
        raise


def shown(value: object) -> str:
    """``repr`` for messages, also of values whose repr raises, such as very large integers."""
    try:
        return repr(value)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        if isinstance(value, int):
            return f"an integer of {value.bit_length()} bits"
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`` (did you mean X?)`` for the nearest of ``known``, ignoring case, or an empty string."""
    import difflib  # only errors need it

    # The comparison is quadratic, and names may come from a file.
    if not isinstance(word, str) or len(word) > _LONGEST_WORD:
        return ""
    by_folded = {name.casefold(): name for name in known if len(name) <= _LONGEST_WORD}
    nearest = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.5)
    return f" (did you mean {by_folded[nearest[0]]}?)" if nearest else ""
