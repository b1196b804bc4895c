"""``CACHE_DIR``: a folder of compiled models, found by their inputs.

An entry's name is the SHA-256 of the model (structure, weights, affinities), the device string, the version descriptor
of each device, all properties, and the pins or the plan. An entry therefore never becomes stale, and any process may
use the entry with the name it computes. Entries are written by an atomic rename, so no locks are needed: if two
processes compile the same model at the same time, both write the same entry and the later one stays. An unusable entry
is replaced, with a warning.
"""

from __future__ import annotations

import functools
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
from ..base.version import __version__
from ..base.warn import warn
from ..errors import ArtifactError, HeteroError, NotSupported, raise_out_of_memory
from ..plugin.caller import isolates
from .importing import import_model

if TYPE_CHECKING:
    from ..assign.request import Request
    from ..model.model import Model
    from ..plugin.caller import ConfiguredDevice
    from ..plugin.contract import CompiledModel

__all__ = ["cached", "digest_of"]

_LENT_BYTES = 4096  # larger weights, in B, are hashed in place instead of copied into the model's bytes
# Properties that are resolved in the rules of a request.
_IN_RULES = ("COSTS", "MAX_MEMORY", "MIN_SUBGRAPH", "STAY_TOGETHER")
_NOT_KEYS = ("CACHE_DIR", "CACHE_ENCRYPTION_CALLBACKS")


def cached(model: Model, request: Request, chosen: object, compile_anew: Callable[[], CompiledModel]) -> CompiledModel:
    """The compiled model from the cache, or else the result of ``compile_anew()``, which is added to the cache.

    ``CACHE_DIR`` of the request names the folder, which is created if it does not exist. ``chosen``: what the result
    depends on besides the model and the request, such as a plan, as JSON values.
    """
    settings = request.settings
    folder = settings["CACHE_DIR"]
    if settings.get("HETERO_DUMP_GRAPH_DOT"):  # only compilation writes these dumps
        return compile_anew()
    if not request.cuts and isolates(request.whole):  # the worker uses the cache
        return compile_anew()
    encrypt, decrypt = callbacks_of(settings["CACHE_ENCRYPTION_CALLBACKS"])
    identity = [digest_of(model), _identity(request), chosen, encrypt is not None]
    encoded = msgspec.json.encode(identity, enc_hook=repr, order="deterministic")
    path = os.path.join(folder, f"{hashlib.sha256(encoded).hexdigest()}.hetero")
    name = request.whole.name
    loaded = _load(path, request.whole, decrypt)
    if loaded is not None:
        tell(settings, name, "INFO", f"found {model.name!r} in the cache: {path}")
        if any(port.default is not None for port in model.inputs):  # which the file does not have
            loaded.adopt_ports(model.inputs, loaded.outputs)
        return loaded
    compiled = compile_anew()
    try:
        os.makedirs(folder, exist_ok=True)
        export_model(compiled, path, encrypt)
        tell(settings, name, "INFO", f"kept {model.name!r} in the cache: {path}")
    except NotSupported:  # a device does not support export
        pass
    except ArtifactError as error:
        warn(f"CACHE_DIR: cannot store {model.name!r}: {error}")
    except OSError as error:
        warn(f"CACHE_DIR: cannot store {model.name!r}: cannot make the folder {error.filename}: {error.strerror}")
    return compiled


def _identity(request: Request) -> list[Any]:
    """All inputs of the compilation except the model, as JSON values."""
    devices = []
    for device in request.devices:
        call = functools.partial(device.plugin.version_descriptor, device.config)
        versions = dict(guarded(device.name, "version_descriptor", "", call))
        devices.append([device.name, versions, _without_cache(device.plugin.settings_of(device.config))])
    if not request.cuts:
        return [__version__, request.whole.name, devices]
    rules = request.rules
    costs = None if rules.costs is None else rules.costs.to_json()  # what they say, not where they are
    own = {key: value for key, value in _without_cache(request.settings).items() if key not in _IN_RULES}
    constraints = [list(request.pins.items()), rules.limits, rules.least, rules.most, rules.together]
    return [__version__, request.whole.name, devices, own, costs, constraints]


def _load(path: str, device: ConfiguredDevice, decrypt: Callable[[bytes], bytes] | None) -> CompiledModel | None:
    try:
        artifact = open_artifact(path, decrypt)
        compiled = import_model(PayloadReader(artifact), device)
    except HeteroError as error:
        raise_out_of_memory(error)
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError, PermissionError)):
            return None  # not in the cache, or removed by another process, or storing it will fail as well
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


def _without_cache(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the properties of the cache, at every level."""
    return {
        key: _without_cache(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in _NOT_KEYS
    }
