"""`Core`, the entry point: parses device strings, holds the plugins, and runs a model through the stages."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import types
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeAlias

from .assign.affinity import SupportedNodes
from .assign.assigning import resolve_model
from .assign.memory.limits import MaxMemory, parse_limits
from .assign.pins import check_pins
from .assign.request import Request, with_device_types
from .base.arguments import explain_arguments
from .base.collection import collection_paused
from .base.device_string import CONTROL_FLOW, LIST_DEVICES, DeviceString, parse_device, string_of_list
from .base.formatting import shape_text
from .base.guard import guarded
from .base.notebook import html_table
from .base.other_names import OtherNames
from .base.plain import plain
from .base.properties import PROPERTIES, Property, check_config
from .base.warn import each_once, warn
from .compiling.compile import compile_model
from .compiling.device_list import DeviceListPlugin
from .compiling.requests import resolve_request, with_control_flow
from .errors import (
    DeviceUnavailable,
    ExtensionError,
    HeteroError,
    ModelError,
    NotSupported,
    PropertyError,
    did_you_mean,
    memory_errors,
    raise_out_of_memory,
    shown,
)
from .extension.custom_op import CustomOp
from .extension.table import CustomOps, describe_ops
from .extension.types import with_custom_types
from .model.model import Model
from .model.read import ExternalData, ModelSource, as_model, read_model
from .model.types import Dim, Port, is_symbol
from .plan import Plan, PlanRecord, bind_plan, make_plan
from .plugin.caller import ConfiguredDevice, configure
from .plugin.contract import CompiledModel, Plugin, RemoteContext
from .plugin.remote import DeviceContexts
from .registry import DEVICE_COLUMNS, DeviceInfo, Registry

if TYPE_CHECKING:
    from .artifact.payload import PayloadReader

__all__ = ["Core", "compile", "load", "with_shapes"]

_CALLBACKS = "CACHE_ENCRYPTION_CALLBACKS"
_Shape: TypeAlias = Sequence[int | str | None]
Shapes: TypeAlias = (
    Mapping[str, int | _Shape] | Mapping[Port, int | _Shape] | Mapping[int, _Shape] | Sequence[_Shape | None] | _Shape
)
"""Input, by name, port or position -> shape, or symbol -> size; or a shape for each input; or the shape of the only
input. A dimension that is None, -1 or ``"?"`` stays open, and a symbol names it."""


class Core(OtherNames):
    """Devices and their settings. Thread-safe. An application needs only one.

    The methods follow the stages: `read_model`, `query_model`, `plan`, `compile_model`. `import_model` loads an
    exported model. A *device string* is a name (``CPU``), a name and an id (``ORT.CUDA``), or a list by priority
    (``HETERO:FPGA,CPU``, ``MULTI:CPU,ORT``, ``AUTO:ORT,CPU``). A *configuration* maps properties to values;
    `properties` lists those of a device. An unknown property raises a `PropertyError` that suggests the most similar
    name.
    """

    other_names = types.MappingProxyType(
        {
            **dict.fromkeys(("get_available_devices", "get_available_providers"), "core.available_devices"),
            "compile": "core.compile_model(model, device), or hetero.compile(model, device)",
            "get_versions": "hetero.__version__, or core.get_property(device, 'FULL_DEVICE_NAME')",
            "register_plugins": "core.register_plugin for each device",
            "unload_plugin": "another Core: plugins are unloaded with theirs",
            "read_network": "core.read_model(path)",
            "load_network": "core.compile_model(model, device)",
            "import_network": "core.import_model(path)",
            "query_network": "core.query_model(model, device)",
            **dict.fromkeys(("get_metric", "get_config"), "core.get_property(device, name)"),
            "set_config": "core.set_property(device, values)",
        }
    )

    def __init__(self) -> None:
        self._registry = Registry()
        self._typed: weakref.WeakKeyDictionary[Model, Model | None] = weakref.WeakKeyDictionary()
        self._typed_for: weakref.WeakKeyDictionary[Model, dict[tuple[str, ...], Model]] = weakref.WeakKeyDictionary()
        self._typed_lock = threading.RLock()  # reentrant: shape rules may use this Core
        # Plugins and the registry form a reference cycle. Their threads end with this object, before the cycle is
        # collected.
        weakref.finalize(self, self._registry.clear_executors).atexit = False

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Core cannot be copied or pickled: share it between threads, or create another one")

    def __repr__(self) -> str:
        return f"<Core with {', '.join(self._registry.names())}>"

    def _repr_html_(self) -> str:
        """All devices, for notebooks."""
        infos = self.devices()
        return html_table("Devices", DEVICE_COLUMNS, (info.row() for info in infos), len(infos))

    # -- models -------------------------------------------------------------------------------------------------

    @memory_errors()
    @explain_arguments
    def read_model(
        self,
        source: ModelSource,
        *,
        folder: str | os.PathLike[str] | None = None,
        follow_links: bool = False,
        external_data: ExternalData | None = None,
    ) -> Model:
        """Index an ONNX model: a path (memory-mapped), its bytes, a binary stream, or a ``ModelProto``.

        ``folder``: the folder of external data; defaults to the folder of the path. ``follow_links``: whether to follow
        links to external data, as in caches of downloaded models. The model can then read any file that a link points
        to. ``external_data``: location, as in the model -> bytes or another buffer, for external data that is in
        memory.

        Raises `ModelError` with the name of the file and of the wrong node or tensor.
        """
        return read_model(source, folder=folder, follow_links=follow_links, external_data=external_data)

    @memory_errors()
    @each_once()
    @explain_arguments
    def query_model(
        self,
        model: Model | ModelSource,
        device: str,
        config: Mapping[str, Any] | None = None,
        *,
        shapes: Shapes | None = None,
    ) -> SupportedNodes:
        """The device that supports each node: node key -> device, with the reasons for unsupported nodes in
        ``.reasons``.

        Ignores affinities in the model. A call of a model-local function counts as one node, unless its nodes go to
        several devices; then its nodes are listed (``call/node``). You can edit the result and pass it to
        `Model.with_affinity`. ``shapes``: as in `plan`. Memory limits, and limits on the size and number of subgraphs,
        do not apply; ``.limits`` lists them.
        """
        request = self._request(device, config)
        model = self._with_types(with_shapes(as_model(model), shapes), request.devices)
        answer = resolve_model(model.with_affinity({}), request).supported_nodes()
        return SupportedNodes(answer, answer.reasons, request.rules.limit_texts())

    @memory_errors()
    @each_once()
    @explain_arguments
    def plan(
        self,
        model: Model | ModelSource,
        device: str | PlanRecord,
        config: Mapping[str, Any] | None = None,
        *,
        pins: Mapping[str, str] | None = None,
        max_memory: MaxMemory | None = None,
        shapes: Shapes | None = None,
    ) -> Plan:
        """Assign and partition without compiling.

        ``device``: a device string, or a loaded (and edited) plan, which is checked against the model and bound to it.
        ``pins``: node key, regular expression for whole keys, ``op:`` and an operator type, or ``weight:`` and the name
        of a constant -> device of the list; see the page "Plans" of the documentation. ``max_memory``: device -> limit
        for weights and activations, in bytes or as ``"512MiB"``; see the page "Memory limits". ``shapes``: input ->
        shape, for inputs with dynamic shapes, or symbol in such a shape -> size; or a list with the shape of each
        input. The model is planned and compiled for these shapes only. A dimension that is None, -1 or ``"?"`` stays
        dynamic, as in the model. A symbol names a dynamic dimension.

        Warns if a device has a limit and the sizes of some of its values are unknown: they count as 0 B.
        Raises `UnsupportedModel` with every node that no device supports, `InsufficientMemory` with the missing amount,
        and `PropertyError` for an invalid device string, pin, limit or plan.
        """
        request = self._request(device, _with_limits(config, max_memory), pins)
        model = as_model(model)
        request = with_control_flow(request, model)
        model = self._with_types(with_shapes(model, shapes), request.devices if request.cuts else ())
        if isinstance(device, PlanRecord):
            return bind_plan(model, device, request)
        if isinstance(request.whole.plugin, DeviceListPlugin) and not request.whole.plugin.plans:
            raise PropertyError(
                f"{request.whole.name} decides when it compiles, so it has no plan: plan for "
                "'HETERO:ORT,CPU' with ASSIGNMENT=COST, or measure plans with `hetero tune`"
            )
        return make_plan(model, request)

    @memory_errors()
    @each_once()
    @explain_arguments
    def compile_model(
        self,
        model: Model | ModelSource,
        device: str | PlanRecord = "CPU",
        config: Mapping[str, Any] | None = None,
        *,
        pins: Mapping[str, str] | None = None,
        max_memory: MaxMemory | None = None,
        shapes: Shapes | None = None,
        context: RemoteContext | None = None,
    ) -> CompiledModel:
        """Compile for a device, or according to a plan.

        ``config``: properties for this model, which override those of `set_property`. ``max_memory``, ``shapes``, and
        with ``HETERO:…`` ``pins``, are as in `plan`. Raises `UnsupportedModel`, `InsufficientMemory`, `PropertyError`,
        `DeviceUnavailable`, and the plugin's own errors.
        """
        request = self._request(device, _with_limits(config, max_memory), pins)
        model = as_model(model)
        request = with_control_flow(request, model)
        model = self._with_types(with_shapes(model, shapes), request.devices if request.cuts else ())
        plan = device if isinstance(device, PlanRecord) else None
        compile_anew = functools.partial(compile_model, model, request, plan, context)
        if context is not None or not request.settings.get("CACHE_DIR"):
            return compile_anew()
        return self._cached(model, request, plan, compile_anew)

    @memory_errors()
    @each_once()
    @explain_arguments
    def import_model(
        self,
        source: str | os.PathLike[str] | bytes | BinaryIO,
        device: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> CompiledModel:
        """Load a model that `CompiledModel.export_model` wrote: a path (memory-mapped), its bytes, or a binary stream.

        ``device``: defaults to the device that the model was compiled for. It must be the same device, but may have
        another id, and may omit a list (``HETERO``). ``config``: properties for this model. Properties that affect
        results default to their values at export.
        Raises `Corrupt`, `WrongDevice`, `WrongVersion`, or `DeviceUnavailable` if a plugin is missing.
        """
        from .compiling.importing import check_device, import_model, plugin_for

        with collection_paused():
            if device is None:
                root = _opened(source, check_config(config).get(_CALLBACKS))
                plugin_for(root, self._registry.plugin)
                whole = self._configured(root.device, config)
            else:
                whole = self._configured(device, config)
                root = _opened(source, whole.plugin.setting(_CALLBACKS, whole.config))
                check_device(root, device)
            return import_model(root, whole)

    # -- devices ------------------------------------------------------------------------------------------------

    @property
    def available_devices(self) -> list[str]:
        """The available devices, including ids. HETERO, MULTI, AUTO and CONTROL_FLOW, which run over other devices, are
        not listed."""
        available = []
        for name in self._registry.names():
            if name in LIST_DEVICES or name == CONTROL_FLOW:
                continue
            info = self._registry.device(name)
            if not info.unavailable:
                available += [f"{name}.{id_}" for id_ in info.ids] if len(info.ids) > 1 else [name]
        return available

    @explain_arguments
    def devices(self, *devices: str) -> tuple[DeviceInfo, ...]:
        """All known device names, or those of ``devices``, such as ``CPU``, ``ORT.CUDA`` or ``HETERO:FPGA,CPU`` for the
        devices in the list. If a device is not available, its entry has the reason and the remedy, also if its plugin
        fails. Raises `UnknownDevice` and `PropertyError` for ``devices``."""
        parsed = [parse_device(device) for device in devices]
        listed = [parse_device(entry) for device in parsed for entry in device.devices or (str(device),)]
        return self._registry.devices(tuple(dict.fromkeys(device.name for device in listed)))

    @explain_arguments
    def get_property(self, device: str, name: str) -> Any:
        """A property of a device. Raises `PropertyError`, with the most similar name, if the device does not have
        it."""
        _, plugin, _ = self._resolve(device, None)
        if not isinstance(name, str):
            raise PropertyError(f"expected the name of a property, found {shown(name)}")
        declared = plugin.declared(name)
        subject = f"({name})"
        value = guarded(device, "get_property", subject, lambda: plugin.get_property(name), plugin.timeout_ms({}))
        if not isinstance(value, declared.type):
            kinds = declared.type if isinstance(declared.type, tuple) else (declared.type,)
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise HeteroError(f"{device} returned {value!r} from get_property {subject}, expected {expected}")
        return value

    @explain_arguments
    def properties(self, device: str) -> tuple[tuple[Property, Any], ...]:
        """All properties of a device, each with its value (of a writable one, the default for models compiled later).
        Raises `PropertyError` and `DeviceUnavailable` for ``device``."""
        _, plugin, _ = self._resolve(device, None)
        names = self.get_property(device, "SUPPORTED_PROPERTIES")
        return tuple((plugin.declared(name), self.get_property(device, name)) for name in names)

    @explain_arguments
    def set_property(self, device: str, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Set defaults for models compiled for ``device`` later, from a mapping or as keywords. If a value is invalid,
        no default changes."""
        stated: Any = device
        if isinstance(stated, str) and stated in PROPERTIES:
            stated = {stated: values}
        if isinstance(stated, (Mapping, tuple)):
            raise PropertyError(
                "set_property expects a device first, because devices have different properties: "
                f"core.set_property('CPU', {shown(stated)})"
            )
        parsed = parse_device(device)
        if parsed.id or parsed.devices is not None:
            raise PropertyError(f"set_property expects a plain device name, found {device!r}; use {parsed.name!r}")
        plugin = self._registry.plugin(parsed.name)
        for name, value in more.items():
            if isinstance(value, Mapping) and not plugin.declares(name):
                raise PropertyError(
                    f"{parsed.name} has no property {name!r}; to set several, write core.set_property"
                    f"({shown(device)}, {shown(value)})"
                )
        plugin.set_property({**check_config(values), **check_config(more)})

    @explain_arguments
    def register_plugin(self, name: str, plugin: str | os.PathLike[str] | Callable[[], Plugin]) -> None:
        """Add a device: a factory, ``"module:function"``, or the path of a profile (``.toml``).

        The device is created on its first use, and its errors are raised then. Raises `PropertyError` for a name that
        is invalid or in use, and for a missing profile, which is also a `FileNotFoundError`.
        """
        self._registry.register(name, plugin)

    @explain_arguments
    def create_context(self, device: str, parameters: Mapping[str, Any] | None = None) -> RemoteContext:
        """A context that creates tensors in a device's memory, for `compile_model` and for inputs of requests.

        ``parameters``: the device's parameters; for ``HETERO:…``, device -> its parameters. Raises `NotSupported` if
        the device has no contexts, and `PropertyError` for unknown parameters.
        """
        parsed, plugin, _ = self._resolve(device, None)
        if parameters is not None and not isinstance(parameters, Mapping):
            raise PropertyError(f"expected a mapping as parameters of a context, found {shown(parameters)}")
        if parsed.devices is None:
            return plugin.create_context(parameters or {})
        chosen = parameters if parameters is not None else {name: {} for name in parsed.devices}
        return DeviceContexts({name: self.create_context(name, own) for name, own in chosen.items()})

    def get_default_context(self, device: str) -> RemoteContext:
        """The context of the device's own memory; for ``HETERO:…``, the contexts of all its devices that have one."""
        parsed, plugin, _ = self._resolve(device, None)
        if parsed.devices is None:
            return plugin.get_context_of(parsed.id) if parsed.id else plugin.get_default_context()
        contexts = {}
        for name in parsed.devices:
            with contextlib.suppress(NotSupported, DeviceUnavailable):
                contexts[name] = self.get_default_context(name)
        if not contexts:
            raise NotSupported(f"no device of {device} has remote contexts")
        return DeviceContexts(contexts)

    def add_extension(self, extension: Any, device: str | None = None) -> None:
        """Add an extension, such as a `CustomOp`, to a device, for models that are queried and compiled later.

        ``extension``: one extension, or a list of `CustomOp`, added up to the first error. ``device``: a name, or a
        list (``HETERO:FPGA,CPU``) for each device in it. None: every device that supports the extension, including
        devices registered later. The extension stays until this `Core` is deleted.

        Raises `NotSupported` if the device does not support this kind of extension, and `ExtensionError` if a
        `CustomOp` with the same name and version already exists.
        """
        if isinstance(extension, (list, tuple)) and extension and all(isinstance(op, CustomOp) for op in extension):
            for op in extension:
                self.add_extension(op, device)
            return
        names = [""]
        if device is not None:
            parsed = parse_device(device)
            names = [parse_device(name).name for name in parsed.devices or (parsed.name,)]
        elif not isinstance(extension, CustomOp):
            kind = "a path" if isinstance(extension, (str, os.PathLike)) else type(extension).__name__
            raise NotSupported(f"{kind} is not a hetero.CustomOp: pass the device that supports it as device=...")
        try:
            for name in names:
                self._registry.add_extension(extension, name)
        finally:
            with self._typed_lock:
                self._typed.clear()
                self._typed_for.clear()

    def _with_custom_types(self, model: Model) -> Model:
        """The model with the types that custom operators declare: the same object for the same model."""
        if not self._registry.custom_ops():
            return model
        with self._typed_lock:
            if model not in self._typed:
                ops = CustomOps("this Core")
                for op, _ in self._registry.custom_ops():
                    with contextlib.suppress(ExtensionError):  # the same operator for another device
                        ops.add(op)
                typed = with_custom_types(model, ops.find)
                self._typed[model] = None if typed is model else typed
            return self._typed[model] or model

    def _with_types(self, model: Model, devices: Sequence[ConfiguredDevice]) -> Model:
        """The model with the types that custom operators declare and that the devices find: the same object for the
        same model and devices, because plans are bound to it."""
        model = self._with_custom_types(model)
        names = tuple(device.name for device in devices)
        with self._typed_lock:
            typed = self._typed_for.get(model, {}).get(names)
        if typed is None:
            typed = with_device_types(model, devices)
            if typed is not model:
                with self._typed_lock:
                    typed = self._typed_for.setdefault(model, {}).setdefault(names, typed)
        return typed

    def _cached(
        self, model: Model, request: Request, plan: PlanRecord | None, compile_anew: Callable[[], CompiledModel]
    ) -> CompiledModel:
        """Compile, with the cache in ``CACHE_DIR`` if all required custom operators have a version."""
        needed = [
            (op, where) for op, where in self._registry.custom_ops() if op.domain in model.opsets or model.functions
        ]
        for op, _ in needed:
            if not op.version:
                warn(
                    f"CACHE_DIR: cannot store {model.name!r}, because the custom operator {op.name} has no version: "
                    f"set CustomOp(version=...)"
                )
                return compile_anew()
        from .compiling.cache import cached

        custom_ops = [[where, describe_ops([op])] for op, where in needed]
        return cached(model, request, [None if plan is None else plan.settings(), custom_ops], compile_anew)

    def _resolve(self, device: str, config: Mapping[str, Any] | None) -> tuple[DeviceString, Plugin, dict[str, Any]]:
        """The parsed name, its plugin, and the configuration including the device list or id."""
        parsed = parse_device(device)
        plugin = self._registry.plugin(parsed.name)
        full = dict(check_config(config))
        if parsed.devices is not None:
            if not plugin.declares("MULTI_DEVICE_PRIORITIES"):
                raise PropertyError(f"{parsed.name} does not accept a device list, found {device!r}")
            full["MULTI_DEVICE_PRIORITIES"] = ",".join(parsed.devices)
        if parsed.id:
            plugin.check_device_id(parsed.id)
            full["DEVICE_ID"] = parsed.id
        return parsed, plugin, full

    def _configured(self, device: str, config: Mapping[str, Any] | None) -> ConfiguredDevice:
        parsed, plugin, full = self._resolve(device, config)
        return configure(plugin, full, str(parsed))

    def _request(
        self, device: str | PlanRecord, config: Mapping[str, Any] | None, pins: Mapping[str, str] | None = None
    ) -> Request:
        """Devices, settings, pins and limits, resolved once for all stages."""
        if isinstance(device, PlanRecord):
            if pins:
                raise PropertyError("a plan already contains its pins; pass pins to Core.plan(model, device, pins=...)")
            pins = device.pins  # those of nodes in nested graphs apply when these are compiled
            device = string_of_list(device.devices)
        if isinstance(device, RemoteContext):
            raise PropertyError("pass a context with its device: core.compile_model(model, 'CPU', context=context)")
        pins = check_pins(pins)
        parsed, plugin, full = self._resolve(device, config)
        return resolve_request(parsed, plugin, full, pins)


def with_shapes(model: Model, shapes: Shapes | None) -> Model:
    """The model with the given shapes of its inputs. Raises `PropertyError` if ``shapes`` is not of the form that
    `Shapes` describes, or does not fit the inputs."""
    if shapes is None:
        return model
    given_for = _shapes_by_name(model, shapes)
    ports = {port.name: port for port in model.inputs}
    typed, sizes, stated = model, dict[str, tuple[int, str]](), dict[str, tuple[Any, ...]]()
    symbols = {dim for port in model.inputs for dim in port.shape or () if isinstance(dim, str)}

    def is_size(name: Any) -> bool:
        return name in symbols and (name not in ports or not isinstance(given_for[name], Iterable))

    for name in filter(is_size, given_for):
        given = given_for[name]
        if type(given) is bool or not isinstance(given, Integral) or not 0 <= int(given) < 2**63:
            raise PropertyError(f"shapes: expected a size of 0 or more for {name!r}, found {shown(given)}")
        sizes[name] = (int(given), name)
    for name, shape in given_for.items():
        if is_size(name):
            continue
        if name not in ports:
            nearest = did_you_mean(name, [*ports, *symbols]) if isinstance(name, str) else ""
            known_symbols = f"; its symbols: {', '.join(sorted(symbols))}" if symbols else ""
            raise PropertyError(
                f"shapes: model {model.name!r} has no input {shown(name)}{nearest}; its inputs: {', '.join(ports)}"
                f"{known_symbols}"
            )
        if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
            raise PropertyError(
                f"shapes: expected a sequence of sizes such as (1, 3, 224, 224) for {name!r}, found {shown(shape)}"
            )
        stated[name] = dims = tuple(_stated_dim(size, name, symbols) for size in shape)
        for symbol, size in zip(ports[name].shape or (), dims, strict=False):
            if isinstance(symbol, str) and isinstance(size, Integral):
                first, owner = sizes.setdefault(symbol, (int(size), name))
                if first != size:
                    raise PropertyError(
                        f"shapes: {symbol} = {size} in input {name!r}, and {symbol} = {first} in {owner!r}"
                    )
    for name, dims in stated.items():
        known = ports[name].shape
        if known is not None and len(known) == len(dims):
            _check_open_axes(name, known, dims, sizes)
        try:
            typed = typed.with_types({name: (None, dims)})
        except ModelError as error:
            raise_out_of_memory(error)
            is_tensor = ports[name].is_tensor
            reason = f"whose shape is {shape_text(known, 'unknown')}" if is_tensor else "which is not a tensor"
            if known is not None and len(known) == len(dims):
                fixed = (i for i, dim in enumerate(known) if isinstance(dim, int) and dim != dims[i])
                reason += "".join(f"; the model fixes axis {axis} to {known[axis]}" for axis in [*fixed][:1])
            if any(isinstance(dim, Integral) and not 0 <= int(dim) < 2**63 for dim in dims):
                reason += "; sizes are from 0 to 2^63 - 1"
            raise PropertyError(f"shapes: {shown(list(dims))} does not fit input {name!r}, {reason}") from error
    # A symbol has the same size in every input.
    more = {
        port.name: (None, tuple(sizes[dim][0] if isinstance(dim, str) and dim in sizes else dim for dim in port.shape))
        for port in typed.inputs
        if port.shape is not None and not sizes.keys().isdisjoint(port.shape)
    }
    return typed.with_types(more) if more else typed


def _stated_dim(size: Any, name: str, symbols: Container[str]) -> Any:
    """A dimension of ``shapes``: None for ``?`` and -1. Raises `PropertyError` for a string that cannot be a symbol."""
    size = plain(size)
    if (isinstance(size, str) and size == "?") or (type(size) is int and size == -1):
        return None
    if isinstance(size, str) and not is_symbol(size, symbols):
        raise PropertyError(
            f"shapes: expected a size, None for an open size, or a symbol such as 'batch' in the shape of {name!r}, "
            f"found {shown(size)}"
        )
    return size


def _check_open_axes(name: str, known: Sequence[Dim], dims: Sequence[Any], sizes: Mapping[str, Any]) -> None:
    """Raises `PropertyError` if ``dims`` leaves open or renames an axis whose size the model or ``sizes`` gives."""
    for axis, (have, dim) in enumerate(zip(known, dims, strict=True)):
        if isinstance(have, int) and (dim is None or isinstance(dim, str)):
            raise PropertyError(
                f"shapes: axis {axis} of input {name!r} is {have} in the model, so it cannot be open, found "
                f"{shown(list(dims))}; give {have}, or export the model with a dynamic axis"
            )
        if isinstance(have, str) and isinstance(dim, str) and dim != have and have in sizes:
            raise PropertyError(
                f"shapes: axis {axis} of input {name!r} is {have} = {sizes[have][0]}, found {shown(list(dims))}"
            )


def _shapes_by_name(model: Model, shapes: Any) -> dict[Any, Any]:
    """``shapes`` with the names of inputs and symbols as keys."""
    names = [port.name for port in model.inputs]
    if not isinstance(shapes, Mapping):
        if isinstance(shapes, (str, bytes)) or not isinstance(shapes, Iterable):
            raise PropertyError(f"shapes: expected a mapping such as {{'x': (1, 3, 224, 224)}}, found {shown(shapes)}")
        listed = list(shapes)
        if len(names) == 1 and any(isinstance(entry, (str, Integral)) for entry in listed):
            listed = [listed]
        if len(listed) != len(names):
            raise PropertyError(
                f"shapes: expected a shape for each of the inputs {', '.join(names)}, found {shown(shapes)}"
            )
        return {name: shape for name, shape in zip(names, listed, strict=True) if shape is not None}
    given_for: dict[Any, Any] = {}
    for key, shape in shapes.items():
        name = key.name if isinstance(key, Port) else plain(key)
        if type(name) is int and 0 <= name < len(names):
            name = names[name]
        if name in given_for:
            raise PropertyError(f"shapes: two keys name the input {shown(name)}, found {shown(shapes)}")
        given_for[name] = shape
    return given_for


def _opened(source: str | os.PathLike[str] | bytes | BinaryIO, callbacks: Any) -> PayloadReader:
    """An exported model, decrypted by ``CACHE_ENCRYPTION_CALLBACKS`` if they are given."""
    from .artifact.exporting import callbacks_of
    from .artifact.payload import PayloadReader
    from .artifact.reader import open_artifact

    return PayloadReader(open_artifact(source, callbacks_of(callbacks)[1]))


def _with_limits(config: Mapping[str, Any] | None, max_memory: MaxMemory | None) -> Mapping[str, Any]:
    """The configuration with ``max_memory``, which overrides its ``MAX_MEMORY``."""
    checked = check_config(config)
    return checked if max_memory is None else {**checked, "MAX_MEMORY": parse_limits(max_memory)}


@explain_arguments
def compile(
    model: Model | ModelSource,
    device: str | PlanRecord = "CPU",
    config: Mapping[str, Any] | None = None,
    *,
    pins: Mapping[str, str] | None = None,
    max_memory: MaxMemory | None = None,
    shapes: Shapes | None = None,
) -> CompiledModel:
    """Read and compile in one line, on a `Core` shared by all such calls.

    ``model``: a `Model`, or what `Core.read_model` accepts: a path, bytes, a ``ModelProto``. ``device``: a device
    string or a plan. ``config``: properties for this model. ``pins``, ``max_memory`` and ``shapes`` are as in
    `Core.plan`. Raises as `Core.read_model` and `Core.compile_model` do.
    """
    return _shared_core().compile_model(model, device, config, pins=pins, max_memory=max_memory, shapes=shapes)


@explain_arguments
def load(
    source: str | os.PathLike[str] | bytes | BinaryIO,
    device: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> CompiledModel:
    """Load an exported model in one line, on the `Core` of `compile`; on the device it was compiled for, or another id
    of that. See `Core.import_model`."""
    return _shared_core().import_model(source, device, config)


@functools.cache
def _shared_core() -> Core:
    return Core()
