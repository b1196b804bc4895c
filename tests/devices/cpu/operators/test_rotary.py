"""RotaryEmbedding of ONNX and of onnxruntime on the CPU device, beside onnxruntime and the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference.ops.op_rotary_embedding import rotary_embedding

from contrib_nodes import Array, check, floats, model_of, refusal
from contrib_nodes import run as run_contrib
from hetero import CompiledModel, Core, InferenceError


@pytest.mark.parametrize("interleaved", [0, 1])
def test_of_onnxruntime(interleaved: int) -> None:
    op, options = "RotaryEmbedding", {"interleaved": interleaved}
    angles = {"c": floats(12, 4), "s": floats(12, 4, seed=1)}
    for batch, length in ((2, 5), (1, 1), (3, 1)):
        x = floats(batch, length, 16)
        rows = np.random.default_rng(0).integers(0, 12, (batch, length))
        for positions in (np.array([3]), rows):
            check(op, {"x": x, "p": positions, **angles}, **options)
            check(op, {"x": x, "p": positions, **angles}, **options, constants=("c", "s"))
            check(op, {"x": floats(batch, 2, length, 8), "p": positions, **angles}, **options)
            part = {"rotary_embedding_dim": 8, "num_heads": 2}
            check(op, {"x": floats(batch, length, 24), "p": positions, **angles}, **options, **part)
    wrong = {"x": floats(1, 2, 12), "p": np.array([0]), **angles}
    with pytest.raises(InferenceError, match="does not fit heads of 8"):
        run_contrib(model_of(op, wrong), wrong)
    assert "scale = 2.0" in refusal(model_of(op, wrong, scale=2.0))


def compile_of(inputs: dict[str, Array], **attributes: Any) -> CompiledModel:
    """ONNX's operator, without shapes."""
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in inputs.items()
    ]
    node = helper.make_node("RotaryEmbedding", list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], "graph", ports, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    core = Core()
    return core.compile_model(core.read_model(model), "CPU")


def run(inputs: dict[str, Array], **attributes: Any) -> Array:
    """Twice."""
    compiled = compile_of(inputs, **attributes)
    first, second = (next(iter(compiled(inputs).values())) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    return first


@pytest.mark.spread(2)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("partial", [False, True])
def test_of_onnx(interleaved: int, dtype: str, partial: bool) -> None:
    size = 11 if partial else 8
    more = {"rotary_embedding_dim": 8} if partial else {}
    for batch, length in ((2, 5), (1, 1), (3, 1), (1, 0)):
        rows = np.random.default_rng(0).integers(0, 12, (batch, length))
        tables = [floats(12, 4, seed=seed).astype(dtype) for seed in (1, 2)]
        each = [floats(batch, length, 4, seed=seed).astype(dtype) for seed in (1, 2)]
        for x in (floats(batch, 2, length, size).astype(dtype), floats(batch, length, 2 * size).astype(dtype)):
            options = {"interleaved": interleaved, "num_heads": 2} | more
            for angles in ([*tables, rows], [*tables, rows[:1]], each, [cache[:1] for cache in each]):
                found = run(dict(zip("xcsp", [x, *angles], strict=False)), **options)
                wide = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in (x, *angles)]
                wanted = rotary_embedding(*wide, **options).astype(dtype)  # rounded once
                np.testing.assert_array_equal(found, wanted)
                assert found.dtype == wanted.dtype


def test_sizes_change_between_calls() -> None:
    tables = {"c": floats(12, 4), "s": floats(12, 4, seed=1)}
    inputs = {"x": floats(1, 1, 16), **tables, "p": np.zeros((1, 1), np.int64)}
    compiled = compile_of(inputs, num_heads=2)
    for batch, length in ((1, 1), (1, 7), (2, 3), (3, 1), (0, 2), (2, 0), (1, 1)):
        rows = np.random.default_rng(0).integers(0, 12, (batch, length))
        inputs |= {"x": floats(batch, length, 16), "p": rows}
        wanted = rotary_embedding(*inputs.values(), num_heads=2)
        np.testing.assert_array_equal(next(iter(compiled(inputs).values())), wanted)


def test_refused() -> None:
    caches, rows = {"c": floats(12, 4), "s": floats(12, 4)}, {"p": np.zeros((1, 2), np.int64)}
    for inputs, attributes, text in (
        ({"x": floats(1, 2, 16)} | caches | rows, {}, "does not fit 0 heads"),
        ({"x": floats(1, 2, 15)} | caches | rows, {"num_heads": 2}, "does not fit 2 heads"),
        ({"x": floats(2, 8)} | caches | rows, {"num_heads": 1}, "does not fit 1 heads"),
        ({"x": floats(1, 2, 12)} | caches | rows, {"num_heads": 2}, "caches of 4 columns do not fit 6 numbers"),
        ({"x": floats(1, 2, 16)} | caches, {"num_heads": 2}, "caches of shapes"),
        ({"x": floats(1, 3, 16)} | caches | rows, {"num_heads": 2}, r"position_ids of shape \[1, 2\]"),
        ({"x": floats(1, 2, 16)} | caches | {"p": np.full((1, 2), 12)}, {"num_heads": 2}, "index 12 is out of bounds"),
    ):
        with pytest.raises(InferenceError, match=text):
            run(inputs, **attributes)
