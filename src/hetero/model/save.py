"""Saves a model atomically, as one ONNX file or as an ONNX file and a data file with its weights.

A reader opens the ``.onnx`` file and the data file that it names. `save_model` therefore first writes and syncs the
data file, under a new name, and then renames the ``.onnx`` file into place, which replaces the old model. Last, it
removes the old data file if `save_model` created it (``m.onnx.1.data``) and the old model refers to it. Until the
rename, the old files do not change. The name of the temporary ``.onnx`` file has a mark of the data file: if the
process is killed before the rename, the next write into the folder removes both. Before there is a temporary file, an
empty file reserves the name of the data file, locked by the process that made it: if that is killed, the next save to
the same path removes the file. If the process is killed after the rename, the old data file may stay.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re

from ..base import system
from ..base.files import atomic_file, lock_new, new_file, path_text, remove_leftovers
from ..errors import PropertyError
from .data_file import DataFile
from .inference import ValueTypes
from .rows import Rows
from .write import model_parts

__all__ = ["data_threshold", "save_model", "write_model"]

# Defaults, in B: weights of up to this size in total are stored in the model file. If they are larger, tensors of at
# least the second size are stored in a data file.
_INSIDE_BYTES = 128 << 20
_AT_LEAST = 1024

_EXTERNAL = 3  # constant_kind of the index


def save_model(model: Rows, types: ValueTypes, path: str | os.PathLike[str], external_above: int | None = None) -> None:
    """See `Model.save`."""
    external_above = data_threshold(model, external_above)
    path = path_text(path)
    folder, name = os.path.split(path)
    remove_leftovers(folder)  # first, because it could remove a reserved data file
    replaced = _replaced_data_files(folder, name)
    _remove_reserved(folder, name, replaced)
    if model.file.folder is not None and _is_same_folder(folder, model.file.folder):
        for old in (name, *replaced):
            model.constants.external.hold(old)  # the model may still read the old files
    data_file, lock = (None, -1) if external_above is None else _reserve(folder, name, external_above)
    try:
        write_model(model, types, path, data_file)
    except BaseException:
        if data_file is not None:
            _remove(folder, [data_file.name])
        raise
    finally:
        if lock >= 0:
            os.close(lock)
    if data_file is not None and not data_file.size:
        replaced.append(data_file.name)
    _remove(folder, replaced)


def data_threshold(model: Rows, external_above: int | None) -> int | None:
    """The minimum size in B of tensors in the data file; None for no data file."""
    if external_above is None:
        return _AT_LEAST if _weight_bytes(model) > _INSIDE_BYTES else None
    if external_above < 0:
        raise PropertyError(f"external_above: expected a size in bytes, 0 or more, found {external_above}")
    return external_above


def write_model(
    model: Rows, types: ValueTypes, path: str | os.PathLike[str], data_file: DataFile | None, is_new: bool = False
) -> None:
    """Write the data file, if it has any data, and then the model file. Replaces existing files.

    ``is_new``: the files do not exist, and the caller syncs them (`sync_files`)."""
    parts = model_parts(model, types, data_file=data_file)
    data_name = None if data_file is None else data_file.name
    target = new_file(path) if is_new else atomic_file(path, data_name)
    with target as number, os.fdopen(number, "wb", closefd=False) as stream:
        if data_file is not None and data_file.size:
            data_path = os.path.join(os.path.dirname(os.fspath(path)), data_file.name)
            with new_file(data_path) if is_new else atomic_file(data_path) as data:
                try:
                    data_file.write(data, model.constants.external)
                except ValueError as error:
                    raise model.file.error(str(error)) from error
        for part in parts:
            stream.write(part)


def _weight_bytes(model: Rows) -> int:
    """The size of all constants in a model file without external data, in B."""
    file, used = model.file, model.file_constants
    external = file.constant_kind[used] == _EXTERNAL
    inside = used[~external]
    total = int((file.constant_end[inside] - file.constant_start[inside]).sum())
    return total + sum(model.constants.nbytes(number) for number in used[external].tolist())


def _replaced_data_files(folder: str, name: str) -> list[str]:
    """The data files of the existing model file that `save_model` created."""
    try:
        candidates = _data_files(folder, name)
        if not candidates:
            return []
        with open(os.path.join(folder, name), "rb") as old, mmap.mmap(old.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return [entry for entry in candidates if data.find(os.fsencode(entry)) >= 0]
    except (OSError, ValueError):  # the file is missing or empty
        return []


def _data_files(folder: str, name: str) -> list[str]:
    pattern = re.compile(re.escape(name) + r"\.\d+\.data")
    return sorted(entry for entry in os.listdir(folder or ".") if pattern.fullmatch(entry))


def _remove_reserved(folder: str, name: str, used: list[str]) -> None:
    """Remove the files by which killed processes reserved names (`_reserve`): empty, unlocked, and not ``used``."""
    with contextlib.suppress(OSError):
        for entry in _data_files(folder, name):
            path = os.path.join(folder, entry)
            if entry not in used and os.lstat(path).st_size == 0:
                _remove_unlocked(path)


def _remove_unlocked(path: str) -> None:
    if not system.LOCKS:  # the process that reserved the name may live
        return
    with contextlib.suppress(OSError):  # its process lives, or another process removed it first
        number = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            system.lock(number, wait=False)
            if os.path.samestat(os.fstat(number), os.lstat(path)):  # not replaced by the data
                os.unlink(path)
        finally:
            os.close(number)


def _is_same_folder(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one or ".", other)
    except OSError:
        return False


def _reserve(folder: str, name: str, at_least: int) -> tuple[DataFile, int]:
    """A data file with a new name, and the descriptor of the empty, locked file that reserves the name."""
    for number in itertools.count(1):
        candidate = f"{name}.{number}.data"
        path = os.path.join(folder, candidate)
        try:
            lock = os.open(path, os.O_WRONLY | system.NEW, 0o666)
        except FileExistsError:
            continue
        if not system.LOCKS:  # an open file cannot be replaced by the data
            os.close(lock)
            return DataFile(candidate, at_least), -1
        if lock_new(path, lock):
            return DataFile(candidate, at_least), lock
    raise AssertionError


def _remove(folder: str, names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):  # the model is saved, so an unused file may stay
            os.unlink(os.path.join(folder, name))
