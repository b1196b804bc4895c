"""Helpers for devices whose backends parse ONNX: passing models and values to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.types import dtype_of

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["values_not_passing"]

# Operators whose outputs may have a type that occurs nowhere else in the model.
_TYPE_MAKERS = frozenset(("Cast", "CastLike", "QuantizeLinear", "BitCast", "DFT", "STFT"))


def values_not_passing(model: Model, passes: Callable[[np.dtype[Any]], bool]) -> dict[int, tuple[str, np.dtype[Any]]]:
    """The nodes with an input or output that cannot be passed to a backend: node -> name of the value, dtype. Constants
    are not checked.

    Returns early if no declared type and no operator suggests such a value.
    """
    suspicious = any(name.rpartition("::")[2] in _TYPE_MAKERS for name in model.op_types)
    suspicious = suspicious or any(port.is_stated and port.dtype and not passes(port.dtype) for port in model.inputs)
    if not suspicious:
        numbers = np.unique(model.file.constant_dtype[model.file_constants]).tolist()
        dtypes = [dtype_of(number) for number in numbers]
        suspicious = any(dtype is None or not passes(dtype) for dtype in dtypes)
    not_passing: dict[int, tuple[str, np.dtype[Any]]] = {}
    if not suspicious:
        return not_passing
    for ragged in (model.node_inputs, model.node_outputs):
        for node in range(model.num_nodes):
            for value in ragged[node].tolist():
                if node in not_passing or value < 0 or model.is_constant[value]:
                    continue
                dtype = model.type_of(value).dtype
                if dtype is not None and not passes(dtype):
                    not_passing[node] = model.value_name(value), dtype
    return not_passing
