"""Inputs of commands, without a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from hetero.cli.inputs import InputChoice
from hetero.core import Core
from hetero.model.types import Port

__all__ = ["made", "ports"]


def ports(*shape: int | str | None, dtype: int = TensorProto.FLOAT, name: str = "x") -> Sequence[Port]:
    """One input of this shape."""
    graph = helper.make_graph(
        [helper.make_node("Identity", [name], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Core().read_model(model).inputs


def made(value: str, of: Sequence[Port], **choice: Any) -> np.ndarray:
    """The array that ``--input VALUE`` gives to it."""
    (one,) = InputChoice(inputs=[value], **choice).make(of)
    array = one.array
    assert isinstance(array, np.ndarray)
    return array
