"""How soon `cancel()` and Ctrl-C end a run: within a Loop, a kernel or a long model."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.devices.cpu.runner import CpuRunner
from hetero.plugin.cancellation import Cancellation
from hetero.plugin.request import RequestState
from model_zoo import make_model

SOON = 0.5  # seconds: 0.1 on a machine that does nothing else
node = helper.make_node


def endless(kind: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model that runs for minutes, one short node after the other."""
    x = np.float32([[1, 2, 3]])
    value = helper.make_tensor_value_info
    if kind == "straight":
        nodes = [node("Identity", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"]) for i in range(20_000)]
        return make_model([*nodes, node("Relu", ["v20000"], ["y"])], {"x": [1, 3]}, ["y"]), {"x": x}
    if kind == "Scan":
        body = helper.make_graph(
            [node("Add", ["s", "e"], ["t"])],
            "body",
            [value("s", TensorProto.FLOAT, [1, 3]), value("e", TensorProto.FLOAT, [])],
            [value("t", TensorProto.FLOAT, [1, 3])],
        )
        scan = node("Scan", ["x", "z"], ["y"], body=body, num_scan_inputs=1)
        return make_model([scan], {"x": [1, 3], "z": ["n"]}, ["y"]), {"x": x, "z": np.ones(10_000_000, np.float32)}
    inner = {
        "Loop": [node("Identity", ["go"], ["on"]), node("Neg", ["v"], ["w"])],
        "empty Loop": [],
        "Loop of functions": [node("Identity", ["go"], ["on"]), node("Gelu", ["v"], ["w"])],
    }[kind]
    ends = ["on", "w"] if inner else ["go", "v"]
    body = helper.make_graph(
        inner,
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, [1, 3])],
        [value(ends[0], TensorProto.BOOL, []), value(ends[1], TensorProto.FLOAT, [1, 3])],
    )
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body)
    proto = make_model([loop], {"x": [1, 3]}, ["y"], weights={"trips": np.array(2**62)})
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("", 20))
    return proto, {"x": x}


def cancelled_after(request: hetero.InferRequest, inputs: dict[str, np.ndarray], seconds: float) -> float:
    """Seconds from `cancel` to the end of an inference that runs for longer than ``seconds``: the least of up to three,
    because the machine may have other things to do, and gives memory slowly the first time."""
    least = math.inf
    for _ in range(3):
        request.start_async(inputs)
        assert not request.wait(seconds * 1000)
        begin = time.monotonic()
        request.cancel()
        with pytest.raises(hetero.Cancelled):
            request.wait()
        assert request.state is RequestState.CANCELLED
        least = min(least, time.monotonic() - begin)
        if least < SOON:
            break
    return least


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", ["Loop", "empty Loop", "Loop of functions", "Scan", "straight"])
@pytest.mark.parametrize("device", ["TEMPLATE", "HETERO:TEMPLATE,CPU", "MULTI:TEMPLATE"])
def test_template_is_cancelled(core: hetero.Core, kind: str, device: str) -> None:
    if kind == "straight" and device != "TEMPLATE":
        pytest.skip("compiled once")
    proto, inputs = endless(kind)
    compiled = core.compile_model(core.read_model(proto), device)
    assert cancelled_after(compiled.create_infer_request(), inputs, 0.2 if kind != "straight" else 0.01) < SOON
    future = compiled.submit(inputs)
    time.sleep(0.05)
    assert future.cancel()


def test_template_in_a_worker_is_cancelled(core: hetero.Core) -> None:
    proto, inputs = endless("Loop")
    compiled = core.compile_model(core.read_model(proto), "TEMPLATE", {"ISOLATION": "PROCESS"})
    assert cancelled_after(compiled.create_infer_request(), inputs, 0.3) < SOON


def test_a_run_of_template_within_another_stops_by_its_own_flag() -> None:
    from hetero.devices.template.program import _running, stopping_by

    outer, inner = Cancellation(), Cancellation()
    with stopping_by(outer):
        with stopping_by(inner):
            assert _running.cancellation is inner
        assert _running.cancellation is outer
    assert _running.cancellation not in (outer, inner)


def huge(kind: str) -> tuple[onnx.ModelProto, Callable[[int], dict[str, np.ndarray]]]:
    """A model of one kernel, and inputs that keep it busy for so many times 10^9 operations."""

    def floats(*shape: int) -> np.ndarray:
        return rows_of(math.prod(shape)).reshape(shape)

    if kind in ("MatMul", "MatMul of float64"):
        dtype = np.float32 if kind == "MatMul" else np.float64
        proto = make_model([node("MatMul", ["x", "x"], ["y"])], {"x": ["n", "n"]}, ["y"])
        proto.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        proto.graph.output[0].type.tensor_type.elem_type = proto.graph.input[0].type.tensor_type.elem_type
        return proto, lambda work: {"x": floats(side := round((work * 1e9) ** (1 / 3)), side).astype(dtype)}
    if kind == "packed MatMul":
        weights = {"w": floats(1000, 1000)}
        proto = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 1000]}, ["y"], weights=weights)
        return proto, lambda work: {"x": floats(1000 * work, 1000)}
    if kind == "Conv":
        weights = {"w": floats(64, 64, 5, 5)}
        proto = make_model([node("Conv", ["x", "w"], ["y"])], {"x": ["n", 64, 104, 104]}, ["y"], weights=weights)
        return proto, lambda work: {"x": floats(work, 64, 104, 104)}
    weights = {"w": floats(1, 1024, 8), "r": floats(1, 1024, 256)}
    lstm = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=256)
    proto = make_model([lstm], {"x": ["n", 1, 8]}, ["y"], weights=weights)
    return proto, lambda work: {"x": floats(4000 * work, 1, 8)}


@pytest.mark.spread(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["MatMul", "MatMul of float64", "packed MatMul", "Conv", "LSTM"])
def test_one_huge_kernel_is_cancelled(core: hetero.Core, kind: str, threads: int) -> None:
    proto, inputs = huge(kind)
    compiled = core.compile_model(core.read_model(proto), "CPU", {"INFERENCE_NUM_THREADS": threads})
    small, large = inputs(1), inputs(5 if kind == "MatMul of float64" else 50)
    request = compiled.create_infer_request()
    before = request.infer(small)["y"]
    assert cancelled_after(request, large, 0.1) < SOON
    np.testing.assert_array_equal(request.infer(small)["y"], before)  # the flag is cleared


PRELUDE = f"""
import os, signal, sys, threading, time
sys.path[:0] = {sys.path!r}
import numpy as np
import hetero
from onnx import helper
from model_zoo import make_model
"""


def run_script(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_ctrl_c_ends_one_huge_kernel(seconds: float) -> None:
    said = run_script(
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "node = helper.make_node('MatMul', ['x', 'x'], ['y'])\n"
        "core = hetero.Core()\n"
        "compiled = core.compile_model(core.read_model(make_model([node], {'x': ['n', 'n']}, ['y'])), 'CPU')\n"
        "request = compiled.create_infer_request()\n"
        "small, large = (np.ones((side, side), np.float32) for side in (3, 6000))\n"
        "def interrupt():\n"
        "    running.wait()\n"
        f"    time.sleep({seconds})\n"
        "    global begin\n"
        "    begin = time.monotonic()\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "took = 9\n"
        "for _ in range(3):\n"
        "    running = threading.Event()\n"
        "    thread = threading.Thread(target=interrupt)\n"
        "    thread.start()\n"
        "    try: running.set(); request.infer(large)\n"
        "    except KeyboardInterrupt: took = time.monotonic() - begin\n"
        "    else: sys.exit('not interrupted')\n"
        "    thread.join()\n"
        f"    if took < {SOON}: break\n"
        "print(took)\n"
        "print(request.infer(small)['y'].sum(), compiled(small)['y'].sum())\n"
    )
    took, sums = said.splitlines()
    assert sums == "27.0 27.0"
    assert float(took) < SOON


def test_handlers_of_signals_run_meanwhile() -> None:
    """A handler that raises nothing changes nothing, and may run a model itself; other threads handle no signals."""
    said = run_script(
        "node = helper.make_node('MatMul', ['x', 'x'], ['y'])\n"
        "core = hetero.Core()\n"
        "compiled = core.compile_model(core.read_model(make_model([node], {'x': ['n', 'n']}, ['y'])), 'CPU')\n"
        "x = np.random.default_rng(0).random((1500, 1500), np.float32)\n"
        "expected = compiled(x)[0]\n"
        "count = 0\n"
        "def handle(*_):\n"
        "    global count\n"
        "    count += 1\n"
        "    assert compiled(np.ones((2, 2), np.float32))[0].sum() == 8\n"
        "signal.signal(signal.SIGALRM, handle)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\n"
        "same = [np.array_equal(compiled(x)[0], expected) for _ in range(4)]\n"
        "future = compiled.submit(x)\n"
        "same.append(np.array_equal(future.result()[0], expected))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "print(all(same), count > 3)\n"
    )
    assert said.splitlines()[-1] == "True True"


LONG_WORK = {
    "Erf": ({}, (6, 1 << 20), {}),
    "Softmax": ({"axis": -1}, (6, 3000, 500), {}),
    "Cast": ({"to": TensorProto.DOUBLE}, (6, 1 << 20), {}),
    "ArgMax": ({"axis": -1}, (6, 4000, 1000), {}),
    "TopK": ({"axis": -1}, (6, 2000, 500), {"k": np.array([3])}),
    "LayerNormalization": ({"axis": -1}, (6, 2000, 500), {"w": np.ones(500, np.float32)}),
    "MaxPool": ({"kernel_shape": [5, 5]}, (6, 8, 200, 200), {}),
    "Transpose": ({"perm": [0, 2, 1]}, (6, 2000, 2000), {}),
    "MatMul": ({}, (6, 3200, 64), {"w": np.ones((64, 80), np.float32)}),
    "Where": ({}, (6, 1 << 20), {}),
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("op", LONG_WORK)
@pytest.mark.parametrize("threads", [1, 3])
def test_long_work_in_more_parts_gives_the_same_bits(core: hetero.Core, op: str, threads: int) -> None:
    """Kernels split long work into more parts, to stop between them: the results equal those of single batches."""
    attributes, shape, weights = LONG_WORK[op]
    batch = ["n", *shape[1:]]
    outputs = ["y", "i"] if op == "TopK" else ["y"]
    nodes = [node(op, ["x", *weights], outputs, **attributes)]
    if op == "Where":
        nodes = [node("Less", ["x", "z"], ["c"]), node("Where", ["c", "x", "z"], ["y"])]
        weights = {"z": np.zeros((), np.float32)}
    proto = make_model(nodes, {"x": batch}, outputs, weights=weights)
    for value in proto.graph.output:
        value.type.Clear()
    compiled = core.compile_model(core.read_model(proto), "CPU", {"INFERENCE_NUM_THREADS": threads})
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    whole = compiled(x)
    for position, found in enumerate(whole):
        parts = [compiled(x[at : at + 1])[position] for at in range(len(x))]
        assert found.tobytes() == np.concatenate(parts).tobytes()


def rows_of(size: int, dtype: type[np.generic] = np.float32) -> np.ndarray:
    """Numbers with few repetitions nearby, of any size soon."""
    return np.resize(np.random.default_rng(0).standard_normal(99_991).astype(np.float32), size).astype(dtype)


def as_bytes(size: int) -> np.ndarray:
    return np.resize(np.random.default_rng(0).integers(0, 100, 99_991, np.uint8), size)


def where_to(size: int) -> np.ndarray:
    return np.resize(np.random.default_rng(0).integers(0, 1000, 99_991), size)


ints = np.array
# Operator or label -> inputs for so many elements; those of fewer than 8 int64 or scalars become constants; attributes.
# Each is one row, or a few, as long as they come: what splits into parts by rows alone would go on to the end.
LongInputs = Callable[[int], dict[str, np.ndarray]]
LONG_ROWS: dict[str, tuple[LongInputs, dict[str, object]]] = {
    "Softmax": (lambda n: {"x": rows_of(n).reshape(1, n)}, {}),
    "Softmax columns": (lambda n: {"x": rows_of(n).reshape(n // 8, 8)}, {"axis": 0}),
    "Softmax float64": (lambda n: {"x": rows_of(n, np.float64).reshape(1, n)}, {}),
    "LogSoftmax": (lambda n: {"x": rows_of(n).reshape(2, n // 2)}, {}),
    "Hardmax": (lambda n: {"x": rows_of(n).reshape(1, n)}, {}),
    "LayerNormalization": (lambda n: {"x": rows_of(n).reshape(1, n), "s": rows_of(n)}, {}),
    "InstanceNormalization": (
        lambda n: {"x": rows_of(n).reshape(1, 1, n), "s": np.ones(1, np.float32), "b": np.ones(1, np.float32)},
        {},
    ),
    "LRN": (lambda n: {"x": rows_of(n).reshape(1, 8, n // 8)}, {"size": 5}),
    "TopK few": (lambda n: {"x": rows_of(n).reshape(1, n), "k": ints([5])}, {}),
    "TopK": (lambda n: {"x": rows_of(n // 2).reshape(1, n // 2), "k": ints([n // 2])}, {}),
    "TopK float64": (lambda n: {"x": rows_of(n // 2, np.float64), "k": ints([n // 4])}, {"axis": 0}),
    "TopK columns": (lambda n: {"x": rows_of(n).reshape(n // 4, 4), "k": ints([100])}, {"axis": 0}),
    "ArgMax": (lambda n: {"x": rows_of(n).reshape(1, n)}, {"axis": 1}),
    "ArgMin columns": (lambda n: {"x": rows_of(n).reshape(n // 8, 8)}, {"axis": 0}),
    "ArgMax bytes": (lambda n: {"x": as_bytes(2 * n)}, {"axis": 0}),
    "ReduceSum": (lambda n: {"x": rows_of(n)}, {}),
    "ReduceMax": (lambda n: {"x": rows_of(n, np.float64)}, {}),
    "ReduceProd": (lambda n: {"x": rows_of(n)}, {}),
    "ReduceSumSquare": (lambda n: {"x": rows_of(n).reshape(2, n // 2), "a": ints([0])}, {}),
    "CumSum": (lambda n: {"x": rows_of(n), "a": ints(0)}, {}),
    "CumSum of rows": (lambda n: {"x": rows_of(n).reshape(2, n // 2), "a": ints(0)}, {}),
    "DFT": (lambda n: {"x": rows_of(n // 8).reshape(1, n // 8, 1), "l": ints(n // 8), "a": ints(1)}, {}),
    "Concat": (lambda n: {"x": rows_of(2 * n), "z": rows_of(2 * n)}, {"axis": 0}),
    "Pad": (lambda n: {"x": rows_of(2 * n), "p": ints([3, 5])}, {}),
    "Pad value": (lambda n: {"x": rows_of(4), "p": ints([0, n])}, {}),
    "Pad reflect": (lambda n: {"x": rows_of(n).reshape(n // 4, 4), "p": ints([0, 1, 0, 1])}, {"mode": "reflect"}),
    "Expand": (lambda n: {"x": rows_of(1), "s": ints([n])}, {}),
    "NonZero": (lambda n: {"x": rows_of(n)}, {}),
    "Unique": (lambda n: {"x": rows_of(n // 4)}, {}),
    "Unique slices": (lambda n: {"x": rows_of(n).reshape(n // 16, 16)}, {"axis": 0, "sorted": 0}),
    "Transpose": (lambda n: {"x": rows_of(n).reshape(n // 1024, 1024)}, {"perm": [1, 0]}),
    "Transpose of blocks": (lambda n: {"x": rows_of(n).reshape(2, 2, n // 4)}, {"perm": [1, 0, 2]}),
    "Transpose of pairs": (lambda n: {"x": rows_of(n).reshape(n // 2, 2)}, {"perm": [1, 0]}),
    "Tile": (lambda n: {"x": rows_of(15).reshape(3, 5), "r": ints([1, n // 16])}, {}),
    "Gather": (lambda n: {"x": rows_of(1000), "i": where_to(n)}, {}),
    "Gather row": (lambda n: {"x": rows_of(2 * n).reshape(2, n), "i": where_to(16)[:8] % 2}, {}),
    "GatherElements": (lambda n: {"x": rows_of(1000), "i": where_to(n)}, {}),
    "GatherND": (lambda n: {"x": rows_of(2 * n).reshape(2, n), "i": where_to(8).reshape(8, 1) % 2}, {}),
    "ScatterElements": (lambda n: {"x": rows_of(n), "i": where_to(n // 2), "u": rows_of(n // 2)}, {}),
    "ScatterND": (
        lambda n: {
            "x": rows_of(2 * n).reshape(2, n),
            "i": where_to(1).reshape(1, 1) % 2,
            "u": rows_of(n).reshape(1, n),
        },
        {"reduction": "max"},
    ),
    "Cast": (lambda n: {"x": rows_of(2 * n)}, {"to": TensorProto.DOUBLE}),
    "Resize": (
        lambda n: {
            "x": rows_of(n // 4).reshape(1, 1, n // 4096, 1024),
            "r": np.zeros(0, np.float32),
            "s": np.float32([1, 1, 4, 1]),
        },
        {"mode": "linear"},
    ),
    "Where": (lambda n: {"c": rows_of(n) > 0, "x": rows_of(n), "z": rows_of(1)}, {}),
    "Pow": (lambda n: {"x": np.abs(rows_of(n)), "z": rows_of(n)}, {}),
    "Mod": (lambda n: {"x": np.abs(rows_of(n)), "z": np.abs(rows_of(n)).reshape(1, n)}, {"fmod": 1}),
    "Erf": (lambda n: {"x": rows_of(n)}, {}),
    "Tan": (lambda n: {"x": rows_of(n)}, {}),
    "Erf float64": (lambda n: {"x": rows_of(n, np.float64)}, {}),
    "Neg bytes": (lambda n: {"x": as_bytes(n).astype(np.int8)}, {}),
    "Not": (lambda n: {"x": rows_of(n) > 0}, {}),
    "IsNaN": (lambda n: {"x": rows_of(n)}, {}),
    "MaxPool": (lambda n: {"x": rows_of(n).reshape(1, 1, n // 1024, 1024)}, {"kernel_shape": [3, 3]}),
    "LpPool": (lambda n: {"x": rows_of(n).reshape(1, 1, n // 1024, 1024)}, {"kernel_shape": [3, 3]}),
    "Conv": (lambda n: {"x": rows_of(n).reshape(1, 64, n // 64), "w": rows_of(64 * 64).reshape(64, 64, 1)}, {}),
    "Conv depthwise": (
        lambda n: {"x": rows_of(n).reshape(1, 1, n // 1024, 1024), "w": rows_of(9).reshape(1, 1, 3, 3)},
        {},
    ),
    "ConvTranspose": (
        lambda n: {"x": rows_of(n // 2).reshape(1, 1, n // 2), "w": rows_of(4).reshape(1, 1, 4)},
        {"strides": [2]},
    ),
    "MatMul": (lambda n: {"x": rows_of(n).reshape(1, n), "z": rows_of(n).reshape(n, 1)}, {}),
    "QuantizeLinear": (lambda n: {"x": rows_of(2 * n), "s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)}, {}),
    "DynamicQuantizeLinear": (lambda n: {"x": rows_of(n)}, {}),
    "Det": (lambda n: {"x": rows_of((side := round(16 * n ** (1 / 3)) // 8) ** 2).reshape(side, side)}, {}),
}


def check_that_it_stops(kind: str, size: int, questions: int, growth: float) -> None:
    """The operator's kernels ask at least ``questions`` times whether the run is to end, and it ends at each of these;
    after them it is stopped at a later question each time, ``growth`` times as late."""
    make, attributes = LONG_ROWS[kind]
    op, inputs = kind.split()[0], make(size)
    if op == "ReduceSumSquare":
        attributes = {"keepdims": 0}
    outputs = {"TopK": 2, "Unique": 4, "DynamicQuantizeLinear": 3}.get(op, 1)
    names = [f"y{i}" for i in range(outputs)]
    constant = {"Resize": "rs", "Conv": "w", "ConvTranspose": "w"}.get(op, "aklprs" if op != "QuantizeLinear" else "")
    weights = {name: value for name, value in inputs.items() if name in constant and value.size < 99}
    given = {name: value for name, value in inputs.items() if name not in weights}
    listed = list(inputs) if op != "DFT" else ["x", "", "a"]
    if op == "DFT":
        weights.pop("l")
    proto = helper.make_model(
        helper.make_graph(
            [node(op, listed, names, **attributes)],
            "g",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                for name, value in given.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in names],
            [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    runner = hetero.compile(proto, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_runner()
    assert isinstance(runner, CpuRunner)
    arrays = list(given.values())
    expected = [value.tobytes() for value in runner.run(arrays)]
    stopped, after = 0, 1
    while True:
        runner.cancellation.flag.set_after(after)
        try:
            found = runner.run(arrays)
        except hetero.Cancelled:
            stopped, after = after, after + 1 if after < questions else max(after + 1, int(growth * after))
        else:
            break
    runner.cancellation.clear()
    assert stopped >= questions
    assert [value.tobytes() for value in found] == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", LONG_ROWS)
def test_one_long_row_is_left_early(kind: str) -> None:
    """Which parts of a kernel look does not depend on how fast the machine is: the flag is set at the n-th look."""
    check_that_it_stops(kind, 1 << 22, 1, 1.5)


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", LONG_ROWS)
def test_one_huge_row_is_left_early(kind: str, times: int) -> None:
    """The number of questions grows with the size: no kernel asks just for the first part of its work."""
    check_that_it_stops(kind, times << 22, times, 4.0)


READING = """
import signal
import sys
import hetero

def end(*_):
    raise KeyboardInterrupt

core = hetero.Core()
signal.signal(signal.SIGALRM, end)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    core.read_model(sys.argv[1])
except KeyboardInterrupt:
    print("raised")
"""


def test_what_a_handler_raises_while_a_model_is_read_comes_out(tmp_path: Path) -> None:
    """Indexing a file is one call in C; the code after it used to drop what a handler raised there."""
    count = 100_000  # some 0.1 s
    nodes = [node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    onnx.save(make_model(nodes, {"v0": [4]}, [f"v{count}"]), path := tmp_path / "long.onnx")
    done = subprocess.run([sys.executable, "-c", READING, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "raised\n"), done.stderr
