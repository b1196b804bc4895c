"""The processors and the memory that this process can use, within the limits of its container."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import posixpath
from collections.abc import Iterator

from .system import processors

__all__ = ["DeviceMemory", "host_memory", "usable_processors"]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of a device, in bytes. ``free``: what a process can allocate now, with the caches that the system
    would drop for it; None if unknown."""

    total: int
    free: int | None = None


def usable_processors() -> int:
    """The number of processors that this process may use."""
    return len(processors())


def host_memory(root: str = "/") -> DeviceMemory | None:
    """The memory of this machine, or of the control group of this process if that has less. None if the system does not
    say. ``root``: the folder that holds ``proc`` and ``sys``."""
    numbers = dict(_meminfo(f"{root}/proc/meminfo"))
    total, free = numbers.get("MemTotal"), numbers.get("MemAvailable")
    if total is None:
        with contextlib.suppress(ValueError, OSError, AttributeError):  # systems without /proc
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if total is None:
        return None
    for limit, used in _limits(root):
        if limit < total:
            total = limit
        if free is not None:
            free = max(0, min(free, limit - used))
    return DeviceMemory(total, free)


def _meminfo(path: str) -> Iterator[tuple[str, int]]:
    """The fields of /proc/meminfo, in bytes."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as lines:
        for line in lines:
            name, _, size = line.partition(":")
            yield name, int(size.split()[0]) * 1024


def _limits(root: str) -> Iterator[tuple[int, int]]:
    """The limit and the use, without droppable caches, of each control group that this process is in, in bytes."""
    for folder, limit_file, used_file in _groups(root):
        limit, used = _number(f"{folder}/{limit_file}"), _number(f"{folder}/{used_file}")
        if limit is None or used is None:
            continue
        caches = 0
        with contextlib.suppress(OSError, ValueError), open(f"{folder}/memory.stat", encoding="ascii") as lines:
            for line in lines:
                name, _, size = line.partition(" ")
                if name == "total_inactive_file" or (name == "inactive_file" and not caches):
                    caches = int(size)
        yield limit, max(0, used - caches)


def _groups(root: str) -> Iterator[tuple[str, str, str]]:
    """The folders of the control groups of this process, from its own to the outermost, with the names of the files for
    the limit and the use. In a container, the path is often relative to the container's own root."""
    base = f"{root}/sys/fs/cgroup"
    try:
        with open(f"{root}/proc/self/cgroup", encoding="utf-8") as lines:
            entries = [line.rstrip("\n").split(":", 2) for line in lines]
    except (OSError, ValueError):
        return
    for entry in entries:
        if len(entry) != 3:
            continue
        _, controllers, path = entry
        if not controllers:
            folder, files = base, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            folder, files = f"{base}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        path = posixpath.normpath(f"/{path}")
        while path not in ("/", "//"):
            yield f"{folder}{path}", *files
            path = posixpath.dirname(path)
        yield folder, *files


def _number(path: str) -> int | None:
    """The number that a file holds; None if it holds something else, such as ``max``."""
    try:
        with open(path, encoding="ascii") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return None
