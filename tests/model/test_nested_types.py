"""Types of the results of If, Loop and Scan: induction over iterations, against execution."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

import hetero
from hetero.model import inference
from hetero.model.bodies import bodies_of

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
FLOAT, INT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def shapes(core: hetero.Core, text: str, *names: str) -> list[Any]:
    model = core.read_model(parser.parse_model(HEAD + text))
    return [model.type_of(model.value_id(name)).shape for name in names]


def loop(body: str, *, inputs: str = "x", outputs: str = "y", carried: str = "float[] v", results: str = "w") -> str:
    """A loop of m iterations over ``carried``."""
    made = ", ".join(f"float[] {name}" for name in results.split())
    return f"""g (float[N, 3] x, int64 m, float[1] one) => (float[] {outputs.split(",")[0]}) {{
        {outputs} = Loop (m, , {inputs}) <body = b (int64 i, bool k, {carried}) => (bool k2, {made}) {{
            k2 = Identity (k)
            {body}
        }}>
    }}"""


def test_a_carried_value_keeps_its_shape(core: hetero.Core) -> None:
    assert shapes(core, loop("w = Relu (v)"), "y") == [("N", 3)]


def test_a_size_that_changes_is_unknown(core: hetero.Core) -> None:
    assert shapes(core, loop("w = Concat <axis = 0> (v, x)"), "y") == [(None, 3)]


def test_a_rank_that_changes_is_unknown(core: hetero.Core) -> None:
    body = "at = Constant <value_ints = [0]> () w = Unsqueeze (v, at)"
    assert shapes(core, loop(body), "y") == [None]


def test_a_rank_that_changes_in_the_second_iteration(core: hetero.Core) -> None:
    """v is x again after the first iteration, and has another rank after the second."""
    body = "at = Constant <value_ints = [0]> () w = Identity (a) a2 = Unsqueeze (a, at)"
    text = loop(body, inputs="x, x", outputs="y, q", carried="float[] v, float[] a", results="w a2")
    assert shapes(core, text, "y", "q") == [None, None]


def test_a_size_that_changes_in_the_third_iteration(core: hetero.Core) -> None:
    body = "w = Identity (a) a2 = Identity (b) b2 = Concat <axis = 1> (b, x)"
    carried = "float[] v, float[] a, float[] b"
    text = loop(body, inputs="x, x, x", outputs="y, q, r", carried=carried, results="w a2 b2")
    assert shapes(core, text, "y", "q", "r") == [("N", None)] * 3


def test_what_a_body_states_of_its_first_iteration_is_not_used(core: hetero.Core) -> None:
    body = "at = Constant <value_ints = [0]> () w = Unsqueeze (v, at)"
    text = loop(body, carried="float[2, 3] v").replace("float[] w", "float[2, 3] w")
    assert shapes(core, text, "y") == [None]


def test_symbols_of_a_body_are_not_those_outside(core: hetero.Core) -> None:
    text = loop("w = Concat <axis = 0> (v, x)", carried="float[N, 3] v").replace("float[] w", "float[N, 3] w")
    assert shapes(core, text, "y") == [(None, 3)]


def test_swapped_values_have_what_both_have(core: hetero.Core) -> None:
    text = loop(
        "w = Identity (a) a2 = Identity (v)",
        inputs="x, x2",
        outputs="y, q",
        carried="float[] v, float[] a",
        results="w a2",
    ).replace("float[1] one", "float[M, 3] x2")
    assert shapes(core, text, "y", "q") == [(None, 3)] * 2


def test_a_value_is_found_after_a_loop(core: hetero.Core) -> None:
    text = loop("w = Relu (v)", outputs="p").replace("float[] p)", "float[] y)")
    closing = text.rindex("}")
    assert shapes(core, f"{text[:closing]} y = Transpose <perm = [1, 0]> (p) }}", "y") == [(3, "N")]


def test_a_loop_after_a_loop(core: hetero.Core) -> None:
    first = loop("w = Relu (v)", outputs="p").replace("float[] p)", "float[] y)")
    second = loop("w = Relu (v)", inputs="p")
    inner = second[second.index("{") + 1 : second.rindex("}")]
    assert shapes(core, f"{first[: first.rindex('}')]} {inner} }}", "y") == [("N", 3)]


@pytest.mark.parametrize(("trips", "expected"), [(3, (None, "N", 3)), (0, None), (None, None)])
def test_scanned_results(core: hetero.Core, trips: int | None, expected: Any) -> None:
    """Runtimes return another rank without iterations, so there must be one."""
    text = loop("w = Relu (v) s = Neg (v)", outputs="y, z", results="w s")
    if trips is not None:
        text = text.replace("int64 m, ", "").replace("{", f"{{ m = Constant <value_int = {trips}> ()", 1)
    assert shapes(core, text, "y", "z") == [("N", 3), expected]


def test_a_size_that_a_body_computes(core: hetero.Core) -> None:
    """onnx alone does not find the shape of this Reshape."""
    body = """s = Shape (x2)
        a = Constant <value_ints = [1]> () b = Constant <value_ints = [2]> () z = Constant <value_ints = [0]> ()
        n = Slice (s, a, b, z) m1 = Constant <value_ints = [-1]> () all = Concat <axis = 0> (n, m1)
        f = Reshape (v, all) w = Transpose <perm = [1, 0]> (f)"""
    text = loop(body).replace("float[N, 3] x", "float[2, 3] x").replace("float[1] one", "float[4, 3] x2")
    assert shapes(core, text, "y") == [(2, 3)]


def test_nested_loops(core: hetero.Core) -> None:
    inner = """w = Loop (i, , v) <body = c (int64 j, bool l, float[] u) => (bool l2, float[] t) {
        l2 = Identity (l) t = OP }>"""
    assert shapes(core, loop(inner.replace("OP", "Relu (u)")), "y") == [("N", 3)]
    assert shapes(core, loop(inner.replace("OP", "Concat <axis = 1> (u, v)")), "y") == [("N", None)]
    assert shapes(core, loop(inner.replace("OP", "Add (u, x)")), "y") == [("N", 3)]


def test_branches_of_an_if(core: hetero.Core) -> None:
    text = """g (float[2, 3] x, float[2, A] x2, bool c) => (float[] y) {
        y = If (c) <
            then_branch = t () => (float[] p) {
                s = Shape (x) p = Reshape (x, s) },
            else_branch = e () => (float[] q) { OTHER }>
    }"""
    assert shapes(core, text.replace("OTHER", "n = Shape (x) q = Reshape (x, n)"), "y") == [(2, 3)]
    assert shapes(core, text.replace("OTHER", "n = Shape (x) m = Max (n, n) q = Reshape (x, m)"), "y") == [(2, 3)]
    assert shapes(core, text.replace("OTHER", "a = Constant <value_ints = [0]> () q = Unsqueeze (x, a)"), "y") == [None]


@pytest.mark.parametrize(
    ("x", "condition", "expected"),
    [
        ("1, 3", "c = Equal (size, one)", (3,)),  # as PyTorch exports squeeze
        ("2, 3", "c = Equal (size, one)", (2, 3)),
        ("N, 3", "c = Equal (size, one)", None),
        ("1, 3", "d = Equal (size, one) c = Not (d)", (1, 3)),
        ("1, 3", "d = Greater (size, one) c = Cast <to = 9> (d)", (1, 3)),
        ("1, 3", "c = Constant <value = bool {1}> ()", (3,)),
        ("1, 3", "f = ReduceMax <keepdims = 0> (x) c = Cast <to = 9> (f)", None),  # depends on data
    ],
)
def test_the_branch_that_known_sizes_select(core: hetero.Core, x: str, condition: str, expected: Any) -> None:
    text = f"""g (float[{x}] x) => (float[] y) {{
        zero = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        s = Shape (x)
        size = Gather (s, zero)
        {condition}
        y = If (c) <
            then_branch = t () => (float[] p) {{ p = Squeeze (x, zero) }},
            else_branch = e () => (float[] q) {{ q = Identity (x) }}>
    }}"""
    assert shapes(core, text, "y") == [expected]


def test_symbols_that_inference_makes_in_a_body_are_not_those_outside(core: hetero.Core) -> None:
    """onnx calls the unknown size of NonZero the same in each branch, such as ``unk__2``. It leaves sizes of y open."""
    text = """g (float[2, 3] x, float[unk__0, unk__1, unk__2, unk__3, unk__4] other, bool c)
            => (float[] y, int64[] z, float[] o) {
        o = Relu (other)
        y, z = If (c) <
            then_branch = t () => (float[] p, int64[] q) {
                s = Shape (x) n = Max (s, s) p = Reshape (x, n) q = NonZero (x) },
            else_branch = e () => (float[] u, int64[] v) {
                s = Shape (x) n = Max (s, s) u = Reshape (x, n) v = NonZero (x) }>
    }"""
    (y, z) = shapes(core, text, "y", "z")
    assert y == (2, 3)
    assert z[0] == 2
    assert z[1] not in [f"unk__{number}" for number in range(5)]


def scan(body: str, **attributes: Any) -> bytes:
    graph = parser.parse_graph(f"b (float[] s, float[] p) => (float[] s2, float[] r) {{ {body} }}")
    node = helper.make_node("Scan", ["x", "z"], ["y", "q"], body=graph, num_scan_inputs=1, **attributes)
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, ["N", 3]),
        helper.make_tensor_value_info("z", FLOAT, [2, "N", 3]),
    ]
    whole = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="q")])
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def test_scanned_results_of_a_scan(core: hetero.Core) -> None:
    body = "s2 = Add (s, p) n = Shape (s) t = Constant <value_ints = [0]> () r = Unsqueeze (s, t)"
    model = core.read_model(scan(body))
    assert [port.shape for port in model.outputs] == [("N", 3), (2, 1, "N", 3)]


def test_a_hostile_number_of_nested_graphs_is_bounded(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    infer = inference.ValueTypes._infer_nested

    def counted(self: Any, encoded: bytes) -> Any:
        found = infer(self, encoded)
        used.append(found is not None)
        return found

    monkeypatch.setattr(inference.ValueTypes, "_infer_nested", counted)
    monkeypatch.setattr(inference, "_NESTED_INFERENCES", 7)
    at = "at = Constant <value_ints = [0]> ()"
    body = f"{at} w = Unsqueeze (v, at)"
    for depth in range(4):
        body = f"""w = Loop (i, , v) <body = c{depth} (int64 i, bool k, float[] v) => (bool k2, float[] w) {{
            k2 = Identity (k) {body} }}>"""
    assert shapes(core, loop(body), "y") == [None]
    assert 0 < sum(used) <= 7


def body_shapes(core: hetero.Core, model: Any) -> list[Any]:
    (body,) = bodies_of(core.read_model(model), 0)
    return [port.shape for port in body.model.inputs]


@pytest.mark.parametrize(
    ("carried", "operation", "expected"),
    [
        ("float[] v", "Relu (v)", (None, 3)),
        ("float[] v", "Concat <axis = 1> (v, x)", (None, None)),
        ("float[] v", "Unsqueeze (v, one)", None),
        ("float[5, 3] v", "Relu (v)", (5, 3)),  # a size that the body states and hetero does not know
        ("float[M, 5] v", "Relu (v)", ("M", 3)),
        ("float[2] v", "Relu (v)", (None, 3)),
    ],
)
def test_inputs_of_a_body_have_what_each_iteration_keeps(
    core: hetero.Core, carried: str, operation: str, expected: Any
) -> None:
    model = parser.parse_model(HEAD + loop(f"w = {operation}", carried=carried).replace("float[1] one", "int64[1] one"))
    assert body_shapes(core, model)[:3] == [(), (), expected]


def test_inputs_of_the_body_of_a_scan(core: hetero.Core) -> None:
    assert body_shapes(core, scan("s2 = Add (s, p) r = Identity (p)")) == [(None, 3), (None, 3)]
    assert body_shapes(core, scan("s2 = Add (s, p) r = Identity (p)", scan_input_axes=[-2])) == [(None, 3), (2, 3)]


# ---- random bodies

_OPERATIONS = (
    "Relu",
    "Add",
    "Concat",
    "Unsqueeze",
    "Squeeze",
    "Transpose",
    "Reduce",
    "Flatten",
    "Reshape",
    "If",
    "Loop",
)
_FORM = st.tuples(st.sampled_from(_OPERATIONS), st.integers(0, 9), st.integers(0, 9), st.integers(0, 1))


def _constant(name: str, value: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, np.int64)))


def _info(name: str, dtype: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _nodes(forms: list[tuple[str, int, int, int]], values: list[str], prefix: str) -> list[onnx.NodeProto]:
    """Nodes that each append one value to ``values``."""
    nodes: list[onnx.NodeProto] = []
    for number, (kind, first, second, axis) in enumerate(forms):
        one, other, out = values[first % len(values)], values[second % len(values)], f"{prefix}{number}"
        at = f"{out}_at"
        if kind in ("Unsqueeze", "Squeeze"):
            nodes += [_constant(at, [axis]), helper.make_node(kind, [one, at], [out])]
        elif kind == "Reshape":
            nodes += [helper.make_node("Shape", [other], [at]), helper.make_node("Reshape", [one, at], [out])]
        elif kind == "Concat":
            nodes.append(helper.make_node(kind, [one, other], [out], axis=axis))
        elif kind == "Add":
            nodes.append(helper.make_node(kind, [one, other], [out]))
        elif kind == "Reduce":
            nodes.append(helper.make_node("ReduceMax", [one], [out], axes=[axis], keepdims=second % 2))
        elif kind == "If":
            flag = f"{out}_flag"
            nodes += [_constant(at, 1), helper.make_node("Less", ["i", at], [flag])]
            branches = [
                helper.make_graph(
                    [helper.make_node("Identity", [name], [f"{out}_{name}"])], "g", [], [_info(f"{out}_{name}")]
                )
                for name in (one, other)
            ]
            nodes.append(helper.make_node(kind, [flag], [out], then_branch=branches[0], else_branch=branches[1]))
        elif kind == "Loop":
            if prefix != "n":  # loops are nested once
                nodes.append(helper.make_node("Identity", [one], [out]))
                continue
            inner_values = [f"{out}_v", other]
            inner = _nodes([(_OPERATIONS[second], 0, 1, axis)], inner_values, f"{out}_")
            graph = helper.make_graph(
                [*inner, helper.make_node("Identity", [f"{out}_k"], [f"{out}_k2"])],
                "inner",
                [_info(f"{out}_i", INT, []), _info(f"{out}_k", BOOL, []), _info(f"{out}_v")],
                [_info(f"{out}_k2", BOOL, []), _info(inner_values[-1])],
            )
            nodes += [_constant(at, axis), helper.make_node(kind, [at, "", one], [out], body=graph)]
        else:
            nodes.append(helper.make_node(kind, [one], [out]))
        values.append(out)
    return nodes


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    forms=st.lists(_FORM, min_size=1, max_size=4),
    carried=st.lists(st.sampled_from([(2,), (1, 2), (2, 2), ("N", 2), (1, "N")]), min_size=1, max_size=3),
    chosen=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    lies=st.booleans(),
    scans=st.booleans(),
    trips=st.sampled_from([None, 1, 3]),
)
def test_results_of_random_loops_have_the_inferred_shapes(
    forms: list[tuple[str, int, int, int]],
    carried: list[Any],
    chosen: list[int],
    lies: bool,
    scans: bool,
    trips: int | None,
) -> None:
    core = hetero.Core()
    names = [f"c{number}" for number in range(len(carried))]
    values = [*names, "x0"]
    nodes = _nodes(forms, values, "n")
    ends = [values[-1 - number % len(values)] for number in chosen[: len(carried) + scans]]
    results = [f"r{number}" for number in range(len(ends))]
    nodes += [helper.make_node("Identity", [end], [result]) for end, result in zip(ends, results, strict=True)]
    nodes.append(helper.make_node("Identity", ["k"], ["k2"]))
    stated = [shape if lies else None for shape in carried]
    body = helper.make_graph(
        nodes,
        "body",
        [_info("i", INT, []), _info("k", BOOL, []), *map(_info, names, [FLOAT] * len(names), stated)],
        [_info("k2", BOOL, []), *map(_info, results)],
    )
    outputs = [f"y{number}" for number in range(len(ends))]
    given_names = [f"x{number}" for number in range(len(carried))]
    node = helper.make_node("Loop", ["m", "", *given_names], outputs, body=body)
    known = [] if trips is None else [numpy_helper.from_array(np.array(trips), "m")]
    inputs = [*([] if known else [_info("m", INT, [])]), *map(_info, given_names, [FLOAT] * len(carried), carried)]
    graph = helper.make_graph([node], "g", inputs, list(map(_info, outputs)), known)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = core.read_model(proto)
    inferred = [model.type_of(model.value_id(name)).shape for name in outputs]
    compiled = core.compile_model(model, "TEMPLATE")
    compared = False
    for size, count in itertools.product((1, 2, 3), range(4) if trips is None else (trips,)):
        arrays = [np.ones([size if dim == "N" else dim for dim in shape], np.float32) for shape in carried]
        values = dict(zip(given_names, arrays, strict=True)) | ({} if known else {"m": np.array(count)})
        try:
            found = compiled(values)
        except hetero.HeteroError:  # the shapes of these operands do not match
            continue
        for name, shape in zip(outputs, inferred, strict=True):
            if shape is not None:
                expected = [size if dim == "N" else dim if isinstance(dim, int) else None for dim in shape]
                actual = found[name].shape
                assert len(actual) == len(expected), (name, shape, actual, count)
                assert all(one in (None, other) for one, other in zip(expected, actual, strict=True)), (shape, actual)
                compared = True
    assume(compared)
