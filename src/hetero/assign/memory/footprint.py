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

from .values import Values

__all__ = ["Footprint", "footprint"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """The memory that each of k devices needs.

    ``weights``: float64 [k], bytes of the constants that its nodes read, each once. ``activations``: float64 [k], the
    peak bytes of other values that are alive at the same time. ``peak_node``: int32 [k], the node that runs at the
    peak, -1 if nothing is alive. ``unknown``: int64 [k], values of unknown size, which count as 0 bytes; values that
    nothing reads, such as masks of Dropout, are left out. ``first_unknown``: int32 [k], one of these, -1 if there are
    none.
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
    each subgraph begins and ends, if subgraphs on different devices run in parallel: a value then stays on its
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
    parts = values.arrays.footprint(
        subgraph, device_of_subgraph, latest, num_devices, values.bytes_inside, values.known
    )
    return Footprint(*parts)
