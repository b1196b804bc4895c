"""Runs plans: copies inputs to the device, starts the kernels, and copies results back.

Copies to the device, kernels, and copies from the device have their own queues (`device.Stream`). A kernel waits only
for the inputs that it reads, and a result is copied back as soon as it is complete, so copies overlap with kernels.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InferenceError, InsufficientMemory
from ...plugin.cancellation import Cancellation
from ...plugin.profile import EXECUTED, OPTIMIZED_OUT, ProfileRow
from . import backend
from .context import OpenclTensor, context_of
from .device import Device, Stream
from .memory import DeviceValue, Staging
from .plan import Plan
from .planner import Planner
from .steps import ProductStep
from .tensors import CONSTANT, INPUT, Slot, Tensor

__all__ = ["Command", "OpenclRunner"]

_MOST_PLANS = 8
"""Plans that a request keeps, each with its own memory, for inputs of different shapes."""
_STAGED_BYTES = 1 << 20
"""Larger inputs are not copied to pinned memory first: the driver takes less time than such a copy."""
_IN_FLIGHT = 64
"""Steps that are started before the first of them must have ended: bounds the time to stop a run."""
_FLUSHED = 16
"""Steps that are started together: the device begins with them while the next are queued."""


class Command:
    """One command of a run, for traces: an upload, a kernel or a download (``kind``). ``node``: its number, or -1.
    ``after``: for a command of several kernels, the events that the first kernel waits for; ``event`` is that of the
    last kernel. Times are in ns, on the clock of the device."""

    __slots__ = ("begin_ns", "end_ns", "kind", "node")

    def __init__(self, kind: str, node: int, event: Any, after: Sequence[Any] | None = None) -> None:
        self.kind = kind
        self.node = node
        # Drivers disagree about the times of markers, so the first kernel begins when the commands before it end.
        self.begin_ns = int(
            event.profile.start if after is None else max((event.profile.queued, *(each.profile.end for each in after)))
        )
        self.end_ns = int(event.profile.end)


class OpenclRunner:
    """One request: its plans, and the counters of its last run."""

    def __init__(self, name: str, device: Device, planner: Planner, stream: Stream, timed: bool) -> None:
        """``name``: the device name for messages. ``timed``: record the times of all commands."""
        self.cancellation = Cancellation()
        self._name = name
        self._device = device
        self._planner = planner
        self._stream = stream
        self._timed = timed
        self._plans: collections.OrderedDict[object, Plan] = collections.OrderedDict()
        self._kept: frozenset[int] = frozenset()
        self._tail: Any = None
        """The last command of the previous run, if the run ended before it."""
        self.commands: list[Command] = []
        """The commands of the last run, if the model was compiled with ``PERF_COUNT``."""

    def keep_on_device(self, positions: Sequence[int]) -> None:
        """See `CompiledModel.memory_space`."""
        self._kept = frozenset(positions)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        values = [value.value if isinstance(value, OpenclTensor) else value for value in inputs]
        with self._device.memory.guarded(self._name, "inference"):
            return _Run(self, self._plan_for(values), values).results()

    def run_plan(self, plan: Plan) -> None:
        """Run a plan without inputs, and leave its results in its memory."""
        self._kept = frozenset(range(len(plan.outputs)))
        with self._device.memory.guarded(self._name, "inference"):
            _Run(self, plan, ()).results(is_folding=True)
        self._finish()

    def profile(self) -> Sequence[ProfileRow]:
        if not self._timed:
            return ()
        times: dict[int, float] = {}
        for command in self.commands:
            if command.kind == "kernel":
                times[command.node] = times.get(command.node, 0.0) + (command.end_ns - command.begin_ns) / 1000
        kind = f"opencl_{'gpu' if self._device.is_gpu else 'cpu'}"
        return [
            ProfileRow(
                key, EXECUTED if at in times else OPTIMIZED_OUT, op, kind, times.get(at, 0.0), times.get(at, 0.0)
            )
            for at, (key, op) in enumerate(self._planner.keys)
        ]

    def _plan_for(self, values: Sequence[Any]) -> Plan:
        planner = self._planner
        arrays = {
            value: given.numpy() if isinstance(given, DeviceValue) else given
            for value, given in zip(planner.inputs, values, strict=True)
            if value in planner.read_on_host
        }
        types = tuple((value.dtype, tuple(value.shape)) for value in values)
        key = types, tuple(array.tobytes() for array in arrays.values())
        plan = self._plans.get(key)
        if plan is None:
            arrays = {value: array.copy() for value, array in arrays.items()}
            while len(self._plans) >= _MOST_PLANS:
                self._plans.popitem(last=False)
            try:
                plan = planner.plan(types, arrays)
            except InsufficientMemory:
                if not self._plans:
                    raise
                self._finish()
                self._plans.clear()
                plan = planner.plan(types, arrays)
            self._plans[key] = plan
        self._plans.move_to_end(key)
        return plan

    def _finish(self) -> None:
        """Wait for all commands of earlier runs."""
        for queue in (self._stream.upload, self._stream.compute, self._stream.download):
            queue.finish()


class _Run:
    """One inference."""

    def __init__(self, runner: OpenclRunner, plan: Plan, values: Sequence[Any]) -> None:
        self._runner = runner
        self._plan = plan
        self._values = values
        self._cl = backend.load()
        self._stream = runner._stream
        self._memory = runner._device.memory
        self._waits: dict[int, list[Any]] = {}
        self._staged: list[tuple[Staging, NDArray[Any] | None, Any]] = []
        self._uploads: list[Any] = []
        self._downloads: dict[int, tuple[NDArray[Any], Any]] = {}
        self._commands: list[tuple[Any, ...]] = []
        self._ready: dict[int, Any] = {}
        self._last: Any = None

    def results(self, is_folding: bool = False) -> list[Any]:
        """Run, and return the results in the order of the outputs. ``is_folding``: the plan runs only once,
        and its results stay in its memory."""
        try:
            self._bind_inputs()
            if not is_folding:
                self._bind_kept()
            self._start()
            if is_folding:
                asked = self._ask_indices()
                self._stream.download.flush()
                self._check_indices(asked)
                return []
            return self._collect()
        except BaseException:
            self._runner._tail = None
            with contextlib.suppress(self._cl.Error):  # of a lost device; the first error says more
                self._runner._finish()  # commands may use the caller's arrays
            raise
        finally:
            for staging, _, _ in self._staged:
                self._memory.release(staging)

    # -- inputs

    def _bind_inputs(self) -> None:
        plan, own = self._plan, self._plan.own_blocks
        tail = [] if self._runner._tail is None else [self._runner._tail]
        for tensor, value in zip(plan.inputs, self._values, strict=True):
            slot = tensor.slot
            assert slot is not None
            if not slot.uses:
                continue
            first = plan.first_use[id(slot)]
            if isinstance(value, DeviceValue) and value.memory is self._memory:
                plan.bind(slot, value.block)
                if value.ready is not None:
                    self._waits.setdefault(first, []).append(value.ready)
                continue
            array = value.numpy() if isinstance(value, DeviceValue) else value
            plan.bind(slot, own[id(slot)])
            if array.nbytes:
                event = self._upload(own[id(slot)], np.ascontiguousarray(array), tail)
                self._waits.setdefault(first, []).append(event)
        if self._uploads:
            self._stream.upload.flush()

    def _upload(self, block: Any, array: NDArray[Any], after: list[Any]) -> Any:
        source = array.reshape(-1).view(np.uint8)
        if not self._memory.is_shared and array.nbytes <= _STAGED_BYTES:
            staging = self._memory.staging(array.nbytes)
            staging.array[: array.nbytes] = source
            self._staged.append((staging, None, None))
            source = staging.array[: array.nbytes]
        event = self._cl.enqueue_copy(
            self._stream.upload, block.buffer, source, is_blocking=False, wait_for=after or None
        )
        self._uploads.append(event)
        self._commands.append(("upload", -1, event))
        return event

    # -- results that stay

    def _bind_kept(self) -> None:
        """Results that stay get memory of their own; the memory of the others is used again by the next run."""
        plan, own = self._plan, self._plan.own_blocks
        fresh: set[int] = set()
        for tensor in plan.outputs:
            slot = tensor.slot
            if slot is None or slot.role in (CONSTANT, INPUT) or id(slot) in fresh:
                continue
            shared = [at for at, other in enumerate(plan.outputs) if other.slot is slot]
            if any(at in self._runner._kept for at in shared):
                block = self._memory.pooled(slot.nbytes)
                plan.bind(slot, block)
                fresh.add(id(slot))
                if block.events and slot.uses:
                    self._waits.setdefault(plan.first_use[id(slot)], []).extend(block.events)
            elif slot.block is not own[id(slot)]:
                plan.bind(slot, own[id(slot)])

    # -- steps

    def _start(self) -> None:
        """Start all steps. A small kernel takes less time than starting it, so the loop does no more than it must."""
        stream, cancellation, plan, is_timed = self._stream, self._runner.cancellation, self._plan, self._runner._timed
        compute, enqueue, launches = stream.compute, self._cl.enqueue_nd_range_kernel, plan.launches
        finished, waits_of = plan.finished, self._waits
        started: collections.deque[Any] = collections.deque()
        event = None
        for number, step in enumerate(plan.steps):
            if cancellation.requested:
                cancellation.check()
            launch = launches[number]
            if launch is None or is_timed or number in waits_of:
                before, waits = event, waits_of.get(number, ())
                event = step.enqueue(stream, waits)
                if is_timed:
                    after = None
                    if isinstance(step, ProductStep):
                        after = [*waits, *(() if before is None else (before,))]
                    self._commands.append(("kernel", step.node, event, after))
            else:
                event = enqueue(compute, *launch)
            self._last = event
            if number in finished:
                for slot in finished[number]:
                    self._ready[id(slot)] = event
                    self._download_results(slot, event)
            if number % _FLUSHED == _FLUSHED - 1:
                compute.flush()
                started.append(event)
                if len(started) > _IN_FLIGHT // _FLUSHED:
                    started.popleft().wait()
        compute.flush()

    def _download_results(self, slot: Slot, event: Any) -> None:
        for position, tensor in enumerate(self._plan.outputs):
            if tensor.slot is slot and position not in self._runner._kept:
                self._download(position, tensor, event)

    def _download(self, position: int, tensor: Tensor, event: Any) -> None:
        """Start the copy of a result. ``event``: what it waits for, or None."""
        assert tensor.slot is not None
        assert tensor.slot.block is not None
        result = np.empty(tensor.shape, tensor.dtype)
        if not result.nbytes:
            self._downloads[position] = result, None
            return
        target = result.reshape(-1).view(np.uint8)
        staging = None
        if not self._memory.is_shared:
            staging = self._memory.staging(result.nbytes)
            target = staging.array[: result.nbytes]
        waits = None if event is None else [event]
        copied = self._cl.enqueue_copy(
            self._stream.download, target, tensor.slot.block.buffer, is_blocking=False, wait_for=waits
        )
        if staging is not None:
            self._staged.append((staging, result, copied))
        self._commands.append(("download", -1, copied))
        self._downloads[position] = result, copied

    # -- results

    def _collect(self) -> list[Any]:
        runner, plan = self._runner, self._plan
        for position, tensor in enumerate(plan.outputs):
            kept, slot = position in runner._kept, tensor.slot
            if not kept and position not in self._downloads and tensor.array is None:
                assert slot is not None
                if slot.role != INPUT:
                    self._download(position, tensor, self._ready.get(id(slot)))
        asked = self._ask_indices()
        self._stream.download.flush()
        self._check_indices(asked)
        for _, copied in self._downloads.values():
            if copied is not None:
                copied.wait()
        for staging, result, _ in self._staged:
            if result is not None:
                result.reshape(-1).view(np.uint8)[:] = staging.array[: result.nbytes]
        for event in self._uploads:  # the caller may change its arrays now
            event.wait()
        results = [self._placed(position, tensor) for position, tensor in enumerate(plan.outputs)]
        is_left = bool(runner._kept) and self._last is not None
        runner._tail = self._last if is_left else None
        if is_left:
            used = [value.block for value in self._values if isinstance(value, DeviceValue)]
            # Also of results: if the caller drops them, the memory may get a new owner while kernels write to it.
            used += [result.value.block for result in results if isinstance(result, OpenclTensor)]
            self._memory.note_use(used, self._last)
        elif self._last is not None:
            self._last.wait()
        if runner._timed:
            if self._last is not None:
                self._last.wait()
            runner.commands = [Command(*command) for command in self._commands]
        return results

    def _placed(self, position: int, tensor: Tensor) -> Any:
        """A result, as a tensor of the device if it stays there."""
        result = self._result(position, tensor)
        if position not in self._runner._kept:
            return result
        context = context_of(self._runner._device)
        return OpenclTensor(context, result) if isinstance(result, DeviceValue) else context.upload(result)

    def _result(self, position: int, tensor: Tensor) -> Any:
        slot, is_kept = tensor.slot, position in self._runner._kept
        if tensor.array is not None:
            return tensor.array.copy()
        assert slot is not None
        if slot.role == INPUT:
            at = next(at for at, given in enumerate(self._plan.inputs) if given.slot is slot)
            value = self._values[at]
            if isinstance(value, DeviceValue):
                viewed = DeviceValue(value.memory, value.block, value.dtype, tensor.shape, value.ready)
                return viewed if is_kept else viewed.numpy()
            return value.reshape(tensor.shape)
        if not is_kept:
            return self._downloads[position][0]
        ready = self._ready.get(id(slot))
        return DeviceValue(self._memory, slot.block, tensor.dtype, tensor.shape, ready)  # type: ignore[arg-type]

    def _ask_indices(self) -> tuple[NDArray[np.int32], Any] | None:
        """Start to copy the flag of the kernels that check indices, if there are any."""
        failed = self._plan.failed
        if failed is None or failed.block is None:
            return None
        flag, event = np.zeros(1, np.int32), self._ready.get(id(failed))
        waits = None if event is None else [event]
        copied = self._cl.enqueue_copy(
            self._stream.download, flag, failed.block.buffer, is_blocking=False, wait_for=waits
        )
        return flag, copied

    def _check_indices(self, asked: tuple[NDArray[np.int32], Any] | None) -> None:
        """Raise `InferenceError` if a kernel read an index that is out of bounds. Waits for the kernels."""
        if asked is None:
            return
        flag, copied = asked
        copied.wait()
        if flag[0]:
            key, op_type = self._runner._planner.keys[int(flag[0]) - 1]
            raise InferenceError(f"{self._runner._name}: node {key!r} ({op_type}): an index is out of bounds")
