"""The data types of a plan, and of the file that consists of them.

`PlanFile` is the schema of the file: msgspec checks it on reading, `json_schema` publishes it. `format` and `version`
come first. Fields may be added without a new version, so a reader ignores unknown fields. A plan may have tens of
thousands of subgraphs and values, so their types are msgspec's, which are created in a third of the time of a
dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

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

WarningKind = Literal["unavailable", "unused", "islands", "pin", "memory", "overlap"]


class PlannedSubgraph(msgspec.Struct, frozen=True, gc=False):
    """One subgraph: its device and its nodes' keys, in topological order."""

    device: Annotated[str, msgspec.Meta(description="The device of its nodes, as in `affinity`.")]
    nodes: Annotated[tuple[str, ...], msgspec.Meta(description="Node keys, in topological order.")]


class BoundaryValue(msgspec.Struct, frozen=True, gc=False):
    """A tensor made in one subgraph and read in others. Subgraphs are numbered from 1, in the order in which they run.

    ``dtype``: a name of NumPy or ml_dtypes, "string", or None for an unknown type or a value that is not a tensor.
    ``shape``: sizes, symbols, and None for an unknown dim; None instead of a list for an unknown rank. ``bytes``: None
    unless all sizes are known.
    """

    name: Annotated[str, msgspec.Meta(description="The value's name in the model.")]
    dtype: Annotated[str | None, msgspec.Meta(description="Element type: its NumPy name; null if unknown.")]
    shape: Annotated[
        tuple[int | str | None, ...] | None,
        msgspec.Meta(
            description="Sizes and symbols, null for an unknown dim; null instead of a list for an unknown rank."
        ),
    ]
    bytes: Annotated[int | None, msgspec.Meta(description="Size; null unless the element type and all dims are known.")]
    source: Annotated[int, msgspec.Meta(description="The subgraph that makes it, counted from 1.")]
    readers: Annotated[tuple[int, ...], msgspec.Meta(description="The subgraphs that read it, ascending.")]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceTotals:
    """Totals of one device in a plan.

    ``weight_bytes``: constants that its nodes read, each counted once. Nodes with nested graphs, which may contain
    constants, also count with their size in the file.
    ``received_bytes``, ``sent_bytes``: boundary values of known size that come from, or go to, other devices, each
    counted once; ``unknown_values``: the number of those of unknown size.

    ``activation_bytes``: the peak size in an inference of all other values of known size; ``unknown_activations``: the
    number of those of unknown size; ``limit_bytes``: the memory limit for weights and activations, None for no limit.
    """

    device: str = dataclasses.field(metadata=doc("The device."))
    nodes: int = dataclasses.field(metadata=doc("The number of its nodes."))
    subgraphs: int = dataclasses.field(metadata=doc("The number of its subgraphs."))
    weight_bytes: int = dataclasses.field(metadata=doc("Constants that its nodes read, each counted once."))
    received_bytes: int = dataclasses.field(
        metadata=doc("Boundary values that it reads from other devices, each counted once; known sizes only.")
    )
    sent_bytes: int = dataclasses.field(
        metadata=doc("Boundary values that other devices read from it, each counted once; known sizes only.")
    )
    unknown_values: int = dataclasses.field(
        metadata=doc("The number of boundary values, received or sent, of unknown size.")
    )
    activation_bytes: int | None = dataclasses.field(
        default=None,
        metadata=doc("The peak size in an inference of all other values; known sizes only."),
    )
    unknown_activations: int | None = dataclasses.field(
        default=None,
        metadata=doc("The number of values of unknown size, which `activation_bytes` does not count."),
    )
    limit_bytes: int | None = dataclasses.field(
        default=None, metadata=doc("The memory limit for weights and activations; null: no limit.")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlanWarning:
    """A possible problem of a plan.

    ``kind``: ``unavailable`` (a device of the list cannot be used here), ``unused`` (a device has no node),
    ``islands`` (tiny subgraphs next to those of another device), ``pin`` (pins that cost subgraphs or time),
    ``memory`` (a device with a limit has values of unknown size), ``overlap`` (devices could run in parallel but do
    not).
    ``device``, ``pin``: the device or pin concerned. ``nodes``: the first few nodes concerned. ``subgraphs``: the
    first few subgraphs concerned, counted from 1. ``subgraphs_after``: the number of subgraphs without the problem, if
    that was tried.
    """

    kind: WarningKind = dataclasses.field(metadata=doc("The kind of warning."))
    message: str = dataclasses.field(metadata=doc("The warning as a sentence."))
    device: str | None = dataclasses.field(default=None, metadata=doc("The device concerned."))
    pin: str | None = dataclasses.field(default=None, metadata=doc("The pin concerned."))
    nodes: tuple[str, ...] = dataclasses.field(default=(), metadata=doc("The first few nodes concerned."))
    subgraphs: tuple[int, ...] = dataclasses.field(default=(), metadata=doc("The first few subgraphs concerned."))
    subgraphs_after: int | None = dataclasses.field(
        default=None, metadata=doc("The number of subgraphs without the problem.")
    )

    def __str__(self) -> str:
        return self.message


@dataclasses.dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model of a plan. ``digest``: covers its graph (operators, names and connections, not weights)."""

    name: str = dataclasses.field(metadata=doc("The name of its graph."))
    nodes: int | None = dataclasses.field(default=None, metadata=doc("The number of its nodes."))
    digest: str | None = dataclasses.field(
        default=None,
        metadata=doc("SHA-256 of operators, names and connections, not of weights; null: any model that fits."),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan of hetero: which device runs which node of an ONNX model, and how the model is cut."""

    format: Literal["hetero-plan"] = dataclasses.field(metadata=doc("The kind of file."))
    version: int = dataclasses.field(metadata=doc("The version of this schema: 1."))
    model: ModelIdentity = dataclasses.field(metadata=doc("The model that the plan is for."))
    devices: tuple[str, ...] = dataclasses.field(metadata=doc("The device list, by priority."))
    affinity: Mapping[str, str] = dataclasses.field(
        metadata=doc("Node key -> device, for every node. This is the part to edit.")
    )
    policy: str = dataclasses.field(default="auto", metadata=doc("The partition policy."))
    pins: Mapping[str, str] = dataclasses.field(
        default_factory=dict,
        metadata=doc("The pins that the plan was made with, in order. For reading only; `affinity` counts."),
    )
    subgraphs: tuple[PlannedSubgraph, ...] = dataclasses.field(
        default=(),
        metadata=doc(
            "The subgraphs, in an order in which they can run. If they are empty or do not agree with `affinity`, the "
            "model is cut again."
        ),
    )
    lower_bound: int | None = dataclasses.field(
        default=None,
        metadata=doc("No valid cut with these devices has fewer subgraphs than this. For reading only."),
    )
    totals: tuple[DeviceTotals, ...] = dataclasses.field(
        default=(), metadata=doc("Totals of each device, in the order of `devices`. For reading only.")
    )
    warnings: tuple[PlanWarning, ...] = dataclasses.field(
        default=(), metadata=doc("Possible problems of the plan. For reading only.")
    )
    values: tuple[BoundaryValue, ...] = dataclasses.field(
        default=(), metadata=doc("The tensors that pass between subgraphs. For reading only.")
    )
    latency: PredictedLatency | None = dataclasses.field(
        default=None, metadata=doc("The predicted latency of an inference, if nodes were assigned by cost.")
    )
    pipeline: PredictedPipeline | None = dataclasses.field(
        default=None,
        metadata=doc(
            "The stages, if the plan is a pipeline: each runs on its device while the others work on other requests. "
            "They apply as long as `subgraphs` do."
        ),
    )
    reasons: Mapping[str, str] = dataclasses.field(
        default_factory=dict,
        metadata=doc(
            "Node key -> reason for its device. Nodes without an entry are on the first device of the list, which "
            "supports them. For reading only."
        ),
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the file."""
    schema = msgspec.json.schema(PlanFile)
    definitions = schema["$defs"]
    for mass in (PlannedSubgraph, BoundaryValue):
        definitions[mass.__name__]["description"] = (mass.__doc__ or "").partition("\n\n")[0]
    for kind in (
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
            if field.default_factory is dict:
                entry.setdefault("default", {})  # msgspec before 0.23 leaves it out
            definition["properties"][field.name] = {"description": field.metadata["doc"], **entry}
    version = definitions["PlanFile"]["properties"]["version"]
    definitions["PlanFile"]["properties"]["version"] = {"description": version["description"], "const": FORMAT_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hetero plan, version {FORMAT_VERSION}",
        **schema,
    }
