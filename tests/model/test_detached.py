"""Models in two parts: weights that lie anywhere, also unaligned."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from hetero import ModelError
from hetero.model.detached import attach, detach
from hetero.model.read import read_model
from model_zoo import make_model

WEIGHT = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)


def parts() -> tuple[bytes, dict[str, np.ndarray]]:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = make_model(nodes, inputs={"x": [1, 40]}, weights={"w": WEIGHT})
    return detach(read_model(model))


@pytest.mark.parametrize("shift", range(5))
def test_aligned_arrays_of_unaligned_data(shift: int) -> None:
    data, arrays = parts()
    assert set(arrays) == {"w"}
    memory = bytearray(WEIGHT.nbytes + 64)
    begin = -np.frombuffer(memory, np.uint8).ctypes.data % 64 + shift
    array = np.ndarray(WEIGHT.shape, np.float32, memory, begin)
    array[...] = WEIGHT
    array.flags.writeable = False
    model = attach(memoryview(data), {"w": array}, "parts")
    value = model.value_id("w")
    aligned = model.constant(value)
    assert aligned.flags.aligned
    assert not aligned.flags.writeable
    assert (aligned is array) == (shift % 4 == 0)
    assert model.constant(value) is aligned  # not copied again while it is in use
    assert model.constant(value, aligned=False) is array
    np.testing.assert_array_equal(aligned, WEIGHT)
    assert read_model(model.to_proto()).constant(value).tobytes() == WEIGHT.tobytes()
    assert numpy_helper.to_array(model.to_proto().graph.initializer[0]).tobytes() == WEIGHT.tobytes()


def test_constants_that_share_data_have_one_origin() -> None:
    data, arrays = parts()
    one, other = (attach(memoryview(data), arrays, "parts") for _ in range(2))
    value = one.value_id("w")
    assert one.constant_origin(value) == one.extract([0]).constant_origin(one.extract([0]).value_id("w"))
    assert one.constant_origin(value) != other.constant_origin(value)
    whole = read_model(one.to_proto())
    assert whole.constant_origin(whole.value_id("w"))[0] is whole.constants


def test_arrays_that_fit_no_constant() -> None:
    data, _ = parts()
    for wrong in ({"v": WEIGHT}, {"w": WEIGHT[1:]}, {"w": WEIGHT.astype(np.float64)}):
        with pytest.raises(ModelError):
            attach(memoryview(data), wrong, "parts")
