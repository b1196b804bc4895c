"""Files that are written as a whole or not at all, and leftovers of killed processes."""

from __future__ import annotations

import errno
import functools
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from hetero.base import files
from hetero.cli.outfile import replacing_folder
from hetero.report.html import write_report
from threads import in_threads

# Prints "ready" once it has begun to write, and never finishes; {what} uses `target`, a path.
CHILD = """
import os, sys, time
sys.path[:0] = {path!r}
import hetero
from hetero.base import files
from hetero.cli.outfile import replacing_folder
target = {target!r}
def wait():
    print("ready", flush=True)
    time.sleep(60)
{what}
"""
ATOMIC_FILE = "with files.atomic_file(target) as number:\n    os.write(number, b'part')\n    wait()"
ATOMIC_FOLDER = "with files.atomic_folder(target) as folder:\n    open(folder + '/part', 'w')\n    wait()"
REPLACED = "with replacing_folder(target, True, lambda folder: True):\n    wait()"
REPLACED_AND_MADE = "with replacing_folder(target, True, lambda folder: True):\n    os.mkdir(target)\n    wait()"


def started(what: str, target: pathlib.Path) -> subprocess.Popen[bytes]:
    """A process in the middle of writing."""
    program = CHILD.format(path=[*filter(None, sys.path)], target=str(target), what=what)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def killed(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077])
def test_new_files_have_the_permissions_that_the_process_gives(tmp_path: pathlib.Path, mask: int) -> None:
    program = (
        f"import os; os.umask({mask}); from hetero.base import files\n"
        "with files.atomic_file('file') as number:\n    files.write_all(number, memoryview(b'x'))\n"
        "with files.atomic_folder('folder') as folder:\n    pass\n"
        f"assert os.umask(0) == {mask}"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~mask


def test_the_mask_of_the_process_is_never_changed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(mask: int) -> int:
        raise AssertionError("another thread may make a file now")

    monkeypatch.setattr(os, "umask", refuse)
    core = hetero.Core()
    model = core.read_model(two_products())
    plan = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"first": "TEMPLATE"})
    plan.save(tmp_path / "plan.json")
    hetero.split(model, plan, tmp_path / "parts")
    model.save(tmp_path / "m.onnx", external_above=0)
    core.compile_model(model, "CPU", {"CACHE_DIR": str(tmp_path / "cache")}).export_model(tmp_path / "m.hetero")


@pytest.mark.parametrize("what", [ATOMIC_FILE, ATOMIC_FOLDER])
def test_leftovers_go_with_the_next_write_unless_their_process_lives(tmp_path: pathlib.Path, what: str) -> None:
    """Writers of files with other names, and of folders, remove them, too."""
    first, second = started(what, tmp_path / "first"), started(what, tmp_path / "second")
    unrelated = tmp_path / ".x.0123456789abcdef.part"
    unrelated.write_bytes(b"")
    assert len(os.listdir(tmp_path)) == 3
    killed(first)
    with files.atomic_file(tmp_path / "other"):
        pass
    names = os.listdir(tmp_path)
    assert len(names) == 3
    assert any(name.startswith(".second.") for name in names)
    killed(second)
    with files.atomic_folder(tmp_path / "more"):
        pass
    assert sorted(os.listdir(tmp_path)) == [unrelated.name, "more", "other"]


def test_what_looks_like_a_leftover_and_cannot_be_one_stays(tmp_path: pathlib.Path) -> None:
    end = ".0123456789abcdef.hetero-part"
    os.mkfifo(tmp_path / f".fifo{end}")
    (tmp_path / "kept").write_bytes(b"kept")
    os.symlink("kept", tmp_path / f".link{end}")
    (tmp_path / "no dot.0123456789abcdef.hetero-part").write_bytes(b"")
    (tmp_path / ".no number.hetero-part").write_bytes(b"")
    files.remove_leftovers(str(tmp_path))
    assert (tmp_path / "kept").read_bytes() == b"kept"
    assert {"no dot.0123456789abcdef.hetero-part", ".no number.hetero-part", f".link{end}"} <= set(os.listdir(tmp_path))
    files.remove_leftovers(str(tmp_path / "gone"))


def test_threads_that_write_beside_each_other_leave_each_other_alone(tmp_path: pathlib.Path) -> None:
    def write(number: int) -> None:
        for turn in range(150):
            if turn % 10:
                files.write_atomically(tmp_path / f"file{number}", [b"%d" % turn])
            else:
                with files.atomic_folder(tmp_path / f"folder{number}.{turn}") as folder:
                    (pathlib.Path(folder) / "in").write_bytes(b"")

    in_threads(write, range(8))
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_file_taken_for_a_leftover_before_it_was_locked_is_made_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_new, taken = files.lock_new, []

    def late(path: str, number: int) -> bool:
        if len(taken) < 2:
            taken.append(path)
            files.remove_leftovers(str(tmp_path))
            assert not os.path.lexists(path)
        return lock_new(path, number)

    monkeypatch.setattr(files, "lock_new", late)
    files.write_atomically(tmp_path / "file", [b"whole"])
    assert (tmp_path / "file").read_bytes() == b"whole"
    taken.clear()
    with files.atomic_folder(tmp_path / "folder"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_without_locks_leftovers_stay(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, wait: bool) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(files.system, "lock", refuse)
    old = tmp_path / ".old.0123456789abcdef.hetero-part"
    old.write_bytes(b"")
    files.write_atomically(tmp_path / "file", [b"whole"])
    assert sorted(os.listdir(tmp_path)) == [old.name, "file"]


@pytest.mark.parametrize("name", ["é" * 127, "\U0001f600" * 63, "x" * 255, "a\nb", " ", ".hidden", "\udce9"])
def test_every_name_that_a_file_can_have(tmp_path: pathlib.Path, name: str) -> None:
    files.write_atomically(tmp_path / name, [b"1"])
    with files.atomic_folder(str(tmp_path / name)[:-1] + "z"):
        pass
    assert len(os.listdir(tmp_path)) == 2


def two_products() -> onnx.ModelProto:
    weights = [np.ones((64, 64), np.float32) for _ in range(2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "w1"], ["y"], "second"),
    ]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "two", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SAVE = """
import hetero.model.save, hetero.model.data_file
model = hetero.Core().read_model({source!r})
{where}
model.save(target, external_above=0)
"""
IN_THE_DATA = """
write = hetero.model.data_file.DataFile.write
hetero.model.data_file.DataFile.write = lambda *given: (write(*given), wait())
"""
BEFORE_THE_RENAME = """
replace = os.replace
os.replace = lambda old, new: wait() if new == target else replace(old, new)
"""


@pytest.mark.parametrize("where", [IN_THE_DATA, BEFORE_THE_RENAME])
def test_weights_of_a_save_that_was_killed_go_too(tmp_path: pathlib.Path, where: str) -> None:
    source, folder = tmp_path / "source.onnx", tmp_path / "here"
    folder.mkdir()
    onnx.save(two_products(), source)
    model = hetero.Core().read_model(source)
    model.save(folder / "kept.onnx", external_above=0)
    child = started(SAVE.format(source=str(source), where=where), folder / "m.onnx")
    model.save(folder / "kept.onnx", external_above=0)
    assert (folder / "m.onnx.1.data").exists()  # of a process that lives
    killed(child)
    model.save(folder / "kept.onnx", external_above=0)
    assert sorted(os.listdir(folder)) == ["kept.onnx", "kept.onnx.1.data"]
    again = hetero.Core().compile_model(folder / "kept.onnx", "CPU")
    assert again(np.ones((1, 64), np.float32))["y"][0, 0] == 64 * 64


@pytest.mark.parametrize(("what", "new"), [(REPLACED, False), (REPLACED_AND_MADE, True)])
def test_a_folder_that_was_moved_away_comes_back_unless_the_new_one_is_there(
    tmp_path: pathlib.Path, what: str, new: bool
) -> None:
    target = tmp_path / "parts"
    target.mkdir()
    (target / "old").write_bytes(b"")
    killed(started(what, target))
    assert target.exists() == new
    files.write_atomically(tmp_path / "other", [])
    assert os.listdir(target) == ([] if new else ["old"])
    assert sorted(os.listdir(tmp_path)) == ["other", "parts"]


def test_a_folder_that_is_replaced_comes_back_when_the_block_raises(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "parts"
    target.mkdir()
    (target / "old").write_bytes(b"")
    with pytest.raises(RuntimeError), replacing_folder(str(target), True, lambda folder: True):
        raise RuntimeError(target.exists())
    assert os.listdir(target) == ["old"]
    with replacing_folder(str(target), True, lambda folder: True):
        target.mkdir()
    assert os.listdir(target) == []
    assert os.listdir(tmp_path) == ["parts"]


@pytest.mark.slow
def test_processes_that_are_killed_at_any_moment_leave_nothing(tmp_path: pathlib.Path) -> None:
    what = (
        "print('ready', flush=True)\nturn = 0\nwhile True:\n    turn += 1\n"
        "    files.write_atomically(target, [b'x' * 100_000])\n"
        "    with files.atomic_folder(f'{target}.folder.{os.getpid()}.{turn}') as folder:\n"
        "        open(folder + '/x', 'w')\n"
    )
    random = np.random.default_rng(0)
    left = 0
    for attempt in range(200):
        if attempt >= 8 and left:
            break
        children = [started(what, tmp_path / f"file{i}") for i in range(2)]
        time.sleep(random.uniform(0.02, 0.1))
        for child in children:
            killed(child)
        left += sum(name.startswith(".") for name in os.listdir(tmp_path))
    files.write_atomically(tmp_path / "last", [])
    assert left, "no write was interrupted: the test tests nothing"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert all((tmp_path / f"file{i}").stat().st_size == 100_000 for i in range(2))


@pytest.mark.parametrize("call", [files.Descriptor.close, lambda held: held.replace(os.open(os.devnull, os.O_RDONLY))])
def test_an_interrupted_close_does_not_close_what_another_opens_then(
    call: Callable[[files.Descriptor], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors are numbers: the next one that is opened gets the number that was closed."""
    held = files.Descriptor(os.open(os.devnull, os.O_RDONLY))
    number = held.number
    close = os.close

    def interrupted(descriptor: int) -> None:
        close(descriptor)
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(os, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call(held)
    other = os.open(os.devnull, os.O_RDONLY)
    assert other == number
    del held
    os.close(other)


def test_errors_name_the_file_that_the_user_named(
    core: hetero.Core, diamond: hetero.Model, tmp_path: pathlib.Path
) -> None:
    gone = tmp_path / "gone" / "file"
    with pytest.raises(FileNotFoundError) as error, files.atomic_file(gone):
        pass
    assert error.value.filename == str(gone)
    plan = core.plan(diamond, "CPU")
    for write, message in (
        (plan.save, f"cannot write plan {gone}: No such file"),
        (functools.partial(write_report, plan), f"cannot write {gone}: No such file"),
        (core.compile_model(diamond, "CPU").export_model, f"{gone}: cannot be written: No such file"),
    ):
        with pytest.raises(FileNotFoundError) as error:
            write(gone)
        assert isinstance(error.value, hetero.HeteroError)
        assert str(error.value).startswith(message)
    with pytest.raises(hetero.HeteroError, match="must not contain a NUL character"):
        plan.save("a\0b")
