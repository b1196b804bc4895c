"""Sends files through every stage, each in a forked process of its own, and reports how that went.

Reads a JSON request a line (``path``, ``until``: the last stage, ``limit_s``); answers one a line: ``stage`` that
failed ("fine" if none did), ``error`` (class), ``is_hetero`` (if it is one of hetero's), ``message``, and per stage
``cpu_s`` and ``growth`` (of resident memory at its peak, in bytes) until its end; or ``died`` with the reason.
Everything is imported and warmed up before the first fork, so that only what the file causes is measured.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.reference
import onnx.shape_inference  # noqa: F401

import hetero
import hetero.model.inference
from hetero.errors import HeteroError
from hetero.model.read import read_model

_HEADROOM = 8 << 30  # of address space, so that a case that fails the test does not fail the machine
_DEVICES = "HETERO:CPU,TEMPLATE"
_LARGEST_INPUT = 10_000_000


def _memory(key: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))


def _cpu() -> float:
    """CPU seconds of this process and its children."""
    return sum(os.times()[:4])


def look(model: hetero.Model) -> None:
    """All that a model can be asked."""
    for value in range(model.num_values):
        model.value_name(value)
        if model.is_constant[value]:
            model.constant(value)
        else:
            model.type_of(value)
    for node in model.nodes:
        assert node.key == model.key_of(node.index)
        assert node.opset >= 1
        assert repr(node)
        assert node.attributes is not None
    assert model.inputs is not None
    assert model.outputs is not None
    assert model.affinity is not None
    assert model.graph.num_nodes == model.num_nodes


def stages(path: str) -> list[tuple[str, Any]]:
    state: dict[str, Any] = {}

    def read() -> None:
        state["model"] = read_model(path)

    def compile_() -> None:
        state["compiled"] = hetero.Core().compile_model(state["model"], _DEVICES)

    def run() -> None:
        feeds = {}
        for port in state["compiled"].inputs:
            shape = [dim if isinstance(dim, int) else 2 for dim in port.shape or ()]
            if math.prod(shape) > _LARGEST_INPUT:
                return  # nobody has such an input to give
            feeds[port.name] = np.zeros(shape, port.dtype or np.float32)
        state["compiled"](feeds)

    def write() -> None:
        data = state["model"].to_bytes()
        assert read_model(data).num_nodes == state["model"].num_nodes
        if state["model"].num_nodes:
            state["model"].extract([0]).to_bytes()

    return [
        ("read", read),
        ("look", lambda: look(state["model"])),
        ("write", write),
        ("compile", compile_),
        ("run", run),
    ]


def attempt(path: str, until: str, report: Callable[[str], object] = lambda _: None) -> dict[str, Any]:
    before, start = _memory("VmRSS"), _cpu()
    answer: dict[str, Any] = {"stage": "fine", "cpu_s": {}, "growth": {}}
    for name, step in stages(path):
        report(name)
        try:
            step()
        except Exception as error:
            answer |= {
                "stage": name,
                "error": type(error).__name__,
                "is_hetero": isinstance(error, HeteroError),
                "message": str(error)[:4000],
                "message_length": len(str(error)),
            }
        answer["cpu_s"][name] = round(_cpu() - start, 3)
        answer["growth"][name] = _memory("VmHWM") - before
        if answer["stage"] != "fine" or name == until:
            break
    return answer


def child(path: str, until: str, limit: float, pipe: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # whose shadow takes terabytes of address space
        space = _memory("VmSize") + _HEADROOM
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
    with open(pipe, "w", buffering=1) as out:
        json.dump(attempt(path, until, lambda stage: out.write(stage + "\n")), out)


def run_forked(path: str, until: str, limit: float) -> dict[str, Any]:
    assert len(os.listdir("/proc/self/task")) == 1, "fork needs a process without threads"
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        status = 1
        try:
            child(path, until, limit, writing)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    answer = b""
    deadline = time.monotonic() + 10 * limit
    with open(reading, "rb", buffering=0) as pipe:
        while True:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return {"died": f"no answer within {10 * limit} s", "reached": answer.decode().split()}
            chunk = pipe.read(1 << 16)
            if not chunk:
                break
            answer += chunk
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return {"died": signal.Signals(os.WTERMSIG(status)).name, "reached": answer.decode().split()}
    if os.WEXITSTATUS(status):
        return {"died": f"exit status {os.WEXITSTATUS(status)}", "reached": answer.decode().split()}
    return json.loads(answer.splitlines()[-1])


def main() -> None:
    control = Path(sys.argv[1])
    warm = attempt(str(control), "run")
    assert warm["stage"] == "fine", warm
    print(json.dumps(run_forked(str(control), "run", 10)), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run_forked(request["path"], request["until"], request["limit_s"])), flush=True)


if __name__ == "__main__":
    main()
