"""Writes files on a disk that is full: the system refuses files beyond a size. Prints what went wrong as JSON.

python tests/faults/disk.py export
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import warnings
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "helpers")]

from faults.operations import ON_FILES
from faults.program import allowed, strange_files

SIZES = (0, 1, 100, 1000, 1024, 4000)


def attempts(name: str) -> dict[str, object]:
    operation, problems, failures = ON_FILES[name], [], 0
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as scratch:

        def run(number: int) -> tuple[Path, object]:
            folder = Path(scratch) / str(number)
            folder.mkdir()
            result = operation(folder)
            return folder, result() if callable(result) else result

        _, expected = run(0)
        for number, size in enumerate(SIZES, 1):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))
            raised: BaseException | None = None
            try:
                _, found = run(number)
            except BaseException as error:
                raised, found = error, None
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            if raised is None:
                if found != expected:
                    problems.append(f"files of up to {size} bytes: returned something else")
            else:
                failures += 1
                if not allowed(name, raised):
                    problems.append(f"files of up to {size} bytes: {type(raised).__name__}: {raised}")
            left = strange_files(name, Path(scratch) / str(number), expected if raised else found)
            problems += [f"files of up to {size} bytes: left {file}" for file in left if raised or name == "cache"]
            _, again = run(100 + number)
            if again != expected:
                problems.append(f"files of up to {size} bytes: the next run returned something else")
    return {"failures": failures, "problems": problems}


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(json.dumps(attempts(sys.argv[1])))


if __name__ == "__main__":
    main()
