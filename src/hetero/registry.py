"""Maps device names to plugins.

A plugin is created on first use of its name, once per registry. If this fails, the registry remembers the reason; other
devices are not affected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .base.device_string import CONTROL_FLOW, LIST_DEVICES, is_device_name, name_of_provider
from .base.formatting import byte_size
from .base.guard import guarded
from .base.importable import import_name, imported
from .base.machine import DeviceMemory, usable_processors
from .base.notebook import html_table
from .base.plain import plain
from .errors import (
    DeviceUnavailable,
    HeteroError,
    NotSupported,
    PropertyError,
    UnknownDevice,
    did_you_mean,
    file_error,
    raise_out_of_memory,
    shown,
)
from .extension.custom_op import CustomOp
from .extension.table import check_new
from .plugin.contract import Plugin
from .plugin.speed import CostSource, DeviceSpeed

__all__ = ["DEVICE_COLUMNS", "ENTRY_POINT_GROUP", "DeviceInfo", "Registry"]

ENTRY_POINT_GROUP = "hetero.plugins"
DEVICE_COLUMNS = ("device (ids)", "memory", "threads", "speed", "description")
"""Headings for `DeviceInfo.row`."""

# Loaded by name on first use, so that `import hetero` stays fast.
_BUILT_IN = {
    "CPU": "hetero.devices.cpu:create_plugin",
    "TEMPLATE": "hetero.devices.template:create_plugin",
    "ORT": "hetero.devices.ort:create_plugin",
    "OPENVINO": "hetero.devices.openvino:create_plugin",
    "OPENCL": "hetero.devices.opencl:create_plugin",
    "RAY": "hetero.devices.ray:create_plugin",
    "HETERO": "hetero.devices.hetero:create_plugin",
    "MULTI": "hetero.devices.multi:create_plugin",
    "AUTO": "hetero.devices.auto:create_plugin",
    "CONTROL_FLOW": "hetero.devices.control_flow:create_plugin",
}
# Device names in OpenVINO, onnxruntime and PyTorch, and their equivalents in hetero.
_ELSEWHERE = {
    "GPU": "an Intel GPU is OPENVINO.GPU (pip install 'hetero[openvino]'), an NVIDIA GPU is ORT.CUDA (pip install "
    "onnxruntime-gpu)",
    "NPU": "an Intel NPU is OPENVINO.NPU (pip install 'hetero[openvino]')",
    "CUDA": "an NVIDIA GPU is ORT.CUDA (pip install onnxruntime-gpu)",
    "TENSORRT": "onnxruntime's TensorRT is ORT.TENSORRT (pip install onnxruntime-gpu)",
    "ROCM": "an AMD GPU is ORT.ROCM (pip install onnxruntime-rocm)",
    "BATCH": "hetero does not merge requests into batches; concatenate the inputs",
    "ONNXRUNTIME": "onnxruntime is ORT (pip install 'hetero[onnxruntime]')",
}
Factory = Callable[[], Plugin]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device name, and whether the device is available.

    ``ids``: the valid ids after the dot. ``description``: its ``FULL_DEVICE_NAME``. ``unavailable``: the reason why it
    is not available, and the remedy; empty if it is available. ``origin``: ``hetero``, ``profile``, ``registered``, or
    the name and version of its package. ``memory``: of the device without id, when this object was made. ``threads``:
    how many processors it computes on. ``speed``: what plans by cost assume; its ``source`` says whether a profile
    states it. All three are None if unknown.
    """

    name: str
    ids: tuple[str, ...]
    description: str
    unavailable: str
    origin: str
    memory: DeviceMemory | None = None
    threads: int | None = None
    speed: DeviceSpeed | None = None

    def row(self) -> tuple[str | None, ...]:
        """Texts for a table with `DEVICE_COLUMNS`."""
        ids = f" ({', '.join(self.ids)})" if self.ids else ""
        memory = None
        if self.memory is not None:
            free = "" if self.memory.free is None else f", {byte_size(self.memory.free)} free"
            memory = byte_size(self.memory.total) + free
        threads = None if self.threads is None else str(self.threads)
        speed = self.speed.describe() if self.speed is not None and self.speed.source is CostSource.PROFILE else None
        text = f"not available: {self.unavailable}" if self.unavailable else self.description
        return self.name + ids, memory, threads, speed, text

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_table(self.name, DEVICE_COLUMNS, [self.row()], 1)


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
        self._spelled: dict[str, str] = {}  # targets of `register`, as text that any process can resolve
        self._plugins: dict[str, Plugin] = {}
        self._making: dict[str, threading.RLock] = {}
        self._failures: dict[str, DeviceUnavailable] = {}
        self._entry_points_read = False
        self._extensions: list[tuple[Any, str]] = []  # with the device, "" for all; append-only
        self._extending = threading.RLock()  # one extension at a time

    def add_extension(self, extension: Any, device: str = "") -> None:
        """Add an extension to a device's plugin, or, if ``device`` is empty, to all plugins that support it, including
        plugins created later.

        Raises `NotSupported` and `DeviceUnavailable` for a named device, `ExtensionError` if a device already has this
        custom operator, and the errors of a plugin, after all other plugins have the extension.
        """
        named = self.plugin(device) if device else None
        with self._extending:
            with self._lock:
                others = [other for other, where in self._extensions if not where or not device or where == device]
                if extension in others:
                    return
                if isinstance(extension, CustomOp):
                    check_new(extension, [op for op in others if isinstance(op, CustomOp)], device or "a device")
                plugins = list(self._plugins.items())
                if named is None:  # plugins created later read this list
                    self._extensions.append((extension, device))
            if named is None:
                failures = []
                for name, plugin in plugins:
                    try:
                        _offer(name, plugin, extension)
                    except HeteroError as error:
                        failures.append(error)
                if failures:  # the other plugins have the extension
                    raise failures[0]
                return
            _give(device, named, extension)
            with self._lock:
                self._extensions.append((extension, device))

    def custom_ops(self) -> list[tuple[CustomOp, str]]:
        """All custom operators in the order of their addition, each with its device ("" for all)."""
        with self._lock:
            return [(op, device) for op, device in self._extensions if isinstance(op, CustomOp)]

    def register(self, name: str, target: str | os.PathLike[str] | Factory, must_exist: bool = True) -> None:
        """Register a plugin as ``name``: a factory, ``"module:function"``, or the path of a profile (``.toml``).
        ``must_exist``: False for `registrations` of another process, which this host may not need."""
        name = plain(name)
        if not isinstance(name, str) or not is_device_name(name):
            raise PropertyError(f"{shown(name)} cannot be a device name: expected letters, digits and underscores")
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
            if must_exist and not os.path.exists(spelled):
                missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), spelled)
                raise file_error(PropertyError, f"profile {os.fsdecode(target)}: {missing.strerror}", missing)
            factory = self._profile_factory(spelled)
        with self._lock:
            if name in self._factories:
                raise PropertyError(f"device {name} is already registered")
            self._factories[name] = factory
            self._origins[name] = "registered"
            if spelled is not None:
                self._spelled[name] = spelled

    def registrations(self, name: str) -> list[tuple[str, str]]:
        """The names and targets that another process must `register` to use the device ``name`` and the devices it may
        run over. Raises `NotSupported` if another process cannot import its factory."""
        if self._origins.get(name) == "registered" and name not in self._spelled:
            raise NotSupported(
                f"{name} was registered by a function that another process cannot import; register it as "
                "'module:function', or by a function at the top of a module"
            )
        return list(self._spelled.items())

    def names(self) -> tuple[str, ...]:
        """All device names, available or not: built-in devices, included profiles, entry points, registered devices."""
        with self._lock:
            self._read_entry_points()
            return tuple(self._factories)

    def knows(self, name: str) -> bool:
        """Whether ``name`` is one of `names`. Faster, because it reads the entry points only for other names."""
        with self._lock:
            if name not in self._factories:
                self._read_entry_points()
            return name in self._factories

    def devices(self, names: Sequence[str] = ()) -> tuple[DeviceInfo, ...]:
        """Information about the devices in ``names``, or about all, for which it creates all plugins. Raises only
        `UnknownDevice`."""
        for name in names:
            if not self.knows(name):
                raise UnknownDevice(_unknown(name, self.names()))
        return tuple(self.device(name) for name in names or self.names())

    def device(self, name: str) -> DeviceInfo:
        """Information about one of `names`."""
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
        info = DeviceInfo(name, ids, description, "", origin)
        if name in LIST_DEVICES or name == CONTROL_FLOW:
            return info
        with contextlib.suppress(Exception):  # a device whose author did not expect these questions is still available
            info = dataclasses.replace(info, threads=_threads_of(plugin))
            info = dataclasses.replace(info, memory=plugin.device_memory(name))
            info = dataclasses.replace(info, speed=plugin.speed(name))
        return info

    def plugin(self, name: str) -> Plugin:
        """The plugin for a name without id. Raises `DeviceUnavailable`, with the nearest name or the remedy."""
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
        with making:  # one lock per name: a plugin whose creation hangs does not block other devices
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
        """Make the plugin available to other threads once it has all extensions."""
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
        """End the idle threads of all plugins, and from now on the threads of each model that is garbage collected."""
        for plugin in list(self._plugins.values()):
            plugin.executors.clear()

    def _make(self, name: str) -> Plugin:
        origin = self._origins[name]
        package = "" if origin in ("hetero", "profile", "registered") else f" (of the package {origin})"
        try:
            plugin = self._factories[name]()
        except DeviceUnavailable:
            raise
        except (Exception, SystemExit) as error:  # importing a script may call sys.exit
            raise_out_of_memory(error)
            raise DeviceUnavailable(
                f"device {name}{package}: its plugin failed: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(plugin, Plugin):
            raise DeviceUnavailable(
                f"device {name}{package}: its factory returned {type(plugin).__name__}, expected a hetero.plugin.Plugin"
            )
        if not plugin.registered_names:
            plugin.name = name  # used in messages, models and exported files
        if name not in plugin.registered_names:
            plugin.registered_names = (*plugin.registered_names, name)
        plugin.registrations = self.registrations
        plugin.device_names = self.names
        plugin.knows_device = self.knows
        plugin.connect(self.plugin)
        return plugin

    def _read_entry_points(self) -> None:
        if self._entry_points_read:
            return
        self._entry_points_read = True
        from importlib import metadata  # slow to import, and most programs use only built-in devices

        for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
            if point.name in self._factories:
                continue  # built-in and registered devices keep their names
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


def _threads_of(plugin: Plugin) -> int | None:
    """The processors that a device computes on, if it has the property for it and simulates no other hardware."""
    name = "INFERENCE_NUM_THREADS"
    if not plugin.declares(name) or plugin.is_simulated:
        return None
    return int(plugin.setting(name, {})) or usable_processors()


def _unknown(name: str, known: Iterable[str]) -> str:
    """The error message for an unknown device name."""
    listed = f"known devices: {', '.join(known)}"
    named_elsewhere = _ELSEWHERE.get(name.upper())
    if named_elsewhere is None and (device := name_of_provider(name)):
        named_elsewhere = f"onnxruntime's {name} is {device}"
    if named_elsewhere is not None:
        return f"unknown device {name!r}: {named_elsewhere}; {listed}"
    return f"unknown device {name!r}{did_you_mean(name, known)}; {listed}"


def _give(name: str, plugin: Plugin, extension: Any) -> None:
    guarded(name, "add_extension", f"({extension!r})", lambda: plugin.add_extension(extension))


def _offer(name: str, plugin: Plugin, extension: Any) -> None:
    """Add an extension to a plugin if the plugin supports it."""
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
