"""Builds the fuzz target of the C reader and runs it.

    python tests/fuzz/fuzzing.py --minutes 60 --corpus fuzz-corpus

for a long run that starts where the last one stopped. Uses libFuzzer if clang is there and has it, else the driver
beside this file with gcc. Inputs that break something are left in the corpus folder's ``broken/``.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CORE = HERE.parents[1] / "src" / "_core" / "onnx"
LONGEST = 1 << 16  # of an input; driver.c

SANITIZERS = [
    *("-std=gnu11", "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
    *("-fno-sanitize-recover=all", "-Wall", "-Wextra", f"-I{CORE}"),
]
WRAPPED = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc")]


def compiler() -> str | None:
    """A C compiler for the driver, None if there is none."""
    return next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "gcc", "cc", "clang"))), None)


def build(folder: Path, built: Path | None = None, changed: str = "") -> Path:
    """The target with the driver. `RuntimeError` with the compiler's words if it cannot be built. If ``changed`` is a
    C file, all other objects are those of an earlier target ``built``."""
    cc = compiler()
    assert cc is not None
    version = subprocess.run([cc, "--version"], capture_output=True, text=True, check=True).stdout
    is_clang = "clang" in version
    flags = SANITIZERS if is_clang else [*SANITIZERS, "-fno-sanitize=object-size"]
    traced = "-fsanitize-coverage=edge,trace-pc,trace-cmp" if is_clang else "-fsanitize-coverage=trace-pc,trace-cmp"
    objects, commands = [], []
    for source in [*sorted(CORE.glob("*.c")), HERE / "read_model.c", HERE / "driver.c"]:
        if built is not None and changed.endswith(".c") and source.name != changed:
            objects.append(str(built.parent / f"{source.stem}.o"))
            continue
        objects.append(str(folder / f"{source.stem}.o"))
        extra = [traced] if source.parent == CORE else []
        commands.append([cc, *flags, *extra, "-c", str(source), "-o", objects[-1]])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compile, commands))
    target = folder / "fuzz"
    _compile([cc, *flags, *WRAPPED, *objects, "-o", str(target)])
    return target


def build_libfuzzer(folder: Path) -> Path | None:
    """The target with libFuzzer; None where clang lacks it."""
    names = ["clang", *(f"clang-{version}" for version in range(25, 12, -1))]
    clang = next(filter(None, map(shutil.which, names)), None)
    if clang is None:
        return None
    target = folder / "libfuzz"
    sources = [str(path) for path in sorted(CORE.glob("*.c"))]
    flags = [flag.replace("address", "fuzzer,address") for flag in SANITIZERS]
    try:
        _compile([clang, *flags, *WRAPPED, *sources, str(HERE / "read_model.c"), "-o", str(target)])
    except RuntimeError:
        return None
    return target


def _environment() -> dict[str, str]:
    """Without what the checked build preloads: the target brings sanitizers of its own."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def write_seeds(folder: Path) -> int:
    """Small models of the onnx wheel, and the hostile files of the tests. How many."""
    package = importlib.util.find_spec("onnx")
    assert package is not None
    assert package.origin is not None
    seeds = [path.read_bytes() for path in Path(package.origin).parent.rglob("*.onnx") if path.stat().st_size < LONGEST]
    sys.path.insert(0, str(HERE.parent))
    import hostile.graph_cases
    import hostile.operator_cases
    import hostile.tensor_cases
    import hostile.value_cases
    import hostile.wire_cases  # noqa: F401
    from hostile.case import CASES

    with tempfile.TemporaryDirectory() as scratch:
        for number, case in enumerate(case for case in CASES.values() if not case.large):
            beside = Path(scratch) / str(number) / "model"
            beside.mkdir(parents=True)
            made = case.make(beside)
            seeds.append(made if isinstance(made, bytes) else made.SerializeToString())
    seeds = [seed for seed in seeds if 0 < len(seed) < LONGEST]
    for seed in seeds:
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    return len(seeds)


class Broken(AssertionError):
    """What broke, and the input that did it."""

    def __init__(self, message: str, data: bytes) -> None:
        super().__init__(message)
        self.data = data


def run(
    target: Path, seconds: float, corpus: Path, found: Path | None = None, *, seed: int = 0, leaks: bool = True
) -> dict[str, Any]:
    """Fuzzes for so long; what the driver says about it. `Broken` at the first input that breaks something."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        command = [str(target), str(seconds), str(seed), str(state), str(corpus), *([str(found)] if found else [])]
        environment = {**_environment(), "ASAN_OPTIONS": f"detect_leaks={int(leaks)}"}
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=seconds + 300, env=environment
        )
        if "LeakSanitizer has encountered a fatal error" in done.stderr:  # it may not trace processes, as in containers
            return run(target, seconds, corpus, found, seed=seed, leaks=False)
        if done.returncode:
            held = state.read_bytes()
            data = held[4 : 4 + int.from_bytes(held[:4], "little")]
            raise Broken(f"exit status {done.returncode} on {data!r}\n{done.stderr[-6000:]}", data)
        told: dict[str, Any] = json.loads(done.stdout)
        return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"))
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--engine", choices=["auto", "libfuzzer", "driver"], default="auto")
    arguments = parser.parse_args()
    corpus, broken = arguments.corpus, arguments.corpus / "broken"
    broken.mkdir(parents=True, exist_ok=True)
    if not any(path.is_file() for path in corpus.iterdir()):
        print(write_seeds(corpus), "seeds")
    with tempfile.TemporaryDirectory() as scratch:
        target = None if arguments.engine == "driver" else build_libfuzzer(Path(scratch))
        if target is not None:
            seconds = int(arguments.minutes * 60)
            options = [
                f"-max_total_time={seconds}",
                f"-max_len={LONGEST}",
                f"-seed={arguments.seed}",
                "-detect_leaks=0",
            ]
            done = subprocess.run([target, *options, f"-artifact_prefix={broken}/", corpus], check=False)
            sys.exit(done.returncode)
        if arguments.engine == "libfuzzer":
            sys.exit("there is no clang with libFuzzer here")
        target = build(Path(scratch))
        try:
            print(run(target, arguments.minutes * 60, corpus, corpus, seed=arguments.seed))
        except Broken as error:
            name = broken / hashlib.sha256(error.data).hexdigest()[:16]
            name.write_bytes(error.data)
            sys.exit(f"{name}: {error}")


if __name__ == "__main__":
    main()
