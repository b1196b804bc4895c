"""Messages with file descriptors between two processes."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator

import pytest

from hetero.workers.mailbox import Mailbox

Pair = tuple[Mailbox, Mailbox]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = Mailbox.pair()
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("size", [0, 1, (1 << 15) - 2, (1 << 15) - 1, 1 << 15, 3 << 15, 1_000_000])
@pytest.mark.parametrize("count", [0, 1, 128, 150])
def test_messages_and_descriptors_come_whole_and_in_order(pair: Pair, size: int, count: int) -> None:
    one, other = pair
    message = os.urandom(size)
    pipes = [os.pipe() for _ in range(count)]
    sender = threading.Thread(target=lambda: [one.send(message, [w for _, w in pipes]), one.send(b"next")])
    sender.start()
    received, descriptors = other.receive()
    assert received == message
    assert other.receive() == (b"next", [])
    sender.join()
    assert len(descriptors) == count
    for number, (descriptor, (read, write)) in enumerate(zip(descriptors, pipes, strict=True)):
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, bytes([number]))
        assert os.read(read, 2) == bytes([number])
        for opened in (descriptor, read, write):
            os.close(opened)


def test_a_closed_end_is_an_error(pair: Pair) -> None:
    one, other = pair
    one.close()
    with pytest.raises(OSError, match="the other end was closed"):
        other.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        other.send(b"x")


def test_an_end_that_must_not_block_asks_when_it_would(pair: Pair) -> None:
    one, other = pair

    class Asked(Exception):
        pass

    def refuse(to_receive: bool) -> None:
        raise Asked(to_receive)

    with pytest.raises(Asked, match="True"):
        other.receive(refuse)
    sent = 0
    with contextlib.suppress(Asked):
        while sent < 10_000:
            one.send(b"x" * 30_000, wait=refuse)
            sent += 1
    assert 1 <= sent < 10_000
    for _ in range(sent):
        assert other.receive() == (b"x" * 30_000, [])  # messages of one packet were sent whole or not at all


def test_too_many_open_files_are_an_error_and_leave_none_open(pair: Pair) -> None:
    one, other = pair
    one.send(b"x", [0] * 128)
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="too many open files"):
            other.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(os.listdir("/proc/self/fd")) == before
