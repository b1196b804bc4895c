"""Einsum: transpositions and matrix products of two operands at a time.

A label that occurs twice in an operand is reduced to the diagonal, which is a view. A label that neither another
operand nor the result has is summed immediately. While several operands remain, the two whose product is smallest are
multiplied. Their common labels are batch axes if they are still needed; otherwise the matrix product sums over them.
If there is no label to sum over, the product is elementwise.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ....errors import InferenceError
from ..registry import FLOATS, Node, operator
from ..values import Context, Value
from .elementwise import _required, binary
from .movement import strided, strides_of, transposed
from .network import matrix_product, reduced

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_DOTS = "0123456789"  # labels of the axes of an ellipsis, aligned at the last axis and label
_TERM = re.compile(r"[a-zA-Z]*(\.\.\.)?[a-zA-Z]*")


def _terms(equation: bytes) -> tuple[list[str], str | None]:
    """The labels of each operand, and those of the result or None if the equation has none. Raises ValueError."""
    text = equation.decode(errors="replace").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        if not _TERM.fullmatch(term):
            raise ValueError(f"equation {text!r}: {term!r} is not a list of labels")
    if arrow and (len(set(right) - {"."}) != len(right.replace(".", "")) or not set(right) <= set(left) | {"."}):
        raise ValueError(f"equation {text!r}: a label of the result occurs twice, or no operand has it")
    return terms, right if arrow else None


def _refusal(model: Model, view: NodeView) -> str | None:
    try:
        terms, _ = _terms(view.attributes.get("equation", b""))
    except ValueError as error:
        return f"Einsum with {error}"
    if len(terms) != len(view.inputs):
        return f"Einsum of {len(view.inputs)} operands with an equation for {len(terms)}"
    return None


@operator("Einsum", dtypes=(*FLOATS, "int32", "int64"), attributes={"equation": None}, check=_refusal)
def _einsum(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    terms, result = _terms(node.get("equation", b""))
    values = [_required(value) for value in inputs]
    labels = [_spelled_out(term, value) for term, value in zip(terms, values, strict=True)]
    if result is None:
        counts = Counter(itertools.chain(*labels))
        dots = sorted(label for label in counts if label in _DOTS)
        output_labels = "".join(
            dots + sorted(label for label, count in counts.items() if count == 1 and label not in _DOTS)
        )
    else:
        dots = sorted({label for term in labels for label in term if label in _DOTS})
        output_labels = result.replace("...", "".join(dots))
    sizes: dict[str, int] = {}
    for term, value in zip(labels, values, strict=True):
        for label, size in zip(term, value.shape, strict=True):
            if sizes.setdefault(label, size) != size and 1 not in (size, sizes[label]):
                raise InferenceError(f"label {label!r} stands for axes of {sizes[label]} and {size}")
            if size != 1:
                sizes[label] = size
    operands = [_simple(context, value, term, sizes) for value, term in zip(values, labels, strict=True)]
    while True:
        operands = [_summed(context, operands, at, output_labels) for at in range(len(operands))]
        if len(operands) == 1:
            break
        pairs = itertools.combinations(range(len(operands)), 2)
        a, b = min(pairs, key=lambda pair: _product_size(operands, pair, output_labels, sizes))
        rest = [operand for at, operand in enumerate(operands) if at not in (a, b)]
        needed = set(output_labels).union(*(term for _, term in rest))
        operands = [*rest, _product(context, operands[a], operands[b], needed, sizes)]
    return [_arranged(context, *operands[0], output_labels, sizes)]


_Operand = tuple[Value, str]
"""A tensor and one label per axis."""


def _spelled_out(term: str, value: Value) -> str:
    named = len(term.replace("...", ""))
    dots = value.rank - named
    if dots < 0 or (dots and "..." not in term):
        raise InferenceError(f"{term!r} does not fit an operand of shape {list(value.shape)}")
    return term.replace("...", _DOTS[len(_DOTS) - dots :])


def _simple(context: Context, value: Value, term: str, sizes: Mapping[str, int]) -> _Operand:
    """The operand with each label once, as a view, and without axes of size 1 that broadcast."""
    kept = [at for at, label in enumerate(term) if value.shape[at] == sizes[label]]
    if len(kept) < value.rank:
        value = context.reshaped(value, [value.shape[at] for at in kept])
        term = "".join(term[at] for at in kept)
    once = "".join(dict.fromkeys(term))
    if once == term:
        return value, term
    strides = strides_of(value.shape)
    walk = [sum(stride for stride, own in zip(strides, term, strict=True) if own == label) for label in once]
    return strided(context, value, 0, [sizes[label] for label in once], walk), once


def _summed(context: Context, operands: Sequence[_Operand], at: int, output_labels: str) -> _Operand:
    """An operand, summed over the labels that neither another operand nor the result has."""
    value, term = operands[at]
    needed = set(output_labels).union(*(other for i, (_, other) in enumerate(operands) if i != at))
    axes = [axis for axis, label in enumerate(term) if label not in needed]
    if not axes:
        return value, term
    rest = "".join(label for label in term if label in needed)
    return reduced(context, value, "sum", axes, keep=False), rest


def _product_size(
    operands: Sequence[_Operand], pair: tuple[int, int], output_labels: str, sizes: Mapping[str, int]
) -> int:
    needed = set(output_labels).union(*(term for i, (_, term) in enumerate(operands) if i not in pair))
    made = set(operands[pair[0]][1]) | set(operands[pair[1]][1])
    return math.prod(sizes[label] for label in made & needed)


def _product(context: Context, a: _Operand, b: _Operand, needed: set[str], sizes: Mapping[str, int]) -> _Operand:
    (left, left_term), (right, right_term) = a, b
    common = [label for label in left_term if label in right_term]
    batch = [label for label in common if label in needed]
    summed = [label for label in common if label not in needed]
    rows = [label for label in left_term if label not in common]
    columns = [label for label in right_term if label not in common]
    term = "".join(batch + rows + columns)

    def size(group: Sequence[str]) -> int:
        return math.prod(sizes[label] for label in group)

    left = _permuted(context, left, left_term, batch + rows + summed)
    right = _permuted(context, right, right_term, batch + summed + columns)
    if summed:
        left = context.reshaped(left, (size(batch), size(rows), size(summed)))
        right = context.reshaped(right, (size(batch), size(summed), size(columns)))
        made = matrix_product(context, left, right)
    else:
        left = context.reshaped(left, (size(batch), size(rows), 1))
        right = context.reshaped(right, (size(batch), 1, size(columns)))
        made = binary(context, "mul", left, right)
    return context.reshaped(made, [sizes[label] for label in term]), term


def _permuted(context: Context, value: Value, term: str, order: Sequence[str]) -> Value:
    return transposed(context, value, [term.index(label) for label in order])


def _arranged(context: Context, value: Value, term: str, output_labels: str, sizes: Mapping[str, int]) -> Value:
    """The result with its axes in order. A label that is missing had size 1 in every operand."""
    present = [label for label in output_labels if label in term]
    value = _permuted(context, value, term, present)
    return context.reshaped(value, [sizes[label] for label in output_labels])
