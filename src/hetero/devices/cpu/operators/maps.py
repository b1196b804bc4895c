"""Maps of ai.onnx.ml, which run in Python: a map is a dictionary, as in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...._hosted import Maps
from ....errors import InferenceError
from ..registry import NOT_TENSOR, ContradictionError, Node, contradicting, hosted
from .scores import rank_trouble, stated_columns
from .strings import texts

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

Run = Callable[..., Sequence[Any]]
_LABELS = {"classlabels_int64s": None, "classlabels_strings": None}
_MOST_ENTRIES = 1 << 26  # of a row that a map becomes


@contradicting
def _zip_map_refusal(model: Model, view: NodeView) -> str | None:
    labels = view.attributes.get("classlabels_int64s", ()) or view.attributes.get("classlabels_strings", ())
    columns = stated_columns(model, view)
    if columns is not None and labels and columns != len(labels):
        return f"ZipMap of {columns} columns with {len(labels)} class labels"
    return rank_trouble(model, view)


@hosted("ai.onnx.ml::ZipMap", dtypes=("float32",), attributes=_LABELS, check=_zip_map_refusal)
def _zip_map(node: Node) -> Run:
    numbers, names = node.get("classlabels_int64s", ()), texts(node, "classlabels_strings")
    if bool(numbers) == bool(names):
        raise ContradictionError("expected either attribute classlabels_int64s or classlabels_strings")
    return Maps(tuple(names or numbers))


@hosted("ai.onnx.ml::DictVectorizer", dtypes=NOT_TENSOR,
        attributes={"int64_vocabulary": None, "string_vocabulary": None})  # fmt: skip
def _dict_vectorizer(node: Node) -> Run:
    numbers, names = node.get("int64_vocabulary", ()), texts(node, "string_vocabulary")
    if bool(numbers) == bool(names):
        raise ContradictionError("expected either attribute int64_vocabulary or string_vocabulary")
    vocabulary = names or list(numbers)

    def run(x: Mapping[Any, Any]) -> Sequence[Any]:
        if not isinstance(x, Mapping):
            raise InferenceError(f"expected a map, found {type(x).__name__}")
        values = list(x.values())
        dtype: Any = np.asarray(values).dtype if values else np.dtype(np.float32)
        filler: Any = 0
        if dtype.kind in "USO":
            dtype, filler = np.dtype(object), ""
        elif dtype == np.float64 and not any(isinstance(value, np.float64) for value in values):
            dtype = np.dtype(np.float32)  # Python numbers
        return [np.array([[x.get(key, filler) for key in vocabulary]], dtype)]

    return run


@hosted("ai.onnx.ml::CastMap", dtypes=NOT_TENSOR, attributes={
    "cast_to": (b"TO_FLOAT", b"TO_INT64", b"TO_STRING"), "map_form": (b"DENSE", b"SPARSE"), "max_map": None,
})  # fmt: skip
def _cast_map(node: Node) -> Run:
    target = node.get("cast_to", b"TO_FLOAT")
    dtype: Any = {b"TO_FLOAT": np.float32, b"TO_INT64": np.int64, b"TO_STRING": object}[target]
    sparse, count = node.get("map_form", b"DENSE") == b"SPARSE", node.get("max_map", 1)
    if sparse and not 1 <= count <= _MOST_ENTRIES:
        error = ContradictionError if count < 1 else InferenceError
        raise error(f"attribute max_map is {count}; expected 1 to {_MOST_ENTRIES}")
    convert: Callable[[Any], Any] = str if target == b"TO_STRING" else float

    def run(x: Mapping[int, Any]) -> Sequence[Any]:
        if not isinstance(x, Mapping):
            raise InferenceError(f"expected a map, found {type(x).__name__}")
        if not sparse:
            return [np.array([[convert(x[key]) for key in sorted(x)]], object).astype(dtype)]
        row = np.full((1, count), "" if dtype is object else 0, dtype)
        for key, value in x.items():
            if 0 <= key < count:
                row[0, key] = convert(value)
        return [row]

    return run
