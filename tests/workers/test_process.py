import mmap
import os
import socket
import subprocess
import sys


def test_worker_ends_in_silence_when_the_application_is_gone() -> None:
    memory = os.memfd_create("test")
    os.ftruncate(memory, mmap.PAGESIZE)
    application, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    alive, writer = os.pipe()  # stays open: otherwise the worker may be killed before it notices the closed socket
    application.close()
    code = f"from hetero.workers.process import main; main({memory}, {mmap.PAGESIZE}, {worker.fileno()}, {alive})"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            pass_fds=(memory, worker.fileno(), alive),
            capture_output=True,
            timeout=60,
        )
    finally:
        worker.close()
        for descriptor in (memory, alive, writer):
            os.close(descriptor)
    assert (done.returncode, done.stderr) == (0, b"")
