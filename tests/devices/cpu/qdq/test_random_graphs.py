"""Random QDQ graphs of moves, elementwise functions and max pools: in integers, CPU returns the bits of the float32
nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.devices.cpu.fusion import chains

Array = np.ndarray[Any, Any]
TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16}
UNARY = ("Relu", "Sigmoid", "Tanh", "Erf", "HardSwish", "HardSigmoid", "LeakyRelu", "Exp", "Neg", "Abs", "Floor", "Elu")
UNARY += ("Sqrt", "Reciprocal", "Identity")
NUM_GRAPHS = 60


class Maker:
    """``values``: name of a quantized tensor -> (type, shape, its scale and zero point)."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.opset = int(rng.choice([13, 17, 19, 21, 23]))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, Array] = {}
        self.values: dict[str, tuple[str, tuple[int, ...], str, str]] = {}
        self.dequantized: dict[str, str] = {}
        self.floats: list[str] = []
        self.kinds = ["uint8", "int8", "int8", "uint8", "int16", "uint16"] if self.opset >= 21 else ["uint8", "int8"]
        for _ in range(int(rng.integers(1, 4))):
            self.start()

    def pick(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def often(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, inputs: list[str], count: int = 1, **attributes: Any) -> list[str]:
        outputs = [f"{op}{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs

    def parameters(self) -> tuple[str, str, str]:
        """Type, scale and zero point."""
        dtype = self.pick(*self.kinds)
        scale = self.pick(0.01, 0.02, 0.1, 0.1, 1.0, 1 / 256, 1e-42, 3e36) if self.often(0.2) else self.pick(0.02, 0.05)
        limits = np.iinfo(dtype)
        zero = self.pick(limits.min, limits.max, 0, (limits.min + limits.max) // 2 + 1)
        shape = () if self.often(0.7) else (1,)
        return dtype, self.constant(np.full(shape, scale, np.float32)), self.constant(np.full(shape, zero, dtype))

    def start(self) -> None:
        shape = self.pick((2, 3, 4, 4), (1, 4, 6, 5), (1, 4, 40, 60), (0, 2, 3, 3), (3, 4), (5,), ())
        name = f"x{len(self.inputs)}"
        dtype, scale, zero = self.parameters()
        if self.often(0.5):
            limits = np.iinfo(dtype)
            self.inputs[name] = self.rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
            self.inputs[name] = np.asarray(self.inputs[name], dtype)
            self.values[name] = dtype, shape, scale, zero
        else:
            self.inputs[name] = np.asarray(self.rng.normal(size=shape) * 3, np.float32)
            self.quantize(name, shape, (dtype, scale, zero))

    def quantize(self, x: str, shape: tuple[int, ...], parameters: tuple[str, str, str] | None = None) -> None:
        dtype, scale, zero = parameters or self.parameters()
        (made,) = self.add("QuantizeLinear", [x, scale, zero])
        self.values[made] = dtype, shape, scale, zero
        if self.often(0.1):
            self.floats.append(x)

    def dequantize(self, value: str) -> str:
        if value not in self.dequantized or self.often(0.4):
            _, _, scale, zero = self.values[value]
            (self.dequantized[value],) = self.add("DequantizeLinear", [value, scale, zero])
        return self.dequantized[value]

    def source(self, rank: int | None = None) -> tuple[str, str, tuple[int, ...]]:
        """(a quantized tensor, its dequantized form, its shape)."""
        fits = [name for name, value in self.values.items() if rank is None or len(value[1]) == rank]
        if not fits:
            fits = list(self.values)
        value = fits[int(self.rng.integers(len(fits)))]
        return value, self.dequantize(value), self.values[value][1]

    def step(self) -> None:
        value, x, shape = self.source()
        kept = self.values[value] if self.often(0.5) else None
        parameters = None if kept is None else (kept[0], kept[2], kept[3])
        op = self.pick("unary", "unary", "scalar", "self", "both", "move", "move", "move", "pool", "pair", "concat",
                       "channels", "channels")  # fmt: skip
        if op == "unary":
            for _ in range(self.pick(1, 1, 2)):
                (x,) = self.add(self.pick(*UNARY), [x])
        elif op == "scalar":
            number = self.constant(np.full(self.pick((), (), (1,), (1, 1)), self.pick(0.5, 2.0, -1.0, 0.0), np.float32))
            shape = np.broadcast_shapes(shape, helper_shape(self.constants, number))
            (x,) = self.add(self.pick("Add", "Mul", "Sub", "Max"), [x, number] if self.often(0.5) else [number, x])
        elif op == "self":
            (other,) = self.add(self.pick("Relu", "HardSigmoid", "Neg"), [x])
            (x,) = self.add(self.pick("Mul", "Add", "Min"), [x, other])
        elif op == "both":
            others = [name for name, (_, other, _, _) in self.values.items() if other == shape]
            (x,) = self.add(self.pick("Add", "Mul", "Sub"), [x, self.dequantize(self.pick(*others))])
        elif op == "concat":
            others = [name for name, (_, other, _, _) in self.values.items() if other == shape]
            if not shape:
                return
            parts = [x, *(self.dequantize(self.pick(*others)) for _ in range(self.pick(0, 1, 2)))]
            axis = int(self.rng.integers(len(shape)))
            (x,) = self.add("Concat", parts, axis=axis)
            shape = tuple(n * len(parts) if i == axis else n for i, n in enumerate(shape))
        elif op == "pool":
            if len(shape) != 4:
                return
            pads = self.pick([0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 1])
            dilation, stride = self.pick(1, 1, 2), self.pick(1, 2)
            if min(shape[2:]) < 2 * dilation + 1:
                return
            window = {"kernel_shape": [2, 2], "dilations": [dilation] * 2, "strides": [stride] * 2}
            (x,) = self.add("MaxPool", [x], pads=pads, **window)
            rows = (shape[2] + pads[0] + pads[2] - dilation - 1) // stride + 1
            shape = (*shape[:2], rows, (shape[3] + pads[1] + pads[3] - dilation - 1) // stride + 1)
        elif op == "channels":
            if len(shape) < 2:
                return
            (x,) = self.by_channel(x, shape)
        elif op == "move":
            moved = self.move(x, shape)
            if moved is None:
                return
            x, shape = moved
        self.quantize(x, shape, parameters)

    def by_channel(self, x: str, shape: tuple[int, ...]) -> list[str]:
        """A function of each channel with its own constants."""
        channels = shape[1]
        numbers = self.rng.normal(size=(4, channels)).astype(np.float32)
        if self.often(0.2):
            numbers[int(self.rng.integers(4)), :1] = self.pick(np.nan, np.inf, -np.inf, 0.0, 3e38)
        if self.often(0.5):
            numbers[3] = np.abs(numbers[3])
            statistics = [self.constant(row) for row in numbers]
            if self.often(0.3):
                (statistics[0],) = self.add("Add", [statistics[0], statistics[1]])  # unknown before it is compiled
            return self.add("BatchNormalization", [x, *statistics])
        column = self.constant(numbers[0].reshape(channels, *[1] * (len(shape) - 2)))
        op = self.pick("Mul", "Add", "Sub", "Div", "PRelu")
        return self.add(op, [x, column] if op == "PRelu" or self.often(0.6) else [column, x])

    def move(self, x: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]] | None:
        ints = lambda *numbers: self.constant(np.array(numbers, np.int64))  # noqa: E731
        rank = len(shape)
        kind = self.pick(
            "Reshape", "Transpose", "Slice", "Gather", "Expand", "Tile", "Pad", "Split", "Unsqueeze", "Mix"
        )
        if kind == "Reshape":
            return self.add("Reshape", [x, ints(int(np.prod(shape)))])[0], (int(np.prod(shape)),)
        if kind == "Transpose" and rank:
            perm = self.rng.permutation(rank).tolist()
            return self.add("Transpose", [x], perm=perm)[0], tuple(shape[i] for i in perm)
        if kind == "Expand":
            return self.add("Expand", [x, ints(2, *shape)])[0], (2, *shape)
        if kind == "Add axis":
            return self.add("Unsqueeze", [x, ints(0)])[0], (1, *shape)
        if kind == "Mix":
            condition = self.constant(self.rng.random(shape) < 0.5)
            other = self.pick(x, self.dequantize(self.pick(*self.same(shape))))
            return self.add("Where", [condition, x, other])[0], shape
        if not rank or shape[0] == 0:
            return None
        first, rest = shape[0], shape[1:]
        if kind == "Slice":
            return self.add("Slice", [x, ints(0), ints(first - 1), ints(0)])[0], (first - 1, *rest)
        if kind == "Gather":
            return self.add("Gather", [x, ints(0, first - 1, 0)])[0], (3, *rest)
        if kind == "Tile":
            return self.add("Tile", [x, ints(2, *[1] * (rank - 1))])[0], (2 * first, *rest)
        if kind == "Pad":
            value = [self.constant(np.float32(self.pick(0.0, 1.3, -5.0)))] if self.often(0.5) else []
            pads = ints(1, *[0] * (rank - 1), 2, *[0] * (rank - 1))
            mode = self.pick("constant", "edge")
            return self.add("Pad", [x, pads, *value], mode=mode)[0], (first + 3, *rest)
        if first < 2:
            return None
        parts = self.add("Split", [x, ints(1, first - 1)], 2, axis=0)
        self.quantize(parts[1], (first - 1, *rest))
        return parts[0], (1, *rest)

    def same(self, shape: tuple[int, ...]) -> list[str]:
        return [name for name, (_, other, _, _) in self.values.items() if other == shape]

    def model(self) -> onnx.ModelProto:
        made = {name for node in self.nodes for name in node.output}
        names = [name for name in self.values if name in made]
        outputs = {*(name for name in names if self.often(0.3)), *names[-1:], *self.floats}
        outputs |= {name for name in self.dequantized.values() if self.often(0.05)}
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        ends = [
            helper.make_tensor_value_info(name, TYPES[self.values[name][0]] if name in self.values else 1, None)
            for name in sorted(outputs)
        ]
        graph = helper.make_graph(self.nodes, "g", infos, ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def helper_shape(constants: list[onnx.TensorProto], name: str) -> tuple[int, ...]:
    return tuple(next(c for c in constants if c.name == name).dims)


def run(model: onnx.ModelProto, feeds: dict[str, Array], transform: bool, threads: int = 1) -> dict[str, Array]:
    core = hetero.Core()
    config = {"DISABLE_TRANSFORMATIONS": not transform, "INFERENCE_NUM_THREADS": threads}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", config)
    results = compiled.create_infer_request().infer(feeds)
    return {port.name: np.array(results[port.name]) for port in compiled.outputs}


@pytest.mark.parametrize("seed", range(0, NUM_GRAPHS, 10))
def test_random_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 20:
        monkeypatch.setattr(chains, "MIN_BYTES", 0)
    for case in range(seed, seed + 10):
        maker = Maker(np.random.default_rng(case))
        for _ in range(int(maker.rng.integers(3, 14))):
            maker.step()
        if not maker.nodes:
            continue
        model = maker.model()
        expected = run(model, maker.inputs, transform=False)
        found = run(model, maker.inputs, transform=True, threads=1 + case % 2)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"case {case}, {name}")
