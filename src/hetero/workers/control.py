"""The address of a worker's ZeroMQ socket, which exists until both sides are connected."""

from __future__ import annotations

import contextlib
import os

__all__ = ["address_in", "remove_folder"]

_NAME = "control"


def address_in(folder: str) -> str:
    return f"ipc://{folder}/{_NAME}"


def remove_folder(folder: str) -> None:
    """Remove the folder and the socket in it, if they exist. Opens no files, because file descriptors may be used
    up."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, _NAME))
    with contextlib.suppress(OSError):
        os.rmdir(folder)
