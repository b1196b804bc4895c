"""Stage 2 within memory limits: nodes that do not fit on a device move to another device.

Applies `hetero.assign.memory.fit` to a model and its devices: pins and affinities apply, a node moves only to devices
that support it, and each move is recorded with its reason.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.formatting import byte_size, counted, shape_text
from ..base.names import first_few, short
from ..base.warn import warn
from ..errors import InsufficientMemory, shown
from ..partition import Graph, Partition, has_quick_cut, partition_graph
from .affinity import Affinity, Origin
from .memory.fit import Cut, Fit, InfeasibilityProof, cut_and_count, fit, prove_infeasible
from .memory.footprint import Footprint, footprint
from .memory.moves import all_assignments, improved
from .memory.values import Values, values_of

if TYPE_CHECKING:
    from ..model.model import Model
    from ..model.types import Port
    from .with_readers import WithReaders

_FEW = 5  # inputs of unknown size that a warning names
_NUM_STARTS = 2  # assignments from which a local search looks for one that fits

__all__ = [
    "allowed_devices",
    "check_limits",
    "check_whole",
    "cuts_of",
    "fit_affinity",
    "how_to_set_sizes",
    "limits_array",
    "moved_for_memory",
    "require_fit",
    "rescued",
    "unknown_sizes",
]


def limits_array(devices: Sequence[str], limits: Mapping[str, int]) -> NDArray[np.float64]:
    """float64 [k]: the limit of each device, infinite without a limit."""
    return np.array([limits.get(device, np.inf) for device in devices], np.float64)


def allowed_devices(affinity: Affinity) -> NDArray[np.bool_]:
    """bool [k, num_nodes]: the possible devices of each node. Nodes with a pin or an affinity stay on their device."""
    allowed = np.stack([support.mask for support in affinity.supports])
    fixed = affinity.origin != Origin.PRIORITY
    allowed[:, fixed] = affinity.device_of[fixed] == np.arange(len(allowed))[:, None]
    return allowed


def fit_affinity(
    model: Model, affinity: Affinity, limits: Mapping[str, int], readers: WithReaders, policy: str = "auto"
) -> tuple[Affinity, Partition]:
    """The assignment by priority within limits, and its partition. ``limits``: device -> bytes. ``readers``: of the
    model; nodes stay apart from their readers if they do not fit there.

    Raises `InsufficientMemory` if no assignment is found that fits.
    """
    values = values_of(model, units=affinity.units)
    max_bytes = limits_array(affinity.devices, limits)
    allowed = allowed_devices(affinity)

    cut, quick_cut = cuts_of(model.graph, policy)
    # By priority, nodes move only to later devices.
    earlier = np.arange(len(max_bytes))[:, None] < affinity.device_of
    fitted = fit(values, affinity.device_of, allowed & ~earlier, max_bytes, cut)
    fitted, tried_all = rescued(values, [fitted], allowed, max_bytes, cut, quick_cut)
    require_fit(model, affinity.devices, values, allowed, max_bytes, fitted, tried_all)
    together = cut_and_count(values, readers.place(fitted.device_of), max_bytes, cut)
    fitted = together if together.fits else fitted
    return readers.with_reasons(moved_for_memory(affinity, fitted, max_bytes)), fitted.partition


def moved_for_memory(affinity: Affinity, fit: Fit, limits: NDArray[np.float64]) -> Affinity:
    """The affinity with the devices of ``fit``, and the reason for each moved node."""
    before, after = affinity.device_of, fit.device_of
    if np.array_equal(before, after):
        return affinity
    origin = affinity.origin.copy()
    origin[after != before] = Origin.MEMORY
    origin.setflags(write=False)
    reasons = _FullDevices(affinity.devices, before, fit.needs, limits)
    return dataclasses.replace(affinity, device_of=after, origin=origin, memory_reasons=reasons)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _FullDevices:
    """Why nodes moved. ``before``: int32[num_nodes], the devices without limits; ``needs``: after the move."""

    devices: tuple[str, ...]
    before: NDArray[np.int32]
    needs: Footprint
    limits: NDArray[np.float64]

    def reason(self, node: int) -> str:
        device = int(self.before[node])
        weights, activations = int(self.needs.weights[device]), int(self.needs.activations[device])
        return (
            f"{self.devices[device]} is limited to {byte_size(int(self.limits[device]))}, and its "
            f"other nodes need {byte_size(weights)} of weights and {byte_size(activations)} of activations"
        )


def check_limits(
    model: Model,
    devices: Sequence[str],
    partition: Partition,
    limits: Mapping[str, int],
    times: tuple[ArrayLike, ArrayLike] | None = None,
    units: Sequence[Sequence[NDArray[np.int32]]] = (),
) -> Footprint | None:
    """The memory that a partition needs; None without limits. Raises `InsufficientMemory` if a device exceeds its
    limit. ``times``: as in `footprint`. ``units``: as in `values_of`."""
    if not limits:
        return None
    values = values_of(model, units=units)
    max_bytes = limits_array(devices, limits)
    needs = footprint(values, partition.subgraph_of, partition.device_of, len(devices), times)
    excess = np.maximum(needs.total - max_bytes, 0.0)
    if excess.any():
        why = "; ".join(_over(devices, needs, max_bytes, excess))
        raise InsufficientMemory(f"model {model.name!r} does not fit as placed: {why}", _shortfall(devices, excess))
    return needs


def check_whole(model: Model, device: str, limit: int, units: Sequence[NDArray[np.int32]] = ()) -> None:
    """Raise `InsufficientMemory` if the whole model exceeds ``limit`` on one device. Warn if sizes are unknown."""
    whole = partition_graph(model.graph, np.zeros(model.num_nodes, np.uint8))
    needs = check_limits(model, [device], whole, {device: limit}, units=[units])
    assert needs is not None

    def count(model: Model) -> Footprint:
        return footprint(values_of(model, units=[units]), whole.subgraph_of, whole.device_of, 1)

    for _, message in unknown_sizes(model, [device], {device: limit}, needs, count):
        warn(message, about=f"sizes unknown to {device}")


def cuts_of(graph: Graph, policy: str) -> tuple[Cut, Cut | None]:
    """A cut by the policy, and a quick one for `improved`, None if that saves no time."""

    def cut(device_of: NDArray[np.int32], thorough: bool = True) -> Partition:
        return partition_graph(graph, device_of, policy, thorough=thorough)

    return cut, functools.partial(cut, thorough=False) if has_quick_cut(graph, policy) else None


def rescued(
    values: Values,
    candidates: Sequence[Fit],
    allowed: NDArray[np.bool_],
    limits: NDArray[np.float64],
    cut: Cut,
    quick_cut: Cut | None,
) -> tuple[Fit, bool]:
    """The first candidate that fits; otherwise an assignment that a local search, or for few nodes an exhaustive one,
    reaches from those with the minimum excess. Also whether every assignment was tried and none fits."""
    for candidate in candidates:
        if candidate.fits:
            return candidate, False
    closest = sorted(candidates, key=lambda candidate: float(candidate.excess.sum()))
    if prove_infeasible(values, allowed, limits) is not None:
        return closest[0], False
    reached = []
    for candidate in closest[:_NUM_STARTS]:
        reached.append(improved(values, candidate, allowed, limits, cut, quick_cut=quick_cut))
        if reached[-1].fits:
            return reached[-1], False
    fitting, tried_all = all_assignments(values, allowed, limits, cut)
    if fitting is not None:
        return fitting, False
    return min(reached, key=lambda candidate: float(candidate.excess.sum())), tried_all


def require_fit(
    model: Model,
    devices: Sequence[str],
    values: Values,
    allowed: NDArray[np.bool_],
    limits: NDArray[np.float64],
    found: Fit,
    tried_all: bool = False,
) -> None:
    """Raise `InsufficientMemory` with the shortfall, and the proof if there is one, unless ``found`` fits.
    ``tried_all``: whether each assignment was tried and none fits."""
    if found.fits:
        return
    proof = prove_infeasible(values, allowed, limits)
    lines = _over(devices, found.needs, limits, found.excess)
    if proof is None and tried_all:
        lines.append("no assignment can fit: each possible one was tried")
    elif proof is None:
        lines.append(
            "no assignment was found that fits: raise a limit, add a device to the list, or pin nodes to devices where "
            "they fit"
        )
    else:
        lines.append(f"no assignment can fit, because {_proof(model, devices, proof)}")
    unsupported = {}
    if proof is not None and proof.node is not None:
        reason = f"it needs {byte_size(int(proof.bytes))} of memory, which exceeds the limit"
        unsupported = {model.key_of(proof.node): {devices[device]: reason for device in proof.devices}}
    raise InsufficientMemory(
        "".join([f"model {model.name!r} does not fit on {', '.join(devices)}:", *(f"\n  {line}" for line in lines)]),
        _shortfall(devices, found.excess),
        unsupported,
    )


def _proof(model: Model, devices: Sequence[str], proof: InfeasibilityProof) -> str:
    names = [devices[device] for device in proof.devices]
    if proof.node is not None:
        op = model.op_types[model.op_type_of[proof.node]]
        return (
            f"{first_few([model.key_of(proof.node)])} ({op}) alone reads and makes {byte_size(int(proof.bytes))}, and "
            f"{', '.join(names)}, which may run it, {'has' if len(names) == 1 else 'have at most'} "
            f"{byte_size(int(proof.limit))}"
        )
    return (
        f"{byte_size(int(proof.bytes))} of weights can only be on {', '.join(names)}, which "
        f"{'has' if len(names) == 1 else 'have'} {byte_size(int(proof.limit))}{' in total' if len(names) > 1 else ''}"
    )


def _over(
    devices: Sequence[str], needs: Footprint, limits: NDArray[np.float64], excess: NDArray[np.float64]
) -> list[str]:
    return [
        f"{devices[device]} would need {_needed(needs, device)} of {byte_size(int(limits[device]))}, "
        f"{_exactly(int(excess[device]))} too much"
        for device in np.flatnonzero(excess).tolist()
    ]


def _exactly(size: int) -> str:
    return byte_size(size) + (f" ({size} bytes)" if size >= 1000 else "")


def _needed(needs: Footprint, device: int) -> str:
    weights, activations = int(needs.weights[device]), int(needs.activations[device])
    return f"{byte_size(weights + activations)} (weights {byte_size(weights)}, activations {byte_size(activations)})"


def _shortfall(devices: Sequence[str], excess: NDArray[np.float64]) -> dict[str, int]:
    return {devices[device]: int(excess[device]) for device in np.flatnonzero(excess).tolist()}


def unknown_sizes(
    model: Model,
    devices: Sequence[str],
    limits: Mapping[str, int],
    needs: Footprint,
    count: Callable[[Model], Footprint],
) -> Iterator[tuple[str, str]]:
    """Devices that may exceed their limit because the sizes of some values are unknown, each with a message that says
    what the others need and how to set the sizes. ``needs``: of the devices. ``count``: the needs of a model of the
    same nodes. If only the size of the batch is open, a device is listed if a batch of 1 does not fit."""
    numbers = [number for number, device in enumerate(devices) if device in limits and needs.unknown[number]]
    batch = _first_symbol(model) if numbers else None
    of_one = None
    if batch is not None:
        shapes = {port.name: (None, (1, *(port.shape or ())[1:])) for port in _open_inputs(model)}
        of_one = count(model.with_types(shapes))
    for number in numbers:
        device, unknown = devices[number], int(needs.unknown[number])
        if of_one is not None and not of_one.unknown[number]:
            if of_one.total[number] <= limits[device]:
                continue
            why = f"with {shown(batch)} = 1, it needs {_needed(of_one, number)}"
        else:
            first = first_few([model.value_name(int(needs.first_unknown[number]))], 1, unknown)
            have = "has an unknown size" if unknown == 1 else "have unknown sizes"
            others = f"; the others need {_needed(needs, number)}" if needs.total[number] else ""
            why = f"{counted(unknown, 'value')} ({first}) {have}{others}"
        exceeds = f"{device} may exceed its limit of {byte_size(limits[device])}"
        yield device, f"{exceeds}: {why}; {how_to_set_sizes(model, unknown)}"


def _open_inputs(model: Model) -> list[Port]:
    return [port for port in model.inputs if port.is_tensor and not _has_sizes(port)]


def _first_symbol(model: Model) -> str | None:
    """The symbol of the batch: the first dimension of inputs that have further ones, if that is all that inputs leave
    open."""
    shapes = [port.shape or () for port in _open_inputs(model)]
    firsts = {shape[0] if len(shape) > 1 else None for shape in shapes}
    is_open = any(not isinstance(dim, int) for shape in shapes for dim in shape[1:])
    first = firsts.pop() if len(firsts) == 1 and not is_open else None
    return first if isinstance(first, str) else None


def how_to_set_sizes(model: Model, count: int) -> str:
    """How to state the sizes of ``count`` values that the model leaves open."""
    open_inputs = _open_inputs(model)
    symbols = list(dict.fromkeys(dim for port in open_inputs for dim in port.shape or () if isinstance(dim, str)))
    if open_inputs and all(port.shape is not None and None not in port.shape for port in open_inputs):
        first = shown(symbols[0])
        return f"set {first_few(symbols, _FEW)}, as in shapes={{{first}: 1}} or --dim {short(symbols[0])}=1"
    if open_inputs:
        listed = open_inputs[:_FEW]
        shapes = ", ".join(f"{short(port.name)!r} {shape_text(port.shape, '(any shape)')}" for port in listed)
        more = f" and {len(open_inputs) - _FEW} more" if len(open_inputs) > _FEW else ""
        return f"set the sizes of the inputs with shapes={{...}} or --shape: {shapes}{more}"
    return (
        f"{'it does' if count == 1 else 'they do'} not follow from the sizes of the inputs, so shapes= and --shape "
        "cannot set them; Model.with_types can, in Python"
    )


def _has_sizes(port: Port) -> bool:
    return port.shape is not None and all(isinstance(dim, int) for dim in port.shape)
