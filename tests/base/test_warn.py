"""Warnings that are issued once per call."""

from __future__ import annotations

import functools
import threading
import warnings

from hetero.base.warn import each_once, warn
from hetero.compiling.concurrent import ConcurrentCalls


def test_messages_about_one_thing_are_issued_once() -> None:
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        with each_once():
            warn("4 values", about="FPGA")
            calls = ConcurrentCalls([lambda: warn("3 values", about="FPGA"), lambda: warn("3 values", about="NPU")], 2)
            for number in range(2):
                calls.result(number)
            warn("other")
            warn("other")
        warn("other")
    assert [str(one.message) for one in issued] == ["4 values", "3 values", "other", "other"]


def test_threads_of_a_call_warn_at_the_line_of_the_call() -> None:
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        with each_once():
            ConcurrentCalls([functools.partial(warn, "slow")], 1).result(0)
        thread = threading.Thread(target=warn, args=["on its own"])
        thread.start()
        thread.join()
    assert [str(one.message) for one in issued] == ["slow", "on its own"]
    assert issued[0].filename == __file__


def test_the_default_filter_shows_a_line_once() -> None:
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("default")
        for _ in range(2):
            warn("again")
    assert len(issued) == 1
