"""Inputs that change while `CPU` reads them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

READERS_OF_INDICES = [
    "Gather",
    "GatherElements",
    "GatherND",
    "ScatterElements",
    "ScatterND",
    "TensorScatter",
    "Slice",
    "Pad",
    "OneHot",
    "NonZero",
    "Compress",
    "Unique",
    "TopK",
    "NonMaxSuppression",
    "Reshape",
    "Expand",
    "Tile",
    "CumSum",
    "EmbedLayerNormalization",
    "GroupQueryAttention",
    "RoiAlign",
]


def test_indices_that_change_after_their_check_end_no_process() -> None:
    command = [sys.executable, str(Path(__file__).with_name("changing_inputs.py"))]
    options = ["--seconds", "2", "--each", "0.03", "--errors", "6", "--only", *READERS_OF_INDICES]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = re.fullmatch(r"\d+ models, (\d+) calls, (\d+) errors\n", done.stdout)
    assert counts is not None
    assert int(counts[1]) >= int(counts[2]) >= 6
