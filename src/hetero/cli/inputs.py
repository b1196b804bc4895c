"""The inputs of a run on the command line: values that are given, and random arrays of the requested shapes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ..base.formatting import shape_text
from ..model.types import Port
from .arrays import dtype_name
from .given import Loaded, Target, expected_sizes, load_arrays, value_of
from .images import ImageOptions, is_image
from .random_inputs import chosen_shape, random_array
from .shapes import Dims, known_name, only_name, parse_dims, parse_shapes, sizes_of_symbols, with_dims

__all__ = ["Input", "InputChoice"]


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """One input: its array, and its source: a path, ``given`` or ``random``."""

    name: str
    array: Any
    source: str

    def as_json(self) -> dict[str, Any]:
        shape = list(self.array.shape) if isinstance(self.array, np.ndarray) else None
        dtype = dtype_name(self.array) if isinstance(self.array, np.ndarray) else None
        return {"name": self.name, "dtype": dtype, "shape": shape, "source": self.source}


@dataclasses.dataclass(frozen=True, slots=True)
class _Stated:
    """What the options state. ``ports``: the inputs, with the dimensions of --shape. ``shaped``: the inputs that
    --shape names. ``fixed``: sizes of symbols, by --shape and --dim. ``sizes``: these, and those of given arrays.
    ``arrays``: input -> array and its source."""

    ports: Sequence[Port]
    shaped: Container[str]
    fixed: Mapping[str, int]
    sizes: Mapping[str, int]
    arrays: Mapping[str, tuple[NDArray[Any], str]]


@dataclasses.dataclass(frozen=True, slots=True)
class InputChoice:
    """The values of `input_options`, as text. Reads each file once, even if several methods need it."""

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
    _read_before: dict[Hashable, Any] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def stated_shapes(self, ports: Sequence[Port]) -> dict[str, Dims]:
        """Input -> shape, for each input whose shape the files, shapes or dims determine, in full or in part. Other
        dimensions stay unknown, and so do those that --shape leaves open, even if an array has a size there. Raises the
        errors of `make`."""
        stated = self._stated(ports)
        in_shapes = (port.shape or () for port in stated.ports if port.name in stated.shaped)
        opened = {dim for dims in in_shapes for dim in dims if isinstance(dim, str)}
        sizes = {**{symbol: size for symbol, size in stated.sizes.items() if symbol not in opened}, **stated.fixed}
        shapes: dict[str, Dims] = {}
        for port in stated.ports:
            dims = _with_sizes(port.shape, sizes)
            if port.name in stated.arrays and port.name not in stated.shaped:
                found: Dims = stated.arrays[port.name][0].shape
                if dims is not None and len(dims) == len(found):
                    found = tuple(dim if dim in opened else size for dim, size in zip(dims, found, strict=True))
                shapes[port.name] = found
            elif dims is not None and (port.name in stated.shaped or dims != port.shape):
                shapes[port.name] = dims
        return shapes

    def make(self, ports: Sequence[Port]) -> list[Input]:
        """An array for each input. Raises `click.UsageError` for invalid options, and `HeteroError` for a file
        that cannot be read or an input type without random values."""
        stated = self._stated(ports)
        limits = self._limits([port.name for port in ports], stated.arrays)
        inputs = []
        open_sizes: dict[str, None] = {}
        for position, port in enumerate(stated.ports):
            if port.name in stated.arrays:
                inputs.append(Input(port.name, *stated.arrays[port.name]))
                continue
            shape = chosen_shape(port, stated.sizes)
            open_sizes.update(dict.fromkeys(_open_sizes(port, stated.sizes)))
            generator = np.random.default_rng([self.seed, position])
            inputs.append(Input(port.name, random_array(generator, port, shape, limits.get(port.name)), "random"))
        if open_sizes:
            click.echo(
                f"Note: the model does not fix these sizes, so they default to 1: {', '.join(open_sizes)}; "
                "set them with --shape or --dim, or pass the input with -i",
                err=True,
            )
        return inputs

    def named_inputs(self, names: Sequence[str]) -> set[str]:
        """Those of ``names`` that -i gives a value, also by a .npz file. Raises the errors of `make`."""
        found: set[str] = set()
        for entry in self.inputs:
            name, value = _named(entry, names, "--input")
            if name is not None:
                found.add(name)
            elif value.lower().endswith(".npz"):
                found.update(known_name(key, names, f"--input {value}") for key in self._arrays_of(value))
        return found

    def _once(self, read: Callable[..., Any], *arguments: Any, key: Hashable = None) -> Any:
        """``read(*arguments)``, or its result of an earlier call. ``key``: identifies it instead of the arguments."""
        key = arguments if key is None else key
        if key not in self._read_before:
            self._read_before[key] = read(*arguments)
        return self._read_before[key]

    def _load_arrays(self, path: str) -> Loaded:
        """`load_arrays`, which reads a file once even if several inputs are in it."""
        loaded: Loaded = self._once(load_arrays, path)
        return loaded

    def _arrays_of(self, path: str) -> Mapping[str, NDArray[Any]]:
        """The arrays of a .npz file by name. Raises `click.UsageError` if it has none."""
        loaded = self._load_arrays(path)
        if not isinstance(loaded, Mapping) or not loaded:
            found = "no arrays" if isinstance(loaded, Mapping) else "one array without a name"
            raise click.UsageError(f"--input {path}: expected arrays by name, found {found}")
        return loaded

    def _stated(self, ports: Sequence[Port]) -> _Stated:
        """Parses the options."""
        shapes = parse_shapes(self.shapes, ports)
        fixed = sizes_of_symbols(ports, shapes, parse_dims(self.dims, ports))
        named = [with_dims(port, shapes[port.name][0]) if port.name in shapes else port for port in ports]
        arrays = self._read(named, fixed)
        sizes = dict(fixed)
        for port in named:
            if port.name not in arrays or port.shape is None:
                continue
            array, source = arrays[port.name]
            if port.name in shapes or not fixed.keys().isdisjoint(port.shape):
                _check_shape(port, array.shape, source, fixed)
            for dim, size in zip(port.shape, array.shape, strict=False):
                if isinstance(dim, str):
                    sizes.setdefault(dim, size)
        return _Stated(named, shapes.keys(), fixed, sizes, arrays)

    def _read(self, ports: Sequence[Port], symbols: Mapping[str, int]) -> dict[str, tuple[NDArray[Any], str]]:
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
                for key, array in self._arrays_of(value).items():
                    put(known_name(key, names, f"--input {value}"), array, value)
                continue
            port = by_name[only_name(name, names, f"--input {entry}")]
            target = Target(port, expected_sizes(port, symbols))
            where = f"--input {entry}"
            fitted_to = where, port.dtype, target.shape
            put(port.name, *self._once(value_of, value, target, images, where, self._load_arrays, key=fitted_to))
        unused = images.given()
        if unused and not any(is_image(source) for _, source in arrays.values()):
            raise click.UsageError(f"{unused[0]}: no input is an image: give one with -i, such as -i photo.jpg")
        return arrays

    def _limits(self, names: Sequence[str], given: Container[str]) -> dict[str, tuple[float, float]]:
        """Input -> range of its random values. ``given``: the inputs whose values are not random."""
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
            if not math.isfinite(bounds[1] - bounds[0]):
                raise click.UsageError(f"--range {entry}: expected finite numbers whose difference is finite")
            if name in given:
                raise click.UsageError(f"--range {entry}: the values of {name!r} are given by --input")
            for chosen in names if name is None else [name]:
                limits[chosen] = bounds
        return limits


def _with_sizes(dims: Dims | None, sizes: Mapping[str, int]) -> Dims | None:
    return None if dims is None else tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)


def _check_shape(port: Port, shape: Sequence[int], source: str, sizes: Mapping[str, int]) -> None:
    """Raises `click.UsageError` if the shape of a given array contradicts --shape or --dim."""
    dims = _with_sizes(port.shape, sizes) or ()
    pairs = zip(dims, shape, strict=False)
    if len(dims) != len(shape) or any(isinstance(dim, int) and dim != size for dim, size in pairs):
        raise click.UsageError(
            f"--input {port.name}={source}: expected the shape {shape_text(dims)} from --shape or --dim, found "
            f"{shape_text(shape)}"
        )


def _open_sizes(port: Port, symbols: Mapping[str, int]) -> list[str]:
    """The sizes that neither the model nor the user states, except those of the first axis, which is mostly a batch."""
    named = [
        (axis, dim if isinstance(dim, str) else f"axis {axis} of {port.name}")
        for axis, dim in enumerate(port.shape or ())
        if not isinstance(dim, int)
    ]
    first = {name for axis, name in named if axis == 0}
    return [name for axis, name in named if axis and name not in symbols and name not in first]


def _named(entry: str, names: Sequence[str], option: str) -> tuple[str | None, str]:
    """Splits ``NAME=rest`` if NAME is an input, else returns None and the whole text."""
    for name in sorted(names, key=len, reverse=True):
        if entry.startswith(f"{name}="):
            return name, entry[len(name) + 1 :]
    name, equals, rest = entry.partition("=")
    if equals and "/" not in name and "." not in name:
        return known_name(name, names, f"{option} {entry}"), rest
    return None, entry
