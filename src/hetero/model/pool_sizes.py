"""Sizes of pools with ``ceil_mode``, for which onnx infers too much before opset 22.

A window must begin inside the input or its left padding. ONNX drops a last window that begins in the right padding, and
so do runtimes, but the inference of earlier opsets counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import raise_out_of_memory
from .rows import Rows
from .types import Dim, ValueType
from .views import NodeView

__all__ = ["pool_sizes"]

_POOLS = {(domain, name) for domain in ("", "ai.onnx") for name in ("MaxPool", "AveragePool", "LpPool")}
_POOLS.add(("com.microsoft", "QLinearAveragePool"))  # see `hetero.model.shape_functions`


def pool_sizes(
    rows: Rows, type_of: Callable[[int], ValueType], is_fixed: Callable[[int], bool]
) -> dict[int, ValueType]:
    """The corrected types of the results of pools, by value. ``type_of``: returns the type of a value, as far as it is
    known. ``is_fixed``: whether the file states the sizes of a value, so that they must not be changed."""
    file = rows.file
    operators = zip(file.op_domains, file.op_names, strict=True)
    used = [number for number, key in enumerate(operators) if key in _POOLS and key not in file.functions]
    found: dict[int, ValueType] = {}
    for node in np.flatnonzero(np.isin(file.node_op, used)).tolist() if used else ():
        try:
            attributes = NodeView(rows, node).stored_attributes
            if not attributes.get("ceil_mode", 0):
                continue
            source = type_of(int(rows.node_inputs[node][0])).shape
            for value in rows.node_outputs[node].tolist():  # those of a MaxPool have equal shapes
                known = type_of(value) if value >= 0 and not is_fixed(value) else ValueType(None, None)
                if source is None or known.shape is None or known.dtype is None or len(known.shape) != len(source):
                    continue
                shape = (*known.shape[:2], *_most(attributes, source[2:], known.shape[2:]))
                if shape != known.shape:
                    found[value] = ValueType(known.dtype, shape)
        except Exception as error:  # malformed nodes; their device reports them
            raise_out_of_memory(error)
    return found


def _most(attributes: Any, source: tuple[Dim, ...], sizes: tuple[Dim, ...]) -> list[Dim]:
    """``sizes`` without windows that begin after the input. The left padding of auto_pad SAME is computed from sizes
    without these windows, and may count as 0 here."""
    axes = len(source)
    strides = attributes.get("strides") or [1] * axes
    is_padded = attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", "NOTSET")
    begins = (attributes.get("pads") if is_padded else None) or [0] * 2 * axes
    return [
        min(size, max(-(-(length + begin) // stride), 0)) if isinstance(size, int) and isinstance(length, int) else size
        for size, length, stride, begin in zip(sizes, source, strides, begins[:axes], strict=True)
    ]
