"""How operators become calls of kernels, by theme; each module registers its operators when it is imported.

`halves` comes last: it wraps operators of the others for float16 and bfloat16.
"""

from . import (
    batch_norm,
    convolution,
    einsum,
    elementwise,
    fourier,
    movement,
    network,
    quantized,
    recurrent,
    resize,
    sampling,
    selection,
    spatial,
)

from . import halves  # isort: skip

__all__ = [
    "batch_norm",
    "convolution",
    "einsum",
    "elementwise",
    "fourier",
    "halves",
    "movement",
    "network",
    "quantized",
    "recurrent",
    "resize",
    "sampling",
    "selection",
    "spatial",
]
