"""Access to OpenVINO: loading it, converting tensors, and the contents of its errors."""

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
_LAST_PLAIN = 13  # TensorProto.DataType; 1 to 13 are in NumPy and not complex
_MAX_LENGTH = 400  # of a message; some list a whole model


@functools.cache
def load() -> Any:
    """The package. If it cannot be imported, raises `DeviceUnavailable` with the package to install."""
    try:
        import openvino
    except ModuleNotFoundError as error:
        if error.name != "openvino":
            raise DeviceUnavailable(f"OPENVINO: openvino is installed but cannot be imported: {error}") from error
        raise DeviceUnavailable(
            "OPENVINO requires openvino, which is not installed: pip install 'hetero[openvino]'"
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
    """The message of an OpenVINO error on one line, without source locations."""
    text = str(error)
    for line in (_EXCEPTION, _CHECK):
        text = line.sub("", text)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def failed_nodes(error: Exception) -> tuple[str, ...]:
    """The names of ONNX nodes in an OpenVINO error."""
    return tuple(dict.fromkeys(_NODE.findall(str(error))))


def failed_operations(error: Exception) -> list[str]:
    """The names of OpenVINO operations in the error of a run."""
    return [first or second for first, second in _OPERATION.findall(str(error))]


def unknown_operators(error: Exception) -> frozenset[str]:
    """The operators that OpenVINO cannot convert, as ``Op`` or ``domain.Op``."""
    match = _NO_RULE.search(str(error))
    return frozenset(name.strip().rpartition("-")[0] for name in match[1].split(",")) if match else frozenset()


def passes(dtype: np.dtype[Any]) -> bool:
    """Whether tensors of this dtype can be passed to and from OpenVINO. Strings cannot: it copies some of them byte by
    byte, such as in an Identity or Slice, and then frees their memory twice (2026.4)."""
    return dtype.kind not in "OUST" and 0 < onnx_dtype_of(dtype) <= _LAST_PLAIN


def tensor_of(array: np.ndarray) -> Any:
    """A tensor that shares the array's memory and keeps it alive. A copy if the array is not C-contiguous or is
    read-only (OpenVINO does not promise not to write)."""
    shared = array.flags.c_contiguous and array.flags.writeable and array.size > 0
    return load().Tensor(array if shared else np.array(array, order="C"), shared_memory=bool(shared))


def array_of(tensor: Any) -> np.ndarray:
    """A copy of a result, because the next run overwrites the tensor."""
    return np.array(tensor.data)
