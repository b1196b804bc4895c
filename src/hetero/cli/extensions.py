"""Loads custom operators for the command line: a Python file or module, and the name of an object in it.

The code runs with the user's permissions. Only files and modules named on the command line are executed: hetero does
not search the folder of the model or the current folder, and a model cannot name any.
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


def load_extension(option: str) -> list[CustomOp]:
    """The operators of ``FILE.py:NAME`` or ``package.module:NAME``; NAME is a `CustomOp`, or a list or tuple of them.

    Raises `click.UsageError` for text of another form, `Failure` if the code fails or has no such object.
    """
    from ..extension.custom_op import CustomOp

    place, colon, name = option.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise click.UsageError(f"--extension {option}: expected FILE.py:NAME or package.module:NAME")
    try:
        module = _of_file(place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:  # the user's code may raise anything
        raise Failure(f"--extension {option}: cannot be loaded: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if isinstance(value, CustomOp)]
        listed = ", ".join(known) or "none"
        raise Failure(f"--extension {option}: has no {name!r}{did_you_mean(name, known)}; its operators: {listed}")
    exported = getattr(module, name)
    ops = list(exported) if isinstance(exported, Iterable) and not isinstance(exported, (str, bytes)) else [exported]
    for op in ops:
        if not isinstance(op, CustomOp):
            raise Failure(
                f"--extension {option}: expected a hetero.CustomOp or a list of them, found {type(op).__name__}"
            )
    return ops


def _of_file(path: str) -> ModuleType:
    """Loads the file as a module under a private name, so that other modules cannot import it by mistake."""
    stem = os.path.basename(path).removesuffix(".py")
    name = f"_hetero_extension_{stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # required by dataclasses and pickle
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
