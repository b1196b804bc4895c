"""Folds linear nodes into convolutions, once per compiled model.

- A `BatchNormalization` after a convolution, or a `Mul` or `Add` with a constant per channel, becomes a scale per
  output channel of the weights, and a new bias. Packing multiplies the weights by the scale, so no second copy of them
  is kept.
- Convolutions of one input whose results are added become one convolution, with the sum of their weights, which is
  computed in float64 (kernels/sum_filters.c). A smaller kernel is placed at its position in a larger one; a batch
  normalization of the input is a kernel of one tap. Networks with parallel branches (RepVGG, MobileOne, ACNet) are
  often exported this way.

The other nodes then return their input, or are not computed. Contract: the same results up to rounding, except that an
output for which branches give infinities of both signs may be infinite instead of NaN.

Conditions:

- Weights, bias and statistics are known float32, and normalizations do not use the statistics of the batch
  (training_mode = 0). The input of the convolution is not known.
- A constant has one number, or one per output channel, and does not change the shape of the result.
- Each result but the last is read by the next folded node alone, once: by no other node, body of control flow or output
  of the model.
- Branches read the same value and have the same group, strides and number of outputs. Pads are explicit. Kernels are
  equal, or have no dilations and lie inside the largest one of them, where they read the same elements. All results
  then have one shape.
- Bias and sums of weights are finite, and each channel's scale is 0 or between `_LARGEST_SCALE` and its reciprocal in
  magnitude. Where it is above `_MODERATE_SCALE` or below its reciprocal, its product with the largest weight of the
  channel is 0 or a normal number.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .... import _kernels
from ....model.constants import release_pages
from ..registry import NodePlan
from ..values import Value
from .network import three

__all__ = ["Folded", "fold"]

_LINEAR = ("BatchNormalization", "Add", "Mul")
_LARGEST_SCALE = 2.0**64
"""The largest scale of a channel. Its product with a weight below this magnitude does not overflow."""

_MODERATE_SCALE = 2.0**24
"""The weights of channels with a scale between this and its reciprocal are not read: they would have to be of about
10^31 to overflow."""

_LEAST_WEIGHT = 2.0**-100
"""The largest weight of a channel after scaling, at least. Smaller ones could lose digits, since float32 has normal
numbers from 2^-126 on."""

_Constant = Callable[[int], Value | None]
_Memory = Callable[[int], NDArray[np.uint8]]
_Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Folded:
    """``operands``: the new weights and bias of convolutions. ``passing``: nodes that return one of their inputs, with
    that input. ``unread``: nodes whose results are no longer read. By index of the node."""

    operands: Mapping[int, tuple[Value, Value]]
    passing: Mapping[int, int]
    unread: frozenset[int]


@dataclasses.dataclass(slots=True, eq=False)
class _Branch:
    """``scale`` * convolution of the value ``x`` by ``weights``, or * ``x`` if ``weights`` is None. ``scale``: a number
    per output channel."""

    node: int
    x: int
    scale: _Array
    weights: Value | None = None
    group: int = 1
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    before: tuple[int, ...] = ()  # pads
    after: tuple[int, ...] = ()

    @property
    def num_outputs(self) -> int:
        return len(self.scale)


@dataclasses.dataclass(slots=True, eq=False)
class _Sum:
    """A value: the sum of branches and a bias. ``branches[0]``: the one whose kernel holds all others. ``passing``: the
    nodes between it and this value, with the input that each returns. ``unread``: the other nodes.

    Only the next folded node reads the value, so its methods change this object into the value of that node."""

    branches: list[_Branch]
    bias: _Array
    passing: dict[int, int] = dataclasses.field(default_factory=dict)
    unread: set[int] = dataclasses.field(default_factory=set)

    def change(self, i: int, value: int, factor: _Array | float, offset: _Array | float) -> _Sum:
        """Node ``i`` multiplies this value, ``value``, by ``factor`` and adds ``offset``."""
        for branch in self.branches:
            branch.scale *= factor
        self.bias *= factor
        self.bias += offset
        self.passing[i] = value
        return self

    def add(self, i: int, value: int, other: _Sum) -> _Sum:
        """Node ``i`` adds ``other`` to this value, ``value``."""
        self.branches += other.branches
        self.bias += other.bias
        self.passing[i] = value
        self.unread |= other.unread | other.passing.keys() | {other.branches[0].node}
        return self


def fold(nodes: Sequence[NodePlan], outputs: Collection[int], constant: _Constant, memory: _Memory) -> Folded:
    """``outputs``: ids of the model's outputs. ``constant``: returns the known value of an id, or None. ``memory``:
    returns as many bytes, for weights that are kept with the compiled model."""
    uses = collections.Counter(value for plan in nodes for value in plan.inputs)
    uses.update(outputs)
    reader = {value: plan.node.op_type for plan in nodes for value in plan.inputs}  # the last one
    sums: dict[int, _Sum] = {}  # by value
    with np.errstate(all="ignore"):
        for i, plan in enumerate(nodes):
            found: dict[int, _Sum] = {}
            made: _Sum | None = None
            if plan.node.op_type == "Conv":
                if reader.get(plan.outputs[0]) in _LINEAR and uses[plan.outputs[0]] == 1:
                    made = _convolution(i, plan, constant)
            elif plan.node.op_type in _LINEAR:
                found = {value: sums[value] for value in plan.inputs if value in sums and uses[value] == 1}
                if plan.node.op_type == "BatchNormalization":
                    if not found and reader.get(plan.outputs[0]) not in ("Add", "BatchNormalization"):
                        continue  # only a sum takes a normalization that follows no convolution
                    made = _normalization(i, plan, constant, found.get(plan.inputs[0]))
                elif found:
                    made = _binary(i, plan, constant, found)
            if made is not None:
                sums[plan.outputs[0]] = made
                for value in found:
                    del sums[value]
        operands: dict[int, tuple[Value, Value]] = {}
        passing: dict[int, int] = {}
        unread: set[int] = set()
        for made in sums.values():
            result = _operands(made, memory)
            if result is not None:
                operands[made.branches[0].node] = result
                passing.update(made.passing)
                unread |= made.unread
    return Folded(operands, passing, frozenset(unread))


def _convolution(i: int, plan: NodePlan, constant: _Constant) -> _Sum | None:
    x, get = plan.inputs[0], plan.node.get
    weights = constant(plan.inputs[1])
    if weights is None or weights.data is None or weights.dtype != np.float32 or weights.rank < 3 or constant(x):
        return None
    rank, kernel = weights.rank - 2, weights.shape[2:]
    if tuple(get("kernel_shape", kernel)) != kernel:
        return None
    bias = np.zeros(weights.shape[0])
    if len(plan.inputs) > 2 and plan.inputs[2] >= 0:
        known = constant(plan.inputs[2])
        if known is None or known.data is None or known.dtype != np.float32 or known.shape != bias.shape:
            return None
        bias += known.data
    strides, dilations = (tuple(get(name, None) or (1,) * rank) for name in ("strides", "dilations"))
    pads = tuple(get("pads", None) or (0,) * (2 * rank))
    if get("auto_pad", b"NOTSET") != b"NOTSET" or len(pads) != 2 * rank or min(pads) < 0:
        pads = ()  # its position in another convolution is not known
    ones = np.ones(weights.shape[0])
    branch = _Branch(i, x, ones, weights, get("group", 1), kernel, strides, dilations, pads[:rank], pads[rank:])
    return _Sum([branch], bias)


def _normalization(i: int, plan: NodePlan, constant: _Constant, before: _Sum | None) -> _Sum | None:
    """A BatchNormalization of ``before``, or of a value that is not known."""
    if len(plan.inputs) != 5 or plan.node.get("training_mode", 0):
        return None
    statistics = [constant(value) for value in plan.inputs[1:]]
    arrays = [value.data for value in statistics if value is not None and value.data is not None]
    if len(arrays) != 4 or any(array.ndim != 1 or array.dtype != np.float32 for array in arrays):
        return None
    if len({array.shape for array in arrays}) > 1:
        return None
    gain, shift, mean, variance = np.array(arrays, np.float64)
    factor = gain / np.sqrt(variance + plan.node.get("epsilon", 1e-5))
    offset = shift - mean * factor
    x = plan.inputs[0]
    if before is not None:
        return before.change(i, x, factor, offset) if len(factor) == before.branches[0].num_outputs else None
    return None if constant(x) else _Sum([_Branch(i, x, factor)], offset)


def _binary(i: int, plan: NodePlan, constant: _Constant, found: Mapping[int, _Sum]) -> _Sum | None:
    """An Add or Mul. ``found``: those of its operands that are sums which it alone reads."""
    if plan.node.opset < 7 and plan.node.get("axis", None) is not None:
        return None  # the constant is not aligned at the last axis
    first, second = plan.inputs
    for value, other in ((first, second), (second, first)):
        if value not in found or other == value:
            continue
        if other not in found:
            numbers = _per_channel(found[value].branches[0], constant(other))
            if numbers is not None and plan.node.op_type == "Add":
                return found[value].change(i, value, 1.0, numbers)
            return None if numbers is None else found[value].change(i, value, numbers, 0.0)
        if plan.node.op_type == "Add" and _offset(found[value].branches[0], found[other].branches[0]) is not None:
            return found[value].add(i, value, found[other])
    return None


def _per_channel(branch: _Branch, value: Value | None) -> _Array | None:
    """A known value as one number per output of ``branch``; None if it is something else."""
    if branch.weights is None or value is None or value.data is None or value.dtype != np.float32:
        return None
    rank, count = branch.weights.rank, branch.num_outputs
    if value.size == 1 and value.rank <= rank:
        return np.full(count, float(value.data.reshape(())))
    column = (count, *(1,) * (rank - 2))
    return value.data.reshape(-1).astype(np.float64) if value.shape in (column, (1, *column)) else None


def _offset(large: _Branch, small: _Branch) -> tuple[int, ...] | None:
    """The position of the kernel of ``small`` in that of ``large``; None if equal weights would not give equal results
    of one shape."""
    if large.weights is None or (large.x, large.num_outputs) != (small.x, small.num_outputs):
        return None
    channels, rank = large.weights.shape[1], len(large.kernel)
    if small.weights is None:
        if large.group * channels != large.num_outputs:
            return None
        ones, zeros = (1,) * rank, (0,) * rank
        small = dataclasses.replace(large, kernel=ones, strides=ones, before=zeros, after=zeros)
    elif channels != small.weights.shape[1]:
        return None
    if (large.group, large.strides, large.dilations) != (small.group, small.strides, small.dilations):
        return None
    if not all(len(each) == rank for each in (large.before, small.before, large.strides, large.dilations)):
        return None
    offset = tuple(left - lead for left, lead in zip(large.before, small.before, strict=True))
    trail = [right - last for right, last in zip(large.after, small.after, strict=True)]
    rest = [to - own for to, own in zip(large.kernel, small.kernel, strict=True)]
    if any(at < 0 or end < 0 or at + end != room for at, end, room in zip(offset, trail, rest, strict=True)):
        return None
    return offset if not any(rest) or set(large.dilations) == {1} else None


def _operands(made: _Sum, memory: _Memory) -> tuple[Value, Value] | None:
    """The weights and the bias that the first branch's convolution gets; None if it keeps its own."""
    first = made.branches[0]
    if first.weights is None or not made.passing or not np.isfinite(bias := made.bias.astype(np.float32)).all():
        return None
    if not all(map(_keeps_digits, made.branches)):
        return None
    if len(made.branches) > 1:
        if not 3 <= first.weights.rank <= 5 or not first.weights.size:
            return None
        weights = _sum_of_weights(made.branches, memory)
        if weights is None:
            return None
    elif (first.scale == 1).all():
        weights = first.weights
    else:
        kept = first.weights
        weights = Value(kept.dtype, kept.shape, kept.data, shared=kept.shared, scale=first.scale.astype(np.float32))
    return weights, Value(bias.dtype, bias.shape, bias, shared=True)


def _keeps_digits(branch: _Branch) -> bool:
    """Whether all scales are within the limits, and the largest weight of each channel with a large or small scale is 0
    or a normal number after scaling. The weights of the other channels are not read."""
    size = np.abs(branch.scale)
    if not size.size or (size.min() >= 1 / _MODERATE_SCALE and size.max() <= _MODERATE_SCALE):  # false for NaN
        return True
    if not ((size == 0) | (size >= 1 / _LARGEST_SCALE) & (size <= _LARGEST_SCALE)).all():
        return False
    extreme = (size > _MODERATE_SCALE) | ((size > 0) & (size < 1 / _MODERATE_SCALE))
    if branch.weights is None or branch.weights.data is None or not extreme.any():
        return True
    rows = branch.weights.data.reshape(len(size), -1)[extreme]
    largest = np.abs(rows).max(axis=1, initial=0) * size[extreme]
    limit = float(np.finfo(np.float32).max)
    return bool(((largest == 0) | (largest >= _LEAST_WEIGHT) & (largest <= limit)).all())  # false for NaN


def _sum_of_weights(branches: Sequence[_Branch], memory: _Memory) -> Value | None:
    """The weights of one convolution that computes the sum; None if one of them is not finite."""
    largest = branches[0]
    assert largest.weights is not None
    shape = largest.weights.shape
    operands: list[NDArray[Any] | None] = []
    ints: list[int] = []
    for branch in branches:
        offset = _offset(largest, branch)
        assert offset is not None, "each kernel lies inside the largest"
        weights = None
        if branch.weights is not None and branch.weights.data is not None:
            weights = branch.weights.data.reshape(-1).view(np.uint8)
        operands += [weights, branch.scale]
        ints += [*three(branch.kernel or (1,) * len(offset), 1), *three(offset, 0)]
    outputs = [(shape, largest.weights.dtype), ((1,), np.dtype(bool))]
    array, finite = _kernels.call("sum_filters", operands, outputs, ints, memory=memory)
    for branch in branches:
        if branch.weights is not None and branch.weights.data is not None:
            release_pages(branch.weights.data)
    return Value(array.dtype, array.shape, array, shared=True) if finite[0] else None
