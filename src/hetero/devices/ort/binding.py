"""Runs a session of the host's memory on values that other sessions computed, without arrays in between.

`OrtHostValue` is a value that passes from one session to another. The binding of a runner keeps its inputs and its
small results bound between runs, so a run of the same shapes binds and allocates nothing at these boundaries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.chains import PreparedRun
from . import backend
from .values import FOREIGN_TYPES, array_of, ort_value

__all__ = ["HOST_VALUES", "MISFIT", "HostBinding", "OrtHostValue"]

HOST_VALUES = "values of onnxruntime in this machine's memory"
"""The memory space of models whose results can pass to other sessions as `OrtHostValue`."""

_REUSED_BYTES = 1 << 20
"""The maximum size in B of a result whose memory a runner keeps for its next run. Allocating a larger one takes less
than 1 % of the time of writing it."""

_COPIED_BYTES = 1 << 18
"""The maximum size in B of arrays that are copied to and from memory that stays bound. To bind an array and to allocate
a result for each run takes up to 30 µs, as long as copying this size."""

MISFIT = re.compile("shape|dimensions")
"""In errors of runs whose result does not fit into the bound memory."""


class OrtHostValue:
    """An ``OrtValue`` in this machine's memory. ``is_reused``: the next run of the session that computed it overwrites
    it; nothing reads it by then, because only steps of the same inference do. ``memory``: which the value occupies, if
    it was given; else None."""

    __slots__ = ("is_reused", "memory", "nbytes", "shape", "value")

    def __init__(self, value: Any, memory: np.ndarray | None = None) -> None:
        self.value = value
        self.memory = memory
        self.shape = tuple(value.shape())
        self.nbytes = math.prod(self.shape) * backend.dtype_of_value(value).itemsize
        self.is_reused = self.nbytes <= _REUSED_BYTES


class HostBinding:
    """An I/O binding of a session whose inputs and outputs are tensors of numbers."""

    def __init__(
        self, session: Any, inputs: Sequence[str], outputs: Sequence[str], kept: Sequence[int], options: Any
    ) -> None:
        """``kept``: the positions of the results that are returned as `OrtHostValue`. ``options``: of runs."""
        self._session = session._sess
        self._binding = session.io_binding()._iobinding
        self._inputs, self._outputs = inputs, outputs
        types = {entry.name: entry.type for entry in (*session.get_inputs(), *session.get_outputs())}
        self._foreign_inputs = [types[name] in FOREIGN_TYPES for name in inputs]
        self._foreign_outputs = [types[name] in FOREIGN_TYPES for name in outputs]
        self._kept = frozenset(kept)
        # Results of types that NumPy lacks, and those that onnxruntime writes elsewhere.
        self._unplaceable = {at for at, foreign in enumerate(self._foreign_outputs) if foreign}
        self._options = options
        self._ort = backend.load()
        self._host = self._ort.OrtDevice.make("cpu", 0)._get_c_device()
        self._from_numpy = backend.core().OrtValue.ortvalue_from_numpy
        self._may_reuse = True
        self._ready_for: list[int] | None = None  # the ids of what is bound, if a run needs nothing else
        self._forget()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results for arrays and `OrtHostValue` objects."""
        # Python runs slowly here, because the kernels before it have displaced its memory from the caches.
        sources = list(map(id, inputs))
        for position, buffer in self._buffers.items():
            value = inputs[position]
            if type(value) is np.ndarray and value.shape == buffer.shape and value.dtype == buffer.dtype:
                buffer[...] = value
                sources[position] = id(buffer)
        if sources == self._ready_for:
            try:
                self._session.run_with_iobinding(self._binding, self._options)
            except Exception as error:
                if not MISFIT.search(str(error)):
                    self._forget()
                    raise
            else:
                results = self._ready
                if self._views:
                    results = results.copy()
                    for position, view in self._views.items():
                        results[position] = view.copy()
                return results
        try:
            arrays = self._bind(inputs)
            try:
                self._session.run_with_iobinding(self._binding, self._options)
            except Exception as error:
                # The sizes of some results depend on more than the shapes of the inputs.
                if not (self._reused or self._views) or not MISFIT.search(str(error)):
                    raise
                self._may_reuse = False
                self._forget()
                arrays = self._bind(inputs)
                self._session.run_with_iobinding(self._binding, self._options)
            del arrays  # which the run reads
            return self._results()
        except BaseException:
            self._forget()
            raise

    def prepared(self) -> PreparedRun | None:
        """See `PreparedRunner`."""
        if self._ready_for is None:
            return None
        results = [self._views.get(at, result) for at, result in enumerate(self._ready)]
        call = self._session.run_with_iobinding
        sizes = [
            self._reused[at].nbytes if at in self._reused and at not in self._unplaceable else 0
            for at in range(len(results))
        ]
        placed = [at for at, value in self._reused.items() if value.memory is not None]
        return PreparedRun(call, (self._binding, self._options), list(self._bound), results, sizes, placed)

    def place_results(self, places: Mapping[int, np.ndarray]) -> None:
        """See `PreparedRunner`."""
        for position, memory in places.items():
            before = self._reused[position]
            array = memory.view(backend.dtype_of_value(before.value)).reshape(before.shape)
            value = self._from_numpy(array, self._host)
            self._reused[position] = OrtHostValue(value, array)
            self._binding.bind_ortvalue_output(self._outputs[position], value)
        self._unproven.update(places)
        self._ready_for = None

    def _forget(self) -> None:
        """Release all values."""
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        for name in self._outputs:
            self._binding.bind_output(name, self._host)
        self._bound: list[OrtHostValue | np.ndarray | None] = [None] * len(self._inputs)
        self._shapes: list[tuple[int, ...]] = []
        self._buffers: dict[int, np.ndarray] = {}  # for inputs that are small arrays
        self._reused: dict[int, OrtHostValue] = {}
        self._views: dict[int, np.ndarray] = {}  # of the memory for small results that are returned as arrays
        self._unproven: set[int] = set()  # results that no run has yet written to the memory given for them
        self._ready_for = None
        self._ready: list[Any] = []

    def _bind(self, inputs: Sequence[Any]) -> list[Any]:
        """Bind the inputs. Returns what must live during the run."""
        self._ready_for = None
        shapes = [value.shape for value in inputs]
        if shapes != self._shapes:
            for position in (*self._reused, *self._views):
                self._binding.bind_output(self._outputs[position], self._host)
            self._reused, self._views, self._buffers, self._shapes = {}, {}, {}, shapes
        arrays: list[Any] = []
        for position, value in enumerate(inputs):
            if type(value) is OrtHostValue:
                if value is not self._bound[position]:
                    self._binding.bind_ortvalue_input(self._inputs[position], value.value)
                    self._bound[position] = value
                continue
            kept = None
            if self._foreign_inputs[position]:
                arrays.append(ort_value(self._ort, value))
                bound = arrays[-1]._get_c_value()
            elif value.nbytes <= _COPIED_BYTES:
                kept = self._buffers.get(position)
                if kept is None or kept.dtype != value.dtype:
                    kept = self._buffers[position] = np.empty(value.shape, value.dtype)
                kept[...] = value
                if self._bound[position] is kept:
                    continue
                bound = self._from_numpy(kept, self._host)
            else:
                arrays.append(value if value.flags.c_contiguous else value.copy())
                bound = self._from_numpy(arrays[-1], self._host)
            self._binding.bind_ortvalue_input(self._inputs[position], bound)
            self._bound[position] = kept
        return arrays

    def _results(self) -> list[Any]:
        for position in self._unproven & self._reused.keys():
            if self._binding.get_outputs()[position].data_ptr() != self._reused[position].value.data_ptr():
                del self._reused[position]
                self._unplaceable.add(position)
        self._unproven.clear()
        results: list[Any] = [self._reused.get(position) for position in range(len(self._outputs))]
        for position, view in self._views.items():
            results[position] = view.copy()
        if len(self._reused) + len(self._views) < len(results):
            values = self._binding.get_outputs()  # a view: binding an output again empties its place
            for position, name in enumerate(self._outputs):
                if results[position] is None:
                    results[position] = self._result(position, name, values[position])
        if any(type(value) is OrtHostValue and not value.is_reused for value in self._bound):
            self._binding.clear_binding_inputs()  # their memory can be freed now
            self._bound = [None] * len(self._inputs)
        elif not any(value is None for value in self._bound) and len(self._reused) + len(self._views) == len(results):
            self._ready_for, self._ready = list(map(id, self._bound)), results
        return results

    def _result(self, position: int, name: str, value: Any) -> Any:
        """A result that the run allocated."""
        if position in self._kept:
            kept = OrtHostValue(value)
            if kept.is_reused and self._may_reuse:
                self._binding.bind_ortvalue_output(name, value)
                self._reused[position] = kept
                return kept
            self._binding.bind_output(name, self._host)  # otherwise the next run would overwrite the result
            return kept
        array = array_of(self._ort.OrtValue(value)) if self._foreign_outputs[position] else value.numpy()
        if array.nbytes <= _COPIED_BYTES and self._may_reuse and not self._foreign_outputs[position]:
            self._binding.bind_ortvalue_output(name, value)
            self._views[position] = array
            return array.copy()
        self._binding.bind_output(name, self._host)
        return array
