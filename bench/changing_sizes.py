"""Calls whose sizes change: decoding with a growing cache, texts and images of many sizes, beside onnxruntime.

    python bench/changing_sizes.py

One thread, median CPU time per call. "New size" is the additional time of a call with a new size over a repeated call,
per node of the model. It includes cache misses, because values are elsewhere in memory, so onnxruntime, which does not
plan, also takes additional time. "Planning" is the part of it that hetero computes, if a plan holds for the sizes: the
sizes of all values, the layout of the memory and the checks of all calls. Each model first runs a few sizes, so that it
has its plans.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hetero
import real_models
from hetero.base.formatting import duration
from sessions import onnxruntime_session
from table import Table

Inputs = dict[str, np.ndarray]
HEADS, HEAD, VOCABULARY = 8, 32, 1000
WIDTH = HEADS * HEAD


def decoder(layers: int) -> onnx.ModelProto:
    """A language model with a cache of keys and values, as exporters write it: the sizes come from Shape nodes."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    names = iter(range(1 << 30))

    def constant(array: np.ndarray) -> str:
        name = f"c{next(names)}"
        constants[name] = array
        return name

    def integers(*numbers: int) -> str:
        return constant(np.array(numbers, np.int64))

    def weights(rows: int, columns: int) -> str:
        return constant(rng.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(rows)))

    def node(op_type: str, *inputs: str, output: str = "", **attributes: object) -> str:
        nodes.append(helper.make_node(op_type, inputs, [output or f"n{next(names)}"], **attributes))
        return nodes[-1].output[0]

    def size(value: str, axis: int) -> str:
        return node("Gather", node("Shape", value), constant(np.array(axis, np.int64)))

    def vector(number: str) -> str:
        return node("Unsqueeze", number, integers(0))

    batch, length, past = size("ids", 0), size("ids", 1), size("k0", 2)
    total = node("Add", past, length)
    one, zero = constant(np.array(1, np.int64)), constant(np.array(0, np.int64))
    places = node("Range", past, total, one)
    later = node("Greater", node("Range", zero, total, one), node("Unsqueeze", places, integers(1)))
    mask = node("Where", later, constant(np.float32(-1e9)), constant(np.float32(0)))
    frequencies = constant((1e4 ** -(np.arange(HEAD) % (HEAD // 2) / (HEAD // 2))).astype(np.float32))
    angles = node("Mul", node("Unsqueeze", node("Cast", places, to=TensorProto.FLOAT), integers(1)), frequencies)
    cosine, sine = node("Cos", angles), node("Sin", angles)
    split = node("Concat", vector(batch), vector(length), integers(HEADS, HEAD), axis=0)
    joined = node("Concat", vector(batch), vector(length), integers(-1), axis=0)

    def normalized(x: str) -> str:
        mean = node("ReduceMean", node("Pow", x, constant(np.float32(2))), axes=[-1])
        root = node("Sqrt", node("Add", mean, constant(np.float32(1e-6))))
        return node("Mul", node("Div", x, root), constant(np.ones(WIDTH, np.float32)))

    def heads(x: str) -> str:
        return node("Transpose", node("Reshape", node("MatMul", x, weights(WIDTH, WIDTH)), split), perm=[0, 2, 1, 3])

    def rotated(x: str) -> str:
        low = node("Slice", x, integers(0), integers(HEAD // 2), integers(3))
        high = node("Slice", x, integers(HEAD // 2), integers(HEAD), integers(3))
        turned = node("Concat", node("Neg", high), low, axis=3)
        return node("Add", node("Mul", x, cosine), node("Mul", turned, sine))

    x = node("Gather", weights(VOCABULARY, WIDTH), "ids")
    for layer in range(layers):
        y = normalized(x)
        query = rotated(heads(y))
        key = node("Concat", f"k{layer}", rotated(heads(y)), axis=2, output=f"new k{layer}")
        value = node("Concat", f"v{layer}", heads(y), axis=2, output=f"new v{layer}")
        scores = node("MatMul", query, node("Transpose", key, perm=[0, 1, 3, 2]))
        scores = node("Add", node("Div", scores, constant(np.float32(np.sqrt(HEAD)))), mask)
        attended = node("MatMul", node("Softmax", scores, axis=-1), value)
        attended = node("Reshape", node("Transpose", attended, perm=[0, 2, 1, 3]), joined)
        x = node("Add", x, node("MatMul", attended, weights(WIDTH, WIDTH)))
        y = normalized(x)
        gate = node("MatMul", y, weights(WIDTH, 2 * WIDTH))
        gate = node("Mul", node("Mul", gate, node("Sigmoid", gate)), node("MatMul", y, weights(WIDTH, 2 * WIDTH)))
        x = node("Add", x, node("MatMul", gate, weights(2 * WIDTH, WIDTH)))
    node("MatMul", normalized(x), weights(WIDTH, VOCABULARY), output="logits")

    def cache(prefix: str, sizes: Sequence[int | str]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(f"{prefix}{kind}{layer}", TensorProto.FLOAT, sizes)
            for layer in range(layers)
            for kind in "kv"
        ]

    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "t"])]
    inputs += cache("", ["b", HEADS, "past", HEAD])
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "t", VOCABULARY])]
    outputs += cache("new ", ["b", HEADS, "total", HEAD])
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def step(layers: int, past: int, length: int = 1) -> Inputs:
    rng = np.random.default_rng(past)
    feeds = {"ids": rng.integers(0, VOCABULARY, (1, length))}
    for layer in range(layers):
        for kind in "kv":
            feeds[f"{kind}{layer}"] = rng.standard_normal((1, HEADS, past, HEAD), np.float32)
    return feeds


def image(height: int, width: int) -> Inputs:
    return {"x": np.random.default_rng(height).standard_normal((1, 3, height, width), np.float32)}


Case = tuple[str, Callable[[], onnx.ModelProto], list[Inputs], list[Inputs]]


def cases(quick: bool) -> Iterator[Case]:
    """Name, model, the sizes that come first, and the sizes that are measured."""
    layers, count = (2, 6) if quick else (16, 80)
    lengths = np.random.default_rng(0).permutation(np.arange(20, 500))
    yield (
        "decoding with a growing cache",
        lambda: decoder(layers),
        [step(layers, 0, 20), *(step(layers, past) for past in (20, 21, 300))],
        [step(layers, past) for past in range(22, 22 + count)],
    )
    if real_models.missing("MiniLM-L3") is None:
        yield (
            "MiniLM-L3, texts of 20 to 500 words",
            lambda: real_models.model_of("MiniLM-L3"),
            [real_models.tokens(int(length)) for length in (19, 18, 510, *lengths[:4])],
            [real_models.tokens(int(length)) for length in lengths[4 : 4 + count]],
        )
    if real_models.missing("PP-OCRv6_det_small") is None and not quick:
        sizes = np.random.default_rng(1).integers(3, 11, (count // 2, 2)) * 32
        yield (
            "PP-OCRv6_det_small, images of 96 to 320",
            lambda: real_models.model_of("PP-OCRv6_det_small"),
            [image(320, 320), *(image(*map(int, size)) for size in sizes[:10])],
            [image(*map(int, size)) for size in sizes[10:]],
        )


def measured(name: str, model: onnx.ModelProto, before: Sequence[Inputs], sizes: Sequence[Inputs]) -> tuple[str, ...]:
    data = model.SerializeToString()
    session = onnxruntime_session(data, 1)
    compiled = hetero.compile(data, "CPU", {"INFERENCE_NUM_THREADS": 1})
    request = compiled.create_infer_request()
    runs: dict[str, Callable[[Inputs], object]] = {
        "onnxruntime": lambda feeds: session.run(None, feeds),
        "CPU": request.infer,
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for feeds in before:
        for run in runs.values():
            run(feeds)
    for earlier, feeds in zip([before[-1], *sizes], sizes, strict=False):
        for engine, run in runs.items():
            spans = []
            for _ in range(5):  # so that the weights are in the caches for the first call too, also of those that keep
                run(earlier)  # only what is read repeatedly
            for _ in range(6):
                begin = time.process_time_ns()
                run(feeds)
                spans.append(time.process_time_ns() - begin)
            times[engine].append((spans[0] / 1e9, float(np.median(spans[1:])) / 1e9))
    nodes = len(model.graph.node)
    first = {engine: float(np.median([pair[0] for pair in pairs])) for engine, pairs in times.items()}
    extra = {engine: float(np.median([new - again for new, again in pairs])) for engine, pairs in times.items()}
    again = float(np.median([pair[1] for pair in times["CPU"]]))
    return (
        name,
        f"{nodes}",
        duration(first["onnxruntime"]),
        duration(first["CPU"]),
        f"{first['CPU'] / first['onnxruntime']:.2f}",
        duration(again),
        f"{extra['CPU'] / nodes * 1e6:.2f} µs",
        f"{extra['onnxruntime'] / nodes * 1e6:.2f} µs",
        f"{planning(compiled, request, sizes) / nodes * 1e6:.2f} µs",
    )


def planning(compiled: hetero.CompiledModel, request: hetero.InferRequest, sizes: Sequence[Inputs]) -> float:
    """Seconds that the plan of the last call takes to adapt to sizes that the call before did not have."""
    workspace = request._runner._single  # type: ignore[attr-defined]
    arrays = [[feeds[port.name] for port in compiled.inputs] for feeds in sizes]
    arrays = [inputs for inputs in arrays if workspace.fits(inputs)]
    assert len(arrays) > 1, "the plan holds for several of the sizes"
    spans = []
    for _ in range(1 + 400 // len(arrays)):
        begin = time.process_time_ns()
        for inputs in arrays:
            workspace.fits(inputs)
        spans.append((time.process_time_ns() - begin) / len(arrays))
    return float(np.median(spans)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small models and few sizes")
    arguments = parser.parse_args()
    table = Table(
        *("model", "nodes", "onnxruntime", "CPU", "ratio", "CPU, repeated", "new size, per node"),
        *("onnxruntime: new size, per node", "planning, per node"),
    )
    for name, model, before, sizes in cases(arguments.quick):
        table.add(*measured(name, model(), before, sizes))
    table.print()


if __name__ == "__main__":
    main()
