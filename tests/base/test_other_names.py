"""Names of other libraries lead to hetero's."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.base.other_names import OF_MODULE, OF_PROPERTIES, OtherNames
from hetero.base.properties import PROPERTIES
from model_zoo import make_model


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    core = hetero.Core()
    model = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])]))
    compiled = core.compile_model(model, "CPU")
    request = compiled.create_infer_request()
    outputs = compiled(np.ones((2, 3), np.float32))
    return {
        "core": core,
        "model": model,
        "compiled": compiled,
        "request": request,
        "outputs": outputs,
        "port": compiled.inputs[0],
        "node": model.nodes[0],
        "context": core.get_default_context("CPU"),
        "tensor": core.get_default_context("CPU").create_tensor(np.float32, (2, 3)),
        "hetero": hetero,
    }


@pytest.mark.parametrize(
    "name", ["core", "model", "compiled", "request", "outputs", "port", "node", "context", "tensor"]
)
def test_each_name_leads_to_something_that_exists(objects: dict[str, Any], name: str) -> None:
    thing = objects[name]
    assert thing.other_names
    for other, instead in thing.other_names.items():
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute {other!r}; use {instead}")) as raised:
            getattr(thing, other)
        assert raised.value.name == other
        assert raised.value.obj is thing
        for owner, attribute in re.findall(
            r"\b(core|model|compiled|request|outputs|port|node|tensor|hetero)\.(\w+)", instead
        ):
            assert hasattr(type(objects[owner]), attribute) or hasattr(objects[owner], attribute)


def test_names_of_modules(objects: dict[str, Any]) -> None:
    for other, instead in OF_MODULE.items():
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute {other!r}; use {instead}")):
            getattr(hetero, other)
        for owner, attribute in re.findall(r"\b(core|model|compiled|request|hetero)\.(\w+)", instead):
            assert hasattr(objects[owner], attribute)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
        hetero.nothing  # noqa: B018


@pytest.mark.parametrize("name", OF_PROPERTIES)
@pytest.mark.parametrize("device", ["CPU", "AUTO:CPU", "HETERO:CPU"])
def test_properties_of_other_libraries(objects: dict[str, Any], name: str, device: str) -> None:
    assert name not in PROPERTIES
    instead = OF_PROPERTIES[name]
    says = re.escape(f"has no property {name!r}: {instead}; ")
    with pytest.raises(hetero.PropertyError, match=says):
        objects["core"].compile_model(objects["model"], device, {name: "1"})
    assert set(re.findall(r"\b[A-Z]+_[A-Z_]+\b", instead)) <= {*PROPERTIES, "OPENVINO_CONFIG", "ORT_SESSION_OPTIONS"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("AVAILABLE_DEVICES", "devices have it, as in core.get_property('CPU', 'AVAILABLE_DEVICES')"),
        ("GPU_QUEUE_THROTTLE", "set it for OPENVINO in OPENVINO_CONFIG"),
        ("NPU_TURBO", "set it for OPENVINO in OPENVINO_CONFIG"),
        ("FULL_DEVICE_NAME", "devices have it, as in core.get_property('CPU', 'FULL_DEVICE_NAME')"),
        ("MODEL_PRIORITY", "only some devices have it"),
    ],
)
def test_properties_that_belong_elsewhere(objects: dict[str, Any], name: str, says: str) -> None:
    with pytest.raises(hetero.PropertyError, match=re.escape(f"no property {name!r}: {says}; ")):
        objects["core"].compile_model(objects["model"], "TEMPLATE").get_property(name)


def test_ids_of_a_list(objects: dict[str, Any]) -> None:
    with pytest.raises(hetero.PropertyError, match=r"'DEVICE_ID': write the id in the device string, as in CPU\.0; "):
        objects["core"].compile_model(objects["model"], "HETERO:CPU", {"DEVICE_ID": "0"})


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("share_inputs", "leave it out: inputs are not copied"),
        ("share_outputs", "leave it out, or pass arrays that receive the results as out=arrays"),
        ("run_options", "compile with ORT_RUN_CONFIG"),
        ("output_names", "the result has all outputs"),
        ("input_feed", "pass the inputs as the first argument"),
    ],
)
def test_arguments_of_calls(objects: dict[str, Any], argument: str, says: str) -> None:
    with pytest.raises(hetero.InferenceError, match=f"no argument '{argument}'.*; {re.escape(says)}"):
        objects["compiled"](np.ones((2, 3), np.float32), **{argument: True})


def test_other_missing_attributes(objects: dict[str, Any]) -> None:
    for name in ("core", "model", "compiled", "request", "outputs", "port", "node"):
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
