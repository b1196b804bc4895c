"""Runs operations with a fault at the n-th call, for every n, or interrupts them, and prints what went wrong as JSON.

``FAULTS_MOST_CALLS`` in the environment: if the operation makes more calls, only about so many of them fail.
Runs in a process of its own with shim.c preloaded; see `faults.shim.Program`.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "helpers")]

from faults.operations import OPERATIONS
from hetero import _graph
from hetero.errors import HeteroError

KINDS = {"memory": 1, "files": 2, "short": 3}
ERRORS = {"memory": (errno.ENOMEM,), "files": (errno.ENOSPC, errno.EIO), "short": (0,)}
FOREVER = 1 << 40
COMPUTATIONS = 1 << 30
"""More than an operation has."""
MOST_COMPUTATIONS = 12
"""How many computations of an operation are interrupted, at least, if it has as many."""


class Shim:
    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int]
        for name in ("faults_disarm", "faults_live"):
            getattr(self._library, name).restype = ctypes.c_long

    def find(self) -> None:
        """Look for the modules of the core, once all that the operation needs are loaded."""
        if not self._library.faults_find():
            raise RuntimeError("no module of the core is loaded")

    def live(self) -> int:
        gc.collect()
        return int(self._library.faults_live())

    def call(self, operation: Callable[[Path], Any], folder: Path, kind: str, n: int, more: int, error: int) -> Any:
        """What the operation returned, the exception that it raised, and how many calls counted."""
        result, raised = None, None
        self._library.faults_arm(KINDS[kind], n, more, error)
        try:
            result = operation(folder)
        except BaseException as caught:
            raised = caught
        finally:
            seen = int(self._library.faults_disarm())
        if callable(result):
            result = result()
        return result, raised, seen


def allowed(name: str, error: BaseException) -> bool:
    """`Model.save` raises `OSError` by contract."""
    return isinstance(error, MemoryError | HeteroError) or (name == "save" and isinstance(error, OSError))


def strange_files(name: str, folder: Path, expected: Any) -> list[str]:
    """Files of a failed operation that are neither absent nor complete, and temporary files that it left."""
    names = [path for path in folder.rglob("*") if path.is_file()]
    left = [path.name for path in names if path.name.startswith(".") and "hetero-" in path.name]
    if name != "cache":
        complete = dict(expected)
        left += [path.name for path in names if path.read_bytes() != complete.get(str(path.relative_to(folder)))]
    return left


def sweep(name: str, kind: str, step: int, first: int) -> dict[str, Any]:
    operation, shim, problems = OPERATIONS[name], Shim(), []
    with tempfile.TemporaryDirectory() as scratch:
        root, number = Path(scratch), 0

        def fresh() -> Path:
            nonlocal number
            number += 1
            (root / str(number)).mkdir()
            return root / str(number)

        operation(fresh())
        shim.find()
        operation(fresh())
        gc.collect()
        gc.freeze()  # so that a collection takes microseconds
        expected, raised, calls = shim.call(operation, fresh(), kind, FOREVER, 0, 0)
        if raised is not None:
            raise raised
        runs = failures = 0
        live = shim.live()
        step = max(step, -(-calls // int(os.environ.get("FAULTS_MOST_CALLS", FOREVER))))
        for n in range(first, calls + 1, step):
            for more in (0, FOREVER) if kind == "memory" else (0,):
                for error in ERRORS[kind]:
                    folder = fresh()
                    result, raised, _ = shim.call(operation, folder, kind, n, more, error)
                    runs += 1
                    where = f"{name}, {kind}, call {n}" + (" and all later ones" if more else "")
                    if raised is None:
                        if result != expected:
                            problems.append(f"{where}: returned something else")
                    else:
                        failures += 1
                        if kind == "short":
                            problems.append(f"{where}: {type(raised).__name__}: {raised}")
                        elif not allowed(name, raised):
                            text = "".join(traceback.format_exception(raised)[-3:])
                            problems.append(f"{where}: {type(raised).__name__}: {text}")
                        if kind != "memory":
                            problems += [f"{where}: left {file}" for file in strange_files(name, folder, expected)]
                    raised = result = None
                    after, _, _ = shim.call(operation, fresh(), kind, FOREVER, 0, 0)
                    if after != expected:
                        problems.append(f"{where}: the next run returned something else")
                    after = None
                    before, live = live, shim.live() if kind == "memory" else 0
                    if live > before and _leaks(shim, operation, fresh, n, more):
                        problems.append(f"{where}: leaks in each run")
            if len(problems) > 20:
                break
    return {"calls": calls, "runs": runs, "failures": failures, "problems": problems}


def sweep_interrupts(name: str, finest: int) -> dict[str, Any]:
    """Interrupts each computation of the core in the operation, at points of its work that lie a ``finest``-th of the
    work before them apart, or one unit."""
    operation, shim, problems = OPERATIONS[name], Shim(), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        operation(folder)
        shim.find()
        expected = operation(folder)
        _graph.interrupt(COMPUTATIONS)
        operation(folder)
        computations = COMPUTATIONS - _graph.interrupt(-1)
        gc.collect()
        gc.freeze()
        runs = failures = 0

        def interrupted(computation: int, work: int) -> bool:
            """Whether the operation was interrupted."""
            result, raised = None, None
            _graph.interrupt(computation, work)
            try:
                result = operation(folder)
            except BaseException as caught:
                raised = caught
            finally:
                _graph.interrupt(-1)
            where = f"{name}, computation {computation}, interrupted after {work} units of work"
            if raised is None:
                if result != expected:
                    problems.append(f"{where}: returned something else")
            elif not isinstance(raised, KeyboardInterrupt):
                problems.append(f"{where}: " + "".join(traceback.format_exception(raised)[-3:]))
            return raised is not None

        for computation in range(0, computations, 1 + computations // MOST_COMPUTATIONS):
            before, work = shim.live(), 0
            while len(problems) < 20:
                runs += 1
                if not interrupted(computation, work):
                    break
                failures += 1
                work += 1 + work // finest
            if operation(folder) != expected:
                problems.append(f"{name}, computation {computation}, interrupted: the next run returned something else")
            if work and shim.live() > before:
                before = shim.live()
                for _ in range(3):
                    interrupted(computation, work // 2)
                if shim.live() >= before + 3:
                    problems.append(f"{name}, computation {computation}: leaks where it is interrupted")
    return {"calls": computations, "runs": runs, "failures": failures, "problems": problems}


def _leaks(shim: Shim, operation: Callable[[Path], Any], fresh: Callable[[], Path], n: int, more: int) -> bool:
    """Whether each of several runs leaves more blocks of the core than the run before."""
    before = shim.live()
    for _ in range(3):
        shim.call(operation, fresh(), "memory", n, more, errno.ENOMEM)
        operation(fresh())
        after = shim.live()
        if after <= before:
            return False
        before = after
    return True


def run(name: str, kind: str, step: int, first: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sweep_interrupts(name, finest=step) if kind == "interrupts" else sweep(name, kind, step, first)


def main() -> None:
    """For each line of arguments, a line with what a fork of this process finds, and one with its wait status."""
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            signal.alarm(600)  # if it hangs: the time after which pytest ends (faulthandler_timeout)
            print(json.dumps(run(*json.loads(line))), flush=True)
            return
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
