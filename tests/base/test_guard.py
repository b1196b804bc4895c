"""Errors of plugins name the device and the stage."""

from __future__ import annotations

import pytest

from hetero.base.guard import guarded
from hetero.errors import HeteroError, PropertyError


@pytest.mark.parametrize(("subject", "work"), [("'m'", "compile 'm'"), ("", "compile")])
def test_messages_name_the_stage(subject: str, work: str) -> None:
    def known() -> None:
        raise PropertyError("wrong")

    def unknown() -> None:
        raise KeyError("k")

    with pytest.raises(PropertyError) as caught:
        guarded("NPU", "compile", subject, known)
    assert caught.value.__notes__ == [f"in {work}, by NPU"]
    with pytest.raises(HeteroError, match=f"^NPU failed in {work}: KeyError: 'k'$"):
        guarded("NPU", "compile", subject, unknown)
