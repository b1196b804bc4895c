import os
import select
import socket
import subprocess
import sys


def test_server_ends_in_silence_when_the_application_leaves_an_answer_unread() -> None:
    application, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    alive, writer = os.pipe()
    code = f"from hetero.workers.forking import serve; serve({server.fileno()}, {alive})"
    with subprocess.Popen(
        [sys.executable, "-c", code], pass_fds=(server.fileno(), alive), stderr=subprocess.PIPE
    ) as process:
        server.close()
        application.send(b"a request without the descriptors of a worker")
        assert select.select([application], [], [], 60)[0], "no answer"
        application.close()
        _, errors = process.communicate(timeout=60)
    os.close(alive)
    os.close(writer)
    assert (process.returncode, errors) == (0, b"")
