"""Attention as exporters write it: recognized, and right beside onnxruntime, on every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from hetero import _kernels
from hetero.devices.cpu import planner
from hetero.errors import InferenceError
from sessions import onnxruntime_session

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("attention")
TEAMS = [None, _kernels.Team(2), _kernels.Team(3)]
B, H, S, D = 2, 3, 33, 20
Array = np.ndarray[Any, Any]
LEAST = float(np.finfo(np.float32).min)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Net:
    """Nodes one after another, each with one output."""

    def __init__(self, **inputs: Array) -> None:
        self.inputs = inputs
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def __call__(self, op_type: str, *inputs: Any, **attributes: Any) -> str:
        names = [name if isinstance(name, str) else self.constant(np.asarray(name)) for name in inputs]
        made = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, names, [made], **attributes))
        return made

    def constant(self, array: Array) -> str:
        name = f"c{len(self.weights)}"
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def model(self, *outputs: str, opset: int = 20) -> onnx.ModelProto:
        def port(name: str, array: Array) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

        graph = helper.make_graph(
            self.nodes,
            "attention",
            [port(name, array) for name, array in self.inputs.items()],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(
    monkeypatch: pytest.MonkeyPatch, net: Net, *outputs: str, kernels: list[str] | None = None, opset: int = 20
) -> None:
    """The results with and without fusion are onnxruntime's; the kernels that remain are these."""
    model = net.model(*outputs, opset=opset)
    wanted = onnxruntime_session(model, optimized=False).run(None, net.inputs)
    left: list[str] = []
    fuse = planner.fuse

    def spy(*arguments: Any) -> Any:
        calls = fuse(*arguments)
        left.extend(call.kernel for call in calls)
        return calls

    monkeypatch.setattr(planner, "fuse", spy)
    core = hetero.Core()
    for disabled in (False, True):
        found = core.compile_model(model, "CPU", {"DISABLE_TRANSFORMATIONS": disabled})(net.inputs)
        for one, want in zip(found.values(), wanted, strict=True):
            assert one.shape == want.shape
            np.testing.assert_allclose(one, want, atol=3e-6, rtol=1e-5)
    if kernels is not None:
        assert left == kernels


def heads(net: Net, x: str, perm: list[int]) -> str:
    return net("Transpose", net("Reshape", x, np.array([B, -1, H, D])), perm=perm)


def joined(net: Net, x: str) -> str:
    return net("Reshape", net("Transpose", x, perm=[0, 2, 1, 3]), np.array([B, -1, H * D]))


def qkv(length: int = S, keys: int = S) -> dict[str, Array]:
    widths = {"q": length, "k": keys, "v": keys}
    return {name: normal(B, size, H * D, seed=i) for i, (name, size) in enumerate(widths.items())}


def bert(net: Net, mask: Any = None, divide: bool = True) -> str:
    q, k = heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1])
    product = net("MatMul", q, k)
    scores = net("Div", product, D**0.5) if divide else net("Mul", D**-0.5, product)
    if mask is not None:
        scores = net("Add", scores, mask)
    return net("MatMul", net("Softmax", scores, axis=-1), heads(net, "v", [0, 2, 1, 3]))


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("mask", [None, (B, 1, 1, S), (B, 1, S, S), (1, H, S, S), (S, S), (S,), (B, H, S, 1), (1,)])
def test_bert(monkeypatch: pytest.MonkeyPatch, mask: tuple[int, ...] | None, divide: bool) -> None:
    net = Net(**qkv())
    given = None if mask is None else normal(*mask, seed=9) * 5
    check(monkeypatch, net, joined(net, bert(net, given, divide)), kernels=["attention"])


def test_masks_that_are_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = qkv() | {"m": np.where(normal(B, 1, 1, S, seed=4) > 0, 0, LEAST).astype(np.float32)}
    net = Net(**inputs)
    check(monkeypatch, net, joined(net, bert(net, "m")), kernels=["attention"])


@pytest.mark.parametrize(("length", "keys"), [(S, 7), (24, 1), (100, 300), (130, 17), (60, 1000)])
def test_queries_and_keys_of_two_lengths(monkeypatch: pytest.MonkeyPatch, length: int, keys: int) -> None:
    net = Net(**qkv(length, keys))
    check(monkeypatch, net, joined(net, bert(net)), kernels=["attention"])


def test_few_queries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(**qkv(3))
    check(monkeypatch, net, joined(net, bert(net)))


@pytest.mark.parametrize("first", [(B, 1, 1, S), (B, H, S, S)])
@pytest.mark.parametrize("second", [(1, H, S, S), (B, 1, S, 1)])
def test_two_addends(monkeypatch: pytest.MonkeyPatch, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """A bias by relative position, and a mask."""
    net = Net(**qkv())
    product = net("MatMul", heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1]))
    scores = net("Add", normal(*second, seed=5), net("Add", product, normal(*first, seed=6)))
    made = net("MatMul", net("Softmax", scores, axis=-1), heads(net, "v", [0, 2, 1, 3]))
    check(monkeypatch, net, joined(net, made), kernels=["attention"])


def test_two_addends_of_one_column_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel repeats the columns of one of them only."""
    net = Net(**qkv())
    product = net("MatMul", heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1]))
    scores = net("Add", normal(1, H, S, 1, seed=5), net("Add", product, normal(B, 1, S, 1, seed=6)))
    made = net("MatMul", net("Softmax", scores, axis=-1), heads(net, "v", [0, 2, 1, 3]))
    check(monkeypatch, net, joined(net, made))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("number", [LEAST, -1e4, -np.inf])
@pytest.mark.parametrize("shape", [(S, S), (B, 1, 1, S), (B, 1, S, 1)])
def test_a_mask_chooses(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], number: float, swapped: bool) -> None:
    net = Net(**qkv())
    product = net("MatMul", heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1]))
    scores = net("Div", product, D**0.5)
    allowed = np.random.default_rng(0).random(shape) < 0.7
    chosen = (~allowed, number, scores) if swapped else (allowed, scores, number)
    weights = net("Softmax", net("Where", *chosen), axis=-1)
    made = net("MatMul", weights, heads(net, "v", [0, 2, 1, 3]))
    check(monkeypatch, net, joined(net, made), kernels=["attention"])


def test_scaled_operands_and_no_numbers_in_masked_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.onnx writes scaled_dot_product_attention with a mask of bool."""
    net = Net(**qkv())
    allowed = np.random.default_rng(0).random((B, 1, S, S)) < 0.5
    allowed[0, 0, 3] = False
    q = net("Mul", heads(net, "q", [0, 2, 1, 3]), D**-0.25)
    k = net("Mul", net("Transpose", heads(net, "k", [0, 2, 1, 3]), perm=[0, 1, 3, 2]), D**-0.25)
    scores = net("Add", net("MatMul", q, k), np.where(allowed, 0.0, -np.inf))
    weights = net("Softmax", scores, axis=-1)
    weights = net("Where", net("IsNaN", weights), 0.0, weights)
    made = net("MatMul", weights, heads(net, "v", [0, 2, 1, 3]))
    check(monkeypatch, net, joined(net, made), kernels=["attention"])


@pytest.mark.parametrize("before", [False, True])
def test_scaled_values(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    """The kernel has a factor for scores only."""
    net = Net(**qkv())
    product = net("MatMul", heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1]))
    values = heads(net, net("Mul", "v", 0.25) if before else "v", [0, 2, 1, 3])
    values = values if before else net("Mul", values, 0.25)
    check(monkeypatch, net, joined(net, net("MatMul", net("Softmax", product, axis=-1), values)))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_choice_after_the_softmax(monkeypatch: pytest.MonkeyPatch, swapped: bool) -> None:
    net = Net(**qkv())
    product = net("MatMul", heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1]))
    weights = net("Softmax", product, axis=-1)
    masked = np.random.default_rng(0).random((B, 1, S, S)) < 0.5
    weights = net("Where", *((masked, 0.0, weights) if swapped else (masked, weights, 0.25)))
    made = net("MatMul", weights, heads(net, "v", [0, 2, 1, 3]))
    check(monkeypatch, net, joined(net, made), kernels=["attention"])


def test_matrices_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transposition around: K' comes as an input."""
    net = Net(q=normal(5, 40, 16), kt=normal(5, 16, 50, seed=1), v=normal(5, 50, 24, seed=2))
    weights = net("Softmax", net("MatMul", "q", "kt"), axis=-1)
    check(monkeypatch, net, net("MatMul", weights, "v"), kernels=["attention"])


def test_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(q=normal(40, 300), kt=normal(300, 50, seed=1), v=normal(50, 24, seed=2))
    weights = net("Softmax", net("Mul", net("MatMul", "q", "kt"), 0.1), axis=-1)
    check(monkeypatch, net, net("MatMul", weights, "v"), kernels=["attention"])


def test_parts_of_one_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q, K and V are slices of one tensor, as in GPT-2."""
    net = Net(x=normal(B, S, 3, H, D))
    parts = [net("Gather", "x", np.array(i), axis=2) for i in range(3)]
    q, v = (net("Transpose", parts[i], perm=[0, 2, 1, 3]) for i in (0, 2))
    weights = net("Softmax", net("MatMul", q, net("Transpose", parts[1], perm=[0, 2, 3, 1])), axis=-1)
    check(monkeypatch, net, joined(net, net("MatMul", weights, v)))


def test_a_value_of_all_three_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q, K and V are one tensor."""
    net = Net(x=normal(B, H, S, D))
    weights = net("Softmax", net("MatMul", "x", net("Transpose", "x", perm=[0, 1, 3, 2])), axis=-1)
    check(monkeypatch, net, net("MatMul", weights, "x"), kernels=["attention"])


@pytest.mark.parametrize("which", ["scores", "weights", "operand"])
def test_what_is_read_elsewhere(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    net = Net(**qkv())
    k = heads(net, "k", [0, 2, 3, 1])
    scores = net("MatMul", heads(net, "q", [0, 2, 1, 3]), k)
    weights = net("Softmax", scores, axis=-1)
    made = net("MatMul", weights, heads(net, "v", [0, 2, 1, 3]))
    kernels = ["copy_strided", "attention"] if which == "operand" else None
    check(
        monkeypatch,
        net,
        joined(net, made),
        {"scores": scores, "weights": weights, "operand": k}[which],
        kernels=kernels,
    )


def test_a_scale_after_the_mask_is_another_function(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(**qkv())
    product = net("MatMul", heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1]))
    scores = net("Mul", net("Add", product, normal(S, S, seed=7)), 0.3)
    made = net("MatMul", net("Softmax", scores, axis=-1), heads(net, "v", [0, 2, 1, 3]))
    check(monkeypatch, net, joined(net, made))


def test_a_softmax_over_queries_is_another_function(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(**qkv())
    product = net("MatMul", heads(net, "q", [0, 2, 1, 3]), heads(net, "k", [0, 2, 3, 1]))
    made = net("MatMul", net("Softmax", product, axis=2), heads(net, "v", [0, 2, 1, 3]))
    check(monkeypatch, net, joined(net, made))


@pytest.mark.parametrize("opset", [11, 12])
@pytest.mark.parametrize("axis", [1, -2])
def test_a_softmax_over_queries_and_keys_at_once_is_another_function(
    monkeypatch: pytest.MonkeyPatch, opset: int, axis: int
) -> None:
    """Before opset 13 the axes from the given one on are one."""
    net = Net(q=normal(2, 32, 8), k=normal(2, 8, 16, seed=1), v=normal(2, 16, 8, seed=2))
    made = net("MatMul", net("Softmax", net("MatMul", "q", "k"), axis=axis), "v")
    check(monkeypatch, net, made, kernels=["matmul", "softmax", "matmul"], opset=opset)


@pytest.mark.parametrize("keys", [1, 3])
def test_a_softmax_over_queries_is_another_function_for_one_key(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Nothing but a size of 1 follows the axis."""
    net = Net(q=normal(2, 32, 8), k=normal(2, 8, keys, seed=1), v=normal(2, keys, 8, seed=2))
    made = net("MatMul", net("Softmax", net("MatMul", "q", "k"), axis=-2), "v")
    check(monkeypatch, net, made, kernels=["matmul", "softmax", "matmul"])


@pytest.mark.parametrize("number", [1e-30, 0.0, np.inf])
def test_a_factor_that_keeps_the_product_from_overflow_stays(monkeypatch: pytest.MonkeyPatch, number: float) -> None:
    inputs = qkv()
    net = Net(**inputs | {"q": inputs["q"] * np.float32(1e30), "k": inputs["k"] * np.float32(1e9)})
    queries = net("Mul", heads(net, "q", [0, 2, 1, 3]), number)
    weights = net("Softmax", net("MatMul", queries, net("Mul", heads(net, "k", [0, 2, 3, 1]), 1e-9)), axis=-1)
    check(monkeypatch, net, joined(net, net("MatMul", weights, heads(net, "v", [0, 2, 1, 3]))))


@pytest.mark.parametrize(("size", "of_queries", "of_keys", "of_scores"), [(76, 4, 0, 0), (70, 1, 1, 1)])
def test_several_factors_count_as_their_product(
    monkeypatch: pytest.MonkeyPatch, size: int, of_queries: int, of_keys: int, of_scores: int
) -> None:
    """Each factor alone may be applied after the product; with all of them after it, the product would overflow."""
    large = np.float32(2.0**size)
    net = Net(q=normal(1, S, D) * large, k=normal(1, D, S, seed=1) * large, v=normal(1, S, D, seed=2))

    def scaled(value: str, times: int) -> str:
        for _ in range(times):
            value = net("Mul", value, 2.0**-20)
        return value

    scores = scaled(net("MatMul", scaled("q", of_queries), scaled("k", of_keys)), of_scores)
    check(monkeypatch, net, net("MatMul", net("Softmax", scores, axis=-1), "v"))


def test_heads_that_share_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(q=normal(B, H, S, D), k=normal(B, 1, S, D, seed=1), v=normal(B, 1, S, D, seed=2))
    weights = net("Softmax", net("MatMul", "q", net("Transpose", "k", perm=[0, 1, 3, 2])), axis=-1)
    check(monkeypatch, net, net("MatMul", weights, "v"), kernels=["attention"])


def test_counters() -> None:
    net = Net(**qkv())
    made = joined(net, bert(net))
    request = hetero.Core().compile_model(net.model(made), "CPU", {"PERF_COUNT": True}).create_infer_request()
    request.infer(net.inputs)
    executed = [row.layer_type for row in request.profiling_info if row.status == "EXECUTED"]
    assert executed == ["Softmax"]


def call(arrays: list[Array | None], ints: list[int], floats: list[float], scratch: int, **how: Any) -> Array:
    shape = (2, 5, ints[0], ints[3])
    return _kernels.call("attention", arrays, [(shape, np.float32)], ints, floats, scratch, **how)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("m", "n", "d", "e"), [(1, 1, 1, 1), (5, 3, 2, 7), (40, 64, 16, 16), (300, 257, 65, 33)])
def test_the_kernel_beside_numpy(variant: str, m: int, n: int, d: int, e: int) -> None:
    q, k, v = normal(2, 5, m, d), normal(2, 5, n, d, seed=1), normal(2, 5, n, e, seed=2)
    bias, addend = normal(5, m, 1, seed=3), normal(2, 1, 1, n, seed=4)
    mask = np.random.default_rng(5).random((m, n)) < 0.3
    mask[:, 0] = False
    ints = [m, n, d, e, 1, 2, d, 1, d, 1, e, 1, e, 1, 0, 0, n, 1, 0, 0, 0, 0, 0, 2, 2, 5]
    ints += [5 * m * d, m * d, 5 * n * d, n * d, 5 * n * e, n * e, 5 * m * e, m * e, 0, m, n, 0, 0, 0, 0, 0]
    scratch = 4 * (-(-n // 16) * 16 * d + -(-e // 16) * 16 * n + max(24, min(m, 8192 // n)) * n)
    arrays = [q, k, v, bias, addend, mask, None]
    found = [call(arrays, ints, [0.7, -3.0, 0.0], scratch, variant=variant, team=team) for team in TEAMS]
    assert all(np.array_equal(found[0], other) for other in found[1:])
    scores = np.where(mask, -3.0, 0.7 * (q.astype(np.float64) @ k.swapaxes(2, 3)) + bias + addend)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(found[0], wanted, atol=1e-5)
    with pytest.raises(InferenceError, match="operand"):
        call(arrays, ints, [0.7, -3.0, 0.0], scratch - 4, variant=variant)


GOOD = [2, 3, 4, 5, 0, 0, 4, 1, 4, 1, 5, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 5]
GOOD += [40, 8, 60, 12, 75, 15, 50, 10, 0, 0, 0, 0, 0, 0, 0, 0]


UNFIT = {0: [0, 3], 1: [0, 1 << 62], 2: [-1], 3: [6], 4: [2], 5: [3, -1], 6: [5, 1 << 62], 8: [-4], 9: [2, 1 << 40]}
UNFIT |= {
    11: [2],
    12: [6],
    20: [1, -1],
    22: [1 << 62],
    23: [3, -1],
    24: [3, 0, 1 << 40, 1 << 62],
    26: [41],
    33: [-1, 11],
}


@pytest.mark.parametrize(("at", "number"), [(at, number) for at, numbers in UNFIT.items() for number in numbers])
def test_calls_that_do_not_fit_are_refused(at: int, number: int) -> None:
    arrays: list[Array | None] = [normal(2, 5, 2, 4), normal(2, 5, 3, 4), normal(2, 5, 3, 5), None, None, None, None]
    scratch = 4 * (16 * 4 + 16 * 3 + 24 * 3)
    call(arrays, GOOD, [1.0, 0.0, 0.0], scratch)
    if (at, number) in ((9, 2), (11, 2)):  # neither rows nor columns are dense
        arrays = [None if array is None else np.concatenate([array] * 3) for array in arrays]
    bad = [*GOOD[:at], number, *GOOD[at + 1 :]]
    with pytest.raises(InferenceError, match="operand"):
        _kernels.call("attention", arrays, [((2, 5, 2, 5), np.float32)], bad, [1.0, 0.0, 0.0], scratch)
