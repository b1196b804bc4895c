"""Eight threads that use shared models at random: infer, asynchronously too, cancel, export, import, compile, drop,
read and set properties, run custom operators and pipelines. Each result must be right.

    python tests/faults/chaos.py --seconds 60
    tools/races.sh --seconds 60                # under the thread sanitizer

With `--race`, all threads call an operator in C that has a race, to show that the sanitizer finds it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "helpers")]

import numpy as np

import hetero
from custom_operators import model_of
from faults import operations
from hetero.errors import Cancelled

THREADS = 8

SOURCE = r"""
#include <hetero/custom_op.h>

long counter;

/* Adds one to each element. With user_data, also changes a variable that it shares with other calls. */
int bump(const hetero_call *call)
{
    const float *x = call->inputs[0].data;
    float *y = call->outputs[0].data;
    for (int64_t i = 0; i < call->outputs[0].size; i++)
        y[i] = x[i] + 1.0f;
    if (call->user_data)
        counter++;
    return 0;
}
"""


def library(folder: Path, sanitized: bool) -> ctypes.CDLL:
    (folder / "bump.c").write_text(SOURCE)
    flags = ["-fsanitize=thread", "-g"] if sanitized else []
    command = [shutil.which("gcc") or "cc", "-O1", "-shared", "-fPIC", *flags, f"-I{hetero.get_include()}"]
    subprocess.run([*command, str(folder / "bump.c"), "-o", str(folder / "bump.so")], check=True)
    return ctypes.CDLL(str(folder / "bump.so"))


class Chaos:
    def __init__(self, folder: Path, race: bool) -> None:
        self.folder, self.races, self.counts = folder, race, Counter[str]()
        self.problems: list[str] = []
        self.core = hetero.Core()
        self.library = library(folder, "tsan" in os.environ.get("LD_PRELOAD", ""))
        bump = hetero.CustomOp(
            "Bump", "com.acme", c_function=self.library.bump, shape_rule=lambda x: x, user_data=1 if race else 0
        )
        self.core.add_extension(bump)
        text = "g (float[64] x) => (float[64] y) { a = Relu(x) b = com.acme.Bump(a) y = Neg(b) }"
        custom = self.core.compile_model(model_of(text), "CPU", {"NUM_STREAMS": 4})
        x = np.linspace(-1, 1, 64, dtype=np.float32)
        two = {"INFERENCE_NUM_THREADS": 2}
        pipeline = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
        makers: list[Callable[[], hetero.CompiledModel]] = [
            lambda: self.core.compile_model(operations.model_bytes(), "CPU", {**two, "NUM_STREAMS": 2}),
            lambda: self.core.compile_model(operations.model_bytes(), "CPU", {"NUM_STREAMS": 3}),
            lambda: self.core.compile_model(operations._dynamic_bytes(), "CPU", two),
            lambda: self.core.compile_model(operations.model_bytes(), operations.DEVICES, pins=operations._pins()),
            lambda: self.core.compile_model(operations.model_bytes(), operations.DEVICES, pipeline),
        ]
        self.models = [(made := make(), operations.inputs(), arrays(made(operations.inputs()))) for make in makers]
        self.models.append((custom, {"x": x}, [-(np.maximum(x, 0) + 1)]))
        self.makers = makers

    def run(self, seconds: float, seed: int) -> None:
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self.work, args=(seed * 100 + i, end)) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self, seed: int, end: float) -> None:
        choose = random.Random(seed)
        actions: tuple[Callable[[random.Random], None], ...] = (self.race,) if self.races else ()
        actions = actions or (
            self.infer,
            self.infer,
            self.asynchronous,
            self.cancel,
            self.export,
            self.compile,
            self.properties,
        )
        while time.monotonic() < end and len(self.problems) < 10:
            action = choose.choice(actions)
            try:
                action(choose)
            except BaseException:
                self.problems.append(f"{action.__name__}: {traceback.format_exc()}")
            self.counts[action.__name__] += 1

    def check(self, found: Any, expected: list[np.ndarray]) -> None:
        for one, other in zip(arrays(found), expected, strict=True):
            if one.tobytes() != other.tobytes():
                raise AssertionError("results differ")

    def infer(self, choose: random.Random) -> None:
        compiled, inputs, expected = choose.choice(self.models)
        for _ in range(choose.randint(1, 4) if len(inputs) > 1 else 100):  # the operator in C takes microseconds
            self.check(compiled(inputs), expected)

    def race(self, choose: random.Random) -> None:
        compiled, inputs, expected = self.models[-1]
        for _ in range(500):
            self.check(compiled(inputs), expected)

    def asynchronous(self, choose: random.Random) -> None:
        compiled, inputs, expected = choose.choice(self.models)
        requests = [compiled.create_infer_request() for _ in range(choose.randint(1, 4))]
        for request in requests:
            request.start_async(inputs)
        for request in requests:
            request.wait()
            self.check(request.outputs, expected)

    def cancel(self, choose: random.Random) -> None:
        compiled, inputs, expected = choose.choice(self.models)
        request = compiled.create_infer_request()
        request.start_async(inputs)
        time.sleep(choose.choice((0, 0, 1e-5, 1e-4)))
        request.cancel()
        try:
            request.wait()
        except Cancelled:
            return
        self.check(request.outputs, expected)

    def export(self, choose: random.Random) -> None:
        number = choose.randrange(len(self.makers))
        compiled, inputs, expected = self.models[number]
        if choose.random() < 0.5:
            stream = io.BytesIO()
            compiled.export_model(stream)
            again = self.core.import_model(stream.getvalue())
        else:
            path = self.folder / f"{number}.hetero"  # of all threads
            compiled.export_model(path)
            again = self.core.import_model(path)
        self.check(again(inputs), expected)

    def compile(self, choose: random.Random) -> None:
        number = choose.randrange(len(self.makers))
        _, inputs, expected = self.models[number]
        self.check(self.makers[number]()(inputs), expected)
        if choose.random() < 0.1:
            gc.collect()

    def properties(self, choose: random.Random) -> None:
        compiled, _, _ = choose.choice(self.models)
        for name in compiled.get_property("SUPPORTED_PROPERTIES"):
            compiled.get_property(name)
        self.core.set_property("CPU", {"PERF_COUNT": choose.random() < 0.5})
        self.core.get_property("CPU", "PERF_COUNT")


def arrays(outputs: Any) -> list[np.ndarray]:
    return [np.asarray(array) for array in outputs.arrays()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--race", action="store_true", help="with a race")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setswitchinterval(1e-4)
        chaos = Chaos(Path(folder), chosen.race)
        chaos.run(chosen.seconds, chosen.seed)
    print(*chaos.problems, f"{dict(sorted(chaos.counts.items()))}, {len(chaos.problems)} problems", sep="\n")
    return bool(chaos.problems)


if __name__ == "__main__":
    sys.exit(main())
