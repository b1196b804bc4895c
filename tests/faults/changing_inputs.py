"""Another process overwrites the inputs while `CPU` reads them, also with indices and sizes that no check would accept.

Every call must return, or raise a documented error: a kernel must use the number that it checked. Models are those of
the fuzzer of operators. Prints the counts.

    python tests/faults/changing_inputs.py --seconds 60 --seed 1
    python tests/faults/changing_inputs.py --only Gather NonZero
"""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import hetero
from fuzz import operators
from fuzz.differential import Case

ALIGNMENT = 64  # of inputs, in B
DRAWS = 4  # different wrong contents of each input
INTEGERS = (0, 1, -1, 2, 7, -8, 100, -100, 2**31 - 1, -(2**31), 2**40, -(2**62), 2**63 - 1)


def wrong(array: np.ndarray, rng: np.random.Generator) -> bytes:
    if array.dtype.kind not in "iu":
        return rng.bytes(array.nbytes)
    drawn = np.array(INTEGERS, np.int64)[rng.integers(0, len(INTEGERS), array.shape)].astype(array.dtype)
    return np.where(rng.random(array.shape) < 0.5, drawn, array).tobytes()


def overwrite(pages: mmap.mmap, places: list[tuple[int, np.ndarray]], rng: np.random.Generator, parent: int) -> None:
    """Writes wrong and right contents in turn, until the parent ends."""
    contents = [(at, array.tobytes(), [wrong(array, rng) for _ in range(DRAWS)]) for at, array in places]
    while os.getppid() == parent:
        for at, right, others in contents:
            pages[at : at + len(right)] = others[int(rng.integers(DRAWS))]
            pages[at : at + len(right)] = right


def attack(case: Case, rng: np.random.Generator, seconds: float) -> tuple[int, int]:
    """The numbers of calls, and of calls that raised a documented error."""
    core, feeds = hetero.Core(), case.calls[0]
    threads = int(rng.integers(1, 3))
    try:
        model = core.read_model(case.model)
        compiled = core.compile_model(model, "CPU", {**case.properties, "INFERENCE_NUM_THREADS": threads})
    except hetero.HeteroError:
        return 0, 0
    if not feeds or any(array.dtype.hasobject for array in feeds.values()):
        return 0, 0
    pages = mmap.mmap(-1, sum(array.nbytes + ALIGNMENT for array in feeds.values()))
    places, shared, at = [], {}, 0
    for name, array in feeds.items():
        shared[name] = np.frombuffer(pages, array.dtype, array.size, at).reshape(array.shape)
        shared[name][...] = array
        places.append((at, array))
        at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            overwrite(pages, places, rng, parent)
        finally:
            os._exit(0)
    calls = errors = 0
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            calls += 1
            try:
                compiled(shared)
            except hetero.HeteroError:
                errors += 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return calls, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=float, default=0.15, help="seconds for each model")
    parser.add_argument("--errors", type=int, default=0, help="go on until so many calls have raised an error")
    parser.add_argument("--only", nargs="+", default=[], help="operators")
    chosen = parser.parse_args()
    found: dict[str, Any] = {"models": 0, "calls": 0, "errors": 0}
    end, number = time.monotonic() + chosen.seconds, 0
    while time.monotonic() < end or found["errors"] < chosen.errors:
        rng = np.random.default_rng([chosen.seed, number])
        case = operators.case(rng)
        number += 1
        operator = case.model.graph.node[0].op_type
        if chosen.only and operator not in chosen.only:
            continue
        print(f"case {number - 1}: {operator}", file=sys.stderr, flush=True)  # the last one, if the process crashes
        calls, errors = attack(case, rng, chosen.each)
        found = {"models": found["models"] + (calls > 0), "calls": found["calls"] + calls,
                 "errors": found["errors"] + errors}  # fmt: skip
    print(", ".join(f"{number} {what}" for what, number in found.items()))


if __name__ == "__main__":
    main()
