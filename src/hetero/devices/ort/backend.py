"""Access to onnxruntime: loading it, its execution providers, and the contents of its errors."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import DeviceUnavailable, PropertyError, raise_out_of_memory
from ...model.types import dtype_of
from . import nvidia

__all__ = [
    "Target",
    "can_bind",
    "core",
    "direct",
    "dtype_of_value",
    "error_text",
    "failed_node",
    "found_by_inference",
    "load",
    "missing_kernel",
    "new_session",
    "preload",
    "run_with_values",
    "targets",
]

_LEAST_VERSION = (1, 29)
"""As in pyproject.toml. Earlier versions abort the process at TfIdfVectorizers in the tests of TEMPLATE."""
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
    version = re.match(r"(\d+)\.(\d+)", onnxruntime.__version__)
    if version and tuple(map(int, version.groups())) < _LEAST_VERSION:
        least = ".".join(map(str, _LEAST_VERSION))
        raise DeviceUnavailable(
            f"ORT requires onnxruntime {least} or later, found {onnxruntime.__version__}: pip install -U onnxruntime"
        )
    return onnxruntime


def core() -> Any:
    """The C++ part of the package. Its objects lack the checks of the Python part, which take 70 µs per run."""
    return load().capi.onnxruntime_pybind11_state


def direct(session: Any) -> Any:
    """The C++ part of a session, or the session itself if this version of the package does not have it where 1.29 to
    1.32 do. Both have ``run``."""
    return getattr(session, "_sess", session)


def can_bind(session: Any) -> bool:
    """Whether the C++ parts that an I/O binding requires are where 1.29 to 1.32 have them."""
    ort = load()
    return (
        direct(session) is not session
        and hasattr(session.io_binding(), "_iobinding")
        and hasattr(ort.OrtValue, "_get_c_value")
        and hasattr(ort.OrtDevice, "_get_c_device")
        and hasattr(core(), "OrtValue")
    )


def run_with_values(session: Any, outputs: Sequence[str], inputs: Mapping[str, Any], options: Any) -> list[Any]:
    """The results of a run as ``OrtValue`` objects, from those of the ``inputs``."""
    ort, inner = load(), direct(session)
    if inner is session or not hasattr(ort.OrtValue, "_get_c_value"):
        results: list[Any] = session.run_with_ort_values(outputs, inputs, options)
        return results
    bound = {name: value._get_c_value() for name, value in inputs.items()}
    return [ort.OrtValue(value) for value in inner.run_with_ort_values(bound, outputs, options)]


def dtype_of_value(value: Any) -> np.dtype[Any]:
    """The dtype of an ``OrtValue`` of the C++ part."""
    dtype = dtype_of(value.element_type())
    assert dtype is not None
    return dtype


# Providers for the GPUs of CUDA, which the option device_id selects -> the type of their memory in onnxruntime.
_CUDA = dict.fromkeys(("CUDAExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider"), "cuda")


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What a device id stands for: an execution provider and one of its devices. ``number``: None for the provider's
    default. ``is_plugin``: the provider comes from a library that was registered with onnxruntime."""

    provider: str
    number: int | None = None
    is_plugin: bool = False

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options for the provider: ``options``, with the number of the device."""
        if self.number is None or self.is_plugin:
            return dict(options)
        chosen = str(options.get("device_id", self.number))
        if chosen != str(self.number):
            raise PropertyError(
                f"ORT_PROVIDER_OPTIONS: device_id is {chosen}, but the name of the device selects {self.number}"
            )
        return {**options, "device_id": chosen}

    def entry(self, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The provider with its options, for `new_session`."""
        name = f"{self.provider}{_NUMBER}{self.number or 0}" if self.is_plugin else self.provider
        return name, self.options(options)

    def memory(self, options: Mapping[str, Any]) -> tuple[str, int] | None:
        """Device type and number of the memory in onnxruntime, if values can stay there. None: the host's memory, or a
        memory for which onnxruntime's Python interface cannot make tensors."""
        if self.provider not in _CUDA or self.is_plugin:
            return None
        try:
            return _CUDA[self.provider], int(self.options(options).get("device_id", 0))
        except ValueError:  # which the provider rejects
            return None


_NUMBER = "#"  # before the number of a device of a registered provider


def targets() -> dict[str, Target]:
    """Device id -> provider and device: CPU first, then the providers of this build in onnxruntime's order of
    preference, each followed by its GPUs, then registered providers."""
    available = load().get_available_providers()
    ids: dict[str, Target] = {}
    for provider in sorted(available, key=lambda name: name != "CPUExecutionProvider"):
        id_ = _id_of(provider)
        ids[id_] = Target(provider)
        if provider in _CUDA:
            ids.update((f"{id_}.{number}", Target(provider, number)) for number in range(nvidia.count()))
    registered: dict[str, int] = {}
    for device in _ep_devices():
        if device.ep_name not in available:
            registered[device.ep_name] = registered.get(device.ep_name, 0) + 1
    for provider, count in registered.items():
        id_ = _id_of(provider)
        ids.setdefault(id_, Target(provider, None, True))
        ids.update((f"{id_}.{number}", Target(provider, number, True)) for number in range(count))
    return ids


def _id_of(provider: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", provider.removesuffix(_SUFFIX).upper())


def _ep_devices() -> list[Any]:
    """The devices of providers, as far as the installed version can list them."""
    ep_devices = getattr(load(), "get_ep_devices", None)
    return [] if ep_devices is None else list(ep_devices())


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
    start or to run. ``providers``: names, or pairs of name and options (`Target.entry`). Raises `PropertyError` for
    wrong options of a provider, and `DeviceUnavailable` if a registered provider has gone."""
    try:
        if isinstance(providers[0], tuple) and _NUMBER in providers[0][0]:
            (name, provider_options), number = providers[0], 0
            name, _, text = name.partition(_NUMBER)
            number = int(text)
            devices = [device for device in _ep_devices() if device.ep_name == name]
            if number >= len(devices):
                raise DeviceUnavailable(f"ORT: onnxruntime no longer lists device {number} of {name}")
            given = {key: str(value) for key, value in provider_options.items()}
            options.add_provider_for_devices([devices[number]], given)
            return load().InferenceSession(encoded, options, enable_fallback=0)
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


def found_by_inference(error: Exception) -> bool:
    """Whether an error is one of shape inference inside a nested graph."""
    return "Graph attribute inferencing failed" in str(error)


def missing_kernel(error: Exception) -> bool:
    """Whether an error says that onnxruntime does not have the operator."""
    return "No Op registered for" in str(error) or "is not a registered function/op" in str(error)
