"""Leaks over many inferences and compilations: memory, threads, file descriptors.

    python bench/soak.py                  # 100,000 inferences and 1,000 models of each kind; ten minutes or more
    python bench/soak.py --share 0.01     # a hundredth of the repetitions
    python bench/soak.py --by-group       # a row for each group of kinds, with the largest growth of its kinds

Each kind is repeated in rounds. After each round, garbage is collected, free heap is returned to the system, and a
`Footprint` is taken. The first rounds are warm-up. The table shows the slope over the other rounds (Theil-Sen: the
median of the slopes of all pairs, which single outliers do not move), times the number of rounds. The counts of
Python's memory blocks and of the bytes allocated by malloc show far smaller leaks than resident memory does. If a kind
grows by more than its limit, its row is bold and the exit status is 1.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import functools
import gc
import importlib.util
import itertools
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import hetero
from runtime import on_two, products_model
from table import Table

INFERENCES, MODELS = 100_000, 1_000
WARM_UP, ROUNDS = 3, 10
THREADS_END_SECONDS = 5.0  # at most
SLOW = 20  # inferences of a kind that takes long are as many times fewer

# How much may have gathered after all rounds and still be called flat: caches, counters that grow by a digit, the
# allocators' own rounding.
LIMITS = {"resident": 4 << 20, "heap": 64 << 10, "blocks": 100, "threads": 0, "descriptors": 0}


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What a process holds: ``resident`` bytes in memory, ``heap`` bytes that malloc handed out, ``blocks`` of Python's
    own allocator, threads, file descriptors."""

    resident: int
    heap: int
    blocks: int
    threads: int
    descriptors: int

    @classmethod
    def taken(cls, threads: int | None = None) -> Footprint:
        """Of this process, once at most ``threads`` are left: those that end may take a moment."""
        gc.collect()
        gc.collect()
        deadline = time.monotonic() + THREADS_END_SECONDS
        while threads is not None and _entries("task") > threads and time.monotonic() < deadline:
            time.sleep(0.005)
        heap = 0
        if hasattr(_libc, "mallinfo2"):
            counters = _libc.mallinfo2()
            heap = counters.uordblks + counters.hblkhd
            _libc.malloc_trim(0)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE")
        return cls(resident, heap, sys.getallocatedblocks(), _entries("task"), _entries("fd"))


class _MallInfo2(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


_libc = ctypes.CDLL(None)
if hasattr(_libc, "mallinfo2"):
    _libc.mallinfo2.restype = _MallInfo2


def _entries(folder: str) -> int:
    return len(os.listdir(f"/proc/self/{folder}"))


@dataclasses.dataclass(frozen=True)
class Kind:
    """Something to repeat: ``repetitions`` times in the full version, ``warm_up`` times before, to fill its caches."""

    name: str
    repetitions: int
    repeat: Callable[[], Any]
    warm_up: int = 1
    heap_each: int = 0
    """Bytes of the heap that each repetition may keep, where a library that it uses keeps some."""


@dataclasses.dataclass(frozen=True)
class Growth:
    """How much each count of `Footprint` grew over all measured repetitions of a kind, by the slope."""

    repetitions: int
    by: dict[str, float]
    limits: dict[str, float]
    last: Footprint

    def excess(self) -> dict[str, float]:
        """What grew by more than its limit."""
        return {name: growth for name, growth in self.by.items() if growth > self.limits[name]}


def growth_of(kind: Kind, share: float = 1.0) -> Growth:
    """Repeat a kind ``share`` of its times, and some more for the warm-up."""
    each = max(1, round(kind.repetitions * share / ROUNDS))
    for _ in range(kind.warm_up):
        kind.repeat()
    taken = np.zeros((WARM_UP + ROUNDS, len(LIMITS)), np.int64)  # made before, so that it does not count itself
    last = Footprint.taken()
    for row in taken:
        for _ in range(each):
            kind.repeat()
        last = Footprint.taken(last.threads)
        row[:] = [getattr(last, name) for name in LIMITS]
    rounds = taken[WARM_UP:]
    by = {name: _slope(rounds[:, column]) * ROUNDS for column, name in enumerate(LIMITS)}
    limits = {**LIMITS, "heap": LIMITS["heap"] + kind.heap_each * each * ROUNDS}
    return Growth(each * ROUNDS, by, limits, last)


def _slope(values: np.ndarray) -> float:
    """Per round."""
    pairs = itertools.combinations(enumerate(values.tolist()), 2)
    return statistics.median((b - a) / (j - i) for (i, a), (j, b) in pairs)


# -- models -----------------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


def small_model() -> onnx.ModelProto:
    """A product, a sum, and two functions."""
    value = helper.make_tensor_value_info
    rng = np.random.default_rng(1)
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("w", (16, 32)), ("b", (32,)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "b"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["r"], name="relu"),
        helper.make_node("Tanh", ["r"], ["y"], name="tanh"),
    ]
    graph = helper.make_graph(nodes, "small", [value("x", 1, ["n", 16])], [value("y", 1, ["n", 32])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def kinds(core: hetero.Core, folder: Path) -> Iterator[Kind]:
    """All kinds, one at a time: the objects of one are dropped before the next."""
    model = core.read_model(small_model())
    path = folder / "small.onnx"
    onnx.save(small_model(), path)
    devices = ["CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE", "HETERO:CPU", "MULTI:CPU,TEMPLATE"]
    if importlib.util.find_spec("onnxruntime"):
        devices += ["ORT", "HETERO:CPU,ORT", "MULTI:CPU,ORT"]

    def compiled_for(device: str, **config: Any) -> hetero.CompiledModel:
        second = device.rpartition(",")[2] if device.startswith("HETERO:") and "," in device else ""
        return core.compile_model(model, device, config, pins={"relu": second} if second else None)

    for device in devices:
        compiled = compiled_for(device)
        yield Kind(f"infer, {device}", INFERENCES, functools.partial(compiled, X))
    compiled = compiled_for("CPU", PERF_COUNT=True)
    yield Kind("infer with counters", INFERENCES, lambda: compiled(X))
    compiled = compiled_for("CPU")
    batches = itertools.cycle([np.resize(X, (size, 16)) for size in range(1, 100)])  # more than it keeps plans of
    yield Kind("infer, a shape after the other", INFERENCES // SLOW, lambda: compiled(next(batches)), 200)
    yield Kind("infer, wrong input", INFERENCES, lambda: _refused(lambda: compiled(X[:, 1:])))
    yield Kind("infer, a request each", INFERENCES // SLOW, lambda: compiled.create_infer_request().infer(X))

    products = core.read_model(products_model(branches=True, size=128, depth=6))
    branches = on_two(core, products, lambda key: key.startswith("b"))
    wide = np.ones((128, 128), np.float32)
    yield Kind("infer, branches at the same time", INFERENCES // 4, lambda: branches(wide))

    for device in ("CPU", "HETERO:CPU,TEMPLATE", "MULTI:CPU,TEMPLATE"):
        compiled = compiled_for(device, PERFORMANCE_HINT="THROUGHPUT")
        slow = SLOW if device.startswith("HETERO") else 2
        yield Kind(f"start_async with callback, {device}", INFERENCES // slow, _starter(compiled))
        yield Kind(f"submit, {device}", INFERENCES // slow, _submitter(compiled))
    yield Kind("submit and cancel", INFERENCES // SLOW, lambda: _cancelled(compiled))

    for device in devices:
        yield Kind(f"compile, run, {device}", MODELS, _compiler(compiled_for, device), heap_each=kept_by(device))
    yield Kind("compile, run in threads", MODELS, lambda: compiled_for("CPU", NUM_STREAMS=2).submit(X).result())
    yield Kind("compile from a file", MODELS, lambda: core.compile_model(path, "CPU")(X))
    yield Kind("a Core", MODELS // 4, lambda: _whole_core(path))
    unknown = core.read_model(_with_unknown_operator())
    yield Kind("compile what is rejected", MODELS, lambda: _refused(lambda: core.compile_model(unknown, "CPU")))
    yield Kind("branches, compiled", MODELS, lambda: on_two(core, products, lambda key: key.startswith("b"))(wide))

    isolated = compiled_for("CPU", ISOLATION="PROCESS", WORKER_RETRIES=1)
    yield Kind("infer, in a worker process", INFERENCES // 10, functools.partial(isolated, X))
    yield Kind("infer, after its worker was killed", MODELS // 20, lambda: _killed(isolated))
    yield Kind("compile, run in a worker process", MODELS // 4, lambda: compiled_for("CPU", ISOLATION="PROCESS")(X))

    for device in devices:
        target = folder / "model.hetero"

        def export_import(device: str = device, target: Path = target) -> None:
            compiled_for(device).export_model(target)
            core.import_model(target)(X)

        # Decoders cache a few hundred names of the process, and each export writes new ones, those of a list more than
        # those of a device: the first warm-up of either fills that cache.
        warm_up = 100 if device in ("CPU", "HETERO:CPU,TEMPLATE") else 10
        yield Kind(f"export, import, {device}", MODELS // 4, export_import, warm_up, heap_each=2 * kept_by(device))
    for device in ("CPU", "HETERO:CPU,TEMPLATE"):
        config = {"CACHE_DIR": str(folder / "cache")}
        compiled_for(device, **config)
        assert compiled_for(device, **config).get_property("LOADED_FROM_CACHE")
        yield Kind(f"from the cache, {device}", MODELS, _compiler(compiled_for, device, **config))


def kept_by(device: str) -> int:
    """Bytes for each model: onnxruntime's sessions leave 50 to 120 behind, alone as well."""
    return 256 if "ORT" in device else 0


def _compiler(compiled_for: Callable[..., hetero.CompiledModel], device: str, **config: Any) -> Callable[[], Any]:
    return lambda: compiled_for(device, **config)(X)


def _submitter(compiled: hetero.CompiledModel) -> Callable[[], Any]:
    return lambda: compiled.submit(X).result()


def _starter(compiled: hetero.CompiledModel) -> Callable[[], None]:
    """Starts two requests, and waits for both."""
    done = threading.Semaphore(0)
    requests = [compiled.create_infer_request() for _ in range(2)]
    for request in requests:
        request.set_callback(lambda error: done.release())

    def start() -> None:
        for request in requests:
            request.start_async(X)
        for request in requests:
            request.wait()
            done.acquire()

    return start


def _cancelled(compiled: hetero.CompiledModel) -> None:
    future = compiled.submit(X)
    if not future.cancel():
        future.result()


def _refused(work: Callable[[], Any]) -> None:
    try:
        work()
    except hetero.HeteroError:
        return
    raise AssertionError("not rejected")


def _killed(isolated: Any) -> None:
    os.kill(isolated.process, signal.SIGKILL)
    isolated(X)


def _whole_core(path: Path) -> None:
    hetero.Core().compile_model(path, "HETERO:CPU,TEMPLATE", {"NUM_STREAMS": 2}).submit(X).result()


def _with_unknown_operator() -> onnx.ModelProto:
    proto = small_model()
    proto.graph.node[2].domain = "nobody.has.this"
    proto.opset_import.append(helper.make_opsetid("nobody.has.this", 1))
    return proto


def group_of(kind: str) -> str:
    """The row of a kind in the table by groups."""
    if kind.startswith(("infer, a shape", "infer, a request")):
        return "inferences with other shapes, or on a new request each"
    if kind.startswith("infer, branches"):
        return "inferences of branches at the same time"
    if "worker" in kind:
        return "with a worker process"
    if kind.startswith("infer"):
        return "inferences, with counters and wrong inputs too"
    if kind.startswith(("start_async", "submit")):
        return "asynchronous inferences with callbacks, futures, some canceled"
    if kind.startswith("export"):
        return "models exported and imported" + with_or_without_ort(kind)
    if kind.startswith("from the cache"):
        return "models found in a cache"
    return "models compiled, run and dropped" + with_or_without_ort(kind)


def with_or_without_ort(kind: str) -> str:
    return ", with ORT" if "ORT" in kind else ", without ORT"


def repetitions(counts: Sequence[int]) -> str:
    return f"{counts[0]:,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"


def soak(share: float, only: str = "", by_group: bool = False) -> tuple[Table, int]:
    """The table, and how many kinds leak."""
    columns = ("repetitions", "resident, KiB", "heap, bytes", "blocks of Python", "threads", "descriptors")
    table = Table("", *columns, *([] if by_group else ["seconds"]))
    groups: dict[str, list[Growth]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds(hetero.Core(), Path(folder)):
            if only not in kind.name:
                continue
            gc.collect()
            gc.freeze()  # the collections after each round need not visit the objects that exist already
            begin = time.perf_counter()
            growth = growth_of(kind, share)
            if growth.excess():  # a leak shows again; the noise of one round in a thousand does not
                growth = growth_of(kind, share)
            if by_group:
                groups.setdefault(group_of(kind.name), []).append(growth)
            else:
                seconds = time.perf_counter() - begin
                table.add(*growth_cells(kind.name, [growth]), f"{seconds:.0f}")
            groups.setdefault("", []).append(growth)
    every = groups.pop("", [])
    for name, growths in groups.items():
        table.add(*growth_cells(name, growths))
    return table, sum(bool(growth.excess()) for growth in every)


def growth_cells(name: str, growths: Sequence[Growth]) -> list[str]:
    largest = {count: max(growth.by[count] for growth in growths) for count in LIMITS}
    mark = "**" if any(growth.excess() for growth in growths) else ""
    return [
        f"{mark}{name}{mark}",
        repetitions([growth.repetitions for growth in growths]),
        f"{largest['resident'] / 1024:+.0f}",
        *(f"{largest[count]:+.0f}" for count in ("heap", "blocks", "threads", "descriptors")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of repetitions")
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    parser.add_argument("--by-group", action="store_true", help="a row for each group of kinds")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table, leaks = soak(arguments.share, arguments.only, arguments.by_group)
    table.print()
    sys.exit(1 if leaks else 0)


if __name__ == "__main__":
    main()
