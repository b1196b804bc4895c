"""Runs a differential fuzzer for as long as one likes.

    python tests/fuzz/run.py graphs --minutes 30 --seed 7
    python tests/fuzz/run.py integers --minutes 30 --isa all    # an equal share for each instruction set
    python tests/fuzz/run.py graphs --seed 7 --case 123         # one case again
    python tests/fuzz/run.py operators --openvino               # also on HETERO:OPENVINO,CPU

Exits with 1 if answers differ without an explanation.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in (".", "helpers")]

import inference_server
from fuzz.differential import Case, Known, Tally, differences, reproduction, shrink

KINDS = (
    "graphs",
    "near_misses",
    "fast_paths",
    "integers",
    "sizes",
    "operators",
    "moves",
    "quantized",
    "loops",
    "captures",
    "pieces",
    "states",
)
"""Modules beside this one: each has ``case(rng) -> Case`` and may have ``KNOWN``, its explained differences."""


def case_of(kind: str, seed: int, number: int) -> Case:
    """Case ``number`` of a seed, the same on every machine."""
    made: Case = importlib.import_module(f"fuzz.{kind}").case(
        np.random.default_rng([zlib.crc32(kind.encode()), seed, number])
    )
    return made


def known_of(kind: str) -> tuple[Known, ...]:
    return tuple(getattr(importlib.import_module(f"fuzz.{kind}"), "KNOWN", ()))


def fuzz(
    kind: str,
    *,
    seconds: float = float("inf"),
    cases: int | None = None,
    seed: int = 0,
    begin: int = 0,
    stop_after: int = 1,
    judges: Sequence[str] = (),
) -> tuple[Tally, list[str]]:
    """Run cases of one kind until the time is over; what they saw, and a text for each unexplained difference.
    ``judges``: beside those of each case."""
    tally, told, known = Tally(), [], known_of(kind)
    number, end = begin, time.monotonic() + seconds
    while time.monotonic() < end and (cases is None or number < begin + cases):
        case = case_of(kind, seed, number)
        case = dataclasses.replace(case, judges=(*case.judges, *judges))
        found = differences(case, known, tally)
        if found:
            small = shrink(case, lambda candidate: bool(differences(candidate, known)))
            lines = [
                f"== {kind}, seed {seed}, case {number}: {case.note}",
                *found[:4],
                "-- shrunk",
                *differences(small, known)[:4],
            ]
            told.append("\n".join([*lines, reproduction(small)]))
            if len(told) >= stop_after:
                break
        number += 1
    return tally, told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--case", type=int, help="run only this one")
    parser.add_argument("--stop-after", type=int, default=20, help="end after so many differences")
    parser.add_argument("--isa", default="", help="an instruction set, or 'all'")
    parser.add_argument("--openvino", action="store_true", help="also compare with HETERO:OPENVINO,CPU")
    chosen = parser.parse_args()
    if chosen.isa:
        return _per_variant(chosen)
    inference_server.install()
    judges = ("OPENVINO",) if chosen.openvino else ()
    if chosen.case is not None:
        tally, told = fuzz(chosen.kind, cases=1, seed=chosen.seed, begin=chosen.case, judges=judges)
    else:
        seconds = 60 * chosen.minutes
        tally, told = fuzz(chosen.kind, seconds=seconds, seed=chosen.seed, stop_after=chosen.stop_after, judges=judges)
    with contextlib.suppress(BrokenPipeError):
        print(*told, f"{chosen.kind}, seed {chosen.seed}: {tally}; {len(told)} unexplained differences", sep="\n\n")
    return bool(told)


def _per_variant(chosen: argparse.Namespace) -> int:
    from hetero import _kernels

    names = _kernels.variants() if chosen.isa == "all" else (chosen.isa,)
    failed = 0
    for name in names:
        print(f"-- {name}", flush=True)
        command = [sys.executable, __file__, chosen.kind, "--minutes", str(chosen.minutes / len(names))]
        command += ["--seed", str(chosen.seed), "--stop-after", str(chosen.stop_after)]
        command += ["--openvino"] if chosen.openvino else []
        command += [] if chosen.case is None else ["--case", str(chosen.case)]
        failed |= subprocess.run(command, check=False, env={**os.environ, "HETERO_ISA": name}).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
