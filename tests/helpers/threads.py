"""Running a function in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["in_threads"]


def in_threads(work: Callable[[Any], object], arguments: Collection[Any]) -> None:
    """Call ``work`` with each argument, each in its own thread; all start together. Raises what a call raised."""
    together = threading.Barrier(len(arguments))

    def begin(argument: Any) -> None:
        together.wait()
        work(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        list(pool.map(begin, arguments))
