"""Where the ZeroMQ socket of a worker is, for as long as it takes to connect."""

from __future__ import annotations

import contextlib
import os

__all__ = ["address_in", "remove_folder"]

_NAME = "control"


def address_in(folder: str) -> str:
    return f"ipc://{folder}/{_NAME}"


def remove_folder(folder: str) -> None:
    """With the socket in it, if they are there yet. Opens no file, since there may be none left to open."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, _NAME))
    with contextlib.suppress(OSError):
        os.rmdir(folder)
