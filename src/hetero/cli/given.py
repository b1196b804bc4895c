"""Values of inputs from the command line: numbers and lists, text files of numbers, NumPy files and images."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ..base.formatting import shape_text
from ..errors import did_you_mean
from ..model.types import Port
from .group import Failure
from .images import ImageOptions, is_image, load_image

__all__ = ["Loaded", "Target", "expected_sizes", "load_arrays", "value_of"]

Loaded = NDArray[Any] | Mapping[str, NDArray[Any]]
"""The array of a .npy file, or the arrays of a .npz file by name."""

_NUMPY = (".npy", ".npz")
_TEXT = (".txt", ".csv", ".tsv")
_WITH_KEY = re.compile(r"(.*?\.npz):(.*)", re.DOTALL | re.IGNORECASE)
_EXACT = 2**53  # up to which every integer is a float64


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The input that a value is for. ``shape``: its sizes as far as they are known, with the options --shape and --dim;
    None if its rank is unknown."""

    port: Port
    shape: tuple[int | None, ...] | None

    def fitted(self, array: NDArray[Any], where: str, *, fill: bool = False, note: str = "") -> NDArray[Any]:
        """``array`` with the element type of the input, and with the input's rank: axes of size 1 are added in front.
        As many numbers as the input has elements, in a row or in rows as long as its last axis, are reshaped; a row of
        numbers also if only one size is unknown, and the others divide their number. With ``fill``, a single number
        fills the shape. Raises `click.UsageError` if a number does not fit into the element type, or the array into the
        shape, with ``note`` at the end."""
        array = _converted(array, self.port, where)
        shape = self.shape
        if shape is None:
            return array
        if fill and array.ndim == 0:
            return np.full([1 if size is None else size for size in shape], array)
        known_sizes = [size for size in shape if size is not None]
        is_whole = len(known_sizes) == len(shape) and array.size == int(np.prod(known_sizes, dtype=object))
        if is_whole and (array.ndim == 1 or (array.ndim == 2 and shape and array.shape[1] == shape[-1])):
            return array.reshape(known_sizes)
        fitted = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        sizes = zip(fitted.shape, shape, strict=False)
        if fitted.ndim != len(shape) or any(known is not None and size != known for size, known in sizes):
            step = int(np.prod(known_sizes, dtype=object))
            if array.ndim == 1 and len(known_sizes) == len(shape) - 1 and step and array.size % step == 0:
                return array.reshape([-1 if size is None else size for size in shape])
            expected = shape_text([self._dim(axis) for axis in range(len(shape))])
            raise click.UsageError(
                f"{where}: input {self.port.name!r} has the shape {expected}, found {shape_text(array.shape)}{note}"
            )
        return fitted

    def _dim(self, axis: int) -> Any:
        known = None if self.shape is None else self.shape[axis]
        return known if known is not None or self.port.shape is None else self.port.shape[axis]


def load_arrays(path: str) -> Loaded:
    """A .npy file, or the arrays of a .npz file by name. Raises `Failure`."""
    try:
        if os.path.isfile(path) and not os.path.getsize(path):
            raise Failure(f"cannot read {path}: it is empty")
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        trouble = str(error)
        if "allow_pickle" in trouble:  # NumPy advises to load the file with pickle, which may run code
            holds_objects = trouble.startswith("Object arrays")
            trouble = "it holds Python objects, expected numbers" if holds_objects else "it is neither"
        raise Failure(f"cannot read {path} as a .npy or .npz file: {trouble}") from error


def value_of(
    text: str, target: Target, images: ImageOptions, where: str, load: Callable[[str], Loaded] = load_arrays
) -> tuple[NDArray[Any], str]:
    """The array that ``NAME=text`` gives to an input, and its source: a path, or ``given``.

    ``text``: the path of a NumPy file, ``FILE.npz:KEY``, a text file of numbers, an image, or a number, a list of
    numbers, or text for an input of strings. An existing file is never taken for a value. ``load``: `load_arrays`, or a
    function that keeps its results. Raises `click.UsageError` for
    a value that does not fit, and `Failure` for a file that cannot be read.
    """
    path, key = _split_key(text)
    if path.lower().endswith(_NUMPY):
        return _from_numpy(load(path), path, key, target.port.name, where), text
    if is_image(text):
        return load_image(text, target.port, target.shape, images, where), text
    if text.lower().endswith(_TEXT):
        array, note = _from_text(text)
        return target.fitted(array, where, note=note), text
    if os.path.exists(text):
        known = ", ".join((*_NUMPY, *_TEXT))
        raise click.UsageError(f"{where}: expected an image, or a file whose name ends in {known}")
    dtype = target.port.dtype
    if dtype is not None and dtype.hasobject:
        return target.fitted(np.array(_strings(text), object), where, fill=True), "given"
    return target.fitted(_from_literal(text, where), where, fill=True), "given"


def _split_key(text: str) -> tuple[str, str | None]:
    """``FILE.npz:KEY`` as two parts. The key may hold colons. A file of that whole name takes precedence."""
    parts = _WITH_KEY.fullmatch(text)
    return (text, None) if parts is None or os.path.exists(text) else (parts[1], parts[2])


def _from_numpy(loaded: Loaded, path: str, key: str | None, name: str, where: str) -> NDArray[Any]:
    """The array for the input ``name``. ``loaded``: what `load_arrays` returned for ``path``."""
    if isinstance(loaded, np.ndarray):
        return loaded
    if key is None:
        key = name if name in loaded or len(loaded) != 1 else next(iter(loaded))
    if key not in loaded:
        raise click.UsageError(
            f"{where}: {path} has no array {key!r}{did_you_mean(key, loaded)}; its arrays: "
            f"{', '.join(loaded) or 'none'}; select one with {path}:NAME"
        )
    return loaded[key]


def _from_text(path: str) -> tuple[NDArray[Any], str]:
    """Numbers between blanks, commas, semicolons or tabs; several lines of equal length are rows. ``#`` starts a
    comment. Also a note, empty or for errors, if lines of unequal length form one row."""
    try:
        with open(path, encoding="utf-8") as stream:
            lines = [line.partition("#")[0] for line in stream]
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    rows: list[list[int | float]] = []
    note = ""
    for number, line in enumerate(lines, start=1):
        words = line.replace(",", " ").replace(";", " ").split()
        try:
            row = [_number(word) for word in words]
        except ValueError as error:
            raise Failure(f"cannot read {path}: line {number}: expected numbers, found {error}") from error
        if row and rows and len(row) != len(rows[0]) and not note:
            note = f"; line {number} is not as long as those before it, so all numbers are one row"
        if row:
            rows.append(row)
    if not rows:
        raise Failure(f"cannot read {path}: it contains no numbers")
    is_table = not note and len(rows) > 1 and len(rows[0]) > 1
    return _numbers(rows if is_table else [value for row in rows for value in row], path), note


def _number(word: str) -> int | float:
    """An integer if the word is one. Raises ValueError with the word."""
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        raise ValueError(repr(word)) from None
    if math.isinf(number) and "inf" not in word.lower():
        raise ValueError(f"{word}, which is beyond the largest float64")
    return number


def _from_literal(text: str, where: str) -> NDArray[Any]:
    """A number, ``true``, ``1,2,3`` or nested lists in brackets."""
    try:
        if text.lstrip().startswith("["):
            return _numbers(json.loads(text, parse_constant=float, parse_float=_number), where)
        words = [word.strip() for word in text.split(",")]
        values = [{"true": True, "false": False}.get(word.lower(), word) for word in words]
        parsed = [_number(value) if isinstance(value, str) else value for value in values]
    except (ValueError, RecursionError) as error:
        if "beyond" in str(error):
            raise click.UsageError(f"{where}: expected numbers, found {error}") from error
        raise click.UsageError(
            f"{where}: {text!r} is neither a file nor a number or a list such as 1,2,3 or [[1,2],[3,4]]"
        ) from error
    return _numbers(parsed if len(parsed) > 1 else parsed[0], where)


def _numbers(value: Any, where: str) -> NDArray[Any]:
    """An array of integers, or of floats if one of the numbers is a float. Raises `click.UsageError`."""
    try:
        array = np.array(value)
    except ValueError as error:  # lists of unequal length
        raise click.UsageError(f"{where}: the inner lists have unequal lengths") from error
    is_lossy = array.dtype.kind == "f" and any(
        type(number) is int and abs(number) > _EXACT for number in np.array(value, object).flat
    )
    if array.dtype.kind not in "biuf" or is_lossy:
        raise click.UsageError(f"{where}: expected numbers of at most 64 bits")
    return array


def _strings(text: str) -> Any:
    """A JSON list of strings, or the text itself."""
    if text.startswith("["):
        try:
            listed = json.loads(text)
            if all(isinstance(entry, str) for entry in np.array(listed, object).flat):
                return listed
        except (ValueError, RecursionError):
            pass
    return text


def _converted(array: NDArray[Any], port: Port, where: str) -> NDArray[Any]:
    """The array with the port's element type. Raises `click.UsageError` if a number does not fit into the type. Floats
    are rounded to the type's precision."""
    dtype = port.dtype
    if dtype is None or dtype.hasobject or array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        converted: NDArray[Any] = array.astype(dtype)
        if dtype == np.bool_:
            fits = (array == 0) | (array == 1)
        elif dtype.kind in "iu":
            info = np.iinfo(dtype)
            if array.dtype.kind == "f":  # both bounds are exact as floats
                fits = (
                    (array == np.rint(array))
                    & (array >= float(info.min))
                    & (array < 2.0 ** (info.bits - (info.min < 0)))
                )
            else:
                fits = np.vectorize(lambda number: info.min <= int(number) <= info.max, otypes=[bool])(array)
        else:
            fits = np.isfinite(converted.astype(np.complex128)) | ~np.isfinite(array)
    if not fits.all():
        number = array[~fits].flat[0].item()
        raise click.UsageError(f"{where}: input {port.name!r} takes {dtype}, which cannot hold {number}")
    return converted


def expected_sizes(port: Port, symbols: Mapping[str, int]) -> tuple[int | None, ...] | None:
    """The shape of an input as far as it is known, with the sizes of its symbols."""
    if port.shape is None:
        return None
    return tuple(symbols.get(dim) if isinstance(dim, str) else dim for dim in port.shape)
