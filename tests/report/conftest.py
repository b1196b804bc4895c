"""Plans and runs to be drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hetero
from hetero.plugin.profile import Profile
from report_cases import HOSTILE_NAMES, chain


@pytest.fixture
def hostile_plan(core: hetero.Core) -> hetero.Plan:
    model = core.read_model(chain(HOSTILE_NAMES, graph="../</title><script>window.hacked=1</script>"))
    return core.plan(model, "HETERO:FPGA,CPU")


@pytest.fixture
def profile_of(core: hetero.Core) -> Callable[[hetero.Model, str | hetero.Plan], Profile]:
    """Model and plan (or device) -> the counters of an inference on ones."""

    def run(model: hetero.Model, plan: str | hetero.Plan) -> Profile:
        request = core.compile_model(model, plan, {"PERF_COUNT": True}).create_infer_request()
        inputs = {port.name: np.ones(port.shape or (), port.dtype) for port in model.inputs}
        request.infer(inputs)
        request.infer(inputs)
        return request.profiling_info

    return run
