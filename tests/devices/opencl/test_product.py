"""The kernels of matrix products: every tile, tuning, and CLBlast."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.devices.opencl import backend, blas, product
from opencl import as_gpu, first_device, model_of, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device is tuned."""
    monkeypatch.setattr(product, "_known", {})


Strides = tuple[int, int, int]  # between rows, columns and batches


def strided(memory: np.ndarray, begin: int, shape: tuple[int, int, int], strides: Strides) -> np.ndarray:
    """Matrices in ``memory``: [batch, row, column]."""
    steps = [stride * memory.itemsize for stride in (strides[2], *strides[:2])]
    return np.lib.stride_tricks.as_strided(memory[begin:], shape, steps)


def check_kernel(tile: product.Tile, rng: np.random.Generator, dtype: Any, limit: float) -> None:
    """One random product of ``tile`` equals that in float64, and nothing beside the result is written. Matrices begin
    anywhere, lie transposed, with gaps between rows and elements, or are the same for all batches."""
    cl, device = backend.load(), first_device()
    m, n, k = (int(rng.choice([1, 3, 4, t - 1, t, t + 4, 2 * t])) for t in (tile.rows, tile.columns, 2 * tile.depth))
    batches, begin, gap = (int(rng.choice(choices)) for choices in ([1, 1, 3], [0, 0, 4, 3], [0, 0, 4, 1]))
    step = int(rng.choice([1, 1, 1, 2]))

    def stored(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, Strides]:
        is_turned, is_shared = rng.integers(2), rng.integers(3) == 0
        outer, inner = (columns, rows) if is_turned else (rows, columns)
        line = (inner + gap) * step
        batch = 0 if is_shared else outer * line + gap
        strides = (step, line, batch) if is_turned else (line, step, batch)
        memory = rng.standard_normal(begin + batches * batch + outer * line).astype(dtype)
        return memory, strided(memory, begin, (batches, rows, columns), strides), strides

    (a, left, a_strides), (b, right, b_strides) = stored(m, k), stored(k, n)
    c_strides = n + gap, 1, m * (n + gap)
    c = np.full(begin + batches * c_strides[2], np.nan, dtype)
    sides = [product.Matrix(None, *strides, begin) for strides in (a_strides, b_strides, c_strides)]  # type: ignore[arg-type]
    kernel = device.kernel(tile.source(dtype == np.float16, product.Access.of(*sides, (m, n, k))))
    queue, flags = cl.CommandQueue(device.context), cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(device.context, flags, hostbuf=memory) for memory in (a, b, c)]
    numbers = [m, n, k, *a_strides[:2], *b_strides[:2], c_strides[0], a_strides[2], b_strides[2], c_strides[2]]
    for position, argument in enumerate([*buffers, np.array(numbers + [begin] * 3, np.uint32)]):
        kernel.set_arg(position, argument)
    cl.enqueue_nd_range_kernel(queue, kernel, tile.groups(m, n, batches), (tile.items, 1, 1))
    cl.enqueue_copy(queue, c, buffers[2])
    result = strided(c, begin, (batches, m, n), c_strides)
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    assert np.abs(result - wanted).max() <= limit * 5 * k**0.5, (tile, m, n, k, batches, begin, gap, step)
    result[:] = np.nan
    assert np.isnan(c).all()


@pytest.mark.spread(2)
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 2e-6), (np.float16, 2e-3)])
@pytest.mark.parametrize("tile", [product.Tile(16, 32, 8, 1, 8), product.Tile(32, 16, 4, 8, 2)])
def test_kernels(tile: product.Tile, dtype: Any, limit: float) -> None:
    """Blocks of 1, 2 and 4, several of them for each work-item, more and fewer work-items than groups of four."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        check_kernel(tile, rng, dtype, limit)


@pytest.mark.slow
@pytest.mark.parametrize("tile", product.TILES)
@pytest.mark.parametrize(
    ("count", "options"), [(1, "-cl-opt-disable"), pytest.param(3, "", marks=pytest.mark.exhaustive)]
)
def test_every_kernel(tile: product.Tile, count: int, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of both types. Each needs its own kernel, and pocl optimizes one of the largest tiles for up to 11 s."""
    rng = np.random.default_rng(count)
    device = first_device()
    assert tile.fits(device)
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", options)
    monkeypatch.setattr(device, "_programs", {})
    for dtype, limit in ((np.float32, 2e-6), (np.float16, 2e-3)):
        for _ in range(count):
            check_kernel(tile, rng, dtype, limit)


def test_models_with_tiles(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"a": normal(2, 130, 33), "b": normal(2, 33, 70), "bt": normal(70, 33)}
    nodes = [node("MatMul", ["a", "b"], ["y"]), node("Reshape", ["a", "rows"], ["r"])]
    nodes.append(node("Gemm", ["r", "bt"], ["z"], transB=1))
    model = core.read_model(model_of(nodes, inputs, {"rows": np.array([-1, 33])}, outputs=["y", "z"]))
    with as_gpu():
        for tile in (product.TILES[0], product.TILES[-3], product.TILES[-2]):
            monkeypatch.setattr(product, "_known", {first_device().identity: (tile,) * 3})
            found = core.compile_model(model, "OPENCL", {"OPENCL_CLBLAST": "NO"})(inputs)
            np.testing.assert_allclose(found["y"], inputs["a"] @ inputs["b"], 1e-4, 1e-4)
            np.testing.assert_allclose(found["z"], inputs["a"].reshape(-1, 33) @ inputs["bt"].T, 1e-4, 1e-4)


def kernels_of(core: hetero.Core, proto: Any, inputs: dict[str, np.ndarray], limit: float) -> list[str]:
    """The names of the kernels that OPENCL starts for a model, as on a GPU. The results are those of ORT."""
    model = core.read_model(proto)
    expected = core.compile_model(model, "ORT")(inputs)
    with as_gpu():
        compiled = core.compile_model(model, "OPENCL", {"OPENCL_CLBLAST": "NO"})
        runner: Any = compiled.create_runner()
        for _ in range(2):
            results = runner.run([inputs[port.name] for port in compiled.inputs])
            for found, wanted in zip(results, expected.values(), strict=True):
                assert found.dtype == wanted.dtype
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), limit, limit)
        (plan,) = runner._plans.values()
        return [step.source.name.partition("_")[0] for step in plan.steps]


FOLLOWING = {
    "bias": ([node("Add", ["p", "row"], ["y"])], 1),
    "bias of rank 3": ([node("Add", ["p", "row3"], ["y"])], 1),
    "one number": ([node("Mul", ["one", "p"], ["y"])], 1),
    "residual": ([node("Add", ["same", "p"], ["q"]), node("Add", ["q", "row"], ["r"]), node("Relu", ["r"], ["y"])], 1),
    "itself": ([node("Mul", ["p", "p"], ["y"])], 1),
    "a choice": ([node("Where", ["which", "p", "row"], ["y"])], 1),
    "sigmoid": ([node("Sigmoid", ["p"], ["q"]), node("Sub", ["row", "q"], ["y"])], 1),
    "of columns": ([node("Add", ["p", "column"], ["y"])], 2),
    "of batches": ([node("Add", ["p", "batch"], ["y"])], 2),
    "broadcast": ([node("Add", ["p", "wide"], ["y"])], 2),
    "another type": ([node("Greater", ["p", "row"], ["y"])], 2),
    "two readers": ([node("Add", ["p", "row"], ["q"]), node("Sub", ["q", "p"], ["y"])], 2),
    "two products": ([node("MatMul", ["a", "b"], ["o"]), node("Sub", ["p", "o"], ["y"])], 2),
    "through Identity": ([node("Identity", ["p"], ["q"]), node("Add", ["q", "p"], ["y"])], 2),
    "a result": ([node("Relu", ["p"], ["q"]), node("Neg", ["q"], ["r"]), node("Add", ["r", "p"], ["y"])], 2),
    "a reduction": ([node("ReduceSum", ["p", "axes"], ["y"])], 2),
    "nothing": ([node("Neg", ["row"], ["y"])], 1),
}  # fmt: skip


@pytest.mark.spread(2)
@pytest.mark.parametrize("case", FOLLOWING)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_elementwise_operators_after_a_product(core: hetero.Core, case: str, dtype: Any) -> None:
    """The kernel of the product computes them, if each operand is a number, a row, or of the product's shape."""
    nodes, kernels = FOLLOWING[case]
    shapes = {"a": (2, 19, 5), "b": (5, 19), "row": (19,), "row3": (1, 1, 19), "one": (1,), "same": (2, 19, 19)}
    shapes |= {"column": (19, 1), "batch": (2, 1, 19), "wide": (3, 1, 19, 19)}
    nodes = [node("MatMul", ["a", "b"], ["p"]), *nodes]
    read = {name for each in nodes for name in each.input}
    inputs = {name: normal(*shape).astype(dtype) for name, shape in shapes.items() if name in read}
    if "which" in read:
        inputs["which"] = np.arange(19) % 3 == 0
    outputs = ["p", "y"] if case == "a result" else ["y"]
    proto = model_of(nodes, inputs, {"axes": np.array([1])} if "axes" in read else {}, outputs=outputs)
    found = kernels_of(core, proto, inputs, 1e-5 if dtype == np.float32 else 1e-2)
    assert len(found) == kernels


@pytest.mark.parametrize(
    ("shapes", "kernels"),
    [
        (((1, 5), (5, 1), (1,)), 1),
        (((5,), (5, 7), (7,)), 1),
        (((3, 5), (5,), (3,)), 1),
        (((3, 5), (5,), (1, 3)), 2),
        (((4, 3, 5), (4, 5, 1), (1,)), 1),
        (((4, 3, 5), (4, 5, 3), (3,)), 1),
        (((4, 3, 5), (4, 5, 3), (1, 3, 3)), 2),
        (((4, 3, 5), (4, 5, 3), (3, 1)), 1),
        (((4, 3, 5), (4, 5, 3), (4, 1, 1)), 2),
        (((4, 4, 5), (4, 5, 4), (4, 1, 1)), 2),
        (((4, 4, 5), (4, 5, 4), (4, 1)), 1),
        (((7, 1), (1, 7), (7, 1)), 1),
        (((3, 5), (5, 7), (3, 1)), 1),
        (((4, 3, 5), (5, 6), (4, 3, 6)), 1),
        (((2, 0), (0, 3), (3,)), 2),
        (((0, 2), (2, 3), (3,)), 0),
    ],
)
def test_shapes_after_a_product(core: hetero.Core, shapes: Any, kernels: int) -> None:
    inputs = {name: normal(*shape) for name, shape in zip("abc", shapes, strict=True)}
    nodes = [node("MatMul", ["a", "b"], ["p"]), node("Add", ["p", "c"], ["y"])]
    assert len(kernels_of(core, model_of(nodes, inputs, outputs=["y"]), inputs, 1e-5)) == kernels


@pytest.mark.spread(2)
@pytest.mark.parametrize("x", [(1, 16, 3, 4), (3, 16, 2, 3), (2, 16, 1, 1), (2, 16, 6)])
@pytest.mark.parametrize("is_wide", [False, True])
def test_convolutions(core: hetero.Core, x: tuple[int, ...], is_wide: bool) -> None:
    """Those of size 1 compute a bias, an activation and a residual in one kernel. Larger ones compute the columns of
    parts of the image in the same memory, so their products cannot wait."""
    size = [3 if is_wide else 1] * (len(x) - 2)
    inputs = {"x": normal(*x), "w": normal(6, 16, *size), "b": normal(6), "s": normal(x[0], 6, *x[2:])}
    nodes = [node("Conv", ["x", "w", "b"], ["p"], pads=[int(is_wide)] * 2 * len(size)), node("Relu", ["p"], ["q"])]
    proto = model_of([*nodes, node("Add", ["s", "q"], ["y"])], inputs, outputs=["y"])
    assert (len(kernels_of(core, proto, inputs, 1e-4)) == 1) is not is_wide


@pytest.mark.spread(2)
@pytest.mark.parametrize("attributes", [{}, {"alpha": 0.5}, {"beta": 2.0, "transB": 1}])
@pytest.mark.parametrize("shape", [(6,), (1, 6), (4, 6), (4, 1), (1,)])
def test_gemm(core: hetero.Core, attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    b = (6, 3) if attributes.get("transB") else (3, 6)
    inputs = {"a": normal(4, 3), "b": normal(*b), "c": normal(*shape)}
    nodes = [node("Gemm", ["a", "b", "c"], ["p"], **attributes), node("Relu", ["p"], ["y"])]
    assert len(kernels_of(core, model_of(nodes, inputs, outputs=["y"]), inputs, 1e-5)) == 1


@pytest.mark.usefixtures("forgotten")
def test_a_device_is_tuned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, path = first_device(), tmp_path / "new" / "opencl-tiles.json"
    folder = str(path.parent)
    monkeypatch.setattr(product, "TILES", product.TILES[-2:])
    monkeypatch.setattr(product, "_SIZES", (16, 24, 32))
    chosen = product.tuned(device, folder, False)
    assert len(chosen) == 3
    assert {*chosen} <= {*product.TILES}
    lists = [list(dataclasses.astuple(tile)) for tile in chosen if tile]
    assert json.loads(path.read_text()) == {device.identity: lists}

    def fail(*_: object) -> None:
        raise AssertionError("measured again")

    with monkeypatch.context() as patch:
        patch.setattr(product, "_measured", fail)
        assert product.tuned(device, folder, False) is chosen
        product._known.clear()
        others = [next(tile for tile in product.TILES if tile is not each) for each in chosen]
        path.write_text(json.dumps({device.identity: [dataclasses.astuple(tile) for tile in others], "x": [1, 2]}))
        assert product.tuned(device, folder, False) == tuple(others)  # read from the file
        product._known.clear()
        path.write_text(json.dumps({f"{device.identity} CLBlast": [*lists[:2], "CLBlast"]}))
        assert product.tuned(device, folder, True) == (*chosen[:2], None)
    product._known.clear()
    monkeypatch.setattr(product, "_measured", lambda *_: chosen[0])
    wrong = ([64, 64, 16, 4, '4);"'], lists[:2], [*lists, lists[0]], [*lists[:2], "CLBlast"], [*lists[:2], None], 3, {})
    for text in ("", "[]", "{", *(json.dumps({device.identity: entries}) for entries in wrong)):
        path.write_text(text)
        assert product.tuned(device, folder, False) == (chosen[0],) * 3
        product._known.clear()
    assert product.tuned(device, "/proc/no_such_folder", False) == (chosen[0],) * 3  # the file cannot be written


@pytest.mark.usefixtures("forgotten")
def test_sizes_choose_what_computes_a_product(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of 1, of 129 and of 4,225 elements fall into three classes."""
    monkeypatch.setattr(product, "_SIZES", (4, 16, 64))
    seen = []
    source_of = product.Tile.source

    def source(tile: product.Tile, *arguments: Any) -> Any:
        seen.append(tile)
        return source_of(tile, *arguments)

    monkeypatch.setattr(product.Tile, "source", source)
    tiles = product.TILES[-1], product.TILES[-2], product.TILES[0]
    with as_gpu():
        monkeypatch.setattr(product, "_known", {first_device().identity: tiles})
        for (m, n), tile in zip(((1, 1), (3, 43), (65, 65)), tiles, strict=True):
            a, b = normal(m, 9), normal(9, n)
            model = core.read_model(model_of([node("MatMul", ["a", "b"], ["y"])], {"a": a, "b": b}))
            found = core.compile_model(model, "OPENCL", {"OPENCL_CLBLAST": "NO"})({"a": a, "b": b})[0]
            np.testing.assert_allclose(found, a @ b, 1e-4, 1e-4)
            assert {*seen} == {tile}
            seen.clear()


@pytest.mark.slow
@pytest.mark.skipif(not blas.is_installed(), reason="CLBlast is not installed: apt install libclblast1")
def test_clblast(core: hetero.Core) -> None:
    """The driver compiles the kernels of CLBlast for up to a minute."""
    inputs = {
        "a": normal(2, 3, 17, 33), "b": normal(3, 33, 20), "c": normal(20), "at": normal(33, 5), "bt": normal(7, 33),
        "x": normal(2, 16, 9, 9), "w": normal(8, 16, 1, 1), "v": normal(8, 8, 3, 3), "one": normal(1, 33),
        "column": normal(33, 1), "none": normal(0, 33),
    }  # fmt: skip
    nodes = [
        node("MatMul", ["a", "b"], ["m"]),
        node("Add", ["m", "c"], ["y0"]),
        node("Gemm", ["at", "bt"], ["y1"], transA=1, transB=1),
        node("Conv", ["x", "w"], ["y2"]),
        node("Conv", ["x", "v"], ["y3"], group=2, pads=[1, 1, 1, 1]),
        node("MatMul", ["one", "column"], ["y4"]),
        node("MatMul", ["none", "column"], ["y5"]),
    ]
    model = core.read_model(model_of(nodes, inputs, outputs=[f"y{at}" for at in range(6)]))
    expected = core.compile_model(model, "ORT")(inputs)
    compiled = core.compile_model(model, "OPENCL", {"OPENCL_CLBLAST": "YES", "PERF_COUNT": True})
    request = compiled.create_infer_request()
    for _ in range(2):
        for found, wanted in zip(request.infer(inputs), expected, strict=True):
            np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)
    assert {row.layer_type for row in request.profiling_info if row.real_us > 0} >= {"MatMul", "Gemm", "Conv"}


def test_clblast_that_is_not_installed(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_library", lambda: None)
    model = core.read_model(model_of([node("MatMul", ["x", "x"], ["y"])], {"x": normal(2, 2)}))
    with pytest.raises(hetero.PropertyError, match="CLBlast is not installed"):
        core.compile_model(model, "OPENCL", {"OPENCL_CLBLAST": "YES"})
    core.compile_model(model, "OPENCL")
