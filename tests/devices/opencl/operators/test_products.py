"""MatMul and Gemm of OPENCL, compared with NumPy and onnxruntime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import helper

import hetero
from opencl import as_gpu, check, model_of, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node


@pytest.fixture(params=["processor", "gpu"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    with as_gpu() if request.param == "gpu" else contextlib.nullcontext():
        yield


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


SHAPES = (
    ((3, 4), (4, 5)),
    ((17, 33), (33, 16)),
    ((70, 40), (40, 67)),
    ((1, 9), (9, 1)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 5, 3, 4), (5, 4, 2)),
    ((1, 1, 3, 4), (1, 4, 2)),
    ((2, 3, 4), (4,)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
    ((2, 0, 4), (2, 4, 5)),
)


@pytest.mark.usefixtures("kernels")
def test_matmul(core: hetero.Core) -> None:
    inputs, nodes = {}, []
    for at, (left, right) in enumerate(SHAPES):
        inputs |= {f"a{at}": normal(*left), f"b{at}": normal(*right)}
        nodes.append(node("MatMul", [f"a{at}", f"b{at}"], [f"y{at}"]))
    compiled = core.compile_model(core.read_model(model_of(nodes, inputs)), "OPENCL")
    found = compiled(inputs)
    for at, (left, right) in enumerate(SHAPES):
        wanted = inputs[f"a{at}"] @ inputs[f"b{at}"]
        assert found[f"y{at}"].shape == wanted.shape, (left, right)
        np.testing.assert_allclose(found[f"y{at}"], wanted, 1e-4, 1e-5, err_msg=f"{left} {right}")


@pytest.mark.usefixtures("kernels")
def test_gemm(core: hetero.Core) -> None:
    inputs = {
        "a": normal(5, 19), "at": normal(19, 5), "b": normal(19, 36), "bt": normal(36, 19), "row": normal(36),
        "column": normal(5, 1), "one": normal(1), "full": normal(5, 36),
    }  # fmt: skip
    nodes = [
        node("Gemm", ["a", "b"], ["y0"]),
        node("Gemm", ["at", "b", "row"], ["y1"], transA=1),
        node("Gemm", ["a", "bt", "column"], ["y2"], transB=1, alpha=0.5),
        node("Gemm", ["at", "bt", "full"], ["y3"], transA=1, transB=1, beta=-2.0),
        node("Gemm", ["a", "b", "one"], ["y4"], alpha=2.0, beta=0.25),
        node("Gemm", ["a", "b", "full"], ["y5"], beta=0.0),
    ]
    check(core, model_of(nodes, inputs), inputs, 1e-4, 1e-5)


@pytest.mark.usefixtures("kernels")
def test_float16(core: hetero.Core) -> None:
    inputs = {"a": normal(5, 19).astype(np.float16), "b": normal(19, 18).astype(np.float16)}
    nodes = [node("MatMul", ["a", "b"], ["y"]), node("Gemm", ["a", "b"], ["z"], alpha=0.5)]
    found = core.compile_model(core.read_model(model_of(nodes, inputs)), "OPENCL")(inputs)
    wanted = inputs["a"].astype(np.float32) @ inputs["b"].astype(np.float32)
    np.testing.assert_allclose(found["y"].astype(np.float32), wanted, 1e-3, 1e-3)
    np.testing.assert_allclose(found["z"].astype(np.float32), wanted / 2, 2e-3, 1e-3)
