"""Model-local functions: calls of them replaced by the nodes of their bodies.

`inline_calls` takes some calls of a model and gives a model in which each of them is replaced, one level deep: calls
within the body become calls of the model, and may be taken whole or replaced in turn. Names follow from the call's
key, so they are the same however often and in whichever order calls are replaced:

- a node of the body is called ``call/node``: the call's key, and the name of the node in its function (its first
  output if the name is empty or not unique there);
- a value of the body is called ``call/value``; the function's inputs and outputs become those of the call;
- a name that is taken already gets ``_2``, ``_3``, ... after it.

``onnx.inliner`` is not used: it replaces all calls of a function or none, leaves calls alone where the function's opset
is not the model's, does not tell which node came from which call, drops the call's metadata, and has no bound.

Cost: one pass over the functions that are called, then one over the nodes made. The size of what all calls expand to
is computed first; see `FunctionLibrary.check`.
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

__all__ = ["FunctionLibrary", "Inlined", "calls_in", "fill_references", "inline_calls", "may_hold_graphs"]

_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")  # and whatever other domains have
_AFFINITIES = ("affinity", "layer_ann")  # metadata that state a node's device


class _CannotInline(Exception):
    """Why a call has to stay a call."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Inlined:
    """What `inline_calls` gives. ``source``: int32[model.num_nodes], the node of the former model that each node is or
    comes from. ``kept_whole``: node of the former model -> why its call could not be replaced."""

    model: Model
    source: NDArray[np.int32]
    kept_whole: Mapping[int, str]


def calls_in(model: Model, node: int, library: FunctionLibrary) -> Counter[FunctionKey]:
    """The functions that a node calls: itself, if it is a call, else in its nested graphs."""
    proto = model.nodes[node].proto()
    own = library.key_of_call(proto)
    if own is not None:
        return Counter((own,))
    found: Counter[FunctionKey] = Counter()
    for inner in all_nodes([proto]):
        callee = library.key_of_call(inner)
        if callee is not None:
            found[callee] += 1
    return found


def may_hold_graphs(model: Model) -> NDArray[np.bool_]:
    """bool[num_nodes]: False for nodes that have no nested graphs, as their operator tells."""
    mask = np.array(["::" in name or name in _WITH_GRAPHS for name in model.op_types], np.bool_)
    return mask[model.op_type_of]


def inline_calls(model: Model, nodes: Iterable[int], library: FunctionLibrary) -> Inlined:
    """The model with these nodes' calls replaced.

    ``nodes``: calls of functions, replaced by the nodes of the body; or nodes with nested graphs, in which all calls,
    and the calls these make, are replaced; others stay as they are. ``library``: the functions of the model's file.

    A call stays if its function needs another opset than the model's, or hands on an input that the call leaves out.
    `ModelError` if functions recurse, expand to more than is allowed, or contradict themselves.
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
    """Makes the nodes that stand for calls of one model, with names that nothing else has."""

    def __init__(self, model: Model, library: FunctionLibrary) -> None:
        self._model = model
        self._library = library
        self.opsets = dict(model.opsets)
        self.infos: list[onnx.ValueInfoProto] = []
        self.nodes_with_calls_inside: set[int] = set()
        self._taken: set[str] = set()  # values of nested graphs, and those made here
        self._taken_keys: set[str] = set()
        self._last_suffix: dict[str, int] = {}
        self._num_nodes = self._num_bytes = 0
        self._note_nested_graphs()

    def replacement(self, index: int) -> list[onnx.NodeProto]:
        """The nodes that stand for one node of the model. Raises `_CannotInline`."""
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
        """Replace all calls of a nested graph, at any depth. Protobuf bounds the nesting of graphs, `MAX_CALL_DEPTH`
        that of calls, hence the recursion."""
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
        """The nodes of a function, bound to a call. ``top``: in the main graph, where nodes have keys."""
        import onnx

        proto = function.proto
        for given, taken, what in ((call.input, proto.input, "inputs"), (call.output, proto.output, "outputs")):
            if len(given) > len(taken):
                raise self.error(
                    f"node {prefix!r} calls function {function} with {len(given)} {what}; it has {len(taken)}"
                )
        scope = _Names(self, prefix, f"function {function}")
        for position, name in enumerate(proto.input):
            scope.bind(name, call.input[position] if position < len(call.input) else "")
        wanted: dict[str, str] = {}  # output of the function -> the call's name for it
        copies: list[tuple[str, str]] = []  # outputs that are an input, or another output
        for name, outside in zip(proto.output, call.output, strict=False):
            if not outside:
                continue
            if name in scope and not scope.of(name):
                raise _CannotInline(f"function {function} gives its input {name!r} as an output, and the call has none")
            if name in wanted or name in scope:
                copies.append((name, outside))
            else:
                wanted[name] = outside
        self._adopt_opsets(function, bool(copies))
        attributes = {attribute.name: attribute for attribute in proto.attribute_proto}
        attributes.update((attribute.name, attribute) for attribute in call.attribute)
        names = Counter(node.name for node in proto.node)
        for node in proto.node:
            made = onnx.NodeProto()
            made.CopyFrom(node)
            scope.rename_node(made, wanted)
            _fill(made, attributes)
            unique = node.name and names[node.name] == 1
            made.name = self._fresh_key(f"{prefix}/{node.name if unique else _first_output(node)}", top)
            _inherit_metadata(made, call)
            self._count(made, str(function))
            yield made
        for name in wanted:
            if name not in scope:
                raise self.error(f"function {function}: its output {name!r} is made by no node")
        for name, outside in copies:
            copy = onnx.helper.make_node("Identity", [scope.of(name)], [outside])
            copy.name = self._fresh_key(f"{prefix}/{name}", top)
            _inherit_metadata(copy, call)
            self._count(copy, str(function))
            yield copy
        if top:
            self._adopt_infos(proto, scope)

    def fresh_value(self, wanted: str) -> str:
        """A name for a value, which nothing in the model has."""
        return self._fresh(wanted, self._taken, lambda name: self._model.file.index.value_id(name) >= 0)

    def _fresh_key(self, wanted: str, top: bool) -> str:
        if not top:
            return wanted
        return self._fresh(wanted, self._taken_keys, lambda name: self._model.file.keys.entry_of(name) >= 0)

    def error(self, message: str) -> ModelError:
        return self._model.file.error(message)

    def _fresh(self, wanted: str, taken: set[str], is_used: Callable[[str], bool]) -> str:
        name = wanted
        while name in taken or is_used(name):
            suffix = self._last_suffix.get(wanted, 1) + 1
            self._last_suffix[wanted] = suffix
            name = f"{wanted}_{suffix}"
        taken.add(name)
        return name

    def _count(self, node: onnx.NodeProto, function: str) -> None:
        """Names grow with the depth of calls, which the sizes of functions do not tell."""
        self._num_nodes += 1
        self._num_bytes += node.ByteSize()
        if self._num_nodes > MAX_INLINED_NODES:
            raise self.error(f"{function}: inlining passes {MAX_INLINED_NODES:,} nodes (MAX_INLINED_NODES)")
        if self._num_bytes > MAX_INLINED_BYTES:
            raise self.error(f"{function}: inlining passes {MAX_INLINED_BYTES:,} bytes (MAX_INLINED_BYTES)")

    def _adopt_opsets(self, function: Function, copies: bool) -> None:
        """Make the model import what the function needs. Raises `_CannotInline` where the model's version of an
        operator is another one than the function's."""
        imports = {plain_domain(entry.domain): entry.version for entry in function.proto.opset_import}
        added: dict[str, int] = {}
        for domain, op_type in (*function.ops, *[("", "Identity")] * copies):
            if (domain, op_type) in self._library.names:
                version = imports.get(domain, 1)  # the function is what its body says
            elif domain in imports:
                version = imports[domain]
            elif domain == "" and op_type == "Identity":
                version = self.opsets.get("", 1)
            else:
                raise self.error(
                    f"function {function}: it imports no opset of the domain {domain or 'ai.onnx'!r} of its node of "
                    f"type {op_type}"
                )
            known = self.opsets.get(domain, added.get(domain))
            if known is None:
                added[domain] = version
            elif (domain, op_type) not in self._library.names and not same_meaning(domain, op_type, version, known):
                raise _CannotInline(
                    f"function {function} uses {op_type} of opset {version} of {domain or 'ai.onnx'}, the model "
                    f"imports {known}, in which it may differ"
                )
        self.opsets.update(added)

    def _adopt_infos(self, proto: onnx.FunctionProto, scope: _Names) -> None:
        """What the function states of the types of its inner values."""
        import onnx

        boundary = {*proto.input, *proto.output}
        for info in getattr(proto, "value_info", ()):
            if info.name in scope and info.name not in boundary:
                stated = onnx.ValueInfoProto()
                stated.CopyFrom(info)
                stated.name = scope.of(info.name)
                self.infos.append(stated)

    def _note_nested_graphs(self) -> None:
        """Reserve the names that nested graphs define, which the index does not hold."""
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
    """The names that a function's body, or a graph nested in it, sees: name there -> name in the model."""

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
        """A new name for a value made here."""
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
        raise self._expansion.error(f"{self._where}: value {name!r} is read, but nothing before makes it")

    def rename_node(self, node: onnx.NodeProto, wanted: Mapping[str, str]) -> None:
        """Give a node the model's names. ``wanted``: names of outputs that are fixed already."""
        node.input[:] = [self.of(name) if name else "" for name in node.input]
        for graph in graphs_of(node):
            _Names(self._expansion, self._prefix, self._where, self)._rename_graph(graph)
        outputs = []
        for name in node.output:
            if name in wanted:
                self.bind(name, wanted[name])
            outputs.append(wanted[name] if name in wanted else self.define(name))
        node.output[:] = outputs

    def _rename_graph(self, graph: onnx.GraphProto) -> None:
        """Rename all in a nested graph. Protobuf bounds the nesting of what it parses, hence the recursion."""
        for info in graph.input:
            info.name = self.define(info.name)
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            # An initializer may be the default of an input.
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
        del graph.quantization_annotation[:]  # names of values again; nothing reads them


def fill_references(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A copy of ``node`` with every attribute that refers to the enclosing function replaced by the caller's, or left
    out. Nested graphs are filled too; protobuf bounds the nesting of what it parses, hence the recursion."""
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
            given = attributes.get(attribute.ref_attr_name)
            if given is None:
                continue
            value = onnx.AttributeProto()
            value.CopyFrom(given)
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
    """Names that a graph defines, its nested graphs' not included."""
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
    """The call's metadata, affinity among them, where the node has none of its own."""
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
    """The model with other nodes in place of some, and the node that each of its nodes comes from."""
    import onnx

    file = model.file
    count = np.ones(model.num_nodes, np.int64)
    for node, made in replaced.items():
        count[node] = sum(not _is_constant(inner) for inner in made)
    bodies = {node: [inner.SerializeToString() for inner in made] for node, made in replaced.items()}
    bodies.update(_renamed(model, replaced))
    calls_remain = (
        any(
            (domain, name) in library.names
            for domain, name in (_split(model.op_types[op]) for op in set(np.delete(model.op_type_of, list(replaced))))
        )
        or not expansion.nodes_with_calls_inside <= replaced.keys()
        or any(library.key_of_call(inner) for made in replaced.values() for inner in all_nodes(made))
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
        raise file.error("functions of the model were inlined to nodes out of order; please report this as a bug")
    source.flags.writeable = False
    if model.stated_affinity is not None:
        result = result.with_affinity(_handed_down(model, result, source, replaced))
    return result, source


def _renamed(model: Model, replaced: Mapping[int, object]) -> Iterator[tuple[int, list[bytes]]]:
    """Nodes that do not go by their name, because another had the same, get their key for a name: the other may be
    gone, and a key must not change by that."""
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
    """The affinities stated of ``model``, for the nodes of ``result``: a call's go to its nodes."""
    stated = model.stated_affinity or {}
    gone = {model.key_of(node) for node in replaced}
    handed = {key: device for key, device in stated.items() if result.is_key(key)}
    for key in stated:
        if key not in handed and key not in gone:
            raise model.file.error(f"affinity of {key!r}: the function called there has no such node")
    for node in np.flatnonzero(np.isin(source, list(replaced))).tolist():
        device = stated.get(model.key_of(int(source[node])))
        if device is not None:
            handed.setdefault(result.key_of(node), device)
    return handed


def _split(op_type: str) -> tuple[str, str]:
    domain, _, name = op_type.rpartition("::")
    return domain, name
