"""Measures the nodes of a model on a device, the overhead of subgraphs and transfers, and the speed of devices.

Times are minima over repetitions, because other load on the machine only adds to them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .assign.costs.measured import Costs, LinkTimes
from .errors import HeteroError, NotSupported, PropertyError
from .plugin.speed import DeviceSpeed

if TYPE_CHECKING:
    import onnx

    from .core import Core
    from .model.model import Model
    from .plugin.contract import CompiledModel

__all__ = ["measure_costs", "measure_launch", "measure_link", "measure_speed"]

Clock = Callable[[], float]

_REPETITIONS = 30
_SMALL, _LARGE = 256, 1 << 22  # elements of float32


def measure_costs(
    core: Core,
    model: Model,
    device: str,
    inputs: Mapping[str, Any],
    *,
    runs: int = 10,
    config: Mapping[str, Any] | None = None,
    clock: Clock = time.perf_counter,
) -> Costs:
    """Measure the times of nodes and subgraphs on a device, or over a list of devices (``HETERO:…``).

    Runs ``runs`` inferences after two warm-up runs. The counters are measured without fusion, because the times of
    nodes in a fused call are unknown. On a single device, they are then scaled to the time of an inference with fusion
    and without counters.

    ``inputs``: input name -> array. ``clock``: returns seconds. `time.process_time` excludes other processes, but it
    underestimates devices that compute in other processes or on other machines. Raises `PropertyError` for fewer than
    one run, `NotSupported` for a device without counters, and the errors of compiling and running.
    """
    if runs < 1:
        raise PropertyError(f"runs must be 1 or more, found {runs}")
    compiled = _unfused(core, model, device, {**(config or {}), "PERF_COUNT": True})
    parts = getattr(compiled, "submodels", None)
    where: str | Sequence[str] = device if parts is None else [part.device for part in parts]
    request = compiled.create_infer_request()
    rows = []
    for run in range(runs + 2):
        request.infer(inputs)
        if run >= 2:
            rows.append(list(request.profiling_info))
    if model.num_nodes and not any(rows):
        raise NotSupported(f"{device} has no counters, which measuring costs requires")
    shapes = {name: tuple(np.shape(array)) for name, array in inputs.items()}
    costs = Costs.from_profile(model, where, rows, shapes)
    launches = [measure_launch(core, entry.device, config, clock) * 1e6 for entry in costs.measurements]
    totals = [entry.total_us for entry in costs.measurements]
    if parts is None and launches:
        plain = core.compile_model(model, device, config).create_infer_request()
        (seconds,) = _least(lambda: plain.infer(inputs), clock=clock, repetitions=runs)
        totals = [max(0.0, seconds * 1e6 - launches[0])]
    measurements = tuple(
        dataclasses.replace(entry, total_us=total, launch_us=launch)
        for entry, total, launch in zip(costs.measurements, totals, launches, strict=True)
    )
    return dataclasses.replace(costs, measurements=measurements)


def measure_launch(
    core: Core, device: str, config: Mapping[str, Any] | None = None, clock: Clock = time.perf_counter
) -> float:
    """The overhead of a subgraph on a device, in seconds: the time of one tiny node run alone, minus its time within a
    chain of many."""
    one, many = (_compiled(core, _chain(_SMALL, length), device, config) for length in (1, 65))
    run_one, run_many = _runs(one, _SMALL), _runs(many, _SMALL)
    times = _least(run_one, run_many, clock=clock)
    return max(0.0, times[0] - (times[1] - times[0]) / 64)


def measure_link(
    core: Core, source: str, target: str, config: Mapping[str, Any] | None = None, clock: Clock = time.perf_counter
) -> LinkTimes:
    """The time to transfer a value from one device to another, without the time of the nodes that write and read it.

    Compares two nodes, one on each device, with both nodes on the one and both on the other device, for a small and a
    large tensor. The result is 0 if there is no measurable cost, as between devices that share memory. Raises the
    errors of compiling.
    """
    if source == target:
        raise PropertyError(f"expected two different devices for a link, found {source!r} twice")
    launches = (measure_launch(core, source, config, clock) + measure_launch(core, target, config, clock)) / 2
    seconds = []
    for elements in (_SMALL, _LARGE):
        pair = core.read_model(_chain(elements, 2))
        both = core.compile_model(pair, f"HETERO:{source},{target}", config, pins={"node0": source, "node1": target})
        runs = [_runs(both, elements)]
        runs += [_runs(_compiled(core, _chain(elements, 2), device, config), elements) for device in (source, target)]
        split, on_source, on_target = _least(*runs, clock=clock)
        seconds.append(max(0.0, split - (on_source + on_target) / 2 - launches))
    per_byte = max(0.0, seconds[1] - seconds[0]) / (4 * (_LARGE - _SMALL))
    return LinkTimes(source, target, seconds[0] * 1e6, per_byte * 1e12)


def measure_speed(core: Core, device: str, config: Mapping[str, Any] | None = None) -> DeviceSpeed:
    """The speed of a device, from a product of 512 x 512 matrices, elementwise nodes over 16 MiB, and tiny nodes."""
    product = _compiled(core, _product(512), device, config)
    plain = _compiled(core, _chain(_LARGE, 1), device, config)
    one, many = (_compiled(core, _chain(_SMALL, length), device, config) for length in (1, 65))
    of_product, of_plain = _least(_runs(product, (512, 512)), _runs(plain, _LARGE))
    of_one, of_many = _least(_runs(one, _SMALL), _runs(many, _SMALL))
    node = max(0.0, (of_many - of_one) / 64)
    launch = max(0.0, of_one - node)
    rest = launch + node
    flops = 2 * 512**3 / max(of_product - rest, 1e-9)
    moved = 8 * _LARGE / max(of_plain - rest, 1e-9)
    return DeviceSpeed(flops, moved, launch, node)


def _unfused(core: Core, model: Model, device: str, config: Mapping[str, Any] | None) -> CompiledModel:
    """Compile without fusion, if the device supports this."""
    try:
        return core.compile_model(model, device, {**(config or {}), "DISABLE_TRANSFORMATIONS": True})
    except PropertyError:
        return core.compile_model(model, device, config)


def _compiled(core: Core, model: onnx.ModelProto, device: str, config: Mapping[str, Any] | None) -> CompiledModel:
    try:
        return _unfused(core, core.read_model(model), device, config)
    except HeteroError as error:
        error.add_note(f"while measuring {device}")
        raise


def _runs(compiled: CompiledModel, shape: int | tuple[int, ...]) -> Callable[[], Any]:
    runner = compiled.create_runner()
    array = np.random.default_rng(0).random(shape, np.float32)
    inputs = [array] * len(compiled.inputs)
    return lambda: runner.run(inputs)


def _least(
    *functions: Callable[[], Any], clock: Clock = time.perf_counter, repetitions: int = _REPETITIONS
) -> list[float]:
    """The minimum time of each function, in seconds. The functions run in turns."""
    min_seconds = [np.inf] * len(functions)
    for repetition in range(repetitions + 2):
        for i, function in enumerate(functions):
            begin = clock()
            function()
            seconds = clock() - begin
            if repetition >= 2:
                min_seconds[i] = min(min_seconds[i], seconds)
    return min_seconds


def _chain(elements: int, length: int) -> onnx.ModelProto:
    """A chain of Relu nodes over one vector."""
    from onnx import TensorProto, helper

    names = ["x", *(f"y{i}" for i in range(length))]
    nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]], f"node{i}") for i in range(length)]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [elements]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "measured", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _product(rows: int) -> onnx.ModelProto:
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.random.default_rng(1).random((rows, rows), np.float32), "w")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, rows]) for name in ("x", "y")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "node0")]
    graph = helper.make_graph(nodes, "measured", ports[:1], ports[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
