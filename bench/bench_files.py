"""Models with weights outside: reading, planning and splitting 4 GB, beside copying the same bytes.

    python -m pytest bench/bench_files.py --benchmark-enable -s

Needs 14 GB of free disk where pytest puts its temporary files (``--basetemp``), else a smaller model is made, and the
page cache that the machine has. The model: 500 nodes, of which every third has a weight.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest

import hetero
from hetero.assign.affinity import Affinity
from hetero.partition import partition_graph

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


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    folder = tmp_path_factory.mktemp("files")
    megabytes = 4096 if shutil.disk_usage(folder).free > 14 << 30 else 256
    yield write_model(folder, megabytes)
    shutil.rmtree(folder)


# Not ru_maxrss, which a process inherits from the one that started it.
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
    """CPU seconds, MiB at most, and subgraphs: the median of five processes by time."""
    command = [sys.executable, "-c", _PEAK + script, *map(str, arguments)]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(5)]
    return sorted(runs)[2]


def bench_read_and_plan(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    seconds, peak, subgraphs = in_a_process(_READ_AND_PLAN, file)
    print(f"\nread and partition: {seconds * 1e3:.1f} ms, {peak:.0f} MiB at most, {subgraphs} subgraphs")
    assert seconds < 0.05
    assert peak < 100
    (tmp_path / "small").mkdir()
    small = write_model(tmp_path / "small", 1)
    seconds, peak, subgraphs = in_a_process(_CORE_PLAN, file, small)
    print(f"read and Core.plan, devices loaded: {seconds * 1e3:.1f} ms, {peak:.0f} MiB at most, {subgraphs} subgraphs")


def planned(model: hetero.Model) -> hetero.Plan:
    """Eight pieces of equal length, on devices that exist on paper only."""
    devices = tuple(f"D{i}" for i in range(PARTS))
    device_of = (np.arange(model.num_nodes) * PARTS // model.num_nodes).astype(np.int32)
    affinity = Affinity(devices, device_of, np.zeros(model.num_nodes, np.uint8), ({},) * PARTS)
    return hetero.Plan((model, affinity, partition_graph(model.graph, device_of)), None, "auto", model)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the wall and of the CPU."""
    os.sync()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def copy_synced(source: pathlib.Path, target: pathlib.Path) -> None:
    shutil.copyfile(source, target)
    with open(target, "rb") as stream:
        os.fsync(stream.fileno())


def bench_split(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Interleaved rounds: `shutil.copyfile` of the weights and sync, then `split`, which syncs too."""
    weights = file.with_name("weights.bin")
    model = hetero.Core().read_model(file)
    plan = planned(model)
    assert plan.num_subgraphs == PARTS
    rounds = []
    for number in range(2):
        copied = timed(lambda: copy_synced(weights, tmp_path / "copy.bin"))
        (tmp_path / "copy.bin").unlink()
        parts = tmp_path / f"parts{number}"
        written = timed(lambda parts=parts: hetero.split(model, plan, parts))
        assert sum(path.stat().st_size for path in parts.iterdir()) >= weights.stat().st_size
        shutil.rmtree(parts)
        rounds.append((copied, written))
    size = weights.stat().st_size / 1e9
    for copied, written in rounds:
        print(
            f"\n{size:.1f} GB: copy {copied[0]:.2f} s ({copied[1]:.2f} s CPU), split into {PARTS}: {written[0]:.2f} s "
            f"({written[1]:.2f} s CPU): {copied[0] / written[0]:.2f} of the copy's speed",
            end="",
        )
    print()
    assert max(copied[0] / written[0] for copied, written in rounds) >= 0.5
