"""Custom operators that contradict themselves, fail, or give what they did not promise."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from custom_operators import DEVICES, build, callback, core_with, model_of, scale
from hetero.extension.c_call import FUNCTION
from hetero.plugin import Plugin

X = np.arange(6, dtype=np.float32)
TEXT = "g (float[6] x) => (float[6] y) { a = Relu(x) b = com.acme.Odd(a) y = Neg(b) }"


def same(x: Any, **_: Any) -> Any:
    return x


def odd(function: Any = None, **stated: Any) -> hetero.CustomOp:
    return hetero.CustomOp("Odd", "com.acme", function=function, **stated)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    found = build(tmp_path_factory.mktemp("custom_ops"))
    if found is None:
        pytest.skip("there is no C compiler")
    return found


# ---- what is said about an operator

CONTRADICTIONS: dict[str, tuple[Callable[[], hetero.CustomOp], str]] = {
    "no function": (lambda: hetero.CustomOp("Odd", "com.acme"), "expected a function or a c_function, found neither"),
    "no callable": (lambda: odd(3), "function: expected a callable, found 3"),
    "a rule that is no callable": (lambda: odd(same, shape_rule=(1, 2)), "shape_rule: expected a callable"),
    "ONNX's own": (lambda: hetero.CustomOp("Relu", "", function=same), "ONNX's own"),
    "ONNX's own by its long name": (lambda: hetero.CustomOp("Relu", "ai.onnx", function=same), "ONNX's own"),
    "ONNX's classical domain": (lambda: hetero.CustomOp("Scaler", "ai.onnx.ml", function=same), "ONNX's own"),
    "no name": (lambda: hetero.CustomOp("", "com.acme", function=same), "op_type: expected a name"),
    "a name that is none": (lambda: hetero.CustomOp("A::B", "com.acme", function=same), "op_type: expected a name"),
    "a domain that is none": (lambda: hetero.CustomOp("A", 7, function=same), "domain: expected a name, found 7"),
    "address 0": (lambda: odd(c_function=0, shape_rule=same), "0x0 is not the address of a function"),
    "a null pointer": (lambda: odd(c_function=FUNCTION(0), shape_rule=same), "not the address of a function"),
    "a negative address": (lambda: odd(c_function=-8, shape_rule=same), "not the address of a function"),
    "no address": (lambda: odd(c_function=1.5, shape_rule=same), "expected a ctypes function or an address"),
    "C without a rule": (lambda: odd(c_function=callback(scale)), "a c_function requires a shape_rule"),
    "user_data that is none": (lambda: odd(same, user_data=-1), "user_data: expected an address"),
    "version 0": (lambda: odd(same, since_version=0), "since_version: expected 1 or more, found 0"),
    "a version that is no text": (lambda: odd(same, version=3), "version: expected a string, found 3"),
    "too few inputs": (lambda: odd(same, num_inputs=-1), "num_inputs: expected 0 <= minimum <= maximum"),
    "inputs the wrong way round": (
        lambda: odd(same, num_inputs=(2, 1)),
        "num_inputs: expected 0 <= minimum <= maximum",
    ),
    "inputs that are no number": (lambda: odd(same, num_inputs="2"), "num_inputs: expected a number or"),
    "no outputs": (lambda: odd(same, output_dtypes=[]), "output_dtypes: expected an entry per output"),
    "one dtype for a list": (
        lambda: odd(same, output_dtypes=np.float32),
        "output_dtypes: expected an entry per output",
    ),
    "an unknown dtype": (lambda: odd(same, output_dtypes=["float99"]), "'float99' is not a dtype"),
    "a dtype that ONNX has not": (lambda: odd(same, output_dtypes=["M8[s]"]), "ONNX has no element type"),
    "the dtype of no input": (lambda: odd(same, num_inputs=1, output_dtypes=[1]), "1 is not the number of an input"),
    "accepted dtypes": (lambda: odd(same, input_dtypes="float32"), "input_dtypes: expected an entry per input"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions(case: str) -> None:
    make, message = CONTRADICTIONS[case]
    with pytest.raises(hetero.ExtensionError, match=message):
        make()


def test_one_name_twice() -> None:
    op = odd(same)
    core = core_with(op)
    core.add_extension(op)  # the same once more changes nothing
    for device in (None, "CPU", "TEMPLATE"):
        with pytest.raises(hetero.ExtensionError, match="already has a custom operator com.acme::Odd since version 1"):
            core.add_extension(odd(same), device)
    core.add_extension(odd(same, since_version=2))
    core_with(odd(same))  # another Core is not concerned
    of_one = core_with(odd(same), device="CPU")
    with pytest.raises(hetero.ExtensionError, match="already"):
        of_one.add_extension(odd(same))


def test_a_list_of_operators() -> None:
    core = hetero.Core()
    core.add_extension([odd(same), odd(same, since_version=5)])
    with pytest.raises(hetero.ExtensionError, match="already"):
        core.add_extension((odd(same, since_version=7), odd(same, since_version=5)))
    with pytest.raises(hetero.ExtensionError, match="already"):
        core.add_extension(odd(same, since_version=7))
    for extensions in ([], [odd(same, since_version=9), "libops.so"]):
        with pytest.raises(hetero.NotSupported, match="list is not a hetero.CustomOp"):
            core.add_extension(extensions)
    core.add_extension([odd(same, since_version=9)], "HETERO:CPU,TEMPLATE")


def test_devices_that_take_none() -> None:
    class Plain(Plugin):
        name = "PLAIN"

        def query_model(self, model: Any, config: Any) -> Any:
            raise NotImplementedError

        def compile_model(self, model: Any, config: Any, context: Any = None) -> Any:
            raise NotImplementedError

    core = hetero.Core()
    core.register_plugin("PLAIN", Plain)
    core.get_property("PLAIN", "FULL_DEVICE_NAME")
    core.add_extension(odd(same))  # passes over it
    for device in ("PLAIN", "HETERO"):
        with pytest.raises(hetero.NotSupported, match=f"{device} does not support extensions"):
            core.add_extension(odd(same, since_version=5), device)
    with pytest.raises(hetero.DeviceUnavailable, match="unknown device 'CPV'"):
        core.add_extension(odd(same), "CPV")
    for device in ("CPU", "TEMPLATE", None):
        with pytest.raises(hetero.NotSupported, match=r"CustomOp"):
            core.add_extension("libops.so", device)


def test_a_plugin_that_fails_to_take_one() -> None:
    class Failing(Plugin):
        name = "FAILING"

        def add_extension(self, extension: Any) -> None:
            raise RuntimeError("out of registers")

        def query_model(self, model: Any, config: Any) -> Any:
            raise NotImplementedError

        def compile_model(self, model: Any, config: Any, context: Any = None) -> Any:
            raise NotImplementedError

    core = hetero.Core()
    core.register_plugin("FAILING", Failing)
    core.get_property("FAILING", "FULL_DEVICE_NAME")
    core.get_property("TEMPLATE", "FULL_DEVICE_NAME")
    with pytest.raises(hetero.HeteroError, match="FAILING failed in add_extension .*com.acme::Odd.*out of registers"):
        core.add_extension(odd(same))
    model = core.read_model(model_of(TEXT))
    for device in ("CPU", "TEMPLATE"):
        np.testing.assert_array_equal(core.compile_model(model, device)({"x": X})[0], -X)
    later = core_with(odd(same))
    later.register_plugin("FAILING", Failing)
    with pytest.raises(hetero.DeviceUnavailable, match="FAILING failed in add_extension"):
        later.compile_model(model, "FAILING")


def test_a_plugin_that_is_made_meanwhile_has_it_too() -> None:
    """A device is first used while extensions are added: whoever gets it finds those that were there before."""
    for _ in range(20):
        core = hetero.Core()
        model = core.read_model(model_of(TEXT))
        started = threading.Barrier(3, timeout=60)
        found: list[Any] = []

        def ask(core: hetero.Core = core, model: Any = model, started: Any = started, found: Any = found) -> None:
            started.wait()
            found.append(core.query_model(model, "TEMPLATE").reasons)

        core.add_extension(odd(same))
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait()
        for i in range(10):
            core.add_extension(hetero.CustomOp(f"More{i}", "com.acme", function=same))
        for thread in threads:
            thread.join()
        assert found == [{}, {}]
        more = core.read_model(model_of(TEXT.replace("Odd", "More9")))
        assert core.query_model(more, "TEMPLATE").reasons == {}


# ---- nodes that do not fit


def refusals(op: hetero.CustomOp | None, text: str = TEXT) -> dict[str, str]:
    core = hetero.Core() if op is None else core_with(op)
    reasons = core.query_model(core.read_model(model_of(text)), "HETERO:CPU,TEMPLATE").reasons
    found = reasons.get("b", {})
    with pytest.raises(hetero.UnsupportedModel):
        core.compile_model(core.read_model(model_of(text)), "CPU")
    with pytest.raises(hetero.UnsupportedModel):
        core.compile_model(core.read_model(model_of(text)), "TEMPLATE")
    return found


def test_reasons_that_a_custom_operator_would_not_cure() -> None:
    """Only nodes without a kernel get the hint that no custom operator was added."""
    text = """
        <ir_version: 8, opset_import: ["": 18, "com.microsoft": 1, "com.acme": 1]>
        g (float[2, 3] x) => (float[2, 3] z) { y = com.microsoft.Gelu <odd = 1> (x) z = com.acme.Odd (y) }
    """
    core = hetero.Core()
    reasons = core.query_model(core.read_model(onnx.parser.parse_model(text)), "CPU").reasons
    assert [reasons[node]["CPU"] for node in ("y", "z")] == [
        "com.microsoft::Gelu with attribute odd",
        "no kernel for com.acme::Odd; no custom operator com.acme::Odd was added (Core.add_extension)",
    ]


def fails(*inputs: Any, **attributes: Any) -> Any:
    raise ArithmeticError("no shape today")


MISFITS: dict[str, tuple[hetero.CustomOp | None, str, str]] = {
    "not added": (None, TEXT, "no custom operator com.acme::Odd was added (Core.add_extension)"),
    "too few inputs": (odd(same, num_inputs=2), TEXT, "com.acme::Odd has 2 inputs, found 1"),
    "too few of a range": (odd(same, num_inputs=(2, 3)), TEXT, "com.acme::Odd has 2 to 3 inputs, found 1"),
    "a function of other arity": (odd(lambda x, y: x), TEXT, "the function of com.acme::Odd cannot be called: missing"),
    "a rule of other arity": (
        odd(same, shape_rule=lambda: ()),
        TEXT,
        "the shape rule of com.acme::Odd cannot be called: too many",
    ),
    "an attribute that it does not have": (
        odd(lambda x, *, alpha=1.0: x),
        TEXT.replace("Odd(a)", "Odd<beta=1.0>(a)"),
        "'beta'",
    ),
    "more outputs": (
        odd(same),
        TEXT.replace("b = com", "b, c = com"),
        "com.acme::Odd has 1 output, found 2",
    ),
    "an element type": (
        odd(same, input_dtypes=[np.int64]),
        TEXT,
        "input 0 is float32; com.acme::Odd supports int64",
    ),
    "a graph for an attribute": (
        odd(same),
        TEXT.replace("Odd(a)", "Odd<body = h () => (float[1] q) { q = Constant<value_floats=[1.0]>() }>(a)"),
        "an attribute has the unsupported type GraphProto",
    ),
    "a rule that fails": (odd(same, shape_rule=fails), TEXT, "ArithmeticError: no shape today"),
    "a rule that gives nothing": (odd(same, shape_rule=lambda x: None), TEXT, "returned None, expected a shape"),
    "a rule that gives too much": (
        odd(same, shape_rule=lambda x: [x, x]),
        TEXT,
        "its shape rule returned [(6,), (6,)], expected a shape",
    ),
    "a rule that gives fractions": (odd(same, shape_rule=lambda x: (3.0,)), TEXT, "expected a shape"),
    "a negative size": (odd(same, shape_rule=lambda x: (-1,)), TEXT, "its shape rule returned [-1]"),
    "a size beyond memory": (odd(same, shape_rule=lambda x: (1 << 40, 1 << 40)), TEXT, "which is too large for memory"),
    "a size beyond 64 bits": (odd(same, shape_rule=lambda x: (1 << 70,)), TEXT, "which is too large for memory"),
    "sizes of nothing that overflow": (
        odd(same, shape_rule=lambda x: (0, 1 << 40, 1 << 40)),
        TEXT,
        "which is too large for memory",
    ),
    "more dims than NumPy has": (odd(same, shape_rule=lambda x: (1,) * 65), TEXT, "expected at most 64 dims"),
    "a dtype that fails": (
        odd(same, output_dtypes=[lambda: "float99"]),
        TEXT,
        "the dtype of output 0: ExtensionError",
    ),
    "a version": (
        odd(same, since_version=4),
        TEXT,
        "exists since version 4 of its domain, but the model imports version 1",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_refused_with_a_reason(case: str) -> None:
    op, text, message = MISFITS[case]
    found = refusals(op, text.replace("{ a = Relu(x) b = com.acme.Odd(a)", "{ b = com.acme.Odd(x)"))
    assert set(found) == {"CPU", "TEMPLATE"}
    for reason in found.values():
        assert message in reason


def test_no_import_of_the_domain() -> None:
    node = helper.make_node("Odd", ["x"], ["b"], domain="com.acme")
    x, b = (helper.make_tensor_value_info(name, 1, [6]) for name in "xb")
    proto = helper.make_model(helper.make_graph([node], "g", [x], [b]), opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(hetero.ModelError, match="does not import an opset of domain 'com.acme'"):
        core_with(odd(same)).read_model(proto)


def test_sequences_are_no_tensors() -> None:
    core = core_with(odd(same))
    text = "g (float[6] x) => (float[6] y) { s = SequenceConstruct(x, x) b = com.acme.Odd(s) y = Neg(b) }"
    reasons = core.query_model(core.read_model(model_of(text)), "HETERO:CPU,TEMPLATE").reasons["b"]
    assert "not a tensor" in reasons["CPU"]
    assert "not a tensor" in reasons["TEMPLATE"]


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
def test_worker_processes_have_no_code_of_this_one(device: str) -> None:
    core = core_with(odd(lambda x: x))
    with pytest.raises(hetero.NotSupported, match="custom operator com.acme::Odd cannot be used in another process"):
        core.compile_model(core.read_model(model_of(TEXT)), device, {"ISOLATION": "PROCESS"})


# ---- runs that fail

WRONG: dict[str, tuple[hetero.CustomOp, str]] = {
    "raises": (odd(lambda x: 1 / 0), "its function raised ZeroDivisionError: division by zero"),
    "gives nothing": (odd(lambda x: None), "its function returned NoneType, expected 1 array"),
    "gives a number": (odd(lambda x: 3.0), "its function returned float, expected 1 array"),
    "gives a list of numbers": (odd(lambda x: [1.0]), "its function returned float for output 0, expected an array"),
    "gives too many": (odd(lambda x: (x, x)), "its function returned 2 results, expected 1 array"),
    "gives too few": (odd(lambda x: x, output_dtypes=(0, 0)), "its function returned 1 result, expected 2 arrays"),
    "another dtype": (odd(lambda x: x.astype(float)), "returned float64[6] for output 0, expected float32"),
    "another shape": (odd(lambda x: x[1:], shape_rule=same), "returned float32[5] for output 0, expected float32[6]"),
    "writes its input": (odd(lambda x: x.sort()), "ValueError"),
    "another model's error": (
        odd(lambda x: hetero.compile(model_path(), "CPU")({"nobody": x})),
        "its function raised InferenceError",
    ),
}


def model_path() -> Any:
    return hetero.Core().read_model(model_of("h (float[6] x) => (float[6] y) { y = Neg(x) }"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", WRONG)
def test_wrong_results_name_device_and_node(case: str, device: str) -> None:
    op, message = WRONG[case]
    core = core_with(op)
    text = TEXT if len(op.output_dtypes) == 1 else TEXT.replace("b = com", "b, c = com")
    compiled = core.compile_model(core.read_model(model_of(text)), device)
    first = device.removeprefix("HETERO:").partition(",")[0]
    for _ in range(2):
        with pytest.raises(hetero.InferenceError) as caught:
            compiled({"x": X})
        assert message in str(caught.value)
        assert str(caught.value).startswith(f"{first}: inference failed: node 'b' (")
        assert "Odd" in str(caught.value)
    if case == "raises":
        assert any(isinstance(error, ZeroDivisionError) for error in chain(caught.value))


def chain(error: BaseException) -> list[BaseException]:
    found = [error]
    while found[-1].__cause__ is not None:
        found.append(found[-1].__cause__)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", "its C function returned 3: the sum of 6 numbers is odd"),
        ("fails_silently", "its C function returned -1"),
        ("fails_at_length", "its C function returned 1: xxxxxxxxx"),
    ],
)
def test_a_c_function_that_fails(library: ctypes.CDLL, name: str, message: str, device: str) -> None:
    core = core_with(odd(c_function=getattr(library, name), shape_rule=same))
    compiled = core.compile_model(core.read_model(model_of(TEXT)), device)
    first = device.removeprefix("HETERO:").partition(",")[0]
    for _ in range(2):
        with pytest.raises(hetero.InferenceError) as caught:
            compiled({"x": X})
        assert str(caught.value).startswith(f"{first}: inference failed: node 'b' (")
        assert message in str(caught.value)
        if name == "fails_silently":
            assert str(caught.value).endswith("-1")


@pytest.mark.parametrize("device", DEVICES)
def test_in_a_loop_the_trip_and_the_node_are_named(library: ctypes.CDLL, device: str) -> None:
    text = """g (int64 n, float[6] x) => (float[6] y)
    {
        y = Loop (n, , x) <body = b (int64 i, bool go, float[6] v) => (bool more, float[6] w)
            { more = Identity(go) [inner] w = com.acme.Odd(v) }>
    }"""
    for op in (odd(c_function=library.fails, shape_rule=same), odd(lambda x: 1 / 0, shape_rule=same)):
        core = core_with(op)
        compiled = core.compile_model(core.read_model(model_of(text)), device)
        with pytest.raises(hetero.InferenceError, match="inner"):
            compiled({"n": np.array(3), "x": X})


@pytest.mark.parametrize("device", DEVICES)
def test_in_a_branch_the_node_is_named(library: ctypes.CDLL, device: str) -> None:
    text = """g (bool c, float[6] x) => (float[6] y)
    {
        y = If (c) <then_branch = t () => (float[6] p) { n = Neg(x) [inner] p = com.acme.Odd(n) },
                    else_branch = e () => (float[6] q) { q = Relu(x) }>
    }"""
    for op, message in (
        (odd(c_function=library.fails, shape_rule=same), "returned 3: the sum of 6 numbers is odd"),
        (odd(lambda x: 1 / 0, shape_rule=same), "raised ZeroDivisionError"),
    ):
        compiled = core_with(op).compile_model(hetero.Core().read_model(model_of(text)), device)
        np.testing.assert_array_equal(compiled({"c": np.array(False), "x": X})[0], X)
        with pytest.raises(hetero.InferenceError, match=f"inner.*{message}"):
            compiled({"c": np.array(True), "x": X})
        np.testing.assert_array_equal(compiled({"c": np.array(False), "x": X})[0], X)


@pytest.mark.parametrize("device", DEVICES)
def test_a_rule_that_fails_for_some_shapes(device: str) -> None:
    """Only runs tell, as the model leaves the size open; the same model then runs with others."""

    def halves(x: tuple[int, ...]) -> tuple[int, ...]:
        if x[0] % 2:
            raise ValueError(f"{x[0]} is odd")
        return (x[0] // 2,)

    def take(x: np.ndarray) -> np.ndarray:
        return x[::2] + x[1::2]

    for op in (odd(take, shape_rule=halves), odd(c_function=callback(lambda x: x[::2] + x[1::2]), shape_rule=halves)):
        core = core_with(op)
        text = TEXT.replace("float[6]", "float[n]", 1).replace("float[6]", "float[m]")
        compiled = core.compile_model(core.read_model(model_of(text)), device)
        for size in (4, 5, 6):
            x = np.arange(size, dtype=np.float32)
            if size % 2 and op.address:
                with pytest.raises(hetero.InferenceError, match="node 'b'.*its shape rule failed for .*5 is odd"):
                    compiled({"x": x})
            elif size % 2:
                with pytest.raises(hetero.InferenceError, match="node 'b'"):
                    compiled({"x": x})
            else:
                np.testing.assert_array_equal(compiled({"x": x})[0], -(x[::2] + x[1::2]))


@pytest.mark.parametrize("device", DEVICES)
def test_an_element_type_that_only_the_run_shows(device: str) -> None:
    """The model does not say what comes out of the first operator."""
    first = hetero.CustomOp("First", "com.acme", function=lambda x: x.astype(int), output_dtypes=[np.int64])
    second = odd(same, input_dtypes=[np.float32])
    proto = model_of("g (float[6] x) => (float[6] y) { a = com.acme.First(x) b = com.acme.Odd(a) y = Identity(b) }")
    core = core_with(first, second)
    reasons = core.query_model(core.read_model(proto), device).reasons["b"]
    assert all("input 0 is int64; com.acme::Odd supports float32" in reason for reason in reasons.values())


def test_a_result_of_another_size_than_the_model_states() -> None:
    core = core_with(odd(lambda x: x[:4]))
    onnx_model: onnx.ModelProto = model_of("g (float[6] x) => (float[6] b) { b = com.acme.Odd(x) }")
    for device in DEVICES:
        with pytest.warns(RuntimeWarning, match=r"'b' is declared float32 \[6\], found float32 \[4\]"):
            (found,) = core.compile_model(core.read_model(onnx_model), device)({"x": X})
        assert found.shape == (4,)
