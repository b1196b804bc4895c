"""OpenVINO as this device sees it: whether it is there, its devices, and what its errors say."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from ...errors import DeviceUnavailable, raise_out_of_memory
from ...model.types import onnx_dtype_of

__all__ = [
    "array_of",
    "core",
    "error_text",
    "failed_nodes",
    "failed_operations",
    "load",
    "passes",
    "tensor_of",
    "unknown_operators",
]

_CHECK = re.compile(r"Check '.*?' failed at \S+:\s*")
_EXCEPTION = re.compile(r"Exception from \S+:\s*")
_NODE = re.compile(r"<Node\([^)]*\): ([^>]*)>")
_OPERATION = re.compile(r"with friendly_name '([^']+)'|[nN]ode with name '([^']+)'")
_NO_RULE = re.compile(r"No conversion rule found for operations: ([^\n]+)")
_LAST_PLAIN = 13  # of onnx.TensorProto.DataType: what NumPy has, without complex numbers
_LONGEST = 400  # of a message: some list a whole model


@functools.cache
def load() -> Any:
    """The package. `DeviceUnavailable` says what to install."""
    try:
        import openvino
    except ModuleNotFoundError as error:
        if error.name != "openvino":
            raise DeviceUnavailable(f"OPENVINO: openvino is installed but cannot be imported: {error}") from error
        raise DeviceUnavailable(
            "OPENVINO needs openvino, which is not installed: pip install 'hetero[openvino]'"
        ) from error
    except Exception as error:
        raise_out_of_memory(error)
        raise DeviceUnavailable(f"OPENVINO: openvino is installed but cannot be imported: {error}") from error
    return openvino


def core() -> Any:
    """The `openvino.Core` of the process, which lives until the process ends. Raises as `load`.

    Creating one sets the signal stack of the calling thread, and destroying it frees that stack without setting another
    (OpenVINO 2026.4): the next signal that Python handles, such as Ctrl-C, then ends the process.
    """
    return _core(load())


@functools.cache
def _core(openvino: Any) -> Any:
    return openvino.Core()


def error_text(error: Exception) -> str:
    """What an error of OpenVINO says, on one line, without the places in its source."""
    text = str(error)
    for line in (_EXCEPTION, _CHECK):
        text = line.sub("", text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def failed_nodes(error: Exception) -> tuple[str, ...]:
    """Names of the ONNX nodes that an error of OpenVINO is about."""
    return tuple(dict.fromkeys(_NODE.findall(str(error))))


def failed_operations(error: Exception) -> list[str]:
    """Names of OpenVINO's operations that an error of a run is about."""
    return [first or second for first, second in _OPERATION.findall(str(error))]


def unknown_operators(error: Exception) -> frozenset[str]:
    """Operators that it cannot convert, as ``Op`` or ``domain.Op``."""
    found = _NO_RULE.search(str(error))
    return frozenset(name.strip().rpartition("-")[0] for name in found[1].split(",")) if found else frozenset()


def passes(dtype: np.dtype[Any]) -> bool:
    """Whether tensors of this dtype can be handed to OpenVINO and back."""
    return dtype.kind in "US" or 0 < onnx_dtype_of(dtype) <= _LAST_PLAIN


def tensor_of(array: np.ndarray) -> Any:
    """A tensor over the array's memory, of which it keeps hold; a copy if that is not in C order, not to be written
    (which OpenVINO does not promise), or holds strings."""
    shared = array.flags.c_contiguous and array.flags.writeable and array.dtype.kind not in "USO" and array.size > 0
    if array.dtype.kind in "OS":
        array = array.astype(str)
    return load().Tensor(array if shared else np.array(array, order="C"), shared_memory=bool(shared))


def array_of(tensor: Any) -> np.ndarray:
    """A copy of a result: the tensor is written again by the next run."""
    data = tensor.str_data if tensor.element_type.type_name == "string" else tensor.data
    if data.dtype.kind == "U":
        return np.asarray(data.astype(object))
    return np.array(data)
