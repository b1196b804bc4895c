"""Constraints on assignments: nodes that go to one device, minimum sizes of subgraphs, and units."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import hetero
from hetero.assign.affinity import Affinity, Origin, assign
from hetero.assign.assigning import assign_and_cut
from hetero.assign.assignment import Assignment
from hetero.assign.constraint_settings import parse_groups, parse_least
from hetero.assign.constraints import resolve_groups
from hetero.assign.memory import footprint, values_of
from hetero.assign.pipeline import PipelineError
from hetero.assign.request import AssignmentRules, Objective
from hetero.errors import HeteroError, InsufficientMemory, PropertyError, UnsupportedModel
from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.plugin import DeviceSpeed, LeastSubgraph, Support
from model_zoo import make_model

CORE = hetero.Core()
BYTES = 16 * 4  # of each value of `random_model`


def chain(ops: str, shape: tuple[int, ...] = (4, 4)) -> Model:
    """Nodes n0, n1, … of the operators R (Relu, which FPGA supports), E (Exp, which it does not) in a row."""
    names = {"R": "Relu", "E": "Exp"}
    nodes = [
        helper.make_node(names[op], ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i, op in enumerate(ops)
    ]
    nodes[-1].output[0] = "y"
    return CORE.read_model(make_model(nodes, {"x": shape}))


def devices_of(model: Model, config: Mapping[str, Any], pins: Mapping[str, str] | None = None) -> str:
    """The first letter of each node's device."""
    plan = CORE.plan(model, "HETERO:FPGA,CPU", config, pins=pins)
    return "".join(plan.affinity[f"n{i}"][0] for i in range(model.num_nodes))


# -- groups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [{}, {"ASSIGNMENT": "COST"}, {"OBJECTIVE": "LATENCY"}])
def test_a_group_goes_where_all_of_it_is_supported(objective: dict[str, str]) -> None:
    config = {**objective, "STAY_TOGETHER": [["n0", "n1"]]}
    assert devices_of(chain("RER", (4, 4)), config)[:2] == "CC"


def test_the_reasons_name_the_group_and_explain_shows_them() -> None:
    plan = CORE.plan(chain("RERR"), "HETERO:FPGA,CPU", {"STAY_TOGETHER": [["n0", "n1"]]})
    why = "it stays together with 'n1' (Exp), which cannot be on FPGA"
    assert plan.affinity == {"n0": "CPU", "n1": "CPU", "n2": "FPGA", "n3": "FPGA"}
    assert why in plan.reasons["n0"]
    assert why in str(plan.explain("n0"))


def test_groups_are_written_like_pins_and_merge_if_they_overlap() -> None:
    model = chain("RRRER")
    assert [group.tolist() for group in resolve_groups(model, [["n0", "n2"], ["n2", "op:Exp"]])] == [[0, 2, 3]]
    assert [group.tolist() for group in resolve_groups(model, [["n[01]"], ["n4"], ["n2", "n3"]])] == [[0, 1], [2, 3]]
    assert devices_of(model, {"STAY_TOGETHER": [["n0", "n2"], ["n2", "op:Exp"]]}) == "CFCCF"
    assert devices_of(model, {"STAY_TOGETHER": "n[0-3]"}) == "CCCCF"
    assert devices_of(model, {"STAY_TOGETHER": '[["n0", "n3"]]'}) == "CFFCF"


def test_a_pin_takes_its_group_along() -> None:
    assert devices_of(chain("RRR"), {"STAY_TOGETHER": [["n0", "n2"]]}, {"n2": "CPU"}) == "CFC"


def test_conflicts_name_the_nodes() -> None:
    together = {"STAY_TOGETHER": [["n0", "n1"]]}
    with pytest.raises(PropertyError, match=r"one device for 'n0' \(Relu\) and 'n1' \(Relu\).*by 'n0'.*by 'n1'"):
        devices_of(chain("RR"), together, {"n0": "FPGA", "n1": "CPU"})
    with pytest.raises(UnsupportedModel, match=r"'n0', 'n1' stay together(.|\n)*FPGA: 'n1' \(Exp\): the prof") as error:
        devices_of(chain("RE"), together, {"n0": "FPGA"})
    assert error.value.unsupported.keys() == {"n0", "n1"}
    with pytest.raises(PropertyError, match="STAY_TOGETHER 'n7' matches no node"):
        devices_of(chain("RR"), {"STAY_TOGETHER": [["n0", "n7"]]})


def test_groups_hold_with_nodes_inside_calls_and_in_models_with_affinities() -> None:
    model = chain("RRR").with_affinity({"n0": "CPU"})
    assert devices_of(model, {"STAY_TOGETHER": [["n0", "n2"]]}) == "CFC"


def test_pipelines_keep_groups_on_one_stage() -> None:
    model = chain("R" * 8, (2000, 2000))
    config = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
    first, second = CORE.plan(model, "HETERO:CPU.0,CPU.1", config).subgraphs
    split = [first.nodes[-1], second.nodes[0]]
    plan = CORE.plan(model, "HETERO:CPU.0,CPU.1", {**config, "STAY_TOGETHER": [split]})
    assert plan.affinity[split[0]] == plan.affinity[split[1]]
    assert [stage.nodes for stage in plan.pipeline.stages] in ([3, 5], [5, 3])


# -- minimum sizes -----------------------------------------------------------------------------------------------------


def test_small_subgraphs_go_to_the_next_device() -> None:
    assert devices_of(chain("RRERERRR"), {}) == "FFCFCFFF"
    assert devices_of(chain("RRERERRR"), {"MIN_SUBGRAPH": {"FPGA": 2}}) == "FFCCCFFF"
    assert devices_of(chain("RRERERRR"), {"MIN_SUBGRAPH": "FPGA=3"}) == "CCCCCFFF"
    plan = CORE.plan(chain("RE"), "HETERO:FPGA,CPU", {"MIN_SUBGRAPH": {"FPGA": 2}})
    assert "its subgraph would have 1 node, and FPGA requires at least 2" in plan.reasons["n0"]


def test_least_work_counts_operations_of_the_stated_sizes() -> None:
    model = CORE.read_model(make_model([helper.make_node("Relu", ["x"], ["y"], "n0")], {"x": ("n", 100)}))
    config = {"MIN_SUBGRAPH": "FPGA=5e3flops"}
    for rows, device in ((49, "CPU"), (50, "FPGA")):
        plan = CORE.plan(model, "HETERO:FPGA,CPU", config, shapes={"x": (rows, 100)})
        assert plan.affinity == {"n0": device}


@pytest.mark.filterwarnings("error")
def test_a_warning_if_operations_are_counted_with_unknown_sizes() -> None:
    def plan(shape: tuple[Any, ...], **options: Any) -> None:
        CORE.plan(chain("RER", shape), "HETERO:CPU,TEMPLATE", {"MIN_SUBGRAPH": "CPU=5flops"}, **options)

    with pytest.raises(
        RuntimeWarning, match=r"as if the unknown sizes of 4 values were 1 .* 64 .*set 'n', as in shapes="
    ):
        plan((2, "n"))
    plan((2, "n"), shapes={"n": 3})
    plan((2, 3))


def test_a_pin_into_a_small_subgraph_is_an_error() -> None:
    with pytest.raises(UnsupportedModel, match=r"'n0' \(Relu\) is pinned to FPGA: its subgraph would have 1 no"):
        devices_of(chain("RE"), {"MIN_SUBGRAPH": {"FPGA": 2}}, {"n0": "FPGA"})


def test_nodes_that_no_other_device_supports_are_an_error() -> None:
    with pytest.raises(UnsupportedModel, match=r"'n1' \(Exp\)"):
        devices_of(chain("RER"), {"MIN_SUBGRAPH": {"CPU": 2}})


def test_what_if_asks_the_devices_own_answers() -> None:
    plan = CORE.plan(chain("RERRR"), "HETERO:FPGA,CPU", {"MIN_SUBGRAPH": {"FPGA": 4}})
    assert set(plan.affinity.values()) == {"CPU"}
    assert plan.what_if(device_supports={"FPGA": ["Exp"]}).subgraphs_after == 1
    assert len(plan.what_if(device_supports={"FPGA": ["Exp"]}).moved) == 5


def test_edited_and_loaded_plans_must_satisfy_them(tmp_path: Path) -> None:
    model = chain("RRER")
    plan = CORE.plan(model, "HETERO:FPGA,CPU")
    plan.save(tmp_path / "plan.json")
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    with pytest.raises(PropertyError, match="places 'n3' on FPGA: its subgraph would have 1 node"):
        CORE.plan(model, loaded, {"MIN_SUBGRAPH": {"FPGA": 2}})
    with pytest.raises(PropertyError, match=r"'n1' \(Relu\) on FPGA and 'n2' \(Exp\) on CPU, and STAY_TOGETHER"):
        CORE.plan(model, loaded, {"STAY_TOGETHER": [["n1", "n2"]]})
    assert CORE.plan(model, loaded, {"MIN_SUBGRAPH": {"CPU": 1}}).affinity == plan.affinity


def test_results_are_right() -> None:
    model = chain("RERRER")
    config = {"MIN_SUBGRAPH": {"FPGA": 2}, "STAY_TOGETHER": [["n0", "n2"]]}
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) * 0.1
    expected = ReferenceEvaluator(model.to_proto()).run(None, {"x": x})[0]
    np.testing.assert_allclose(CORE.compile_model(model, "HETERO:FPGA,CPU", config)({"x": x})["y"], expected, rtol=1e-5)


def test_the_cache_tells_constraints_apart(tmp_path: Path) -> None:
    model = chain("RER")
    cached = {"CACHE_DIR": str(tmp_path)}
    for config, parts in (({}, 3), ({"MIN_SUBGRAPH": {"FPGA": 2}}, 1), ({"STAY_TOGETHER": [["n0", "n1"]]}, 2)):
        for _ in range(2):
            compiled = CORE.compile_model(model, "HETERO:FPGA,CPU", {**cached, **config})
            assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == parts


def test_a_node_without_another_device_takes_its_unit_along() -> None:
    """Only B supports n1, and only together with n0, which A supports too and would get by priority."""
    model = chain("RRR")
    supports = [
        Support.from_reasons(3, {1: "no"}),
        Support.from_reasons(3, {2: "no"}, [np.array([0, 1], np.int32)]),
    ]
    for objective in (Objective.PRIORITY, Objective.COST):
        rules = AssignmentRules(objective=objective, speeds=[DeviceSpeed(1e9, 1e9), DeviceSpeed(1e6, 1e6)])
        found = assign_and_cut(model, model, assign(model, ("A", "B"), supports), rules)
        assert found.affinity.device_of.tolist() == [1, 1, 0]
        assert "it runs together with 'n1' (Relu), which only B may have" in found.affinity.reason(0)


# -- settings --------------------------------------------------------------------------------------------------------


def test_settings() -> None:
    assert parse_least({"A": 3, "B": {"nodes": 2, "flops": 1e6}}) == {"A": LeastSubgraph(3), "B": LeastSubgraph(2, 1e6)}
    assert parse_least("A=3, B=1") == {"A": LeastSubgraph(3), "B": LeastSubgraph()}
    assert parse_least("A=1.5Mflops,B=2 GFLOP") == {"A": LeastSubgraph(1, 1.5e6), "B": LeastSubgraph(1, 2e9)}
    assert parse_least("A=3,A=2.5e6flops,B = 1 flop") == {"A": LeastSubgraph(3, 2.5e6), "B": LeastSubgraph(1, 1.0)}
    assert parse_least('{"A": {"flops": 10}}') == {"A": LeastSubgraph(1, 10.0)}
    assert parse_groups(["a", ["b", "c"]]) == (("a",), ("b", "c"))
    assert parse_groups("a|b") == (("a|b",),)
    assert parse_groups("") == ()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MIN_SUBGRAPH", {"FPGA": -1}, "at least 0, found -1"),
        ("MIN_SUBGRAPH", {"FPGA": 1.5}, "a whole number"),
        ("MIN_SUBGRAPH", {"FPGA": {"node": 1}}, "did you mean nodes"),
        ("MIN_SUBGRAPH", {"FPGA": {"flops": float("inf")}}, "a finite number"),
        ("MIN_SUBGRAPH", {"FPG": 2}, "not in the list FPGA, CPU"),
        ("MIN_SUBGRAPH", "FPGA:2", "expected DEVICE=NODES"),
        ("MIN_SUBGRAPH", "FPGA=1e6", "expected DEVICE=NODES or DEVICE=WORK"),
        ("MIN_SUBGRAPH", "FPGA=-1flops", "expected DEVICE=NODES"),
        ("MIN_SUBGRAPH", "FPGA=1e99flops", "finite number of at least 0"),
        ("MIN_SUBGRAPH", "FPGA=1flops,FPGA=2flops", "'FPGA' is given twice"),
        ("MIN_SUBGRAPH", "{", "not valid JSON"),
        ("STAY_TOGETHER", [[]], "must be a list of groups"),
        ("STAY_TOGETHER", [1], "must be a list of groups"),
        ("STAY_TOGETHER", "[", "not valid JSON"),
        ("STAY_TOGETHER", ["("], "neither a node key nor a regular expression"),
    ],
)
def test_wrong_settings(name: str, value: Any, message: str) -> None:
    with pytest.raises(PropertyError, match=message):
        CORE.plan(chain("RR"), "HETERO:FPGA,CPU", {name: value})


# -- random graphs ---------------------------------------------------------------------------------------------------

OBJECTIVES = tuple(Objective)


def random_model(rng: np.random.Generator, count: int) -> Model:
    """Nodes with one or two inputs of 64 B each."""
    made, nodes = ["x"], []
    for i in range(count):
        inputs = [made[-1 - int(rng.geometric(0.5) - 1) % len(made)] for _ in range(int(rng.integers(1, 3)))]
        nodes.append(helper.make_node("Relu" if len(inputs) == 1 else "Add", inputs, [f"v{i}"], f"n{i}"))
        made.append(f"v{i}")
    read = {name for node in nodes for name in node.input}
    outputs = [name for name in made[1:] if name not in read]
    return read_model(make_model(nodes, {"x": (16,)}, outputs))


@dataclasses.dataclass
class Case:
    """A random model, answers and constraints."""

    model: Model
    devices: tuple[str, ...]
    supports: list[Support]
    pins: dict[str, str]
    rules: AssignmentRules
    groups: tuple[Any, ...]

    @classmethod
    def random(cls, seed: int) -> Case:
        rng = np.random.default_rng(seed)
        objective = OBJECTIVES[seed % len(OBJECTIVES)]
        is_slow = objective is Objective.THROUGHPUT  # its solver is exact and exponential for a few nodes
        count, k = int(rng.integers(3, 9 if is_slow else 16)), int(rng.integers(2, 4))
        model = random_model(rng, count)
        masks = rng.random((k, count)) < rng.choice([0.6, 0.9, 1.0], (k, 1))
        masks[-1] |= rng.random() < 0.7
        masks[-1] |= ~masks.any(axis=0)
        devices = tuple("ABC"[:k])
        supports = []
        for mask in masks:
            units: list[Any] = []
            if rng.random() < 0.4:
                for node in np.flatnonzero(mask).tolist():
                    near = [node, *model.graph.successors(node).tolist()][: int(rng.integers(1, 4))]
                    if mask[near].all() and rng.random() < 0.7:
                        units.append(np.array(near, np.int32))
            refused = dict.fromkeys(np.flatnonzero(~mask).tolist(), "no")
            supports.append(Support.from_reasons(count, refused, units))
        pins = {f"n{node}": str(rng.choice(devices)) for node in range(count) if rng.random() < rng.choice([0.0, 0.15])}
        together = [
            tuple(f"n{node}" for node in rng.choice(count, min(count, int(rng.integers(2, 4))), replace=False))
            for _ in range(int(rng.integers(0, 3)))
        ]
        least = {
            device: LeastSubgraph(int(rng.integers(1, 4)), float(rng.choice([0, 20])))
            for device in devices[: int(rng.integers(0, k))]
        }
        limits = {device: int(rng.integers(2, 12)) * BYTES for device in devices[:-1] if rng.random() < 0.3}
        speeds = [
            DeviceSpeed(
                *(10.0 ** rng.uniform(6, 9, 2)),
                launch_s=float(rng.choice([0, 1e-6])),
                link_bytes_per_s=None if rng.random() < 0.4 else 10.0 ** rng.uniform(6, 9),
            )
            for _ in devices
        ]
        most = {device: int(rng.integers(1, 3)) for device in devices[:-1] if rng.random() < 0.3}
        rules = AssignmentRules(
            objective=objective,
            speeds=speeds,
            limits=limits,
            least=least,
            most=most,
            together=tuple(together),
        )
        return cls(model, devices, supports, pins, rules, resolve_groups(model, together))

    def solve(self) -> Assignment:
        affinity = assign(self.model, self.devices, self.supports, self.pins)
        affinity = dataclasses.replace(affinity, groups=self.groups)
        return assign_and_cut(self.model, self.model, affinity, self.rules)

    def check(self, found: Assignment) -> None:
        """Every constraint, counted naively."""
        device_of = found.affinity.device_of.tolist()
        subgraph_of = found.partition.subgraph_of.tolist()
        parts = [
            [node for node in range(self.model.num_nodes) if subgraph_of[node] == part]
            for part in range(found.partition.num_subgraphs)
        ]
        for node, device in enumerate(device_of):
            assert self.supports[device].mask[node]
        for key, name in self.pins.items():
            assert self.devices[device_of[int(key[1:])]] == name
        for expressions in self.rules.together:
            assert len({device_of[int(key[1:])] for key in expressions}) == 1
        for nodes in parts:
            device = device_of[nodes[0]]
            assert {device_of[node] for node in nodes} == {device}
            least = self.rules.least.get(self.devices[device], LeastSubgraph())
            assert len(nodes) >= least.nodes
            assert 16 * len(nodes) >= least.flops
            units = [set(unit.tolist()) for unit in self.supports[device].units]
            for node in nodes:
                mine = [unit for unit in units if node in unit]
                assert not mine or any(unit <= set(nodes) for unit in mine)
        for name, most in self.rules.most.items():
            assert np.count_nonzero(found.partition.device_of == self.devices.index(name)) <= most
        times = None
        if found.latency is not None and found.latency.overlaps:
            times = found.latency.begin_s, found.latency.end_s
        needs = footprint(values_of(self.model), subgraph_of, found.partition.device_of, len(self.devices), times)
        if self.rules.objective is not Objective.THROUGHPUT:
            for device, limit in self.rules.limits.items():
                assert needs.total[self.devices.index(device)] <= limit


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(block, marks=pytest.mark.exhaustive) for block in (2, 3))])
def test_constraints_hold_on_every_plan(block: int) -> None:
    solved = 0
    for seed in range(block * 40, (block + 1) * 40):
        case = Case.random(seed)
        try:
            found = case.solve()
        except (InsufficientMemory, PipelineError):
            continue
        except (UnsupportedModel, PropertyError) as error:
            named = "'n" in str(error)
        else:
            case.check(found)
            solved += 1
            continue
        assert named, f"the error of seed {seed} names no node"
    assert solved >= 10


@pytest.mark.parametrize("block", range(3))
def test_groups_and_pins_are_solved_whenever_they_can_be(block: int) -> None:
    """Without minimum sizes, units and limits, an error means that no assignment satisfies groups and pins."""
    errors = 0
    for seed in range(block * 40, (block + 1) * 40):
        case = Case.random(seed)
        objective = OBJECTIVES[seed % 4]  # a pipeline may fail because of its order
        case.rules = dataclasses.replace(case.rules, limits={}, least={}, most={}, objective=objective)
        case.supports = [dataclasses.replace(support, units=()) for support in case.supports]
        members: Sequence[Sequence[int]] = [
            *(group.tolist() for group in case.groups),
            *([node] for node in range(case.model.num_nodes) if not any(node in group for group in case.groups)),
        ]
        possible = all(
            any(
                all(case.supports[device].mask[node] and case.pins.get(f"n{node}", name) == name for node in group)
                for device, name in enumerate(case.devices)
            )
            for group in members
        )
        try:
            case.check(case.solve())
            assert possible
        except HeteroError:
            assert not possible, f"seed {seed}"
            errors += 1
    assert errors


def test_unconstrained_plans_do_not_change() -> None:
    for seed in range(40):
        case = Case.random(seed)
        case.rules = dataclasses.replace(case.rules, limits={}, least={}, most={}, together=())
        case.rules = dataclasses.replace(case.rules, objective=OBJECTIVES[seed % 4])
        case.groups, case.pins = (), {}
        case.supports = [dataclasses.replace(support, units=()) for support in case.supports]
        plain = case.solve()
        # A unit of one node is always complete, and each node is a subgraph of at least one.
        case.supports = [
            dataclasses.replace(support, units=[np.array([node], np.int32) for node in np.flatnonzero(support.mask)])
            for support in case.supports
        ]
        constrained = case.solve()
        assert constrained.affinity.device_of.tolist() == plain.affinity.device_of.tolist()
        assert constrained.affinity.origin.tolist() == plain.affinity.origin.tolist()


def test_a_group_goes_where_it_takes_the_least_time() -> None:
    """Two devices, one group, no launches: all assignments are tried."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        model = random_model(rng, 7)
        speeds = [DeviceSpeed(*(10.0 ** rng.uniform(6, 9, 2)), link_bytes_per_s=1e8) for _ in range(2)]
        supports = [Support.from_reasons(7, {}) for _ in range(2)]
        group = np.sort(rng.choice(7, 3, replace=False)).astype(np.int32)
        rules = AssignmentRules(objective=Objective.COST, speeds=speeds)
        affinity = dataclasses.replace(assign(model, ("A", "B"), supports), groups=(group,))
        found = assign_and_cut(model, model, affinity, rules)
        best = np.inf
        for labels in itertools.product((0, 1), repeat=7):
            device_of = np.array(labels, np.int32)
            if len(set(device_of[group].tolist())) == 1:
                best = min(best, _seconds(model, affinity, device_of, rules))
        assert found.latency is not None
        # `CAUTION` and `LEAST_GAIN` keep nodes in place if they would gain little.
        assert found.latency.total_s <= best * 1.3


def _seconds(model: Model, affinity: Affinity, device_of: np.ndarray, rules: AssignmentRules) -> float:
    fixed = dataclasses.replace(
        affinity, device_of=device_of, origin=np.full(len(device_of), Origin.PIN, np.uint8), groups=()
    )
    latency = assign_and_cut(model, model, fixed, rules).latency
    assert latency is not None
    return latency.total_s


def test_a_device_whose_memory_ends_within_units_keeps_whole_ones() -> None:
    """Each unit that leaves makes room for a part of another, more often than there are attempts."""
    count = 240
    nodes = [
        helper.make_node(
            "Add", ["x" if i == 0 else f"v{i - 1}", f"w{i}"], ["y" if i == count - 1 else f"v{i}"], f"n{i}"
        )
        for i in range(count)
    ]
    weights = {f"w{i}": np.full(16, i, np.float32) for i in range(count)}
    model = read_model(make_model(nodes, {"x": (16,)}, weights=weights))
    units = tuple(np.arange(begin, begin + 4, dtype=np.int32) for begin in range(0, count, 4))
    every = np.ones(count, np.bool_)
    supports = [Support(every, {}, units=units), Support(every, {})]
    limit = BYTES * 26
    affinity = assign(model, ("A", "B"), supports)
    found = assign_and_cut(model, model, affinity, AssignmentRules(limits={"A": limit}))
    on_a = np.flatnonzero(found.affinity.device_of == 0)
    assert len(on_a) >= 8
    assert np.isin(units, on_a).all(axis=1).sum() * 4 == len(on_a)
    needs = footprint(values_of(model), found.partition.subgraph_of, found.partition.device_of, 2)
    assert needs.total[0] <= limit
