"""Data of tensors that lie in files beside the model's.

A location is a path below the model's folder. It is walked component by component from an open folder, never
following a link, so that no model can reach a file outside of its folder, not even by exchanging a folder while it is
read; a file with a second hard link is refused too, since that other name may be outside.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import threading

__all__ = ["ExternalFiles", "Location", "parse_location"]

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: opening a FIFO must not wait for a writer

Location = tuple[str, int, int | None]
"""Path below the model's folder, offset, and size in bytes if stated."""


def parse_location(entries: list[tuple[str, str]]) -> Location:
    """The location that a tensor's ``external_data`` entries state. ValueError says what is wrong with them."""
    found: dict[str, str] = {}
    for key, value in entries:
        # onnxruntime stores prepacked weights beside a tensor under keys of its own; they are not needed.
        if key not in ("location", "offset", "length", "checksum") and not key.startswith("prepacked"):
            raise ValueError(f"unknown external_data key {key!r}")
        if key in found:
            raise ValueError(f"external_data key {key!r} is given twice")
        found[key] = value
    if not found.get("location"):
        raise ValueError("external_data has no location")
    length = found.get("length")
    return found["location"], _size(found.get("offset", "0")), None if length is None else _size(length)


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"external_data offset or length {text!r} is no number of bytes")
    return int(text)


class ExternalFiles:
    """Maps of the files beside one model, each opened once.

    ``follow_links``: allow links below the folder (for shared caches that store files as links); a model can then
    read whatever those links point to.
    """

    def __init__(self, folder: str | None, follow_links: bool) -> None:
        self._folder = folder
        self._follow_links = follow_links
        self._maps: dict[str, memoryview] = {}
        self._lock = threading.Lock()

    def read(self, location: Location, size: int) -> memoryview:
        """``size`` bytes at ``location``, without copying. ValueError says why not."""
        path, offset, length = location
        if length is not None and length != size:
            raise ValueError(f"external_data length is {length}, dims and data_type need {size}")
        with self._lock:
            if path not in self._maps:
                try:
                    self._maps[path] = self._map(path)
                except OSError as error:
                    links = "" if self._follow_links else ", links not being followed"
                    raise ValueError(f"external data {path!r} cannot be opened{links}: {error.strerror}") from error
            data = self._maps[path]
        if offset > len(data) or size > len(data) - offset:
            raise ValueError(f"{path!r} has {len(data)} bytes, the tensor needs {offset} to {offset + size}")
        return data[offset : offset + size]

    def _map(self, path: str) -> memoryview:
        if self._folder is None:
            raise ValueError(f"external data {path!r}: the model's folder is not known (pass folder= to read_model)")
        parts = [part for part in path.split("/") if part != "."]
        if "\0" in path or not all(parts) or ".." in parts or not parts:
            raise ValueError(f"external data location {path!r} is not a relative path below the model's folder")
        with contextlib.closing(_Descriptor(os.open(self._folder, _FLAGS | os.O_DIRECTORY))) as here:
            no_follow = 0 if self._follow_links else os.O_NOFOLLOW
            for part in parts[:-1]:
                here.replace(os.open(part, _FLAGS | os.O_DIRECTORY | no_follow, dir_fd=here.number))
            here.replace(os.open(parts[-1], _FLAGS | no_follow, dir_fd=here.number))
            status = os.fstat(here.number)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"external data {path!r} is not a regular file")
            if status.st_nlink != 1 and not self._follow_links:
                raise ValueError(
                    f"external data {path!r} has {status.st_nlink} hard links, so it may be a file from elsewhere "
                    "(pass follow_links=True to read_model to allow that)"
                )
            if status.st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(here.number, 0, access=mmap.ACCESS_READ))


class _Descriptor:
    """One open file descriptor at a time."""

    def __init__(self, number: int) -> None:
        self.number = number

    def replace(self, number: int) -> None:
        os.close(self.number)
        self.number = number

    def close(self) -> None:
        os.close(self.number)
