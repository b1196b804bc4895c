"""Implementations that replace or add to those of ``onnx.reference``.

Each entry of `CORRECTIONS` names a domain, an operator, the first and the last operator set version it holds for
(None: no last one) and a class. The class says in its comment what is wrong upstream and how that was found; most were
found by comparing with onnxruntime, see tests/devices/template/test_against_onnxruntime.py. The first entry that fits
wins. A class is an ``OpRun`` as onnx.reference has them: ``_run`` takes the inputs by position and the attributes by
name, and returns a tuple.
"""

from __future__ import annotations

from onnx.reference.op_run import OpRun

from . import (
    convolution,
    elementwise,
    indexing,
    machine_learning,
    missing,
    normalization,
    pooling,
    quantization,
    recurrent,
    resizing,
    sequences,
    shapes,
)
from .table import Corrections

__all__ = ["CORRECTIONS", "correction"]

CORRECTIONS: Corrections = (
    *convolution.CORRECTIONS,
    *elementwise.CORRECTIONS,
    *indexing.CORRECTIONS,
    *machine_learning.CORRECTIONS,
    *missing.CORRECTIONS,
    *normalization.CORRECTIONS,
    *pooling.CORRECTIONS,
    *quantization.CORRECTIONS,
    *recurrent.CORRECTIONS,
    *resizing.CORRECTIONS,
    *sequences.CORRECTIONS,
    *shapes.CORRECTIONS,
)

_BY_OPERATOR: dict[tuple[str, str], list[tuple[int, int | None, type[OpRun]]]] = {}
for _domain, _op_type, _first, _last, _class in CORRECTIONS:
    _BY_OPERATOR.setdefault((_domain, _op_type), []).append((_first, _last, _class))


def correction(domain: str, op_type: str, version: int) -> type[OpRun] | None:
    """The class that replaces the one of ``onnx.reference`` for an operator of this version, or None."""
    for first, last, run_class in _BY_OPERATOR.get((domain, op_type), ()):
        if first <= version and (last is None or version <= last):
            return run_class
    return None
