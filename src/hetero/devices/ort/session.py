"""onnxruntime sessions from models, without a copy of the weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...model.constants import release_pages
from ..handover import with_keys
from . import backend
from .values import ort_value

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["CPU_PROVIDER", "LENT_BYTES", "SessionSource", "num_streams", "plain_options", "session_options"]

CPU_PROVIDER = "CPUExecutionProvider"

LENT_BYTES = 4096
"""Tensors from this size on, in bytes, are lent to sessions in the mapped file. onnxruntime copies them unless it packs
or folds them, or `_only_gathered` names them."""

_SEVERITY = {"NO": 4, "ERR": 3, "WARNING": 2, "INFO": 1, "DEBUG": 0, "TRACE": 0}


def num_streams(settings: Mapping[str, Any]) -> int:
    """``NUM_STREAMS``, of which 0 leaves the choice to the device."""
    return max(1, int(settings["NUM_STREAMS"]))


def session_options(settings: Mapping[str, Any]) -> Any:
    """Options of a session by the device's properties.

    A session has one pool of threads for all its streams. The thread that runs a request works too, so that streams
    and pool together are as many threads as asked for.
    """
    ort = backend.load()
    options = ort.SessionOptions()
    threads = settings["INFERENCE_NUM_THREADS"] or len(os.sched_getaffinity(0))
    options.intra_op_num_threads = max(1, threads - num_streams(settings) + 1)
    options.inter_op_num_threads = 1
    options.log_severity_level = _SEVERITY[settings["LOG_LEVEL"]]
    if settings["DISABLE_TRANSFORMATIONS"]:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not settings["ORT_ALLOW_SPINNING"]:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    for key, value in settings["ORT_SESSION_CONFIG"].items():
        options.add_session_config_entry(str(key), str(value))
    return options


def plain_options() -> Any:
    """Options of a session that is made to see whether it can be made."""
    ort = backend.load()
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def _only_gathered(model: Model, weights: Mapping[str, Any]) -> list[str]:
    """The weights that a session can read in place (``SessionOptions.add_initializer``).

    onnxruntime looks such data up by name after it has optimized the model. When its transpose optimizer moves a
    Transpose through a node that reads a weight, it replaces the weight by a transposed or reshaped one of the same
    name, so results would be wrong without an error. It never moves a Transpose through a Gather or GatherND to the
    table. The condition is therefore: every reader is one of these nodes, in the main graph, and reads the weight as
    its first input. These nodes copy elements byte by byte, so the table may lie at any address.
    """
    candidates = {model.value_id(name) for name in weights}
    for node in range(model.num_nodes):
        values = model.node_inputs[node].tolist()
        is_table = model.op_types[int(model.op_type_of[node])].removeprefix("ai.onnx::") in ("Gather", "GatherND")
        candidates.difference_update(values[1:] if is_table else values)
    candidates.difference_update(model.node_captures.values.tolist(), model.output_ids)
    return [name for name in weights if model.value_id(name) in candidates]


class SessionSource:
    """A model as onnxruntime takes it: encoded without its larger weights, and those beside it.

    Every node of the main graph has its key for a name, so that onnxruntime's messages and counters name it.
    """

    def __init__(self, model: Model) -> None:
        self.encoded, self.weights = model.to_bytes_lending(LENT_BYTES)
        self.encoded = with_keys(model, self.encoded)
        self._tables = _only_gathered(model, self.weights)
        self._values: dict[str, Any] = {}

    def session(self, options: Any, providers: list[Any]) -> Any:
        """A session over the weights of this object, which it must not outlive."""
        ort = backend.load()
        if self.weights:
            if not self._values:
                self._values = {name: ort_value(ort, array) for name, array in self.weights.items()}
            options.add_external_initializers(list(self._values), list(self._values.values()))
            names = {entry if isinstance(entry, str) else entry[0] for entry in providers}
            if names == {CPU_PROVIDER}:  # other providers have their own memory
                for name in self._tables:
                    options.add_initializer(name, self._values[name])
        session = backend.new_session(self.encoded, options, providers)
        for array in self.weights.values():  # most have been packed, and nobody looks at them again
            release_pages(array)
        return session

    @property
    def weight_bytes(self) -> int:
        return sum(array.nbytes for array in self.weights.values())
