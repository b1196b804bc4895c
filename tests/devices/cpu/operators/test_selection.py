"""Operators of the CPU that choose elements, against onnxruntime, and where their number depends on data."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from hetero import Core, InferenceError, _kernels
from sessions import onnxruntime_session
from single_node import assert_as_onnxruntime, model, run


@given(data=st.data())
def test_top_k(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int32", "int64"]))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-4, 4, shape).astype(dtype)
    k = np.array([data.draw(st.integers(0, shape[axis]))])
    largest = data.draw(st.sampled_from([0, 1]))
    assert_as_onnxruntime("TopK", [x, k], 2, axis=axis, largest=largest)


@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_top_k_of_long_rows_and_nan(variant: str, largest: int, is_sorted: bool) -> None:
    x = np.random.default_rng(0).permutation(5000).astype(np.float32)
    if is_sorted:  # the largest lie on both sides of a block of 32
        x.sort()
    x[[7, 99]] = np.nan
    spec = [((30,), "float32"), ((30,), "int64")]
    values, indices = _kernels.call("topk", [x], spec, [1, 5000, 1, 30, largest], [], 70_000, variant=variant)
    order = np.lexsort((np.arange(5000), -x if largest else x))
    numbers = [i for i in order if not np.isnan(x[i])]
    expected = ([7, 99, *numbers] if largest else numbers)[:30]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, x[expected])


@given(data=st.data())
def test_top_k_of_every_type_and_length(data: st.DataObject) -> None:
    """Against a stable sort; with equal entries, entries of equal upper bits, -0, infinities, NaN, runs of both kinds,
    and with little scratch memory."""
    dtype = np.dtype(
        data.draw(st.sampled_from(["float32", "float64", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))]))
    )
    outer, inner = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 3, 8]))
    n = data.draw(st.integers(1, 40) | st.integers(41, 2000))
    k = min(n, data.draw(st.integers(1, 8) | st.integers(0, 300) | st.just(n)))
    largest = data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    shape = (outer, n, inner)
    if dtype.kind == "f":
        x = (rng.standard_normal(shape) * data.draw(st.sampled_from([1e-40, 1, 1e30]))).astype(dtype)
        x[rng.random(shape) < 0.1] = data.draw(st.sampled_from([0.0, np.inf, -np.inf, np.nan, 1.0]))
        x[rng.random(shape) < 0.1] = -0.0
    else:
        limits = np.iinfo(dtype)
        low, high = data.draw(st.sampled_from([(0, 3), (limits.min, limits.max), (0, 100)]))
        x = rng.integers(low, high, shape, dtype, endpoint=True)
    if dtype.itemsize == 8 and data.draw(st.booleans()):  # few upper halves, many lower ones
        upper = x[:, rng.integers(0, min(n, 4), n)].view(np.uint64) >> np.uint64(32)
        lower = rng.integers(0, data.draw(st.sampled_from([3, 2**32])), shape, np.uint64)
        x = (upper << np.uint64(32) | lower).view(dtype)
    if data.draw(st.booleans()):
        x.sort(1)
    wide = dtype.itemsize == 8
    scratch = (8 * inner + 20) * n + 32 * k + 1024 if wide else (4 * inner + 8) * n + 16 * k + 512
    scratch = data.draw(st.sampled_from([scratch, scratch - 1, 8 * k]))
    spec = [((outer, k, inner), dtype), ((outer, k, inner), np.int64)]
    variant = data.draw(st.sampled_from(_kernels.variants()))
    values, indices = _kernels.call("topk", [x], spec, [outer, n, inner, k, largest], [], scratch, variant=variant)
    order = np.argsort(x, axis=1, kind="stable")  # NaN last
    if largest:
        order = n - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    np.testing.assert_array_equal(indices, order[:, :k])
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("largest", [False, True])
def test_top_k_of_zeros_of_both_signs(dtype: str, largest: bool) -> None:
    """They are equal, so the first ones are the best; with and without memory for keys."""
    for n in (2, 9, 40, 300):
        x = np.where(np.random.default_rng(n).random(n) < 0.5, 0.0, -0.0).astype(dtype)
        for scratch in (28 * n + 32 * n + 1024, 8 * n):
            spec, ints = [((n,), dtype), ((n,), np.int64)], [1, n, 1, n, largest]
            values, indices = _kernels.call("topk", [x], spec, ints, [], scratch)
            np.testing.assert_array_equal(indices, np.arange(n))
            np.testing.assert_array_equal(np.signbit(values), np.signbit(x))


@pytest.mark.parametrize("k", [-1, 4, 2**62])
def test_top_k_out_of_range_names_the_node(k: int) -> None:
    feeds = {"x": np.zeros(3, np.float32), "k": np.array([k])}
    proto = model([helper.make_node("TopK", ["x", "k"], ["v", "i"], name="best")], feeds, ["v"], 17)
    with pytest.raises(InferenceError, match="best"):
        run(proto, feeds)


@given(data=st.data())
def test_nonzero_and_compress(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(0, 3, shape).astype(data.draw(st.sampled_from(["float32", "int64", "bool", "int32"])))
    assert_as_onnxruntime("NonZero", [x])
    y = rng.standard_normal([size + 1 for size in shape]).astype(np.float32)
    assert_as_onnxruntime("Compress", [y, rng.random(data.draw(st.integers(0, y.size))) < 0.5])
    axis = data.draw(st.integers(0, len(shape) - 1))
    assert_as_onnxruntime("Compress", [y, rng.random(y.shape[axis]) < 0.5], axis=axis)


def test_counts_that_follow_each_other() -> None:
    """Two cuts in a row, the second on what the first found, with values from before both used after them."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["places"]),
        helper.make_node("Transpose", ["places"], ["tuples"]),
        helper.make_node("GatherND", ["a", "tuples"], ["picked"]),
        helper.make_node("Floor", ["picked"], ["floors"]),
        helper.make_node("NonZero", ["floors"], ["again"]),
        helper.make_node("Shape", ["again"], ["dims"]),
        helper.make_node("Add", ["a", "x"], ["sum"]),
    ]
    outputs = ["places", "picked", "again", "dims", "sum"]
    rng = np.random.default_rng(0)
    feeds = {"x": np.zeros((5, 7), np.float32)}
    proto = model(nodes, feeds, outputs, 17)
    session = onnxruntime_session(proto)
    core = Core()
    request = core.compile_model(core.read_model(proto), "CPU").create_infer_request()
    for step in range(6):
        x = (rng.standard_normal((5, 7)) * 2 - step * 0.8).astype(np.float32)
        for found, wanted in zip(request.infer({"x": x}).arrays(), session.run(None, {"x": x}), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def test_several_nodes_that_count() -> None:
    """What one of them found before its plan was cut is an output, and is not taken for what the next one found."""
    uniques = ["values", "first", "inverse", "counts"]
    nodes = [
        helper.make_node("Unique", ["x"], [f"x_{name}" for name in uniques]),
        helper.make_node("Unique", ["y"], [f"y_{name}" for name in uniques], axis=0),
        helper.make_node("NonZero", ["x"], ["x_places"]),
        helper.make_node("NonZero", ["x_inverse"], ["inverse_places"]),
        helper.make_node("Cast", ["x_inverse"], ["chosen"], to=onnx.TensorProto.BOOL),
        helper.make_node("Compress", ["x", "chosen"], ["x_chosen"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["best"]),
        helper.make_node("Unique", ["y"], [f"all_{name}" for name in uniques], sorted=0),
        helper.make_node("NonZero", ["y"], ["y_places"]),
    ]
    kinds = [f"{of}_{name}" for of in ["x", "y", "all"] for name in uniques]
    outputs = [*kinds, "x_places", "inverse_places", "x_chosen", "best", "y_places"]
    rng = np.random.default_rng(0)
    corners = np.sort(rng.random((1, 5, 2, 2), np.float32), 2).reshape(1, 5, 4)
    feeds = {"x": np.zeros((2, 3), np.float32), "y": np.zeros((5, 2), np.int64), "boxes": corners}
    feeds |= {"scores": rng.random((1, 2, 5), np.float32), "most": np.array([3])}
    proto = model(nodes, feeds, outputs, 17)
    session = onnxruntime_session(proto)
    core = Core()
    request = core.compile_model(core.read_model(proto), "CPU").create_infer_request()
    for step in range(12):
        feeds["x"] = rng.integers(0, 2 + step % 4, (2, 3)).astype(np.float32)
        feeds["y"] = rng.integers(0, 2 + step % 3, (step % 5 + 1, 2))
        feeds["scores"] = rng.random((1, 2, 5), np.float32)
        wanted = session.run(None, feeds)
        for name, found, expected in zip(outputs, request.infer(feeds).arrays(), wanted, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected, name)


BODY_THAT_COUNTS = """
    {
        u0, f0, i0, c0 = Unique (a)
        g = Cast <to = 1> (i0)
        h = Neg (g)
        u1, f1, i1, c1 = Unique (h)
        places = NonZero (g)
        k = Cast <to = 1> (i1)
        b = Add (g, k)
        REST
    }"""


@pytest.mark.parametrize("around", ["a Loop", "an If that is known", "an If"])
def test_several_nodes_that_count_in_a_body(around: str) -> None:
    body = BODY_THAT_COUNTS.replace("REST", "go2 = Identity (go)" if around == "a Loop" else "")
    condition = "yes" if around == "an If that is known" else "p"
    inner = {
        "a Loop": f"""y, i, p0 = Loop (n, , x) <body = b (int64 trip, bool go, float[j] a)
            => (bool go2, float[j] b, int64[j] i0, int64[2] s) {body.replace("go2 =", "s = Shape (places) go2 =")}>""",
    }.get(
        around,
        f"""a = Neg (x)  y, i, p0 = If ({condition}) <
            then_branch = t () => (float[j] b, int64[j] i0, int64[1, l] places) {body},
            else_branch = e () => (float[j] a0, int64[j] z, int64[1, l] nz)
            {{ a0 = Identity (x)  z = Cast <to = 7> (x)  nz = NonZero (x) }}>""",
    )
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[m] x, int64 n, bool p) => (float[o] y, int64[q, r] i, int64[s, t] p0, int64[m] own, int64[v] counts)
        <bool yes = {{1}}>
        {{ u, f, own, counts = Unique (x)  {inner} }}"""
    proto = onnx.parser.parse_model(text)
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    session = onnxruntime_session(proto)
    core = Core()
    request = core.compile_model(core.read_model(proto), "CPU").create_infer_request()
    rng = np.random.default_rng(1)
    for step in range(10):
        x = rng.integers(0, 2 + step % 4, step % 3 + 3).astype(np.float32)
        feeds = {"x": x, "n": np.array(step % 4 + 1), "p": np.array(step % 2 == 0)}
        for found, wanted in zip(request.infer(feeds).arrays(), session.run(None, feeds), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -9, -1, 0, 2, 9])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_trilu(upper: int, k: int | None, dtype: str) -> None:
    x = np.arange(1, 25).reshape(2, 3, 4).astype(dtype)
    assert_as_onnxruntime("Trilu", [x] if k is None else [x, np.array(k)], upper=upper)


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
def test_one_hot(axis: int) -> None:
    indices = np.array([[0, 2, -1], [3, 7, -4]])
    values = np.array([-1.5, 2.5], np.float32)
    assert_as_onnxruntime("OneHot", [indices, np.array([4]), values], axis=axis)
    assert_as_onnxruntime("OneHot", [indices.astype(np.float32), np.array(4.0, np.float32), values], axis=axis)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hardmax(axis: int, opset: int) -> None:
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.float32)
    assert_as_onnxruntime("Hardmax", [x], opset=opset, axis=axis)


@pytest.mark.parametrize("batch", [0, 1])
def test_reverse_sequence(batch: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    lengths = np.array([1, 3, 2] if batch == 0 else [1, 3, 2, 3])
    assert_as_onnxruntime("ReverseSequence", [x, lengths], batch_axis=batch, time_axis=1 - batch)


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("length", [4, 2**31, 2**61, 2**62, 2**63 - 1])
def test_reverse_sequence_beyond_its_end(batch: int, length: int) -> None:
    """An error, not elements of another sequence."""
    x = np.zeros((3, 4) if batch else (4, 3), np.float32)
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], batch_axis=batch, time_axis=1 - batch)
    feeds = {"x": x, "n": np.array([3, length, 3, 1])}
    with pytest.raises(InferenceError, match="out of bounds for axis"):
        run(model([node], feeds, ["y"], 17), feeds)


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_eye_like(k: int) -> None:
    assert_as_onnxruntime("EyeLike", [np.zeros((3, 4), np.float32)], k=k)
    assert_as_onnxruntime("EyeLike", [np.zeros((3, 4), np.float32)], k=k, dtype=onnx.TensorProto.INT64)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalization(axis: int, p: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert_as_onnxruntime("LpNormalization", [x], axis=axis, p=p)
