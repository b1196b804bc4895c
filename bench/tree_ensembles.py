"""Tree ensembles on CPU beside onnxruntime: 100 full trees of depth 8, 30 features, one thread, CPU time.

python bench/tree_ensembles.py
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from hetero import Core

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/helpers"))
from tree_ensembles import ml_model, random_trees

FEATURES = 30


def timed(call: Any, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{'model':34} {'rows':>5} {'hetero':>10} {'onnxruntime':>12} {'ratio':>6}")
    cases = [("regressor", 1, {}), ("regressor, < and missing values", 1, {"modes": ("BRANCH_LT",), "tracks": True}),
             ("classifier of 10 classes", 10, {})]  # fmt: skip
    for name, targets, options in cases:
        nodes, leaves = random_trees(rng, 100, 8, FEATURES, full=True, **options)
        nodes["nodes_values"] = rng.normal(size=len(nodes["nodes_values"])).tolist()
        kind = "target" if targets == 1 else "class"
        entries = [(tree, node, target) for tree, node in leaves for target in range(targets)]
        attributes: dict[str, Any] = dict(nodes)
        for place, suffix in enumerate(("treeids", "nodeids", "ids")):
            attributes[f"{kind}_{suffix}"] = [entry[place] for entry in entries]
        attributes[f"{kind}_weights"] = rng.uniform(0, 1, len(entries)).tolist()
        attributes |= {"n_targets": 1} if targets == 1 else {"classlabels_int64s": list(range(targets))}
        op = "TreeEnsembleRegressor" if targets == 1 else "TreeEnsembleClassifier"
        model = ml_model(op, np.zeros((1, FEATURES), np.float32), 1 if targets == 1 else 2, **attributes)
        core = Core()
        compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_NUM_THREADS": 1})
        session_options = onnxruntime.SessionOptions()
        session_options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), session_options, providers=["CPUExecutionProvider"]
        )
        for rows in (1, 10, 1000):
            feeds = {"x": rng.normal(size=(rows, FEATURES)).astype(np.float32)}
            repeats = max(1, 2000 // rows)
            ours, theirs = [], []
            for _ in range(25):
                ours.append(timed(lambda: compiled(feeds), repeats))  # noqa: B023
                theirs.append(timed(lambda: session.run(None, feeds), repeats))  # noqa: B023
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            one, other = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
            print(f"{name:34} {rows:5} {one:7.1f} µs {other:9.1f} µs {ratio:6.2f}")


if __name__ == "__main__":
    main()
