"""Memory of packed weights: places do not overlap, survive what made them, and give what a kernel gives elsewhere."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetero import _kernels
from hetero.devices.cpu.pages import Pages
from threads import in_threads


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def test_places_are_disjoint_aligned_and_writeable():
    pages = Pages()
    sizes = [0, 1, 63, 4 << 20, 5, (2 << 20) + 1, 64, 30 << 20, 100, 7 << 20, 15 << 20, 4096]
    arrays = [pages.take(size) for size in sizes]
    del pages
    for number, array in enumerate(arrays):
        array[:] = number
    for number, (size, array) in enumerate(zip(sizes, arrays, strict=True)):
        assert array.shape == (size,)
        assert array.dtype == np.uint8
        assert (array == number).all(), "another array lies there"
        assert address(array) % 64 == 0


def test_threads_get_places_of_their_own():
    pages, found = Pages(), []
    pages.take(4 << 20)

    def take() -> None:
        found.extend(pages.take(4097) for _ in range(500))

    in_threads(lambda _: take(), range(4))
    begins = sorted(address(array) for array in found)
    assert len(found) == 2000
    assert all(after - before >= 4097 for before, after in itertools.pairwise(begins))


def test_a_kernel_writes_where_it_is_told():
    b = np.random.default_rng(0).standard_normal((40, 70), np.float32)
    spec = [((80 * 40,), np.float32)]
    pages = Pages()
    pages.take(4 << 20)
    (plain,) = _kernels.call("pack_b", [b], spec, [1, 40, 70, 0])
    (placed,) = _kernels.call("pack_b", [b], spec, [1, 40, 70, 0], memory=pages.take)
    assert placed.base is not None
    assert placed.dtype == np.float32
    assert placed.shape == plain.shape
    np.testing.assert_array_equal(placed, plain)
