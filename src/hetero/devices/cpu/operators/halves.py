"""float16 and bfloat16 as storage types: operators without kernels for them compute in float32.

Operands of half precision are widened, which is exact; the operator's lowering for float32 runs; the result is rounded
once, to nearest even. A constant is widened once per compiled model.

Not wrapped: operators that only move elements, which support half precision themselves; Range, OneHot and Resize, which
read operands during planning; Clip, whose default bounds depend on the type; and LayerNormalization, whose other
outputs have another type than its operands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from ....errors import InferenceError
from ..registry import ADAPTERS, OPERATORS, Lowering, Node, Operator, name_of
from ..values import Context, Value
from .elementwise import cast

_HALVES = ("float16", "bfloat16")
_F32 = np.dtype(np.float32)

_OPERATORS = frozenset((
    # elementwise
    "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Div",
    "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf",
    "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "PRelu",
    "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu",
    # products, windows, normalizations, reductions
    "AveragePool", "BatchNormalization", "Col2Im", "Conv", "ConvTranspose", "Det", "Einsum", "Gemm",
    "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GridSample", "GroupNormalization",
    "InstanceNormalization", "LRN", "LogSoftmax", "LpNormalization", "LpPool", "MatMul",
    "MaxPool", "RMSNormalization", "RoiAlign", "RotaryEmbedding", "Softmax",
    "ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    # recurrent
    "GRU", "LSTM", "RNN",
    # selection and movement with arithmetic
    "CumProd", "CumSum", "Hardmax", "NonZero", "Scatter", "ScatterElements", "ScatterND", "TopK",
    # onnxruntime's own
    "com.microsoft::Attention", "com.microsoft::BiasGelu", "com.microsoft::FastGelu", "com.microsoft::FusedMatMul",
    "com.microsoft::Gelu", "com.microsoft::GroupQueryAttention", "com.microsoft::MultiHeadAttention",
    "com.microsoft::QuickGelu", "com.microsoft::RotaryEmbedding",
    "com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization",
    "SimplifiedLayerNormalization",
))  # fmt: skip

_OF_SEVERAL_TYPES = ("BatchNormalization", "GridSample", "Pow")
"""Operators whose operands may be of different floating-point types by ONNX."""


def _wide(context: Context, value: Value | None) -> Value | None:
    if value is None or name_of(value.dtype) not in _HALVES:
        return value
    return context.packed(value, "float32", lambda: cast(context, value, _F32))


def _computed_in_float32(entry: Operator) -> Lowering:
    def lower(context: Context, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
        halves = {value.dtype for value in inputs if value is not None and name_of(value.dtype) in _HALVES}
        if not halves:
            return entry.lower(context, node, inputs)
        if len(halves) > 1 and node.op_type not in _OF_SEVERAL_TYPES:
            raise InferenceError("expected operands of the same type, found float16 and bfloat16")
        made = entry.lower(context, node, [_wide(context, value) for value in inputs])
        source = inputs[entry.result] if isinstance(entry.result, int) else None
        if source is None or source.dtype not in halves:
            return made
        return [cast(context, value, source.dtype) if value.dtype == _F32 else value for value in made]

    return lower


def _with_halves(dtypes: Collection[str]) -> Collection[str]:
    return (*dtypes, *_HALVES) if "float32" in dtypes and "float16" not in dtypes else dtypes


def _adapted(name: str, entry: Operator) -> Operator:
    if name not in _OPERATORS:
        return entry
    return dataclasses.replace(entry, lower=_computed_in_float32(entry), dtypes=tuple(map(_with_halves, entry.dtypes)))


OPERATORS.update((name, [_adapted(name, entry) for entry in forms]) for name, forms in OPERATORS.items())
ADAPTERS.append(_adapted)  # for operators that are registered later
