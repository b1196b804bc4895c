"""The weights of a model for its workers: mapped files where possible, and otherwise one copy in shared memory.

A worker maps the file that the application has mapped. The system holds such pages once for all processes, and drops
them when it needs the memory, for example after a device has packed the weights. Weights that are not in a file, or in
one that has been replaced or removed since it was read, are copied to shared memory, once for all models and workers.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.descriptor import Descriptor
from ..base.files import MappedFile, mapping_of
from ..errors import ModelError
from ..model.detached import detach
from .messages import Compile, FileRef, TensorRef, WeightRef, dtype_name
from .shared_memory import SharedMemory, SharedPool, address_of

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["SharedWeights", "attach_weights", "share_weights"]

_MAX_FILES = 64
"""The number of files that a worker maps. Each takes a descriptor in the application and in the worker, which often may
have only 1024. If a model has more, the files with the fewest bytes of weights are copied."""


@dataclasses.dataclass(slots=True)
class SharedWeights:
    """A model in memory that workers can reach.

    ``model``: its encoding without the weights. ``files``: the files that the weights lie in, with ``file_refs``.
    ``kept``: the arrays in shared memory, which must live as long as a worker may read them.
    """

    model: TensorRef
    refs: list[WeightRef]
    files: list[Descriptor]
    file_refs: list[FileRef]
    kept: list[NDArray[Any]]


def share_weights(model: Model, pool: SharedPool) -> SharedWeights:
    """Make a model available to workers. Weights in files are not read.

    Raises `ModelError` if external data cannot be read, or if a file has been shortened since it was read."""
    _check_length(model, mapping_of(model.file.data))
    encoded, arrays = detach(model)
    maps = {name: mapping_of(array) for name, array in arrays.items()}
    for mapped in {id(mapped): mapped for mapped in maps.values()}.values():
        _check_length(model, mapped)
    weights = SharedWeights(TensorRef(0, "|u1", (0,)), [], [], [], [])
    number_of = _open_files(arrays, maps, weights)

    def kept(shared: tuple[NDArray[Any], int]) -> TensorRef:
        own, offset = shared
        weights.kept.append(own)
        return TensorRef(offset, dtype_name(own.dtype), own.shape)

    weights.model = kept(pool.share(np.frombuffer(encoded, np.uint8)))
    for name, array in arrays.items():
        mapped = maps[name]
        number = number_of.get(id(mapped), -1)
        if mapped is None or number < 0:
            value = model.find_value(name)
            assert value is not None, "a constant of the model"
            weights.refs.append(WeightRef(name, -1, kept(pool.share_once(array, *model.constant_origin(value)))))
        else:
            offset = address_of(array) - address_of(np.frombuffer(mapped, np.uint8, 1))
            weights.refs.append(WeightRef(name, number, TensorRef(offset, dtype_name(array.dtype), array.shape)))
    return weights


def attach_weights(request: Compile, files: Sequence[Descriptor], memory: SharedMemory) -> dict[str, NDArray[Any]]:
    """In a worker: the weights of a request as read-only arrays, by name. Raises `ModelError` if a file was changed."""
    maps = []
    for file, ref in zip(files, request.files, strict=True):
        status = os.fstat(file.number)
        if (status.st_size, status.st_mtime_ns) != (ref.size, ref.mtime_ns):
            raise ModelError(
                f"a file of the model with {ref.size} B, now {status.st_size} B, was changed after it was read; read "
                "and compile the model again"
            )
        maps.append(mmap.mmap(file.number, ref.size, access=mmap.ACCESS_READ))
        file.close()  # the map has its own
    arrays = {}
    for weight in request.weights:
        data = weight.data
        if weight.file < 0:
            array = data.array(memory)
        else:
            array = np.ndarray(data.shape, data.numpy_dtype, maps[weight.file], data.offset)
        array.flags.writeable = False
        arrays[weight.name] = array
    return arrays


def _check_length(model: Model, mapped: mmap.mmap | None) -> None:
    if isinstance(mapped, MappedFile) and not mapped.is_whole:
        raise ModelError(
            f"{model.file.label}: {mapped.path} was shortened from {len(mapped)} B to {mapped.size()} B after it was "
            "read; read the model again"
        )


def _open_files(
    arrays: Mapping[str, NDArray[Any]], maps: Mapping[str, mmap.mmap | None], weights: SharedWeights
) -> dict[int, int]:
    """Open the files that workers map, and add them to ``weights``. Returns their numbers by the ids of the maps."""
    files = {id(mapped): mapped for mapped in maps.values() if isinstance(mapped, MappedFile)}
    sizes = dict.fromkeys(files, 0)
    for name, mapped in maps.items():
        if id(mapped) in sizes:
            sizes[id(mapped)] += arrays[name].nbytes
    number_of: dict[int, int] = {}
    for key in sorted(sizes, key=lambda key: -sizes[key])[:_MAX_FILES]:
        opened = files[key].reopen()
        if opened is not None:
            number_of[key] = len(weights.files)
            weights.files.append(opened)
            weights.file_refs.append(FileRef(len(files[key]), files[key].mtime_ns))
    return number_of
