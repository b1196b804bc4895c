"""Stage 4: compiles a model as a request says, whole on one device or in subgraphs on several."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..assign.affinity import assign
from ..assign.assigning import resolve_model
from ..base.collection import MANY_NODES, collection_paused
from ..base.log import tell
from ..base.machine import usable_processors
from ..base.warn import warn
from ..errors import HeteroError, PropertyError, UnsupportedModel, raise_out_of_memory, shown
from ..plan import Plan, PlanRecord, bind_plan, check_limits, make_plan
from ..plan.bind import place_plan
from ..plan.warning import slower_in_turn
from ..plugin.caller import ConfiguredDevice, query
from ..plugin.contract import CompiledModel, RemoteContext, RemoteTensor
from ..plugin.executor import DeviceExecutors
from ..plugin.remote import DeviceContexts
from ..report.dot import write_affinity_dot, write_subgraphs_dot
from .concurrent import ConcurrentCalls
from .device_list import DeviceListPlugin
from .folding import fold_between
from .free_memory import FreeMemory
from .hetero_model import Fallback, HeteroCompiledModel, schedule_of
from .on_device import compile_on

if TYPE_CHECKING:
    from ..assign.request import Request
    from ..model.model import Model

__all__ = ["compile_model", "compile_plan"]

_THREADS = "INFERENCE_NUM_THREADS"


def compile_model(
    model: Model, request: Request, plan: PlanRecord | None = None, context: RemoteContext | None = None
) -> CompiledModel:
    """Plan a model, unless ``plan`` is given, and compile it.

    Raises the errors of `make_plan` and `bind_plan`, `PropertyError`, and the errors of the devices.
    """
    if not request.cuts:
        if plan is not None:
            place_plan(model, plan)  # raises if the plan is for another model
        return _compile_whole(model, request, context)
    with collection_paused(model.num_nodes >= MANY_NODES):
        if plan is None:
            plan = make_plan(model, request)
        elif isinstance(plan, Plan) and plan.original is model and plan.devices == request.names:
            check_limits(plan, request)
        else:
            plan = bind_plan(model, plan, request)
        return compile_plan(plan, request, context)


def _compile_whole(model: Model, request: Request, context: RemoteContext | None) -> CompiledModel:
    """Compile on the only device of the request."""
    (device,) = request.devices
    if isinstance(device.plugin, DeviceListPlugin) and not device.plugin.plans:
        return compile_on(device, model, context)
    if request.rules.limits:
        assignment = make_plan(model, request).assignment  # raises InsufficientMemory
        return compile_on(device, model if assignment.model is assignment.original else assignment.model, context)
    if device.plugin.refuses_when_compiling and not model.functions:
        with contextlib.suppress(UnsupportedModel):
            return compile_on(device, model, context)
    # Reports all unsupported nodes at once, in the same way for every device. The assignment itself is not used.
    resolved = resolve_model(model, request)
    assign(resolved.model, resolved.devices, resolved.supports)
    return compile_on(device, model if resolved.model is resolved.original else resolved.model, context)


def compile_plan(plan: Plan, request: Request, context: RemoteContext | None = None) -> HeteroCompiledModel:
    """Compile each subgraph of a plan on its device, except subgraphs that are folded whole. ``context``: a
    `DeviceContexts`."""
    if context is not None and not isinstance(context, DeviceContexts):
        raise PropertyError(
            f"{request.whole.plugin.name} requires the contexts of its devices, found {shown(context)}; see "
            "Core.create_context"
        )
    contexts = {} if context is None else context.contexts
    settings = request.settings
    folder = settings["HETERO_DUMP_GRAPH_DOT"]
    if folder:
        folder = "." if folder is True else folder
        write_affinity_dot(plan, folder)
        write_subgraphs_dot(plan, folder)
    model = plan.assignment.model
    names, nodes = _parts(plan)
    devices = {device.name: device for device in request.devices}
    if plan.pipeline is not None:
        devices = _with_threads_shared(devices, names)
    fallbacks: list[Fallback] = []
    free_memory = FreeMemory(plan, names, nodes)

    def run_once(i: int, part: Model, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, Any]:
        outputs = compile_on(devices[names[i]], part, contexts.get(names[i]))(inputs)
        values = {port.name: outputs[port.name] for port in part.outputs}
        return {name: value.numpy() if isinstance(value, RemoteTensor) else value for name, value in values.items()}

    folded = None if plan.pipeline is not None else fold_between(model, nodes, run_once)  # a stage keeps its nodes
    if folded is not None:
        model, nodes = folded.model, folded.nodes
    numbers = [i for i, part in enumerate(nodes) if len(part)]
    extracted = model.extract_all([nodes[i] for i in numbers], [f"{model.name}_subgraph{i + 1}" for i in numbers])
    submodels = dict(zip(numbers, extracted, strict=True))

    def compile_part(i: int) -> CompiledModel:
        try:
            return _compile_submodel(i, devices[names[i]], submodels[i], contexts.get(names[i]))
        except PropertyError:
            raise
        except HeteroError as error:
            raise_out_of_memory(error)
            position = request.names.index(names[i])
            following = () if settings["STRICT"] else request.names[position + 1 :]
            compiled = _compile_elsewhere(i, [devices[name] for name in following], submodels[i], free_memory)
            if compiled is None:
                raise
            fallbacks.append(Fallback(i + 1, names[i], compiled.device, str(error)))
            return compiled

    compiled = _compile_all(compile_part, {i: devices[names[i]] for i in numbers})
    fallbacks.sort(key=lambda entry: entry.subgraph)
    if fallbacks:
        text = "; ".join(map(str, fallbacks))
        tell(settings, request.whole.plugin.name, "WARNING", text)
        warn(text)
    if settings["PERFORMANCE_HINT"] == "THROUGHPUT" and plan.latency is not None and plan.latency.overlaps:
        warn(slower_in_turn(plan.latency))
    executors = request.whole.plugin.executors
    schedule = schedule_of(
        model, list(zip(extracted, compiled, strict=True)), DeviceExecutors(executors), [i + 1 for i in numbers]
    )
    ports = (model.inputs, model.outputs)
    return HeteroCompiledModel(plan, ports, model.name, compiled, schedule, settings, executors, fallbacks)


def _parts(plan: Plan) -> tuple[list[str], list[NDArray[np.int32]]]:
    """The device and the nodes of each submodel, in running order."""
    partition = plan.assignment.partition
    names = [plan.devices[number] for number in partition.device_of.tolist()]
    nodes = [partition.nodes(i) for i in range(len(names))]
    if plan.pipeline is not None:
        # A stage is one run of its device, even if no edge joins all of it.
        stages = [[number - 1 for number in stage.subgraphs] for stage in plan.pipeline.stages]
        names = [stage.device for stage in plan.pipeline.stages]
        return names, [np.sort(np.concatenate([nodes[i] for i in stage])) for stage in stages]
    if len(set(names)) == 1:
        # There is nothing to cut. Subgraphs that no edge joins would be needless calls of the device.
        return names[:1], [np.arange(plan.num_nodes, dtype=np.int32)]
    return names, nodes


def _with_threads_shared(devices: Mapping[str, ConfiguredDevice], stages: Sequence[str]) -> dict[str, ConfiguredDevice]:
    """The devices, where the devices of ``stages`` that would each use all processors get equal shares of them, because
    stages run in parallel."""
    shared = dict(devices)
    unlimited = []
    for name in stages:
        device = devices[name]
        if device.plugin.declares(_THREADS) and not device.plugin.setting(_THREADS, device.config):
            unlimited.append(device)
    share = max(1, usable_processors() // max(1, len(unlimited)))
    for device in unlimited:
        shared[device.name] = dataclasses.replace(device, config={**device.config, _THREADS: share})
    return shared


def _compile_all(
    compile_part: Callable[[int], CompiledModel], devices: Mapping[int, ConfiguredDevice]
) -> list[CompiledModel]:
    """The submodels, in order. Plugins that release the GIL compile theirs concurrently. ``devices``: by number."""
    concurrent = [i for i, device in devices.items() if device.plugin.compiles_beside_others]
    if len(concurrent) < 2:
        return [compile_part(i) for i in devices]
    position = {part: number for number, part in enumerate(concurrent)}
    calls = ConcurrentCalls([functools.partial(compile_part, part) for part in concurrent], os.cpu_count() or 1)
    try:
        return [calls.result(position[i]) if i in position else compile_part(i) for i in devices]
    except BaseException as error:
        calls.stop(wait=isinstance(error, Exception))  # do not wait after Ctrl-C
        raise


def _compile_submodel(
    i: int, device: ConfiguredDevice, submodel: Model, context: RemoteContext | None = None
) -> CompiledModel:
    try:
        return compile_on(device, submodel, context)
    except HeteroError as error:
        error.add_note(f"as subgraph {i + 1} on {device.name}")
        raise


def _compile_elsewhere(
    i: int, devices: Sequence[ConfiguredDevice], submodel: Model, free_memory: FreeMemory
) -> CompiledModel | None:
    """The submodel, compiled on the first of ``devices`` that supports it, has memory for it and compiles it; None if
    there is no such device."""
    for device in devices:
        try:
            if query(device, submodel).mask.all() and free_memory.move(i, device.name):
                return _compile_submodel(i, device, submodel)
        except HeteroError as error:
            raise_out_of_memory(error)
            continue  # the first failure is the one to report
    return None
