"""Random nets with and without fusion: fewer kernel calls, the same results."""

from __future__ import annotations

import numpy as np
import pytest

import hetero
from fusion_nets import SHAPE, Net, array, gelu_erf, layer_norm, silu


def test_counters_name_the_product():
    net = Net(SHAPE)
    net("Relu", net("MatMul", "x", array(24, 24)))
    request = hetero.Core().compile_model(net.model("v1"), "CPU", {"PERF_COUNT": True}).create_infer_request()
    request.infer({"x": array(*SHAPE)})
    rows = [(row.layer_type, row.status) for row in request.profiling_info]
    assert rows == [("MatMul", "EXECUTED"), ("Relu", "OPTIMIZED_OUT")]


ELEMENTWISE = ("Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "HardSigmoid", "Neg", "Abs")


@pytest.mark.parametrize("first", [0, 40])
def test_random_nets_are_the_same_with_and_without(first):
    """Chains and meshes of what the passes look for, with random outputs in between."""
    core = hetero.Core()
    for seed in range(first, first + 40):
        rng = np.random.default_rng(seed)
        net = Net((3, 24))
        values = ["x"]
        for _ in range(int(rng.integers(3, 25))):
            a, b = (values[int(rng.integers(max(0, len(values) - 4), len(values)))] for _ in range(2))
            match int(rng.integers(12)):
                case 0:
                    made = net("MatMul", a, array(24, 24, scale=0.2))
                case 1:
                    made = net("Gemm", a, array(24, 24, scale=0.2), array(24), transB=1)
                case 2 | 3:
                    made = net("Add", a, b)
                case 4:
                    made = net("Mul", a, b)
                case 5:
                    made = net("Add", a, array(24))
                case 6:
                    made = gelu_erf(net, a, seed % 4)
                case 7:
                    made = layer_norm(net, a, bool(seed % 2))
                case 8:
                    made = net("LayerNormalization", a, array(24), array(24))
                case 9:
                    made = silu(net, a, seed % 2)
                case _:
                    made = net(ELEMENTWISE[int(rng.integers(len(ELEMENTWISE)))], a)
            values.append(made)
        outputs = sorted({values[-1], *(v for v in values[1:-1] if rng.random() < 0.15)})
        model, inputs = net.model(*outputs), {"x": array(3, 24)}
        fused, plain = (
            core.compile_model(model, "CPU", {"DISABLE_TRANSFORMATIONS": disabled})(inputs)
            for disabled in (False, True)
        )
        for name in outputs:
            scale = max(1, np.abs(plain[name]).max())
            assert np.abs(fused[name] - plain[name]).max() <= 1e-4 * scale, (seed, name)
