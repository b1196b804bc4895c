"""Messages through a Unix socket between two processes on one machine.

A message is one system call to send and one to receive, and wakes one thread; in ZeroMQ it passes through a thread of
its own on each side, which costs more than an inference of a small model.

Each message has a number. An answer bears that of its request, so that one which nobody waits for any longer is told
from the one that somebody does.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

__all__ = ["NUMBERS", "BrokenChannel", "Channel"]

NUMBERS = 1 << 32
"""Those of messages are below."""

_HEAD = struct.Struct("<II")  # bytes that follow, number
_AT_ONCE = 1 << 14  # bytes that are received in one call, unless more are known to come
_MOST_AT_ONCE = 1 << 20
_MOST_BYTES = 1 << 30

Wait = Callable[[bool], None]
"""Called with whether it is to receive (or to send); returns when that is possible, and may raise."""


class BrokenChannel(ConnectionError):
    """Nobody is at the other end, or what came from there is no message."""


class Channel:
    """One end. Not for two threads at once."""

    def __init__(self, own: socket.socket) -> None:
        """``own``: a connected stream socket, which is closed with this object."""
        self._socket = own
        self._came = bytearray()  # of a message that has not come whole
        self._is_unsure = False  # whether bytes may have passed that nobody has noted, as after an interrupt

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, number: int, message: bytes, wait: Wait | None = None) -> None:
        """``wait``: for a socket that does not block. Raises `BrokenChannel`, and what ``wait`` does: then nothing more
        can be sent, since nobody knows how much of the message was."""
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
        """The next message, and its number. Raises `BrokenChannel`, and what ``wait`` does: what has come of a message
        is kept then."""
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
                    raise BrokenChannel(f"a message of {size} bytes came")
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

    def _some(self, most: int, wait: Wait | None) -> bytes:
        """Bytes that have come, at least one; the caller notes them."""
        while True:
            if wait is not None:
                wait(True)
            self._be_unsure()
            try:
                some = self._socket.recv(most)
            except BlockingIOError:
                self._is_unsure = False
                continue
            except OSError as error:
                raise BrokenChannel(str(error)) from error
            if not some:
                raise BrokenChannel("it was closed")
            return some

    def _be_unsure(self) -> None:
        if self._is_unsure:
            raise BrokenChannel("a message was cut short")
        self._is_unsure = True
