"""The actor. Its class travels by value, so that a node without hetero, or with another version of it, can say so.

Hence nothing of hetero is imported here but inside of methods that are called once versions were compared, and no other
module of hetero is named by what they take and give before that.
"""

from __future__ import annotations

from typing import Any

__all__ = ["HeteroHost"]


class HeteroHost:
    """One process of a node: compiles one model at a time, and runs it."""

    def __init__(self) -> None:
        self._stage: Any = None

    def versions(self) -> dict[str, Any]:
        """What the node has, in words that any version understands; ``hetero`` None, and ``trouble``, without it."""
        import os
        import platform
        import sys

        import ray

        found: dict[str, Any] = {
            "hetero": None,
            "trouble": "",
            "python": ".".join(map(str, sys.version_info[:2])),
            "numpy": None,
            "process": os.getpid(),
            "host": platform.node(),
            "node": ray.get_runtime_context().get_node_id(),
        }
        try:
            import numpy

            import hetero

            found["numpy"] = numpy.__version__
            found["hetero"] = str(hetero.__version__)
        except ImportError as error:
            found["trouble"] = str(error)
        return found

    def prepare(self) -> None:
        """Import what most models need, so that the first has not to wait for it."""
        import contextlib

        with contextlib.suppress(ImportError):  # which `versions` tells
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
        """An answer, and as many results as the model has outputs."""
        return self._stage.run(number, inputs)

    def cancel(self, number: int) -> None:
        if self._stage is not None:
            self._stage.cancel(number)

    def release(self) -> None:
        """Forget the model: another one comes."""
        import gc

        self._stage = None
        gc.collect()
