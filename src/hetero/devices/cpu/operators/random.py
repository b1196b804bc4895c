"""Random operators, which run in Python. `devices.random_numbers` defines them for all devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....model.types import dtype_of
from ... import random_numbers
from ..registry import ANY, FLOATS, NUMBERS, ContradictionError, Node, contradicting, hosted, stated_by

if TYPE_CHECKING:
    from ....model.model import Model
    from ..registry import ExaminedNode

Run = Callable[..., Sequence[Any]]
_HALVES = ("float16", "bfloat16")
_ANY_FLOATS = (*FLOATS, *_HALVES)


def _dtype(node: Node, default: int, allowed: Collection[str]) -> np.dtype[Any]:
    number = node.get("dtype", default)
    dtype = dtype_of(number)
    if dtype is None:
        raise ContradictionError(f"attribute dtype is {number}, which is not an element type")
    if dtype.name not in allowed:
        raise ContradictionError(f"attribute dtype is {dtype}; expected {', '.join(allowed)}")
    return dtype


def _dtype_or_like(node: Node, allowed: Collection[str]) -> np.dtype[Any] | None:
    """The attribute dtype. None if it is absent: the type of the input."""
    return _dtype(node, 0, allowed) if node.get("dtype", 0) else None


_NORMAL = {"dtype": None, "mean": None, "scale": None, "seed": None}
_UNIFORM = {"dtype": None, "low": None, "high": None, "seed": None}


def _numbers(node: Node, shape: Sequence[int], dtype: np.dtype[Any]) -> Sequence[Any]:
    seed = node.get("seed", None)
    if "Normal" in node.op_type:
        return [random_numbers.normal(shape, dtype, node.get("mean", 0.0), node.get("scale", 1.0), seed)]
    return [random_numbers.uniform(shape, dtype, node.get("low", 0.0), node.get("high", 1.0), seed)]


@hosted("RandomNormal", attributes=_NORMAL | {"shape": None}, result=stated_by("dtype", 1))
@hosted("RandomUniform", attributes=_UNIFORM | {"shape": None}, result=stated_by("dtype", 1))
def _of_shape(node: Node) -> Run:
    dtype = _dtype(node, 1, _ANY_FLOATS)
    if "shape" not in node.attributes:
        raise ContradictionError("attribute shape is missing")
    shape = node.attributes["shape"]
    if min(shape, default=0) < 0:
        raise ContradictionError(f"attribute shape is {list(shape)}; expected sizes from 0")
    return lambda: _numbers(node, shape, dtype)


@contradicting
def _like_refusal(model: Model, view: ExaminedNode) -> str | None:
    dtype = view.type_of_input(0)
    if view.attributes.get("dtype") or dtype is None or dtype in _ANY_FLOATS:
        return None
    return f"attribute dtype is missing, and the input is {dtype}; expected {', '.join(_ANY_FLOATS)}"


@hosted("RandomNormalLike", dtypes=ANY, attributes=_NORMAL, check=_like_refusal, result=stated_by("dtype", 0))
@hosted("RandomUniformLike", dtypes=ANY, attributes=_UNIFORM, check=_like_refusal, result=stated_by("dtype", 0))
def _like(node: Node) -> Run:
    dtype = _dtype_or_like(node, _ANY_FLOATS)
    return lambda x: _numbers(node, x.shape, x.dtype if dtype is None else dtype)


@hosted("Bernoulli", dtypes=_ANY_FLOATS, attributes={"dtype": None, "seed": None},
        result=stated_by("dtype", 0))  # fmt: skip
def _bernoulli(node: Node) -> Run:
    dtype = _dtype_or_like(node, (*NUMBERS, *_HALVES, "bool"))
    return lambda x: [random_numbers.bernoulli(x, x.dtype if dtype is None else dtype, node.get("seed", None))]


@hosted("Multinomial", dtypes=_ANY_FLOATS, attributes={"dtype": None, "sample_size": None, "seed": None},
        result=stated_by("dtype", 6))  # fmt: skip
def _multinomial(node: Node) -> Run:
    dtype, count = _dtype(node, 6, ("int32", "int64")), node.get("sample_size", 1)
    if count < 1:
        raise ContradictionError(f"attribute sample_size is {count}; expected 1 or more")
    return lambda x: [random_numbers.multinomial(x, count, dtype, node.get("seed", None))]


@hosted("Dropout", dtypes=(_ANY_FLOATS, _ANY_FLOATS, ("bool",)), attributes={"seed": None}, since=12,
        result=0)  # fmt: skip
def _dropout(node: Node) -> Run:
    """In training. A ratio of 0, or training_mode False, keeps everything."""

    def run(x: Any, ratio: Any = None, training: Any = None) -> Sequence[Any]:
        fraction = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
        if training is None or not training.reshape(-1)[0] or fraction == 0:
            return [x, np.ones(x.shape, bool)]
        return random_numbers.dropout(x, fraction, node.get("seed", None))

    return run
