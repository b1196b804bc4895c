"""Operators on strings against onnxruntime, or against plain Python."""

from __future__ import annotations

import collections
import functools
import itertools
import re
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from hetero import Core, HeteroError
from hetero._hosted import Maps, matching, one_hot, places, runs
from hetero._ngrams import NGrams
from sessions import onnxruntime_session

pytestmark = pytest.mark.spread(2)

Array = np.ndarray[Any, Any]
ML = "ai.onnx.ml"
DEVICES = ("CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE")


def text(*items: str, shape: tuple[int, ...] = (-1,)) -> Array:
    return np.array(items, object).reshape(shape)


def model_of(
    op: str, inputs: list[Array], num_outputs: int = 1, domain: str = "", **attributes: Any
) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    outputs = [f"y{i}" for i in range(num_outputs)]
    ports = [
        helper.make_tensor_value_info(
            name,
            TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype),
            [None] * x.ndim,
        )
        for name, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain=domain, name="node", **attributes)],
        "graph",
        ports,
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 4), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def results(model: onnx.ModelProto, device: str, *inputs: Array) -> list[Any]:
    core = Core()
    compiled = core.compile_model(core.read_model(model), device)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    first, second = (list(compiled(feeds)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    return first


def on_ort(model: onnx.ModelProto, *inputs: Array) -> list[Any]:
    session = onnxruntime_session(model)
    return list(session.run(None, {f"x{i}": x for i, x in enumerate(inputs)}))


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


WORDS = text("red", "Grün", "", "red", "日本", "other", shape=(3, 2))
CASES: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("LabelEncoder", [WORDS], {"keys_strings": ["red", "Grün"], "values_int64s": [4, -2]}),
    ("LabelEncoder", [WORDS], {"keys_strings": ["red", ""], "values_floats": [0.5, 2], "default_float": -1.0}),
    ("LabelEncoder", [WORDS], {"keys_strings": ["red"], "values_strings": ["ROT"], "default_string": "?"}),
    ("LabelEncoder", [np.array([[1, 2], [3, 1]])], {"keys_int64s": [1, 3], "values_strings": ["a", "b"]}),
    ("LabelEncoder", [np.array([1, np.nan, 3], np.float32)],
     {"keys_floats": [np.nan, 3.0], "values_strings": ["a", "b"]}),
    ("OneHotEncoder", [WORDS[:, 0]], {"cats_strings": ["日本", "red"]}),
    ("CategoryMapper", [WORDS], {"cats_strings": ["red", "日本"], "cats_int64s": [7, 8]}),
    ("CategoryMapper", [np.array([7, 9])], {"cats_strings": ["red", "日本"], "cats_int64s": [7, 8]}),
    ("ArrayFeatureExtractor", [WORDS, np.array([1, 0, 1])], {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES)
def test_encoders(op: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    model = model_of(op, inputs, domain=ML, **attributes)
    wanted = on_ort(model, *inputs)
    for device in ("CPU", "HETERO:CPU,TEMPLATE"):
        assert_same(results(model, device, *inputs), wanted)
    empty = [inputs[0][:0], *inputs[1:]]
    assert results(model, "CPU", *empty)[0].size == 0


@pytest.mark.parametrize("values", [{"values_strings": ["ROT"]}, {"values_floats": [0.5]}, {"values_int64s": [4]}])
@pytest.mark.parametrize("word", ["red", "blue"])
def test_label_encoder_of_one_scalar(word: str, values: dict[str, Any]) -> None:
    scalar = text(word, shape=())
    model = model_of("LabelEncoder", [scalar], domain=ML, keys_strings=["red"], **values)
    assert_same(results(model, "CPU", scalar), on_ort(model, scalar))


def test_one_hot_encoder_without_zeros() -> None:
    model = model_of("OneHotEncoder", [WORDS], domain=ML, cats_strings=["red"], zeros=0)
    with pytest.raises(HeteroError, match="'Grün' is not a category, and zeros is 0"):
        results(model, "CPU", WORDS)


MOVES: list[tuple[str, list[Array], int, dict[str, Any]]] = [
    ("Reshape", [WORDS, np.array([2, -1])], 1, {}),
    ("Reshape", [WORDS, np.array([0, 1, -1])], 1, {}),
    ("Flatten", [WORDS], 1, {"axis": 0}),
    ("Squeeze", [WORDS[:1], np.array([0])], 1, {}),
    ("Unsqueeze", [WORDS, np.array([0, -1])], 1, {}),
    ("Transpose", [WORDS], 1, {"perm": [1, 0]}),
    ("Concat", [WORDS, WORDS[:1]], 1, {"axis": 0}),
    ("Gather", [WORDS, np.array([[2, -1]])], 1, {"axis": 0}),
    ("Slice", [WORDS, np.array([-1]), np.array([-9]), np.array([0]), np.array([-2])], 1, {}),
    ("Slice", [WORDS, np.array([1]), np.array([99])], 1, {}),
    ("Split", [WORDS, np.array([1, 2])], 2, {"axis": 0}),
    ("Expand", [WORDS, np.array([2, 1, 1])], 1, {}),
    ("Tile", [WORDS, np.array([2, 1])], 1, {}),
    ("Identity", [WORDS], 1, {}),
    ("Shape", [WORDS], 1, {"start": 1}),
    ("Size", [WORDS], 1, {}),
    ("Equal", [WORDS, text("red")], 1, {}),
    ("Where", [np.array([[True], [False], [True]]), WORDS, text("x")], 1, {}),
]


@pytest.mark.parametrize(("op", "inputs", "num_outputs", "attributes"), MOVES)
def test_moves(op: str, inputs: list[Array], num_outputs: int, attributes: dict[str, Any]) -> None:
    model = model_of(op, inputs, num_outputs, **attributes)
    found = results(model, "CPU", *inputs)
    wanted = results(model, "TEMPLATE", *inputs) if op in ("Tile", "Gather") else on_ort(model, *inputs)
    assert_same(found, wanted)


def test_casts() -> None:
    numbers = text("1.5", "-2", "inf", "1e3")
    model = model_of("Cast", [numbers], to=TensorProto.FLOAT)
    np.testing.assert_array_equal(results(model, "CPU", numbers)[0], np.array([1.5, -2, np.inf, 1e3], np.float32))
    model = model_of("Cast", [text("12")], to=TensorProto.INT64)
    assert results(model, "CPU", text("12", "-7"))[0].tolist() == [12, -7]
    with pytest.raises(HeteroError, match="'node' .*a string is not a number"):
        results(model, "CPU", text("zwölf"))
    for x in (np.array([1.5, np.nan, -np.inf, 0.1], np.float32), np.array([3, -4]), np.array([0.1, 1e300])):
        model = model_of("Cast", [x], to=TensorProto.STRING)
        assert_same(results(model, "CPU", x), on_ort(model, x))


@pytest.mark.parametrize("number", ["1_0", "\u0661", "", "x"])
@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL])
def test_casts_of_what_is_a_number_in_python_only(number: str, to: int) -> None:
    x = text(number)
    with pytest.raises(HeteroError, match="a string is not a number"):
        results(model_of("Cast", [x], to=to), "CPU", x)


@pytest.mark.parametrize("skips", [0, 1, 5])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_tf_idf(mode: str, skips: int) -> None:
    rng = np.random.default_rng(skips)
    x = rng.choice(["a", "b", "c", "dé"], (7, 9)).astype(object)
    attributes = {"pool_strings": ["a", "b", "dé", "a", "b", "b", "a", "c", "c", "b", "a", "c"],
                  "ngram_counts": [0, 3, 9], "ngram_indexes": [0, 3, 1, 5, 2, 4, 6],
                  "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": skips, "mode": mode,
                  "weights": [0.5, 2.0, 3.0, 4.0, 0.25, 1.0, 7.0]}  # fmt: skip
    for inputs in (x, x[0], x[:, :2], x[:0]):
        model = model_of("TfIdfVectorizer", [inputs], **attributes)
        found = results(model, "CPU", inputs)
        if len(inputs):
            assert_same(found, on_ort(model, inputs))


@given(data=st.data())
def test_ngrams(data: st.DataObject) -> None:
    """Against a count of each n-gram by itself."""
    alphabet = data.draw(st.sampled_from(["ab", "abcdefgh", [0, 1, -5, 2**40], ["é", "\u4e00", "xy"]]))
    token = st.sampled_from(alphabet)
    pool = data.draw(st.lists(st.lists(token, min_size=1, max_size=4).map(tuple), max_size=12, unique=True))
    width = len(pool) + 2
    columns = {gram: data.draw(st.integers(0, width - 1)) for gram in pool}
    rows, length = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 9))
    unknown = "?" if isinstance(alphabet[0], str) else 7
    items = data.draw(st.lists(st.one_of(token, st.just(unknown)), min_size=rows * length, max_size=rows * length))
    if data.draw(st.booleans()) and unknown == "?":  # equal strings that are different objects
        items = [item.encode().decode() for item in items]
    least = data.draw(st.integers(1, 3))
    most, skips = data.draw(st.integers(least, 4)), data.draw(st.integers(0, 20))
    expected = np.zeros((rows, width), np.int64)
    counted = functools.partial(NGrams(columns, width).rows, items, rows, length, least, most, skips)
    for row in range(rows):
        line = items[row * length : (row + 1) * length]
        for size in range(least, most + 1):
            for gap in range(1, 2 if size == 1 else skips + 2):
                for begin in range(length - (size - 1) * gap):
                    gram = tuple(line[begin : begin + (size - 1) * gap + 1 : gap])
                    if gram in columns:
                        expected[row, columns[gram]] += 1
    weights = np.arange(1, width + 1, dtype=np.float32) / 3
    assert counted().dtype == np.float32
    np.testing.assert_array_equal(counted(), expected)
    np.testing.assert_array_equal(counted(weights.tobytes()), expected.astype(np.float32) * weights)
    np.testing.assert_array_equal(counted(weights.tobytes(), True), np.where(expected > 0, weights, np.float32(0)))


def test_ngrams_of_more_tokens_than_are_remembered() -> None:
    random = np.random.default_rng(0)
    tokens = [f"word {number}" for number in range(2000)]
    items = [tokens[at][:5] + tokens[at][5:] for at in random.integers(0, 2000, 20_000)]
    counts = NGrams({(token,): column for column, token in enumerate(tokens)}, 2000).rows(items, 4, 5000, 1, 1, 0)
    for row, counted in enumerate(counts):
        line = collections.Counter(items[row * 5000 : (row + 1) * 5000])
        assert counted.tolist() == [line[token] for token in tokens]


def test_ngrams_refuse_wrong_sizes() -> None:
    grams = NGrams({("a",): 1}, 2)
    with pytest.raises(ValueError, match="do not fit"):
        grams.rows(["a", "a"], 2, 1, 1, 1, 0, is_vector=True)
    assert grams.rows(["a", "b"], 1, 2, 1, 1, 0, is_vector=True).tolist() == [0, 1]
    for items, length, weights in ((["a"], 2, None), (["a", "b"], 2, bytes(12)), ([], 1, None)):
        with pytest.raises(ValueError, match="do not fit"):
            grams.rows(items, 1, length, 1, 1, 0, weights)
    with pytest.raises(ValueError, match="column 2 is outside"):
        NGrams({("a",): 2}, 2)
    assert not NGrams({}, 2).rows(["a", "b"], 1, 2, 1, 3, 5).any()
    assert NGrams({}, 0).rows(["a", "b"], 1, 2, 1, 3, 5).shape == (1, 0)
    assert NGrams({("a",): 1}, 2).rows([], 3, 0, 1, 1, 0).shape == (3, 2)


@pytest.mark.parametrize(("attributes", "line"), [
    ({"tokenexp": "[a-z]+"}, "ab cd-e F"),
    ({"tokenexp": "."}, "ab\ncd-\r e\x85\u2028F"),
    ({"tokenexp": "[^a]"}, "ab\ncd a-"),
    ({"tokenexp": "[^a]+", "mincharnum": 2}, "ab c\nd aa-"),
    ({"tokenexp": "[a-z]+", "mincharnum": 2, "mark": 1}, "ab cd-e F"),
    ({"separators": [""]}, "aéb"),
    ({"separators": [" ", ";"]}, "a;b c;;d"),
])  # fmt: skip
def test_tokenizer(attributes: dict[str, Any], line: str) -> None:
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#"} | attributes
    x = text(line, "", line + line)
    model = model_of("Tokenizer", [x], domain="com.microsoft", **attributes)
    for device in ("CPU", "TEMPLATE"):
        assert_same(results(model, device, x), on_ort(model, x))


@pytest.mark.parametrize("filler", ["#", "", "ab", "\u4e00", "a"])
@pytest.mark.parametrize("lines", [["ab", "a\U0001f600cd", "", "\u4e00\n"], ["é\0b"], ["", ""], ["ab", "cd"]])
@pytest.mark.parametrize(("mark", "least"), [(0, 1), (1, 1), (0, 2)])
def test_tokens_that_are_characters(lines: list[str], filler: str, mark: int, least: int) -> None:
    rows = [[item for item in line if least == 1] for line in lines]
    if mark and any(rows):
        rows = [["\x02", *row, "\x03"] for row in rows]
    longest = max(map(len, rows))
    expected = [row + [filler] * (longest - len(row)) for row in rows]
    for x in (text(*lines), text(*lines, shape=(-1, 1))):
        model = model_of("Tokenizer", [x], domain="com.microsoft", mark=mark, mincharnum=least, pad_value=filler,
                         separators=[""])  # fmt: skip
        (found,) = results(model, "CPU", x)
        assert found.shape == (*x.shape, longest)
        assert found.reshape(len(lines), -1).tolist() == expected


@pytest.mark.parametrize("shape", [(1,), (2,), (1, 1), (1, 2), (2, 1), (0,), (0, 1), (2, 0)])
@pytest.mark.parametrize("line", ["", "  ", "a bc"])
@pytest.mark.parametrize("attributes", [{"tokenexp": "[a-z]+"}, {"separators": [" "], "mincharnum": 2}])
@pytest.mark.parametrize("mark", [0, 1])
def test_tokenizer_of_few_strings(shape: tuple[int, ...], line: str, attributes: dict[str, Any], mark: int) -> None:
    x = np.full(shape, line, object)
    model = model_of("Tokenizer", [x], domain="com.microsoft", **{"mincharnum": 1, "pad_value": "#"} | attributes,
                     mark=mark)  # fmt: skip
    for device in ("CPU", "TEMPLATE"):
        assert_same(results(model, device, x), on_ort(model, x))


@pytest.mark.parametrize("pattern", ["a|ab", "(a|ab)(c|bcd)", "[a-z]+?", "a?(ab)?", "a*b*"])
def test_tokens_that_may_not_be_the_longest(pattern: str) -> None:
    """onnxruntime takes the longest match, Python the first one that it finds."""
    for name, value in (("tokenexp", pattern), ("separators", [pattern])):
        model = model_of("Tokenizer", [text("ab")], domain="com.microsoft", mark=0, mincharnum=1, pad_value="#",
                         **{name: value})  # fmt: skip
        for device in ("CPU", "TEMPLATE"):
            with pytest.raises(HeteroError, match="longest match"):
                results(model, device, text("ab"))


@pytest.mark.parametrize("pattern", ["a|b", "ab?", "[ab]*b", "(ab)?", "x{2}", r"\bab\w*", "[^b]+b", "(a)b{1,2}"])
def test_tokens_that_are_the_longest(pattern: str) -> None:
    source = np.random.default_rng(0)
    x = text(*("".join(source.choice([*"abx "], 9)) for _ in range(20)))
    model = model_of("Tokenizer", [x], domain="com.microsoft", mark=0, mincharnum=1, pad_value="#", tokenexp=pattern)
    for device in ("CPU", "TEMPLATE"):
        assert_same(results(model, device, x), on_ort(model, x))


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(a|a)*b", r"(a*)*", r"a*a*a*a*a*a*a*b", r"(a)\1", "(", "a" * 5000])
def test_patterns_without_a_bound_are_refused(pattern: str) -> None:
    model = model_of("RegexFullMatch", [WORDS], pattern=pattern)
    with pytest.raises(HeteroError, match="attribute pattern"):
        results(model, "CPU", WORDS)


@pytest.mark.parametrize("pattern", [r"[a-z]+", r"(red|blau)\d{0,3}", r"\w+@\w+\.com"])
def test_patterns(pattern: str) -> None:
    words = text("red", "rot", "blau12", "a@b.com", "")
    (found,) = results(model_of("RegexFullMatch", [words], pattern=pattern), "CPU", words)
    assert found.tolist() == [re.fullmatch(pattern, word, re.ASCII) is not None for word in words]


@pytest.mark.parametrize(("op", "domain", "attributes", "message"), [
    ("StringNormalizer", "", {"stopwords": [b"\xff"]}, "attribute stopwords has bytes that are not UTF-8"),
    ("StringSplit", "", {"maxsplit": -3}, "attribute maxsplit is -3"),
    ("TfIdfVectorizer", "", {"pool_strings": ["a"], "ngram_counts": [0], "ngram_indexes": [1 << 40],
                             "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "mode": "TF"},
     "attribute ngram_indexes"),
    ("TfIdfVectorizer", "", {"pool_strings": ["a"], "ngram_counts": [0, 9], "ngram_indexes": [0],
                             "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "mode": "TF"},
     "attribute ngram_counts"),
    ("TfIdfVectorizer", "", {"pool_strings": ["a", "b"], "ngram_counts": [0], "ngram_indexes": [0],
                             "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "mode": "TF"},
     "attribute ngram_indexes has 1 entries"),
    ("TfIdfVectorizer", "", {"pool_strings": ["a", "b"], "ngram_counts": [0], "ngram_indexes": [0, 0],
                             "weights": [1.0, 2.0],
                             "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "mode": "IDF"},
     "attribute weights has several numbers"),
    ("RegexFullMatch", "", {"pattern": "[[:alpha:]]+"}, "attribute pattern, .* POSIX class"),
    ("RegexFullMatch", "", {"pattern": "a{,3}"}, "attribute pattern, .* are not supported"),
    ("CategoryMapper", ML, {"cats_strings": ["a"], "cats_int64s": [1, 2]}, "attribute cats_strings has 1 entries"),
])  # fmt: skip
def test_bad_attributes_are_refused_when_compiling(
    op: str, domain: str, attributes: dict[str, Any], message: str
) -> None:
    core = Core()
    model = model_of(op, [WORDS[0]], 2 if op == "StringSplit" else 1, domain, **attributes)
    with pytest.raises(HeteroError, match=message) as caught:
        core.compile_model(core.read_model(model), "CPU")
    assert "'node'" in str(caught.value)


def test_constants_that_are_not_utf_8_are_refused_when_compiling() -> None:
    model = model_of("StringConcat", [WORDS[0], WORDS[0]])
    constant = onnx.TensorProto(name=model.graph.input[1].name, data_type=onnx.TensorProto.STRING, dims=[1])
    constant.string_data.append(b"\xff")
    del model.graph.input[1:]
    model.graph.initializer.append(constant)
    core = Core()
    with pytest.raises(HeteroError, match="a string is not UTF-8") as caught:
        core.compile_model(core.read_model(model), "CPU")
    assert "'node'" in str(caught.value)


def test_look_ups() -> None:
    table = {"a": 0, "ß": 2, 7: 1, 1.5: 3}
    items = ["a", "b", "ß", 7, 1.5, float("nan"), "", 7.0]
    x = np.array(items, object)
    found = places(table, x, 9, 8)
    assert found.dtype == np.int64
    assert found.tolist() == [table.get(item, 8 if item != item else 9) for item in items]
    assert places({}, x[:0], 0, 0).shape == (0,)
    rows, unknown = one_hot(table, x, 4)
    assert (rows.dtype, unknown) == (np.float32, 1)
    assert rows.tolist() == [[float(table.get(item) == i) for i in range(4)] for item in items]
    assert one_hot(table, text("a", "a"), 4)[1] == -1
    assert one_hot(table, text(shape=(0, 3)), 4)[0].shape == (0, 3, 4)
    strided = np.array([["a", "?"], ["ß", "?"]], object)[:, :1]
    assert places(table, strided, 9, 8).tolist() == [[0], [2]]
    assert places(table, strided.T, 9, 8).tolist() == [[0, 2]]
    assert one_hot(table, strided, 3)[0].tolist() == [[[1, 0, 0]], [[0, 0, 1]]]
    assert places(table, np.array(["a"], object).reshape(()), 9, 8).tolist() == 0
    wide = np.array([["a", "b", "ß"], ["?", "a", "a"]], object)
    for matrix in (wide, np.asfortranarray(wide), np.repeat(wide, 2, axis=1)[:, ::2], wide[:0]):
        for column in range(3):
            part = matrix[:, column : column + 1]
            np.testing.assert_array_equal(places(table, matrix, 9, 8, column), places(table, part, 9, 8))
            for one, other in zip(one_hot(table, matrix, 4, column), one_hot(table, part, 4), strict=True):
                np.testing.assert_array_equal(one, other)
    for array, column in ((wide, 3), (wide[0], 0), (wide[None], 0), (wide[:, :0], 0)):
        with pytest.raises(IndexError):
            places(table, array, 9, 8, column)
        with pytest.raises(IndexError):
            one_hot(table, array, 4, column)
    assert places(table, np.array([7, 8]), 9, 8).tolist() == [1, 9]
    assert places(table, np.array([1.5, np.nan], np.float32), 9, 8).tolist() == [3, 8]
    with pytest.raises(ValueError, match="number 3 is outside"):
        one_hot(table, np.array([1.5], object), 3)
    with pytest.raises(TypeError):
        places(table, np.array([[], None], object)[:1], 0, 0)


OBJECT = np.dtype(object)


@pytest.mark.parametrize("width", [1, 31, 32, 33, 64, 65, 90])
@pytest.mark.parametrize("characters", ["ab", "abé", "ab\U0001f600", "\0a", "\x7f\x80", "a\ud800"])
def test_matching_strings_of_a_fixed_width(width: int, characters: str) -> None:
    rng = np.random.default_rng(width)
    lines = ["".join(rng.choice(list(characters), rng.integers(0, width + 1))) for _ in range(400)]
    x = np.array(lines, f"U{width}").reshape(100, 4)
    for array in (x, x[:, 1:3], x.T, np.asfortranarray(x), x[:0], x.astype(f">U{width}"), x[:1, 0].reshape(())):
        (found,) = matching([array], [(OBJECT, array.shape)]) or [None]
        assert found is not None
        assert found.shape == array.shape
        assert found.tolist() == array.astype(object).tolist()
        assert {type(item) for item in found.flat} <= {str}


def test_what_does_not_match() -> None:
    class Text(str):
        __slots__ = ()

    for item in (1, None, b"a", Text("a"), np.str_("a"), 1.0):
        x = np.array([["a", item]], object)
        assert matching([x], [(OBJECT, (1, 2))]) is None
        assert matching([x[:, 1:]], [(OBJECT, (1, 1))]) is None
        (found,) = matching([x[:, :1]], [(OBJECT, (1, 1))]) or [None]
        assert found is not None
    texts = text("a", "b")
    assert matching([texts], [(OBJECT, (2,))]) == [texts]
    noted = np.array([1, 2], np.dtype(object, metadata={"a": 1}))
    for x in (texts.tolist(), texts[:1], np.array([b"a", b"b"]), np.empty(2, object), np.ones(2), noted,
              np.array(["a", "b"], np.dtypes.StringDType()), np.array([0x110000, 0], np.uint32).view("U1"),
              texts.view(type("Other", (np.ndarray,), {}))):  # fmt: skip
        assert matching([x], [(OBJECT, (2,))]) is None
    number = np.ones(2, np.float32)
    assert matching([texts, number], [(OBJECT, (2,)), (number.dtype, (2,))]) == [texts, number]
    for x in (number.astype(">f4"), number.astype(np.float64), texts, np.array(["a", "b"])):
        assert matching([x], [(number.dtype, (2,))]) is None


@given(st.text(st.sampled_from("ab.\x00 ~\x7fé\ud800"), max_size=12), st.sets(st.sampled_from("ab \x00")))
def test_runs(text: str, members: set[str]) -> None:
    is_member = bytes(chr(code) in members for code in range(128))
    expected = ["".join(part) for inside, part in itertools.groupby(text, members.__contains__) if inside]
    assert runs(text, is_member, False) == (expected if text.isascii() else None)
    if all(character < "\x80" for character in members):
        assert runs(text, is_member, True) == (None if "\ud800" in text else expected)


def test_runs_need_a_table_of_ascii() -> None:
    with pytest.raises(ValueError, match="127 bytes"):
        runs("a", bytes(127), True)


@pytest.mark.parametrize("labels", [(), ("a",), (1, 2), ("a", "b", "a"), tuple(range(20))])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_maps(labels: tuple[Any, ...], count: int) -> None:
    rows = np.random.default_rng(0).normal(size=(count, len(labels))).astype(np.float32)
    if count and labels:
        rows[0, 0] = np.nan
    (found,) = Maps(labels)(rows)
    wanted = [dict(zip(labels, row, strict=True)) for row in rows.tolist()]
    assert [list(row) for row in found] == [list(row) for row in wanted]
    values = [[list(row.values()) for row in each] for each in (found, wanted)]
    np.testing.assert_array_equal(*values)
    for other in (np.asfortranarray(rows), rows[::-1][::-1], np.repeat(rows, 2, axis=1)[:, ::2]):
        assert repr(Maps(labels)(other)) == repr([found])
    if count:
        assert repr(Maps(labels)(rows[0])) == repr([found[:1]])
    for wrong in (rows[None], np.zeros((), np.float32), np.zeros((count, len(labels) + 1), np.float32)):
        with pytest.raises(ValueError, match="does not fit"):
            Maps(labels)(wrong)
    for dtype in (np.float64, ">f4"):
        with pytest.raises(ValueError, match="expected float32"):
            Maps(labels)(rows.astype(dtype))
