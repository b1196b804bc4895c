"""Operators on text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from onnx.reference.op_run import OpRun

from .table import Corrections

__all__ = ["CORRECTIONS"]


class TfIdfVectorizer(OpRun):
    # onnx.reference takes the weight of an n-gram from the place of its column instead of its place in the pool, and
    # fails if ngram_counts ends with empty parts of the pool. Compared with onnxruntime.

    def _run(
        self,
        x: np.ndarray,
        max_gram_length: int,
        max_skip_count: int,
        min_gram_length: int,
        mode: str,
        ngram_counts: Sequence[int],
        ngram_indexes: Sequence[int],
        pool_int64s: Sequence[int] | None = None,
        pool_strings: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
    ) -> tuple[np.ndarray]:
        if x.ndim not in (1, 2):
            raise ValueError(f"x has shape {list(x.shape)}; expected [C] or [N,C]")
        pool = list(pool_strings or pool_int64s or ())
        ends = [*ngram_counts, len(pool)]
        grams = [
            tuple(pool[at : at + size])
            for size, (begin, end) in enumerate(itertools.pairwise(ends), 1)
            for at in range(begin, end, size)
        ]
        scales = np.ones(len(grams)) if mode == "TF" or not weights else np.array(weights, np.float64)
        columns = np.array(ngram_indexes, np.int64)
        if not len(grams) == len(columns) == len(scales):
            raise ValueError(f"{len(columns)} ngram_indexes and {len(scales)} weights for {len(grams)} n-grams")
        if mode == "IDF":
            shared = np.zeros(columns.max() + 1)
            shared[columns] = scales
            if (shared[columns] != scales).any():
                raise ValueError("weights has several numbers for one entry of ngram_indexes")
        entry_of = {gram: entry for entry, gram in reversed([*enumerate(grams)])}  # the first of equal ones
        rows = x.tolist() if x.ndim == 2 else [x.tolist()]
        result = np.zeros((len(rows), columns.max() + 1))
        for sums, row in zip(result, rows, strict=True):
            for size in range(min_gram_length, max_gram_length + 1):
                for gap in range(1, 2 if size == 1 else min(max_skip_count + 1, len(row)) + 1):
                    for begin in range(len(row) - (size - 1) * gap):
                        entry = entry_of.get(tuple(row[begin : begin + (size - 1) * gap + 1 : gap]))
                        if entry is not None and mode == "IDF":
                            sums[columns[entry]] = scales[entry]
                        elif entry is not None:
                            sums[columns[entry]] += scales[entry]
        return ((result[0] if x.ndim == 1 else result).astype(np.float32),)


CORRECTIONS: Corrections = (("", "TfIdfVectorizer", 9, None, TfIdfVectorizer),)
