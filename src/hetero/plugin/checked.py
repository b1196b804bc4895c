"""Checks around the runners of devices: errors name the device, and results must match the output ports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import HeteroError, InferenceError, inference_error
from ..model.types import Port
from .cancellation import Cancellation
from .profile import ProfileRow
from .request import Runner
from .tensor import check_outputs

__all__ = ["CheckedRunner", "RepeatingCheckedRunner", "checked_runner"]


class CheckedRunner:
    """A runner around another. An exception, or a result that does not match its port, becomes an `InferenceError` that
    names the device and the nodes."""

    def __init__(self, runner: Runner, device: str, subject: str, outputs: Sequence[Port]) -> None:
        """``subject``: the model that it runs, ``of 'name' (node 'a')``."""
        self._runner = runner
        self._device = device
        self._subject = subject
        self._outputs = outputs
        self.cancellation = getattr(runner, "cancellation", None) or Cancellation()
        self._left: frozenset[int] = frozenset()

    def keep_on_device(self, positions: Sequence[int]) -> None:
        """See `CompiledModel.memory_space`: results at these positions stay on the device and are not checked."""
        keep = getattr(self._runner, "keep_on_device", None)
        if keep is None:
            raise InferenceError(
                f"{self._device}: the model of an inference {self._subject} has a memory space, but its runner "
                f"({type(self._runner).__name__}) has no method keep_on_device(positions)"
            )
        try:
            keep(positions)
        except Exception as error:
            raise self._named(error) from error
        self._left = frozenset(positions)

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return self._checked(functools.partial(self._runner.run, inputs))

    def run_into(self, inputs: Sequence[np.ndarray], places: Sequence[NDArray[np.uint8]]) -> Sequence[np.ndarray]:
        """See `PlacingRunner`; calls `run` if the inner runner does not have this method."""
        run_into = getattr(self._runner, "run_into", None)
        return self.run(inputs) if run_into is None else self._checked(functools.partial(run_into, inputs, places))

    def _checked(self, run: Callable[[], Sequence[np.ndarray]]) -> Sequence[np.ndarray]:
        try:
            results = run()
        except Exception as error:
            raise self._named(error) from error
        if not isinstance(results, (list, tuple)):
            raise InferenceError(
                f"{self._device} returned {type(results).__name__} from an inference {self._subject}, expected a list "
                f"of {len(self._outputs)} results"
            )
        if len(results) != len(self._outputs):
            raise InferenceError(
                f"{self._device} returned {len(results)} results from an inference {self._subject}, expected "
                f"{len(self._outputs)}"
            )
        try:
            if self._left:
                here = [at for at in range(len(results)) if at not in self._left]
                check_outputs([self._outputs[at] for at in here], [results[at] for at in here], self._device)
            else:
                check_outputs(self._outputs, results, self._device)
        except InferenceError as error:
            error.add_note(f"in an inference {self._subject}")
            raise
        return results

    def profile(self) -> Sequence[ProfileRow]:
        try:
            rows = self._runner.profile()
        except Exception as error:
            raise self._named(error, "the counters of ") from error
        wrong = next((row for row in rows if not isinstance(row, ProfileRow)), None) if _is_rows(rows) else rows
        if wrong is not None:
            raise InferenceError(
                f"{self._device} returned {type(wrong).__name__} for the counters of an inference {self._subject}, "
                f"expected a sequence of ProfileRow"
            )
        return rows

    def _named(self, error: Exception, what: str = "") -> HeteroError:
        """``error`` with the device and the model."""
        if isinstance(error, HeteroError):
            error.add_note(f"in {what}an inference {self._subject}, by {self._device}")
            return error
        text = f"{self._device} failed in {what}an inference {self._subject}: {type(error).__name__}: {error}"
        return inference_error(text, error)


class RepeatingCheckedRunner(CheckedRunner):
    """`CheckedRunner` of a `RepeatingRunner`. The results of `run_again` are not checked."""

    def run_again(self, inputs: Sequence[Any]) -> list[np.ndarray] | None:
        try:
            return self._runner.run_again(inputs)  # type: ignore[attr-defined, no-any-return]
        except Exception as error:
            raise self._named(error) from error


def checked_runner(runner: object, device: str, subject: str, outputs: Sequence[Port]) -> CheckedRunner:
    """A `CheckedRunner` around ``runner``. Raises `InferenceError` if ``runner`` does not have the methods of
    `Runner`."""
    if getattr(runner, "run", None) is None or getattr(runner, "profile", None) is None:
        raise InferenceError(
            f"{device} returned {type(runner).__name__} for a request {subject}, expected a Runner (run, profile)"
        )
    kind = CheckedRunner if getattr(runner, "run_again", None) is None else RepeatingCheckedRunner
    return kind(cast("Runner", runner), device, subject, outputs)


def _is_rows(rows: object) -> bool:
    return isinstance(rows, Sequence) and not isinstance(rows, (str, bytes))
