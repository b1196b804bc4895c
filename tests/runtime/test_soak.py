"""Nothing gathers: bench/soak.py at reduced counts, and that it would tell.

The full version, by hand: python bench/soak.py
"""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from soak import LIMITS, Kind, growth_of

SOAK = Path(__file__).parents[2] / "bench" / "soak.py"

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")


@pytest.mark.soak
def test_nothing_gathers() -> None:
    """In a process of its own, which no other test has touched. ``HETERO_SOAK_SHARE``: of the full version."""
    share = os.environ.get("HETERO_SOAK_SHARE", "0.01")
    done = subprocess.run([sys.executable, str(SOAK), "--share", share], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| infer, ") >= 5


@pytest.fixture
def frozen() -> None:
    """The collections after each round do not visit what other tests left, which takes longer than the rest."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def leaks(frozen: None) -> Iterator[dict[str, Callable[[], object]]]:
    kept: list[object] = []
    files: list[int] = []
    threads: list[threading.Thread] = []
    ended = threading.Event()

    def keep_pages() -> None:
        """From the system: the heap may have free ones from earlier tests."""
        pages = mmap.mmap(-1, 1 << 15)
        pages.write(b"x" * len(pages))
        kept.append(pages)

    def keep_thread() -> None:
        threads.append(threading.Thread(target=ended.wait))
        threads[-1].start()

    yield {
        "resident": keep_pages,
        "heap": lambda: kept.append(bytearray(1000)),
        "blocks": lambda: kept.append(object()),
        "threads": keep_thread,
        "descriptors": lambda: files.append(os.open(os.devnull, os.O_RDONLY)),
    }
    ended.set()
    for file in files:
        os.close(file)
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("what", LIMITS)
def test_a_leak_is_found(what: str, leaks: dict[str, Callable[[], object]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak.THREADS_END_SECONDS", 0.0)
    repetitions = 20 if what in ("threads", "descriptors") else 1000
    assert what in growth_of(Kind("leak", repetitions, leaks[what])).excess()


@pytest.mark.usefixtures("frozen")
def test_what_is_given_back_is_no_leak() -> None:
    found = growth_of(Kind("none", 1000, lambda: [object(), bytearray(1000)]))
    assert not found.excess()
