"""Floating-point operations per operator, as functions of the sizes of its inputs and outputs.

A formula takes `Operands`, all nodes of one operator, and returns their operations as float64 [nodes]. A multiplication
with an addition counts as two. Functions such as Exp count as several, by their time relative to an addition on a CPU.
A node's bytes are those of all inputs and outputs, except for `VIEWS` and `SPARSE_READERS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .sizes import MAX_DIMS, ValueSizes

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["FORMULAS", "SPARSE_READERS", "VIEWS", "Formula", "Operands"]

_Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """All nodes of one operator, ``nodes``. An input or output that a node lacks has 0 elements and dims of 1."""

    model: Model
    sizes: ValueSizes
    nodes: NDArray[np.intp]

    def elements(self, position: int, *, output: bool = False) -> _Array:
        """float64 [nodes]: the elements of the input (or output) at a position."""
        value = self._value(position, output)
        return np.where(value >= 0, self.sizes.elements[value], 0.0)

    def dim(self, position: int, axis: int, *, output: bool = False) -> _Array:
        """float64 [nodes]: a dim of the input (or output) at a position; ``axis`` is negative, -1 for the last."""
        value = self._value(position, output)
        return np.where(value >= 0, self.sizes.dims[value, MAX_DIMS + axis], 1.0)

    def first_dim(self, position: int) -> _Array:
        value = self._value(position, False)
        rank = np.minimum(self.sizes.rank[value], MAX_DIMS)
        return np.where((value >= 0) & (rank > 0), self.sizes.dims[value, MAX_DIMS - np.maximum(rank, 1)], 1.0)

    def attribute_product(self, name: str) -> _Array:
        """float64 [nodes]: the product of the numbers in a list attribute, 1 if it is missing."""
        return np.array([np.prod(self.model.nodes[int(i)].attributes.get(name, [1])) for i in self.nodes], np.float64)

    def _value(self, position: int, output: bool) -> NDArray[np.int32]:
        rows = self.model.node_outputs if output else self.model.node_inputs
        begin, end = rows.indptr[self.nodes], rows.indptr[self.nodes + 1]
        index = begin + position
        is_present = index < end
        value = np.full(len(self.nodes), -1, np.int32)
        value[is_present] = rows.values[index[is_present]]
        return value


Formula = Callable[[Operands], _Array]


def _per_output(operations: float) -> Formula:
    return lambda o: operations * o.elements(0, output=True)


def _per_input(operations: float) -> Formula:
    return lambda o: operations * o.elements(0)


def _ratio(a: _Array, b: _Array) -> _Array:
    return a / np.maximum(b, 1)


def _conv(weights: int) -> Formula:
    """Each output element uses the weights of one output channel; weights [M, C / group, ...]."""
    return lambda o: 2 * o.elements(0, output=True) * _ratio(o.elements(weights), o.first_dim(weights))


def _conv_transpose(o: Operands) -> _Array:
    """Each input element uses the weights of one input channel; weights [C, M / group, ...]."""
    return 2 * o.elements(0) * _ratio(o.elements(1), o.first_dim(1))


def _matmul(o: Operands) -> _Array:
    return 2 * o.elements(0, output=True) * o.dim(0, -1)


def _gemm(o: Operands) -> _Array:
    """2 M N K from the sizes of A, B and their product, so that transposing does not matter."""
    out = o.elements(0, output=True)
    return 2 * out * np.sqrt(_ratio(o.elements(0) * o.elements(1), out))


def _einsum(o: Operands) -> _Array:
    """From the product of all sizes, like Gemm: exact for two operands that are multiplied without a batch dim."""
    return 2 * np.sqrt(o.elements(0) * np.maximum(o.elements(1), 1) * o.elements(0, output=True))


def _attention(o: Operands) -> _Array:
    """Queries times keys, and scores times values, for all keys; Q, K, V are [..., length, width]."""
    return 4 * o.elements(0) * np.maximum(o.dim(1, -2), 1) + 10 * o.elements(0)


def _grouped_attention(o: Operands) -> _Array:
    """Queries [batch, length, width] times the past [batch, groups, positions, size] and themselves."""
    positions = o.dim(3, -2) + o.dim(0, -2)
    return 4 * o.elements(0) * positions + 10 * o.elements(0)


def _packed_attention(o: Operands) -> _Array:
    """The product with the weights of queries, keys and values, then the attention of all positions to each other."""
    product = 2 * o.elements(0) * o.dim(1, -1)
    return product + 4 * o.elements(0) * np.maximum(o.dim(0, -2), 1)


def _columns_product(o: Operands) -> _Array:
    """A product with a matrix B at position 1, transposed or not: from the operands, because onnx does not infer the
    shapes of these results."""
    return 2 * o.elements(0) * _ratio(o.dim(1, -1) * o.dim(1, -2), o.dim(0, -1))


def _matmul_nbits(o: Operands) -> _Array:
    """B is [columns, blocks, bytes]."""
    return 2 * o.elements(0) * o.first_dim(1)


def _quantized_gemm(o: Operands) -> _Array:
    """As `_columns_product`, with B at position 3."""
    return 2 * o.elements(0) * _ratio(o.elements(3), o.dim(0, -1))


def _tree_ensemble(o: Operands) -> _Array:
    """Each row goes down every tree; a tree with n nodes is about log2(n) deep."""
    numbers = (_tree_steps(o.model.nodes[int(i)].attributes) for i in o.nodes)
    return o.dim(0, -2) * np.array(list(numbers), np.float64)


def _tree_steps(attributes: Mapping[str, Any]) -> float:
    """Steps of one row, each about four operations."""
    modes = attributes.get("nodes_modes") or attributes.get("nodes_featureids") or ()
    trees = attributes.get("nodes_treeids") or attributes.get("tree_roots") or ()
    nodes, roots = len(modes), len(set(trees))
    return 4 * max(roots, 1) * float(np.log2(nodes / max(roots, 1) + 1))


def _linear_model(o: Operands) -> _Array:
    """Each result uses all features of its row."""
    return 2 * o.elements(0) * np.maximum(o.dim(0, -1, output=True), 1)


def _support_vectors(o: Operands) -> _Array:
    """Each row is compared with each support vector."""
    numbers = (len(o.model.nodes[int(i)].attributes.get("support_vectors", ())) for i in o.nodes)
    return 2 * o.dim(0, -2) * np.array(list(numbers), np.float64)


def _recurrent(gates_work: float) -> Formula:
    """Each step of each batch entry uses W and R once; X is [steps, batch, inputs]."""
    return lambda o: (2 * (o.elements(1) + o.elements(2)) + gates_work * o.dim(2, -1)) * o.dim(0, -3) * o.dim(0, -2)


def _pool(o: Operands) -> _Array:
    return o.elements(0, output=True) * o.attribute_product("kernel_shape")


def _sort(o: Operands) -> _Array:
    return 4 * o.elements(0) * np.log2(o.dim(0, -1) + 1)


def _resize(o: Operands) -> _Array:
    return 8 * o.elements(0, output=True)


_SIMPLE = (
    "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Equal Floor Greater "
    "GreaterOrEqual IsInf IsNaN LeakyRelu Less LessOrEqual Max Mean Min Mul Neg Not Or PRelu Relu Round Sign Sub Sum "
    "ThresholdedRelu Where Xor QuantizeLinear DequantizeLinear DynamicQuantizeLinear HardSigmoid HardSwish Shrink "
    "Dropout Trilu"
)
_DIVIDING = "Div Mod Reciprocal Sqrt Softsign"
_TRANSCENDENTAL = (
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu Log Mish Pow Selu Sigmoid Sin Sinh Softplus Swish "
    "Tan Tanh"
)
_REDUCING = (
    "ArgMax ArgMin CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare GlobalAveragePool GlobalMaxPool"
)
_NORMALIZING = (
    "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization LpNormalization "
    "MeanVarianceNormalization"
)

_CONTRIB_TRANSCENDENTAL = "BiasGelu FastGelu Gelu QuickGelu QLinearSigmoid"
_CONTRIB_SIMPLE = "DequantizeLinear QLinearAdd QLinearConcat QLinearLeakyRelu QLinearMul QLinearWhere QuantizeLinear"
_CONTRIB_NORMALIZING = "SkipLayerNormalization SkipSimplifiedLayerNormalization"
_CLASSIC = (
    "ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer LabelEncoder "
    "Normalizer OneHotEncoder Scaler ZipMap"
)


def _in(domain: str, names: str) -> list[str]:
    return [f"{domain}::{name}" for name in names.split()]


FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys(_SIMPLE.split(), _per_output(1)),
    **dict.fromkeys(_DIVIDING.split(), _per_output(4)),
    **dict.fromkeys(_TRANSCENDENTAL.split(), _per_output(15)),
    **dict.fromkeys(_REDUCING.split(), _per_input(1)),
    **dict.fromkeys(_NORMALIZING.split(), _per_input(8)),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _per_input(20)),
    **dict.fromkeys(("Conv", "ConvInteger"), _conv(1)),
    "QLinearConv": _conv(3),
    "DeformConv": _conv(1),
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _matmul),
    "Gemm": _gemm,
    "Einsum": _einsum,
    **dict.fromkeys(("Attention", "com.microsoft::MultiHeadAttention"), _attention),
    **dict.fromkeys(_in("com.microsoft", _CONTRIB_SIMPLE), _per_input(1)),
    **dict.fromkeys(_in("com.microsoft", _CONTRIB_TRANSCENDENTAL), _per_input(15)),
    **dict.fromkeys(_in("com.microsoft", _CONTRIB_NORMALIZING), _per_input(8)),
    **dict.fromkeys(("SimplifiedLayerNormalization", "com.microsoft::QLinearGlobalAveragePool"), _per_input(8)),
    **dict.fromkeys(_in("com.microsoft", "EmbedLayerNormalization QEmbedLayerNormalization"), _per_output(10)),
    **dict.fromkeys(("RotaryEmbedding", "com.microsoft::RotaryEmbedding"), _per_input(3)),
    "com.microsoft::QLinearSoftmax": _per_input(20),
    "com.microsoft::QLinearAveragePool": _pool,
    "com.microsoft::FusedConv": _conv(1),
    **dict.fromkeys(_in("com.microsoft", "DynamicQuantizeMatMul FusedMatMul MatMulIntegerToFloat"), _columns_product),
    "com.microsoft::FusedGemm": _gemm,
    "com.microsoft::MatMulNBits": _matmul_nbits,
    "com.microsoft::QGemm": _quantized_gemm,
    **dict.fromkeys(_in("com.microsoft", "Attention QAttention"), _packed_attention),
    "com.microsoft::GroupQueryAttention": _grouped_attention,
    "com.microsoft::DynamicQuantizeLSTM": _recurrent(25),  # R is [directions, hidden, 4 * hidden]
    **dict.fromkeys(_in("ai.onnx.ml", "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"), _tree_ensemble),
    **dict.fromkeys(_in("ai.onnx.ml", "LinearClassifier LinearRegressor"), _linear_model),
    **dict.fromkeys(_in("ai.onnx.ml", "SVMClassifier SVMRegressor"), _support_vectors),
    **dict.fromkeys(_in("ai.onnx.ml", _CLASSIC), _per_input(2)),
    "LSTM": _recurrent(100),
    "GRU": _recurrent(80),
    "RNN": _recurrent(30),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    "LRN": _per_input(30),
    **dict.fromkeys(("Resize", "Upsample", "GridSample", "RoiAlign", "MaxRoiPool"), _resize),
    **dict.fromkeys(("TopK", "Unique", "NonMaxSuppression"), _sort),
}
"""Operator, written as in `Model.op_types` -> its formula. Others, such as Transpose, only move bytes."""

_VIEWS = (
    "Reshape Flatten Squeeze Unsqueeze Identity Shape Size ConstantOfShape Constant Optional OptionalGetElement "
    "OptionalHasElement SequenceAt SequenceConstruct SequenceLength"
)
VIEWS = frozenset(_VIEWS.split())
"""Operators that need not touch the elements of their inputs; they count no bytes."""

_SPARSE_READERS = "Gather GatherElements GatherND Slice Split SplitToSequence Compress"
SPARSE_READERS: Mapping[str, int] = {
    **dict.fromkeys(_SPARSE_READERS.split(), 0),
    "com.microsoft::GatherBlockQuantized": 0,
    **dict.fromkeys(_in("com.microsoft", "EmbedLayerNormalization QEmbedLayerNormalization"), 2),
}
"""Operators that read only as many elements of the input at this position as they write."""
