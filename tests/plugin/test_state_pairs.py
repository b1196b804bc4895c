"""Which outputs are paired with which inputs as states."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hetero
from hetero.model.types import Port
from hetero.plugin.state_pairs import pair_states

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int64)


def ports(*names: str, dtype: Any = FLOAT, shape: Any = ("n",)) -> list[Port]:
    return [Port(name, dtype, shape) for name in names]


def paired(inputs: list[Port], outputs: list[Port], states: Any = None) -> dict[str, str]:
    return {outputs[pair.output].name: inputs[pair.input].name for pair in pair_states(inputs, outputs, states)}


@pytest.mark.parametrize(
    ("output", "target"),
    [
        ("present.0.key", "past_key_values.0.key"),
        ("present.0.key", "past.0.key"),
        ("present.1.decoder.value", "past_key_values.1.decoder.value"),
        ("present_key_values.0.key", "past_key_values.0.key"),
        ("present_key_values", "past_key_values"),
        ("present_0", "past_0"),
        ("present_key_self_3", "past_key_self_3"),
        ("h_out", "h_in"),
    ],
)
def test_conventions(output: str, target: str) -> None:
    found = paired(ports("x", target, "mask"), ports("logits", output, "x_in"))
    assert found == {output: target}


def test_names_that_do_not_pair_up_are_left_out() -> None:
    found = paired(ports("x", "past.0", "y"), ports("present.1", "x_out", "y", "present.0", "out"))
    assert found == {"present.0": "past.0"}


def test_by_name_in_the_order_of_the_inputs() -> None:
    inputs, outputs = ports("x", "a", "b"), ports("q", "r", "y")
    assert pair_states(inputs, outputs, {"r": "a", "q": "b"}) == ((1, 1), (2, 0))


def test_by_expression() -> None:
    inputs = ports("x", "cache[0]", "cache[1]", "s")
    outputs = ports("new(0)", "new(1)", "t", "anew(1)")
    states = {re.compile(r"new\((\d+)\)"): r"cache[\1]", "t": "s"}
    assert paired(inputs, outputs, states) == {"new(0)": "cache[0]", "new(1)": "cache[1]", "t": "s"}
    assert paired(inputs, outputs, {re.compile(r"(?i)NEW\((?P<n>0)\)"): r"cache[\g<n>]"}) == {"new(0)": "cache[0]"}


def test_an_expression_and_a_name_may_agree() -> None:
    assert paired(ports("a"), ports("b"), {"b": "a", re.compile("b"): "a"}) == {"b": "a"}


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"presnt": "past"}, "the model has no output 'presnt' (did you mean present?); known: present, other"),
        ({"present": "pst"}, "state 'present': the model has no input 'pst' (did you mean past?); known: x, past"),
        ({"present": "past", "other": "past"}, "input 'past' is bound to two outputs: 'present' and 'other'"),
        ({"present": "past", re.compile("pres.*"): "x"}, "output 'present' is bound to two inputs: 'past' and 'x'"),
        ({re.compile("q.*"): "past"}, "the expression 'q.*' matches no output; known: present, other"),
        ({re.compile("presen"): "past"}, "the expression 'presen' matches no output"),
        ({re.compile("present"): r"\1"}, "state 'present': wrong template '\\\\1': invalid group reference"),
        ({re.compile("PRESENT", re.IGNORECASE): "past"}, "write the flags in the expression, such as (?i)"),
        ({"present": 1}, "state 'present': expected the name of an input, found 1"),
        ({1: "past"}, "expected the name of an output or a compiled regular expression, found 1"),
        ({re.compile(b"present"): "past"}, "expected the name of an output or a compiled regular expression"),
        ({}, "states: the mapping is empty"),
        ([("present", "past")], "states: expected a mapping from output name to input name"),
        ("present", "states: expected a mapping from output name to input name, found 'present'"),
    ],
)
def test_wrong_states(states: Any, message: str) -> None:
    with pytest.raises(hetero.InferenceError, match=re.escape(message)):
        pair_states(ports("x", "past"), ports("present", "other"), states)


def test_no_pair_is_found() -> None:
    message = "no outputs and inputs pair up as states by name; pass a mapping. Outputs known: y; inputs known: x"
    with pytest.raises(hetero.InferenceError, match=re.escape(message)):
        pair_states(ports("x"), ports("y"), None)


def test_several_conventions_apply() -> None:
    message = "output 'present.0' can be the state of 'past_key_values.0' or 'past.0'; name the states"
    with pytest.raises(hetero.InferenceError, match=re.escape(message)):
        pair_states(ports("past.0", "past_key_values.0"), ports("present.0"), None)
    with pytest.raises(hetero.InferenceError, match="input 'past_key_values' is bound to two outputs"):
        pair_states(ports("past_key_values"), ports("present", "present_key_values"), None)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (Port("h_out", INT, ("n", 3)), "dtypes int64 and float32"),
        (Port("h_out", FLOAT, ("n", 4)), "shapes ['n', 4] and ['n', 3]"),
        (Port("h_out", FLOAT, ("n",)), "shapes ['n'] and ['n', 3]"),
        (Port("h_out", None, None, is_tensor=False), "'h_out' is not a tensor"),
    ],
)
@pytest.mark.parametrize("states", [None, {"h_out": "h_in"}])
def test_types_that_cannot_agree(output: Port, message: str, states: Any) -> None:
    with pytest.raises(hetero.InferenceError, match=re.escape(message)) as raised:
        pair_states([Port("h_in", FLOAT, ("n", 3))], [output], states)
    assert "output 'h_out' cannot be the state of input 'h_in'" in str(raised.value)


@pytest.mark.parametrize(
    "output",
    [
        Port("h_out", FLOAT, ("m", 3)),
        Port("h_out", FLOAT, (2, "k")),
        Port("h_out", None, None),
        Port("h_out", FLOAT, (2, 4), declared=False),  # an inferred shape may be wrong
    ],
)
def test_types_that_may_agree(output: Port) -> None:
    assert pair_states([Port("h_in", FLOAT, ("n", 3))], [output], None) == ((0, 0),)


def test_many_names_are_shortened() -> None:
    with pytest.raises(hetero.InferenceError, match=r"o19 and 480 more$"):
        pair_states(ports("x"), ports(*(f"o{at}" for at in range(500))), {"missing": "x"})
