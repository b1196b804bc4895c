"""Fixtures that several test files use."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator

import hypothesis
import pytest

# Products of NumPy, here and in programs that tests start: the threads of a pool wait busily for each other where
# other test processes use the processors. NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import onnx
from onnx import helper

import hetero
import inference_server
import real_models
from hetero.plugin.profile import Profile
from lost_workers import LostWorkers
from model_zoo import light, make_model, minilm
from report_cases import HOSTILE_NAMES, chain
from spread import spread

# Each run draws other examples. `pytest --hypothesis-profile long` draws more.
hypothesis.settings.register_profile("short", max_examples=20, deadline=None)
hypothesis.settings.register_profile("long", max_examples=300, deadline=None)
hypothesis.settings.load_profile("short")

# Their slow tests take the longest. They begin before the other slow ones, so that no process waits for one at the end.
# Those of the first list share nothing, so that each is a group by itself, which any process may take.
LONG_TESTS = (
    "devices/cpu/operators/test_operators.py",
    "devices/opencl/test_product.py",
    "devices/opencl/test_real_models.py",
    "docs/test_snippets.py",
    "faults/test_faults.py",
    "model/test_isolation.py",
    "test_stubs.py",
)
# Their slow tests are one group: onnx computes its node tests once per process, which takes seconds.
NODE_TESTS = (
    "devices/cpu/test_backend.py",
    "devices/ort/test_plugin.py",
    "devices/template/test_against_onnxruntime.py",
    "devices/template/test_backend.py",
    "devices/test_control_flow.py",
    "model/test_read.py",
)
LONG_FILES = ("plugin/test_cancellation.py", "docs/test_site.py", "fuzz/test_fuzz.py", "report/test_browser.py")


WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")

gc.disable()  # while tests are collected: nearly all objects stay, and searching them takes a quarter of the time


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):  # pytest-xdist would begin with the groups that have the most tests
        config.option.loadscopereorder = False
        config.option.maxworkerrestart = "0"  # with groups, it would wait for ever for tests of a process that crashed
        config.pluginmanager.register(LostWorkers())


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every other process of ``-n`` collects files from last to first, so that each finds what the other compiled: in a
    fresh clone, rewriting the assertions of all files takes longer than the rest of the collection."""
    report = yield
    if isinstance(collector, pytest.Dir) and WORKER[-1:] in tuple("13579"):
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests first: a broken build shows within seconds. Exhaustive tests run only if ``-m`` names them.

    With ``-n``, each process takes whole groups: the quick or the slow tests of a file, which share its fixtures, one
    long test, ONNX's node tests, or all tests of RAY, whose clusters would meet each other."""
    if not any("::" in argument for argument in config.args):  # a test that is named runs whole
        spread(items)
    if "exhaustive" not in (config.option.markexpr or ""):
        exhaustive = [item for item in items if item.get_closest_marker("exhaustive")]
        if exhaustive:
            config.hook.pytest_deselected(items=exhaustive)
            items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    if WORKER:
        items.sort(key=lambda item: item.path.parts)  # pytest-xdist needs one order in all processes
    items.sort(key=turn)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))


def group_of(item: pytest.Item) -> str:
    if item.path.match("devices/ray/*"):
        return "RAY"
    if is_slow(item) and is_in(item, LONG_TESTS):
        return item.nodeid
    if is_slow(item) and is_in(item, NODE_TESTS):
        return "node tests"
    return f"{item.path}, slow: {is_slow(item)}"


def turn(item: pytest.Item) -> int:
    if not is_slow(item):
        return 0
    return 1 if is_in(item, NODE_TESTS + LONG_TESTS + LONG_FILES) else 2


def is_in(item: pytest.Item, files: tuple[str, ...]) -> bool:
    return any(item.path.match(name) for name in files)


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected stays to the end: the garbage collector need not look through it again."""
    if session.config.getoption("loadgroup", False):  # pytest-xdist writes a test's group behind its name
        assert all("@" in item.nodeid for item in session.items), "tests have lost their groups"
    if session.items:  # the process that pytest-xdist distributes from has none
        inference_server.install()
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def core() -> hetero.Core:
    return hetero.Core()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises `KeyboardInterrupt`, here and in programs that are started, also where it was ignored, as a shell
    has it for jobs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def diamond(core: hetero.Core) -> hetero.Model:
    """The worked example of the partitioner as a model: a diamond with a tail, its right branch an Exp."""
    node = helper.make_node
    return core.read_model(
        make_model(
            [
                node("Relu", ["x"], ["n1"], name="one"),
                node("LeakyRelu", ["n1"], ["n2"], name="two"),
                node("LeakyRelu", ["n2"], ["n3"], name="three"),
                node("Exp", ["n2"], ["n4"], name="four"),
                node("Add", ["n3", "n4"], ["n5"], name="five"),
                node("Relu", ["n5"], ["n6"], name="six"),
                node("LeakyRelu", ["n6"], ["y"], name="seven"),
            ],
            name="diamond",
        )
    )


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], tuple[onnx.ModelProto, dict[str, np.ndarray]]]:
    """Name -> model and inputs: the light models with random weights, MiniLM-L3, and those that are fetched, without
    which the test that asks for one is skipped."""

    @functools.cache
    def load(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        if name in real_models.FETCHED:
            cases = {model: case for case, (model, _) in (real_models.MODELS | real_models.OTHERS).items()}
            return real_models.load(cases[name])
        return minilm() if name == "minilm" else light(name)

    return load


@pytest.fixture
def hostile_plan(core: hetero.Core) -> hetero.Plan:
    model = core.read_model(chain(HOSTILE_NAMES, graph="../</title><script>window.hacked=1</script>"))
    return core.plan(model, "HETERO:FPGA,CPU")


@pytest.fixture
def profile_of(core: hetero.Core) -> Callable[[hetero.Model, str | hetero.Plan], Profile]:
    """Model and plan (or device) -> the counters of an inference on ones."""

    def run(model: hetero.Model, plan: str | hetero.Plan) -> Profile:
        request = core.compile_model(model, plan, {"PERF_COUNT": True}).create_infer_request()
        inputs = {port.name: np.ones(port.shape or (), port.dtype) for port in model.inputs}
        request.infer(inputs)
        request.infer(inputs)
        return request.profiling_info

    return run
