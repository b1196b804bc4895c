"""Requests: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import re
import types
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import hetero
from hetero.plugin import Port
from hetero.plugin.request import InferRequest, RequestState
from hetero.plugin.tensor import Outputs
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
        ({"a": A, "b": A.astype(np.float64)}, "found dtype float64; convert it with array.astype('float32')"),
        ({"a": A, "b": "text"}, "input 'b': expected float32 [n, 3], found str"),
        (A, "expected a mapping from input name to array (inputs: a, b)"),
    ],
)
@pytest.mark.parametrize("used", [False, True])
def test_bad_inputs_leave_the_request_usable(
    compiled: hetero.CompiledModel, inputs: object, says: str, used: bool
) -> None:
    request = compiled.create_infer_request()
    if used:  # then it does not check what is like the last run's inputs
        request.infer({"a": A, "b": A})
    with pytest.raises(hetero.InferenceError, match=re.escape(says)):
        request.infer(inputs)
    np.testing.assert_array_equal(request.infer({"a": A, "b": A})["c"], 2 * A)


@pytest.mark.parametrize("used", [False, True])
def test_sizes_that_contradict_a_symbol(compiled: hetero.CompiledModel, used: bool) -> None:
    """Both inputs are [n, 3]. The computation decides, and later calls are not affected."""
    request = compiled.create_infer_request()
    if used:
        request.infer({"a": A, "b": A})
    says = "inputs 'a' and 'b' have different sizes, but the model calls both 'n'"
    rows = np.vstack([A, 2 * A])
    for inputs in ({"a": A, "b": rows}, {"a": rows, "b": A}):
        with pytest.warns(RuntimeWarning, match=says):
            np.testing.assert_array_equal(request.infer(inputs)["c"], A + rows)
    with pytest.warns(RuntimeWarning, match=says), pytest.raises(hetero.InferenceError):
        request.infer({"a": rows, "b": np.vstack([A, A, A])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            np.testing.assert_array_equal(request.infer({"a": A, "b": A})["c"], 2 * A)
            np.testing.assert_array_equal(request.infer({"a": rows, "b": rows})["c"], 2 * rows)


def test_outputs_by_name_and_position(compiled: hetero.CompiledModel) -> None:
    out = compiled({"a": A, "b": A})
    np.testing.assert_array_equal(out["c"], out[0])
    assert (list(out.keys()), len(out)) == (["c"], 1)
    with pytest.raises(KeyError):
        out["d"]


def test_outputs_are_values_with_names() -> None:
    first, second = np.arange(3), np.array(1)
    out = Outputs({"sum": 0, "rest": 1}, [first, second])
    a, b = out
    assert a is first
    assert b is second
    assert [*out] == list(out.values()) == list(out.arrays()) == [out[0], out[1]]
    assert list(out.keys()) == ["sum", "rest"]
    assert [(name, id(value)) for name, value in out.items()] == [("sum", id(first)), ("rest", id(second))]
    assert {**out} == dict(out) == dict(out.items()) == {"sum": first, "rest": second}
    assert out[-1] is second
    assert out[:1] == (first,)
    assert out[np.int64(1)] is second
    assert "sum" in out
    assert "c" not in out
    assert out.get("rest") is second
    assert out.get("c", 5) == 5
    assert repr(out) == "Outputs({'sum': int64[3], 'rest': int64[]})"


def test_wrong_guesses_about_outputs_fail() -> None:
    out = Outputs({"sum": 0, "rest": 1}, [np.arange(3), np.array(1)])
    for wrong, says in (
        ("summ", "no output 'summ' (did you mean sum?); its outputs: sum, rest"),
        ("typo", "no output 'typo'; its outputs: sum, rest"),
        (2, "no output number 2; its outputs: sum, rest"),
        (-3, "no output number -3; its outputs: sum, rest"),
    ):
        for kind in (hetero.UnknownOutput, hetero.HeteroError, KeyError, IndexError):
            with pytest.raises(kind) as caught:
                out[wrong]
            assert str(caught.value) == f"the model has {says}"
    # As if they were a mapping: an integer result of one element is no position either.
    for key in (*out, None, True, 1.0, ("sum",), np.array("sum")):
        with pytest.raises(TypeError, match=r"use \.keys\(\) for names"):
            out[key]
    with pytest.raises(TypeError, match=r"use \.values\(\)"):
        out[0] in out  # noqa: B015
    with pytest.raises(ValueError, match="unpack"):
        (_,) = out


def test_outputs_are_inputs(compiled: hetero.CompiledModel, core: hetero.Core) -> None:
    out = Outputs({"b": 0, "a": 1}, [A, 2 * A])
    np.testing.assert_array_equal(compiled(out)["c"], 3 * A)
    with pytest.raises(hetero.InferenceError, match="input 'b' is missing"):
        compiled(Outputs({"a": 0}, [A]))
    with pytest.raises(hetero.InferenceError, match="no input 'd'"):
        compiled(Outputs({"a": 0, "b": 1, "d": 2}, [A, A, A]))


def test_input_forms(compiled: hetero.CompiledModel) -> None:
    class Exporter:
        def __dlpack__(self, **arguments: object) -> object:
            return A.copy().__dlpack__(**arguments)

        def __dlpack_device__(self) -> tuple[int, int]:
            return A.__dlpack_device__()

    values = (
        A,
        A.tolist(),
        A.astype(">f4"),
        np.asfortranarray(A),
        np.repeat(A, 2, 0)[::2],
        Exporter(),
        A.view(np.recarray),
    )
    for value in (*values, *values[::-1]):
        np.testing.assert_array_equal(compiled({"a": value, "b": A})["c"], 2 * A)
        np.testing.assert_array_equal(compiled(types.MappingProxyType({"b": A, "a": value}))["c"], 2 * A)


def test_other_shapes_and_back(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    for rows in (1, 1, 2, 2, 0, 1, 1):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(request.infer({"a": x, "b": x})["c"], 2 * x)


def test_bytes_of_no_type_are_no_halves(core: hetero.Core) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.BFLOAT16, [3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    request = core.compile_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "CPU"
    ).create_infer_request()
    x = np.array([1, 2, 3], ml_dtypes.bfloat16)
    for _ in range(2):
        np.testing.assert_array_equal(request.infer({"x": x})["y"], -x)
        with pytest.raises(hetero.InferenceError, match="expected bfloat16"):
            request.infer({"x": x.view("V2")})


def test_a_failed_run_leaves_the_request_usable(core: hetero.Core) -> None:
    nodes = [helper.make_node("Gather", ["a", "i"], ["c"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    request = core.compile_model(model, "CPU").create_infer_request()
    for index in (1, 7, 2, 7, 0):
        inputs = {"a": A[0], "i": np.array([index])}
        if index > 2:
            with pytest.raises(hetero.InferenceError, match="Gather"):
                request.infer(inputs)
            assert request.state is RequestState.FAILED
        else:
            assert request.infer(inputs)["c"] == A[0, index]
            assert request.state is RequestState.IDLE


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


def test_results_lie_apart() -> None:
    """From the inputs, from each other, and from what the device keeps; what already does is not copied."""
    constant, own, base, given = np.zeros(2), np.zeros(2), np.zeros(6), np.zeros(2)
    constant.flags.writeable = False
    shared = np.zeros(3)

    class Sharing:
        def run(self, inputs: object) -> list[object]:
            apart = [own, base[:2], base[2:4]]
            return [*apart, own, base[1:3], base[5:], constant, given[:1], [shared, shared[::-1], [shared]], None]

        def profile(self) -> tuple[()]:
            return ()

    ports = [Port(f"y{at}", None, None, is_tensor=at < 8) for at in range(10)]
    request = InferRequest("TEST", [Port("x", None, None)], ports, Sharing())
    results = request.infer({"x": given}).arrays()
    assert results[0] is own
    assert np.shares_memory(results[1], base)
    arrays = [*results[:8], *results[8][:2], results[8][2][0]]
    for at, array in enumerate(arrays):
        assert array.flags.writeable
        assert not any(np.shares_memory(array, other) for other in (*arrays[:at], given, constant))


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "ORT", "HETERO:CPU,TEMPLATE", "HETERO:TEMPLATE,CPU"])
def test_results_may_be_written(core: hetero.Core, device: str) -> None:
    """Where outputs are constants, also of bodies, or views of other outputs: a caller that writes them changes nothing
    else."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[n] x, int64 trips, bool p) => (float[n] a, float[n] b, float[1, n] c, float[2] d, float[2] e,
            int64[1] f, float[2] h, float[n] i)
        <float[2] w = {1, 2}, int64[2] row = {1, -1}>
        {
            a = Relu (x)
            b = Identity (a)
            c = Reshape (b, row)
            d = Identity (w)
            e = If (p) <then_branch = t () => (float[2] y) { y = Constant <value = float[2] {3, 4}> () },
                else_branch = o () => (float[2] y) { y = Identity (w) }>
            f = Shape (x)
            h, i = Loop (trips, , w, x) <body = l (int64 at, bool go, float[2] v, float[m] u)
                => (bool go2, float[2] v2, float[m] u2) { go2 = Identity (go)  v2 = Identity (v)  u2 = Identity (u) }>
        }""")
    if device == "ORT" and importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("there is no onnxruntime")
    request = core.compile_model(core.read_model(model), device).create_infer_request()
    for call in range(12):
        x = np.arange(call % 3 + 1, dtype=np.float32)
        feeds = {"x": x, "trips": np.array(call % 2), "p": np.array(call % 4 < 2)}
        found = request.infer(feeds)
        branch = [3, 4] if feeds["p"] else [1, 2]
        wanted = [x, x, x[None], [1, 2], branch, [len(x)], [1, 2], x]
        for array, expected in zip(found.arrays(), wanted, strict=True):
            np.testing.assert_array_equal(array, expected)
        for array in found.arrays():
            array[...] = 7  # in turn: one that shares memory with a result before it would have changed that
        for array in found.arrays():
            np.testing.assert_array_equal(array, 7)
        assert not (x == 7).any()


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


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_that_declares_another_type(core: hetero.Core, device: str) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [2, 3]))
    compiled = core.compile_model(core.read_model(model), device)
    for _ in range(2):
        with pytest.raises(
            hetero.InferenceError, match=re.escape("output 'y' is declared int32 [2, 3], found float32 [2, 3]")
        ):
            compiled(np.ones((2, 3), np.float32))


@pytest.mark.parametrize("declared", [[2, 4], [7], [2, 5]], ids=["one off", "rank", "size"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_model_that_declares_another_shape(core: hetero.Core, device: str, declared: list[int]) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, declared))
    compiled = core.compile_model(core.read_model(model), device)
    x = np.ones((2, 3), np.float32)
    says = re.escape(f"output 'y' is declared float32 {declared}, found float32 [2, 3]")
    with pytest.warns(RuntimeWarning, match=says):
        assert compiled(x)["y"].shape == (2, 3)


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE"])
def test_another_shape_is_reported_once(core: hetero.Core, device: str) -> None:
    """Also if it depends on the strings, and the first calls have the declared shape."""
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", stopwords=["a"])
    strings = onnx.TensorProto.STRING
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", strings, [3])],
        [helper.make_tensor_value_info("y", strings, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    compiled = core.compile_model(core.read_model(model), device)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        for words, reported in (("Aab", 0), ("aac", 0), ("adb", 1), ("cdb", 1), ("aaq", 1)):
            found = compiled(np.array(list(words), object))["y"]
            assert found.tolist() == [word for word in words if word not in "aA"]
            assert len(issued) == reported
    assert "'y' is declared strings [1], found object [2]" in str(issued[0].message)


def test_unknown_sizes_that_are_written_as_question_marks(core: hetero.Core) -> None:
    """They are no symbol, whose sizes would have to agree."""
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], inputs={"x": ["?", 3, "?"]})
    compiled = core.compile_model(core.read_model(model), "CPU")
    assert compiled.inputs[0].shape == (None, 3, None)
    assert compiled(np.ones((2, 3, 5), np.float32))["y"].shape == (2, 3, 5)


def test_empty_model(core: hetero.Core) -> None:
    """No node at all: the input is the output."""
    model = onnx.ModelProto()
    model.CopyFrom(make_model([], outputs=["x"]))
    for device in DEVICES:
        out = core.compile_model(core.read_model(model), device)(np.ones((2, 3), np.float32))
        np.testing.assert_array_equal(out["x"], np.ones((2, 3), np.float32))
