"""Windows: see `system`."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Sequence

from .descriptor import Descriptor

_BINARY = getattr(os, "O_BINARY", 0)  # without it, Windows translates the ends of lines
READ = os.O_RDONLY | _BINARY
NEW = os.O_CREAT | os.O_EXCL | _BINARY
FOLDER = os.O_RDONLY  # folders cannot be opened
LOCKS = False
COPIES = ()

_REPARSE_POINT = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400)  # links, junctions, and others
_reading = threading.Lock()  # duplicates of a descriptor share its position


def lock(number: int, wait: bool) -> None:
    """Does nothing: an open file cannot be removed."""


def open_below(folder: str, parts: Sequence[str], follow_links: bool) -> Descriptor:
    """Looks for links before it opens the file. Windows cannot open a file relative to an open folder, so unlike on
    other systems, a folder that is replaced meanwhile is not noticed."""
    path = folder
    for part in parts:
        if "\\" in part or ":" in part:
            raise OSError(errno.EINVAL, "a part of the path contains a backslash or a colon")
        path = os.path.join(path, part)
        if not follow_links and getattr(os.lstat(path), "st_file_attributes", 0) & _REPARSE_POINT:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return Descriptor(os.open(path, READ))


def read_at(number: int, size: int, offset: int) -> bytes:
    with _reading:
        os.lseek(number, offset, os.SEEK_SET)
        return os.read(number, size)


def sync_file(path: str) -> None:
    number = os.open(path, os.O_RDWR | _BINARY)  # only files that are open for writing can be synced
    try:
        os.fsync(number)
    finally:
        os.close(number)


def rename_folder(source: str, target: str) -> None:
    if os.path.isdir(target):
        os.rmdir(target)  # fails unless it is empty
    os.rename(source, target)


def processors() -> list[int]:
    return list(range(os.cpu_count() or 1))
