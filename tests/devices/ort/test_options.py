"""The properties of ORT that set options of onnxruntime's sessions and runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from hetero.devices.ort.session import SESSION_OPTIONS, run_options, session_options
from hetero.plugin.profile import OPTIMIZED_OUT
from model_zoo import make_model

ort = pytest.importorskip("onnxruntime")
X = np.float32([[1, -2, 3], [-4, 5, 6]])


@pytest.fixture
def identities() -> onnx.ModelProto:
    """Two nodes that basic optimization removes, around a Relu."""
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Identity", ["b"], ["y"], name="last"),
    ]
    return make_model(nodes)


def removed(core: hetero.Core, model: onnx.ModelProto, config: dict[str, Any], device: str = "ORT") -> set[str]:
    request = core.compile_model(model, device, {"PERF_COUNT": True, **config}).create_infer_request()
    np.testing.assert_array_equal(request.infer(X)["y"], np.maximum(X, 0))
    return {row.node for row in request.profiling_info if row.status == OPTIMIZED_OUT}


@pytest.mark.parametrize("device", ["ORT", "HETERO:ORT,CPU"])
def test_the_optimization_level(core: hetero.Core, identities: onnx.ModelProto, device: str) -> None:
    def level(name: str) -> dict[str, Any]:
        return {"ORT_SESSION_OPTIONS": {"graph_optimization_level": name}}

    assert removed(core, identities, level("ORT_DISABLE_ALL"), device) == set()
    assert removed(core, identities, {"DISABLE_TRANSFORMATIONS": True}, device) == set()
    for name in ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"):
        assert removed(core, identities, level(name), device)


def test_each_option_reaches_the_session(core: hetero.Core) -> None:
    plugin = core._registry.plugin("ORT")
    values: dict[str, Any] = {
        "graph_optimization_level": "ORT_ENABLE_BASIC",
        "execution_mode": "ORT_PARALLEL",
        "execution_order": "PRIORITY_BASED",
        "inter_op_num_threads": 2,
        "enable_cpu_mem_arena": False,
        "enable_mem_pattern": False,
        "enable_mem_reuse": False,
        "use_deterministic_compute": True,
        "log_verbosity_level": 1,
        "logid": "mine",
    }
    assert values.keys() == SESSION_OPTIONS.keys()
    plain, chosen = (session_options(plugin.full_config({"ORT_SESSION_OPTIONS": given})) for given in ({}, values))
    for name, value in values.items():
        kind = SESSION_OPTIONS[name]
        assert getattr(chosen, name) == (getattr(getattr(ort, kind), value) if isinstance(kind, str) else value)
        assert getattr(chosen, name) != getattr(plain, name)
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    compiled = core.compile_model(model, "ORT", {"ORT_SESSION_OPTIONS": values})
    np.testing.assert_array_equal(compiled(X)["y"], np.maximum(X, 0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"intra_op_num_threads": 2}, "'intra_op_num_threads' cannot be set; use INFERENCE_NUM_THREADS"),
        ({"enable_profiling": True}, "use PERF_COUNT"),
        ({"log_severity_level": 0}, "use LOG_LEVEL"),
        ({"optimized_model_filepath": "x"}, "use CACHE_DIR or"),
        ({"nope": 1}, "'nope' cannot be set; expected one of graph_optimization_level, execution_mode"),
        ({3: 1}, "3 cannot be set"),
        ({"enable_mem_pattern": 1}, "enable_mem_pattern: expected bool, found 1"),
        ({"inter_op_num_threads": True}, "inter_op_num_threads: expected int, found True"),
        ({"graph_optimization_level": "all"}, "expected one of ORT_DISABLE_ALL, .*, found 'all'"),
        ({"graph_optimization_level": 99}, "expected one of ORT_DISABLE_ALL, .*, found 99"),
        (ort.SessionOptions(), r"ORT_SESSION_OPTIONS: expected a mapping, found <\S+SessionOptions object>"),
        ({"execution_mode": ["ORT_PARALLEL"]}, "expected one of ORT_SEQUENTIAL, ORT_PARALLEL, found"),
    ],
)
def test_refused_options(core: hetero.Core, given: Any, message: str) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(hetero.PropertyError, match=message):
        core.compile_model(model, "ORT", {"ORT_SESSION_OPTIONS": given})


def test_a_name_that_this_onnxruntime_lacks(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "ExecutionMode", object())
    config = core._registry.plugin("ORT").full_config({"ORT_SESSION_OPTIONS": {"execution_mode": "ORT_PARALLEL"}})
    with pytest.raises(hetero.PropertyError, match=r"onnxruntime .* has no execution_mode=ORT_PARALLEL"):
        session_options(config)


def test_config_entries_of_runs(core: hetero.Core) -> None:
    config = {"ORT_RUN_CONFIG": {"memory.enable_memory_arena_shrinkage": "cpu:0"}, "LOG_LEVEL": "ERR"}
    options = run_options(core._registry.plugin("ORT").full_config(config))
    assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    assert options.log_severity_level == 3
    model = make_model([helper.make_node("Relu", ["x"], ["y"])])
    compiled = core.compile_model(model, "ORT", config)
    np.testing.assert_array_equal(compiled(X)["y"], np.maximum(X, 0))
    wrong = {"ORT_RUN_CONFIG": {"memory.enable_memory_arena_shrinkage": "nope:0"}}
    with pytest.raises(hetero.InferenceError, match="nope"):
        core.compile_model(model, "ORT", wrong)(X)
