"""The inputs of a run on the command line: values that are given, and random arrays of the requested shapes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ..errors import did_you_mean
from ..model.types import Port
from .given import Target, expected_sizes, load_arrays, value_of
from .images import ImageOptions
from .random_inputs import chosen_shape, random_array

__all__ = ["Input", "InputChoice"]

_SHAPE = re.compile(r"(?:(?P<name>.+)=)?(?P<dims>\d+(?:[x,]\d+)*|scalar)", re.DOTALL)
_BRACKETS = re.compile(r",?\s*(?P<name>[^\[\],]*)\[(?P<dims>[\d,\s]*)\]")  # the format of benchmark_app


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """One input: its array, and its source: a path, ``given`` or ``random``."""

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
    image_size: str | None = None
    image_layout: str | None = None
    image_mean: str | None = None
    image_scale: str | None = None
    image_order: str = "RGB"

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
        open_sizes: dict[str, None] = {}
        for position, port in enumerate(ports):
            if port.name in arrays:
                inputs.append(Input(port.name, *arrays[port.name]))
                continue
            shape = shapes.get(port.name)
            if shape is None:
                shape = chosen_shape(port, symbols)
                open_sizes.update(dict.fromkeys(_open_sizes(port, symbols)))
            generator = np.random.default_rng([self.seed, position])
            inputs.append(Input(port.name, random_array(generator, port, shape, limits.get(port.name)), "random"))
        if open_sizes:
            click.echo(
                f"Note: the model does not fix these sizes, so they default to 1: {', '.join(open_sizes)}; "
                "set them with --shape or --dim, or pass the input with -i",
                err=True,
            )
        return inputs

    def _stated(
        self, ports: Sequence[Port]
    ) -> tuple[dict[str, tuple[NDArray[Any], str]], dict[str, tuple[int, ...]], dict[str, int]]:
        """Parses the options: input -> array and its file, input -> shape, symbol -> size."""
        stated = self._shapes([port.name for port in ports])
        symbols = self._symbols(ports)
        for port in ports:
            for dim, size in zip(port.shape or (), stated.get(port.name, ()), strict=False):
                if isinstance(dim, str):
                    symbols.setdefault(dim, size)
        arrays = self._read(ports, stated, symbols)
        shapes = stated | {name: array.shape for name, (array, _) in arrays.items()}
        for port in ports:
            for dim, size in zip(port.shape or (), shapes.get(port.name, ()), strict=False):
                if isinstance(dim, str):
                    symbols.setdefault(dim, size)
        return arrays, shapes, symbols

    def _read(
        self, ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]], symbols: Mapping[str, int]
    ) -> dict[str, tuple[NDArray[Any], str]]:
        """The inputs that are given: input -> array and its source."""
        by_name = {port.name: port for port in ports}
        names = list(by_name)
        images = ImageOptions(self.image_size, self.image_layout, self.image_mean, self.image_scale, self.image_order)
        arrays: dict[str, tuple[NDArray[Any], str]] = {}
        given_by: dict[str, str] = {}

        def put(name: str, array: NDArray[Any], source: str) -> None:
            if name in arrays:
                raise click.UsageError(f"--input: {name!r} is given twice, by {given_by[name]} and {entry}")
            given_by[name] = entry
            arrays[name] = array, source

        for entry in self.inputs:
            name, value = _named(entry, names, "--input")
            if name is None and value.lower().endswith(".npz"):
                loaded = load_arrays(value)
                if not isinstance(loaded, Mapping) or not loaded:
                    found = "no arrays" if isinstance(loaded, Mapping) else "one array without a name"
                    raise click.UsageError(f"--input {value}: expected arrays by name, found {found}")
                for key, array in loaded.items():
                    put(_known(key, names, f"--input {value}"), array, value)
                continue
            port = by_name[_only(name, names, f"--input {entry}")]
            target = Target(port, expected_sizes(port, shapes.get(port.name), symbols))
            put(port.name, *value_of(value, target, images, f"--input {entry}"))
        return arrays

    def _shapes(self, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for entry in (part for option in self.shapes for part in _listed(option, names)):
            match = _SHAPE.fullmatch(entry)
            if match:
                dims = () if match["dims"] == "scalar" else tuple(map(int, re.split("[x,]", match["dims"])))
                shapes[_only(match["name"], names, f"--shape {entry}")] = dims
                continue
            end = 0
            for part in _BRACKETS.finditer(entry):
                if part.start() != end:
                    break
                end = part.end()
                dims = tuple(int(dim) for dim in part["dims"].split(",") if dim.strip())
                name = part["name"].strip()
                if name not in names:
                    name = name.removesuffix("=")  # NAME=[1,3]
                shapes[_only(name or None, names, f"--shape {entry}")] = dims
            if not end or end != len(entry):
                raise click.UsageError(
                    f"--shape {entry}: expected NAME=1x3x224x224, or NAME[1,3,224,224]; --dim sets single sizes"
                )
        return shapes

    def _symbols(self, ports: Sequence[Port]) -> dict[str, int]:
        known = {dim for port in ports for dim in port.shape or () if isinstance(dim, str)}
        symbols = {}
        for entry in self.dims:
            symbol, _, size = entry.rpartition("=")
            if not symbol or not size.isdecimal():
                raise click.UsageError(f"--dim {entry}: expected SYMBOL=SIZE, with a whole number of 0 or more")
            if symbol not in known:
                sizes = "the inputs have no symbols; set sizes with --shape NAME=1x3x224x224"
                listed = f"symbols: {', '.join(sorted(known))}" if known else sizes
                raise click.UsageError(
                    f"--dim {entry}: no input has a dim {symbol!r}{did_you_mean(symbol, known)}; {listed}"
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


def _open_sizes(port: Port, symbols: Mapping[str, int]) -> list[str]:
    """The sizes that neither the model nor the user states, except those of the first axis, which is mostly a batch."""
    named = [
        (axis, dim if isinstance(dim, str) else f"axis {axis} of {port.name}")
        for axis, dim in enumerate(port.shape or ())
        if not isinstance(dim, int)
    ]
    first = {name for axis, name in named if axis == 0}
    return [name for axis, name in named if axis and name not in symbols and name not in first]


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
