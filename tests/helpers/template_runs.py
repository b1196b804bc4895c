"""Running models on TEMPLATE and comparing what comes out, for several test files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from hetero.devices.template import create_plugin
from hetero.model.read import read_model

__all__ = ["difference", "node_tests", "run_on_template", "telling", "value_of"]

_plugin = create_plugin()


def node_tests() -> list[Any]:
    """The node tests of ``onnx.backend.test``: name, model, data sets, tolerances."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose while it makes its data
        from onnx.backend.test.loader import load_model_tests

        return list(load_model_tests(kind="node"))


def telling(cases: Iterable[Any], *, by_type: bool = True) -> list[Any]:
    """The node tests that are the first with a number of operands, an attribute or, unless ``by_type`` is false, with
    these element types of an operator."""
    found, seen = [], set[tuple[Any, ...]]()
    for case in cases:
        types = tuple(port.type.tensor_type.elem_type for port in case.model.graph.input)
        shown: set[tuple[Any, ...]] = set()
        for node in case.model.graph.node:
            shown |= {(node.op_type, len(node.input), len(node.output))}
            shown |= {(node.op_type, "types", *types)} if by_type else set()
            shown |= {(node.op_type, attribute.name) for attribute in node.attribute}
        if shown - seen:
            seen |= shown
            found.append(case)
    return found


def run_on_template(model: onnx.ModelProto, inputs: Sequence[Any]) -> Sequence[Any]:
    """Results by position. Goes past the request, which takes tensors only: sequences are lists here."""
    read = read_model(model)
    support = _plugin.query_model(read, {})
    assert support.mask.all(), f"TEMPLATE refuses: {dict(support.reasons)}"
    return _plugin.compile_model(read, {}).create_runner().run(inputs)


def value_of(item: Any) -> Any:
    """A value of the backend suite: tensors as arrays, sequences as lists of arrays, empty optionals as None."""
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if item is None or isinstance(item, list):
        return item
    return np.asarray(item)


def difference(found: Any, wanted: Any, rtol: float, atol: float) -> str | None:
    """What is different, in words; None if equal within the tolerance. Types and shapes must agree exactly."""
    wanted = value_of(wanted)
    if wanted is None or found is None:
        return None if wanted is found else f"found {found!r}, expected {wanted!r}"
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"found {type(found).__name__}, expected a list of {len(wanted)}"
        pairs = zip(found, wanted, strict=True)
        return next((text for f, w in pairs if (text := difference(f, w, rtol, atol))), None)
    if not isinstance(found, np.ndarray):
        return f"found {type(found).__name__}, expected an array"
    if wanted.dtype.kind in "US":
        wanted = wanted.astype(object)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"found {found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "biuO":
        return None if np.array_equal(found, wanted) else "other elements"
    if wanted.dtype.kind not in "fc":  # the small types of ml_dtypes
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    if np.allclose(found, wanted, rtol, atol, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        return f"elements differ by {np.nanmax(np.abs(found - wanted))}"
