"""What a plan says, as types: the public ones, and the file that is made of them.

`PlanFile` is the schema of the file: msgspec checks it on reading, `json_schema` publishes it. `format` and `version`
come first; fields may be added without a new version, so a reader ignores those that it does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from ..assign.predictions import PlannedStage, PredictedLatency, PredictedPipeline, doc

__all__ = [
    "FORMAT_VERSION",
    "BoundaryValue",
    "DeviceTotals",
    "ModelIdentity",
    "PlanFile",
    "PlanWarning",
    "PlannedStage",
    "PlannedSubgraph",
    "PredictedLatency",
    "PredictedPipeline",
    "WarningKind",
    "json_schema",
]

FORMAT_VERSION = 1

WarningKind = Literal["unavailable", "unused", "islands", "pin", "memory"]


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedSubgraph:
    """One subgraph: its device and its nodes' keys, in topological order."""

    device: str = dataclasses.field(metadata=doc("The device of all its nodes, as `affinity` says."))
    nodes: tuple[str, ...] = dataclasses.field(metadata=doc("Node keys, in topological order."))


@dataclasses.dataclass(frozen=True, slots=True)
class BoundaryValue:
    """A tensor made in one subgraph and read in others. Subgraphs are numbered from 1, in the order in which they run.

    ``dtype``: NumPy's or ml_dtypes' name, "string", or None for what is no tensor or not known. ``shape``: sizes,
    symbols, and None for a dim of which nothing is known; None altogether for an unknown rank. ``bytes``: None unless
    all sizes are known.
    """

    name: str = dataclasses.field(metadata=doc("The value's name in the model."))
    dtype: str | None = dataclasses.field(metadata=doc("Element type: NumPy's name; null where unknown."))
    shape: tuple[int | str | None, ...] | None = dataclasses.field(
        metadata=doc("Sizes and symbols, null for an unknown dim; null altogether for an unknown rank.")
    )
    bytes: int | None = dataclasses.field(metadata=doc("Size; null unless the element type and all dims are known."))
    source: int = dataclasses.field(metadata=doc("The subgraph that makes it, counted from 1."))
    readers: tuple[int, ...] = dataclasses.field(metadata=doc("The subgraphs that read it, ascending."))


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceTotals:
    """What one device has in a plan.

    ``weight_bytes``: constants that its nodes read, each counted once; nodes with nested graphs, which may hold
    constants, also count with what they take in the file.
    ``received_bytes``, ``sent_bytes``: boundary values that come from, or go to, other devices, each counted once, as
    far as sizes are known; ``unknown_values``: how many of those have an unknown size.

    ``activation_bytes``: the most bytes of other values that are alive there at one time in an inference, as far as
    sizes are known; ``unknown_activations``: how many of them have an unknown size; ``limit_bytes``: what it may take
    for weights and activations. None where nothing was said of it (``limit_bytes``: no limit).
    """

    device: str = dataclasses.field(metadata=doc("The device."))
    nodes: int = dataclasses.field(metadata=doc("Its nodes."))
    subgraphs: int = dataclasses.field(metadata=doc("Its subgraphs."))
    weight_bytes: int = dataclasses.field(metadata=doc("Constants that its nodes read, each counted once."))
    received_bytes: int = dataclasses.field(
        metadata=doc("Boundary values that other devices make and it reads, each counted once; known sizes only.")
    )
    sent_bytes: int = dataclasses.field(
        metadata=doc("Boundary values that it makes and other devices read, each counted once; known sizes only.")
    )
    unknown_values: int = dataclasses.field(
        metadata=doc("Boundary values, received or sent, whose size is not known: neither sum counts them.")
    )
    activation_bytes: int | None = dataclasses.field(
        default=None,
        metadata=doc("The most bytes of other values alive there at one time in an inference; known sizes only."),
    )
    unknown_activations: int | None = dataclasses.field(
        default=None,
        metadata=doc("Values there whose size is not known: `activation_bytes` does not count them."),
    )
    limit_bytes: int | None = dataclasses.field(
        default=None, metadata=doc("What it may take for weights and activations; null: no limit.")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something about a plan that its owner may not want.

    ``kind``: ``unavailable`` (a device of the list cannot be used here), ``unused`` (a device has no node),
    ``islands`` (tiny subgraphs amid another device), ``pin`` (a pin that costs subgraphs), ``memory`` (a device with a
    limit has values of unknown size). ``device``: the one that it is about, ``pin`` the pin, ``nodes`` the first few
    nodes, ``subgraphs`` their numbers from 1 (the first few).
    ``subgraphs_after``: how many subgraphs there would be without it, if that was tried.
    """

    kind: WarningKind = dataclasses.field(metadata=doc("What kind of warning it is."))
    message: str = dataclasses.field(metadata=doc("The warning as a sentence."))
    device: str | None = dataclasses.field(default=None, metadata=doc("The device that it is about."))
    pin: str | None = dataclasses.field(default=None, metadata=doc("The pin that it is about."))
    nodes: tuple[str, ...] = dataclasses.field(default=(), metadata=doc("The first few nodes it is about."))
    subgraphs: tuple[int, ...] = dataclasses.field(default=(), metadata=doc("The first few subgraphs it is about."))
    subgraphs_after: int | None = dataclasses.field(
        default=None, metadata=doc("How many subgraphs there would be without what is warned of.")
    )

    def __str__(self) -> str:
        return self.message


@dataclasses.dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model that a plan is for. ``digest``: of its graph (operators, names and connections, not weights)."""

    name: str = dataclasses.field(metadata=doc("The name of its graph."))
    nodes: int | None = dataclasses.field(default=None, metadata=doc("How many nodes it has."))
    digest: str | None = dataclasses.field(
        default=None,
        metadata=doc("SHA-256 of operators, names and connections, not of weights; null: any model that fits."),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan of the package hetero: which device runs which node of an ONNX model, and how the model is cut."""

    format: Literal["hetero-plan"] = dataclasses.field(metadata=doc("What kind of file this is."))
    version: int = dataclasses.field(metadata=doc("The version of this schema: 1."))
    model: ModelIdentity = dataclasses.field(metadata=doc("The model that the plan is for."))
    devices: tuple[str, ...] = dataclasses.field(metadata=doc("The device list, by priority."))
    affinity: Mapping[str, str] = dataclasses.field(
        metadata=doc("Node key -> device, for every node. This is the part to edit.")
    )
    policy: str = dataclasses.field(default="auto", metadata=doc("How the model is cut: a policy's name."))
    pins: Mapping[str, str] = dataclasses.field(
        default_factory=dict,
        metadata=doc("The pins that the plan was made with, in their order. A record: `affinity` is what holds."),
    )
    subgraphs: tuple[PlannedSubgraph, ...] = dataclasses.field(
        default=(),
        metadata=doc(
            "The subgraphs, in an order in which they can run. They hold if they agree with `affinity`; otherwise, or "
            "if there are none, the model is cut anew."
        ),
    )
    totals: tuple[DeviceTotals, ...] = dataclasses.field(
        default=(), metadata=doc("What each device has, in the order of `devices`. For reading only.")
    )
    warnings: tuple[PlanWarning, ...] = dataclasses.field(
        default=(), metadata=doc("What the plan's owner may not want. For reading only.")
    )
    values: tuple[BoundaryValue, ...] = dataclasses.field(
        default=(), metadata=doc("The tensors that pass between subgraphs. For reading only.")
    )
    latency: PredictedLatency | None = dataclasses.field(
        default=None, metadata=doc("What an inference is predicted to take, if nodes were assigned by cost.")
    )
    pipeline: PredictedPipeline | None = dataclasses.field(
        default=None,
        metadata=doc(
            "The stages, if the plan is one of a pipeline: each runs on its device while the others work on other "
            "requests. They hold as long as `subgraphs` do."
        ),
    )
    reasons: Mapping[str, str] = dataclasses.field(
        default_factory=dict,
        metadata=doc(
            "Node key -> why it is there. Nodes without an entry are on the first device of the list, which takes "
            "them. For reading only."
        ),
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the file."""
    import msgspec

    schema = msgspec.json.schema(PlanFile)
    definitions = schema["$defs"]
    for kind in (
        PlannedSubgraph,
        BoundaryValue,
        DeviceTotals,
        PlanWarning,
        PredictedLatency,
        PlannedStage,
        PredictedPipeline,
        ModelIdentity,
        PlanFile,
    ):
        definition = definitions[kind.__name__]
        definition["description"] = (kind.__doc__ or "").partition("\n\n")[0]
        for field in dataclasses.fields(kind):
            entry = definition["properties"][field.name]
            definition["properties"][field.name] = {"description": field.metadata["doc"], **entry}
    version = definitions["PlanFile"]["properties"]["version"]
    definitions["PlanFile"]["properties"]["version"] = {"description": version["description"], "const": FORMAT_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hetero plan, version {FORMAT_VERSION}",
        **schema,
    }
