"""Errors of plugins name the device and the stage."""

from __future__ import annotations

import signal
import threading

import pytest

from hetero.base.guard import guarded, within
from hetero.errors import HeteroError, PropertyError


@pytest.mark.parametrize(("subject", "work"), [("'m'", "compile 'm'"), ("", "compile")])
def test_messages_name_the_stage(subject: str, work: str) -> None:
    def known() -> None:
        raise PropertyError("wrong")

    def unknown() -> None:
        raise KeyError("k")

    with pytest.raises(PropertyError) as caught:
        guarded("NPU", "compile", subject, known)
    assert caught.value.__notes__ == [f"in {work}, by NPU"]

    def own() -> None:
        raise PropertyError("NPU has no property 'A'")

    with pytest.raises(PropertyError) as caught:
        guarded("NPU", "compile", subject, own)
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(HeteroError, match=f"^NPU failed in {work}: KeyError: 'k'$"):
        guarded("NPU", "compile", subject, unknown)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_another_thread_receives_ends_the_wait() -> None:
    begun, interrupted, ended_in_time = threading.Event(), threading.Event(), []

    def call() -> None:
        begun.set()
        ended_in_time.append(interrupted.wait(20))

    def interrupt() -> None:
        begun.wait()
        signal.raise_signal(signal.SIGINT)

    thread = threading.Timer(0.2, interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        within(30_000, call)
    interrupted.set()
    thread.join()
    assert ended_in_time != [False], "the wait ended only after the call"
