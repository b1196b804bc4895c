"""The inputs of a run on the command line: arrays from files, and random arrays of the requested shapes."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ..errors import did_you_mean
from ..model.types import Port
from .group import Failure
from .random_inputs import chosen_shape, random_array

__all__ = ["Input", "InputChoice"]

_SHAPE = re.compile(r"(?:(?P<name>.+)=)?(?P<dims>\d+(?:x\d+)*|scalar)", re.DOTALL)
_BRACKETS = re.compile(r",?\s*(?P<name>[^\[\],]*)\[(?P<dims>[\d,\s]*)\]")  # the format of benchmark_app


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """One input: its array, and its source: a path, or ``random``."""

    name: str
    array: Any
    source: str

    def as_json(self) -> dict[str, Any]:
        shape = list(self.array.shape) if isinstance(self.array, np.ndarray) else None
        dtype = str(self.array.dtype) if isinstance(self.array, np.ndarray) else None
        return {"name": self.name, "dtype": dtype, "shape": shape, "source": self.source}


@dataclasses.dataclass(frozen=True, slots=True)
class InputChoice:
    """The values of `input_options`, as text."""

    inputs: Sequence[str] = ()
    shapes: Sequence[str] = ()
    dims: Sequence[str] = ()
    ranges: Sequence[str] = ()
    seed: int = 0

    def stated_shapes(self, ports: Sequence[Port]) -> dict[str, tuple[int | str | None, ...]]:
        """Input -> shape, for each input whose shape the files, shapes or dims determine, in full or in part. Other
        dimensions stay unknown. Raises the errors of `make`."""
        _, stated, symbols = self._stated(ports)
        shapes: dict[str, tuple[int | str | None, ...]] = {**stated}
        for port in ports:
            if port.name not in shapes and any(dim in symbols for dim in port.shape or () if isinstance(dim, str)):
                shapes[port.name] = tuple(
                    symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in port.shape or ()
                )
        return shapes

    def make(self, ports: Sequence[Port]) -> list[Input]:
        """An array for each input. Raises `click.UsageError` for invalid options, and `HeteroError` for a file
        that cannot be read or an input type without random values."""
        arrays, shapes, symbols = self._stated(ports)
        limits = self._limits([port.name for port in ports])
        inputs = []
        for position, port in enumerate(ports):
            if port.name in arrays:
                inputs.append(Input(port.name, *arrays[port.name]))
                continue
            shape = shapes.get(port.name)
            if shape is None:
                shape = chosen_shape(port, symbols)
            generator = np.random.default_rng([self.seed, position])
            inputs.append(Input(port.name, random_array(generator, port, shape, limits.get(port.name)), "random"))
        return inputs

    def _stated(
        self, ports: Sequence[Port]
    ) -> tuple[dict[str, tuple[NDArray[Any], str]], dict[str, tuple[int, ...]], dict[str, int]]:
        """Parses the options: input -> array and its file, input -> shape, symbol -> size."""
        names = [port.name for port in ports]
        arrays = self._read(names)
        shapes = self._shapes(names) | {name: array.shape for name, (array, _) in arrays.items()}
        symbols = self._symbols(ports)
        for port in ports:
            for dim, size in zip(port.shape or (), shapes.get(port.name, ()), strict=False):
                if isinstance(dim, str):
                    symbols.setdefault(dim, size)
        return arrays, shapes, symbols

    def _read(self, names: Sequence[str]) -> dict[str, tuple[NDArray[Any], str]]:
        arrays: dict[str, tuple[NDArray[Any], str]] = {}
        for entry in self.inputs:
            name, path = _named(entry, names, "--input")
            loaded = _load(path)
            if isinstance(loaded, np.ndarray):
                arrays[_only(name, names, f"--input {entry}")] = (loaded, path)
            elif name is not None:
                raise click.UsageError(f"--input {entry}: {path} contains named arrays: remove {name}=")
            else:
                for key, array in loaded.items():
                    arrays[_known(key, names, f"--input {path}")] = (array, path)
        return arrays

    def _shapes(self, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for entry in (part for option in self.shapes for part in _listed(option, names)):
            match = _SHAPE.fullmatch(entry)
            if match:
                dims = () if match["dims"] == "scalar" else tuple(map(int, match["dims"].split("x")))
                shapes[_only(match["name"], names, f"--shape {entry}")] = dims
                continue
            end = 0
            for part in _BRACKETS.finditer(entry):
                if part.start() != end:
                    break
                end = part.end()
                dims = tuple(int(dim) for dim in part["dims"].split(",") if dim.strip())
                shapes[_only(part["name"].strip() or None, names, f"--shape {entry}")] = dims
            if not end or end != len(entry):
                raise click.UsageError(f"--shape {entry}: expected NAME=1x3x224x224, or NAME[1,3,224,224]")
        return shapes

    def _symbols(self, ports: Sequence[Port]) -> dict[str, int]:
        known = {dim for port in ports for dim in port.shape or () if isinstance(dim, str)}
        symbols = {}
        for entry in self.dims:
            symbol, _, size = entry.rpartition("=")
            if not symbol or not size.isdecimal():
                raise click.UsageError(f"--dim {entry}: expected SYMBOL=SIZE")
            if symbol not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise click.UsageError(
                    f"--dim {entry}: no input has a dim {symbol!r}{did_you_mean(symbol, known)}; symbols: {listed}"
                )
            symbols[symbol] = int(size)
        return symbols

    def _limits(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        limits = {}
        for entry in self.ranges:
            name, text = _named(entry, names, "--range")
            low, _, high = text.partition(":")
            try:
                bounds = float(low), float(high)
            except ValueError as error:
                raise click.UsageError(f"--range {entry}: expected LOW:HIGH") from error
            if not bounds[0] < bounds[1]:
                raise click.UsageError(f"--range {entry}: LOW must be less than HIGH")
            for chosen in names if name is None else [name]:
                limits[chosen] = bounds
        return limits


def _listed(entry: str, names: Sequence[str]) -> list[str]:
    """The entries of ``NAME=1x3,NAME=4`` if each entry names an input, otherwise the text as one entry."""
    parts = entry.split(",")
    return parts if len(parts) > 1 and all(part.rpartition("=")[0] in names for part in parts) else [entry]


def _named(entry: str, names: Sequence[str], option: str) -> tuple[str | None, str]:
    """Splits ``NAME=rest`` if NAME is an input, else returns None and the whole text."""
    for name in sorted(names, key=len, reverse=True):
        if entry.startswith(f"{name}="):
            return name, entry[len(name) + 1 :]
    name, equals, rest = entry.partition("=")
    if equals and "/" not in name and "." not in name:
        return _known(name, names, f"{option} {entry}"), rest
    return None, entry


def _only(name: str | None, names: Sequence[str], where: str) -> str:
    """``name``, or if it is None, the model's only input."""
    if name is not None:
        return _known(name, names, where)
    if len(names) != 1:
        raise click.UsageError(f"{where}: the model has {len(names)} inputs ({', '.join(names)}): write NAME=…")
    return names[0]


def _known(name: str, names: Sequence[str], where: str) -> str:
    if name not in names:
        raise click.UsageError(
            f"{where}: the model has no input {name!r}{did_you_mean(name, names)}; its inputs: {', '.join(names)}"
        )
    return name


def _load(path: str) -> NDArray[Any] | Mapping[str, NDArray[Any]]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise Failure(f"cannot read {path} as a .npy or .npz file: {error}") from error
