"""Overhead of hetero when it runs a whole model with onnxruntime: the devices ORT and HETERO:ORT, beside sessions of
onnxruntime with the same options.

    python bench/ort_overhead.py

CPU time on one thread. The addresses of the weights alone change a session's time by up to 10 %, so each contender is
made several times. All instances run in interleaved rounds, and the table shows the median of an instance's medians.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import hetero
from hetero.base.formatting import duration
from real_models import load
from table import Table
from timing import medians, repeated

TINY = """<ir_version: 8, opset_import: ["": 17]> tiny (float[4] x) => (float[4] y) { y = Relu (x) }"""
TINY_CASE = "one Relu of 4 numbers"
CASES = (TINY_CASE, "MiniLM-L3, sequence 16", "MiniLM-L3, sequence 128")
CONTENDERS = ("onnxruntime", "ORT", "HETERO:ORT")


def runner(contender: str, proto: onnx.ModelProto, inputs: dict[str, Any]) -> Callable[[], Any]:
    if contender == "onnxruntime":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, inputs)
    core = hetero.Core()
    core.set_property("ORT", {"INFERENCE_NUM_THREADS": 1})
    compiled = core.compile_model(core.read_model(proto), contender)
    if contender.startswith("HETERO"):
        assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 1
    request = compiled.create_infer_request()
    return lambda: request.infer(inputs)


def overhead(cases: Sequence[str] = CASES, instances: int = 5, seconds: float = 10.0) -> Table:
    table = Table("the whole model", *CONTENDERS)
    for case in cases:
        if case == TINY_CASE:
            proto, inputs, calls = onnx.parser.parse_model(TINY), {"x": np.ones(4, np.float32)}, 1000
        else:
            (proto, inputs), calls = load(case), 1
        works = {
            f"{contender} {number}": repeated(runner(contender, proto, inputs), calls)
            for number in range(instances)
            for contender in CONTENDERS
        }
        times = medians(works, 1001, seconds)
        by_contender = [
            statistics.median(times[f"{contender} {number}"] for number in range(instances)) / calls
            for contender in CONTENDERS
        ]
        reference = by_contender[0]
        if case == TINY_CASE:
            more = [f"{(own - reference) * 1e6:+.1f} µs" for own in by_contender[1:]]
        else:
            more = [f"{own / reference - 1:+.1%}" for own in by_contender[1:]]
        table.add(case, duration(reference), *more)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--instances", type=int, default=5, help="of each contender")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time per case, after which no round starts")
    arguments = parser.parse_args()
    overhead(arguments.cases, arguments.instances, arguments.seconds).print()


if __name__ == "__main__":
    main()
