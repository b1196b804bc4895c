"""Strings that LabelEncoders make of numbers: within plans as far as no kernel reads them, and the same everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from hetero import Core, HeteroError, load
from hetero.devices.cpu import labels
from hetero.devices.cpu.registry import NodePlan, examine
from sessions import onnxruntime_session

Array = np.ndarray[Any, Any]
ML = "ai.onnx.ml"
HEAD = '<ir_version: 9, opset_import: ["" : 20, "ai.onnx.ml" : 3]> agraph '
ENCODER = "ai.onnx.ml.LabelEncoder"
A = f'{ENCODER} <keys_floats = [1.0, 2.0, 0.0], values_strings = ["a", "b", "null"], default_string = "?"> (x)'
B = f'{ENCODER} <keys_floats = [2.0, 7.0], values_strings = ["B", "a"]> (x)'
FLOATS = np.array([[1, 2, -0.0], [np.nan, 7, 3], [np.inf, 1.0000001, 0]], np.float32)


def plans_of(model: onnx.ModelProto) -> list[NodePlan]:
    read = Core().read_model(model)
    plans, reasons = examine(read, lambda *_: None)
    assert not reasons
    return labels.in_plans(read, plans)


def in_python(model: onnx.ModelProto) -> list[str]:
    """The operators that run in Python, in the order of the nodes."""
    return [plan.node.op_type.split(":")[-1] for plan in plans_of(model) if plan.operator.host is not None]


def check(model: onnx.ModelProto, batches: list[dict[str, Array]], config: dict[str, Any] | None = None) -> None:
    """Results like onnxruntime's, in one request, and unchanged by later calls."""
    session = onnxruntime_session(model)
    request = Core().compile_model(model, "CPU", config or {}).create_infer_request()
    kept = []
    for given in [batch for batch in batches for _ in range(3)]:
        kept.append((list(request.infer(given)), session.run(None, given)))
    for found, wanted in kept:
        for one, other in zip(found, wanted, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)


def batches_of(array: Array) -> list[dict[str, Array]]:
    """Sizes that change between calls, also none and one."""
    return [{"x": array[:rows]} for rows in (3, 1, 0, 2, 3)]


CHAINS = {  # nodes, inputs and outputs besides x, and the nodes that stay in Python
    "moved": (f"p = {A} q = Reshape (p, flat) y = Unsqueeze (q, zero)", []),
    "joined": (f"p = {A} q = {B} r = Reshape (q, like) y = Concat <axis = 1> (p, r, p)", []),
    "joined twice": (
        f"p = {A} q = {B} r = Concat <axis = 0> (p, q) s = Flatten (r) y = Concat <axis = 0> (s, p, r)",
        [],
    ),
    "transposed": (f"p = {A} q = Identity (p) y = Transpose <perm = [1, 0]> (q)", []),
    "read by Python": (f"p = {A} y = StringConcat (p, p)", ["StringConcat"]),
    "joined with strings": (
        f'p = {A} t = Cast <to = 8> (x) u = Reshape (p, like) y = Concat <axis = 0> (u, t)',
        ["Cast", "Concat"],
    ),
    "read by a kernel": (
        f'p = {A} c = {ENCODER} <keys_strings = ["b"], values_int64s = [5]> (p) y = Add (c, c)',
        ["LabelEncoder", "LabelEncoder"],
    ),
    "moved before a kernel": (
        f'p = {A} q = Reshape (p, like) c = {ENCODER} <keys_strings = ["b"], values_int64s = [5]> (q) y = Neg (c)',
        ["LabelEncoder", "Reshape", "LabelEncoder"],
    ),
    "after a kernel": (f"z = Neg (x) p = {ENCODER} <keys_floats = [-1.0], values_strings = [\"m\"]> (z) "
                       "y = Reshape (p, flat)", []),
    "sizes that are computed": (f"p = {A} s = Shape (x) y = Reshape (p, s)", ["Reshape"]),
}  # fmt: skip


def chain(case: str) -> onnx.ModelProto:
    text, _ = CHAINS[case]
    last = "int64" if "kernel" in case and "after" not in case else "string"
    constants = "<int64[1] flat = {-1}, int64[2] like = {0, 3}, int64[1] zero = {0}>"
    model = parser.parse_model(f"{HEAD} (float[n, 3] x) => ({last} y) {constants} {{ {text} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("config", [{}, {"PERF_COUNT": True}, {"DISABLE_TRANSFORMATIONS": True}])
@pytest.mark.parametrize("case", CHAINS)
def test_chains(case: str, config: dict[str, Any]) -> None:
    model = chain(case)
    assert in_python(model) == CHAINS[case][1]
    check(model, batches_of(FLOATS), config)


def test_outputs_between_moves() -> None:
    """Labels that the model returns before and after they are moved, one of them twice."""
    model = parser.parse_model(f"""{HEAD} (float[n, 3] x) =>
        (string[n, 3] p, string[m] q, string[k, 3] r, string[n, 3] i) <int64[1] flat = {{-1}}> {{
            p = {A}
            q = Reshape (p, flat)
            r = Concat <axis = 0> (p, p)
            i = Identity (p)
        }}""")
    assert not in_python(model)
    check(model, batches_of(FLOATS))
    compiled = Core().compile_model(model, "CPU")
    results = list(compiled({"x": FLOATS}))
    for i, one in enumerate(results):
        assert not any(np.shares_memory(one, other) for other in results[i + 1 :])
        one[...] = "changed"
    assert compiled({"x": FLOATS})["p"][0].tolist() == ["a", "b", "null"]


def encoder(keys: Array, opset: int, **attributes: Any) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(keys.dtype)
    if opset >= 4:
        values = np.array([f"<{i}>" for i in range(len(keys))], object)
        attributes |= {
            "keys_tensor": numpy_helper.from_array(keys),
            "values_tensor": numpy_helper.from_array(values),
            "default_tensor": numpy_helper.from_array(np.array(["none"], object)),
        }
    else:
        name = "keys_floats" if keys.dtype == np.float32 else "keys_int64s"
        attributes |= {name: keys.tolist(), "values_strings": [f"<{i}>" for i in range(len(keys))]}
    graph = helper.make_graph(
        [helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", kind, None)],
        [helper.make_tensor_value_info("y", TensorProto.STRING, None)],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(ML, opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.mark.parametrize("opset", [2, 3, 4])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32", "int16"])
def test_keys(kind: str, opset: int) -> None:
    dtype = np.dtype(kind)
    if opset < 4 and kind not in ("float32", "int64"):
        pytest.skip("keys of this type are tensors, which began with opset 4")
    keys, x = np.array([3, -1, 0, 7], dtype), np.array([[7, 3, 2], [-1, 0, 8]], dtype)
    if dtype.kind == "f":
        keys = np.concatenate([keys, np.array([np.nan, np.inf, 2.5], dtype)])
        x = np.concatenate(
            [x, np.array([[np.nan, -0.0, np.inf], [-np.inf, 2.5, np.nextafter(dtype.type(3), 4)]], dtype)]
        )
    model = encoder(keys, opset)
    assert not in_python(model)
    given = [x, x[:1], x[:0], x[0, 0], x[0], x[:, ::2]]
    table = {key: f"<{i}>" for i, key in enumerate(keys.tolist()) if key == key}
    default = "none" if opset >= 4 else "_Unused"
    of_nan = "<4>" if opset >= 4 else default
    request = Core().compile_model(model, "CPU").create_infer_request()
    for array in [each for each in given for _ in range(2)]:
        found = request.infer({"x": array})["y"]
        wanted = [of_nan if item != item else table.get(item, default) for item in array.reshape(-1).tolist()]
        assert (found.dtype, found.shape) == (object, array.shape)
        assert found.reshape(-1).tolist() == wanted


def test_keys_that_are_given_twice() -> None:
    for keys in (np.array([1, 1]), np.array([0.0, -0.0], np.float32)):
        with pytest.raises(HeteroError, match="a key that is given twice"):
            Core().compile_model(encoder(keys, 2), "CPU")
    # Of several keys that are NaN, the first counts.
    model = encoder(np.array([np.nan, 1, np.nan], np.float32), 4)
    found = Core().compile_model(model, "CPU")({"x": np.array([np.nan, 1, 2], np.float32)})["y"]
    assert found.tolist() == ["<0>", "<1>", "none"]
    model = encoder(np.array([np.nan, np.nan], np.float32), 4)
    assert Core().compile_model(model, "CPU")({"x": np.float32([np.nan, 1])})["y"].tolist() == ["<0>", "none"]


def test_an_input_of_another_type() -> None:
    """The model does not state it, so only the run shows it."""
    model = encoder(np.array([1, 2]), 2)
    compiled = Core().compile_model(model, "CPU")
    with pytest.raises(HeteroError):
        compiled({"x": np.array(["a"], object)})
    assert compiled({"x": np.array([2, 5])})["y"].tolist() == ["<1>", "_Unused"]


def test_labels_of_a_classifier_are_moved() -> None:
    model = parser.parse_model(f"""{HEAD} (float[n, 2] x) => (string[n, m] y)
        <int64[2] column = {{-1, 1}}> {{
            label, scores = ai.onnx.ml.LinearClassifier <classlabels_strings = ["nein", "ja"],
                coefficients = [1.0, -1.0, -1.0, 1.0], intercepts = [0.0, 0.1]> (x)
            first = Slice (x, zero, one, one)
            left = Reshape (label, column)
            code = {ENCODER} <keys_floats = [1.0], values_strings = ["eins"]> (first)
            y = Concat <axis = 1> (left, code)
        }}""")
    for name, number in (("zero", 0), ("one", 1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([number]), name))
    assert not in_python(model)
    check(model, [{"x": np.array([[1, 5], [1, -3], [2, 2]], np.float32)[:rows]} for rows in (3, 1, 2)])


def test_large_joined_tables_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain("joined twice")
    monkeypatch.setattr(labels, "_MOST_JOINED", 11)  # the tables of p and q have 4 and 3 strings
    assert in_python(model) == ["Concat"]
    monkeypatch.setattr(labels, "_MOST_JOINED", 6)
    assert in_python(model) == ["Concat", "Flatten", "Concat"]
    check(model, batches_of(FLOATS))


def test_a_branch_keeps_its_encoder() -> None:
    branch = f'{ENCODER} <keys_floats = [1.0], values_strings = ["{{}}"]> (x)'
    model = parser.parse_model(f"""{HEAD} (bool c, float[n] x) => (string[n] z) {{
        y = If (c) <then_branch = yes () => (string[n] p) {{ p = {branch.format("a")} }},
                    else_branch = no () => (string[n] q) {{ q = {branch.format("b")} }}>
        z = Identity (y)
    }}""")
    x = np.array([1, 2], np.float32)
    check(model, [{"c": np.array(flag), "x": x} for flag in (True, False)])


def test_constants_and_export(tmp_path: Any) -> None:
    model = parser.parse_model(f"""{HEAD} (float[n] x) => (string[n] y, string[2] z) <float[2] numbers = {{1, 9}}> {{
        y = {A}
        z = {A.replace("(x)", "(numbers)")}
    }}""")
    x = np.array([2, 1, 5], np.float32)
    check(model, [{"x": x}])
    path = tmp_path / "model.hetero"
    Core().compile_model(model, "CPU").export_model(path)
    found = load(path)({"x": x})
    assert found["y"].tolist() == ["b", "a", "?"]
    assert found["z"].tolist() == ["a", "?"]
