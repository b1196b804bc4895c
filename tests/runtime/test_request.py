"""Requests: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import concurrent.futures
import re

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from model_zoo import make_model

DEVICES = ("CPU", "TEMPLATE", "HETERO:TEMPLATE,CPU")


@pytest.fixture(params=DEVICES)
def compiled(request: pytest.FixtureRequest, core: hetero.Core) -> hetero.CompiledModel:
    """c = a + b with a: [n, 3], b: [n, 3]."""
    model = make_model([helper.make_node("Add", ["a", "b"], ["c"])], {"a": ["n", 3], "b": ["n", 3]}, ["c"])
    return core.compile_model(core.read_model(model), request.param)


A = np.float32([[1, 2, 3]])


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"a": A}, "input 'b' is missing; expected float32 [n, 3]"),
        ({}, "input 'a' is missing"),
        ({"a": A, "b": A, "c": A}, "no input 'c'"),
        ({"a": A, "B": A, "b": A}, "no input 'B' (did you mean b?)"),
        ({"a": A, "b": A[0]}, "input 'b': expected float32 [n, 3], found shape [3]"),
        ({"a": A, "b": np.float32([[1, 2]])}, "input 'b': expected float32 [n, 3], found shape [1, 2]"),
        ({"a": A, "b": np.vstack([A, A])}, "input 'b': expected float32 [n, 3] with n = 1 as in input 'a'"),
        ({"a": A, "b": A.astype(np.float64)}, "input 'b': expected float32 [n, 3], found dtype float64"),
        ({"a": A, "b": "text"}, "input 'b': expected float32 [n, 3], found str"),
        (A, "expected a mapping from input name to array (inputs: a, b)"),
    ],
)
def test_bad_inputs_leave_the_request_usable(compiled: hetero.CompiledModel, inputs: object, says: str) -> None:
    request = compiled.create_infer_request()
    with pytest.raises(hetero.InferenceError, match=re.escape(says)):
        request.infer(inputs)
    np.testing.assert_array_equal(request.infer({"a": A, "b": A})["c"], 2 * A)


def test_outputs_by_name_and_position(compiled: hetero.CompiledModel) -> None:
    out = compiled({"a": A, "b": A})
    np.testing.assert_array_equal(out["c"], out[0])
    assert (list(out), len(out)) == (["c"], 1)
    with pytest.raises(KeyError):
        out["d"]


def test_input_forms(compiled: hetero.CompiledModel) -> None:
    class Exporter:
        def __dlpack__(self, **arguments: object) -> object:
            return A.copy().__dlpack__(**arguments)

        def __dlpack_device__(self) -> tuple[int, int]:
            return A.__dlpack_device__()

    for value in (A, A.tolist(), A.astype(">f4"), np.asfortranarray(A), np.repeat(A, 2, 0)[::2], Exporter()):
        np.testing.assert_array_equal(compiled({"a": value, "b": A})["c"], 2 * A)


def test_results_stay_when_the_request_runs_again(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    first = request.infer({"a": A, "b": A})["c"]
    kept = first.copy()
    request.infer({"a": 5 * A, "b": A})
    np.testing.assert_array_equal(first, kept)


def test_many_threads_on_one_compiled_model(compiled: hetero.CompiledModel) -> None:
    def one(i: int) -> float:
        return float(compiled({"a": i * A, "b": A})["c"][0, 0])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(200))) == [i + 1.0 for i in range(200)]


def test_a_busy_request_refuses() -> None:
    from hetero.plugin import InferRequest

    class Reentrant:
        request: InferRequest

        def run(self, inputs: object) -> list[np.ndarray]:
            with pytest.raises(hetero.InferenceError, match="busy"):
                self.request.infer({})
            return []

        def profile(self) -> tuple[()]:
            return ()

    runner = Reentrant()
    runner.request = InferRequest("TEST", [], [], runner)
    assert len(runner.request.infer({})) == 0


@pytest.mark.parametrize("device", DEVICES)
def test_parameter_and_constant_results(core: hetero.Core, device: str) -> None:
    """Outputs that no node makes: an input, a constant, and one value under two outputs' eyes."""
    model = make_model(
        [helper.make_node("Relu", ["x"], ["y"])], outputs=["x", "w", "y"], weights={"w": np.float32([7, 8])}
    )
    compiled = core.compile_model(core.read_model(model), device)
    x = np.float32([[-1, 2, 3], [4, 5, 6]])
    out = compiled({"x": x})
    np.testing.assert_array_equal(out["x"], x)
    np.testing.assert_array_equal(out["w"], [7, 8])
    np.testing.assert_array_equal(out["y"], np.maximum(x, 0))
    out["x"][:] = 0
    assert x[0, 0] == -1
    out["w"][:] = 0
    np.testing.assert_array_equal(compiled({"x": x})["w"], [7, 8])


@pytest.mark.parametrize("device", DEVICES)
def test_counters(core: hetero.Core, diamond: hetero.Model, device: str) -> None:
    x = np.ones((2, 3), np.float32)
    silent = core.compile_model(diamond, device).create_infer_request()
    silent.infer(x)
    assert silent.profiling_info == ()
    request = core.compile_model(diamond, device, {"PERF_COUNT": True}).create_infer_request()
    request.infer(x)
    rows = request.profiling_info
    assert {row.node for row in rows} == {"one", "two", "three", "four", "five", "six", "seven"}
    assert {row.layer_type for row in rows if row.node == "four"} == {"Exp"}
    assert {row.status for row in rows} == {"EXECUTED"}
    assert all(row.real_us >= 0 for row in rows)
    assert {row.subgraph for row in rows} == ({1} if device.startswith("HETERO") else {0})


def test_counters_name_their_subgraph(core: hetero.Core, diamond: hetero.Model) -> None:
    request = core.compile_model(diamond, "HETERO:FPGA,CPU", {"PERF_COUNT": True}).create_infer_request()
    request.infer(np.ones((2, 3), np.float32))
    by_subgraph = {}
    for row in request.profiling_info:
        by_subgraph.setdefault(row.subgraph, []).append(row.node)
    assert sorted(by_subgraph) == [1, 2, 3]
    assert by_subgraph[2] == ["four"]
    assert str(request.profiling_info[0]).startswith("subgraph1: one:EXECUTED layerType: Relu realTime: ")


def test_what_is_not_built_yet_says_so(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    for call in (request.start_async, request.wait, request.cancel, lambda: request.set_callback(print)):
        with pytest.raises(hetero.NotSupported, match="not built yet"):
            call()
    with pytest.raises(hetero.NotSupported):
        compiled.export_model("x.hetero")


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_that_declares_another_shape(core: hetero.Core, device: str) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [7]))
    compiled = core.compile_model(core.read_model(model), device)
    with pytest.raises(
        hetero.InferenceError, match=re.escape("output 'y' is declared float32 [7], found float32 [2, 3]")
    ):
        compiled(np.ones((2, 3), np.float32))


def test_empty_model(core: hetero.Core) -> None:
    """No node at all: the input is the output."""
    model = onnx.ModelProto()
    model.CopyFrom(make_model([], outputs=["x"]))
    for device in DEVICES:
        out = core.compile_model(core.read_model(model), device)(np.ones((2, 3), np.float32))
        np.testing.assert_array_equal(out["x"], np.ones((2, 3), np.float32))
