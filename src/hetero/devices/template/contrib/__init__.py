"""onnxruntime's own operators (domain com.microsoft), defined in NumPy.

The definitions are onnxruntime's documentation of contrib operators and, where it is silent, the results of
onnxruntime. They share no code with the kernels of the CPU device."""

from . import attention, network, quantized, text  # noqa: F401  they register their definitions
from .table import matched

__all__ = ["matched"]
