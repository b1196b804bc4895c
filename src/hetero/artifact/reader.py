"""Reads an untrusted exported file.

Before anything in it is used, the reader checks the sizes and the version, compares every header of the archive with
the manifest (see `layout`), and every entry with its checksum. The manifest and entries up to 64 KiB are checked by
SHA-256. Larger entries, the weights, are checked by CRC-32, which runs at memory speed and detects every flipped bit
and every run of up to 32 wrong bits. SHA-256 takes ten times as long, and would not detect forgery either: anyone who
can change the contents can change the digest. `verify` checks all entries by SHA-256.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from .._checksum import crc32
from ..base.device_string import parse_device
from ..base.file_kinds import describe_kind, expected, is_exported
from ..base.files import map_file
from ..errors import ArtifactError, Corrupt, ModelError, PropertyError, raise_out_of_memory
from ..model.file import ModelFile
from .layout import MANIFEST, Entry, Layout, comment_of, first_entry, is_entry_name
from .manifest import Manifest, decode_manifest

__all__ = ["Artifact", "open_artifact", "verify"]

_HASHED_BYTES = 1 << 16


class Artifact:
    """The entries of an exported file, checked. Immutable; views of it keep the mapped file alive."""

    def __init__(self, data: memoryview, label: str) -> None:
        """Checks everything but SHA-256 of large entries. Raises `Corrupt` and `WrongVersion`."""
        self.label = label
        self._data = data
        self._begin, self.manifest = self._checked()

    def entry(self, number: int) -> memoryview:
        """The contents of an entry."""
        if not 0 <= number < len(self.manifest.entries):
            raise Corrupt(f"{self.label}: there is no entry {number}")
        begin = self._begin[number]
        return self._data[begin : begin + self.manifest.entries[number].size]

    def verify(self) -> None:
        """Compare every entry with its SHA-256. Raises `Corrupt`."""
        for number, record in enumerate(self.manifest.entries):
            if hashlib.sha256(self.entry(number)).hexdigest() != record.sha256:
                raise Corrupt(f"{self.label}: entry {record.name!r} is damaged: its SHA-256 differs")

    def _checked(self) -> tuple[list[int], Manifest]:
        data, label = self._data, self.label
        first = first_entry(data)
        if first is None:
            raise Corrupt(f"{label}: {_problem(data)}")
        head, begin, comment = first
        text = data[begin : begin + head.size]
        if comment_of(hashlib.sha256(text).hexdigest()) != comment or crc32(text) != head.crc32:
            raise Corrupt(f"{label}: the manifest is damaged: its digest differs")
        manifest = decode_manifest(text, label)
        names = {MANIFEST, *(record.name for record in manifest.entries)}
        if len(names) != len(manifest.entries) + 1 or not all(map(is_entry_name, names)):
            raise Corrupt(f"{label}: an entry has an invalid or duplicate name")
        entries = [head, *(Entry(record.name, record.size, record.crc32) for record in manifest.entries)]
        layout = Layout(entries, comment)
        if layout.size != len(data):
            raise Corrupt(f"{label}: has {len(data)} bytes, but its manifest requires {layout.size}")
        at = 0
        for entry, header, offset in zip(entries, layout.headers, layout.offsets, strict=True):
            if data[at:offset] != header:
                raise Corrupt(f"{label}: the bytes before entry {entry.name!r} are damaged")
            at = offset + entry.size
        if data[at:] != layout.tail:
            raise Corrupt(f"{label}: the archive's directory is damaged")
        for record, offset in zip(manifest.entries, layout.offsets[1:], strict=True):
            contents = data[offset : offset + record.size]
            right = crc32(contents) == record.crc32
            if right and record.size <= _HASHED_BYTES:
                right = hashlib.sha256(contents).hexdigest() == record.sha256
            if not right:
                raise Corrupt(f"{label}: entry {record.name!r} is damaged: its digest differs")
        for submodel in manifest.submodels:
            try:
                parse_device(submodel.device)
            except PropertyError as error:
                raise Corrupt(f"{label}: {error}") from error
        return layout.offsets[1:], manifest


def _problem(data: memoryview) -> str:
    """Why bytes that do not begin and end like an exported model cannot be loaded."""
    other = None if is_exported(data) else describe_kind(data)
    if other is not None:
        return expected("an exported model", other)
    try:
        ModelFile(data, label="")
    except ModelError:
        return (
            "is not an exported model of hetero, or is truncated or encrypted (if it is encrypted, set "
            "CACHE_ENCRYPTION_CALLBACKS to the functions that it was written with)"
        )
    return expected("an exported model", ("an ONNX model", "compile it with hetero.compile or Core.compile_model"))


def open_artifact(source: object, decrypt: Callable[[bytes], bytes] | None = None) -> Artifact:
    """Read a path (mapped), bytes, or a stream. ``decrypt``: applied to all bytes first, if given.

    Raises `ArtifactError` if the file cannot be read, `Corrupt` and `WrongVersion`.
    """
    if isinstance(source, (str, os.PathLike)):
        label = os.fsdecode(source)
        data = map_file(label, "an exported model", ArtifactError, empty=Corrupt)
    else:
        label = "<stream>"
        read = getattr(source, "read", None)
        contents = source if read is None else read()
        if not isinstance(contents, (bytes, bytearray, memoryview)):
            raise TypeError(f"expected a path, bytes or a binary stream, got {type(source).__name__}")
        data = memoryview(bytes(contents))
        if read is not None and not data:
            raise Corrupt(f"{label}: the data is empty; streams are read from their position, so call seek(0) first")
    if decrypt is not None:
        try:
            data = memoryview(bytes(decrypt(bytes(data))))
        except Exception as error:
            raise_out_of_memory(error)
            raise Corrupt(f"{label}: cannot be decrypted: {type(error).__name__}: {error}") from error
    return Artifact(data, label)


def verify(path: object, decrypt: Callable[[bytes], bytes] | None = None) -> None:
    """Check every byte of an exported file by SHA-256, without importing it. Raises `Corrupt` and `WrongVersion`."""
    open_artifact(path, decrypt).verify()
