"""Messages through a Unix socket between two processes on one machine.

A message takes one system call to send and one to receive, and wakes one thread.

Each message has a number. An answer has the number of its request, so the receiver can drop answers to abandoned
requests.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

__all__ = ["NUMBERS", "BrokenChannel", "Channel"]

NUMBERS = 1 << 32
"""Message numbers are below this."""

_HEAD = struct.Struct("<II")  # the size of the message in B, and its number
_AT_ONCE = 1 << 14  # bytes to receive in one call, unless a longer message is known to follow
_MOST_AT_ONCE = 1 << 20
_MOST_BYTES = 1 << 30

Wait = Callable[[bool], None]
"""Waits until the socket can receive (True) or send (False). May raise."""


class BrokenChannel(ConnectionError):
    """The other end is closed, or sent an invalid message."""


class Channel:
    """One end of a channel. Not thread-safe."""

    def __init__(self, own: socket.socket) -> None:
        """``own``: a connected stream socket. `close` closes it."""
        self._socket = own
        self._came = bytearray()  # the received part of an incomplete message
        self._is_unsure = False  # whether unrecorded bytes may have passed, as after an interrupt

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, number: int, message: bytes, wait: Wait | None = None) -> None:
        """Send a message. ``wait`` is required for a non-blocking socket. Raises `BrokenChannel` and the exceptions of
        ``wait``. After an exception, the channel cannot send again, because part of the message may have been sent."""
        self._be_unsure()
        left = memoryview(_HEAD.pack(len(message), number) + message)
        while left:
            try:
                left = left[self._socket.send(left, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                assert wait is not None
                wait(False)
            except OSError as error:
                raise BrokenChannel(str(error)) from error
        self._is_unsure = False

    def receive(self, wait: Wait | None = None) -> tuple[int, bytes]:
        """The number of the next message, and the message. Raises `BrokenChannel` and the exceptions of ``wait``. After
        an exception of ``wait``, a partly received message is kept."""
        came = self._came
        if not came:
            some = self._some(_AT_ONCE, wait)
            if len(some) >= _HEAD.size:
                size, number = _HEAD.unpack_from(some)
                if len(some) == _HEAD.size + size:
                    self._is_unsure = False
                    return number, some[_HEAD.size :]
            came += some
            self._is_unsure = False
        while True:
            missing = _AT_ONCE
            if len(came) >= _HEAD.size:
                size, number = _HEAD.unpack_from(came)
                if size > _MOST_BYTES:
                    raise BrokenChannel(f"received a message of {size} B, expected at most {_MOST_BYTES} B")
                end = _HEAD.size + size
                if len(came) >= end:
                    message = bytes(memoryview(came)[_HEAD.size : end])
                    del came[:end]
                    return number, message
                missing = end - len(came)
            came += self._some(min(max(missing, _AT_ONCE), _MOST_AT_ONCE), wait)
            self._is_unsure = False

    def close(self) -> None:
        self._socket.close()

    def _some(self, max_bytes: int, wait: Wait | None) -> bytes:
        """At least one received byte. The caller clears `_is_unsure` once it has stored the bytes."""
        while True:
            if wait is not None:
                wait(True)
            self._be_unsure()
            try:
                some = self._socket.recv(max_bytes)
            except BlockingIOError:
                self._is_unsure = False
                continue
            except OSError as error:
                raise BrokenChannel(str(error)) from error
            if not some:
                raise BrokenChannel("the other end was closed")
            return some

    def _be_unsure(self) -> None:
        if self._is_unsure:
            raise BrokenChannel("an earlier message was incomplete")
        self._is_unsure = True
