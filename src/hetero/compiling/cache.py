"""``CACHE_DIR``: a folder of compiled models, found by their inputs.

An entry's name is the SHA-256 of the model (structure, weights, affinities), the device string, the version descriptor
of each device, all properties, and the pins or the plan. An entry therefore never becomes stale, and any process may
use the entry with the name it computes. Entries are written by an atomic rename, so no locks are needed: if two
processes compile the same model at the same time, both write the same entry and the later one stays. An unusable entry
is replaced, with a warning.
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

_LENT_BYTES = 4096  # larger weights, in B, are hashed in place instead of copied into the model's bytes
_NOT_KEYS = ("CACHE_DIR", "CACHE_ENCRYPTION_CALLBACKS")


def cached(
    model: Model,
    device: str,
    plugin: Plugin,
    config: Mapping[str, Any],
    chosen: object,
    compile_anew: Callable[[], CompiledModel],
) -> CompiledModel:
    """The compiled model from the cache, or else the result of ``compile_anew()``, which is added to the cache.

    ``config``: the plugin's properties. Its ``CACHE_DIR``, or the device's default, names the folder, which is created
    if it does not exist. Without ``CACHE_DIR``, the cache is not used. ``chosen``: pins or a plan, as JSON values.
    """
    settings = plugin.full_config({key: value for key, value in config.items() if plugin.declares(key)})
    folder = settings.get("CACHE_DIR")
    if not folder or settings.get("HETERO_DUMP_GRAPH_DOT"):  # only compilation writes these dumps
        return compile_anew()
    if isolates(plugin, settings):  # the worker uses the cache
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
    except NotSupported:  # a device does not support export
        pass
    except (ArtifactError, OSError) as error:
        warn(f"CACHE_DIR: cannot store {model.name!r}: {error}")
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
            return None  # not in the cache, or removed by another process
        warn(f"CACHE_DIR: an entry cannot be used and will be replaced: {error}")
        return None
    compiled.add_settings({"LOADED_FROM_CACHE": True})
    return compiled


def digest_of(model: Model) -> str:
    """The SHA-256 of a model: of its bytes and of the weights outside them. Models with the same digest compile to the
    same result. The digest does not depend on whether the model was read from a path or from bytes."""
    data, arrays = model.to_bytes_lending(_LENT_BYTES)
    digest = hashlib.sha256(len(data).to_bytes(8, "little"))
    digest.update(data)
    for name, array in arrays.items():
        head = msgspec.json.encode([name, array.dtype.name, array.shape])
        digest.update(len(head).to_bytes(8, "little") + head)
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _without(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the properties of the cache, at every level."""
    return {
        key: _without(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in _NOT_KEYS
    }
