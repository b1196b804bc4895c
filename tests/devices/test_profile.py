"""Profile devices: reading the file, what they take, and that they say they are simulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.devices.profile import Cost, OpConstraints, ProfilePlugin, load_profile
from hetero.devices.template import create_plugin
from hetero.errors import DeviceUnavailable, PropertyError, UnsupportedModel
from hetero.model.inference import ValueTypes
from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.plugin import Plugin

Write = Callable[[str], Path]

MINIMAL = 'name = "NPU"\nruns_on = "TEMPLATE"\n[ops]\nRelu = {}\n'


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "device.toml"
        path.write_text(text)
        return path

    return write


def resolve(name: str) -> Plugin:
    if name != "TEMPLATE":
        raise DeviceUnavailable(f"unknown device {name!r}")
    return create_plugin()


def model_of(*nodes: onnx.NodeProto, shape: tuple[int | str, ...] = (1, 4, 6, 6), opset: int = 17) -> Model:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, (4, 4, 1, 1)),
            helper.make_tensor_value_info("shape", TensorProto.INT64, (2,)),
        ],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
    )
    return read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))


def reasons(write: Write, ops: str, model: Model) -> dict[int, str]:
    plugin = ProfilePlugin(load_profile(write(f'name = "NPU"\nruns_on = "TEMPLATE"\n[ops]\n{ops}\n')), resolve)
    return dict(plugin.query_model(model, {}).reasons)


# -- the file ------------------------------------------------------------------------------------------------------


def test_every_key(write: Write) -> None:
    path = write(
        """
        name = "NPU"
        runs_on = "CPU.0"
        [ops]
        Conv = { dtypes = ["float32", "float16"], max_rank = 4, group = 1, strides = [[1, 1], [2, 2]], min_opset = 7 }
        Relu = {}
        "com.example::Swap" = { speed = "high" }
        [cost]
        flops_per_s = 2e12
        bytes_per_s = 5e10
        launch_s = 0
        link_bytes_per_s = 8e9
        memory_bytes = 4000000000
        """
    )
    profile = load_profile(path)
    assert (profile.name, profile.runs_on, profile.path) == ("NPU", "CPU.0", path)
    assert profile.ops["Conv"] == OpConstraints(
        dtypes=(np.dtype("float32"), np.dtype("float16")),
        max_rank=4,
        min_opset=7,
        attributes={"group": (1,), "strides": ((1, 1), (2, 2))},
    )
    assert profile.ops["Relu"] == OpConstraints()
    assert profile.ops["com.example::Swap"].attributes == {"speed": ("high",)}
    assert profile.cost == Cost(2e12, 5e10, 0.0, 8e9, 4e9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        profile.name = "other"  # type: ignore[misc]


def test_a_byte_order_mark_is_ignored(write: Write) -> None:
    assert load_profile(write("\ufeff" + MINIMAL)).name == "NPU"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", r"invalid TOML"),
        (MINIMAL.replace("runs_on", "run_on"), r"run_on: unknown key \(did you mean runs_on\?\)"),
        (MINIMAL.replace('"NPU"', "3"), r"name: expected the name of a device, found 3"),
        (MINIMAL.replace('"NPU"', '"N P"'), r"name: expected the name of a device, found 'N P'"),
        (MINIMAL.replace('"TEMPLATE"', '"NPU.1"'), r"runs_on: expected a device other than NPU itself"),
        ('name = "NPU"\nruns_on = "CPU"\n', r"ops: expected at least one operator"),
        ('name = "NPU"\nruns_on = "CPU"\nops = 3\n', r"ops: expected a table, found 3"),
        (MINIMAL.replace("Relu", "Rleu"), r"ops\.Rleu: ONNX has no such operator \(did you mean Relu\?\)"),
        (MINIMAL.replace("{}", "{ dtype = ['float32'] }"), r"ops\.Relu\.dtype: .*\(did you mean dtypes\?\)"),
        (MINIMAL.replace("Relu = {}", "Conv = { groups = 1 }"), r"ops\.Conv\.groups: .*\(did you mean group\?\)"),
        (MINIMAL.replace("{}", "{ dtypes = 'float32' }"), r"ops\.Relu\.dtypes: expected a list"),
        (
            MINIMAL.replace("{}", "{ dtypes = ['float31'] }"),
            r"'float31' is not an element type \(did you mean float32\?\)",
        ),
        (
            MINIMAL.replace("{}", "{ max_rank = -1 }"),
            r"ops\.Relu\.max_rank: expected an integer of at least 0, found -1",
        ),
        (MINIMAL + "[cost]\nflop_per_s = 1\n", r"cost\.flop_per_s: unknown key \(did you mean flops_per_s\?\)"),
        (MINIMAL + "[cost]\nflops_per_s = -1\n", r"cost\.flops_per_s: expected a positive number, found -1"),
        (MINIMAL + "[cost]\nflops_per_s = inf\n", r"cost\.flops_per_s: expected a positive number, found inf"),
    ],
)
def test_mistakes_are_named(write: Write, text: str, message: str) -> None:
    path = write(text)
    with pytest.raises(PropertyError, match=message) as caught:
        load_profile(path)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_profile(tmp_path / "nowhere.toml")


# -- what it takes -------------------------------------------------------------------------------------------------


def test_unlisted_operator(write: Write) -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"]))
    assert reasons(write, "Relu = {}", model) == {1: "the profile of NPU does not list Exp"}


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        ("Conv = {}", None),
        ("Conv = { group = 1 }", None),
        ("Conv = { group = [2, 4] }", "with group = 2 or 4, found 1"),
        ("Conv = { auto_pad = ['NOTSET', 'VALID'] }", None),
        ("Conv = { auto_pad = 'VALID' }", "with auto_pad = VALID, found NOTSET"),
        ("Conv = { strides = [2, 2] }", None),
        ("Conv = { strides = [[1, 1], [3, 3]] }", r"with strides = (1, 1) or (3, 3), found (2, 2)"),
        ("Conv = { dilations = [1, 1] }", None),
        ("Conv = { dilations = [2, 2] }", "with dilations = (2, 2), found (1, 1)"),
        ("Conv = { kernel_shape = [1, 1] }", None),
        ("Conv = { kernel_shape = [3, 3] }", "with kernel_shape = (3, 3), found (1, 1)"),
        ("Conv = { dtypes = ['float32'] }", None),
        ("Conv = { dtypes = ['float16'] }", "with float16, found float32 in 'x'"),
        ("Conv = { max_rank = 4 }", None),
        ("Conv = { max_rank = 3 }", "with at most rank 3, found rank 4 in 'x'"),
        ("Conv = { min_opset = 11, max_opset = 17 }", None),
        ("Conv = { min_opset = 18 }", "with opset 18 or later, found 17"),
        ("Conv = { max_opset = 16 }", "with opset 16 or earlier, found 17"),
    ],
)
def test_constraints(write: Write, ops: str, reason: str | None) -> None:
    model = model_of(helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2]))
    expected = {} if reason is None else {0: f"the profile of NPU supports Conv only {reason}"}
    assert reasons(write, ops, model) == expected


def open_sizes(*, computed: bool = True) -> Model:
    """Inner sizes that the file leaves open although they follow from the input. ``computed``: whether a node reads
    them."""
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["c"], "c", axis=1),
        helper.make_node("Shape", ["c"], ["s"], "s"),
        helper.make_node("Relu", ["c"], ["r" if computed else "y"], "r"),
        helper.make_node("Reshape", ["r", "s"], ["y"], "y"),
    ]
    model = model_of(*(nodes if computed else nodes[::2])).to_proto()
    model.graph.value_info.extend(
        [
            helper.make_tensor_value_info("c", TensorProto.FLOAT, ["unk__0", "unk__1", "unk__2", "unk__3"]),
            helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, None, 6, 6]),
        ]
    )
    return read_model(model)


def test_sizes_that_a_file_leaves_open_are_inferred_for_rules_about_sizes(write: Write) -> None:
    model = open_sizes()
    assert 2 not in reasons(write, "Relu = { static = true }", model)
    assert 2 not in reasons(write, "Relu = { align = { 1 = 8 } }", model)
    too_large = reasons(write, "Relu = { max_size = { 1 = 7 } }", model)
    assert "a size of at most 7 along axis 1, found 8 in 'c'" in too_large[2]
    plan = hetero.Core().plan(model, "HETERO:FPGA,CPU")  # with a memory limit, which counts them
    assert [totals.unknown_activations for totals in plan.totals] == [0, 0]


def test_no_other_rule_infers_them(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for devices without rules about sizes, nor for models that state all sizes, unless nodes read them."""
    monkeypatch.setattr(ValueTypes, "with_inner_sizes", lambda types: pytest.fail("inferred"))
    reasons(write, 'Relu = { dtypes = ["float32"], max_rank = 4 }', open_sizes(computed=False))
    static = "Relu = { static = true, max_size = { 0 = 1 } }"
    assert reasons(write, static, model_of(helper.make_node("Relu", ["x"], ["y"]))) == {}


@pytest.mark.parametrize("batch", [2, "batch"])
def test_nodes_that_compute_known_sizes_run_with_their_readers(write: Write, batch: int | str) -> None:
    """A profile need not list them. Without known sizes, they are nodes like others."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "r"),
        helper.make_node("Shape", ["r"], ["s"], "s"),
        helper.make_node("Gather", ["s", "zero"], ["n"], "n"),
        helper.make_node("Concat", ["n", "rest"], ["v"], "v", axis=0),
        helper.make_node("Reshape", ["r", "v"], ["f"], "f"),
        helper.make_node("Shape", ["f"], ["y"], "y"),  # an output, which no supported node reads
        helper.make_node("Relu", ["f"], ["z"], "z"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2]), helper.make_tensor_value_info("z", 1, None)],
        [numpy_helper.from_array(np.array([0]), "zero"), numpy_helper.from_array(np.array([-1]), "rest")],
    )
    model = read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    core = hetero.Core()
    core.register_plugin("NPU", write('name = "NPU"\nruns_on = "CPU"\n[ops]\nRelu = {}\nReshape = {}'))
    plan = core.plan(model, "HETERO:NPU,CPU")
    on_cpu = {key for key, device in plan.affinity.items() if device == "CPU"}
    assert on_cpu == ({"y"} if batch == 2 else {"s", "n", "v", "y"})
    assert plan.num_subgraphs == (2 if batch == 2 else 4)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 12
    y, z = core.compile_model(model, plan)({"x": x}).values()
    np.testing.assert_array_equal(y, [2, 12])
    np.testing.assert_array_equal(z, np.maximum(x, 0).reshape(2, 12))


def test_types_of_shapes_and_masks_are_no_data(write: Write) -> None:
    reshape = model_of(helper.make_node("Reshape", ["x", "shape"], ["y"]))
    assert reasons(write, "Reshape = { dtypes = ['float32'], max_rank = 4 }", reshape) == {}
    dropout = model_of(helper.make_node("Dropout", ["x"], ["y", "mask"]))
    assert reasons(write, "Dropout = { dtypes = ['float32'] }", dropout) == {}
    concat = model_of(helper.make_node("Concat", ["x", "x", "w"], ["y"], axis=0))
    refused = reasons(write, "Concat = { dtypes = ['int8'] }", concat)
    assert "found float32 in 'x'" in refused[0]


def test_both_devices_must_take_a_node(write: Write) -> None:
    node = helper.make_node("Swap", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("com.example", 1)], ir_version=8))
    (reason,) = reasons(write, '"com.example::Swap" = {}', model).values()
    assert reason.startswith("TEMPLATE, which executes the simulated NPU, does not support it: ")
    assert "com.example" in reason


def test_compiling_what_is_not_listed(write: Write) -> None:
    plugin = ProfilePlugin(load_profile(write(MINIMAL)), resolve)
    model = model_of(helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"], name="power"))
    with pytest.raises(UnsupportedModel, match=r"NPU .*'power' \(Exp\)") as caught:
        plugin.compile_model(model, {})
    assert list(caught.value.unsupported) == ["power"]


# -- what it says --------------------------------------------------------------------------------------------------


def test_always_labeled_simulated(write: Write) -> None:
    plugin = ProfilePlugin(load_profile(write(MINIMAL)), resolve)
    assert plugin.get_property("FULL_DEVICE_NAME") == "NPU (simulated on TEMPLATE)"
    assert plugin.get_property("DEVICE_TYPE") == "simulated"
    compiled = plugin.compile_model(model_of(helper.make_node("Relu", ["x"], ["y"])), {"PERF_COUNT": True})
    assert compiled.device == "NPU"
    request = compiled.create_infer_request()
    feed = {"x": np.ones((1, 4, 6, 6), np.float32), "w": np.ones((4, 4, 1, 1), np.float32), "shape": np.ones(2, int)}
    request.infer(feed)
    assert [row.exec_type for row in request.profiling_info] == ["simulated_reference"]


def test_properties_are_the_executing_devices(write: Write) -> None:
    executing = create_plugin()
    plugin = ProfilePlugin(load_profile(write(MINIMAL)), lambda name: executing)
    assert plugin.declares("PERF_COUNT")
    model = model_of(helper.make_node("Relu", ["x"], ["y"]))
    feed = {"x": np.ones((1, 4, 6, 6), np.float32), "w": np.ones((4, 4, 1, 1), np.float32), "shape": np.ones(2, int)}

    def counted() -> bool:
        request = plugin.compile_model(model, {}).create_infer_request()
        request.infer(feed)
        return bool(request.profiling_info)

    executing.set_property({"PERF_COUNT": True})
    assert counted()  # the executing device's own default holds
    plugin.set_property({"PERF_COUNT": False})
    assert not counted()
    with pytest.raises(PropertyError, match="PERF_COUNT"):
        plugin.set_property({"PERF_COUNTS": True})


def test_runs_on_must_end_at_a_device(write: Write) -> None:
    with pytest.raises(PropertyError, match=r"runs_on: unknown device 'NOWHERE'"):
        ProfilePlugin(load_profile(write(MINIMAL.replace("TEMPLATE", "NOWHERE"))), resolve).get_property("DEVICE_TYPE")
    plugins: dict[str, Plugin] = {}
    plugins["A"] = ProfilePlugin(load_profile(write('name="A"\nruns_on="B"\n[ops]\nRelu={}')), plugins.__getitem__)
    plugins["B"] = ProfilePlugin(load_profile(write('name="B"\nruns_on="A"\n[ops]\nRelu={}')), plugins.__getitem__)
    with pytest.raises(PropertyError, match=r"the chain A -> B -> A does not end at a real device"):
        plugins["A"].get_property("DEVICE_TYPE")


def test_a_profile_may_run_on_a_profile(write: Write) -> None:
    plugins: dict[str, Plugin] = {"TEMPLATE": create_plugin()}
    plugins["NPU"] = ProfilePlugin(load_profile(write(MINIMAL)), plugins.__getitem__)
    outer = ProfilePlugin(
        load_profile(write('name="OUTER"\nruns_on="NPU"\n[ops]\nRelu={}\nExp={}')), plugins.__getitem__
    )
    model = model_of(helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"]))
    (reason,) = outer.query_model(model, {}).reasons.values()
    assert "NPU" in reason
    assert "does not list Exp" in reason


# -- the shipped one -----------------------------------------------------------------------------------------------


def test_shipped_fpga_takes_googlenet_but_for_lrn_and_softmax() -> None:
    with resources.as_file(resources.files("hetero") / "profiles" / "fpga.toml") as path:
        profile = load_profile(Path(path))
    assert (profile.name, profile.runs_on) == ("FPGA", "CPU")
    assert None not in dataclasses.astuple(profile.cost)[:5]
    plugin = ProfilePlugin(profile, lambda name: create_plugin())
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_inception_v1.onnx"
    model = read_model(light)
    refused = {model.nodes[index].op_type for index in plugin.query_model(model, {}).reasons}
    assert refused == {"LRN", "Softmax"}
