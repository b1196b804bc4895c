"""Kills processes at random moments of what they do, and looks at what is left.

    python tests/faults/kills.py export --times 1000
    python tests/faults/kills.py all --times 1000          # every operation

A child process repeats an operation until it is killed, half of the times as soon as it writes a file. The file of the
operation must then be the old or the new one, whole. The next process must do the operation without an error and leave
no file of the killed one, no process of it may remain, and this process may not have more descriptors or shared memory
than before.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "helpers")]

import hetero
from faults import operations
from hetero.compiling.splitting import read_manifest

ENDING_SECONDS = float(os.environ.get("ENDING_SECONDS", "30"))
"""How long processes of a killed one may take to end."""

_PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass(frozen=True)
class Killed:
    """``repeat``: called again and again with the folder and its number, until the process is killed. ``states``: the
    contents of the files, without temporary ones, that the folder may hold afterwards: after a call with an even number
    and after one with an odd number; None if that is not fixed. ``check``: raises if what is left is unusable."""

    repeat: Callable[[Path, int], Any]
    is_fixed: bool = True
    check: Callable[[Path], Any] = lambda folder: None


ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}


def _export(folder: Path, number: int) -> None:
    _exported(number % 2).export_model(folder / "net.hetero")


@functools.cache
def _exported(which: int) -> hetero.CompiledModel:
    device, pins = (("CPU", None), (operations.DEVICES, {"op:Conv": "TEMPLATE"}))[which]
    return hetero.Core().compile_model(operations.model_bytes(), device, ONE_THREAD, pins=pins)


def _import(folder: Path) -> None:
    for path in folder.glob("*.hetero"):
        hetero.artifact.verify(path)
        hetero.load(path, config=ONE_THREAD)(operations.inputs())


def _save(folder: Path, number: int) -> None:
    model = hetero.Core().read_model(operations.model_bytes())
    if number % 2:
        model = model.extract(range(4))
    model.save(folder / "net.onnx", external_above=100)


def _saved(folder: Path) -> None:
    (path,) = folder.glob("*.onnx")
    found, read = hetero.Core().read_model(path), hetero.Core().read_model(operations.model_bytes())
    for model in (read, read.extract(range(4))):
        if [node.key for node in model.nodes] == [node.key for node in found.nodes]:
            break
    else:
        raise AssertionError("another model")
    for value in range(model.num_values):
        if model.is_constant[value]:
            twin = found.find_value(model.value_name(value))
            assert twin is not None
            assert found.constant(twin).tobytes() == model.constant(value).tobytes()


def _split(folder: Path, number: int) -> None:
    target, gone = folder / "parts", folder / "gone"
    shutil.rmtree(gone, ignore_errors=True)
    if number % 2 and target.exists():
        target.rename(gone)
    if not target.exists():
        hetero.split(operations.model_bytes(), operations._plan(), target, external_above=100)


def _parts(folder: Path) -> None:
    if (folder / "parts" / "manifest.json").exists():
        manifest = read_manifest(folder / "parts")
        for part in manifest.parts:
            hetero.Core().read_model(folder / "parts" / part.file)


def _save_plan(folder: Path, number: int) -> None:
    _planned(number % 2).save(folder / "plan.json")


@functools.cache  # planning takes far longer than saving, which is what a kill should interrupt
def _planned(which: int) -> hetero.Plan:
    pins = {} if which else {"op:Conv": "CPU"}
    return hetero.Core().plan(operations.model_bytes(), operations.DEVICES, pins=pins)


def _plans(folder: Path) -> None:
    for path in folder.glob("*.json"):
        hetero.Plan.load(path)


def _cache(folder: Path, number: int) -> None:
    """Into an empty cache, and into one with the entry."""
    if number % 2 == 0:
        shutil.rmtree(folder / "cache", ignore_errors=True)
    config = {**ONE_THREAD, "CACHE_DIR": str(folder / "cache")}
    hetero.Core().compile_model(operations.model_bytes(), "CPU", config)


def _cached(folder: Path) -> None:
    for path in folder.glob("cache/*"):
        if not path.name.startswith("."):
            hetero.artifact.verify(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a damaged entry
        config = {**ONE_THREAD, "CACHE_DIR": str(folder / "cache")}
        found = hetero.Core().compile_model(operations.model_bytes(), "CPU", config)
    _same(found)


def _same(compiled: hetero.CompiledModel) -> None:
    expected = operations._results(_exported(0))
    if operations._results(compiled) != expected:
        raise AssertionError("results differ")


def _worker(folder: Path, number: int) -> None:
    config = {**ONE_THREAD, "ISOLATION": "PROCESS"}
    compiled = hetero.Core().compile_model(operations.model_bytes(), "CPU", config)
    for _ in range(number % 5):
        compiled(operations.inputs())


OPERATIONS: dict[str, Killed] = {
    "export": Killed(_export, check=_import),
    "save": Killed(_save, is_fixed=False, check=_saved),
    "split": Killed(_split, is_fixed=False, check=_parts),
    "save_plan": Killed(_save_plan, check=_plans),
    "cache": Killed(_cache, is_fixed=False, check=_cached),
    "worker": Killed(_worker, is_fixed=False),
}


# ---- operations with a defect, which the harness must find


def _torn(folder: Path, number: int) -> None:
    with open(folder / "file", "wb", buffering=0) as file:
        for _ in range(20):
            file.write(b"x")
            time.sleep(0.001)


def _whole(folder: Path) -> None:
    if (folder / "file").stat().st_size not in (0, 20):
        raise AssertionError("the file is torn")


def _leaving(folder: Path, number: int) -> None:
    (folder / ".x.hetero-part").touch()


def _orphans(folder: Path, number: int) -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(0.05)


def _ending(folder: Path, number: int) -> None:
    os._exit(3)


DEFECTS = {
    "torn": Killed(_torn, is_fixed=False, check=_whole),
    "leaving": Killed(_leaving, is_fixed=False),
    "orphans": Killed(_orphans, is_fixed=False),
    "ending": Killed(_ending, is_fixed=False),
}
ALONE = ("worker", *DEFECTS)
"""Operations that this process does not do itself: they leave threads, which a fork does not copy, or do harm."""


# ---- what is left


def is_temporary(path: Path) -> bool:
    """Whether a file is unfinished: a temporary one, or an empty one that reserves the name of a data file."""
    if any(part.startswith(".") and ".hetero-" in part for part in path.parts):
        return True
    return path.suffix == ".data" and path.exists() and path.stat().st_size == 0


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder but temporary ones. Names that hold random numbers count by their kind."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not is_temporary(path):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def temporary(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if is_temporary(path)]


def is_writing(folder: Path, left: list[str]) -> bool:
    """Whether there is a temporary file besides those that were ``left``."""
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        return bool(set(temporary(folder)) - set(left))
    return False


def shared_memory() -> int:
    """Objects of shared memory in the file system."""
    return len(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else 0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]


def wait_for_orphans() -> list[str]:
    """Wait until the processes that a killed one left have ended. Returns those that have not."""
    end = time.monotonic() + ENDING_SECONDS
    while time.monotonic() < end:
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if not done:
            time.sleep(0.002)
    left = []
    for process in children():
        command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        left.append(f"process {process}: {command[:200]}")
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return left


# ---- the sweep


def _forked(work: Callable[[], Any]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def sweep(name: str, times: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Kill ``times`` processes. Returns counts and problems."""
    operation = {**OPERATIONS, **DEFECTS}[name]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    choose = random.Random(f"{name} {seed}")
    seen: Counter[str] = Counter()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(scratch)
        states = []
        for number in range(2):
            if name not in ALONE:
                operation.repeat(folder, number)
                states.append(contents(folder))
        start = time.monotonic()
        _, status = os.waitpid(_forked(lambda: operation.repeat(folder, 4)), 0)
        took = time.monotonic() - start
        problems += wait_for_orphans() + ([] if status == 0 else [f"{name}: fails without being killed"])
        before = descriptors(), shared_memory()
        left: list[str] = []
        for turn in range(times):
            if problems and len(problems) > 20:
                break

            def work() -> None:
                number = 0
                while True:
                    operation.repeat(folder, number)
                    number += 1

            child = _forked(work)
            end = time.monotonic() + choose.uniform(0, 3 * took)
            while time.monotonic() < end and not (turn % 2 and is_writing(folder, left)):
                time.sleep(1e-4)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            where = f"{name}, kill {turn}"
            if not os.WIFSIGNALED(status):
                problems.append(f"{where}: it ended before it was killed, with {status}")
            problems += [f"{where}: {orphan}" for orphan in wait_for_orphans()]
            before_it, left = left, temporary(folder)
            seen["interrupted while writing" if set(left) - set(before_it) else "between writes"] += 1
            found = contents(folder)
            if operation.is_fixed and found not in states:
                problems.append(f"{where}: left something else: {sorted(found)}")
            try:
                operation.check(folder)
            except Exception as error:
                problems.append(f"{where}: left what cannot be used: {type(error).__name__}: {str(error)[:500]}")
            if turn % 8 == 7 or turn == times - 1:  # the next process removes what is left
                _, status = os.waitpid(_forked(lambda: [operation.repeat(folder, number) for number in range(2)]), 0)
                if status:
                    problems.append(f"{where}: the next process fails with status {status}")
                problems += [f"{where}: left {path}" for path in temporary(folder)] + wait_for_orphans()
        after = descriptors(), shared_memory()
        if after > before:
            problems.append(f"{name}: descriptors and objects of shared memory grew from {before} to {after}")
    return seen, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", choices=[*OPERATIONS, *DEFECTS, "all"])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    failed = False
    for name in OPERATIONS if chosen.operation == "all" else (chosen.operation,):
        seen, problems = sweep(name, chosen.times, chosen.seed)
        print(*problems, f"{name}: {chosen.times} kills, {dict(seen)}, {len(problems)} problems", sep="\n", flush=True)
        failed |= bool(problems)
    return failed


if __name__ == "__main__":
    sys.exit(main())
