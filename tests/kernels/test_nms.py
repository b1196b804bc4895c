"""nms against a loop over pairs of boxes, with coordinates that are not finite."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetero
from hetero import _kernels

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("nms")


def overlaps(a: np.ndarray, b: np.ndarray, threshold: np.float32) -> bool:
    """Boxes as y1, x1, y2, x2 with y1 <= y2 and x1 <= x2, or NaN."""
    height, width = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in range(2))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    if not (height > 0 and width > 0 and areas[0] > 0 and areas[1] > 0):
        return False
    both = width * height
    return bool(both / (areas[0] + areas[1] - both) > threshold)


def suppressed(boxes: np.ndarray, scores: np.ndarray, most: int, threshold: np.float32) -> list[list[int]]:
    chosen: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if len(chosen) < most and not any(overlaps(boxes[i], boxes[k], threshold) for k in chosen):
            chosen.append(int(i))
    return [[0, 0, i] for i in chosen]


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_nms(variant: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    n = data.draw(st.integers(0, 70))
    size = data.draw(st.sampled_from([0.05, 0.3, 2.0]))
    corner = rng.random((n, 2), dtype=np.float32)
    boxes = np.concatenate([corner, corner + np.float32(size) * rng.random((n, 2), dtype=np.float32)], axis=1)
    if n:
        repeated = rng.integers(n, size=n // 3)
        boxes[rng.integers(n, size=n // 3)] = boxes[repeated]
    for special in data.draw(st.lists(st.sampled_from([np.inf, -np.inf, 0.0, 3e38, 1e-40]), max_size=3)):
        if n:
            row = rng.integers(n)
            boxes[row, rng.integers(4)] = special
            boxes[row] = np.sort(boxes[row].reshape(2, 2), axis=0).reshape(4)
    scores = rng.choice(np.linspace(0, 1, data.draw(st.sampled_from([2, 1000])), dtype=np.float32), n)
    most = data.draw(st.sampled_from([0, 1, 16, 17, 1000]))
    threshold = np.float32(data.draw(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 1.0, np.nan])))
    room = min(most, n)
    chosen, count = _kernels.call(
        "nms",
        [boxes[None], scores[None, None], np.array([most]), threshold.reshape(1), None],
        [((room, 3), "int64"), ((1,), "int64")],
        [0],
        variant=variant,
    )
    with np.errstate(all="ignore"):
        expected = suppressed(boxes, scores, most, threshold)
    assert count.tolist() == [len(expected)]
    assert chosen.tolist() == expected + [[0, 0, 0]] * (room - len(expected))


def test_a_score_that_equals_the_threshold_is_not_chosen() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 3, 4] boxes, float[1, 1, 3] scores) => (int64[n, 3] chosen)
        <int64 most = {3}, float overlap = {0.5}, float least = {0.5}> {
        chosen = NonMaxSuppression (boxes, scores, most, overlap, least)
    }"""
    boxes = np.float32([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]])
    scores = np.float32([[[0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.25]]])
    compiled = hetero.Core().compile_model(onnx.parser.parse_model(text))
    (chosen,) = compiled({"boxes": boxes, "scores": scores}).values()
    assert chosen.tolist() == [[0, 0, 1]]
