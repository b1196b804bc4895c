"""Mapping files, writing them atomically, and copying between them inside the kernel."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import HeteroError, file_error, raise_out_of_memory
from . import system
from .descriptor import Descriptor
from .file_kinds import describe_folder

__all__ = [
    "MappedFile",
    "atomic_file",
    "atomic_folder",
    "copy_range",
    "lock_new",
    "map_file",
    "mapping_of",
    "moved_away",
    "path_text",
    "read_file",
    "remove_leftovers",
    "sync_folder",
    "write_all",
    "write_atomically",
    "write_file",
]

_MAX_AT_ONCE = 8 << 20  # size of one write, in B

# The name of a temporary file: a dot, the start of the target's name, a random number, for some the mark of another
# file (`_mark`), and one of these ends. File systems allow 255 bytes in all.
_TEMPORARY_END = ".hetero-part"
_MOVED_END = ".hetero-moved"
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}(?:\.for-(?P<needs>[0-9a-f]{16}))?\.hetero-(?:part|moved)", re.DOTALL)
_NAME_BYTES = 160

# Errors of copy_file_range if it cannot copy: between file systems, or on a file system without support.
_NOT_HERE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY, errno.EPERM)


def write_atomically(target: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Write ``parts``, one after the other, as `atomic_file` does."""
    with atomic_file(target) as number, os.fdopen(number, "wb", closefd=False) as stream:
        for part in parts:
            stream.write(part)


def write_file(path: str | os.PathLike[str], parts: Iterable[bytes | memoryview], what: str = "") -> None:
    """`write_atomically` for a file that a user names. ``what``: its kind, for the error. Raises `HeteroError` if it
    cannot be written (see `file_error`)."""
    try:
        write_atomically(path, parts)
    except OSError as error:
        text = f"cannot write {what}{os.fsdecode(path)}: {error.strerror or error}"
        raise file_error(HeteroError, text, error) from error


@contextlib.contextmanager
def atomic_file(target: str | os.PathLike[str], needs: str | None = None) -> Iterator[int]:
    """A file descriptor for writing. A reader of ``target`` sees either the old file or the new one.

    Temporary file in the same folder, fsync, rename; the new file has the permissions that ``open`` would give.
    Removes leftovers of killed processes in that folder. ``needs``: the name of a file in that folder that only the new
    file uses. If this process is killed before the rename, it is removed together with the temporary file.
    Raises ``OSError``. If it raises, or the block raises, no file is left.
    """
    folder, name = os.path.split(path_text(target))
    if os.path.isdir(path_text(target)):  # for ".", the rename says "Device or resource busy"
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path_text(target))
    remove_leftovers(folder)
    try:
        temporary, number = _temporary_file(folder, name, needs)
    except OSError as error:
        error.filename = path_text(target)  # the user does not know the temporary file
        raise
    held = Descriptor(number)
    try:
        yield number
        os.fsync(number)
        if not system.LOCKS:  # an open file cannot be renamed
            held.close()
        os.replace(temporary, path_text(target))  # before the lock is released: otherwise another process may remove it
    except BaseException:
        if not system.LOCKS:
            held.close()
        _unlink(temporary)
        raise
    finally:
        held.close()
    sync_folder(folder or ".")


@contextlib.contextmanager
def atomic_folder(target: str | os.PathLike[str]) -> Iterator[str]:
    """The path of an empty folder for the block to fill; one rename then makes it ``target``.

    ``target`` must not exist, or be an empty folder. Removes leftovers of killed processes beside it. Raises
    ``OSError``. If it raises, or the block raises, no folder is left.
    """
    folder, name = os.path.split(os.path.abspath(path_text(target)))
    remove_leftovers(folder)
    temporary, held = locked_folder(folder, name)
    try:
        yield temporary
        sync_files(temporary)
        system.rename_folder(temporary, path_text(target))
    except BaseException:
        _remove_tree(temporary)
        raise
    finally:
        held.close()
    sync_folder(folder)


def locked_folder(folder: str, name: str, end: str = _TEMPORARY_END) -> tuple[str, Descriptor]:
    """A new folder in ``folder``, and the descriptor that keeps it locked (see `remove_leftovers`). ``OSError``."""
    while True:
        path = os.path.join(folder, _temporary_name(name, end))
        os.mkdir(path)
        if not system.LOCKS:
            return path, Descriptor(-1)
        with contextlib.suppress(FileNotFoundError):  # removed before it was locked
            number = os.open(path, system.FOLDER | os.O_NOFOLLOW)
            if lock_new(path, number):
                return path, Descriptor(number)


def remove_leftovers(folder: str) -> None:
    """Removes the temporary files and folders in ``folder`` whose processes ended, and puts back what they moved.

    A process locks (``flock``) its temporary files and folders as long as it lives; processes in other containers see
    the lock. Leftovers of other users stay, and so do all on a file system without locks. On Windows, which has no such
    locks, folders stay, and open files cannot be removed. Raises nothing.
    """
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        names = [entry.name for entry in entries if entry.name.endswith((_TEMPORARY_END, _MOVED_END))]
        for match in filter(None, map(_TEMPORARY.fullmatch, names)):
            with contextlib.suppress(OSError):
                _remove_if_left(folder, match[0], match["needs"])


def _remove_if_left(folder: str, name: str, needs: str | None) -> None:
    """Removes a temporary file or folder unless a living process holds its lock. ``needs``: the mark in its name."""
    path = os.path.join(folder, name)
    is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
    if not system.LOCKS:
        if not is_folder:
            os.unlink(path)
            _unlink_needed(folder, name, needs)
        return
    # Over NFS only a file that is open for writing can be locked. O_NONBLOCK: a FIFO must not be waited for.
    kind = os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR | os.O_NONBLOCK
    number = os.open(path, kind | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        system.lock(number, wait=False)
        if not os.path.lexists(path):  # its process renamed it before it released the lock
            return
        if not is_folder:
            _unlink_needed(folder, name, needs)
            os.unlink(path)
            return
        if name.endswith(_MOVED_END):
            for moved in os.listdir(path):
                if not os.path.lexists(os.path.join(folder, moved)):
                    os.rename(os.path.join(path, moved), os.path.join(folder, moved))
        _remove_tree(path)
    finally:
        os.close(number)


def _unlink_needed(folder: str, name: str, needs: str | None) -> None:
    """Removes the file that only the temporary file ``name`` needs."""
    for other in os.listdir(folder or ".") if needs else ():
        if other != name and _mark(other) == needs:
            _unlink(os.path.join(folder, other))


@contextlib.contextmanager
def moved_away(path: str) -> Iterator[None]:
    """Moves ``path`` away while the block runs, and deletes it afterwards. If the block raises, ``path`` is put back;
    if the process is killed, `remove_leftovers` puts it back. Raises ``OSError``."""
    folder, name = os.path.split(os.path.abspath(path))
    remove_leftovers(folder)
    holder, held = locked_folder(folder, name, _MOVED_END)
    kept = os.path.join(holder, name)
    try:
        try:
            os.rename(path, kept)
            yield
        except BaseException:
            if os.path.lexists(kept):
                os.rename(kept, path)
            raise
        finally:
            _remove_tree(holder)
    finally:
        held.close()


def _temporary_file(folder: str, name: str, needs: str | None) -> tuple[str, int]:
    while True:
        path = os.path.join(folder, _temporary_name(name, _TEMPORARY_END, needs))
        number = os.open(path, os.O_RDWR | system.NEW, 0o666)  # less the process's umask
        if lock_new(path, number):
            return path, number


def lock_new(path: str, number: int) -> bool:
    """Locks a new file or folder. If another process removed it as a leftover first, closes it and returns False."""
    try:
        # Waits while another process checks whether it is a leftover. Stays unlocked on a file system without locks.
        with contextlib.suppress(OSError):
            system.lock(number, wait=True)
        if os.path.lexists(path):  # the name is random: a file of that name is this one
            return True
    except BaseException:
        os.close(number)
        raise
    os.close(number)
    return False


def _temporary_name(name: str, end: str, needs: str | None = None) -> str:
    short = os.fsencode(name)[:_NAME_BYTES].decode("utf-8", "ignore").replace("\n", "")
    return f".{short}.{os.urandom(8).hex()}{'' if needs is None else f'.for-{_mark(needs)}'}{end}"


def _mark(name: str) -> str:
    """How the name of a temporary file refers to the file that it ``needs``."""
    import hashlib  # late: takes 10 ms, and reading and running a model do not need it

    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):  # another process removed it first
        os.unlink(path)


def _remove_tree(path: str) -> None:
    import shutil  # late: few programs need it

    shutil.rmtree(path, ignore_errors=True)


def path_text(path: str | os.PathLike[str]) -> str:
    """A path as text. ``TypeError`` if it is not a path, ``OSError`` if no file can have that name."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise OSError(errno.EINVAL, "a path must not contain a NUL character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise OSError(errno.EINVAL, f"a path must be encodable as a file name: {error.reason}") from error
    return text


def read_file(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file. Raises as `path_text` does, and ``OSError``."""
    with open(path_text(path), "rb") as stream:
        return stream.read()


@contextlib.contextmanager
def new_file(target: str | os.PathLike[str]) -> Iterator[int]:
    """A file descriptor of a new file, in a folder that other processes do not see before `sync_files` is called.

    Raises ``OSError``; a partly written file then stays.
    """
    number = os.open(target, os.O_WRONLY | system.NEW, 0o666)
    try:
        yield number
    finally:
        os.close(number)


def sync_files(folder: str | os.PathLike[str]) -> None:
    """Sync the files of a folder and their names to disk. Raises ``OSError``.

    For many small files this takes half as long as a sync, a rename and a sync of the folder for each file."""
    for entry in os.scandir(folder):
        system.sync_file(entry.path)
    sync_folder(folder)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Sync the names in a folder to disk, if the file system supports that."""
    with contextlib.suppress(OSError):
        number = os.open(folder, system.FOLDER)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def copy_range(source: int, offset: int, size: int, target: int) -> int:
    """Copy ``size`` bytes of the open file ``source``, from ``offset`` on, to the current position of ``target``.

    If possible, the kernel copies the bytes, or shares the blocks if the file system supports that. Returns the number
    of bytes copied, which is smaller if ``source`` ends early. Raises ``OSError``.
    """
    done, copies = 0, [*system.COPIES, _read_and_write]
    while done < size and copies:
        more = 0  # some file systems return 0 if they cannot copy
        try:
            more = copies[0](source, offset + done, size - done, target)
        except OSError as error:
            if len(copies) == 1 or error.errno not in _NOT_HERE:
                raise
        if not more:
            copies.pop(0)
        done += more
    return done


def _read_and_write(source: int, offset: int, size: int, target: int) -> int:
    data = system.read_at(source, min(size, _MAX_AT_ONCE), offset)
    write_all(target, memoryview(data))
    return len(data)


def write_all(target: int, data: memoryview) -> None:
    """Write all of ``data`` to an open file."""
    done = 0
    while done < len(data):
        done += os.write(target, data[done : done + _MAX_AT_ONCE])


def map_file(path: str, expected: str, error: type[HeteroError], empty: type[HeteroError] | None = None) -> memoryview:
    """The bytes of a regular file, mapped for reading. The file must not be shortened while they are in use.

    ``expected``: the expected kind of file, for messages. Raises ``error`` if the file cannot be mapped, also as a
    `FileNotFoundError` if it does not exist, and ``empty`` (by default ``error``) if it is empty.
    """
    try:
        number = os.open(path_text(path), system.READ)
    except OSError as raised:
        raise_out_of_memory(raised)
        raise file_error(error, f"{path}: cannot be opened: {raised.strerror or raised}", raised) from raised
    try:
        status = os.fstat(number)
        if stat.S_ISDIR(status.st_mode):
            raise error(f"{path}: is {describe_folder(path, expected)}")
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path}: is not a regular file, expected {expected} (or read it yourself and pass the bytes)")
        if status.st_size == 0:
            raise (empty or error)(f"{path}: is empty")
        return memoryview(MappedFile.of(number, path))
    except OSError as raised:
        raise_out_of_memory(raised)
        raise error(f"{path}: cannot be mapped: {raised.strerror}") from raised
    finally:
        os.close(number)


class MappedFile(mmap.mmap):
    """A file, mapped for reading, that another process can map too. Create it with `of`."""

    path: str
    mtime_ns: int
    _identity: tuple[int, int]

    @classmethod
    def of(cls, number: int, path: str) -> MappedFile:
        """Map an open file whole. ``path``: where it was opened. Raises ``OSError``."""
        mapped = cls(number, 0, access=mmap.ACCESS_READ)
        status = os.fstat(number)
        mapped.path = os.path.abspath(path)
        mapped.mtime_ns = status.st_mtime_ns
        mapped._identity = (status.st_dev, status.st_ino)
        return mapped

    @property
    def is_whole(self) -> bool:
        """Whether the file is still as long as its map. Reading beyond the end of a file ends the process."""
        return self.size() >= len(self)

    def reopen(self) -> Descriptor | None:
        """The same file, opened again; None if its path now leads to another file or to none, or if it was changed.

        The map keeps the file alive, so no other file can get its inode number."""
        try:
            opened = Descriptor(os.open(self.path, system.READ))
            status = os.fstat(opened.number)
        except OSError:
            return None
        is_same = (status.st_dev, status.st_ino) == self._identity
        return opened if is_same and (status.st_size, status.st_mtime_ns) == (len(self), self.mtime_ns) else None


def mapping_of(array: Any) -> mmap.mmap | None:
    """The map that holds the elements of an array or a memoryview; None if they lie elsewhere."""
    owner = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner
