"""Custom operators as data for other processes on this machine. Functions are described by name, C functions by library
and symbol."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import msgspec

from ..base.importable import import_name, imported
from ..errors import NotSupported, raise_out_of_memory
from .custom_op import CustomOp

__all__ = ["OpDescription", "describe", "made"]


class OpDescription(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of `CustomOp` as data. ``function``, ``shape_rule``: ``module:name``, or empty. ``library``,
    ``symbol``: the location of the C function, or empty. ``output_dtypes``: the number of an input, the name of a
    dtype, or the ``module:name`` of a function."""

    op_type: str
    domain: str
    function: str
    library: str
    symbol: str
    shape_rule: str
    output_dtypes: list[int | str]
    num_inputs: tuple[int, int]
    input_dtypes: list[list[str] | None]
    since_version: int
    version: str


def describe(op: CustomOp) -> OpDescription:
    """The operator as data. Raises `NotSupported` if another process could not recreate it."""
    library, symbol = _where_in_library(op) if op.address else ("", "")
    return OpDescription(
        op.op_type,
        op.domain,
        _named(op, "function", op.function) if op.function else "",
        library,
        symbol,
        _named(op, "shape_rule", op.shape_rule) if op.shape_rule else "",
        [_output(op, entry) for entry in op.output_dtypes],
        op.num_inputs,
        [None if accepted is None else sorted(dtype.name for dtype in accepted) for accepted in op.input_dtypes],
        op.since_version,
        op.version,
    )


def made(description: OpDescription) -> CustomOp:
    """The operator in this process. Raises `NotSupported` if its functions cannot be imported."""
    try:
        return CustomOp(
            description.op_type,
            description.domain,
            function=_imported(description.function),
            c_function=getattr(ctypes.CDLL(description.library), description.symbol) if description.library else None,
            shape_rule=_imported(description.shape_rule),
            output_dtypes=[
                imported(entry) if isinstance(entry, str) and ":" in entry else entry
                for entry in description.output_dtypes
            ],
            num_inputs=description.num_inputs,
            input_dtypes=description.input_dtypes or None,
            since_version=description.since_version,
            version=description.version,
        )
    except (ImportError, AttributeError, OSError) as error:
        raise_out_of_memory(error)
        raise NotSupported(
            f"custom operator {description.domain}::{description.op_type}: another process cannot import it: {error}"
        ) from error


def _imported(name: str) -> Any:
    return imported(name) if name else None


def _named(op: CustomOp, what: str, function: Any) -> str:
    name = import_name(function)
    if name is None:
        reason = f"its {what} {function!r} exists only in this process; define it at the top level of a module"
        raise _refusal(op, reason)
    return name


def _output(op: CustomOp, entry: Any) -> int | str:
    if isinstance(entry, int):
        return entry
    return _named(op, "output_dtypes", entry) if callable(entry) else str(entry.name)


def _where_in_library(op: CustomOp) -> tuple[str, str]:
    """The file and the symbol of the C function."""
    if op.user_data:
        raise _refusal(op, "its user_data is an address in this process")
    if os.name == "nt":
        raise _refusal(op, "Windows does not tell which library contains a function")
    info = _SymbolInfo()
    dladdr = ctypes.CDLL(None).dladdr
    if dladdr(ctypes.c_void_p(op.address), ctypes.byref(info)) and info.symbol and info.address == op.address:
        library, symbol = os.path.abspath(os.fsdecode(info.library)), os.fsdecode(info.symbol)
        try:
            exported = ctypes.cast(getattr(ctypes.CDLL(library), symbol), ctypes.c_void_p).value
        except (OSError, AttributeError):
            exported = None
        if exported == op.address:
            return library, symbol
    raise _refusal(op, "its c_function is an address in this process; pass a function that a library exports")


class _SymbolInfo(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _refusal(op: CustomOp, why: str) -> NotSupported:
    return NotSupported(f"the custom operator {op.name} cannot be used in another process: {why}")
