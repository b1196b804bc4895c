"""The actor's class. It is pickled by value, so that a node without hetero, or with another version, can report this.

Methods import hetero only after versions were compared. Before that, arguments and results contain only built-in types.
"""

from __future__ import annotations

from typing import Any

__all__ = ["HeteroHost"]


class HeteroHost:
    """One process on a node, which compiles and runs one model at a time."""

    def __init__(self) -> None:
        self._stage: Any = None

    def versions(self) -> dict[str, Any]:
        """The versions on the node, as a dict that any version understands. Without hetero, ``hetero`` is None and
        ``problem`` is the error."""
        import os
        import platform
        import sys

        import ray

        versions: dict[str, Any] = {
            "hetero": None,
            "problem": "",
            "python": ".".join(map(str, sys.version_info[:2])),
            "numpy": None,
            "process": os.getpid(),
            "host": platform.node(),
            "node": ray.get_runtime_context().get_node_id(),
        }
        try:
            import numpy

            import hetero

            versions["numpy"] = numpy.__version__
            versions["hetero"] = str(hetero.__version__)
        except ImportError as error:
            versions["problem"] = str(error)
        return versions

    def prepare(self) -> None:
        """Import modules that most models need, so that the first model need not wait."""
        import contextlib

        with contextlib.suppress(ImportError):  # `versions` reports it
            import hetero.devices.cpu
            import hetero.devices.ray.stage  # noqa: F401

    def query(self, request: Any, encoded: Any, weights: Any) -> Any:
        from hetero.devices.ray.stage import query

        return query(request, encoded, weights)

    def compile(self, request: Any, encoded: Any, weights: Any) -> Any:
        from hetero.devices.ray.stage import compile_stage

        self._stage, answer = compile_stage(request, encoded, weights)
        return answer

    def run(self, number: int, *inputs: Any) -> Any:
        """An `Answer`, followed by the model's results."""
        return self._stage.run(number, inputs)

    def cancel(self, number: int) -> None:
        if self._stage is not None:
            self._stage.cancel(number)

    def release(self) -> None:
        """Release the model, to make room for another one."""
        import gc

        self._stage = None
        gc.collect()
