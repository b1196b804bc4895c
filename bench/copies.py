"""Memory of a model and its worker process (``ISOLATION=PROCESS``), by where the weights come from.

    python bench/copies.py                   # a model with 400 MB of weights
    python bench/copies.py --megabytes 100

A process of its own reads, compiles and runs each model, drops everything but the compiled model, and adds up its
proportional set size (PSS) with those of the worker and of the process that forks workers (``smaps_rollup``).
"Shared" also counts pages of the shared memory that no process maps at the moment. "Kept" is anonymous and shared
memory, which the system can only swap; it drops the pages of files when it needs the memory. All figures are
differences from a model of one node that is compiled in the same way.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import hetero
from table import Table

WIDTH = 2048
MB = 1e6
SOURCES = {"file": "model.onnx", "external data": "external.onnx", "bytes": "model.onnx"}
ISOLATION = ("NONE", "PROCESS")


def products(layers: int) -> onnx.ModelProto:
    """A chain of matrix products with 16.8 MB of weights each; without layers, one node."""
    random = np.random.default_rng(0)
    value = helper.make_tensor_value_info
    weights = [(random.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32) for _ in range(layers)]
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(layers)]
    nodes.append(helper.make_node("Relu", [f"v{layers}"], ["y"]))
    initializers = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "m", [value("v0", 1, [1, WIDTH])], [value("y", 1, [1, WIDTH])], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rollup(process: int) -> dict[str, float]:
    """The anonymous, file-backed and shared PSS of a process in MB."""
    lines = (line.split() for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
    sizes = {line[0].rstrip(":"): int(line[1]) * 1024 / MB for line in lines}
    return {name: sizes[f"Pss_{name}"] for name in ("Anon", "File", "Shmem")}


def measure(source: str, path: Path, isolation: str) -> dict[str, float]:
    """Run the model in this process. Returns the memory in MB."""
    core = hetero.Core()
    model = core.read_model(path.read_bytes() if source == "bytes" else path)
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "ISOLATION": isolation})
    x = np.ones((1, WIDTH), np.float32)
    for _ in range(3):
        compiled(x)
    del model
    gc.collect()
    processes, shared = [os.getpid()], 0.0
    if isolation == "PROCESS":
        from hetero.workers.fork_server import fork_server
        from hetero.workers.isolated import _pool

        processes += [compiled.process, fork_server.get()._process.pid]
        shared = os.fstat(_pool.get().descriptor).st_blocks * 512 / MB
    totals = [rollup(process) for process in processes]
    sums = {name: sum(total[name] for total in totals) for name in totals[0]}
    sums["Shmem"] = max(sums["Shmem"], shared)
    return sums


def measured(source: str, isolation: str, folder: Path) -> dict[str, float]:
    """`measure` in a process of its own, less the memory of a model of one node."""
    found = []
    for size in ("large", "small"):
        path = folder / size / SOURCES[source]
        command = [sys.executable, __file__, "--measure", source, str(path), isolation]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {name: found[0][name] - found[1][name] for name in found[0]}


def copies(megabytes: float = 400) -> Table:
    table = Table("weights from", "isolation", "PSS, MB", "anonymous", "shared", "file", "kept ÷ weights")
    layers = max(1, round(megabytes * MB / (4 * WIDTH * WIDTH)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size, model in (("large", products(layers)), ("small", products(0))):
            (folder / size).mkdir()
            onnx.save(model, folder / size / "model.onnx")
            hetero.Core().read_model(model).save(folder / size / "external.onnx", external_above=1024)
        weights = layers * 4 * WIDTH * WIDTH / MB
        for source in SOURCES:
            for isolation in ISOLATION:
                sizes = measured(source, isolation, folder)
                cells = [sum(sizes.values()), sizes["Anon"], sizes["Shmem"], sizes["File"]]
                kept = (sizes["Anon"] + sizes["Shmem"]) / weights
                table.add(source, isolation, *(f"{max(0.0, cell):.0f}" for cell in cells), f"{kept:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=400, help="size of the weights")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        source, path, isolation = arguments.measure
        print(json.dumps(measure(source, Path(path), isolation)))
    else:
        copies(arguments.megabytes).print()


if __name__ == "__main__":
    main()
