"""Reading: file -> Model -> Graph -> partition, beside onnx.load of the same file; parts; types.

    python -m pytest bench/bench_read.py --benchmark-enable -s

The files are 15-node transformer blocks with names as exporters write them, 120 bytes a node; the second kind has 100
distinct operators and on 3 % of its nodes long names and attributes.
"""

from __future__ import annotations

import pathlib
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import pytest

from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.partition import partition_graph
from timing import Work, medians_by_clock

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
    """A chain of blocks; weights have one element each, so that the file is all structure."""
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


@pytest.fixture(scope="module", params=[f"{kind}-{size}" for size in SIZES for kind in ("blocks", "varied")])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    kind, size = request.param.split("-")
    path = tmp_path_factory.mktemp("read") / f"{kind}-{size}.onnx"
    write_model(path, int(size), kind)
    return path


def read_and_graph(path: pathlib.Path) -> int:
    return read_model(path).graph.num_edges


def read_and_partition(path: pathlib.Path) -> int:
    """With every seventh node on a second device."""
    graph = read_model(path).graph
    device = (np.arange(graph.num_nodes) % 7 == 0).astype(np.int32)
    return partition_graph(graph, device).num_subgraphs


def read_and_keys(path: pathlib.Path) -> int:
    return len(read_model(path).keys)


@pytest.mark.parametrize(
    "what", [onnx.load, read_model, read_and_graph, read_and_partition, read_and_keys], ids=lambda what: what.__name__
)
def bench_read(benchmark: Any, file: pathlib.Path, what: Callable[[pathlib.Path], object]) -> None:
    benchmark.group = f"read {file.stem}"
    benchmark.extra_info |= {
        "reference": what is onnx.load,
        "label": "onnx.load" if what is onnx.load else what.__name__,
    }
    benchmark.pedantic(what, (file,), rounds=5)


def bench_peak_memory(file: pathlib.Path) -> None:
    """Resident memory of a process that reads the file and partitions the graph, the mapped file included."""
    script = (
        "import sys; import numpy as np; from hetero.model.read import read_model;"
        "from hetero.partition import partition_graph; graph = read_model(sys.argv[1]).graph;"
        "partition_graph(graph, (np.arange(graph.num_nodes) % 7 == 0).astype(np.int32));"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    answer = subprocess.run([sys.executable, "-c", script, str(file)], check=True, capture_output=True, text=True)
    peak = int(answer.stdout) / 1024
    print(f"\n{file.stem}: {file.stat().st_size / 1e6:.0f} MB, {peak:.0f} MiB at most")
    assert peak < 600


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("parts") / "model.onnx"
    write_model(path, 100_000, "blocks")
    return read_model(path)


def bench_extract_thousand_parts(benchmark: Any, parsed: Model) -> None:
    """1,000 parts of 100 nodes, out of 100,000."""
    benchmark.pedantic(lambda: [parsed.extract(range(at, at + 100)) for at in range(0, 99_900, 100)], rounds=3)


def bench_thousand_parts_to_bytes(benchmark: Any, parsed: Model) -> None:
    parts = [parsed.extract(range(at, at + 100)) for at in range(0, 99_900, 100)]
    benchmark.pedantic(lambda: [part.to_bytes() for part in parts], rounds=3, warmup_rounds=1)


def cpu_time() -> float:
    """CPU seconds of this process and its children: inference may run in one."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def bench_types_of_all_outputs(parsed: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the skeleton and the types of all its nodes' outputs, beside onnx's inference of the same bytes."""
    skeleton = parsed.to_bytes(max_constant_bytes=1024)

    def types() -> None:
        model = read_model(skeleton)
        for value in model.node_outputs.values.tolist():
            model.type_of(value)

    def types_by_child() -> None:  # as for models with operators that could make inference run away
        with monkeypatch.context() as patched:
            patched.setattr("hetero.model.inference.is_harmless", lambda *model: False)
            types()

    reference = "onnx.shape_inference"
    works: dict[str, Work] = {
        reference: lambda: onnx.shape_inference.infer_shapes(skeleton, data_prop=True),
        "type_of of all": types,
        "type_of of all, in a child process": types_by_child,
    }
    (times,) = medians_by_clock(works, (cpu_time,), rounds=9, seconds=40)
    print("\n| types of 100,000 nodes | CPU time | ratio |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} s | {seconds / times[reference]:.2f} |")
