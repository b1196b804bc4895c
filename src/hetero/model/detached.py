"""A model in two pieces: its structure as ONNX bytes, and its larger constants as arrays.

For files that hold weights so that they can be mapped. Small constants, those that are not stored as NumPy stores them
(strings, types of less than a byte, sparse tensors, typed fields) and the tensors of nested graphs stay in the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ..errors import ModelError
from .constants import LentArrays
from .file import ModelFile
from .model import Model

__all__ = ["attach", "detach"]

_LARGE_BYTES = 4096


def detach(model: Model) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """The bytes, and the constants that are not in them, by name. `ModelError` if external data cannot be read."""
    return model.to_bytes_lending(_LARGE_BYTES)


def attach(data: memoryview, arrays: Mapping[str, NDArray[Any]], label: str) -> Model:
    """The model of what `detach` gave. ``arrays`` are not copied.

    Raises `ModelError` for bytes that are no model, and for an array that no constant of its name, type and shape is
    without.
    """
    model = Model(ModelFile(data, label=label))
    lender = LentArrays(list(arrays.values()))
    for position, (name, array) in enumerate(arrays.items()):
        value = model.find_value(name)
        number = -1 if value is None else int(model.file.value_constant[value])
        if number < 0 or not model.constants.is_external(number):
            raise ModelError(f"{label}: the model has no constant {name!r} that is kept apart")
        stated = model.constants.type_of(number)
        if (stated.dtype, stated.shape) != (array.dtype, array.shape):
            raise ModelError(
                f"{label}: constant {name!r} is {stated.dtype}{list(stated.shape or ())} in the model, and the array "
                f"is {array.dtype}{list(array.shape)}"
            )
        model.constants.borrow(number, lender, position)
    return model
