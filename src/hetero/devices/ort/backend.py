"""Access to onnxruntime: loading it, its execution providers, and the contents of its errors."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from typing import Any

from ...errors import DeviceUnavailable, PropertyError, raise_out_of_memory

__all__ = ["error_text", "failed_node", "load", "missing_kernel", "new_session", "preload", "provider_ids"]

_SUFFIX = "ExecutionProvider"
_OPTION = "provider option"  # in errors about a wrong option of an execution provider

_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LOCATION = re.compile(r"\S+\.(?:cc|cpp|h|cu):\d+ [^(]*(?=\()")  # file, line and the function up to its arguments
# How its errors name a node: in a run, when creating kernels, and when checking types.
_NODES = (
    re.compile(r"Name:'([^']*)'"),
    re.compile(r"node with name '([^']*)'"),
    re.compile(r"In Node, \(\"([^\"]*)\""),
    re.compile(r"\bnode \(([^()]*)\)"),
    re.compile(r"Node \(([^()]*)\)"),
    re.compile(r"\bnode:'([^']*)'"),
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


@functools.cache
def preload() -> str:
    """Load the libraries of CUDA and cuDNN that pip installed, because the dynamic linker does not search their
    folders. Returns which could not be loaded, empty if none is missing."""
    preload_dlls = getattr(load(), "preload_dlls", None)
    if preload_dlls is None:
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):  # it reports failures by print
        preload_dlls()
    return "; ".join(line for line in printed.getvalue().splitlines() if line.startswith("Failed"))


def new_session(encoded: bytes, options: Any, providers: list[Any]) -> Any:
    """An ``InferenceSession`` that never changes to other providers by itself, as it does by default if one fails to
    start or to run. Raises `PropertyError` for wrong options of a provider."""
    try:
        return load().InferenceSession(encoded, options, providers=providers, enable_fallback=0)
    except Exception as error:
        _, found, after = error_text(error).partition(_OPTION)
        if found:
            raise PropertyError(f"ORT_PROVIDER_OPTIONS: wrong {found}{after}") from error
        raise


def error_text(error: Exception) -> str:
    """The message of an onnxruntime error on one line, without its number and the C++ functions that raised it."""
    before, text = "", _PREFIX.sub("", " ".join(str(error).split()))
    location = _LOCATION.search(text)
    while location:
        before += text[: location.start()]
        text = _after_brackets(text, location.end()).removeprefix(" const").lstrip()
        if text.startswith("[with "):
            text = _after_brackets(text, 0).lstrip()
        location = _LOCATION.match(text)  # of the function that raised it again
    text = before + text
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
