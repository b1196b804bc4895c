"""Memory that processes share: blocks that never overlap while they are in use, and are used again after."""

from __future__ import annotations

import gc
import itertools
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.workers.messages import TensorRef, dtype_name
from hetero.workers.shared_memory import SharedMemory, SharedPool, address_of
from threads import in_threads

POOL = SharedPool()


@given(st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 5)), max_size=30))
def test_arrays_in_use_do_not_overlap(steps: list[tuple[int, int]]) -> None:
    held: list[np.ndarray] = []
    for number, (size, drop) in enumerate(steps):
        array, _ = POOL.empty((size,), np.uint8)
        array[:] = number
        held.append(array)
        if drop < len(held) and drop % 2:
            del held[drop]
    for one, other in itertools.combinations(held, 2):
        assert not np.may_share_memory(one, other)
    for array in held:
        assert array.size == 0 or (array == array[0]).all()


def test_a_block_is_used_again_when_no_view_is_left() -> None:
    pool = SharedPool()
    array, where = pool.empty((1000,), np.float32)
    assert pool.offset_of(array) == where
    view = array[10:20].reshape(2, 5)
    del array
    gc.collect()
    assert pool.empty((1000,), np.float32)[1] != where
    del view
    gc.collect()
    assert pool.empty((1000,), np.float32)[1] == where


def test_what_lies_there_is_shared_without_a_copy() -> None:
    own, offset = POOL.share(np.arange(12.0).reshape(3, 4).T)
    assert own.flags.c_contiguous
    assert POOL.share(own)[0] is own
    other = SharedMemory(os.dup(POOL.descriptor), POOL.size)
    seen = TensorRef(offset, dtype_name(own.dtype), own.shape).array(other)
    np.testing.assert_array_equal(seen, own)
    seen[0, 0] = 7
    assert own[0, 0] == 7


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.float16, np.complex128, ml_dtypes.bfloat16])
def test_types_keep_their_names(dtype: type) -> None:
    array, offset = POOL.share(np.ones((2, 3), dtype))
    ref = TensorRef(offset, dtype_name(array.dtype), array.shape)
    assert ref.array(POOL).dtype == np.dtype(dtype)


def test_a_place_outside_is_refused() -> None:
    for ref in (TensorRef(POOL.size, "<f4", (1,)), TensorRef(-1, "<f4", (1,)), TensorRef(0, "<f4", (POOL.size,))):
        with pytest.raises((ValueError, TypeError)):
            ref.array(POOL)


def test_threads_get_blocks_of_their_own() -> None:
    pool = SharedPool()
    wrong = []

    def work(number: int) -> None:
        for _ in range(300):
            array, _ = pool.empty((100,), np.int64)
            array[:] = number
            if not (array == number).all():
                wrong.append(number)

    in_threads(work, range(4))
    assert not wrong


def test_core_dumps_leave_it_out() -> None:
    """To dump it, the system would allocate all pages of its address space: 1 TiB."""
    start = f"{address_of(np.frombuffer(POOL._memory, np.uint8, 1)):x}-"
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(line.startswith(start) for line in lines)
    flags = next(line for line in lines if line.startswith("VmFlags:"))
    assert "dd" in flags.split()


def resident(pool: SharedPool) -> int:
    """Bytes that have pages."""
    return os.fstat(pool.descriptor).st_blocks * 512


def test_pages_of_large_blocks_go_back() -> None:
    pool = SharedPool()
    arrays = [pool.empty((4 << 20,), np.uint8)[0] for _ in range(40)]
    for array in arrays:
        array[:] = 1
    assert resident(pool) >= 160 << 20
    del array, arrays
    gc.collect()
    assert resident(pool) <= 64 << 20


def test_blocks_that_have_pages_are_taken_first() -> None:
    """Also when there are others: or every array would be one of fresh pages from then on."""
    pool = SharedPool()
    kept = [pool.empty((8 << 20,), np.uint8)[0] for _ in range(20)]
    for array in kept:
        array[:] = 1
    del array, kept
    gc.collect()
    before = resident(pool)
    assert 0 < before < 160 << 20
    for _ in range(10):
        several = [pool.empty((8 << 20,), np.uint8)[0] for _ in range(3)]
        for array in several:
            array[:] = 2
        del array, several
        assert resident(pool) == before
