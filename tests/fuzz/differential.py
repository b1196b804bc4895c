"""Differential fuzzing: one random model on `CPU` in several ways, on `TEMPLATE`, and in onnxruntime.

`differences` lists where the answers disagree, `shrink` finds a smaller case that still disagrees, and `reproduction`
prints it. The modules beside this one generate cases; `run.py` is the command and lists these modules.

Every call on `CPU` goes through buffers that are reused and overwritten, inputs and results alike, so that a plan which
keeps a reference to either one is caught by any generator.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.devices.cpu import runner
from hetero.devices.cpu.fusion import pointwise_depthwise

__all__ = [
    "LOG_SOFTMAX",
    "SATURATES",
    "Answer",
    "Caller",
    "Case",
    "Known",
    "Tally",
    "differences",
    "reproduction",
    "shrink",
]

Feeds = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and the inputs of each call to one compiled model.

    ``tolerance``: of floating-point results, relative to the largest finite one of the output, or with ``elementwise``
    to each element. Everything else must match exactly.
    ``judges``: what `CPU` is compared with, `TEMPLATE` and `onnxruntime`; a generator omits a judge if ONNX
    does not define the result and that judge is known to choose another one. `OPENVINO` with `CPU` for the nodes that
    it refuses is a judge only if it is asked for.
    ``states``: output -> input: what each call has for this input is the result of the call before. The model is then
    also called through a stateful request.
    ``properties``: for every compilation on `CPU`. ``manner``: how the model is called there: ``in turn``, by one
    caller; ``asynchronous``, by three callers whose inferences overlap; ``threads``, by two threads.
    """

    model: onnx.ModelProto
    calls: Sequence[Feeds]
    note: str = ""
    tolerance: float = 2e-5
    judges: tuple[str, ...] = ("TEMPLATE", "onnxruntime")
    properties: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    manner: str = "in turn"
    elementwise: bool = False
    states: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def has(self, op_type: str) -> bool:
        """Whether the model, or a body in it, has a node of that operator."""
        bodies = [attribute.g for node in self.model.graph.node for attribute in node.attribute]
        return any(node.op_type == op_type for graph in (self.model.graph, *bodies) for node in graph.node)

    @property
    def is_extreme(self) -> bool:
        """Whether an input holds NaN or an infinity."""
        return any(
            not np.isfinite(array).all() for feeds in self.calls for array in feeds.values() if array.dtype.kind == "f"
        )


@dataclasses.dataclass(frozen=True)
class Known:
    """An explained difference from a judge. ``applies``: whether a case may show it. ``shows``: whether a difference,
    in the words of `differences`, is of that kind; each difference of the case must be."""

    judge: str
    reason: str
    applies: Callable[[Case], bool]
    shows: Callable[[Case, str], bool] = lambda case, difference: True


LOG_SOFTMAX = Known(
    "onnxruntime",
    "its LogSoftmax of float64 gives -inf beside an infinity, where the formula gives NaN",
    lambda case: case.is_extreme and case.has("LogSoftmax"),
)


SATURATES = Known(
    "onnxruntime",
    "its products of uint8 with int8 saturate 16-bit sums of two on processors without VNNI",
    lambda case: (
        (
            any(case.has(op) for op in ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"))
            or (case.has("DequantizeLinear") and any(case.has(op) for op in ("MatMul", "Gemm", "Conv")))
        )
        and _element_types(case) >= {TensorProto.UINT8, TensorProto.INT8}
    ),
)


def _element_types(case: Case) -> set[int]:
    graph = case.model.graph
    values = (*graph.input, *graph.output, *graph.value_info)
    return {value.type.tensor_type.elem_type for value in values} | {tensor.data_type for tensor in graph.initializer}


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of one implementation: per call the outputs, or the text of the error. ``refused``: why it refuses the
    model. ``troubles``: memory that a call must not write or share, but did."""

    calls: Sequence[Sequence[np.ndarray] | str]
    refused: str = ""
    troubles: Sequence[str] = ()


@dataclasses.dataclass
class Tally:
    """Counts of a run of the fuzzer: cases, cases that `CPU` or a judge refused, and explained differences."""

    cases: int = 0
    calls: int = 0
    seen: Counter[str] = dataclasses.field(default_factory=Counter)

    def __str__(self) -> str:
        rest = ", ".join(f"{what}: {number}" for what, number in sorted(self.seen.items()))
        return f"{self.cases} cases, {self.calls} calls; {rest or 'nothing refused'}"


# ---- the implementations -------------------------------------------------------------------------------------------


def on_hetero(
    case: Case, device: str, properties: Mapping[str, Any], given: Sequence[Sequence[np.ndarray] | str] = ()
) -> Answer:
    """``device``: or one of `CUTS` or `BODY_CUTS`, or `IMPORTED` for a model on `CPU` that was exported and imported.
    ``given``: the results of the calls, if the caller passes arrays for them."""
    try:
        compiled = _compiled(case, device, properties)
    except hetero.HeteroError as error:
        return Answer((), refused=str(error))
    calls: list[Sequence[np.ndarray] | str] = [""] * len(case.calls)
    callers = [
        Caller(compiled, case, calls, given) for _ in range({"asynchronous": 3, "threads": 2}.get(case.manner, 1))
    ]
    if case.manner == "threads":
        with ThreadPoolExecutor(len(callers)) as pool:
            list(pool.map(lambda at: [callers[at].call(n) for n in range(at, len(calls), len(callers))], range(2)))
    elif case.manner == "asynchronous":
        for number in range(len(calls) + len(callers)):
            caller = callers[number % len(callers)]
            caller.end()
            if number < len(calls):
                caller.begin(number)
    else:
        for number in range(len(calls)):
            callers[0].call(number)
    return Answer(calls, troubles=[trouble for caller in callers for trouble in caller.troubles])


def _compiled(case: Case, device: str, properties: Mapping[str, Any]) -> hetero.CompiledModel:
    """``device``: as for `on_hetero`."""
    core = hetero.Core()
    if device in (CUT_ORT, BODIES_ORT):  # by default, it rounds what is multiplied by dequantized weights to 8 bits
        core.set_property("ORT", {"ORT_SESSION_CONFIG": {"session.qdq_matmulnbits_accuracy_level": "1"}})
    if device in BODY_CUTS:
        other = BODY_CUTS[device]
        pins = {key: other for key in _in_bodies(case.model.graph) if zlib.crc32(key.encode()) % 3 == 0}
        return core.compile_model(case.model, f"HETERO:CPU,{other},CONTROL_FLOW", dict(properties), pins=pins)
    model = core.read_model(case.model)
    is_imported = device == IMPORTED
    device = "CPU" if is_imported else device
    if device in CUTS:
        other, chosen = CUTS[device]
        device = f"HETERO:CPU,{other}"
        refused = core.query_model(model, other).reasons
        keys = [model.key_of(node) for node in chosen(len(model.nodes))]
        model = model.with_affinity({key: other for key in keys if key not in refused})
    compiled = core.compile_model(model, device, dict(properties))
    if is_imported:
        file = io.BytesIO()
        compiled.export_model(file)
        compiled = core.import_model(file.getvalue(), device, dict(properties))
    return compiled


def _in_bodies(graph: onnx.GraphProto, around: str = "") -> Iterator[str]:
    """The keys of the nodes inside the bodies of a graph, for pins."""
    for node in graph.node:
        key = around + (node.name or next(filter(None, node.output)))
        bodies = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
        if around and not bodies and node.op_type != "Constant":  # which is a value, not a node
            yield key
        for body in bodies:
            yield from _in_bodies(body, f"{key}/")


def with_states(case: Case, device: str, results_of: Sequence[Sequence[np.ndarray] | str]) -> Answer:
    """The case through a stateful request. Between the calls, other requests use and change the same states.
    ``results_of``: those of the calls, for arrays that receive results."""
    calls: list[Sequence[np.ndarray] | str] = []
    troubles = []
    read = set(case.states.values())
    names = [port.name for port in case.model.graph.output]
    try:
        compiled = _compiled(case, device, {"INFERENCE_NUM_THREADS": 1, **case.properties})
        request = compiled.create_stateful_request(dict(case.states), {name: case.calls[0][name] for name in read})
    except hetero.HeteroError as error:
        return Answer((), refused=str(error))
    held: list[tuple[np.ndarray, bytes]] = []
    buffers: dict[str, np.ndarray] = {}
    for number, feeds in enumerate(case.calls):
        free = {name: _in_buffer(buffers, name, array) for name, array in feeds.items() if name not in read}
        before = request.snapshot_state()
        try:
            if number % 3 == 1:  # a fork appends something else behind the same states
                fork = request.fork()
                fork.infer({name: np.full_like(array, 7) for name, array in free.items()})
                if number % 2:  # the fork goes on with the values of before
                    fork.restore_state(before)
                    request = fork
            out: dict[str, np.ndarray] = {}
            expected = results_of[number]
            if number % 4 == 2 and not isinstance(expected, str):
                out = {
                    name: _in_buffer(buffers, f"out {name}", result)
                    for name, result in zip(names, expected, strict=True)
                    if name not in case.states
                }
                for array in out.values():
                    _spoil(array)
            results = dict(request.infer(free, out or None).items())
        except hetero.HeteroError as error:
            calls.append(str(error))
            break
        after = request.snapshot_state()
        states = {output: after[name] for output, name in case.states.items()}
        calls.append([np.array(states[name] if name in states else results[name]) for name in names])
        for name in read:
            if before[name].tobytes() != feeds[name].tobytes():
                troubles.append(f"call {number}: the snapshot of {name!r} has changed")
        if any(array.tobytes() != value for array, value in held):
            troubles.append(f"call {number}: a result of the call before was written")
        for array in (*free.values(), *(array for array, _ in held)):
            _spoil(array)
        held = [(result, result.tobytes()) for result in results.values()]
        if number % 2:
            for result in results.values():
                _spoil(result)
            held = []
    return Answer([*calls, *[""] * (len(case.calls) - len(calls))], troubles=troubles)


class Caller:
    """A caller of a compiled model that reuses the memory of its inputs for each call, and overwrites the results: at
    once, or after the next call."""

    def __init__(
        self,
        compiled: hetero.CompiledModel,
        case: Case,
        calls: list[Sequence[np.ndarray] | str],
        given: Sequence[Sequence[np.ndarray] | str] = (),
    ) -> None:
        """``calls``: filled with what each returns. ``given``: as for `on_hetero`."""
        self._request = compiled.create_infer_request()
        self._case = case
        self._calls = calls
        self._places = given
        self._out: dict[int, np.ndarray] | None = None
        self._buffers: dict[str, np.ndarray] = {}
        self._given: dict[str, np.ndarray] = {}
        self._held: list[tuple[np.ndarray, bytes]] = []
        self._number: int | None = None  # of the call under way
        self.troubles: list[str] = []

    def call(self, number: int) -> None:
        self._give(number)
        try:
            results = list(self._request.infer(self._given, self._out).values())
        except hetero.HeteroError as error:
            self._calls[number] = str(error)
        else:
            self._take(number, results)

    def begin(self, number: int) -> None:
        self._give(number)
        self._request.start_async(self._given, self._out)
        self._number = number

    def end(self) -> None:
        """Wait for the call that `begin` started, if any."""
        number, self._number = self._number, None
        if number is None:
            return
        try:
            self._request.wait()
        except hetero.HeteroError as error:
            self._calls[number] = str(error)
        else:
            self._take(number, list(self._request.outputs.values()))

    def _give(self, number: int) -> None:
        feeds = self._case.calls[number]
        self._given = {name: _in_buffer(self._buffers, name, array) for name, array in feeds.items()}
        places = self._places[number] if self._places else ""
        if isinstance(places, str):
            self._out = None  # the call fails
            return
        self._out = {}  # every fourth is left to the device
        for position, result in enumerate(places):
            if isinstance(result, np.ndarray) and result.dtype != object and (number + position) % 4:
                self._out[position] = _in_buffer(self._buffers, f"out {position}", result)
                _spoil(self._out[position])

    def _take(self, number: int, results: Sequence[np.ndarray]) -> None:
        self._calls[number] = [np.array(result) for result in results]
        for name, array in self._given.items():
            if array.tobytes() != self._case.calls[number][name].tobytes():
                self.troubles.append(f"call {number}: input {name!r} was written")
        others = list(self._given.values())
        for position, result in enumerate(results):
            if not result.flags.writeable:
                self.troubles.append(f"call {number}: output {position} is read-only")
            if any(np.shares_memory(result, other) for other in others):
                self.troubles.append(f"call {number}: output {position} shares memory with an input or another output")
            others.append(result)
        for position, array in (self._out or {}).items():
            if results[position] is not array:
                self.troubles.append(f"call {number}: output {position} is not the given array")
        if any(array.tobytes() != before for array, before in self._held):
            self.troubles.append(f"call {number}: a result of the call before was written")
        for array in (*self._given.values(), *(array for array, _ in self._held)):
            _spoil(array)
        self._held = [(result, result.tobytes()) for result in results]
        if number % 3 or self._out:
            for result in results:
                _spoil(result)
            self._held = []


def _in_buffer(buffers: dict[str, np.ndarray], name: str, array: np.ndarray) -> np.ndarray:
    """``array`` in the memory of the last call's input of that name, if it fits exactly."""
    buffer = buffers.get(name)
    if buffer is None or buffer.nbytes != array.nbytes:
        buffer = buffers[name] = np.empty(array.nbytes, np.uint8)
    placed = buffer.view(array.dtype).reshape(array.shape) if array.nbytes else array.copy()
    placed[...] = array
    return placed


def _spoil(array: np.ndarray) -> None:
    """Overwrite an array with another valid value of its type; results that may not be written stay as they are."""
    if array.flags.writeable and array.dtype != object:
        array[...] = np.ones((), array.dtype)


def single_sizes() -> contextlib.AbstractContextManager[Any]:
    """Makes `CPU` plan for single sizes only."""
    return mock.patch.object(runner, "MAX_SYMBOLIC", 0)


def one_by_one() -> contextlib.AbstractContextManager[Any]:
    """Makes `CPU` run iterations one by one, as those of a body that is cut."""
    return mock.patch.object(runner.CpuRunner, "_new_iterations", return_value=None)


def small_joins() -> contextlib.AbstractContextManager[Any]:
    """Makes `CPU` join convolutions also where it does not pay, as models of a fuzzer are small."""
    return mock.patch.object(pointwise_depthwise, "_LEAST_ELEMENTS", 0)


def on_template(case: Case) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference implementations divide by zero and overflow on purpose
        return on_hetero(dataclasses.replace(case, manner="in turn"), "TEMPLATE", {})


def on_onnxruntime(case: Case) -> Answer:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # The rewrite rules of onnxruntime are not under test.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime raises many classes of exceptions
        return Answer((), refused=str(error))
    calls: list[Sequence[np.ndarray] | str] = []
    for feeds in case.calls:
        try:
            calls.append(session.run(None, dict(feeds)))
        except Exception as error:
            calls.append(str(error))
    return Answer(calls)


def on_openvino(case: Case) -> Answer:
    return on_hetero(dataclasses.replace(case, manner="in turn"), "HETERO:OPENVINO,CPU", {})


JUDGES: dict[str, Callable[[Case], Answer]] = {
    "TEMPLATE": on_template,
    "onnxruntime": on_onnxruntime,
    "OPENVINO": on_openvino,
}

CUT = "CPU and TEMPLATE"
CUT_ORT = "CPU and ORT"
HALVES = "CPU and TEMPLATE in halves"
BODIES = "CPU and TEMPLATE in bodies"
BODIES_ORT = "CPU and ORT in bodies"
OUT = "CPU with results in given arrays"
STATES = "CPU with states"
CUT_STATES = "CPU and TEMPLATE with states"
SINGLE = "CPU with a plan for each call's sizes"
ONE_BY_ONE = "CPU with iterations in Python"
IMPORTED = "CPU after export and import"

SMALLEST = 1e-6
"""Floating-point results that differ by less agree, however small they are."""

CUTS: dict[str, tuple[str, Callable[[int], Sequence[int]]]] = {
    CUT: ("TEMPLATE", lambda count: range(1, count, 3)),
    CUT_ORT: ("ORT", lambda count: range(0, count, 2)),
    HALVES: ("TEMPLATE", lambda count: range(count // 2, count)),
}
"""Another device than `CPU`, and the nodes that it gets of a model with that number of nodes."""
BODY_CUTS = {BODIES: "TEMPLATE", BODIES_ORT: "ORT"}
"""Another device than `CPU`, which gets a third of the nodes in bodies."""

WAYS: dict[str, Mapping[str, Any]] = {
    "CPU": {"INFERENCE_NUM_THREADS": 1},
    "CPU without transformations": {"INFERENCE_NUM_THREADS": 1, "DISABLE_TRANSFORMATIONS": True},
    "CPU with two threads": {"INFERENCE_NUM_THREADS": 2},
    SINGLE: {"INFERENCE_NUM_THREADS": 1},
    ONE_BY_ONE: {"INFERENCE_NUM_THREADS": 1},
    CUT: {"INFERENCE_NUM_THREADS": 1},
    IMPORTED: {"INFERENCE_NUM_THREADS": 1},
    OUT: {"INFERENCE_NUM_THREADS": 1},
    CUT_ORT: {"INFERENCE_NUM_THREADS": 1},
    HALVES: {"INFERENCE_NUM_THREADS": 1},
    BODIES: {"INFERENCE_NUM_THREADS": 1},
    BODIES_ORT: {"INFERENCE_NUM_THREADS": 1},
}
RARE = (CUT, IMPORTED, OUT, CUT_ORT, HALVES)
EXACT = ("CPU with two threads", SINGLE, ONE_BY_ONE, IMPORTED, OUT)
"""In which ways each case runs: one of `RARE` in each case (a model in a worker is not exported); if there are bodies,
mostly one of `BODY_CUTS`; and iterations in Python only if there are some. Transformations and cuts change rounding.
Those of `EXACT` do not change a bit; plans for single sizes, and iterations in Python, also keep the text of an
error."""


# ---- comparing -----------------------------------------------------------------------------------------------------


def differences(case: Case, known: Sequence[Known] = (), tally: Tally | None = None) -> list[str]:
    """Where the answers disagree, one line each; empty if they agree or `CPU` refuses the model."""
    tally = Tally() if tally is None else tally
    tally.cases += 1
    tally.calls += len(case.calls)
    number = zlib.crc32(case.model.SerializeToString(deterministic=True))
    rare = RARE[number % len(RARE)]  # all of them cost as much as the rest
    answers: dict[str, Answer] = {}
    special = {SINGLE: single_sizes, ONE_BY_ONE: one_by_one}
    iterates = case.has("Loop") or case.has("Scan")
    body_cut = (*BODY_CUTS, None)[number // len(RARE) % 3] if any(_in_bodies(case.model.graph)) else None
    for way, settings in WAYS.items():
        if (way == ONE_BY_ONE and not iterates) or (way == IMPORTED and "ISOLATION" in case.properties):
            continue
        if way in RARE and (way != rare or (way == CUT_ORT and "onnxruntime" not in case.judges)):
            continue
        if way in BODY_CUTS and (way != body_cut or (way == BODIES_ORT and "onnxruntime" not in case.judges)):
            continue
        given = answers["CPU"].calls if way == OUT else ()
        with small_joins(), special.get(way, contextlib.nullcontext)():
            device = way if way in (*CUTS, *BODY_CUTS, IMPORTED) else "CPU"
            answers[way] = on_hetero(case, device, {**settings, **case.properties}, given)
    plain = answers["CPU"]
    if plain.refused:
        tally.seen["refused by CPU"] += 1
        return [
            f"{way}: compiled, CPU refuses: {plain.refused}"
            for way, answer in answers.items()
            if way not in (*CUTS, *BODY_CUTS) and not answer.refused
        ]
    found = [
        f"{way}: refused: {answer.refused}"
        for way, answer in answers.items()
        # A part that onnxruntime refuses together with the whole model says nothing of hetero.
        if answer.refused and not (way in (CUT_ORT, BODIES_ORT) and on_onnxruntime(case).refused)
    ]
    found += [f"{way}: {trouble}" for way, answer in answers.items() for trouble in answer.troubles]
    for way in list(answers)[1:]:
        disagreed = list(_compared(case, way, plain, answers[way], 0.0 if way in EXACT else case.tolerance))
        if way in (CUT_ORT, BODIES_ORT):  # what onnxruntime refuses in a run says nothing of hetero
            disagreed = [line for line in disagreed if "ORT: inference failed" not in line]
        if not (way in (CUT_ORT, BODIES_ORT) and _reason("onnxruntime", case, known, disagreed)):
            found += disagreed
        if way in special and case.manner == "in turn":
            pairs = zip(plain.calls, answers[way].calls, strict=False)
            texts = [(one, two) for one, two in pairs if isinstance(one, str) and isinstance(two, str)]
            found += [f"{way}: {two}, else: {one}" for one, two in texts if one != two]
    if case.states and case.calls:
        for way, device in ((STATES, "CPU"), (CUT_STATES, CUT)):
            answer = with_states(case, device, plain.calls)
            found += [f"{way}: refused: {answer.refused}"] if answer.refused else []
            found += [f"{way}: {trouble}" for trouble in answer.troubles]
            found += _compared(case, way, plain, answer, case.tolerance)
    for judge in case.judges:
        answer = JUDGES[judge](case)
        if answer.refused:
            tally.seen[f"refused by {judge}"] += 1
            continue
        disagreed = list(_compared(case, judge, plain, answer, case.tolerance))
        reason = _reason(judge, case, known, disagreed)
        if reason is None:
            found += disagreed
        else:
            tally.seen[f"{judge}: {reason}"] += 1
    return found


def _reason(judge: str, case: Case, known: Sequence[Known], disagreed: Sequence[str]) -> str | None:
    """The reason why these differences from a judge are known, if they are."""
    reasons = (
        k.reason
        for k in known
        if k.judge == judge and k.applies(case) and all(k.shows(case, told) for told in disagreed)
    )
    return next(reasons, None) if disagreed else None


def _compared(case: Case, name: str, cpu: Answer, other: Answer, tolerance: float) -> Iterator[str]:
    if other.refused:
        return
    names = [output.name for output in case.model.graph.output]
    for call, (mine, theirs) in enumerate(zip(cpu.calls, other.calls, strict=True)):
        if isinstance(mine, str) or isinstance(theirs, str):
            if isinstance(mine, str) != isinstance(theirs, str):
                one, text = ("CPU", mine) if isinstance(mine, str) else (name, theirs)
                yield f"call {call}: only {one} fails: {text}"
            continue
        for output, one, two in zip(names, mine, theirs, strict=True):
            told = difference(one, np.asarray(two), tolerance, case.elementwise)
            if told:
                yield f"call {call}, output {output!r}: CPU and {name}: {told}"


def difference(mine: np.ndarray, theirs: np.ndarray, tolerance: float, elementwise: bool = False) -> str:
    """How two arrays differ; empty if they do not. ``tolerance`` is relative to the largest finite number,
    or with ``elementwise`` to each number."""
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return f"{mine.dtype}{list(mine.shape)} and {theirs.dtype}{list(theirs.shape)}"
    rough = {2: 1e-2, 1: 1.5e-1}.get(mine.dtype.itemsize, tolerance)
    if mine.dtype.name == "bfloat16":
        rough = 5e-2  # TEMPLATE rounds each step to eight bits
        mine, theirs = mine.astype(np.float32), theirs.astype(np.float32)
    if mine.dtype.kind in "biuOUS" or not tolerance:
        same = mine == theirs
        if mine.dtype.kind == "f":
            same |= np.isnan(mine) & np.isnan(theirs)
    else:
        one, two = mine.astype(np.float64), theirs.astype(np.float64)
        largest = max((float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in (one, two)), default=0.0)
        scale: Any = np.abs(two) if elementwise else largest
        with np.errstate(invalid="ignore", over="ignore"):
            same = (one == two) | (np.abs(one - two) <= np.maximum(rough * scale, SMALLEST))
        same |= np.isnan(one) & np.isnan(two)
    wrong = int(np.count_nonzero(~np.asarray(same)))
    if not wrong:
        return ""
    error = ~np.atleast_1d(same) * 1.0
    if mine.dtype.kind == "f" and tolerance:
        with np.errstate(invalid="ignore"):
            error = np.nan_to_num(np.abs(np.atleast_1d(one - two)), nan=np.inf) * ~np.atleast_1d(same)
    where = tuple(map(int, np.unravel_index(np.nanargmax(error), error.shape)))  # the largest
    at = f"at {list(where)} {np.atleast_1d(mine)[where]} and {np.atleast_1d(theirs)[where]}"
    return f"{wrong} of {mine.size} differ, {at}"


# ---- shrinking -----------------------------------------------------------------------------------------------------


def shrink(case: Case, differs: Callable[[Case], bool], attempts: int = 200) -> Case:
    """A smaller case for which ``differs`` still holds: fewer calls, outputs and nodes."""
    progress = True
    while progress and attempts > 0:
        progress = False
        for smaller in _smaller(case):
            attempts -= 1
            if attempts < 0:
                break
            with contextlib.suppress(Exception):  # the candidate may be an invalid model
                if differs(smaller):
                    case, progress = smaller, True
                    break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    if len(case.calls) > 1:
        half = len(case.calls) // 2
        parts = [case.calls[:half], case.calls[half:]] if half > 1 else []
        for calls in (*parts, *(case.calls[:i] + case.calls[i + 1 :] for i in range(len(case.calls)))):
            yield dataclasses.replace(case, calls=calls)
    graph = case.model.graph
    if len(graph.output) > 1:
        for output in graph.output:
            yield _pruned(case, [output])
    values = _values(case)
    for node in reversed(graph.node):  # an earlier result becomes the model's
        made = [name for name in node.output if name in values and all(name != o.name for o in graph.output)]
        if made:
            yield _pruned(case, [helper.make_empty_tensor_value_info(name) for name in made])
    for node in graph.node:  # what a node makes becomes an input
        if all(name in values for name in node.output if name):
            yield _with_inputs(case, node, values)


def _values(case: Case) -> dict[str, list[np.ndarray]]:
    """All values of all calls, as far as TEMPLATE makes them."""
    everything = onnx.ModelProto()
    everything.CopyFrom(case.model)
    names = [name for node in everything.graph.node for name in node.output if name]
    del everything.graph.output[:]
    everything.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    answer = on_template(dataclasses.replace(case, model=everything))
    calls = [call for call in answer.calls if not isinstance(call, str)]
    if len(calls) != len(case.calls):
        return {}
    return {name: [call[at] for call in calls] for at, name in enumerate(names)}


def _pruned(case: Case, outputs: Sequence[onnx.ValueInfoProto]) -> Case:
    """The case with these outputs, and without what they do not need."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    needed = {output.name for output in outputs}
    kept = []
    for node in reversed(case.model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= _read(node)
    for field, items in (
        (graph.node, kept[::-1]),
        (graph.output, outputs),
        (graph.input, [value for value in case.model.graph.input if value.name in needed]),
        (graph.initializer, [tensor for tensor in case.model.graph.initializer if tensor.name in needed]),
    ):
        copies = list(items)
        del field[:]
        field.extend(copies)
    names = {value.name for value in graph.input}
    calls = [{name: array for name, array in feeds.items() if name in names} for feeds in case.calls]
    return dataclasses.replace(case, model=model, calls=calls)


def _read(node: onnx.NodeProto) -> set[str]:
    read = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                read |= _read(inner)
            read |= {output.name for output in graph.output}
    return read


def _with_inputs(case: Case, node: onnx.NodeProto, values: Mapping[str, list[np.ndarray]]) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.node.remove(node)
    calls = [dict(feeds) for feeds in case.calls]
    for name in filter(None, node.output):
        first = values[name][0]
        dims = [
            size if all(array.shape[axis] == size for array in values[name]) else f"{name}_{axis}"
            for axis, size in enumerate(first.shape)
        ]
        dtype = helper.np_dtype_to_tensor_dtype(first.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, dtype, dims))
        for feeds, array in zip(calls, values[name], strict=True):
            feeds[name] = array
    return _pruned(dataclasses.replace(case, model=model, calls=calls), list(model.graph.output))


def reproduction(case: Case) -> str:
    """The case as text: the model in ONNX's syntax, its constants, and the inputs of each call."""
    lines = [onnx.printer.to_text(case.model)]
    with np.printoptions(threshold=64, precision=9):
        for tensor in case.model.graph.initializer:
            lines.append(f"{tensor.name} = {numpy_helper.to_array(tensor)!r}")
        for number, feeds in enumerate(case.calls):
            lines += [f"call {number}: {name} = {array!r}" for name, array in feeds.items()]
    return "\n".join(lines)
