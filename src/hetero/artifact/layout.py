"""The bytes around the entries of an exported file, which is a ZIP archive.

The order, the alignment, the headers and the directory follow from the names, sizes and checksums of the entries. A
reader therefore does not parse ZIP structures: it computes these bytes from the manifest and compares them with the
file, so every byte is checked. Entries are stored uncompressed and begin at multiples of 64 bytes, by an extra field
(0xD935, as in Android's zipalign). ZIP64 fields are present only if sizes need them. The archive's comment contains the
SHA-256 of the manifest, which is the first entry.

Format: APPNOTE.TXT of PKWARE, 6.3.10.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Sequence
from typing import Final

from ..base.file_kinds import MANIFEST_ENTRY

__all__ = ["ALIGNMENT", "MANIFEST", "Entry", "Layout", "comment_of", "first_entry", "is_entry_name"]

ALIGNMENT: Final = 64
MANIFEST: Final = MANIFEST_ENTRY

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_MOST_32, _MOST_16 = 0xFFFFFFFF, 0xFFFF
_VERSION, _VERSION_64 = 20, 45  # ZIP version needed to extract
_UNIX = 3 << 8  # "made by", so that the permissions below apply
_TIME, _DATE = 0, 1 << 5 | 1  # 1980-01-01, the earliest date: equal exports have identical bytes
_PERMISSIONS = 0o100644 << 16
_ZIP64, _ALIGNING = 0x0001, 0xD935
_COMMENT = re.compile(rb"hetero [0-9a-f]{64}")
_COMMENT_SIZE = len("hetero ") + 64
_NAME = re.compile(r"[a-z0-9_]+([./-][A-Za-z0-9_]+)*")
_LONGEST_NAME = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A file of the archive: its name, its size in bytes, and the CRC-32 of its contents."""

    name: str
    size: int
    crc32: int


def is_entry_name(name: str) -> bool:
    """Whether hetero writes such names: short ASCII relative paths without ``.`` and ``..``."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def comment_of(manifest_sha256: str) -> bytes:
    """The archive's comment."""
    return f"hetero {manifest_sha256}".encode()


class Layout:
    """The positions of the entries in an archive, and the bytes between their contents.

    ``headers``: the bytes before each entry's contents, from the end of the previous entry. ``offsets``: the beginnings
    of the contents. ``tail``: the bytes after the last contents. ``size``: the size of the file.
    """

    def __init__(self, entries: Sequence[Entry], comment: bytes) -> None:
        self.headers: list[bytes] = []
        self.offsets: list[int] = []
        directory = []
        at = 0
        for entry in entries:
            begin = at
            header = _local_header(entry, begin)
            at += len(header)
            self.headers.append(header)
            self.offsets.append(at)
            at += entry.size
            directory.append(_central_header(entry, begin))
        self.tail = b"".join(directory) + _end(len(entries), at, sum(map(len, directory)), comment)
        self.size = at + len(self.tail)


def _local_header(entry: Entry, begin: int) -> bytes:
    name = entry.name.encode("ascii")
    large = entry.size >= _MOST_32
    size = _MOST_32 if large else entry.size
    sizes = struct.pack("<2H2Q", _ZIP64, 16, entry.size, entry.size) if large else b""
    unpadded = begin + _LOCAL.size + len(name) + len(sizes) + 6
    padding = -unpadded % ALIGNMENT
    extra = sizes + struct.pack("<3H", _ALIGNING, 2 + padding, ALIGNMENT) + bytes(padding)
    version = _VERSION_64 if large else _VERSION
    fixed = _LOCAL.pack(
        b"PK\3\4", version, 0, 0, _TIME, _DATE, entry.crc32, size, size, len(name), len(extra)
    )  # flags 0, method 0: stored
    return fixed + name + extra


def _central_header(entry: Entry, begin: int) -> bytes:
    name = entry.name.encode("ascii")
    large, far = entry.size >= _MOST_32, begin >= _MOST_32
    size = _MOST_32 if large else entry.size
    numbers = ([entry.size, entry.size] if large else []) + ([begin] if far else [])
    extra = struct.pack(f"<2H{len(numbers)}Q", _ZIP64, 8 * len(numbers), *numbers) if numbers else b""
    version = _VERSION_64 if numbers else _VERSION
    fixed = _CENTRAL.pack(
        b"PK\1\2", _UNIX | _VERSION_64, version, 0, 0, _TIME, _DATE, entry.crc32, size, size,
        len(name), len(extra), 0, 0, 0, _PERMISSIONS, _MOST_32 if far else begin,
    )  # fmt: skip
    return fixed + name + extra


def _end(count: int, begin: int, size: int, comment: bytes) -> bytes:
    """The records after the directory, which has ``count`` entries in ``size`` bytes from ``begin`` on."""
    records = b""
    if count >= _MOST_16 or begin >= _MOST_32 or size >= _MOST_32:
        records += _END_64.pack(
            b"PK\6\6", _END_64.size - 12, _UNIX | _VERSION_64, _VERSION_64, 0, 0, count, count, size, begin
        )
        records += _LOCATOR_64.pack(b"PK\6\7", 0, begin + size, 1)
    number, where, length = min(count, _MOST_16), min(begin, _MOST_32), min(size, _MOST_32)
    return records + _END.pack(b"PK\5\6", 0, 0, number, number, length, where, len(comment)) + comment


def first_entry(data: memoryview) -> tuple[Entry, int, bytes] | None:
    """The first entry of an archive, the beginning of its contents, and the archive's comment.

    None if this is not an exported model of hetero. The values are untrusted: the caller compares them with the
    `Layout` that follows from the manifest.
    """
    name = MANIFEST.encode()
    if len(data) < _LOCAL.size + len(name) + _END.size + _COMMENT_SIZE:
        return None
    signature, *_, crc32, size, _, name_size, extra_size = _LOCAL.unpack_from(data)
    comment = bytes(data[-_COMMENT_SIZE:])
    begin = _LOCAL.size + name_size + extra_size
    if signature != b"PK\3\4" or bytes(data[_LOCAL.size : _LOCAL.size + len(name)]) != name:
        return None
    if not _COMMENT.fullmatch(comment) or begin + size > len(data):
        return None
    return Entry(MANIFEST, size, crc32), begin, comment
