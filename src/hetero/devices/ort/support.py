"""Finds the nodes that onnxruntime supports, by creating sessions that are then discarded.

1. Create a session of the whole model without its larger weights and without optimizations. If this succeeds, as it
   usually does, each node has a known operator, types and a kernel.
2. Otherwise, test each kind of node: one session contains all kinds that are not yet known. If the error names a node,
   the node is not supported and is removed; if not, the group is halved. The results are cached in the process by
   operator, version, types and attributes.
3. Steps 1 and 2 use the CPU provider, whose sessions are created fastest. If it does not support some nodes, another
   execution provider may have kernels for them: it is tested with the whole model, weights included, and if that fails,
   with those nodes. Last, a session of the whole model reports which nodes the provider runs, because that may depend
   on weights and shapes.

A model of 1,000 nodes takes about 60 ms.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DeviceUnavailable, PropertyError, raise_out_of_memory
from ...model.bodies import BODY_ATTRIBUTES
from ...model.element_types import dtype_named
from ...model.function_library import FunctionKey, FunctionLibrary, all_nodes, plain_domain
from ...model.functions import may_lack_types
from ...model.types import onnx_dtype_of
from ...model.write import header_of
from ..contradictions import contradictions
from ..handover import values_not_passing
from . import backend
from .backend import Target
from .session import CPU_PROVIDER, SessionSource, plain_options
from .values import passes

if TYPE_CHECKING:
    import onnx

    from ...model.model import Model, NodeView

__all__ = ["inferred_dtypes", "record_assignment", "refusals", "takes_all", "wrong_results"]

_SKELETON_BYTES = 1024  # the tested models contain constants up to this size, because kernels may read them
_MAX_NAMED = 32  # errors that name a node before a group is halved
_STRING = 8  # TensorProto.DataType
_CUDA_PROVIDER = "CUDAExecutionProvider"
_FIRST_STRING = "onnxruntime gathers only the first string of each slice"
_ZEROS_IGNORED = "onnxruntime ignores zero_points beside g_idx"
_INVERTED = "onnxruntime draws 1 with the probability of 0"
_BEYOND = "its scale or bias may have another shape than what is normalized: onnxruntime would read beyond its end"
_COUNTED = "a Loop's body returns its iteration number: onnxruntime returns the number of iterations instead"
_RETURNED_INPUT = "a Scan's body returns its input: onnxruntime returns uninitialized memory"
_RETURNED_TWICE = "a graph of {} returns a value twice: onnxruntime returns uninitialized memory"
_UNKNOWN_TYPE = "the type of its input {!r} is not declared and cannot be inferred"

_known_reasons: dict[bytes, str] = {}  # signature -> why it is not supported; empty if it is supported
_runs_alone: dict[bytes, bool] = {}  # signature, which includes the provider -> whether the provider runs it
_known_lock = threading.Lock()
_answers: weakref.WeakKeyDictionary[Model, dict[str, dict[int, str]]] = weakref.WeakKeyDictionary()


def refusals(model: Model, target: Target, provider_options: Mapping[str, Any]) -> dict[int, str]:
    """Node -> reason, for each node that is not supported. The answer is kept as long as the model."""
    entry = target.entry(provider_options)
    with _known_lock:
        answers = _answers.setdefault(model, {})
    key = repr((id(backend.load()), entry))
    if key not in answers:
        answers[key] = _refusals(model, target.provider, entry)
    return dict(answers[key])


def _refusals(model: Model, provider: str, entry: tuple[str, dict[str, Any]]) -> dict[int, str]:
    wrong = contradictions(model)
    if not wrong:
        return _refusals_of_valid(model, provider, entry)
    # onnxruntime may end the process when it loads such nodes.
    valid = [node for node in range(model.num_nodes) if node not in wrong]
    found = _refusals_of_valid(model.extract(valid), provider, entry) if valid else {}
    return wrong | {valid[at]: reason for at, reason in found.items()}


def _refusals_of_valid(model: Model, provider: str, entry: tuple[str, dict[str, Any]]) -> dict[int, str]:
    reasons = _without_kernels(model)
    if provider != CPU_PROVIDER and reasons:
        providers = [entry, CPU_PROVIDER]
        reasons = {} if _supports_whole(model, providers) else _tried(model, list(reasons), providers)
    for node, (name, dtype) in values_not_passing(model, passes).items():
        why = f"{name!r} has dtype {dtype}, which onnxruntime's Python interface does not support"
        reasons.setdefault(node, why)
    reasons = {**_computed_wrongly(model, provider), **reasons}
    if provider != CPU_PROVIDER and len(reasons) < model.num_nodes:
        supported = [node for node in range(model.num_nodes) if node not in reasons]
        part = model if not reasons else model.extract(supported)
        for node, why in _not_assigned(part, provider, entry).items():
            reasons[supported[node]] = why
    return reasons


def wrong_results(model: Model, provider: str) -> dict[int, str]:
    """Node -> reason, for nodes that onnxruntime accepts and computes wrongly, or that mean nothing."""
    return {**contradictions(model), **_computed_wrongly(model, provider)}


def _computed_wrongly(model: Model, provider: str) -> dict[int, str]:
    reasons: dict[int, str] = {}
    if "Gather" in model.op_types and _may_hold_strings(model):
        reasons.update(dict.fromkeys(_gathered_strings(model), _FIRST_STRING))
    if provider == CPU_PROVIDER:
        reasons.update(dict.fromkeys(_with_groups_and_zeros(model), _ZEROS_IGNORED))
    if provider == _CUDA_PROVIDER and "LayerNormalization" in model.op_types:
        reasons.update(dict.fromkeys(_with_broadcast_scale(model), _BEYOND))
    reasons.update(_wrong_inside(model))
    return reasons


def _wrong_inside(model: Model) -> dict[int, str]:
    """Node -> reason, for nodes that `_wrong_inner` names, and those that hold or call a graph with such a node, at any
    depth."""
    library = FunctionLibrary(model.file)
    suspects = [
        kind
        for kind, name in enumerate(model.op_types)
        if name in ("Bernoulli", "SequenceMap", *BODY_ATTRIBUTES) or tuple(name.split("::")) in library.names
    ]
    reasons = {}
    for node in np.flatnonzero(np.isin(model.op_type_of, suspects)).tolist():
        seen: set[FunctionKey] = set()
        pending = [[model.nodes[node].proto()]]
        while pending and node not in reasons:
            for inner in all_nodes(pending.pop()):
                why = _wrong_inner(inner)
                if why:
                    reasons[node] = why
                    break
                called = library.key_of_call(inner)
                if called is not None and called not in seen:
                    seen.add(called)
                    pending.append(list(library.function(called).proto.node))
    return reasons


def _wrong_inner(node: onnx.NodeProto) -> str:
    """Why onnxruntime 1.32 computes a node wrongly: Bernoulli, or an If, Loop or Scan because of what its graphs
    return. Empty if it does not.

    A Scan's results of the last iteration are memory that the body writes. The body does not write a value that it
    returns as it is, or the second place of a value that it returns twice. The same holds for the branches of an If. A
    Loop copies results, but it counts in place, so each of its results that is the iteration number is the last one."""
    if plain_domain(node.domain):
        return ""
    if node.op_type == "Bernoulli" and not _draws_as_specified():
        return _INVERTED
    if node.op_type not in BODY_ATTRIBUTES:
        return ""
    for attribute in node.attribute:
        if attribute.name not in BODY_ATTRIBUTES[node.op_type]:
            continue
        results = [info.name for info in attribute.g.output]
        inputs = [info.name for info in attribute.g.input]
        if node.op_type == "Loop":
            if inputs[0:1] and inputs[0] in results:
                return _COUNTED
        elif len(set(results)) < len(results):
            return _RETURNED_TWICE.format(node.op_type)
        elif not set(inputs).isdisjoint(results):
            return _RETURNED_INPUT
    return ""


def _may_hold_strings(model: Model) -> bool:
    """Whether values may be strings; without inference, which takes long for large models."""
    return (
        any(port.is_stated and port.dtype is not None and port.dtype.kind in "OUS" for port in model.inputs)
        or any(name.startswith("ai.onnx.ml::") for name in model.op_types)
        or bool((model.file.constant_dtype[model.file_constants] == _STRING).any())
        or any(node.attributes.get("to") == _STRING for node in _nodes_of(model, "Cast"))
    )


def _nodes_of(model: Model, op: str) -> Iterator[NodeView]:
    kinds = [kind for kind, name in enumerate(model.op_types) if name == op]
    return (model.nodes[node] for node in np.flatnonzero(np.isin(model.op_type_of, kinds)).tolist())


def _with_groups_and_zeros(model: Model) -> list[int]:
    """The MatMulNBits whose zero points onnxruntime 1.32 does not use."""
    nodes = _nodes_of(model, "com.microsoft::MatMulNBits")
    return [node.index for node in nodes if all(node.inputs[3:5]) and len(node.inputs) > 4]


def _gathered_strings(model: Model) -> list[int]:
    """The nodes that gather slices of more than one string, or of unknown size, if onnxruntime is wrong for them, as
    1.32 is."""
    found = []
    for node in _nodes_of(model, "Gather"):
        known = model.type_of(int(model.node_inputs[node.index][0]))
        if known.dtype is None or known.dtype.kind not in "OUS":
            continue
        axis = int(node.attributes.get("axis", 0))
        shape = known.shape
        if shape is None or any(size != 1 for size in shape[axis + len(shape) * (axis < 0) + 1 :]):
            found.append(node.index)
    return found if found and not _gathers_strings() else []


@functools.cache
def _gathers_strings() -> bool:
    """Whether onnxruntime gathers slices of two strings correctly."""
    import onnx

    rows = onnx.helper.make_tensor("rows", onnx.TensorProto.INT64, [2], [1, 0])
    result = _result_of("Gather", np.array([["a", "b"], ["c", "d"]], object), onnx.TensorProto.STRING, rows)
    return bool(result.tolist() == [["c", "d"], ["a", "b"]])


@functools.cache
def _draws_as_specified() -> bool:
    """Whether Bernoulli draws 1 with the probability in its input, unlike onnxruntime 1.32."""
    import onnx

    return not _result_of("Bernoulli", np.zeros(1, np.float32), onnx.TensorProto.FLOAT).any()


def _result_of(op: str, x: NDArray[Any], dtype: int, *constants: onnx.TensorProto) -> NDArray[Any]:
    """The result of a node in opset 15 for ``x`` and constants, of the same type and shape as ``x``, in onnxruntime."""
    from onnx import helper

    ports = [helper.make_tensor_value_info(name, dtype, x.shape) for name in "xy"]
    node = helper.make_node(op, ["x", *(constant.name for constant in constants)], ["y"])
    graph = helper.make_graph([node], "", ports[:1], ports[1:], constants)
    encoded = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8).SerializeToString()
    result: NDArray[Any] = backend.new_session(encoded, plain_options(), [CPU_PROVIDER]).run(None, {"x": x})[0]
    return result


def _with_broadcast_scale(model: Model) -> list[int]:
    """The LayerNormalization nodes whose scale or bias may have another shape than what is normalized.

    A size above 1 is not broadcast, so in a valid model it equals the size of the input.
    """
    found = []
    for node in _nodes_of(model, "LayerNormalization"):
        x, *others = (model.type_of(int(value)).shape for value in model.node_inputs[node.index] if value >= 0)
        axis = int(node.attributes.get("axis", -1))
        count = -axis if axis < 0 else None if x is None else len(x) - axis
        if not all(_is_of(shape, x, count) for shape in others):
            found.append(node.index)
    return found


def _is_of(shape: Sequence[Any] | None, x: Sequence[Any] | None, count: int | None) -> bool:
    """Whether a shape that broadcasts to the last ``count`` sizes of ``x`` must be equal to them."""
    if shape is None or count is None or len(shape) != count:
        return False
    sizes = [None] * count if x is None else x[len(x) - count :]
    return all(
        isinstance(size, int) and (size > 1 or size == beside) for size, beside in zip(shape, sizes, strict=True)
    )


def _without_kernels(model: Model) -> dict[int, str]:
    """Node -> reason, for each node that onnxruntime cannot run on the CPU."""
    if not model.num_nodes:
        return {}
    whole = _session_error(model.to_bytes(max_constant_bytes=_SKELETON_BYTES), [CPU_PROVIDER])
    return _with_unknown_inputs(model) if whole is None else _tried(model, range(model.num_nodes), [CPU_PROVIDER])


def _with_unknown_inputs(model: Model) -> dict[int, str]:
    """Node -> reason, for the nodes that onnxruntime supports only in one model with the node that computes their
    input, because the type of the input remains unknown: a value that is not a tensor."""
    if not may_lack_types(model):
        return {}
    readers: dict[str, list[int]] = {}
    for ragged in (model.node_inputs, model.node_captures):
        nodes = np.repeat(np.arange(model.num_nodes), np.diff(ragged.indptr))
        computed = (ragged.values >= 0) & (model.producer[ragged.values] >= 0)
        for node, value in zip(nodes[computed].tolist(), ragged.values[computed].tolist(), strict=True):
            if not model.has_type(value):
                readers.setdefault(model.value_name(value), []).append(node)
    known = inferred_dtypes(model, list(readers)) if readers else {}
    return {node: _UNKNOWN_TYPE.format(name) for name, nodes in readers.items() if name not in known for node in nodes}


def inferred_dtypes(model: Model, names: Sequence[str]) -> dict[str, np.dtype[Any]]:
    """Name -> element type of these values, from a session of the whole model with the values as outputs. Empty if
    onnxruntime cannot create it; omits values that are not tensors."""
    try:
        encoded = model.with_outputs(names).to_bytes(max_constant_bytes=_SKELETON_BYTES)
        session = backend.new_session(encoded, plain_options(), [CPU_PROVIDER])
    except Exception as error:
        raise_out_of_memory(error)
        return {}
    wanted = set(names)
    dtypes = {port.name: dtype_named(port.type) for port in session.get_outputs() if port.name in wanted}
    return {name: dtype for name, dtype in dtypes.items() if dtype is not None}


def _supports_whole(model: Model, providers: list[Any]) -> bool:
    """Whether a session can be made of the whole model, weights included. Only then are the types of the results of
    onnxruntime's own operators known. Some kernels for GPUs require constant weights."""
    try:
        SessionSource(model).session(plain_options(), providers)
    except PropertyError:
        raise
    except Exception as error:
        raise_out_of_memory(error)
        return False
    return True


def _tried(model: Model, nodes: Sequence[int], providers: list[Any]) -> dict[int, str]:
    """Node -> reason, for each of ``nodes`` that cannot run with these providers. Tests each node alone."""
    probes = _probes(model, nodes, providers)
    reasons = {}
    with _known_lock:
        unknown: dict[bytes, _Probe] = {}
        for probe in probes.values():
            if probe.problem is None and probe.signature not in _known_reasons:
                unknown.setdefault(probe.signature, probe)
        _Trial(model, list(unknown.values()), providers).run()
        for node, probe in probes.items():
            why = probe.problem or _known_reasons[probe.signature]
            if why:
                reasons[node] = why
    return reasons


def _probes(model: Model, nodes: Sequence[int], providers: list[Any]) -> dict[int, _Probe]:
    shared = repr(providers).encode() + (hashlib.sha256(header_of(model)).digest() if model.functions else b"")
    return {node: _Probe(model, node, shared) for node in nodes}


def _session_error(encoded: bytes, providers: list[Any]) -> Exception | None:
    """The error of creating a session, or None."""
    try:
        backend.new_session(encoded, plain_options(), providers)
    except PropertyError:
        raise
    except Exception as error:
        raise_out_of_memory(error)
        return error
    return None


class _Probe:
    """A single node with typed inputs without shapes. ``problem``: why it cannot be tested, or None.

    ``shared``: the other data on which the result depends: the model's functions and the providers.
    """

    def __init__(self, model: Model, node: int, shared: bytes) -> None:
        import onnx
        from onnx import helper

        view = model.nodes[node]
        self.key = view.key
        self.problem: str | None = None
        self.proto = onnx.NodeProto()
        self.proto.CopyFrom(view.proto())
        self.proto.name = ""
        self.outer: dict[str, onnx.ValueInfoProto] = {}  # captures, which must keep their names
        self.types: list[onnx.TypeProto | None] = []
        for name in view.inputs:
            self.types.append(_type_proto(model, name) if name else None)
            if name and self.types[-1] is None:
                self.problem = _UNKNOWN_TYPE.format(name)
        for name in view.captures:
            type_ = _type_proto(model, name)
            if type_ is None:
                self.problem = _UNKNOWN_TYPE.format(name)
            else:
                self.outer[name] = helper.make_value_info(name, type_)
        parts = [
            repr((view.domain, view.op_type, sorted(model.opsets.items()), model.ir_version)).encode(),
            *(b"-" if type_ is None else type_.SerializeToString(deterministic=True) for type_ in self.types),
            bytes(bool(name) for name in view.outputs),
            *sorted(attribute.SerializeToString(deterministic=True) for attribute in self.proto.attribute),
            *(info.SerializeToString(deterministic=True) for info in self.outer.values()),
            shared,
        ]
        self.signature = b"\0".join(b"%d:%b" % (len(part), part) for part in parts)

    def put_into(self, graph: onnx.GraphProto, number: int) -> None:
        """Add the node with its inputs and outputs, under new names."""
        from onnx import helper

        node = graph.node.add()
        node.CopyFrom(self.proto)
        node.name = _probe_name(number)
        for at, type_ in enumerate(self.types):
            if type_ is not None:
                node.input[at] = f"{node.name}_in{at}"
                graph.input.append(helper.make_value_info(node.input[at], type_))
        for at, name in enumerate(node.output):
            if name:
                node.output[at] = f"{node.name}_out{at}"
        existing = {info.name for info in graph.input}
        graph.input.extend(info for name, info in self.outer.items() if name not in existing)
        # One output is enough to keep the node; onnxruntime infers its type.
        first = next((name for name in node.output if name), None)
        if first is not None:
            graph.output.add().name = first


def _probe_name(number: int) -> str:
    return f"hetero_probe_{number}"


class _Trial:
    """Tests probes together."""

    def __init__(self, model: Model, probes: Sequence[_Probe], providers: list[Any]) -> None:
        self._model = model
        self._providers = providers
        self._probes = probes

    @functools.cached_property
    def _header(self) -> bytes:
        """The opsets and functions of the model, without its graph."""
        import onnx

        whole = onnx.ModelProto.FromString(self._model.to_bytes(max_constant_bytes=0))
        whole.ClearField("graph")
        encoded: bytes = whole.SerializeToString()
        return encoded

    def run(self) -> None:
        """Write into ``_known_reasons`` why each probe is not supported."""
        if not self._probes:
            return
        empty = self._error([])
        if empty is not None:  # onnxruntime does not support this version of ONNX, so every node would fail
            for probe in self._probes:
                _known_reasons[probe.signature] = backend.error_text(empty)
            return
        self._try(list(range(len(self._probes))))

    def assigned(self, provider: str) -> set[int]:
        """The probes that run on a provider. A probe whose session fails does not."""
        names: set[str] = set()
        pending = [list(range(len(self._probes)))]
        while pending:
            group = pending.pop()
            try:
                encoded = self._encoded(group)
                session = backend.new_session(encoded, _recording_options(), self._providers)
                names |= _assigned(session, provider)
            except Exception as error:
                raise_out_of_memory(error)
                if len(group) > 1:
                    pending += [group[: len(group) // 2], group[len(group) // 2 :]]
        return {number for number in range(len(self._probes)) if _probe_name(number) in names}

    def _try(self, numbers: list[int]) -> None:
        pending = [numbers]
        while pending:
            group = pending.pop()
            error = None
            for _ in range(_MAX_NAMED):
                error = self._error(group)
                if error is None:
                    break
                named = self._named(error, group)
                if not named:
                    break
                for number in named:
                    _known_reasons[self._probes[number].signature] = backend.error_text(error).replace(
                        _probe_name(number), self._probes[number].key
                    )
                group = [number for number in group if number not in named]
                if not group:
                    break
            if not group:
                continue
            if error is None:
                for number in group:
                    _known_reasons[self._probes[number].signature] = ""
            elif len(group) == 1:
                probe = self._probes[group[0]]
                _known_reasons[probe.signature] = backend.error_text(error).replace(_probe_name(group[0]), probe.key)
            else:
                pending += [group[: len(group) // 2], group[len(group) // 2 :]]

    def _named(self, error: Exception, group: Sequence[int]) -> set[int]:
        """The probes to which an error applies: the one it names, or all with the same operator if that is unknown."""
        name = backend.failed_node(error)
        number = next((number for number in group if _probe_name(number) == name), None)
        if number is None:
            return set()
        if not backend.missing_kernel(error):
            return {number}
        proto = self._probes[number].proto
        same = (proto.domain, proto.op_type)
        return {n for n in group if (self._probes[n].proto.domain, self._probes[n].proto.op_type) == same}

    def _error(self, group: Sequence[int]) -> Exception | None:
        return _session_error(self._encoded(group), self._providers)

    def _encoded(self, group: Sequence[int]) -> bytes:
        """A model of probes, each unconnected to the others."""
        import onnx

        proto = onnx.ModelProto.FromString(self._header)
        proto.graph.name = "probes"
        for number in group:
            self._probes[number].put_into(proto.graph, number)
        if not group:
            proto.graph.input.append(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None))
            proto.graph.output.append(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None))
        encoded: bytes = proto.SerializeToString()
        return encoded


def _type_proto(model: Model, name: str) -> onnx.TypeProto | None:
    """A value's type without its shape; None if unknown."""
    import onnx

    value = model.value_id(name)
    if model.is_constant[value]:
        dtype = model.constant_type(value).dtype
        number = 0 if dtype is None else onnx_dtype_of(dtype)
        if not number:
            return None
        constant_type: onnx.TypeProto = onnx.helper.make_tensor_type_proto(number, None)
        return constant_type
    message = model.type_message(value)
    if not message:
        return None
    proto: onnx.TypeProto = onnx.TypeProto.FromString(message)
    _drop_shapes(proto)
    return proto


def _drop_shapes(proto: onnx.TypeProto) -> None:
    while True:
        kind = proto.WhichOneof("value")
        if kind in ("tensor_type", "sparse_tensor_type"):
            getattr(proto, kind).ClearField("shape")
            return
        if kind not in ("sequence_type", "optional_type"):
            return
        proto = getattr(proto, kind).elem_type


def takes_all(session: Any, provider: str) -> bool:
    """Whether a session, made with `record_assignment`, runs on a provider and leaves no node to another one. False if
    the installed onnxruntime cannot tell."""
    if provider not in session.get_providers() or not hasattr(session, "get_provider_graph_assignment_info"):
        return False
    parts = session.get_provider_graph_assignment_info()
    return bool(parts) and all(part.ep_name == provider for part in parts)


def _not_assigned(model: Model, provider: str, entry: tuple[str, dict[str, Any]]) -> dict[int, str]:
    """Node -> reason, for each node that an execution provider leaves to another."""
    session = SessionSource(model).session(_recording_options(), [entry, CPU_PROVIDER])
    if provider not in session.get_providers():
        raise DeviceUnavailable(_not_started(provider))
    if not hasattr(session, "get_provider_graph_assignment_info"):
        raise DeviceUnavailable(f"ORT: {provider} requires a newer onnxruntime: pip install -U onnxruntime")
    assigned = _assigned(session, provider)
    left = [node for node, key in enumerate(model.keys) if key not in assigned]
    # Nodes that it supports but leaves to the CPU in this model, such as arithmetic on shapes, run better there.
    could = _supported_alone(model, left, provider, entry)
    return {
        node: f"{provider} leaves {model.nodes[node].op_type} to another execution provider"
        for node in left
        if node not in could
    }


def _recording_options() -> Any:
    """Options of a session that can be asked where its nodes run."""
    options = plain_options()
    record_assignment(options)
    return options


def record_assignment(options: Any) -> None:
    """Let sessions with these options know which provider runs which node."""
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")


def _assigned(session: Any, provider: str) -> set[str]:
    """Names of the nodes of a session that run on a provider."""
    return {
        node.name
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name == provider
        for node in part.get_nodes()
    }


def _supported_alone(
    model: Model, nodes: Sequence[int], provider: str, entry: tuple[str, dict[str, Any]]
) -> frozenset[int]:
    """Those of ``nodes`` that a provider runs if each is tested alone.

    onnxruntime's table of kernels (``get_all_opkernel_def``) is not sufficient: it lists operators, not nodes. Reading
    it also ends the process if TensorRT is missing, as in most installations of onnxruntime-gpu.
    """
    providers: list[Any] = [entry, CPU_PROVIDER]
    probes = {node: probe for node, probe in _probes(model, nodes, providers).items() if probe.problem is None}
    with _known_lock:
        unknown = {probe.signature: probe for probe in probes.values() if probe.signature not in _runs_alone}
        if unknown:
            taken = _Trial(model, list(unknown.values()), providers).assigned(provider)
            _runs_alone.update((signature, number in taken) for number, signature in enumerate(unknown))
        return frozenset(node for node, probe in probes.items() if _runs_alone[probe.signature])


def _not_started(provider: str) -> str:
    text = f"ORT: onnxruntime could not start {provider}, which it lists as available"
    missing = backend.preload() if provider == "CUDAExecutionProvider" else ""
    if missing:
        text += f": {missing}. To install the libraries of CUDA: pip install 'onnxruntime-gpu[cuda,cudnn]'"
    return text
