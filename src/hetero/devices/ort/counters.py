"""Counters for the nodes of the original model, from onnxruntime's profile.

A session can write its profile only once. Each counted inference therefore uses a new session and runs twice: the first
run allocates memory, the second counts.

The nodes of a session are those of the optimized model. They are matched to original nodes by their outputs: the output
of a fused node is that of the last node of its group. Nodes that only move data (layout changes, casts) count for the
node that reads them. Original nodes without a match are OPTIMIZED_OUT.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...plugin.profile import EXECUTED, OPTIMIZED_OUT, ProfileRow

if TYPE_CHECKING:
    from ...model.model import Model
    from .session import SessionSource

__all__ = ["Counters"]

_EVENT_SUFFIX = "_kernel_time"
_MAX_SAVED = 1 << 30  # in B; with more weights, the optimized model is not written to find original nodes


class Counters:
    """Counted runs of one model."""

    def __init__(
        self,
        model: Model,
        source: SessionSource,
        options: Callable[[], Any],
        providers: list[Any],
    ) -> None:
        """``options``: returns new options for a session."""
        self._source = source
        self._options = options
        self._providers = providers
        self._op_types = {node.key: node.op_type for node in model.nodes}
        self._makers = {name: node.key for node in model.nodes for name in node.outputs if name}
        self._originals = self._find_originals()

    def run(self, call: Callable[[Any, Any], list[Any]], feed: Any) -> tuple[list[Any], Sequence[ProfileRow]]:
        """The results and rows of one inference. ``call(session, feed)`` runs it."""
        with tempfile.TemporaryDirectory(prefix="hetero-") as folder:
            options = self._options()
            options.enable_profiling = True
            options.profile_file_prefix = os.path.join(folder, "profile")
            session = self._source.session(options, self._providers)
            call(session, feed)
            results = call(session, feed)
            path = session.end_profiling()
            with open(path, encoding="utf-8", errors="replace") as file:
                events = json.load(file)
        return results, self._rows(_last_run(events))

    def _rows(self, events: Sequence[Mapping[str, Any]]) -> Sequence[ProfileRow]:
        spent: dict[str, float] = dict.fromkeys(self._op_types, 0.0)
        kinds: dict[str, str] = {}
        for event in events:
            name = str(event["name"]).removesuffix(_EVENT_SUFFIX)
            key = self._originals.get(name, name)
            if key not in spent:
                continue  # in a nested graph; the outer node's time includes it
            spent[key] += float(event["dur"])
            details = event.get("args", {})
            kind = f"{str(details.get('provider', '')).removesuffix('ExecutionProvider')}_{details.get('op_name', '')}"
            if key not in kinds or details.get("op_name") not in _MOVES:
                kinds[key] = kind
        return tuple(
            # onnxruntime does not measure CPU time, so both columns contain the real time.
            ProfileRow(key, EXECUTED, op_type, kinds[key], spent[key], spent[key])
            if key in kinds
            else ProfileRow(key, OPTIMIZED_OUT, op_type, "none", 0.0, 0.0)
            for key, op_type in self._op_types.items()
        )

    def _find_originals(self) -> dict[str, str]:
        """Name of a node of the optimized model -> key of the original node."""
        if self._source.weight_bytes > _MAX_SAVED:
            return {}
        import onnx

        with tempfile.TemporaryDirectory(prefix="hetero-") as folder:
            options = self._options()
            options.optimized_model_filepath = os.path.join(folder, "optimized.onnx")
            weights = "session.optimized_model_external_initializers_"
            options.add_session_config_entry(f"{weights}file_name", "weights")
            options.add_session_config_entry(f"{weights}min_size_in_bytes", "1024")
            try:
                self._source.session(options, self._providers)
                graph = onnx.load(options.optimized_model_filepath, load_external_data=False).graph
            except Exception:  # providers that compile nodes cannot save them; nodes are then matched by name
                return {}
        readers: dict[str, Any] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, node)
        originals = {}
        for node in graph.node:
            at = node
            while at is not None:  # terminates, because the graph has no cycles
                key = next((self._makers[name] for name in at.output if name in self._makers), None)
                if key is not None:
                    originals[node.name] = key
                    break
                at = next((readers[name] for name in at.output if name in readers), None)
        return originals


_MOVES = frozenset(("ReorderInput", "ReorderOutput", "Transpose", "Cast", "MemcpyToHost", "MemcpyFromHost"))


def _last_run(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The node events of the second run. The event of a run follows those of its nodes."""
    runs = [at for at, event in enumerate(events) if event.get("name") == "model_run"]
    begin = runs[-2] + 1 if len(runs) > 1 else 0
    return [
        event
        for event in events[begin:]
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_EVENT_SUFFIX)
    ]
