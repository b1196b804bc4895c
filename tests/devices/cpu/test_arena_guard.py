"""In the checked build, a call that touches memory of another value in the arena ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKED = "libasan" in os.environ.get("LD_PRELOAD", "")

PROGRAM = '''
import ctypes, sys
sys.path[:0] = {path!r}
import numpy as np
import hetero
from custom_operators import model_of
from hetero.extension.c_call import FUNCTION

@FUNCTION
def over(call):
    output = call.contents.outputs[0]
    ctypes.memset(output.data - {before}, 0, 4 * output.size + {before})
    return 0

core = hetero.Core()
core.add_extension(hetero.CustomOp("Over", "com.acme", c_function=over, shape_rule=lambda x: x))
model = model_of("""g (float[8,8] x) => (float[8,8] y) {{
    q = Softmax(x) r = Transpose(q) p = MatMul(q, r) b = com.acme.Over(p) c = Cos(b) m = MatMul(r, c) y = MatMul(q, m)
}}""")
compiled = core.compile_model(model, "CPU", {{"INFERENCE_NUM_THREADS": 1}})
y = compiled(np.zeros((8, 8), np.float32))["y"]
print("values:", set(y.ravel().tolist()))
'''


def run(before: int) -> subprocess.CompletedProcess[str]:
    """An operator that also writes some bytes before its result, where its operand of 256 bytes lies, and
    before that, other values."""
    helpers = str(Path(__file__).parents[2] / "helpers")
    program = PROGRAM.format(path=[helpers], before=before)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_an_operator_may_write_its_result() -> None:
    done = run(0)
    assert done.returncode == 0, done.stderr
    assert "values: {1.0}" in done.stdout


@pytest.mark.skipif(not CHECKED, reason="only the checked build looks")
@pytest.mark.parametrize("before", [257, 320])
def test_an_operator_that_writes_before_its_result_is_found(before: int) -> None:
    done = run(before)
    assert done.returncode != 0
    assert "use-after-poison" in done.stderr
