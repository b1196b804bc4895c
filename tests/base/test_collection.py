"""The pause of Python's search for garbage while models of many parts are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from hetero.base.collection import collection_paused, collection_rare


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    if was_enabled:
        gc.enable()


def test_paused_while_any_block_lasts() -> None:
    gc.enable()
    with collection_paused():
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_goes_on_after_an_error() -> None:
    gc.enable()
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()


def test_what_the_program_turned_off_stays_off() -> None:
    gc.disable()
    with collection_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_not_wanted() -> None:
    gc.enable()
    with collection_paused(False):
        assert gc.isenabled()


def test_blocks_of_several_threads() -> None:
    gc.enable()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with collection_paused():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    with collection_paused():
        thread.start()
        assert entered.wait(30)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_rare_while_a_block_lasts() -> None:
    before = gc.get_threshold()
    with collection_rare():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_threshold()[1:] == before[1:]
    assert gc.get_threshold() == before
    with pytest.raises(KeyError), collection_rare():
        raise KeyError
    assert gc.get_threshold() == before
