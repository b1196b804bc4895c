"""What the contract suite reports of devices that fail it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# A device that supports nothing, and the test file of its author; ``{body}`` is the rest of the test class.
FILES = {
    "no_device.py": """
from hetero.plugin import Plugin, Support


class NoPlugin(Plugin):
    name = "NO"

    def query_model(self, model, config):
        reasons = {node.index: f"no kernel for {node.op_type}" for node in model.nodes}
        return Support.from_reasons(model.num_nodes, reasons)

    def compile_model(self, model, config, context=None):
        raise AssertionError("nothing is supported")
""",
    "test_no_device.py": """
import pytest
from hetero.testing import PluginContract
from no_device import NoPlugin


class TestNo(PluginContract):
    @pytest.fixture
    def plugin(self):
        return NoPlugin()
{body}
""",
}


@pytest.mark.parametrize("body", ["", "    def cases(self):\n        return ()\n"])
def test_a_device_that_supports_no_case_fails_once(tmp_path: Path, body: str) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace("{body}", body))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "test_no_device.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert " 1 failed, " in done.stdout
    assert "error" not in done.stdout.lower()
    assert "TestNo.test_supports_a_case" in done.stdout
    assert "Override `cases` in the test class" in done.stdout
    assert "the device supports none of the cases; see test_supports_a_case" in done.stdout
    if not body:
        assert "NO supports none of the 10 models of the suite" in done.stdout
        assert "convolution: node 'Conv_a': no kernel for Conv" in done.stdout
