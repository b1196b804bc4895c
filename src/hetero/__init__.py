"""Run one ONNX model over several devices.

The way a model takes, stage by stage:

1. **read** (`hetero.model`): a file, bytes or ``ModelProto`` becomes a `Model`, an index over the file's bytes;
2. **assign** (`hetero.affinity`): each node gets a device, from what the devices support and what the user pinned;
3. **partition** (`hetero.partition`): the graph is cut into single-device subgraphs that can run in order;
4. **compile** (`hetero.devices.hetero`): each subgraph is compiled by its device's plugin (`hetero.plugin`);
5. **run** (`hetero.runtime`): inputs go in, subgraphs run, outputs and counters come out.

`Core` ties the stages together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core import Core, compile, load
from .errors import (
    ArtifactError,
    Corrupt,
    DeviceUnavailable,
    HeteroError,
    InferenceError,
    ModelError,
    NotSupported,
    PartitionError,
    PropertyError,
    UnknownDevice,
    UnsupportedModel,
    WrongDevice,
    WrongVersion,
)
from .model.model import Model
from .partition import Graph, Partition, TransitiveClosure, check_partition, partition_graph
from .plan import Plan
from .plugin import CompiledModel, InferRequest, Plugin, Support

__all__ = [
    "ArtifactError",
    "CompiledModel",
    "Core",
    "Corrupt",
    "DeviceUnavailable",
    "Graph",
    "HeteroError",
    "InferRequest",
    "InferenceError",
    "Model",
    "ModelError",
    "NotSupported",
    "Partition",
    "PartitionError",
    "Plan",
    "Plugin",
    "PropertyError",
    "Support",
    "TransitiveClosure",
    "UnknownDevice",
    "UnsupportedModel",
    "WrongDevice",
    "WrongVersion",
    "check_partition",
    "compile",
    "load",
    "partition_graph",
    "split",
]
__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from .splitting import split


def __getattr__(name: str) -> object:
    """`split`, which few programs need, is loaded when it is first asked for."""
    if name == "split":
        from .splitting import split

        globals()[name] = split
        return split
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
