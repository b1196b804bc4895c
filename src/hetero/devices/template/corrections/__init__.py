"""Implementations that replace or extend those of ``onnx.reference``.

Each entry of `CORRECTIONS` names a domain, an operator, its first and last operator set version (None: no last one) and
a class. A comment in the class states what is wrong upstream and how that was found; most errors were found by
comparing with onnxruntime, see tests/devices/template/test_against_onnxruntime.py. The first matching entry wins. A
class is an ``OpRun`` of onnx.reference: ``_run`` takes the inputs by position and the attributes by name, and returns a
tuple. A static method ``refusal`` takes the attributes and returns why a node is not supported, or None.
"""

from __future__ import annotations

from onnx.reference.op_run import OpRun

from . import (
    attention,
    convolution,
    elementwise,
    indexing,
    machine_learning,
    missing,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    resizing,
    sequences,
    shapes,
    text,
)
from .table import Corrections

__all__ = ["CORRECTIONS", "correction"]

CORRECTIONS: Corrections = (
    *attention.CORRECTIONS,
    *convolution.CORRECTIONS,
    *elementwise.CORRECTIONS,
    *indexing.CORRECTIONS,
    *machine_learning.CORRECTIONS,
    *missing.CORRECTIONS,
    *normalization.CORRECTIONS,
    *pooling.CORRECTIONS,
    *quantization.CORRECTIONS,
    *random.CORRECTIONS,
    *recurrent.CORRECTIONS,
    *resizing.CORRECTIONS,
    *sequences.CORRECTIONS,
    *shapes.CORRECTIONS,
    *text.CORRECTIONS,
)

_BY_OPERATOR: dict[tuple[str, str], list[tuple[int, int | None, type[OpRun]]]] = {}
for _domain, _op_type, _first, _last, _class in CORRECTIONS:
    _BY_OPERATOR.setdefault((_domain, _op_type), []).append((_first, _last, _class))


def correction(domain: str, op_type: str, version: int) -> type[OpRun] | None:
    """The class that replaces that of ``onnx.reference`` for this version of an operator, or None."""
    for first, last, run_class in _BY_OPERATOR.get((domain, op_type), ()):
        if first <= version and (last is None or version <= last):
            return run_class
    return None
