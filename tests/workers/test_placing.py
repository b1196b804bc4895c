"""Results made where another process reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.plugin import PlacingRunner
from hetero.plugin.checked import CheckedRunner
from model_zoo import make_model

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def run_twice(core: hetero.Core, **config: Any) -> tuple[PlacingRunner, list[np.ndarray]]:
    """The runner of a model of two outputs, and what it gives. (It knows a plan from the second run on.)"""
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    model = make_model(nodes, inputs={"x": ["n", 4]}, outputs=("y", "z"))
    runner = core.compile_model(core.read_model(model), "CPU", config).new_runner()
    assert isinstance(runner, PlacingRunner)
    runner.run([X])
    return runner, [array.copy() for array in runner.run([X])]


@pytest.mark.parametrize("timed", [False, True])
def test_results_lie_in_their_places(core: hetero.Core, timed: bool) -> None:
    runner, expected = run_twice(core, PERF_COUNT=timed)
    places = [np.full(size, 0xEE, np.uint8) for size in (X.nbytes, X.nbytes + 16)]
    results = runner.run_into([X], places)
    for result, wanted, place in zip(results, expected, places, strict=True):
        np.testing.assert_array_equal(result, wanted)
        assert address(result) == address(place)
    assert (places[1][X.nbytes :] == 0xEE).all()
    assert bool(runner.profile()) == timed


def test_a_place_that_does_not_do_is_left_alone(core: hetero.Core) -> None:
    runner, expected = run_twice(core)
    frozen = np.full(X.nbytes, 0xEE, np.uint8)
    frozen.flags.writeable = False
    odd = np.full(X.nbytes + 8, 0xEE, np.uint8)
    for place in (np.full(X.nbytes - 1, 0xEE, np.uint8), frozen, odd[1 : 1 + X.nbytes], np.empty(0, np.uint8)):
        good = np.empty(X.nbytes, np.uint8)
        results = runner.run_into([X], [place, good])
        assert address(results[0]) != address(place)
        assert address(results[1]) == address(good)
        assert (place == 0xEE).all()
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
    with pytest.raises(ValueError, match="expected 2 places"):
        runner.run_into([X], [good])


def test_other_shapes_are_planned_anew(core: hetero.Core) -> None:
    runner, _ = run_twice(core)
    for rows in (7, 0, 3):
        x = np.ones((rows, 4), np.float32)
        for _ in range(2):
            results = runner.run_into([x], [np.empty(x.nbytes, np.uint8) for _ in range(2)])
            np.testing.assert_array_equal(results[0], -x)
            np.testing.assert_array_equal(results[1], x)


def test_checked_runners_pass_places_on(core: hetero.Core) -> None:
    class Plain:
        def run(self, inputs: Any) -> Any:
            return [inputs[0] + 1]

        def profile(self) -> Any:
            return ()

    class Placing(Plain):
        def run_into(self, inputs: Any, places: Any) -> Any:
            result = places[0].view(np.float32)
            result[:] = inputs[0] + 2
            return [result]

    ports = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])], inputs={"x": [2]})).outputs
    place = np.empty(8, np.uint8)
    (result,) = CheckedRunner(Plain(), "MINE", "of 'm'", ports).run_into([np.ones(2, np.float32)], [place])
    assert result.tolist() == [2, 2]
    (result,) = CheckedRunner(Placing(), "MINE", "of 'm'", ports).run_into([np.ones(2, np.float32)], [place])
    assert result.tolist() == [3, 3]
    assert address(result) == address(place)


def test_a_worker_does_not_copy_what_lies_there(core: hetero.Core) -> None:
    """Whether a place is taken is seen from the values."""
    core.register_plugin("PLACING", "worker_plugins:create_placing_plugin")
    model = core.read_model(make_model([helper.make_node("Identity", ["x"], ["y"])], inputs={"x": [4]}))
    compiled = core.compile_model(model, "PLACING", {"ISOLATION": "PROCESS"})
    for value in (1.0, 2.0):
        assert compiled(np.full(4, value, np.float32))[0].tolist() == [value + 100] * 4
