"""Which nodes onnxruntime takes: it is asked, by making sessions that are thrown away.

1. A session is made of the whole model without its larger weights, nothing optimised. Mostly that works, and then each
   node has an operator, types and a kernel.
2. If not, each kind of node is tried: a model of a node each, all that are not known yet in one session. An error
   names a node, which is refused and left out; one that names none is narrowed down by halves. What is found out is
   kept for the process, by operator, version, types and attributes.
3. Steps 1 and 2 ask the provider for the CPU, whose sessions are made fastest. If it refuses nodes, another execution
   provider may have kernels for them: it is tried with the whole model, weights included, and if that fails with those
   nodes. Then it is asked which nodes of the whole model it takes, because that may depend on weights and shapes.

A model of a thousand nodes costs some 60 ms.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DeviceUnavailable, PropertyError, raise_out_of_memory
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
_alone: dict[bytes, bool] = {}  # signature, which includes the provider -> whether that provider takes it
_found_lock = threading.Lock()


def refusals(model: Model, provider: str, provider_options: Mapping[str, Any]) -> dict[int, str]:
    """Node -> why it is refused, for the nodes that are."""
    reasons = _without_kernels(model)
    if provider != CPU_PROVIDER and reasons:
        providers = [(provider, dict(provider_options)), CPU_PROVIDER]
        reasons = {} if _takes_whole(model, providers) else _tried(model, list(reasons), providers)
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


def _takes_whole(model: Model, providers: list[Any]) -> bool:
    """Whether a session can be made of the whole model, weights included. Only then are the types after operators of
    onnxruntime's own known, and some kernels for GPUs require that weights are constants."""
    try:
        SessionSource(model).session(plain_options(), providers)
    except PropertyError:
        raise
    except Exception as error:
        raise_out_of_memory(error)
        return False
    return True


def _tried(model: Model, nodes: Sequence[int], providers: list[Any]) -> dict[int, str]:
    """Node -> reason, for each of ``nodes`` that a session with these providers cannot run. Each is tried by itself."""
    probes = _probes(model, nodes, providers)
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


def _probes(model: Model, nodes: Sequence[int], providers: list[Any]) -> dict[int, _Probe]:
    shared = repr(providers).encode() + (hashlib.sha256(header_of(model)).digest() if model.functions else b"")
    return {node: _Probe(model, node, shared) for node in nodes}


def _session_error(encoded: bytes, providers: list[Any]) -> Exception | None:
    """What goes wrong when a session is made, if anything does."""
    try:
        backend.new_session(encoded, plain_options(), providers)
    except PropertyError:
        raise
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
    """Probes tried together."""

    def __init__(self, model: Model, probes: Sequence[_Probe], providers: list[Any]) -> None:
        self._model = model
        self._providers = providers
        self._probes = probes

    @functools.cached_property
    def _header(self) -> bytes:
        """Operator sets and functions are those of the model; its graph is not needed."""
        import onnx

        whole = onnx.ModelProto.FromString(self._model.to_bytes(max_constant_bytes=0))
        whole.ClearField("graph")
        encoded: bytes = whole.SerializeToString()
        return encoded

    def run(self) -> None:
        """Write into ``_found`` why each probe is refused."""
        if not self._probes:
            return
        empty = self._error([])
        if empty is not None:  # a version of ONNX that it does not know: nothing else need be tried
            for probe in self._probes:
                _found[probe.signature] = backend.error_text(empty)
            return
        self._try(list(range(len(self._probes))))

    def assigned(self, provider: str) -> set[int]:
        """The probes that run on a provider. One that fails does not."""
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
                probe = self._probes[group[0]]
                _found[probe.signature] = backend.error_text(error).replace(_probe_name(group[0]), probe.key)
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
    session = SessionSource(model).session(_recording_options(), [(provider, dict(provider_options)), CPU_PROVIDER])
    if provider not in session.get_providers():
        raise DeviceUnavailable(_not_started(provider))
    if not hasattr(session, "get_provider_graph_assignment_info"):
        raise DeviceUnavailable(f"ORT: to ask {provider} takes a newer onnxruntime: pip install -U onnxruntime")
    assigned = _assigned(session, provider)
    left = [node for node, key in enumerate(model.keys) if key not in assigned]
    # What it takes by itself and leaves to the CPU in this model, such as arithmetic on shapes, runs better there.
    could = _taken_alone(model, left, provider, provider_options)
    return {
        node: f"{provider} leaves {model.nodes[node].op_type} to another execution provider"
        for node in left
        if node not in could
    }


def _recording_options() -> Any:
    """Options of a session that can be asked where its nodes run."""
    options = plain_options()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def _assigned(session: Any, provider: str) -> set[str]:
    """Names of the nodes of a session that run on a provider."""
    return {
        node.name
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name == provider
        for node in part.get_nodes()
    }


def _taken_alone(
    model: Model, nodes: Sequence[int], provider: str, provider_options: Mapping[str, Any]
) -> frozenset[int]:
    """Those of ``nodes`` that a provider takes if they are tried by themselves.

    onnxruntime's table of kernels (``get_all_opkernel_def``) would say less, because it must be read by operator, and
    reading it ends the process if TensorRT is missing, which most installations of onnxruntime-gpu lack.
    """
    providers: list[Any] = [(provider, dict(provider_options)), CPU_PROVIDER]
    probes = {node: probe for node, probe in _probes(model, nodes, providers).items() if probe.trouble is None}
    with _found_lock:
        unknown = {probe.signature: probe for probe in probes.values() if probe.signature not in _alone}
        if unknown:
            taken = _Trial(model, list(unknown.values()), providers).assigned(provider)
            _alone.update((signature, number in taken) for number, signature in enumerate(unknown))
        return frozenset(node for node, probe in probes.items() if _alone[probe.signature])


def _not_started(provider: str) -> str:
    text = f"ORT: onnxruntime could not start {provider}, which it lists as available"
    missing = backend.preload() if provider == "CUDAExecutionProvider" else ""
    if missing:
        text += f": {missing}. To install the libraries of CUDA: pip install 'onnxruntime-gpu[cuda,cudnn]'"
    return text
