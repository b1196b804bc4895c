"""Which plugin stands behind each device name.

A plugin is made on first use of its name, once per registry; one that cannot be made is
remembered with the reason and hurts nobody else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from .base.device_string import is_device_name
from .base.guard import guarded
from .base.importable import import_name, imported
from .errors import (
    DeviceUnavailable,
    HeteroError,
    NotSupported,
    PropertyError,
    UnknownDevice,
    did_you_mean,
    raise_out_of_memory,
)
from .extension.custom_op import CustomOp
from .extension.table import check_new
from .plugin.contract import Plugin

__all__ = ["ENTRY_POINT_GROUP", "DeviceInfo", "Registry"]

ENTRY_POINT_GROUP = "hetero.plugins"

# Loaded by name and on first use, so that `import hetero` pays for none of them.
_BUILT_IN = {
    "CPU": "hetero.devices.cpu:create_plugin",
    "TEMPLATE": "hetero.devices.template:create_plugin",
    "ORT": "hetero.devices.ort:create_plugin",
    "OPENVINO": "hetero.devices.openvino:create_plugin",
    "RAY": "hetero.devices.ray:create_plugin",
    "HETERO": "hetero.devices.hetero:create_plugin",
    "MULTI": "hetero.devices.multi:create_plugin",
}
# What people call devices elsewhere, in OpenVINO, onnxruntime or PyTorch, and what they are here.
_ELSEWHERE = {
    "GPU": "an Intel GPU is OPENVINO.GPU (pip install 'hetero[openvino]'), one of NVIDIA ORT.CUDA (pip install "
    "onnxruntime-gpu)",
    "NPU": "an Intel NPU is OPENVINO.NPU (pip install 'hetero[openvino]')",
    "CUDA": "an NVIDIA GPU is ORT.CUDA (pip install onnxruntime-gpu)",
    "TENSORRT": "onnxruntime's TensorRT is ORT.TENSORRT (pip install onnxruntime-gpu)",
    "ROCM": "an AMD GPU is ORT.ROCM (pip install onnxruntime-rocm)",
    "AUTO": "devices are listed by priority, such as 'HETERO:FPGA,CPU'",
    "ONNXRUNTIME": "onnxruntime is ORT (pip install 'hetero[onnxruntime]')",
}
Factory = Callable[[], Plugin]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device name, and whether there is anything behind it.

    ``ids``: what may stand after the dot. ``description``: its ``FULL_DEVICE_NAME``. ``unavailable``: why it cannot be
    used and what to do about it; empty if it can. ``origin``: ``hetero``, ``profile``, ``registered``, or the package
    that it comes from, with its version.
    """

    name: str
    ids: tuple[str, ...]
    description: str
    unavailable: str
    origin: str


class Registry:
    """The plugins of one `Core`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._factories: dict[str, Factory] = {name: _lazy(target) for name, target in _BUILT_IN.items()}
        self._origins = dict.fromkeys(_BUILT_IN, "hetero")
        for profile in _shipped_profiles():
            name = os.path.basename(profile).removesuffix(".toml").upper()
            self._factories[name] = self._profile_factory(profile)
            self._origins[name] = "profile"
        self._spelled: dict[str, str] = {}  # those registered by hand, in words that any process understands
        self._plugins: dict[str, Plugin] = {}
        self._making: dict[str, threading.RLock] = {}
        self._failures: dict[str, DeviceUnavailable] = {}
        self._entry_points_read = False
        self._extensions: list[tuple[Any, str]] = []  # and the device, "" for all; only added to
        self._extending = threading.RLock()  # one extension at a time

    def add_extension(self, extension: Any, device: str = "") -> None:
        """Hand an extension to a device's plugin, or (``device`` empty) to all that take it, those made later included.

        Raises `NotSupported` and `DeviceUnavailable` for a device that is named, `ExtensionError` for a custom operator
        that one of the devices has already, and what a plugin raises, once all others have it.
        """
        named = self.plugin(device) if device else None
        with self._extending:
            with self._lock:
                others = [given for given, where in self._extensions if not where or not device or where == device]
                if extension in others:
                    return
                if isinstance(extension, CustomOp):
                    check_new(extension, [op for op in others if isinstance(op, CustomOp)], device or "a device")
                plugins = list(self._plugins.items())
                if named is None:  # a plugin that is made from now on finds it there
                    self._extensions.append((extension, device))
            if named is None:
                failures = []
                for name, plugin in plugins:
                    try:
                        _offer(name, plugin, extension)
                    except HeteroError as error:
                        failures.append(error)
                if failures:  # the others have it
                    raise failures[0]
                return
            _give(device, named, extension)
            with self._lock:
                self._extensions.append((extension, device))

    def custom_ops(self) -> list[tuple[CustomOp, str]]:
        """All custom operators, in the order in which they were added, each with its device ("": all)."""
        with self._lock:
            return [(op, device) for op, device in self._extensions if isinstance(op, CustomOp)]

    def register(self, name: str, target: str | os.PathLike[str] | Factory) -> None:
        """Put a plugin behind ``name``: a factory, ``"module:function"``, or the path of a profile (``.toml``)."""
        if not is_device_name(name):
            raise PropertyError(f"{name!r} cannot be a device name: expected letters, digits and underscores")
        factory: Factory
        spelled: str | None
        if callable(target):
            factory, spelled = target, import_name(target)
        elif not isinstance(target, (str, os.PathLike)):
            raise TypeError(f"expected a factory, 'module:function' or a path, got {type(target).__name__}")
        elif isinstance(target, str) and not target.endswith(".toml"):
            factory, spelled = _lazy(target), target
        else:
            spelled = os.path.abspath(os.fsdecode(target))
            factory = self._profile_factory(spelled)
        with self._lock:
            if name in self._factories:
                raise PropertyError(f"device {name} is registered already")
            self._factories[name] = factory
            self._origins[name] = "registered"
            if spelled is not None:
                self._spelled[name] = spelled

    def registrations(self, name: str) -> list[tuple[str, str]]:
        """What another process has to `register`, as text, to have the device ``name`` and those that it may run over.
        `NotSupported` if its factory cannot be imported there."""
        if self._origins.get(name) == "registered" and name not in self._spelled:
            raise NotSupported(
                f"{name} was registered by a function that another process cannot import; register it as "
                "'module:function', or by a function at the top of a module"
            )
        return list(self._spelled.items())

    def names(self) -> tuple[str, ...]:
        """All device names, available or not: built in, shipped profiles, entry points, registered."""
        with self._lock:
            self._read_entry_points()
            return tuple(self._factories)

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Every name in `names`, with what is behind it or why there is nothing. Makes all plugins; raises nothing."""
        return tuple(self.device(name) for name in self.names())

    def device(self, name: str) -> DeviceInfo:
        """What is behind one of `names`."""
        origin = self._origins[name]
        try:
            plugin = self.plugin(name)
            ids, description = tuple(plugin.device_ids()), str(plugin.get_property("FULL_DEVICE_NAME"))
        except HeteroError as error:
            raise_out_of_memory(error)
            return DeviceInfo(name, (), "", str(error), origin)
        except Exception as error:
            raise_out_of_memory(error)
            return DeviceInfo(name, (), "", f"its plugin failed: {type(error).__name__}: {error}", origin)
        return DeviceInfo(name, ids, description, "", origin)

    def plugin(self, name: str) -> Plugin:
        """The plugin behind a name without id. Raises `DeviceUnavailable`, with the nearest name or the remedy."""
        with self._lock:
            if name in self._plugins:
                return self._plugins[name]
            if name in self._failures:
                raise self._failures[name]
            if name not in self._factories:
                self._read_entry_points()
            if name not in self._factories:
                raise UnknownDevice(_unknown(name, self._factories))
            making = self._making.setdefault(name, threading.RLock())
        with making:  # of this name alone: a plugin that hangs when it is made hurts nobody else
            if name in self._plugins:
                return self._plugins[name]
            if name in self._failures:
                raise self._failures[name]
            try:
                plugin = self._make(name)
                self._publish(name, plugin)
            except DeviceUnavailable as error:
                self._failures[name] = error
                raise
            return plugin

    def _publish(self, name: str, plugin: Plugin) -> None:
        """Let others have the plugin, once it has all extensions."""
        offered = 0
        while True:
            with self._lock:
                extensions = self._extensions[offered:]
                if not extensions:
                    self._plugins[name] = plugin
                    return
            for extension, device in extensions:
                if not device:
                    try:
                        _offer(name, plugin, extension)
                    except HeteroError as error:
                        raise_out_of_memory(error)
                        raise DeviceUnavailable(f"device {name}: {error}") from error
            offered += len(extensions)

    def clear_executors(self) -> None:
        """End the threads of all plugins that no model uses, and from now on those of each model that goes."""
        for plugin in list(self._plugins.values()):
            plugin.executors.clear()

    def _make(self, name: str) -> Plugin:
        origin = self._origins[name]
        package = "" if origin in ("hetero", "profile", "registered") else f" (of the package {origin})"
        try:
            plugin = self._factories[name]()
        except DeviceUnavailable:
            raise
        except (Exception, SystemExit) as error:  # a script that is no module ends the program when it is imported
            raise_out_of_memory(error)
            raise DeviceUnavailable(
                f"device {name}{package}: its plugin failed: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(plugin, Plugin):
            raise DeviceUnavailable(
                f"device {name}{package}: its factory gave {type(plugin).__name__}, expected a hetero.plugin.Plugin"
            )
        if not plugin.registered_names:
            plugin.name = name  # for messages, models and exported files
        if name not in plugin.registered_names:
            plugin.registered_names = (*plugin.registered_names, name)
        plugin.registrations = self.registrations
        plugin.connect(self.plugin)
        return plugin

    def _read_entry_points(self) -> None:
        if self._entry_points_read:
            return
        self._entry_points_read = True
        from importlib import metadata  # slow to import, and most programs name devices that are built in

        for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
            if point.name in self._factories:
                continue  # what ships with hetero or was registered by hand keeps its name
            package = "unknown" if point.dist is None else f"{point.dist.name} {point.dist.version}"
            self._origins[point.name] = package
            self._factories[point.name] = (
                _lazy(point.value) if is_device_name(point.name) else _misnamed(point.name, package)
            )

    def _profile_factory(self, path: str) -> Factory:
        def create() -> Plugin:
            from .devices.profile import ProfilePlugin, load_profile

            return ProfilePlugin(load_profile(path), self.plugin)

        return create


def _unknown(name: str, known: Iterable[str]) -> str:
    """The sentence for a name that nobody registered."""
    listed = f"known here: {', '.join(known)}"
    named_elsewhere = _ELSEWHERE.get(name.upper())
    if named_elsewhere is not None:
        return f"unknown device {name!r}: {named_elsewhere}; {listed}"
    return f"unknown device {name!r}{did_you_mean(name, known)}; {listed}"


def _give(name: str, plugin: Plugin, extension: Any) -> None:
    guarded(name, "add_extension", f"({extension!r})", lambda: plugin.add_extension(extension))


def _offer(name: str, plugin: Plugin, extension: Any) -> None:
    """Hand an extension to one of all devices, which need not take it."""
    if not plugin.extended_by_another:
        with contextlib.suppress(NotSupported):
            _give(name, plugin, extension)


def _lazy(target: str) -> Factory:
    def create() -> Plugin:
        module, _, function = target.partition(":")
        plugin: Plugin = imported(f"{module}:{function or 'create_plugin'}")()
        return plugin

    return create


def _misnamed(name: str, package: str) -> Factory:
    def create() -> Plugin:
        raise DeviceUnavailable(
            f"{name!r} of the package {package} cannot be a device name: expected letters, digits and underscores"
        )

    return create


def _shipped_profiles() -> list[str]:
    folder = os.path.join(os.path.dirname(__file__), "profiles")
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".toml"))
