"""Finds nodes of ONNX's operators with missing, unknown or additional inputs, outputs or attributes.

onnxruntime refuses such models when it loads them. What onnx knows of its operators is in a file of the package,
because importing onnx takes longer than compiling many models.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import counted
from ..errors import did_you_mean, shown

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["IGNORED_ATTRIBUTES", "INTERNAL", "TABLE", "Form", "form_of", "letter_of", "malformed_nodes"]

TABLE = Path(__file__).parent / "operator_forms.txt"  # written by tools/operator_forms.py

# AttributeProto.type, which counts from 1.
_KINDS = (
    *("FLOAT", "INT", "STRING", "TENSOR", "GRAPH", "FLOATS", "INTS", "STRINGS", "TENSORS", "GRAPHS"),
    *("SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"),
)
_LETTERS = "fistgFISTGpPyY"
IGNORED_ATTRIBUTES = frozenset({"consumed_inputs"})  # of opsets 1 to 5, about memory reuse; does not affect results
INTERNAL = "__"  # onnx ignores attributes whose names begin with it
_WITH_MORE_ATTRIBUTES = ("LayerNormalization",)  # onnxruntime ignores those that it does not know
_WITH_UNNAMED_INPUTS = ("Resize",)  # before opset 13, ONNX forgot that roi and scales may lack a name
_SPLIT_COUNTS_SINCE = 18  # the first opset whose Split has num_outputs
_UNBOUNDED = 2**31 - 1


def letter_of(kind: int) -> str:
    """The letter for an AttributeProto.type in the table."""
    return _LETTERS[kind - 1]


@dataclasses.dataclass(frozen=True, slots=True)
class _Parameters:
    """The inputs or the outputs of an operator. ``required``: whether the parameter at a position must have a name. For
    outputs, unlike in onnxruntime, none must: a result that nothing reads does no harm."""

    names: tuple[str, ...]
    required: tuple[bool, ...]
    least: int
    most: int

    @classmethod
    def parsed(cls, words: Sequence[str], *, may_lack_names: bool = False) -> _Parameters:
        least, most = 0, len(words)
        for position, word in enumerate(words):
            if "*" in word:
                least, most = position + int(word.partition("*")[2]), _UNBOUNDED
            elif not word.endswith("?"):
                least = position + 1
        names = tuple(word.partition("*")[0].rstrip("?") for word in words)
        required = tuple(name == word and not may_lack_names for name, word in zip(names, words, strict=True))
        return cls(names, required, least, most)

    def trouble(self, kind: str, is_named: Sequence[bool]) -> str | None:
        """See `Form.trouble`. ``kind``: "input" or "output"."""
        for position, (name, required) in enumerate(zip(self.names, self.required, strict=True)):
            if required and not (position < len(is_named) and is_named[position]):
                return f"without its {kind} {position} ({name})"
        if self.least <= len(is_named) <= self.most:
            return None
        if self.least == self.most:
            expected = str(self.most)
        else:
            expected = f"at least {self.least}" if len(is_named) < self.least else f"at most {self.most}"
        return f"with {counted(len(is_named), kind)}; expected {expected}"


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What a node of an operator must look like.

    ``attributes``: name -> AttributeProto.type. ``required``: those that a node must have. ``takes_more``: whether it
    may have others. ``versions``: the names of the attributes in each version of the operator, by its first opset.
    ``since``: the first opset of this version."""

    operator: str
    inputs: _Parameters
    outputs: _Parameters
    attributes: Mapping[str, int]
    required: frozenset[str]
    takes_more: bool
    versions: Mapping[int, Collection[str]]
    since: int

    def trouble(
        self, inputs: Sequence[bool], outputs: Sequence[bool], attributes: Sequence[tuple[str, int]]
    ) -> str | None:
        """Why a node does not have this form; None if it does.

        ``inputs``, ``outputs``: for each of the node's, whether it has a name.
        ``attributes``: name and AttributeProto.type, 0 if the file does not state it."""
        reason = (
            self.inputs.trouble("input", inputs)
            or self.outputs.trouble("output", outputs)
            or self.attribute_trouble(attributes)
        )
        return f"{self.operator} {reason}" if reason else None

    def attribute_trouble(self, attributes: Sequence[tuple[str, int]]) -> str | None:
        """`trouble` with the attributes, without the operator."""
        for name, kind in attributes:
            expected = self.attributes.get(name)
            if expected is None:
                if not (self.takes_more or name.startswith(INTERNAL) or name in IGNORED_ATTRIBUTES):
                    return f"with attribute {shown(name)}, which it does not have{self._hint(name)}"
            elif kind not in (0, expected):
                found = _KINDS[kind - 1] if 0 < kind <= len(_KINDS) else str(kind)
                return f"with attribute {name} of type {found}; expected {_KINDS[expected - 1]}"
        missing = self.required.difference(name for name, _ in attributes)
        return f"without its attribute {min(missing)}" if missing else None

    def _hint(self, name: str) -> str:
        """Which opsets have the attribute, or the most similar attribute."""
        having = [since for since, names in self.versions.items() if name in names]
        earlier = max((since for since in having if since < self.since), default=0)
        if earlier:
            return f" since opset {min(since for since in self.versions if since > earlier)}"
        return f" before opset {min(having)}" if having else did_you_mean(name, self.attributes)


def malformed_nodes(model: Model) -> dict[int, str]:
    """Node -> what is wrong with it, without the nodes of nested graphs. Skips operators that onnx does not know, and
    functions of the model. 0.2 µs per node."""
    forms = [_form_in(model, *_split(op_type)) for op_type in model.op_types]
    found = _wrong_splits(model)
    if not any(forms):
        return found
    of_node = model.op_type_of
    is_wrong = np.zeros(model.num_nodes, bool)
    for parameters, ragged in (
        ([None if form is None else form.inputs for form in forms], model.node_inputs),
        ([None if form is None else form.outputs for form in forms], model.node_outputs),
    ):
        counts = np.diff(ragged.indptr)
        bounds = [(one.least, one.most) if one else (0, _UNBOUNDED) for one in parameters]
        least, most = np.array(bounds, np.int32).T
        is_wrong |= (counts < least[of_node]) | (counts > most[of_node])
        absent = np.flatnonzero(ragged.values < 0)
        if len(absent):
            nodes = np.searchsorted(ragged.indptr, absent, side="right") - 1
            is_wrong[nodes[_required(parameters, of_node[nodes], absent - ragged.indptr[nodes])]] = True
    groups, attributes_of = model.nodes.attribute_forms
    wrong_groups = [
        form is not None and attributes is not None and form.attribute_trouble(attributes) is not None
        for op, attributes in attributes_of
        for form in [forms[op]]
    ]
    if any(wrong_groups):
        is_wrong |= np.array(wrong_groups)[groups]
    for node in np.flatnonzero(is_wrong).tolist():
        form = forms[of_node[node]]
        assert form is not None
        inputs, outputs = ((ragged[node] >= 0).tolist() for ragged in (model.node_inputs, model.node_outputs))
        found[node] = form.trouble(inputs, outputs, attributes_of[groups[node]][1] or ()) or ""
    return found


def _wrong_splits(model: Model) -> dict[int, str]:
    """Why a Split contradicts its num_outputs. If it has more outputs, onnxruntime ends the process, even if a function
    of the model has that name."""
    kinds = [kind for kind, name in enumerate(model.op_types) if name == "Split"]
    if not kinds or model.opsets.get("", 0) < _SPLIT_COUNTS_SINCE:
        return {}
    splits = np.flatnonzero(model.op_type_of == kinds[0])
    _, first, group = np.unique(model.nodes.attribute_groups[splits], return_index=True, return_inverse=True)
    counts = [model.nodes[node].attributes.get("num_outputs") for node in splits[first].tolist()]
    found = {}
    for node, alike, outputs in zip(
        splits.tolist(), group.tolist(), np.diff(model.node_outputs.indptr)[splits].tolist(), strict=True
    ):
        count = counts[alike]
        if count is not None and count != outputs and not (model.node_inputs[node][1:] >= 0).any():
            found[node] = f"Split with {counted(outputs, 'output')} and num_outputs = {count}"
    return found


def _required(
    parameters: Sequence[_Parameters | None], ops: NDArray[np.int32], at: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """For each pair of an operator and a position, whether the operator requires the parameter."""
    width = 1 + max(len(one.required) for one in parameters if one)
    table = np.zeros((len(parameters), width), bool)  # the last column is for positions beyond the last parameter
    for op, one in enumerate(parameters):
        if one:
            table[op, : len(one.required)] = one.required
    required: NDArray[np.bool_] = table[ops, np.minimum(at, width - 1)]
    return required


def _split(op_type: str) -> tuple[str, str]:
    domain, _, name = op_type.rpartition("::")
    return domain, name


def _form_in(model: Model, domain: str, op_type: str) -> Form | None:
    if (domain, op_type) in model.functions:
        return None
    return form_of(domain, op_type, model.opsets.get(domain, 0))


@functools.cache
def form_of(domain: str, op_type: str, opset: int) -> Form | None:
    """The form of an operator in an opset; None if onnx does not know it."""
    table, newest = _lines()
    if opset > newest.get(domain, 0):  # onnx is newer than the table
        return None
    name = f"{domain}::{op_type}" if domain else op_type
    versions = table.get(name, {})
    since = max((since for since in versions if since <= opset), default=0)
    if not since or versions[since] == "deprecated":
        return None
    inputs, outputs, attributes = (part.split() for part in versions[since].split(">"))
    pairs = [entry.partition(":")[::2] for entry in attributes]
    return Form(
        f"{name} of opset {opset}",
        _Parameters.parsed(inputs, may_lack_names=op_type in _WITH_UNNAMED_INPUTS),
        _Parameters.parsed(outputs, may_lack_names=True),
        {name: _LETTERS.index(kind[0]) + 1 for name, kind in pairs},
        frozenset(name for name, kind in pairs if kind.endswith("!")),
        op_type in _WITH_MORE_ATTRIBUTES,
        {first: [word.partition(":")[0] for word in line.split(">")[-1].split()] for first, line in versions.items()},
        since,
    )


@functools.cache
def _lines() -> tuple[Mapping[str, Mapping[int, str]], Mapping[str, int]]:
    """Operator -> first opset -> form, and domain -> the newest opset that the table covers."""
    table: dict[str, dict[int, str]] = {}
    newest = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        name, version, *form = line.split(" ", 2)
        if name.endswith("::"):
            newest[name.removesuffix("::")] = int(version)
        else:
            table.setdefault(name, {})[int(version)] = form[0]
    return table, newest
