"""Importing an exported model, beside compiling it and beside onnxruntime's session creation.

    python bench/export.py

"Ready": CPU time from the file to a model that is ready. "First inference done" continues to the end of the first
inference. "Optimized before" starts from the model that onnxruntime saved after its own optimizations. "Packed": the
file also holds packed weights (``CACHE_MODE`` OPTIMIZE_SPEED). Medians of interleaved rounds with one thread. The files
are in the page cache. "File": the size of the file that the way starts from.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import onnxruntime

import hetero
from hetero.base.formatting import byte_size, duration
from real_models import load
from table import Table
from timing import medians

CASES = {"MiniLM-L3": "MiniLM-L3, sequence 128", "ResNet-50": "light_resnet50"}
REFERENCE = "onnxruntime"
PACKED = {"CACHE_MODE": "OPTIMIZE_SPEED"}
Run = Callable[[Any], Any]


def session(path: str, save: str = "") -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 3
    if save:
        options.optimized_model_filepath = save
    made = onnxruntime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
    return lambda feed: made.run(None, feed)


def ways_to_start(case: str, folder: pathlib.Path) -> dict[str, tuple[pathlib.Path, Callable[[], Run]]]:
    """Way -> the file, and a function that makes the model ready and returns a function that runs it."""
    model, inputs = load(case)
    plain, optimized = folder / "m.onnx", folder / "o.onnx"
    plain.write_bytes(model.SerializeToString())
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
    files = {name: folder / f"{name}.hetero" for name in ("cpu", "packed", "hetero")}
    for name, device, config in (("cpu", "CPU", {}), ("packed", "CPU", PACKED), ("hetero", "HETERO:CPU", {})):
        compiled = core.compile_model(plain, device, config)
        compiled(inputs)
        compiled.export_model(files[name])
    session(str(plain), str(optimized))
    return {
        "onnxruntime": (plain, lambda: session(str(plain))),
        "onnxruntime, optimized before": (optimized, lambda: session(str(optimized))),
        "CPU, compile": (plain, lambda: core.compile_model(plain, "CPU")),
        "CPU, import": (files["cpu"], lambda: core.import_model(files["cpu"], "CPU")),
        "CPU, import packed": (files["packed"], lambda: core.import_model(files["packed"], "CPU")),
        "HETERO:CPU, import": (files["hetero"], lambda: core.import_model(files["hetero"], "HETERO")),
    }


def first_inference(start: Callable[[], Run], inputs: Any) -> None:
    start()(inputs)


def export(names: Sequence[str] = tuple(CASES), rounds: int = 15) -> Table:
    table = Table("", "", "ready", "ratio", "first inference done", "ratio", "file")
    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            found, inputs = ways_to_start(case, pathlib.Path(folder)), load(case)[1]
            sizes = {way: path.stat().st_size for way, (path, _) in found.items()}
            ways = {way: start for way, (_, start) in found.items()}
            ready = medians(ways, rounds)
            done = medians(
                {way: functools.partial(first_inference, start, inputs) for way, start in ways.items()}, rounds
            )
        for number, way in enumerate(ways):
            cells: list[str] = []
            for times in (ready, done):
                cells += [duration(times[way]), f"{times[way] / times[REFERENCE]:.2f}"]
            table.add("" if number else name, way, *cells, byte_size(sizes[way]))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    export(arguments.names, arguments.rounds).print()


if __name__ == "__main__":
    main()
