"""Counters per node, from onnxruntime's profile, in the nodes of the original model.

onnxruntime writes a profile when a session is told to end profiling, once. So every counted inference has a session
of its own, in which it runs twice: the first run allocates, the second counts.

A session's nodes are those that its optimiser left. Which original a node stands for is told by its outputs: the value
that a fused node makes is that of the last node of its group. Nodes that only move data (a change of layout, a cast)
count for the node that reads them. Originals for which nothing ran are OPTIMIZED_OUT.
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
_LARGEST_SAVED = 1 << 30  # bytes of weights up to which the optimised model is written, to be looked at


class Counters:
    """Counted runs of one model."""

    def __init__(
        self,
        model: Model,
        source: SessionSource,
        options: Callable[[], Any],
        providers: list[Any],
    ) -> None:
        """``options``: fresh options for a session."""
        self._source = source
        self._options = options
        self._providers = providers
        self._op_types = {node.key: node.op_type for node in model.nodes}
        self._makers = {name: node.key for node in model.nodes for name in node.outputs if name}
        self._originals = self._find_originals()

    def run(self, call: Callable[[Any, Any], list[Any]], feed: Any) -> tuple[list[Any], Sequence[ProfileRow]]:
        """Results and rows of one inference; ``call(session, feed)`` runs it."""
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
                continue  # inside of a nested graph: its time is the outer node's
            spent[key] += float(event["dur"])
            details = event.get("args", {})
            kind = f"{str(details.get('provider', '')).removesuffix('ExecutionProvider')}_{details.get('op_name', '')}"
            if key not in kinds or details.get("op_name") not in _MOVES:
                kinds[key] = kind
        return tuple(
            # onnxruntime counts no CPU time: the columns are the same.
            ProfileRow(key, EXECUTED, op_type, kinds[key], spent[key], spent[key])
            if key in kinds
            else ProfileRow(key, OPTIMIZED_OUT, op_type, "none", 0.0, 0.0)
            for key, op_type in self._op_types.items()
        )

    def _find_originals(self) -> dict[str, str]:
        """Name of a node of the optimised model -> key of the node that it stands for; those of the same name left
        out."""
        if self._source.weight_bytes > _LARGEST_SAVED:
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
            except Exception:  # providers that compile nodes cannot save them; names must do then
                return {}
        readers: dict[str, Any] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, node)
        found = {}
        for node in graph.node:
            at = node
            while at is not None:  # the optimised graph has no cycles
                key = next((self._makers[name] for name in at.output if name in self._makers), None)
                if key is not None:
                    found[node.name] = key
                    break
                at = next((readers[name] for name in at.output if name in readers), None)
        return found


_MOVES = frozenset(("ReorderInput", "ReorderOutput", "Transpose", "Cast", "MemcpyToHost", "MemcpyFromHost"))


def _last_run(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events of nodes in the last of two runs. Events of a run are written before the run's own."""
    runs = [at for at, event in enumerate(events) if event.get("name") == "model_run"]
    begin = runs[-2] + 1 if len(runs) > 1 else 0
    return [
        event
        for event in events[begin:]
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_EVENT_SUFFIX)
    ]
