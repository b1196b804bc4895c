"""Files that commands write: an existing one is not lost by mistake, and what cannot be written is said early."""

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

__all__ = ["check_folder", "check_output", "replacing_folder", "writing"]


def check_output(path: str, force: bool) -> None:
    """Before any long work: raises `Failure` unless a file can be made there. One that is there already is replaced
    only with ``force``, or if the user, asked on a terminal, says so."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        check_folder(os.path.dirname(path) or ".", path)
        return
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error
    if stat.S_ISDIR(found.st_mode):
        raise Failure(f"cannot write {path}: it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise Failure(f"cannot write {path}: it is not a regular file")
    check_folder(os.path.dirname(path) or ".", path)
    _ask(path, force)


def _ask(path: str, force: bool) -> None:
    """Raises `Failure` unless what is there may be replaced."""
    if force:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failure(f"{path} exists already: --force replaces it")
    if not click.confirm(f"{clean(path)} exists already. Replace it?", err=True):
        raise Failure(f"{path} was left as it is")


def check_folder(folder: str, path: str) -> None:
    """`Failure` unless files can be made in ``folder``."""
    if not os.path.isdir(folder):
        code = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
        raise Failure(f"cannot write {path}: {folder}: {os.strerror(code)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Failure(f"cannot write {path}: {folder}: {os.strerror(errno.EACCES)}")


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """OSError while writing ``path`` as `Failure`."""
    try:
        yield
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def replacing_folder(folder: str, force: bool, is_ours: Callable[[str], bool]) -> Iterator[str]:
    """Gives the path that a folder is to be written to, which is not there or empty; afterwards it is ``folder``.

    One that is there and not empty is replaced only if ``is_ours`` says that it may be, and with ``force`` or if the
    user, asked on a terminal, says so. It is put back if the block raises.
    """
    if not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder)):
        yield folder
        return
    if not os.path.isdir(folder):
        raise Failure(f"cannot write {folder}: it is not a folder")
    if not is_ours(folder):
        raise Failure(f"cannot write {folder}: it is not empty, and holds other things than an earlier split")
    _ask(folder, force)
    with writing(folder), moved_away(folder):
        yield folder
