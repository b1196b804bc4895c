"""Zeros that a Pad adds to the image of a convolution become the convolution's own padding.

Contract: the same sums; a convolution counts what lies outside its input as zero.

Conditions:

- The Pad is in mode constant, its value is a known zero, and the convolution alone reads its result, in its own shape.
- It adds to spatial axes only, removes nothing, and all its pads are known numbers of at most `_LARGEST`.
- Winograd's filtering, which does not pad depth, has an input of at most two spatial axes.
"""

from __future__ import annotations

from .... import _kernels
from ...._sizes import is_symbolic
from ..values import Call
from .graph import CallGraph
from .matching import maker_of

__all__ = ["absorb"]

_CONSTANT = _kernels.constant("PAD_CONSTANT")
_PADS_END = 12  # of the pads before among the ints of `conv`, in kernels/conv.c
_LARGEST = 1 << 16


def absorb(graph: CallGraph) -> None:
    for position, call in graph:
        if call.kernel != "conv" or call.inputs[0] is None:
            continue
        pad = maker_of(graph, call.inputs[0], ("pad",))
        if pad is None:
            continue
        fused = _padded(pad[1], call)
        if fused is not None:
            graph.remove(pad[0])
            graph.replace(position, fused)


def _padded(pad: Call, conv: Call) -> Call | None:
    x, value = pad.inputs[0], pad.inputs[1] if len(pad.inputs) > 1 else None
    assert x is not None
    is_zero = len(pad.inputs) == 1 or (value is not None and value.data is not None and not value.data.any())
    if pad.ints[0] != _CONSTANT or not is_zero or (conv.ints[1] > 1 and x.rank > 4):
        return None
    before = list(pad.ints[1:])
    after = [to - first - size for to, first, size in zip(pad.outputs[0].shape, before, x.shape, strict=True)]
    own = conv.ints[_PADS_END - (x.rank - 2) : _PADS_END]
    if any(is_symbolic(count) or not 0 <= count <= _LARGEST for count in (*before, *after, *own)):
        return None
    if any(before[:2]) or any(after[:2]):
        return None
    ints = list(conv.ints)
    ints[_PADS_END - (x.rank - 2) : _PADS_END] = [mine + added for mine, added in zip(own, before[2:], strict=True)]
    return conv.changed(inputs=(x, *conv.inputs[1:]), ints=tuple(ints))
