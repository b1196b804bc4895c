"""The table of all properties, with their types and documentation.

A plugin declares which properties it has (`Plugin.properties`), and may change their defaults. The value from the
configuration of `compile_model` takes precedence over `set_property`, which takes precedence over the default. A
property that is not declared raises an error with the most similar name.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..errors import PropertyError, did_you_mean, shown
from .files import path_text
from .log import LEVELS
from .other_names import of_properties
from .plain import plain, stated_value

__all__ = [
    "PROPERTIES",
    "STREAM_PROPERTIES",
    "Property",
    "PropertyTable",
    "check_config",
    "streams_and_threads",
    "truth_value",
    "up_to",
    "without",
]

# More than the processors of the largest machines, and few enough for one process to start.
MAX_THREADS: Final = 4096
# The largest int of C, in which timeouts in milliseconds are passed to the system (24 days).
MOST: Final = 2**31 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """One key: its type, its default, whether it can be set, and which values of that type it accepts.

    ``accepts``: returns False for a value outside the range that ``doc`` states. ``problem``: returns a description of
    the error in a value, or None. ``convert``: returns the value to keep for an accepted type.
    """

    name: str
    type: type | tuple[type, ...]
    default: Any = None
    writable: bool = True
    choices: tuple[Any, ...] | None = None
    accepts: Callable[[Any], bool] | None = None
    doc: str = ""
    problem: Callable[[Any], str | None] | None = None
    convert: Callable[[Any], Any] | None = None

    def check(self, value: Any) -> Any:
        """Returns the checked value. Raises `PropertyError`. Accepts OpenVINO's strings for booleans and whole numbers,
        such as ``YES``, ``on`` and ``4``, 0 and 1 for booleans, NumPy scalars, a path object as a path, and values that
        `stated_value` finds in objects of other types."""
        value = plain(value)
        if not isinstance(value, self.type):
            value = plain(stated_value(value))
        if self.type is str and isinstance(value, (set, frozenset)) and len(value) < 2:
            value = plain(stated_value(next(iter(value), "")))  # OpenVINO's MODEL_DISTRIBUTION_POLICY is a set
        if self.problem is _path_problem and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if self.type is int and isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
            value = int(value)
        if self.type is bool and isinstance(value, str):
            value = truth_value(value, value)
        if self.type is bool and type(value) is int and value in (0, 1):
            value = bool(value)
        if isinstance(value, bool) and self.type is int:
            raise PropertyError(f"property {self.name}: expected int, found {shown(value)}")
        if not isinstance(value, self.type):
            kinds = self.type if isinstance(self.type, tuple) else (self.type,)
            expected = " or ".join("a mapping" if kind is Mapping else kind.__name__ for kind in kinds)
            raise PropertyError(f"property {self.name}: expected {expected}, found {shown(value)}")
        if self.convert is not None:
            value = self.convert(value)
        if self.choices is not None and value not in self.choices:
            listed = ", ".join(str(choice) or repr(choice) for choice in self.choices)
            hint = did_you_mean(value, map(str, self.choices))
            if value == "CUMULATIVE_THROUGHPUT":  # OpenVINO's name for what MULTI does
                hint = ": to use all devices of a list, compile for 'MULTI:A,B'"
            raise PropertyError(f"property {self.name}: expected one of {listed}, found {shown(value)}{hint}")
        if self.accepts is not None and not self.accepts(value):
            raise PropertyError(f"property {self.name}: found {shown(value)}, expected {self.doc}")
        problem = None if self.problem is None else self.problem(value)
        if problem is not None:
            raise PropertyError(f"property {self.name}: {problem}")
        return value


_TRUE, _FALSE = ("YES", "TRUE", "ON", "1"), ("NO", "FALSE", "OFF", "0")


def truth_value(text: str, otherwise: Any) -> Any:
    """The truth value that a text means, in any case of letters; ``otherwise`` if it means none."""
    word = text.upper()
    return True if word in _TRUE else False if word in _FALSE else otherwise


def up_to(maximum: int) -> Callable[[int], bool]:
    """A predicate: whether a number is in 0 .. ``maximum``."""
    return lambda value: 0 <= value <= maximum


def _path_problem(value: object) -> str | None:
    """The reason why a text cannot be used as a path, or None. Values of other types are not checked."""
    if isinstance(value, str):
        try:
            path_text(value)
        except OSError as error:
            return f"expected a path, found {shown(value)}: {error.strerror}"
    return None


def _device_properties_problem(value: Mapping[Any, Any]) -> str | None:
    """The error in the entry of a device, or None. Raises `PropertyError` if a property name is not a string."""
    for device, properties in value.items():
        if not isinstance(device, str) or not isinstance(properties, Mapping):
            return (
                "expected a mapping of properties for each device, such as {'CPU': {'NUM_STREAMS': 2}}, "
                f"found {shown(device)}: {shown(properties)}"
            )
        check_config(properties, f"DEVICE_PROPERTIES of {device}")
    return None


def check_config(config: object, what: str = "the configuration") -> Mapping[str, Any]:
    """A caller's configuration; empty for None. It maps names to values, or is a pair (name, value) or a list of pairs,
    as OpenVINO's functions return them. Raises `PropertyError` for anything else, and for a name in two pairs.

    Only the value of DEVICE_PROPERTIES is checked here. The device that declares a property checks its value.
    """
    if config is None:
        return {}
    pairs: list[Any] = config if isinstance(config, list) else [config]
    if all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        config = dict(pairs)
        if len(config) < len(pairs):
            raise PropertyError(f"{what}: a property has two values, found {shown(pairs)}")
    if not isinstance(config, Mapping):
        raise PropertyError(
            f"{what}: expected a mapping from properties to values, such as {{'NUM_STREAMS': 2}}, found {shown(config)}"
        )
    for name in config:
        if not isinstance(name, str):
            raise PropertyError(f"{what}: expected the name of a property, found {shown(name)}")
    if "DEVICE_PROPERTIES" in config:  # HETERO and MULTI read it before they check their configuration
        checked = PROPERTIES["DEVICE_PROPERTIES"].check(config["DEVICE_PROPERTIES"])
        return {**config, "DEVICE_PROPERTIES": checked}
    return config


_NONE = type(None)


def _ro(name: str, type_: type | tuple[type, ...], default: Any, doc: str) -> Property:
    return Property(name, type_, default, writable=False, doc=doc)


_TABLE: Final = (
    _ro("SUPPORTED_PROPERTIES", tuple, (), "names of all properties of the device"),
    _ro("AVAILABLE_DEVICES", tuple, (), "device ids available on this machine"),
    _ro("FULL_DEVICE_NAME", str, "", "name for display"),
    _ro("DEVICE_ARCHITECTURE", str, "", "hardware or library that compiled models depend on"),
    _ro("DEVICE_TYPE", str, "integrated", "integrated, discrete or simulated"),
    _ro("OPTIMIZATION_CAPABILITIES", tuple, (), "element types and features with optimized kernels"),
    _ro("RANGE_FOR_ASYNC_INFER_REQUESTS", tuple, (1, 1, 1), "(minimum, maximum, step) of requests in flight"),
    _ro("RANGE_FOR_STREAMS", tuple, (1, 1), "(minimum, maximum) of NUM_STREAMS"),
    _ro("EXECUTION_DEVICES", tuple, (), "devices on which a compiled model runs"),
    _ro("OPTIMAL_NUMBER_OF_INFER_REQUESTS", int, 1, "requests in flight that keep the device busy"),
    _ro("NETWORK_NAME", str, "", "name of the compiled graph"),
    _ro("LOADED_FROM_CACHE", bool, False, "whether the compiled model came from CACHE_DIR"),
    _ro("HETERO_NUMBER_OF_SUBMODELS", int, 1, "number of submodels"),
    Property("DEVICE_ID", str, "", doc="selects one of several devices with the same name"),
    Property("PERF_COUNT", bool, False, doc="measure the time of each node in each request"),
    Property(
        "OUTPUTS_ON_DEVICE",
        (bool, tuple),
        False,
        accepts=lambda value: isinstance(value, bool) or all(isinstance(name, str) for name in value),
        doc="True, or a tuple of output names: these outputs stay in the memory of their device, as RemoteTensor",
    ),
    Property(
        "PERFORMANCE_HINT",
        str,
        "LATENCY",
        choices=("LATENCY", "THROUGHPUT"),
        doc="the goal for choosing NUM_STREAMS, and for HETERO, whether subgraphs of one inference may overlap",
    ),
    Property("PERFORMANCE_HINT_NUM_REQUESTS", int, 0, accepts=up_to(MOST), doc=f"0 to {MOST}; 0 = as many as possible"),
    Property(
        "INFERENCE_PRECISION_HINT",
        str,
        "f32",
        choices=("f32", "bf16", "f16"),
        doc="the type in which float32 weights are stored; computation stays float32",
    ),
    Property(
        "EXECUTION_MODE_HINT",
        str,
        "ACCURACY",
        choices=("ACCURACY", "PERFORMANCE"),
        doc="PERFORMANCE: the device chooses INFERENCE_PRECISION_HINT if it is not set",
    ),
    Property("NUM_STREAMS", int, 0, accepts=up_to(MAX_THREADS), doc=f"0 to {MAX_THREADS}; 0 = by PERFORMANCE_HINT"),
    Property("INFERENCE_NUM_THREADS", int, 0, accepts=up_to(MAX_THREADS), doc=f"0 to {MAX_THREADS}; 0 = all"),
    Property(
        "MODEL_PRIORITY",
        str,
        "MEDIUM",
        choices=("LOW", "MEDIUM", "HIGH"),
        doc="priority of asynchronous requests among models with EXCLUSIVE_ASYNC_REQUESTS",
    ),
    Property("LOG_LEVEL", str, "NO", choices=LEVELS, doc="which messages the device logs; see hetero.base.log"),
    Property(
        "PLUGIN_TIMEOUT_MS",
        int,
        0,
        accepts=up_to(MOST),
        doc=f"0 to {MOST}: time limit of a query, compilation, import or export; 0 = no limit",
    ),
    Property(
        "ISOLATION",
        str,
        "NONE",
        choices=("NONE", "PROCESS"),
        doc="PROCESS: each compiled model of the device runs in its own worker process",
    ),
    Property(
        "WORKER_TIMEOUT_MS",
        int,
        0,
        accepts=up_to(MOST),
        doc=f"0 to {MOST}: a worker that takes longer for an inference is killed and replaced; 0 = no limit",
    ),
    Property(
        "WORKER_RETRIES",
        int,
        0,
        accepts=up_to(MOST),
        doc=f"0 to {MOST}: number of retries if a worker exits",
    ),
    Property(
        "EXCLUSIVE_ASYNC_REQUESTS",
        bool,
        False,
        doc="asynchronous requests of such models run one at a time",
    ),
    Property("DISABLE_TRANSFORMATIONS", bool, False, doc="compile the nodes without transformations"),
    Property(
        "MULTI_DEVICE_PRIORITIES",
        str,
        "",
        doc="device list for HETERO and MULTI if the device string has none",
        convert=lambda listed: listed.removesuffix(","),  # with which OpenVINO's `device.priorities` ends
    ),
    Property(
        "DEVICE_PROPERTIES",
        Mapping,
        {},
        doc="{device: {property: value}}, passed only to that device",
        problem=_device_properties_problem,
    ),
    Property(
        "CACHE_DIR",
        str,
        "",
        doc="folder that caches compiled models",
        problem=_path_problem,
    ),
    Property(
        "CACHE_ENCRYPTION_CALLBACKS",
        (tuple, _NONE),
        None,
        accepts=lambda value: value is None or (len(value) == 2 and all(map(callable, value))),
        doc="two functions from bytes to bytes, (encrypt, decrypt), for exported and cached files",
    ),
    Property(
        "CACHE_MODE",
        str,
        "OPTIMIZE_SIZE",
        choices=("OPTIMIZE_SIZE", "OPTIMIZE_SPEED"),
        doc="OPTIMIZE_SPEED: exported and cached files also hold packed weights",
    ),
    Property("ENABLE_CPU_PINNING", bool, False, doc="each thread runs on its own processor"),
    Property(
        "MODEL_DISTRIBUTION_POLICY",
        str,
        "",
        choices=("", "PIPELINE_PARALLEL"),
        doc="PIPELINE_PARALLEL: each device of the list runs one stage of the model, for many requests in flight",
    ),
    Property(
        "HETERO_DUMP_GRAPH_DOT",
        (bool, str),
        False,
        doc="write both DOT files: True for the current folder, or a folder",
        problem=_path_problem,
    ),
    Property("STRICT", bool, False, doc="raise errors instead of warnings"),
)
PROPERTIES: Final[Mapping[str, Property]] = {entry.name: entry for entry in _TABLE}
"""Name -> property, for all properties of hetero. Plugins may declare more."""

_OF_MODELS: Final = {"EXECUTION_DEVICES", "NETWORK_NAME", "LOADED_FROM_CACHE", "HETERO_NUMBER_OF_SUBMODELS"}
_OF_DEVICES: Final = {"AVAILABLE_DEVICES", "FULL_DEVICE_NAME", "DEVICE_ARCHITECTURE", "DEVICE_TYPE"} | {
    *("OPTIMIZATION_CAPABILITIES", "RANGE_FOR_ASYNC_INFER_REQUESTS", "RANGE_FOR_STREAMS"),
}

# The properties of devices that run several asynchronous requests in parallel.
STREAM_PROPERTIES: Final = (
    "NUM_STREAMS",
    "PERFORMANCE_HINT",
    "PERFORMANCE_HINT_NUM_REQUESTS",
    "EXCLUSIVE_ASYNC_REQUESTS",
    "MODEL_PRIORITY",
    "RANGE_FOR_STREAMS",
    "RANGE_FOR_ASYNC_INFER_REQUESTS",
    "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
)


def streams_and_threads(settings: Mapping[str, Any], processors: int) -> tuple[int, int]:
    """The number of concurrent requests, and the number of threads for each.

    ``settings``: contains ``NUM_STREAMS``, ``PERFORMANCE_HINT``, ``PERFORMANCE_HINT_NUM_REQUESTS`` and
    ``INFERENCE_NUM_THREADS`` (for all streams together; 0: ``processors``). If ``NUM_STREAMS`` is 0, it is 1 for
    LATENCY. For THROUGHPUT, it is the number of threads, or of expected requests if that is smaller.
    """
    threads = settings["INFERENCE_NUM_THREADS"] or processors
    streams = settings["NUM_STREAMS"]
    if streams == 0:
        streams = 1
        if settings["PERFORMANCE_HINT"] == "THROUGHPUT":
            expected = settings["PERFORMANCE_HINT_NUM_REQUESTS"]
            streams = min(threads, expected) if expected > 0 else threads
    return streams, max(1, threads // streams)


def without(properties: Iterable[str | Property], *names: str) -> tuple[str | Property, ...]:
    """``properties`` without those named ``names``."""
    return tuple(entry for entry in properties if (entry if isinstance(entry, str) else entry.name) not in names)


class PropertyTable:
    """The properties of one device and the values set so far. Not thread-safe; the plugin must lock."""

    def __init__(self, declared: Iterable[str | Property]) -> None:
        self._declared: dict[str, Property] = {}
        for entry in declared:
            known = PROPERTIES[entry] if isinstance(entry, str) else entry
            self._declared[known.name] = known
        self._values: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._declared)

    def __contains__(self, name: str) -> bool:
        return name in self._declared

    def declared(self, name: str, owner: str) -> Property:
        """The property ``name``. If it is not declared, raises `PropertyError` with what to do for names of other
        libraries, or else with the most similar name."""
        if name not in self._declared:
            instead = of_properties(name)
            if name == "DEVICE_PROPERTIES":
                instead = "only lists such as HETERO:FPGA,CPU have it; set the properties of a single device directly"
            elif name == "DEVICE_ID":
                instead = "write the id in the device string, as in CPU.0"
            elif name in _OF_DEVICES:
                instead = f"devices have it, as in core.get_property('CPU', {name!r})"
            elif name in PROPERTIES:
                instead = "compiled models have it" if name in _OF_MODELS else "only some devices have it"
            hint = f": {instead}" if instead else did_you_mean(name, self._declared)
            raise PropertyError(
                f"{owner} has no property {shown(name)}{hint}; SUPPORTED_PROPERTIES lists all properties"
            )
        return self._declared[name]

    def checked(self, config: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """``config`` with every value checked. Does not set the values."""
        checked = {}
        for name, value in config.items():
            entry = self.declared(name, owner)
            if not entry.writable:
                raise PropertyError(f"property {name} of {owner} is read-only")
            checked[name] = entry.check(value)
        return checked

    def update(self, config: Mapping[str, Any], owner: str) -> None:
        """Set all values of ``config``. If one is invalid, raises `PropertyError` and sets none."""
        self._values.update(self.checked(config, owner))

    def get(self, name: str, owner: str) -> Any:
        entry = self.declared(name, owner)
        return self._values.get(name, entry.default)

    @property
    def assigned(self) -> dict[str, Any]:
        """The values set so far, without defaults."""
        return dict(self._values)

    def layered(self, config: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """The value of every writable property: from ``config``, else the set value, else the default."""
        values = {name: entry.default for name, entry in self._declared.items() if entry.writable}
        values.update(self._values)
        values.update(self.checked(config, owner))
        return values
