"""Requests: bind inputs, run one inference of a compiled model, return results.

A request owns the runner, which holds the state of one inference, so different threads may use different requests of
one compiled model. A request runs one inference at a time: in the calling thread (`infer`), or in a thread of the
device's executor (`start_async`, then `wait` or a callback).
"""

from __future__ import annotations

import abc
import enum
import threading
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, Never, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._kernels import apart
from .._sizes import RequestStates
from ..base.notebook import html_table
from ..base.other_names import OtherNames
from ..errors import Cancelled, HeteroError, InferenceError, QueueFull, inference_error
from ..model.types import Port
from .address_ranges import UsedMemory
from .cancellation import Cancellation
from .executor import StreamExecutor
from .given_outputs import GivenOutputs, bind_out
from .profile import Profile, ProfileRow, Span
from .remote import NO_MEMORIES, HostTensor, PortMemories, RemoteTensor
from .tensor import NO_INPUTS, Outputs, bind_inputs, check_outputs

__all__ = [
    "AsyncRun",
    "Callback",
    "InferRequest",
    "PlacingRunner",
    "RepeatingRunner",
    "RequestState",
    "Runner",
    "owned",
]

_NOTHING: frozenset[int] = frozenset()

Callback = Callable[[BaseException | None], None]


class Executor(Protocol):
    """Runs the inferences of requests; see `hetero.plugin.executor`."""

    def submit(self, work: AsyncRun, /) -> None:
        """Queue ``work``. Raises `RuntimeError` or `QueueFull` if it cannot run."""
        ...

    def withdraw(self, work: AsyncRun, /) -> bool:
        """Remove ``work`` from the queue. Returns False if it has started."""
        ...

    def serves_here(self) -> bool:
        """Whether the calling thread belongs to this executor."""
        ...


@runtime_checkable
class Runner(Protocol):
    """The state of one request of a device. Runs one inference on arrays in the order of the compiled model's ports.

    A runner without counters inherits from this class, for its `profile`. A runner that can stop early has an attribute
    ``cancellation``, a `Cancellation` that it checks while it runs; a run of any other runner is cancelled at its end.
    """

    @abc.abstractmethod
    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Results in the order of the output ports.

        ``inputs`` have the ports' dtypes and shapes and may be non-contiguous. The runner must not write to them, and
        must not read them after `run` returns. It must not write to results of earlier runs. Results may be inputs,
        views of inputs or of each other, or constants marked read-only.
        """
        ...

    def profile(self) -> Sequence[ProfileRow]:
        """Counters of the last run; empty unless the model was compiled with ``PERF_COUNT``."""
        return ()


@runtime_checkable
class RepeatingRunner(Runner, Protocol):
    """A runner that detects whether inputs match those of the last run; hetero then skips its checks of the inputs."""

    def run_again(self, inputs: Sequence[Any]) -> list[np.ndarray] | None:
        """The results of `run`, as new arrays, if the inputs are NumPy arrays with the dtypes of the last successful
        run, their shapes are those of that run or others that the runner has checked, and no counters are needed.
        Otherwise returns None and does nothing."""
        ...


@runtime_checkable
class PlacingRunner(Runner, Protocol):
    """A runner that can write results to given memory, such as memory shared with another process."""

    def run_into(self, inputs: Sequence[np.ndarray], places: Sequence[NDArray[np.uint8]]) -> Sequence[np.ndarray]:
        """`run`. ``places``: memory for each result, one-dimensional, C-contiguous and writeable, apart from the
        inputs. It may be too small. A result whose array does not begin where its place begins is elsewhere. If hetero
        moves values in the memory of the device, a place can also be a tensor there (`RemoteContext.moves_values`)."""
        ...


@runtime_checkable
class AppendingRunner(Runner, Protocol):
    """A runner that can make a result out of an input by appending to it in the same memory."""

    def append_to_states(self, states: Sequence[tuple[int, int]]) -> None:
        """For each pair (position of an input, position of an output), the result is the input of a later run. It may
        therefore be a view that is not contiguous and shares memory with the input. The runner must still not change
        elements of an input or of an earlier result, nor does the caller. Called before the first run."""
        ...


@runtime_checkable
class ScratchRunner(Runner, Protocol):
    """A runner that can use the memory for intermediate values of another one, so that it stays in the caches."""

    def share_scratch(self, other: Any) -> None:
        """From now on, use the memory of ``other``, a runner of the same class. The two never run in parallel.
        Called before the first run. Inputs and results must stay outside this memory."""
        ...


class RequestState(enum.Enum):
    """States of a request. An inference can start in every state except BUSY."""

    IDLE = "idle"
    BUSY = "busy"
    CANCELLED = "cancelled"
    FAILED = "failed"


# Module variables, because looking up enum members takes time.
_IDLE, _BUSY, _CANCELLED, _FAILED = (
    RequestState.IDLE,
    RequestState.BUSY,
    RequestState.CANCELLED,
    RequestState.FAILED,
)


class InferRequest(OtherNames):
    """A reusable request of one compiled model. `CompiledModel.create_infer_request` creates it.

    Several threads may use it. If two threads start it at the same time, one of them gets an `InferenceError`.
    """

    other_names = types.MappingProxyType(
        {
            **dict.fromkeys(
                ("set_tensor", "set_tensors", "set_input_tensor", "set_input_tensors"), "request.infer(inputs)"
            ),
            **dict.fromkeys(("set_output_tensor", "set_output_tensors"), "request.infer(inputs, out=arrays)"),
            **dict.fromkeys(
                ("get_tensor", "get_output_tensor", "output_tensors", "results"),
                "the result of request.infer, or request.outputs after start_async",
            ),
            **dict.fromkeys(
                ("get_input_tensor", "input_tensors"), "the arrays that were passed to request.infer, which keeps none"
            ),
            "get_compiled_model": "the compiled model that created the request",
            "reset_state": "compiled.create_stateful_request",
            "get_profiling_info": "request.profiling_info",
            "latency": "request.latency_ms",
            "wait_for": "request.wait(timeout_ms)",
            "userdata": "functools.partial in request.set_callback",
            "query_state": "compiled.create_stateful_request",
            **dict.fromkeys(("inputs", "model_inputs"), "compiled.inputs"),
            "model_outputs": "compiled.outputs",
        }
    )

    def __init__(
        self,
        device: str,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        runner: Runner,
        executor: Callable[[], Executor] | None = None,
        timed: bool = False,
        memories: PortMemories = NO_MEMORIES,
        on_device: frozenset[int] = _NOTHING,
    ) -> None:
        """``executor``: returns the executor for `start_async`; None for an executor of the request's own. ``timed``:
        record the time span of each inference in `Profile.spans`. ``on_device``: positions of the outputs that stay on
        their devices unless ``out`` says otherwise."""
        self._device = device
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._positions = {port.name: position for position, port in enumerate(outputs)}
        self._free_positions = self._positions  # of what callers receive
        self._runner = runner
        self._names = tuple(port.name for port in inputs)  # of what callers pass
        self._values: RequestStates | None = None  # of a request with states
        # The check of a protocol takes longer than a small model.
        self._run_again: Callable[..., list[np.ndarray] | None] | None = getattr(runner, "run_again", None)
        self._run_into: Callable[..., Sequence[np.ndarray]] | None = getattr(runner, "run_into", None)
        self._memories = memories
        self._on_device = on_device
        self._kept = _NOTHING  # what the runner was told last
        self._may_repeat = False  # the last run's inputs and results passed all checks
        self._lock = threading.Lock()
        self._state = RequestState.IDLE
        self._timed = timed
        self._profile = Profile()
        self._cancellation: Cancellation = getattr(runner, "cancellation", None) or Cancellation()
        self._executor_of = executor
        self._executor: Executor | None = None
        self._callback: Callback | None = None
        self._started: AsyncRun | None = None  # the last one

    @property
    def state(self) -> RequestState:
        """Whether the request is running, or how its last inference ended."""
        return self._state

    @property
    def profiling_info(self) -> Profile:
        """Counters of the last inference, a tuple of rows; empty unless compiled with ``PERF_COUNT``."""
        return self._profile

    @property
    def latency_ms(self) -> float | None:
        """The time from the last `start_async` until its inference was done, in ms, with the time that it waited for a
        thread of the device. None before the first inference of `start_async`, and while one runs."""
        return None if self._started is None else self._started.latency_ms

    def __reduce__(self) -> NoReturn:  # a copy would share the memory of the inference
        raise TypeError(
            "a request cannot be copied or pickled: create another one with compiled.create_infer_request()"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._device}: {self._state.value}>"

    def _repr_html_(self) -> str:
        """The state and the counters of the last inference, for notebooks."""
        profile = self._profile
        title = f"Request on {self._device}: {self._state.value}"
        if not profile:
            return html_table(f"{title}; no counters, because no inference with PERF_COUNT has ended", (), (), 0)
        rows = ((row.node, row.layer_type, row.exec_type, f"{row.real_us:.0f}", row.subgraph or "") for row in profile)
        columns = ("node", "operator", "executed as", "µs", "subgraph")
        return html_table(title, columns, rows, len(profile))

    def infer(self, inputs: Any = NO_INPUTS, out: Any = None) -> Outputs:
        """Run one inference in the calling thread.

        ``inputs``: input -> array (NumPy or ``__dlpack__``), by name, position or port; a list of arrays in the order
        of the inputs; one array if the model has one input; or left out if the model has no inputs, or values for all
        of them. They are not modified. The callback is not called.

        ``out``: arrays that receive results, by output name, or a sequence in the order of the outputs; None leaves an
        output to the device. They are NumPy arrays, or have ``__dlpack__`` or a buffer, or are `RemoteTensor` objects.
        Each must have the dtype and shape of its result, be writable and C-contiguous, and overlap no input and no
        other one. The returned `Outputs` hold the given objects. If the inference fails, the contents of the arrays
        are undefined. `hetero.ON_DEVICE` in place of an array, or alone for all outputs: the result stays on its
        device and is returned as a `RemoteTensor`.

        Raises `InferenceError` for a missing or wrongly shaped input (the state then stays the same), for a node that
        fails, and if another thread uses the request. Raises `Cancelled` if another thread cancels the inference.
        """
        if self._may_repeat and out is None:
            results = self._repeated(inputs)
            if results is not None:
                return Outputs(self._free_positions, results)
        return self._checked(inputs, out)

    def _repeated(self, inputs: Any) -> list[np.ndarray] | None:
        """The results if the inputs have the types of the last run's, which makes checks unnecessary; otherwise
        None."""
        # Every call of a small model runs this code, so it calls no helper functions.
        names = self._names
        arrays: Sequence[Any]
        if type(inputs) is dict:
            if len(inputs) != len(names):
                return None
            try:
                arrays = [inputs[names[0]]] if len(names) == 1 else [inputs[name] for name in names]
            except KeyError:
                return None
        elif len(names) == 1:
            arrays = [inputs]
        else:
            return None
        cancellation, values = self._cancellation, self._values
        with self._lock:
            if self._state is _BUSY:
                raise self._busy()
            self._state = _BUSY
            if values is not None:
                # `_bound` checks types and shapes of all inputs. Here the runner compares the types with those of the
                # last run, so what remains are shapes: those of the ports, and the same sizes for symbols of states.
                arrays = values.join(arrays)
            if cancellation.requested:  # from an earlier inference
                cancellation.clear()
        state = _FAILED
        try:
            assert self._run_again is not None
            results = self._run_again(arrays)
            if cancellation.requested:
                raise Cancelled("the inference was cancelled")
            if values is not None and results is not None:
                # They are new arrays of the last run's types, so states share no memory with what the caller has.
                others = values.part(results)
                results = list(self._finish(results)) if others is None else others
            state = _IDLE
        except Cancelled:
            state = _CANCELLED
            raise
        except HeteroError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        finally:
            self._state = state
        return results

    def _bound(self, inputs: Any, out: Any) -> tuple[list[Any], GivenOutputs | None]:
        """The checked arguments of an inference."""
        arrays = bind_inputs(self._inputs, inputs, self._memories.inputs)
        if out is None and self._on_device:
            return arrays, GivenOutputs(self._outputs, {}, {}, {}, self._on_device)
        return arrays, None if out is None else bind_out(self._outputs, out, arrays, self._memories.outputs)

    def _checked(self, inputs: Any, out: Any) -> Outputs:
        arrays, given = self._bound(inputs, out)
        self._begin(given)
        state = _FAILED
        try:
            results = self._results(arrays, given)
            if self._cancellation.requested:  # requested too late to stop the run
                raise Cancelled("the inference was cancelled")
            outputs = self._finish(results)
            state = _IDLE
        except Cancelled:
            state = _CANCELLED
            raise
        finally:
            self._state = state
        return outputs

    def _deliver(self, results: Sequence[Any], inputs: Sequence[Any], given: GivenOutputs | None) -> list[Any]:
        """The results as the caller gets them: those for given memory are there, the others are the caller's own.
        Arrays that should stay on their device become `HostTensor` objects."""
        if given is None:
            return owned(results, inputs)
        used = None
        if len(given.values) < len(results):
            used = UsedMemory([*inputs, *given.memory.values(), *given.tensors.values()])
        return self._placed(results, used, given)

    def _placed(self, results: Sequence[Any], used: UsedMemory | None, given: GivenOutputs) -> list[Any]:
        """`_deliver` for given memory. ``used``: the memory that the other results must not share, if there are any."""
        given.check(results)
        apart = [None if position in given.values else result for position, result in enumerate(results)]
        if used is not None:
            apart = [apart_from(used, result) for result in apart]
        given.fill(results)
        return [
            HostTensor(np.asarray(result, order="C")) if at in given.kept and _is_plain(result) else result
            for at, result in enumerate(given.values.get(at, result) for at, result in enumerate(apart))
        ]

    def _finish(self, results: list[Any]) -> Outputs:
        """Converts the results of a successful inference to the outputs that the caller receives. The request is still
        busy."""
        return Outputs(self._positions, results)

    def _results(self, arrays: list[Any], given: GivenOutputs | None) -> list[Any]:
        """Run on checked arrays."""
        self._may_repeat = False
        begin = time.perf_counter_ns() if self._timed else 0
        results = self._run(arrays, given)
        end = time.perf_counter_ns() if self._timed else 0
        rows = self._runner.profile()
        if rows or self._profile or self._timed:
            self._profile = self._noted(rows, begin, end)
        self._may_repeat = self._run_again is not None and not self._kept and not self._on_device
        return self._deliver(results, arrays, given)

    def accept(
        self, results: Sequence[Any], arrays: list[Any], given: GivenOutputs | None, profile: Profile
    ) -> list[Any]:
        """The results of `infer`, from results computed elsewhere. Raises `InferenceError` if they are wrong."""
        check_outputs(self._outputs, results, self._device)
        if profile or self._profile:
            self._profile = profile
        return self._deliver(results, arrays, given)

    def _noted(self, rows: Sequence[ProfileRow], begin: int, end: int) -> Profile:
        """The counters, with the time span of the whole run if the runner reports no spans."""
        if isinstance(rows, Profile):
            return rows
        if not self._timed or not rows:
            return Profile(rows)
        return Profile(rows, [Span(0, self._device, threading.current_thread().name, begin, end)])

    def _begin(self, given: GivenOutputs | None) -> None:
        """Make the request busy with an inference. ``given``: as `_bound` returned it."""
        with self._lock:
            if self._state is _BUSY or self._is_stale(given):
                raise self._busy()
            self._state = _BUSY
            if self._cancellation.requested:  # from an earlier inference
                self._cancellation.clear()

    def _is_stale(self, given: GivenOutputs | None) -> bool:
        """Whether arguments that `_bound` checked no longer hold."""
        return False

    def _busy(self) -> InferenceError:
        return InferenceError("the request is busy: wait for it, or create a request per thread")

    def _failure(self, error: Exception) -> InferenceError:
        return inference_error(f"{self._device}: inference failed: {type(error).__name__}: {error}", error)

    def _run(self, arrays: list[Any], given: GivenOutputs | None) -> Sequence[Any]:
        try:
            if self._memories.outputs:
                kept = self.kept_positions(given)
                if kept != self._kept:
                    self._runner.keep_on_device(sorted(kept))  # type: ignore[attr-defined]
                    self._kept = kept
            if given is not None and self._run_into is not None and (given.memory or given.tensors):
                results = self._run_into(arrays, given.places(self._memories.outputs))
            else:
                results = self._runner.run(arrays)
        except HeteroError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        if len(results) != len(self._outputs):
            raise InferenceError(
                f"{self._device}: expected {len(self._outputs)} results, its runner returned {len(results)}"
            )
        check_outputs(self._outputs, results, self._device)
        return results

    def kept_positions(self, given: GivenOutputs | None) -> frozenset[int]:
        """The positions of the outputs that stay in the memory of a device."""
        return _NOTHING if given is None else frozenset(given.kept & self._memories.outputs.keys())

    def start_async(self, inputs: Any = NO_INPUTS, out: Any = None) -> None:
        """Start one inference in a thread of the device's executor, and return.

        ``inputs``, ``out``: as for `infer`. Do not modify the inputs or use ``out`` until the inference is done. Raises
        `InferenceError` for wrong arguments and for a busy request. `wait` raises later errors, and the callback
        receives them.
        """
        self.begin_run(inputs, out)

    def begin_run(self, inputs: Any, out: Any = None) -> AsyncRun:
        """`start_async`. Returns the argument for `cancel_run`."""
        arrays, given = self._bound(inputs, out)
        self._begin(given)
        run = AsyncRun(self, arrays, given)
        before, self._started = self._started, run
        try:
            if self._executor is None:
                self._executor = self._executor_of() if self._executor_of else StreamExecutor(self._device, 1)
            self._executor.submit(run)
        except QueueFull:
            self._started, self._state = before, _IDLE
            raise
        except RuntimeError as error:
            failure = inference_error(f"{self._device}: no thread to run in: {error}", error)
            failure.__cause__ = error
            self._state = _FAILED
            run.fail(failure)
            raise failure from error
        return run

    def wait(self, timeout_ms: float | None = None) -> bool:
        """Wait for the last inference of `start_async`. Returns False if it is not done within ``timeout_ms``.

        Returns True immediately if no inference was started. Raises the error of the inference: `InferenceError`
        (also if its callback raised) or `Cancelled`. In a callback, it raises `InferenceError` if the wait would
        deadlock. A wait that is interrupted (Ctrl-C) or times out does not stop the inference; `cancel` does.
        """
        run = self._started
        if run is None:
            return True
        if self._executor is not None and not run.is_settled and self._executor.serves_here():
            raise InferenceError("a callback must not wait for an inference that runs after it in the same thread")
        if not run.wait(None if timeout_ms is None else timeout_ms / 1000):
            return False
        if run.error is not None:
            raise run.error
        return True

    @property
    def outputs(self) -> Outputs:
        """The results of the last inference of `start_async`. (`infer` returns its results.)

        Raises the error of the inference, or `InferenceError` if it is not done or was not started.
        """
        run = self._started
        if run is None or not run.is_settled:
            raise InferenceError("no results: call start_async() first, and then wait()")
        if run.results is None:
            assert run.error is not None
            raise run.error
        return run.results

    def cancel(self) -> None:
        """Ask the running inference to stop. Does nothing if no inference is running.

        The inference ends as CANCELLED, and `wait` raises `Cancelled`: immediately if the inference has not started,
        otherwise as soon as the device can stop. The request can then be used again.
        """
        self.cancel_run(self._started)

    def cancel_run(self, run: AsyncRun | None) -> None:
        """`cancel`, but only if ``run`` is still the last inference."""
        with self._lock:
            if self._state is not _BUSY or self._started is not run:
                return
            self._cancellation.request()
            executor = self._executor
        if run is not None and executor is not None and executor.withdraw(run):
            run.settle(None, Cancelled("the inference was cancelled before it began"))

    def set_callback(self, callback: Callback | None, *userdata: Never) -> None:
        """Call ``callback(error)`` after each inference of `start_async`, before `wait` returns.

        ``error``: the exception that `wait` will raise, or None. The callback runs in the thread that ran the
        inference, or in the thread that cancelled it. It may start the request again. If it raises, the request fails.
        """
        if userdata:
            raise TypeError(
                "set_callback has one argument: to pass data to the callback, write "
                "set_callback(functools.partial(callback, data)), which is called with the data and the error"
            )
        self._callback = callback


class AsyncRun:
    """One inference of `start_async`, as work for an executor."""

    __slots__ = (
        *("_arrays", "_begin_ns", "_finished", "_given", "_request", "_thread"),
        *("carrier", "error", "is_settled", "latency_ms", "results"),
    )

    def __init__(self, request: InferRequest, arrays: list[Any], given: GivenOutputs | None) -> None:
        self._begin_ns = time.perf_counter_ns()
        self.latency_ms: float | None = None
        """The time from `start_async` until the inference was done."""
        self._given = given
        self._request: InferRequest | None = request  # until it is settled
        self._arrays: list[Any] | None = arrays
        self._finished = threading.Event()
        self._thread: int | None = None  # the thread that settles it
        self.results: Outputs | None = None
        self.error: BaseException | None = None
        self.is_settled = False
        self.carrier: Any = None
        """State of an executor that runs the inference in parts."""

    def under_way(self) -> tuple[list[Any], Cancellation]:
        """The inputs and the cancellation flag. Raises `Cancelled` if the inference is already settled."""
        request, arrays = self._request, self._arrays
        if request is None or arrays is None:
            raise Cancelled("the inference was abandoned")
        return arrays, request._cancellation

    @property
    def kept(self) -> frozenset[int]:
        """The positions of the outputs that stay in the memory of a device."""
        request = self._request
        return _NOTHING if request is None else request.kept_positions(self._given)

    def complete(self, results: Sequence[Any], profile: Profile) -> None:
        """`run`, for results that were computed in parts."""
        request, arrays = self._request, self._arrays
        if request is None or arrays is None:
            return
        outputs: Outputs | None = None
        error: BaseException | None = None
        try:
            accepted = request.accept(results, arrays, self._given, profile)
            if request._cancellation.requested:
                error = Cancelled("the inference was cancelled")
            else:
                outputs = request._finish(accepted)
        except BaseException as raised:
            error = raised
        self.settle(outputs, error)

    def run(self) -> None:
        request, arrays = self._request, self._arrays
        if request is None or arrays is None:
            return  # abandoned
        results: Outputs | None = None
        error: BaseException | None = None
        try:
            delivered = request._results(arrays, self._given)
            if request._cancellation.requested:
                error = Cancelled("the inference was cancelled")
            else:
                results = request._finish(delivered)
        except BaseException as raised:  # `wait` raises it
            error = raised
        self.settle(results, error)

    def abandon(self, why: str) -> None:
        request = self._request
        if request is not None:
            # After a fork, threads that no longer exist may hold the locks.
            request._lock = threading.Lock()
            self._finished = threading.Event()
            self.settle(None, InferenceError(f"the inference was abandoned: {why}"))

    def interrupt(self) -> None:
        request = self._request
        if request is not None:
            request._cancellation.request()

    def settle(self, results: Outputs | None, error: BaseException | None) -> None:
        """Store the outcome, call the callback, and wake the waiting threads."""
        request = self._request
        if request is None:
            return
        self._thread = threading.get_ident()
        self.latency_ms = (time.perf_counter_ns() - self._begin_ns) * 1e-6
        self.results, self.error = results, error
        self._request = self._arrays = self._given = self.carrier = None
        with request._lock:
            callback = request._callback
            request._state = _IDLE if error is None else _CANCELLED if isinstance(error, Cancelled) else _FAILED
            self.is_settled = True
        if callback is not None:
            try:
                callback(error)
            except BaseException as raised:
                self.error = InferenceError(f"the callback raised {type(raised).__name__}: {raised}")
                self.error.__cause__ = raised
                with request._lock:
                    if request._started is self and request._state is not _BUSY:
                        request._state = _FAILED
        self._finished.set()

    def fail(self, error: InferenceError) -> None:
        """The inference cannot start. The callback is not called."""
        self.error, self.is_settled = error, True
        self._request = self._arrays = self._given = None
        self._finished.set()

    def wait(self, timeout: float | None) -> bool:
        """Whether the inference finishes within ``timeout`` seconds. In its own callback, it counts as finished."""
        if self.is_settled and self._thread == threading.get_ident():
            return True
        return self._finished.wait(timeout)


def _is_plain(result: Any) -> bool:
    """Whether ``result`` is an array of numbers."""
    return isinstance(result, np.ndarray) and not result.dtype.hasobject


def owned(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """``results`` that the caller may modify. Copies each result that is a constant (read-only), or that shares memory
    with an input or with an earlier result."""
    found = apart(results, inputs)
    if found is not None:
        return found
    used = UsedMemory(inputs)
    return [apart_from(used, result) for result in results]


def apart_from(used: UsedMemory, result: Any, adds: bool = True) -> Any:
    """A result, or a copy if it is read-only or shares memory with ``used``. ``adds``: adds what it returns to
    ``used``."""
    if isinstance(result, np.ndarray):
        if not result.flags.writeable or used.overlaps(result):
            return result.copy()
        if adds:
            used.add(result)
        return result
    if isinstance(result, RemoteTensor):
        if result.context is not None and (not result.is_writable or used.overlaps(result)):
            return result.context.upload(result.numpy())
        if adds:
            used.add(result)
        return result
    if isinstance(result, list):  # a sequence; often of thousands of maps, which hold no arrays
        is_maps = set(map(type, result)) == {dict}
        return list(result) if is_maps else [apart_from(used, item, adds) for item in result]
    return result
