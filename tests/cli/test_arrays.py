"""Arrays as the command line prints and saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hetero.cli.arrays import save_arrays, summary
from hetero.plugin.tensor import Outputs


def test_summary() -> None:
    values = np.array([[1.0, np.nan], [np.inf, -3.0]], np.float32)
    found = summary(values)
    assert (found["min"], found["max"], found["nan"], found["inf"]) == (-3.0, 1.0, 1, 1)
    assert summary(np.array([np.nan]))["mean"] is None
    for texts in (np.array(["a"], object), np.array(["a"]), np.array([b"a"])):
        assert summary(texts)["dtype"] == "string"
    assert summary(np.array([True, False]))["mean"] == 0.5
    assert summary(np.zeros((0, 3)))["min"] is None
    assert summary([values, values]) == {**summary(None), "kind": "sequence", "length": 2}


def test_saved_arrays_keep_their_values(tmp_path: Path) -> None:
    import ml_dtypes

    values: list[Any] = [
        np.array([1.5, 2], ml_dtypes.bfloat16),
        np.array(["a", "bc"], object),
        [np.arange(3), None, np.arange(2)],
        np.array([1, -2], ml_dtypes.int4),
        np.array(3.5, np.float16),
    ]
    names = ["file", "../up", "seq", "four", "half"]
    called = save_arrays(str(tmp_path / "o.npz"), Outputs({name: i for i, name in enumerate(names)}, values))
    assert called == {"file": "file", "../up": "output_1", "seq": "seq", "four": "four", "half": "half"}
    loaded = np.load(tmp_path / "o.npz")
    assert loaded["file"].tolist() == [1.5, 2]
    assert loaded["output_1"].tolist() == ["a", "bc"]
    assert loaded["seq.0"].tolist() == [0, 1, 2]
    assert loaded["seq.2"].tolist() == [0, 1]
    assert loaded["four"].tolist() == [1, -2]
    assert loaded["half"].dtype == np.float16


def test_maps(tmp_path: Path) -> None:
    """As ZipMap returns them: an array with a row for each map, and the keys."""
    rows = [{"cat": 0.25, "dog": 0.75}, {"cat": 0.5, "dog": 0.5}]
    found = summary(rows)
    assert (found["kind"], found["dtype"], found["shape"], found["max"]) == ("maps", None, [2, 2], 0.75)
    called = save_arrays(str(tmp_path / "o.npz"), Outputs({"scores": 0}, [rows]))
    assert called == {"scores": "scores"}
    loaded = np.load(tmp_path / "o.npz")
    assert loaded["scores"].tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert loaded["scores.keys"].tolist() == ["cat", "dog"]
    assert repr(Outputs({"scores": 0}, [rows])) == "Outputs({'scores': 2 maps})"
