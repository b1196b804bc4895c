"""examples/hetero-numpy: a plugin in a package of its own, from the contract suite to pip."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.plugin import Plugin
from hetero.testing import PluginContract
from model_zoo import make_model

EXAMPLE = Path(__file__).parents[1] / "examples" / "hetero-numpy"


class TestExample(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return create()


def create() -> Plugin:
    spec = importlib.util.spec_from_file_location("hetero_numpy", EXAMPLE / "hetero_numpy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plugin: Plugin = module.create_plugin()
    return plugin


def test_it_is_short() -> None:
    assert sum(len(path.read_text().splitlines()) for path in EXAMPLE.glob("*.*")) < 100


def test_beside_another_device(core: hetero.Core) -> None:
    core.register_plugin("NUMPY", create)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "one"),
        helper.make_node("Tanh", ["a"], ["b"], "two"),
        helper.make_node("Add", ["b", "x"], ["y"], "three"),
    ]
    model = core.read_model(make_model(nodes))
    compiled = core.compile_model(model, "HETERO:NUMPY,CPU", {"PERF_COUNT": True})
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 3
    x = np.float32([[-1, 0, 1], [2, 3, 4]])
    request = compiled.create_infer_request()
    np.testing.assert_allclose(request.infer(x)[0], np.tanh(np.maximum(x, 0)) + x, rtol=1e-6)
    assert {row.node: row.exec_type for row in request.profiling_info}["three"] == "numpy"


@pytest.mark.slow
def test_pip_installs_it(tmp_path: Path) -> None:
    pytest.importorskip("setuptools.command.bdist_wheel", reason="building the package takes setuptools 70.1")
    package, site = tmp_path / "package", tmp_path / "site"
    shutil.copytree(EXAMPLE, package)  # building leaves files in the folder
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(package)], check=True, capture_output=True)
    code = (
        f"import sys; sys.path = {[*sys.path, str(site)]!r}\n"
        "import hetero\n"
        "(info,) = [info for info in hetero.Core().devices() if info.name == 'NUMPY']\n"
        "print(info.origin, info.unavailable or 'available')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["hetero-numpy", "1.0", "available"]
