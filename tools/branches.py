"""Reads gcov's JSON, one document a line, and prints how many branches of each file were taken. See branches.sh."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict


def main() -> None:
    pattern = re.compile(sys.argv[1])
    taken: dict[str, dict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
    for document in sys.stdin:
        for file in json.loads(document)["files"]:
            name = file["file"][file["file"].find("src/") :]
            if not pattern.search(name):
                continue
            for line in file["lines"]:
                for number, branch in enumerate(line["branches"]):
                    # A file compiled several times, as the kernels are, counts once: any of them may take a branch.
                    taken[name][line["line_number"], number] += branch["count"]
    print(f"{'file':44} {'branches':>8} {'taken':>6} {'share':>7}")
    for name, branches in sorted(taken.items()):
        if branches:
            hit = sum(count > 0 for count in branches.values())
            print(f"{name:44} {len(branches):8} {hit:6} {100 * hit / len(branches):6.1f}%")
    total = sum(map(len, taken.values()))
    hit = sum(count > 0 for branches in taken.values() for count in branches.values())
    print(f"{'all':44} {total:8} {hit:6} {100 * hit / max(total, 1):6.1f}%")


if __name__ == "__main__":
    main()
