"""The settings of `hetero.assign.constraints` as users write them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.device_string import check_listed
from ..errors import PropertyError, did_you_mean, shown
from ..plugin.contract import LeastSubgraph

__all__ = ["least_of", "least_size", "parse_groups", "parse_least"]

_SIZES = ("nodes", "flops")
_MOST = 10**30  # above any size, and below what a float holds
_SIZE = re.compile(  # "3", "1e6flops", "1 Mflop"
    r"([0-9]{1,18})|([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE]\+?[0-9]{1,2})?)\s*([kKMGT]?)[fF][lL][oO][pP][sS]?"
)
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def parse_least(value: object) -> dict[str, LeastSubgraph]:
    """Device -> minimum size of its subgraphs, from a mapping from devices to numbers of nodes or to mappings with
    ``nodes`` and ``flops``, or from a text: ``"FPGA=3,NPU=1e6flops"``, or JSON. Raises `PropertyError`."""
    if isinstance(value, str):
        value = _json(value, "MIN_SUBGRAPH") if value.lstrip().startswith("{") else _entries(value)
    if not isinstance(value, Mapping) or not all(isinstance(device, str) for device in value):
        raise PropertyError(f"MIN_SUBGRAPH must be a mapping such as {{'FPGA': 3}}, found {shown(value)}")
    return {device: least_size(size, f"MIN_SUBGRAPH of {device}") for device, size in value.items()}


def least_size(size: object, what: str) -> LeastSubgraph:
    """Converts a number of nodes, or a mapping with ``nodes`` and ``flops``. Raises `PropertyError`."""
    sizes: Mapping[Any, Any] = size if isinstance(size, Mapping) else {"nodes": size}
    for key, number in sizes.items():
        if key not in _SIZES:
            nearest = did_you_mean(str(key), _SIZES)
            raise PropertyError(f"{what}: unknown key {shown(key)}{nearest}; known: nodes, flops")
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        is_finite = isinstance(number, float) and math.isfinite(number)
        if not (is_whole or (key == "flops" and is_finite)) or not 0 <= number <= _MOST:
            expected = "a whole number" if key == "nodes" else "a finite number"
            raise PropertyError(f"{what}: {key}: expected {expected} of at least 0, found {shown(number)}")
    return LeastSubgraph(max(int(sizes.get("nodes", 1)), 1), float(sizes.get("flops", 0)))


def least_of(
    by_device: Mapping[str, LeastSubgraph], by_user: Mapping[str, LeastSubgraph], listed: Sequence[str] | None
) -> dict[str, LeastSubgraph]:
    """Device -> minimum size, for devices that have one: the larger of the device's own and the user's. A name without
    an id (``CPU``) applies to each device of that name without an entry of its own.

    ``listed``: the devices that ``by_user`` may name; None: any. Raises `PropertyError` for other names.
    """
    if listed is not None:
        check_listed("MIN_SUBGRAPH", by_user, listed)
    least = {}
    for device, own in by_device.items():
        both = own | by_user.get(device, by_user.get(device.partition(".")[0], LeastSubgraph()))
        if not both.is_any:
            least[device] = both
    return least


def parse_groups(value: object) -> tuple[tuple[str, ...], ...]:
    """Groups of nodes, each as expressions, from a sequence whose entries are an expression or a sequence of these, or
    from a text: one expression, or JSON. Raises `PropertyError`."""
    if isinstance(value, str):
        value = _json(value, "STAY_TOGETHER") if value.lstrip().startswith("[") else [value] if value else []
    wrong = PropertyError(
        f"STAY_TOGETHER must be a list of groups such as [['a', 'b'], '/head/.*'], found {shown(value)}"
    )
    if not isinstance(value, Sequence):
        raise wrong
    groups: list[tuple[str, ...]] = []
    for group in value:
        if isinstance(group, str):
            groups.append((group,))
        elif isinstance(group, Sequence) and group and all(isinstance(text, str) for text in group):
            groups.append(tuple(group))
        else:
            raise wrong
    return tuple(groups)


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PropertyError(f"{what}: {shown(text)} is not valid JSON: {error}") from error


def _entries(text: str) -> dict[str, dict[str, float]]:
    least: dict[str, dict[str, float]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        device, _, size = map(str.strip, entry.partition("="))
        match = _SIZE.fullmatch(size)
        if match is None or not device:
            raise PropertyError(
                "MIN_SUBGRAPH: expected DEVICE=NODES or DEVICE=WORK, such as FPGA=3 or FPGA=1e6flops, "
                f"found {shown(entry)}"
            )
        nodes, flops, prefix = match.groups()
        sizes = least.setdefault(device, {})
        key = "nodes" if flops is None else "flops"
        if key in sizes:
            raise PropertyError(f"MIN_SUBGRAPH: {device!r} is given twice")
        sizes[key] = int(nodes) if flops is None else float(flops) * _FACTORS[prefix]
    return least
