"""What the fault tests run: small operations that together pass through the whole library.

Each takes an empty folder and returns a value that can be compared, or a function that makes one once no fault is set:
the same for every run without a fault.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import hetero
from hetero import _assign
from hetero.assign import AssignmentProblem, assign_by_cost
from hetero.assign.cuts import least_latency
from hetero.assign.memory import RangeMemory, Values, footprint
from hetero.assign.memory.order import late_order
from hetero.assign.pipeline import balance_stages
from hetero.assign.schedule import Room, least_makespan
from hetero.errors import PartitionError
from hetero.partition import POLICIES, Graph, TransitiveClosure, partition_graph

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,4,8,8] x, float[4,16] m) => (float[1,6] y, float[4,4] z, int64[n,2] positions)
<float[8,4,3,3] w, float[8] b, float[8,6] v, float[16] s, int64 trips = {3}, bool go = {1}>
{
    conv = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    active = Relu(conv)
    pooled = GlobalAveragePool(active)
    flat = Flatten(pooled)
    logits = MatMul(flat, v)
    y = Softmax(logits)
    normal = LayerNormalization(m, s)
    square = Gemm<transB = 1>(normal, m)
    z = Loop(trips, go, square) <body = turn (int64 i, bool c, float[4,4] a) => (bool d, float[4,4] e)
    {
        d = Identity(c)
        t = Transpose(a)
        e = Add(t, square)
    }>
    found = NonZero(logits)
    positions = Transpose(found)
}
"""
DEVICES = "HETERO:TEMPLATE,CPU"


@functools.cache
def model_bytes() -> bytes:
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(1)
    for name, shape in {"w": (8, 4, 3, 3), "b": (8,), "v": (8, 6), "s": (16,)}.items():
        kept = [one for one in model.graph.initializer if one.name != name]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.random(shape, np.float32), name))
    return model.SerializeToString()


@functools.cache
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {"x": rng.random((1, 4, 8, 8), np.float32), "m": rng.random((4, 16), np.float32)}


def _pins() -> dict[str, str]:
    return dict.fromkeys(("op:Conv", "op:MatMul", "op:Gemm"), "TEMPLATE")


@functools.cache
def _core() -> hetero.Core:
    return hetero.Core()


def _results(compiled: Any) -> list[bytes]:
    outputs = compiled(inputs())
    return [np.asarray(outputs[name]).tobytes() for name in ("y", "z", "positions")]


def read(folder: Path) -> Any:
    model = hetero.Core().read_model(model_bytes())
    operators = [node.op_type for node in model.nodes]
    return operators, model.to_bytes()


def _message(number: int, payload: bytes) -> bytes:
    """An encoded field of 128 to 16,383 bytes, or of fewer."""
    length = len(payload)
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return bytes([number << 3 | 2]) + size + payload


@functools.cache
def _everything() -> bytes:
    """A model with all that the reader keeps in an array, in an order in which each array grows somewhere."""
    helper = onnx.helper
    body = helper.make_graph(
        [helper.make_node("Add", ["inner", "c"], ["o"])],
        "body",
        [],
        [helper.make_empty_tensor_value_info("o")],
        [helper.make_tensor("inner", 1, [1], [1.0])],
    )
    nodes = [
        helper.make_node("Sum", ["b", "x", ""], ["y"], name="n"),
        helper.make_node("Constant", [], ["c"], value_ints=[1, 2]),
        helper.make_node("Constant", [], ["d"], value_float=1.0, name="n"),
        helper.make_node("Cond", ["d"], ["b"], domain="own", body=body),
        helper.make_node("F", ["big"], ["z"], domain="own", name="y"),
    ]
    nodes[0].metadata_props.add(key="affinity", value="CPU")
    ports = [helper.make_tensor_value_info(name, 1, ["n", 2, None]) for name in "xyz"]
    ports = [helper.make_tensor_value_info(name, 1, ["n", 2, None]) for name in "xyz"]
    info = helper.make_tensor_value_info("b", 1, [2])
    sparse = helper.make_sparse_tensor(helper.make_tensor("s", 1, [1], [1.0]), helper.make_tensor("", 7, [1], [1]), [2])
    small, rest = helper.make_tensor("small", 1, [1], [1.0]), helper.make_tensor("rest", 1, [1] * 31, [1.0])
    packed = b"\x0a\x40" + b"\1" * 64 + b"\x10\x01\x22\x041234\x42\x03big"  # 64 packed dims: onnx packs none
    initializers = [small.SerializeToString(), packed, rest.SerializeToString()]
    function = helper.make_function(
        "own", "F", ["a"], ["r"], [helper.make_node("Relu", ["a"], ["r"])], [helper.make_opsetid("", 17)], overload="o"
    )
    # Results and types come before the nodes.
    graph = [
        *(_message(12, port.SerializeToString()) for port in ports[1:]),
        _message(11, ports[0].SerializeToString()),
        _message(13, info.SerializeToString()),
        *(_message(5, initializer) for initializer in initializers),
        *(_message(1, node.SerializeToString()) for node in nodes),
        _message(15, sparse.SerializeToString()),
        *(_message(5, helper.make_tensor(f"w{i}", 1, [], [1.0]).SerializeToString()) for i in range(60)),
        _message(2, b"everything"),
    ]
    header = onnx.ModelProto(ir_version=10, functions=[function])
    header.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])
    return header.SerializeToString() + _message(7, b"".join(graph))


def read_everything(folder: Path) -> Any:
    """Also the keys of nodes and the types of values."""
    model = hetero.Core().read_model(_everything())
    types = [model.type_of(value, infer=False) for value in range(model.num_values)]
    return model.keys, [str(known.shape) for known in types]


@functools.cache
def _names() -> list[bytes]:
    """Models whose nodes need their outputs as keys, each so that the list of these nodes grows for another reason."""

    def model(names: list[str], outputs: list[str] | None = None) -> bytes:
        outputs = outputs or [f"o{i}" for i in range(len(names))]
        nodes = [onnx.helper.make_node("Relu", ["x"], [o], name=n) for n, o in zip(names, outputs, strict=True)]
        ports = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in ("x", outputs[-1])]
        return onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:])).SerializeToString()

    pairs = [f"n{i // 2}" for i in range(64)]
    return [model([""]), model(["n", "n"]), model(["", *pairs]), model([*[""] * 64, "o0"]), model(["a"])]


def keys(folder: Path) -> Any:
    return [hetero.Core().read_model(data).keys for data in _names()]


_SHIFTS = 180
_PARTS = 14


@functools.cache
def _indices(part: int) -> list[tuple[int, Any]]:
    """Small models with their numbers. In each, what follows the first name, or the name of a constant, lies one byte
    later than in the one before."""
    from hetero._onnx import OnnxIndex

    helper, made = onnx.helper, []
    sizes = [*((shift, 1) for shift in range(_SHIFTS)), *((0, length) for length in range(20, 36))]
    for number in range(part, len(sizes), _PARTS):
        shift, length = sizes[number]
        name, constant = "k" * (shift + 1), "c" * length
        graph = helper.make_graph(
            [
                helper.make_node("Constant", [], [constant], value_float=1.0),
                helper.make_node("Sum", [name, "x", "v", constant], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", 1, ["n"])],
            [helper.make_tensor_value_info("y", 1, [2])],
            [helper.make_tensor(name, 1, [9], np.ones(9)), helper.make_tensor("v", 1, [9], np.ones(9))],
        )
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
        made.append((number, OnnxIndex(np.frombuffer(data, np.uint8), bytes(16))))
    return made


def skeletons(part: int, folder: Path) -> Any:
    """Skeletons, from which types are inferred. Their buffer grows at each field. The models are divided into parts,
    because a run for the n-th allocation repeats all that comes before it."""
    written = []
    for number, index in _indices(part):
        arrays = index.arrays
        constants = np.array([1, 0, 1], np.uint8)
        infos, keeps = np.ones(len(arrays["info_value"]), np.uint8), np.ones(len(arrays["value_name"]), np.uint8)
        hidden = b"hidden" + b"_" * (number % 3)  # between the constants: so that their places differ by all numbers
        written.append(index.skeleton(constants, infos, keeps, 4, hidden))
    return written


@functools.cache
def _graph() -> tuple[Graph, np.ndarray]:
    rng = np.random.default_rng(3)
    n = 60
    ends = np.sort(rng.integers(0, n, (2 * n, 2)), axis=1)
    ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
    return Graph.from_edges(ends[:, 0], ends[:, 1], n), rng.integers(0, 3, n)


def graph(folder: Path) -> Any:
    made = Graph.from_edges([0, 1, 2, 0, 0], [1, 2, 3, 3, 3], 5)
    return made.topological_order.tolist(), made.predecessors(3).tolist()


def partition(policy: str, folder: Path) -> Any:
    made, device = _graph()
    found = partition_graph(made, device, policy)
    return found.subgraph_of.tolist(), found.cut_edges, found.quotient.indices.tolist(), found.lower_bound


def weighted(folder: Path) -> Any:
    made, device = _graph()
    weight = np.arange(made.num_edges) % 7 + 1.0
    found = partition_graph(made, device, edge_weight=weight)
    split = partition_graph(made, device, edge_weight=weight, max_nodes=4)
    return found.subgraph_of.tolist(), split.subgraph_of.tolist()


def partition_quick(folder: Path) -> Any:
    """Without the search for fewer subgraphs, which makes most of the calls of others and hides what runs after it."""
    made, device = _graph()
    weight = np.arange(made.num_edges) % 7 + 1.0
    limits: dict[str, Any] = {"max_nodes": 4, "min_nodes": 2, "allowed": np.ones((60, 3), bool)}
    found = [
        partition_graph(made, device, thorough=False),
        partition_graph(made, device, edge_weight=weight, thorough=False),
        partition_graph(made, device, "linear", edge_weight=weight, **limits),
    ]
    return [partition.subgraph_of.tolist() for partition in found]


def limited(folder: Path) -> Any:
    made, device = _graph()
    return partition_graph(made, device, max_nodes=4, min_nodes=2, allowed=np.ones((60, 3), bool)).subgraph_of.tolist()


def checked(folder: Path) -> Any:
    made, device = _graph()
    hetero.check_partition(made, device, _partition_of_graph(), maximal=True, ordered=True)


def refused(folder: Path) -> Any:
    """Partitions that break a rule, with the nodes that show it."""
    made, device = _graph()
    n, valid = made.num_nodes, _partition_of_graph()
    triangle, crossed = Graph.from_edges([0, 0, 1], [1, 2, 2], 3), Graph.from_edges([0, 1, 0, 1], [3, 2, 2, 3], 4)
    messages = []
    for of, devices, labels in (
        (made, device, np.unique(device, return_inverse=True)[1]),
        (made, device, np.arange(n)),
        (made, device, valid.max() - valid),
        (triangle, [0, 0, 0], [0, 1, 0]),
        (crossed, [0, 0, 0, 0], [0, 1, 1, 0]),
    ):
        try:
            hetero.check_partition(of, devices, labels, maximal=True, ordered=True)
        except PartitionError as error:
            messages.append(str(error))
    return messages


@functools.cache
def _partition_of_graph() -> np.ndarray:
    made, device = _graph()
    return partition_graph(made, device).subgraph_of


def closure(folder: Path) -> Any:
    made, _ = _graph()
    found = TransitiveClosure(made)
    pairs = [(0, 59), (3, 50), (10, 40)]
    return [found.descendants(5).tolist(), *(found.path_nodes(*pair).tolist() for pair in pairs)]


@functools.cache
def _large_graph() -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    n = 12_000
    target = np.repeat(np.arange(1, n), 2)
    source = np.maximum(0, target - 1 - rng.integers(0, 9, len(target)))
    return source, target, n, rng.integers(0, 3, n)


def partition_large(folder: Path) -> Any:
    """So many nodes that loops which look for signals every 65,536 units of work do so."""
    source, target, n, device = _large_graph()
    made = Graph.from_edges(source, target, n)
    found = [partition_graph(made, device, policy) for policy in ("auto", "linear", "depth_height")]
    hetero.check_partition(made, device, found[0].subgraph_of, maximal=True, ordered=True)
    return [partition.subgraph_of.tolist() for partition in found]


@functools.cache
def _pipeline_case() -> Any:
    from pipeline_cases import random_case

    return random_case(np.random.default_rng(4), 14, 3)


def assign(folder: Path) -> Any:
    case = _pipeline_case()
    found = assign_by_cost(case.problem)
    latency = least_latency(case.graph, case.problem, np.append(case.launch, 0))
    return found.device_of.tolist(), found.cost, latency.device_of.tolist()


@functools.cache
def _schedule_case() -> Any:
    from schedule_cases import random_case

    return random_case(np.random.default_rng(5), 14, 3, lane=np.array([0, 1, 1]))


def makespan(folder: Path) -> Any:
    case = _schedule_case()
    n, k = case.scheduler.graph.num_nodes, case.problem.num_devices
    scheduler = case.scheduler.with_problem(case.problem)  # which has cached nothing
    found = assign_by_cost(case.problem)
    cut = least_makespan(scheduler, [found.device_of[:n]])
    room = Room(np.arange(n), np.arange(n) // 2, np.ones((n + 1) // 2), np.ones(n), np.full(k, n))
    within = [scheduler.assign(room).tolist(), scheduler.assign_chains(room).tolist()]
    return cut.partition.subgraph_of.tolist(), cut.latency, within, scheduler.lower_bound()


@functools.cache
def _schedule_of(n: int) -> Any:
    from schedule_cases import make_case

    rng = np.random.default_rng(5)
    edges = [(a, b) for b in range(1, n) for a in {max(0, b - 1 - int(each)) for each in rng.integers(0, 9, 2)}]
    devices = {"lane": np.array([0, 1, 1]), "shares": np.array([1, 1, 0]), "hand_over": 0.01}
    return make_case(edges, rng.random((3, n)), 0.1, 0.1, inputs=(0, 1), outputs=(1, n - 1), **devices)


def schedule(folder: Path, n: int = 160) -> Any:
    """Each function of the schedule's core once, so that each is interrupted. ``n``: nodes, which are sorted by digits,
    not by insertion."""
    case = _schedule_of(n)
    scheduler = case.scheduler.with_problem(case.problem)
    room = Room(
        np.arange(n), np.arange(n) // 2, np.ones((n + 1) // 2), np.ones(n), np.full(case.problem.num_devices, n)
    )
    device_of = scheduler.assign(room)
    runs = scheduler.runs(device_of)
    return device_of.tolist(), runs.partition.subgraph_of.tolist(), runs.latency, scheduler.lower_bound()


def schedule_large(folder: Path) -> Any:
    """So many nodes that loops which look for signals every 65,536 units of work do so."""
    return schedule(folder, 12_000)


@functools.cache
def _cut_case() -> Any:
    """A problem of three devices, and a network that reductions leave as it is."""
    rng = np.random.default_rng(6)
    n = 60
    edges = sorted({(a, b) for a, b in rng.integers(0, n, (4 * n, 2)).tolist() if a < b})
    graph = Graph.from_edges(*zip(*edges, strict=True), n)
    work, size = rng.random((3, n)), rng.random(n)
    work[rng.random((3, n)) < 0.1] = np.inf
    work[0] = np.where(np.isfinite(work).any(axis=0), work[0], 1.0)
    links = rng.random((3, 3))
    problem = AssignmentProblem.from_graph(graph, work, size, links, links)
    start = np.argmin(work, axis=0).astype(np.int32)
    tail, head = np.array(edges, np.int32).T
    network = (tail, head, rng.integers(0, 9, len(tail)), rng.integers(0, 9, len(tail)), rng.integers(-9, 10, n))
    return problem, start, network


def minimum_cuts(folder: Path) -> Any:
    """Each function of the assignment's core once, so that each is interrupted."""
    problem, start, network = _cut_case()
    moved = problem.move(start, 1)
    cuts = [_assign.min_cut(*network, reduce) for reduce in (False, True)]
    return moved.tolist(), problem.cost(moved).total, [(flow, side.tolist(), cut) for flow, side, cut in cuts]


@functools.cache
def _values_case() -> Any:
    rng = np.random.default_rng(7)
    n = 40
    reads = np.array([(v, u) for u in range(1, n) for v in rng.integers(0, u, 2)] + [(n + u // 3, u) for u in range(n)])
    producer = [*range(n), *[-1] * n]
    sizes = rng.integers(1, 99, 2 * n)
    return n, producer, sizes, reads[:, 0], reads[:, 1], np.arange(2 * n) >= n, np.arange(2 * n) == n - 1


def memory(folder: Path) -> Any:
    """Each function that counts memory."""
    n, *arrays = _values_case()
    values = Values.from_arrays(n, *arrays)
    subgraph_of = np.arange(n) // 4
    needs = footprint(values, subgraph_of, np.arange(n // 4) % 2, 2)
    ranges = RangeMemory(values, late_order(values))
    return needs.total.tolist(), needs.peak_node.tolist(), ranges.needs_from(3).tolist(), ranges.reach_back(n, 700.0)


def balance(folder: Path) -> Any:
    case = _pipeline_case()
    return balance_stages(case.graph, case.problem, case.launch, 3).stage_of.tolist()


def plan(folder: Path) -> Any:
    return _core().plan(model_bytes(), DEVICES, pins=_pins()).to_json()


def plan_latency(folder: Path) -> Any:
    config = {"OBJECTIVE": "LATENCY"}
    return _core().plan(model_bytes(), DEVICES, config, pins=_pins()).to_json()


def compile_cpu(folder: Path) -> Any:
    return _results(_core().compile_model(model_bytes(), "CPU"))


def compile_dynamic(folder: Path) -> Any:
    return _results(_core().compile_model(_dynamic_bytes(), "CPU"))


@functools.cache
def _dynamic_bytes() -> bytes:
    model = onnx.load_from_string(model_bytes())
    for port in model.graph.input:
        port.type.tensor_type.shape.dim[0].dim_param = f"batch_{port.name}"
    for port in model.graph.output[:2]:
        port.type.tensor_type.ClearField("shape")
    return model.SerializeToString()


def compile_hetero(folder: Path) -> Any:
    return _results(_core().compile_model(model_bytes(), DEVICES, pins=_pins()))


@functools.cache
def _compiled() -> hetero.CompiledModel:
    return _core().compile_model(model_bytes(), DEVICES, pins=_pins())


def infer(folder: Path) -> Any:
    return _results(_compiled())


def export(folder: Path) -> Any:
    _compiled().export_model(folder / "net.hetero")
    return functools.partial(_files, folder)


@functools.cache
def _exported() -> bytes:
    import io

    stream = io.BytesIO()
    _compiled().export_model(stream)
    return stream.getvalue()


def import_(folder: Path) -> Any:
    return _results(_core().import_model(_exported()))


def save(folder: Path) -> Any:
    hetero.Core().read_model(model_bytes()).save(folder / "net.onnx", external_above=100)
    return functools.partial(_files, folder)


def split(folder: Path) -> Any:
    hetero.split(model_bytes(), _plan(), folder / "parts", external_above=100)
    return functools.partial(_files, folder)


@functools.cache
def _plan() -> hetero.Plan:
    return _core().plan(model_bytes(), DEVICES, pins=_pins())


def save_plan(folder: Path) -> Any:
    _plan().save(folder / "plan.json")
    return functools.partial(_files, folder)


def cache(folder: Path) -> Any:
    """Compiles into an empty cache. A cache that cannot be written is not an error."""
    return _results(_core().compile_model(model_bytes(), "CPU", {"CACHE_DIR": str(folder / "cache")}))


def _files(folder: Path) -> Any:
    return sorted((str(path.relative_to(folder)), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


SINGLE = (partition_large, partition_quick, schedule, schedule_large, minimum_cuts, memory)
IN_MEMORY: dict[str, Callable[[Path], Any]] = {
    **{operation.__name__: operation for operation in (read_everything, keys)},
    **{f"skeletons_{part}": functools.partial(skeletons, part) for part in range(_PARTS)},
    **{
        operation.__name__: operation
        for operation in (read, graph, limited, weighted, checked, refused, closure, assign, makespan, balance, *SINGLE)
    },
    **{f"partition_{policy}": functools.partial(partition, policy) for policy in POLICIES},
    **{operation.__name__: operation for operation in (plan, plan_latency, compile_cpu, compile_dynamic)},
    **{operation.__name__: operation for operation in (compile_hetero, infer, export, import_)},
}
ON_FILES: dict[str, Callable[[Path], Any]] = {
    operation.__name__: operation for operation in (export, save, split, save_plan, cache)
}


# ---- operations with a defect, which the harness must find

_KEPT: list[Any] = []


def leaking(folder: Path) -> Any:
    model = hetero.Core().read_model(model_bytes())
    _KEPT.append(model)
    return len(model.nodes)


def swallowing(folder: Path) -> Any:
    try:
        return read(folder)
    except MemoryError:
        return None


def raising(folder: Path) -> Any:
    try:
        return read(folder)
    except MemoryError as error:
        raise RuntimeError from error


def going_on(folder: Path) -> Any:
    try:
        return graph(folder)
    except KeyboardInterrupt:
        return None


def hoarding(folder: Path) -> Any:
    try:
        return graph(folder)
    except KeyboardInterrupt:
        _KEPT.append(TransitiveClosure(_graph()[0]))
        raise


def unfinished(folder: Path) -> Any:
    with (folder / "file").open("wb", buffering=0) as file:
        for _ in range(3):
            file.write(b"part")
    return functools.partial(_files, folder)


CONTROLS: dict[str, Callable[[Path], Any]] = {
    operation.__name__: operation for operation in (leaking, swallowing, raising, going_on, hoarding, unfinished)
}
OPERATIONS = {**IN_MEMORY, **ON_FILES, **CONTROLS}
