"""Custom operators: the same cases, in Python and in C, on every device that takes them."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from custom_operators import DEVICES, HEAD, build, callback, core_with, model_of, peak, peak_shapes, scale
from threads import in_threads

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
KINDS = ("python", "ctypes", "c")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    found = build(tmp_path_factory.mktemp("custom_ops"))
    if found is None:
        pytest.skip("there is no C compiler")
    return found


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[..., hetero.CustomOp]:
    """Makes an operator of one kind from its Python function, which has the name of the C one."""

    def make_op(op_type: str, function: Any, **stated: Any) -> hetero.CustomOp:
        match request.param:
            case "python":
                return hetero.CustomOp(op_type, "com.acme", function=function, **stated)
            case "ctypes":
                return hetero.CustomOp(op_type, "com.acme", c_function=callback(function), **stated)
            case _:
                compiled = request.getfixturevalue("library")
                return hetero.CustomOp(op_type, "com.acme", c_function=getattr(compiled, function.__name__), **stated)

    return make_op


def same(x: Any, **_: Any) -> Any:
    return x


@pytest.mark.parametrize("device", DEVICES)
def test_between_operators_of_onnx(make: Any, device: str) -> None:
    core = core_with(make("Scale", scale, shape_rule=same))
    model = core.read_model(
        model_of("g (float[n,6] x) => (float[n,6] y) { a = Relu(x) b = com.acme.Scale<factor=2.5>(a) y = Neg(b) }")
    )
    assert core.query_model(model, device).reasons == {}
    compiled = core.compile_model(model, device)
    for x in (X, X[:2], X[:0], X):
        np.testing.assert_array_equal(compiled({"x": x})[0], -(np.float32(2.5) * np.maximum(x, 0)))


@pytest.mark.parametrize("device", DEVICES)
def test_a_function_may_give_what_it_keeps(device: str) -> None:
    """A table, its inputs, one array for two outputs: writing a result changes none of them."""
    table = np.arange(6, dtype=np.float32)

    def give(x: np.ndarray) -> tuple[np.ndarray, ...]:
        moved = x + 1
        return x, table, moved, moved[::-1], moved

    core = core_with(hetero.CustomOp("Give", "com.acme", function=give, output_dtypes=(0,) * 5))
    model = model_of(
        "g (float[6] x) => (float[6] r, float[6] a, float[6] b, float[6] c, float[6] d, float[6] e) "
        "{ r = Relu(x) a, b, c, d, e = com.acme.Give(r) }"
    )
    compiled = core.compile_model(core.read_model(model), device)
    for call in range(4):
        x = np.arange(call, call + 6, dtype=np.float32)
        found = compiled({"x": x}).arrays()
        for array, wanted in zip(found, (x, x, range(6), x + 1, x[::-1] + 1, x + 1), strict=True):
            np.testing.assert_array_equal(array, list(wanted))
            array[...] = -1
    np.testing.assert_array_equal(table, range(6))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bias", [True, False, None])
def test_several_outputs_and_an_optional_input(make: Any, device: str, bias: bool | None) -> None:
    op = make("Peak", peak, shape_rule=peak_shapes, num_inputs=(1, 2), output_dtypes=(0, np.int64))
    core = core_with(op)
    inputs = {True: "x, b", False: 'x, ""', None: "x"}[bias]
    node = helper.make_node("Peak", [name.strip('" ') for name in inputs.split(",")], ["best", "at"], domain="com.acme")
    more = helper.make_node("Add", ["at", "at"], ["twice"])
    graph = helper.make_graph(
        [node, more],
        "g",
        [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["n", 6]), ("b", [6]))],
        [helper.make_tensor_value_info("best", 1, ["n"]), helper.make_tensor_value_info("twice", 7, ["n"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    compiled = core.compile_model(core.read_model(helper.make_model(graph, opset_imports=opsets)), device)
    b = np.linspace(-1, 1, 6, dtype=np.float32)
    for x in (X, X[1:2], X[::2]):
        best, at = peak(x, b if bias else None)
        found = compiled({"x": x, "b": b})
        np.testing.assert_array_equal(found["best"], best)
        np.testing.assert_array_equal(found["twice"], 2 * at)


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_without_a_name(make: Any, device: str) -> None:
    core = core_with(make("Peak", peak, shape_rule=peak_shapes, output_dtypes=(0, np.int64)))
    for names, wanted in ((["best"], 0), (["", "at"], 1)):
        node = helper.make_node("Peak", ["x"], names, domain="com.acme")
        output = helper.make_tensor_value_info(names[-1], (1, 7)[wanted], ["n"])
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, ["n", 6])], [output])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
        compiled = core.compile_model(core.read_model(helper.make_model(graph, opset_imports=opsets)), device)
        np.testing.assert_array_equal(compiled({"x": X})[0], peak(X)[wanted])


ATTRIBUTES = {
    "i": -7,
    "f": 0.1,
    "s": "café",
    "floats": [0.5, -2.0],
    "ints": [1, -9_000_000_000],
    "strings": ["one", "two"],
    "t": numpy_helper.from_array(np.array([[4, 5, 6]], np.int32)),
}


def attributes_model() -> onnx.ModelProto:
    node = helper.make_node("Attributes", ["x"], ["y"], domain="com.acme", **ATTRIBUTES)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, [4, 6])], [helper.make_tensor_value_info("y", 1, [4, 6])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)])


@pytest.mark.parametrize("device", DEVICES)
def test_every_type_of_attribute_in_c(library: ctypes.CDLL, device: str) -> None:
    core = core_with(hetero.CustomOp("Attributes", "com.acme", c_function=library.attributes, shape_rule=same))
    compiled = core.compile_model(core.read_model(attributes_model()), device)
    gc.collect()
    np.testing.assert_array_equal(compiled({"x": X})[0], X)


@pytest.mark.parametrize("device", DEVICES)
def test_every_type_of_attribute_in_python(device: str) -> None:
    seen: list[dict[str, Any]] = []

    def take(x: np.ndarray, **attributes: Any) -> np.ndarray:
        seen.append(attributes)
        return x

    core = core_with(hetero.CustomOp("Attributes", "com.acme", function=take, shape_rule=same))
    core.compile_model(core.read_model(attributes_model()), device)({"x": X})
    (found,) = seen
    tensor = found.pop("t")
    np.testing.assert_array_equal(tensor, np.array([[4, 5, 6]], np.int32))
    assert not tensor.flags.writeable
    assert found == {
        "i": -7,
        "f": pytest.approx(0.1),
        "s": "café",
        "floats": (0.5, -2.0),
        "ints": (1, -9_000_000_000),
        "strings": ("one", "two"),
    }


@pytest.mark.parametrize("device", DEVICES)
def test_user_data(library: ctypes.CDLL, device: str) -> None:
    number = ctypes.c_float(2.0)
    op = hetero.CustomOp(
        "AddUserData",
        "com.acme",
        c_function=library.add_user_data,
        user_data=ctypes.addressof(number),
        shape_rule=same,
    )
    core = core_with(op)
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { y = com.acme.AddUserData(x) }"))
    compiled = core.compile_model(model, device)
    np.testing.assert_array_equal(compiled({"x": X})[0], X + 2)
    number.value = 5
    np.testing.assert_array_equal(compiled({"x": X})[0], X + 5)


@pytest.mark.parametrize("device", DEVICES)
def test_results_whose_shape_depends_on_data(device: str) -> None:
    def above(x: np.ndarray, *, limit: float = 0.0) -> np.ndarray:
        return x[x > limit]

    core = core_with(hetero.CustomOp("Above", "com.acme", function=above))
    model = core.read_model(
        model_of("g (float[n,6] x) => (float[m] y) { a = Mul(x, x) b = com.acme.Above<limit=0.5>(a) y = Sqrt(b) }")
    )
    compiled = core.compile_model(model, device)
    for x in (X, X[:1], -X, 0 * X, X):
        np.testing.assert_allclose(compiled({"x": x})[0], np.sqrt((x * x)[x * x > 0.5]), rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_without_inputs_it_is_called_in_every_run(device: str) -> None:
    """Nothing says that it gives the same each time, so it is no constant."""
    calls: list[int] = []

    def tick(*, count: int) -> np.ndarray:
        calls.append(count)
        return np.full(count, len(calls), np.int64)

    core = core_with(hetero.CustomOp("Tick", "com.acme", function=tick, num_inputs=0, output_dtypes=[np.int64]))
    model = core.read_model(model_of("g () => (int64[3] y) { a = com.acme.Tick<count=3>() y = Neg(a) }"))
    compiled = core.compile_model(model, device)
    assert calls == []
    assert [compiled({})[0].tolist() for _ in range(2)] == [[-1] * 3, [-2] * 3]


@pytest.mark.parametrize("device", DEVICES)
def test_of_constants_it_is_called_in_every_run(make: Any, device: str) -> None:
    core = core_with(make("Scale", scale, shape_rule=same))
    model = core.read_model(
        model_of(
            """g (float[3] x) => (float[3] y) <float[3] c = {1, 2, 3}>
            { a = com.acme.Scale<factor=2.0>(c) b = Neg(a) y = Add(b, x) }"""
        )
    )
    compiled = core.compile_model(model, device)
    for _ in range(2):
        np.testing.assert_array_equal(compiled({"x": np.ones(3, np.float32)})[0], [-1, -3, -5])


@pytest.mark.parametrize("device", DEVICES)
def test_as_a_shape(make: Any, device: str) -> None:
    """What waits for its data (Reshape) gets them."""
    op = make(
        "Peak", peak, shape_rule=peak_shapes, output_dtypes=(0, np.int64), input_dtypes=[np.float32], num_inputs=1
    )
    core = core_with(op)
    model = core.read_model(
        model_of("g (float[1,9] x, float[6] v) => (float[k] y) { a, b = com.acme.Peak(x) y = Expand(v, b) }")
    )
    x = np.zeros((1, 9), np.float32)
    x[0, 6] = 1
    np.testing.assert_array_equal(core.compile_model(model, device)({"x": x, "v": X[0]})[0], X[0])


@pytest.mark.parametrize("device", DEVICES)
def test_in_nested_graphs(make: Any, device: str) -> None:
    core = core_with(make("Scale", scale, shape_rule=same))
    model = core.read_model(
        model_of(
            """g (int64 n, float[6] x, bool c) => (float[6] y, float[6] z)
            {
                y = Loop (n, , x) <body = b (int64 i, bool go, float[6] v) => (bool more, float[6] w)
                    { more = Identity(go) u = com.acme.Scale<factor=0.5>(v) w = Add(u, x) }>
                z = If (c) <then_branch = t () => (float[6] p) { p = com.acme.Scale<factor=3.0>(x) },
                            else_branch = e () => (float[6] q) { q = Neg(x) }>
            }"""
        )
    )
    compiled = core.compile_model(model, device)
    for trips in (0, 1, 5):
        expected = X[0]
        for _ in range(trips):
            expected = np.float32(0.5) * expected + X[0]
        found = compiled({"n": np.array(trips), "x": X[0], "c": np.array(trips != 1)})
        np.testing.assert_array_equal(found["y"], expected)
        np.testing.assert_array_equal(found["z"], 3 * X[0] if trips != 1 else -X[0])


@pytest.mark.parametrize("device", DEVICES)
def test_in_a_function_of_the_model(make: Any, device: str) -> None:
    core = core_with(make("Scale", scale, shape_rule=same))
    model = model_of(
        """g (float[4,6] x) => (float[4,6] y) { a = local.Twice(x) y = Neg(a) }
        <domain: "local", opset_import: ["": 17, "com.acme": 1]>
        Twice (x) => (y) { a = com.acme.Scale<factor=2.0>(x) y = Relu(a) }""",
        HEAD.replace('"com.acme": 1', '"com.acme": 1, "local": 1'),
    )
    compiled = core.compile_model(core.read_model(model), device)
    np.testing.assert_array_equal(compiled({"x": X})[0], -np.maximum(2 * X, 0))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint64", "bool"])
def test_element_types(device: str, dtype: str) -> None:
    import ml_dtypes  # noqa: F401

    core = core_with(hetero.CustomOp("Back", "com.acme", function=lambda x: x[::-1], shape_rule=same))
    number = {"float64": 11, "float16": 10, "bfloat16": 16, "int8": 3, "uint64": 13, "bool": 9}[dtype]
    graph = helper.make_graph(
        [helper.make_node("Back", ["x"], ["a"], domain="com.acme"), helper.make_node("Identity", ["a"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", number, ["n"])],
        [helper.make_tensor_value_info("y", number, ["n"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    compiled = core.compile_model(core.read_model(helper.make_model(graph, opset_imports=opsets)), device)
    x = np.array([0, 1, 1, 0, 0], np.dtype(dtype))
    found = compiled({"x": x})[0]
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, x[::-1])


def test_strings_go_to_the_device_that_has_them() -> None:
    op = hetero.CustomOp("Upper", "com.acme", function=lambda x: np.char.upper(x.astype(str)), output_dtypes=[str])
    core = core_with(op)
    model = core.read_model(model_of("g (string[n] x) => (string[n] y) { y = com.acme.Upper(x) }"))
    support = core.query_model(model, "HETERO:CPU,TEMPLATE")
    assert support == {"y": "TEMPLATE"}
    assert "input 0 is object" in support.reasons["y"]["CPU"]
    found = core.compile_model(model, "HETERO:CPU,TEMPLATE")({"x": np.array(["ab", "ç"], object)})[0]
    assert found.tolist() == ["AB", "Ç"]


def test_c_where_programs_are_compiled_and_python_for_reference() -> None:
    calls: list[str] = []

    def reference(x: np.ndarray) -> np.ndarray:
        calls.append("python")
        return x + 1

    def fast(x: np.ndarray) -> np.ndarray:
        calls.append("c")
        return x + 1

    core = core_with(hetero.CustomOp("Inc", "com.acme", function=reference, c_function=callback(fast), shape_rule=same))
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { y = com.acme.Inc(x) }"))
    for device in ("CPU", "TEMPLATE"):
        np.testing.assert_array_equal(core.compile_model(model, device)({"x": X})[0], X + 1)
    assert calls == ["c", "python"]


def test_on_a_simulated_device(tmp_path: Path, make: Any) -> None:
    profile = tmp_path / "npu.toml"
    profile.write_text(
        'name = "NPU"\nruns_on = "CPU"\n[ops]\nRelu = {}\n"com.acme::Scale" = { dtypes = ["float32"] }\n'
    )
    core = hetero.Core()
    core.register_plugin("NPU", profile)
    model = core.read_model(
        model_of("g (float[4,6] x) => (float[4,6] y) { a = Relu(x) b = com.acme.Scale<factor=2.0>(a) y = Neg(b) }")
    )
    assert "b" not in core.query_model(model, "HETERO:NPU,CPU")
    core.add_extension(make("Scale", scale, shape_rule=same))
    assert core.query_model(model, "HETERO:NPU,CPU") == {"a": "NPU", "b": "NPU", "y": "CPU"}
    compiled = core.compile_model(model, "HETERO:NPU,CPU")
    np.testing.assert_array_equal(compiled({"x": X})[0], -2 * np.maximum(X, 0))


def test_versions_of_a_domain() -> None:
    core = core_with(
        hetero.CustomOp("Inc", "com.acme", function=lambda x: x + 3, since_version=3),
        hetero.CustomOp("Inc", "com.acme", function=lambda x: x + 7, since_version=7),
    )
    text = "g (float[4,6] x) => (float[4,6] y) { y = com.acme.Inc(x) }"
    for version, added in ((3, 3), (6, 3), (7, 7), (100, 7)):
        model = core.read_model(model_of(text, HEAD.replace('"com.acme": 1', f'"com.acme": {version}')))
        for device in DEVICES[:2]:
            np.testing.assert_array_equal(core.compile_model(model, device)({"x": X})[0], X + np.float32(added))
    with pytest.raises(hetero.UnsupportedModel, match="since version 3 of its domain, but the model imports version 2"):
        core.compile_model(core.read_model(model_of(text, HEAD.replace('"com.acme": 1', '"com.acme": 2'))), "CPU")


def test_a_function_of_the_model_goes_first() -> None:
    core = core_with(hetero.CustomOp("Twice", "com.acme", function=lambda x: x * 100))
    model = core.read_model(
        model_of(
            """g (float[4,6] x) => (float[4,6] y) { y = com.acme.Twice(x) }
            <domain: "com.acme", opset_import: ["": 17]> Twice (x) => (y) { y = Add(x, x) }"""
        )
    )
    for device in DEVICES:
        np.testing.assert_array_equal(core.compile_model(model, device)({"x": X})[0], 2 * X)


@pytest.mark.parametrize("device", DEVICES)
def test_several_streams_call_it_at_once(device: str) -> None:
    """Two calls wait for each other, so one after the other would never end."""
    meet = threading.Barrier(2, timeout=60)

    def wait(x: np.ndarray) -> np.ndarray:
        meet.wait()
        return x * 2

    core = core_with(hetero.CustomOp("Wait", "com.acme", function=wait, shape_rule=same))
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { a = Neg(x) y = com.acme.Wait(a) }"))
    compiled = core.compile_model(model, device)
    results: dict[int, np.ndarray] = {}

    def run(number: int) -> None:
        results[number] = compiled({"x": X + number})[0]

    in_threads(run, range(2))
    for number, result in results.items():
        np.testing.assert_array_equal(result, -2 * (X + number))
    assert len(results) == 2


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,TEMPLATE"])
def test_many_threads_call_a_c_function(library: ctypes.CDLL, device: str) -> None:
    op = hetero.CustomOp("Scale", "com.acme", c_function=library.scale, shape_rule=same)
    core = core_with(op)
    model = core.read_model(
        model_of("g (float[n,6] x) => (float[n,6] y) { a = Neg(x) b = com.acme.Scale<factor=2.0>(a) y = Abs(b) }")
    )
    compiled = core.compile_model(model, device, {"NUM_STREAMS": 4})
    batches = [X[: 1 + i % 4] * i for i in range(200)]
    for x, found in zip(batches, compiled.map(({"x": x} for x in batches), in_flight=8), strict=True):
        np.testing.assert_array_equal(found[0], np.abs(2 * x))


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_are_read_only_and_results_are_the_callers(device: str) -> None:
    refused: list[str] = []

    def try_to_write(x: np.ndarray) -> np.ndarray:
        try:
            x += 1
        except ValueError as error:
            refused.append(str(error))
        return x

    core = core_with(hetero.CustomOp("Same", "com.acme", function=try_to_write, shape_rule=same))
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { y = com.acme.Same(x) }"))
    x = X.copy()
    result = core.compile_model(model, device)({"x": x})[0]
    assert len(refused) == 1
    result += 1
    np.testing.assert_array_equal(x, X)


def test_counters_name_it(make: Any) -> None:
    core = core_with(make("Scale", scale, shape_rule=same))
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { a = Relu(x) y = com.acme.Scale(a) }"))
    for device in ("CPU", "TEMPLATE"):
        request = core.compile_model(model, device, {"PERF_COUNT": True}).create_infer_request()
        request.infer({"x": X})
        row = next(row for row in request.profiling_info if row.node == "y")
        assert (row.status, row.real_us > 0) == ("EXECUTED", True)


def test_it_goes_with_its_core() -> None:
    class Op:
        def __call__(self, x: np.ndarray) -> np.ndarray:
            return x

    op = Op()
    gone = weakref.ref(op)
    core = core_with(hetero.CustomOp("Same", "com.acme", function=op))
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { y = com.acme.Same(x) }"))
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE")
    compiled({"x": X})
    del op, core
    gc.collect()
    np.testing.assert_array_equal(compiled({"x": X})[0], X)  # what was compiled stays whole
    with pytest.raises(hetero.UnsupportedModel):
        hetero.Core().compile_model(model, "CPU")
    del compiled
    gc.collect()
    assert gone() is None


def test_devices_that_are_made_later_have_it(tmp_path: Path) -> None:
    core = hetero.Core()
    core.get_property("TEMPLATE", "FULL_DEVICE_NAME")
    core.add_extension(hetero.CustomOp("Same", "com.acme", function=lambda x: x))
    profile = tmp_path / "npu.toml"
    profile.write_text('name = "NPU"\nruns_on = "TEMPLATE"\n[ops]\n"com.acme::Same" = {}\n')
    core.register_plugin("NPU", profile)
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { y = com.acme.Same(x) }"))
    for device in ("CPU", "TEMPLATE", "NPU"):
        np.testing.assert_array_equal(core.compile_model(model, device)({"x": X})[0], X)


def test_for_one_device_alone() -> None:
    core = core_with(hetero.CustomOp("Same", "com.acme", function=lambda x: x), device="TEMPLATE")
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { y = com.acme.Same(x) }"))
    assert core.query_model(model, "HETERO:CPU,TEMPLATE") == {"y": "TEMPLATE"}
    core.add_extension(hetero.CustomOp("Same", "com.acme", function=lambda x: x), "CPU.0")
    assert core.query_model(model, "HETERO:CPU,TEMPLATE") == {"y": "CPU"}
    other = core_with(hetero.CustomOp("Same", "com.acme", function=lambda x: x), device="HETERO:CPU,TEMPLATE")
    assert other.query_model(model, "TEMPLATE") == {"y": "TEMPLATE"}


def test_threads_may_add_at_once() -> None:
    core = hetero.Core()
    ops = [hetero.CustomOp(f"Op{i}", "com.acme", function=lambda x, i=i: x + i) for i in range(32)]
    in_threads(core.add_extension, ops)
    nodes = " ".join(f"y{i} = com.acme.Op{i}(x)" for i in range(32))
    outputs = ", ".join(f"float[4,6] y{i}" for i in range(32))
    model = core.read_model(model_of(f"g (float[4,6] x) => ({outputs}) {{ {nodes} }}"))
    found = core.compile_model(model, "CPU")({"x": X})
    np.testing.assert_array_equal(found[31], X + np.float32(31))


def test_types_of_boundary_values() -> None:
    """Nothing is stated, each next type follows from the one before, by schemas and by the operators' rules."""
    core = core_with(
        hetero.CustomOp("Peak", "com.acme", function=peak, shape_rule=peak_shapes, output_dtypes=(0, np.int64)),
        hetero.CustomOp("As", "com.acme", function=lambda x, *, to: x, output_dtypes=[lambda to: to]),
    )
    graph = """g (float[4,6] x) => (y, z)
    {
        h = Cast<to=10>(x) a, b = com.acme.Peak(h) c = Sqrt(a) d = Unsqueeze(c, axes) e, f = com.acme.Peak(d)
        y = com.acme.As<to="uint8">(e) z = Shape(f)
    }"""
    proto = model_of(graph.replace("g (", "g (int64[1] axes, ").replace("(y, z)", "(float[1] y, int64[1] z)"))
    for output in proto.graph.output:
        output.ClearField("type")
    model = core.read_model(proto)
    typed = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"d": "TEMPLATE"}).assignment.model
    dtypes = {name: typed.type_of(typed.value_id(name)).dtype for name in "habcdefyz"}
    assert {name: dtype.name for name, dtype in dtypes.items()} == {
        **dict.fromkeys("hacde", "float16"),
        **dict.fromkeys("bfz", "int64"),
        "y": "uint8",
    }
    assert typed.type_of(typed.value_id("b")).shape == (4,)
    assert model.type_of(model.value_id("b")).dtype is None  # the model itself knows no extension


def test_beside_a_backend_that_wants_types() -> None:
    pytest.importorskip("onnxruntime")
    core = core_with(hetero.CustomOp("Scale", "com.acme", function=scale, shape_rule=same))
    model = core.read_model(
        model_of("g (float[n,6] x) => (float[n,6] y) { a = Relu(x) b = com.acme.Scale<factor=2.5>(a) y = Neg(b) }")
    )
    assert core.query_model(model, "HETERO:ORT,CPU") == {"a": "ORT", "b": "CPU", "y": "ORT"}
    compiled = core.compile_model(model, "HETERO:ORT,CPU")
    np.testing.assert_array_equal(compiled({"x": X})[0], -(np.float32(2.5) * np.maximum(X, 0)))


def test_over_several_devices_by_turns(make: Any) -> None:
    core = core_with(make("Scale", scale, shape_rule=same))
    model = core.read_model(
        model_of("g (float[n,6] x) => (float[n,6] y) { a = Relu(x) y = com.acme.Scale<factor=2.0>(a) }")
    )
    compiled = core.compile_model(model, "MULTI:CPU,TEMPLATE")
    batches = [X[: 1 + i % 4] for i in range(12)]
    for x, found in zip(batches, compiled.map({"x": x} for x in batches), strict=True):
        np.testing.assert_array_equal(found[0], 2 * np.maximum(x, 0))


def test_plans_are_compiled_as_they_are() -> None:
    core = core_with(hetero.CustomOp("Scale", "com.acme", function=scale, shape_rule=same))
    model = core.read_model(model_of("g (float[4,6] x) => (float[4,6] y) { a = Relu(x) y = com.acme.Scale(a) }"))
    plan = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"y": "TEMPLATE"})
    compiled = core.compile_model(model, plan)
    assert compiled.plan is plan
    np.testing.assert_array_equal(compiled({"x": X})[0], np.maximum(X, 0))
