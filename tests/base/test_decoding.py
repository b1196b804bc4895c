"""JSON that several threads decode at the same time, with types that none has used before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
import msgspec
from hetero.base.decoding import decode_json

sys.setswitchinterval(1e-6)
for number in range(200):
    inner = msgspec.defstruct("Inner", [(f"a{i}", "list[int]") for i in range(20)])
    outer = msgspec.defstruct("Outer", [("one", inner), ("more", list[inner])])
    text = msgspec.json.encode({"one": {f"a{i}": [i] for i in range(20)}, "more": []})
    barrier = threading.Barrier(6)
    found = []

    def work():
        barrier.wait()
        found.append(decode_json(text, outer).one.a7)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[7]] * 6, found
"""


def test_threads_decode_a_new_type_at_the_same_time() -> None:
    """With ``msgspec.json.decode``, this crashes."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
