"""The operators of the CPU device: which forms of each are supported, and the function that lowers it.

A lowering gets the node and its operands as `Value`s, adds kernel calls to the `Context`, and returns the outputs as
`Value`s. `query_model` checks what an `Operator` accepts, so unsupported nodes are reported with a reason before
anything is compiled. What depends on shapes or data is checked by the lowering, which raises `InferenceError`.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np
from numpy.typing import NDArray

from ..._onnx import AlikeNodes
from ...errors import HeteroError, InferenceError, ModelError
from ...model.types import dtype_of
from ...model.views import NodeView
from ..operator_forms import INTERNAL, malformed_nodes
from .values import Context, NeedsHost, Value, is_opaque

if TYPE_CHECKING:
    from ...extension.binding import BoundOp
    from ...model.model import Model
    from ...model.rows import Rows
    from ...model.types import Dim

__all__ = [
    "ADAPTERS",
    "ALIASES",
    "ANY",
    "ANYTHING",
    "BOOL",
    "F32",
    "FLOATS",
    "HOSTED",
    "INDICES",
    "LATER",
    "LATER_HOSTED",
    "NOT_TENSOR",
    "NUMBERS",
    "OPERATORS",
    "STRING",
    "Append",
    "Contradiction",
    "ContradictionError",
    "ExaminedNode",
    "Lowering",
    "Nested",
    "NestedGraph",
    "Node",
    "NodePlan",
    "Operator",
    "Result",
    "Types",
    "attribute_trouble",
    "contradicting",
    "contradictions",
    "dtype_trouble",
    "examine",
    "forms_of",
    "hosted",
    "load_all",
    "operator",
    "stated_by",
]

F32 = ("float32",)
FLOATS = ("float32", "float64")
INDICES = ("int32", "int64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = FLOATS + INTEGERS
BOOL = ("bool",)
ANY = (*NUMBERS, *BOOL, "float16", "bfloat16")
STRING = ("object",)
NOT_TENSOR = ("not a tensor",)  # sequences, optionals and maps
ANYTHING = (*ANY, *STRING, *NOT_TENSOR)  # only of hosted operators

Lowering = Callable[["Context", "Node", Sequence[Value | None]], Sequence[Value]]
Rule = int | str | tuple[int | str, ...] | None
Result = Rule | Callable[[Mapping[str, Any]], Rule]
Host = Callable[["Node"], Callable[..., Sequence[Any]]]
"""Checks the attributes of a node and returns the function that runs it: inputs (None if absent) -> outputs. Raises
`InferenceError` for a node that is not supported, and `ContradictionError` for one that no device supports."""
Labels = Callable[[Mapping[str, Any]], NDArray[Any] | None]


@dataclasses.dataclass(slots=True)
class Node:
    """A node as lowerings see it, parsed once per compiled model. Read-only except for ``prepared``."""

    op_type: str
    opset: int
    attributes: Mapping[str, Any]
    num_outputs: int
    prepared: Any = None  # what a lowering derived from the attributes alone, for later plans of the compiled model

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """One supported form of an operator, for versions ``since`` to ``until`` of its domain.

    ``dtypes``: accepted element types of each input; the last entry also applies to all further inputs.
    ``attributes``: name -> accepted values, None for any; other attributes are not supported.
    ``check``: a further check, which returns the reason if the node is not supported.
    ``result``: the first output's dtype: its name, the position of the input that has the same, a tuple of these, of
    which the first that is not an absent input counts, or a function of the attributes that returns one of these; None
    if no such rule exists. ``further``: the same for the further outputs; the last entry also applies to all after it.
    ``nested``: reads the bodies of a control-flow node. ``custom``: a custom operator.
    ``host``: the operator runs in Python between two programs, because kernels know no strings, sequences and maps.
    ``labels``: the strings that the first output is made of, as a function of the attributes, or None if it is a tensor
    of numbers. The lowering returns their places in this table; who reads the output gets the strings.
    """

    lower: Lowering
    dtypes: tuple[Collection[str], ...]
    attributes: Mapping[str, Collection[Any] | None]
    since: int
    until: int
    check: Callable[[Model, ExaminedNode], str | None] | None
    result: Result
    nested: ReadNested | None = None
    custom: BoundOp | None = None
    host: Host | None = None
    labels: Labels | None = None
    further: tuple[Result, ...] = ()


OPERATORS: dict[str, list[Operator]] = {}
HOSTED: dict[str, list[Operator]] = {}
"""Operators that run in Python, for nodes that no kernel supports."""

FEEDING: dict[str, Callable[[Node], Callable[..., Sequence[Any]] | None]] = {}
"""Operators on numbers that have kernels, but run in Python where only hosted nodes read their results. Each is the
function that makes the one that runs a node, or None if the node needs its kernel. The results are new arrays."""

ALIASES: dict[str, tuple[str, int]] = {}
"""Operators of other domains that are one of ONNX's by another name -> its name and the opset with their meaning."""

LATER: dict[str, str] = {}
"""Name of an operator -> the module that registers it in `OPERATORS`, and is imported when a model has the operator."""
BY_COLUMN: set[Host] = set()
"""Hosted operators whose functions also take an array of strings and the number of a column, for which they return what
they return for this column; IndexError if the array has no such column."""
LATER_HOSTED: list[str] = []
"""The modules that register `HOSTED`. They are imported when a model has a node without a kernel."""
ADAPTERS: list[Callable[[str, Operator], Operator]] = []
"""Each makes of every operator that is registered, by name, the one that `OPERATORS` gets."""


def stated_by(attribute: str, default: int) -> Result:
    """The rule of `Operator.result` for an element type in an attribute, ``default`` if that is absent. Both are ONNX's
    numbers; 0 is the type of the first input."""

    def result(attributes: Mapping[str, Any]) -> Rule:
        number = attributes.get(attribute, default)
        dtype = dtype_of(number)
        return dtype.name if dtype is not None else None if number else 0

    return result


def operator(
    *names: str,
    dtypes: Collection[str] | tuple[Collection[str], ...],
    attributes: Mapping[str, Collection[Any] | None] | None = None,
    since: int = 1,
    until: int = 10_000,
    check: Callable[[Model, ExaminedNode], str | None] | None = None,
    result: Result = 0,
    further: tuple[Result, ...] = (),
    nested: ReadNested | None = None,
    labels: Labels | None = None,
) -> Callable[[Lowering], Lowering]:
    """Register the lowering of operators, for versions ``since`` to ``until`` of their domain. Names are those of
    ONNX's operators, or ``domain::name``."""
    per_input = dtypes if dtypes and not isinstance(next(iter(dtypes)), str) else (dtypes,)

    def add(lower: Lowering) -> Lowering:
        for name in names:
            types: tuple[Collection[str], ...] = tuple(per_input)  # type: ignore[arg-type]
            entry = Operator(
                lower, types, attributes or {}, since, until, check, result, nested, labels=labels, further=further
            )
            for adapt in ADAPTERS:
                entry = adapt(name, entry)
            OPERATORS.setdefault(name, []).append(entry)
        return lower

    return add


def hosted(
    *names: str,
    dtypes: Collection[str] | tuple[Collection[str], ...] = ANYTHING,
    attributes: Mapping[str, Collection[Any] | None] | None = None,
    since: int = 1,
    until: int = 10_000,
    check: Callable[[Model, ExaminedNode], str | None] | None = None,
    result: Result = None,
    further: tuple[Result, ...] = (),
) -> Callable[[Host], Host]:
    """Register operators that run in Python. Parameters as of `operator`; `STRING` and `NOT_TENSOR` are types too."""
    per_input = dtypes if dtypes and not isinstance(next(iter(dtypes)), str) else (dtypes,)

    def add(host: Host) -> Host:
        for name in names:
            HOSTED.setdefault(name, []).append(
                Operator(
                    *(_run_by_host, tuple(per_input), attributes or {}, since, until, check, result),  # type: ignore[arg-type]
                    host=host,
                    further=further,
                )
            )
        return host

    return add


def _run_by_host(context: Context, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
    raise NeedsHost


def forms_of(op_type: str) -> Sequence[Operator]:
    """All supported forms of an operator; empty if there is no kernel."""
    if op_type in LATER:
        importlib.import_module(LATER[op_type])
    return OPERATORS.get(op_type, ())


def load_all() -> None:
    """Import the modules of all operators, so that `OPERATORS` and `HOSTED` are complete."""
    for module in (*LATER.values(), *LATER_HOSTED):
        importlib.import_module(module)


def find(op_type: str, opset: int) -> Operator | None:
    return next((entry for entry in forms_of(op_type) if entry.since <= opset <= entry.until), None)


class Contradiction(str):
    """A reason of `Operator.check` that holds for every device: the node contradicts its operator's definition."""

    __slots__ = ()


class ContradictionError(InferenceError):
    """What a `Host` raises for attributes that contradict the operator's definition."""


P = ParamSpec("P")


def contradicting(check: Callable[P, str | None]) -> Callable[P, str | None]:
    """Mark all reasons that ``check`` returns as `Contradiction`."""

    @functools.wraps(check)
    def marked(*arguments: P.args, **named: P.kwargs) -> str | None:
        reason = check(*arguments, **named)
        return None if reason is None else Contradiction(reason)

    return marked


_ML = "ai.onnx.ml::"


def contradictions(model: Model, kinds: Collection[int], infer: bool) -> dict[int, str]:
    """Why nodes contradict the definitions of their operators, by index. Nodes that the CPU rejects for another reason
    are not checked.

    ``kinds``: the operators to check, as places in ``model.op_types``.
    ``infer``: whether to run shape inference for types that neither the model nor these operators state."""
    checked = {number: forms for number in kinds if (forms := _checked_forms(model, model.op_types[number]))}
    types = Types(model, infer)
    found: dict[int, str] = {}
    for index in np.flatnonzero(np.isin(model.op_type_of, list(checked))).tolist():
        number = int(model.op_type_of[index])
        view = ExaminedNode(model, index, types)
        for entry in checked[number]:
            inputs, outputs = model.node_inputs[index].tolist(), model.node_outputs[index].tolist()
            reason = _count_trouble(model.op_types[number], inputs, len(outputs))
            reason = reason or attribute_trouble(model.op_types[number], entry, view.stored_attributes)
            reason = reason or _kind_trouble(model.op_types[number], entry, inputs, types)
            reason = reason or _input_trouble(model, entry, inputs, types)
            reason = reason or _examined(model, view, entry)
            if isinstance(reason, Contradiction):
                found[index] = reason
            elif reason is None:
                types.note(entry, view.stored_attributes, inputs, outputs)
    return found


def _examined(model: Model, view: ExaminedNode, entry: Operator) -> str | None:
    reason = entry.check(model, view) if entry.check is not None else None
    if entry.host is not None and not isinstance(reason, Contradiction):
        try:
            entry.host(Node(view.op_type, entry.since, view.stored_attributes, 1))
        except ContradictionError as error:
            return Contradiction(error)
        except HeteroError as error:
            return reason or str(error)
    return reason


def _checked_forms(model: Model, op_type: str) -> list[Operator]:
    if _split(op_type) in model.functions:
        return []
    name, opset = ALIASES.get(op_type) or (op_type, model.opsets.get(_split(op_type)[0], 0))
    kernels = forms_of(name)
    for module in LATER_HOSTED:
        importlib.import_module(module)
    forms = (*kernels, *HOSTED.get(name, ()))
    return [entry for entry in forms if entry.since <= opset <= entry.until]


class NodePlan:
    """The facts about a node that planning needs, computed once per model. ``str()`` names the node for errors."""

    __slots__ = ("_model", "index", "inputs", "nested", "node", "operator", "outputs")

    def __init__(
        self,
        model: Model,
        index: int,
        operator: Operator,
        node: Node,
        inputs: list[int],
        outputs: list[int],
        nested: Nested | None = None,
    ) -> None:
        self._model = model
        self.index = index
        self.operator = operator
        self.node = node
        self.inputs = inputs  # value ids; -1: absent; for control flow, followed by the captured values
        self.outputs = outputs
        self.nested = nested

    def replaced(self, operator: Operator, inputs: list[int], outputs: list[int]) -> NodePlan:
        """Another plan of the same node, which also computes what nodes before or after it did."""
        return NodePlan(self._model, self.index, operator, self.node, inputs, outputs)

    def __str__(self) -> str:
        return f"node {self._model.key_of(self.index)!r} ({self.node.op_type})"


@dataclasses.dataclass(frozen=True, slots=True)
class Append:
    """A carried value of a Loop to which each iteration appends along ``axis``. ``carried``: its index among the
    carried values. ``in_front``: the new part goes before the value, not after it."""

    carried: int
    axis: int
    in_front: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NestedGraph:
    """A body of a control-flow node, as a model.

    ``name``: the attribute that holds it.
    ``inputs``: its own inputs, as value ids in ``model``.
    ``captures``: pairs of a value id in ``model`` and a position among the inputs of the `NodePlan`.
    ``results``: its outputs, as value ids; a value may occur more than once.
    ``outputs``: element type and dimensions of each output, None if unknown.
    ``input_ranks``: as the body states them, None if it does not.
    ``row_shape``: of a Loop: the inferred shape that a result has in each iteration, empty if its rank is unknown.
    """

    name: str
    model: Model
    nodes: list[NodePlan]
    inputs: tuple[int, ...]
    captures: tuple[tuple[int, int], ...]
    results: tuple[int, ...]
    outputs: tuple[tuple[np.dtype[Any] | None, tuple[Dim, ...] | None], ...]
    input_ranks: tuple[int | None, ...]
    row_shape: Callable[[int], tuple[Dim, ...]] | None = None

    def without_carried(self, gone: Collection[int]) -> NestedGraph:
        """A Loop's body without some of the values that it carries, as inputs and as outputs. ``gone``: their places
        among these values."""
        num_carried = len(self.inputs) - 2
        rest = [place for place in range(num_carried) if place not in gone]
        inputs = [0, 1, *(2 + place for place in rest)]
        results = [0, *(1 + place for place in rest), *range(1 + num_carried, len(self.results))]
        return dataclasses.replace(
            self,
            inputs=tuple(self.inputs[at] for at in inputs),
            results=tuple(self.results[at] for at in results),
            outputs=tuple(self.outputs[at] for at in results),
            input_ranks=tuple(self.input_ranks[at] for at in inputs),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """The bodies of a control-flow node. ``captures``: the captured values, which follow the node's ``num_inputs`` own
    inputs.

    Of the carried values of a Loop, by index, the body no longer has these: ``kept`` ones, which it passes on as they
    are and now captures, and those of ``appends``, to which it only appends."""

    graphs: tuple[NestedGraph, ...]
    captures: tuple[int, ...]
    num_inputs: int
    kept: tuple[int, ...] = ()
    appends: tuple[Append, ...] = ()


Expand = Callable[["Model", int, "Types"], Operator | str | None]
ReadNested = Callable[["Model", int, "Types", Expand], "Nested | str"]


def examine(
    model: Model, expand: Expand, types: Types | None = None, *, with_plans: bool = True
) -> tuple[list[NodePlan], dict[int, str]]:
    """Return the plans of all supported nodes, and for every other node (by index) the reason. A few µs per node.

    ``expand``: called for a node without a kernel, and first for a node of another domain than ONNX's; returns an
    operator for it, the reason why not, or None.
    ``types``: of this model; receives the element types of the results.
    ``with_plans``: False leaves the list empty.
    """
    forms = [ALIASES.get(op_type) or (op_type, model.opsets.get(_split(op_type)[0], 0)) for op_type in model.op_types]
    operators = [_resolve(model, name, *form) for name, form in zip(model.op_types, forms, strict=True)]
    types = types or Types(model)
    plans: list[NodePlan] = []
    reasons: dict[int, str] = {}
    malformed = malformed_nodes(model)
    # Indexing memoryviews returns plain ints, which is faster than NumPy scalars.
    in_ends, in_values = model.node_inputs.indptr.data, model.node_inputs.values.data
    out_ends, out_values = model.node_outputs.indptr.data, model.node_outputs.values.data
    op_of = model.op_type_of.data
    alike = None if with_plans else _alike_nodes(model, operators, types)
    index = -1
    while (index := index + 1 if alike is None else alike.first_unlike(index + 1)) < model.num_nodes:
        if index in malformed:
            reasons[index] = malformed[index]
            continue
        op = op_of[index]
        entry = operators[op]
        inputs = in_values[in_ends[index] : in_ends[index + 1]].tolist()
        outputs = out_values[out_ends[index] : out_ends[index + 1]].tolist()
        view = ExaminedNode(model, index, types)
        attributes = view.stored_attributes
        reason: str | None
        nested: Nested | str | None = None
        if isinstance(entry, str):
            reason = entry
        elif "::" in model.op_types[op] and isinstance(custom := expand(model, index, types), Operator):
            entry, reason = custom, None  # a custom operator replaces a kernel of the same domain and name
        else:
            reason = _unfit(model, index, entry, attributes, inputs, types)
            if reason is None and entry.check is not None:
                reason = entry.check(model, view)
            if reason is None and entry.nested is not None:
                nested = entry.nested(model, index, types, expand)
                reason = nested if isinstance(nested, str) else None
        if reason is not None:
            made = _hosted(model, index, model.op_types[op], forms[op][1], attributes, inputs, types)
            if isinstance(made, str):
                reason, made = made, None
            made = made or expand(model, index, types)
            if made is None or isinstance(made, str):
                reasons[index] = reason if made is None else f"{reason}; {made}"
                continue
            entry = made
        assert not isinstance(entry, str)
        results = types.note(entry, attributes, inputs, outputs)
        if alike is not None:
            if entry is operators[op]:
                alike.add(index, results)
            continue
        if nested is not None:
            assert not isinstance(nested, str)
            inputs = [*inputs, *nested.captures]
            attributes = {k: v for k, v in attributes.items() if k not in {graph.name for graph in nested.graphs}}
        name, opset = forms[op]
        node = Node(name, opset, attributes, len(outputs))
        plans.append(NodePlan(model, index, entry, node, inputs, outputs, nested))
    return plans, reasons


def _alike_nodes(model: Model, operators: Sequence[Operator | str], types: Types) -> AlikeNodes:
    """Lets `examine` check one of the supported nodes that are alike.

    Exact, because the answer for an operator without `Operator.check` and `Operator.nested` follows from its
    attributes, the number of its outputs, and the types of its inputs. A custom operator may replace a node of another
    domain, so such nodes are like no other."""
    is_plain = [
        isinstance(entry, Operator) and entry.check is None and entry.nested is None and "::" not in name
        for name, entry in zip(model.op_types, operators, strict=True)
    ]
    return AlikeNodes(
        np.array(is_plain, np.uint8),
        model.op_type_of,
        model.nodes.attribute_groups,
        (model.node_inputs.indptr, model.node_inputs.values),
        (model.node_outputs.indptr, model.node_outputs.values),
        model.is_constant.view(np.uint8),
        types.numbers,
        types.of,
    )


def _hosted(
    model: Model,
    index: int,
    op_type: str,
    opset: int,
    attributes: Mapping[str, Any],
    inputs: Sequence[int],
    types: Types,
) -> Operator | str | None:
    """The hosted operator for a node, or the reason why it does not support the attributes. None if there is none, or
    if it is not for these types and a kernel is."""
    if _split(op_type) in model.functions:
        return None
    reason = None
    has_kernel = bool(forms_of(op_type))
    for module in LATER_HOSTED:
        importlib.import_module(module)
    for entry in HOSTED.get(op_type, ()):
        if not entry.since <= opset <= entry.until:
            continue
        trouble = _unfit(model, index, entry, attributes, inputs, types)
        if trouble is not None and has_kernel:
            continue
        if trouble is None and entry.check is not None:
            trouble = entry.check(model, ExaminedNode(model, index, types))
        if trouble is None:
            assert entry.host is not None
            try:
                entry.host(Node(op_type, opset, attributes, 1))
            except UnicodeDecodeError as error:
                trouble = f"an attribute has bytes that are not UTF-8: {error}"
            except HeteroError as error:
                trouble = str(error)
            else:
                return entry
        reason = reason or trouble
    return reason


def _split(op_type: str) -> tuple[str, str]:
    domain, separator, name = op_type.rpartition("::")
    return (domain, name) if separator else ("", op_type)


def _resolve(model: Model, op_type: str, name: str, opset: int) -> Operator | str:
    """The kernels' entry for an operator of the model, which is ``name`` of this opset (`ALIASES`), or the reason why
    it is not supported."""
    if _split(op_type) in model.functions:
        return f"{_split(op_type)[1]} is a function of the model"
    forms = forms_of(name)
    if not forms:
        return f"no kernel for {name}"
    entry = find(name, opset)
    if entry is None:
        versions = ", ".join(f"{entry.since} to {entry.until}" for entry in forms)
        return f"{name} of opset {opset}; kernels exist for opsets {versions}"
    return entry


_INTEGERS = frozenset(("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "int4", "uint4"))
_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))


def _kind_trouble(op_type: str, entry: Operator, inputs: Sequence[int], types: Types) -> str | None:
    """An operand of floats where a quantized operator or one of onnxruntime has integers, or the reverse."""
    if op_type.startswith(_ML) or op_type == "com.microsoft::MatMulNBits":  # zero points may be floats or integers
        return None
    last = len(entry.dtypes) - 1
    for position, value in enumerate(inputs):
        name, accepted = types.of(value) if value >= 0 else None, entry.dtypes[min(position, last)]
        for kind, other in ((_INTEGERS, _FLOATS), (_FLOATS, _INTEGERS)):
            if name in other and kind.issuperset(accepted):
                return Contradiction(f"{op_type} with input {position} of type {name}; expected {', '.join(accepted)}")
    return None


_NUM_OUTPUTS = {
    **dict.fromkeys(("If", "Loop", "Scan", "Split", "SequenceMap"), 1 << 31),
    "BatchNormalization": 5,
    **dict.fromkeys(("Attention", "Unique"), 4),
    **dict.fromkeys(("DynamicQuantizeLinear", "LSTM", "LayerNormalization"), 3),
    **dict.fromkeys(("CausalConvWithState", "Dropout", "GRU", "LinearAttention", "MaxPool", "RNN"), 2),
    **dict.fromkeys(("SimplifiedLayerNormalization", "SoftmaxCrossEntropyLoss", "StringSplit", "TopK"), 2),
    **{f"ai.onnx.ml::{name}Classifier": 2 for name in ("Linear", "SVM", "TreeEnsemble")},
    **{f"com.microsoft::{name}": 4 for name in ("GroupQueryAttention", "MultiHeadAttention")},
    **{f"com.microsoft::Skip{name}Normalization": 4 for name in ("Layer", "SimplifiedLayer")},
    **{f"com.microsoft::{name}": 3 for name in ("Attention", "DynamicQuantizeLSTM")},
    **{f"com.microsoft::{name}EmbedLayerNormalization": 3 for name in ("", "Q")},
    "com.microsoft::QAttention": 3,
}
"""The most outputs that an operator has, if it may have several."""

_NUM_REQUIRED = {
    **dict.fromkeys(("Loop", "Optional", "OptionalHasElement", "Scan"), 0),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "ai.onnx.ml::ArrayFeatureExtractor"), 2),
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), 2),
    **dict.fromkeys(("com.microsoft::QuantizeLinear", "com.microsoft::DequantizeLinear"), 2),
    **dict.fromkeys(("QLinearMatMul", "QLinearConv"), 8),
}
"""How many of the first inputs a node must name, if it is not 1 (or 0, if the node has no inputs)."""


def _unfit(
    model: Model, index: int, entry: Operator, attributes: Mapping[str, Any], inputs: Sequence[int], types: Types
) -> str | None:
    """Why the node does not fit the operator, apart from `Operator.check`."""
    op_type = model.op_types[model.op_type_of[index]]
    return (
        _count_trouble(op_type, inputs, len(model.node_outputs[index]))
        or attribute_trouble(op_type, entry, attributes)
        or _input_trouble(model, entry, inputs, types)
    )


def _count_trouble(op_type: str, inputs: Sequence[int], num_outputs: int) -> str | None:
    """Required inputs that are left out, and more outputs than the operator has."""
    required = _NUM_REQUIRED.get(op_type, 1)
    if required > 1 and len(inputs) < required:
        return Contradiction(f"{op_type} with {len(inputs)} of its {required} required inputs")
    for position, value in enumerate(inputs[:required]):
        if value < 0:
            return Contradiction(f"{op_type} without its input {position}")
    most = _NUM_OUTPUTS.get(op_type, 1)
    if num_outputs > most:
        return Contradiction(f"{op_type} with {num_outputs} outputs; expected at most {most}")
    return None


def _lists_all(op_type: str) -> bool:
    """Whether `Operator.attributes` has all strings that the operator's definition allows, if it lists any."""
    return op_type.startswith(_ML) or op_type == "StringNormalizer"


def attribute_trouble(op_type: str, entry: Operator, attributes: Mapping[str, Any]) -> str | None:
    for name, value in attributes.items():
        if name not in entry.attributes:
            if name.startswith(INTERNAL):
                continue
            return f"{op_type} with attribute {name}"
        accepted = entry.attributes[name]
        if accepted is not None and value not in accepted:
            reason = f"{op_type} with {name} = {value!r}; kernels support {', '.join(map(repr, accepted))}"
            is_flag = op_type.startswith("com.microsoft::") and tuple(accepted) == (0, 1)
            return Contradiction(reason) if is_flag or (isinstance(value, bytes) and _lists_all(op_type)) else reason
    return None


class Types:
    """Element types by value id. Most follow from the inputs by the operator's rule (`Operator.result`). The rest come
    from the model, which may have to run shape inference; without ``infer``, those that it does not state are None.

    ``numbers``: per value, the index of its type in ``_names``; 0 if `of` has to look it up."""

    def __init__(self, model: Model, infer: bool = True) -> None:
        self._model = model
        self._infer = infer
        self.numbers = array.array("i", bytes(4 * model.num_values))
        self._names: list[str | None] = [None, None]  # 1: unknown
        self._number_of: dict[str | None, int] = {None: 1}

    def of(self, value: int) -> str | None:
        number = self.numbers[value]
        if not number:
            model = self._model
            is_constant = model.is_constant[value]
            dtype = model.constant_dtype(value) if is_constant else model.type_of(value, infer=self._infer).dtype
            number = self.numbers[value] = self._number(None if dtype is None else name_of(dtype))
        return self._names[number]

    def is_tensor(self, value: int) -> bool:
        return self._model.is_tensor(value, infer=self._infer)

    def state(self, value: int, name: str) -> None:
        self.numbers[value] = self._number(name)

    def note(
        self, entry: Operator, attributes: Mapping[str, Any], inputs: Sequence[int], outputs: Sequence[int]
    ) -> list[int]:
        """Record and return the numbers of the types of the outputs, 0 where the operator's rules do not determine
        them. If it has several rules, the last one also holds for all further outputs."""
        if entry.labels is not None and entry.labels(attributes) is not None:
            first: str | Literal[False] | None = STRING[0]
        else:
            first = self._ruled(entry.result, attributes, inputs)
        results = (first, *[self._ruled(rule, attributes, inputs) for rule in entry.further])
        last = len(results) - 1
        found = [0] * len(outputs)
        for position, value in enumerate(outputs):
            result = results[min(position, last)] if last or not position else False
            if result is not False:
                found[position] = self._number(result)
                if value >= 0:
                    self.numbers[value] = found[position]
        return found

    def _number(self, name: str | None) -> int:
        number = self._number_of.get(name)
        if number is None:
            number = self._number_of[name] = len(self._names)
            self._names.append(name)
        return number

    def _ruled(self, rule: Result, attributes: Mapping[str, Any], inputs: Sequence[int]) -> str | Literal[False] | None:
        if callable(rule):
            rule = rule(attributes)
            if rule is None:
                return None
        for source in rule if isinstance(rule, tuple) else (rule,):
            if isinstance(source, str):
                return source
            if source is not None and source < len(inputs) and inputs[source] >= 0:
                return self.of(inputs[source])
        return False


class ExaminedNode(NodeView):
    """A node that `examine` looks at. Checks ask it for element types, because most are known without inference."""

    __slots__ = ("_types",)

    def __init__(self, model: Rows, index: int, types: Types) -> None:
        super().__init__(model, index)
        self._types = types

    def type_of_input(self, position: int) -> str | None:
        """The name of an input's element type; None if it is absent or unknown."""
        value = int(self._model.node_inputs[self.index][position])
        return self._types.of(value) if value >= 0 else None


def stated_shape(model: Model, value: int) -> tuple[int | str | None, ...] | None:
    """The shape that the model states for one of its inputs: then no inference has another. None for other values,
    because what files say of these may be wrong."""
    is_input = value >= 0 and model.file.value_producer[model.file_value(value)] < 0
    return model.type_of(value, infer=False).shape if is_input else None


def _input_trouble(model: Model, entry: Operator, inputs: Sequence[int], types: Types) -> str | None:
    last = len(entry.dtypes) - 1
    for position, value in enumerate(inputs):
        if value < 0:
            continue
        name = types.of(value)
        if name is None and not types.is_tensor(value):
            name = NOT_TENSOR[0]
        accepted = entry.dtypes[position if position < last else last]
        if name is not None and name not in accepted:
            supported = "" if name == NOT_TENSOR[0] else f"; kernels support {', '.join(accepted)}"
            return f"input {model.value_name(value)!r} is {name}{supported}"
        if name == STRING[0] and model.is_constant[value]:
            try:
                model.constant(value)
            except ModelError as error:  # bytes that are not UTF-8
                return str(error)
    return None


def dtype_trouble(entry: Operator, inputs: Sequence[Value | None]) -> str | None:
    """The reason if an operand's type is not supported. `examine` checks this too, if the types are known by then."""
    last = len(entry.dtypes) - 1
    for position, value in enumerate(inputs):
        if value is None:
            continue
        name = name_of(value.dtype)
        accepted = entry.dtypes[position if position < last else last]
        if name not in accepted and not (is_opaque(value) and NOT_TENSOR[0] in accepted):
            return f"input {position} is {name}; kernels support {', '.join(accepted)}"
    return None


@functools.cache
def name_of(dtype: np.dtype[Any]) -> str:
    """``dtype.name``, cached, because NumPy computes it on every access."""
    return dtype.name
