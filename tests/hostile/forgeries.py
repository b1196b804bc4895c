"""Forged exported files, plans, costs and manifests: real ones with fields changed at random and digests made right.
Also random arguments and command lines.

    python tests/hostile/forgeries.py containers --minutes 10 --seed 3
    python tests/hostile/forgeries.py plans --seed 3 --case 123         # one case, in this process

Cases run in child processes, one after the other. A case fails if it ends its process, raises anything but a
`HeteroError`, or takes more time or memory than a file of its size may. What a model computes is its own affair: an
inference that takes too long or too much memory is stopped and counted. In a build with sanitizers, wrong accesses to
memory end the process.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "helpers")]

import numpy as np
import onnx
from google.protobuf.message import DecodeError

import hetero
from faults import operations
from forging import entries_of, forged
from fuzz.run import case_of
from hetero.errors import HeteroError
from hostile.mutations import change_bytes, change_json, change_message
from hostile.texts import Arguments, Commands

EACH = 25
"""Cases of one subject, such as a model."""
CPU_S, RUN_CPU_S = 4.0, 4.0
GROWTH, GROWTH_PER_BYTE = 64 << 20, 24
HEADROOM = 4 << 30
CHECKED = "libasan" in os.environ.get("LD_PRELOAD", "")

Feeds = Mapping[str, Any]
Step = tuple[str, Callable[[], Any]]
"""A phase and what to do in it. In "run", anything may take long."""


# ---- exported files

HOSTED = """
<ir_version: 8, opset_import: ["" : 20]>
words (string[n] x, float[n,4] a) => (string[m] y, float[n,4] b, int64[k] places)
<string[2] s = {"-", "+"}, float[4,4] w>
{
    lower = StringNormalizer<case_change_action = "LOWER">(x)
    y = Identity(lower)
    found = RegexFullMatch<pattern = "[a-z]+">(x)
    sum = MatMul(a, w)
    b = Relu(sum)
    places = Shape(found)
}
"""


@functools.cache
def _words() -> onnx.ModelProto:
    model = onnx.parser.parse_model(HOSTED)
    kept = [one for one in model.graph.initializer if one.name != "w"]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    return model


def _trees(choose: random.Random) -> tuple[onnx.ModelProto, Feeds]:
    from tree_ensembles import ml_model, random_trees

    rng = np.random.default_rng(choose.randrange(2**32))
    x = rng.standard_normal((3, 5)).astype(np.float32)
    nodes, leaves = random_trees(rng, 5, depth=3, features=5)
    trees, places = zip(*leaves, strict=True)
    weights = {
        "target_treeids": list(trees),
        "target_nodeids": list(places),
        "target_ids": [0] * len(leaves),
        "target_weights": rng.standard_normal(len(leaves)).tolist(),
    }
    model = ml_model("TreeEnsembleRegressor", x, n_targets=1, **nodes, **weights)
    return model, {model.graph.input[0].name: x}


def _model(choose: random.Random) -> tuple[onnx.ModelProto, Feeds]:
    match choose.randrange(9):
        case 0:
            return onnx.load_from_string(operations.model_bytes()), operations.inputs()
        case 1:
            return _words(), {"x": np.array(["Ab", "c1"], object), "a": np.ones((2, 4), np.float32)}
        case 2 | 3:
            kind = "integers"
        case 4:
            kind = "near_misses"
        case 5:
            kind = "graphs"
        case 6:
            return _trees(choose)
        case _:
            kind = "operators"
    case = case_of(kind, choose.randrange(2**31), 0)
    return case.model, case.calls[0]


class Containers:
    """Exported models of random networks on several devices."""

    def __init__(self, choose: random.Random) -> None:
        self.core = hetero.Core()
        while True:
            made, self.feeds = _model(choose)
            try:
                model = self.core.read_model(made)
                device = choose.choice(("CPU", "CPU", "CPU", "HETERO:CPU,TEMPLATE", "HETERO:TEMPLATE,CONTROL_FLOW,CPU"))
                if device == "HETERO:CPU,TEMPLATE":
                    every = range(choose.randrange(2), len(model.nodes), 3)
                    model = model.with_affinity({model.key_of(node): "TEMPLATE" for node in every})
                mode = choose.choice(("OPTIMIZE_SPEED", "OPTIMIZE_SPEED", "OPTIMIZE_SIZE"))
                compiled = self.core.compile_model(model, device, {"CACHE_MODE": mode})
                with contextlib.suppress(HeteroError):
                    compiled(self.feeds)
                stream = io.BytesIO()
                compiled.export_model(stream)
            except HeteroError:
                continue
            break
        self.device, self.data = device.partition(":")[0], stream.getvalue()

    def steps(self, choose: random.Random | None) -> Iterator[Step]:
        data = self.data if choose is None else self._forged(choose)
        yield f"forge {self.note}" if choose else "forge", lambda: None
        state: dict[str, Any] = {}
        self.size = len(data)

        def load() -> None:
            state["compiled"] = self.core.import_model(data, self.device)

        yield "import", load
        yield "run", lambda: state["compiled"](self.feeds)
        yield "run", lambda: state["compiled"](self.feeds)

        def export() -> None:
            stream = io.BytesIO()
            state["compiled"].export_model(stream)
            self.core.import_model(stream.getvalue(), self.device)

        if choose is None or choose.random() < 0.2:
            yield "export", export

    def _forged(self, choose: random.Random) -> bytes:
        notes: list[str] = []

        def in_manifest(manifest: dict[str, Any]) -> None:
            if where == "manifest":
                notes.append("manifest " + change_json(choose, manifest))

        def in_entries(entries: dict[str, bytes]) -> None:
            if where == "manifest":
                return
            name = choose.choice([name for name in entries if kind_of(name) == where])
            notes.append(f"{name} {_change_entry(choose, entries, name)}")

        data = self.data
        kinds = sorted({kind_of(name) for name in entries_of(data)})
        for _ in range(choose.choice((1, 1, 2, 3))):
            where = choose.choice(("manifest", *kinds))
            try:
                data = forged(data, in_manifest, in_entries)
            except (HeteroError, ValueError):  # after an earlier change, it cannot be taken apart
                break
        self.note = "; ".join(notes)
        return data


def kind_of(entry: str) -> str:
    return "arrays" if entry.startswith("weights/") or entry.endswith("/arrays") else entry.rpartition("/")[2]


def _change_entry(choose: random.Random, entries: dict[str, bytes], name: str) -> str:
    if choose.random() < 0.05:
        other = choose.choice(list(entries))
        entries[name], entries[other] = entries[other], entries[name]
        return f"exchanged with {other}"
    if name.endswith(".json"):
        document = [json.loads(entries[name])]
        note = change_json(choose, document)
        entries[name] = json.dumps(document[0] if document else None).encode()
        return note
    model = onnx.ModelProto()
    if name.endswith(".onnx") and choose.random() < 0.9:
        try:
            model.ParseFromString(entries[name])
        except DecodeError:
            return "as before"
        note = change_message(choose, model)
        entries[name] = model.SerializeToString()
        return note
    entries[name] = change_bytes(choose, entries[name])
    return "other bytes"


# ---- documents


class Plans:
    """Plan files, loaded and compiled for their model or another."""

    def __init__(self, choose: random.Random) -> None:
        self.core = hetero.Core()
        self.model = self.core.read_model(operations.model_bytes())
        config: dict[str, Any] = choose.choice(
            ({}, {"OBJECTIVE": "LATENCY"}, {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"})
        )
        pins = {} if choose.random() < 0.3 else {"op:Conv": "TEMPLATE", "op:Gemm": "TEMPLATE"}
        self.plan = json.loads(self.core.plan(self.model, operations.DEVICES, config, pins=pins).to_json())
        self.size = len(json.dumps(self.plan))

    def steps(self, choose: random.Random | None) -> Iterator[Step]:
        document = [json.loads(json.dumps(self.plan))]
        if choose is not None:
            notes = [change_json(choose, document if document else [0]) for _ in range(choose.choice((1, 1, 2)))]
            yield f"forge {notes}", lambda: None
        state: dict[str, Any] = {}

        def load() -> None:
            state["plan"] = plan = hetero.Plan.from_json(json.dumps(document[0] if document else 0).encode(), "it")
            for look in ("affinity", "subgraphs", "values", "totals", "warnings", "latency", "pipeline", "num_nodes"):
                getattr(plan, look)
            assert str(plan)
            assert plan.to_json()

        def bind() -> None:
            state["compiled"] = self.core.compile_model(self.model, state["plan"])

        yield "load", load
        yield "bind", bind
        yield "run", lambda: state["compiled"](operations.inputs())


class CostFiles:
    """Files of measured costs, loaded and planned with."""

    def __init__(self, choose: random.Random) -> None:
        from hetero.assign.costs.measured import Costs, LinkTimes, Measurement, NodeTimes

        self.core = hetero.Core()
        self.model = self.core.read_model(operations.model_bytes())
        nodes = {node.key: NodeTimes(3, 1 + choose.random(), choose.random()) for node in self.model.nodes}
        shapes = {port.name: port.shape for port in self.model.inputs}
        measured = [Measurement(device, shapes, nodes, 5.0, 1.0) for device in ("CPU", "TEMPLATE")]
        links = [LinkTimes("CPU", "TEMPLATE", 1.0, 2.0), LinkTimes("TEMPLATE", "CPU", 1.0, 2.0)]
        self.costs = json.loads(Costs.of_model(self.model, measured, links).to_json())
        self.size = len(json.dumps(self.costs))

    def steps(self, choose: random.Random | None) -> Iterator[Step]:
        from hetero.assign.costs.measured import Costs

        document = [json.loads(json.dumps(self.costs))]
        if choose is not None:
            notes = [change_json(choose, document if document else [0]) for _ in range(choose.choice((1, 1, 2)))]
            yield f"forge {notes}", lambda: None
        objective = "LATENCY" if choose is not None and choose.random() < 0.5 else "SUBGRAPHS"
        state: dict[str, Any] = {}

        def load() -> None:
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                file.write(json.dumps(document[0] if document else 0).encode())
                file.flush()
                state["costs"] = costs = Costs.load(file.name)
            assert costs.to_json()
            costs.merge(costs)

        def plan() -> None:
            config = {"COSTS": state["costs"], "ASSIGNMENT": "COST", "OBJECTIVE": objective}
            assert self.core.plan(self.model, operations.DEVICES, config).to_json()

        yield "load", load
        yield "plan", plan


class Manifests:
    """Manifests of split models, read and run part by part."""

    def __init__(self, choose: random.Random) -> None:
        self.core = hetero.Core()
        self.folder = tempfile.TemporaryDirectory()
        self.parts = Path(self.folder.name) / "parts"
        pins = dict.fromkeys(("op:Conv", "op:Gemm"), "TEMPLATE")
        plan = self.core.plan(operations.model_bytes(), operations.DEVICES, pins=pins)
        hetero.split(operations.model_bytes(), plan, self.parts, external_above=choose.choice((None, 100)))
        self.manifest = json.loads((self.parts / "manifest.json").read_bytes())
        self.size = len(json.dumps(self.manifest))

    def steps(self, choose: random.Random | None) -> Iterator[Step]:
        from hetero.compiling.splitting import read_manifest

        document = [json.loads(json.dumps(self.manifest))]
        if choose is not None:
            notes = [change_json(choose, document if document else [0]) for _ in range(choose.choice((1, 1, 2)))]
            yield f"forge {notes}", lambda: None

        def load() -> None:
            (self.parts / "manifest.json").write_bytes(json.dumps(document[0] if document else 0).encode())
            manifest = read_manifest(self.parts)
            for part in manifest.parts:
                for name in (part.file, part.data):
                    assert name is None or (self.parts / name).resolve().parent == self.parts.resolve(), name

        yield "load", load


KINDS: dict[str, Callable[[random.Random], Any]] = {
    "containers": Containers,
    "plans": Plans,
    "costs": CostFiles,
    "manifests": Manifests,
    "arguments": Arguments,
    "commands": Commands,
}


class Crashing:
    """Ends its process, to show that this is found."""

    size = 0

    def __init__(self, choose: random.Random) -> None:
        pass

    def steps(self, choose: random.Random | None) -> Iterator[Step]:
        import ctypes

        yield "import", (lambda: None) if choose is None else lambda: ctypes.string_at(8)


SUBJECTS = {**KINDS, "crashing": Crashing}


# ---- the child


def _peak() -> tuple[int, int]:
    """Resident bytes now, and their peak."""
    found = {}
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("VmRSS", "VmHWM")):
                found[line[:5]] = int(line.split()[1]) * 1024
    return found["VmRSS"], found["VmHWM"]


def _forget_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def end_after(seconds: float) -> None:
    """End this process once it has used that much more CPU time, or never, with 0."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def attempt(
    subject: Any, choose: random.Random | None, tell: Callable[..., None], limit: Callable[[float], None] = end_after
) -> str:
    """One case. Returns the phase that refused it, or "fine". ``limit``: what keeps a step within its CPU time."""
    steps = subject.steps(choose)
    for phase, step in steps:
        tell(phase)
        if phase.startswith("forge"):
            continue
        limit((RUN_CPU_S if phase == "run" else 3 * CPU_S) * (20 if CHECKED else 1))
        _forget_peak()
        before, start = _peak()[0], time.process_time()
        refused = ""
        try:
            step()
        except HeteroError as error:
            refused = phase
            if len(str(error)) > 70_000:
                tell("problem", f"{phase}: a message of {len(str(error))} characters")
        except MemoryError as error:
            refused = phase
            if phase != "run":
                tell("problem", f"{phase}: {error!r}")
        except Exception as error:
            refused = phase
            import traceback

            lines = "".join(traceback.format_exception(error)[-4:])
            tell("problem", f"{phase}: {type(error).__name__}: {str(error)[:500]}\n{lines}")
        finally:
            limit(0)
        seconds, growth = time.process_time() - start, _peak()[1] - before
        if phase != "run" and not CHECKED and choose is not None:
            if seconds > CPU_S:
                tell("problem", f"{phase}: {seconds:.1f} s of CPU time for {subject.size} bytes")
            if growth > GROWTH + GROWTH_PER_BYTE * subject.size:
                tell("problem", f"{phase}: {growth >> 20} MiB for {subject.size} bytes")
        if refused:
            return refused
    return "fine"


def work(kind: str, seed: int, begin: int) -> None:
    warnings.simplefilter("ignore")

    def tell(what: str, text: str = "") -> None:
        print(json.dumps([number, what, text]), flush=True)

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not CHECKED:
        with open("/proc/self/status") as status:
            space = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSize")) + HEADROOM
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
    number, subject, made = begin, None, -1
    while True:
        if number // EACH != made:
            made = number // EACH
            del subject
            gc.collect()
            subject = SUBJECTS[kind](random.Random(f"{kind} {seed} {made}"))
            found = attempt(subject, None, tell)
            if found != "fine":
                tell("control", found)
        tell("done", attempt(subject, random.Random(f"{kind} {seed} {made} {number}"), tell))
        number += 1
        if number % (8 * EACH) == 0:
            return


# ---- the parent


def fuzz(kind: str, *, seed: int, seconds: float, cases: int = 1 << 40) -> tuple[Counter[str], list[str]]:
    """Run cases until the time is over. Returns how they ended, and the problems."""
    ended: Counter[str] = Counter()
    problems: list[str] = []
    number, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and number < cases:
        command = [sys.executable, __file__, kind, "--seed", str(seed), "--worker", str(number)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
        ):
            assert process.stdout is not None
            phase = note = ""
            stopped = False
            for line in process.stdout:
                number, what, text = json.loads(line)
                if what == "done":
                    ended[text] += 1
                    number += 1
                    if time.monotonic() > end or number >= cases:
                        stopped = True
                        process.kill()
                        break
                elif what == "problem":
                    problems.append(f"{kind}, seed {seed}, case {number}: {note}\n  {text}")
                elif what == "control":
                    ended["control " + text] += 1
                elif what.startswith("forge"):
                    note = what
                else:
                    phase = what
            process.stdout.close()
            status = process.wait()
            errors.seek(0)
            if stopped or status == 0:
                continue
            if status == -signal.SIGPROF and phase == "run":
                ended["took too long to run"] += 1
            else:
                problems.append(
                    f"{kind}, seed {seed}, case {number}: {note}\n  the process ended with {status} in {phase}:\n"
                    + errors.read()[-6000:]
                )
            number += 1
    return ended, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=SUBJECTS)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--case", type=int, help="run only this one, in this process")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker is not None:
        work(chosen.kind, chosen.seed, chosen.worker)
        return 0
    if chosen.case is not None:
        made = chosen.case // EACH
        subject = SUBJECTS[chosen.kind](random.Random(f"{chosen.kind} {chosen.seed} {made}"))
        choose = random.Random(f"{chosen.kind} {chosen.seed} {made} {chosen.case}")
        print(attempt(subject, choose, lambda *told: print(*told, flush=True)))
        return 0
    ended, problems = fuzz(chosen.kind, seed=chosen.seed, seconds=60 * chosen.minutes)
    print(*problems, f"{chosen.kind}, seed {chosen.seed}: {dict(ended)}, {len(problems)} problems", sep="\n\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
