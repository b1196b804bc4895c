"""Kernels of elementwise expressions, generated: one kernel computes a chain of operators in registers.

An `Expression` is a template of OpenCL C with its operands. `kernel_of` turns a tree of them into a kernel. Names of
variables are numbers, and numbers of the model are arguments, so the source contains nothing of the model but the
templates of its operators, and the types and the layout of its inputs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InferenceError
from .device import KernelSource
from .tensors import Scalar, Tensor

__all__ = [
    "COMPUTED",
    "MAX_RANK",
    "STORED",
    "Epilogue",
    "collapsed",
    "epilogue_of",
    "kernel_of",
    "layout_bytes",
    "products_in",
    "strides_of",
]

STORED = {
    "float32": "float",
    "float16": "half",
    "int64": "long",
    "int32": "int",
    "int8": "char",
    "uint8": "uchar",
    "bool": "uchar",
}
"""Element type -> its type in memory."""
COMPUTED = {
    "float32": "float",
    "float16": "float",
    "int64": "long",
    "int32": "int",
    "int8": "char",
    "uint8": "uchar",
    "bool": "int",
}
"""Element type -> the type of a variable."""

_PREAMBLE = """#pragma OPENCL FP_CONTRACT OFF
typedef struct { uint rank; uint dims[8]; uint strides[8][8]; } Layout;
// As if the value had been stored as half and read again.
float as_half(float v)
{
    ushort stored;
    vstore_half_rte(v, 0, (__private half *)&stored);
    return vload_half(0, (__private half *)&stored);
}
// Exactly 1 where no float is closer. Those of a driver need not be, and x * (1 + erf(x)) would be -inf at -inf.
float hyperbolic_tangent(float v) { return fabs(v) > 10 ? copysign(1.0f, v) : tanh(v); }
float error_function(float v) { return fabs(v) > 4 ? copysign(1.0f, v) : erf(v); }
float larger(float a, float b) { return a > b || isnan(a) ? a : b; }
float smaller(float a, float b) { return a < b || isnan(a) ? a : b; }
"""
MAX_RANK = 8


def strides_of(shape: Sequence[int], target: Sequence[int]) -> list[int]:
    """The distance, in elements, between neighbors in each dimension of ``target``, to which ``shape`` is broadcast."""
    strides, step = [0] * len(target), 1
    for at in range(1, len(shape) + 1):
        if shape[-at] != 1:
            strides[-at] = step
            step *= shape[-at]
    return strides


def collapsed(dims: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The dimensions from the innermost, joined where each of ``strides`` allows it, without those of size 1."""
    joined: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for at in reversed(range(len(dims))):
        if dims[at] == 1:
            continue
        if joined and all(own[at] == inner[-1] * joined[-1] for own, inner in zip(strides, kept, strict=True)):
            joined[-1] *= dims[at]
            continue
        joined.append(dims[at])
        for own, inner in zip(strides, kept, strict=True):
            inner.append(own[at])
    return joined, kept


class _Statements:
    """The statements that compute an expression for the elements of ``root``, and what they read. ``product``: the
    operand whose element is in the variable ``total``.

    An object, because a recursive function in `kernel_of` would refer to itself, and hold the tensors and their memory
    until a garbage collection."""

    def __init__(self, root: Tensor, product: Tensor | None = None) -> None:
        self.root = root
        self._product = product
        self.layouts: list[list[int]] = []
        self.parameters: list[str] = []
        self.arguments: list[Any] = []
        self.lines: list[str] = []
        self._names: dict[int, str] = {}

    def name_of(self, operand: Tensor | Scalar) -> str:
        """The variable that holds the operand; adds the statements that compute it."""
        known = self._names.get(id(operand))
        if known is not None:
            return known
        name = f"v{len(self._names)}"
        self._names[id(operand)] = name
        kind = COMPUTED[operand.dtype.name]
        if isinstance(operand, Scalar):
            self.parameters.append(f"{kind} {name}")
            self.arguments.append(np.asarray(operand.value, _ARGUMENT[kind])[()])
        elif operand.expression is not None:
            expression = operand.expression
            value = expression.template.format(*[self.name_of(each) for each in expression.operands])
            self.lines.append(f"{kind} {name} = {_rounded(value, operand)};")
        elif operand is self._product:
            self.lines.append(f"{kind} {name} = {_rounded('total', operand)};")
        else:
            self.parameters.append(f"__global const {STORED[operand.dtype.name]} *p{name}")
            self.arguments.append(operand)
            if operand.shape == self.root.shape:
                index = "i"
            elif operand.size == 1:
                index = "0"
            else:
                index = f"at[{len(self.layouts)}]"
                self.layouts.append(strides_of(operand.shape, self.root.shape))
            loaded = {"half": "vload_half({1}, {0})", "bool": "({0}[{1}] != 0)"}.get(
                "bool" if operand.dtype == np.bool_ else STORED[operand.dtype.name], "{0}[{1}]"
            )
            self.lines.append(f"{kind} {name} = {loaded.format('p' + name, index)};")
        return name


def _rounded(value: str, tensor: Tensor) -> str:
    return f"as_half({value})" if tensor.dtype == np.float16 else value


def products_in(root: Tensor) -> list[Tensor]:
    """The products that the expression of ``root`` reads and that were not started."""
    found: dict[int, Tensor] = {}
    rest: list[Tensor | Scalar] = [root]
    while rest:
        each = rest.pop()
        if isinstance(each, Tensor) and each.slot is None:
            if each.expression is not None:
                rest.extend(each.expression.operands)
            elif each.product is not None:
                found[id(each)] = each
    return list(found.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Epilogue:
    """An expression that the kernel of a product computes for each element before it stores it. ``function``: its
    source, a function of the element, its position, its row, its column and ``names``, whose values are
    ``arguments``."""

    function: str
    parameters: str
    names: str
    arguments: tuple[Any, ...]


def epilogue_of(root: Tensor, product: Tensor) -> Epilogue | None:
    """The expression of ``root`` as the end of the product that it reads. None unless the result has the product's
    type and shape, and every other operand is a number, has that shape too, or is one row or one column of the
    product's matrices."""
    assert product.product is not None
    if root.dtype != product.dtype or root.shape != product.shape:
        return None
    statements = _Statements(root, product)
    last = statements.name_of(root)
    walk = f"uint at[{max(1, len(statements.layouts))}];\n"
    for number, strides in enumerate(statements.layouts):
        place = _along(strides, root.shape, product.product.m, product.product.n)
        if place is None:
            return None
        walk += f"at[{number}] = {place};\n"
    parameters = "".join(f", {each}" for each in statements.parameters)
    body = "\n".join(statements.lines)
    signature = f"float epilogue(float total, uint i, uint row, uint column{parameters})"
    function = f"{signature}\n{{\n{walk}{body}\nreturn {last};\n}}\n"
    names = "".join(f", {each.split()[-1].lstrip('*')}" for each in statements.parameters)
    return Epilogue(_PREAMBLE + function, parameters, names, tuple(statements.arguments))


def _along(strides: Sequence[int], shape: Sequence[int], m: int, n: int) -> str | None:
    """The position in an operand, broadcast to matrices of m x n, which together have ``shape``: ``row`` or
    ``column``. None if it is neither."""
    dims = [dim for dim, stride in enumerate(strides) if stride]
    if len(dims) != 1 or strides[dims[0]] != 1:
        return None
    size, inner = shape[dims[0]], math.prod(shape[dims[0] + 1 :])
    return "column" if (size, inner) == (n, 1) else "row" if (size, inner) == (m, n) else None


def kernel_of(root: Tensor) -> tuple[KernelSource, list[Any]]:
    """The kernel that computes ``root`` from its expression, and its arguments after the result: tensors and NumPy
    values. The first are the number of elements and, if an input is broadcast, the layout."""
    statements = _Statements(root)
    last = statements.name_of(root)
    layouts = statements.layouts
    stored = STORED[root.dtype.name]
    store = f"vstore_half_rte({last}, i, out)" if stored == "half" else f"out[i] = {last}"
    head: list[Any] = [np.uint32(root.size)]
    signature = [f"__global {stored} *out", "uint n"]
    walk = ""
    if layouts:
        dims, strides = collapsed(root.shape, layouts)
        head.append(layout_bytes(dims, strides, 8))
        signature.append("Layout layout")
        walk = (
            f"uint at[{len(layouts)}] = {{0}}; uint rest = i;\n"
            "for (uint d = 0; d < layout.rank; d++) { uint c = rest % layout.dims[d]; rest /= layout.dims[d];\n"
            + "".join(f"at[{k}] += c * layout.strides[{k}][d]; " for k in range(len(layouts)))
            + "}\n"
        )
    body = "\n".join(statements.lines)
    begin = "uint i = get_global_id(0);\nif (i >= n) return;\n"
    text = f"({', '.join(signature + statements.parameters)})\n{{\n{begin}{walk}{body}\n{store};\n}}\n"
    name = f"compute_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    return KernelSource(name, f"__kernel void {name}{text}", _PREAMBLE), [*head, *statements.arguments]


_ARGUMENT = {"float": np.float32, "long": np.int64, "int": np.int32, "char": np.int8, "uchar": np.uint8}


def layout_bytes(dims: Sequence[int], strides: Sequence[Sequence[int]], count: int = 0) -> np.ndarray:
    """A ``Layout``: the rank, the sizes, and the strides of each input, from the innermost dimension.
    ``count``: of inputs for which the struct has room.
    Raises `InferenceError` for more than `MAX_RANK` dimensions."""
    if len(dims) > MAX_RANK:
        raise InferenceError(
            f"more than {MAX_RANK} dimensions that cannot be joined are not supported, found {len(dims)}"
        )
    layout = np.zeros((1 + (count or len(strides)), MAX_RANK), np.int32)
    layout[0, : len(dims)] = dims
    for row, own in enumerate(strides):
        layout[1 + row, : len(own)] = own
    return np.concatenate([np.array([len(dims)], np.int32), layout.reshape(-1)])
