"""Reading a file, beside onnx.load of the same file; extracting parts; types of values.

    python bench/reading.py files
    python bench/reading.py types

The files are 15-node transformer blocks with names as exporters write them, 120 bytes a node. "Varied" files also have
100 distinct operators, and long names and attributes on 3 % of the nodes.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest.mock
from collections.abc import Sequence

import numpy as np
import onnx
import onnx.shape_inference

from hetero.base.formatting import byte_size, duration
from hetero.model.read import read_model
from hetero.partition import partition_graph
from table import Table
from timing import Work, cpu_time_with_children, medians, medians_by_clock

SIZES = [10_000, 100_000, 1_000_000]

# (name below the block, operator, reads: nodes of the block by name, "<" = the block's input; weights of its own)
BLOCK = [
    ("ln1/LayerNormalization", "LayerNormalization", ["<"], ["ln1.weight", "ln1.bias"]),
    ("attn/query/MatMul", "MatMul", ["ln1/LayerNormalization"], ["attn.query.weight"]),
    ("attn/key/MatMul", "MatMul", ["ln1/LayerNormalization"], ["attn.key.weight"]),
    ("attn/value/MatMul", "MatMul", ["ln1/LayerNormalization"], ["attn.value.weight"]),
    ("attn/MatMul", "MatMul", ["attn/query/MatMul", "attn/key/MatMul"], []),
    ("attn/Mul", "Mul", ["attn/MatMul"], ["attn.scale"]),
    ("attn/Softmax", "Softmax", ["attn/Mul"], []),
    ("attn/MatMul_1", "MatMul", ["attn/Softmax", "attn/value/MatMul"], []),
    ("attn/out/MatMul", "MatMul", ["attn/MatMul_1"], ["attn.out.weight"]),
    ("Add", "Add", ["attn/out/MatMul", "<"], []),
    ("ln2/LayerNormalization", "LayerNormalization", ["Add"], ["ln2.weight", "ln2.bias"]),
    ("mlp/fc1/MatMul", "MatMul", ["ln2/LayerNormalization"], ["mlp.fc1.weight"]),
    ("mlp/act/Gelu", "Gelu", ["mlp/fc1/MatMul"], []),
    ("mlp/fc2/MatMul", "MatMul", ["mlp/act/Gelu"], ["mlp.fc2.weight"]),
    ("Add_1", "Add", ["mlp/fc2/MatMul", "Add"], []),
]


def write_model(path: pathlib.Path, num_nodes: int, kind: str) -> None:
    """A chain of blocks. Weights have one element each, so the file is nearly all structure."""
    rng = random.Random(0)
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.add(domain="", version=20)
    model.opset_import.add(domain="custom", version=1)
    graph = model.graph
    graph.name = "main_graph"
    for ports, name in (
        (graph.input, "input"),
        (graph.output, f"/layers.{num_nodes // len(BLOCK) - 1}/Add_1_output_0"),
    ):
        port = ports.add(name=name)
        port.type.tensor_type.elem_type = 1
        port.type.tensor_type.shape.dim.add().dim_param = "n"
        port.type.tensor_type.shape.dim.add().dim_value = 1
    before = "input"
    for layer in range(num_nodes // len(BLOCK)):
        prefix = f"/layers.{layer}/"
        for name, op, reads, weights in BLOCK:
            node = graph.node.add(name=prefix + name, op_type=op)
            node.input.extend(before if read == "<" else f"{prefix}{read}_output_0" for read in reads)
            for weight in weights:
                full = f"layers.{layer}.{weight}"
                graph.initializer.add(name=full, data_type=1, dims=[1, 1], raw_data=b"\0\0\0\0")
                node.input.append(full)
            node.output.append(f"{prefix}{name}_output_0")
            if op == "Softmax":
                node.attribute.add(name="axis", i=-1, type=onnx.AttributeProto.INT)
            if kind == "varied":
                node.op_type, node.domain = f"{op}{rng.randrange(15)}", "custom"
                if rng.random() < 0.03:
                    node.name += "/" + "x" * 300
                    node.attribute.add(name="table", ints=range(100), type=onnx.AttributeProto.INTS)
        before = f"{prefix}Add_1_output_0"
    path.write_bytes(model.SerializeToString())


def read_and_graph(path: pathlib.Path) -> int:
    return read_model(path).graph.num_edges


def read_and_partition(path: pathlib.Path) -> int:
    """With every seventh node on a second device."""
    graph = read_model(path).graph
    device = (np.arange(graph.num_nodes) % 7 == 0).astype(np.int32)
    return partition_graph(graph, device).num_subgraphs


def peak_memory(path: pathlib.Path) -> float:
    """Peak resident memory in MiB of a process that reads the file and partitions the graph, with the mapped file."""
    script = (
        "import sys; import numpy as np; from hetero.model.read import read_model;"
        "from hetero.partition import partition_graph; graph = read_model(sys.argv[1]).graph;"
        "partition_graph(graph, (np.arange(graph.num_nodes) % 7 == 0).astype(np.int32));"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    answer = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True)
    return int(answer.stdout) / 1024


def files(sizes: Sequence[int], rounds: int = 5) -> Table:
    table = Table("nodes", "file", "`onnx.load`", "read", "… and graph", "… and partition", "ratio", "peak")
    with tempfile.TemporaryDirectory() as folder:
        for size, kind in itertools.product(sizes, ("blocks", "varied")):
            path = pathlib.Path(folder) / f"{kind}-{size}.onnx"
            write_model(path, size, kind)
            works: dict[str, Work] = {
                work.__name__: functools.partial(work, path)
                for work in (onnx.load, read_model, read_and_graph, read_and_partition)
            }
            times = list(medians(works, rounds, seconds=20).values())
            table.add(
                f"{size:,} {kind}",
                byte_size(path.stat().st_size),
                *map(duration, times),
                f"{times[-1] / times[0]:.2f}",
                f"{peak_memory(path):.0f} MiB",
            )
            path.unlink()
    return table


def types(nodes: int, rounds: int = 9) -> Table:
    """Parts, and the types of all nodes' outputs, beside onnx's inference of the same skeleton; with child
    processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        write_model(path, nodes, "blocks")
        model = read_model(path)
        skeleton = model.to_bytes(max_constant_bytes=1024)
        starts = range(0, model.num_nodes - 99, 100)
        parts = [model.extract(range(at, at + 100)) for at in starts]

        def read_types() -> None:
            one = read_model(skeleton)
            for value in one.node_outputs.values.tolist():
                one.type_of(value)

        def in_a_child() -> None:  # as for models with operators that could make inference run without bound
            with unittest.mock.patch("hetero.model.inference.is_harmless", return_value=False):
                read_types()

        reference = "`onnx.shape_inference` of the skeleton"
        works: dict[str, Work] = {
            f"extract {len(starts):,} parts of 100 nodes": lambda: [model.extract(range(n, n + 100)) for n in starts],
            "the same parts as ONNX bytes": lambda: [part.to_bytes() for part in parts],
            reference: lambda: onnx.shape_inference.infer_shapes(skeleton, data_prop=True),
            "read and `type_of` of all": read_types,
            "the same, in a child process": in_a_child,
        }
        (times,) = medians_by_clock(works, (cpu_time_with_children,), rounds, seconds=30)
    table = Table(f"{nodes:,} nodes", "CPU time", "ratio")
    for number, (name, seconds) in enumerate(times.items()):
        table.add(name, duration(seconds), f"{seconds / times[reference]:.2f}" if number >= 2 else "")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("files", "types"))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="NODES", help="for files")
    parser.add_argument("--nodes", type=int, default=100_000, help="for types")
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    if arguments.what == "files":
        files(arguments.sizes, arguments.rounds or 5).print()
    else:
        types(arguments.nodes, arguments.rounds or 9).print()


if __name__ == "__main__":
    main()
