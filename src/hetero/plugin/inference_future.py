"""A `concurrent.futures.Future` whose `cancel` stops the inference."""

from __future__ import annotations

import concurrent.futures

from .request import AsyncRun, InferRequest
from .tensor import Outputs

__all__ = ["InferenceFuture"]


class InferenceFuture(concurrent.futures.Future[Outputs]):
    """The results of one inference. It stays pending, and can be cancelled, until it is settled."""

    def __init__(self, request: InferRequest) -> None:
        super().__init__()
        self._request = request
        self.run: AsyncRun | None = None

    def __repr__(self) -> str:
        if not self.done():
            state = "running" if self.running() else "pending"
        elif self.cancelled():
            state = "cancelled"
        else:
            error = self.exception()
            state = repr(self.result()) if error is None else f"failed with {type(error).__name__}"
        return f"<{type(self).__name__}: {state}>"

    def cancel(self) -> bool:
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()  # wakes callers of concurrent.futures.wait
        if self.run is not None:
            self._request.cancel_run(self.run)
        return True

    def settle(self, results: Outputs | None, error: BaseException | None) -> None:
        try:
            if results is None:
                self.set_exception(error)
            else:
                self.set_result(results)
        except concurrent.futures.InvalidStateError:
            pass  # cancelled
