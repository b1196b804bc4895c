"""Stages of a pipeline keep values in the memories of their devices."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.plugin import RemoteTensor
from hetero.plugin.profile import HOST
from island import IslandPlugin, Sea
from model_zoo import make_model

node = helper.make_node
PIPELINE = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
X = np.float32([[1, -2, 3]])


class Seas:
    """Two devices with a memory each, and a model in three stages: x + p -> q, -q * r -> s, relu(s) -> y."""

    def __init__(self, **config: object) -> None:
        self.first, self.second = Sea("FIRST"), Sea("SECOND")
        core = hetero.Core()
        core.register_plugin("FIRST", lambda: IslandPlugin(self.first))
        core.register_plugin("SECOND", lambda: IslandPlugin(self.second))
        nodes = [
            node("Add", ["x", "p"], ["q"], name="n0"),
            node("Neg", ["q"], ["a"], name="n1"),
            node("Mul", ["a", "r"], ["s"], name="n2"),
            node("Relu", ["s"], ["y"], name="n3"),
        ]
        shape = ["n", 3]
        model = make_model(nodes, inputs={"x": shape, "p": shape, "r": shape}, outputs=("y", "q", "s"))
        self.compiled = core.compile_model(
            model,
            "HETERO:FIRST,SECOND,CPU",
            {**PIPELINE, **config},
            pins={"n0": "FIRST", "n1": "SECOND", "n2": "SECOND", "n3": "CPU"},
        )

    def crossed(self) -> tuple[int, int, int, int]:
        """Copies into and out of each memory since the last call."""
        lists = (self.first.uploaded, self.first.downloaded, self.second.uploaded, self.second.downloaded)
        counts = tuple(map(len, lists))
        for each in lists:
            each.clear()
        return counts  # type: ignore[return-value]


def check(outputs: hetero.Outputs, x: np.ndarray, p: np.ndarray, r: np.ndarray) -> None:
    for name, value in (("q", x + p), ("s", -(x + p) * r), ("y", np.maximum(-(x + p) * r, 0))):
        result = outputs[name]
        np.testing.assert_allclose(result if isinstance(result, np.ndarray) else result.numpy(), value, 1e-6)


@pytest.mark.parametrize("is_async", [False, True])
def test_values_stay_where_they_are_made(is_async: bool) -> None:
    seas = Seas()
    request = seas.compiled.create_infer_request()

    def infer(inputs: dict[str, object], out: object = None) -> hetero.Outputs:
        if not is_async:
            return request.infer(inputs, out)
        request.start_async(inputs, out)
        request.wait()
        return request.outputs

    p, r = 2 * X, 3 * X
    seas.crossed()
    check(infer({"x": X, "p": p, "r": r}), X, p, r)
    assert seas.crossed() == (2, 1, 2, 1)
    given = {"x": seas.first.upload(X), "p": seas.first.upload(p), "r": seas.second.upload(r)}
    seas.crossed()
    outputs = infer(given, {"q": hetero.ON_DEVICE, "s": hetero.ON_DEVICE})
    assert seas.crossed() == (0, 1, 1, 1)  # q to the second device, s to the CPU
    assert isinstance(outputs["q"], RemoteTensor)
    check(outputs, X, p, r)
    seas.crossed()
    place = seas.second.create_tensor(np.float32, X.shape)
    outputs = infer(given, {"s": place})
    assert outputs["s"] is place
    check(outputs, X, p, r)


def test_many_requests_at_the_same_time() -> None:
    seas = Seas()
    random = np.random.default_rng(0)
    batches = [
        {name: random.standard_normal((1 + at % 3, 3)).astype(np.float32) for name in ("x", "p", "r")}
        for at in range(60)
    ]
    for batch, outputs in zip(batches, seas.compiled.map(batches, in_flight=8), strict=True):
        check(outputs, batch["x"], batch["p"], batch["r"])
    futures = [seas.compiled.submit(batch, hetero.ON_DEVICE if at % 2 else None) for at, batch in enumerate(batches)]
    for batch, future in zip(batches, futures, strict=True):
        check(future.result(), batch["x"], batch["p"], batch["r"])


def test_each_stage_keeps_its_own_state() -> None:
    seas = Seas()
    requests = [seas.compiled.create_stateful_request({"q": "p", "s": "r"}, {"r": X}) for _ in range(2)]
    expected = [(np.zeros_like(X), X) for _ in requests]
    for step in range(4):
        seas.crossed()
        xs = [X + step + number for number in range(len(requests))]
        for request, x in zip(requests, xs, strict=True):
            request.start_async({"x": x})
        for request in requests:
            request.wait()
        for number, x in enumerate(xs):
            p, r = expected[number]
            expected[number] = (x + p, -(x + p) * r)
        if step:  # x to the first device, q to the second, s to the CPU
            assert seas.crossed() == (2, 2, 2, 2)
    for request, (p, r) in zip(requests, expected, strict=True):
        snapshot = request.snapshot_state()
        np.testing.assert_allclose(snapshot["p"], p, 1e-6)
        np.testing.assert_allclose(snapshot["r"], r, 1e-6)


def test_moves_are_in_the_profile() -> None:
    seas = Seas(PERF_COUNT=True)
    request = seas.compiled.create_infer_request()
    request.infer({"x": X, "p": X, "r": X})
    moves = request.profiling_info.moves
    assert {(move.value, move.origin, move.target) for move in moves} >= {
        ("q", "FIRST", HOST),
        ("q", HOST, "SECOND"),
        ("s", "SECOND", HOST),
    }
    assert all(move.nbytes == X.nbytes for move in moves)
    assert len(request.profiling_info.spans) == 3


def test_a_device_that_is_lost_ends_only_its_requests() -> None:
    seas = Seas()
    request = seas.compiled.create_infer_request()
    seas.second.is_lost = True
    with pytest.raises(hetero.InferenceError, match="the island sank"):
        request.infer({"x": X, "p": X, "r": X})
    seas.second.is_lost = False
    check(request.infer({"x": X, "p": X, "r": X}), X, X, X)


def test_a_full_device_leaves_the_request_usable() -> None:
    seas = Seas()
    request = seas.compiled.create_stateful_request({"q": "p"})
    request.infer({"x": X, "r": X})
    seas.second.capacity = 0
    with pytest.raises(hetero.InsufficientMemory) as caught:
        request.infer({"x": X, "r": X})
    assert caught.value.shortfall["SECOND"] > 0
    seas.second.capacity = 1 << 40
    request.infer({"x": X, "r": X})
    np.testing.assert_array_equal(request.snapshot_state()["p"], 2 * X)  # the failed step did not count
