"""In the checked build, a call that touches memory of another value in the arena ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKED = "libasan" in os.environ.get("LD_PRELOAD", "")

PROGRAM = """
import ctypes, sys
sys.path[:0] = {path!r}
import numpy as np
import hetero
from custom_operators import model_of
from hetero.extension.c_call import FUNCTION

@FUNCTION
def over(call):
    output = call.contents.outputs[0]
    ctypes.memset(output.data, 0, 4 * output.size + {more})
    return 0

core = hetero.Core()
core.add_extension(hetero.CustomOp("Over", "com.acme", c_function=over, shape_rule=lambda x: x))
model = model_of("g (float[64] x) => (float[64] y) {{ a = Exp(x) b = com.acme.Over(a) c = Cos(b) y = Add(a, c) }}")
compiled = core.compile_model(model, "CPU", {{"INFERENCE_NUM_THREADS": 1}})
y = compiled(np.zeros(64, np.float32))["y"]
print("values:", set(y.tolist()))
"""


def run(more: int) -> subprocess.CompletedProcess[str]:
    """An operator that writes ``more`` bytes than its result has."""
    helpers = str(Path(__file__).parents[2] / "helpers")
    program = PROGRAM.format(path=[helpers], more=more)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_an_operator_may_write_its_result() -> None:
    done = run(0)
    assert done.returncode == 0, done.stderr
    assert "values: {2.0}" in done.stdout


@pytest.mark.skipif(not CHECKED, reason="only the checked build looks")
@pytest.mark.parametrize("more", [1, 64])
def test_an_operator_that_writes_past_its_result_is_found(more: int) -> None:
    done = run(more)
    assert done.returncode != 0
    assert "use-after-poison" in done.stderr
