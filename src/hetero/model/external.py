"""External data: tensors stored in other files of the model's folder.

A location is a path below the model's folder. It is opened component by component from an open folder, without
following links. A model therefore cannot reach a file outside its folder, even if a folder is replaced during the read.
A file with several hard links raises an error too, because its other name may be outside the folder.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import threading
import types
import weakref
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..base import system
from ..base.descriptor import Descriptor
from ..base.files import MappedFile, copy_range, write_all

__all__ = ["ExternalFiles", "Location", "find_locations", "parse_location", "plain_location"]

_RECENT_FILES = 64  # the number of unused files to keep open
_READ_WHOLE = 1 << 20  # files up to this size, in B, are read instead of mapped: a map uses a file descriptor

Location = tuple[str, int, int | None]
"""Path below the model's folder, offset, and size in bytes if stated."""


def parse_location(entries: list[tuple[str, str]]) -> Location:
    """The location in a tensor's ``external_data`` entries. Raises ValueError if they are invalid."""
    fields: dict[str, str] = {}
    for key, value in entries:
        # onnxruntime adds keys for prepacked weights, which are not needed.
        if key not in ("location", "offset", "length", "checksum") and not key.startswith("prepacked"):
            raise ValueError(f"unknown external_data key {key!r}")
        if key in fields:
            raise ValueError(f"external_data has the key {key!r} twice")
        fields[key] = value
    if not fields.get("location"):
        raise ValueError("external_data has no location")
    length = fields.get("length")
    return (
        plain_location(fields["location"]),
        _size(fields.get("offset", "0")),
        None if length is None else _size(length),
    )


def plain_location(path: str) -> str:
    """A path below the model's folder, without ``.`` parts."""
    return "/".join(part for part in path.split("/") if part != ".") or path


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"external_data offset or length: expected a number of bytes, found {text!r}")
    return int(text)


# The key of a StringStringEntryProto: its length as a varint, which may be padded, and its text.
_LOCATION = re.compile(rb"(?:\x08|\x88\x80*\x00)location")


def find_locations(data: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
    """The numbers of the ranges that may contain tensors with external data, because they contain the key "location".

    Cost: one search of the bytes.
    """
    if not len(starts):
        return []
    order = np.argsort(starts)
    breaks = np.flatnonzero(starts[order][1:] != ends[order][:-1]) + 1
    numbers: set[int] = set()
    for run in np.split(order, breaks):
        for match in _LOCATION.finditer(data, int(starts[run[0]]), int(ends[run[-1]])):
            numbers.add(int(run[np.searchsorted(starts[run], match.start(), "right") - 1]))
    return sorted(numbers)


class ExternalFiles:
    """The external data files of one model. Large files are mapped, small files are read, on first use.

    A map is closed when no array uses it. Only the most recently used maps stay open, because a model with a file per
    tensor could exhaust the process's file descriptors. A file that is opened again must be the one that was opened
    first, unchanged: a model must not use some weights of an old file and some of a new one.

    ``follow_links``: allow links, as in shared caches that store files as links. The model can then read any file that
    a link points to. ``in_memory``: location -> contents, in place of files of the folder.
    """

    def __init__(
        self, folder: str | None, follow_links: bool, in_memory: Mapping[str, memoryview] = types.MappingProxyType({})
    ) -> None:
        self._folder = folder
        self._follow_links = follow_links
        self._in_memory = in_memory
        self._maps: weakref.WeakValueDictionary[str, mmap.mmap] = weakref.WeakValueDictionary()
        self._recent: dict[str, mmap.mmap | bytes] = {}
        self._held: dict[str, Descriptor] = {}
        self._first: dict[str, tuple[int, ...]] = {}  # by path: the file that was opened first, see `_identity`
        self._lock = threading.Lock()

    def read(self, location: Location, size: int) -> memoryview:
        """``size`` bytes at ``location``, not copied. Raises ValueError if they cannot be read."""
        path, offset, _ = location
        self.check_length(location, size)
        given = self._in_memory.get(path)
        if given is not None:
            _check_range(location, size, len(given))
            return given[offset : offset + size]
        with self._lock:
            data: mmap.mmap | bytes | None = self._recent.pop(path, None)
            if data is None:
                data = self._maps.get(path)
            if data is None:
                data = self._load(path)
            self._recent[path] = data
            if len(self._recent) > _RECENT_FILES:
                del self._recent[next(iter(self._recent))]
        # Reading a mapped file beyond its end ends the process, so its length is asked again.
        _check_range(location, size, min(len(data), data.size()) if isinstance(data, mmap.mmap) else len(data))
        return memoryview(data)[offset : offset + size]

    def _load(self, path: str) -> mmap.mmap | bytes:
        with contextlib.closing(self._open(path)) as file:
            try:
                size = os.fstat(file.number).st_size
                if size <= _READ_WHOLE:
                    return system.read_at(file.number, size, 0)
                assert self._folder is not None
                mapped = self._maps[path] = MappedFile.of(file.number, os.path.join(self._folder, path))
            except OSError as error:
                raise ValueError(f"external data {path!r} cannot be read: {error.strerror}") from error
            return mapped

    def copy(self, location: Location, size: int, target: int) -> None:
        """Append ``size`` bytes at ``location`` to the open file ``target``, within the operating system if possible.
        Raises ValueError if they cannot be read, and OSError if writing fails."""
        self.check_length(location, size)
        if location[0] in self._in_memory:
            write_all(target, self.read(location, size))
            return
        with contextlib.closing(self._open(location[0])) as file:
            _check_range(location, size, os.fstat(file.number).st_size)
            if copy_range(file.number, location[1], size, target) != size:
                raise ValueError(f"external data {location[0]!r} was truncated during the read")

    def hold(self, path: str) -> None:
        """Keep a file open that is about to be removed. Ignores files that cannot be opened."""
        with self._lock, contextlib.suppress(ValueError):
            if path not in self._held:
                self._held[path] = self._open(path)

    @staticmethod
    def check_length(location: Location, size: int) -> None:
        if location[2] is not None and location[2] != size:
            raise ValueError(f"external_data length is {location[2]}, but dims and data_type require {size}")

    def _open(self, path: str) -> Descriptor:
        held = self._held.get(path)
        if held is not None:
            return Descriptor(os.dup(held.number))
        if self._folder is None:
            raise ValueError(
                f"external data {path!r}: the model's folder is unknown (pass folder= or external_data= to read_model)"
            )
        parts = path.split("/")
        if "\0" in path or not all(parts) or ".." in parts or "." in parts:
            raise ValueError(f"external data location {path!r} is not a relative path below the model's folder")
        try:
            opened = self._walk(path, parts)
        except OSError as error:
            links = "" if self._follow_links else " (links are not followed)"
            raise ValueError(f"external data {path!r} cannot be opened{links}: {error.strerror}") from error
        found = _identity(os.fstat(opened.number))
        if self._first.setdefault(path, found) != found:
            opened.close()
            raise ValueError(
                f"external data {path!r} has changed since this model first read it (read the model again)"
            )
        return opened

    def _walk(self, path: str, parts: list[str]) -> Descriptor:
        assert self._folder is not None
        here = system.open_below(self._folder, parts, self._follow_links)
        try:
            status = os.fstat(here.number)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"external data {path!r} is not a regular file")
            if status.st_nlink > 1 and not self._follow_links:
                raise ValueError(
                    f"external data {path!r} has {status.st_nlink} hard links, so it may be a file outside the model's "
                    "folder (pass follow_links=True to read_model to allow this)"
                )
        except BaseException:
            here.close()
            raise
        return here


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check_range(location: Location, size: int, length: int) -> None:
    path, offset, _ = location
    if offset > length or size > length - offset:
        raise ValueError(
            f"external data {path!r} has {length} bytes, but the tensor needs bytes {offset} to {offset + size}"
        )
