"""Two hosts: network namespaces of this machine, each with an address and a Ray node of its own, joined by a wire."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hetero
from hetero.devices.ray.cluster import is_installed
from ray_cases import ENVIRONMENT, SYSTEM, TESTS

pytestmark = [pytest.mark.slow, pytest.mark.hosts]

HEAD, OTHER = "10.77.31.1", "10.77.31.2"
# Packets of a host that is cut off get lost, so three health checks time out before Ray says that it is dead.
TIMEOUT = {"health_check_timeout_ms": 2000}
DRIVER = """
import subprocess, sys, warnings
import numpy as np
import hetero
from ray_cases import chain

core = hetero.Core()
(info,) = [entry for entry in core.devices() if entry.name == "RAY"]
assert info.ids == ("0", "1"), info
pins = {"first": "RAY.0", "second": "RAY.1", "third": "RAY.0"}
compiled = core.compile_model(chain(core), "HETERO:RAY.0,RAY.1", {"WORKER_RETRIES": 2}, pins=pins)
from hetero.devices.ray.cluster import connected

assert [node.address for node in connected().nodes()] == sys.argv[1:3]
x = np.linspace(-2, 2, 1 << 18, dtype=np.float32)
expected = np.exp(-np.maximum(x, 0))
for outputs in compiled.map([x] * 8, in_flight=4):
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-6)
print("right", flush=True)
subprocess.check_call(["ip", "-n", sys.argv[3], "link", "set", "wire", "down"])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-6)
print(*dict.fromkeys(str(entry.message) for entry in caught), flush=True)
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """The names of two network namespaces that reach each other at `HEAD` and `OTHER`."""
    if shutil.which("ip") is None:
        pytest.skip("there is no command ip (iproute2)")
    names = (f"hetero{os.getpid()}a", f"hetero{os.getpid()}b")
    with contextlib.ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(leave, name)
            ip("link", "add", "wire", "netns", names[0], "type", "veth", "peer", "name", "wire", "netns", names[1])
            for name, address in zip(names, (HEAD, OTHER), strict=True):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", "wire", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', error)}".strip())
        yield names


def leave(name: str) -> None:
    """End what runs in a namespace, and that."""
    found = subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True)
    for process in found.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    ip("netns", "del", name)


def test_a_model_over_two_hosts_and_what_becomes_of_it_when_the_wire_is_cut(hosts: tuple[str, str]) -> None:
    if not is_installed():
        pytest.skip("ray is not installed: pip install 'hetero[ray]'")
    folders = [tempfile.mkdtemp(prefix="hr", dir="/tmp") for _ in hosts]
    source = Path(hetero.__file__).parent.parent
    ray = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
    begin = [sys.executable, "-m", "ray.scripts.scripts", "start", *ray]

    def on(number: int, *command: str) -> str:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": f"{source}{os.pathsep}{TESTS}"}
        environment |= {"RAY_TMPDIR": folders[number], "RAY_ADDRESS": f"{HEAD}:6379" if command[1] == "-c" else ""}
        done = subprocess.run(
            ["ip", "netns", "exec", hosts[number], *command],
            check=False,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        said = done.stdout.decode()
        assert done.returncode == 0, said
        return said

    try:
        system = f"--system-config={json.dumps(SYSTEM | TIMEOUT)}"
        on(0, *begin, "--head", f"--node-ip-address={HEAD}", "--port=6379", "--include-dashboard=false", system)
        # Each host has its own folder, but this machine has one file system, where Ray would look for the head's.
        on(1, *begin, f"--address={HEAD}:6379", f"--node-ip-address={OTHER}", f"--temp-dir={folders[1]}/ray")
        said = on(0, sys.executable, "-c", DRIVER, HEAD, OTHER, hosts[1])
        assert "right" in said
        assert f"at {OTHER} is dead; its models move to RAY.0" in said, said
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
