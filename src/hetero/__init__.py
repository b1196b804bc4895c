"""Run one ONNX model over several devices.

The way a model takes, stage by stage:

1. **read** (`hetero.model`): a file, bytes or ``ModelProto`` becomes a `Model`, an index over the file's bytes;
2. **assign** (`hetero.assign`): each node gets a device, from what the devices support and what the user pinned;
3. **partition** (`hetero.partition`): the graph is cut into single-device subgraphs that can run in order;
4. **compile** (`hetero.compiling`): each subgraph is compiled by its device's plugin (`hetero.plugin`);
5. **run** (`hetero.runtime`): inputs go in, subgraphs run, outputs and counters come out.

`Core` ties the stages together.
"""

from __future__ import annotations

import importlib

from .base.version import __version__ as __version__

TYPE_CHECKING = False  # true for type checkers; importing typing would take half of the time of `import hetero`

if TYPE_CHECKING:
    from .assign.costs import Costs
    from .compiling.splitting import split
    from .core import Core, compile, load
    from .errors import (
        ArtifactError,
        Cancelled,
        Corrupt,
        DeviceUnavailable,
        ExtensionError,
        HeteroError,
        InferenceError,
        InsufficientMemory,
        ModelError,
        NotSupported,
        PartitionError,
        PluginTimeout,
        PropertyError,
        QueueFull,
        UnknownDevice,
        UnknownOutput,
        UnsupportedModel,
        VersionMismatch,
        WorkerLost,
        WrongDevice,
        WrongVersion,
    )
    from .extension import get_include
    from .extension.custom_op import CustomOp
    from .model.model import Model
    from .partition import Graph, Partition, TransitiveClosure, check_partition, partition_graph
    from .plan import LoadedPlan, Plan
    from .plugin.contract import CompiledModel, InferRequest, Plugin, Support
    from .plugin.remote import ON_DEVICE

__all__ = [
    "ON_DEVICE",
    "ArtifactError",
    "Cancelled",
    "CompiledModel",
    "Core",
    "Corrupt",
    "Costs",
    "CustomOp",
    "DeviceUnavailable",
    "ExtensionError",
    "Graph",
    "HeteroError",
    "InferRequest",
    "InferenceError",
    "InsufficientMemory",
    "LoadedPlan",
    "Model",
    "ModelError",
    "NotSupported",
    "Partition",
    "PartitionError",
    "Plan",
    "Plugin",
    "PluginTimeout",
    "PropertyError",
    "QueueFull",
    "Support",
    "TransitiveClosure",
    "UnknownDevice",
    "UnknownOutput",
    "UnsupportedModel",
    "VersionMismatch",
    "WorkerLost",
    "WrongDevice",
    "WrongVersion",
    "check_partition",
    "compile",
    "get_include",
    "load",
    "partition_graph",
    "split",
]

# Loaded when first asked for, so that the command line can show its help without NumPy and the compiled modules.
_HOME = {
    ".assign.costs": ("Costs",),
    ".compiling.splitting": ("split",),
    ".core": ("Core", "compile", "load"),
    ".extension": ("get_include",),
    ".extension.custom_op": ("CustomOp",),
    ".model.model": ("Model",),
    ".partition": ("Graph", "Partition", "TransitiveClosure", "check_partition", "partition_graph"),
    ".plan": ("LoadedPlan", "Plan"),
    ".plugin.remote": ("ON_DEVICE",),
    ".plugin": ("CompiledModel", "InferRequest", "Plugin", "Support"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, from the module that defines it (errors are the rest), or a module of the package."""
    if name in __all__:
        value: object = getattr(importlib.import_module(_MODULE_OF.get(name, ".errors"), __name__), name)
    else:
        try:
            value = importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            from .base.other_names import OF_MODULE

            hint = f"; use {OF_MODULE[name]}" if name in OF_MODULE else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
