"""Chains of nodes with a given time per node and device."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from hetero import Model
from hetero.assign.costs import Costs, Measurement, NodeTimes
from model_zoo import make_model

__all__ = ["chain_proto", "costs_of"]


def chain_proto(count: int = 6, shape: Sequence[int] = (64, 64)) -> onnx.ModelProto:
    """A chain of ``count`` Exp nodes, named n0, n1, and so on."""
    nodes = [helper.make_node("Exp", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(count)]
    nodes[-1].output[0] = "y"
    return make_model(nodes, {"x": shape})


def costs_of(model: Model, launch_us: float = 0.0, **times: Sequence[float]) -> Costs:
    """Per device the microseconds of the nodes n0, n1, …"""
    return Costs.of_model(
        model,
        [
            Measurement(device, {}, {f"n{i}": NodeTimes(1, us, us) for i, us in enumerate(each)}, launch_us=launch_us)
            for device, each in times.items()
        ],
    )
