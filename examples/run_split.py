"""Runs a folder that `hetero.split` wrote, with onnxruntime and nothing of hetero.

    python run_split.py FOLDER [--inputs inputs.npz] [--outputs outputs.npz] [--provider FPGA=SomeExecutionProvider]

The folder's manifest.json lists the model's inputs and outputs, and parts in an order in which they can run. A part is
an ONNX file. Each of its inputs has a source: `{"part": 3, "index": 0}` is the first output of part 3, counted from 0,
and `{"part": null, "index": 0}` the model's first input. The outputs of the model have one, too. That is all there is
to it: run the parts in order, and keep what later ones read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

KNOWN_VERSION = 1


class SplitModel:
    """A session per part. `providers`: device of the plan -> execution provider of onnxruntime; others run on CPU."""

    def __init__(self, folder: str | Path, providers: Mapping[str, str] | None = None) -> None:
        self.manifest = json.loads(Path(folder, "manifest.json").read_text(encoding="utf-8"))
        if (self.manifest["format"], self.manifest["version"]) != ("hetero-split", KNOWN_VERSION):
            raise ValueError(f"{folder}: expected hetero-split version {KNOWN_VERSION}")
        self.parts = self.manifest["parts"]
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self.sessions = []
        for part in self.parts:
            wanted = [(providers or {}).get(part["device"], "CPUExecutionProvider")]
            self.sessions.append(ort.InferenceSession(str(Path(folder, part["file"])), options, providers=wanted))
        # The part after which an array is read no more; the model's outputs are kept to the end.
        self.last_read = {}
        for number, part in enumerate(self.parts):
            for port in part["inputs"]:
                self.last_read[source(port)] = number
        for port in self.manifest["outputs"]:
            self.last_read[source(port)] = len(self.parts)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of the model by name. Arrays between parts stay with onnxruntime, whatever their type."""
        known: dict[tuple[int | None, int], Any] = {
            (None, index): ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(inputs[port["name"]]))
            for index, port in enumerate(self.manifest["inputs"])
        }
        for number, (part, session) in enumerate(zip(self.parts, self.sessions, strict=True)):
            feeds = {port["name"]: known[source(port)] for port in part["inputs"]}
            results = session.run_with_ort_values([port["name"] for port in part["outputs"]], feeds)
            known.update({(number, index): result for index, result in enumerate(results)})
            for key in [key for key in known if self.last_read.get(key, -1) <= number]:
                del known[key]
        return {port["name"]: known[source(port)].numpy() for port in self.manifest["outputs"]}


def source(port: Mapping[str, Any]) -> tuple[int | None, int]:
    return port["source"]["part"], port["source"]["index"]


def made_up_inputs(manifest: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Ones, of size 1 wherever a dim is open."""
    return {
        port["name"]: np.ones([dim if isinstance(dim, int) else 1 for dim in port["shape"] or ()], port["dtype"])
        for port in manifest["inputs"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inputs", type=Path, help="an .npz of the model's inputs by name; ones if not given")
    parser.add_argument("--outputs", type=Path, help="where to put the model's outputs, as an .npz")
    parser.add_argument("--provider", action="append", default=[], metavar="DEVICE=PROVIDER")
    arguments = parser.parse_args()
    model = SplitModel(arguments.folder, dict(pair.split("=", 1) for pair in arguments.provider))
    inputs = dict(np.load(arguments.inputs)) if arguments.inputs else made_up_inputs(model.manifest)
    outputs = model(inputs)
    for part in model.parts:
        print(f"{part['file']}: {part['num_nodes']} nodes for {part['device'] or 'any device'}")
    for name, array in outputs.items():
        print(f"{name}: {array.dtype} {list(array.shape)}")
    if arguments.outputs:
        np.savez(arguments.outputs, **outputs)


if __name__ == "__main__":
    main()
