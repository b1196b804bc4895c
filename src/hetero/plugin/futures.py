"""Inferences as futures, over the requests of one compiled model."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import HeteroError
from .request import InferRequest
from .tensor import Outputs

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["map_in_order", "submit"]


def submit(
    idle: list[InferRequest], create: Callable[[], InferRequest], inputs: Any, out: Any = None
) -> Future[Outputs]:
    """The future of one inference. It uses a request of ``idle`` or a new one, which joins ``idle`` when it is done."""
    from .inference_future import InferenceFuture  # importing concurrent.futures takes 10 ms

    try:
        request = idle.pop()
    except IndexError:
        request = create()
    future = InferenceFuture(request)

    def finish(error: BaseException | None) -> None:
        results = None if error is not None else request.outputs
        request.set_callback(None)
        idle.append(request)
        future.settle(results, error)

    request.set_callback(finish)
    try:
        future.run = request.begin_run(inputs, out)
    except HeteroError as error:  # wrong inputs; the callback reports later errors
        finish(error)
    return future


def map_in_order(
    start: Callable[[Any], Future[Outputs]], batches: Iterable[Any], in_flight: int, return_exceptions: bool = False
) -> Iterator[Outputs | Exception]:
    """Results in the order of ``batches``, with up to ``in_flight`` running at a time; see `CompiledModel.map`."""
    under_way: collections.deque[Future[Outputs]] = collections.deque()

    def result() -> Outputs | Exception:
        future = under_way.popleft()
        if not return_exceptions:
            return future.result()
        try:
            return future.result()
        except Exception as error:
            return error

    try:
        for batch in batches:
            under_way.append(start(batch))
            if len(under_way) == in_flight:
                yield result()
        while under_way:
            yield result()
    finally:
        for future in under_way:
            future.cancel()
