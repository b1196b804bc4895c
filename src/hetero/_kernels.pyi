"""CPU kernels: the menu, single calls, and compiled programs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

def kernel_names() -> tuple[str, ...]: ...
def variants() -> tuple[str, ...]: ...
def variant() -> str: ...
def call(
    name: str,
    inputs: Sequence[np.ndarray | None],
    output_specs: Sequence[tuple[Sequence[int], DTypeLike]],
    ints: Sequence[int] = (),
    floats: Sequence[float] = (),
    scratch_bytes: int = 0,
    variant: str | None = None,
) -> list[np.ndarray[Any, Any]]: ...
