"""The same graphs through other partitioners. Rows of peers that are not installed say so.

    pip install '.[peers]'                     # torch (a CPU build will do) and openvino
    python bench/peers.py                      # 300, 1,000 and 3,000 nodes; 10 minutes, most of them time limits
    python bench/peers.py --sizes 10000 --kinds chain --limit 120

- torch.fx: CapabilityBasedPartitioner with and without ``skip_horizontal_fusion``. It serves one backend at a time, so
  it is run for each device in turn on the graph in which the subgraphs of the device before are fused
  (``fuse_partitions``), single-node partitions allowed; its subgraphs need not be connected.
- OpenVINO: HETERO over two CPU plugins, every node with an affinity. The subgraphs are those of its debug dump
  (``OPENVINO_HETERO_VISUALIZE``), and the time ends when that is written: compiling submodels is left out.

Each peer runs in a process of its own, within a time limit. CPU seconds of one run, the making of the peer's own
graph left out. "Valid": what `check_partition` says of the result.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphs
from hetero.base.formatting import duration
from hetero.errors import PartitionError
from hetero.partition import POLICIES, Graph, check_partition, partition_graph
from table import Table
from timing import medians

Ints = NDArray[np.integer]
KINDS = ("transformer", "inception", "random", "chain")


def sources_of(src: Ints, dst: Ints, n: int) -> list[list[int]]:
    sources: list[list[int]] = [[] for _ in range(n)]
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        sources[v].append(u)
    return sources


def report(seconds: float, label: list[int]) -> None:
    print(json.dumps({"seconds": seconds, "label": label}), flush=True)


def torch_fx(src: Ints, dst: Ints, device: Ints, skip_horizontal_fusion: bool) -> None:
    import torch
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    class OnDevice(OperatorSupportBase):  # type: ignore[misc]
        def __init__(self, number: int) -> None:
            self.number = number

        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return bool(node.meta.get("device") == self.number)

    def combine(*values: Any) -> Any:
        return values[0]

    n = len(device)
    read = np.zeros(n, bool)
    read[src] = True
    graph = torch.fx.Graph()
    graph_input = graph.placeholder("x")
    nodes: list[Any] = []
    for v, sources in enumerate(sources_of(src, dst, n)):
        node = graph.call_function(combine, tuple(nodes[u] for u in sources) or (graph_input,))
        node.meta |= {"number": v, "device": int(device[v])}
        nodes.append(node)
    graph.output(tuple(nodes[v] for v in range(n) if not read[v]))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)

    label = [-1] * n
    count = 0
    start = time.process_time()
    for number in sorted(set(device.tolist())):
        partitioner = CapabilityBasedPartitioner(
            module, OnDevice(number), allows_single_node_partition=True, skip_horizontal_fusion=skip_horizontal_fusion
        )
        parts = partitioner.propose_partitions()
        for part in parts:
            for node in part.nodes:
                label[node.meta["number"]] = count
            count += 1
        if number < device.max():
            module = partitioner.fuse_partitions(parts, prefix=f"device{number}_")
    report(time.process_time() - start, label)


def openvino(src: Ints, dst: Ints, device: Ints) -> None:
    import openvino as ov
    from openvino import opset13 as op

    n = len(device)
    read = np.zeros(n, bool)
    read[src] = True
    graph_input = op.parameter([-1], np.float32, name="x")
    nodes: list[Any] = []
    for v, sources in enumerate(sources_of(src, dst, n)):
        inputs = [nodes[u] for u in sources] or [graph_input]
        match len(inputs):
            case 1:
                node = op.relu(inputs[0])
            case 2:
                node = op.add(*inputs)
            case _:
                node = op.concat(inputs, 0)
        node.set_friendly_name(f"n{v}")
        node.get_rt_info()["affinity"] = f"CPU{device[v]}"
        nodes.append(node)
    results = []
    for v in np.flatnonzero(~read).tolist():
        results.append(op.result(nodes[v]))
        results[-1].get_rt_info()["affinity"] = f"CPU{device[v]}"
    graph_input.get_rt_info()["affinity"] = "CPU0"
    model = ov.Model(results, [graph_input], "model")

    core = ov.Core()
    library = Path(ov.__file__).parent / "libs" / "libopenvino_intel_cpu_plugin.so"
    names = [f"CPU{number}" for number in range(int(device.max()) + 1)]
    for name in names:
        core.register_plugin(str(library), name)

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        dump = Path("hetero_subgraphs_model.dot")
        start = time.process_time()

        def watch() -> None:
            while not (dump.exists() and dump.read_text().rstrip().endswith("}")):
                time.sleep(0.001)
            seconds = time.process_time() - start
            subgraph = dict(re.findall(r'label="n(\d+)\\n.*?subgraph=(\d+)\\n', dump.read_text()))
            report(seconds, [int(subgraph[str(v)]) for v in range(n)])
            os._exit(0)  # do not compile the submodels

        threading.Thread(target=watch, daemon=True).start()
        os.environ["OPENVINO_HETERO_VISUALIZE"] = "1"
        core.compile_model(model, "HETERO:" + ",".join(names))
        time.sleep(5)  # compiled before the watch looked: it still has to tell


PEERS: dict[str, tuple[str, Callable[[Ints, Ints, Ints], None]]] = {
    "torch.fx": ("torch", partial(torch_fx, skip_horizontal_fusion=False)),
    "torch.fx, skip_horizontal_fusion": ("torch", partial(torch_fx, skip_horizontal_fusion=True)),
    "OpenVINO HETERO": ("openvino", openvino),
}


def cells(graph: Graph, device: Ints, label: Sequence[int] | Ints) -> list[str]:
    """Subgraphs, edges cut, and whether the partition is valid."""
    labels = np.unique(label, return_inverse=True)[1]
    src = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    try:
        check_partition(graph, device, labels)
        valid = "yes"
    except PartitionError as error:
        valid = str(error).split(":")[0]
    return [f"{labels.max() + 1:,}", f"{(labels[src] != labels[graph.indices]).sum():,}", valid]


def peer_cells(peer: str, kind: str, size: int, limit: float, graph: Graph, device: Ints) -> list[str]:
    """Time and `cells` of a peer's answer, or why there is none."""
    if importlib.util.find_spec(PEERS[peer][0]) is None:
        return ["not installed", "", "", ""]
    command = [sys.executable, __file__, "--run", peer, kind, str(size)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return [f"> {limit:g} s", "", "", ""]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return [f"failed: {last[:80]}", "", "", ""]
    answer = json.loads(done.stdout.splitlines()[-1])
    return [duration(answer["seconds"]), *cells(graph, device, answer["label"])]


def peers(kinds: Sequence[str], sizes: Sequence[int], limit: float) -> Table:
    table = Table("kind", "nodes", "partitioner", "CPU time", "subgraphs", "cut edges", "valid")
    for size in sizes:
        for kind in kinds:
            src, dst, device = graphs.make(kind, size)
            graph = Graph.from_edges(src, dst, len(device))
            works = {policy: partial(partition_graph, graph, device, policy) for policy in POLICIES}
            first = [kind, f"{len(device):,}"]
            for policy, seconds in medians(works, rounds=9, seconds=2).items():
                label = works[policy]().subgraph_of
                table.add(*first, f"hetero `{policy}`", duration(seconds), *cells(graph, device, label))
                first = ["", ""]
            for peer in PEERS:
                table.add(*first, peer, *peer_cells(peer, kind, size, limit, graph, device))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=graphs.KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--sizes", nargs="+", type=int, default=[300, 1000, 3000], metavar="NODES")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="for a peer and a graph")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        peer, kind, size = arguments.run
        PEERS[peer][1](*graphs.make(kind, int(size)))
        return
    peers(arguments.kinds, arguments.sizes, arguments.limit).print()


if __name__ == "__main__":
    main()
