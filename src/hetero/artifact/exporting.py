"""`CompiledModel.export_model`: to a path, atomically, or to a stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from ..base.collection import collection_paused
from ..base.files import atomic_file, write_all
from ..errors import ArtifactError, PropertyError, file_error, raise_out_of_memory
from .payload import Exportable, add_submodel
from .writer import ArtifactWriter

__all__ = ["callbacks_of", "export_model"]

Callback = Callable[[bytes], bytes]


def export_model(compiled: Exportable, target: Any, encrypt: Callback | None = None) -> None:
    """Write a compiled model. ``target``: a path, or a binary stream, which is not closed.

    For a path, a temporary file in its folder is written, synced and renamed. A failure leaves an existing file
    unchanged. ``encrypt`` receives all bytes and returns the bytes to write.

    Raises `NotSupported` if the device does not support export, and `ArtifactError` if the file cannot be written.
    """
    writer = ArtifactWriter()
    with collection_paused():
        add_submodel(writer, compiled)
    parts: Iterable[bytes | memoryview] = writer.parts()
    if encrypt is not None:
        try:
            parts = [bytes(encrypt(b"".join(parts)))]
        except Exception as error:
            raise_out_of_memory(error)
            raise ArtifactError(
                f"the encrypt function of CACHE_ENCRYPTION_CALLBACKS failed: {type(error).__name__}: {error}"
            ) from error
    if hasattr(target, "write"):
        for part in parts:
            target.write(part)
        return
    if not isinstance(target, (str, bytes, os.PathLike)):
        raise TypeError(f"expected a path or a binary stream, got {type(target).__name__}")
    try:
        with atomic_file(os.fsdecode(target)) as number:
            for part in parts:
                write_all(number, memoryview(part))
    except OSError as error:
        text = f"{os.fsdecode(target)}: cannot be written: {error.strerror or error}"
        raise file_error(ArtifactError, text, error) from error


def callbacks_of(value: object) -> tuple[Callback | None, Callback | None]:
    """The functions of ``CACHE_ENCRYPTION_CALLBACKS``: encrypt and decrypt."""
    if value is None:
        return None, None
    if not isinstance(value, tuple) or len(value) != 2 or not all(map(callable, value)):
        raise PropertyError("CACHE_ENCRYPTION_CALLBACKS: expected two functions (encrypt, decrypt), or None")
    return value
