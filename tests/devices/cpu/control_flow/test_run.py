"""If, Loop and Scan on the CPU alone, against onnxruntime; iterations in C, and one by one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import onnxruntime
import pytest

import hetero
from hetero.devices.cpu import runner
from hetero.devices.cpu.control_flow import run as control_flow
from hetero.devices.cpu.planner import Planner
from hetero.devices.cpu.plugin import create_plugin
from hetero.devices.cpu.runner import CpuRunner
from hetero.errors import Cancelled
from hetero.model.read import read_model
from sessions import onnxruntime_session
from template_runs import difference
from threads import in_threads

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
X = np.array([-1.5, 0.5, 2], np.float32)
M = np.arange(24, dtype=np.float32).reshape(2, 4, 3) / 8 - 1
YES, NO = np.array(True), np.array(False)

CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "carried values that change places": (
        """
        g (int64 n, float[3] x, float[3] y) => (float[3] p, float[3] q, float[k, 3] all)
        {
            p, q, all = Loop (n, , x, y) <body = b (int64 i, bool go, float[3] v, float[3] w)
                => (bool more, float[3] w2, float[3] v2, float[3] seen)
            { more = Identity (go)  w2 = Identity (w)  v2 = Identity (v)  seen = Identity (v) }>
        }""",
        [{"n": np.array(n), "x": X, "y": -X} for n in (0, 1, 2, 5)],
    ),
    "a sequence captured by a Scan in a Loop": (
        """
        g (int64 n, float[3] x, float[4, 3] rows) => (float[k, 4, 3] y)
        {
            pair = SequenceConstruct (x, x)
            y = Loop (n, "") <body = b (int64 i, bool go) => (bool more, float[4, 3] sums)
            {
                more = Identity (go)
                sums = Scan <num_scan_inputs = 1, body = s (float[3] row) => (float[3] sum)
                    { one = Constant <value = int64 {1}> ()  v = SequenceAt (pair, one)  sum = Add (row, v) }> (rows)
            }>
        }""",
        [{"n": np.array(n), "x": X, "rows": M[0]} for n in (1, 2)],
    ),
    "a body whose outputs are its inputs, captures and constants": (
        """
        g (int64 n, float[3] x) => (float[3] p, float[3] q, float[k, 3] c, float[l] d, int64[m] e)
        {
            a = Exp (x)
            p, q, c, d, e = Loop (n, , x, x) <body = b (int64 i, bool go, float[3] v, float[3] w)
                => (bool yes, float[3] v, float[3] r, float[3] s, float one, int64 j)
            {
                yes = Constant <value = bool {1}> ()
                one = Constant <value_float = 1.0> ()
                r = Identity (a)
                s = Identity (w)
                zero = Constant <value = int64 {0}> ()
                j = Add (i, zero)
            }>
        }""",
        [{"n": np.array(n), "x": X} for n in (1, 2, 5)],
    ),
    "a condition that is a constant false": (
        """
        g (float[3] x) => (float[3] p, float[k, 3] c)
        {
            p, c = Loop (, , x) <body = b (int64 i, bool go, float[3] v) => (bool no, float[3] w, float[3] s)
            { no = Constant <value = bool {0}> ()  w = Add (v, v)  s = Neg (v) }>
        }""",
        [{"x": X}],
    ),
    "more iterations than the first memory of their results has room for, and an end that only the body knows": (
        """
        g (float[3] x, float limit) => (float[3] p, float[k, 3] c)
        {
            p, c = Loop (, , x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w, float[3] s)
            {
                one = Constant <value_float = 1.0> ()
                w = Add (v, one)
                s = Mul (w, w)
                top = ReduceMax <keepdims = 0> (w)
                more = Less (top, limit)
            }>
        }""",
        [{"x": X, "limit": np.array(limit, np.float32)} for limit in (0, 63, 66, 67, 500)],
    ),
    "results of no iterations, of sizes that only symbols tell": (
        """
        g (int64 n, bool c, float[a, 3] x) => (float[a, 3] y, float[k, a, 3] all, int64[l] numbers)
        {
            y, all, numbers = Loop (n, c, x) <body = b (int64 i, bool go, float[a, 3] v)
                => (bool more, float[a, 3] w, float[a, 3] seen, int64 number)
            { more = Identity (go)  w = Neg (v)  seen = Exp (v)  number = Add (i, i) }>
        }""",
        [{"n": np.array(n), "c": c, "x": M[0]} for n, c in ((0, YES), (4, NO), (-3, YES), (3, YES))],
    ),
    "a iteration number and a condition of rank 1": (
        """
        g (int64[1] n, bool[1] c, float[3] x) => (float[3] y, float[k, 1] all)
        {
            y, all = Loop (n, c, x) <body = b (int64[1] i, bool[1] go, float[3] v)
                => (bool[1] more, float[3] w, float[1] f)
            { more = Identity (go)  f = Cast <to = 1> (i)  w = Add (v, f) }>
        }""",
        [{"n": np.array([n]), "c": np.array([True]), "x": X} for n in (1, 4)],
    ),
    "outputs that nobody reads": (
        """
        g (int64 n, float[3] x) => (float[k, 3] c)
        {
            p, c = Loop (n, , x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w, float[3] s)
            { more = Identity (go)  w = Exp (v)  s = Neg (v) }>
        }""",
        [{"n": np.array(2), "x": X / 8}],
    ),
    "a carried value that grows, and one that does not": (
        """
        g (int64 n, float[a] x) => (float[k] y, float z)
        {
            zero = Constant <value_float = 0.0> ()
            y, z = Loop (n, , x, zero) <body = b (int64 i, bool go, float[m] v, float s)
                => (bool more, float[o] w, float t)
            { more = Identity (go)  w = Concat <axis = 0> (v, x)  r = ReduceSum <keepdims = 0> (w)  t = Add (r, s) }>
        }""",
        [{"n": np.array(n), "x": X} for n in (0, 1, 3)],
    ),
    "a body whose plan waits for data": (
        """
        g (int64 n, float[a] x) => (float[a] y, int64[k] counts)
        {
            y, counts = Loop (n, , x) <body = b (int64 i, bool go, float[a] v) => (bool more, float[a] w, int64 count)
            {
                more = Identity (go)
                half = Constant <value_float = 0.5> ()
                w = Sub (v, half)
                at = NonZero (w)
                shape = Shape (at)
                one = Constant <value = int64 {1}> ()
                count = Gather (shape, one)
            }>
        }""",
        [{"n": np.array(4), "x": X}],
    ),
    "an If whose condition is a constant": (
        """
        g (float[3] x) => (float[3] y, float[3] z) <bool yes = {1}, bool no = {0}>
        {
            y = If (yes) <then_branch = t () => (float[3] p) { q = Neg (x)  p = Exp (q) },
                else_branch = e () => (float[3] p) { p = Identity (x) }>
            z = If (no) <then_branch = t () => (float[3] p) { p = Exp (x) },
                else_branch = e () => (float[3] p) { p = Identity (x) }>
        }""",
        [{"x": X}],
    ),
    "an If whose condition follows from shapes, with a branch that cuts the plan": (
        """
        g (float[a] x) => (float[b] y)
        {
            shape = Shape (x)
            three = Constant <value = int64[1] {3}> ()
            same = Equal (shape, three)
            c = Squeeze (same)
            y = If (c) <then_branch = t () => (float[k] p) { q = Neg (x)  r = Add (q, q)  p = Mul (r, x) },
                else_branch = e () => (float[m] p)
                {
                    at = NonZero (x)
                    zero = Constant <value = int64[1] {0}> ()
                    flat = Squeeze (at, zero)
                    p = Gather (x, flat)
                }>
        }""",
        [{"x": X}, {"x": np.array([0, 1, 0, 2], np.float32)}],
    ),
    "an If whose branches give captures and constants of different shapes": (
        """
        g (bool c, float[3] x) => (float[k] y, float[l] z)
        {
            y, z = If (c) <then_branch = t () => (float[3] p, float[2] q)
                    { p = Identity (x)  q = Constant <value_floats = [1.0, 2.0]> () },
                else_branch = e () => (float[1] p, float[3] q)
                    { p = Constant <value_floats = [3.0]> ()  q = Neg (x) }>
        }""",
        [{"c": c, "x": X} for c in (YES, NO, YES)],
    ),
    "If in If in Loop, with everything captured from everywhere": (
        """
        g (int64 n, bool c, float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}>
        {
            e = Exp (w)
            y = Loop (n, , x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] u)
            {
                more = Identity (go)
                f = Cast <to = 9> (i)
                u = If (f) <
                    then_branch = t () => (float[3] p) {
                        p = If (c) <then_branch = tt () => (float[3] q) { r = Add (v, w)  q = Add (r, x) },
                                    else_branch = te () => (float[3] q) { r = Sub (v, e)  q = Add (r, x) }> },
                    else_branch = o () => (float[3] p) { p = Mul (v, e) }>
            }>
        }""",
        [{"n": np.array(n), "c": c, "x": X} for n in (0, 1, 4) for c in (YES, NO)],
    ),
    "weights captured by matrix products in both branches": (
        """
        g (bool c, float[1, 3] x) => (float[1, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}>
        {
            y = If (c) <then_branch = t () => (float[1, 2] p) { p = MatMul (x, w) },
                else_branch = e () => (float[1, 2] p) { q = Neg (x)  p = MatMul (q, w) }>
        }""",
        [{"c": c, "x": X[None]} for c in (YES, NO)],
    ),
    "a Scan over negative axes, backwards, into other axes": (
        """
        g (float[3] s, float[2, 4, 3] m) => (float[3] y, float[3, 2, 4] a, float[3, 4, 2] b, float[4] c)
        {
            y, a, b, c = Scan (s, m, m) <num_scan_inputs = 2, scan_input_axes = [-2, 1],
                scan_input_directions = [1, 0], scan_output_axes = [-1, 1, 0], scan_output_directions = [0, 1, 1],
                body = t (float[3] v, float[2, 3] p, float[2, 3] q)
                    => (float[3] w, float[3, 2] r, float[3, 2] u, float total)
                {
                    d = Sub (p, q)
                    z = Constant <value = int64[1] {0}> ()
                    sum = ReduceSum <keepdims = 0> (d, z)
                    w = Add (v, sum)
                    r = Transpose (d)
                    u = Transpose (q)
                    total = ReduceSum <keepdims = 0> (w)
                }>
        }""",
        [{"s": X, "m": M}],
    ),
    "a Scan without states": (
        """
        g (float[4, 3] m) => (float[4, 3] a)
        { a = Scan (m) <num_scan_inputs = 1, body = u (float[3] row) => (float[3] out) { out = Neg (row) }> }""",
        [{"m": M[1]}],
    ),
}


def on_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    found: list[Any] = session_of(proto).run(None, feeds)
    return found


def session_of(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime_session(proto)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs iterations one by one, as those of a body that is cut."""
    monkeypatch.setattr(CpuRunner, "_new_iterations", lambda *arguments: None)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


@pytest.mark.spread(2)
@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_same_as_onnxruntime(case: str, in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_c:
        one_by_one(monkeypatch)
    monkeypatch.setattr(control_flow, "_FIRST_BYTES", 64)
    text, feeds = CASES[case]
    proto = parse(text)
    compiled = hetero.compile(proto, "CPU")
    for one in [*feeds, *feeds]:
        before = {name: array.copy() for name, array in one.items()}
        found, wanted = list(compiled(one).values()), on_onnxruntime(proto, one)
        for result, expected in zip(found, wanted, strict=True):
            assert difference(result, expected, 1e-6, 1e-6) is None
        assert all(np.array_equal(one[name], before[name]) for name in one)
        for result in found:
            result[...] = 1  # which is the caller's, and changes nothing of the next runs
        for result, expected in zip(compiled(one).values(), wanted, strict=True):
            assert difference(result, expected, 1e-6, 1e-6) is None


@pytest.mark.parametrize("in_c", [True, False])
def test_inputs_of_bodies_that_are_their_outputs(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # onnxruntime gives what was in its memory for such states of a Scan, and for numbers of iterations the ones after.
    if not in_c:
        one_by_one(monkeypatch)
    text = """
        g (float[3] s, float[4, 3] m, int64 n)
            => (float[3] t, float[4, 3] b, float[3] u, int64[k] numbers, bool[k] goes)
        {
            t, b = Scan (s, m) <num_scan_inputs = 1, body = p (float[3] v, float[3] row) => (float[3] v, float[3] row)
                { unused = Neg (v) }>
            u, numbers, goes = Loop (n, , s) <body = q (int64 i, bool go, float[3] w)
                => (bool go, float[3] w, int64 i, bool go) { unused = Neg (w) }>
        }"""
    compiled = hetero.compile(parse(text), "CPU")
    for iterations in (3, 1, 0):
        found = compiled({"s": X, "m": M[1], "n": np.array(iterations)})
        wanted = [X, M[1], X, np.arange(iterations), np.full(iterations, True)]
        for result, expected in zip(found.values(), wanted, strict=True):
            assert difference(result, expected, 0, 0) is None


COUNT = """
    g (int64 n, float[3] x) => (float[3] y) {
        [count] y = Loop (n, , x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w)
            { more = Identity (go)  w = Add (v, x) }>
    }"""
KEEP = """
    g (int64 n, float[a] x) => (float[a] y, float[k, a] all) {
        [keep] y, all = Loop (n, , x) <body = b (int64 i, bool go, float[a] v) => (bool more, float[a] w, float[a] s)
            { more = Identity (go)  w = Add (v, x)  s = Identity (w) }>
    }"""


def test_an_output_that_is_left_out_is_not_an_input_that_is_left_out() -> None:
    """Of a Loop without a condition, before another one: both names are empty. onnxruntime crashes on this model."""
    body = "body = b (int64 i, bool c, float[3] p) => (bool c2, float[3] r"
    proto = parse(f"""
        g (float[3] x, int64 n) => (float[3] u, float[k, 3] s)
        {{
            a = Exp (x)
            unread, s = Loop (n, , x) <{body}, float[3] q) {{ c2 = Identity (c)  r = Add (p, a)  q = Neg (r) }}>
            t = Tanh (a)
            u = Loop (n, , t) <{body}) {{ c2 = Identity (c)  r = Add (p, a) }}>
        }}""")
    proto.graph.node[1].output[0] = ""
    compiled = hetero.compile(proto, "CPU")
    for iterations in (1, 3, 0):
        last, rows = compiled({"x": X, "n": np.array(iterations)}).values()
        np.testing.assert_allclose(last, np.tanh(np.exp(X)) + iterations * np.exp(X), rtol=1e-5)
        wanted = [-X - iteration * np.exp(X) for iteration in range(1, iterations + 1)]
        np.testing.assert_allclose(rows, np.reshape(wanted, (iterations, 3)), rtol=1e-5)


def test_a_loop_without_a_trip_count_ends_by_its_condition() -> None:
    compiled = hetero.compile(
        parse("""
    g (bool start, float[3] x) => (float[3] y) {
        [until] y = Loop (, start, x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w)
            { w = Add (v, x)  top = ReduceMax <keepdims = 0> (w)  ten = Constant <value_float = 10.0> ()
              more = Less (top, ten) }>
    }"""),
        "CPU",
    )
    x = np.array([1, 0.5, 2], np.float32)
    np.testing.assert_array_equal(compiled({"start": np.array(True), "x": x})[0], 5 * x)
    np.testing.assert_array_equal(compiled({"start": np.array(False), "x": x})[0], x)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("in_c", [True, False])
def test_a_loop_without_end_is_interrupted_and_cancelled(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_c:
        one_by_one(monkeypatch)
    compiled = hetero.compile(parse(COUNT), "CPU")
    feeds = {"n": np.array(1 << 62), "x": X}
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(feeds)
    runner = compiled.create_runner()
    assert isinstance(runner, CpuRunner)
    timer = threading.Timer(0.2, runner.cancellation.request)
    timer.start()
    with pytest.raises(Cancelled, match="cancelled"):
        runner.run([feeds["n"], X])
    runner.cancellation.clear()
    (found,) = runner.run([np.array(2), X])
    np.testing.assert_array_equal(found, 3 * X)


@pytest.mark.parametrize("in_c", [True, False])
def test_results_that_outgrow_memory_name_the_node(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_c:
        one_by_one(monkeypatch)
    monkeypatch.setattr(control_flow, "_FIRST_BYTES", 1 << 10)
    monkeypatch.setattr(control_flow, "_max_bytes", lambda: 1 << 20)
    compiled = hetero.compile(parse(KEEP), "CPU")
    with pytest.raises(hetero.InferenceError, match=r"node 'keep' \(Loop\): .*more than half of the memory"):
        compiled({"n": np.array(1 << 62), "x": np.ones(1000, np.float32)})


def test_a_value_that_doubles_names_the_node_that_has_no_memory() -> None:
    script = f"""
import resource, numpy as np, onnx.parser, hetero
compiled = hetero.compile(onnx.parser.parse_model('''{HEAD}g (int64 n, float[a] x) => (float[k] y) {{
    [grow] y = Loop (n, , x) <body = b (int64 i, bool go, float[m] v) => (bool more, float[o] w)
        {{ more = Identity (go)  [double] w = Concat <axis = 0> (v, v) }}>
}}'''), "CPU", {{"INFERENCE_NUM_THREADS": 1}})
request = compiled.create_infer_request()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 27), used + (1 << 27)))
for n in (2, 2**63 - 1, 3, 2**63 - 1):
    try:
        print(request.infer({{"n": np.array(n), "x": np.ones(3, np.float32)}})["y"].shape)
    except hetero.InferenceError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    first, second, third, fourth = done.stdout.splitlines()
    assert (first, third) == ("(12,)", "(24,)")
    expected = r"node 'grow' \(Loop\): iteration \d+: node 'double' \(Concat\): not enough memory; its result of shape"
    assert re.search(expected, second)
    assert re.search(expected, fourth)


@pytest.mark.parametrize("in_c", [True, False])
def test_scanned_outputs_that_are_constant_strings(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_c:
        one_by_one(monkeypatch)
    text = """
        g (int64 n, float[3] x) => (float[3] y, string[k, 1] all) {
            y, all = Loop (n, , x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w, string[1] s)
                { more = Identity (go)  w = Add (v, x)  s = Constant <value_strings = ["a word"]> () }>
        }"""
    compiled = hetero.compile(parse(text), "CPU")
    for count in (3, 0, 100):
        found = compiled({"n": np.array(count), "x": X})
        np.testing.assert_array_equal(found["all"], np.full((count, 1), "a word", object))


def test_results_of_an_inference_are_inputs_of_the_next() -> None:
    """The result of the last inference may lie in a buffer of its iterations."""
    text = """
        g (int64 n, float[a] x) => (float[k] y, float[l] z) {
            y, z = Loop (n, , x, x) <body = b (int64 i, bool go, float[m] v, float[p] u)
                => (bool more, float[o] w, float[q] t)
            {
                more = Identity (go)
                one = Constant <value = int64[1] {1}> ()
                end = Constant <value = int64[1] {1000}> ()
                both = Concat <axis = 0> (v, u)
                w = Slice (both, one, end)
                t = Neg (v)
            }>
        }"""
    request = hetero.compile(parse(text), "CPU").create_infer_request()
    y, kept = np.arange(3, dtype=np.float32), []
    for count in (2, 3, 1, 0, 4):
        v = u = y
        for _ in range(count):
            v, u = np.concatenate([v, u])[1:], -v
        before = y.copy()
        found = request.infer({"n": np.array(count), "x": y})
        np.testing.assert_array_equal(y, before)
        kept.append((found["y"], v, found["z"], u))
        y = found["y"]
    for y, v, z, u in kept:
        np.testing.assert_array_equal(y, v)
        np.testing.assert_array_equal(z, u)


def test_no_memory_names_the_node() -> None:
    script = f"""
import resource, numpy as np, onnx.parser, hetero
compiled = hetero.compile(onnx.parser.parse_model('''{HEAD}{KEEP}'''), "CPU", {{"INFERENCE_NUM_THREADS": 1}})
compiled({{"n": np.array(3), "x": np.ones(1 << 20, np.float32)}})
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), used + (1 << 28)))
try:
    compiled({{"n": np.array(1 << 62), "x": np.ones(1 << 20, np.float32)}})
except hetero.InferenceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert "node 'keep' (Loop)" in done.stdout
    assert "not enough memory" in done.stdout


@pytest.mark.parametrize("in_c", [True, False])
def test_a_body_that_fails_names_both_nodes_and_the_iteration(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_c:
        one_by_one(monkeypatch)
    text = """
        g (int64 n, int64 x) => (int64 y) {
            [count] y = Loop (n, , x) <body = b (int64 i, bool go, int64 v) => (bool more, int64 w)
            {
                more = Identity (go)
                two = Constant <value = int64 {2}> ()
                d = Sub (i, two)
                [ratio] w = Div (v, d)
            }>
        }"""
    compiled = hetero.compile(parse(text), "CPU")
    assert compiled({"n": np.array(2), "x": np.array(8)})["y"] == 4
    with pytest.raises(
        hetero.InferenceError, match=r"'count' \(Loop\): iteration 2: node 'ratio' \(Div\): .*division by zero"
    ):
        compiled({"n": np.array(9), "x": np.array(8)})
    within = """
        g (int64 x) => (int64 y) <bool yes = {1}> {
            [choice] y = If (yes) <then_branch = t () => (int64 p) { z = Sub (x, x)  [ratio] p = Div (x, z) },
                else_branch = e () => (int64 p) { p = Identity (x) }>
        }"""
    with pytest.raises(
        hetero.InferenceError, match=r"node 'ratio' \(Div\), in node 'choice' \(If\): .*division by zero"
    ):
        hetero.compile(parse(within), "CPU")({"x": np.array(8)})


def test_operands_that_do_not_fit_together_name_the_node() -> None:
    text = """
        g (int64 n, float[3] x) => (float[k] y, float[l, m] all) {
            [grow] y, all = Loop (n, , x) <body = b (int64 i, bool go, float[o] v)
                => (bool more, float[p] w, float[q] s)
                { more = Identity (go)  w = Concat <axis = 0> (v, x)  s = Neg (v) }>
        }"""
    with pytest.raises(hetero.InferenceError, match=r"'grow' \(Loop\): iteration 1: a scanned output is float32\[6\]"):
        hetero.compile(parse(text), "CPU")({"n": np.array(3), "x": X})
    scan = """
        g (float[a, 3] m, float[b, 3] o) => (float[a, 3] y) {
            [scan] y = Scan (m, o) <num_scan_inputs = 2, body = t (float[3] p, float[3] q) => (float[3] r)
                { r = Add (p, q) }>
        }"""
    with pytest.raises(hetero.InferenceError, match=r"'scan' \(Scan\): the scanned inputs have different lengths"):
        hetero.compile(parse(scan), "CPU")({"m": M[0], "o": M[0][:2]})


REFUSED = {
    "its then_branch: node 'p' (ImageDecoder): no kernel for ImageDecoder": """
        g (bool c, uint8[2] x) => (uint8[k, l, m] y) {
            y = If (c) <then_branch = t () => (uint8[a, b, 3] p) { p = ImageDecoder (x) },
                else_branch = e () => (uint8[a, b, 3] p) { z = Constant <value = int64[3] {2, 1, 1}> ()
                    p = Reshape (x, z) }>
        }""",
    "its body: node 'w' (If): its else_branch: node 'q' (ImageDecoder): no kernel for ImageDecoder": """
        g (int64 n, uint8[3] x) => (uint8[3] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, uint8[3] v) => (bool more, uint8[3] w) {
                more = Identity (go)
                w = If (go) <then_branch = t () => (uint8[3] p) { p = Identity (v) }, else_branch = e () => (uint8[3] q)
                    { q = ImageDecoder (v) }>
            }>
        }""",
    "its body has 3 inputs and 2 outputs, which does not fit 4 inputs and 1 outputs": """
        g (int64 n, float[3] x) => (float[3] y) {
            y = Loop (n, , x, x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w)
                { more = Identity (go)  w = Neg (v) }>
        }""",
    "scan_input_axes has 2 entries, expected 1": """
        g (float[4, 3] m) => (float[4, 3] y) {
            y = Scan (m) <num_scan_inputs = 1, scan_input_axes = [0, 1], body = t (float[3] p) => (float[3] r)
                { r = Neg (p) }>
        }""",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_with_the_reason(reason: str) -> None:
    core = hetero.Core()
    support = core.query_model(core.read_model(parse(REFUSED[reason])), "CPU")
    assert support.reasons["y"] == {"CPU": reason}


def test_deep_nesting() -> None:
    body = "p30 = Add (x, x)"
    for depth in reversed(range(30)):
        body = f"""p{depth} = If (c) <then_branch = t{depth} () => (float[3] p{depth + 1}) {{ {body} }},
            else_branch = e{depth} () => (float[3] q) {{ q = Neg (x) }}>"""
    compiled = hetero.compile(parse(f"g (bool c, float[3] x) => (float[3] p0) {{ {body} }}"), "CPU")
    np.testing.assert_array_equal(compiled({"c": YES, "x": X})["p0"], 2 * X)
    np.testing.assert_array_equal(compiled({"c": NO, "x": X})["p0"], -X)


def test_a_row_of_the_profile_for_the_node() -> None:
    compiled = hetero.compile(parse(COUNT), "CPU", {"PERF_COUNT": True})
    request = compiled.create_infer_request()
    request.infer({"n": np.array(100_000), "x": X})
    (row,) = request.profiling_info
    assert (row.node, row.layer_type, row.status) == ("count", "Loop", "EXECUTED")
    assert row.real_us > 1000


def test_threads_share_the_plans_of_bodies() -> None:
    text, feeds = CASES["If in If in Loop, with everything captured from everywhere"]
    proto = parse(text)
    compiled = hetero.compile(proto, "CPU")
    wanted = [on_onnxruntime(proto, one)[0] for one in feeds]
    wrong: list[str | None] = []

    def work() -> None:
        for _ in range(20):
            for one, expected in zip(feeds, wanted, strict=True):
                text = difference(compiled(one)["y"], expected, 1e-6, 1e-6)
                if text:
                    wrong.append(text)

    in_threads(lambda _: work(), range(4))
    assert not wrong


def test_a_shape_is_planned_once_when_threads_meet_it(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    first = Planner.first

    def slow(planner: Planner, *types: Any) -> Any:
        planned.append(types[0])
        time.sleep(0.05)
        return first(planner, *types)

    monkeypatch.setattr(Planner, "first", slow)
    compiled = hetero.compile(parse("g (float[a] x) => (float[a] y) { y = Neg (x) }"), "CPU")
    in_threads(lambda n: compiled({"x": np.ones(n, np.float32)}), (3, 3, 4, 4, 3))
    assert sorted(planned) == [((3,),), ((4,),)]


def test_captured_weights_are_packed_once() -> None:
    text, _ = CASES["weights captured by matrix products in both branches"]
    model = read_model(parse(text))
    compiled = create_plugin().compile_model(model, {})
    runner = compiled.create_runner()
    for condition in (YES, NO):
        runner.run([condition, X[None]])
    assert isinstance(runner, CpuRunner)
    assert len(runner._plans.planner._packed) == 1


def test_a_value_that_grows_is_planned_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (int64 n, float[3] x) => (float[k] y, float[n] tops) {
        y, tops = Loop (n, , x) <body = b (int64 i, bool go, float[m] v) => (bool more, float[o] w, float top)
            { more = Identity (go)  w = Concat <axis = 0> (v, x)  top = ReduceMax <keepdims = 0> (w) }>
    }"""
    compiled = hetero.compile(onnx.parser.parse_model(HEAD + text), "CPU")
    planned = []
    first = Planner.first
    monkeypatch.setattr(Planner, "first", lambda self, *types: planned.append(types) or first(self, *types))
    for iterations in (200, 150):
        found = compiled({"n": np.array(iterations), "x": X})
        np.testing.assert_array_equal(found["y"], np.tile(X, iterations + 1))
    assert len(planned) < 10


IN_C = {
    "a value that grows and is read": """
        w = Concat <axis = 0> (v, x)
        seen = ReduceSum <keepdims = 0> (w)""",
    "a value that shrinks": """
        one = Constant <value = int64[1] {1}> ()
        end = Constant <value = int64[1] {1000}> ()
        w = Slice (v, one, end)
        seen = ReduceSum <keepdims = 0> (w)""",
    "a size that depends on the number of the iteration": """
        flat = Constant <value = int64[1] {-1}> ()
        one = Constant <value = int64[1] {1}> ()
        begin = Reshape (i, flat)
        end = Add (begin, one)
        row = Slice (x, begin, end)
        w = Concat <axis = 0> (row, v)
        seen = ReduceSum <keepdims = 0> (row)""",
}


@pytest.mark.parametrize("case", IN_C)
def test_iterations_of_changing_sizes_run_in_c(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""g (int64 n, float[a] x) => (float[k] y, float[l] all) {{
        y, all = Loop (n, , x) <body = b (int64 i, bool go, float[m] v) => (bool more, float[o] w, float seen)
            {{ more = Identity (go) {IN_C[case]} }}>
    }}"""
    proto = parse(text)
    compiled = hetero.compile(proto, "CPU")
    monkeypatch.setattr(runner, "iterate", None)  # which runs iterations one by one
    for size, count in ((3, 5), (2, 0), (4, 2), (3, 7)):
        feeds = {"n": np.array(count), "x": np.arange(size, dtype=np.float32) - 1}
        for found, wanted in zip(compiled(feeds).values(), on_onnxruntime(proto, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted)


CARRIED_SIZES = {
    "a loop": """Loop (n, , x, first) <body = b (int64 i, bool go, float[m] v, int64[1] at)
        => (bool more, float[o] w, int64[1] after, float seen) { more = Identity (go)  BODY }>""",
    "a scan": """Scan <num_scan_inputs = 1, body = b (float[m] v, int64[1] at, float row)
        => (float[o] w, int64[1] after, float seen) { BODY }> (x, first, z)""",
}
FROM_CARRIED = {
    "a slice": "end = Add (at, two)  r = Slice (z, at, end)",
    "a fill, of a captured size too": "e = Add (at, more_rows)  r = ConstantOfShape <value = float[1] {2}> (e)",
    "a size that is read and computed": """s = Shape (v)  h = Div (s, two)  k = Min (h, at)  r = Slice (z, zero, k)""",
}


@pytest.mark.parametrize("operator", CARRIED_SIZES)
@pytest.mark.parametrize("case", FROM_CARRIED)
def test_sizes_that_depend_on_carried_integers(case: str, operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""{FROM_CARRIED[case]}  w = Concat <axis = 0> (r, x)  seen = ReduceSum <keepdims = 0> (r)
        after = Add (at, one)"""
    text = f"""g (int64 n, float[a] x, float[b] z, int64[1] first, int64[1] more_rows)
            => (float[k] y, int64[1] last, float[l] all) {{
        one = Constant <value = int64[1] {{1}}> ()  two = Constant <value = int64[1] {{2}}> ()
        zero = Constant <value = int64[1] {{0}}> ()
        y, last, all = {CARRIED_SIZES[operator].replace("BODY", body)}
    }}"""
    proto = parse(text)
    compiled = hetero.compile(proto, "CPU")
    monkeypatch.setattr(runner, "iterate", None)  # which runs iterations one by one
    for size, count, first in ((3, 5, 0), (2, 1, 1), (4, 2, 2), (3, 9, 0), (0, 4, 1), (3, 5, 3)):
        feeds = {
            "n": np.array(count),
            "x": np.arange(size, dtype=np.float32) - 1,
            "z": np.arange(count, dtype=np.float32),
            "first": np.array([first]),
            "more_rows": np.array([size]),
        }
        if operator == "a scan":  # onnxruntime rejects states of other sizes
            expected: Any = onnx.reference.ReferenceEvaluator(proto).run(None, feeds)
        else:
            expected = on_onnxruntime(proto, feeds)
        for found, wanted in zip(compiled(feeds).values(), expected, strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_array_equal(found, wanted)


def test_a_body_that_is_cut_is_not_planned_for_each_run_of_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only again after a run that begins with another segment, such as for other sizes."""
    proto = onnx.parser.parse_model(
        f"""{HEAD} g (int64 n, float[m] x) => (float[k] y, int64[n] sizes) {{
            y, sizes = Loop (n, , x) <body = b (int64 i, bool go, float[c] v) => (bool go, float[d] w, int64 s) {{
                places = NonZero (v)  s = Size (places)  r = Reciprocal (v)  w = Relu (r)
            }}>
        }}"""
    )
    session = onnxruntime_session(proto)
    core = hetero.Core()
    request = core.compile_model(core.read_model(proto), "CPU").create_infer_request()
    planned: list[int] = []
    original = CpuRunner._planned_iterations

    def noting(*arguments: Any) -> Any:
        planned.append(1)
        return original(*arguments)

    monkeypatch.setattr(CpuRunner, "_planned_iterations", noting)
    counts = []
    runs = ((2, [1, 0, -2]), (3, [0, 0, 3]), (1, [1, 2, 3]), (4, [1, 0]), (0, []), (2, []), (5, [2, -1]), (3, [0, 1]))
    for n, x in (*runs, *[runs[-1]] * 5):
        feeds = {"n": np.array(n), "x": np.array(x, np.float32)}
        planned.clear()
        for found, wanted in zip(request.infer(feeds).values(), session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted)
        counts.append(len(planned))
    assert counts[0] == 1
    assert counts[-2:] == [0, 0]


RANKS = {
    "unknown": "r = Reshape (v, s)",
    "inferred": "r = Neg (z)",
    "inferred, of a type that is not declared": "r = Shape (z)",
}


@pytest.mark.parametrize("case", RANKS)
def test_scanned_outputs_of_no_iterations_whose_rank_is_not_declared(case: str) -> None:
    proto = parse(f"""g (int64 n, float[a] x, float[2, b] z, int64[c] s) => (float[a] y, float[d] all, float[e] t) {{
        y, all, none = Loop (n, , x) <body = b (int64 i, bool go, float[m] v)
            => (bool more, float[m] w, float[q] r, float[q] unused)
            {{ more = Identity (go)  w = Neg (v)  {RANKS[case]}  unused = Reshape (x, s) }}>
        t = Abs (all)
    }}""")
    body = proto.graph.node[0].attribute[0].g
    for output in body.output[2:]:
        output.type.tensor_type.ClearField("shape")
    if "type" in case:
        body.output[2].ClearField("type")
    for output in proto.graph.output[1:]:
        output.type.tensor_type.ClearField("shape")
        output.type.tensor_type.elem_type = onnx.TensorProto.INT64 if "type" in case else onnx.TensorProto.FLOAT
    compiled = hetero.compile(proto, "CPU")
    for count in (0, 2, 0):
        feeds = {"n": np.array(count), "x": np.ones(4, np.float32), "z": M[0][:2], "s": np.array([2, 2])}
        for found, wanted in zip(compiled(feeds).values(), on_onnxruntime(proto, feeds), strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_array_equal(found, wanted)


# Bodies of a Loop that are cut. They read the number i, the carried v and the captured x; w and the row r of a scanned
# output are their results.
CUT = {
    "a count": "at = NonZero (v)  k = Size (at)  f = Cast <to = 1> (k)  w = Add (v, f)  r = Identity (f)",
    "a result of another size": """at = NonZero (v)  t = Transpose (at)  u = GatherND (v, t)
        w = Concat <axis = 0> (u, x)  r = ReduceSum <keepdims = 0> (u)""",
    "the number of the iteration": """at = NonZero (v)  k = Size (at)  m = Add (k, i)  r = Cast <to = 1> (m)
        w = Identity (v)""",
    "a condition that ends it": """at = NonZero (v)  k = Size (at)  r = Cast <to = 1> (k)  w = Slice (v, one, end)""",
    "an If of two sizes": """b = Mod (i, two)  c = Cast <to = 9> (b)
        u = If (c) <then_branch = t () => (float[p1] p) { p = Concat <axis = 0> (v, x) },
                    else_branch = e () => (float[p2] p) { p = Neg (x) }>
        r = ReduceMax <keepdims = 0> (u)  w = Add (x, r)""",
    "an If in an If": """b = Mod (i, two)  c = Cast <to = 9> (b)  d = Less (i, two)
        u = If (c) <then_branch = t () => (float[p1] p) {
                p = If (d) <then_branch = t2 () => (float[p3] q) { q = Concat <axis = 0> (v, x) },
                            else_branch = e2 () => (float[p4] q) { q = Neg (v) }> },
            else_branch = e () => (float[p2] p) { at = NonZero (x)  k = Cast <to = 1> (at)  p = Reshape (k, minus) }>
        r = ReduceSum <keepdims = 0> (u)  w = Add (x, r)""",
    "a Loop": """at = NonZero (x)  k = Size (at)
        w = Loop (k, , v) <body = inner (int64 j, bool g, float[p1] p) => (bool g2, float[p2] q)
            { a = NonZero (x)
              f = Cast <to = 1> (a)  h = ReduceSum <keepdims = 0> (f)  q = Add (p, h)  g2 = Identity (g) }>
        r = ReduceMin <keepdims = 0> (w)""",
    "a Scan": """at = NonZero (x)  k = Cast <to = 1> (at)
        w, all = Scan (v, k) <num_scan_inputs = 1, body = inner (float[p1] p, float[p2] row) => (float[p1] q, float o)
            { a = NonZero (row)  f = Cast <to = 1> (a)  h = ReduceSum <keepdims = 0> (f)  q = Add (p, h)  o = Neg (h) }>
        r = ReduceMin <keepdims = 0> (all)""",
}


@pytest.mark.parametrize("case", CUT)
def test_bodies_that_are_cut(case: str) -> None:
    """Values and results of an inference stay as they are, and the sizes of the next one differ."""
    more = "m2 = Greater (k, zero)" if "condition" in case else "m2 = Identity (go)"
    proto = parse(f"""g (int64 n, bool go0, float[a] x) => (float[b] y, float[c] all) {{
        one = Constant <value = int64[1] {{1}}> ()  end = Constant <value = int64[1] {{9}}> ()
        minus = Constant <value = int64[1] {{-1}}> ()  two = Constant <value = int64 {{2}}> ()
        zero = Constant <value = int64 {{0}}> ()
        y, all = Loop (n, go0, x) <body = b (int64 i, bool go, float[d] v) => (bool m2, float[e] w, float r)
            {{ {CUT[case]}  {more} }}>
    }}""")
    compiled = hetero.compile(proto, "CPU")
    template, session, kept = hetero.compile(proto, "TEMPLATE"), session_of(proto), []
    for x in ([1, 0, 2], [0, 3, 0], [1, 2], [5], [1, 0, 2]):
        for count, go in ((4, True), (0, True), (1, True), (3, False), (5, True)):
            feeds = {"n": np.array(count), "go0": np.array(go), "x": np.array(x, np.float32)}
            found, wanted = list(compiled(feeds).values()), session.run(None, feeds)
            kept.append((found, wanted))
            assert feeds["x"].tolist() == x
    for found, wanted in kept:
        for result, expected in zip(found, wanted, strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(result, expected)
    for result, expected in zip(template(feeds).values(), found, strict=True):
        np.testing.assert_array_equal(result, expected)
