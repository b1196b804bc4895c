"""How a process comes to a cluster, and what it is told where it does not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hetero
from hetero.devices.ray import cluster as connection
from ray_cases import ENVIRONMENT, TESTS, X, chain
from worker_cases import lives, until

SOURCE = str(Path(hetero.__file__).parent.parent)


@pytest.fixture
def core() -> hetero.Core:
    if not connection.is_installed():
        pytest.skip("ray is not installed: pip install 'hetero[ray]'")
    return hetero.Core()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.importlib.util, "find_spec", lambda name: None)
    (info,) = [entry for entry in hetero.Core().devices() if entry.name == "RAY"]
    assert "pip install 'hetero[ray]'" in info.unavailable


def test_listing_devices_starts_no_cluster(
    core: hetero.Core, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_port: int
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    stale = tmp_path / "ray" / "ray_current_cluster"
    stale.parent.mkdir()
    for noted in (None, f"127.0.0.1:{free_port}", "nonsense"):
        if noted is not None:
            stale.write_text(noted)
        (info,) = [entry for entry in core.devices() if entry.name == "RAY"]
        assert "no Ray cluster is running" in info.unavailable
        assert "ray start --head" in info.unavailable
        assert not any(device.startswith("RAY") for device in core.available_devices)
        assert core.get_property("RAY", "AVAILABLE_DEVICES") == ()
        # Nor does asking what a node takes, or for one that there would not be.
        assert set(core.query_model(chain(core), "RAY.0")) == {"first", "second", "third"}
        with pytest.raises(hetero.DeviceUnavailable, match=r"no device RAY\.1; ids here: 0 "):
            core.compile_model(chain(core), "RAY.1")
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()


def test_an_address_that_nobody_answers(core: hetero.Core, monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    address = f"127.0.0.1:{free_port}"
    with pytest.raises(hetero.DeviceUnavailable, match=f"{address} does not answer"):
        core.compile_model(chain(core), "RAY.0", {"RAY_ADDRESS": address})
    with (
        pytest.warns(RuntimeWarning, match=f"continues without RAY.0: RAY: {address} does not answer"),
        pytest.raises(hetero.UnsupportedModel, match="does not answer"),
    ):
        core.compile_model(chain(core), "HETERO:RAY.0", {"RAY_ADDRESS": address})
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(hetero.DeviceUnavailable, match=f"{address} does not answer"):
        core.query_model(chain(core), "RAY")
    (info,) = [entry for entry in core.devices() if entry.name == "RAY"]
    assert f"{address} does not answer" in info.unavailable


@pytest.mark.parametrize(
    ("address", "kind", "says"),
    [
        ("somewhere", hetero.PropertyError, "host:port"),
        ("somewhere:99999", hetero.PropertyError, "host:port"),
        ("no.such.host.invalid:6379", hetero.DeviceUnavailable, "does not answer"),
        ("ray://127.0.0.1:10001", hetero.NotSupported, "Ray Client"),
    ],
)
def test_addresses_that_are_none(core: hetero.Core, address: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        core.compile_model(chain(core), "RAY.0", {"RAY_ADDRESS": address})


def script(text: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A Python process that knows the tests and sees no cluster but its own."""
    values = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    values |= {**ENVIRONMENT, "RAY_TMPDIR": str(folder), "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", **environment}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", text]
    return subprocess.Popen(command, env=values, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """The sockets that Ray has in it have long names already."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="hr", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_port_where_something_else_listens(core: hetero.Core, short_folder: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        text = f"""
import hetero, hetero.devices.ray.cluster as connection
from ray_cases import chain
connection._CONNECT_SECONDS = 2.0
core = hetero.Core()
for _ in range(2):
    try:
        core.compile_model(chain(core), "RAY.0", {{"RAY_ADDRESS": "127.0.0.1:{silent.getsockname()[1]}"}})
    except hetero.DeviceUnavailable as error:
        print(error, flush=True)
"""
        process = script(text, short_folder)
        try:
            said = process.communicate(timeout=300)[0]
        finally:
            process.kill()
            process.communicate()
    assert "does not answer within 2 s" in said, said
    assert "an earlier attempt to connect" in said, said


def processes_of(folder: Path) -> list[int]:
    """Those of a cluster whose files are in ``folder``, but Ray's agents, which wait for half a minute for a head that
    is killed."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment, command = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in environment and b"Agent" not in command and lives(int(entry.name)):
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["by itself", "by SIGKILL"])
def test_a_cluster_that_the_process_starts_ends_with_it(core: hetero.Core, short_folder: Path, ends: str) -> None:
    text = """
import hetero, sys, threading
from ray_cases import X, chain
core = hetero.Core()
init = {"num_cpus": 1, "object_store_memory": 80 << 20, "resources": {"left": 1, "right": 1}}
config = {"RAY_INIT": init, "RAY_STANDBY": False}
made = []
def work():
    pins = {"first": "RAY.left", "second": "RAY.right"}
    made.append(core.compile_model(chain(core), "HETERO:RAY.left,RAY.right", config, pins=pins))
thread = threading.Thread(target=work)  # the cluster outlives the thread that it was first used in
thread.start()
thread.join()
print(made[0](X)[0].tolist(), *sorted(info.ids for info in core.devices() if info.name == "RAY"), flush=True)
sys.stdin.readline()
"""
    process = script(text, short_folder)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("["), line + process.stdout.read() if process.poll() else line
        found = np.array(eval(line[: line.index("]") + 1]), np.float32)
        np.testing.assert_allclose(found, np.exp(-np.maximum(X, 0)), rtol=1e-6)
        assert "('0', 'left', 'right')" in line
        if ends == "by SIGKILL":
            process.send_signal(signal.SIGKILL)
            process.wait()
        else:
            said = process.communicate(timeout=300)[0]
            assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
    assert until(lambda: not processes_of(short_folder)), processes_of(short_folder)
