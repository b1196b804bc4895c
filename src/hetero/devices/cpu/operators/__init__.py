"""Lowerings of operators to kernel calls, by theme. Each module registers its operators when it is imported.

`halves` must come last: it wraps operators of the other modules for float16 and bfloat16.
"""

from . import (
    classic,
    convolution,
    convolution_folding,
    deformable,
    einsum,
    elementwise,
    fourier,
    grouped_query,
    maps,
    movement,
    nbits,
    network,
    onnxruntime,
    onnxruntime_quantized,
    quantized,
    random,
    recurrent,
    resize,
    sampling,
    selection,
    sequences,
    spatial,
    strings,
    svm,
    trees,
)

from . import halves  # isort: skip

__all__ = [
    "classic",
    "convolution",
    "convolution_folding",
    "deformable",
    "einsum",
    "elementwise",
    "fourier",
    "grouped_query",
    "halves",
    "maps",
    "movement",
    "nbits",
    "network",
    "onnxruntime",
    "onnxruntime_quantized",
    "quantized",
    "random",
    "recurrent",
    "resize",
    "sampling",
    "selection",
    "sequences",
    "spatial",
    "strings",
    "svm",
    "trees",
]
