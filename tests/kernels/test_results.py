"""The memory of dropped results is used for later results of the same request."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero

ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}


def request(element_type: int = TensorProto.FLOAT, outputs: int = 2) -> hetero.InferRequest:
    """y0 = x + x, y1 = y0 + x, ..., of any shape."""
    names = ["x", *(f"y{at}" for at in range(outputs))]
    ports = [helper.make_tensor_value_info(name, element_type, ["a", "b"]) for name in names]
    nodes = [helper.make_node("Add", [names[at], "x"], [names[at + 1]]) for at in range(outputs)]
    graph = helper.make_graph(nodes, "sums", ports[:1], ports[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return hetero.compile(proto, "CPU", ONE_THREAD).create_infer_request()


def filled(rows: int, seed: int = 0, columns: int = 1000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns), np.float32)


def addresses(outputs: Any) -> set[int]:
    return {array.ctypes.data for array in outputs.values()}


def test_memory_of_dropped_results_is_used_again() -> None:
    asked = request()
    first = addresses(asked.infer(filled(20)))
    for rows in (20, 19, 20):  # a little fewer fit as well
        outputs = asked.infer(filled(rows, seed=rows))
        assert addresses(outputs) == first
        np.testing.assert_array_equal(outputs["y1"], 3 * filled(rows, seed=rows))
        del outputs
    assert addresses(asked.infer(filled(5))).isdisjoint(first)  # far fewer


def test_what_is_held_is_never_overwritten() -> None:
    asked = request()
    x = filled(20)
    kept = [
        asked.infer(x)["y0"],
        asked.infer(x)["y0"][3:5].T,
        asked.infer(x)["y0"].reshape(-1)[::7],
        np.asarray(memoryview(asked.infer(x)["y0"])),
        np.from_dlpack(asked.infer(x)["y0"]),
        np.frombuffer(asked.infer(x)["y0"], np.uint8),
    ]
    wanted = [array.copy() for array in kept]
    for seed in range(20):
        asked.infer(filled(20 - seed % 3, seed))
    for array, value in zip(kept, wanted, strict=True):
        np.testing.assert_array_equal(array, value)


def test_results_as_inputs_of_the_next_call() -> None:
    asked = request()
    x = filled(20)
    value, wanted = x, x.astype(np.float64)
    for _ in range(10):
        value = asked.infer(value)["y1"]
        wanted = 3 * wanted
    np.testing.assert_allclose(value, wanted, 1e-5)


def test_results_outlive_the_request() -> None:
    asked = request()
    x = filled(20)
    outputs = asked.infer(x)
    asked.infer(x)  # leaves free memory
    del asked
    gc.collect()
    np.testing.assert_array_equal(outputs["y0"], 2 * x)
    del outputs
    gc.collect()


def test_results_in_cycles_and_other_threads() -> None:
    asked = request()
    x = filled(20)

    class Holder:
        pass

    for _ in range(10):
        holder: Any = Holder()
        holder.me, holder.outputs = holder, asked.infer(x)
    gc.collect()
    box = [asked.infer(x) for _ in range(4)]
    threads = [threading.Thread(target=box.pop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(asked.infer(x)["y1"], 3 * x)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_as_much_is_kept_as_one_run_needs() -> None:
    """Of many results that are dropped at once, the memory of one run stays."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    asked, x = request(outputs=1), filled(10_000)
    many = [asked.infer(x)["y0"]]
    before = resident()
    many += [asked.infer(x)["y0"] for _ in range(4)]
    assert resident() - before > 3 * x.nbytes
    many.clear()
    assert resident() - before < x.nbytes // 2  # the first one was resident before


@pytest.mark.parametrize("rows", [0, 1, 4, 5, 17, 300])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.FLOAT16])
def test_types_and_sizes(kind: int, rows: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    asked = request(kind)
    for seed in range(3):
        x = (filled(rows, seed) * 8).astype(dtype)
        outputs = asked.infer(x)
        for name, factor in (("y0", 2), ("y1", 3)):
            array = outputs[name]
            assert array.dtype == dtype
            assert array.flags.c_contiguous
            assert array.flags.writeable
            np.testing.assert_allclose(array, x * dtype.type(factor), 2e-3 if kind == TensorProto.FLOAT16 else 1e-6)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(outputs["y0"])), outputs["y0"])
        outputs["y0"][...] = 0  # the caller's own
        del outputs, array


def test_given_memory_is_used_as_it_is() -> None:
    asked = request()
    x, place = filled(20), np.zeros((20, 1000), np.float32)
    assert asked.infer(x, out={"y0": place})["y0"] is place
    np.testing.assert_array_equal(place, 2 * x)
    asked.infer(filled(20, 1))
    np.testing.assert_array_equal(place, 2 * x)
