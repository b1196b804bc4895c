"""What a cut graph takes on each device: constants, and the most that is alive at one time.

Subgraphs run one after the other, and the nodes of a subgraph in topological order, so the nodes have one order over
all devices, the *steps*. A value lives
- where it is made from the step that makes it until its last reader has run; one that other subgraphs read is held for
  them until the last of these is done, an output of the model until the end;
- on each other device that reads it from the beginning of the first subgraph there that reads it until the end of the
  last: who calls a submodel holds its inputs. So do inputs of the model.
This is what nodes take that run as they stand. Devices that fuse nodes, or compute in place, take less; what kernels
allocate for themselves is not counted. A difference array over the steps gives all peaks in O(values + reads).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.grouped import group_max, group_min
from .values import Values

__all__ = ["Footprint", "footprint", "order_of_steps"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """Bytes per device, float64 [k] each (whole numbers).

    ``weights``: constants that its nodes read, each once. ``activations``: the most bytes of other values that are
    alive at one time. ``peak_node``: int32 [k], the node that runs then, -1 for none. ``unknown``: int64 [k], how many
    values there have a size that is not known, and count as 0 (those that nobody reads aside, such as masks of Dropout,
    which devices leave out). ``first_unknown``: int32 [k], one of those, -1 for none.
    """

    weights: NDArray[np.float64]
    activations: NDArray[np.float64]
    peak_node: NDArray[np.int32]
    unknown: NDArray[np.int64]
    first_unknown: NDArray[np.int32]

    @property
    def total(self) -> NDArray[np.float64]:
        """float64 [k]: weights and activations."""
        return self.weights + self.activations


def footprint(values: Values, subgraph_of: ArrayLike, device_of: ArrayLike, num_devices: int) -> Footprint:
    """What each device needs. ``subgraph_of``: int [num_nodes], subgraphs numbered in the order in which they run.
    ``device_of``: int [num_subgraphs], a device number per subgraph. One inference at a time."""
    subgraph = np.asarray(subgraph_of, np.int64)
    device_of_subgraph = np.asarray(device_of, np.int64)
    device = device_of_subgraph[subgraph]
    order, step = order_of_steps(subgraph)
    size_of = np.bincount(subgraph, minlength=len(device_of_subgraph))
    last_step = np.cumsum(size_of) - 1
    first_step = last_step + 1 - size_of
    weights = _weights(values, device, num_devices)

    number = len(values.producer)
    is_read = ~values.is_constant[values.read_value]
    value, reader = values.read_value[is_read], values.read_node[is_read]
    made = np.flatnonzero(values.producer >= 0)
    producer = values.producer[value]
    inside = (producer >= 0) & (subgraph[producer] == subgraph[reader])
    done = np.where(inside, step[reader], last_step[subgraph[reader]])
    until = np.full(number, -1)
    until[made] = step[values.producer[made]]
    np.maximum(until, group_max(done, value, number, -1), out=until)
    until[values.is_output] = max(0, values.num_nodes - 1)

    # On other devices than the one that made it.
    elsewhere = (producer < 0) | (device[producer] != device[reader])
    place = value[elsewhere].astype(np.int64) * num_devices + device[reader[elsewhere]]
    pairs, where = np.unique(place, return_inverse=True)
    there = subgraph[reader[elsewhere]]
    arrives = group_min(first_step[there], where, len(pairs), values.num_nodes)
    leaves = group_max(last_step[there], where, len(pairs), -1)

    what = np.concatenate([made, pairs // num_devices])
    on = np.concatenate([device[values.producer[made]], pairs % num_devices])
    begin = np.concatenate([step[values.producer[made]], arrives])
    end = np.concatenate([until[made], leaves])
    row = values.num_nodes + 1
    size = values.bytes[what]
    change = np.bincount(on * row + begin, size, num_devices * row)
    change -= np.bincount(on * row + end + 1, size, num_devices * row)
    alive = np.cumsum(change.reshape(num_devices, row), axis=1)
    at = np.argmax(alive, axis=1)
    peak = alive[np.arange(num_devices), at]
    peak_node = np.where(peak > 0, order[np.minimum(at, max(0, len(order) - 1))] if len(order) else -1, -1)
    used = values.is_output.copy()
    used[value] = True
    missing = ~values.known[what] & used[what]
    unknown = np.bincount(on[missing], minlength=num_devices)
    first_unknown = group_min(what[missing], on[missing], num_devices, -1)
    return Footprint(
        weights, peak, peak_node.astype(np.int32), unknown.astype(np.int64), first_unknown.astype(np.int32)
    )


def order_of_steps(subgraph_of: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """intp [num_nodes] each: the nodes in the order in which they run, and the step of each node."""
    order = np.argsort(subgraph_of, kind="stable")
    step = np.empty(len(order), np.intp)
    step[order] = np.arange(len(order))
    return order, step


def _weights(values: Values, device: NDArray[np.integer], num_devices: int) -> NDArray[np.float64]:
    constant = values.is_constant[values.read_value]
    place = values.read_value[constant].astype(np.int64) * num_devices + device[values.read_node[constant]]
    pairs = np.unique(place)
    weights = np.bincount(pairs % num_devices, values.bytes[pairs // num_devices], num_devices).astype(np.float64)
    return weights + np.bincount(device, values.own, num_devices).astype(np.float64)
