"""Summarizes outputs, and writes them to a file."""

from __future__ import annotations

import re
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.files import atomic_file
from ..base.maps import table_of_maps
from ..plugin.tensor import Outputs
from .outfile import writing

__all__ = ["dtype_name", "save_arrays", "summary"]

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")  # names that no unpacking tool interprets as a path


def summary(value: Any) -> dict[str, Any]:
    """``kind`` (tensor, sequence, maps, none), ``length`` of a sequence, ``dtype``, ``shape``, ``min``, ``mean``,
    ``max`` of the finite elements, and the number of ``nan`` and ``inf`` elements; None where not applicable. For maps,
    the fields are those of a tensor of their values, with a row for each map."""
    empty = dict.fromkeys(("length", "dtype", "shape", "min", "mean", "max", "nan", "inf"))
    table = table_of_maps(value)
    if table is not None:
        return {**summary(table[1]), "kind": "maps", "dtype": None}
    if not isinstance(value, np.ndarray):
        return {"kind": "none", **empty} if value is None else {"kind": "sequence", **empty, "length": len(value)}
    fields = {"kind": "tensor", **empty, "dtype": dtype_name(value), "shape": list(value.shape)}
    if value.dtype.hasobject or value.dtype.kind in "USc":
        return fields
    numbers = value.astype(np.float64) if value.dtype.kind not in "biu" else value
    finite = numbers if numbers.dtype.kind in "biu" else numbers[np.isfinite(numbers)]
    if finite.size:
        fields |= {"min": float(finite.min()), "mean": float(finite.mean(dtype=np.float64)), "max": float(finite.max())}
    if numbers is finite:
        return fields | {"nan": 0, "inf": 0}
    return fields | {"nan": int(np.isnan(numbers).sum()), "inf": int(np.isinf(numbers).sum())}


def dtype_name(value: NDArray[Any]) -> str:
    """The element type, for output: ``string`` for texts, which are also arrays of objects."""
    return "string" if value.dtype.hasobject or value.dtype.kind in "US" else str(value.dtype)


def save_arrays(path: str, outputs: Outputs) -> dict[str, str]:
    """Writes an ``.npz`` file, completely or not at all. Returns the name of each output in the file: its own name if
    that is a valid file name, else ``output_`` and its number. Types that NumPy lacks are written as float32 or int8.
    Maps are written as an array of their values, with a row for each map, and ``NAME.keys``, an array of their keys.

    Raises `Failure` if it cannot be written.
    """
    called: dict[str, str] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for position, (name, value) in enumerate(outputs.items()):
        key = name if _PLAIN.fullmatch(name) and len(name) < 200 else f"output_{position}"
        called[name] = key
        table = table_of_maps(value)
        if table is not None:
            arrays |= {key: table[1], f"{key}.keys": np.array(table[0])}
        elif isinstance(value, np.ndarray):
            arrays[key] = _storable(value)
        else:
            arrays |= {f"{key}.{i}": _storable(item) for i, item in enumerate(value or ()) if item is not None}
    with (
        writing(path),
        atomic_file(path) as number,
        open(number, "wb", closefd=False) as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return called


def _storable(value: NDArray[Any]) -> NDArray[Any]:
    if value.dtype.hasobject:
        return value.astype(np.str_)
    if value.dtype.isbuiltin == 1:
        return value
    return value.astype(np.int8 if "int" in value.dtype.name else np.float32)
