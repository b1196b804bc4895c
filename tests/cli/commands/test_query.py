"""``hetero query``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import helper

from command_line import Invoke, Json
from hetero.cli.commands.query import _answered_by_nodes
from model_zoo import make_model


def test_query(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json("query", diamond_path, "-d", "HETERO:FPGA,CPU")
    fpga, cpu = found["devices"]
    assert fpga["given"] == 4
    assert fpga["refused"] == 1
    assert fpga["refusals"][0]["operators"] == {"LRN": 1}
    assert cpu["operators"] == {"LRN": 1}
    assert found["nodes"]["norm"]["device"] == "CPU"
    assert "FPGA" in found["nodes"]["norm"]["reasons"]
    assert found["unsupported"] == []
    text = hetero("query", diamond_path, "-d", "HETERO:FPGA,CPU", "--nodes").stdout
    assert "LRN × 1" in text
    assert "norm" in text


def test_limits_that_only_plans_apply_are_listed(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json("query", diamond_path, "-d", "HETERO:EDGE_TPU,CPU")
    tpu, cpu = (row["limits"] for row in found["devices"])
    assert tpu == [
        "8.00 MB of memory",
        "only the first subgraph of a model",
        "subgraphs of at least 1e+07 operations",
    ]
    assert cpu == []
    text = hetero("query", diamond_path, "-d", "HETERO:EDGE_TPU,CPU").stdout
    assert "Limits that only plans apply" in text
    assert "only the first subgraph of a model" in text
    assert "Limits" not in hetero("query", diamond_path).stdout


def test_query_of_what_nobody_takes(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    assert hetero_json("query", diamond_path, "-d", "FPGA", code=1)["unsupported"] == ["norm"]
    done = hetero("query", diamond_path, "-d", "FPGA", code=1)
    assert "FPGA does not support 1 node" in done.stderr
    assert "LRN" in done.stdout
    assert "norm" in hetero("run", diamond_path, "-d", "FPGA", code=1).stderr


def test_reasons_that_differ_in_names_are_one(hetero_json: Json, two_inputs_path: Path) -> None:
    Path("npu.toml").write_text('name = "NPU"\nruns_on = "CPU"\n[ops]\nRelu = { dtypes = ["float16"] }\n')
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in (("x", "y1"), ("y1", "y2"), ("y2", "y"))]
    onnx.save(make_model(nodes), "relus.onnx")
    found = hetero_json("query", "relus.onnx", "-d", "HETERO:NPU,CPU", "--profile", "npu.toml")
    (refusal,) = found["devices"][0]["refusals"]
    assert refusal["nodes"] == 3
    assert "'…'" in refusal["reason"]


def test_of_many_refused_nodes_some_are_told(hetero: Invoke) -> None:
    ops = [f"op{i}" for i in range(60)]
    nodes = [helper.make_node(op, ["x"], [f"y{i}"], domain="own") for i, op in enumerate(ops)]
    model = make_model(nodes, outputs=[f"y{i}" for i in range(60)])
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, "many.onnx")
    error = hetero("run", "many.onnx", code=1).stderr
    assert 5 < error.count("\n") < 30
    assert "`hetero query" in error
    assert "60 nodes" in hetero("query", "many.onnx", code=1).stderr


def test_a_function_is_answered_by_its_nodes(hetero_json: Json) -> None:
    inner = helper.make_function(
        "mine", "Both", ["a"], ["c"],
        [helper.make_node("Relu", ["a"], ["b"], name="r"), helper.make_node("LRN", ["b"], ["c"], name="l", size=3)],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    model = make_model([helper.make_node("Both", ["x"], ["y"], name="call", domain="mine")], {"x": [1, 2, 3, 3]})
    model.functions.append(inner)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    onnx.save(model, "function.onnx")
    found = hetero_json("query", "function.onnx", "-d", "HETERO:FPGA,CPU")
    assert found["unsupported"] == []
    assert {key: entry["device"] for key, entry in found["nodes"].items() if "/" in key} == {
        "call/r": "FPGA",
        "call/l": "CPU",
    }


def half_supported(*names: str) -> onnx.ModelProto:
    """Nodes in a row that no device supports, except ``call``, which calls a function that two devices share."""
    inner = helper.make_function(
        "mine", "Both", ["a"], ["c"],
        [helper.make_node("Relu", ["a"], ["b"], name="r"), helper.make_node("LRN", ["b"], ["c"], name="l", size=3)],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    values = ["x", *(f"v{i}" for i in range(len(names) - 1)), "y"]
    nodes = [
        helper.make_node("Both", [a], [b], name=name, domain="mine")
        if name == "call"
        else helper.make_node("Odd", [a], [b], name=name, domain="own")
        for name, a, b in zip(names, values, values[1:], strict=False)
    ]
    model = make_model(nodes, {"x": [1, 2, 3, 3]})
    model.functions.append(inner)
    model.opset_import.extend([helper.make_opsetid("mine", 1), helper.make_opsetid("own", 1)])
    return model


def test_names_that_begin_with_the_name_of_a_call(hetero_json: Json) -> None:
    """Only the call itself is answered by its nodes, although other names are the first part of its nodes' names."""
    names = ("call", "cal", "call2", "c", "call2/r")
    onnx.save(half_supported(*names), "names.onnx")
    found = hetero_json("query", "names.onnx", "-d", "HETERO:FPGA,CPU", code=1)
    assert found["nodes"]["call/r"]["device"] == "FPGA"
    assert found["unsupported"] == ["cal", "call2", "c", "call2/r"]


class CountingAnswer(dict[str, str]):
    """An answer that counts how many keys are read."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.read += 1
            yield key


def test_the_work_for_calls_is_linear() -> None:
    for count in (10, 1000):
        answer = CountingAnswer({f"block{i}/call/relu": "CPU" for i in range(count)})
        found = _answered_by_nodes(answer)
        assert found == {key for i in range(count) for key in (f"block{i}", f"block{i}/call")}
        assert answer.read == count


def test_sizes_count(hetero: Invoke, hetero_json: Json) -> None:
    """A device with a limit on the rank supports a node once the rank of the input is stated."""
    Path("npu.toml").write_text('name = "NPU"\nruns_on = "CPU"\n[ops]\nRelu = { max_rank = 2 }\n')
    model = make_model([helper.make_node("Relu", ["x"], ["y"], "relu")])
    for port in (model.graph.input[0], model.graph.output[0]):
        port.type.tensor_type.ClearField("shape")
    onnx.save(model, "open.onnx")
    query = ("query", "open.onnx", "-d", "NPU", "--profile", "npu.toml")
    assert hetero_json(*query, code=1)["unsupported"] == ["relu"]
    assert hetero_json(*query, "--shape", "2x3")["unsupported"] == []
    assert hetero_json(*query, "--shape", "2x3x4", code=1)["unsupported"] == ["relu"]
    assert "no input has a dim 'batch'" in hetero(*query, "--dim", "batch=2", code=2).stderr
