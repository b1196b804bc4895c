"""Random small models against onnxruntime: their parts, extracted, checked and run one by one, compute what the whole
computes; and so do the same parts saved with their weights outside."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.partition import check_partition, partition_graph
from sessions import onnxruntime_session

FLOAT, BOOL, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64
SHAPE = [2, 3]
OPSETS = [oh.make_opsetid("", 17), oh.make_opsetid("mine", 1)]


def value(name: str, dtype: int = FLOAT, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    return oh.make_tensor_value_info(name, dtype, SHAPE if shape is None else shape)


def make_function() -> onnx.FunctionProto:
    """NegAdd(a, b) = -a + b * k, with a constant of its own."""
    body = [
        oh.make_node("Constant", [], ["k"], value_float=0.5),
        oh.make_node("Neg", ["a"], ["n"]),
        oh.make_node("Mul", ["b", "k"], ["m"]),
        oh.make_node("Add", ["n", "m"], ["c"]),
    ]
    return oh.make_function("mine", "NegAdd", ["a", "b"], ["c"], body, OPSETS[:1])


class Builder:
    """Draws nodes one after the other; every value is float32[2, 3]."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.counter = 0

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def graph(self, known: list[str], depth: int) -> onnx.GraphProto:
        """A branch without inputs, which captures what it likes of ``known``, and may have an initializer."""
        nodes: list[onnx.NodeProto] = []
        inside = list(known)
        initializers = []
        if self.draw(st.booleans()):
            initializers.append(onh.from_array(np.full(SHAPE, 0.25, np.float32), self.fresh("inner_w")))
            inside.append(initializers[0].name)
        for _ in range(self.draw(st.integers(1, 2))):
            nodes.append(self.node(inside, depth))
            inside.append(nodes[-1].output[0])
        return oh.make_graph(nodes, self.fresh("branch"), [], [value(inside[-1])], initializers)

    def loop(self, known: list[str], depth: int) -> onnx.NodeProto:
        carried, after = self.fresh("carried"), self.fresh("after")
        count, go_on, still = self.fresh("count"), self.fresh("go_on"), self.fresh("still")
        step = self.node([*known, carried], depth)
        body = oh.make_graph(
            [
                oh.make_node("Identity", [go_on], [still]),
                step,
                oh.make_node("Add", [carried, step.output[0]], [after]),
            ],
            self.fresh("body"),
            [value(count, INT64, []), value(go_on, BOOL, []), value(carried)],
            [value(still, BOOL, []), value(after)],
        )
        return oh.make_node("Loop", ["trips", "", self.pick(known)], [self.fresh("v")], body=body)

    def pick(self, known: list[str]) -> str:
        return self.draw(st.sampled_from(known))

    def node(self, known: list[str], depth: int) -> onnx.NodeProto:
        kinds = ["unary", "binary", "binary", "clip", "matmul", "dropout", "call"]
        kind = self.draw(st.sampled_from([*kinds, "if", "loop"] if depth else kinds))
        made = self.fresh("v")
        if kind == "unary":
            return oh.make_node(self.draw(st.sampled_from(["Relu", "Neg", "Tanh"])), [self.pick(known)], [made])
        if kind == "binary":
            op = self.draw(st.sampled_from(["Add", "Sub", "Max"]))
            return oh.make_node(op, [self.pick(known), self.pick(known)], [made])
        if kind == "clip":  # optional inputs, left out in the middle and at the end
            low, high = self.draw(st.sampled_from([("", "one"), ("zero", ""), ("zero", "one"), ("", "")]))
            inputs = [self.pick(known), low, high]
            return oh.make_node("Clip", inputs if self.draw(st.booleans()) or high else inputs[: 1 + bool(low)], [made])
        if kind == "matmul":
            return oh.make_node("MatMul", [self.pick(known), "square"], [made])
        if kind == "dropout":  # an output left out, or made and not used
            return oh.make_node("Dropout", [self.pick(known)], [made, self.draw(st.sampled_from(["", made + "_mask"]))])
        if kind == "call":
            return oh.make_node("NegAdd", [self.pick(known), self.pick(known)], [made], domain="mine")
        if kind == "loop":
            return self.loop(known, depth - 1)
        branches = [self.graph(known, depth - 1) for _ in range(2)]
        return oh.make_node("If", ["condition"], [made], then_branch=branches[0], else_branch=branches[1])


@st.composite
def models(draw: Any) -> onnx.ModelProto:
    build = Builder(draw)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    constants = {
        "w": rng.standard_normal(SHAPE),
        "row": rng.standard_normal(SHAPE),
        "square": rng.standard_normal((3, 3)) / 3,
        "zero": np.array(0.0),
        "one": np.array(1.0),
    }
    initializers = [onh.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    initializers.append(onh.from_array(np.array(2), "trips"))
    known = ["x", "x2", "w", "row", "k"]
    nodes = [oh.make_node("Constant", [], ["k"], value=onh.from_array(rng.standard_normal(SHAPE).astype(np.float32)))]
    for number in range(draw(st.integers(1, 10))):
        node = build.node(known, depth=2)
        node.name = draw(st.sampled_from(["", f"/layers.{number}/{node.op_type}"]))
        nodes.append(node)
        known.append(node.output[0])
    computed = [node.output[0] for node in nodes[1:]]
    outputs = [computed[-1], *draw(st.lists(st.sampled_from(computed), max_size=3))]
    graph = oh.make_graph(
        nodes,
        "random",
        [value("x"), value("x2"), value("condition", BOOL, [])],
        [value(name) for name in dict.fromkeys(outputs)],
        initializers,
        # Else they are inferred, which onnx cannot do for what a Loop gives.
        value_info=[value(name) for name in computed if name not in outputs] if draw(st.booleans()) else [],
    )
    return oh.make_model(graph, opset_imports=OPSETS, functions=[make_function()], ir_version=8)


def run(model: bytes | str, feeds: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime_session(model, optimized=False)
    outputs = [port.name for port in session.get_outputs()]
    read = {port.name: feeds[port.name] for port in session.get_inputs()}
    return dict(zip(outputs, session.run(outputs, read), strict=True))


def parts_of(model: Model, device: list[int]) -> list[Model]:
    partition = partition_graph(model.graph, np.array(device, np.int32))
    check_partition(model.graph, np.array(device, np.int32), partition.subgraph_of)
    return [model.extract(partition.nodes(number)) for number in range(partition.num_subgraphs)]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(proto=models(), data=st.data())
def test_random_models_in_parts(proto: onnx.ModelProto, data: st.DataObject) -> None:
    onnx.checker.check_model(proto, full_check=True)
    model = read_model(proto)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(SHAPE).astype(np.float32) for name in ("x", "x2")}
    inputs["condition"] = np.array(data.draw(st.booleans()))
    whole = run(proto.SerializeToString(), inputs)
    device = data.draw(st.lists(st.integers(0, 2), min_size=model.num_nodes, max_size=model.num_nodes))
    parts = parts_of(model, device)
    known = dict(inputs)
    for part in parts:
        encoded = part.to_bytes()
        if all(port.shape is not None for port in (*part.inputs, *part.outputs)):  # the checker demands a rank
            onnx.checker.check_model(encoded, full_check=True)
        assert {port.name for port in part.outputs} == {port.name for port in read_model(encoded).outputs}
        used = {name for node in part.nodes for name in (*node.inputs, *node.captures)}
        assert {tensor.name for tensor in part.to_proto().graph.initializer} == used & set(model.initializers)
        if not part.outputs:  # nobody reads what these nodes compute
            continue
        known |= run(encoded, {port.name: known[port.name] for port in part.inputs})
    for name, array in whole.items():
        np.testing.assert_array_equal(known[name], array)

    chosen = data.draw(st.sampled_from([part for part in parts if part.outputs]))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "part.onnx")
        chosen.save(path, external_above=data.draw(st.sampled_from([0, 8, 1 << 20])))
        for name, array in run(str(path), known).items():
            np.testing.assert_array_equal(known[name], array)
        again = read_model(path)
        assert again.keys == chosen.keys
        for name in map(again.value_name, np.flatnonzero(again.is_constant).tolist()):
            np.testing.assert_array_equal(
                again.constant(again.value_id(name)), model.constant(model.value_id(name)), strict=True
            )
