"""Access to onnxruntime: loading it, its execution providers, and the contents of its errors."""

from __future__ import annotations

import functools
import re
from typing import Any

from ...errors import DeviceUnavailable, raise_out_of_memory

__all__ = ["error_text", "failed_node", "load", "missing_kernel", "provider_ids"]

_SUFFIX = "ExecutionProvider"

_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LOCATION = re.compile(r"\S+\.(?:cc|cpp|h|cu):\d+ [^(]*(?=\()")  # file, line and the function up to its arguments
# How its errors name a node: in a run, when creating kernels, and when checking types.
_NODES = (
    re.compile(r"Name:'([^']*)'"),
    re.compile(r"node with name '([^']*)'"),
    re.compile(r"In Node, \(\"([^\"]*)\""),
    re.compile(r"\bnode \(([^()]*)\)"),
    re.compile(r"Node \(([^()]*)\)"),
    re.compile(r"Node:\s?(\S+)"),
    re.compile(r"node name: '?([^\s']+)"),
)


@functools.cache
def load() -> Any:
    """The package. If it cannot be imported, raises `DeviceUnavailable` with the package to install."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise DeviceUnavailable(f"ORT: onnxruntime is installed but cannot be imported: {error}") from error
        raise DeviceUnavailable(
            "ORT requires onnxruntime, which is not installed: pip install 'hetero[onnxruntime]' "
            "(or another build of it, such as onnxruntime-gpu)"
        ) from error
    except Exception as error:
        raise_out_of_memory(error)
        raise DeviceUnavailable(f"ORT: onnxruntime is installed but cannot be imported: {error}") from error
    if not hasattr(onnxruntime, "InferenceSession"):  # a package that was removed incompletely
        raise DeviceUnavailable(
            "ORT: the installed onnxruntime has no InferenceSession; reinstall it: "
            "pip install --force-reinstall onnxruntime"
        )
    return onnxruntime


def provider_ids() -> dict[str, str]:
    """Device id -> execution provider of this build: CPU first, then in onnxruntime's order of preference."""
    available = load().get_available_providers()
    ids = {provider.removesuffix(_SUFFIX).upper(): provider for provider in available}
    return {id_: ids[id_] for id_ in sorted(ids, key=lambda id_: id_ != "CPU")}


def error_text(error: Exception) -> str:
    """The message of an onnxruntime error on one line, without its number and the C++ function."""
    text = _PREFIX.sub("", " ".join(str(error).split()))
    location = _LOCATION.search(text)
    if location:
        rest = _after_brackets(text, location.end()).removeprefix(" const").lstrip()
        if rest.startswith("[with "):
            rest = _after_brackets(rest, 0).lstrip()
        text = text[: location.start()] + rest
    return text or type(error).__name__


def _after_brackets(text: str, at: int) -> str:
    """The text after the bracket that matches the one at ``at``."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] in "([") - (text[end] in ")]")
        if not depth:
            return text[end + 1 :]
    return ""


def failed_node(error: Exception) -> str:
    """The name of the node in an onnxruntime error; empty if it names none."""
    for pattern in _NODES:
        match = pattern.search(str(error))
        if match and match[1]:
            return match[1]
    return ""


def missing_kernel(error: Exception) -> bool:
    """Whether an error says that onnxruntime does not have the operator."""
    return "No Op registered for" in str(error) or "is not a registered function/op" in str(error)
