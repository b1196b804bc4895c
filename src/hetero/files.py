"""Mapping files, writing them whole or not at all, and copying between them without a detour through memory."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator

from .errors import HeteroError

__all__ = ["atomic_file", "copy_range", "map_file", "sync_folder", "write_all", "write_atomically"]

_MOST_AT_ONCE = 8 << 20  # bytes

# What copy_file_range says where it cannot do it: between file systems, or on one that lacks it.
_NOT_HERE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY, errno.EPERM)


def write_atomically(target: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Write ``parts``, one after the other, as `atomic_file` does."""
    with atomic_file(target) as number, os.fdopen(number, "wb", closefd=False) as stream:
        for part in parts:
            stream.write(part)


@contextlib.contextmanager
def atomic_file(target: str | os.PathLike[str]) -> Iterator[int]:
    """A file descriptor to write to, so that a reader of ``target`` sees the old file or the new one, never a piece.

    Temporary file in the same folder, fsync, rename; the new file has the permissions that ``open`` would give.
    Raises ``OSError``, and then, or if the block raises, leaves nothing behind.
    """
    import tempfile  # ten milliseconds that reading and running a model should not pay

    folder, name = os.path.split(os.fspath(target))
    number, temporary = tempfile.mkstemp(dir=folder or ".", prefix=f".{name[:64]}.")
    try:
        try:
            yield number
            os.fsync(number)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(number, 0o666 & ~mask)
        finally:
            os.close(number)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(folder or ".")


@contextlib.contextmanager
def new_file(target: str | os.PathLike[str]) -> Iterator[int]:
    """A file descriptor of a file that is not there yet, in a folder that nobody sees before `sync_files` was called.

    Raises ``OSError``; what was written then stays.
    """
    number = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        yield number
    finally:
        os.close(number)


def sync_files(folder: str | os.PathLike[str]) -> None:
    """Makes the files of a folder last, and their names. Raises ``OSError``.

    For many small files that takes half as long as a sync, a rename and a sync of the folder for each."""
    for entry in os.scandir(folder):
        number = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    sync_folder(folder)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Makes the names in a folder last, where the file system can do that at all."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def copy_range(source: int, offset: int, size: int, target: int) -> int:
    """Appends ``size`` bytes of the open file ``source``, from ``offset`` on, to where ``target`` stands.

    The kernel copies, or on file systems that can, shares the blocks. Gives how many bytes there were; OSError.
    """
    done, copy = 0, _copy_file_range
    while done < size:
        try:
            more = copy(source, offset + done, size - done, target)
        except OSError as error:
            if copy is _send or error.errno not in _NOT_HERE:
                raise
            copy = _send
            continue
        if not more and copy is _send:
            break
        if not more:
            copy = _send  # some file systems say nothing was copied when they cannot
        done += more
    return done


def _copy_file_range(source: int, offset: int, size: int, target: int) -> int:
    return os.copy_file_range(source, target, size, offset)


def _send(source: int, offset: int, size: int, target: int) -> int:
    return os.sendfile(target, source, offset, size)


def write_all(target: int, data: memoryview) -> None:
    """Writes all of ``data`` to an open file."""
    done = 0
    while done < len(data):
        done += os.write(target, data[done : done + _MOST_AT_ONCE])


def map_file(path: str, expected: str, error: type[HeteroError], empty: type[HeteroError] | None = None) -> memoryview:
    """The bytes of a regular file, mapped for reading; it must not be shortened while they are in use.

    ``expected``: what it should be, for messages. Raises ``error`` if there is no such file or it cannot be mapped, and
    ``empty``, by default ``error``, if there is nothing in it.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as raised:  # ValueError: a NUL in the path
        raise error(f"{path}: cannot be opened: {getattr(raised, 'strerror', None) or raised}") from raised
    try:
        status = os.fstat(number)
        if stat.S_ISDIR(status.st_mode):
            raise error(f"{path}: is a folder, expected {expected}")
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path}: is not a regular file, expected {expected} (or read it yourself and pass the bytes)")
        if status.st_size == 0:
            raise (empty or error)(f"{path}: is empty")
        return memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_READ))
    except OSError as raised:
        raise error(f"{path}: cannot be mapped: {raised.strerror}") from raised
    finally:
        os.close(number)
