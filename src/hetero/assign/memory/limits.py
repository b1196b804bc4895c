"""How much memory devices may be given: what users write, as bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from ...errors import PropertyError, did_you_mean, shown

__all__ = ["MaxMemory", "limits_of", "parse_bytes", "parse_limits"]

MaxMemory = Mapping[str, "int | float | str"]
"""Device -> bytes, or a text such as ``"512MiB"`` or ``"1.5GB"``."""

_SIZE = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e([+-]?[0-9]{1,3}))?\s*([A-Za-z]*)\s*", re.ASCII | re.IGNORECASE
)
_PREFIXES = "KMGTPE"
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix.lower()}{end}": 1000**power for power, prefix in enumerate(_PREFIXES, 1) for end in ("", "b")},
    **{f"{prefix.lower()}ib": 1024**power for power, prefix in enumerate(_PREFIXES, 1)},
    **{f"{prefix.lower()}i": 1024**power for power, prefix in enumerate(_PREFIXES, 1)},
}
_LARGEST = 2**63 - 1
_MOST_DIGITS = 100  # longer sizes are too large anyway, and Python may refuse to parse them


def parse_bytes(given: object, what: str = "a size") -> int:
    """Whole bytes of a number or of a text: ``"4096"``, ``"512MiB"`` (1024s), ``"1.5GB"`` (1000s), ``"2G"`` (1000s).

    ``what`` begins messages. Raises `PropertyError` unless it is a size that is finite, above zero and not too large.
    """
    size: float | int
    if isinstance(given, str):
        found = _SIZE.fullmatch(given)
        if found is None and re.fullmatch(r"\s*-\s*[0-9.].*", given):
            raise PropertyError(f"{what}: {given!r} is negative, expected more than 0 bytes")
        if found is None:
            raise PropertyError(f"{what}: {given!r} is not a size, expected bytes such as 4096, '512MiB' or '1.5GB'")
        number, exponent, unit = found.groups()
        if unit.lower() not in _UNITS:
            raise PropertyError(
                f"{what}: there is no unit {unit!r}{did_you_mean(unit, ('KiB', 'MiB', 'GiB', 'TiB', 'kB', 'MB', 'GB'))}"
                f"; expected B, kB, MB, GB, TB (1000s) or KiB, MiB, GiB, TiB (1024s)"
            )
        factor = _UNITS[unit.lower()]
        is_whole = number.isdigit() and not exponent and len(number) < _MOST_DIGITS
        size = int(number) * factor if is_whole else float(f"{number}e{exponent or 0}") * factor
    elif isinstance(given, bool) or not isinstance(given, (int, float)):
        raise PropertyError(f"{what}: {shown(given)} is not a size, expected bytes such as 4096, '512MiB' or '1.5GB'")
    else:
        size = given
    if isinstance(size, float) and not math.isfinite(size):
        raise PropertyError(f"{what}: {given!r} is not finite; leave the device out for no limit")
    if size < 0:
        raise PropertyError(f"{what}: {shown(given)} is negative, expected more than 0 bytes")
    if size < 1:
        raise PropertyError(
            f"{what}: {given!r} is less than a byte; leave the device out of the list to give it nothing"
        )
    if size > _LARGEST:
        raise PropertyError(f"{what}: {shown(given)} is more than 2**63 - 1 bytes; leave the device out for no limit")
    return int(size)


def parse_limits(given: object) -> dict[str, int]:
    """Device -> bytes, from a mapping or a text: ``"CPU.0=1GiB,CPU.1=512MiB"``. Raises `PropertyError`."""
    if isinstance(given, str):
        entries: dict[str, object] = {}
        for entry in filter(None, (part.strip() for part in given.split(","))):
            device, equals, size = entry.partition("=")
            if not equals or not device.strip():
                raise PropertyError(f"max_memory: expected DEVICE=SIZE, such as CPU.0=1GiB, found {entry!r}")
            if device.strip() in entries:
                raise PropertyError(f"max_memory: {device.strip()!r} is given twice")
            entries[device.strip()] = size
        given = entries
    if not isinstance(given, Mapping):
        raise PropertyError(f"max_memory is a mapping such as {{'CPU.0': '1GiB'}}, found {shown(given)}")
    for device in given:
        if not isinstance(device, str):
            raise PropertyError(f"max_memory maps names of devices to sizes, found {shown(device)}")
    return {device: parse_bytes(size, f"max_memory of {device}") for device, size in given.items()}


def limits_of(
    devices: Sequence[str],
    wanted: Mapping[str, int],
    stated: Mapping[str, float | None],
    listed: Sequence[str] | None = None,
) -> dict[str, int]:
    """Device -> bytes, for the devices that have a limit.

    ``devices``: those that are used. ``wanted``: the user's; a name without an id (``CPU``) holds for each device of
    that name that has no entry of its own. ``stated``: what a device says that it has, which is a limit, too.
    ``listed``: all that ``wanted`` may name; None: any. Raises `PropertyError` for others, with the nearest name.
    """
    if listed is not None:
        names = list(dict.fromkeys([*listed, *(device.partition(".")[0] for device in listed)]))
        for device in wanted:
            if device not in names:
                raise PropertyError(
                    f"max_memory names {device!r}, which is not in the list {', '.join(listed)}"
                    f"{did_you_mean(device, names)}"
                )
    limits = {}
    for device in devices:
        own = stated.get(device)
        given = wanted.get(device, wanted.get(device.partition(".")[0]))
        known = [int(size) for size in (own, given) if size is not None]
        if known:
            limits[device] = min(known)
    return limits
