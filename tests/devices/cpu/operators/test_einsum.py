"""Einsum on the CPU, against `numpy.einsum`."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from hetero import Core, InferenceError
from single_node import run


def einsum(equation: str, arrays: list[np.ndarray]) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(arrays))]
    inputs = []
    for name, array in zip(names, arrays, strict=True):
        dims: list[Any] = [f"{name}{axis}" for axis in range(array.ndim)]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims))
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(arrays[0].dtype), None)
    node = helper.make_node("Einsum", names, ["y"], name="sum", equation=equation)
    graph = helper.make_graph([node], "graph", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(equation: str, arrays: list[np.ndarray]) -> None:
    (found,) = run(einsum(equation, arrays), {f"x{i}": array for i, array in enumerate(arrays)})
    wanted = np.einsum(equation, *arrays)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@given(data=st.data())
def test_equations(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    sizes = {label: data.draw(st.integers(1, 4)) for label in "abcde"}
    terms = data.draw(st.lists(st.lists(st.sampled_from("abcde"), max_size=4), min_size=1, max_size=3))
    dots = [data.draw(st.integers(0, 2)) if data.draw(st.booleans()) else None for _ in terms]
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64"]))
    spelled, arrays = [], []
    for term, count in zip(terms, dots, strict=True):
        at = data.draw(st.integers(0, len(term)))
        shape = [sizes[label] for label in term]
        if count is not None:
            shape[at:at] = [2, 3][2 - count :]
        spelled.append("".join(term[:at]) + ("..." if count is not None else "") + "".join(term[at:]))
        arrays.append(rng.integers(-3, 4, shape).astype(dtype))
    equation = ",".join(spelled)
    if data.draw(st.booleans()):
        present = sorted({label for term in terms for label in term})
        chosen = data.draw(st.permutations(present))[: data.draw(st.integers(0, len(present)))]
        place = data.draw(st.integers(0, len(chosen)))
        some = any(count is not None for count in dots)
        equation += "->" + "".join(chosen[:place]) + ("..." if some else "") + "".join(chosen[place:])
    check(equation, arrays)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bnqd,bnkd -> bnqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("i,j,k->", [(3,), (4,), (5,)]),
        ("ii->i", [(4, 4)]),
        ("...ii->...", [(2, 4, 4)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ab,ab->ab", [(3, 1), (1, 4)]),
        ("ij->ji", [(0, 3)]),
        ("ij,jk", [(2, 0), (0, 3)]),
        (",a->a", [(), (3,)]),
    ],
)
def test_typical(equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    check(equation, [rng.standard_normal(shape).astype(np.float32) for shape in shapes])


@pytest.mark.parametrize("equation", ["ij,jk->ikz", "ij->ii", "i1,j", "ij", "ij,jk,kl", "i..j,j", "ij,jk->i->k", "=,"])
def test_equations_that_mean_nothing_are_refused(equation: str) -> None:
    arrays = [np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)]
    core = Core()
    (reasons,) = core.query_model(core.read_model(einsum(equation, arrays)), "CPU").reasons.values()
    assert "Einsum" in reasons["CPU"]


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ijk,j->i", "i,j->ij"])
def test_operands_that_do_not_fit_name_the_node(equation: str) -> None:
    arrays = [np.ones((2, 3), np.float32), np.ones((2, 2), np.float32)]
    with pytest.raises(InferenceError, match="'sum' .Einsum.*(label|does not fit)"):
        run(einsum(equation, arrays), {"x0": arrays[0], "x1": arrays[1]})


def test_more_dimensions_than_kernels_take_is_an_error() -> None:
    labels = string.ascii_lowercase[:10]
    arrays = [np.ones((1, 2, 1, 2, 2), np.float32), np.ones((2, 1, 2, 2, 2), np.float32)]
    with pytest.raises(InferenceError, match="8 dimensions"):
        run(einsum(f"{labels[:5]},{labels[5:]}->{labels}", arrays), {"x0": arrays[0], "x1": arrays[1]})
