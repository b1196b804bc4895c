"""Decoders with weights of 4 and 8 bits on CPU and cut with TEMPLATE, beside onnxruntime without optimizations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero import Core
from llama import decoder, decoder_inputs
from onnxruntime_models import run_directly


@pytest.mark.parametrize("options", [{}, {"level": 4}, {"bits": 8}, {"dequantized": True}])
@pytest.mark.parametrize("device", ["CPU", "HETERO:TEMPLATE,CPU"])
def test_prompt_and_steps(device: str, options: dict[str, Any]) -> None:
    model = decoder(**options)
    compiled = Core().compile_model(model, device)
    close = 0.05 if options.get("level") == 4 else 1e-3  # TEMPLATE does not round activations
    for steps, past in ((5, 0), (1, 5), (1, 6), (3, 7)):
        feed = decoder_inputs(model, steps, past)
        for mine, theirs in zip(compiled(feed).values(), run_directly(model, feed), strict=True):
            np.testing.assert_allclose(mine, theirs, 0, close * np.abs(theirs).max())
