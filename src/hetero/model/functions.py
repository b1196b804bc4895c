"""Inlines calls of model-local functions.

`inline_calls` replaces selected calls of a model by the nodes of their functions, one level deep: calls in the body
become calls of the model, which can stay whole or be inlined next. Names derive from the call's key, so they do not
depend on the order of inlining:

- The key of a node of the body is ``call/node``: the key of the call, and the node's name in its function (its first
  output if the name is empty or not unique there).
- The name of a value of the body is ``call/value``. The function's inputs and outputs become those of the call.
- A name that is already in use gets the suffix ``_2``, ``_3``, ...

``onnx.inliner`` is not suitable: it inlines all calls of a function or none, does not inline a function with another
opset than the model, does not report which node came from which call, drops the call's metadata, and has no limits.

Cost: one pass over the called functions, then one over the new nodes. The size after inlining is computed first; see
`FunctionLibrary.check`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .function_library import (
    MAX_INLINED_BYTES,
    MAX_INLINED_NODES,
    Function,
    FunctionKey,
    FunctionLibrary,
    all_nodes,
    graphs_in,
    graphs_of,
    plain_domain,
)
from .opsets import same_meaning
from .write import header_of

if TYPE_CHECKING:
    import onnx

    from .model import Model

__all__ = [
    "FunctionLibrary",
    "Inlined",
    "calls_in",
    "fill_references",
    "inline_calls",
    "may_hold_graphs",
    "may_lack_types",
]

_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")  # in ONNX's domain
_AFFINITIES = ("affinity", "layer_ann")  # metadata keys that state a node's device


class _CannotInline(Exception):
    """The reason why a call cannot be inlined."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Inlined:
    """The result of `inline_calls`. ``source``: int32[model.num_nodes], the node of the original model from which each
    node comes. ``kept_whole``: node of the original model -> the reason why its call could not be inlined."""

    model: Model
    source: NDArray[np.int32]
    kept_whole: Mapping[int, str]


def calls_in(model: Model, node: int, library: FunctionLibrary) -> Counter[FunctionKey]:
    """The number of calls per function: by the node itself if it is a call, otherwise in its nested graphs."""
    proto = model.nodes[node].proto()
    own = library.key_of_call(proto)
    if own is not None:
        return Counter((own,))
    calls: Counter[FunctionKey] = Counter()
    for inner in all_nodes([proto]):
        callee = library.key_of_call(inner)
        if callee is not None:
            calls[callee] += 1
    return calls


def may_hold_graphs(model: Model) -> NDArray[np.bool_]:
    """bool[num_nodes]: False for nodes whose operator has no nested graphs."""
    mask = np.array(["::" in name or name in _WITH_GRAPHS for name in model.op_types], np.bool_)
    return mask[model.op_type_of]


def may_lack_types(model: Model) -> bool:
    """Whether values may have types that hetero cannot infer: False, without inference, if all operators, also those
    of nested graphs, are ONNX's own."""
    return len(model.opsets) > 1 and bool(may_hold_graphs(model).any())


def inline_calls(model: Model, nodes: Iterable[int], library: FunctionLibrary) -> Inlined:
    """The model with the calls of these nodes inlined.

    ``nodes``: a call is replaced by the nodes of its function. In a node with nested graphs, all calls in the graphs
    are inlined at every level. Other nodes do not change. ``library``: the functions of the model's file.

    A call is kept if its function requires an opset that is incompatible with the model's, or if the function returns
    an input that the call omits. Raises `ModelError` if functions recurse, exceed a limit, or are invalid.
    """
    calls = {node: calls_in(model, node, library) for node in sorted(set(nodes))}
    totals: Counter[FunctionKey] = Counter()
    for called in calls.values():
        totals.update(called)
    library.check(totals)
    expansion = _Expansion(model, library)
    replaced: dict[int, list[onnx.NodeProto]] = {}
    kept_whole: dict[int, str] = {}
    for node in (node for node, called in calls.items() if called):
        try:
            replaced[node] = expansion.replacement(node)
        except _CannotInline as reason:
            kept_whole[node] = str(reason)
    if not replaced:
        return Inlined(model, np.arange(model.num_nodes, dtype=np.int32), kept_whole)
    return Inlined(*_rebuilt(model, replaced, expansion, library), kept_whole)


class _Expansion:
    """Creates the nodes that replace calls of one model, with unique names."""

    def __init__(self, model: Model, library: FunctionLibrary) -> None:
        self._model = model
        self._library = library
        self.opsets = dict(model.opsets)
        self.infos: list[onnx.ValueInfoProto] = []
        self.nodes_with_calls_inside: set[int] = set()
        self._taken: set[str] = set()  # values of nested graphs, and new values
        self._taken_keys: set[str] = set()
        self._last_suffix: dict[str, int] = {}
        self._num_nodes = self._num_bytes = 0
        self._note_nested_graphs()

    def replacement(self, index: int) -> list[onnx.NodeProto]:
        """The nodes that replace one node of the model. Raises `_CannotInline`."""
        view = self._model.nodes[index]
        key = self._library.key_of_call(view.proto())
        if key is not None:
            return list(self._body(view.proto(), self._library.function(key), view.key, top=True))
        import onnx

        rewritten = onnx.NodeProto()
        rewritten.CopyFrom(view.proto())
        if rewritten.name:
            rewritten.name = view.key  # see `_renamed`
        for graph in graphs_of(rewritten):
            self._inline_within(graph, view.key)
        self._count(rewritten, str(view.key))
        return [rewritten]

    def _inline_within(self, graph: onnx.GraphProto, prefix: str) -> None:
        """Inline all calls in a nested graph, at any depth. The recursion is bounded: protobuf limits the nesting of
        graphs, and `MAX_CALL_DEPTH` that of calls."""
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            name = f"{prefix}/{node.name or next(filter(None, node.output), node.op_type)}"
            nodes += self._without_calls(node, name)
        del graph.node[:]
        graph.node.extend(nodes)

    def _without_calls(self, node: onnx.NodeProto, name: str) -> Iterator[onnx.NodeProto]:
        key = self._library.key_of_call(node)
        if key is None:
            for graph in graphs_of(node):
                self._inline_within(graph, name)
            yield node
            return
        for inner in self._body(node, self._library.function(key), name, top=False):
            yield from self._without_calls(inner, inner.name)

    def _body(self, call: onnx.NodeProto, function: Function, prefix: str, *, top: bool) -> Iterator[onnx.NodeProto]:
        """The nodes of a function, bound to a call. ``top``: the call is in the main graph, where nodes have keys."""
        import onnx

        proto = function.proto
        for actual, formal, kind in ((call.input, proto.input, "inputs"), (call.output, proto.output, "outputs")):
            if len(actual) > len(formal):
                raise self.error(
                    f"node {prefix!r} calls function {function} with {len(actual)} {kind}, but the function has "
                    f"{len(formal)}"
                )
        scope = _Names(self, prefix, f"function {function}")
        for position, name in enumerate(proto.input):
            scope.bind(name, call.input[position] if position < len(call.input) else "")
        output_names: dict[str, str] = {}  # output of the function -> its name in the call
        copies: list[tuple[str, str]] = []  # outputs that are also an input or another output
        for name, outside in zip(proto.output, call.output, strict=False):
            if not outside:
                continue
            if name in scope and not scope.of(name):
                raise _CannotInline(f"function {function} returns its input {name!r}, which the call omits")
            if name in output_names or name in scope:
                copies.append((name, outside))
            else:
                output_names[name] = outside
        self._adopt_opsets(function, bool(copies))
        attributes = {attribute.name: attribute for attribute in proto.attribute_proto}
        attributes.update((attribute.name, attribute) for attribute in call.attribute)
        names = Counter(node.name for node in proto.node)
        for node in proto.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            scope.rename_node(copied, output_names)
            _fill(copied, attributes)
            unique = node.name and names[node.name] == 1
            copied.name = self._fresh_key(f"{prefix}/{node.name if unique else _first_output(node)}", top)
            _inherit_metadata(copied, call)
            self._count(copied, str(function))
            yield copied
        for name in output_names:
            if name not in scope:
                raise self.error(f"function {function}: no node computes its output {name!r}")
        for name, outside in copies:
            identity = onnx.helper.make_node("Identity", [scope.of(name)], [outside])
            identity.name = self._fresh_key(f"{prefix}/{name}", top)
            _inherit_metadata(identity, call)
            self._count(identity, str(function))
            yield identity
        if top:
            self._adopt_infos(proto, scope)

    def fresh_value(self, name: str) -> str:
        """``name``, with a suffix if the model already has such a value."""
        return self._fresh(name, self._taken, lambda name: self._model.file.index.value_id(name) >= 0)

    def _fresh_key(self, key: str, top: bool) -> str:
        if not top:
            return key
        return self._fresh(key, self._taken_keys, lambda name: self._model.file.keys.entry_of(name) >= 0)

    def error(self, message: str) -> ModelError:
        return self._model.file.error(message)

    def _fresh(self, stem: str, taken: set[str], is_used: Callable[[str], bool]) -> str:
        name = stem
        while name in taken or is_used(name):
            suffix = self._last_suffix.get(stem, 1) + 1
            self._last_suffix[stem] = suffix
            name = f"{stem}_{suffix}"
        taken.add(name)
        return name

    def _count(self, node: onnx.NodeProto, function: str) -> None:
        """Check the limits again, because nested calls make names longer than the sizes of functions predict."""
        self._num_nodes += 1
        self._num_bytes += node.ByteSize()
        if self._num_nodes > MAX_INLINED_NODES:
            raise self.error(f"{function}: inlining exceeds {MAX_INLINED_NODES:,} nodes (MAX_INLINED_NODES)")
        if self._num_bytes > MAX_INLINED_BYTES:
            raise self.error(f"{function}: inlining exceeds {MAX_INLINED_BYTES:,} bytes (MAX_INLINED_BYTES)")

    def _adopt_opsets(self, function: Function, copies: bool) -> None:
        """Add the function's opsets to the model's. Raises `_CannotInline` if an operator has another meaning in the
        model's opset."""
        imports = {plain_domain(entry.domain): entry.version for entry in function.proto.opset_import}
        added: dict[str, int] = {}
        for domain, op_type in (*function.ops, *[("", "Identity")] * copies):
            if (domain, op_type) in self._library.names:
                version = imports.get(domain, 1)  # a call; any version works, because the body defines it
            elif domain in imports:
                version = imports[domain]
            elif domain == "" and op_type == "Identity":
                version = self.opsets.get("", 1)
            else:
                raise self.error(
                    f"function {function}: it does not import an opset of domain {domain or 'ai.onnx'!r}, which its "
                    f"{op_type} node requires"
                )
            known = self.opsets.get(domain, added.get(domain))
            if known is None:
                added[domain] = version
            elif (domain, op_type) not in self._library.names and not same_meaning(domain, op_type, version, known):
                raise _CannotInline(
                    f"function {function} uses {op_type} of opset {version} of {domain or 'ai.onnx'}; the model "
                    f"imports opset {known}, in which {op_type} may differ"
                )
        self.opsets.update(added)

    def _adopt_infos(self, proto: onnx.FunctionProto, scope: _Names) -> None:
        """Keep the types that the function states for its inner values."""
        import onnx

        boundary = {*proto.input, *proto.output}
        for info in getattr(proto, "value_info", ()):
            if info.name in scope and info.name not in boundary:
                stated = onnx.ValueInfoProto()
                stated.CopyFrom(info)
                stated.name = scope.of(info.name)
                self.infos.append(stated)

    def _note_nested_graphs(self) -> None:
        """Reserve the names that nested graphs define, because the index does not contain them."""
        model = self._model
        for node in np.flatnonzero(may_hold_graphs(model)).tolist():
            proto = model.nodes[node].proto()
            pending = list(graphs_of(proto))
            while pending:
                graph = pending.pop()
                self._taken.update(_defined_in(graph))
                for inner in graph.node:
                    pending += graphs_of(inner)
                    if self._library.key_of_call(inner) is not None:
                        self.nodes_with_calls_inside.add(node)


class _Names:
    """The names in the scope of a function's body or of a graph nested in it: name -> name in the model."""

    def __init__(self, expansion: _Expansion, prefix: str, where: str, outer: _Names | None = None) -> None:
        self._expansion = expansion
        self._prefix = prefix
        self._where = where
        self._outer = outer
        self._names: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def bind(self, name: str, value: str) -> None:
        if name in self._names:
            raise self._expansion.error(f"{self._where}: value {name!r} is defined twice")
        self._names[name] = value

    def define(self, name: str) -> str:
        """Bind a value of this scope to a new name of the model, and return it."""
        if not name:
            return ""
        self.bind(name, self._expansion.fresh_value(f"{self._prefix}/{name}"))
        return self._names[name]

    def of(self, name: str) -> str:
        scope: _Names | None = self
        while scope is not None:
            if name in scope._names:
                return scope._names[name]
            scope = scope._outer
        raise self._expansion.error(f"{self._where}: value {name!r} is read before it is computed")

    def rename_node(self, node: onnx.NodeProto, output_names: Mapping[str, str]) -> None:
        """Replace the names in a node by the model's. ``output_names``: outputs whose names are fixed."""
        node.input[:] = [self.of(name) if name else "" for name in node.input]
        for graph in graphs_of(node):
            _Names(self._expansion, self._prefix, self._where, self)._rename_graph(graph)
        outputs = []
        for name in node.output:
            if name in output_names:
                self.bind(name, output_names[name])
            outputs.append(output_names[name] if name in output_names else self.define(name))
        node.output[:] = outputs

    def _rename_graph(self, graph: onnx.GraphProto) -> None:
        """Rename everything in a nested graph. Protobuf limits the nesting, so the recursion is bounded."""
        for info in graph.input:
            info.name = self.define(info.name)
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            # An initializer with the name of an input is the default of that input.
            tensor.name = self._names[tensor.name] if tensor.name in self else self.define(tensor.name)
        for node in graph.node:
            self.rename_node(node, {})
        for info in graph.output:
            info.name = self.of(info.name)
        stated = [info for info in graph.value_info if info.name in self]
        for info in stated:
            info.name = self._names[info.name]
        del graph.value_info[:]
        graph.value_info.extend(stated)
        del graph.quantization_annotation[:]  # not used, and it contains old names


def fill_references(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A copy of ``node`` in which each reference to an attribute of the enclosing function is replaced by the caller's
    value, or removed if there is none. Includes nested graphs; protobuf limits their nesting."""
    import onnx

    filled = onnx.NodeProto()
    filled.CopyFrom(node)
    _fill(filled, attributes)
    return filled


def _fill(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    import onnx

    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            referenced = attributes.get(attribute.ref_attr_name)
            if referenced is None:
                continue
            value = onnx.AttributeProto()
            value.CopyFrom(referenced)
            value.name = attribute.name
            attribute = value
        else:
            for graph in graphs_in(attribute):
                for inner in graph.node:
                    _fill(inner, attributes)
        kept.append(attribute)
    if any(attribute.ref_attr_name for attribute in node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)


def _defined_in(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph defines, without those of its nested graphs."""
    for info in graph.input:
        yield info.name
    for tensor in graph.initializer:
        yield tensor.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name
    for node in graph.node:
        yield from node.output


def _first_output(node: onnx.NodeProto) -> str:
    return next(filter(None, node.output), node.op_type)


def _inherit_metadata(node: onnx.NodeProto, call: onnx.NodeProto) -> None:
    """Add the call's metadata, including its affinity, to a node that does not have its own."""
    own = {entry.key for entry in node.metadata_props}
    for entry in call.metadata_props:
        stated = own.intersection(_AFFINITIES) if entry.key in _AFFINITIES else entry.key in own
        if not stated:
            node.metadata_props.add(key=entry.key, value=entry.value)


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and not plain_domain(node.domain)


def _rebuilt(
    model: Model, replaced: dict[int, list[onnx.NodeProto]], expansion: _Expansion, library: FunctionLibrary
) -> tuple[Model, NDArray[np.int32]]:
    """The model with some nodes replaced, and the original node of each of its nodes."""
    import onnx

    file = model.file
    count = np.ones(model.num_nodes, np.int64)
    for node, body in replaced.items():
        count[node] = sum(not _is_constant(inner) for inner in body)
    bodies = {node: [inner.SerializeToString() for inner in body] for node, body in replaced.items()}
    bodies.update(_renamed(model, replaced))
    calls_remain = (
        any(
            (domain, name) in library.names
            for domain, name in (_split(model.op_types[op]) for op in set(np.delete(model.op_type_of, list(replaced))))
        )
        or not expansion.nodes_with_calls_inside <= replaced.keys()
        or any(library.key_of_call(inner) for body in replaced.values() for inner in all_nodes(body))
    )
    header = onnx.ModelProto.FromString(header_of(model))
    if not calls_remain:
        del header.functions[:]
    for domain, version in expansion.opsets.items():
        if domain not in model.opsets:
            header.opset_import.add(domain=domain, version=version)
    infos = [info.SerializeToString() for info in expansion.infos]
    result = model.with_nodes(header.SerializeToString(), bodies, infos)
    source = np.repeat(np.arange(model.num_nodes, dtype=np.int32), count)
    if len(source) != result.num_nodes or not result.file.index.in_order:
        raise file.error("the inlined nodes are not in topological order; please report this as a bug")
    source.flags.writeable = False
    if model.stated_affinity is not None:
        result = result.with_affinity(_handed_down(model, result, source, replaced))
    return result, source


def _renamed(model: Model, replaced: Mapping[int, object]) -> Iterator[tuple[int, list[bytes]]]:
    """Nodes with a name that is not unique, renamed to their keys. Otherwise a key would change if inlining removed the
    other node of that name."""
    import onnx

    names, text = model.file.index.arrays["node_name"], model.file.index.text
    for node, file_node in enumerate(model.file_nodes.tolist()):
        span = int(names[file_node])
        if span and node not in replaced and text(span) != model.key_of(node):
            proto = onnx.NodeProto()
            proto.CopyFrom(model.nodes[node].proto())
            proto.name = model.key_of(node)
            yield node, [proto.SerializeToString()]


def _handed_down(
    model: Model, result: Model, source: NDArray[np.int32], replaced: Mapping[int, object]
) -> dict[str, str]:
    """The stated affinities of ``model`` for the nodes of ``result``. Nodes of a call inherit the call's affinity."""
    stated = model.stated_affinity or {}
    gone = {model.key_of(node) for node in replaced}
    handed = {key: device for key, device in stated.items() if result.is_key(key)}
    for key in stated:
        if key not in handed and key not in gone:
            raise model.file.error(f"affinity of {key!r}: the called function has no such node")
    for node in np.flatnonzero(np.isin(source, list(replaced))).tolist():
        device = stated.get(model.key_of(int(source[node])))
        if device is not None:
            handed.setdefault(result.key_of(node), device)
    return handed


def _split(op_type: str) -> tuple[str, str]:
    domain, _, name = op_type.rpartition("::")
    return domain, name
