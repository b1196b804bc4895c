"""Activations that exporters decompose: one call each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fusion_nets import SHAPE, Net, check, gelu_erf, silu


def gelu_tanh(net, x, form):
    cube = net("Pow", x, 3.0) if form % 2 else net("Mul", net("Mul", x, x), x)
    inner = net("Mul", net("Add", x, net("Mul", cube, 0.044715)), math.sqrt(2 / math.pi))
    gate = net("Add", 1.0, net("Tanh", inner))
    if form // 2 == 0:
        return net("Mul", net("Mul", gate, x), 0.5)
    return net("Mul", gate, net("Mul", x, 0.5))


def mish(net, x, form):
    return net("Mul", x, net("Tanh", net("Softplus", x)))


def hard_swish(net, x, form):
    if form == 0:
        return net("Mul", x, net("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    gate = net("Clip", net("Add", x, 3.0), np.array(0, np.float32), np.array(6, np.float32))
    if form == 1:
        return net("Div", net("Mul", x, gate), 6.0)
    return net("Mul", x, net("Div", gate, 6.0))


ACTIVATIONS = [
    (f, i) for f, n in ((gelu_erf, 4), (gelu_tanh, 4), (silu, 2), (mish, 1), (hard_swish, 3)) for i in range(n)
]


@pytest.mark.parametrize(("build", "form"), ACTIVATIONS)
def test_decomposed_activations_are_one_call(build, form):
    net = Net(SHAPE)
    check(net.model(build(net, "x", form)), SHAPE, 1)


@pytest.mark.parametrize(("build", "form"), ACTIVATIONS)
def test_a_part_that_is_read_elsewhere_stays(build, form):
    net = Net(SHAPE)
    end = build(net, "x", form)
    inner = net.nodes[-2].output[0]  # the last but one is an output of the model, too
    check(net.model(end, inner), SHAPE, len(net.nodes))


def test_other_constants_are_another_function():
    net = Net(SHAPE)
    gate = net("Add", net("Erf", net("Div", "x", 1.5)), 1.0)
    check(net.model(net("Mul", net("Mul", "x", gate), 0.5)), SHAPE, 5)
