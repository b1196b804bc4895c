"""Matrix products: by CLBlast, or by a kernel of product.cl.

On a GPU without CLBlast, the first large product times each of `TILES` and writes the fastest to a file, so that each
device is tuned once (`tiles_of`). Processors use a kernel without local memory.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.files import write_atomically
from . import backend, blas
from .device import Device, KernelSource, Stream, file_kernel
from .steps import KernelStep, ProductStep
from .tensors import CONSTANT, Slot

if TYPE_CHECKING:
    from .builder import Builder
    from .tensors import Tensor

__all__ = ["TILES", "Matrix", "Tile", "multiply", "tile_of"]


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A matrix, or one of each batch: its tensor, and the distances, in elements, between rows, between columns, and
    between batches. ``begin``: the position of the first element."""

    tensor: Tensor
    row: int
    column: int
    batch: int
    begin: int = 0


@dataclasses.dataclass(frozen=True)
class Tile:
    """The part of a product that a work-group computes, and the part of a work-item in it. ``depth``: the number of
    terms that are in local memory at a time."""

    rows: int
    columns: int
    depth: int
    rows_each: int
    columns_each: int

    @property
    def items(self) -> tuple[int, int]:
        """The size of a work-group."""
        return self.columns // self.columns_each, self.rows // self.rows_each

    def source(self, half: bool) -> KernelSource:
        """The kernel."""
        names = ("ROWS", "COLUMNS", "DEPTH", "ROWS_EACH", "COLUMNS_EACH")
        numbers = (self.rows, self.columns, self.depth, self.rows_each, self.columns_each)
        return file_kernel("product.cl", "product", half, (("TILED", 1), *zip(names, numbers, strict=True)))


TILES = (
    Tile(64, 64, 16, 4, 4),
    Tile(128, 128, 16, 8, 8),
    Tile(128, 64, 16, 8, 4),
    Tile(64, 64, 32, 8, 8),
    Tile(32, 32, 16, 2, 2),
    Tile(16, 16, 16, 1, 1),
)
"""The first is used for small products, and until a device is tuned."""
_WORTH_TUNING = 1 << 28
"""Multiplications in a product for which a device is tuned: smaller ones take less time than tuning."""
_TUNED_SIZE = 1024
_TILES_FILE = "opencl-tiles.json"
_lock = threading.Lock()
_known: dict[str, Tile] = {}


def multiply(
    builder: Builder, left: Matrix, right: Matrix, result: Matrix, sizes: tuple[int, int, int], batches: int
) -> None:
    """Add the step that computes ``result`` = ``left`` ``right``. ``sizes``: m, n, k. The columns of ``result`` are
    contiguous."""
    m, n, k = sizes
    if not m or not n or not batches:
        return
    if not k:
        builder.fill(result.tensor, 0, result.tensor.dtype)
        return
    device, tensor = builder.device, result.tensor
    slots = (builder.memory(left.tensor), builder.memory(right.tensor), builder.memory(tensor))
    if builder.uses_clblast and tensor.dtype == np.float32:
        stored = blas.lies_in_rows(left.row, left.column, m, k), blas.lies_in_rows(right.row, right.column, k, n)
        if stored[0] is not None and stored[1] is not None:
            gemm = blas.Gemm(
                m,
                n,
                k,
                (stored[0][0], stored[1][0]),
                (stored[0][1], stored[1][1], result.row),
                batches,
                (left.batch, right.batch, result.batch),
                (left.begin, right.begin, result.begin),
            )
            builder.add_product(ProductStep(builder.node, gemm, slots), tensor)
            return
    half = tensor.dtype == np.float16
    numbers = (m, n, k, left.row, left.column, right.row, right.column, result.row)
    packed = np.array(
        (*numbers, left.batch, right.batch, result.batch, left.begin, right.begin, result.begin), np.uint32
    )
    if device.is_gpu:
        tile = (
            tile_of(device, builder.cache_folder)
            if m * n * k >= _WORTH_TUNING
            else _known.get(device.identity, TILES[0])
        )
        source, items = tile.source(half), tile.items
        across = (-(-n // tile.columns) * items[0], -(-m // tile.rows) * items[1], batches)
    else:
        source, items = file_kernel("product.cl", "product", half), (1, 16)
        across = (-(-n // 16), -(-m // 4), batches)
    builder.launch(source, [*slots, packed], tensor, across, (*items, 1))


def tile_of(device: Device, folder: str) -> Tile:
    """The fastest of `TILES` on a device. Reads it from a file in ``folder``, or measures it and writes the file.

    ``folder``: empty for the user's cache folder. A file that cannot be read or written is ignored.
    """
    with _lock:
        tile = _known.get(device.identity)
        if tile is None:
            path = os.path.join(folder or _cache_folder(), _TILES_FILE)
            stored = _read(path)
            tile = _stored_tile(stored.get(device.identity))
            if tile is None:
                tile = _measured(device)
                _write(path, {**stored, device.identity: dataclasses.astuple(tile)})
            _known[device.identity] = tile
        return tile


def _cache_folder() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "hetero")


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _stored_tile(numbers: Any) -> Tile | None:
    """One of `TILES`, or None: nothing else in a file becomes part of a kernel."""
    return next((tile for tile in TILES if list(dataclasses.astuple(tile)) == numbers), None)


def _write(path: str, stored: dict[str, Any]) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, [json.dumps(stored).encode()])
    except OSError:
        pass


def _measured(device: Device) -> Tile:
    """The tile with the shortest time for a large product."""
    cl, size = backend.load(), _TUNED_SIZE
    stream = Stream(device.context)
    blocks = [device.memory.upload(np.zeros((size, size), np.float32)) for _ in range(3)]
    slots = [Slot(block.nbytes, CONSTANT, block) for block in blocks]
    packed = np.array((size, size, size, size, 1, size, 1, size, 0, 0, 0, 0, 0, 0), np.uint32)
    best, shortest = TILES[0], float("inf")
    for tile in TILES:
        items = tile.items
        if items[0] * items[1] > device.cl_device.max_work_group_size:
            continue
        across = (size // tile.columns * items[0], size // tile.rows * items[1], 1)
        step = KernelStep(0, tile.source(False), [*slots, packed], across, (*items, 1))
        try:
            step.prepare(device)
            step.enqueue(stream, ()).wait()
            begin = time.perf_counter()
            for _ in range(3):
                event = step.enqueue(stream, ())
            event.wait()
            taken = time.perf_counter() - begin
        except cl.Error:
            continue  # too much local memory or too many registers for this device
        if taken < shortest:
            best, shortest = tile, taken
    return best
