"""Reading: file -> Model -> Graph, beside onnx.load of the same file.

    pytest bench/bench_read.py --benchmark-enable --benchmark-timer=time.process_time

The files are 15-node transformer blocks with names as exporters write them, 120 bytes a node; the second kind has 100
distinct operators and on 3 % of its nodes long names and attributes.
"""

from __future__ import annotations

import pathlib
import random
import subprocess
import sys
from collections.abc import Callable

import onnx
import pytest

from hetero.model.read import read_model

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
    before = "input"
    for layer in range(num_nodes // len(BLOCK)):
        prefix = f"/layers.{layer}/"
        for name, op, reads, weights in BLOCK:
            node = graph.node.add(name=prefix + name, op_type=op)
            node.input.extend(before if read == "<" else f"{prefix}{read}_output_0" for read in reads)
            for weight in weights:
                full = f"layers.{layer}.{weight}"
                graph.initializer.add(name=full, data_type=1, dims=[1], raw_data=b"\0\0\0\0")
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
    path = tmp_path_factory.mktemp("read") / "model.onnx"
    write_model(path, int(size), kind)
    request.node.user_properties.append(("bytes", path.stat().st_size))
    return path


def test_read_and_graph(benchmark: Callable[..., object], file: pathlib.Path) -> None:
    benchmark(lambda: read_model(file).graph)


def test_read(benchmark: Callable[..., object], file: pathlib.Path) -> None:
    benchmark(read_model, file)


def test_keys(benchmark: Callable[..., object], file: pathlib.Path) -> None:
    benchmark(lambda: read_model(file).keys)


def test_onnx_load(benchmark: Callable[..., object], file: pathlib.Path) -> None:
    benchmark(onnx.load, file)


def test_peak_memory(file: pathlib.Path) -> None:
    """Resident memory of a process that reads the file and makes the graph, the mapped file included."""
    script = (
        "import sys, resource; from hetero.model.read import read_model; model = read_model(sys.argv[1]); model.graph;"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    answer = subprocess.run([sys.executable, "-c", script, str(file)], check=True, capture_output=True, text=True)
    peak = int(answer.stdout) / 1024
    print(f"{file.stat().st_size / 1e6:.0f} MB file: {peak:.0f} MiB peak")
    assert peak < 600


def test_thousand_parts(benchmark: Callable[..., object], tmp_path: pathlib.Path) -> None:
    """Extract 1,000 parts of 100 nodes from 100,000."""
    write_model(tmp_path / "model.onnx", 100_000, "blocks")
    model = read_model(tmp_path / "model.onnx")
    benchmark(lambda: [model.extract(range(at, at + 99)) for at in range(0, 99_000, 99)])
