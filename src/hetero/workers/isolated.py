"""A compiled model in a worker process. A lost worker is replaced."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Cancelled, InferenceError, NotSupported
from ..model.types import Port
from ..plugin.cancellation import Cancellation
from ..plugin.compiled_model import CompiledModel
from ..plugin.profile import ProfileRow
from ..plugin.request import Runner
from .messages import Compile, Done, Failed, Room, Run, Settle, TensorRef, TooSmall, dtype_name
from .per_process import PerProcess
from .shared_memory import SharedPool
from .supervisor import WorkerSupervisor
from .weights import SharedWeights, share_weights
from .worker import Worker

if TYPE_CHECKING:
    from ..artifact.payload import PayloadWriter
    from ..extension.elsewhere import OpDescription
    from ..model.model import Model

__all__ = ["IsolatedModel", "compile_isolated"]

_NOT_PASSED_ON = ("ISOLATION", "WORKER_TIMEOUT_MS", "WORKER_RETRIES", "PLUGIN_TIMEOUT_MS")


def compile_isolated(
    model: Model,
    device: str,
    settings: Mapping[str, Any],
    plugins: Sequence[tuple[str, str]],
    ops: Sequence[OpDescription] = (),
) -> IsolatedModel:
    """Compile ``model`` for ``device`` in a worker process.

    ``settings``: all properties. ``plugins``: the names and targets of registered devices, which the worker registers
    too. ``ops``: custom operators, which the worker adds. Raises the errors of the compilation, `NotSupported` for
    values that cannot pass between processes, and `WorkerLost` if the worker ends during the compilation.
    """
    for port in (*model.inputs, *model.outputs):
        if not port.is_tensor or (port.dtype is not None and port.dtype.hasobject):
            raise NotSupported(
                f"{device}: {port.name!r} is not a tensor of numbers; ISOLATION=PROCESS supports only such tensors"
            )
    if settings.get("CACHE_ENCRYPTION_CALLBACKS") is not None:
        raise NotSupported("ISOLATION=PROCESS does not support CACHE_ENCRYPTION_CALLBACKS: a worker cannot call them")
    pool = _pool.get()
    weights = share_weights(model.with_inferred_types(), pool)
    config = {key: value for key, value in settings.items() if key not in _NOT_PASSED_ON and value is not None}
    request = Compile(
        weights.model,
        weights.refs,
        weights.file_refs,
        device,
        config,
        list(plugins),
        list(ops),
        [str(entry) for entry in sys.path],
    )
    timeout = settings["PLUGIN_TIMEOUT_MS"]
    return IsolatedModel(
        model, _Supervisor(device, pool, request, weights, timeout / 1000 if timeout else None), settings
    )


class _Supervisor(WorkerSupervisor[Worker]):
    """Worker processes that have compiled a model. ``weights``: what ``request`` refers to."""

    def __init__(
        self, device: str, pool: SharedPool, request: Compile, weights: SharedWeights, timeout: float | None
    ) -> None:
        super().__init__(device)
        self.pool = pool
        self._request = request
        self._weights = weights
        self._timeout = timeout

    def start(self) -> Worker:
        worker = Worker(self.name, self.pool)
        try:
            worker.compile(self._request, [file.number for file in self._weights.files], self._timeout)
        except BaseException:
            worker.kill()
            raise
        return worker


class IsolatedModel(CompiledModel):
    """Runs in a worker process, which ends when this object and all its requests are garbage collected."""

    def __init__(self, model: Model, supervisor: _Supervisor, settings: Mapping[str, Any]) -> None:
        streams = supervisor.worker().streams
        properties = {
            **settings,
            "NETWORK_NAME": model.name,
            "NUM_STREAMS": streams,
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS": streams,
        }
        super().__init__(supervisor.name, model.inputs, model.outputs, properties)
        self._supervisor = supervisor

    @property
    def process(self) -> int:
        """The process id of the worker; after a loss, of its replacement."""
        return self._supervisor.worker().process

    def export_payload(self, writer: PayloadWriter) -> None:
        raise NotSupported(
            f"{self._device} cannot export a model that runs in a worker process; to export it, compile it without "
            "ISOLATION"
        )

    def create_runner(self) -> Runner:
        timeout_ms, retries = self._properties["WORKER_TIMEOUT_MS"], self._properties["WORKER_RETRIES"]
        return _Runner(self._supervisor, self._outputs, timeout_ms / 1000 if timeout_ms else None, retries)


class _Runner:
    """Runs one inference at a time in the worker; see `hetero.plugin.request.Runner`."""

    def __init__(self, supervisor: _Supervisor, outputs: Sequence[Port], timeout: float | None, retries: int) -> None:
        self.cancellation = Cancellation()
        self._supervisor = supervisor
        self._pool = supervisor.pool
        self._timeout = timeout
        self._retries = retries
        self._rows: Sequence[ProfileRow] = ()
        self._sizes = [_stated_bytes(port) for port in outputs]

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        pool = self._pool
        if pool is not _pool.get():
            raise InferenceError(
                f"{self._supervisor.name}: the worker belongs to the parent process: compile the model again in this "
                "process"
            )
        shared = [pool.share(array) for array in inputs]
        refs = [TensorRef(offset, dtype_name(array.dtype), array.shape) for array, offset in shared]
        return self._supervisor.run(lambda worker: self._run_on(worker, shared, refs), self._retries)

    def _run_on(self, worker: Worker, shared: Any, refs: list[TensorRef]) -> list[NDArray[Any]]:
        with worker.lane(self._stop) as lane:
            if lane is None:
                raise Cancelled("the inference was cancelled before it began")
            rooms, places = self._rooms()
            answer = worker.ask(lane, Run(refs, places), (shared, rooms), self._timeout, self._stop)
            if isinstance(answer, TooSmall):
                self._sizes = answer.sizes
                rooms, places = self._rooms()
                answer = worker.ask(lane, Settle(places), rooms, self._timeout, self._stop)
        if isinstance(answer, Failed):
            raise answer.error()
        if not isinstance(answer, Done):
            raise worker.lost(f"answered {type(answer).__name__}, expected results")
        self._rows = answer.rows()
        # Each array keeps its room alive.
        return [
            np.ndarray(ref.shape, ref.numpy_dtype, buffer=room) for room, ref in zip(rooms, answer.results, strict=True)
        ]

    def _rooms(self) -> tuple[list[NDArray[Any]], list[Room]]:
        blocks = [self._pool.empty((size,), np.uint8) for size in self._sizes]
        return [array for array, _ in blocks], [Room(offset, array.nbytes) for array, offset in blocks]

    def _stop(self) -> bool:
        return self.cancellation.requested

    def profile(self) -> Sequence[ProfileRow]:
        return self._rows


def _stated_bytes(port: Port) -> int:
    """The size of a result in B if it is fixed; otherwise 0, and the first inference finds the size."""
    if port.dtype is None or port.shape is None or not all(isinstance(dim, int) for dim in port.shape):
        return 0
    return int(np.prod(port.shape, dtype=np.int64)) * port.dtype.itemsize  # type: ignore[arg-type]


_pool = PerProcess(SharedPool)
"""One pool for all workers, so that workers read each other's results without a copy. A forked child gets its own pool,
so that its writes do not appear in the parent."""
