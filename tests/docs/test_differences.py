"""The behaviors that the migration pages list as equal or different: of the other library, and of hetero."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from model_zoo import make_model

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
X = np.float32([[1, -2, 3], [-4, 5, 6]])
SIZES = {"a": np.ones((2, 3), np.float32), "b": np.ones((5, 3), np.float32)}


@pytest.fixture
def relu() -> onnx.ModelProto:
    return make_model([helper.make_node("Relu", ["x"], ["y"])])


@pytest.fixture
def same_symbol() -> onnx.ModelProto:
    """Both inputs are [n, 3]; the result is their shapes."""
    nodes = [
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Shape", ["b"], ["t"]),
        helper.make_node("Concat", ["s", "t"], ["c"], axis=0),
        helper.make_node("Cast", ["c"], ["y"], to=1),
    ]
    return make_model(nodes, {"a": ["n", 3], "b": ["n", 3]})


@pytest.fixture
def out_of_range() -> onnx.ModelProto:
    return make_model([helper.make_node("Gather", ["x", "i"], ["y"])], weights={"i": np.array([9])})


@pytest.fixture
def difference() -> onnx.ModelProto:
    """y = a - b."""
    return make_model([helper.make_node("Sub", ["a", "b"], ["y"])], {"a": ["n", 3], "b": ["n", 3]})


def strings() -> onnx.ModelProto:
    """The transpose. An output that is an input makes OpenVINO free strings twice."""
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.STRING, [2, 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"])], "strings", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def holding(type_: onnx.TypeProto, op: str, result: int) -> onnx.ModelProto:
    """y = op(x), where x is a sequence or an optional value, and y a scalar."""
    ports = [helper.make_value_info("x", type_), helper.make_tensor_value_info("y", result, [])]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "holding", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


class ArrayLike:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return X.copy()


class Dlpack:
    """An array that offers DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def listed(page: str, heading: str) -> list[str]:
    """The first cell of each row in the page's table below the heading."""
    text = (HOWTO / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    rows = re.findall(r"^\| (.*?) \|", text.partition("\n## ")[0], re.MULTILINE)
    return [row for row in rows if row != "behavior"]


OPENVINO = (
    "an unknown property of a list",
    "an unavailable device of `HETERO`",
    "an unknown device of `AUTO`",
    "`compile_model` without a device",
    "an input that has two keys, such as its position and its name",
    "`wait` with a time limit on a request that was never started",
    "`query_model`",
    "a float64 array for a float32 input",
    "an input that is left out of a list",
    "`MULTI:CPU(2)`",
    "a list that repeats an entry, or ends with a comma",
    "`PERFORMANCE_HINT` of `MULTI` by default",
    "a property that a list passes on to its devices",
    "a stream that was read or written to its end",
    "iterating over results",
    "results with `share_outputs=True`",
    "`dict(results)`",
    "a copy of results, by `copy.deepcopy` or `pickle`",
    "an `openvino.Tensor` as an input",
    "a context of the CPU",
    "an index out of range",
)
ONNXRUNTIME = (
    "an execution provider that is not installed",
    "an output whose shape differs from the declared one",
    "an input with a default",
    "results",
)


SAME_AS_OPENVINO = (
    "inputs by name, by position and by port",
    "inputs as a list, and one input alone",
    "numbers, lists and array-likes as inputs",
    "read-only arrays as inputs",
    "inputs that a call leaves as they are",
    "strings as inputs",
    "results by position and by port",
    "an unknown name or position of a result",
    "results that cannot be assigned to",
    "results of a model as inputs of the next",
    "other sizes in each call of a dynamic model",
    "inputs whose sizes differ, with one symbol",
    "a wrong shape, an unknown input",
    "a model from a stream",
    "a compiled model that outlives its `Core`",
    "one compiled model in several threads",
    "times of nodes",
    "an exported model in a stream",
    "strings as values of properties",
    "functions of `openvino.properties` as keys",
    "values of `openvino.properties`",
    "`PERFORMANCE_HINT=THROUGHPUT`",
    "a callback that raises",
    "the latency of an asynchronous request",
)
SAME_AS_ONNXRUNTIME = (
    "lists of numbers as inputs",
    "a missing or unknown input, a wrong type, a wrong size",
    "an `OrtValue` as input",
    "inputs whose sizes differ, with one symbol",
    "weights from memory",
    "a model from a path and from bytes",
    "strings as `str` and objects",
    "sequences and optional values",
    "arrays that are not contiguous",
    "results that are inputs or weights of the model",
    "one session in several threads",
    "metadata of a model",
    "sizes of symbols",
    "the optimization level",
    "config entries of a run",
    "stopping a run",
    "a choice of outputs",
    "a tensor as an array, by `np.asarray`",
    "an optional sequence as an input",
    "arrays without elements, and of booleans, through DLPack",
)
PAGES = (
    ("from-openvino.md", "Behaviors that differ", OPENVINO),
    ("from-onnxruntime.md", "Behaviors that differ", ONNXRUNTIME),
    ("from-openvino.md", "Behaviors that are the same", SAME_AS_OPENVINO),
    ("from-onnxruntime.md", "Behaviors that are the same", SAME_AS_ONNXRUNTIME),
)


@pytest.mark.parametrize(("page", "heading", "tested"), PAGES)
def test_every_row_is_tested(page: str, heading: str, tested: tuple[str, ...]) -> None:
    assert listed(page, heading) == list(tested)


@pytest.mark.parametrize("behavior", SAME_AS_OPENVINO)
def test_same_as_openvino(
    core: hetero.Core,
    relu: onnx.ModelProto,
    difference: onnx.ModelProto,
    same_symbol: onnx.ModelProto,
    behavior: str,
) -> None:
    """The code of a row runs with both libraries."""
    openvino = pytest.importorskip("openvino")
    other = openvino.Core()

    def both(model: onnx.ModelProto, config: Any = None) -> tuple[Any, Any]:
        theirs = other.compile_model(other.read_model(model.SerializeToString()), "CPU", config or {})
        return theirs, core.compile_model(model, "CPU", config)

    a, b = X, X + 1
    for compiled in both(difference if "input" in behavior else relu):
        is_mine = isinstance(compiled, hetero.CompiledModel)
        request = compiled.create_infer_request()
        match behavior:
            case "inputs by name, by position and by port":
                first, second = compiled.inputs
                for inputs in ({"a": a, "b": b}, {1: b, 0: a}, {first: a, second: b}, {"b": b, 0: a}):
                    np.testing.assert_array_equal(compiled(inputs)[0], a - b)
                    np.testing.assert_array_equal(request.infer(inputs)[0], a - b)
            case "inputs as a list, and one input alone":
                for inputs in ([a, b], (a, b)):
                    np.testing.assert_array_equal(compiled(inputs)[0], a - b)
                for single in both(relu):
                    for inputs in (X, [X], (X,)):
                        np.testing.assert_array_equal(single(inputs)[0], np.maximum(X, 0))
            case "numbers, lists and array-likes as inputs":
                negate = make_model([helper.make_node("Neg", ["x"], ["y"])], {"x": []})
                for single in both(negate):
                    for number in (2.0, 2, np.float32(2), np.array(2, np.float32)):
                        assert single(number)[0] == -2
                np.testing.assert_array_equal(compiled({"a": ArrayLike(), "b": b})[0], a - b)
                for single in both(relu):
                    for inputs in (ArrayLike(), [ArrayLike()], {0: ArrayLike()}):
                        np.testing.assert_array_equal(single(inputs)[0], np.maximum(X, 0))
            case "read-only arrays as inputs":
                for array in (a, b):
                    array.flags.writeable = False
                try:
                    np.testing.assert_array_equal(compiled({"a": a, "b": b})[0], a - b)
                finally:
                    a.flags.writeable = True
            case "inputs that a call leaves as they are":
                for inputs in ({0: a, "b": b}, [a, b], (a, b)):
                    before = copy.deepcopy(inputs)
                    compiled(inputs)
                    np.testing.assert_equal(inputs, before)
            case "strings as inputs":
                words = np.array([["a", "é"], ["", "long text"]])
                np.testing.assert_array_equal(both(strings())[is_mine](words)[0], words.T)
            case "an unknown name or position of a result":
                for key in ("q", 7):
                    with pytest.raises(KeyError):
                        both(relu)[is_mine](X)[key]
            case "results that cannot be assigned to":
                with pytest.raises(TypeError):
                    both(relu)[is_mine](X)["y"] = X  # type: ignore[index]
            case "one compiled model in several threads":
                shared = both(relu)[is_mine]

                def run(array: np.ndarray, run: Any) -> Any:
                    return run(array)[0]

                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    arrays = [X * number for number in range(32)]
                    runs = [shared if is_mine else shared.create_infer_request().infer for _ in arrays]
                    for array, result in zip(arrays, pool.map(run, arrays, runs), strict=True):
                        np.testing.assert_array_equal(result, np.maximum(array, 0))
            case "times of nodes":
                request = both(relu, {"PERF_COUNT": "YES"})[is_mine].create_infer_request()
                request.infer(X)
                if is_mine:
                    (row,) = request.profiling_info
                    assert (row.node, row.status, row.real_us > 0) == ("y", "EXECUTED", True)
                else:
                    rows = {row.node_name: row for row in request.get_profiling_info()}
                    assert "EXECUTED" in str(rows["y"].status)
                    assert rows["y"].real_time.total_seconds() > 0
            case "results by position and by port":
                results = compiled(X)
                np.testing.assert_array_equal(results[0], results[compiled.outputs[0]])
                np.testing.assert_array_equal(results["y"], results[0])
            case "results of a model as inputs of the next":
                inner = make_model([helper.make_node("Neg", ["y"], ["z"])], {"y": [2, 3]}, ["z"])
                following = both(inner)[is_mine]
                np.testing.assert_array_equal(following(compiled({"a": a, "b": b}))[0], b - a)
            case "other sizes in each call of a dynamic model":
                dynamic = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", "m"]})
                varying = both(dynamic)[is_mine]
                for shape in ((1, 28), (3, 5), (0, 2), (1, 28)):
                    assert varying(np.ones(shape, np.float32))[0].shape == shape
            case "inputs whose sizes differ, with one symbol":
                conflicting = both(same_symbol)[is_mine]
                with pytest.warns(RuntimeWarning) if is_mine else contextlib.nullcontext():
                    assert conflicting(SIZES)[0].tolist() == [2, 3, 5, 3]
            case "a wrong shape, an unknown input":
                error = hetero.InferenceError if is_mine else RuntimeError
                single = both(relu)[is_mine].create_infer_request()
                for wrong in ({"x": X[:1]}, {"q": X}):
                    with pytest.raises(error):
                        single.infer(wrong)
            case "a model from a stream":
                data = io.BytesIO(relu.SerializeToString())
                read = core.read_model(data) if is_mine else other.read_model(data)
                again = core.compile_model(read, "CPU") if is_mine else other.compile_model(read, "CPU")
                np.testing.assert_array_equal(again(X)[0], np.maximum(X, 0))
            case "a compiled model that outlives its `Core`":
                made = hetero.Core() if is_mine else openvino.Core()
                read = made.read_model(relu.SerializeToString())
                kept = made.compile_model(read, "CPU")
                del made, read
                np.testing.assert_array_equal(kept(X)[0], np.maximum(X, 0))
            case "an exported model in a stream":
                stream = io.BytesIO()
                compiled.export_model(stream)
                stream.seek(0)
                imported = core.import_model(stream, "CPU") if is_mine else other.import_model(stream, "CPU")
                np.testing.assert_array_equal(imported(X)[0], np.maximum(X, 0))
            case "strings as values of properties":
                assert both(relu, {"NUM_STREAMS": "2"})[is_mine].get_property("NUM_STREAMS") == 2
                assert both(relu, {"PERF_COUNT": "YES"})[is_mine].get_property("PERF_COUNT")
            case "functions of `openvino.properties` as keys":
                import openvino.properties as props

                assert both(relu, {props.enable_profiling: True})[is_mine].get_property(props.enable_profiling)
                mine, listed = core if is_mine else other, dict([props.device.priorities("CPU")])
                compiled = mine.compile_model(mine.read_model(relu.SerializeToString()), "HETERO", listed)
                np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
            case "values of `openvino.properties`":
                import openvino.properties.hint as hints
                from openvino.properties import log, streams

                policy = hints.ModelDistributionPolicy.PIPELINE_PARALLEL
                config = dict(
                    [
                        *(hints.inference_precision(openvino.Type.f32), log.level(log.Level.ERR)),
                        *(hints.performance_mode(hints.PerformanceMode.THROUGHPUT), streams.num(streams.Num(2))),
                    ]
                )
                assert both(relu, config)[is_mine].get_property("NUM_STREAMS") == 2
                mine, listed = core if is_mine else other, {**config, hints.model_distribution_policy: {policy}}
                listed["MULTI_DEVICE_PRIORITIES"] = "CPU"
                compiled = mine.compile_model(mine.read_model(relu.SerializeToString()), "HETERO", listed)
                np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
            case "`PERFORMANCE_HINT=THROUGHPUT`":
                name = "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
                hint = {"PERFORMANCE_HINT": "THROUGHPUT"}
                few = both(relu, {**hint, "PERFORMANCE_HINT_NUM_REQUESTS": 1})[is_mine]
                assert few.get_property(name) == 1
                assert both(relu, {**hint, "INFERENCE_NUM_THREADS": 1})[is_mine].get_property(name) == 1
            case "a callback that raises":

                def fail(*_: Any) -> None:
                    raise ValueError("mine")

                request.set_callback(*((fail,) if is_mine else (fail, None)))
                request.start_async(X)
                with pytest.raises(Exception, match="mine"):
                    request.wait()
            case "the latency of an asynchronous request":
                request.start_async(X)
                request.wait()
                assert (request.latency_ms if is_mine else request.latency) > 0


@pytest.mark.parametrize("behavior", SAME_AS_ONNXRUNTIME)
def test_same_as_onnxruntime(
    core: hetero.Core,
    relu: onnx.ModelProto,
    difference: onnx.ModelProto,
    same_symbol: onnx.ModelProto,
    tmp_path: Path,
    behavior: str,
) -> None:
    ort = pytest.importorskip("onnxruntime")
    expected = np.maximum(X, 0)

    def session(model: onnx.ModelProto, options: Any = None) -> Any:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    match behavior:
        case "lists of numbers as inputs":
            np.testing.assert_array_equal(session(relu).run(None, {"x": X.tolist()})[0], expected)
            np.testing.assert_array_equal(core.compile_model(relu, "ORT")({"x": X.tolist()})[0], expected)
        case "a missing or unknown input, a wrong type, a wrong size":
            theirs, mine = session(difference), core.compile_model(difference, "ORT")
            wide, long = X.astype(np.float64), np.ones((2, 4), np.float32)
            for feeds in ({"a": X}, {"a": X, "b": X, "q": X}, {"a": wide, "b": X}, {"a": long, "b": X}):
                with pytest.raises(Exception):  # noqa: B017 - of several kinds
                    theirs.run(None, feeds)
                with pytest.raises(hetero.InferenceError):
                    mine(feeds)
        case "an `OrtValue` as input":
            value = ort.OrtValue.ortvalue_from_numpy(X)
            np.testing.assert_array_equal(session(relu).run_with_ort_values(None, {"x": value})[0].numpy(), expected)
            np.testing.assert_array_equal(core.compile_model(relu, "ORT")({"x": value})[0], expected)
        case "inputs whose sizes differ, with one symbol":
            assert session(same_symbol).run(None, SIZES)[0].tolist() == [2, 3, 5, 3]
            for device in ("CPU", "ORT", "TEMPLATE"):
                with pytest.warns(RuntimeWarning, match="inputs 'a' and 'b' have different sizes"):
                    assert core.compile_model(same_symbol, device)(SIZES)[0].tolist() == [2, 3, 5, 3]
        case "weights from memory":
            tensor = onnx.TensorProto(name="w", data_type=1, dims=[3], data_location=onnx.TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value="w.bin")
            model = make_model([helper.make_node("Mul", ["x", "w"], ["y"])])
            model.graph.initializer.append(tensor)
            weights = np.float32([1, 2, 3])
            options = ort.SessionOptions()
            data = weights.tobytes()  # onnxruntime does not keep it alive
            options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
            np.testing.assert_array_equal(session(model, options).run(None, {"x": X})[0], X * weights)
            read = core.read_model(model, external_data={"w.bin": data})
            np.testing.assert_array_equal(core.compile_model(read, "ORT")(X)[0], X * weights)
        case "a model from a path and from bytes":
            path = tmp_path / "relu.onnx"
            onnx.save(relu, path)
            for source in (path, str(path), path.read_bytes()):
                assert ort.InferenceSession(source).run(None, {"x": X})[0].tolist() == expected.tolist()
                assert core.compile_model(source, "ORT")(X)[0].tolist() == expected.tolist()
        case "strings as `str` and objects":
            words = np.array([["a", "é"], ["", "long text"]])
            for given in (words, words.astype(object), words.tolist()):
                np.testing.assert_array_equal(session(strings()).run(None, {"x": given})[0], words.T)
                for device in ("CPU", "ORT"):
                    np.testing.assert_array_equal(core.compile_model(strings(), device)(given)[0], words.T)
        case "sequences and optional values":
            length = holding(
                helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)), "SequenceLength", 7
            )
            has = holding(
                helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2, 3])), "OptionalHasElement", 9
            )
            for model, values in ((length, {2: [X, X[:1]], 0: []}), (has, {True: X, False: None})):
                for result, value in values.items():
                    assert session(model).run(None, {"x": value})[0] == result
                    for device in ("CPU", "ORT"):
                        assert core.compile_model(model, device)({"x": value})[0] == result
        case "arrays that are not contiguous":
            for given in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X[::-1, ::-1]):
                assert not given.flags.c_contiguous
                for results in (session(relu).run(None, {"x": given}), core.compile_model(relu, "ORT")(given)):
                    np.testing.assert_array_equal(results[0], np.maximum(given, 0))
        case "results that are inputs or weights of the model":
            model = make_model([helper.make_node("Neg", ["x"], ["y"])], outputs=["y", "x", "w"], weights={"w": X})
            theirs, mine = session(model), core.compile_model(model, "CPU")
            for run in (lambda: theirs.run(None, {"x": X}), lambda: list(mine(X))):
                for result in run()[1:]:
                    assert not np.shares_memory(result, X)
                    result += 1
                np.testing.assert_array_equal(run()[2], X)
        case "one session in several threads":
            theirs, mine = session(relu), core.compile_model(relu, "ORT")
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                arrays = [X * number for number in range(32)]
                for run in (lambda array: theirs.run(None, {"x": array}), mine):
                    for array, results in zip(arrays, pool.map(run, arrays), strict=True):
                        np.testing.assert_array_equal(results[0], np.maximum(array, 0))
        case "metadata of a model":
            relu.producer_name, relu.domain, relu.doc_string, relu.model_version = "maker", "d.e", "text", 3
            relu.metadata_props.add(key="k", value="v")
            theirs, mine = session(relu).get_modelmeta(), core.read_model(relu)
            assert theirs.custom_metadata_map == mine.metadata == {"k": "v"}
            assert (theirs.producer_name, theirs.domain, theirs.description, theirs.version, theirs.graph_name) == (
                *(mine.producer_name, mine.domain, mine.doc_string, mine.model_version, mine.name),
            )
        case "sizes of symbols":
            options = ort.SessionOptions()
            options.add_free_dimension_override_by_name("n", 2)
            assert [port.shape for port in session(difference, options).get_inputs()] == [[2, 3], [2, 3]]
            compiled = core.compile_model(difference, "ORT", shapes={"n": 2})
            assert [port.shape for port in compiled.inputs] == [(2, 3), (2, 3)]
        case "the optimization level":
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
            config = {"ORT_SESSION_OPTIONS": {"graph_optimization_level": "ORT_ENABLE_BASIC"}}
            same = {"ORT_SESSION_OPTIONS": {"graph_optimization_level": options.graph_optimization_level}}
            assert core.compile_model(relu, "ORT", same).get_property("ORT_SESSION_OPTIONS") == {
                "graph_optimization_level": "ORT_ENABLE_BASIC"
            }
            for results in (session(relu, options).run(None, {"x": X}), core.compile_model(relu, "ORT", config)(X)):
                np.testing.assert_array_equal(results[0], expected)
        case "config entries of a run":
            key, wrong = "memory.enable_memory_arena_shrinkage", "no device"
            options = ort.RunOptions()
            options.add_run_config_entry(key, wrong)
            with pytest.raises(Exception, match=wrong):
                session(relu).run(None, {"x": X}, options)
            with pytest.raises(hetero.InferenceError, match=wrong):
                core.compile_model(relu, "ORT", {"ORT_RUN_CONFIG": {key: wrong}})(X)
        case "stopping a run":
            options = ort.RunOptions()
            options.terminate = True
            with pytest.raises(Exception, match="terminate"):
                session(relu).run(None, {"x": X}, options)
            body = helper.make_graph(
                [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["v"], ["w"])],
                "body",
                [helper.make_tensor_value_info(*port) for port in (("i", 7, []), ("go", 9, []), ("v", 1, [2, 3]))],
                [helper.make_tensor_value_info(*port) for port in (("on", 9, []), ("w", 1, [2, 3]))],
            )
            endless = make_model(
                [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)],
                weights={"trips": np.array(2**60)},
            )
            request = core.compile_model(endless, "ORT").create_infer_request()
            request.start_async(X)
            assert not request.wait(timeout_ms=50)
            request.cancel()
            with pytest.raises(hetero.Cancelled):
                request.wait()
        case "a choice of outputs":
            nodes = [helper.make_node("Neg", ["x"], ["first"]), helper.make_node("Relu", ["x"], ["second"])]
            model = make_model(nodes, outputs=["first", "second"])
            (theirs,) = session(model).run(["second"], {"x": X})
            mine = core.compile_model(core.read_model(model).with_outputs(["second"], keep=False), "ORT")(X)
            np.testing.assert_array_equal(theirs, mine["second"])
            assert list(mine.keys()) == ["second"]
        case "a tensor as an array, by `np.asarray`":
            mine = core.get_default_context("ORT").create_tensor(np.float32, (2, 3))
            mine.write(X)
            for tensor in (ort.OrtValue.ortvalue_from_numpy(X), mine):
                np.testing.assert_array_equal(np.asarray(tensor), X)
                assert np.shares_memory(np.asarray(tensor), tensor.numpy())
                assert np.asarray(tensor, np.float64).dtype == np.float64
        case "an optional sequence as an input":
            sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [3]))
            ports = [helper.make_value_info(name, helper.make_optional_type_proto(sequence)) for name in "xy"]
            graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "graph", ports[:1], ports[1:])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
            value = [X[0], X[1]]
            for results in (
                session(model).run(None, {"x": value}),
                *(core.compile_model(model, device)({"x": value}) for device in ("CPU", "ORT")),
            ):
                np.testing.assert_array_equal(results[0], value)
        case "arrays without elements, and of booleans, through DLPack":
            ports = [helper.make_tensor_value_info(name, TensorProto.BOOL, ["n", 3]) for name in "xy"]
            graph = helper.make_graph([helper.make_node("Not", ["x"], ["y"])], "graph", ports[:1], ports[1:])
            invert = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            for array in (np.zeros((0, 3), bool), np.eye(3, dtype=bool)):
                theirs = session(invert).run_with_ort_values(None, {"x": ort.OrtValue.from_dlpack(array)})[0].numpy()
                np.testing.assert_array_equal(theirs, ~array)
                for device in ("ORT", "CPU"):
                    np.testing.assert_array_equal(core.compile_model(invert, device)(Dlpack(array))[0], ~array)


@pytest.mark.parametrize("behavior", ONNXRUNTIME)
def test_onnxruntime(core: hetero.Core, relu: onnx.ModelProto, behavior: str) -> None:
    ort = pytest.importorskip("onnxruntime")

    def session(model: onnx.ModelProto, provider: str = "CPUExecutionProvider") -> Any:
        return ort.InferenceSession(model.SerializeToString(), providers=[provider])

    match behavior:
        case "an execution provider that is not installed":
            if "ROCMExecutionProvider" in ort.get_available_providers():
                pytest.skip("this onnxruntime has ROCm")
            with pytest.warns(UserWarning, match="not in available provider names"):
                assert session(relu, "ROCMExecutionProvider").get_providers() == ["CPUExecutionProvider"]
            with pytest.raises(hetero.DeviceUnavailable, match="there is no device ORT.ROCM"):
                core.compile_model(relu, "ORT.ROCM")
        case "an output whose shape differs from the declared one":
            relu.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [7, 7]))
            assert session(relu).run(None, {"x": X})[0].shape == (2, 3)
            for device in ("CPU", "ORT"):
                with pytest.warns(RuntimeWarning, match="output 'y' is declared"):
                    assert core.compile_model(relu, device)(X)["y"].shape == (2, 3)
        case "an input with a default":
            model = make_model([helper.make_node("Mul", ["x", "w"], ["y"])], weights={"w": np.float32(2)})
            model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, []))
            given = {"x": X, "w": np.array(3, np.float32)}
            np.testing.assert_array_equal(session(model).run(None, given)[0], X * 3)
            for device in ("CPU", "ORT"):
                with pytest.raises(hetero.InferenceError, match="the model has no input 'w'"):
                    core.compile_model(model, device)(given)
                compiled = core.compile_model(core.read_model(model).with_inputs(["w"]), device)
                np.testing.assert_array_equal(compiled(given)[0], X * 3)
                np.testing.assert_array_equal(compiled({"x": X})[0], X * 2)
        case "results":
            assert isinstance(session(relu).run(None, {"x": X}), list)
            outputs = core.compile_model(relu, "ORT")({"x": X})
            assert list(outputs.keys()) == ["y"]
            assert outputs["y"] is outputs[0]


@pytest.mark.parametrize("behavior", OPENVINO)
def test_openvino(
    core: hetero.Core,
    relu: onnx.ModelProto,
    out_of_range: onnx.ModelProto,
    difference: onnx.ModelProto,
    behavior: str,
) -> None:
    openvino = pytest.importorskip("openvino")
    other = openvino.Core()

    def compiled(model: onnx.ModelProto, device: str = "CPU", config: Any = None) -> Any:
        return other.compile_model(other.read_model(model.SerializeToString()), device, config or {})

    if behavior in ("an unavailable device of `HETERO`", "an unknown device of `AUTO`") and "GPU" in str(
        other.available_devices
    ):
        pytest.skip("this machine has a GPU for OpenVINO")
    match behavior:
        case "an unknown property of a list":
            compiled(relu, "HETERO:CPU", {"NO_SUCH": 1})
            with pytest.raises(hetero.PropertyError, match="no property 'NO_SUCH'"):
                core.compile_model(relu, "HETERO:CPU", {"NO_SUCH": 1})
        case "an unavailable device of `HETERO`":
            with pytest.raises(RuntimeError):
                compiled(relu, "HETERO:GPU,CPU")
            with pytest.warns(RuntimeWarning, match="skipping OPENVINO.GPU"):
                core.compile_model(relu, "HETERO:OPENVINO.GPU,CPU")
        case "an unknown device of `AUTO`":
            assert compiled(relu, "AUTO:NOPE,CPU").get_property("EXECUTION_DEVICES") == ["CPU"]
            with pytest.raises(hetero.UnknownDevice, match="unknown device 'NOPE'"):
                core.compile_model(relu, "AUTO:NOPE,CPU")
        case "`compile_model` without a device":
            theirs = other.compile_model(other.read_model(relu.SerializeToString()))
            assert "MULTI_DEVICE_PRIORITIES" in theirs.get_property("SUPPORTED_PROPERTIES")  # only AUTO has it
            assert core.compile_model(relu).get_property("EXECUTION_DEVICES") == ("CPU",)
        case "an input that has two keys, such as its position and its name":
            np.testing.assert_array_equal(compiled(relu)({0: X - 9, "x": X})[0], np.maximum(X, 0))
            with pytest.raises(hetero.InferenceError, match="input 'x' has two values"):
                core.compile_model(relu, "CPU")({0: X - 9, "x": X})
        case "`wait` with a time limit on a request that was never started":
            assert not compiled(relu).create_infer_request().wait_for(0)
            assert core.compile_model(relu, "CPU").create_infer_request().wait(timeout_ms=0)
        case "`query_model`":
            supported = other.query_model(other.read_model(relu.SerializeToString()), "HETERO:CPU")
            assert supported.keys() > {"x", "y"}
            assert core.query_model(relu, "HETERO:CPU") == {"y": "CPU"}
        case "a float64 array for a float32 input":
            assert compiled(relu)({"x": X.astype(np.float64)})[0].dtype == np.float32
            with pytest.raises(hetero.InferenceError, match="expected float32 .*, found dtype float64"):
                core.compile_model(relu, "CPU")({"x": X.astype(np.float64)})
        case "an input that is left out of a list":
            fixed = make_model([helper.make_node("Sub", ["a", "b"], ["y"])], {"a": [2, 3], "b": [2, 3]})
            request = compiled(fixed).create_infer_request()
            request.infer([X, X])
            np.testing.assert_array_equal(request.infer([X + 1])[0], np.ones((2, 3)))
            with pytest.raises(hetero.InferenceError, match="input 'b' is missing"):
                core.compile_model(difference, "CPU")([X])
        case "`MULTI:CPU(2)`":
            compiled(relu, "MULTI:CPU(2)")
            with pytest.raises(hetero.PropertyError, match=r"DEVICE_PROPERTIES={'CPU': {'NUM_STREAMS': 2}}"):
                core.compile_model(relu, "MULTI:CPU(2)")
        case "a list that repeats an entry, or ends with a comma":
            for devices in ("MULTI:CPU,CPU", "AUTO:CPU,CPU", "MULTI:CPU,", "AUTO:CPU,"):
                compiled(relu, devices)
                with pytest.raises(hetero.PropertyError, match="listed twice|remove the spare comma"):
                    core.compile_model(relu, devices)
        case "`PERFORMANCE_HINT` of `MULTI` by default":
            assert "THROUGHPUT" in str(compiled(relu, "MULTI:CPU").get_property("PERFORMANCE_HINT"))
            assert core.compile_model(relu, "MULTI:CPU").get_property("PERFORMANCE_HINT") == "LATENCY"
        case "a property that a list passes on to its devices":
            with pytest.raises(RuntimeError, match="Property was not found"):
                compiled(relu, "HETERO:CPU", {"INFERENCE_NUM_THREADS": 1}).get_property("INFERENCE_NUM_THREADS")
            mine = core.compile_model(relu, "HETERO:CPU", {"INFERENCE_NUM_THREADS": 1})
            assert mine.get_property("INFERENCE_NUM_THREADS") == 1
        case "a stream that was read or written to its end":
            stream = io.BytesIO()
            compiled(relu).export_model(stream)
            other.import_model(stream, "CPU")
            stream = io.BytesIO()
            core.compile_model(relu, "CPU").export_model(stream)
            with pytest.raises(hetero.Corrupt, match=r"call seek\(0\)"):
                core.import_model(stream, "CPU")
        case "iterating over results":
            assert not any(isinstance(key, np.ndarray) for key in compiled(relu)([X]))
            assert all(isinstance(value, np.ndarray) for value in core.compile_model(relu, "CPU")(X))
        case "results with `share_outputs=True`":
            request = compiled(relu).create_infer_request()
            first = request.infer([X], share_outputs=True)[0]
            request.infer([X + 100], share_outputs=True)
            assert not np.array_equal(first, np.maximum(X, 0))
            for device in ("CPU", "OPENVINO"):
                mine = core.compile_model(relu, device).create_infer_request()
                kept = mine.infer(X)[0]
                mine.infer(X + 100)
                np.testing.assert_array_equal(kept, np.maximum(X, 0))
        case "`dict(results)`":
            theirs, mine = compiled(relu), core.compile_model(relu, "CPU")
            assert list(dict(theirs(X))) == theirs.outputs
            assert list(dict(mine(X))) == ["y"]
        case "a copy of results, by `copy.deepcopy` or `pickle`":
            for copied in (copy.deepcopy, lambda results: pickle.loads(pickle.dumps(results))):
                with pytest.raises(TypeError):
                    copied(compiled(relu)(X))
                np.testing.assert_array_equal(copied(core.compile_model(relu, "CPU")(X))["y"], np.maximum(X, 0))
        case "an `openvino.Tensor` as an input":
            tensor = openvino.Tensor(X)
            np.testing.assert_array_equal(compiled(relu)({0: tensor})[0], np.maximum(X, 0))
            mine = core.compile_model(relu, "CPU")
            with pytest.raises(hetero.InferenceError, match="found Tensor; pass its array, .data"):
                mine({0: tensor})
            np.testing.assert_array_equal(mine({0: tensor.data})[0], np.maximum(X, 0))
        case "a context of the CPU":
            with pytest.raises(RuntimeError):
                other.get_default_context("CPU")
            tensor = core.get_default_context("CPU").create_tensor(np.float32, (2, 3))
            tensor.write(X)
            np.testing.assert_array_equal(core.compile_model(relu, "CPU")(tensor)[0], np.maximum(X, 0))
        case "an index out of range":
            assert not compiled(out_of_range)([X])[0].any()
            with pytest.raises(hetero.InferenceError, match="is out of bounds for axis"):
                core.compile_model(out_of_range, "CPU")(X)
