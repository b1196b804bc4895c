"""Random models with states, devices and calls, beside onnxruntime with the states in arrays."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
import opencl
from hetero.devices.ort import OrtPlugin
from hetero.devices.ort.memory import OrtMemory, memory_at
from hetero.plugin import RemoteTensor

onnxruntime = pytest.importorskip("onnxruntime")

Arrays = dict[str, np.ndarray[Any, Any]]
WIDTH = 8
POOLS = ["CPU", "ORT", "OWN", "CPU,ORT", "OWN,CPU", "TEMPLATE,CPU", "ORT,TEMPLATE"]
POOLS += [] if opencl.unavailable() else ["OPENCL,CPU", "OWN,OPENCL,ORT"]


class OwnMemory(OrtPlugin):
    """onnxruntime's CPU, whose memory hetero moves values into and out of."""

    name = "OWN"

    def _memory(self, target: Any, options: Any) -> OrtMemory:
        return memory_at("cpu", 0)


class RandomModel:
    """A model of values [b, n, WIDTH]. ``states``: output -> input. ``shapes``: of the inputs that are states."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: Arrays = {}
        self.states: dict[str, str] = {}
        self.shapes: dict[str, list[Any]] = {}
        self.results: list[tuple[str, int, list[Any]]] = []
        self.values = ["x"]
        for number in range(rng.randint(1, 3)):
            self.more(rng.randint(1, 2))
            kinds = [self.recurrence, self.cache, self.cache, self.window, self.exchange, self.count, self.latest]
            rng.choice(kinds)(number)
        self.more(2)
        self.results += [(name, 1, ["b", "n", WIDTH]) for name in {rng.choice(self.values), self.values[-1]}]
        inputs = {"x": ["b", "n", WIDTH], **self.shapes}
        ports = [helper.make_tensor_value_info(name, 7 if shape == [1] else 1, shape) for name, shape in inputs.items()]
        graph = helper.make_graph(
            self.nodes,
            "random",
            ports,
            [helper.make_tensor_value_info(*result) for result in self.results],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        self.proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def weight(self, *shape: int) -> str:
        numbers = np.random.default_rng(self.rng.randrange(1 << 30)).standard_normal(shape, np.float32)
        return self.constant(numbers * np.float32(shape[0] ** -0.5))

    def node(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def pick(self) -> str:
        return self.rng.choice(self.values)

    def state(
        self, number: int, shape: list[Any], grown: list[Any] | None = None, kind: int = TensorProto.FLOAT
    ) -> str:
        """Its input; its output is to be named ``out<number>``."""
        self.states[f"out{number}"], self.shapes[f"in{number}"] = f"in{number}", shape
        self.results.append((f"out{number}", kind, grown or shape))
        return f"in{number}"

    def more(self, count: int) -> None:
        for _ in range(count):
            match self.rng.randrange(4):
                case 0:
                    value = self.node("Tanh", self.node("MatMul", self.pick(), self.weight(WIDTH, WIDTH)))
                case 1:
                    value = self.node(self.rng.choice(["Add", "Mul", "Max"]), self.pick(), self.pick())
                case 2:
                    value = self.node(self.rng.choice(["Relu", "Neg", "Sigmoid", "Identity"]), self.pick())
                case 3:
                    turned = self.node("Transpose", self.pick(), perm=[0, 2, 1])
                    value = self.node("Transpose", turned, perm=[0, 2, 1])
                case 4:
                    value = self.node("Softmax", self.pick(), axis=-1)
                case _:
                    mean = self.node("ReduceMean", self.pick(), axes=[2], keepdims=1)
                    value = self.node("Sub", self.pick(), mean)
            self.values.append(value)

    def recurrence(self, number: int) -> None:
        old = self.state(number, ["b", WIDTH])
        mean = self.node("ReduceMean", self.pick(), axes=[1], keepdims=0)
        product = self.node("MatMul", old, self.weight(WIDTH, WIDTH))
        new = self.node("Tanh", self.node("Add", mean, product), name=f"out{number}")
        self.read(self.rng.choice([old, new]))

    def exchange(self, number: int) -> None:
        """Two states that change places."""
        first, second = self.state(number, ["b", WIDTH]), self.state(number + 10, ["b", WIDTH])
        mean = self.node("ReduceMean", self.pick(), axes=[1], keepdims=0)
        self.node("Add", mean, self.node("Mul", second, self.constant(np.float32(0.5))), name=f"out{number}")
        self.node("Identity", first, name=f"out{number + 10}")
        self.read(second)

    def count(self, number: int) -> None:
        old = self.state(number, [1], kind=TensorProto.INT64)
        new = self.node("Add", old, self.constant(np.array([1])), name=f"out{number}")
        self.values.append(self.node("Add", self.pick(), self.node("Cast", new, to=TensorProto.FLOAT)))

    def window(self, number: int) -> None:
        old = self.state(number, ["b", f"p{number}", WIDTH], ["b", f"q{number}", WIDTH])
        joined = self.node("Concat", old, self.pick(), axis=1)
        limits = [self.constant(np.array([limit])) for limit in (-4, 1 << 40, 1)]
        kept = self.node("Slice", joined, *limits, name=f"out{number}")
        self.read(self.node("ReduceMean", kept, axes=[1], keepdims=0))

    def latest(self, number: int) -> None:
        """The last x, or a value of the last step."""
        old = self.state(number, ["b", f"p{number}", WIDTH], ["b", f"q{number}", WIDTH])
        self.node("Identity", self.rng.choice(["x", self.pick()]), name=f"out{number}")
        self.read(self.node("Tanh", self.node("ReduceSum", old, self.constant(np.array([1])), keepdims=0)))

    def cache(self, number: int) -> None:
        """Keys of two heads that grow with each call. The attention reads them as its values, too."""
        old = self.state(number, ["b", 2, f"p{number}", WIDTH // 2], ["b", 2, f"q{number}", WIDTH // 2])
        if self.rng.random() < 0.3:
            old = self.node("Concat", old, axis=2)
        operands = [old, self.heads()]
        if self.rng.random() < 0.2:
            operands = operands[::-1]
        keys = self.node("Concat", *operands, axis=2, name=f"out{number}")
        turned = self.node("Transpose", keys, perm=[0, 1, 3, 2])
        if self.rng.random() < 0.5:
            factor = self.constant(np.float32(0.5)) if self.rng.random() < 0.7 else self.weight(WIDTH // 2, 1)
            turned = self.node(self.rng.choice(["Mul", "Div"]), turned, factor)
        shares = self.node("Softmax", self.node("MatMul", self.heads(), turned), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", shares, keys), perm=[0, 2, 1, 3])
        self.values.append(self.node("Reshape", mixed, self.constant(np.array([0, 0, WIDTH]))))

    def heads(self) -> str:
        apart = self.node("Reshape", self.pick(), self.constant(np.array([0, 0, 2, WIDTH // 2])))
        return self.node("Transpose", apart, perm=[0, 2, 1, 3])

    def read(self, state: str) -> None:
        row = self.node("Unsqueeze", state, self.constant(np.array([1])))
        self.values.append(self.node("Add", self.pick(), row))

    def initial(self, numbers: np.random.Generator, batch: int) -> Arrays:
        states: Arrays = {}
        for name, shape in self.shapes.items():
            past = self.rng.choice([0, 1, 3, 7, 255])
            sizes = [batch if dim == "b" else past if isinstance(dim, str) else dim for dim in shape]
            states[name] = np.array([past]) if shape == [1] else numbers.standard_normal(sizes, np.float32)
        return states


def content(value: Any) -> Any:
    return value.numpy() if isinstance(value, RemoteTensor) else value


def check(found: Any, expected: Arrays, what: str) -> None:
    assert len(found) == len(expected)
    for name, value in expected.items():
        assert content(found[name]).dtype == value.dtype
        np.testing.assert_allclose(content(found[name]), value, 2e-3, 2e-4, err_msg=f"{what}: {name}")


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2, 3))])
def test_steps_as_onnxruntime(core: hetero.Core, pool: str, seed: int) -> None:
    core.register_plugin("OWN", OwnMemory)
    rng, numbers = random.Random(f"{pool} {seed}"), np.random.default_rng(seed)
    made = RandomModel(rng)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]

    def run(feed: Arrays) -> tuple[Arrays, Arrays]:
        """The results apart from states, and the new states."""
        results = dict(zip(names, session.run(names, feed), strict=True))
        return results, {source: results.pop(name) for name, source in made.states.items()}

    model, device, pins = core.read_model(made.proto), pool, None
    config: dict[str, Any] = {"NUM_STREAMS": 2} if rng.random() < 0.3 else {}
    if "," in pool:
        device = f"HETERO:{pool},ORT" if "ORT" not in pool else f"HETERO:{pool}"
        takes = {name: core.query_model(model, name) for name in device.removeprefix("HETERO:").split(",")}
        pins = {node.name: rng.choice([name for name in takes if node.name in takes[name]]) for node in model.nodes}
        if rng.random() < 0.2:
            config["MODEL_DISTRIBUTION_POLICY"], pins = "PIPELINE_PARALLEL", None
    compiled = core.compile_model(model, device, config, pins=pins)
    initial = made.initial(numbers, batch := rng.choice([1, 2]))
    first = compiled.create_stateful_request(made.states, {name: value.copy() for name, value in initial.items()})
    requests: list[tuple[hetero.StatefulRequest, Arrays]] = [(first, initial)]
    held: list[tuple[Any, Arrays]] = []
    for turn in range(14):
        at = rng.randrange(len(requests))
        request, states = requests[at]
        what = f"{device} {seed} turn {turn} request {at}"
        match rng.randrange(8):
            case 0:
                requests.append((request.fork(), states))
            case 1:
                snapshot = request.snapshot_state()
                check(snapshot, states, what)
                other = rng.randrange(len(requests))
                requests[other][0].restore_state(snapshot if rng.random() < 0.5 else dict(snapshot))
                requests[other] = requests[other][0], states
            case 2:
                request.reset_state()
                requests[at] = request, initial
            case 3:
                x = numbers.standard_normal((batch, 2, WIDTH), np.float32)
                results, new = run({"x": x, **states})
                found = compiled({"x": x, **states})
                check({name: found[name] for name in results}, results, what)
                check({source: found[name] for name, source in made.states.items()}, new, what)
            case _:
                for _ in range(rng.choice([1, 2, 5])):
                    x = numbers.standard_normal((batch, rng.choice([1, 1, 2, 4]), WIDTH), np.float32)
                    results, states = run({"x": x, **states})
                    out: Any = {
                        name: rng.choice([None, hetero.ON_DEVICE, np.empty_like(results[name])]) for name in results
                    }
                    if rng.random() < 0.3:
                        request.start_async({"x": x}, out)
                        request.wait()
                        found = request.outputs
                    else:
                        found = request.infer({"x": x}, rng.choice([None, None, out]))
                    x[...] = 99  # the caller uses the memory for something else
                    check(found, results, what)
                    held.append((found, results))
                requests[at] = request, states
        for found, results in held[-6:]:  # later steps change no results
            check(found, results, what)
    for request, states in requests:
        check(request.snapshot_state(), states, f"{device} {seed}, at the end")
