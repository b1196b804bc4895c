"""Writes an exported file: collects entries, computes their digests, and writes everything at the end.

Entries are bytes and views of arrays and are not copied. The manifest with the digests comes first, so contents are
read twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .._checksum import crc32
from ..errors import ArtifactError
from .layout import MANIFEST, Entry, Layout, comment_of, is_entry_name
from .manifest import FORMAT, FORMAT_VERSION, EntryRecord, Manifest, Submodel

__all__ = ["ArtifactWriter"]

_Part = bytes | memoryview
_MAX_MANIFEST = (1 << 32) - 2


class ArtifactWriter:
    """Collects the entries of an exported file."""

    def __init__(self) -> None:
        self._contents: dict[str, Sequence[_Part]] = {}  # in order
        self._arrays: dict[tuple[int, int], int] = {}
        self._kept: list[NDArray[Any]] = []  # keeps the addresses in _arrays valid
        self._submodels: list[Submodel | None] = []

    def add(self, name: str, parts: Sequence[_Part]) -> int:
        """Add an entry. Returns its number."""
        if not is_entry_name(name) or name in self._contents:
            raise ArtifactError(f"{name!r} is not a valid name of an entry, or is already used")
        self._contents[name] = tuple(parts)
        return len(self._contents) - 1

    def add_array(self, data: NDArray[np.uint8]) -> int:
        """Add an entry with the bytes of an array, or reuse the entry of the same memory. Returns its number."""
        key = (data.ctypes.data, data.size)
        if key not in self._arrays:
            self._kept.append(data)
            self._arrays[key] = self.add(f"weights/{len(self._arrays)}", [data.data])
        return self._arrays[key]

    def new_submodel(self) -> int:
        self._submodels.append(None)
        return len(self._submodels) - 1

    def set_submodel(self, number: int, submodel: Submodel) -> None:
        self._submodels[number] = submodel

    def parts(self) -> Iterator[_Part]:
        """The bytes of the file, in pieces. Equal compiled models give identical bytes."""
        from ..base.version import __version__

        records = []
        for name, contents in self._contents.items():
            sha256, checksum, size = hashlib.sha256(), 0, 0
            for part in contents:
                sha256.update(part)
                checksum = crc32(part, checksum)
                size += len(part)
            records.append(EntryRecord(name, size, checksum, sha256.hexdigest()))
        submodels = [submodel for submodel in self._submodels if submodel is not None]
        manifest = msgspec.json.encode(Manifest(FORMAT, FORMAT_VERSION, __version__, records, submodels))
        if len(manifest) > _MAX_MANIFEST:
            raise ArtifactError(f"the manifest would take {len(manifest)} bytes, more than {_MAX_MANIFEST}")
        entries = [Entry(MANIFEST, len(manifest), crc32(manifest))]
        entries += [Entry(record.name, record.size, record.crc32) for record in records]
        layout = Layout(entries, comment_of(hashlib.sha256(manifest).hexdigest()))
        for header, contents in zip(layout.headers, [[manifest], *self._contents.values()], strict=True):
            yield header
            yield from contents
        yield layout.tail
