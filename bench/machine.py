"""Where and under which conditions a benchmark ran: commit, processor, versions, and the load by other processes."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.metadata
import os
import platform
import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Load", "LoadMeter", "adopt_orphans", "commit", "processor", "versions", "wait_for_orphans"]

ROOT = Path(__file__).parents[1]
MEASURED = ("src", "bench", "tools/fetch_models.py", "CMakeLists.txt", "pyproject.toml")
"""What figures depend on; other changes do not make a commit's figures wrong."""

PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
ORPHANS_END_SECONDS = 10.0  # at most, for example for the processes of a Ray cluster


def commit() -> str:
    """The short hash of the current commit; says if the measured files differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + (" with uncommitted changes" if _git("status", "--porcelain", "--", *MEASURED) else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def processor() -> str:
    """The model of the CPU, its widest vector instructions, and how many cores this process may use."""
    model, flags = platform.machine(), ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = " ".join(value.replace("(R)", "").replace("(TM)", "").split())
        elif key.strip() == "flags":
            flags = value
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags.split()), "")
    cores = len(os.sched_getaffinity(0))
    return ", ".join(filter(None, (model, vectors, f"{cores} core" + "s" * (cores != 1))))


def versions(packages: Sequence[str]) -> str:
    named = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    return ", ".join([f"Python {platform.python_version()}", *named])


@dataclasses.dataclass(frozen=True)
class Load:
    """``before``, ``after``: load averages of one minute. ``foreign``: the share, 0 to 1, of the machine's CPU time
    that other processes and other virtual machines took. ``cpu_seconds``: of this process and its children."""

    before: float
    after: float
    foreign: float
    cpu_seconds: float
    elapsed: float


class LoadMeter:
    """Starts at its creation. Children must have ended, and been waited for, when it stops."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._start = time.perf_counter(), _busy_seconds(), _own_seconds()

    def stop(self) -> Load:
        now = time.perf_counter(), _busy_seconds(), _own_seconds()
        elapsed, busy, own = (after - before for after, before in zip(now, self._start, strict=True))
        foreign = max(0.0, busy - own) / (elapsed * (os.cpu_count() or 1))
        return Load(self._load, os.getloadavg()[0], min(1.0, foreign), own, elapsed)


def _busy_seconds() -> float:
    """CPU seconds of all processors that were not idle, and those that the hypervisor gave to others."""
    name, *ticks = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    assert name == "cpu"
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants whose parent ends, so that their CPU time counts as its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def wait_for_orphans() -> bool:
    """Wait for the children that are left. False if some still run after `ORPHANS_END_SECONDS`."""
    deadline = time.monotonic() + ORPHANS_END_SECONDS
    with contextlib.suppress(ChildProcessError):  # there are no children left
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
        return False
    return True
