"""Custom operators that the user names on the command line, as a Python file or module, and an object in it.

Naming one runs its code, with all that the user may do. So only what is named is run: nothing is looked for beside a
model or in the folder that a command is run in, and no model can name any.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

import click

from ..errors import did_you_mean
from .group import Failure

if TYPE_CHECKING:
    from ..extension.custom_op import CustomOp

__all__ = ["load_extension"]


def load_extension(given: str) -> list[CustomOp]:
    """The operators of ``FILE.py:NAME`` or ``package.module:NAME``; NAME is a `CustomOp`, or a list or tuple of them.

    Raises `click.UsageError` for text of another form, `Failure` where the code cannot be run or has no such object.
    """
    from ..extension.custom_op import CustomOp

    place, colon, name = given.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise click.UsageError(f"--extension {given}: expected FILE.py:NAME or package.module:NAME")
    try:
        module = _of_file(place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:  # the user's code may raise anything
        raise Failure(f"--extension {given}: cannot be loaded: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if isinstance(value, CustomOp)]
        listed = ", ".join(known) or "none"
        raise Failure(f"--extension {given}: has no {name!r}{did_you_mean(name, known)}; its operators: {listed}")
    found = getattr(module, name)
    ops = list(found) if isinstance(found, Iterable) and not isinstance(found, (str, bytes)) else [found]
    for op in ops:
        if not isinstance(op, CustomOp):
            raise Failure(
                f"--extension {given}: expected a hetero.CustomOp or a list of them, found {type(op).__name__}"
            )
    return ops


def _of_file(path: str) -> ModuleType:
    """A module of its own, which other modules do not find by its name."""
    stem = os.path.basename(path).removesuffix(".py")
    name = f"_hetero_extension_{stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses and pickle want it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
