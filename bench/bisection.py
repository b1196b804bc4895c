"""`hetero compare --nodes`, which bisects a large model, beside the comparison of its outputs only.

    python bench/bisection.py
    python bench/bisection.py --nodes 20000

Each model computes exactly up to one node, and CPU and onnxruntime round the result of that node differently. CPU time
of the whole command, with its start.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import onnx
from onnx import TensorProto, helper

from hetero.base.formatting import duration
from table import Table
from timing import cpu_time_with_children

_EXACT = ("Add", "Abs", "Neg")  # keeps small integers small


def write_model(path: pathlib.Path, num_nodes: int, at: int) -> None:
    """A chain of elementwise operators whose node ``at`` is a Tanh."""
    nodes = []
    for number in range(num_nodes):
        op = "Tanh" if number == at else _EXACT[number % len(_EXACT)]
        read = [f"v{number}", "one"] if op == "Add" else [f"v{number}"]
        nodes.append(helper.make_node(op, read, [f"v{number + 1}"], name=f"n{number}"))
    ports = (helper.make_tensor_value_info(f"v{number}", TensorProto.FLOAT, [1000]) for number in (0, num_nodes))
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [0.125])
    graph = helper.make_graph(nodes, "chain", *([port] for port in ports), [one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def compare(path: pathlib.Path, *options: str) -> tuple[dict[str, object], float]:
    """The result of `hetero compare` without tolerance, and its CPU seconds."""
    command = ["compare", str(path), "-d", "CPU", "-d", "ORT", "--rtol", "0", "--atol", "0", "--json", *options]
    before = cpu_time_with_children()
    done = subprocess.run([sys.executable, "-m", "hetero", *command], stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout), cpu_time_with_children() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[5_000, 20_000])
    table = Table("nodes", "first that differs", "outputs only", "--nodes", "ratio")
    with tempfile.TemporaryDirectory() as folder:
        for num_nodes in parser.parse_args().nodes:
            for at in (num_nodes // 100, num_nodes // 2, num_nodes - 2):
                path = pathlib.Path(folder, f"{num_nodes}_{at}.onnx")
                write_model(path, num_nodes, at)
                outputs, plain = compare(path)
                found, bisected = compare(path, "--nodes")
                first = found["first_node"]
                if outputs["passed"] or not isinstance(first, dict) or first["node"] != f"n{at}":
                    raise SystemExit(f"expected n{at} to differ, found {first}")
                table.add(f"{num_nodes:,}", f"{at:,}", duration(plain), duration(bisected), f"{bisected / plain:.1f}")
    table.print()


if __name__ == "__main__":
    main()
