"""Policies, the steps that they share once nodes have labels, and the verifier: interface to the C code of
``partition/``.

Arrays from callers are copied and checked as in ``_graph``; every computation releases the GIL once.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from hetero._graph cimport (
    Csr, device_array, finish, frozen, in8, in32, label_array, new_watch, node_array, out32, weights_or_null,
)
from partition_c cimport *

import numpy as np

from hetero.errors import PartitionError

POLICY_NUMBER = {"auto": 0, "linear": 1, "documented": 2, "depth_height": 3}

ACTIONS = {HG_ROOT: "root", HG_MERGE: "merge", HG_FAIL: "fail", HG_ROLLBACK: "rollback", HG_CHOOSE: "choose"}

RULES = {
    HG_BAD_ID: "id",
    HG_UNUSED_ID: "unused id",
    HG_MIXED_DEVICES: "one device",
    HG_DISCONNECTED: "connected",
    HG_NOT_CONVEX: "convex",
    HG_CYCLIC: "acyclic",
    HG_UNORDERED: "ordered",
    HG_NOT_MAXIMAL: "maximal",
}


cdef int finish_documented(int status, int32_t n) except -1:
    if status == HG_OVER_BUDGET:
        raise PartitionError(
            f"policy 'documented' keeps the transitive closure, which for this graph of {n} nodes takes more than "
            f"{HG_DOCUMENTED_BYTES} bytes: use policy 'auto', which handles graphs of any size"
        )
    return finish(status)


def device_numbers(Csr csr not None, device):
    """A copy of the device numbers as uint8 [n]. PartitionError unless there is one per node, each 0 to 254."""
    return device_array(device, csr.c.n)


def partition(Csr csr not None, str policy, device, const double[::1] weight, bint thorough=True):
    """(subgraph_of int32 [n], device_of int32 [k], cut edges, cut weight, maximal) of a policy.

    `weight`: None, or the result of `Csr.edge_weights`. `thorough`: False skips the search of policy `auto` for fewer
    subgraphs than it finds first. `maximal`: True if it is known that no two adjacent subgraphs
    of a device can be merged. Only policy `auto` determines this, and only if its searches finish within their step
    limits.
    """
    cdef const uint8_t[::1] numbers = device_array(device, csr.c.n)
    cdef const uint8_t *devices = in8(numbers)
    cdef const double *weights = weights_or_null(weight)
    subgraph_of = np.empty(csr.c.n, np.int32)
    device_of = np.empty(csr.c.n, np.int32)
    cdef int32_t *labels = out32(subgraph_of)
    cdef int32_t *label_device = out32(device_of)
    cdef int which = POLICY_NUMBER[policy]
    cdef int32_t count = 0
    cdef int64_t cut = 0
    cdef double total = 0
    cdef int status, maximal = 0
    cdef hg_watch watch = new_watch()
    with nogil:
        if which == 0:
            status = hg_auto(&csr.c, devices, weights, thorough, labels, label_device, &count, &maximal, &watch)
        elif which == 1:
            status = hg_linear(&csr.c, devices, labels, label_device, &count, &cut, &watch)
        elif which == 3:
            status = hg_depth_height(&csr.c, devices, labels, label_device, &count, &cut, &watch)
        else:
            status = hg_documented(&csr.c, devices, labels, &count, NULL, &watch)
            if status == HG_OK:
                status = hg_number(&csr.c, devices, count, labels, label_device, &watch)
        total = <double>cut
        if status == HG_OK and ((which != 1 and which != 3) or weights != NULL):
            status = hg_cut(&csr.c, labels, weights, &cut, &total, &watch)
    finish_documented(status, csr.c.n)
    return subgraph_of, device_of[:count].copy(), cut, total, maximal != 0


def lower_bound(Csr csr not None, device):
    """A number of subgraphs that no valid partition is below."""
    cdef const uint8_t[::1] numbers = device_array(device, csr.c.n)
    cdef const uint8_t *devices = in8(numbers)
    cdef int32_t bound = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_lower_bound(&csr.c, devices, &bound, &watch)
    finish(status)
    return bound


def documented_steps(Csr csr not None, device):
    """The steps of policy `documented`: a list of (action, node)."""
    cdef const uint8_t[::1] numbers = device_array(device, csr.c.n)
    cdef const uint8_t *devices = in8(numbers)
    label = np.empty(csr.c.n, np.int32)
    cdef int32_t *labels = out32(label)
    cdef int32_t count = 0
    cdef hg_trace steps
    cdef int status
    cdef int64_t i
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_documented(&csr.c, devices, labels, &count, &steps, &watch)
    finish_documented(status, csr.c.n)
    try:
        return [(ACTIONS[steps.actions[i]], steps.nodes[i]) for i in range(steps.count)]
    finally:
        hg_trace_free(&steps)


def limit(Csr csr not None, device, const double[::1] weight, label, int32_t max_nodes, bint across):
    """Splits every subgraph of the topological ids `label` that has more than max_nodes nodes: (subgraph_of, device_of,
    cut edges, cut weight)."""
    cdef const uint8_t[::1] numbers = device_array(device, csr.c.n)
    cdef const uint8_t *devices = in8(numbers)
    cdef const double *weights = weights_or_null(weight)
    subgraph_of = node_array(label, csr.c.n, "subgraph_of")
    device_of = np.empty(csr.c.n, np.int32)
    cdef int32_t *labels = out32(subgraph_of)
    cdef int32_t *label_device = out32(device_of)
    cdef int32_t count = <int32_t>(subgraph_of.max() + 1) if csr.c.n else 0
    cdef int64_t cut = 0
    cdef double total = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_limit(&csr.c, devices, weights, max_nodes, across, labels, label_device, &count, &watch)
        if status == HG_OK:
            status = hg_cut(&csr.c, labels, weights, &cut, &total, &watch)
    finish(status)
    return subgraph_of, device_of[:count].copy(), cut, total


def fall_back(uint8_t[::1] device not None, label, int32_t count, const int64_t[::1] min_nodes not None,
              const uint8_t[:, ::1] allowed not None):
    """Moves subgraphs that are too small from the first device that has any to later devices, in `device`. Returns
    False if none can move.

    `device`: from `device_numbers`, each less than the number of columns of `allowed` [n, devices].
    """
    cdef int32_t n = <int32_t>device.shape[0]
    cdef int columns = <int>min_nodes.shape[0]
    numbers = node_array(label, count, "subgraph_of")
    if numbers.shape[0] != n or allowed.shape[0] != n or allowed.shape[1] != columns:
        raise ValueError("arrays that do not belong together")
    if n == 0:
        return False
    cdef const int32_t *labels = in32(numbers)
    cdef int moved = 0
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_fall_back(n, labels, count, &min_nodes[0], columns, &allowed[0, 0], &device[0], &moved, &watch)
    finish(status)
    return moved != 0


def members(label, int32_t count):
    """(start [count + 1], nodes [n]), read-only int32: the nodes of subgraph i, ascending, are nodes[start[i]:start[i +
    1]]."""
    numbers = node_array(label, count, "subgraph_of")
    cdef const int32_t *labels = in32(numbers)
    cdef int32_t n = <int32_t>numbers.shape[0]
    start = np.empty(<int64_t>count + 1, np.int32)
    member = np.empty(n, np.int32)
    cdef int32_t *starts = out32(start)
    cdef int32_t *nodes = out32(member)
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_members(n, labels, NULL, count, starts, nodes, &watch)
    finish(status)
    return frozen(start), frozen(member)


def check(Csr csr not None, device, label, bint maximal, bint ordered):
    """None for a valid partition, else (rule, a, b, witness int32 []): see `hetero.partition.check`."""
    cdef const uint8_t[::1] numbers = device_array(device, csr.c.n)
    cdef const uint8_t *devices = in8(numbers)
    ids = label_array(label, csr.c.n)
    cdef const int32_t *labels = in32(ids)
    witness = np.empty(2 * <int64_t>csr.c.n + 2, np.int32)
    cdef int32_t *nodes = out32(witness)
    cdef hg_verdict verdict
    cdef int flags = (HG_CHECK_MAXIMAL if maximal else 0) | (HG_CHECK_ORDERED if ordered else 0)
    cdef int status
    cdef hg_watch watch = new_watch()
    with nogil:
        status = hg_check(&csr.c, devices, labels, flags, &verdict, nodes, &watch)
    finish(status)
    if verdict.rule == HG_VALID:
        return None
    return RULES[verdict.rule], verdict.a, verdict.b, witness[:verdict.length].copy()
