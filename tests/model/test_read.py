"""The index against a naive reader in plain Python over `onnx`: the same model, whatever the file."""

from __future__ import annotations

import importlib.util
import pathlib
import random

import hypothesis.strategies as st
import onnx
import pytest
from hypothesis import given

from hetero.model.read import read_model
from model.naive_reader import check
from model.random_models import make_random_model, rewritten
from template_runs import telling


def wheel_models() -> list[pathlib.Path]:
    spec = importlib.util.find_spec("onnx")
    assert spec is not None
    assert spec.origin is not None
    return sorted((pathlib.Path(spec.origin).parent / "backend" / "test" / "data").rglob("*.onnx"))


@pytest.mark.parametrize("path", wheel_models(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_models_of_the_onnx_wheel(path: pathlib.Path) -> None:
    check(read_model(path), onnx.load(path))


def test_minilm(minilm: pathlib.Path) -> None:
    check(read_model(minilm), onnx.load(minilm))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_models_of_the_node_tests(every: bool) -> None:
    """Models that onnx's own node tests are made of: all operators, nested graphs, sequences, optionals."""
    from onnx.backend.test.case.node import collect_testcases

    cases = [case for case in collect_testcases(None) if case.model is not None]
    assert len(cases) > 1000
    for model in (case.model for case in (cases if every else telling(cases, by_type=False))):
        check(read_model(model), model)


@given(st.randoms(use_true_random=False))
def test_random_models(rng: random.Random) -> None:
    model = make_random_model(rng)
    check(read_model(model.SerializeToString()), model)


@given(st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_random_models_in_other_encodings(rng: random.Random, seed: int) -> None:
    model = make_random_model(rng)
    data = rewritten(random.Random(seed), model)
    again = onnx.ModelProto.FromString(data)
    check(read_model(data), again, fields_ordered=False)
    plain = onnx.ModelProto.FromString(data)
    plain.DiscardUnknownFields()
    assert plain == model


@pytest.mark.parametrize("path", wheel_models(), ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("encodings", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_models_of_the_onnx_wheel_in_other_encodings(path: pathlib.Path, encodings: int) -> None:
    rng = random.Random(0)
    for _ in range(encodings):
        data = rewritten(rng, onnx.load(path))
        check(read_model(data), onnx.ModelProto.FromString(data), fields_ordered=False)
