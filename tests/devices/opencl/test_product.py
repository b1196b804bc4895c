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
from hetero.devices.opencl import blas, product
from opencl import as_gpu, first_device, model_of, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device is tuned."""
    monkeypatch.setattr(product, "_known", {})


def test_every_tile(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"a": normal(2, 130, 33), "b": normal(2, 33, 70), "bt": normal(70, 33)}
    nodes = [node("MatMul", ["a", "b"], ["y"]), node("Reshape", ["a", "rows"], ["r"])]
    nodes.append(node("Gemm", ["r", "bt"], ["z"], transB=1))
    model = core.read_model(model_of(nodes, inputs, {"rows": np.array([-1, 33])}, outputs=["y", "z"]))
    with as_gpu():
        for tile in (product.TILES[0], product.TILES[1], product.TILES[-2]):
            monkeypatch.setattr(product, "_known", {first_device().identity: (tile,) * 3})
            found = core.compile_model(model, "OPENCL", {"OPENCL_CLBLAST": "NO"})(inputs)
            np.testing.assert_allclose(found["y"], inputs["a"] @ inputs["b"], 1e-4, 1e-4)
            np.testing.assert_allclose(found["z"], inputs["a"].reshape(-1, 33) @ inputs["bt"].T, 1e-4, 1e-4)


@pytest.mark.usefixtures("forgotten")
def test_a_device_is_tuned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, path = first_device(), tmp_path / "new" / "opencl-tiles.json"
    folder = str(path.parent)
    monkeypatch.setattr(product, "TILES", product.TILES[-2:])
    monkeypatch.setattr(product, "_SIZES", (16, 32, 64))
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

    def source(tile: product.Tile, half: bool) -> Any:
        seen.append(tile)
        return source_of(tile, half)

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
