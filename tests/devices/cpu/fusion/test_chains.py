"""Chains of elementwise calls: what is joined, and the same bits as the calls one by one, on every instruction set."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero import _kernels
from hetero.devices.cpu.fusion import chains
from hetero.devices.cpu.fusion.graph import CallGraph
from hetero.devices.cpu.values import Call, Context, Value
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("chain")
TEAMS = [None, _kernels.Team(2)]
ADD, CLIP, TANH, SIN, TAN, ISNAN, NOT = "add", 2, 12, 29, 31, 50, 48
UNARY = [1, CLIP, 3, 8, TANH, 13, 14, 18, 19, 22, 23, 24, 26, 28, SIN, TAN, 40]
BINARY = {
    "float32": ["add", "sub", "mul", "div", "min", "max", "prelu", "less", "greater_or_equal", "fmod", "pow"],
    "float64": ["add", "sub", "div", "max", "equal"],
    "int32": ["add", "mul", "min", "bitwise_xor", "less_or_equal", "shift_left", "div"],
    "bool": ["and", "or", "xor", "equal"],
}
INTEGERS = ("uint8", "int8", "uint8", "int8", "uint16", "int16")
COMPARISONS = {"less", "greater_or_equal", "equal", "less_or_equal"}
Array = np.ndarray[Any, Any]


def constant(array: Array) -> Value:
    return Value(array.dtype, array.shape, array)


class Net:
    """Calls as lowerings make them, with the arrays of the operands from outside."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.context = Context({})
        self.arrays: dict[int, Array] = {}
        self.values: list[Value] = []

    def operand(self, shape: tuple[int, ...], dtype: str, known: bool = False) -> Value:
        if dtype == "bool":
            array = self.rng.random(shape) < 0.5
        elif dtype == "int32":
            array = self.rng.integers(-100, 100, shape).astype(dtype)
        elif dtype in INTEGERS:
            limits = np.iinfo(dtype)
            array = self.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        else:
            array = np.asarray(self.rng.standard_normal(shape) * self.rng.choice([1, 100, 1e5])).astype(dtype)
        if known:
            return constant(array)
        value = Value(array.dtype, array.shape, None, self.context.new_storage())
        self.arrays[value.storage] = array
        self.values.append(value)
        return value

    def call(
        self, kernel: str, inputs: list[Value], dtype: str | None = None, ints: Any = (), floats: Any = ()
    ) -> Value:
        shape = np.broadcast_shapes(*(value.shape for value in inputs))
        made = self.context.call(kernel, inputs, shape, np.dtype(dtype or inputs[-1].dtype), ints, floats)
        self.values.append(made)
        return made

    def run(self, calls: list[Call], variant: str | None = None, team: Any = None) -> dict[int, Array]:
        arrays = dict(self.arrays)
        for call in calls:
            inputs = [self.read(arrays, value) for value in call.inputs if value is not None]
            specs = [(value.shape, value.dtype) for value in call.outputs]
            made = _kernels.call(call.kernel, inputs, specs, call.ints, call.floats, variant=variant, team=team)
            arrays.update(zip((value.storage for value in call.outputs), made, strict=True))
        return arrays

    @staticmethod
    def read(arrays: dict[int, Array], value: Value) -> Array:
        return arrays[value.storage].reshape(value.shape) if value.data is None else value.data

    def fused(self, kept: list[Value]) -> list[Call]:
        graph = CallGraph(self.context.calls, [value.storage for value in kept])
        chains.fuse_elementwise(graph)
        return graph.result()

    def check(self, kept: list[Value], tile: int | None = None) -> list[Call]:
        calls = self.fused(kept)
        if tile is not None:
            calls = [
                dataclasses.replace(call, ints=(min(tile, call.ints[0]), *call.ints[1:]))
                if call.kernel == "chain"
                else call
                for call in calls
            ]
        for variant in VARIANTS:
            wanted = self.run(self.context.calls, variant)
            for team in TEAMS:
                found = self.run(calls, variant, team)
                for value in kept:
                    one, other = found[value.storage], wanted[value.storage]
                    assert np.array_equal(one, other, equal_nan=value.dtype.kind == "f")
                    if value.dtype.kind == "f":  # also -0 and 0
                        assert np.array_equal(np.signbit(one) & (one == one), np.signbit(other) & (other == other))
        return calls


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MIN_BYTES", 0)


def grow(draw: st.DrawFn, net: Net, shape: tuple[int, ...]) -> None:
    """One more call, of values there are or of new operands."""

    def pick(dtype: str) -> Value:
        there = [value for value in net.values[-6:] if value.dtype == dtype]
        if there and draw(st.integers(0, 3)):
            return there[draw(st.integers(0, len(there) - 1))]
        kept = shape[draw(st.integers(0, len(shape))) :]
        return net.operand(tuple(draw(st.sampled_from([size, 1])) for size in kept), dtype, draw(st.booleans()))

    dtype = draw(st.sampled_from(["float32", "float32", "float32", "float64", "int32", "bool"]))
    match draw(st.integers(0, 10)):
        case 0 | 1 if dtype in ("float32", "float64"):
            parameters = (-0.5, 0.75)
            net.call("unary", [pick(dtype)], None, [draw(st.sampled_from(UNARY))], parameters)
        case 0 | 1 if dtype == "bool":
            net.call("unary", [pick(dtype)], None, [NOT], (0.0, 0.0))
        case 2:
            operands = [pick("bool"), pick(dtype), pick(dtype)]
            if broadcast(operands):
                net.call("where", operands)
        case 3:
            net.call("cast", [pick(dtype)], draw(st.sampled_from([d for d in BINARY if d != dtype])))
        case 4:  # nobody's business but in the way
            value = pick(dtype)
            net.call("identity", [value])
        case 5 if net.values:  # the same elements in another shape
            value = net.values[-draw(st.integers(1, min(3, len(net.values))))]
            net.values.append(net.context.reshaped(value, (1, *value.shape) if value.rank < 5 else (value.size,)))
        case 6 | 7 | 8:
            integer = draw(st.sampled_from(INTEGERS))
            scale = np.array(draw(st.sampled_from([0.05, 0.05, 0.05, 0.02, 1.0, 1e-42, 3e36, np.inf])), np.float32)
            zero = np.array(draw(st.sampled_from([0, 0, np.iinfo(integer).min, 100])), integer)
            parameters = [constant(scale), constant(zero)]
            if draw(st.integers(0, 7)) == 0:  # unknown when compiled
                parameters = [net.operand((), "float32"), net.operand((), integer)]
            if draw(st.booleans()):
                made = net.call("quantize", [pick("float32"), *parameters], integer)
                if draw(st.booleans()):
                    net.call("dequantize", [made, *parameters], "float32")
            else:
                net.call("dequantize", [pick(integer), *parameters], "float32")
        case _:
            kernel = draw(st.sampled_from(BINARY[dtype]))
            operands = [pick(dtype), pick(dtype)]
            if kernel == "div" and dtype == "int32":
                operands[1] = constant(np.array(7, np.int32))
            if kernel == "pow":
                operands[1] = constant(np.array(draw(st.sampled_from([2, 3, 0.5, 1.7])), np.float32))
            if broadcast(operands):
                net.call(kernel, operands, "bool" if kernel in COMPARISONS else None)


def broadcast(operands: list[Value]) -> bool:
    """Whether they do, to one shape: values may have been reshaped to others."""
    try:
        np.broadcast_shapes(*(value.shape for value in operands))
    except ValueError:
        return False
    return True


@st.composite
def nets(draw: st.DrawFn) -> tuple[Net, list[Value], int]:
    net = Net(np.random.default_rng(draw(st.integers(0, 1 << 30))))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 16, 33, 130]), min_size=1, max_size=4)))
    if np.prod(shape) > 60_000:
        shape = shape[:2]
    net.operand(shape, "float32")
    for _ in range(draw(st.integers(2, 14))):
        grow(draw, net, shape)
    made = [value for value in net.values if value.data is None and value.storage not in net.arrays]
    kept = [value for value in made if draw(st.integers(0, 4)) == 0] or made[-1:]
    return net, kept, draw(st.sampled_from([1, 2, 7, 64, 100, 1024, 8192]))


@given(nets())
def test_random_chains_give_the_same_bits(case: tuple[Net, list[Value], int]) -> None:
    net, kept, tile = case
    net.check(kept, tile)


def line(net: Net, x: Value, length: int = 4) -> Value:
    for i in range(length):
        x = net.call("unary", [x], None, [TANH if i % 2 else 24], (0.0, 0.0))
    return x


def kernels(calls: list[Call]) -> list[str]:
    return [call.kernel for call in calls]


@pytest.mark.parametrize("n", [1, 15, 16, 17, 127, 128, 129, 300, 5000])
@pytest.mark.parametrize("operation", [*range(1, 31), 40])
def test_every_function_of_a_vector(operation: int, n: int) -> None:
    """Operations in registers are those of the kernel: at the ends of rows and with arguments that libm takes."""
    net = Net(np.random.default_rng(operation))
    x = net.operand((2, n), "float32")
    made = net.call("unary", [net.call(ADD, [x, net.operand((n,), "float32")])], None, [operation], (0.25, 0.5))
    assert kernels(net.check([made])) == ["chain"]


@pytest.mark.parametrize("kernel", ["add", "sub", "mul", "div", "min", "max", "prelu"])
@pytest.mark.parametrize("shape", [(3, 200), (200,), (3, 1), (1,), (), (1, 200)])
def test_every_form_of_an_operation(kernel: str, shape: tuple[int, ...]) -> None:
    net = Net(np.random.default_rng(0))
    x, other = net.operand((3, 200), "float32"), net.operand(shape, "float32")
    for array in net.arrays.values():
        array.reshape(-1)[::3] = np.nan
        array.reshape(-1)[1::5] = -0.0
    first = net.call(kernel, [x, other])
    second = net.call(kernel, [other, first])
    twice = net.call(kernel, [second, second])
    assert kernels(net.check([net.call(kernel, [twice, first])])) == ["chain"]


def test_one_row_of_numbers_per_channel() -> None:
    net = Net(np.random.default_rng(0))
    x = net.operand((2, 3, 7, 5), "float32")
    scaled = net.call("mul", [x, net.operand((3, 1, 1), "float32")])
    moved = net.call("add", [scaled, net.operand((2, 1, 1, 5), "float32")])
    for tile in (1, 5, 12, 35, 64, 100, 1024):
        assert kernels(net.check([moved], tile)) == ["chain"]


@pytest.mark.parametrize(
    "shape", [(50, 16), (3, 40, 24), (7, 5, 1, 33), (600, 3), (2, 3, 4, 5), (9, 200), (1, 64), (300, 1)]
)
def test_short_rows_with_operands_that_broadcast(shape: tuple[int, ...]) -> None:
    """Such operands are expanded; with little scratch memory, only some of them, or none."""
    kinds = [
        (*shape[:-1], 1),
        shape[-1:],
        (1,),
        (shape[0], *[1] * (len(shape) - 1)),
        (*[1] * (len(shape) - 2), shape[-2], 1),
    ]
    for first, second in itertools.product(kinds, kinds):
        net = Net(np.random.default_rng(len(shape)))
        x = net.operand(shape, "float32")
        a = net.call("mul", [x, net.operand(first, "float32")])
        b = net.call("unary", [a], None, [UNARY[0]], (0.25, 0.5))
        c = net.call("sub", [net.operand(second, "float32"), b])
        d = net.call("cast", [c], "float64")
        e = net.call("cast", [net.call("mul", [d, d])], "float32")
        made = net.call("add", [e, net.operand(first, "float32")])
        for tile in (None, 1, 7, 100):
            assert kernels(net.check([c, made], tile)) == ["chain"]
    (chain,) = net.fused([c, made])
    inputs = [net.read(net.arrays, value) for value in chain.inputs if value is not None]
    specs = [(value.shape, value.dtype) for value in chain.outputs]
    wanted = _kernels.call("chain", inputs, specs, chain.ints, chain.floats)
    for scratch in range(0, 1 << 17, 1 << 10):
        with contextlib.suppress(InferenceError):
            found = _kernels.call("chain", inputs, specs, chain.ints, chain.floats, scratch)
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_what_others_read_before_the_end_of_a_run_ends_it() -> None:
    net = Net(np.random.default_rng(0))
    first = line(net, net.operand((40, 40), "float32"), 2)
    copy = net.call("identity", [first])
    last = line(net, net.call(ADD, [first, copy]), 2)
    assert kernels(net.check([last])) == ["chain", "identity", "chain"]


def test_what_others_read_after_the_end_is_written_out() -> None:
    net = Net(np.random.default_rng(0))
    first = line(net, net.operand((40, 40), "float32"), 2)
    last = line(net, first, 2)
    copy = net.call("identity", [first])
    calls = net.check([last, copy])
    assert kernels(calls) == ["chain", "identity"]
    assert len(calls[0].outputs) == 2


def test_two_branches_that_meet_are_one_run() -> None:
    net = Net(np.random.default_rng(0))
    x = net.operand((40, 40), "float32")
    both = net.call("mul", [line(net, x), line(net, x)])
    assert kernels(net.check([both])) == ["chain"]


def test_another_shape_ends_a_run() -> None:
    net = Net(np.random.default_rng(0))
    first = line(net, net.operand((40, 1), "float32"))
    wide = net.call(ADD, [first, net.operand((1, 30), "float32")])
    flat = net.context.reshaped(wide, (1200,))
    last = net.call("mul", [flat, net.operand((1200,), "float32")])
    assert kernels(net.check([last])) == ["chain", "add", "mul"]


def test_what_can_fail_stays_alone() -> None:
    net = Net(np.random.default_rng(0))
    x = net.call(ADD, [net.operand((40, 40), "int32"), constant(np.array(1, np.int32))])
    quotient = net.call("div", [x, constant(np.array(3, np.int32))])
    last = net.call("mul", [quotient, x])
    assert kernels(net.check([last])) == ["add", "div", "mul"]


def test_long_runs_are_cut() -> None:
    net = Net(np.random.default_rng(0))
    calls = net.check([line(net, net.operand((300,), "float32"), 150)])
    assert kernels(calls) == ["chain"] * 3


def test_many_operands_are_several_runs() -> None:
    net = Net(np.random.default_rng(0))
    total = net.operand((300,), "float32")
    for _ in range(40):
        total = net.call(ADD, [total, net.operand((300,), "float32")])
    calls = net.check([total])
    assert all(len(call.inputs) <= 16 for call in calls)
    assert len(calls) == 3


def test_small_results_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MIN_BYTES", 4 * 301)
    net = Net(np.random.default_rng(0))
    assert "chain" not in kernels(net.check([line(net, net.operand((300,), "float32"))]))


UNARY_NUMBER = _kernels.kernel_names().index("unary")
ADD_NUMBER = _kernels.kernel_names().index("add")
GOOD = [64, 0, 2, -1, 64, 0, 0, 0, 0, 0, -1, 65, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "ints",
    [
        [],
        [0, *GOOD[1:]],
        [1 << 40, *GOOD[1:]],
        [64, -1, *GOOD[2:]],
        [64, 0, 3, *GOOD[3:]],
        [64, 0, 1 << 62, *GOOD[3:]],
        GOOD[:-1],
        [*GOOD[:12], 0, *GOOD[13:]],  # stores over an operand
        [*GOOD[:12], 2, *GOOD[13:]],  # no such slot
        [*GOOD[:12], -1, *GOOD[13:]],
        [*GOOD[:4], 63, *GOOD[5:]],  # no such operations
        [*GOOD[:4], 93, *GOOD[5:]],
        [*GOOD[:4], 1000, *GOOD[5:]],
        [64, 0, 1, ADD_NUMBER, 4, 0, 0, 0, 1, 0],
        [64, 0, 1, ADD_NUMBER, 2, 0, 5, 0, 1, 0],
        [64, 0, 1, ADD_NUMBER, 2, 0, 0, 0, 0, 0],
        [64, 0, 1, 0, 1, 0, 0, 0, 1, 0],  # pack_b
        [64, 0, 1, 1 << 40, 1, 0, 0, 0, 1, 0],
        [64, 1, 1, 77, ADD_NUMBER, 2, 0, 0, 0, 1, 0],  # no such type
    ],
)
def test_malformed_tapes_are_refused(ints: list[int]) -> None:
    x = np.ones(100, np.float32)
    assert np.array_equal(_kernels.call("chain", [x], [((100,), np.float32)], GOOD, [0] * 4, 1 << 12)[0], x)
    floats = [0] * (2 * min(ints[2], 9) if ints else 0)
    with pytest.raises(InferenceError, match="operand|types"):
        _kernels.call("chain", [x], [((100,), np.float32)], ints, floats, 1 << 12)


def test_too_little_scratch_is_refused() -> None:
    x = np.ones(100, np.float32)
    with pytest.raises(InferenceError, match="operand"):
        _kernels.call("chain", [x], [((100,), np.float32)], GOOD, [0] * 4, 256)


def test_operands_of_another_type_are_no_rows() -> None:
    with pytest.raises(InferenceError, match="types"):
        _kernels.call("chain", [np.ones(100)], [((100,), np.float32)], GOOD, [0] * 4, 1 << 12)


def quantized(net: Net, x: Value, scale: float, zero: int, dtype: str) -> Value:
    return net.call("quantize", [x, constant(np.float32(scale)), constant(np.array(zero, dtype))], dtype)


def dequantized(net: Net, x: Value, scale: float, zero: int) -> Value:
    return net.call("dequantize", [x, constant(np.float32(scale)), constant(np.array(zero, x.dtype))], "float32")


@pytest.mark.parametrize("n", [1, 4, 31, 64, 65, 300])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [0.05, 1.0, 1e-42, 3e36, np.inf, np.nan])
def test_conversions_of_bytes_stay_in_registers(n: int, dtype: str, scale: float) -> None:
    """The sum of many quantized tensors is one call, because scales and zero points do not count as operands."""
    net = Net(np.random.default_rng(n))
    zeros = [100, 0, -128 if dtype == "int8" else 255]
    shape = (2, 3, n)
    total = dequantized(net, net.operand(shape, dtype), 0.05, zeros[0])
    parts = [dequantized(net, net.operand(shape, dtype), scale, zero) for zero in zeros * 4]
    for at, part in enumerate(parts):
        total = net.call("add", [part, total] if at % 2 else [total, part])
        total = dequantized(net, quantized(net, total, scale, zeros[at % 3], dtype), scale, zeros[at % 3])
    scaled = net.call("mul", [total, net.operand((3, 1), "float32", known=True)])
    calls = net.check([quantized(net, scaled, 0.03, 7, dtype), total])
    assert kernels(calls) == ["chain"]
    assert len(calls[0].inputs) == 14


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_every_float_rounds_to_bytes_and_back(dtype: str) -> None:
    net = Net(np.random.default_rng(0))
    x = net.operand((40, 1000), "float32")
    numbers = net.arrays[x.storage]
    numbers[:] = np.random.default_rng(1).integers(-(2**31), 2**31, numbers.shape, np.int32).view(np.float32)
    numbers[0, :8] = np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45
    numbers[1:30] = np.random.default_rng(2).integers(-600, 600, (29, 1000)) * np.float32(0.05) / 2  # halves
    numbers[2:12] = np.nextafter(numbers[2:12], np.float32(np.inf))
    numbers[12:22] = np.nextafter(numbers[12:22], np.float32(-np.inf))
    once = net.call("mul", [x, net.operand((1,), "float32")])
    net.arrays[net.values[-2].storage][:] = 1
    back = dequantized(net, quantized(net, once, 0.05, 3, dtype), 0.05, 3)
    assert kernels(net.check([back])) == ["chain"]


def test_conversions_with_different_parameters_go_through_memory() -> None:
    net = Net(np.random.default_rng(0))
    x = quantized(net, net.operand((7, 50), "float32"), 0.1, 3, "uint8")
    others = [dequantized(net, x, scale, zero) for scale, zero in ((0.1, 3), (0.1, 4), (0.2, 3), (0.1, 3))]
    total = others[0]
    for other in others[1:]:
        total = net.call("mul", [total, other])
    assert kernels(net.check([total])) == ["chain"]
    assert kernels(net.check([total, x])) == ["chain"]


@pytest.mark.parametrize("code", [87, 88, 89, 90, 91, 92])
def test_malformed_conversions_are_refused(code: int) -> None:
    is_signed, reads, writes = code % 2 == 0, code < 89, code in (89, 90)
    dtype = np.int8 if is_signed else np.uint8
    bytes_, floats = np.arange(100).astype(dtype), np.linspace(-9, 9, 100, dtype=np.float32)
    x, result = (bytes_ if reads else floats), (dtype if writes else np.float32)

    def run(x: Array, result: Any, zero: float, slot: int = 0, shape: tuple[int, ...] = (100,)) -> Array:
        steps = [(64, 0)] * (not reads) + [(code, 1 if writes else slot)] + [(65, 1)] * (not writes)
        ints = [64, 0, len(steps), *(number for step in steps for number in (-1, *step, 0, 0, 0, 0))]
        return _kernels.call("chain", [x], [(shape, result)], ints, [0.5, zero] * len(steps), 1 << 12)[0]

    run(x, result, 5)
    for zero in (np.nan, -129 if is_signed else -1, 128 if is_signed else 256):
        with pytest.raises(InferenceError, match="operand"):
            run(x, result, zero)
    if reads or writes:
        with pytest.raises(InferenceError, match="types"):
            run(x.view(np.uint8 if is_signed else np.int8) if reads else x,
                result if reads else (np.uint8 if is_signed else np.int8), 5)  # fmt: skip
    if reads:  # a row of bytes does not broadcast
        with pytest.raises(InferenceError, match="operand"):
            run(x, result, 5, shape=(3, 100))
    if writes:
        ints = [*GOOD[:11], code, 0, *GOOD[13:]]  # into an operand
        with pytest.raises(InferenceError, match="operand|types"):
            _kernels.call("chain", [floats], [((100,), result)], ints, [0.5, 5] * 2, 1 << 12)


def test_empty_results() -> None:
    net = Net(np.random.default_rng(0))
    net.check([line(net, net.operand((3, 0), "float32"))])


@pytest.mark.parametrize("disabled", [False, True])
def test_counters_of_a_chain(disabled: bool) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "c"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.arange(64, dtype=np.float32), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    core = hetero.Core()
    assert len(core.query_model(core.read_model(model), "CPU")) == 3
    request = core.compile_model(
        model, "CPU", {"PERF_COUNT": True, "DISABLE_TRANSFORMATIONS": disabled}
    ).create_infer_request()
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    assert np.allclose(request.infer({"x": x})["y"], np.tanh(x * np.arange(64, dtype=np.float32)) + x, atol=1e-6)
    statuses = [row.status for row in request.profiling_info]
    assert statuses == (["EXECUTED"] * 3 if disabled else ["OPTIMIZED_OUT", "EXECUTED", "OPTIMIZED_OUT"])
