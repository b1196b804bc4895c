"""Shape inference in a child process: the same answers, and an end to those that would have none."""

from __future__ import annotations

import contextlib
import errno
import pathlib
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import onnx.shape_inference
import pytest

import hetero
from hetero.model import isolation
from hetero.model.isolation import _HARMLESS, InferenceFailed, infer_types, is_harmless
from hetero.model.read import read_model
from inference_server import _Server, new_processes

Make = Callable[..., onnx.ModelProto]


@pytest.fixture(autouse=True)
def in_processes_of_their_own() -> Iterator[None]:
    """Without the fixture `monkeypatch`, so that what a test patches is undone before this ends."""
    with pytest.MonkeyPatch.context() as patch, new_processes():
        patch.setattr(isolation, "_kept", OrderedDict())
        yield


def vector_of(length: int, *more: onnx.NodeProto) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """v: a vector of that many zeros."""
    tensors = [onh.from_array(np.array([number], np.int64), name) for number, name in ((0, "zero"), (length, "s"))]
    return [oh.make_node("Expand", ["zero", "s"], ["v"]), *more], tensors


def test_a_child_answers_as_onnx_does(make_model: Make) -> None:
    nodes = [
        oh.make_node("Shape", ["x"], ["s"]),
        oh.make_node("Concat", ["s", "s"], ["t"], axis=0),
        oh.make_node("Expand", ["x", "t"], ["y"]),
    ]
    model = make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)])
    answer = infer_types(model.SerializeToString(), harmless=False)
    assert answer is not None
    assert onnx.ModelProto.FromString(answer) == onnx.shape_inference.infer_shapes(model, data_prop=True)


def test_an_answer_for_a_small_model_is_kept(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: started.append(args) or run(*args, **options))
    monkeypatch.setattr(isolation, "_MOST_KEPT", 2)

    def infer(length: int) -> bytes | None:
        nodes, tensors = vector_of(length)
        return infer_types(make_model(nodes, initializers=tensors).SerializeToString(), harmless=False)

    first = infer(1)
    assert first is not None
    assert infer(1) == first
    assert len(started) == 1
    infer(2)
    assert infer(1) == first
    infer(3)  # removes the answer for 2, which was asked for least recently
    assert infer(1) == first
    assert len(started) == 3
    infer(2)
    assert len(started) == 4


def test_forks_for_other_tests_answer_as_new_processes(make_model: Make) -> None:
    library = isolation._onnx_library()
    assert library is not None
    arguments, server = [library, str(64 << 20), "2.0"], _Server(library)
    codes = []
    try:
        for model in (needs_a_child(make_model).SerializeToString(), b"\xff"):
            command = [sys.executable, "-I", "-S", "-c", isolation._CHILD, *arguments]
            child = subprocess.run(command, input=model, capture_output=True, check=False)
            assert server.answer(arguments, model) == (child.returncode, child.stdout)
            codes.append(child.returncode)
    finally:
        server.close()
    assert codes == [0, 1]


@pytest.mark.parametrize("op", ["ConstantOfShape", "Cast"])
@pytest.mark.parametrize("length", [10**7, 2**40, 2**62])
def test_what_would_have_no_end_is_unknown(make_model: Make, op: str, length: int) -> None:
    attributes = {"to": 6} if op == "Cast" else {}
    nodes, tensors = vector_of(length, oh.make_node(op, ["v"], ["y"], **attributes))
    model = make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)], initializers=tensors)
    start = time.monotonic()
    read = read_model(model)
    assert read.type_of(read.value_id("y")).shape is None
    assert read.type_of(read.value_id("zero")).shape == (1,)
    assert time.monotonic() - start < 30


def test_ranks_beyond_numpy_are_unknown(make_model: Make) -> None:
    nodes, tensors = vector_of(65, oh.make_node("ConstantOfShape", ["v"], ["y"]))
    model = read_model(make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)], initializers=tensors))
    assert model.type_of(model.value_id("y")).shape is None
    assert model.type_of(model.value_id("v")).shape == (65,)


def test_what_counts_as_harmless() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert known >= _HARMLESS
    for schema in onnx.defs.get_all_schemas():
        if schema.name in _HARMLESS and not schema.domain:
            kinds = {attribute.type for attribute in schema.attributes.values()}
            assert not kinds & {onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS}
    assert is_harmless(["Relu", "Conv"], False, 1000, 100)
    assert not is_harmless(["Relu", "ConstantOfShape"], False, 1, 10)
    assert is_harmless(["d::ConstantOfShape"], False, 1, 10)  # onnx knows nothing of that domain
    domains = {schema.domain for schema in onnx.defs.get_all_schemas_with_history()} - {""}
    assert domains
    for domain in domains:
        assert not is_harmless([f"{domain}::Relu"], False, 1, 10)
    assert not is_harmless(["Relu"], True, 1, 10)
    assert not is_harmless(["Relu"], False, 100_000, 100_000)


def test_harmless_operators_need_no_child(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", None)
    nodes = [oh.make_node("Relu", ["x"], ["h"]), oh.make_node("Neg", ["h"], ["y"])]
    model = read_model(make_model(nodes))
    assert model.type_of(model.value_id("h")).shape == (2,)


@pytest.fixture(params=["frozen", "Windows", "no program"])
def without_a_child(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that cannot start a child for inference."""
    isolation._onnx_library.cache_clear()
    if request.param == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    elif request.param == "Windows":
        monkeypatch.delattr(signal, "setitimer")
    else:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    yield
    isolation._onnx_library.cache_clear()


@pytest.mark.usefixtures("without_a_child")
def test_without_a_child_types_that_need_none_are_known(make_model: Make) -> None:
    """Also those before and after a node that needs one, as far as they do not follow from its result."""
    nodes = [
        oh.make_node("Relu", ["x"], ["a"]),
        oh.make_node("Shape", ["a"], ["s"]),
        oh.make_node("Expand", ["a", "s"], ["b"]),
        oh.make_node("Exp", ["b"], ["c"]),
        oh.make_node("Reshape", ["a", "to"], ["d"]),
        oh.make_node("Neg", ["d"], ["e"]),
        oh.make_node("Relu", ["e"], ["f"], domain="local"),
        oh.make_node("Add", ["c", "f"], ["y"]),
    ]
    proto = make_model(
        nodes,
        initializers=[onh.from_array(np.array([1, 1, -1], np.int64), "to")],
        outputs=[oh.make_tensor_value_info("y", 1, None)],
    )
    body = oh.make_node("Identity", ["v"], ["w"])
    proto.functions.append(oh.make_function("local", "Relu", ["v"], ["w"], [body], proto.opset_import))
    proto.opset_import.append(oh.make_opsetid("local", 1))
    model = read_model(proto)
    types = {name: model.type_of(model.value_id(name)) for name in "abcdefsy"}
    assert {name for name, known in types.items() if known.shape is not None} == set("ade")
    assert types["d"].shape == types["e"].shape == (1, 1, 2)
    assert types["e"].dtype == np.float32


@pytest.mark.usefixtures("without_a_child")
def test_without_a_child_no_function_counts_as_an_operator_of_the_same_name(make_model: Make) -> None:
    proto = make_model([oh.make_node("Relu", ["x"], ["a"]), oh.make_node("Neg", ["a"], ["y"])])
    body = [oh.make_node("Unsqueeze", ["v", "axis"], ["w"])]
    body.insert(0, oh.make_node("Constant", [], ["axis"], value_ints=[0]))
    proto.functions.append(oh.make_function("", "Relu", ["v"], ["w"], body, proto.opset_import))
    model = read_model(proto)
    assert model.type_of(model.value_id("a")).shape is None


@pytest.mark.usefixtures("without_a_child")
def test_without_a_child_long_models_remain_unknown(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_HARMLESS_BYTES", 2 * isolation._RESHAPED_BYTES)
    nodes = [oh.make_node("Relu", ["x"], ["a"]), oh.make_node("Shape", ["a"], ["y"])]
    for more, expected in ([], (2,)), ([oh.make_node("Neg", ["a"], ["b"])], None):
        model = read_model(make_model([*nodes, *more], outputs=[oh.make_tensor_value_info("y", 7, None)]))
        assert model.type_of(model.value_id("a")).shape == expected


def needs_a_child(make_model: Make) -> onnx.ModelProto:
    nodes = [oh.make_node("Shape", ["x"], ["s"]), oh.make_node("Expand", ["x", "s"], ["y"], "expand")]
    return make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)])


def harmless(make_model: Make) -> onnx.ModelProto:
    nodes = [oh.make_node("Relu", ["x"], ["a"]), oh.make_node("Exp", ["a"], ["y"], "exp")]
    return make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)])


@pytest.mark.spread(2)
@pytest.mark.parametrize("make", [needs_a_child, harmless])
@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "HETERO:FPGA,CPU", "MULTI:CPU,TEMPLATE"])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc"), OSError(errno.ENOMEM, "no memory")])
def test_out_of_memory_comes_out(
    make_model: Make,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Make], onnx.ModelProto],
    device: str,
    error: Exception,
) -> None:
    """And types are inferred the next time."""
    core = hetero.Core()
    model = core.read_model(make(make_model))

    def fail(*_: object, **__: object) -> None:
        raise error

    for call in (core.query_model, core.plan, core.compile_model):
        with monkeypatch.context() as patch:
            patch.setattr(isolation, "_infer_here", fail)
            patch.setattr(subprocess, "run", fail)
            with pytest.raises(MemoryError):
                model.type_of(model.value_id("y"))
            with contextlib.suppress(MemoryError):  # not every device needs types
                call(model, device)
    assert model.type_of(model.value_id("y")).shape == model.inputs[0].shape


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", MemoryError),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", InferenceFailed),
        ("raise SystemExit(77)", MemoryError),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", None),
        ("import os, signal; os.kill(os.getpid(), signal.SIGPROF)", None),
        ("raise ValueError", None),
    ],
)
def test_how_the_child_ends(
    make_model: Make, monkeypatch: pytest.MonkeyPatch, program: str, expected: type[Exception] | None
) -> None:
    model = read_model(needs_a_child(make_model))
    with monkeypatch.context() as patch:
        patch.setattr(isolation, "_CHILD", program)
        if expected is not None:
            with pytest.raises(expected):
                model.type_of(model.value_id("y"))
        else:
            assert model.type_of(model.value_id("y")).shape is None
    if expected is not None:
        assert model.type_of(model.value_id("y")).shape == model.inputs[0].shape


@pytest.mark.parametrize(
    ("limited", "written", "expected"),
    [
        (True, None, MemoryError),
        (True, b"", MemoryError),
        (True, isolation._BEGUN, InferenceFailed),
        (False, None, InferenceFailed),
    ],
)
def test_a_child_that_hangs(
    make_model: Make, monkeypatch: pytest.MonkeyPatch, limited: bool, written: bytes | None, expected: type[Exception]
) -> None:
    """Python can hang at its start where its address space is limited to 10 MiB."""

    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 30, written)

    model = read_model(needs_a_child(make_model))
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", hang)
        patch.setattr(isolation, "_is_limited", lambda: limited)
        with pytest.raises(expected):
            model.type_of(model.value_id("y"))
    assert model.type_of(model.value_id("y")).shape == model.inputs[0].shape


def test_an_interrupt_is_not_for_the_child(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C goes to all processes of a terminal; a child that it ended would look like a model without types."""
    seen: list[object] = []
    run = subprocess.run

    def watched(*given: object, **options: object) -> object:
        seen.append(options.get("start_new_session"))
        return run(*given, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", watched)
    model = read_model(needs_a_child(make_model))
    assert model.type_of(model.value_id("y")).shape is not None
    assert seen == [True]


# Asks in forks that may have so many bytes of address space, as their children may, and writes whether the answer is
# the right one.
TRIALS = """
import ctypes, faulthandler, os, resource, sys, traceback
faulthandler.enable()
sys.path[:0] = {path!r}
import hetero
from hetero.model import isolation
isolation._KEPT_BYTES = 0  # each fork starts a child
core = hetero.Core()
def answer():
    plan = core.plan(model, "HETERO:FPGA,CPU")
    return sorted(core.query_model(model, "HETERO:FPGA,CPU").items()), sorted(plan.affinity.items()), plan.values
model = core.read_model({model!r})
expected = answer()
for limit in {limits}:
    model = core.read_model({model!r})
    child = os.fork()
    if child == 0:
        code = 3
        try:
            unlimited = resource.getrlimit(resource.RLIMIT_AS)
            ctypes.CDLL(None).malloc_trim(0)  # else what the first answer freed may do for all others
            resource.setrlimit(resource.RLIMIT_AS, (limit, unlimited[1]))
            try:
                found = answer()
            finally:
                resource.setrlimit(resource.RLIMIT_AS, unlimited)
            code = 0 if found == expected else 2
        except MemoryError:
            code = 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("ended", ended, flush=True)
    if ended not in (0, 1):
        print("ended so with", limit, "bytes", file=sys.stderr, flush=True)
"""


@pytest.mark.slow
def test_with_little_memory_the_answer_is_the_same_or_an_error(make_model: Make, tmp_path: pathlib.Path) -> None:
    nodes = [oh.make_node("Shape", ["x"], ["s0"]), oh.make_node("Expand", ["x", "s0"], ["v0"])]
    for i in range(200):
        nodes += [
            oh.make_node("Shape", [f"v{i}"], [f"s{i + 1}"]),
            oh.make_node("Expand", ["x", f"s{i + 1}"], [f"v{i + 1}"]),
        ]
    onnx.save(make_model(nodes, outputs=[oh.make_tensor_value_info("v200", 1, None)]), tmp_path / "m.onnx")
    limits = [size << 20 for size in (1, 4, 8, 10, 12, 14, 16, 20, 24, 28, *range(32, 160, 12), 256, 1024)]
    program = TRIALS.format(path=[*filter(None, sys.path)], model=str(tmp_path / "m.onnx"), limits=limits)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told = [line.removeprefix("ended ") for line in ran.stdout.splitlines() if line.startswith("ended ")]
    assert len(told) == len(limits), ran.stderr
    # NumPy writes to NULL where it does not check an allocation, which nothing can be done about here.
    crashes = {str(-signal.SIGSEGV)}
    assert {"0", "1"} <= set(told) <= {"0", "1"} | crashes, ran.stderr
