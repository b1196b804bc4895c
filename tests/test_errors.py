"""Out of memory is distinguished from errors of a model, a node or a plugin."""

from __future__ import annotations

import contextlib
import errno
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from hetero.errors import ModelTooLarge, raise_out_of_memory, shown
from hetero.model import read
from hetero.workers.messages import failure


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("x"),
        ModelTooLarge("m.onnx: not enough memory"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: std::bad_alloc"),
        RuntimeError("Failed to allocate memory for requested buffer of size 4194304"),
        RuntimeError("Available memory of 1048576 is smaller than requested bytes of 4194304\n\n"),
        RuntimeError("CUBLAS failure 3: the resource allocation failed ; GPU=0 ; expr=cublasCreate(&cublas_handle_); "),
        RuntimeError(
            "CUDA failure 2: out of memory ; GPU=0 ; hostname=host ; line=245 ; expr=cudaMalloc((void**)&p, size);"
        ),
        ValueError("Error parsing message with type 'onnx.NodeProto': Arena alloc failed"),
        ImportError("libx.so.1: failed to map segment from shared object"),
        ImportError("libx.so.1: cannot create shared object descriptor: Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        SystemError("error return without exception set"),
        SystemError("<built-in function where> returned NULL without setting an exception"),
    ],
)
def test_out_of_memory(error: Exception) -> None:
    with pytest.raises(MemoryError):
        raise_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("node 'std::bad_alloc' has no kernel"),
        hetero.ModelError("the node is called std::bad_alloc"),
        RuntimeError(""),
        ImportError("libx.so.1: cannot open shared object file: No such file or directory"),
        ImportError("libx.so.1: cannot allocate memory in static TLS block"),
        ImportError("libx.so.1: failed to map segment from shared object: Operation not permitted"),
        SystemError("bad argument to internal function"),
        RuntimeError("error return without exception set"),
    ],
)
def test_other_errors(error: Exception) -> None:
    raise_out_of_memory(error)


def test_values_that_have_no_repr() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(10**5000) == "an integer of 16610 bits"
    assert shown([object(), {1: object()}]) == "[<object object>, {1: <object object>}]"
    assert shown(Odd()) == "a Odd whose repr raises RuntimeError"
    assert shown([1]) == "[1]"


def relu() -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "one", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Short(hetero.Plugin):
    """Takes every node, and has no memory at one stage."""

    name = "SHORT"

    def __init__(self, stage: str, error: Callable[[], Exception]) -> None:
        super().__init__()
        self._stage, self._error = stage, error

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> hetero.Support:
        if self._stage == "query":
            raise self._error()
        return hetero.Support(np.ones(model.num_nodes, np.bool_), {})

    def compile_model(
        self, model: hetero.Model, config: Mapping[str, Any], context: Any = None
    ) -> hetero.CompiledModel:
        raise self._error()


@pytest.mark.parametrize("device", ["SHORT", "HETERO:SHORT,CPU", "MULTI:SHORT,CPU"])
@pytest.mark.parametrize("error", [MemoryError, lambda: RuntimeError("std::bad_alloc"), lambda: ModelTooLarge("x")])
@pytest.mark.parametrize("timeout", [0, 10_000])
def test_a_plugin_without_memory_is_not_one_that_refuses(
    device: str, error: Callable[[], Exception], timeout: int
) -> None:
    """Nothing goes to another device, with or without a warning."""
    for stage in ("query", "compile"):
        core = hetero.Core()
        core.register_plugin("SHORT", lambda stage=stage: Short(stage, error))
        core.set_property("SHORT", {"PLUGIN_TIMEOUT_MS": timeout})
        model = core.read_model(relu())
        with pytest.raises(MemoryError) as raised:
            core.compile_model(model, device)
        assert any("by SHORT" in note for note in raised.value.__notes__)
        if stage == "query" and not device.startswith("MULTI"):
            with pytest.raises(MemoryError):
                core.query_model(model, device)
            with pytest.raises(MemoryError):
                core.plan(model, device)


# What NumPy 2.4 raises where an array indexes another and there is no memory for that.
UNCHECKED = SystemError("error return without exception set")


@pytest.mark.parametrize("name", ["traffic", "footprint"])
def test_a_plan_for_which_numpy_has_no_memory(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fail(*_: object) -> None:
        raise UNCHECKED

    core = hetero.Core()
    plan = core.plan(relu(), "HETERO:CPU,TEMPLATE")
    with monkeypatch.context() as patch:
        patch.setattr(f"hetero.plan.bound.{name}", fail)
        with pytest.raises(MemoryError, match="as NumPy does for lack of memory"):
            getattr(plan, name)
        with pytest.raises(MemoryError):
            _ = plan.totals
    assert plan.totals[0].device == "CPU"


@pytest.mark.parametrize("stage", ["query_model", "plan", "compile_model"])
def test_numpy_without_memory_at_any_stage(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def fail(*_: object) -> None:
        raise UNCHECKED

    core = hetero.Core()
    with monkeypatch.context() as patch:
        patch.setattr("hetero.assign.assigning.resolve_calls", fail)
        with pytest.raises(MemoryError):
            getattr(core, stage)(relu(), "HETERO:CPU,TEMPLATE")
    getattr(core, stage)(relu(), "HETERO:CPU,TEMPLATE")


@pytest.mark.parametrize("device", ["SHORT", "HETERO:SHORT,CPU", "MULTI:SHORT"])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc"), UNCHECKED, ValueError("bad")])
@pytest.mark.parametrize("at", ["create_runner", "run"])
def test_an_inference_without_memory_is_both_errors(device: str, error: Exception, at: str) -> None:
    class Runner:
        def run(self, inputs: Any) -> Any:
            raise error

        def profile(self) -> tuple[()]:
            return ()

    class Compiled(hetero.CompiledModel):
        def create_runner(self) -> Any:
            if at == "create_runner":
                raise error
            return Runner()

    class Failing(hetero.Plugin):
        name = "SHORT"

        def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> hetero.Support:
            return hetero.Support(np.ones(model.num_nodes, np.bool_), {})

        def compile_model(
            self, model: hetero.Model, config: Mapping[str, Any], context: Any = None
        ) -> hetero.CompiledModel:
            return Compiled("SHORT", model.inputs, model.outputs)

    core = hetero.Core()
    core.register_plugin("SHORT", Failing)
    compiled = core.compile_model(relu(), device)
    with pytest.raises(hetero.InferenceError) as raised:
        compiled(np.ones((1, 4), np.float32))
    assert isinstance(raised.value, MemoryError) == (not isinstance(error, ValueError))


@pytest.mark.parametrize("error", [MemoryError(), UNCHECKED, KeyError("bad")])
def test_planning_a_run_without_memory_is_both_errors(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    model = relu()
    model.graph.node[0].op_type = "Add"
    model.graph.node[0].input.append("x")
    compiled = hetero.Core().compile_model(model, "CPU")
    with monkeypatch.context() as patch:
        patch.setattr("hetero.devices.cpu.operators.elementwise.broadcast", fail)
        with pytest.raises(hetero.InferenceError) as raised:
            compiled(np.ones((1, 4), np.float32))
    assert isinstance(raised.value, MemoryError) == (not isinstance(error, KeyError))
    assert compiled(np.ones((1, 4), np.float32))[0].shape == (1, 4)


def test_an_import_without_memory_is_no_corrupt_file(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def fail(*_: object) -> None:
        raise ModelTooLarge("model.onnx: not enough memory to index it")

    core = hetero.Core()
    core.compile_model(relu(), "CPU").export_model(tmp_path / "m.hetero")
    core.compile_model(relu(), "CPU", {"CACHE_DIR": str(tmp_path)})
    with monkeypatch.context() as patch:
        patch.setattr("hetero.artifact.model.attach", fail)
        with pytest.raises(MemoryError):
            core.import_model(tmp_path / "m.hetero")
        with pytest.raises(MemoryError):
            core.compile_model(relu(), "CPU", {"CACHE_DIR": str(tmp_path)})
    assert core.import_model(tmp_path / "m.hetero")(np.ones((1, 4), np.float32))[0].shape == (1, 4)


@pytest.mark.parametrize("lacks", [True, False])
def test_multi_keeps_a_device_that_lacked_memory(monkeypatch: pytest.MonkeyPatch, lacks: bool) -> None:
    compiled = hetero.Core().compile_model(relu(), "MULTI:TEMPLATE,CPU")

    def fail(*_: object, **__: object) -> None:
        raise MemoryError if lacks else KeyError("bad")

    x = np.ones((1, 4), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr("hetero.devices.template.program.Program.run", fail)
        with contextlib.nullcontext() if lacks else pytest.warns(RuntimeWarning, match="MULTI no longer uses"):
            for _ in range(9):
                assert compiled(x)[0].tolist() == x.tolist()


def test_a_tensor_without_memory_is_both_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ModelTooLarge("m.onnx: initializer 'w': not enough memory for shape [8]")
    assert isinstance(error, hetero.ModelError)
    assert isinstance(error, MemoryError)
    back = failure(error).error()
    assert type(back) is ModelTooLarge
    assert isinstance(failure(MemoryError("x")).error(), MemoryError)


def test_graphs_nested_too_deep_are_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class EncodeError(Exception):
        pass

    class Proto:
        graph = None

        def __init__(self, depth: int) -> None:
            self._depth = depth

        def SerializeToString(self) -> bytes:
            raise EncodeError("Failed to serialize proto")

        def ListFields(self) -> list[tuple[Any, Any]]:
            field = type("Field", (), {"message_type": object()})
            return [(field, [Proto(self._depth - 1)])] if self._depth else []

    with pytest.raises(MemoryError):
        read.read_model(Proto(99))  # type: ignore[arg-type]
    with pytest.raises(hetero.ModelError, match="cannot be encoded"):
        read.read_model(Proto(100))  # type: ignore[arg-type]
