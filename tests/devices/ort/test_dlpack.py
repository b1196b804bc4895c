"""DLPack tensors whose memory is given back after the GPU's work; the driver is a set of Python functions here."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest

from hetero._dlpack import released_after_work


class Driver:
    """Counts calls. ``fails``: as at the end of a process."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[str] = []
        address = ctypes.c_void_p

        def push(context: int) -> int:
            self.calls.append(f"push {context}")
            return int(fails)

        def synchronize() -> int:
            self.calls.append("synchronize")
            return 0

        def pop(_: int) -> int:
            self.calls.append("pop")
            return 0

        self._kept = (
            ctypes.CFUNCTYPE(ctypes.c_int, address)(push),
            ctypes.CFUNCTYPE(ctypes.c_int)(synchronize),
            ctypes.CFUNCTYPE(ctypes.c_int, address)(pop),
        )

    @property
    def arguments(self) -> tuple[int, ...]:
        return 7, *(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._kept)


class Owner:
    """A tensor that says when it is released, through the base of its array."""

    def __init__(self, array: np.ndarray, driver: Driver) -> None:
        self.array, self.driver = array, driver

    def __dlpack__(self, **options: Any) -> Any:
        return released_after_work(self.array.__dlpack__(), *self.driver.arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Watched(np.ndarray):
    """An array whose end is seen."""

    log: list[str]

    def __del__(self) -> None:
        if hasattr(self, "log"):
            self.log.append("released")


def owned(driver: Driver, shape: tuple[int, ...]) -> Owner:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape).view(Watched)
    array.log = driver.calls
    return Owner(array, driver)


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (1,)])
def test_the_work_ends_before_the_memory_is_given_back(shape: tuple[int, ...]) -> None:
    driver = Driver()
    owner = owned(driver, shape)
    taken = np.from_dlpack(owner)
    view = taken.reshape(-1)
    np.testing.assert_array_equal(taken, np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    del owner, taken
    gc.collect()
    assert driver.calls == []  # the view still uses it
    del view
    gc.collect()
    assert driver.calls == ["push 7", "synchronize", "pop", "released"]


def test_a_capsule_that_nobody_consumes() -> None:
    driver = Driver()
    owner = owned(driver, (4,))
    capsule = owner.__dlpack__()
    del owner
    assert driver.calls == []
    del capsule
    gc.collect()
    assert driver.calls == ["push 7", "synchronize", "pop", "released"]


def test_when_the_driver_has_ended() -> None:
    driver = Driver(fails=True)
    taken = np.from_dlpack(owned(driver, (4,)))
    del taken
    gc.collect()
    assert driver.calls == ["push 7", "released"]


def test_a_capsule_is_consumed_once() -> None:
    driver = Driver()
    capsule = np.zeros(3).__dlpack__()
    held = released_after_work(capsule, *driver.arguments)
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        released_after_work(capsule, *driver.arguments)
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        released_after_work(object(), *driver.arguments)
    del held
    assert driver.calls == ["push 7", "synchronize", "pop"]
