"""Cost of an iteration of Loop and Scan with small bodies, and of an If, beside onnxruntime.

    python bench/control_flow.py

Median CPU time with one thread, divided by the number of iterations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx.parser

import hetero
from hetero.base.formatting import duration
from sessions import onnxruntime_session
from table import Table
from timing import medians

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
TRIPS = 1000
CASES = {
    "Loop, one Add": """
        g (int64 n, float[4] x) => (float[4] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float[4] v) => (bool more, float[4] w)
                { more = Identity (go)  w = Add (v, x) }>
        }""",
    "Loop, four nodes, a condition and a scanned output": """
        g (int64 n, float[4] x) => (float[4] y, float[k, 4] all) {
            y, all = Loop (n, , x) <body = b (int64 i, bool go, float[4] v) => (bool more, float[4] w, float[4] seen) {
                f = Cast <to = 1> (i)
                w = Add (v, f)
                seen = Mul (w, x)
                top = ReduceMax <keepdims = 0> (w)
                limit = Constant <value_float = 1e30> ()
                more = Less (top, limit)
            }>
        }""",
    "Loop, whose body is an If": """
        g (int64 n, float[4] x) => (float[4] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float[4] v) => (bool more, float[4] w) {
                more = Identity (go)
                two = Constant <value = int64 {2}> ()
                odd = Mod (i, two)
                c = Cast <to = 9> (odd)
                w = If (c) <then_branch = t () => (float[4] p) { p = Add (v, x) },
                            else_branch = e () => (float[4] p) { p = Sub (v, x) }>
            }>
        }""",
    "Loop, whose value grows": """
        g (int64 n, float[4] x) => (float[k] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float[m] v) => (bool more, float[o] w)
                { more = Identity (go)  w = Concat <axis = 0> (v, x) }>
        }""",
    "Loop, whose value grows and is read": """
        g (int64 n, float[4] x) => (float[k] y, float[n] tops) {
            y, tops = Loop (n, , x) <body = b (int64 i, bool go, float[m] v) => (bool more, float[o] w, float top)
                { more = Identity (go)  w = Concat <axis = 0> (v, x)  top = ReduceMax <keepdims = 0> (w) }>
        }""",
    "Loop, whose value grows, with an If": """
        g (int64 n, float[4] x) => (float[k] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float[m] v) => (bool more, float[o] w) {
                more = Identity (go)
                two = Constant <value = int64 {2}> ()
                odd = Mod (i, two)
                c = Cast <to = 9> (odd)
                u = If (c) <then_branch = t () => (float[p1] p) { p = Relu (v) },
                            else_branch = e () => (float[p2] p) { p = Neg (v) }>
                w = Concat <axis = 0> (u, x)
            }>
        }""",
    "Loop, with a slice at a counter that it carries": """
        g (int64 n, float[4] x, float[1004] rows, int64[1] first) => (float[4] y, int64[1] last) {
            one = Constant <value = int64[1] {1}> ()
            four = Constant <value = int64[1] {4}> ()
            y, last = Loop (n, , x, first) <body = b (int64 i, bool go, float[4] v, int64[1] at)
                => (bool more, float[4] w, int64[1] after) {
                more = Identity (go)
                end = Add (at, four)
                part = Slice (rows, at, end)
                w = Add (v, part)
                after = Add (at, one)
            }>
        }""",
    "Loop, whose body is cut by a NonZero": """
        g (int64 n, float[4] x) => (float[4] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float[4] v) => (bool more, float[4] w) {
                more = Identity (go)
                places = NonZero (v)
                count = Size (places)
                c = Cast <to = 1> (count)
                w = Add (x, c)
            }>
        }""",
    "Loop, whose body is cut by an If of two sizes": """
        g (int64 n, float[4] x) => (float[4] y) {
            y = Loop (n, , x) <body = b (int64 i, bool go, float[4] v) => (bool more, float[4] w) {
                more = Identity (go)
                two = Constant <value = int64 {2}> ()
                odd = Mod (i, two)
                c = Cast <to = 9> (odd)
                u = If (c) <then_branch = t () => (float[p1] p) { p = Add (v, x) },
                            else_branch = e () => (float[p2] p) { p = Concat <axis = 0> (v, x) }>
                top = ReduceMax <keepdims = 0> (u)
                w = Add (x, top)
            }>
        }""",
    "Scan, one Add": """
        g (float[4] s, float[1000, 4] m) => (float[4] y, float[1000, 4] all) {
            y, all = Scan (s, m) <num_scan_inputs = 1, body = b (float[4] v, float[4] row)
                => (float[4] w, float[4] seen) { w = Add (v, row)  seen = Identity (w) }>
        }""",
}


def control_flow() -> Table:
    x = np.array([1, 2, 3, 4], np.float32)
    feeds: dict[str, Any] = {
        "n": np.array(TRIPS),
        "x": x,
        "s": x,
        "m": np.ones((TRIPS, 4), np.float32),
        "rows": np.ones(TRIPS + 4, np.float32),
        "first": np.array([0]),
    }
    table = Table("", "onnxruntime", "CPU", "ratio")
    for name, text in CASES.items():
        proto = onnx.parser.parse_model(HEAD + text)
        compiled = hetero.compile(proto, "CPU", {"INFERENCE_NUM_THREADS": 1})
        session = onnxruntime_session(proto)
        inputs = {port.name: feeds[port.name] for port in compiled.inputs}
        for own, reference in zip(compiled(inputs).values(), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(own, reference, rtol=1e-5)
        works = {"onnxruntime": partial(session.run, None, inputs), "CPU": partial(compiled, inputs)}
        reference, own = (seconds / TRIPS for seconds in medians(works, rounds=15).values())
        table.add(name, duration(reference), duration(own), f"{own / reference:.2f}")
    return table


if __name__ == "__main__":
    control_flow().print()
