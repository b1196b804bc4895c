"""Stage 4 for one device: its plugin compiles a model, in this process or in a worker process."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.guard import guarded
from ..base.log import is_told, tell
from ..errors import HeteroError, NotSupported, PropertyError
from ..plugin.caller import adopt, check_compiled, isolates, log_settings

if TYPE_CHECKING:
    from ..model.model import Model
    from ..plugin.compiled_model import CompiledModel
    from ..plugin.contract import Plugin
    from ..plugin.remote import RemoteContext

__all__ = ["compile_on"]


def compile_on(
    plugin: Plugin,
    model: Model,
    config: Mapping[str, Any],
    context: RemoteContext | None = None,
    device: str | None = None,
) -> CompiledModel:
    """`Plugin.compile_model`, checked; with ``ISOLATION=PROCESS`` in a worker process.

    ``device``: the requested name, such as ``CPU.1``; defaults to the plugin's name. Raises `PropertyError` for a wrong
    ``config``, `HeteroError` for a wrong return value, `PluginTimeout`, and the plugin's exceptions.
    """
    name = device or plugin.name
    subject = model.describe_nodes()
    settings = log_settings(plugin, config)
    begin = time.perf_counter()
    if isolates(plugin, config):
        call = functools.partial(_compile_isolated, plugin, model, config, context, name)
    else:
        call = functools.partial(_compile_here, plugin, model, config, context)
    try:
        answer = guarded(name, "compile_model", subject, call, plugin.timeout_ms(config))
        compiled = check_compiled(answer, model, name)
    except HeteroError as error:
        tell(settings, name, "ERR", str(error))
        raise
    adopt(plugin, compiled, config, subject, model.name, name)
    if is_told(settings, "INFO"):
        milliseconds = (time.perf_counter() - begin) * 1e3
        tell(settings, name, "INFO", f"compiled in {milliseconds:.3g} ms: {compiled!r} {subject}")
    return compiled


def _compile_here(
    plugin: Plugin, model: Model, config: Mapping[str, Any], context: RemoteContext | None
) -> CompiledModel:
    plugin.check_config(config)
    return plugin.compile_model(model, config, context)


def _compile_isolated(
    plugin: Plugin, model: Model, config: Mapping[str, Any], context: RemoteContext | None, device: str
) -> CompiledModel:
    from ..workers.isolated import compile_isolated

    if context is not None:
        raise PropertyError(f"{device}: ISOLATION=PROCESS does not support a remote context; set ISOLATION=NONE")
    try:
        ops = plugin.described_ops(model)
    except NotSupported as error:
        raise NotSupported(f"{device}: {error}, or compile without ISOLATION=PROCESS") from error
    registrations = plugin.registrations(device.partition(".")[0])
    return compile_isolated(model, device, plugin.full_config(config), registrations, ops)
