"""A model in two parts: its structure as ONNX bytes, and its larger constants as arrays.

Used for files whose weights can be memory-mapped. The bytes keep small constants, the tensors of nested graphs, and
constants whose layout differs from NumPy's (strings, types of less than 1 B, sparse tensors, typed fields).
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
    """The bytes, and the other constants by name. Raises `ModelError` if external data cannot be read."""
    return model.to_bytes_lending(_LARGE_BYTES)


def attach(data: memoryview, arrays: Mapping[str, NDArray[Any]], label: str) -> Model:
    """The model from the results of `detach`. ``arrays`` are not copied.

    Raises `ModelError` if the bytes are not a model, or if an array matches no constant without data of the same name,
    type and shape.
    """
    model = Model(ModelFile(data, label=label))
    lender = LentArrays(list(arrays.values()))
    for position, (name, array) in enumerate(arrays.items()):
        value = model.find_value(name)
        number = -1 if value is None else int(model.file.value_constant[value])
        if number < 0 or not model.constants.is_external(number):
            raise ModelError(f"{label}: the model has no detached constant {name!r}")
        stated = model.constants.type_of(number)
        if (stated.dtype, stated.shape) != (array.dtype, array.shape):
            raise ModelError(
                f"{label}: constant {name!r} is {stated.dtype}{list(stated.shape or ())} in the model, but the array "
                f"is {array.dtype}{list(array.shape)}"
            )
        model.constants.borrow(number, lender, position)
    return model
