"""A table of the models in a folder, and the differences of their results."""

from __future__ import annotations

import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sessions import largest_difference
from table import Table

SCRIPT = Path(__file__).parents[2] / "bench" / "exported_models.py"


def arrays(*values: Any) -> list[np.ndarray]:
    return [np.array(value, np.float32) for value in values]


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([], [], 0),
        (arrays([1, 2], [0.5]), arrays([1, 4], [0.5]), 0.5),
        (arrays([1, np.nan, np.inf]), arrays([1, np.nan, np.inf]), 0),
        (arrays([1, 2]), arrays([1, np.nan]), np.inf),
        (arrays([1, np.nan]), arrays([1, 2]), np.inf),
        (arrays([np.inf]), arrays([-np.inf]), np.inf),
        (arrays([np.nan]), arrays([np.nan]), 0),
        (arrays([]), arrays([]), 0),
        (arrays([0, 0]), arrays([0, 0]), 0),
        (arrays([[1, 2]]), arrays([1, 2]), np.inf),
        ([np.array([1, 2])], [np.array([1, 2])], 0),
        ([np.array([1, 2])], [np.array([1, 3])], np.inf),
        ([np.array(["a"], object)], [np.array(["a"], object)], 0),
        ([np.array(["a"], object)], [np.array(["b"], object)], np.inf),
        ([[{0: 0.25, 1: 0.75}]], [[{0: 0.5, 1: 0.5}]], 0.5),
        ([[{0: 0.5, 2: 0.5}]], [[{0: 0.5, 1: 0.5}]], np.inf),
        ([arrays([1], [2, 4])], [arrays([1], [2, 5])], 0.2),
    ],
)
def test_largest_difference(found: list[Any], expected: list[Any], difference: float) -> None:
    assert largest_difference(found, expected) == pytest.approx(difference)


def test_another_number_of_results_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        largest_difference(arrays([1]), arrays([1], [2]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that runs, one whose operator is unknown, and one without inputs."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    for name, operator in (("good", "Relu"), ("bad", "Unknown"), ("lonely", "Relu")):
        graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], name, [x], [y])
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            tmp_path / f"{name}.onnx",
        )
        if name != "lonely":
            np.savez(tmp_path / f"{name}.npz", x=np.linspace(-1, 1, 4, dtype=np.float32))
    return tmp_path


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Table]]:
    """What the program prints for these arguments."""

    def run(*arguments: str) -> Table:
        monkeypatch.setattr(sys, "argv", ["exported_models.py", *arguments, "--seconds", "0.01"])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return Table.parse(capsys.readouterr().out)

    handler = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(
    "options", [(), ("--reference",), ("--compile",), ("--memory",), ("--device", "HETERO:CPU,ORT")], ids="-".join
)
def test_a_model_that_fails_is_listed(folder: Path, options: tuple[str, ...], table: Callable[..., Table]) -> None:
    found = table(str(folder), *options)
    bad, good, mean, worst = found.rows
    assert (bad[0], bad[4]) == ("bad", "")
    assert "Error" in bad[-1] or "Fail" in bad[-1]
    assert (good[0], good[1], good[-1]) == ("good", "1", "")
    assert (mean[0], mean[4], worst[-1]) == ("geometric mean of 1", good[4], "good")
    assert 0 < float(good[4]) < 100


def test_words_select_models(folder: Path, table: Callable[..., Table]) -> None:
    assert [row[0] for row in table(str(folder), "goo").rows[:-2]] == ["good"]
