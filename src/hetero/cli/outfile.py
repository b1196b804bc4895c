"""Checks the files that commands write: protects existing files, and reports errors before long work."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator

import click

from ..base.files import moved_away
from .group import Failure
from .text import clean

__all__ = ["check_folder", "check_output", "make_folder", "replacing_folder", "writing"]


def check_output(path: str, force: bool, endings: tuple[str, ...] = (), reason: str = "", option: str = "-o") -> None:
    """Raises `Failure` if the file cannot be created. Call it before long work. An existing file is replaced only with
    ``force``, or if the user confirms it on a terminal. ``endings``, ``reason``: a name with another ending is an error
    for this reason. ``option``: that gives the path."""
    ending = os.path.splitext(path)[1]
    if endings and ending and ending.lower() not in endings:
        raise click.UsageError(f"{option} {path}: {reason}, so its name must end in {' or '.join(endings)}")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        check_folder(os.path.dirname(path) or ".", path)
        return
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        raise Failure(f"cannot write {path}: it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise Failure(f"cannot write {path}: it is not a regular file")
    check_folder(os.path.dirname(path) or ".", path)
    _ask(path, force)


def _ask(path: str, force: bool) -> None:
    """Raises `Failure` if the existing file must not be replaced."""
    if force:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failure(f"{path} already exists: use --force to replace it")
    if not click.confirm(f"{clean(path)} already exists. Replace it?", err=True):
        raise Failure(f"{path} was not replaced")


def check_folder(folder: str, path: str) -> None:
    """Raises `Failure` if files cannot be created in ``folder``."""
    if not os.path.isdir(folder):
        code = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
        raise Failure(f"cannot write {path}: {folder}: {os.strerror(code)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Failure(f"cannot write {path}: {os.path.abspath(folder)}: {os.strerror(errno.EACCES)}")


def make_folder(folder: str) -> None:
    """Makes a folder and its parents if it does not exist. Raises `Failure` if files cannot be created in it."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make the folder {folder}: {error.strerror or error}") from error
    check_folder(folder, folder)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns an OSError while writing ``path`` into `Failure`."""
    try:
        yield
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def replacing_folder(folder: str, force: bool, is_ours: Callable[[str], bool]) -> Iterator[str]:
    """Yields the path to write to, ``folder``, which is then empty or missing.

    An existing folder that is not empty is replaced only if ``is_ours`` accepts it, and with ``force`` or the user's
    confirmation on a terminal. It is restored if the block raises.
    """
    if not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder)):
        yield folder
        return
    if not os.path.isdir(folder):
        raise Failure(f"cannot write {folder}: it is not a folder")
    if not is_ours(folder):
        raise Failure(
            f"cannot write {folder}: it is not empty, and contains files that are not part of an earlier split"
        )
    _ask(folder, force)
    with writing(folder), moved_away(folder):
        yield folder
