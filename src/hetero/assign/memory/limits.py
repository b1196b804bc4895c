"""Memory limits as users write them, in bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from ...base.device_string import check_listed
from ...base.plain import plain
from ...errors import PropertyError, did_you_mean, shown

__all__ = ["AVAILABLE", "MaxMemory", "limits_of", "parse_bytes", "parse_limits"]

MaxMemory = Mapping[str, "int | float | str"]
"""Device -> bytes, or a text such as ``"512MiB"`` or ``"1.5GB"``, or `AVAILABLE`."""

AVAILABLE = "available"
"""A limit: what the device has free when the model is planned."""

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
_MAX_BYTES = 2**63 - 1
_MAX_DIGITS = 100  # a longer number is too large anyway, and Python may refuse to parse it


def parse_bytes(value: object, what: str = "a size") -> int:
    """Bytes from a number or a text: ``"4096"``, ``"512MiB"`` (binary), ``"1.5GB"`` and ``"2G"`` (decimal).

    ``what``: the subject of error messages. Raises `PropertyError` unless the size is from 1 to 2**63 - 1 bytes.
    """
    size: float | int
    value = plain(value)
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None and re.fullmatch(r"\s*-\s*[0-9.].*", value):
            raise PropertyError(f"{what}: {value!r} is negative, expected more than 0 bytes")
        if match is None:
            raise PropertyError(f"{what}: {value!r} is not a size, expected bytes such as 4096, '512MiB' or '1.5GB'")
        number, exponent, unit = match.groups()
        if unit.lower() not in _UNITS:
            raise PropertyError(
                f"{what}: unknown unit {unit!r}{did_you_mean(unit, ('KiB', 'MiB', 'GiB', 'TiB', 'kB', 'MB', 'GB'))}"
                f"; expected B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)"
            )
        factor = _UNITS[unit.lower()]
        is_whole = number.isdigit() and not exponent and len(number) < _MAX_DIGITS
        size = int(number) * factor if is_whole else float(f"{number}e{exponent or 0}") * factor
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PropertyError(f"{what}: {shown(value)} is not a size, expected bytes such as 4096, '512MiB' or '1.5GB'")
    else:
        size = value
    if isinstance(size, float) and not math.isfinite(size):
        raise PropertyError(f"{what}: {shown(value)} is not finite; for no limit, leave the device out of max_memory")
    if size < 0:
        raise PropertyError(f"{what}: {shown(value)} is negative, expected more than 0 bytes")
    if size < 1:
        raise PropertyError(
            f"{what}: {value!r} is less than a byte; to keep nodes off a device, leave it out of the device list"
        )
    if size > _MAX_BYTES:
        raise PropertyError(
            f"{what}: {shown(value)} is more than 2**63 - 1 bytes; for no limit, leave the device out of max_memory"
        )
    return int(size)


def parse_limits(value: object) -> dict[str, int | str]:
    """Device -> bytes or `AVAILABLE`, from a mapping or a text: ``"CPU.0=1GiB,CPU.1=512MiB"``. Raises
    `PropertyError`."""
    if isinstance(value, str):
        entries: dict[str, object] = {}
        for entry in filter(None, (part.strip() for part in value.split(","))):
            device, equals, size = entry.partition("=")
            if not equals or not device.strip():
                raise PropertyError(f"max_memory: expected DEVICE=SIZE, such as CPU.0=1GiB, found {entry!r}")
            if device.strip() in entries:
                raise PropertyError(f"max_memory: {device.strip()!r} is given twice")
            entries[device.strip()] = size
        value = entries
    if not isinstance(value, Mapping):
        raise PropertyError(f"max_memory must be a mapping such as {{'CPU.0': '1GiB'}}, found {shown(value)}")
    for device in value:
        if not isinstance(device, str):
            raise PropertyError(f"max_memory must map device names to sizes, found the key {shown(device)}")
    return {plain(device): _limit(size, f"max_memory of {device}") for device, size in value.items()}


def _limit(size: object, what: str) -> int | str:
    size = plain(size)
    if not isinstance(size, str) or not size.isalpha():
        return parse_bytes(size, what)
    if size == AVAILABLE:
        return AVAILABLE
    raise PropertyError(
        f"{what}: {size!r} is not a size, expected bytes such as '512MiB', or {AVAILABLE!r} for the free memory of the "
        "device"
    )


def limits_of(
    devices: Sequence[str],
    user_limits: Mapping[str, int | str],
    device_memory: Mapping[str, float | None],
    listed: Sequence[str] | None = None,
    available: Callable[[str], float | None] = lambda device: None,
) -> dict[str, int]:
    """Device -> bytes, for the devices that have a limit.

    ``devices``: the devices in use. ``user_limits``: device -> bytes; a name without an id (``CPU``) applies to each
    device of that name without an entry of its own. ``device_memory``: device -> the bytes that the device reports,
    which are a limit as well; the smaller limit applies. ``listed``: the devices that ``user_limits`` may name; None:
    any. ``available``: the bytes that a device has free, for `AVAILABLE`; None if it does not say. Raises
    `PropertyError` for other names, with the nearest name, and for a device that does not say.
    """
    if listed is not None:
        check_listed("max_memory", user_limits, listed)
    limits = {}
    for device in devices:
        user_limit: int | float | str | None = user_limits.get(device, user_limits.get(device.partition(".")[0]))
        if user_limit == AVAILABLE:
            user_limit = available(device)
            if user_limit is None:
                raise PropertyError(f"max_memory of {device}: the device does not say what is available; give a size")
        sizes = [int(size) for size in (device_memory.get(device), user_limit) if size is not None]
        if sizes:
            limits[device] = min(sizes)
    return limits
