"""What hetero adds to onnxruntime when it runs a model on it: the device ORT, and HETERO with one subgraph on ORT, beside
a session of onnxruntime with the same options. CPU time on one thread, medians of interleaved rounds.

python bench/ort_overhead.py
"""

from __future__ import annotations

import argparse

import numpy as np
import onnx.parser
import onnxruntime

import hetero
from real_models import load
from table import time_text
from timing import medians, repeated

TINY = """<ir_version: 8, opset_import: ["": 17]> tiny (float[4] x) => (float[4] y) { y = Relu (x) }"""
CASES = ("tiny: one Relu of 4 numbers", "MiniLM-L3, sequence 16", "MiniLM-L3, sequence 128")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=201)
    parser.add_argument("--seconds", type=float, default=20.0, help="per case")
    arguments = parser.parse_args()
    print("| model | on | CPU time | more than onnxruntime |\n|---|---|---|---|")
    for case in CASES:
        if case.startswith("tiny"):
            proto, inputs, calls = onnx.parser.parse_model(TINY), {"x": np.ones(4, np.float32)}, 1000
        else:
            (proto, inputs), calls = load(case), 1
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        core = hetero.Core()
        core.set_property("ORT", {"INFERENCE_NUM_THREADS": 1})
        model = core.read_model(proto)
        requests = {
            device: core.compile_model(model, device).create_infer_request() for device in ("ORT", "HETERO:ORT")
        }
        works = {"onnxruntime": repeated(lambda: session.run(None, inputs), calls)}  # noqa: B023
        for device, request in requests.items():
            works[device] = repeated(lambda request=request: request.infer(inputs), calls)  # type: ignore[misc] # noqa: B023
        found = medians(works, arguments.rounds, arguments.seconds)
        own = found["onnxruntime"]
        for device, seconds in found.items():
            more = (
                "" if device == "onnxruntime" else f"{(seconds - own) / calls * 1e6:+.1f} µs, {seconds / own - 1:+.1%}"
            )
            print(f"| {case} | {device} | {time_text(seconds / calls)} | {more} |", flush=True)
            case = ""


if __name__ == "__main__":
    main()
