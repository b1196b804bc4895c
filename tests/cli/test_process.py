"""The command as a process of its own: what CliRunner cannot show."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "hetero"]


def run(*args: object, stdout: Any = subprocess.PIPE, **settings: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, args)]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False, **settings
    )


def test_a_full_disk_behind_stdout(diamond_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run("query", diamond_path, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "Error: No space left on device\n"


def test_a_full_disk_leaves_nothing_behind(diamond_path: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))

    for command in (["export", diamond_path, "-o", "x"], ["run", diamond_path, "--save", "x"],
                    ["split", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "x"]):  # fmt: skip
        done = run(*command, cwd=tmp_path, preexec_fn=limit)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "File too large" in done.stderr
        assert os.listdir(tmp_path) == ["diamond.onnx"]


def test_a_reader_that_goes_away(diamond_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = run("inspect", diamond_path, "--json", stdout=pipe)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_debug_shows_where(tmp_path: Path) -> None:
    for arguments in (["--debug", "inspect", "gone.onnx"], ["inspect", "gone.onnx", "--debug"]):
        assert "Traceback" in run(*arguments, cwd=tmp_path).stderr
    assert "Traceback" not in run("inspect", "gone.onnx", cwd=tmp_path).stderr


def test_a_terminal_of_few_characters(diamond_path: Path) -> None:
    done = run("bench", diamond_path, "-niter", 1, "-pc", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "CPU" in done.stdout
    assert not done.stderr


def seconds_of(process: int) -> float:
    """Time that it spent on a processor: unlike the clock's, it says how far a program has come on a busy machine."""
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.usefixtures("interruptible")
def test_interrupted(diamond_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "bench", diamond_path, "-t", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while seconds_of(process.pid) < 2:  # starting takes a third of that
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            _, error = process.communicate(timeout=120)
        finally:
            process.kill()
    assert "Traceback" not in error
    assert process.returncode == 130


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("module", ["click", "hetero.cli.commands.inspect", "numpy", "hetero.core"])
def test_interrupted_during_imports(module: str, diamond_path: Path) -> None:
    """SIGINT as the process begins to import a module: no traceback, and nothing is imported further."""
    program = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from hetero.__main__ import run\n"
        "sys.exit(run())\n"
    )
    command = [sys.executable, "-c", program, "inspect", diamond_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted\n")


def test_an_interrupted_child_of_another_library_says_nothing() -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # tests in the background inherit another
        "from hetero.base.interrupts import end_on_interrupt, interrupts_raised\n"
        "end_on_interrupt()\n"
        "with interrupts_raised():\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('goes on', flush=True)\n"
        "        os._exit(0)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{-signal.SIGINT}\n", "")


def test_interrupts_that_are_ignored_stay_ignored(diamond_path: Path) -> None:
    """As in a background job."""
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from hetero.__main__ import run\n"
        "import os; os.kill(os.getpid(), signal.SIGINT)\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "inspect", diamond_path], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_asks_on_a_terminal(answer: str, code: int, diamond_path: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "export", diamond_path, "-o", "out"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        asked = b""
        while b"?" not in asked:
            asked += os.read(ours, 1000)
        assert b"Replace it?" in asked
        os.write(ours, f"{answer}\n".encode())
        assert process.wait(120) == code
    os.close(ours)
    assert ((tmp_path / "out").read_bytes() == b"precious") == (code == 1)


def test_shows_that_it_works_on_a_terminal(diamond_path: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["compare", str(diamond_path), "-d", "HETERO:FPGA,CPU", "-d", "TEMPLATE", "--json"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            shown += piece
        output = process.communicate(timeout=120)[0]
    os.close(ours)
    assert process.returncode == 0
    assert b"Comparing" in shown
    assert json.loads(output)["passed"]
