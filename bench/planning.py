"""Planning models of 100,000 nodes for ``HETERO:FPGA,CPU``, and what is asked of the plan. `python bench/planning.py`
prints a table of CPU times, child processes included: minima over three processes each.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphs import make

KINDS = ("transformer", "inception", "random", "chain")
NODES = 100_000


def model_of(kind: str, num_nodes: int) -> onnx.ModelProto:
    """Element-wise nodes along the edges of a generated graph; those of its second device are Exp and Max, which the
    FPGA lacks."""
    src, dst, device = make(kind, num_nodes)
    reads: list[list[str]] = [[] for _ in device]
    for source, target in zip(src.tolist(), dst.tolist(), strict=True):
        reads[target].append(f"v{source}")
    nodes = []
    for i, foreign in enumerate(device.tolist()):
        inputs = reads[i] or ["x"]
        own = "Relu" if len(inputs) == 1 else "Sum"
        op = ("Exp" if len(inputs) == 1 else "Max") if foreign else own
        nodes.append(helper.make_node(op, inputs, [f"v{i}"], f"/block{i // 14}/node_{i}"))
    last = np.setdiff1d(np.arange(len(device)), src)[:1000]
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, None) for i in last],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(path: str) -> None:
    """Prints CPU seconds, of each step in turn."""
    import hetero

    core = hetero.Core()
    found = [spent()]

    def done() -> None:
        found.append(spent())

    model = core.read_model(path)
    plan = core.plan(model, "HETERO:FPGA,CPU")
    done()
    plan.save(f"{path}.json")
    done()
    loaded = hetero.Plan.load(f"{path}.json")
    done()
    core.plan(model, loaded)
    done()
    str(plan)
    plan.explain(plan.subgraphs[1].nodes[0])
    done()
    plan.what_if(device_supports={"FPGA": ["Exp"]})
    done()
    plan.missing_ops()
    done()
    print(plan.num_subgraphs, *np.diff(found), spent())


def main() -> None:
    steps = ("read, plan", "save", "load", "bind", "print, explain", "what if", "missing ops", "process")
    print(f"| 100,000 nodes | subgraphs | {' | '.join(steps)} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = pathlib.Path(folder) / f"{kind}.onnx"
            onnx.save(model_of(kind, NODES), path)
            command = [sys.executable, __file__, str(path)]
            runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(3)]
            best = np.min([[float(word) for word in run.split()] for run in runs], axis=0)
            print(f"| {kind} | {int(best[0]):,} | " + " | ".join(f"{value:.2f} s" for value in best[1:]) + " |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        main()
