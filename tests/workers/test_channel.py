"""Messages between a process and its worker: whole, in order, or an error."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from hetero.workers.channel import BrokenChannel, Channel

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    yield one, two
    one.close()
    two.close()


@pytest.mark.parametrize("size", [0, 1, 100, (1 << 14) - 8, (1 << 14) - 7, 1 << 16, 5_000_000])
def test_messages_of_all_sizes_come_whole(pair: Pair, size: int) -> None:
    one, other = map(Channel, pair)
    message = os.urandom(size)
    sender = threading.Thread(target=lambda: [one.send(number, message) for number in (7, (1 << 32) - 1)])
    sender.start()
    assert other.receive() == (7, message)
    assert other.receive() == ((1 << 32) - 1, message)
    sender.join()


def test_several_messages_at_once_are_told_apart(pair: Pair) -> None:
    one, other = map(Channel, pair)
    for number in range(50):
        one.send(number, bytes([number]) * number)
    for number in range(50):
        assert other.receive() == (number, bytes([number]) * number)


def test_pieces_make_a_message(pair: Pair) -> None:
    one, two = pair
    channel = Channel(two)
    whole = struct.pack("<II", 5, 3) + b"hello" + struct.pack("<II", 0, 4)
    waits = 0

    def wait(to_receive: bool) -> None:
        nonlocal waits
        assert to_receive
        one.send(whole[waits : waits + 1])
        waits += 1

    two.setblocking(False)
    assert channel.receive(wait) == (3, b"hello")
    assert channel.receive(wait) == (4, b"")
    assert waits == len(whole)


def test_what_interrupts_waiting_loses_nothing(pair: Pair) -> None:
    one, two = pair
    channel = Channel(two)
    two.setblocking(False)
    whole = struct.pack("<II", 5, 3) + b"hello"
    one.send(whole[:9])

    def wait(to_receive: bool) -> None:
        poll = select.poll()
        poll.register(two, select.POLLIN)
        if not poll.poll(0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        channel.receive(wait)
    one.send(whole[9:])
    assert channel.receive(wait) == (3, b"hello")


def test_a_message_cut_short_is_an_error() -> None:
    for sent in (b"", b"\5\0\0", struct.pack("<II", 5, 3) + b"hell"):
        one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        one.send(sent)
        one.close()
        with pytest.raises(BrokenChannel):
            Channel(two).receive()
        two.close()


def test_a_size_that_no_message_has_is_an_error(pair: Pair) -> None:
    one, two = pair
    one.send(b"\xff" * 8)
    with pytest.raises(BrokenChannel, match="4294967295 B"):
        Channel(two).receive()


def test_nobody_there_is_an_error_and_no_signal(pair: Pair) -> None:
    one, other = map(Channel, pair)
    other.close()
    with pytest.raises(BrokenChannel):
        one.send(1, b"hello")


def test_after_half_a_message_nothing_more_is_sent(pair: Pair) -> None:
    one, two = pair
    one.setblocking(False)
    channel = Channel(one)

    def wait(to_receive: bool) -> None:
        assert not to_receive
        raise TimeoutError

    with pytest.raises(TimeoutError):
        channel.send(1, bytes(10_000_000), wait)
    assert len(two.recv(1 << 20)) > 0
    with pytest.raises(BrokenChannel, match="an earlier message was incomplete"):
        channel.send(2, b"hello", wait)
