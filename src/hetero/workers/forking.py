"""The main function of the process that forks workers. Only `fork_server` imports this module, by name."""

from __future__ import annotations

import os
import signal
import socket

from . import process

__all__ = ["serve"]


def serve(descriptor: int, alive: int) -> None:
    """Fork workers on request until the application ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no wait() for workers: file descriptors report their end
    process.preload()
    own = socket.socket(fileno=descriptor)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(own, 4096, 2)
        except ConnectionResetError:  # the application was killed before it read an answer
            os._exit(0)
        if not message:
            os._exit(0)
        number, _, size = message.partition(b" ")
        try:
            memory, mailbox = descriptors
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # libraries of devices may wait for their children
                own.close()
                process.main(memory, int(size), mailbox, alive)
            ended = os.pidfd_open(child)
        except (OSError, ValueError) as error:
            _answer(own, number, f"{type(error).__name__}: {error}".encode()[:64])
        else:
            _answer(own, number, str(child).encode(), ended)
            os.close(ended)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _answer(own: socket.socket, number: bytes, text: bytes, *descriptors: int) -> None:
    """Send the answer to a request. Ends the process if the application was killed: the worker ends by itself."""
    try:
        socket.send_fds(own, [number, b" ", text], descriptors)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)
