"""Patterns of profile devices: chains of nodes that the device runs as one operation, and where a model has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["Pattern", "find_units", "sizes_before"]

_MOST_ALTERNATIVES = 2  # that a text names
_MOST_PASSED = 16  # Identity nodes of a place, so that the places in a long chain of them take linear time
_SMALL_RANK = 1  # constants up to this rank, such as a bias, a bound or a shape, need no maker


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """A chain of operators, each given as its alternatives, as in `Model.op_types`.

    Only the next node of the chain reads the result of a node. ``before``: operators of which one makes every other
    input of the chain, except constants of rank 0 or 1; empty: any maker, which is not part of the unit. ``after``:
    operators of all readers of the chain's result, which is no output of the model; empty: any reader. ``dtypes``:
    element types of the first input of the chain; empty: any type. Identity nodes between these nodes belong to a unit.
    """

    chain: tuple[tuple[str, ...], ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    dtypes: tuple[np.dtype[Any], ...] = ()

    @property
    def operators(self) -> frozenset[str]:
        """All operators in it."""
        return frozenset(name for names in (*self.chain, self.before, self.after) for name in names)

    def with_operator(self, name: str) -> str:
        """The pattern as text, with ``name`` in the place of its alternatives; others are without their domains."""
        steps = [names for names in (self.before, *self.chain, self.after) if names]
        text = " -> ".join(name if name in names else _alternatives(names) for names in steps)
        return f"{text} of {' or '.join(dtype.name for dtype in self.dtypes)}" if self.dtypes else text


def _alternatives(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(name.rpartition("::")[2] for name in names))
    return "|".join(names) if len(names) <= _MOST_ALTERNATIVES else f"{'|'.join(names[:_MOST_ALTERNATIVES])}|…"


def find_units(
    model: Model, patterns: Sequence[Pattern], computes_sizes: NDArray[np.bool_] | None = None
) -> Iterator[NDArray[np.int32]]:
    """The nodes of each place that matches a pattern; the first one makes the first input of the chain, if the pattern
    states its operator. ``computes_sizes``: bool[num_nodes], nodes whose results count as constants (`size_nodes`);
    those that an input of the chain depends on belong to the place, at its end."""
    number_of = {name: number for number, name in enumerate(model.op_types)}
    is_output = np.zeros(model.num_values, np.bool_)
    is_output[list(model.output_ids)] = True
    for pattern in patterns:
        before, after, *chain = (
            frozenset(number_of[name] for name in names if name in number_of)
            for names in (pattern.before, pattern.after, *pattern.chain)
        )
        if not all(chain) or (pattern.before and not before) or (pattern.after and not after):
            continue
        identity = number_of.get("Identity", -1)
        matcher = _Matcher(model, is_output, chain, before, after, frozenset(pattern.dtypes), computes_sizes, identity)
        for node in np.flatnonzero(np.isin(model.op_type_of, list(chain[0]))).tolist():
            unit = matcher.at(node)
            if unit is not None:
                yield np.array(unit, np.int32)


def sizes_before(model: Model, nodes: Sequence[int], computes_sizes: NDArray[np.bool_]) -> list[int]:
    """The nodes that compute sizes on which the inputs of these nodes depend. ``computes_sizes``: see `find_units`."""
    found, pending = dict[int, None](), list(nodes)
    while pending:
        read = model.node_inputs[pending.pop()]
        for maker in model.producer[read[read >= 0]].tolist():
            if maker >= 0 and computes_sizes[maker] and maker not in found:
                found[maker] = None
                pending.append(maker)
    return list(found)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Matcher:
    """A pattern in the operator numbers of a model. ``identity``: the number of Identity, or -1."""

    model: Model
    is_output: NDArray[np.bool_]
    chain: Sequence[frozenset[int]]
    before: frozenset[int]
    after: frozenset[int]
    dtypes: frozenset[np.dtype[Any]]
    computes_sizes: NDArray[np.bool_] | None
    identity: int

    def at(self, node: int) -> list[int] | None:
        """The nodes of the pattern whose chain begins at a node; None if it does not match there."""
        if self.dtypes:
            read = self.model.node_inputs[node][:1].tolist()
            if not read or read[0] < 0 or self.model.type_of(read[0]).dtype not in self.dtypes:
                return None
        chain, passed = [node], list[int]()
        for numbers in self.chain[1:]:
            following = self._readers(chain[-1], numbers, passed)
            if following is None or len(following) != 1:
                return None
            chain += following
        readers = self._readers(chain[-1], self.after, passed) if self.after else []
        makers = self._makers(chain, passed) if self.before else []
        if makers is None or readers is None:
            return None
        if len(passed) > _MOST_PASSED:
            return None
        sizes = [] if self.computes_sizes is None else sizes_before(self.model, chain, self.computes_sizes)
        return list(dict.fromkeys([*makers, *chain, *readers, *passed, *sizes]))

    def _readers(self, node: int, wanted: frozenset[int], passed: list[int]) -> list[int] | None:
        """The nodes that read the results of a node, also through Identity, which is added to ``passed``. None if there
        are none, if one has another operator than ``wanted``, or if a result is an output of the model."""
        found, pending = set[int](), [node]
        while pending:
            made = self.model.node_outputs[pending[-1]]
            if self.is_output[made[made >= 0]].any():
                return None
            for reader in set(self.model.graph.successors(pending.pop()).tolist()):
                number = int(self.model.op_type_of[reader])
                if number in wanted:
                    found.add(reader)
                elif number == self.identity and len(passed) <= _MOST_PASSED:
                    passed.append(reader)
                    pending.append(reader)
                else:
                    return None
        return sorted(found) or None

    def _makers(self, chain: Sequence[int], passed: list[int]) -> list[int] | None:
        """The nodes that make the inputs of a chain, also through Identity, which is added to ``passed``. None if an
        input has another maker."""
        model, makers = self.model, list[int]()
        for node in chain:
            if len(model.node_captures[node]):
                return None
            for value in model.node_inputs[node].tolist():
                if value < 0:
                    continue
                maker = int(model.producer[value])
                if maker in chain or maker in passed:
                    continue
                while maker >= 0 and self._passes(maker) and len(passed) <= _MOST_PASSED:
                    passed.append(maker)
                    value = int(model.node_inputs[maker][0])
                    maker = int(model.producer[value])
                if maker >= 0 and model.op_type_of[maker] in self.before:
                    makers.append(maker)
                    continue
                if maker >= 0 and self.computes_sizes is not None and self.computes_sizes[maker]:
                    continue
                shape = model.type_of(value).shape if model.is_constant[value] else None
                if shape is None or len(shape) > _SMALL_RANK:
                    return None
        return makers or None

    def _passes(self, maker: int) -> bool:
        """Whether the maker of an input is an Identity whose own input counts."""
        number = self.model.op_type_of[maker]
        return number == self.identity and number not in self.before and len(self.model.node_inputs[maker]) == 1
