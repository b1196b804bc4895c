"""A socket between two processes for rare messages, which may carry file descriptors."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Callable, Sequence

__all__ = ["Mailbox", "Wait"]

_MORE, _LAST = b"+", b"."  # the first byte of a packet: whether packets of the same message follow
_PACKET_BYTES = 1 << 15
_PACKET_DESCRIPTORS = 128  # Linux allows 253
_INT_BYTES = array.array("i").itemsize
_RIGHTS_BYTES = socket.CMSG_SPACE(_PACKET_DESCRIPTORS * _INT_BYTES)

Wait = Callable[[bool], None]
"""Waits until the socket can receive (True) or send (False). May raise."""


class Mailbox:
    """One end of the socket.

    A message of less than 32 KiB without descriptors is sent by one call, whole or not at all, so several threads may
    send such messages, and an interrupt does no harm. Longer messages are sent in several packets.
    """

    def __init__(self, own: socket.socket) -> None:
        self._socket = own

    @classmethod
    def pair(cls) -> tuple[Mailbox, Mailbox]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes, descriptors: Sequence[int] = (), wait: Wait | None = None) -> None:
        """Send a message with copies of the descriptors; the originals stay open. ``wait``: for an end that must not
        block. Raises `OSError`, and `BlockingIOError` if the socket is full and a non-blocking end has no ``wait``."""
        flags = socket.MSG_NOSIGNAL | (0 if wait is None else socket.MSG_DONTWAIT)
        left, fds = memoryview(message), list(descriptors)
        while True:
            part, sent = left[: _PACKET_BYTES - 1], fds[:_PACKET_DESCRIPTORS]
            left, fds = left[len(part) :], fds[len(sent) :]
            packet = (_MORE if left or fds else _LAST) + bytes(part)
            while True:
                try:
                    # Not `socket.send_fds` and `recv_fds`, which ignore their flags.
                    self._socket.sendmsg([packet], _rights(sent), flags)
                    break
                except BlockingIOError:
                    if wait is None:
                        raise
                    wait(False)
            if not left and not fds:
                return

    def receive(self, wait: Wait | None = None) -> tuple[bytes, list[int]]:
        """The next message, and its descriptors, which the caller closes. ``wait``: for an end that must not block.
        Raises `OSError` if the other end was closed, or if this process has too many open files."""
        message, descriptors = bytearray(), list[int]()
        flags = socket.MSG_CMSG_CLOEXEC | (0 if wait is None else socket.MSG_DONTWAIT)
        try:
            while True:
                if wait is not None:
                    wait(True)
                try:
                    packet, ancillary, state, _ = self._socket.recvmsg(_PACKET_BYTES, _RIGHTS_BYTES, flags)
                except BlockingIOError:
                    continue
                for level, kind, data in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        descriptors += array.array("i", data[: len(data) - len(data) % _INT_BYTES])
                if not packet:
                    raise OSError("the other end was closed")
                if state & socket.MSG_CTRUNC:
                    raise OSError("this process has too many open files")
                message += packet[1:]
                if packet[:1] == _LAST:
                    break
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return bytes(message), descriptors

    def close(self) -> None:
        self._socket.close()


def _rights(descriptors: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
