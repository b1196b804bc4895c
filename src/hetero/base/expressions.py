"""Matching a user's regular expression against names from a model, in bounded time.

Python's ``re`` can backtrack catastrophically and cannot be interrupted. The worst case is estimated from the
expression's quantifiers and the lengths of the names. If the estimate is too high, a child process with a time limit
matches the expression.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Sequence

from ..errors import PropertyError, raise_out_of_memory

__all__ = ["matching"]

_MAX_STEPS = 300_000_000  # estimated steps for matching in this process: a few seconds in the worst case
_SECONDS = 10.0  # CPU time of the child process
_NESTED = re.compile(r"\)[*+{]")  # an escaped bracket also counts, which is only slower
_QUANTIFIERS = re.compile(r"[*+{]")
_BRANCHES = re.compile(r"[?|]")

_CHILD = """
import re, signal, sys
if hasattr(signal, "setitimer"):
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))
pattern, *names = sys.stdin.buffer.read().decode("utf-8", "surrogatepass").split("\\0")
match = re.compile(pattern).fullmatch
sys.stdout.write("".join("1" if match(name) else "0" for name in names))
"""


def matching(pattern: str, names: Sequence[str]) -> list[int]:
    """The positions of the names that the whole expression matches.

    Raises `re.error` for an invalid expression, and `PropertyError` for an expression that takes too long.
    """
    try:
        match = re.compile(pattern).fullmatch
    except (OverflowError, RecursionError) as error:  # too many repetitions, or nested groups, for Python
        raise PropertyError(f"the expression {pattern!r} cannot be used: {error}") from error
    if _is_quick(pattern, names) or not _can_start_python() or "\0" in pattern:
        return [i for i, name in enumerate(names) if match(name)]
    clean = [name.replace("\0", "\1") for name in names]
    import subprocess  # late: few programs need it

    try:
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD, str(_SECONDS)],
            input="\0".join((pattern, *clean)).encode("utf-8", "surrogatepass"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=10 * _SECONDS,
            check=True,
            start_new_session=True,  # so that Ctrl-C reaches only this process
        ).stdout
    except OSError as error:
        raise_out_of_memory(error)
        raise PropertyError(
            f"the expression {pattern!r} may take very long, and the process that matches it cannot be started: {error}"
        ) from error
    except subprocess.SubprocessError as error:
        code = getattr(error, "returncode", None)  # none if the time has passed, as it does on Windows
        if code is not None and (code >= 0 or code == -signal.SIGKILL):  # not because of the expression, which is valid
            raise MemoryError(f"the process that matches the expression {pattern!r} failed") from error
        raise PropertyError(
            f"the expression {pattern!r} takes more than {_SECONDS:g} s on the names of this model; remove nested "
            "repetitions, or use node keys"
        ) from error
    return [i for i, sign in enumerate(answer) if sign == ord("1")]


def _is_quick(pattern: str, names: Sequence[str]) -> bool:
    """Whether the worst case is fast enough: each repetition may try every position, each branch both alternatives."""
    if _NESTED.search(pattern):
        return False
    repetitions = len(_QUANTIFIERS.findall(pattern))
    branches = min(len(_BRANCHES.findall(pattern)), 60)
    steps = 0
    for length, count in Counter(map(len, names)).items():
        steps += count * (length + 1) ** min(repetitions, 20)
    return steps << branches <= _MAX_STEPS


def _can_start_python() -> bool:
    """Whether ``sys.executable`` is Python. In a frozen application it is not."""
    return not getattr(sys, "frozen", False) and os.path.basename(sys.executable or "").startswith("python")
