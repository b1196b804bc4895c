"""Lowerings of operators to kernel calls, by theme. Each module registers its operators when it is imported.

Most models have only operators of the first modules. The others are imported when a model needs them, because importing
all of them would take longer than compiling a small model.
"""

from .. import registry
from . import convolution, elementwise, halves, movement, network

__all__ = ["convolution", "elementwise", "halves", "movement", "network"]

_LATER = {
    "classic": (
        "ai.onnx.ml::ArrayFeatureExtractor", "ai.onnx.ml::Binarizer", "ai.onnx.ml::FeatureVectorizer",
        "ai.onnx.ml::Imputer", "ai.onnx.ml::LabelEncoder", "ai.onnx.ml::LinearClassifier",
        "ai.onnx.ml::LinearRegressor", "ai.onnx.ml::Normalizer", "ai.onnx.ml::OneHotEncoder", "ai.onnx.ml::Scaler",
    ),
    "einsum": ("Einsum",),
    "fourier": ("DFT", "STFT"),
    "grouped_query": ("com.microsoft::GroupQueryAttention",),
    "nbits": ("com.microsoft::GatherBlockQuantized", "com.microsoft::MatMulNBits"),
    "onnxruntime": (
        "SimplifiedLayerNormalization", "com.microsoft::Attention", "com.microsoft::BiasGelu",
        "com.microsoft::EmbedLayerNormalization", "com.microsoft::FastGelu", "com.microsoft::FusedConv",
        "com.microsoft::FusedGemm", "com.microsoft::FusedMatMul", "com.microsoft::Gelu",
        "com.microsoft::MultiHeadAttention", "com.microsoft::QuickGelu",
        "com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization",
    ),
    "onnxruntime_quantized": (
        "com.microsoft::DynamicQuantizeLSTM", "com.microsoft::DynamicQuantizeMatMul",
        "com.microsoft::MatMulIntegerToFloat", "com.microsoft::QAttention",
        "com.microsoft::QEmbedLayerNormalization", "com.microsoft::QGemm",
        "com.microsoft::QLinearAdd", "com.microsoft::QLinearAveragePool", "com.microsoft::QLinearConcat",
        "com.microsoft::QLinearGlobalAveragePool", "com.microsoft::QLinearLeakyRelu", "com.microsoft::QLinearMul",
        "com.microsoft::QLinearSigmoid", "com.microsoft::QLinearSoftmax", "com.microsoft::QLinearWhere",
    ),
    "quantized": (
        "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
        "QuantizeLinear",
    ),
    "recurrent": ("GRU", "LSTM", "RNN"),
    "resize": ("Resize", "Upsample"),
    "rotary": ("RotaryEmbedding", "com.microsoft::RotaryEmbedding"),
    "sampling": ("AffineGrid", "Det", "GridSample", "NonMaxSuppression", "RoiAlign"),
    "selection": (
        "Compress", "EyeLike", "Hardmax", "NonZero", "OneHot", "ReverseSequence", "TopK", "Trilu", "Unique",
    ),
    "spatial": ("Col2Im", "ConvTranspose", "GlobalLpPool", "LpPool", "MaxUnpool"),
    "svm": ("ai.onnx.ml::SVMClassifier", "ai.onnx.ml::SVMRegressor"),
    "trees": (
        "ai.onnx.ml::TreeEnsemble", "ai.onnx.ml::TreeEnsembleClassifier", "ai.onnx.ml::TreeEnsembleRegressor",
    ),
}  # fmt: skip
_ALIASES = ("DequantizeLinear", "QuantizeLinear")  # with 4 and 16 bits, which ONNX has since opset 21
registry.ALIASES.update((f"com.microsoft::{name}", (name, 21)) for name in _ALIASES)
registry.LATER.update((name, f"{__name__}.{module}") for module, names in _LATER.items() for name in names)
registry.LATER_HOSTED += [f"{__name__}.{module}" for module in ("deformable", "maps", "random", "sequences", "strings")]
