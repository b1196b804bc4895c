"""Shell completion of devices and of the model's operators."""

from __future__ import annotations

from collections.abc import Sequence

import click

__all__ = ["complete_device", "complete_pin", "complete_support", "operators_of"]


def complete_device(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of devices; after ``HETERO:`` and each comma, those allowed in a list."""
    from ..base.device_string import LIST_DEVICES
    from ..registry import Registry

    names = Registry().names()
    head, separator, last = incomplete.rpartition("," if "," in incomplete else ":")
    lists = LIST_DEVICES
    if not separator:
        return [f"{name}:" if name in lists else name for name in names if name.startswith(incomplete)]
    excluded = {*lists, *head.partition(":")[2].split(",")}
    return [f"{head}{separator}{name}" for name in names if name.startswith(last) and name not in excluded]


def complete_pin(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Operators of the model, and the devices of the list."""
    pattern, equals, device = incomplete.partition("=")
    if equals:
        return [f"{pattern}={name}" for name in _listed(ctx) if name.startswith(device)]
    return [f"op:{name}=" for name in operators_of(ctx) if f"op:{name}".startswith(incomplete)]


def operators_of(ctx: click.Context) -> Sequence[str]:
    """The operators of the model on an unfinished command line. Reads the model's nodes, but no weights."""
    # While an option has no value yet, click does not assign the arguments.
    path = ctx.params.get("model_path") or ctx.params.get("model_option") or next(iter(ctx.args), None)
    if not path:
        return ()
    from ..errors import HeteroError
    from ..model.read import read_model

    try:
        return sorted(read_model(path).op_types)
    except HeteroError:
        return ()


def _listed(ctx: click.Context) -> Sequence[str]:
    """The devices in the list of the first ``-d``."""
    from ..base.device_string import parse_device, with_list_device

    devices = ctx.params.get("devices") or "CPU"
    return parse_device(with_list_device(devices if isinstance(devices, str) else devices[0])).devices or ()


def complete_support(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """``DEVICE=OP,OP``: the devices of the list, then operators of the model."""
    device, equals, listed = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in _listed(ctx) if name.startswith(incomplete)]
    before, comma, last = listed.rpartition(",")
    return [f"{device}={before}{comma}{name}" for name in operators_of(ctx) if name.startswith(last)]
