"""Which outputs of a model are inputs of its next inference: explicit pairs, regular expressions, and the names that
exporters use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.expressions import matching
from ..errors import HeteroError, InferenceError, did_you_mean, shown
from ..model.types import Port

__all__ = ["StatePair", "pair_states"]

_MOST_LISTED = 20  # names in a message


class StatePair(NamedTuple):
    """The positions of an input and of the output whose value it has in the next inference."""

    input: int
    output: int


def pair_states(
    inputs: Sequence[Port], outputs: Sequence[Port], states: Mapping[Any, str] | None
) -> tuple[StatePair, ...]:
    """The pairs of ``states``, in the order of ``inputs``.

    ``states``: output name -> input name. A key may also be a compiled regular expression, which must match the whole
    name of an output; its value is then a template such as ``r"past.\\1"``. None: all outputs whose names follow
    ``present`` -> ``past`` or ``past_key_values``, or ``*_out`` -> ``*_in``.

    Raises `InferenceError` for an unknown name, an input or output in two pairs, and types that cannot agree.
    """
    input_at = {port.name: position for position, port in enumerate(inputs)}
    output_at = {port.name: position for position, port in enumerate(outputs)}
    if states is not None and not isinstance(states, Mapping):
        raise InferenceError(f"states: expected a mapping from output name to input name, found {shown(states)}")
    named = _conventional(input_at, output_at) if states is None else _stated(states, input_at, output_at)
    output_of: dict[int, int] = {}
    input_of: dict[int, int] = {}
    for output, target in named:
        if target not in input_at:
            near = did_you_mean(target, input_at)
            raise InferenceError(f"state {output!r}: the model has no input {shown(target)}{near}; {_list(input_at)}")
        pair = StatePair(input_at[target], output_at[output])
        earlier = output_of.setdefault(pair.input, pair.output)
        if earlier != pair.output:
            raise InferenceError(f"input {target!r} is bound to two outputs: {outputs[earlier].name!r} and {output!r}")
        first = input_of.setdefault(pair.output, pair.input)
        if first != pair.input:
            raise InferenceError(f"output {output!r} is bound to two inputs: {inputs[first].name!r} and {target!r}")
        _check_types(inputs[pair.input], outputs[pair.output])
    return tuple(StatePair(position, output_of[position]) for position in sorted(output_of))


def _stated(
    states: Mapping[Any, str], input_at: Mapping[str, int], output_at: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Output name -> input name, for each entry and for each output that an expression matches."""
    if not states:
        raise InferenceError(f"states: the mapping is empty; {_list(output_at)}")
    names = list(output_at)
    for key, target in states.items():
        if not isinstance(target, str):
            raise InferenceError(f"state {shown(key)}: expected the name of an input, found {shown(target)}")
        if isinstance(key, str):
            if key not in output_at:
                near = did_you_mean(key, output_at)
                raise InferenceError(f"the model has no output {shown(key)}{near}; {_list(output_at)}")
            yield key, target
        elif isinstance(key, re.Pattern) and isinstance(key.pattern, str):
            if key.flags != re.compile(key.pattern).flags:
                raise InferenceError(f"state {shown(key)}: write the flags in the expression, such as (?i)")
            matched = _matching(key.pattern, names)
            if not matched:
                raise InferenceError(f"the expression {key.pattern!r} matches no output; {_list(output_at)}")
            for name in matched:
                match = key.fullmatch(name)
                assert match is not None
                try:
                    yield name, match.expand(target)
                except (re.error, IndexError) as error:
                    raise InferenceError(f"state {key.pattern!r}: wrong template {target!r}: {error}") from error
        else:
            raise InferenceError(
                f"states: expected the name of an output or a compiled regular expression, found {shown(key)}"
            )


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    try:
        return [names[position] for position in matching(pattern, names)]
    except HeteroError as error:
        raise InferenceError(f"states: {error}") from error


def _conventional(input_at: Mapping[str, int], output_at: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Output name -> input name, where the names pair up by a convention of exporters."""
    found = False
    for name in output_at:
        candidates = []
        if "present" in name:
            candidates += [name.replace("present", past, 1) for past in ("past_key_values", "past")]
        if name.endswith("_out"):
            candidates.append(f"{name.removesuffix('_out')}_in")
        known = [candidate for candidate in candidates if candidate in input_at]
        if len(known) > 1:
            raise InferenceError(f"output {name!r} can be the state of {known[0]!r} or {known[1]!r}; name the states")
        if known:
            found = True
            yield name, known[0]
    if not found:
        raise InferenceError(
            f"no outputs and inputs pair up as states by name; pass a mapping. Outputs {_list(output_at)}; "
            f"inputs {_list(input_at)}"
        )


def _check_types(target: Port, output: Port) -> None:
    """Raise `InferenceError` if no value of ``output`` can be a value of ``target``."""
    where = f"output {output.name!r} cannot be the state of input {target.name!r}:"
    for port in (output, target):
        if not port.is_tensor:
            raise InferenceError(f"{where} {port.name!r} is not a tensor")
    if output.dtype is not None and target.dtype is not None and output.dtype != target.dtype:
        raise InferenceError(f"{where} dtypes {output.dtype} and {target.dtype}")
    # Inferred shapes may be wrong; each inference checks the value.
    if not output.declared or output.shape is None or target.shape is None:
        return
    pairs = zip(output.shape, target.shape, strict=False)
    if len(output.shape) != len(target.shape) or any(
        isinstance(made, int) and isinstance(read, int) and made != read for made, read in pairs
    ):
        raise InferenceError(f"{where} shapes {list(output.shape)} and {list(target.shape)}")


def _list(names: Mapping[str, int]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    return f"known: {', '.join(listed[:_MOST_LISTED]) or 'none'}{more}"
