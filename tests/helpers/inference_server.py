"""Shape inference of the tests, in one process instead of a new process each time.

`hetero.model.isolation` starts a Python process for each model whose inference is not bounded, which takes 20 to 70 ms
and happens tens of thousands of times in the tests. With `install`, a fork of a process that has already loaded onnx's
library infers one model after another, under the same limits, and answers for small models are kept. New processes as
in `isolation` remain in tests/model/test_isolation.py, and in all programs that tests start.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnx import helper

from hetero.model import isolation

__all__ = ["install", "new_processes"]

_CHILD = isolation._CHILD
_START = [sys.executable, "-I", "-S", "-c"]  # as isolation does
_run = subprocess.run
_SMALL = 8 << 10  # B, of a model and its answer
_MOST_ANSWERS = 10_000
_MOST_GROWTH = 4 << 20  # B, of a child that goes on: a sixteenth of what isolation allows the smallest model
_INPUT_ENDED = 3  # the exit status of a child

# A child reads the sizes of the arguments and of the model, the arguments and the model, and writes the exit status and
# the output, for one model after another. It sets its limits as a new process would, but only the soft ones, so that it
# can lift them. It ends when a model fails, or has made it grow, because free memory would loosen the next limit. Then
# this process forks another child. If a child is killed, this process writes how. The library can be loaded only once,
# so a fork gets what is loaded, with the schemas that the first inference makes.
_PROGRAM = f"""
import importlib.machinery, importlib.util, io, mmap, os, resource, signal, struct, sys, types
program, library, first = compile(sys.argv[1], "child", "exec"), sys.argv[2], bytes.fromhex(sys.argv[3])
loader = importlib.machinery.ExtensionFileLoader("onnx_cpp2py_export", library)
loaded = importlib.util.module_from_spec(importlib.util.spec_from_file_location(loader.name, library, loader=loader))
loader.exec_module(loaded)
loaded.shape_inference.infer_shapes(first, False, False, True)
importlib.machinery.ExtensionFileLoader = lambda *_: types.SimpleNamespace(exec_module=lambda _: None)
importlib.util.spec_from_file_location = lambda *_, **__: None
importlib.util.module_from_spec = lambda _: loaded
before = {{kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CORE)}}
set_limit = resource.setrlimit
resource.setrlimit = lambda kind, limits: set_limit(kind, (limits[0], before[kind][1]))
source, sink = sys.stdin.buffer, sys.stdout.buffer

def used():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()

def answer():
    sizes = source.read(16)
    if not sizes:
        os._exit({_INPUT_ENDED})
    arguments, model = map(source.read, struct.unpack("<2q", sizes))
    sys.argv = ["-c", *arguments.decode().split("\\0")]
    sys.stdin = types.SimpleNamespace(buffer=io.BytesIO(model))
    sys.stdout = types.SimpleNamespace(buffer=io.BytesIO())
    code = 1
    try:
        exec(program, {{}})
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        pass
    signal.setitimer(signal.ITIMER_PROF, 0)
    set_limit(resource.RLIMIT_AS, before[resource.RLIMIT_AS])
    output = sys.stdout.buffer.getvalue()
    sink.write(struct.pack("<2q", code, len(output)) + output)
    sink.flush()
    return code

code = 0
while code != {_INPUT_ENDED}:
    child = os.fork()
    if child == 0:
        least = used()
        while answer() == 0 and used() - least < {_MOST_GROWTH}:
            pass
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        sink.write(struct.pack("<2q", code, 0))
        sink.flush()
"""


class _Server:
    def __init__(self, library: str) -> None:
        node, sizes = helper.make_node("Relu", ["x"], ["y"]), helper.make_tensor_value_info("x", 1, [1])
        graph = helper.make_graph([node], "first", [sizes], [helper.make_empty_tensor_value_info("y")])
        first = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*_START, _PROGRAM, _CHILD, library, first.SerializeToString().hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            start_new_session=True,
        )

    def answer(self, arguments: list[str], model: bytes) -> tuple[int, bytes]:
        """The exit status and the output of the program."""
        sent, received = self._process.stdin, self._process.stdout
        assert sent is not None
        assert received is not None
        texts = "\0".join(arguments).encode()
        with self._lock:
            sent.write(struct.pack("<2q", len(texts), len(model)) + texts + model)
            sent.flush()
            code, size = struct.unpack("<2q", received.read(16))
            return code, received.read(size)

    def close(self) -> None:
        if self.owner == os.getpid():
            with self._process:  # closes its pipes, at which it ends
                pass


def install() -> None:
    """Now, so that no test sees a process or descriptors more than before it."""
    library = isolation._onnx_library()
    if library is None:
        return
    server = _Server(library)
    atexit.register(server.close)
    answers: dict[tuple[str, ...], bytes] = {}  # of small models, which several tests read

    def run(command: Any, *rest: Any, **options: Any) -> Any:
        """`subprocess.run`. The server runs the program of `isolation`, except in a fork of the tests, which must not
        share its pipes, with an environment of its own, or with limits that the program would inherit. Where it fails
        there, a new process says how it ends."""
        if (
            command[:-3] != [*_START, _CHILD]
            or server.owner != os.getpid()
            or "GLIBC_TUNABLES" in options["env"]
            or isolation._is_limited()
        ):
            return _run(command, *rest, **options)
        model = options["input"]
        key = (*command[-3:], hashlib.sha256(model).hexdigest())
        if key in answers:
            return subprocess.CompletedProcess(command, 0, answers[key])
        code, output = server.answer(command[-3:], model)
        if code:
            return _run(command, *rest, **options)
        if len(model) + len(output) <= _SMALL and len(answers) < _MOST_ANSWERS:
            answers[key] = output
        return subprocess.CompletedProcess(command, code, output)

    subprocess.run = run  # type: ignore[assignment]


@contextmanager
def new_processes() -> Iterator[None]:
    """Each inference starts its process, as without `install`."""
    before, subprocess.run = subprocess.run, _run  # type: ignore[assignment]
    try:
        yield
        assert subprocess.run is _run, "what is undone later would end the use of the server"
    finally:
        subprocess.run = before  # type: ignore[assignment]
