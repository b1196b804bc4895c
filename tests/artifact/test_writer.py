"""A process that is killed while it exports leaves the old file, or the new one."""

from __future__ import annotations

import io
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from exported_models import bits
from hetero.artifact import verify

# Exports two models in turn, for ever, over one path, and tells when it begins.
CHILD = """
import sys
sys.path[:0] = {path!r}
import hetero
from test_writer import model
core = hetero.Core()
made = [core.compile_model(core.read_model(model(seed)), "CPU") for seed in (0, 1)]
print("ready", flush=True)
while True:
    for compiled in made:
        compiled.export_model({target!r})
"""


def model(seed: int) -> onnx.ModelProto:
    """Some 4 MB of weights, so that most of the time goes into writing."""
    weight = np.random.default_rng(seed).standard_normal((500, 1000)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        f"model{seed}",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 500])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1000])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
def test_kill_while_exporting(tmp_path: pathlib.Path) -> None:
    core = hetero.Core()
    target = tmp_path / "m.hetero"
    x = np.ones((1, 500), np.float32)
    models = [core.compile_model(core.read_model(model(seed)), "CPU") for seed in (0, 1)]
    wanted, files = [], []
    for compiled in models:
        stream = io.BytesIO()
        compiled.export_model(stream)
        files.append(stream.getvalue())
        wanted.append(bits(compiled(x)))
    target.write_bytes(files[0])
    path = [str(pathlib.Path(__file__).parent), *filter(None, sys.path)]
    program = CHILD.format(path=path, target=str(target))
    moments = random.Random(0)
    seen, torn = set(), 0
    for attempt in range(200):
        if attempt >= 4 and seen == {0, 1} and torn:
            break
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(moments.uniform(0, 0.2))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        verify(target)
        data = target.read_bytes()
        assert data in files
        seen.add(files.index(data))
        assert bits(core.import_model(target, "CPU")(x)) == wanted[files.index(data)]
        torn += len(list(tmp_path.glob(".m.hetero.*")))  # temporary files: it was killed while it wrote
    assert seen == {0, 1}
    assert torn, "no export was interrupted: the test tests nothing"
