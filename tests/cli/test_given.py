"""Values of inputs that are given on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from given_inputs import made, ports
from hetero import HeteroError
from hetero.cli.group import Failure
from hetero.cli.inputs import InputChoice

F, I64, U8, BOOL, F16 = (getattr(TensorProto, name) for name in ("FLOAT", "INT64", "UINT8", "BOOL", "FLOAT16"))


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "expected"),
    [
        ("16000", I64, (), 16000),
        ("x=16000", I64, (), 16000),
        ("-3", I64, (1,), [-3]),
        ("9223372036854775807", I64, (), 2**63 - 1),
        ("0.5", F, (2, 3), [[0.5] * 3] * 2),
        ("1", F, (None, 2), [[1, 1]]),
        ("2.0", I64, (), 2),
        ("1,2,3", I64, (3,), [1, 2, 3]),
        ("[1, 2, 3]", I64, (1, 3), [[1, 2, 3]]),
        ("1,2,3,4,5,6", I64, (2, 3), [[1, 2, 3], [4, 5, 6]]),
        ("1,2,3", F, ("batch", "length"), [[1, 2, 3]]),
        ("[[1,2],[3,4]]", F, (None, None), [[1, 2], [3, 4]]),
        ("[1]", F, (), 1),
        ("1e3,-inf,nan", F, (3,), [1000, -np.inf, np.nan]),
        ("true", BOOL, (), True),
        ("True,false", BOOL, (2,), [True, False]),
        ("0,1", BOOL, (2,), [False, True]),
        ("255", U8, (), 255),
        ("0.1", F16, (), np.float16(0.1)),
    ],
)
def test_numbers_and_lists(value: str, dtype: int, shape: tuple[Any, ...], expected: Any) -> None:
    array = made(value, ports(*shape, dtype=dtype))
    np_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    assert array.dtype == np_dtype
    np.testing.assert_array_equal(array, np.array(expected, np_dtype))
    assert array.ndim == len(shape)


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "words"),
    [
        ("0.5", I64, (), "takes int64, which cannot hold 0.5"),
        ("9223372036854775808", I64, (), "takes int64, which cannot hold 9223372036854775808"),
        ("1e19", I64, (), r"cannot hold 1e\+19"),
        ("9.3e18,1", I64, (2,), r"cannot hold 9.3e\+18"),
        ("-1", U8, (), "takes uint8, which cannot hold -1"),
        ("256", U8, (), "takes uint8, which cannot hold 256"),
        ("2", BOOL, (), "takes bool, which cannot hold 2"),
        ("nan", I64, (), "cannot hold nan"),
        ("70000", F16, (), "takes float16, which cannot hold 70000"),
        ("99999999999999999999999", I64, (), "numbers of at most 64 bits"),
        ("9223372036854775809,-1", I64, (2,), "numbers of at most 64 bits"),
        ("1,2", F, (3,), r"has the shape \[3\], found \[2\]"),
        ("[[1,2],[3,4],[5,6]]", F, (2, 3), r"has the shape \[2, 3\], found \[3, 2\]"),
        ("1,2,3", F, ("n", 2), r"has the shape \[n, 2\], found \[3\]"),
        ("[[1],[2,3]]", F, (2, 2), "unequal lengths"),
        ("[1,", F, (2,), "is neither a file nor a number"),
        ("[" * 10_000, F, (2,), "is neither a file nor a number"),
        ('["a"]', F, (1,), "expected numbers"),
        ("words", F, (), "'words' is neither a file nor a number"),
        ("", F, (), "is neither a file nor a number"),
        ("1,,2", F, (3,), "is neither a file nor a number"),
        ("y=1", F, (), "no input 'y'.*its inputs: x"),
        ("gone.bin", F, (), "is neither a file nor a number"),
        *(
            (text, F, (2,), "beyond the largest float64")
            for text in ("1e400", "1,-1e400", "[1, 1e400]", "[[2e999, 1]]")
        ),
    ],
)
def test_values_that_do_not_fit(value: str, dtype: int, shape: tuple[Any, ...], words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        made(value, ports(*shape, dtype=dtype))


def test_sizes_from_options_count() -> None:
    of = ports("batch", "length")
    assert made("1", of, dims=["batch=2", "length=3"]).shape == (2, 3)
    assert made("1,2,3,4,5,6", of, shapes=["2x3"]).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert InputChoice(inputs=["1,2,3"]).stated_shapes(of) == {"x": (1, 3)}
    with pytest.raises(click.UsageError, match=r"has the shape \[2, 2\], found \[3\]"):
        made("1,2,3", of, shapes=["2x2"])


def test_a_row_for_one_unknown_size() -> None:
    """The columns of scikit-learn's models have the shape [?, 1]."""
    assert made("25,30,35", ports(None, 1)).tolist() == [[25], [30], [35]]
    assert made("1,2,3,4", ports("n", 2)).tolist() == [[1, 2], [3, 4]]
    assert made("1,2", ports("n", 2)).tolist() == [[1, 2]]
    assert made("1,2,3,4,5,6", ports(2, None)).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert made('["good", "bad"]', ports(None, 1, dtype=TensorProto.STRING)).tolist() == [["good"], ["bad"]]
    assert made("1,2,3", ports(None, None)).shape == (1, 3)  # two unknown sizes
    with pytest.raises(click.UsageError, match=r"has the shape \[n, 0\], found \[3\]"):
        made("1,2,3", ports("n", 0))


def test_text_of_strings() -> None:
    of = ports(None, dtype=TensorProto.STRING)
    assert made("hello world", of).tolist() == ["hello world"]
    assert made('["a", "b"]', of).tolist() == ["a", "b"]
    assert made("[not json", of).tolist() == ["[not json"]


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("1 2 3\n4 5 6\n", (2, 3), [[1, 2, 3], [4, 5, 6]]),
        ("1,2,3\n4,5,6\n", (1, 2, 3), [[[1, 2, 3], [4, 5, 6]]]),
        ("1;2\n\n# a comment\n3\t4 # another\n5 6", (3, 2), [[1, 2], [3, 4], [5, 6]]),
        ("1\n2\n3\n4\n", (2, 2), [[1, 2], [3, 4]]),
        ("1 2 3 4", (2, 2), [[1, 2], [3, 4]]),
        ("1 2\n3 4\n5 6\n7 8\n", (2, 2, 2), [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
        ("1 2 3\n4", ("n",), [1, 2, 3, 4]),
        ("7", (1, 1), [[7]]),
    ],
)
@pytest.mark.parametrize("name", ["v.txt", "v.csv", "V.TSV"])
def test_text_files(text: str, shape: tuple[Any, ...], expected: Any, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    for dtype in (F, I64):
        array = made(f"x={path}", ports(*shape, dtype=dtype))
        assert array.tolist() == expected


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (b"1 two 3", Failure, "line 1: expected numbers, found 'two'"),
        (b"\n# nothing\n", Failure, "contains no numbers"),
        (b"\xff\xfe1", Failure, "cannot read"),
        (b"1 2 3\n4 5 6", click.UsageError, r"has the shape \[3, 2\], found \[2, 3\]"),
        (b"1 2 3\n4 5", click.UsageError, r"found \[5\]; line 2 is not as long as those before it"),
        (b"1.5", click.UsageError, "takes int64, which cannot hold 1.5"),
    ],
)
def test_text_files_that_do_not_fit(text: bytes, kind: type[Exception], words: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(text)
    shape, dtype = ((), I64) if b"1.5" in text else ((3, 2), F)
    with pytest.raises(kind, match=words):
        made(f"x={path}", ports(*shape, dtype=dtype))
    with pytest.raises(Failure, match="cannot read .*No such file"):
        made("x=gone.txt", ports(2))


def test_numpy_files_by_name(tmp_path: Path) -> None:
    of, one, two = ports(2), np.float32([1, 2]), np.float32([3, 4])
    np.savez(tmp_path / "named.npz", x=one, other=two)
    np.savez(tmp_path / "single.npz", other=two)
    np.savez(tmp_path / "wrong.npz", a=one, b=two)
    assert made(f"x={tmp_path / 'named.npz'}", of).tolist() == [1, 2]
    assert made(f"x={tmp_path / 'named.npz'}:other", of).tolist() == [3, 4]
    assert made(f"x={tmp_path / 'single.npz'}", of).tolist() == [3, 4]
    np.savez(tmp_path / "colons.npz", **{"a/x:0": one, "b": two})
    assert made(f"x={tmp_path / 'colons.npz'}:a/x:0", of).tolist() == [1, 2]
    for suffix, words in (("", "has no array 'x'"), (":c", "has no array 'c'")):
        with pytest.raises(click.UsageError, match=f"{words}.*its arrays: a, b; select one with"):
            made(f"x={tmp_path / 'wrong.npz'}{suffix}", of)
    with pytest.raises(click.UsageError, match="no input 'other'"):
        made(str(tmp_path / "named.npz"), of)


def test_files_without_named_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz")
    np.save(tmp_path / "one.npy", np.float32([1, 2]))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "empty.npz").touch()
    with pytest.raises(click.UsageError, match="expected arrays by name, found no arrays"):
        made(str(tmp_path / "none.npz"), ports(2))
    with pytest.raises(click.UsageError, match="expected arrays by name, found one array without a name"):
        made(str(tmp_path / "one.npz"), ports(2))
    with pytest.raises(Failure, match="it is empty"):
        made(str(tmp_path / "empty.npz"), ports(2))


def test_an_input_that_is_given_twice(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.float32([1, 2]))
    for second in ("x=1", str(tmp_path / "x.npz")):
        with pytest.raises(click.UsageError, match=f"'x' is given twice, by x=0 and {second}"):
            InputChoice(inputs=["x=0", second]).make(ports(2))


def test_an_existing_file_is_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("7").write_text("")
    with pytest.raises(click.UsageError, match=r"expected an image, or a file whose name ends in \.npy"):
        made("x=7", ports())


def test_values_of_several_inputs_in_a_run(hetero_json: Any, two_inputs_path: Path) -> None:
    assert onnx.load(two_inputs_path).graph.input[0].name == "tokens"
    found = hetero_json("run", two_inputs_path, "-i", "tokens=1,2,3", "-i", "mask=[[1, 0, 0.5]]")
    assert [(entry["shape"], entry["source"]) for entry in found["inputs"]] == [([1, 3], "given")] * 2
    # The table holds 0 to 29. Of its rows 1, 2 and 3, the mask drops the second and halves the third.
    (output,) = found["outputs"]
    assert (output["min"], output["max"]) == (0, 5.5)
    assert output["mean"] == pytest.approx((3 + 4 + 5 + (9 + 10 + 11) / 2) / 9)


def test_ranges_of_integers_hold_for_bounds_between_them() -> None:
    (entry,) = InputChoice(ranges=["0.5:2.5"], shapes=["100"]).make(ports("n", dtype=I64))
    assert set(entry.array.tolist()) == {1, 2}
    (entry,) = InputChoice(ranges=["-1.5:0.5"], shapes=["100"]).make(ports("n", dtype=I64))
    assert set(entry.array.tolist()) == {-1, 0}
    with pytest.raises(HeteroError, match=r"the range 0.2:0.7 has no integer for int64"):
        InputChoice(ranges=["0.2:0.7"]).make(ports("n", dtype=I64))


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "all.npz", x=np.float32([1, 2]))
    np.save(tmp_path / "x.npy", np.float32([3, 4]))
    read: list[str] = []
    load = np.load
    monkeypatch.setattr(np, "load", lambda path, **options: read.append(path) or load(path, **options))
    for entry in (str(tmp_path / "all.npz"), f"x={tmp_path / 'x.npy'}"):
        read.clear()
        choice = InputChoice((entry,))
        assert choice.named_inputs(["x"]) == {"x"}
        assert choice.stated_shapes(ports("n")) == {"x": (2,)}
        assert choice.make(ports("n"))[0].array.shape == (2,)
        assert choice.make(ports(2))[0].array.shape == (2,)
        assert len(read) == 1


def test_a_file_with_several_inputs_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "all.npz"
    np.savez(path, a=np.float32([1, 2]), b=np.float32([3, 4]))
    read: list[str] = []
    load = np.load
    monkeypatch.setattr(np, "load", lambda path, **options: read.append(path) or load(path, **options))
    two = [*ports(2, name="a"), *ports(2, name="b")]
    for entries in ((f"a={path}", f"b={path}"), (f"a={path}:b", f"b={path}:a")):
        read.clear()
        choice = InputChoice(entries)
        assert choice.named_inputs(["a", "b"]) == {"a", "b"}
        assert choice.stated_shapes(two) == {"a": (2,), "b": (2,)}
        found = {entry.name: entry.array.tolist() for entry in choice.make(two)}
        assert found == ({"a": [1, 2], "b": [3, 4]} if ":" not in entries[0][-3:] else {"a": [3, 4], "b": [1, 2]})
        assert read == [str(path)]
