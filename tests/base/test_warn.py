"""Warnings that are issued once per call."""

from __future__ import annotations

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
