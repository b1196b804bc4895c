"""Names of other libraries lead to hetero's."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
from onnx import helper

import hetero
from hetero.base.other_names import OtherNames
from model_zoo import make_model


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    core = hetero.Core()
    model = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])]))
    compiled = core.compile_model(model, "CPU")
    request = compiled.create_infer_request()
    return {"core": core, "model": model, "compiled": compiled, "request": request, "hetero": hetero}


@pytest.mark.parametrize("name", ["core", "model", "compiled", "request"])
def test_each_name_leads_to_something_that_exists(objects: dict[str, Any], name: str) -> None:
    thing = objects[name]
    assert thing.other_names
    for other, instead in thing.other_names.items():
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute {other!r}; use {instead}")) as raised:
            getattr(thing, other)
        assert raised.value.name == other
        assert raised.value.obj is thing
        for owner, attribute in re.findall(r"\b(core|model|compiled|request|hetero)\.(\w+)", instead):
            assert hasattr(type(objects[owner]), attribute) or hasattr(objects[owner], attribute)


def test_other_missing_attributes(objects: dict[str, Any]) -> None:
    for name in ("core", "model", "compiled", "request"):
        with pytest.raises(AttributeError, match="object has no attribute 'nothing'$"):
            objects[name].nothing  # noqa: B018
        assert not hasattr(objects[name], "nothing")
        assert getattr(objects[name], "nothing", 7) == 7


def test_stateful_requests_and_other_devices_inherit_them(objects: dict[str, Any]) -> None:
    compiled = objects["core"].compile_model(objects["model"], "HETERO:TEMPLATE,CPU")
    with pytest.raises(AttributeError, match=r"use compiled\(inputs\)"):
        compiled.infer_new_request  # noqa: B018


class Slotted(OtherNames):
    __slots__ = ("value",)
    other_names = {"worth": "value"}  # noqa: RUF012


def test_objects_with_slots() -> None:
    thing = Slotted()
    with pytest.raises(AttributeError, match="use value"):
        thing.worth  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        thing.value  # noqa: B018
    thing.value = 3
    assert copy.copy(thing).value == pickle.loads(pickle.dumps(thing)).value == 3
