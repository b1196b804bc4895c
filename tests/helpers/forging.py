"""Exported files with other contents than hetero wrote, whose digests are right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec

from hetero._checksum import crc32
from hetero.artifact.layout import MANIFEST, Entry, Layout, comment_of
from hetero.artifact.reader import Artifact

__all__ = ["entries_of", "forged"]


def entries_of(data: bytes) -> dict[str, bytes]:
    """The contents of a file's entries, without the manifest."""
    artifact = Artifact(memoryview(data), "it")
    return {entry.name: bytes(artifact.entry(i)) for i, entry in enumerate(artifact.manifest.entries)}


def forged(
    data: bytes,
    manifest: Callable[[dict[str, Any]], Any] = lambda manifest: None,
    entries: Callable[[dict[str, bytes]], Any] = lambda entries: None,
) -> bytes:
    """The file with other contents, and digests as if they had been written."""
    contents = entries_of(data)
    entries(contents)
    records = [
        {"name": name, "size": len(body), "crc32": crc32(body), "sha256": hashlib.sha256(body).hexdigest()}
        for name, body in contents.items()
    ]
    stored = [Entry(record["name"], record["size"], record["crc32"]) for record in records]
    stated = msgspec.to_builtins(Artifact(memoryview(data), "it").manifest)
    stated["entries"] = records
    manifest(stated)
    text = json.dumps(stated).encode()
    layout = Layout(
        [Entry(MANIFEST, len(text), crc32(text)), *stored],
        comment_of(hashlib.sha256(text).hexdigest()),
    )
    bodies = [text, *contents.values()]
    return b"".join(header + body for header, body in zip(layout.headers, bodies, strict=True)) + layout.tail
