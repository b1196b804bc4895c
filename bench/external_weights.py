"""A model with its weights in another file: reading, planning and splitting, beside copying the same bytes.

    python bench/external_weights.py
    python bench/external_weights.py --megabytes 256

The model has 500 nodes, a third of them with a weight. With the default of 4 GB, it needs 14 GB of free disk in the
folder of temporary files (``TMPDIR``).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import onnx

import hetero
from hetero.base.formatting import byte_size, duration
from table import Table

NODES = 500
PARTS = 8
WEIGHTS = NODES // 3 + 1


def write_model(folder: pathlib.Path, megabytes: int) -> pathlib.Path:
    """MatMul, Add, Relu in turn; weights of random bytes in one file."""
    columns = 1024
    rows = megabytes * (1 << 20) // WEIGHTS // (4 * columns)
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.add(domain="", version=20)
    graph = model.graph
    graph.name = "main_graph"
    block = np.random.default_rng(0).bytes(rows * columns * 4)
    before = "x"
    with open(folder / "weights.bin", "wb") as stream:
        for i in range(NODES):
            node = graph.node.add(name=f"/layers.{i // 3}/node_{i % 3}", op_type=("MatMul", "Add", "Relu")[i % 3])
            node.input.append(before)
            if i % 3 == 0:
                weight = graph.initializer.add(name=f"w{i}", data_type=1, dims=[columns, rows])
                weight.data_location = onnx.TensorProto.EXTERNAL
                entries = {"location": "weights.bin", "offset": str(stream.tell()), "length": str(len(block))}
                for key, value in entries.items():
                    weight.external_data.add(key=key, value=value)
                stream.write(block)
                node.input.append(weight.name)
            elif i % 3 == 1:
                node.input.append(before)
            before = f"v{i}"
            node.output.append(before)
    for ports, name in ((graph.input, "x"), (graph.output, before)):
        port = ports.add(name=name)
        port.type.tensor_type.elem_type = 1
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


# Not ru_maxrss, which starts at the value of the parent process.
_PEAK = """
def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
"""

_READ_AND_PLAN = """
import json, sys, time
import numpy as np
import hetero
from hetero.model.read import read_model
from hetero.partition import partition_graph
begin = time.process_time()
model = read_model(sys.argv[1])
device = np.repeat(np.arange(8, dtype=np.int32), -(-model.num_nodes // 8))[: model.num_nodes]
partition = partition_graph(model.graph, device)
took = time.process_time() - begin
print(json.dumps([took, peak(), partition.num_subgraphs]))
"""

_CORE_PLAN = """
import json, sys, time
import hetero
core = hetero.Core()
core.plan(core.read_model(sys.argv[2]), "HETERO:TEMPLATE,CPU")
begin = time.process_time()
model = core.read_model(sys.argv[1])
plan = core.plan(model, "HETERO:TEMPLATE,CPU")
took = time.process_time() - begin
print(json.dumps([took, peak(), plan.num_subgraphs]))
"""


def in_a_process(script: str, *arguments: pathlib.Path) -> list[float]:
    """CPU seconds, peak MiB, and subgraphs, of the process with the median time among five."""
    command = [sys.executable, "-c", _PEAK + script, *map(str, arguments)]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(5)]
    return sorted(runs)[2]


def planned(core: hetero.Core, model: hetero.Model) -> hetero.Plan:
    """Eight pieces of equal length, on two devices in turn."""
    pins = {key: f"CPU.{number * PARTS // model.num_nodes % 2}" for number, key in enumerate(model.keys)}
    return core.plan(model, "HETERO:CPU.0,CPU.1", pins=pins)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Elapsed seconds, and CPU seconds."""
    os.sync()
    elapsed, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - elapsed, time.process_time() - cpu


def copy_synced(source: pathlib.Path, target: pathlib.Path) -> None:
    shutil.copyfile(source, target)
    with open(target, "rb") as stream:
        os.fsync(stream.fileno())


def external_weights(megabytes: int, rounds: int = 2) -> Table:
    """The interleaved rounds of copying and splitting sync the written files; the table shows the minimum."""
    table = Table("", "CPU time", "elapsed", "peak memory")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        file = write_model(folder, megabytes)
        (folder / "small").mkdir()
        small = write_model(folder / "small", 1)
        weights = file.with_name("weights.bin")
        size = byte_size(weights.stat().st_size)
        for row, script, arguments in (
            (f"{size}: read and partition into {PARTS}", _READ_AND_PLAN, (file,)),
            ("read and `Core.plan` for `HETERO:TEMPLATE,CPU`, devices loaded", _CORE_PLAN, (file, small)),
        ):
            seconds, peak, _ = in_a_process(script, *arguments)
            table.add(row, duration(seconds), "", f"{peak:.0f} MiB")
        core = hetero.Core()
        model = core.read_model(file)
        plan = planned(core, model)
        assert plan.num_subgraphs == PARTS
        copies, splits = [], []
        for number in range(rounds):
            copies.append(timed(lambda: copy_synced(weights, folder / "copy.bin")))
            (folder / "copy.bin").unlink()
            parts = folder / f"parts{number}"
            splits.append(timed(lambda parts=parts: hetero.split(model, plan, parts)))
            assert sum(path.stat().st_size for path in parts.iterdir()) >= weights.stat().st_size
            shutil.rmtree(parts)
    for row, runs in (
        ("`shutil.copyfile` of the weights, and sync", copies),
        (f"`hetero.split` into {PARTS}, synced", splits),
    ):
        elapsed, cpu = (min(column) for column in zip(*runs, strict=True))
        table.add(row, duration(cpu), duration(elapsed), "")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=4096, help="of weights")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    external_weights(arguments.megabytes, arguments.rounds).print()


if __name__ == "__main__":
    main()
