"""Planning models of 100,000 nodes for ``HETERO:FPGA,CPU``, and using the plan.

    python bench/planning.py

CPU times with child processes: the minimum of three processes each.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphs import make
from hetero.base.formatting import duration
from table import Table
from timing import cpu_time_with_children

if TYPE_CHECKING:
    import hetero

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


def register_npus(core: hetero.Core, count: int, flops_per_s: float, bytes_per_s: float) -> str:
    """Register equal simulated devices that support all operators of `model_of`; returns ``HETERO:`` with them."""
    folder = pathlib.Path(tempfile.mkdtemp())
    names = [f"NPU{number}" for number in range(count)]
    for name in names:
        profile = folder / f"{name}.toml"
        profile.write_text(
            f'name = "{name}"\nruns_on = "CPU"\n[ops]\nRelu = {{}}\nExp = {{}}\nSum = {{}}\nMax = {{}}\n'
            f"[cost]\nflops_per_s = {flops_per_s}\nbytes_per_s = {bytes_per_s}\nlaunch_s = 1e-5\n"
            "link_bytes_per_s = 1e10\n"
        )
        core.register_plugin(name, profile)
    return "HETERO:" + ",".join(names)


def measure(path: str) -> None:
    """Print the number of subgraphs, and the CPU seconds of each step."""
    import hetero

    core = hetero.Core()
    times = [cpu_time_with_children()]

    def done() -> None:
        times.append(cpu_time_with_children())

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
    print(plan.num_subgraphs, *np.diff(times), cpu_time_with_children())


def command_time(path: pathlib.Path, environment: Mapping[str, str], *options: str) -> float:
    """CPU seconds of ``hetero plan``: the minimum of three processes. An editable installation takes 0.2 s to check its
    files."""
    command = [sys.executable, "-m", "hetero", "plan", str(path), "-d", "HETERO:FPGA,CPU", *options]
    times = []
    for _ in range(3):
        begin = cpu_time_with_children()
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        times.append(cpu_time_with_children() - begin)
    return min(times)


def planning(kinds: Sequence[str] = KINDS, nodes: int = NODES) -> Table:
    steps = ("read, plan", "save", "load", "bind", "print, explain", "what if", "missing ops", "process")
    table = Table(f"{nodes:,} nodes", "subgraphs", *steps, "`hetero plan`", "`hetero plan --json`")
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            path = pathlib.Path(folder) / f"{kind}.onnx"
            onnx.save(model_of(kind, nodes), path)
            # The first process compiles the modules, as installing a wheel does.
            environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            command = [sys.executable, __file__, "--run", str(path)]
            runs = [
                subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
                for _ in range(3)
            ]
            best = np.min([[float(word) for word in run.split()] for run in runs], axis=0)
            commands = [command_time(path, environment), command_time(path, environment, "--json")]
            table.add(kind, f"{int(best[0]):,}", *map(duration, [*best[1:], *commands]))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--run", metavar="MODEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        measure(arguments.run)
    else:
        planning(arguments.kinds, arguments.nodes).print()


if __name__ == "__main__":
    main()
