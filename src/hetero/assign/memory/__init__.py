"""What models take of devices' memory: weights and activations, and how to stay within limits.

`footprint` gives the bytes of a cut graph per device, by liveness; `RangeMemory` those of contiguous ranges of nodes,
for stages of pipelines. `values_of` makes of a model the arrays that both work on; they know no ONNX.
"""

from __future__ import annotations

from .footprint import Footprint, footprint
from .ranges import RangeMemory
from .values import Values, values_of

__all__ = ["Footprint", "RangeMemory", "Values", "footprint", "values_of"]
