"""Requests with state: outputs of one inference are inputs of the next, without leaving their device.

A state value is immutable: runners do not write to elements of inputs or of earlier results, and callers only get
copies. A new value may begin with the memory of the old one (`AppendingRunner`). Requests and snapshots can therefore
share values, and `StatefulRequest.fork` copies nothing. A value that a device with its own memory computes stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._sizes import RequestStates, StateSizes
from ..errors import InferenceError, did_you_mean, shown
from ..model.types import Port
from .address_ranges import UsedMemory
from .given_outputs import GivenOutputs, bind_out
from .remote import ON_DEVICE, RemoteContext, RemoteTensor
from .request import AppendingRunner, InferRequest, RequestState, apart_from
from .state_pairs import StatePair
from .tensor import Outputs, bind_inputs, inputs_by_name, keyed_by_name

__all__ = ["StateSnapshot", "StatefulRequest"]


class StateSnapshot(Mapping[str, "NDArray[Any]"]):
    """The states of a request at one moment, as a mapping from input name to array. It does not change.

    Each access returns a new copy in this machine's memory. `StatefulRequest.restore_state` takes a snapshot without
    copying it. An access raises `InferenceError` if the size is only known after the first inference.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> NDArray[Any]:
        value = self._values[name]
        if value is None:
            raise InferenceError(f"state {name!r}: the size of the initial value is known at the first inference")
        # `RemoteTensor.numpy` may return a view.
        return np.array(value.numpy() if isinstance(value, RemoteTensor) else value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        types = (f"{name}: {_type(value)}" for name, value in self._values.items())
        return f"<StateSnapshot {', '.join(types)}>"


class StatefulRequest(InferRequest):
    """A request whose outputs are partly inputs of its next inference. `CompiledModel.create_stateful_request` creates
    it.

    Inputs that are states are not passed, and outputs that are states are not returned: `snapshot_state` reads them.
    An inference that fails or is cancelled leaves the states as they were.
    """

    _values: RequestStates

    def __init__(
        self,
        *arguments: Any,
        pairs: Sequence[StatePair],
        initial: Any,
        fork: Callable[[], StatefulRequest],
        **options: Any,
    ) -> None:
        """``arguments``, ``options``: as for `InferRequest`. ``initial``: input name -> value, or None. ``fork``:
        returns another request of the same model with the same pairs."""
        super().__init__(*arguments, **options)
        self._pairs = tuple(pairs)
        self._fork = fork
        if isinstance(self._runner, AppendingRunner):
            self._runner.append_to_states(self._pairs)
        made = {pair.output for pair in pairs}
        read = {pair.input for pair in pairs}
        self._state_ports = [self._inputs[pair.input] for pair in pairs]
        self._state_names = {port.name: at for at, port in enumerate(self._state_ports)}
        self._state_outputs = {self._outputs[pair.output].name: self._inputs[pair.input].name for pair in pairs}
        self._free_inputs = [position for position in range(len(self._inputs)) if position not in read]
        self._free_outputs = [position for position in range(len(self._outputs)) if position not in made]
        self._free_positions = {self._outputs[at].name: number for number, at in enumerate(self._free_outputs)}
        self._names = tuple(self._inputs[at].name for at in self._free_inputs)
        others = [self._inputs[at] for at in self._free_inputs]
        self._state_sizes = StateSizes(*([_dims(port) for port in ports] for ports in (self._state_ports, others)))
        self._all_sizes = StateSizes([_dims(port) for port in self._inputs], ())
        self._dtypes = [port.dtype if port.is_tensor else None for port in self._inputs]
        order = [*self._free_inputs, *(pair.input for pair in pairs)]
        self._order = [order.index(at) for at in range(len(self._inputs))]
        self._values = RequestStates(
            self._state_sizes, self._order, [pair.output for pair in pairs], self._free_outputs
        )
        self._kept_by_default = self._on_device - made
        self._kept_states = frozenset(made & self._memories.outputs.keys())
        self._initial: tuple[Any, ...] = (None,) * len(pairs)
        if initial is not None:
            self._initial = self._own(initial, self._initial)
        self._initial = tuple(
            _zeros(port, port.shape) if value is None and _is_sized(port) else value
            for port, value in zip(self._state_ports, self._initial, strict=True)
        )
        self._values.current = self._initial  # None: zeros, sized at the next inference

    @property
    def states(self) -> dict[str, str]:
        """Output name -> input name of each state."""
        return dict(self._state_outputs)

    def reset_state(self) -> None:
        """Set all states to their initial values. Raises `InferenceError` if the request is busy."""
        self._set(self._initial)

    def snapshot_state(self) -> StateSnapshot:
        """The current states, without copying them. Raises `InferenceError` if the request is busy."""
        return StateSnapshot(dict(zip(self._state_names, self._idle_values(), strict=True)))

    def restore_state(self, values: Mapping[str, Any]) -> None:
        """Set states. ``values``: a snapshot, of this or another request, or input name -> array or tensor, which is
        copied. States that it does not name stay as they are.

        Raises `InferenceError` for an unknown name, a value of another type or shape, and if the request is busy.
        """
        before = self._idle_values()
        if isinstance(values, StateSnapshot):
            values = values._values
            self._check_names(values)
            known = {name: value for name, value in values.items() if value is not None}
            self._bind_states(known)
            current = list(before)
            for name, value in values.items():
                current[self._state_names[name]] = value
            self._set(tuple(current))
        else:
            self._set(self._own(values, before))

    def fork(self) -> StatefulRequest:
        """Another request with the same states, which change independently from then on. The values are shared, not
        copied. `reset_state` of the new request also has the same effect. Raises `InferenceError` if the request is
        busy."""
        values = self._idle_values()
        twin = self._fork()
        twin._initial, twin._values.current = self._initial, values
        return twin

    # -- hooks of `InferRequest` --------------------------------------------------------------------------------------

    def _bound(self, inputs: Any, out: Any) -> tuple[list[Any], GivenOutputs | None]:
        current = self._values.current
        given_inputs = self._free(inputs)
        values = current
        if any(value is None for value in current):
            values = self._with_zeros(current, given_inputs)
        arrays = self._quickly_bound(given_inputs, values)
        if arrays is None:
            named = {**given_inputs, **dict(zip(self._state_names, values, strict=True))}
            arrays = bind_inputs(self._inputs, named, self._memories.inputs, self._state_names)
        given = bind_out(self._outputs, self._free_out(out), arrays, self._memories.outputs)
        kept = given.kept | self._kept_states | (self._kept_by_default if out is None else frozenset())
        return arrays, _StatefulOutputs(self._outputs, given, kept, current)

    def _quickly_bound(self, given: Mapping[Any, Any], states: Sequence[Any]) -> list[Any] | None:
        """The result of `bind_inputs` if it would return all values unchanged and without a warning; otherwise None."""
        if len(given) != len(self._names) or not all(name in given for name in self._names):
            return None
        values = [*(given[name] for name in self._names), *states]
        arrays = [values[at] for at in self._order]
        for position, value in enumerate(arrays):
            if not _is_bound(value, self._dtypes[position], self._memories.inputs.get(position, ())):
                return None
        return arrays if self._all_sizes.fit(arrays) else None

    def _is_stale(self, given: GivenOutputs | None) -> bool:
        assert isinstance(given, _StatefulOutputs)
        return given.source is not self._values.current  # another thread changed the states after `_bound` read them

    def _deliver(self, results: Sequence[Any], inputs: Sequence[Any], given: GivenOutputs | None) -> list[Any]:
        assert given is not None
        # States may share memory with each other, because they are never written, but not with what the caller has.
        used = UsedMemory([inputs[at] for at in self._free_inputs])
        for value in (*given.memory.values(), *given.tensors.values()):
            used.add(value)
        states = [apart_from(used, results[pair.output], adds=False) for pair in self._pairs]
        others = list(results)
        for pair in self._pairs:
            others[pair.output] = None
        if len(self._free_outputs) > len(given.values):
            for value in (*(inputs[pair.input] for pair in self._pairs), *states):
                used.add(value)
        delivered = self._placed(others, used, given)
        for pair, value in zip(self._pairs, states, strict=True):
            delivered[pair.output] = value
        return delivered

    def _finish(self, results: list[Any]) -> Outputs:
        self._values.current = tuple(self._fitting([results[pair.output] for pair in self._pairs]))
        return Outputs(self._free_positions, [results[position] for position in self._free_outputs])

    def _fitting(self, values: Sequence[Any]) -> list[Any]:
        """New states, checked."""
        # As `_bind_states` would check them, which takes longer; it also finds the error.
        are_bound = all(
            _is_bound(value, self._dtypes[pair.input], (getattr(value, "context", None),))
            for pair, value in zip(self._pairs, values, strict=True)
        )
        if are_bound and self._state_sizes.fit(values):
            return list(values)
        new = {port.name: value for port, value in zip(self._state_ports, values, strict=True)}
        try:
            return self._bind_states(new)
        except InferenceError as error:
            raise InferenceError(f"{self._device}: {self._where(new)}the new value does not fit: {error}") from error

    # -- values -------------------------------------------------------------------------------------------------------

    def _idle_values(self) -> tuple[Any, ...]:
        with self._lock:
            if self._state is RequestState.BUSY:
                raise self._busy()
            return self._values.current

    def _set(self, values: tuple[Any, ...]) -> None:
        with self._lock:
            if self._state is RequestState.BUSY:
                raise self._busy()
            self._values.current = values

    def _bind_states(self, values: Mapping[str, Any]) -> list[Any]:
        """Checked values of the named states, in the order of the states."""
        self._check_names(values)
        ports: list[Port] = []
        memories: dict[int, Sequence[RemoteContext]] = {}
        for pair, port in zip(self._pairs, self._state_ports, strict=True):
            if port.name not in values:
                continue
            value, near = values[port.name], self._memories.inputs.get(pair.input, ())
            if isinstance(value, RemoteTensor) and value.context is not None:
                near = (value.context,)
            memories[len(ports)] = near
            ports.append(port)
        return bind_inputs(ports, dict(values), memories, self._state_names)

    def _check_names(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self._state_names:
                near = did_you_mean(name, self._state_names)
                listed = ", ".join(self._state_names)
                raise InferenceError(f"the request has no state {shown(name)}{near}; its states: {listed}")

    def _own(self, values: Any, others: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copies of the caller's ``values``; for states that they do not name, ``others``."""
        if not isinstance(values, Mapping):
            raise InferenceError(f"expected a mapping from input name to the value of a state, found {shown(values)}")
        names = [port.name for port in self._state_ports if port.name in values]
        owned = list(others)
        for name, value in zip(names, self._bind_states(values), strict=True):
            owned[self._state_names[name]] = _copied(value)
        return tuple(owned)

    def _where(self, values: Mapping[str, Any]) -> str:
        """The state whose value alone does not fit, if any."""
        for output, name in self._state_outputs.items():
            try:
                self._bind_states({name: values[name]})
            except InferenceError:
                return f"state {output!r} -> {name!r}: "
        return ""

    # -- arguments of a call ------------------------------------------------------------------------------------------

    def _free(self, inputs: Any) -> dict[Any, Any]:
        """The inputs of a call by name, none of which is a state."""
        inputs = inputs_by_name([self._inputs[at] for at in self._free_inputs], inputs)
        for name in inputs:
            if name in self._state_names:
                raise InferenceError(
                    f"input {name!r} is a state of this request and cannot be passed; restore_state() sets its value"
                )
        return dict(inputs)

    def _free_out(self, out: Any) -> dict[Any, Any]:
        """``out`` by name, without outputs that are states."""
        names = [self._outputs[at].name for at in self._free_outputs]
        if out is None:
            return {}
        if out is ON_DEVICE:
            return dict.fromkeys(names, ON_DEVICE)
        if isinstance(out, Outputs):
            out = dict(out.items())
        if isinstance(out, Mapping):
            out = keyed_by_name([self._outputs[at] for at in self._free_outputs], out, "output")
            for name in out:
                if name in self._state_outputs:
                    raise InferenceError(f"out: {name!r} is a state of this request; snapshot_state() reads it")
            return dict(out)
        if not isinstance(out, (list, tuple)) and len(names) == 1:
            out = [out]
        if not isinstance(out, (list, tuple)) or len(out) != len(names):
            found = f"{len(out)} arrays" if isinstance(out, (list, tuple)) else type(out).__name__
            raise InferenceError(
                f"out: expected a mapping, or {len(names)} arrays in the order of the outputs that are not states, "
                f"found {found}"
            )
        return dict(zip(names, out, strict=True))

    def _with_zeros(self, values: Sequence[Any], inputs: Mapping[Any, Any]) -> tuple[Any, ...]:
        """``values`` with zeros where they are None. Raises `InferenceError` if their size is not known."""
        ports = [self._inputs[at] for at in self._free_inputs]
        memories = {number: self._memories.inputs.get(at, ()) for number, at in enumerate(self._free_inputs)}
        sizes: dict[Any, int] = {}
        # Only the shapes matter here; the call itself checks all inputs together.
        for port, array in zip(ports, bind_inputs(ports, inputs, memories), strict=True):
            if port.is_tensor and port.shape is not None:
                sizes.update(zip(port.shape, array.shape, strict=True))
        sized = list(values)
        for at, (pair, port) in enumerate(zip(self._pairs, self._state_ports, strict=True)):
            if sized[at] is None:
                sized[at] = _zeros(port, _initial_shape(port, self._outputs[pair.output], sizes))
        return tuple(sized)


class _StatefulOutputs(GivenOutputs):
    """``source``: the states that the inference reads."""

    __slots__ = ("source",)

    def __init__(
        self, ports: Sequence[Port], given: GivenOutputs, kept: frozenset[int], source: tuple[Any, ...]
    ) -> None:
        super().__init__(ports, given.values, given.memory, given.tensors, kept)
        self.source = source


def _is_bound(value: Any, dtype: np.dtype[Any] | None, memories: Sequence[Any]) -> bool:
    """Whether `bind_inputs` would return ``value`` as it is, for a port of this dtype and unless its shape is wrong."""
    if type(value) is np.ndarray:
        return dtype is not None and value.dtype == dtype and not dtype.hasobject
    return (
        isinstance(value, RemoteTensor)
        and value.context is not None
        and any(value.context is memory for memory in memories)
        and value.dtype == dtype
    )


def _dims(port: Port) -> Sequence[int | str | None] | None:
    return port.shape if port.is_tensor else None


def _is_sized(port: Port) -> bool:
    return port.dtype is not None and port.shape is not None and all(isinstance(dim, int) for dim in port.shape)


def _initial_shape(port: Port, output: Port, sizes: Mapping[Any, int]) -> list[int]:
    """The shape of an initial value. A symbol that an input of the call has gets its size there. Another symbol is 0 if
    the output states a different one in this place, because the state then grows; otherwise nothing states the size."""
    shape: list[int] = []
    made = output.shape if output.declared else None  # inferred symbols may name the same size differently
    for axis, dim in enumerate(port.shape or ()):
        if isinstance(dim, int):
            shape.append(dim)
        elif dim is not None and dim in sizes:
            shape.append(sizes[dim])
        elif (
            dim is not None
            and made is not None
            and port.shape is not None
            and len(made) == len(port.shape)
            and isinstance(made[axis], str)
            and made[axis] != dim
        ):
            shape.append(0)
        else:
            raise _unknown_size(port, "an unknown size" if dim is None else f"size {dim!r}")
    if port.shape is None:
        raise _unknown_size(port, "an unknown rank")
    return shape


def _unknown_size(port: Port, what: str) -> InferenceError:
    return InferenceError(
        f"state {port.name!r} has no initial value, and {what}: pass one as initial={{{port.name!r}: array}} to "
        "create_stateful_request, or to restore_state()"
    )


def _zeros(port: Port, shape: Sequence[Any] | None) -> NDArray[Any]:
    if port.dtype is None or port.dtype.kind in "OUST":
        raise _unknown_size(port, f"dtype {port.dtype}")
    assert shape is not None
    try:
        return np.zeros(tuple(shape), port.dtype)
    except (MemoryError, ValueError) as error:
        raise InferenceError(f"state {port.name!r}: no memory for zeros of {port.dtype} {list(shape)}") from error


def _copied(value: Any) -> Any:
    """A value that only the request has."""
    if isinstance(value, RemoteTensor):
        if value.context is None:
            return np.array(value.numpy())
        copy = value.context.create_tensor(value.dtype, value.shape)
        copy.write(value)
        return copy
    return np.array(value, order="C")


def _type(value: Any) -> str:
    return "not sized yet" if value is None else f"{value.dtype}{list(value.shape)}"
