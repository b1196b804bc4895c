"""For a wrong argument, every public function raises an error of hetero or `TypeError`, and no other exception."""

from __future__ import annotations

import enum
import io
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from hetero.base.properties import MAX_THREADS, MOST, PROPERTIES
from hetero.compiling.splitting import read_manifest
from hetero.errors import shown
from hetero.report.dot import write_affinity_dot
from hetero.report.html import write_report
from hetero.report.trace import write_trace


class Odd:
    """An object without any expected method, not even a repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


VALUES: dict[str, Any] = {
    "None": None,
    "true": True,
    "negative": -1,
    "number": 7,
    "huge": 10**5000,
    "minus huge": -(10**5000),
    "nan": float("nan"),
    "inf": float("inf"),
    "empty": "",
    "text": "no such thing",
    "NUL": "a\0b",
    "surrogate": "a\ud800b",
    "long": "x" * 5000,
    "path": pathlib.Path("no such folder") / "file",
    "NUL path": pathlib.Path("a\0b"),
    "bytes": b"no model",
    "NUL bytes": b"\0\0",
    "no bytes": b"",
    "list": [1, "x"],
    "no list": [],
    "mapping": {1: 2},
    "names": {"x": None},
    "nested": {"CPU": 1},
    "tuple": (1, 2),
    "set": {1},
    "array": np.zeros(3),
    "type": int,
    "odd": Odd(),
    "odd key": {("a", 1): Odd()},
    "function": print,
    "stream": io.BytesIO(b"nothing"),
}


def network() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Relu", ["a"], ["y"], "relu")]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "small", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CORE = hetero.Core()
MODEL = CORE.read_model(network())
PLAN = CORE.plan(MODEL, "HETERO:CPU,TEMPLATE", pins={"relu": "TEMPLATE"})
COMPILED = CORE.compile_model(MODEL, "CPU")
COSTS = hetero.Costs("small", "", [], [])
GRAPH = hetero.Graph.from_edges([0, 1], [1, 2], 3)

LISTED = "HETERO:CPU,TEMPLATE"
# ruff: noqa: PLW0108 - calls of the same form
CALLS: dict[str, Callable[[Any], Any]] = {
    "read_model": lambda value: CORE.read_model(value),
    "read_model, folder": lambda value: CORE.read_model(network(), folder=value),
    "query_model, model": lambda value: CORE.query_model(value, "CPU"),
    "query_model, device": lambda value: CORE.query_model(MODEL, value),
    "query_model, config": lambda value: CORE.query_model(MODEL, LISTED, value),
    "read_model, external_data": lambda value: CORE.read_model(network(), external_data=value),
    "plan, model": lambda value: CORE.plan(value, LISTED),
    "plan, device": lambda value: CORE.plan(MODEL, value),
    "plan, config": lambda value: CORE.plan(MODEL, LISTED, value),
    "plan, pins": lambda value: CORE.plan(MODEL, LISTED, pins=value),
    "plan, a pin": lambda value: CORE.plan(MODEL, LISTED, pins={"relu": value}),
    "plan, a pin's key": lambda value: CORE.plan(MODEL, LISTED, pins={value: "CPU"}),
    "plan, max_memory": lambda value: CORE.plan(MODEL, LISTED, max_memory=value),
    "plan, a size": lambda value: CORE.plan(MODEL, LISTED, max_memory={"CPU": value}),
    "plan, shapes": lambda value: CORE.plan(MODEL, LISTED, shapes=value),
    "plan, a shape": lambda value: CORE.plan(MODEL, LISTED, shapes={"x": value}),
    "plan, a dim": lambda value: CORE.plan(MODEL, LISTED, shapes={"x": (value, 4)}),
    "compile_model, model": lambda value: CORE.compile_model(value, "CPU"),
    "compile_model, device": lambda value: CORE.compile_model(MODEL, value),
    "compile_model, config": lambda value: CORE.compile_model(MODEL, "CPU", value),
    "compile_model, pins": lambda value: CORE.compile_model(MODEL, LISTED, pins=value),
    "compile_model, max_memory": lambda value: CORE.compile_model(MODEL, "CPU", max_memory=value),
    "compile_model, shapes": lambda value: CORE.compile_model(MODEL, "CPU", shapes=value),
    "compile_model, context": lambda value: CORE.compile_model(MODEL, "CPU", context=value),
    "compile_model, context of a list": lambda value: CORE.compile_model(MODEL, LISTED, context=value),
    "import_model": lambda value: CORE.import_model(value),
    "import_model, device": lambda value: CORE.import_model(b"PK", value),
    "import_model, config": lambda value: CORE.import_model(b"PK", "CPU", value),
    "get_property, device": lambda value: CORE.get_property(value, "NUM_STREAMS"),
    "get_property, name": lambda value: CORE.get_property("CPU", value),
    "set_property, device": lambda value: CORE.set_property(value, {}),
    "set_property": lambda value: CORE.set_property("CPU", value),
    "register_plugin, name": lambda value: hetero.Core().register_plugin(value, "a:b"),
    "register_plugin": lambda value: hetero.Core().register_plugin("NEW", value),
    "create_context, device": lambda value: CORE.create_context(value),
    "create_context": lambda value: CORE.create_context(LISTED, value),
    "get_default_context": lambda value: CORE.get_default_context(value),
    "add_extension": lambda value: hetero.Core().add_extension(value),
    "add_extension, device": lambda value: hetero.Core().add_extension(hetero.CustomOp("a", "B", print), value),
    "compile": lambda value: hetero.compile(value),
    "load": lambda value: hetero.load(value),
    "split, model": lambda value: hetero.split(value, PLAN, "never made/parts"),
    "split, plan": lambda value: hetero.split(MODEL, value, "never made/parts"),
    "split, folder": lambda value: hetero.split(MODEL, PLAN, value),
    "split, external_above": lambda value: hetero.split(MODEL, PLAN, "never made/parts", external_above=value),
    "read_manifest": lambda value: read_manifest(value),
    "Plan.load": lambda value: hetero.Plan.load(value),
    "Plan.save": lambda value: PLAN.save(value),
    "Plan.explain": lambda value: PLAN.explain(value),
    "Plan.what_if": lambda value: PLAN.what_if(pins=value),
    "Plan.what_if, supports": lambda value: PLAN.what_if(device_supports=value),
    "Plan.what_if, without": lambda value: PLAN.what_if(without_pins=value),
    "Plan.missing_ops": lambda value: PLAN.missing_ops(value),
    "Costs.load": lambda value: hetero.Costs.load(value),
    "Costs.save": lambda value: COSTS.save(value),
    "Model.save": lambda value: MODEL.save(value),
    "Model.with_types": lambda value: MODEL.with_types(value),
    "Model.with_types, a type": lambda value: MODEL.with_types({"x": value}),
    "Model.with_affinity": lambda value: MODEL.with_affinity(value),
    "export_model": lambda value: COMPILED.export_model(value),
    "CompiledModel.get_property": lambda value: COMPILED.get_property(value),
    "write_report": lambda value: write_report(PLAN, value),
    "write_trace": lambda value: write_trace([], value),
    "write_affinity_dot": lambda value: write_affinity_dot(PLAN, value),
    "partition_graph, device": lambda value: hetero.partition_graph(GRAPH, value),
    "partition_graph, policy": lambda value: hetero.partition_graph(GRAPH, [0, 0, 0], value),
    "partition_graph, weights": lambda value: hetero.partition_graph(GRAPH, [0, 0, 0], edge_weight=value),
    "partition_graph, max_nodes": lambda value: hetero.partition_graph(GRAPH, [0, 0, 0], max_nodes=value),
    "partition_graph, min_nodes": lambda value: hetero.partition_graph(
        GRAPH, [0, 0, 0], min_nodes=value, allowed=np.ones((3, 2), bool)
    ),
    "check_partition": lambda value: hetero.check_partition(GRAPH, [0, 0, 0], value),
    "Graph.from_edges": lambda value: hetero.Graph.from_edges(value, [1], 3),
    "Graph.from_edges, nodes": lambda value: hetero.Graph.from_edges([0], [1], value),
}
FREE = ("CACHE_DIR", "HETERO_DUMP_GRAPH_DOT", "DEVICE_PROPERTIES", "COSTS", "MAX_MEMORY", "CACHE_ENCRYPTION_CALLBACKS")
INTEGERS = {
    "NUM_STREAMS": MAX_THREADS,
    "INFERENCE_NUM_THREADS": MAX_THREADS,
    "PERFORMANCE_HINT_NUM_REQUESTS": MOST,
    "PLUGIN_TIMEOUT_MS": MOST,
    "WORKER_TIMEOUT_MS": MOST,
    "WORKER_RETRIES": MOST,
    "QUEUE_LIMIT": MOST,
}
OTHERS = (
    "LOG_LEVEL",
    "PERF_COUNT",
    "PERFORMANCE_HINT",
    "INFERENCE_PRECISION_HINT",
    "ISOLATION",
    "STRICT",
    "DEVICE_ID",
    "PARTITION_POLICY",
    "ASSIGNMENT",
    "MODEL_DISTRIBUTION_POLICY",
    "MULTI_DEVICE_PRIORITIES",
    "NO_SUCH",
)
for name in (*FREE, *INTEGERS, *OTHERS):
    CALLS[f"{name}, planned"] = lambda value, name=name: CORE.plan(MODEL, LISTED, {name: value})
    CALLS[f"{name}, compiled"] = lambda value, name=name: CORE.compile_model(MODEL, LISTED, {name: value})
    CALLS[f"{name}, on one device"] = lambda value, name=name: CORE.compile_model(MODEL, "CPU", {name: value})
    CALLS[f"{name}, for one device"] = lambda value, name=name: CORE.compile_model(
        MODEL, LISTED, {"DEVICE_PROPERTIES": {"CPU": {name: value}}}
    )
    CALLS[f"{name}, set"] = lambda value, name=name: hetero.Core().set_property("HETERO", {name: value})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files go to a folder of the test."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("call", CALLS)
def test_wrong_arguments(call: str) -> None:
    troubles = []
    for name, value in VALUES.items():
        if isinstance(value, io.BytesIO):
            value.seek(0)
        accepted = (hetero.HeteroError, TypeError)
        try:
            CALLS[call](value)
        except accepted as error:
            if not str(error) or "NoneType' object has no" in str(error):
                troubles.append(f"{name}: {type(error).__name__} says nothing: {str(error)!r}")
        except OSError as error:
            if call != "Model.save":  # as documented
                troubles.append(f"{name}: {type(error).__name__}: {error}")
        except Exception as error:
            troubles.append(f"{name}: {type(error).__name__}: {error}")
    assert not troubles, "\n".join(troubles)


class Name(enum.StrEnum):
    WRONG = "no such thing"


NOT_PLAIN: tuple[Any, ...] = (
    np.str_("no such thing"),
    np.str_("relux"),
    np.int64(-3),
    np.float32(1.5),
    np.float64("nan"),
    np.bool_(True),
    np.bytes_(b"x"),
    np.datetime64("2020-01-01"),
    np.dtype("float32"),
    pathlib.Path("no such folder/file"),
    Name.WRONG,
    [np.int64(3), np.str_("a")],
    (np.float32(2), pathlib.Path("q")),
    {np.str_("u")},
    {np.str_("zz"): np.int64(3)},
    {pathlib.Path("a"): pathlib.Path("b")},
    {"CPU": np.str_("x")},
    {"CPU": {np.str_("NO"): Name.WRONG}},
)


@pytest.mark.parametrize("call", CALLS)
def test_messages_show_numpy_scalars_paths_and_enums_as_plain_values(call: str) -> None:
    troubles = []
    for value in NOT_PLAIN:
        try:
            CALLS[call](value)
        except Exception as error:
            if not isinstance(error, OSError) and re.search(r"\b(np\.\w+|PosixPath|dtype)\(|<Name", str(error)):
                troubles.append(f"{value!r}: {error}")
    assert not troubles, "\n".join(troubles)


def test_shown() -> None:
    class Path:
        def __fspath__(self) -> str:
            return "a"

    nested: list[Any] = [np.int8(1)]
    nested.append(nested)
    for value, expected in (
        (np.str_("it's"), '"it\'s"'),
        (np.float32(0.1), "0.1"),
        (np.True_, "True"),
        (np.complex64(1j), "1j"),
        ((np.uint8(2),), "(2,)"),
        ({}, "{}"),
        (set(), "set()"),
        (Path(), "'a'"),
        (np.zeros(2), "array([0., 0.])"),
        (10**5000, "an integer of 16610 bits"),
        (Odd(), "a Odd whose repr raises RuntimeError"),
        ([1, {"a": (Name.WRONG,)}], "[1, {'a': ('no such thing',)}]"),
    ):
        assert shown(value) == expected
    assert shown(nested).startswith("[1, [1, ")


@pytest.mark.parametrize(
    "text", [np.str_, lambda text: enum.StrEnum("One", {"one": text})["one"]], ids=["NumPy", "enum"]
)
def test_numpy_scalars_and_enums_are_accepted(tmp_path: pathlib.Path, text: Callable[[str], str]) -> None:
    x, two = np.ones((2, 4), np.float32), np.int64(2)
    plan = CORE.plan(
        MODEL,
        text(LISTED),
        {text("ASSIGNMENT"): text("PRIORITY"), "PERF_COUNT": np.bool_(True)},
        pins={text("relu"): text("TEMPLATE"), text("weight:w"): text("CPU")},
        max_memory={text("CPU"): np.int64(10**6)},
        shapes={text("x"): (two, np.int32(4))},
    )
    assert plan.affinity == {"product": "CPU", "relu": "TEMPLATE"}
    plan.save(tmp_path / "plan.json")
    assert hetero.Plan.load(tmp_path / "plan.json").pins == {"relu": "TEMPLATE", "weight:w": "CPU"}
    assert str(plan.explain(text("relu"))).startswith("'relu' (Relu) is on TEMPLATE")
    assert plan.what_if(device_supports={text("TEMPLATE"): [text("MatMul")]}, without_pins=[text("relu")])
    config = {
        "NUM_STREAMS": two,
        "CACHE_DIR": tmp_path / "cache",
        "DEVICE_PROPERTIES": {text("CPU"): {"PERF_COUNT": np.bool_(True)}},
    }
    for was_cached in (False, True):
        compiled = CORE.compile_model(MODEL, text(LISTED), config, pins={text("rel."): text("TEMPLATE")})
        assert compiled.get_property("LOADED_FROM_CACHE") == was_cached
        assert np.array_equal(compiled({text("x"): x})[text("y")], np.full((2, 4), 4, np.float32))
    compiled.export_model(tmp_path / "exported.hetero")
    assert CORE.plan(MODEL, LISTED, pins={"relu": "TEMPLATE"}, shapes={text("batch"): two}).values[0].shape == (2, 4)
    assert MODEL.initializers[text("w")].name == "w"
    assert MODEL.with_outputs([text("a")]).outputs[1].name == "a"
    assert MODEL.with_types({text("a"): (text("float32"), (two, 4))}).save(tmp_path / "typed.onnx") is None
    assert CORE.plan(MODEL.with_affinity({text("relu"): text("TEMPLATE")}), LISTED).affinity["relu"] == "TEMPLATE"
    assert hetero.partition_graph(GRAPH, [0, 0, 0], text("auto"), max_nodes=two)
    MODEL.with_affinity({text("relu"): text("CPU")}).save(tmp_path / "affinity.onnx")


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    "value", [-1, 10**30, pytest.param(10**5000, id="huge"), float("nan"), float("inf"), "one", True]
)
def test_integers_are_bounded_and_the_error_says_so(name: str, value: object) -> None:
    bound = INTEGERS[name]
    owner = "HETERO" if name == "QUEUE_LIMIT" else "CPU"
    device = LISTED if owner == "HETERO" else "CPU"
    expected = f"0 to {bound}" if type(value) is int else "expected int"
    for call in (CORE.compile_model, CORE.plan, CORE.query_model):
        with pytest.raises(hetero.PropertyError, match=expected):
            call(MODEL, device, {name: value})
    with pytest.raises(hetero.PropertyError, match=expected):
        hetero.Core().set_property(owner, {name: value})
    for fits in (0, bound):
        hetero.Core().set_property(owner, {name: fits})
    with pytest.raises(hetero.PropertyError, match=f"0 to {bound}"):
        hetero.Core().set_property(owner, {name: bound + 1})


@pytest.mark.parametrize("name", ["CACHE_DIR", "HETERO_DUMP_GRAPH_DOT"])
@pytest.mark.parametrize(
    ("path", "problem"),
    [("a\0b", "must not contain a NUL character"), ("a\ud800b", "must be encodable as a file name")],
)
def test_the_error_for_a_path_says_what_is_wrong(name: str, path: str, problem: str) -> None:
    said = re.escape(f"property {name}: expected a path, found {path!r}: a path {problem}")
    with pytest.raises(hetero.PropertyError, match=said):
        CORE.compile_model(MODEL, LISTED, {name: path})
    with pytest.raises(hetero.PropertyError, match=said):
        hetero.Core().set_property("HETERO", {name: path})


def test_every_integer_that_can_be_set_is_bounded() -> None:
    devices = [info.name for info in CORE.devices() if not info.unavailable]
    declared = [PROPERTIES[name] for name in PROPERTIES]
    for device in devices:
        plugin = CORE._registry.plugin(device)
        declared += [plugin.declared(name) for name in plugin._table.names]
    for entry in declared:
        if entry.writable and entry.type is int:
            with pytest.raises(hetero.PropertyError, match="found .*, expected 0 to [0-9]+"):
                entry.check(10**30)


@pytest.mark.parametrize("pin", ["(?:a){99999999999}", "a{4294967296}", "(" * 5000, "op:x{99999999999}"])
def test_pins_that_are_no_expressions_python_takes(pin: str) -> None:
    for call in (CORE.plan, CORE.compile_model):
        with pytest.raises(hetero.PropertyError, match="expression"):
            call(MODEL, LISTED, pins={pin: "CPU"})


@pytest.mark.parametrize("as_what", ["Model", "str", "Path", "bytes", "bytearray", "memoryview", "ModelProto"])
def test_a_model_may_be_given_as_anything_that_can_be_read(tmp_path: pathlib.Path, as_what: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(), path)
    encoded = path.read_bytes()
    given: Any = {
        "Model": CORE.read_model(path),
        "str": str(path),
        "Path": path,
        "bytes": encoded,
        "bytearray": bytearray(encoded),
        "memoryview": memoryview(encoded),
        "ModelProto": network(),
    }[as_what]
    assert CORE.query_model(given, LISTED) == {"product": "CPU", "relu": "CPU"}
    plan = CORE.plan(given, LISTED, pins={"relu": "TEMPLATE"})
    assert plan.affinity == {"product": "CPU", "relu": "TEMPLATE"}
    x = np.ones((2, 4), np.float32)
    for compiled in (CORE.compile_model(given, plan), hetero.compile(given, LISTED)):
        assert np.array_equal(compiled(x)["y"], np.full((2, 4), 4, np.float32))
    assert len(hetero.split(given, plan, tmp_path / "parts").parts) == 2


def test_a_path_that_is_not_there_is_named() -> None:
    for call in (CORE.query_model, CORE.plan, CORE.compile_model):
        with pytest.raises(hetero.ModelError, match="gone.onnx: cannot be opened: No such file"):
            call("gone.onnx", "CPU")
    with pytest.raises(hetero.ModelError, match="gone.onnx"):
        hetero.split("gone.onnx", PLAN, "parts")
