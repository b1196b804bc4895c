"""The arena of this machine's memory that all sessions share.

By default, each session has an arena of its own. Subgraphs that run one after the other then write to different memory,
which is in no cache; with one arena, each uses the memory that the subgraph before has just released. MiniLM in 20
sessions takes 3 to 6 % less time, and five sessions that each use 128 MiB take as much memory as one.

An arena returns memory to the system only if a run asks for it. So that a dropped model leaves no memory behind, its
`Lease` runs a tiny model in this way.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable

import numpy as np

from ...errors import raise_out_of_memory
from . import backend

__all__ = ["Lease", "lease"]

# A model of one node, y = Identity(x), with one element of uint8.
_TINY = (
    b'\x08\x07:6\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x00Z\x0f\n\x01x\x12\n\n\x08\x08\x02\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x02\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)


class _Arena:
    """The arena, registered with onnxruntime for this process."""

    def __init__(self) -> None:
        ort = backend.load()
        allocator, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
        ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", allocator, 0, default), None)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.use_env_allocators", "1")
        session = backend.new_session(_TINY, options, ["CPUExecutionProvider"])
        # An arena never returns the first memory that it gets from the system, so this must be little.
        session.run(None, {"x": np.zeros(1, np.uint8)})
        self._session = session
        self._options = ort.RunOptions()
        self._options.log_severity_level = 4
        self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._lock = threading.Lock()
        self.pid = os.getpid()
        # The result must not be in the arena while it shrinks.
        self._binding = session.io_binding()
        self._memory = np.zeros(2, np.uint8)
        self._binding.bind_cpu_input("x", self._memory[:1])
        self._binding.bind_output("y", "cpu", 0, np.uint8, (1,), self._memory[1:].ctypes.data)

    def shrink(self) -> None:
        """Return unused memory to the system. Does nothing in a forked process."""
        if os.getpid() == self.pid and self._lock.acquire(blocking=False):
            try:
                self._session.run_with_iobinding(self._binding, self._options)
            finally:
                self._lock.release()


class Lease:
    """A share in the arena. A model and its requests hold it as their last attribute, so that it is dropped after all
    that was in the arena."""

    __slots__ = ("_arena",)

    def __init__(self, arena: _Arena) -> None:
        self._arena = arena

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self._arena.shrink()


_making = threading.Lock()


def lease() -> Lease | None:
    """A share in the arena. None if onnxruntime cannot share one, and in a process that was forked after the arena was
    made: threads that do not exist there may hold its lock."""
    with _making:
        arena = _arena()
    return None if arena is None or arena.pid != os.getpid() else Lease(arena)


@functools.cache
def _arena() -> _Arena | None:
    try:
        return _Arena()
    except Exception as error:  # a version without these functions
        raise_out_of_memory(error)
        return None
