"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["write_atomically"]


def write_atomically(target: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Write ``parts``, one after the other, so that a reader sees the old file or the new one, never a piece.

    Temporary file in the same folder, fsync, rename; the new file has the permissions that ``open`` would give.
    Raises ``OSError``, and then leaves nothing behind.
    """
    import tempfile  # ten milliseconds that reading and running a model should not pay

    folder, name = os.path.split(os.fspath(target))
    descriptor, temporary = tempfile.mkstemp(dir=folder or ".", prefix=f".{name[:64]}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            for part in parts:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(stream.fileno(), 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
