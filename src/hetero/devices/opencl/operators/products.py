"""MatMul and Gemm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....errors import InferenceError
from ..product import Matrix, multiply
from ..tensors import Scalar, Tensor
from .table import FLOATS, PlannedNode, StaticNode, add

__all__: list[str] = []


def _matmul(node: PlannedNode) -> Sequence[Tensor]:
    x, y, builder = node[0], node[1], node.builder
    if not x.rank or not y.rank:
        raise InferenceError("MatMul does not multiply scalars")
    left = x.shape if x.rank > 1 else (1, *x.shape)
    right = y.shape if y.rank > 1 else (*y.shape, 1)
    if left[-1] != right[-2]:
        raise InferenceError(f"matrices of shapes {list(x.shape)} and {list(y.shape)} cannot be multiplied")
    m, k, n = left[-2], left[-1], right[-1]
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        raise InferenceError(f"matrices of shapes {list(x.shape)} and {list(y.shape)} cannot be multiplied") from None
    shape = (*batch, *((m,) if x.rank > 1 else ()), *((n,) if y.rank > 1 else ()))
    result = builder.new(x.dtype, shape)
    batches = math.prod(batch)
    x, y = builder.view(x, left), builder.view(y, right)
    if math.prod(right[:-2]) == 1 and math.prod(left[:-2]) == batches:  # the rows of all batches are one matrix
        m, batches = m * batches, 1
    strides = []
    tensors = []
    for tensor, own, size in ((x, left, left[-2] * k), (y, right, k * n)):
        count = math.prod(own[:-2])
        if count == 1:
            strides.append(0)
        else:
            if count != batches and batches != 1:
                tensor = builder.expand(tensor, (*batch, *own[-2:]))
            strides.append(size)
        tensors.append(tensor)
    if batches == 1:
        strides = [0, 0]
    multiply(
        builder,
        Matrix(tensors[0], k, 1, strides[0]),
        Matrix(tensors[1], n, 1, strides[1]),
        Matrix(result, n, 1, m * n),
        (m, n, k),
        batches,
        may_wait=True,
    )
    return [result]


def _one_type(node: StaticNode) -> str | None:
    kinds = {str(kind.dtype) for kind in node.inputs if kind is not None}
    return None if len(kinds) == 1 else "its inputs must have one element type"


add("MatMul", (1, 9, 13), (FLOATS,), _matmul, check=_one_type)


def _gemm(node: PlannedNode) -> Sequence[Tensor]:
    x, y, builder = node[0], node[1], node.builder
    if x.rank != 2 or y.rank != 2:
        raise InferenceError(f"Gemm multiplies matrices, found shapes {list(x.shape)} and {list(y.shape)}")
    turned_x, turned_y = bool(node.attributes.get("transA", 0)), bool(node.attributes.get("transB", 0))
    (m, k), (other, n) = x.shape[:: -1 if turned_x else 1], y.shape[:: -1 if turned_y else 1]
    if k != other:
        raise InferenceError(f"matrices of shapes {list(x.shape)} and {list(y.shape)} cannot be multiplied")
    product = builder.new(x.dtype, (m, n))
    left = Matrix(x, 1, m, 0) if turned_x else Matrix(x, k, 1, 0)
    right = Matrix(y, 1, k, 0) if turned_y else Matrix(y, n, 1, 0)
    multiply(builder, left, right, Matrix(product, n, 1, 0), (m, n, k), 1, may_wait=True)
    product.num_readers = 1  # the rest of this node, unless the planner changes it
    alpha, beta = float(node.attributes.get("alpha", 1.0)), float(node.attributes.get("beta", 1.0))
    float32 = np.dtype(np.float32)
    result = product
    if alpha != 1:
        result = builder.elementwise("({0} * {1})", [result, Scalar(alpha, float32)], x.dtype)
        result.num_readers = 1
    addend = node.optional(2)
    if addend is not None and beta != 0:
        if np.broadcast_shapes(addend.shape, (m, n)) != (m, n):
            raise InferenceError(f"a tensor of shape {list(addend.shape)} cannot be broadcast to {[m, n]}")
        scaled = "({0} + {1})" if beta == 1 else "({0} + {2} * {1})"
        more = [] if beta == 1 else [Scalar(beta, float32)]
        result = builder.elementwise(scaled, [result, addend, *more], x.dtype, (m, n))
    result.num_readers = 2
    return [result]


add("Gemm", (7, 9, 11, 13), (FLOATS,), _gemm, ("alpha", "beta", "transA", "transB"), check=_one_type)
