"""Stage 4 for one device: its plugin compiles a model, in this process or in a worker process."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

from ..base.guard import guarded
from ..base.log import is_told, tell
from ..errors import HeteroError, NotSupported, PropertyError
from ..plugin.caller import ConfiguredDevice, adopt, check_compiled, isolates, log_settings

if TYPE_CHECKING:
    from ..model.model import Model
    from ..plugin.compiled_model import CompiledModel
    from ..plugin.remote import RemoteContext

__all__ = ["compile_on"]


def compile_on(device: ConfiguredDevice, model: Model, context: RemoteContext | None = None) -> CompiledModel:
    """`Plugin.compile_model`, checked; with ``ISOLATION=PROCESS`` in a worker process. Raises `HeteroError` for a wrong
    return value, `PluginTimeout`, and the plugin's exceptions."""
    name, plugin, config = device.name, device.plugin, device.config
    subject = model.describe_nodes()
    settings = log_settings(plugin, config)
    begin = time.perf_counter()
    if isolates(device):
        call = functools.partial(_compile_isolated, device, model, context)
    else:
        call = functools.partial(plugin.compile_model, model, config, context)
    try:
        answer = guarded(name, "compile_model", subject, call, device.timeout_ms)
        compiled = check_compiled(answer, model, name)
    except HeteroError as error:
        tell(settings, name, "ERR", str(error))
        raise
    adopt(device, compiled, subject, model.name)
    if is_told(settings, "INFO"):
        milliseconds = (time.perf_counter() - begin) * 1e3
        tell(settings, name, "INFO", f"compiled in {milliseconds:.3g} ms: {compiled!r} {subject}")
    return compiled


def _compile_isolated(device: ConfiguredDevice, model: Model, context: RemoteContext | None) -> CompiledModel:
    name, plugin = device.name, device.plugin
    if not hasattr(os, "pidfd_open"):
        raise NotSupported(f"{name}: ISOLATION=PROCESS requires Linux; set ISOLATION=NONE")
    from ..workers.isolated import compile_isolated

    if context is not None:
        raise PropertyError(f"{name}: ISOLATION=PROCESS does not support a remote context; set ISOLATION=NONE")
    try:
        ops = plugin.described_ops(model)
    except NotSupported as error:
        raise NotSupported(f"{name}: {error}, or compile without ISOLATION=PROCESS") from error
    registrations = plugin.registrations(name.partition(".")[0])
    return compile_isolated(model, name, plugin.full_config(device.config), registrations, ops)
