"""The memory that a model needs on each device (weights and activations), and assignments within limits.

`footprint` counts the bytes of a partition per device, by liveness. `RangeMemory` counts those of contiguous ranges of
nodes, for the stages of pipelines. Both work on `Values`, arrays without ONNX, which `values_of` makes from a model.
"""

from __future__ import annotations

from .footprint import Footprint, footprint
from .ranges import RangeMemory
from .values import Values, values_of

__all__ = ["Footprint", "RangeMemory", "Values", "footprint", "values_of"]
