"""Matrix products: by CLBlast, or by a kernel of product.cl.

On a GPU, the first large product times CLBlast and each of `TILES` for a few sizes, and writes the fastest to a file,
so that each device is tuned once (`tuned`). Processors use a kernel without local memory.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.files import write_atomically
from ...errors import HeteroError
from . import backend, blas
from .device import Device, KernelSource, Stream, file_kernel
from .steps import KernelStep, ProductStep
from .tensors import CONSTANT, Slot

if TYPE_CHECKING:
    from .builder import Builder
    from .elementwise import Epilogue
    from .tensors import Tensor

__all__ = ["TILES", "Access", "Choices", "Matrix", "Tile", "TiledProduct", "multiply", "seconds_of_each", "tuned"]


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
class Access:
    """How a kernel reads and writes the matrices of a product; see product.cl."""

    a_along_k: bool
    b_along_k: bool
    a_four: bool
    b_four: bool
    c_four: bool

    @staticmethod
    def of(left: Matrix, right: Matrix, result: Matrix, sizes: tuple[int, int, int]) -> Access:
        """Of a product whose arguments are those of `multiply`."""
        m, n, k = sizes
        a_along_k, b_along_k = left.row != 1 or left.column == 1, right.row == 1 and right.column != 1

        def in_fours(matrix: Matrix, length: int, along: int, across: int) -> bool:
            return along == 1 and not (length | across | matrix.batch | matrix.begin) % 4

        return Access(
            a_along_k,
            b_along_k,
            in_fours(left, k, left.column, left.row) if a_along_k else in_fours(left, m, left.row, left.column),
            in_fours(right, k, right.row, right.column) if b_along_k else in_fours(right, n, right.column, right.row),
            in_fours(result, n, result.column, result.row),
        )


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
    def items(self) -> int:
        """The size of a work-group."""
        return self.columns // self.columns_each * (self.rows // self.rows_each)

    def fits(self, device: Device) -> bool:
        """Whether a device has the work-groups and the local memory."""
        local_bytes = 2 * 4 * self.depth * (self.rows + self.columns + 8)  # as product.cl declares it
        limits = device.cl_device
        return self.items <= int(limits.max_work_group_size) and local_bytes <= int(limits.local_mem_size)

    def source(self, half: bool, access: Access, epilogue: Epilogue | None = None) -> KernelSource:
        """The kernel."""
        names = ("ROWS", "COLUMNS", "DEPTH", "ROWS_EACH", "COLUMNS_EACH")
        numbers = (self.rows, self.columns, self.depth, self.rows_each, self.columns_each)
        flags = ((name.upper(), int(flag)) for name, flag in dataclasses.asdict(access).items())
        defines: list[tuple[str, str | int]] = [("TILED", 1), *zip(names, numbers, strict=True), *flags]
        if epilogue is not None:
            defines += [("EPILOGUE_PARAMETERS", epilogue.parameters), ("EPILOGUE_NAMES", epilogue.names)]
        functions = "" if epilogue is None else epilogue.function
        return file_kernel("product.cl", "product", half, tuple(defines), functions)

    def groups(self, m: int, n: int, batches: int) -> tuple[int, int, int]:
        """The number of work-items in each dimension."""
        return -(-n // self.columns) * self.items, -(-m // self.rows), batches


TILES = (
    Tile(64, 64, 16, 4, 4),
    Tile(128, 128, 8, 8, 8),
    Tile(128, 128, 16, 8, 8),
    Tile(128, 256, 8, 8, 16),
    Tile(256, 128, 8, 16, 8),
    Tile(64, 128, 8, 8, 8),
    Tile(128, 64, 16, 8, 4),
    Tile(32, 64, 16, 4, 4),
    Tile(32, 32, 16, 2, 2),
    Tile(16, 16, 16, 1, 1),
)
Choices = tuple[Tile | None, ...]
"""The fastest tile for each of `_SIZES`; None stands for CLBlast."""
_UNTUNED: Choices = (TILES[-2], TILES[0], TILES[0])
"""For small products until a device is tuned. Not CLBlast, whose kernels the driver compiles for up to a minute."""
_SIZES = (256, 1024, 2048)
"""Square products that a device is tuned with. A product is computed like the largest of them whose result has at most
twice as many elements, or like the first: larger tiles are faster if there are enough of them for all processors."""
_WORTH_TUNING = 1 << 28
"""Multiplications in a product for which a device is tuned: smaller ones take less time than tuning."""
_TILES_FILE = "opencl-tiles.json"
_CLBLAST = "CLBlast"
_lock = threading.Lock()
_known: dict[str, Choices] = {}


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class TiledProduct:
    """A product that computes a whole tensor, and that may wait for its reader: if the only reader is an elementwise
    expression, the kernel computes that as well. ``m``, ``n``: the numbers of rows and columns. ``numbers``: see
    product.cl."""

    node: int
    tile: Tile
    access: Access
    operands: tuple[Slot, Slot]
    m: int
    n: int
    numbers: NDArray[np.uint32]
    items: tuple[int, int, int]

    def launch(self, builder: Builder, result: Tensor, epilogue: Epilogue | None = None) -> None:
        """Add the step. ``result``: of the epilogue, if there is one."""
        source = self.tile.source(result.dtype == np.float16, self.access, epilogue)
        arguments = () if epilogue is None else epilogue.arguments
        node = builder.node
        if epilogue is None:
            builder.node = self.node
        builder.launch(source, [*self.operands, result, self.numbers, *arguments], result, self.items, self.local)
        builder.node = node

    @property
    def local(self) -> tuple[int, int, int]:
        """The size of a work-group."""
        return self.tile.items, 1, 1


def multiply(
    builder: Builder,
    left: Matrix,
    right: Matrix,
    result: Matrix,
    sizes: tuple[int, int, int],
    batches: int,
    may_wait: bool = False,
) -> None:
    """Add the step that computes ``result`` = ``left`` ``right``. ``sizes``: m, n, k. The columns of ``result`` are
    contiguous.

    ``may_wait``: the product fills a whole contiguous tensor, and the operands do not change, so the step may be added
    only when the tensor is first read."""
    m, n, k = sizes
    if not m or not n or not batches:
        return
    if not k:
        builder.fill(result.tensor, 0, result.tensor.dtype)
        return
    device, tensor = builder.device, result.tensor
    slots = (builder.memory(left.tensor), builder.memory(right.tensor), builder.memory(tensor))
    gemm, tile = _gemm(left, right, result, sizes, batches) if builder.uses_clblast else None, None
    if device.is_gpu and (gemm is None or builder.tunes):
        tile = _chosen(builder, m, n, k, gemm is not None)
    if gemm is not None and tile is None:
        builder.add_product(ProductStep(builder.node, gemm, slots), tensor)
        return
    half = tensor.dtype == np.float16
    numbers = (m, n, k, left.row, left.column, right.row, right.column, result.row)
    packed = np.array(
        (*numbers, left.batch, right.batch, result.batch, left.begin, right.begin, result.begin), np.uint32
    )
    if tile is not None:
        access, items = Access.of(left, right, result, sizes), tile.groups(m, n, batches)
        product = TiledProduct(builder.node, tile, access, slots[:2], m, n, packed, items)
        if may_wait:
            tensor.slot, tensor.product = None, product
        else:
            product.launch(builder, tensor)
        return
    source = file_kernel("product.cl", "product", half)
    builder.launch(source, [*slots, packed], tensor, (-(-n // 16), -(-m // 4), batches), (1, 16, 1))


def _gemm(left: Matrix, right: Matrix, result: Matrix, sizes: tuple[int, int, int], batches: int) -> blas.Gemm | None:
    """The product for CLBlast; None if it cannot compute it."""
    m, n, k = sizes
    if result.tensor.dtype != np.float32:
        return None
    stored = blas.lies_in_rows(left.row, left.column, m, k), blas.lies_in_rows(right.row, right.column, k, n)
    if stored[0] is None or stored[1] is None:
        return None
    return blas.Gemm(
        m,
        n,
        k,
        (stored[0][0], stored[1][0]),
        (stored[0][1], stored[1][1], result.row),
        batches,
        (left.batch, right.batch, result.batch),
        (left.begin, right.begin, result.begin),
    )


def _chosen(builder: Builder, m: int, n: int, k: int, with_clblast: bool) -> Tile | None:
    """The fastest tile for a product; None stands for CLBlast, which ``with_clblast`` allows."""
    device = builder.device
    if m * n * k >= _WORTH_TUNING:
        choices = tuned(device, builder.cache_folder, with_clblast)
    else:
        choices = _known.get(_key(device, with_clblast), _UNTUNED)
    fitting = [at for at, size in enumerate(_SIZES) if size * size <= 2 * m * n]
    return choices[max(fitting, default=0)]


def tuned(device: Device, folder: str, with_clblast: bool) -> Choices:
    """What computes products fastest on a device. Reads it from a file in ``folder``, or measures it and writes the
    file.

    ``folder``: empty for the user's cache folder. A file that cannot be read or written is ignored.
    """
    key = _key(device, with_clblast)
    with _lock:
        choices = _known.get(key)
        if choices is None:
            path = os.path.join(folder or _cache_folder(), _TILES_FILE)
            stored = _read(path)
            choices = _stored_choices(stored.get(key), with_clblast)
            if choices is None:
                choices = tuple(_measured(device, size, with_clblast) for size in _SIZES)
                names = [_CLBLAST if tile is None else dataclasses.astuple(tile) for tile in choices]
                _write(path, {**stored, key: names})
            _known[key] = choices
        return choices


def _key(device: Device, with_clblast: bool) -> str:
    return f"{device.identity} {_CLBLAST}" if with_clblast else device.identity


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


def _stored_choices(entries: Any, with_clblast: bool) -> Choices | None:
    """One of `TILES`, or CLBlast, for each of `_SIZES`; None if the file has something else: none of its text becomes
    part of a kernel."""
    if not isinstance(entries, list) or len(entries) != len(_SIZES):
        return None
    allowed: dict[str, Tile | None] = {json.dumps(dataclasses.astuple(tile)): tile for tile in TILES}
    if with_clblast:
        allowed[json.dumps(_CLBLAST)] = None
    texts = [json.dumps(entry) for entry in entries]
    return tuple(allowed[text] for text in texts) if all(text in allowed for text in texts) else None


def _write(path: str, stored: dict[str, Any]) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, [json.dumps(stored).encode()])
    except OSError:
        pass


def _measured(device: Device, size: int, with_clblast: bool) -> Tile | None:
    """The fastest tile for a square product; None stands for CLBlast."""
    times = seconds_of_each(device, size, with_clblast)
    return min(times, key=lambda choice: times[choice], default=TILES[0])


def seconds_of_each(device: Device, size: int, with_clblast: bool) -> dict[Tile | None, float]:
    """The time of a square product with each tile that the device can run; None stands for CLBlast."""
    cl, stream = backend.load(), Stream(device.context)
    values = np.random.default_rng(0).standard_normal((size, size), np.float32)  # zeros would take less time
    blocks = [device.memory.upload(values) for _ in range(3)]
    slots = tuple(Slot(block.nbytes, CONSTANT, block) for block in blocks)
    packed = np.array((size, size, size, size, 1, size, 1, size, 0, 0, 0, 0, 0, 0), np.uint32)
    steps: dict[Tile | None, KernelStep | ProductStep] = {}
    if with_clblast:
        gemm = blas.Gemm(size, size, size, (False, False), (size, size, size), 1, (0, 0, 0), (0, 0, 0))
        steps[None] = ProductStep(0, gemm, (slots[0], slots[1], slots[2]))
    access = Access(a_along_k=True, b_along_k=False, a_four=True, b_four=True, c_four=True)
    for tile in TILES:
        if tile.fits(device):
            source, across = tile.source(False, access), tile.groups(size, size, 1)
            steps[tile] = KernelStep(0, source, [*slots, packed], across, (tile.items, 1, 1))
    times: dict[Tile | None, float] = {}
    turns = max(3, 8192 // size)  # a small product takes less time than waiting for it
    for choice, step in steps.items():
        try:
            step.prepare(device)
            step.enqueue(stream, ()).wait()
            for _ in range(3):  # the shortest of three, because the clock of an idle GPU is slow
                begin = time.perf_counter()
                for _ in range(turns):
                    event = step.enqueue(stream, ())
                event.wait()
                taken = (time.perf_counter() - begin) / turns
                times[choice] = min(taken, times.get(choice, taken))
        except (cl.Error, HeteroError):
            times.pop(choice, None)  # too many registers for this device
    return times
