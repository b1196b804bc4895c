"""Linux, macOS and other POSIX systems: see `system`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence

from .descriptor import Descriptor

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # O_NONBLOCK: do not wait for the writer of a FIFO
NEW = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LOCKS = True

read_at = os.pread
rename_folder = os.rename


def lock(number: int, wait: bool) -> None:
    fcntl.flock(number, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def open_below(folder: str, parts: Sequence[str], follow_links: bool) -> Descriptor:
    """Opens folder by folder, so that no folder can be replaced by a link meanwhile."""
    no_follow = 0 if follow_links else os.O_NOFOLLOW
    here = Descriptor(os.open(folder, FOLDER))
    for number, part in enumerate(parts, 1):
        kind = FOLDER if number < len(parts) else READ
        here.replace(os.open(part, kind | no_follow, dir_fd=here.number))
    return here


def sync_file(path: str) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _copy_file_range(source: int, offset: int, size: int, target: int) -> int:
    return os.copy_file_range(source, target, size, offset)


def _send(source: int, offset: int, size: int, target: int) -> int:
    return os.sendfile(target, source, offset, size)


# On macOS, sendfile only writes to sockets.
COPIES = (_copy_file_range, _send) if hasattr(os, "copy_file_range") else ()


def processors() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
