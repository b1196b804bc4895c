"""Reductions, Softmax, LayerNormalization, and pools over whole images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import InferenceError
from ..builder import Builder
from ..device import KernelSource, file_kernel
from ..elementwise import STORED
from ..tensors import Tensor
from .table import FLOATS, NUMBERS, PlannedNode, StaticNode, add, axis_of

__all__: list[str] = []


def _launch_rows(builder: Builder, source: KernelSource, arguments: Sequence[Any], result: Tensor, rows: int) -> None:
    """Start a kernel of rows.cl."""
    items = builder.device.row_items
    if rows:
        global_size, local_size = ((rows,), (builder.device.group,)) if items == 1 else ((rows * items,), (items,))
        builder.launch(source, arguments, result, global_size, local_size)


def _row_kernel(
    builder: Builder, name: str, dtype: np.dtype[Any], more: Sequence[tuple[str, str]] = ()
) -> KernelSource:
    return file_kernel("rows.cl", name, dtype == np.float16, (("W", builder.device.row_items), *more))


# -- reductions: MAP of each v, COMBINE of a and b, FIRST, FINISH of total; floats and integers

_NAN_MAX, _NAN_MIN = "(b > a || isnan(b) ? b : a)", "(b < a || isnan(b) ? b : a)"
_REDUCTIONS: dict[str, tuple[str, str, str, str]] = {
    "ReduceSum": ("(v)", "(a + b)", "0", "(total)"),
    "ReduceMean": ("(v)", "(a + b)", "0", "(total / n)"),
    "ReduceProd": ("(v)", "(a * b)", "1", "(total)"),
    "ReduceMax": ("(v)", _NAN_MAX, "-INFINITY", "(total)"),
    "ReduceMin": ("(v)", _NAN_MIN, "INFINITY", "(total)"),
    "ReduceL1": ("fabs(v)", "(a + b)", "0", "(total)"),
    "ReduceL2": ("(v * v)", "(a + b)", "0", "sqrt(total)"),
    "ReduceSumSquare": ("(v * v)", "(a + b)", "0", "(total)"),
}
_INTEGER_REDUCTIONS = {
    "ReduceSum": ("(v)", "(a + b)", "0", "(total)"),
    "ReduceMax": ("(v)", "max(a, b)", "{min}", "(total)"),
    "ReduceMin": ("(v)", "min(a, b)", "{max}", "(total)"),
}
_BOUNDS = {"int32": ("INT_MIN", "INT_MAX"), "int64": ("LONG_MIN", "LONG_MAX")}


def reduced(builder: Builder, name: str, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    """The reduction of ``x`` over ``axes``, which are distinct, from 0."""
    shape = [1 if at in axes else size for at, size in enumerate(x.shape)]
    final = shape if keep else [size for at, size in enumerate(shape) if at not in axes]
    real = [at for at in axes if x.shape[at] != 1]
    if real and max(real) - min(real) >= len(real) + sum(
        x.shape[at] == 1 for at in range(min(real), max(real)) if at not in real
    ):
        order = [at for at in range(x.rank) if at not in real] + real
        x = builder.transpose(x, order)
        real = list(range(x.rank - len(real), x.rank))
    begin, end = (min(real), max(real) + 1) if real else (x.rank, x.rank)
    n, inner = math.prod(x.shape[begin:end]), math.prod(x.shape[end:])
    result = builder.new(x.dtype, final)
    stored = STORED[x.dtype.name]
    if x.dtype.name in FLOATS:
        mapped, combine, first, finish = _REDUCTIONS[name]
        access = ("A_TYPE", "float"), ("READ(i)", "LOAD(i, x)"), ("WRITE(v, i)", "STORE(v, i, y)")
    else:
        low, high = _BOUNDS[x.dtype.name]
        mapped, combine, first, finish = (each.format(min=low, max=high) for each in _INTEGER_REDUCTIONS[name])
        access = ("A_TYPE", stored), ("READ(i)", "x[i]"), ("WRITE(v, i)", "y[i] = (v)")
    macros = (("MAP", mapped), ("COMBINE", combine), ("FIRST", first), ("FINISH", finish), ("X", stored), *access)
    source = _row_kernel(builder, "reduce", x.dtype, (("REDUCE", "1"), *macros))
    arguments = [x, result, np.uint32(result.size), np.uint32(n), np.uint32(inner)]
    _launch_rows(builder, source, arguments, result, result.size)
    return result


def _reduction(name: str, axes_from: int) -> Callable[[PlannedNode], Sequence[Tensor]]:
    """``axes_from``: the version from which axes are an input."""

    def plan(node: PlannedNode) -> Sequence[Tensor]:
        x = node[0]
        given = node.integers(1) if node.version >= axes_from else node.attributes.get("axes")
        if not given:
            if node.attributes.get("noop_with_empty_axes", 0):
                if name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"):
                    return [node.builder.view(x, x.shape)]
                return [reduced(node.builder, name, x, [], True)]  # of each element by itself
            given = range(x.rank)
        axes = sorted({axis_of(int(axis), x.rank) for axis in given})
        return [reduced(node.builder, name, x, axes, bool(node.attributes.get("keepdims", 1)))]

    return plan


for _name, _versions, _axes_from in (
    ("ReduceSum", (1, 11, 13), 13),
    ("ReduceMean", (1, 11, 13, 18), 18),
    ("ReduceProd", (1, 11, 13, 18), 18),
    ("ReduceMax", (1, 11, 12, 13, 18, 20), 18),
    ("ReduceMin", (1, 11, 12, 13, 18, 20), 18),
    ("ReduceL1", (1, 11, 13, 18), 18),
    ("ReduceL2", (1, 11, 13, 18), 18),
    ("ReduceSumSquare", (1, 11, 13, 18), 18),
):
    add(
        _name,
        _versions,
        (NUMBERS if _name in _INTEGER_REDUCTIONS else FLOATS, frozenset({"int64"})),
        _reduction(_name, _axes_from),
        ("axes", "keepdims", "noop_with_empty_axes"),
        host=(1,),
    )


def _global_pool(name: str) -> Callable[[PlannedNode], Sequence[Tensor]]:
    def plan(node: PlannedNode) -> Sequence[Tensor]:
        x = node[0]
        if x.rank < 3:
            raise InferenceError(f"a global pool requires a rank of at least 3, found {x.rank}")
        return [reduced(node.builder, name, x, list(range(2, x.rank)), keep=True)]

    return plan


add("GlobalAveragePool", (1, 22), (FLOATS,), _global_pool("ReduceMean"))
add("GlobalMaxPool", (1, 22), (FLOATS,), _global_pool("ReduceMax"))


# -- Softmax and LogSoftmax


def _softmax(is_log: bool) -> Callable[[PlannedNode], Sequence[Tensor]]:
    def plan(node: PlannedNode) -> Sequence[Tensor]:
        x, builder = node[0], node.builder
        if node.version < 13:  # the tensor counts as a matrix
            axis = axis_of(int(node.attributes.get("axis", 1)), x.rank, last=1)
            n, inner = math.prod(x.shape[axis:]), 1
        else:
            axis = axis_of(int(node.attributes.get("axis", -1)), x.rank)
            n, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
        result = builder.new(x.dtype, x.shape)
        if result.size:
            rows = x.size // n
            numbers = [np.uint32(rows), np.uint32(n), np.uint32(inner)]
            source = _row_kernel(builder, "softmax", x.dtype, (("LOG", "1"),) * is_log)
            _launch_rows(builder, source, [x, result, *numbers], result, rows)
        return [result]

    return plan


add("Softmax", (1, 11, 13), (FLOATS,), _softmax(False), ("axis",))
add("LogSoftmax", (1, 11, 13), (FLOATS,), _softmax(True), ("axis",))


# -- LayerNormalization


def _layer_normalization(node: PlannedNode) -> Sequence[Tensor]:
    x, scale, shift, builder = node[0], node[1], node.optional(2), node.builder
    axis = axis_of(int(node.attributes.get("axis", -1)), x.rank)
    rest = x.shape[axis:]
    n = math.prod(rest)
    parts = [part for part in (scale, shift) if part is not None]
    fits = all(part.rank <= len(rest) and np.broadcast_shapes(part.shape, rest) == rest for part in parts)
    later: list[Tensor] = []
    if not fits:  # they may differ between the rows
        if any(np.broadcast_shapes(part.shape, x.shape) != x.shape for part in parts):
            raise InferenceError(f"a scale of shape {list(scale.shape)} cannot be broadcast to {list(x.shape)}")
        ones = builder.new(x.dtype, rest)
        builder.fill(ones, 1, x.dtype)
        later, parts, shift = parts, [ones], None
    parts = [builder.expand(builder.view(part, part.shape), rest) for part in parts]
    result = builder.new(x.dtype, x.shape)
    if result.size:
        rows = x.size // n
        epsilon = np.float32(node.attributes.get("epsilon", 1e-5))
        numbers = [np.uint32(rows), np.uint32(n), epsilon]
        source = _row_kernel(builder, "layer_normalization", x.dtype, (("SHIFT", "1"),) * (shift is not None))
        _launch_rows(builder, source, [x, parts[0], parts[-1], result, *numbers], result, rows)
    for part, template in zip(later, ("({0} * {1})", "({0} + {1})"), strict=False):
        result = builder.elementwise(template, [result, part], x.dtype, x.shape)
    return [result]


def _check_layer_normalization(node: StaticNode) -> str | None:
    if node.num_outputs > 1:
        return "only its first output is supported"
    if int(node.attributes.get("stash_type", 1)) != 1:
        return "its attribute 'stash_type' must be 1"
    kinds = {str(kind.dtype) for kind in node.inputs if kind is not None}
    return None if len(kinds) == 1 else "its inputs must have one element type"


add(
    "LayerNormalization",
    (17,),
    (FLOATS,),
    _layer_normalization,
    ("axis", "epsilon", "stash_type"),
    check=_check_layer_normalization,
)
