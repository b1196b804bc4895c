"""Mutation testing of C and Cython files: change one comparison, constant or index, and see whether the tests notice.

    python tools/mutate.py partition --sample 60 --seed 1       # also: the others of SUBJECTS
    python tools/mutate.py partition --file bound.c             # mutants of one file
    python tools/mutate.py memory --only 'arena_layout.c:89:'   # those whose description contains this
    python tools/mutate.py reader --sample 400 --log reader.log # appends verdicts; started again, it continues

Mutates the working copy, builds it in build/, as the editable installation of CONTRIBUTING.md does, runs the tests
named after the file, then those of the subject, the quick ones first, until one fails, and restores the file, also when
it is interrupted. A mutant that does not compile, or that compiles to the same modules, is equivalent or no program and
does not count: others take its place. A comment with ``mutant:`` in the line, or in the line above it, says why mutants
of that line are equivalent; they are left out. A log holds for one state of the source and of the tests. Prints the
survivors at the end, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ["cmake", "--build", "build", "--target", "install"]
SUBJECTS: dict[str, tuple[list[str], list[str]]] = {
    "partition": (
        ["src/_core/partition/*.c"],
        ["tests/partition/test_quality.py::test_figures_change_only_with_the_algorithm",
         "tests/partition/test_quality.py::test_subgraph_numbers_change_only_with_the_algorithm",
         "tests/partition/test_partition.py", "tests/partition/test_auto.py", "tests/partition/test_check.py",
         "tests/partition/test_closure.py", "tests/partition/test_lower_bound.py",
         "tests/partition/test_metamorphic.py", "tests/partition"],
    ),
    "reader": (
        ["src/_core/onnx/*.c"],
        ["tests/model/test_read.py", "tests/model/test_every_branch.py", "tests/model/test_malformed.py",
         "tests/model/test_types.py", "tests/model/test_external.py", "tests/model/test_skeleton.py",
         "tests/model/test_random_parts.py", "tests/model"],
    ),
    "memory": (
        ["src/_core/arena_layout.c", "src/_core/sizes.c", "src/_core/pages.c"],
        ["tests/kernels/test_program.py", "tests/kernels/test_sizes.py", "tests/devices/cpu/test_pages.py",
         "tests/devices/cpu/test_memory.py", "tests/devices/cpu/test_runner.py"],
    ),
    "tiles": (  # only noticed by a processor with AMX
        ["src/_core/kernels/tiled_product.c", "src/_core/kernels/integer_tiles.h", "src/_core/kernels/conv_wide.c"],
        ["tests/kernels/test_tiled_product.py", "tests/kernels/test_integer_gemm.py",
         "tests/kernels/test_conv_integer.py"],
    ),
    "assign": (
        ["src/_core/assign/*.c"],
        ["tests/assign/cuts", "tests/assign/memory", "tests/assign/test_by_cost.py",
         "tests/assign/test_within_memory.py", "tests/assign/test_by_cost_within_memory.py"],
    ),
    "schedule": (
        ["src/_core/schedule/*.c"],
        ["tests/assign/schedule", "tests/assign/test_by_makespan.py"],
    ),
    "convolutions": (
        ["src/_core/kernels/conv.c", *(f"src/_core/kernels/conv_{name}.c" for name in
         ("direct", "depthwise", "square", "narrow", "rows", "grouped", "inside"))],
        ["tests/kernels/test_conv.py", "tests/kernels/test_conv_grouped.py", "tests/kernels/test_conv_inside.py",
         "tests/devices/cpu/operators/test_convolution.py", "tests/kernels/test_team.py"],
    ),
    "winograd": (
        ["src/_core/kernels/conv_winograd.c", "src/_core/kernels/questions.c"],
        ["tests/kernels/test_questions.py", "tests/kernels/test_conv_winograd.py", "tests/kernels/test_phases.py",
         "tests/kernels/test_sizes.py", "tests/kernels/test_conv_integer.py",
         "tests/devices/cpu/operators/test_fourier.py", "tests/devices/cpu/operators/test_convolution.py",
         "tests/kernels/test_team.py"],
    ),
    "steps": (
        ["src/_core/kernels/steps.c"],
        ["tests/runtime/test_bound_steps.py", "tests/runtime/test_parallel.py"],
    ),
    "programs": (
        ["src/_core/_program.pyx", "src/_core/_workspace.pyx"],
        ["tests/kernels/test_program.py", "tests/runtime/test_bound_steps.py", "tests/devices/cpu/test_runner.py",
         "tests/devices/cpu/test_memory.py", "tests/runtime/test_parallel.py"],
    ),
    "moves": (
        ["src/_core/kernels/gather.c", "src/_core/kernels/rotary.c"],
        ["tests/kernels/test_gather.py", "tests/kernels/test_rotary.py", "tests/devices/cpu/operators/test_rotary.py",
         "tests/kernels/test_team.py"],
    ),
    "integer_convolutions": (
        ["src/_core/kernels/conv_integer.c", "src/_core/kernels/conv_wide.c"],
        ["tests/kernels/test_conv_integer.py", "tests/kernels/test_team.py"],
    ),
    "pools": (
        ["src/_core/kernels/pool*.c"],
        ["tests/kernels/test_pool.py", "tests/devices/cpu/operators/test_spatial.py",
         "tests/kernels/test_team.py"],
    ),
    "reductions": (
        [f"src/_core/kernels/{name}.c" for name in
         ("reduce", "arg_extreme", "cumsum", "softmax", "norm", "group_norm", "best_keys")],
        [*(f"tests/kernels/test_{name}.py" for name in ("arg_extreme", "cumsum", "softmax", "reduce", "norm", "team")),
         "tests/devices/cpu/operators/test_selection.py", "tests/devices/cpu/operators/test_halves.py"],
    ),
    "quantized": (
        [f"src/_core/kernels/{name}.c" for name in ("quantize", "quantized_binary", "lookup", "depthwise_integer")],
        ["tests/kernels/test_quantize.py", "tests/kernels/test_quantized_binary.py", "tests/kernels/test_lookup.py",
         "tests/kernels/test_conv_integer.py", "tests/kernels/test_team.py"],
    ),
    "states": (
        ["src/_core/kernels/append.c", "src/_core/kernels/copy_strided.c"],
        ["tests/kernels/test_append.py", "tests/kernels/test_copy_strided.py", "tests/devices/cpu/test_appended.py",
         "tests/kernels/test_team.py"],
    ),
}  # fmt: skip
"""By subject: the files, and the tests that must notice, in their order."""
MEMORY = 8 << 30
"""Bytes of address space of a process that tests a mutant, which may allocate without end."""
TEST_SECONDS = 60
"""A mutant that loops forever in a test costs no more. The slowest test takes 3 s of CPU time."""
PROFILE = """
import hypothesis
phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutants", database=None, phases=phases, deadline=None)
"""
"""A plugin for pytest: a failing example need not be shrunk or kept."""
SWAPS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
         "&&": ("||",), "||": ("&&",), "and": ("or",), "or": ("and",), "+": ("-",), "-": ("+",)}  # fmt: skip
UNSEEN = re.compile(
    r"^\s*(?:static |const |u?int\d+_t |char |float |double |vf )+\*?\w+(?:\[\w+\])*(?:, \*?\w+(?:\[\w+\])*)*$"
    r"|\b(?:HG_NEW|HG_TAKE\w*|malloc|calloc|hg_arena_open|HG_ALLOCATE\w*)\([^;]*$"
    r"|\bhg_interrupted\w*\([^;{]*$"
)
"""What comes before a number or an index whose increase no test should notice: the length of a declared array, the size
of an allocation, and the estimate of the work since signals were last looked for."""
HINT = re.compile(r"\b(?:__builtin_prefetch|HG_PREFETCH|HT_ASSERT)\([^;]*$|^\s*(?:int64_t )?work \+?= [^;]*$")
"""What comes before any part of a hint to the processor, of an assertion, which this build leaves out, and of the
estimate of the work since signals were last looked for."""
# Comments and strings first, so that nothing inside them matches.
TOKEN = re.compile(
    r"""(?P<skip>\"{3}.*?\"{3}|/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
    r"""|^[ \t]*\#(?:\\\n|[^\n])*|\#\ [^\n]*|->|\+\+|--|<<=?|>>=?|[-+*/%&|^]=|::1)"""
    r"""|(?P<operator>(?<=\s)(?:<=|>=|==|!=|&&|\|\||and|or|<|>|\+|-)(?=\s))"""
    r"""|(?P<number>\b\d+\b)|(?P<index>(?<=\w)\[(?=[^\]:]))""",
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
        above = source.rfind("\n", 0, max(0, source.rfind("\n", 0, match.start())))
        if "mutant:" in source[above + 1 : source.find("\n", match.end())]:
            continue
        before = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
        if HINT.search(before):
            continue
        if UNSEEN.search(before) and not (match["operator"] and "hg_interrupted" not in before):
            continue
        if match["operator"]:
            for text in SWAPS[match["operator"]]:
                yield Mutant(path, match.start(), match.end(), text)
        elif match["number"]:
            yield Mutant(path, match.start(), match.end(), str(int(match["number"]) + 1))
        elif match["index"]:
            yield Mutant(path, match.start(), match.end(), "[1 + ")


def modules() -> str:
    """A digest of the built modules."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted((ROOT / "build").glob("*.so")))).hexdigest()


def built() -> bool:
    return subprocess.run(BUILD, check=False, cwd=ROOT, capture_output=True).returncode == 0


def passes(tests: list[str], seconds: float) -> bool:
    """Whether the tests pass. A time-out fails: the mutant runs forever."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "no_shrinking.py").write_text(PROFILE)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))  # for the child
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no_shrinking", "-m", "not slow"]
        options += ["--hypothesis-profile", "mutants", "-o", f"faulthandler_timeout={TEST_SECONDS}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder, "MALLOC_PERTURB_": "165"},  # memory that is not initialized
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what a test started
            process.wait()


def judge(mutant: Mutant, original: str, tests: list[str], seconds: float) -> str:
    """``killed``, ``survived``, ``same code`` or ``does not compile``."""
    source = mutant.path.read_text()
    try:
        mutant.path.write_text(mutant.apply(source))
        if not built():
            return "does not compile"
        if modules() == original:
            return "same code"
        folders = dict.fromkeys(re.sub(r"/[^/]*\.py.*", "", test) for test in tests)
        own = [f"{folder}/test_{mutant.path.stem}.py" for folder in folders]
        own = [test for test in own if (ROOT / test).exists()]
        return "survived" if passes([*own, *tests], seconds) else "killed"
    finally:
        mutant.path.write_text(source)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--sample", type=int, default=60, help="how many mutants to judge")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", nargs="+", default=[], help="the names of the only files to mutate")
    parser.add_argument("--only", default="", help="text in the description of the mutants, such as 'bound.c:20:'")
    parser.add_argument("--tests", nargs="+", default=[], help="other tests than those of the subject")
    parser.add_argument("--log", type=Path, help="a file of verdicts: those in it are not judged again")
    chosen = parser.parse_args()
    patterns, tests = SUBJECTS[chosen.subject]
    tests = chosen.tests or tests
    files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    files = [path for path in files if not chosen.file or path.name in chosen.file]
    everything = [mutant for path in files for mutant in mutants(path)]
    everything = [m for m in everything if chosen.only in m.describe(m.path.read_text())]
    random.Random(chosen.seed).shuffle(everything)
    begun = time.monotonic()
    if not built() or not passes(tests, 3600):
        sys.exit("The tests must pass without a mutant.")
    seconds = 30 + 3 * (time.monotonic() - begun)
    original = modules()
    verdicts = read_log(chosen.log)
    found: dict[str, list[str]] = {"killed": [], "survived": [], "same code": [], "does not compile": []}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        for mutant in everything:
            if len(found["killed"]) + len(found["survived"]) == chosen.sample:
                break
            description = mutant.describe(mutant.path.read_text())
            verdict = verdicts.get(description) or judge(mutant, original, tests, seconds)
            found[verdict].append(description)
            line = f"{verdict:16} {description}"
            print(line, flush=True)
            if chosen.log and description not in verdicts:
                with chosen.log.open("a") as log:
                    log.write(f"{line}\n")
    finally:
        built()
    counts = {verdict: len(descriptions) for verdict, descriptions in found.items()}
    judged = counts["killed"] + counts["survived"]
    print(f"{chosen.subject}, seed {chosen.seed}: {counts['killed']} of {judged} mutants killed; {counts['same code']} "
          f"compiled to the same code, {counts['does not compile']} not at all; {len(everything)} in all")  # fmt: skip
    print(*(f"survived: {description}\n" for description in found["survived"]), sep="", end="")
    return bool(found["survived"])


def read_log(path: Path | None) -> dict[str, str]:
    """By the description of a mutant, what an earlier run found."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    return {line[17:]: line[:16].rstrip() for line in lines}


if __name__ == "__main__":
    sys.exit(main())
