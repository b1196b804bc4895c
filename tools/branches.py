"""Prints how many branches tests took, by group and file. See branches.sh.

Reads gcov's JSON, one document a line, from standard input, and coverage.py's JSON from the file that it is given.

A comment with ``unreached:`` in a line, or in the line above it, says why branches of that line are never taken; they
do not count.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GROUPS: dict[str, tuple[str, float | None]] = {
    "reader": (r"src/_core/onnx/", 100),
    "partition": (r"src/_core/(partition/|heap\.h)", 95),
    "assign": (r"src/_core/assign/", 95),
    "schedule": (r"src/_core/schedule/", 95),
    "memory": (r"src/_core/(sizes|pages|arena_layout)\.[ch]", None),
    "kernels": (r"src/_core/kernels/", None),
    "files": (
        r"src/hetero/(artifact/|plan/(file|schema|loaded|record)\.py|compiling/splitting\.py|assign/costs/measured\.py)",
        100,
    ),
}
"""By group: its paths, and the share of branches, in percent, that its tests have to take. ``files`` are the readers of
exported models, plans, manifests and costs."""
UNREACHED = "unreached:"
ALWAYS_FALSE = re.compile(r"^[^\n]*\|\|\s*(?:ht_fail\w*|NO_MEMORY)\(")
"""The start of an operand that records an error and is false, in a line or at the begin of the next."""
VARIANT = re.compile(r"_(baseline|avx2|avx512|avx_vnni|avx512_vnni|avx512_amx)(?=_|$)|\..*")
"""What differs in the names of a function that is compiled for several instruction sets."""


@dataclass
class File:
    """``branches``: by line, function and number in them, how often it was taken. ``functions``: how often each ran."""

    branches: dict[tuple[int, str, Any], int] = field(default_factory=lambda: defaultdict(int))
    functions: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def without(self, unreached: set[int]) -> dict[tuple[int, str, Any], int]:
        return {key: count for key, count in self.branches.items() if count or key[0] not in unreached}


def read_gcov(documents: Iterable[str], files: dict[str, File]) -> None:
    for document in documents:
        for source in json.loads(document)["files"]:
            name = source["file"][source["file"].find("src/") :]
            if not name.startswith("src/_core/") or not (ROOT / name).exists():  # Cython's
                continue
            # A file compiled several times, as the kernels are, counts once: any of them may take a branch.
            for function in source["functions"]:
                files[name].functions[VARIANT.sub("", function["name"])] += function["execution_count"]
            text = text_of(name)
            for line in source["lines"]:
                of = VARIANT.sub("", line.get("function_name", ""))
                branches = line["branches"]
                if branches and ALWAYS_FALSE.search("\n".join(text[line["line_number"] - 1 :][:2])):
                    branches = branches[:-2]  # of its last operand, which is never true
                for number, branch in enumerate(branches):
                    files[name].branches[line["line_number"], of, number] += branch["count"]


def read_coverage(path: Path, files: dict[str, File]) -> None:
    for name, source in json.loads(path.read_text())["files"].items():
        file = files["src/" + name[name.rfind("hetero/") :]]
        for kind, count in (("executed_branches", 1), ("missing_branches", 0)):
            for line, target in source[kind]:
                file.branches[line, "", target] += count
        for line in source["missing_lines"]:
            file.branches[line, "line", 0] += 0


@functools.cache
def text_of(name: str) -> list[str]:
    return (ROOT / name).read_text().split("\n")


def unreached(name: str) -> set[int]:
    """Lines whose branches are never taken, for a reason that a comment gives."""
    return {at + more for at, line in enumerate(text_of(name), 1) if UNREACHED in line for more in (0, 1)}


def print_group(group: str, files: dict[str, File], missing: bool) -> bool:
    """Whether the group reaches its aim."""
    pattern, aim = GROUPS[group]
    total = taken = marked = 0
    for name in sorted(name for name in files if re.match(pattern, name)):
        counted = files[name].without(unreached(name))
        left = len(files[name].branches) - len(counted)
        hit = sum(count > 0 for count in counted.values())
        total, taken, marked = total + len(counted), taken + hit, marked + left
        if counted:
            print(f"  {name:50} {len(counted):8} {hit:6} {left:6} {100 * hit / len(counted):6.1f}%")
        if missing:
            text = text_of(name)
            lines = sorted({line for (line, _, _), count in counted.items() if not count})
            print(*(f"      {line:5} {text[line - 1].strip()}" for line in lines), sep="\n", end="\n" * bool(lines))
            if group == "kernels":
                never = sorted(f for f, count in files[name].functions.items() if not count)
                print(*(f"      never called: {function}" for function in never), sep="\n", end="\n" * bool(never))
    share = 100 * taken / max(total, 1)
    print(f"{group:52} {total:8} {taken:6} {marked:6} {share:6.1f}%" + (f"  (aim {aim} %)" if aim else ""))
    if group == "kernels":
        functions = [count for name in files if re.match(pattern, name) for count in files[name].functions.values()]
        print(f"  {sum(map(bool, functions))} of {len(functions)} functions of kernels were called")
    return total == 0 or aim is None or share >= aim


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", type=Path, help="JSON of coverage.py")
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=GROUPS)
    parser.add_argument("--missing", action="store_true", help="print the lines with branches that were not taken")
    chosen = parser.parse_args()
    files: dict[str, File] = defaultdict(File)
    read_gcov(sys.stdin, files)
    if chosen.coverage:
        read_coverage(chosen.coverage, files)
    print(f"  {'file':50} {'branches':>8} {'taken':>6} {'marked':>6} {'share':>7}")
    return sum(not print_group(group, files, chosen.missing) for group in chosen.groups)


if __name__ == "__main__":
    sys.exit(main())
