"""The memory that a partition needs on each device: constants, and the peak of the values that are alive.

Subgraphs run one after the other, or begin and end at given times. The nodes of a subgraph run in topological order.
This gives one order over all nodes and devices, the *steps*. A value is alive
- on the device that makes it, from the step that makes it until its last reader there has run; if other subgraphs read
  it, until the last of these has finished; an output of the model, until the end;
- on each other device that reads it, from the beginning of the first subgraph there that reads it until the end of the
  last, because the caller of a submodel holds its inputs. The same holds for inputs of the model.

Devices that fuse nodes or compute in place need less. Scratch memory of kernels is not counted. A difference array over
the steps gives all peaks in O(k * nodes + reads * log reads) for k devices.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.grouped import distinct, group_max, group_min
from .values import Values

__all__ = ["Footprint", "footprint", "order_of_steps"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """The memory that each of k devices needs.

    ``weights``: float64 [k], bytes of the constants that its nodes read, each once. ``activations``: float64 [k], the
    peak bytes of other values that are alive at one time. ``peak_node``: int32 [k], the node that runs at the peak, -1
    if nothing is alive. ``unknown``: int64 [k], values of unknown size, which count as 0 bytes; values that nothing
    reads, such as masks of Dropout, are left out. ``first_unknown``: int32 [k], one of these, -1 if there are none.
    """

    weights: NDArray[np.float64]
    activations: NDArray[np.float64]
    peak_node: NDArray[np.int32]
    unknown: NDArray[np.int64]
    first_unknown: NDArray[np.int32]

    @property
    def total(self) -> NDArray[np.float64]:
        """float64 [k]: bytes of weights and activations."""
        return self.weights + self.activations


def footprint(
    values: Values,
    subgraph_of: ArrayLike,
    device_of: ArrayLike,
    num_devices: int,
    times: tuple[ArrayLike, ArrayLike] | None = None,
) -> Footprint:
    """The memory that each device needs for one inference at a time.

    ``subgraph_of``: int [num_nodes], subgraphs numbered in the order in which they run. ``device_of``: int
    [num_subgraphs], a device number, 0 .. num_devices - 1, per subgraph. ``times``: float64 [num_subgraphs] each, when
    each subgraph begins and ends, if subgraphs on different devices run at the same time: a value then stays on its
    device while others begin there, until its readers elsewhere have ended. Default: one after the other.
    """
    subgraph = np.asarray(subgraph_of, np.int64)
    device_of_subgraph = np.asarray(device_of, np.int64)
    latest = np.arange(len(device_of_subgraph))  # the last subgraph that begins before each one ends
    if times is not None:
        begin_of, end_of = (np.asarray(each, np.float64) for each in times)
        sequence = np.argsort(begin_of, kind="stable")
        number = np.empty(len(sequence), np.int64)
        number[sequence] = np.arange(len(sequence))
        subgraph, device_of_subgraph = number[subgraph], device_of_subgraph[sequence]
        latest = np.maximum(latest, np.searchsorted(begin_of[sequence], end_of[sequence]) - 1)
    device = device_of_subgraph[subgraph]
    order, step = order_of_steps(subgraph)
    num_steps = np.bincount(subgraph, minlength=len(device_of_subgraph))
    last_step = np.cumsum(num_steps) - 1
    first_step = last_step + 1 - num_steps
    weights = _weights(values, device, num_devices)

    # On the device that makes a value: until its last reader, or the subgraph of a reader elsewhere, is done.
    num_values = len(values.producer)
    is_other = ~values.is_constant[values.read_value]
    value, reader = values.read_value[is_other], values.read_node[is_other]
    made = np.flatnonzero(values.producer >= 0)
    producer = values.producer[value]
    same_subgraph = (producer >= 0) & (subgraph[producer] == subgraph[reader])
    done = np.where(same_subgraph, step[reader], last_step[latest[subgraph[reader]]])
    until = np.full(num_values, -1)
    until[made] = step[values.producer[made]]
    np.maximum(until, group_max(done, value, num_values, -1), out=until)
    until[values.is_output] = max(0, values.num_nodes - 1)

    # On each other device that reads it: while the subgraphs there that read it run.
    elsewhere = (producer < 0) | (device[producer] != device[reader])
    key = value[elsewhere].astype(np.int64) * num_devices + device[reader[elsewhere]]
    by_key = np.argsort(key, kind="stable")  # nearly sorted by value already
    key = key[by_key]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    copies, reading_subgraph = key[begins], subgraph[reader[elsewhere]][by_key]
    arrives, leaves = begins, begins
    if len(begins):
        arrives = np.minimum.reduceat(first_step[reading_subgraph], begins)
        leaves = np.maximum.reduceat(last_step[reading_subgraph], begins)

    # All lives together: which value is on which device, from which step to which.
    held_value = np.concatenate([made, copies // num_devices])
    held_on = np.concatenate([device[values.producer[made]], copies % num_devices])
    begin = np.concatenate([step[values.producer[made]], arrives])
    end = np.concatenate([until[made], leaves])
    row = values.num_nodes + 1
    size = values.bytes[held_value]
    if values.bytes_inside is not None:
        leaves_subgraph = np.zeros(num_values, np.bool_)
        leaves_subgraph[value[~same_subgraph]] = True
        size[: len(made)] = np.where(
            leaves_subgraph[made], size[: len(made)], values.bytes_inside[held_on[: len(made)], made]
        )
    change = np.bincount(held_on * row + begin, size, num_devices * row)
    change -= np.bincount(held_on * row + end + 1, size, num_devices * row)
    alive = np.cumsum(change.reshape(num_devices, row), axis=1)
    peak_step = np.argmax(alive, axis=1)
    peak = alive[np.arange(num_devices), peak_step]
    peak_node = np.where(peak > 0, order[np.minimum(peak_step, max(0, len(order) - 1))] if len(order) else -1, -1)
    is_used = values.is_output.copy()
    is_used[value] = True
    is_unknown = ~values.known[held_value] & is_used[held_value]
    unknown = np.bincount(held_on[is_unknown], minlength=num_devices)
    first_unknown = group_min(held_value[is_unknown], held_on[is_unknown], num_devices, -1)
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
    is_constant = values.is_constant[values.read_value]
    key = values.read_value[is_constant].astype(np.int64) * num_devices + device[values.read_node[is_constant]]
    pairs = distinct(key)
    weights = np.bincount(pairs % num_devices, values.bytes[pairs // num_devices], num_devices).astype(np.float64)
    return weights + np.bincount(device, values.own, num_devices).astype(np.float64)
