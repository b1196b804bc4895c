"""A socket that passes file descriptors between processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

__all__ = ["Mailbox"]

_ANNOUNCED, _DESCRIPTORS = b"a", b"d"  # kinds of messages
_AT_ONCE = 128  # file descriptors per message; Linux allows 253


class Mailbox:
    """One end of the socket."""

    def __init__(self, own: socket.socket) -> None:
        self._socket = own

    @classmethod
    def pair(cls) -> tuple[Mailbox, Mailbox]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        return self._socket.fileno()

    def announce(self) -> None:
        """Make the other end readable before the first descriptors are sent."""
        self._socket.send(_ANNOUNCED)

    def send(self, descriptors: Sequence[int]) -> None:
        """Send copies of the descriptors. The originals stay open."""
        for begin in range(0, len(descriptors), _AT_ONCE):
            socket.send_fds(self._socket, [_DESCRIPTORS], list(descriptors[begin : begin + _AT_ONCE]))

    def receive(self, count: int) -> list[int]:
        """``count`` descriptors. Raises `OSError` if they do not arrive, or if they exceed the limit of this
        process."""
        found: list[int] = []
        try:
            while len(found) < count:
                message, descriptors, flags, _ = socket.recv_fds(self._socket, 1, _AT_ONCE)
                if message == _ANNOUNCED:
                    continue
                found += descriptors
                if not message:
                    raise OSError("the other end was closed")
                if flags & socket.MSG_CTRUNC or len(found) > count:
                    raise OSError(f"received {len(found)} of {count}: this process has too many open files")
        except BaseException:
            for descriptor in found:
                os.close(descriptor)
            raise
        for descriptor in found:
            os.set_inheritable(descriptor, False)
        return found

    def close(self) -> None:
        self._socket.close()
