"""The files per system: what Windows lacks is simulated, because the tests run on Linux."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from hetero.base import files, system_posix, system_windows

# Takes away what Python does not have on Windows, then reads, compiles, runs, saves and exports a model.
WITHOUT_POSIX = r"""
import mmap, os, pathlib, shutil, signal, socket, subprocess, sys

import click, msgspec, numpy as np, onnx, rich.console, rich.progress
import onnx.reference, onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper

for module in ("fcntl", "resource", "pwd", "grp", "termios", "posix"):
    sys.modules[module] = None
for name in (
    "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_NOCTTY", "fork", "register_at_fork", "sched_getaffinity",
    "sched_setaffinity", "sysconf", "pread", "sendfile", "copy_file_range", "memfd_create", "pidfd_open", "getuid",
    "geteuid", "sched_yield", "fchmod", "mkfifo", "getpgid", "setsid", "killpg", "WNOHANG",
):
    delattr(os, name)
for name in ("SIGKILL", "SIGPROF", "SIGBUS", "SIGCHLD", "SIGPIPE", "SIGHUP", "setitimer", "ITIMER_PROF"):
    delattr(signal, name)
for name in ("AF_UNIX", "CMSG_SPACE", "MSG_NOSIGNAL", "MSG_DONTWAIT", "SCM_RIGHTS", "MSG_CTRUNC"):
    delattr(socket, name)
for name in ("MAP_PRIVATE", "MAP_ANONYMOUS", "MAP_SHARED", "MADV_HUGEPAGE", "MADV_DONTNEED", "PROT_READ"):
    delattr(mmap, name)
import hetero.base.system_windows
sys.modules["hetero.base.system_posix"] = sys.modules["hetero.base.system_windows"]
system_open = os.open

def without_folders(path, flags, mode=0o777, *, dir_fd=None):
    assert dir_fd is None
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return system_open(path, flags, mode)

def with_closed_files(function):
    def call(*paths, **rest):
        used = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        used += [line.split()[-1] for line in open("/proc/self/maps")]
        for path in paths:
            if os.path.realpath(path) in used:
                raise PermissionError(13, "The process cannot access the file", path)
        return function(*paths, **rest)
    return call

os.open = without_folders
os.unlink, os.replace, os.rename = map(with_closed_files, (os.unlink, os.replace, os.rename))

import hetero

folder = pathlib.Path(sys.argv[1])
weights = numpy_helper.from_array(np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096, "w")
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Relu", ["h"], ["y"], "relu")],
    "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 64])],
    [weights],
)
proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
core = hetero.Core()
x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
expected = np.maximum(x @ numpy_helper.to_array(weights), 0)

def check(compiled):
    np.testing.assert_allclose(compiled({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)

model = core.read_model(proto)
check(core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 2}))
two = core.compile_model(model, "HETERO:CPU.0,CPU.1", pins={"relu": "CPU.1"})
check(two)
for repeat in range(2):  # the second time replaces files
    model.save(folder / "m.onnx", external_above=0)
assert sorted(os.listdir(folder)) in (["m.onnx", "m.onnx.1.data"], ["m.onnx", "m.onnx.2.data"]), os.listdir(folder)
check(core.compile_model(core.read_model(folder / "m.onnx"), "CPU"))
two.export_model(folder / "m.hetero")
check(hetero.load(folder / "m.hetero"))
hetero.split(model, core.plan(model, "HETERO:CPU.0,CPU.1", pins={"relu": "CPU.1"}), folder / "parts")
for config, message in (({"ISOLATION": "PROCESS"}, "requires Linux"), ({"ENABLE_CPU_PINNING": True}, "requires Linux")):
    try:
        core.compile_model(model, "CPU", config)
    except hetero.NotSupported as error:
        assert message in str(error), error
    else:
        raise AssertionError(config)
import hetero.cli
import hetero.devices.ort.plugin, hetero.devices.ray.cluster, hetero.devices.opencl.plugin
print("done")
"""


def test_without_what_windows_lacks(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("system", [system_posix, system_windows])
def test_both_open_files_below_a_folder(system: object, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"0123456789")
    opened = system.open_below(str(tmp_path), ["a", "b"], False)  # type: ignore[attr-defined]
    assert system.read_at(opened.number, 4, 3) == b"3456"  # type: ignore[attr-defined]
    with pytest.raises(OSError):
        system.open_below(str(tmp_path), ["a", "c"], False)  # type: ignore[attr-defined]


@pytest.mark.parametrize("part", ["..\\b", "C:b", "b\\c"])
def test_windows_rejects_parts_that_lead_elsewhere(part: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / part).write_bytes(b"")
    with pytest.raises(OSError, match="backslash or a colon"):
        system_windows.open_below(str(tmp_path), [part], True)


def test_a_copy_without_the_system(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.system, "COPIES", ())
    (tmp_path / "source").write_bytes(b"0123456789")
    with open(tmp_path / "source", "rb") as source, open(tmp_path / "target", "wb") as target:
        assert files.copy_range(source.fileno(), 2, 20, target.fileno()) == 8
        assert os.path.getsize(tmp_path / "target") == 8
    assert (tmp_path / "target").read_bytes() == b"23456789"
