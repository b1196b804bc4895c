"""Each library is measured in a process of its own."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
from onnx import TensorProto, helper

from alone import LIBRARIES, alone_times

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
MODEL = helper.make_model(
    helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [X], [Y]),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8,
)


def test_times_of_both_libraries() -> None:
    times = alone_times(MODEL, {"x": np.zeros(4, np.float32)}, threads=2, calls=3, rounds=2, pause=0)
    assert tuple(times) == LIBRARIES
    assert all(0 < seconds < 10 for seconds in times.values())
    assert not multiprocessing.active_children()


def test_a_process_that_fails_is_reported() -> None:
    with pytest.raises(RuntimeError, match="the process of onnxruntime ended with exit status 1"):
        alone_times(MODEL, {"z": np.zeros(4, np.float32)}, threads=1, calls=1, rounds=1, pause=0)
    assert not multiprocessing.active_children()
