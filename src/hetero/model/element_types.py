"""Element types of the results of nodes, from those of their inputs, without shape inference.

The rule of an operator comes from its signature: a result has a fixed type, or the type of the inputs with the same
type parameter. The signatures of ONNX's operators are the schemas of `onnx.defs`. Those of onnxruntime's operators,
which onnx does not know, are in the table below. Where a type also depends on attributes or on absent inputs, a
function has the rule.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError, raise_out_of_memory
from .types import dtype_of
from .views import NodeView

if TYPE_CHECKING:
    from .file import ModelFile
    from .rows import Rows

__all__ = ["Rule", "dtype_named", "has_rule", "operators_to_type", "result_types", "rule_of"]

_Dtype = np.dtype[Any] | None
Rule = Callable[[NodeView, Sequence[_Dtype]], Sequence[_Dtype]]
"""A node and the element types of its inputs (None if absent or unknown) -> the element types of its first outputs."""

_FLOAT, _UINT8, _BFLOAT16 = 1, 2, 16  # of onnx.TensorProto.DataType

# Domain -> signature -> operators: facts from `get_all_operator_schema()` of onnxruntime 1.32. T, U: type parameters;
# _: an input whose type does not matter, omitted at the end; ?: an output whose type does not depend on types alone.
_SIGNATURES: dict[str, dict[str, str]] = {
    "": {
        "T -> T": "Affine Crop DynamicSlice GivenTensorFill ImageScaler ParametricSoftplus Scale ScaledTanh",
        "_ T -> T": "SimplifiedLayerNormalization",
        "T T T T -> T": "GRUUnit",
    },
    "com.microsoft": {
        "T -> T": "BranchwiseRMSNorm ExpandDims GatherND Gelu GroupNorm HyperConnectionPreMix Inverse Irfft "
        "MatMulPacked MoEPacked NhwcMaxPool QuickGelu RelativePositionBias RestorePadding Rfft ScaledSiLU "
        "TorchEmbedding Trilu UnfoldTensor",
        "-> bool": "IsAllFinite",
        "-> int8": "QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention "
        "QOrderedMatMul QuantizeWithOrder",
        "T T -> T": "BiasGelu BiasSoftmax BiasSplitGelu CDist ComplexMul ComplexMulConj CropAndResize FastGelu "
        "FusedMatMul FusedMatMulActivation HyperConnectionPostMix SwiGLU TransposeMatMul",
        "_ T -> T": "DequantizeLinear QLinearConcat SparseToDenseMatMul",
        "-> float": "DynamicQuantizeMatMul GatedDeltaNetStateReplay MatMulFpQ4 MaxpoolWithMask NGramRepeatBlock "
        "WordConvEmbedding",
        "-> int32": "DynamicTimeWarping GreedySearch MulInteger",
        "-> string": "Tokenizer",
        "T T -> T T": "RouterGateUpProj",
        "T T T -> T": "BiasAdd ConvStateReplay FusedGemm GatedRMSNorm GemmFastGelu NhwcConv Range",
        "T _ T -> T": "MatMulBnb4 Pad",
        "_ _ T -> T": "GatherBlockQuantized QuantizeLinear",
        "-> ? float": "RMSNormRotary",
        "T T T T -> T": "FusedConv GatedAdd NhwcFusedConv",
        "T T _ T -> T": "ConvTransposeWithDynamicPads",
        "T _ T T -> T": "MRotaryEmbedding RotaryEmbedding",
        "T -> T uint32": "BitmaskDropout",
        "T _ T _ T -> T": "QLinearAveragePool QLinearGlobalAveragePool QLinearLeakyRelu QLinearReduceMean "
        "QLinearSigmoid QLinearSoftmax",
        "T _ _ T -> T T": "LinearAttentionGate",
        "T _ _ _ T -> T": "MatMulBlockQuantizedFp8Weight",
        "-> float int32": "QEmbedLayerNormalization",
        "-> int32 float": "Sampling",
        "-> int64 int64": "BifurcationDetector",
        "T T T -> T bool": "BiasDropout",
        "T T T T -> T T T": "CausalConvWithState",
        "T T T T T T -> T": "GatedRelativePositionBias LongformerAttention",
        "T T T _ _ T -> T": "PackedAttention",
        "T _ T _ _ T -> T": "MatMulNBits",
        "T _ _ T T -> T T": "SkipGroupNorm",
        "T _ _ _ _ T -> T": "MatMulBlockQuantizedFp4Weight",
        "T T T -> T uint32": "BitmaskBiasDropout",
        "T -> T int64 int64": "Unique",
        "T T T T T T -> T T": "EngramGate NGramHashMapping",
        "T T T T _ _ T -> T": "PackedMultiHeadAttention",
        "T T T U T T -> T U": "LinearAttention",
        "T T T _ T T -> T T": "Attention DecoderMaskedSelfAttention",
        "T _ T _ T _ T -> T": "MatMulNBitsQLoRA",
        "_ _ T T _ _ T -> T": "MatMulIntegerToFloat",
        "-> float16 float16": "GemmaRotaryEmbedding",
        "T T T T T T T T -> T": "MoE",
        "T _ T T _ T _ T -> T": "QLinearAdd QLinearMul",
        "_ _ _ _ _ _ _ T -> T": "QLinearConv",
        "-> float float float": "DynamicQuantizeLSTM",
        "-> int32 int32 int32": "PackedSparseAttentionIndexerMerge",
        "-> int32 int64 int64": "SpeculativePrefixCommit",
        "-> uint8 int64 int64": "QuantizeBFP",
        "T T T -> T float float": "GatedDeltaNet",
        "T T T T T T T -> T T T": "HyperConnectionLowRankMix",
        "T _ T -> T float float": "MoEGroupRouter",
        "_ T _ T T _ T _ T -> T": "QLinearWhere",
        "T -> T int32 int32 int32": "RemovePadding",
        "T T T T T _ T T -> T T T": "DecoderAttention",
        "T T T T _ T T T -> T T T": "MultiHeadAttention",
        "T T T _ T T _ T T -> T T": "MatMulNBitsMlp",
        "T T _ T T _ T T -> T T T": "VarlenCausalConvWithState",
        "_ _ T T T _ _ _ T -> T T": "QAttention",
        "T T T T -> T float float T": "SkipSimplifiedLayerNormalization",
        "_ _ T T T T T -> T int32 T": "EmbedLayerNormalization",
        "_ _ _ _ _ T T -> int32 T T": "BeamSearch",
        "T T T T T -> T float float T": "SkipLayerNormalization",
        "T T T _ T T T -> T T int32 T": "VarlenNGramHashMapping",
        "T T T T T _ _ _ _ T T -> T T T": "SparseAttention",
        "T T T _ T T T _ _ _ T -> T T T": "DecoderMaskedMultiHeadAttention",
        "T T T _ T T _ T T _ T T -> T T T T": "MatMulNBitsQkv",
        "T T _ _ T _ _ T _ _ T _ _ _ T -> T": "QMoE",
        "T T T T _ T T T T T T T _ T -> T T T": "AttnLSTM",
        "T T T U U _ _ _ T T _ T T T -> T U U": "PagedAttention",
        "T T T T T T _ T T T T _ _ T -> int32 T T": "SparseAttentionIndexer",
        "-> bfloat16 bfloat16 float bfloat16 float": "Mamba2Verify",
        "T T T U U _ _ T T _ T T _ _ T T -> T U U T": "GroupQueryAttention",
        "T T T U U _ _ _ _ _ _ T T _ T T T T T -> T U U": "SparsePagedAttention",
        "_ _ _ U U T T _ _ _ _ T T _ T T T -> T U U int32": "DynamicSparseAttention",
        "_ _ _ _ _ T T _ _ _ _ _ _ _ T -> int32 T T float T": "WhisperBeamSearch",
        "U U U U U U _ _ U U U _ T U U -> int32 int32 T U U int32 U int32 int32": "PackedSparseAttentionIndexer",
    },
    "com.microsoft.nchwc": {
        "-> float": "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample",
    },
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Signature:
    """The types of an operator's inputs and outputs: names of type parameters, or fixed types such as ``int64``; empty
    if they may differ. ``variadic_inputs``, ``variadic_outputs``: whether the last one repeats."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    variadic_inputs: bool = False
    variadic_outputs: bool = False

    def __call__(self, node: NodeView, known: Sequence[_Dtype]) -> list[_Dtype]:
        of_parameter: dict[str, _Dtype] = {}
        for at, dtype in enumerate(known):
            parameter = self._at(self.inputs, self.variadic_inputs, at)
            if parameter and dtype is not None:
                of_parameter.setdefault(parameter, dtype)
        count = len(node.outputs) if self.variadic_outputs else len(self.outputs)
        names = [self._at(self.outputs, self.variadic_outputs, at) for at in range(count)]
        return [of_parameter.get(name) or _fixed(name) for name in names]

    @staticmethod
    def _at(names: tuple[str, ...], repeats: bool, at: int) -> str:
        if at < len(names):
            return names[at]
        return names[-1] if repeats and names else ""


def dtype_named(text: str) -> _Dtype:
    """The element type of a tensor type as text, such as ``tensor(int64)``; None for other types."""
    return _fixed(text[len("tensor(") : -1]) if text.startswith("tensor(") else None


@functools.cache
def _fixed(name: str) -> _Dtype:
    """The element type with ONNX's name, such as ``int64``; None for other names."""
    import onnx

    number = dict(onnx.TensorProto.DataType.items()).get(name.upper())
    return None if number is None else dtype_of(number)


def _of_schema(domain: str, op_type: str, version: int) -> _Signature | None:
    """The signature in onnx; None if onnx does not know the operator."""
    import onnx.defs

    if not onnx.defs.has(op_type, version, domain):
        return None
    schema: Any = onnx.defs.get_schema(op_type, version, domain)

    def names(parameters: Sequence[Any]) -> tuple[str, ...]:
        return tuple(_parameter(parameter) for parameter in parameters)

    def repeats(parameters: Sequence[Any]) -> bool:
        return bool(parameters) and parameters[-1].option == schema.FormalParameterOption.Variadic

    return _Signature(names(schema.inputs), names(schema.outputs), repeats(schema.inputs), repeats(schema.outputs))


def _parameter(parameter: Any) -> str:
    """The name of the only type that a schema allows for a parameter, or of its type parameter."""
    if not parameter.is_homogeneous:
        return ""
    allowed = [parameter.type_str] if "(" in parameter.type_str else list(parameter.types)
    if len(allowed) > 1:
        return str(parameter.type_str)
    return str(allowed[0]).removeprefix("tensor(").removesuffix(")")


@functools.cache
def _table() -> Mapping[tuple[str, str], _Signature]:
    """(domain, operator) -> signature, of `_SIGNATURES`."""
    table = {}
    for domain, signatures in _SIGNATURES.items():
        for text, op_types in signatures.items():
            inputs, outputs = (tuple(name.strip("_?") for name in part.split()) for part in text.split("->"))
            signature = _Signature(inputs, outputs)
            table.update({(domain, op_type): signature for op_type in op_types.split()})
    return table


def _by_attribute(name: str, default: int = 0) -> Rule:
    """The type whose number is in an attribute."""

    def rule(node: NodeView, known: Sequence[_Dtype]) -> list[_Dtype]:
        number = node.attributes.get(name) or default
        return [dtype_of(number) if isinstance(number, int) else None]

    return rule


def _like_optional(at: int, default: str) -> Rule:
    """The type of an optional input, or a fixed type if the input is absent."""

    def rule(node: NodeView, known: Sequence[_Dtype]) -> list[_Dtype]:
        return [known[at] if _has(node, at) else _fixed(default)]

    return rule


def _quantize_linear(node: NodeView, known: Sequence[_Dtype]) -> Sequence[_Dtype]:
    if _has(node, 2):
        return [known[2]]
    return _by_attribute("output_dtype", default=_UINT8)(node, known)


def _dequantize_linear(node: NodeView, known: Sequence[_Dtype]) -> Sequence[_Dtype]:
    if node.opset < 19:
        return [_fixed("float")]
    stated = _by_attribute("output_dtype")(node, known)
    return stated if stated[0] is not None else [known[1] if len(known) > 1 else None]


def _state_like_first_input(op_type: str, state: int, results: Sequence[int]) -> Rule:
    """The signature, and the type of the first input for ``results`` if the optional input ``state`` is absent."""

    def rule(node: NodeView, known: Sequence[_Dtype]) -> list[_Dtype]:
        dtypes = _table()[_ONNXRUNTIME, op_type](node, known)
        if not _has(node, state):
            for at in results:
                dtypes[at] = known[0] if known else None
        return dtypes

    return rule


def _has(node: NodeView, at: int) -> bool:
    """Whether a node has an optional input."""
    return at < len(node.inputs) and node.inputs[at] != ""


def _int32_of_int16(node: NodeView, known: Sequence[_Dtype]) -> list[_Dtype]:
    signed = _fixed("int16")
    return [_fixed("int32") if [*known[:2]] == [signed, signed] else None]


def _murmur_hash(node: NodeView, known: Sequence[_Dtype]) -> list[_Dtype]:
    return [_fixed("uint32" if node.attributes.get("positive", 1) == 1 else "int32")]


_ONNXRUNTIME = "com.microsoft"
_FUNCTIONS: dict[tuple[str, str], Rule] = {
    ("", "Cast"): _by_attribute("to"),
    ("", "DequantizeLinear"): _dequantize_linear,
    ("", "QuantizeLinear"): _quantize_linear,
    (_ONNXRUNTIME, "DequantizeBFP"): _by_attribute("dtype", default=_FLOAT),
    (_ONNXRUNTIME, "DequantizeWithOrder"): _by_attribute("to"),
    (_ONNXRUNTIME, "GatherPacked"): _by_attribute("output_dtype", default=_BFLOAT16),
    (_ONNXRUNTIME, "GemmFloat8"): _by_attribute("dtype", default=_FLOAT),
    (_ONNXRUNTIME, "GridSample"): lambda node, known: known[:1],
    (_ONNXRUNTIME, "GroupQueryAttention"): _state_like_first_input("GroupQueryAttention", 3, (1, 2)),
    (_ONNXRUNTIME, "LinearAttention"): _state_like_first_input("LinearAttention", 3, (1,)),
    (_ONNXRUNTIME, "MatMulInteger16"): _int32_of_int16,
    (_ONNXRUNTIME, "MurmurHash3"): _murmur_hash,
    (_ONNXRUNTIME, "QGemm"): _like_optional(8, "float"),
    (_ONNXRUNTIME, "QuantizeLinear"): _like_optional(2, "uint8"),
}


@functools.cache
def rule_of(domain: str, op_type: str, version: int) -> Rule | None:
    """The rule for an operator at this version of its domain, or None."""
    key = domain, op_type
    return _FUNCTIONS.get(key) or _table().get(key) or _of_schema(domain, op_type, version)


def has_rule(domain: str, op_type: str) -> bool:
    """Whether this is an operator of ONNX's classic machine learning, or one of onnxruntime's with a rule."""
    return domain == "ai.onnx.ml" or (domain, op_type) in _table() or (domain, op_type) in _FUNCTIONS


_UNTYPED_BY_ONNX = frozenset(" ".join(_SIGNATURES[""].values()).split())


def operators_to_type(file: ModelFile) -> list[int]:
    """The operators of a file whose results onnx's inference may leave without a type although they have a rule, as
    numbers. Does not import onnx."""
    return [
        number
        for number, (domain, op_type) in enumerate(zip(file.op_domains, file.op_names, strict=True))
        if (op_type in _UNTYPED_BY_ONNX if not domain else domain in _SIGNATURES or domain == "ai.onnx.ml")
        and (domain, op_type) not in file.functions
    ]


def result_types(
    rows: Rows, nodes: Iterable[int], rule_of_node: Callable[[int], Rule | None], known: Callable[[int], _Dtype]
) -> dict[int, np.dtype[Any]]:
    """Value -> element type, for the results of ``nodes`` whose type is not ``known`` but follows from the rules.

    ``nodes``: in topological order. ``known``: the element type of a value, or None.
    """
    found: dict[int, np.dtype[Any]] = {}

    @functools.cache
    def stated(value: int) -> _Dtype:
        return known(value) if value >= 0 else None

    for node in nodes:
        rule = rule_of_node(node)
        outputs = rows.node_outputs[node].tolist()
        if rule is None or all(value < 0 or stated(value) is not None for value in outputs):
            continue
        dtypes = [found.get(value) or stated(value) for value in rows.node_inputs[node].tolist()]
        try:
            results = rule(NodeView(rows, node), dtypes)
        except ModelError as error:  # malformed attributes, which the devices report
            raise_out_of_memory(error)
            continue
        for value, dtype in zip(outputs, results, strict=False):
            if value >= 0 and dtype is not None and stated(value) is None:
                found[value] = dtype
    return found
