"""Captures the carried values of a Loop that its body passes on as they are.

Some exporters carry all values that a body reads, weights included. A captured constant is a constant of the body, so
its products can be packed, and a captured value is not passed on in every iteration.

Condition: the body's result for the value is its own input, also by way of Identity, and both have the element type of
the initial value. The Loop then returns the initial value, after any number of iterations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..registry import ANY, STRING, name_of

if TYPE_CHECKING:
    from ..registry import Append, NestedGraph

__all__ = ["with_invariants_captured"]


def with_invariants_captured(
    body: NestedGraph, initial: Sequence[str | None], appends: Sequence[Append]
) -> tuple[NestedGraph, tuple[int, ...]]:
    """A Loop's body that captures its invariants, and their indices among the carried values.

    ``initial``: the element types of all carried values before the first iteration, None if unknown.
    ``appends``: the carried values that the body no longer has."""
    source = {plan.outputs[0]: plan.inputs[0] for plan in body.nodes if plan.node.op_type == "Identity"}
    appended = {append.carried for append in appends}
    carried = [at for at in range(len(initial)) if at not in appended]
    kept, places, captures = [], [], []
    for place, at in enumerate(carried):
        value, result = body.inputs[2 + place], body.results[1 + place]
        while result in source:
            result = source[result]
        dtype = body.model.type_of(value).dtype
        if result == value and dtype is not None and name_of(dtype) == initial[at] and initial[at] in (*ANY, *STRING):
            kept.append(at)
            places.append(place)
            captures.append((value, 2 + at))
    if not kept:
        return body, ()
    return dataclasses.replace(body.without_carried(places), captures=(*captures, *body.captures)), tuple(kept)
