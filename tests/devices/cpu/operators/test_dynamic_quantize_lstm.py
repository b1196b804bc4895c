"""DynamicQuantizeLSTM on the CPU device, beside its definition on TEMPLATE, LSTM and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrib_nodes import Array, floats, model_of, refusal, run
from onnxruntime_models import run_directly

FIXED = ("w", "r", "b", "ws", "wz", "rs", "rz")


def operands(directions: int, dtype: str, per_column: bool, steps: int = 4, batch: int = 2) -> dict[str, Array]:
    random = np.random.default_rng(directions)
    limits, hidden, width = np.iinfo(dtype), 5, 3

    def levels(*shape: int) -> Array:
        # onnxruntime's sums of pairs of signed products saturate on some processors, unless weights have 7 bits.
        return random.integers(limits.min // 2, limits.max // 2 + 1, shape).astype(dtype)

    scales = (directions, 4 * hidden) if per_column else (directions,)
    return {
        "x": floats(steps, batch, width),
        "w": levels(directions, width, 4 * hidden),
        "r": levels(directions, hidden, 4 * hidden),
        "b": floats(directions, 8 * hidden),
        "lengths": np.array([steps, max(steps - 1, 0)][:batch], np.int32),
        "h": floats(directions, batch, hidden, seed=1),
        "c": floats(directions, batch, hidden, seed=2),
        "p": floats(directions, 3 * hidden, seed=3),
        "ws": (np.abs(floats(*scales)) / 800 + 1e-3).astype(np.float32),
        "wz": np.full(scales, 0 if dtype == "int8" else 128, dtype),
        "rs": (np.abs(floats(*scales, seed=1)) / 800 + 1e-3).astype(np.float32),
        "rz": np.full(scales, 0 if dtype == "int8" else 128, dtype),
    }


@pytest.mark.spread(2)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("absent", [(), ("b", "lengths", "h", "c", "p"), ("lengths", "p")])
def test_results(dtype: str, per_column: bool, direction: str, absent: tuple[str, ...]) -> None:
    inputs = operands(2 if direction == "bidirectional" else 1, dtype, per_column)
    inputs = {f"-{name}" if name in absent else name: array for name, array in inputs.items()}
    options: dict[str, Any] = {"outputs": 3, "hidden_size": 5, "direction": direction}
    model = model_of("DynamicQuantizeLSTM", inputs, FIXED, **options)
    found, twin = run(model, inputs), run(model, inputs, "TEMPLATE")
    feed = {value.name: inputs[value.name] for value in model.graph.input}
    rounded = run_directly(model, feed)
    for mine, defined, theirs in zip(found, twin, rounded, strict=True):
        np.testing.assert_allclose(mine, defined, 1e-4, 1e-5)
        np.testing.assert_allclose(mine, theirs, 0, 1e-4)


def test_clip() -> None:
    inputs = operands(1, "int8", False)
    model = model_of("DynamicQuantizeLSTM", inputs, FIXED, outputs=3, hidden_size=5, clip=0.1)
    for mine, defined in zip(run(model, inputs), run(model, inputs, "TEMPLATE"), strict=True):
        np.testing.assert_allclose(mine, defined, 1e-4, 1e-5)


def test_refusals() -> None:
    inputs = operands(1, "int8", False)
    assert "input W is not constant" in refusal(model_of("DynamicQuantizeLSTM", inputs, outputs=3, hidden_size=5))
    more = {"outputs": 3, "hidden_size": 5}
    assert "activations" in refusal(
        model_of("DynamicQuantizeLSTM", inputs, FIXED, **more, activations=["Relu", "Tanh", "Tanh"])
    )
    for name, change, reason in (
        ("w", lambda w: w[..., 1:], "W of shape [1, 3, 19]; expected [1, 3, 20]"),
        ("w", lambda w: w[0], "W and R do not have rank 3"),
        ("r", lambda r: r[..., 1:], "R of shape [1, 5, 19]; expected [1, 5, 20]"),
        ("b", lambda b: b[:, 1:], "B of shape [1, 39]; expected [1, 40]"),
        ("ws", lambda s: np.ones(3, np.float32), "W_scale of shape [3]; expected [1] or [1, 20]"),
        ("rz", lambda z: np.ones((1, 5), np.int8), "R_zero_point of shape [1, 5]; expected [1] or [1, 20]"),
        ("wz", lambda z: z.view(np.uint8), "W_zero_point of type uint8; expected int8"),
        ("ws", lambda s: s * np.float32(np.nan), "W_scale = nan"),
        ("rs", lambda s: s * np.float32(np.inf), "R_scale = inf"),
    ):
        assert reason in refusal(model_of("DynamicQuantizeLSTM", inputs | {name: change(inputs[name])}, FIXED, **more))
    both = model_of("DynamicQuantizeLSTM", inputs, FIXED, **more, direction="bidirectional")
    assert "R of shape [1, 5, 20]; expected [2, 5, 20]" in refusal(both)
    assert "input_forget" in refusal(model_of("DynamicQuantizeLSTM", inputs, FIXED, **more, input_forget=1))
