"""Mutation testing of C files: change one comparison, constant or index, and see whether the tests notice.

    python tools/mutate.py partition --sample 20 --seed 1       # also: reader, memory
    python tools/mutate.py memory --build 'ninja -C build'      # a command that builds and installs the change

Mutates the working copy, builds, runs the subject's tests, and restores the file, also when it is interrupted. Without
``--build`` the next import must build the change, as the editable installation of CONTRIBUTING.md does. A mutant that
does not compile, or that compiles to what it was, does not count. Exits with 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUBJECTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "partition": (("src/_core/partition/*.c",), ("tests/partition",)),
    "reader": (("src/_core/onnx/*.c",), ("tests/model", "tests/hostile")),
    "memory": (("src/_core/arena_layout.c",), ("tests/kernels/test_program.py", "tests/devices/cpu/test_memory.py")),
}
"""By subject: the files, and the tests that must notice."""
SWAPS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
         "&&": ("||",), "||": ("&&",), "+": ("-",), "-": ("+",)}  # fmt: skip
# Comments and strings first, so that nothing inside them matches.
TOKEN = re.compile(
    r"""(?P<skip>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|^[ \t]*\#(?:\\\n|[^\n])*"""
    r"""|->|\+\+|--|<<=?|>>=?|[-+*/%&|^]=)"""
    r"""|(?P<operator>(?<=\s)(?:<=|>=|==|!=|&&|\|\||<|>|\+|-)(?=\s))|(?P<number>\b\d+\b)|(?P<index>(?<=\w)\[(?=[^\]]))""",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Mutant:
    path: Path
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def describe(self, source: str) -> str:
        line = source.count("\n", 0, self.start) + 1
        begin = source.rfind("\n", 0, self.start) + 1
        changed = self.apply(source)[begin:].split("\n", 1)[0].strip()
        return f"{self.path.relative_to(ROOT)}:{line}: {changed}"


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    source = path.read_text()
    for match in TOKEN.finditer(source):
        if "HT_ASSERT" in source[source.rfind("\n", 0, match.start()) + 1 : match.start()]:
            continue  # only the checked build compiles it
        if match["operator"]:
            for text in SWAPS[match["operator"]]:
                yield Mutant(path, match.start(), match.end(), text)
        elif match["number"]:
            yield Mutant(path, match.start(), match.end(), str(int(match["number"]) + 1))
        elif match["index"]:
            yield Mutant(path, match.start(), match.end(), "[1 + ")


def judge(mutant: Mutant, build: str, tests: list[str], seconds: float) -> str:
    """``killed``, ``survived`` or ``does not compile``. A time-out kills too: the mutant runs forever."""
    source = mutant.path.read_text()
    try:
        mutant.path.write_text(mutant.apply(source))
        if build and subprocess.run(build, shell=True, check=False, cwd=ROOT, capture_output=True).returncode:
            return "does not compile"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *tests]
        try:
            done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return "killed"
        return "killed" if done.returncode else "survived"
    finally:
        mutant.path.write_text(source)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--sample", type=int, default=20, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--build", default="", help="a command that builds the change")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for the tests of one mutant")
    parser.add_argument("--tests", nargs="+", default=(), help="other tests than those of the subject")
    chosen = parser.parse_args()
    files, tests = SUBJECTS[chosen.subject]
    everything = [mutant for pattern in files for path in sorted(ROOT.glob(pattern)) for mutant in mutants(path)]
    sample = random.Random(chosen.seed).sample(everything, min(chosen.sample, len(everything)))
    counts = {"killed": 0, "survived": 0, "does not compile": 0}
    try:
        for mutant in sample:
            verdict = judge(mutant, chosen.build, list(chosen.tests or tests), chosen.timeout)
            counts[verdict] += 1
            print(f"{verdict:16} {mutant.describe(mutant.path.read_text())}", flush=True)
    finally:
        if chosen.build:
            subprocess.run(chosen.build, shell=True, check=False, cwd=ROOT, capture_output=True)
    judged = counts["killed"] + counts["survived"]
    print(f"{chosen.subject}, seed {chosen.seed}: {counts['killed']} of {judged} mutants killed; "
          f"{counts['does not compile']} did not compile; {len(everything)} mutants in all")  # fmt: skip
    return bool(counts["survived"])


if __name__ == "__main__":
    sys.exit(main())
