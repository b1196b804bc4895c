"""``CACHE_DIR``: compiled models kept in a folder, by what they were compiled from.

An entry's name is a SHA-256 over the model (structure, weights, affinities), the device string, the version descriptor
of each device, all properties, and pins or plan. So an entry never goes stale, it is only no longer asked for, and
whoever finds one under the name it looks for may use it, in whichever process. Entries appear by a rename, whole, so no
locks are needed: of two processes that compile the same model at once both write the same, and the later one stays. An
entry that cannot be used is replaced, with a warning.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..artifact.exporting import callbacks_of, export_model
from ..artifact.payload import PayloadReader
from ..artifact.reader import open_artifact
from ..base.guard import guarded
from ..base.log import tell
from ..base.warn import warn
from ..errors import ArtifactError, HeteroError, NotSupported, raise_out_of_memory
from ..plugin.caller import isolates
from .importing import import_model

if TYPE_CHECKING:
    from ..model.model import Model
    from ..plugin.contract import CompiledModel, Plugin

__all__ = ["cached", "digest_of"]

_LENT_BYTES = 4096
_NOT_KEYS = ("CACHE_DIR", "CACHE_ENCRYPTION_CALLBACKS")


def cached(
    model: Model,
    device: str,
    plugin: Plugin,
    config: Mapping[str, Any],
    chosen: object,
    compile_anew: Callable[[], CompiledModel],
) -> CompiledModel:
    """The compiled model from the folder, else ``compile_anew()``, which is then kept there.

    ``config``: the plugin's properties; ``CACHE_DIR`` among them, or set before, names the folder, which is made.
    Without one, nothing is looked up or kept. ``chosen``: pins or a plan, as what JSON can hold.
    """
    settings = plugin.full_config({key: value for key, value in config.items() if plugin.declares(key)})
    folder = settings.get("CACHE_DIR")
    if not folder or settings.get("HETERO_DUMP_GRAPH_DOT"):  # dumps are made by compiling
        return compile_anew()
    if isolates(plugin, settings):  # the worker looks there
        return compile_anew()
    encrypt, decrypt = callbacks_of(settings["CACHE_ENCRYPTION_CALLBACKS"])
    identity = [
        digest_of(model),
        device,
        dict(guarded(device, "version_descriptor", "", lambda: plugin.version_descriptor(config))),
        _without(plugin.settings_of(config)),
        chosen,
        encrypt is not None,
    ]
    encoded = msgspec.json.encode(identity, enc_hook=repr, order="deterministic")
    path = os.path.join(folder, f"{hashlib.sha256(encoded).hexdigest()}.hetero")
    found = _load(path, plugin, config, decrypt)
    if found is not None:
        tell(settings, device, "INFO", f"found {model.name!r} in the cache: {path}")
        return found
    compiled = compile_anew()
    try:
        os.makedirs(folder, exist_ok=True)
        export_model(compiled, path, encrypt)
        tell(settings, device, "INFO", f"kept {model.name!r} in the cache: {path}")
    except NotSupported:  # a device of it exports nothing
        pass
    except (ArtifactError, OSError) as error:
        warn(f"CACHE_DIR: {model.name!r} is not kept: {error}")
    return compiled


def _load(
    path: str, plugin: Plugin, config: Mapping[str, Any], decrypt: Callable[[bytes], bytes] | None
) -> CompiledModel | None:
    try:
        artifact = open_artifact(path, decrypt)
        compiled = import_model(PayloadReader(artifact), plugin, config)
    except HeteroError as error:
        raise_out_of_memory(error)
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            return None  # never there, or removed by another process
        warn(f"CACHE_DIR: an entry cannot be used and is made anew: {error}")
        return None
    compiled.add_settings({"LOADED_FROM_CACHE": True})
    return compiled


def digest_of(model: Model) -> str:
    """SHA-256 of a model: of its bytes, and of those weights that are not in them. Two models of one digest compile to
    the same; reading one from a path or from bytes gives the same digest."""
    data, arrays = model.to_bytes_lending(_LENT_BYTES)
    digest = hashlib.sha256(len(data).to_bytes(8, "little"))
    digest.update(data)
    for name, array in arrays.items():
        head = msgspec.json.encode([name, array.dtype.name, array.shape])
        digest.update(len(head).to_bytes(8, "little") + head)
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _without(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those of the cache itself, at every level."""
    return {
        key: _without(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in _NOT_KEYS
    }
