"""Hostile files, each with the stage that must refuse it and what the message must say.

``case(name, stage, pattern, make)``: `stage` is "read", "look" (a view of the model: constants, attributes, types),
"write", "compile" or "run" where the first `HeteroError` must come; "fine" where the file is unusual but right, and
must pass all stages; "any" where some stage must refuse it; "bounded" where either will do, within the limits. `make`
gives the bytes or a ModelProto, and gets the folder in which files beside the model may be put. `until`: the last
stage to try, where the next ones would compute what the model asks for. `large`: more than 64 KiB, and slow to make.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import onnx

Made = bytes | onnx.ModelProto


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    stage: str
    pattern: str
    make: Callable[[Path], Made]
    until: str = "run"
    large: bool = False


CASES: dict[str, Case] = {}


def case(
    name: str, stage: str, pattern: str, make: Made | Callable[[Path], Made], *, until: str = "run", large: bool = False
) -> None:
    assert name not in CASES, name
    CASES[name] = Case(name, stage, pattern, make if callable(make) else lambda _: make, until, large)
