"""What hetero adds to onnxruntime when it runs a whole model on it: the device ORT, and HETERO over ORT
alone, beside sessions of onnxruntime with the same options. CPU time on one thread.

Two sessions of one model differ by up to a tenth, by where their weights lie in memory. So each contender is made
several times; all are run in interleaved rounds, and of each contender's medians the median counts.

python bench/ort_overhead.py
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import hetero
from hetero.base.formatting import duration
from real_models import load
from timing import medians, repeated

TINY = """<ir_version: 8, opset_import: ["": 17]> tiny (float[4] x) => (float[4] y) { y = Relu (x) }"""
CASES = ("tiny: one Relu of 4 numbers", "MiniLM-L3, sequence 16", "MiniLM-L3, sequence 128")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=5, help="of each contender")
    parser.add_argument("--seconds", type=float, default=20.0, help="per case")
    arguments = parser.parse_args()
    print("| model | on | CPU time | more than onnxruntime |\n|---|---|---|---|")
    for case in CASES:
        if case.startswith("tiny"):
            proto, inputs, calls = onnx.parser.parse_model(TINY), {"x": np.ones(4, np.float32)}, 1000
        else:
            (proto, inputs), calls = load(case), 1
        works = {
            f"{contender} {number}": repeated(runner(contender, proto, inputs), calls)
            for number in range(arguments.instances)
            for contender in CONTENDERS
        }
        found = medians(works, 1001, arguments.seconds)
        own = 0.0
        for contender in CONTENDERS:
            seconds = statistics.median(found[f"{contender} {number}"] for number in range(arguments.instances)) / calls
            own = own or seconds
            more = "" if contender == "onnxruntime" else f"{(seconds - own) * 1e6:+.1f} µs, {seconds / own - 1:+.1%}"
            print(f"| {case} | {contender} | {duration(seconds)} | {more} |", flush=True)
            case = ""


if __name__ == "__main__":
    main()
