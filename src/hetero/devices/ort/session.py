"""Creates onnxruntime sessions from models without copying the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...base.machine import usable_processors
from ...base.properties import streams_and_threads
from ...errors import PropertyError, shown
from ...model.constants import release_pages
from . import backend
from .values import ort_value

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = [
    "CPU_PROVIDER",
    "LENT_BYTES",
    "SessionSource",
    "num_streams",
    "plain_options",
    "run_options",
    "session_options",
]

CPU_PROVIDER = "CPUExecutionProvider"

LENT_BYTES = 4096
"""The minimum size in B of tensors that sessions read from the mapped file. onnxruntime copies them unless it packs or
folds them, or `_only_gathered` lists them."""

SESSION_OPTIONS: Mapping[str, type | str] = {
    "graph_optimization_level": "GraphOptimizationLevel",
    "execution_mode": "ExecutionMode",
    "execution_order": "ExecutionOrder",
    "inter_op_num_threads": int,
    "enable_cpu_mem_arena": bool,
    "enable_mem_pattern": bool,
    "enable_mem_reuse": bool,
    "use_deterministic_compute": bool,
    "log_verbosity_level": int,
    "logid": str,
}
"""The attributes of ``SessionOptions`` that ``ORT_SESSION_OPTIONS`` accepts -> their type, or the enumeration whose
names are their values."""

_ENUM_NAMES = {
    "GraphOptimizationLevel": (
        *("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL"),
    ),
    "ExecutionMode": ("ORT_SEQUENTIAL", "ORT_PARALLEL"),
    "ExecutionOrder": ("DEFAULT", "PRIORITY_BASED", "MEMORY_EFFICIENT"),
}
_OTHER_OPTIONS = {
    "intra_op_num_threads": "INFERENCE_NUM_THREADS",
    "log_severity_level": "LOG_LEVEL",
    "enable_profiling": "PERF_COUNT",
    "optimized_model_filepath": "CACHE_DIR or CompiledModel.export_model",
}

_SPIN_MICROSECONDS = 1000
"""How long an idle thread spins, in µs. By default, the threads of a new session spin for 35 ms unless it runs. Runs of
MiniLM-L3, SqueezeNet and ShuffleNet on two threads take no longer with 1 ms (onnxruntime 1.32)."""

_SEVERITY = {"NO": 4, "ERR": 3, "WARNING": 2, "INFO": 1, "DEBUG": 0, "TRACE": 0}


def num_streams(settings: Mapping[str, Any]) -> int:
    """The number of requests that run in parallel, by ``NUM_STREAMS`` and ``PERFORMANCE_HINT``."""
    return streams_and_threads(settings, usable_processors())[0]


def session_options(settings: Mapping[str, Any], shares_arena: bool = False, in_integers: bool = True) -> Any:
    """The options of a session for the device's properties. ``shares_arena``: use the arena of `arena.lease`.
    ``in_integers``: compute between DequantizeLinear and QuantizeLinear in integers where onnxruntime can.

    A session has one thread pool for all streams. The thread of each stream also computes, so streams and pool together
    have ``INFERENCE_NUM_THREADS`` threads. onnxruntime counts one calling thread as part of the pool.
    """
    ort = backend.load()
    options = ort.SessionOptions()
    threads = settings["INFERENCE_NUM_THREADS"] or usable_processors()
    options.intra_op_num_threads = max(1, threads - num_streams(settings) + 1)
    options.inter_op_num_threads = 1
    options.log_severity_level = _SEVERITY[settings["LOG_LEVEL"]]
    if settings["DISABLE_TRANSFORMATIONS"]:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    config: dict[str, Any] = {}
    if not settings["ORT_ALLOW_SPINNING"]:  # between the nodes of a run, threads that sleep would cost up to a third
        config["session.force_spinning_stop"] = 1
        config["session.intra_op.spin_duration_us"] = _SPIN_MICROSECONDS
        if threads > usable_processors():  # threads that spin would take processors from those that work
            config["session.intra_op.allow_spinning"] = 0
    if not in_integers:
        config["session.disable_quant_qdq"] = 1
    if shares_arena:
        config["session.use_env_allocators"] = 1
        # Weights stay for long, and would keep the arena from returning the memory around them.
        config["session.use_device_allocator_for_initializers"] = 1
    for key, value in {**config, **settings["ORT_SESSION_CONFIG"]}.items():
        options.add_session_config_entry(str(key), str(value))
    for key, value in settings["ORT_SESSION_OPTIONS"].items():
        kind = SESSION_OPTIONS[key]
        try:
            setattr(options, key, getattr(getattr(ort, kind), value) if isinstance(kind, str) else value)
        except AttributeError as error:
            raise PropertyError(f"ORT_SESSION_OPTIONS: onnxruntime {ort.__version__} has no {key}={value}") from error
    return options


def named_options(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """``given`` with names in place of members of onnxruntime's enumerations, which files and other processes cannot
    receive."""
    return {
        key: getattr(value, "name", value) if isinstance(SESSION_OPTIONS.get(key), str) else value
        for key, value in given.items()
    }


def session_options_problem(given: Mapping[Any, Any]) -> str | None:
    """The error in the value of ``ORT_SESSION_OPTIONS``, or None."""
    for key, value in given.items():
        kind = SESSION_OPTIONS.get(key)
        if kind is None:
            instead = _OTHER_OPTIONS.get(key)
            hint = f"use {instead}" if instead else f"expected one of {', '.join(SESSION_OPTIONS)}"
            return f"{shown(key)} cannot be set; {hint}"
        names = _ENUM_NAMES[kind] if isinstance(kind, str) else ()
        if value not in names if names else type(value) is not kind:
            expected = f"one of {', '.join(names)}" if isinstance(kind, str) else kind.__name__
            return f"{key}: expected {expected}, found {shown(value)}"
    return None


def run_options(settings: Mapping[str, Any]) -> Any:
    """The options of the runs of one request."""
    options = backend.load().RunOptions()
    options.log_severity_level = _SEVERITY[settings["LOG_LEVEL"]]
    for key, value in settings["ORT_RUN_CONFIG"].items():
        options.add_run_config_entry(str(key), str(value))
    return options


def plain_options() -> Any:
    """The options of a session that is only created to test whether this is possible."""
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
    """A model for onnxruntime: the encoded model without its larger weights, and these weights.

    Nodes of the main graph are renamed to their keys, which onnxruntime's messages and counters then contain.
    """

    def __init__(self, model: Model) -> None:
        self.encoded, self.weights = model.to_bytes_lending(LENT_BYTES, with_keys=True)
        self._tables = _only_gathered(model, self.weights)
        self._values: dict[str, Any] = {}
        self.runs_in_integers = True
        if b"DequantizeLinear" in self.encoded:
            from .biases import has_bias_of_other_scale  # imports onnx

            self.runs_in_integers = not has_bias_of_other_scale(self.encoded, self.weights)

    def without_sizes(self) -> None:
        """Remove the sizes of values, which onnxruntime then finds in each run.

        onnxruntime infers shapes in both branches of an ``If``. With known sizes, it therefore rejects a model if a
        branch that never runs does not fit these sizes.
        """
        import onnx

        proto = onnx.ModelProto.FromString(self.encoded)
        for info in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
            for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
                dim.Clear()
        self.encoded = proto.SerializeToString()

    def session(self, options: Any, providers: list[Any]) -> Any:
        """A session that reads the weights of this object. It must not outlive the object."""
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
        for array in self.weights.values():  # onnxruntime has packed most of them and does not read them again
            release_pages(array)
        return session

    @property
    def weight_bytes(self) -> int:
        return sum(array.nbytes for array in self.weights.values())
