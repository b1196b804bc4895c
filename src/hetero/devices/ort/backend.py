"""onnxruntime as this device sees it: whether it is there, its execution providers, and what its errors say."""

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
# How its errors name a node: while running, while making kernels, while checking types.
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
    """The package. `DeviceUnavailable` says what to install."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise DeviceUnavailable(f"ORT: onnxruntime is installed but cannot be imported: {error}") from error
        raise DeviceUnavailable(
            "ORT needs onnxruntime, which is not installed: pip install 'hetero[onnxruntime]' "
            "(or one of its other builds, such as onnxruntime-gpu)"
        ) from error
    except Exception as error:
        raise_out_of_memory(error)
        raise DeviceUnavailable(f"ORT: onnxruntime is installed but cannot be imported: {error}") from error
    if not hasattr(onnxruntime, "InferenceSession"):  # what is left of a package that was removed
        raise DeviceUnavailable(
            "ORT: the installed onnxruntime has no InferenceSession: install it anew: "
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
    """What an error of onnxruntime says, on one line, without its number and the C++ function that raised it."""
    before, text = "", _PREFIX.sub("", " ".join(str(error).split()))
    found = _LOCATION.search(text)
    while found:
        before += text[: found.start()]
        text = _after_brackets(text, found.end()).removeprefix(" const").lstrip()
        if text.startswith("[with "):
            text = _after_brackets(text, 0).lstrip()
        found = _LOCATION.match(text)  # of the function that raised it again
    text = before + text
    return text or type(error).__name__


def _after_brackets(text: str, at: int) -> str:
    """What follows the bracket that opens at ``at``, once it is closed."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] in "([") - (text[end] in ")]")
        if not depth:
            return text[end + 1 :]
    return ""


def failed_node(error: Exception) -> str:
    """The name of the node that an error of onnxruntime is about; empty if it does not say."""
    for pattern in _NODES:
        found = pattern.search(str(error))
        if found and found[1]:
            return found[1]
    return ""


def missing_kernel(error: Exception) -> bool:
    """Whether an error says that there is no such operator at all."""
    return "No Op registered for" in str(error) or "is not a registered function/op" in str(error)
