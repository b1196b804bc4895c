"""Operators on strings, which run in Python: an array of strings is an object array of str.

Encoders look up each string once in a dictionary. Moves (Reshape, Gather, Concat, ...) are those of NumPy, since an
object array holds references.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...._hosted import one_hot, places, strings
from ...._ngrams import NGrams
from ....errors import InferenceError, ModelError
from ....model.constants import array_of
from ....model.types import dtype_of
from ...bounded_patterns import all_matches, bounded_pattern
from ..registry import (
    ANY,
    BY_COLUMN,
    FEEDING,
    INDICES,
    NUMBERS,
    STRING,
    ContradictionError,
    ExaminedNode,
    Node,
    contradicting,
    hosted,
    stated_by,
    stated_shape,
)
from .scores import extracted_trouble, key_type_trouble

if TYPE_CHECKING:
    from ....model.model import Model

__all__ = ["texts"]

Run = Callable[..., Sequence[Any]]
Array = NDArray[Any]
_ML = "ai.onnx.ml::"


def texts(node: Node, name: str) -> list[str]:
    """An attribute that is a list of strings. Raises `ContradictionError` if it is not UTF-8."""
    items = node.get(name, ())
    try:
        return [item.decode() for item in items]
    except UnicodeDecodeError as error:
        raise ContradictionError(f"attribute {name} has bytes that are not UTF-8: {error}") from error


def text(node: Node, name: str, default: str) -> str:
    item = node.get(name, None)
    if item is None:
        return default
    try:
        return str(item.decode())
    except UnicodeDecodeError as error:
        raise ContradictionError(f"attribute {name} has bytes that are not UTF-8: {error}") from error


# ---- StringNormalizer and its kin


@contradicting
def _normalizer_refusal(model: Model, view: ExaminedNode) -> str | None:
    shape = stated_shape(model, int(model.node_inputs[view.index][0]))
    if shape is None or len(shape) == 1 or (len(shape) == 2 and (shape[0] == 1 or not isinstance(shape[0], int))):
        return None
    return f"StringNormalizer of strings of shape {list(shape)}; expected [C] or [1, C]"


@hosted("StringNormalizer", dtypes=STRING, attributes={
    "case_change_action": (b"LOWER", b"UPPER", b"NONE"), "is_case_sensitive": (0, 1), "locale": None, "stopwords": None,
}, check=_normalizer_refusal, result="object")  # fmt: skip
def _string_normalizer(node: Node) -> Run:
    """Removes stop words from a vector of strings, then changes the case. If nothing is left, one empty string.
    Python's case does not depend on the locale."""
    text(node, "locale", "")
    action, sensitive = node.get("case_change_action", b"NONE"), node.get("is_case_sensitive", 0)
    stop = texts(node, "stopwords")
    change: Callable[[str], str] | None = {b"LOWER": str.lower, b"UPPER": str.upper}.get(action)
    stops = frozenset(stop) if sensitive else frozenset(word.lower() for word in stop)

    def run(x: Array) -> Sequence[Any]:
        if not (x.ndim == 1 or (x.ndim == 2 and x.shape[0] == 1)):
            raise InferenceError(f"expected strings of shape [C] or [1, C], found {list(x.shape)}")
        items = x.reshape(-1).tolist()
        if stops and sensitive:
            items = [item for item in items if item not in stops]
        elif stops:
            items = [item for item in items if item.lower() not in stops]
        if change is not None:
            items = list(map(change, items))
        items = items or [""]
        return [strings(items, (len(items),) if x.ndim == 1 else (1, len(items)))]

    return run


@hosted("StringConcat", dtypes=STRING, result="object")
def _string_concat(node: Node) -> Run:
    return lambda x, y: [np.asarray(np.add(x, y), object)]


@hosted("StringSplit", dtypes=STRING, attributes={"delimiter": None, "maxsplit": None}, result="object")
def _string_split(node: Node) -> Run:
    delimiter, most = text(node, "delimiter", ""), node.get("maxsplit", None)
    if most is not None and most < 0:
        raise ContradictionError(f"attribute maxsplit is {most}; expected 0 or more")

    def run(x: Array) -> Sequence[Any]:
        limit = -1 if most is None else most
        parts = [item.split(delimiter or None, limit) if item else [] for item in x.reshape(-1).tolist()]
        if not delimiter and limit >= 0:
            parts = [[part.rstrip() if at == limit else part for at, part in enumerate(row)] for row in parts]
        longest = max(map(len, parts), default=0)
        flat = [part for row in parts for part in (*row, *[""] * (longest - len(row)))]
        counts = np.array([len(row) for row in parts], np.int64).reshape(x.shape)
        return [strings(flat, (*x.shape, longest)), counts]

    return run


@hosted("RegexFullMatch", dtypes=STRING, attributes={"pattern": None}, result="bool")
def _regex_full_match(node: Node) -> Run:
    compiled = bounded_pattern("pattern", text(node, "pattern", ""))

    def run(x: Array) -> Sequence[Any]:
        found = [compiled.fullmatch(item) is not None for item in x.reshape(-1).tolist()]
        return [np.array(found, bool).reshape(x.shape)]

    return run


@contradicting
def _lines_trouble(model: Model, view: ExaminedNode) -> str | None:
    """Why an input of the model is not [C] or [N, C]."""
    shape = stated_shape(model, int(model.node_inputs[view.index][0]))
    if shape is None or len(shape) in (1, 2):
        return None
    return f"{view.op_type} of an input of rank {len(shape)}; expected 1 or 2"


def _pattern(name: str, expression: str) -> Any:
    try:
        return bounded_pattern(name, expression, longest=True)
    except InferenceError as error:  # TEMPLATE has no other regular expressions
        raise ContradictionError(str(error)) from error


@hosted("com.microsoft::Tokenizer", dtypes=STRING, attributes=dict.fromkeys((
    "mark", "mincharnum", "pad_value", "separators", "stopwords", "tokenexp")), check=_lines_trouble,
    result="object")  # fmt: skip
def _tokenizer(node: Node) -> Run:
    """The tokens of each string along a new axis: matches of tokenexp, parts between separators, or characters.
    Tokens of fewer than mincharnum characters are left out. No strings have no new axis, and if no string has a token,
    none gets marks, as the operator's description says."""
    absent = [name for name in ("mark", "mincharnum", "pad_value") if name not in node.attributes]
    if absent:
        raise ContradictionError(f"attribute {absent[0]} is missing")
    mark, least, filler = node.get("mark", 0), node.get("mincharnum", 1), text(node, "pad_value", "")
    if "stopwords" in node.attributes:
        raise InferenceError("attribute stopwords is not supported")
    expression, separators = text(node, "tokenexp", ""), texts(node, "separators")
    if bool(expression) == ("separators" in node.attributes):
        raise ContradictionError("expected either attribute separators or tokenexp")
    if least < 1:
        raise ContradictionError(f"attribute mincharnum is {least}; expected 1 or more")
    if expression == ".":  # in onnxruntime, also line ends, which RE2's "." does not match
        expression, separators = "", [""]
    matches = all_matches(_pattern("tokenexp", expression)) if expression else None
    if separators != [""] and "" in separators:
        raise ContradictionError("attribute separators has an empty string among others")
    splits = [_pattern("separators", separator) for separator in separators if separator]
    if any(split.fullmatch("") for split in splits):
        raise ContradictionError("attribute separators has an expression that matches nothing")

    is_by_character = matches is None and not splits and least == 1

    def tokens(item: str) -> list[str]:
        if matches is not None:
            found = matches(item)
        elif not splits:
            found = list(item)
        else:
            found = [item]
            for split in splits:
                parts: list[str] = []
                for piece in found:
                    begin = 0
                    for match in split.finditer(piece):
                        parts.append(piece[begin : match.start()])
                        begin = match.end()
                    parts.append(piece[begin:])
                found = parts
        if least == 1:
            return found if all(found) else list(filter(None, found))  # most often, none is empty
        return [part for part in found if len(part) >= least]

    def run(x: Array) -> Sequence[Any]:
        if x.ndim not in (1, 2):
            raise InferenceError(f"expected strings of shape [C] or [N, C], found {list(x.shape)}")
        if not x.size:
            return [strings([], (*x.shape[:-1], 0))]
        if x.size == 1 and not mark:  # without lists of rows
            found = list(x.item()) if is_by_character else tokens(x.item())
            return [strings(found, (*x.shape, len(found)))]
        if is_by_character and not mark and len(filler) == 1:
            items = x.reshape(-1).tolist()
            longest = max(map(len, items))
            return [strings(list("".join([item.ljust(longest, filler) for item in items])), (*x.shape, longest))]
        rows = [tokens(item) for item in x.reshape(-1).tolist()]
        if mark and any(rows):
            rows = [["\x02", *row, "\x03"] for row in rows]
        longest = max(map(len, rows), default=0)
        flat: list[str] = []
        for row in rows:
            flat += row
            flat += [filler] * (longest - len(row))
        return [strings(flat, (*x.shape, longest))]

    return run


# ---- encoders


def _table(node: Node, side: str) -> Array | None:
    """Keys or values of a LabelEncoder; None if absent."""
    found: list[Array] = []
    for suffix, dtype in (("floats", np.float32), ("int64s", np.int64)):
        if node.get(f"{side}_{suffix}", None) is not None:
            found.append(np.array(node.get(f"{side}_{suffix}", ()), dtype))
    if node.get(f"{side}_strings", None) is not None:
        items = texts(node, f"{side}_strings")
        found.append(strings(items, (len(items),)))
    tensor = node.get(f"{side}_tensor", None)
    if tensor is not None:
        array = _tensor(tensor, f"{side}_tensor")
        if array.ndim != 1:
            raise ContradictionError(f"attribute {side}_tensor has shape {list(array.shape)}; expected one axis")
        found.append(array)
    if len(found) != 1:
        raise ContradictionError(f"LabelEncoder needs one attribute with {side}, found {len(found)}")
    return found[0]


def _tensor(tensor: Any, name: str) -> Array:
    """An attribute that is a tensor; strings are objects of str."""
    try:
        array = array_of(tensor)
        if array.dtype != object:
            return array
        items = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
    except (ModelError, UnicodeDecodeError) as error:
        raise ContradictionError(f"attribute {name}: {error}") from error
    return strings(items, array.shape)


_ENCODER = {f"{side}_{kind}": None for side in ("keys", "values") for kind in ("floats", "int64s", "strings", "tensor")}


def _encoder_result(attributes: Any) -> str | None:
    for suffix, name in (("strings", "object"), ("int64s", "int64"), ("floats", "float32")):
        if attributes.get(f"values_{suffix}") is not None:
            return name
    tensor = attributes.get("values_tensor")
    dtype = None if tensor is None else dtype_of(tensor.data_type)
    return None if dtype is None else dtype.name


@hosted(f"{_ML}LabelEncoder", dtypes=(*NUMBERS, *STRING), attributes=_ENCODER | {
    "default_float": None, "default_int64": None, "default_string": None, "default_tensor": None,
}, since=2, check=key_type_trouble, result=_encoder_result)  # fmt: skip
def _label_encoder(node: Node) -> Run:
    """A dictionary look-up. From opset 4 on, NaN equals the key NaN."""
    keys, table = encoder_tables(node)
    count = len(keys)
    place: dict[Any, int] = {}
    nan = count
    for at, key in enumerate(keys.tolist()):
        if isinstance(key, float) and math.isnan(key):
            nan = min(nan, at) if node.opset >= 4 else nan
        elif place.setdefault(key, at) != at:
            raise ContradictionError(f"LabelEncoder with a key that is given twice: {key!r}")

    def run(x: Array, column: int = -1) -> Sequence[Any]:
        if x.dtype != keys.dtype:
            raise InferenceError(f"x is {x.dtype}, but the keys are {keys.dtype}")
        found = places(place, x, count, nan, column)
        return [table.take(found.reshape(-1)).reshape(found.shape)]  # of one place, take returns no array

    return run


def encoder_tables(node: Node) -> tuple[Array, Array]:
    """The keys of a LabelEncoder, and its values followed by the default."""
    keys, values = _table(node, "keys"), _table(node, "values")
    assert keys is not None
    assert values is not None
    if len(keys) != len(values):
        raise ContradictionError(f"LabelEncoder has {len(keys)} keys and {len(values)} values")
    tensor = node.get("default_tensor", None)
    default: Any
    if tensor is not None:
        given = _tensor(tensor, "default_tensor")
        if given.size != 1 or given.dtype != values.dtype:
            raise ContradictionError(f"attribute default_tensor is {given.dtype}{list(given.shape)}; "
                                     f"expected one {values.dtype}")  # fmt: skip
        default = given.reshape(-1)[0]
    elif values.dtype == object:
        default = text(node, "default_string", "_Unused")
    else:
        default = node.get("default_int64", -1) if values.dtype.kind in "iu" else node.get("default_float", -0.0)
    count = len(values)
    table = np.empty(count + 1, values.dtype)
    table[:count], table[count] = values, default
    return keys, table


@hosted(f"{_ML}LabelEncoder", dtypes=("int64", *STRING), attributes={
    "classes_strings": None, "default_int64": None, "default_string": None,
}, until=1)  # fmt: skip
def _label_encoder_1(node: Node) -> Run:
    classes = texts(node, "classes_strings")
    if not classes:
        raise ContradictionError("attribute classes_strings is missing or empty")
    number, default = node.get("default_int64", -1), text(node, "default_string", "_Unused")
    return _both_ways(classes, list(range(len(classes))), number, default)


@hosted(f"{_ML}CategoryMapper", dtypes=("int64", *STRING), attributes={
    "cats_int64s": None, "cats_strings": None, "default_int64": None, "default_string": None,
})  # fmt: skip
def _category_mapper(node: Node) -> Run:
    names, numbers = texts(node, "cats_strings"), list(node.get("cats_int64s", ()))
    if not names or len(names) != len(numbers):
        raise ContradictionError(
            f"attribute cats_strings has {len(names)} entries and cats_int64s {len(numbers)}; expected as many of each"
        )
    return _both_ways(names, numbers, node.get("default_int64", -1), text(node, "default_string", "_Unused"))


def _both_ways(names: list[str], numbers: list[int], number: int, name: str) -> Run:
    """Strings become numbers, and numbers become strings. Of equal keys the last counts, as in onnxruntime."""
    to_number, to_name = dict(zip(names, numbers, strict=True)), dict(zip(numbers, names, strict=True))

    def run(x: Array) -> Sequence[Any]:
        items = x.reshape(-1).tolist()
        if x.dtype == object:
            return [np.array([to_number.get(item, number) for item in items], np.int64).reshape(x.shape)]
        return [strings([to_name.get(item, name) for item in items], x.shape)]

    return run


def _one_hot_refusal(model: Model, view: ExaminedNode) -> str | None:
    # No contradiction: in onnxruntime, x of another type has none of the categories.
    kind, found = "strings" if view.attributes.get("cats_strings") else "int64s", view.type_of_input(0)
    is_other = found is not None and (found == "object") != (kind == "strings")
    return f"OneHotEncoder of {found} with attribute cats_{kind}" if is_other else None


@hosted(f"{_ML}OneHotEncoder", dtypes=(*NUMBERS, *STRING), attributes={
    "cats_int64s": None, "cats_strings": None, "zeros": (0, 1)}, check=_one_hot_refusal,
    result="float32")  # fmt: skip
def _one_hot_encoder(node: Node) -> Run:
    """A row of zeros for an unknown category, or an error if ``zeros`` is 0. Floats are truncated to integers."""
    names, numbers = texts(node, "cats_strings"), list(node.get("cats_int64s", ()))
    if bool(names) == bool(numbers):
        raise ContradictionError("expected either attribute cats_int64s or cats_strings")
    categories: list[Any] = names or numbers
    count = len(categories)
    if len(set(categories)) != count:
        repeated = collections.Counter(categories).most_common(1)[0][0]
        raise ContradictionError(f"attribute cats_{'strings' if names else 'int64s'} has {repeated!r} twice")
    place = {key: at for at, key in enumerate(categories)}
    zeros = node.get("zeros", 1)

    def run(x: Array, column: int = -1) -> Sequence[Any]:
        if (x.dtype == object) != bool(names):
            raise InferenceError(f"x is {x.dtype}, but the categories are {'strings' if names else 'int64'}")
        if x.dtype.kind == "f":
            x = x.astype(np.int64)
        made, unknown = one_hot(place, x, count, column)
        if not zeros and unknown >= 0:
            items = x.reshape(-1) if column < 0 else x[:, column]
            raise InferenceError(f"{items[unknown]!r} is not a category, and zeros is 0")
        return [made]

    return run


BY_COLUMN.update((_label_encoder, _one_hot_encoder))


# ---- TfIdfVectorizer


def _vectorizer_refusal(model: Model, view: ExaminedNode) -> str | None:
    found, is_text = view.type_of_input(0), bool(view.attributes.get("pool_strings"))
    if found is not None and (found == "object") != is_text:  # no contradiction: no n-gram is in the pool
        return f"TfIdfVectorizer of {found} with attribute {'pool_strings' if is_text else 'pool_int64s'}"
    return _lines_trouble(model, view)


@hosted("TfIdfVectorizer", dtypes=("int32", "int64", *STRING), attributes=dict.fromkeys((
    "max_gram_length", "max_skip_count", "min_gram_length", "mode", "ngram_counts", "ngram_indexes", "pool_int64s",
    "pool_strings", "weights")), check=_vectorizer_refusal, result="float32")  # fmt: skip
def _tf_idf_vectorizer(node: Node) -> Run:
    """Counts the n-grams of a pool in each row, with up to max_skip_count elements left out between two of its own."""
    least, most, skips = (
        node.get(f"{name}", None) for name in ("min_gram_length", "max_gram_length", "max_skip_count")
    )
    mode = text(node, "mode", "")
    counts, indexes = list(node.get("ngram_counts", ())), np.array(node.get("ngram_indexes", ()), np.int64)
    names, numbers = texts(node, "pool_strings"), list(node.get("pool_int64s", ()))
    if least is None or most is None or skips is None:
        raise ContradictionError("attributes min_gram_length, max_gram_length and max_skip_count are required")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ContradictionError(f"attribute mode is {mode!r}; expected TF, IDF or TFIDF")
    if not 1 <= least <= most or most > max(len(counts), 1):
        raise ContradictionError(
            f"attributes min_gram_length {least} and max_gram_length {most} do not fit {len(counts)} ngram_counts"
        )
    if not 0 <= skips <= 1 << 20:
        error = ContradictionError if skips < 0 else InferenceError
        raise error(f"attribute max_skip_count is {skips}; expected 0 to {1 << 20}")
    if bool(names) == bool(numbers):
        raise ContradictionError("expected either pool_strings or pool_int64s")
    pool: list[Any] = names or numbers
    bounds = [*counts, len(pool)]
    if bounds[0] != 0 or any(b < a for a, b in itertools.pairwise(bounds)):
        raise ContradictionError(
            f"attribute ngram_counts is {counts[:8]}; expected ascending places in {len(pool)} entries"
        )
    if not len(indexes) or indexes.min() < 0:
        raise ContradictionError("attribute ngram_indexes is empty or has a negative entry")
    if indexes.max() >= 1 << 26:
        raise InferenceError(f"attribute ngram_indexes has an entry above {(1 << 26) - 1}")
    width = int(indexes.max()) + 1
    weights = np.array(node.get("weights", ()) or np.ones(len(indexes)), np.float32)
    if len(weights) != len(indexes):
        raise ContradictionError(f"attribute weights has {len(weights)} entries; expected {len(indexes)}")
    grams: list[dict[Any, int]] = [{} for _ in range(most + 1)]
    number = 0
    for size, (begin, end) in enumerate(itertools.pairwise(bounds), 1):
        if (end - begin) % size:
            raise ContradictionError(f"attribute ngram_counts leaves {end - begin} entries to the {size}-grams")
        for at in range(begin, end, size):
            if number >= len(indexes):
                raise ContradictionError(
                    f"attribute ngram_indexes has {len(indexes)} entries, fewer than the pool's n-grams"
                )
            if least <= size <= most and grams[size].setdefault(tuple(pool[at : at + size]), number) != number:
                raise ContradictionError(f"the pool has an n-gram twice: {pool[at : at + size]}")
            number += 1
    if number != len(indexes):
        raise ContradictionError(f"attribute ngram_indexes has {len(indexes)} entries; expected {number}")
    by_column = np.zeros(width, np.float32)
    by_column[indexes] = weights
    if mode != "TF" and not np.array_equal(by_column[indexes], weights, equal_nan=True):
        raise InferenceError("attribute weights has several numbers for one entry of ngram_indexes")

    columns = {gram: int(indexes[number]) for known in grams for gram, number in known.items()}
    pool_of_grams = NGrams(columns, width)

    factors = None if mode == "TF" else by_column.tobytes()

    def run(x: Array) -> Sequence[Any]:
        if x.ndim not in (1, 2) or (x.dtype == object) != bool(names):
            raise InferenceError(
                f"x is {x.dtype}{list(x.shape)}; expected rows of {'strings' if names else 'integers'}"
            )
        count, length = (1, x.size) if x.ndim == 1 else x.shape
        is_present, is_vector = mode == "IDF", x.ndim == 1
        items = x.ravel().tolist()
        return [pool_of_grams.rows(items, count, length, least, most, skips, factors, is_present, is_vector)]

    return run


# ---- tensors of strings


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InferenceError(f"axis {axis} is outside {rank} dimensions")
    return axis % rank


_STRING = 8  # of onnx.TensorProto.DataType
_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16)


@hosted("Cast", dtypes=ANY, attributes={"to": (_STRING,), "saturate": None, "round_mode": None}, since=6,
        result="object")  # fmt: skip
def _cast_to_strings(node: Node) -> Run:
    """Floats have up to 8 digits, as in onnxruntime."""
    if "to" not in node.attributes:
        raise InferenceError("attribute to is missing")
    return lambda x: [strings(_as_text(x), x.shape)]


@hosted("Cast", dtypes=STRING, attributes={"to": (*_NUMBERS, _STRING), "saturate": None, "round_mode": None}, since=6,
        result=stated_by("to", 0))  # fmt: skip
def _cast_strings(node: Node) -> Run:
    dtype = dtype_of(node.get("to", 0))
    if dtype is None:
        raise InferenceError("attribute to is missing")

    def run(x: Array) -> Sequence[Any]:
        return [x if dtype.hasobject else _as_numbers(x.reshape(-1).tolist(), dtype).reshape(x.shape)]

    return run


def _as_text(x: Array) -> list[str]:
    if x.dtype.kind in "biu":
        return [str(int(item)) for item in x.reshape(-1).tolist()]
    made = []
    for item in x.astype(np.float64).reshape(-1).tolist():
        if math.isnan(item):
            made.append("NaN")
        elif math.isinf(item):
            made.append("INF" if item > 0 else "-INF")
        else:
            made.append(format(item, ".8g"))
    return made


def _as_numbers(items: list[str], dtype: np.dtype[Any]) -> Array:
    strange = next((item for item in items if "_" in item or not item.isascii()), None)
    if strange is not None:  # a number in Python only
        raise InferenceError(f"a string is not a number: {strange!r}")
    try:
        if dtype.kind in "iu":
            return np.array([int(item) for item in items], object).astype(dtype)
        if dtype.kind == "b":
            return np.array([bool(float(item)) for item in items], bool)
        with np.errstate(over="ignore"):
            return np.array([float(item) for item in items], np.float64).astype(dtype)
    except ValueError as error:
        raise InferenceError(f"a string is not a number: {error}") from error


@hosted("Reshape", dtypes=(STRING, ("int64",)), attributes={"allowzero": (0, 1)}, since=5, result=0)
def _reshape(node: Node) -> Run:
    def run(x: Array, shape: Array) -> Sequence[Any]:
        sizes = shape.reshape(-1).tolist()
        if 0 in sizes and not node.get("allowzero", 0):
            if any(size == 0 and at >= x.ndim for at, size in enumerate(sizes)):
                raise InferenceError(f"shape {sizes} has a 0 beyond the {x.ndim} dimensions of x")
            sizes = [x.shape[at] if size == 0 else size for at, size in enumerate(sizes)]
        return [x.reshape(sizes)]

    return run


@hosted("Flatten", dtypes=STRING, attributes={"axis": None}, result=0)
def _flatten(node: Node) -> Run:
    def run(x: Array) -> Sequence[Any]:
        axis = node.get("axis", 1)
        if axis == 1 and x.ndim == 2:
            return [x]
        axis = axis + x.ndim if axis < 0 else axis
        if not 0 <= axis <= x.ndim:
            raise InferenceError(f"axis {axis} is outside 0..{x.ndim}")
        return [x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))]

    return run


def _axes_of(node: Node, axes: Array | None) -> list[int] | None:
    if axes is not None:
        return [int(axis) for axis in axes.reshape(-1)]
    given = node.get("axes", None)
    return None if given is None else list(given)


@hosted("Squeeze", dtypes=(STRING, ("int64",)), attributes={"axes": None}, result=0)
def _squeeze(node: Node) -> Run:
    def run(x: Array, axes: Array | None = None) -> Sequence[Any]:
        chosen = _axes_of(node, axes)
        return [np.squeeze(x, None if chosen is None else tuple(_axis(axis, x.ndim) for axis in chosen))]

    return run


@hosted("Unsqueeze", dtypes=(STRING, ("int64",)), attributes={"axes": None}, result=0)
def _unsqueeze(node: Node) -> Run:
    def run(x: Array, axes: Array | None = None) -> Sequence[Any]:
        return [np.expand_dims(x, tuple(_axes_of(node, axes) or ()))]

    return run


@hosted("Transpose", dtypes=STRING, attributes={"perm": None}, result=0)
def _transpose(node: Node) -> Run:
    return lambda x: [np.transpose(x, node.get("perm", None))]


@hosted("Concat", dtypes=STRING, attributes={"axis": None}, since=4, result=0)
def _concat(node: Node) -> Run:
    if "axis" not in node.attributes:
        raise InferenceError("attribute axis is missing")
    return lambda *parts: [np.concatenate(parts, node.attributes["axis"])]


@hosted("Gather", dtypes=(STRING, INDICES), attributes={"axis": None}, result=0)
def _gather(node: Node) -> Run:
    given = node.get("axis", 0)

    def run(x: Array, places: Array) -> Sequence[Any]:
        axis = _axis(given, x.ndim)
        if axis == 1 and x.ndim == 2 and places.shape == (1,) and 0 <= (column := int(places[0])) < x.shape[1]:
            return [x[:, column : column + 1]]  # a fifth of the time
        try:
            return [np.asarray(x.take(places, axis), x.dtype)]
        except IndexError as error:
            size = x.shape[axis]
            reason = f"an index is outside {-size}..{size - 1}, the axis of x {list(x.shape)}"
            raise InferenceError(reason) from error

    return run


@hosted(f"{_ML}ArrayFeatureExtractor", dtypes=(STRING, ("int64",)), check=extracted_trouble, result=0)
def _array_feature_extractor(node: Node) -> Run:
    def run(x: Array, places: Array) -> Sequence[Any]:
        rows = x.reshape(1, -1) if x.ndim < 2 else x
        if places.size == 1 and x.ndim == 2 and 0 <= (column := places.item()) < x.shape[1]:
            return [x[:, column : column + 1]]  # half the time
        columns = places.reshape(-1).tolist()  # few: Python's min and max are faster
        if not columns or not 0 <= min(columns) <= max(columns) < rows.shape[-1]:
            raise InferenceError(f"columns {columns[:8]} are empty or outside x of shape {list(x.shape)}")
        return [rows.take(columns, -1)]

    return run


def _cast_numbers(node: Node) -> Run | None:
    dtype = dtype_of(node.get("to", 0))
    return (lambda x: [x.astype(dtype)]) if dtype in (np.bool_, np.int64) else None


FEEDING.update({"Gather": _gather, f"{_ML}ArrayFeatureExtractor": _array_feature_extractor, "Cast": _cast_numbers})


@hosted("Slice", dtypes=(STRING, INDICES), since=10, result=0)
def _slice(node: Node) -> Run:
    def run(
        x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
    ) -> Sequence[Any]:
        chosen = range(len(starts)) if axes is None else [_axis(int(axis), x.ndim) for axis in axes]
        ways = [1] * len(starts) if steps is None else steps.tolist()
        slices = [slice(None)] * x.ndim
        for axis, begin, end, step in zip(chosen, starts.tolist(), ends.tolist(), ways, strict=True):
            if not step or axis >= x.ndim:
                raise InferenceError("a step of 0, or more axes than x has dimensions")
            size = x.shape[axis]
            low, high = (0, size) if step > 0 else (-1, size - 1)
            bounds = [min(max(place + size if place < 0 else place, low), high) for place in (begin, end)]
            last = None if bounds[1] < 0 else bounds[1]
            slices[axis] = slice(bounds[0], last, step)
        return [x[tuple(slices)]]

    return run


@hosted(
    "Split",
    dtypes=(STRING, ("int64",)),
    attributes={"axis": None, "split": None, "num_outputs": None},
    result=0,
    further=(0,),
)
def _split(node: Node) -> Run:
    count = node.num_outputs

    def run(x: Array, sizes: Array | None = None) -> Sequence[Any]:
        axis = _axis(node.get("axis", 0), x.ndim)
        size = x.shape[axis]
        given = node.get("split", None) if sizes is None else sizes.tolist()
        if given is None:
            step = -(-size // count)
            given = [max(0, min(step, size - at * step)) for at in range(count)]
        if sum(given) != size or min(given, default=0) < 0:
            raise InferenceError(f"split {given[:8]} does not fit an axis of {size} elements")
        return np.split(x, np.cumsum(given)[:-1], axis)

    return run


@hosted("Expand", dtypes=(STRING, ("int64",)), result=0)
def _expand(node: Node) -> Run:
    def run(x: Array, shape: Array) -> Sequence[Any]:
        return [np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))]

    return run


@hosted("Tile", dtypes=(STRING, ("int64",)), since=6, result=0)
def _tile(node: Node) -> Run:
    def run(x: Array, repeats: Array) -> Sequence[Any]:
        if len(repeats) != x.ndim or (repeats < 0).any() or x.size * math.prod(repeats.tolist()) > 1 << 32:
            raise InferenceError(f"repeats {repeats.tolist()[:8]} do not fit x of shape {list(x.shape)}")
        return [np.tile(x, repeats)]

    return run


@hosted("Where", dtypes=(("bool",), STRING), result="object")
def _where(node: Node) -> Run:
    return lambda condition, x, y: [np.where(condition, x, y)]


@hosted("Equal", dtypes=STRING, result="bool")
def _equal(node: Node) -> Run:
    return lambda x, y: [np.asarray(np.equal(x, y), bool)]


@hosted("Shape", dtypes=STRING, attributes={"start": None, "end": None}, result="int64")
def _shape(node: Node) -> Run:
    return lambda x: [np.array(x.shape[node.get("start", 0) : node.get("end", None)], np.int64)]


@hosted("Size", dtypes=STRING, result="int64")
def _size(node: Node) -> Run:
    return lambda x: [np.array(x.size, np.int64)]
