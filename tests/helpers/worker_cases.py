"""For tests of worker processes: a model, and what the system knows about processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from onnx import TensorProto, helper

__all__ = ["children_of", "identity", "lives", "parent_of", "resident_bytes", "stop", "until"]


def identity(name: str = "identity") -> bytes:
    port = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n"]) for value in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"], name="it")], name, port[:1], port[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def until(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def stat(process: int) -> list[str]:
    """The fields of its /proc/PID/stat that come after its name: state, parent, ..."""
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()


def parent_of(process: int) -> int:
    return int(stat(process)[1])


def children_of(process: int) -> set[int]:
    found = set()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if parent_of(int(name)) == process and lives(int(name)):
                found.add(int(name))
    return found


def lives(process: int) -> bool:
    try:
        return stat(process)[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def stop(process: int) -> None:
    """Stop all of its threads, and wait until they have."""
    os.kill(process, signal.SIGSTOP)

    def state(thread: str) -> str:
        try:
            with open(f"/proc/{process}/task/{thread}/stat") as file:
                return file.read().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended: look at those that are left
            return ""

    assert until(lambda: all(state(thread) == "T" for thread in os.listdir(f"/proc/{process}/task")))


def resident_bytes(process: int) -> int:
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
