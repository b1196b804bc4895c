"""Random inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import shape_text
from ..errors import HeteroError
from ..model.types import Dim, Port

__all__ = ["chosen_shape", "random_array"]

_MOST_BYTES = 1 << 34


def chosen_shape(port: Port, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input, with these sizes for its symbols, and 1 for other unknown sizes."""
    if not port.is_tensor:
        raise HeteroError(f"input {port.name!r} is not a tensor; random values are supported for tensors only")
    if port.shape is None:
        raise HeteroError(f"the rank of input {port.name!r} is unknown: give --shape {port.name}=1x…")
    return tuple(_size(dim, symbols) for dim in port.shape)


def _size(dim: Dim, symbols: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return 1 if dim is None else symbols.get(dim, 1)


def random_array(
    generator: np.random.Generator, port: Port, shape: tuple[int, ...], limits: tuple[float, float] | None
) -> NDArray[Any]:
    """Values in ``limits``: by default [0, 1), integers 0 and 1 (valid indices of most tables), 8-bit integers their
    whole range."""
    dtype = port.dtype
    if dtype is None:
        raise HeteroError(f"the element type of input {port.name!r} is unknown: give --input {port.name}=FILE.npy")
    if np.prod([float(size) for size in shape]) * dtype.itemsize > _MOST_BYTES:
        raise HeteroError(f"input {port.name!r} of shape {shape_text(shape, compact=True)} requires more than 16 GiB")
    if dtype.hasobject:
        return np.full(shape, "", object)
    if dtype == np.bool_:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        low, high = (0, 2) if limits is None else (math.ceil(limits[0]), math.ceil(limits[1]))
        if limits is None and dtype.itemsize == 1:
            info = np.iinfo(dtype)
            low, high = int(info.min), int(info.max) + 1
        if low == high and limits is not None:
            raise HeteroError(f"input {port.name!r}: the range {limits[0]:g}:{limits[1]:g} has no integer for {dtype}")
        try:
            return generator.integers(low, high, shape, dtype)
        except ValueError as error:
            raise HeteroError(f"input {port.name!r}: {low}:{high} is out of range for {dtype}") from error
    begin, end = (0.0, 1.0) if limits is None else limits
    values: NDArray[Any] = begin + (end - begin) * generator.random(shape)
    if dtype.kind == "c":
        values = values + 1j * generator.random(shape)
    return np.asarray(values).astype(dtype)  # arithmetic makes a NumPy scalar of an array without axes
