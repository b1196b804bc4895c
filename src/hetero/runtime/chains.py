"""Repeats consecutive steps in one loop, when nothing has to be bound or checked between them.

After the kernels of a submodel, Python's memory is no longer in the caches, so that even a few lines of Python between
two submodels take 10 µs. Some runners keep their inputs and results bound between runs, and say so by `prepared`: their
next run is a single call, provided that their inputs are the same objects. In a chain of such steps, each reads objects
that the steps before it always return, so only what enters the chain has to be compared.

Conditions for a chain (`find_chains`), after an ordinary run:

- Its tasks are consecutive steps, at least two, whose runners are prepared.
- An input that a task of the chain computes is the very object that this task returns in every run. If both are arrays,
  they have the same type and shape, and the chain copies between the memories of the two runners.

Conditions for a run (`Chain.run`): each input from outside the chain is the object that is bound, or an array of the
type and shape of the memory that it is copied to. Otherwise, and if a call fails, the steps run one by one as before,
from the first; they give the same results or raise the error. The schedule then drops the chain, because its runners
may have bound other objects.

Results that only tasks of the chain read share memory (`Chain.share_memory`): a result is in memory whose last reader
has run. They then take a fraction of the memory and are more often in the processor's caches, where those of a whole
model would be. This remains right if the chain is dropped, because its tasks always run in this order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chain", "Link", "PreparedRun", "PreparedRunner", "find_chains"]

_ALIGNMENT = 64
"""Of shared memory, in B: a cache line, which kernels for AVX-512 read at once."""


class PreparedRun(NamedTuple):
    """A call that repeats the last run of a runner: ``call(*arguments)``. ``inputs``: per input, the object that is
    bound, or an array that the input is copied to. ``results``: per result, the object that is always returned, or an
    array that is copied for each run. ``sizes``: per result, its size in B if `PreparedRunner.place_results` accepts
    it, else 0. ``placed``: the positions of the results that `place_results` has placed."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    inputs: Sequence[Any]
    results: Sequence[Any]
    sizes: Sequence[int]
    placed: Collection[int]


@runtime_checkable
class PreparedRunner(Protocol):
    """A runner that keeps its inputs and results bound between runs."""

    def prepared(self) -> PreparedRun | None:
        """The call that repeats the last run; None if a run needs more than one call."""
        ...

    def place_results(self, places: Mapping[int, NDArray[np.uint8]]) -> None:
        """From the next run on, write results of the same sizes to given memory. ``places``: position -> memory."""
        ...


class Link(NamedTuple):
    """A task: its runner, and the slots that it reads, fills, and that no later task reads."""

    runner: Any
    reads: tuple[int, ...]
    fills: tuple[int, ...]
    free: tuple[int, ...]


class Chain:
    """Consecutive tasks as one. ``reads``, ``fills``: the slots that it reads from outside, and that later tasks or the
    caller read. ``at``: the task that runs, if they run one by one; the first has number ``begin``."""

    def __init__(self, begin: int, links: Sequence[Link], runs: Sequence[PreparedRun]) -> None:
        self.begin = self.at = begin
        self.is_broken = False
        self._links = tuple(links)
        self._runs = tuple(runs)
        self._calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        made: dict[int, Any] = {}
        entering: dict[int, None] = {}
        self._same: list[tuple[int, Any]] = []  # position among what it reads, the object
        self._copied: list[tuple[int, np.ndarray]] = []
        places: list[tuple[int, Any]] = []
        for link, run in zip(links, runs, strict=True):
            for slot, bound in zip(link.reads, run.inputs, strict=True):
                if slot not in made:
                    entering[slot] = None
                    places.append((slot, bound))
                elif type(bound) is np.ndarray:
                    self._calls.append((np.copyto, (bound, made[slot])))
            self._calls.append((run.call, run.arguments))
            made.update(zip(link.fills, run.results, strict=True))
        self.reads = tuple(entering)
        for slot, bound in places:
            entry = (self.reads.index(slot), bound)
            (self._copied if type(bound) is np.ndarray else self._same).append(entry)
        freed = {slot for link in links for slot in link.free}
        self.fills = tuple(slot for slot in made if slot not in freed)
        self.free = tuple(slot for slot in self.reads if slot in freed)
        self._results = [made[slot] for slot in self.fills]
        self._arrays = [at for at, result in enumerate(self._results) if type(result) is np.ndarray]

    @property
    def num_tasks(self) -> int:
        return len(self._links)

    def share_memory(self) -> bool:
        """Let results that only tasks of the chain read share memory. False if they do so already; if True, the tasks
        must run one by one before they are a chain again."""
        last_read = {slot: at for at, link in enumerate(self._links) for slot in link.reads}
        begins: list[dict[int, int]] = []  # per task: position of a result -> where its memory begins
        occupied: list[tuple[int, int, int]] = []  # begin, end, and the last task that reads the result
        size = 0
        for at, (link, run) in enumerate(zip(self._links, self._runs, strict=True)):
            occupied = [entry for entry in occupied if entry[2] >= at]
            begins.append({})
            for position, (slot, nbytes) in enumerate(zip(link.fills, run.sizes, strict=True)):
                if not nbytes or slot in self.fills:
                    continue
                begin = 0
                for other, end, _ in sorted(occupied):
                    if other - begin >= nbytes:
                        break
                    begin = max(begin, end)
                end = begin + math.ceil(nbytes / _ALIGNMENT) * _ALIGNMENT
                occupied.append((begin, end, last_read.get(slot, at)))
                begins[at][position] = begin
                size = max(size, end)
        if all(position in run.placed for run, of_run in zip(self._runs, begins, strict=True) for position in of_run):
            return False
        memory = np.empty(size + _ALIGNMENT, np.uint8)
        memory = memory[-memory.ctypes.data % _ALIGNMENT :]
        for link, run, of_run in zip(self._links, self._runs, begins, strict=True):
            link.runner.place_results(
                {position: memory[begin : begin + run.sizes[position]] for position, begin in of_run.items()}
            )
        return True

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The values for ``fills``, from those of ``reads``."""
        if self._enter(inputs):
            try:
                for call, arguments in self._calls:
                    call(*arguments)
            except Exception:  # such as for a result of another size: the steps deal with it, or fail again
                pass
            else:
                results = self._results
                if self._arrays:
                    results = results.copy()
                    for at in self._arrays:
                        results[at] = results[at].copy()
                return results
        self.is_broken = True
        return self._one_by_one(inputs)

    def _enter(self, inputs: Sequence[Any]) -> bool:
        """Whether the conditions for a run hold; copies arrays to where the runners read them."""
        for at, bound in self._same:
            if inputs[at] is not bound:
                return False
        for at, place in self._copied:
            value = inputs[at]
            if type(value) is not np.ndarray or value.shape != place.shape or value.dtype != place.dtype:
                return False
        for at, place in self._copied:
            place[...] = inputs[at]
        return True

    def _one_by_one(self, inputs: Sequence[Any]) -> Sequence[Any]:
        values = dict(zip(self.reads, inputs, strict=True))
        for number, link in enumerate(self._links):
            self.at = self.begin + number
            results = link.runner.run([values[slot] for slot in link.reads])
            values.update(zip(link.fills, results, strict=True))
        return [values[slot] for slot in self.fills]


def find_chains(links: Sequence[Link | None]) -> list[Chain]:
    """The chains among tasks in order, after an ordinary run. None for a task that cannot be in a chain."""
    chains: list[Chain] = []
    begin, runs = 0, list[PreparedRun]()
    made: dict[int, Any] = {}

    def end(at: int) -> None:
        if len(runs) > 1:
            chains.append(Chain(begin, [link for link in links[begin:at] if link is not None], runs))

    for at, link in enumerate(links):
        run = link.runner.prepared() if link is not None and isinstance(link.runner, PreparedRunner) else None
        fits = (
            link is not None
            and run is not None
            and all(
                slot not in made or _passes(made[slot], bound)
                for slot, bound in zip(link.reads, run.inputs, strict=True)
            )
        )
        if not fits:
            end(at)
            begin, runs, made = at + 1, [], {}
        if link is not None and run is not None:
            if not fits:
                begin = at
            runs.append(run)
            made.update(zip(link.fills, run.results, strict=True))
    end(len(links))
    return chains


def _passes(result: Any, bound: Any) -> bool:
    """Whether a result of each run is the input that the reader has bound, or can be copied to where it is bound."""
    if type(bound) is not np.ndarray or type(result) is not np.ndarray:
        return result is bound
    return bool(result.shape == bound.shape and result.dtype == bound.dtype)
