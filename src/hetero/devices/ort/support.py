"""Which nodes onnxruntime takes: it is asked, by making sessions that are thrown away.

1. A session is made of the whole model without its larger weights, nothing optimised. Mostly that works, and then each
   node has an operator, types and a kernel.
2. If not, each kind of node is tried: a model of a node each, all that are not known yet in one session. An error
   names a node, which is refused and left out; one that names none is narrowed down by halves. What is found out is
   kept for the process, by operator, version, types and attributes.
3. Steps 1 and 2 ask the provider for the CPU, whose sessions are made fastest. Another execution provider is tried with
   the nodes that the CPU's refuses, since it may have kernels for them. Then it is asked which nodes of the whole model
   it takes, because that may depend on weights and shapes.

A model of a thousand nodes costs some 60 ms.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DeviceUnavailable, raise_out_of_memory
from ...model.types import onnx_dtype_of
from ...model.write import header_of
from ..handover import values_not_passing
from . import backend
from .session import CPU_PROVIDER, SessionSource, plain_options
from .values import passes

if TYPE_CHECKING:
    import onnx

    from ...model.model import Model

__all__ = ["refusals"]

_SKELETON_BYTES = 1024  # constants up to this size are in the models tried: kernels may look at them
_MOST_NAMED = 32  # errors that name a node, after which a group is halved all the same
_UNKNOWN_TYPE = "the type of its input {!r} is unknown to onnxruntime's shape inference and ours"

_found: dict[bytes, str] = {}  # signature -> why it is refused; empty if it is not
_found_lock = threading.Lock()


def refusals(model: Model, provider: str, provider_options: Mapping[str, Any]) -> dict[int, str]:
    """Node -> why it is refused, for the nodes that are."""
    reasons = _without_kernels(model)
    if provider != CPU_PROVIDER and reasons:
        reasons = _tried(model, list(reasons), [(provider, dict(provider_options)), CPU_PROVIDER])
    for node, (name, dtype) in values_not_passing(model, passes).items():
        why = f"{name!r} has elements of {dtype}, which onnxruntime's Python interface cannot take or give"
        reasons.setdefault(node, why)
    if provider != CPU_PROVIDER and len(reasons) < model.num_nodes:
        taken = [node for node in range(model.num_nodes) if node not in reasons]
        part = model if not reasons else model.extract(taken)
        for node, why in _not_assigned(part, provider, provider_options).items():
            reasons[taken[node]] = why
    return reasons


def _without_kernels(model: Model) -> dict[int, str]:
    """Nodes that onnxruntime cannot run on the CPU."""
    if not model.num_nodes:
        return {}
    whole = _session_error(model.to_bytes(max_constant_bytes=_SKELETON_BYTES), [CPU_PROVIDER])
    return {} if whole is None else _tried(model, range(model.num_nodes), [CPU_PROVIDER])


def _tried(model: Model, nodes: Sequence[int], providers: list[Any]) -> dict[int, str]:
    """Node -> reason, for each of ``nodes`` that a session with these providers cannot run. Each is tried by itself."""
    shared = repr(providers).encode() + (hashlib.sha256(header_of(model)).digest() if model.functions else b"")
    probes = {node: _Probe(model, node, shared) for node in nodes}
    reasons = {}
    with _found_lock:
        unknown: dict[bytes, _Probe] = {}
        for probe in probes.values():
            if probe.trouble is None and probe.signature not in _found:
                unknown.setdefault(probe.signature, probe)
        _Trial(model, list(unknown.values()), providers).run()
        for node, probe in probes.items():
            why = probe.trouble or _found[probe.signature]
            if why:
                reasons[node] = why
    return reasons


def _session_error(encoded: bytes, providers: list[Any]) -> Exception | None:
    """What goes wrong when a session is made, if anything does."""
    try:
        backend.load().InferenceSession(encoded, plain_options(), providers=providers)
    except Exception as error:
        raise_out_of_memory(error)
        return error
    return None


class _Probe:
    """A node by itself: typed inputs without shapes, and its outputs. ``trouble``: why it cannot even be tried.

    ``shared``: what else the answer depends on: the model's functions and the providers.
    """

    def __init__(self, model: Model, node: int, shared: bytes) -> None:
        import onnx
        from onnx import helper

        view = model.nodes[node]
        self.key = view.key
        self.trouble: str | None = None
        self.proto = onnx.NodeProto()
        self.proto.CopyFrom(view.proto())
        self.proto.name = ""
        self.outer: dict[str, onnx.ValueInfoProto] = {}  # captures, which must keep their names
        self.types: list[onnx.TypeProto | None] = []
        for name in view.inputs:
            self.types.append(_type_proto(model, name) if name else None)
            if name and self.types[-1] is None:
                self.trouble = _UNKNOWN_TYPE.format(name)
        for name in view.captures:
            type_ = _type_proto(model, name)
            if type_ is None:
                self.trouble = _UNKNOWN_TYPE.format(name)
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
        """Adds the node, its inputs and its outputs under names of their own."""
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
        given = {info.name for info in graph.input}
        graph.input.extend(info for name, info in self.outer.items() if name not in given)
        # One output keeps the node; its type is left to inference.
        first = next((name for name in node.output if name), None)
        if first is not None:
            graph.output.add().name = first


def _probe_name(number: int) -> str:
    return f"hetero_probe_{number}"


class _Trial:
    """Probes tried together. Writes into ``_found``."""

    def __init__(self, model: Model, probes: Sequence[_Probe], providers: list[Any]) -> None:
        self._model = model
        self._providers = providers
        self._probes = probes
        self._header = b""

    def run(self) -> None:
        if not self._probes:
            return
        import onnx

        # Operator sets and functions are those of the model; its graph is not needed.
        whole = onnx.ModelProto.FromString(self._model.to_bytes(max_constant_bytes=0))
        whole.ClearField("graph")
        self._header = whole.SerializeToString()
        empty = self._error([])
        if empty is not None:  # a version of ONNX that it does not know: nothing else need be tried
            for probe in self._probes:
                _found[probe.signature] = backend.error_text(empty)
            return
        self._try(list(range(len(self._probes))))

    def _try(self, numbers: list[int]) -> None:
        pending = [numbers]
        while pending:
            group = pending.pop()
            error = None
            for _ in range(_MOST_NAMED):
                error = self._error(group)
                if error is None:
                    break
                named = self._named(error, group)
                if not named:
                    break
                for number in named:
                    _found[self._probes[number].signature] = backend.error_text(error).replace(
                        _probe_name(number), self._probes[number].key
                    )
                group = [number for number in group if number not in named]
                if not group:
                    break
            if not group:
                continue
            if error is None:
                for number in group:
                    _found[self._probes[number].signature] = ""
            elif len(group) == 1:
                _found[self._probes[group[0]].signature] = backend.error_text(error)
            else:
                pending += [group[: len(group) // 2], group[len(group) // 2 :]]

    def _named(self, error: Exception, group: Sequence[int]) -> set[int]:
        """The probes that an error is about: the one it names, and where the operator is unknown all of it."""
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
        import onnx

        proto = onnx.ModelProto.FromString(self._header)
        proto.graph.name = "probes"
        for number in group:
            self._probes[number].put_into(proto.graph, number)
        if not group:
            proto.graph.input.append(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None))
            proto.graph.output.append(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None))
        return _session_error(proto.SerializeToString(), self._providers)


def _type_proto(model: Model, name: str) -> onnx.TypeProto | None:
    """A value's type without its shape, None where it is unknown."""
    import onnx

    value = model.value_id(name)
    if model.is_constant[value]:
        dtype = model.constant_type(value).dtype
        number = 0 if dtype is None else onnx_dtype_of(dtype)
        if not number:
            return None
        stated: onnx.TypeProto = onnx.helper.make_tensor_type_proto(number, None)
        return stated
    message = model.type_message(value)
    if not message:
        return None
    found: onnx.TypeProto = onnx.TypeProto.FromString(message)
    _drop_shapes(found)
    return found


def _drop_shapes(found: onnx.TypeProto) -> None:
    while True:
        kind = found.WhichOneof("value")
        if kind in ("tensor_type", "sparse_tensor_type"):
            getattr(found, kind).ClearField("shape")
            return
        if kind not in ("sequence_type", "optional_type"):
            return
        found = getattr(found, kind).elem_type


def _not_assigned(model: Model, provider: str, provider_options: Mapping[str, Any]) -> dict[int, str]:
    """Nodes that an execution provider leaves to another."""
    options = plain_options()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = SessionSource(model).session(options, [(provider, dict(provider_options)), CPU_PROVIDER])
    if provider not in session.get_providers():
        raise DeviceUnavailable(f"ORT: onnxruntime could not start {provider}, which it lists as available")
    if not hasattr(session, "get_provider_graph_assignment_info"):
        raise DeviceUnavailable(f"ORT: to ask {provider} takes a newer onnxruntime: pip install -U onnxruntime")
    assigned: set[str] = set()
    for part in session.get_provider_graph_assignment_info():
        if part.ep_name == provider:
            assigned.update(node.name for node in part.get_nodes())
    has_kernel = _kernels_of(provider)
    reasons = {}
    for node, key in enumerate(model.keys):
        view = model.nodes[node]
        # What it has a kernel for and leaves to the CPU, such as arithmetic on shapes, runs better there.
        if key not in assigned and (view.domain, view.op_type) not in has_kernel:
            reasons[node] = f"{provider} leaves {view.op_type} to another execution provider"
    return reasons


def _kernels_of(provider: str) -> frozenset[tuple[str, str]]:
    """Domain and operator of each kernel that is built into onnxruntime for a provider."""
    from onnxruntime.capi import onnxruntime_pybind11_state as compiled

    if not hasattr(compiled, "get_all_opkernel_def"):
        return frozenset()
    return frozenset(
        (kernel.domain, kernel.op_name) for kernel in compiled.get_all_opkernel_def() if kernel.provider == provider
    )
