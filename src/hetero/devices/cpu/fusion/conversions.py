"""Puts each conversion from small integers to float32 right before the calls that read it.

Contract: the same bits. A float32 tensor then lives for a few calls only, and a sum or product of quantized tensors
becomes one chain with its conversions (`chains.py`).

Each elementwise call gets a conversion of its own, because it can join a chain; the other readers share one, before the
first of them. Condition: one scale, and the result is not read after the segment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from ..values import Call, Value

__all__ = ["place_conversions"]


def place_conversions(
    calls: Sequence[Call], kept: Collection[int], joins: Callable[[Call], bool], new_storage: Callable[[], int]
) -> list[Call]:
    """``kept``: storages that are read after the segment. ``joins``: whether a call may be a part of a chain."""
    conversions = {
        call.outputs[0].storage: call
        for call in calls
        if call.kernel == "dequantize" and not call.ints and call.outputs[0].storage not in kept
    }
    if not conversions:
        return list(calls)
    result: list[Call] = []
    shared: set[int] = set()  # storages whose conversion stands before a reader that does not join a chain
    for call in calls:
        if call.kernel == "dequantize" and conversions.get(call.outputs[0].storage) is call:
            continue
        read = dict.fromkeys(v.storage for v in call.inputs if v is not None and v.data is None)
        own: dict[int, int] = {}
        for storage in read:
            conversion = conversions.get(storage)
            if conversion is None:
                continue
            if joins(call):
                own[storage] = new_storage()
                made = dataclasses.replace(conversion.outputs[0], storage=own[storage])
                result.append(conversion.changed(outputs=(made,)))
            elif storage not in shared:
                shared.add(storage)
                result.append(conversion)
        if own:
            inputs = (
                value if value is None or value.storage not in own or value.data is not None else _at(value, own)
                for value in call.inputs
            )
            call = call.changed(inputs=tuple(inputs))
        result.append(call)
    return result


def _at(value: Value, own: dict[int, int]) -> Value:
    return dataclasses.replace(value, storage=own[value.storage])
