"""Overhead of the runtime around the kernels, and speedup by devices that run at the same time.

    python bench/runtime.py submodels    # chains of tiny submodels: CPU time of an inference, and of compiling, each
    python bench/runtime.py calls        # a tiny inference, synchronous and asynchronous: CPU time
    python bench/runtime.py devices      # two CPU devices with one thread each: elapsed time

If OpenVINO is installed (pip install '.[peers]'), `submodels` and `devices` have its HETERO over two copies of its CPU
plugin on the same models. `devices` shows the ratio of minimum times, which needs two idle cores.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import hetero
from hetero.base.formatting import duration
from table import Table
from timing import elapsed_times, medians, repeated

SUBMODELS = (60, 122)
TINY = np.ones((1, 4), np.float32)
ROUNDS = 30


def chain_model(submodels: int) -> onnx.ModelProto:
    """One tiny node per submodel. The names, n0, n1, ..., end in the number whose parity decides the device."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(submodels)]
    graph = helper.make_graph(nodes, "chain", [value("v0", 1, [1, 4])], [value(f"v{submodels}", 1, [1, 4])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def products_model(branches: bool, size: int = 640, depth: int = 6) -> onnx.ModelProto:
    """Two runs of matrix products, side by side or one after the other: nodes a0.. and b0..."""
    value = helper.make_tensor_value_info
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    last = {"a": "x", "b": "x"}
    for run in "ab":
        if run == "b" and not branches:
            last["b"] = last["a"]
        for i in range(depth):
            weight = (rng.standard_normal((size, size)) / size**0.5).astype(np.float32)
            weights.append(numpy_helper.from_array(weight, f"w{run}{i}"))
            nodes.append(helper.make_node("MatMul", [last[run], f"w{run}{i}"], [f"{run}{i}_out"], name=f"{run}{i}"))
            last[run] = f"{run}{i}_out"
    outputs = [value(last[run], 1, [size, size]) for run in ("ab" if branches else "b")]
    graph = helper.make_graph(nodes, "products", [value("x", 1, [size, size])], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def on_two(
    core: hetero.Core, model: hetero.Model, second: Callable[[str], bool], config: Mapping[str, Any] | None = None
) -> hetero.CompiledModel:
    pins = {key: "CPU.1" if second(key) else "CPU.0" for key in (node.key for node in model.nodes)}
    return core.compile_model(model, "HETERO:CPU.0,CPU.1", {"INFERENCE_NUM_THREADS": 1, **(config or {})}, pins=pins)


def per_submodel(core: hetero.Core, submodels: int) -> Mapping[str, float]:
    model = core.read_model(chain_model(submodels))
    compiled = on_two(core, model, lambda key: int(key[1:]) % 2 == 1)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == submodels
    compiled(TINY)
    times = medians(
        {
            "infer": repeated(lambda: compiled(TINY), 200),
            "compile": repeated(lambda: on_two(core, model, lambda key: int(key[1:]) % 2 == 1), 3),
        },
        rounds=9,
    )
    return {"infer": times["infer"] / 200 / submodels, "compile": times["compile"] / 3 / submodels}


def openvino_hetero(proto: onnx.ModelProto, second: Callable[[str], bool]) -> tuple[Any, Callable[[], Any]]:
    """The compiled model on OpenVINO's HETERO over two copies of its CPU plugin with one thread each, cut as `on_two`
    does, and a function that compiles it again."""
    import openvino

    core = openvino.Core()
    library = next((Path(openvino.__file__).parent / "libs").glob("libopenvino_intel_cpu_plugin.so*"))
    core.register_plugin(str(library), "CPU1")
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(proto, Path(folder) / "model.onnx")
        model = core.read_model(Path(folder) / "model.onnx")
    keys = {node.name for node in proto.graph.node}
    for node in model.get_ordered_ops():
        name = node.get_friendly_name()
        node.get_rt_info()["affinity"] = "CPU1" if name in keys and second(name) else "CPU"

    def compile_it() -> Any:
        return core.compile_model(model, "HETERO:CPU,CPU1", {"INFERENCE_NUM_THREADS": 1})

    return compile_it(), compile_it


def openvino_per_submodel(submodels: int) -> Mapping[str, float]:
    compiled, compile_it = openvino_hetero(chain_model(submodels), lambda key: int(key[1:]) % 2 == 1)
    parts = int(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))
    assert parts >= submodels - 1, "the cuts are the same, except at the first node"
    request = compiled.create_infer_request()
    times = medians({"infer": repeated(lambda: request.infer([TINY]), 200), "compile": compile_it}, rounds=9)
    return {"infer": times["infer"] / 200 / parts, "compile": times["compile"] / parts}


def openvino_branches(rounds: int) -> float:
    """`branches`, for OpenVINO."""
    import openvino

    model, x = products_model(branches=True), np.ones((640, 640), np.float32)
    two = openvino_hetero(model, lambda key: key.startswith("b"))[0].create_infer_request()
    core = openvino.Core()
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, Path(folder) / "model.onnx")
        one = core.compile_model(Path(folder) / "model.onnx", "CPU", {"INFERENCE_NUM_THREADS": 1})
    request = one.create_infer_request()
    times = minima({"one": lambda: request.infer([x]), "two": lambda: two.infer([x])}, rounds)
    return times["one"] / times["two"]


def asynchronous(core: hetero.Core) -> Mapping[str, float]:
    compiled = core.compile_model(core.read_model(chain_model(1)), "CPU", {"INFERENCE_NUM_THREADS": 1})
    request = compiled.create_infer_request()

    def start_and_wait() -> None:
        request.start_async(TINY)
        request.wait()

    works = {
        "`infer`": lambda: request.infer(TINY),
        "`start_async`, `wait`": start_and_wait,
        "`submit`, `result`": lambda: compiled.submit(TINY).result(),
    }
    loops = {name: repeated(work, 500) for name, work in works.items()}
    loops["`map`, of each"] = lambda: collections.deque(compiled.map([TINY] * 500), maxlen=0)
    return {name: seconds / 500 for name, seconds in medians(loops, rounds=9).items()}


def minima(works: Mapping[str, Callable[[], Any]], rounds: int) -> Mapping[str, float]:
    return {name: min(times) for name, times in elapsed_times(works, rounds).items()}


def branches(core: hetero.Core, rounds: int) -> float:
    """Speedup of two branches on two devices over both on one device."""
    model = core.read_model(products_model(branches=True))
    x = np.ones((640, 640), np.float32)
    one = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
    two = on_two(core, model, lambda key: key.startswith("b")).create_infer_request()
    for _ in range(3):
        one.infer(x), two.infer(x)
    times = minima({"one": lambda: one.infer(x), "two": lambda: two.infer(x)}, rounds)
    return times["one"] / times["two"]


def stages(core: hetero.Core, rounds: int) -> float:
    """Speedup of requests in flight through two stages on two devices over one request after the other."""
    model = core.read_model(products_model(branches=False))
    x = np.ones((640, 640), np.float32)
    compiled = on_two(core, model, lambda key: key.startswith("b"))
    batches = [x] * 8
    times = minima(
        {
            "one after the other": lambda: [compiled(batch) for batch in batches],
            "in flight": lambda: collections.deque(compiled.map(batches), maxlen=0),
        },
        rounds,
    )
    return times["one after the other"] / times["in flight"]


def submodels_table(counts: Sequence[int] = SUBMODELS) -> Table:
    core, beside = hetero.Core(), has_openvino()
    columns = ("inference", "compile", "OpenVINO, inference", "OpenVINO, compile")
    table = Table("per submodel", *columns[: 4 if beside else 2])
    for count in counts:
        libraries = [per_submodel(core, count), *([openvino_per_submodel(count)] if beside else [])]
        table.add(f"{count} submodels", *(duration(each[what]) for each in libraries for what in ("infer", "compile")))
    return table


def calls_table() -> Table:
    table = Table("one tiny inference", "CPU time")
    for name, seconds in asynchronous(hetero.Core()).items():
        table.add(name, duration(seconds))
    return table


def devices_table(rounds: int = ROUNDS) -> Table:
    core, beside = hetero.Core(), has_openvino()
    table = Table("two devices", "speedup", *(["OpenVINO"] if beside else []))
    openvino_gain = [f"{openvino_branches(rounds):.2f}"] if beside else []
    table.add("two branches at the same time", f"{branches(core, rounds):.2f}", *openvino_gain)
    table.add("two stages, requests in flight", f"{stages(core, rounds):.2f}", *([""] * beside))
    return table


def has_openvino() -> bool:
    return importlib.util.find_spec("openvino") is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("submodels", "calls", "devices"))
    parser.add_argument("--submodels", nargs="+", type=int, default=list(SUBMODELS), metavar="COUNT")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="for devices")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "submodels":
        submodels_table(arguments.submodels).print()
    elif arguments.what == "calls":
        calls_table().print()
    else:
        devices_table(arguments.rounds).print()


if __name__ == "__main__":
    main()
