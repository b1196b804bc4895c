"""Applies a plan to a model and checks it. The plan was loaded, or made for another `Model` object.

``affinity`` determines the device of each node. Subgraphs apply as written if they agree with it and are a valid
partition. If they do not agree, devices were edited, and the model is partitioned again.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..assign.affinity import Affinity, Origin, first_supporting, place
from ..assign.pins import find_pinned, stated_numbers
from ..assign.with_readers import WithReaders
from ..errors import PartitionError, PropertyError, did_you_mean
from ..model.copies import copies_named, with_copies
from ..model.function_library import FunctionLibrary
from ..model.functions import calls_in, inline_calls, may_hold_graphs
from ..model.identity import graph_digest
from ..partition import Partition, partition_graph
from ..partition.check import broken_rule
from .bound import BoundPlan
from .record import PlanRecord

if TYPE_CHECKING:
    from ..assign.predictions import PredictedPipeline
    from ..model.model import Model
    from ..plugin.contract import Support

__all__ = ["PlacedModel", "affinity_of_plan", "place_plan", "stages_of_plan", "with_nested_calls_inlined"]

_MOST_KEYS_TO_GUESS_FROM = 20_000  # difflib is slow
_NOWHERE = -1  # a node without a device or subgraph


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlacedModel:
    """A model and the placement of its nodes by a plan. Calls of functions are inlined if the plan places nodes inside.

    ``device_of``: int32[model.num_nodes], indices into the plan's devices. ``is_cut_anew``: whether the partition is
    not the one in the plan.
    """

    original: Model
    model: Model
    device_of: NDArray[np.int32]
    partition: Partition
    is_cut_anew: bool = False


def place_plan(model: Model, plan: PlanRecord) -> PlacedModel:
    """Check a plan against a model, without querying devices.

    Raises `PropertyError` for a node that the model does not have (with the nearest key), nodes without a device,
    another model, and invalid subgraphs; `PartitionError` for subgraphs that cannot run in order.
    """
    if isinstance(plan, BoundPlan) and _same_nodes(plan.original, model):
        bound = plan.assignment
        if model is plan.original or not model.states_more_than(plan.original):
            return PlacedModel(model, bound.model, bound.affinity.device_of, bound.partition)
        if bound.model.num_nodes == model.num_nodes and _same_nodes(bound.model, model):  # the plan inlined no call
            return PlacedModel(model, model, bound.affinity.device_of, bound.partition)
    whole = model
    identity = plan.identity
    fits = identity.digest is None or identity.digest == graph_digest(model)
    other = "" if fits else f"; it was made for another model, {identity.name!r} of {_count(identity.nodes)}"
    for key in plan.affinity:
        if not model.is_key(key) and not copies_named(model, [key]):
            raise PropertyError(
                f"{plan.label} places node {key!r}, which model {model.name!r} does not have"
                f"{other or _guess(key, model)}"
            )
    model, device_of, missing = _devices(model, plan)
    if missing:
        more = f", and for {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PropertyError(
            f"{plan.label} has no device for node {model.key_of(missing[0])!r} of model {model.name!r}{more}{other}"
        )
    if not fits:
        raise PropertyError(
            f"{plan.label} is for another model with the same node names: the digest in the plan is {identity.digest}, "
            f"the digest of {model.name!r} is {graph_digest(whole)}; plan this model again, or remove the digest "
            "from the plan to use it anyway"
        )
    return PlacedModel(whole, model, device_of, *_partition(model, plan, device_of))


def with_nested_calls_inlined(
    placed: PlacedModel, plan: PlanRecord, devices: Sequence[str], supports: Sequence[Support]
) -> PlacedModel:
    """Inline the calls inside nested graphs of nodes that their devices do not support. Returns the same object if
    there are none. The plan does not show such calls, because the nodes keep their keys."""
    model = placed.model
    if not model.functions:
        return placed
    refused = np.zeros(model.num_nodes, np.bool_)
    for device, support in zip(devices, supports, strict=True):
        refused |= (placed.device_of == plan.devices.index(device)) & ~support.mask
    library = FunctionLibrary(model.file)
    holding = [
        node
        for node in np.flatnonzero(refused & may_hold_graphs(model)).tolist()
        if library.key_of_call(model.nodes[node].proto()) is None and calls_in(model, node, library)
    ]
    inlined = inline_calls(model, holding, library).model if holding else model
    if inlined is model:
        return placed
    _, device_of, _ = _devices(inlined, plan)
    return PlacedModel(placed.original, inlined, device_of, *_partition(inlined, plan, device_of))


def affinity_of_plan(
    placed: PlacedModel, plan: PlanRecord, devices: Sequence[str], supports: Sequence[Support]
) -> tuple[Affinity, bool]:
    """The affinity of a plan over its usable devices, and whether it is unchanged. It changes if nodes of unusable
    devices move to the first device that supports them.

    Raises `UnsupportedModel` for all nodes that their device does not support.
    """
    model = placed.model
    number_here = np.array([devices.index(name) if name in devices else _NOWHERE for name in plan.devices], np.int32)
    device_of = number_here[placed.device_of]
    moved = device_of == _NOWHERE
    automatic = first_supporting(model.num_nodes, supports)
    origin = np.full(model.num_nodes, Origin.PRIORITY, np.uint8)
    for node, number in stated_numbers(model, _known(model.affinity, devices), devices).items():
        automatic[node], origin[node] = number, Origin.MODEL
    pinned, _ = find_pinned(model, plan.pins, devices)
    for node, (number, _) in pinned.items():
        automatic[node], origin[node] = number, Origin.PIN
    device_of[moved] = automatic[moved]
    stated = origin.copy()
    origin[device_of != automatic] = Origin.PLAN
    pins = {node: pin for node, (_, pin) in pinned.items() if origin[node] == Origin.PIN}
    affinity = place(model, devices, supports, device_of, origin, pins)
    readers = WithReaders.of(model, dataclasses.replace(affinity, origin=stated))
    return readers.with_reasons(affinity), not moved.any()


def stages_of_plan(plan: PlanRecord, partition: Partition) -> PredictedPipeline | None:
    """The pipeline of a plan if its stages still match the partition: each is a range of subgraphs on one device with
    the stated number of nodes. None if devices or subgraphs were edited so that the stages no longer match."""
    if plan.pipeline is None:
        return None
    nodes = np.bincount(partition.subgraph_of, minlength=partition.num_subgraphs)
    placed = 0
    for stage in plan.pipeline.stages:
        begin, end = placed, placed + len(stage.subgraphs)
        if end > partition.num_subgraphs or stage.subgraphs != tuple(range(begin + 1, end + 1)):
            return None
        if any(plan.devices[device] != stage.device for device in partition.device_of[begin:end].tolist()):
            return None
        if nodes[begin:end].sum() != stage.nodes:
            return None
        placed = end
    return plan.pipeline if placed == partition.num_subgraphs else None


def _devices(model: Model, plan: PlanRecord) -> tuple[Model, NDArray[np.int32], list[int]]:
    """The model with the calls inlined that contain nodes of the plan, and with the copies of nodes that the plan has;
    the number of each node's device, and the nodes without a device."""
    by_name = sorted(plan.affinity) if model.functions else []
    number_of = {device: number for number, device in enumerate(plan.devices)}
    while True:
        keys, affinity = model.keys, plan.affinity
        device_of = np.array([number_of[affinity[key]] if key in affinity else _NOWHERE for key in keys], np.int32)
        missing = np.flatnonzero(device_of == _NOWHERE).tolist()
        calls = [node for node in missing if _looks_into(by_name, keys[node])] if model.functions else []
        inlined = inline_calls(model, calls, FunctionLibrary(model.file)).model if calls else model
        if inlined is model:
            copies = copies_named(model, [key for key in affinity if model.find_key(key) is None])
            if not copies:
                return model, device_of, missing
            inlined, _ = with_copies(model, copies)
        model = inlined


def _looks_into(by_name: Sequence[str], call: str) -> bool:
    """Whether one of the sorted keys is the key of a node inside the call."""
    place = bisect.bisect_left(by_name, f"{call}/")
    return place < len(by_name) and by_name[place].startswith(f"{call}/")


def _partition(model: Model, plan: PlanRecord, device_of: NDArray[np.int32]) -> tuple[Partition, bool]:
    """The partition in the plan if it agrees with the devices; otherwise a new one. And whether it is new."""
    subgraph_of = _subgraphs(model, plan, device_of)
    if subgraph_of is None:
        return partition_graph(model.graph, device_of, policy=plan.policy), True
    return _checked_partition(model, plan, device_of, subgraph_of), False


def _subgraphs(model: Model, plan: PlanRecord, device_of: NDArray[np.int32]) -> NDArray[np.int32] | None:
    """int32[num_nodes]: the subgraph of each node in the plan; None if the subgraphs do not agree with the devices.

    Raises `PropertyError` unless every node is in exactly one subgraph.
    """
    if not plan.subgraphs:
        return None
    subgraph_of = np.full(model.num_nodes, _NOWHERE, np.int32)
    agree = True
    for number, part in enumerate(plan.subgraphs):
        device = plan.devices.index(part.device)
        for key in part.nodes:
            node = model.find_key(key)
            if node is None:
                raise PropertyError(
                    f"{plan.label}: subgraph {number + 1} holds node {key!r}, which model {model.name!r} does not have"
                    f"{_guess(key, model)}"
                )
            if subgraph_of[node] != _NOWHERE:
                raise PropertyError(
                    f"{plan.label}: node {key!r} is in subgraph {subgraph_of[node] + 1} and in subgraph {number + 1}"
                )
            subgraph_of[node] = number
            agree &= bool(device_of[node] == device)
    left = np.flatnonzero(subgraph_of == _NOWHERE).tolist()
    if left:
        raise PropertyError(
            f"{plan.label}: node {model.key_of(left[0])!r} is not in any subgraph; list every node in one subgraph, "
            "or leave `subgraphs` empty to partition the model again"
        )
    return subgraph_of if agree else None


def _checked_partition(
    model: Model, plan: PlanRecord, device_of: NDArray[np.int32], subgraph_of: NDArray[np.int32]
) -> Partition:
    """The partition in the plan. Raises `PartitionError`, which names nodes by key."""
    graph = model.graph
    broken = broken_rule(
        graph, device_of, subgraph_of, ordered=True, name=lambda node: repr(model.key_of(node)), first=1
    )
    if broken is not None:
        raise PartitionError(
            f"{plan.label}: its subgraphs cannot run: {broken}; leave `subgraphs` empty to partition the model again"
        )
    device_of_subgraph = np.empty(len(plan.subgraphs), np.int32)
    device_of_subgraph[subgraph_of] = device_of
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    cut = int(np.count_nonzero(subgraph_of[source] != subgraph_of[graph.indices]))
    return Partition(graph, plan.policy, subgraph_of, device_of_subgraph, cut, float(cut))


def _same_nodes(one: Model, other: Model) -> bool:
    return one is other or (one.file is other.file and np.array_equal(one.file_nodes, other.file_nodes))


def _known(affinity: Mapping[str, str], devices: Sequence[str]) -> dict[str, str]:
    return {key: device for key, device in affinity.items() if device in devices}


def _guess(key: str, model: Model) -> str:
    return did_you_mean(key, model.keys) if model.num_nodes <= _MOST_KEYS_TO_GUESS_FROM else ""


def _count(nodes: int | None) -> str:
    return "an unknown number of nodes" if nodes is None else f"{nodes} nodes"
