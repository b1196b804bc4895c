"""One inference at a time over a compiled model: bind inputs, run, hand out results.

A request owns what one inference needs beyond the compiled model (its runner), so requests of one compiled model
may be used from different threads; one request runs one inference at a time.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..errors import HeteroError, InferenceError, NotSupported
from ..model.types import Port
from .profile import ProfileRow
from .tensor import Outputs, bind_inputs, check_outputs

__all__ = ["InferRequest", "RepeatingRunner", "RequestState", "Runner"]


@runtime_checkable
class Runner(Protocol):
    """What a device gives per request: runs one inference on arrays in the order of the compiled model's ports."""

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Results in the order of the output ports.

        ``inputs`` have the ports' dtypes and shapes, may be non-contiguous and are not written. The results are not
        written again by the runner, and may be inputs, views of inputs, or constants marked read-only.
        """
        ...

    def profile(self) -> Sequence[ProfileRow]:
        """Counters of the last run; empty unless the model was compiled with ``PERF_COUNT``."""
        ...


@runtime_checkable
class RepeatingRunner(Runner, Protocol):
    """A runner that tells by itself whether inputs are like those of the last run, which spares checking them."""

    def run_again(self, inputs: Sequence[Any]) -> list[np.ndarray] | None:
        """What `run` gives, as fresh arrays, if the inputs are NumPy arrays of the dtypes and shapes of the last
        successful run and there are no counters to take; None otherwise, and then nothing has happened."""
        ...


class RequestState(enum.Enum):
    """States of a request."""

    IDLE = "idle"
    BUSY = "busy"
    CANCELLED = "cancelled"
    FAILED = "failed"


_IDLE, _BUSY, _FAILED = RequestState.IDLE, RequestState.BUSY, RequestState.FAILED  # looking them up costs time


class InferRequest:
    """A reusable request of one compiled model. Made by `CompiledModel.create_infer_request`."""

    def __init__(self, device: str, inputs: Sequence[Port], outputs: Sequence[Port], runner: Runner) -> None:
        self._device = device
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._positions = {port.name: position for position, port in enumerate(outputs)}
        self._runner = runner
        self._names = tuple(port.name for port in inputs)
        self._run_again = runner.run_again if isinstance(runner, RepeatingRunner) else None
        self._may_repeat = False  # the last run's inputs and results passed all checks
        self._lock = threading.Lock()
        self._state = RequestState.IDLE
        self._profile: tuple[ProfileRow, ...] = ()

    @property
    def state(self) -> RequestState:
        return self._state

    @property
    def profiling_info(self) -> tuple[ProfileRow, ...]:
        """Counters of the last inference; empty unless compiled with ``PERF_COUNT``."""
        return self._profile

    def infer(self, inputs: Any) -> Outputs:
        """Run one inference in the calling thread.

        ``inputs``: input name -> array (NumPy or ``__dlpack__``), or one array if the model has one input. Not written.
        Raises `InferenceError`: for a missing or mis-shaped input, and then the request stays usable; for a node
        that failed; and for a request that is busy in another thread.
        """
        results = self._repeated(inputs) if self._may_repeat else None
        if results is None:
            results = self._checked(inputs)
        return Outputs(self._positions, results)

    def _repeated(self, inputs: Any) -> list[np.ndarray] | None:
        """The results if the inputs are like the last run's, else None: the checks of that run hold for them."""
        if type(inputs) is dict:
            if len(inputs) != len(self._names):
                return None
            try:
                arrays = [inputs[name] for name in self._names]
            except KeyError:
                return None
        else:
            arrays = [inputs]
        self._begin()
        state = _FAILED
        try:
            assert self._run_again is not None
            results = self._run_again(arrays)
            state = _IDLE
        except HeteroError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        finally:
            self._state = state
        return results

    def _checked(self, inputs: Any) -> list[Any]:
        arrays = bind_inputs(self._inputs, inputs)
        self._begin()
        self._may_repeat = False
        state = _FAILED
        try:
            results = self._run(arrays)
            self._profile = tuple(self._runner.profile())
            state = _IDLE
            self._may_repeat = self._run_again is not None
        finally:
            self._state = state
        return [_owned(result, arrays) for result in results]

    def _begin(self) -> None:
        with self._lock:
            if self._state is _BUSY:
                raise InferenceError("the request is busy: wait for it, or create a request per thread")
            self._state = _BUSY

    def _failure(self, error: Exception) -> InferenceError:
        return InferenceError(f"{self._device}: inference failed: {type(error).__name__}: {error}")

    def _run(self, arrays: list[np.ndarray]) -> Sequence[np.ndarray]:
        try:
            results = self._runner.run(arrays)
        except HeteroError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        if len(results) != len(self._outputs):
            raise InferenceError(
                f"{self._device}: expected {len(self._outputs)} results, its runner gave {len(results)}"
            )
        check_outputs(self._outputs, results, self._device)
        return results

    def start_async(self, inputs: Any = None) -> None:
        raise NotSupported("asynchronous requests are not built yet; call infer() in a thread of your own")

    def wait(self, timeout_ms: float | None = None) -> bool:
        raise NotSupported("asynchronous requests are not built yet; infer() returns when it is done")

    def cancel(self) -> None:
        raise NotSupported("asynchronous requests are not built yet; infer() cannot be cancelled")

    def set_callback(self, callback: Callable[[BaseException | None], None]) -> None:
        raise NotSupported("asynchronous requests are not built yet; infer() returns when it is done")


def _owned(result: Any, inputs: Sequence[Any]) -> Any:
    """``result``, or a copy if it is a constant or shares memory with an input: the caller may write into it."""
    if not isinstance(result, np.ndarray):
        return [_owned(item, inputs) for item in result] if isinstance(result, list) else result
    if not result.flags.writeable or any(_shares_memory(result, given) for given in inputs):
        return result.copy()
    return result


def _shares_memory(result: np.ndarray, given: Any) -> bool:
    if isinstance(given, list):
        return any(_shares_memory(result, item) for item in given)
    return given is not None and np.may_share_memory(result, given)
