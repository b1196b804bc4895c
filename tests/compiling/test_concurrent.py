"""Concurrent compilations: results, errors, and Ctrl-C while waiting for one."""

from __future__ import annotations

import functools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from onnx import helper

import hetero
from hetero.compiling.concurrent import ConcurrentCalls
from hetero.plugin import CompiledModel, Plugin, Support
from model_zoo import make_model

needs_main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="only the main thread receives signals"
)


def test_results_and_errors_by_number() -> None:
    def fail() -> int:
        raise ValueError("mine")

    calls = ConcurrentCalls([lambda: 1, fail, lambda: 3], 2)
    assert (calls.result(2), calls.result(0)) == (3, 1)
    with pytest.raises(ValueError, match="mine"):
        calls.result(1)


class Hanging(Plugin):
    """Compiles nothing before ``gate`` is open."""

    name = "HANGING"
    compiles_beside_others = True  # so that hetero waits, and not this plugin in the calling thread

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        refused = {i: "only Relu" for i in range(model.num_nodes) if model.nodes[i].op_type != "Relu"}
        return Support.from_reasons(model.num_nodes, refused)

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        self.gate.wait()
        raise ValueError("the test is over")


@pytest.fixture
def hanging(core: hetero.Core) -> Iterator[Hanging]:
    plugin = Hanging()
    core.register_plugin("HANGING", lambda: plugin)
    yield plugin
    plugin.gate.set()


def interrupted(call: Callable[[], Any], after: float, in_main: bool) -> float:
    """The time in s from a Ctrl-C, ``after`` s after the call begins, to its end. ``in_main``: False has another thread
    receive the signal. It then interrupts no wait, like a signal just before the wait.

    The signal is sent again each 5 s: Python drops an exception that a handler raises in the callback of a weak
    reference, such as to a thread that has ended. That happens to about one of 2,000 signals here.
    """
    sent: list[float] = []
    ended = threading.Event()

    def interrupt() -> None:
        time.sleep(after)
        sent.append(time.monotonic())
        receiver = threading.main_thread().ident if in_main else threading.get_ident()
        assert receiver is not None
        while not ended.is_set():
            signal.pthread_kill(receiver, signal.SIGINT)
            ended.wait(5)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal can come before the call
        thread.start()
        call()
    ended.set()
    thread.join()
    return time.monotonic() - sent[0]


# Python drops an exception that a signal raises in the callback of a weak reference, and reports it as a warning.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@needs_main_thread
@pytest.mark.parametrize(("in_main", "times"), [(True, 50), (False, 4)])
def test_ctrl_c_while_a_call_hangs(interruptible: None, in_main: bool, times: int) -> None:
    gate = threading.Event()
    delays = random.Random(0)
    try:
        for _ in range(times):
            calls = ConcurrentCalls([gate.wait], 1)
            assert interrupted(functools.partial(calls.result, 0), delays.uniform(0, 3e-4), in_main) < 20
    finally:
        gate.set()


# Python drops an exception that a signal raises in the callback of a weak reference, and reports it as a warning.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@needs_main_thread
@pytest.mark.parametrize(("in_main", "times"), [(True, 50), (False, 4)])
def test_ctrl_c_while_a_device_compiles(
    core: hetero.Core, hanging: Hanging, interruptible: None, in_main: bool, times: int
) -> None:
    chain = ["Relu", "Exp", "Relu", "Exp", "Relu"]
    names = ["x", *(f"v{i}" for i in range(len(chain) - 1)), "y"]
    model = core.read_model(
        make_model([helper.make_node(op, [a], [b]) for op, a, b in zip(chain, names, names[1:], strict=False)])
    )
    plan = core.plan(model, "HETERO:HANGING,CPU")
    delays = random.Random(0)
    for _ in range(times):
        assert interrupted(functools.partial(core.compile_model, model, plan), delays.uniform(0, 0.02), in_main) < 20
