"""Models for the tests of pictures: names that try to become something else, and chains of any length."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from model_zoo import make_model

__all__ = ["HOSTILE_NAMES", "blocks", "chain"]

# Names that try to become something else wherever they are shown.
HOSTILE_NAMES = (
    '"quoted" \\N \\"',
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<!--<script>",
    "line\nbreak\r\x00\x1b[31m",
    "../../etc/passwd",
    "javascript:window.hacked=1",
    "&lt;b&gt; &amp; ${window.hacked=1} `;'",
    "turned \u202e around \u2028",
    "ünï ☃ 🧪 ]]>",
)


def chain(names: Sequence[str], every: int = 3, graph: str = "chain") -> onnx.ModelProto:
    """A chain of nodes, of which each ``every``-th is one that the simulated FPGA refuses."""
    ops = ["Exp" if i % every == every - 1 else "Relu" for i in range(len(names))]
    values = ["x", *(f"v{i}" for i in range(len(names) - 1)), "y"]
    return make_model(
        [helper.make_node(op, [values[i]], [values[i + 1]], name=names[i]) for i, op in enumerate(ops)], name=graph
    )


def blocks(producers: Sequence[Sequence[int]], count: int, refused: Sequence[int] = ()) -> onnx.ModelProto:
    """``count`` blocks, one after the other. ``producers``: of each node of a block, relative to its first; -1 is the
    last of the block before. ``refused``: nodes of a block that the simulated FPGA does not take."""
    values, nodes = ["x"], []
    size = len(producers)
    for block in range(count):
        for i, row in enumerate(producers):
            reads = [values[0] if block == 0 and j < 0 else values[1 + block * size + j] for j in row]
            ops = {1: "Exp" if i in refused else ("Relu", "LeakyRelu", "Clip")[i % 3], 2: "Add"}
            op = ops.get(len(reads), "Sum")
            last = block == count - 1 and i == size - 1
            values.append("y" if last else f"b{block}.v{i}")
            nodes.append(helper.make_node(op, reads, [values[-1]], name=f"/layer.{block}/part.{i // 5}/{op}_{i}"))
    return make_model(nodes, inputs={"x": [1, 64]}, name=f"blocks_{count}")
