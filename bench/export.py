"""Importing an exported model, beside compiling it and beside onnxruntime's session creation: from the ONNX file, and
from the model that onnxruntime optimized and saved before. `python bench/export.py` prints a table of CPU times on one
thread, medians of interleaved rounds, with the files in the page cache.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import onnxruntime

import hetero
from real_models import load
from timing import medians

CASES = {"MiniLM-L3": "MiniLM-L3, sequence 128", "ResNet-50": "light_resnet50"}
Run = Callable[[Any], Any]


def session(path: str, save: str = "") -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 3
    if save:
        options.optimized_model_filepath = save
    made = onnxruntime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
    return lambda feed: made.run(None, feed)


def ways_to_start(case: str, folder: pathlib.Path) -> dict[str, Callable[[], Run]]:
    """Way -> a function that makes the model ready, and gives what runs it."""
    model, inputs = load(case)
    plain, optimized = str(folder / "m.onnx"), str(folder / "o.onnx")
    pathlib.Path(plain).write_bytes(model.SerializeToString())
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
    for device, name in (("CPU", "cpu"), ("HETERO:CPU", "hetero")):
        compiled = core.compile_model(plain, device)
        compiled(inputs)
        compiled.export_model(folder / f"{name}.hetero")
    session(plain, optimized)
    return {
        "onnxruntime": lambda: session(plain),
        "onnxruntime, optimized before": lambda: session(optimized),
        "CPU, compile": lambda: core.compile_model(plain, "CPU"),
        "CPU, import": lambda: core.import_model(folder / "cpu.hetero", "CPU"),
        "HETERO:CPU, import": lambda: core.import_model(folder / "hetero.hetero", "HETERO"),
    }


def first_inference(start: Callable[[], Run], inputs: Any) -> None:
    start()(inputs)


def main() -> None:
    print("| | | ready | ratio | first inference done | ratio |\n|---|---|---|---|---|---|")
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            ways, inputs = ways_to_start(case, pathlib.Path(folder)), load(case)[1]
            ready = medians(ways, rounds=15)
            done = medians({way: functools.partial(first_inference, start, inputs) for way, start in ways.items()}, 15)
            for way in ways:
                cells = (
                    f"{times[way] * 1e3:.3g} ms | {times[way] / times['onnxruntime']:.2f}" for times in (ready, done)
                )
                print(f"| {name} | {way} | {' | '.join(cells)} |")
                name = ""


if __name__ == "__main__":
    main()
