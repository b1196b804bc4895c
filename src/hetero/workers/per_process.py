"""An object that exists once per process. It is created on first use, and a forked child creates its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PerProcess"]

Held = TypeVar("Held")


class PerProcess(Generic[Held]):
    """Thread-safe. ``make`` creates the object, and creates it again if ``is_over`` returns True for the old one."""

    def __init__(
        self,
        make: Callable[[], Held],
        is_over: Callable[[Held], bool] = lambda _: False,
    ) -> None:
        self._make = make
        self._is_over = is_over
        self._lock = threading.Lock()
        self._held: Held | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def get(self) -> Held:
        with self._lock:
            if self._held is None or self._is_over(self._held):
                self._held = self._make()
            return self._held

    def _in_child(self) -> None:
        self._lock = threading.Lock()
        self._held = None
