"""Finds the nodes of a QDQ model that run in integers and replaces them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Sequence

from ..registry import ANY, Lowering, NodePlan, Operator
from ..values import Context, Packed, Value
from .moves import Move, data_of
from .products import Product, may_lack_target
from .schemes import Scheme, is_plain, scheme_of
from .tables import Table, roots_of

__all__ = ["rewrite"]

Constant = Callable[[int], Value | None]
_READABLE = (*ANY, "int4", "uint4")  # also what only DequantizeLinear reads: see the lowerings in float32


def rewrite(
    nodes: Sequence[NodePlan], outputs: Collection[int], constant: Constant, is_constant: Callable[[int], bool]
) -> tuple[list[NodePlan], frozenset[int]]:
    """(The nodes, some of them replaced; the indices of those that are no longer read).

    A node keeps its index; a product or move stands where its operator stood, a table where its QuantizeLinear stood.
    ``outputs``: ids of the model's outputs. ``constant``: the known value of an id, which may read it from the file.
    ``is_constant``: whether it is known. Results of nodes do not count as known: an imported model knows more of them,
    and must become the same nodes."""
    computed = {value for plan in nodes for value in plan.outputs}

    def own_constant(value: int) -> Value | None:
        return None if value in computed else constant(value)

    def is_own_constant(value: int) -> bool:
        return value not in computed and is_constant(value)

    schemes = {i: scheme for i, plan in enumerate(nodes) if (scheme := scheme_of(plan, own_constant)) is not None}
    if not schemes:
        return list(nodes), frozenset()
    found = _Rewriting(nodes, outputs, schemes, own_constant, is_own_constant)
    found.find_tables()
    for i, plan in enumerate(nodes):
        if i not in schemes and is_plain(plan):
            _ = found.move(i, plan) or found.product(i, plan)
    return found.result()


class _Rewriting:
    def __init__(
        self,
        nodes: Sequence[NodePlan],
        outputs: Collection[int],
        schemes: dict[int, Scheme],
        constant: Constant,
        is_constant: Callable[[int], bool],
    ) -> None:
        self._nodes = nodes
        self._outputs = frozenset(outputs)
        self._schemes = schemes
        self._constant = constant
        self._is_constant = is_constant
        self._maker = {value: i for i, plan in enumerate(nodes) for value in plan.outputs if value >= 0}
        self._readers: dict[int, list[int]] = collections.defaultdict(list)
        for i, plan in enumerate(nodes):
            for value in plan.inputs:
                if value >= 0:
                    self._readers[value].append(i)
        self._numbers: dict[int, Value | None] = {}
        self._made: dict[int, NodePlan] = {}  # index -> the new node
        self._absorbed: set[int] = set()  # QuantizeLinear and activations whose result another node now computes

    # -- finding

    def _source(self, value: int) -> Scheme | None:
        """The DequantizeLinear that computes ``value``."""
        scheme = self._schemes.get(self._maker.get(value, -1))
        return scheme if scheme is not None and scheme.plan.node.op_type == "DequantizeLinear" else None

    def _number(self, value: int) -> Value | None:
        """A known value of one element: a constant, or the float32 number of a quantized constant."""
        if value not in self._numbers:
            scheme = self._source(value)
            known = self._constant(value if scheme is None else scheme.plan.inputs[0])
            if known is not None and (known.size != 1 or (scheme is not None and not scheme.is_single)):
                known = None
            if known is not None and scheme is not None:
                known = scheme.apply(Context(Packed()), known)
            self._numbers[value] = known
        return self._numbers[value]

    def _only_reader(self, value: int) -> int:
        """The index of the node that reads ``value``, if it does so once and is the only one; else -1."""
        readers = self._readers[value]
        return readers[0] if len(readers) == 1 and value not in self._outputs else -1

    def _target(self, value: int) -> Scheme | None:
        """The QuantizeLinear with one scale that alone reads ``value``."""
        scheme = self._schemes.get(self._only_reader(value))
        if scheme is None or scheme.plan.node.op_type != "QuantizeLinear" or scheme.plan.inputs[0] != value:
            return None
        return scheme if scheme.is_single else None

    def _activations(self, value: int) -> tuple[list[NodePlan], int]:
        """The Relu and Clip nodes that follow, each the only reader of the one before, and their result."""
        found: list[NodePlan] = []
        while (i := self._only_reader(value)) >= 0 and len(found) < 4:
            plan = self._nodes[i]
            bounds = [v for v in plan.inputs[1:] if v >= 0]
            if plan.node.op_type not in ("Relu", "Clip") or not is_plain(plan) or plan.inputs[0] != value:
                break
            if any((bound := self._constant(v)) is None or bound.size != 1 for v in bounds):
                break
            found.append(plan)
            value = plan.outputs[0]
        return found, value

    # -- replacing

    def find_tables(self) -> None:
        for result, root in roots_of(self._nodes, self._schemes, self._number, self._is_constant).items():
            last = self._maker[result]
            within = self._nodes_between(root, last)
            constants = {
                value: known
                for i in within
                if i not in self._schemes
                for value in self._nodes[i].inputs
                if value >= 0 and (known := self._number(value)) is not None
            }
            plans = [self._nodes[i] for i in within]
            made = Table(plans, root, self._schemes, constants)
            self._replace(last, self._nodes[last], made.lower, [root], [result])

    def _nodes_between(self, root: int, last: int) -> list[int]:
        found: set[int] = set()
        waiting = [last]
        while waiting:
            i = waiting.pop()
            if i in found:
                continue
            found.add(i)
            scheme = self._schemes.get(i)
            operands = self._nodes[i].inputs[:1] if scheme is not None else self._nodes[i].inputs
            waiting += [
                self._maker[value]
                for value in operands
                if value != root and value in self._maker and self._number(value) is None
            ]
        return sorted(found)

    def move(self, i: int, plan: NodePlan) -> bool:
        positions = data_of(plan)
        if not positions or max(positions) >= len(plan.inputs):
            return False
        sources = {position: self._source(plan.inputs[position]) for position in positions}
        schemes = {position: scheme for position, scheme in sources.items() if scheme is not None and scheme.is_single}
        if len(schemes) != len(positions):
            return False
        targets = [self._target(value) for value in plan.outputs]
        if None in targets:
            is_embedding = plan.node.op_type == "Gather" and self._is_constant(schemes[0].plan.inputs[0])
            if not is_embedding:
                return False
            targets = [None]
        if plan.node.op_type == "Pad" and len(plan.inputs) > 2 and plan.inputs[2] >= 0:
            value = self._constant(plan.inputs[2])
            if value is None or value.size != 1:
                return False
        inputs = [schemes[p].plan.inputs[0] if p in schemes else value for p, value in enumerate(plan.inputs)]
        self._replace(i, plan, Move(plan, schemes, targets).lower, inputs, self._results(plan, targets))
        return True

    def product(self, i: int, plan: NodePlan) -> bool:
        if plan.node.op_type not in ("Conv", "MatMul", "Gemm") or not 2 <= len(plan.inputs) <= 3:
            return False
        sources = [self._source(value) if value >= 0 else None for value in plan.inputs]
        if sources[0] is None or sources[1] is None:
            return False
        bias = plan.inputs[2] if len(plan.inputs) > 2 else -1
        if bias >= 0 and sources[2] is None and not self._is_constant(bias):
            return False
        activations, value = self._activations(plan.outputs[0])
        target = self._target(value)
        if target is None:
            activations = []
            if not may_lack_target(plan):
                return False
        made = Product(plan, sources, activations, target, self._constant)
        inputs = [
            value if scheme is None else scheme.plan.inputs[0]
            for value, scheme in zip(plan.inputs, sources, strict=True)
        ]
        self._absorbed.update(activation.index for activation in activations)
        self._replace(i, plan, made.lower, inputs, self._results(plan, [target]))
        return True

    def _results(self, plan: NodePlan, targets: Sequence[Scheme | None]) -> list[int]:
        """The results of the new node: those of ``targets``, or its own."""
        results = []
        for value, target in zip(plan.outputs, targets, strict=False):
            results.append(value if target is None else target.plan.outputs[0])
            if target is not None:
                self._absorbed.add(target.plan.index)
        return results

    def _replace(self, i: int, plan: NodePlan, lower: Lowering, inputs: list[int], outputs: list[int]) -> None:
        entry = Operator(lower, (_READABLE,), {}, 1, 10_000, None, None)
        self._made[i] = plan.replaced(entry, inputs, outputs)

    def result(self) -> tuple[list[NodePlan], frozenset[int]]:
        nodes = [self._made.get(i, plan) for i, plan in enumerate(self._nodes)]
        read = set(self._outputs)
        unread: set[int] = set(self._absorbed)
        for i in range(len(nodes) - 1, -1, -1):
            if i in unread:
                continue
            was_read = any(self._readers[value] or value in self._outputs for value in self._nodes[i].outputs)
            if was_read and read.isdisjoint(nodes[i].outputs):
                unread.add(i)
            else:
                read.update(nodes[i].inputs)
        return nodes, frozenset(unread)
