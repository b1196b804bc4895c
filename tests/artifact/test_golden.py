"""Files that earlier versions wrote: they open, with the right results, or raise an error that says what to do.

`golden/VERSION.json` has files of a release, compressed, in base64. A release adds its own:

    python tests/artifact/test_golden.py
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.artifact import verify

GOLDEN = Path(__file__).with_name("golden")
RELEASES = sorted(path.stem for path in GOLDEN.glob("*.json"))
DEVICES = ("CPU", "TEMPLATE", "HETERO:TEMPLATE,CPU", "MULTI:CPU,TEMPLATE")
WEIGHTS = (np.arange(1024, dtype=np.float32) % 7 - 3).reshape(32, 32)  # 4096 bytes: an entry of its own
BIAS = np.arange(32, dtype=np.float32) % 5 - 2
X = (np.arange(96, dtype=np.float32) % 11 - 5).reshape(3, 32)


def model() -> onnx.ModelProto:
    """A product, a branch and a sum. A change of this model requires that the files of all releases are made again."""
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["product"], ["branch"])],
            name,
            [],
            [helper.make_tensor_value_info("branch", TensorProto.FLOAT, None)],
        )
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weights"], ["product"]),
            helper.make_node("If", ["positive"], ["chosen"], **branches),
            helper.make_node("Add", ["chosen", "bias"], ["y"]),
        ],
        "golden",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32]),
            helper.make_tensor_value_info("positive", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(WEIGHTS, "weights"), numpy_helper.from_array(BIAS, "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def right(compiled: hetero.CompiledModel) -> bool:
    """Whether the results equal NumPy's. All sums are exact."""
    product = X @ WEIGHTS
    return all(
        np.array_equal(compiled({"x": X[:rows], "positive": np.array(positive)})["y"], (branch + BIAS)[:rows])
        for positive, branch in ((True, np.maximum(product, 0)), (False, -product))
        for rows in (1, 3)
    )


def files(release: str) -> dict[str, bytes]:
    stored = json.loads((GOLDEN / f"{release}.json").read_text())
    return {name: zlib.decompress(base64.b64decode(text)) for name, text in stored.items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("release", RELEASES)
def test_an_exported_model_of_a_release_opens(core: hetero.Core, tmp_path: Path, release: str, device: str) -> None:
    path = tmp_path / "golden.hetero"
    path.write_bytes(files(release)[device])
    verify(path)
    assert right(core.import_model(path, device))


@pytest.mark.parametrize("release", RELEASES)
def test_a_plan_of_a_release_compiles(core: hetero.Core, tmp_path: Path, release: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(files(release)["plan"])
    compiled = core.compile_model(core.read_model(model()), hetero.Plan.load(path))
    assert compiled.get_property("EXECUTION_DEVICES") == ("TEMPLATE", "CPU")
    assert right(compiled)


def main() -> None:
    """Write the files of this version."""
    core = hetero.Core()
    read = core.read_model(model())
    stored = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        for device in DEVICES:
            core.compile_model(read, device).export_model(path)
            stored[device] = path.read_bytes()
        core.plan(read, "HETERO:TEMPLATE,CPU", pins={"op:If": "CPU"}).save(path)
        stored["plan"] = path.read_bytes()
    target = GOLDEN / f"{hetero.__version__}.json"
    GOLDEN.mkdir(exist_ok=True)
    texts = {name: base64.b64encode(zlib.compress(data, 9)).decode() for name, data in stored.items()}
    target.write_text(json.dumps(texts, indent=1) + "\n")
    sys.stdout.write(f"{target}: {target.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
