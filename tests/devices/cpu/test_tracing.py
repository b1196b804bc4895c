"""Plans that hold for many sizes: as many as necessary, with the results and the errors of plans for single sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

import hetero
from fuzz.differential import single_sizes
from hetero._sizes import SizeTrace, UnfitForSymbols
from hetero.devices.cpu.plugin import CpuModel
from hetero.errors import HeteroError, InferenceError

Feeds = dict[str, np.ndarray]


def compiled(text: str) -> CpuModel:
    model = hetero.compile(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'), "CPU")
    assert isinstance(model, CpuModel)
    return model


def answer(model: CpuModel, feeds: Feeds) -> list[np.ndarray] | str:
    try:
        return [np.array(result) for result in model(feeds).arrays()]
    except HeteroError as error:
        return str(error)


def check(text: str, calls: Sequence[Feeds], plans: int | None = None) -> list[list[np.ndarray] | str]:
    """Each call gets the bits, or the error, of a plan for its sizes alone. ``plans``: how many the calls need."""
    model = compiled(text)
    answers = [answer(model, feeds) for feeds in calls]
    failures = sum(isinstance(found, str) for found in answers)
    assert len(model._plans.planner.unfit) <= failures, "only what fails anyway cannot be planned with symbols"
    if plans is not None:
        assert len(model._plans.segments()) == plans
    with single_sizes():
        for feeds, mine in zip(calls, answers, strict=True):
            wanted = answer(compiled(text), feeds)
            if isinstance(wanted, str) or isinstance(mine, str):
                assert mine == wanted
                continue
            for one, other in zip(mine, wanted, strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
    return answers


def f(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


SIZES = (4, 6, 9, 2, 17, 100, 3)


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("s = Shape (x)  y = Reshape (x, t)", "float[p, q]"),
        ("y = Transpose (x)", "float[p, q]"),
        ("a = Relu (x)  b = Transpose (a)  c = MatMul (a, b)  y = Softmax (c)", "float[p, q]"),
        ("a = Exp (x)  b = Add (a, x)  y = Mul (b, b)", "float[p, q]"),
        ("s = Shape (x)  z = ConstantOfShape (s)  y = Add (z, x)", "float[p, q]"),
        ("s = Shape (x)  h = Gather (s, zero)  y = Range (zero, h, one)", "int64[p]"),
        ("s = Shape (x)  y = ReduceProd <keepdims = 0> (s)", "int64"),
        ("s = Shape <start = 0, end = 1> (x)  two = Add (s, s)  u = Concat <axis = 0> (two, eights)"
         "  e = Concat <axis = 0> (x, x)  y = Expand (e, u)", "float[p, q]"),
        ("y = Trilu (x)", "float[p, q]"),
        ("a = Concat <axis = 0> (x, x, x)  y = Slice (a, ones, minus)", "float[p, q]"),
        ("l, r = Split <axis = 1, num_outputs = 2> (x)  m = Mul (l, r)  y = ReduceSum (m)", "float[1, 1]"),
        ("a = CumSum (x, zero)  y = Pad (a, pads)", "float[p, q]"),
        ("n = NonZero (x)  y = Transpose (n)", "int64[p, q]"),
        ("y = GatherND (x, places)", "float[p]"),
        ("a = Shape (x)  b = Cast <to = 1> (a)  c = Sqrt (b)  y = Floor (c)", "float[p]"),
        ("a = Shape (x)  b = Cast <to = 1> (a)  c = Mul (b, half)  d = Floor (c)  e = Cast <to = 7> (d)"
         "  g = Slice (x, zeros, e)  y = Neg (g)", "float[p, q]"),
    ],
)  # fmt: skip
def test_operators_on_sizes_that_change(body: str, result: str) -> None:
    constants = """<int64[2] t = {-1, 4}, int64 zero = {0}, int64 one = {1}, int64[1] eights = {8}, int64[1] ones = {1},
        int64[1] minus = {-1}, int64[4] pads = {1, 0, 2, 0}, int64[1, 2] places = {1, 3}, float[2] half = {0.5, 1},
        int64[2] zeros = {0, 0}>"""
    check(f"g (float[n, 8] x) => ({result} y) {constants} {{ {body} }}", [{"x": f(n, 8)} for n in SIZES])


def test_one_plan_serves_all_sizes_that_are_like_it() -> None:
    text = """g (float[b, t, 8] x, float[8, 8] w) => (float[b, h, t, d] y) <int64[4] split = {0, 0, 2, 4}> {
        a = MatMul (x, w)  c = Relu (a)  r = Reshape (c, split)  y = Transpose <perm = [0, 2, 1, 3]> (r) }"""
    sizes = [(2, 3), (2, 5), (3, 7), (5, 9), (2, 50), (9, 2), (4, 4)]
    check(text, [{"x": f(b, t, 8), "w": f(8, 8)} for b, t in sizes], plans=4)


@pytest.mark.parametrize(
    ("text", "good", "bad", "error"),
    [
        (
            "g (float[n, 2] x, float[m, k] z) => (float[p, 2] y) { a = Neg (x)  y = Concat <axis = 0> (a, z) }",
            [{"x": f(n, 2), "z": f(m, 2)} for n, m in ((1, 2), (3, 4), (5, 5))],
            {"x": f(4, 2), "z": f(2, 3)},
            r"Concat.*float32\[4, 2\], float32\[2, 3\]",
        ),
        (
            """g (float[n] x) => (float[m] y) <int64[1] five = {5}>
                { s = Shape (x)  t = Sub (s, five)  z = ConstantOfShape (t)  y = Neg (z) }""",
            [{"x": f(n)} for n in (6, 7, 9)],
            {"x": f(3)},
            r"ConstantOfShape.*\[-2\]",
        ),
        (
            "g (float[n] x, int64[1] r) => (float[m] y) { z = Tile (x, r)  y = Neg (z) }",
            [{"x": f(n), "r": np.array([r])} for n, r in ((2, 3), (3, 4), (5, 6))],
            {"x": f(5), "r": np.array([1 << 62])},
            r"Tile.*\[23058430092136939520\]",
        ),
        (
            "g (float[n] x, int64[1] r) => (float[m] y) { z = Tile (x, r)  y = Neg (z) }",
            [{"x": f(n), "r": np.array([r])} for n, r in ((2, 3), (3, 4), (5, 6))],
            {"x": f(5), "r": np.array([1 << 40])},
            r"more than 2\*\*40 bytes",
        ),
        (
            "g (float[n, 6] x, int64[2] s) => (float[p, q] y) { z = Reshape (x, s)  y = Neg (z) }",
            [{"x": f(n, 6), "s": np.array([-1, k])} for n, k in ((2, 3), (3, 2), (4, 3))],
            {"x": f(3, 6), "s": np.array([-1, 4])},
            r"cannot reshape \[3, 6\] to \[-1, 4\]",
        ),
    ],
)
def test_sizes_that_break_the_model(text: str, good: list[Feeds], bad: Feeds, error: str) -> None:
    import re

    answers = check(text, [*good, bad, *good[::-1]])
    (told,) = (found for found in answers if isinstance(found, str))
    assert re.search(error, told)


def test_a_request_goes_on_after_sizes_that_break_the_model() -> None:
    model = compiled("g (float[n] x, float[m] z) => (float[k] y) { a = Neg (x)  y = Add (a, z) }")
    request = model.create_infer_request()
    for n in (2, 3, 4):
        request.infer({"x": f(n), "z": f(n)})
    for n in (5, 6):
        with pytest.raises(InferenceError, match=rf"Add.*\[{n}\] and \[9\] do not broadcast"):
            request.infer({"x": f(n), "z": f(9)})
        np.testing.assert_array_equal(request.infer({"x": f(n), "z": f(n)})[0], f(n) - f(n))


def test_memory_does_not_grow_with_the_number_of_sizes() -> None:
    model = compiled("g (float[n, 8] x) => (float[k, 8] y) { a = Exp (x)  y = Concat <axis = 0> (a, x) }")
    for n in range(2, 300):
        model({"x": f(n, 8)})
    assert len(model._plans.segments()) <= 4


def test_segments_that_follow_from_data_are_planned_once() -> None:
    text = "g (float[n] x) => (float[k] y) { z = NonZero (x)  i = Squeeze (z, axes)  y = Gather (x, i) }"
    text = text.replace("{", "<int64[1] axes = {0}> {", 1)
    model = compiled(text)
    for seed in range(60):
        x: Any = np.maximum(np.random.default_rng(seed).standard_normal(10 + seed % 7, np.float32), 0)
        np.testing.assert_array_equal(model({"x": x})[0], x[x != 0])
    assert len(model._plans.segments()) < 10


CHOSEN = "z = NonZero (x)  i = Squeeze (z, axes)  c = Gather (x, i)  k = Shape (c)"  # the positive elements of x


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("l = Slice (dims, zeros, k)  r = Reshape (c, l)  y = Neg (r)", "float[]"),  # as many dimensions as elements
        ("l = Slice (dims, zeros, k)  e = Expand (one, l)  y = Neg (e)", "float[]"),
        ("m = Squeeze (k, axes)  r = Range (zero, m, step)  t = Tile (c, k)  y = Gather (t, r)", "float[m]"),
        ("o = ConstantOfShape (k)  a = Add (o, c)  y = Concat <axis = 0> (a, x)", "float[m]"),
        ("d = Neg (c)  p = NonZero (d)  s = Shape (p)  y = Reshape (d, s)", "float[m, k]"),
        ("p = NonZero (c)  j = Squeeze (p, axes)  g = Gather (c, j)  e = Exp (g)  y = Mul (e, c)", "float[m]"),
    ],
)
def test_what_followed_in_the_last_call_follows_again_only_where_it_holds(body: str, result: str) -> None:
    constants = """<int64[1] axes = {0}, int64 zero = {0}, int64[1] zeros = {0}, int64 step = {1}, float one = {1},
        int64[6] dims = {-1, 1, 1, 1, 1, 1}>"""
    rng = np.random.default_rng(5)
    calls: list[Feeds] = [{"x": np.maximum(rng.standard_normal(n, np.float32), 0)} for n in rng.integers(0, 9, 30)]
    check(f"g (float[n] x) => ({result} y) {constants} {{ {CHOSEN}  {body} }}", [*calls, *calls])


def test_a_branch_of_another_rank_leads_to_other_segments() -> None:
    """What follows the If is planned for the rank of its result, and its program does not read this result."""
    text = """g (float[n, 2] x, bool c) => (int64[m] y) {
        v = If (c) <then_branch = t () => (p) { z = NonZero (x)  j = Transpose (z)  p = GatherND (x, j) },
                    else_branch = e () => (q) { i = NonZero (x)  k = Transpose (i)  s = Shape (k)
                                                q = ConstantOfShape (s) }>
        s = Shape (v)  r = Shape (s)  o = Shape (x)  y = Concat <axis = 0> (r, o) }"""
    rng = np.random.default_rng(6)
    calls = [{"x": f(n, 2), "c": np.array(rng.random() < 0.5)} for n in rng.integers(0, 6, 30)]
    for feeds, found in zip(calls, check(text, calls), strict=True):
        assert found[0].tolist() == [2 - feeds["c"], len(feeds["x"]), 2]


def test_a_plan_for_single_data_does_not_follow_others() -> None:
    text = """g (float[6] x, int64[2] s) => (float[p, q] y)
        { a = Neg (s)  b = Neg (a)  r = Reshape (x, b)  y = Neg (r) }"""
    with single_sizes():
        model = compiled(text)
        for shape in ([2, 3], [3, 2], [6, 1], [2, 3]):
            assert model({"x": f(6), "s": np.array(shape)})[0].shape == tuple(shape)


def test_plans_are_made_for_single_sizes_where_symbols_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region of a Resize is a list of plain numbers."""
    monkeypatch.setattr("hetero.devices.cpu.runner.MAX_SYMBOLIC", 2)
    model = compiled("""g (float[n] x, float[2] roi) => (float[m] y) <int64[1] five = {5}>
        { y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, , five) }""")
    for n in range(6, 16):
        roi = np.array([0, 1 / n], np.float32)
        assert model({"x": np.ones(n, np.float32), "roi": roi})[0].tolist() == pytest.approx([1] * 5)
    planned = [s for s in model._plans.segments() if s.program.num_calls]
    plans = [segment.program.sizes is not None for segment in planned]
    assert (len(plans), sum(plans)) == (10, 3)  # one of them follows the segment of the first size, and two the other


def test_arithmetic_that_wraps_in_the_kernel_is_not_simplified() -> None:
    text = """g (int64[1] n, float[k] x) => (float[m] y) <int64[1] large = {1099511627776}>
        { a = Mul (n, large)  b = Div (a, large)  z = Tile (x, b)  y = Neg (z) }"""
    calls = [{"n": np.array([n]), "x": f(2)} for n in (1, 2, 3, 1 << 24, (1 << 24) + 2, 4)]
    check(text, calls)


def test_planning_records_nothing_after_the_steps_were_taken() -> None:
    trace = SizeTrace()
    size = trace.dim(0, 0, 3)
    trace.steps()
    with pytest.raises(UnfitForSymbols):
        int(size)


def test_a_chain_over_a_reshape_to_the_sizes_of_another_input() -> None:
    """Sizes of two inputs that are equal in every call, as those of tokens and of their mask, are different symbols."""
    text = """
        main (float[b,t] x, float[c,u] mask) => (float[c,u] y) {
          e = Exp (x)
          sizes = Shape (mask)
          r = Reshape (e, sizes)
          m = Mul (r, mask)
          y = Add (m, r)
        }"""
    alike = [{"x": f(n, n + 3), "mask": f(n, n + 3)} for n in SIZES]
    check(text, alike, 2)
    check(text, [*alike, {"x": f(2, 6), "mask": f(3, 4)}, {"x": f(6, 2), "mask": f(4, 3)}])
    check(text, [{"x": f(2, 6), "mask": f(3, 4)}, {"x": f(4, 6), "mask": f(3, 8)}, *alike])


def num_plans(text: str, calls: Sequence[Feeds]) -> int:
    model = compiled(text)
    for feeds in calls:
        model(feeds)
    return len(model._plans.segments())


@pytest.mark.spread(2)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("options", ["", ", antialias = 1", ", exclude_outside = 1, antialias = 1"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners"])
@pytest.mark.parametrize("target", ["small", "mixed", "whole", "sizes"])
def test_resize(mode: str, options: str, coordinates: str, target: str) -> None:
    if mode == "nearest" and "antialias" in options:
        pytest.skip("refused")
    by = "a, , , t" if target == "sizes" else f"a, , {target}"
    text = f"""g (float[n, 6] x) => (float[p, q] y)
        <float[2] small = {{0.3, 1}}, float[2] mixed = {{1.7, 0.6}}, float[2] whole = {{2, 0.5}},
         int64[2] three = {{3, 2}}, int64[2] ones = {{1, 1}}>
        {{ a = Relu (x)  s = Shape (x)  r = Div (s, three)  t = Max (r, ones)
           y = Resize <mode = "{mode}", coordinate_transformation_mode = "{coordinates}" {options}> ({by}) }}"""
    check(text, [{"x": f(n, 6)} for n in (*SIZES, 1, 0)])
    if coordinates == "half_pixel" or target == "mixed":
        assert num_plans(text, [{"x": f(n, 6)} for n in range(1, 60)]) <= 5


def test_resize_of_a_region_outside_the_image() -> None:
    text = """g (float[n, 6] x) => (float[p, q] y) <float[4] roi = {-0.5, 0, 0.8, 1}, int64[2] three = {3, 2}>
        { s = Shape (x)  t = Mul (s, three)
          y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, , t) }"""
    check(text, [{"x": f(n, 6)} for n in (*SIZES, 1)], plans=3)


def test_a_range_of_floats() -> None:
    text = """g (float[n] x) => (float[m] y) <float one = {1}, float third = {0.3}>
        { s = Size (x)  l = Cast <to = 1> (s)  m = Mul (l, third)  r = Range (third, m, one)  y = Neg (r) }"""
    check(text, [{"x": f(n)} for n in (*SIZES, 0, 1, 3, 5, 1000)])
    assert num_plans(text, [{"x": f(n)} for n in range(60)]) <= 3


@pytest.mark.parametrize("onesided", [0, 1])
def test_fourier_transforms(onesided: int) -> None:
    """Of lengths that are products of small factors, and of others (67, 71, 134)."""
    text = f"""g (float[n, 2] x) => (float[a, b, c] y) <int64[3] shape = {{2, -1, 1}}>
        {{ r = Reshape (x, shape)  y = DFT <axis = 1, onesided = {onesided}> (r) }}"""
    check(text, [{"x": f(n, 2)} for n in (*SIZES, 1, 67, 71, 134, 0, 68)])
    assert num_plans(text, [{"x": f(n, 2)} for n in range(1, 150)]) <= 4


SQUEEZE = """g (float[n, m, 4] x) => (y) <int64 one = {1}, int64[1] axes = {1}>
    { s = Shape (x)  d = Gather (s, one)  c = Equal (d, one)
      z = If (c) <then_branch = t () => (p) { p = Squeeze (x, axes) }, else_branch = e () => (q) { q = Identity (x) }>
      y = Exp (z) }"""  # as the TorchScript exporter writes squeeze() of a dynamic axis


def test_an_if_on_sizes() -> None:
    calls = [{"x": f(n, m, 4)} for n, m in ((2, 1), (3, 1), (4, 2), (5, 3), (1, 1), (0, 1), (0, 0), (7, 0), (9, 9))]
    answers = check(SQUEEZE, calls)
    assert [answer[0].shape[1:] for answer in answers if not isinstance(answer, str)][:3] == [(4,), (4,), (2, 4)]
    many = [{"x": f(n, m, 4)} for n in range(2, 9) for m in (1, 2, 3, 1, 4)]
    assert num_plans(SQUEEZE, many) <= 4


def test_an_if_on_sizes_whose_other_branch_fails() -> None:
    text = """g (float[n, 4] x) => (float[a, b] y) <int64 zero = {0}, int64 five = {5}, int64[2] shape = {2, -1}>
        { s = Shape (x)  d = Gather (s, zero)  c = Less (d, five)
          z = If (c) <then_branch = t () => (p) { p = Concat <axis = 1> (x, x) },
                      else_branch = e () => (q) { h = Reshape (x, shape)  q = Concat <axis = 1> (h, h, x) }>
          y = Exp (z) }"""
    answers = check(text, [{"x": f(n, 4)} for n in (2, 3, 4, 5, 6, 3, 9)])
    assert [isinstance(answer, str) for answer in answers] == [False, False, False, True, True, False, True]
    assert "Concat" in str(answers[3])


def test_an_if_that_waits_for_data_within_a_branch() -> None:
    text = """g (float[n] x) => (float[a] y) <int64 zero = {0}, int64 five = {5}, int64[1] axes = {0}>
        { s = Shape (x)  d = Gather (s, zero)  c = Less (d, five)
          z = If (c) <then_branch = t () => (p) { i = NonZero (x)  j = Squeeze (i, axes)  p = Gather (x, j) },
                      else_branch = e () => (q) { q = Neg (x) }>
          y = Exp (z) }"""
    check(text, [{"x": np.maximum(f(n), 0)} for n in (2, 3, 4, 5, 6, 3, 9, 0, 1)])


def test_an_if_on_data_with_sizes_that_change() -> None:
    text = """g (float[n, 8] x, bool c) => (float[a, 8] y) {
        a = Exp (x)
        z = If (c) <then_branch = t () => (p) { p = Neg (a) },
                    else_branch = e () => (q) { b = Add (a, x)  q = Concat <axis = 0> (b, x) }>
        y = Exp (z) }"""
    calls = [{"x": f(n, 8), "c": np.array(n % 3 > 0)} for n in (1, 2, 3, 4, 5, 6, 0, 8, 9, 1, 2)]
    check(text, calls)
    assert num_plans(text, [{"x": f(n, 8), "c": np.array(n % 3 > 0)} for n in range(40)]) <= 5


def test_optional_branches() -> None:
    """A decoder as `optimum` merges it: one branch with a cache, and one without."""
    text = """g (float[n, 4] x, float[m, 4] past, bool cached) => (float[k, 4] y) {
        y = If (cached) <then_branch = t () => (p) { a = Concat <axis = 0> (past, x)  p = Relu (a) },
                         else_branch = e () => (q) { q = Relu (x) }>
    }"""
    calls = [{"x": f(5, 4), "past": f(0, 4), "cached": np.array(False)}]
    calls += [{"x": f(1, 4), "past": f(m, 4), "cached": np.array(True)} for m in range(5, 30)]
    check(text, [*calls, *calls[::-3]])


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_that_keeps_the_aspect_ratio(mode: str, policy: str) -> None:
    text = f"""g (float[n, m] x) => (float[p, q] y) <int64[2] two = {{5, 7}}>
        {{ a = Relu (x)  y = Resize <mode = "{mode}", keep_aspect_ratio_policy = "{policy}"> (a, , , two) }}"""
    check(
        text,
        [
            {"x": f(n, m)}
            for n, m in ((4, 6), (6, 4), (5, 7), (1, 1), (10, 14), (3, 50), (9, 12), (50, 3), (0, 3), (3, 0))
        ],
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_by_scales_that_follow_from_sizes(mode: str) -> None:
    """As exporters before opset 11 write the target: float(size) / float(shape)."""
    text = f"""g (float[n, 6] x, float[m, k] like) => (float[p, q] y)
        {{ a = Relu (x)  s = Shape (x)  t = Shape (like)  u = Cast <to = 1> (s)  v = Cast <to = 1> (t)
           scales = Div (v, u)  y = Resize <mode = "{mode}"> (a, , scales) }}"""
    sizes = [(4, 6, 9), (6, 4, 3), (5, 10, 12), (7, 3, 6), (1, 5, 5), (3, 1, 1), (9, 30, 4)]
    check(text, [{"x": f(n, 6), "like": f(m, k)} for n, m, k in sizes])
    many = [{"x": f(n, 6), "like": f(2 * n + 1, 13)} for n in range(2, 40)]
    assert num_plans(text, many) <= 5


def test_large_tensors_that_follow_from_sizes_are_computed_in_every_run() -> None:
    """Late tensors keep their memory, so a plan does not hold for sizes that make them large."""
    text = """g (float[n] x) => (float[m] y) <int64 zero = {0}, int64 one = {1}, int64[1] last = {1}>
        { n = Size (x)  r = Range (zero, n, one)  c = Unsqueeze (r, last)  later = Less (r, c)
          mask = Cast <to = 1> (later)  s = ReduceSum <keepdims = 0> (mask, last)  y = Add (s, x) }"""
    check(text, [{"x": f(n)} for n in (4, 6, 9, 5000, 7, 5001, 1, 0)])


def test_an_inner_value_whose_declared_shape_is_wrong() -> None:
    text = """g (float[n, 4] x) => (float[n, 4] y) <float[1, 4] a, float[1, 4] b>
        { a = Exp (x)  b = Relu (a)  s = Shape (b)  c = Reshape (b, s)  y = Neg (c) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    for number, node in enumerate(model.graph.node):
        node.name = f"n{number}"
    core = hetero.Core()
    for device, pins in (("CPU", {}), ("HETERO:CPU,TEMPLATE", {"n1": "TEMPLATE"})):
        request = core.compile_model(model, device, pins=pins).create_infer_request()
        for n in (1, 2, 3, 4, 1):
            np.testing.assert_allclose(request.infer({"x": f(n, 4)})[0], -np.exp(f(n, 4)), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("MatMul(x, w)", (513, 600)),
        ("Gemm <transB = 1> (x, w)", (600, 513)),
        ("Conv(x, w)", (600, 513, 1, 1)),
    ],
)
def test_layouts_of_weights_do_not_depend_on_sizes_that_may_change(text: str, shape: tuple[int, ...]) -> None:
    """Large weights: one size gives the same bits in each plan. Those that AMX reads converted are for models that
    state all sizes; other models would keep them twice."""
    rows = (40, 1, 70, 40, 33, 200, 196, 40)
    if text.startswith("Conv"):
        calls = [{"x": f(1, 513, n, 7)} for n in rows]
        signature = "float[1, 513, n, 7] x"
    else:
        calls, signature = [{"x": f(n, 513)} for n in rows], "float[n, 513] x"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g ({signature}, float[{", ".join(map(str, shape))}] w) => (float y) '
        f"{{ y = {text} }}"
    )
    del model.graph.input[1:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(f(*shape), "w"))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    changing = hetero.compile(model, "CPU")
    assert isinstance(changing, CpuModel)
    found = [answer(changing, feeds) for feeds in calls]
    assert not any(isinstance(mine, str) for mine in found)
    with single_sizes():
        for feeds, mine in zip(calls, found, strict=True):
            alone = hetero.compile(model, "CPU")
            assert isinstance(alone, CpuModel)
            np.testing.assert_array_equal(mine[0], answer(alone, feeds)[0])
    layouts = [layout for _, layout in changing._plans.planner._packed]
    assert layouts
    assert not any(layout[0] == "pack_parts" for layout in layouts)


@pytest.mark.parametrize("dilation", [1, 4])
def test_convolutions_whose_planes_change(dilation: int) -> None:
    """Small and large planes: products of floats or of tiles, a depthwise convolution that is joined or not, and
    padding that is skipped or not. One plan serves all, except where two convolutions are joined."""
    weights = {"w": f(80, 64, 1, 1), "d": f(80, 1, 3, 3), "v": f(64, 80, 3, 3)}
    weights = {name: array / np.float32(8) for name, array in weights.items()}
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> '
        "g (float[1, 64, h, k] x, float[80, 64, 1, 1] w, float[80, 1, 3, 3] d, float[64, 80, 3, 3] v) => (float y) "
        "{ a = Conv(x, w) b = Conv <group = 80, pads = [1, 1, 1, 1]> (a, d) "
        f"y = Conv <strides = [2, 2], pads = {[dilation] * 4}, dilations = {[dilation] * 2}> (b, v) }}"
    )
    del model.graph.input[1:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    model.graph.output[0].type.tensor_type.ClearField("shape")
    sizes = [(80, 80), (3, 4), (24, 25), (70, 71), (9, 9), (1, 1), (40, 41), (12, 300)]
    calls = [{"x": f(1, 64, height, width)} for height, width in sizes]
    changing = hetero.compile(model, "CPU")
    assert isinstance(changing, CpuModel)
    found = [answer(changing, feeds) for feeds in calls]
    assert len(changing._plans.segments()) <= 4
    with single_sizes():
        for feeds, mine in zip(calls, found, strict=True):
            alone = hetero.compile(model, "CPU")
            assert isinstance(alone, CpuModel)
            np.testing.assert_array_equal(mine[0], answer(alone, feeds)[0])


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    "ids", ["0, 1, 2, 3, 4, 5", "0, 0, 0, 0, 0, 0", "5, -1, 3, 2, 2, 0", "0, 1, 2, 3, 4, 6", "0, 1, 2, 3, 9, 9"]
)
@pytest.mark.parametrize(("begin", "step"), [(0, 1), (1, 1), (0, 2)])
@pytest.mark.parametrize(
    "ending", ["y = Add (r, x)", "y = Identity (r)", "z = Relu (r)  y = Add (z, r)", "y = Slice (r, zero, one)"]
)
def test_rows_that_a_slice_of_constants_selects(ids: str, begin: int, step: int, ending: str) -> None:
    """As the positions of a text: such rows lie in the memory of a constant, unless an index is outside."""
    rows = ", ".join(map(str, range(18)))
    text = (
        "t (float[n, 3] x) => (float[p, q] y)"
        f" <int64[1, 6] ids = {{{ids}}}, float[6, 3] table = {{{rows}}}, int64[1] zero = {{0}}, int64[1] one = {{1}},"
        f"  int64[1] two = {{1}}, int64[1] begin = {{{begin}}}, int64[1] step = {{{step}}}, int64[2] flat = {{-1, 3}}>"
        "{ s = Shape <start = 0, end = 1> (x)  part = Slice (ids, begin, s, two, step)"
        f"  g = Gather (table, part)  r = Reshape (g, flat)  {ending} }}"
    )
    check(text, [{"x": f(size, 3)} for size in (6, 4, 1, 3, 5, 2, 0, 9, 6, 1)])
